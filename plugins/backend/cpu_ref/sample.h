/* From logits to tokens: seam_ops.sample and .verify. */
#ifndef SEAM_CPU_REF_SAMPLE_H
#define SEAM_CPU_REF_SAMPLE_H

#include <seam/plugin.h>

/* Scratch for one row of logits. */
struct sampler {
    uint32_t vocab; /* rows may be shorter                                  */
    double *p;      /* [vocab] by id: filtered logits, then probabilities   */
    int32_t *order; /* [vocab] ids, most likely first                       */
};

int sampler_sample(struct sampler *s, const struct seam_sample *a,
                   struct seam_error *err);
int sampler_verify(struct sampler *s, const struct seam_verify *a,
                   struct seam_error *err);

#endif
