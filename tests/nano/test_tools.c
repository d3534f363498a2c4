/* Tool calls of the nano model on its 300 held-out prompts, against
 * models/nano/REFERENCE.md: rendered, generated and parsed as the server does. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/json.h"
#include "core/server/chat.h"

#define N_PROMPTS 300
#define N_READERS 8
#define POINTS    1.5 /* how far the rate may be from the reference's */

static const char tools_config[] =
    "{\"model\": {\"path\": \"%s/models/nano/%s\", \"max_context\": 2048},"
    " \"plugin_dir\": \"%s\","
    " \"engine\": {\"threads\": 2, \"max_seqs\": 8, \"max_step_tokens\": 256},"
    " \"plugins\": {"
    "  \"backend\": {\"name\": \"cpu%s\", \"unpinned\": true},"
    "  \"linear_attention\": {\"name\": \"kda%s\", \"unpinned\": true},"
    "  \"sparse_attention\": {\"name\": \"sparse_mla%s\", \"unpinned\": true},"
    "  \"moe\": {\"name\": \"moe_resident%s\", \"unpinned\": true},"
    "  \"parser\": {\"name\": \"glm47%s\", \"unpinned\": true}}}";

struct eval {
    struct seam_engine *e;
    json_t *row[N_PROMPTS];
    int n_rows;
    _Atomic int next, exact, failed;
};

/* The calls of one answer as they arrive. */
struct calls {
    json_t *list; /* [{"name", "arguments"}] of whole calls */
    struct seam_buf name, args;
};

static int calls_event(void *ctx, const struct seam_chat_event *ev)
{
    struct calls *c = ctx;
    struct seam_error err;

    switch (ev->kind) {
    case SEAM_CHAT_TOOL_BEGIN:
        seam_buf_clear(&c->name);
        seam_buf_clear(&c->args);
        seam_buf_add(&c->name, ev->text.p, ev->text.n);
        break;
    case SEAM_CHAT_TOOL_ARGS:
        seam_buf_add(&c->args, ev->text.p, ev->text.n);
        break;
    case SEAM_CHAT_TOOL_END: {
        json_t *args =
            seam_json_parse(c->args.p, c->args.n, "arguments", 0, &err);

        if (!args)
            return 1;
        json_array_append_new(c->list, json_pack("{s:s, s:o}", "name",
                                                 c->name.p, "arguments", args));
        break;
    }
    default:
        break;
    }
    return 0;
}

static int calls_poll(void *ctx)
{
    (void)ctx;
    return 0;
}

/* The calls the model makes for a row, or NULL when something failed. */
static json_t *eval_calls(struct eval *v, json_t *row)
{
    struct seam_request_limits limits = { .vocab = seam_engine_vocab(v->e),
                                          .max_n = 1 };
    struct calls c = { .list = json_array() };
    struct seam_chat_sink sink = {
        .ctx = &c, .event = calls_event, .poll = calls_poll, .poll_ms = 1000
    };
    struct seam_request r;
    struct seam_api_error err;
    struct seam_chat *chat = NULL;
    char *text = NULL;
    json_t *body =
        json_pack("{s:O, s:O, s:i, s:i, s:{s:O, s:O}}", "messages",
                  json_object_get(row, "messages"), "tools",
                  json_object_get(row, "tools"), "temperature", 0, "max_tokens",
                  220, "chat_template_kwargs", "enable_thinking",
                  json_object_get(row, "enable_thinking"), "reasoning_effort",
                  json_object_get(row, "reasoning_effort"));
    bool ok = false;

    if (!seam_request_read(&r, SEAM_REQUEST_CHAT, body, &limits, &err)) {
        text = seam_chat_text(&r);
        ok = text &&
             !seam_chat_open(&chat, v->e, &r,
                             (struct seam_str){ text, strlen(text) }, &err) &&
             !seam_chat_run(chat, &sink, &err);
        seam_chat_free(chat);
        free(text);
        seam_request_release(&r);
    }
    json_decref(body);
    seam_buf_release(&c.name);
    seam_buf_release(&c.args);
    if (ok)
        return c.list;
    json_decref(c.list);
    return NULL;
}

static void *eval_reader(void *arg)
{
    struct eval *v = arg;
    int i;

    while ((i = atomic_fetch_add(&v->next, 1)) < v->n_rows) {
        json_t *got = eval_calls(v, v->row[i]);

        if (!got)
            atomic_fetch_add(&v->failed, 1);
        else if (json_equal(got, json_object_get(v->row[i], "expected")))
            atomic_fetch_add(&v->exact, 1);
        json_decref(got);
    }
    return NULL;
}

static void eval_load(struct eval *v, int n_rows)
{
    FILE *f = fopen(SEAM_TEST_SOURCE_DIR "/models/nano/eval_tools.jsonl", "r");
    struct seam_error err;
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;

    cr_assert_not_null(f);
    while (v->n_rows < n_rows && (n = getline(&line, &cap, f)) > 0) {
        v->row[v->n_rows] = seam_json_parse(line, (size_t)n, "eval", 0, &err);
        cr_assert_not_null(v->row[v->n_rows], "%s", err.text);
        v->n_rows++;
    }
    free(line);
    fclose(f);
    cr_assert_eq(v->n_rows, n_rows);
}

/* Rate of exact answers over the first n prompts, in percent. */
static double accuracy(bool ref, bool w4a16, int n)
{
    static char *no_env[] = { NULL };
    struct seam_log log = { .fd = STDERR_FILENO, .level = SEAM_LOG_ERROR };
    const char *s = ref ? "_ref" : "";
    struct seam_config config;
    struct seam_engine_opts o = { .config = &config, .log = &log };
    struct eval v = { 0 };
    struct seam_error err;
    pthread_t reader[N_READERS];
    char text[4096];
    int len =
        snprintf(text, sizeof text, tools_config, SEAM_TEST_SOURCE_DIR,
                 w4a16 ? "w4a16" : "bf16", SEAM_TEST_PLUGIN_DIR, s, s, s, s, s);

    cr_assert_eq(seam_config_parse(&config, "tools.json", text, (size_t)len,
                                   no_env, NULL, 0, &err),
                 0, "%s", err.text);
    cr_assert_eq(seam_engine_start(&v.e, &o, &err), 0, "%s", err.text);
    cr_assert_eq(seam_engine_wait_loaded(v.e, -1, &err), SEAM_ENGINE_READY,
                 "%s", err.text);
    eval_load(&v, n);
    for (int i = 0; i < N_READERS; i++)
        cr_assert_eq(pthread_create(&reader[i], NULL, eval_reader, &v), 0);
    for (int i = 0; i < N_READERS; i++)
        pthread_join(reader[i], NULL);
    for (int i = 0; i < n; i++)
        json_decref(v.row[i]);
    seam_engine_stop(v.e);
    seam_engine_free(v.e);
    seam_config_release(&config);
    cr_expect_eq(v.failed, 0, "%d requests failed", v.failed);
    printf("nano %-7s %-5s tool calls: %d of %d exact, %.1f %%\n",
           ref ? "ref" : "default", w4a16 ? "w4a16" : "bf16", v.exact, n,
           100.0 * v.exact / n);
    return 100.0 * v.exact / n;
}

#ifdef SEAM_TEST_FULL

Test(tools, default_bf16_calls_as_the_reference)
{
    cr_expect_float_eq(accuracy(false, false, N_PROMPTS), 91.0, POINTS);
}

Test(tools, default_w4a16_calls_as_the_reference)
{
    cr_expect_float_eq(accuracy(false, true, N_PROMPTS), 90.3, POINTS);
}

#endif

/* The reference plugins generate the same tokens and take half an hour for all
 * prompts, so that by default a sample has to do: as many exact answers as the
 * default plugins give. */
#ifdef SEAM_TEST_SLOW

Test(tools, ref_bf16_calls_as_the_reference)
{
    cr_expect_float_eq(accuracy(true, false, N_PROMPTS), 91.0, POINTS);
}

Test(tools, ref_w4a16_calls_as_the_reference)
{
    cr_expect_float_eq(accuracy(true, true, N_PROMPTS), 90.3, POINTS);
}

#else

Test(tools, ref_calls_as_the_default_on_a_sample)
{
    enum { SAMPLE = 6 };
    double want = accuracy(false, true, SAMPLE);

    cr_expect_eq(accuracy(true, true, SAMPLE), want);
}

#endif
