/* Stop strings: however the text is cut, the same leaves; nothing leaves that
 * is part of a stop string; without a hit, all does. */
#include <stdlib.h>
#include <string.h>

#include "core/server/stop.h"

/* By definition: the string that ends first, of those the longest. */
static int reference(const struct seam_str *s, uint32_t n, const char *text,
                     size_t len, size_t *cut)
{
    for (size_t end = 1; end <= len; end++) {
        int best = -1;

        for (uint32_t i = 0; i < n; i++)
            if (s[i].n <= end && !memcmp(text + end - s[i].n, s[i].p, s[i].n) &&
                (best < 0 || s[i].n > s[best].n))
                best = (int)i;
        if (best >= 0) {
            *cut = end - s[best].n;
            return best;
        }
    }
    *cut = len;
    return -1;
}

/* n strings of at most 8 bytes, then text in pieces; each length is a byte. */
int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct seam_str s[SEAM_MAX_STOPS] = { 0 };
    struct seam_buf out = { 0 }, text = { 0 };
    struct seam_stop m;
    uint32_t count = 0, want;
    size_t i = 1, cut;
    bool hit = false;
    int best;

    if (n < 2)
        return 0;
    want = p[0] % (SEAM_MAX_STOPS + 1);
    while (count < want && i < n) {
        size_t len = p[i] % 8 + 1u;

        if (i + 1 + len > n)
            break;
        s[count++] = (struct seam_str){ (const char *)p + i + 1, len };
        i += 1 + len;
    }
    if (seam_stop_init(&m, s, count))
        return 0;
    while (i < n && !hit) {
        size_t len = p[i] % 16;

        if (i + 1 + len > n)
            break;
        seam_buf_add(&text, (const char *)p + i + 1, len);
        hit = seam_stop_feed(&m, (const char *)p + i + 1, len, false, &out);
        i += 1 + len;
    }
    best = reference(s, count, text.p ? text.p : "", text.n, &cut);
    if (hit != (best >= 0) || (hit && m.hit != best && s[m.hit].n != s[best].n))
        abort();
    if (!hit)
        seam_stop_flush(&m, &out);
    if (out.n != cut || (cut && memcmp(out.p, text.p, cut)))
        abort();
    seam_stop_release(&m);
    seam_buf_release(&out);
    seam_buf_release(&text);
    return 0;
}
