/* Tokens do not depend on who else is there: the same prompts alone, and among
 * others that come, go, push in front and are pushed out. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/engine/engine.h"
#include "tests/engine/talk.h"

/* Sanitizers compute fewer of the same. */
#ifdef SEAM_TEST_QUICK
#define N_PROMPTS 8
#define N_OTHERS  16
#else
#define N_PROMPTS 20
#define N_OTHERS  60
#endif
#define LEN 48

static const char company_config[] =
    "{\"model\": {\"path\": \"%s/models/nano/w4a16\", \"max_context\": 384},"
    " \"plugin_dir\": \"%s\","
    " \"engine\": {\"threads\": 1, \"page_tokens\": 16, \"max_seqs\": 4,"
    "              \"max_step_tokens\": 48, \"cache_bytes\": 2774000},"
    " \"plugins\": {"
    "  \"backend\": {\"name\": \"cpu\", \"unpinned\": true},"
    "  \"linear_attention\": {\"name\": \"kda\", \"unpinned\": true},"
    "  \"sparse_attention\": {\"name\": \"sparse_mla\", \"unpinned\": true},"
    "  \"moe\": {\"name\": \"moe_resident\", \"unpinned\": true},"
    "  \"parser\": {\"name\": \"none\", \"unpinned\": true}}}";

struct company {
    struct seam_config config;
    struct seam_log log;
    struct seam_engine *e;
};

static void company_open(struct company *c)
{
    static char *no_env[] = { NULL };
    struct seam_engine_opts o = { .config = &c->config, .log = &c->log };
    struct seam_error err;
    char text[4096];
    int n = snprintf(text, sizeof text, company_config, SEAM_TEST_SOURCE_DIR,
                     SEAM_TEST_PLUGIN_DIR);

    *c = (struct company){ .log = { .fd = STDERR_FILENO,
                                    .level = SEAM_LOG_ERROR } };
    cr_assert_eq(seam_config_parse(&c->config, "company.json", text, (size_t)n,
                                   no_env, NULL, 0, &err),
                 0, "%s", err.text);
    cr_assert_eq(seam_engine_start(&c->e, &o, &err), 0, "%s", err.text);
    cr_assert_eq(seam_engine_wait_loaded(c->e, -1, &err), SEAM_ENGINE_READY,
                 "%s", err.text);
}

static void company_close(struct company *c)
{
    seam_engine_stop(c->e);
    seam_engine_free(c->e);
    seam_config_release(&c->config);
}

static struct seam_gen *submit(struct company *c, const int32_t *prompt,
                               uint32_t n, uint32_t max, int32_t priority,
                               uint64_t tenant)
{
    struct seam_gen_params p = {
        .prompt = prompt,
        .n_prompt = n,
        .max_tokens = max,
        .top_p = 1,
        .repetition = 1,
        .ignore_eos = true,
        .priority = priority,
        .tenant = tenant,
    };
    struct seam_error err;
    struct seam_gen *g = NULL;

    cr_assert_eq(seam_gen_submit(c->e, &p, &g, &err), 0, "%s", err.text);
    return g;
}

static void draw_prompt(unsigned *seed, int32_t *prompt, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        prompt[i] = rand_r(seed) % 6000;
}

/* Random company: arrivals between tokens, five priorities, three tenants, a
 * cache too small for four, and every third of the others leaves. */
Test(company, the_same_prompts_alone_and_in_random_company_give_equal_tokens)
{
    static int32_t prompt[N_PROMPTS][200];
    static uint32_t n_prompt[N_PROMPTS];
    static struct seam_gen_token alone[N_PROMPTS][LEN], t[LEN + 1];
    struct seam_gen *g[N_PROMPTS], *other[N_OTHERS] = { NULL };
    unsigned seed = 20261129;
    uint64_t preempted;
    int n = 0, others = 0;
    struct company c;

    company_open(&c);
    for (int i = 0; i < N_PROMPTS; i++) {
        n_prompt[i] = 4 + (uint32_t)rand_r(&seed) % 190;
        draw_prompt(&seed, prompt[i], n_prompt[i]);
        g[0] = submit(&c, prompt[i], n_prompt[i], LEN, 0, 0);
        cr_assert_eq(gen_take_all(g[0], alone[i], LEN), LEN);
        seam_gen_free(g[0]);
    }
    while (n < N_PROMPTS || others < N_OTHERS) {
        int32_t priority = rand_r(&seed) % 5 - 2, text[150];
        uint64_t tenant = 1 + (uint64_t)rand_r(&seed) % 3;

        if (others == N_OTHERS || (n < N_PROMPTS && !(rand_r(&seed) % 4))) {
            g[n] = submit(&c, prompt[n], n_prompt[n], LEN, priority, tenant);
            n++;
            continue;
        }
        draw_prompt(&seed, text, 150);
        other[others] =
            submit(&c, text, 1 + (uint32_t)rand_r(&seed) % 150,
                   1 + (uint32_t)rand_r(&seed) % 60, priority, tenant);
        others++;
        if (rand_r(&seed) % 3 == 0) { /* one of them leaves, wherever it is */
            int k = rand_r(&seed) % others;

            seam_gen_free(other[k]);
            other[k] = NULL;
        } else if (n) { /* let something happen */
            bool ended;
            int k = rand_r(&seed) % others;

            if (other[k])
                seam_gen_take(other[k], -1, t, 1, &ended);
        }
    }
    for (int i = 0; i < N_PROMPTS; i++) {
        cr_assert_eq(gen_take_all(g[i], t, LEN), LEN);
        for (int j = 0; j < LEN; j++)
            cr_assert_eq(t[j].id, alone[i][j].id, "prompt %d, token %d", i, j);
        seam_gen_free(g[i]);
    }
    for (int i = 0; i < N_OTHERS; i++)
        seam_gen_free(other[i]);
    preempted = atomic_load(&seam_engine_stats(c.e)->preemptions);
    printf("company: %llu preemptions\n", (unsigned long long)preempted);
    cr_expect_gt(preempted, 0);
    company_close(&c);
}

/* All rows are taken by answers that can wait. */
Test(company, who_is_urgent_takes_the_row_of_who_is_not_and_gives_it_back)
{
    static struct seam_gen_token before[4][LEN], after[LEN], t[LEN];
    int32_t prompt[4][30];
    struct seam_gen_info info;
    struct seam_gen *g[4], *urgent;
    unsigned seed = 7;
    struct company c;

    company_open(&c);
    for (int i = 0; i < 4; i++) {
        draw_prompt(&seed, prompt[i], 30);
        g[0] = submit(&c, prompt[i], 30, LEN, 0, 0);
        cr_assert_eq(gen_take_all(g[0], before[i], LEN), LEN);
        seam_gen_free(g[0]);
    }
    for (int i = 0; i < 4; i++) {
        bool ended;

        g[i] = submit(&c, prompt[i], 30, LEN, 9, 0);
        /* It has a row. */
        cr_assert_eq(seam_gen_take(g[i], -1, after, 1, &ended), 1);
        cr_expect_eq(after[0].id, before[i][0].id);
    }
    urgent = submit(&c, prompt[0], 30, LEN, -9, 0);
    cr_assert_eq(gen_take_all(urgent, t, LEN), LEN);
    for (int j = 0; j < LEN; j++)
        cr_expect_eq(t[j].id, before[0][j].id);
    for (int i = 0; i < 4; i++) {
        uint32_t n = gen_take_all(g[i], after, LEN);

        cr_assert_eq(n, LEN - 1);
        for (uint32_t j = 0; j < n; j++)
            cr_expect_eq(after[j].id, before[i][j + 1].id);
        seam_gen_info(g[i], &info);
        cr_expect_eq(info.end, SEAM_GEN_LENGTH);
        seam_gen_free(g[i]);
    }
    seam_gen_free(urgent);
    company_close(&c);
}
