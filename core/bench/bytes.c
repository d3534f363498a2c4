#include "core/bench/bytes.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/checkpoint/inventory.h"

const enum seam_watch_part seam_watch_role[SEAM_N_ROLES] = {
    [SEAM_ROLE_BACKEND] = SEAM_WATCH_REST,
    [SEAM_ROLE_LINEAR] = SEAM_WATCH_LINEAR,
    [SEAM_ROLE_SPARSE] = SEAM_WATCH_SPARSE,
    [SEAM_ROLE_MOE] = SEAM_WATCH_MOE,
    [SEAM_ROLE_PARSER] = SEAM_WATCH_REST,
};

uint64_t seam_bench_tensor_bytes(const struct seam_tensor *t)
{
    uint64_t n = 1, scales = 0, zeros = 0;
    uint64_t k = (uint64_t)t->shape[t->rank - 1];
    uint64_t scale_bits = t->scale ? seam_dtype_bits(t->scale_dtype) : 0;

    for (int i = 0; i < t->rank; i++)
        n *= (uint64_t)t->shape[i];
    if (t->quant != SEAM_Q_NONE && t->group_cols) {
        uint64_t rows = t->group_rows ? t->group_rows : 1;

        scales = (n / k + rows - 1) / rows *
                 ((k + t->group_cols - 1) / t->group_cols);
        zeros = t->zero ? scales * seam_dtype_bits(t->dtype) / 8 : 0;
    }
    return n * seam_dtype_bits(t->dtype) / 8 + scales * scale_bits / 8 + zeros;
}

static enum seam_watch_part watch_of(enum seam_part p)
{
    switch (p) {
    case SEAM_PART_EMBED:
        return SEAM_WATCH_EMBED;
    case SEAM_PART_HEAD:
        return SEAM_WATCH_HEAD;
    case SEAM_PART_KDA:
        return SEAM_WATCH_LINEAR;
    case SEAM_PART_MLA:
    case SEAM_PART_INDEXER:
        return SEAM_WATCH_SPARSE;
    case SEAM_PART_DENSE:
        return SEAM_WATCH_DENSE;
    case SEAM_PART_ROUTER:
    case SEAM_PART_EXPERTS:
    case SEAM_PART_SHARED:
        return SEAM_WATCH_MOE;
    default:
        return SEAM_WATCH_RESIDUAL;
    }
}

struct weighing {
    struct seam_checkpoint *checkpoint;
    const struct seam_model_config *m;
    struct seam_bench_weights *to;
    struct seam_error *err;
};

static int weigh(void *ctx, const struct seam_expected *e)
{
    struct weighing *c = ctx;
    struct seam_bench_weights *w = c->to;
    enum seam_part part = seam_part_of(c->m, e->name);
    enum seam_watch_part to;
    struct seam_tensor t;
    uint64_t bytes, n = 1, share = 1;
    char name[176];
    int rc;

    /* The parts are told by names with their ending. */
    if (e->cls == SEAM_CLASS_LINEAR) {
        snprintf(name, sizeof name, "%s.weight", e->name);
        part = seam_part_of(c->m, name);
    }
    if (part == SEAM_PART_EXPERTS) {
        if (!strstr(e->name, ".experts.0."))
            return 0; /* all are alike                                        */
        share = c->m->experts_per_token;
    }
    rc = seam_checkpoint_weight(c->checkpoint, e->name, &t, c->err);
    if (rc)
        return rc;
    for (int i = 0; i < e->rank; i++)
        n *= (uint64_t)e->shape[i];
    bytes = seam_bench_tensor_bytes(&t);
    if (part == SEAM_PART_EXPERTS) {
        w->expert_bytes += bytes;
        w->n_expert += n;
        w->bytes.experts += bytes * share;
    }
    if (part == SEAM_PART_EMBED) {
        bytes /= (uint64_t)e->shape[0]; /* one row                            */
        n = 0;
    }
    to = watch_of(part);
    w->bytes.part[to] += bytes * share;
    w->bytes.all += bytes * share;
    w->n[to] += n * share;
    w->n_active += n * share;
    return 0;
}

int seam_bench_weigh(struct seam_checkpoint *c, struct seam_bench_weights *w,
                     struct seam_error *err)
{
    struct weighing x = { c, seam_checkpoint_config(c), w, err };

    *w = (struct seam_bench_weights){ 0 };
    return seam_inventory(x.m, 0, x.m->n_layers, true, weigh, &x);
}

void seam_bench_cached(const struct seam_runtime *rt, enum seam_role role,
                       uint32_t context, struct seam_bench_bytes *out)
{
    const struct seam_needs *n = &rt->needs[role];
    uint32_t topk = seam_checkpoint_config(rt->model.checkpoint)->index_topk;

    *out = (struct seam_bench_bytes){ .state = n->state_bytes };
    for (uint32_t p = 0; p < n->n_planes; p++) {
        uint64_t tokens = context;

        /* A latent is read only where the indexer chose it. */
        if (!strcmp(n->plane[p].name, "latent") && tokens > topk)
            tokens = topk;
        out->cache += tokens * n->plane[p].bytes_per_token;
    }
    out->all = out->state + out->cache;
}

double seam_bench_experts(double e, double k, double n)
{
    return n <= 1 ? k : e * (1 - pow(1 - k / e, n));
}
