/* The vocabulary and merge tables of a byte-level BPE, and its merge loop.
 * Used by core/tokenizer alone.
 *
 * Pieces are kept as the bytes they stand for, not in the vocabulary's spelling
 * of bytes as letters.  The tables are immutable once filled. */
#ifndef SEAM_TOKENIZER_BPE_H
#define SEAM_TOKENIZER_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/tokenizer/tokenizer.h"

#define SEAM_BPE_MAX_ID (1u << 22) /* ids are below; GLM has 154,856 */

struct seam_piece {
    uint32_t at, len; /* in arena; len 0: the id is not in use */
    uint32_t flags;   /* SEAM_TOKEN_* */
};

/* (left id, right id) to the rank of their merge.  Slots are a power of two,
 * at most half full; an empty one has rank UINT32_MAX. */
struct seam_merge {
    uint64_t key; /* left << 32 | right */
    uint32_t rank;
};

struct seam_bpe {
    char *arena;
    size_t arena_n, arena_cap;
    struct seam_piece *piece; /* [n_ids] */
    uint32_t n_ids;
    uint32_t *word; /* [word_mask + 1] id + 1 by bytes, or 0 */
    uint32_t word_mask;
    struct seam_merge *merge; /* [merge_mask + 1] */
    uint32_t merge_mask;
    uint32_t *made; /* [n_merges] what the merge of a rank makes */
    uint32_t n_merges;
    uint32_t byte[256]; /* id of each single byte */
    bool whole_words;   /* "ignore_merges" */
    uint32_t longest;   /* bytes of the longest piece that text can become */
};

/* Room for n_ids ids, n_words pieces that text can become and n_merges merges.
 * ENOMEM. */
int seam_bpe_init(struct seam_bpe *b, uint32_t n_ids, uint32_t n_words,
                  uint32_t n_merges);
void seam_bpe_release(struct seam_bpe *b);

/* Name the bytes of id.  ENOMEM. */
int seam_bpe_set(struct seam_bpe *b, uint32_t id, const char *p, size_t n,
                 uint32_t flags);
/* Let text with the bytes of id become id.  False when another id already has
 * the same bytes. */
bool seam_bpe_index(struct seam_bpe *b, uint32_t id);
/* Id that text p[0, n) as a whole would be, or SEAM_ENOENT. */
int32_t seam_bpe_find(const struct seam_bpe *b, const char *p, size_t n);
/* The merge of the next rank.  When a pair comes again its last rank holds. */
void seam_bpe_add_merge(struct seam_bpe *b, uint32_t left, uint32_t right,
                        uint32_t made);

struct seam_symbol {
    uint32_t id;
    uint32_t prev, next; /* UINT32_MAX at the ends */
    uint32_t rank;       /* of the merge with next; UINT32_MAX: none, or dead */
};

/* What one thread needs while it encodes; reused from word to word. */
struct seam_bpe_work {
    struct seam_symbol *sym; /* [cap] */
    uint64_t *heap;          /* [3 * cap] rank << 32 | position */
    size_t cap, n_heap;
    uint64_t n_steps; /* heap moves and merge look-ups so far */
};

void seam_bpe_work_release(struct seam_bpe_work *w);

/* Append the ids of one pre-token, any bytes, n < 2^31.  Lowest rank first, the
 * leftmost among equals; O(n log n).  ENOMEM. */
int seam_bpe_encode(const struct seam_bpe *b, struct seam_bpe_work *w,
                    const char *p, size_t n, struct seam_ids *out);

#endif
