/* The products of packed rows, table beside table: the same bits from vectors
 * and from tiles, however many rows and outputs are computed together, and close
 * to the product of the packed numbers.  Every buffer ends where it must. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kern.h"

#if defined(__x86_64__)
#include "kern_fast.h"

static float noise(uint32_t *s)
{
    *s = *s * 1664525 + 1013904223;
    return (float)(*s >> 8) / 8388608 - 1;
}

/* Data, scales and zero points of random weights, each of its exact size. */
struct weight {
    struct kern_mat m;
    unsigned char *data, *scale, *zero;
};

static void fill(unsigned char *p, uint64_t n, uint32_t *s)
{
    for (uint64_t i = 0; i < n; i++) {
        noise(s);
        p[i] = (unsigned char)(*s >> 24);
    }
}

static struct weight weight(uint16_t dtype, uint32_t n, uint32_t k, uint32_t gc,
                            bool zeros, uint32_t *s)
{
    uint64_t groups = (uint64_t)k / gc * n;
    uint64_t bytes = (uint64_t)n * k / (dtype == SEAM_I4 ? 2 : 1);
    struct weight w = { .data = malloc(bytes),
                        .scale = malloc(groups * sizeof(float)),
                        .zero = malloc(groups / 2 + 4) };

    fill(w.data, bytes, s);
    for (uint64_t i = 0; dtype == SEAM_I8 && i < bytes; i++)
        w.data[i] = w.data[i] == 0x80 ? 0 : w.data[i];
    for (uint64_t i = 0; i < groups; i++)
        ((float *)w.scale)[i] = noise(s);
    fill(w.zero, groups / 2, s);
    w.m = (struct kern_mat){ .w = w.data,
                             .stride = dtype == SEAM_I8 ? k : 0,
                             .n = n,
                             .k = k,
                             .n_stored = n,
                             .dtype = dtype,
                             .scale_dtype = SEAM_F32,
                             .group_rows = 1,
                             .group_cols = gc,
                             .scale = w.scale,
                             .zero = zeros ? w.zero : NULL };
    return w;
}

static void weight_free(struct weight *w)
{
    free(w->data), free(w->scale), free(w->zero);
}

static double value(const struct weight *w, uint32_t o, uint32_t i)
{
    const struct kern_mat *m = &w->m;
    const float *s = (const float *)w->scale;
    uint32_t g = i / m->group_cols, q, z = 8;

    if (m->dtype == SEAM_I8)
        return (double)s[(uint64_t)o * (m->k / m->group_cols) + g] *
               (int8_t)w->data[(uint64_t)o * m->k + i];
    memcpy(&q, w->data + 4 * ((uint64_t)(i / 8) * m->n + o), 4);
    if (m->zero) {
        memcpy(&z, w->zero + 4 * ((uint64_t)g * (m->n / 8) + o / 8), 4);
        z = (z >> 4 * (o % 8) & 15) + 1;
    }
    return (double)s[(uint64_t)g * m->n + o] *
           ((int)(q >> 4 * (i % 8) & 15) - (int)z);
}

/* All outputs of m rows, in pieces of KERN_OUTS. */
static void multiply(const struct kern_fast *f, const struct kern_mat *w,
                     const char *rec, uint64_t stride, uint32_t m, float *y)
{
    void *scratch = aligned_alloc(64, FAST_SCRATCH);

    cr_assert_not_null(scratch);
    for (uint32_t o = 0; o < w->n; o += KERN_OUTS) {
        uint32_t end = w->n - o < KERN_OUTS ? w->n : o + KERN_OUTS;

        f->dot(w, o, end, rec, stride, m, y + o, w->n, NULL, false, NULL,
               scratch);
    }
    free(scratch);
}

static void one_case(const struct kern *k, uint16_t dtype, uint32_t n,
                     uint32_t kk, uint32_t gc, bool zeros, uint32_t m)
{
    uint32_t seed = n * 31 + kk + m, room = (m + 15) & ~15u;
    struct weight w = weight(dtype, n, kk, gc, zeros, &seed);
    struct kern_form f = kern_form(k, &w.m);
    uint64_t stride = kern_record(f, kk);
    char *rec = aligned_alloc(64, room * stride);
    float *x = malloc((uint64_t)m * kk * sizeof *x);
    float *y = malloc((uint64_t)m * n * sizeof *y);
    float *one = malloc(n * sizeof *one);

    cr_assert_eq(f.kind, dtype == SEAM_I4 ? KERN_NIBBLES : KERN_BYTES);
    memset(rec, 1, room * stride);
    for (uint64_t i = 0; i < (uint64_t)m * kk; i++)
        x[i] = noise(&seed);
    for (uint32_t r = 0; r < m; r++)
        k->fast->pack(x + (uint64_t)r * kk, f, kk, 0, kk, rec + r * stride);
    multiply(k->fast, &w.m, rec, stride, m, y);
    for (uint32_t r = 0; r < m; r++) {
        /* Always vectors, and alone. */
        multiply(&kern_fast_vnni, &w.m, rec + r * stride, stride, 1, one);
        cr_assert_eq(memcmp(one, y + (uint64_t)r * n, n * sizeof *one), 0,
                     "%s: dtype %u [%u, %u] group %u: row %u of %u", k->name,
                     dtype, n, kk, gc, r, m);
    }
    for (uint32_t r = 0; r < m; r += 7)
        for (uint32_t o = 0; o < n; o++) {
            double sum = 0, size = 0;

            for (uint32_t i = 0; i < kk; i++) {
                double p = value(&w, o, i) * x[(uint64_t)r * kk + i];

                sum += p;
                size += p * p;
            }
            cr_assert_lt(
                fabs(y[(uint64_t)r * n + o] - sum), 1e-6 + 2e-4 * sqrt(size),
                "%s: dtype %u [%u, %u] group %u: %g is not %g", k->name, dtype,
                n, kk, gc, y[(uint64_t)r * n + o], sum);
        }
    weight_free(&w);
    free(rec), free(x), free(y), free(one);
}

static const char *const TABLE[] = { "avx512vnni", "amx" };

Test(fast_kern, tiles_and_vectors_give_the_same_bits)
{
    static const uint32_t m[] = { 1, 2, 3, 4, 5, 15, 16, 17, 95, 96, 128 };
    static const struct {
        uint32_t n, k, group;
    } shape[] = {
        { 8, 32, 32 },    { 24, 96, 32 },   { 40, 128, 64 }, { 264, 128, 128 },
        { 56, 256, 256 }, { 16, 384, 128 }, { 72, 192, 64 },
    };

    for (size_t t = 0; t < sizeof TABLE / sizeof *TABLE; t++) {
        const struct kern *k = kern_pick(TABLE[t]);

        for (size_t s = 0; k && s < sizeof shape / sizeof *shape; s++)
            for (size_t i = 0; i < sizeof m / sizeof *m; i++) {
                one_case(k, SEAM_I4, shape[s].n, shape[s].k, shape[s].group,
                         (s + i) % 2, m[i]);
                one_case(k, SEAM_I8, shape[s].n - s % 7, shape[s].k,
                         shape[s].group, false, m[i]);
            }
    }
}

Test(fast_kern, what_is_no_number_stays_none)
{
    for (size_t t = 0; t < sizeof TABLE / sizeof *TABLE; t++) {
        const struct kern *k = kern_pick(TABLE[t]);
        uint32_t seed = 5;
        float x[128] = { 1 }, y[16];

        for (uint32_t bad = 0; k && bad < 4; bad++) {
            struct weight w =
                weight(bad % 2 ? SEAM_I4 : SEAM_I8, 16, 128, 64, false, &seed);
            struct kern_form f = kern_form(k, &w.m);
            char *rec = aligned_alloc(64, kern_record(f, 128) * FAST_BLOCK);

            x[70] = bad < 2 ? NAN : -INFINITY;
            k->fast->pack(x, f, 128, 0, 128, rec);
            multiply(k->fast, &w.m, rec, kern_record(f, 128), 1, y);
            for (uint32_t o = 0; o < 16; o++)
                cr_expect(isnan(y[o]), "%s: %g", k->name, y[o]);
            free(rec);
            weight_free(&w);
        }
    }
}

Test(fast_kern, a_row_of_int4_is_the_same_in_pieces_of_any_width)
{
    const struct kern *k = kern_pick("avx512vnni");
    enum { N = KERN_WIDE + 72, K = 256 };
    uint32_t seed = 9;
    struct weight w = weight(SEAM_I4, N, K, 128, false, &seed);
    void *scratch = aligned_alloc(64, FAST_SCRATCH);
    float x[K], wide[N], narrow[N];
    struct kern_form f;
    char *rec;

    if (!k)
        goto out;
    f = kern_form(k, &w.m);
    rec = aligned_alloc(64, kern_record(f, K) * FAST_BLOCK);
    for (uint32_t i = 0; i < K; i++)
        x[i] = noise(&seed);
    k->fast->pack(x, f, K, 0, K, rec);
    for (uint32_t o = 0; o < N; o += KERN_WIDE) {
        uint32_t end = N - o < KERN_WIDE ? N : o + KERN_WIDE;
        struct fast_next next = fast_next(&w.m, 0);

        k->fast->dot(&w.m, o, end, rec, kern_record(f, K), 1, wide + o, N, NULL,
                     false, &next, scratch);
    }
    multiply(k->fast, &w.m, rec, kern_record(f, K), 1, narrow);
    cr_expect_eq(memcmp(wide, narrow, sizeof wide), 0);
    free(rec);
out:
    free(scratch);
    weight_free(&w);
}

/* ---- Across rows --------------------------------------------------------- */

/* Columns [c0, c0 + n) of m rows of x [m][w.n] into y [m][n]. */
static void go_across(const struct kern *k, const struct kern_mat *w,
                      uint32_t c0, uint32_t n, const float *x, uint32_t m,
                      float *y, bool add)
{
    struct fast_next next = { w->w, w->stride };
    void *scratch = aligned_alloc(64, KERN_OWN);
    const float *from[KERN_ROWS];
    float *to[KERN_ROWS];

    cr_assert_not_null(scratch);
    for (uint32_t r = 0; r < m; r++) {
        from[r] = x + (uint64_t)r * w->n;
        to[r] = y + (uint64_t)r * n;
    }
    k->fast->across(w, c0, n, from, m, to, add, &next, scratch);
    free(scratch);
}

static void across_case(const struct kern *k, uint32_t n, uint32_t cols,
                        uint32_t gc, uint32_t m)
{
    uint32_t seed = n * 7 + cols + m, c0 = cols > gc ? gc / 2 : 0;
    struct weight w = weight(SEAM_I8, n, cols, gc, false, &seed);
    float *x = malloc((uint64_t)m * n * sizeof *x);
    float *y = malloc((uint64_t)m * cols * sizeof *y);
    float *one = malloc(cols * sizeof *one);

    cr_assert_eq(kern_form(k, &w.m).kind, KERN_BYTES);
    w.data[0] = 0x80;
    for (uint64_t i = 0; i < (uint64_t)m * n; i++)
        x[i] = noise(&seed);
    go_across(k, &w.m, 0, cols, x, m, y, false);
    for (uint32_t r = 0; r < m; r++) {
        const float *row = y + (uint64_t)r * cols;

        /* Alone, and in two pieces. */
        go_across(k, &w.m, c0, cols - c0, x + (uint64_t)r * n, 1, one + c0,
                  false);
        if (c0)
            go_across(k, &w.m, 0, c0, x + (uint64_t)r * n, 1, one, false);
        cr_assert_eq(memcmp(one, row, cols * sizeof *one), 0,
                     "%s: [%u, %u] group %u: row %u of %u", k->name, n, cols,
                     gc, r, m);
        for (uint32_t c = 0; c < cols; c++) {
            double sum = 0, size = 0;

            for (uint32_t i = 0; i < n; i++) {
                double p = value(&w, i, c) * x[(uint64_t)r * n + i];

                sum += p;
                size += p * p;
            }
            cr_assert_lt(fabs(row[c] - sum), 1e-6 + 2e-4 * sqrt(size),
                         "%s: [%u, %u] group %u: %g is not %g", k->name, n,
                         cols, gc, row[c], sum);
        }
    }
    /* Added to what is there: twice as much. */
    memcpy(one, y, cols * sizeof *one);
    go_across(k, &w.m, 0, cols, x, 1, one, true);
    for (uint32_t c = 0; n <= 256 && c < cols; c++)
        cr_expect_float_eq(one[c], 2 * y[c], 1e-5 + 1e-6 * fabs(y[c]));
    weight_free(&w);
    free(x), free(y), free(one);
}

Test(fast_kern, products_across_int8_rows_depend_on_no_other_row_nor_the_cut)
{
    static const uint32_t m[] = { 1, 2, 3, 7, 96 };
    static const struct {
        uint32_t n, cols, group;
    } shape[] = {
        { 256, 256, 128 }, { 64, 128, 64 },   { 100, 96, 32 }, { 1, 32, 32 },
        { 258, 160, 32 },  { 600, 256, 256 }, { 6, 192, 64 },
    };

    for (size_t t = 0; t < sizeof TABLE / sizeof *TABLE; t++) {
        const struct kern *k = kern_pick(TABLE[t]);

        for (size_t s = 0; k && s < sizeof shape / sizeof *shape; s++)
            for (size_t i = 0; i < sizeof m / sizeof *m; i++)
                across_case(k, shape[s].n, shape[s].cols, shape[s].group, m[i]);
    }
}

/* ---- BF16 weights -------------------------------------------------------- */

static float widened(uint16_t h)
{
    uint32_t bits = (uint32_t)h << 16;
    float f;

    memcpy(&f, &bits, sizeof f);
    return f;
}

/* A matrix of rows that lie `stride` numbers apart, of its exact size. */
static struct kern_mat plain(uint32_t n, uint32_t k, uint32_t stride,
                             uint32_t *s)
{
    uint64_t all = (uint64_t)(n - 1) * stride + k;
    uint16_t *w = malloc(all * sizeof *w);

    cr_assert_not_null(w);
    for (uint64_t i = 0; i < all; i++) {
        float f = noise(s);
        uint32_t bits;

        memcpy(&bits, &f, sizeof bits);
        w[i] = (uint16_t)(bits >> 16);
    }
    return (struct kern_mat){ .w = (unsigned char *)w,
                              .stride = 2 * (uint64_t)stride,
                              .n = n,
                              .k = k,
                              .n_stored = n,
                              .dtype = SEAM_BF16 };
}

/* Outputs of m rows in pieces of `cut`. */
static void multiply_plain(const struct kern *k, const struct kern_mat *w,
                           const float *x, uint32_t m, uint32_t cut,
                           const float *bias, bool add, float *y)
{
    uint64_t stride = kern_record((struct kern_form){ KERN_TILES, 0 }, w->k);
    uint64_t room = ((m + FAST_BLOCK - 1) & ~(FAST_BLOCK - 1u)) * stride;
    char *rec = aligned_alloc(64, room);
    void *scratch = aligned_alloc(64, KERN_OWN);

    cr_assert(rec && scratch);
    memset(rec, 0xff, room);
    memset(scratch, 0xff, KERN_OWN);
    for (uint32_t r = 0; r < m; r += FAST_BLOCK)
        k->fast->pack_tiles(x, w->k, w->k, m, r, rec);
    for (uint32_t o = 0; o < w->n; o += cut) {
        uint32_t end = w->n - o < cut ? w->n : o + cut;
        struct fast_next next = fast_next(w, end < w->n ? end : 0);

        k->fast->dot_tiles(w, o, end, rec, m, y + o, w->n, bias, add,
                           cut % 3 ? &next : NULL, scratch);
    }
    free(rec), free(scratch);
}

static void plain_case(const struct kern *k, uint32_t n, uint32_t kk,
                       uint32_t m, uint32_t cut)
{
    uint32_t seed = n * 31 + kk + m;
    struct kern_mat w = plain(n, kk, kk + (m % 2 ? 0 : 5), &seed);
    uint64_t all = (uint64_t)m * n;
    float *x = malloc((uint64_t)m * kk * sizeof *x);
    float *y = malloc(all * sizeof *y), *one = malloc(n * sizeof *one);
    float *bias = malloc(n * sizeof *bias);
    bool add = m % 3 == 0;
    double errs = 0, sizes = 0;

    for (uint64_t i = 0; i < (uint64_t)m * kk; i++)
        x[i] = noise(&seed);
    for (uint32_t o = 0; o < n; o++)
        bias[o] = noise(&seed);
    for (uint64_t i = 0; i < all; i++)
        y[i] = (float)(i % n);
    multiply_plain(k, &w, x, m, cut, bias, add, y);
    for (uint32_t r = 0; r < m; r++) {
        for (uint32_t o = 0; o < n; o++)
            one[o] = (float)o;
        multiply_plain(k, &w, x + (uint64_t)r * kk, 1, KERN_OUTS, bias, add,
                       one);
        cr_assert_eq(memcmp(one, y + (uint64_t)r * n, n * sizeof *one), 0,
                     "[%u, %u] cut at %u: row %u of %u", n, kk, cut, r, m);
    }
    for (uint32_t r = 0; r < m; r += 7)
        for (uint32_t o = 0; o < n; o++) {
            const uint16_t *row = (const uint16_t *)(w.w + o * w.stride);
            double sum = bias[o] + (add ? (double)o : 0), size = sum * sum;
            double err;

            for (uint32_t i = 0; i < kk; i++) {
                double p = (double)widened(row[i]) * x[(uint64_t)r * kk + i];

                sum += p;
                size += p * p;
            }
            err = fabs(y[(uint64_t)r * n + o] - sum);
            cr_assert_lt(err, 3e-6 * sqrt(size), "[%u, %u]: %g is not %g", n,
                         kk, y[(uint64_t)r * n + o], sum);
            errs += err * err;
            sizes += size;
        }
    cr_assert_lt(sqrt(errs / sizes), 3e-7, "[%u, %u]", n, kk);
    free((void *)(uintptr_t)w.w);
    free(x), free(y), free(one), free(bias);
}

Test(fast_kern, rows_of_bf16_weights_do_not_depend_on_the_batch_nor_the_cut)
{
    static const uint32_t m[] = { 1, 2, 3, 4, 5, 6, 15, 16, 17, 33, 96, 128 };
    static const struct {
        uint32_t n, k, cut;
    } shape[] = {
        { 1, 32, 16 },    { 15, 64, 16 },   { 16, 512, 16 }, { 17, 95, 256 },
        { 40, 1, 32 },    { 49, 545, 48 },  { 33, 257, 16 }, { 256, 64, 256 },
        { 250, 96, 256 }, { 48, 800, 256 },
    };
    const struct kern *k = kern_pick("amx");

    for (size_t s = 0; k && s < sizeof shape / sizeof *shape; s++)
        for (size_t i = 0; i < sizeof m / sizeof *m; i++)
            plain_case(k, shape[s].n, shape[s].k, m[i], shape[s].cut);
}

Test(fast_kern, a_row_of_no_numbers_spoils_no_other_row_of_bf16_products)
{
    enum { N = 40, K = 67, M = 19 };
    static const float bad[] = { NAN, INFINITY, -INFINITY };
    const struct kern *k = kern_pick("amx");
    static float x[M * K], y[M * N], clean[M * N];
    uint32_t seed = 3;
    struct kern_mat w = plain(N, K, K, &seed);

    for (uint32_t i = 0; i < M * K; i++)
        x[i] = noise(&seed);
    for (uint32_t m = 1; k && m <= M; m += m < 5 ? 4 : 14) {
        multiply_plain(k, &w, x, m, N, NULL, false, clean);
        for (uint32_t b = 0; b < sizeof bad / sizeof *bad; b++)
            for (uint32_t row = 0; row < m; row += 4) {
                uint32_t at = row * K + 33, low = 0x7f800001;
                float was = x[at];

                x[at] = bad[b];
                if (b == 0) /* none, by its last bit alone */
                    memcpy(&x[at], &low, sizeof low);
                multiply_plain(k, &w, x, m, N, NULL, false, y);
                x[at] = was;
                for (uint32_t i = 0; i < m * N; i++)
                    if (i / N == row)
                        cr_expect(!isfinite(y[i]), "row %u: %g", row, y[i]);
                    else
                        cr_assert_eq(memcmp(&y[i], &clean[i], sizeof *y), 0,
                                     "row %u is not what it was", i / N);
            }
    }
    free((void *)(uintptr_t)w.w);
}

Test(fast_kern, bf16_weights_that_are_no_numbers_spoil_no_other_output)
{
    enum { N = 37, K = 70, M = 6, BAD = 20 };
    const struct kern *k = kern_pick("amx");
    static float x[M * K], y[M * N], clean[M * N];
    uint32_t seed = 9;
    struct kern_mat w = plain(N, K, K, &seed);
    uint16_t *v = (uint16_t *)(uintptr_t)w.w;

    for (uint32_t i = 0; i < M * K; i++)
        x[i] = noise(&seed);
    for (uint32_t m = 1; k && m <= M; m += M - 1)
        for (uint32_t b = 0; b < 2; b++) {
            uint16_t was = v[BAD * K + K - 1];

            multiply_plain(k, &w, x, m, N, NULL, false, clean);
            v[BAD * K + K - 1] = b ? 0x7f80 : 0x7fc0;
            multiply_plain(k, &w, x, m, N, NULL, false, y);
            v[BAD * K + K - 1] = was;
            for (uint32_t i = 0; i < m * N; i++)
                if (i % N == BAD)
                    cr_expect(!isfinite(y[i]), "%g", y[i]);
                else
                    cr_assert_eq(memcmp(&y[i], &clean[i], sizeof *y), 0,
                                 "output %u is not what it was", i % N);
        }
    free(v);
}

Test(fast_kern, numbers_at_the_ends_of_their_range_keep_their_products)
{
    /* Denormals count as zero, what is near them and near infinity does not
     * overflow while it is taken apart. */
    static const float at[] = { 3.4028235e38f, -3.4e38f, 1e-30f, 1e-45f, 0 };
    const struct kern *k = kern_pick("amx");
    uint16_t one = 0x3f80;
    struct kern_mat w = { .w = (unsigned char *)&one,
                          .stride = 2,
                          .n = 1,
                          .k = 1,
                          .n_stored = 1,
                          .dtype = SEAM_BF16 };

    for (size_t i = 0; k && i < sizeof at / sizeof *at; i++)
        for (uint32_t m = 1; m <= 6; m += 5) {
            float x[6], y[6];

            for (uint32_t r = 0; r < 6; r++)
                x[r] = at[i];
            multiply_plain(k, &w, x, m, 16, NULL, false, y);
            for (uint32_t r = 0; r < m; r++)
                cr_expect_leq(fabs((double)y[r] - at[i]),
                              1e-7 * fabs((double)at[i]) + 1e-37, "%g of %g",
                              y[r], at[i]);
        }
}
#endif
