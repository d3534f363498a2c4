/* From rules to a grammar: calls are linked, rules that would run without
 * consuming anything are refused, and what cannot be completed is taken out, so
 * that every state left can reach the end. */
#include <stdlib.h>

#include "core/grammar/build.h"

#define NEVER       UINT16_MAX
#define CACHE_BYTES ((uint64_t)8 << 20)
#define MANY_EDGES  6   /* above it a state gets a row of its own */
#define MAX_DENSE   512 /* such rows, 1 KiB each */
#define MAX_ROUNDS  64

/* Arcs backwards: who leads to a state, and which calls return to or begin at
 * it. */
struct links {
    struct g_auto *a;
    uint32_t *first; /* [n_states + 1] in who: states with a byte or token */
    uint32_t *who;
    uint32_t *first_ret; /* [n_states + 1] in ret: calls that return here */
    uint32_t *ret;
    uint32_t *first_call; /* [n_states + 1] in call: calls that begin here */
    uint32_t *call;
    uint32_t *owner;   /* [n_calls] the state that makes a call */
    uint8_t *nullable; /* [n_states] may end without consuming anything */
    uint16_t *need;    /* [n_states] as g_state.need */
    uint16_t *floor;   /* [n_loops] what another round of it needs */
    uint32_t *queue;   /* [n_states] */
    uint8_t *done;     /* [n_states] */
};

static void links_release(struct links *l)
{
    free(l->first);
    free(l->who);
    free(l->first_ret);
    free(l->ret);
    free(l->first_call);
    free(l->call);
    free(l->owner);
    free(l->nullable);
    free(l->need);
    free(l->floor);
    free(l->queue);
    free(l->done);
}

static void count_to_first(uint32_t *first, uint32_t n)
{
    uint32_t sum = 0;

    for (uint32_t i = 0; i <= n; i++) {
        uint32_t k = first[i];

        first[i] = sum;
        sum += k;
    }
}

static int links_make(struct links *l, struct g_auto *a)
{
    size_t n = (size_t)a->n_states + 1, n_calls = (size_t)a->n_calls + 1;
    size_t n_arcs = (size_t)a->n_edges + a->n_added + 1;
    uint32_t *fill;

    l->a = a;
    l->first = calloc(n + 1, sizeof *l->first);
    l->who = calloc(n_arcs, sizeof *l->who);
    l->first_ret = calloc(n + 1, sizeof *l->first_ret);
    l->ret = calloc(n_calls, sizeof *l->ret);
    l->first_call = calloc(n + 1, sizeof *l->first_call);
    l->call = calloc(n_calls, sizeof *l->call);
    l->owner = calloc(n_calls, sizeof *l->owner);
    l->nullable = calloc(n, 1);
    l->need = calloc(n, sizeof *l->need);
    l->floor = calloc((size_t)a->n_loops + 1, sizeof *l->floor);
    l->queue = calloc(n, sizeof *l->queue);
    l->done = calloc(n, 1);
    if (!l->first || !l->who || !l->first_ret || !l->ret || !l->first_call ||
        !l->call || !l->owner || !l->nullable || !l->need || !l->floor ||
        !l->queue || !l->done)
        return SEAM_ENOMEM;
    fill = l->queue;
    for (uint32_t s = 0; s < a->n_states; s++) {
        const struct g_state *st = &a->state[s];

        for (uint32_t k = 0; k < st->n_edges; k++)
            l->first[a->edge[st->edge + k].to]++;
        for (uint32_t k = 0; k < st->n_added; k++)
            l->first[a->added[st->added + k].to]++;
        for (uint32_t k = 0; k < st->n_calls; k++) {
            l->first_ret[a->call[st->call + k].ret]++;
            l->first_call[a->call[st->call + k].rule]++;
            l->owner[st->call + k] = s;
        }
    }
    count_to_first(l->first, a->n_states);
    count_to_first(l->first_ret, a->n_states);
    count_to_first(l->first_call, a->n_states);
    memcpy(fill, l->first, a->n_states * sizeof *fill);
    for (uint32_t s = 0; s < a->n_states; s++) {
        const struct g_state *st = &a->state[s];

        for (uint32_t k = 0; k < st->n_edges; k++)
            l->who[fill[a->edge[st->edge + k].to]++] = s;
        for (uint32_t k = 0; k < st->n_added; k++)
            l->who[fill[a->added[st->added + k].to]++] = s;
    }
    memcpy(fill, l->first_ret, a->n_states * sizeof *fill);
    for (uint32_t s = 0; s < a->n_states; s++)
        for (uint32_t k = 0; k < a->state[s].n_calls; k++) {
            uint32_t c = a->state[s].call + k;

            l->ret[fill[a->call[c].ret]++] = c;
        }
    memcpy(fill, l->first_call, a->n_states * sizeof *fill);
    for (uint32_t s = 0; s < a->n_states; s++)
        for (uint32_t k = 0; k < a->state[s].n_calls; k++) {
            uint32_t c = a->state[s].call + k;

            l->call[fill[a->call[c].rule]++] = c;
        }
    return 0;
}

/* ---- Rules that consume nothing ------------------------------------------ */

static bool ends_at_once(const struct g_auto *a, const struct g_state *s)
{
    if (s->flags & G_ACCEPT)
        return true;
    return (s->flags & G_ACCEPT_DONE) && !a->loop[s->loop - 1].min;
}

static void find_nullable(struct links *l)
{
    struct g_auto *a = l->a;
    uint32_t n = 0;

    for (uint32_t s = 0; s < a->n_states; s++)
        if (ends_at_once(a, &a->state[s])) {
            l->nullable[s] = 1;
            l->queue[n++] = s;
        }
    while (n) {
        uint32_t s = l->queue[--n];

        for (int kind = 0; kind < 2; kind++) {
            const uint32_t *first = kind ? l->first_call : l->first_ret;
            const uint32_t *list = kind ? l->call : l->ret;

            for (uint32_t i = first[s]; i < first[s + 1]; i++) {
                const struct g_call *c = &a->call[list[i]];
                uint32_t o = l->owner[list[i]];

                if (l->nullable[o] || !l->nullable[c->rule] ||
                    !l->nullable[c->ret])
                    continue;
                l->nullable[o] = 1;
                l->queue[n++] = o;
            }
        }
    }
}

/* Strongly connected components of "is reached without consuming anything", by
 * Tarjan's method with a stack of its own. */
struct scc {
    struct links *l;
    uint32_t *index; /* [n_states] order of discovery + 1; 0: not yet */
    uint32_t *low;
    uint32_t *part; /* [n_states] component, by a member */
    uint32_t *open; /* discovered, component not known */
    uint32_t *path; /* states being looked at */
    uint32_t *next; /* [n_states] arc to look at: 2 * call + (0 or 1) */
    uint32_t n_open, n_path, n_index;
};

/* The k-th state that s reaches so, or G_NONE when there is none; G_NONE - 1:
 * not this way. */
static uint32_t scc_arc(const struct links *l, uint32_t s, uint32_t k)
{
    const struct g_state *st = &l->a->state[s];
    const struct g_call *c;

    if (k / 2 >= st->n_calls)
        return G_NONE;
    c = &l->a->call[st->call + k / 2];
    if (k % 2 == 0)
        return c->rule;
    return l->nullable[c->rule] ? c->ret : G_NONE - 1;
}

static void scc_visit(struct scc *q, uint32_t root)
{
    uint32_t n = 0;

    q->path[n++] = root;
    q->index[root] = q->low[root] = ++q->n_index;
    q->open[q->n_open++] = root;
    while (n) {
        uint32_t s = q->path[n - 1];
        uint32_t t = scc_arc(q->l, s, q->next[s]++);

        if (t == G_NONE - 1)
            continue;
        if (t != G_NONE) {
            if (!q->index[t]) {
                q->index[t] = q->low[t] = ++q->n_index;
                q->open[q->n_open++] = t;
                q->path[n++] = t;
            } else if (q->part[t] == G_NONE && q->index[t] < q->low[s]) {
                q->low[s] = q->index[t];
            }
            continue;
        }
        n--;
        if (n && q->low[s] < q->low[q->path[n - 1]])
            q->low[q->path[n - 1]] = q->low[s];
        if (q->low[s] == q->index[s]) {
            uint32_t x;

            do {
                x = q->open[--q->n_open];
                q->part[x] = s;
            } while (x != s);
        }
    }
}

static uint32_t rule_of_start(const struct g_build *b, uint32_t state)
{
    for (uint32_t r = 0; r < b->n_rules; r++)
        if (b->rule[r] == state)
            return r;
    return G_NONE;
}

static int refuse_idle(struct g_build *b, struct links *l, uint32_t *bad)
{
    struct g_auto *a = l->a;
    size_t n = (size_t)a->n_states + 1;
    struct scc q = { .l = l };

    q.index = calloc(n, sizeof *q.index);
    q.low = calloc(n, sizeof *q.low);
    q.part = malloc(n * sizeof *q.part);
    q.open = calloc(n, sizeof *q.open);
    q.path = calloc(n, sizeof *q.path);
    q.next = calloc(n, sizeof *q.next);
    if (!q.index || !q.low || !q.part || !q.open || !q.path || !q.next) {
        g_fail(b, SEAM_ENOMEM, "grammar: out of memory");
        goto out;
    }
    memset(q.part, 0xff, n * sizeof *q.part);
    for (uint32_t s = 0; s < a->n_states; s++)
        if (!q.index[s])
            scc_visit(&q, s);
    for (uint32_t i = 0; i < a->n_calls && !b->rc; i++) {
        const struct g_call *c = &a->call[i];
        uint32_t part = q.part[l->owner[i]];

        if (q.part[c->rule] == part) {
            *bad = rule_of_start(b, c->rule);
            g_fail_bare(b, SEAM_EDATA,
                        "refers to itself before it has consumed anything "
                        "(left recursion)");
        } else if ((c->flags & G_INC) && l->nullable[c->rule] &&
                   q.part[c->ret] == part) {
            *bad = rule_of_start(b, c->rule);
            g_fail_bare(b, SEAM_EDATA,
                        "may be empty and is repeated with a "
                        "count");
        }
    }
out:
    free(q.index);
    free(q.low);
    free(q.part);
    free(q.open);
    free(q.path);
    free(q.next);
    return b->rc;
}

/* ---- What the way to the end needs --------------------------------------- */

static uint16_t call_need(const struct links *l, const struct g_call *c)
{
    uint32_t in = l->need[c->rule], after = l->need[c->ret];

    if (in == NEVER || after == NEVER)
        return NEVER;
    if (!(l->a->state[c->ret].flags & G_TAIL))
        in++;
    in = in > after ? in : after;
    return in > G_MAX_DEPTH ? NEVER : (uint16_t)in;
}

/* need of a state where a loop goes round is at least what a round takes: the
 * loop may not be allowed to end yet. */
static uint16_t with_floor(const struct links *l, uint32_t s, uint16_t need)
{
    uint32_t loop = l->a->state[s].loop;

    if (loop && l->a->loop[loop - 1].at == s && l->floor[loop - 1] > need)
        return l->floor[loop - 1];
    return need;
}

/* Lower need[s] to at least `need` (Knuth's form of Dijkstra's algorithm, with
 * as many rounds as there are values). */
static bool need_lower(struct links *l, uint32_t s, uint16_t need,
                       uint16_t round)
{
    need = with_floor(l, s, need);
    if (need < l->need[s])
        l->need[s] = need;
    return l->need[s] == round && !l->done[s];
}

static void find_need(struct links *l)
{
    struct g_auto *a = l->a;

    for (uint32_t s = 0; s < a->n_states; s++) {
        l->need[s] = NEVER;
        l->done[s] = 0;
    }
    for (uint32_t s = 0; s < a->n_states; s++)
        if (!s || (a->state[s].flags & (G_ACCEPT | G_ACCEPT_DONE)))
            l->need[s] = with_floor(l, s, 0);
    for (uint16_t round = 0; round <= G_MAX_DEPTH; round++) {
        uint32_t n = 0;

        for (uint32_t s = 0; s < a->n_states; s++)
            if (l->need[s] == round && !l->done[s])
                l->queue[n++] = s;
        for (uint32_t i = 0; i < n; i++)
            l->done[l->queue[i]] = 1;
        while (n) {
            uint32_t s = l->queue[--n];

            for (uint32_t i = l->first[s]; i < l->first[s + 1]; i++)
                if (need_lower(l, l->who[i], round, round)) {
                    l->done[l->who[i]] = 1;
                    l->queue[n++] = l->who[i];
                }
            for (int kind = 0; kind < 2; kind++) {
                const uint32_t *first = kind ? l->first_call : l->first_ret;
                const uint32_t *list = kind ? l->call : l->ret;

                for (uint32_t k = first[s]; k < first[s + 1]; k++) {
                    uint32_t o = l->owner[list[k]];
                    uint16_t need = call_need(l, &a->call[list[k]]);

                    if (need != NEVER && need_lower(l, o, need, round)) {
                        l->done[o] = 1;
                        l->queue[n++] = o;
                    }
                }
            }
        }
    }
    for (uint32_t s = 0; s < a->n_states; s++)
        if (!l->done[s])
            l->need[s] = NEVER;
}

/* What one more round of a loop needs; NEVER: there is none. */
static uint16_t round_need(const struct links *l, uint32_t at)
{
    const struct g_state *st = &l->a->state[at];
    uint16_t best = NEVER;

    for (uint32_t k = 0; k < st->n_edges; k++) {
        const struct g_edge *e = &l->a->edge[st->edge + k];

        if ((e->flags & G_MORE) && l->need[e->to] < best)
            best = l->need[e->to];
    }
    for (uint32_t k = 0; k < st->n_added; k++) {
        const struct g_added *e = &l->a->added[st->added + k];

        if ((e->flags & G_MORE) && l->need[e->to] < best)
            best = l->need[e->to];
    }
    for (uint32_t k = 0; k < st->n_calls; k++) {
        const struct g_call *c = &l->a->call[st->call + k];

        if ((c->flags & G_MORE) && call_need(l, c) < best)
            best = call_need(l, c);
    }
    return best;
}

static int settle_need(struct g_build *b, struct links *l)
{
    struct g_auto *a = l->a;
    bool changed = true;

    for (int round = 0; changed; round++) {
        if (round == MAX_ROUNDS ||
            !g_work(b, a->n_states + a->n_edges + a->n_calls))
            return g_fail_bare(b, SEAM_EDATA,
                               "too complex: repetitions in repetitions");
        find_need(l);
        changed = false;
        for (uint32_t i = 0; i < a->n_loops; i++) {
            uint16_t need;

            if (!a->loop[i].min)
                continue;
            need = round_need(l, a->loop[i].at);
            if (need > l->floor[i]) {
                l->floor[i] = need;
                changed = true;
            }
        }
    }
    return b->rc;
}

/* ---- What is left -------------------------------------------------------- */

static void take_out(struct links *l)
{
    struct g_auto *a = l->a;

    for (uint32_t s = 0; s < a->n_states; s++) {
        struct g_state *st = &a->state[s];
        uint32_t n = 0;

        for (uint32_t k = 0; k < st->n_edges; k++)
            if (l->need[a->edge[st->edge + k].to] != NEVER)
                a->edge[st->edge + n++] = a->edge[st->edge + k];
        st->n_edges = n;
        n = 0;
        for (uint32_t k = 0; k < st->n_calls; k++)
            if (call_need(l, &a->call[st->call + k]) != NEVER)
                a->call[st->call + n++] = a->call[st->call + k];
        st->n_calls = n;
        n = 0;
        for (uint32_t k = 0; k < st->n_added; k++)
            if (l->need[a->added[st->added + k].to] != NEVER)
                a->added[st->added + n++] = a->added[st->added + k];
        st->n_added = n;
        st->need = l->need[s];
        if (!st->n_calls && !(st->flags & (G_ACCEPT | G_ACCEPT_DONE)))
            st->flags |= G_SIMPLE;
    }
}

static const struct g_edge *edge_at(const struct g_auto *a, uint32_t s,
                                    unsigned byte)
{
    const struct g_state *st = &a->state[s];

    for (uint32_t k = 0; k < st->n_edges; k++)
        if (a->edge[st->edge + k].lo <= byte &&
            byte <= a->edge[st->edge + k].hi)
            return &a->edge[st->edge + k];
    return NULL;
}

/* Do n more bytes, the first in [lo, hi], always lead from state `at` to s, the
 * last of them with the flags `last`? */
static bool tail_leads(const struct g_auto *a, uint32_t at, uint32_t s,
                       unsigned lo, unsigned hi, unsigned n, uint8_t last)
{
    uint32_t known = G_NONE; /* a state that was found to be right */

    if (a->state[at].loop != a->state[s].loop)
        return false;
    for (unsigned byte = lo; byte <= hi; byte++) {
        const struct g_edge *e = edge_at(a, at, byte);

        if (!e || (e->flags & (G_INC | G_MORE | G_DONE)) != (n > 1 ? 0 : last))
            return false;
        if (n == 1 && e->to != s)
            return false;
        if (n > 1 && e->to != known &&
            !tail_leads(a, e->to, s, 0x80, 0xbf, n - 1, last))
            return false;
        known = e->to;
    }
    return true;
}

/* Do all characters beyond ASCII lead from s back to it? */
static bool loops_wide(const struct g_auto *a, uint32_t s, uint8_t first,
                       uint8_t last)
{
    static const struct {
        uint8_t lo, hi, next_lo, next_hi, n;
    } lead[] = {
        { 0xc2, 0xdf, 0x80, 0xbf, 1 }, { 0xe0, 0xe0, 0xa0, 0xbf, 2 },
        { 0xe1, 0xec, 0x80, 0xbf, 2 }, { 0xed, 0xed, 0x80, 0x9f, 2 },
        { 0xee, 0xef, 0x80, 0xbf, 2 }, { 0xf0, 0xf0, 0x90, 0xbf, 3 },
        { 0xf1, 0xf3, 0x80, 0xbf, 3 }, { 0xf4, 0xf4, 0x80, 0x8f, 3 },
    };

    for (size_t i = 0; i < sizeof lead / sizeof *lead; i++)
        for (unsigned c = lead[i].lo; c <= lead[i].hi; c++) {
            const struct g_edge *e = edge_at(a, s, c);

            if (!e || e->flags != first ||
                !tail_leads(a, e->to, s, lead[i].next_lo, lead[i].next_hi,
                            lead[i].n, last))
                return false;
        }
    return true;
}

/* Which classes of characters lead from a state back to it, each as a round of
 * its loop or none of them. */
static void find_loops(struct g_auto *a, uint32_t s)
{
    struct g_state *st = &a->state[s];
    uint8_t n[G_N_CLASSES] = { 0 }, size[G_N_CLASSES] = { 0 }, flags = 0;
    bool any = false, wide = false;

    for (uint32_t k = 0; k < st->n_edges; k++) {
        const struct g_edge *e = &a->edge[st->edge + k];

        wide = wide || e->hi >= 0x80;
        if (e->to != s || e->lo >= 0x80 || (any && e->flags != flags))
            continue;
        any = true;
        flags = e->flags;
        for (unsigned c = e->lo; c <= e->hi && c < 0x80; c++)
            n[g_class_of(c)]++;
    }
    /* Counted ones must not be able to begin anything else; what follows the
     * end of the rule is looked at when the mask is made. */
    if (!any || (flags && (flags != (G_INC | G_MORE) || st->n_calls)))
        return;
    for (unsigned c = 0; c < 0x80; c++)
        size[g_class_of(c)]++;
    for (uint32_t k = 0; k < G_CLASS_WIDE; k++)
        if (n[k] == size[k])
            st->loops |= 1ull << k;
    if (wide && loops_wide(a, s, flags & G_MORE, flags & G_INC))
        st->loops |= 1ull << G_CLASS_WIDE;
    if (st->loops && flags)
        st->flags |= G_COUNTS;
}

/* Bytes that a state takes, from which on it is remembered by its caller, too,
 * if the rule can end there. */
#define WIDE_STATE 20

static void find_pairs(struct g_auto *a, uint32_t s)
{
    struct g_state *st = &a->state[s];
    uint32_t n = 0;

    if (!(st->flags & (G_ACCEPT | G_ACCEPT_DONE)))
        return;
    for (uint32_t k = 0; k < st->n_edges; k++)
        n += (uint32_t)a->edge[st->edge + k].hi - a->edge[st->edge + k].lo + 1;
    if (n >= WIDE_STATE)
        st->flags |= G_PAIR;
}

static int grammar_rows(struct seam_grammar *g)
{
    struct g_auto *a = &g->a;
    uint32_t n = 0;

    for (uint32_t s = 0; s < a->n_states && n < MAX_DENSE; s++)
        n += a->state[s].n_edges > MANY_EDGES;
    g->dense = calloc((size_t)n + 1, sizeof *g->dense);
    if (!g->dense)
        return SEAM_ENOMEM;
    for (uint32_t s = 0; s < a->n_states && g->n_dense < n; s++) {
        struct g_state *st = &a->state[s];

        if (st->n_edges <= MANY_EDGES)
            continue;
        for (uint32_t k = 0; k < st->n_edges; k++)
            for (unsigned c = a->edge[st->edge + k].lo;
                 c <= a->edge[st->edge + k].hi; c++)
                g->dense[g->n_dense][c] = st->edge + k + 1;
        st->dense = ++g->n_dense;
    }
    return 0;
}

void seam_grammar_unref(struct seam_grammar *g)
{
    /* acq_rel: whoever frees has seen what the others did before. */
    if (!g || atomic_fetch_sub_explicit(&g->refs, 1, memory_order_acq_rel) > 1)
        return;
    g_auto_release(&g->a);
    free(g->dense);
    g_cache_release(&g->cache);
    free(g);
}

static int link_calls(struct g_build *b)
{
    struct g_auto *a = &b->a;

    for (uint32_t r = 0; r < b->n_rules; r++)
        if (b->rule[r] == G_NONE)
            return g_fail_bare(b, SEAM_EINVAL, "grammar: rule %u is not set",
                               r);
    for (uint32_t i = 0; i < a->n_calls; i++)
        a->call[i].rule = b->rule[a->call[i].rule];
    for (uint32_t s = 1; s < a->n_states; s++) {
        struct g_state *st = &a->state[s];

        if (st->flags == G_ACCEPT && !st->n_edges && !st->n_calls &&
            !st->n_added)
            st->flags |= G_TAIL;
    }
    return 0;
}

int g_build_finish(struct g_build *b, uint32_t start,
                   const struct seam_grammar_opts *opts,
                   struct seam_grammar **out, uint32_t *bad)
{
    struct links l = { 0 };
    struct seam_grammar *g = NULL;

    *bad = G_NONE;
    if (b->rc || link_calls(b))
        goto out;
    if (links_make(&l, &b->a)) {
        g_fail(b, SEAM_ENOMEM, "grammar: out of memory");
        goto out;
    }
    find_nullable(&l);
    if (refuse_idle(b, &l, bad) || settle_need(b, &l))
        goto out;
    if (l.need[b->rule[start]] == NEVER) {
        *bad = start;
        g_fail_bare(b, SEAM_EDATA, "nothing can satisfy it");
        goto out;
    }
    take_out(&l);
    for (uint32_t s = 1; s < b->a.n_states; s++) {
        find_loops(&b->a, s);
        find_pairs(&b->a, s);
    }
    g = calloc(1, sizeof *g);
    if (!g) {
        g_fail(b, SEAM_ENOMEM, "grammar: out of memory");
        goto out;
    }
    atomic_init(&g->refs, 1);
    g->v = b->v;
    g->n_rules = b->n_rules;
    g->start = b->rule[start];
    g->a = b->a;
    b->a = (struct g_auto){ 0 };
    if (grammar_rows(g) ||
        g_cache_init(&g->cache,
                     opts && opts->cache_bytes ? opts->cache_bytes
                                               : CACHE_BYTES,
                     4 * g->a.n_states))
        g_fail(b, SEAM_ENOMEM, "grammar: out of memory");
out:
    links_release(&l);
    if (b->rc)
        seam_grammar_unref(g);
    else
        *out = g;
    return b->rc;
}

/* ---- Asking -------------------------------------------------------------- */

struct seam_grammar *seam_grammar_ref(struct seam_grammar *g)
{
    /* relaxed: whoever calls has a reference already. */
    atomic_fetch_add_explicit(&g->refs, 1, memory_order_relaxed);
    return g;
}

void seam_grammar_stats(const struct seam_grammar *g,
                        struct seam_grammar_stats *out)
{
    const struct g_auto *a = &g->a;

    *out = (struct seam_grammar_stats){
        .n_states = a->n_states,
        .n_rules = g->n_rules,
        .bytes = a->n_states * sizeof *a->state + a->n_edges * sizeof *a->edge +
                 a->n_calls * sizeof *a->call + a->n_added * sizeof *a->added +
                 a->n_loops * sizeof *a->loop + g->n_dense * sizeof *g->dense +
                 ((uint64_t)g->cache.mask + 1) * 2 * sizeof(uint64_t),
        .cache_used = atomic_load(&g->cache.used),
        .cache_bytes = g->cache.bytes,
        .n_cached = atomic_load(&g->cache.n_entries),
    };
    if (out->cache_used > out->cache_bytes)
        out->cache_used = out->cache_bytes;
}
