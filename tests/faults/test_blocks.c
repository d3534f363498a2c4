/* Attention and experts that fail in every way there is: the requests they
 * touch end with an error that names plugin and layer, and all others get the
 * tokens of a run without a fault. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/faults/blocks.h"

/* ---- Errors -------------------------------------------------------------- */

/* The step in which request 2 comes to position 48, in its answer, fails.
 * Whoever is in that step is touched, and is told where it was. */
static void fails_in(int role, const char *kind, const char *text)
{
    static int32_t want[N][LEN];
    struct seam_gen *g[N];
    struct seam_gen_info info;
    struct seam_error err;
    struct blocks b;
    char fault[128], where[64];
    int n_failed = 0;

    blocks_expect(role, want);
    snprintf(fault, sizeof fault, "\"fault\":\"%s\",\"pos\":48,\"layer\":1",
             kind);
    cr_assert_eq(blocks_open(&b, role, fault, &err), SEAM_ENGINE_READY, "%s",
                 err.text);
    snprintf(where, sizeof where, "plugin %s, layer ", FAULTY[role]);
    for (int i = 0; i < N; i++)
        g[i] = blocks_submit(&b, i);
    for (int i = 0; i < N; i++) {
        int32_t got[LEN];
        uint32_t had = blocks_finish(g[i], got, &info);

        blocks_same(got, had, want[i], i, kind);
        if (info.end == SEAM_GEN_LENGTH) {
            cr_expect_eq(had, LEN);
            continue;
        }
        n_failed++;
        cr_expect_eq(info.end, SEAM_GEN_ERROR);
        cr_expect(!strncmp(info.err.text, where, strlen(where)), "%s",
                  info.err.text);
        cr_expect_not_null(strstr(info.err.text, text), "%s", info.err.text);
    }
    cr_expect_geq(n_failed, 1);
    blocks_recovered(&b, want);
    blocks_close(&b);
}

Test(blocks, a_failing_linear_attention_is_named_and_survived)
{
    fails_in(LINEAR, "fail", "told to fail");
}

#ifndef SEAM_TEST_QUICK /* of each kind and each role one is enough there */
Test(blocks, a_failing_sparse_attention_is_named_and_survived)
{
    fails_in(SPARSE, "fail", "told to fail");
}

Test(blocks, failing_experts_are_named_and_survived)
{
    fails_in(MOE, "fail", "told to fail");
}
#endif

Test(blocks, no_memory_in_forward_is_an_error_of_the_step)
{
    fails_in(MOE, "nomem", "told to have no memory");
}

/* The n-th call: one request alone, which fails, and then succeeds. */
Test(blocks, the_nth_call_fails_and_the_next_does_not)
{
    static int32_t want[N][LEN];
    struct seam_gen_info info;
    struct seam_error err;
    struct blocks b;
    int32_t got[LEN];

    blocks_expect(LINEAR, want);
    cr_assert_eq(blocks_open(&b, LINEAR, "\"fault\":\"fail\",\"call\":6", &err),
                 SEAM_ENGINE_READY);
    /* A prompt in one step, then a step a token: the sixth gives the sixth. */
    cr_expect_eq(blocks_finish(blocks_submit(&b, 0), got, &info), 5);
    cr_expect_eq(info.end, SEAM_GEN_ERROR);
    cr_expect(!strncmp(info.err.text, "plugin fault_linear, layer ", 27), "%s",
              info.err.text);
    blocks_same(got, 5, want[0], 0, "before the sixth");
    blocks_recovered(&b, want);
    blocks_close(&b);
}

/* ---- What is not finite -------------------------------------------------- */

/* One row: its request alone fails, whether in prefill or decode, and what it
 * wrote is never read again. */
static void not_finite(int role, const char *kind, int pos, int victim)
{
    static int32_t want[N][LEN];
    struct seam_gen *g[N];
    struct seam_gen_info info;
    struct seam_error err;
    struct blocks b;
    char fault[128], where[64];

    blocks_expect(role, want);
    snprintf(fault, sizeof fault, "\"fault\":\"%s\",\"pos\":%d,\"layer\":1",
             kind, pos);
    cr_assert_eq(blocks_open(&b, role, fault, &err), SEAM_ENGINE_READY, "%s",
                 err.text);
    snprintf(where, sizeof where, "plugin %s, layer ", FAULTY[role]);
    for (int i = 0; i < N; i++)
        g[i] = blocks_submit(&b, i);
    for (int i = 0; i < N; i++) {
        int32_t got[LEN];
        uint32_t had = blocks_finish(g[i], got, &info);

        blocks_same(got, had, want[i], i, kind);
        if (i != victim) {
            cr_expect_eq(info.end, SEAM_GEN_LENGTH, "request %d: %s", i,
                         info.err.text);
            cr_expect_eq(had, LEN);
            continue;
        }
        cr_expect_eq(info.end, SEAM_GEN_ERROR);
        cr_expect(!strncmp(info.err.text, where, strlen(where)), "%s",
                  info.err.text);
        cr_expect_not_null(strstr(info.err.text, "not finite"), "%s",
                           info.err.text);
    }
    blocks_recovered(&b, want);
    blocks_close(&b);
}

Test(blocks, a_nan_in_a_prompt_fails_this_request_alone)
{
    not_finite(LINEAR, "nan", 38, 2);
}

Test(blocks, a_nan_in_an_answer_fails_this_request_alone)
{
    not_finite(SPARSE, "nan", 47, 2);
}

Test(blocks, an_infinity_of_the_experts_fails_this_request_alone)
{
    not_finite(MOE, "inf", 50, 2);
}

/* ---- Writes past a grant ------------------------------------------------- */

static void past(int role, const char *what, const char *text)
{
    static int32_t want[N][LEN];
    struct seam_gen_info info;
    struct seam_error err;
    struct blocks b;
    char fault[128];
    int32_t got[LEN];

    blocks_expect(role, want);
    snprintf(fault, sizeof fault, "\"fault\":\"%s\",\"call\":3,\"layer\":1",
             what);
    cr_assert_eq(blocks_open(&b, role, fault, &err), SEAM_ENGINE_READY, "%s",
                 err.text);
    cr_expect_eq(blocks_finish(blocks_submit(&b, 0), got, &info), 2);
    cr_expect_eq(info.end, SEAM_GEN_ERROR);
    cr_expect_not_null(strstr(info.err.text, text), "%s", info.err.text);
    cr_expect_not_null(strstr(info.err.text, "16 bytes behind"), "%s",
                       info.err.text);
    blocks_recovered(&b, want);
    blocks_close(&b);
}

/* kda's second layer is the model's second, sparse_mla's is its eighth. */
Test(blocks, a_write_past_the_state_is_found)
{
    past(LINEAR, "state", "plugin fault_linear, layer 1: its state");
}

Test(blocks, a_write_past_a_plane_is_found)
{
    past(SPARSE, "plane", "plugin fault_sparse, layer 7: plane ");
}

Test(blocks, a_write_past_memory_of_its_own_is_found)
{
    past(MOE, "keep", "plugin fault_moe: the memory of its own");
}

Test(blocks, a_write_past_the_scratch_is_found)
{
    past(MOE, "scratch", "the scratch of a call");
}

/* ---- Slow and stuck ------------------------------------------------------ */

Test(blocks, a_hanging_plugin_is_named_until_it_goes_on)
{
    static int32_t want[N][LEN];
    struct seam_gen_info info;
    struct seam_error err;
    struct seam_gen *g;
    struct blocks b;
    char fault[128], where[96], byte;
    int32_t got[LEN];
    int tell[2], say[2];

    blocks_expect(MOE, want);
    cr_assert(!pipe(tell) && !pipe(say));
    snprintf(fault, sizeof fault,
             "\"fault\":\"hang\",\"call\":4,\"layer\":2,\"fd\":%d,\"say\":%d",
             tell[0], say[1]);
    cr_assert_eq(blocks_open(&b, MOE, fault, &err), SEAM_ENGINE_READY, "%s",
                 err.text);
    g = blocks_submit(&b, 0);
    cr_assert_eq(read(say[0], &byte, 1), 1); /* it hangs */
    while (!seam_engine_stalled(b.e)) /* bounded by the test's own limit */
        ;
    seam_engine_where(b.e, where, sizeof where);
    cr_expect(!strncmp(where, "plugin fault_moe, layer ", 24), "%s", where);
    cr_assert_eq(write(tell[1], "x", 1), 1);
    cr_expect_eq(blocks_finish(g, got, &info), LEN);
    cr_expect_eq(info.end, SEAM_GEN_LENGTH);
    blocks_same(got, LEN, want[0], 0, "after hanging");
    blocks_recovered(&b, want);
    blocks_close(&b);
    for (int i = 0; i < 2; i++) {
        close(tell[i]);
        close(say[i]);
    }
}

Test(blocks, slow_is_slow_and_nothing_else)
{
    static int32_t want[N][LEN];
    struct seam_gen_info info;
    struct seam_error err;
    struct blocks b;
    int32_t got[LEN];

    blocks_expect(LINEAR, want);
    cr_assert_eq(
        blocks_open(&b, LINEAR, "\"fault\":\"slow\",\"us\":1500", &err),
        SEAM_ENGINE_READY);
    cr_expect_eq(blocks_finish(blocks_submit(&b, 1), got, &info), LEN);
    blocks_same(got, LEN, want[1], 1, "slowly");
    blocks_close(&b);
}

/* ---- Create -------------------------------------------------------------- */

Test(blocks, what_cannot_be_made_stops_the_start_by_name)
{
    static const struct {
        const char *fault, *text;
    } bad[] = { { "create_fail", "told to fail" },
                { "create_nomem", "told to have no memory" } };

    for (int role = LINEAR; role <= MOE; role++)
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            struct seam_error err;
            struct blocks b;
            char fault[64];

            snprintf(fault, sizeof fault, "\"fault\":\"%s\"", bad[i].fault);
            cr_expect_eq(blocks_open(&b, role, fault, &err),
                         SEAM_ENGINE_FAILED);
            cr_expect_not_null(strstr(err.text, FAULTY[role]), "%s", err.text);
            cr_expect_not_null(strstr(err.text, bad[i].text), "%s", err.text);
            blocks_close(&b);
        }
}
