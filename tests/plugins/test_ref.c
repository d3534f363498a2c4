/* The reference blocks against the oracle and against themselves. */
#include "blockcheck.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugins/common/kda_state.h"

Test(testhost, reads_configuration_by_path)
{
    struct th *h = th_new("{\"a\": {\"b\": [1, {\"c\": 7}]}}", NULL);
    const struct seam_cfg *cfg = h->host.model_cfg(h, th_model(h));
    int64_t v = 0;

    cr_expect_eq(h->host.cfg(h, cfg, "a.b[1].c", SEAM_CFG_I64, &v), SEAM_OK);
    cr_expect_eq(v, 7);
    cr_expect_eq(h->host.cfg(h, cfg, "a.x", SEAM_CFG_I64, &v), SEAM_ENOENT);
    cr_expect_eq(h->host.cfg(h, cfg, "a.b", SEAM_CFG_I64, &v), SEAM_EINVAL);
    th_free(h);
}

/* ---- Linear attention ---------------------------------------------------- */

static struct check kda_check(struct world *w)
{
    struct check c = {
        .plugin = "kda_ref",
        .w = w,
        .h = world_new(w, WORLD_KDA, NULL),
        .oracle = oracle_kda,
        .limit = 1e-5,
    };

    return c;
}

Test(kda_ref, equals_the_oracle)
{
    struct world w[] = {
        { .seed = 1 },
        { .seed = 2, .flat_config = true, .kda_heads = 1, .kda_dim = 5 },
        { .seed = 3, .conv = 1 },
        { .seed = 4, .conv = 2, .lower_bound = -0.5 },
    };

    for (uint32_t i = 0; i < sizeof w / sizeof *w; i++) {
        struct check c = kda_check(&w[i]);

        check_oracle(&c);
        th_free(c.h);
    }
}

#define KDA_TEST(name, call)             \
    Test(kda_ref, name)                  \
    {                                    \
        struct world w = { .seed = 11 }; \
        struct check c = kda_check(&w);  \
                                         \
        call;                            \
        th_free(c.h);                    \
    }

KDA_TEST(is_the_same_however_a_prompt_is_cut, check_cuts(&c))
KDA_TEST(continues_after_any_acceptance, check_accept(&c))
KDA_TEST(keeps_sequences_apart_in_random_steps, check_random(&c, 1, 400))
KDA_TEST(knows_nothing_of_the_previous_tenant, check_tenant(&c))
KDA_TEST(ignores_padding, check_padding(&c))
KDA_TEST(fails_cleanly_to_create,
         check_create(&c, "@layer.0.self_attn.f_b_proj"))

Test(kda_ref, works_without_drafts)
{
    struct world w = { .seed = 12 };
    struct check c = kda_check(&w);
    struct tb_opts o = { .plugin = "kda_ref", .d = 40 };
    struct seam_error err = { 0 };
    float *x = world_input(&w, 3, 30), y[30 * 40], z[30 * 40];
    struct tb_seq s;
    struct tb *b;

    cr_assert_eq(tb_new(&b, c.h, &o, &err), SEAM_OK, "%s", err.text);
    cr_expect_eq(b->needs.state_copies, 1);
    tb_seq_new(b, &s, 0);
    cr_assert_eq(tb_run(b, &s, x, 30, y), SEAM_OK);
    tb_seq_end(b, &s);
    tb_seq_new(b, &s, 1);
    for (uint32_t t = 0; t < 30; t++)
        cr_assert_eq(tb_run(b, &s, x + t * 40, 1, z + t * 40), SEAM_OK);
    cr_expect_eq(memcmp(y, z, sizeof y), 0);
    tb_free(b);
    free(x);
    th_free(c.h);
}

/* LS-3: one head of 16 channels whose log-decay is set through dt_bias. */
static void strong_decay(const double *g, const double *start, uint32_t n,
                         uint32_t chunks)
{
    struct world w = {
        .seed = 21,
        .kda_heads = 1,
        .kda_dim = 16,
        .conv = 4,
        .d = 32,
        .store = TH_F32,
    };
    struct check c = kda_check(&w);
    struct tb_opts o = { .plugin = "kda_ref", .d = 32, .max_tokens = 256 };
    struct seam_error err = { 0 };
    double bias[16], zero[16 * 16] = { 0 }, S[256] = { 0 };
    double conv[16 * 4] = { 0 }, *want = calloc(n * 32, sizeof *want);
    float *x = world_input(&w, 5, n), *y = calloc(n * 32, sizeof *y);
    struct tb_seq s, *one = &s;
    struct tb *b;
    struct kda_dims dims = {
        .heads = 1, .dim = 16, .n_conv = 4, .chunk = kda_chunk(-5)
    };
    struct kda_state state;
    double left[256];
    float got[256];

    for (uint32_t i = 0; i < 16; i++) {
        double share = g[i] / -5;

        bias[i] = share >= 1 ? 60 : log(share / (1 - share));
        conv[i * 4 + 3] = 1;
    }
    th_values(c.h, "@layer.0.self_attn.A_log", TH_F32, 1, 0, zero);
    th_values(c.h, "@layer.0.self_attn.dt_bias", TH_F32, 16, 0, bias);
    th_values(c.h, "@layer.0.self_attn.f_b_proj", TH_F32, 16, 16, zero);
    th_values(c.h, "@layer.0.self_attn.q_conv1d.weight", TH_F32, 16, 4, conv);
    th_values(c.h, "@layer.0.self_attn.k_conv1d.weight", TH_F32, 16, 4, conv);
    th_values(c.h, "@layer.0.self_attn.v_conv1d.weight", TH_F32, 16, 4, conv);
    cr_assert_eq(tb_new(&b, c.h, &o, &err), SEAM_OK, "%s", err.text);
    tb_seq_new(b, &s, 0);
    cr_assert_eq(kda_state_layout(&dims, tb_state(b, 0, 0, 0), &state),
                 b->needs.state_bytes);
    for (uint32_t i = 0; start && i < 256; i++)
        S[i] = state.S[i] = (float)start[i];
    oracle_kda_from(&w, c.h, 0, x, n, S, want);
    for (uint32_t k = 0, t = 0; k < chunks; k++) {
        uint32_t end = n * (k + 1) / chunks;

        if (end > t)
            cr_assert_eq(tb_run(b, &s, x + t * 32, end - t, y + t * 32),
                         SEAM_OK);
        t = end;
    }
    cr_assert_eq(tb_commit(b, &one, 1), SEAM_OK);
    cr_expect_lt(th_error(y, want, n * 32), 1e-5, "g %g, %u tokens: %g", g[0],
                 n, th_error(y, want, n * 32));
    kda_state_read(&dims, &state, 0, (uint32_t)*state.n, left);
    for (uint32_t i = 0; i < 256; i++)
        got[i] = (float)left[i];
    cr_expect_lt(th_error(got, S, 256), 1e-5, "g %g, %u tokens: state %g", g[0],
                 n, th_error(got, S, 256));
    tb_free(b);
    free(x), free(y), free(want);
    th_free(c.h);
}

Test(kda_ref, stays_exact_at_strong_decay)
{
    static const double level[] = { -0.1, -1.0,  -1.38, -1.40, -2.5,
                                    -2.7, -2.85, -3.0,  -5.0 };
    static const uint32_t length[] = { 1, 15, 16, 17, 63, 64, 65, 200 };
    static const uint32_t chunks[] = { 1, 2, 5 };
    double g[16], start[256];
    struct th_rng r = { 77 };

    for (uint32_t i = 0; i < 256; i++)
        start[i] = th_normal(&r);
    for (uint32_t i = 0; i < 9; i++) {
        for (uint32_t d = 0; d < 16; d++)
            g[d] = level[i];
        for (uint32_t k = 0; k < 3; k++) {
            strong_decay(g, NULL, 64, chunks[k]);
            strong_decay(g, start, 64, chunks[k]);
        }
    }
    for (uint32_t d = 0; d < 16; d++)
        g[d] = -5 * th_uniform(&r);
    for (uint32_t i = 0; i < 8; i++)
        strong_decay(g, start, length[i], 1 + i % 3);
    for (uint32_t d = 0; d < 16; d++)
        g[d] = d == 7 ? -5 : -1e-3;
    for (uint32_t i = 0; i < 8; i++)
        strong_decay(g, NULL, length[i], 2);
}

/* ---- Sparse attention ---------------------------------------------------- */

/* Planes that round nothing, where the oracle is to be met. */
#define F32_PLANES "{\"kv_dtype\": \"f32\"}"

static struct check mla_check(struct world *w, const char *config)
{
    struct check c = {
        .plugin = "sparse_mla_ref",
        .w = w,
        .h = world_new(w, WORLD_MLA, config),
        .oracle = oracle_mla,
        .limit = 1e-5,
    };

    return c;
}

Test(sparse_mla_ref, equals_the_oracle)
{
    struct world w[] = {
        { .seed = 1 },
        { .seed = 2, .kpool = 1, .topk = 7 },
        { .seed = 3, .kpool = 2, .topk = 6, .heads = 1, .index_heads = 5 },
        { .seed = 4, .kpool = 8, .topk = 8 },
        { .seed = 5, .topk = 512 },
    };

    for (uint32_t i = 0; i < sizeof w / sizeof *w; i++) {
        struct check c = mla_check(&w[i], F32_PLANES);

        check_oracle(&c);
        th_free(c.h);
    }
}

/* Everything is selected, so that what is measured is the rounding alone. */
Test(sparse_mla_ref, rounds_what_it_keeps_when_told_to)
{
    static const struct {
        const char *config;
        double limit;
        uint32_t latent, index; /* bytes of a record of one and 64 values */
    } as[] = { { "{\"kv_dtype\": \"bf16\"}", 1e-2, 2, 0 },
               { "{\"kv_dtype\": \"fp8\"}", 8e-2, 1, 4 } };
    struct world w = { .seed = 1, .topk = 512 };
    struct tb_opts o = { .plugin = "sparse_mla_ref", .d = 40 };
    struct seam_error err;
    struct check c;
    struct tb *b;

    for (uint32_t i = 0; i < sizeof as / sizeof *as; i++) {
        uint64_t index;

        c = mla_check(&w, as[i].config);
        c.limit = as[i].limit;
        check_oracle(&c);
        cr_assert_eq(tb_new(&b, c.h, &o, &err), SEAM_OK);
        index = w.index_dim * as[i].latent + as[i].index;
        cr_expect_eq(b->needs.plane[0].bytes_per_token,
                     as[i].latent * w.kv_lora + as[i].index);
        cr_expect_eq(b->needs.plane[1].bytes_per_token,
                     (index + w.kpool - 1) / w.kpool);
        tb_free(b);
        check_cuts(&c);
        check_random(&c, 4, 100);
        th_free(c.h);
    }
    c = mla_check(&w, "{\"kv_dtype\": \"f64\"}");
    cr_assert_eq(tb_new(&b, c.h, &o, &err), SEAM_EDATA);
    cr_expect(strstr(err.text, "kv_dtype"), "%s", err.text);
    th_config(c.h, "{\"kv_dtype\": 16}");
    cr_assert_eq(tb_new(&b, c.h, &o, &err), SEAM_EDATA);
    th_free(c.h);
}

#define MLA_TEST(name, call)                  \
    Test(sparse_mla_ref, name)                \
    {                                         \
        struct world w = { .seed = 11 };      \
        struct check c = mla_check(&w, NULL); \
                                              \
        call;                                 \
        th_free(c.h);                         \
    }

MLA_TEST(is_the_same_however_a_prompt_is_cut, check_cuts(&c))
MLA_TEST(continues_after_any_acceptance, check_accept(&c))
MLA_TEST(keeps_sequences_apart_in_random_steps, check_random(&c, 1, 400))
MLA_TEST(knows_nothing_of_the_previous_tenant, check_tenant(&c))
MLA_TEST(ignores_padding, check_padding(&c))
MLA_TEST(fails_cleanly_to_create,
         check_create(&c, "@layer.0.self_attn.indexer.wk"))

Test(sparse_mla_ref, continues_after_any_acceptance_of_odd_pools)
{
    struct world w = { .seed = 13, .kpool = 3, .topk = 9 };
    struct check c = mla_check(&w, NULL);

    c.page_tokens = 9;
    c.max_draft = 5;
    check_accept(&c);
    check_random(&c, 2, 200);
    th_free(c.h);
}

/* SP-1 */
Test(sparse_mla_ref, is_causal_at_every_length)
{
    static const uint32_t length[] = { 1, 2, 15, 16, 17, 18, 40 };
    struct world w = { .seed = 14 };
    struct check c = mla_check(&w, NULL);
    struct tb_opts o = { .plugin = c.plugin, .d = 40 };
    struct seam_error err;
    float *x = world_input(&w, 6, 40), *z = world_input(&w, 7, 40);
    float y[40 * 40], y0[40 * 40];
    struct tb_seq s;
    struct tb *b;

    cr_assert_eq(tb_new(&b, c.h, &o, &err), SEAM_OK);
    for (uint32_t i = 0; i < 7; i++) {
        uint32_t n = length[i];

        for (uint32_t j = 0; j <= n; j++) { /* n: nothing is changed */
            float keep[40];
            uint32_t prefix = j % 3 == 0 ? 0 : j % 3 == 1 ? 5 : 13;

            memcpy(keep, x + j % n * 40, sizeof keep);
            if (j < n)
                memcpy(x + j * 40, z + j * 40, sizeof keep);
            tb_seq_new(b, &s, 0);
            if (prefix && prefix < n)
                cr_assert_eq(tb_run(b, &s, x, prefix, y), SEAM_OK);
            else
                prefix = 0;
            cr_assert_eq(
                tb_run(b, &s, x + prefix * 40, n - prefix, y + prefix * 40),
                SEAM_OK);
            tb_seq_end(b, &s);
            memcpy(x + j % n * 40, keep, sizeof keep);
            if (j == 0 && n > 1) { /* the unchanged run */
                tb_seq_new(b, &s, 0);
                cr_assert_eq(tb_run(b, &s, x, n, y0), SEAM_OK);
                tb_seq_end(b, &s);
            }
            if (n > 1)
                cr_assert_eq(memcmp(y, y0, j * 40 * sizeof *y), 0,
                             "token %u of %u changed what came before", j, n);
        }
    }
    tb_free(b);
    free(x), free(z);
    th_free(c.h);
}

struct picks {
    int32_t at[64][32]; /* rows of the last forward                           */
    uint32_t rows, width;
};

static void keep_picks(void *ctx, uint32_t layer, const char *name,
                       const struct seam_tensor *t)
{
    struct picks *p = ctx;

    cr_assert_eq(layer, 0);
    cr_assert_str_eq(name, "topk_index");
    cr_assert_leq(t->shape[0], 64);
    cr_assert_leq(t->shape[1], 32);
    p->rows = (uint32_t)t->shape[0];
    p->width = (uint32_t)t->shape[1];
    for (uint32_t r = 0; r < p->rows; r++)
        memcpy(p->at[r], (char *)t->data + (int64_t)r * t->stride[0],
               p->width * sizeof **p->at);
}

static int ascending(const void *a, const void *b)
{
    return *(const int32_t *)a - *(const int32_t *)b;
}

/* The selection of row r is what the oracle selects at position t of x. */
static void check_picks(const struct check *c, struct picks *p, uint32_t r,
                        const float *x, uint32_t t)
{
    int32_t want[64], *got = p->at[r];
    uint32_t k = oracle_mla_select(c->w, c->h, 0, x, t, want), n = 0;

    while (n < p->width && got[n] >= 0)
        n++;
    for (uint32_t i = n; i < p->width; i++)
        cr_assert_eq(got[i], -1, "row %u: unused entry %u is %d", r, i, got[i]);
    qsort(got, n, sizeof *got, ascending);
    cr_assert_eq(n, k, "position %u: %u tokens, expected %u", t, n, k);
    for (uint32_t i = 0; i < n; i++)
        cr_assert_eq(got[i], want[i], "position %u: token %d, expected %d", t,
                     got[i], want[i]);
}

/* SP-3 */
Test(sparse_mla_ref, selects_what_the_oracle_selects)
{
    struct world w = { .seed = 15 };
    struct check c = mla_check(&w, F32_PLANES);
    struct tb_opts o = {
        .plugin = c.plugin, .d = 40, .max_tokens = 64, .max_draft = 3
    };
    struct seam_error err;
    float *x[3], y[3][40 * 40];
    const struct seam_trace *trace;
    struct picks p;
    struct tb_seq s[3];
    struct tb *b;

    cr_assert_eq(tb_new(&b, c.h, &o, &err), SEAM_OK);
    trace = b->p->extension("trace/1");
    cr_assert_not_null(trace);
    trace->set(b->self, &p, keep_picks);
    for (uint32_t i = 0; i < 3; i++) {
        x[i] = world_input(&w, 30 + i, 44);
        tb_seq_new(b, &s[i], (int32_t)i);
    }
    /* Decode, three sequences at different lengths in one step. */
    cr_assert_eq(tb_run(b, &s[1], x[1], 1, y[1]), SEAM_OK);
    cr_assert_eq(tb_run(b, &s[2], x[2], 2, y[2]), SEAM_OK);
    for (uint32_t n = 0; n < 38; n++) {
        struct tb_part part[3];

        for (uint32_t i = 0; i < 3; i++)
            part[i] = (struct tb_part){
                .seq = &s[i], .n = 1, .x = x[i] + s[i].len * 40, .y = y[i]
            };
        cr_assert_eq(tb_step(b, part, 3), SEAM_OK);
        cr_assert_eq(p.width, 19);
        for (uint32_t i = 0; i < 3; i++)
            check_picks(&c, &p, i, x[i], n + i);
    }
    /* Prefill of every length, then roll back 1 to 3 tokens and go on with
     * other ones. */
    for (uint32_t i = 0; i < 3; i++)
        tb_seq_end(b, &s[i]);
    for (uint32_t n = 1; n <= 40; n++) {
        tb_seq_new(b, &s[0], 3);
        cr_assert_eq(tb_run(b, &s[0], x[0], n, y[0]), SEAM_OK);
        for (uint32_t t = 0; t < n; t++)
            check_picks(&c, &p, t, x[0], t);
        tb_seq_end(b, &s[0]);
    }
    for (uint32_t n = 4; n <= 40; n++)
        for (uint32_t back = 1; back <= 3; back++) {
            float mixed[44 * 40];

            tb_seq_new(b, &s[0], 3);
            if (n > 4)
                cr_assert_eq(tb_run(b, &s[0], x[0], n - 4, y[0]), SEAM_OK);
            cr_assert_eq(tb_run(b, &s[0], x[0] + (n - 4) * 40, 4, y[0]),
                         SEAM_OK);
            tb_keep(&s[0], 4 - back);
            memcpy(mixed, x[0], sizeof mixed);
            memcpy(mixed + (n - back) * 40, x[1] + (n - back) * 40,
                   4 * 40 * sizeof *mixed);
            cr_assert_eq(tb_run(b, &s[0], mixed + (n - back) * 40, 4, y[0]),
                         SEAM_OK);
            for (uint32_t t = 0; t < 4; t++)
                check_picks(&c, &p, t, mixed, n - back + t);
            tb_seq_end(b, &s[0]);
        }
    trace->set(b->self, NULL, NULL);
    tb_free(b);
    free(x[0]), free(x[1]), free(x[2]);
    th_free(c.h);
}

Test(sparse_mla_ref, breaks_ties_by_the_lower_pool)
{
    struct world w = { .seed = 16 };
    struct check c = mla_check(&w, NULL);
    struct tb_opts o = { .plugin = c.plugin, .d = 40 };
    struct seam_error err;
    float *x = world_input(&w, 3, 40), y[40 * 40];
    double none[2 * 40] = { 0 };
    struct picks p;
    struct tb_seq s;
    struct tb *b;

    th_values(c.h, "@layer.0.self_attn.indexer.weights_proj", TH_F32, 2, 40,
              none);
    cr_assert_eq(tb_new(&b, c.h, &o, &err), SEAM_OK);
    ((const struct seam_trace *)b->p->extension("trace/1"))
        ->set(b->self, &p, keep_picks);
    tb_seq_new(b, &s, 0);
    cr_assert_eq(tb_run(b, &s, x, 40, y), SEAM_OK);
    for (uint32_t t = 0; t < 40; t++) {
        uint32_t pools = (t + 1) / 4, k = pools < 4 ? pools * 4 : 16;

        for (uint32_t i = 0; i < k; i++)
            cr_assert_eq(p.at[t][i], (int32_t)i);
        for (uint32_t i = pools * 4; i <= t; i++)
            cr_assert_eq(p.at[t][k++], (int32_t)i);
        cr_assert(k == 19 || p.at[t][k] == -1);
    }
    tb_free(b);
    free(x);
    th_free(c.h);
}

/* ---- Experts ------------------------------------------------------------- */

static struct check moe_check(struct world *w)
{
    struct check c = {
        .plugin = "moe_resident_ref",
        .w = w,
        .h = world_new(w, WORLD_MOE, NULL),
        .oracle = oracle_moe,
        .limit = 1e-6,
    };

    return c;
}

Test(moe_resident_ref, equals_the_oracle)
{
    struct world w[] = {
        { .seed = 1 },
        { .seed = 2, .n_group = 4, .topk_group = 2 },
        { .seed = 3, .n_group = 8, .topk_group = 3, .experts = 8 },
        { .seed = 4, .no_shared = true, .plain_topk = true },
        { .seed = 5, .n_shared = 2, .ff = 16 },
        { .seed = 6, .d = 64, .ff = 32, .expert_store = TH_GPTQ },
        { .seed = 7, .d = 160, .ff = 130, .expert_store = TH_FP8 },
        { .seed = 8, .top_k = 8 },
        { .seed = 9, .top_k = 1, .limit = 100 },
    };

    for (uint32_t i = 0; i < sizeof w / sizeof *w; i++) {
        struct check c = moe_check(&w[i]);

        check_oracle(&c);
        th_free(c.h);
    }
}

#define MOE_TEST(name, call)             \
    Test(moe_resident_ref, name)         \
    {                                    \
        struct world w = { .seed = 11 }; \
        struct check c = moe_check(&w);  \
                                         \
        call;                            \
        th_free(c.h);                    \
    }

MOE_TEST(is_the_same_however_a_prompt_is_cut, check_cuts(&c))
MOE_TEST(keeps_sequences_apart_in_random_steps, check_random(&c, 1, 100))
MOE_TEST(ignores_padding, check_padding(&c))
MOE_TEST(fails_cleanly_to_create,
         check_create(&c, "@layer.0.mlp.experts.5.up_proj"))

struct routes {
    float logits[64], weights[64];
    int32_t index[64];
    int64_t shape[3][2];
};

static void keep_routes(void *ctx, uint32_t layer, const char *name,
                        const struct seam_tensor *t)
{
    struct routes *r = ctx;
    uint32_t i = !strcmp(name, "router_logits")    ? 0
                 : !strcmp(name, "router_weights") ? 1
                                                   : 2;
    void *to = i == 0   ? (void *)r->logits
               : i == 1 ? (void *)r->weights
                        : (void *)r->index;

    cr_assert_eq(layer, 0);
    cr_assert(i < 2 || !strcmp(name, "router_index"));
    cr_assert_eq(t->dtype, i < 2 ? SEAM_F32 : SEAM_I32);
    memcpy(r->shape[i], t->shape, sizeof r->shape[i]);
    memcpy(to, t->data, (uint64_t)(t->shape[0] * t->shape[1]) * 4);
}

Test(moe_resident_ref, chooses_by_bias_and_weighs_without_it)
{
    struct world w = { .seed = 12 };
    struct check c = moe_check(&w);
    struct tb_opts o = { .plugin = c.plugin, .d = 40 };
    struct seam_error err;
    double bias[8] = { 0, 0, 0, 0.25, 0, 0, 0, 0.5 }, none[8 * 40] = { 0 };
    float *x = world_input(&w, 3, 2), y[2 * 40];
    struct routes r;
    struct tb_seq s;
    struct tb_part part[2] = { { .seq = &s, .n = 2, .x = x, .y = y },
                               { .n = 1 } };
    struct tb *b;

    th_values(c.h, "@layer.0.mlp.gate", TH_F32, 8, 40, none);
    th_values(c.h, "@layer.0.mlp.gate.e_score_correction_bias", TH_F32, 8, 0,
              bias);
    cr_assert_eq(tb_new(&b, c.h, &o, &err), SEAM_OK);
    ((const struct seam_trace *)b->p->extension("trace/1"))
        ->set(b->self, &r, keep_routes);
    tb_seq_new(b, &s, 0);
    cr_assert_eq(tb_step(b, part, 2), SEAM_OK);
    cr_expect(r.shape[0][0] == 3 && r.shape[0][1] == 8);
    cr_expect(r.shape[2][0] == 3 && r.shape[2][1] == 3);
    for (uint32_t t = 0; t < 2; t++) {
        /* 7 and 3 by their bias, of the equal ones the smallest. */
        bool seen[8] = { false };

        for (uint32_t k = 0; k < 3; k++) {
            seen[r.index[t * 3 + k]] = true;
            cr_expect_float_eq(r.weights[t * 3 + k], 2.5 / 3, 1e-6);
        }
        cr_expect(seen[0] && seen[3] && seen[7]);
    }
    for (uint32_t k = 0; k < 3; k++)
        cr_expect_eq(r.index[2 * 3 + k], -1, "padding is routed nowhere");
    tb_free(b);
    free(x);
    th_free(c.h);
}

Test(moe_resident_ref, refuses_impossible_groups)
{
    struct world w = { .seed = 13, .n_group = 4, .topk_group = 1, .top_k = 3 };
    struct check c = moe_check(&w); /* 3 experts of one group of 2 */
    struct tb_opts o = { .plugin = c.plugin, .d = 40 };
    struct seam_error err;
    struct tb *b;

    cr_assert_eq(tb_new(&b, c.h, &o, &err), SEAM_EDATA);
    cr_expect(strstr(err.text, "groups"), "%s", err.text);
    th_free(c.h);
}
