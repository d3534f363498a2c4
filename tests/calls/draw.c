#include "draw.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "walk.h"

#define N_SCHEMAS 256

json_t *draw_json(const char *text)
{
    struct seam_error err;
    json_t *v = seam_json_parse(text, strlen(text), "test", 0, &err);

    cr_assert_not_null(v, "%s: %s", text, err.text);
    return v;
}

void draw_open(struct draw *d, const char *plugin)
{
    static const char *const ends[] = { "<|endoftext|>", "<|user|>",
                                        "<|observation|>" };
    int32_t stop[3];
    struct seam_error err;
    uint32_t n;

    memset(d, 0, sizeof *d);
    cr_assert_eq(seam_tokenizer_open(&d->t,
                                     SEAM_TEST_SOURCE_DIR
                                     "/models/nano/bf16/tokenizer.json",
                                     &err),
                 0, "%s", err.text);
    for (int i = 0; i < 3; i++)
        stop[i] = seam_tokenizer_id(d->t, ends[i], strlen(ends[i]));
    n = seam_tokenizer_size(d->t);
    cr_assert_eq(seam_vocab_new(&d->v, d->t, n, stop, 3, &err), 0, "%s",
                 err.text);
    d->row = calloc(seam_vocab_words(d->v), sizeof *d->row);
    cr_assert_not_null(d->row);
    cr_assert_eq(phost_load(&d->h, SEAM_TEST_PLUGIN_DIR, plugin, &err), 0, "%s",
                 err.text);
    if (d->h.plugin->extension)
        d->x = d->h.plugin->extension("call_grammar/1");
}

void draw_close(struct draw *d)
{
    phost_unload(&d->h);
    free(d->row);
    seam_vocab_free(d->v);
    seam_tokenizer_free(d->t);
}

/* ---- Grammars ------------------------------------------------------------ */

const char draw_answer[] =
    "{\"type\":\"array\",\"prefixItems\":[{\"type\":\"string\"},{\"enum\":["
    "\"<think>\",\"<tool_call>f</tool_call>\",{\"a\":null},null]}],\"items\":{"
    "\"type\":\"integer\"},\"minItems\":2}";

struct sent {
    struct seam_buf text, where[N_SCHEMAS], schema[N_SCHEMAS];
    uint32_t n;
};

static int sent_event(void *ctx, uint32_t kind, uint32_t index, const char *p,
                      uint64_t n)
{
    struct sent *s = ctx;

    if (kind == SEAM_EV_TEXT) {
        seam_buf_add(&s->text, p, n);
        return 0;
    }
    cr_assert_lt(index, N_SCHEMAS);
    cr_assert_leq(index, s->n, "schemas are numbered from 0");
    s->n = index >= s->n ? index + 1 : s->n;
    if (kind == SEAM_EV_TOOL_NAME)
        seam_buf_add(&s->where[index], p, n);
    else if (kind == SEAM_EV_TOOL_ARGS)
        seam_buf_add(&s->schema[index], p, n);
    else
        cr_assert_fail("event %u", kind);
    return 0;
}

struct seam_grammar *draw_compile(struct draw *d, const json_t *tools,
                                  uint32_t flags, struct seam_error *err)
{
    static const struct seam_grammar_opts compact = {
        .flags = SEAM_GRAMMAR_COMPACT
    };
    struct seam_grammar_import import[N_SCHEMAS + 1];
    char name[N_SCHEMAS][16];
    struct sent s = { 0 };
    struct seam_sink sink = { .ctx = &s, .event = sent_event };
    struct seam_grammar *g = NULL;
    char *text = json_dumps(tools, JSON_COMPACT);
    bool answer;
    int rc;

    *err = (struct seam_error){ 0 };
    rc = d->x->write(d->h.self, (struct seam_str){ text, strlen(text) }, flags,
                     &sink, err);
    free(text);
    for (uint32_t i = 0; i < s.n; i++) {
        snprintf(name[i], sizeof name[i], "s%u", i);
        import[i] = (struct seam_grammar_import){
            .name = name[i],
            .where = s.where[i].p,
            .schema = rc ? NULL : draw_json(s.schema[i].p),
        };
    }
    answer = flags & SEAM_CALLS_ANSWER;
    import[s.n] = (struct seam_grammar_import){
        .name = "answer",
        .where = "answer",
        .schema = answer ? draw_json(draw_answer) : NULL,
        .spaced = true,
    };
    if (!rc)
        rc = seam_grammar_text(&g, d->v, s.text.p, s.text.n, "calls", import,
                               s.n + answer, &compact, err);
    json_decref((json_t *)(uintptr_t)import[s.n].schema);
    if (rc && !strncmp(err->text, "calls", 5))
        cr_assert_fail("%s\n%s", err->text, s.text.p);
    for (uint32_t i = 0; i < s.n; i++) {
        json_decref((json_t *)(uintptr_t)import[i].schema);
        seam_buf_release(&s.where[i]);
        seam_buf_release(&s.schema[i]);
    }
    seam_buf_release(&s.text);
    cr_assert_eq(rc, err->code);
    return rc ? NULL : g;
}

/* ---- Words --------------------------------------------------------------- */

static bool closes(const struct seam_tokenizer *t, int32_t id)
{
    struct seam_str s;

    return seam_tokenizer_bytes(t, id, &s) && s.n == 1 && s.p[0] &&
           strchr("}]\"0", s.p[0]);
}

/* One of the tokens in the row: often one that ends something. */
static int32_t choose(struct draw *d, uint32_t n_words, bool closing,
                      uint64_t *seed)
{
    uint32_t n[3] = { 0 };
    int32_t best[3] = { -1, -1, -1 };

    for (uint32_t i = 0; i < n_words; i++)
        for (uint32_t x = d->row[i]; x; x &= x - 1) {
            int32_t id = (int32_t)(32 * i + (uint32_t)__builtin_ctz(x));
            bool added = seam_tokenizer_flags(d->t, id) & SEAM_TOKEN_ADDED;
            int kind = added ? 0 : closes(d->t, id) ? 1 : 2;

            if (walk_random_u64(seed) % ++n[kind] == 0)
                best[kind] = id;
        }
    if (best[0] >= 0 &&
        (closing || best[2] < 0 || walk_random_u64(seed) % 6 == 0))
        return best[0];
    if (best[1] >= 0 &&
        (best[2] < 0 || walk_random_u64(seed) % 8 < (closing ? 7 : 2)))
        return best[1];
    return best[2];
}

void draw_word(struct draw *d, struct seam_grammar *g, uint64_t *seed,
               uint32_t steps, struct seam_buf *out)
{
    uint32_t n_words = seam_vocab_words(d->v), i;
    struct seam_matcher *m;
    struct seam_error err;

    cr_assert_eq(seam_matcher_new(&m, g, &err), 0, "%s", err.text);
    for (i = 0; i < 50 * steps; i++) {
        struct seam_str s;
        int32_t id;

        cr_assert_eq(seam_matcher_mask(m, d->row, &err), 0, "%s", err.text);
        if (seam_matcher_can_end(m) &&
            (i >= steps || walk_random_u64(seed) % 3 == 0))
            break;
        do
            id = choose(d, n_words, i >= steps, seed);
        while (seam_matcher_can_end(m) && i == 0 && id < 0);
        cr_assert_geq(id, 0, "no token is allowed");
        cr_assert_eq(seam_matcher_accept(m, id, &err), 1);
        if (seam_matcher_ended(m))
            break;
        cr_assert(seam_tokenizer_bytes(d->t, id, &s));
        seam_buf_add(out, s.p, s.n);
    }
    cr_assert_lt(i, 50 * steps, "no end: %.300s", out->p);
    seam_matcher_free(m);
}

/* ---- Reading back -------------------------------------------------------- */

static const json_t *find(const json_t *tools, const char *name)
{
    const json_t *tool;
    size_t i;

    json_array_foreach(tools, i, tool)
    {
        const json_t *f = json_object_get(tool, "function");

        f = f ? f : tool;
        if (!strcmp(json_string_value(json_object_get(f, "name")), name))
            return f;
    }
    return NULL;
}

/* Text against the schema's own grammar. */
static void check_json(struct draw *d, const json_t *schema,
                       const struct ptext *text, const char *word)
{
    struct seam_grammar *g = NULL;
    struct seam_matcher *m = NULL;
    struct seam_error err;

    cr_assert_eq(seam_grammar_schema(&g, d->v, schema, "schema", NULL, &err), 0,
                 "%s", err.text);
    cr_assert_eq(seam_matcher_new(&m, g, &err), 0, "%s", err.text);
    cr_assert(walk_accepts(m, d->t, text->p, text->n),
              "%s of %.600s does not conform", text->p, word);
    seam_matcher_free(m);
    seam_grammar_unref(g);
}

static void check_args(struct draw *d, const json_t *tool,
                       const struct ptext *args, const char *word)
{
    const json_t *params = json_object_get(tool, "parameters");

    if (json_object_size(params)) {
        check_json(d, params, args, word);
    } else {
        cr_assert_str_eq(args->p, "{}");
    }
}

void draw_check(struct draw *d, const json_t *tools, uint32_t flags,
                const struct seam_buf *word)
{
    char *text = json_dumps(tools, JSON_COMPACT);
    struct pcase c = { .tools = text,
                       .tail = flags & SEAM_CALLS_THINK
                                   ? "<|assistant|><think>"
                                   : "<|assistant|><think></think>",
                       .flags = flags & SEAM_CALLS_ANSWER ? SEAM_PARSE_FORM : 0,
                       .end = SEAM_END_STOP };
    const char *p = word->p ? word->p : "";
    struct pout o = { 0 };
    struct seam_error err;

    cr_assert_eq(phost_parse_steps(&d->h, &c, p, word->n, 7, &o, &err), 0, "%s",
                 err.text);
    cr_assert_eq(o.n_bad, 0);
    if (flags & SEAM_CALLS_MUST) {
        cr_assert_gt(o.n_calls, 0, "no call in %.600s", p);
        cr_assert_eq(o.content.n, 0, "'%s' in %.600s", o.content.p, p);
    }
    if (flags & SEAM_CALLS_ANSWER) {
        json_t *schema = draw_json(draw_answer);

        cr_assert_neq(o.n_calls > 0, o.content.n > 0, "both in %.600s", p);
        if (!o.n_calls)
            check_json(d, schema, &o.content, p);
        json_decref(schema);
    }
    if (flags & SEAM_CALLS_ONE)
        cr_assert_leq(o.n_calls, 1, "%u calls in %.600s", o.n_calls, p);
    for (uint32_t i = 0; i < o.n_calls && i < PMAX_CALLS; i++) {
        const json_t *tool = find(tools, o.call[i].name.p);

        cr_assert_not_null(tool, "%s in %.600s", o.call[i].name.p, p);
        cr_assert_eq(o.call[i].n_ends, 1, "an open call in %.600s", p);
        if (flags & SEAM_CALLS_MUST ||
            json_is_true(json_object_get(tool, "strict")))
            check_args(d, tool, &o.call[i].args, p);
    }
    pout_release(&o);
    free(text);
}
