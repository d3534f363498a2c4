/* SE-2: what could be read in two ways is refused, and the connection
 * closed. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "tests/http/fixture.h"

#define BODY                                                  \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]," \
    "\"seed\":1}"
#define POST      "POST /v1/chat/completions HTTP/1.1\r\nHost: t\r\n"
#define PIPELINED "GET /v1/models HTTP/1.1\r\nHost: t\r\n\r\n"

static void open_small(struct fixture *f)
{
    static const struct seam_flag flags[] = {
        { "server.max_body_bytes", "1024" },
        { "server.max_connections", "4" },
        { "server.body_timeout_ms", "20000" },
    };

    fixture_init(f);
    fixture_text(f, "</think>ok\1");
    fixture_bind(f, flags, 3, NULL);
    fixture_start(f);
}

/* Send text with a request pipelined behind it; expect one answer of this
 * status and then the end of the connection. */
static void refused(struct fixture *f, const char *text, int status)
{
    struct client c;
    struct reply r;
    char v[64];

    client_open(&c, f->url);
    client_puts(&c, text);
    client_puts(&c, PIPELINED);
    cr_assert(client_reply(&c, &r), "no answer to %s", text);
    cr_expect_eq(r.status, status, "%d for %s", r.status, text);
    cr_expect_str_eq(reply_header(&r, "Connection", v, sizeof v), "close");
    cr_expect_not_null(reply_at(&r, "error", "message", NULL), "%s", r.body.p);
    cr_expect_not_null(reply_header(&r, "X-Request-Id", v, sizeof v));
    cr_expect(client_closed(&c), "open after %s: %s", text, c.in.p);
    reply_release(&r);
    client_close(&c);
}

static void refused_heads(struct fixture *f, const char *const *heads, size_t n,
                          int status)
{
    char text[2048];

    for (size_t i = 0; i < n; i++) {
        snprintf(text, sizeof text, POST "%s\r\n" BODY, heads[i]);
        refused(f, text, status);
    }
    fixture_alive(f, 1, "ok");
}

Test(framing, refuses_lengths_with_two_readings)
{
    static const char *const heads[] = {
        "Content-Length: 62\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 62\r\n",
        "Content-Length: 62\r\nContent-Length: 3\r\n",
        "Content-Length: 62\r\nContent-Length: 62\r\n",
        "Content-Length: +3\r\n",
        "Content-Length: -1\r\n",
        "Content-Length: 0x3\r\n",
        "Content-Length: 3, 3\r\n",
        "Content-Length: 3 3\r\n",
        "Content-Length: 3.0\r\n",
        "Content-Length:\r\n",
        "Content-Length: \r\n",
        "Transfer-Encoding: gzip\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: chunked, chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding: identity\r\nContent-Length: 3\r\n",
        "Transfer-Encoding:\tchunked\r\n",
        "Transfer-Encoding: \"chunked\"\r\n",
        "Transfer-Encoding:\r\n",
    };
    struct fixture f;

    open_small(&f);
    refused_heads(&f, heads, sizeof heads / sizeof *heads, 400);
    fixture_close(&f);
}

Test(framing, refuses_heads_that_others_read_otherwise)
{
    static const char *const texts[] = {
        "POST /v1/chat/completions HTTP/1.1\nHost: t\nContent-Length: 0\n\n",
        "POST /v1/chat/completions HTTP/1.1\r\nHost: t\nContent-Length: 0\r\n"
        "\r\n",
        "POST /v1/chat/completions HTTP/1.1\r\nHost: t\r\nA: b\n\n",
        "POST /v1/chat/completions HTTP/1.1\r\nHost: t\r\nA: b\r\n\n",
        POST "Content-Length : 0\r\n\r\n",
        POST "Content-Length\r\n : 0\r\n\r\n",
        POST "A: b\r\n Content-Length: 5\r\n\r\n",
        POST "A: b\r\n: c\r\n\r\n",
        POST "A(: b\r\n\r\n",
        POST "A: b\rContent-Length: 5\r\n\r\n",
        "POST  /v1/chat/completions HTTP/1.1\r\nHost: t\r\n\r\n",
        "POST /v1/chat/completions  HTTP/1.1\r\nHost: t\r\n\r\n",
        "POST /v1/chat/completions HTTP/1.1 \r\nHost: t\r\n\r\n",
        "\r\nGET /v1/models HTTP/1.1\r\nHost: t\r\n\r\n",
        "\r\n\r\nGET /v1/models HTTP/1.1\r\nHost: t\r\n\r\n",
        "\n\n",
        " GET /v1/models HTTP/1.1\r\nHost: t\r\n\r\n",
        "GET /v1/models HTTP/1.1\r\n\r\n",
        "GET /v1/models HTTP/1.1\r\nHost: t\r\nHost: u\r\n\r\n",
        "GET /v1/mod\x01"
        "els HTTP/1.1\r\nHost: t\r\n\r\n",
        "GET /v1/mod\xff"
        "els HTTP/1.1\r\nHost: t\r\n\r\n",
        "get /v1/models HTTP/1.1\r\nHost: t\r\n\r\n",
        "GET /v1/models\r\nHost: t\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "HELO there\r\n\r\n",
    };
    struct fixture f;

    open_small(&f);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        refused(&f, texts[i], 400);
    fixture_alive(&f, 1, "ok");
    fixture_close(&f);
}

Test(framing, an_unknown_version_is_the_clients_mistake)
{
    struct fixture f;
    struct client c;
    struct reply r;
    const char *type;

    open_small(&f);
    client_open(&c, f.url);
    client_puts(&c, "GET /v1/models HTTP/2.0\r\nHost: t\r\n\r\n");
    cr_assert(client_reply(&c, &r));
    cr_expect_eq(r.status, 505, "%s", r.head.p);
    type = json_string_value(reply_at(&r, "error", "type", NULL));
    cr_expect_str_eq(type ? type : "", "invalid_request_error", "%s", r.body.p);
    reply_release(&r);
    client_close(&c);
    fixture_close(&f);
}

Test(framing, refuses_white_space_before_a_later_request)
{
    struct fixture f;
    struct client c;
    struct reply r;

    open_small(&f);
    client_open(&c, f.url);
    client_puts(&c, PIPELINED);
    cr_assert(client_reply(&c, &r));
    cr_expect_eq(r.status, 200);
    reply_release(&r);
    /* What lies behind these bytes in the buffer is the request before. */
    client_puts(&c, "\r\n\r\n");
    cr_assert(client_reply(&c, &r));
    cr_expect_eq(r.status, 400);
    cr_expect(client_closed(&c));
    reply_release(&r);
    client_close(&c);
    fixture_close(&f);
}

Test(framing, refuses_bad_chunks)
{
    static const char *const chunks[] = {
        "10000000000000000\r\nabc\r\n0\r\n\r\n",
        "-1\r\nabc\r\n0\r\n\r\n",
        "3;x=y\r\nabc\r\n0\r\n\r\n",
        "3 \r\nabc\r\n0\r\n\r\n",
        "0x3\r\nabc\r\n0\r\n\r\n",
        "\r\nabc\r\n0\r\n\r\n",
        "3\nabc\r\n0\r\n\r\n",
        "3\r\nabcd\r\n0\r\n\r\n",
        "7fffffffffffffff\r\nabc\r\n0\r\n\r\n",
    };
    struct fixture f;
    char text[512];

    open_small(&f);
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        struct client c;
        struct reply r;

        snprintf(text, sizeof text, POST "Transfer-Encoding: chunked\r\n\r\n%s",
                 chunks[i]);
        client_open(&c, f.url);
        client_puts(&c, text);
        client_puts(&c, PIPELINED);
        shutdown(c.fd, SHUT_WR);
        cr_assert(client_reply(&c, &r), "no answer to %s", chunks[i]);
        cr_expect(r.status == 400 || r.status == 413, "%d for %s", r.status,
                  chunks[i]);
        cr_expect(client_closed(&c), "open after %s", chunks[i]);
        reply_release(&r);
        client_close(&c);
    }
    fixture_alive(&f, 1, "ok");
    fixture_close(&f);
}

static void add_chunk(struct seam_buf *b, const char *format, const char *text)
{
    seam_buf_fmt(b, format, strlen(text));
    seam_buf_fmt(b, "\r\n%s\r\n", text);
}

Test(framing, reads_chunks_whole)
{
    static const char *const ends[] = { "0\r\n\r\n",
                                        "0\r\nX-Trailer: 1\r\n\r\n" };
    struct fixture f;

    open_small(&f);
    for (int i = 0; i < 2; i++) {
        struct seam_buf b = { 0 };
        struct client c;
        struct reply r;
        char v[64];

        seam_buf_str(&b, POST "Transfer-Encoding: chunked\r\n\r\n");
        add_chunk(&b, "0%zx", "{\"m"); /* leading zeros are legal */
        add_chunk(&b, "%zX",
                  "essages\":[{\"role\":\"user\",\"content\":"
                  "\"hi\"}],\"seed\":1,\"user\":\"");
        add_chunk(&b, "%zx", "GET / HTTP/1.1  Content-Length: 5");
        add_chunk(&b, "%zx", "\"}");
        seam_buf_str(&b, ends[i]);
        client_open(&c, f.url);
        client_puts(&c, b.p);
        client_puts(&c, PIPELINED);
        cr_assert(client_reply(&c, &r));
        cr_expect_eq(r.status, 200, "%d: %s", i, r.body.p);
        /* Announced, so that the client knows that nothing follows. */
        cr_expect_str_eq(reply_header(&r, "Connection", v, sizeof v), "close");
        cr_expect(client_closed(&c));
        reply_release(&r);
        seam_buf_release(&b);
        client_close(&c);
    }
    fixture_close(&f);
}

Test(framing, refuses_bodies_over_the_limit_unread)
{
    struct fixture f;
    char text[4096], filler[1100];
    static const char *const lengths[] = { "1025", "99999999999999999999",
                                           "9223372036854775808" };

    open_small(&f);
    memset(filler, ' ', sizeof filler);
    for (int i = 0; i < 3; i++) {
        snprintf(text, sizeof text, POST "Content-Length: %s\r\n\r\n",
                 lengths[i]);
        refused(&f, text, 413);
    }
    /* Chunked: the length is known only when it is too late. */
    snprintf(text, sizeof text,
             POST "Transfer-Encoding: chunked\r\n\r\n401\r\n%.1025s\r\n0\r\n"
                  "\r\n",
             filler);
    refused(&f, text, 413);
    /* One byte less is read, and is no JSON. */
    snprintf(text, sizeof text, POST "Content-Length: 1024\r\n\r\n%.1024s",
             filler);
    {
        struct client c;
        struct reply r;

        client_open(&c, f.url);
        client_puts(&c, text);
        client_puts(&c, PIPELINED);
        cr_assert(client_reply(&c, &r));
        cr_expect_eq(r.status, 400);
        reply_release(&r);
        cr_assert(client_reply(&c, &r));
        cr_expect_eq(r.status, 200);
        reply_release(&r);
        client_close(&c);
    }
    fixture_alive(&f, 1, "ok");
    fixture_close(&f);
}

Test(framing, never_parses_a_body_that_ends_early)
{
    /* Valid JSON as far as it goes. */
    static const char *const texts[] = {
        POST "Content-Length: 500\r\n\r\n" BODY,
        POST "Transfer-Encoding: chunked\r\n\r\n3e\r\n" BODY "\r\n",
        POST "Transfer-Encoding: chunked\r\n\r\n3e\r\n" BODY "\r\n0\r\n",
        POST "Transfer-Encoding: chunked\r\n\r\n100\r\n" BODY,
    };
    struct fixture f;

    open_small(&f);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct client c;
        struct reply r;

        client_open(&c, f.url);
        client_puts(&c, texts[i]);
        shutdown(c.fd, SHUT_WR);
        if (client_reply(&c, &r)) {
            /* "0 CR LF" without the last CR LF is complete but for nothing. */
            cr_expect(r.status == 400 || (i == 2 && r.status == 499), "%zu: %d",
                      i, r.status);
            reply_release(&r);
        }
        client_close(&c);
    }
    fixture_alive(&f, 1, "ok");
    fixture_close(&f);
}

Test(framing, bounds_the_head)
{
    struct fixture f;
    struct seam_buf b = { 0 };

    open_small(&f);
    seam_buf_str(&b, "GET /v1/models HTTP/1.1\r\nHost: t\r\nA: ");
    for (int i = 0; i < 20000; i++)
        seam_buf_str(&b, "x");
    seam_buf_str(&b, "\r\n\r\n");
    refused(&f, b.p, 431);
    seam_buf_clear(&b);
    seam_buf_str(&b, "GET /v1/models HTTP/1.1\r\nHost: t\r\nA: ");
    for (int i = 0; i < 40000; i++)
        seam_buf_str(&b, "x");
    refused(&f, b.p, 400);
    seam_buf_clear(&b);
    /* CivetWeb keeps 64 headers and forgets the rest. */
    seam_buf_str(&b, "POST /v1/models HTTP/1.1\r\nHost: t\r\n");
    for (int i = 0; i < 63; i++)
        seam_buf_str(&b, "A: b\r\n");
    seam_buf_str(&b, "Content-Length: 3\r\n\r\nabc");
    refused(&f, b.p, 431);
    seam_buf_release(&b);
    fixture_close(&f);
}

Test(framing, keeps_good_connections)
{
    struct fixture f;
    struct client c;
    struct reply r;
    char text[512];

    open_small(&f);
    client_open(&c, f.url);
    snprintf(text, sizeof text, POST "Content-Length: %zu\r\n\r\n" BODY,
             strlen(BODY));
    for (int i = 0; i < 3; i++) {
        client_puts(&c, text);
        client_puts(&c, "HEAD /v1/models HTTP/1.1\r\nHost: t\r\n\r\n");
    }
    for (int i = 0; i < 3; i++) {
        cr_assert(client_reply(&c, &r));
        cr_expect_eq(r.status, 200, "%s", r.body.p);
        cr_expect_not_null(reply_at(&r, "choices", "0", NULL));
        reply_release(&r);
        /* The length of a body that does not come. */
        memset(&r, 0, sizeof r);
        while (!c.in.p || !strstr(c.in.p, "\r\n\r\n"))
            cr_assert(client_more(&c));
        cr_expect_not_null(strstr(c.in.p, "HTTP/1.1 200"));
        {
            char *end = strstr(c.in.p, "\r\n\r\n") + 4;

            /* What may follow is the next answer. */
            cr_expect_neq(*end, '{');
            memmove(c.in.p, end, strlen(end) + 1);
            c.in.n = strlen(c.in.p);
        }
    }
    client_close(&c);
    fixture_close(&f);
}

Test(framing, continues_and_knows_no_other_expectation)
{
    struct fixture f;
    struct client c;
    struct reply r;
    char text[512];

    open_small(&f);
    client_open(&c, f.url);
    snprintf(text, sizeof text,
             POST "Expect: 100-continue\r\nContent-Length: %zu\r\n\r\n",
             strlen(BODY));
    client_puts(&c, text);
    while (!c.in.p || !strstr(c.in.p, "100 Continue\r\n\r\n"))
        cr_assert(client_more(&c));
    client_puts(&c, BODY);
    cr_assert(client_reply(&c, &r));
    cr_expect_eq(r.status, 200);
    reply_release(&r);
    client_close(&c);
    refused(&f, POST "Expect: miracles\r\nContent-Length: 3\r\n\r\nabc", 417);
    fixture_close(&f);
}
