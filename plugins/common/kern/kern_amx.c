/* Integer products with AMX tiles.  One step multiplies 16 rows of x by 32
 * outputs: tiles 0 to 5 are sums (the planes by two halves of the outputs), 6
 * is a plane of x, 7 are weights, which are taken apart into a panel once for
 * all rows. */
#include "kern_fast512.h"
#include "kern_tiles.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cpuid.h>

enum {
    WIDTH = 32, /* outputs of a step                                       */
    MIN_NIBBLES = 4, /* rows; fewer are cheaper without tiles                */
    MIN_BYTES = 6,
    REQ_XCOMP_PERM = 0x1023, /* arch_prctl                                   */
    XTILEDATA = 18,
};

bool kern_amx_enable(void)
{
    unsigned a, b, c, d;

    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return false;
    /* amx-bf16, amx-tile, amx-int8 */
    if (!(d & 1u << 22) || !(d & 1u << 24) || !(d & 1u << 25))
        return false;
    return !syscall(SYS_arch_prctl, REQ_XCOMP_PERM, XTILEDATA);
}

/* ---- Tiles --------------------------------------------------------------- */

/* A row of x in a tile is `step` inputs.  With bytes 5 is another plane of x, 2
 * more weights. */
static void configure(uint32_t step, bool bytes)
{
    struct tile_config c = { .palette = 1 };

    for (uint32_t t = 0; t < 8; t++) {
        bool x = t == 6 || (bytes && t == 5);
        bool weights = t == 7 || (bytes && t == 2);

        c.row_bytes[t] = x ? (uint16_t)step : 64;
        c.rows[t] = weights ? (uint8_t)(step / 4) : 16;
    }
    tile_configure(&c);
}

struct step {
    uint32_t step, n;  /* inputs of a tile; tiles of a group                 */
    const char *panel; /* [n][2][step / 4][64]                               */
    char *sum;         /* [2][planes][16][64], planes from l to h            */
};

/* One group of 16 rows by WIDTH outputs.  x is plane l, the others follow k
 * bytes apart. */
static void group_nibbles(const struct step *s, const char *x, uint32_t k,
                          uint64_t stride)
{
    const char *p = s->panel;

    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    for (uint32_t i = 0; i < s->n; i++, x += s->step, p += 32 * s->step) {
        _tile_loadd(7, p, 64);
        _tile_loadd(6, x, stride);
        _tile_dpbsud(0, 6, 7);
        _tile_loadd(6, x + k, stride);
        _tile_dpbsud(1, 6, 7);
        _tile_loadd(6, x + 2 * (uint64_t)k, stride);
        _tile_dpbsud(2, 6, 7);
        _tile_loadd(7, p + 16 * s->step, 64);
        _tile_dpbsud(5, 6, 7);
        _tile_loadd(6, x + k, stride);
        _tile_dpbsud(4, 6, 7);
        _tile_loadd(6, x, stride);
        _tile_dpbsud(3, 6, 7);
    }
    _tile_stored(0, s->sum, 64);
    _tile_stored(1, s->sum + 1024, 64);
    _tile_stored(2, s->sum + 2048, 64);
    _tile_stored(3, s->sum + 3072, 64);
    _tile_stored(4, s->sum + 4096, 64);
    _tile_stored(5, s->sum + 5120, 64);
}

static void group_bytes(const struct step *s, const char *x, uint32_t k,
                        uint64_t stride)
{
    const char *p = s->panel;

    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(3);
    _tile_zero(4);
    for (uint32_t i = 0; i < s->n; i++, x += s->step, p += 32 * s->step) {
        _tile_loadd(7, p, 64);
        _tile_loadd(6, x, stride);
        _tile_loadd(5, x + k, stride);
        _tile_loadd(2, p + 16 * s->step, 64);
        _tile_dpbssd(0, 6, 7);
        _tile_dpbssd(1, 5, 7);
        _tile_dpbssd(3, 6, 2);
        _tile_dpbssd(4, 5, 2);
    }
    _tile_stored(0, s->sum, 64);
    _tile_stored(1, s->sum + 1024, 64);
    _tile_stored(3, s->sum + 3072, 64);
    _tile_stored(4, s->sum + 4096, 64);
}

/* ---- Panels -------------------------------------------------------------- */

/* Group g of the outputs [o, o + WIDTH), of which n exist. */
static void panel_nibbles(const struct kern_mat *w, uint32_t g, uint32_t o,
                          uint32_t n, uint32_t step, char *panel)
{
    const __m512i low = _mm512_set1_epi32(0x0f0f0f0f);
    __mmask16 m0 = fast_lanes(n), m1 = n > 16 ? fast_lanes(n - 16) : 0;
    uint32_t words = w->group_cols / 8;
    const unsigned char *p = w->w + 4 * ((uint64_t)g * words * w->n + o);

    for (uint32_t i = 0; i < words; i++) {
        char *to = panel + i / (step / 8) * (32 * step) + i % (step / 8) * 128;
        __m512i a = _mm512_maskz_loadu_epi32(m0, p);
        __m512i b = _mm512_maskz_loadu_epi32(m1, p + 64);

        __builtin_prefetch(p + 32 * (uint64_t)w->n);
        __builtin_prefetch(p + 32 * (uint64_t)w->n + 64);
        _mm512_storeu_si512(to, _mm512_and_si512(a, low));
        _mm512_storeu_si512(to + 64,
                            _mm512_and_si512(_mm512_srli_epi32(a, 4), low));
        to += 16 * step;
        _mm512_storeu_si512(to, _mm512_and_si512(b, low));
        _mm512_storeu_si512(to + 64,
                            _mm512_and_si512(_mm512_srli_epi32(b, 4), low));
        p += 4 * (uint64_t)w->n;
    }
}

/* Group g of the rows [o, o + WIDTH), of which n exist. */
static void panel_bytes(const struct kern_mat *w, uint32_t g, uint32_t o,
                        uint32_t n, uint32_t step, char *panel)
{
    uint32_t gc = w->group_cols;
    __mmask16 live = fast_lanes(step / 4);

    for (uint32_t i = 0; i < gc; i += step)
        for (uint32_t u = 0; u < 2; u++, panel += 16 * step) {
            __m512i r[16];

            for (uint32_t j = 0; j < 16; j++) {
                uint32_t row = 16 * u + j;

                r[j] = _mm512_maskz_loadu_epi32(
                    live, w->w + (o + (row < n ? row : n - 1)) * w->stride +
                              g * gc + i);
            }
            tile_transpose(r);
            for (uint32_t j = 0; j < step / 4; j++)
                _mm512_storeu_si512(panel + 64 * j, r[j]);
        }
}

/* ---- The products -------------------------------------------------------- */

/* 65536 h + 256 m + l of a row of 16 outputs. */
static __m512i joined(const char *sum, uint32_t planes)
{
    __m512i v = _mm512_load_si512(sum + 1024);

    if (planes == 3)
        v = _mm512_add_epi32(
            v, _mm512_slli_epi32(_mm512_load_si512(sum + 2048), 8));
    return _mm512_add_epi32(_mm512_slli_epi32(v, 8), _mm512_load_si512(sum));
}

/* Add group g's sums of live rows to the totals; rec is the first of the rows,
 * s and z are the scales and zero points. */
static inline __attribute__((always_inline)) void settle(
    struct kern_form f, uint32_t k, uint32_t g, const char *sum,
    const char *rec, uint64_t stride, uint32_t live, const __m512 s[2],
    const __m512i z[2], float *tot)
{
    for (uint32_t r = 0; r < live; r++, rec += stride, sum += 64) {
        struct fast_row x = fast_row(rec, f, k);
        __m512i all = _mm512_set1_epi32(x.sum[g]);

        for (uint32_t u = 0; u < 2; u++, tot += 16) {
            __m512i v = joined(sum + u * 3072, kern_planes(f));

            if (f.kind == KERN_NIBBLES)
                v = _mm512_sub_epi32(v, _mm512_mullo_epi32(z[u], all));
            _mm512_store_ps(
                tot, fast_scaled(v, x.scale[g], s[u], _mm512_load_ps(tot)));
        }
    }
}

/* Group g of all rows of x by the outputs [o, o + n), added to the totals. */
static void nibbles(const struct kern_mat *w, const struct step *s, uint32_t g,
                    uint32_t o, uint32_t n, const char *rec, uint64_t stride,
                    uint32_t m, char *panel, float *tot)
{
    const struct kern_form f = { KERN_NIBBLES, w->group_cols };
    uint64_t at = (uint64_t)g * w->n + o;
    __m512 sc[2] = { fast_load_scales(w, at, fast_lanes(n)),
                     fast_load_scales(w, at + 16,
                                      n > 16 ? fast_lanes(n - 16) : 0) };
    __m512i z[2] = { fast_zeros(w, g, o), fast_zeros(w, g, o + 16) };

    panel_nibbles(w, g, o, n, s->step, panel);
    /* The tiles read it, which the compiler does not know. */
    __asm__ volatile("" ::: "memory");
    for (uint32_t r = 0; r < m; r += FAST_BLOCK, rec += FAST_BLOCK * stride) {
        group_nibbles(s, rec + g * f.group, w->k, stride);
        settle(f, w->k, g, s->sum, rec, stride,
               m - r < FAST_BLOCK ? m - r : FAST_BLOCK, sc, z, tot + r * WIDTH);
    }
}

/* Scales of group g of the rows o to o + 15 of I8 weights, of which n exist;
 * those past n repeat the last. */
static void byte_scales(const struct kern_mat *w, uint32_t o, uint32_t n,
                        uint32_t g, float s[16])
{
    uint64_t groups = w->k / w->group_cols;
    uint64_t at = (uint64_t)(w->row0 + o) * groups + g;

    for (uint32_t j = 0; j < 16; j++)
        s[j] = weights_elem(w->scale, w->scale_dtype,
                            at + (j < n ? j : n - 1) * groups);
}

static void bytes(const struct kern_mat *w, const struct step *s, uint32_t g,
                  uint32_t o, uint32_t n, const char *rec, uint64_t stride,
                  uint32_t m, char *panel, float *tot)
{
    const struct kern_form f = { KERN_BYTES, w->group_cols };
    float t[32];
    __m512 sc[2];

    byte_scales(w, o, n < 16 ? n : 16, g, t);
    memset(t + 16, 0, 16 * sizeof *t);
    if (n > 16)
        byte_scales(w, o + 16, n - 16, g, t + 16);
    sc[0] = _mm512_loadu_ps(t);
    sc[1] = _mm512_loadu_ps(t + 16);
    panel_bytes(w, g, o, n, s->step, panel);
    __asm__ volatile("" ::: "memory");
    for (uint32_t r = 0; r < m; r += FAST_BLOCK, rec += FAST_BLOCK * stride) {
        group_bytes(s, rec + g * f.group, w->k, stride);
        settle(f, w->k, g, s->sum, rec, stride,
               m - r < FAST_BLOCK ? m - r : FAST_BLOCK, sc, NULL,
               tot + r * WIDTH);
    }
}

static void amx_dot(const struct kern_mat *w, uint32_t o0, uint32_t o1,
                    const void *rec, uint64_t stride, uint32_t m, float *y,
                    int64_t ldy, const float *bias, bool add,
                    const struct fast_next *next, void *scratch)
{
    float *tot = scratch;
    char *sum = (char *)(tot + FAST_ROWS * WIDTH), *panel = sum + 6144;
    uint32_t gc = w->group_cols, inputs = gc % 64 ? 32 : 64;
    struct step s = { inputs, gc / inputs, panel, sum };

    if (m < (w->dtype == SEAM_I8 ? MIN_BYTES : MIN_NIBBLES)) {
        kern_vnni_dot(w, o0, o1, rec, stride, m, y, ldy, bias, add, next,
                      scratch);
        return;
    }
    configure(inputs, w->dtype == SEAM_I8);
    for (uint32_t o = o0; o < o1; o += WIDTH) {
        uint32_t n = o1 - o < WIDTH ? o1 - o : WIDTH;
        __mmask16 m0 = fast_lanes(n), m1 = n > 16 ? fast_lanes(n - 16) : 0;

        memset(tot, 0, (size_t)m * WIDTH * sizeof *tot);
        for (uint32_t g = 0; g * gc < w->k; g++)
            (w->dtype == SEAM_I8 ? bytes : nibbles)(w, &s, g, o, n, rec, stride,
                                                    m, panel, tot);
        for (uint32_t r = 0; r < m; r++) {
            float *to = y + r * ldy + (o - o0);
            const float *b = bias ? bias + o : NULL;

            fast_put(to, _mm512_load_ps(tot + r * WIDTH), b, add, m0);
            if (m1)
                fast_put(to + 16, _mm512_load_ps(tot + r * WIDTH + 16),
                         b ? b + 16 : NULL, add, m1);
        }
    }
    _tile_release();
}

const struct kern_fast kern_fast_amx = {
    .pack = kern_vnni_pack,
    .dot = amx_dot,
    .across = kern_vnni_across,
    .pack_tiles = kern_tiles_pack,
    .dot_tiles = kern_tiles_dot,
};
