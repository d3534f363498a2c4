/* What a model needs in memory (model spec, section 9): arithmetic alone, for
 * `seam inspect` and for messages.  The engine plans with what the loaded
 * plugins say they need. */
#ifndef SEAM_CHECKPOINT_PLAN_H
#define SEAM_CHECKPOINT_PLAN_H

#include "core/base/buf.h"
#include "core/checkpoint/dense.h"

/* Bytes for one choice of dtypes: of the latents and of the pooled index keys,
 * where 8 bits mean an F32 scale more for each record; of ring and convolution
 * state; and of the KDA matrix. */
struct seam_plan {
    uint64_t latent_per_token, index_per_token; /* all sparse layers */
    uint64_t per_token;                         /* their sum */
    uint64_t per_token_mtp;                     /* with the MTP block */
    uint64_t kda_per_seq, conv_per_seq, ring_per_seq;
    uint64_t per_seq;  /* their sum */
    uint64_t ring_mtp; /* more with the MTP block */
};
struct seam_plan seam_plan_of(const struct seam_model_config *m,
                              uint16_t latent_dtype, uint16_t index_dtype,
                              uint16_t conv_dtype, uint16_t state_dtype);

/* The report of `seam inspect DIR [--budget BYTES] [--dense FORM]`:
 * architecture, tensors and bytes per component and dtype, what each value of
 * weights.dense makes of them, the plan by dtype, and for the budget how many
 * sequences of how many tokens fit beside the weights in the given form. */
void seam_inspect(const struct seam_checkpoint *c, uint64_t budget,
                  enum seam_dense_form form, struct seam_buf *out);

#endif
