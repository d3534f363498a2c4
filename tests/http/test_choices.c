/* Several choices, usage, log probabilities, plain completions, reasoning. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/http/collect.h"
#include "tests/http/fixture.h"

#define CHAT "/v1/chat/completions"

static const char *string_at(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

Test(choices, n_gives_as_many_each_with_its_seed)
{
    struct fixture f;
    struct reply r;
    char body[256];
    static const char *const want[] = { "one", "two", "three" };

    fixture_init(&f);
    for (int i = 0; i < 3; i++) {
        char text[32];

        snprintf(text, sizeof text, "</think>%s\1", want[i]);
        fixture_text(&f, text);
    }
    fixture_bind(&f, NULL, 0, NULL);
    fixture_start(&f);
    client_post(f.url, CHAT, ask(body, sizeof body, 1, "\"n\":3"), &r);
    cr_assert_eq(r.status, 200, "%s", r.body.p);
    cr_expect_eq(json_array_size(reply_at(&r, "choices", NULL)), 3);
    for (int i = 0; i < 3; i++) {
        char index[4];
        json_t *choice;

        snprintf(index, sizeof index, "%d", i);
        choice = reply_at(&r, "choices", index, NULL);
        cr_expect_eq(json_integer_value(json_object_get(choice, "index")), i);
        cr_expect_str_eq(
            string_at(json_object_get(choice, "message"), "content"), want[i]);
    }
    /* The prompt counts once, the answers all: tag, text and stop. */
    cr_expect_eq(
        json_integer_value(reply_at(&r, "usage", "completion_tokens", NULL)),
        3 * 2 + 11);
    reply_release(&r);
    fixture_close(&f);
}

Test(choices, streams_interleave_by_index)
{
    struct fixture f;
    struct client c;
    struct reply r;
    struct seam_buf data = { 0 }, text[2] = { { 0 } };
    unsigned firsts[2] = { 0 }, ends[2] = { 0 };
    char body[256];

    fixture_init(&f);
    fixture_text(&f, "</think>abcdef\1");
    fixture_text(&f, "</think>uvw\1");
    fixture_bind(&f, NULL, 0, NULL);
    fixture_start(&f);
    client_open(&c, f.url);
    client_put_post(&c, CHAT,
                    ask(body, sizeof body, 1, "\"n\":2,\"stream\":true"));
    client_stream(&c, &r);
    while (client_event(&c, &data, NULL)) {
        json_t *v = json_loads(data.p + 6, 0, NULL), *choice, *delta;
        const char *content;
        json_int_t i;

        if (!v)
            break;
        choice = json_array_get(json_object_get(v, "choices"), 0);
        delta = json_object_get(choice, "delta");
        i = json_integer_value(json_object_get(choice, "index"));
        cr_assert(i == 0 || i == 1);
        firsts[i] += string_at(delta, "role") != NULL;
        ends[i] += string_at(choice, "finish_reason") != NULL;
        content = string_at(delta, "content");
        seam_buf_str(&text[i], content ? content : "");
        json_decref(v);
    }
    cr_expect_str_eq(data.p, "data: [DONE]");
    cr_expect_str_eq(text[0].p, "abcdef");
    cr_expect_str_eq(text[1].p, "uvw");
    for (int i = 0; i < 2; i++) {
        cr_expect_eq(firsts[i], 1);
        cr_expect_eq(ends[i], 1);
        seam_buf_release(&text[i]);
    }
    reply_release(&r);
    seam_buf_release(&data);
    client_close(&c);
    fixture_close(&f);
}

/* Chunks that hold a usage object, a null usage, and no usage. */
static void count_usage(struct fixture *f, const char *more, unsigned n[3],
                        json_t **last)
{
    struct client c;
    struct reply r;
    struct seam_buf data = { 0 };
    char body[512];

    n[0] = n[1] = n[2] = 0;
    client_open(&c, f->url);
    client_put_post(&c, CHAT, ask(body, sizeof body, 1, more));
    client_stream(&c, &r);
    while (client_event(&c, &data, NULL)) {
        json_t *v = json_loads(data.p + 6, 0, NULL), *u;

        if (!v)
            break;
        u = json_object_get(v, "usage");
        n[json_is_object(u) ? 0 : u ? 1 : 2]++;
        if (json_is_object(u) && last) {
            json_decref(*last);
            *last = json_incref(u);
            if (!strstr(more, "continuous"))
                cr_expect_eq(json_array_size(json_object_get(v, "choices")), 0);
        }
        json_decref(v);
    }
    reply_release(&r);
    seam_buf_release(&data);
    client_close(&c);
}

Test(usage, comes_once_at_the_end_or_not_at_all)
{
    struct fixture f;
    struct reply r;
    json_t *last = NULL;
    unsigned n[3];
    char body[256];

    fixture_open(&f, "plan</think>abc\1");
    count_usage(&f, "\"stream\":true", n, NULL);
    cr_expect_eq(n[0] + n[1], 0);
    count_usage(&f,
                "\"stream\":true,\"stream_options\":{\"include_usage\":"
                "true}",
                n, &last);
    cr_expect_eq(n[0], 1);
    cr_expect_eq(n[1], 9); /* role, 4 + 3 deltas, finish */
    cr_expect_eq(n[2], 0);
    client_post(f.url, CHAT, ask(body, sizeof body, 1, NULL), &r);
    cr_expect(json_equal(last, reply_at(&r, "usage", NULL)), "%s", r.body.p);
    /* 4 + tag + 3 + stop; reasoning is what came before the tag. */
    cr_expect_eq(json_integer_value(json_object_get(last, "completion_tokens")),
                 9);
    cr_expect_eq(json_integer_value(json_object_get(
                     json_object_get(last, "completion_tokens_details"),
                     "reasoning_tokens")),
                 4);
    reply_release(&r);
    count_usage(&f,
                "\"stream\":true,\"stream_options\":{\"include_usage\":"
                "true,\"continuous_usage_stats\":true}",
                n, &last);
    cr_expect_eq(n[0], 10);
    json_decref(last);
    fixture_close(&f);
}

Test(logprobs, cover_every_token_but_the_stop)
{
    struct fixture f;
    struct answer a;
    json_t *entry;
    size_t i;
    char body[256];

    fixture_open(&f, "r</think>ab\1");
    answer_both(
        f.url,
        ask(body, sizeof body, 1, "\"logprobs\":true,\"top_logprobs\":2"), &a);
    cr_assert_eq(json_array_size(a.logprobs), 4);
    cr_expect_str_eq(string_at(json_array_get(a.logprobs, 1), "token"),
                     "</think>");
    json_array_foreach(a.logprobs, i, entry)
    {
        cr_expect_float_eq(json_number_value(json_object_get(entry, "logprob")),
                           -0.125 * (double)i, 1e-6);
        cr_expect_eq(json_array_size(json_object_get(entry, "top_logprobs")),
                     2);
    }
    answer_release(&a);
    fixture_close(&f);
}

/* ---- Reasoning ----------------------------------------------------------- */

Test(reasoning, is_shown_as_asked)
{
    struct fixture f;
    struct answer a;
    char body[256];

    fixture_open(&f, "why</think>so\1");
    answer_both(f.url, ask(body, sizeof body, 1, "\"include_reasoning\":false"),
                &a);
    cr_expect_eq(a.reasoning.n, 0);
    cr_expect_str_eq(a.content.p, "so");
    answer_release(&a);
    answer_both(f.url,
                ask(body, sizeof body, 1, "\"separate_reasoning\":false"), &a);
    cr_expect_str_eq(a.content.p, "<think>why</think>so");
    answer_release(&a);
    answer_stream(f.url,
                  ask(body, sizeof body, 1, "\"stream_reasoning\":false"), &a);
    cr_expect_eq(a.n_reasoning, 1);
    cr_expect_str_eq(a.reasoning.p, "why");
    answer_release(&a);
    fixture_close(&f);
}

Test(reasoning, has_the_field_names_that_are_set)
{
    static const char *const modes[] = { "reasoning", "both" };

    for (int m = 0; m < 2; m++) {
        struct seam_flag flags[] = { { "server.reasoning_field", modes[m] } };
        struct fixture f;
        struct reply r;
        char body[256];
        json_t *message;

        fixture_init(&f);
        fixture_text(&f, "why</think>so\1");
        fixture_bind(&f, flags, 1, NULL);
        fixture_start(&f);
        client_post(f.url, CHAT, ask(body, sizeof body, 1, NULL), &r);
        message = reply_at(&r, "choices", "0", "message", NULL);
        cr_expect_str_eq(string_at(message, "reasoning"), "why");
        cr_expect_eq(json_object_get(message, "reasoning_content") != NULL, m);
        reply_release(&r);
        fixture_close(&f);
    }
}

Test(reasoning, cut_at_the_limit_leaves_no_content)
{
    struct fixture f;
    struct answer a;
    char body[256];

    fixture_open(&f, "never closed\1");
    answer_both(f.url, ask(body, sizeof body, 1, "\"max_tokens\":5"), &a);
    cr_expect_str_eq(a.reasoning.p, "never");
    cr_expect(a.content_is_null);
    cr_expect_str_eq(a.finish, "length");
    answer_release(&a);
    fixture_close(&f);
}

/* ---- Stops --------------------------------------------------------------- */

Test(stops, ids_end_it_and_are_told)
{
    struct fixture f;
    struct reply r;
    char body[512];

    fixture_open(&f, "</think>abc\1");
    client_post(f.url, CHAT,
                ask(body, sizeof body, 1, "\"stop_token_ids\":[99]"),
                &r); /* 'c' */
    cr_expect_str_eq(
        string_at(reply_at(&r, "choices", "0", "message", NULL), "content"),
        "ab");
    cr_expect_eq(
        json_integer_value(reply_at(&r, "choices", "0", "stop_reason", NULL)),
        99);
    reply_release(&r);
    /* The model's own end is not worth telling. */
    client_post(f.url, CHAT, ask(body, sizeof body, 1, NULL), &r);
    cr_expect(json_is_null(reply_at(&r, "choices", "0", "stop_reason", NULL)));
    reply_release(&r);
    /* ignore_eos: to the limit, and the mark is no text. */
    client_post(
        f.url, CHAT,
        ask(body, sizeof body, 1, "\"ignore_eos\":true,\"max_tokens\":7"), &r);
    cr_expect_str_eq(
        string_at(reply_at(&r, "choices", "0", "message", NULL), "content"),
        "abc");
    cr_expect_str_eq(
        string_at(reply_at(&r, "choices", "0", NULL), "finish_reason"),
        "length");
    reply_release(&r);
    client_post(f.url, CHAT,
                ask(body, sizeof body, 1,
                    "\"ignore_eos\":true,\"max_tokens\":5,"
                    "\"skip_special_tokens\":false"),
                &r);
    cr_expect_str_eq(
        string_at(reply_at(&r, "choices", "0", "message", NULL), "content"),
        "abc<|user|>");
    reply_release(&r);
    fixture_close(&f);
}

/* ---- Completions --------------------------------------------------------- */

Test(completions, give_one_choice_for_each_prompt_and_n)
{
    struct fixture f;
    struct reply r;
    static const char *const want[] = { "ab", "cd", "ab", "cd" };

    fixture_init(&f);
    fixture_text(&f, "ab\1");
    fixture_text(&f, "cd\1");
    fixture_bind(&f, NULL, 0, NULL);
    fixture_start(&f);
    client_post(f.url, "/v1/completions",
                "{\"prompt\":[\"xx\",\"yyy\"],\"n\":2,\"seed\":1}", &r);
    cr_assert_eq(r.status, 200, "%s", r.body.p);
    for (int i = 0; i < 4; i++) {
        char index[4];
        json_t *choice;

        snprintf(index, sizeof index, "%d", i);
        choice = reply_at(&r, "choices", index, NULL);
        cr_expect_eq(json_integer_value(json_object_get(choice, "index")), i);
        cr_expect_str_eq(string_at(choice, "text"), want[i]);
    }
    cr_expect_eq(
        json_integer_value(reply_at(&r, "usage", "prompt_tokens", NULL)), 5);
    reply_release(&r);
    fixture_close(&f);
}

/* 429 would ask to come back later, for ever. */
Test(completions, that_no_queue_can_take_are_refused_for_good)
{
    static const struct seam_flag flags[] = { { "engine.max_queue", "4" } };
    static const struct {
        const char *body, *param;
    } as[] = { { "{\"prompt\":\"x\",\"n\":5}", "n" },
               { "{\"prompt\":[\"x\",\"y\",\"z\"],\"n\":2}", "prompt" } };
    struct fixture f;
    struct reply r;

    fixture_init(&f);
    fixture_text(&f, "ab\1");
    fixture_bind(&f, flags, 1, NULL);
    fixture_start(&f);
    for (size_t i = 0; i < sizeof as / sizeof *as; i++) {
        client_post(f.url, "/v1/completions", as[i].body, &r);
        cr_expect_eq(r.status, 400, "%s", r.body.p);
        cr_expect_str_eq(string_at(reply_at(&r, "error", NULL), "param"),
                         as[i].param);
        cr_expect_not_null(strstr(r.body.p, "holds 4 (engine.max_queue)"), "%s",
                           r.body.p);
        reply_release(&r);
    }
    client_post(f.url, "/v1/completions",
                "{\"prompt\":[\"x\",\"y\"],\"n\":2,\"seed\":1}", &r);
    cr_expect_eq(r.status, 200, "%s", r.body.p);
    reply_release(&r);
    fixture_close(&f);
}

Test(completions, echo_the_prompt_with_its_probabilities)
{
    struct fixture f;
    struct reply r;
    json_t *l;
    static const int offsets[] = { 0, 1, 1, 2, 3 };

    fixture_open(&f, "z\1");
    /* a, the two bytes of e acute, b */
    client_post(f.url, "/v1/completions",
                "{\"prompt\":\"a\xc3\xa9"
                "b\",\"echo\":true,\"logprobs\":0,"
                "\"seed\":1}",
                &r);
    cr_assert_eq(r.status, 200, "%s", r.body.p);
    cr_expect_str_eq(string_at(reply_at(&r, "choices", "0", NULL), "text"),
                     "a\xc3\xa9"
                     "bz");
    l = reply_at(&r, "choices", "0", "logprobs", NULL);
    cr_assert_eq(json_array_size(json_object_get(l, "tokens")), 5, "%s",
                 r.body.p);
    cr_expect(
        json_is_null(json_array_get(json_object_get(l, "token_logprobs"), 0)));
    cr_expect(
        json_is_null(json_array_get(json_object_get(l, "top_logprobs"), 0)));
    for (size_t i = 1; i < 5; i++) {
        json_t *p = json_array_get(json_object_get(l, "token_logprobs"), i);

        cr_expect(json_is_real(p));
        cr_expect_leq(json_real_value(p), 0);
    }
    /* Both halves of the second character begin where it does. */
    for (size_t i = 0; i < 5; i++)
        cr_expect_eq(json_integer_value(
                         json_array_get(json_object_get(l, "text_offset"), i)),
                     offsets[i]);
    reply_release(&r);
    fixture_close(&f);
}

Test(completions, stream_the_same_text)
{
    struct fixture f;
    struct client c;
    struct reply r;
    struct seam_buf data = { 0 }, text = { 0 };
    const char *finish = NULL;
    bool usage = false;

    fixture_open(&f, "hello\1");
    client_open(&c, f.url);
    client_put_post(&c, "/v1/completions",
                    "{\"prompt\":\"x\",\"seed\":1,\"stream\":true,\"echo\":"
                    "true,\"stream_options\":{\"include_usage\":true}}");
    client_stream(&c, &r);
    while (client_event(&c, &data, NULL)) {
        json_t *v = json_loads(data.p + 6, 0, NULL), *choice;

        if (!v)
            break;
        cr_expect_str_eq(string_at(v, "object"), "text_completion");
        choice = json_array_get(json_object_get(v, "choices"), 0);
        usage = json_is_object(json_object_get(v, "usage"));
        if (choice) {
            seam_buf_str(&text, string_at(choice, "text"));
            if (string_at(choice, "finish_reason"))
                finish = "seen";
        }
        json_decref(v);
    }
    cr_expect_str_eq(text.p, "xhello");
    cr_expect_not_null(finish);
    cr_expect(usage);
    cr_expect_str_eq(data.p, "data: [DONE]");
    reply_release(&r);
    seam_buf_release(&data);
    seam_buf_release(&text);
    client_close(&c);
    fixture_close(&f);
}

Test(pings, keep_a_waiting_stream_alive)
{
    static const struct seam_flag flags[] = { { "server.sse_ping_ms", "100" } };
    struct fixture f;
    struct client c;
    struct reply r;
    struct seam_buf data = { 0 };
    unsigned pings = 0;
    char body[256];

    fixture_init(&f);
    fixture_text(&f, "</think>ok\1");
    fixture_gate_tokens(&f);
    fixture_bind(&f, flags, 1, NULL);
    fixture_start(&f);
    client_open(&c, f.url);
    client_put_post(&c, CHAT, ask(body, sizeof body, 1, "\"stream\":true"));
    client_stream(&c, &r);
    while (!c.in.p || !strstr(c.in.p, ": ping\n\n"))
        cr_assert(client_more(&c));
    fixture_open_gate(&f);
    while (client_event(&c, &data, &pings))
        ;
    cr_expect_geq(pings, 1);
    cr_expect_str_eq(data.p, "data: [DONE]");
    reply_release(&r);
    seam_buf_release(&data);
    client_close(&c);
    fixture_close(&f);
}
