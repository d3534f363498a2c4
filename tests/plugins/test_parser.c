/* The output parsers: vectors of the chat spec, cases from trackers, damage of
 * every kind, each whole and cut at every position; then what holds for every
 * parser plugin whatever its format. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "parser_host.h"

#define K(k, v)   "<arg_key>" k "</arg_key><arg_value>" v "</arg_value>"
#define TC(x)     "<tool_call>" x "</tool_call>"

#define THINKING  "<|user|>hi<|assistant|><think>"
#define ANSWERING "<|user|>hi<|assistant|><think></think>"

static const char spec_tools[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\","
    "\"parameters\":{\"type\":\"object\",\"properties\":{"
    "\"city\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\"}}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"now\"}},"
    "{\"name\":\"write_file\",\"parameters\":{\"properties\":{"
    "\"path\":{\"type\":\"string\"},\"content\":{\"type\":\"string\"}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"set\",\"parameters\":{"
    "\"properties\":{\"i\":{\"type\":\"integer\"},\"f\":{\"type\":\"number\"},"
    "\"b\":{\"type\":\"boolean\"},\"o\":{\"type\":\"object\"},"
    "\"a\":{\"type\":\"array\"},\"s\":{\"type\":\"string\"},"
    "\"ns\":{\"type\":[\"string\",\"null\"]},"
    "\"an\":{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]},"
    "\"ni\":{\"type\":[\"integer\",\"null\"]},\"e\":{\"enum\":[\"7\",8]},"
    "\"any\":{}}}}}]";

enum { FORWARD = 1, NO_TOOLS = 2, CUT = 4, ANSWER = 8, NONE = 16, ONE = 32 };

/* calls: "NAME ARGS" of each call, joined by LF; one that has no end is followed
 * by " ...". */
struct vector {
    const char *id, *text;
    uint32_t how;
    const char *reasoning, *content, *calls, *finish;
};

static const struct vector vectors[] = {
#include "parser_vectors.h"
};

static struct phost *host_new(const char *plugin, bool forward)
{
    static const struct phost_setting settings[] = {
        { "style", "5.3" }, { "unknown_tool", "forward" }, { NULL, NULL }
    };
    static const struct phost_setting defaults[] = { { "style", "5.3" },
                                                     { NULL, NULL } };
    struct phost *h = calloc(1, sizeof *h);
    struct seam_error err = { 0 };

    h->settings = forward ? settings : defaults;
    cr_assert_eq(phost_load(h, SEAM_TEST_PLUGIN_DIR, plugin, &err), 0, "%s",
                 err.text);
    return h;
}

static void host_free(struct phost *h)
{
    phost_unload(h);
    free(h);
}

static struct pcase case_of(const struct vector *v)
{
    struct pcase c = { .tools = v->how & NO_TOOLS ? NULL : spec_tools,
                       .tail = v->how & ANSWER ? ANSWERING : THINKING,
                       .end = v->how & CUT ? SEAM_END_CUT : SEAM_END_STOP };

    if (v->how & NONE)
        c.flags |= SEAM_PARSE_NO_CALLS;
    if (v->how & ONE)
        c.flags |= SEAM_PARSE_ONE_CALL;
    return c;
}

static void calls_text(const struct pout *o, struct ptext *t)
{
    ptext_str(t, "");
    for (uint32_t i = 0; i < o->n_calls; i++) {
        const struct pcall *c = &o->call[i];

        if (i)
            ptext_str(t, "\n");
        ptext_add(t, c->name.p, c->name.n);
        ptext_str(t, " ");
        ptext_add(t, c->args.p, c->args.n);
        if (!c->n_ends)
            ptext_str(t, " ...");
    }
}

static void check_text(const char *id, const char *what, const struct ptext *t,
                       const char *want)
{
    cr_expect(t->n == strlen(want) && !memcmp(t->p ? t->p : "", want, t->n),
              "%s: %s is [%s], expected [%s]", id, what, t->p ? t->p : "",
              want);
}

static void check_vector(const struct vector *v, const struct pout *o)
{
    struct ptext calls = { 0 };
    const char *finish = "stop";

    for (uint32_t i = 0; i < o->n_calls; i++)
        if (o->call[i].n_ends)
            finish = "tool_calls";
    if (v->how & CUT)
        finish = "length";
    calls_text(o, &calls);
    check_text(v->id, "reasoning", &o->reasoning, v->reasoning);
    check_text(v->id, "content", &o->content, v->content);
    check_text(v->id, "calls", &calls, v->calls);
    cr_expect_str_eq(finish, v->finish, "%s: finish is %s, expected %s", v->id,
                     finish, v->finish);
    cr_expect_eq(o->n_bad, 0, "%s: events out of order", v->id);
    cr_expect_eq(o->n_empty, 0, "%s: empty events", v->id);
    cr_expect(o->whole_characters, "%s: half a character", v->id);
    ptext_release(&calls);
}

/* The events of v in pieces that end at cut. */
static void parse_cut(struct phost *h, const struct vector *v,
                      const size_t *cut, size_t n_cuts, struct pout *o)
{
    struct pcase c = case_of(v);
    struct seam_error err = { 0 };

    cr_assert_eq(
        phost_parse(h, &c, v->text, strlen(v->text), cut, n_cuts, o, &err), 0,
        "%s: %s", v->id, err.text);
}

static void check_same(const char *id, const char *how, size_t at,
                       const struct pout *a, const struct pout *b)
{
    cr_expect(a->events.n == b->events.n &&
                  !memcmp(a->events.p ? a->events.p : "",
                          b->events.p ? b->events.p : "", a->events.n),
              "%s: %s %zu gives other events:\n%s\nthan whole:\n%s", id, how,
              at, b->events.p, a->events.p);
}

/* Whole, in equal pieces of several sizes, and cut once at every position. */
static void run_vectors(const char *plugin)
{
    static const size_t steps[] = { 1, 2, 3, 5, 7, 17 };
    struct phost *h[2] = { host_new(plugin, false), host_new(plugin, true) };

    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        const struct vector *v = &vectors[i];
        struct phost *host = h[!!(v->how & FORWARD)];
        struct pcase c = case_of(v);
        size_t n = strlen(v->text);
        struct seam_error err = { 0 };
        struct pout whole = { 0 };

        parse_cut(host, v, NULL, 0, &whole);
        check_vector(v, &whole);
        for (size_t k = 0; k < sizeof steps / sizeof *steps; k++) {
            struct pout o = { 0 };

            cr_assert_eq(
                phost_parse_steps(host, &c, v->text, n, steps[k], &o, &err), 0);
            check_same(v->id, "pieces of", steps[k], &whole, &o);
            cr_expect_eq(o.n_empty, 0, "%s: empty events", v->id);
            cr_expect(o.whole_characters, "%s: half a character", v->id);
            pout_release(&o);
        }
        for (size_t at = 0; at <= n; at++) {
            struct pout o = { 0 };

            parse_cut(host, v, &at, 1, &o);
            check_same(v->id, "a cut at", at, &whole, &o);
            pout_release(&o);
        }
        pout_release(&whole);
    }
    host_free(h[0]);
    host_free(h[1]);
}

Test(parser, glm47_gives_the_vectors_at_every_cut)
{
    run_vectors("glm47");
}

Test(parser, glm47_ref_gives_the_vectors_at_every_cut)
{
    run_vectors("glm47_ref");
}
