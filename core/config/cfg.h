/* Nodes of JSON configuration as plugins see them: typed reads by path, and a
 * record of what was asked for, so that a key nobody asked for is an error and
 * not a default. */
#ifndef SEAM_CONFIG_CFG_H
#define SEAM_CONFIG_CFG_H

#include <jansson.h>
#include <stddef.h>

#include "core/base/error.h"
#include "core/base/log.h"

struct seam_cfg;

/* A node over v (an object, or NULL for an empty one); takes its own reference.
 * where names it in messages, such as "conf/nano.json: plugins.moe.config"; log
 * receives type errors.  NULL when out of memory. */
struct seam_cfg *seam_cfg_new(json_t *v, const char *where,
                              const struct seam_log *log);
void seam_cfg_free(struct seam_cfg *cfg);

/* The text that v was parsed from, and v's path in it: messages then read
 * "FILE:LINE: BASE.KEY: ...".  file and text must outlive the node. */
struct seam_cfg_source {
    const char *file, *base;
    const char *text;
    size_t n;
};
struct seam_cfg *seam_cfg_new_from(json_t *v,
                                   const struct seam_cfg_source *source,
                                   const struct seam_log *log);

/* seam_host.cfg: see plugin.h.  A NULL node is empty.  Reals with an integral
 * value are accepted for I64, integers for F64.  JSON's null counts as absent,
 * as checkpoints write it for "not used". */
int seam_cfg_get(const struct seam_cfg *cfg, const char *path, uint32_t type,
                 void *out);

/* EINVAL when the node holds a key, at any depth, that no seam_cfg_get has
 * asked for, with the nearest one that was.  A list element that was not asked
 * for is such a key. */
int seam_cfg_check_used(const struct seam_cfg *cfg, struct seam_error *err);

#endif
