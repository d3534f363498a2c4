/* EX-3, CF-2 and what operators rely on: health, sockets, keys, CORS. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/http/collect.h"
#include "tests/http/fixture.h"

#define CHAT "/v1/chat/completions"

static int status_of(struct fixture *f, const char *path)
{
    struct reply r;
    int status;

    client_get(f->url, path, &r);
    status = r.status;
    reply_release(&r);
    fixture_take_log(f);
    return status;
}

/* "ok", "loading", ... as /readyz says. */
static void expect_ready(struct fixture *f, int status, const char *word)
{
    struct reply r;

    client_get(f->url, "/readyz", &r);
    cr_expect_eq(r.status, status, "%s", r.body.p);
    cr_expect_str_eq(json_string_value(reply_at(&r, "status", NULL)), word);
    reply_release(&r);
}

Test(ex3, says_that_it_is_loading)
{
    static const char *const paths[] = { "/v1/models", "/models/x" };
    struct fixture f;
    struct reply r;
    char v[32], body[256];

    fixture_init(&f);
    fixture_text(&f, "</think>ok\1");
    fixture_bind(&f, NULL, 0, NULL);
    cr_expect_eq(status_of(&f, "/livez"), 200);
    cr_expect_eq(status_of(&f, "/metrics"), 200);
    expect_ready(&f, 503, "loading");
    client_get(f.url, "/health", &r);
    cr_expect_eq(r.status, 503);
    cr_expect_str_eq(json_string_value(reply_at(&r, "error", "code", NULL)),
                     "loading");
    reply_release(&r);
    for (int i = 0; i < 2; i++) {
        client_get(f.url, paths[i], &r);
        cr_expect_eq(r.status, 503);
        cr_expect_not_null(reply_header(&r, "Retry-After", v, sizeof v));
        reply_release(&r);
    }
    client_post(f.url, CHAT, ask(body, sizeof body, 1, NULL), &r);
    cr_expect_eq(r.status, 503);
    reply_release(&r);
    fixture_start(&f);
    expect_ready(&f, 200, "ok");
    fixture_alive(&f, 1, "ok");
    fixture_close(&f);
}

/* (a): a step that hangs is noticed, and so is that it goes on. */
Test(ex3, notices_a_step_that_hangs)
{
    static const struct seam_flag flags[] = {
        { "server.stall_timeout_ms", "1000" },
    };
    char where[96];
    struct fixture f;
    struct client c;
    struct reply r;
    char body[256];
    int status;

    fixture_init(&f);
    fixture_text(&f, "</think>ok\1");
    fixture_gate_steps(&f);
    fixture_bind(&f, flags, 1, NULL);
    fixture_start(&f);
    cr_expect_eq(status_of(&f, "/health"), 200); /* idle is not stalled */
    client_open(&c, f.url);
    client_put_post(&c, CHAT, ask(body, sizeof body, 1, NULL));
    do /* bounded by the test's own limit */
        status = status_of(&f, "/health");
    while (status == 200);
    cr_expect_eq(status, 503);
    cr_expect_eq(status_of(&f, "/livez"), 503);
    expect_ready(&f, 503, "stalled");
    seam_engine_where(f.engine, where, sizeof where);
    cr_expect_str_eq(where, "plugin script, layer 0");
    client_post(f.url, CHAT, body, &r);
    cr_expect_eq(r.status, 503);
    reply_release(&r);
    fixture_open_gate(&f);
    cr_assert(client_reply(&c, &r));
    cr_expect_eq(r.status, 200);
    reply_release(&r);
    client_close(&c);
    while (status_of(&f, "/health") != 200) /* bounded as above */
        ;
    fixture_alive(&f, 1, "ok");
    fixture_close(&f);
}

/* (b) before and after the first byte of a stream. */
Test(ex3, one_failed_step_fails_its_requests_alone)
{
    static const int32_t fails[] = { TOK_UNTHINK, 'a', 'b', TOK_FAIL };
    static const int32_t nan[] = { TOK_UNTHINK, 'a', TOK_NAN };
    struct fixture f;
    struct answer a;
    struct reply r;
    char body[256], v[32];

    fixture_init(&f);
    fixture_script(&f, fails, 4);
    fixture_script(&f, nan, 3);
    fixture_text(&f, "</think>ok\1");
    fixture_bind(&f, NULL, 0, NULL);
    fixture_start(&f);
    for (unsigned seed = 1; seed <= 2; seed++) {
        client_post(f.url, CHAT, ask(body, sizeof body, seed, NULL), &r);
        cr_expect_eq(r.status, 500, "%s", r.body.p);
        cr_expect_str_eq(json_string_value(reply_at(&r, "error", "type", NULL)),
                         "server_error");
        cr_expect_str_eq(reply_header(&r, "x-should-retry", v, sizeof v),
                         "false");
        reply_release(&r);
        fixture_alive(&f, 3, "ok");
        answer_stream(f.url, body, &a);
        cr_expect_str_eq(a.content.p, seed == 1 ? "ab" : "a");
        cr_expect_str_eq(a.error, "-");
        cr_expect(a.done, "no [DONE] after the error");
        cr_expect_str_empty(a.finish);
        answer_release(&a);
        fixture_alive(&f, 3, "ok");
    }
    fixture_close(&f);
}

/* (c) */
Test(ex3, a_lost_device_is_no_health)
{
    static const int32_t lost[] = { TOK_UNTHINK, 'a', TOK_LOST };
    struct fixture f;
    struct answer a;
    struct client c;
    struct reply r;
    char body[256];

    fixture_init(&f);
    fixture_script(&f, lost, 3);
    fixture_text(&f, "</think>ok\1");
    fixture_gate_tokens(&f);
    {
        static const struct seam_flag one[] = { { "engine.max_seqs", "1" } };

        fixture_bind(&f, one, 1, NULL);
    }
    fixture_start(&f);
    client_open(&c, f.url);
    client_put_post(&c, CHAT, ask(body, sizeof body, 1, "\"stream\":true"));
    client_stream(&c, &r);
    reply_release(&r);
    {
        struct client waiting;

        client_open(&waiting, f.url);
        client_put_post(&waiting, CHAT,
                        ask(body, sizeof body, 2, "\"stream\":true"));
        client_stream(&waiting, &r);
        reply_release(&r);
        fixture_open_gate(&f);
        /* Who waits gets an error, not silence. */
        while (client_more(&waiting))
            ;
        cr_expect_not_null(strstr(waiting.in.p, "\"error\""));
        cr_expect_not_null(strstr(waiting.in.p, "data: [DONE]\n\n"));
        client_close(&waiting);
    }
    cr_expect_eq(status_of(&f, "/health"), 503);
    cr_expect_eq(status_of(&f, "/livez"), 503);
    expect_ready(&f, 503, "failed");
    client_close(&c);
    (void)a;
    fixture_close(&f);
}

/* (d): chunks that each take a while, together longer than the limit. */
Test(ex3, slow_progress_is_health)
{
    static const struct seam_flag flags[] = {
        { "server.stall_timeout_ms", "3000" },
        { "engine.max_step_tokens", "16" },
    };
    struct fixture f;
    struct client c;
    struct reply r;
    struct seam_buf b = { 0 };

    fixture_init(&f);
    fixture_text(&f, "ok\1");
    fixture_use_trace(&f);
    fixture_bind(&f, flags, 2, ",\"delay_ms\":150");
    fixture_start(&f);
    seam_buf_str(&b, "{\"seed\":1,\"prompt\":\"");
    for (int i = 0; i < 400; i++)
        seam_buf_str(&b, "x");
    seam_buf_str(&b, "\"}");
    client_open(&c, f.url);
    client_put_post(&c, "/v1/completions", b.p);
    for (unsigned step = 1; step <= 25; step++) {
        fixture_wait_trace(&f, "step", step);
        cr_expect_eq(status_of(&f, "/health"), 200);
    }
    cr_assert(client_reply(&c, &r));
    cr_expect_eq(r.status, 200);
    reply_release(&r);
    client_close(&c);
    seam_buf_release(&b);
    fixture_close(&f);
}

Test(health, draining_finishes_what_runs_and_takes_nothing_new)
{
    struct fixture f;
    struct client c;
    struct reply r;
    char body[256];

    fixture_init(&f);
    fixture_text(&f, "</think>ok\1");
    fixture_gate_tokens(&f);
    fixture_bind(&f, NULL, 0, NULL);
    fixture_start(&f);
    client_open(&c, f.url);
    client_put_post(&c, CHAT, ask(body, sizeof body, 1, "\"stream\":true"));
    client_stream(&c, &r);
    reply_release(&r);
    seam_server_drain(f.server);
    expect_ready(&f, 503, "draining");
    cr_expect_eq(status_of(&f, "/health"), 200);
    cr_expect_eq(status_of(&f, "/livez"), 200);
    client_post(f.url, CHAT, body, &r);
    cr_expect_eq(r.status, 503);
    cr_expect_str_eq(json_string_value(reply_at(&r, "error", "code", NULL)),
                     "draining");
    reply_release(&r);
    cr_expect_eq(seam_server_active(f.server), 1);
    fixture_open_gate(&f);
    while (client_more(&c))
        ;
    cr_expect_not_null(strstr(c.in.p, "data: [DONE]\n\n"));
    client_close(&c);
    fixture_close(&f);
}

Test(health, stopping_cuts_streams)
{
    struct fixture f;
    struct client c;
    struct reply r;
    char body[256];

    fixture_init(&f);
    fixture_text(&f, "</think>ok\1");
    fixture_gate_tokens(&f);
    fixture_bind(&f, NULL, 0, NULL);
    fixture_start(&f);
    client_open(&c, f.url);
    client_put_post(&c, CHAT, ask(body, sizeof body, 1, "\"stream\":true"));
    client_stream(&c, &r);
    reply_release(&r);
    seam_server_stop(f.server); /* returns, although the engine never moved */
    f.server = NULL;
    while (client_more(&c))
        ;
    cr_expect_null(c.in.p ? strstr(c.in.p, "[DONE]") : NULL);
    client_close(&c);
    fixture_close(&f);
}

/* ---- CF-2 ---------------------------------------------------------------- */

static int bind_at(const char *listen, struct seam_error *err,
                   const char *extra_key, const char *extra)
{
    static char *no_env[] = { NULL };
    struct seam_flag flag[2] = { { "server.listen", listen },
                                 { extra_key, extra } };
    static const char text[] =
        "{\"model\":{\"path\":\"x\"},\"plugins\":{"
        "\"backend\":{\"name\":\"a\",\"unpinned\":true},"
        "\"linear_attention\":{\"name\":\"a\",\"unpinned\":true},"
        "\"sparse_attention\":{\"name\":\"a\",\"unpinned\":true},"
        "\"moe\":{\"name\":\"a\",\"unpinned\":true},"
        "\"parser\":{\"name\":\"a\",\"unpinned\":true}}}";
    struct seam_config c;
    struct seam_server *s;
    int rc = seam_config_parse(&c, "t.json", text, sizeof text - 1, no_env,
                               flag, extra_key ? 2 : 1, err);

    if (rc)
        return rc;
    rc = seam_server_bind(&s, &c, NULL, err);
    if (!rc)
        seam_server_stop(s);
    seam_config_release(&c);
    return rc;
}

/* Whether CivetWeb can serve it, and the system has it. */
static bool have_ipv6(void)
{
    struct seam_error err;

    return !bind_at("[::1]:0", &err, NULL, NULL);
}

Test(cf2, a_second_server_on_the_port_says_why_not)
{
    static const char *const pairs[][2] = {
        { "127.0.0.1", "127.0.0.1" }, { "0.0.0.0", "127.0.0.1" },
        { "127.0.0.1", "0.0.0.0" },   { "[::1]", "[::1]" },
        { "[::]", "[::1]" },          { "[::1]", "[::]" },
    };
    size_t n = have_ipv6() ? 6 : 3;

    for (size_t i = 0; i < n; i++) {
        struct seam_flag flags[2] = { { "server.listen", NULL },
                                      { "server.insecure", "true" } };
        struct fixture f;
        struct seam_error err = { 0 };
        char at[64];

        fixture_init(&f);
        snprintf(at, sizeof at, "%s:0", pairs[i][0]);
        flags[0].value = at;
        fixture_bind(&f, flags, 2, NULL);
        snprintf(at, sizeof at, "%s%s", pairs[i][1], strrchr(f.url, ':'));
        cr_expect_eq(bind_at(at, &err, "server.insecure", "true"), SEAM_EDEVICE,
                     "%s then %s", pairs[i][0], pairs[i][1]);
        cr_expect_not_null(strstr(err.text, at), "%s", err.text);
        cr_expect_not_null(strstr(err.text, "in use"), "%s", err.text);
        fixture_close(&f);
    }
}

static int restart(struct seam_error *err)
{
    struct fixture f;
    struct client c;
    struct reply r;
    char at[64];

    fixture_init(&f);
    fixture_bind(&f, NULL, 0, NULL);
    snprintf(at, sizeof at, "127.0.0.1%s", strrchr(f.url, ':'));
    /* The server closes first: its end stays in TIME_WAIT. */
    client_open(&c, f.url);
    client_puts(&c, "GET /livez HTTP/1.1\r\nHost: t\r\nConnection: close\r\n"
                    "\r\n");
    cr_assert(client_reply(&c, &r));
    cr_expect(client_closed(&c));
    reply_release(&r);
    client_close(&c);
    fixture_close(&f);
    return bind_at(at, err, NULL, NULL);
}

Test(cf2, a_restart_finds_its_port_free)
{
    struct seam_error err = { 0 };
    int rc = -1;

    /* Somebody else may take the port in between, but not each time. */
    for (int i = 0; i < 4 && rc; i++)
        rc = restart(&err);
    cr_expect_eq(rc, 0, "%s", err.text);
}

Test(cf2, names_the_port_that_0_became)
{
    struct fixture f;
    int port;

    fixture_init(&f);
    fixture_bind(&f, NULL, 0, NULL);
    cr_assert_eq(sscanf(f.url, "http://127.0.0.1:%d", &port), 1);
    cr_expect_gt(port, 0);
    fixture_close(&f);
}

Test(cf2, refuses_what_is_no_address)
{
    static const char *const bad[] = {
        "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:",
        "127.0.0.1",       ":80",          "1.2.3:80",
        "[::1:80",         "nowhere:80",   "127.0.0.1:8080s",
        "[::g]:80"
    };
    struct seam_error err = { 0 };

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cr_expect_neq(bind_at(bad[i], &err, NULL, NULL), 0, "%s", bad[i]);
        cr_expect_not_null(strstr(err.text, "listen"), "%s: %s", bad[i],
                           err.text);
    }
}

Test(cf2, refuses_the_world_without_a_key)
{
    struct seam_error err = { 0 };

    cr_expect_eq(bind_at("0.0.0.0:0", &err, NULL, NULL), SEAM_ENOTSUP);
    cr_expect_not_null(strstr(err.text, "insecure"), "%s", err.text);
    cr_expect_eq(bind_at("0.0.0.0:0", &err, "server.insecure", "true"), 0);
    cr_expect_eq(bind_at("0.0.0.0:0", &err, "server.api_keys", "[\"k\"]"), 0,
                 "%s", err.text);
    cr_expect_eq(bind_at("127.0.0.2:0", &err, NULL, NULL), 0, "%s", err.text);
}

Test(cf2, serves_ipv6_or_says_why_not)
{
    static const struct seam_flag flags[] = { { "server.listen", "[::1]:0" } };
    struct fixture f;
    struct seam_error err = { 0 };

    if (!have_ipv6()) {
        cr_expect_neq(bind_at("[::1]:0", &err, NULL, NULL), 0);
        cr_expect_not_null(strstr(err.text, "[::1]:0"), "%s", err.text);
        cr_expect(strstr(err.text, "without IPv6") ||
                      strstr(err.text, "cannot listen"),
                  "%s", err.text);
        return;
    }
    fixture_init(&f);
    fixture_text(&f, "</think>ok\1");
    fixture_bind(&f, flags, 1, NULL);
    fixture_start(&f);
    fixture_alive(&f, 1, "ok");
    fixture_close(&f);
}

/* ---- Keys, CORS, ids ----------------------------------------------------- */

static int with_head(struct fixture *f, const char *method, const char *path,
                     const char *head, struct reply *r)
{
    struct client c;
    struct seam_buf b = { 0 };

    client_open(&c, f->url);
    seam_buf_fmt(&b, "%s %s HTTP/1.1\r\nHost: t\r\n%s\r\n", method, path, head);
    client_puts(&c, b.p);
    cr_assert(client_reply(&c, r));
    seam_buf_release(&b);
    client_close(&c);
    return r->status;
}

static int head_status(struct fixture *f, const char *path, const char *head)
{
    struct reply r;
    int status = with_head(f, "GET", path, head, &r);

    if (status == 401) {
        char v[32];

        cr_expect_str_eq(
            json_string_value(reply_at(&r, "error", "message", NULL)),
            strstr(path, "config") ? "the admin key is missing or wrong"
                                   : "the API key is missing or wrong");
        cr_expect_str_eq(reply_header(&r, "WWW-Authenticate", v, sizeof v),
                         "Bearer");
    }
    reply_release(&r);
    return status;
}

Test(keys, guard_all_but_the_public_routes)
{
    static const struct seam_flag flags[] = {
        { "server.api_keys", "[\"k-one\",\"k-two\"]" },
        { "server.admin_key", "boss" },
        { "server.metrics_public", "no" },
    };
    static const char *const open[] = { "/health", "/v1/health", "/livez",
                                        "/readyz", "/ready",     "/" };
    static const char *const good[] = { "Authorization: Bearer k-one\r\n",
                                        "Authorization: bearer k-two\r\n",
                                        "X-Api-Key: k-one\r\n",
                                        "Authorization: Bearer k-one  \r\n" };
    static const char *const bad[] = { "",
                                       "Authorization: Bearer k-on\r\n",
                                       "Authorization: k-one\r\n",
                                       "Authorization: Bearer\r\n",
                                       "Authorization: Bearer  k-one\r\n",
                                       "Authorization: Basic k-one\r\n",
                                       "X-Api-Key: \r\n",
                                       "X-Api-Key: k-one2\r\n",
                                       "Authorization: Bearer boss\r\n",
                                       "Authorization: Bearer \xff\xfe\r\n" };
    struct fixture f;
    struct reply r;

    fixture_init(&f);
    fixture_text(&f, "</think>ok\1");
    fixture_bind(&f, flags, 3, NULL);
    fixture_start(&f);
    for (size_t i = 0; i < sizeof open / sizeof *open; i++)
        cr_expect_eq(head_status(&f, open[i], ""), 200, "%s", open[i]);
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        cr_expect_eq(head_status(&f, "/v1/models", good[i]), 200, "%s",
                     good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        cr_expect_eq(head_status(&f, "/v1/models", bad[i]), 401, "%s", bad[i]);
    cr_expect_eq(head_status(&f, "/metrics", ""), 401);
    cr_expect_eq(head_status(&f, "/metrics", good[0]), 200);
    /* Unknown paths do not tell who is there. */
    cr_expect_eq(head_status(&f, "/nothing", ""), 401);
    cr_expect_eq(head_status(&f, "/nothing", good[0]), 404);
    /* The admin key is apart. */
    cr_expect_eq(head_status(&f, "/v1/config", good[0]), 401);
    cr_expect_eq(with_head(&f, "GET", "/v1/config",
                           "Authorization: Bearer boss\r\n", &r),
                 200);
    cr_expect_not_null(strstr(r.body.p, "server.max_connections"));
    cr_expect_null(strstr(r.body.p, "k-one"));
    cr_expect_null(strstr(r.body.p, "boss"));
    reply_release(&r);
    fixture_close(&f);
}

Test(keys, without_an_admin_key_there_is_no_config)
{
    struct fixture f;

    fixture_open(&f, "</think>ok\1");
    cr_expect_eq(head_status(&f, "/v1/config", ""), 403);
    cr_expect_eq(head_status(&f, "/v1/models", ""), 200);
    fixture_close(&f);
}

Test(cors, is_off_unless_set)
{
    struct fixture f;
    struct reply r;
    char v[128];

    fixture_open(&f, "</think>ok\1");
    with_head(&f, "GET", "/v1/models", "Origin: http://a\r\n", &r);
    cr_expect_null(
        reply_header(&r, "Access-Control-Allow-Origin", v, sizeof v));
    reply_release(&r);
    cr_expect_eq(
        with_head(&f, "OPTIONS", "/v1/models", "Origin: http://a\r\n", &r),
        204);
    cr_expect_null(
        reply_header(&r, "Access-Control-Allow-Methods", v, sizeof v));
    reply_release(&r);
    fixture_close(&f);
}

Test(cors, answers_preflights_without_a_key)
{
    static const struct seam_flag flags[] = {
        { "server.cors_origins", "[\"http://a\"]" },
        { "server.api_keys", "[\"k\"]" },
    };
    struct fixture f;
    struct client c;
    struct reply r;
    char v[128], body[256];

    fixture_init(&f);
    fixture_text(&f, "</think>ok\1");
    fixture_bind(&f, flags, 2, NULL);
    fixture_start(&f);
    cr_expect_eq(with_head(&f, "OPTIONS", CHAT,
                           "Origin: http://a\r\n"
                           "Access-Control-Request-Headers: authorization, "
                           "x-y\r\n",
                           &r),
                 204);
    cr_expect_str_eq(
        reply_header(&r, "Access-Control-Allow-Origin", v, sizeof v),
        "http://a");
    cr_expect_str_eq(reply_header(&r, "Vary", v, sizeof v), "Origin");
    cr_expect_str_eq(
        reply_header(&r, "Access-Control-Allow-Headers", v, sizeof v),
        "authorization, x-y");
    reply_release(&r);
    with_head(&f, "OPTIONS", CHAT, "Origin: http://b\r\n", &r);
    cr_expect_null(
        reply_header(&r, "Access-Control-Allow-Origin", v, sizeof v));
    reply_release(&r);
    /* Errors and streams carry it too. */
    cr_expect_eq(with_head(&f, "GET", "/v1/models", "Origin: http://a\r\n", &r),
                 401);
    cr_expect_str_eq(
        reply_header(&r, "Access-Control-Allow-Origin", v, sizeof v),
        "http://a");
    reply_release(&r);
    client_open(&c, f.url);
    ask(body, sizeof body, 1, "\"stream\":true");
    {
        struct seam_buf b = { 0 };

        seam_buf_fmt(&b,
                     "POST " CHAT " HTTP/1.1\r\nHost: t\r\n"
                     "Origin: http://a\r\nX-Api-Key: k\r\n"
                     "Content-Length: %zu\r\n\r\n%s",
                     strlen(body), body);
        client_puts(&c, b.p);
        seam_buf_release(&b);
    }
    client_stream(&c, &r);
    cr_expect_str_eq(
        reply_header(&r, "Access-Control-Allow-Origin", v, sizeof v),
        "http://a");
    reply_release(&r);
    client_close(&c);
    fixture_close(&f);
}

Test(routes, know_methods_slashes_and_ids)
{
    struct fixture f;
    struct reply r;
    char v[256];

    fixture_open(&f, "</think>ok\1");
    cr_expect_eq(with_head(&f, "DELETE", "/v1/models", "", &r), 405);
    cr_expect_str_eq(reply_header(&r, "Allow", v, sizeof v),
                     "GET, HEAD, OPTIONS");
    reply_release(&r);
    cr_expect_eq(with_head(&f, "GET", CHAT, "", &r), 405);
    cr_expect_str_eq(reply_header(&r, "Allow", v, sizeof v), "POST, OPTIONS");
    reply_release(&r);
    cr_expect_eq(head_status(&f, "/v1/models/", ""), 200);
    cr_expect_eq(head_status(&f, "/models?a=b", ""), 200);
    cr_expect_eq(head_status(&f, "/v1/%6dodels", ""), 200);
    cr_expect_eq(head_status(&f, "/v1/../v1/models", ""), 404);
    cr_expect_eq(head_status(&f, "/v1/models%00", ""), 404);
    cr_expect_eq(head_status(&f, "/v2/models", ""), 404);
    cr_expect_eq(head_status(&f, "/etc/passwd", ""), 404);
    with_head(&f, "GET", "/nothing", "X-Request-Id: abc.DEF:1_2-3\r\n", &r);
    cr_expect_str_eq(reply_header(&r, "X-Request-Id", v, sizeof v),
                     "abc.DEF:1_2-3");
    reply_release(&r);
    with_head(&f, "GET", "/v1/models", "X-Request-Id: a b\r\n", &r);
    cr_expect_eq(
        strncmp(reply_header(&r, "X-Request-Id", v, sizeof v), "req_", 4), 0);
    reply_release(&r);
    fixture_close(&f);
}

static void expect_lines(const struct reply *r, const char *const *wanted,
                         size_t n)
{
    for (size_t i = 0; i < n; i++)
        cr_expect_not_null(strstr(r->body.p, wanted[i]), "%s in %s", wanted[i],
                           r->body.p);
}

Test(metrics, are_prometheus_text)
{
    static const char *const idle[] = {
        "vllm:num_requests_running{model_name=\"scripted\",engine=\"0\"} 0\n",
        "vllm:num_requests_waiting{model_name=\"scripted\",engine=\"0\"} 0\n",
        "vllm:kv_cache_usage_perc{model_name=\"scripted\",engine=\"0\"} 0\n",
    };
    static const char *const wanted[] = {
        "vllm:cache_config_info{",
        "seam_http_requests_total{route=\"/chat/"
        "completions\",code=\"200\"} 1\n",
        "vllm:request_success_total{model_name=\"scripted\",engine=\"0\","
        "finished_reason=\"stop\"} 1\n",
        "process_resident_memory_bytes ",
        "process_open_fds ",
        "seam_plugin_glm47_unknown_calls_total{model_name=\"scripted\","
        "engine=\"0\"} 0\n",
        "seam_plugin_glm47_repaired_calls_total{",
        /* of 3 tokens, 2 intervals */
        "vllm:request_inference_time_seconds_count{model_name=\"scripted\","
        "engine=\"0\"} 1\n",
        "vllm:request_time_per_output_token_seconds_count{model_name="
        "\"scripted\",engine=\"0\"} 1\n",
        "vllm:request_max_num_generation_tokens_sum{model_name=\"scripted\","
        "engine=\"0\"} 4\n",
        "vllm:request_params_max_tokens_count{model_name=\"scripted\","
        "engine=\"0\"} 1\n",
        "vllm:request_params_n_sum{model_name=\"scripted\",engine=\"0\"} 1\n",
    };
    struct fixture f;
    struct reply r;
    char v[64];

    fixture_open(&f, "</think>ok\1");
    client_get(f.url, "/metrics", &r);
    cr_expect_str_eq(reply_header(&r, "Content-Type", v, sizeof v),
                     "text/plain; version=0.0.4; charset=utf-8");
    expect_lines(&r, idle, sizeof idle / sizeof *idle);
    reply_release(&r);
    fixture_alive(&f, 1, "ok");
    fixture_wait_log(&f, "POST /chat/completions 200"); /* counted */
    client_get(f.url, "/metrics", &r);
    expect_lines(&r, wanted, sizeof wanted / sizeof *wanted);
    /* One HELP and one TYPE for each name, before its samples. */
    for (const char *p = r.body.p; (p = strstr(p, "# TYPE ")); p++) {
        char name[128], line[160];

        cr_assert_eq(sscanf(p, "# TYPE %127s", name), 1);
        snprintf(line, sizeof line, "# TYPE %s ", name);
        cr_expect_eq(strstr(r.body.p, line), p, "%s twice", name);
        cr_expect_null(strstr(p + 1, line), "%s twice", name);
    }
    reply_release(&r);
    fixture_close(&f);
}
