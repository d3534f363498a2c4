#include "core/engine/instance.h"

#include <stdlib.h>
#include <string.h>

void seam_instances_init(struct seam_instances *home)
{
    pthread_condattr_t attr;

    pthread_mutex_init(&home->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&home->news, &attr);
    pthread_condattr_destroy(&attr);
}

void seam_instances_release(struct seam_instances *home)
{
    seam_instances_reap(home);
    pthread_cond_destroy(&home->news);
    pthread_mutex_destroy(&home->lock);
}

/* ---- Making -------------------------------------------------------------- */

int seam_instance_load(struct seam_instance **out,
                       const struct seam_instance_opts *o, enum seam_role role,
                       struct seam_error *err)
{
    const struct seam_plugin_entry_config *p = &o->config->plugin[role];
    struct seam_want want = {
        .name = p->name,
        .file = p->file,
        .sha256 = p->sha256,
        .unpinned = p->unpinned,
        .kind = seam_role_kind[role],
    };
    struct seam_instance *i = calloc(1, sizeof *i);
    int rc;

    if (!i) {
        if (o->own)
            seam_loader_free(o->loader);
        return seam_fail(err, SEAM_ENOMEM, "out of memory");
    }
    i->home = o->home;
    i->role = role;
    i->refs = 1;
    i->entry = p;
    i->loader = o->own ? o->loader : NULL;
    i->since = time(NULL);
    if (o->source) {
        pthread_mutex_lock(&o->home->lock);
        o->source->refs++;
        pthread_mutex_unlock(&o->home->lock);
        i->source = o->source;
    }
    rc = seam_loader_load(o->loader, &want, &i->plugin, err);
    if (rc)
        goto out;
    seam_hosted_init(&i->host, p->name, o->log, o->pool);
    i->cfg = seam_config_plugin_cfg(o->config, role, o->log);
    if (!i->cfg) {
        rc = seam_fail(err, SEAM_ENOMEM, "out of memory");
        goto out;
    }
    rc = seam_loaded_init(i->plugin, &i->host.table, err);
    if (rc) {
        seam_fail_at(err, p->name);
        goto out;
    }
    *out = i;
    i = NULL;
out:
    seam_instance_free(i);
    return rc;
}

/* What a plugin's call came to, whether or not it gave a reason. */
static int instance_failed(const struct seam_instance *i, const char *call,
                           int rc, const struct seam_error *why,
                           struct seam_error *err)
{
    if (why->code < 0 && *why->text) {
        *err = *why;
        err->text[sizeof err->text - 1] = 0;
        /* Many begin with their name. */
        return strncmp(err->text, i->host.name, strlen(i->host.name)) != 0
                   ? seam_fail_at(err, i->host.name)
                   : err->code;
    }
    return seam_fail(err, rc < 0 ? rc : SEAM_EINVAL,
                     "%s: %s fails with code %d and gives no reason",
                     i->host.name, call, rc);
}

int seam_instance_create(struct seam_instance *i, uint32_t *layer,
                         uint32_t n_layers, const struct seam_limits *limits,
                         const struct seam_device *device,
                         const struct seam_model *model, struct seam_error *err)
{
    const struct seam_plugin *p = &i->plugin->plugin;
    struct seam_needs *needs = &i->needs;
    struct seam_error why = { 0 };
    struct seam_create c = {
        .size = sizeof c,
        .n_layers = n_layers,
        .layer = layer,
        .limits = limits,
        .device = device,
        .cfg = i->cfg,
        .model = model,
    };
    int rc;

    i->layer = layer;
    i->n_layers = n_layers;
    rc = p->create(&c, &i->self, &why);
    if (rc) {
        i->self = NULL;
        return instance_failed(i, "create", rc, &why, err);
    }
    *needs = (struct seam_needs){
        .size = sizeof *needs,
        .state_copies = 1,
        .n_layers = n_layers,
    };
    if (p->needs && (rc = p->needs(i->self, needs, &why)))
        return instance_failed(i, "needs", rc, &why, err);
    if (needs->n_planes > SEAM_MAX_PLANES || needs->n_layers > n_layers ||
        (needs->state_bytes && !needs->state_copies))
        return seam_fail(err, SEAM_EINVAL,
                         "%s: needs names %u planes and %u layers; expected at "
                         "most %d and %u",
                         i->host.name, needs->n_planes, needs->n_layers,
                         SEAM_MAX_PLANES, n_layers);
    return seam_cfg_check_used(i->cfg, err);
}

int seam_instance_attach(struct seam_instance *i, const struct seam_grant *g,
                         struct seam_error *err)
{
    struct seam_error why = { 0 };
    int rc = i->plugin->plugin.attach
                 ? i->plugin->plugin.attach(i->self, g, &why)
                 : 0;

    return rc ? instance_failed(i, "attach", rc, &why, err) : 0;
}

/* ---- Ending -------------------------------------------------------------- */

void seam_instance_end(struct seam_instance *i)
{
    if (!i || !i->self)
        return;
    if (i->plugin->plugin.quiesce)
        i->plugin->plugin.quiesce(i->self);
    i->plugin->plugin.destroy(i->self);
    i->self = NULL;
}

void seam_source_unref(struct seam_instances *home, struct seam_source *s)
{
    bool last;

    if (!s)
        return;
    pthread_mutex_lock(&home->lock);
    last = --s->refs == 0;
    pthread_mutex_unlock(&home->lock);
    if (!last)
        return;
    seam_config_release(&s->config);
    free(s);
}

void seam_instance_free(struct seam_instance *i)
{
    if (!i)
        return;
    seam_instance_end(i);
    seam_loaded_free(i->plugin);
    if (i->host.table.size)
        seam_hosted_release(&i->host);
    seam_cfg_free(i->cfg);
    free(i->layer);
    seam_loader_free(i->loader);
    seam_source_unref(i->home, i->source);
    free(i);
}

void seam_instance_unref(struct seam_instance *i)
{
    struct seam_instances *home;

    if (!i)
        return;
    home = i->home;
    pthread_mutex_lock(&home->lock);
    if (--i->refs == 0) {
        i->next = home->retired;
        home->retired = i;
        pthread_cond_broadcast(&home->news);
    }
    pthread_mutex_unlock(&home->lock);
}

void seam_instances_reap(struct seam_instances *home)
{
    struct seam_instance *i, *next;

    pthread_mutex_lock(&home->lock);
    i = home->retired;
    home->retired = NULL;
    pthread_mutex_unlock(&home->lock);
    for (; i; i = next) {
        next = i->next;
        seam_instance_free(i);
    }
}
