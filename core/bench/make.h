/* A checkpoint of random weights, in the release's format: config.json, one
 * shard, tokenizer.json.  Experts are int4 in groups of 128, the rest is BF16
 * and F32.  Scales are such that activations stay of order 1 and that the
 * router spreads tokens over its experts. */
#ifndef SEAM_BENCH_MAKE_H
#define SEAM_BENCH_MAKE_H

#include <jansson.h>
#include <stdint.h>

#include "core/base/error.h"

/* Changes whenever the same shape and seed would give other bytes. */
#define SEAM_BENCH_MAKE_VERSION 1

struct seam_bench_made {
    uint64_t bytes;    /* of the weights                                      */
    uint64_t n_params; /* weights, not counting scales and zero points        */
    uint64_t n_active; /* of those, what one token is multiplied with         */
};

/* Make `dir`, which must not exist.  Its parent folders are made; a half-made
 * folder is removed.  [control] */
int seam_bench_make(const json_t *shape, const char *dir, uint64_t seed,
                    struct seam_bench_made *made, struct seam_error *err);

/* The folder of a named shape or shape file in the cache, made when it is not
 * there: BASE/NAME-VERSION-CHECKSUM, where the checksum is the configuration's.
 * base NULL: $XDG_CACHE_HOME/seam, or ~/.cache/seam.  *path is the caller's to
 * free; *was_made (may be NULL) tells whether it was made now. */
int seam_bench_model(const char *which, const char *base, char **path,
                     int *was_made, struct seam_error *err);

#endif
