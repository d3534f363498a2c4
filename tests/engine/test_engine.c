/* The scheduler over the nano model: what a request gets does not depend on who
 * else is there, and every way to end is reported as what it is. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/engine/engine.h"
#include "tests/engine/talk.h"

/* Sanitizers compute fewer of the same. */
#ifdef SEAM_TEST_QUICK
#define N_COMPANY 8
#else
#define N_COMPANY 16
#endif

static const char engine_config[] =
    "{\"model\": {\"path\": \"%s/models/nano/w4a16\", \"max_context\": 512},"
    " \"plugin_dir\": \"%s\","
    " \"engine\": {\"threads\": 1, \"page_tokens\": 16, \"max_seqs\": 4,"
    "              \"max_step_tokens\": 64},"
    " \"plugins\": {"
    "  \"backend\": {\"name\": \"cpu\", \"unpinned\": true},"
    "  \"linear_attention\": {\"name\": \"kda\", \"unpinned\": true},"
    "  \"sparse_attention\": {\"name\": \"sparse_mla\", \"unpinned\": true},"
    "  \"moe\": {\"name\": \"moe_resident\", \"unpinned\": true},"
    "  \"parser\": {\"name\": \"none\", \"unpinned\": true}}}";

struct fixture {
    struct seam_config config;
    struct seam_log log;
    struct seam_engine *e;
    struct seam_ids prompt;
};

/* extra: settings that differ, or NULL. */
static void fixture_open(struct fixture *f, const struct seam_flag *extra,
                         size_t n_extra)
{
    static char *no_env[] = { NULL };
    struct seam_engine_opts o = { .config = &f->config, .log = &f->log };
    struct seam_error err;
    char text[4096];
    int n = snprintf(text, sizeof text, engine_config, SEAM_TEST_SOURCE_DIR,
                     SEAM_TEST_PLUGIN_DIR);

    *f = (struct fixture){ .log = { .fd = STDERR_FILENO,
                                    .level = SEAM_LOG_ERROR } };
    cr_assert_eq(seam_config_parse(&f->config, "engine.json", text, (size_t)n,
                                   no_env, extra, n_extra, &err),
                 0, "%s", err.text);
    cr_assert_eq(seam_engine_start(&f->e, &o, &err), 0, "%s", err.text);
    cr_assert_eq(seam_engine_wait_loaded(f->e, -1, &err), SEAM_ENGINE_READY,
                 "%s", err.text);
    cr_assert_eq(seam_tokenizer_encode(seam_engine_tokenizer(f->e),
                                       "The function returns", 20, true,
                                       &f->prompt, &err),
                 0);
}

static void fixture_close(struct fixture *f)
{
    seam_engine_stop(f->e);
    seam_engine_free(f->e);
    seam_ids_release(&f->prompt);
    seam_config_release(&f->config);
}

static struct seam_gen_params params(const struct fixture *f, uint32_t max)
{
    return (struct seam_gen_params){
        .prompt = f->prompt.v,
        .n_prompt = (uint32_t)f->prompt.n,
        .max_tokens = max,
        .top_p = 1,
        .repetition = 1,
        .ignore_eos = true,
    };
}

static struct seam_gen *submit(struct fixture *f,
                               const struct seam_gen_params *p)
{
    struct seam_error err;
    struct seam_gen *g = NULL;

    cr_assert_eq(seam_gen_submit(f->e, p, &g, &err), 0, "%s", err.text);
    return g;
}

static uint32_t generate(struct fixture *f, const struct seam_gen_params *p,
                         struct seam_gen_token *out, uint32_t cap,
                         struct seam_gen_info *info)
{
    struct seam_gen *g = submit(f, p);
    uint32_t n = gen_take_all(g, out, cap);

    seam_gen_info(g, info);
    seam_gen_free(g);
    return n;
}

Test(engine, ends_at_max_tokens_and_counts)
{
    struct fixture f;
    struct seam_gen_token t[8];
    struct seam_gen_info info;
    struct seam_gen_params p;

    fixture_open(&f, NULL, 0);
    p = params(&f, 5);
    cr_expect_eq(generate(&f, &p, t, 8, &info), 5);
    cr_expect_eq(info.end, SEAM_GEN_LENGTH);
    cr_expect_eq(info.n_generated, 5);
    cr_expect_eq(info.n_prompt, f.prompt.n);
    cr_expect(info.submitted_ns <= info.started_ns &&
              info.started_ns <= info.first_ns &&
              info.first_ns <= info.ended_ns);
    fixture_close(&f);
}

Test(engine, context_bounds_prompt_and_answer)
{
    struct fixture f;
    struct seam_gen_token *t = malloc(600 * sizeof *t);
    int32_t *long_prompt = calloc(512, sizeof *long_prompt);
    struct seam_gen_info info;
    struct seam_gen_params p;
    struct seam_gen *g;
    struct seam_error err;

    fixture_open(&f, NULL, 0);
    p = params(&f, 1000);
    p.prompt = long_prompt;
    p.n_prompt = 510;
    cr_expect_eq(generate(&f, &p, t, 600, &info), 2);
    cr_expect_eq(info.end, SEAM_GEN_LENGTH);
    p.n_prompt = 512;
    cr_expect_eq(seam_gen_submit(f.e, &p, &g, &err), SEAM_EINVAL);
    cr_expect_not_null(strstr(err.text, "512"), "%s", err.text);
    p.n_prompt = 0;
    cr_expect_eq(seam_gen_submit(f.e, &p, &g, &err), SEAM_EINVAL);
    p.n_prompt = 3;
    long_prompt[1] = 6144;
    cr_expect_eq(seam_gen_submit(f.e, &p, &g, &err), SEAM_EINVAL);
    cr_expect_not_null(strstr(err.text, "6144"), "%s", err.text);
    free(long_prompt);
    free(t);
    fixture_close(&f);
}

/* Many requests over four rows and too few pages for all: preempted ones
 * come back, and everybody gets the tokens of a run alone. */
Test(engine, company_and_preemption_change_no_token)
{
    static const struct seam_flag few_pages[] = {
        { "engine.cache_bytes", "2507000" }, { "model.max_context", "464" }
    };
    enum { N = N_COMPANY, LEN = 120 };
    struct fixture f;
    struct seam_gen_token *alone = malloc(LEN * sizeof *alone);
    struct seam_gen_token *t = malloc(LEN * sizeof *t);
    struct seam_gen *g[N];
    struct seam_gen_info info;
    struct seam_gen_params p;
    int32_t prompt[N][40];
    uint64_t preempted = 0;

    fixture_open(&f, few_pages, 2);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < 40; j++)
            prompt[i][j] = (37 * i + 11 * j) % 6000;
    for (int i = 0; i < N; i++) {
        p = params(&f, LEN);
        p.prompt = prompt[i];
        p.n_prompt = (uint32_t)(5 + 2 * i);
        p.temperature = i % 2 ? 0.8f : 0;
        p.seed = (uint64_t)i;
        g[i] = submit(&f, &p);
    }
    for (int i = 0; i < N; i++) {
        p = params(&f, LEN);
        p.prompt = prompt[i];
        p.n_prompt = (uint32_t)(5 + 2 * i);
        p.temperature = i % 2 ? 0.8f : 0;
        p.seed = (uint64_t)i;
        cr_assert_eq(gen_take_all(g[i], t, LEN), LEN);
        seam_gen_free(g[i]);
        if (i == N - 1)
            preempted = atomic_load(&seam_engine_stats(f.e)->preemptions);
        cr_assert_eq(generate(&f, &p, alone, LEN, &info), LEN);
        for (int j = 0; j < LEN; j++)
            cr_assert_eq(t[j].id, alone[j].id, "request %d, token %d", i, j);
    }
    printf("engine: %llu preemptions\n", (unsigned long long)preempted);
    cr_expect_gt(preempted, 0);
    free(alone);
    free(t);
    fixture_close(&f);
}

Test(engine, seeds_and_greed_repeat)
{
    struct fixture f;
    struct seam_gen_token a[32], b[32], c[32];
    struct seam_gen_info info;
    struct seam_gen_params p;
    bool differs = false;

    fixture_open(&f, NULL, 0);
    p = params(&f, 32);
    p.temperature = 1.5f;
    p.seed = 7;
    generate(&f, &p, a, 32, &info);
    generate(&f, &p, b, 32, &info);
    p.seed = 8;
    generate(&f, &p, c, 32, &info);
    for (int i = 0; i < 32; i++) {
        cr_expect_eq(a[i].id, b[i].id);
        differs |= a[i].id != c[i].id;
    }
    cr_expect(differs, "two seeds gave the same 32 tokens");
    fixture_close(&f);
}

Test(engine, stop_ids_bias_and_min_tokens_act)
{
    struct fixture f;
    struct seam_gen_token t[32];
    struct seam_gen_info info;
    struct seam_gen_params p;
    struct seam_bias bias = { .add = 100 };
    int32_t first;

    fixture_open(&f, NULL, 0);
    p = params(&f, 16);
    generate(&f, &p, t, 32, &info);
    first = t[0].id;

    p.stop = &first;
    p.n_stop = 1;
    cr_expect_eq(generate(&f, &p, t, 32, &info), 1);
    cr_expect_eq(info.end, SEAM_GEN_STOP);
    cr_expect_eq(t[0].id, first);

    p.min_tokens = 4;
    cr_expect_geq(generate(&f, &p, t, 32, &info), 4);
    for (int i = 0; i < 4; i++)
        cr_expect_neq(t[i].id, first);

    p = params(&f, 6);
    bias.id = 1234;
    p.bias = &bias;
    p.n_bias = 1;
    generate(&f, &p, t, 32, &info);
    for (int i = 0; i < 6; i++)
        cr_expect_eq(t[i].id, 1234);
    /* A strong penalty beats the bias from the second token on. */
    p.frequency = 60;
    p.presence = 60;
    generate(&f, &p, t, 32, &info);
    cr_expect_eq(t[0].id, 1234);
    cr_expect_neq(t[1].id, 1234);
    fixture_close(&f);
}

Test(engine, eos_stops_unless_ignored)
{
    struct fixture f;
    struct seam_gen_token t[8];
    struct seam_gen_info info;
    struct seam_gen_params p;
    struct seam_bias bias = { .add = 100 };
    uint32_t n_eos;

    fixture_open(&f, NULL, 0);
    bias.id = seam_engine_eos(f.e, &n_eos)[0];
    cr_expect_geq(n_eos, 5); /* three of the configs, two more role tokens */
    p = params(&f, 4);
    p.bias = &bias;
    p.n_bias = 1;
    cr_expect_eq(generate(&f, &p, t, 8, &info), 4);
    p.ignore_eos = false;
    cr_expect_eq(generate(&f, &p, t, 8, &info), 1);
    cr_expect_eq(info.end, SEAM_GEN_STOP);
    fixture_close(&f);
}

Test(engine, logprobs_are_those_of_the_raw_distribution)
{
    struct fixture f;
    struct seam_gen_token t[64], again[64];
    struct seam_gen_info info;
    struct seam_gen_params p;
    uint32_t n;

    fixture_open(&f, NULL, 0);
    p = params(&f, 8);
    p.want_logprobs = true;
    p.n_top = 5;
    cr_assert_eq(generate(&f, &p, t, 64, &info), 8);
    for (int i = 0; i < 8; i++) {
        cr_expect_eq(t[i].n_top, 5);
        cr_expect_eq(t[i].top_id[0], t[i].id); /* greedy */
        cr_expect_float_eq(t[i].top_logprob[0], t[i].logprob, 1e-5);
        for (int k = 1; k < 5; k++)
            cr_expect_leq(t[i].top_logprob[k], t[i].top_logprob[k - 1]);
    }
    /* The same text as a prompt scores the same. */
    {
        int32_t all[64];
        uint32_t np = (uint32_t)f.prompt.n;

        memcpy(all, f.prompt.v, np * sizeof *all);
        for (int i = 0; i < 8; i++)
            all[np + (uint32_t)i] = t[i].id;
        p.prompt = all;
        p.n_prompt = np + 8;
        p.max_tokens = 1;
        p.prompt_logprobs = true;
        n = generate(&f, &p, again, 64, &info);
        cr_assert_eq(n, np + 8);
        for (uint32_t i = 0; i < 8; i++) {
            const struct seam_gen_token *s = &again[np - 1 + i];

            cr_expect(s->from_prompt);
            cr_expect_eq(s->id, t[i].id);
            cr_expect_float_eq(s->logprob, t[i].logprob, 1e-4);
            cr_expect_eq(s->top_id[0], t[i].top_id[0]);
        }
        cr_expect_not(again[n - 1].from_prompt);
    }
    fixture_close(&f);
}

Test(engine, cancelled_ones_leave_and_others_go_on)
{
    static const struct seam_flag no_prefix[] = { { "engine.prefix_bytes",
                                                    "0" } };
    struct fixture f;
    struct seam_gen_token t[512];
    struct seam_gen *g[8], *last;
    struct seam_gen_params p;
    struct seam_gen_info info;
    bool ended;

    fixture_open(&f, no_prefix, 1);
    p = params(&f, 400);
    for (int i = 0; i < 8; i++)
        g[i] = submit(&f, &p);
    cr_expect_geq(seam_gen_take(g[0], -1, t, 1, &ended), 1);
    for (int i = 0; i < 8; i++)
        seam_gen_cancel(g[i]);
    p.max_tokens = 3;
    last = submit(&f, &p);
    cr_expect_eq(gen_take_all(last, t, 512), 3);
    for (int i = 0; i < 8; i++) {
        gen_take_all(g[i], t, 512);
        seam_gen_info(g[i], &info);
        cr_expect_eq(info.end, SEAM_GEN_ABORT);
        seam_gen_free(g[i]);
    }
    seam_gen_free(last);
    cr_expect_eq(seam_engine_active(f.e), 0);
    cr_expect_eq(atomic_load(&seam_engine_stats(f.e)->pages_used), 0);
    fixture_close(&f);
}

Test(engine, full_queue_and_draining_are_refused)
{
    static const struct seam_flag short_queue[] = {
        { "engine.max_queue", "1" }, { "engine.max_seqs", "1" }
    };
    struct fixture f;
    struct seam_gen *g[64];
    struct seam_gen_params p;
    struct seam_error err;
    int n = 0, rc = 0;

    fixture_open(&f, short_queue, 2);
    p = params(&f, 400);
    while (n < 64 && !(rc = seam_gen_submit(f.e, &p, &g[n], &err)))
        n++;
    cr_expect_eq(rc, SEAM_EFULL);
    cr_expect_not_null(strstr(err.text, "engine.max_queue"), "%s", err.text);
    seam_engine_drain(f.e);
    cr_expect_eq(seam_engine_state(f.e), SEAM_ENGINE_DRAINING);
    cr_expect_eq(seam_gen_submit(f.e, &p, &g[63], &err), SEAM_ESTATE);
    while (n)
        seam_gen_free(g[--n]);
    fixture_close(&f);
}

Test(engine, stop_ends_what_runs)
{
    struct fixture f;
    struct seam_gen *g;
    struct seam_gen_params p;
    struct seam_gen_token t[512];
    struct seam_gen_info info;

    fixture_open(&f, NULL, 0);
    p = params(&f, 400);
    g = submit(&f, &p);
    seam_engine_stop(f.e);
    gen_take_all(g, t, 512);
    seam_gen_info(g, &info);
    cr_expect_eq(info.end, SEAM_GEN_ABORT);
    seam_gen_free(g);
    seam_engine_free(f.e);
    seam_ids_release(&f.prompt);
    seam_config_release(&f.config);
}

Test(engine, load_failure_says_what_and_frees_all)
{
    static const struct seam_flag wrong[] = { { "engine.cache_bytes",
                                                "1048576" } };
    static char *no_env[] = { NULL };
    struct seam_config c;
    struct seam_log log = { .fd = STDERR_FILENO, .level = SEAM_LOG_ERROR };
    struct seam_engine_opts o = { .config = &c, .log = &log };
    struct seam_engine *e;
    struct seam_error err;
    char text[4096];
    int n = snprintf(text, sizeof text, engine_config, SEAM_TEST_SOURCE_DIR,
                     SEAM_TEST_PLUGIN_DIR);

    cr_assert_eq(seam_config_parse(&c, "engine.json", text, (size_t)n, no_env,
                                   wrong, 1, &err),
                 0, "%s", err.text);
    cr_assert_eq(seam_engine_start(&e, &o, &err), 0);
    cr_expect_eq(seam_engine_wait_loaded(e, -1, &err), SEAM_ENGINE_FAILED);
    cr_expect_not_null(strstr(err.text, "engine.cache_bytes is 1048576"), "%s",
                       err.text);
    seam_engine_stop(e);
    seam_engine_free(e);
    seam_config_release(&c);
}

/* The same budget holds a full context in fp8 and is refused in f32, with the
 * sum that says so. */
Test(engine, the_plan_counts_planes_as_they_are_kept)
{
    static const struct {
        const char *config, *page, *sum;
        bool fits;
    } as[] = {
        { "{\"kv_dtype\": \"f32\"}", "32 pages of 18432 bytes", "= 2824192",
          false },
        { "{\"kv_dtype\": \"bf16\"}", "32 pages of 9216 bytes", "= 2529280",
          false },
        { "{\"kv_dtype\": \"fp8\"}", NULL, NULL, true },
    };
    static char *no_env[] = { NULL };

    for (size_t i = 0; i < sizeof as / sizeof *as; i++) {
        struct seam_flag flags[] = {
            { "plugins.sparse_attention.config", as[i].config },
            { "engine.cache_bytes", "2415000" },
        };
        struct seam_config c;
        struct seam_log log = { .fd = STDERR_FILENO, .level = SEAM_LOG_ERROR };
        struct seam_engine_opts o = { .config = &c, .log = &log };
        struct seam_engine *e;
        struct seam_error err;
        char text[4096];
        int n = snprintf(text, sizeof text, engine_config, SEAM_TEST_SOURCE_DIR,
                         SEAM_TEST_PLUGIN_DIR);

        cr_assert_eq(seam_config_parse(&c, "engine.json", text, (size_t)n,
                                       no_env, flags, 2, &err),
                     0, "%s", err.text);
        cr_assert_eq(seam_engine_start(&e, &o, &err), 0);
        cr_expect_eq(seam_engine_wait_loaded(e, -1, &err),
                     as[i].fits ? SEAM_ENGINE_READY : SEAM_ENGINE_FAILED, "%s",
                     err.text);
        if (!as[i].fits) {
            cr_expect_not_null(strstr(err.text, as[i].page), "%s", err.text);
            cr_expect_not_null(strstr(err.text, as[i].sum), "%s", err.text);
        }
        seam_engine_stop(e);
        seam_engine_free(e);
        seam_config_release(&c);
    }
}

/* ---- Prefix cache -------------------------------------------------------- */

/* Snapshots hold pages; they give way to running sequences. */
Test(engine, snapshots_give_their_pages_to_those_who_run)
{
    static const struct seam_flag few[] = { { "engine.cache_bytes", "3000000" },
                                            { "engine.max_seqs", "1" } };
    enum { GEN = 300 };
    struct fixture f;
    struct seam_gen_token *t = malloc(GEN * sizeof *t);
    struct seam_gen_info info;
    int32_t prompt[100];

    fixture_open(&f, few, 2);
    for (int i = 0; i < 6; i++) {
        struct seam_gen_params p = params(&f, GEN);

        for (int j = 0; j < 100; j++)
            prompt[j] = (17 * i + 5 * j) % 6000;
        p.prompt = prompt;
        p.n_prompt = 100;
        cr_expect_eq(generate(&f, &p, t, GEN, &info), GEN);
        cr_expect_eq(info.end, SEAM_GEN_LENGTH);
    }
    free(t);
    fixture_close(&f);
}

/* ---- Constraints --------------------------------------------------------- */

Test(engine, a_grammar_shapes_the_answer_and_company_does_not_mind)
{
    json_t *schema = json_pack("{s:[s,s]}", "enum", "yes", "no");
    struct fixture f;
    struct seam_gen_token t[64], free_run[16], again[16];
    struct seam_gen_params p, plain;
    struct seam_gen_info info;
    struct seam_grammar *grammar;
    struct seam_gen *g, *beside;
    struct seam_error err;
    struct seam_buf answer = { 0 };
    struct seam_str bytes;
    uint32_t n;

    fixture_open(&f, NULL, 0);
    cr_assert_eq(seam_grammar_schema(&grammar, seam_engine_vocabulary(f.e),
                                     schema, "schema", NULL, &err),
                 0, "%s", err.text);
    json_decref(schema);
    plain = params(&f, 16);
    generate(&f, &plain, free_run, 16, &info);
    p = params(&f, 32);
    p.grammar = grammar;
    p.grammar_after = -1;
    g = submit(&f, &p);
    beside = submit(&f, &plain);
    seam_grammar_unref(grammar);
    n = gen_take_all(g, t, 64);
    seam_gen_info(g, &info);
    cr_expect_eq(info.end, SEAM_GEN_STOP, "%s", info.err.text);
    for (uint32_t i = 0; i + 1 < n; i++) {
        cr_assert(
            seam_tokenizer_bytes(seam_engine_tokenizer(f.e), t[i].id, &bytes));
        seam_buf_add(&answer, bytes.p, bytes.n);
    }
    cr_expect(!strcmp(answer.p, "\"yes\"") || !strcmp(answer.p, "\"no\""), "%s",
              answer.p);
    cr_expect_eq(gen_take_all(beside, again, 16), 16);
    for (int i = 0; i < 16; i++)
        cr_expect_eq(again[i].id, free_run[i].id);
    seam_gen_free(g);
    seam_gen_free(beside);
    seam_buf_release(&answer);
    fixture_close(&f);
}

Test(engine, a_grammar_can_wait_for_a_token)
{
    json_t *schema = json_pack("{s:s}", "const", "yes");
    struct fixture f;
    struct seam_gen_token t[64], plain_run[64];
    struct seam_gen_params p;
    struct seam_gen_info info;
    struct seam_grammar *grammar;
    struct seam_error err;
    uint32_t n, start = 0;

    fixture_open(&f, NULL, 0);
    cr_assert_eq(seam_grammar_schema(&grammar, seam_engine_vocabulary(f.e),
                                     schema, "schema", NULL, &err),
                 0, "%s", err.text);
    json_decref(schema);
    p = params(&f, 32);
    generate(&f, &p, plain_run, 64, &info);
    p.grammar = grammar;
    p.grammar_after = plain_run[5].id;
    n = generate(&f, &p, t, 64, &info);
    while (t[start].id != plain_run[5].id)
        start++;
    for (uint32_t i = 0; i <= start; i++)
        cr_expect_eq(t[i].id, plain_run[i].id);
    cr_expect_eq(info.end, SEAM_GEN_STOP);
    cr_expect_lt(start, n - 1);
    seam_grammar_unref(grammar);
    fixture_close(&f);
}

/* What the model would rather do than reason: end at once. */
Test(engine, an_answer_that_a_grammar_waits_for_cannot_be_left_out)
{
    json_t *schema = json_pack("{s:s}", "const", "yes");
    struct fixture f;
    struct seam_gen_token t[64];
    struct seam_gen_params p;
    struct seam_gen_info info;
    struct seam_grammar *grammar;
    struct seam_error err;
    struct seam_bias end = { .add = 50 };
    struct seam_gen *g;
    const int32_t *eos;
    uint32_t n, n_eos, start = 0;
    int32_t stop;

    fixture_open(&f, NULL, 0);
    cr_assert_eq(seam_grammar_schema(&grammar, seam_engine_vocabulary(f.e),
                                     schema, "schema", NULL, &err),
                 0, "%s", err.text);
    json_decref(schema);
    eos = seam_engine_eos(f.e, &n_eos);
    cr_assert_gt(n_eos, 0);
    p = params(&f, 32);
    cr_assert_gt(generate(&f, &p, t, 64, &info), 2);
    stop = t[1].id;
    p.ignore_eos = false;
    end.id = eos[0];
    p.bias = &end;
    p.n_bias = 1;
    p.stop = &stop;
    p.n_stop = 1;
    n = generate(&f, &p, t, 64, &info);
    cr_expect_eq(n, 1, "%u tokens", n);
    cr_expect_eq(info.end, SEAM_GEN_STOP);

    /* It never comes: the limit ends it. */
    p.grammar = grammar;
    p.grammar_after = eos[0] ? eos[0] - 1 : 1;
    n = generate(&f, &p, t, 64, &info);
    cr_expect_eq(n, 32, "%u tokens", n);
    cr_expect_eq(info.end, SEAM_GEN_LENGTH);
    for (uint32_t i = 0; i < n; i++) {
        cr_expect_neq(t[i].id, stop);
        for (uint32_t k = 0; k < n_eos; k++)
            cr_expect_neq(t[i].id, eos[k]);
    }

    /* It comes: then "yes", and only then the end, min_tokens or not. */
    p.grammar_after = t[4].id;
    p.min_tokens = 31;
    n = generate(&f, &p, t, 64, &info);
    while (start < n && t[start].id != p.grammar_after)
        start++;
    cr_expect_eq(info.end, SEAM_GEN_STOP, "%s", info.err.text);
    cr_expect_lt(start + 1, n);
    cr_expect_lt(n, 31);
    cr_expect_eq(t[n - 1].id, eos[0]);

    p.stop = &p.grammar_after;
    cr_expect_eq(seam_gen_submit(f.e, &p, &g, &err), SEAM_EINVAL);
    cr_expect_not_null(strstr(err.text, "ends the reasoning"), "%s", err.text);
    seam_grammar_unref(grammar);
    fixture_close(&f);
}
