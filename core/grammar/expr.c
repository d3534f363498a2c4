#include "core/grammar/expr.h"

#include <stdlib.h>

#define MAX_EXPRS  200000
#define MAX_RANGES 200000
/* Repetitions that would be drawn more often are counted at run time. */
#define MAX_UNROLLED 32

void g_exprs_release(struct g_exprs *x)
{
    free(x->expr);
    free(x->range);
}

uint32_t g_expr_new(struct g_exprs *x, enum g_expr_kind kind)
{
    if (!g_grow(x->b, &x->expr, x->n, &x->cap, sizeof *x->expr, MAX_EXPRS))
        return 0;
    x->expr[x->n] = (struct g_expr){ .kind = kind,
                                     .first = G_NONE,
                                     .last = G_NONE,
                                     .next = G_NONE,
                                     .rule = G_NONE };
    return x->n++;
}

void g_expr_child(struct g_exprs *x, uint32_t parent, uint32_t child)
{
    struct g_expr *p;

    if (x->b->rc)
        return;
    p = &x->expr[parent];
    if (p->first == G_NONE)
        p->first = child;
    else
        x->expr[p->last].next = child;
    p->last = child;
}

uint32_t g_expr_repeat(struct g_exprs *x, uint32_t child, uint32_t min,
                       uint32_t max)
{
    uint32_t at = g_expr_new(x, G_EXPR_REPEAT);

    if (x->b->rc)
        return 0;
    x->expr[at].min = min;
    x->expr[at].max = max;
    g_expr_child(x, at, child);
    return at;
}

/* ---- Sets ---------------------------------------------------------------- */

void g_expr_range(struct g_exprs *x, uint32_t lo, uint32_t hi)
{
    if (g_grow(x->b, &x->range, x->n_ranges, &x->cap_ranges, sizeof *x->range,
               MAX_RANGES))
        x->range[x->n_ranges++] = (struct g_range){ lo, hi };
}

static int range_order(const void *a, const void *b)
{
    const struct g_range *x = a, *y = b;

    return x->lo < y->lo ? -1 : x->lo > y->lo;
}

void g_expr_tidy(struct g_exprs *x, uint32_t from, bool negate)
{
    uint32_t n = from, at = 0, end = x->n_ranges;

    if (x->b->rc)
        return;
    if (end > from)
        qsort(x->range + from, end - from, sizeof *x->range, range_order);
    for (uint32_t i = from; i < end; i++) {
        if (n > from && x->range[i].lo <= x->range[n - 1].hi + 1) {
            if (x->range[i].hi > x->range[n - 1].hi)
                x->range[n - 1].hi = x->range[i].hi;
        } else {
            x->range[n++] = x->range[i];
        }
    }
    x->n_ranges = end = n;
    if (!negate)
        return;
    for (uint32_t i = from; i < end; i++) {
        struct g_range r = x->range[i];

        if (r.lo > at)
            g_expr_range(x, at, r.lo - 1);
        at = r.hi + 1;
    }
    if (at <= G_MAX_CHAR)
        g_expr_range(x, at, G_MAX_CHAR);
    if (x->b->rc)
        return;
    memmove(x->range + from, x->range + end,
            (x->n_ranges - end) * sizeof *x->range);
    x->n_ranges -= end - from;
}

uint32_t g_expr_set(struct g_exprs *x, uint32_t from, bool negate)
{
    uint32_t at = g_expr_new(x, G_EXPR_SET);

    g_expr_tidy(x, from, negate);
    if (x->b->rc)
        return 0;
    x->expr[at].first = from;
    x->expr[at].last = x->n_ranges;
    return at;
}

/* ---- Counting ------------------------------------------------------------ */

/* A certain number of characters? */
static bool is_fixed(const struct g_exprs *x, uint32_t at)
{
    const struct g_expr *e = &x->expr[at];

    if (e->kind != G_EXPR_SEQUENCE)
        return e->kind == G_EXPR_SET;
    for (uint32_t i = e->first; i != G_NONE; i = x->expr[i].next)
        if (!is_fixed(x, i))
            return false;
    return true;
}

static bool sets_meet(const struct g_exprs *x, const struct g_expr *a,
                      const struct g_expr *b)
{
    for (uint32_t i = a->first; i < a->last; i++)
        for (uint32_t k = b->first; k < b->last; k++)
            if (x->range[i].lo <= x->range[k].hi &&
                x->range[k].lo <= x->range[i].hi)
                return true;
    return false;
}

/* Can something fixed that follows begin like the set e? */
static bool goes_on_like(const struct g_exprs *x, uint32_t at,
                         const struct g_expr *e)
{
    for (; at != G_NONE; at = x->expr[at].next) {
        const struct g_expr *f = &x->expr[at];

        if (f->kind == G_EXPR_SET)
            return sets_meet(x, f, e);
        if (f->first != G_NONE)
            return goes_on_like(x, f->first, e);
    }
    return false;
}

/* Characters, one set of them repeated, other characters: then there is always
 * only one number of rounds to keep. */
static void count_sequence(struct g_exprs *x, uint32_t at)
{
    uint32_t found = G_NONE;
    struct g_expr *e;

    for (uint32_t i = x->expr[at].first; i != G_NONE; i = x->expr[i].next) {
        if (is_fixed(x, i))
            continue;
        if (found != G_NONE || x->expr[i].kind != G_EXPR_REPEAT)
            return;
        found = i;
    }
    if (found == G_NONE)
        return;
    e = &x->expr[found];
    if (x->expr[e->first].kind != G_EXPR_SET ||
        goes_on_like(x, e->next, &x->expr[e->first]))
        return;
    if (e->min > MAX_UNROLLED || (e->max != G_NO_MAX && e->max > MAX_UNROLLED))
        e->rule = g_rule_new(x->b);
}

void g_expr_count(struct g_exprs *x, uint32_t at)
{
    if (x->b->rc)
        return;
    for (uint32_t i = x->expr[at].first; i != G_NONE; i = x->expr[i].next)
        count_sequence(x, i);
}

void g_expr_set_rules(struct g_exprs *x, enum g_coding coding)
{
    struct g_part none = { G_NONE, G_NONE };

    for (uint32_t i = 0; i < x->n && !x->b->rc; i++) {
        struct g_expr e = x->expr[i];
        struct g_part each;

        if (e.kind != G_EXPR_REPEAT || e.rule == G_NONE)
            continue;
        each.from = g_state(x->b);
        each.to = g_expr_draw(x, each.from, e.first, coding);
        g_rule_loop(x->b, e.rule, none, each, none, e.min, e.max);
    }
}

/* ---- Drawing ------------------------------------------------------------- */

static uint32_t draw_repeat(struct g_exprs *x, uint32_t from,
                            const struct g_expr *e, enum g_coding coding)
{
    struct g_build *b = x->b;
    uint32_t to;

    if (e->rule != G_NONE)
        return g_calling(b, from, e->rule);
    for (uint32_t i = 0; i < e->min && g_work(b, 1); i++)
        from = g_expr_draw(x, from, e->first, coding);
    to = g_state(b);
    if (e->max == G_NO_MAX) {
        /* A state of its own, so that nothing else leads back here. */
        uint32_t loop = g_state(b);

        g_empty(b, from, loop);
        g_empty(b, g_expr_draw(x, loop, e->first, coding), loop);
        g_empty(b, loop, to);
        return to;
    }
    for (uint32_t i = e->min; i < e->max && g_work(b, 1); i++) {
        g_empty(b, from, to);
        from = g_expr_draw(x, from, e->first, coding);
    }
    g_empty(b, from, to);
    return to;
}

uint32_t g_expr_draw(struct g_exprs *x, uint32_t from, uint32_t at,
                     enum g_coding coding)
{
    struct g_build *b = x->b;
    struct g_expr e;
    uint32_t to;

    if (b->rc)
        return 0;
    e = x->expr[at];
    switch (e.kind) {
    case G_EXPR_SEQUENCE:
        for (uint32_t i = e.first; i != G_NONE && !b->rc; i = x->expr[i].next)
            from = g_expr_draw(x, from, i, coding);
        return from;
    case G_EXPR_REPEAT:
        return draw_repeat(x, from, &e, coding);
    case G_EXPR_CALL:
        return g_calling(b, from, e.min);
    case G_EXPR_ADDED:
        to = g_state(b);
        g_added(b, from, (int32_t)e.min, to);
        return to;
    case G_EXPR_SAME:
        return g_expr_draw(x, from, e.min, coding);
    case G_EXPR_TEXT:
        if (x->text)
            return g_copy(b, from, x->text, x->text_first);
        to = g_state(b);
        g_empty(b, from, to);
        g_chars(b, to, 0, G_MAX_CHAR, coding, to);
        return to;
    case G_EXPR_SET:
        to = g_state(b);
        for (uint32_t i = e.first; i < e.last && !b->rc; i++)
            g_chars(b, from, x->range[i].lo, x->range[i].hi, coding, to);
        return to;
    case G_EXPR_CHOICE:
        to = g_state(b);
        for (uint32_t i = e.first; i != G_NONE && !b->rc; i = x->expr[i].next)
            g_empty(b, g_expr_draw(x, from, i, coding), to);
        return to;
    }
    return from;
}
