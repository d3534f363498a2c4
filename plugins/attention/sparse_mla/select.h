/* Which pools a query attends to. */
#ifndef SEAM_SPARSE_MLA_SELECT_H
#define SEAM_SPARSE_MLA_SELECT_H

#include <stdbool.h>
#include <stdint.h>

#define SELECT_BINS 2048

/* The `keep` largest of score[0, n), of equals those with the smaller index, in
 * ascending order into out[0, keep); keep <= n.  bins has SELECT_BINS entries.
 * Returns false, out undefined, when a score is not a number. */
bool select_largest(const float *score, uint32_t n, uint32_t keep,
                    uint32_t *bins, uint32_t *out);

#endif
