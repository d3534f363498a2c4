/* Attention on tiles beside the sums it stands for: as exact as its planes are,
 * the same bits however many heads come together, and nothing outside its
 * buffers. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kern_attend.h"
#include "kv_record.h"

enum { MAX_K = 512 };

static float noise(uint32_t *s)
{
    *s = *s * 1664525 + 1013904223;
    return (float)(*s >> 8) / 8388608 - 1;
}

/* Two planes leave 2^-16 of a number, sums in F32 little more; three leave
 * nothing. */
static const double two_planes = 1.6e-5, three_planes = 1e-6;

/* Latents, queries and weights of one tile, each of its exact size. */
struct tile {
    uint32_t k, heads, n;
    uint16_t dtype;
    void *rec[ATTEND_TILE];
    float *q[ATTEND_HEADS], *p[ATTEND_HEADS];
};

static void tile_init(struct tile *t, uint32_t k, uint32_t heads, uint32_t n,
                      uint16_t dtype)
{
    uint32_t seed = k + heads * 7 + n * 131;
    float v[MAX_K];

    *t = (struct tile){ .k = k, .heads = heads, .n = n, .dtype = dtype };
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t c = 0; c < k; c++)
            v[c] = noise(&seed) * ldexpf(1, (int)(i % 9) - 4);
        t->rec[i] = malloc(kv_record_bytes(dtype, k));
        kv_record_put(t->rec[i], dtype, v, k);
    }
    for (uint32_t h = 0; h < heads; h++) {
        t->q[h] = malloc(k * sizeof(float));
        t->p[h] = malloc(ATTEND_TILE * sizeof(float));
        for (uint32_t c = 0; c < k; c++)
            t->q[h][c] = noise(&seed);
    }
}

static void tile_free(struct tile *t)
{
    for (uint32_t i = 0; i < t->n; i++)
        free(t->rec[i]);
    for (uint32_t h = 0; h < t->heads; h++)
        free(t->q[h]), free(t->p[h]);
}

static double latent(const struct tile *t, uint32_t i, uint32_t c)
{
    return kv_record_at(t->rec[i], t->dtype, t->k, c);
}

/* Heads [h0, h0 + n): scores to p, then sum [n][ld] += w x latents. */
static void attend(const struct kern_attend *a, struct tile *t, uint32_t h0,
                   uint32_t n, const float *const *w, float *sum, uint64_t ld)
{
    void *mem = aligned_alloc(64, a->bytes(t->k));

    cr_assert_not_null(mem);
    a->queries(mem, t->k, (const float *const *)t->q + h0, n);
    a->scores(mem, t->k, n, t->dtype, (const void *const *)t->rec, t->n,
              t->p + h0);
    a->mix(mem, t->k, n, w + h0, t->n, sum, ld, true);
    a->settle(t->k, n, sum, ld);
    free(mem);
}

static void check_case(const struct kern_attend *a, uint32_t k, uint32_t heads,
                       uint32_t n, uint16_t dtype)
{
    struct tile t;
    uint32_t seed = n;
    uint64_t ld = k + 2, floats = (heads - 1) * ld + k;
    float *sum = calloc(floats, sizeof *sum);
    float *part = calloc(floats, sizeof *part);
    float *w[ATTEND_HEADS] = { 0 }, was[ATTEND_HEADS][ATTEND_TILE];

    tile_init(&t, k, heads, n, dtype);
    for (uint32_t h = 0; h < heads; h++) {
        w[h] = malloc(n * sizeof *w[h]);
        for (uint32_t i = 0; i < n; i++)
            w[h][i] = expf(4 * noise(&seed) - 4);
    }
    attend(a, &t, 0, heads, (const float *const *)w, sum, ld);
    for (uint32_t h = 0; h < heads; h++) {
        for (uint32_t i = 0; i < n; i++) {
            double want = 0, size = 0;

            for (uint32_t c = 0; c < k; c++) {
                double x = t.q[h][c] * latent(&t, i, c);

                want += x;
                size += fabs(x);
            }
            cr_assert_float_eq(t.p[h][i], want, two_planes * size + 1e-30,
                               "k %u, head %u of %u, latent %u of %u: %g", k, h,
                               heads, i, n, t.p[h][i] - want);
        }
        for (uint32_t c = 0; c < k; c++) {
            double want = 0, size = 0;

            for (uint32_t i = 0; i < n; i++) {
                double x = w[h][i] * latent(&t, i, c);

                want += x;
                size += fabs(x);
            }
            cr_assert_float_eq(sum[h * ld + c], want, two_planes * size + 1e-30,
                               "k %u, head %u of %u, column %u: %g", k, h,
                               heads, c, sum[h * ld + c] - want);
        }
        memcpy(was[h], t.p[h], n * sizeof(float));
    }
    /* In groups of five heads. */
    for (uint32_t h = 0; h < heads; h += 5)
        attend(a, &t, h, heads - h < 5 ? heads - h : 5, (const float *const *)w,
               part + h * ld, ld);
    cr_assert_eq(memcmp(sum, part, floats * sizeof *sum), 0, "k %u, %u heads",
                 k, heads);
    for (uint32_t h = 0; h < heads; h++)
        cr_assert_eq(memcmp(was[h], t.p[h], n * sizeof(float)), 0,
                     "k %u, head %u of %u", k, h, heads);
    for (uint32_t h = 0; h < heads; h++)
        free(w[h]);
    tile_free(&t);
    free(sum), free(part);
}

/* NULL where this machine has no tiles. */
static const struct kern_attend *tiles(void)
{
    const struct kern *k = kern_pick("amx");

    return k ? kern_attend(k) : NULL;
}

Test(fast_attend, is_as_exact_as_its_planes_and_the_same_for_any_heads)
{
    static const uint32_t k[] = { 32, 96, 128, 512 };
    static const uint32_t heads[] = { 1, 4, 16, 17, 24, 32 };
    static const uint32_t n[] = { 1, 31, 32, 33, 64 };

    for (uint32_t i = 0; tiles() && i < 4; i++)
        for (uint32_t j = 0; j < 6; j++)
            for (uint32_t l = 0; l < 5; l++) {
                check_case(tiles(), k[i], heads[j], n[l], SEAM_BF16);
                check_case(tiles(), k[i], heads[j], n[l], SEAM_F8E4M3);
            }
}

/* The first of two tiles takes the place of what was there. */
Test(fast_attend, begins_anew)
{
    struct tile t;
    float weight[3] = { 1, 2, 3 }, sum[32], was[32] = { 0 };
    const float *w[1] = { weight };
    void *mem;

    if (!tiles())
        return;
    tile_init(&t, 32, 1, 3, SEAM_BF16);
    attend(tiles(), &t, 0, 1, w, was, 32);
    for (uint32_t i = 0; i < 32; i++)
        sum[i] = NAN;
    mem = aligned_alloc(64, tiles()->bytes(32));
    tiles()->queries(mem, 32, (const float *const *)t.q, 1);
    tiles()->scores(mem, 32, 1, SEAM_BF16, (const void *const *)t.rec, 3, t.p);
    tiles()->mix(mem, 32, 1, w, 3, sum, 32, false);
    tiles()->settle(32, 1, sum, 32);
    cr_expect_arr_eq(sum, was, sizeof sum);
    free(mem);
    tile_free(&t);
}

/* out [n], with the queries and weights of the heads [h0, h0 + heads). */
static void score(const struct kern_attend *a, const float *q, uint32_t k,
                  uint32_t heads, const float *w, const struct tile *t,
                  uint32_t n, float *out)
{
    void *packed = aligned_alloc(64, a->index_bytes(k, heads));
    void *keys = aligned_alloc(64, a->index_keys_bytes(k, n));

    a->index_queries(packed, k, q, heads);
    a->index_keys(keys, k, t->dtype, (const void *const *)t->rec, n);
    a->index_scores(packed, keys, n, k, w, heads, out);
    free(packed), free(keys);
}

static void check_index(const struct kern_attend *a, uint32_t k, uint32_t heads,
                        uint32_t n, uint16_t dtype)
{
    float *q = malloc((uint64_t)heads * k * sizeof *q), w[64];
    float *out = malloc(n * sizeof *out);
    uint32_t seed = heads + n;
    struct tile t;

    tile_init(&t, k, 0, n, dtype);
    for (uint32_t i = 0; i < heads * k; i++)
        q[i] = noise(&seed);
    for (uint32_t h = 0; h < heads; h++)
        w[h] = noise(&seed);
    score(a, q, k, heads, w, &t, n, out);
    for (uint32_t i = 0; i < n; i++) {
        double want = 0, all = 0;

        for (uint32_t h = 0; h < heads; h++) {
            double dot = 0, size = 0;

            for (uint32_t c = 0; c < k; c++) {
                double x = q[h * k + c] * latent(&t, i, c);

                dot += x;
                size += fabs(x);
            }
            want += w[h] * (dot > 0 ? dot : 0);
            all += fabs(w[h]) * size;
        }
        cr_assert_float_eq(out[i], want, three_planes * all + 1e-30,
                           "k %u, %u heads, key %u of %u: %g", k, heads, i, n,
                           out[i] - want);
    }
    /* A key by itself. */
    for (uint32_t i = 0; i < n; i++) {
        struct tile one = t;
        float alone;

        one.rec[0] = t.rec[i];
        score(a, q, k, heads, w, &one, 1, &alone);
        cr_assert_arr_eq(&alone, &out[i], sizeof alone);
    }
    tile_free(&t);
    free(q), free(out);
}

Test(fast_attend, scores_keys_as_f32_does)
{
    static const uint32_t heads[] = { 1, 4, 16, 17, 32, 64 };
    static const uint32_t n[] = { 1, 15, 16, 17, 47, 48, 49, 64 };

    for (uint32_t i = 0; tiles() && i < 6; i++)
        for (uint32_t j = 0; j < 8; j++) {
            check_index(tiles(), 32, heads[i], n[j], SEAM_BF16);
            check_index(tiles(), 128, heads[i], n[j], SEAM_BF16);
            check_index(tiles(), 128, heads[i], n[j], SEAM_F8E4M3);
        }
}

/* A query that is no number makes all scores so, a key its own. */
Test(fast_attend, scores_keep_what_is_no_number)
{
    float q[2 * 32], w[2] = { 1, -1 }, out[3];
    uint32_t seed = 1;
    struct tile t;

    if (!tiles())
        return;
    tile_init(&t, 32, 0, 3, SEAM_BF16);
    for (uint32_t i = 0; i < 64; i++)
        q[i] = noise(&seed);
    ((uint16_t *)t.rec[1])[3] = weights_to_bf16(NAN);
    score(tiles(), q, 32, 2, w, &t, 3, out);
    cr_expect(isfinite(out[0]) && isfinite(out[2]));
    cr_expect(isnan(out[1]));
    q[40] = NAN;
    score(tiles(), q, 32, 2, w, &t, 3, out);
    cr_expect(isnan(out[0]) && isnan(out[1]) && isnan(out[2]));
    tile_free(&t);
}

Test(fast_attend, what_is_no_number_stays_none)
{
    static const float bad[] = { NAN, INFINITY, -INFINITY };

    for (uint32_t i = 0; tiles() && i < 3; i++) {
        struct tile t;
        float weight[3] = { 1, 1, 1 }, sum[2 * 32] = { 0 };
        const float *w[2] = { weight, weight };

        /* A query: its head alone. */
        tile_init(&t, 32, 2, 3, SEAM_BF16);
        t.q[1][7] = bad[i];
        attend(tiles(), &t, 0, 2, w, sum, 32);
        for (uint32_t j = 0; j < 3; j++) {
            cr_expect(isfinite(t.p[0][j]));
            cr_expect(!isfinite(t.p[1][j]));
        }
        /* A latent: its score, and its column of the sum. */
        ((uint16_t *)t.rec[2])[5] = weights_to_bf16(bad[i]);
        memset(sum, 0, sizeof sum);
        attend(tiles(), &t, 0, 2, w, sum, 32);
        cr_expect(isfinite(t.p[0][1]));
        cr_expect(!isfinite(t.p[0][2]));
        cr_expect(isfinite(sum[4]));
        cr_expect(!isfinite(sum[5]));
        tile_free(&t);
    }
}
