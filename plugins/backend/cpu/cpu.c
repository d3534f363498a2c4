/* cpu - the dense operations of the backend on the host's processors.
 *
 * Everything runs to completion in the call, spread over the host's pool;
 * streams and events are NULL.  Scratch is the instance's own, made in create,
 * because exec.ws belongs to whichever plugin is being served. */
#include <seam/plugin.h>

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "kern.h"
#include "sample.h"

static const struct seam_host *host;

enum {
    SEGMENT = 1024,  /* most columns of a stream that are one task        */
    GROUP = 6,       /* rows that share a read of the hyper-connection map */
    PARTS = 1 << 18, /* floats of partial sums                            */
    FEW_ROWS = 8     /* rows of cheap work that are one task              */
};

struct backend {
    const struct kern *k;
    uint32_t n_workers;
    char *scratch;           /* [n_workers] of KERN_SCRATCH bytes             */
    float *parts;            /* [PARTS] see struct residual                   */
    struct sampler *sampler; /* [n_workers]                                   */
};

static int bad(const struct seam_exec *e, const char *what)
{
    return plug_fail(e->err, SEAM_EINVAL, "cpu: %s", what);
}

static void parallel(uint32_t n, seam_task *fn, void *arg)
{
    if (n)
        host->parallel_for(host->ctx, n, fn, arg);
}

/* ---- Products ------------------------------------------------------------ */

static int ops_gemm(void *be, const struct seam_exec *e,
                    const struct seam_gemm *a)
{
    struct backend *b = be;
    struct kern_mat w;
    struct kern_job job;
    uint64_t m, n, k;
    bool plain_bias = false;
    char why[160];
    int rc;

    if (a->x.rank != 2 || a->w.rank != 2)
        return bad(e, "gemm of tensors that are no matrices");
    m = (uint64_t)a->x.shape[0];
    k = (uint64_t)a->x.shape[1];
    n = (uint64_t)a->w.shape[0];
    if (!plug_is_rows(&a->x, SEAM_F32, 4, m, k) ||
        !plug_is_rows(&a->y, SEAM_F32, 4, m, n) || m > UINT32_MAX)
        return bad(e, "gemm: x [m, k] and y [m, n] must be F32 and fit w");
    if (weights_check(&a->w, n, k, why, sizeof why))
        return plug_fail(e->err, SEAM_EINVAL, "cpu: gemm: w: %s", why);
    if (a->bias.data && weights_check(&a->bias, n, 0, why, sizeof why))
        return plug_fail(e->err, SEAM_EINVAL, "cpu: gemm: bias: %s", why);
    rc = kern_mat_init(&w, &a->w, why, sizeof why);
    if (rc)
        return plug_fail(e->err, rc, "cpu: gemm: w: %s", why);
    plain_bias = a->bias.data && a->bias.dtype == SEAM_F32 &&
                 a->bias.quant == SEAM_Q_NONE && a->bias.rank == 1;
    job = (struct kern_job){
        .w = &w,
        .x = a->x.data,
        .ldx = a->x.stride[0] / 4,
        .y = a->y.data,
        .ldy = a->y.stride[0] / 4,
        .m = (uint32_t)m,
        .add = a->accumulate,
        .bias = plain_bias ? a->bias.data : NULL,
    };
    kern_run(b->k, host, &job, 1, b->scratch);
    if (a->bias.data && !plain_bias)
        for (uint64_t r = 0; r < m; r++) {
            float *y = plug_row(&a->y, (int64_t)r);

            for (uint64_t o = 0; o < n; o++)
                y[o] += (float)weights_at(&a->bias, 0, o);
        }
    return SEAM_OK;
}

/* ---- Rows ---------------------------------------------------------------- */

/* Rows [FEW_ROWS i, FEW_ROWS (i + 1)) of n. */
static uint32_t rows_end(uint32_t i, uint32_t n)
{
    uint32_t end = (i + 1) * FEW_ROWS;

    return end < n ? end : n;
}

static uint32_t row_tasks(uint32_t n)
{
    return (n + FEW_ROWS - 1) / FEW_ROWS;
}

struct embed {
    const struct kern *k;
    const int32_t *id;
    uint32_t n, streams, d;
    const struct seam_tensor *table, *y;
};

static void embed_task(void *arg, uint32_t t, uint32_t worker)
{
    const struct embed *a = arg;

    (void)worker;
    for (uint32_t i = t * FEW_ROWS; i < rows_end(t, a->n); i++) {
        float *first = (float *)((char *)a->y->data + i * a->y->stride[0]);

        if (a->id[i] < 0)
            memset(first, 0, a->d * sizeof *first);
        else if (a->table->quant == SEAM_Q_NONE)
            a->k->widen((const char *)a->table->data +
                            a->id[i] * a->table->stride[0],
                        a->table->dtype, a->d, first);
        else
            weights_row_f32(a->table, (uint64_t)a->id[i], first);
        for (uint32_t s = 1; s < a->streams; s++)
            memcpy((char *)first + s * a->y->stride[1], first,
                   a->d * sizeof *first);
    }
}

static int ops_embed(void *be, const struct seam_exec *e, const int32_t *id,
                     uint32_t n, const struct seam_tensor *table,
                     const struct seam_tensor *y)
{
    struct backend *b = be;
    struct embed a = { b->k, id, n, 1, 0, table, y };
    uint64_t vocab;
    char why[160];

    if (table->rank != 2 || y->rank < 2 || y->rank > 3 || !y->data ||
        y->dtype != SEAM_F32 || y->shape[0] != n)
        return bad(e, "embed: expected table [vocab, d] and y [n, d] or "
                      "[n, S, d] F32");
    vocab = (uint64_t)table->shape[0];
    a.d = (uint32_t)y->shape[y->rank - 1];
    a.streams = y->rank == 3 ? (uint32_t)y->shape[1] : 1;
    if (weights_check(table, vocab, a.d, why, sizeof why))
        return plug_fail(e->err, SEAM_EINVAL, "cpu: embed: table: %s", why);
    for (uint32_t i = 0; i < n; i++)
        if (id[i] >= 0 && (uint64_t)id[i] >= vocab)
            return plug_fail(e->err, SEAM_EINVAL,
                             "cpu: embed: id %d, expected under %llu", id[i],
                             (unsigned long long)vocab);
    if (a.streams)
        parallel(row_tasks(n), embed_task, &a);
    return SEAM_OK;
}

struct norm {
    const struct kern *k;
    const struct seam_tensor *x, *w, *y;
    float eps;
    uint32_t n, d;
};

static void norm_task(void *arg, uint32_t t, uint32_t worker)
{
    const struct norm *a = arg;

    (void)worker;
    for (uint32_t r = t * FEW_ROWS; r < rows_end(t, a->n); r++)
        kern_rms(a->k, plug_row(a->x, r), a->w->data, a->w->dtype, a->d, a->eps,
                 plug_row(a->y, r));
}

static int ops_norm(void *be, const struct seam_exec *e,
                    const struct seam_tensor *x, const struct seam_tensor *w,
                    float eps, const struct seam_tensor *y)
{
    struct backend *b = be;
    uint64_t n = (uint64_t)x->shape[0], d = (uint64_t)x->shape[1];
    struct norm a = { b->k, x, w, y, eps, (uint32_t)n, (uint32_t)d };
    char why[160];

    if (!plug_is_rows(x, SEAM_F32, 4, n, d) ||
        !plug_is_rows(y, SEAM_F32, 4, n, d))
        return bad(e, "norm: x and y must be [n, d] F32");
    if (weights_check(w, d, 0, why, sizeof why) || w->quant != SEAM_Q_NONE)
        return bad(e, "norm: w must be a plain vector of d");
    parallel(row_tasks(a.n), norm_task, &a);
    return SEAM_OK;
}

struct glu {
    const struct kern *k;
    const struct seam_tensor *g, *u, *y;
    float limit;
    uint32_t n, d;
};

static void glu_task(void *arg, uint32_t t, uint32_t worker)
{
    const struct glu *a = arg;

    (void)worker;
    for (uint32_t r = t * FEW_ROWS; r < rows_end(t, a->n); r++)
        a->k->glu(plug_row(a->g, r), plug_row(a->u, r), a->limit, a->d,
                  plug_row(a->y, r));
}

static int ops_glu(void *be, const struct seam_exec *e,
                   const struct seam_tensor *g, const struct seam_tensor *u,
                   float limit, const struct seam_tensor *y)
{
    struct backend *b = be;
    uint64_t n = (uint64_t)g->shape[0], d = (uint64_t)g->shape[1];
    struct glu a = { b->k, g, u, y, limit, (uint32_t)n, (uint32_t)d };

    if (!plug_is_rows(g, SEAM_F32, 4, n, d) ||
        !plug_is_rows(u, SEAM_F32, 4, n, d) ||
        !plug_is_rows(y, SEAM_F32, 4, n, d))
        return bad(e, "glu: g, u and y must be [n, d] F32");
    parallel(row_tasks(a.n), glu_task, &a);
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
                             "cpu: gather: row %d, expected under %lld", row[i],
                             (long long)x->shape[0]);
    for (uint32_t i = 0; i < n; i++) {
        if (row[i] < 0)
            memset(plug_row(y, i), 0, d * elem);
        else
            memmove(plug_row(y, i), plug_row(x, row[i]), d * elem);
    }
    return SEAM_OK;
}

/* ---- The residual -------------------------------------------------------- */

/* A block of rows of one call.  The first pass works on segments of columns:
 * it adds y to all streams there and sums the segment's share of the map and of
 * the streams' squares.  The second pass works on whole rows. */
struct residual {
    const struct backend *b;
    const struct seam_residual *a;
    uint32_t r0, n;       /* rows of this block                            */
    uint32_t d, S, n_map; /* n_map 0: no map                               */
    uint32_t n_seg, seg;  /* segments of a row, their columns              */
    float base[2 * KERN_STREAMS + KERN_STREAMS * KERN_STREAMS], scale[3];
};

static float *stream(const struct residual *p, uint32_t r, uint32_t s)
{
    return (float *)((char *)p->a->streams.data +
                     (p->r0 + r) * p->a->streams.stride[0] +
                     s * p->a->streams.stride[1]);
}

/* Row r's sums over segment g of stream s: n_map products, then squares. */
static float *part(const struct residual *p, uint32_t r, uint32_t g, uint32_t s)
{
    uint64_t i = ((uint64_t)r * p->n_seg + g) * p->S + s;

    return p->b->parts + i * (p->n_map + 1);
}

static void add_y(const struct residual *p, uint32_t r, uint32_t c, uint32_t n)
{
    const struct seam_residual *a = p->a;
    const float *y = (const float *)plug_row(&a->y, p->r0 + r) + c;

    if (a->mix.data) {
        const float *mix = plug_row(&a->mix, p->r0 + r);

        p->b->k->streams_mix(stream(p, r, 0) + c,
                             (uint64_t)a->streams.stride[1] / 4, p->S, mix,
                             mix + p->S, y, n);
    } else {
        p->b->k->add(stream(p, r, 0) + c, y, n, stream(p, r, 0) + c);
    }
}

static void segment_task(void *arg, uint32_t t, uint32_t worker)
{
    const struct residual *p = arg;
    const struct seam_residual *a = p->a;
    uint32_t g = t % p->n_seg, c = g * p->seg;
    uint32_t len = p->d - c < p->seg ? p->d - c : p->seg;
    uint32_t r0 = t / p->n_seg * GROUP;
    uint32_t m = p->n - r0 < GROUP ? p->n - r0 : GROUP;

    (void)worker;
    for (uint32_t r = r0; r < r0 + m; r++) {
        float mean[KERN_STREAMS];

        if (a->y.data)
            add_y(p, r, c, len);
        for (uint32_t s = 0; s < p->S; s++)
            mean[s] = 1.0f / (float)p->S;
        if (a->mean.data)
            p->b->k->streams_read(
                stream(p, r, 0) + c, (uint64_t)a->streams.stride[1] / 4, p->S,
                mean, len, (float *)plug_row(&a->mean, p->r0 + r) + c);
    }
    for (uint32_t s = 0; p->n_map && s < p->S; s++) {
        const void *w[2 * KERN_STREAMS + KERN_STREAMS * KERN_STREAMS];
        const float *x[GROUP];
        float *y[GROUP];

        for (uint32_t o = 0; o < p->n_map; o++)
            w[o] = (const char *)a->fn.data + o * a->fn.stride[0] +
                   ((uint64_t)s * p->d + c) * weights_elem_bytes(a->fn.dtype);
        for (uint32_t r = 0; r < m; r++) {
            x[r] = stream(p, r0 + r, s) + c;
            y[r] = part(p, r0 + r, g, s);
            y[r][p->n_map] = p->b->k->sum_squares(x[r], len);
        }
        p->b->k->dot_rows(a->fn.dtype, w, p->n_map, len, x, m, y);
    }
}

static float sigmoid(float v)
{
    return 1 / (1 + expf(-v));
}

/* Divide each row, or column, of c by its sum + eps. */
static void normalise(float *c, uint32_t S, uint32_t across, uint32_t along,
                      float eps)
{
    for (uint32_t i = 0; i < S; i++) {
        float sum = eps;

        for (uint32_t j = 0; j < S; j++)
            sum += c[i * across + j * along];
        sum = 1 / sum;
        for (uint32_t j = 0; j < S; j++)
            c[i * across + j * along] *= sum;
    }
}

/* Section 2 of the model spec: m, already divided by the rms of the streams, to
 * pre, post and comb. */
static void hc_map(const struct residual *p, const float *m, float *pre,
                   float *mix)
{
    uint32_t S = p->S;
    const float *base = p->base, *scale = p->scale;
    float *c = mix + S, eps = p->a->eps_mix;

    for (uint32_t i = 0; i < S; i++) {
        pre[i] = sigmoid(m[i] * scale[0] + base[i]) + eps;
        mix[i] = 2 * sigmoid(m[S + i] * scale[1] + base[S + i]);
    }
    for (uint32_t i = 0; i < S; i++) {
        const float *mi = m + 2 * S + i * S, *bi = base + 2 * S + i * S;
        float top = -INFINITY, sum = 0;

        for (uint32_t j = 0; j < S; j++) {
            c[i * S + j] = mi[j] * scale[2] + bi[j];
            top = c[i * S + j] > top ? c[i * S + j] : top;
        }
        for (uint32_t j = 0; j < S; j++)
            sum += c[i * S + j] = expf(c[i * S + j] - top);
        for (uint32_t j = 0; j < S; j++)
            c[i * S + j] = c[i * S + j] / sum + eps;
    }
    normalise(c, S, 1, S, eps);
    for (uint32_t t = 1; t < p->a->sinkhorn; t++) {
        normalise(c, S, S, 1, eps);
        normalise(c, S, 1, S, eps);
    }
}

static void row_task(void *arg, uint32_t r, uint32_t worker)
{
    const struct residual *p = arg;
    const struct seam_residual *a = p->a;
    float *x = plug_row(&a->x, p->r0 + r), pre[KERN_STREAMS];

    (void)worker;
    for (uint32_t s = 0; s < p->S; s++)
        pre[s] = 1.0f / (float)p->S;
    if (p->n_map) {
        float m[2 * KERN_STREAMS + KERN_STREAMS * KERN_STREAMS + 1] = { 0 };
        float rms;

        for (uint32_t i = 0; i < p->n_seg * p->S; i++) {
            const float *q = part(p, r, i / p->S, i % p->S);

            for (uint32_t o = 0; o <= p->n_map; o++)
                m[o] += q[o];
        }
        rms = 1 / sqrtf(m[p->n_map] / (float)(p->S * p->d) + a->eps_norm);
        for (uint32_t o = 0; o < p->n_map; o++)
            m[o] *= rms;
        hc_map(p, m, pre, plug_row(&a->mix, p->r0 + r));
    }
    p->b->k->streams_read(stream(p, r, 0), (uint64_t)a->streams.stride[1] / 4,
                          p->S, pre, p->d, x);
    if (a->w.data)
        kern_rms(p->b->k, x, a->w.data, a->w.dtype, p->d, a->eps_norm, x);
}

static int residual_check(const struct seam_exec *e,
                          const struct seam_residual *a)
{
    uint32_t S = a->n_streams, n_map = 2 * S + S * S;
    const struct seam_tensor *t = &a->streams;
    uint64_t n, d;
    char why[160];

    if (a->partial)
        return plug_fail(e->err, SEAM_ENOTSUP,
                         "cpu: partial residual, but this backend makes no "
                         "groups");
    if (S < 1 || S > KERN_STREAMS)
        return plug_fail(e->err, SEAM_ENOTSUP,
                         "cpu: %u residual streams, expected 1 to %d", S,
                         KERN_STREAMS);
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
        return plug_fail(e->err, SEAM_EINVAL, "cpu: residual: w: %s", why);
    if (a->w.data && a->w.quant != SEAM_Q_NONE)
        return bad(e, "residual: w is quantised");
    if (!a->fn.data || !a->x.data)
        return SEAM_OK;
    if (weights_check(&a->fn, n_map, S * d, why, sizeof why))
        return plug_fail(e->err, SEAM_EINVAL, "cpu: residual: fn: %s", why);
    if (a->fn.quant != SEAM_Q_NONE || weights_elem_bytes(a->fn.dtype) < 2 ||
        (d + SEGMENT - 1) / SEGMENT * S * (n_map + 1) > PARTS)
        return plug_fail(e->err, SEAM_ENOTSUP,
                         "cpu: residual: fn of dtype %u with %u x %llu inputs",
                         a->fn.dtype, S, (unsigned long long)d);
    if (!a->mix.data || a->base.dtype != SEAM_F32 ||
        a->scale.dtype != SEAM_F32 ||
        weights_check(&a->base, n_map, 0, why, sizeof why) ||
        weights_check(&a->scale, 3, 0, why, sizeof why))
        return bad(e, "residual: fn wants mix, base [2 S + S * S] F32 and "
                      "scale [3] F32");
    return SEAM_OK;
}

static int ops_residual(void *be, const struct seam_exec *e,
                        const struct seam_residual *a)
{
    struct backend *b = be;
    struct residual p = { .b = b, .a = a, .S = a->n_streams };
    uint32_t n, rows;
    int rc = residual_check(e, a);

    if (rc)
        return rc;
    n = (uint32_t)a->streams.shape[0];
    p.d = (uint32_t)a->streams.shape[2];
    /* All the same but for the last, in whole cache lines of BF16. */
    p.n_seg = (p.d + SEGMENT - 1) / SEGMENT;
    p.seg = ((p.d + p.n_seg - 1) / p.n_seg + 31) & ~31u;
    rows = n;
    if (a->fn.data && a->x.data) {
        p.n_map = 2 * p.S + p.S * p.S;
        rows = PARTS / (p.n_seg * p.S * (p.n_map + 1));
        memcpy(p.base, a->base.data, p.n_map * sizeof *p.base);
        memcpy(p.scale, a->scale.data, sizeof p.scale);
    }
    for (p.r0 = 0; p.r0 < n; p.r0 += rows) {
        p.n = n - p.r0 < rows ? n - p.r0 : rows;
        if (a->y.data || a->mean.data || p.n_map)
            parallel((p.n + GROUP - 1) / GROUP * p.n_seg, segment_task, &p);
        if (a->x.data)
            parallel(p.n, row_task, &p);
    }
    return SEAM_OK;
}

/* ---- Sampling ------------------------------------------------------------ */

struct choice {
    const struct backend *b;
    const struct seam_sample *s;
    const struct seam_verify *v;
};

static void sample_task(void *arg, uint32_t i, uint32_t worker)
{
    const struct choice *c = arg;

    sampler_row(c->b->k, &c->b->sampler[worker], c->s, i);
}

static void verify_task(void *arg, uint32_t i, uint32_t worker)
{
    const struct choice *c = arg;

    sampler_sequence(c->b->k, &c->b->sampler[worker], c->v, i);
}

static int ops_sample(void *be, const struct seam_exec *e,
                      const struct seam_sample *a)
{
    struct backend *b = be;
    struct choice c = { .b = b, .s = a };
    const char *why = sampler_check_sample(a, b->sampler[0].vocab);

    if (why)
        return plug_fail(e->err, SEAM_EINVAL, "cpu: sample: %s", why);
    parallel(a->n, sample_task, &c);
    return SEAM_OK;
}

static int ops_verify(void *be, const struct seam_exec *e,
                      const struct seam_verify *a)
{
    struct backend *b = be;
    struct choice c = { .b = b, .v = a };
    const char *why = sampler_check_verify(a, b->sampler[0].vocab);

    if (why)
        return plug_fail(e->err, SEAM_EINVAL, "cpu: verify: %s", why);
    parallel(a->n_seqs, verify_task, &c);
    return SEAM_OK;
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
#if defined(__x86_64__)
        .arch = "x86-64",
#else
        .arch = "aarch64",
#endif
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
        return plug_fail(err, SEAM_ENOMEM, "cpu: no %llu bytes left",
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

static int be_handle_new(void *self, void **handle, struct seam_error *err)
{
    (void)self;
    (void)err;
    *handle = NULL;
    return SEAM_OK;
}

static void be_handle_free(void *self, void *handle)
{
    (void)self;
    (void)handle;
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

static int be_event(void *self, void *event, void *s, struct seam_error *err)
{
    (void)self;
    (void)event;
    (void)s;
    (void)err;
    return SEAM_OK;
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
    for (uint32_t i = 0; b->sampler && i < b->n_workers; i++) {
        plug_free(host, b->sampler[i].p);
        plug_free(host, b->sampler[i].block);
        plug_free(host, b->sampler[i].order);
    }
    plug_free(host, b->sampler);
    plug_free(host, b->parts);
    plug_free(host, b->scratch);
    plug_free(host, b);
}

static bool make_memory(struct backend *b, uint32_t vocab)
{
    b->scratch = plug_zalloc(host, b->n_workers, KERN_SCRATCH);
    b->parts = plug_zalloc(host, PARTS, sizeof *b->parts);
    b->sampler = plug_zalloc(host, b->n_workers, sizeof *b->sampler);
    if (!b->scratch || !b->parts || !b->sampler)
        return false;
    for (uint32_t i = 0; i < b->n_workers; i++) {
        struct sampler *s = &b->sampler[i];

        s->vocab = vocab;
        s->p = plug_zalloc(host, vocab, sizeof *s->p);
        s->block =
            plug_zalloc(host, vocab / SAMPLER_BLOCK + 1, sizeof *s->block);
        s->order = plug_zalloc(host, vocab, sizeof *s->order);
        if (!s->p || !s->block || !s->order)
            return false;
    }
    return true;
}

static int be_create(const struct seam_create *c, void **self,
                     struct seam_error *err)
{
    const struct seam_cfg *mc = host->model_cfg(host->ctx, c->model);
    struct backend *b;
    uint32_t vocab = 0;
    int rc;

    if (c->device->ordinal != -1)
        return plug_fail(err, SEAM_ENOENT, "cpu: device %d, expected -1",
                         c->device->ordinal);
    if (c->limits->act_dtype != SEAM_F32)
        return plug_fail(err, SEAM_ENOTSUP, "cpu computes in F32 only");
    rc =
        plug_model_u32(host, mc, "vocab_size", NULL, 1, INT32_MAX, &vocab, err);
    if (rc)
        return rc;
    b = plug_zalloc(host, 1, sizeof *b);
    if (!b)
        return plug_fail(err, SEAM_ENOMEM, "cpu: out of memory");
    b->n_workers = host->n_workers ? host->n_workers : 1;
    rc = kern_configure(host, c->cfg, "cpu", &b->k, err);
    if (!rc && !make_memory(b, vocab))
        rc = plug_fail(err, SEAM_ENOMEM, "cpu: out of memory");
    if (rc) {
        be_destroy(b);
        return rc;
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
    .stream_new = be_handle_new,
    .stream_free = be_handle_free,
    .event_new = be_handle_new,
    .event_free = be_handle_free,
    .stream_wait = be_stream_wait,
    .copy = be_copy,
    .fill = be_fill,
    .event_record = be_event,
    .event_join = be_event,
    .event_done = be_event_done,
};

const struct seam_plugin seam_plugin_entry = {
    .ident = { SEAM_IDENT(SEAM_KIND_BACKEND, struct seam_backend),
               .name = "cpu", .version = "1.0.0", .build = __VERSION__ },
    .table = &backend,
    .init = be_init,
    .create = be_create,
    .destroy = be_destroy,
};
