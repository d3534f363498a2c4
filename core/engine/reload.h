/* An edited configuration on a running server: plugins are swapped, everything
 * else is named as needing a restart. */
#ifndef SEAM_ENGINE_RELOAD_H
#define SEAM_ENGINE_RELOAD_H

#include "core/engine/swap.h"

/* Which plugins differ from those in use, by their entry or by what is in the
 * file now; true when any does.  [any] */
bool seam_reload_plugins(struct seam_engine *e, const struct seam_config *c,
                         bool role[SEAM_N_ROLES]);

/* Log what else differs from the configuration of the start, and begin to swap
 * the plugins that differ.  source is taken.  1: no plugin differs.  [any] */
int seam_reload_start(struct seam_engine *e, struct seam_source *source,
                      struct seam_swap **s, struct seam_error *err);

#endif
