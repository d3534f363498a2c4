/* Regular expressions: parsed into a tree, then drawn.
 *
 * What has no meaning in an automaton (backreferences, look-around) or needs
 * tables (\p, ignoring case) is refused.  Anchors are understood at the ends of
 * the alternatives of the whole expression. */
#include "core/grammar/regex.h"

#include <stdlib.h>

#include "core/base/utf8.h"

#define MAX_NESTING 100
#define MAX_NODES   100000
#define MAX_RANGES  100000
#define MAX_CHAR    0x10ffffu
#define NO_MAX      UINT32_MAX

enum node_kind { NODE_SEQUENCE, NODE_CHOICE, NODE_SET, NODE_REPEAT };

struct node {
    enum node_kind kind;
    uint32_t first, last; /* children, linked by next; or the set's ranges */
    uint32_t next;
    uint32_t min, max; /* of NODE_REPEAT */
    bool starts, ends; /* a whole alternative: anchored there */
};

struct range {
    uint32_t lo, hi;
};

struct regex {
    struct g_build *b;
    const char *p;
    size_t n, at;
    struct node *node;
    uint32_t n_nodes, cap_nodes;
    struct range *range;
    uint32_t n_ranges, cap_ranges;
    uint32_t depth;
};

static int wrong(struct regex *r, const char *what)
{
    return g_fail_bare(r->b, SEAM_EDATA, "character %zu: %s", r->at + 1, what);
}

static uint32_t node_new(struct regex *r, enum node_kind kind)
{
    if (!g_grow(r->b, &r->node, r->n_nodes, &r->cap_nodes, sizeof *r->node,
                MAX_NODES))
        return 0;
    r->node[r->n_nodes] = (struct node){
        .kind = kind, .first = G_NONE, .last = G_NONE, .next = G_NONE
    };
    return r->n_nodes++;
}

static void node_add(struct regex *r, uint32_t parent, uint32_t child)
{
    struct node *p = &r->node[parent];

    if (r->b->rc)
        return;
    if (p->first == G_NONE)
        p->first = child;
    else
        r->node[p->last].next = child;
    p->last = child;
}

static void range_add(struct regex *r, uint32_t lo, uint32_t hi)
{
    if (g_grow(r->b, &r->range, r->n_ranges, &r->cap_ranges, sizeof *r->range,
               MAX_RANGES))
        r->range[r->n_ranges++] = (struct range){ lo, hi };
}

static int range_order(const void *a, const void *b)
{
    const struct range *x = a, *y = b;

    return x->lo < y->lo ? -1 : x->lo > y->lo;
}

/* Make ranges from `from` on disjoint and ascending, or the opposite. */
static void ranges_tidy(struct regex *r, uint32_t from, bool negate)
{
    uint32_t n = from, at = 0, end = r->n_ranges;

    if (r->b->rc)
        return;
    if (end > from)
        qsort(r->range + from, end - from, sizeof *r->range, range_order);
    for (uint32_t i = from; i < end; i++) {
        if (n > from && r->range[i].lo <= r->range[n - 1].hi + 1) {
            if (r->range[i].hi > r->range[n - 1].hi)
                r->range[n - 1].hi = r->range[i].hi;
        } else {
            r->range[n++] = r->range[i];
        }
    }
    r->n_ranges = end = n;
    if (!negate)
        return;
    for (uint32_t i = from; i < end; i++) {
        struct range x = r->range[i];

        if (x.lo > at)
            range_add(r, at, x.lo - 1);
        at = x.hi + 1;
    }
    if (at <= MAX_CHAR)
        range_add(r, at, MAX_CHAR);
    if (r->b->rc)
        return;
    memmove(r->range + from, r->range + end,
            (r->n_ranges - end) * sizeof *r->range);
    r->n_ranges -= end - from;
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
    uint32_t x = 0, y;

    if (at_char(r, '{')) {
        size_t n = 0;

        r->at++;
        while (r->at + n < r->n && r->p[r->at + n] != '}' && n < 7)
            n++;
        if (!n || n > 6 || !hex_read(r, n, &x) || !at_char(r, '}') ||
            x > MAX_CHAR)
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
    static const struct range digit[] = { { '0', '9' } };
    static const struct range word[] = {
        { '0', '9' }, { 'A', 'Z' }, { '_', '_' }, { 'a', 'z' }
    };
    static const struct range space[] = {
        { 9, 13 },          { 32, 32 },         { 0xa0, 0xa0 },
        { 0x1680, 0x1680 }, { 0x2000, 0x200a }, { 0x2028, 0x2029 },
        { 0x202f, 0x202f }, { 0x205f, 0x205f }, { 0x3000, 0x3000 },
        { 0xfeff, 0xfeff },
    };
    uint32_t from = r->n_ranges;
    char kind = (char)(c | 0x20);
    const struct range *list = kind == 'd' ? digit : kind == 'w' ? word : space;
    size_t n = kind == 'd'   ? sizeof digit / sizeof *digit
               : kind == 'w' ? sizeof word / sizeof *word
                             : sizeof space / sizeof *space;

    if (kind != 'd' && kind != 'w' && kind != 's')
        return false;
    for (size_t i = 0; i < n; i++)
        range_add(r, list[i].lo, list[i].hi);
    ranges_tidy(r, from, c != kind);
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
    uint32_t node = node_new(r, NODE_SET), from = r->n_ranges;
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
            range_add(r, lo, hi);
    }
    r->at++;
    ranges_tidy(r, from, negate);
    if (r->b->rc)
        return 0;
    r->node[node].first = from;
    r->node[node].last = r->n_ranges;
    return node;
}

static uint32_t set_of_class(struct regex *r, char c)
{
    uint32_t node = node_new(r, NODE_SET), from = r->n_ranges;

    if (c == '.') {
        range_add(r, '\n', '\n');
        range_add(r, '\r', '\r');
        range_add(r, 0x2028, 0x2029);
        ranges_tidy(r, from, true);
    } else {
        class_read(r, c);
    }
    if (r->b->rc)
        return 0;
    r->node[node].first = from;
    r->node[node].last = r->n_ranges;
    return node;
}

static uint32_t set_of_char(struct regex *r, uint32_t cp)
{
    uint32_t node = node_new(r, NODE_SET);

    range_add(r, cp, cp);
    if (r->b->rc)
        return 0;
    r->node[node].first = r->n_ranges - 1;
    r->node[node].last = r->n_ranges;
    return node;
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
    if (++r->depth > MAX_NESTING) {
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
        if (x < NO_MAX - 1)
            x = 10 * x + (uint64_t)(r->p[r->at] - '0');
    *out = x < NO_MAX - 1 ? (uint32_t)x : NO_MAX - 1;
    return r->at > from;
}

/* A quantifier behind node, if there is one. */
static uint32_t repeat_read(struct regex *r, uint32_t child)
{
    uint32_t min, max, node;

    if (r->b->rc || r->at >= r->n)
        return child;
    switch (r->p[r->at]) {
    case '*':
        min = 0;
        max = NO_MAX;
        break;
    case '+':
        min = 1;
        max = NO_MAX;
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
                max = NO_MAX;
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
    node = node_new(r, NODE_REPEAT);
    if (r->b->rc)
        return 0;
    r->node[node].min = min;
    r->node[node].max = max;
    node_add(r, node, child);
    return node;
}

static uint32_t sequence_read(struct regex *r, bool top)
{
    uint32_t node = node_new(r, NODE_SEQUENCE);
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
        node_add(r, node, repeat_read(r, atom_read(r)));
    }
    if (r->b->rc)
        return 0;
    r->node[node].starts = starts;
    r->node[node].ends = ends;
    return node;
}

static uint32_t choice_read(struct regex *r, bool top)
{
    uint32_t node = node_new(r, NODE_CHOICE);

    node_add(r, node, sequence_read(r, top));
    while (!r->b->rc && at_char(r, '|')) {
        r->at++;
        node_add(r, node, sequence_read(r, top));
    }
    return node;
}

/* ---- Drawing ------------------------------------------------------------- */

static uint32_t draw(struct regex *r, uint32_t from, uint32_t at,
                     enum g_coding coding)
{
    struct g_build *b = r->b;
    struct node x;
    uint32_t to;

    if (b->rc)
        return 0;
    x = r->node[at];
    switch (x.kind) {
    case NODE_SET:
        to = g_state(b);
        for (uint32_t i = x.first; i < x.last && !b->rc; i++)
            g_chars(b, from, r->range[i].lo, r->range[i].hi, coding, to);
        return to;
    case NODE_SEQUENCE:
        for (uint32_t i = x.first; i != G_NONE; i = r->node[i].next)
            from = draw(r, from, i, coding);
        return from;
    case NODE_CHOICE:
        to = g_state(b);
        for (uint32_t i = x.first; i != G_NONE; i = r->node[i].next)
            g_empty(b, draw(r, from, i, coding), to);
        return to;
    case NODE_REPEAT:
        break;
    }
    for (uint32_t i = 0; i < x.min && g_work(b, 1); i++)
        from = draw(r, from, x.first, coding);
    to = g_state(b);
    if (x.max == NO_MAX) {
        /* A state of its own, so that nothing else leads back here. */
        uint32_t loop = g_state(b);

        g_empty(b, from, loop);
        g_empty(b, draw(r, loop, x.first, coding), loop);
        g_empty(b, loop, to);
        return to;
    }
    for (uint32_t i = x.min; i < x.max && g_work(b, 1); i++) {
        g_empty(b, from, to);
        from = draw(r, from, x.first, coding);
    }
    g_empty(b, from, to);
    return to;
}

static uint32_t draw_any(struct g_build *b, uint32_t from, enum g_coding coding)
{
    uint32_t loop = g_state(b);

    g_empty(b, from, loop);
    g_chars(b, loop, 0, MAX_CHAR, coding, loop);
    return loop;
}

uint32_t g_regex(struct g_build *b, uint32_t from, const char *p, size_t n,
                 enum g_coding coding, bool whole)
{
    struct regex r = { .b = b, .p = p, .n = n };
    uint32_t root = choice_read(&r, true), to = g_state(b);

    if (!b->rc && r.at < n)
        wrong(&r, "nothing is open that could be closed here");
    for (uint32_t i = b->rc ? G_NONE : r.node[root].first; i != G_NONE;
         i = r.node[i].next) {
        uint32_t at = g_state(b);

        g_empty(b, from, at);
        if (!whole && !r.node[i].starts)
            at = draw_any(b, at, coding);
        at = draw(&r, at, i, coding);
        if (!whole && !r.node[i].ends)
            at = draw_any(b, at, coding);
        g_empty(b, at, to);
        if (b->rc)
            break;
    }
    free(r.node);
    free(r.range);
    return to;
}
