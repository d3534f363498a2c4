/* The host table: everything a plugin may ask of the server. */
#ifndef SEAM_ENGINE_HOST_H
#define SEAM_ENGINE_HOST_H

#include "core/base/log.h"
#include "core/checkpoint/checkpoint.h"
#include "core/config/cfg.h"
#include "core/engine/pool.h"
#include "core/tokenizer/tokenizer.h"

/* An open checkpoint, as plugins see it. */
struct seam_model {
    struct seam_checkpoint *checkpoint;
    const struct seam_tokenizer *tokenizer; /* NULL: the folder has none */
    struct seam_cfg *cfg;                   /* text_config */
};

/* One plugin's view of the server.  Its allocations are counted, so that what a
 * plugin does not give back is known by name. */
struct seam_hosted {
    struct seam_host table;
    char name[32];
    const struct seam_log *log;
    struct seam_pool *pool;
    struct seam_hosted_counter *counter; /* private: list of counter cells */
    uint64_t allocated; /* bytes held now; changed under [control] only */
};

/* *h must stay where it is until seam_hosted_release.  [control] */
void seam_hosted_init(struct seam_hosted *h, const char *name,
                      const struct seam_log *log, struct seam_pool *pool);
/* Frees the counters; warns when the plugin still holds memory. */
void seam_hosted_release(struct seam_hosted *h);

/* Calls fn for each counter cell of the plugin, whose instance is made.  [any] */
void seam_hosted_counters(const struct seam_hosted *h,
                          void (*fn)(void *ctx, const char *plugin,
                                     const char *name, const char *unit,
                                     uint64_t value),
                          void *ctx);

#endif
