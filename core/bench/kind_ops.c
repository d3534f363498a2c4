/* The operations of a backend, as a step calls them.  Weights take turns, layer
 * by layer and expert by expert, so that they come from memory as they do in a
 * step. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/bench/bytes.h"
#include "core/bench/kind.h"

enum op {
    OP_GEMM_ATTN,   /* a projection of linear attention                       */
    OP_GEMM_EXPERT, /* of an expert                                           */
    OP_GEMM_HEAD,
    OP_RESIDUAL,
    OP_NORM,
    OP_GLU,
    OP_EMBED,
    OP_GATHER,
    OP_SAMPLE_MAX, /* the likeliest token                                     */
    OP_SAMPLE      /* a draw, filtered by top_k, top_p and min_p              */
};

#define MOST_WEIGHTS 256
#define TOPS         8

/* What one residual site reads. */
struct site {
    struct seam_tensor fn, base, scale, w;
};

struct ops {
    const struct seam_model_config *m;
    struct seam_runtime *rt;
    uint32_t rows; /* room for so many tokens                                 */
    struct seam_tensor *weight; /* [n_weights] of the case                    */
    uint32_t n_weights;
    struct site *site; /* [n_layers]                                          */
    struct seam_tensor norm, embed;
    float *x;       /* [rows][widest] random                               */
    float *y, *z;   /* [rows][widest] results                              */
    float *streams; /* [rows][S][d]                                        */
    float *mix;     /* [rows][S + S * S]                                   */
    float *logits, *work; /* [rows][vocab] random, and a copy to be changed   */
    int32_t *id, *row;    /* [rows]                                           */
    float *temperature, *top_p, *min_p; /* [rows]                             */
    int32_t *top_k, *token, *top_id;    /* [rows], the last [rows][TOPS]      */
    uint64_t *seed, *counter;
    float *logprob, *top_logprob;
};

static uint64_t ops_widest(const struct seam_model_config *m)
{
    uint64_t wide = (uint64_t)m->kda_heads * m->kda_dim;

    wide = wide < m->hidden ? m->hidden : wide;
    return wide < m->intermediate ? m->intermediate : wide;
}

static void ops_close(struct kind_side *s)
{
    struct ops *o = s->work;

    if (!o)
        return;
    free(o->weight);
    free(o->site);
    free(o->x);
    free(o->y);
    free(o->z);
    free(o->streams);
    free(o->mix);
    free(o->logits);
    free(o->work);
    free(o->id);
    free(o->row);
    free(o->temperature);
    free(o->top_p);
    free(o->min_p);
    free(o->top_k);
    free(o->token);
    free(o->top_id);
    free(o->seed);
    free(o->counter);
    free(o->logprob);
    free(o->top_logprob);
    free(o);
    s->work = NULL;
}

static int ops_weight(struct ops *o, const char *name, struct seam_tensor *out,
                      struct seam_error *err)
{
    return seam_checkpoint_weight(o->rt->model.checkpoint, name, out, err);
}

static int ops_sites(struct ops *o, struct seam_error *err)
{
    static const char *const part[] = { "hc_attn_fn", "hc_attn_base",
                                        "hc_attn_scale",
                                        "input_layernorm.weight" };
    char name[96];
    int rc = 0;

    for (uint32_t l = 0; l < o->m->n_layers && !rc; l++) {
        struct seam_tensor *to[] = { &o->site[l].fn, &o->site[l].base,
                                     &o->site[l].scale, &o->site[l].w };

        for (size_t i = 0; i < 4 && !rc; i++) {
            snprintf(name, sizeof name, "@layer.%u.%s", l, part[i]);
            rc = ops_weight(o, name, to[i], err);
        }
    }
    if (!rc)
        rc = ops_weight(o, "@norm", &o->norm, err);
    return rc ? rc : ops_weight(o, "@embed", &o->embed, err);
}

static int ops_open(struct kind *k, struct kind_side *s, struct seam_error *err)
{
    struct ops *o = calloc(1, sizeof *o);
    uint64_t n, wide, streams, vocab;

    s->work = o;
    if (!o)
        return seam_fail(err, SEAM_ENOMEM, "out of memory");
    o->rt = s->rt;
    o->m = seam_checkpoint_config(s->rt->model.checkpoint);
    o->rows = k->max_tokens * k->max_seqs;
    n = o->rows;
    wide = ops_widest(o->m);
    streams = o->m->hc_mult;
    vocab = o->m->vocab;
    o->weight = calloc(MOST_WEIGHTS, sizeof *o->weight);
    o->site = calloc(o->m->n_layers, sizeof *o->site);
    o->x = calloc(n * wide, sizeof *o->x);
    o->y = calloc(n * wide, sizeof *o->y);
    o->z = calloc(n * wide, sizeof *o->z);
    o->streams = calloc(n * streams * o->m->hidden, sizeof *o->streams);
    o->mix = calloc(n * (streams + streams * streams), sizeof *o->mix);
    o->logits = calloc(n * vocab, sizeof *o->logits);
    o->work = calloc(n * vocab, sizeof *o->work);
    o->id = calloc(n, sizeof *o->id);
    o->row = calloc(n, sizeof *o->row);
    o->temperature = calloc(n, sizeof *o->temperature);
    o->top_p = calloc(n, sizeof *o->top_p);
    o->min_p = calloc(n, sizeof *o->min_p);
    o->top_k = calloc(n, sizeof *o->top_k);
    o->token = calloc(n, sizeof *o->token);
    o->top_id = calloc(n * TOPS, sizeof *o->top_id);
    o->seed = calloc(n, sizeof *o->seed);
    o->counter = calloc(n, sizeof *o->counter);
    o->logprob = calloc(n, sizeof *o->logprob);
    o->top_logprob = calloc(n * TOPS, sizeof *o->top_logprob);
    if (!o->weight || !o->site || !o->x || !o->y || !o->z || !o->streams ||
        !o->mix || !o->logits || !o->work || !o->id || !o->row ||
        !o->temperature || !o->top_p || !o->min_p || !o->top_k || !o->token ||
        !o->top_id || !o->seed || !o->counter || !o->logprob || !o->top_logprob)
        return seam_fail(err, SEAM_ENOMEM, "out of memory");
    kind_random(o->x, n * wide, 3);
    kind_random(o->logits, n * vocab, 5);
    for (uint32_t i = 0; i < n; i++) {
        o->id[i] = (int32_t)((uint64_t)i * 2654435761u % vocab);
        o->row[i] = (int32_t)(n - 1 - i);
        o->seed[i] = i + 1;
        o->counter[i] = i;
    }
    return ops_sites(o, err);
}

/* ---- Cases --------------------------------------------------------------- */

static const struct {
    const char *name;
    enum op op;
} op_list[] = {
    { "gemm attention", OP_GEMM_ATTN },
    { "gemm expert", OP_GEMM_EXPERT },
    { "gemm head", OP_GEMM_HEAD },
    { "residual", OP_RESIDUAL },
    { "norm", OP_NORM },
    { "glu", OP_GLU },
    { "embed", OP_EMBED },
    { "gather", OP_GATHER },
    { "sample max", OP_SAMPLE_MAX },
    { "sample", OP_SAMPLE },
};

/* The weights that a case takes in turns; of a side's own checkpoint. */
static int ops_weights(struct ops *o, const struct kind_case *c,
                       struct seam_error *err)
{
    char name[96];
    int rc = 0;

    o->n_weights = 0;
    if (c->op == OP_GEMM_HEAD) {
        o->n_weights = 1;
        return ops_weight(o, "@head", &o->weight[0], err);
    }
    for (uint32_t l = 0; l < o->m->n_layers && !rc; l++) {
        if (c->op == OP_GEMM_ATTN && o->m->layer_kind[l] == SEAM_LAYER_LINEAR &&
            o->n_weights < MOST_WEIGHTS) {
            snprintf(name, sizeof name, "@layer.%u.self_attn.q_proj", l);
            rc = ops_weight(o, name, &o->weight[o->n_weights++], err);
        }
        if (c->op != OP_GEMM_EXPERT || o->m->mlp_kind[l] != SEAM_MLP_SPARSE)
            continue;
        for (uint32_t e = 0; e < o->m->n_experts && !rc; e++) {
            if (o->n_weights == MOST_WEIGHTS)
                return 0;
            snprintf(name, sizeof name, "@layer.%u.mlp.experts.%u.gate_proj", l,
                     e);
            rc = ops_weight(o, name, &o->weight[o->n_weights++], err);
        }
    }
    return rc;
}

static bool is_gemm(uint32_t op)
{
    return op <= OP_GEMM_HEAD;
}

static void ops_count(const struct ops *o, struct kind_case *c)
{
    double n = (double)c->tokens * c->seqs, d = o->m->hidden;
    double s = o->m->hc_mult, vocab = o->m->vocab;
    const struct seam_tensor *w = &o->weight[0];

    switch (c->op) {
    case OP_GEMM_ATTN:
    case OP_GEMM_EXPERT:
    case OP_GEMM_HEAD:
        c->bytes = (double)seam_bench_tensor_bytes(w) +
                   4 * n * (double)(w->shape[0] + w->shape[1]);
        c->ops = 2 * n * (double)w->shape[0] * (double)w->shape[1];
        break;
    case OP_RESIDUAL:
        c->bytes = (double)seam_bench_tensor_bytes(&o->site[0].fn) +
                   4 * n * (2 * s * d + 2 * d);
        c->ops = 2 * n * s * d * (2 * s + s * s + s + 2);
        break;
    case OP_NORM:
    case OP_GATHER:
        c->bytes = 8 * n * d;
        break;
    case OP_GLU:
        c->bytes = 12 * n * o->m->intermediate;
        break;
    case OP_EMBED:
        c->bytes = n * d * (2 + 4 * s);
        break;
    default:
        c->bytes = 4 * n * vocab;
    }
}

static int ops_cases(struct kind *k, struct seam_error *err)
{
    struct ops *o = k->side[0].work;
    int rc = 0;

    for (size_t i = 0; i < sizeof op_list / sizeof *op_list; i++)
        for (uint32_t s = 0; s < k->o->seqs.n; s++)
            for (uint32_t t = 0; t < k->o->tokens.n && !rc; t++) {
                struct kind_case *c =
                    kind_add(k, op_list[i].name, op_list[i].op,
                             k->o->tokens.v[t], 0, k->o->seqs.v[s]);

                if (!c)
                    continue;
                rc = ops_weights(o, c, err);
                if (!rc && is_gemm(c->op) && !o->n_weights)
                    k->n_cases--; /* the shape has none                       */
                else if (!rc)
                    ops_count(o, c);
            }
    return rc;
}

/* ---- Calls --------------------------------------------------------------- */

static struct seam_tensor ops_view(float *p, uint64_t rows, uint64_t cols)
{
    return (struct seam_tensor){
        .data = p,
        .bytes = rows * cols * sizeof *p,
        .shape = { (int64_t)rows, (int64_t)cols },
        .stride = { (int64_t)(cols * sizeof *p) },
        .dtype = SEAM_F32,
        .rank = 2,
        .device = -1,
    };
}

static struct seam_tensor ops_streams(const struct ops *o, uint32_t n)
{
    struct seam_tensor t =
        ops_view(o->streams, n, (uint64_t)o->m->hc_mult * o->m->hidden);

    t.rank = 3;
    t.shape[1] = o->m->hc_mult;
    t.shape[2] = o->m->hidden;
    t.stride[1] = (int64_t)o->m->hidden * (int64_t)sizeof(float);
    return t;
}

static int ops_residual(struct ops *o, const struct seam_exec *e, uint32_t n,
                        uint32_t i)
{
    const struct site *s = &o->site[i % o->m->n_layers];
    uint32_t k = o->m->hc_mult;
    struct seam_residual r = {
        .size = sizeof r,
        .n_streams = k,
        .sinkhorn = o->m->hc_rounds,
        .eps_norm = o->m->rms_eps,
        .eps_mix = o->m->hc_eps,
        .y = ops_view(o->x, n, o->m->hidden),
        .streams = ops_streams(o, n),
        .mix = ops_view(o->mix, n, k + k * k),
        .fn = s->fn,
        .base = s->base,
        .scale = s->scale,
        .w = s->w,
        .x = ops_view(o->y, n, o->m->hidden),
    };

    return o->rt->backend->ops->residual(o->rt->self[SEAM_ROLE_BACKEND], e, &r);
}

static int ops_sample(struct ops *o, const struct seam_exec *e, uint32_t n)
{
    struct seam_sample a = {
        .size = sizeof a,
        .n = n,
        .logits = ops_view(o->work, n, o->m->vocab),
        .filter = { .temperature = o->temperature,
                    .top_p = o->top_p,
                    .min_p = o->min_p,
                    .top_k = o->top_k,
                    .seed = o->seed,
                    .counter = o->counter },
        .n_top = TOPS,
        .token = o->token,
        .logprob = o->logprob,
        .top_id = o->top_id,
        .top_logprob = o->top_logprob,
    };

    return o->rt->backend->ops->sample(o->rt->self[SEAM_ROLE_BACKEND], e, &a);
}

/* Call i of a case with n rows. */
static int ops_run(struct ops *o, const struct kind_case *c, uint32_t n,
                   uint32_t i, struct seam_error *err)
{
    const struct seam_ops *ops = o->rt->backend->ops;
    void *be = o->rt->self[SEAM_ROLE_BACKEND];
    uint64_t d = o->m->hidden, inner = o->m->intermediate;
    struct seam_exec e = { .size = sizeof e,
                           .device = o->rt->device.ordinal,
                           .ws = o->rt->memory->ws,
                           .ws_bytes = o->rt->memory->ws_bytes,
                           .ops = ops,
                           .ops_self = be,
                           .err = err };
    struct seam_tensor x = ops_view(o->x, n, d), y = ops_view(o->y, n, d);
    struct seam_tensor g = ops_view(o->x, n, inner);
    struct seam_tensor u = ops_view(o->z, n, inner);
    struct seam_tensor to = ops_view(o->y, n, inner), streams;
    struct seam_gemm gemm = { .size = sizeof gemm };

    switch (c->op) {
    case OP_RESIDUAL:
        return ops_residual(o, &e, n, i);
    case OP_NORM:
        return ops->norm(be, &e, &x, &o->norm, o->m->rms_eps, &y);
    case OP_GLU:
        return ops->glu(be, &e, &g, &u, o->m->swiglu_limit, &to);
    case OP_EMBED:
        streams = ops_streams(o, n);
        return ops->embed(be, &e, o->id, n, &o->embed, &streams);
    case OP_GATHER:
        x = ops_view(o->x, o->rows, d);
        return ops->gather(be, &e, &x, o->row, n, &y);
    case OP_SAMPLE_MAX:
    case OP_SAMPLE:
        return ops_sample(o, &e, n);
    default:
        gemm.w = o->weight[i % o->n_weights];
        gemm.x = ops_view(o->x, n, (uint64_t)gemm.w.shape[1]);
        gemm.y = ops_view(c->op == OP_GEMM_HEAD ? o->work : o->y, n,
                          (uint64_t)gemm.w.shape[0]);
        return ops->gemm(be, &e, &gemm);
    }
}

static int ops_prepare(struct kind *k, struct kind_side *s,
                       const struct kind_case *c, struct seam_error *err)
{
    struct ops *o = s->work;
    uint32_t n = c->tokens * c->seqs, hc = o->m->hc_mult;
    bool draws = c->op == OP_SAMPLE;

    (void)k;
    for (uint32_t i = 0; i < n; i++) {
        o->temperature[i] = draws ? 0.8f : 0;
        o->top_p[i] = draws ? 0.95f : 1;
        o->min_p[i] = draws ? 0.01f : 0;
        o->top_k[i] = draws ? 50 : 0;
    }
    kind_random(o->z, (uint64_t)n * ops_widest(o->m), 11);
    kind_random(o->streams, (uint64_t)n * hc * o->m->hidden, 13);
    for (uint64_t i = 0; i < (uint64_t)n * (hc + hc * hc); i++)
        o->mix[i] = i % (hc + hc * hc) < hc ? 1 : 1.0f / (float)hc;
    return ops_weights(o, c, err);
}

/* Logits may be overwritten, so that each call gets new ones. */
static void ops_reset(struct kind *k, struct kind_side *s,
                      const struct kind_case *c)
{
    struct ops *o = s->work;
    uint64_t n = (uint64_t)c->tokens * c->seqs * o->m->vocab;

    (void)k;
    if (c->op == OP_SAMPLE || c->op == OP_SAMPLE_MAX)
        memcpy(o->work, o->logits, n * sizeof *o->work);
}

static int ops_call(struct kind *k, struct kind_side *s,
                    const struct kind_case *c, uint32_t i,
                    struct seam_error *err)
{
    (void)k;
    return ops_run(s->work, c, c->tokens * c->seqs, i, err);
}

/* ---- Right --------------------------------------------------------------- */

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static double ops_error(const struct ops *a, const struct ops *b,
                        const struct kind_case *c, uint64_t n)
{
    const struct seam_model_config *m = a->m;
    uint64_t hc = m->hc_mult, wide = n * hc * m->hidden;
    const struct seam_tensor *w = &a->weight[0];
    double e;

    switch (c->op) {
    case OP_RESIDUAL:
        e = larger(kind_error(a->streams, b->streams, wide),
                   kind_error(a->y, b->y, n * m->hidden));
        return larger(e, kind_error(a->mix, b->mix, n * (hc + hc * hc)));
    case OP_EMBED:
        return kind_error(a->streams, b->streams, wide);
    case OP_GLU:
        return kind_error(a->y, b->y, n * m->intermediate);
    case OP_SAMPLE_MAX:
        if (memcmp(a->token, b->token, n * sizeof *a->token))
            return INFINITY;
        return kind_error(a->logprob, b->logprob, n);
    case OP_SAMPLE:
        /* Each backend has draws of its own; what it reports of the
         * distribution is the same. */
        return kind_error(a->top_logprob, b->top_logprob, n * TOPS);
    case OP_GEMM_HEAD:
        return kind_error(a->work, b->work, n * (uint64_t)w->shape[0]);
    case OP_GEMM_ATTN:
    case OP_GEMM_EXPERT:
        return kind_error(a->y, b->y, n * (uint64_t)w->shape[0]);
    default:
        return kind_error(a->y, b->y, n * m->hidden);
    }
}

static int ops_check(struct kind *k, const struct kind_case *c,
                     struct kind_side *s, struct kind_side *ref, double *error,
                     struct seam_error *err)
{
    uint32_t n = c->tokens * c->seqs;
    struct kind_side *side[2] = { s, ref };
    int rc = 0;

    if (n > k->o->check_tokens)
        n = k->o->check_tokens;
    for (int i = 0; i < 2 && !rc; i++) {
        rc = ops_prepare(k, side[i], c, err);
        ops_reset(k, side[i], c);
        if (!rc)
            rc = ops_run(side[i]->work, c, n, 0, err);
    }
    if (!rc)
        *error = ops_error(s->work, ref->work, c, n);
    return rc;
}

const struct kind_family kind_ops = {
    .open = ops_open,
    .close = ops_close,
    .cases = ops_cases,
    .check = ops_check,
    .prepare = ops_prepare,
    .reset = ops_reset,
    .call = ops_call,
};
