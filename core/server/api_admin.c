/* GET and POST /admin/plugins, and GET /v1/config, which shows what they did. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/engine/swap.h"
#include "core/server/answer.h"
#include "core/server/routes.h"

#define TIMEOUT_PRESET_MS 30000
#define TIMEOUT_MAX_MS    3600000

/* ---- Showing ------------------------------------------------------------- */

static json_t *admin_plugin(struct seam_engine *e, enum seam_role role)
{
    struct seam_instance *i = seam_engine_plugin(e, role);
    const struct seam_loaded *p = i->plugin;
    const struct seam_ident *id = &p->plugin.ident;
    char layout[24];
    json_t *v;

    snprintf(layout, sizeof layout, "%016llx",
             (unsigned long long)i->needs.layout_id);
    v = json_pack("{s:s, s:s, s:s, s:s, s:s, s:b, s:s?, s:I, s:s, s:I}", "role",
                  seam_role_name[role], "name", id->name, "version",
                  id->version, "file", p->path, "sha256", p->sha256, "pinned",
                  p->pinned, "layout_id", i->needs.layout_id ? layout : NULL,
                  "since", (json_int_t)i->since, "origin",
                  i->source ? i->source->origin : "start", "swaps",
                  (json_int_t)seam_engine_swaps(e, role));
    seam_instance_unref(i);
    return v;
}

static json_t *admin_plugins(struct seam_engine *e)
{
    json_t *list = json_array();

    for (int r = 0; list && r < SEAM_N_ROLES; r++)
        if (json_array_append_new(list, admin_plugin(e, (enum seam_role)r))) {
            json_decref(list);
            return NULL;
        }
    return list;
}

void seam_api_plugins(struct seam_http *h)
{
    seam_http_json(
        h, 200,
        json_pack("{s:o}", "plugins", admin_plugins(seam_server_engine(h->s))));
}

/* Put the rows of a plugin that was replaced in the place of the old ones. */
static void config_replace(json_t *all, const struct seam_source *source,
                           enum seam_role role)
{
    json_t *now = seam_config_json(&source->config);
    json_t *to = json_object_get(all, "settings");
    json_t *from = json_object_get(now, "settings"), *row;
    bool admin = !strcmp(source->origin, "admin");
    char head[48];
    size_t at;

    snprintf(head, sizeof head, "plugins.%s.", seam_role_name[role]);
    json_array_foreach(from, at, row)
    {
        const char *key = json_string_value(json_object_get(row, "key"));

        if (strncmp(key, head, strlen(head)) != 0)
            continue;
        if (admin)
            json_object_set_new(row, "origin", json_string("admin"));
        json_array_set(to, at, row);
    }
    json_decref(now);
}

void seam_api_config(struct seam_http *h)
{
    json_t *all = seam_config_json(h->s->config);
    struct seam_engine *e = seam_server_engine(h->s);
    enum seam_engine_state state = e ? seam_engine_state(e) : 0;

    for (int r = 0; all && r < SEAM_N_ROLES; r++) {
        struct seam_instance *i;

        if (state != SEAM_ENGINE_READY && state != SEAM_ENGINE_DRAINING)
            break;
        i = seam_engine_plugin(e, (enum seam_role)r);
        if (i->source)
            config_replace(all, i->source, (enum seam_role)r);
        seam_instance_unref(i);
    }
    seam_http_json(h, 200, all);
}

/* ---- Asking -------------------------------------------------------------- */

static int admin_role(const char *name)
{
    for (int r = 0; r < SEAM_N_ROLES; r++)
        if (!strcmp(seam_role_name[r], name))
            return r;
    return -1;
}

/* The entries of the plugins in use, as a file would have them. */
static json_t *admin_entries(struct seam_engine *e)
{
    json_t *all = json_object();

    for (int r = 0; r < SEAM_N_ROLES; r++) {
        struct seam_instance *i = seam_engine_plugin(e, (enum seam_role)r);
        const struct seam_plugin_entry_config *p = i->entry;
        json_t *v = json_pack("{s:s, s:s}", "name", p->name, "file", p->file);

        if (p->sha256)
            json_object_set_new(v, "sha256", json_string(p->sha256));
        else
            json_object_set_new(v, "unpinned", json_true());
        if (p->config) /* a copy: the instance's own is for its thread */
            json_object_set_new(v, "config", json_deep_copy(p->config));
        json_object_set_new(all, seam_role_name[r], v);
        seam_instance_unref(i);
    }
    return all;
}

/* null stands for absent, in the body and in its entries. */
static void admin_drop_nulls(json_t *body, int depth)
{
    const char *key;
    json_t *v;
    void *next;

    json_object_foreach_safe(body, next, key, v)
    {
        if (json_is_null(v))
            json_object_del(body, key);
        else if (depth && strcmp(key, "config") != 0)
            admin_drop_nulls(v, depth - 1);
    }
}

/* Move the wanted entries from the body into all, as a configuration has them:
 * what else the body holds is left in it. */
static int admin_take(json_t *body, json_t *all, bool role[SEAM_N_ROLES],
                      struct seam_api_error *e)
{
    static const char *const own[] = { "name", "file", "sha256", "unpinned",
                                       "config" };
    json_t *one = json_object_get(body, "role");
    json_t *many = json_object_get(body, "plugins"), *entry;
    const char *name;
    int r;

    if (!one == !many)
        return seam_api_invalid(e, "role",
                                "give either role, for one plugin, or plugins, "
                                "an object of entries by role");
    if (one) {
        r = json_is_string(one) ? admin_role(json_string_value(one)) : -1;
        if (r < 0)
            return seam_api_invalid(
                e, "role",
                "role must be linear_attention, sparse_attention, moe or "
                "parser");
        entry = json_object();
        for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
            json_t *v = json_object_get(body, own[i]);

            if (v)
                json_object_set(entry, own[i], v);
            json_object_del(body, own[i]);
        }
        json_object_set_new(all, seam_role_name[r], entry);
        role[r] = true;
    } else if (!json_is_object(many) || !json_object_size(many)) {
        return seam_api_invalid(e, "plugins",
                                "plugins must be an object of entries by role");
    } else {
        json_object_foreach(many, name, entry)
        {
            r = admin_role(name);
            if (r < 0)
                return seam_api_invalid(e, "plugins",
                                        "plugins holds what is no role");
            json_object_set(all, name, entry);
            role[r] = true;
        }
    }
    json_object_del(body, "role");
    json_object_del(body, "plugins");
    return 0;
}

static int admin_options(json_t *body, struct seam_swap_opts *o,
                         struct seam_api_error *e)
{
    const json_t *layout = json_object_get(body, "on_layout_change");
    const json_t *timeout = json_object_get(body, "timeout_ms");
    const char *s = json_string_value(layout);
    int64_t ms = TIMEOUT_PRESET_MS;

    o->on_layout_change = SEAM_SWAP_REPLAY;
    if (s && !strcmp(s, "drain"))
        o->on_layout_change = SEAM_SWAP_DRAIN;
    else if (layout && (!s || strcmp(s, "replay") != 0))
        return seam_api_invalid(e, "on_layout_change",
                                "on_layout_change must be replay or drain");
    if (timeout &&
        seam_request_int(timeout, "timeout_ms", 1, TIMEOUT_MAX_MS, &ms, e))
        return -1;
    o->timeout_ms = ms;
    json_object_del(body, "on_layout_change");
    json_object_del(body, "timeout_ms");
    if (json_object_size(body))
        return seam_api_invalid(
            e, NULL,
            "the body holds an unknown field; expected role, name, file, "
            "sha256, unpinned, config, or plugins; and on_layout_change, "
            "timeout_ms");
    return 0;
}

/* What is wanted, read and checked as a configuration file is. */
static int admin_source(struct seam_http *h, json_t *all,
                        struct seam_swap_opts *o, struct seam_api_error *e)
{
    static char *no_env[] = { NULL };
    const struct seam_config *c = h->s->config;
    json_t *root = json_pack("{s:{s:s}, s:O}", "model", "path", c->model.path,
                             "plugins", all);
    char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;
    struct seam_error err;
    int rc = SEAM_ENOMEM;

    o->source = calloc(1, sizeof *o->source);
    if (text && o->source)
        rc = seam_config_parse(&o->source->config, "request", text,
                               strlen(text), no_env, NULL, 0, &err);
    json_decref(root);
    free(text);
    if (!rc) {
        snprintf(o->source->origin, sizeof o->source->origin, "admin");
        return 0;
    }
    free(o->source);
    o->source = NULL;
    return rc == SEAM_ENOMEM
               ? seam_api_fail(e, 503, "no_memory", NULL, "no memory")
               : seam_api_invalid(e, NULL, "%s", err.text);
}

static int admin_fail(const struct seam_swap_report *r,
                      const struct seam_error *err, struct seam_api_error *e)
{
    static const struct {
        int status;
        const char *code;
    } as[] = {
        [SEAM_SWAP_DONE] = { 500, NULL },
        [SEAM_SWAP_INVALID] = { 400, "not_swappable" },
        [SEAM_SWAP_REFUSED] = { 400, "plugin_refused" },
        [SEAM_SWAP_BUSY] = { 409, "swap_under_way" },
        [SEAM_SWAP_NOT_NOW] = { 503, "not_ready" },
        [SEAM_SWAP_LATE] = { 409, "timeout" },
        [SEAM_SWAP_NO_MEMORY] = { 503, "no_memory" },
    };

    return seam_api_fail(e, as[r->why].status, as[r->why].code, NULL, "%s",
                         err->text);
}

static int admin_swap(struct seam_http *h, json_t *body,
                      struct seam_swap_report *r, struct seam_api_error *e)
{
    struct seam_engine *engine = seam_server_engine(h->s);
    struct seam_swap_opts o = { 0 };
    json_t *all = admin_entries(engine);
    struct seam_error err = { 0 };
    int rc;

    admin_drop_nulls(body, 2);
    rc = admin_take(body, all, o.role, e);
    if (!rc)
        rc = admin_options(body, &o, e);
    if (!rc)
        rc = admin_source(h, all, &o, e);
    json_decref(all);
    if (rc)
        return rc;
    return seam_engine_swap(engine, &o, r, &err) ? admin_fail(r, &err, e) : 0;
}

void seam_api_swap(struct seam_http *h)
{
    struct seam_engine *engine = seam_server_engine(h->s);
    struct seam_swap_report r;
    struct seam_api_error e;
    json_t *body =
        seam_request_json(h->body.p ? h->body.p : "", h->body.n, NULL, &e);
    int rc = body ? admin_swap(h, body, &r, &e) : -1;

    json_decref(body);
    if (rc) {
        seam_http_fail(h, &e);
        return;
    }
    seam_http_json(h, 200,
                   json_pack("{s:b, s:I, s:I, s:I, s:o}", "layout_changed",
                             r.layout_changed, "replayed",
                             (json_int_t)r.n_replayed, "prepare_ms",
                             (json_int_t)(r.prepare_ns / 1000000u), "pause_us",
                             (json_int_t)(r.pause_ns / 1000u), "plugins",
                             admin_plugins(engine)));
}
