/* Products of BF16 weights as they are stored, with AMX tiles.
 *
 * A row of x is cut into three planes of 8 significant bits, whose sum it is.
 * The weights are the first factor, 16 outputs by 32 inputs, so that tiles load
 * them as they lie, and a plane of a row is a column of the second.  So each
 * plane of each row has its own sums: over SPAN inputs in tiles, by 32 in
 * ascending order; then hi + (mid + lo), and the spans one after the other, in
 * F32.  How many rows and which outputs are computed together changes no bit.
 *
 * What is no number makes the outputs of its own row, or of its own weights, no
 * numbers; infinity in x does too, since it has no planes.  Tiles take
 * denormals for zero. */
#include "kern_fast512.h"
#include "kern_tiles.h"

enum {
    STEP = 32,  /* inputs of a tile                                          */
    SPAN = 256, /* inputs whose planes of a block fit the first-level cache  */
    STEPS = SPAN / STEP,
    PLANES = 3,
    TILE = 1024,           /* bytes                                 */
    BLOCK = PLANES * TILE, /* a step of FAST_BLOCK rows             */
    STRIPS = KERN_OUTS / 16,
};

/* ---- Packing ------------------------------------------------------------- */

/* Planes of 32 numbers of which n exist: their upper halves, those of what
 * remains, and so on. */
FAST_INLINE void planes(const float *x, uint32_t n, __m512i p[PLANES])
{
    const __m512i upper = _mm512_set1_epi32((int32_t)0xffff0000);
    const __m512i odd = _mm512_set_epi16(
        63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29,
        27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    __m512 a = _mm512_maskz_loadu_ps(fast_lanes(n), x);
    __m512 b = _mm512_maskz_loadu_ps(n > 16 ? fast_lanes(n - 16) : 0, x + 16);

    for (uint32_t i = 0; i < PLANES; i++) {
        __m512i u = _mm512_castps_si512(a), v = _mm512_castps_si512(b);

        p[i] = _mm512_permutex2var_epi16(u, odd, v);
        a = _mm512_sub_ps(a, _mm512_castsi512_ps(_mm512_and_si512(u, upper)));
        b = _mm512_sub_ps(b, _mm512_castsi512_ps(_mm512_and_si512(v, upper)));
    }
}

/* One row: the planes' pairs in turn. */
static void pack_one(const float *x, uint32_t k, char *rec)
{
    const __m512i hm[3] = {
        _mm512_setr_epi32(0, 16, 0, 1, 17, 0, 2, 18, 0, 3, 19, 0, 4, 20, 0, 5),
        _mm512_setr_epi32(21, 0, 6, 22, 0, 7, 23, 0, 8, 24, 0, 9, 25, 0, 10,
                          26),
        _mm512_setr_epi32(0, 11, 27, 0, 12, 28, 0, 13, 29, 0, 14, 30, 0, 15, 31,
                          0),
    };
    const __m512i l[3] = {
        _mm512_setr_epi32(0, 0, 0, 0, 0, 1, 0, 0, 2, 0, 0, 3, 0, 0, 4, 0),
        _mm512_setr_epi32(0, 5, 0, 0, 6, 0, 0, 7, 0, 0, 8, 0, 0, 9, 0, 0),
        _mm512_setr_epi32(10, 0, 0, 11, 0, 0, 12, 0, 0, 13, 0, 0, 14, 0, 0, 15),
    };
    const __mmask16 at[3] = { 0x4924, 0x2492, 0x9249 };

    for (uint32_t i = 0; i < k; i += STEP, rec += PLANES * 64) {
        __m512i p[PLANES];

        planes(x + i, k - i, p);
        for (uint32_t j = 0; j < 3; j++)
            _mm512_storeu_si512(
                rec + 64 * j, _mm512_mask_permutexvar_epi32(
                                  _mm512_permutex2var_epi32(p[0], hm[j], p[1]),
                                  at[j], l[j], p[2]));
    }
}

/* m rows: of each pair the rows, of those the planes. */
static void pack_few(const float *x, int64_t ldx, uint32_t k, uint32_t m,
                     char *rec)
{
    const __m512i pair = _mm512_mullo_epi32(
        _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
        _mm512_set1_epi32((int32_t)(PLANES * m)));

    for (uint32_t i = 0; i < k; i += STEP, rec += PLANES * 64 * m)
        for (uint32_t r = 0; r < m; r++) {
            __m512i p[PLANES];

            planes(x + r * ldx + i, k - i, p);
            for (uint32_t j = 0; j < PLANES; j++)
                _mm512_i32scatter_epi32(rec + 4 * (PLANES * r + j), pair, p[j],
                                        4);
        }
}

/* A block of rows, of which m exist: of each step the planes, of those the
 * pairs, of those the rows. */
static void pack_block(const float *x, int64_t ldx, uint32_t k, uint32_t m,
                       char *rec)
{
    for (uint32_t i = 0; i < k; i += STEP) {
        __m512i t[PLANES][FAST_BLOCK], p[PLANES];

        for (uint32_t r = 0; r < FAST_BLOCK; r++) {
            planes(x + (r < m ? r : 0) * ldx + i, r < m ? k - i : 0, p);
            for (uint32_t j = 0; j < PLANES; j++)
                t[j][r] = p[j];
        }
        for (uint32_t j = 0; j < PLANES; j++, rec += TILE) {
            tile_transpose(t[j]);
            for (uint32_t l = 0; l < 16; l++)
                _mm512_storeu_si512(rec + 64 * l, t[j][l]);
        }
    }
}

void kern_tiles_pack(const float *x, int64_t ldx, uint32_t k, uint32_t m,
                     uint32_t r, void *rec)
{
    uint32_t n = m - r < FAST_BLOCK ? m - r : FAST_BLOCK;
    char *to =
        (char *)rec + r * kern_record((struct kern_form){ KERN_TILES, 0 }, k);

    x += r * ldx;
    if (m == 1)
        pack_one(x, k, to);
    else if (m <= FAST_FEW)
        pack_few(x, ldx, k, n, to);
    else
        pack_block(x, ldx, k, n, to);
}

/* ---- Weights ------------------------------------------------------------- */

/* n rows of weights that lie `row` bytes apart. */
struct strip {
    const unsigned char *p;
    uint64_t row;
    uint32_t n;
};

/* Inputs [i, i + 32) of a strip, of which `left` exist, as a tile: what does not
 * exist is zero. */
FAST_INLINE void copy_step(struct strip s, uint32_t i, uint32_t left, char *to)
{
    __mmask32 live = left < STEP ? (1u << left) - 1 : UINT32_MAX;

    for (uint32_t j = 0; j < 16; j++)
        _mm512_storeu_si512(to + 64 * j,
                            _mm512_maskz_loadu_epi16(j < s.n ? live : 0,
                                                     s.p + j * s.row + 2 * i));
}

/* ---- Few rows ------------------------------------------------------------ */

/* Tile 0 are sums, 4 weights, 6 planes. */
static void configure_few(uint32_t columns)
{
    struct tile_config c = { .palette = 1 };

    for (uint32_t t = 0; t < 8; t++) {
        c.rows[t] = 16;
        c.row_bytes[t] = t == 4 ? 64 : (uint16_t)(4 * columns);
    }
    tile_configure(&c);
}

/* tot[r] += what a span gives row r; sum is [16][PLANES * m]. */
FAST_INLINE void settle_few(const float *sum, uint32_t m, __m512 *tot)
{
    const __m512i out = _mm512_mullo_epi32(
        _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
        _mm512_set1_epi32((int32_t)(PLANES * m)));

    for (uint32_t r = 0; r < m; r++, sum += PLANES) {
        __m512 h = _mm512_i32gather_ps(out, sum, 4);
        __m512 l = _mm512_add_ps(_mm512_i32gather_ps(out, sum + 1, 4),
                                 _mm512_i32gather_ps(out, sum + 2, 4));

        tot[r] = _mm512_add_ps(tot[r], _mm512_add_ps(h, l));
    }
}

/* A strip by all rows of x.  `after` is a strip to be fetched while the last
 * span passes; copy is for strips that tiles cannot load whole. */
FAST_INLINE void strip_few(struct strip s, uint32_t k, const char *x,
                           uint32_t m, struct strip after, bool copy,
                           __m512 *tot)
{
    uint32_t columns = PLANES * m;
    float sum[16 * PLANES * FAST_FEW] __attribute__((aligned(64)));
    char tile[2][TILE] __attribute__((aligned(64)));

    for (uint32_t r = 0; r < m; r++)
        tot[r] = _mm512_setzero_ps();
    for (uint32_t at = 0; at < k; at += SPAN) {
        uint32_t end = k - at < SPAN ? k : at + SPAN;

        _tile_zero(0);
        for (uint32_t i = at; i < end; i += STEP, x += 64 * columns) {
            if (copy || k - i < STEP) {
                char *t = tile[i / STEP % 2];

                copy_step(s, i, k - i, t);
                __asm__ volatile("" ::: "memory");
                _tile_loadd(4, t, 64);
            } else {
                _tile_loadd(4, s.p + 2 * i, s.row);
            }
            if (end == k)
                for (uint32_t j = 0; j < after.n; j++)
                    _mm_prefetch(after.p + j * after.row + 2 * (i - at),
                                 _MM_HINT_T0);
            _tile_loadd(6, x, 4 * columns);
            _tile_dpbf16ps(0, 4, 6);
        }
        _tile_stored(0, sum, 4 * columns);
        /* The compiler does not know what the tile wrote. */
        __asm__ volatile("" ::: "memory");
        settle_few(sum, m, tot);
    }
}

/* What a call writes: y[r][o], from its first output on. */
struct out {
    float *y;
    int64_t ldy;
    const float *bias;
    bool add;
};

/* Outputs o, o + apart, ..., n of them, of row r. */
static void put_apart(const struct out *to, uint32_t r, uint32_t o,
                      uint32_t apart, uint32_t n, __m512 v)
{
    float t[16], *y = to->y + r * to->ldy;

    _mm512_storeu_ps(t, v);
    for (uint32_t j = 0; j < n; j++, o += apart) {
        if (to->bias)
            t[j] += to->bias[o];
        y[o] = to->add ? y[o] + t[j] : t[j];
    }
}

/* The rows of a tile lie as far apart as they can, so that a processor sees 16
 * long streams and fetches each of them ahead; the last outputs, fewer than 16,
 * follow. */
static void few(const unsigned char *w, uint64_t stride, uint32_t n, uint32_t k,
                const char *x, uint32_t m, const struct out *to,
                const struct fast_next *next)
{
    uint32_t apart = n / 16, rest = n % 16;
    __m512 tot[FAST_FEW];

    configure_few(PLANES * m);
    for (uint32_t o = 0; o < apart; o++) {
        struct strip s = { w + o * stride, apart * stride, 16 };
        struct strip after = { NULL, 0, 0 };

        if (next && o + 1 == apart)
            after = (struct strip){ next->p, apart * next->row, 16 };
        strip_few(s, k, x, m, after, false, tot);
        for (uint32_t r = 0; r < m; r++)
            put_apart(to, r, o, apart, 16, tot[r]);
    }
    if (rest) {
        struct strip s = { w + (n - rest) * stride, stride, rest };

        strip_few(s, k, x, m, (struct strip){ NULL, 0, 0 }, true, tot);
        for (uint32_t r = 0; r < m; r++)
            put_apart(to, r, n - rest, 1, rest, tot[r]);
    }
    _tile_release();
}

/* ---- Many rows ----------------------------------------------------------- */

struct own {
    char panel[STRIPS][STEPS][TILE]; /* weights of a span       */
    float tot[FAST_ROWS / FAST_BLOCK][KERN_OUTS][FAST_BLOCK];
    float sum[2][PLANES][16 * FAST_BLOCK]; /* of two strips           */
};
_Static_assert(sizeof(struct own) <= KERN_OWN, "scratch of a worker");

/* The planes of a block by nu strips, `steps` steps: the sums. */
FAST_INLINE void sum_strips(uint32_t nu, const char *a, const char *x,
                            uint32_t steps, float (*sum)[PLANES][256])
{
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    if (nu > 1) {
        _tile_zero(3);
        _tile_zero(4);
        _tile_zero(5);
    }
    for (uint32_t i = 0; i < steps; i++, a += TILE, x += BLOCK) {
        _tile_loadd(6, a, 64);
        _tile_loadd(7, x, 64);
        _tile_dpbf16ps(0, 6, 7);
        _tile_loadd(7, x + TILE, 64);
        _tile_dpbf16ps(1, 6, 7);
        _tile_loadd(7, x + 2 * TILE, 64);
        _tile_dpbf16ps(2, 6, 7);
        if (nu == 1)
            continue;
        _tile_loadd(6, a + STEPS * TILE, 64);
        _tile_dpbf16ps(5, 6, 7);
        _tile_loadd(7, x + TILE, 64);
        _tile_dpbf16ps(4, 6, 7);
        _tile_loadd(7, x, 64);
        _tile_dpbf16ps(3, 6, 7);
    }
    _tile_stored(0, sum[0][0], 64);
    _tile_stored(1, sum[0][1], 64);
    _tile_stored(2, sum[0][2], 64);
    if (nu > 1) {
        _tile_stored(3, sum[1][0], 64);
        _tile_stored(4, sum[1][1], 64);
        _tile_stored(5, sum[1][2], 64);
    }
    __asm__ volatile("" ::: "memory");
}

/* The first span begins the totals. */
FAST_INLINE void settle(float (*sum)[256], bool first, float (*tot)[FAST_BLOCK])
{
    for (uint32_t j = 0; j < 16; j++) {
        __m512 h = _mm512_load_ps(sum[0] + 16 * j);
        __m512 l = _mm512_add_ps(_mm512_load_ps(sum[1] + 16 * j),
                                 _mm512_load_ps(sum[2] + 16 * j));
        __m512 t = first ? _mm512_setzero_ps() : _mm512_load_ps(tot[j]);

        _mm512_store_ps(tot[j], _mm512_add_ps(t, _mm512_add_ps(h, l)));
    }
}

/* Sixteen outputs of a block of rows, of which m exist. */
static void put_block(const struct out *to, uint32_t r, uint32_t m, uint32_t o,
                      uint32_t n, float (*tot)[FAST_BLOCK])
{
    __m512i t[16];

    for (uint32_t j = 0; j < 16; j++)
        t[j] = _mm512_load_si512(tot[j]);
    tile_transpose(t);
    for (uint32_t j = 0; j < m; j++)
        fast_put(to->y + (int64_t)(r + j) * to->ldy + o,
                 _mm512_castsi512_ps(t[j]), to->bias ? to->bias + o : NULL,
                 to->add, fast_lanes(n));
}

/* Weights are copied span by span, since rows that lie a power of two apart
 * would drive each other out of the cache, while the next span's are
 * fetched. */
static void many(const unsigned char *w, uint64_t stride, uint32_t n,
                 uint32_t k, const char *x, uint32_t m, const struct out *to,
                 const struct fast_next *next, struct own *own)
{
    const struct tile_config c = {
        .palette = 1,
        .rows = { 16, 16, 16, 16, 16, 16, 16, 16 },
        .row_bytes = { 64, 64, 64, 64, 64, 64, 64, 64 },
    };
    uint32_t strips = (n + 15) / 16, all_steps = (k + STEP - 1) / STEP;

    tile_configure(&c);
    for (uint32_t at = 0; at < k; at += SPAN) {
        uint32_t end = k - at < SPAN ? k : at + SPAN;
        uint32_t steps = (end - at + STEP - 1) / STEP;
        struct strip after = { w + 2 * (uint64_t)end, stride, n };

        if (end == k)
            after = next ? (struct strip){ next->p, next->row, n }
                         : (struct strip){ NULL, 0, 0 };
        for (uint32_t u = 0; u < strips; u++) {
            uint32_t live = n - 16 * u < 16 ? n - 16 * u : 16;
            struct strip s = { w + 16 * u * stride, stride, live };

            for (uint32_t i = 0; i < steps; i++)
                copy_step(s, at + STEP * i, k - at - STEP * i,
                          own->panel[u][i]);
        }
        __asm__ volatile("" ::: "memory");
        for (uint32_t r = 0, b = 0; r < m; r += FAST_BLOCK, b++) {
            const char *p = x + ((uint64_t)b * all_steps + at / STEP) * BLOCK;

            for (uint32_t u = 0; u < strips; u += 2) {
                const char *a = own->panel[u][0];

                for (uint32_t j = 16 * u; !r && j < 16 * u + 32 && j < after.n;
                     j++)
                    for (uint32_t l = 0; l < 2 * SPAN; l += 64)
                        _mm_prefetch(after.p + j * after.row + l, _MM_HINT_T1);
                if (u + 1 < strips)
                    sum_strips(2, a, p, steps, own->sum);
                else
                    sum_strips(1, a, p, steps, own->sum);
                settle(own->sum[0], !at, own->tot[b] + 16 * u);
                if (u + 1 < strips)
                    settle(own->sum[1], !at, own->tot[b] + 16 * u + 16);
            }
        }
    }
    _tile_release();
    for (uint32_t r = 0, b = 0; r < m; r += FAST_BLOCK, b++)
        for (uint32_t o = 0; o < n; o += 16)
            put_block(to, r, m - r < FAST_BLOCK ? m - r : FAST_BLOCK, o,
                      n - o < 16 ? n - o : 16, own->tot[b] + o);
}

void kern_tiles_dot(const struct kern_mat *w, uint32_t o0, uint32_t o1,
                    const void *rec, uint32_t m, float *y, int64_t ldy,
                    const float *bias, bool add, const struct fast_next *next,
                    void *scratch)
{
    const struct out to = { y, ldy, bias ? bias + o0 : NULL, add };
    const unsigned char *p = w->w + o0 * w->stride;

    if (m <= FAST_FEW)
        few(p, w->stride, o1 - o0, w->k, rec, m, &to, next);
    else
        many(p, w->stride, o1 - o0, w->k, rec, m, &to, next, scratch);
}
