/* Shapes of models to measure with, as configurations of checkpoints.
 *
 * "mid" is between a toy and the release and fits any machine, "real" has two
 * layers of the release with everything a layer can hold, "nano" those of the
 * tree's own small model. */
#ifndef SEAM_BENCH_SHAPE_H
#define SEAM_BENCH_SHAPE_H

#include <jansson.h>

#include "core/base/error.h"

/* The whole config.json of a shape, which the caller releases, or NULL.  which
 * is "real", "mid", "nano" or a JSON file of keys of text_config; keys that the
 * file leaves out are those of "real", lists of layers follow from
 * num_hidden_layers and first_k_dense_replace.  EINVAL, EDATA, ENOMEM. */
json_t *seam_bench_shape(const char *which, struct seam_error *err);

/* "real", "mid", "nano", NULL. */
extern const char *const seam_bench_shapes[];

#endif
