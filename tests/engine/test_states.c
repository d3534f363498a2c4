/* Rows and pages that somebody else had before (LS-1), and prompts that go on
 * from the middle of others (LS-2). */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/engine/impl.h"
#include "tests/engine/talk.h"

/* Sanitizers compute fewer of the same. */
#ifdef SEAM_TEST_QUICK
#define EVERY     30
#define N_LENGTHS 2
#else
#define EVERY     1
#define N_LENGTHS 5
#endif

static const char states_config[] =
    "{\"model\": {\"path\": \"%s/models/nano/w4a16\", \"max_context\": 512},"
    " \"plugin_dir\": \"%s\","
    " \"engine\": {\"threads\": 1, \"page_tokens\": 16, \"max_seqs\": 2,"
    "              \"max_step_tokens\": 64, \"prefix_interval\": 16},"
    " \"plugins\": {"
    "  \"backend\": {\"name\": \"cpu\", \"unpinned\": true},"
    "  \"linear_attention\": {\"name\": \"kda\", \"unpinned\": true},"
    "  \"sparse_attention\": {\"name\": \"sparse_mla\", \"unpinned\": true},"
    "  \"moe\": {\"name\": \"moe_resident\", \"unpinned\": true},"
    "  \"parser\": {\"name\": \"none\", \"unpinned\": true}}}";

enum { GEN = 6 };

struct states {
    struct seam_config config;
    struct seam_log log;
    struct seam_engine *e;
};

static void states_open(struct states *s, const char *prefix_bytes)
{
    static char *no_env[] = { NULL };
    struct seam_flag flag = { "engine.prefix_bytes", prefix_bytes };
    struct seam_engine_opts o = { .config = &s->config, .log = &s->log };
    struct seam_error err;
    char text[4096];
    int n = snprintf(text, sizeof text, states_config, SEAM_TEST_SOURCE_DIR,
                     SEAM_TEST_PLUGIN_DIR);

    *s = (struct states){ .log = { .fd = STDERR_FILENO,
                                   .level = SEAM_LOG_ERROR } };
    cr_assert_eq(seam_config_parse(&s->config, "states.json", text, (size_t)n,
                                   no_env, &flag, 1, &err),
                 0, "%s", err.text);
    cr_assert_eq(seam_engine_start(&s->e, &o, &err), 0, "%s", err.text);
    cr_assert_eq(seam_engine_wait_loaded(s->e, -1, &err), SEAM_ENGINE_READY,
                 "%s", err.text);
}

static void states_close(struct states *s)
{
    seam_engine_stop(s->e);
    seam_engine_free(s->e);
    seam_config_release(&s->config);
}

static struct seam_gen *submit(struct states *s, const int32_t *prompt,
                               uint32_t n, uint32_t max, int32_t priority)
{
    struct seam_gen_params p = {
        .prompt = prompt,
        .n_prompt = n,
        .max_tokens = max,
        .top_p = 1,
        .repetition = 1,
        .ignore_eos = true,
        .want_logprobs = true,
        .priority = priority,
    };
    struct seam_error err;
    struct seam_gen *g = NULL;

    cr_assert_eq(seam_gen_submit(s->e, &p, &g, &err), 0, "%s", err.text);
    return g;
}

static uint32_t finish(struct seam_gen *g, struct seam_gen_token *t,
                       uint32_t cap, struct seam_gen_info *info)
{
    uint32_t n = gen_take_all(g, t, cap);

    seam_gen_info(g, info);
    seam_gen_free(g);
    return n;
}

/* Ids and log probabilities to the bit. */
static void expect_same(const struct seam_gen_token *a,
                        const struct seam_gen_token *b, uint32_t n,
                        const char *when, uint32_t what)
{
    for (uint32_t i = 0; i < n; i++) {
        cr_assert_eq(a[i].id, b[i].id, "%s %u, token %u: %d and %d", when, what,
                     i, a[i].id, b[i].id);
        cr_assert_eq(memcmp(&a[i].logprob, &b[i].logprob, sizeof(float)), 0,
                     "%s %u, token %u: logprob %.9g and %.9g", when, what, i,
                     (double)a[i].logprob, (double)b[i].logprob);
    }
}

static void draw(unsigned *seed, int32_t *v, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        v[i] = rand_r(seed) % 6000;
}

/* Wait until nothing runs: one more request, whose end comes after all that the
 * engine's thread did before. */
static void settle(struct states *s)
{
    static const int32_t one[] = { 1 };
    struct seam_gen_token t[1];
    struct seam_gen_info info;

    while (seam_engine_active(s->e)) /* the test's own limit ends it */
        ;
    finish(submit(s, one, 1, 1, 0), t, 1, &info);
    while (seam_engine_active(s->e))
        ;
}

/* Make NaN of every byte that a sequence may be given: rows with all their
 * copies, and pages.  Nothing may be read of it before it was written. */
static void poison(struct states *s)
{
    struct seam_runtime *rt = s->e->rt;

    settle(s);
    pthread_mutex_lock(&s->e->lock);
    for (int r = FIRST_BLOCK; r <= LAST_BLOCK; r++) {
        struct runtime_grant *g = &rt->memory->block[r];

        for (uint32_t l = 0; l < g->n_layers; l++) {
            if (g->state)
                memset(g->state[l], 0xff,
                       g->grant.state_stride * rt->needs[r].state_copies *
                           rt->n_rows);
            for (uint32_t p = 0; p < rt->needs[r].n_planes; p++)
                memset(g->plane[p][l], 0xff,
                       g->grant.page_stride[p] * rt->n_pages);
        }
    }
    pthread_mutex_unlock(&s->e->lock);
}

/* ---- LS-1 ---------------------------------------------------------------- */

/* B is shorter than the window of the convolution, as long as a page and more,
 * after A had the row to its end, left in its prompt, or was pushed out. */
Test(ls1, nothing_is_left_of_who_had_the_row_before)
{
    static const uint32_t lengths[] = { 2, 17, 1, 3, 4 };
    enum { N = N_LENGTHS };
    static struct seam_gen_token fresh[N][GEN], got[GEN], t[64];
    int32_t a[300], b[N][17];
    struct seam_gen_info info;
    unsigned seed = 11;
    struct states s;

    draw(&seed, a, 300);
    for (uint32_t i = 0; i < N; i++)
        draw(&seed, b[i], lengths[i]);
    for (uint32_t i = 0; i < N; i++) { /* each in an engine that is new */
        states_open(&s, "0");
        cr_assert_eq(
            finish(submit(&s, b[i], lengths[i], GEN, 0), fresh[i], GEN, &info),
            GEN);
        states_close(&s);
    }
    states_open(&s, "0");
    for (uint32_t i = 0; i < N; i++)
        for (int how = 0; how < 4; how++) {
            static const char *const name[] = { "after the end",
                                                "after leaving in the prompt",
                                                "after being pushed out",
                                                "beside another" };
            struct seam_gen *g[4] = { NULL };
            bool ended;

            if (how == 0) {
                finish(submit(&s, a, 300, 8, 0), t, 64, &info);
            } else if (how == 1) {
                /* It is in its prompt once the short one beside it has a
                 * token. */
                g[0] = submit(&s, a, 300, 64, 0);
                g[1] = submit(&s, a + 1, 2, 1, 0);
                finish(g[1], t, 64, &info);
                seam_gen_free(g[0]);
            } else if (how == 2) {
                for (int k = 0; k < 2; k++) {
                    g[k] = submit(&s, a + 9 * k, 60, 12, 5);
                    cr_assert_eq(seam_gen_take(g[k], -1, t, 1, &ended), 1);
                }
                g[2] = submit(&s, a + 40, 30, 4, -5);
                finish(g[2], t, 64, &info);
                for (int k = 0; k < 2; k++)
                    finish(g[k], t, 64, &info);
            }
            poison(&s);
            if (how == 3)
                g[3] = submit(&s, a, 100, 20, 0);
            cr_assert_eq(
                finish(submit(&s, b[i], lengths[i], GEN, 0), got, GEN, &info),
                GEN, "%s", info.err.text);
            expect_same(got, fresh[i], GEN, name[how], lengths[i]);
            if (g[3]) {
                cr_expect_eq(finish(g[3], t, 64, &info), 20, "%s",
                             info.err.text);
                cr_expect_eq(info.end, SEAM_GEN_LENGTH);
            }
        }
    states_close(&s);
}

/* ---- LS-2 ---------------------------------------------------------------- */

/* Prompt P with a snapshot every 16 tokens; then its first k tokens and 20 of
 * others, cold and warm; then the same once half the snapshots are gone. */
Test(ls2, a_prefix_of_any_length_gives_what_the_cold_one_gives)
{
    static struct seam_gen_token cold_out[GEN], warm_out[GEN];
    int32_t p[100], ask[120];
    struct seam_gen_info info;
    struct states cold, warm;
    uint64_t cached = 0;
    unsigned seed = 5;

    states_open(&cold, "0");
    states_open(&warm, "64000000");
    draw(&seed, p, 100);
    finish(submit(&warm, p, 100, GEN, 0), warm_out, GEN, &info);
    for (int round = 0; round < 2; round++) {
        for (uint32_t k = 0; k <= 100; k += EVERY) {
            memcpy(ask, p, k * sizeof *ask);
            draw(&seed, ask + k, 20);
            finish(submit(&cold, ask, k + 20, GEN, 0), cold_out, GEN, &info);
            cr_expect_eq(info.n_cached, 0);
            finish(submit(&warm, ask, k + 20, GEN, 0), warm_out, GEN, &info);
            expect_same(warm_out, cold_out, GEN, "prefix of", k);
            cr_expect(info.n_cached <= k, "%u cached of %u in common",
                      info.n_cached, k);
            cr_expect(info.n_cached % 16 == 0 || info.n_cached == 100,
                      "%u cached: no place of a snapshot", info.n_cached);
            cached += info.n_cached;
        }
        settle(&warm);
        pthread_mutex_lock(&warm.e->lock);
        if (!round) {
            struct seam_prefix_stats st;
            uint64_t half;

            seam_prefix_stats(warm.e->prefix, &st);
            half = st.n_snapshots / 2;
            while (st.n_snapshots > half && seam_prefix_evict(warm.e->prefix))
                seam_prefix_stats(warm.e->prefix, &st);
        }
        pthread_mutex_unlock(&warm.e->lock);
    }
    cr_expect_gt(cached, 0);
    states_close(&cold);
    states_close(&warm);
}

/* One token differs just before, at and behind a snapshot; and two that share
 * 40 tokens take turns. */
Test(ls2, an_edited_token_and_turns_of_two_are_not_mixed_up)
{
    static struct seam_gen_token cold_out[GEN], warm_out[GEN];
    int32_t p[2][60], ask[60];
    struct seam_gen_info info;
    struct states cold, warm;
    unsigned seed = 6;

    states_open(&cold, "0");
    states_open(&warm, "64000000");
    draw(&seed, p[0], 60);
    draw(&seed, p[1], 60);
    memcpy(p[1], p[0], 40 * sizeof p[0][0]);
    finish(submit(&warm, p[0], 60, GEN, 0), warm_out, GEN, &info);
    for (uint32_t at = 15; at <= 17; at++) {
        memcpy(ask, p[0], sizeof ask);
        ask[at] = (ask[at] + 1) % 6000;
        finish(submit(&cold, ask, 60, GEN, 0), cold_out, GEN, &info);
        finish(submit(&warm, ask, 60, GEN, 0), warm_out, GEN, &info);
        cr_expect(info.n_cached <= at, "%u cached, edited at %u", info.n_cached,
                  at);
        expect_same(warm_out, cold_out, GEN, "edited at", at);
    }
    for (uint32_t turn = 0; turn < 6; turn++) {
        uint32_t n = 42 + 3 * turn;

        finish(submit(&cold, p[turn % 2], n, GEN, 0), cold_out, GEN, &info);
        finish(submit(&warm, p[turn % 2], n, GEN, 0), warm_out, GEN, &info);
        expect_same(warm_out, cold_out, GEN, "turn", turn);
    }
    states_close(&cold);
    states_close(&warm);
}
