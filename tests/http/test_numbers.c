/* Numbers of a request reach the model with the digits they were written
 * with. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "tests/http/fixture.h"

#define BIG  "123456789012345678901234567890"
#define LONG "0.10000000000000000000000000001"

/* A schema with both, as "parameters" or under another name. */
#define SCHEMA                                                              \
    "{\"type\":\"object\",\"properties\":{\"x\":{\"type\":\"number\","      \
    "\"minimum\":-0,\"maximum\":1.50,\"multipleOf\":1e-2,\"default\":" LONG \
    ",\"examples\":[" BIG ",-" BIG ",9223372036854775808,7]}}}"

/* Without a seed the script is the only one. */
static void open_one(struct fixture *f, const char *text)
{
    fixture_init(f);
    fixture_text(f, text);
    fixture_bind(f, NULL, 0, ",\"any_seed\":true");
    fixture_start(f);
}

/* The prompt of a chat with these fields. */
static void template_holds(struct fixture *f, const char *more)
{
    /* Integers as they came, reals as the reference's renderer has them. */
    static const char *const spelled[] = {
        "\"minimum\": 0, \"maximum\": 1.5, \"multipleOf\": 0.01",
        "\"default\": 0.1,",
        "[" BIG ", -" BIG ", 9223372036854775808, 7]",
        "<arg_value>" BIG "</arg_value>",
        "<tool_response>1.50</tool_response>",
    };
    struct reply r;
    char body[2048];
    const char *prompt;

    snprintf(body, sizeof body,
             "{\"messages\":[{\"role\":\"user\",\"content\":\"go\"},"
             "{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":"
             "\"f\",\"arguments\":{\"x\":2.50,\"y\":" BIG "}}}]},"
             "{\"role\":\"tool\",\"content\":\"1.50\"}],%s}",
             more);
    client_post(f->url, "/apply-template", body, &r);
    cr_assert_eq(r.status, 200, "%s", r.body.p);
    prompt = json_string_value(reply_at(&r, "prompt", NULL));
    for (size_t i = 0; i < sizeof spelled / sizeof *spelled; i++)
        cr_expect_not_null(strstr(prompt, spelled[i]), "no %s in %s",
                           spelled[i], prompt);
    reply_release(&r);
}

Test(numbers, keep_their_digits_in_chats)
{
    struct fixture f;

    open_one(&f, "</think>ok\1");
    template_holds(&f, "\"tools\":[{\"type\":\"function\",\"function\":{"
                       "\"name\":\"f\",\"parameters\":" SCHEMA "}}]");
    /* Fields that are mapped before the renderer sees them. */
    template_holds(&f, "\"reasoning\":{\"effort\":\"high\"},\"tools\":[{"
                       "\"type\":\"function\",\"function\":{\"name\":\"f\","
                       "\"parameters\":" SCHEMA "}}]");
    template_holds(&f, "\"functions\":[{\"name\":\"f\",\"parameters\":" SCHEMA
                       "}]");
    fixture_close(&f);
}

/* Tokens of the prompt that a chat renders to; every byte is a token. */
static json_int_t count_of(struct fixture *f, const char *chat)
{
    struct reply r;
    json_int_t n;

    client_post(f->url, "/tokenize", chat, &r);
    cr_assert_eq(r.status, 200, "%s", r.body.p);
    n = json_integer_value(reply_at(&r, "count", NULL));
    reply_release(&r);
    return n;
}

/* The history of all routes, with a tool as the route has it. */
#define CHAT(tool)                                                        \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"go\"},{\"role\":"    \
    "\"assistant\",\"tool_calls\":[{\"id\":\"t\",\"function\":{\"name\":" \
    "\"f\",\"arguments\":\"{\\\"x\\\":2.50,\\\"y\\\":" BIG "}\"}}]},"     \
    "{\"role\":\"tool\",\"tool_call_id\":\"t\",\"content\":\"r\"}],"      \
    "\"tools\":[" tool "]}"
#define FLAT "{\"type\":\"function\",\"name\":\"f\",\"parameters\":" SCHEMA "}"
#define WRAPPED                                                                  \
    "{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":" SCHEMA \
    "}}"

Test(numbers, keep_their_digits_in_messages)
{
    static const char body[] =
        "{\"max_tokens\":400,\"messages\":[{\"role\":\"user\",\"content\":"
        "\"go\"},{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\","
        "\"id\":\"t\",\"name\":\"f\",\"input\":{\"x\":2.50,\"y\":" BIG
        "}}]},{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\","
        "\"tool_use_id\":\"t\",\"content\":\"r\"}]}],\"tools\":[{\"name\":"
        "\"f\",\"input_schema\":" SCHEMA "}]}";
    struct fixture f;
    struct reply r;
    json_int_t n;

    open_one(&f, "</think><tool_call>f<arg_key>x</arg_key><arg_value>2.50"
                 "</arg_value><arg_key>y</arg_key><arg_value>" BIG
                 "</arg_value></tool_call>\1");
    n = count_of(&f, CHAT(WRAPPED));
    client_post(f.url, "/v1/messages/count_tokens", body, &r);
    cr_expect_eq(json_integer_value(reply_at(&r, "input_tokens", NULL)), n,
                 "%s", r.body.p);
    reply_release(&r);
    /* And in the answer. */
    client_post(f.url, "/v1/messages", body, &r);
    cr_expect_eq(r.status, 200);
    cr_expect_not_null(strstr(r.body.p, "\"input\":{\"x\":2.50,\"y\":" BIG "}"),
                       "%s", r.body.p);
    reply_release(&r);
    fixture_close(&f);
}

Test(numbers, keep_their_digits_in_responses)
{
    static const char body[] =
        "{\"max_output_tokens\":1,\"input\":[{\"role\":\"user\",\"content\":"
        "\"go\"},{\"type\":\"function_call\",\"call_id\":\"t\",\"name\":\"f\","
        "\"arguments\":\"{\\\"x\\\":2.50,\\\"y\\\":" BIG "}\"},{\"type\":"
        "\"function_call_output\",\"call_id\":\"t\",\"output\":\"r\"}],"
        "\"tools\":[" FLAT "]}";
    struct fixture f;
    struct reply r;
    char usage[48];
    json_int_t n;

    open_one(&f, "</think>ok\1");
    n = count_of(&f, CHAT(FLAT));
    client_post(f.url, "/v1/responses", body, &r);
    cr_expect_eq(r.status, 200, "%s", r.body.p);
    /* jansson does not read such an answer. */
    snprintf(usage, sizeof usage, "\"input_tokens\":%lld,", (long long)n);
    cr_expect_not_null(strstr(r.body.p, usage), "no %s in %s", usage, r.body.p);
    /* What is repeated of the request is repeated exactly. */
    cr_expect_not_null(strstr(r.body.p, "\"parameters\":" SCHEMA), "%s",
                       r.body.p);
    reply_release(&r);
    fixture_close(&f);
}

Test(numbers, beside_a_long_one_stay_integers)
{
    struct fixture f;
    struct reply r;

    open_one(&f, "</think>ok\1");
    client_post(f.url, "/v1/chat/completions",
                "{\"seed\":9007199254740993,\"messages\":[{\"role\":\"user\","
                "\"content\":\"go\"}],\"x\":" BIG
                ",\"y\":[-" BIG BIG BIG BIG BIG BIG BIG BIG BIG BIG BIG "]}",
                &r);
    /* The seed selects the script: there is none of that number. */
    cr_expect_eq(r.status, 200, "%s", r.body.p);
    reply_release(&r);
    client_post(f.url, "/v1/chat/completions",
                "{\"seed\":" BIG ",\"messages\":[{\"role\":\"user\","
                "\"content\":\"go\"}]}",
                &r);
    cr_expect_eq(r.status, 400);
    cr_expect_str_eq(json_string_value(reply_at(&r, "error", "param", NULL)),
                     "seed");
    reply_release(&r);
    client_post(f.url, "/v1/chat/completions",
                "{\"seed\":0" BIG ",\"messages\":[{\"role\":\"user\","
                "\"content\":\"go\"}]}",
                &r);
    cr_expect_eq(r.status, 400);
    cr_expect_str_eq(json_string_value(reply_at(&r, "error", "code", NULL)),
                     "invalid_json");
    reply_release(&r);
    fixture_close(&f);
}

/* A constant that is written has the digits that were asked for, or is
 * refused. */
Test(numbers, that_could_not_be_written_as_asked_for_are_refused)
{
    static const char *const big[][2] = {
        { "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{"
          "\"name\":\"n\",\"schema\":{\"const\":" BIG "}}}",
          "response_format.json_schema.schema.const" },
        { "\"tool_choice\":\"required\",\"tools\":[{\"type\":\"function\","
          "\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\","
          "\"properties\":{\"x\":{\"type\":\"integer\",\"enum\":[-" BIG "]}},"
          "\"required\":[\"x\"]}}}]",
          "tools[0].function.parameters.properties.x.enum" },
    };
    struct fixture f;
    struct reply r;
    char body[1024];

    open_one(&f, "</think>9223372036854775807\1");
    for (size_t i = 0; i < sizeof big / sizeof *big; i++) {
        snprintf(body, sizeof body,
                 "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],%s}",
                 big[i][0]);
        client_post(f.url, "/v1/chat/completions", body, &r);
        cr_expect_eq(r.status, 400, "%s: %s", body, r.body.p);
        cr_expect_str_eq(
            json_string_value(reply_at(&r, "error", "param", NULL)), big[i][1],
            "%s", r.body.p);
        reply_release(&r);
    }
    client_post(f.url, "/v1/chat/completions",
                "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"
                "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":"
                "{\"name\":\"n\",\"schema\":{\"const\":9223372036854775807}}}}",
                &r);
    cr_assert_eq(r.status, 200, "%s", r.body.p);
    cr_expect_str_eq(json_string_value(reply_at(&r, "choices", "0", "message",
                                                "content", NULL)),
                     "9223372036854775807");
    reply_release(&r);
    fixture_close(&f);
}
