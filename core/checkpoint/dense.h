/* Quantising the 16-bit linear layers of a checkpoint as they are asked for
 * (setting weights.dense). */
#ifndef SEAM_CHECKPOINT_DENSE_H
#define SEAM_CHECKPOINT_DENSE_H

#include "core/checkpoint/checkpoint.h"

enum seam_dense_form { SEAM_DENSE_STORED, SEAM_DENSE_I8, SEAM_DENSE_I4 };

/* What becomes of the linear layer called name (without ".weight"), [n_out,
 * n_in], when `most` is asked for: experts, router and whatever is small and
 * decides much stay as they are; what tolerates less becomes I8 at most; shapes
 * that do not divide into groups fall back. */
enum seam_dense_form seam_dense_form_of(const char *name, int64_t n_out,
                                        int64_t n_in,
                                        enum seam_dense_form most);

/* bf16, int8 or int4, as weights.dense has it. */
bool seam_dense_form_read(const char *name, enum seam_dense_form *form);

/* What quantising would make of a checkpoint: of every layer that a plugin asks
 * for, which the MTP block's are not.  ns is 0. */
void seam_dense_plan(const struct seam_checkpoint *c, enum seam_dense_form most,
                     struct seam_checkpoint_dense *out);

/* A quantised matrix: data, then scales, then zero points in one piece. */
struct seam_dense {
    unsigned char *p;
    struct seam_tensor t;
    uint64_t bytes;
};

/* Quantise t, a plain [n_out, n_in] of F32, F16 or BF16, in parallel.  ENOMEM.
 * The caller frees p. */
int seam_dense_make(struct seam_dense *d, const struct seam_tensor *t,
                    enum seam_dense_form form, seam_parallel *parallel,
                    void *ctx, struct seam_error *err);

/* Free what c has made. */
void seam_dense_release(struct seam_checkpoint *c);

#endif
