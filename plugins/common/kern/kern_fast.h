/* Products of packed rows, for processors that have instructions for them; one
 * table per instruction set.  Of integer weights in integer arithmetic, of BF16
 * weights in tiles (kern_amx_bf16.c).
 *
 * Each group of a row of x becomes fixed point of 16 to 22 bits times one scale,
 * cut into planes of 8 bits: v = 65536 h + 256 m + l for int4 weights, whose
 * products leave room for it, and v = 256 m + l for 8 bits.  A group's product
 * with the weights is then an exact integer,
 * whatever instructions compute it and in whatever order, and the groups are
 * added up in F32 in ascending order.  So a row's result depends neither on the
 * rows beside it nor on the table. */
#ifndef SEAM_KERN_FAST_H
#define SEAM_KERN_FAST_H

#include "kern.h"

/* Rows that one call of dot takes. */
#define FAST_ROWS 128
/* Rows of which tiles hold all planes side by side. */
#define FAST_FEW 5
/* Rows of records that must be readable behind the first: the tiles read whole
 * blocks. */
#define FAST_BLOCK 16

/* A packed row: l [k], m [k], of nibbles h [k], scale [k / group] F32, sum
 * [k / group] I32, where sum is that of v.  Nibbles have the eight inputs of a
 * word in the order 0, 2, 4, 6, 1, 3, 5, 7, in which two shifts take the word
 * apart. */
struct fast_row {
    const int8_t *l, *m, *h;
    const float *scale;
    const int32_t *sum;
};

static inline struct fast_row fast_row(const void *rec, struct kern_form f,
                                       uint32_t k)
{
    const int8_t *p = rec, *q = p + kern_planes(f) * (uint64_t)k;
    const float *s = (const float *)q;

    return (struct fast_row){ p, p + k, q - k, s,
                              (const int32_t *)(s + k / f.group) };
}

/* The words of an int4 weight from an output on, the next inputs' `row` bytes
 * further; the rows of others, `row` bytes apart. */
struct fast_next {
    const unsigned char *p;
    uint64_t row;
};

static inline struct fast_next fast_next(const struct kern_mat *w, uint32_t o)
{
    return w->dtype == SEAM_I4
               ? (struct fast_next){ w->w + 4 * (uint64_t)o,
                                     4 * (uint64_t)w->n }
               : (struct fast_next){ w->w + o * w->stride, w->stride };
}

struct kern_fast {
    /* Pack x[0, n) as the inputs [k0, k0 + n) of a row; both are multiples of
     * the group. */
    void (*pack)(const float *x, struct kern_form f, uint32_t k, uint32_t k0,
                 uint32_t n, void *rec);

    /* y[r][o] (+)= sum_i w[o][i] x[r][i] + bias[o], as kern.dot: at most
     * KERN_OUTS outputs (KERN_WIDE with one row) and FAST_ROWS rows; y
     * is [m][ldy] from output o0 on,
     * rec the first of m records that lie `stride` bytes apart, with room for a
     * multiple of FAST_BLOCK records.  next is what will be read after w, to be
     * fetched while the end of w passes, or NULL.  scratch is FAST_SCRATCH
     * bytes. */
    void (*dot)(const struct kern_mat *w, uint32_t o0, uint32_t o1,
                const void *rec, uint64_t stride, uint32_t m, float *y,
                int64_t ldy, const float *bias, bool add,
                const struct fast_next *next, void *scratch);

    /* y[r][c - c0] = (add ? y : 0) + sum_i x[r][i] w[i][c] for the columns
     * [c0, c0 + n) of an I8 weight that kern_form calls KERN_BYTES; at most
     * KERN_OUTS columns and KERN_ROWS rows, KERN_WIDE columns of one row.  x is
     * rounded as in a record.  next is as above, of columns c0's place on.
     * scratch is KERN_OWN bytes. */
    void (*across)(const struct kern_mat *w, uint32_t c0, uint32_t n,
                   const float *const *x, uint32_t m, float *const *y, bool add,
                   const struct fast_next *next, void *scratch);

    /* The same as dot with BF16 weights; NULL: no tiles for them.  pack_tiles packs the
     * rows [r, r + FAST_BLOCK) of m rows of k numbers that lie ldx apart, of
     * which x and rec are the first; m is the number that dot_tiles gets. */
    void (*pack_tiles)(const float *x, int64_t ldx, uint32_t k, uint32_t m,
                       uint32_t r, void *rec);
    void (*dot_tiles)(const struct kern_mat *w, uint32_t o0, uint32_t o1,
                      const void *rec, uint32_t m, float *y, int64_t ldy,
                      const float *bias, bool add, const struct fast_next *next,
                      void *scratch);
};

/* Totals of FAST_ROWS rows by 32 outputs, six tiles of sums, a group of
 * unpacked weights by 32 outputs. */
#define FAST_SCRATCH (FAST_ROWS * 32 * 4 + 6 * 1024 + KERN_OUTS * 32)
_Static_assert(FAST_SCRATCH <= KERN_OWN, "scratch of a worker");

extern const struct kern_fast kern_fast_vnni, kern_fast_amx;

/* What vnni computes when a call is too small for tiles. */
void kern_vnni_dot(const struct kern_mat *w, uint32_t o0, uint32_t o1,
                   const void *rec, uint64_t stride, uint32_t m, float *y,
                   int64_t ldy, const float *bias, bool add,
                   const struct fast_next *next, void *scratch);
void kern_vnni_across(const struct kern_mat *w, uint32_t c0, uint32_t n,
                      const float *const *x, uint32_t m, float *const *y,
                      bool add, const struct fast_next *next, void *scratch);
void kern_vnni_pack(const float *x, struct kern_form f, uint32_t k, uint32_t k0,
                    uint32_t n, void *rec);

/* Products of BF16 weights with tiles. */
void kern_tiles_pack(const float *x, int64_t ldx, uint32_t k, uint32_t m,
                     uint32_t r, void *rec);
void kern_tiles_dot(const struct kern_mat *w, uint32_t o0, uint32_t o1,
                    const void *rec, uint32_t m, float *y, int64_t ldy,
                    const float *bias, bool add, const struct fast_next *next,
                    void *scratch);

/* True when the processor has tiles for 8-bit integers and bfloat16 and the
 * system lets this process use them. */
bool kern_amx_enable(void);

#endif
