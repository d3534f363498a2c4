/* Integer products with AVX-512 VNNI. */
#include "kern_fast512.h"

#include <math.h>

#define INLINE FAST_INLINE
#define UNROLL FAST_UNROLL

/* ---- Packing ------------------------------------------------------------- */

/* The largest value: of two planes, and of three such that a group's product
 * with numbers up to 16 fits 32 bits. */
static float value_max(struct kern_form f)
{
    return f.kind == KERN_NIBBLES ? (float)((1u << 27) / f.group - 1) : 32639;
}

void kern_vnni_pack(const float *x, struct kern_form f, uint32_t k, uint32_t k0,
                    uint32_t n, void *rec)
{
    struct fast_row row = fast_row(rec, f, k);
    const __m512i half = _mm512_set1_epi32(128);
    const float most = value_max(f);
    const __m512i swap =
        _mm512_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
    const __m512i bits = _mm512_set1_epi32(INT32_MAX);

    for (uint32_t i = 0; i < n; i += f.group) {
        __m512i top = _mm512_setzero_si512(), sum = top;
        float scale = NAN, inv = 0, max;
        int32_t top_bits;

        /* As integers, since a number that is none must not get lost. */
        for (uint32_t j = 0; j < f.group; j += 16) {
            __m512i v = _mm512_loadu_si512(x + i + j);

            top = _mm512_max_epi32(top, _mm512_and_si512(v, bits));
        }
        top_bits = _mm512_reduce_max_epi32(top);
        memcpy(&max, &top_bits, sizeof max);
        if (isfinite(max)) {
            scale = max > 1e-30f ? max / most : 0;
            inv = max > 1e-30f ? most / max : 0;
        }
        for (uint32_t j = 0; j < f.group; j += 16) {
            __m512 v = _mm512_loadu_ps(x + i + j);
            __m512i q;
            uint32_t at = k0 + i + j;

            v = _mm512_mul_ps(v, _mm512_set1_ps(inv));
            q = isfinite(max) ? _mm512_cvtps_epi32(v) : _mm512_setzero_si512();
            sum = _mm512_add_epi32(sum, q);
            if (f.kind == KERN_NIBBLES)
                q = _mm512_permutexvar_epi32(swap, q);
            _mm_storeu_si128((__m128i *)(row.l + at), _mm512_cvtepi32_epi8(q));
            q = _mm512_srai_epi32(_mm512_add_epi32(q, half), 8);
            _mm_storeu_si128((__m128i *)(row.m + at), _mm512_cvtepi32_epi8(q));
            if (f.kind != KERN_NIBBLES)
                continue;
            q = _mm512_srai_epi32(_mm512_add_epi32(q, half), 8);
            _mm_storeu_si128((__m128i *)(row.h + at), _mm512_cvtepi32_epi8(q));
        }
        ((float *)row.scale)[(k0 + i) / f.group] = scale;
        ((int32_t *)row.sum)[(k0 + i) / f.group] = _mm512_reduce_add_epi32(sum);
    }
}

/* ---- Nibbles ------------------------------------------------------------- */

/* Group g of nu vectors of outputs from o on, of the last the lanes `last`, for
 * mr rows: added to tot [mr][nu].  Rows of words lie far apart, so that the
 * processor sees no stream in them: the like tile at `next`, whose rows are
 * next_stride apart, is fetched meanwhile. */
INLINE void nibble_group(uint32_t mr, uint32_t nu, const struct kern_mat *w,
                         uint32_t g, uint32_t o, __mmask16 last,
                         const struct fast_row *x, const unsigned char *next,
                         uint64_t next_stride, __m512 *tot)
{
    const __m512i low = _mm512_set1_epi32(0x0f0f0f0f);
    uint32_t gc = w->group_cols;
    __m512i h[8], m[8], l[8];

    UNROLL
    for (uint32_t u = 0; u < nu; u++) {
        __m512i z =
            w->zero ? fast_zeros(w, g, o + 16 * u) : _mm512_set1_epi32(8);

        UNROLL
        for (uint32_t r = 0; r < mr; r++) {
            h[r * nu + u] = _mm512_setzero_si512();
            m[r * nu + u] = _mm512_setzero_si512();
            l[r * nu + u] = _mm512_sub_epi32(
                _mm512_setzero_si512(),
                _mm512_mullo_epi32(z, _mm512_set1_epi32(x[r].sum[g])));
        }
    }
    for (uint32_t k = g * gc; k < (g + 1) * gc; k += 8) {
        const unsigned char *p = w->w + 4 * ((uint64_t)(k / 8) * w->n + o);

        UNROLL
        for (uint32_t u = 0; u < nu; u++) {
            __m512i q = u + 1 < nu ? _mm512_loadu_si512(p + 64 * u)
                                   : _mm512_maskz_loadu_epi32(last, p + 64 * u);
            __m512i even = _mm512_and_si512(q, low);
            __m512i odd = _mm512_and_si512(_mm512_srli_epi32(q, 4), low);

            __builtin_prefetch(next + 64 * u);
            UNROLL
            for (uint32_t r = 0; r < mr; r++) {
                uint32_t j = r * nu + u;

                l[j] = fast_dp(l[j], even, x[r].l + k);
                m[j] = fast_dp(m[j], even, x[r].m + k);
                h[j] = fast_dp(h[j], even, x[r].h + k);
                l[j] = fast_dp(l[j], odd, x[r].l + k + 4);
                m[j] = fast_dp(m[j], odd, x[r].m + k + 4);
                h[j] = fast_dp(h[j], odd, x[r].h + k + 4);
            }
        }
        next += next_stride;
    }
    UNROLL
    for (uint32_t u = 0; u < nu; u++) {
        __m512 s = fast_load_scales(w, (uint64_t)g * w->n + o + 16 * u,
                                    u + 1 < nu ? 0xffff : last);

        UNROLL
        for (uint32_t r = 0; r < mr; r++) {
            uint32_t j = r * nu + u;
            __m512i v = _mm512_add_epi32(_mm512_slli_epi32(h[j], 8), m[j]);

            v = _mm512_add_epi32(_mm512_slli_epi32(v, 8), l[j]);
            tot[j] = fast_scaled(v, x[r].scale[g], s, tot[j]);
        }
    }
}

/* Outputs [*o, o1), nu vectors at a time as long as they are whole or nu is 1,
 * for live <= mr rows; the rows of x past live repeat the last. */
INLINE void nibble_rows(uint32_t mr, uint32_t nu, const struct kern_mat *w,
                        uint32_t *o, uint32_t o1, const struct fast_row *x,
                        uint32_t live, float *y, int64_t ldy, const float *bias,
                        bool add)
{
    uint64_t row = 4 * (uint64_t)w->n, group = w->group_cols / 8 * row;
    __m512 tot[8];

    for (; *o < o1 && (nu == 1 || o1 - *o >= 16 * nu); *o += 16 * nu) {
        __mmask16 last = nu == 1 ? fast_lanes(o1 - *o) : 0xffff;

        UNROLL
        for (uint32_t j = 0; j < mr * nu; j++)
            tot[j] = _mm512_setzero_ps();
        for (uint32_t g = 0; g < w->k / w->group_cols; g++)
            nibble_group(mr, nu, w, g, *o, last, x,
                         w->w + (g + 1) * group + 4 * (uint64_t)*o, row, tot);
        for (uint32_t r = 0; r < live; r++)
            for (uint32_t u = 0; u < nu; u++)
                fast_put(y + r * ldy + 16 * u, tot[r * nu + u],
                         bias ? bias + *o + 16 * u : NULL, add,
                         u + 1 < nu ? 0xffff : last);
        y += 16 * nu;
    }
}

/* Outputs [o0, o1) for one row, group by group, so that what is read lies as
 * close together as it can. */
static void nibbles_one(const struct kern_mat *w, uint32_t o0, uint32_t o1,
                        const struct fast_row *x, float *y, const float *bias,
                        bool add, const struct fast_next *after)
{
    uint64_t group = w->group_cols / 8 * 4 * (uint64_t)w->n;
    struct fast_next next = fast_next(w, o0);
    uint32_t n_groups = w->k / w->group_cols, n = (o1 - o0 + 15) / 16;
    __m512 tot[KERN_WIDE / 16];

    for (uint32_t i = 0; i < n; i++)
        tot[i] = _mm512_setzero_ps();
    for (uint32_t g = 0; g < n_groups; g++) {
        uint32_t i = 0;

        if (g + 1 < n_groups)
            next.p += group;
        else if (after)
            next = *after;
        for (; (i + 4) * 16 <= o1 - o0; i += 4)
            nibble_group(1, 4, w, g, o0 + 16 * i, 0xffff, x, next.p + 64 * i,
                         next.row, tot + i);
        for (; i < n; i++)
            nibble_group(1, 1, w, g, o0 + 16 * i, fast_lanes(o1 - o0 - 16 * i),
                         x, next.p + 64 * i, next.row, tot + i);
    }
    for (uint32_t i = 0; i < n; i++)
        fast_put(y + 16 * i, tot[i], bias ? bias + o0 + 16 * i : NULL, add,
                 fast_lanes(o1 - o0 - 16 * i));
}

enum { TILE_R = 4 };

static void nibbles(const struct kern_mat *w, uint32_t o0, uint32_t o1,
                    const void *rec, uint64_t stride, uint32_t m, float *y,
                    int64_t ldy, const float *bias, bool add,
                    const struct fast_next *next)
{
    struct kern_form f = { KERN_NIBBLES, w->group_cols };

    for (uint32_t r = 0, mr; r < m; r += mr) {
        struct fast_row x[TILE_R];
        float *to = y + r * ldy;
        uint32_t o = o0;

        mr = m - r < TILE_R ? m - r : TILE_R;
        for (uint32_t i = 0; i < TILE_R; i++)
            x[i] = fast_row((const char *)rec +
                                (r + (i < mr ? i : mr - 1)) * stride,
                            f, w->k);
#define ROWS(mr_, nu) \
    nibble_rows(mr_, nu, w, &o, o1, x, mr, to + (o - o0), ldy, bias, add)
        if (mr == 1) {
            nibbles_one(w, o0, o1, x, to, bias, add, next);
        } else if (mr == 2) {
            ROWS(2, 4);
            ROWS(2, 1);
        } else {
            ROWS(TILE_R, 2);
            ROWS(TILE_R, 1);
        }
#undef ROWS
    }
}

/* ---- Bytes --------------------------------------------------------------- */

/* The lanes of a, b, c and d added up within quarters: (a, b, c, d) four
 * times. */
INLINE __m512i add_four(__m512i a, __m512i b, __m512i c, __m512i d)
{
    __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b),
                                  _mm512_unpackhi_epi32(a, b));
    __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d),
                                  _mm512_unpackhi_epi32(c, d));

    return _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd),
                            _mm512_unpackhi_epi64(ab, cd));
}

/* Quarters added up, those of a first. */
INLINE __m512i add_quarters(__m512i a, __m512i b)
{
    return _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x88),
                            _mm512_shuffle_i32x4(a, b, 0xdd));
}

/* Products of one group of four rows of weights with a packed row; each sum is
 * spread over the lanes. */
INLINE __m512i four_rows(const int8_t *const *w, uint32_t at, uint32_t n,
                         const struct fast_row *x, uint64_t ahead)
{
    const __m512i flip = _mm512_set1_epi8(-128);
    __m512i l[4], m[4];

    UNROLL
    for (uint32_t j = 0; j < 4; j++)
        l[j] = m[j] = _mm512_setzero_si512();
    for (uint32_t i = 0; i < n; i += 64) {
        __mmask64 live = n - i < 64 ? 0xffffffff : ~(__mmask64)0;
        __m512i xl = _mm512_maskz_loadu_epi8(live, x->l + at + i);
        __m512i xm = _mm512_maskz_loadu_epi8(live, x->m + at + i);

        UNROLL
        for (uint32_t j = 0; j < 4; j++) {
            const int8_t *p = w[j] + at + i;
            __m512i u = _mm512_maskz_loadu_epi8(live, p);

            __builtin_prefetch(p + ahead);
            u = _mm512_xor_si512(u, flip);
            l[j] = _mm512_dpbusd_epi32(l[j], u, xl);
            m[j] = _mm512_dpbusd_epi32(m[j], u, xm);
        }
    }
    UNROLL
    for (uint32_t j = 0; j < 4; j++)
        l[j] = _mm512_add_epi32(_mm512_slli_epi32(m[j], 8), l[j]);
    return add_four(l[0], l[1], l[2], l[3]);
}

/* Scales of group g of the rows `row`, which count from w's first. */
INLINE __m512 byte_scales(const struct kern_mat *w, __m512i row, uint32_t g)
{
    uint32_t groups = w->k / w->group_cols;
    uint64_t at = (uint64_t)w->row0 * groups + g;
    int32_t r[16];
    float s[16];

    if (w->scale_dtype == SEAM_F32 && (uint64_t)w->n * groups < 1u << 31)
        return _mm512_i32gather_ps(
            _mm512_mullo_epi32(row, _mm512_set1_epi32((int)groups)),
            (const float *)w->scale + at, 4);
    _mm512_storeu_si512(r, row);
    for (uint32_t j = 0; j < 16; j++)
        s[j] = weights_elem(w->scale, w->scale_dtype,
                            at + (uint64_t)r[j] * groups);
    return _mm512_loadu_ps(s);
}

/* Weights are made unsigned by adding 128.  The sixteen rows of a vector of
 * outputs lie `apart`, so that the processor sees sixteen long streams. */
static void bytes(const struct kern_mat *w, uint32_t o0, uint32_t o1,
                  const void *rec, uint64_t stride, uint32_t m, float *y,
                  int64_t ldy, const float *bias, bool add)
{
    struct kern_form f = { KERN_BYTES, w->group_cols };
    uint32_t gc = w->group_cols, apart = (o1 - o0 + 15) / 16;
    const __m512i lane = _mm512_mullo_epi32(
        _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
        _mm512_set1_epi32((int)apart));

    for (uint32_t o = o0; o < o0 + apart; o++) {
        __m512i row =
            _mm512_min_epu32(_mm512_add_epi32(lane, _mm512_set1_epi32((int)o)),
                             _mm512_set1_epi32((int)o1 - 1));
        const int8_t *p[16];
        uint32_t at[16];

        _mm512_storeu_si512(at, row);
        for (uint32_t j = 0; j < 16; j++)
            p[j] = (const int8_t *)w->w + at[j] * w->stride;
        for (uint32_t r = 0; r < m; r++) {
            struct fast_row x =
                fast_row((const char *)rec + r * stride, f, w->k);
            /* The next rows, while the first row of x passes. */
            uint64_t ahead = r ? 0 : w->stride;
            __m512 tot = _mm512_setzero_ps();
            float sum[16];

            for (uint32_t g = 0; g * gc < w->k; g++) {
                __m512i v = add_quarters(
                    add_quarters(four_rows(p, g * gc, gc, &x, ahead),
                                 four_rows(p + 4, g * gc, gc, &x, ahead)),
                    add_quarters(four_rows(p + 8, g * gc, gc, &x, ahead),
                                 four_rows(p + 12, g * gc, gc, &x, ahead)));

                v = _mm512_sub_epi32(v, _mm512_set1_epi32(x.sum[g] * 128));
                tot = fast_scaled(v, x.scale[g], byte_scales(w, row, g), tot);
            }
            _mm512_storeu_ps(sum, tot);
            for (uint32_t j = 0; j < 16 && o + j * apart < o1; j++) {
                float *to = y + r * ldy + (at[j] - o0);
                float v = bias ? sum[j] + bias[at[j]] : sum[j];

                *to = add ? *to + v : v;
            }
        }
    }
}

void kern_vnni_dot(const struct kern_mat *w, uint32_t o0, uint32_t o1,
                   const void *rec, uint64_t stride, uint32_t m, float *y,
                   int64_t ldy, const float *bias, bool add,
                   const struct fast_next *next, void *scratch)
{
    (void)scratch;
    if (w->dtype == SEAM_I8)
        bytes(w, o0, o1, rec, stride, m, y, ldy, bias, add);
    else
        nibbles(w, o0, o1, rec, stride, m, y, ldy, bias, add, next);
}

const struct kern_fast kern_fast_vnni = {
    .pack = kern_vnni_pack,
    .dot = kern_vnni_dot,
    .across = kern_vnni_across,
};
