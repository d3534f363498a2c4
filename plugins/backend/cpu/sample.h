/* Choosing tokens from logits; what is chosen is defined in rng.h and by the
 * reference backend. */
#ifndef SEAM_CPU_SAMPLE_H
#define SEAM_CPU_SAMPLE_H

#include "kern.h"

/* Memory of one worker, for one row of logits. */
struct sampler {
    uint32_t vocab; /* rows are not longer                                   */
    float *p;       /* [vocab] logits, then probabilities up to a factor     */
    float *block;   /* [ceil(vocab / SAMPLER_BLOCK)] largest, or sum, of p   */
    int32_t *order; /* [vocab] candidates                                    */
};

#define SAMPLER_BLOCK 256

/* Row r of a; thread-safe for different r with different samplers. */
void sampler_row(const struct kern *k, struct sampler *s,
                 const struct seam_sample *a, uint32_t r);
/* Sequence i of a. */
void sampler_sequence(const struct kern *k, struct sampler *s,
                      const struct seam_verify *a, uint32_t i);

/* What makes a call invalid, or NULL. */
const char *sampler_check_sample(const struct seam_sample *a, uint32_t vocab);
const char *sampler_check_verify(const struct seam_verify *a, uint32_t vocab);

#endif
