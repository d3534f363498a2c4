/* TP-1: calls, whole and typed, streamed or not, wherever tokens end. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "tests/http/collect.h"
#include "tests/http/fixture.h"

/* clang-format off */
#define TOOLS                                                              \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":"           \
    "\"list_rooms\",\"parameters\":{\"type\":\"object\",\"properties\":"  \
    "{}}}},{\"type\":\"function\",\"function\":{\"name\":\"book\","       \
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"room\":"       \
    "{\"type\":\"string\"},\"hours\":{\"type\":\"integer\"},\"note\":"    \
    "{\"type\":\"string\"}}}}}]"
#define ARG(k, v) "<arg_key>" k "</arg_key><arg_value>" v "</arg_value>"
#define LIST "<tool_call>list_rooms</tool_call>"
/* clang-format on */

struct call_case {
    const char *output; /* "\1" ends the turn; without it the limit does  */
    const char *reasoning, *content;
    const char *call[2][2]; /* name, arguments */
    const char *finish;
};

static const struct call_case CASES[] = {
    { "</think>" LIST "\1", "", "", { { "list_rooms", "{}" } }, "tool_calls" },
    { "need data" LIST "\1",
      "need data",
      "",
      { { "list_rooms", "{}" } },
      "tool_calls" },
    { "</think><tool_call>book" ARG("room", "007")
          ARG("hours", "2") "</tool_call>" LIST "\1",
      "",
      "",
      { { "book", "{\"room\": \"007\", \"hours\": 2}" },
        { "list_rooms", "{}" } },
      "tool_calls" },
    { "</think><tool_call>book" ARG(
          "note",
          "a </arg_value b \"q\" \\ \xf0\x9f\x98\x80\n\nend") "</tool_call>\1",
      "",
      "",
      { { "book", "{\"note\": \"a </arg_value b \\\"q\\\" \\\\ "
                  "\xf0\x9f\x98\x80\\n\\nend\"}" } },
      "tool_calls" },
    { "</think>use the <tool_call> tag\1",
      "",
      "use the <tool_call> tag",
      { { NULL } },
      "stop" },
    { "</think><tool_call>book<arg_key>room</arg_key><arg_val",
      "",
      "",
      { { NULL } },
      "length" },
    /* A name nobody declared is left out (documented). */
    { "</think>a<tool_call>unknown_fn</tool_call>b\1",
      "",
      "ab",
      { { NULL } },
      "stop" },
};

static const char *text_of(const struct seam_buf *b)
{
    return b->n ? b->p : "";
}

static void check(struct fixture *f, unsigned seed, const struct call_case *c,
                  size_t max_tokens, const char *how)
{
    struct answer a;
    char body[2048], more[1536];
    unsigned calls = 0;

    snprintf(more, sizeof more, TOOLS ",\"max_tokens\":%zu", max_tokens);
    answer_both(f->url, ask(body, sizeof body, seed, more), &a);
    cr_expect_str_eq(text_of(&a.reasoning), c->reasoning, "%s, %s: '%s'",
                     c->output, how, text_of(&a.reasoning));
    cr_expect_str_eq(text_of(&a.content), c->content, "%s, %s: '%s'", c->output,
                     how, text_of(&a.content));
    cr_expect_str_eq(a.finish, c->finish, "%s, %s: %s", c->output, how,
                     a.finish);
    while (calls < 2 && c->call[calls][0])
        calls++;
    cr_expect_eq(a.n_calls, calls, "%s, %s: %u calls", c->output, how,
                 a.n_calls);
    for (unsigned i = 0; i < a.n_calls && i < calls; i++) {
        json_t *args = json_loads(text_of(&a.call[i].args), 0, NULL);
        json_t *want = json_loads(c->call[i][1], 0, NULL);

        cr_expect_str_eq(text_of(&a.call[i].name), c->call[i][0]);
        cr_expect(json_equal(args, want), "%s, %s: %s", c->output, how,
                  text_of(&a.call[i].args));
        cr_expect_eq(strncmp(a.call[i].id, "call_", 5), 0);
        cr_expect_geq(strlen(a.call[i].id), 29);
        json_decref(args);
        json_decref(want);
    }
    if (calls == 2)
        cr_expect_neq(strcmp(a.call[0].id, a.call[1].id), 0);
    answer_release(&a);
}

/* Tokens of the whole text but for its tags, of single bytes, and of text cut
 * in two at every place. */
static size_t count_tokens(const char *text)
{
    size_t n = 0;

    for (; *text; n++) {
        const char *end = *text == '<' ? strchr(text, '>') : NULL;
        size_t len = end ? (size_t)(end - text) + 1 : 1;

        if (len > 1 && (len > 12 || memchr(text, ' ', len)))
            len = 1;
        text += len;
    }
    return n;
}

Test(tp1, tokens_and_tags)
{
    struct fixture f;
    size_t n = sizeof CASES / sizeof *CASES;

    fixture_init(&f);
    for (size_t i = 0; i < n; i++)
        fixture_text(&f, CASES[i].output);
    fixture_bind(&f, NULL, 0, NULL);
    fixture_start(&f);
    for (size_t i = 0; i < n; i++)
        check(&f, (unsigned)i + 1, &CASES[i], count_tokens(CASES[i].output),
              "tags as tokens");
    fixture_close(&f);
}

/* Every byte a token of its own, tags included: the text decides. */
Test(tp1, single_bytes)
{
    struct fixture f;
    size_t n = sizeof CASES / sizeof *CASES;

    fixture_init(&f);
    for (size_t i = 0; i < n; i++) {
        int32_t id[512];
        size_t len = strlen(CASES[i].output);

        for (size_t j = 0; j < len; j++)
            id[j] = CASES[i].output[j] == 1 ? TOK_EOS
                                            : (unsigned char)CASES[i].output[j];
        fixture_script(&f, id, len);
    }
    fixture_bind(&f, NULL, 0, NULL);
    fixture_start(&f);
    for (size_t i = 0; i < n; i++)
        check(&f, (unsigned)i + 1, &CASES[i], strlen(CASES[i].output),
              "single bytes");
    fixture_close(&f);
}

/* Two tokens, cut at every place. */
static void cut_everywhere(const struct call_case *c)
{
    struct fixture f;
    struct answer whole, a;
    size_t n = strlen(c->output);
    bool ends = c->output[n - 1] == 1;
    char body[2048], more[1536];

    if (ends)
        n--;
    fixture_init(&f);
    for (size_t cut = 1; cut < n && f.n_scripts < MAX_SCRIPTS - 1; cut++) {
        int32_t id[512];
        size_t k = 0;

        /* '"' and '\' as bytes: the fixture's pieces do not hold them. */
        for (size_t i = 0; i < n;) {
            size_t end = i < cut ? cut : n, len = 0;

            while (i + len < end && !strchr("\"\\", c->output[i + len]))
                len++;
            id[k++] = fixture_piece(&f, c->output + i, len ? len : 1);
            i += len ? len : 1;
        }
        if (ends)
            id[k++] = TOK_EOS;
        fixture_script(&f, id, k);
    }
    fixture_bind(&f, NULL, 0, NULL);
    fixture_start(&f);
    snprintf(more, sizeof more, TOOLS);
    for (unsigned seed = 1; ends && seed <= f.n_scripts; seed++) {
        answer_stream(f.url, ask(body, sizeof body, seed, more), &a);
        if (seed == 1) {
            whole = a;
            continue;
        }
        cr_expect_str_eq(text_of(&a.content), text_of(&whole.content));
        cr_expect_str_eq(text_of(&a.reasoning), text_of(&whole.reasoning));
        cr_expect_str_eq(a.finish, whole.finish);
        cr_expect_eq(a.n_calls, whole.n_calls);
        for (unsigned i = 0; i < a.n_calls; i++) {
            cr_expect_str_eq(text_of(&a.call[i].name),
                             text_of(&whole.call[i].name));
            cr_expect_str_eq(text_of(&a.call[i].args),
                             text_of(&whole.call[i].args));
        }
        answer_release(&a);
    }
    if (ends && f.n_scripts)
        answer_release(&whole);
    fixture_close(&f);
}

Test(tp1, cut_at_every_place)
{
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++)
        cut_everywhere(&CASES[i]);
}

Test(tools, choice_none_suppresses_calls)
{
    struct fixture f;
    struct answer a;
    char body[2048];

    fixture_open(&f, "</think>a " LIST " b\1");
    answer_both(f.url,
                ask(body, sizeof body, 1, TOOLS ",\"tool_choice\":\"none\""),
                &a);
    cr_expect_str_eq(a.content.p, "a  b");
    cr_expect_eq(a.n_calls, 0);
    cr_expect_str_eq(a.finish, "stop");
    answer_release(&a);
    /* Without tools the markup is text. */
    answer_both(f.url, ask(body, sizeof body, 1, NULL), &a);
    cr_expect_str_eq(a.content.p, "a " LIST " b");
    answer_release(&a);
    fixture_close(&f);
}

Test(tools, only_one_call_when_asked_for)
{
    struct fixture f;
    struct answer a;
    char body[2048];

    fixture_init(&f);
    fixture_text(&f, "</think>" LIST "<tool_call>book" ARG(
                         "room", "1") "</tool_call>and so on and so on\1");
    fixture_use_trace(&f);
    fixture_bind(&f, NULL, 0, NULL);
    fixture_start(&f);
    answer_both(
        f.url,
        ask(body, sizeof body, 1, TOOLS ",\"parallel_tool_calls\":false"), &a);
    cr_expect_eq(a.n_calls, 1);
    cr_expect_str_eq(text_of(&a.call[0].name), "list_rooms");
    cr_expect_str_eq(a.finish, "tool_calls");
    cr_expect(a.content_is_null);
    answer_release(&a);
    fixture_close(&f);
}

Test(tools, allowed_tools_leave_out_the_others)
{
    struct fixture f;
    struct answer a;
    char body[2048];

    fixture_open(&f, "</think>" LIST "x\1");
    answer_both(f.url,
                ask(body, sizeof body, 1,
                    TOOLS ",\"tool_choice\":{\"type\":\"allowed_tools\","
                          "\"allowed_tools\":{\"mode\":\"auto\",\"tools\":["
                          "{\"type\":\"function\",\"function\":{\"name\":"
                          "\"book\"}}]}}"),
                &a);
    cr_expect_eq(a.n_calls, 0);
    cr_expect_str_eq(a.content.p, "x");
    answer_release(&a);
    fixture_close(&f);
}

Test(tools, old_clients_say_functions)
{
    struct fixture f;
    struct answer a;
    char body[2048];

    fixture_open(&f, "</think>" LIST "\1");
    answer_both(
        f.url,
        ask(body, sizeof body, 1, "\"functions\":[{\"name\":\"list_rooms\"}]"),
        &a);
    cr_expect_eq(a.n_calls, 1);
    answer_release(&a);
    fixture_close(&f);
}

/* ---- Forced calls and ends (chat spec, B21, B22, B25, B33) --------------- */

#define NOW                                                                  \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"now\"}},{"   \
    "\"type\":\"function\",\"function\":{\"name\":\"book\",\"parameters\":{" \
    "\"type\":\"object\",\"properties\":{\"hours\":{\"type\":\"integer\"}}," \
    "\"required\":[\"hours\"],\"additionalProperties\":false}}}]"
#define NAMED(name)                                          \
    ",\"tool_choice\":{\"type\":\"function\",\"function\":{" \
    "\"name\":\"" name "\"}}"

/* The only call of an answer, which has nothing else but reasoning. */
static void forced(struct fixture *f, unsigned seed, const char *choice,
                   const char *reasoning, const char *name, const char *args)
{
    struct answer a;
    char body[2048], more[1536];

    snprintf(more, sizeof more, NOW "%s", choice);
    answer_both(f->url, ask(body, sizeof body, seed, more), &a);
    cr_expect_eq(a.status, 200);
    cr_expect_str_eq(text_of(&a.reasoning), reasoning);
    cr_expect(a.content_is_null, "%s: '%s'", choice, text_of(&a.content));
    cr_assert_eq(a.n_calls, 1, "%s: %u calls", choice, a.n_calls);
    cr_expect_str_eq(text_of(&a.call[0].name), name);
    cr_expect_str_eq(text_of(&a.call[0].args), args);
    cr_expect_str_eq(a.finish, "tool_calls");
    answer_release(&a);
}

Test(tools, b21_a_required_call_is_read_as_the_model_writes_it)
{
    struct fixture f;

    fixture_open(&f, "A</think><tool_call>now</tool_call>\1");
    forced(&f, 1, ",\"tool_choice\":\"required\"", "A", "now", "{}");
    fixture_close(&f);
}

Test(tools, b22_a_named_call_is_not_forced_into_json)
{
    struct fixture f;
    struct answer a;
    char body[2048];

    fixture_init(&f);
    fixture_text(
        &f, "A</think><tool_call>book" ARG("hours", "12") "</tool_call>\1");
    /* A model that does write JSON here is held to the markup. */
    fixture_text(
        &f, "A</think>{\"name\": \"book\", \"arguments\": {\"hours\": 12}}\1");
    fixture_bind(&f, NULL, 0, NULL);
    fixture_start(&f);
    forced(&f, 1, NAMED("book"), "A", "book", "{\"hours\": 12}");
    answer_plain(
        f.url,
        ask(body, sizeof body, 2, NOW NAMED("book") ",\"max_tokens\":60"), &a);
    cr_expect_eq(a.status, 200);
    cr_expect_eq(a.content.n, 0, "'%s'", text_of(&a.content));
    cr_expect_leq(a.n_calls, 1);
    cr_expect_str_eq(a.finish, a.n_calls ? "tool_calls" : "length");
    answer_release(&a);
    fixture_close(&f);
}

Test(tools, b25_a_named_call_ends_with_tool_calls)
{
    struct fixture f;

    fixture_open(&f, "A</think><tool_call>now</tool_call>\1");
    forced(&f, 1, NAMED("now"), "A", "now", "{}");
    fixture_close(&f);
}

/* ---- Calls or else an answer that has a form ------------------------------ */

#define FORM                                                                    \
    ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":" \
    "\"n\",\"schema\":{\"type\":\"object\",\"properties\":{\"tag\":{\"type\":"  \
    "\"string\"}},\"required\":[\"tag\"],\"additionalProperties\":false}}}"
#define SPELLED "{\"tag\": \"<think>x</think><tool_call>now</tool_call>\"}"

/* Reasoning, then text in single bytes: tags in it are no tokens. */
static void script_bytes(struct fixture *f, const char *text)
{
    int32_t id[256] = { 'A', TOK_UNTHINK };
    size_t n = 2;

    while (*text)
        id[n++] = (unsigned char)*text++;
    id[n++] = TOK_EOS;
    fixture_script(f, id, n);
}

/* What the script says is said, where it is one of the two. */
Test(tools, a_format_beside_tools_takes_calls_or_text_of_the_format)
{
    static const struct {
        const char *more, *content, *finish;
        unsigned seed, n_calls;
    } cases[] = {
        { NOW FORM, SPELLED, "stop", 1, 0 },
        { NOW FORM ",\"parallel_tool_calls\":false", SPELLED, "stop", 1, 0 },
        { NOW FORM ",\"tool_choice\":\"none\"", SPELLED, "stop", 1, 0 },
        { NOW ",\"response_format\":{\"type\":\"json_object\"}", SPELLED,
          "stop", 1, 0 },
        { NOW FORM, "", "tool_calls", 2, 2 },
        { NOW FORM ",\"parallel_tool_calls\":false", "", "tool_calls", 2, 1 },
        { NOW FORM ",\"tool_choice\":\"required\"", "", "tool_calls", 2, 2 },
        { NOW FORM NAMED("now"), "", "tool_calls", 2, 1 },
    };
    struct fixture f;

    fixture_init(&f);
    script_bytes(&f, SPELLED);
    fixture_text(&f, "A</think><tool_call>now</tool_call><tool_call>book" ARG(
                         "hours", "12") "</tool_call>\1");
    fixture_bind(&f, NULL, 0, NULL);
    fixture_start(&f);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct answer a;
        char body[2048];

        answer_both(f.url, ask(body, sizeof body, cases[i].seed, cases[i].more),
                    &a);
        cr_assert_eq(a.status, 200, "%s", body);
        cr_expect_str_eq(text_of(&a.reasoning), "A", "%s", body);
        cr_expect_str_eq(text_of(&a.content), cases[i].content, "%s: %s", body,
                         text_of(&a.content));
        cr_expect_eq(a.n_calls, cases[i].n_calls, "%s: %u", body, a.n_calls);
        cr_expect_str_eq(a.finish, cases[i].finish, "%s: %s", body, a.finish);
        answer_release(&a);
    }
    fixture_close(&f);
}

/* Without tools the tags that JSON spells are text as well. */
Test(tools, text_of_a_format_is_whole_whatever_tags_it_spells)
{
    struct fixture f;
    struct answer a;
    char body[2048];

    fixture_init(&f);
    script_bytes(&f, SPELLED);
    fixture_bind(&f, NULL, 0, NULL);
    fixture_start(&f);
    answer_both(f.url, ask(body, sizeof body, 1, &FORM[1]), &a);
    cr_assert_eq(a.status, 200);
    cr_expect_str_eq(text_of(&a.content), SPELLED);
    cr_expect_str_eq(text_of(&a.reasoning), "A");
    cr_expect_str_eq(a.finish, "stop");
    answer_release(&a);
    fixture_close(&f);
}

Test(tools, b33_every_end_of_turn_ends_the_answer)
{
    static const int32_t ends[] = { 6100, 6107, 6109 };
    struct fixture f;
    struct answer a;
    char body[512];

    fixture_init(&f);
    for (int i = 0; i < 3; i++) {
        int32_t id[] = { TOK_UNTHINK, 'x', ends[i], 'y', TOK_EOS };

        fixture_script(&f, id, 5);
    }
    fixture_bind(&f, NULL, 0, NULL);
    fixture_start(&f);
    for (unsigned i = 0; i < 3; i++) {
        answer_both(f.url, ask(body, sizeof body, i + 1, NULL), &a);
        cr_expect_str_eq(text_of(&a.content), "x", "%d: '%s'", ends[i],
                         text_of(&a.content));
        cr_expect_str_eq(a.finish, "stop");
        cr_expect_eq(
            json_integer_value(json_object_get(a.usage, "completion_tokens")),
            3);
        answer_release(&a);
    }
    fixture_close(&f);
}

/* ---- What the renderer refuses ------------------------------------------- */

Test(tools, refusals_of_the_renderer_name_their_place)
{
    static const char *const cases[][2] = {
        { "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"
          "\"continue_final_message\":true,\"add_generation_prompt\":false}",
          "continue_final_message" },
        { "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"},{\"role\":"
          "\"tool\",\"content\":[{\"output\":\"a\"},{\"output\":[{\"type\":"
          "\"image\"}]}]}]}",
          "messages[1].content[1].output[0]" },
        { "{\"messages\":[{\"role\":\"tool\",\"content\":[{\"type\":"
          "\"tool_reference\"}]}]}",
          "messages[0].content[0]" },
        /* The same after old fields were mapped. */
        { "{\"functions\":[{\"name\":\"f\"}],\"messages\":[{\"role\":"
          "\"tool\",\"content\":[{\"type\":\"tool_reference\"}]}]}",
          "messages[0].content[0]" },
    };
    static const char *const paths[] = { "/v1/chat/completions", "/tokenize",
                                         "/apply-template" };
    struct fixture f;

    fixture_open(&f, "</think>ok\1");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t k = 0; k < sizeof paths / sizeof *paths; k++) {
            struct reply r;
            const char *param;

            client_post(f.url, paths[k], cases[i][0], &r);
            param = json_string_value(reply_at(&r, "error", "param", NULL));
            cr_expect_eq(r.status, 400, "%s: %s", cases[i][0], r.body.p);
            cr_expect(param && !strcmp(param, cases[i][1]), "%s %s: %s",
                      paths[k], cases[i][0], r.body.p);
            reply_release(&r);
        }
    fixture_alive(&f, 1, "ok");
    fixture_close(&f);
}
