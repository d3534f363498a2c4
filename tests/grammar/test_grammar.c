#include <criterion/criterion.h>
#include <jansson.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "rig.h"

static const char *const schemas[] = {
    "{}",
    "{\"type\":\"object\"}",
    "{\"type\":\"string\"}",
    "{\"type\":\"string\",\"minLength\":2,\"maxLength\":30}",
    "{\"type\":\"string\",\"maxLength\":3}",
    "{\"type\":\"string\",\"minLength\":5}",
    "{\"type\":\"string\",\"pattern\":\"^(a|aa)+$\"}",
    "{\"type\":\"string\",\"pattern\":\"a\",\"maxLength\":6}",
    "{\"type\":\"string\",\"format\":\"date-time\"}",
    "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"maxLength\":4},"
    "\"minItems\":10,\"maxItems\":12}",
    "{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"},{}]}",
    "{\"type\":\"integer\",\"minimum\":-13,\"maximum\":207}",
    "{\"type\":\"number\",\"exclusiveMinimum\":0.5,\"maximum\":12.25}",
    "{\"type\":[\"number\",\"null\"]}",
    "{\"enum\":[\"hello\",\"hell\",1,1.5,null,[1,{\"a\":\"\\n\"}]]}",
    "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\"},\"the\":"
    "{\"type\":\"integer\"},\"then\":{\"type\":\"boolean\"}},"
    "\"required\":[\"the\"]}",
    "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"null\"},\"aa\":{}},"
    "\"additionalProperties\":{\"type\":\"integer\"}}",
    "{\"type\":\"object\",\"properties\":{\"v\":{\"const\":1},\"next\":{"
    "\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}},\"required\":[\"v\","
    "\"next\"]}",
    "{\"type\":\"object\",\"properties\":{\"u\":{\"type\":\"string\","
    "\"format\":\"uri\"},\"e\":{\"type\":\"string\",\"format\":\"email\"},"
    "\"t\":{\"type\":\"string\",\"pattern\":\"^[a-z ]{2,300}$\"}}}",
    "{\"type\":\"string\",\"format\":\"uri\"}",
    "{\"type\":\"string\",\"pattern\":\"^[^x]{0,45}$\"}",
    "{\"type\":\"string\",\"pattern\":\"^[a-z0-9-]{1,40}$\"}",
    "{\"type\":\"string\",\"pattern\":\"^[a-z]{2,90}[a-z0-9]{0,5}!?$\"}",
    "{\"type\":\"string\",\"pattern\":\"^([a-z]{3,70} ?){2}x$\"}",
    "{\"type\":\"array\",\"maxItems\":70,\"minItems\":3,\"items\":{\"type\":"
    "\"string\",\"pattern\":\"^[^a-f]{2,80}$\"}}",
    "{\"type\":\"array\",\"minItems\":40,\"items\":{\"type\":\"string\","
    "\"minLength\":1,\"maxLength\":40}}",
    "{\"type\":\"string\",\"format\":\"hostname\"}",
    "{\"type\":\"string\",\"pattern\":\"^[A-Za-z_][A-Za-z0-9_]*$\"}",
    "{\"type\":\"string\",\"pattern\":\"^[ -~]{1,20}([a-z]{5}|[0-9]{7})\"}",
    "{\"anyOf\":[{\"type\":\"string\",\"pattern\":\"^a*$\"},{\"type\":"
    "\"string\",\"maxLength\":3},{\"enum\":[\"aaaa\",\"b\"]}]}",
};
#define N_SCHEMAS (sizeof schemas / sizeof *schemas)

/* ---- Masks --------------------------------------------------------------- */

Test(mask, is_what_accept_says_of_each_token, .timeout = 600)
{
    struct rig r = small();

    for (size_t i = 0; i < N_SCHEMAS; i++) {
        struct seam_matcher *m = matcher(&r, schemas[i]);

        check_masks(&r, m, schemas[i], 1000 + i, 150);
        seam_matcher_free(m);
    }
    rig_close(&r);
}

Test(mask, is_what_accept_says_with_a_real_vocabulary, .timeout = 600)
{
    struct rig r = nano();

    for (size_t i = 0; i < N_SCHEMAS; i++) {
        struct seam_matcher *m = matcher(&r, schemas[i]);

        check_masks(&r, m, schemas[i], 2000 + i, 12);
        seam_matcher_free(m);
    }
    rig_close(&r);
}

Test(mask, allows_the_stop_token_exactly_at_the_end)
{
    struct rig r = small();
    struct seam_matcher *m = matcher(&r, "{\"enum\":[\"a\",\"aa\"]}");
    struct seam_error err;
    const char *text = "\"a\"";

    for (size_t i = 0; text[i]; i++) {
        cr_expect(!seam_matcher_can_end(m));
        cr_expect_eq(seam_matcher_accept(m, r.stop, &err), 0);
        cr_assert_eq(
            seam_matcher_accept(m, seam_tokenizer_id(r.t, text + i, 1), &err),
            1);
    }
    cr_expect(seam_matcher_can_end(m));
    check_mask(&r, m, "end");
    cr_expect_eq(seam_matcher_accept(m, r.stop, &err), 1);
    cr_expect(seam_matcher_ended(m));
    cr_expect_eq(seam_matcher_mask(m, r.row, &err), SEAM_ESTATE);
    cr_expect_eq(seam_matcher_accept(m, r.stop, &err), 0);
    cr_expect_eq(seam_matcher_rollback(m, 1), 0);
    cr_expect(!seam_matcher_ended(m));
    check_mask(&r, m, "end, taken back");
    seam_matcher_free(m);
    rig_close(&r);
}

/* The small vocabulary and tokens that open several brackets. */
static struct rig with_brackets(void)
{
    static const char *const more[] = { "[[", "[[[[", "{\"a\":{\"", "[\"",
                                        "]]]" };
    json_t *doc = json_load_file(SMALL, 0, NULL);
    json_t *vocab = json_object_get(json_object_get(doc, "model"), "vocab");
    struct rig r = { 0 };
    char *text;

    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        json_object_set_new(vocab, more[i], json_integer(400 + (json_int_t)i));
    text = json_dumps(doc, JSON_COMPACT);
    cr_assert_eq(
        seam_tokenizer_parse(&r.t, "brackets", text, strlen(text), NULL), 0);
    free(text);
    json_decref(doc);
    return rig_of(r, "<|end|>");
}

static void check_nearly_full(struct rig r, const char *schema,
                              const char *open, const char *shut)
{
    struct seam_matcher *m = matcher(&r, schema);
    struct seam_ids ids = ids_of(&r, open);
    bool more = true;
    int n = 0;

    while (more) {
        for (size_t i = 0; more && i < ids.n; i++)
            more = seam_matcher_accept(m, ids.v[i], NULL) == 1;
        n += more;
        if (n > 100)
            check_mask(&r, m, schema);
    }
    cr_expect_gt(n, 110);
    cr_expect_lt(n, 130);
    seam_matcher_reset(m);
    for (int i = 0; i < n; i++)
        for (size_t k = 0; k < ids.n; k++)
            cr_assert_eq(seam_matcher_accept(m, ids.v[k], NULL), 1);
    if (open[0] == '{')
        cr_assert_eq(
            seam_matcher_accept(m, seam_tokenizer_id(r.t, "1", 1), NULL), 1);
    for (int i = 0; i < n; i++) {
        check_mask(&r, m, schema);
        cr_assert_eq(
            seam_matcher_accept(m, seam_tokenizer_id(r.t, shut, 1), NULL), 1);
    }
    cr_expect(seam_matcher_can_end(m));
    seam_ids_release(&ids);
    seam_matcher_free(m);
    rig_close(&r);
}

Test(mask, stays_right_where_the_stack_is_nearly_full, .timeout = 600)
{
    check_nearly_full(small(), "{\"type\":\"array\"}", "[", "]");
    check_nearly_full(with_brackets(), "{\"type\":\"array\"}", "[", "]");
    check_nearly_full(with_brackets(), "{\"type\":\"object\"}", "{\"a\":", "}");
}

/* Required members that contain the whole again: what is opened last must be
 * possible to close. */
Test(mask, never_opens_what_it_could_not_close)
{
    struct rig r = small();
    struct seam_matcher *m = matcher(
        &r, "{\"$ref\":\"#/$defs/t\",\"$defs\":{\"t\":{\"type\":\"array\","
            "\"prefixItems\":[{\"type\":\"array\",\"prefixItems\":[{\"type\":"
            "\"array\",\"prefixItems\":[{\"anyOf\":[{\"$ref\":\"#/$defs/t\"},"
            "{\"type\":\"null\"}]}],\"minItems\":1,\"maxItems\":1}],"
            "\"minItems\":1,\"maxItems\":1}],\"minItems\":1,\"maxItems\":1}}}");
    int32_t open = seam_tokenizer_id(r.t, "[", 1);
    const char *null = "null";
    int n = 0;

    while (seam_matcher_accept(m, open, NULL) == 1) {
        n++;
        check_mask(&r, m, "nested arrays");
    }
    cr_expect_gt(n, 30);
    cr_expect_eq(n % 3, 0);
    for (; *null; null++)
        cr_assert_eq(
            seam_matcher_accept(m, seam_tokenizer_id(r.t, null, 1), NULL), 1);
    for (; n; n--)
        cr_assert_eq(
            seam_matcher_accept(m, seam_tokenizer_id(r.t, "]", 1), NULL), 1);
    cr_expect(seam_matcher_can_end(m));
    seam_matcher_free(m);
    rig_close(&r);
}

/* A loop that is not yet allowed to end, and whose rounds go deeper than what
 * comes before it. */
Test(mask, never_opens_a_list_that_it_could_not_fill)
{
    static const char *const order[] = { "\"", "]", ",", "[" };
    struct rig r = small();
    struct seam_matcher *m = matcher(
        &r,
        "{\"$ref\":\"#/$defs/t\",\"$defs\":{\"t\":{\"type\":\"array\","
        "\"prefixItems\":[{\"anyOf\":[{\"$ref\":\"#/$defs/t\"},{\"type\":"
        "\"string\"}]}],\"items\":{\"$ref\":\"#/$defs/l\"},\"minItems\":12,"
        "\"maxItems\":30},\"l\":{\"type\":\"array\",\"prefixItems\":[{"
        "\"type\":\"array\",\"prefixItems\":[{\"type\":\"array\",\"items\":{"
        "\"type\":\"string\"},\"minItems\":1,\"maxItems\":1}],\"minItems\":1,"
        "\"maxItems\":1}],\"minItems\":1,\"maxItems\":1}}}");
    int32_t open = seam_tokenizer_id(r.t, "[", 1);
    int n = 0;

    while (seam_matcher_accept(m, open, NULL) == 1)
        n++;
    cr_expect_gt(n, 100);
    for (n = 0; !seam_matcher_can_end(m); n++) {
        int32_t id = -1;

        cr_assert_eq(seam_matcher_mask(m, r.row, NULL), 0);
        for (size_t i = 0; id < 0 && i < 4; i++)
            if (allowed(r.row, seam_tokenizer_id(r.t, order[i], 1)))
                id = seam_tokenizer_id(r.t, order[i], 1);
        cr_assert_geq(id, 0, "a dead end after %d tokens", n);
        cr_assert_eq(seam_matcher_accept(m, id, NULL), 1);
        cr_assert_lt(n, 100000);
    }
    seam_matcher_free(m);
    rig_close(&r);
}

Test(mask, is_the_same_without_room_to_remember_it)
{
    struct rig r = small();
    struct seam_grammar_opts opts = { .cache_bytes = 64 };

    for (size_t i = 0; i < N_SCHEMAS; i++) {
        json_t *v = json_of(schemas[i]);
        struct seam_grammar *g = NULL;
        struct seam_matcher *m = NULL;
        struct seam_grammar_stats stats;

        cr_assert_eq(seam_grammar_schema(&g, r.v, v, "schema", &opts, NULL), 0);
        cr_assert_eq(seam_matcher_new(&m, g, NULL), 0);
        check_masks(&r, m, schemas[i], 3000 + i, 20);
        seam_grammar_stats(g, &stats);
        cr_expect_leq(stats.cache_used, 64);
        seam_matcher_free(m);
        seam_grammar_unref(g);
        json_decref(v);
    }
    rig_close(&r);
}

Test(mask, is_the_same_when_computed_ahead, .timeout = 600)
{
    struct rig r = small();

    cr_assert_eq(seam_vocab_warm(r.v, NULL), 0);
    for (size_t i = 0; i < N_SCHEMAS; i++) {
        struct seam_grammar *g = compile(&r, schemas[i]);
        struct seam_matcher *m = NULL;
        struct seam_grammar_stats ahead, after;

        cr_assert_eq(seam_grammar_warm(g, UINT64_MAX, NULL), 0);
        seam_grammar_stats(g, &ahead);
        cr_assert_eq(seam_matcher_new(&m, g, NULL), 0);
        check_masks(&r, m, schemas[i], 4000 + i, 60);
        seam_grammar_stats(g, &after);
        cr_expect_eq(ahead.n_cached, after.n_cached, "%s: %u, then %u masks",
                     schemas[i], ahead.n_cached, after.n_cached);
        seam_matcher_free(m);
        seam_grammar_unref(g);
    }
    rig_close(&r);
}

Test(mask, computing_ahead_stops_where_it_is_told)
{
    struct rig r = nano();
    struct seam_grammar *g =
        compile(&r, "{\"type\":\"string\",\"format\":\"uri\"}");
    struct seam_grammar_stats none, some, all;

    seam_grammar_stats(g, &none);
    cr_assert_eq(seam_grammar_warm(g, 5000, NULL), 0);
    seam_grammar_stats(g, &some);
    cr_assert_eq(seam_grammar_warm(g, UINT64_MAX, NULL), 0);
    seam_grammar_stats(g, &all);
    cr_expect_eq(none.n_cached, 0);
    cr_expect_gt(some.n_cached, 0);
    cr_expect_gt(all.n_cached, some.n_cached);
    seam_grammar_unref(g);
    rig_close(&r);
}

Test(mask, leaves_out_rows_without_a_token_and_added_tokens)
{
    struct rig r = nano();
    struct seam_matcher *m = matcher(&r, "{\"type\":\"string\"}");

    cr_assert_eq(seam_matcher_accept(m, seam_tokenizer_id(r.t, "\"", 1), NULL),
                 1);
    cr_assert_eq(seam_matcher_mask(m, r.row, NULL), 0);
    for (int32_t id = 0; id < (int32_t)r.n_rows; id++)
        if (id >= (int32_t)seam_tokenizer_size(r.t) ||
            (seam_tokenizer_flags(r.t, id) & SEAM_TOKEN_ADDED))
            cr_expect(!allowed(r.row, id), "token %d", id);
    cr_expect(allowed(r.row, seam_tokenizer_id(r.t, "a", 1)));
    seam_matcher_free(m);
    rig_close(&r);
}

/* ---- Matchers ------------------------------------------------------------ */

static const char FLAT[] =
    "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\","
    "\"maxLength\":50},\"b\":{\"type\":\"array\",\"items\":{\"type\":"
    "\"integer\"}}},\"required\":[\"a\",\"b\"]}";
static const char FLAT_TEXT[] = "{\"a\": \"hello world and more\", \"b\": [1, "
                                "22, 333]}";

Test(matcher, gives_the_rows_of_a_window_and_stays)
{
    struct rig r = nano();
    struct seam_matcher *m = matcher(&r, FLAT);
    struct seam_ids ids = ids_of(&r, FLAT_TEXT);
    uint32_t n_words = seam_vocab_words(r.v);
    uint32_t *rows = calloc((size_t)n_words * 9, sizeof *rows);

    for (size_t i = 0; i + 8 <= ids.n; i++) {
        cr_assert_eq(seam_matcher_masks(m, ids.v + i, 8, rows, NULL), 9);
        for (size_t k = 0; k <= 8; k++) {
            cr_assert_eq(seam_matcher_mask(m, r.row, NULL), 0);
            cr_assert_arr_eq(rows + k * n_words, r.row, n_words * sizeof *rows,
                             "window at %zu, row %zu", i, k);
            if (k < 8)
                cr_assert_eq(seam_matcher_accept(m, ids.v[i + k], NULL), 1);
        }
        cr_assert_eq(seam_matcher_rollback(m, 7), 0);
    }
    free(rows);
    seam_ids_release(&ids);
    seam_matcher_free(m);
    rig_close(&r);
}

Test(matcher, ends_a_window_at_the_first_draft_that_is_not_allowed)
{
    struct rig r = nano();
    struct seam_matcher *m = matcher(&r, "{\"enum\":[\"a\"]}");
    uint32_t *rows = calloc((size_t)seam_vocab_words(r.v) * 5, sizeof *rows);
    int32_t quote = seam_tokenizer_id(r.t, "\"", 1);
    int32_t a = seam_tokenizer_id(r.t, "a", 1);
    int32_t bad[] = { quote, quote, a, a };
    int32_t end[] = { quote, a, quote, r.stop };
    int32_t done[33] = { 0 };

    cr_expect_eq(seam_matcher_masks(m, bad, 4, rows, NULL), 2);
    cr_expect_eq(seam_matcher_masks(m, end, 4, rows, NULL), 4);
    cr_expect(allowed(rows + 3 * (size_t)seam_vocab_words(r.v), r.stop));
    cr_expect_eq(seam_matcher_masks(m, NULL, 0, rows, NULL), 1);
    cr_expect_eq(seam_matcher_masks(m, done, 33, rows, NULL), SEAM_EINVAL);
    cr_expect(!seam_matcher_can_end(m));
    cr_expect_eq(seam_matcher_rollback(m, 1), SEAM_EINVAL);
    free(rows);
    seam_matcher_free(m);
    rig_close(&r);
}

Test(matcher, takes_back_what_it_accepted)
{
    struct rig r = small();
    struct seam_ids ids = ids_of(&r, FLAT_TEXT);
    uint64_t seed = 5;

    for (int round = 0; round < 40; round++) {
        struct seam_matcher *m = matcher(&r, FLAT), *same = matcher(&r, FLAT);
        size_t at = 0;

        /* Forward and back at random; then compare with one that only went
         * forward. */
        for (int i = 0; i < 200; i++) {
            size_t n = walk_random_u64(&seed) % 30;

            for (; n && at < ids.n; n--)
                cr_assert_eq(seam_matcher_accept(m, ids.v[at++], NULL), 1);
            n = walk_random_u64(&seed) % 32;
            if (n <= at && seam_matcher_rollback(m, (uint32_t)n) == 0)
                at -= n;
        }
        for (size_t i = 0; i < at; i++)
            cr_assert_eq(seam_matcher_accept(same, ids.v[i], NULL), 1);
        cr_assert_eq(seam_matcher_mask(m, r.row, NULL), 0);
        cr_assert_eq(seam_matcher_mask(same, r.other, NULL), 0);
        cr_assert_arr_eq(r.row, r.other, seam_vocab_words(r.v) * sizeof *r.row);
        cr_expect_eq(seam_matcher_rollback(same, 33), SEAM_EINVAL);
        seam_matcher_free(m);
        seam_matcher_free(same);
    }
    seam_ids_release(&ids);
    rig_close(&r);
}

Test(matcher, takes_back_no_more_than_it_keeps)
{
    struct rig r = small();
    struct seam_matcher *m = matcher(&r, "{\"type\":\"string\"}");
    int32_t quote = seam_tokenizer_id(r.t, "\"", 1);
    int32_t a = seam_tokenizer_id(r.t, "a", 1);

    cr_assert_eq(seam_matcher_accept(m, quote, NULL), 1);
    cr_expect_eq(seam_matcher_rollback(m, 2), SEAM_EINVAL);
    for (int i = 0; i < 50; i++)
        cr_assert_eq(seam_matcher_accept(m, a, NULL), 1);
    cr_expect_eq(seam_matcher_rollback(m, 20), 0);
    cr_expect_eq(seam_matcher_rollback(m, 13), SEAM_EINVAL);
    cr_expect_eq(seam_matcher_rollback(m, 12), 0);
    cr_expect_eq(seam_matcher_rollback(m, 1), SEAM_EINVAL);
    cr_expect_eq(seam_matcher_rollback(m, 0), 0);
    check_mask(&r, m, "string");
    seam_matcher_free(m);
    rig_close(&r);
}

Test(matcher, refuses_without_changing_anything)
{
    struct rig r = small();
    struct seam_matcher *m = matcher(&r, FLAT), *same = matcher(&r, FLAT);
    struct seam_ids ids = ids_of(&r, FLAT_TEXT);
    uint64_t seed = 9;

    for (size_t i = 0; i < ids.n; i++) {
        cr_expect_eq(seam_matcher_accept(m, -1, NULL), 0);
        cr_expect_eq(seam_matcher_accept(m, INT32_MAX, NULL), 0);
        cr_assert_eq(seam_matcher_mask(same, r.other, NULL), 0);
        for (int k = 0; k < 50; k++) {
            int32_t id = (int32_t)(walk_random_u64(&seed) % r.n_rows);

            if (!allowed(r.other, id))
                cr_expect_eq(seam_matcher_accept(m, id, NULL), 0);
        }
        cr_assert_eq(seam_matcher_mask(m, r.row, NULL), 0);
        cr_assert_arr_eq(r.row, r.other, seam_vocab_words(r.v) * sizeof *r.row);
        cr_assert_eq(seam_matcher_accept(m, ids.v[i], NULL), 1);
        cr_assert_eq(seam_matcher_accept(same, ids.v[i], NULL), 1);
    }
    cr_expect(seam_matcher_can_end(m));
    seam_ids_release(&ids);
    seam_matcher_free(m);
    seam_matcher_free(same);
    rig_close(&r);
}

Test(matcher, has_clones_that_go_their_own_way)
{
    struct rig r = small();
    struct seam_matcher *m = matcher(&r, FLAT), *copy = NULL;
    struct seam_ids ids = ids_of(&r, FLAT_TEXT);
    size_t half = ids.n / 2;

    for (size_t i = 0; i < half; i++)
        cr_assert_eq(seam_matcher_accept(m, ids.v[i], NULL), 1);
    cr_assert_eq(seam_matcher_clone(&copy, m, NULL), 0);
    for (size_t i = half; i < ids.n; i++)
        cr_assert_eq(seam_matcher_accept(copy, ids.v[i], NULL), 1);
    cr_expect(seam_matcher_can_end(copy));
    cr_expect(!seam_matcher_can_end(m));
    seam_matcher_reset(m);
    cr_assert_eq(seam_matcher_mask(m, r.row, NULL), 0);
    cr_assert_eq(seam_matcher_rollback(copy, (uint32_t)(ids.n - half)), 0);
    for (size_t i = half; i < ids.n; i++)
        cr_assert_eq(seam_matcher_accept(copy, ids.v[i], NULL), 1);
    seam_matcher_free(m);
    cr_expect(seam_matcher_can_end(copy), "the grammar outlives its first "
                                          "matcher");
    seam_matcher_free(copy);
    seam_ids_release(&ids);
    rig_close(&r);
}

Test(matcher, goes_on_for_longer_than_its_memory_is_large)
{
    struct rig r = small();
    struct seam_matcher *m = matcher(&r, "{\"type\":\"array\",\"items\":{"
                                         "\"type\":\"array\",\"items\":{"
                                         "\"type\":\"integer\"}}}");
    const char *text = "[1,2],", *end = "[]]";

    cr_assert_eq(seam_matcher_accept(m, seam_tokenizer_id(r.t, "[", 1), NULL),
                 1);
    for (int i = 0; i < 5000; i++)
        for (size_t k = 0; text[k]; k++)
            cr_assert_eq(seam_matcher_accept(
                             m, seam_tokenizer_id(r.t, text + k, 1), NULL),
                         1, "round %d", i);
    for (size_t k = 0; end[k]; k++)
        cr_assert_eq(
            seam_matcher_accept(m, seam_tokenizer_id(r.t, end + k, 1), NULL),
            1);
    cr_expect(seam_matcher_can_end(m));
    seam_matcher_free(m);
    rig_close(&r);
}

/* ---- One grammar, several threads ---------------------------------------- */

struct worker {
    const struct rig *r;
    struct seam_grammar *g;
    uint64_t seed;
    uint64_t sum; /* over all masks */
};

static void *work(void *arg)
{
    struct worker *w = arg;
    uint32_t n_words = seam_vocab_words(w->r->v);
    uint32_t *row = calloc(n_words, sizeof *row);
    struct seam_matcher *m = NULL;
    struct seam_buf out = { 0 };

    if (!seam_matcher_new(&m, w->g, NULL))
        for (int i = 0; i < 20; i++) {
            seam_buf_clear(&out);
            seam_matcher_reset(m);
            walk_random(m, w->r->t, row, &w->seed, 40, &out, NULL);
            for (size_t k = 0; k < out.n; k++)
                w->sum = w->sum * 31 + (unsigned char)out.p[k];
        }
    seam_buf_release(&out);
    seam_matcher_free(m);
    free(row);
    return NULL;
}

Test(grammar, is_shared_by_threads)
{
    struct rig r = nano();
    struct seam_grammar *g = compile(&r, "{\"type\":\"object\"}");
    struct seam_grammar *alone = compile(&r, "{\"type\":\"object\"}");
    struct worker w[4], one;
    pthread_t thread[4];

    for (uint64_t i = 0; i < 4; i++) {
        w[i] = (struct worker){ &r, g, i, 0 };
        cr_assert_eq(pthread_create(&thread[i], NULL, work, &w[i]), 0);
    }
    for (uint64_t i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    for (uint64_t i = 0; i < 4; i++) {
        one = (struct worker){ &r, alone, i, 0 };
        work(&one);
        cr_expect_eq(w[i].sum, one.sum, "thread %d", (int)i);
        cr_expect_neq(one.sum, 0);
    }
    seam_grammar_unref(g);
    seam_grammar_unref(alone);
    rig_close(&r);
}

/* ---- Vocabularies -------------------------------------------------------- */

Test(vocab, refuses_what_does_not_fit_the_logits)
{
    struct rig r = small();
    struct seam_vocab *v = NULL;
    struct seam_error err;
    int32_t stop = 1000000;

    cr_expect_eq(seam_vocab_new(&v, r.t, 10, NULL, 0, &err), SEAM_EINVAL);
    cr_expect_not_null(strstr(err.text, "width 10"));
    cr_expect_eq(seam_vocab_new(&v, r.t, r.n_rows, &stop, 1, &err),
                 SEAM_EINVAL);
    cr_expect_not_null(strstr(err.text, "1000000"));
    cr_expect_null(v);
    seam_vocab_free(NULL);
    rig_close(&r);
}

Test(vocab, takes_stop_tokens_out_of_the_text)
{
    struct rig r = small();
    int32_t stop[2] = { r.stop, seam_tokenizer_id(r.t, "hello", 5) };
    struct seam_grammar *g = NULL;
    struct seam_matcher *m = NULL;
    struct seam_vocab *v = NULL;
    json_t *schema = json_of("{\"type\":\"string\"}");

    cr_assert_geq(stop[1], 0);
    cr_assert_eq(seam_vocab_new(&v, r.t, r.n_rows, stop, 2, NULL), 0);
    cr_assert_eq(seam_grammar_schema(&g, v, schema, "schema", NULL, NULL), 0);
    cr_assert_eq(seam_matcher_new(&m, g, NULL), 0);
    cr_assert_eq(seam_matcher_accept(m, seam_tokenizer_id(r.t, "\"", 1), NULL),
                 1);
    cr_expect_eq(seam_matcher_accept(m, stop[1], NULL), 0);
    cr_expect_eq(
        seam_matcher_accept(m, seam_tokenizer_id(r.t, "hell", 4), NULL), 1);
    cr_assert_eq(seam_matcher_accept(m, seam_tokenizer_id(r.t, "\"", 1), NULL),
                 1);
    cr_assert_eq(seam_matcher_mask(m, r.row, NULL), 0);
    cr_expect(allowed(r.row, stop[0]) && allowed(r.row, stop[1]));
    json_decref(schema);
    seam_matcher_free(m);
    seam_grammar_unref(g);
    seam_vocab_free(v);
    rig_close(&r);
}
