/* The arithmetic of seam_dense_make on one group of weights, once for any
 * machine and once for AVX2; both give the same bits. */
#ifndef SEAM_CHECKPOINT_DENSE_GROUP_H
#define SEAM_CHECKPOINT_DENSE_GROUP_H

#include <stdint.h>

#include "core/base/error.h"

enum {
    SEAM_GROUP_I4 = 128, /* inputs of a group of int4                        */
    SEAM_GROUP_MAX = 128 /* of any group                                     */
};

struct seam_dense_group {
    const char *name;
    /* n numbers of F32, F16 or BF16 as floats; n a multiple of 32. */
    void (*widen)(const void *p, uint16_t dtype, uint32_t n, float *x);
    /* I8 with the largest magnitude at 127; returns the scale.  What is no
     * number becomes 0. */
    float (*bytes)(const float *x, uint32_t n, int8_t *q);
    /* int4, eight values to a word, the first lowest, each stored plus 8.
     * Returns the scale, an F16: of those tried the one that loses least, 0 where
     * none can be used, as for a group with something that is no number. */
    uint16_t (*nibbles)(const float x[SEAM_GROUP_I4],
                        uint32_t words[SEAM_GROUP_I4 / 8]);
};

extern const struct seam_dense_group seam_dense_group_any;
/* The fastest that this machine runs. */
const struct seam_dense_group *seam_dense_group_pick(void);

#endif
