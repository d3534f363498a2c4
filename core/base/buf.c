#include "core/base/buf.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void seam_buf_release(struct seam_buf *b)
{
    free(b->p);
    *b = (struct seam_buf){ 0 };
}

void seam_buf_clear(struct seam_buf *b)
{
    b->n = 0;
    b->failed = false;
    if (b->p)
        b->p[0] = 0;
}

/* Make room for n more bytes and the final NUL. */
static bool buf_reserve(struct seam_buf *b, size_t n)
{
    size_t cap = b->cap ? b->cap : 64;
    char *p;

    if (b->failed || n > SIZE_MAX / 2 - b->n)
        goto fail;
    if (b->n + n < b->cap)
        return true;
    while (cap <= b->n + n)
        cap *= 2;
    p = realloc(b->p, cap);
    if (!p)
        goto fail;
    b->p = p;
    b->cap = cap;
    return true;
fail:
    b->failed = true;
    return false;
}

void seam_buf_add(struct seam_buf *b, const char *p, size_t n)
{
    if (!buf_reserve(b, n))
        return;
    if (n)
        memcpy(b->p + b->n, p, n);
    b->n += n;
    b->p[b->n] = 0;
}

void seam_buf_str(struct seam_buf *b, const char *s)
{
    seam_buf_add(b, s, strlen(s));
}

void seam_buf_fmt(struct seam_buf *b, const char *fmt, ...)
{
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0 || !buf_reserve(b, (size_t)n)) {
        b->failed = true;
        return;
    }
    va_start(ap, fmt);
    vsnprintf(b->p + b->n, (size_t)n + 1, fmt, ap);
    va_end(ap);
    b->n += (size_t)n;
}

void seam_buf_json(struct seam_buf *b, const char *s, size_t n)
{
    static const char *const short_form[0x20] = {
        ['\b'] = "\\b", ['\t'] = "\\t", ['\n'] = "\\n",
        ['\f'] = "\\f", ['\r'] = "\\r",
    };
    size_t from = 0;

    seam_buf_add(b, "\"", 1);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];

        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        seam_buf_add(b, s + from, i - from);
        from = i + 1;
        if (c >= 0x20)
            seam_buf_fmt(b, "\\%c", c);
        else if (short_form[c])
            seam_buf_str(b, short_form[c]);
        else
            seam_buf_fmt(b, "\\u%04x", c);
    }
    seam_buf_add(b, s + from, n - from);
    seam_buf_add(b, "\"", 1);
}
