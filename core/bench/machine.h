/* What this machine can do at most, measured now and by the threads that the
 * engine uses: the ceilings that a plugin's time is held against. */
#ifndef SEAM_BENCH_MACHINE_H
#define SEAM_BENCH_MACHINE_H

#include <stdint.h>

#include "core/engine/pool.h"

struct seam_machine;

/* Takes `bytes` of memory to read from, which should be several times the last
 * cache's.  [control] */
int seam_machine_new(struct seam_machine **m, struct seam_pool *pool,
                     uint64_t bytes, struct seam_error *err);
void seam_machine_free(struct seam_machine *m);

/* Bytes per second of one pass of all threads over the memory. */
double seam_machine_read(struct seam_machine *m);

#endif
