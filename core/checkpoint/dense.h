/* Quantising the 16-bit linear layers of a checkpoint as they are asked for
 * (setting weights.dense). */
#ifndef SEAM_CHECKPOINT_DENSE_H
#define SEAM_CHECKPOINT_DENSE_H

#include "core/checkpoint/impl.h"

enum seam_dense_form { SEAM_DENSE_STORED, SEAM_DENSE_I8, SEAM_DENSE_I4 };

/* What becomes of the linear layer called name (without ".weight"), [n_out,
 * n_in], when `most` is asked for: experts, router and whatever is small and
 * decides much stay as they are; what tolerates less becomes I8 at most; shapes
 * that do not divide into groups fall back. */
enum seam_dense_form seam_dense_form_of(const char *name, int64_t n_out,
                                        int64_t n_in,
                                        enum seam_dense_form most);

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
