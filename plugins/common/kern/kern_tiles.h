/* What all that computes on AMX tiles has in common. */
#ifndef SEAM_KERN_TILES_H
#define SEAM_KERN_TILES_H

#include <immintrin.h>
#include <stdint.h>

/* What ldtilecfg reads. */
struct tile_config {
    uint8_t palette, start_row, zero[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* Before tiles read what was written.  The compiler knows neither that they do,
 * nor that all of c is read (gcc 12: its first eight bytes). */
static inline void tile_configure(const struct tile_config *c)
{
    __asm__ volatile("" : : "r"(c) : "memory");
    _tile_loadconfig(c);
}

/* Sixteen rows of sixteen words, turned. */
static inline void tile_transpose(__m512i r[16])
{
    __m512i t[16];

    for (uint32_t i = 0; i < 16; i += 4) {
        __m512i a = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        __m512i b = _mm512_unpackhi_epi32(r[i], r[i + 1]);
        __m512i c = _mm512_unpacklo_epi32(r[i + 2], r[i + 3]);
        __m512i d = _mm512_unpackhi_epi32(r[i + 2], r[i + 3]);

        t[i] = _mm512_unpacklo_epi64(a, c);
        t[i + 1] = _mm512_unpackhi_epi64(a, c);
        t[i + 2] = _mm512_unpacklo_epi64(b, d);
        t[i + 3] = _mm512_unpackhi_epi64(b, d);
    }
    /* t[4 q + e] has the words 4 l + e of the rows 4 q .. in its quarter l. */
    for (uint32_t e = 0; e < 4; e++) {
        __m512i a = _mm512_shuffle_i32x4(t[e], t[4 + e], 0x88);
        __m512i b = _mm512_shuffle_i32x4(t[8 + e], t[12 + e], 0x88);
        __m512i c = _mm512_shuffle_i32x4(t[e], t[4 + e], 0xdd);
        __m512i d = _mm512_shuffle_i32x4(t[8 + e], t[12 + e], 0xdd);

        r[e] = _mm512_shuffle_i32x4(a, b, 0x88);
        r[4 + e] = _mm512_shuffle_i32x4(c, d, 0x88);
        r[8 + e] = _mm512_shuffle_i32x4(a, b, 0xdd);
        r[12 + e] = _mm512_shuffle_i32x4(c, d, 0xdd);
    }
}

#endif
