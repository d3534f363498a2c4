/* CF-1: fields of requests: types, ranges, null and 5.0, and what has no
 * effect. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "tests/http/collect.h"
#include "tests/http/fixture.h"

#define CHAT "/v1/chat/completions"
#define TOOL(name)                                          \
    "{\"type\":\"function\",\"function\":{\"name\":\"" name \
    "\",\"parameters\":{\"type\":\"object\",\"properties\":{}}}}"

struct field_case {
    const char *more;  /* of the request                                      */
    const char *param; /* of the error; NULL: accepted                        */
};

static const struct field_case CASES[] = {
    { "\"temperature\":\"1\"", "temperature" },
    { "\"temperature\":2.1", "temperature" },
    { "\"temperature\":-0.1", "temperature" },
    { "\"temperature\":0", NULL },
    { "\"temperature\":2", NULL },
    { "\"temperature\":null", NULL },
    { "\"top_p\":\"0.9\"", "top_p" },
    { "\"top_p\":1.5", "top_p" },
    { "\"top_p\":0", NULL },
    { "\"min_p\":2", "min_p" },
    { "\"top_k\":-2", "top_k" },
    { "\"top_k\":-1", NULL },
    { "\"top_k\":5.0", NULL },
    { "\"top_k\":5.5", "top_k" },
    { "\"top_k\":\"5\"", "top_k" },
    { "\"n\":0", "n" },
    { "\"n\":9", "n" },
    { "\"n\":1.5", "n" },
    { "\"n\":true", "n" },
    { "\"max_tokens\":0", "max_tokens" },
    { "\"max_tokens\":-2", "max_tokens" },
    { "\"max_tokens\":-1", NULL },
    { "\"max_tokens\":5,\"max_completion_tokens\":5", NULL },
    { "\"max_tokens\":5,\"max_completion_tokens\":6", "max_completion_tokens" },
    { "\"max_completion_tokens\":99999999", NULL },
    { "\"min_tokens\":-1", "min_tokens" },
    { "\"presence_penalty\":2.5", "presence_penalty" },
    { "\"presence_penalty\":-2", NULL },
    { "\"frequency_penalty\":[]", "frequency_penalty" },
    { "\"repetition_penalty\":0", "repetition_penalty" },
    { "\"repetition_penalty\":1.1", NULL },
    { "\"repeat_penalty\":-1", "repeat_penalty" },
    { "\"logit_bias\":[]", "logit_bias" },
    { "\"logit_bias\":{\"99999\":1}", "logit_bias" },
    { "\"logit_bias\":{\"x\":1}", "logit_bias" },
    { "\"logit_bias\":{\"5\":101}", "logit_bias" },
    { "\"logit_bias\":{\"5\":1,\"05\":1}", "logit_bias" },
    { "\"logit_bias\":{\"5\":-100}", NULL },
    { "\"logprobs\":1", "logprobs" },
    { "\"logprobs\":true,\"top_logprobs\":21", "top_logprobs" },
    { "\"top_logprobs\":2", "top_logprobs" },
    { "\"logprobs\":true,\"top_logprobs\":20", NULL },
    { "\"stop\":\"\"", "stop" },
    { "\"stop\":[\"\"]", "stop" },
    { "\"stop\":[1]", "stop" },
    { "\"stop\":5", "stop" },
    { "\"stop\":[\"a\",\"b\",\"c\",\"d\",\"e\"]", "stop" },
    { "\"stop\":[]", NULL },
    { "\"stop\":null", NULL },
    { "\"stop_token_ids\":[99999]", "stop_token_ids" },
    { "\"stop_token_ids\":5", "stop_token_ids" },
    { "\"stop_token_ids\":[5]", NULL },
    { "\"ignore_eos\":1", "ignore_eos" },
    { "\"skip_special_tokens\":\"no\"", "skip_special_tokens" },
    { "\"stream\":1", "stream" },
    { "\"stream_options\":{}", "stream_options" },
    { "\"stream_options\":null", NULL },
    { "\"stream\":true,\"stream_options\":[]", "stream_options" },
    { "\"stream\":true,\"stream_options\":{\"include_usage\":1}",
      "stream_options.include_usage" },
    { "\"model\":5", "model" },
    { "\"model\":\"other\"", "model" },
    { "\"model\":\"scripted\"", NULL },
    { "\"tools\":[]", NULL },
    { "\"tools\":null", NULL },
    { "\"tools\":{}", "tools" },
    { "\"tools\":[1]", "tools[0]" },
    { "\"tools\":[{\"type\":\"function\"}]", "tools[0].name" },
    { "\"tools\":[{\"type\":\"function\",\"function\":{}}]",
      "tools[0].function.name" },
    { "\"tools\":[{\"type\":\"function\",\"function\":\"f\"}]",
      "tools[0].function" },
    { "\"tools\":[" TOOL("a b") "]", "tools[0].function.name" },
    { "\"tools\":[" TOOL("a") "," TOOL("a") "]", "tools[1].function.name" },
    { "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a\","
      "\"parameters\":[]}}]",
      "tools[0].function.parameters" },
    { "\"tools\":[{\"type\":\"web_search\"}]", "tools[0].type" },
    { "\"tools\":[{\"name\":\"flat\"}]", NULL },
    { "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a\"}}]",
      NULL },
    { "\"tool_choice\":\"auto\"", NULL },
    { "\"tool_choice\":\"none\"", NULL },
    { "\"tool_choice\":\"required\"", "tool_choice" },
    { "\"tool_choice\":\"any\"", "tool_choice" },
    { "\"tool_choice\":5", "tool_choice" },
    { "\"tools\":[" TOOL("a") "],\"tool_choice\":\"required\"", NULL },
    { "\"tools\":[" TOOL("a") "],\"tool_choice\":{\"type\":\"function\","
                              "\"function\":{\"name\":\"a\"}}",
      NULL },
    { "\"tools\":[" TOOL("a") "],\"tool_choice\":{\"type\":\"function\","
                              "\"function\":{\"name\":\"b\"}}",
      "tool_choice" },
    { "\"functions\":[{\"name\":\"a\"}],\"function_call\":{\"name\":\"a\"}",
      NULL },
    { "\"functions\":[{\"name\":\"a\"}],\"function_call\":{\"name\":\"b\"}",
      "function_call" },
    { "\"parallel_tool_calls\":\"no\"", "parallel_tool_calls" },
    { "\"response_format\":{\"type\":\"text\"}", NULL },
    { "\"response_format\":{}", "response_format" },
    { "\"response_format\":{\"type\":\"json_schema\"}",
      "response_format.json_schema.schema" },
    { "\"reasoning_effort\":\"huge\"", "reasoning_effort" },
    { "\"reasoning_effort\":\"high\"", NULL },
    { "\"reasoning\":{\"effort\":\"huge\"}", "reasoning.effort" },
    { "\"reasoning\":{\"effort\":\"low\",\"enabled\":true}", NULL },
    { "\"thinking\":{\"type\":\"maybe\"}", "thinking.type" },
    { "\"thinking\":{\"type\":\"disabled\"}", NULL },
    { "\"enable_thinking\":1", "enable_thinking" },
    { "\"chat_template_kwargs\":[]", "chat_template_kwargs" },
    { "\"chat_template_kwargs\":{\"enable_thinking\":1}",
      "chat_template_kwargs.enable_thinking" },
    { "\"chat_template_kwargs\":{\"colour\":\"blue\"}", NULL },
    { "\"continue_final_message\":true", "continue_final_message" },
    { "\"best_of\":2", "best_of" },
    { "\"best_of\":1", NULL },
    { "\"best_of\":2,\"n\":2.0", NULL },
    { "\"best_of\":1,\"n\":null", NULL },
    { "\"best_of\":2,\"n\":\"2\"", "n" },
    { "\"modalities\":[\"text\"]", NULL },
    { "\"modalities\":[\"audio\"]", "modalities" },
    { "\"audio\":{}", "audio" },
    { "\"echo\":true", "echo" },
    { "\"echo\":false", NULL },
    { "\"prompt_logprobs\":1", "prompt_logprobs" },
    { "\"prompt_logprobs\":null", NULL },
    { "\"seed\":1.5", "seed" },
    { "\"seed\":\"1\"", "seed" },
    { "\"user\":\"u\",\"metadata\":{},\"store\":true,\"service_tier\":1",
      NULL },
    { "\"temprature\":5", NULL },
};

Test(fields, are_checked_by_name)
{
    struct fixture f;
    char body[1024];

    fixture_open(&f, "</think>ok\1");
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const struct field_case *c = &CASES[i];
        struct reply r;

        snprintf(body, sizeof body,
                 "{\"messages\":[{\"role\":\"user\","
                 "\"content\":\"hi\"}],%s%s}",
                 c->more, strstr(c->more, "\"seed\"") ? "" : ",\"seed\":1");
        client_post(f.url, CHAT, body, &r);
        if (!c->param) {
            cr_expect_eq(r.status, 200, "%s: %s", c->more, r.body.p);
        } else {
            const char *param =
                json_string_value(reply_at(&r, "error", "param", NULL));

            cr_expect(r.status == 400 ||
                          (r.status == 404 && !strcmp(c->param, "model")),
                      "%s: %d", c->more, r.status);
            cr_expect(param && !strcmp(param, c->param), "%s: param %s, %s",
                      c->more, param, r.body.p);
        }
        reply_release(&r);
    }
    fixture_close(&f);
}

static const struct field_case MESSAGES[] = {
    { "{\"role\":\"user\"}", NULL },
    { "{\"role\":\"user\",\"content\":null}", NULL },
    { "{\"role\":\"user\",\"content\":[]}", NULL },
    { "{\"role\":\"user\",\"content\":5}", "messages[0].content" },
    { "{\"role\":\"user\",\"content\":{}}", "messages[0].content" },
    { "{\"role\":\"robot\",\"content\":\"\"}", "messages[0].role" },
    { "{\"content\":\"\"}", "messages[0].role" },
    { "5", "messages[0]" },
    { "{\"role\":\"developer\",\"content\":\"x\"}", NULL },
    { "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
      "\"b\"]}",
      NULL },
    { "{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}",
      "messages[0].content[0]" },
    { "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
      "{\"type\":\"image_url\",\"image_url\":{\"url\":\"x\"}}]}",
      "messages[0].content[1]" },
    { "{\"role\":\"user\",\"content\":[{\"type\":\"dance\"}]}",
      "messages[0].content[0]" },
    { "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"1\","
      "\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":"
      "\"{\\\"city\\\": \\\"Par\"}}]}",
      NULL },
    { "{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\","
      "\"arguments\":{\"a\":1}}}]}",
      NULL },
    { "{\"role\":\"assistant\",\"tool_calls\":5}", "messages[0].tool_calls" },
    { "{\"role\":\"assistant\",\"tool_calls\":[{}]}",
      "messages[0].tool_calls[0]" },
    { "{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\","
      "\"arguments\":5}}]}",
      "messages[0].tool_calls[0]" },
    { "{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"x\"}", NULL },
    { "{\"role\":\"tool\",\"tool_call_id\":1,\"content\":\"x\"}",
      "messages[0].tool_call_id" },
    { "{\"role\":\"function\",\"name\":\"f\",\"content\":\"x\"}", NULL },
};

/* Of the many pairs of field and value, sanitizers take one in so many. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SHARE 11
#else
#define SHARE 1
#endif

/* Whatever stands in a field, it is accepted, or refused by its name. */
Test(fields, of_any_type_are_accepted_or_named)
{
    static const char *const names[] = {
        "model",
        "messages",
        "prompt",
        "stream",
        "stream_options",
        "max_tokens",
        "max_completion_tokens",
        "min_tokens",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "n",
        "seed",
        "stop",
        "stop_token_ids",
        "ignore_eos",
        "include_stop_str_in_output",
        "skip_special_tokens",
        "presence_penalty",
        "frequency_penalty",
        "repetition_penalty",
        "repeat_penalty",
        "logit_bias",
        "logprobs",
        "top_logprobs",
        "best_of",
        "echo",
        "tools",
        "tool_choice",
        "functions",
        "function_call",
        "parallel_tool_calls",
        "response_format",
        "grammar",
        "modalities",
        "priority",
        "timeout",
        "cache_salt",
        "user",
        "reasoning_effort",
        "reasoning",
        "thinking",
        "enable_thinking",
        "chat_template_kwargs",
        "include_reasoning",
        "separate_reasoning",
        "stream_reasoning",
        "add_generation_prompt",
        "continue_final_message",
        "return_token_ids",
        "use_beam_search",
        "thinking_token_budget",
        "suffix",
        "audio",
        "web_search_options",
        "chat_template",
        "prompt_logprobs",
        "logits_processors",
        "lora",
        "json_schema",
        "regex",
        "ebnf",
        "guided_json",
        "guided_regex",
        "guided_choice",
        "guided_grammar",
        "structured_outputs",
        "typical_p",
        "mirostat",
        "dry_multiplier",
        "length_penalty",
        "stop_regex",
        "bad_words",
        "allowed_token_ids",
    };
    static const char *const values[] = {
        "null",         "true",       "false", "0",
        "-1",           "1e308",      "0.5",   "\"\"",
        "\"x\"",        "[]",         "{}",    "[null]",
        "[[]]",         "{\"x\":{}}", "[{}]",  "99999999999999999999999",
        "{\"type\":5}", "[\"\",1]",
    };
    static const char *const bases[][2] = {
        { "/v1/chat/completions",
          "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]" },
        { "/v1/completions", "\"prompt\":\"x\"" },
    };
    struct fixture f;
    size_t at = 0;

    fixture_open(&f, "</think>ok\1");
    for (int b = 0; b < 2; b++)
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            for (size_t k = 0; k < sizeof values / sizeof *values; k++) {
                const char *param;
                char body[512];
                struct reply r;

                if (at++ % SHARE)
                    continue;
                /* What the body cannot do without may come twice here. */
                if (!strcmp(names[i], "messages") ||
                    !strcmp(names[i], "prompt"))
                    continue;
                snprintf(body, sizeof body, "{%s,%s\"%s\":%s}", bases[b][1],
                         strcmp(names[i], "seed") ? "\"seed\":1," : "",
                         names[i], values[k]);
                if (!strcmp(names[i], "stream") && !strcmp(values[k], "true"))
                    continue;
                client_post(f.url, bases[b][0], body, &r);
                param = json_string_value(reply_at(&r, "error", "param", NULL));
                if (!strcmp(values[k], "null"))
                    cr_expect_eq(r.status, 200, "%s: %s", body, r.body.p);
                else if (r.status != 200 && strcmp(names[i], "model"))
                    cr_expect(r.status == 400 && param &&
                                  !strncmp(param, names[i], strlen(names[i])),
                              "%s: %d %s", body, r.status, r.body.p);
                reply_release(&r);
            }
    fixture_alive(&f, 1, "ok");
    fixture_close(&f);
}

/* Tokens of a prompt that were not computed again. */
static json_int_t cached(struct fixture *f, const char *prompt,
                         const char *salt)
{
    char body[512];
    struct reply r;
    json_int_t n;

    snprintf(body, sizeof body,
             "{\"seed\":1,\"max_tokens\":1,\"prompt\":\"%s\"%s}", prompt, salt);
    client_post(f->url, "/v1/completions", body, &r);
    cr_assert_eq(r.status, 200, "%s", r.body.p);
    n = json_integer_value(
        reply_at(&r, "usage", "prompt_tokens_details", "cached_tokens", NULL));
    reply_release(&r);
    return n;
}

Test(fields, cache_salt_keeps_prefixes_apart)
{
    static const char a[] =
        "the beginning of a long conversation with somebody";
    static const char b[] =
        "the beginning of a long conversation with somebody, going on";
    struct fixture f;

    fixture_open(&f, "ok\1");
    cr_expect_eq(cached(&f, a, ""), 0);
    cr_expect_eq(cached(&f, b, ",\"cache_salt\":\"x\""), 0);
    cr_expect_geq(cached(&f, b, ""), 32);
    cr_expect_eq(cached(&f, a, ",\"cache_salt\":\"y\""), 0);
    cr_expect_geq(cached(&f, b, ",\"cache_salt\":\"y\""), 32);
    cr_expect_eq(cached(&f, b, ",\"cache_salt\":\"z\""), 0);
    fixture_close(&f);
}

Test(fields, of_messages_are_checked_by_place)
{
    struct fixture f;
    char body[1024];

    fixture_open(&f, "</think>ok\1");
    for (size_t i = 0; i < sizeof MESSAGES / sizeof *MESSAGES; i++) {
        const struct field_case *c = &MESSAGES[i];
        const char *param;
        struct reply r;

        snprintf(body, sizeof body, "{\"seed\":1,\"messages\":[%s]}", c->more);
        client_post(f.url, CHAT, body, &r);
        param = json_string_value(reply_at(&r, "error", "param", NULL));
        cr_expect_eq(r.status, c->param ? 400 : 200, "%s: %s", c->more,
                     r.body.p);
        if (c->param)
            cr_expect(param && !strcmp(param, c->param), "%s: param %s",
                      c->more, param);
        reply_release(&r);
    }
    fixture_close(&f);
}

static const struct field_case PROMPTS[] = {
    { "\"prompt\":\"x\"", NULL },
    { "\"prompt\":[\"x\",\"y\"]", NULL },
    { "\"prompt\":[1,2,3]", NULL },
    { "\"prompt\":[1.0,2]", NULL },
    { "\"prompt\":[[1,2],[3]]", NULL },
    { "\"prompt\":[]", "prompt" },
    { "\"prompt\":[[]]", "prompt" },
    { "\"prompt\":[[1],\"x\"]", "prompt" },
    { "\"prompt\":[\"x\",1]", "prompt" },
    { "\"prompt\":[1,-1]", "prompt" },
    { "\"prompt\":[99999]", "prompt" },
    { "\"prompt\":[1.5]", "prompt" },
    { "\"prompt\":5", "prompt" },
    { "\"prompt\":\"\"", "prompt" },
    { "\"prompt\":null", "prompt" },
    { "\"prompt\":\"x\",\"logprobs\":21", "logprobs" },
    { "\"prompt\":\"x\",\"logprobs\":true", "logprobs" },
    { "\"prompt\":\"x\",\"suffix\":\"y\"", "suffix" },
    { "\"prompt\":\"x\",\"best_of\":3", "best_of" },
};

Test(fields, of_prompts_are_checked)
{
    struct fixture f;
    char body[1024];

    fixture_open(&f, "ok\1");
    for (size_t i = 0; i < sizeof PROMPTS / sizeof *PROMPTS; i++) {
        const struct field_case *c = &PROMPTS[i];
        const char *param;
        struct reply r;

        snprintf(body, sizeof body, "{\"seed\":1,%s}", c->more);
        client_post(f.url, "/v1/completions", body, &r);
        param = json_string_value(reply_at(&r, "error", "param", NULL));
        cr_expect_eq(r.status, c->param ? 400 : 200, "%s: %s", c->more,
                     r.body.p);
        if (c->param)
            cr_expect(param && !strcmp(param, c->param), "%s: param %s",
                      c->more, param);
        reply_release(&r);
    }
    fixture_close(&f);
}

Test(fields, without_effect_are_listed)
{
    struct fixture f;
    struct reply r;
    char body[512], v[256];

    fixture_open(&f, "</think>ok\1");
    client_post(f.url, CHAT,
                ask(body, sizeof body, 1,
                    "\"temprature\":5,\"store\":true,"
                    "\"bad\\nname\":1"),
                &r);
    cr_expect_eq(r.status, 200);
    cr_expect_str_eq(reply_header(&r, "X-Seam-Ignored", v, sizeof v),
                     "temprature, store, bad%0Aname");
    reply_release(&r);
    fixture_wait_log(&f, "fields without effect: temprature, store, "
                         "bad%0Aname");
    client_post(f.url, CHAT, ask(body, sizeof body, 1, NULL), &r);
    cr_expect_null(reply_header(&r, "X-Seam-Ignored", v, sizeof v));
    reply_release(&r);
    fixture_close(&f);
}

Test(fields, without_effect_are_listed_wherever_they_stand)
{
#define HI "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]"
    static const struct {
        const char *path, *body, *list; /* NULL: none                      */
    } cases[] = {
        { CHAT,
          "{" HI ",\"stream_options\":{\"include_obfuscation\":true,"
          "\"x\":1},\"stream\":true}",
          "stream_options.include_obfuscation, stream_options.x" },
        { CHAT, "{" HI ",\"reasoning\":{\"effort\":\"low\",\"exclude\":true}}",
          "reasoning.exclude" },
        { CHAT,
          "{" HI ",\"thinking\":{\"type\":\"enabled\",\"display\":1},"
          "\"chat_template_kwargs\":{\"colour\":1,\"thinking\":true}}",
          "thinking.display, chat_template_kwargs.colour" },
        { CHAT,
          "{\"messages\":[{\"role\":\"user\",\"content\":\"x\",\"name\":"
          "\"bob\"},{\"role\":\"assistant\",\"content\":\"y\",\"refusal\":"
          "null,\"annotations\":[],\"audio\":null},{\"role\":\"user\","
          "\"content\":\"x\",\"name\":\"bob\"}]}",
          "messages.name, messages.annotations" },
        { CHAT, "{" HI ",\"x\":null,\"y\":1,\"store\":false}", "y, store" },
        { "/v1/messages",
          "{\"max_tokens\":9," HI ",\"output_config\":{\"effort\":\"low\","
          "\"x\":1},\"tools\":[{\"name\":\"f\",\"input_schema\":{},"
          "\"strict\":false,\"cache_control\":{},\"defer_loading\":true}]}",
          "tools.defer_loading, output_config.x" },
        { "/v1/responses",
          "{\"input\":\"x\",\"text\":{\"verbosity\":\"low\"},\"reasoning\":{"
          "\"summary\":\"auto\"},\"store\":true}",
          "text.verbosity, store, reasoning.summary" },
        { "/v1/responses",
          "{\"input\":\"x\",\"text\":{\"format\":{\"type\":"
          "\"text\"}}}",
          NULL },
    };
    struct fixture f;

    fixture_init(&f);
    fixture_text(&f, "</think>ok\1");
    fixture_bind(&f, NULL, 0, ",\"any_seed\":true");
    fixture_start(&f);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *found;
        struct reply r;
        char v[512];

        client_post(f.url, cases[i].path, cases[i].body, &r);
        cr_expect_eq(r.status, 200, "%s: %s", cases[i].body, r.body.p);
        found = reply_header(&r, "X-Seam-Ignored", v, sizeof v);
        if (cases[i].list)
            cr_expect(found && !strcmp(found, cases[i].list), "%s: %s",
                      cases[i].body, found ? found : "none");
        else
            cr_expect_null(found, "%s: %s", cases[i].body, found);
        reply_release(&r);
    }
    fixture_close(&f);
}

/* None vanishes without a trace: what cannot be spelled out is hinted at, in
 * the answer and in the log. */
Test(fields, without_effect_are_hinted_at_when_they_are_long_or_many)
{
    static const char *const routes[][2] = {
        { CHAT, "{" HI },
        { "/v1/responses", "{\"input\":\"x\"" },
        { "/tokenize", "{" HI },
    };
    struct fixture f;

    fixture_init(&f);
    fixture_text(&f, "</think>ok\1");
    fixture_bind(&f, NULL, 0, ",\"any_seed\":true");
    fixture_start(&f);
    for (int i = 0; i < 3; i++) {
        struct seam_buf body = { 0 };
        char v[2048];
        struct reply r;
        const char *found;

        seam_buf_fmt(&body, "%s,\"two words, caf\xc3\xa9\":1,\"\":1,\"%0*d\":1",
                     routes[i][1], 100, 0);
        for (int k = 0; k < 300; k++)
            seam_buf_fmt(&body, ",\"field_%d\":1", k);
        seam_buf_str(&body, "}");
        client_post(f.url, routes[i][0], body.p, &r);
        cr_expect_eq(r.status, 200, "%s", r.body.p);
        found = reply_header(&r, "X-Seam-Ignored", v, sizeof v);
        cr_assert_not_null(found);
        cr_expect_eq(
            strncmp(v, "two%20words%2C%20caf%C3%A9, (empty), 0000", 41), 0,
            "%s", v);
        cr_expect_not_null(strstr(v, "000..., field_0, field_1, "), "%s", v);
        cr_expect_null(strstr(v, "field_299"), "%s", v);
        cr_expect(strlen(v) > 10 && !strcmp(v + strlen(v) - 10, ", (others)"),
                  "%s", v);
        seam_buf_clear(&body);
        seam_buf_fmt(&body, ": fields without effect: %s", v);
        fixture_wait_log(&f, body.p);
        reply_release(&r);
        seam_buf_release(&body);
    }
    fixture_close(&f);
}

Test(fields, that_all_routes_share_mean_the_same)
{
    static const char *const cases[][2] = {
        { "/v1/messages", "{\"max_tokens\":9," HI },
        { "/v1/responses", "{\"max_output_tokens\":9,\"input\":\"x\"" },
        { CHAT, "{\"max_tokens\":9," HI },
    };
    struct fixture f;

    fixture_init(&f);
    fixture_text(&f, "</think>ok\1");
    fixture_bind(&f, NULL, 0, ",\"any_seed\":true");
    fixture_start(&f);
    for (int i = 0; i < 3; i++)
        for (int bad = 0; bad < 4; bad++) {
            static const char *const values[][3] = {
                { "\"s\"", "0", "60" },
                { "\"\"", "0", "60" },
                { "\"s\"", "\"high\"", "60" },
                { "\"s\"", "0", "-1" },
            };
            struct reply r;
            char body[512], v[256];

            snprintf(body, sizeof body,
                     "%s,\"cache_salt\":%s,\"priority\":%s,\"timeout\":%s}",
                     cases[i][1], values[bad][0], values[bad][1],
                     values[bad][2]);
            client_post(f.url, cases[i][0], body, &r);
            cr_expect_eq(r.status, bad ? 400 : 200, "%s: %s", body, r.body.p);
            cr_expect_null(reply_header(&r, "X-Seam-Ignored", v, sizeof v));
            reply_release(&r);
        }
    fixture_close(&f);
}

/* A field of chats that another API does not have is honoured where it means
 * something there, and refused where it would change the answer. */
Test(fields, of_chats_on_other_routes_are_honoured_or_refused)
{
    static const struct {
        const char *more, *param; /* NULL: accepted                        */
    } cases[] = {
        { "\"n\":2", "n" },
        { "\"n\":1", NULL },
        { "\"n\":1.0,\"best_of\":1", NULL },
        { "\"best_of\":2", "best_of" },
        { "\"logprobs\":true", "logprobs" },
        { "\"logprobs\":false,\"top_logprobs\":0", NULL },
        { "\"top_logprobs\":2", "top_logprobs" },
        { "\"seed\":\"x\"", "seed" },
        { "\"min_p\":0.1,\"presence_penalty\":1,\"min_tokens\":1", NULL },
        { "\"min_p\":2", "min_p" },
        { "\"logit_bias\":{\"5\":101}", "logit_bias" },
        { "\"logit_bias\":{\"5\":-100}", NULL },
        { "\"stop_token_ids\":[99999]", "stop_token_ids" },
        { "\"chat_template_kwargs\":{\"enable_thinking\":1}",
          "chat_template_kwargs.enable_thinking" },
        { "\"enable_thinking\":true", NULL },
        { "\"response_format\":{\"type\":\"json_object\"}", "response_format" },
        { "\"grammar\":\"root ::= \\\"a\\\"\"", "grammar" },
        { "\"guided_json\":{}", "guided_json" },
        { "\"echo\":true", "echo" },
        { "\"echo\":false", NULL },
        { "\"max_completion_tokens\":5", "max_completion_tokens" },
        { "\"functions\":[{\"name\":\"a\"}]", "functions" },
        { "\"add_generation_prompt\":false", "add_generation_prompt" },
        { "\"separate_reasoning\":false", "separate_reasoning" },
    };
    static const char *const routes[][2] = {
        { "/v1/messages", "{\"max_tokens\":9," HI },
        { "/v1/responses", "{\"max_output_tokens\":9,\"input\":\"x\"" },
    };
    struct fixture f;

    fixture_init(&f);
    fixture_text(&f, "</think>ok\1");
    fixture_bind(&f, NULL, 0, ",\"any_seed\":true");
    fixture_start(&f);
    for (size_t i = 0; i < 2 * (sizeof cases / sizeof *cases); i++) {
        const char *param = cases[i / 2].param, *text;
        struct reply r;
        char body[512], v[256];

        snprintf(body, sizeof body, "%s,%s}", routes[i % 2][1],
                 cases[i / 2].more);
        client_post(f.url, routes[i % 2][0], body, &r);
        cr_expect_eq(r.status, param ? 400 : 200, "%s: %s", body, r.body.p);
        cr_expect_null(reply_header(&r, "X-Seam-Ignored", v, sizeof v), "%s",
                       body);
        text = json_string_value(reply_at(&r, "error", "message", NULL));
        cr_expect(!param || (text && strstr(text, param)), "%s: %s", body,
                  r.body.p);
        reply_release(&r);
    }
    fixture_close(&f);
}

Test(fields, of_sampling_count_on_every_route)
{
    struct fixture f;
    struct reply r;
    unsigned seed;
    char body[512];

    fixture_init(&f);
    fixture_text(&f, "</think>one\1");
    seed = fixture_text(&f, "</think>two three\1");
    fixture_bind(&f, NULL, 0, NULL);
    fixture_start(&f);
    snprintf(body, sizeof body,
             "{\"input\":\"x\",\"seed\":%u,\"stop\":[\" th\"]}", seed);
    client_post(f.url, "/v1/responses", body, &r);
    cr_assert_eq(r.status, 200, "%s", r.body.p);
    cr_expect_str_eq(json_string_value(reply_at(&r, "output", "0", "content",
                                                "0", "text", NULL)),
                     "two", "%s", r.body.p);
    reply_release(&r);
    snprintf(body, sizeof body,
             "{\"max_tokens\":99," HI ",\"seed\":%u,\"stop\":[\" th\"]}", seed);
    client_post(f.url, "/v1/messages", body, &r);
    cr_assert_eq(r.status, 200, "%s", r.body.p);
    cr_expect_str_eq(
        json_string_value(reply_at(&r, "content", "0", "text", NULL)), "two",
        "%s", r.body.p);
    cr_expect_str_eq(json_string_value(reply_at(&r, "stop_reason", NULL)),
                     "stop_sequence");
    reply_release(&r);
    fixture_close(&f);
}

/* A strict tool is one on every route: its calls conform. */
Test(fields, of_messages_bind_as_those_of_chats_do)
{
    struct fixture f;
    struct reply r;

    fixture_init(&f);
    fixture_text(&f, "</think>1\1");
    fixture_bind(&f, NULL, 0, ",\"any_seed\":true");
    fixture_start(&f);
    client_post(f.url, "/v1/messages",
                "{\"max_tokens\":20," HI ",\"tools\":[{\"name\":\"f\","
                "\"strict\":true,\"input_schema\":{\"type\":\"object\","
                "\"properties\":{\"n\":{\"not\":{}}}}}]}",
                &r);
    cr_expect_eq(r.status, 400, "%s", r.body.p);
    cr_expect_not_null(strstr(r.body.p, "not"), "%s", r.body.p);
    reply_release(&r);
    client_post(f.url, "/v1/messages",
                "{\"max_tokens\":200," HI ",\"output_format\":{\"type\":"
                "\"json_schema\",\"schema\":{\"enum\":[1]}}}",
                &r);
    cr_expect_eq(r.status, 200, "%s", r.body.p);
    cr_expect_not_null(strstr(r.body.p, "\"text\":\"1\""), "%s", r.body.p);
    reply_release(&r);
    fixture_close(&f);
}

static char *file_text(const char *path)
{
    struct seam_error err;
    char *text;
    uint64_t n;

    cr_assert_eq(seam_file_read(path, 1 << 20, &text, &n, &err), 0, "%s",
                 err.text);
    text = realloc(text, n + 1);
    cr_assert_not_null(text);
    text[n] = 0;
    return text;
}

/* Each row of the table of fields is one of the manual's. */
Test(fields, that_are_known_are_in_the_manual)
{
    char *manual = file_text(SEAM_TEST_SOURCE_DIR "/docs/api.md");
    char *source = file_text(SEAM_TEST_SOURCE_DIR "/core/server/request.c");
    char *p = strstr(source, "FIELDS[] = {");
    char *end = p ? strstr(p, "\n};") : NULL;
    unsigned n = 0;

    cr_assert_not_null(end);
    *end = 0;
    for (; (p = strstr(p, "\n    { \"")); n++) {
        char quoted[80];

        p += 8;
        snprintf(quoted, sizeof quoted, "`%.*s`", (int)strcspn(p, "\""), p);
        cr_expect_not_null(strstr(manual, quoted), "%s is not in docs/api.md",
                           quoted);
    }
    cr_expect_gt(n, 60);
    free(manual);
    free(source);
}

Test(fields, model_names_are_those_served)
{
    static const struct seam_flag flags[] = {
        { "model.aliases", "[\"gpt-x\",\"org/name\"]" },
    };
    struct fixture f;
    struct reply r;
    char body[256];

    fixture_init(&f);
    fixture_text(&f, "</think>ok\1");
    fixture_bind(&f, flags, 1, NULL);
    fixture_start(&f);
    client_post(f.url, CHAT, ask(body, sizeof body, 1, "\"model\":\"gpt-x\""),
                &r);
    cr_expect_eq(r.status, 200);
    cr_expect_str_eq(json_string_value(reply_at(&r, "model", NULL)), "gpt-x");
    reply_release(&r);
    client_post(f.url, CHAT, ask(body, sizeof body, 1, "\"model\":\"gpt-y\""),
                &r);
    cr_expect_eq(r.status, 404);
    cr_expect_str_eq(json_string_value(reply_at(&r, "error", "code", NULL)),
                     "model_not_found");
    reply_release(&r);
    client_get(f.url, "/v1/models", &r);
    cr_expect_eq(json_array_size(reply_at(&r, "data", NULL)), 3);
    cr_expect_eq(
        json_integer_value(reply_at(&r, "data", "0", "max_model_len", NULL)),
        4096);
    reply_release(&r);
    client_get(f.url, "/v1/models/org%2Fname", &r);
    cr_expect_eq(r.status, 200);
    reply_release(&r);
    client_get(f.url, "/models/org/name", &r);
    cr_expect_str_eq(json_string_value(reply_at(&r, "id", NULL)), "org/name");
    reply_release(&r);
    client_get(f.url, "/v1/models/nobody", &r);
    cr_expect_eq(r.status, 404);
    reply_release(&r);
    fixture_close(&f);
}
