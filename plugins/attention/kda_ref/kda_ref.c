/* kda_ref - Kimi delta attention by its recurrence, docs/spec/glm5_next.md
 * section 3: the reference that faster plugins are measured by.
 *
 * Arithmetic is in double; input, output and state are F32.  Each token is
 * computed from the state as it is kept, kda_state.h, so that the result does
 * not depend on how a prompt is cut into steps, and appended to its log. */
#include <seam/plugin.h>

#include <math.h>
#include <string.h>

#include "kda_state.h"
#include "plugin_util.h"

static const struct seam_host *host;

enum { Q = 0, K = 1, V = 2 }; /* channels of the convolution, in this order  */

struct layer {
    struct seam_tensor proj[3];  /* [H * D, d]  q, k, v                       */
    struct seam_tensor b;        /* [H, d]                                    */
    struct seam_tensor f_a, f_b; /* [D, d], [H * D, D]                        */
    struct seam_tensor g_a, g_b; /* the same                                  */
    struct seam_tensor o;        /* [d, H * D]                                */
    double *conv;                /* [3 * H * D][n_conv]                       */
    double *A;                   /* [H]         exp(A_log)                    */
    double *dt_bias;             /* [H * D]                                   */
    double *o_norm;              /* [D]                                       */
};

struct kda {
    uint32_t n_layers, max_tokens;
    uint32_t d, heads, dim, n_conv; /* dim: of a head, for keys and values   */
    struct kda_dims dims;           /* the same, for kda_state.h             */
    double lower_bound, eps;
    struct layer *layer;
    struct seam_grant g;
};

/* What one call keeps in ws; T is max_tokens, D heads * dim. */
struct scratch {
    double *x;          /* [T][d]                                            */
    double *u;          /* [T][3 D]    convolution inputs q | k | v          */
    double *b;          /* [T][heads]                                        */
    double *low;        /* [T][dim]    f_a or g_a                            */
    double *f, *go;     /* [T][D]                                            */
    double *o;          /* [T][D]      gated output                          */
    double *out;        /* [T][d]                                            */
    double *row;        /* [max(d, D)] a weight row                          */
    double *c;          /* [3 D]       convolved values of one token         */
    double *decay, *dl; /* [dim]       of one head                           */
    double *S;          /* [dim][dim]  the same                              */
};

static uint64_t scratch_layout(const struct kda *m, void *ws, struct scratch *s)
{
    struct plug_arena a = { .p = ws };
    uint64_t t = m->max_tokens, w = (uint64_t)m->heads * m->dim;

    s->x = plug_take(&a, t * m->d, sizeof *s->x);
    s->u = plug_take(&a, t * 3 * w, sizeof *s->u);
    s->b = plug_take(&a, t * m->heads, sizeof *s->b);
    s->low = plug_take(&a, t * m->dim, sizeof *s->low);
    s->f = plug_take(&a, t * w, sizeof *s->f);
    s->go = plug_take(&a, t * w, sizeof *s->go);
    s->o = plug_take(&a, t * w, sizeof *s->o);
    s->out = plug_take(&a, t * m->d, sizeof *s->out);
    s->row = plug_take(&a, m->d > w ? m->d : w, sizeof *s->row);
    s->c = plug_take(&a, 3 * w, sizeof *s->c);
    s->decay = plug_take(&a, m->dim, sizeof *s->decay);
    s->dl = plug_take(&a, m->dim, sizeof *s->dl);
    s->S = plug_take(&a, (uint64_t)m->dim * m->dim, sizeof *s->S);
    return a.used;
}

/* ---- State --------------------------------------------------------------- */

/* Fold the first chunk of a log of n entries into the matrices. */
static void fold(const struct kda *m, const struct kda_state *state, uint32_t n,
                 double *S)
{
    uint32_t dim = m->dim;

    for (uint32_t h = 0; h < m->heads; h++) {
        kda_state_read(&m->dims, state, h, m->dims.chunk, S);
        for (uint32_t d = 0; d < dim; d++)
            for (uint32_t e = 0; e < dim; e++)
                state->S[(uint64_t)h * dim * dim + kda_at(dim, d, e)] =
                    (float)S[d * dim + e];
        kda_state_drop(&m->dims, state, h, n);
    }
    *state->turn = kda_turn(&m->dims, *state->turn + m->dims.chunk);
}

/* ---- The formulas -------------------------------------------------------- */

static double sigmoid(double v)
{
    return 1 / (1 + exp(-v));
}

/* 3.2: c = silu(conv) of the inputs u of entry n and those before, which they
 * are kept beside. */
static void convolve(const struct kda *m, const struct layer *l,
                     const struct kda_state *state, uint32_t n, const double *u,
                     double *c)
{
    uint64_t all = (uint64_t)3 * m->heads * m->dim;
    uint32_t past = m->n_conv - 1;

    for (uint64_t ch = 0; ch < all; ch++) {
        const double *w = l->conv + ch * m->n_conv;
        double sum = w[past] * (float)u[ch];

        for (uint32_t j = 0; j < past; j++)
            sum += w[j] * kda_window(&m->dims, state, *state->turn,
                                     (int32_t)(n + j - past))[ch];
        c[ch] = sum * sigmoid(sum);
    }
    for (uint64_t ch = 0; past && ch < all; ch++)
        kda_window(&m->dims, state, *state->turn, (int32_t)n)[ch] =
            (float)u[ch];
}

/* 3.3: v / sqrt(sum v^2 + 1e-6) * scale. */
static void unit(double *v, uint32_t n, double scale)
{
    double f = scale / sqrt(weights_dot(v, v, n) + 1e-6);

    for (uint32_t i = 0; i < n; i++)
        v[i] *= f;
}

/* 3.4 for one head and token: S [dim key][dim value]. */
static void recur(uint32_t dim, double *S, const double *q, const double *k,
                  const double *v, const double *decay, double beta, double *dl,
                  double *o)
{
    memset(dl, 0, dim * sizeof *dl);
    memset(o, 0, dim * sizeof *o);
    for (uint32_t d = 0; d < dim; d++) /* p = (decay S)^T k */
        for (uint32_t e = 0; e < dim; e++)
            dl[e] += decay[d] * S[d * dim + e] * k[d];
    for (uint32_t e = 0; e < dim; e++)
        dl[e] = beta * (v[e] - dl[e]);
    for (uint32_t d = 0; d < dim; d++)
        for (uint32_t e = 0; e < dim; e++) {
            S[d * dim + e] = decay[d] * S[d * dim + e] + k[d] * dl[e];
            o[e] += S[d * dim + e] * q[d];
        }
}

/* 3.5: y = rms(o) * w . sigmoid(go). */
static void gate(const struct kda *m, const struct layer *l, double *o,
                 const double *go)
{
    double sum = weights_dot(o, o, m->dim);
    double scale = 1 / sqrt(sum / m->dim + m->eps);

    for (uint32_t e = 0; e < m->dim; e++)
        o[e] *= scale * l->o_norm[e] * sigmoid(go[e]);
}

/* What the token did to head h, as entry n of the log. */
static void append(const struct kda *m, const struct kda_state *state,
                   uint32_t h, uint32_t n, const double *k, const double *decay,
                   const double *dl)
{
    float *key = kda_entry(&m->dims, state->key, h, n);
    float *delta = kda_entry(&m->dims, state->delta, h, n);
    float *all = kda_decay(&m->dims, state, *state->turn, h, n);
    const float *before =
        n % m->dims.chunk ? kda_decay(&m->dims, state, *state->turn, h, n - 1)
                          : NULL;

    for (uint32_t d = 0; d < m->dim; d++) {
        all[d] = (float)((before ? before[d] : 1.0) * decay[d]);
        key[d] = (float)(k[d] / all[d]);
        delta[d] = (float)dl[d];
    }
}

/* Token t of the step, with n entries in the log, to which it appends its own. */
static void token(const struct kda *m, const struct layer *l,
                  const struct kda_state *state, uint32_t n, uint64_t t,
                  struct scratch *s)
{
    uint32_t dim = m->dim;
    uint64_t w = (uint64_t)m->heads * dim;

    convolve(m, l, state, n, s->u + t * 3 * w, s->c);
    for (uint32_t h = 0; h < m->heads; h++) {
        uint64_t at = (uint64_t)h * dim;
        double *q = s->c + Q * w + at, *k = s->c + K * w + at;
        double *v = s->c + V * w + at, *o = s->o + t * w + at;

        unit(q, dim, 1 / sqrt(dim));
        unit(k, dim, 1);
        for (uint32_t d = 0; d < dim; d++) {
            double f = s->f[t * w + at + d] + l->dt_bias[at + d];

            s->decay[d] = exp(m->lower_bound * sigmoid(l->A[h] * f));
        }
        kda_state_read(&m->dims, state, h, n, s->S);
        recur(dim, s->S, q, k, v, s->decay, sigmoid(s->b[t * m->heads + h]),
              s->dl, o);
        append(m, state, h, n, k, s->decay, s->dl);
        gate(m, l, o, s->go + t * w + at);
    }
}

/* ---- The block ----------------------------------------------------------- */

/* One sequence of the step: tokens [t0, t1).  One that can be rolled back folds
 * nothing of its own. */
static void sequence(const struct kda *m, const struct layer *l, uint32_t layer,
                     const struct seam_step *step, uint32_t i,
                     struct scratch *s)
{
    struct kda_state state =
        kda_state_of(&m->dims, &m->g, layer, step->state_row[i]);
    int32_t chunk = (int32_t)m->dims.chunk, n = *state.n + step->n_accept[i];
    uint32_t width = 0;
    bool last;

    for (int32_t t = step->q_start[i]; t < step->q_start[i + 1]; t++)
        width += step->slot[t] >= 0;
    if (!width)
        return;
    last = width > 1 + m->dims.max_draft;
    for (; n >= chunk; n -= chunk)
        fold(m, &state, (uint32_t)n, s->S);
    *state.n = n;
    for (int32_t t = step->q_start[i]; t < step->q_start[i + 1]; t++) {
        if (step->slot[t] < 0)
            continue;
        if (last && n == chunk) {
            fold(m, &state, (uint32_t)n, s->S);
            n = 0;
        }
        token(m, l, &state, (uint32_t)n++, (uint64_t)t, s);
    }
    if (last)
        *state.n = n - (int32_t)width;
}

static int step_check(const struct kda *m, const struct seam_exec *e,
                      const struct seam_step *s, uint32_t layer)
{
    struct kda_state state;
    int64_t n;

    for (uint32_t i = 0; i < s->n_seqs; i++) {
        if (s->q_start[i] < 0 || s->q_start[i + 1] < s->q_start[i] ||
            (uint32_t)s->q_start[i + 1] > s->n_tokens)
            return plug_fail(e->err, SEAM_EINVAL,
                             "kda_ref: sequence %u has "
                             "tokens [%d, %d) of %u",
                             i, s->q_start[i], s->q_start[i + 1], s->n_tokens);
        if (s->n_accept[i] < 0 || s->state_row[i] >= (int64_t)m->g.n_state_rows)
            return plug_fail(e->err, SEAM_EINVAL,
                             "kda_ref: sequence %u in row "
                             "%d of %u with n_accept %d",
                             i, s->state_row[i], m->g.n_state_rows,
                             s->n_accept[i]);
        if (s->state_row[i] < 0)
            continue;
        state = kda_state_of(&m->dims, &m->g, layer, s->state_row[i]);
        n = (int64_t)*state.n + s->n_accept[i];
        if (n < 0 || n > kda_log_rows(&m->dims))
            return plug_fail(
                e->err, SEAM_EINVAL,
                "kda_ref: sequence %u: n_accept %d does not fit what "
                "its last step left in row %d",
                i, s->n_accept[i], s->state_row[i]);
    }
    return SEAM_OK;
}

static int kda_forward(void *self, const struct seam_exec *e,
                       const struct seam_block_args *b)
{
    struct kda *m = self;
    const struct seam_step *step = b->step;
    uint32_t n = step->n_tokens;
    uint64_t w = (uint64_t)m->heads * m->dim;
    const struct layer *l;
    struct scratch s;
    int rc;

    if (b->layer >= m->n_layers || n > m->max_tokens ||
        !plug_is_rows(&b->x, SEAM_F32, 4, n, m->d) ||
        !plug_is_rows(&b->y, SEAM_F32, 4, n, m->d))
        return plug_fail(e->err, SEAM_EINVAL,
                         "kda_ref: layer %u with %u rows, "
                         "expected under %u with [rows <= %u, %u] F32",
                         b->layer, n, m->n_layers, m->max_tokens, m->d);
    if (scratch_layout(m, e->ws, &s) > e->ws_bytes)
        return plug_fail(e->err, SEAM_EINVAL, "kda_ref: ws is %llu bytes",
                         (unsigned long long)e->ws_bytes);
    rc = step_check(m, e, step, b->layer);
    if (rc)
        return rc;
    l = &m->layer[b->layer];
    for (uint32_t r = 0; r < n; r++) {
        const float *x = plug_row(&b->x, r);

        for (uint32_t i = 0; i < m->d; i++)
            s.x[(uint64_t)r * m->d + i] = step->slot[r] < 0 ? 0 : x[i];
    }
    for (uint32_t p = Q; p <= V; p++)
        weights_linear(&l->proj[p], s.x, m->d, n, s.u + p * w, 3 * w, s.row);
    weights_linear(&l->b, s.x, m->d, n, s.b, m->heads, s.row);
    weights_linear(&l->f_a, s.x, m->d, n, s.low, m->dim, s.row);
    weights_linear(&l->f_b, s.low, m->dim, n, s.f, w, s.row);
    weights_linear(&l->g_a, s.x, m->d, n, s.low, m->dim, s.row);
    weights_linear(&l->g_b, s.low, m->dim, n, s.go, w, s.row);
    memset(s.o, 0, n * w * sizeof *s.o);
    for (uint32_t i = 0; i < step->n_seqs; i++)
        if (step->state_row[i] >= 0)
            sequence(m, l, b->layer, step, i, &s);
    weights_linear(&l->o, s.o, w, n, s.out, m->d, s.row);
    for (uint32_t r = 0; r < n; r++) {
        float *y = plug_row(&b->y, r);

        for (uint32_t i = 0; i < m->d; i++)
            y[i] = (float)s.out[(uint64_t)r * m->d + i];
    }
    return SEAM_OK;
}

static int kda_commit(void *self, const struct seam_exec *e, uint32_t n,
                      const int32_t *row, const int32_t *n_accept)
{
    struct kda *m = self;

    (void)e;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t l = 0; row[i] >= 0 && l < m->n_layers; l++) {
            struct kda_state state = kda_state_of(&m->dims, &m->g, l, row[i]);

            kda_state_commit(&state, n_accept[i]);
        }
    return SEAM_OK;
}

/* ---- The instance -------------------------------------------------------- */

static int kda_init(const struct seam_host *h, struct seam_error *err)
{
    (void)err;
    host = h;
    return SEAM_OK;
}

static int read_config(struct kda *m, const struct seam_create *c,
                       struct seam_error *err)
{
    const struct seam_cfg *mc = host->model_cfg(host->ctx, c->model);
    const struct {
        const char *key, *flat;
        uint32_t lo, hi, *out;
    } key[] = {
        { "hidden_size", NULL, 1, 1 << 20, &m->d },
        { "linear_attn_config.num_heads", "linear_num_heads", 1, 1 << 12,
          &m->heads },
        { "linear_attn_config.head_dim", "linear_head_dim", 1, 1 << 12,
          &m->dim },
        { "linear_attn_config.short_conv_kernel_size", "linear_conv_kernel_dim",
          1, 64, &m->n_conv },
    };
    int rc = SEAM_OK;

    for (uint32_t i = 0; !rc && i < sizeof key / sizeof *key; i++)
        rc = plug_model_u32(host, mc, key[i].key, key[i].flat, key[i].lo,
                            key[i].hi, key[i].out, err);
    if (!rc)
        rc = plug_model_f64(host, mc, "linear_attn_config.gate_lower_bound",
                            "linear_lower_bound", &m->lower_bound, err);
    m->dims.chunk = kda_chunk(m->lower_bound);
    if (!rc && !m->dims.chunk)
        rc = plug_fail(err, SEAM_ENOTSUP,
                       "kda_ref: linear_attn_config.gate_lower_bound is %g, "
                       "expected at least -%d",
                       m->lower_bound, KDA_DEPTH);
    if (!rc)
        rc = plug_model_f64(host, mc, "rms_norm_eps", NULL, &m->eps, err);
    return rc;
}

/* The weight `name` as doubles in memory of the instance's own. */
static int read_values(double **out, const struct seam_create *c,
                       uint32_t layer, const char *name, uint64_t n_out,
                       uint64_t n_in, struct seam_error *err)
{
    struct seam_tensor t;
    int rc = plug_weight(host, c->model, layer, name, n_out, n_in, &t, err);

    if (rc)
        return rc;
    *out = plug_zalloc(host, n_out * (n_in ? n_in : 1), sizeof **out);
    if (!*out)
        return plug_fail(err, SEAM_ENOMEM, "kda_ref: out of memory");
    if (!n_in)
        weights_row(&t, 0, *out);
    for (uint64_t r = 0; n_in && r < n_out; r++)
        weights_row(&t, r, *out + r * n_in);
    return SEAM_OK;
}

static int read_conv(struct layer *l, const struct kda *m,
                     const struct seam_create *c, uint32_t layer,
                     struct seam_error *err)
{
    static const char *const name[3] = { "self_attn.q_conv1d.weight",
                                         "self_attn.k_conv1d.weight",
                                         "self_attn.v_conv1d.weight" };
    uint64_t w = (uint64_t)m->heads * m->dim;

    l->conv = plug_zalloc(host, 3 * w * m->n_conv, sizeof *l->conv);
    if (!l->conv)
        return plug_fail(err, SEAM_ENOMEM, "kda_ref: out of memory");
    for (uint32_t p = Q; p <= V; p++) {
        struct seam_tensor t;
        int rc =
            plug_weight(host, c->model, layer, name[p], w, m->n_conv, &t, err);

        if (rc)
            return rc;
        for (uint64_t ch = 0; ch < w; ch++)
            weights_row(&t, ch, l->conv + (p * w + ch) * m->n_conv);
    }
    return SEAM_OK;
}

static int read_layer(struct layer *l, const struct kda *m,
                      const struct seam_create *c, uint32_t layer,
                      struct seam_error *err)
{
    uint64_t w = (uint64_t)m->heads * m->dim;
    const struct {
        const char *name;
        uint64_t n_out, n_in;
        struct seam_tensor *out;
    } linear[] = {
        { "self_attn.q_proj", w, m->d, &l->proj[Q] },
        { "self_attn.k_proj", w, m->d, &l->proj[K] },
        { "self_attn.v_proj", w, m->d, &l->proj[V] },
        { "self_attn.b_proj", m->heads, m->d, &l->b },
        { "self_attn.f_a_proj", m->dim, m->d, &l->f_a },
        { "self_attn.f_b_proj", w, m->dim, &l->f_b },
        { "self_attn.g_a_proj", m->dim, m->d, &l->g_a },
        { "self_attn.g_b_proj", w, m->dim, &l->g_b },
        { "self_attn.o_proj", m->d, w, &l->o },
    };
    int rc = SEAM_OK;

    for (uint32_t i = 0; !rc && i < sizeof linear / sizeof *linear; i++)
        rc = plug_weight(host, c->model, layer, linear[i].name, linear[i].n_out,
                         linear[i].n_in, linear[i].out, err);
    if (!rc)
        rc = read_conv(l, m, c, layer, err);
    if (!rc)
        rc = read_values(&l->A, c, layer, "self_attn.A_log", m->heads, 0, err);
    for (uint32_t h = 0; !rc && h < m->heads; h++)
        l->A[h] = exp(l->A[h]);
    if (!rc)
        rc = read_values(&l->dt_bias, c, layer, "self_attn.dt_bias", w, 0, err);
    if (!rc)
        rc = read_values(&l->o_norm, c, layer, "self_attn.o_norm.weight",
                         m->dim, 0, err);
    return rc;
}

static void kda_destroy(void *self)
{
    struct kda *m = self;

    if (!m)
        return;
    for (uint32_t i = 0; m->layer && i < m->n_layers; i++) {
        plug_free(host, m->layer[i].conv);
        plug_free(host, m->layer[i].A);
        plug_free(host, m->layer[i].dt_bias);
        plug_free(host, m->layer[i].o_norm);
    }
    plug_free(host, m->layer);
    plug_free(host, m);
}

static int kda_create(const struct seam_create *c, void **self,
                      struct seam_error *err)
{
    struct kda *m;
    int rc;

    if (c->device->ordinal != -1 || c->limits->act_dtype != SEAM_F32 ||
        c->limits->tp_size > 1)
        return plug_fail(err, SEAM_ENOTSUP,
                         "kda_ref runs on one CPU in F32 "
                         "only");
    m = plug_zalloc(host, 1, sizeof *m);
    if (!m)
        goto no_memory;
    m->max_tokens = c->limits->max_tokens;
    rc = read_config(m, c, err);
    if (rc)
        goto out;
    m->dims.heads = m->heads;
    m->dims.dim = m->dim;
    m->dims.n_conv = m->n_conv;
    m->dims.max_draft = c->limits->max_draft;
    m->layer = plug_zalloc(host, c->n_layers, sizeof *m->layer);
    if (!m->layer)
        goto no_memory;
    m->n_layers = c->n_layers;
    for (uint32_t i = 0; i < c->n_layers; i++) {
        rc = read_layer(&m->layer[i], m, c, c->layer[i], err);
        if (rc)
            goto out;
    }
    *self = m;
    return SEAM_OK;

no_memory:
    rc = plug_fail(err, SEAM_ENOMEM, "kda_ref: out of memory");
out:
    kda_destroy(m);
    return rc;
}

static int kda_needs(void *self, struct seam_needs *n, struct seam_error *err)
{
    struct kda *m = self;
    struct kda_state state;
    struct scratch s;

    (void)err;
    n->capture = SEAM_CAP_BEGIN | SEAM_CAP_FORWARD | SEAM_CAP_COMMIT;
    n->flags = SEAM_NEEDS_ROW_INVARIANT;
    n->ws_bytes = scratch_layout(m, NULL, &s);
    n->layout_id = SEAM_LAYOUT_KDA;
    n->state_bytes = kda_state_layout(&m->dims, NULL, &state);
    n->state_copies = 1;
    return SEAM_OK;
}

static int kda_attach(void *self, const struct seam_grant *g,
                      struct seam_error *err)
{
    struct kda *m = self;

    (void)err;
    m->g = *g;
    return SEAM_OK;
}

static const struct seam_block kda_block = {
    .size = sizeof kda_block,
    .forward = kda_forward,
    .commit = kda_commit,
};

const struct seam_plugin seam_plugin_entry = {
    .ident = { SEAM_IDENT(SEAM_KIND_ATTENTION, struct seam_block),
               .flags = SEAM_PLUGIN_UNLOADABLE, .name = "kda_ref",
               .version = "1.0.0", .build = __VERSION__ },
    .table = &kda_block,
    .init = kda_init,
    .create = kda_create,
    .needs = kda_needs,
    .attach = kda_attach,
    .destroy = kda_destroy,
};
