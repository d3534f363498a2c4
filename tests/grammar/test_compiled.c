/* Compiled grammars that are remembered. */
#include <pthread.h>
#include <stdio.h>

#include "core/grammar/compiled.h"
#include "rig.h"

#ifdef SEAM_TEST_QUICK
#define N_ROUNDS 4
#else
#define N_ROUNDS 20
#endif

static struct seam_compiled *compiled(const struct rig *r, uint64_t bytes)
{
    struct seam_compiled *c;

    cr_assert_eq(seam_compiled_new(&c, r->v, bytes, NULL), 0);
    return c;
}

static struct seam_grammar *ask(struct seam_compiled *c, const char *schema,
                                uint32_t flags)
{
    json_t *v = json_of(schema);
    struct seam_grammar *g = NULL;
    struct seam_error err;

    cr_assert_eq(seam_compiled_schema(c, &g, v, "schema", flags, &err), 0, "%s",
                 err.text);
    json_decref(v);
    return g;
}

static struct seam_compiled_stats stats_of(struct seam_compiled *c)
{
    struct seam_compiled_stats s;

    seam_compiled_stats(c, &s);
    return s;
}

Test(compiled, the_same_schema_is_compiled_once)
{
    static const char schema[] =
        "{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}}}";
    struct rig r = small();
    struct seam_compiled *c = compiled(&r, 1 << 24);
    struct seam_grammar *g = ask(c, schema, 0), *same = ask(c, schema, 0);
    struct seam_grammar *object, *again;

    cr_expect_eq(g, same);
    cr_expect_eq(stats_of(c).misses, 1);
    cr_expect_eq(stats_of(c).hits, 1);
    cr_expect_eq(stats_of(c).n_grammars, 1);
    cr_expect_gt(stats_of(c).bytes, 1000);
    cr_assert_eq(seam_compiled_object(c, &object, 0, NULL), 0);
    cr_assert_eq(seam_compiled_object(c, &again, 0, NULL), 0);
    cr_expect_eq(object, again);
    cr_expect_neq(object, g);
    cr_expect_eq(stats_of(c).misses, 2);
    seam_compiled_free(c);
    seam_grammar_unref(g);
    seam_grammar_unref(same);
    seam_grammar_unref(object);
    seam_grammar_unref(again);
    rig_close(&r);
}

Test(compiled, what_differs_in_order_options_or_schemas_is_another)
{
    static const char text[] = "root ::= @a";
    struct rig r = small();
    struct seam_compiled *c = compiled(&r, 1 << 24);
    json_t *v[2] = { json_of("{\"const\":1}"), json_of("{\"const\":2}") };
    struct seam_grammar_import import[3] = {
        { .name = "a", .schema = v[0], .where = "x" },
        { .name = "a", .schema = v[1], .where = "x" },
        { .name = "a", .schema = v[0], .where = "y" }
    };
    struct seam_grammar *g[8] = {
        ask(c, "{\"properties\":{\"a\":{},\"b\":{}}}", 0),
        ask(c, "{\"properties\":{\"b\":{},\"a\":{}}}", 0),
        ask(c, "{\"properties\":{\"a\":{},\"b\":{}}}", SEAM_GRAMMAR_COMPACT),
    };

    for (int i = 0; i < 3; i++)
        cr_assert_eq(seam_compiled_text(c, &g[3 + i], text, strlen(text), "t",
                                        &import[i], 1, 0, NULL),
                     0);
    cr_assert_eq(seam_compiled_text(c, &g[6], "root ::= \"a\"", 12, "t", NULL,
                                    0, 0, NULL),
                 0);
    cr_assert_eq(seam_compiled_text(c, &g[7], "root ::= \"b\"", 12, "t", NULL,
                                    0, 0, NULL),
                 0);
    /* Where a message would point does not matter. */
    cr_expect_eq(g[3], g[5]);
    for (int i = 0; i < 8; i++)
        for (int k = 0; k < i; k++)
            cr_expect(g[i] != g[k] || (i == 5 && k == 3), "%d and %d", k, i);
    cr_expect_eq(stats_of(c).misses, 7);
    cr_expect_eq(stats_of(c).hits, 1);
    for (int i = 0; i < 8; i++)
        seam_grammar_unref(g[i]);
    json_decref(v[0]);
    json_decref(v[1]);
    seam_compiled_free(c);
    rig_close(&r);
}

Test(compiled, a_refusal_is_not_remembered_and_names_its_own_place)
{
    struct rig r = small();
    struct seam_compiled *c = compiled(&r, 1 << 24);
    json_t *v = json_of("{\"if\":{}}");

    for (int i = 0; i < 3; i++) {
        struct seam_grammar *g = NULL;
        struct seam_error err;
        char where[16];

        snprintf(where, sizeof where, "place%d", i);
        cr_expect_eq(seam_compiled_schema(c, &g, v, where, 0, &err),
                     SEAM_EDATA);
        cr_expect_null(g);
        cr_expect_eq(strncmp(err.text, where, strlen(where)), 0, "%s",
                     err.text);
        cr_expect_eq(stats_of(c).n_grammars, 0);
    }
    cr_expect_eq(stats_of(c).misses, 3);
    json_decref(v);
    seam_compiled_free(c);
    rig_close(&r);
}

Test(compiled, drops_what_was_not_asked_for_longest)
{
    struct rig r = small();
    struct seam_compiled *c = compiled(&r, 1 << 24);
    struct seam_grammar *first = ask(c, "{\"const\":0}", 0), *g;
    struct seam_matcher *m;
    uint64_t one = stats_of(c).bytes;
    char schema[32];

    seam_compiled_free(c);
    c = compiled(&r, 5 * one + one / 2);
    seam_grammar_unref(ask(c, "{\"const\":100}", 0));
    for (int i = 101; i < 140; i++) {
        snprintf(schema, sizeof schema, "{\"const\":%d}", i);
        seam_grammar_unref(ask(c, schema, 0));
        seam_grammar_unref(ask(c, "{\"const\":100}", 0)); /* stays */
        cr_expect_leq(stats_of(c).bytes, 5 * one + one / 2);
    }
    cr_expect_eq(stats_of(c).misses, 40);
    cr_expect_eq(stats_of(c).hits, 39);
    cr_expect_gt(stats_of(c).evictions, 30);
    cr_expect_geq(stats_of(c).n_grammars, 3);
    /* What was dropped is compiled anew; who uses it keeps it. */
    g = ask(c, "{\"const\":101}", 0);
    cr_expect_eq(stats_of(c).misses, 41);
    seam_compiled_free(c);
    cr_assert_eq(seam_matcher_new(&m, g, NULL), 0);
    check_masks(&r, m, "dropped", 1, 20);
    seam_matcher_free(m);
    seam_grammar_unref(g);
    seam_grammar_unref(first);
    rig_close(&r);
}

Test(compiled, without_memory_everything_is_compiled)
{
    struct rig r = small();
    struct seam_compiled *c = compiled(&r, 0);

    for (int i = 0; i < 3; i++)
        seam_grammar_unref(ask(c, "{\"type\":\"integer\"}", 0));
    cr_expect_eq(stats_of(c).misses, 3);
    cr_expect_eq(stats_of(c).n_grammars, 0);
    cr_expect_eq(stats_of(c).bytes, 0);
    seam_compiled_free(c);
    rig_close(&r);
}

/* ---- Threads ------------------------------------------------------------- */

enum { N_THREADS = 6, N_KINDS = 5 };

struct worker {
    pthread_t thread;
    const struct rig *r;
    struct seam_compiled *c;
    uint64_t seed;
    struct seam_grammar *g[N_ROUNDS];
    int rc;
};

/* Ask, and follow each grammar along a random word. */
static void *work(void *ctx)
{
    struct worker *w = ctx;
    uint32_t *row = calloc(seam_vocab_words(w->r->v), sizeof *row);

    for (int i = 0; i < N_ROUNDS && !w->rc; i++) {
        struct seam_matcher *m = NULL;
        char schema[96];
        json_t *v;

        snprintf(schema, sizeof schema,
                 "{\"type\":\"string\",\"pattern\":\"^[a-%c]{1,40}-?$\"}",
                 (char)('e' + i % N_KINDS));
        v = json_loads(schema, 0, NULL);
        w->rc = seam_compiled_schema(w->c, &w->g[i], v, "schema", 0, NULL);
        json_decref(v);
        if (!w->rc)
            w->rc = seam_matcher_new(&m, w->g[i], NULL);
        for (int k = 0; k < 12 && !w->rc && !seam_matcher_ended(m); k++) {
            int32_t id = (int32_t)(walk_random_u64(&w->seed) % w->r->n_rows);

            w->rc = seam_matcher_mask(m, row, NULL);
            while (!w->rc && !allowed(row, id))
                id = (id + 1) % (int32_t)w->r->n_rows;
            if (!w->rc && seam_matcher_accept(m, id, NULL) != 1)
                w->rc = SEAM_EDATA;
        }
        seam_matcher_free(m);
    }
    free(row);
    return NULL;
}

Test(compiled, many_threads_share_what_one_of_them_compiles, .timeout = 600)
{
    static struct worker worker[N_THREADS];
    struct rig r = small();
    struct seam_compiled *c = compiled(&r, 1 << 24);

    for (int i = 0; i < N_THREADS; i++) {
        worker[i] =
            (struct worker){ .r = &r, .c = c, .seed = 77 + (uint64_t)i };
        cr_assert_eq(pthread_create(&worker[i].thread, NULL, work, &worker[i]),
                     0);
    }
    for (int i = 0; i < N_THREADS; i++)
        pthread_join(worker[i].thread, NULL);
    for (int i = 0; i < N_THREADS; i++) {
        cr_expect_eq(worker[i].rc, 0, "thread %d: %d", i, worker[i].rc);
        for (int k = 0; k < N_ROUNDS; k++) {
            cr_expect_eq(worker[i].g[k], worker[0].g[k % N_KINDS]);
            seam_grammar_unref(worker[i].g[k]);
        }
    }
    cr_expect_eq(stats_of(c).misses, N_ROUNDS < N_KINDS ? N_ROUNDS : N_KINDS);
    cr_expect_eq(stats_of(c).hits + stats_of(c).misses, N_THREADS * N_ROUNDS);
    seam_compiled_free(c);
    rig_close(&r);
}

/* The same with room for two: evicted by one thread while others use them. */
Test(compiled, threads_do_not_mind_what_others_drop, .timeout = 600)
{
    static struct worker worker[N_THREADS];
    struct rig r = small();
    struct seam_compiled *c = compiled(&r, 1 << 24);
    uint64_t one;

    seam_grammar_unref(
        ask(c, "{\"type\":\"string\",\"pattern\":\"^[a-e]{1,40}-?$\"}", 0));
    one = stats_of(c).bytes;
    seam_compiled_free(c);
    c = compiled(&r, 2 * one + one / 2);
    for (int i = 0; i < N_THREADS; i++) {
        worker[i] =
            (struct worker){ .r = &r, .c = c, .seed = 99 + (uint64_t)i };
        cr_assert_eq(pthread_create(&worker[i].thread, NULL, work, &worker[i]),
                     0);
    }
    for (int i = 0; i < N_THREADS; i++)
        pthread_join(worker[i].thread, NULL);
    for (int i = 0; i < N_THREADS; i++) {
        cr_expect_eq(worker[i].rc, 0, "thread %d: %d", i, worker[i].rc);
        for (int k = 0; k < N_ROUNDS; k++)
            seam_grammar_unref(worker[i].g[k]);
    }
    cr_expect_gt(stats_of(c).evictions, 0);
    cr_expect_leq(stats_of(c).n_grammars, 3);
    seam_compiled_free(c);
    rig_close(&r);
}
