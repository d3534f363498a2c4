/* Regular expressions: parsed into a tree, then drawn.
 *
 * What has no meaning in an automaton (backreferences, look-around) or needs
 * tables (\p, ignoring case) is refused.  Anchors are understood at the ends of
 * the alternatives of the whole expression. */
#include "core/grammar/regex.h"

#include <stdlib.h>

#include "core/base/utf8.h"
#include "core/grammar/expr.h"

struct regex {
    struct g_build *b;
    const char *p;
    size_t n, at;
    struct g_exprs x;
    uint32_t depth;
};

static int wrong(struct regex *r, const char *what)
{
    return g_fail_bare(r->b, SEAM_EDATA, "character %zu: %s", r->at + 1, what);
}

/* ---- Reading ------------------------------------------------------------- */

static bool at_char(const struct regex *r, char c)
{
    return r->at < r->n && r->p[r->at] == c;
}

static uint32_t next_char(struct regex *r)
{
    uint32_t cp = 0;
    size_t len = 1;

    if (r->at >= r->n)
        wrong(r, "ends too early");
    else if (seam_utf8_next(r->p + r->at, r->n - r->at, &cp, &len) !=
             SEAM_UTF8_OK)
        wrong(r, "is not UTF-8");
    if (!r->b->rc)
        r->at += len;
    return cp;
}

/* n hexadecimal digits. */
static bool hex_read(struct regex *r, size_t n, uint32_t *out)
{
    uint32_t x = 0;

    if (r->n - r->at < n)
        return false;
    for (size_t i = 0; i < n; i++) {
        char c = r->p[r->at + i];
        int d = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;

        if (d < 0)
            return false;
        x = 16 * x + (uint32_t)d;
    }
    r->at += n;
    *out = x;
    return true;
}

/* Behind "\u". */
static uint32_t unicode_read(struct regex *r)
{
    uint32_t x = 0, y = 0;

    if (at_char(r, '{')) {
        size_t n = 0;

        r->at++;
        while (r->at + n < r->n && r->p[r->at + n] != '}' && n < 7)
            n++;
        if (!n || n > 6 || !hex_read(r, n, &x) || !at_char(r, '}') ||
            x > G_MAX_CHAR)
            wrong(r, "expected \\u{...} with a code point");
        r->at++;
        return x;
    }
    if (!hex_read(r, 4, &x))
        wrong(r, "expected four hexadecimal digits");
    if (x >= 0xd800 && x < 0xdc00 && r->n - r->at >= 6 && r->p[r->at] == '\\' &&
        r->p[r->at + 1] == 'u') {
        r->at += 2;
        if (!hex_read(r, 4, &y) || y < 0xdc00 || y > 0xdfff)
            wrong(r, "expected the second half of a surrogate pair");
        x = 0x10000 + ((x - 0xd800) << 10) + (y & 0x3ff);
    }
    return x;
}

/* \d, \w, \s and their opposites; false: it is something else. */
static bool class_read(struct regex *r, char c)
{
    static const struct g_range digit[] = { { '0', '9' } };
    static const struct g_range word[] = {
        { '0', '9' }, { 'A', 'Z' }, { '_', '_' }, { 'a', 'z' }
    };
    static const struct g_range space[] = {
        { 9, 13 },          { 32, 32 },         { 0xa0, 0xa0 },
        { 0x1680, 0x1680 }, { 0x2000, 0x200a }, { 0x2028, 0x2029 },
        { 0x202f, 0x202f }, { 0x205f, 0x205f }, { 0x3000, 0x3000 },
        { 0xfeff, 0xfeff },
    };
    uint32_t from = r->x.n_ranges;
    char kind = (char)(c | 0x20);
    const struct g_range *list = kind == 'd'   ? digit
                                 : kind == 'w' ? word
                                               : space;
    size_t n = kind == 'd'   ? sizeof digit / sizeof *digit
               : kind == 'w' ? sizeof word / sizeof *word
                             : sizeof space / sizeof *space;

    if (kind != 'd' && kind != 'w' && kind != 's')
        return false;
    for (size_t i = 0; i < n; i++)
        g_expr_range(&r->x, list[i].lo, list[i].hi);
    g_expr_tidy(&r->x, from, c != kind);
    return true;
}

/* Behind a backslash, a single character. */
static uint32_t escape_read(struct regex *r, bool in_class)
{
    static const char syntax[] = "^$\\.*+?()[]{}|/-";
    uint32_t x = 0;
    char c = r->at < r->n ? r->p[r->at] : 0;

    switch (c) {
    case 't':
        x = 9;
        break;
    case 'n':
        x = 10;
        break;
    case 'v':
        x = 11;
        break;
    case 'f':
        x = 12;
        break;
    case 'r':
        x = 13;
        break;
    case 'b':
        if (!in_class)
            wrong(r, "\\b is not supported");
        x = 8;
        break;
    case '0':
        if (r->at + 1 < r->n && r->p[r->at + 1] >= '0' &&
            r->p[r->at + 1] <= '9')
            wrong(r, "octal escapes are not supported");
        break;
    case 'x':
        r->at++;
        if (!hex_read(r, 2, &x))
            wrong(r, "expected two hexadecimal digits");
        return x;
    case 'u':
        r->at++;
        return unicode_read(r);
    case 'c':
        r->at++;
        c = r->at < r->n ? r->p[r->at] : 0;
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')))
            wrong(r, "expected a letter behind \\c");
        x = c & 0x1f;
        break;
    default:
        if (!c || !strchr(syntax, c))
            wrong(r, "this escape is not supported");
        x = (uint8_t)c;
        break;
    }
    r->at++;
    return x;
}

/* One side of a range, or a class; *is_class says which. */
static uint32_t class_atom(struct regex *r, bool *is_class)
{
    *is_class = false;
    if (at_char(r, '\\')) {
        r->at++;
        if (r->at < r->n && class_read(r, r->p[r->at])) {
            r->at++;
            *is_class = true;
            return 0;
        }
        return escape_read(r, true);
    }
    return next_char(r);
}

/* Behind '['. */
static uint32_t set_read(struct regex *r)
{
    uint32_t from = r->x.n_ranges;
    bool negate = at_char(r, '^');

    r->at += negate;
    while (!r->b->rc && !at_char(r, ']')) {
        bool is_class, other;
        uint32_t lo = class_atom(r, &is_class), hi = lo;

        if (at_char(r, '-') && r->at + 1 < r->n && r->p[r->at + 1] != ']') {
            r->at++;
            hi = class_atom(r, &other);
            if (is_class || other)
                wrong(r, "a range needs single characters");
            else if (hi < lo)
                wrong(r, "the range is out of order");
        }
        if (!is_class)
            g_expr_range(&r->x, lo, hi);
    }
    r->at++;
    return g_expr_set(&r->x, from, negate);
}

static uint32_t set_of_class(struct regex *r, char c)
{
    uint32_t from = r->x.n_ranges;

    if (c != '.') {
        class_read(r, c);
        return g_expr_set(&r->x, from, false);
    }
    g_expr_range(&r->x, '\n', '\n');
    g_expr_range(&r->x, '\r', '\r');
    g_expr_range(&r->x, 0x2028, 0x2029);
    return g_expr_set(&r->x, from, true);
}

static uint32_t set_of_char(struct regex *r, uint32_t cp)
{
    uint32_t from = r->x.n_ranges;

    g_expr_range(&r->x, cp, cp);
    return g_expr_set(&r->x, from, false);
}

static uint32_t choice_read(struct regex *r, bool top);

/* Behind '('. */
static uint32_t group_read(struct regex *r)
{
    uint32_t node;

    if (at_char(r, '?')) {
        r->at++;
        if (at_char(r, ':')) {
            r->at++;
        } else if (at_char(r, '<') && r->at + 1 < r->n &&
                   r->p[r->at + 1] != '=' && r->p[r->at + 1] != '!') {
            while (r->at < r->n && r->p[r->at] != '>')
                r->at++;
            r->at++;
        } else {
            wrong(r, "look-around and flags are not supported");
            return 0;
        }
    }
    if (++r->depth > G_MAX_NESTING) {
        wrong(r, "too many groups in each other");
        return 0;
    }
    node = choice_read(r, false);
    r->depth--;
    if (!r->b->rc && !at_char(r, ')'))
        wrong(r, "a group is not closed");
    r->at++;
    return node;
}

static uint32_t atom_read(struct regex *r)
{
    char c = r->p[r->at];

    switch (c) {
    case '(':
        r->at++;
        return group_read(r);
    case '[':
        r->at++;
        return set_read(r);
    case '.':
        r->at++;
        return set_of_class(r, '.');
    case '\\':
        r->at++;
        if (r->at < r->n && strchr("dDwWsS", r->p[r->at]) && r->p[r->at])
            return set_of_class(r, r->p[r->at++]);
        if (r->at < r->n && r->p[r->at] >= '1' && r->p[r->at] <= '9')
            wrong(r, "backreferences are not supported");
        return set_of_char(r, escape_read(r, false));
    case '^':
    case '$':
        wrong(r, "anchors are only supported at the ends of the alternatives "
                 "of the whole");
        return 0;
    case '*':
    case '+':
    case '?':
        wrong(r, "nothing to repeat");
        return 0;
    case '{':
    case '}':
    case ']':
        wrong(r, "this character needs a backslash");
        return 0;
    default:
        return set_of_char(r, next_char(r));
    }
}

static bool number_read(struct regex *r, uint32_t *out)
{
    uint64_t x = 0;
    size_t from = r->at;

    for (; r->at < r->n && r->p[r->at] >= '0' && r->p[r->at] <= '9'; r->at++)
        if (x < G_NO_MAX - 1)
            x = 10 * x + (uint64_t)(r->p[r->at] - '0');
    *out = x < G_NO_MAX - 1 ? (uint32_t)x : G_NO_MAX - 1;
    return r->at > from;
}

/* A quantifier behind node, if there is one. */
static uint32_t repeat_read(struct regex *r, uint32_t child)
{
    uint32_t min, max;

    if (r->b->rc || r->at >= r->n)
        return child;
    switch (r->p[r->at]) {
    case '*':
        min = 0;
        max = G_NO_MAX;
        break;
    case '+':
        min = 1;
        max = G_NO_MAX;
        break;
    case '?':
        min = 0;
        max = 1;
        break;
    case '{':
        r->at++;
        if (!number_read(r, &min)) {
            wrong(r, "expected a number");
            return 0;
        }
        max = min;
        if (at_char(r, ',')) {
            r->at++;
            if (!number_read(r, &max))
                max = G_NO_MAX;
        }
        if (!at_char(r, '}')) {
            wrong(r, "expected '}'");
            return 0;
        }
        if (max < min) {
            wrong(r, "the counts are out of order");
            return 0;
        }
        break;
    default:
        return child;
    }
    r->at++;
    /* How much a quantifier prefers to take is all the same to an automaton. */
    if (at_char(r, '?'))
        r->at++;
    return g_expr_repeat(&r->x, child, min, max);
}

static uint32_t sequence_read(struct regex *r, bool top)
{
    uint32_t node = g_expr_new(&r->x, G_EXPR_SEQUENCE);
    bool starts = false, ends = false;

    if (top && at_char(r, '^')) {
        starts = true;
        r->at++;
    }
    while (!r->b->rc && r->at < r->n && !at_char(r, '|') && !at_char(r, ')')) {
        if (top && at_char(r, '$') &&
            (r->at + 1 == r->n || r->p[r->at + 1] == '|')) {
            ends = true;
            r->at++;
            break;
        }
        g_expr_child(&r->x, node, repeat_read(r, atom_read(r)));
    }
    if (r->b->rc)
        return 0;
    r->x.expr[node].starts = starts;
    r->x.expr[node].ends = ends;
    return node;
}

static uint32_t choice_read(struct regex *r, bool top)
{
    uint32_t node = g_expr_new(&r->x, G_EXPR_CHOICE);

    g_expr_child(&r->x, node, sequence_read(r, top));
    while (!r->b->rc && at_char(r, '|')) {
        r->at++;
        g_expr_child(&r->x, node, sequence_read(r, top));
    }
    return node;
}

/* ---- Drawing ------------------------------------------------------------- */

static uint32_t draw_any(struct g_build *b, uint32_t from, enum g_coding coding)
{
    uint32_t loop = g_state(b);

    g_empty(b, from, loop);
    g_chars(b, loop, 0, G_MAX_CHAR, coding, loop);
    return loop;
}

struct g_part g_regex(struct g_build *b, const char *p, size_t n,
                      enum g_coding coding, bool whole, bool alone)
{
    struct regex r = { .b = b, .p = p, .n = n, .x = { .b = b } };
    uint32_t root = choice_read(&r, true);
    struct g_part part;

    if (!b->rc && r.at < n)
        wrong(&r, "nothing is open that could be closed here");
    for (uint32_t i = b->rc ? G_NONE : r.x.expr[root].first; i != G_NONE;
         i = r.x.expr[i].next)
        if (!whole && !(r.x.expr[i].starts && r.x.expr[i].ends))
            alone = false;
    if (alone) {
        g_expr_count(&r.x, root);
        g_expr_set_rules(&r.x, coding);
    }
    part.from = g_state(b);
    part.to = g_state(b);
    for (uint32_t i = b->rc ? G_NONE : r.x.expr[root].first; i != G_NONE;
         i = r.x.expr[i].next) {
        uint32_t at = g_state(b);

        g_empty(b, part.from, at);
        if (!whole && !r.x.expr[i].starts)
            at = draw_any(b, at, coding);
        at = g_expr_draw(&r.x, at, i, coding);
        if (!whole && !r.x.expr[i].ends)
            at = draw_any(b, at, coding);
        g_empty(b, at, part.to);
        if (b->rc)
            break;
    }
    g_exprs_release(&r.x);
    return part;
}
