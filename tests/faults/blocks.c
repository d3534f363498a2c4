#include "tests/faults/blocks.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char blocks_text[] =
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

static const char *const plain[] = { "kda", "sparse_mla", "moe_resident" };

const char *const FAULTY[] = { "fault_linear", "fault_sparse", "fault_moe" };

void blocks_config(struct seam_config *c, int role, const char *fault)
{
    static char *no_env[] = { NULL };
    struct seam_error err;
    const char *name[3], *dir[3], *config[3];
    char text[4096], extra[512];
    int n;

    snprintf(extra, sizeof extra, ", \"config\": {%s}", fault);
    for (int r = 0; r < 3; r++) {
        name[r] = r == role ? FAULTY[r] : plain[r];
        dir[r] = r == role ? FAULT_DIR "/" : "";
        config[r] = r == role ? extra : "";
    }
    n = snprintf(text, sizeof text, blocks_text, SEAM_TEST_SOURCE_DIR,
                 SEAM_TEST_PLUGIN_DIR, name[0], dir[0], name[0], config[0],
                 name[1], dir[1], name[1], config[1], name[2], dir[2], name[2],
                 config[2]);
    cr_assert_eq(seam_config_parse(c, "faults.json", text, (size_t)n, no_env,
                                   NULL, 0, &err),
                 0, "%s", err.text);
}

enum seam_engine_state blocks_open(struct blocks *b, int role,
                                   const char *fault, struct seam_error *err)
{
    struct seam_engine_opts o = { .config = &b->config, .log = &b->log };

    *b = (struct blocks){ .log = { .fd = open("/dev/null", O_WRONLY),
                                   .level = SEAM_LOG_ERROR } };
    blocks_config(&b->config, role, fault);
    cr_assert_eq(seam_engine_start(&b->e, &o, err), 0, "%s", err->text);
    return seam_engine_wait_loaded(b->e, -1, err);
}

void blocks_close(struct blocks *b)
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

struct seam_gen *blocks_submit(struct blocks *b, int i)
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

uint32_t blocks_finish(struct seam_gen *g, int32_t *id,
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

void blocks_expect(int role, int32_t want[N][LEN])
{
    struct seam_gen_info info;
    struct seam_gen *g[N];
    struct seam_error err;
    struct blocks b;

    cr_assert_eq(blocks_open(&b, role, "", &err), SEAM_ENGINE_READY, "%s",
                 err.text);
#ifdef SEAM_TEST_QUICK /* what company does not change, as test_company shows */
    for (int i = 0; i < N; i++)
        g[i] = blocks_submit(&b, i);
    for (int i = 0; i < N; i++)
        cr_assert_eq(blocks_finish(g[i], want[i], &info), LEN);
#else
    for (int i = 0; i < N; i++) {
        g[i] = blocks_submit(&b, i);
        cr_assert_eq(blocks_finish(g[i], want[i], &info), LEN);
    }
#endif
    blocks_close(&b);
}

void blocks_same(const int32_t *got, uint32_t n, const int32_t *want, int i,
                 const char *when)
{
    for (uint32_t j = 0; j < n; j++)
        cr_assert_eq(got[j], want[j], "%s: request %d, token %u is %d, not %d",
                     when, i, j, got[j], want[j]);
}

void blocks_recovered(struct blocks *b, int32_t want[N][LEN])
{
    struct seam_gen *g[N];
    struct seam_gen_info info;
    int32_t got[LEN];

    cr_expect_eq(seam_engine_state(b->e), SEAM_ENGINE_READY);
    for (int i = 0; i < N; i++)
        g[i] = blocks_submit(b, i);
    for (int i = 0; i < N; i++) {
        cr_assert_eq(blocks_finish(g[i], got, &info), LEN, "%s", info.err.text);
        blocks_same(got, LEN, want[i], i, "afterwards");
    }
    cr_expect_eq(seam_engine_active(b->e), 0);
}
