/* The one thread pool: seam_host.parallel_for. */
#ifndef SEAM_ENGINE_POOL_H
#define SEAM_ENGINE_POOL_H

#include <stdbool.h>

#include "core/base/error.h"

struct seam_pool;

/* n workers in all, the calling thread of seam_pool_run being one of them;
 * n 0: one per physical core this process may use.  [control] */
int seam_pool_new(struct seam_pool **p, uint32_t n, struct seam_error *err);
void seam_pool_free(struct seam_pool *p);
uint32_t seam_pool_size(const struct seam_pool *p);

/* Bind each worker to a core of its own, except the calling thread, which finds
 * the one that is left.  only_own: do so only if the process was given some of
 * the machine's processors and has a worker for each of their cores, so that
 * nobody else is likely to be on them.  Returns how many were bound.
 * [control] */
int seam_pool_pin(struct seam_pool *p, bool only_own, struct seam_error *err);

/* fn(arg, i, worker) for each i in [0, n), then return.  Calls from several
 * threads take turns; a call from inside fn runs serially.  Allocates nothing.
 * [any] */
void seam_pool_run(struct seam_pool *p, uint32_t n, seam_task *fn, void *arg);

/* fn(arg), within which this thread's calls of seam_pool_run take no turn and
 * use no worker: all indices run here, as worker 0.  For slow work beside the
 * steps, on instances that no other thread calls.  [any] */
void seam_pool_alone(struct seam_pool *p, void (*fn)(void *arg), void *arg);

#endif
