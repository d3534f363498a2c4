/* The indexer of a sparse layer once more, in double and by itself (model spec,
 * 4.3 and 4.4), to tell where the reference's choice among exactly tied pools
 * may differ from ours. */
#ifndef TESTS_SUPPORT_ORACLE_H
#define TESTS_SUPPORT_ORACLE_H

#include "tests/support/rig.h"

void oracle_sort(float *v, uint32_t n);

/* x [rows][hidden] is what the layer reads.  True when the two sets of token
 * positions of query `row` differ, and only in pools with one and the same
 * score. */
bool oracle_differs_by_tie(const struct rig *r, uint32_t layer, const float *x,
                           uint32_t row, const int32_t *a, uint32_t na,
                           const int32_t *b, uint32_t nb);

/* Records what the sparse layers read during a run of one sequence, and judges
 * afterwards which rows a tie may have changed: the row itself when nothing but
 * its own output comes after, else all rows from it on. */
struct oracle_ties {
    struct rig *rig;
    uint32_t max_rows, n_rows; /* n_rows: rows seen since start */
    uint32_t call;
    float *x[SEAM_MAX_LAYERS]; /* [max_rows][hidden] of sparse layers */
    bool *excused;             /* [max_rows] */
    int (*residual)(void *be, const struct seam_exec *e,
                    const struct seam_residual *a);
};

void oracle_ties_open(struct oracle_ties *t, struct rig *r, uint32_t max_rows);
void oracle_ties_close(struct oracle_ties *t);
void oracle_ties_start(struct oracle_ties *t);
/* [max_rows]; valid for the rows seen so far, and judged anew as more come when
 * called again. */
const bool *oracle_ties_rows(struct oracle_ties *t);

#endif
