#include "core/server/dispatch.h"

#include <civetweb.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "core/base/clock.h"
#include "core/server/http.h"
#include "core/server/id.h"
#include "core/server/routes.h"

enum {
    ROUTE_PUBLIC = 1,  /* no key needed                                       */
    ROUTE_METRICS = 2, /* no key needed if metrics are public                 */
    ROUTE_ADMIN = 4,   /* the admin key needed                                */
    ROUTE_READY = 8,   /* 503 unless work is taken                            */
    ROUTE_PREFIX = 16, /* path is what the request's path begins with         */
    ROUTE_ANTHROPIC = 32
};

struct route {
    const char *path;
    void (*get)(struct seam_http *h);  /* NULL: no such method                */
    void (*post)(struct seam_http *h); /* its body is read first              */
    uint32_t flags;
};

/* Every /v1/x also answers as /x; a prefix comes after what it would hide. */
/* clang-format off */
static const struct route ROUTES[] = {
    { "/health",              seam_api_health, NULL, ROUTE_PUBLIC },
    { "/livez",               seam_api_livez, NULL, ROUTE_PUBLIC },
    { "/readyz",              seam_api_readyz, NULL, ROUTE_PUBLIC },
    { "/ready",               seam_api_readyz, NULL, ROUTE_PUBLIC },
    { "/",                    seam_api_root, NULL, ROUTE_PUBLIC },
    { "/metrics",             seam_api_metrics, NULL, ROUTE_METRICS },
    { "/version",             seam_api_version, NULL, 0 },
    { "/load",                seam_api_load, NULL, 0 },
    { "/config",              seam_api_config, NULL, ROUTE_ADMIN },
    { "/admin/plugins",       seam_api_plugins, seam_api_swap,
                              ROUTE_ADMIN | ROUTE_READY },
    { "/models",              seam_api_models, NULL, ROUTE_READY },
    { "/models/",             seam_api_model, NULL,
                              ROUTE_READY | ROUTE_PREFIX },
    { "/chat/completions",    NULL, seam_api_chat, ROUTE_READY },
    { "/completions",         NULL, seam_api_completions, ROUTE_READY },
    { "/tokenize",            NULL, seam_api_tokenize, ROUTE_READY },
    { "/detokenize",          NULL, seam_api_detokenize, ROUTE_READY },
    { "/apply-template",      NULL, seam_api_template, ROUTE_READY },
    { "/responses",           NULL, seam_api_responses, ROUTE_READY },
    { "/responses/input_tokens", NULL, seam_api_input_tokens, ROUTE_READY },
    { "/responses/",          seam_api_response, seam_api_response,
                              ROUTE_PREFIX },
    { "/messages",            NULL, seam_api_messages,
                              ROUTE_READY | ROUTE_ANTHROPIC },
    { "/messages/count_tokens", NULL, seam_api_count_tokens,
                              ROUTE_READY | ROUTE_ANTHROPIC },
};
/* clang-format on */

#define N_ROUTES (sizeof ROUTES / sizeof *ROUTES)
_Static_assert(N_ROUTES < SEAM_N_ROUTES, "SEAM_N_ROUTES");

static const int CODES[SEAM_N_CODES] = { 200, 204, 400, 401, 403, 404, 405,
                                         408, 409, 413, 415, 417, 429, 431,
                                         499, 500, 501, 503, 504, 505 };

const char *seam_route_label(uint32_t route)
{
    return route < N_ROUTES ? ROUTES[route].path : "other";
}

int seam_code_of(uint32_t column)
{
    return CODES[column];
}

/* ---- The request --------------------------------------------------------- */

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Decode the path; false when it is too long or holds a bad escape or NUL. */
static bool dispatch_path(const char *raw, char *out, size_t cap)
{
    size_t n = 0;

    for (; *raw; raw++) {
        char c = *raw;

        if (n + 1 >= cap)
            return false;
        if (c == '%') {
            int hi = hex_digit(raw[1]);
            int lo = hi < 0 ? -1 : hex_digit(raw[2]);

            if (lo < 0 || !(hi | lo))
                return false;
            c = (char)(hi << 4 | lo);
            raw += 2;
        }
        out[n++] = c;
    }
    if (n > 1 && out[n - 1] == '/')
        n--;
    out[n] = 0;
    return true;
}

static const struct route *dispatch_route(const char *path)
{
    const char *rest = strncmp(path, "/v1/", 4) ? path : path + 3;

    for (size_t i = 0; i < N_ROUTES; i++) {
        const struct route *r = &ROUTES[i];
        size_t n = strlen(r->path);

        if (r->flags & ROUTE_PREFIX ? !strncmp(rest, r->path, n) && rest[n]
                                    : !strcmp(rest, r->path))
            return r;
    }
    return NULL;
}

static void dispatch_id(struct seam_http *h)
{
    char v[sizeof h->id];
    const char *given = seam_http_header(h, "X-Request-Id", v, 129);

    if (given && *given &&
        strspn(given, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                      "0123456789._:-") == strlen(given))
        snprintf(h->id, sizeof h->id, "%s", given);
    else
        seam_id_make(h->id, "req_");
}

/* ---- CORS ---------------------------------------------------------------- */

/* The value for Access-Control-Allow-Origin, or NULL. */
static const char *cors_allowed(const struct seam_http *h, const char *origin)
{
    const struct seam_strings *o = &h->s->config->server.cors_origins;

    for (size_t i = 0; i < o->n; i++)
        if (!strcmp(o->v[i], "*"))
            return "*";
        else if (origin && !strcmp(o->v[i], origin))
            return origin;
    return NULL;
}

static void dispatch_cors(struct seam_http *h)
{
    char v[512];
    const char *origin = seam_http_header(h, "Origin", v, sizeof v);
    const char *allowed = origin ? cors_allowed(h, origin) : NULL;

    if (!allowed)
        return;
    seam_http_add(h, "Access-Control-Allow-Origin", allowed);
    if (strcmp(allowed, "*"))
        seam_http_add(h, "Vary", "Origin");
    seam_http_add(h, "Access-Control-Expose-Headers",
                  "X-Request-Id, Retry-After, X-Seam-Ignored");
}

static void dispatch_options(struct seam_http *h)
{
    char v[1024];
    const char *want =
        seam_http_header(h, "Access-Control-Request-Headers", v, sizeof v);
    char origin[512];

    if (cors_allowed(h, seam_http_header(h, "Origin", origin, sizeof origin))) {
        bool plain = want && *want &&
                     strspn(want, "abcdefghijklmnopqrstuvwxyz"
                                  "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789-_, ") == strlen(want);

        seam_http_add(h, "Access-Control-Allow-Methods", "GET, POST, OPTIONS");
        seam_http_add(h, "Access-Control-Allow-Headers", plain ? want : "*");
        seam_http_add(h, "Access-Control-Max-Age", "600");
    } else {
        seam_http_add(h, "Allow", "GET, POST, OPTIONS");
    }
    seam_http_reply(h, 204, NULL, "", 0);
}

/* ---- Checks in order: key, path, method, readiness, body ----------------- */

static int dispatch_key(struct seam_http *h, const struct route *r,
                        struct seam_api_error *e)
{
    char auth[1024], key[1024];
    const char *a = seam_http_header(h, "Authorization", auth, sizeof auth);
    const char *k = seam_http_header(h, "X-Api-Key", key, sizeof key);

    if (r && r->flags & ROUTE_PUBLIC)
        return 0;
    if (r && r->flags & ROUTE_METRICS && h->s->metrics_public)
        return 0;
    if (r && r->flags & ROUTE_ADMIN) {
        if (!h->s->auth.has_admin)
            return seam_api_fail(e, 403, NULL, NULL,
                                 "this server has no admin "
                                 "key (server.admin_key)");
        return seam_auth_admin(&h->s->auth, a, k)
                   ? 0
                   : seam_api_fail(e, 401, "invalid_api_key", NULL,
                                   "the admin key is missing or wrong");
    }
    h->key = seam_auth_key(&h->s->auth, a, k);
    if (!h->s->auth.n_keys || h->key)
        return 0;
    return seam_api_fail(e, 401, "invalid_api_key", NULL,
                         "the API key is missing or wrong");
}

static int dispatch_content_type(struct seam_http *h, struct seam_api_error *e)
{
    char v[256];
    const char *type = seam_http_header(h, "Content-Type", v, sizeof v);
    size_t n = type ? strcspn(type, "; \t") : 0;

    if (!type || (n == 16 && !strncasecmp(type, "application/json", n)))
        return 0;
    return seam_api_fail(e, 415, "unsupported_media_type", NULL,
                         "the body must be JSON: send the header Content-Type: "
                         "application/json");
}

static int dispatch_ready(struct seam_http *h, const struct route *r,
                          struct seam_api_error *e)
{
    const char *why = r->flags & ROUTE_READY ? seam_server_unready(h->s) : NULL;

    if (!why)
        return 0;
    return seam_api_fail(e, 503, why, NULL, "the server takes no work now (%s)",
                         why);
}

static int dispatch_checks(struct seam_http *h, const struct route *r,
                           bool is_get, bool is_post, struct seam_api_error *e)
{
    if (dispatch_key(h, r, e))
        return -1;
    if (!r)
        return seam_api_fail(e, 404, "not_found", NULL,
                             "there is no such "
                             "route");
    if (!(is_get && r->get) && !(is_post && r->post)) {
        seam_http_add(h, "Allow",
                      r->get ? "GET, HEAD, OPTIONS" : "POST, OPTIONS");
        return seam_api_fail(e, 405, "method_not_allowed", NULL,
                             "this route does not know the method");
    }
    if (dispatch_ready(h, r, e))
        return -1;
    if (is_post && dispatch_content_type(h, e))
        return -1;
    return 0;
}

/* Run the handler of a route that generates or tokenises: at most
 * max_connections at once.  The administrator is let in on top of them. */
static void dispatch_post(struct seam_http *h, const struct route *r)
{
    struct seam_api_error e;

    if (!seam_conns_admit(h->s->conns, r->flags & ROUTE_ADMIN)) {
        h->close = true;
        seam_api_fail(&e, 503, "overloaded", NULL,
                      "too many requests are "
                      "being answered; try again later");
        seam_http_fail(h, &e);
        return;
    }
    r->post(h);
    seam_conns_leave(h->s->conns);
}

static void dispatch_run(struct seam_http *h, const struct route *r)
{
    bool is_get =
        !strcmp(h->method, "GET") || !strcmp(h->method, "HEAD") ||
        (!strcmp(h->method, "DELETE") && r && r->get == seam_api_response);
    bool is_post = !strcmp(h->method, "POST");
    struct seam_api_error e;

    if (!strcmp(h->method, "OPTIONS")) {
        dispatch_options(h);
        return;
    }
    if (dispatch_checks(h, r, is_get, is_post, &e) ||
        (is_post && seam_http_body(h, &e))) {
        seam_http_fail(h, &e);
        return;
    }
    if (is_post)
        dispatch_post(h, r);
    else
        r->get(h);
}

/* ---- The end of an exchange ---------------------------------------------- */

static void dispatch_count(struct seam_http *h, const struct route *r)
{
    size_t row = r ? (size_t)(r - ROUTES) : N_ROUTES;

    for (size_t i = 0; i < SEAM_N_CODES; i++)
        if (CODES[i] == h->status) {
            atomic_fetch_add(&h->s->answers[row][i], 1);
            return;
        }
}

static void dispatch_log(const struct seam_http *h, const struct route *r)
{
    uint64_t ms = (seam_now_ns() - h->began_ns) / 1000000u;
    /* Probes come many times a minute. */
    bool quiet =
        r && r->flags & (ROUTE_PUBLIC | ROUTE_METRICS) && h->status < 500;

    /* A path that is no route could hold anything. */
    seam_log(h->s->log, quiet ? SEAM_LOG_DEBUG : SEAM_LOG_INFO, "server",
             "%s: %s %s %d, %llu ms%s%s", h->id, h->method,
             r ? r->path : "(no route)", h->status, (unsigned long long)ms,
             h->note[0] ? ", " : "", h->note);
}

static int dispatch_end(struct seam_http *h, const struct route *r)
{
    int status = h->status ? h->status : 500;

    dispatch_count(h, r);
    dispatch_log(h, r);
    if (h->close || h->broken || !h->status) {
        mg_disable_connection_keep_alive(h->mg);
        if (h->broken)
            seam_conn_abort(h->c);
        else
            seam_conn_linger(h->s->conns, h->c);
    } else {
        seam_conn_enter(h->s->conns, h->c, SEAM_CONN_IDLE, 0);
    }
    seam_buf_release(&h->body);
    seam_buf_release(&h->extra);
    return status;
}

static int dispatch_begin(struct seam_http *h, struct mg_connection *mg)
{
    h->mg = mg;
    h->ri = mg_get_request_info(mg);
    h->s = mg_get_user_context_data(mg);
    h->c = mg_get_user_connection_data(mg);
    h->api = SEAM_API_OPENAI;
    h->began_ns = seam_now_ns();
    return h->c ? 0 : -1;
}

/* What cannot be taken for a request closes the connection. */
static int dispatch_refuse(struct seam_http *h, const struct seam_api_error *e)
{
    h->close = true;
    seam_http_fail(h, e);
    return dispatch_end(h, NULL);
}

/* While the server starts: note where the worker's buffer is. */
static int dispatch_prime(struct mg_connection *mg, struct seam_worker *w)
{
    static const char ok[] = "HTTP/1.1 204 No Content\r\n\r\n";

    w->base = mg_get_request_info(mg)->request_method;
    mg_write(mg, ok, sizeof ok - 1);
    return 204;
}

struct dispatch_job {
    struct seam_http *h;
    const struct route *r;
};

static void dispatch_job(void *arg)
{
    struct dispatch_job *job = arg;

    dispatch_run(job->h, job->r);
}

int seam_dispatch(struct mg_connection *mg)
{
    struct seam_worker *w = mg_get_thread_pointer(mg);
    struct seam_http h = { 0 };
    const struct route *r = NULL;
    struct seam_api_error e;
    char v[64];

    if (dispatch_begin(&h, mg) || !w) {
        mg_disable_connection_keep_alive(mg);
        return 503; /* no memory: the connection is closed */
    }
    if (!atomic_load(&h.s->primed))
        return dispatch_prime(mg, w);
    snprintf(h.method, sizeof h.method, "%s", h.ri->request_method);
    seam_id_make(h.id, "req_");
    if (!seam_conn_identify(h.s->conns, h.c, mg)) {
        seam_api_fail(&e, 503, "overloaded", NULL, "try again");
        return dispatch_refuse(&h, &e);
    }
    seam_conn_enter(h.s->conns, h.c, SEAM_CONN_BUSY, 0);
    h.close = seam_conn_given_up(h.c);
    if (seam_frame_check(h.ri, w->base, &h.frame, &e))
        return dispatch_refuse(&h, &e);
    dispatch_id(&h);
    dispatch_cors(&h);
    if (!dispatch_path(h.ri->local_uri_raw, h.path, sizeof h.path)) {
        seam_api_fail(&e, 404, "not_found", NULL, "there is no such route");
        seam_http_fail(&h, &e);
        return dispatch_end(&h, NULL);
    }
    r = dispatch_route(h.path);
    if ((r && r->flags & ROUTE_ANTHROPIC) ||
        seam_http_header(&h, "anthropic-version", v, sizeof v)) {
        h.api = SEAM_API_ANTHROPIC;
        seam_http_add(&h, "Request-Id", h.id); /* where its clients look */
    }
    seam_stack_run(w->stack, dispatch_job, &(struct dispatch_job){ &h, r });
    return dispatch_end(&h, r);
}

/* CivetWeb could not read the head; it closes the connection itself. */
int seam_dispatch_error(struct mg_connection *mg, int status, const char *text)
{
    struct seam_http h = { 0 };
    struct seam_api_error e;
    uint64_t waited;

    (void)text;
    if (dispatch_begin(&h, mg))
        return 0;
    waited = (h.began_ns - h.c->since_ns) / 1000000u;
    seam_conn_identify(h.s->conns, h.c, mg);
    seam_conn_enter(h.s->conns, h.c, SEAM_CONN_BUSY, 0);
    seam_id_make(h.id, "req_");
    snprintf(h.method, sizeof h.method, "?");
    if (status == 413)
        seam_api_fail(&e, 431, "headers_too_large", NULL,
                      "the request head is longer than %d bytes",
                      SEAM_HEAD_MAX);
    else if (status == 505)
        seam_api_fail(&e, 505, "http_version", NULL,
                      "the HTTP version must be "
                      "1.0 or 1.1");
    else if (seam_conn_given_up(h.c))
        seam_api_fail(&e, 408, "request_timeout", NULL,
                      "the rest of the request head did not come while others "
                      "waited for the connection");
    else if (waited >= (uint64_t)h.s->config->server.body_timeout_ms)
        seam_api_fail(&e, 408, "request_timeout", NULL,
                      "the request head did not arrive in time");
    else
        seam_api_fail(&e, 400, "invalid_framing", NULL,
                      "the request head is malformed");
    dispatch_refuse(&h, &e);
    return 0;
}
