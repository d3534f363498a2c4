/* Attention and experts that fail in every way there is: the requests they
 * touch end with an error that names plugin and layer, and all others get the
 * tokens of a run without a fault. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/engine/engine.h"

enum { N = 3, LEN = 12 };

static const char blocks_config[] =
    "{\"model\": {\"path\": \"%s/models/nano/w4a16\", \"max_context\": 256},"
    " \"plugin_dir\": \"%s\", \"plugin_paths\": [\"" FAULT_DIR "\"],"
    " \"server\": {\"stall_timeout_ms\": 50},"
    " \"engine\": {\"threads\": 1, \"page_tokens\": 16, \"max_seqs\": 4,"
    "              \"max_step_tokens\": 64, \"guard_bands\": \"yes\"},"
    " \"plugins\": {"
    "  \"backend\": {\"name\": \"cpu\", \"unpinned\": true},"
    "  \"linear_attention\": {\"name\": \"%s\", \"unpinned\": true,"
    "                         \"file\": \"%s%s.so\"%s},"
    "  \"sparse_attention\": {\"name\": \"%s\", \"unpinned\": true,"
    "                         \"file\": \"%s%s.so\"%s},"
    "  \"moe\": {\"name\": \"%s\", \"unpinned\": true,"
    "            \"file\": \"%s%s.so\"%s},"
    "  \"parser\": {\"name\": \"none\", \"unpinned\": true}}}";

/* The roles of the blocks, and the plugins that fail in them. */
enum { LINEAR = 0, SPARSE = 1, MOE = 2 };
static const char *const plain[] = { "kda", "sparse_mla", "moe_resident" };
static const char *const faulty[] = { "fault_linear", "fault_sparse",
                                      "fault_moe" };

struct blocks {
    struct seam_config config;
    struct seam_log log;
    struct seam_engine *e;
};

/* One of the roles has its faulty plugin, with this configuration. */
static enum seam_engine_state blocks_open(struct blocks *b, int role,
                                          const char *fault,
                                          struct seam_error *err)
{
    static char *no_env[] = { NULL };
    struct seam_engine_opts o = { .config = &b->config, .log = &b->log };
    const char *name[3], *dir[3], *config[3];
    char text[4096], extra[512];
    int n;

    snprintf(extra, sizeof extra, ", \"config\": {%s}", fault);
    for (int r = 0; r < 3; r++) {
        name[r] = r == role ? faulty[r] : plain[r];
        dir[r] = r == role ? FAULT_DIR "/" : "";
        config[r] = r == role ? extra : "";
    }
    n = snprintf(text, sizeof text, blocks_config, SEAM_TEST_SOURCE_DIR,
                 SEAM_TEST_PLUGIN_DIR, name[0], dir[0], name[0], config[0],
                 name[1], dir[1], name[1], config[1], name[2], dir[2], name[2],
                 config[2]);
    *b = (struct blocks){ .log = { .fd = open("/dev/null", O_WRONLY),
                                   .level = SEAM_LOG_ERROR } };
    cr_assert_eq(seam_config_parse(&b->config, "faults.json", text, (size_t)n,
                                   no_env, NULL, 0, err),
                 0, "%s", err->text);
    cr_assert_eq(seam_engine_start(&b->e, &o, err), 0, "%s", err->text);
    return seam_engine_wait_loaded(b->e, -1, err);
}

static void blocks_close(struct blocks *b)
{
    seam_engine_stop(b->e);
    seam_engine_free(b->e);
    close(b->log.fd);
    seam_config_release(&b->config);
}

/* 10, 24 and 42 tokens, so that a position tells them apart: with their answers
 * the first two come to 34 at most. */
static uint32_t length(int i)
{
    return 10 + 14 * (uint32_t)i + (i == 2 ? 4 : 0);
}

static struct seam_gen *submit(struct blocks *b, int i)
{
    int32_t prompt[256];
    struct seam_gen_params p = {
        .prompt = prompt,
        .n_prompt = length(i),
        .max_tokens = LEN,
        .top_p = 1,
        .repetition = 1,
        .ignore_eos = true,
    };
    struct seam_error err;
    struct seam_gen *g = NULL;

    for (uint32_t j = 0; j < p.n_prompt; j++)
        prompt[j] = (int32_t)(1000 + 97 * (uint32_t)i + 31 * j) % 6000;
    cr_assert_eq(seam_gen_submit(b->e, &p, &g, &err), 0, "%s", err.text);
    return g;
}

static uint32_t finish(struct seam_gen *g, int32_t *id,
                       struct seam_gen_info *info)
{
    struct seam_gen_token t[LEN];
    bool ended = false;
    uint32_t n = 0;

    while (!ended)
        n += seam_gen_take(g, -1, t + n, LEN - n, &ended);
    for (uint32_t i = 0; i < n; i++)
        id[i] = t[i].id;
    seam_gen_info(g, info);
    seam_gen_free(g);
    return n;
}

/* What each request gets of the same plugins without a fault, alone. */
static void expect(int role, int32_t want[N][LEN])
{
    struct seam_gen_info info;
    struct seam_error err;
    struct blocks b;

    cr_assert_eq(blocks_open(&b, role, "", &err), SEAM_ENGINE_READY, "%s",
                 err.text);
    for (int i = 0; i < N; i++)
        cr_assert_eq(finish(submit(&b, i), want[i], &info), LEN);
    blocks_close(&b);
}

static void expect_tokens(const int32_t *got, uint32_t n, const int32_t *want,
                          int i, const char *when)
{
    for (uint32_t j = 0; j < n; j++)
        cr_assert_eq(got[j], want[j], "%s: request %d, token %u is %d, not %d",
                     when, i, j, got[j], want[j]);
}

/* After the fault the engine serves as before, from the same pages and rows. */
static void expect_recovered(struct blocks *b, int32_t want[N][LEN])
{
    struct seam_gen *g[N];
    struct seam_gen_info info;
    int32_t got[LEN];

    cr_expect_eq(seam_engine_state(b->e), SEAM_ENGINE_READY);
    for (int i = 0; i < N; i++)
        g[i] = submit(b, i);
    for (int i = 0; i < N; i++) {
        cr_assert_eq(finish(g[i], got, &info), LEN, "%s", info.err.text);
        expect_tokens(got, LEN, want[i], i, "afterwards");
    }
    cr_expect_eq(seam_engine_active(b->e), 0);
}

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

    expect(role, want);
    snprintf(fault, sizeof fault, "\"fault\":\"%s\",\"pos\":48,\"layer\":1",
             kind);
    cr_assert_eq(blocks_open(&b, role, fault, &err), SEAM_ENGINE_READY, "%s",
                 err.text);
    snprintf(where, sizeof where, "plugin %s, layer ", faulty[role]);
    for (int i = 0; i < N; i++)
        g[i] = submit(&b, i);
    for (int i = 0; i < N; i++) {
        int32_t got[LEN];
        uint32_t had = finish(g[i], got, &info);

        expect_tokens(got, had, want[i], i, kind);
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
    expect_recovered(&b, want);
    blocks_close(&b);
}

Test(blocks, a_failing_linear_attention_is_named_and_survived)
{
    fails_in(LINEAR, "fail", "told to fail");
}

Test(blocks, a_failing_sparse_attention_is_named_and_survived)
{
    fails_in(SPARSE, "fail", "told to fail");
}

Test(blocks, failing_experts_are_named_and_survived)
{
    fails_in(MOE, "fail", "told to fail");
}

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

    expect(LINEAR, want);
    cr_assert_eq(blocks_open(&b, LINEAR, "\"fault\":\"fail\",\"call\":6", &err),
                 SEAM_ENGINE_READY);
    /* A prompt in one step, then a step a token: the sixth gives the sixth. */
    cr_expect_eq(finish(submit(&b, 0), got, &info), 5);
    cr_expect_eq(info.end, SEAM_GEN_ERROR);
    cr_expect(!strncmp(info.err.text, "plugin fault_linear, layer ", 27), "%s",
              info.err.text);
    expect_tokens(got, 5, want[0], 0, "before the sixth");
    expect_recovered(&b, want);
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

    expect(role, want);
    snprintf(fault, sizeof fault, "\"fault\":\"%s\",\"pos\":%d,\"layer\":1",
             kind, pos);
    cr_assert_eq(blocks_open(&b, role, fault, &err), SEAM_ENGINE_READY, "%s",
                 err.text);
    snprintf(where, sizeof where, "plugin %s, layer ", faulty[role]);
    for (int i = 0; i < N; i++)
        g[i] = submit(&b, i);
    for (int i = 0; i < N; i++) {
        int32_t got[LEN];
        uint32_t had = finish(g[i], got, &info);

        expect_tokens(got, had, want[i], i, kind);
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
    expect_recovered(&b, want);
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

    expect(role, want);
    snprintf(fault, sizeof fault, "\"fault\":\"%s\",\"call\":3,\"layer\":1",
             what);
    cr_assert_eq(blocks_open(&b, role, fault, &err), SEAM_ENGINE_READY, "%s",
                 err.text);
    cr_expect_eq(finish(submit(&b, 0), got, &info), 2);
    cr_expect_eq(info.end, SEAM_GEN_ERROR);
    cr_expect_not_null(strstr(info.err.text, text), "%s", info.err.text);
    cr_expect_not_null(strstr(info.err.text, "16 bytes behind"), "%s",
                       info.err.text);
    expect_recovered(&b, want);
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

    expect(MOE, want);
    cr_assert(!pipe(tell) && !pipe(say));
    snprintf(fault, sizeof fault,
             "\"fault\":\"hang\",\"call\":4,\"layer\":2,\"fd\":%d,\"say\":%d",
             tell[0], say[1]);
    cr_assert_eq(blocks_open(&b, MOE, fault, &err), SEAM_ENGINE_READY, "%s",
                 err.text);
    g = submit(&b, 0);
    cr_assert_eq(read(say[0], &byte, 1), 1); /* it hangs */
    while (!seam_engine_stalled(b.e)) /* bounded by the test's own limit */
        ;
    seam_engine_where(b.e, where, sizeof where);
    cr_expect(!strncmp(where, "plugin fault_moe, layer ", 24), "%s", where);
    cr_assert_eq(write(tell[1], "x", 1), 1);
    cr_expect_eq(finish(g, got, &info), LEN);
    cr_expect_eq(info.end, SEAM_GEN_LENGTH);
    expect_tokens(got, LEN, want[0], 0, "after hanging");
    expect_recovered(&b, want);
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

    expect(LINEAR, want);
    cr_assert_eq(
        blocks_open(&b, LINEAR, "\"fault\":\"slow\",\"us\":1500", &err),
        SEAM_ENGINE_READY);
    cr_expect_eq(finish(submit(&b, 1), got, &info), LEN);
    expect_tokens(got, LEN, want[1], 1, "slowly");
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
            cr_expect_not_null(strstr(err.text, faulty[role]), "%s", err.text);
            cr_expect_not_null(strstr(err.text, bad[i].text), "%s", err.text);
            blocks_close(&b);
        }
}
