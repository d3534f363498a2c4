/* Whole steps of a model, measured: decoding and prefilling at given contexts,
 * held against what the machine could read meanwhile. */
#ifndef SEAM_BENCH_MODEL_H
#define SEAM_BENCH_MODEL_H

#include "core/config/config.h"

#define SEAM_BENCH_MAX_POINTS 16

struct seam_bench_model_opts {
    const struct seam_config *config;
    const struct seam_log *log;
    uint32_t context[SEAM_BENCH_MAX_POINTS]; /* tokens that stand before      */
    uint32_t n_contexts;
    uint32_t n_decode;   /* tokens decoded in a run; 0: none                  */
    uint32_t n_prefill;  /* tokens prefilled in a run; 0: none                */
    uint32_t runs;       /* of each measurement                               */
    uint64_t read_bytes; /* memory for the read bandwidth                     */
};

/* What one token makes a step read once, whatever else it does. */
struct seam_bench_bytes {
    uint64_t dense;  /* weights that every token uses                         */
    uint64_t expert; /* of the experts that it is routed to                   */
    uint64_t state;  /* recurrent state, read and written                     */
    uint64_t cache;  /* records of the context that are read, at most         */
};

/* Measure and print.  [control] */
int seam_bench_model_run(const struct seam_bench_model_opts *o,
                         struct seam_error *err);

#endif
