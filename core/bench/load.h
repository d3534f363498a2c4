/* Requests against a running server: how long until the first token, how even
 * the next ones, and how many requests stay within a bound. */
#ifndef SEAM_BENCH_LOAD_H
#define SEAM_BENCH_LOAD_H

#include <stdint.h>

#include "core/base/error.h"

struct seam_load_opts {
    const char *url;
    const char *key, *model; /* NULL: none; the server's first                */
    const char *requests;    /* a file with one body a line, or NULL: ...     */
    const char *mix;         /* ... "chat", "long" or "agent"                 */
    uint32_t concurrency;    /* requests at a time, or with a rate, at most   */
    double rate;             /* arrivals per second (Poisson); 0: as one ends */
    uint32_t n_requests;     /* 0: no bound                                   */
    double duration_s;       /* none begins later; 0: no bound                */
    uint32_t max_tokens;     /* of every answer; 0: the mix's or the file's   */
    uint32_t timeout_ms;
    double slo_ttft_ms, slo_tpot_ms; /* 0: no bound                           */
    uint64_t seed;
    const char *json; /* file, or NULL                                        */
};

/* Measure and print.  EDEVICE when no request succeeded.  [control] */
int seam_bench_load_run(const struct seam_load_opts *o, struct seam_error *err);

#endif
