/* A plugin in use: the file that was loaded, what it was told, and the instance
 * made of it (private to core/engine, but for the members that readers of a
 * parser need).
 *
 * One may be replaced while others still look at it, so whoever does not run
 * the steps holds a reference.  The last one to let go puts it aside; it is
 * ended by the thread that may make [control] calls. */
#ifndef SEAM_ENGINE_INSTANCE_H
#define SEAM_ENGINE_INSTANCE_H

#include <pthread.h>
#include <time.h>

#include "core/config/config.h"
#include "core/engine/host.h"
#include "core/loader/loader.h"

/* A configuration that came after the start; the instances made by it share
 * it. */
struct seam_source {
    struct seam_config config;
    char origin[16]; /* "admin" or "file" */
    uint32_t refs;   /* under seam_instances.lock */
};

/* What the instances of a runtime share. */
struct seam_instances {
    pthread_mutex_t lock; /* guards all refs, retired, and seam_runtime.inst */
    pthread_cond_t news;  /* something was retired, or see swap.c */
    struct seam_instance *retired;
};

struct seam_instance {
    struct seam_instances *home;
    enum seam_role role;
    uint32_t refs;              /* under home->lock */
    struct seam_instance *next; /* retired, under home->lock */
    struct seam_source *source; /* NULL: the configuration of the start */
    const struct seam_plugin_entry_config *entry;
    struct seam_loader *loader; /* of its own, or NULL */
    struct seam_hosted host;
    struct seam_loaded *plugin;
    struct seam_cfg *cfg;
    void *self;
    struct seam_needs needs;
    uint32_t *layer; /* [n_layers] model layers served, or NULL */
    uint32_t n_layers;
    time_t since;
};

void seam_instances_init(struct seam_instances *home);
void seam_instances_release(struct seam_instances *home);

/* Load the plugin that config names for role, up to and with init.  source may
 * be NULL; a reference is taken.  loader is the one to use; when own is set it
 * becomes the instance's, also on failure.  The result has one reference.
 * [control] */
struct seam_instance_opts {
    struct seam_instances *home;
    const struct seam_config *config;
    struct seam_source *source;
    struct seam_loader *loader;
    bool own;
    const struct seam_log *log;
    struct seam_pool *pool;
};
int seam_instance_load(struct seam_instance **out,
                       const struct seam_instance_opts *o, enum seam_role role,
                       struct seam_error *err);

/* create and needs; layer (from malloc) is taken.  What limits, device and
 * model point to outlives the instance.  [control] */
int seam_instance_create(struct seam_instance *i, uint32_t *layer,
                         uint32_t n_layers, const struct seam_limits *limits,
                         const struct seam_device *device,
                         const struct seam_model *model,
                         struct seam_error *err);

/* [control] */
int seam_instance_attach(struct seam_instance *i, const struct seam_grant *g,
                         struct seam_error *err);

/* quiesce and destroy, once; nothing of the plugin runs any more.  [control] */
void seam_instance_end(struct seam_instance *i);
/* End it and unload the plugin.  NULL is fine.  [control] */
void seam_instance_free(struct seam_instance *i);

/* NULL is fine.  [any] */
void seam_instance_unref(struct seam_instance *i);
/* Free what was retired.  [control] */
void seam_instances_reap(struct seam_instances *home);

void seam_source_unref(struct seam_instances *home, struct seam_source *s);

#endif
