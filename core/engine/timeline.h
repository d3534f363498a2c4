/* A timeline of what the engine does, in Chrome's trace event format, for
 * chrome://tracing and Perfetto: one lane for the steps, one per plugin, and
 * one group per request with the times it waited, prefilled and decoded.
 *
 * The engine's thread only puts a record into a ring; a thread of the timeline
 * writes the file.  When the ring is full records are dropped, counted, and the
 * count is written.  The file is readable at any moment, also after a kill: the
 * format does not ask for the closing bracket.  Times are those of the host:
 * with an asynchronous backend a lane shows when work was submitted. */
#ifndef SEAM_ENGINE_TIMELINE_H
#define SEAM_ENGINE_TIMELINE_H

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/engine/engine.h"

struct seam_timeline;

enum seam_lane {
    SEAM_LANE_STEP = 0, /* whole steps                                       */
    SEAM_LANE_ROLE = 1  /* SEAM_LANE_ROLE + enum seam_role                   */
};

/* Create or replace the file.  log outlives the timeline.  [control] */
int seam_timeline_open(struct seam_timeline **t, const char *path,
                       const struct seam_log *log, struct seam_error *err);
/* Write what is left; NULL is fine.  [control] */
void seam_timeline_close(struct seam_timeline *t);

/* A stretch of a lane.  name is copied, up to 31 bytes.  layer -1: none.
 * [the engine's thread] */
void seam_timeline_span(struct seam_timeline *t, uint32_t lane,
                        const char *name, int32_t layer, uint64_t start_ns,
                        uint64_t end_ns);
/* A step, with how many sequences and token rows it had. */
void seam_timeline_step(struct seam_timeline *t, uint32_t n_seqs,
                        uint32_t n_tokens, uint64_t start_ns, uint64_t end_ns);
/* A request that has ended; number tells requests apart. */
void seam_timeline_request(struct seam_timeline *t, uint64_t number,
                           const struct seam_gen_info *info,
                           enum seam_gen_end end, uint64_t end_ns);

#endif
