/* A thin layer over the vector unit, so that each kernel is written once and
 * compiled for each instruction set (kern_generic.c, kern_avx2.c,
 * kern_avx512.c).  Only what the kernels use is here.
 *
 *   vf       SIMD_LANES floats          vi  as many 32-bit integers
 *   *_part   the first n lanes, n < SIMD_LANES; the others read as zero and
 *            are not written
 * Pointers need only the alignment of their element. */
#ifndef SEAM_KERN_SIMD_H
#define SEAM_KERN_SIMD_H

#include <stdint.h>
#include <string.h>

#define SIMD_INLINE static inline __attribute__((always_inline))

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && \
    defined(__AVX512DQ__)
/* ---- AVX-512 ------------------------------------------------------------- */
#include <immintrin.h>

#define SIMD_LANES 16
typedef __m512 vf;
typedef __m512i vi;

SIMD_INLINE vf vf_set1(float a)
{
    return _mm512_set1_ps(a);
}
SIMD_INLINE vf vf_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
SIMD_INLINE vf vf_load_part(const float *p, uint32_t n)
{
    return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
}
SIMD_INLINE void vf_store(float *p, vf a)
{
    _mm512_storeu_ps(p, a);
}
SIMD_INLINE void vf_store_part(float *p, vf a, uint32_t n)
{
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), a);
}
SIMD_INLINE vf vf_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}
SIMD_INLINE vf vf_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}
SIMD_INLINE vf vf_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}
SIMD_INLINE vf vf_div(vf a, vf b)
{
    return _mm512_div_ps(a, b);
}
/* Smaller and larger; b where either is not a number. */
SIMD_INLINE vf vf_min(vf a, vf b)
{
    return _mm512_min_ps(a, b);
}
SIMD_INLINE vf vf_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}
/* a * b + c */
SIMD_INLINE vf vf_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}
/* Lanes where a < limit become zero. */
SIMD_INLINE vf vf_zero_below(vf v, vf a, vf limit)
{
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a, limit, _CMP_NLT_UQ), v);
}
/* x where it is not a number, elsewhere v. */
SIMD_INLINE vf vf_keep_nan(vf v, vf x)
{
    return _mm512_mask_mov_ps(v, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), x);
}
SIMD_INLINE vi vi_of_bits(vf a)
{
    return _mm512_castps_si512(a);
}
SIMD_INLINE vf vf_of_bits(vi a)
{
    return _mm512_castsi512_ps(a);
}
SIMD_INLINE vi vi_add(vi a, vi b)
{
    return _mm512_add_epi32(a, b);
}
SIMD_INLINE vi vi_sub(vi a, vi b)
{
    return _mm512_sub_epi32(a, b);
}
SIMD_INLINE vi vi_shl(vi a, int by)
{
    return _mm512_slli_epi32(a, (unsigned)by);
}
SIMD_INLINE vi vi_shr(vi a, int by)
{
    return _mm512_srli_epi32(a, (unsigned)by);
}
SIMD_INLINE vi vi_load(const void *p)
{
    return _mm512_loadu_si512(p);
}
SIMD_INLINE vi vi_load_part(const void *p, uint32_t n)
{
    return _mm512_maskz_loadu_epi32((__mmask16)((1u << n) - 1), p);
}
SIMD_INLINE vf vf_bf16(const uint16_t *p)
{
    __m256i h = _mm256_loadu_si256((const __m256i *)p);

    return vf_of_bits(vi_shl(_mm512_cvtepu16_epi32(h), 16));
}
SIMD_INLINE vf vf_bf16_part(const uint16_t *p, uint32_t n)
{
    __m256i h = _mm256_maskz_loadu_epi16((__mmask16)((1u << n) - 1), p);

    return vf_of_bits(vi_shl(_mm512_cvtepu16_epi32(h), 16));
}
SIMD_INLINE vf vf_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
SIMD_INLINE vf vf_f16_part(const uint16_t *p, uint32_t n)
{
    return _mm512_cvtph_ps(
        _mm256_maskz_loadu_epi16((__mmask16)((1u << n) - 1), p));
}
SIMD_INLINE vf vf_i8(const int8_t *p)
{
    return _mm512_cvtepi32_ps(
        _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
SIMD_INLINE vf vf_i8_part(const int8_t *p, uint32_t n)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(
        _mm_maskz_loadu_epi8((__mmask16)((1u << n) - 1), p)));
}
/* The four bits from 4 j on of each lane, minus 8. */
SIMD_INLINE vf vf_nibble(vi q, int j)
{
    const vf table =
        _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);

    return _mm512_permutexvar_ps(vi_shr(q, 4 * j), table);
}
/* The sum of all lanes, halves first. */
SIMD_INLINE float vf_sum(vf a)
{
    __m256 h =
        _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 q =
        _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));

    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}
/* The sums of four vectors, bit for bit those of vf_sum. */
SIMD_INLINE void vf_sum4(const vf *a, float *out)
{
    vf t = vf_add(_mm512_shuffle_f32x4(a[0], a[1], 0x44),
                  _mm512_shuffle_f32x4(a[0], a[1], 0xee));
    vf u = vf_add(_mm512_shuffle_f32x4(a[2], a[3], 0x44),
                  _mm512_shuffle_f32x4(a[2], a[3], 0xee));
    vf v = vf_add(_mm512_shuffle_f32x4(t, u, 0x88),
                  _mm512_shuffle_f32x4(t, u, 0xdd)); /* a 128-bit lane each */

    v = vf_add(v, _mm512_permute_ps(v, 0x4e));
    v = vf_add(v, _mm512_permute_ps(v, 0xb1));
    v = _mm512_permutexvar_ps(
        _mm512_castsi128_si512(_mm_setr_epi32(0, 4, 8, 12)), v);
    _mm_storeu_ps(out, _mm512_castps512_ps128(v));
}
SIMD_INLINE float vf_top(vf a)
{
    return _mm512_reduce_max_ps(a);
}

#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
/* ---- AVX2 with FMA ------------------------------------------------------- */
#include <immintrin.h>

#define SIMD_LANES 8
typedef __m256 vf;
typedef __m256i vi;

SIMD_INLINE __m256i simd_mask(uint32_t n)
{
    static const int32_t m[16] = { -1, -1, -1, -1, -1, -1, -1, -1 };

    return _mm256_loadu_si256((const __m256i *)(m + 8 - n));
}
SIMD_INLINE vf vf_set1(float a)
{
    return _mm256_set1_ps(a);
}
SIMD_INLINE vf vf_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
SIMD_INLINE vf vf_load_part(const float *p, uint32_t n)
{
    return _mm256_maskload_ps(p, simd_mask(n));
}
SIMD_INLINE void vf_store(float *p, vf a)
{
    _mm256_storeu_ps(p, a);
}
SIMD_INLINE void vf_store_part(float *p, vf a, uint32_t n)
{
    _mm256_maskstore_ps(p, simd_mask(n), a);
}
SIMD_INLINE vf vf_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
}
SIMD_INLINE vf vf_sub(vf a, vf b)
{
    return _mm256_sub_ps(a, b);
}
SIMD_INLINE vf vf_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}
SIMD_INLINE vf vf_div(vf a, vf b)
{
    return _mm256_div_ps(a, b);
}
SIMD_INLINE vf vf_min(vf a, vf b)
{
    return _mm256_min_ps(a, b);
}
SIMD_INLINE vf vf_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}
SIMD_INLINE vf vf_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}
SIMD_INLINE vf vf_zero_below(vf v, vf a, vf limit)
{
    return _mm256_and_ps(v, _mm256_cmp_ps(a, limit, _CMP_NLT_UQ));
}
SIMD_INLINE vf vf_keep_nan(vf v, vf x)
{
    return _mm256_blendv_ps(v, x, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}
SIMD_INLINE vi vi_of_bits(vf a)
{
    return _mm256_castps_si256(a);
}
SIMD_INLINE vf vf_of_bits(vi a)
{
    return _mm256_castsi256_ps(a);
}
SIMD_INLINE vi vi_add(vi a, vi b)
{
    return _mm256_add_epi32(a, b);
}
SIMD_INLINE vi vi_sub(vi a, vi b)
{
    return _mm256_sub_epi32(a, b);
}
SIMD_INLINE vi vi_shl(vi a, int by)
{
    return _mm256_slli_epi32(a, by);
}
SIMD_INLINE vi vi_shr(vi a, int by)
{
    return _mm256_srli_epi32(a, by);
}
SIMD_INLINE vi vi_load(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}
SIMD_INLINE vi vi_load_part(const void *p, uint32_t n)
{
    return _mm256_maskload_epi32((const int *)p, simd_mask(n));
}
SIMD_INLINE vf vf_bf16(const uint16_t *p)
{
    __m128i h = _mm_loadu_si128((const __m128i *)p);

    return vf_of_bits(vi_shl(_mm256_cvtepu16_epi32(h), 16));
}
SIMD_INLINE __m128i simd_half_part(const uint16_t *p, uint32_t n)
{
    uint16_t t[8] = { 0 };

    memcpy(t, p, n * sizeof *p);
    return _mm_loadu_si128((const __m128i *)t);
}
SIMD_INLINE vf vf_bf16_part(const uint16_t *p, uint32_t n)
{
    return vf_of_bits(vi_shl(_mm256_cvtepu16_epi32(simd_half_part(p, n)), 16));
}
SIMD_INLINE vf vf_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}
SIMD_INLINE vf vf_f16_part(const uint16_t *p, uint32_t n)
{
    return _mm256_cvtph_ps(simd_half_part(p, n));
}
SIMD_INLINE vf vf_i8(const int8_t *p)
{
    return _mm256_cvtepi32_ps(
        _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}
SIMD_INLINE vf vf_i8_part(const int8_t *p, uint32_t n)
{
    int8_t t[8] = { 0 };

    memcpy(t, p, n);
    return vf_i8(t);
}
SIMD_INLINE vf vf_nibble(vi q, int j)
{
    /* Flipping the top bit turns q - 8 into two's complement. */
    vi s =
        _mm256_xor_si256(vi_shl(q, 28 - 4 * j), _mm256_set1_epi32(INT32_MIN));

    return _mm256_cvtepi32_ps(_mm256_srai_epi32(s, 28));
}
SIMD_INLINE float vf_sum(vf a)
{
    __m128 q =
        _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));

    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}
SIMD_INLINE void vf_sum4(const vf *a, float *out)
{
    vf t = _mm256_add_ps(_mm256_permute2f128_ps(a[0], a[1], 0x20),
                         _mm256_permute2f128_ps(a[0], a[1], 0x31));
    vf u = _mm256_add_ps(_mm256_permute2f128_ps(a[2], a[3], 0x20),
                         _mm256_permute2f128_ps(a[2], a[3], 0x31));
    vf v = _mm256_add_ps(_mm256_shuffle_ps(t, u, 0x44),
                         _mm256_shuffle_ps(t, u, 0xee));

    v = _mm256_hadd_ps(v, v); /* 0, 2, and in the upper half 1, 3 */
    _mm_storeu_ps(out, _mm_unpacklo_ps(_mm256_castps256_ps128(v),
                                       _mm256_extractf128_ps(v, 1)));
}
SIMD_INLINE float vf_top(vf a)
{
    __m128 q =
        _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));

    q = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)));
}

#else
/* ---- Any machine: the compiler's own vectors of four ---------------------- */

#include "weights.h"

#define SIMD_LANES 4
typedef float vf __attribute__((vector_size(16)));
typedef int32_t vi __attribute__((vector_size(16)));
typedef uint32_t simd_vu __attribute__((vector_size(16)));
typedef uint16_t simd_vh __attribute__((vector_size(8)));
typedef int8_t simd_vb __attribute__((vector_size(4)));

/* What tails and halves need is called: inlined into every tile it was most of
 * the program. */
#define SIMD_CALL  static __attribute__((noinline, unused))

SIMD_INLINE vf vf_set1(float a)
{
    return (vf){ a, a, a, a };
}
SIMD_CALL vf vf_load_part(const float *p, uint32_t n)
{
    vf a = vf_set1(0);

    memcpy(&a, p, n * sizeof *p);
    return a;
}
SIMD_INLINE vf vf_load(const float *p)
{
    vf a;

    memcpy(&a, p, sizeof a);
    return a;
}
SIMD_CALL void vf_store_part(float *p, vf a, uint32_t n)
{
    memcpy(p, &a, n * sizeof *p);
}
SIMD_INLINE void vf_store(float *p, vf a)
{
    memcpy(p, &a, sizeof a);
}
SIMD_INLINE vf vf_add(vf a, vf b)
{
    return a + b;
}
SIMD_INLINE vf vf_sub(vf a, vf b)
{
    return a - b;
}
SIMD_INLINE vf vf_mul(vf a, vf b)
{
    return a * b;
}
SIMD_INLINE vf vf_div(vf a, vf b)
{
    return a / b;
}
SIMD_INLINE vf simd_pick(vi m, vf a, vf b)
{
    return (vf)((m & (vi)a) | (~m & (vi)b));
}
SIMD_INLINE vf vf_min(vf a, vf b)
{
    return simd_pick(a < b, a, b);
}
SIMD_INLINE vf vf_max(vf a, vf b)
{
    return simd_pick(a > b, a, b);
}
SIMD_INLINE vf vf_fma(vf a, vf b, vf c)
{
    return a * b + c;
}
SIMD_INLINE vf vf_zero_below(vf v, vf a, vf limit)
{
    return (vf)((vi)v & ~(a < limit));
}
SIMD_INLINE vf vf_keep_nan(vf v, vf x)
{
    return simd_pick(x == x, v, x);
}
SIMD_INLINE vi vi_of_bits(vf a)
{
    return (vi)a;
}
SIMD_INLINE vf vf_of_bits(vi a)
{
    return (vf)a;
}
SIMD_INLINE vi vi_add(vi a, vi b)
{
    return (vi)((simd_vu)a + (simd_vu)b);
}
SIMD_INLINE vi vi_sub(vi a, vi b)
{
    return (vi)((simd_vu)a - (simd_vu)b);
}
SIMD_INLINE vi vi_shl(vi a, int by)
{
    return (vi)((simd_vu)a << (uint32_t)by);
}
SIMD_INLINE vi vi_shr(vi a, int by)
{
    return (vi)((simd_vu)a >> (uint32_t)by);
}
SIMD_CALL vi vi_load_part(const void *p, uint32_t n)
{
    vi a = { 0, 0, 0, 0 };

    memcpy(&a, p, n * sizeof(int32_t));
    return a;
}
SIMD_INLINE vi vi_load(const void *p)
{
    vi a;

    memcpy(&a, p, sizeof a);
    return a;
}
SIMD_INLINE vf vf_bf16(const uint16_t *p)
{
    simd_vh h;

    memcpy(&h, p, sizeof h);
    return (vf)(__builtin_convertvector(h, simd_vu) << 16);
}
SIMD_CALL vf vf_bf16_part(const uint16_t *p, uint32_t n)
{
    uint16_t t[4] = { 0 };

    memcpy(t, p, n * sizeof *p);
    return vf_bf16(t);
}
SIMD_CALL vf vf_f16_part(const uint16_t *p, uint32_t n)
{
    vf a = vf_set1(0);

    for (uint32_t i = 0; i < n; i++)
        a[i] = weights_f16(p[i]);
    return a;
}
SIMD_INLINE vf vf_f16(const uint16_t *p)
{
    return vf_f16_part(p, 4);
}
SIMD_INLINE vf vf_i8(const int8_t *p)
{
    simd_vb b;

    memcpy(&b, p, sizeof b);
    return __builtin_convertvector(b, vf);
}
SIMD_CALL vf vf_i8_part(const int8_t *p, uint32_t n)
{
    int8_t t[4] = { 0 };

    memcpy(t, p, n);
    return vf_i8(t);
}
SIMD_INLINE vf vf_nibble(vi q, int j)
{
    vi s = (vi_shr(q, 4 * j) & (vi){ 15, 15, 15, 15 }) - (vi){ 8, 8, 8, 8 };

    return __builtin_convertvector(s, vf);
}
SIMD_INLINE float vf_sum(vf a)
{
    return (a[0] + a[2]) + (a[1] + a[3]);
}
SIMD_INLINE void vf_sum4(const vf *a, float *out)
{
    for (int i = 0; i < 4; i++)
        out[i] = vf_sum(a[i]);
}
SIMD_INLINE float vf_top(vf a)
{
    float b = a[0] > a[2] ? a[0] : a[2], c = a[1] > a[3] ? a[1] : a[3];

    return b > c ? b : c;
}
#endif

/* ---- Everywhere ---------------------------------------------------------- */

SIMD_INLINE vf vf_zero(void)
{
    return vf_set1(0);
}

/* n lanes, n <= SIMD_LANES. */
SIMD_INLINE vf vf_load_n(const float *p, uint32_t n)
{
    return n == SIMD_LANES ? vf_load(p) : vf_load_part(p, n);
}
SIMD_INLINE void vf_store_n(float *p, vf a, uint32_t n)
{
    if (n == SIMD_LANES)
        vf_store(p, a);
    else
        vf_store_part(p, a, n);
}
SIMD_INLINE vi vi_load_n(const void *p, uint32_t n)
{
    return n == SIMD_LANES ? vi_load(p) : vi_load_part(p, n);
}

/* exp to about one unit in the last place; 0 below -87.3, 1.7e38 above 88. */
SIMD_INLINE vf vf_exp(vf x)
{
    const vf magic = vf_set1(12582912.0f); /* 1.5 * 2^23 rounds to integer */
    vf c = vf_min(vf_max(x, vf_set1(-87.3f)), vf_set1(88));
    vf t = vf_fma(c, vf_set1(1.44269504f), magic);
    vf n = vf_sub(t, magic);
    vf r = vf_fma(n, vf_set1(-0.693359375f), c);
    vf p = vf_set1(1.9875691500e-4f);

    r = vf_fma(n, vf_set1(2.12194440e-4f), r);
    p = vf_fma(p, r, vf_set1(1.3981999507e-3f));
    p = vf_fma(p, r, vf_set1(8.3334519073e-3f));
    p = vf_fma(p, r, vf_set1(4.1665795894e-2f));
    p = vf_fma(p, r, vf_set1(1.6666665459e-1f));
    p = vf_fma(p, r, vf_set1(5.0000001201e-1f));
    p = vf_add(vf_fma(p, vf_mul(r, r), r), vf_set1(1.0f));
    p = vf_of_bits(vi_add(
        vi_of_bits(p), vi_shl(vi_sub(vi_of_bits(t), vi_of_bits(magic)), 23)));
    return vf_keep_nan(vf_zero_below(p, x, vf_set1(-87.3f)), x);
}

/* 0 where exp(-x) would not fit. */
SIMD_INLINE vf vf_sigmoid(vf x)
{
    vf e = vf_exp(vf_sub(vf_zero(), x));

    return vf_zero_below(vf_div(vf_set1(1), vf_add(vf_set1(1), e)), x,
                         vf_set1(-87.3f));
}

#endif
