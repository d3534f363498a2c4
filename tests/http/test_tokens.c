/* /tokenize, /detokenize, /apply-template. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "tests/http/fixture.h"

static json_t *list_of(const struct reply *r)
{
    return reply_at(r, "tokens", NULL);
}

Test(tokens, there_and_back)
{
    struct fixture f;
    struct reply r, back;
    struct seam_buf b = { 0 };
    char *ids;

    fixture_open(&f, "ok\1");
    client_post(f.url, "/tokenize", "{\"content\":\"a\xf0\x9f\xa6\x8a\"}", &r);
    cr_assert_eq(r.status, 200, "%s", r.body.p);
    cr_expect_eq(json_array_size(list_of(&r)), 5);
    cr_expect_eq(json_integer_value(reply_at(&r, "count", NULL)), 5);
    cr_expect_eq(json_integer_value(reply_at(&r, "max_model_len", NULL)), 4096);
    cr_expect(json_is_null(reply_at(&r, "token_strs", NULL)));
    ids = json_dumps(list_of(&r), 0);
    seam_buf_fmt(&b, "{\"tokens\":%s}", ids);
    client_post(f.url, "/v1/detokenize", b.p, &back);
    cr_expect_str_eq(json_string_value(reply_at(&back, "prompt", NULL)),
                     "a\xf0\x9f\xa6\x8a");
    cr_expect_str_eq(json_string_value(reply_at(&back, "content", NULL)),
                     "a\xf0\x9f\xa6\x8a");
    free(ids);
    seam_buf_release(&b);
    reply_release(&r);
    reply_release(&back);
    fixture_close(&f);
}

Test(tokens, null_is_absent)
{
    static const char *const bodies[] = {
        "{\"prompt\":null,\"content\":\"abc\"}",
        "{\"content\":null,\"prompt\":\"abc\"}",
        "{\"messages\":null,\"prompt\":\"abc\",\"with_pieces\":null}",
    };
    struct fixture f;
    struct reply r;

    fixture_open(&f, "ok\1");
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        client_post(f.url, "/tokenize", bodies[i], &r);
        cr_expect_eq(r.status, 200, "%s: %s", bodies[i], r.body.p);
        cr_expect_eq(json_array_size(list_of(&r)), 3, "%s", bodies[i]);
        reply_release(&r);
    }
    client_post(f.url, "/tokenize", "{\"prompt\":null}", &r);
    cr_expect_eq(r.status, 400);
    reply_release(&r);
    fixture_close(&f);
}

Test(tokens, special_text_is_special_unless_told)
{
    struct fixture f;
    struct reply r;

    fixture_open(&f, "ok\1");
    client_post(f.url, "/v1/tokenize", "{\"prompt\":\"<|user|>x\"}", &r);
    cr_expect_eq(json_array_size(list_of(&r)), 2);
    cr_expect_eq(json_integer_value(json_array_get(list_of(&r), 0)), TOK_EOS);
    reply_release(&r);
    client_post(f.url, "/tokenize",
                "{\"prompt\":\"<|user|>x\","
                "\"parse_special\":false,\"return_token_strs\":true,"
                "\"add_special_tokens\":true}",
                &r);
    cr_expect_eq(json_array_size(list_of(&r)), 9);
    cr_expect_str_eq(json_string_value(reply_at(&r, "token_strs", "0", NULL)),
                     "<");
    reply_release(&r);
    client_post(f.url, "/tokenize", "{\"prompt\":\"x\",\"with_pieces\":true}",
                &r);
    cr_expect_str_eq(
        json_string_value(reply_at(&r, "tokens", "0", "piece", NULL)), "x");
    reply_release(&r);
    fixture_close(&f);
}

Test(tokens, of_messages_are_those_of_the_chat)
{
    static const char chat[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"<|user|>hi\"}]%s}";
    struct fixture f;
    struct reply tokens, prompt, answer;
    char body[256];

    fixture_open(&f, "</think>ok\1");
    snprintf(body, sizeof body, chat, "");
    client_post(f.url, "/tokenize", body, &tokens);
    client_post(f.url, "/apply-template", body, &prompt);
    snprintf(body, sizeof body, chat, ",\"seed\":1");
    client_post(f.url, "/v1/chat/completions", body, &answer);
    cr_assert_eq(tokens.status, 200, "%s", tokens.body.p);
    cr_expect_eq(
        json_integer_value(reply_at(&tokens, "count", NULL)),
        json_integer_value(reply_at(&answer, "usage", "prompt_tokens", NULL)));
    cr_assert_eq(prompt.status, 200, "%s", prompt.body.p);
    cr_expect_not_null(
        strstr(json_string_value(reply_at(&prompt, "prompt", NULL)),
               "<|user|><|user|>hi<|assistant|>"));
    /* What the user types is no special token. */
    cr_expect_gt(json_integer_value(reply_at(&tokens, "count", NULL)), 12);
    reply_release(&tokens);
    reply_release(&prompt);
    reply_release(&answer);
    fixture_close(&f);
}

Test(tokens, bad_bodies_are_named)
{
    static const char *const bad[][3] = {
        { "/tokenize", "{}", "prompt" },
        { "/tokenize", "{\"prompt\":5}", "prompt" },
        { "/tokenize", "{\"content\":[]}", "content" },
        { "/tokenize", "{\"prompt\":\"x\",\"with_pieces\":1}", "with_pieces" },
        { "/tokenize", "{\"messages\":[]}", "messages" },
        { "/detokenize", "{}", "tokens" },
        { "/detokenize", "{\"tokens\":[99999]}", "tokens" },
        { "/detokenize", "{\"tokens\":[-1]}", "tokens" },
        { "/detokenize", "{\"tokens\":[1.5]}", "tokens" },
        { "/detokenize", "{\"tokens\":[\"1\"]}", "tokens" },
        { "/apply-template", "{\"messages\":[{\"role\":\"x\"}]}",
          "messages[0].role" },
    };
    struct fixture f;

    fixture_open(&f, "ok\1");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct reply r;

        client_post(f.url, bad[i][0], bad[i][1], &r);
        cr_expect_eq(r.status, 400, "%s", bad[i][1]);
        cr_expect_str_eq(
            json_string_value(reply_at(&r, "error", "param", NULL)), bad[i][2],
            "%s: %s", bad[i][1], r.body.p);
        reply_release(&r);
    }
    fixture_close(&f);
}

static void post_repeated(struct fixture *f, const char *head, const char *part,
                          size_t n, const char *tail, const char *param)
{
    struct seam_buf b = { 0 };
    struct reply r;

    seam_buf_str(&b, head);
    while (n--)
        seam_buf_str(&b, part);
    seam_buf_str(&b, tail);
    client_post(f->url, "/tokenize", b.p, &r);
    cr_expect_eq(r.status, 400);
    cr_expect_str_eq(json_string_value(reply_at(&r, "error", "param", NULL)),
                     param, "%.200s", r.body.p);
    reply_release(&r);
    seam_buf_release(&b);
}

/* TK-2, SE-3: what no context holds costs no more than telling so. */
Test(tokens, of_endless_text_are_not_listed)
{
    static const char message[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"";
    struct fixture f;

    fixture_open(&f, "ok\1");
    post_repeated(&f, "{\"content\":\"", "a ", (1 << 19) + 1, "\"}", "content");
    post_repeated(&f, "{\"prompt\":\"", "a", (1 << 20) + 1, "\"}", "prompt");
    post_repeated(&f, message, "a ", (1 << 19) + 1, "\"}]}", "messages");
    post_repeated(&f, message, "a", (1 << 20) + 1, "\"}]}", "messages");
    fixture_close(&f);
}

Test(tokens, name_fields_without_effect)
{
    static const char *const cases[][3] = {
        { "/tokenize", "{\"prompt\":\"x\",\"model\":\"scripted\",\"y\":1}",
          "y" },
        { "/tokenize", "{\"prompt\":\"x\",\"with_pieces\":false}", NULL },
        { "/tokenize",
          "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"
          "\"with_pieces\":true,\"store\":true,\"temperature\":1}",
          "store" },
        { "/detokenize", "{\"tokens\":[65],\"y\":1}", "y" },
        { "/apply-template",
          "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"y\":1}",
          "y" },
        { "/v1/messages/count_tokens",
          "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"
          "\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":9}}",
          "thinking.budget_tokens" },
    };
    struct fixture f;
    char v[256];

    fixture_open(&f, "ok\1");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *found;
        struct reply r;

        client_post(f.url, cases[i][0], cases[i][1], &r);
        cr_expect_eq(r.status, 200, "%s: %s", cases[i][1], r.body.p);
        found = reply_header(&r, "X-Seam-Ignored", v, sizeof v);
        if (cases[i][2])
            cr_expect(found && !strcmp(found, cases[i][2]), "%s: %s",
                      cases[i][1], found ? found : "none");
        else
            cr_expect_null(found, "%s: %s", cases[i][1], found);
        reply_release(&r);
    }
    fixture_close(&f);
}
