/* Input: "S" and a JSON schema, "C" and one to be written without white space,
 * or "T" and a grammar in text notation, which may use the schema @s. */
#undef NDEBUG /* assert() is how a target reports, in every build */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "walk.h"

#define SMALL SEAM_TEST_SOURCE_DIR "/tests/tokenizer/small.json"

struct rig {
    struct seam_tokenizer *t;
    struct seam_vocab *v;
    uint32_t *row;
    uint32_t n_rows;
    json_t *schema;
};

static const struct rig *rig(void)
{
    static const char schema[] =
        "{\"type\":\"string\",\"minLength\":1,\"maxLength\":20}";
    static struct rig r;
    int32_t stop;

    if (r.row)
        return &r;
    assert(!seam_tokenizer_open(&r.t, SMALL, NULL));
    stop = seam_tokenizer_id(r.t, "<|end|>", 7);
    r.n_rows = seam_tokenizer_size(r.t);
    assert(!seam_vocab_new(&r.v, r.t, r.n_rows, &stop, 1, NULL));
    r.row = calloc(seam_vocab_words(r.v), sizeof *r.row);
    r.schema = seam_json_parse(schema, strlen(schema), "s", 0, NULL);
    assert(r.row && r.schema);
    return &r;
}

/* The mask says what accept says. */
static void check_mask(const struct rig *r, struct seam_matcher *m)
{
    uint32_t n = 0;
    int rc = seam_matcher_mask(m, r->row, NULL);

    if (rc)
        return; /* too many readings */
    for (int32_t id = 0; id < (int32_t)r->n_rows; id++) {
        uint32_t in = r->row[id / 32] >> (id % 32) & 1;

        rc = seam_matcher_accept(m, id, NULL);
        if (rc < 0)
            return;
        assert((uint32_t)rc == in);
        n += in;
        if (rc)
            assert(!seam_matcher_rollback(m, 1));
    }
    assert(n);
}

static void walk(const struct rig *r, struct seam_grammar *g, uint64_t seed,
                 bool json)
{
    struct seam_error err = { .text = "" };
    struct seam_matcher *m = NULL;
    struct seam_buf out = { 0 };

    if (seam_matcher_new(&m, g, &err)) {
        assert(err.text[0]);
        return;
    }
    for (int i = 0; i < 4; i++) {
        int rc;

        seam_buf_clear(&out);
        seam_matcher_reset(m);
        rc = walk_random(m, r->t, r->row, &seed, 30, &out, &err);
        if (rc < 0)
            assert(strstr(err.text, "too many ways"));
        if (rc == 1 && json) {
            json_t *v = json_loadb(out.p, out.n,
                                   JSON_DECODE_ANY | JSON_ALLOW_NUL |
                                       JSON_DECODE_INT_AS_REAL,
                                   NULL);

            assert(v);
            json_decref(v);
        }
        if (!seam_matcher_ended(m))
            check_mask(r, m);
    }
    seam_buf_release(&out);
    seam_matcher_free(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const struct rig *r = rig();
    struct seam_grammar_opts opts = { 0 };
    struct seam_grammar_import import = { .name = "s",
                                          .schema = r->schema,
                                          .where = "s" };
    struct seam_error err = { .text = "" };
    struct seam_grammar *g = NULL;
    const char *text = (const char *)data + 1;
    uint64_t seed = n;
    int rc;

    if (!n)
        return 0;
    for (size_t i = 0; i < n; i++)
        seed = seed * 31 + data[i];
    if (data[0] == 'T' || data[0] == 'U') {
        /* As calls are: compact, but for what stands in their place. */
        import.spaced = data[0] == 'U';
        opts.flags = import.spaced ? SEAM_GRAMMAR_COMPACT : 0;
        rc = seam_grammar_text(&g, r->v, text, n - 1, "fuzz", &import, 1, &opts,
                               &err);
    } else {
        json_t *schema =
            seam_json_parse(text, n - 1, "fuzz", SEAM_JSON_BIG_INT, NULL);

        if (!schema)
            return 0;
        opts.flags = data[0] == 'C' ? SEAM_GRAMMAR_COMPACT : 0;
        rc = seam_grammar_schema(&g, r->v, schema, "schema", &opts, &err);
        json_decref(schema);
    }
    if (rc)
        assert(err.text[0] && !g);
    else
        walk(r, g, seed, data[0] != 'T' && data[0] != 'U');
    seam_grammar_unref(g);
    return 0;
}
