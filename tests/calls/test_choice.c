/* tool_choice, strict tools and grammar over HTTP, as the nano model answers:
 * what it says is chosen for it only as far as the request demands. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "tests/calls/nano.h"
#include "tests/grammar/walk.h"
#include "tests/http/collect.h"

#define N_ROWS 60

/* clang-format off */
#define WEATHER                                                               \
    "{\"type\":\"function\",\"function\":{\"name\":\"get_weather\","         \
    "\"strict\":%s,\"parameters\":{\"type\":\"object\",\"properties\":{"      \
    "\"city\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\","          \
    "\"minimum\":1,\"maximum\":14},\"unit\":{\"enum\":[\"C\",\"F\"]}},"       \
    "\"required\":[\"city\",\"unit\"],\"additionalProperties\":false}}}"
#define NOW "{\"type\":\"function\",\"function\":{\"name\":\"now\"}}"
/* clang-format on */

static const char *const QUESTIONS[] = {
    "What is the weather in Paris?",
    "hi",
    "How much is 46 + 78 - 192?",
    "Write a poem about tags such as </arg_value> and <tool_call>.",
    "Don't call any tool, please.",
};
#define N_QUESTIONS (sizeof QUESTIONS / sizeof *QUESTIONS)

/* {"messages", "tools", MORE}, greedy. */
static char *question(const char *content, const char *strict, const char *more)
{
    struct seam_buf b = { 0 };

    seam_buf_str(&b, "{\"messages\":[{\"role\":\"user\",\"content\":");
    seam_buf_json(&b, content, strlen(content));
    seam_buf_fmt(&b, "}],\"temperature\":0,\"tools\":[" WEATHER "," NOW "],%s}",
                 strict, more);
    cr_assert_not(b.failed);
    return b.p;
}

static void conforms(const struct nano *s, const json_t *tool,
                     const struct seam_buf *args)
{
    const json_t *f = json_object_get(tool, "function");
    const json_t *params = json_object_get(f, "parameters");
    struct seam_grammar *g;
    struct seam_matcher *m;
    struct seam_error err;

    if (!params) {
        cr_expect_str_eq(args->p, "{}");
        return;
    }
    cr_assert_eq(seam_grammar_schema(&g, seam_engine_vocabulary(s->engine),
                                     params, "parameters", NULL, &err),
                 0, "%s", err.text);
    cr_assert_eq(seam_matcher_new(&m, g, &err), 0);
    cr_expect(
        walk_accepts(m, seam_engine_tokenizer(s->engine), args->p, args->n),
        "%s does not conform", args->p);
    seam_matcher_free(m);
    seam_grammar_unref(g);
}

static const json_t *tool_of(const json_t *tools, const char *name)
{
    const json_t *tool;
    size_t i;

    json_array_foreach(tools, i, tool)
    {
        const json_t *f = json_object_get(tool, "function");

        if (!strcmp(json_string_value(json_object_get(f, "name")), name))
            return tool;
    }
    return NULL;
}

/* Every call is of the tools, and conforms if it was forced or the tool is
 * strict. */
static void check_calls(const struct nano *s, const char *body, bool forced,
                        const struct answer *a)
{
    struct seam_error err;
    json_t *v = seam_json_parse(body, strlen(body), "body", 0, &err);

    cr_assert_not_null(v, "%s", err.text);
    for (unsigned i = 0; i < a->n_calls; i++) {
        const json_t *tool =
            tool_of(json_object_get(v, "tools"), a->call[i].name.p);

        cr_assert_not_null(tool, "%s", a->call[i].name.p);
        if (forced || json_is_true(json_object_get(
                          json_object_get(tool, "function"), "strict")))
            conforms(s, tool, &a->call[i].args);
    }
    json_decref(v);
}

/* Ask, streamed and not; the answer is calls and nothing else. */
static void forced(const struct nano *s, const char *body, const char *name,
                   unsigned max_calls)
{
    struct answer a;

    answer_both(s->url, body, &a);
    cr_assert_eq(a.status, 200, "%s", body);
    cr_expect_str_eq(a.finish, "tool_calls", "%s: %s", body, a.finish);
    cr_expect_geq(a.n_calls, 1, "%s", body);
    cr_expect_leq(a.n_calls, max_calls, "%s", body);
    cr_expect_eq(a.content.n, 0, "%s: %s", body, a.content.p);
    for (unsigned i = 0; name && i < a.n_calls; i++)
        cr_expect_str_eq(a.call[i].name.p, name);
    check_calls(s, body, true, &a);
    answer_release(&a);
}

Test(choice, a_required_call_comes_whatever_is_asked)
{
    struct nano s;

    nano_open(&s, "glm47");
    for (size_t i = 0; i < N_QUESTIONS; i++) {
        char *body = question(QUESTIONS[i], "false",
                              "\"tool_choice\":\"required\","
                              "\"parallel_tool_calls\":false");

        forced(&s, body, NULL, 1);
        free(body);
        body = question(QUESTIONS[i], "false",
                        "\"tool_choice\":\"required\",\"thinking\":{\"type\":"
                        "\"disabled\"},\"parallel_tool_calls\":false");
        forced(&s, body, NULL, 1);
        free(body);
    }
    nano_close(&s);
}

Test(choice, a_named_tool_is_called_once_and_no_other)
{
    static const char *const names[] = { "get_weather", "now" };
    struct nano s;

    nano_open(&s, "glm47");
    for (size_t i = 0; i < 2 * N_QUESTIONS; i++) {
        const char *name = names[i % 2];
        char more[256], *body;

        snprintf(more, sizeof more,
                 "\"tool_choice\":{\"type\":\"function\",\"function\":{"
                 "\"name\":\"%s\"}}",
                 name);
        body = question(QUESTIONS[i / 2], "false", more);
        forced(&s, body, name, 1);
        free(body);
    }
    nano_close(&s);
}

Test(choice, allowed_tools_with_mode_required_leave_out_the_others)
{
    struct nano s;

    nano_open(&s, "glm47");
    for (size_t i = 0; i < N_QUESTIONS; i++) {
        char *body = question(
            QUESTIONS[i], "false",
            "\"parallel_tool_calls\":false,\"tool_choice\":{\"type\":"
            "\"allowed_tools\",\"allowed_tools\":{\"mode\":\"required\","
            "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"now\"}}"
            "]}}");

        forced(&s, body, "now", 1);
        free(body);
    }
    nano_close(&s);
}

Test(choice, strict_tools_are_held_to_their_schemas_in_free_answers)
{
    struct nano s;
    unsigned n_calls = 0, n_texts = 0;

    nano_open(&s, "glm47");
    for (size_t i = 0; i < N_QUESTIONS; i++) {
        char *body = question(QUESTIONS[i], "true", "\"max_tokens\":150");
        struct answer a;

        answer_both(s.url, body, &a);
        cr_assert_eq(a.status, 200);
        check_calls(&s, body, false, &a);
        n_calls += a.n_calls;
        n_texts += a.content.n > 0;
        answer_release(&a);
        free(body);
    }
    cr_expect_gt(n_calls, 0, "the model never called");
    cr_expect_gt(n_texts, 0, "the model never just answered");
    nano_close(&s);
}

/* On its own tools the model calls the tool it should, when it has to. */
Test(choice, required_calls_of_the_evaluation_conform)
{
    FILE *f = fopen(SEAM_TEST_SOURCE_DIR "/models/nano/eval_tools.jsonl", "r");
    unsigned n = 0, right = 0;
    char *line = NULL;
    size_t cap = 0;
    struct nano s;

    cr_assert_not_null(f);
    nano_open(&s, "glm47");
    while (n < N_ROWS && getline(&line, &cap, f) > 0) {
        struct seam_error err;
        json_t *row = seam_json_parse(line, strlen(line), "row", 0, &err);
        json_t *want = json_object_get(row, "expected");
        json_t *body = json_pack(
            "{s:O, s:O, s:i, s:i, s:s, s:{s:O}, s:O}", "messages",
            json_object_get(row, "messages"), "tools",
            json_object_get(row, "tools"), "temperature", 0, "max_tokens", 300,
            "tool_choice", "required", "chat_template_kwargs",
            "enable_thinking", json_object_get(row, "enable_thinking"),
            "reasoning_effort", json_object_get(row, "reasoning_effort"));
        char *text = json_dumps(body, JSON_COMPACT);
        struct answer a;

        answer_plain(s.url, text, &a);
        cr_assert_eq(a.status, 200, "%s", text);
        check_calls(&s, text, true, &a);
        if (json_array_size(want) && a.n_calls)
            right += !strcmp(a.call[0].name.p,
                             json_string_value(json_object_get(
                                 json_array_get(want, 0), "name")));
        n += json_array_size(want) > 0;
        answer_release(&a);
        free(text);
        json_decref(body);
        json_decref(row);
    }
    printf("required calls of the right tool: %u of %u\n", right, n);
    cr_expect_geq(right, n * 9 / 10, "%u of %u", right, n);
    free(line);
    fclose(f);
    nano_close(&s);
}

/* ---- grammar ------------------------------------------------------------- */

Test(choice, a_grammar_is_what_the_answer_is_a_word_of)
{
    struct nano s;

    nano_open(&s, "glm47");
    for (size_t i = 0; i < N_QUESTIONS; i++) {
        struct seam_buf b = { 0 };
        struct answer a;

        seam_buf_str(&b, "{\"messages\":[{\"role\":\"user\",\"content\":");
        seam_buf_json(&b, QUESTIONS[i], strlen(QUESTIONS[i]));
        seam_buf_str(&b, "}],\"temperature\":0,\"thinking\":{\"type\":"
                         "\"disabled\"},\"max_tokens\":200,\"grammar\":"
                         "\"root ::= (\\\"yes\\\" | \\\"no\\\") \\\", \\\" "
                         "[0-9]{2}\"}");
        answer_both(s.url, b.p, &a);
        cr_assert_eq(a.status, 200);
        if (!strcmp(a.finish, "stop")) {
            const char *p = a.content.p;

            cr_assert(!strncmp(p, "yes, ", 5) || !strncmp(p, "no, ", 4), "%s",
                      p);
            p = strchr(p, ' ') + 1;
            cr_expect_eq(strspn(p, "0123456789"), 2, "%s", a.content.p);
            cr_expect_eq(strlen(p), 2, "%s", a.content.p);
        }
        answer_release(&a);
        seam_buf_release(&b);
    }
    nano_close(&s);
}

/* ---- Answers after reasoning --------------------------------------------- */

#define VERDICT                                                             \
    "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{"       \
    "\"name\":\"verdict\",\"schema\":{\"type\":\"object\",\"properties\":{" \
    "\"sure\":{\"type\":\"boolean\"},\"score\":{\"type\":\"integer\","      \
    "\"minimum\":0,\"maximum\":10}},\"required\":[\"sure\",\"score\"],"     \
    "\"additionalProperties\":false}}}"

static char *verdict(const char *content, const char *more)
{
    struct seam_buf b = { 0 };

    seam_buf_str(&b, "{\"messages\":[{\"role\":\"user\",\"content\":");
    seam_buf_json(&b, content, strlen(content));
    seam_buf_fmt(
        &b, "}],\"temperature\":0,\"enable_thinking\":true," VERDICT ",%s}",
        more);
    cr_assert_not(b.failed);
    return b.p;
}

/* The model would rather end at once; the answer comes nevertheless. */
Test(choice, an_answer_that_has_a_form_is_never_left_out_after_reasoning)
{
    struct nano s;
    const int32_t *eos;
    uint32_t n_eos, n_answers = 0;
    char more[128], *body;
    struct answer a;
    struct reply r;

    nano_open(&s, "glm47");
    eos = seam_engine_eos(s.engine, &n_eos);
    cr_assert_gt(n_eos, 0);
    for (size_t i = 0; i < N_QUESTIONS; i++)
        for (int ends = 0; ends < 2; ends++) {
            snprintf(more, sizeof more,
                     "\"max_tokens\":400,\"logit_bias\":{\"%d\":%d}", eos[0],
                     ends ? 100 : 0);
            body = verdict(QUESTIONS[i], more);
            answer_both(s.url, body, &a);
            cr_assert_eq(a.status, 200, "%s", body);
            if (!strcmp(a.finish, "stop")) {
                struct seam_error err;
                json_t *v = seam_json_parse(a.content.p, a.content.n, "answer",
                                            0, &err);

                n_answers++;
                cr_expect(json_is_boolean(json_object_get(v, "sure")), "%s: %s",
                          body, a.content.p);
                cr_expect(json_is_integer(json_object_get(v, "score")));
                cr_expect_eq(json_object_size(v), 2);
                json_decref(v);
            } else {
                cr_expect_str_eq(a.finish, "length", "%s: %s", body, a.finish);
            }
            answer_release(&a);
            free(body);
        }
    cr_expect_geq(n_answers, N_QUESTIONS, "%u answers", n_answers);

    /* Cut in the reasoning. */
    body = verdict(QUESTIONS[0], "\"max_tokens\":2");
    answer_both(s.url, body, &a);
    cr_expect_str_eq(a.finish, "length");
    cr_expect_eq(a.content.n, 0);
    answer_release(&a);
    free(body);

    snprintf(more, sizeof more, "\"stop_token_ids\":[%d]",
             seam_tokenizer_id(seam_engine_tokenizer(s.engine), "</think>", 8));
    body = verdict(QUESTIONS[0], more);
    client_post(s.url, "/v1/chat/completions", body, &r);
    cr_expect_eq(r.status, 400, "%d", r.status);
    reply_release(&r);
    free(body);
    nano_close(&s);
}

static unsigned counter(const struct nano *s, const char *name)
{
    struct reply r;
    const char *p;
    unsigned n = 0;

    client_get(s->url, "/metrics", &r);
    /* Behind HELP and TYPE. */
    p = strstr(r.body.p, name);
    p = p ? strstr(p + 1, name) : NULL;
    p = p ? strstr(p + 1, name) : NULL;
    cr_assert(p && (p = strstr(p, "} ")), "%s", name);
    cr_assert_eq(sscanf(p + 2, "%u", &n), 1);
    reply_release(&r);
    return n;
}

/* ---- Calls or else an answer that has a form ------------------------------ */

/* More of the question's request: what the model begins with after its
 * reasoning is chosen for it, as far as the grammar leaves that to be chosen. */
static char *either(const struct nano *s, const char *format, bool call,
                    bool think, const char *more)
{
    /* One call more, or one member more, would always do. */
    bool endless = (call && !*more) || strstr(format, "json_object");
    char text[2048];
    int32_t id =
        seam_tokenizer_id(seam_engine_tokenizer(s->engine), "<tool_call>", 11);

    snprintf(text, sizeof text,
             "%s,\"max_tokens\":%d,\"enable_thinking\":%s,\"logit_bias\":{"
             "\"%d\":%d}%s",
             format, endless ? 100 : 400, think ? "true" : "false", (int)id,
             call ? 100 : -100, more);
    return question(QUESTIONS[0], "true", text);
}

static void is_verdict(const struct answer *a, const char *body)
{
    struct seam_error err;
    json_t *v = seam_json_parse(a->content.p, a->content.n, "answer", 0, &err);

    cr_expect_str_eq(a->finish, "stop", "%s: %s", body, a->finish);
    cr_expect_eq(a->n_calls, 0, "%s", body);
    cr_expect(json_is_boolean(json_object_get(v, "sure")), "%s: %s", body,
              a->content.p);
    cr_expect(json_is_integer(json_object_get(v, "score")));
    cr_expect_eq(json_object_size(v), 2);
    json_decref(v);
}

Test(choice, an_answer_is_calls_or_else_of_the_form_asked_for)
{
    static const char *const more[] = { "", ",\"parallel_tool_calls\":false" };
    struct nano s;
    struct answer a;

    nano_open(&s, "glm47");
    for (int think = 0; think < 2; think++)
        for (int one = 0; one < 2; one++) {
            char *body = either(&s, VERDICT, false, think, more[one]);

            answer_both(s.url, body, &a);
            is_verdict(&a, body);
            cr_expect_eq(a.reasoning.n > 0, think, "%s", body);
            answer_release(&a);
            free(body);
            /* As many as the limit has room for, unless there is to be one. */
            body = either(&s, VERDICT, true, think, more[one]);
            answer_both(s.url, body, &a);
            cr_expect_eq(a.content.n, 0, "%s: %s", body, a.content.p);
            cr_expect_geq(a.n_calls, 1, "%s", body);
            if (one) {
                cr_expect_eq(a.n_calls, 1, "%s", body);
                cr_expect_str_eq(a.finish, "tool_calls", "%s", body);
            }
            check_calls(&s, body, false, &a);
            answer_release(&a);
            free(body);
        }
    cr_expect_eq(counter(&s, "seam_grammar_cache_misses_total"), 4,
                 "thinking or not, one or more");
    nano_close(&s);
}

Test(choice, what_must_or_must_not_be_called_decides_alone)
{
    struct nano s;
    struct answer a;
    char *body;

    nano_open(&s, "glm47");
    body =
        either(&s, VERDICT, false, false,
               ",\"tool_choice\":\"required\",\"parallel_tool_calls\":false");
    forced(&s, body, NULL, 1);
    free(body);
    body = either(&s, VERDICT, true, false, ",\"tool_choice\":\"none\"");
    answer_both(s.url, body, &a);
    is_verdict(&a, body);
    answer_release(&a);
    free(body);
    body = either(&s, VERDICT, true, false,
                  ",\"tool_choice\":{\"type\":\"allowed_tools\","
                  "\"allowed_tools\":{\"mode\":\"auto\",\"tools\":[]}}");
    answer_both(s.url, body, &a);
    is_verdict(&a, body);
    answer_release(&a);
    free(body);
    body = either(&s, "\"response_format\":{\"type\":\"json_object\"}", false,
                  false, "");
    answer_both(s.url, body, &a);
    cr_expect_eq(a.n_calls, 0);
    cr_expect_eq(a.content.p[0], '{', "%s", a.content.p);
    answer_release(&a);
    free(body);
    nano_close(&s);
}

/* ---- Compiled grammars --------------------------------------------------- */

Test(choice, tools_that_come_again_are_not_compiled_again)
{
    static const char more[] = "\"tool_choice\":\"required\","
                               "\"max_tokens\":1,\"enable_thinking\":false";
    struct nano s;

    nano_open(&s, "glm47");
    for (size_t i = 0; i < N_QUESTIONS; i++) {
        char *body = question(QUESTIONS[i], "true", more);
        struct answer a;

        answer_plain(s.url, body, &a);
        cr_expect_eq(a.status, 200);
        answer_release(&a);
        free(body);
        cr_expect_eq(counter(&s, "seam_grammar_cache_misses_total"), 1);
        cr_expect_eq(counter(&s, "seam_grammar_cache_hits_total"), i);
    }
    cr_expect_eq(counter(&s, "seam_grammar_cache_grammars"), 1);
    cr_expect_gt(counter(&s, "seam_grammar_cache_bytes"), 1000);
    nano_close(&s);
}

struct refusal {
    const char *more, *param, *message;
};

/* clang-format off */
#define ASK "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"
#define TOOL(params)                                                         \
    "\"tools\":[" NOW ",{\"type\":\"function\",\"function\":{\"name\":\"f\"," \
    "\"strict\":true,\"parameters\":" params "}}]"
#define BAD                                                                  \
    "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"array\","       \
    "\"not\":{}}}}"
/* clang-format on */

static const struct refusal REFUSALS[] = {
    { "\"grammar\":\"root ::= \\\"a\\\"\\nx y\"", "grammar", "grammar:2:" },
    { "\"grammar\":\"\"", "grammar", "grammar:1:1: " },
    { "\"grammar\":7", "grammar", "grammar must be a string" },
    { "\"grammar\":\"root ::= .\",\"response_format\":{\"type\":"
      "\"json_object\"}",
      "grammar", NULL },
    { "\"grammar\":\"root ::= .\"," TOOL("{}"), "grammar", NULL },
    { "\"response_format\":{\"type\":\"json_object\"}," TOOL(BAD),
      "tools[1].function.parameters.properties.a.not", NULL },
    { "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{"
      "\"name\":\"x\",\"schema\":{\"type\":\"array\",\"items\":{\"not\":{}}}}},"
      "\"tools\":[" NOW "]",
      "response_format.json_schema.schema.items.not", NULL },
    { "\"tool_choice\":\"required\"," TOOL(BAD),
      "tools[1].function.parameters.properties.a.not", NULL },
    { TOOL(BAD), "tools[1].function.parameters.properties.a.not", NULL },
    { "\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"f\"}}," TOOL(
          "{\"minProperties\":1}"),
      "tools[1].function.parameters.minProperties", NULL },
    { "\"tool_choice\":{\"type\":\"allowed_tools\",\"allowed_tools\":{"
      "\"mode\":\"required\",\"tools\":[]}}," TOOL("{}"),
      "tool_choice", NULL },
    { "\"function_call\":{\"name\":\"f\"},\"functions\":[{\"name\":\"g\"},{"
      "\"name\":\"f\",\"parameters\":" BAD "}]",
      "functions[1].parameters.properties.a.not", NULL },
};

static void refused(const struct nano *s, const struct refusal *x)
{
    char body[2048];
    struct reply r;
    const char *param, *message;

    snprintf(body, sizeof body, "{" ASK ",\"max_tokens\":4,%s}", x->more);
    client_post(s->url, "/v1/chat/completions", body, &r);
    param = json_string_value(reply_at(&r, "error", "param", NULL));
    message = json_string_value(reply_at(&r, "error", "message", NULL));
    cr_expect_eq(r.status, 400, "%s: %d", x->more, r.status);
    cr_expect(param && !strcmp(param, x->param), "%s: %s (%s)", x->more, param,
              message);
    if (x->message)
        cr_expect(message && !strncmp(message, x->message, strlen(x->message)),
                  "%s: %s", x->more, message);
    reply_release(&r);
}

Test(choice, what_cannot_be_enforced_is_refused_with_its_path)
{
    struct nano s;

    nano_open(&s, "glm47");
    for (size_t i = 0; i < sizeof REFUSALS / sizeof *REFUSALS; i++)
        refused(&s, &REFUSALS[i]);
    nano_close(&s);
}

Test(choice, a_parser_that_does_not_say_how_calls_look_refuses_to_force_one)
{
    static const struct refusal named = {
        "\"tool_choice\":\"required\"," TOOL("{}"), "tool_choice",
        "tool_choice cannot be enforced: the parser plugin none "
    };
    static const struct refusal both = {
        "\"response_format\":{\"type\":\"json_object\"}," TOOL("{}"),
        "response_format",
        "response_format cannot be combined with tools that may be called: "
        "the parser plugin none "
    };
    char body[1024], head[256];
    struct nano s;
    struct reply r;

    nano_open(&s, "none");
    refused(&s, &named);
    refused(&s, &both);
    snprintf(body, sizeof body, "{" ASK ",\"max_tokens\":1," TOOL("{}") "}");
    client_post(s.url, "/v1/chat/completions", body, &r);
    cr_expect_eq(r.status, 200);
    cr_assert_not_null(reply_header(&r, "X-Seam-Ignored", head, sizeof head));
    cr_expect_not_null(strstr(head, "tools.strict"), "%s", head);
    reply_release(&r);
    nano_close(&s);
}
