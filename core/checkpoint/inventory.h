/* The tensors that a configuration implies (model spec, 1.4). */
#ifndef SEAM_CHECKPOINT_INVENTORY_H
#define SEAM_CHECKPOINT_INVENTORY_H

#include "core/checkpoint/model_config.h"

#define SEAM_PREFIX "model.language_model."
#define SEAM_VISION "model.visual."

enum seam_tensor_class {
    SEAM_CLASS_PLAIN = 1, /* F32, F16 or BF16 */
    SEAM_CLASS_LINEAR = 2 /* plain, or quantised: name lacks ".weight" */
};

/* Part of the model, for reports. */
enum seam_part {
    SEAM_PART_EMBED = 0,
    SEAM_PART_HEAD,
    SEAM_PART_NORM,
    SEAM_PART_HC,
    SEAM_PART_KDA,
    SEAM_PART_MLA,
    SEAM_PART_INDEXER,
    SEAM_PART_DENSE,
    SEAM_PART_ROUTER,
    SEAM_PART_EXPERTS,
    SEAM_PART_SHARED,
    SEAM_PART_MTP,
    SEAM_PART_VISION,
    SEAM_PART_OTHER,
    SEAM_N_PARTS
};

struct seam_expected {
    const char *name; /* whole name; of a linear layer without ".weight" */
    uint8_t cls;      /* enum seam_tensor_class */
    uint8_t rank;
    int64_t shape[3]; /* of a linear layer [n_out, n_in] */
};

/* Calls fn for every tensor of the layers [from, to) and, with `ends`, for
 * embedding, head and final norm.  Layer n_layers is the MTP block.  Stops at
 * the first value that is not 0 and returns it. */
int seam_inventory(const struct seam_model_config *m, uint32_t from,
                   uint32_t to, bool ends,
                   int (*fn)(void *ctx, const struct seam_expected *e),
                   void *ctx);

/* Which part a stored tensor belongs to, by its name. */
enum seam_part seam_part_of(const struct seam_model_config *m,
                            const char *name);
const char *seam_part_name(enum seam_part p);

#endif
