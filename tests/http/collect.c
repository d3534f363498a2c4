#include "tests/http/collect.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/utf8.h"

const char *ask(char *out, size_t cap, unsigned seed, const char *more)
{
    int n = snprintf(out, cap,
                     "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],"
                     "\"seed\":%u%s%s}",
                     seed, more && *more ? "," : "", more ? more : "");

    cr_assert_lt((size_t)n, cap);
    return out;
}

static void add_string(struct seam_buf *b, const json_t *v)
{
    if (json_is_string(v))
        seam_buf_add(b, json_string_value(v), json_string_length(v));
}

static void take_error(struct answer *a, const json_t *error)
{
    const char *code = json_string_value(json_object_get(error, "code"));

    cr_expect(json_is_string(json_object_get(error, "message")));
    cr_expect(json_is_string(json_object_get(error, "type")));
    cr_expect_not_null(json_object_get(error, "param"));
    cr_expect_not_null(json_object_get(error, "code"));
    snprintf(a->error, sizeof a->error, "%s", code ? code : "-");
}

static void take_logprobs(struct answer *a, const json_t *choice)
{
    json_t *list =
        json_object_get(json_object_get(choice, "logprobs"), "content");

    if (!a->logprobs)
        a->logprobs = json_array();
    json_array_extend(a->logprobs, list);
}

static void take_call_delta(struct answer *a, const json_t *delta)
{
    const json_t *index = json_object_get(delta, "index");
    const json_t *f = json_object_get(delta, "function");
    const json_t *name = json_object_get(f, "name");
    unsigned i;

    cr_assert(json_is_integer(index));
    i = (unsigned)json_integer_value(index);
    cr_assert_lt(i, MAX_CALLS);
    if (name) { /* once, first, whole */
        cr_expect_eq(i, a->n_calls, "sparse index %u", i);
        a->n_calls = i + 1;
        add_string(&a->call[i].name, name);
        snprintf(a->call[i].id, sizeof a->call[i].id, "%s",
                 json_string_value(json_object_get(delta, "id")));
        cr_expect_str_eq(json_string_value(json_object_get(delta, "type")),
                         "function");
    } else {
        cr_expect_lt(i, a->n_calls);
        cr_expect_null(json_object_get(delta, "id"));
        cr_expect_null(json_object_get(delta, "type"));
    }
    cr_expect(json_is_string(json_object_get(f, "arguments")));
    add_string(&a->call[i].args, json_object_get(f, "arguments"));
}

static void take_delta(struct answer *a, const json_t *choice, unsigned n)
{
    const json_t *delta = json_object_get(choice, "delta"), *v, *item;
    const char *finish =
        json_string_value(json_object_get(choice, "finish_reason"));
    size_t i;

    cr_assert(json_is_object(delta));
    take_logprobs(a, choice);
    if (n == 0) {
        cr_expect_str_eq(json_string_value(json_object_get(delta, "role")),
                         "assistant");
        cr_expect_str_eq(json_string_value(json_object_get(delta, "content")),
                         "");
        return;
    }
    cr_expect_str_empty(a->finish, "a chunk after the last");
    cr_expect_null(json_object_get(delta, "role"));
    v = json_object_get(delta, "content");
    if (v) {
        cr_expect(json_string_length(v) > 0, "empty delta");
        add_string(&a->content, v);
        a->n_content++;
    }
    v = json_object_get(delta, "reasoning_content");
    if (v) {
        cr_expect(json_string_length(v) > 0, "empty delta");
        add_string(&a->reasoning, v);
        a->n_reasoning++;
    }
    v = json_object_get(delta, "tool_calls");
    json_array_foreach(v, i, item) take_call_delta(a, item);
    if (finish)
        snprintf(a->finish, sizeof a->finish, "%s", finish);
    else
        cr_expect_gt(json_object_size(delta), 0, "empty delta");
}

void answer_stream(const char *url, const char *body, struct answer *a)
{
    struct client c;
    struct reply r = { 0 };
    struct seam_buf data = { 0 }, text = { 0 };
    char id[64] = "";
    unsigned n = 0;

    memset(a, 0, sizeof *a);
    seam_buf_fmt(&text, "{\"stream\":true,%s", body + 1);
    client_open(&c, url);
    client_put_post(&c, "/v1/chat/completions", text.p);
    client_stream(&c, &r);
    a->status = r.status;
    while (client_event(&c, &data, NULL)) {
        json_t *v, *choices;
        const char *p = data.p + strlen("data: ");

        cr_assert_eq(strncmp(data.p, "data: ", 6), 0, "%s", data.p);
        cr_assert(seam_utf8_valid(data.p, data.n));
        cr_expect_null(strchr(data.p, '\n'));
        cr_expect_not(a->done, "an event after [DONE]");
        if (!strcmp(p, "[DONE]")) {
            a->done = true;
            continue;
        }
        v = json_loads(p, JSON_ALLOW_NUL, NULL);
        cr_assert_not_null(v, "%s", p);
        if (json_object_get(v, "error")) {
            take_error(a, json_object_get(v, "error"));
            json_decref(v);
            continue;
        }
        cr_expect_str_eq(json_string_value(json_object_get(v, "object")),
                         "chat.completion.chunk");
        if (!*id)
            snprintf(id, sizeof id, "%s",
                     json_string_value(json_object_get(v, "id")));
        cr_expect_str_eq(json_string_value(json_object_get(v, "id")), id);
        choices = json_object_get(v, "choices");
        if (json_array_size(choices))
            take_delta(a, json_array_get(choices, 0), n++);
        else
            a->usage = json_incref(json_object_get(v, "usage"));
        json_decref(v);
    }
    seam_buf_release(&data);
    seam_buf_release(&text);
    reply_release(&r);
    client_close(&c);
}

void answer_plain(const char *url, const char *body, struct answer *a)
{
    const json_t *message, *v, *item;
    struct reply r;
    size_t i;

    memset(a, 0, sizeof *a);
    client_post(url, "/v1/chat/completions", body, &r);
    cr_assert(seam_utf8_valid(r.body.p, r.body.n));
    cr_assert_not_null(r.json, "%s", r.body.p);
    a->status = r.status;
    if (r.status != 200) {
        take_error(a, json_object_get(r.json, "error"));
        reply_release(&r);
        return;
    }
    a->done = true;
    message = reply_at(&r, "choices", "0", "message", NULL);
    a->content_is_null = json_is_null(json_object_get(message, "content"));
    add_string(&a->content, json_object_get(message, "content"));
    add_string(&a->reasoning, json_object_get(message, "reasoning_content"));
    v = json_object_get(message, "tool_calls");
    cr_expect(!v || json_array_size(v) > 0);
    json_array_foreach(v, i, item)
    {
        const json_t *f = json_object_get(item, "function");

        cr_assert_lt(i, MAX_CALLS);
        a->n_calls++;
        snprintf(a->call[i].id, sizeof a->call[i].id, "%s",
                 json_string_value(json_object_get(item, "id")));
        add_string(&a->call[i].name, json_object_get(f, "name"));
        add_string(&a->call[i].args, json_object_get(f, "arguments"));
    }
    snprintf(
        a->finish, sizeof a->finish, "%s",
        json_string_value(reply_at(&r, "choices", "0", "finish_reason", NULL)));
    take_logprobs(a, reply_at(&r, "choices", "0", NULL));
    a->usage = json_incref(json_object_get(r.json, "usage"));
    reply_release(&r);
}

void answer_release(struct answer *a)
{
    seam_buf_release(&a->content);
    seam_buf_release(&a->reasoning);
    for (unsigned i = 0; i < MAX_CALLS; i++) {
        seam_buf_release(&a->call[i].name);
        seam_buf_release(&a->call[i].args);
    }
    json_decref(a->usage);
    json_decref(a->logprobs);
    memset(a, 0, sizeof *a);
}

static void same(const struct seam_buf *a, const struct seam_buf *b,
                 const char *what)
{
    cr_expect(a->n == b->n && (!a->n || !memcmp(a->p, b->p, a->n)),
              "%s: streamed '%s', plain '%s'", what, a->p ? a->p : "",
              b->p ? b->p : "");
}

void answer_both(const char *url, const char *body, struct answer *a)
{
    struct answer s;

    answer_plain(url, body, a);
    cr_assert_eq(a->status, 200, "%s", a->error);
    answer_stream(url, body, &s);
    cr_expect(s.done);
    same(&s.content, &a->content, "content");
    same(&s.reasoning, &a->reasoning, "reasoning");
    cr_expect_str_eq(s.finish, a->finish);
    /* A call that was cut stays in the stream and is no call otherwise. */
    if (strcmp(a->finish, "length"))
        cr_expect_eq(s.n_calls, a->n_calls);
    for (unsigned i = 0; i < a->n_calls; i++) {
        same(&s.call[i].name, &a->call[i].name, "name");
        same(&s.call[i].args, &a->call[i].args, "arguments");
    }
    cr_expect(json_equal(s.logprobs, a->logprobs));
    answer_release(&s);
}
