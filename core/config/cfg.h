/* Nodes of JSON configuration as plugins see them: typed reads by path, and a
 * record of what was asked for, so that a key nobody asked for is an error and
 * not a default. */
#ifndef SEAM_CONFIG_CFG_H
#define SEAM_CONFIG_CFG_H

#include <jansson.h>

#include "core/base/error.h"
#include "core/base/log.h"

struct seam_cfg;

/* A node over v (an object, or NULL for an empty one); takes its own reference.
 * where names it in messages, such as "conf/nano.json: plugins.moe.config"; log
 * receives type errors.  NULL when out of memory. */
struct seam_cfg *seam_cfg_new(json_t *v, const char *where,
                              const struct seam_log *log);
void seam_cfg_free(struct seam_cfg *cfg);

/* seam_host.cfg: see plugin.h.  A NULL node is empty.  Reals with an integral
 * value are accepted for I64, integers for F64. */
int seam_cfg_get(const struct seam_cfg *cfg, const char *path, uint32_t type,
                 void *out);

/* EINVAL when the node holds a key, at any depth, that no seam_cfg_get has
 * asked for, with the nearest one that was. */
int seam_cfg_check_used(const struct seam_cfg *cfg, struct seam_error *err);

#endif
