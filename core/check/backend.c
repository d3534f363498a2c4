#include "core/check/backend.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/check/drive.h"
#include "core/check/finding.h"

enum { VOCAB = 97, GAP = 3 };
#define GAP_VALUE 54321.25f

/* ---- An open backend ----------------------------------------------------- */

struct be {
    struct th *h;
    const struct seam_plugin *p;
    const struct seam_backend *t;
    const struct seam_ops *ops;
    void *self;
    struct seam_error err;
    struct seam_exec e;
    struct seam_limits limits;
    struct seam_device device;
    struct seam_create create;
    int64_t live; /* blocks of the host before                               */
};

static void be_open(struct be *b, const struct backend_check *c)
{
    memset(b, 0, sizeof *b);
    b->h = th_new("{\"vocab_size\": 97, \"hidden_size\": 40, \"hc_mult\": 4}",
                  c->config);
    b->limits = (struct seam_limits){
        .size = sizeof b->limits,
        .act_dtype = SEAM_F32,
        .max_seqs = 2000,
        .max_tokens = 256,
        .max_context = 256,
        .max_draft = 3,
        .tp_size = 1,
    };
    b->device = (struct seam_device){ .size = sizeof b->device, .ordinal = -1 };
    b->create = (struct seam_create){
        .size = sizeof b->create,
        .limits = &b->limits,
        .device = &b->device,
        .cfg = th_plugin_cfg(b->h),
        .model = th_model(b->h),
    };
    b->e =
        (struct seam_exec){ .size = sizeof b->e, .device = -1, .err = &b->err };
    b->p = th_plugin(b->h, c->plugin);
    b->t = b->p->table;
    b->ops = b->t->ops;
    b->live = b->h->live;
    ck_require("E5", b->p->create(&b->create, &b->self, &b->err) == SEAM_OK,
               "%s", b->err.text);
    if (b->p->needs) {
        struct seam_needs n = { .size = sizeof n };
        struct seam_grant g = { .size = sizeof g };

        ck_require("E5", b->p->needs(b->self, &n, &b->err) == SEAM_OK,
                   "needs: %s", b->err.text);
        ck_require("E5", b->p->attach(b->self, &g, &b->err) == SEAM_OK,
                   "attach: %s", b->err.text);
    }
}

static void be_close(struct be *b)
{
    if (b->p->quiesce)
        b->p->quiesce(b->self);
    b->p->destroy(b->self);
    ck_require("E2", b->h->live == b->live, "destroy left memory");
    th_free(b->h);
}

#define CALL(b, op)                                                     \
    do {                                                                \
        int rc_;                                                        \
                                                                        \
        th_enter((b)->h);                                               \
        rc_ = (op);                                                     \
        th_leave((b)->h, #op);                                          \
        ck_require("E5", rc_ == SEAM_OK, "%s: %s", #op, (b)->err.text); \
    } while (0)

/* ---- Strided floats ------------------------------------------------------ */

struct mat {
    struct seam_tensor t;
    float *p;     /* rows of cols + GAP floats                             */
    double *want; /* [rows][cols] what it should become                    */
    int64_t rows, cols;
};

static struct mat mat_new(struct th_rng *r, int64_t rows, int64_t cols)
{
    struct mat m = { .rows = rows, .cols = cols };
    size_t n = (size_t)(rows * (cols + GAP));

    m.p = malloc((n + GAP) * sizeof *m.p);
    m.want = calloc((size_t)(rows * cols) + 1, sizeof *m.want);
    ck_own(m.p && m.want, "out of memory");
    for (size_t i = 0; i < n + GAP; i++)
        m.p[i] = GAP_VALUE;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            m.p[i * (cols + GAP) + j] = r ? (float)th_normal(r) : NAN;
    m.t = th_view(m.p, rows, cols, cols + GAP);
    return m;
}

static float *mat_row(const struct mat *m, int64_t i)
{
    return m->p + i * (m->cols + GAP);
}

static void mat_free(struct mat *m)
{
    free(m->p);
    free(m->want);
}

/* Gaps are untouched, values are what was wanted. */
static void mat_check(const struct mat *m, double limit, const char *what)
{
    double num = 0, den = 1e-300;

    for (int64_t i = 0; i < m->rows; i++) {
        for (int64_t j = 0; j < m->cols; j++) {
            double got = mat_row(m, i)[j], want = m->want[i * m->cols + j];

            ck_require("N1", isfinite(got), "%s: [%ld, %ld] is %g", what,
                       (long)i, (long)j, got);
            num += (got - want) * (got - want);
            den += want * want;
        }
        for (int64_t j = m->cols; j < m->cols + GAP; j++)
            ck_require("M3", mat_row(m, i)[j] == GAP_VALUE,
                       "%s: wrote beside row "
                       "%ld",
                       what, (long)i);
    }
    ck_require("N1", sqrt(num / den) <= limit, "%s: error %g", what,
               sqrt(num / den));
}

/* ---- gemm ---------------------------------------------------------------- */

static void one_gemm(struct be *b, const struct backend_check *c,
                     struct th_rng *r, int64_t m, int64_t n, int64_t k,
                     enum th_store store, bool bias, bool accumulate)
{
    struct mat x = mat_new(r, m, k), y = mat_new(accumulate ? r : NULL, m, n);
    const double *w = th_random(b->h, "w", store, (uint64_t)n, (uint64_t)k, 0,
                                1 / sqrt((double)k));
    const double *bv =
        th_random(b->h, "b", m % 2 ? TH_F32 : TH_BF16, (uint64_t)n, 0, 0, 1);
    struct seam_gemm a = {
        .size = sizeof a, .accumulate = accumulate, .x = x.t, .y = y.t
    };
    char what[96];

    w = th_get(b->h, "w");
    a.w = th_find(b->h, "w")->t;
    if (bias)
        a.bias = th_find(b->h, "b")->t;
    for (int64_t i = 0; i < m; i++)
        for (int64_t o = 0; o < n; o++) {
            long double s = accumulate ? mat_row(&y, i)[o] : 0;

            for (int64_t j = 0; j < k; j++)
                s += (long double)w[o * k + j] * mat_row(&x, i)[j];
            y.want[i * n + o] = (double)(s + (bias ? bv[o] : 0));
        }
    CALL(b, b->ops->gemm(b->self, &b->e, &a));
    snprintf(what, sizeof what, "gemm [%ld, %ld, %ld] store %d bias %d acc %d",
             (long)m, (long)n, (long)k, store, bias, accumulate);
    mat_check(&y, c->limit, what);
    mat_free(&x);
    mat_free(&y);
}

void check_gemm(const struct backend_check *c)
{
    static const int64_t ms[] = { 0, 1, 2, 3, 17, 64, 65 };
    static const int64_t ns[] = { 1, 7, 8, 40, 129 };
    static const int64_t ks[] = { 1, 5, 32, 96, 129, 513 };
    struct th_rng r = { 1 };
    struct be b;

    be_open(&b, c);
    for (uint32_t i = 0; i < 7; i++)
        for (uint32_t j = 0; j < 5; j++)
            for (uint32_t l = 0; l < 6; l++) {
                enum th_store s = TH_F32 + (i + j + l) % 4;

                one_gemm(&b, c, &r, ms[i], ns[j], ks[l], s, l % 2, j % 2);
                if (ns[j] % 8 == 0 && ks[l] % 32 == 0)
                    one_gemm(&b, c, &r, ms[i], ns[j], ks[l], TH_GPTQ, i % 2,
                             l % 2);
            }
    one_gemm(&b, c, &r, 130, 300, 257, TH_FP8, true, true);
    one_gemm(&b, c, &r, 5, 136, 1056, TH_GPTQ, false, false);
    be_close(&b);
}

/* ---- embed, gather, norm, glu -------------------------------------------- */

static void check_embed(struct be *b, const struct backend_check *c)
{
    static const int32_t id[] = { 0, 96, -1, 5, 5, 40 };
    struct th_rng r = { 2 };

    for (enum th_store s = TH_F32; s <= TH_BF16; s++) {
        const double *table = th_random(b->h, "e", s, VOCAB, 13, 0, 1);
        struct mat y = mat_new(NULL, 6, 13), z = mat_new(NULL, 6 * 4, 13);
        struct seam_tensor zt = z.t;

        for (uint32_t i = 0; i < 6; i++)
            for (uint32_t j = 0; j < 13; j++) {
                double v = id[i] < 0 ? 0 : table[id[i] * 13 + (int)j];

                y.want[i * 13 + j] = v;
                for (uint32_t k = 0; k < 4; k++)
                    z.want[(i * 4 + k) * 13 + j] = v;
            }
        zt.rank = 3;
        zt.shape[0] = 6;
        zt.shape[1] = 4;
        zt.shape[2] = 13;
        zt.stride[1] = zt.stride[0];
        zt.stride[0] *= 4;
        CALL(b, b->ops->embed(b->self, &b->e, id, 6, &th_find(b->h, "e")->t,
                              &y.t));
        CALL(b,
             b->ops->embed(b->self, &b->e, id, 6, &th_find(b->h, "e")->t, &zt));
        mat_check(&y, c->limit, "embed");
        mat_check(&z, c->limit, "embed of streams");
        mat_free(&y);
        mat_free(&z);
    }
    (void)r;
}

static void check_gather(struct be *b)
{
    static const int32_t row[] = { 3, 0, 3, 6 };
    struct th_rng r = { 3 };
    struct mat x = mat_new(&r, 7, 11), y = mat_new(NULL, 4, 11);

    for (uint32_t i = 0; i < 4; i++)
        for (uint32_t j = 0; j < 11; j++)
            y.want[i * 11 + j] = mat_row(&x, row[i])[j];
    CALL(b, b->ops->gather(b->self, &b->e, &x.t, row, 4, &y.t));
    mat_check(&y, 0, "gather");
    mat_free(&x);
    mat_free(&y);
    x = mat_new(&r, 2, 11);
    y = mat_new(NULL, 0, 11);
    CALL(b, b->ops->gather(b->self, &b->e, &x.t, row, 0, &y.t));
    mat_free(&x);
    mat_free(&y);
}

static void check_norm(struct be *b, const struct backend_check *c)
{
    static const int64_t ns[] = { 0, 1, 5, 64 }, ds[] = { 1, 8, 40, 257 };
    struct th_rng r = { 4 };

    for (uint32_t i = 0; i < 4; i++)
        for (uint32_t k = 0; k < 4; k++) {
            int64_t n = ns[i], d = ds[k];
            struct mat x = mat_new(&r, n, d), y = mat_new(NULL, n, d);
            const double *w = th_random(b->h, "n", k % 2 ? TH_F32 : TH_BF16,
                                        (uint64_t)d, 0, 1, .3);

            for (int64_t t = 0; t < n; t++) {
                double s = 0;

                for (int64_t j = 0; j < d; j++)
                    s += pow(mat_row(&x, t)[j], 2);
                for (int64_t j = 0; j < d; j++)
                    y.want[t * d + j] =
                        mat_row(&x, t)[j] / sqrt(s / (double)d + 1e-3f) * w[j];
            }
            CALL(b, b->ops->norm(b->self, &b->e, &x.t, &th_find(b->h, "n")->t,
                                 1e-3f, &y.t));
            mat_check(&y, c->limit, "norm");
            mat_free(&x);
            mat_free(&y);
        }
}

static void check_glu(struct be *b, const struct backend_check *c)
{
    static const float limit[] = { 0, 0.7f, 10 };
    static const int64_t ds[] = { 1, 8, 33 };
    struct th_rng r = { 5 };

    for (uint32_t i = 0; i < 9; i++) {
        int64_t n = i, d = ds[i % 3];
        struct mat g = mat_new(&r, n, d), u = mat_new(&r, n, d);
        struct mat y = mat_new(NULL, n, d);

        for (int64_t t = 0; t < n; t++)
            for (int64_t j = 0; j < d; j++) {
                double gv = 2 * mat_row(&g, t)[j], uv = mat_row(&u, t)[j] * 2;
                float l = limit[i / 3];

                mat_row(&g, t)[j] = (float)gv;
                mat_row(&u, t)[j] = (float)uv;
                if (l > 0)
                    gv = fmin(gv, l), uv = fmax(-l, fmin(uv, l));
                y.want[t * d + j] = gv / (1 + exp(-gv)) * uv;
            }
        CALL(b, b->ops->glu(b->self, &b->e, &g.t, &u.t, limit[i / 3], &y.t));
        mat_check(&y, c->limit, "glu");
        /* In place, as the dense MLP does it. */
        memcpy(g.want, y.want, (size_t)(n * d) * sizeof *g.want);
        CALL(b, b->ops->glu(b->self, &b->e, &g.t, &u.t, limit[i / 3], &g.t));
        mat_check(&g, c->limit, "glu in place");
        mat_free(&g);
        mat_free(&u);
        mat_free(&y);
    }
}

void check_rows(const struct backend_check *c)
{
    struct be b;

    be_open(&b, c);
    check_embed(&b, c);
    check_gather(&b);
    check_norm(&b, c);
    check_glu(&b, c);
    be_close(&b);
}

/* ---- residual ------------------------------------------------------------ */

struct res {
    uint32_t S, rounds;
    int64_t n, d;
    double eps_norm, eps_mix;
    bool add, mixed, map, weight, mean, read;
};

static double sig(double v)
{
    return 1 / (1 + exp(-v));
}

/* pre [S], post [S], comb [S][S] of one row by docs/spec, section 2. */
static void oracle_map(const struct res *q, const double *X, const double *fn,
                       const double *base, const double *scale, double *pre,
                       double *post, double *comb)
{
    uint32_t S = q->S;
    int64_t D = (int64_t)S * q->d;
    double sum = 0, m[80];

    for (int64_t i = 0; i < D; i++)
        sum += X[i] * X[i];
    for (uint32_t o = 0; o < 2 * S + S * S; o++) {
        m[o] = 0;
        for (int64_t i = 0; i < D; i++)
            m[o] += fn[o * D + i] * X[i];
        m[o] /= sqrt(sum / (double)D + q->eps_norm);
    }
    for (uint32_t i = 0; i < S; i++) {
        double rows = 0;

        pre[i] = sig(m[i] * scale[0] + base[i]) + q->eps_mix;
        post[i] = 2 * sig(m[S + i] * scale[1] + base[S + i]);
        for (uint32_t j = 0; j < S; j++)
            rows +=
                exp(m[2 * S + i * S + j] * scale[2] + base[2 * S + i * S + j]);
        for (uint32_t j = 0; j < S; j++)
            comb[i * S + j] =
                exp(m[2 * S + i * S + j] * scale[2] + base[2 * S + i * S + j]) /
                    rows +
                q->eps_mix;
    }
    for (uint32_t t = 0; t < 2 * q->rounds - 1; t++) /* column, row, column */
        for (uint32_t i = 0; i < S; i++) {
            double s = q->eps_mix;

            for (uint32_t j = 0; j < S; j++)
                s += t % 2 ? comb[i * S + j] : comb[j * S + i];
            for (uint32_t j = 0; j < S; j++)
                if (t % 2)
                    comb[i * S + j] /= s;
                else
                    comb[j * S + i] /= s;
        }
}

static void one_residual(struct be *b, const struct backend_check *c,
                         struct th_rng *r, const struct res *q)
{
    uint32_t S = q->S, M = S + S * S;
    int64_t n = q->n, d = q->d;
    struct mat y = mat_new(r, n, d), X = mat_new(r, n * S, d);
    struct mat mix = mat_new(r, n, M), x = mat_new(q->read ? NULL : r, n, d);
    struct mat mean = mat_new(NULL, n, d);
    const double *fn, *base, *scale, *w;
    struct seam_residual a = {
        .size = sizeof a,
        .n_streams = S,
        .sinkhorn = q->rounds,
        .eps_norm = (float)q->eps_norm,
        .eps_mix = (float)q->eps_mix,
        .streams = X.t,
    };
    struct res f = *q;
    double pre[8], old[8];
    char what[128];

    f.eps_norm = a.eps_norm;
    f.eps_mix = a.eps_mix;
    a.streams.rank = 3;
    a.streams.shape[0] = n;
    a.streams.shape[1] = S;
    a.streams.shape[2] = d;
    a.streams.stride[1] = X.t.stride[0];
    a.streams.stride[0] = X.t.stride[0] * S;
    th_random(b->h, "fn", n % 2 ? TH_BF16 : TH_F32, 2 * S + S * S,
              S * (uint64_t)d, 0, 1 / sqrt((double)d));
    th_random(b->h, "base", TH_F32, 2 * S + S * S, 0, 0, 1);
    th_random(b->h, "scale", TH_F32, 3, 0, 1, .3);
    th_random(b->h, "w", TH_BF16, (uint64_t)d, 0, 1, .3);
    fn = th_get(b->h, "fn");
    base = th_get(b->h, "base");
    scale = th_get(b->h, "scale");
    w = th_get(b->h, "w");
    if (q->add)
        a.y = y.t;
    if (q->mixed || q->map)
        a.mix = mix.t;
    if (q->map) {
        a.fn = th_find(b->h, "fn")->t;
        a.base = th_find(b->h, "base")->t;
        a.scale = th_find(b->h, "scale")->t;
    }
    if (q->weight)
        a.w = th_find(b->h, "w")->t;
    if (q->read)
        a.x = x.t;
    if (q->mean)
        a.mean = mean.t;
    for (int64_t i = 0; i < n; i++) {
        double *Xi = X.want + i * S * d, *mi = mix.want + i * M, sum = 0;
        const float *in = mat_row(&mix, i);

        for (uint32_t k = 0; k < M; k++)
            mi[k] = in[k];
        for (int64_t e = 0; e < d; e++) {
            for (uint32_t s = 0; s < S; s++)
                old[s] = mat_row(&X, i * S + s)[e];
            for (uint32_t j = 0; j < S; j++) {
                double v = old[j];

                if (q->add && a.mix.data) {
                    v = (double)in[j] * mat_row(&y, i)[e];
                    for (uint32_t s = 0; s < S; s++)
                        v += (double)in[S + s * S + j] * old[s];
                } else if (q->add && j == 0) {
                    v += mat_row(&y, i)[e];
                }
                Xi[j * d + e] = v;
                mean.want[i * d + e] += v / S;
            }
        }
        for (uint32_t s = 0; s < S; s++)
            pre[s] = 1.0 / S;
        if (q->read && q->map)
            oracle_map(&f, Xi, fn, base, scale, pre, mi, mi + S);
        for (int64_t e = 0; e < d; e++) {
            double h = 0;

            for (uint32_t s = 0; s < S; s++)
                h += pre[s] * Xi[s * d + e];
            x.want[i * d + e] = q->read ? h : mat_row(&x, i)[e];
            sum += h * h;
        }
        for (int64_t e = 0; q->read && q->weight && e < d; e++)
            x.want[i * d + e] *= w[e] / sqrt(sum / (double)d + f.eps_norm);
    }
    CALL(b, b->ops->residual(b->self, &b->e, &a));
    snprintf(what, sizeof what,
             "residual n %ld d %ld S %u rounds %u add %d "
             "mix %d map %d w %d mean %d read %d",
             (long)n, (long)d, S, q->rounds, q->add, q->mixed, q->map,
             q->weight, q->mean, q->read);
    mat_check(&X, c->limit, what);
    mat_check(&x, c->limit, what);
    mat_check(&mix, c->limit * 10, what);
    if (q->mean)
        mat_check(&mean, c->limit, what);
    mat_free(&y);
    mat_free(&X);
    mat_free(&mix);
    mat_free(&x);
    mat_free(&mean);
}

void check_residual_ops(const struct backend_check *c)
{
    static const int64_t ns[] = { 0, 1, 3, 65 }, ds[] = { 1, 8, 37, 130 };
    static const uint32_t Ss[] = { 1, 2, 4 }, rounds[] = { 1, 2, 20 };
    struct th_rng r = { 6 };
    struct be b;
    uint32_t turn = 0;

    be_open(&b, c);
    for (uint32_t i = 0; i < 4; i++)
        for (uint32_t j = 0; j < 4; j++)
            for (uint32_t k = 0; k < 3; k++)
                for (uint32_t bits = 0; bits < 32; bits++) {
                    struct res q = {
                        .S = Ss[k],
                        .rounds = rounds[turn % 3],
                        .n = ns[i],
                        .d = ds[j],
                        .eps_norm = 1e-5,
                        .eps_mix = 1e-6,
                        .add = bits & 1,
                        .mixed = bits & 2,
                        .map = bits & 4,
                        .weight = bits & 8,
                        .mean = turn % 2,
                        .read = bits & 16,
                    };

                    turn++;
                    if (ns[i] > 3 && bits % 3)
                        continue;
                    one_residual(&b, c, &r, &q);
                }
    be_close(&b);
}

/* ---- sample -------------------------------------------------------------- */

/* Arrays for n rows, all filters off. */
struct filters {
    struct seam_filter f;
    float *temperature, *top_p, *min_p;
    int32_t *top_k, *mask_row, *bias_start, *bias_id;
    uint64_t *seed, *counter;
    float *bias_div, *bias_add;
    uint32_t *mask;
};

static void filters_new(struct filters *q, uint32_t n)
{
    memset(q, 0, sizeof *q);
    q->temperature = calloc(n + 1, sizeof *q->temperature);
    q->top_p = calloc(n + 1, sizeof *q->top_p);
    q->min_p = calloc(n + 1, sizeof *q->min_p);
    q->top_k = calloc(n + 1, sizeof *q->top_k);
    q->mask_row = calloc(n + 1, sizeof *q->mask_row);
    q->bias_start = calloc(n + 2, sizeof *q->bias_start);
    q->bias_id = calloc(n * 4 + 1, sizeof *q->bias_id);
    q->bias_div = calloc(n * 4 + 1, sizeof *q->bias_div);
    q->bias_add = calloc(n * 4 + 1, sizeof *q->bias_add);
    q->seed = calloc(n + 1, sizeof *q->seed);
    q->counter = calloc(n + 1, sizeof *q->counter);
    q->mask = calloc((n + 1) * 4, sizeof *q->mask); /* 97 bits: 4 words */
    for (uint32_t i = 0; i < n; i++) {
        q->temperature[i] = 1;
        q->top_p[i] = 1;
        q->seed[i] = 1000 + i;
        q->counter[i] = i * 3;
        q->mask_row[i] = -1;
    }
    q->f = (struct seam_filter){
        .temperature = q->temperature,
        .top_p = q->top_p,
        .min_p = q->min_p,
        .top_k = q->top_k,
        .seed = q->seed,
        .counter = q->counter,
    };
}

static void filters_free(struct filters *q)
{
    free(q->temperature), free(q->top_p), free(q->min_p), free(q->top_k);
    free(q->mask_row), free(q->bias_start), free(q->bias_id);
    free(q->bias_div), free(q->bias_add), free(q->seed), free(q->counter);
    free(q->mask);
}

/* The filtered distribution of a row by plain definition: a token stays when
 * few enough stand before it. */
static void oracle_filter(const float *logit, uint32_t n,
                          const struct filters *q, uint32_t row, double *p)
{
    double l[VOCAB], top = -INFINITY, t = q->temperature[row], sum = 0;
    bool in[VOCAB];
    uint32_t first = 0;

    for (uint32_t i = 0; i < n; i++)
        l[i] = logit[i];
    if (q->f.bias_start)
        for (int32_t j = q->bias_start[row]; j < q->bias_start[row + 1]; j++) {
            double *v = &l[q->bias_id[j]];

            *v = (*v > 0 ? *v / q->bias_div[j] : *v * q->bias_div[j]) +
                 q->bias_add[j];
        }
    for (uint32_t i = 0; i < n; i++)
        if (q->f.mask && q->mask_row[row] >= 0 &&
            !(q->mask[q->mask_row[row] * 4 + (int)(i / 32)] >> i % 32 & 1))
            l[i] = -INFINITY;
    for (uint32_t i = 0; i < n; i++)
        if (l[i] > top)
            top = l[i], first = i;
    for (uint32_t i = 0; i < n; i++)
        p[i] = t > 0 ? exp((l[i] - top) / t) : i == first;
    if (t <= 0)
        return;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t ahead = 0;

        for (uint32_t j = 0; j < n; j++)
            ahead += p[j] > p[i] || (p[j] == p[i] && j < i);
        in[i] = q->top_k[row] <= 0 || ahead < (uint32_t)q->top_k[row];
        sum += in[i] ? p[i] : 0;
    }
    for (uint32_t i = 0; i < n; i++) {
        double ahead = 0;

        for (uint32_t j = 0; j < n; j++)
            if (in[j] && (p[j] > p[i] || (p[j] == p[i] && j < i)))
                ahead += p[j];
        if (q->top_p[row] < 1 && ahead > 0 && ahead >= q->top_p[row] * sum)
            in[i] = false, p[i] = 0;
    }
    for (uint32_t i = 0; i < n; i++)
        if (!in[i] || p[i] < q->min_p[row])
            p[i] = 0;
}

/* Token tok of p by rng.h, allowing draws within eps of a boundary. */
static bool drawn(const double *p, uint32_t n, double u, int32_t tok,
                  double eps)
{
    double sum = 0, run = 0;

    if (tok < 0 || (uint32_t)tok >= n || !(p[tok] > 0))
        return false;
    for (uint32_t i = 0; i < n; i++)
        sum += p[i];
    for (int32_t i = 0; i < tok; i++)
        run += p[i];
    return u * sum >= run - eps * sum && u * sum <= run + p[tok] + eps * sum;
}

static void fill_logits(struct mat *l, struct th_rng *r, double amp)
{
    for (int64_t i = 0; i < l->rows; i++)
        for (int64_t j = 0; j < l->cols; j++)
            mat_row(l, i)[j] = (float)(amp * th_normal(r));
}

/* The token of a row that the filters and, when the generator is known, the
 * draw allow. */
static bool may_be(const struct backend_check *c, const double *p,
                   uint64_t seed, uint64_t counter, int32_t tok, double eps)
{
    double u[2];

    if (!c->draw)
        return tok >= 0 && tok < VOCAB && p[tok] > 0;
    c->draw(seed, counter, u);
    return drawn(p, VOCAB, u[0], tok, eps);
}

/* A copy of row i: logits may be overwritten. */
static void row_copy(const struct mat *l, int64_t i, float *out)
{
    memcpy(out, mat_row(l, i), (size_t)l->cols * sizeof *out);
}

void check_sample(const struct backend_check *c)
{
    enum { N = 40, TOP = 5 };
    struct th_rng r = { 7 };
    struct mat l = mat_new(&r, N, VOCAB);
    int32_t token[N], top_id[N * TOP];
    float logprob[N], top_lp[N * TOP], raw[N][VOCAB];
    struct filters q;
    struct seam_sample a = {
        .size = sizeof a,
        .n = N,
        .logits = l.t,
        .n_top = TOP,
        .token = token,
        .logprob = logprob,
        .top_id = top_id,
        .top_logprob = top_lp,
    };
    struct be b;

    be_open(&b, c);
    filters_new(&q, N);
    fill_logits(&l, &r, 3);
    for (uint32_t i = 0; i < N; i++) {
        q.temperature[i] = i % 4 == 0 ? 0 : (float)(0.3 * (i % 4));
        if (i % 5 == 1) /* a tie for the first place */
            mat_row(&l, i)[70] = mat_row(&l, i)[20] = 20;
    }
    mat_row(&l, 7)[3] = NAN;
    mat_row(&l, 8)[96] = INFINITY;
    mat_row(&l, 9)[0] = -INFINITY;
    for (uint32_t i = 0; i < N; i++)
        row_copy(&l, i, raw[i]);
    a.filter = q.f;
    CALL(&b, b.ops->sample(b.self, &b.e, &a));
    for (uint32_t i = 0; i < N; i++) {
        double p[VOCAB], lse = 0;
        int32_t before = -1;

        if (i >= 7 && i <= 9) {
            ck_require("B1", token[i] == -1, "row %u is not finite", i);
            continue;
        }
        oracle_filter(raw[i], VOCAB, &q, i, p);
        ck_require("B1",
                   may_be(c, p, q.seed[i], q.counter[i], token[i], c->sample),
                   "row %u: token %d", i, token[i]);
        for (uint32_t j = 0; j < VOCAB; j++)
            lse += exp(raw[i][j]);
        lse = log(lse);
        ck_require("B1",
                   fabs((logprob[i]) - (raw[i][token[i]] - lse)) <= c->sample,
                   "logprob[i] is not as expected");
        for (uint32_t k = 0; k < TOP; k++) {
            int32_t id = top_id[i * TOP + k], ahead = 0;

            for (int32_t j = 0; j < VOCAB; j++)
                ahead += raw[i][j] > raw[i][id] ||
                         (raw[i][j] == raw[i][id] && j < id);
            ck_require("B1", ahead == (int32_t)k, "row %u: top %u is %d", i, k,
                       id);
            ck_require("B1",
                       fabs((top_lp[i * TOP + k]) - (raw[i][id] - lse)) <=
                           c->sample,
                       "top_lp[i * TOP + k] is not as expected");
            ck_require("B1", id != before, "id is not as expected");
            before = id;
        }
        if (i % 20 == 16) /* temperature 0 and a tie */
            ck_require("B1", token[i] == 20, "token[i] is not as expected");
    }
    /* Without the optional outputs. */
    fill_logits(&l, &r, 3);
    a.n_top = 0;
    a.logprob = NULL;
    a.top_id = NULL;
    a.top_logprob = NULL;
    CALL(&b, b.ops->sample(b.self, &b.e, &a));
    filters_free(&q);
    mat_free(&l);
    be_close(&b);
}

void check_sample_filters(const struct backend_check *c)
{
    enum { N = 2000 };
    struct th_rng r = { 8 };
    struct mat l = mat_new(&r, N, VOCAB);
    int32_t *token = calloc(N, sizeof *token), first;
    float raw[VOCAB], (*copy)[VOCAB] = malloc(N * sizeof *copy);
    struct filters q;
    struct seam_sample a = {
        .size = sizeof a, .n = N, .logits = l.t, .token = token
    };
    struct be b;

    be_open(&b, c);
    filters_new(&q, N);
    fill_logits(&l, &r, 2);
    q.f.bias_start = q.bias_start;
    q.f.bias_id = q.bias_id;
    q.f.bias_div = q.bias_div;
    q.f.bias_add = q.bias_add;
    q.f.mask = q.mask;
    q.f.mask_row = q.mask_row;
    for (uint32_t i = 0; i < N; i++) {
        uint32_t bits = i % 64;

        if (bits & 1)
            q.temperature[i] = (float)(0.2 + 1.5 * th_uniform(&r));
        if (bits & 2)
            q.top_k[i] = 1 + (int32_t)th_below(&r, i % 3 ? 10 : 120);
        if (bits & 4)
            q.top_p[i] = (float)th_uniform(&r);
        if (bits & 8)
            q.min_p[i] = (float)(0.3 * th_uniform(&r));
        q.bias_start[i + 1] = q.bias_start[i];
        for (uint32_t k = 0; bits & 16 && k < 4; k++) {
            int32_t at = q.bias_start[i + 1]++;

            q.bias_id[at] = (int32_t)(k * 20 + th_below(&r, 20));
            q.bias_div[at] = (float)(0.5 + th_uniform(&r));
            q.bias_add[at] = (float)(k == 3 ? -100 : 4 * th_normal(&r));
        }
        if (bits & 32) {
            q.mask_row[i] = (int32_t)th_below(&r, N);
            if (i % 7 == 0)
                q.temperature[i] = 0;
        }
        /* Row i of the mask allows about an eighth, and always token i % 97. */
        for (uint32_t j = 0; j < 4; j++)
            q.mask[i * 4 + j] =
                (uint32_t)(th_u64(&r) & th_u64(&r) & th_u64(&r));
        q.mask[i * 4 + i % 97 / 32] |= 1u << i % 97 % 32;
        row_copy(&l, i, copy[i]);
    }
    a.filter = q.f;
    CALL(&b, b.ops->sample(b.self, &b.e, &a));
    for (uint32_t i = 0; i < N; i++) {
        double p[VOCAB];

        oracle_filter(copy[i], VOCAB, &q, i, p);
        ck_require("B1",
                   may_be(c, p, q.seed[i], q.counter[i], token[i], c->sample),
                   "row %u (filters %u): token %d", i, i % 64, token[i]);
    }
    /* Nothing allowed. */
    memset(q.mask, 0, 16);
    q.mask_row[0] = 0;
    a.n = 1;
    a.logits.shape[0] = 1;
    CALL(&b, b.ops->sample(b.self, &b.e, &a));
    ck_require("B1", token[0] == -1, "token[0] is not as expected");
    /* Equal seed and counter, equal draw, wherever the row stands. */
    fill_logits(&l, &r, 1);
    row_copy(&l, 0, raw);
    for (uint32_t i = 0; i < N; i++) {
        memcpy(mat_row(&l, i), raw, sizeof raw);
        q.temperature[i] = 1;
        q.top_k[i] = 0;
        q.top_p[i] = 1;
        q.min_p[i] = 0;
        q.seed[i] = 42;
        q.counter[i] = i / 2;
    }
    a.n = N;
    a.logits = l.t;
    a.filter.bias_start = NULL;
    a.filter.mask = NULL;
    CALL(&b, b.ops->sample(b.self, &b.e, &a));
    first = token[0];
    for (uint32_t i = 0; i < N; i += 2) {
        ck_require("B1", token[i] == token[i + 1], "counter %u", i / 2);
        if (token[i] != first)
            first = -1;
    }
    ck_require("B1", first == -1, "the counter has no effect");
    filters_free(&q);
    mat_free(&l);
    free(token), free(copy);
    be_close(&b);
}

/* ---- verify -------------------------------------------------------------- */

enum { SEQS = 6, WINDOW = 4, QW = 3 };

static struct seam_tensor window_view(const struct mat *l, int64_t seqs,
                                      int64_t window)
{
    struct seam_tensor t = l->t;

    t.rank = 3;
    t.shape[0] = seqs;
    t.shape[1] = window;
    t.shape[2] = l->cols;
    t.stride[1] = t.stride[0];
    t.stride[0] *= window;
    return t;
}

void check_verify(const struct backend_check *c)
{
    struct th_rng r = { 9 };
    struct mat l = mat_new(&r, SEQS * WINDOW, VOCAB);
    int32_t draft[SEQS][WINDOW - 1], n_draft[SEQS], kept[SEQS], next[SEQS];
    int32_t token[SEQS * WINDOW], q_id[SEQS][WINDOW - 1][QW];
    float q_p[SEQS][WINDOW - 1][QW], raw[SEQS * WINDOW][VOCAB];
    struct filters q;
    struct seam_verify a = {
        .size = sizeof a,
        .n_seqs = SEQS,
        .window = WINDOW,
        .draft = draft[0],
        .n_draft = n_draft,
        .kept = kept,
        .next = next,
    };
    struct seam_sample s = { .size = sizeof s,
                             .n = SEQS * WINDOW,
                             .token = token };
    struct be b;

    be_open(&b, c);
    for (uint32_t round = 0; round < 60; round++) {
        filters_new(&q, SEQS * WINDOW);
        fill_logits(&l, &r, 3);
        for (uint32_t i = 0; i < SEQS * WINDOW; i++) {
            q.temperature[i] = round % 3 ? 0.8f : 0;
            q.top_k[i] = round % 2 ? 5 : 0;
            q.counter[i] = round * 100 + i;
            if (round >= 50 && i % WINDOW == round % WINDOW)
                mat_row(&l, i)[5] = NAN;
            row_copy(&l, i, raw[i]);
        }
        /* What sample would choose in each row. */
        s.logits = l.t;
        s.filter = q.f;
        CALL(&b, b.ops->sample(b.self, &b.e, &s));
        for (uint32_t i = 0; i < SEQS * WINDOW; i++)
            memcpy(mat_row(&l, i), raw[i], sizeof raw[i]);
        /* Sequence i has its first i % WINDOW drafts right. */
        for (uint32_t i = 0; i < SEQS; i++) {
            n_draft[i] = (int32_t)((i + round) % WINDOW);
            for (uint32_t j = 0; j < WINDOW - 1; j++) {
                int32_t t = token[i * WINDOW + j];

                draft[i][j] = j < i % WINDOW && t >= 0 ? t : (t + 1) % VOCAB;
                for (uint32_t k = 0; k < QW; k++)
                    q_id[i][j][k] = (draft[i][j] + (int32_t)k) % VOCAB;
                q_p[i][j][0] = 0.5f;
                q_p[i][j][1] = 0.25f;
                q_p[i][j][2] = 0.25f;
            }
        }
        a.logits = window_view(&l, SEQS, WINDOW);
        a.filter = q.f;
        a.q_width = 0;
        a.q_id = NULL;
        a.q = NULL;
        CALL(&b, b.ops->verify(b.self, &b.e, &a));
        for (uint32_t i = 0; i < SEQS; i++) {
            int32_t stand = 0;

            /* Which certain draft stands is the generator's affair, but for the
             * most likely token. */
            if (!c->draw && round % 3)
                break;
            while (stand < n_draft[i] &&
                   draft[i][stand] == token[i * WINDOW + (uint32_t)stand])
                stand++;
            ck_require("B2", kept[i] == stand + 1, "round %u sequence %u",
                       round, i);
            ck_require("B2", next[i] == token[i * WINDOW + (uint32_t)stand],
                       "round %u sequence %u: next %d, expected %d", round, i,
                       next[i], token[i * WINDOW + (uint32_t)stand]);
        }
        /* With q: every decision by rng.h. */
        for (uint32_t i = 0; i < SEQS * WINDOW; i++)
            memcpy(mat_row(&l, i), raw[i], sizeof raw[i]);
        a.q_width = QW;
        a.q_id = q_id[0][0];
        a.q = q_p[0][0];
        CALL(&b, b.ops->verify(b.self, &b.e, &a));
        for (uint32_t i = 0; i < SEQS; i++) {
            for (int32_t j = 0; j < kept[i]; j++) {
                uint32_t row = i * WINDOW + (uint32_t)j;
                uint64_t seed = q.seed[row], counter = q.counter[row];
                double p[VOCAB], sum = 0, x, u[2] = { 0, 0 };
                bool finite = true, last = j == kept[i] - 1;

                for (uint32_t v = 0; v < VOCAB; v++)
                    finite &= isfinite(raw[row][v]);
                if (!finite) {
                    ck_require("B2", (last && next[i] == -1),
                               "round %u sequence %u: a row that is not finite",
                               round, i);
                    break;
                }
                oracle_filter(raw[row], VOCAB, &q, row, p);
                for (uint32_t v = 0; v < VOCAB; v++)
                    sum += p[v];
                if (j == n_draft[i]) {
                    ck_require(
                        "B2", may_be(c, p, seed, counter, next[i], c->sample),
                        "round %u sequence %u: next %d", round, i, next[i]);
                    break;
                }
                x = p[draft[i][j]] / sum;
                if (c->draw)
                    c->draw(seed, counter, u);
                if (!last) { /* accepted */
                    ck_require(
                        "B2", c->draw ? u[1] * 0.5 < x + c->sample : x > 0,
                        "round %u sequence %u: draft %d stands", round, i, j);
                    continue;
                }
                ck_require("B2", !c->draw || u[1] * 0.5 >= x - c->sample,
                           "round %u sequence %u: draft %d falls", round, i, j);
                for (uint32_t k = 0; k < QW; k++)
                    p[q_id[i][j][k]] =
                        fmax(0, p[q_id[i][j][k]] - q_p[i][j][k] * sum);
                ck_require("B2",
                           may_be(c, p, seed, counter, next[i], 10 * c->sample),
                           "round %u sequence %u: next %d", round, i, next[i]);
            }
        }
        filters_free(&q);
    }
    mat_free(&l);
    be_close(&b);
}

/* Probability below 1e-6 that chi square with df degrees exceeds this
 * (Wilson and Hilferty). */
static double chi_limit(double df)
{
    double z = 4.75, t = 2 / (9 * df);

    return df * pow(1 - t + z * sqrt(t), 3);
}

void check_verify_lossless(const struct backend_check *c)
{
    enum { N = 2000, ROUNDS = 50, V = 5 };
    /* Two rows; the second depends on the first token by its own logits. */
    static const float first[V] = { 0.1f, 1.2f, -0.7f, 0.9f, -2.0f };
    static const float second[V][V] = {
        { 0, 1, 2, -1, 0 },    { 1, 1, 0, 0, -3 }, { 2, -1, 0, 1, 0 },
        { -1, 0, 0.5f, 0, 1 }, { 0, 0, 0, 0, 0 },
    };
    static const float q_of[3] = { 0.55f, 0.05f, 0.4f };
    static const int32_t id_of[3] = { 1, 4, 2 };
    struct th_rng r = { 10 };
    struct mat l = mat_new(&r, N * 2, V);
    int32_t *draft = calloc(N, sizeof *draft), *n_draft = calloc(N, 4);
    int32_t *kept = calloc(N, 4), *next = calloc(N, 4), *id = calloc(N * 3, 4);
    float *qp = calloc(N * 3, sizeof *qp);
    double count[V][V] = { { 0 } }, one[V] = { 0 }, p1[V], p2[V][V], chi = 0,
           sum, pairs = 0;
    struct filters q;
    struct seam_verify a = {
        .size = sizeof a,
        .n_seqs = N,
        .window = 2,
        .q_width = 3,
        .q_id = id,
        .q = qp,
        .draft = draft,
        .n_draft = n_draft,
        .kept = kept,
        .next = next,
    };
    struct be b;

    be_open(&b, c);
    filters_new(&q, N * 2);
    sum = 0;
    for (uint32_t i = 0; i < V; i++)
        sum += p1[i] = exp(first[i] / 0.9);
    for (uint32_t i = 0; i < V; i++) {
        double s = 0;

        p1[i] /= sum;
        for (uint32_t j = 0; j < V; j++)
            s += p2[i][j] = exp(second[i][j] / 0.9);
        for (uint32_t j = 0; j < V; j++)
            p2[i][j] /= s;
    }
    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (uint32_t i = 0; i < N; i++) {
            double u = th_uniform(&r);
            int32_t x = u < 0.55 ? 1 : u < 0.6 ? 4 : 2;

            draft[i] = x;
            n_draft[i] = 1;
            memcpy(id + 3 * i, id_of, sizeof id_of);
            memcpy(qp + 3 * i, q_of, sizeof q_of);
            memcpy(mat_row(&l, 2 * i), first, sizeof first);
            memcpy(mat_row(&l, 2 * i + 1), second[x], sizeof second[x]);
            for (uint32_t k = 0; k < 2; k++) {
                q.temperature[2 * i + k] = 0.9f;
                q.seed[2 * i + k] = i;
                q.counter[2 * i + k] = round * 2 + k;
            }
        }
        a.logits = window_view(&l, N, 2);
        a.filter = q.f;
        CALL(&b, b.ops->verify(b.self, &b.e, &a));
        for (uint32_t i = 0; i < N; i++) {
            int32_t t1 = kept[i] == 2 ? draft[i] : next[i];

            ck_require("B2", (t1 >= 0 && t1 < V), "not so: t1 >= 0 && t1 < V");
            one[t1]++;
            if (kept[i] == 2) {
                count[t1][next[i]]++;
                pairs++;
            }
        }
    }
    for (uint32_t i = 0; i < V; i++) {
        double e = p1[i] * N * ROUNDS;

        chi += (one[i] - e) * (one[i] - e) / e;
    }
    ck_require("B2", chi < chi_limit(V - 1), "first token: chi square %g", chi);
    chi = 0;
    sum = 0;
    for (uint32_t i = 0; i < V; i++) {
        double row = 0;

        for (uint32_t j = 0; j < V; j++)
            row += count[i][j];
        for (uint32_t j = 0; row > 0 && j < V; j++) {
            double e = row * p2[i][j];

            chi += (count[i][j] - e) * (count[i][j] - e) / e;
        }
        sum += row > 0 ? V - 1 : 0;
    }
    ck_require("B2", chi < chi_limit(sum), "second token: chi square %g", chi);
    /* As many drafts stand as can: sum min(p, q). */
    sum = 0;
    for (uint32_t k = 0; k < 3; k++)
        sum += fmin(p1[id_of[k]], q_of[k]);
    ck_require("B2", fabs((pairs / (N * ROUNDS)) - (sum)) <= 0.01,
               "accepted %g of %g", pairs / (N * ROUNDS), sum);
    filters_free(&q);
    mat_free(&l);
    free(draft), free(n_draft), free(kept), free(next), free(id), free(qp);
    be_close(&b);
}

/* ---- Device -------------------------------------------------------------- */

void check_device(const struct backend_check *c)
{
    struct seam_device d = { .size = sizeof d };
    void *stream = &d, *event = &d, *mem[3];
    unsigned char src[100], dst[100];
    struct be b;

    be_open(&b, c);
    ck_require("B3", b.t->device(b.self, &d, &b.err) == SEAM_OK,
               "b.t->device(b.self, &d, &b.err) is not as expected");
    ck_require("B3", d.ordinal == -1, "d.ordinal is not as expected");
    ck_require("B3", d.size == sizeof d, "d.size is not as expected");
    ck_require("B3", d.mem_bytes > 0, "d.mem_bytes is not as expected");
    ck_require("B3", d.units > 0, "d.units is not as expected");
    ck_require("B3", d.wave == 1, "d.wave is not as expected");
    ck_require("B3", d.arch[0] != 0, "d.arch[0] is not as expected");
    d.size = 8; /* an older host */
    d.ordinal = 7;
    d.arch[0] = 'x';
    ck_require("B3", b.t->device(b.self, &d, &b.err) == SEAM_OK,
               "b.t->device(b.self, &d, &b.err) is not as expected");
    ck_require("B3", (d.ordinal == -1 && d.arch[0] == 'x'),
               "not so: d.ordinal == -1 && d.arch[0] == 'x'");
    for (uint32_t k = 0; k < 3; k++) {
        static const uint64_t align[] = { 1, 256, 4096 };
        static const uint32_t kind[] = { SEAM_MEM_HOST, SEAM_MEM_PINNED,
                                         SEAM_MEM_DEVICE };

        ck_require(
            "B3",
            b.t->alloc(b.self, kind[k], 100 * k, align[k], &mem[k], &b.err) ==
                SEAM_OK,
            "b.t->alloc(b.self, kind[k], 100 * k, align[k], &mem[k], &b.err) is not as expected");
        ck_require("B3", (mem[k]) != NULL, "mem[k] is not as expected");
        ck_require("B3", (uintptr_t)mem[k] % 64 == 0,
                   "(uintptr_t)mem[k] %% 64 is not as expected");
        ck_require("B3", (uintptr_t)mem[k] % align[k] == 0,
                   "(uintptr_t)mem[k] %% align[k] is not as expected");
    }
    ck_require("B3", b.t->stream_new(b.self, &stream, &b.err) == SEAM_OK,
               "b.t->stream_new(b.self, &stream, &b.err) is not as expected");
    ck_require("B3", !stream, "stream NULL means: run now");
    ck_require("B3", b.t->event_new(b.self, &event, &b.err) == SEAM_OK,
               "b.t->event_new(b.self, &event, &b.err) is not as expected");
    memset(src, 7, sizeof src);
    th_enter(b.h);
    ck_require(
        "B3", b.t->fill(b.self, stream, dst, 9, 100, &b.err) == SEAM_OK,
        "b.t->fill(b.self, stream, dst, 9, 100, &b.err) is not as expected");
    ck_require(
        "B3", b.t->copy(b.self, stream, dst + 1, src, 98, &b.err) == SEAM_OK,
        "b.t->copy(b.self, stream, dst + 1, src, 98, &b.err) is not as expected");
    ck_require(
        "B3", (dst[0] == 9 && dst[1] == 7 && dst[98] == 7 && dst[99] == 9),
        "not so: dst[0] == 9 && dst[1] == 7 && dst[98] == 7 && dst[99] == 9");
    ck_require(
        "B3", b.t->copy(b.self, stream, NULL, NULL, 0, &b.err) == SEAM_OK,
        "b.t->copy(b.self, stream, NULL, NULL, 0, &b.err) is not as expected");
    ck_require(
        "B3", b.t->event_record(b.self, event, stream, &b.err) == SEAM_OK,
        "b.t->event_record(b.self, event, stream, &b.err) is not as expected");
    ck_require(
        "B3", b.t->event_join(b.self, event, stream, &b.err) == SEAM_OK,
        "b.t->event_join(b.self, event, stream, &b.err) is not as expected");
    ck_require("B3", b.t->event_done(b.self, event, &b.err) == 1,
               "b.t->event_done(b.self, event, &b.err) is not as expected");
    ck_require("B3", b.t->stream_wait(b.self, stream, &b.err) == SEAM_OK,
               "b.t->stream_wait(b.self, stream, &b.err) is not as expected");
    th_leave(b.h, "copy, fill and events");
    b.t->event_free(b.self, event);
    b.t->stream_free(b.self, stream);
    for (uint32_t k = 0; k < 3; k++)
        b.t->free(b.self, SEAM_MEM_HOST + k, mem[k]);
    ck_require("B3", !b.t->capture_begin, "a CPU has no graphs");
    ck_require(
        "B3", (!b.t->capture_end && !b.t->graph_launch && !b.t->graph_free),
        "not so: !b.t->capture_end && !b.t->graph_launch && !b.t->graph_free");
    ck_require("B3", (!b.t->link && !b.ops->sum), "no groups, so no sum");
    be_close(&b);
}

/* ---- Refusals ------------------------------------------------------------ */

#define REFUSED(b, op)                                                \
    do {                                                              \
        int rc_;                                                      \
                                                                      \
        memset(&(b)->err, 0, sizeof(b)->err);                         \
        rc_ = (op);                                                   \
        ck_require("E5", (rc_ == SEAM_EINVAL || rc_ == SEAM_ENOTSUP), \
                   "%s gave %d", #op, rc_);                           \
        ck_require("E5", (b)->err.code == rc_,                        \
                   "(b)->err.code is not as expected");               \
        ck_require("E5", (b)->err.text[0] != 0,                       \
                   "(b)->err.text[0] is not as expected");            \
    } while (0)

void check_refusals(const struct backend_check *c)
{
    static const int32_t id[] = { 0, VOCAB };
    struct th_rng r = { 11 };
    struct mat x = mat_new(&r, 2, 8), y = mat_new(&r, 2, 5);
    struct mat l = mat_new(&r, 2, VOCAB);
    struct seam_gemm g = { .size = sizeof g, .x = x.t, .y = y.t };
    struct seam_residual q = { .size = sizeof q, .n_streams = 1 };
    struct seam_sample s = { .size = sizeof s, .n = 2, .logits = l.t };
    struct filters f;
    int32_t token[2];
    void *self = NULL;
    struct be b;

    be_open(&b, c);
    filters_new(&f, 2);
    th_random(b.h, "w", TH_F32, 5, 7, 0, 1);
    th_random(b.h, "e", TH_F32, VOCAB, 8, 0, 1);
    g.w = th_find(b.h, "w")->t;
    REFUSED(&b, b.ops->gemm(b.self, &b.e, &g)); /* k 8 against 7 */
    g.x.shape[1] = 7;
    g.x.dtype = SEAM_F16;
    REFUSED(&b, b.ops->gemm(b.self, &b.e, &g));
    REFUSED(&b, b.ops->embed(b.self, &b.e, id, 2, &th_find(b.h, "e")->t, &x.t));
    REFUSED(&b, b.ops->gather(b.self, &b.e, &x.t, id, 2, &x.t));
    REFUSED(&b, b.ops->glu(b.self, &b.e, &x.t, &y.t, 0, &x.t));
    q.streams = x.t; /* rank 2 */
    REFUSED(&b, b.ops->residual(b.self, &b.e, &q));
    s.filter = f.f;
    s.token = token;
    s.n_top = 33;
    REFUSED(&b, b.ops->sample(b.self, &b.e, &s));
    s.n_top = 0;
    s.filter.temperature = NULL;
    REFUSED(&b, b.ops->sample(b.self, &b.e, &s));
    b.device.ordinal = 0;
    memset(&b.err, 0, sizeof b.err);
    ck_require("E5", b.p->create(&b.create, &self, &b.err) == SEAM_ENOENT,
               "b.p->create(&b.create, &self, &b.err) is not as expected");
    ck_require("E5", b.err.text[0] != 0, "b.err.text[0] is not as expected");
    b.device.ordinal = -1;
    b.limits.act_dtype = SEAM_F16;
    ck_require("E5", b.p->create(&b.create, &self, &b.err) == SEAM_ENOTSUP,
               "b.p->create(&b.create, &self, &b.err) is not as expected");
    b.limits.act_dtype = SEAM_F32;
    for (int n = 1, rc = SEAM_ENOMEM; rc; n++) {
        int64_t live = b.h->live;

        b.h->fail_alloc = n;
        rc = b.p->create(&b.create, &self, &b.err);
        ck_require("E5", (rc == SEAM_OK || rc == SEAM_ENOMEM),
                   "not so: rc == SEAM_OK || rc == SEAM_ENOMEM");
        if (rc)
            ck_require("E5", b.h->live == live, "b.h->live is not as expected");
        else
            b.p->destroy(self);
        ck_require("E5", n < 1000, "n is not as expected");
    }
    b.h->fail_alloc = 0;
    filters_free(&f);
    mat_free(&x);
    mat_free(&y);
    mat_free(&l);
    be_close(&b);
}
