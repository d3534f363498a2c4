/* The kernels, written once over simd.h.  Included by one file per instruction
 * set, which defines KERN_TABLE (the table's identifier) and KERN_NAME.
 *
 * Products of a weight stored row by row run along k: each output has one
 * vector accumulator, lane l of which sums the inputs l, l + L, l + 2 L, ...,
 * and the lanes are added at the end.  GPTQ weights are stored the other way
 * round, so there a lane is an output and each group of inputs is summed in
 * turn.  Tiles differ only in how many rows and outputs share a load. */
#include <math.h>

#include "kern.h"
#include "simd.h"

#define L SIMD_LANES

#if defined(__clang__)
#define UNROLL   _Pragma("unroll")
#define UNROLL_4 _Pragma("unroll 4")
#else
#define UNROLL   _Pragma("GCC unroll 16")
#define UNROLL_4 _Pragma("GCC unroll 4")
#endif

#if L == 16
#define TILE_R  6 /* rows and outputs of the largest tile: 24 accumulators    */
#define GPTQ_U1 8 /* vectors of outputs at one row                            */
#define GPTQ_R  12 /* rows of a tile over an unpacked panel                    */
#define GPTQ_FEW \
    8 /* rows of a tile that unpacks in registers                 */
#elif L == 8
#define TILE_R   3
#define GPTQ_U1  4
#define GPTQ_R   6
#define GPTQ_FEW 4
#else
#define TILE_R   2
#define GPTQ_U1  4
#define GPTQ_R   4
#define GPTQ_FEW 4
#endif
#define TILE_N     4
#define DIRECT     (2 * TILE_R) /* rows that are worth no unpacking             */
#define TILE_N1    8 /* outputs at one row                                    */
#define CHUNK_K    1024 /* inputs of a panel                                    */
#define PANEL_N    32 /* outputs of a panel                                   */
#define GPTQ_MAX   1024 /* inputs of a group                                  */
#define GPTQ_AHEAD 16   /* rows of words that are fetched ahead               */

/* ---- Weights as floats --------------------------------------------------- */

SIMD_INLINE vf w_load(uint16_t dtype, const void *p, uint32_t i)
{
    switch (dtype) {
    case SEAM_BF16:
        return vf_bf16((const uint16_t *)p + i);
    case SEAM_F16:
        return vf_f16((const uint16_t *)p + i);
    case SEAM_I8:
        return vf_i8((const int8_t *)p + i);
    default:
        return vf_load((const float *)p + i);
    }
}

SIMD_INLINE uint32_t w_bytes(uint16_t dtype)
{
    return dtype == SEAM_I8 ? 1 : dtype == SEAM_F32 ? 4 : 2;
}

SIMD_INLINE vf w_load_part(uint16_t dtype, const void *p, uint32_t i,
                           uint32_t n)
{
    switch (dtype) {
    case SEAM_BF16:
        return vf_bf16_part((const uint16_t *)p + i, n);
    case SEAM_F16:
        return vf_f16_part((const uint16_t *)p + i, n);
    case SEAM_I8:
        return vf_i8_part((const int8_t *)p + i, n);
    default:
        return vf_load_part((const float *)p + i, n);
    }
}

/* e4m3 is an f16 with another bias, which a factor of 256 makes up for. */
static void widen_f8(const unsigned char *p, uint32_t n, float *y)
{
    uint16_t h[64];

    for (uint32_t at = 0; at < n; at += 64) {
        uint32_t m = n - at < 64 ? n - at : 64, i = 0;

        for (uint32_t j = 0; j < m; j++) {
            uint32_t b = p[at + j], nan = (b & 0x7f) == 0x7f ? 0x7c00 : 0;

            h[j] = (uint16_t)((b & 0x80) << 8 | (b & 0x7f) << 7 | nan);
        }
        for (; i + L <= m; i += L)
            vf_store(y + at + i, vf_mul(w_load(SEAM_F16, h, i), vf_set1(256)));
        if (i < m)
            vf_store_part(
                y + at + i,
                vf_mul(w_load_part(SEAM_F16, h, i, m - i), vf_set1(256)),
                m - i);
    }
}

static void k_widen(const void *p, uint16_t dtype, uint32_t n, float *y)
{
    uint32_t i = 0;

    switch (dtype) {
#define WIDEN(dt)                                                      \
    case dt:                                                           \
        for (; i + L <= n; i += L)                                     \
            vf_store(y + i, w_load(dt, p, i));                         \
        if (i < n)                                                     \
            vf_store_part(y + i, w_load_part(dt, p, i, n - i), n - i); \
        break;
        WIDEN(SEAM_BF16)
        WIDEN(SEAM_F16)
        WIDEN(SEAM_F32)
        WIDEN(SEAM_I8)
#undef WIDEN
    case SEAM_F8E4M3:
        widen_f8(p, n, y);
        break;
    default:
        for (; i < n; i++)
            y[i] = weights_elem(p, dtype, i);
    }
}

/* Inputs [k0, k0 + n) of row o, scaled. */
static void unpack_row(const struct kern_mat *w, uint32_t o, uint32_t k0,
                       uint32_t n, float *y)
{
    uint64_t groups, g;

    k_widen(w->w + o * w->stride + k0 * weights_elem_bytes(w->dtype), w->dtype,
            n, y);
    if (!w->scale_dtype)
        return;
    groups = (w->k + w->group_cols - 1) / w->group_cols;
    g = (uint64_t)(w->row0 + o) / w->group_rows * groups;
    for (uint32_t i = 0; i < n;) {
        uint32_t b = (k0 + i) / w->group_cols;
        uint32_t end = (b + 1) * w->group_cols - k0;
        float s = weights_elem(w->scale, w->scale_dtype, g + b);

        for (end = end < n ? end : n; i < end; i++)
            y[i] *= s;
    }
}

/* ---- Products along k ---------------------------------------------------- */

/* acc[r * nr + n] += x[r][xi, xi + len) . w[n][wi, wi + len); with first it
 * starts from zero.  acc is [mr][nr] vectors. */
SIMD_INLINE void tile(uint16_t dtype, uint32_t mr, uint32_t nr,
                      const void *const *w, uint32_t wi, const float *const *x,
                      uint32_t xi, uint32_t len, float *acc, bool first)
{
    vf a[TILE_R * TILE_N > TILE_N1 ? TILE_R * TILE_N : TILE_N1], b[TILE_N1];
    uint32_t i = 0;

    UNROLL
    for (uint32_t j = 0; j < mr * nr; j++)
        a[j] = first ? vf_zero() : vf_load(acc + j * L);
    for (; i + L <= len; i += L) {
        UNROLL
        for (uint32_t n = 0; n < nr; n++)
            b[n] = w_load(dtype, w[n], wi + i);
        UNROLL
        for (uint32_t r = 0; r < mr; r++) {
            vf c = vf_load(x[r] + xi + i);

            UNROLL
            for (uint32_t n = 0; n < nr; n++)
                a[r * nr + n] = vf_fma(c, b[n], a[r * nr + n]);
        }
    }
    if (i < len) {
        UNROLL
        for (uint32_t n = 0; n < nr; n++)
            b[n] = w_load_part(dtype, w[n], wi + i, len - i);
        UNROLL
        for (uint32_t r = 0; r < mr; r++) {
            vf c = vf_load_part(x[r] + xi + i, len - i);

            UNROLL
            for (uint32_t n = 0; n < nr; n++)
                a[r * nr + n] = vf_fma(c, b[n], a[r * nr + n]);
        }
    }
    UNROLL
    for (uint32_t j = 0; j < mr * nr; j++)
        vf_store(acc + j * L, a[j]);
}

/* The largest tile height that m rows fill; a tile with more rows than are left
 * repeats the last one. */
SIMD_INLINE uint32_t tile_rows(uint32_t m)
{
    return m >= TILE_R ? TILE_R : m;
}

static __attribute__((noinline)) void tile_any(
    uint16_t dtype, uint32_t mr, const void *const *w, uint32_t wi,
    const float *const *x, uint32_t xi, uint32_t len, float *acc, bool first)
{
#define TILE(dt, r)                                     \
    tile(dt, r, TILE_N, w, wi, x, xi, len, acc, first); \
    break;
#if L == 16
#define TILES(dt)   \
    switch (mr) {   \
    case 1:         \
        TILE(dt, 1) \
    case 2:         \
        TILE(dt, 2) \
    case 3:         \
        TILE(dt, 3) \
    case 4:         \
        TILE(dt, 4) \
    case 5:         \
        TILE(dt, 5) \
    default:        \
        TILE(dt, 6) \
    }               \
    break;
#elif L == 8
#define TILES(dt)   \
    switch (mr) {   \
    case 1:         \
        TILE(dt, 1) \
    case 2:         \
        TILE(dt, 2) \
    default:        \
        TILE(dt, 3) \
    }               \
    break;
#else
#define TILES(dt)   \
    switch (mr) {   \
    case 1:         \
        TILE(dt, 1) \
    default:        \
        TILE(dt, 2) \
    }               \
    break;
#endif
    switch (dtype) {
    case SEAM_BF16:
        TILES(SEAM_BF16)
    case SEAM_F16:
        TILES(SEAM_F16)
    default:
        TILES(SEAM_F32)
    }
#undef TILES
#undef TILE
}

/* One row against eight outputs. */
static void tile_one(uint16_t dtype, const void *const *w,
                     const float *const *x, uint32_t len, float *acc)
{
    switch (dtype) {
    case SEAM_BF16:
        tile(SEAM_BF16, 1, TILE_N1, w, 0, x, 0, len, acc, true);
        break;
    case SEAM_F16:
        tile(SEAM_F16, 1, TILE_N1, w, 0, x, 0, len, acc, true);
        break;
    default:
        tile(SEAM_F32, 1, TILE_N1, w, 0, x, 0, len, acc, true);
    }
}

SIMD_INLINE void put(float *y, float v, const float *bias, bool add)
{
    if (bias)
        v += *bias;
    *y = add ? *y + v : v;
}

/* n outputs of plain rows for m <= DIRECT rows of x, which the outputs' weights
 * meet one tile after the other while they are still in the cache.  The rows of
 * a tile lie n / step apart, so that a processor sees that many long streams
 * and fetches each of them ahead. */
static __attribute__((noinline)) void dot_few(uint16_t dtype,
                                              const void *const *w, uint32_t n,
                                              uint32_t k, const float *const *x,
                                              uint32_t m, float *const *y,
                                              const float *bias, bool add)
{
    float acc[(TILE_R * TILE_N > TILE_N1 ? TILE_R * TILE_N : TILE_N1) * L]
        __attribute__((aligned(64)));
    uint32_t step = m == 1 ? TILE_N1 : TILE_N, apart = (n + step - 1) / step;

    for (uint32_t o = 0; o < apart; o++) {
        const void *p[TILE_N1];

        for (uint32_t j = 0; j < step; j++)
            p[j] = w[o + j * apart < n ? o + j * apart : n - 1];
        for (uint32_t r = 0, mr; r < m; r += mr) {
            mr = m - r <= TILE_R ? m - r : (m - r + 1) / 2;
            mr = mr < TILE_R ? mr : TILE_R;
            if (m == 1)
                tile_one(dtype, p, x, k, acc);
            else
                tile_any(dtype, mr, p, 0, x + r, 0, k, acc, true);
            for (uint32_t i = 0; i < mr; i++)
                for (uint32_t j = 0, at = o; at < n; j++, at += apart)
                    put(&y[r + i][at],
                        vf_sum(vf_load(acc + (i * step + j) * L)),
                        bias ? bias + at : NULL, add);
        }
    }
}

/* Up to PANEL_N outputs of any storage, unpacked chunk by chunk; the
 * accumulators of all rows stay in scratch meanwhile. */
static void dot_panel(const struct kern_mat *w, uint32_t o0, uint32_t n,
                      const float *const *x, uint32_t m, float *const *y,
                      uint32_t y0, const float *bias, bool add, float *panel)
{
    float *carry = panel + PANEL_N * CHUNK_K;
    const void *p[PANEL_N];
    uint32_t width = (n + TILE_N - 1) / TILE_N * TILE_N;

    for (uint32_t j = 0; j < width; j++)
        p[j] = panel + (j < n ? j : n - 1) * CHUNK_K;
    for (uint32_t k0 = 0; k0 < w->k; k0 += CHUNK_K) {
        uint32_t len = w->k - k0 < CHUNK_K ? w->k - k0 : CHUNK_K;

        for (uint32_t j = 0; j < n; j++)
            unpack_row(w, o0 + j, k0, len, panel + j * CHUNK_K);
        for (uint32_t r = 0; r < m;) {
            uint32_t mr = tile_rows(m - r);

            for (uint32_t j = 0; j < width; j += TILE_N)
                tile_any(SEAM_F32, mr, p + j, 0, x + r, k0, len,
                         carry + ((uint64_t)r * width + j * mr) * L, k0 == 0);
            r += mr;
        }
    }
    for (uint32_t r = 0; r < m;) {
        uint32_t mr = tile_rows(m - r);

        for (uint32_t i = 0; i < mr; i++)
            for (uint32_t j = 0; j < n; j++) {
                uint32_t at =
                    j / TILE_N * TILE_N * mr + i * TILE_N + j % TILE_N;

                put(&y[r + i][y0 + j],
                    vf_sum(vf_load(carry + ((uint64_t)r * width + at) * L)),
                    bias ? bias + o0 + j : NULL, add);
            }
        r += mr;
    }
}

/* ---- GPTQ ---------------------------------------------------------------- */

SIMD_INLINE vf scale_part(const struct kern_mat *w, uint64_t i, uint32_t n)
{
    switch (w->scale_dtype) {
    case SEAM_F16:
        return vf_f16_part((const uint16_t *)w->scale + i, n);
    case SEAM_BF16:
        return vf_bf16_part((const uint16_t *)w->scale + i, n);
    default:
        return vf_load_n((const float *)w->scale + i, n);
    }
}

/* Zero points of the outputs [o, o + n) in group g, minus 8. */
static __attribute__((noinline)) vf zero_part(const struct kern_mat *w,
                                              uint32_t g, uint32_t o,
                                              uint32_t n)
{
    float z[L] = { 0 };

    for (uint32_t j = 0; j < n; j++) {
        uint32_t word;

        memcpy(&word, w->zero + 4 * ((uint64_t)g * (w->n / 8) + (o + j) / 8),
               4);
        z[j] = (float)(word >> 4 * ((o + j) % 8) & 15) - 7;
    }
    return vf_load(z);
}

SIMD_INLINE const unsigned char *gptq_words(const struct kern_mat *w,
                                            uint32_t k, uint32_t o)
{
    return w->w + 4 * ((uint64_t)(k / 8) * w->n + o);
}

/* One input k of mr rows with nu vectors of weights, which are the four bits from
 * 4 j on of q. */
SIMD_INLINE void gptq_input(uint32_t mr, uint32_t nu, bool zeros, const vi *q,
                            int j, const vf *z, const float *const *x,
                            uint32_t k, vf *acc)
{
    UNROLL
    for (uint32_t u = 0; u < nu; u++) {
        vf f = vf_nibble(q[u], j);

        if (zeros)
            f = vf_sub(f, z[u]);
        UNROLL
        for (uint32_t r = 0; r < mr; r++)
            acc[r * nu + u] = vf_fma(vf_set1(x[r][k]), f, acc[r * nu + u]);
    }
}

/* nu vectors of outputs from o on, the last with n of its lanes in use, for mr
 * rows; weights are unpacked in registers. */
SIMD_INLINE void gptq_tile(uint32_t mr, uint32_t nu, bool zeros,
                           const struct kern_mat *w, uint32_t o, uint32_t n,
                           const float *const *x, vf *tot)
{
    uint32_t gc = w->group_cols;
    uint64_t ahead = (uint64_t)GPTQ_AHEAD * w->n * 4;

    UNROLL
    for (uint32_t j = 0; j < mr * nu; j++)
        tot[j] = vf_zero();
    for (uint32_t g = 0; g * gc < w->k; g++) {
        vf acc[16], z[8];

        UNROLL
        for (uint32_t j = 0; j < mr * nu; j++)
            acc[j] = vf_zero();
        UNROLL
        for (uint32_t u = 0; u < nu; u++)
            z[u] = zeros ? zero_part(w, g, o + u * L, u + 1 < nu ? L : n)
                         : vf_zero();
        for (uint32_t k = g * gc; k < (g + 1) * gc; k += 8) {
            const unsigned char *p = gptq_words(w, k, o);
            vi q[8];

            /* Rows lie far apart: the hardware sees no stream in them. */
            UNROLL
            for (uint32_t u = 0; u < nu; u++) {
                q[u] = vi_load_n(p + u * 4 * L, u + 1 < nu ? L : n);
                if ((u * L) % 16 == 0)
                    __builtin_prefetch(p + ahead + u * 4 * L);
            }
            /* Few rows are worth constant shifts. */
            if (mr <= 2) {
                UNROLL
                for (int j = 0; j < 8; j++)
                    gptq_input(mr, nu, zeros, q, j, z, x, k + (uint32_t)j, acc);
            } else {
                UNROLL_4
                for (uint32_t j = 0; j < 8; j++) {
                    gptq_input(mr, nu, zeros, q, 0, z, x, k + j, acc);
                    UNROLL
                    for (uint32_t u = 0; u < nu; u++)
                        q[u] = vi_shr(q[u], 4);
                }
            }
        }
        UNROLL
        for (uint32_t u = 0; u < nu; u++) {
            vf s = scale_part(w, (uint64_t)g * w->n + o + u * L,
                              u + 1 < nu ? L : n);

            UNROLL
            for (uint32_t r = 0; r < mr; r++)
                tot[r * nu + u] = vf_fma(s, acc[r * nu + u], tot[r * nu + u]);
        }
    }
}

SIMD_INLINE void put_part(float *y, vf v, const float *bias, bool add,
                          uint32_t n)
{
    if (bias)
        v = vf_add(v, vf_load_n(bias, n));
    if (add)
        v = vf_add(v, vf_load_n(y, n));
    vf_store_n(y, v, n);
}

/* tot [live][nu] to the outputs from o on, which y[.][at] is. */
static __attribute__((noinline)) void gptq_put(const vf *tot, uint32_t live,
                                               uint32_t nu, float *const *y,
                                               uint32_t at, uint32_t o,
                                               const float *bias, bool add)
{
    for (uint32_t r = 0; r < live; r++)
        for (uint32_t u = 0; u < nu; u++)
            put_part(y[r] + at + u * L, tot[r * nu + u],
                     bias ? bias + o + u * L : NULL, add, L);
}

/* The outputs from o on vector by vector, the last possibly incomplete, for
 * live <= GPTQ_FEW rows. */
static __attribute__((noinline)) void gptq_rest(const struct kern_mat *w,
                                                uint32_t o0, uint32_t o,
                                                uint32_t o1,
                                                const float *const *x,
                                                uint32_t live, float *const *y,
                                                const float *bias, bool add)
{
    vf tot[GPTQ_FEW];

    for (; o < o1; o += L) {
        uint32_t n = o1 - o < L ? o1 - o : L;

        if (w->zero)
            gptq_tile(GPTQ_FEW, 1, true, w, o, n, x, tot);
        else
            gptq_tile(GPTQ_FEW, 1, false, w, o, n, x, tot);
        for (uint32_t r = 0; r < live; r++)
            put_part(y[r] + (o - o0), tot[r], bias ? bias + o : NULL, add, n);
    }
}

/* All outputs [o0, o1) for live <= mr <= GPTQ_FEW rows, nu vectors at a time;
 * x has GPTQ_FEW entries, those past live repeat the last. */
SIMD_INLINE void gptq_few(uint32_t mr, uint32_t nu, bool zeros,
                          const struct kern_mat *w, uint32_t o0, uint32_t o1,
                          const float *const *x, uint32_t live, float *const *y,
                          const float *bias, bool add)
{
    uint32_t o = o0;
    vf tot[16];

    for (; o + nu * L <= o1; o += nu * L) {
        gptq_tile(mr, nu, zeros, w, o, L, x, tot);
        gptq_put(tot, live, nu, y, o - o0, o, bias, add);
    }
    gptq_rest(w, o0, o, o1, x, live, y, bias, add);
}

/* mr rows over a panel of len inputs by two vectors of outputs. */
SIMD_INLINE void gptq_rows(uint32_t mr, const float *panel, uint32_t len,
                           const float *const *x, uint32_t k0, vf s0, vf s1,
                           float *tot)
{
    vf a[2 * GPTQ_R];

    UNROLL
    for (uint32_t j = 0; j < 2 * mr; j++)
        a[j] = vf_zero();
    for (uint32_t i = 0; i < len; i++) {
        vf f0 = vf_load(panel + (uint64_t)i * 2 * L);
        vf f1 = vf_load(panel + (uint64_t)i * 2 * L + L);

        UNROLL
        for (uint32_t r = 0; r < mr; r++) {
            vf c = vf_set1(x[r][k0 + i]);

            a[2 * r] = vf_fma(c, f0, a[2 * r]);
            a[2 * r + 1] = vf_fma(c, f1, a[2 * r + 1]);
        }
    }
    UNROLL
    for (uint32_t r = 0; r < mr; r++) {
        float *t = tot + (uint64_t)r * 2 * L;

        vf_store(t, vf_fma(s0, a[2 * r], vf_load(t)));
        vf_store(t + L, vf_fma(s1, a[2 * r + 1], vf_load(t + L)));
    }
}

/* Many rows: each group is unpacked once for all of them. */
static void gptq_many(const struct kern_mat *w, uint32_t o0, uint32_t o1,
                      const float *const *x, uint32_t m, float *const *y,
                      const float *bias, bool add, float *panel)
{
    float *tot = panel + GPTQ_MAX * 2 * L;
    uint32_t gc = w->group_cols;
    uint64_t ahead = (uint64_t)GPTQ_AHEAD * w->n * 4;

    for (uint32_t o = o0; o < o1; o += 2 * L) {
        uint32_t left = o1 - o;
        uint32_t n[2] = { left < L ? left : L, left <= L      ? 0
                                               : left - L < L ? left - L
                                                              : L };

        for (uint64_t j = 0; j < (uint64_t)m * 2 * L; j++)
            tot[j] = 0;
        for (uint32_t g = 0; g * gc < w->k; g++) {
            vf z[2], s[2];

            for (uint32_t u = 0; u < 2; u++) {
                z[u] = w->zero ? zero_part(w, g, o + u * L, n[u]) : vf_zero();
                s[u] = scale_part(w, (uint64_t)g * w->n + o + u * L, n[u]);
            }
            for (uint32_t i = 0; i < gc; i += 8)
                for (uint32_t u = 0; u < 2; u++) {
                    const unsigned char *p =
                        gptq_words(w, g * gc + i, o + u * L);
                    vi q = vi_load_n(p, n[u]);

                    if ((u * L) % 16 == 0)
                        __builtin_prefetch(p + ahead);
                    UNROLL
                    for (int j = 0; j < 8; j++)
                        vf_store(panel + (uint64_t)(i + (uint32_t)j) * 2 * L +
                                     u * L,
                                 vf_sub(vf_nibble(q, j), z[u]));
                }
            for (uint32_t r = 0; r < m;) {
                const float *p[GPTQ_R];
                float *t = tot + (uint64_t)r * 2 * L;
                uint32_t mr = m - r < GPTQ_R ? m - r : GPTQ_R;

                for (uint32_t i = 0; i < GPTQ_R; i++)
                    p[i] = x[r + (i < mr ? i : mr - 1)];
                /* Rows past m land behind tot and are never read. */
                if (mr > GPTQ_R / 2)
                    gptq_rows(GPTQ_R, panel, gc, p, g * gc, s[0], s[1], t);
                else
                    gptq_rows(GPTQ_R / 2, panel, gc, p, g * gc, s[0], s[1], t);
                r += mr;
            }
        }
        for (uint32_t r = 0; r < m; r++)
            for (uint32_t u = 0; u < 2; u++)
                if (n[u])
                    put_part(y[r] + (o - o0) + u * L,
                             vf_load(tot + ((uint64_t)r * 2 + u) * L),
                             bias ? bias + o + u * L : NULL, add, n[u]);
    }
}

static __attribute__((noinline)) void dot_gptq(
    const struct kern_mat *w, uint32_t o0, uint32_t o1, const float *const *x,
    uint32_t m, float *const *y, const float *bias, bool add, float *panel)
{
    const float *p[GPTQ_FEW];

    if (m > GPTQ_FEW) {
        gptq_many(w, o0, o1, x, m, y, bias, add, panel);
        return;
    }
    for (uint32_t r = 0; r < GPTQ_FEW; r++)
        p[r] = x[r < m ? r : m - 1];
#define FEW(mr, nu, zeros) \
    gptq_few(mr, nu, zeros, w, o0, o1, p, m, y, bias, add)
    if (w->zero) {
        if (m == 1)
            FEW(1, GPTQ_U1, true);
        else
            FEW(GPTQ_FEW, 2, true);
    } else if (m == 1) {
        FEW(1, GPTQ_U1, false);
    } else if (m == 2) {
        FEW(2, 4, false);
    } else if (m <= 4) {
        FEW(4, GPTQ_U1 / 2, false);
    } else {
#if GPTQ_FEW > 4
        if (m <= 6)
            FEW(6, 2, false);
        else
            FEW(GPTQ_FEW, 2, false);
#endif
    }
#undef FEW
}

static void k_dot(const struct kern_mat *w, uint32_t o0, uint32_t o1,
                  const float *const *x, uint32_t m, float *const *y,
                  const float *bias, bool add, void *scratch)
{
    if (w->dtype == SEAM_I4) {
        dot_gptq(w, o0, o1, x, m, y, bias, add, scratch);
    } else if (m <= DIRECT && kern_mat_plain(w)) {
        const void *p[KERN_OUTS];

        for (uint32_t o = o0; o < o1; o++)
            p[o - o0] = w->w + o * w->stride;
        dot_few(w->dtype, p, o1 - o0, w->k, x, m, y, bias ? bias + o0 : NULL,
                add);
    } else {
        for (uint32_t o = o0; o < o1; o += PANEL_N)
            dot_panel(w, o, o1 - o < PANEL_N ? o1 - o : PANEL_N, x, m, y,
                      o - o0, bias, add, scratch);
    }
}

/* ---- Vectors ------------------------------------------------------------- */

/* Reductions over a vector keep four accumulators. */
#define REDUCE(init, full, part, join)       \
    vf a0 = init, a1 = a0, a2 = a0, a3 = a0; \
    uint32_t i = 0;                          \
                                             \
    for (; i + 4 * L <= n; i += 4 * L) {     \
        full(a0, i);                         \
        full(a1, i + L);                     \
        full(a2, i + 2 * L);                 \
        full(a3, i + 3 * L);                 \
    }                                        \
    for (; i + L <= n; i += L)               \
        full(a0, i);                         \
    if (i < n)                               \
        part(a1, i, n - i);                  \
    a0 = join(join(a0, a2), join(a1, a3))

static float k_sum_squares(const float *x, uint32_t n)
{
#define SQ(a, i)                 \
    do {                         \
        vf v = vf_load(x + (i)); \
        a = vf_fma(v, v, a);     \
    } while (0)
#define SQ_PART(a, i, c)                 \
    do {                                 \
        vf v = vf_load_part(x + (i), c); \
        a = vf_fma(v, v, a);             \
    } while (0)
    REDUCE(vf_zero(), SQ, SQ_PART, vf_add);
    return vf_sum(a0);
#undef SQ
#undef SQ_PART
}

static float k_sum(const float *x, uint32_t n)
{
#define ADD(a, i)         a = vf_add(a, vf_load(x + (i)))
#define ADD_PART(a, i, c) a = vf_add(a, vf_load_part(x + (i), c))
    REDUCE(vf_zero(), ADD, ADD_PART, vf_add);
    return vf_sum(a0);
#undef ADD
#undef ADD_PART
}

static float k_max(const float *x, uint32_t n)
{
    float top = -INFINITY;
    vf a = vf_set1(-INFINITY);
    uint32_t i = 0;

    for (; i + L <= n; i += L)
        a = vf_max(vf_load(x + i), a);
    top = vf_top(a);
    for (; i < n; i++)
        top = x[i] > top ? x[i] : top;
    return top;
}

static float k_exp_sum(float *x, uint32_t n, float s, float top)
{
    const vf vs = vf_set1(s), vt = vf_set1(top);
#define EXP(a, i)                                                \
    do {                                                         \
        vf v = vf_exp(vf_sub(vf_mul(vf_load(x + (i)), vs), vt)); \
        vf_store(x + (i), v);                                    \
        a = vf_add(a, v);                                        \
    } while (0)
#define EXP_PART(a, i, c)                                                \
    do {                                                                 \
        vf v = vf_exp(vf_sub(vf_mul(vf_load_part(x + (i), c), vs), vt)); \
        vf_store_part(x + (i), v, c);                                    \
        a = vf_add(a, vf_load_part(x + (i), c));                         \
    } while (0)
    REDUCE(vf_zero(), EXP, EXP_PART, vf_add);
    return vf_sum(a0);
#undef EXP
#undef EXP_PART
}

/* y[i] = f(i), vector by vector. */
#define EACH(y, full, part)                  \
    do {                                     \
        uint32_t i = 0;                      \
                                             \
        for (; i + L <= n; i += L)           \
            vf_store((y) + i, full);         \
        if (i < n) {                         \
            uint32_t c = n - i;              \
                                             \
            vf_store_part((y) + i, part, c); \
        }                                    \
    } while (0)

static void k_scale(const float *x, float s, const void *w, uint16_t w_dtype,
                    uint32_t n, float *y)
{
    const vf vs = vf_set1(s);

    if (!w) {
        EACH(y, vf_mul(vf_load(x + i), vs), vf_mul(vf_load_part(x + i, c), vs));
        return;
    }
    switch (w_dtype) {
#define SCALE(dt)                                                     \
    case dt:                                                          \
        EACH(y, vf_mul(vf_mul(vf_load(x + i), vs), w_load(dt, w, i)), \
             vf_mul(vf_mul(vf_load_part(x + i, c), vs),               \
                    w_load_part(dt, w, i, c)));                       \
        break;
        SCALE(SEAM_BF16)
        SCALE(SEAM_F16)
        SCALE(SEAM_F32)
#undef SCALE
    default:
        for (uint32_t i = 0; i < n; i++)
            y[i] = x[i] * s * weights_elem(w, w_dtype, i);
    }
}

static void k_add(const float *a, const float *b, uint32_t n, float *y)
{
    EACH(y, vf_add(vf_load(a + i), vf_load(b + i)),
         vf_add(vf_load_part(a + i, c), vf_load_part(b + i, c)));
}

static void k_axpy(float s, const float *x, uint32_t n, float *y)
{
    const vf vs = vf_set1(s);

    EACH(y, vf_fma(vs, vf_load(x + i), vf_load(y + i)),
         vf_fma(vs, vf_load_part(x + i, c), vf_load_part(y + i, c)));
}

SIMD_INLINE vf glu_of(vf g, vf u, vf hi, vf lo)
{
    g = vf_min(hi, g);
    u = vf_max(lo, vf_min(hi, u));
    return vf_mul(vf_mul(g, vf_sigmoid(g)), u);
}

static void k_glu(const float *g, const float *u, float limit, uint32_t n,
                  float *y)
{
    const vf hi = vf_set1(limit > 0 ? limit : INFINITY);
    const vf lo = vf_sub(vf_zero(), hi);

    EACH(y, glu_of(vf_load(g + i), vf_load(u + i), hi, lo),
         glu_of(vf_load_part(g + i, c), vf_load_part(u + i, c), hi, lo));
}

#include "kern_attn_impl.h"

_Static_assert((PANEL_N * CHUNK_K + KERN_ROWS * PANEL_N * L) * 4 <=
                   KERN_SCRATCH,
               "dot_panel's scratch");
_Static_assert((GPTQ_MAX + KERN_ROWS + GPTQ_R) * 2 * L * 4 <= KERN_SCRATCH,
               "gptq_many's scratch");

/* The table, for a name and the integer products that go with it. */
// clang-format off
#define KERN_INIT(name_, fast_) \
    { .name = (name_), .fast = (fast_), \
      .lanes = L, \
      .dot = k_dot, \
      .dot_rows = k_dot_rows, \
      .mix_rows = k_mix_rows, \
      .pool_scores = k_pool_scores, \
      .sum_squares = k_sum_squares, \
      .sum = k_sum, \
      .scale = k_scale, \
      .add = k_add, \
      .axpy = k_axpy, \
      .glu = k_glu, \
      .max = k_max, \
      .exp_sum = k_exp_sum, \
      .widen = k_widen, \
      .streams_mix = k_streams_mix, \
      .streams_read = k_streams_read, \
      .conv = k_conv, \
      .decay = k_decay, \
      .anchor = k_anchor, \
      .delta = k_delta, \
      .fold = k_fold, \
      .gated = k_gated }
// clang-format on

const struct kern KERN_TABLE = KERN_INIT(KERN_NAME, NULL);
