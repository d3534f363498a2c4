/* Every operation of a backend on the host against plain double precision, at
 * awkward shapes.  Each check opens the plugin by itself. */
#ifndef SEAM_CHECK_BACKEND_H
#define SEAM_CHECK_BACKEND_H

#include "core/check/synth.h"

struct backend_check {
    const char *plugin;
    double limit;  /* normalised error of products, norms and mixing          */
    double sample; /* error of a log-probability; draws nearer than this to a
                      boundary may fall on either side                        */
    const char *config; /* the plugin's own block, or NULL                    */
    /* The backend's generator: two numbers in [0, 1), the first picks a token of
     * the filtered distribution by its running sum, the second decides on a
     * draft.  NULL: not known, any token that the filters allow will do. */
    void (*draw)(uint64_t seed, uint64_t counter, double u[2]);
};

void check_gemm(const struct backend_check *c);
void check_rows(const struct backend_check *c); /* embed, gather, norm, glu */
void check_residual_ops(const struct backend_check *c);
void check_sample(const struct backend_check *c);
void check_sample_filters(const struct backend_check *c);
void check_verify(const struct backend_check *c);
/* Draws 10^5 pairs of tokens: their joint distribution is the target's. */
void check_verify_lossless(const struct backend_check *c);
void check_device(const struct backend_check *c);
/* Arguments that do not fit are EINVAL or ENOTSUP with a text. */
void check_refusals(const struct backend_check *c);

#endif
