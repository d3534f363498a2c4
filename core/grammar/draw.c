/* Drawing rules: states, arcs, and characters as bytes. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/utf8.h"
#include "core/grammar/build.h"

void g_auto_release(struct g_auto *a)
{
    free(a->state);
    free(a->edge);
    free(a->call);
    free(a->added);
    free(a->loop);
    *a = (struct g_auto){ 0 };
}

void g_build_init(struct g_build *b, const struct seam_vocab *v,
                  struct seam_error *err)
{
    *b = (struct g_build){ .v = v, .err = err };
    /* State 0: the end. */
    if (g_grow(b, &b->a.state, 0, &b->a.cap_states, sizeof *b->a.state,
               G_MAX_STATES))
        b->a.state[b->a.n_states++] = (struct g_state){ 0 };
}

void g_build_release(struct g_build *b)
{
    g_auto_release(&b->a);
    free(b->rule);
    free(b->head);
    free(b->arc);
}

static int fail(struct g_build *b, int code, bool bare, const char *fmt,
                va_list ap)
{
    char text[512];

    if (b->rc)
        return b->rc;
    vsnprintf(text, sizeof text, fmt, ap);
    b->rc = seam_fail(b->err, code, "%s", text);
    b->bare = bare;
    return b->rc;
}

int g_fail(struct g_build *b, int code, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    fail(b, code, false, fmt, ap);
    va_end(ap);
    return b->rc;
}

int g_fail_bare(struct g_build *b, int code, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    fail(b, code, true, fmt, ap);
    va_end(ap);
    return b->rc;
}

bool g_work(struct g_build *b, uint64_t n)
{
    if (b->rc)
        return false;
    b->work += n;
    if (b->work > G_MAX_WORK)
        g_fail_bare(b, SEAM_EDATA, "too complex: takes too long to compile");
    return !b->rc;
}

bool g_grow(struct g_build *b, void *array, uint32_t n, uint32_t *cap,
            size_t size, uint32_t max)
{
    void **p = array;
    uint32_t more = *cap ? 2 * *cap : 64;
    void *q;

    if (b->rc)
        return false;
    if (n >= max) {
        g_fail_bare(b, SEAM_EDATA, "too complex: needs more than %u parts",
                    max);
        return false;
    }
    if (n < *cap)
        return true;
    q = realloc(*p, more * size);
    if (!q) {
        g_fail(b, SEAM_ENOMEM, "grammar: out of memory");
        return false;
    }
    *p = q;
    *cap = more;
    return true;
}

uint32_t g_rule_new(struct g_build *b)
{
    if (!g_grow(b, &b->rule, b->n_rules, &b->cap_rules, sizeof *b->rule,
                G_MAX_RULES))
        return 0;
    b->rule[b->n_rules] = G_NONE;
    return b->n_rules++;
}

/* ---- States and arcs ----------------------------------------------------- */

void g_clear(struct g_build *b)
{
    b->n_heads = b->n_arcs = 0;
}

uint32_t g_state(struct g_build *b)
{
    if (!g_grow(b, &b->head, b->n_heads, &b->cap_heads, sizeof *b->head,
                G_MAX_ARCS))
        return 0;
    b->head[b->n_heads] = G_NONE;
    return b->n_heads++;
}

static void arc_add(struct g_build *b, uint32_t from, struct g_arc arc)
{
    if (!g_grow(b, &b->arc, b->n_arcs, &b->cap_arcs, sizeof *b->arc,
                G_MAX_ARCS))
        return;
    arc.next = b->head[from];
    b->arc[b->n_arcs] = arc;
    b->head[from] = b->n_arcs++;
}

void g_empty(struct g_build *b, uint32_t from, uint32_t to)
{
    arc_add(b, from, (struct g_arc){ .kind = G_ARC_EMPTY, .to = to });
}

void g_bytes(struct g_build *b, uint32_t from, uint8_t lo, uint8_t hi,
             uint32_t to)
{
    arc_add(
        b, from,
        (struct g_arc){ .kind = G_ARC_BYTES, .lo = lo, .hi = hi, .to = to });
}

void g_call(struct g_build *b, uint32_t from, uint32_t rule, uint32_t to)
{
    arc_add(b, from,
            (struct g_arc){ .kind = G_ARC_CALL, .arg = rule, .to = to });
}

void g_added(struct g_build *b, uint32_t from, int32_t id, uint32_t to)
{
    arc_add(
        b, from,
        (struct g_arc){ .kind = G_ARC_ADDED, .arg = (uint32_t)id, .to = to });
}

uint32_t g_literal(struct g_build *b, uint32_t from, const char *p, size_t n)
{
    for (size_t i = 0; i < n && !b->rc; i++) {
        uint32_t to = g_state(b);

        g_bytes(b, from, (uint8_t)p[i], (uint8_t)p[i], to);
        from = to;
    }
    return from;
}

uint32_t g_calling(struct g_build *b, uint32_t from, uint32_t rule)
{
    uint32_t to = g_state(b);

    g_call(b, from, rule, to);
    return to;
}

/* ---- Characters ---------------------------------------------------------- */

static size_t utf8_put(uint32_t cp, uint8_t *out)
{
    if (cp < 0x80) {
        out[0] = (uint8_t)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (uint8_t)(0xc0 | cp >> 6);
        out[1] = (uint8_t)(0x80 | (cp & 0x3f));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (uint8_t)(0xe0 | cp >> 12);
        out[1] = (uint8_t)(0x80 | (cp >> 6 & 0x3f));
        out[2] = (uint8_t)(0x80 | (cp & 0x3f));
        return 3;
    }
    out[0] = (uint8_t)(0xf0 | cp >> 18);
    out[1] = (uint8_t)(0x80 | (cp >> 12 & 0x3f));
    out[2] = (uint8_t)(0x80 | (cp >> 6 & 0x3f));
    out[3] = (uint8_t)(0x80 | (cp & 0x3f));
    return 4;
}

/* [lo, hi] whose encodings have the same length, cut so that each part is a
 * sequence of independent byte ranges.  At most 3 cuts deep on either side. */
static void chars_sized(struct g_build *b, uint32_t from, uint32_t lo,
                        uint32_t hi, uint32_t to)
{
    uint8_t x[4], y[4];
    size_t n = utf8_put(lo, x);

    if (b->rc)
        return;
    for (uint32_t k = 1; k < n; k++) {
        uint32_t tail = (1u << 6 * k) - 1; /* bits of the last k bytes */

        if ((lo & ~tail) == (hi & ~tail))
            break;
        if (lo & tail) {
            chars_sized(b, from, lo, lo | tail, to);
            chars_sized(b, from, (lo | tail) + 1, hi, to);
            return;
        }
        if ((hi & tail) != tail) {
            chars_sized(b, from, lo, (hi & ~tail) - 1, to);
            chars_sized(b, from, hi & ~tail, hi, to);
            return;
        }
    }
    utf8_put(hi, y);
    for (size_t i = 0; i < n; i++) {
        uint32_t next = i + 1 == n ? to : g_state(b);

        g_bytes(b, from, x[i], y[i], next);
        from = next;
    }
}

static void chars_raw(struct g_build *b, uint32_t from, uint32_t lo,
                      uint32_t hi, uint32_t to)
{
    static const uint32_t limit[][2] = {
        { 0, 0x7f },        { 0x80, 0x7ff },       { 0x800, 0xd7ff },
        { 0xe000, 0xffff }, { 0x10000, 0x10ffff },
    };

    for (size_t i = 0; i < sizeof limit / sizeof *limit; i++) {
        uint32_t x = lo > limit[i][0] ? lo : limit[i][0];
        uint32_t y = hi < limit[i][1] ? hi : limit[i][1];

        if (x <= y)
            chars_sized(b, from, x, y, to);
    }
}

/* One control, '"' or '\\' of a JSON string. */
static void chars_escaped(struct g_build *b, uint32_t from, uint32_t cp,
                          uint32_t to)
{
    static const char named[][2] = { { '"', '"' },  { '\\', '\\' },
                                     { '\b', 'b' }, { '\f', 'f' },
                                     { '\n', 'n' }, { '\r', 'r' },
                                     { '\t', 't' } };
    char text[8];
    size_t n = 0;

    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        if (cp == (uint32_t)named[i][0])
            n = (size_t)snprintf(text, sizeof text, "\\%c", named[i][1]);
    if (!n)
        n = (size_t)snprintf(text, sizeof text, "\\u%04x", cp & 0xff);
    from = g_literal(b, from, text, n - 1);
    g_bytes(b, from, (uint8_t)text[n - 1], (uint8_t)text[n - 1], to);
}

void g_chars(struct g_build *b, uint32_t from, uint32_t lo, uint32_t hi,
             enum g_coding coding, uint32_t to)
{
    uint32_t at = lo;

    if (coding == G_RAW) {
        chars_raw(b, from, lo, hi, to);
        return;
    }
    for (uint32_t cp = lo; cp <= hi && cp <= '\\' && !b->rc; cp++) {
        if (cp >= 0x20 && cp != '"' && cp != '\\')
            continue;
        if (cp > at)
            chars_raw(b, from, at, cp - 1, to);
        chars_escaped(b, from, cp, to);
        at = cp + 1;
    }
    if (at <= hi)
        chars_raw(b, from, at, hi, to);
}

uint32_t g_text(struct g_build *b, uint32_t from, const char *p, size_t n,
                enum g_coding coding)
{
    for (size_t i = 0, len; i < n && !b->rc; i += len) {
        uint32_t cp, to = g_state(b);

        if (seam_utf8_next(p + i, n - i, &cp, &len) != SEAM_UTF8_OK) {
            g_fail_bare(b, SEAM_EDATA, "text is not UTF-8");
            break;
        }
        g_chars(b, from, cp, cp, coding, to);
        from = to;
    }
    return from;
}
