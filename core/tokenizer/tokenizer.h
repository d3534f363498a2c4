/* Byte-level BPE from tokenizer.json (chat spec, section 5).
 *
 * A tokenizer is immutable after open and may be used by any number of threads;
 * what a thread needs of its own is in seam_encoder and seam_detok. */
#ifndef SEAM_TOKENIZER_TOKENIZER_H
#define SEAM_TOKENIZER_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/base/error.h"

struct seam_tokenizer;

/* Anything in the file that this implementation does not honour is refused by
 * name.  [control] */
int seam_tokenizer_open(struct seam_tokenizer **t, const char *path,
                        struct seam_error *err);
/* The same from text; name stands for the file. */
int seam_tokenizer_parse(struct seam_tokenizer **t, const char *name,
                         const char *text, size_t n, struct seam_error *err);
void seam_tokenizer_free(struct seam_tokenizer *t);

/* One more than the largest id in use. */
uint32_t seam_tokenizer_size(const struct seam_tokenizer *t);
/* Id of the token spelled exactly so (vocabulary spelling for ordinary tokens,
 * literal text for added ones), or SEAM_ENOENT. */
int32_t seam_tokenizer_id(const struct seam_tokenizer *t, const char *piece,
                          size_t n);
/* The exact bytes of a token; false when the id is not in use. */
bool seam_tokenizer_bytes(const struct seam_tokenizer *t, int32_t id,
                          struct seam_str *out);
enum {
    SEAM_TOKEN_ADDED = 1,  /* in added_tokens */
    SEAM_TOKEN_SPECIAL = 2 /* with "special": true */
};
uint32_t seam_tokenizer_flags(const struct seam_tokenizer *t, int32_t id);

struct seam_ids {
    int32_t *v;
    size_t n, cap;
};
void seam_ids_release(struct seam_ids *ids);
int seam_ids_add(struct seam_ids *ids, int32_t id); /* 0 or ENOMEM */

/* Append the ids of p[0, n), any bytes, up to 1 GiB.  With added, added tokens
 * are recognised in it; without, no text ever becomes one.  Nothing is added at
 * the ends.  Time is O(n log n) for any input.  On failure out is as it was.
 * EDATA, ELONGWORD, ENOMEM.  [any] */
int seam_tokenizer_encode(const struct seam_tokenizer *t, const char *p,
                          size_t n, bool added, struct seam_ids *out,
                          struct seam_error *err);

enum {
    SEAM_ETOOLONG = -101,
    SEAM_ELONGWORD = -102 /* what the pre-tokeniser does not cut is longer than
                             SEAM_MAX_WORD                                    */
};
/* Merging takes some 40 bytes of memory for each of a word's own. */
#define SEAM_MAX_WORD ((size_t)1 << 20)
/* The same, given up with ETOOLONG as soon as it is certain that out would hold
 * more than max ids. */
int seam_tokenizer_encode_max(const struct seam_tokenizer *t, const char *p,
                              size_t n, bool added, size_t max,
                              struct seam_ids *out, struct seam_error *err);

/* Piecewise: text pieces that follow each other are one run for the
 * pre-tokeniser; a special piece is one added token and ends the run (chat
 * spec, 2.11).  Set t and out, zero the rest; the last run is encoded by
 * seam_encoder_end.  A max that is not 0 bounds out as above. */
struct seam_encoder {
    const struct seam_tokenizer *t;
    struct seam_ids *out;
    size_t max;
    struct seam_buf run;
};
int seam_encoder_text(struct seam_encoder *e, const char *p, size_t n);
int seam_encoder_special(struct seam_encoder *e, const char *p, size_t n,
                         struct seam_error *err); /* EDATA: no such token */
int seam_encoder_end(struct seam_encoder *e, struct seam_error *err);
void seam_encoder_release(struct seam_encoder *e);

/* Streaming decoder: bytes in, whole characters out; each maximal ill-formed
 * part becomes one U+FFFD as soon as it is known to be one (chat spec, 5.5). */
struct seam_detok {
    char held[4];
    size_t n_held;
};
void seam_detok_add(struct seam_detok *d, const char *p, size_t n,
                    struct seam_buf *out);
void seam_detok_end(struct seam_detok *d, struct seam_buf *out);

#endif
