/* Making grammars: what the front ends have in common. */
#include "core/grammar/grammar.h"

#include "core/grammar/schema.h"

/* Finish, and tell where the fault is if the message does not yet. */
static int finish(struct g_build *b, struct g_json *j,
                  const struct g_schema *docs, uint32_t start,
                  const char *where, const struct seam_grammar_opts *opts,
                  struct seam_grammar **g)
{
    uint32_t bad = G_NONE;
    char at[300];

    g_json_finish(j);
    g_build_finish(b, start, opts, g, &bad);
    if (b->rc && b->bare)
        seam_fail_at(b->err,
                     bad != G_NONE && g_schema_where(docs, bad, at, sizeof at)
                         ? at
                         : where);
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
    start = g_schema_add(&docs, &j, schema, where);
    rc = finish(&b, &j, docs, start, where, opts, g);
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
    rc = finish(&b, &j, NULL, start, "json_object", opts, g);
    g_json_release(&j);
    g_build_release(&b);
    return rc;
}
