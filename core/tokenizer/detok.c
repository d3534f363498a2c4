/* Bytes are held back only while they are the beginning of a character that
 * more bytes could complete: at most three, and never longer than needed. */
#include <string.h>

#include "core/base/utf8.h"
#include "core/tokenizer/tokenizer.h"

#define REPLACEMENT "\xef\xbf\xbd"

/* Whole characters of p[0, n) to out; the number of bytes that are left. */
static size_t detok_run(const char *p, size_t n, struct seam_buf *out)
{
    size_t at = 0, from = 0, len;
    uint32_t cp;

    while (at < n) {
        enum seam_utf8 what = seam_utf8_next(p + at, n - at, &cp, &len);

        if (what != SEAM_UTF8_OK)
            seam_buf_add(out, p + from, at - from);
        if (what == SEAM_UTF8_MORE)
            return n - at;
        at += len;
        if (what == SEAM_UTF8_BAD) {
            seam_buf_str(out, REPLACEMENT);
            from = at;
        }
    }
    seam_buf_add(out, p + from, n - from);
    return 0;
}

void seam_detok_add(struct seam_detok *d, const char *p, size_t n,
                    struct seam_buf *out)
{
    /* A held beginning is at most 3 bytes and is decided by the next one. */
    while (d->n_held && n) {
        char both[8];
        size_t left;

        memcpy(both, d->held, d->n_held);
        both[d->n_held] = *p++;
        n--;
        left = detok_run(both, d->n_held + 1, out);
        memmove(d->held, both + d->n_held + 1 - left, left);
        d->n_held = left;
    }
    if (n) {
        d->n_held = detok_run(p, n, out);
        memcpy(d->held, p + n - d->n_held, d->n_held);
    }
}

void seam_detok_end(struct seam_detok *d, struct seam_buf *out)
{
    if (d->n_held)
        seam_buf_str(out, REPLACEMENT);
    d->n_held = 0;
}
