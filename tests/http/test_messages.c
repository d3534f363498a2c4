/* The Messages API: requests as its clients send them, blocks and events. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "tests/http/fixture.h"

#define PATH "/v1/messages?beta=true"
#define LIST "<tool_call>list_rooms</tool_call>"
#define BOOK                                                          \
    "<tool_call>book<arg_key>hours</arg_key><arg_value>2</arg_value>" \
    "</tool_call>"
#define TOOLS                                                            \
    "\"tools\":[{\"name\":\"list_rooms\",\"input_schema\":{\"type\":"    \
    "\"object\",\"properties\":{}}},{\"name\":\"book\",\"description\":" \
    "\"b\",\"input_schema\":{\"type\":\"object\",\"properties\":"        \
    "{\"hours\":{\"type\":\"integer\"}}},\"cache_control\":{},"          \
    "\"eager_input_streaming\":true},"                                   \
    "{\"type\":\"web_search_20250305\",\"name\":\"web_search\"}]"
#define HI "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"

/* Requests of this API have no seed: the scripts play in order, which the only
 * one does for every seed. */
static void open_one(struct fixture *f, const char *text)
{
    fixture_init(f);
    fixture_text(f, text);
    fixture_bind(f, NULL, 0, ",\"any_seed\":true");
    fixture_start(f);
}

static const char *string_at(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

Test(messages, answer_in_blocks)
{
    struct fixture f;
    struct reply r;
    json_t *block;

    open_one(&f, "why</think>so " LIST BOOK "\1");
    client_post(f.url, PATH,
                "{\"model\":\"scripted\",\"max_tokens\":200," HI "," TOOLS "}",
                &r);
    cr_assert_eq(r.status, 200, "%s", r.body.p);
    cr_expect_str_eq(string_at(r.json, "type"), "message");
    cr_expect_str_eq(string_at(r.json, "role"), "assistant");
    cr_expect_eq(strncmp(string_at(r.json, "id"), "msg_", 4), 0);
    cr_expect_str_eq(string_at(r.json, "stop_reason"), "tool_use");
    cr_assert_eq(json_array_size(reply_at(&r, "content", NULL)), 4, "%s",
                 r.body.p);
    block = reply_at(&r, "content", "0", NULL);
    cr_expect_str_eq(string_at(block, "type"), "thinking");
    cr_expect_str_eq(string_at(block, "thinking"), "why");
    cr_expect_str_eq(string_at(block, "signature"), "");
    cr_expect_str_eq(string_at(reply_at(&r, "content", "1", NULL), "text"),
                     "so ");
    block = reply_at(&r, "content", "2", NULL);
    cr_expect_str_eq(string_at(block, "type"), "tool_use");
    cr_expect_str_eq(string_at(block, "name"), "list_rooms");
    cr_expect_eq(strncmp(string_at(block, "id"), "toolu_", 6), 0);
    cr_expect_eq(json_object_size(json_object_get(block, "input")), 0);
    block = reply_at(&r, "content", "3", NULL);
    cr_expect_eq(json_integer_value(
                     json_object_get(json_object_get(block, "input"), "hours")),
                 2);
    cr_expect_gt(
        json_integer_value(reply_at(&r, "usage", "input_tokens", NULL)), 0);
    cr_expect_gt(
        json_integer_value(reply_at(&r, "usage", "output_tokens", NULL)), 10);
    reply_release(&r);
    fixture_close(&f);
}

/* The names of the events, runs of deltas as one, and the joined deltas. */
static void events(struct fixture *f, const char *body, struct seam_buf *names,
                   struct seam_buf *text)
{
    struct client c;
    struct reply r;
    struct seam_buf event = { 0 };
    char before[64] = "";
    int open = -1, next = 0;

    client_open(&c, f->url);
    client_put_post(&c, PATH, body);
    client_stream(&c, &r);
    while (client_event(&c, &event, NULL)) {
        char name[64];
        const char *data = strstr(event.p, "\ndata: ");
        json_t *v, *delta;

        cr_assert_not_null(data, "%s", event.p);
        cr_assert_eq(sscanf(event.p, "event: %63s", name), 1);
        v = json_loads(data + 7, 0, NULL);
        cr_assert_not_null(v);
        cr_expect_str_eq(string_at(v, "type"), name);
        if (strcmp(name, "content_block_delta") || strcmp(name, before))
            seam_buf_fmt(names, "%s ", name);
        snprintf(before, sizeof before, "%s", name);
        if (!strcmp(name, "content_block_start")) {
            cr_expect_eq(open, -1, "blocks overlap");
            open = (int)json_integer_value(json_object_get(v, "index"));
            cr_expect_eq(open, next++);
            if (!strcmp(string_at(json_object_get(v, "content_block"), "type"),
                        "tool_use"))
                cr_expect(json_is_object(json_object_get(
                    json_object_get(v, "content_block"), "input")));
        } else if (!strcmp(name, "content_block_stop")) {
            cr_expect_eq(json_integer_value(json_object_get(v, "index")), open);
            open = -1;
        } else if (!strcmp(name, "content_block_delta")) {
            cr_expect_eq(json_integer_value(json_object_get(v, "index")), open);
        }
        delta = json_object_get(v, "delta");
        for (int i = 0; i < 3; i++) {
            static const char *const fields[] = { "thinking", "text",
                                                  "partial_json" };
            const char *s = string_at(delta, fields[i]);

            seam_buf_str(text, s ? s : "");
        }
        if (string_at(delta, "stop_reason"))
            seam_buf_fmt(text, "|%s", string_at(delta, "stop_reason"));
        json_decref(v);
    }
    seam_buf_release(&event);
    reply_release(&r);
    client_close(&c);
}

Test(messages, stream_block_by_block)
{
    struct fixture f;
    struct seam_buf names = { 0 }, text = { 0 };

    open_one(&f, "w</think>s" LIST BOOK "\1");
    events(&f,
           "{\"model\":\"scripted\",\"max_tokens\":200,\"stream\":true," HI
           "," TOOLS "}",
           &names, &text);
    cr_expect_str_eq(
        names.p,
        "message_start "
        "content_block_start content_block_delta content_block_stop "
        "content_block_start content_block_delta content_block_stop "
        "content_block_start content_block_delta content_block_stop "
        "content_block_start content_block_delta content_block_stop "
        "message_delta message_stop ",
        "%s", names.p);
    cr_expect_str_eq(text.p, "ws{}{\"hours\": 2}|tool_use", "%s", text.p);
    seam_buf_release(&names);
    seam_buf_release(&text);
    fixture_close(&f);
}

Test(messages, without_output_have_one_empty_block)
{
    struct fixture f;
    struct reply r;
    struct seam_buf names = { 0 }, text = { 0 };

    open_one(&f, "</think>\1");
    client_post(f.url, PATH, "{\"max_tokens\":9," HI "}", &r);
    cr_assert_eq(r.status, 200, "%s", r.body.p);
    cr_expect_eq(json_array_size(reply_at(&r, "content", NULL)), 1);
    cr_expect_str_eq(string_at(reply_at(&r, "content", "0", NULL), "text"), "");
    cr_expect_str_eq(string_at(r.json, "stop_reason"), "end_turn");
    reply_release(&r);
    events(&f, "{\"max_tokens\":9,\"stream\":true," HI "}", &names, &text);
    cr_expect_str_eq(names.p, "message_start content_block_start "
                              "content_block_stop message_delta "
                              "message_stop ");
    seam_buf_release(&names);
    seam_buf_release(&text);
    fixture_close(&f);
}

Test(messages, say_why_they_ended)
{
    struct fixture f;
    struct reply r;

    open_one(&f, "</think>one two three\1");
    client_post(f.url, PATH, "{\"max_tokens\":5," HI "}", &r);
    cr_expect_str_eq(string_at(r.json, "stop_reason"), "max_tokens");
    cr_expect(json_is_null(reply_at(&r, "stop_sequence", NULL)));
    reply_release(&r);
    client_post(f.url, PATH,
                "{\"max_tokens\":99,\"stop_sequences\":[\"x\","
                "\"y\",\"z\",\"q\",\"two\"]," HI "}",
                &r);
    cr_expect_str_eq(string_at(r.json, "stop_reason"), "stop_sequence");
    cr_expect_str_eq(string_at(r.json, "stop_sequence"), "two");
    reply_release(&r);
    fixture_close(&f);
}

Test(messages, render_as_the_chat_they_mean)
{
    /* Billing header dropped; two results in one user message and no user turn
     * before the text; thinking of the history kept. */
    static const char anthropic[] =
        "{\"max_tokens\":1,\"cache_control\":{\"type\":\"ephemeral\"},"
        "\"metadata\":{},\"thinking\":{\"type\":"
        "\"enabled\",\"budget_tokens\":1},\"system\":[{\"type\":\"text\",\"text\":"
        "\"x-anthropic-billing-header: 1\"},{\"type\":\"text\",\"text\":"
        "\"Be brief.\",\"cache_control\":{\"type\":\"ephemeral\"}}],"
        "\"messages\":["
        "{\"role\":\"user\",\"content\":\"go\"},"
        "{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\","
        "\"thinking\":\"hm\",\"signature\":\"s\"},{\"type\":\"text\",\"text\":"
        "\"Looking.\"},{\"type\":\"tool_use\",\"id\":\"t1\",\"name\":"
        "\"list_rooms\",\"input\":{}},{\"type\":\"tool_use\",\"id\":\"t2\","
        "\"name\":\"book\",\"input\":{\"hours\":2}}]},"
        "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":"
        "\"and?\"},{\"type\":\"tool_result\",\"tool_use_id\":\"t1\","
        "\"content\":[{\"type\":\"text\",\"text\":\"A\"},{\"type\":\"text\","
        "\"text\":\"B\"}]},{\"type\":\"tool_result\",\"tool_use_id\":\"t2\","
        "\"is_error\":true}]}]," TOOLS "}";
    static const char chat[] =
        "{\"messages\":[{\"role\":\"system\",\"content\":\"Be brief.\"},"
        "{\"role\":\"user\",\"content\":\"go\"},"
        "{\"role\":\"assistant\",\"reasoning_content\":\"hm\",\"content\":"
        "\"Looking.\",\"tool_calls\":[{\"id\":\"t1\",\"type\":\"function\","
        "\"function\":{\"name\":\"list_rooms\",\"arguments\":\"{}\"}},"
        "{\"id\":\"t2\",\"type\":\"function\",\"function\":{\"name\":\"book\","
        "\"arguments\":\"{\\\"hours\\\":2}\"}}]},"
        "{\"role\":\"tool\",\"tool_call_id\":\"t1\",\"content\":\"AB\"},"
        "{\"role\":\"tool\",\"tool_call_id\":\"t2\",\"content\":\"Error\"},"
        "{\"role\":\"user\",\"content\":\"and?\"}],"
        "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":"
        "\"list_rooms\",\"parameters\":{\"type\":\"object\",\"properties\":{}}"
        "}},{\"type\":\"function\",\"function\":{\"name\":\"book\","
        "\"description\":\"b\",\"parameters\":{\"type\":\"object\","
        "\"properties\":{\"hours\":{\"type\":\"integer\"}}}}}]}";
    struct fixture f;
    struct reply a, b;
    char v[256];

    open_one(&f, "</think>\1");
    client_post(f.url, "/v1/messages/count_tokens?beta=true", anthropic, &a);
    cr_assert_eq(a.status, 200, "%s", a.body.p);
    client_post(f.url, "/tokenize", chat, &b);
    cr_assert_eq(b.status, 200, "%s", b.body.p);
    cr_expect_eq(json_integer_value(reply_at(&a, "input_tokens", NULL)),
                 json_integer_value(reply_at(&b, "count", NULL)));
    reply_release(&a);
    client_post(f.url, "/v1/messages", anthropic, &a);
    cr_expect_eq(
        json_integer_value(reply_at(&a, "usage", "input_tokens", NULL)) +
            json_integer_value(
                reply_at(&a, "usage", "cache_read_input_tokens", NULL)),
        json_integer_value(reply_at(&b, "count", NULL)));
    cr_expect_str_eq(reply_header(&a, "X-Seam-Ignored", v, sizeof v),
                     "tools.type, metadata, thinking.budget_tokens");
    cr_expect_null(
        strstr(strstr(a.head.p, "X-Seam-Ignored") + 1, "X-Seam-Ignored"));
    reply_release(&a);
    reply_release(&b);
    fixture_close(&f);
}

/* What the blocks of a user's message render as, told from text by its length:
 * a token is a byte here. */
static void renders(struct fixture *f, const char *blocks, const char *text,
                    const char *ignored)
{
    struct seam_buf body = { 0 };
    struct reply a, b;
    char v[256];

    seam_buf_fmt(&body, "{\"messages\":[{\"role\":\"user\",\"content\":[%s]}]}",
                 blocks);
    client_post(f->url, "/v1/messages/count_tokens", body.p, &a);
    cr_assert_eq(a.status, 200, "%s: %s", blocks, a.body.p);
    seam_buf_clear(&body);
    seam_buf_str(&body, "{\"messages\":[{\"role\":\"user\",\"content\":");
    seam_buf_json(&body, text, strlen(text));
    seam_buf_str(&body, "}]}");
    client_post(f->url, "/tokenize", body.p, &b);
    cr_assert_eq(b.status, 200, "%s", b.body.p);
    cr_expect_eq(json_integer_value(reply_at(&a, "input_tokens", NULL)),
                 json_integer_value(reply_at(&b, "count", NULL)), "%s", blocks);
    if (ignored)
        cr_expect_str_eq(reply_header(&a, "X-Seam-Ignored", v, sizeof v),
                         ignored, "%s", blocks);
    else
        cr_expect_null(reply_header(&a, "X-Seam-Ignored", v, sizeof v), "%s",
                       blocks);
    reply_release(&a);
    reply_release(&b);
    seam_buf_release(&body);
}

Test(messages, documents_and_search_results_are_text)
{
    struct fixture f;

    open_one(&f, "</think>ok\1");
    renders(
        &f,
        "{\"type\":\"document\",\"source\":{\"type\":\"text\","
        "\"media_type\":\"text/plain\",\"data\":\"It rains.\\n\"},\"title\":"
        "\"News\",\"context\":\"of today\",\"citations\":{\"enabled\":"
        "false},\"cache_control\":{\"type\":\"ephemeral\"}},{\"type\":"
        "\"text\",\"text\":\"Does it rain?\"}",
        "<document>\nTitle: News\nContext: of today\n\nIt rains.\n\n"
        "</document>\nDoes it rain?",
        NULL);
    renders(&f,
            "{\"type\":\"document\",\"title\":null,\"source\":{\"type\":"
            "\"content\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{"
            "\"type\":\"text\",\"text\":\"b\"}]},\"citations\":{\"enabled\":"
            "true}}",
            "<document>\n\na\nb\n</document>\n", "messages.content.citations");
    renders(&f,
            "{\"type\":\"document\",\"source\":{\"type\":\"content\","
            "\"content\":\"a\"},\"colour\":1}",
            "<document>\n\na\n</document>\n", "messages.content.colour");
    renders(&f,
            "{\"type\":\"search_result\",\"source\":\"https://e.org/a\","
            "\"title\":\"A\",\"content\":[{\"type\":\"text\",\"text\":"
            "\"found\"}],\"citations\":{\"enabled\":true}}",
            "<search_result>\nTitle: A\nSource: https://e.org/a\n\nfound\n"
            "</search_result>\n",
            "messages.content.citations");
    fixture_close(&f);
}

/* In the result of a tool as well, where searches put them. */
Test(messages, a_tool_may_find_documents)
{
    static const char anthropic[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":"
        "\"tool_result\",\"tool_use_id\":\"t\",\"content\":[{\"type\":"
        "\"search_result\",\"source\":\"s\",\"title\":\"T\",\"content\":[{"
        "\"type\":\"text\",\"text\":\"x\"}]},{\"type\":\"document\",\"source\":"
        "{\"type\":\"text\",\"media_type\":\"text/plain\",\"data\":\"y\"}}]}]}"
        "]}";
    static const char chat[] =
        "{\"messages\":[{\"role\":\"tool\",\"tool_call_id\":\"t\",\"content\":"
        "\"<search_result>\\nTitle: T\\nSource: s\\n\\nx\\n</search_result>\\n"
        "<document>\\n\\ny\\n</document>\\n\"}]}";
    struct fixture f;
    struct reply a, b;

    open_one(&f, "</think>ok\1");
    client_post(f.url, "/v1/messages/count_tokens", anthropic, &a);
    client_post(f.url, "/tokenize", chat, &b);
    cr_assert_eq(a.status, 200, "%s", a.body.p);
    cr_expect_eq(json_integer_value(reply_at(&a, "input_tokens", NULL)),
                 json_integer_value(reply_at(&b, "count", NULL)));
    reply_release(&a);
    reply_release(&b);
    fixture_close(&f);
}

/* CONTENT is of the only message. */
static const struct {
    const char *content, *says;
} BLOCKS[] = {
    { "{\"type\":\"document\",\"source\":{\"type\":\"base64\",\"media_type\":"
      "\"application/pdf\",\"data\":\"JVBE\"}}",
      "messages[0].content[0].source.type: a document must be given as text" },
    { "{\"type\":\"document\",\"source\":{\"type\":\"url\",\"url\":\"x\"}}",
      "messages[0].content[0].source.type: " },
    { "{\"type\":\"document\",\"source\":{\"type\":\"file\",\"file_id\":\"x\"}}",
      "messages[0].content[0].source.type: " },
    { "{\"type\":\"document\"}", "messages[0].content[0].source: " },
    { "{\"type\":\"document\",\"source\":{\"type\":\"text\",\"data\":7}}",
      "messages[0].content[0].source.data: expected a string" },
    { "{\"type\":\"document\",\"title\":7,\"source\":{\"type\":\"text\",\"data\":"
      "\"\"}}",
      "messages[0].content[0].title: expected a string" },
    { "{\"type\":\"document\",\"source\":{\"type\":\"content\",\"content\":[{"
      "\"type\":\"image\"}]}}",
      "messages[0].content[0].source.content[0]: this server takes text only" },
    { "{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"search_result\"}",
      "messages[0].content[1].content: expected a string or a list" },
    { "{\"type\":\"text\"}", "messages[0].content[0].text: " },
    { "{\"type\":\"server_tool_use\",\"id\":\"x\"}",
      "messages[0].content[0]: server_tool_use is not supported" },
    { "{\"type\":\"tool_result\",\"tool_use_id\":\"t\",\"content\":[{\"type\":"
      "\"web_search_tool_result\"}]}",
      "messages[0].content[0].content[0]: web_search_tool_result is not" },
};

Test(messages, blocks_that_are_no_text_are_refused_by_path)
{
    struct fixture f;

    open_one(&f, "</think>ok\1");
    for (size_t i = 0; i < sizeof BLOCKS / sizeof *BLOCKS; i++) {
        struct seam_buf body = { 0 };
        struct reply r;

        seam_buf_fmt(&body,
                     "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\","
                     "\"content\":[%s]}]}",
                     BLOCKS[i].content);
        client_post(f.url, PATH, body.p, &r);
        cr_expect_eq(r.status, 400, "%s: %d", BLOCKS[i].content, r.status);
        cr_expect_not_null(strstr(r.body.p, BLOCKS[i].says), "%s: %s",
                           BLOCKS[i].content, r.body.p);
        reply_release(&r);
        seam_buf_release(&body);
    }
    fixture_close(&f);
}

Test(messages, errors_have_their_own_shape)
{
    static const struct {
        const char *body, *type;
        int status;
        const char *says; /* what the message holds, or NULL              */
    } bad[] = {
        { "{\"max_tokens\":1,\"stop_sequences\":[\"\"]," HI "}",
          "invalid_request_error", 400, "stop_sequences: " },
        { "{\"max_tokens\":1,\"stop_sequences\":5," HI "}",
          "invalid_request_error", 400, "stop_sequences must be" },
        { "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":["
          "{\"type\":\"poem\"}]}]}",
          "invalid_request_error", 400, "messages[0].content[0]: " },
        { "{\"max_tokens\":1,\"output_config\":{\"format\":{\"type\":"
          "\"json_schema\",\"schema\":{\"properties\":{\"a\":{\"not\":{}}}}}}," HI
          "}",
          "invalid_request_error", 400,
          "output_config.format.schema.properties.a.not" },
        { "{" HI "}", "invalid_request_error", 400, NULL },
        { "{\"max_tokens\":0," HI "}", "invalid_request_error", 400, NULL },
        { "{\"max_tokens\":1}", "invalid_request_error", 400, NULL },
        { "{\"max_tokens\":1,\"messages\":[]}", "invalid_request_error", 400,
          NULL },
        { "nonsense", "invalid_request_error", 400, NULL },
        { "{\"max_tokens\":1,\"model\":\"other\"," HI "}", "not_found_error",
          404, NULL },
        { "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":["
          "{\"type\":\"image\",\"source\":{}}]}]}",
          "invalid_request_error", 400, NULL },
        { "{\"max_tokens\":1,\"tool_choice\":{\"type\":\"tool\",\"name\":"
          "\"none\"}," HI "}",
          "invalid_request_error", 400, NULL },
        { "{\"max_tokens\":1,\"system\":5," HI "}", "invalid_request_error",
          400, NULL },
    };
    struct fixture f;

    open_one(&f, "</think>ok\1");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct reply r;

        client_post(f.url, PATH, bad[i].body, &r);
        cr_expect_eq(r.status, bad[i].status, "%s: %s", bad[i].body, r.body.p);
        cr_expect_str_eq(string_at(r.json, "type"), "error");
        cr_expect_str_eq(string_at(reply_at(&r, "error", NULL), "type"),
                         bad[i].type);
        cr_expect(json_is_string(reply_at(&r, "request_id", NULL)));
        if (bad[i].says)
            cr_expect_not_null(
                strstr(string_at(reply_at(&r, "error", NULL), "message"),
                       bad[i].says),
                "%s: %s", bad[i].body, r.body.p);
        reply_release(&r);
    }
    fixture_close(&f);
}

Test(messages, list_models_for_their_clients)
{
    struct fixture f;
    struct client c;
    struct reply r;

    open_one(&f, "</think>ok\1");
    client_open(&c, f.url);
    client_puts(&c, "GET /v1/models HTTP/1.1\r\nHost: t\r\n"
                    "anthropic-version: 2023-06-01\r\n\r\n");
    cr_assert(client_reply(&c, &r));
    cr_expect_str_eq(string_at(reply_at(&r, "data", "0", NULL), "type"),
                     "model");
    cr_expect_str_eq(string_at(r.json, "first_id"), "scripted");
    cr_expect(json_is_false(reply_at(&r, "has_more", NULL)));
    reply_release(&r);
    client_close(&c);
    fixture_close(&f);
}

Test(messages, errors_in_mid_stream_are_events)
{
    static const int32_t fails[] = { TOK_UNTHINK, 'a', TOK_FAIL };
    struct fixture f;
    struct client c;
    struct reply r;
    struct seam_buf event = { 0 };
    bool seen = false;

    fixture_init(&f);
    fixture_script(&f, fails, 3);
    fixture_bind(&f, NULL, 0, ",\"any_seed\":true");
    fixture_start(&f);
    client_open(&c, f.url);
    client_put_post(&c, PATH, "{\"max_tokens\":9,\"stream\":true," HI "}");
    client_stream(&c, &r);
    while (client_event(&c, &event, NULL))
        seen |=
            !strncmp(event.p, "event: error\ndata: {\"type\":\"error\"", 33);
    cr_expect(seen, "%s", event.p);
    cr_expect_null(strstr(event.p, "[DONE]"));
    reply_release(&r);
    seam_buf_release(&event);
    client_close(&c);
    fixture_close(&f);
}

Test(messages, go_on_from_the_last_turn_when_it_is_the_assistants)
{
    static const char body[] =
        "{\"max_tokens\":9,"
        "\"messages\":[{\"role\":\"user\",\"content\":\"x\"},"
        "{\"role\":\"assistant\",\"content\":\"The answer is\"}]}";
    static const char chat[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"},{\"role\":"
        "\"assistant\",\"content\":\"The answer is\"}],"
        "\"continue_final_message\":true,\"add_generation_prompt\":false}";
    struct fixture f;
    struct reply a, b;
    char v[256];

    open_one(&f, " 7\1");
    client_post(f.url, PATH, body, &a);
    client_post(f.url, "/tokenize", chat, &b);
    cr_assert_eq(a.status, 200, "%s", a.body.p);
    cr_expect_eq(
        json_integer_value(reply_at(&a, "usage", "input_tokens", NULL)),
        json_integer_value(reply_at(&b, "count", NULL)));
    /* It is content: nothing of it is taken for reasoning. */
    cr_expect_str_eq(string_at(reply_at(&a, "content", "0", NULL), "text"),
                     " 7", "%s", a.body.p);
    cr_expect_not_null(reply_header(&a, "X-Request-Id", v, sizeof v));
    cr_expect_not_null(reply_header(&a, "Request-Id", v, sizeof v));
    reply_release(&a);
    reply_release(&b);
    fixture_close(&f);
}

Test(messages, too_long_prompts_say_so_in_words_clients_know)
{
    static const struct seam_flag flags[] = { { "model.max_context", "64" } };
    struct seam_buf b = { 0 };
    struct fixture f;
    struct reply r;

    fixture_init(&f);
    fixture_text(&f, "</think>ok\1");
    fixture_bind(&f, flags, 1, NULL);
    fixture_start(&f);
    seam_buf_str(&b, "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\","
                     "\"content\":\"");
    for (int i = 0; i < 100; i++)
        seam_buf_str(&b, "x");
    seam_buf_str(&b, "\"}]}");
    client_post(f.url, PATH, b.p, &r);
    cr_expect_eq(r.status, 400);
    cr_expect_not_null(strstr(r.body.p,
                              "\"prompt is too long: This model's maximum "
                              "context length is 64 tokens. "),
                       "%s", r.body.p);
    reply_release(&r);
    seam_buf_release(&b);
    fixture_close(&f);
}
