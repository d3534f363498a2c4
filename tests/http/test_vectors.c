/* The vectors of the chat spec and the cases from trackers, as clients get
 * them: plain and streamed, tags as tokens and byte by byte. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/http/collect.h"
#include "tests/http/fixture.h"
#include "tests/plugins/vectors.h"

/* Not what only the parser's settings or the token limit bring about, what lies
 * behind an only call, where the server stops, and the fixture's end of turn. */
static bool is_served(const struct vector *v)
{
    return !(v->how & (FORWARD | CUT)) && !(v->how & ONE && v->content[0]) &&
           !strchr(v->text, '\1');
}

static const char *text_of(const struct seam_buf *b)
{
    return b->n ? b->p : "";
}

static void check(struct fixture *f, unsigned seed, const struct vector *v,
                  const char *how)
{
    struct seam_buf calls = { 0 };
    struct answer a;
    char body[4096], more[3072];

    snprintf(more, sizeof more, "%s%s%s%s%s\"max_tokens\":2000",
             v->how & ANSWER ? "\"enable_thinking\":false," : "",
             v->how & NO_TOOLS ? "" : "\"tools\":",
             v->how & NO_TOOLS ? "" : spec_tools,
             v->how & NO_TOOLS ? ""
             : v->how & NONE   ? ",\"tool_choice\":\"none\","
                               : ",",
             v->how & ONE ? "\"parallel_tool_calls\":false," : "");
    answer_both(f->url, ask(body, sizeof body, seed, more), &a);
    cr_assert_eq(a.status, 200, "%s", v->id);
    for (unsigned i = 0; i < a.n_calls; i++)
        seam_buf_fmt(&calls, "%s%s %s", i ? "\n" : "", text_of(&a.call[i].name),
                     text_of(&a.call[i].args));
    cr_expect_str_eq(text_of(&a.reasoning), v->reasoning, "%s, %s: '%s'", v->id,
                     how, text_of(&a.reasoning));
    cr_expect_str_eq(text_of(&a.content), v->content, "%s, %s: '%s'", v->id,
                     how, text_of(&a.content));
    cr_expect_str_eq(text_of(&calls), v->calls, "%s, %s: '%s'", v->id, how,
                     text_of(&calls));
    cr_expect_str_eq(a.finish, v->finish, "%s, %s: %s", v->id, how, a.finish);
    seam_buf_release(&calls);
    answer_release(&a);
}

static unsigned byte_script(struct fixture *f, const char *text)
{
    size_t n = strlen(text);
    int32_t *id = calloc(n + 1, sizeof *id);
    unsigned seed;

    cr_assert_not_null(id);
    for (size_t i = 0; i < n; i++)
        id[i] = fixture_piece(f, text + i, 1);
    id[n] = TOK_EOS;
    seed = fixture_script(f, id, n + 1);
    free(id);
    return seed;
}

Test(vectors, reach_clients_as_the_parser_gives_them)
{
#define N (sizeof vectors / sizeof *vectors)
    unsigned tags[N] = { 0 }, bytes[N] = { 0 }, n = 0;
    struct fixture f;

    fixture_init(&f);
    for (size_t i = 0; i < N; i++) {
        struct seam_buf b = { 0 };

        if (!is_served(&vectors[i]))
            continue;
        seam_buf_fmt(&b, "%s\1", vectors[i].text);
        tags[i] = fixture_text(&f, b.p);
        bytes[i] = byte_script(&f, vectors[i].text);
        seam_buf_release(&b);
        n++;
    }
    cr_assert_gt(n, 30);
    fixture_bind(&f, NULL, 0, NULL);
    fixture_start(&f);
    for (size_t i = 0; i < N; i++) {
        if (!is_served(&vectors[i]))
            continue;
        check(&f, tags[i], &vectors[i], "tags as tokens");
        check(&f, bytes[i], &vectors[i], "byte by byte");
    }
    fixture_close(&f);
}
