/* Trying out a block plugin beside the one in use, on a state row and a page
 * that no sequence has.
 *
 * The same four tokens of made-up activations go through both: three at once,
 * then one.  Where the layouts are equal the new one also goes on from the state
 * that the old one left, as the live sequences will. */
#ifndef SEAM_ENGINE_PROBE_H
#define SEAM_ENGINE_PROBE_H

#include "core/engine/runtime.h"

/* Norm of the difference over the norm of the old one's output, over the tokens
 * of a layer.  It tells another function from another rounding: quantised
 * weights and reduced caches stay well below. */
#define SEAM_PROBE_BOUND 0.1
/* The same where the caches are kept in another layout, perhaps a coarser one. */
#define SEAM_PROBE_OTHER_BOUND 0.25

/* No finite output of a layer is taken above this, old one or not. */
#define SEAM_PROBE_LARGEST 1e6

struct seam_probe;

/* For one role; source is where its device memory comes from.  [control] */
int seam_probe_new(struct seam_probe **p, struct seam_runtime *rt,
                   const struct seam_memory_source *source,
                   const struct seam_instance *fresh,
                   const struct runtime_grant *grant, struct seam_error *err);
void seam_probe_free(struct seam_probe *p);

/* Compute a part of what the old one answers, for about budget_ns; true when
 * there is more to do.  [submit], between two steps */
bool seam_probe_old(struct seam_probe *p, uint64_t budget_ns);

/* Run the new one and compare, with the old one's state when `resume`; ws is
 * scratch of ws_bytes.  [control] */
int seam_probe_new_one(struct seam_probe *p, void *ws, uint64_t ws_bytes,
                       bool resume, struct seam_error *err);

/* A parser: render a prompt, read an answer. */
int seam_probe_parser(const struct seam_instance *fresh,
                      const struct seam_tokenizer *t, struct seam_error *err);

#endif
