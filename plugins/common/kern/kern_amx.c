/* Integer products with AMX tiles.  One step multiplies 16 rows of x by 32
 * outputs: tiles 0 to 5 are sums (the planes by two halves of the outputs), 6
 * is a plane of x, 7 are weights, which are taken apart into a panel once for
 * all rows. */
#include "kern_fast.h"

#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cpuid.h>

enum {
    WIDTH = 32,   /* outputs of a step                                       */
    MIN_ROWS = 3, /* fewer are cheaper without tiles                         */
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

/* What ldtilecfg reads. */
struct tile_config {
    uint8_t palette, start_row, zero[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* A row of x in a tile is `step` inputs. */
static void configure(uint32_t step)
{
    struct tile_config c = { .palette = 1 };

    for (uint32_t t = 0; t < 8; t++) {
        c.row_bytes[t] = t == 6 ? (uint16_t)step : 64;
        c.rows[t] = t < 7 ? 16 : (uint8_t)(step / 4);
    }
    _tile_loadconfig(&c);
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

/* ---- Panels -------------------------------------------------------------- */

static __mmask16 lanes(uint32_t n)
{
    return n >= 16 ? 0xffff : (__mmask16)((1u << n) - 1);
}

/* Group g of the outputs [o, o + WIDTH), of which n exist. */
static void panel_nibbles(const struct kern_mat *w, uint32_t g, uint32_t o,
                          uint32_t n, uint32_t step, char *panel)
{
    const __m512i low = _mm512_set1_epi32(0x0f0f0f0f);
    __mmask16 m0 = lanes(n), m1 = n > 16 ? lanes(n - 16) : 0;
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

/* ---- The products -------------------------------------------------------- */

static __m512 scales(const struct kern_mat *w, uint64_t i, __mmask16 live)
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

/* Zero points of the outputs [o, o + 16) in group g. */
static __m512i zeros(const struct kern_mat *w, uint32_t g, uint32_t o)
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

/* 65536 h + 256 m + l of a row of 16 outputs. */
static __m512i joined(const char *sum)
{
    __m512i v = _mm512_slli_epi32(_mm512_load_si512(sum + 2048), 8);

    v = _mm512_slli_epi32(_mm512_add_epi32(v, _mm512_load_si512(sum + 1024)),
                          8);
    return _mm512_add_epi32(v, _mm512_load_si512(sum));
}

/* Add group g's sums of live rows to the totals; rec is the first of the rows,
 * s and z are the scales and zero points. */
static void settle(struct kern_form f, uint32_t k, uint32_t g, const char *sum,
                   const char *rec, uint64_t stride, uint32_t live,
                   const __m512 s[2], const __m512i z[2], float *tot)
{
    for (uint32_t r = 0; r < live; r++, rec += stride, sum += 64) {
        struct fast_row x = fast_row(rec, f, k);
        __m512i all = _mm512_set1_epi32(x.sum[g]);
        __m512 xs = _mm512_set1_ps(x.scale[g]);

        for (uint32_t u = 0; u < 2; u++, tot += 16) {
            __m512i v = joined(sum + u * 3072);

            v = _mm512_sub_epi32(v, _mm512_mullo_epi32(z[u], all));
            _mm512_store_ps(
                tot, _mm512_fmadd_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(v), xs),
                                     s[u], _mm512_load_ps(tot)));
        }
    }
}

static void put(float *y, const float *tot, const float *bias, bool add,
                __mmask16 live)
{
    __m512 v = _mm512_load_ps(tot);

    if (bias)
        v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(live, bias));
    if (add)
        v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(live, y));
    _mm512_mask_storeu_ps(y, live, v);
}

static void amx_dot(const struct kern_mat *w, uint32_t o0, uint32_t o1,
                    const void *rec, uint64_t stride, uint32_t m, float *y,
                    int64_t ldy, const float *bias, bool add, void *scratch)
{
    float *tot = scratch;
    char *sum = (char *)(tot + FAST_ROWS * WIDTH), *panel = sum + 6144;
    uint32_t gc = w->group_cols, inputs = gc % 64 ? 32 : 64;
    struct kern_form f = { KERN_NIBBLES, gc };
    struct step s = { inputs, gc / inputs, panel, sum };

    if (m < MIN_ROWS) {
        kern_vnni_dot(w, o0, o1, rec, stride, m, y, ldy, bias, add, scratch);
        return;
    }
    configure(inputs);
    for (uint32_t o = o0; o < o1; o += WIDTH) {
        uint32_t n = o1 - o < WIDTH ? o1 - o : WIDTH;
        __mmask16 m0 = lanes(n), m1 = n > 16 ? lanes(n - 16) : 0;

        memset(tot, 0, (size_t)m * WIDTH * sizeof *tot);
        for (uint32_t g = 0; g * gc < w->k; g++) {
            uint64_t at = (uint64_t)g * w->n + o;
            __m512 sc[2] = { scales(w, at, m0), scales(w, at + 16, m1) };
            __m512i z[2] = { zeros(w, g, o), zeros(w, g, o + 16) };

            panel_nibbles(w, g, o, n, inputs, panel);
            /* The tiles read it, which the compiler does not know. */
            __asm__ volatile("" ::: "memory");
            for (uint32_t r = 0; r < m; r += FAST_BLOCK) {
                const char *x = (const char *)rec + r * stride;
                uint32_t live = m - r < FAST_BLOCK ? m - r : FAST_BLOCK;

                group_nibbles(&s, x + g * gc, w->k, stride);
                settle(f, w->k, g, sum, x, stride, live, sc, z,
                       tot + r * WIDTH);
            }
        }
        for (uint32_t r = 0; r < m; r++) {
            float *to = y + r * ldy + (o - o0);
            const float *b = bias ? bias + o : NULL;

            put(to, tot + r * WIDTH, b, add, m0);
            if (m1)
                put(to + 16, tot + r * WIDTH + 16, b ? b + 16 : NULL, add, m1);
        }
    }
    _tile_release();
}

const struct kern_fast kern_fast_amx = {
    .pack = kern_vnni_pack,
    .dot = amx_dot,
};
