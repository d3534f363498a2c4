/* Health routes (docs/api.md, "Health").  Nothing here waits for a step. */
#include <string.h>

#include "core/server/routes.h"

static void health_unavailable(struct seam_http *h, const char *why)
{
    struct seam_api_error e;

    seam_api_fail(&e, 503, why, NULL, "%s",
                  !strcmp(why, "loading")    ? "the model is loading"
                  : !strcmp(why, "stalled")  ? "the engine makes no progress"
                  : !strcmp(why, "draining") ? "the server is shutting down"
                                             : "the engine has failed");
    seam_http_fail(h, &e);
}

void seam_api_health(struct seam_http *h)
{
    const char *why = seam_server_unready(h->s);

    if (why && strcmp(why, "draining"))
        health_unavailable(h, why);
    else
        seam_http_json(h, 200, json_pack("{s:s}", "status", "ok"));
}

void seam_api_livez(struct seam_http *h)
{
    const char *why = seam_server_unready(h->s);

    if (why && strcmp(why, "draining") && strcmp(why, "loading"))
        health_unavailable(h, why);
    else
        seam_http_json(h, 200, json_pack("{s:s}", "status", "ok"));
}

void seam_api_readyz(struct seam_http *h)
{
    const char *why = seam_server_unready(h->s);

    if (why)
        seam_http_add(h, "Retry-After", "1");
    seam_http_json(h, why ? 503 : 200,
                   json_pack("{s:s}", "status", why ? why : "ok"));
}
