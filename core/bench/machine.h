/* What this machine can do at most, measured now and by the threads that the
 * engine uses: the ceilings that a plugin's time is held against. */
#ifndef SEAM_BENCH_MACHINE_H
#define SEAM_BENCH_MACHINE_H

#include <stdint.h>

#include "core/bench/sample.h"
#include "core/engine/pool.h"

struct seam_machine;

/* Takes `bytes` of memory to read from, which should be several times the last
 * cache's.  [control] */
int seam_machine_new(struct seam_machine **m, struct seam_pool *pool,
                     uint64_t bytes, struct seam_error *err);
void seam_machine_free(struct seam_machine *m);

uint32_t seam_machine_threads(const struct seam_machine *m);
/* What the processor calls itself, or "unknown". */
const char *seam_machine_name(const struct seam_machine *m);

/* Bytes per second of one pass of all threads over the memory. */
double seam_machine_read(struct seam_machine *m);

/* Products and sums per second, counted as two operations each, of all threads
 * in registers: the best instructions that this processor has. */
enum seam_dot {
    SEAM_DOT_F32 = 0, /* fused multiply-add                                   */
    SEAM_DOT_BF16 = 1,
    SEAM_DOT_INT8 = 2,
    SEAM_N_DOTS = 3
};
double seam_machine_dot(struct seam_machine *m, enum seam_dot dot);
/* "AMX", "AVX-512", "AVX2", "plain"; "none" when it has no such instruction. */
const char *seam_machine_isa(const struct seam_machine *m, enum seam_dot dot);

/* All of them, repeated between other measurements. */
struct seam_ceilings {
    struct seam_samples read, dot[SEAM_N_DOTS];
};
void seam_machine_sample(struct seam_machine *m, struct seam_ceilings *c);

#endif
