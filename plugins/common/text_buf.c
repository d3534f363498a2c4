#include "text_buf.h"

#include <stdlib.h>

void tbuf_release(struct tbuf *b)
{
    free(b->p);
    *b = (struct tbuf){ 0 };
}

void tbuf_add(struct tbuf *b, const char *p, size_t n)
{
    size_t cap = b->cap ? b->cap : 64;
    char *q;

    if (b->failed || n == 0)
        return;
    if (n > SIZE_MAX / 4 - b->n) {
        b->failed = true;
        return;
    }
    if (b->n + n > b->cap) {
        while (cap < b->n + n)
            cap *= 2;
        q = realloc(b->p, cap);
        if (!q) {
            b->failed = true;
            return;
        }
        b->p = q;
        b->cap = cap;
    }
    memcpy(b->p + b->n, p, n);
    b->n += n;
}

void tbuf_json_part(struct tbuf *b, const char *s, size_t n)
{
    static const char hex[] = "0123456789abcdef";
    size_t from = 0;

    if (n == 0)
        return;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        char esc[6] = { '\\', (char)c, '0', '0', hex[c >> 4], hex[c & 15] };
        size_t n_esc = 2;

        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        tbuf_add(b, s + from, i - from);
        from = i + 1;
        switch (c) {
        case '"':
        case '\\':
            break;
        case '\n':
            esc[1] = 'n';
            break;
        case '\r':
            esc[1] = 'r';
            break;
        case '\t':
            esc[1] = 't';
            break;
        case '\b':
            esc[1] = 'b';
            break;
        case '\f':
            esc[1] = 'f';
            break;
        default:
            esc[1] = 'u';
            n_esc = 6;
        }
        tbuf_add(b, esc, n_esc);
    }
    tbuf_add(b, s + from, n - from);
}

void tbuf_json(struct tbuf *b, const char *s, size_t n)
{
    tbuf_add(b, "\"", 1);
    tbuf_json_part(b, s, n);
    tbuf_add(b, "\"", 1);
}

enum tutf8 tutf8_next(const char *p, size_t n, uint32_t *cp, size_t *len)
{
    unsigned char c = (unsigned char)p[0];
    unsigned char lo = 0x80, hi = 0xbf; /* bounds of the second byte */
    size_t want;
    uint32_t v;

    *len = 1;
    *cp = c;
    if (c < 0x80)
        return TUTF8_OK;
    if (c < 0xc2 || c > 0xf4)
        return TUTF8_BAD;
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

        *len = i;
        if (i == n)
            return TUTF8_MORE;
        d = (unsigned char)p[i];
        if (d < lo || d > hi)
            return TUTF8_BAD;
        v = v << 6 | (d & 0x3f);
        lo = 0x80;
        hi = 0xbf;
    }
    *cp = v;
    *len = want;
    return TUTF8_OK;
}

void tbuf_utf8(struct tbuf *b, uint32_t cp)
{
    char s[4];
    size_t n;

    if (cp < 0x80) {
        s[0] = (char)cp;
        n = 1;
    } else if (cp < 0x800) {
        s[0] = (char)(0xc0 | cp >> 6);
        s[1] = (char)(0x80 | (cp & 0x3f));
        n = 2;
    } else if (cp < 0x10000) {
        s[0] = (char)(0xe0 | cp >> 12);
        s[1] = (char)(0x80 | (cp >> 6 & 0x3f));
        s[2] = (char)(0x80 | (cp & 0x3f));
        n = 3;
    } else {
        s[0] = (char)(0xf0 | cp >> 18);
        s[1] = (char)(0x80 | (cp >> 12 & 0x3f));
        s[2] = (char)(0x80 | (cp >> 6 & 0x3f));
        s[3] = (char)(0x80 | (cp & 0x3f));
        n = 4;
    }
    tbuf_add(b, s, n);
}

int text_order(struct seam_str a, struct seam_str b)
{
    size_t n = a.n < b.n ? a.n : b.n;
    int c = n ? memcmp(a.p, b.p, n) : 0;

    return c ? c : (a.n > b.n) - (a.n < b.n);
}

size_t text_find(struct seam_str s, size_t from, const char *lit)
{
    const char *at;

    if (from >= s.n)
        return s.n;
    at = memmem(s.p + from, s.n - from, lit, strlen(lit));
    return at ? (size_t)(at - s.p) : s.n;
}

struct seam_str text_trim(struct seam_str s)
{
    while (s.n && text_is_ws(s.p[0])) {
        s.p++;
        s.n--;
    }
    while (s.n && text_is_ws(s.p[s.n - 1]))
        s.n--;
    return s;
}
