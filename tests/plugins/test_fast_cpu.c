/* The default backend beside its reference twin, on every instruction set this
 * machine has. */
#include "testhost.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kern.h"

static const char *const ISA[] = { "generic", "avx2", "avx512", "avx512vnni",
                                   "amx" };
enum { N_ISA = 5, VOCAB = 3000 };

static bool runs(uint32_t isa)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (isa == 1)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (isa >= 2)
        return __builtin_cpu_supports("avx512f") &&
               __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("avx512dq") &&
               (isa == 2 || __builtin_cpu_supports("avx512vnni")) &&
               (isa != 4 || kern_pick("amx"));
#endif
    return isa == 0;
}

/* ---- Two backends -------------------------------------------------------- */

struct side {
    const struct seam_plugin *p;
    const struct seam_ops *ops;
    void *self;
};

struct pair {
    struct th *h;
    struct side fast, ref;
    struct seam_error err;
    struct seam_exec e;
    struct th_rng r;
};

static void side_open(struct pair *t, struct side *s, const char *name,
                      const char *json)
{
    struct seam_limits limits = { .size = sizeof limits,
                                  .act_dtype = SEAM_F32,
                                  .max_seqs = 4,
                                  .max_tokens = 128,
                                  .tp_size = 1 };
    struct seam_device device = { .size = sizeof device, .ordinal = -1 };
    struct seam_create c = { .size = sizeof c,
                             .limits = &limits,
                             .device = &device };

    th_config(t->h, json);
    c.cfg = th_plugin_cfg(t->h);
    c.model = th_model(t->h);
    s->p = th_plugin(t->h, name);
    cr_assert_eq(s->p->create(&c, &s->self, &t->err), SEAM_OK, "%s: %s", name,
                 t->err.text);
    s->ops = ((const struct seam_backend *)s->p->table)->ops;
}

static struct pair *pair_open(uint32_t isa)
{
    struct pair *t = calloc(1, sizeof *t);
    char json[64], model[64];

    cr_assert_not_null(t);
    snprintf(model, sizeof model, "{\"vocab_size\": %d}", VOCAB);
    snprintf(json, sizeof json, "{\"isa\": \"%s\"}", ISA[isa]);
    t->h = th_new(model, NULL);
    side_open(t, &t->ref, "cpu_ref", "{}");
    side_open(t, &t->fast, "cpu", json);
    t->e =
        (struct seam_exec){ .size = sizeof t->e, .device = -1, .err = &t->err };
    t->r.s = 1000 + isa;
    return t;
}

static void pair_close(struct pair *t)
{
    t->fast.p->destroy(t->fast.self);
    t->ref.p->destroy(t->ref.self);
    th_free(t->h);
    free(t);
}

#define EACH_ISA(isa)                          \
    for (uint32_t isa = 0; isa < N_ISA; isa++) \
        if (runs(isa))

/* n rows of d floats, `gap` floats between them that hold a mark. */
static float *rows(struct th_rng *r, uint64_t n, uint64_t d, uint64_t gap)
{
    float *p = malloc((n * (d + gap) + 1) * sizeof *p);

    cr_assert_not_null(p);
    for (uint64_t i = 0; i < n; i++) {
        for (uint64_t j = 0; j < d; j++)
            p[i * (d + gap) + j] = (float)th_normal(r);
        for (uint64_t j = d; j < d + gap; j++)
            p[i * (d + gap) + j] = 123456;
    }
    return p;
}

static float *copy(const float *p, uint64_t n)
{
    float *q = malloc((n + 1) * sizeof *q);

    cr_assert_not_null(q);
    memcpy(q, p, n * sizeof *q);
    return q;
}

/* Normalised error over rows with gaps; infinite when a gap was written. */
static double apart(const float *a, const float *b, uint64_t n, uint64_t d,
                    uint64_t gap)
{
    double num = 0, den = 1e-30;

    for (uint64_t i = 0; i < n; i++) {
        const float *x = a + i * (d + gap), *y = b + i * (d + gap);

        for (uint64_t j = 0; j < d; j++) {
            if (!isfinite(x[j]))
                return INFINITY;
            num += ((double)x[j] - y[j]) * ((double)x[j] - y[j]);
            den += (double)y[j] * y[j];
        }
        for (uint64_t j = d; j < d + gap; j++)
            if (x[j] != 123456)
                return INFINITY;
    }
    return sqrt(num / den);
}

/* ---- Products ------------------------------------------------------------ */

static void gemm_case(struct pair *t, enum th_store store, uint32_t m,
                      uint32_t n, uint32_t k, bool add, enum th_store bias)
{
    uint32_t gx = m % 3, gy = n % 4;
    float *x = rows(&t->r, m, k, gx), *y0 = rows(&t->r, m, n, gy);
    float *yf = copy(y0, (uint64_t)m * (n + gy));
    float *yr = copy(y0, (uint64_t)m * (n + gy));
    struct seam_gemm a = {
        .size = sizeof a,
        .accumulate = add,
        .x = th_view(x, m, k, k + gx),
    };
    double e;

    th_random(t->h, "w", store, n, k, 0, 1 / sqrt(k));
    a.w = th_find(t->h, "w")->t;
    if (bias) {
        th_random(t->h, "b", bias, n, 0, 0, 1);
        a.bias = th_find(t->h, "b")->t;
    }
    a.y = th_view(yf, m, n, n + gy);
    cr_assert_eq(t->fast.ops->gemm(t->fast.self, &t->e, &a), SEAM_OK, "%s",
                 t->err.text);
    a.y = th_view(yr, m, n, n + gy);
    cr_assert_eq(t->ref.ops->gemm(t->ref.self, &t->e, &a), SEAM_OK);
    e = apart(yf, yr, m, n, gy);
    /* Two planes of activations beside int8, three beside int4. */
    cr_assert_lt(e, store == TH_I8 ? 3e-4 : 1e-6,
                 "store %d, [%u, %u] x [%u], add %d, bias %d: %g", store, n, k,
                 m, add, bias, e);
    /* Each row alone: the same bits. */
    for (uint32_t r = 0; r < m; r++) {
        float *one = y0 + (uint64_t)r * (n + gy);

        a.x = th_view(x + (uint64_t)r * (k + gx), 1, k, k);
        a.y = th_view(one, 1, n, n);
        cr_assert_eq(t->fast.ops->gemm(t->fast.self, &t->e, &a), SEAM_OK);
        cr_assert_eq(memcmp(one, yf + (uint64_t)r * (n + gy), n * sizeof *one),
                     0, "store %d, [%u, %u]: row %u of %u depends on others",
                     store, n, k, r, m);
    }
    free(x), free(y0), free(yf), free(yr);
}

Test(cpu, multiplies_as_its_reference_does)
{
    static const uint32_t ms[] = { 1, 2, 3, 4, 5, 7, 13, 15, 16, 17, 49, 95 };
    static const struct {
        enum th_store store;
        uint32_t n, k;
    } w[] = {
        { TH_F32, 1, 1 },      { TH_F32, 37, 100 },  { TH_F16, 40, 67 },
        { TH_BF16, 16, 1024 }, { TH_BF16, 9, 1023 }, { TH_BF16, 33, 2100 },
        { TH_FP8, 140, 260 },  { TH_GPTQ, 8, 32 },   { TH_GPTQ, 160, 64 },
        { TH_GPTQ, 264, 96 },  { TH_GPTQ, 24, 192 }, { TH_I8, 1, 32 },
        { TH_I8, 33, 96 },     { TH_I8, 307, 160 },
    };

    EACH_ISA(isa)
    {
        struct pair *t = pair_open(isa);

        for (uint32_t i = 0; i < sizeof w / sizeof *w; i++)
            for (uint32_t j = 0; j < sizeof ms / sizeof *ms; j++)
                gemm_case(t, w[i].store, ms[j], w[i].n, w[i].k, (i + j) % 2,
                          j % 3 == 1   ? TH_F32
                          : j % 3 == 2 ? TH_BF16
                                       : (enum th_store)0);
        pair_close(t);
    }
}

/* Zero points that are all 8 take a path of their own. */
Test(cpu, multiplies_by_symmetric_int4)
{
    EACH_ISA(isa)
    {
        struct pair *t = pair_open(isa);

        for (uint32_t m = 1; m < 20; m += 3) {
            float *x = rows(&t->r, m, 256, 0), y[2][20 * 160];
            struct seam_gemm a = { .size = sizeof a,
                                   .x = th_view(x, m, 256, 256) };
            struct th_weight *w;

            th_random(t->h, "w", TH_GPTQ, 160, 256, 0, .1);
            w = th_find(t->h, "w");
            memset(w->zero, 0x77, 256 / 32 * 160 / 2);
            a.w = w->t;
            a.y = th_view(y[0], m, 160, 160);
            cr_assert_eq(t->fast.ops->gemm(t->fast.self, &t->e, &a), SEAM_OK);
            a.y = th_view(y[1], m, 160, 160);
            cr_assert_eq(t->ref.ops->gemm(t->ref.self, &t->e, &a), SEAM_OK);
            cr_assert_lt(apart(y[0], y[1], m, 160, 0), 1e-6);
            free(x);
        }
        pair_close(t);
    }
}

Test(cpu, refuses_products_that_do_not_fit)
{
    struct pair *t = pair_open(0);
    float x[64] = { 0 }, y[64] = { 0 };
    struct seam_gemm a = { .size = sizeof a };

    th_random(t->h, "w", TH_F32, 4, 8, 0, 1);
    a.w = th_find(t->h, "w")->t;
    a.x = th_view(x, 2, 8, 8);
    a.y = th_view(y, 2, 5, 5);
    cr_expect_eq(t->fast.ops->gemm(t->fast.self, &t->e, &a), SEAM_EINVAL);
    cr_expect_neq(t->err.text[0], 0);
    a.y = th_view(y, 2, 4, 4);
    a.x = th_view(x, 2, 7, 8);
    cr_expect_eq(t->fast.ops->gemm(t->fast.self, &t->e, &a), SEAM_EINVAL);
    a.x = th_view(x, 2, 8, 8);
    a.x.dtype = SEAM_BF16;
    cr_expect_eq(t->fast.ops->gemm(t->fast.self, &t->e, &a), SEAM_EINVAL);
    a.x.dtype = SEAM_F32;
    a.w.dtype = SEAM_F4E2M1;
    cr_expect_eq(t->fast.ops->gemm(t->fast.self, &t->e, &a), SEAM_EINVAL);
    pair_close(t);
}

/* ---- Rows ---------------------------------------------------------------- */

Test(cpu, embeds_norms_gathers_and_gates_as_its_reference_does)
{
    static const uint32_t ds[] = { 1, 7, 16, 100, 1030 };
    static const enum th_store stores[] = { TH_F32, TH_F16, TH_BF16, TH_FP8 };

    EACH_ISA(isa)
    {
        struct pair *t = pair_open(isa);

        for (uint32_t i = 0; i < 5; i++)
            for (uint32_t s = 0; s < 4; s++) {
                uint32_t d = ds[i], n = 1 + 9 * s, gap = i % 3;
                float *x = rows(&t->r, n, d, gap), *u = rows(&t->r, n, d, gap);
                float *y[2] = { rows(&t->r, n, d, gap),
                                rows(&t->r, n, d, gap) };
                float *z[2] = { rows(&t->r, n, 3 * d, 0),
                                rows(&t->r, n, 3 * d, 0) };
                int32_t id[32], row[32];
                struct seam_tensor vx = th_view(x, n, d, d + gap);
                struct seam_tensor vu = th_view(u, n, d, d + gap), w, table;

                th_random(t->h, "table", stores[s], 50, d, 0, 1);
                th_random(t->h, "w", s == 3 ? TH_F32 : stores[s], d, 0, 1, .3);
                table = th_find(t->h, "table")->t;
                w = th_find(t->h, "w")->t;
                for (uint32_t r = 0; r < n; r++) {
                    id[r] = (int32_t)th_below(&t->r, 51) - 1;
                    row[r] = (int32_t)th_below(&t->r, n + 1) - 1;
                }
                for (uint32_t k = 0; k < 6; k++) {
                    for (uint32_t b = 0; b < 2; b++) {
                        const struct side *o = b ? &t->ref : &t->fast;
                        struct seam_tensor v = th_view(y[b], n, d, d + gap);
                        struct seam_tensor v3 = th_view(z[b], n, 3 * d, 3 * d);
                        int rc = 0;

                        v3.rank = 3;
                        v3.shape[1] = 3;
                        v3.shape[2] = d;
                        v3.stride[1] = d * 4;
                        switch (k) {
                        case 0:
                            rc = o->ops->embed(o->self, &t->e, id, n, &table,
                                               &v);
                            break;
                        case 1:
                            rc = o->ops->embed(o->self, &t->e, id, n, &table,
                                               &v3);
                            break;
                        case 2:
                            rc = o->ops->norm(o->self, &t->e, &vx, &w, 1e-5f,
                                              &v);
                            break;
                        case 3:
                            rc = o->ops->glu(o->self, &t->e, &vx, &vu, .5f, &v);
                            break;
                        case 4:
                            rc = o->ops->glu(o->self, &t->e, &vx, &vu, 0, &v);
                            break;
                        default:
                            rc =
                                o->ops->gather(o->self, &t->e, &vx, row, n, &v);
                        }
                        cr_assert_eq(rc, SEAM_OK, "op %u: %s", k, t->err.text);
                    }
                    cr_assert_lt(apart(y[0], y[1], n, d, gap), 1e-6,
                                 "%s op %u d %u", ISA[isa], k, d);
                    cr_assert_lt(apart(z[0], z[1], n, 3 * d, 0),
                                 k ? 1e-6 : 1e30);
                }
                free(x), free(u), free(y[0]), free(y[1]), free(z[0]),
                    free(z[1]);
            }
        pair_close(t);
    }
}

Test(cpu, lets_numbers_that_are_none_through)
{
    EACH_ISA(isa)
    {
        struct pair *t = pair_open(isa);
        float g[40], u[40], y[40];
        struct seam_tensor vg = th_view(g, 1, 40, 40);
        struct seam_tensor vu = th_view(u, 1, 40, 40);
        struct seam_tensor vy = th_view(y, 1, 40, 40);

        for (uint32_t i = 0; i < 40; i++)
            g[i] = u[i] = 1;
        g[3] = NAN;
        u[38] = NAN;
        g[20] = -1e30f;
        cr_assert_eq(t->fast.ops->glu(t->fast.self, &t->e, &vg, &vu, 10, &vy),
                     SEAM_OK);
        for (uint32_t i = 0; i < 40; i++)
            cr_expect_eq(isnan(y[i]) != 0, i == 3 || i == 38, "%s: %u is %g",
                         ISA[isa], i, y[i]);
        cr_expect_eq(fabsf(y[20]), 0);
        pair_close(t);
    }
}

/* ---- The residual -------------------------------------------------------- */

static struct seam_tensor streams_of(float *p, uint32_t n, uint32_t S,
                                     uint32_t d, uint32_t gap)
{
    struct seam_tensor t = th_view(p, n, S * d, S * d + gap);

    t.rank = 3;
    t.shape[1] = S;
    t.shape[2] = d;
    t.stride[1] = (int64_t)d * 4;
    return t;
}

/* What is given: 1 y, 2 mix in, 4 fn, 8 w, 16 x, 32 mean. */
static void residual_case(struct pair *t, uint32_t n, uint32_t S, uint32_t d,
                          enum th_store store, uint32_t what)
{
    uint32_t n_map = 2 * S + S * S, n_mix = S + S * S, gap = n % 3;
    float *y = rows(&t->r, n, d, 0), *X0 = rows(&t->r, n, S * d, gap);
    float *mix0 = rows(&t->r, n, n_mix, 0), *X[3], *mix[3], *x[3], *mean[3];
    struct seam_residual a = {
        .size = sizeof a,
        .n_streams = S,
        .sinkhorn = 20,
        .eps_norm = 1e-5f,
        .eps_mix = 1e-6f,
    };

    th_random(t->h, "fn", store, n_map, S * d, 0, .05);
    th_random(t->h, "base", TH_F32, n_map, 0, 0, 1);
    th_random(t->h, "scale", TH_F32, 3, 0, 1, .2);
    th_random(t->h, "w", store, d, 0, 1, .3);
    if (what & 1)
        a.y = th_view(y, n, d, d);
    if (what & 4) {
        a.fn = th_find(t->h, "fn")->t;
        a.base = th_find(t->h, "base")->t;
        a.scale = th_find(t->h, "scale")->t;
    }
    if (what & 8)
        a.w = th_find(t->h, "w")->t;
    /* 0 the reference, 1 all rows at once, 2 one by one. */
    for (uint32_t b = 0; b < 3; b++) {
        const struct side *o = b ? &t->fast : &t->ref;

        X[b] = copy(X0, (uint64_t)n * (S * d + gap));
        mix[b] = copy(mix0, (uint64_t)n * n_mix);
        x[b] = calloc((uint64_t)n * d + 1, sizeof **x);
        mean[b] = calloc((uint64_t)n * d + 1, sizeof **mean);
        for (uint32_t r = 0; r < (b == 2 ? n : 1); r++) {
            uint32_t m = b == 2 ? 1 : n;

            a.streams =
                streams_of(X[b] + (uint64_t)r * (S * d + gap), m, S, d, gap);
            if (what & 1)
                a.y = th_view(y + (uint64_t)r * d, m, d, d);
            if (what & 6)
                a.mix = th_view(mix[b] + (uint64_t)r * n_mix, m, n_mix, n_mix);
            if (what & 16)
                a.x = th_view(x[b] + (uint64_t)r * d, m, d, d);
            if (what & 32)
                a.mean = th_view(mean[b] + (uint64_t)r * d, m, d, d);
            cr_assert_eq(o->ops->residual(o->self, &t->e, &a), SEAM_OK, "%s",
                         t->err.text);
        }
    }
    cr_assert_lt(apart(X[1], X[0], n, S * d, gap), 1e-6, "n %u S %u d %u %x", n,
                 S, d, what);
    cr_assert_lt(apart(mix[1], mix[0], n, n_mix, 0), 5e-6,
                 "n %u S %u d %u %x: mix %g", n, S, d, what,
                 apart(mix[1], mix[0], n, n_mix, 0));
    cr_assert_lt(apart(x[1], x[0], n, d, 0), 5e-6, "n %u S %u d %u %x: x %g", n,
                 S, d, what, apart(x[1], x[0], n, d, 0));
    cr_assert_lt(apart(mean[1], mean[0], n, d, 0), 1e-6);
    cr_assert_eq(memcmp(X[1], X[2], (uint64_t)n * (S * d + gap) * 4), 0,
                 "n %u S %u d %u: streams depend on other rows", n, S, d);
    cr_assert_eq(memcmp(mix[1], mix[2], (uint64_t)n * n_mix * 4), 0,
                 "n %u S %u d %u: mix depends on other rows", n, S, d);
    cr_assert_eq(memcmp(x[1], x[2], (uint64_t)n * d * 4), 0,
                 "n %u S %u d %u: x depends on other rows", n, S, d);
    for (uint32_t b = 0; b < 3; b++)
        free(X[b]), free(mix[b]), free(x[b]), free(mean[b]);
    free(y), free(X0), free(mix0);
}

Test(cpu, carries_the_residual_as_its_reference_does)
{
    static const uint32_t what[] = {
        1,           1 | 2,  4 | 8 | 16,          1 | 2 | 4 | 8 | 16,
        1 | 8 | 16,  16,     1 | 2 | 4 | 16 | 32, 32,
        8 | 16 | 32, 1 | 32,
    };
    static const uint32_t shape[][3] = { { 1, 4, 64 },   { 3, 1, 5 },
                                         { 7, 2, 33 },   { 13, 4, 100 },
                                         { 2, 5, 1100 }, { 1, 4, 2050 } };

    EACH_ISA(isa)
    {
        struct pair *t = pair_open(isa);

        for (uint32_t i = 0; i < sizeof shape / sizeof *shape; i++)
            for (uint32_t k = 0; k < sizeof what / sizeof *what; k++)
                residual_case(t, shape[i][0], shape[i][1], shape[i][2],
                              k % 2 ? TH_BF16 : TH_F32, what[k]);
        /* More rows than there is room for partial sums at once. */
        residual_case(t, 400, 8, 16, TH_F32, 1 | 2 | 4 | 8 | 16);
        pair_close(t);
    }
}

/* ---- Sampling ------------------------------------------------------------ */

enum { ROWS = 8 };

/* Filters of n rows, each setting on in about half of them. */
struct filters {
    float temperature[ROWS], top_p[ROWS], min_p[ROWS];
    int32_t top_k[ROWS], start[ROWS + 1], id[ROWS * 4], mask_row[ROWS];
    float div[ROWS * 4], add[ROWS * 4];
    uint64_t seed[ROWS], counter[ROWS];
    uint32_t mask[2][(VOCAB + 31) / 32];
};

static struct seam_filter filters_draw(struct filters *f, struct th_rng *r,
                                       uint32_t n, uint32_t vocab)
{
    static const float tops[] = { 1, .99f, .9f, .5f, .01f, 0 };
    static const int32_t ks[] = { 0, 1, 2, 40, 700, 100000 };

    memset(f, 0, sizeof *f);
    for (uint32_t i = 0; i < n; i++) {
        f->temperature[i] = th_below(r, 5) ? .2f + (float)th_uniform(r) : 0;
        f->top_p[i] = tops[th_below(r, 6)];
        f->top_k[i] = ks[th_below(r, 6)];
        f->min_p[i] = th_below(r, 2) ? (float)th_uniform(r) * .3f : 0;
        f->seed[i] = th_u64(r);
        f->counter[i] = th_u64(r);
        f->mask_row[i] = (int32_t)th_below(r, 3) - 1;
        f->start[i + 1] = f->start[i] + (int32_t)th_below(r, 5);
        for (int32_t j = f->start[i]; j < f->start[i + 1]; j++) {
            f->id[j] = (j - f->start[i]) * 7 % (int32_t)vocab;
            f->div[j] = .5f + (float)th_uniform(r);
            f->add[j] = (float)th_normal(r) * 5;
        }
    }
    for (uint32_t i = 0; i < (vocab + 31) / 32; i++) {
        f->mask[0][i] = (uint32_t)th_u64(r);
        f->mask[1][i] = (uint32_t)(th_u64(r) & th_u64(r) & th_u64(r));
    }
    f->mask[0][0] |= 1;
    f->mask[1][0] |= 1;
    return (struct seam_filter){
        .temperature = f->temperature,
        .top_p = f->top_p,
        .min_p = f->min_p,
        .top_k = f->top_k,
        .seed = f->seed,
        .counter = f->counter,
        .bias_start = f->start,
        .bias_id = f->id,
        .bias_div = f->div,
        .bias_add = f->add,
        .mask = f->mask[0],
        .mask_row = f->mask_row,
    };
}

/* Logits with many exact ties, coarse enough that no two differ by rounding. */
static void draw_logits(float *l, struct th_rng *r, uint64_t n)
{
    float width = (float)(1 + th_below(r, 3));

    for (uint64_t i = 0; i < n; i++)
        l[i] = rintf((float)th_normal(r) * width * 64) / 64;
}

Test(cpu, samples_as_its_reference_does)
{
    static const uint32_t vocabs[] = { 1, 5, 255, 256, 257, VOCAB };

    EACH_ISA(isa)
    {
        struct pair *t = pair_open(isa);
        float *l[2] = { malloc(ROWS * VOCAB * 4), malloc(ROWS * VOCAB * 4) };
        static struct filters f;

        for (uint32_t round = 0; round < 60; round++) {
            uint32_t n_vocab = vocabs[round % 6];
            int32_t token[2][ROWS], top[2][ROWS * 32];
            float lp[2][ROWS], tlp[2][ROWS * 32];
            struct seam_sample a = { .size = sizeof a, .n = ROWS };

            a.filter = filters_draw(&f, &t->r, ROWS, n_vocab);
            a.n_top = round % 3 ? th_below(&t->r, 33) : 0;
            draw_logits(l[0], &t->r, (uint64_t)ROWS * n_vocab);
            if (round % 7 == 3)
                l[0][3 * n_vocab + n_vocab / 2] = round % 2 ? NAN : INFINITY;
            /* Finite, though the sum of the largest vocabulary is not. */
            for (uint32_t i = 0; i < n_vocab && round % 7 == 5; i += 50) {
                l[0][4 * n_vocab + i] = -1e37f;
                l[0][5 * n_vocab + i] = 1e37f;
            }
            memcpy(l[1], l[0], (uint64_t)ROWS * n_vocab * 4);
            for (uint32_t b = 0; b < 2; b++) {
                const struct side *o = b ? &t->ref : &t->fast;

                a.logits = th_view(l[b], ROWS, n_vocab, n_vocab);
                a.token = token[b];
                a.logprob = lp[b];
                a.top_id = top[b];
                a.top_logprob = tlp[b];
                cr_assert_eq(o->ops->sample(o->self, &t->e, &a), SEAM_OK, "%s",
                             t->err.text);
            }
            for (uint32_t r = 0; r < ROWS; r++) {
                cr_assert_eq(token[0][r], token[1][r],
                             "%s: vocab %u row %u: %d, reference %d (t %g k %d "
                             "p %g m %g)",
                             ISA[isa], n_vocab, r, token[0][r], token[1][r],
                             f.temperature[r], f.top_k[r], f.top_p[r],
                             f.min_p[r]);
                if (!isfinite(lp[1][r]))
                    cr_assert(isnan(lp[0][r]) ? isnan(lp[1][r])
                                              : lp[0][r] == lp[1][r]);
                else
                    cr_assert_float_eq(lp[0][r], lp[1][r], 1e-5);
                for (uint32_t k = r * a.n_top; k < (r + 1) * a.n_top; k++) {
                    cr_assert_eq(top[0][k], top[1][k], "%s: top %u of row %u",
                                 ISA[isa], k, r);
                    if (isfinite(tlp[1][k]))
                        cr_assert_float_eq(tlp[0][k], tlp[1][k], 1e-5);
                }
            }
        }
        free(l[0]), free(l[1]);
        pair_close(t);
    }
}

Test(cpu, verifies_as_its_reference_does)
{
    enum { SEQS = 2, WINDOW = 4 };

    EACH_ISA(isa)
    {
        struct pair *t = pair_open(isa);
        float *l = malloc(SEQS * WINDOW * VOCAB * 4);
        static struct filters f;

        for (uint32_t round = 0; round < 120; round++) {
            uint32_t n = round % 2 ? 40 : VOCAB, width = round % 3 ? 5 : 0;
            int32_t draft[SEQS * 3], n_draft[SEQS], kept[2][SEQS];
            int32_t next[2][SEQS], q_id[SEQS * 3 * 5];
            float q[SEQS * 3 * 5];
            struct seam_verify a = {
                .size = sizeof a,
                .n_seqs = SEQS,
                .window = WINDOW,
                .q_width = width,
                .q_id = q_id,
                .q = q,
                .draft = draft,
                .n_draft = n_draft,
            };

            a.filter = filters_draw(&f, &t->r, SEQS * WINDOW, n);
            draw_logits(l, &t->r, (uint64_t)SEQS * WINDOW * n);
            for (uint32_t i = 0; i < SEQS; i++) {
                n_draft[i] = (int32_t)th_below(&t->r, WINDOW);
                for (uint32_t j = i * 3; j < i * 3 + 3; j++) {
                    float sum = 0;

                    for (uint32_t c = 0; c < 5; c++) {
                        q_id[j * 5 + c] = (int32_t)(c * 8 + j);
                        sum += q[j * 5 + c] = (float)th_uniform(&t->r);
                    }
                    for (uint32_t c = 0; c < 5; c++)
                        q[j * 5 + c] /= sum;
                    draft[j] = q_id[j * 5 + th_below(&t->r, 5)];
                    /* likely, so that some stand */
                    l[((uint64_t)i * WINDOW + j % 3) * n + (uint32_t)draft[j]] =
                        8;
                }
            }
            if (round % 11 == 5)
                l[n] = NAN;
            a.logits = th_view(l, SEQS, WINDOW * n, WINDOW * n);
            a.logits.rank = 3;
            a.logits.shape[1] = WINDOW;
            a.logits.shape[2] = n;
            a.logits.stride[1] = n * 4;
            for (uint32_t b = 0; b < 2; b++) {
                const struct side *o = b ? &t->ref : &t->fast;

                a.kept = kept[b];
                a.next = next[b];
                cr_assert_eq(o->ops->verify(o->self, &t->e, &a), SEAM_OK, "%s",
                             t->err.text);
            }
            for (uint32_t i = 0; i < SEQS; i++) {
                cr_assert_eq(kept[0][i], kept[1][i], "round %u: %d, ref %d",
                             round, kept[0][i], kept[1][i]);
                cr_assert_eq(next[0][i], next[1][i], "round %u: %d, ref %d",
                             round, next[0][i], next[1][i]);
            }
        }
        free(l);
        pair_close(t);
    }
}

Test(cpu, creates_or_leaves_nothing)
{
    struct pair *t = pair_open(0);
    struct seam_limits limits = { .size = sizeof limits,
                                  .act_dtype = SEAM_F32,
                                  .max_tokens = 8,
                                  .tp_size = 1 };
    struct seam_device device = { .size = sizeof device, .ordinal = -1 };
    struct seam_create c = { .size = sizeof c,
                             .limits = &limits,
                             .device = &device,
                             .cfg = th_plugin_cfg(t->h),
                             .model = th_model(t->h) };
    int64_t live = t->h->live;
    void *self = NULL;
    int rc = SEAM_ENOMEM;

    for (int n = 1; rc; n++) {
        t->h->fail_alloc = n;
        rc = t->fast.p->create(&c, &self, &t->err);
        cr_assert(rc == SEAM_OK || rc == SEAM_ENOMEM);
        if (rc)
            cr_assert_eq(t->h->live, live, "allocation %d failed", n);
        cr_assert_lt(n, 1000);
    }
    t->h->fail_alloc = 0;
    t->fast.p->destroy(self);
    cr_assert_eq(t->h->live, live);
    limits.act_dtype = SEAM_F16;
    cr_expect_eq(t->fast.p->create(&c, &self, &t->err), SEAM_ENOTSUP);
    limits.act_dtype = SEAM_F32;
    device.ordinal = 1;
    cr_expect_eq(t->fast.p->create(&c, &self, &t->err), SEAM_ENOENT);
    device.ordinal = -1;
    th_config(t->h, "{\"isa\": \"none\"}");
    c.cfg = th_plugin_cfg(t->h);
    cr_expect_eq(t->fast.p->create(&c, &self, &t->err), SEAM_EDATA);
    cr_expect(strstr(t->err.text, "none"), "%s", t->err.text);
    pair_close(t);
}
