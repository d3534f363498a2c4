#include "marker.h"

/* Index of the marker that held[0, n_held) + c is or begins, or n_markers. */
static uint32_t marker_match(const struct marker_lexer *l, char c, bool *whole)
{
    for (uint32_t i = 0; i < l->n_markers; i++) {
        const char *m = l->markers[i];

        if (strncmp(m, l->held, l->n_held) || m[l->n_held] != c)
            continue;
        *whole = m[l->n_held + 1] == 0;
        return i;
    }
    return l->n_markers;
}

/* Whole, well-formed characters. */
static void marker_bytes(struct marker_lexer *l, const char *p, size_t n)
{
    const char *end = p + n;

    while (p < end) {
        bool whole = false;
        uint32_t i;

        if (l->n_held == 0) {
            const char *at = memchr(p, '<', (size_t)(end - p));

            if (!at)
                at = end;
            if (at > p)
                l->text(l->ctx, p, (size_t)(at - p));
            if (at == end)
                return;
            l->held[l->n_held++] = '<';
            p = at + 1;
            continue;
        }
        i = marker_match(l, *p, &whole);
        if (i == l->n_markers) {
            size_t n_held = l->n_held;

            l->n_held = 0;
            l->text(l->ctx, l->held, n_held);
            continue;
        }
        if (whole) {
            l->n_held = 0;
            l->marker(l->ctx, i);
        } else {
            l->held[l->n_held++] = *p;
        }
        p++;
    }
}

void marker_feed(struct marker_lexer *l, const char *p, size_t n)
{
    static const char bad[] = "\xef\xbf\xbd";
    const char *end, *run;
    uint32_t cp;
    size_t len;

    if (n == 0)
        return;
    end = p + n;
    /* A character begun in the piece before. */
    while (l->n_part && p < end) {
        enum tutf8 what;

        l->part[l->n_part] = *p;
        what = tutf8_next(l->part, l->n_part + 1, &cp, &len);
        if (what == TUTF8_BAD) {
            /* The new byte does not continue it and stands for itself. */
            l->n_part = 0;
            marker_bytes(l, bad, 3);
            break;
        }
        l->n_part++;
        p++;
        if (what == TUTF8_OK) {
            len = l->n_part;
            l->n_part = 0;
            marker_bytes(l, l->part, len);
        }
    }
    for (run = p; p < end; p += len) {
        enum tutf8 what = tutf8_next(p, (size_t)(end - p), &cp, &len);

        if (what == TUTF8_OK)
            continue;
        marker_bytes(l, run, (size_t)(p - run));
        run = p + len;
        if (what == TUTF8_BAD) {
            marker_bytes(l, bad, 3);
        } else {
            memcpy(l->part, p, len);
            l->n_part = len;
        }
    }
    if (run < end)
        marker_bytes(l, run, (size_t)(end - run));
}

void marker_end(struct marker_lexer *l)
{
    if (!l->n_part)
        return;
    l->n_part = 0;
    marker_bytes(l, "\xef\xbf\xbd", 3);
}
