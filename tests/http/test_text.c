/* TK-1, HT-4, HT-5: text that arrives whole, stops where it should, and
 * fits. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "tests/http/collect.h"
#include "tests/http/fixture.h"

#define CONTENT "</think>|"

/* ---- TK-1 ---------------------------------------------------------------- */

static void expect_whole(struct fixture *f, unsigned seed, const char *text)
{
    struct answer a;
    char body[512];

    answer_both(f->url, ask(body, sizeof body, seed, "\"logprobs\":true"), &a);
    cr_expect_str_eq(a.content.p, text);
    cr_expect_null(strstr(a.content.p, "\xef\xbf\xbd"));
    answer_release(&a);
}

/* The bytes of all entries, and how many entries there are. */
static void expect_bytes(struct fixture *f, unsigned seed, const char *text,
                         size_t n_tokens)
{
    struct answer a;
    char body[512];
    struct seam_buf all = { 0 };
    json_t *entry, *byte;
    size_t i, j;

    answer_plain(f->url, ask(body, sizeof body, seed, "\"logprobs\":true"), &a);
    cr_expect_eq(json_array_size(a.logprobs), n_tokens);
    json_array_foreach(a.logprobs, i, entry)
        json_array_foreach(json_object_get(entry, "bytes"), j, byte)
    {
        char c = (char)json_integer_value(byte);

        seam_buf_add(&all, &c, 1);
    }
    cr_expect_str_eq(all.p, text);
    seam_buf_release(&all);
    answer_release(&a);
}

Test(tk1, never_shows_half_a_character)
{
    static const char text[] = "\xf0\x9f\xa6\x8a \xe6\x9e\x97";
    struct fixture f;
    unsigned pieces, bytes;

    fixture_init(&f);
    pieces = fixture_pieces(&f, CONTENT "\xf0\x9f|\xa6|\x8a| |\xe6\x9e|\x97|"
                                        "\1");
    bytes = fixture_text(&f, "</think>\xf0\x9f\xa6\x8a \xe6\x9e\x97\1");
    fixture_bind(&f, NULL, 0, NULL);
    fixture_start(&f);
    expect_whole(&f, pieces, text);
    expect_whole(&f, bytes, text);
    expect_bytes(&f, pieces, "</think>\xf0\x9f\xa6\x8a \xe6\x9e\x97", 7);
    fixture_close(&f);
}

Test(tk1, sends_each_character_when_its_last_byte_is_there)
{
    struct fixture f;
    struct answer a;
    struct seam_buf script = { 0 };
    char body[256];

    fixture_init(&f);
    seam_buf_str(&script, "</think>");
    for (int i = 0; i < 50; i++)
        seam_buf_str(&script, "\xf0\x9f\xa6\x8a");
    seam_buf_str(&script, "\1");
    fixture_text(&f, script.p);
    fixture_bind(&f, NULL, 0, NULL);
    fixture_start(&f);
    answer_stream(f.url, ask(body, sizeof body, 1, NULL), &a);
    cr_expect_eq(a.content.n, 200);
    cr_expect_eq(a.n_content, 50);
    answer_release(&a);
    seam_buf_release(&script);
    fixture_close(&f);
}

Test(tk1, marks_what_is_no_character)
{
    struct fixture f;
    struct answer a;
    char body[256];

    fixture_init(&f);
    fixture_pieces(&f, CONTENT "a|\xf0\x9f|b|\xe6\x9e|\1");
    fixture_bind(&f, NULL, 0, NULL);
    fixture_start(&f);
    answer_both(f.url, ask(body, sizeof body, 1, NULL), &a);
    cr_expect_str_eq(a.content.p, "a\xef\xbf\xbd"
                                  "b\xef\xbf\xbd");
    answer_release(&a);
    fixture_close(&f);
}

/* ---- HT-4 ---------------------------------------------------------------- */

struct stop_case {
    const char *pieces, *stop, *content, *finish;
};

static const struct stop_case STOPS[] = {
    { CONTENT "Lima| Os|lo Qu|ito| x", "[\"Oslo Quito\"]", "Lima ", "stop" },
    { CONTENT "Lima| Os|lo Qu|een|\1", "[\"Oslo Quito\"]", "Lima Oslo Queen",
      "stop" },
    { CONTENT "Lima| Os|lo Qu|ito", "[\"lo Qu\",\"Oslo\"]", "Lima ", "stop" },
    { CONTENT "a|a|a|b", "[\"aab\"]", "a", "stop" },
    { CONTENT "x|\xf0\x9f|\xa6\x8a", "[\"\\ud83e\\udd8a\"]", "x", "stop" },
    { CONTENT "ab", "[\"ab\"]", "", "stop" },
    { CONTENT "ab", "\"b\"", "a", "stop" },
    { CONTENT "ab|c|\1", "[\"b\",\"ab\"]", "", "stop" },
    { CONTENT "ab|ac|ab|ad|\1", "[\"abad\"]", "abac", "stop" },
    { CONTENT "ab|ac|ab|\1", "[\"abad\"]", "abacab", "stop" },
    { CONTENT "x\n\n|y|\1", "\"\\n\\n\"", "x", "stop" },
};

Test(ht4, stops_at_the_string_wherever_tokens_end)
{
    struct fixture f;
    struct answer a;
    char body[512], more[256];
    size_t n = sizeof STOPS / sizeof *STOPS;

    fixture_init(&f);
    for (size_t i = 0; i < n; i++)
        fixture_pieces(&f, STOPS[i].pieces);
    fixture_bind(&f, NULL, 0, NULL);
    fixture_start(&f);
    for (size_t i = 0; i < n; i++) {
        snprintf(more, sizeof more, "\"stop\":%s", STOPS[i].stop);
        answer_both(f.url, ask(body, sizeof body, (unsigned)i + 1, more), &a);
        cr_expect_str_eq(a.content.p ? a.content.p : "", STOPS[i].content,
                         "%s: '%s'", STOPS[i].pieces, a.content.p);
        cr_expect_str_eq(a.finish, STOPS[i].finish);
        cr_expect_not(a.content_is_null);
        answer_release(&a);
    }
    fixture_close(&f);
}

Test(ht4, says_which_string_stopped_it)
{
    struct fixture f;
    struct reply r;
    char body[512];

    fixture_init(&f);
    fixture_pieces(&f, CONTENT "Lima| Os|lo");
    fixture_bind(&f, NULL, 0, NULL);
    fixture_start(&f);
    client_post(f.url, "/v1/chat/completions",
                ask(body, sizeof body, 1, "\"stop\":[\"Rome\",\"Oslo\"]"), &r);
    cr_expect_str_eq(
        json_string_value(reply_at(&r, "choices", "0", "stop_reason", NULL)),
        "Oslo");
    reply_release(&r);
    client_post(f.url, "/v1/chat/completions",
                ask(body, sizeof body, 1,
                    "\"stop\":[\"Rome\",\"Oslo\"],"
                    "\"include_stop_str_in_output\":"
                    "true"),
                &r);
    cr_expect_str_eq(json_string_value(reply_at(&r, "choices", "0", "message",
                                                "content", NULL)),
                     "Lima Oslo");
    reply_release(&r);
    fixture_close(&f);
}

/* Decision: stop strings apply to the content alone. */
Test(ht4, leaves_reasoning_alone)
{
    struct fixture f;
    struct answer a;
    char body[512];

    fixture_init(&f);
    fixture_pieces(&f, "x|nk>|y|</think>|a|nk>|b");
    fixture_bind(&f, NULL, 0, NULL);
    fixture_start(&f);
    answer_both(f.url, ask(body, sizeof body, 1, "\"stop\":[\"nk>\"]"), &a);
    cr_expect_str_eq(a.reasoning.p, "xnk>y");
    cr_expect_str_eq(a.content.p, "a");
    answer_release(&a);
    fixture_close(&f);
}

Test(ht4, holds_no_more_than_a_prefix)
{
    struct fixture f;
    struct client c;
    struct reply r;
    struct seam_buf data = { 0 };
    char body[512];

    fixture_init(&f);
    fixture_pieces(&f, CONTENT "ab Os|lo|\1");
    fixture_gate_tokens(&f);
    fixture_bind(&f, NULL, 0, NULL);
    fixture_start(&f);
    client_open(&c, f.url);
    client_put_post(&c, "/v1/chat/completions",
                    ask(body, sizeof body, 1,
                        "\"stream\":true,"
                        "\"stop\":[\"Oslo Quito\"]"));
    client_stream(&c, &r);
    /* The tag and the first piece, and nothing after them. */
    fixture_let(&f, 2);
    cr_assert(client_event(&c, &data, NULL)); /* role */
    cr_assert(client_event(&c, &data, NULL));
    cr_expect_not_null(strstr(data.p, "\"content\":\"ab \""), "%s", data.p);
    fixture_open_gate(&f);
    cr_assert(client_event(&c, &data, NULL));
    cr_expect_not_null(strstr(data.p, "\"content\":\"Oslo\""), "%s", data.p);
    reply_release(&r);
    seam_buf_release(&data);
    client_close(&c);
    fixture_close(&f);
}

/* ---- HT-5 ---------------------------------------------------------------- */

static void open_tight(struct fixture *f)
{
    static const struct seam_flag flags[] = { { "model.max_context", "64" } };
    int32_t a = 'a';

    fixture_init(f);
    fixture_script(f, &a, 1); /* for ever */
    fixture_bind(f, flags, 1, NULL);
    fixture_start(f);
}

static char *filled(struct seam_buf *b, const char *format, size_t n,
                    const char *more)
{
    struct seam_buf x = { 0 };

    while (n--)
        seam_buf_str(&x, "x");
    seam_buf_clear(b);
    seam_buf_fmt(b, format, x.p ? x.p : "", more);
    seam_buf_release(&x);
    return b->p;
}

Test(ht5, never_drops_a_token_of_the_prompt)
{
    static const size_t lengths[] = { 62, 63, 64, 65, 4000 };
    static const char *const limits[] = { "", ",\"max_tokens\":1",
                                          ",\"max_tokens\":10",
                                          ",\"max_tokens\":1000" };
    static const unsigned limit[] = { 1000, 1, 10, 1000 };
    struct fixture f;
    struct seam_buf b = { 0 };

    open_tight(&f);
    for (int i = 0; i < 5; i++)
        for (int j = 1; j < 4; j++)
            for (int stream = 0; stream < 2; stream++) {
                char more[128];
                struct reply r;

                snprintf(more, sizeof more, "%s%s", limits[j],
                         stream ? ",\"stream\":true" : "");
                client_post(f.url, "/v1/completions",
                            filled(&b, "{\"prompt\":\"%s\",\"seed\":1%s}",
                                   lengths[i], more),
                            &r);
                if (lengths[i] >= 64) {
                    char number[24];
                    const char *text;

                    cr_expect_eq(r.status, 400);
                    cr_expect_str_eq(
                        json_string_value(reply_at(&r, "error", "code", NULL)),
                        "context_length_exceeded");
                    text = json_string_value(
                        reply_at(&r, "error", "message", NULL));
                    snprintf(number, sizeof number, "%zu", lengths[i]);
                    cr_expect_not_null(strstr(text, number), "%s", text);
                    cr_expect_not_null(
                        strstr(text, "maximum context length is 64 tokens"));
                } else if (!stream) {
                    unsigned room = 64 - (unsigned)lengths[i];
                    unsigned want = limit[j] < room ? limit[j] : room;

                    cr_expect_eq((size_t)json_integer_value(reply_at(
                                     &r, "usage", "prompt_tokens", NULL)),
                                 lengths[i]);
                    cr_expect_eq(json_integer_value(reply_at(
                                     &r, "usage", "completion_tokens", NULL)),
                                 want, "%zu, %u: %s", lengths[i], limit[j],
                                 r.body.p);
                    cr_expect_str_eq(
                        json_string_value(reply_at(&r, "choices", "0",
                                                   "finish_reason", NULL)),
                        "length");
                } else {
                    cr_expect_eq(r.status, 200);
                    cr_expect_not_null(
                        strstr(r.body.p, "\"finish_reason\":\"length\""));
                }
                reply_release(&r);
            }
    seam_buf_release(&b);
    fixture_close(&f);
}

Test(ht5, does_not_tokenise_what_cannot_fit)
{
    struct fixture f;
    struct seam_buf b = { 0 };
    struct reply r;

    open_tight(&f);
    client_post(f.url, "/v1/completions",
                filled(&b, "{\"prompt\":\"%s\"%s}", 1 << 20, ""), &r);
    cr_expect_eq(r.status, 400);
    cr_expect_not_null(strstr(r.body.p, "has more than 64 tokens"), "%s",
                       r.body.p);
    reply_release(&r);
    client_post(f.url, "/v1/chat/completions",
                filled(&b,
                       "{\"messages\":[{\"role\":\"user\",\"content\":"
                       "\"%s\"}]%s}",
                       1 << 20, ""),
                &r);
    cr_expect_eq(r.status, 400);
    cr_expect_str_eq(json_string_value(reply_at(&r, "error", "code", NULL)),
                     "context_length_exceeded");
    reply_release(&r);
    seam_buf_release(&b);
    fixture_close(&f);
}

Test(ht5, checks_chats_before_the_first_byte_of_a_stream)
{
    struct fixture f;
    struct seam_buf b = { 0 };
    struct reply r;

    open_tight(&f);
    client_post(f.url, "/v1/chat/completions",
                filled(&b,
                       "{\"messages\":[{\"role\":\"user\",\"content\":"
                       "\"%s\"}],\"seed\":1,\"stream\":true%s}",
                       64, ""),
                &r);
    cr_expect_eq(r.status, 400);
    cr_expect_str_eq(json_string_value(reply_at(&r, "error", "code", NULL)),
                     "context_length_exceeded", "%s", r.body.p);
    cr_expect_str_eq(json_string_value(reply_at(&r, "error", "param", NULL)),
                     "messages");
    reply_release(&r);
    client_post(f.url, "/v1/chat/completions",
                filled(&b,
                       "{\"messages\":[{\"role\":\"user\",\"content\":"
                       "\"%s\"}],\"seed\":1%s}",
                       4, ""),
                &r);
    cr_expect_eq(r.status, 200);
    cr_expect_str_eq(
        json_string_value(reply_at(&r, "choices", "0", "finish_reason", NULL)),
        "length");
    cr_expect_eq(
        json_integer_value(reply_at(&r, "usage", "total_tokens", NULL)), 64);
    /* Cut in the middle of reasoning: no content to speak of. */
    cr_expect(
        json_is_null(reply_at(&r, "choices", "0", "message", "content", NULL)));
    reply_release(&r);
    seam_buf_release(&b);
    fixture_close(&f);
}
