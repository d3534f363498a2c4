/* Attention on AMX tiles; see kern_attend.h.
 *
 * Scores: sixteen latents by sixteen heads to a tile of sums, latents as they
 * lie, queries in pairs of inputs; the indexer's keys are scored like latents.
 * Mixing: sixteen heads by sixteen columns, latents in pairs, which takes the
 * columns of 32 apart into two tiles: 0-3, 8-11, 16-19, 24-27 and the rest. */
#include <immintrin.h>
#include <string.h>

#include "kern_attend.h"
#include "kern_tiles.h"
#include "kv_record.h"

enum {
    SIDE = ATTEND_SIDE, /* heads, latents or columns of a tile               */
    BLOCKS = ATTEND_HEADS / SIDE,
    PLANES = 2,
    INDEX_PLANES = 3,
    PAIRS = ATTEND_TILE / 2,
    TILE_BYTES = 1024,
};

/* A worker's memory. */
struct room {
    char *q;   /* [BLOCKS][k / 32][PLANES] tiles of queries                  */
    char *lat; /* [ATTEND_TILE][lat_row] latents                             */
    char *mix; /* [2][4] tiles of pairs of latents, two turns of 32 columns   */
    char *p;   /* [PLANES][ATTEND_HEADS][2 * ATTEND_TILE]                    */
    float *c;  /* [4][SIDE][SIDE]                                            */
    uint64_t lat_row;
    uint64_t bytes;
};

/* Bytes from latent to latent, or key to key: no power of two, since sixteen of
 * them meet in the first-level cache. */
static uint64_t latent_row(uint32_t k)
{
    return 2 * (uint64_t)k + 64;
}

static struct room room(void *mem, uint32_t k)
{
    struct plug_arena a = { .p = mem };
    struct room r = { .lat_row = latent_row(k) };

    r.q = plug_take(&a, BLOCKS * PLANES * (uint64_t)(k / 32), TILE_BYTES);
    r.lat = plug_take(&a, ATTEND_TILE, r.lat_row);
    r.mix = plug_take(&a, 2 * 4, TILE_BYTES);
    r.p = plug_take(&a, PLANES * ATTEND_HEADS, 2 * ATTEND_TILE);
    r.c = plug_take(&a, 4, TILE_BYTES);
    r.bytes = a.used;
    return r;
}

static uint64_t amx_bytes(uint32_t k)
{
    return room(NULL, k).bytes;
}

/* ---- Planes -------------------------------------------------------------- */

/* The upper halves of v rounded to BF16, as F32; v becomes what is left. */
static inline __m512 take_plane(__m512 *v)
{
    const __m512i odd = _mm512_set1_epi32(0x7fff), one = _mm512_set1_epi32(1);
    __m512i b = _mm512_castps_si512(*v);
    __m512 top;

    b = _mm512_add_epi32(
        b,
        _mm512_add_epi32(odd, _mm512_and_si512(_mm512_srli_epi32(b, 16), one)));
    top = _mm512_castsi512_ps(
        _mm512_and_si512(b, _mm512_set1_epi32((int)0xffff0000)));
    *v = _mm512_sub_ps(*v, top);
    return top;
}

/* The upper halves of 32 numbers. */
static const uint16_t UPPER[32] = {
    1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
    33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63,
};

/* Thirty-two numbers in n planes. */
static inline void split(const float *x, __m512i *plane, uint32_t n)
{
    const __m512i upper = _mm512_loadu_si512(UPPER);
    __m512 a = _mm512_loadu_ps(x), b = _mm512_loadu_ps(x + 16);

    for (uint32_t i = 0; i < n; i++) {
        __m512 ta = take_plane(&a), tb = take_plane(&b);

        plane[i] = _mm512_permutex2var_epi16(_mm512_castps_si512(ta), upper,
                                             _mm512_castps_si512(tb));
    }
}

/* Up to SIDE queries of k numbers: [k / 32][planes] tiles. */
static inline void pack_queries(char *to, uint32_t k, const float *const *q,
                                uint32_t n, uint32_t planes)
{
    for (uint32_t i = 0; i < k; i += 32) {
        __m512i plane[INDEX_PLANES][SIDE];

        for (uint32_t h = 0; h < SIDE; h++) {
            __m512i one[INDEX_PLANES] = { _mm512_setzero_si512(),
                                          _mm512_setzero_si512(),
                                          _mm512_setzero_si512() };

            if (h < n)
                split(q[h] + i, one, planes);
            for (uint32_t p = 0; p < planes; p++)
                plane[p][h] = one[p];
        }
        for (uint32_t p = 0; p < planes; p++, to += TILE_BYTES) {
            tile_transpose(plane[p]);
            for (uint32_t j = 0; j < SIDE; j++)
                _mm512_store_si512(to + 64 * j, plane[p][j]);
        }
    }
}

static void amx_queries(void *mem, uint32_t k, const float *const *q,
                        uint32_t n)
{
    char *to = room(mem, k).q;

    for (uint32_t h = 0; h < n;
         h += SIDE, to += PLANES * (uint64_t)(k / 32) * TILE_BYTES)
        pack_queries(to, k, q + h, n - h < SIDE ? n - h : SIDE, PLANES);
}

/* ---- Scores -------------------------------------------------------------- */

/* A record as BF16 numbers: as it is, or exactly. */
static void latent(char *to, uint16_t dtype, const void *rec, uint32_t k)
{
    float s;

    if (dtype == SEAM_BF16) {
        memcpy(to, rec, 2 * (size_t)k);
        return;
    }
    s = kv_record_scale(rec, k);
    for (uint32_t i = 0; i < k; i += 16) {
        __m512i v = _mm512_cvtepu8_epi32(
            _mm_loadu_si128((const __m128i *)((const char *)rec + i)));
        __m512i sign = _mm512_slli_epi32(_mm512_srli_epi32(v, 7), 31);
        /* e4m3 is an F32 with another bias, which a factor makes up for. */
        __m512 f = _mm512_castsi512_ps(
            _mm512_slli_epi32(_mm512_and_si512(v, _mm512_set1_epi32(127)), 20));

        f = _mm512_mul_ps(_mm512_mul_ps(f, _mm512_set1_ps(0x1p120f)),
                          _mm512_set1_ps(s));
        v = _mm512_or_si512(_mm512_castps_si512(f), sign);
        _mm256_storeu_si256((__m256i *)(to + 2 * i),
                            _mm512_cvtepi32_epi16(_mm512_srli_epi32(v, 16)));
    }
}

/* Eight tiles of sixteen rows. */
static void whole_tiles(void)
{
    struct tile_config cfg = { .palette = 1 };

    for (uint32_t t = 0; t < 8; t++) {
        cfg.row_bytes[t] = 64;
        cfg.rows[t] = SIDE;
    }
    tile_configure(&cfg);
}

/* Up to four tiles of latents by one of heads: so many pass while queries,
 * which come from the second-level cache, are in their tiles. */
static void score_tiles(const char *lat, uint64_t row, uint32_t tiles,
                        const char *q, uint32_t k, float *c)
{
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
#define TILE(t, with)                                 \
    if (tiles > (t)) {                                \
        _tile_loadd(with, lat + (t)*SIDE * row, row); \
        _tile_dpbf16ps(t, with, 6);                   \
        _tile_dpbf16ps(t, with, 7);                   \
    }
    for (uint32_t i = 0; i < k; i += 32, lat += 64) {
        _tile_loadd(6, q, 64);
        _tile_loadd(7, q + TILE_BYTES, 64);
        TILE(0, 4)
        TILE(1, 5)
        TILE(2, 4)
        TILE(3, 5)
        q += PLANES * TILE_BYTES;
    }
#undef TILE
    _tile_stored(0, c, 64);
    _tile_stored(1, c + 256, 64);
    _tile_stored(2, c + 512, 64);
    _tile_stored(3, c + 768, 64);
}

static void amx_scores(void *mem, uint32_t k, uint32_t heads, uint16_t dtype,
                       const void *const *lat, uint32_t n, float *const *p)
{
    struct room m = room(mem, k);
    uint32_t end = (n + 31) & ~31u;

    for (uint32_t i = 0; i < end; i++)
        if (i < n)
            latent(m.lat + i * m.lat_row, dtype, lat[i], k);
        else
            memset(m.lat + i * m.lat_row, 0, 2 * (size_t)k);
    whole_tiles();
    for (uint32_t b = 0; b * SIDE < heads; b++) {
        score_tiles(m.lat, m.lat_row, end / SIDE,
                    m.q + b * PLANES * (uint64_t)(k / 32) * TILE_BYTES, k, m.c);
        __asm__ volatile("" ::: "memory");
        for (uint32_t i = 0; i < end; i += SIDE) {
            __m512i r[SIDE];

            for (uint32_t j = 0; j < SIDE; j++)
                r[j] = _mm512_load_si512(m.c + SIDE * (i + j));
            tile_transpose(r);
            for (uint32_t j = 0; j < SIDE && b * SIDE + j < heads; j++)
                _mm512_storeu_si512(p[b * SIDE + j] + i, r[j]);
        }
    }
    _tile_release();
}

/* ---- Mixing -------------------------------------------------------------- */

/* Thirty-two columns of latents 2 j and 2 j + 1 side by side: so few at a time
 * that they never leave the first-level cache. */
static inline void pair_latents(const struct room *m, uint32_t c, uint32_t end)
{
    const char *a = m->lat + 2 * c;
    char *to = m->mix + c / 32 % 2 * 4 * TILE_BYTES;

    for (uint32_t j = 0; j < end; j += 2, a += 2 * m->lat_row, to += 64) {
        __m512i x = _mm512_loadu_si512(a);
        __m512i y = _mm512_loadu_si512(a + m->lat_row);

        _mm512_store_si512(to, _mm512_unpacklo_epi16(x, y));
        _mm512_store_si512(to + 2 * TILE_BYTES, _mm512_unpackhi_epi16(x, y));
    }
}

static void plane_probabilities(const struct room *m, uint32_t heads,
                                const float *const *p, uint32_t n)
{
    for (uint32_t h = 0; h < heads; h++)
        for (uint32_t i = 0; i < n; i += 32) {
            float part[32] = { 0 };
            __m512i plane[PLANES];

            if (n - i < 32)
                memcpy(part, p[h] + i, (n - i) * sizeof *part);
            split(n - i < 32 ? part : p[h] + i, plane, PLANES);
            for (uint32_t l = 0; l < PLANES; l++)
                _mm512_store_si512(
                    m->p + (l * ATTEND_HEADS + h) * 2 * ATTEND_TILE + 2 * i,
                    plane[l]);
        }
}

/* Two tiles of columns for all heads: 0 and 1 are sums of the first heads, 2
 * and 3 of the others. */
static void mix_tiles(const struct room *m, uint32_t c, uint32_t steps,
                      bool more, float *sum, uint64_t ld, bool add)
{
    const uint64_t row = 2 * ATTEND_TILE, plane = ATTEND_HEADS * row;
    const char *mix = m->mix + c / 32 % 2 * 4 * TILE_BYTES, *p = m->p;
    uint64_t next = ld * sizeof *sum;
    float *second = sum + SIDE * ld;

    if (add) {
        _tile_loadd(0, sum + c, next);
        _tile_loadd(1, sum + c + SIDE, next);
    } else {
        _tile_zero(0);
        _tile_zero(1);
    }
    if (more && add) {
        _tile_loadd(2, second + c, next);
        _tile_loadd(3, second + c + SIDE, next);
    } else if (more) {
        _tile_zero(2);
        _tile_zero(3);
    }
    for (uint32_t s = 0; s < steps; s++, mix += TILE_BYTES, p += 64) {
        _tile_loadd(6, mix, 64);
        _tile_loadd(7, mix + 2 * TILE_BYTES, 64);
        for (uint32_t l = 0; l < PLANES; l++) {
            _tile_loadd(4, p + l * plane, row);
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(1, 4, 7);
            if (more) {
                _tile_loadd(5, p + l * plane + SIDE * row, row);
                _tile_dpbf16ps(2, 5, 6);
                _tile_dpbf16ps(3, 5, 7);
            }
        }
    }
    _tile_stored(0, sum + c, next);
    _tile_stored(1, sum + c + SIDE, next);
    if (more) {
        _tile_stored(2, second + c, next);
        _tile_stored(3, second + c + SIDE, next);
    }
}

static void amx_mix(void *mem, uint32_t k, uint32_t heads,
                    const float *const *p, uint32_t n, float *sum, uint64_t ld,
                    bool add)
{
    struct room m = room(mem, k);
    struct tile_config cfg = { .palette = 1 };
    uint32_t first = heads < SIDE ? heads : SIDE, end = (n + 31) & ~31u;
    bool more = heads > SIDE;

    for (uint32_t t = 0; t < 8; t++) {
        bool second = t == 2 || t == 3 || t == 5, latents = t >= 6;

        cfg.row_bytes[t] = 64;
        cfg.rows[t] = (uint8_t)(latents          ? SIDE
                                : second && more ? heads - SIDE
                                                 : first);
    }
    plane_probabilities(&m, heads, p, n);
    pair_latents(&m, 0, end);
    tile_configure(&cfg);
    for (uint32_t c = 0; c < k; c += 32) {
        if (c + 32 < k)
            pair_latents(&m, c + 32, end);
        __asm__ volatile("" ::: "memory");
        mix_tiles(&m, c, end / 32, more, sum, ld, add);
    }
    _tile_release();
    __asm__ volatile("" ::: "memory");
}

static void amx_settle(uint32_t k, uint32_t heads, float *sum, uint64_t ld)
{
    const __m512i low = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6,
                                          7, 20, 21, 22, 23);
    const __m512i high = _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13,
                                           14, 15, 28, 29, 30, 31);

    for (uint32_t h = 0; h < heads; h++, sum += ld)
        for (uint32_t c = 0; c < k; c += 32) {
            __m512 a = _mm512_loadu_ps(sum + c);
            __m512 b = _mm512_loadu_ps(sum + c + 16);

            _mm512_storeu_ps(sum + c, _mm512_permutex2var_ps(a, low, b));
            _mm512_storeu_ps(sum + c + 16, _mm512_permutex2var_ps(a, high, b));
        }
}

/* ---- The indexer --------------------------------------------------------- */

static uint64_t query_block(uint32_t k)
{
    return INDEX_PLANES * (uint64_t)(k / 32) * TILE_BYTES;
}

static uint64_t amx_index_bytes(uint32_t k, uint32_t heads)
{
    return (heads + SIDE - 1) / SIDE * query_block(k);
}

static void amx_index_queries(void *mem, uint32_t k, const float *q,
                              uint32_t heads)
{
    char *to = mem;

    for (uint32_t h = 0; h < heads; h += SIDE, to += query_block(k)) {
        const float *row[SIDE];
        uint32_t n = heads - h < SIDE ? heads - h : SIDE;

        for (uint32_t i = 0; i < n; i++)
            row[i] = q + (uint64_t)(h + i) * k;
        pack_queries(to, k, row, n, INDEX_PLANES);
    }
}

static uint64_t amx_index_keys_bytes(uint32_t k, uint32_t n)
{
    return (n + SIDE - 1) / SIDE * SIDE * latent_row(k);
}

static void amx_index_keys(void *mem, uint32_t k, uint16_t dtype,
                           const void *const *key, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        latent((char *)mem + i * latent_row(k), dtype, key[i], k);
}

/* Up to three tiles of keys by one of heads. */
static void index_tiles(const char *key, uint64_t row, uint32_t tiles,
                        const char *q, uint32_t k, float *c)
{
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
#define TILE(t, with)                                 \
    if (tiles > (t)) {                                \
        _tile_loadd(with, key + (t)*SIDE * row, row); \
        _tile_dpbf16ps(t, with, 5);                   \
        _tile_dpbf16ps(t, with, 6);                   \
        _tile_dpbf16ps(t, with, 7);                   \
    }
    for (uint32_t i = 0; i < k; i += 32, key += 64) {
        _tile_loadd(5, q, 64);
        _tile_loadd(6, q + TILE_BYTES, 64);
        _tile_loadd(7, q + 2 * TILE_BYTES, 64);
        TILE(0, 3)
        TILE(1, 4)
        TILE(2, 3)
        q += INDEX_PLANES * TILE_BYTES;
    }
#undef TILE
    _tile_stored(0, c, 64);
    _tile_stored(1, c + 256, 64);
    _tile_stored(2, c + 512, 64);
}

static void amx_index_scores(const void *queries, const void *keys, uint32_t n,
                             uint32_t k, const float *w, uint32_t heads,
                             float *out)
{
    enum { KEYS = 3 * SIDE };
    _Alignas(64) float c[KEYS * SIDE];

    whole_tiles();
    for (uint32_t i = 0; i < n; i += KEYS) {
        const char *key = (const char *)keys + i * latent_row(k), *q = queries;
        uint32_t live = n - i < KEYS ? n - i : KEYS;
        uint32_t tiles = (live + SIDE - 1) / SIDE;
        __m512i sum[KEYS];

        for (uint32_t j = 0; j < KEYS; j++)
            sum[j] = _mm512_setzero_si512();
        for (uint32_t h = 0; h < heads; h += SIDE, q += query_block(k)) {
            __mmask16 lanes =
                (__mmask16)(heads - h < SIDE ? (1u << (heads - h)) - 1
                                             : 0xffff);
            __m512 weight = _mm512_maskz_loadu_ps(lanes, w + h);

            index_tiles(key, latent_row(k), tiles, q, k, c);
            __asm__ volatile("" ::: "memory");
            for (uint32_t j = 0; j < tiles * SIDE; j++) {
                /* The second operand where one is no number. */
                __m512 v = _mm512_maskz_max_ps(lanes, _mm512_setzero_ps(),
                                               _mm512_load_ps(c + SIDE * j));

                sum[j] = _mm512_castps_si512(
                    _mm512_fmadd_ps(weight, v, _mm512_castsi512_ps(sum[j])));
            }
        }
        for (uint32_t t = 0; t < tiles; t++) {
            __m512i *r = sum + t * SIDE;
            __m512 all;

            tile_transpose(r);
            all = _mm512_castsi512_ps(r[0]);
            for (uint32_t j = 1; j < SIDE; j++)
                all = _mm512_add_ps(all, _mm512_castsi512_ps(r[j]));
            live = n - i - t * SIDE;
            _mm512_mask_storeu_ps(
                out + i + t * SIDE,
                (__mmask16)(live < SIDE ? (1u << live) - 1 : 0xffff), all);
        }
    }
    _tile_release();
}

const struct kern_attend kern_attend_amx = {
    .bytes = amx_bytes,
    .queries = amx_queries,
    .scores = amx_scores,
    .mix = amx_mix,
    .settle = amx_settle,
    .index_bytes = amx_index_bytes,
    .index_queries = amx_index_queries,
    .index_keys_bytes = amx_index_keys_bytes,
    .index_keys = amx_index_keys,
    .index_scores = amx_index_scores,
};
