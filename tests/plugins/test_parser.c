/* The output parsers: vectors of the chat spec, cases from trackers, damage of
 * every kind, each whole and cut at every position; then what holds for every
 * parser plugin whatever its format. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parser_host.h"
#include "vectors.h"

#define THINKING  "<|user|>hi<|assistant|><think>"
#define ANSWERING "<|user|>hi<|assistant|><think></think>"

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
    if (v->how & FORM)
        c.flags |= SEAM_PARSE_FORM;
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
static void run(const char *plugin, const struct vector *list, size_t n_list)
{
    static const size_t steps[] = { 1, 2, 3, 5, 7, 17 };
    struct phost *h[2] = { host_new(plugin, false), host_new(plugin, true) };

    for (size_t i = 0; i < n_list; i++) {
        const struct vector *v = &list[i];
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

static void run_vectors(const char *plugin)
{
    run(plugin, vectors, sizeof vectors / sizeof *vectors);
}

Test(parser, glm47_gives_the_vectors_at_every_cut)
{
    run_vectors("glm47");
}

Test(parser, glm47_ref_gives_the_vectors_at_every_cut)
{
    run_vectors("glm47_ref");
}

/* ---- Answers that have a form --------------------------------------------- */

#define SPELLED \
    "{\"a\": \"<think>b</think> " TC("now") " </tool_call><tool_call>\"}"
#define HERMES_CALL "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n"

Test(parser, text_that_is_held_to_a_form_goes_on_to_its_end)
{
    static const struct vector both[] = {
        { "F1", SPELLED, FORM | ANSWER, "", SPELLED, "", "stop" },
        { "F2", "r</think>" SPELLED, FORM, "r", SPELLED, "", "stop" },
        { "F3", "r</think>" SPELLED, FORM | NONE, "r", SPELLED, "", "stop" },
        { "F4", "r</think>" SPELLED, FORM | NO_TOOLS, "r", SPELLED, "",
          "stop" },
        { "F5", "r</think> \n<think>s</think>7<think", FORM, "rs", " \n7<think",
          "", "stop" },
        { "F6", "\"<tool_call>", FORM | ANSWER | CUT, "", "\"<tool_call>", "",
          "length" },
    };
    static const struct vector glm[] = {
        { "F7", "r</think>" TC("now"), FORM, "r", "", "now {}", "tool_calls" },
        { "F8", TC("now") TC("set" K("s", "<think>")), FORM | ANSWER, "", "",
          "now {}\nset {\"s\": \"<think>\"}", "tool_calls" },
    };
    static const struct vector hermes[] = {
        { "F9", "r</think>" HERMES_CALL "</tool_call>", FORM, "r", "", "now {}",
          "tool_calls" },
    };

    run("glm47", both, sizeof both / sizeof *both);
    run("glm47", glm, sizeof glm / sizeof *glm);
    run("glm47_ref", both, sizeof both / sizeof *both);
    run("glm47_ref", glm, sizeof glm / sizeof *glm);
    run("hermes", both, sizeof both / sizeof *both);
    run("hermes", hermes, sizeof hermes / sizeof *hermes);
}

/* ---- Types --------------------------------------------------------------- */

#define DEFS                                                                 \
    "\"$defs\":{\"S\":{\"type\":\"string\"},\"N\":{\"type\":\"integer\"},"   \
    "\"U\":{\"anyOf\":[{\"$ref\":\"#/$defs/S\"},{\"$ref\":\"#/$defs/N\"}]}," \
    "\"L\":{\"$ref\":\"#/$defs/L\"},\"a/b~c\":{\"type\":\"boolean\"},"       \
    "\"C\":{\"enum\":[\"red\",2,null]}}"

Test(parser, glm47_reads_values_by_their_schema)
{
    static const struct {
        const char *schema, *raw, *json;
    } cases[] = {
        { "{\"type\":\"str\"}", "7", "\"7\"" },
        { "{\"type\":\"int64\"}", "007", "7" },
        { "{\"type\":\"float\"}", "3", "3" },
        { "{\"type\":\"double\"}", "+1.50", "1.50" },
        { "{\"type\":\"bool\"}", "True", "true" },
        { "{\"type\":\"dict\"}", "{'a':1}", "{\"a\": 1}" },
        { "{\"type\":\"list\"}", "(1,'b')", "[1, \"b\"]" },
        { "{\"type\":\"Array\"}", "[1]", "[1]" },
        { "{\"type\":\"Array\"}", "x", "\"x\"" },
        { "{\"type\":[]}", "true", "true" },
        { "{\"type\":[\"integer\",\"what\"]}", "\"q\"", "\"\\\"q\\\"\"" },
        { "{\"type\":\"string\",\"nullable\":true}", "null", "null" },
        { "{\"type\":\"integer\",\"nullable\":true}", "NULL", "null" },
        { "{\"type\":\"boolean\"}", "0", "false" },
        { "{\"type\":[\"boolean\",\"integer\"]}", "1", "1" },
        { "{\"type\":\"null\"}", "none", "null" },
        { "{\"type\":\"object\"}", "", "\"\"" },
        { "{\"type\":\"object\"}", "null", "null" },
        { "{\"type\":\"array\"}", "['a', 1", "\"['a', 1\"" },
        { "{\"type\":\"array\"}", "[1,,2]", "\"[1,,2]\"" },
        { "{\"type\":\"array\"}", "['\\u00e9\\x41\\n\\q']",
          "[\"éA\\n\\\\q\"]" },
        { "{\"type\":\"array\"}", "[nan]", "\"[nan]\"" },
        { "{\"type\":\"object\"}", "{None: .5, (1): 2}",
          "\"{None: .5, (1): 2}\"" },
        { "{\"$ref\":\"#/$defs/S\"}", "5", "\"5\"" },
        { "{\"$ref\":\"#/$defs/N\"}", "05", "5" },
        { "{\"$ref\":\"#/$defs/U\"}", "5", "5" },
        { "{\"$ref\":\"#/$defs/U\"}", "x", "\"x\"" },
        { "{\"$ref\":\"#/$defs/U\"}", "5.0", "\"5.0\"" },
        { "{\"$ref\":\"#/$defs/L\"}", "true", "true" },
        { "{\"$ref\":\"#/$defs/a~1b~0c\"}", "TRUE", "true" },
        { "{\"$ref\":\"#/$defs/none\"}", "01", "\"01\"" },
        { "{\"$ref\":\"http://x/y\"}", "01", "\"01\"" },
        { "{\"$ref\":\"#/properties/q\"}", "1", "\"1\"" },
        { "{\"$ref\":\"#/properties/r/anyOf/1\"}", "1.0", "1" },
        { "{\"$ref\":\"#/$defs/C\"}", "red", "\"red\"" },
        { "{\"$ref\":\"#/$defs/C\"}", "2.0", "2.0" },
        { "{\"$ref\":\"#/$defs/C\"}", "2", "2" },
        { "{\"$ref\":\"#/$defs/C\"}", "null", "null" },
        { "{\"const\":\"5\"}", "5", "\"5\"" },
        { "{\"const\":{\"a\":[1,2]}}", "{\"a\": [1.0,2]}", "{\"a\": [1.0,2]}" },
        { "{\"enum\":[\"a\",\"b\"]}", "c", "\"c\"" },
        { "{\"type\":\"string\",\"enum\":[\"7\",8]}", "8", "8" },
        { "{\"type\":\"string\",\"enum\":[\"7\",8]}", "7", "\"7\"" },
        { "{\"anyOf\":[{\"type\":\"integer\"},{\"minimum\":1}]}", "x",
          "\"x\"" },
        { "{\"anyOf\":[{\"type\":\"integer\"},{\"minimum\":1}]}", "01",
          "\"01\"" },
        { "{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"boolean\"}]}", "01",
          "1" },
        { "{\"allOf\":[{\"type\":[\"string\",\"integer\"]},"
          "{\"type\":[\"integer\",\"null\"]}]}",
          "01", "1" },
        { "{\"allOf\":[{\"type\":\"string\"},{\"type\":\"integer\"}]}", "5",
          "5" },
        { "{\"type\":\"integer\",\"anyOf\":[{\"minimum\":1},{}]}", "01", "1" },
        { "true", "5", "5" },
        { "{\"type\":\"integer\"}", "1e3", "1000" },
        { "{\"type\":\"integer\"}", "12.50e1", "125" },
        { "{\"type\":\"integer\"}", "-0.0", "0" },
        { "{\"type\":\"integer\"}", "0.001e3", "1" },
        { "{\"type\":\"integer\"}", "1e-400", "1e-400" },
        { "{\"type\":\"integer\"}", "'-07'", "-7" },
        { "{\"type\":\"integer\"}", "\" 8 \"", "8" },
        { "{\"type\":\"number\"}", ".", "\".\"" },
        { "{\"type\":\"number\"}", "+", "\"+\"" },
        { "{\"type\":\"number\"}", "-00", "0" },
        { "{\"type\":\"number\"}", "1e", "\"1e\"" },
        { "{\"type\":\"number\"}", ".5e-2", "0.5e-2" },
        { "{\"type\":\"number\"}", "Infinity", "\"Infinity\"" },
    };
    struct phost *h[2] = { host_new("glm47", false),
                           host_new("glm47_ref", false) };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char tools[1024], text[256], want[256];
        struct pcase c = { .tools = tools,
                           .tail = ANSWERING,
                           .end = SEAM_END_STOP };

        snprintf(tools, sizeof tools,
                 "[{\"name\":\"f\",\"parameters\":{\"properties\":{\"p\":%s,"
                 "\"q\":{\"type\":\"string\"},\"r\":{\"anyOf\":[{},{\"type\":"
                 "\"integer\"}]}}," DEFS "}}]",
                 cases[i].schema);
        snprintf(text, sizeof text, TC("f" K("p", "%s")), cases[i].raw);
        snprintf(want, sizeof want, "{\"p\": %s}", cases[i].json);
        for (int k = 0; k < 2; k++) {
            struct pout o = { 0 };
            struct seam_error err = { 0 };

            cr_assert_eq(
                phost_parse_steps(h[k], &c, text, strlen(text), 1, &o, &err), 0,
                "%s: %s", tools, err.text);
            check_text(cases[i].schema, cases[i].raw, &o.call[0].args, want);
            cr_expect_eq(o.call[0].n_ends, 1);
            pout_release(&o);
        }
    }
    host_free(h[0]);
    host_free(h[1]);
}

Test(parser, glm47_survives_schemas_made_to_explode)
{
    struct phost *h = host_new("glm47", false);
    struct pcase c = { .tail = ANSWERING, .end = SEAM_END_STOP };
    struct ptext tools = { 0 };
    struct pout o = { 0 };
    struct seam_error err = { 0 };
    static const char text[] = TC("f" K("p", "01"));

    /* Each refers twice to the next: 2^30 ways through. */
    ptext_str(&tools, "[{\"name\":\"f\",\"parameters\":{\"$defs\":{");
    for (int i = 0; i < 30; i++) {
        char def[128];

        snprintf(def, sizeof def,
                 "%s\"d%d\":{\"anyOf\":[{\"$ref\":\"#/$defs/d%d\"},"
                 "{\"$ref\":\"#/$defs/d%d\"}]}",
                 i ? "," : "", i, i + 1, i + 1);
        ptext_str(&tools, def);
    }
    ptext_str(&tools, ",\"d30\":{\"type\":\"integer\"}},\"properties\":{\"p\":"
                      "{\"$ref\":\"#/$defs/d0\"}}}}]");
    c.tools = tools.p;
    cr_assert_eq(phost_parse(h, &c, text, strlen(text), NULL, 0, &o, &err), 0,
                 "%s", err.text);
    check_text("explosion", "args", &o.call[0].args, "{\"p\": \"01\"}");
    pout_release(&o);
    ptext_release(&tools);
    host_free(h);
}

/* ---- Where reasoning stands ---------------------------------------------- */

Test(parser, the_end_of_the_prompt_tells_the_first_channel)
{
    static const struct {
        const char *tail;
        bool reasoning;
    } cases[] = {
        { "<|user|>a<|assistant|><think>", true },
        { "<|user|>a<|assistant|><think></think>", false },
        { "<|user|>a<|assistant|></think>", false },
        { "<|user|>a<|assistant|>", false },
        { "", false },
        { "<|user|>a <think> b<|assistant|></think>", false },
        { "<|user|></think><|assistant|><think>", true },
        { "<|assistant|><think>so far", true },
        { "<|assistant|><think>r</think>use the <think> tag", false },
        { "<|assistant|><think></think>write <|assistant|> here", false },
        { "<|assistant|></think>a<|user|>b<|assistant|><think>", true },
        { "<think>", true },
        { "x</think>y", false },
        { "<think>x</think>y", false },
        { "</think><think>", true },
    };
    static const char *const plugins[] = { "glm47", "glm47_ref" };

    for (size_t k = 0; k < 2; k++) {
        struct phost *h = host_new(plugins[k], false);

        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            struct pcase c = { .tail = cases[i].tail, .end = SEAM_END_STOP };
            struct pout o = { 0 };
            struct seam_error err = { 0 };

            cr_assert_eq(phost_parse(h, &c, "x", 1, NULL, 0, &o, &err), 0);
            cr_expect_eq(o.reasoning.n, cases[i].reasoning, "%s: %s",
                         plugins[k], cases[i].tail);
            cr_expect_eq(o.content.n, !cases[i].reasoning, "%s: %s", plugins[k],
                         cases[i].tail);
            pout_release(&o);
        }
        host_free(h);
    }
}

/* ---- hermes -------------------------------------------------------------- */

Test(parser, hermes_gives_its_vectors_at_every_cut)
{
    static const struct vector cases[] = {
        { "H call", TC("{\"name\": \"now\", \"arguments\": {}}"), 0, "", "",
          "now {}", "tool_calls" },
        { "H lines and text",
          "a\n<tool_call>\n{\"name\":\"get_weather\",\"arguments\":{\"city\":"
          "\"</tool_call>\\\"<think>\", \"days\":1.50}}\n</tool_call>\nb",
          0, "", "a\n\nb",
          "get_weather {\"city\":\"</tool_call>\\\"<think>\", \"days\":1.50}",
          "tool_calls" },
        { "H arguments as text",
          TC("{\"name\":\"now\",\"arguments\":\"{\\\"a\\\": 1}\"}"), 0, "", "",
          "now {\"a\": 1}", "tool_calls" },
        { "H no arguments", TC("{\"name\":\"now\"}"), 0, "", "", "now {}",
          "tool_calls" },
        { "H several",
          TC("{\"name\":\"now\"}") "\n" TC("{\"name\":\"now\"}") "\n", 0, "",
          "", "now {}\nnow {}", "tool_calls" },
        { "H end missing",
          "<tool_call>{\"name\":\"now\"}<tool_call>{\"name\":\"now\"}", 0, "",
          "", "now {}\nnow {}", "tool_calls" },
        { "H no JSON", TC("now") " x", 0, "", TC("now") " x", "", "stop" },
        { "H bad JSON", TC("{\"name\": now}") " x", 0, "",
          TC("{\"name\": now}") " x", "", "stop" },
        { "H arguments no object", TC("{\"name\":\"now\",\"arguments\":5}"), 0,
          "", TC("{\"name\":\"now\",\"arguments\":5}"), "", "stop" },
        { "H unknown", TC("{\"name\":\"nope\"}") "x", 0, "", "x", "", "stop" },
        { "H unknown, forwarded", TC("{\"name\":\"nope\"}"), FORWARD, "", "",
          "nope {}", "tool_calls" },
        { "H reasoning", "<think>r " TC("x") "</think>\n\nc", 0, "r " TC("x"),
          "\n\nc", "", "stop" },
        { "H call in reasoning", "<think>r" TC("{\"name\":\"now\"}") "c", 0,
          "r", "c", "now {}", "tool_calls" },
        { "H not wanted", "a" TC("{\"name\":\"now\"}") "b", NONE, "", "ab", "",
          "stop" },
        { "H one", TC("{\"name\":\"now\"}") TC("{\"name\":\"now\"}"), ONE, "",
          "", "now {}", "tool_calls" },
        { "H no tools", TC("{\"name\":\"now\"}"), NO_TOOLS, "",
          TC("{\"name\":\"now\"}"), "", "stop" },
        { "H cut", "a<tool_call>{\"name\":\"now\"", CUT, "", "a", "",
          "length" },
        { "H cut in reasoning", "<think>a<tool_call>{\"na", CUT,
          "a<tool_call>{\"na", "", "", "length" },
        { "H never closed", "a<tool_call>{\"name\":\"no", 0, "",
          "a<tool_call>{\"name\":\"no", "", "stop" },
        { "H half an end", "<tool_call>{\"name\":\"now\"}</tool_c", 0, "", "",
          "now {}", "tool_calls" },
    };
    struct phost *h[2] = { host_new("hermes", false),
                           host_new("hermes", true) };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct vector *v = &cases[i];
        struct phost *host = h[!!(v->how & FORWARD)];
        struct pcase c = case_of(v);
        size_t n = strlen(v->text);
        struct seam_error err = { 0 };
        struct pout whole = { 0 };

        c.tail = "<|im_start|>assistant\n";
        cr_assert_eq(phost_parse(host, &c, v->text, n, NULL, 0, &whole, &err),
                     0);
        check_vector(v, &whole);
        for (size_t at = 0; at <= n; at++) {
            struct pout o = { 0 };

            cr_assert_eq(phost_parse(host, &c, v->text, n, &at, 1, &o, &err),
                         0);
            check_same(v->id, "a cut at", at, &whole, &o);
            pout_release(&o);
        }
        pout_release(&whole);
    }
    host_free(h[0]);
    host_free(h[1]);
}

/* ---- What holds for every parser ----------------------------------------- */

static const char *const all_plugins[] = { "glm47", "glm47_ref", "hermes",
                                           "none" };
#define N_PLUGINS (sizeof all_plugins / sizeof *all_plugins)

/* xorshift64*, so that a seed means the same everywhere. */
static uint32_t draw(uint64_t *state, uint32_t below)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return (uint32_t)((*state * 2685821657736338717u) >> 33) % below;
}

/* Text made of what parsers look for, and of bytes that are no text at all. */
static void random_output(uint64_t *state, struct ptext *t)
{
    static const char *const pieces[] = {
        "<think>",
        "</think>",
        "<tool_call>",
        "</tool_call>",
        "<arg_key>",
        "</arg_key>",
        "<arg_value>",
        "</arg_value>",
        "<tool_",
        "</",
        "<",
        "</arg_",
        "get_weather",
        "now",
        "set",
        "city",
        "days",
        "i",
        "s",
        "a",
        " ",
        "\n",
        "x",
        "42",
        "0.5",
        "[1, 'a']",
        "{\"a\": 1}",
        "null",
        "True",
        "\"",
        "\\",
        "\xe6",
        "\x9d\xb1",
        "\xff",
        "東",
        "😀",
        "get_wea",
        "nope",
        "{\"name\": \"now\"}",
        "{\"name\": \"now\", \"arguments\": {\"a\": ",
        "}",
        "b c d",
    };
    uint32_t n = draw(state, 24);

    ptext_str(t, "");
    for (uint32_t i = 0; i < n; i++)
        ptext_str(t, pieces[draw(state, sizeof pieces / sizeof *pieces)]);
}

static void random_case(uint64_t *state, struct pcase *c)
{
    static const char *const tails[] = { THINKING, ANSWERING,
                                         "<|im_start|>assistant\n" };

    *c = (struct pcase){ .tools = draw(state, 8) ? spec_tools : NULL,
                         .tail = tails[draw(state, 3)],
                         .flags = draw(state, 3) ? 0 : draw(state, 4),
                         .end = draw(state, 2) ? SEAM_END_STOP : SEAM_END_CUT };
}

Test(parser, every_plugin_gives_the_same_events_however_fed)
{
    for (size_t k = 0; k < N_PLUGINS; k++) {
        struct phost *h = host_new(all_plugins[k], k % 2);

        for (uint64_t seed = 1; seed <= 1500; seed++) {
            uint64_t state = seed * 0x9e3779b97f4a7c15u;
            struct ptext text = { 0 };
            struct pout whole = { 0 };
            struct seam_error err = { 0 };
            struct pcase c;
            char id[64];

            random_output(&state, &text);
            random_case(&state, &c);
            snprintf(id, sizeof id, "%s, seed %llu", all_plugins[k],
                     (unsigned long long)seed);
            cr_assert_eq(
                phost_parse(h, &c, text.p, text.n, NULL, 0, &whole, &err), 0);
            cr_expect_eq(whole.n_bad, 0, "%s: events out of order", id);
            cr_expect_eq(whole.n_empty, 0, "%s: empty events", id);
            cr_expect(whole.whole_characters, "%s: half a character", id);
            for (size_t step = 1; step < 14; step += 1 + step / 4) {
                struct pout o = { 0 };

                cr_assert_eq(
                    phost_parse_steps(h, &c, text.p, text.n, step, &o, &err),
                    0);
                check_same(id, "pieces of", step, &whole, &o);
                cr_expect(o.whole_characters, "%s: half a character", id);
                pout_release(&o);
            }
            pout_release(&whole);
            ptext_release(&text);
        }
        host_free(h);
    }
}

static void check_equal(const char *id, const char *what, const struct ptext *a,
                        const struct ptext *b)
{
    cr_expect(a->n == b->n && (!a->n || !memcmp(a->p, b->p, a->n)),
              "%s: %s is [%s], the reference says [%s]", id, what,
              a->p ? a->p : "", b->p ? b->p : "");
}

Test(parser, glm47_and_its_reference_agree)
{
    struct phost *a = host_new("glm47", false);
    struct phost *b = host_new("glm47_ref", false);

    for (uint64_t seed = 1; seed <= 4000; seed++) {
        uint64_t state = seed * 0xd1342543de82ef95u;
        struct ptext text = { 0 };
        struct pout x = { 0 }, y = { 0 };
        struct seam_error err = { 0 };
        struct pcase c;
        char id[128];

        random_output(&state, &text);
        random_case(&state, &c);
        snprintf(id, sizeof id, "seed %llu", (unsigned long long)seed);
        cr_assert_eq(phost_parse(a, &c, text.p, text.n, NULL, 0, &x, &err), 0);
        cr_assert_eq(phost_parse(b, &c, text.p, text.n, NULL, 0, &y, &err), 0);
        check_equal(id, "reasoning", &x.reasoning, &y.reasoning);
        check_equal(id, "content", &x.content, &y.content);
        cr_expect_eq(x.n_calls, y.n_calls, "%s: %u calls, expected %u", id,
                     x.n_calls, y.n_calls);
        for (uint32_t i = 0; i < x.n_calls && i < PMAX_CALLS; i++) {
            check_equal(id, "name", &x.call[i].name, &y.call[i].name);
            check_equal(id, "arguments", &x.call[i].args, &y.call[i].args);
            cr_expect_eq(x.call[i].n_ends, y.call[i].n_ends, "%s", id);
        }
        pout_release(&x);
        pout_release(&y);
        ptext_release(&text);
    }
    host_free(a);
    host_free(b);
}

Test(parser, a_sink_that_refuses_is_obeyed_at_once)
{
    static const char text[] = "r</think>c" TC(
        "now" K("a", "1")) "d"
                           "<tool_call>{\"name\":\"now\"}</tool_call>";

    for (size_t k = 0; k < N_PLUGINS; k++) {
        struct phost *h = host_new(all_plugins[k], false);
        struct pcase c = { .tools = spec_tools,
                           .tail = THINKING,
                           .end = SEAM_END_STOP };
        struct seam_error err = { 0 };
        uint32_t n = 1000;

        for (uint32_t stop = 1; stop <= n; stop++) {
            struct pout o = { .stop_after = stop };
            int rc = phost_parse_steps(h, &c, text, strlen(text), 4, &o, &err);

            if (rc == 0)
                n = o.n_events;
            else
                cr_expect_eq(rc, 1234, "%s: %d", all_plugins[k], rc);
            cr_expect_eq(o.n_events, stop <= n ? stop : n,
                         "%s: %u events after the refusal of number %u",
                         all_plugins[k], o.n_events, stop);
            pout_release(&o);
        }
        cr_expect_geq(n, 1);
        cr_expect_lt(n, 1000);
        host_free(h);
    }
}

Test(parser, two_streams_do_not_disturb_each_other)
{
    for (size_t k = 0; k < N_PLUGINS; k++) {
        struct phost *h = host_new(all_plugins[k], false);
        struct seam_parse_opts opts = {
            .size = sizeof opts, .prompt_tail = { THINKING, strlen(THINKING) }
        };
        struct seam_error err = { 0 };
        struct pout out[2] = { 0 };
        void *stream[2] = { NULL, NULL };

        for (int i = 0; i < 2; i++) {
            struct seam_sink sink = phost_sink(&out[i]);

            cr_assert_eq(
                h->parser->open(h->self, &opts, &sink, &stream[i], &err), 0);
        }
        h->parser->feed(stream[0], 0, NULL, (struct seam_str){ "a</th", 5 });
        h->parser->feed(stream[1], 0, NULL, (struct seam_str){ "b", 1 });
        h->parser->feed(stream[0], 0, NULL, (struct seam_str){ "ink>c", 5 });
        h->parser->finish(stream[1], SEAM_END_CUT);
        h->parser->close(stream[1]);
        h->parser->finish(stream[0], SEAM_END_STOP);
        h->parser->close(stream[0]);
        if (strcmp(all_plugins[k], "none") &&
            strcmp(all_plugins[k], "hermes")) {
            check_text(all_plugins[k], "reasoning", &out[0].reasoning, "a");
            check_text(all_plugins[k], "content", &out[0].content, "c");
            check_text(all_plugins[k], "reasoning", &out[1].reasoning, "b");
        }
        pout_release(&out[0]);
        pout_release(&out[1]);
        host_free(h);
    }
}

Test(parser, tools_that_are_no_list_are_refused)
{
    static const char *const bad[] = { "{", "{}", "[", "[{\"name\":\"\xff\"}]",
                                       "7" };

    for (size_t k = 0; k < 3; k++) {
        struct phost *h = host_new(all_plugins[k], false);

        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            struct pcase c = { .tools = bad[i], .end = SEAM_END_STOP };
            struct pout o = { 0 };
            struct seam_error err = { 0 };

            cr_expect_eq(phost_parse(h, &c, "x", 1, NULL, 0, &o, &err),
                         SEAM_EDATA, "%s: %s", all_plugins[k], bad[i]);
            cr_expect(!strncmp(err.text, "tools: ", 7), "%s", err.text);
            pout_release(&o);
        }
        host_free(h);
    }
}

Test(parser, an_undeclared_tool_is_logged_and_counted)
{
    struct phost *h = host_new("glm47", false);
    struct pcase c = { .tools = spec_tools,
                       .tail = ANSWERING,
                       .end = SEAM_END_STOP };
    static const char text[] = TC("nope" K("a", "1")) "<tool_call>now";
    struct pout o = { 0 };
    struct seam_error err = { 0 };

    cr_assert_eq(phost_parse(h, &c, text, strlen(text), NULL, 0, &o, &err), 0);
    cr_expect(strstr(h->log.p, "WARN a call of nope, which is no tool"), "%s",
              h->log.p);
    cr_expect_eq(h->counter[0], 1, "dropped: %llu",
                 (unsigned long long)h->counter[0]);
    cr_expect_eq(h->counter[1], 1, "repaired: %llu",
                 (unsigned long long)h->counter[1]);
    pout_release(&o);
    host_free(h);
}

/* Inputs on which anything quadratic would outlast the test's time limit many
 * times over. */
Test(parser, large_outputs_byte_by_byte_are_read)
{
    static const struct {
        const char *before, *again, *after;
        size_t times;
    } cases[] = {
        { "", "<tool_call>", "", 100000 },
        { "", "<", "", 1000000 },
        { "<tool_call>", " ", "", 1000000 },
        { "<tool_call>get_weather", "c", "</arg_key>", 1000000 },
        { "<tool_call>now"
          "<arg_key>a</arg_key><arg_value>x</arg_value>",
          "\n", "y</arg_value></tool_call>", 1000000 },
        { "<tool_call>write_file<arg_key>path</arg_key><arg_value>",
          "</arg_value> ", "", 100000 },
        { "<tool_call>write_file<arg_key>path</arg_key><arg_value>", "\"", "",
          1000000 },
        { "<tool_call>set<arg_key>a</arg_key><arg_value>[0", ",0", "]",
          500000 },
        { "<tool_call>now", "<arg_key>a</arg_key><arg_value>1</arg_value>",
          "</tool_call>", 20000 },
        { "", TC("now"), "", 20000 },
        { "<tool_call>{\"name\":\"now\",\"arguments\":{\"a\":\"",
          "x</tool_call>", "\"}}</tool_call>", 100000 },
        { "</think>", " \n", "", 500000 },
    };
    static const char *const plugins[] = { "glm47", "hermes", "none" };

    for (size_t k = 0; k < 3; k++) {
        struct phost *h = host_new(plugins[k], false);

        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            struct seam_parse_opts opts = {
                .size = sizeof opts, .tools = { spec_tools, strlen(spec_tools) }
            };
            struct ptext text = { 0 };
            uint64_t bytes = 0;
            struct seam_sink sink = phost_counter(&bytes);
            struct seam_error err = { 0 };
            void *stream = NULL;

            ptext_str(&text, cases[i].before);
            for (size_t t = 0; t < cases[i].times; t++)
                ptext_str(&text, cases[i].again);
            ptext_str(&text, cases[i].after);
            cr_assert_eq(h->parser->open(h->self, &opts, &sink, &stream, &err),
                         0);
            for (size_t at = 0; at < text.n; at++)
                cr_assert_eq(
                    h->parser->feed(stream, 0, NULL,
                                    (struct seam_str){ text.p + at, 1 }),
                    0);
            cr_expect_eq(h->parser->finish(stream, SEAM_END_STOP), 0);
            h->parser->close(stream);
            ptext_release(&text);
        }
        host_free(h);
    }
}

/* As many different keys, tools and arguments as an output may hold. */
Test(parser, many_keys_and_many_tools_are_read)
{
    struct phost *h = host_new("glm47", false);
    struct pcase c = { .tail = ANSWERING, .end = SEAM_END_STOP };
    struct ptext tools = { 0 }, text = { 0 };
    struct pout o = { 0 };
    struct seam_error err = { 0 };
    char s[128];

    ptext_str(&tools, "[{\"name\":\"t\"}");
    for (int i = 0; i < 10000; i++) {
        snprintf(s, sizeof s, ",{\"name\":\"tool_%d\"}", i);
        ptext_str(&tools, s);
    }
    ptext_str(&tools, "]");
    ptext_str(&text, "<tool_call>tool_9999");
    for (int i = 0; i < 50000; i++) {
        snprintf(s, sizeof s, K("k%d", "%d"), i % 49999, i);
        ptext_str(&text, s);
    }
    ptext_str(&text, "</tool_call>");
    c.tools = tools.p;
    cr_assert_eq(phost_parse(h, &c, text.p, text.n, NULL, 0, &o, &err), 0);
    cr_expect_eq(o.n_calls, 1);
    cr_expect_str_eq(o.call[0].name.p, "tool_9999");
    cr_expect_str_eq(o.call[0].args.p + o.call[0].args.n - 16,
                     "\"k49998\": 49998}");
    pout_release(&o);
    ptext_release(&tools);
    ptext_release(&text);
    host_free(h);
}

/* ---- Whole calls --------------------------------------------------------- */

/* Case TP-1 of the public cases: calls that disappear. */
Test(parser, no_call_disappears)
{
    static const char tools[] =
        "[{\"type\":\"function\",\"function\":{\"name\":\"list_rooms\"}},"
        "{\"type\":\"function\",\"function\":{\"name\":\"book\",\"parameters\":"
        "{\"properties\":{\"room\":{\"type\":\"string\"},\"hours\":{\"type\":"
        "\"integer\"},\"note\":{\"type\":\"string\"}}}}}]";
    static const struct vector cases[] = {
        { "1", "</think>" TC("list_rooms"), 0, "", "", "list_rooms {}",
          "tool_calls" },
        { "2", "need data" TC("list_rooms"), 0, "need data", "",
          "list_rooms {}", "tool_calls" },
        { "3",
          "</think>" TC("book" K("room", "007") K("hours", "2"))
              TC("list_rooms"),
          0, "", "", "book {\"room\": \"007\", \"hours\": 2}\nlist_rooms {}",
          "tool_calls" },
        { "4",
          "</think>" TC("book" K("room", "007") K("hours", "2")
                            K("note", "a </arg_value> b\n\"q\" \\ 😀\n")),
          0, "", "",
          "book {\"room\": \"007\", \"hours\": 2, \"note\": "
          "\"a </arg_value> b\\n\\\"q\\\" \\\\ 😀\\n\"}",
          "tool_calls" },
        { "5", "</think>use the <tool_call> tag", 0, "",
          "use the <tool_call> tag", "", "stop" },
        { "6",
          "</think><tool_call>book<arg_key>room</arg_key><arg_value>007"
          "</arg_value><arg_key>hours</arg_key><arg_val",
          CUT, "", "", "book {\"room\": \"007\" ...", "length" },
        { "7", "</think>" TC("unknown_fn"), 0, "", "", "", "stop" },
        { "7, forwarded", "</think>" TC("unknown_fn"), FORWARD, "", "",
          "unknown_fn {}", "tool_calls" },
    };
    struct phost *h[2] = { host_new("glm47", false), host_new("glm47", true) };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct vector *v = &cases[i];
        struct phost *host = h[!!(v->how & FORWARD)];
        struct pcase c = case_of(v);
        size_t n = strlen(v->text);
        struct seam_error err = { 0 };

        c.tools = tools;
        for (size_t at = 0; at <= n; at++) {
            struct pout o = { 0 };

            cr_assert_eq(phost_parse(host, &c, v->text, n, &at, 1, &o, &err),
                         0);
            check_vector(v, &o);
            pout_release(&o);
        }
    }
    host_free(h[0]);
    host_free(h[1]);
}

/* The expected calls of one line of the evaluation set, as history. */
static json_t *history_of(const json_t *line)
{
    json_t *calls = json_array(), *messages;
    const json_t *call;
    size_t i;

    json_array_foreach(json_object_get(line, "expected"), i, call)
    {
        char *args = json_dumps(json_object_get(call, "arguments"), 0);

        json_array_append_new(
            calls, json_pack("{s:{s:O,s:s}}", "function", "name",
                             json_object_get(call, "name"), "arguments", args));
        free(args);
    }
    messages =
        json_pack("[{s:s,s:o}]", "role", "assistant", "tool_calls", calls);
    return json_pack("{s:o,s:O,s:b}", "messages", messages, "tools",
                     json_object_get(line, "tools"), "add_generation_prompt",
                     0);
}

static void check_reads_back(struct phost *h, const json_t *line)
{
    const char *id = json_string_value(json_object_get(line, "id"));
    json_t *expected = json_object_get(line, "expected");
    json_t *history = history_of(line);
    char *request = json_dumps(history, JSON_COMPACT);
    char *tools = json_dumps(json_object_get(line, "tools"), JSON_COMPACT);
    struct pcase c = { .tools = tools,
                       .tail = ANSWERING,
                       .end = SEAM_END_STOP };
    struct ptext prompt = { 0 };
    struct pout o = { 0 };
    struct seam_error err = { 0 };
    const char *calls;

    cr_assert_eq(phost_render(h, request, strlen(request), &prompt, &err), 0,
                 "%s: %s", id, err.text);
    calls = strstr(prompt.p, "<|assistant|><think></think>");
    cr_assert(calls, "%s", id);
    calls += strlen("<|assistant|><think></think>");
    cr_assert_eq(phost_parse_steps(h, &c, calls, strlen(calls), 3, &o, &err),
                 0);
    cr_expect_eq(o.n_calls, json_array_size(expected), "%s: %u calls", id,
                 o.n_calls);
    cr_expect_eq(o.content.n, 0, "%s: [%s] is left", id, o.content.p);
    for (uint32_t i = 0; i < o.n_calls; i++) {
        const json_t *call = json_array_get(expected, i);
        json_t *args = json_loads(o.call[i].args.p, 0, NULL);

        cr_expect_str_eq(o.call[i].name.p,
                         json_string_value(json_object_get(call, "name")));
        cr_expect(json_equal(args, json_object_get(call, "arguments")),
                  "%s: %s", id, o.call[i].args.p);
        cr_expect_eq(o.call[i].n_ends, 1, "%s", id);
        json_decref(args);
    }
    pout_release(&o);
    ptext_release(&prompt);
    free(tools);
    free(request);
    json_decref(history);
}

Test(parser, what_history_prints_is_read_back)
{
    struct phost *h = host_new("glm47", false);
    FILE *f = fopen(SEAM_TEST_SOURCE_DIR "/models/nano/eval_tools.jsonl", "r");
    char *text = NULL;
    size_t cap = 0, n = 0;

    cr_assert(f, "no evaluation set");
    while (getline(&text, &cap, f) > 0) {
        json_t *line = json_loads(text, 0, NULL);

        cr_assert(line, "line %zu", n + 1);
        check_reads_back(h, line);
        json_decref(line);
        n++;
    }
    cr_expect_geq(n, 300, "%zu lines", n);
    free(text);
    fclose(f);
    host_free(h);
}
