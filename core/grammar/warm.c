/* Masks computed ahead of their use: every state that an output can reach, with
 * what follows its rule where that matters. */
#include <stdlib.h>

#include "core/grammar/matcher.h"

/* Pairs looked at: grammars beyond it are remembered in part. */
#define MAX_PAIRS 200000

/* A state and the one that follows its rule, G_NONE: the end. */
struct pair {
    uint32_t state, ret;
};

struct pairs {
    struct pair *v;
    uint32_t n, cap;
    uint32_t *slot; /* [mask + 1] index + 1 in v */
    uint32_t mask;
};

static void pairs_add(struct pairs *q, uint32_t state, uint32_t ret)
{
    uint64_t h = ((uint64_t)ret << 32 | state) * 0x9e3779b97f4a7c15u;
    uint32_t at = (uint32_t)(h >> 40) & q->mask;

    while (q->slot[at]) {
        const struct pair *p = &q->v[q->slot[at] - 1];

        if (p->state == state && p->ret == ret)
            return;
        at = (at + 1) & q->mask;
    }
    if (q->n == q->cap)
        return;
    q->v[q->n++] = (struct pair){ state, ret };
    q->slot[at] = q->n;
}

static void pairs_follow(struct pairs *q, const struct g_auto *a, struct pair p)
{
    const struct g_state *st = &a->state[p.state];

    for (uint32_t k = 0; k < st->n_edges; k++)
        pairs_add(q, a->edge[st->edge + k].to, p.ret);
    for (uint32_t k = 0; k < st->n_added; k++)
        pairs_add(q, a->added[st->added + k].to, p.ret);
    for (uint32_t k = 0; k < st->n_calls; k++) {
        const struct g_call *c = &a->call[st->call + k];
        bool tail = a->state[c->ret].flags & G_TAIL;

        pairs_add(q, c->rule, tail ? p.ret : c->ret);
        if (!tail)
            pairs_add(q, c->ret, p.ret);
    }
}

int seam_grammar_warm(struct seam_grammar *g, uint64_t max_nodes,
                      struct seam_error *err)
{
    struct seam_matcher *m = NULL;
    struct pairs q = { .cap = MAX_PAIRS, .mask = (1u << 19) - 1 };
    uint32_t frame;
    int rc = seam_matcher_new(&m, g, err);

    if (rc)
        return rc;
    q.v = calloc(q.cap, sizeof *q.v);
    q.slot = calloc((size_t)q.mask + 1, sizeof *q.slot);
    if (!q.v || !q.slot) {
        rc = seam_fail(err, SEAM_ENOMEM, "grammar: out of memory");
        goto out;
    }
    frame = m->n_frames++;
    pairs_add(&q, g->start, G_NONE);
    for (uint32_t i = 0; i < q.n && m->n_walked < max_nodes; i++) {
        struct pair p = q.v[i];
        const struct g_state *st = &g->a.state[p.state];
        struct g_config c = { .state = p.state,
                              .frame = frame,
                              .cond = { .lo = G_ANY_LO } };

        pairs_follow(&q, &g->a, p);
        if (!p.state || (!st->n_edges && !st->n_added))
            continue;
        if (p.ret == G_NONE)
            c.frame = G_FRAME_END;
        else
            m->frame[frame] = (struct g_frame){ .ret = p.ret,
                                                .parent = G_FRAME_END,
                                                .depth = 1 };
        g_mask_warm(m, &c);
    }
out:
    free(q.v);
    free(q.slot);
    seam_matcher_free(m);
    return rc;
}
