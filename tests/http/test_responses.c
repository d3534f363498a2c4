/* The Responses API: items, events, and what is refused. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "tests/http/fixture.h"

#define PATH "/v1/responses"
#define LIST "<tool_call>list_rooms</tool_call>"
#define TOOLS                                                    \
    "\"tools\":[{\"type\":\"function\",\"name\":\"list_rooms\"," \
    "\"parameters\":{\"type\":\"object\",\"properties\":{}}}]"

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

/* Ids, the time and what was cached differ between two answers. */
static void forget_ids(json_t *v)
{
    const char *key;
    json_t *item;
    size_t i;
    void *tmp;

    json_array_foreach(v, i, item) forget_ids(item);
    json_object_foreach_safe(v, tmp, key, item)
    {
        if (!strcmp(key, "id") || !strcmp(key, "call_id") ||
            !strcmp(key, "created_at") || !strcmp(key, "cached_tokens"))
            json_object_set_new(v, key, json_null());
        else
            forget_ids(item);
    }
}

Test(responses, answer_in_items)
{
    struct fixture f;
    struct reply r;
    json_t *item;

    open_one(&f, "why</think>so" LIST "\1");
    client_post(f.url, PATH,
                "{\"input\":\"hi\",\"metadata\":{\"a\":\"b\"}," TOOLS "}", &r);
    cr_assert_eq(r.status, 200, "%s", r.body.p);
    cr_expect_str_eq(string_at(r.json, "object"), "response");
    cr_expect_str_eq(string_at(r.json, "status"), "completed");
    cr_expect_str_eq(string_at(reply_at(&r, "metadata", NULL), "a"), "b");
    cr_expect(json_is_null(reply_at(&r, "error", NULL)));
    cr_assert_eq(json_array_size(reply_at(&r, "output", NULL)), 3, "%s",
                 r.body.p);
    item = reply_at(&r, "output", "0", NULL);
    cr_expect_str_eq(string_at(item, "type"), "reasoning");
    cr_expect_str_eq(
        string_at(json_array_get(json_object_get(item, "content"), 0), "text"),
        "why");
    item = reply_at(&r, "output", "1", NULL);
    cr_expect_str_eq(string_at(item, "type"), "message");
    cr_expect_str_eq(
        string_at(json_array_get(json_object_get(item, "content"), 0), "text"),
        "so");
    item = reply_at(&r, "output", "2", NULL);
    cr_expect_str_eq(string_at(item, "type"), "function_call");
    cr_expect_str_eq(string_at(item, "name"), "list_rooms");
    cr_expect_str_eq(string_at(item, "arguments"), "{}");
    cr_expect_eq(strncmp(string_at(item, "call_id"), "call_", 5), 0);
    cr_expect_gt(
        json_integer_value(reply_at(&r, "usage", "output_tokens", NULL)), 4);
    reply_release(&r);
    fixture_close(&f);
}

/* Checks numbering and pairing; returns the last response object. */
static json_t *events(struct fixture *f, const char *body,
                      struct seam_buf *names)
{
    struct client c;
    struct reply r;
    struct seam_buf event = { 0 };
    json_t *last = NULL;
    int added = 0, done = 0;
    json_int_t n = 0;

    client_open(&c, f->url);
    client_put_post(&c, PATH, body);
    client_stream(&c, &r);
    while (client_event(&c, &event, NULL)) {
        char name[80];
        const char *data = strstr(event.p, "\ndata: ");
        json_t *v;

        cr_assert_not_null(data, "%s", event.p);
        cr_assert_eq(sscanf(event.p, "event: %79s", name), 1);
        v = json_loads(data + 7, 0, NULL);
        cr_assert_not_null(v);
        cr_expect_str_eq(string_at(v, "type"), name);
        cr_expect_eq(json_integer_value(json_object_get(v, "sequence_number")),
                     n++);
        seam_buf_fmt(names, "%s ", name + strlen("response."));
        added += strstr(name, ".added") != NULL;
        done += strstr(name, "_item.done") || strstr(name, "_part.done");
        if (json_object_get(v, "response")) {
            json_decref(last);
            last = json_incref(json_object_get(v, "response"));
        }
        json_decref(v);
    }
    cr_expect_eq(added, done);
    seam_buf_release(&event);
    reply_release(&r);
    client_close(&c);
    return last;
}

Test(responses, stream_the_same)
{
    struct fixture f;
    struct reply r;
    struct seam_buf names = { 0 };
    json_t *last;

    open_one(&f, "w</think>s" LIST "\1");
    last = events(&f, "{\"stream\":true,\"input\":\"hi\"," TOOLS "}", &names);
    cr_expect_str_eq(
        names.p,
        "created in_progress "
        "output_item.added content_part.added reasoning_text.delta "
        "reasoning_text.done content_part.done output_item.done "
        "output_item.added content_part.added output_text.delta "
        "output_text.done content_part.done output_item.done "
        "output_item.added function_call_arguments.delta "
        "function_call_arguments.done output_item.done completed ",
        "%s", names.p);
    client_post(f.url, PATH, "{\"input\":\"hi\"," TOOLS "}", &r);
    forget_ids(last);
    forget_ids(r.json);
    cr_expect(json_equal(last, r.json), "%s", r.body.p);
    json_decref(last);
    reply_release(&r);
    seam_buf_release(&names);
    fixture_close(&f);
}

Test(responses, end_at_the_limit_as_incomplete)
{
    struct fixture f;
    struct reply r;
    struct seam_buf names = { 0 };
    json_t *last;

    open_one(&f, "</think>one two three\1");
    client_post(f.url, PATH, "{\"input\":\"hi\",\"max_output_tokens\":4}", &r);
    cr_expect_str_eq(string_at(r.json, "status"), "incomplete");
    cr_expect_str_eq(
        string_at(reply_at(&r, "incomplete_details", NULL), "reason"),
        "max_output_tokens");
    cr_expect_str_eq(string_at(reply_at(&r, "output", "0", NULL), "status"),
                     "incomplete");
    last = events(&f,
                  "{\"stream\":true,\"input\":\"hi\","
                  "\"max_output_tokens\":4}",
                  &names);
    cr_expect_not_null(strstr(names.p, " incomplete "));
    forget_ids(last);
    forget_ids(r.json);
    cr_expect(json_equal(last, r.json), "%s", r.body.p);
    json_decref(last);
    reply_release(&r);
    seam_buf_release(&names);
    fixture_close(&f);
}

Test(responses, failures_in_mid_stream_are_told)
{
    static const int32_t fails[] = { TOK_UNTHINK, 'a', TOK_FAIL };
    struct fixture f;
    struct client c;
    struct reply r;

    fixture_init(&f);
    fixture_script(&f, fails, 3);
    fixture_bind(&f, NULL, 0, ",\"any_seed\":true");
    fixture_start(&f);
    client_open(&c, f.url);
    client_put_post(&c, PATH, "{\"input\":\"hi\",\"stream\":true}");
    client_stream(&c, &r);
    while (client_more(&c))
        ;
    cr_expect_not_null(strstr(c.in.p, "event: response.failed\n"));
    cr_expect_not_null(strstr(c.in.p, "\"status\":\"failed\""));
    reply_release(&r);
    client_close(&c);
    fixture_close(&f);
}

Test(responses, render_as_the_chat_they_mean)
{
    static const char input[] =
        "{\"max_output_tokens\":1,\"instructions\":\"Be brief.\",\"input\":["
        "{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":"
        "\"go\"}]},"
        "{\"type\":\"reasoning\",\"summary\":[],\"content\":[{\"type\":"
        "\"reasoning_text\",\"text\":\"hm\"}]},"
        "{\"type\":\"message\",\"role\":\"assistant\",\"content\":[{\"type\":"
        "\"output_text\",\"text\":\"Looking.\"}]},"
        "{\"type\":\"function_call\",\"call_id\":\"t1\",\"name\":"
        "\"list_rooms\",\"arguments\":\"{}\"},"
        "{\"type\":\"function_call\",\"call_id\":\"t2\",\"name\":"
        "\"list_rooms\",\"arguments\":\"{}\"},"
        "{\"type\":\"function_call_output\",\"call_id\":\"t1\",\"output\":"
        "\"A\"},"
        "{\"type\":\"function_call_output\",\"call_id\":\"t2\",\"output\":["
        "{\"type\":\"input_text\",\"text\":\"B\"}]}]," TOOLS "}";
    static const char chat[] =
        "{\"messages\":[{\"role\":\"system\",\"content\":\"Be brief.\"},"
        "{\"role\":\"user\",\"content\":\"go\"},"
        "{\"role\":\"assistant\",\"reasoning_content\":\"hm\",\"content\":"
        "\"Looking.\",\"tool_calls\":[{\"id\":\"t1\",\"type\":\"function\","
        "\"function\":{\"name\":\"list_rooms\",\"arguments\":\"{}\"}},{\"id\":"
        "\"t2\",\"type\":\"function\",\"function\":{\"name\":\"list_rooms\","
        "\"arguments\":\"{}\"}}]},"
        "{\"role\":\"tool\",\"tool_call_id\":\"t1\",\"content\":\"A\"},"
        "{\"role\":\"tool\",\"tool_call_id\":\"t2\",\"content\":\"B\"}]," TOOLS
        "}";
    struct fixture f;
    struct reply a, b;

    open_one(&f, "</think>\1");
    client_post(f.url, PATH, input, &a);
    cr_assert_eq(a.status, 200, "%s", a.body.p);
    client_post(f.url, "/tokenize", chat, &b);
    cr_expect_eq(
        json_integer_value(reply_at(&a, "usage", "input_tokens", NULL)),
        json_integer_value(reply_at(&b, "count", NULL)));
    reply_release(&a);
    client_post(f.url, PATH "/input_tokens", input, &a);
    cr_expect_eq(a.status, 200, "%s", a.body.p);
    cr_expect_str_eq(json_string_value(reply_at(&a, "object", NULL)),
                     "response.input_tokens");
    cr_expect_eq(json_integer_value(reply_at(&a, "input_tokens", NULL)),
                 json_integer_value(reply_at(&b, "count", NULL)));
    reply_release(&a);
    client_post(f.url, PATH "/input_tokens", "{\"input\":7}", &a);
    cr_expect_eq(a.status, 400);
    reply_release(&a);
    reply_release(&b);
    fixture_close(&f);
}

/* What clients send back that keep nothing of the reasoning but this. */
Test(responses, seal_reasoning_for_clients_that_ask_and_open_it_again)
{
    static const char *const sealed[] = {
        /* Somebody else's, or damaged: nothing. */
        "gAAAAABo",    "seam.1.",           "seam.1.====", "seam.1.a",
        "seam.1.////", "seam.1.aGY\\u0000", "seam.1.aG=n", "seam.1./w==",
    };
    struct fixture f;
    struct seam_buf body = { 0 };
    struct reply a, b;
    json_t *item;
    char v[256];

    open_one(&f, "wh\xc3\xbf y</think>so\1");
    client_post(f.url, PATH,
                "{\"input\":\"x\",\"store\":false,\"include\":["
                "\"reasoning.encrypted_content\"]}",
                &a);
    cr_assert_eq(a.status, 200, "%s", a.body.p);
    cr_expect_null(reply_header(&a, "X-Seam-Ignored", v, sizeof v), "%s", v);
    item = reply_at(&a, "output", "0", NULL);
    cr_expect_str_eq(string_at(item, "encrypted_content"),
                     "seam.1.d2jDvyB5"); /* of "wh\u00ff y" */
    for (size_t i = 0; i <= sizeof sealed / sizeof *sealed; i++) {
        const char *text = i ? "" : "wh\xc3\xbf y";

        seam_buf_clear(&body);
        seam_buf_fmt(&body,
                     "{\"input\":[{\"role\":\"user\",\"content\":\"q\"},{"
                     "\"type\":\"reasoning\",\"summary\":[],"
                     "\"encrypted_content\":\"%s\"},{\"role\":\"assistant\","
                     "\"content\":\"a\"}]}",
                     i ? sealed[i - 1] : string_at(item, "encrypted_content"));
        client_post(f.url, PATH "/input_tokens", body.p, &b);
        cr_assert_eq(b.status, 200, "%s", b.body.p);
        seam_buf_clear(&body);
        seam_buf_fmt(&body,
                     "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{"
                     "\"role\":\"assistant\",\"content\":\"a\","
                     "\"reasoning_content\":\"%s\"}]}",
                     text);
        {
            struct reply c;

            client_post(f.url, "/tokenize", body.p, &c);
            cr_expect_eq(json_integer_value(reply_at(&b, "input_tokens", NULL)),
                         json_integer_value(reply_at(&c, "count", NULL)),
                         "%zu: %s", i, body.p);
            reply_release(&c);
        }
        reply_release(&b);
    }
    seam_buf_release(&body);
    reply_release(&a);
    client_post(f.url, PATH,
                "{\"input\":\"x\",\"store\":true,\"include\":["
                "\"message.output_text.logprobs\"]}",
                &a);
    cr_expect_str_eq(reply_header(&a, "X-Seam-Ignored", v, sizeof v),
                     "store, include");
    cr_expect_null(reply_at(&a, "output", "0", "encrypted_content", NULL));
    reply_release(&a);
    fixture_close(&f);
}

Test(responses, refuse_what_they_cannot_do)
{
    static const char *const bad[][2] = {
        { "{\"input\":\"x\",\"previous_response_id\":\"r\"}",
          "previous_response_id" },
        { "{\"input\":\"x\",\"conversation\":\"c\"}", "conversation" },
        { "{\"input\":\"x\",\"background\":true}", "background" },
        { "{\"input\":[{\"type\":\"item_reference\",\"id\":\"x\"}]}",
          "input[0]" },
        { "{\"input\":[{\"role\":\"user\",\"content\":[{\"type\":"
          "\"input_text\",\"text\":\"x\"},{\"type\":\"input_image\","
          "\"image_url\":\"y\"}]}]}",
          "input[0].content[1]" },
        { "{\"input\":[{\"role\":\"assistant\",\"content\":[{\"type\":"
          "\"drawing\"}]}]}",
          "input[0].content[0]" },
        { "{\"input\":[{\"type\":\"function_call_output\",\"call_id\":\"c\","
          "\"output\":[{\"type\":\"input_image\"}]}]}",
          "input[0].output[0]" },
        { "{\"input\":[]}", "input" },
        { "{}", "input" },
        { "{\"input\":5}", "input" },
        { "{\"input\":\"x\",\"truncation\":\"magic\"}", "truncation" },
        { "{\"input\":\"x\",\"tools\":[{\"type\":\"web_search\"}]}",
          "tools[0].type" },
        { "{\"input\":\"x\",\"text\":{\"format\":{\"type\":\"json_schema\"}}}",
          "text.format.schema" },
        { "{\"input\":\"x\",\"max_output_tokens\":0}", "max_output_tokens" },
        { "{\"input\":[{\"role\":\"wizard\",\"content\":\"x\"}]}", "input" },
        { "{\"input\":\"x\",\"text\":{\"format\":{\"type\":\"json_schema\","
          "\"name\":\"n\",\"schema\":{\"properties\":{\"a\":{\"not\":{}}}}}}}",
          "text.format.schema.properties.a.not" },
        { "{\"input\":\"x\",\"instructions\":5}", "instructions" },
    };
    struct fixture f;
    struct reply r;

    open_one(&f, "</think>ok\1");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        client_post(f.url, PATH, bad[i][0], &r);
        cr_expect_eq(r.status, 400, "%s: %s", bad[i][0], r.body.p);
        cr_expect_str_eq(
            json_string_value(reply_at(&r, "error", "param", NULL)), bad[i][1],
            "%s: %s", bad[i][0], r.body.p);
        reply_release(&r);
    }
    client_get(f.url, "/v1/responses/resp_x", &r);
    cr_expect_eq(r.status, 404);
    reply_release(&r);
    client_post(f.url, "/v1/responses/resp_x/cancel", "{}", &r);
    cr_expect_eq(r.status, 404);
    reply_release(&r);
    fixture_close(&f);
}
