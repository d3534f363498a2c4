/* A hit in the prefix cache, in memory or on disk, gives exactly the tokens of
 * a cold run. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/engine/talk.h"
#include "tests/support/folder.h"

/* Sanitizers, and builds for debugging, compute fewer of the same. */
#ifdef SEAM_TEST_QUICK
enum { N_TREES = 8, RESTART_EVERY = 3 };
#elif !defined(NDEBUG)
enum { N_TREES = 40, RESTART_EVERY = 8 };
#else
enum { N_TREES = 200, RESTART_EVERY = 25 };
#endif

static void open_or_fail(struct talker *t, const struct seam_flag *f, size_t n)
{
    struct seam_error err;

    cr_assert(talker_open(t, f, n, &err), "%s", err.text);
}

/* Each request goes on from the end of an earlier one, or from the middle of
 * it, with some new tokens.  Three engines answer: one without a cache, one
 * with it in memory, and one whose memory holds four snapshots, with the rest
 * on disk, which is started again now and then. */
Test(conversations, cached_in_memory_or_on_disk_equal_cold_ones)
{
    enum { MAX = 180, GEN = 8 };
    static int32_t known[N_TREES][MAX + GEN];
    static uint32_t n_known[N_TREES];
    char dir[] = "/tmp/seam-prefix-XXXXXX";
    const struct seam_flag cold_flags[] = { { "engine.prefix_bytes", "0" } };
    const struct seam_flag warm_flags[] = {
        { "engine.prefix_interval", "32" },
        { "engine.prefix_bytes", "20000000" },
    };
    const struct seam_flag disk_flags[] = {
        { "engine.prefix_interval", "32" },
        { "engine.prefix_bytes", "2000000" },
        { "engine.prefix_dir", dir },
        { "engine.prefix_disk_bytes", "60000000" },
    };
    static const char *const salt[] = { NULL, NULL, "one", "two" };
    uint64_t cached[3] = { 0 }, disk_hits = 0;
    struct talker t[3];
    unsigned seed = 99;

    cr_assert_not_null(mkdtemp(dir));
    open_or_fail(&t[0], cold_flags, 1);
    open_or_fail(&t[1], warm_flags, 2);
    open_or_fail(&t[2], disk_flags, 4);
    for (int i = 0; i < N_TREES; i++) {
        int32_t out[3][GEN];
        uint32_t n = 0;

        if (i % RESTART_EVERY == RESTART_EVERY - 1) {
            disk_hits += seam_engine_stats(t[2].e)->disk_hits;
            talker_close(&t[2]);
            open_or_fail(&t[2], disk_flags, 4);
        }
        if (i) {
            int from = rand_r(&seed) % i;

            n = rand_r(&seed) % 3 ? n_known[from]
                                  : (uint32_t)rand_r(&seed) % n_known[from];
            n = n < MAX - 60 ? n : MAX - 60;
            memcpy(known[i], known[from], n * sizeof(int32_t));
        }
        for (int k = 5 + rand_r(&seed) % 50; k; k--)
            known[i][n++] = k % 9 ? rand_r(&seed) % 6000 : 6107;
        for (int k = 0; k < 3; k++) {
            uint32_t c = 0;

            cr_assert(talker_ask(&t[k], known[i], n, salt[i % 4], i % 2 ? 1 : 0,
                                 (uint64_t)i, GEN, out[k], &c));
            cr_expect_lt(c, n);
            cached[k] += c;
            for (int j = 0; j < GEN; j++)
                cr_assert_eq(out[k][j], out[0][j],
                             "conversation %d, token %d: %d cold but %d after "
                             "%u %s",
                             i, j, out[0][j], out[k][j], c,
                             k == 1 ? "cached in memory" : "cached on disk");
        }
        memcpy(known[i] + n, out[0], sizeof out[0]);
        n_known[i] = n + GEN;
    }
    disk_hits += seam_engine_stats(t[2].e)->disk_hits;
    printf("conversations: %llu tokens cached in memory; %llu with the disk, "
           "%llu of them from there\n",
           (unsigned long long)cached[1], (unsigned long long)cached[2],
           (unsigned long long)disk_hits);
    cr_expect_eq(cached[0], 0);
    cr_expect_gt(cached[1], N_TREES * 12);
    cr_expect_gt(disk_hits, N_TREES * 5);
    for (int k = 0; k < 3; k++)
        talker_close(&t[k]);
    folder_remove(dir);
}

/* Several at once, all of whom wait for the disk, and one who does not. */
Test(conversations, loads_do_not_hold_up_each_other)
{
    enum { N = 8, LEN = 200, GEN = 8 };
    static int32_t prompt[N][LEN], want[N][GEN], got[GEN];
    char dir[] = "/tmp/seam-prefix-XXXXXX";
    const struct seam_flag flags[] = {
        { "engine.prefix_dir", dir },
        { "engine.prefix_bytes", "20000000" },
    };
    struct seam_gen *g[N];
    struct talker t;
    uint32_t c;

    cr_assert_not_null(mkdtemp(dir));
    open_or_fail(&t, flags, 2);
    for (int i = 0; i < N; i++) {
        for (int j = 0; j < LEN; j++)
            prompt[i][j] = (71 * i + 13 * j) % 6000;
        /* The first leaves the snapshot that the others go on from. */
        cr_assert(
            talker_ask(&t, prompt[i], LEN - 5, NULL, 0, 0, GEN, want[i], &c));
        cr_assert(talker_ask(&t, prompt[i], LEN, NULL, 0, 0, GEN, want[i], &c));
    }
    talker_close(&t);
    open_or_fail(&t, flags, 2);
    for (int i = 0; i < N; i++) {
        struct seam_gen_params p = {
            .prompt = prompt[i],
            .n_prompt = LEN - (uint32_t)i % 2 * 6, /* odd ones find none */
            .max_tokens = GEN,
            .top_p = 1,
            .repetition = 1,
            .ignore_eos = true,
        };
        struct seam_error err;

        cr_assert_eq(seam_gen_submit(t.e, &p, &g[i], &err), 0, "%s", err.text);
        if (i == 6) /* one leaves while it may be waiting */
            seam_gen_cancel(g[i]);
    }
    for (int i = 0; i < N; i++) {
        struct seam_gen_token token[GEN];
        uint32_t n = 0;
        bool ended = false;

        while (!ended)
            n += seam_gen_take(g[i], -1, token + n, GEN - n, &ended);
        for (uint32_t j = 0; j < n && i % 2 == 0; j++)
            cr_assert_eq(token[j].id, want[i][j], "request %d, token %u", i, j);
        cr_expect(n == GEN || i == 6);
        seam_gen_free(g[i]);
    }
    cr_expect_geq(seam_engine_stats(t.e)->disk_hits, 3 * (LEN - 5));
    cr_assert(talker_ask(&t, prompt[0], LEN, "salt", 0, 0, GEN, got, &c));
    cr_expect_eq(c, 0, "%u tokens found with another salt", c);
    cr_expect(!memcmp(got, want[0], sizeof got));
    talker_close(&t);
    folder_remove(dir);
}

/* Another layout, another dtype, another model: nothing is taken over. */
Test(conversations, nothing_is_taken_from_other_settings)
{
    enum { LEN = 200, GEN = 6 };
    static int32_t prompt[LEN], out[GEN], again[GEN];
    char dir[] = "/tmp/seam-prefix-XXXXXX";
    struct seam_flag flags[] = {
        { "engine.prefix_dir", dir },
        { "plugins.sparse_attention.config", "{\"kv_dtype\": \"f32\"}" },
    };
    static const char *const config[] = { "{\"kv_dtype\": \"bf16\"}",
                                          "{\"kv_dtype\": \"fp8\"}" };
    struct seam_disk_stats s;
    struct talker t;
    uint32_t c;

    cr_assert_not_null(mkdtemp(dir));
    for (int j = 0; j < LEN; j++)
        prompt[j] = 31 * j % 6000;
    open_or_fail(&t, flags, 2);
    cr_assert(talker_ask(&t, prompt, LEN - 5, NULL, 0, 0, GEN, out, &c));
    cr_assert(talker_ask(&t, prompt, LEN, NULL, 0, 0, GEN, out, &c));
    talker_close(&t);
    for (int i = 0; i < 2; i++) {
        struct seam_flag other[] = { flags[0], { flags[1].key, config[i] } };

        open_or_fail(&t, other, 2);
        seam_engine_disk_stats(t.e, &s);
        cr_expect_gt(s.n_foreign, 0);
        cr_assert(talker_ask(&t, prompt, LEN, NULL, 0, 0, GEN, again, &c));
        cr_expect_eq(c, 0, "%u tokens of f32 planes with %s", c, config[i]);
        talker_close(&t);
    }
    open_or_fail(&t, flags, 2);
    cr_assert(talker_ask(&t, prompt, LEN, NULL, 0, 0, GEN, again, &c));
    cr_expect_gt(c, LEN / 2);
    cr_expect(!memcmp(out, again, sizeof out));
    talker_close(&t);
    folder_remove(dir);
}
