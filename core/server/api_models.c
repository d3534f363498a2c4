/* GET /v1/models, /version and /. */
#include <stdio.h>
#include <string.h>

#include "core/server/answer.h"
#include "core/server/routes.h"

static json_t *model_json(const struct seam_http *h, const char *id)
{
    return json_pack(
        "{s:s, s:s, s:I, s:s, s:s, s:n, s:I}", "id", id, "object", "model",
        "created", (json_int_t)h->s->started, "owned_by", "seam", "root",
        seam_server_model(h->s), "parent", "max_model_len",
        (json_int_t)seam_engine_max_context(seam_server_engine(h->s)));
}

static json_t *model_anthropic(const struct seam_http *h, const char *id)
{
    char when[40];
    struct tm tm;

    gmtime_r(&h->s->started, &tm);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &tm);
    return json_pack("{s:s, s:s, s:s, s:s}", "type", "model", "id", id,
                     "display_name", id, "created_at", when);
}

static json_t *model_any(const struct seam_http *h, const char *id)
{
    return h->api == SEAM_API_ANTHROPIC ? model_anthropic(h, id)
                                        : model_json(h, id);
}

void seam_api_models(struct seam_http *h)
{
    const struct seam_strings *alias = &h->s->config->model.aliases;
    const char *name = seam_server_model(h->s);
    json_t *list = json_array();

    json_array_append_new(list, model_any(h, name));
    for (size_t i = 0; i < alias->n; i++)
        json_array_append_new(list, model_any(h, alias->v[i]));
    if (h->api == SEAM_API_ANTHROPIC)
        seam_http_json(h, 200,
                       json_pack("{s:o, s:b, s:s, s:s}", "data", list,
                                 "has_more", 0, "first_id", name, "last_id",
                                 alias->n ? alias->v[alias->n - 1] : name));
    else
        seam_http_json(h, 200,
                       json_pack("{s:s, s:o}", "object", "list", "data", list));
}

void seam_api_model(struct seam_http *h)
{
    const char *id = strstr(h->path, "models/") + strlen("models/");
    const struct seam_strings *alias = &h->s->config->model.aliases;
    struct seam_api_error e;
    bool known = !strcmp(id, seam_server_model(h->s));

    for (size_t i = 0; i < alias->n; i++)
        known |= !strcmp(id, alias->v[i]);
    if (known) {
        seam_http_json(h, 200, model_any(h, id));
        return;
    }
    seam_api_fail(&e, 404, "model_not_found", "model",
                  "there is no model of this name");
    seam_http_fail(h, &e);
}

void seam_api_version(struct seam_http *h)
{
    seam_http_json(h, 200, json_pack("{s:s}", "version", SEAM_VERSION));
}

void seam_api_root(struct seam_http *h)
{
    seam_http_json(
        h, 200,
        json_pack("{s:s, s:s}", "name", "seam", "version", SEAM_VERSION));
}

void seam_api_load(struct seam_http *h)
{
    struct seam_engine *e = seam_server_engine(h->s);

    seam_http_json(h, 200,
                   json_pack("{s:I}", "server_load",
                             (json_int_t)(e ? seam_engine_active(e) : 0)));
}
