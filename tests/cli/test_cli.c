/* The program as its user meets it: what it says, and how it ends. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/cli/process.h"
#include "tests/http/client.h"
#include "tests/support/folder.h"

#define NANO       SEAM_TEST_SOURCE_DIR "/conf/nano.json"
#define PLUGIN_DIR "plugin_dir=" SEAM_TEST_PLUGIN_DIR
#define ARGS(...)  ((const char *const[]){ __VA_ARGS__, NULL })

/* One run, and what it must say on which stream. */
static void says(const char *const *args, const char *const *env, int status,
                 const char *out, const char *err)
{
    struct process p;

    process_run(&p, args, env);
    cr_expect_eq(p.status, status, "exit status %d, expected %d; %s", p.status,
                 status, p.err_text.p);
    if (out)
        cr_expect_not_null(strstr(p.out_text.p, out), "no \"%s\" in: %s", out,
                           p.out_text.p);
    if (err)
        cr_expect_not_null(strstr(p.err_text.p, err), "no \"%s\" in: %s", err,
                           p.err_text.p);
    process_release(&p);
}

Test(cli, helps_and_refuses_what_it_does_not_know)
{
    says(ARGS("help"), NULL, 0, "seam serve -c FILE", NULL);
    says(ARGS("--version"), NULL, 0, "plugin ABI 0.1", NULL);
    says(ARGS("serve", "--help"), NULL, 0, "seam serve -c FILE", NULL);
    says(ARGS("run", "-h"), NULL, 0, "seam run -c FILE", NULL);
    says(ARGS("bench", "--help"), NULL, 0, "bench", NULL);
    says(ARGS("srve"), NULL, 2, NULL, "unknown command 'srve'");
    says(ARGS("serve", "--lisen", "x"), NULL, 2, NULL, "'--lisen'");
    says(ARGS("serve", "-c"), NULL, 2, NULL, "-c: expected a value");
    says(ARGS("run", "-c", NANO), NULL, 2, NULL, "expected a prompt");
    says(ARGS("inspect"), NULL, 2, NULL, "expected a checkpoint folder");
}

Test(cli, settings_have_origins_and_misspelt_ones_stop_the_start)
{
    says(ARGS("serve", "-c", NANO, "--print-config", "--set",
              "engine.max_seqs=3"),
         ARGS("SEAM_LOG_LEVEL=debug"), 0, "engine.max_seqs = 3", NULL);
    says(ARGS("serve", "-c", NANO, "--print-config"),
         ARGS("SEAM_LOG_LEVEL=debug"), 0, "env SEAM_LOG_LEVEL", NULL);
    says(ARGS("serve", "-c", NANO), ARGS("SEAM_LOG_LEVLE=debug"), 1, NULL,
         "SEAM_LOG_LEVEL");
    says(ARGS("serve", "-c", NANO, "--set", "engine.max_seq=3"), NULL, 1, NULL,
         "engine.max_seqs");
    says(ARGS("serve", "-c", "/nonexistent.json"), NULL, 1, NULL,
         "/nonexistent.json");
    says(ARGS("serve"), NULL, 1, NULL, "model.path");
}

/* The small model by links, but for the file `name`, which holds text. */
static void model_with(char *dir, const char *name, const char *text)
{
    const char *model = SEAM_TEST_SOURCE_DIR "/models/nano/w4a16";
    DIR *d = opendir(model);
    char from[1024], to[1024];
    struct dirent *e;
    FILE *f;

    cr_assert_not_null(mkdtemp(dir));
    cr_assert_not_null(d);
    while ((e = readdir(d))) {
        snprintf(from, sizeof from, "%s/%s", model, e->d_name);
        snprintf(to, sizeof to, "%s/%s", dir, e->d_name);
        if (e->d_name[0] != '.' && strcmp(e->d_name, name) != 0)
            cr_assert_eq(symlink(from, to), 0);
    }
    closedir(d);
    snprintf(to, sizeof to, "%s/%s", dir, name);
    f = fopen(to, "w");
    cr_assert_not_null(f);
    fputs(text, f);
    cr_assert_eq(fclose(f), 0);
}

Test(cli, what_stops_the_start_is_named_with_its_file_and_key)
{
    char dir[] = "/tmp/seam-cli-XXXXXX";

    says(ARGS("serve", "-c", NANO, "--set", PLUGIN_DIR, "--listen",
              "127.0.0.1:0", "--trace", "/nonexistent/x"),
         NULL, 1, NULL, "engine.trace: /nonexistent/x: cannot write");
    model_with(dir, "generation_config.json",
               "{\"eos_token_id\": [1, 99999999]}");
    says(ARGS("serve", "-c", NANO, "--set", PLUGIN_DIR, "--listen",
              "127.0.0.1:0", "--model", dir),
         NULL, 1, NULL,
         "/generation_config.json: eos_token_id: is 99999999, expected 0 to");
    folder_remove(dir);
}

Test(cli, inspect_prints_the_plan)
{
    says(ARGS("inspect", SEAM_TEST_SOURCE_DIR "/models/nano/w4a16"), NULL, 0,
         "1108 indexed in 2 files", NULL);
    says(ARGS("inspect", SEAM_TEST_SOURCE_DIR "/models/nano/w4a16", "--dense",
              "int8"),
         NULL, 0, "weights.dense", NULL);
    says(ARGS("inspect", SEAM_TEST_SOURCE_DIR "/models/nano/w4a16", "--dense",
              "int2"),
         NULL, 2, NULL, "--dense needs bf16, int8 or int4, not");
    says(ARGS("inspect", "/nonexistent"), NULL, 1, NULL, "/nonexistent");
    says(ARGS("inspect", SEAM_TEST_SOURCE_DIR "/models/nano/bf16", "--budget",
              "1GiB"),
         NULL, 0, "budget 1073741824", NULL);
    says(ARGS("inspect", SEAM_TEST_SOURCE_DIR "/models/nano/bf16", "--budget",
              "much"),
         NULL, 2, NULL, "--budget");
}

Test(cli, plugins_shows_verdicts)
{
    says(ARGS("plugins", "-c", NANO, "--set", PLUGIN_DIR), NULL, 0,
         "sparse_mla", NULL);
    says(ARGS("plugins", "-c", NANO, "--set", PLUGIN_DIR, "--set",
              "plugins.moe.name=moe_residentt"),
         NULL, 1, "moe_residentt.so", NULL);
}

Test(cli, a_pin_is_printed_and_kept)
{
    struct process p;
    char set[128], *sha;

    process_run(&p, ARGS("pin", SEAM_TEST_PLUGIN_DIR "/kda.so"), NULL);
    cr_assert_eq(p.status, 0, "%s", p.err_text.p);
    sha = strstr(p.out_text.p, "\"sha256\": \"");
    cr_assert_not_null(sha);
    snprintf(set, sizeof set, "plugins.linear_attention.sha256=%.64s",
             sha + 11);
    says(ARGS("plugins", "-c", NANO, "--set", PLUGIN_DIR, "--set",
              "plugins.linear_attention.unpinned=false", "--set", set),
         NULL, 0, "kda", NULL);
    set[strlen(set) - 1] = set[strlen(set) - 1] == '0' ? '1' : '0';
    says(ARGS("plugins", "-c", NANO, "--set", PLUGIN_DIR, "--set",
              "plugins.linear_attention.unpinned=false", "--set", set),
         NULL, 1, "the configuration pins", NULL);
    says(ARGS("pin", NANO), NULL, 1, NULL, "not an ELF file");
    process_release(&p);
}

Test(cli, run_answers_in_the_terminal)
{
    says(ARGS("run", "-c", NANO, "--set", PLUGIN_DIR, "-p", "What is a mutex?",
              "--temperature", "0", "--max-tokens", "64"),
         NULL, 0, "glm5-next-nano", "prompt tokens");
    says(ARGS("run", "-c", NANO, "--set", PLUGIN_DIR, "--raw", "-p", "The",
              "--temperature", "0", "--max-tokens", "4"),
         NULL, 0, NULL, "4 generated");
    says(ARGS("run", "-c", NANO, "--set", PLUGIN_DIR, "-p", "x",
              "--temperature", "9"),
         NULL, 1, NULL, "temperature");
}

Test(cli, run_gives_no_figure_that_it_cannot_know)
{
    struct process p;

    process_run(&p,
                ARGS("run", "-c", NANO, "--set", PLUGIN_DIR, "--raw", "-p",
                     "The", "--temperature", "0", "--max-tokens", "1"),
                NULL);
    cr_expect_eq(p.status, 0, "%s", p.err_text.p);
    cr_expect_not_null(strstr(p.err_text.p, "1 generated"), "%s", p.err_text.p);
    cr_expect_null(strstr(p.err_text.p, "tokens/s"), "%s", p.err_text.p);
    process_release(&p);
}

Test(cli, run_refuses_a_prompt_that_is_no_text)
{
    says(ARGS("run", "-c", NANO, "-p", "\xff"), NULL, 1, NULL,
         "not valid UTF-8");
    says(ARGS("run", "-c", NANO, "--system", "\xff", "-p", "x"), NULL, 1, NULL,
         "not valid UTF-8");
    says(ARGS("run", "-c", NANO, "--raw", "-p", "\xff"), NULL, 1, NULL,
         "not valid UTF-8");
}

Test(cli, a_trace_of_a_run_is_written)
{
    char path[] = "/tmp/seam-trace-XXXXXX";
    int fd = mkstemp(path);
    json_t *events;

    cr_assert(fd >= 0);
    close(fd);
    says(ARGS("run", "-c", NANO, "--set", PLUGIN_DIR, "-p", "x",
              "--temperature", "0", "--max-tokens", "8", "--trace", path),
         NULL, 0, NULL, "prompt tokens");
    events = json_load_file(path, 0, NULL);
    cr_assert_not_null(events, "the trace is no JSON");
    cr_expect_gt(json_array_size(events), 100);
    json_decref(events);
    unlink(path);
}

/* The figure of models/nano/REFERENCE.md for whole rows is test_nano's; here, a
 * part of it, and what is said of wrong use. */
Test(cli, eval_prints_the_perplexity_of_a_text)
{
    const char *text = SEAM_TEST_SOURCE_DIR "/models/nano/eval_text.txt";

    says(ARGS("eval", "ppl", text, "-c", NANO, "--set", PLUGIN_DIR, "--window",
              "100", "--rows", "2"),
         NULL, 0, "2 rows of 100 tokens, 198 predictions", NULL);
    says(ARGS("eval", "ppl", text, "-c", NANO, "--set", PLUGIN_DIR, "--window",
              "16", "--rows", "1", "--json"),
         NULL, 0, "\"perplexity\": ", NULL);
    says(ARGS("eval", "ppl", text, "-c", NANO, "--set", PLUGIN_DIR, "--window",
              "30000"),
         NULL, 1, NULL, "--window");
    says(ARGS("eval", "ppl", text, "-c", NANO, "--window", "1"), NULL, 2, NULL,
         "from 2 on");
    says(ARGS("eval", "ppl", "/nonexistent", "-c", NANO, "--set", PLUGIN_DIR),
         NULL, 1, NULL, "/nonexistent");
    says(ARGS("eval", "bleu"), NULL, 2, NULL, "expected ppl FILE");
    says(ARGS("eval", "ppl"), NULL, 2, NULL, "expected a text file");
}

Test(cli, serve_tells_a_service_manager_what_it_is_doing)
{
    struct manager m;
    struct process p;

    manager_open(&m);
    process_start(&p,
                  ARGS("serve", "-c", NANO, "--listen", "127.0.0.1:0", "--set",
                       PLUGIN_DIR),
                  ARGS(m.env, "WATCHDOG_USEC=1000"));
    manager_until(&m, "READY=1");
    manager_until(&m, "WATCHDOG=1");
    process_signal(&p, SIGTERM);
    manager_until(&m, "STOPPING=1");
    process_finish(&p);
    cr_expect_eq(p.status, 0, "%s", p.err_text.p);
    process_release(&p);
    manager_close(&m);
}

Test(cli, serve_refuses_a_manager_that_is_not_there)
{
    says(ARGS("serve", "-c", NANO, "--listen", "127.0.0.1:0", "--set",
              PLUGIN_DIR),
         ARGS("NOTIFY_SOCKET=/nonexistent/notify"), 1, NULL,
         "NOTIFY_SOCKET /nonexistent/notify");
    says(ARGS("serve", "-c", NANO, "--listen", "127.0.0.1:0", "--set",
              PLUGIN_DIR),
         ARGS("NOTIFY_SOCKET=notify"), 1, NULL, "expected a path");
}

/* A plugin that the configuration needs and that is refused stops the start. */
Test(cli, a_refused_plugin_stops_the_start)
{
    says(ARGS("serve", "-c", NANO, "--listen", "127.0.0.1:0", "--set",
              PLUGIN_DIR, "--set", "plugins.parser.name=glm48"),
         NULL, 1, NULL, "glm48.so");
    says(ARGS("serve", "-c", NANO, "--listen", "127.0.0.1:0", "--set",
              PLUGIN_DIR, "--model", "/nonexistent"),
         NULL, 1, NULL, "/nonexistent");
}

Test(cli, a_port_in_use_is_refused_before_weights_are_read)
{
    struct process first;
    char url[64];

    process_serve(&first, NULL, url);
    says(ARGS("serve", "-c", NANO, "--set", PLUGIN_DIR, "--model",
              "/nonexistent", "--listen", url + 7),
         NULL, 1, NULL, url + 7);
    process_release(&first);
}

Test(cli, an_open_address_needs_a_key)
{
    says(
        ARGS("serve", "-c", NANO, "--set", PLUGIN_DIR, "--listen", "0.0.0.0:0"),
        NULL, 1, NULL, "--insecure");
}

/* ---- Signals ------------------------------------------------------------- */

static const char long_answer[] =
    "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"stream\":true,"
    "\"temperature\":0,\"ignore_eos\":true,\"max_tokens\":%d}";

/* A stream of max_tokens, begun. */
static void begin_stream(struct client *c, const char *url, int max_tokens)
{
    struct seam_buf event = { 0 };
    struct reply r;
    char body[256];

    snprintf(body, sizeof body, long_answer, max_tokens);
    client_open(c, url);
    client_put_post(c, "/v1/chat/completions", body);
    client_stream(c, &r);
    cr_assert(client_event(c, &event, NULL));
    seam_buf_release(&event);
    reply_release(&r);
}

/* Everything up to the end of the stream; true when it ended as it should. */
static bool end_stream(struct client *c)
{
    struct seam_buf event = { 0 };
    bool done = false;

    while (client_event(c, &event, NULL))
        done = event.p && strstr(event.p, "[DONE]");
    seam_buf_release(&event);
    client_close(c);
    return done;
}

Test(cli, an_idle_server_leaves_at_once_with_status_0)
{
    static const int signals[] = { SIGTERM, SIGINT };

    for (int i = 0; i < 2; i++) {
        struct process p;
        char url[64];

        process_serve(&p, NULL, url);
        process_signal(&p, signals[i]);
        process_finish(&p);
        cr_expect_eq(p.status, 0, "%s", p.err_text.p);
        cr_expect_not_null(strstr(p.err_text.p, "stopped"));
        process_release(&p);
    }
}

Test(cli, a_start_says_what_is_no_default_and_where_it_is_from)
{
    struct process p;
    char url[64];

    process_serve(&p, ARGS("--set", "server.admin_key=sesame"), url);
    cr_expect_not_null(strstr(p.err_text.p, "server.admin_key = \"(set)\""));
    cr_expect_not_null(strstr(p.err_text.p, "# flag --set"));
    cr_expect_not_null(strstr(p.err_text.p, "# file "));
    cr_expect_null(strstr(p.err_text.p, "sesame"));
    cr_expect_null(strstr(p.err_text.p, "engine.max_queue = "));
    process_signal(&p, SIGTERM);
    process_finish(&p);
    cr_expect_eq(p.status, 0, "%s", p.err_text.p);
    process_release(&p);
}

Test(cli, running_streams_end_before_the_server_does)
{
    struct process p;
    struct client c;
    char url[64];

    process_serve(&p, ARGS("--set", "server.drain_timeout_ms=600000"), url);
    begin_stream(&c, url, 300);
    process_signal(&p, SIGTERM);
    cr_assert(process_until(&p, "draining"));
    cr_expect(end_stream(&c), "the stream was cut");
    process_finish(&p);
    cr_expect_eq(p.status, 0, "%s", p.err_text.p);
    process_release(&p);
}

Test(cli, streams_that_outlast_the_drain_are_cut)
{
    struct process p;
    struct client c;
    char url[64];

    process_serve(&p, ARGS("--set", "server.drain_timeout_ms=50"), url);
    begin_stream(&c, url, 15000);
    process_signal(&p, SIGTERM);
    process_finish(&p);
    cr_expect_eq(p.status, 0, "%s", p.err_text.p);
    cr_expect_not_null(strstr(p.err_text.p, "are cut"), "%s", p.err_text.p);
    end_stream(&c);
    process_release(&p);
}

Test(cli, a_second_signal_ends_at_once)
{
    struct process p;
    struct client c;
    char url[64];

    process_serve(&p, NULL, url);
    begin_stream(&c, url, 15000);
    process_signal(&p, SIGTERM);
    cr_assert(process_until(&p, "draining"));
    process_signal(&p, SIGTERM);
    process_finish(&p);
    cr_expect_eq(p.status, 128 + SIGTERM, "status %d", p.status);
    client_close(&c);
    process_release(&p);
}
