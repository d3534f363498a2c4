/* Parsers: a whole stream, token by token, of what models write. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/bench/kind.h"

enum text { TEXT_PROSE, TEXT_REASONING, TEXT_CALLS, TEXT_JSON_CALLS, N_TEXTS };

static const char *const text_name[N_TEXTS] = { "prose", "reasoning", "calls",
                                                "json calls" };

static const char tools[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", "
    "\"parameters\": {\"type\": \"object\", \"properties\": {\"city\": "
    "{\"type\": \"string\"}, \"days\": {\"type\": \"integer\"}}}}}]";

struct heard;

struct parsing {
    struct seam_runtime *rt;
    const struct seam_parser *table;
    void *self;
    struct seam_buf text[N_TEXTS];
    struct seam_ids ids;   /* of the case's text                              */
    struct seam_str *word; /* [ids.n] what each id stands for                 */
    uint64_t n_events, n_bytes;
    struct heard
        *heard; /* where they are written down, or NULL               */
};

/* What a stream says, piece by piece put together.  When content comes between
 * two calls is not compared: it is one text in the answer. */
struct heard {
    struct said {
        uint32_t kind, index;
        struct seam_buf text;
    } * said; /* [n], ascending                                               */
    size_t n;
    bool failed;
};

static void heard_release(struct heard *h)
{
    for (size_t i = 0; i < h->n; i++)
        seam_buf_release(&h->said[i].text);
    free(h->said);
}

static void heard_add(struct heard *h, uint32_t kind, uint32_t index,
                      const char *text, uint64_t n)
{
    size_t at = h->n;
    struct said *more;

    while (at &&
           (h->said[at - 1].kind > kind ||
            (h->said[at - 1].kind == kind && h->said[at - 1].index > index)))
        at--;
    if (at && h->said[at - 1].kind == kind && h->said[at - 1].index == index) {
        seam_buf_add(&h->said[at - 1].text, text, n);
        return;
    }
    more = realloc(h->said, (h->n + 1) * sizeof *more);
    if (!more) {
        h->failed = true;
        return;
    }
    h->said = more;
    memmove(more + at + 1, more + at, (h->n++ - at) * sizeof *more);
    more[at] = (struct said){ kind, index, { 0 } };
    seam_buf_add(&more[at].text, text, n);
}

static bool heard_same(const struct heard *a, const struct heard *b)
{
    bool same = a->n == b->n;

    for (size_t i = 0; same && i < a->n; i++) {
        const struct said *x = &a->said[i], *y = &b->said[i];

        same = x->kind == y->kind && x->index == y->index &&
               x->text.n == y->text.n &&
               (!x->text.n || !memcmp(x->text.p, y->text.p, x->text.n));
    }
    return same;
}

static bool heard_failed(const struct heard *h)
{
    bool failed = h->failed;

    for (size_t i = 0; i < h->n; i++)
        failed |= h->said[i].text.failed;
    return failed;
}

static void parsing_close(struct kind_side *s)
{
    struct parsing *p = s->work;

    if (!p)
        return;
    for (int i = 0; i < N_TEXTS; i++)
        seam_buf_release(&p->text[i]);
    seam_ids_release(&p->ids);
    free(p->word);
    free(p);
    s->work = NULL;
}

/* Words until there are surely more than n tokens, as the vocabulary of any
 * model has one for every few letters. */
static void words(struct seam_buf *b, uint32_t n, uint32_t seed)
{
    static const char *const list[] = {
        "the ", "rain ", "in ",    "Spain ",  "stays ", "mainly, ", "as ",
        "far ", "as ",   "one < ", "knows; ", "on ",    "the ",     "plain.\n"
    };

    for (uint32_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        seam_buf_str(b, list[(seed >> 16) % (sizeof list / sizeof *list)]);
    }
}

static void parsing_texts(struct parsing *p, uint32_t n)
{
    struct seam_buf *t = p->text;

    seam_buf_str(&t[TEXT_PROSE], "</think>");
    words(&t[TEXT_PROSE], n, 1);
    words(&t[TEXT_REASONING], n, 2);
    seam_buf_str(&t[TEXT_CALLS], "</think>");
    for (uint32_t i = 0; i < n / 8 + 1; i++) {
        words(&t[TEXT_CALLS], 3, i);
        seam_buf_fmt(&t[TEXT_CALLS],
                     "<tool_call>get_weather<arg_key>city</arg_key><arg_value>"
                     "Rome %u</arg_value><arg_key>days</arg_key><arg_value>%u"
                     "</arg_value></tool_call>",
                     i, i % 9);
        words(&t[TEXT_JSON_CALLS], 3, i);
        seam_buf_fmt(&t[TEXT_JSON_CALLS],
                     "<tool_call>{\"name\": \"get_weather\", \"arguments\": "
                     "{\"city\": \"Rome %u\", \"days\": %u}}</tool_call>",
                     i, i % 9);
    }
}

static int parsing_open(struct kind *k, struct kind_side *s,
                        struct seam_error *err)
{
    struct parsing *p = calloc(1, sizeof *p);
    bool failed = false;

    s->work = p;
    if (!p)
        return seam_fail(err, SEAM_ENOMEM, "out of memory");
    p->rt = s->rt;
    p->table = &s->rt->plugin[SEAM_ROLE_PARSER]->table.parser;
    p->self = s->rt->self[SEAM_ROLE_PARSER];
    if (!s->rt->model.tokenizer)
        return seam_fail(err, SEAM_EINVAL,
                         "%s: the shape has no tokenizer.json", s->name);
    parsing_texts(p, k->max_tokens);
    for (int i = 0; i < N_TEXTS; i++)
        failed |= p->text[i].failed;
    return failed ? seam_fail(err, SEAM_ENOMEM, "out of memory") : 0;
}

static int parsing_cases(struct kind *k, struct seam_error *err)
{
    (void)err;
    for (uint32_t i = 0; i < N_TEXTS; i++)
        for (uint32_t t = 0; t < k->o->tokens.n; t++)
            kind_add(k, text_name[i], i, k->o->tokens.v[t], 0, 1);
    return 0;
}

/* The first tokens of the case's text. */
static int parsing_prepare(struct kind *k, struct kind_side *s,
                           const struct kind_case *c, struct seam_error *err)
{
    struct parsing *p = s->work;
    const struct seam_buf *text = &p->text[c->op];
    const struct seam_tokenizer *t = p->rt->model.tokenizer;
    int rc;

    (void)k;
    p->ids.n = 0;
    rc = seam_tokenizer_encode(t, text->p, text->n, true, &p->ids, err);
    if (rc)
        return rc;
    if (p->ids.n < c->tokens)
        return seam_fail(err, SEAM_EINVAL, "%s: a text of %zu tokens, not %u",
                         c->name, p->ids.n, c->tokens);
    p->ids.n = c->tokens;
    free(p->word);
    p->word = calloc(p->ids.n + 1, sizeof *p->word);
    if (!p->word)
        return seam_fail(err, SEAM_ENOMEM, "out of memory");
    for (size_t i = 0; i < p->ids.n; i++)
        if (!seam_tokenizer_bytes(t, p->ids.v[i], &p->word[i]))
            return seam_fail(err, SEAM_EINVAL, "no token has id %d",
                             p->ids.v[i]);
    return 0;
}

static int parsing_event(void *ctx, uint32_t kind, uint32_t index,
                         const char *text, uint64_t n)
{
    struct parsing *p = ctx;

    p->n_events++;
    p->n_bytes += n;
    if (p->heard)
        heard_add(p->heard, kind, index, text, n);
    return 0;
}

static int parsing_call(struct kind *k, struct kind_side *s,
                        const struct kind_case *c, uint32_t i,
                        struct seam_error *err)
{
    struct parsing *p = s->work;
    struct seam_sink sink = { p, parsing_event };
    struct seam_parse_opts o = {
        .size = sizeof o,
        .tools = { tools, sizeof tools - 1 },
        .prompt_tail = { "<think>", c->op == TEXT_JSON_CALLS ? 0 : 7 },
    };
    void *stream;
    int rc = p->table->open(p->self, &o, &sink, &stream, err);

    (void)k;
    (void)i;
    if (rc)
        return rc;
    for (size_t j = 0; j < p->ids.n && !rc; j++)
        rc = p->table->feed(stream, 1, &p->ids.v[j], p->word[j]);
    if (!rc)
        rc = p->table->finish(stream, SEAM_END_STOP);
    p->table->close(stream);
    return rc ? seam_fail(err, rc, "%s: feed answered %d", s->name, rc) : 0;
}

/* Zero when the stream says what the reference does, infinity otherwise. */
static int parsing_check(struct kind *k, const struct kind_case *c,
                         struct kind_side *s, struct kind_side *ref,
                         double *error, struct seam_error *err)
{
    struct kind_side *side[2] = { s, ref };
    struct heard heard[2] = { { 0 }, { 0 } };
    int rc = 0;

    for (int i = 0; i < 2 && !rc; i++) {
        struct parsing *p = side[i]->work;

        p->heard = &heard[i];
        rc = parsing_prepare(k, side[i], c, err);
        if (!rc)
            rc = parsing_call(k, side[i], c, 0, err);
        p->heard = NULL;
        if (!rc && heard_failed(&heard[i]))
            rc = seam_fail(err, SEAM_ENOMEM, "out of memory");
    }
    if (!rc)
        *error = heard_same(&heard[0], &heard[1]) ? 0 : INFINITY;
    heard_release(&heard[0]);
    heard_release(&heard[1]);
    return rc;
}

const struct kind_family kind_parsers = {
    .open = parsing_open,
    .close = parsing_close,
    .cases = parsing_cases,
    .check = parsing_check,
    .prepare = parsing_prepare,
    .call = parsing_call,
};
