#include "core/model/glm5_next.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/num.h"

/* One of the two hyper-connection sites of a layer, with the norm behind it. */
struct glm_site {
    struct seam_tensor fn;    /* [(2 + S) S, S * hidden] */
    struct seam_tensor base;  /* [(2 + S) S] F32 */
    struct seam_tensor scale; /* [3] F32: pre, post, comb */
    struct seam_tensor norm;  /* [hidden] */
};

struct glm_layer {
    struct glm_site attn, ffn;
    const struct seam_block_ref *mixer; /* linear or sparse attention */
    uint32_t mixer_index;               /* this layer's index in its instance */
    uint32_t moe_index;
    bool dense;
    struct seam_tensor gate, up, down; /* dense MLP */
};

struct seam_glm5_next {
    struct seam_glm5_next_opts o;
    const struct seam_model_config *c;
    const struct seam_ops *ops;

    struct seam_tensor embed, head, norm;
    struct glm_layer *layer; /* [n_layers] */

    /* layer << 8 | enum seam_glm5_call.  relaxed: a watchdog looks at it while
     * the step goes on. */
    _Atomic uint32_t where;
    void (*watch)(void *ctx, enum seam_glm5_call call, uint32_t layer);
    void *watch_ctx;
    uint32_t failed; /* `where` at the end of the last step */
    uint32_t n_bad;  /* of its token rows, in host memory only */
    uint32_t *bad;   /* [T] `where` a row ceased to be finite; 0: it did not */

    /* Activations, in one allocation.  T = limits.max_tokens. */
    void *arena;
    float *streams; /* [T][S][hidden]     residual streams */
    float *mix;     /* [T][S + S * S]     post and comb of the last read */
    float *x;       /* [T][hidden]        what a block reads */
    float *y;       /* [T][hidden]        what it adds */
    float *gate;    /* [T][intermediate] */
    float *up;      /* [T][intermediate] */
    float *z;       /* [max_rows][hidden] final norm of the rows wanted */
    float *logits;  /* [max_rows][vocab] */
};

/* ---- Views of the activations -------------------------------------------- */

static struct seam_tensor glm_view(const struct seam_glm5_next *m, float *p,
                                   int64_t rows, int64_t cols)
{
    return (struct seam_tensor){
        .data = p,
        .bytes = (uint64_t)(rows * cols) * sizeof *p,
        .shape = { rows, cols },
        .stride = { cols * (int64_t)sizeof *p },
        .dtype = SEAM_F32,
        .rank = 2,
        .device = m->o.device,
    };
}

static struct seam_tensor glm_streams(const struct seam_glm5_next *m,
                                      int64_t rows)
{
    int64_t s = m->c->hc_mult, d = m->c->hidden;
    struct seam_tensor t = glm_view(m, m->streams, rows, s * d);

    t.rank = 3;
    t.shape[1] = s;
    t.shape[2] = d;
    t.stride[1] = d * (int64_t)sizeof(float);
    return t;
}

/* ---- Opening ------------------------------------------------------------- */

uint32_t seam_glm5_next_mixers(const struct seam_model_config *c, uint8_t kind,
                               uint32_t layer[SEAM_MAX_LAYERS])
{
    uint32_t n = 0;

    for (uint32_t l = 0; l < c->n_layers; l++)
        if (c->layer_kind[l] == kind)
            layer[n++] = l;
    return n;
}

uint32_t seam_glm5_next_mlps(const struct seam_model_config *c, uint8_t kind,
                             uint32_t layer[SEAM_MAX_LAYERS])
{
    uint32_t n = 0;

    for (uint32_t l = 0; l < c->n_layers; l++)
        if (c->mlp_kind[l] == kind)
            layer[n++] = l;
    return n;
}

static int glm_weight(struct seam_glm5_next *m, uint32_t l, const char *rest,
                      struct seam_tensor *out, struct seam_error *err)
{
    char name[128];

    snprintf(name, sizeof name, "@layer.%u.%s", l, rest);
    return seam_checkpoint_weight(m->o.checkpoint, name, out, err);
}

static int glm_site_open(struct seam_glm5_next *m, uint32_t l, const char *hc,
                         const char *norm, struct glm_site *s,
                         struct seam_error *err)
{
    struct {
        const char *suffix;
        struct seam_tensor *out;
    } part[] = { { "fn", &s->fn },
                 { "base", &s->base },
                 { "scale", &s->scale } };
    char name[64];
    int rc;

    for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
        snprintf(name, sizeof name, "%s_%s", hc, part[i].suffix);
        rc = glm_weight(m, l, name, part[i].out, err);
        if (rc)
            return rc;
    }
    snprintf(name, sizeof name, "%s.weight", norm);
    return glm_weight(m, l, name, &s->norm, err);
}

static int glm_layer_open(struct seam_glm5_next *m, uint32_t l,
                          struct glm_layer *y, uint32_t *n_linear,
                          uint32_t *n_sparse, uint32_t *n_moe,
                          struct seam_error *err)
{
    int rc = glm_site_open(m, l, "hc_attn", "input_layernorm", &y->attn, err);

    if (!rc)
        rc = glm_site_open(m, l, "hc_ffn", "post_attention_layernorm", &y->ffn,
                           err);
    if (rc)
        return rc;
    if (m->c->layer_kind[l] == SEAM_LAYER_LINEAR) {
        y->mixer = &m->o.linear;
        y->mixer_index = (*n_linear)++;
    } else {
        y->mixer = &m->o.sparse;
        y->mixer_index = (*n_sparse)++;
    }
    y->dense = m->c->mlp_kind[l] == SEAM_MLP_DENSE;
    if (!y->dense) {
        y->moe_index = (*n_moe)++;
        return 0;
    }
    rc = glm_weight(m, l, "mlp.gate_proj", &y->gate, err);
    if (!rc)
        rc = glm_weight(m, l, "mlp.up_proj", &y->up, err);
    if (!rc)
        rc = glm_weight(m, l, "mlp.down_proj", &y->down, err);
    return rc;
}

/* Lay the activations out one behind another; with arena NULL only measure. */
static uint64_t glm_arena(struct seam_glm5_next *m, char *arena)
{
    const struct seam_model_config *c = m->c;
    uint64_t t = m->o.limits->max_tokens, s = c->hc_mult, n = 0;
    struct {
        float **p;
        uint64_t elements;
    } part[] = {
        { &m->streams, t * s * c->hidden },
        { &m->mix, t * (s + s * s) },
        { &m->x, t * c->hidden },
        { &m->y, t * c->hidden },
        { &m->gate, t * c->intermediate },
        { &m->up, t * c->intermediate },
        { &m->z, (uint64_t)m->o.max_rows * c->hidden },
        { &m->logits, (uint64_t)m->o.max_rows * c->vocab },
    };

    for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
        if (arena)
            *part[i].p = (float *)(arena + n);
        n += (part[i].elements * sizeof(float) + 255) & ~(uint64_t)255;
    }
    return n;
}

int seam_glm5_next_new(struct seam_glm5_next **out,
                       const struct seam_glm5_next_opts *opts,
                       struct seam_error *err)
{
    struct seam_glm5_next *m = calloc(1, sizeof *m);
    uint32_t n_linear = 0, n_sparse = 0, n_moe = 0;
    int rc;

    if (!m)
        return seam_fail(err, SEAM_ENOMEM, "model: out of memory");
    m->o = *opts;
    m->c = seam_checkpoint_config(opts->checkpoint);
    m->ops = opts->backend->ops;
    m->layer = calloc(m->c->n_layers, sizeof *m->layer);
    m->bad = calloc(opts->limits->max_tokens, sizeof *m->bad);
    if (!m->layer || !m->bad) {
        rc = seam_fail(err, SEAM_ENOMEM, "model: out of memory");
        goto fail;
    }
    rc = seam_checkpoint_weight(opts->checkpoint, "@embed", &m->embed, err);
    if (!rc)
        rc = seam_checkpoint_weight(opts->checkpoint, "@head", &m->head, err);
    if (!rc)
        rc = seam_checkpoint_weight(opts->checkpoint, "@norm", &m->norm, err);
    for (uint32_t l = 0; !rc && l < m->c->n_layers; l++)
        rc = glm_layer_open(m, l, &m->layer[l], &n_linear, &n_sparse, &n_moe,
                            err);
    if (!rc)
        rc = opts->backend->alloc(opts->backend_self, SEAM_MEM_DEVICE,
                                  glm_arena(m, NULL), 256, &m->arena, err);
    if (rc)
        goto fail;
    glm_arena(m, m->arena);
    *out = m;
    return 0;
fail:
    seam_glm5_next_free(m);
    return rc;
}

void seam_glm5_next_free(struct seam_glm5_next *m)
{
    if (!m)
        return;
    if (m->arena)
        m->o.backend->free(m->o.backend_self, SEAM_MEM_DEVICE, m->arena);
    free(m->layer);
    free(m->bad);
    free(m);
}

void seam_glm5_next_replace(struct seam_glm5_next *m, enum seam_glm5_call role,
                            struct seam_block_ref block)
{
    /* Layers point at these. */
    *(role == SEAM_GLM5_LINEAR   ? &m->o.linear
      : role == SEAM_GLM5_SPARSE ? &m->o.sparse
                                 : &m->o.moe) = block;
}

enum seam_glm5_call seam_glm5_next_where(const struct seam_glm5_next *m,
                                         uint32_t *layer)
{
    uint32_t where = atomic_load_explicit(&m->where, memory_order_relaxed);

    *layer = where >> 8;
    return (enum seam_glm5_call)(where & 0xff);
}

static void glm_enter(struct seam_glm5_next *m, uint32_t layer,
                      enum seam_glm5_call call)
{
    atomic_store_explicit(&m->where, layer << 8 | call, memory_order_relaxed);
    if (m->watch)
        m->watch(m->watch_ctx, call, layer);
}

void seam_glm5_next_watch(struct seam_glm5_next *m,
                          void (*fn)(void *ctx, enum seam_glm5_call call,
                                     uint32_t layer),
                          void *ctx)
{
    m->watch = fn;
    m->watch_ctx = ctx;
}

/* ---- A step -------------------------------------------------------------- */

static int glm_begin(const struct seam_block_ref *b, const struct seam_exec *e,
                     const struct seam_step *s)
{
    return b->table && b->table->begin ? b->table->begin(b->self, e, s) : 0;
}

/* y = block(x) */
static int glm_block(struct seam_glm5_next *m, const struct seam_exec *e,
                     const struct seam_step *s, const struct seam_block_ref *b,
                     uint32_t index)
{
    struct seam_block_args a = {
        .size = sizeof a,
        .layer = index,
        .step = s,
        .x = glm_view(m, m->x, s->n_tokens, m->c->hidden),
        .y = glm_view(m, m->y, s->n_tokens, m->c->hidden),
    };

    return b->table->forward(b->self, e, &a);
}

/* Add the last block's y to the streams, if there was one, and read from them
 * through `site`, or through the final norm when there is none left. */
static int glm_residual(struct seam_glm5_next *m, const struct seam_exec *e,
                        int64_t n, bool add, const struct glm_site *site)
{
    int64_t s = m->c->hc_mult;
    struct seam_residual r = {
        .size = sizeof r,
        .n_streams = m->c->hc_mult,
        .sinkhorn = m->c->hc_rounds,
        .eps_norm = m->c->rms_eps,
        .eps_mix = m->c->hc_eps,
        .streams = glm_streams(m, n),
        .mix = glm_view(m, m->mix, n, s + s * s),
        .w = site ? site->norm : m->norm,
        .x = glm_view(m, m->x, n, m->c->hidden),
    };

    if (add)
        r.y = glm_view(m, m->y, n, m->c->hidden);
    if (site) {
        r.fn = site->fn;
        r.base = site->base;
        r.scale = site->scale;
    }
    return m->ops->residual(m->o.backend_self, e, &r);
}

static int glm_linear(struct seam_glm5_next *m, const struct seam_exec *e,
                      struct seam_tensor x, struct seam_tensor w,
                      struct seam_tensor y)
{
    struct seam_gemm g = { .size = sizeof g, .x = x, .w = w, .y = y };

    return m->ops->gemm(m->o.backend_self, e, &g);
}

/* Clamped SwiGLU (5.1): y = down(silu(min(gate x, c)) . clamp(up x, -c, c)) */
static int glm_dense(struct seam_glm5_next *m, const struct seam_exec *e,
                     int64_t n, const struct glm_layer *l)
{
    struct seam_tensor x = glm_view(m, m->x, n, m->c->hidden);
    struct seam_tensor y = glm_view(m, m->y, n, m->c->hidden);
    struct seam_tensor g = glm_view(m, m->gate, n, m->c->intermediate);
    struct seam_tensor u = glm_view(m, m->up, n, m->c->intermediate);
    int rc = glm_linear(m, e, x, l->gate, g);

    if (!rc)
        rc = glm_linear(m, e, x, l->up, u);
    if (!rc)
        rc = m->ops->glu(m->o.backend_self, e, &g, &u, m->c->swiglu_limit, &g);
    return rc ? rc : glm_linear(m, e, g, l->down, y);
}

/* True when one of p[0, n) is an infinity or no number: its exponent is full.
 * Written so that it becomes a few vector instructions. */
static bool glm_row_is_bad(const float *p, uint32_t n)
{
    uint32_t bad = 0;

    for (uint32_t i = 0; i < n; i++) {
        uint32_t bits;

        memcpy(&bits, p + i, sizeof bits);
        bad |= (bits & 0x7f800000u) == 0x7f800000u;
    }
    return bad;
}

/* Note which rows of y ceased to be finite in the call that has just returned.
 * Other rows do not depend on them, so that only their sequences are lost. */
static void glm_look(struct seam_glm5_next *m, uint32_t n)
{
    if (m->o.device >= 0) /* no look into a device's memory */
        return;
    for (uint32_t t = 0; t < n; t++)
        if (!m->bad[t] &&
            glm_row_is_bad(m->y + (uint64_t)t * m->c->hidden, m->c->hidden)) {
            m->bad[t] = atomic_load_explicit(&m->where, memory_order_relaxed);
            m->n_bad++;
        }
}

static int glm_begin_all(struct seam_glm5_next *m, const struct seam_exec *e,
                         const struct seam_step *s)
{
    const struct {
        enum seam_glm5_call call;
        const struct seam_block_ref *block;
    } part[] = { { SEAM_GLM5_LINEAR, &m->o.linear },
                 { SEAM_GLM5_SPARSE, &m->o.sparse },
                 { SEAM_GLM5_MOE, &m->o.moe } };
    int rc = 0;

    for (size_t i = 0; i < sizeof part / sizeof *part && !rc; i++) {
        glm_enter(m, 0, part[i].call);
        rc = glm_begin(part[i].block, e, s);
    }
    return rc;
}

static int glm_layer(struct seam_glm5_next *m, const struct seam_exec *e,
                     const struct seam_step *s, uint32_t i)
{
    const struct glm_layer *l = &m->layer[i];
    int64_t n = s->n_tokens;
    int rc;

    glm_enter(m, i, SEAM_GLM5_BACKEND);
    rc = glm_residual(m, e, n, i > 0, &l->attn);
    if (rc)
        return rc;
    glm_enter(m, i,
              l->mixer == &m->o.linear ? SEAM_GLM5_LINEAR : SEAM_GLM5_SPARSE);
    rc = glm_block(m, e, s, l->mixer, l->mixer_index);
    if (rc)
        return rc;
    glm_look(m, s->n_tokens);
    glm_enter(m, i, SEAM_GLM5_BACKEND);
    rc = glm_residual(m, e, n, true, &l->ffn);
    if (rc)
        return rc;
    if (!l->dense)
        glm_enter(m, i, SEAM_GLM5_MOE);
    rc = l->dense ? glm_dense(m, e, n, l)
                  : glm_block(m, e, s, &m->o.moe, l->moe_index);
    if (!rc)
        glm_look(m, s->n_tokens);
    return rc;
}

static int glm_step(struct seam_glm5_next *m, const struct seam_exec *e,
                    const struct seam_step *s, const int32_t *token,
                    const int32_t *row, uint32_t n_rows,
                    struct seam_tensor *logits)
{
    int64_t n = s->n_tokens;
    struct seam_tensor streams = glm_streams(m, n);
    struct seam_tensor x = glm_view(m, m->x, n, m->c->hidden);
    struct seam_tensor z = glm_view(m, m->z, n_rows, m->c->hidden);
    int rc = glm_begin_all(m, e, s);

    if (rc)
        return rc;
    glm_enter(m, 0, SEAM_GLM5_BACKEND);
    rc = m->ops->embed(m->o.backend_self, e, token, s->n_tokens, &m->embed,
                       &streams);
    for (uint32_t i = 0; !rc && i < m->c->n_layers; i++)
        rc = glm_layer(m, e, s, i);
    if (rc)
        return rc;
    glm_enter(m, m->c->n_layers, SEAM_GLM5_BACKEND);
    rc = glm_residual(m, e, n, true, NULL);
    if (rc || !n_rows)
        return rc;
    *logits = glm_view(m, m->logits, n_rows, m->c->vocab);
    rc = m->ops->gather(m->o.backend_self, e, &x, row, n_rows, &z);
    return rc ? rc : glm_linear(m, e, z, m->head, *logits);
}

int seam_glm5_next_step(struct seam_glm5_next *m, const struct seam_exec *e,
                        const struct seam_step *s, const int32_t *token,
                        const int32_t *row, uint32_t n_rows,
                        struct seam_tensor *logits)
{
    int rc;

    m->n_bad = 0;
    memset(m->bad, 0, s->n_tokens * sizeof *m->bad);
    rc = glm_step(m, e, s, token, row, n_rows, logits);
    m->failed = atomic_load_explicit(&m->where, memory_order_relaxed);
    glm_enter(m, 0, SEAM_GLM5_IDLE);
    return rc;
}

enum seam_glm5_call seam_glm5_next_failed(const struct seam_glm5_next *m,
                                          uint32_t *layer)
{
    *layer = m->failed >> 8;
    return (enum seam_glm5_call)(m->failed & 0xff);
}

enum seam_glm5_call seam_glm5_next_bad(const struct seam_glm5_next *m,
                                       uint32_t from, uint32_t n,
                                       uint32_t *layer)
{
    for (uint32_t t = from; t < from + n && m->n_bad; t++)
        if (m->bad[t]) {
            *layer = m->bad[t] >> 8;
            return (enum seam_glm5_call)(m->bad[t] & 0xff);
        }
    return SEAM_GLM5_IDLE;
}
