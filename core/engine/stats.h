/* Counters and histograms of the engine, read by /metrics without ever making a
 * step wait: every cell is a relaxed atomic. */
#ifndef SEAM_ENGINE_STATS_H
#define SEAM_ENGINE_STATS_H

#include <stdatomic.h>
#include <stdint.h>

#include "core/config/config.h"

#define SEAM_HIST_MAX 24

struct seam_hist {
    const double *bound; /* upper bounds, ascending                */
    uint32_t n_bounds;
    _Atomic uint64_t count[SEAM_HIST_MAX + 1]; /* last: above every bound     */
    _Atomic uint64_t total;     /* observations                           */
    _Atomic uint64_t sum_micro; /* their sum, in millionths               */
};

struct seam_stats {
    _Atomic uint64_t steps, prompt_tokens, generation_tokens, preemptions;
    _Atomic uint64_t ended_stop, ended_length, ended_abort, ended_error;
    _Atomic uint64_t rejected; /* submissions refused for a full queue   */
    _Atomic uint64_t timeouts; /* of ended_abort, by their own deadline  */
    _Atomic uint64_t swaps_ok[SEAM_N_ROLES], swaps_refused[SEAM_N_ROLES];
    _Atomic uint64_t prefix_queries, prefix_hits; /* in tokens, of memory    */
    _Atomic uint64_t disk_queries, disk_hits;     /* in tokens, of the second */
    _Atomic uint64_t snapshot_bytes, snapshots, snapshots_evicted;
    _Atomic uint32_t running, waiting;
    _Atomic uint32_t pages_used, pages_total;
    struct seam_hist ttft, itl, e2e, queue, prefill, decode; /* seconds       */
    struct seam_hist inference, per_token;                   /* the same */
    struct seam_hist prompt_len, gen_len, step_tokens;
    /* Of requests, which may be several generations: the longest of them, and
     * what was asked for. */
    struct seam_hist gen_most, asked_tokens, asked_n;
};

void seam_stats_init(struct seam_stats *s);
void seam_hist_observe(struct seam_hist *h, double v);

#endif
