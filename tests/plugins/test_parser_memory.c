/* The parser plugins with the n-th allocation failing, for each n: no crash, no
 * leak (under the address sanitizer), and either the whole result or ENOMEM.
 *
 * The program is linked with --wrap for malloc, calloc and realloc, so the
 * plugins' calls come here; so do the test's own, which run while nothing is to
 * fail. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parser_host.h"

extern const struct seam_plugin seam_plugin_glm47, seam_plugin_glm47_ref,
    seam_plugin_hermes, seam_plugin_none;

static const struct seam_plugin *const plugins[] = { &seam_plugin_glm47,
                                                     &seam_plugin_glm47_ref,
                                                     &seam_plugin_hermes,
                                                     &seam_plugin_none };
#define N_PLUGINS (sizeof plugins / sizeof *plugins)

static int countdown = -1; /* allocations until one fails; -1: none does      */
static bool failed;

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);

static bool fails(void)
{
    if (countdown < 0 || countdown-- > 0)
        return false;
    failed = true;
    return true;
}

void *__wrap_malloc(size_t n)
{
    return fails() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    return fails() ? NULL : __real_realloc(p, n);
}

/* Events are written down without allocating. */
struct record {
    char text[8192];
    size_t n;
};

static int record_event(void *ctx, uint32_t kind, uint32_t index, const char *p,
                        uint64_t n)
{
    struct record *r = ctx;

    (void)kind;
    (void)index;
    cr_assert_lt(r->n + n, sizeof r->text);
    if (n)
        memcpy(r->text + r->n, p, n);
    r->n += n;
    return 0;
}

static const char request[] =
    "{\"messages\":[{\"role\":\"system\",\"content\":[\"a\\n\",{\"type\":"
    "\"text\",\"text\":\"b\\u00e9\"}]},{\"role\":\"user\",\"content\":\"q\"},"
    "{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":"
    "\"r\"}],\"tool_calls\":[{\"id\":\"1\",\"function\":{\"name\":\"f\","
    "\"arguments\":\"{\\\"a\\\":[1.5,2],\\\"b\\\":\\\"x\\\"}\"}},{\"id\":\"2\","
    "\"function\":{\"name\":\"g\",\"arguments\":{\"a\":1,\"b\":2,\"c\":3,"
    "\"d\":4,\"e\":5,\"f\":6,\"g\":7,\"h\":8,\"i\":9}}}]},"
    "{\"role\":\"tool\",\"tool_call_id\":\"2\",\"content\":\"R2\"},"
    "{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"R1\"}],"
    "\"tools\":[{\"name\":\"f\",\"description\":\"d\\t\"},{\"name\":\"g\"}]}";

static const char tools[] =
    "[{\"name\":\"f\",\"parameters\":{\"$defs\":{\"x/y\":{\"enum\":[\"a\",1]}},"
    "\"properties\":{\"s\":{\"type\":\"string\"},\"o\":{\"type\":\"object\"},"
    "\"e\":{\"$ref\":\"#/$defs/x~1y\"},\"i\":{\"type\":\"integer\"}}}}]";

static const char output[] =
    "why</think> \n text <b <tool_call>f<arg_key>s</arg_key><arg_value>x\\\"y"
    "</arg_value> z</arg_value><arg_key>o</arg_key><arg_value>{'a': (1, 'b')}"
    "</arg_value><arg_key>e</arg_key><arg_value>1.0</arg_value><arg_key>i"
    "</arg_key><arg_value>'-07.0'</arg_value></tool_call>\n<tool_call>nope"
    "</tool_call><tool_call>fs</arg_key>q</tool_call><tool_call>\n{\"name\": "
    "\"f\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call>\xe6\x9d\xb1";

static int parse(struct phost *h, struct record *r)
{
    struct seam_parse_opts opts = {
        .size = sizeof opts,
        .tools = { tools, sizeof tools - 1 },
        .prompt_tail = { "<|assistant|><think>", 20 },
    };
    struct seam_sink sink = { .ctx = r, .event = record_event };
    struct seam_error err = { 0 };
    void *stream = NULL;
    int rc = h->parser->open(h->self, &opts, &sink, &stream, &err);

    if (rc) {
        cr_expect_eq(err.code, rc);
        cr_expect(err.text[0], "an error without a text");
        return rc;
    }
    for (size_t i = 0; i < sizeof output - 1 && !rc; i++)
        rc = h->parser->feed(stream, 0, NULL,
                             (struct seam_str){ output + i, 1 });
    if (!rc)
        rc = h->parser->finish(stream, SEAM_END_STOP);
    h->parser->close(stream);
    return rc;
}

static int render(struct phost *h, struct record *r)
{
    struct seam_sink sink = { .ctx = r, .event = record_event };
    struct seam_error err = { 0 };
    int rc = h->parser->render(
        h->self, (struct seam_str){ request, sizeof request - 1 }, &sink, &err);

    if (rc) {
        cr_expect_eq(err.code, rc);
        cr_expect(err.text[0], "an error without a text");
    }
    return rc;
}

static void quiet_log(void *ctx, uint32_t level, const char *msg)
{
    (void)ctx;
    (void)level;
    (void)msg;
}

static void each_allocation_fails(struct phost *h, const char *what,
                                  int (*run)(struct phost *, struct record *))
{
    static struct record want, got;

    want.n = 0;
    cr_assert_eq(run(h, &want), 0);
    for (int n = 0;; n++) {
        int rc;

        got.n = 0;
        failed = false;
        countdown = n;
        rc = run(h, &got);
        countdown = -1;
        if (!failed) {
            cr_expect_gt(n, 0);
            break;
        }
        cr_assert_lt(n, 10000);
        if (rc == 0)
            cr_expect(got.n == want.n && !memcmp(got.text, want.text, got.n),
                      "%s: allocation %d failed unnoticed: [%.*s]", what, n,
                      (int)got.n, got.text);
        else
            cr_expect_eq(rc, SEAM_ENOMEM, "%s: allocation %d: %d", what, n, rc);
    }
}

static const struct phost_setting settings[] = { { "style", "5.3" },
                                                 { NULL, NULL } };

Test(parser_memory, parsing_survives_each_failure)
{
    for (size_t k = 0; k < N_PLUGINS; k++) {
        struct phost h = { .settings = settings };
        struct seam_error err = { 0 };

        cr_assert_eq(phost_start(&h, plugins[k], &err), 0, "%s", err.text);
        h.host.log = quiet_log;
        each_allocation_fails(&h, plugins[k]->ident.name, parse);
        phost_unload(&h);
    }
}

/* What calls look like. */
static int calls(struct phost *h, struct record *r)
{
    const struct seam_call_grammar *x = h->plugin->extension("call_grammar/1");
    struct seam_sink sink = { .ctx = r, .event = record_event };
    struct seam_error err = { 0 };
    int rc = x->write(h->self, (struct seam_str){ tools, sizeof tools - 1 },
                      SEAM_CALLS_MUST | SEAM_CALLS_THINK, &sink, &err);

    if (rc) {
        cr_expect_eq(err.code, rc);
        cr_expect(err.text[0], "an error without a text");
    }
    return rc;
}

Test(parser_memory, saying_what_calls_look_like_survives_each_failure)
{
    for (size_t k = 0; k < N_PLUGINS; k++) {
        struct phost h = { .settings = settings };
        struct seam_error err = { 0 };

        if (!plugins[k]->extension)
            continue;
        cr_assert_eq(phost_start(&h, plugins[k], &err), 0, "%s", err.text);
        h.host.log = quiet_log;
        each_allocation_fails(&h, plugins[k]->ident.name, calls);
        phost_unload(&h);
    }
}

Test(parser_memory, rendering_survives_each_failure)
{
    for (size_t k = 0; k < N_PLUGINS; k++) {
        struct phost h = { .settings = settings };
        struct seam_error err = { 0 };

        cr_assert_eq(phost_start(&h, plugins[k], &err), 0, "%s", err.text);
        h.host.log = quiet_log;
        each_allocation_fails(&h, plugins[k]->ident.name, render);
        phost_unload(&h);
    }
}

Test(parser_memory, creation_survives_each_failure)
{
    static const char template[] =
        "[gMASK]<sop><|assistant|><|observation|></think><arg_key>";

    for (size_t k = 0; k < N_PLUGINS; k++)
        for (int n = 0;; n++) {
            struct phost h = { .template_text = template,
                               .template_n = sizeof template - 1 };
            struct seam_error err = { 0 };
            int rc;

            /* The host's log allocates too, through a call that aborts. */
            ptext_add(&h.log, "", 0);
            h.log.cap = 4096;
            h.log.p = realloc(h.log.p, h.log.cap);
            failed = false;
            countdown = n;
            rc = phost_start(&h, plugins[k], &err);
            countdown = -1;
            if (rc) {
                cr_expect(failed, "%s", err.text);
                cr_expect(err.text[0]);
            }
            phost_unload(&h);
            if (!failed)
                break;
        }
}
