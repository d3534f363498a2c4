/* cpu_ref - the dense operations of the backend, in double and on one thread:
 * the reference that faster backends are measured by.
 *
 * Everything runs to completion in the call; streams and events are NULL.
 * Stored values are dequantised in pieces on the stack, so that nothing but the
 * sampler needs memory. */
#include <seam/plugin.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plugin_util.h"
#include "sample.h"

static const struct seam_host *host;

enum {
    PIECE = 512,    /* weights dequantised at a time                         */
    ROWS = 64,      /* rows they are then used for                           */
    MAX_STREAMS = 8 /* of the residual                                       */
};

struct backend {
    struct sampler sampler;
};

static int bad(const struct seam_exec *e, const char *what)
{
    return plug_fail(e->err, SEAM_EINVAL, "cpu_ref: %s", what);
}

/* ---- Products ------------------------------------------------------------ */

/* acc[r] += sum_i w[o][col + i] x[r][i], i in [0, n), for n_rows <= ROWS rows
 * of x that lie x_stride bytes apart. */
static void product(const struct seam_tensor *w, uint64_t o, uint64_t col,
                    const void *x, int64_t x_stride, uint64_t n,
                    uint32_t n_rows, double *acc)
{
    double piece[PIECE];

    for (uint64_t i = 0; i < n; i += PIECE) {
        uint64_t len = n - i < PIECE ? n - i : PIECE;

        for (uint64_t j = 0; j < len; j++)
            piece[j] = weights_at(w, o, col + i + j);
        for (uint32_t r = 0; r < n_rows; r++) {
            const float *v = (const float *)((const char *)x + r * x_stride);
            double s = 0;

            for (uint64_t j = 0; j < len; j++)
                s += piece[j] * v[i + j];
            acc[r] += s;
        }
    }
}

static int ops_gemm(void *be, const struct seam_exec *e,
                    const struct seam_gemm *a)
{
    uint64_t m, n, k;
    char why[128];

    (void)be;
    if (a->x.rank != 2 || a->w.rank != 2)
        return bad(e, "gemm of tensors that are no matrices");
    m = (uint64_t)a->x.shape[0];
    k = (uint64_t)a->x.shape[1];
    n = (uint64_t)a->w.shape[0];
    if (!plug_is_rows(&a->x, SEAM_F32, 4, m, k) ||
        !plug_is_rows(&a->y, SEAM_F32, 4, m, n))
        return bad(e, "gemm: x [m, k] and y [m, n] must be F32 and fit w");
    if (weights_check(&a->w, n, k, why, sizeof why))
        return plug_fail(e->err, SEAM_EINVAL, "cpu_ref: gemm: w: %s", why);
    if (a->bias.data && weights_check(&a->bias, n, 0, why, sizeof why))
        return plug_fail(e->err, SEAM_EINVAL, "cpu_ref: gemm: bias: %s", why);
    for (uint64_t r = 0; r < m; r += ROWS) {
        uint32_t rows = m - r < ROWS ? (uint32_t)(m - r) : ROWS;

        for (uint64_t o = 0; o < n; o++) {
            double acc[ROWS] = { 0 }, bias = 0;

            product(&a->w, o, 0, plug_row(&a->x, (int64_t)r), a->x.stride[0], k,
                    rows, acc);
            if (a->bias.data)
                bias = weights_at(&a->bias, 0, o);
            for (uint32_t i = 0; i < rows; i++) {
                float *y = (float *)plug_row(&a->y, (int64_t)r + i) + o;

                *y = (float)((a->accumulate ? *y : 0) + acc[i] + bias);
            }
        }
    }
    return SEAM_OK;
}

/* ---- Rows ---------------------------------------------------------------- */

static int ops_embed(void *be, const struct seam_exec *e, const int32_t *id,
                     uint32_t n, const struct seam_tensor *table,
                     const struct seam_tensor *y)
{
    uint32_t streams = y->rank == 3 ? (uint32_t)y->shape[1] : 1;
    uint64_t d = (uint64_t)y->shape[y->rank - 1], vocab;
    char why[128];

    (void)be;
    if (table->rank != 2 || y->rank < 2 || y->rank > 3 || !y->data ||
        y->dtype != SEAM_F32 || y->shape[0] != n)
        return bad(e, "embed: expected table [vocab, d] and y [n, d] or "
                      "[n, S, d] F32");
    vocab = (uint64_t)table->shape[0];
    if (weights_check(table, vocab, d, why, sizeof why))
        return plug_fail(e->err, SEAM_EINVAL, "cpu_ref: embed: table: %s", why);
    for (uint32_t i = 0; i < n; i++)
        if (id[i] >= 0 && (uint64_t)id[i] >= vocab)
            return plug_fail(e->err, SEAM_EINVAL,
                             "cpu_ref: embed: id %d, "
                             "expected under %llu",
                             id[i], (unsigned long long)vocab);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t s = 0; s < streams; s++) {
            float *out = (float *)((char *)y->data + i * y->stride[0] +
                                   (y->rank == 3 ? s * y->stride[1] : 0));

            for (uint64_t j = 0; j < d; j++)
                out[j] = id[i] < 0
                             ? 0
                             : (float)weights_at(table, (uint64_t)id[i], j);
        }
    return SEAM_OK;
}

static int ops_norm(void *be, const struct seam_exec *e,
                    const struct seam_tensor *x, const struct seam_tensor *w,
                    float eps, const struct seam_tensor *y)
{
    uint64_t n = (uint64_t)x->shape[0], d = (uint64_t)x->shape[1];
    char why[128];

    (void)be;
    if (!plug_is_rows(x, SEAM_F32, 4, n, d) ||
        !plug_is_rows(y, SEAM_F32, 4, n, d))
        return bad(e, "norm: x and y must be [n, d] F32");
    if (weights_check(w, d, 0, why, sizeof why))
        return plug_fail(e->err, SEAM_EINVAL, "cpu_ref: norm: w: %s", why);
    for (uint64_t r = 0; r < n; r++) {
        const float *in = plug_row(x, (int64_t)r);
        float *out = plug_row(y, (int64_t)r);
        double sum = 0, scale;

        for (uint64_t i = 0; i < d; i++)
            sum += (double)in[i] * in[i];
        scale = 1 / sqrt(sum / (double)d + eps);
        for (uint64_t i = 0; i < d; i++)
            out[i] = (float)(in[i] * scale * weights_at(w, 0, i));
    }
    return SEAM_OK;
}

static int ops_glu(void *be, const struct seam_exec *e,
                   const struct seam_tensor *g, const struct seam_tensor *u,
                   float limit, const struct seam_tensor *y)
{
    uint64_t n = (uint64_t)g->shape[0], d = (uint64_t)g->shape[1];
    double top = limit > 0 ? (double)limit : INFINITY;

    (void)be;
    if (!plug_is_rows(g, SEAM_F32, 4, n, d) ||
        !plug_is_rows(u, SEAM_F32, 4, n, d) ||
        !plug_is_rows(y, SEAM_F32, 4, n, d))
        return bad(e, "glu: g, u and y must be [n, d] F32");
    for (uint64_t r = 0; r < n; r++) {
        const float *gr = plug_row(g, (int64_t)r),
                    *ur = plug_row(u, (int64_t)r);
        float *out = plug_row(y, (int64_t)r);

        for (uint64_t i = 0; i < d; i++) {
            /* Comparisons that let a NaN through, which fmin would not. */
            double a = gr[i] > top ? top : gr[i];
            double b = ur[i] > top ? top : ur[i] < -top ? -top : ur[i];

            out[i] = (float)(a / (1 + exp(-a)) * b);
        }
    }
    return SEAM_OK;
}

/* A negative row is padding: zeros. */
static int ops_gather(void *be, const struct seam_exec *e,
                      const struct seam_tensor *x, const int32_t *row,
                      uint32_t n, const struct seam_tensor *y)
{
    uint64_t d = (uint64_t)x->shape[1], elem = weights_elem_bytes(x->dtype);

    (void)be;
    if (!elem || !plug_is_rows(x, x->dtype, elem, (uint64_t)x->shape[0], d) ||
        !plug_is_rows(y, x->dtype, elem, n, d))
        return bad(e, "gather: x [m, d] and y [n, d] must be of one dtype");
    for (uint32_t i = 0; i < n; i++)
        if (row[i] >= x->shape[0])
            return plug_fail(e->err, SEAM_EINVAL,
                             "cpu_ref: gather: row %d, "
                             "expected under %lld",
                             row[i], (long long)x->shape[0]);
    for (uint32_t i = 0; i < n; i++) {
        if (row[i] < 0)
            memset(plug_row(y, i), 0, d * elem);
        else
            memmove(plug_row(y, i), plug_row(x, row[i]), d * elem);
    }
    return SEAM_OK;
}

/* ---- The residual -------------------------------------------------------- */

static double sigmoid(double v)
{
    return 1 / (1 + exp(-v));
}

/* Element d of stream s of row r. */
static float *stream(const struct seam_residual *a, uint64_t r, uint32_t s)
{
    return (float *)((char *)a->streams.data +
                     (int64_t)r * a->streams.stride[0] +
                     s * a->streams.stride[1]);
}

/* X[j] = post[j] y + sum_i comb[i][j] X[i], or X[0] += y. */
static void add(const struct seam_residual *a, uint64_t r, uint64_t d)
{
    uint32_t S = a->n_streams;
    const float *y = plug_row(&a->y, (int64_t)r), *post, *comb;
    double x[MAX_STREAMS];

    if (!a->mix.data) {
        for (uint64_t e = 0; e < d; e++)
            stream(a, r, 0)[e] += y[e];
        return;
    }
    post = plug_row(&a->mix, (int64_t)r);
    comb = post + S;
    for (uint64_t e = 0; e < d; e++) {
        for (uint32_t j = 0; j < S; j++) {
            x[j] = (double)post[j] * y[e];
            for (uint32_t i = 0; i < S; i++)
                x[j] += (double)comb[i * S + j] * stream(a, r, i)[e];
        }
        for (uint32_t j = 0; j < S; j++)
            stream(a, r, j)[e] = (float)x[j];
    }
}

/* Rows of c scaled to sum 1 (almost: see eps), or columns. */
static void normalise(double *c, uint32_t S, bool rows, double eps)
{
    for (uint32_t k = 0; k < S; k++) {
        double sum = eps;

        for (uint32_t i = 0; i < S; i++)
            sum += rows ? c[k * S + i] : c[i * S + k];
        for (uint32_t i = 0; i < S; i++)
            *(rows ? &c[k * S + i] : &c[i * S + k]) /= sum;
    }
}

/* Section 2 of the model spec: m, already divided by the rms of the streams, to
 * pre, post and comb. */
static void hc_map(const struct seam_residual *a, const double *m, double *pre,
                   float *mix)
{
    uint32_t S = a->n_streams;
    const float *base = a->base.data, *scale = a->scale.data;
    double c[MAX_STREAMS * MAX_STREAMS];

    for (uint32_t i = 0; i < S; i++) {
        pre[i] = sigmoid(m[i] * scale[0] + base[i]) + a->eps_mix;
        mix[i] = (float)(2 * sigmoid(m[S + i] * scale[1] + base[S + i]));
    }
    for (uint32_t i = 0; i < S; i++) {
        const double *mi = m + 2 * S + i * S;
        const float *bi = base + 2 * S + i * S;
        double top = -INFINITY, sum = 0;

        for (uint32_t j = 0; j < S; j++) {
            c[i * S + j] = mi[j] * scale[2] + bi[j];
            top = fmax(top, c[i * S + j]);
        }
        for (uint32_t j = 0; j < S; j++)
            sum += c[i * S + j] = exp(c[i * S + j] - top);
        for (uint32_t j = 0; j < S; j++)
            c[i * S + j] = c[i * S + j] / sum + a->eps_mix;
    }
    normalise(c, S, false, a->eps_mix);
    for (uint32_t t = 1; t < a->sinkhorn; t++) {
        normalise(c, S, true, a->eps_mix);
        normalise(c, S, false, a->eps_mix);
    }
    for (uint32_t i = 0; i < S * S; i++)
        mix[S + i] = (float)c[i];
}

/* x = rms(sum_i pre[i] X[i]) * w; without w, x = the sum. */
static void read_row(const struct seam_residual *a, uint64_t r, uint64_t d,
                     const double *pre)
{
    float *x = plug_row(&a->x, (int64_t)r);
    double sum = 0, scale;

    for (int pass = 0; pass < 2; pass++) {
        scale = pass && a->w.data ? 1 / sqrt(sum / (double)d + a->eps_norm) : 1;
        for (uint64_t e = 0; e < d; e++) {
            double h = 0;

            for (uint32_t i = 0; i < a->n_streams; i++)
                h += pre[i] * stream(a, r, i)[e];
            sum += h * h;
            if (pass)
                x[e] = (float)(h * scale *
                               (a->w.data ? weights_at(&a->w, 0, e) : 1));
        }
    }
}

static int residual_check(const struct seam_exec *e,
                          const struct seam_residual *a)
{
    uint32_t S = a->n_streams;
    const struct seam_tensor *t = &a->streams;
    uint64_t n, d;
    char why[128];

    if (a->partial)
        return plug_fail(e->err, SEAM_ENOTSUP,
                         "cpu_ref: partial residual, but "
                         "this backend makes no groups");
    if (S < 1 || S > MAX_STREAMS)
        return plug_fail(e->err, SEAM_ENOTSUP,
                         "cpu_ref: %u residual streams, "
                         "expected 1 to %d",
                         S, MAX_STREAMS);
    if (t->rank != 3 || t->shape[1] != S || t->dtype != SEAM_F32 || !t->data)
        return bad(e, "residual: streams must be [n, S, d] F32");
    n = (uint64_t)t->shape[0];
    d = (uint64_t)t->shape[2];
    if ((a->y.data && !plug_is_rows(&a->y, SEAM_F32, 4, n, d)) ||
        (a->x.data && !plug_is_rows(&a->x, SEAM_F32, 4, n, d)) ||
        (a->mean.data && !plug_is_rows(&a->mean, SEAM_F32, 4, n, d)))
        return bad(e, "residual: y, x and mean must be [n, d] F32");
    if (a->mix.data && !plug_is_rows(&a->mix, SEAM_F32, 4, n, S + S * S))
        return bad(e, "residual: mix must be [n, S + S * S] F32");
    if (a->w.data && weights_check(&a->w, d, 0, why, sizeof why))
        return plug_fail(e->err, SEAM_EINVAL, "cpu_ref: residual: w: %s", why);
    if (!a->fn.data || !a->x.data)
        return SEAM_OK;
    if (weights_check(&a->fn, 2 * S + S * S, S * d, why, sizeof why))
        return plug_fail(e->err, SEAM_EINVAL, "cpu_ref: residual: fn: %s", why);
    if (!a->mix.data || a->base.dtype != SEAM_F32 ||
        a->scale.dtype != SEAM_F32 ||
        weights_check(&a->base, 2 * S + S * S, 0, why, sizeof why) ||
        weights_check(&a->scale, 3, 0, why, sizeof why))
        return bad(e,
                   "residual: fn wants mix, base [2 S + S * S] F32 and scale "
                   "[3] F32");
    return SEAM_OK;
}

static int ops_residual(void *be, const struct seam_exec *e,
                        const struct seam_residual *a)
{
    enum { MAP = 2 * MAX_STREAMS + MAX_STREAMS * MAX_STREAMS };
    uint32_t S = a->n_streams, n_map = 2 * S + S * S;
    uint64_t n, d;
    int rc = residual_check(e, a);

    (void)be;
    if (rc)
        return rc;
    n = (uint64_t)a->streams.shape[0];
    d = (uint64_t)a->streams.shape[2];
    for (uint64_t r = 0; a->y.data && r < n; r++)
        add(a, r, d);
    for (uint64_t r = 0; a->mean.data && r < n; r++) {
        float *mean = plug_row(&a->mean, (int64_t)r);

        for (uint64_t i = 0; i < d; i++) {
            double sum = 0;

            for (uint32_t s = 0; s < S; s++)
                sum += stream(a, r, s)[i];
            mean[i] = (float)(sum / S);
        }
    }
    for (uint64_t r0 = 0; a->x.data && r0 < n; r0 += ROWS) {
        uint32_t rows = n - r0 < ROWS ? (uint32_t)(n - r0) : ROWS;
        double m[MAP][ROWS], pre[MAX_STREAMS], column[MAP];

        memset(m, 0, sizeof m);
        for (uint32_t o = 0; a->fn.data && o < n_map; o++)
            for (uint32_t s = 0; s < S; s++)
                product(&a->fn, o, s * d, stream(a, r0, s),
                        a->streams.stride[0], d, rows, m[o]);
        for (uint32_t r = 0; r < rows; r++) {
            double sum = 0;

            for (uint32_t s = 0; s < S; s++) {
                pre[s] = 1.0 / S;
                for (uint64_t i = 0; i < d; i++)
                    sum += (double)stream(a, r0 + r, s)[i] *
                           stream(a, r0 + r, s)[i];
            }
            if (a->fn.data) {
                double rms = sqrt(sum / (double)(S * d) + a->eps_norm);

                for (uint32_t o = 0; o < n_map; o++)
                    column[o] = m[o][r] / rms;
                hc_map(a, column, pre, plug_row(&a->mix, (int64_t)(r0 + r)));
            }
            read_row(a, r0 + r, d, pre);
        }
    }
    return SEAM_OK;
}

/* ---- Sampling ------------------------------------------------------------ */

static int ops_sample(void *be, const struct seam_exec *e,
                      const struct seam_sample *a)
{
    struct backend *b = be;

    return sampler_sample(&b->sampler, a, e->err);
}

static int ops_verify(void *be, const struct seam_exec *e,
                      const struct seam_verify *a)
{
    struct backend *b = be;

    return sampler_verify(&b->sampler, a, e->err);
}

static const struct seam_ops ops = {
    .size = sizeof ops,
    .gemm = ops_gemm,
    .embed = ops_embed,
    .residual = ops_residual,
    .norm = ops_norm,
    .glu = ops_glu,
    .gather = ops_gather,
    .sample = ops_sample,
    .verify = ops_verify,
};

/* ---- Device -------------------------------------------------------------- */

static int be_device(void *self, struct seam_device *out,
                     struct seam_error *err)
{
    struct seam_device d = {
        .size = out->size,
        .ordinal = -1,
        .arch = "x86-64",
        .mem_bytes =
            (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE),
        .units = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN),
        .wave = 1,
    };

    (void)self;
    (void)err;
    memcpy(out, &d, out->size < sizeof d ? out->size : sizeof d);
    return SEAM_OK;
}

static int be_alloc(void *self, uint32_t mem, uint64_t bytes, uint64_t align,
                    void **out, struct seam_error *err)
{
    void *p = NULL;

    (void)self;
    (void)mem; /* one kind of memory */
    if (posix_memalign(&p, align < 64 ? 64 : align, bytes ? bytes : 1))
        return plug_fail(err, SEAM_ENOMEM, "cpu_ref: no %llu bytes left",
                         (unsigned long long)bytes);
    *out = p;
    return SEAM_OK;
}

static void be_free(void *self, uint32_t mem, void *p)
{
    (void)self;
    (void)mem;
    free(p);
}

static int be_stream_new(void *self, void **stream_out, struct seam_error *err)
{
    (void)self;
    (void)err;
    *stream_out = NULL;
    return SEAM_OK;
}

static void be_stream_free(void *self, void *s)
{
    (void)self;
    (void)s;
}

static int be_event_new(void *self, void **event, struct seam_error *err)
{
    (void)self;
    (void)err;
    *event = NULL;
    return SEAM_OK;
}

static void be_event_free(void *self, void *event)
{
    (void)self;
    (void)event;
}

static int be_stream_wait(void *self, void *s, struct seam_error *err)
{
    (void)self;
    (void)s;
    (void)err;
    return SEAM_OK;
}

static int be_copy(void *self, void *s, void *dst, const void *src,
                   uint64_t bytes, struct seam_error *err)
{
    (void)self;
    (void)s;
    (void)err;
    if (bytes)
        memmove(dst, src, bytes);
    return SEAM_OK;
}

static int be_fill(void *self, void *s, void *dst, int32_t byte, uint64_t bytes,
                   struct seam_error *err)
{
    (void)self;
    (void)s;
    (void)err;
    if (bytes)
        memset(dst, byte, bytes);
    return SEAM_OK;
}

static int be_event_record(void *self, void *event, void *s,
                           struct seam_error *err)
{
    (void)self;
    (void)event;
    (void)s;
    (void)err;
    return SEAM_OK;
}

static int be_event_join(void *self, void *event, void *s,
                         struct seam_error *err)
{
    return be_event_record(self, event, s, err);
}

static int be_event_done(void *self, void *event, struct seam_error *err)
{
    (void)self;
    (void)event;
    (void)err;
    return 1;
}

/* ---- The instance -------------------------------------------------------- */

static int be_init(const struct seam_host *h, struct seam_error *err)
{
    (void)err;
    host = h;
    return SEAM_OK;
}

static void be_destroy(void *self)
{
    struct backend *b = self;

    if (!b)
        return;
    plug_free(host, b->sampler.p);
    plug_free(host, b->sampler.order);
    plug_free(host, b);
}

static int be_create(const struct seam_create *c, void **self,
                     struct seam_error *err)
{
    const struct seam_cfg *mc = host->model_cfg(host->ctx, c->model);
    struct backend *b;
    uint32_t vocab = 0;
    int rc;

    if (c->device->ordinal != -1)
        return plug_fail(err, SEAM_ENOENT, "cpu_ref: device %d, expected -1",
                         c->device->ordinal);
    if (c->limits->act_dtype != SEAM_F32)
        return plug_fail(err, SEAM_ENOTSUP, "cpu_ref computes in F32 only");
    rc =
        plug_model_u32(host, mc, "vocab_size", NULL, 1, INT32_MAX, &vocab, err);
    if (rc)
        return rc;
    b = plug_zalloc(host, 1, sizeof *b);
    if (b) {
        b->sampler.vocab = vocab;
        b->sampler.p = plug_zalloc(host, vocab, sizeof *b->sampler.p);
        b->sampler.order = plug_zalloc(host, vocab, sizeof *b->sampler.order);
    }
    if (!b || !b->sampler.p || !b->sampler.order) {
        be_destroy(b);
        return plug_fail(err, SEAM_ENOMEM, "cpu_ref: out of memory");
    }
    *self = b;
    return SEAM_OK;
}

static const struct seam_backend backend = {
    .size = sizeof backend,
    .ops = &ops,
    .device = be_device,
    .alloc = be_alloc,
    .free = be_free,
    .stream_new = be_stream_new,
    .stream_free = be_stream_free,
    .event_new = be_event_new,
    .event_free = be_event_free,
    .stream_wait = be_stream_wait,
    .copy = be_copy,
    .fill = be_fill,
    .event_record = be_event_record,
    .event_join = be_event_join,
    .event_done = be_event_done,
};

const struct seam_plugin seam_plugin_entry = {
    .ident = { SEAM_IDENT(SEAM_KIND_BACKEND, struct seam_backend),
               .name = "cpu_ref", .version = "1.0.0", .build = __VERSION__ },
    .table = &backend,
    .init = be_init,
    .create = be_create,
    .destroy = be_destroy,
};
