/* Attention of a row's heads to latents that are BF16 numbers, on tiles.
 *
 * Latents are BF16 as they lie in the cache, or become so exactly (e4m3 with a
 * scale that is a power of two).  Queries and probabilities are cut into two
 * BF16 planes, which leave an error of 2^-16 of each: little beside the 2^-8 of
 * latents that have been rounded.  The indexer's queries, which choose, are cut
 * into three, which hold all 24 bits.  Products are exact, and sums are F32 in
 * an order that depends on the latents' places alone, neither on how many heads
 * come together nor on other rows. */
#ifndef SEAM_KERN_ATTEND_H
#define SEAM_KERN_ATTEND_H

#include "kern.h"

/* Heads of one call, and latents; heads of a tile. */
#define ATTEND_HEADS 32
#define ATTEND_SIDE  16
#define ATTEND_TILE  64

/* k: numbers of a latent and of a query, a multiple of 32.  mem: the caller's,
 * of bytes(k), 64-byte aligned; it carries the queries, and from scores to mix
 * the latents. */
struct kern_attend {
    uint64_t (*bytes)(uint32_t k);

    /* Take n queries of k numbers. */
    void (*queries)(void *mem, uint32_t k, const float *const *q, uint32_t n);

    /* p[h][i] = sum_c q[h][c] lat[i][c] for n <= ATTEND_TILE latents: records of
     * dtype BF16, or F8E4M3 with a scale (kv_record.h). */
    void (*scores)(void *mem, uint32_t k, uint32_t heads, uint16_t dtype,
                   const void *const *lat, uint32_t n, float *const *p);

    /* sum[h][c] = (add ? sum[h][c] : 0) + sum_i p[h][i] lat[i][c] for the
     * latents of the last scores; sum is [heads][ld], and its columns are in an
     * order of the kernel's own until settle. */
    void (*mix)(void *mem, uint32_t k, uint32_t heads, const float *const *p,
                uint32_t n, float *sum, uint64_t ld, bool add);
    void (*settle)(uint32_t k, uint32_t heads, float *sum, uint64_t ld);

    /* The indexer: out[p] = sum_h w[h] max(0, sum_i key[p][i] q[h][i]), as
     * kern.pool_scores, for queries [heads][k] of a row and n keys, records as
     * latents are; both are packed first, into 64-byte aligned memory. */
    uint64_t (*index_bytes)(uint32_t k, uint32_t heads);
    void (*index_queries)(void *to, uint32_t k, const float *q, uint32_t heads);
    uint64_t (*index_keys_bytes)(uint32_t k, uint32_t n);
    void (*index_keys)(void *to, uint32_t k, uint16_t dtype,
                       const void *const *key, uint32_t n);
    void (*index_scores)(const void *queries, const void *keys, uint32_t n,
                         uint32_t k, const float *w, uint32_t heads,
                         float *out);
};

/* What a table of kernels has for it; NULL: nothing. */
const struct kern_attend *kern_attend(const struct kern *k);

#endif
