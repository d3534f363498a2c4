/* What a parser plugin says of its calls (call_grammar/1) against what it reads:
 * every word of the grammar is calls of the tools, with arguments that conform
 * to their schemas. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "draw.h"

#define MUST  SEAM_CALLS_MUST
#define ONE   SEAM_CALLS_ONE
#define THINK SEAM_CALLS_THINK
#define ELSE  SEAM_CALLS_ANSWER

/* Draw n words of the tools' grammar and read them back. */
static void words(struct draw *d, const json_t *tools, uint32_t flags,
                  uint32_t n, uint64_t *seed)
{
    struct seam_error err;
    struct seam_grammar *g = draw_compile(d, tools, flags, &err);
    struct seam_buf word = { 0 };

    cr_assert_not_null(g, "%s", err.text);
    for (uint32_t i = 0; i < n; i++) {
        seam_buf_clear(&word);
        draw_word(d, g, seed, 60, &word);
        draw_check(d, tools, flags, &word);
    }
    seam_buf_release(&word);
    seam_grammar_unref(g);
}

/* ---- The evaluation's tools ---------------------------------------------- */

static void evaluation(const char *plugin, int every)
{
    FILE *f = fopen(SEAM_TEST_SOURCE_DIR "/models/nano/eval_tools.jsonl", "r");
    struct draw d;
    uint64_t seed = 1;
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    int rows = 0;

    cr_assert_not_null(f);
    draw_open(&d, plugin);
    cr_assert_not_null(d.x, "%s has no call_grammar/1", plugin);
    while ((n = getline(&line, &cap, f)) > 0) {
        json_t *row;
        const json_t *tools;

        if (rows++ % every)
            continue;
        row = draw_json(line);
        tools = json_object_get(row, "tools");
        words(&d, tools, MUST, 2, &seed);
        words(&d, tools, MUST | ONE | THINK, 1, &seed);
        words(&d, tools, rows % 2 ? THINK : ONE, 1, &seed);
        words(&d, tools, ELSE | (rows % 2 ? ONE : THINK), 1, &seed);
        json_decref(row);
    }
    cr_assert_eq(rows, 300);
    free(line);
    fclose(f);
    draw_close(&d);
}

Test(calls, glm47_reads_what_it_says_of_the_evaluation_tools)
{
    evaluation("glm47", 1);
}

Test(calls, glm47_ref_reads_what_it_says_of_the_evaluation_tools)
{
    evaluation("glm47_ref", 10);
}

Test(calls, hermes_reads_what_it_says_of_the_evaluation_tools)
{
    evaluation("hermes", 3);
}

/* ---- Schemas that are hard to tell apart --------------------------------- */

static json_t *one_tool(const char *property)
{
    char text[2048];

    snprintf(
        text, sizeof text,
        "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"strict\":"
        "true,\"parameters\":{\"type\":\"object\",\"properties\":{\"p\":%s}"
        ",\"required\":[\"p\"],\"additionalProperties\":false,\"$defs\":{"
        "\"unit\":{\"enum\":[\"C\",\"F\"]},\"list\":{\"type\":\"object\","
        "\"properties\":{\"next\":{\"$ref\":\"#/$defs/list\"}}}}}}}]",
        property);
    return draw_json(text);
}

static const char *const PROPERTIES[] = {
    "{\"type\":\"string\"}",
    "{\"type\":\"string\",\"maxLength\":5}",
    "{\"type\":\"string\",\"pattern\":\"^[0-9]{1,3}$\"}",
    "{\"type\":\"string\",\"format\":\"date\"}",
    "{\"type\":\"string\",\"enum\":[\"7\",\"null\",\" a \",\"\\\"q\\\"\",\"\"]}",
    "{\"type\":\"integer\"}",
    "{\"type\":\"integer\",\"minimum\":-3,\"maximum\":12}",
    "{\"type\":\"number\"}",
    "{\"type\":\"boolean\"}",
    "{\"type\":\"null\"}",
    "{\"type\":\"object\"}",
    "{\"type\":\"array\",\"items\":{\"type\":\"string\"}}",
    "{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"maxItems\":3}",
    "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\"},\"b\":{"
    "\"type\":[\"integer\",\"null\"]}},\"required\":[\"b\"],"
    "\"additionalProperties\":false}",
    "{\"type\":[\"string\",\"null\"]}",
    "{\"type\":[\"string\",\"integer\",\"boolean\"]}",
    "{\"type\":[\"integer\",\"null\"],\"minimum\":5}",
    "{\"anyOf\":[{\"type\":\"string\",\"format\":\"date\"},{\"type\":\"null\"}]}",
    "{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"array\"}]}",
    "{\"enum\":[\"a\",\"b\",1,2.5,null,true]}",
    "{\"const\":\"x\"}",
    "{\"const\":1.50}",
    "{\"const\":{\"a\":[1,\"</b>\"]}}",
    "{\"$ref\":\"#/$defs/unit\"}",
    "{\"$ref\":\"#/$defs/list\"}",
    "{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/unit\"}}",
    "{\"description\":\"anything\"}",
    "{}",
    /* Strings that may look like something else that is restricted. */
    "{\"type\":[\"string\",\"integer\"],\"minimum\":3}",
    "{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"array\",\"items\":{\"type\":"
    "\"string\"}}]}",
    "{\"anyOf\":[{\"type\":\"string\",\"minLength\":2},{\"type\":\"array\","
    "\"items\":{\"type\":\"string\"},\"minItems\":1},{\"type\":\"null\"}]}",
    "{\"oneOf\":[{\"type\":\"string\",\"maxLength\":9},{\"type\":\"object\","
    "\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"],"
    "\"additionalProperties\":false}]}",
    "{\"anyOf\":[{\"type\":\"string\"},{\"enum\":[1,2]}]}",
    "{\"anyOf\":[{\"type\":\"string\",\"pattern\":\"^[0-9]+[a-z]?$\"},{\"type\":"
    "\"number\",\"maximum\":5}]}",
    "{\"type\":[\"string\",\"array\"],\"items\":{\"type\":[\"string\","
    "\"integer\"]}}",
    "{\"anyOf\":[{\"type\":\"string\"},{\"minimum\":5}]}",
    "{\"anyOf\":[{\"type\":\"string\"},{\"$ref\":\"#/$defs/list\"}]}",
    "{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"number\",\"minimum\":1},{"
    "\"type\":\"boolean\"},{\"type\":\"array\",\"items\":{\"type\":\"number\"}},{"
    "\"type\":\"object\",\"properties\":{\"k\":{\"type\":\"string\"}}}]}",
    "{\"anyOf\":[{\"type\":\"string\",\"format\":\"date\"},{\"type\":"
    "\"integer\",\"minimum\":0}]}",
    "{\"enum\":[\"1\",1]}",
    "{\"minimum\":3}",
};

Test(calls, arguments_conform_however_they_are_typed)
{
    static const char *const plugins[] = { "glm47", "glm47_ref", "hermes" };
    uint64_t seed = 7;
    struct draw d;

    for (size_t p = 0; p < 3; p++) {
        draw_open(&d, plugins[p]);
        for (size_t i = 0; i < sizeof PROPERTIES / sizeof *PROPERTIES; i++) {
            json_t *tools = one_tool(PROPERTIES[i]);

            words(&d, tools, MUST, 20, &seed);
            words(&d, tools, 0, 5, &seed);
            words(&d, tools, ELSE, 5, &seed);
            json_decref(tools);
        }
        draw_close(&d);
    }
}

/* ---- Tags that are spelled out -------------------------------------------- */

/* Does the grammar take text, in which tags between '{' and '}' are tokens? */
static bool takes(struct draw *d, struct seam_grammar *g, const char *text)
{
    struct seam_matcher *m;
    struct seam_error err;
    bool ok = true;

    cr_assert_eq(seam_matcher_new(&m, g, &err), 0, "%s", err.text);
    while (*text && ok) {
        bool tag = *text == '{';
        size_t n = strcspn(text + tag, "{}");
        struct seam_ids ids = { 0 };

        if (tag)
            cr_assert_eq(
                seam_ids_add(&ids, seam_tokenizer_id(d->t, text + 1, n)), 0);
        else
            cr_assert_eq(
                seam_tokenizer_encode(d->t, text, n, false, &ids, NULL), 0);
        for (size_t i = 0; ok && i < ids.n; i++)
            ok = seam_matcher_accept(m, ids.v[i], &err) == 1;
        seam_ids_release(&ids);
        text += n + (tag ? 2 : 0);
    }
    ok = ok && seam_matcher_can_end(m);
    seam_matcher_free(m);
    return ok;
}

#define CALL(value)                                             \
    "{<tool_call>}f{<arg_key>}p{</arg_key>}{<arg_value>}" value \
    "{</arg_value>}{</tool_call>}"

#define JSON "[\"<think></think><tool_call>\",\n null, 7]"

static const struct {
    const char *text;
    uint32_t flags;
    bool ok;
} SPELLED[] = {
    { CALL("a"), MUST, true },
    { CALL("</arg_value"), MUST, true },
    { CALL("<tool_call></think><arg_key>"), MUST, true },
    { CALL("a</arg_value>b"), MUST, false },
    { CALL("</arg_value>"), MUST, false },
    { CALL("</arg</arg_value>"), MUST, false },
    { CALL("a{<think>}b"), MUST, false },
    { CALL("a") CALL("b"), MUST, true },
    { CALL("a") CALL("b"), MUST | ONE, false },
    { CALL("a") " ", MUST, false },
    { "", MUST, false },
    { "r{</think>}" CALL("a"), MUST | THINK, true },
    { "<tool<tool_cal</thin{</think>}" CALL("a"), MUST | THINK, true },
    { "r<tool_call>{</think>}" CALL("a"), MUST | THINK, false },
    { "r</think>{</think>}" CALL("a"), MUST | THINK, false },
    { "r{<tool_call>}f{</tool_call>}", MUST | THINK, false },
    { "", 0, true },
    { "t <<tool_call t" CALL("a") "<" CALL("b") "</think> t", 0, true },
    { "t<tool_call>t", 0, false },
    { "t<<tool_call>", 0, false },
    { "t" CALL("a") CALL("b"), ONE, false },
    { CALL("a") CALL("b"), ELSE, true },
    { CALL("a") CALL("b"), ELSE | ONE, false },
    { JSON, ELSE, true },
    { JSON, ELSE | ONE, true },
    { "r{</think>}" JSON, ELSE | THINK, true },
    { "r<tool_call>{</think>}" JSON, ELSE | THINK, false },
    { JSON CALL("a"), ELSE, false },
    { CALL("a") JSON, ELSE, false },
    { JSON " ", ELSE, false },
    { "", ELSE, false },
    { "t", ELSE, false },
};

Test(calls, spelled_out_tags_are_no_tags_and_end_nothing)
{
    json_t *tools = one_tool("{\"type\":\"string\"}");
    struct draw d;

    draw_open(&d, "glm47");
    for (size_t i = 0; i < sizeof SPELLED / sizeof *SPELLED; i++) {
        struct seam_error err;
        struct seam_grammar *g =
            draw_compile(&d, tools, SPELLED[i].flags, &err);

        cr_assert_not_null(g, "%s", err.text);
        cr_expect_eq(takes(&d, g, SPELLED[i].text), SPELLED[i].ok, "%s, %u",
                     SPELLED[i].text, SPELLED[i].flags);
        seam_grammar_unref(g);
    }
    json_decref(tools);
    draw_close(&d);
}

/* ---- What cannot be held to ---------------------------------------------- */

struct refusal {
    const char *property, *path;
};

static const struct refusal REFUSALS[] = {
    { "{\"enum\":[\"1\",1],\"type\":\"integer\"}", "" },
    { "{\"anyOf\":[{\"const\":\"7\"},{\"type\":\"integer\"}]}", "" },
    { "{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"array\",\"uniqueItems\":"
      "true}]}",
      ".anyOf[1].uniqueItems" },
    { "{\"type\":\"string\",\"not\":{}}", ".not" },
    { "{\"type\":\"array\",\"items\":{\"type\":\"strong\"}}", ".items.type" },
};

Test(calls, glm47_refuses_what_its_values_do_not_tell_by_path)
{
    struct draw d;

    draw_open(&d, "glm47");
    for (size_t i = 0; i < sizeof REFUSALS / sizeof *REFUSALS; i++) {
        json_t *tools = one_tool(REFUSALS[i].property);
        struct seam_error err;
        char want[128];

        cr_expect_null(draw_compile(&d, tools, MUST, &err), "%s",
                       REFUSALS[i].property);
        cr_expect_eq(err.code, SEAM_EDATA);
        snprintf(
            want, sizeof want,
            "tools[0].function.parameters.properties.p%s: ", REFUSALS[i].path);
        cr_expect_eq(strncmp(err.text, want, strlen(want)), 0, "%s: %s",
                     REFUSALS[i].property, err.text);
        json_decref(tools);
    }
    draw_close(&d);
}

/* Of whole tools; hermes writes JSON and can do some of them. */
static const struct refusal TOOLS[] = {
    { "{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"minProperties\":1}}",
      "tools[1].parameters.minProperties: " },
    { "{\"name\":\"f\",\"parameters\":{\"type\":\"array\"}}",
      "tools[1].parameters.type: " },
    { "{\"name\":\"f\",\"parameters\":{\"properties\":{\" a\":{}}}}",
      "tools[1].parameters.properties. a: " },
    { "{\"name\":\"f\",\"parameters\":{\"properties\":{\"\":{}}}}",
      "tools[1].parameters.properties.: " },
    { "{\"name\":\"f\",\"parameters\":{\"properties\":{\"a</arg_key>\":{}}}}",
      "tools[1].parameters.properties.a</arg_key>: " },
    { "{\"name\":\"f\",\"parameters\":{\"required\":[\"a\"],"
      "\"additionalProperties\":false}}",
      "tools[1].parameters.required: " },
    { "{\"name\":\"<f>\"}", "tools[1].name: " },
    { "{\"name\":\"\"}", "tools[1].name: " },
    { "{\"name\":\"f\",\"parameters\":[]}", "tools[1].parameters: " },
};

Test(calls, glm47_refuses_tools_it_cannot_hold_to_by_path)
{
    struct draw d;

    draw_open(&d, "glm47");
    for (size_t i = 0; i < sizeof TOOLS / sizeof *TOOLS; i++) {
        json_t *tools = json_array(), *tool = draw_json(TOOLS[i].property);
        struct seam_error err;

        json_array_append_new(tools, draw_json("{\"name\":\"first\"}"));
        json_array_append_new(tools, tool);
        cr_expect_null(draw_compile(&d, tools, MUST, &err), "%s",
                       TOOLS[i].property);
        cr_expect_eq(strncmp(err.text, TOOLS[i].path, strlen(TOOLS[i].path)), 0,
                     "%s: %s", TOOLS[i].property, err.text);
        /* Not strict: the model is free to call it as it likes. */
        if (strstr(TOOLS[i].path, "parameters")) {
            struct seam_grammar *g = draw_compile(&d, tools, 0, &err);

            cr_expect_not_null(g, "%s: %s", TOOLS[i].property, err.text);
            seam_grammar_unref(g);
        }
        json_decref(tools);
    }
    draw_close(&d);
}

Test(calls, a_list_without_tools_is_refused)
{
    static const char *const lists[] = { "[]", "{}", "null", "[", "" };
    struct draw d;

    draw_open(&d, "glm47");
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        uint64_t bytes = 0;
        struct seam_sink sink = phost_counter(&bytes);
        struct seam_error err = { 0 };

        cr_expect_eq(d.x->write(d.h.self,
                                (struct seam_str){ lists[i], strlen(lists[i]) },
                                MUST, &sink, &err),
                     SEAM_EDATA, "%s", lists[i]);
        cr_expect_eq(strncmp(err.text, "tools: ", 7), 0, "%s: %s", lists[i],
                     err.text);
    }
    draw_close(&d);
}

Test(calls, none_has_no_calls_to_write)
{
    struct draw d;

    draw_open(&d, "none");
    cr_expect_null(d.x);
    draw_close(&d);
}
