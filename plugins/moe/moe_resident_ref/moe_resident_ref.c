/* moe_resident_ref - the experts of docs/spec/glm5_next.md, section 5, in the
 * order of its formulas: the reference that faster plugins are measured by.
 *
 * All weights stay where the host has them and are dequantised row by row, once
 * per call.  Arithmetic is in double, input and output are F32, one thread. */
#include <seam/plugin.h>

#include <math.h>
#include <string.h>

#include "plugin_util.h"

static const struct seam_host *host;

/* gate_proj, up_proj [ff, d] and down_proj [d, ff] of one SwiGLU. */
struct mlp {
    struct seam_tensor gate, up, down;
};

struct layer {
    struct seam_tensor router; /* [n_experts, d]                             */
    double *bias;              /* [n_experts] for the choice alone           */
    struct mlp *expert;        /* [n_experts]                                */
    struct mlp shared;         /* of width n_shared * ff                     */
};

struct moe {
    uint32_t n_layers, max_tokens;
    uint32_t d, ff, n_experts, top_k, n_group, topk_group, n_shared;
    int32_t norm_topk;
    double scale, limit;
    struct layer *layer;
    void (*sink)(void *, uint32_t, const char *, const struct seam_tensor *);
    void *sink_ctx;
};

/* What one call keeps in ws; T is max_tokens. */
struct scratch {
    double *x;      /* [T][d]         rows of the input                    */
    double *acc;    /* [T][d]         sum over experts                     */
    double *in;     /* [T][d]         the rows of one expert               */
    double *g, *u;  /* [T][width]                                          */
    double *out;    /* [T][d]                                              */
    double *row;    /* [max(d, width)] a weight row                        */
    double *score;  /* [T][n_experts] router logits                        */
    double *weight; /* [T][top_k]                                          */
    double *s;      /* [n_experts]    sigmoid of one row's logits          */
    double *choice; /* [n_experts]    s + bias; -inf once out              */
    int32_t *index; /* [T][top_k]     experts, ascending; -1 for padding   */
    int32_t *rows;  /* [T]            rows that go to the current expert   */
    double *share;  /* [T]            and their weights                    */
    float *trace;   /* [T][max(n_experts, top_k)]                          */
};

/* Inner width of the widest SwiGLU. */
static uint64_t width_of(const struct moe *m)
{
    return (uint64_t)m->ff * (m->n_shared > 1 ? m->n_shared : 1);
}

static uint64_t scratch_layout(const struct moe *m, void *ws, struct scratch *s)
{
    struct plug_arena a = { .p = ws };
    uint64_t t = m->max_tokens, w = width_of(m);

    s->x = plug_take(&a, t * m->d, sizeof *s->x);
    s->acc = plug_take(&a, t * m->d, sizeof *s->acc);
    s->in = plug_take(&a, t * m->d, sizeof *s->in);
    s->g = plug_take(&a, t * w, sizeof *s->g);
    s->u = plug_take(&a, t * w, sizeof *s->u);
    s->out = plug_take(&a, t * m->d, sizeof *s->out);
    s->row = plug_take(&a, m->d > w ? m->d : w, sizeof *s->row);
    s->score = plug_take(&a, t * m->n_experts, sizeof *s->score);
    s->weight = plug_take(&a, t * m->top_k, sizeof *s->weight);
    s->s = plug_take(&a, m->n_experts, sizeof *s->s);
    s->choice = plug_take(&a, m->n_experts, sizeof *s->choice);
    s->index = plug_take(&a, t * m->top_k, sizeof *s->index);
    s->rows = plug_take(&a, t, sizeof *s->rows);
    s->share = plug_take(&a, t, sizeof *s->share);
    s->trace = plug_take(&a, t * m->n_experts, sizeof *s->trace);
    return a.used;
}

/* ---- The formulas -------------------------------------------------------- */

static double sigmoid(double v)
{
    return 1 / (1 + exp(-v));
}

/* 5.1: out = down(silu(min(g, limit)) . clamp(u, -limit, limit)) for n rows. */
static void swiglu(const struct moe *m, const struct mlp *w, const double *x,
                   uint64_t n, struct scratch *s)
{
    uint64_t width = weights_rows(&w->gate);

    weights_linear(&w->gate, x, m->d, n, s->g, width, s->row);
    weights_linear(&w->up, x, m->d, n, s->u, width, s->row);
    for (uint64_t i = 0; i < n * width; i++) {
        double g = fmin(s->g[i], m->limit);
        double u = fmax(-m->limit, fmin(s->u[i], m->limit));

        s->g[i] = g * sigmoid(g) * u;
    }
    weights_linear(&w->down, s->g, width, n, s->out, m->d, s->row);
}

/* The largest of v[0, n), the first of equals; -1 when all are -infinity. */
static int32_t argmax(const double *v, uint32_t n)
{
    int32_t best = -1;

    for (uint32_t i = 0; i < n; i++)
        if (v[i] > -INFINITY && (best < 0 || v[i] > v[best]))
            best = (int32_t)i;
    return best;
}

/* Keep the topk_group groups whose two best choices have the largest sum (of
 * equals the first); the experts of the others are out. */
static void drop_groups(const struct moe *m, double *choice)
{
    uint32_t per = m->n_experts / m->n_group;
    double best[2], sum[256];
    bool keep[256] = { false };

    for (uint32_t g = 0; g < m->n_group; g++) {
        best[0] = best[1] = -INFINITY;
        for (uint32_t e = g * per; e < (g + 1) * per; e++) {
            if (choice[e] > best[0]) {
                best[1] = best[0];
                best[0] = choice[e];
            } else if (choice[e] > best[1]) {
                best[1] = choice[e];
            }
        }
        sum[g] = best[0] + (per > 1 ? best[1] : 0);
    }
    for (uint32_t k = 0; k < m->topk_group; k++) {
        int32_t g = argmax(sum, m->n_group);

        if (g < 0)
            break;
        keep[g] = true;
        sum[g] = -INFINITY;
    }
    for (uint32_t e = 0; e < m->n_experts; e++)
        if (!keep[e / per])
            choice[e] = -INFINITY;
}

/* 5.2 for one row: logits to experts and weights. */
static void route(const struct moe *m, const struct layer *l,
                  const double *logit, int32_t *index, double *weight,
                  struct scratch *s)
{
    double sum = 1e-20;

    for (uint32_t e = 0; e < m->n_experts; e++) {
        s->s[e] = sigmoid(logit[e]);
        s->choice[e] = s->s[e] + l->bias[e];
    }
    if (m->topk_group < m->n_group)
        drop_groups(m, s->choice);
    for (uint32_t k = 0; k < m->top_k; k++) {
        int32_t e = argmax(s->choice, m->n_experts);

        index[k] = e; /* -1 when the scores are not numbers */
        weight[k] = e < 0 ? NAN : s->s[e];
        sum += weight[k];
        if (e >= 0)
            s->choice[e] = -INFINITY;
    }
    for (uint32_t k = 0; k < m->top_k; k++)
        weight[k] *= m->scale / (m->norm_topk ? sum : 1);
}

/* ---- Trace --------------------------------------------------------------- */

static void trace(struct moe *m, uint32_t layer, const char *name,
                  uint16_t dtype, const void *data, uint32_t n, uint32_t width)
{
    struct seam_tensor t = {
        .data = (void *)(uintptr_t)data,
        .bytes = (uint64_t)n * width * 4,
        .shape = { n, width },
        .stride = { (int64_t)width * 4 },
        .dtype = dtype,
        .rank = 2,
        .device = -1,
    };

    m->sink(m->sink_ctx, layer, name, &t);
}

static void trace_floats(struct moe *m, uint32_t layer, const char *name,
                         const double *v, uint32_t n, uint32_t width,
                         const struct seam_step *step, struct scratch *s)
{
    for (uint32_t r = 0; r < n; r++)
        for (uint32_t i = 0; i < width; i++)
            s->trace[r * width + i] =
                step->slot[r] < 0 ? 0 : (float)v[r * width + i];
    trace(m, layer, name, SEAM_F32, s->trace, n, width);
}

static void moe_trace_set(void *self, void *ctx,
                          void (*sink)(void *, uint32_t, const char *,
                                       const struct seam_tensor *))
{
    struct moe *m = self;

    m->sink = sink;
    m->sink_ctx = ctx;
}

/* ---- The block ----------------------------------------------------------- */

static int moe_forward(void *self, const struct seam_exec *e,
                       const struct seam_block_args *b)
{
    struct moe *m = self;
    const struct seam_step *step = b->step;
    uint32_t n = step->n_tokens, k = m->top_k;
    const struct layer *l;
    struct scratch s;

    if (b->layer >= m->n_layers || n > m->max_tokens ||
        !plug_is_rows(&b->x, SEAM_F32, 4, n, m->d) ||
        !plug_is_rows(&b->y, SEAM_F32, 4, n, m->d))
        return plug_fail(e->err, SEAM_EINVAL,
                         "moe_resident_ref: layer %u with "
                         "%u rows, expected under %u with [rows <= %u, %u] F32",
                         b->layer, n, m->n_layers, m->max_tokens, m->d);
    if (scratch_layout(m, e->ws, &s) > e->ws_bytes)
        return plug_fail(e->err, SEAM_EINVAL,
                         "moe_resident_ref: ws is %llu "
                         "bytes",
                         (unsigned long long)e->ws_bytes);
    l = &m->layer[b->layer];
    for (uint32_t r = 0; r < n; r++) {
        const float *x = plug_row(&b->x, r);

        for (uint32_t i = 0; i < m->d; i++) {
            s.x[(uint64_t)r * m->d + i] = step->slot[r] < 0 ? 0 : x[i];
            s.acc[(uint64_t)r * m->d + i] = 0;
        }
    }
    weights_linear(&l->router, s.x, m->d, n, s.score, m->n_experts, s.row);
    for (uint32_t r = 0; r < n; r++) {
        route(m, l, s.score + (uint64_t)r * m->n_experts, s.index + r * k,
              s.weight + r * k, &s);
        for (uint32_t i = 0; step->slot[r] < 0 && i < k; i++)
            s.index[r * k + i] = -1;
    }
    /* Experts in ascending order, each over all its rows: a row's sum does not
     * depend on which other rows are there. */
    for (uint32_t x = 0; x < m->n_experts; x++) {
        uint32_t hits = 0;

        for (uint32_t r = 0; r < n; r++)
            for (uint32_t i = 0; i < k; i++)
                if (s.index[r * k + i] == (int32_t)x) {
                    memcpy(s.in + (uint64_t)hits * m->d,
                           s.x + (uint64_t)r * m->d, m->d * sizeof *s.in);
                    s.rows[hits] = (int32_t)r;
                    s.share[hits++] = s.weight[r * k + i];
                }
        if (!hits)
            continue;
        swiglu(m, &l->expert[x], s.in, hits, &s);
        for (uint32_t h = 0; h < hits; h++)
            for (uint32_t i = 0; i < m->d; i++)
                s.acc[(uint64_t)s.rows[h] * m->d + i] +=
                    s.share[h] * s.out[(uint64_t)h * m->d + i];
    }
    if (m->n_shared) {
        swiglu(m, &l->shared, s.x, n, &s);
        for (uint64_t i = 0; i < (uint64_t)n * m->d; i++)
            s.acc[i] += s.out[i];
    }
    for (uint32_t r = 0; r < n; r++) {
        float *y = plug_row(&b->y, r);
        bool lost = false; /* scores that are not numbers choose no expert */

        for (uint32_t i = 0; i < k; i++)
            lost |= s.index[r * k + i] < 0;
        for (uint32_t i = 0; i < m->d; i++)
            y[i] = step->slot[r] < 0 ? 0
                   : lost            ? NAN
                                     : (float)s.acc[(uint64_t)r * m->d + i];
    }
    if (m->sink) {
        trace_floats(m, b->layer, "router_logits", s.score, n, m->n_experts,
                     step, &s);
        trace_floats(m, b->layer, "router_weights", s.weight, n, k, step, &s);
        trace(m, b->layer, "router_index", SEAM_I32, s.index, n, k);
    }
    return SEAM_OK;
}

/* ---- The instance -------------------------------------------------------- */

static int moe_init(const struct seam_host *h, struct seam_error *err)
{
    (void)err;
    host = h;
    return SEAM_OK;
}

static int read_config(struct moe *m, const struct seam_create *c,
                       struct seam_error *err)
{
    const struct seam_cfg *mc = host->model_cfg(host->ctx, c->model);
    const struct {
        const char *key;
        uint32_t lo, hi, *out;
    } key[] = {
        { "hidden_size", 1, 1 << 20, &m->d },
        { "moe_intermediate_size", 1, 1 << 20, &m->ff },
        { "n_routed_experts", 1, 1 << 16, &m->n_experts },
        { "num_experts_per_tok", 1, 1 << 16, &m->top_k },
        { "n_shared_experts", 0, 64, &m->n_shared },
        { "n_group", 1, 256, &m->n_group },
        { "topk_group", 1, 256, &m->topk_group },
    };
    int rc;

    for (uint32_t i = 0; i < sizeof key / sizeof *key; i++) {
        rc = plug_model_u32(host, mc, key[i].key, NULL, key[i].lo, key[i].hi,
                            key[i].out, err);
        if (rc)
            return rc;
    }
    rc =
        plug_model_f64(host, mc, "routed_scaling_factor", NULL, &m->scale, err);
    if (!rc)
        rc = plug_model_f64(host, mc, "swiglu_limit", NULL, &m->limit, err);
    if (rc)
        return rc;
    if (host->cfg(host->ctx, mc, "norm_topk_prob", SEAM_CFG_BOOL,
                  &m->norm_topk))
        return plug_fail(err, SEAM_EDATA,
                         "model config: norm_topk_prob is "
                         "missing or no boolean");
    if (m->limit <= 0)
        m->limit = INFINITY;
    if (m->n_experts % m->n_group || m->topk_group > m->n_group ||
        m->top_k > m->n_experts / m->n_group * m->topk_group)
        return plug_fail(err, SEAM_EDATA,
                         "model config: %u of %u experts in "
                         "%u of %u groups is impossible",
                         m->top_k, m->n_experts, m->topk_group, m->n_group);
    return SEAM_OK;
}

static int read_mlp(struct mlp *w, const struct moe *m,
                    const struct seam_create *c, uint32_t layer,
                    const char *module, uint64_t width, struct seam_error *err)
{
    struct seam_tensor *t[3] = { &w->gate, &w->up, &w->down };
    static const char *const part[3] = { "gate_proj", "up_proj", "down_proj" };
    char name[128];
    int rc = SEAM_OK;

    for (uint32_t i = 0; !rc && i < 3; i++) {
        snprintf(name, sizeof name, "%s.%s", module, part[i]);
        rc = plug_weight(host, c->model, layer, name, i < 2 ? width : m->d,
                         i < 2 ? m->d : width, t[i], err);
    }
    return rc;
}

static int read_layer(struct layer *l, const struct moe *m,
                      const struct seam_create *c, uint32_t layer,
                      struct seam_error *err)
{
    struct seam_tensor bias;
    char name[64];
    int rc = plug_weight(host, c->model, layer, "mlp.gate", m->n_experts, m->d,
                         &l->router, err);

    if (!rc)
        rc = plug_weight(host, c->model, layer,
                         "mlp.gate.e_score_correction_bias", m->n_experts, 0,
                         &bias, err);
    if (rc)
        return rc;
    weights_row(&bias, 0, l->bias);
    for (uint32_t e = 0; !rc && e < m->n_experts; e++) {
        snprintf(name, sizeof name, "mlp.experts.%u", e);
        rc = read_mlp(&l->expert[e], m, c, layer, name, m->ff, err);
    }
    if (!rc && m->n_shared)
        rc = read_mlp(&l->shared, m, c, layer, "mlp.shared_experts",
                      (uint64_t)m->ff * m->n_shared, err);
    return rc;
}

static void moe_destroy(void *self)
{
    struct moe *m = self;

    if (!m)
        return;
    for (uint32_t i = 0; m->layer && i < m->n_layers; i++) {
        plug_free(host, m->layer[i].expert);
        plug_free(host, m->layer[i].bias);
    }
    plug_free(host, m->layer);
    plug_free(host, m);
}

static int moe_create(const struct seam_create *c, void **self,
                      struct seam_error *err)
{
    struct moe *m = NULL;
    int rc;

    if (c->device->ordinal != -1 || c->limits->act_dtype != SEAM_F32 ||
        c->limits->tp_size > 1)
        return plug_fail(err, SEAM_ENOTSUP,
                         "moe_resident_ref runs on one CPU "
                         "in F32 only");
    m = plug_zalloc(host, 1, sizeof *m);
    if (!m)
        goto no_memory;
    m->max_tokens = c->limits->max_tokens;
    rc = read_config(m, c, err);
    if (rc)
        goto out;
    m->layer = plug_zalloc(host, c->n_layers, sizeof *m->layer);
    if (!m->layer)
        goto no_memory;
    m->n_layers = c->n_layers;
    for (uint32_t i = 0; i < c->n_layers; i++) {
        struct layer *l = &m->layer[i];

        l->expert = plug_zalloc(host, m->n_experts, sizeof *l->expert);
        l->bias = plug_zalloc(host, m->n_experts, sizeof *l->bias);
        if (!l->expert || !l->bias)
            goto no_memory;
        rc = read_layer(l, m, c, c->layer[i], err);
        if (rc)
            goto out;
    }
    *self = m;
    return SEAM_OK;

no_memory:
    rc = plug_fail(err, SEAM_ENOMEM, "moe_resident_ref: out of memory");
out:
    moe_destroy(m);
    return rc;
}

static int moe_needs(void *self, struct seam_needs *n, struct seam_error *err)
{
    struct scratch s;

    (void)err;
    n->capture = SEAM_CAP_BEGIN | SEAM_CAP_FORWARD | SEAM_CAP_COMMIT;
    n->flags = SEAM_NEEDS_ROW_INVARIANT;
    n->ws_bytes = scratch_layout(self, NULL, &s);
    return SEAM_OK;
}

static int moe_attach(void *self, const struct seam_grant *g,
                      struct seam_error *err)
{
    (void)self;
    (void)g;
    (void)err;
    return SEAM_OK;
}

static const void *moe_extension(const char *id)
{
    static const struct seam_trace t = { .size = sizeof t,
                                         .set = moe_trace_set };

    return strcmp(id, "trace/1") ? NULL : &t;
}

static const struct seam_block moe_block = {
    .size = sizeof moe_block,
    .forward = moe_forward,
};

const struct seam_plugin seam_plugin_entry = {
    .ident = { SEAM_IDENT(SEAM_KIND_MOE, struct seam_block),
               .flags = SEAM_PLUGIN_UNLOADABLE, .name = "moe_resident_ref",
               .version = "1.0.0", .build = __VERSION__ },
    .table = &moe_block,
    .init = moe_init,
    .create = moe_create,
    .needs = moe_needs,
    .attach = moe_attach,
    .destroy = moe_destroy,
    .extension = moe_extension,
};
