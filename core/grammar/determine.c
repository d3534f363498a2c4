/* Subset construction, and the rules it makes.
 *
 * A state of the result is a set of drawn states, of which only those are kept
 * that matter: the last one, and those with an arc that consumes something. */
#include <stdlib.h>

#include "core/grammar/build.h"

/* Members of all sets together. */
#define MAX_MEMBERS 4000000

struct set {
    uint32_t at, n; /* in members */
    uint32_t hash;
    uint32_t state;
};

struct subsets {
    struct g_build *b;
    struct g_auto *a;
    uint32_t last; /* the drawn state where the part ends */
    uint32_t *members;
    uint32_t n_members, cap_members;
    struct set *set;
    uint32_t n_sets, cap_sets;
    uint32_t *slot; /* [mask + 1] set + 1, or 0 */
    uint32_t mask;
    uint32_t *mark; /* [n_heads] stamp of the closure that reached a state */
    uint32_t stamp;
    uint32_t *stack; /* [n_heads] */
    uint32_t *found; /* [n_heads] of the closure at hand */
    uint32_t n_found;
    struct g_arc *arc; /* arcs of the set at hand */
    uint32_t n_arcs, cap_arcs;
};

static int u32_order(const void *a, const void *b)
{
    const uint32_t *x = a, *y = b;

    return *x < *y ? -1 : *x > *y;
}

static bool matters(const struct subsets *s, uint32_t state)
{
    if (state == s->last)
        return true;
    for (uint32_t i = s->b->head[state]; i != G_NONE; i = s->b->arc[i].next)
        if (s->b->arc[i].kind != G_ARC_EMPTY)
            return true;
    return false;
}

static void closure_begin(struct subsets *s)
{
    s->stamp++;
    s->n_found = 0;
}

static void closure_add(struct subsets *s, uint32_t state)
{
    uint32_t n = 0;

    if (s->mark[state] == s->stamp)
        return;
    s->mark[state] = s->stamp;
    s->stack[n++] = state;
    while (n) {
        uint32_t x = s->stack[--n];

        if (matters(s, x))
            s->found[s->n_found++] = x;
        for (uint32_t i = s->b->head[x]; i != G_NONE; i = s->b->arc[i].next) {
            const struct g_arc *arc = &s->b->arc[i];

            if (!g_work(s->b, 1))
                return;
            if (arc->kind != G_ARC_EMPTY || s->mark[arc->to] == s->stamp)
                continue;
            s->mark[arc->to] = s->stamp;
            s->stack[n++] = arc->to;
        }
    }
}

static bool slots_grow(struct subsets *s)
{
    uint32_t mask = s->mask ? 2 * s->mask + 1 : 255;
    uint32_t *slot;

    if (s->mask && s->n_sets < s->mask / 2)
        return true;
    slot = calloc((size_t)mask + 1, sizeof *slot);
    if (!slot) {
        g_fail(s->b, SEAM_ENOMEM, "grammar: out of memory");
        return false;
    }
    for (uint32_t i = 0; i < s->n_sets; i++) {
        uint32_t at = s->set[i].hash & mask;

        while (slot[at])
            at = (at + 1) & mask;
        slot[at] = i + 1;
    }
    free(s->slot);
    s->slot = slot;
    s->mask = mask;
    return true;
}

static uint32_t state_new(struct g_build *b, struct g_auto *a)
{
    if (!g_grow(b, &a->state, a->n_states, &a->cap_states, sizeof *a->state,
                G_MAX_STATES))
        return 0;
    a->state[a->n_states] = (struct g_state){ 0 };
    return a->n_states++;
}

/* The state of the closure at hand. */
static uint32_t closure_state(struct subsets *s)
{
    uint32_t hash = 2166136261u, at;
    struct set set;

    if (!g_work(s->b, 4 * (uint64_t)s->n_found + 1) || !slots_grow(s))
        return 0;
    qsort(s->found, s->n_found, sizeof *s->found, u32_order);
    for (uint32_t i = 0; i < s->n_found; i++)
        hash = (hash ^ s->found[i]) * 16777619u;
    hash ^= hash >> 15;
    for (at = hash & s->mask; s->slot[at]; at = (at + 1) & s->mask) {
        const struct set *x = &s->set[s->slot[at] - 1];

        if (x->hash == hash && x->n == s->n_found &&
            (!x->n ||
             !memcmp(s->members + x->at, s->found, x->n * sizeof *s->found)))
            return x->state;
    }
    set = (struct set){ .at = s->n_members, .n = s->n_found, .hash = hash };
    for (uint32_t i = 0; i < s->n_found; i++) {
        if (!g_grow(s->b, &s->members, s->n_members, &s->cap_members,
                    sizeof *s->members, MAX_MEMBERS))
            return 0;
        s->members[s->n_members++] = s->found[i];
    }
    set.state = state_new(s->b, s->a);
    if (!g_grow(s->b, &s->set, s->n_sets, &s->cap_sets, sizeof *s->set,
                G_MAX_STATES))
        return 0;
    s->set[s->n_sets++] = set;
    s->slot[at] = s->n_sets;
    return set.state;
}

static void edge_add(struct g_build *b, struct g_auto *a, struct g_state *st,
                     struct g_edge e)
{
    struct g_edge *last = st->n_edges ? &a->edge[a->n_edges - 1] : NULL;

    if (last && last->hi + 1 == e.lo && last->to == e.to &&
        last->flags == e.flags) {
        last->hi = e.hi;
        return;
    }
    if (!g_grow(b, &a->edge, a->n_edges, &a->cap_edges, sizeof *a->edge,
                G_MAX_EDGES))
        return;
    a->edge[a->n_edges++] = e;
    st->n_edges++;
}

/* Edges of a state, from the byte arcs of its set: where all arcs that cover a
 * byte lead. */
static void state_edges(struct subsets *s, struct g_state *st)
{
    bool cut[257] = { false };
    unsigned lo = 0;

    st->edge = s->a->n_edges;
    for (uint32_t i = 0; i < s->n_arcs; i++)
        if (s->arc[i].kind == G_ARC_BYTES) {
            cut[s->arc[i].lo] = true;
            cut[s->arc[i].hi + 1] = true;
        }
    for (unsigned next = 1; next <= 256; next++) {
        if (!cut[next] && next < 256)
            continue;
        closure_begin(s);
        if (!g_work(s->b, s->n_arcs))
            return;
        for (uint32_t i = 0; i < s->n_arcs; i++)
            if (s->arc[i].kind == G_ARC_BYTES && s->arc[i].lo <= lo &&
                s->arc[i].hi >= lo)
                closure_add(s, s->arc[i].to);
        if (s->n_found)
            edge_add(s->b, s->a, st,
                     (struct g_edge){ .lo = (uint8_t)lo,
                                      .hi = (uint8_t)(next - 1),
                                      .to = closure_state(s) });
        lo = next;
    }
}

/* Calls and added tokens: one of a kind leads where all its arcs lead. */
static void state_symbols(struct subsets *s, struct g_state *st)
{
    st->call = s->a->n_calls;
    st->added = s->a->n_added;
    for (uint32_t i = 0; i < s->n_arcs; i++) {
        struct g_arc x = s->arc[i];
        uint32_t to;

        if (x.kind != G_ARC_CALL && x.kind != G_ARC_ADDED)
            continue;
        closure_begin(s);
        if (!g_work(s->b, s->n_arcs))
            return;
        for (uint32_t j = i; j < s->n_arcs; j++)
            if (s->arc[j].kind == x.kind && s->arc[j].arg == x.arg) {
                closure_add(s, s->arc[j].to);
                s->arc[j].kind = G_ARC_EMPTY;
            }
        to = closure_state(s);
        if (x.kind == G_ARC_CALL) {
            if (!g_grow(s->b, &s->a->call, s->a->n_calls, &s->a->cap_calls,
                        sizeof *s->a->call, G_MAX_EDGES))
                return;
            s->a->call[s->a->n_calls++] =
                (struct g_call){ .rule = x.arg, .ret = to };
            st->n_calls++;
        } else {
            if (!g_grow(s->b, &s->a->added, s->a->n_added, &s->a->cap_added,
                        sizeof *s->a->added, G_MAX_EDGES))
                return;
            s->a->added[s->a->n_added++] =
                (struct g_added){ .id = (int32_t)x.arg, .to = to };
            st->n_added++;
        }
    }
}

static void set_expand(struct subsets *s, const struct set *set)
{
    struct g_state st = { 0 };

    s->n_arcs = 0;
    for (uint32_t k = 0; k < set->n; k++) {
        uint32_t x = s->members[set->at + k];

        if (x == s->last)
            st.flags |= G_ACCEPT;
        for (uint32_t i = s->b->head[x]; i != G_NONE; i = s->b->arc[i].next) {
            if (s->b->arc[i].kind == G_ARC_EMPTY)
                continue;
            if (!g_grow(s->b, &s->arc, s->n_arcs, &s->cap_arcs, sizeof *s->arc,
                        G_MAX_ARCS))
                return;
            s->arc[s->n_arcs++] = s->b->arc[i];
        }
    }
    state_edges(s, &st);
    state_symbols(s, &st);
    s->a->state[set->state] = st;
}

uint32_t g_determine(struct g_build *b, struct g_auto *a, struct g_part part)
{
    struct subsets s = { .b = b, .a = a, .last = part.to };
    uint32_t first = 0;
    size_t n = b->n_heads ? b->n_heads : 1;

    if (b->rc)
        return 0;
    s.mark = calloc(n, sizeof *s.mark);
    s.stack = calloc(n, sizeof *s.stack);
    s.found = calloc(n, sizeof *s.found);
    if (!s.mark || !s.stack || !s.found) {
        g_fail(b, SEAM_ENOMEM, "grammar: out of memory");
        goto out;
    }
    closure_begin(&s);
    closure_add(&s, part.from);
    first = closure_state(&s);
    /* The order of sets is the order of states. */
    for (uint32_t i = 0; i < s.n_sets && !b->rc; i++) {
        struct set set = s.set[i];

        set_expand(&s, &set);
    }
out:
    free(s.mark);
    free(s.stack);
    free(s.found);
    free(s.members);
    free(s.set);
    free(s.slot);
    free(s.arc);
    return b->rc ? 0 : first;
}

/* ---- Rules --------------------------------------------------------------- */

void g_rule_set(struct g_build *b, uint32_t rule, struct g_part part)
{
    uint32_t first = g_determine(b, &b->a, part);

    if (!b->rc)
        b->rule[rule] = first;
    g_clear(b);
}

/* States [from, to) of a, of which a loop's end states become `into`. */
static void redirect(struct g_auto *a, uint32_t from, uint32_t to,
                     uint32_t into, uint8_t flags)
{
    for (uint32_t i = from; i < to; i++) {
        const struct g_state *st = &a->state[i];

        for (uint32_t k = 0; k < st->n_edges; k++) {
            struct g_edge *e = &a->edge[st->edge + k];

            if (a->state[e->to].flags & G_ACCEPT) {
                e->to = into;
                e->flags |= flags;
            }
        }
        for (uint32_t k = 0; k < st->n_calls; k++) {
            struct g_call *c = &a->call[st->call + k];

            if (a->state[c->ret].flags & G_ACCEPT) {
                c->ret = into;
                c->flags |= flags;
            }
        }
        for (uint32_t k = 0; k < st->n_added; k++) {
            struct g_added *c = &a->added[st->added + k];

            if (a->state[c->to].flags & G_ACCEPT) {
                c->to = into;
                c->flags |= flags;
            }
        }
    }
}

/* Edges of states [from, to) that lead to an end among them count a round. */
static void redirect_each(struct g_auto *a, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++)
        for (uint32_t k = 0; k < a->state[i].n_edges; k++) {
            struct g_edge *e = &a->edge[a->state[i].edge + k];

            if (a->state[e->to].flags & G_ACCEPT)
                e->flags |= G_INC;
        }
}

/* Does no word of the part continue another, and none is empty? */
static bool ends_plainly(const struct g_auto *a, uint32_t first, uint32_t from,
                         uint32_t to)
{
    if (a->state[first].flags & G_ACCEPT)
        return false;
    for (uint32_t i = from; i < to; i++) {
        const struct g_state *st = &a->state[i];

        if ((st->flags & G_ACCEPT) &&
            (st->n_edges || st->n_calls || st->n_added))
            return false;
    }
    return true;
}

static bool edges_meet(const struct g_auto *a, uint32_t x, uint32_t y)
{
    const struct g_state *s = &a->state[x], *t = &a->state[y];

    for (uint32_t i = 0; i < s->n_edges; i++)
        for (uint32_t k = 0; k < t->n_edges; k++)
            if (a->edge[s->edge + i].lo <= a->edge[t->edge + k].hi &&
                a->edge[t->edge + k].lo <= a->edge[s->edge + i].hi)
                return true;
    for (uint32_t i = 0; i < s->n_added; i++)
        for (uint32_t k = 0; k < t->n_added; k++)
            if (a->added[s->added + i].id == a->added[t->added + k].id)
                return true;
    return false;
}

static int edge_order(const void *a, const void *b)
{
    const struct g_edge *x = a, *y = b;

    return x->lo < y->lo ? -1 : x->lo > y->lo;
}

/* Give state `at`, the last with edges, those of x as well, with flags. */
static void edges_copy(struct g_build *b, uint32_t at, const struct g_state *x,
                       uint8_t flags)
{
    struct g_auto *a = &b->a;
    struct g_state s = *x;

    for (uint32_t i = 0; i < s.n_edges; i++) {
        struct g_edge e = a->edge[s.edge + i];

        e.flags |= flags;
        if (!g_grow(b, &a->edge, a->n_edges, &a->cap_edges, sizeof *a->edge,
                    G_MAX_EDGES))
            return;
        a->edge[a->n_edges++] = e;
        a->state[at].n_edges++;
    }
    for (uint32_t i = 0; i < s.n_calls; i++) {
        struct g_call c = a->call[s.call + i];

        c.flags |= flags;
        if (!g_grow(b, &a->call, a->n_calls, &a->cap_calls, sizeof *a->call,
                    G_MAX_EDGES))
            return;
        a->call[a->n_calls++] = c;
        a->state[at].n_calls++;
    }
    for (uint32_t i = 0; i < s.n_added; i++) {
        struct g_added c = a->added[s.added + i];

        c.flags |= flags;
        if (!g_grow(b, &a->added, a->n_added, &a->cap_added, sizeof *a->added,
                    G_MAX_EDGES))
            return;
        a->added[a->n_added++] = c;
        a->state[at].n_added++;
    }
}

/* Draw a call of a rule that is the part. */
static struct g_part part_as_call(struct g_build *b, uint32_t rule)
{
    struct g_part p;

    p.from = g_state(b);
    p.to = g_calling(b, p.from, rule);
    return p;
}

void g_rule_loop(struct g_build *b, uint32_t rule, struct g_part before,
                 struct g_part each, struct g_part after, uint32_t min,
                 uint32_t max)
{
    struct g_auto *a = &b->a;
    uint32_t x0, x, y, e, loop, at;
    uint32_t first = G_NONE;

    if (b->rc)
        return;
    x0 = a->n_states;
    x = g_determine(b, a, each);
    y = a->n_states;
    if (b->rc)
        return;
    if (a->state[x].flags & G_ACCEPT) {
        g_fail_bare(b, SEAM_EDATA, "repeats what may be empty");
        return;
    }
    if (!ends_plainly(a, x, x0, y)) {
        /* As a rule of its own, its end is a return. */
        uint32_t own = g_rule_new(b);

        if (b->rc)
            return;
        b->rule[own] = x;
        each = part_as_call(b, own);
        x0 = a->n_states;
        x = g_determine(b, a, each);
        y = a->n_states;
    }
    e = after.from == G_NONE ? G_NONE : g_determine(b, a, after);
    if (b->rc)
        return;
    if (e != G_NONE && edges_meet(a, x, e)) {
        uint32_t own = g_rule_new(b);

        if (b->rc)
            return;
        b->rule[own] = e;
        e = g_determine(b, a, part_as_call(b, own));
    }
    at = state_new(b, a);
    if (!g_grow(b, &a->loop, a->n_loops, &a->cap_loops, sizeof *a->loop,
                G_MAX_STATES) ||
        b->rc)
        return;
    a->loop[a->n_loops++] = (struct g_loop){ .min = min, .max = max, .at = at };
    loop = a->n_loops;
    redirect(a, x0, y, at, G_INC);
    a->state[at] = (struct g_state){ .edge = a->n_edges,
                                     .call = a->n_calls,
                                     .added = a->n_added };
    edges_copy(b, at, &a->state[x], G_MORE);
    if (e != G_NONE)
        edges_copy(b, at, &a->state[e], G_DONE);
    if (b->rc)
        return;
    if (e == G_NONE || (a->state[e].flags & G_ACCEPT))
        a->state[at].flags |= G_ACCEPT_DONE;
    qsort(a->edge + a->state[at].edge, a->state[at].n_edges, sizeof *a->edge,
          edge_order);
    for (uint32_t i = x0; i < y; i++)
        a->state[i].loop = loop;
    a->state[at].loop = loop;
    if (before.from == G_NONE) {
        first = at;
    } else {
        uint32_t p0 = a->n_states;
        uint32_t p = g_determine(b, a, before);

        if (b->rc)
            return;
        if (ends_plainly(a, p, p0, a->n_states)) {
            redirect(a, p0, a->n_states, at, 0);
            first = p;
        } else {
            /* before and the loop as two calls in a row. */
            uint32_t own[2] = { g_rule_new(b), g_rule_new(b) };
            struct g_part two;

            if (b->rc)
                return;
            b->rule[own[0]] = p;
            b->rule[own[1]] = at;
            two.from = g_state(b);
            two.to = g_calling(b, g_calling(b, two.from, own[0]), own[1]);
            first = g_determine(b, a, two);
        }
    }
    if (!b->rc)
        b->rule[rule] = first;
    g_clear(b);
}

void g_rule_counted(struct g_build *b, uint32_t rule, struct g_part before,
                    struct g_part body, struct g_part after, uint32_t min,
                    uint32_t max)
{
    struct g_auto *a = &b->a;
    uint32_t from = a->n_states, first = g_determine(b, a, body);
    uint32_t to = a->n_states, behind = G_NONE;

    if (!b->rc && after.from != G_NONE)
        behind = g_determine(b, a, after);
    if (!g_grow(b, &a->loop, a->n_loops, &a->cap_loops, sizeof *a->loop,
                G_MAX_STATES))
        return;
    a->loop[a->n_loops++] =
        (struct g_loop){ .min = min, .max = max, .at = first };
    redirect_each(a, from, to);
    for (uint32_t i = from; i < to && !b->rc; i++) {
        struct g_state was = a->state[i];

        a->state[i].loop = a->n_loops;
        if (!(was.flags & G_ACCEPT))
            continue;
        a->state[i] = (struct g_state){ .loop = a->n_loops,
                                        .edge = a->n_edges,
                                        .call = a->n_calls,
                                        .added = a->n_added };
        edges_copy(b, i, &was, G_MORE);
        if (behind == G_NONE)
            a->state[i].flags = G_ACCEPT_DONE;
        else
            edges_copy(b, i, &a->state[behind], G_DONE);
        if (!b->rc)
            qsort(a->edge + a->state[i].edge, a->state[i].n_edges,
                  sizeof *a->edge, edge_order);
    }
    if (!b->rc && before.from != G_NONE) {
        uint32_t p = a->n_states;
        uint32_t start = g_determine(b, a, before);

        if (b->rc)
            return;
        redirect(a, p, a->n_states, first, 0);
        first = start;
    }
    if (!b->rc)
        b->rule[rule] = first;
    g_clear(b);
}

/* ---- Products ------------------------------------------------------------ */

struct pair {
    uint32_t x, y; /* y G_NONE: c has no such word */
    uint32_t drawn;
};

struct pairs {
    struct pair *v;
    uint32_t n, cap;
    uint32_t *slot; /* [mask + 1] */
    uint32_t mask;
};

static uint32_t pair_hash(uint32_t x, uint32_t y)
{
    uint64_t h = ((uint64_t)x << 32 | y) * 0x9e3779b97f4a7c15u;

    return (uint32_t)(h >> 32);
}

static uint32_t pair_find(struct g_build *b, struct pairs *q, uint32_t x,
                          uint32_t y)
{
    uint32_t at;

    if (b->rc)
        return 0;
    if (!q->mask || q->n > q->mask / 2) {
        uint32_t mask = q->mask ? 2 * q->mask + 1 : 255;
        uint32_t *slot = calloc((size_t)mask + 1, sizeof *slot);

        if (!slot) {
            g_fail(b, SEAM_ENOMEM, "grammar: out of memory");
            return 0;
        }
        for (uint32_t i = 0; i < q->n; i++) {
            at = pair_hash(q->v[i].x, q->v[i].y) & mask;
            while (slot[at])
                at = (at + 1) & mask;
            slot[at] = i + 1;
        }
        free(q->slot);
        q->slot = slot;
        q->mask = mask;
    }
    for (at = pair_hash(x, y) & q->mask; q->slot[at]; at = (at + 1) & q->mask)
        if (q->v[q->slot[at] - 1].x == x && q->v[q->slot[at] - 1].y == y)
            return q->v[q->slot[at] - 1].drawn;
    if (!g_grow(b, &q->v, q->n, &q->cap, sizeof *q->v, G_MAX_STATES))
        return 0;
    q->v[q->n] = (struct pair){ .x = x, .y = y, .drawn = g_state(b) };
    q->slot[at] = ++q->n;
    return q->v[q->n - 1].drawn;
}

uint32_t g_both(struct g_build *b, uint32_t from, const struct g_auto *a,
                uint32_t x, const struct g_auto *c, uint32_t y, bool negate)
{
    struct pairs q = { 0 };
    uint32_t end = g_state(b);

    g_empty(b, from, pair_find(b, &q, x, y));
    for (uint32_t i = 0; i < q.n && !b->rc; i++) {
        struct pair p = q.v[i];
        const struct g_state *s = &a->state[p.x];
        const struct g_state *t = p.y == G_NONE ? NULL : &c->state[p.y];
        bool in = t && (t->flags & G_ACCEPT);

        if ((s->flags & G_ACCEPT) && in != negate)
            g_empty(b, p.drawn, end);
        for (uint32_t j = 0; j < s->n_edges; j++) {
            struct g_edge e = a->edge[s->edge + j];
            unsigned lo = e.lo;

            if (!g_work(b, 1 + (t ? t->n_edges : 0)))
                break;
            for (uint32_t k = 0; t && k < t->n_edges; k++) {
                struct g_edge f = c->edge[t->edge + k];
                unsigned from_lo = f.lo > lo ? f.lo : lo;
                unsigned to_hi = f.hi < e.hi ? f.hi : e.hi;

                if (f.hi < lo || f.lo > e.hi)
                    continue;
                if (negate && from_lo > lo)
                    g_bytes(b, p.drawn, (uint8_t)lo, (uint8_t)(from_lo - 1),
                            pair_find(b, &q, e.to, G_NONE));
                g_bytes(b, p.drawn, (uint8_t)from_lo, (uint8_t)to_hi,
                        pair_find(b, &q, e.to, f.to));
                lo = to_hi + 1;
            }
            if (negate && lo <= e.hi)
                g_bytes(b, p.drawn, (uint8_t)lo, e.hi,
                        pair_find(b, &q, e.to, G_NONE));
        }
    }
    free(q.v);
    free(q.slot);
    return end;
}

uint32_t g_copy(struct g_build *b, uint32_t from, const struct g_auto *a,
                uint32_t x)
{
    uint32_t first = b->n_heads, end;

    for (uint32_t i = 0; i < a->n_states; i++)
        g_state(b);
    end = g_state(b);
    if (b->rc)
        return 0;
    g_empty(b, from, first + x);
    for (uint32_t i = 0; i < a->n_states; i++) {
        const struct g_state *st = &a->state[i];

        if (st->flags & G_ACCEPT)
            g_empty(b, first + i, end);
        for (uint32_t k = 0; k < st->n_edges; k++) {
            const struct g_edge *e = &a->edge[st->edge + k];

            g_bytes(b, first + i, e->lo, e->hi, first + e->to);
        }
    }
    return end;
}
