/* HT-1, HT-2: clients that leave, do not read, or do not finish. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/http/collect.h"
#include "tests/http/fixture.h"

enum leave { BY_FIN, BY_RST, BY_KILL, BY_HALF };

static void leave(struct client *c, enum leave how, pid_t child)
{
    struct linger hard = { .l_onoff = 1 };

    if (how == BY_RST)
        setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    if (how == BY_HALF) {
        shutdown(c->fd, SHUT_WR);
        return;
    }
    client_close(c);
    if (how == BY_KILL) {
        kill(child, SIGKILL);
        cr_assert_eq(waitpid(child, NULL, 0), child);
    }
}

static void leaves(enum leave how, bool stream)
{
    static const struct seam_flag one[] = { { "engine.max_seqs", "1" } };
    struct fixture f;
    struct client c;
    char body[512];
    pid_t child = 0;
    int32_t a = 'a';
    unsigned before;

    fixture_init(&f);
    fixture_script(&f, &a, 1); /* for ever */
    fixture_text(&f, "</think>ok\1");
    fixture_use_trace(&f);
    fixture_gate_tokens(&f);
    fixture_bind(&f, one, 1, NULL);
    fixture_start(&f);
    client_open(&c, f.url);
    client_put_post(&c, "/v1/chat/completions",
                    ask(body, sizeof body, 1, stream ? "\"stream\":true" : ""));
    if (how == BY_KILL) {
        /* The other end of the connection lives in another process. */
        child = fork();
        if (!child)
            for (;;)
                pause();
    }
    fixture_let(&f, 4);
    fixture_wait_trace(&f, "sample 1 ", 5);
    leave(&c, how, child);
    fixture_wait_log(&f, "cancelled: the client left; prompt ");
    before = fixture_count_trace(&f, "sample 1 ");
    fixture_open_gate(&f);
    fixture_wait_log(&f, "request cancelled after");
    /* No step began after that, and the only slot is free. */
    fixture_alive(&f, 2, "ok");
    cr_expect_eq(fixture_count_trace(&f, "sample 1 "), before);
    if (how == BY_HALF) { /* documented: taken for leaving */
        while (client_more(&c))
            ;
        cr_expect_null(c.in.p ? strstr(c.in.p, "[DONE]") : NULL);
        client_close(&c);
    }
    fixture_close(&f);
}

Test(ht1, fin_ends_a_stream)
{
    leaves(BY_FIN, true);
}

Test(ht1, fin_ends_an_answer)
{
    leaves(BY_FIN, false);
}

Test(ht1, rst_ends_a_stream)
{
    leaves(BY_RST, true);
}

Test(ht1, rst_ends_an_answer)
{
    leaves(BY_RST, false);
}

Test(ht1, death_ends_a_stream)
{
    leaves(BY_KILL, true);
}

Test(ht1, death_ends_an_answer)
{
    leaves(BY_KILL, false);
}

Test(ht1, a_half_closed_client_has_left)
{
    leaves(BY_HALF, true);
    leaves(BY_HALF, false);
}

Test(ht1, prefill_stops_at_the_next_chunk)
{
    static const struct seam_flag flags[] = {
        { "engine.max_step_tokens", "16" },
        { "engine.max_seqs", "1" },
    };
    struct fixture f;
    struct client c;
    struct seam_buf b = { 0 };
    struct reply r;
    unsigned steps;

    fixture_init(&f);
    fixture_text(&f, "</think>ok\1");
    fixture_use_trace(&f);
    fixture_gate_steps(&f);
    fixture_bind(&f, flags, 2, NULL);
    fixture_start(&f);
    seam_buf_str(&b, "{\"seed\":1,\"prompt\":\"");
    for (int i = 0; i < 320; i++)
        seam_buf_str(&b, "x");
    seam_buf_str(&b, "\"}");
    client_open(&c, f.url);
    client_put_post(&c, "/v1/completions", b.p);
    fixture_let(&f, 3);
    fixture_wait_trace(&f, "step", 4);
    client_close(&c);
    fixture_wait_log(&f, "cancelled: the client left; prompt 320");
    fixture_open_gate(&f);
    fixture_wait_log(&f, "request cancelled after 64 prompt and 0 generated");
    steps = fixture_count_trace(&f, "step");
    cr_expect_eq(steps, 4);
    cr_expect_eq(fixture_count_trace(&f, "sample 1 "), 0);
    /* What was prefilled is kept: a retry goes on from there. */
    client_post(f.url, "/v1/completions", b.p, &r);
    cr_expect_eq(r.status, 200);
    cr_expect_eq(
        json_integer_value(reply_at(&r, "usage", "prompt_tokens", NULL)), 320);
    cr_expect_eq(
        json_integer_value(reply_at(&r, "usage", "prompt_tokens_details",
                                    "cached_tokens", NULL)),
        64, "%s", r.body.p);
    /* 256 tokens were left to read. */
    cr_expect_eq(fixture_count_trace(&f, "step 16"), 4 + 16);
    reply_release(&r);
    fixture_alive(&f, 1, "ok");
    seam_buf_release(&b);
    fixture_close(&f);
}

Test(ht1, a_queued_request_never_starts)
{
    static const struct seam_flag one[] = { { "engine.max_seqs", "1" } };
    struct fixture f;
    struct client first, second;
    struct reply r;
    char body[512];

    fixture_init(&f);
    fixture_text(&f, "</think>ok\1");
    fixture_text(&f, "</think>never\1");
    fixture_use_trace(&f);
    fixture_gate_tokens(&f);
    fixture_bind(&f, one, 1, NULL);
    fixture_start(&f);
    client_open(&first, f.url);
    client_put_post(&first, "/v1/chat/completions",
                    ask(body, sizeof body, 1, NULL));
    fixture_wait_trace(&f, "sample 1 ", 1);
    client_open(&second, f.url);
    client_put_post(&second, "/v1/chat/completions",
                    ask(body, sizeof body, 2, "\"stream\":true"));
    client_stream(&second, &r); /* admitted, so queued */
    reply_release(&r);
    client_close(&second);
    fixture_wait_log(&f, "cancelled: the client left; prompt ");
    fixture_open_gate(&f);
    cr_assert(client_reply(&first, &r));
    cr_expect_eq(r.status, 200);
    fixture_wait_log(&f, "request cancelled after 0 prompt and 0 generated");
    cr_expect_eq(fixture_count_trace(&f, "sample 2 "), 0);
    reply_release(&r);
    client_close(&first);
    fixture_close(&f);
}

/* ---- HT-2 ---------------------------------------------------------------- */

/* Few large pieces, so that a slow machine too has generated all of them before
 * the client's time is over. */
#define PIECE   65536
#define N_PIECE 48

Test(ht2, a_client_that_does_not_read_holds_up_nobody)
{
    static const struct seam_flag flags[] = {
        { "server.write_timeout_ms", "4000" },
    };
    struct fixture f;
    struct client stalled;
    struct answer a;
    struct seam_buf piece = { 0 };
    char body[512], part[1024];
    int32_t id[1] = { 0 };
    const char *line;
    int small = 4096;
    unsigned tokens;

    fixture_init(&f);
    for (int i = 0; i < PIECE; i++)
        seam_buf_str(&piece, "x");
    id[0] = fixture_piece(&f, piece.p, piece.n);
    fixture_script(&f, id, 1);
    seam_buf_clear(&piece);
    seam_buf_str(&piece, "</think>");
    for (int i = 0; i < 200; i++)
        seam_buf_str(&piece, "y");
    seam_buf_str(&piece, "\1");
    fixture_text(&f, piece.p);
    fixture_use_trace(&f);
    fixture_bind(&f, flags, 1, NULL);
    fixture_start(&f);

    client_open(&stalled, f.url);
    setsockopt(stalled.fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    snprintf(body, sizeof body,
             "{\"prompt\":\"x\",\"seed\":1,\"stream\":true,"
             "\"max_tokens\":%d}",
             N_PIECE);
    client_put_post(&stalled, "/v1/completions", body);
    cr_assert_eq(recv(stalled.fd, part, sizeof part, MSG_WAITALL), sizeof part);
    /* All 3 MB are generated although nobody takes them, */
    fixture_wait_trace(&f, "sample 1 ", N_PIECE);
    /* others are served, */
    answer_stream(f.url, ask(body, sizeof body, 2, NULL), &a);
    cr_expect_eq(a.n_content, 200);
    answer_release(&a);
    /* and the client is dropped, having got what was under way: no more than
     * kernel buffers hold. */
    fixture_wait_log(&f, "cancelled: the client does not read");
    line = strstr(f.log_text.p, "cancelled: the client does not read");
    cr_assert_eq(sscanf(line, "%*[^;]; prompt %*u, completion %u", &tokens), 1);
    cr_expect_leq(tokens, (1 << 20) / PIECE, "%u pieces of %d bytes were taken",
                  tokens, PIECE);
    piece.p[piece.n - 1] = 0;
    fixture_alive(&f, 2, piece.p + strlen("</think>"));
    seam_buf_release(&piece);
    client_close(&stalled);
    fixture_close(&f);
}

#define WORKERS 20 /* max_connections and the spare ones */

static void hold_workers(const char *say)
{
    static const struct seam_flag flags[] = {
        { "server.max_connections", "4" },
        { "server.body_timeout_ms", "20000" },
    };
    struct fixture f;
    struct client c[2 * WORKERS];
    struct reply r;

    fixture_init(&f);
    fixture_text(&f, "</think>ok\1");
    fixture_bind(&f, flags, 2, NULL);
    fixture_start(&f);
    for (int i = 0; i < 2 * WORKERS; i++) {
        client_open(&c[i], f.url);
        client_puts(&c[i], say);
    }
    client_get(f.url, "/health", &r);
    cr_expect_eq(r.status, 200);
    reply_release(&r);
    fixture_alive(&f, 1, "ok");
    for (int i = 0; i < 2 * WORKERS; i++)
        client_close(&c[i]);
    fixture_close(&f);
}

Test(ht2, half_sent_bodies_leave_health_alone)
{
    hold_workers("POST /v1/chat/completions HTTP/1.1\r\nHost: t\r\n"
                 "Content-Length: 100\r\n\r\n{\"m");
}

Test(ht2, half_sent_heads_leave_health_alone)
{
    hold_workers("POST /v1/chat/completions HTTP/1.1\r\nHos");
}

Test(ht2, silent_connections_leave_health_alone)
{
    hold_workers("");
}

Test(ht2, a_half_sent_body_meets_its_deadline)
{
    static const struct seam_flag flags[] = {
        { "server.body_timeout_ms", "1500" },
    };
    struct fixture f;
    struct client c;
    struct reply r;

    fixture_init(&f);
    fixture_text(&f, "</think>ok\1");
    fixture_bind(&f, flags, 1, NULL);
    fixture_start(&f);
    client_open(&c, f.url);
    client_puts(&c, "POST /v1/chat/completions HTTP/1.1\r\nHost: t\r\n"
                    "Content-Length: 100\r\n\r\n{\"m");
    cr_assert(client_reply(&c, &r));
    cr_expect_eq(r.status, 408);
    cr_expect(client_closed(&c));
    reply_release(&r);
    client_close(&c);
    /* A head that does not come is given up as well. */
    client_open(&c, f.url);
    client_puts(&c, "POST /v1/chat");
    cr_assert(client_reply(&c, &r));
    cr_expect_eq(r.status, 408);
    cr_expect(client_closed(&c));
    reply_release(&r);
    client_close(&c);
    fixture_alive(&f, 1, "ok");
    fixture_close(&f);
}

Test(ht2, requests_above_the_limit_are_sent_away)
{
    static const struct seam_flag flags[] = {
        { "server.max_connections", "2" },
    };
    struct fixture f;
    struct client c[2];
    struct reply r;
    char body[256], v[32];

    fixture_init(&f);
    fixture_text(&f, "</think>ok\1");
    fixture_gate_tokens(&f);
    fixture_bind(&f, flags, 1, NULL);
    fixture_start(&f);
    for (int i = 0; i < 2; i++) {
        client_open(&c[i], f.url);
        client_put_post(&c[i], "/v1/chat/completions",
                        ask(body, sizeof body, 1, "\"stream\":true"));
        client_stream(&c[i], &r);
        reply_release(&r);
    }
    cr_expect_eq(seam_server_active(f.server), 2);
    client_post(f.url, "/v1/chat/completions", ask(body, sizeof body, 1, NULL),
                &r);
    cr_expect_eq(r.status, 503);
    cr_expect_not_null(reply_header(&r, "Retry-After", v, sizeof v));
    reply_release(&r);
    client_get(f.url, "/health", &r);
    cr_expect_eq(r.status, 200);
    reply_release(&r);
    for (int i = 0; i < 2; i++)
        client_close(&c[i]);
    fixture_close(&f);
}

Test(ht2, a_full_queue_says_so)
{
    static const struct seam_flag flags[] = {
        { "engine.max_queue", "1" },
        { "engine.max_seqs", "1" },
    };
    struct fixture f;
    struct client c[2];
    struct reply r;
    char body[256], v[32];

    fixture_init(&f);
    fixture_text(&f, "</think>ok\1");
    fixture_use_trace(&f);
    fixture_gate_tokens(&f);
    fixture_bind(&f, flags, 2, NULL);
    fixture_start(&f);
    for (int i = 0; i < 2; i++) {
        client_open(&c[i], f.url);
        client_put_post(&c[i], "/v1/chat/completions",
                        ask(body, sizeof body, 1, "\"stream\":true"));
        client_stream(&c[i], &r);
        reply_release(&r);
        fixture_wait_trace(&f, "sample 1 ", 1); /* one runs, one waits */
    }
    client_post(f.url, "/v1/chat/completions",
                ask(body, sizeof body, 1, "\"stream\":true"), &r);
    cr_expect_eq(r.status, 429, "%s", r.body.p);
    cr_expect_not_null(reply_header(&r, "Retry-After", v, sizeof v));
    cr_expect_str_eq(json_string_value(reply_at(&r, "error", "code", NULL)),
                     "queue_full");
    reply_release(&r);
    for (int i = 0; i < 2; i++)
        client_close(&c[i]);
    fixture_close(&f);
}
