/* What the tests of grammars share: a vocabulary, and checks of masks. */
#ifndef SEAM_TESTS_GRAMMAR_RIG_H
#define SEAM_TESTS_GRAMMAR_RIG_H

#include <criterion/criterion.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "walk.h"

#define NANO  SEAM_TEST_SOURCE_DIR "/models/nano/bf16/tokenizer.json"
#define SMALL SEAM_TEST_SOURCE_DIR "/tests/tokenizer/small.json"

struct rig {
    struct seam_tokenizer *t;
    struct seam_vocab *v;
    uint32_t n_rows;
    int32_t stop;
    uint32_t *row, *other;
};

/* Of r.t. */
static inline struct rig rig_of(struct rig r, const char *stop)
{
    struct seam_error err;

    r.stop = seam_tokenizer_id(r.t, stop, strlen(stop));
    cr_assert_geq(r.stop, 0);
    r.n_rows = seam_tokenizer_size(r.t) + 40;
    cr_assert_eq(seam_vocab_new(&r.v, r.t, r.n_rows, &r.stop, 1, &err), 0, "%s",
                 err.text);
    r.row = calloc(seam_vocab_words(r.v), sizeof *r.row);
    r.other = calloc(seam_vocab_words(r.v), sizeof *r.other);
    return r;
}

static inline struct rig rig_open(const char *path, const char *stop)
{
    struct rig r = { 0 };
    struct seam_error err;

    cr_assert_eq(seam_tokenizer_open(&r.t, path, &err), 0, "%s", err.text);
    return rig_of(r, stop);
}

static inline struct rig small(void)
{
    return rig_open(SMALL, "<|end|>");
}

static inline struct rig nano(void)
{
    return rig_open(NANO, "<|endoftext|>");
}

static inline void rig_close(struct rig *r)
{
    free(r->row);
    free(r->other);
    seam_vocab_free(r->v);
    seam_tokenizer_free(r->t);
}

static inline json_t *json_of(const char *text)
{
    struct seam_error err;
    json_t *v =
        seam_json_parse(text, strlen(text), "test", SEAM_JSON_BIG_INT, &err);

    cr_assert_not_null(v, "%s: %s", text, err.text);
    return v;
}

static inline struct seam_grammar *compile(const struct rig *r,
                                           const char *schema)
{
    struct seam_grammar *g = NULL;
    struct seam_error err;
    json_t *v = json_of(schema);

    cr_assert_eq(seam_grammar_schema(&g, r->v, v, "schema", NULL, &err), 0,
                 "%s: %s", schema, err.text);
    json_decref(v);
    return g;
}

static inline struct seam_matcher *matcher(const struct rig *r,
                                           const char *schema)
{
    struct seam_grammar *g = compile(r, schema);
    struct seam_matcher *m = NULL;
    struct seam_error err;

    cr_assert_eq(seam_matcher_new(&m, g, &err), 0, "%s", err.text);
    seam_grammar_unref(g);
    return m;
}

static inline bool allowed(const uint32_t *row, int32_t id)
{
    return row[id / 32] >> (id % 32) & 1;
}

/* The mask where m stands, and whether it is what accept says of each token. */
static inline void check_mask(const struct rig *r, struct seam_matcher *m,
                              const char *what)
{
    struct seam_error err = { 0 };
    uint32_t n_set = 0;

    cr_assert_eq(seam_matcher_mask(m, r->row, &err), 0, "%s: %s", what,
                 err.text);
    for (int32_t id = 0; id < (int32_t)r->n_rows; id++) {
        int rc = seam_matcher_accept(m, id, &err);

        cr_assert_geq(rc, 0, "%s: %s", what, err.text);
        if (rc)
            cr_assert_eq(seam_matcher_rollback(m, 1), 0);
        n_set += (uint32_t)rc;
        cr_assert_eq(rc, allowed(r->row, id),
                     "%s: token %d is %s the mask, accept says %d", what, id,
                     rc ? "not in" : "in", rc);
    }
    cr_assert_gt(n_set, 0, "%s: no token is allowed", what);
    cr_assert_eq(allowed(r->row, r->stop), seam_matcher_can_end(m));
    for (uint32_t id = r->n_rows; id < 32 * seam_vocab_words(r->v); id++)
        cr_assert(!allowed(r->row, (int32_t)id));
}

/* Masks along random words. */
static inline void check_masks(const struct rig *r, struct seam_matcher *m,
                               const char *what, uint64_t seed,
                               uint32_t n_tokens)
{
    uint32_t n_words = seam_vocab_words(r->v);

#ifdef SEAM_TEST_QUICK
    n_tokens = n_tokens / 6 + 3;
#endif
    seam_matcher_reset(m);
    for (uint32_t i = 0; i < n_tokens; i++) {
        uint32_t n = 0, k;
        int32_t id;

        check_mask(r, m, what);
        for (uint32_t w = 0; w < n_words; w++)
            n += (uint32_t)__builtin_popcount(r->row[w]);
        k = (uint32_t)(walk_random_u64(&seed) % n);
        for (id = 0; !allowed(r->row, id) || k--; id++)
            ;
        cr_assert_eq(seam_matcher_accept(m, id, NULL), 1);
        if (seam_matcher_ended(m))
            seam_matcher_reset(m);
    }
}

/* Ids of a text, by the tokenizer. */
static inline struct seam_ids ids_of(const struct rig *r, const char *text)
{
    struct seam_ids ids = { 0 };

    cr_assert_eq(
        seam_tokenizer_encode(r->t, text, strlen(text), false, &ids, NULL), 0);
    return ids;
}

/* A matcher of a text grammar. */
static inline struct seam_matcher *text_matcher(
    const struct rig *r, const char *text,
    const struct seam_grammar_import *imports, size_t n)
{
    struct seam_grammar *g = NULL;
    struct seam_matcher *m = NULL;
    struct seam_error err;

    cr_assert_eq(seam_grammar_text(&g, r->v, text, strlen(text), "grammar",
                                   imports, n, NULL, &err),
                 0, "%s: %s", text, err.text);
    cr_assert_eq(seam_matcher_new(&m, g, &err), 0, "%s", err.text);
    seam_grammar_unref(g);
    return m;
}

#endif
