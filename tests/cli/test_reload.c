/* Plugins of a running server replaced by SIGHUP, and signals while they are. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "tests/cli/process.h"
#include "tests/http/client.h"

struct server {
    char dir[64], file[96], url[64];
    struct process p;
};

/* What is a setting, and which plugin for linear attention. */
static void write_config(const struct server *s, int max_queue,
                         const char *linear)
{
    FILE *f = fopen(s->file, "w");

    cr_assert_not_null(f);
    fprintf(f,
            "{\"model\": {\"path\": \"%s/models/nano/w4a16\"},\n"
            " \"plugin_dir\": \"%s\",\n"
            " \"server\": {\"listen\": \"127.0.0.1:0\","
            " \"admin_key\": \"k\"},\n"
            " \"engine\": {\"max_queue\": %d},\n"
            " \"plugins\": {\n"
            "  \"backend\": {\"name\": \"cpu\", \"unpinned\": true},\n"
            "  \"linear_attention\": {\"name\": \"%s\", \"unpinned\": true},\n"
            "  \"sparse_attention\": {\"name\": \"sparse_mla\","
            " \"unpinned\": true},\n"
            "  \"moe\": {\"name\": \"moe_resident\", \"unpinned\": true},\n"
            "  \"parser\": {\"name\": \"glm47\", \"unpinned\": true}}}\n",
            SEAM_TEST_SOURCE_DIR, SEAM_TEST_PLUGIN_DIR, max_queue, linear);
    cr_assert_eq(fclose(f), 0);
}

static void server_open(struct server *s, const char *const *env)
{
    const char *args[] = { "serve", "-c", s->file, NULL };
    const char *at;
    size_t n;

    *s = (struct server){ .dir = "/tmp/seam-reload-XXXXXX" };
    cr_assert_not_null(mkdtemp(s->dir));
    snprintf(s->file, sizeof s->file, "%s/conf.json", s->dir);
    write_config(s, 64, "kda");
    process_start(&s->p, args, env);
    cr_assert(process_until(&s->p, "ready after"), "%s", s->p.err_text.p);
    at = strstr(s->p.err_text.p, "http://127.0.0.1:");
    n = strcspn(at + 7, "/ \n") + 7;
    cr_assert_lt(n, sizeof s->url);
    memcpy(s->url, at, n);
}

static void server_close(struct server *s)
{
    process_finish(&s->p);
    cr_expect_eq(s->p.status, 0, "%d, %s", s->p.status, s->p.err_text.p);
    process_release(&s->p);
    unlink(s->file);
    rmdir(s->dir);
}

Test(reload, sighup_swaps_plugins_and_names_what_needs_a_restart)
{
    struct server s;

    server_open(&s, NULL);
    process_signal(&s.p, SIGHUP);
    cr_assert(process_until(&s.p, "no plugin differs"));
    write_config(&s, 65, "kda_ref");
    process_signal(&s.p, SIGHUP);
    cr_assert(process_until(&s.p, "plugins.linear_attention is now kda_ref"),
              "%s", s.p.err_text.p);
    cr_expect_not_null(strstr(s.p.err_text.p, "engine.max_queue is changed"));
    write_config(&s, 64, "kda_rf");
    process_signal(&s.p, SIGHUP);
    cr_assert(process_until(&s.p, "no swap to kda_rf"), "%s", s.p.err_text.p);
    unlink(s.file);
    process_signal(&s.p, SIGHUP);
    cr_assert(process_until(&s.p, "SIGHUP: nothing is changed"));
    process_signal(&s.p, SIGTERM);
    server_close(&s);
}

/* Whatever comes of it, the manager hears when it began, by its own clock, and
 * that it is over. */
Test(reload, a_service_manager_is_told_of_both_ends)
{
    static const char *const linear[] = { "kda_ref", "kda_ref", "kda_rf" };
    static const char *const says[] = { "plugins.linear_attention is now",
                                        "no plugin differs",
                                        "no swap to kda_rf" };
    const char *env[2] = { NULL };
    struct manager m;
    struct server s;

    manager_open(&m);
    env[0] = m.env;
    server_open(&s, env);
    manager_until(&m, "READY=1");
    for (int i = 0; i < 3; i++) {
        uint64_t before = seam_now_ns() / 1000, at = 0;

        write_config(&s, 64, linear[i]);
        process_signal(&s.p, SIGHUP);
        manager_until(&m, "RELOADING=1\nMONOTONIC_USEC=");
        at = strtoull(strstr(m.told, "USEC=") + 5, NULL, 10);
        cr_expect(before <= at && at <= seam_now_ns() / 1000, "%s", m.told);
        manager_until(&m, "READY=1");
        cr_assert(process_until(&s.p, says[i]), "%s", s.p.err_text.p);
    }
    process_signal(&s.p, SIGTERM);
    manager_until(&m, "STOPPING=1");
    server_close(&s);
    manager_close(&m);
}

/* A swap that waits for a stream, which the drain then cuts. */
Test(reload, sigterm_during_a_swap_ends_cleanly)
{
    static const char stream[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],"
        "\"stream\":true,\"temperature\":0,\"ignore_eos\":true,"
        "\"max_tokens\":600}";
    static const char drain[] =
        "{\"role\":\"sparse_attention\",\"name\":\"sparse_mla\","
        "\"unpinned\":true,\"config\":{\"kv_dtype\":\"f32\"},"
        "\"on_layout_change\":\"drain\",\"timeout_ms\":60000}";
    struct server s;
    struct client a, b;
    struct seam_buf event = { 0 };
    struct reply r;
    char head[256];

    server_open(&s, NULL);
    client_open(&a, s.url);
    client_put_post(&a, "/v1/chat/completions", stream);
    client_stream(&a, &r);
    reply_release(&r);
    cr_assert(client_event(&a, &event, NULL));
    client_open(&b, s.url);
    snprintf(head, sizeof head,
             "POST /admin/plugins HTTP/1.1\r\nHost: t\r\nX-Api-Key: k\r\n"
             "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
             strlen(drain));
    client_puts(&b, head);
    client_puts(&b, drain);
    /* Something of the stream comes while the swap is under way. */
    cr_assert(client_event(&a, &event, NULL));
    process_signal(&s.p, SIGTERM);
    cr_assert(process_until(&s.p, "draining"));
    if (client_reply(&b, &r)) {
        cr_expect(r.status == 503 || r.status == 200, "%d", r.status);
        reply_release(&r);
    }
    client_close(&b);
    while (client_event(&a, &event, NULL))
        ;
    seam_buf_release(&event);
    client_close(&a);
    server_close(&s);
}

/* Who was told to go on with its request is not left without an answer. */
Test(sigterm, answers_a_request_whose_body_is_on_its_way)
{
    static const char *const args[] = { "--set",
                                        "server.drain_timeout_ms=250000",
                                        "--set",
                                        "server.body_timeout_ms=250000", NULL };
    static const char body[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}";
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    struct seam_buf b = { 0 };
    struct process p;
    struct client c;
    struct reply r;
    char url[64];

    process_serve(&p, args, url);
    client_open(&c, url);
    seam_buf_fmt(&b,
                 "POST /v1/chat/completions HTTP/1.1\r\nHost: t\r\n"
                 "Expect: 100-continue\r\nContent-Length: %zu\r\n\r\n",
                 sizeof body - 1);
    client_puts(&c, b.p);
    while (c.in.n < sizeof go_on - 1)
        cr_assert(client_more(&c));
    cr_assert_eq(c.in.n, sizeof go_on - 1, "%s", c.in.p);
    seam_buf_release(&c.in);
    process_signal(&p, SIGTERM);
    cr_assert(process_until(&p, "SIGTERM: draining"));
    for (int i = 0; i < 100; i++) { /* so long it would not have stayed */
        client_get(url, "/livez", &r);
        cr_assert_eq(r.status, 200);
        reply_release(&r);
    }
    client_puts(&c, body);
    cr_assert(client_reply(&c, &r), "no answer");
    cr_expect_eq(r.status, 503, "%s", r.body.p);
    cr_expect_str_eq(json_string_value(reply_at(&r, "error", "code", NULL)),
                     "draining");
    reply_release(&r);
    client_close(&c);
    seam_buf_release(&b);
    process_finish(&p);
    cr_expect_eq(p.status, 0, "%d, %s", p.status, p.err_text.p);
    process_release(&p);
}
