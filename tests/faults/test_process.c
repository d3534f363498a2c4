/* The program under signals and beside a plugin that hangs: what its clients
 * and its supervisor see.  A FIFO tells the plugin to go on. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/cli/process.h"
#include "tests/http/client.h"
#include "tests/support/folder.h"

#define NANO       SEAM_TEST_SOURCE_DIR "/conf/nano.json"
#define PLUGIN_DIR "plugin_dir=" SEAM_TEST_PLUGIN_DIR
#define CHAT       "/v1/chat/completions"

/* How often the server is killed; by hand 100, see docs/reliability.md. */
#ifdef SEAM_TEST_QUICK
#define N_KILLS 2
#else
#define N_KILLS 6
#endif

struct served {
    char dir[64], fifo[96];
    struct process p;
    char url[64];
};

/* Wait until it listens, and learn where. */
static void listening(struct served *s)
{
    const char *at;

    cr_assert(process_until(&s->p, "listening on http://"), "%s",
              s->p.err_text.p);
    at = strstr(s->p.err_text.p, "listening on http://") + 13;
    snprintf(s->url, sizeof s->url, "%.*s", (int)strcspn(at, " \n"), at);
}

/* Start with the linear attention that has this fault; more are further
 * arguments, NULL-terminated, or NULL. */
static void start(struct served *s, const char *fault, const char *const *more)
{
    char config[512];
    const char *args[32] = { "serve", "-c", NANO, "--listen", "127.0.0.1:0" };
    static const char *const plugin[] = {
        PLUGIN_DIR,
        "plugin_paths=[\"" FAULT_DIR "\"]",
        "plugins.linear_attention.name=fault_linear",
        "plugins.linear_attention.file=" FAULT_DIR "/fault_linear.so",
    };
    int n = 5;

    snprintf(s->dir, sizeof s->dir, "/tmp/seam-faults-XXXXXX");
    cr_assert_not_null(mkdtemp(s->dir));
    snprintf(s->fifo, sizeof s->fifo, "%s/go", s->dir);
    cr_assert_eq(mkfifo(s->fifo, 0600), 0);
    for (int i = 0; i < 4; i++) {
        args[n++] = "--set";
        args[n++] = plugin[i];
    }
    snprintf(config, sizeof config,
             "plugins.linear_attention.config={%s,\"fifo\":\"%s\"}", fault,
             s->fifo);
    args[n++] = "--set";
    args[n++] = config;
    while (more && *more)
        args[n++] = *more++;
    args[n] = NULL;
    process_start(&s->p, args, NULL);
    listening(s);
}

/* The plugin goes on. */
static void go_on(struct served *s)
{
    int fd = open(s->fifo, O_WRONLY | O_CLOEXEC);

    cr_assert_geq(fd, 0, "%s: %s", s->fifo, strerror(errno));
    close(fd);
}

static void finish(struct served *s, int status)
{
    process_finish(&s->p);
    cr_expect_eq(s->p.status, status, "status %d, expected %d: %s", s->p.status,
                 status, s->p.err_text.p);
    process_release(&s->p);
    unlink(s->fifo);
    rmdir(s->dir);
}

/* A stream of max_tokens about so many words, begun: its head is there. */
static void begin(struct client *c, const char *url, int words, int max_tokens)
{
    struct seam_buf body = { 0 };
    struct reply r;

    seam_buf_str(&body, "{\"messages\":[{\"role\":\"user\",\"content\":\"");
    for (int i = 0; i < words; i++)
        seam_buf_str(&body, "word ");
    seam_buf_fmt(&body,
                 "\"}],\"stream\":true,\"temperature\":0,"
                 "\"ignore_eos\":true,\"max_tokens\":%d}",
                 max_tokens);
    client_open(c, url);
    client_put_post(c, CHAT, body.p);
    client_stream(c, &r);
    reply_release(&r);
    seam_buf_release(&body);
}

/* To the end of the stream: what came, and whether it ended as it should. */
static bool end(struct client *c, struct seam_buf *all)
{
    struct seam_buf event = { 0 };
    bool done = false;

    while (client_event(c, &event, NULL)) {
        done = strstr(event.p, "[DONE]") != NULL;
        seam_buf_fmt(all, "%s\n", event.p);
    }
    seam_buf_release(&event);
    client_close(c);
    return done;
}

static int status_of(const char *url, const char *path)
{
    struct reply r;
    int status;

    client_get(url, path, &r);
    status = r.status;
    reply_release(&r);
    return status;
}

/* ---- A hanging plugin (EX-3 a) ------------------------------------------- */

Test(process, the_watchdog_names_plugin_and_layer_and_health_comes_back)
{
    static const char *const stall[] = { "--set", "server.stall_timeout_ms=400",
                                         NULL };
    struct seam_buf all = { 0 };
    struct client c;
    struct served s;

    start(&s, "\"fault\":\"hang\",\"call\":3,\"layer\":4", stall);
    cr_assert(process_until(&s.p, "ready after"));
    begin(&c, s.url, 4, 6);
    cr_assert(process_until(&s.p, "the fault hangs"));
    cr_assert(process_until(&s.p, "it is in plugin fault_linear, layer 5"),
              "%s", s.p.err_text.p);
    /* A slow machine may have been late in that layer before. */
    while (status_of(s.url, "/health") == 200)
        ;
    cr_expect_eq(status_of(s.url, "/health"), 503);
    cr_expect_eq(status_of(s.url, "/livez"), 503);
    cr_expect_eq(status_of(s.url, "/readyz"), 503);
    go_on(&s);
    cr_expect(end(&c, &all), "the stream was cut: %s", all.p);
    cr_expect_null(strstr(all.p, "\"error\""));
    cr_assert(process_until(&s.p, "steps end again"), "%s", s.p.err_text.p);
    while (status_of(s.url, "/readyz") != 200) /* the test has a limit */
        ;
    process_signal(&s.p, SIGTERM);
    finish(&s, 0);
    seam_buf_release(&all);
}

Test(process, a_plugin_that_hangs_too_long_ends_the_process)
{
    static const char *const limits[] = { "--set",
                                          "server.stall_timeout_ms=500",
                                          "--set", "server.stall_abort_ms=4000",
                                          NULL };
    struct seam_buf all = { 0 };
    struct client c;
    struct served s;

    start(&s, "\"fault\":\"hang\",\"call\":1,\"layer\":0", limits);
    cr_assert(process_until(&s.p, "ready after"));
    begin(&c, s.url, 4, 6);
    process_finish(&s.p);
    cr_expect_eq(s.p.status, 128 + SIGABRT, "status %d", s.p.status);
    cr_expect_not_null(
        strstr(s.p.err_text.p, "aborting in plugin fault_linear, layer 0"),
        "%s", s.p.err_text.p);
    cr_expect_not(end(&c, &all), "a stream that was cut seems complete");
    process_release(&s.p);
    unlink(s.fifo);
    rmdir(s.dir);
    seam_buf_release(&all);
}

/* EX-3 c: who runs and who waits gets an error, and the process ends with a
 * status that a supervisor sees. */
Test(process, a_lost_device_ends_everything_with_an_error)
{
    static const char *const one[] = { "--set", "engine.max_seqs=1", NULL };
    struct seam_buf all[2] = { { 0 }, { 0 } };
    struct client c[2];
    struct served s;

    start(&s, "\"fault\":\"lost\",\"call\":8,\"layer\":3", one);
    cr_assert(process_until(&s.p, "ready after"));
    for (int i = 0; i < 2; i++)
        begin(&c[i], s.url, 4, 40);
    for (int i = 0; i < 2; i++) {
        end(&c[i], &all[i]);
        cr_expect_not_null(strstr(all[i].p, "\"error\""), "stream %d: %s", i,
                           all[i].p);
    }
    cr_expect_not_null(strstr(all[0].p, "plugin fault_linear, layer 4"), "%s",
                       all[0].p);
    finish(&s, 1);
    for (int i = 0; i < 2; i++)
        seam_buf_release(&all[i]);
}

/* One that hangs on its way in: the other one serves, and the log names it. */
Test(process, a_swap_that_hangs_is_named_and_holds_up_nobody)
{
    static const char *const more[] = { "--set", "server.stall_timeout_ms=400",
                                        "--set", "server.admin_key=k", NULL };
    static const char entry[] =
        "{\"role\":\"linear_attention\",\"name\":\"fault_linear\","
        "\"file\":\"" FAULT_DIR "/fault_linear.so\",\"unpinned\":true,"
        "\"config\":{\"fault\":\"create_hang\",\"fifo\":\"%s\"},"
        "\"timeout_ms\":%d}";
    struct seam_buf all = { 0 };
    struct client c, admin;
    struct served s;
    struct reply r;
    char body[512], head[256];

    start(&s, "\"fault\":\"none\"", more);
    cr_assert(process_until(&s.p, "ready after"));
    snprintf(body, sizeof body, entry, s.fifo, 600000);
    snprintf(head, sizeof head,
             "POST /admin/plugins HTTP/1.1\r\nHost: t\r\nX-Api-Key: k\r\n"
             "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
             strlen(body));
    client_open(&admin, s.url);
    client_puts(&admin, head);
    client_puts(&admin, body);
    cr_assert(process_until(&s.p, "the fault hangs"), "%s", s.p.err_text.p);
    cr_assert(process_until(&s.p, "hangs in create of plugin fault_linear"),
              "%s", s.p.err_text.p);
    begin(&c, s.url, 4, 6);
    cr_expect(end(&c, &all), "the stream was cut: %s", all.p);
    cr_expect_null(strstr(all.p, "\"error\""));
    cr_expect_eq(status_of(s.url, "/readyz"), 200);
    go_on(&s);
    cr_assert(client_reply(&admin, &r));
    cr_expect_eq(r.status, 200, "%s", r.body.p);
    reply_release(&r);
    client_close(&admin);
    process_signal(&s.p, SIGTERM);
    finish(&s, 0);
    seam_buf_release(&all);
}

/* ---- SIGTERM ------------------------------------------------------------- */

Test(process, sigterm_while_loading_ends_at_the_next_point_of_loading)
{
    struct served s;

    start(&s, "\"fault\":\"create_hang\"", NULL);
    cr_assert(process_until(&s.p, "the fault hangs"));
    cr_expect_eq(status_of(s.url, "/livez"), 200);
    cr_expect_eq(status_of(s.url, "/readyz"), 503);
    process_signal(&s.p, SIGTERM);
    cr_assert(process_until(&s.p, "draining"), "%s", s.p.err_text.p);
    go_on(&s);
    finish(&s, 0);
}

/* EX-4: loading hangs for good; the second signal needs nobody's help. */
Test(process, a_second_sigterm_ends_a_load_that_hangs)
{
    struct served s;

    start(&s, "\"fault\":\"create_hang\"", NULL);
    cr_assert(process_until(&s.p, "the fault hangs"));
    process_signal(&s.p, SIGTERM);
    cr_assert(process_until(&s.p, "draining"));
    process_signal(&s.p, SIGTERM);
    finish(&s, 128 + SIGTERM);
}

/* The step under way hangs, in the prompt (its second chunk) or the answer,
 * when the signal comes; the stream still gets all its tokens. */
static void sigterm_in(int words, int call)
{
    static const char *const chunks[] = { "--set", "engine.max_step_tokens=64",
                                          "--set",
                                          "server.drain_timeout_ms=600000",
                                          NULL };
    struct seam_buf all = { 0 };
    struct client c;
    struct served s;
    char fault[64];

    snprintf(fault, sizeof fault, "\"fault\":\"hang\",\"call\":%d", call);
    start(&s, fault, chunks);
    cr_assert(process_until(&s.p, "ready after"));
    begin(&c, s.url, words, 12);
    cr_assert(process_until(&s.p, "the fault hangs"));
    process_signal(&s.p, SIGTERM);
    cr_assert(process_until(&s.p, "draining"));
    cr_expect_eq(status_of(s.url, "/readyz"), 503);
    cr_expect_eq(status_of(s.url, "/livez"), 200);
    go_on(&s);
    cr_expect(end(&c, &all), "the stream was cut: %s", all.p);
    cr_expect_not_null(strstr(all.p, "\"finish_reason\":\"length\""), "%s",
                       all.p);
    finish(&s, 0);
    seam_buf_release(&all);
}

Test(process, sigterm_in_prefill_lets_the_answer_end)
{
    sigterm_in(150, 2);
}

Test(process, sigterm_in_decode_lets_the_answer_end)
{
    sigterm_in(4, 5);
}

/* It hangs beyond the drain: the client's stream ends without [DONE], and the
 * process does not wait for the plugin. */
Test(process, sigterm_beside_a_plugin_that_hangs_for_good_ends_in_time)
{
    static const char *const drain[] = { "--set", "server.drain_timeout_ms=200",
                                         NULL };
    struct seam_buf all = { 0 };
    struct client c;
    struct served s;

    start(&s, "\"fault\":\"hang\",\"call\":3", drain);
    cr_assert(process_until(&s.p, "ready after"));
    begin(&c, s.url, 4, 12);
    cr_assert(process_until(&s.p, "the fault hangs"));
    process_signal(&s.p, SIGTERM);
    cr_assert(process_until(&s.p, "are cut"), "%s", s.p.err_text.p);
    process_signal(&s.p, SIGTERM); /* who will not wait for the last resort */
    finish(&s, 128 + SIGTERM);
    cr_expect_not(end(&c, &all));
    seam_buf_release(&all);
}

/* ---- SIGTERM while a prefix is written ----------------------------------- */

/* An answer to a prompt that is long enough to be kept. */
static void long_answer(const char *url, struct seam_buf *out)
{
    struct seam_buf body = { 0 };
    struct reply r;
    char *message;

    seam_buf_str(&body, "{\"messages\":[{\"role\":\"user\",\"content\":\"");
    for (int i = 0; i < 300; i++)
        seam_buf_str(&body, "word ");
    seam_buf_str(&body, "\"}],\"temperature\":0,\"max_tokens\":8}");
    client_post(url, CHAT, body.p, &r);
    cr_assert_eq(r.status, 200, "%s", r.body.p);
    message = json_dumps(reply_at(&r, "choices", "0", "message", NULL),
                         JSON_SORT_KEYS);
    seam_buf_clear(out);
    seam_buf_str(out, message);
    free(message);
    reply_release(&r);
    seam_buf_release(&body);
}

static unsigned n_files(const char *path, const char *prefix)
{
    DIR *d = opendir(path);
    struct dirent *e;
    unsigned n = 0;

    cr_assert_not_null(d, "%s", path);
    while ((e = readdir(d)))
        n += e->d_name[0] != '.' && !strncmp(e->d_name, prefix, strlen(prefix));
    closedir(d);
    return n;
}

/* The first file is being written when the signal comes, again if twice. */
static void sigterm_in_write(bool twice)
{
    char prefix[96], prefix_set[128], fifo_env[112];
    const char *args[] = { "serve",
                           "-c",
                           NANO,
                           "--set",
                           PLUGIN_DIR,
                           "--listen",
                           "127.0.0.1:0",
                           "--set",
                           prefix_set,
                           "--set",
                           "engine.prefix_interval=64",
                           NULL };
    const char *env[] = { fifo_env, NULL };
    struct seam_buf want = { 0 }, got = { 0 };
    struct served s = { .dir = "/tmp/seam-faults-XXXXXX" };

    cr_assert_not_null(mkdtemp(s.dir));
    snprintf(s.fifo, sizeof s.fifo, "%s/go", s.dir);
    cr_assert_eq(mkfifo(s.fifo, 0600), 0);
    snprintf(prefix, sizeof prefix, "%s/prefix", s.dir);
    snprintf(prefix_set, sizeof prefix_set, "engine.prefix_dir=%s", prefix);
    snprintf(fifo_env, sizeof fifo_env, "SLOW_DISK=%s", s.fifo);
    process_start_other(&s.p, SLOW_DISK, args, env);
    listening(&s);
    cr_assert(process_until(&s.p, "ready after"), "%s", s.p.err_text.p);
    /* The answer does not wait for the disk. */
    long_answer(s.url, &want);
    cr_assert(process_until(&s.p, "the disk is slow"));
    cr_expect_eq(n_files(prefix, "seam-tmp-"), 1);
    process_signal(&s.p, SIGTERM);
    cr_assert(process_until(&s.p, "draining"));
    if (twice)
        process_signal(&s.p, SIGTERM);
    else
        go_on(&s);
    process_finish(&s.p);
    cr_expect_eq(s.p.status, twice ? 128 + SIGTERM : 0, "status %d: %s",
                 s.p.status, s.p.err_text.p);
    process_release(&s.p);

    /* The next start is clean, and what it finds is right. */
    process_start(&s.p, args, NULL);
    listening(&s);
    cr_assert(process_until(&s.p, "ready after"), "%s", s.p.err_text.p);
    cr_expect_null(strstr(s.p.err_text.p, "damaged"), "%s", s.p.err_text.p);
    cr_expect_eq(n_files(prefix, "seam-tmp-"), 0);
    cr_expect_eq(strstr(s.p.err_text.p, "/prefix: 0 snapshots") != NULL, twice,
                 "%s", s.p.err_text.p);
    long_answer(s.url, &got);
    cr_expect_str_eq(got.p, want.p);
    process_signal(&s.p, SIGTERM);
    process_finish(&s.p);
    cr_expect_eq(s.p.status, 0, "%s", s.p.err_text.p);
    process_release(&s.p);
    folder_remove(prefix);
    folder_remove(s.dir);
    seam_buf_release(&want);
    seam_buf_release(&got);
}

Test(process, sigterm_in_a_disk_write_lets_it_end)
{
    sigterm_in_write(false);
}

Test(process, a_second_sigterm_in_a_disk_write_leaves_nothing_wrong)
{
    sigterm_in_write(true);
}

/* ---- SIGKILL ------------------------------------------------------------- */

/* The whole answer of the unfailing server, as one text. */
static void answer(const char *url, struct seam_buf *out)
{
    struct reply r;

    client_post(url, CHAT,
                "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],"
                "\"temperature\":0,\"max_tokens\":16}",
                &r);
    cr_assert_eq(r.status, 200, "%s", r.body.p);
    seam_buf_clear(out);
    seam_buf_str(out, json_string_value(reply_at(&r, "choices", "0", "message",
                                                 "content", NULL))
                          ? "c:"
                          : "r:");
    {
        char *message = json_dumps(
            reply_at(&r, "choices", "0", "message", NULL), JSON_SORT_KEYS);

        seam_buf_str(out, message);
        free(message);
    }
    reply_release(&r);
}

/* Killed at a point that events decide: while loading, when ready, or in the
 * k-th event of a stream.  The next start takes the same port, at once. */
Test(process, after_sigkill_anywhere_the_next_start_is_clean)
{
    static const char *const loading[] = { "listening on", "ready after" };
    const char *env = getenv("SEAM_TEST_KILLS");
    int kills = env ? (int)strtol(env, NULL, 10) : N_KILLS;
    struct seam_buf want = { 0 }, got = { 0 }, event = { 0 };
    unsigned seed = 20261129;
    struct process p;
    char url[64], listen[64];

    process_serve(&p, NULL, url);
    answer(url, &want);
    process_signal(&p, SIGTERM);
    process_finish(&p);
    cr_assert_eq(p.status, 0);
    process_release(&p);
    snprintf(listen, sizeof listen, "%s", url + 7);
    for (int i = 0; i < kills; i++) {
        const char *args[] = { "serve",    "-c",       NANO,   "--set",
                               PLUGIN_DIR, "--listen", listen, NULL };
        int point = rand_r(&seed) % 24;
        struct client c = { .fd = -1 };

        process_start(&p, args, NULL);
        cr_assert(process_until(&p, loading[point > 0]), "run %d: %s", i,
                  p.err_text.p);
        if (point > 1) {
            begin(&c, url, 4, 40);
            for (int k = 2; k < point; k++)
                cr_assert(client_event(&c, &event, NULL));
        }
        process_signal(&p, SIGKILL);
        process_finish(&p);
        cr_assert_eq(p.status, 128 + SIGKILL);
        process_release(&p);
        if (c.fd >= 0)
            client_close(&c);

        process_start(&p, args, NULL);
        cr_assert(process_until(&p, "ready after"), "run %d, point %d: %s", i,
                  point, p.err_text.p);
        cr_expect_null(strstr(p.err_text.p, "error"), "%s", p.err_text.p);
        answer(url, &got);
        cr_expect_str_eq(got.p, want.p, "run %d, point %d", i, point);
        process_signal(&p, SIGTERM);
        process_finish(&p);
        cr_assert_eq(p.status, 0, "run %d: %s", i, p.err_text.p);
        process_release(&p);
    }
    seam_buf_release(&want);
    seam_buf_release(&got);
    seam_buf_release(&event);
}
