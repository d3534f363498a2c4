#include "core/checkpoint/dense_group.h"

#include <math.h>
#include <string.h>

enum {
    GROUP = SEAM_GROUP_I4,
    RATIOS = 8, /* scales tried for a group                                  */
    LANES = 8   /* partial sums of its error                                 */
};

/* The value of the largest magnitude goes to -8, whatever its sign, or beyond;
 * or to 7. */
static const float RATIO[RATIOS] = { -1,    -.93f, -.87f, -.81f,
                                     -.75f, -.68f, 1.14f, 1 };

/* Lane by lane, then in pairs: what any vector of LANES does too. */
static float lanes_sum(const float e[LANES])
{
    return (e[0] + e[1]) + (e[2] + e[3]) + ((e[4] + e[5]) + (e[6] + e[7]));
}

/* 0 where top has none that is a number. */
static float bytes_inverse(float top)
{
    float inv = 127 / top;

    return inv < INFINITY ? inv : 0;
}

/* ---- Any machine --------------------------------------------------------- */

static float any_f16(uint16_t h)
{
    uint32_t e = h >> 10 & 31, m = h & 1023;
    float f = e == 31 ? (m ? NAN : INFINITY)
              : e     ? ldexpf((float)(m | 1024), (int)e - 25)
                      : ldexpf((float)m, -24);

    return h & 0x8000 ? -f : f;
}

/* The nearest half, ties to even; infinite from 65520 on. */
static uint16_t any_to_f16(float f)
{
    uint16_t sign = signbit(f) ? 0x8000 : 0;
    float a = fabsf(f);
    int e;
    long m;

    if (a == 0)
        return sign;
    if (!(a < 65520))
        return sign | 0x7c00;
    frexpf(a, &e);
    e = e - 1 < -14 ? -14 : e - 1;
    m = lrintf(ldexpf(a, 10 - e)); /* 1024 .. 2048, less when subnormal    */
    return (uint16_t)(sign | (uint16_t)(((e + 14) << 10) + m));
}

static void any_widen(const void *p, uint16_t dtype, uint32_t n, float *x)
{
    const uint16_t *h = p;

    if (dtype == SEAM_BF16) {
        for (uint32_t i = 0; i < n; i++) {
            uint32_t u = (uint32_t)h[i] << 16;

            memcpy(&x[i], &u, sizeof u);
        }
    } else if (dtype == SEAM_F16) {
        for (uint32_t i = 0; i < n; i++)
            x[i] = any_f16(h[i]);
    } else {
        memcpy(x, p, n * sizeof *x);
    }
}

static float any_bytes(const float *x, uint32_t n, int8_t *q)
{
    float top = 0, inv;

    for (uint32_t i = 0; i < n; i++)
        top = fabsf(x[i]) > top ? fabsf(x[i]) : top;
    inv = bytes_inverse(top);
    for (uint32_t i = 0; i < n; i++) {
        float v = x[i] * inv;

        q[i] = v == v ? (int8_t)lrintf(v) : 0;
    }
    return top / 127;
}

/* Nearest integer; |x| below 2^22. */
static inline float any_round(float x)
{
    const float magic = 12582912.0f; /* 1.5 * 2^23 */

    return x + magic - magic;
}

/* Squared error of x as q * s with q in [-8, 7]. */
static float any_error(const float *x, float s)
{
    float inv = 1 / s, e[LANES] = { 0 };

    for (uint32_t i = 0; i < GROUP; i += LANES)
        for (uint32_t j = 0; j < LANES; j++) {
            float v = x[i + j] * inv, d;

            v = v < -8 ? -8 : v;
            v = v > 7 ? 7 : v;
            d = x[i + j] - any_round(v) * s;
            e[j] += d * d;
        }
    return lanes_sum(e);
}

static uint16_t any_nibbles(const float *x, uint32_t *words)
{
    float top = 0, least = INFINITY, s, inv;
    uint16_t best = 0;

    for (uint32_t i = 0; i < GROUP; i++)
        top = fabsf(x[i]) > fabsf(top) ? x[i] : top;
    for (uint32_t r = 0; r < RATIOS; r++) {
        uint16_t h = any_to_f16(top / 8 * RATIO[r]);
        float e;

        s = any_f16(h);
        if (s == 0)
            continue;
        e = any_error(x, s);
        if (e < least) {
            least = e;
            best = h;
        }
    }
    s = any_f16(best);
    inv = s != 0 ? 1 / s : 0;
    memset(words, 0, GROUP / 8 * sizeof *words);
    for (uint32_t i = 0; i < GROUP; i++) {
        float v = x[i] * inv;

        v = v > -8 ? v : -8; /* and what is no number                       */
        v = v > 7 ? 7 : v;
        words[i / 8] |= (uint32_t)((int32_t)any_round(v) + 8) << 4 * (i % 8);
    }
    return best;
}

const struct seam_dense_group seam_dense_group_any = {
    "any",
    any_widen,
    any_bytes,
    any_nibbles,
};

/* ---- AVX2 ---------------------------------------------------------------- */

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2 static __attribute__((target("avx2,f16c")))

AVX2 void avx2_widen(const void *p, uint16_t dtype, uint32_t n, float *x)
{
    const uint16_t *h = p;

    if (dtype == SEAM_F32) {
        memcpy(x, p, n * sizeof *x);
        return;
    }
    for (uint32_t i = 0; i < n; i += 8) {
        __m128i v = _mm_loadu_si128((const __m128i *)(h + i));
        __m256 f = dtype == SEAM_F16 ? _mm256_cvtph_ps(v)
                                     : _mm256_castsi256_ps(_mm256_slli_epi32(
                                           _mm256_cvtepu16_epi32(v), 16));

        _mm256_storeu_ps(x + i, f);
    }
}

/* The largest magnitude, 0 when nothing is a number: a maximum takes its second
 * operand where one is none. */
AVX2 float avx2_top(const float *x, uint32_t n)
{
    const __m256 sign = _mm256_set1_ps(-0.0f);
    __m256 t = _mm256_setzero_ps();
    float lane[8], top = 0;

    for (uint32_t i = 0; i < n; i += 8)
        t = _mm256_max_ps(_mm256_andnot_ps(sign, _mm256_loadu_ps(x + i)), t);
    _mm256_storeu_ps(lane, t);
    for (uint32_t j = 0; j < 8; j++)
        top = lane[j] > top ? lane[j] : top;
    return top;
}

/* x * inv as bytes, 32 of them in order. */
AVX2 __m256i avx2_pack(const __m256i v[4])
{
    __m256i a = _mm256_packs_epi32(v[0], v[1]);
    __m256i b = _mm256_packs_epi32(v[2], v[3]);

    return _mm256_permutevar8x32_epi32(
        _mm256_packs_epi16(a, b), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

AVX2 float avx2_bytes(const float *x, uint32_t n, int8_t *q)
{
    float top = avx2_top(x, n);
    __m256 inv = _mm256_set1_ps(bytes_inverse(top));

    for (uint32_t i = 0; i < n; i += 32) {
        __m256i v[4];

        for (uint32_t u = 0; u < 4; u++) {
            __m256 f = _mm256_mul_ps(_mm256_loadu_ps(x + i + 8 * u), inv);

            f = _mm256_and_ps(f, _mm256_cmp_ps(f, f, _CMP_ORD_Q));
            v[u] = _mm256_cvtps_epi32(f);
        }
        _mm256_storeu_si256((__m256i *)(q + i), avx2_pack(v));
    }
    return top / 127;
}

/* The errors of all scales in one pass: [RATIOS][LANES] sums. */
AVX2 void avx2_errors(const float *x, const float *s, float (*e)[LANES])
{
    const __m256 magic = _mm256_set1_ps(12582912.0f);
    const __m256 low = _mm256_set1_ps(-8), high = _mm256_set1_ps(7);

    for (uint32_t r = 0; r < RATIOS; r += 4) {
        __m256 a[4], vs[4], inv[4];

        for (uint32_t u = 0; u < 4; u++) {
            a[u] = _mm256_setzero_ps();
            vs[u] = _mm256_set1_ps(s[r + u]);
            inv[u] = _mm256_set1_ps(1 / s[r + u]);
        }
        for (uint32_t i = 0; i < GROUP; i += LANES) {
            __m256 v = _mm256_loadu_ps(x + i);

            for (uint32_t u = 0; u < 4; u++) {
                __m256 d = _mm256_mul_ps(v, inv[u]);

                d = _mm256_min_ps(high, _mm256_max_ps(low, d));
                d = _mm256_sub_ps(_mm256_add_ps(d, magic), magic);
                d = _mm256_sub_ps(v, _mm256_mul_ps(d, vs[u]));
                a[u] = _mm256_add_ps(a[u], _mm256_mul_ps(d, d));
            }
        }
        for (uint32_t u = 0; u < 4; u++)
            _mm256_storeu_ps(e[r + u], a[u]);
    }
}

/* The first value of the largest magnitude. */
AVX2 float avx2_first(const float *x)
{
    const __m256 sign = _mm256_set1_ps(-0.0f);
    float top = avx2_top(x, GROUP);
    __m256 t = _mm256_set1_ps(top);

    for (uint32_t i = 0; top > 0 && i < GROUP; i += 8) {
        __m256 a = _mm256_andnot_ps(sign, _mm256_loadu_ps(x + i));
        int m = _mm256_movemask_ps(_mm256_cmp_ps(a, t, _CMP_EQ_OQ));

        if (m)
            return x[i + (uint32_t)__builtin_ctz((uint32_t)m)];
    }
    return 0;
}

AVX2 uint16_t avx2_nibbles(const float *x, uint32_t *words)
{
    const __m256i eight = _mm256_set1_epi32(8);
    const __m256 low = _mm256_set1_ps(-8), high = _mm256_set1_ps(7);
    float s[RATIOS], e[RATIOS][LANES], least = INFINITY, f;
    uint16_t h[RATIOS], best = 0;
    __m256 inv, tried;
    __m128i half;

    tried = _mm256_mul_ps(_mm256_set1_ps(avx2_first(x) / 8),
                          _mm256_loadu_ps(RATIO));
    half = _mm256_cvtps_ph(tried, _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128((__m128i *)h, half);
    _mm256_storeu_ps(s, _mm256_cvtph_ps(half));
    avx2_errors(x, s, e); /* no number where a scale is 0, which loses       */
    for (uint32_t r = 0; r < RATIOS; r++) {
        float sum = lanes_sum(e[r]);

        if (s[r] != 0 && sum < least) {
            least = sum;
            best = h[r];
        }
    }
    f = _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(best)));
    inv = _mm256_set1_ps(f != 0 ? 1 / f : 0);
    for (uint32_t i = 0; i < GROUP; i += 32) {
        __m256i v[4], b;

        for (uint32_t u = 0; u < 4; u++) {
            __m256 d = _mm256_mul_ps(_mm256_loadu_ps(x + i + 8 * u), inv);

            d = _mm256_min_ps(_mm256_max_ps(d, low), high);
            v[u] = _mm256_add_epi32(_mm256_cvtps_epi32(d), eight);
        }
        /* The first of two bytes, and 16 times the second. */
        b = _mm256_maddubs_epi16(avx2_pack(v), _mm256_set1_epi16(0x1001));
        b = _mm256_permute4x64_epi64(_mm256_packus_epi16(b, b), 0x08);
        _mm_storeu_si128((__m128i *)(words + i / 8), _mm256_castsi256_si128(b));
    }
    return best;
}

static const struct seam_dense_group group_avx2 = {
    "avx2",
    avx2_widen,
    avx2_bytes,
    avx2_nibbles,
};
#endif

const struct seam_dense_group *seam_dense_group_pick(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) /* such have F16C                    */
        return &group_avx2;
#endif
    return &seam_dense_group_any;
}
