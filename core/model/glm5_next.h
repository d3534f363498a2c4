/* The text trunk of glm5_next (docs/spec/glm5_next.md, sections 2 to 5): what
 * stands between the blocks.  Attention and experts are plugins; embedding,
 * hyper-connections, dense MLPs and head go through the backend's operations.
 */
#ifndef SEAM_MODEL_GLM5_NEXT_H
#define SEAM_MODEL_GLM5_NEXT_H

#include "core/checkpoint/checkpoint.h"

/* An attached instance of an attention or moe plugin. */
struct seam_block_ref {
    const struct seam_block *table;
    void *self;
};

struct seam_glm5_next_opts {
    struct seam_checkpoint *checkpoint;
    const struct seam_backend *backend;
    void *backend_self;
    const struct seam_limits *limits;
    int32_t device;    /* ordinal, -1: host */
    uint32_t max_rows; /* rows of logits in one step */
    /* Each serves the layers of its kind, in ascending order; the table is NULL
     * when the model has no such layer. */
    struct seam_block_ref linear, sparse, moe;
};

struct seam_glm5_next;

/* Resolve the weights and allocate the activations, all that a step needs.
 * opts is copied; what it points to outlives the model.  EDATA, ENOENT, ENOMEM.
 * [control] */
int seam_glm5_next_new(struct seam_glm5_next **m,
                       const struct seam_glm5_next_opts *opts,
                       struct seam_error *err);
void seam_glm5_next_free(struct seam_glm5_next *m);

/* The model layers whose mixer (SEAM_LAYER_*) or MLP (SEAM_MLP_*) is of a kind,
 * for seam_create.layer; returns how many. */
uint32_t seam_glm5_next_mixers(const struct seam_model_config *c, uint8_t kind,
                               uint32_t layer[SEAM_MAX_LAYERS]);
uint32_t seam_glm5_next_mlps(const struct seam_model_config *c, uint8_t kind,
                             uint32_t layer[SEAM_MAX_LAYERS]);

/* Where a step stands: the call that was begun last and has perhaps not
 * returned.  [any] */
enum seam_glm5_call {
    SEAM_GLM5_IDLE = 0,
    SEAM_GLM5_BACKEND = 1, /* an operation of the backend */
    SEAM_GLM5_LINEAR = 2,
    SEAM_GLM5_SPARSE = 3,
    SEAM_GLM5_MOE = 4
};
enum seam_glm5_call seam_glm5_next_where(const struct seam_glm5_next *m,
                                         uint32_t *layer);

/* Have fn called at each of these places of the steps to come, with IDLE at the
 * end of a step; NULL: no longer.  [submit] */
void seam_glm5_next_watch(struct seam_glm5_next *m,
                          void (*fn)(void *ctx, enum seam_glm5_call call,
                                     uint32_t layer),
                          void *ctx);

/* From the next step on, call this instance for LINEAR, SPARSE or MOE.  Between
 * two steps.  [submit] */
void seam_glm5_next_replace(struct seam_glm5_next *m, enum seam_glm5_call role,
                            struct seam_block_ref block);

/* One step.  token [n_tokens] and row [n_rows] are device arrays: the ids fed,
 * -1 for padding, and the token rows whose logits are wanted.  *logits becomes
 * [n_rows, vocab] F32, valid until the next step.  Nothing is allocated, and
 * nothing waits for the device.  *e->err says what failed.  [submit] */
int seam_glm5_next_step(struct seam_glm5_next *m, const struct seam_exec *e,
                        const struct seam_step *s, const int32_t *token,
                        const int32_t *row, uint32_t n_rows,
                        struct seam_tensor *logits);

/* After a step that failed: the call that did.  [submit] */
enum seam_glm5_call seam_glm5_next_failed(const struct seam_glm5_next *m,
                                          uint32_t *layer);
/* After a step that did not: the call in which one of the token rows [from,
 * from + n) ceased to be finite, or IDLE when all are, as far as is known: only
 * host memory is looked at, and of it only what blocks put out.  [submit] */
enum seam_glm5_call seam_glm5_next_bad(const struct seam_glm5_next *m,
                                       uint32_t from, uint32_t n,
                                       uint32_t *layer);

#endif
