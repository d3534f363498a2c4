#include "core/engine/reload.h"

#include <stdlib.h>
#include <string.h>

#include "core/engine/impl.h"

/* How long a swap that a file asked for may take: nobody waits for it. */
#define RELOAD_TIMEOUT_MS 600000

bool seam_reload_plugins(struct seam_engine *e, const struct seam_config *c,
                         bool role[SEAM_N_ROLES])
{
    bool any = false;

    for (int r = 0; r < SEAM_N_ROLES; r++) {
        struct seam_instance *i = seam_engine_plugin(e, (enum seam_role)r);
        char now[65];
        struct seam_error err;

        role[r] = !seam_config_same_plugin(i->entry, &c->plugin[r]);
        /* A new build under the same name, also. */
        if (!role[r] && !seam_sha256_file(i->plugin->path, now, &err))
            role[r] = strcmp(now, i->plugin->sha256) != 0;
        any |= role[r];
        seam_instance_unref(i);
    }
    return any;
}

static void reload_tell(void *ctx, const char *key)
{
    const struct seam_engine *e = ctx;

    seam_log(e->log, SEAM_LOG_WARN, "engine",
             "%s is changed in the configuration; that needs a restart and has "
             "no effect now",
             key);
}

int seam_reload_start(struct seam_engine *e, struct seam_source *source,
                      struct seam_swap **s, struct seam_error *err)
{
    struct seam_swap_opts o = {
        .source = source,
        .on_layout_change = SEAM_SWAP_REPLAY,
        .timeout_ms = RELOAD_TIMEOUT_MS,
    };
    struct seam_swap_report report;

    seam_config_changed(e->config, &source->config, reload_tell, e);
    if (seam_engine_state(e) == SEAM_ENGINE_READY &&
        !seam_reload_plugins(e, &source->config, o.role)) {
        seam_config_release(&source->config);
        free(source);
        return 1;
    }
    return seam_swap_start(e, &o, s, &report, err);
}
