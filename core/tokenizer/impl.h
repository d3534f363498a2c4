/* The inside of a tokenizer, shared by the files of core/tokenizer. */
#ifndef SEAM_TOKENIZER_IMPL_H
#define SEAM_TOKENIZER_IMPL_H

#include <pthread.h>
#include <string.h>

#include "core/tokenizer/bpe.h"
#include "core/tokenizer/split.h"
#include "core/tokenizer/tokenizer.h"

enum {
    SEAM_ADDED_LSTRIP = 1, /* takes the white space before it along */
    SEAM_ADDED_RSTRIP = 2, /* and behind it */
    SEAM_ADDED_WORD = 4    /* only where no word character touches it */
};

struct seam_added {
    const char *p; /* in the vocabulary's arena */
    uint32_t n;
    uint32_t id;
    uint32_t flags; /* SEAM_ADDED_* */
};

/* Added tokens of one pass, by bytes, shorter before longer: a range of tokens
 * with a common beginning is narrowed byte by byte. */
struct seam_added_set {
    struct seam_added *v; /* [n] */
    uint32_t n;
    uint32_t first[257]; /* v[first[c], first[c + 1]) begin with byte c */
};

struct seam_tokenizer {
    struct seam_bpe bpe;
    struct seam_split *split;
    /* Tokens are looked for in the raw text first, then those marked
     * "normalized" in what is left. */
    struct seam_added_set added[2];
    /* Ids without a place in bpe.word (added tokens, literal pieces), by
     * spelling, for seam_tokenizer_id. */
    uint32_t *named; /* [n_named] */
    uint32_t n_named;
    /* Held while a very long word is merged: one at a time. */
    pthread_mutex_t *long_word;
};

/* The order of spellings: byte by byte, a beginning before what it begins. */
static inline int seam_spelling_order(const char *a, size_t n, const char *b,
                                      size_t m)
{
    int c = memcmp(a, b, n < m ? n : m);

    return c ? c : (n > m) - (n < m);
}

/* The bytes that a piece in the vocabulary's spelling stands for, into out,
 * which has room for n.  Returns their number, or SIZE_MAX when a letter of it
 * stands for no byte. */
size_t seam_spelling_bytes(const char *p, size_t n, char *out);

#endif
