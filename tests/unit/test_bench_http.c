#include "core/bench/http.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

Test(bench_http, takes_addresses_apart)
{
    static const struct {
        const char *url, *host, *port, *base;
    } good[] = {
        { "http://localhost", "localhost", "80", "" },
        { "http://127.0.0.1:8080/", "127.0.0.1", "8080", "" },
        { "http://[::1]:80", "::1", "80", "" },
        { "http://[::1]/a", "::1", "80", "/a" },
        { "http://h:1/a/b//", "h", "1", "/a/b" },
    };
    static const char *const bad[] = {
        "localhost:1", "https://h",     "http://",     "http://:1",
        "http://h:",   "http://h:x",    "http://h:0",  "http://h:65536",
        "http://[::1", "http://[::1]x", "http://[]:1", "",
    };
    struct seam_http_url u;
    struct seam_error err;

    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        cr_assert_eq(seam_http_url(good[i].url, &u, &err), 0, "%s", err.text);
        cr_expect_str_eq(u.host, good[i].host);
        cr_expect_str_eq(u.port, good[i].port);
        cr_expect_str_eq(u.base, good[i].base);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        cr_expect_eq(seam_http_url(bad[i], &u, &err), SEAM_EINVAL, "%s",
                     bad[i]);
}

struct seen {
    char text[64];
    uint32_t n, stop_at;
};

static int see(void *ctx, const char *p, size_t n)
{
    struct seen *s = ctx;
    size_t at = strlen(s->text);

    snprintf(s->text + at, sizeof s->text - at, "<%.*s>", (int)n, p);
    return ++s->n == s->stop_at ? 7 : 0;
}

/* However the bytes are cut, the events are the same. */
Test(bench_http, finds_events_in_any_pieces)
{
    static const char stream[] =
        ": hello\r\ndata: one\r\n\r\nevent: x\ndata:two\n\ndata: \n\n";

    for (size_t cut = 1; cut < sizeof stream; cut++) {
        struct seen s = { .n = 0 };
        struct seam_http_events e = { .data = see, .ctx = &s };

        for (size_t at = 0; at < sizeof stream - 1; at += cut) {
            size_t n = sizeof stream - 1 - at;

            cr_assert_eq(seam_http_events(&e, stream + at, n < cut ? n : cut),
                         0);
        }
        cr_expect_str_eq(s.text, "<one><two><>", "cut %zu", cut);
        seam_buf_release(&e.line);
    }
}

Test(bench_http, stops_when_it_is_told_to)
{
    struct seen s = { .stop_at = 1 };
    struct seam_http_events e = { .data = see, .ctx = &s };

    cr_expect_eq(seam_http_events(&e, "data: a\ndata: b\n", 16), 7);
    cr_expect_eq(s.n, 1);
    seam_buf_release(&e.line);
}
