/* weights.dense: what is quantised, into what, and how close it stays. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/checkpoint/dense.h"
#include "core/checkpoint/dense_group.h"
#include "plugins/common/weights.h"

static void backwards(void *ctx, uint32_t n, seam_task *fn, void *arg)
{
    (void)ctx;
    while (n--)
        fn(arg, n, 0);
}

static float noise(uint32_t *s)
{
    float v = 0;

    for (int i = 0; i < 4; i++) {
        *s = *s * 1664525 + 1013904223;
        v += (float)(*s >> 8) / 16777216 - 0.5f;
    }
    return v;
}

/* The root of the mean squared error beside that of the values. */
static double lost(uint16_t dtype, enum seam_dense_form form, int64_t n,
                   int64_t k, struct seam_tensor *shape)
{
    uint64_t elem = dtype == SEAM_F32 ? 4 : 2;
    char *p = calloc((size_t)(n * k), elem), why[160];
    struct seam_tensor t = { .data = p,
                             .bytes = (uint64_t)(n * k) * elem,
                             .shape = { n, k },
                             .stride = { k * (int64_t)elem },
                             .dtype = dtype,
                             .rank = 2,
                             .device = -1 };
    struct seam_error err;
    struct seam_dense d;
    double num = 0, den = 0;
    uint32_t seed = 7;

    cr_assert_not_null(p);
    for (int64_t i = 0; i < n * k; i++) {
        float f = .05f * noise(&seed);
        uint16_t h;

        /* The upper half of 0x2xxx is a small positive half. */
        h = dtype == SEAM_BF16
                ? weights_to_bf16(f)
                : (uint16_t)((f < 0 ? 0xa000 : 0x2000) | (seed >> 9 & 0xfff));
        memcpy(p + (uint64_t)i * elem, elem == 4 ? (void *)&f : (void *)&h,
               elem);
    }
    cr_assert_eq(seam_dense_make(&d, &t, form, backwards, NULL, &err), 0);
    cr_assert_eq(weights_check(&d.t, (uint64_t)n, (uint64_t)k, why, sizeof why),
                 SEAM_OK, "%s", why);
    for (int64_t o = 0; o < n; o++)
        for (int64_t i = 0; i < k; i++) {
            double a = weights_at(&t, (uint64_t)o, (uint64_t)i);
            double b = weights_at(&d.t, (uint64_t)o, (uint64_t)i);

            num += (a - b) * (a - b);
            den += a * a;
        }
    *shape = d.t;
    free(d.p);
    free(p);
    return sqrt(num / den);
}

Test(dense, int8_stays_within_a_hundredth)
{
    static const int64_t k[] = { 32, 64, 96, 128, 320, 384 };
    static const uint32_t group[] = { 32, 64, 32, 128, 64, 128 };
    static const uint16_t dtype[] = { SEAM_BF16, SEAM_F16, SEAM_F32 };
    struct seam_tensor t;

    for (uint32_t i = 0; i < 6; i++)
        for (uint32_t j = 0; j < 3; j++) {
            double e = lost(dtype[j], SEAM_DENSE_I8, 19, k[i], &t);

            cr_expect_lt(e, .01, "k %lld dtype %u: %g", (long long)k[i],
                         dtype[j], e);
            cr_expect_gt(e, 1e-5);
            cr_expect_eq(t.dtype, SEAM_I8);
            cr_expect_eq(t.quant, SEAM_Q_GROUP);
            cr_expect_eq(t.group_cols, group[i]);
        }
}

Test(dense, fills_pieces_of_several_large_pages)
{
    struct seam_tensor t;
    double e = lost(SEAM_BF16, SEAM_DENSE_I8, 820, 2560, &t);

    cr_expect_gt(t.bytes, 2u << 20);
    cr_expect_lt(e, .01, "%g", e);
    e = lost(SEAM_BF16, SEAM_DENSE_I4, 1640, 2560, &t);
    cr_expect_geq(t.bytes, 2u << 20);
    cr_expect_lt(e, .125, "%g", e);
}

Test(dense, int4_stays_within_an_eighth)
{
    static const uint16_t dtype[] = { SEAM_BF16, SEAM_F16, SEAM_F32 };
    struct seam_tensor t;

    for (int64_t n = 8; n <= 40; n += 8)
        for (uint32_t j = 0; j < 3; j++) {
            double e = lost(dtype[j], SEAM_DENSE_I4, n, 256, &t);

            cr_expect_lt(e, .125, "n %lld dtype %u: %g", (long long)n, dtype[j],
                         e);
            cr_expect_gt(e, 1e-3);
            cr_expect_eq(t.dtype, SEAM_I4);
            cr_expect_eq(t.quant, SEAM_Q_GPTQ);
        }
}

enum { AWKWARD = 12 };

/* Groups of every kind: the first are awkward, the others noise of any size. */
static void group_of(uint32_t i, uint32_t *seed, float *x)
{
    static const float odd[AWKWARD] = {
        0,     -0.0f, 1e-45f, 1e-38f, 3e38f,    -1.5f,
        65504, -7e4f, 1e6f,   NAN,    INFINITY, -INFINITY,
    };

    for (uint32_t j = 0; j < SEAM_GROUP_I4; j++) {
        x[j] = ldexpf(noise(seed), (int)(i % 41) - 30);
        if (i < AWKWARD)
            x[j] = odd[i];
        else if (i < 2 * AWKWARD && j % 37 == i % 37)
            x[j] = odd[i - AWKWARD];
        else if (i % 5 == 0) /* halves, which round to even */
            x[j] = rintf(x[j] * 4) / 2;
    }
}

Test(dense, every_machine_makes_the_same_bits)
{
    const struct seam_dense_group *any = &seam_dense_group_any;
    const struct seam_dense_group *fast = seam_dense_group_pick();
    uint32_t seed = 11;

    if (fast == any)
        cr_skip_test("this machine has no AVX2");
    for (uint32_t i = 0; i < 3000; i++) {
        float x[SEAM_GROUP_I4], y[2][SEAM_GROUP_I4];
        uint32_t w[2][SEAM_GROUP_I4 / 8], n = i % 3 ? 32 * (i % 3) : 128;
        uint16_t h[SEAM_GROUP_I4];
        int8_t q[2][SEAM_GROUP_I4];
        float a, b;

        group_of(i, &seed, x);
        cr_expect_eq(any->nibbles(x, w[0]), fast->nibbles(x, w[1]),
                     "group %u: scales of int4", i);
        cr_expect_arr_eq(w[0], w[1], sizeof w[0], "group %u: int4", i);
        a = any->bytes(x, n, q[0]);
        b = fast->bytes(x, n, q[1]);
        cr_expect_arr_eq(&a, &b, sizeof a, "group %u: %g, %g", i, (double)a,
                         (double)b);
        cr_expect_arr_eq(q[0], q[1], n, "group %u: int8", i);
        for (uint32_t j = 0; j < SEAM_GROUP_I4; j++)
            h[j] = (uint16_t)(i * SEAM_GROUP_I4 + j) & 0xfbff; /* no NaN */
        any->widen(h, i % 2 ? SEAM_F16 : SEAM_BF16, n, y[0]);
        fast->widen(h, i % 2 ? SEAM_F16 : SEAM_BF16, n, y[1]);
        cr_expect_arr_eq(y[0], y[1], n * sizeof *y[0], "group %u: widened", i);
    }
}

Test(dense, what_is_no_number_becomes_none)
{
    float x[SEAM_GROUP_I4];
    uint32_t w[SEAM_GROUP_I4 / 8];
    int8_t q[SEAM_GROUP_I4];

    for (uint32_t j = 0; j < SEAM_GROUP_I4; j++)
        x[j] = j == 5 ? NAN : 1;
    cr_expect_eq(seam_dense_group_any.nibbles(x, w), 0);
    cr_expect_eq(seam_dense_group_any.bytes(x, SEAM_GROUP_I4, q), 1.0f / 127);
    cr_expect_eq(q[5], 0);
    cr_expect_eq(q[6], 127);
}

Test(dense, a_layer_of_zeros_stays_one)
{
    static float zero[8 * 128];
    struct seam_tensor t = { .data = zero,
                             .bytes = sizeof zero,
                             .shape = { 8, 128 },
                             .stride = { 512 },
                             .dtype = SEAM_F32,
                             .rank = 2,
                             .device = -1 };

    for (int form = SEAM_DENSE_I8; form <= SEAM_DENSE_I4; form++) {
        struct seam_error err;
        struct seam_dense d;

        cr_assert_eq(seam_dense_make(&d, &t, (enum seam_dense_form)form,
                                     backwards, NULL, &err),
                     0);
        for (uint32_t i = 0; i < 8 * 128; i++)
            cr_assert_eq(weights_at(&d.t, i / 128, i % 128), 0);
        free(d.p);
    }
}

Test(dense, chooses_by_name_and_shape)
{
    static const struct {
        const char *name;
        int64_t n, k;
        enum seam_dense_form i8, i4;
    } c[] = {
        { "a.layers.0.self_attn.q_proj", 256, 256, SEAM_DENSE_I8,
          SEAM_DENSE_I4 },
        { "a.layers.0.self_attn.q_proj", 256, 192, SEAM_DENSE_I8,
          SEAM_DENSE_I8 },
        { "a.layers.0.self_attn.q_proj", 9, 256, SEAM_DENSE_I8, SEAM_DENSE_I8 },
        { "a.layers.0.self_attn.q_proj", 256, 40, SEAM_DENSE_STORED,
          SEAM_DENSE_STORED },
        { "a.layers.0.mlp.shared_experts.up_proj", 64, 128, SEAM_DENSE_I8,
          SEAM_DENSE_I4 },
        { "a.layers.0.mlp.down_proj", 64, 128, SEAM_DENSE_I8, SEAM_DENSE_I4 },
        { "lm_head", 640, 128, SEAM_DENSE_I8, SEAM_DENSE_I8 },
        { "a.layers.3.self_attn.kv_b_proj", 128, 128, SEAM_DENSE_I8,
          SEAM_DENSE_I8 },
        { "a.layers.3.mlp.gate", 128, 128, SEAM_DENSE_STORED,
          SEAM_DENSE_STORED },
        { "a.layers.3.mlp.experts.7.up_proj", 128, 128, SEAM_DENSE_STORED,
          SEAM_DENSE_STORED },
        { "a.embed_tokens", 640, 128, SEAM_DENSE_STORED, SEAM_DENSE_STORED },
        { "a.layers.3.self_attn.indexer.wk", 128, 128, SEAM_DENSE_STORED,
          SEAM_DENSE_STORED },
    };

    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        cr_expect_eq(
            seam_dense_form_of(c[i].name, c[i].n, c[i].k, SEAM_DENSE_STORED),
            SEAM_DENSE_STORED);
        cr_expect_eq(
            seam_dense_form_of(c[i].name, c[i].n, c[i].k, SEAM_DENSE_I8),
            c[i].i8, "%s", c[i].name);
        cr_expect_eq(
            seam_dense_form_of(c[i].name, c[i].n, c[i].k, SEAM_DENSE_I4),
            c[i].i4, "%s", c[i].name);
    }
}
