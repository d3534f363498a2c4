/* Guard bands: a pattern before and behind each piece of memory that plugins are
 * granted, looked at after each step, so that a write past a grant is found
 * when it happens and where (private to core/engine).
 *
 * What is found is repaired, as the band is not the neighbour's memory, and the
 * step's requests end with the message. */
#ifndef SEAM_ENGINE_GUARD_H
#define SEAM_ENGINE_GUARD_H

#include "core/engine/instance.h"

struct seam_memory_source;
struct seam_guards;
struct runtime_grant;

/* engine.guard_bands, where auto stands for builds with assertions. */
bool seam_guards_wanted(const struct seam_config *c);
/* NULL: out of memory. */
struct seam_guards *seam_guards_new(void);
/* Whatever is still guarded belongs to nobody any more.  NULL is fine. */
void seam_guards_free(struct seam_guards *g);

/* As seam_memory_alloc and free, with the bands around.  [control] */
int seam_guards_alloc(struct seam_guards *g, const struct seam_memory_source *s,
                      uint32_t mem, uint64_t bytes, void **out,
                      struct seam_error *err);
void seam_guards_release(struct seam_guards *g,
                         const struct seam_memory_source *s, uint32_t mem,
                         void *p);
/* Say whose and what p is, for the message.  [control] */
void seam_guards_name(struct seam_guards *g, const void *p, const char *name);
/* The same for all of a grant: plugin, planes or state, layer.  [control] */
void seam_guards_name_grant(struct seam_guards *g,
                            const struct seam_instance *i,
                            const struct runtime_grant *grant);

/* Memory from a source that says `trial` is looked at apart, until all of a
 * grant, or a piece, is taken into use; s is then who looks.  [submit] */
void seam_guards_accept(struct seam_guards *g, const void *p,
                        const struct seam_memory_source *s);
void seam_guards_accept_grant(struct seam_guards *g,
                              const struct runtime_grant *grant,
                              const struct seam_memory_source *s);

/* EDATA: what was written past, and how far.  [submit], with trial [control] */
int seam_guards_check(struct seam_guards *g, bool trial,
                      struct seam_error *err);

#endif
