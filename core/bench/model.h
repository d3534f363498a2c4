/* Whole steps of a model, measured: decoding and prefilling at given contexts,
 * taken apart by what is called, held against what the machine could do
 * meanwhile. */
#ifndef SEAM_BENCH_MODEL_H
#define SEAM_BENCH_MODEL_H

#include "core/config/config.h"

#define SEAM_BENCH_MAX_POINTS 16

struct seam_bench_model_opts {
    const struct seam_config *config;
    const struct seam_config *versus; /* alternate with that; or NULL         */
    const struct seam_log *log;
    const char *shape, *versus_name;         /* for the report                */
    uint32_t context[SEAM_BENCH_MAX_POINTS]; /* tokens that stand before      */
    uint32_t n_contexts;
    uint32_t n_decode;   /* tokens decoded in a run; 0: none                  */
    uint32_t n_seqs;     /* sequences that are decoded at a time              */
    uint32_t n_prefill;  /* tokens prefilled in a run; 0: none                */
    uint32_t runs;       /* of each measurement                               */
    uint32_t distinct;   /* tokens of context that are really computed; the
                            cache's pages after them are copies               */
    uint64_t read_bytes; /* memory for the read bandwidth                     */
    const char *json, *html, *svg; /* files, or NULL                          */
};

/* Measure and print.  [control] */
int seam_bench_model_run(const struct seam_bench_model_opts *o,
                         struct seam_error *err);

#endif
