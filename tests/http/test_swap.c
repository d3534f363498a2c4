/* Plugins replaced through the server: who may, what is said, and that streams
 * do not notice. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "tests/http/collect.h"
#include "tests/http/fixture.h"

/* Builds for debugging and sanitizers do fewer of the same. */
#ifdef SEAM_TEST_QUICK
#define N_SWAPS   20
#define N_STREAMS 8
#elif defined(__OPTIMIZE__)
#define N_SWAPS   1000
#define N_STREAMS 32
#else
#define N_SWAPS   60
#define N_STREAMS 32
#endif

#define KEY "let-me-in"

static const struct seam_flag with_key[] = { { "server.admin_key", KEY } };

static void admin(const char *url, const char *method, const char *path,
                  const char *key, const char *body, struct reply *r)
{
    struct seam_buf b = { 0 };
    struct client c;

    seam_buf_fmt(&b,
                 "%s %s HTTP/1.1\r\nHost: test\r\nX-Api-Key: %s\r\n"
                 "Content-Type: application/json\r\nContent-Length: %zu\r\n"
                 "\r\n%s",
                 method, path, key, body ? strlen(body) : 0, body ? body : "");
    client_open(&c, url);
    client_send(&c, b.p, b.n);
    cr_assert(client_reply(&c, r), "no answer to %s", path);
    client_close(&c);
    seam_buf_release(&b);
}

static void swap(const char *url, const char *body, int status,
                 const char *code, const char *text)
{
    struct reply r;
    const char *got;

    admin(url, "POST", "/admin/plugins", KEY, body, &r);
    cr_assert_eq(r.status, status, "%s: %d, %s", body, r.status, r.body.p);
    if (code) {
        got = json_string_value(reply_at(&r, "error", "code", NULL));
        cr_expect_str_eq(got ? got : "", code, "%s: %s", body, r.body.p);
    }
    if (text)
        cr_expect_not_null(strstr(r.body.p, text), "no \"%s\" in %s", text,
                           r.body.p);
    reply_release(&r);
}

#define PARSER(name) \
    "{\"role\":\"parser\",\"name\":\"" name "\",\"unpinned\":true}"

Test(swap, needs_the_admin_key)
{
    struct fixture f;
    struct reply r;

    fixture_init(&f);
    fixture_text(&f, "plan</think>Hello!\1");
    fixture_bind(&f, with_key, 1, NULL);
    fixture_start(&f);
    client_post(f.url, "/admin/plugins", PARSER("glm47_ref"), &r);
    cr_expect_eq(r.status, 401);
    reply_release(&r);
    admin(f.url, "GET", "/admin/plugins", "guess", NULL, &r);
    cr_expect_eq(r.status, 401);
    reply_release(&r);
    fixture_alive(&f, 1, "Hello!");
    fixture_close(&f);

    fixture_open(&f, "plan</think>Hello!\1");
    client_post(f.url, "/admin/plugins", PARSER("glm47_ref"), &r);
    cr_expect_eq(r.status, 403);
    reply_release(&r);
    fixture_close(&f);
}

/* The row of a setting in GET /v1/config. */
static void expect_setting(const char *url, const char *key, const char *value,
                           const char *origin)
{
    struct reply r;
    json_t *row;
    size_t i;
    bool found = false;

    admin(url, "GET", "/v1/config", KEY, NULL, &r);
    json_array_foreach(reply_at(&r, "settings", NULL), i, row)
    {
        if (strcmp(json_string_value(json_object_get(row, "key")), key) != 0)
            continue;
        found = true;
        cr_expect_str_eq(json_string_value(json_object_get(row, "value")),
                         value);
        cr_expect_str_eq(json_string_value(json_object_get(row, "origin")),
                         origin);
    }
    cr_expect(found, "%s is not in %s", key, r.body.p);
    reply_release(&r);
}

Test(swap, is_shown_in_the_list_the_settings_and_the_metrics)
{
    struct fixture f;
    struct reply r;

    fixture_init(&f);
    fixture_text(&f, "plan</think>Hello!\1");
    fixture_bind(&f, with_key, 1, NULL);
    fixture_start(&f);
    swap(f.url, PARSER("glm47_ref"), 200, NULL, "\"pause_us\"");
    admin(f.url, "GET", "/admin/plugins", KEY, NULL, &r);
    cr_expect_eq(r.status, 200);
    cr_expect_str_eq(
        json_string_value(reply_at(&r, "plugins", "4", "name", NULL)),
        "glm47_ref");
    cr_expect_str_eq(
        json_string_value(reply_at(&r, "plugins", "4", "origin", NULL)),
        "admin");
    cr_expect_eq(
        json_integer_value(reply_at(&r, "plugins", "4", "swaps", NULL)), 1);
    cr_expect_eq(
        strlen(json_string_value(reply_at(&r, "plugins", "4", "sha256", NULL))),
        64);
    cr_expect_str_eq(
        json_string_value(reply_at(&r, "plugins", "1", "origin", NULL)),
        "start");
    reply_release(&r);
    expect_setting(f.url, "plugins.parser.name", "glm47_ref", "admin");
    expect_setting(f.url, "plugins.moe.name", "null_moe", "file test.json:1");
    swap(f.url, PARSER("glm48"), 400, "plugin_refused", "glm48.so");
    client_get(f.url, "/metrics", &r);
    cr_expect_not_null(strstr(r.body.p, "seam_plugin_swaps_total{role="
                                        "\"parser\",result=\"ok\"} 1\n"));
    cr_expect_not_null(strstr(r.body.p, "seam_plugin_swaps_total{role="
                                        "\"parser\",result=\"refused\"} 1\n"));
    reply_release(&r);
    fixture_alive(&f, 1, "Hello!");
    fixture_close(&f);
}

Test(swap, refuses_requests_that_make_no_sense)
{
    struct fixture f;

    fixture_init(&f);
    fixture_text(&f, "plan</think>Hello!\1");
    fixture_bind(&f, with_key, 1, NULL);
    fixture_start(&f);
    swap(f.url, "[]", 400, "invalid_json", NULL);
    swap(f.url, "{", 400, "invalid_json", NULL);
    swap(f.url, "{}", 400, "invalid_value", "role");
    swap(f.url, "{\"role\":\"writer\",\"name\":\"x\"}", 400, "invalid_value",
         "parser");
    swap(f.url, "{\"role\":\"parser\",\"plugins\":{}}", 400, "invalid_value",
         NULL);
    swap(f.url, "{\"plugins\":{}}", 400, "invalid_value", "plugins");
    swap(f.url, "{\"plugins\":{\"writer\":{}}}", 400, "invalid_value", NULL);
    swap(f.url, "{\"role\":\"parser\",\"name\":\"glm47\"}", 400,
         "invalid_value", "not pinned");
    swap(f.url, "{\"role\":\"parser\",\"nmae\":\"glm47\"}", 400,
         "invalid_value", "unknown field");
    swap(f.url,
         "{\"plugins\":{\"parser\":{\"nmae\":\"glm47\",\"unpinned\":true}}}",
         400, "invalid_value", "nmae");
    swap(f.url,
         "{\"role\":\"parser\",\"name\":\"glm47\",\"unpinned\":true,"
         "\"timeout_ms\":0}",
         400, "invalid_value", "timeout_ms");
    swap(f.url,
         "{\"role\":\"parser\",\"name\":\"glm47\",\"unpinned\":true,"
         "\"on_layout_change\":\"pray\"}",
         400, "invalid_value", "on_layout_change");
    swap(f.url,
         "{\"role\":\"parser\",\"name\":\"glm47\",\"sha256\":\"00000000000000"
         "00000000000000000000000000000000000000000000000000\"}",
         400, "plugin_refused", "sha256");
    swap(f.url, "{\"role\":\"backend\",\"name\":\"cpu\",\"unpinned\":true}",
         400, "not_swappable", "restart");
    fixture_alive(&f, 1, "Hello!");
    fixture_close(&f);
}

Test(swap, reads_null_as_absent_and_whole_numbers_however_written)
{
    static const char one[] =
        "{\"role\":\"parser\",\"name\":\"glm47_ref\",\"unpinned\":true,"
        "\"sha256\":null,\"plugins\":null,\"on_layout_change\":null,"
        "\"timeout_ms\":%s}";
    struct fixture f;
    char body[256];

    fixture_init(&f);
    fixture_text(&f, "plan</think>Hello!\1");
    fixture_bind(&f, with_key, 1, NULL);
    fixture_start(&f);
    snprintf(body, sizeof body, one, "null");
    swap(f.url, body, 200, NULL, "layout_changed");
    snprintf(body, sizeof body, one, "120000.0");
    swap(f.url, body, 200, NULL, "layout_changed");
    snprintf(body, sizeof body, one, "5.5");
    swap(f.url, body, 400, "invalid_value", "timeout_ms");
    swap(f.url,
         "{\"role\":null,\"plugins\":{\"parser\":{\"name\":\"glm47\","
         "\"file\":null,\"unpinned\":true,\"config\":null}}}",
         200, NULL, "layout_changed");
    fixture_alive(&f, 1, "Hello!");
    fixture_close(&f);
}

/* A full server is when a plugin may have to go. */
Test(swap, is_let_in_when_no_client_is)
{
    static const struct seam_flag flags[] = {
        { "server.admin_key", KEY }, { "server.max_connections", "1" }
    };
    struct fixture f;
    struct client c;
    struct reply r;
    char body[256];

    fixture_init(&f);
    fixture_text(&f, "plan</think>Hello!\1");
    fixture_gate_tokens(&f);
    fixture_bind(&f, flags, 2, NULL);
    fixture_start(&f);
    client_open(&c, f.url);
    client_put_post(&c, "/v1/chat/completions",
                    ask(body, sizeof body, 1, "\"stream\":true"));
    client_stream(&c, &r);
    reply_release(&r);
    client_post(f.url, "/v1/chat/completions", ask(body, sizeof body, 1, NULL),
                &r);
    cr_expect_eq(r.status, 503, "%s", r.body.p);
    reply_release(&r);
    swap(f.url, "{}", 400, NULL, NULL);
    fixture_open_gate(&f);
    client_close(&c);
    fixture_close(&f);
}

/* ---- Under load ---------------------------------------------------------- */

struct reader {
    const char *url;
    const struct answer *want;
    unsigned seed;
    _Atomic bool *stop;
    unsigned n_right, n_wrong;
    pthread_t thread;
};

static const char call_body[] =
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"add\","
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":"
    "\"integer\"}}}}}]";

static const char *text(const struct seam_buf *b)
{
    return b->p ? b->p : "";
}

static bool same(const struct answer *a, const struct answer *b)
{
    return a->status == b->status && a->done == b->done &&
           !strcmp(text(&a->content), text(&b->content)) &&
           !strcmp(text(&a->reasoning), text(&b->reasoning)) &&
           !strcmp(a->finish, b->finish) && a->n_calls == b->n_calls &&
           !strcmp(text(&a->call[0].name), text(&b->call[0].name)) &&
           !strcmp(text(&a->call[0].args), text(&b->call[0].args));
}

static void *reader_main(void *arg)
{
    struct reader *r = arg;
    char body[512];

    ask(body, sizeof body, r->seed, call_body);
    while (!atomic_load(r->stop)) {
        struct answer a;
        bool right;

        answer_stream(r->url, body, &a);
        right = same(&a, r->want);
        r->n_right += right;
        r->n_wrong += !right;
        answer_release(&a);
    }
    return NULL;
}

Test(swap, of_parsers_under_streams_changes_no_answer)
{
    static struct reader r[N_STREAMS];
    _Atomic bool stop = false;
    struct fixture f;
    struct answer want;
    unsigned seed, right = 0;
    char body[512];

    fixture_init(&f);
    seed = fixture_text(&f, "a plan of some length</think>One, two, three."
                            "<tool_call>add<arg_key>a</arg_key><arg_value>7"
                            "</arg_value></tool_call>\1");
    fixture_bind(&f, with_key, 1, NULL);
    /* Nobody reads the log's pipe, and a full one stops whoever writes. */
    f.log.level = SEAM_LOG_ERROR;
    fixture_start(&f);
    answer_stream(f.url, ask(body, sizeof body, seed, call_body), &want);
    cr_assert_eq(want.status, 200, "%s", want.error);
    cr_assert_eq(want.n_calls, 1);
    cr_assert_str_eq(text(&want.content), "One, two, three.");
    for (int i = 0; i < N_STREAMS; i++) {
        r[i] = (struct reader){
            .url = f.url, .want = &want, .seed = seed, .stop = &stop
        };
        cr_assert_eq(pthread_create(&r[i].thread, NULL, reader_main, &r[i]), 0);
    }
    for (int i = 0; i < N_SWAPS; i++)
        swap(f.url, i % 2 ? PARSER("glm47") : PARSER("glm47_ref"), 200, NULL,
             NULL);
    atomic_store(&stop, true);
    for (int i = 0; i < N_STREAMS; i++) {
        pthread_join(r[i].thread, NULL);
        right += r[i].n_right;
        cr_expect_eq(r[i].n_wrong, 0, "%u answers were not as without swaps",
                     r[i].n_wrong);
    }
    cr_expect_gt(right, 0);
    answer_release(&want);
    printf("swap: %d swaps of parsers, %u answers\n", N_SWAPS, right);
    fixture_close(&f);
}
