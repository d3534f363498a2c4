/* Making grammars: what the front ends have in common. */
#include "core/grammar/grammar.h"

#include <string.h>

#include "core/grammar/text.h"

/* Finish, and tell where the fault is if the message does not yet. */
static int finish(struct g_build *b, struct g_json *j,
                  const struct g_schema *docs, const json_t *names,
                  uint32_t start, const char *where,
                  const struct seam_grammar_opts *opts, struct seam_grammar **g)
{
    uint32_t bad = G_NONE;
    char at[300];

    g_json_finish(j);
    g_build_finish(b, start, opts, g, &bad);
    if (!b->rc || !b->bare)
        return b->rc;
    if (bad != G_NONE && g_schema_where(docs, bad, at, sizeof at)) {
        seam_fail_at(b->err, at);
        return b->rc;
    }
    if (bad != G_NONE && g_text_name(names, bad, at, sizeof at))
        seam_fail_at(b->err, at);
    seam_fail_at(b->err, where);
    return b->rc;
}

int seam_grammar_schema(struct seam_grammar **g, const struct seam_vocab *v,
                        const json_t *schema, const char *where,
                        const struct seam_grammar_opts *opts,
                        struct seam_error *err)
{
    struct seam_error own;
    struct g_build b;
    struct g_json j = { .b = &b };
    struct g_schema *docs = NULL;
    uint32_t start;
    int rc;

    g_build_init(&b, v, err ? err : &own);
    j.compact = opts && (opts->flags & SEAM_GRAMMAR_COMPACT);
    start = g_schema_add(&docs, &j, schema, where, false);
    rc = finish(&b, &j, docs, NULL, start, where, opts, g);
    g_schema_release(docs);
    g_json_release(&j);
    g_build_release(&b);
    return rc;
}

int seam_grammar_object(struct seam_grammar **g, const struct seam_vocab *v,
                        const struct seam_grammar_opts *opts,
                        struct seam_error *err)
{
    struct seam_error own;
    struct g_build b;
    struct g_json j = { .b = &b };
    uint32_t start;
    int rc;

    g_build_init(&b, v, err ? err : &own);
    j.compact = opts && (opts->flags & SEAM_GRAMMAR_COMPACT);
    start = g_json_any(&j, G_LEAF_OBJECT);
    rc = finish(&b, &j, NULL, NULL, start, "json_object", opts, g);
    g_json_release(&j);
    g_build_release(&b);
    return rc;
}

int seam_grammar_text(struct seam_grammar **g, const struct seam_vocab *v,
                      const char *text, size_t n, const char *where,
                      const struct seam_grammar_import *imports,
                      size_t n_imports, const struct seam_grammar_opts *opts,
                      struct seam_error *err)
{
    struct seam_error own;
    struct g_build b;
    struct g_json j = { .b = &b }, spaced = { .b = &b };
    struct g_schema *docs = NULL;
    json_t *names = NULL;
    uint32_t start;
    int rc;

    g_build_init(&b, v, err ? err : &own);
    j.compact = opts && (opts->flags & SEAM_GRAMMAR_COMPACT);
    start = g_text_add(&docs, &j, &spaced, text, n, where, imports, n_imports,
                       &names);
    g_json_finish(&spaced);
    rc = finish(&b, &j, docs, names, start, where, opts, g);
    g_schema_release(docs);
    json_decref(names);
    g_json_release(&spaced);
    g_json_release(&j);
    g_build_release(&b);
    return rc;
}

int seam_vocab_warm(struct seam_vocab *v, struct seam_error *err)
{
    /* One with each of the rules that g_leaf_shared knows. */
    static const char text[] =
        "root ::= @json \"\\n\" @text | @integer | @number | @counted";
    static const char counted[] = "{\"type\":\"string\",\"minLength\":2,"
                                  "\"maxLength\":9}";
    json_t *schema = json_loads(counted, 0, NULL);
    struct seam_grammar_import import = { .name = "counted",
                                          .schema = schema,
                                          .where = "counted" };
    int rc = schema ? 0 : SEAM_ENOMEM;

    for (uint32_t flags = 0; flags <= SEAM_GRAMMAR_COMPACT && !rc; flags++) {
        struct seam_grammar_opts opts = { .flags = flags };
        struct seam_grammar *g = NULL;

        rc = seam_grammar_text(&g, v, text, strlen(text), "vocabulary", &import,
                               1, &opts, err);
        if (!rc)
            rc = seam_grammar_warm(g, UINT64_MAX, err);
        seam_grammar_unref(g);
    }
    json_decref(schema);
    return rc;
}
