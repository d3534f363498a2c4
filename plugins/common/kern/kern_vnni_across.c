/* Products across int8 rows with AVX-512 VNNI.
 *
 * A row has a scale for each group of its columns, so that x, which is
 * multiplied row by row, takes the scale in: for each group of columns it is
 * packed as the row of a product of bytes.  Four rows of weights are then
 * interleaved, which makes four inputs of a column lie side by side; they are
 * taken from the four quarters of all rows, since four streams are read faster
 * than one. */
#include "kern_fast512.h"

#define INLINE FAST_INLINE
#define UNROLL FAST_UNROLL

enum {
    ROWS = 256, /* of w, whose x is packed at once and has one scale          */
    FEW = 8,    /* of a quarter are read in one go for a single row of x      */
    TILE = 64,  /* columns: four vectors of sums a plane                      */
    TILES = KERN_WIDE / 32, /* of a call: a group has 32 columns at least     */
    PAIR = 2, /* rows of x that share the interleaving                        */
    SUMS = 8  /* vectors of a row of x: plane l, plane m                      */
};

/* Rows [i, end) of all quarters, of n rows, and columns of one group. */
struct span {
    const unsigned char *w;
    uint64_t stride;
    uint32_t n, i, end;
    uint32_t cols; /* at most TILE                                            */
};

/* What will be read next, in the order in which it lies: line after line of
 * rows of `width` bytes, of four quarters at a time. */
struct ahead {
    const unsigned char *p;
    uint64_t stride, quarter;
    uint32_t at, width;
};

INLINE void fetch(struct ahead *f)
{
    for (uint32_t j = 0; j < 4; j++)
        __builtin_prefetch(f->p + j * f->quarter + f->at);
    f->at += 64;
    if (f->at >= f->width) {
        f->p += f->stride;
        f->at = 0;
    }
}

/* The bytes of four vectors, four by four: quarter q of the new vector j has
 * bytes 16 q + 4 j and the next three of each. */
INLINE void interleave(__m512i *v)
{
    __m512i t[4];

    t[0] = _mm512_unpacklo_epi8(v[0], v[1]);
    t[1] = _mm512_unpackhi_epi8(v[0], v[1]);
    t[2] = _mm512_unpacklo_epi8(v[2], v[3]);
    t[3] = _mm512_unpackhi_epi8(v[2], v[3]);
    v[0] = _mm512_unpacklo_epi16(t[0], t[2]);
    v[1] = _mm512_unpackhi_epi16(t[0], t[2]);
    v[2] = _mm512_unpacklo_epi16(t[1], t[3]);
    v[3] = _mm512_unpackhi_epi16(t[1], t[3]);
}

/* The sums of mr rows of x over a span; acc is [mr][SUMS].  The lanes of quarter
 * q of sum j are columns 16 q + 4 j and the next three. */
INLINE void multiply(uint32_t mr, const struct span *s,
                     const struct fast_row *x, struct ahead *ahead,
                     __m512i *acc)
{
    const __m512i flip = _mm512_set1_epi8(-128);
    __mmask64 live =
        s->cols < TILE ? ((__mmask64)1 << s->cols) - 1 : ~(__mmask64)0;
    uint32_t quarter = (s->n + 3) / 4;
    __m512i a[PAIR * SUMS];

    UNROLL
    for (uint32_t j = 0; j < mr * SUMS; j++)
        a[j] = acc[j];
    for (uint32_t i = s->i; i < s->end; i++) {
        __m512i w[4];

        if (mr == 1)
            fetch(ahead);
        UNROLL
        for (uint32_t j = 0; j < 4; j++) { /* past the last, x is 0 */
            uint32_t row = j * quarter + i < s->n ? j * quarter + i : s->n - 1;
            const unsigned char *p = s->w + row * s->stride;

            w[j] = _mm512_xor_si512(_mm512_maskz_loadu_epi8(live, p), flip);
        }
        interleave(w);
        UNROLL
        for (uint32_t r = 0; r < mr; r++) {
            UNROLL
            for (uint32_t j = 0; j < 4; j++) {
                __m512i *l = &a[r * SUMS + j], *m = l + 4;

                *l = fast_dp(*l, w[j], x[r].l + 4 * i);
                *m = fast_dp(*m, w[j], x[r].m + 4 * i);
            }
        }
    }
    UNROLL
    for (uint32_t j = 0; j < mr * SUMS; j++)
        acc[j] = a[j];
}

/* From quarter q of vector j to quarter j of vector q. */
INLINE void quarters_in_order(__m512i *v)
{
    __m512i t[4];

    t[0] = _mm512_shuffle_i32x4(v[0], v[1], 0x44);
    t[1] = _mm512_shuffle_i32x4(v[2], v[3], 0x44);
    t[2] = _mm512_shuffle_i32x4(v[0], v[1], 0xee);
    t[3] = _mm512_shuffle_i32x4(v[2], v[3], 0xee);
    v[0] = _mm512_shuffle_i32x4(t[0], t[1], 0x88);
    v[1] = _mm512_shuffle_i32x4(t[0], t[1], 0xdd);
    v[2] = _mm512_shuffle_i32x4(t[2], t[3], 0x88);
    v[3] = _mm512_shuffle_i32x4(t[2], t[3], 0xdd);
}

/* y = (add ? y : 0) + the sums. */
INLINE void settle(const __m512i *acc, const struct fast_row *x, uint32_t cols,
                   float *y, bool add)
{
    const __m512i less = _mm512_set1_epi32(128 * *x->sum);
    const __m512 scale = _mm512_set1_ps(*x->scale);
    __m512i v[4];

    UNROLL
    for (uint32_t j = 0; j < 4; j++)
        v[j] = _mm512_sub_epi32(
            _mm512_add_epi32(_mm512_slli_epi32(acc[4 + j], 8), acc[j]), less);
    quarters_in_order(v);
    for (uint32_t j = 0; j < 4 && 16 * j < cols; j++) {
        __mmask16 live = fast_lanes(cols - 16 * j);
        __m512 to =
            add ? _mm512_maskz_loadu_ps(live, y + 16 * j) : _mm512_setzero_ps();

        to = _mm512_fmadd_ps(_mm512_cvtepi32_ps(v[j]), scale, to);
        _mm512_mask_storeu_ps(y + 16 * j, live, to);
    }
}

/* What a call works with: rows [i0, i0 + n) of w, columns [c0, end). */
struct across {
    const struct kern_mat *w;
    uint32_t i0, n, c0, end;
    uint32_t m;
    float *const *y; /* from column c0 on                                   */
    const struct fast_next *next; /* what is read after these rows, or NULL  */
    char *rec;    /* [groups of columns from c0's on][m] packed rows         */
    __m512i *acc; /* [tiles][SUMS]                                           */
};

static const struct kern_form FORM = { KERN_BYTES, ROWS };
_Static_assert(TILES *SUMS * 64 +
                       KERN_OUTS / 32 * KERN_ROWS * (2 * ROWS + 64) <=
                   KERN_OWN,
               "scratch of a worker");

/* Row r of x for columns c, or the last when there are no more. */
INLINE struct fast_row packed(const struct across *a, uint32_t c, uint32_t r)
{
    uint32_t g = c / a->w->group_cols - a->c0 / a->w->group_cols;

    r = r < a->m ? r : a->m - 1;
    return fast_row(a->rec + ((uint64_t)g * a->m + r) * kern_record(FORM, ROWS),
                    FORM, ROWS);
}

/* All rows of the tile at column c. */
static struct span span_at(const struct across *a, uint32_t c)
{
    uint32_t stop = (c / a->w->group_cols + 1) * a->w->group_cols;
    struct span s = { .w = a->w->w + a->i0 * a->w->stride + c,
                      .stride = a->w->stride,
                      .n = a->n,
                      .end = (a->n + 3) / 4 };

    stop = stop < a->end ? stop : a->end;
    s.cols = stop - c < TILE ? stop - c : TILE;
    return s;
}

/* What is read from row i of the quarters on. */
static struct ahead ahead_of(const struct across *a, uint32_t i)
{
    uint32_t quarter = (a->n + 3) / 4;
    struct ahead f = { a->w->w + (a->i0 + i) * a->w->stride + a->c0,
                       a->w->stride, quarter * a->w->stride, 0,
                       a->end - a->c0 };

    if (i >= quarter && a->next) {
        f.p = a->next->p + (i - quarter) * a->next->row;
        f.stride = a->next->row;
        f.quarter = quarter * f.stride;
    }
    return f;
}

/* A single row of x: a few rows of w for all columns at a time, so that they
 * are read as they lie. */
static void one_row(const struct across *a, bool add)
{
    uint32_t quarter = (a->n + 3) / 4;

    for (uint32_t i = 0; i < quarter; i += FEW) {
        __m512i *acc = a->acc;
        struct ahead f = ahead_of(a, i + FEW);
        struct span s;

        for (uint32_t c = a->c0; c < a->end; c += s.cols, acc += SUMS) {
            struct fast_row x = packed(a, c, 0);

            s = span_at(a, c);
            s.i = i;
            s.end = i + FEW < quarter ? i + FEW : quarter;
            for (uint32_t j = 0; !i && j < SUMS; j++)
                acc[j] = _mm512_setzero_si512();
            multiply(1, &s, &x, &f, acc);
            if (s.end == quarter)
                settle(acc, &x, s.cols, a->y[0] + (c - a->c0), add);
        }
    }
}

/* The same for several. */
static void more_rows(const struct across *a, bool add)
{
    struct span s;

    for (uint32_t c = a->c0; c < a->end; c += s.cols) {
        s = span_at(a, c);
        for (uint32_t r = 0; r < a->m; r += PAIR) {
            struct fast_row x[PAIR] = { packed(a, c, r), packed(a, c, r + 1) };
            __m512i acc[PAIR * SUMS];

            for (uint32_t j = 0; j < PAIR * SUMS; j++)
                acc[j] = _mm512_setzero_si512();
            multiply(PAIR, &s, x, NULL, acc);
            for (uint32_t j = 0; j < PAIR && r + j < a->m; j++)
                settle(acc + j * SUMS, &x[j], s.cols, a->y[r + j] + (c - a->c0),
                       add);
        }
    }
}

/* The four quarters of a plane, interleaved. */
static void interleave_plane(int8_t *plane, uint32_t quarter)
{
    __m512i q[4];

    for (uint32_t j = 0; j < 4; j++)
        q[j] = _mm512_loadu_si512(plane + j * quarter);
    interleave(q);
    quarters_in_order(q);
    for (uint32_t j = 0; j < 4; j++)
        _mm512_storeu_si512(plane + 64 * j, q[j]);
}

/* Scales of group g of the rows. */
static void row_scales(const struct across *a, uint32_t g, float *s)
{
    const struct kern_mat *w = a->w;
    uint32_t groups = w->k / w->group_cols;
    uint64_t at = (uint64_t)(w->row0 + a->i0) * groups + g;
    __m512i lane = _mm512_mullo_epi32(
        _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
        _mm512_set1_epi32((int)groups));
    uint32_t i = 0;

    for (; w->scale_dtype == SEAM_F32 && i + 16 <= a->n; i += 16)
        _mm512_storeu_ps(
            s + i, _mm512_i32gather_ps(
                       lane, (const float *)w->scale + at + i * groups, 4));
    for (; i < a->n; i++)
        s[i] = weights_elem(w->scale, w->scale_dtype, at + i * groups);
}

/* x times the scale of its row of w in the columns' group, for all groups, in
 * the order of multiply. */
static void pack_rows(const struct across *a, const float *const *x)
{
    uint32_t gc = a->w->group_cols, quarter = (a->n + 3) / 4;
    char *rec = a->rec;
    float s[ROWS], v[ROWS] = { 0 };

    for (uint32_t g = a->c0 / gc; g * gc < a->end; g++) {
        row_scales(a, g, s);
        for (uint32_t r = 0; r < a->m; r++, rec += kern_record(FORM, ROWS)) {
            struct fast_row p = fast_row(rec, FORM, ROWS);
            const float *from = x[r] + a->i0;

            for (uint32_t i = 0; i < a->n; i++)
                v[i] = from[i] * s[i];
            kern_vnni_pack(v, FORM, ROWS, 0, ROWS, rec);
            interleave_plane((int8_t *)p.l, quarter);
            interleave_plane((int8_t *)p.m, quarter);
        }
    }
}

void kern_vnni_across(const struct kern_mat *w, uint32_t c0, uint32_t n,
                      const float *const *x, uint32_t m, float *const *y,
                      bool add, const struct fast_next *next, void *scratch)
{
    struct across a = { .w = w, .c0 = c0, .end = c0 + n, .m = m, .y = y };
    struct fast_next more;

    a.acc = scratch;
    a.rec = (char *)scratch + TILES * SUMS * sizeof *a.acc;
    for (; a.i0 < w->n; a.i0 += ROWS) {
        a.n = w->n - a.i0 < ROWS ? w->n - a.i0 : ROWS;
        more = (struct fast_next){ w->w + (a.i0 + ROWS) * w->stride + c0,
                                   w->stride };
        a.next = a.i0 + ROWS < w->n ? &more : next;
        pack_rows(&a, x);
        (m == 1 ? one_row : more_rows)(&a, add || a.i0);
    }
}
