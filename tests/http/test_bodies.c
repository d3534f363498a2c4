/* HT-3, SE-3: bodies that break parsers, and small ones with a large bill. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "core/base/utf8.h"
#include "tests/http/collect.h"
#include "tests/http/fixture.h"

#define CHAT "/v1/chat/completions"

static void open_ok(struct fixture *f)
{
    fixture_open(f, "</think>ok\1");
}

static void repeat(struct seam_buf *b, const char *s, unsigned n)
{
    while (n--)
        seam_buf_str(b, s);
}

static unsigned open_fds(void)
{
    unsigned n = 0;
    DIR *d = opendir("/proc/self/fd");

    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

/* 400 in the right shape, with nothing of the request in it. */
static void err400(const struct reply *r, const char *what)
{
    cr_expect_eq(r->status, 400, "%s: %d", what, r->status);
    cr_expect(seam_utf8_valid(r->body.p, r->body.n), "%s", what);
    cr_expect(json_is_string(reply_at(r, "error", "message", NULL)), "%s: %s",
              what, r->body.p);
    cr_expect(json_is_string(reply_at(r, "error", "type", NULL)));
    cr_expect_not_null(reply_at(r, "error", "param", NULL));
    cr_expect_not_null(reply_at(r, "error", "code", NULL));
}

static void refused(struct fixture *f, const char *body, const char *what)
{
    struct reply r;

    client_post(f->url, CHAT, body, &r);
    err400(&r, what);
    reply_release(&r);
}

Test(ht3, nesting_is_bounded)
{
    static const unsigned depths[] = { 129, 2047, 2048, 12000, 1000000 };
    static const char *const around[][2] = {
        { "{\"q\":", "}" },
        { "{\"messages\":[{\"role\":\"user\",\"content\":", "}]}" },
        { "{\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\","
          "\"parameters\":",
          "}}]}" },
        { "{\"response_format\":{\"type\":\"json_schema\",\"json_schema\":"
          "{\"schema\":",
          "}}}" },
    };
    static const char *const kinds[][2] = { { "[", "]" }, { "{\"a\":", "}" } };
    struct fixture f;
    struct seam_buf b = { 0 };
    unsigned fds;

    open_ok(&f);
    fixture_alive(&f, 1, "ok");
    fds = open_fds();
    for (size_t a = 0; a < sizeof around / sizeof *around; a++)
        for (size_t d = 0; d < sizeof depths / sizeof *depths; d++)
            for (int k = 0; k < 2; k++) {
                unsigned depth = depths[d] < 200000 || !k ? depths[d] : 200000;

                seam_buf_clear(&b);
                seam_buf_str(&b, around[a][0]);
                repeat(&b, kinds[k][0], depth);
                if (k)
                    seam_buf_str(&b, "1");
                repeat(&b, kinds[k][1], depth);
                seam_buf_str(&b, around[a][1]);
                refused(&f, b.p, "nesting");
            }
    /* What is allowed does not exhaust a stack either. */
    seam_buf_clear(&b);
    seam_buf_str(&b, "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],"
                     "\"seed\":1,\"tools\":[{\"type\":\"function\",\"function\""
                     ":{\"name\":\"f\",\"parameters\":");
    repeat(&b, "{\"a\":", 120);
    seam_buf_str(&b, "1");
    repeat(&b, "}", 120);
    seam_buf_str(&b, "}}]}");
    {
        struct reply r;

        client_post(f.url, CHAT, b.p, &r);
        cr_expect_eq(r.status, 200, "%s", r.body.p);
        reply_release(&r);
    }
    fixture_alive(&f, 1, "ok");
    /* The server closes its ends in its own time; bounded by the test's limit. */
    while (open_fds() > fds)
        sched_yield();
    seam_buf_release(&b);
    fixture_close(&f);
}

Test(ht3, bad_text_is_refused_and_not_repeated)
{
    static const char *const bad[] = { "\xff",     "\xc0\x80", "\xed\xa0\x80",
                                       "\xe6\x9e", "\\ud800",  "\\udc00x",
                                       "\x01",     "\n" };
    struct fixture f;
    struct client c;
    struct reply r;
    char body[256];

    open_ok(&f);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(body, sizeof body,
                 "{\"messages\":[{\"role\":\"user\","
                 "\"content\":\"SECRET%s\"}]}",
                 bad[i]);
        client_post(f.url, CHAT, body, &r);
        err400(&r, bad[i]);
        cr_expect_null(strstr(r.body.p, "SECRET"), "%s", r.body.p);
        reply_release(&r);
        snprintf(body, sizeof body, "{\"SECRET%s\":1}", bad[i]);
        client_post(f.url, CHAT, body, &r);
        err400(&r, bad[i]);
        cr_expect_null(strstr(r.body.p, "SECRET"), "%s", r.body.p);
        reply_release(&r);
        if (bad[i][0] == '\\' || bad[i][0] == '\n')
            continue;
        client_open(&c, f.url);
        snprintf(body, sizeof body,
                 "GET /v1/SECRET%s HTTP/1.1\r\nHost: t\r\n"
                 "\r\n",
                 bad[i]);
        client_puts(&c, body);
        cr_assert(client_reply(&c, &r));
        cr_expect(r.status == 400 || r.status == 404);
        cr_expect(seam_utf8_valid(r.body.p, r.body.n));
        cr_expect_null(strstr(r.body.p, "SECRET"));
        reply_release(&r);
        client_close(&c);
        client_open(&c, f.url);
        snprintf(body, sizeof body,
                 "GET /v1/models HTTP/1.1\r\nHost: t\r\n"
                 "Authorization: Bearer SECRET%s\r\nX-Request-Id: a%s\r\n\r\n",
                 bad[i], bad[i]);
        client_puts(&c, body);
        cr_assert(client_reply(&c, &r));
        cr_expect(seam_utf8_valid(r.head.p, r.head.n));
        cr_expect(seam_utf8_valid(r.body.p, r.body.n));
        cr_expect_null(strstr(r.body.p, "SECRET"));
        reply_release(&r);
        client_close(&c);
    }
    fixture_alive(&f, 1, "ok");
    fixture_close(&f);
}

Test(ht3, what_is_no_object_is_refused)
{
    static const char *const bodies[] = {
        "",
        "5",
        "null",
        "[]",
        "\"x\"",
        "{",
        "{}",
        "{}}",
        "{} {}",
        "{\"a\":1,}",
        "{'a':1}",
        "{\"a\":01}",
        "{\"a\":NaN}",
        "{\"a\":1e400}",
        "{\"a\":1,\"a\":2}",
        "\xef\xbb\xbf{}",
        "{\"messages\":[]}",
        "{\"messages\":{}}",
        "{\"messages\":null}",
        "{\"messages\":[1]}",
    };
    struct fixture f;
    struct seam_buf b = { 0 };

    open_ok(&f);
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++)
        refused(&f, bodies[i], bodies[i]);
    seam_buf_str(&b, "{}");
    repeat(&b, "                ", 65536);
    refused(&f, b.p, "spaces");
    fixture_alive(&f, 1, "ok");
    seam_buf_release(&b);
    fixture_close(&f);
}

Test(ht3, an_empty_body_is_said_to_be_empty)
{
    static const char *const routes[] = { CHAT, "/v1/messages", "/v1/responses",
                                          "/tokenize" };
    struct fixture f;
    struct reply r;

    open_ok(&f);
    for (size_t i = 0; i < 2 * (sizeof routes / sizeof *routes); i++) {
        client_post(f.url, routes[i / 2], i % 2 ? " \r\n\t" : "", &r);
        cr_expect_eq(r.status, 400, "%s", routes[i / 2]);
        cr_expect_not_null(strstr(r.body.p, "the body is empty"), "%s: %s",
                           routes[i / 2], r.body.p);
        reply_release(&r);
    }
    fixture_close(&f);
}

Test(ht3, zero_characters_do_not_cut_text)
{
    struct fixture f;
    struct reply r;

    open_ok(&f);
    client_post(f.url, "/v1/completions",
                "{\"prompt\":\"a\\u0000bc\",\"seed\":1,\"max_tokens\":1}", &r);
    cr_expect_eq(r.status, 200);
    cr_expect_eq(
        json_integer_value(reply_at(&r, "usage", "prompt_tokens", NULL)), 4);
    reply_release(&r);
    client_post(f.url, CHAT,
                "{\"messages\":[{\"role\":\"user\",\"content\":\"a\\u0000bc\"}]"
                ",\"seed\":1}",
                &r);
    cr_expect(r.status == 200 || r.status == 400);
    reply_release(&r);
    fixture_close(&f);
}

Test(ht3, the_media_type_must_be_json)
{
    static const char *const types[][2] = {
        { "application/json", "200" },
        { "Application/JSON; charset=utf-8", "200" },
        { "application/json;x=y", "200" },
        { "text/plain", "415" },
        { "application/jsonx", "415" },
        { "application/x-www-form-urlencoded", "415" },
    };
    static const char body[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"seed\":1}";
    struct fixture f;

    open_ok(&f);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct client c;
        struct reply r;
        struct seam_buf b = { 0 };
        char status[8];

        seam_buf_fmt(&b,
                     "POST " CHAT " HTTP/1.1\r\nHost: t\r\n"
                     "Content-Type: %s\r\nContent-Length: %zu\r\n\r\n%s",
                     types[i][0], strlen(body), body);
        client_open(&c, f.url);
        client_puts(&c, b.p);
        cr_assert(client_reply(&c, &r));
        snprintf(status, sizeof status, "%d", r.status);
        cr_expect_str_eq(status, types[i][1], "%s", types[i][0]);
        reply_release(&r);
        seam_buf_release(&b);
        client_close(&c);
    }
    fixture_close(&f);
}

/* ---- SE-3 ---------------------------------------------------------------- */

static void tool(struct seam_buf *b, unsigned i, const char *description)
{
    seam_buf_fmt(b,
                 "%s{\"type\":\"function\",\"function\":{\"name\":\"f%u\","
                 "\"description\":\"%s\",\"parameters\":{}}}",
                 i ? "," : "", i, description);
}

static void bill(struct fixture *f, const char *body, const char *what,
                 bool refuse)
{
    struct rusage before, after;
    struct reply r;
    long used;

    getrusage(RUSAGE_SELF, &before);
    client_post(f->url, CHAT, body, &r);
    getrusage(RUSAGE_SELF, &after);
    if (refuse || r.status != 200)
        err400(&r, what);
    used = after.ru_maxrss - before.ru_maxrss;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    cr_expect_lt(used, 64 * 1024, "%s: %ld KiB", what, used);
#endif
    (void)used;
    reply_release(&r);
}

Test(se3, small_requests_have_small_bills)
{
    static const struct seam_flag flags[] = { { "model.max_context",
                                                "16384" } };
    struct fixture f;
    struct seam_buf b = { 0 };

    fixture_init(&f);
    fixture_text(&f, "</think>ok\1");
    fixture_bind(&f, flags, 1, NULL);
    fixture_start(&f);
#define BEGIN \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"seed\":1"
    bill(&f, BEGIN ",\"chat_template\":\"{% for i in range(9999) %}\"}",
         "template", true);
    bill(&f, BEGIN ",\"chat_template_kwargs\":{\"chat_template\":\"x\"}}",
         "template in kwargs", true);
    seam_buf_str(&b, BEGIN ",\"tools\":[");
    for (unsigned i = 0; i < 10000; i++)
        tool(&b, i, "");
    seam_buf_str(&b, "]}");
    bill(&f, b.p, "10 000 tools", false);
    seam_buf_clear(&b);
    seam_buf_str(&b, BEGIN ",\"tools\":[{\"type\":\"function\",\"function\":{"
                           "\"name\":\"f\",\"parameters\":");
    repeat(&b, "{\"properties\":{\"a\":", 1500);
    seam_buf_str(&b, "{}");
    repeat(&b, "}}", 1500);
    seam_buf_str(&b, "}}]}");
    bill(&f, b.p, "1500 nested properties", true);
    {
        struct seam_buf d = { 0 };

        repeat(&d, "0123456789abcdef", 65536);
        seam_buf_clear(&b);
        seam_buf_str(&b, BEGIN ",\"tools\":[");
        tool(&b, 0, d.p);
        seam_buf_str(&b, "]}");
        bill(&f, b.p, "1 MiB description", false);
        seam_buf_clear(&b);
        seam_buf_fmt(&b, BEGIN ",\"stop\":\"%s\"}", d.p);
        bill(&f, b.p, "1 MiB stop string", true);
        seam_buf_release(&d);
    }
    bill(&f,
         BEGIN ",\"response_format\":{\"type\":\"json_schema\","
               "\"json_schema\":{\"schema\":{\"$ref\":\"#\"}}}}",
         "schema", true);
    seam_buf_clear(&b);
    seam_buf_str(&b, BEGIN ",\"logit_bias\":{\"0\":1");
    for (unsigned i = 1; i < 1000000; i++)
        seam_buf_fmt(&b, ",\"%u\":1", i);
    seam_buf_str(&b, "}}");
    bill(&f, b.p, "1 M biases", true);
    seam_buf_clear(&b);
    seam_buf_str(&b, "{\"messages\":[{\"role\":\"user\"}");
    for (unsigned i = 1; i < 1000000; i++)
        seam_buf_str(&b, ",{\"role\":\"\"}");
    seam_buf_str(&b, "]}");
    bill(&f, b.p, "1 M messages", true);
    fixture_alive(&f, 1, "ok");
    seam_buf_release(&b);
    fixture_close(&f);
}
