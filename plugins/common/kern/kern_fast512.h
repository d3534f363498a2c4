/* What the integer products with VNNI and with tiles have in common: with it,
 * both compute the same bits. */
#ifndef SEAM_KERN_FAST512_H
#define SEAM_KERN_FAST512_H

#include <immintrin.h>

#include "kern_fast.h"

#define FAST_INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define FAST_UNROLL _Pragma("unroll")
#else
#define FAST_UNROLL _Pragma("GCC unroll 16")
#endif

FAST_INLINE __mmask16 fast_lanes(uint32_t n)
{
    return n >= 16 ? 0xffff : (__mmask16)((1u << n) - 1);
}

/* acc + the products of four bytes of each lane of u, without signs, with the
 * four at s, with signs.  _mm512_dpbusd_epi32 by name, because gcc 12 copies and
 * spills the sums around it: two rows of int4 take 1.1 to 1.2 times as long. */
FAST_INLINE __m512i fast_dp(__m512i acc, __m512i u, const int8_t *s)
{
    typedef int32_t __attribute__((aligned(1), may_alias)) four;

    __asm__("vpdpbusd %2%{1to16%}, %1, %0"
            : "+v"(acc)
            : "v"(u), "m"(*(const four *)s));
    return acc;
}

/* Stored scales from number i on. */
FAST_INLINE __m512 fast_load_scales(const struct kern_mat *w, uint64_t i,
                                    __mmask16 live)
{
    const uint16_t *h = (const uint16_t *)w->scale + i;

    switch (w->scale_dtype) {
    case SEAM_F16:
        return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(live, h));
    case SEAM_BF16:
        return _mm512_castsi512_ps(_mm512_slli_epi32(
            _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(live, h)), 16));
    default:
        return _mm512_maskz_loadu_ps(live, (const float *)w->scale + i);
    }
}

/* Zero points of the nibbles of 16 outputs from o on in group g.  Seldom
 * anything but 8, so that it is no part of the loops. */
static __attribute__((noinline, unused)) __m512i fast_zeros(
    const struct kern_mat *w, uint32_t g, uint32_t o)
{
    int32_t z[16] = { 0 };

    if (!w->zero)
        return _mm512_set1_epi32(8);
    for (uint32_t j = 0; j < 16 && o + j < w->n; j++) {
        uint32_t word;

        memcpy(&word, w->zero + 4 * ((uint64_t)g * (w->n / 8) + (o + j) / 8),
               4);
        z[j] = (int32_t)(word >> 4 * ((o + j) % 8) & 15) + 1;
    }
    return _mm512_loadu_si512(z);
}

/* tot + integer * scale of x * scale of w: everywhere the same three
 * roundings. */
FAST_INLINE __m512 fast_scaled(__m512i v, float xs, __m512 ws, __m512 tot)
{
    return _mm512_fmadd_ps(
        _mm512_mul_ps(_mm512_cvtepi32_ps(v), _mm512_set1_ps(xs)), ws, tot);
}

FAST_INLINE void fast_put(float *y, __m512 v, const float *bias, bool add,
                          __mmask16 live)
{
    if (bias)
        v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(live, bias));
    if (add)
        v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(live, y));
    _mm512_mask_storeu_ps(y, live, v);
}

#endif
