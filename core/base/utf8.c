#include "core/base/utf8.h"

enum seam_utf8 seam_utf8_next(const char *p, size_t n, uint32_t *cp,
                              size_t *len)
{
    unsigned char c = (unsigned char)p[0];
    unsigned char lo = 0x80, hi = 0xbf; /* bounds of the second byte */
    size_t want;
    uint32_t v;

    *len = 1;
    if (c < 0x80) {
        *cp = c;
        return SEAM_UTF8_OK;
    }
    if (c < 0xc2 || c > 0xf4)
        return SEAM_UTF8_BAD;
    want = c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    v = c & (0x7fu >> want);
    if (c == 0xe0)
        lo = 0xa0;
    else if (c == 0xed)
        hi = 0x9f;
    else if (c == 0xf0)
        lo = 0x90;
    else if (c == 0xf4)
        hi = 0x8f;
    for (size_t i = 1; i < want; i++) {
        unsigned char d;

        if (i == n) {
            *len = n;
            return SEAM_UTF8_MORE;
        }
        d = (unsigned char)p[i];
        if (d < lo || d > hi) {
            *len = i;
            return SEAM_UTF8_BAD;
        }
        v = v << 6 | (d & 0x3f);
        lo = 0x80;
        hi = 0xbf;
    }
    *cp = v;
    *len = want;
    return SEAM_UTF8_OK;
}

bool seam_utf8_valid(const char *p, size_t n)
{
    uint32_t cp;
    size_t len;

    for (size_t i = 0; i < n; i += len)
        if (seam_utf8_next(p + i, n - i, &cp, &len) != SEAM_UTF8_OK)
            return false;
    return true;
}

size_t seam_utf8_whole(const char *p, size_t n)
{
    size_t back = n < 3 ? n : 3;
    uint32_t cp;
    size_t len;

    for (size_t k = 1; k <= back; k++) {
        if (((unsigned char)p[n - k] & 0xc0) == 0x80)
            continue;
        if (seam_utf8_next(p + n - k, k, &cp, &len) == SEAM_UTF8_MORE)
            return n - k;
        break;
    }
    return n;
}
