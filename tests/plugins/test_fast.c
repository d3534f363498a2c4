/* The default blocks of the CPU, on every instruction set this machine has:
 * against the oracles, against the contract, and beside their reference twins,
 * whose caches and states they must be able to take over. */
#include "blockcheck.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/engine/pool.h"
#include "kern.h"
#include "plugins/common/kv_record.h"

/* ---- Instruction sets ---------------------------------------------------- */

static const char *const ISA[] = { "generic", "avx2", "avx512", "avx512vnni",
                                   "amx" };
enum { N_ISA = 5, FIRST_INTEGER = 3, TILES = 4 };

static bool runs(uint32_t isa)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (isa == 1)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (isa >= 2)
        return __builtin_cpu_supports("avx512f") &&
               __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("avx512dq") &&
               (isa == 2 || __builtin_cpu_supports("avx512vnni")) &&
               (isa != TILES || kern_pick("amx"));
#endif
    return isa == 0;
}

/* The last two add products of integer weights to the third, the last of them
 * those of BF16 weights and attention to planes that are kept rounded. */
static bool matters(uint32_t isa, const struct world *w)
{
    return (isa == TILES && w->store == TH_BF16) || isa < FIRST_INTEGER ||
           w->store == TH_GPTQ || w->store == TH_I8 ||
           w->expert_store == TH_GPTQ || w->expert_store == TH_I8;
}

/* Beside int8 they round activations to 16 bits of the largest of a group. */
static double limit_of(uint32_t isa, const struct world *w)
{
    bool i8 = w->store == TH_I8 || w->expert_store == TH_I8;

    return isa >= FIRST_INTEGER && i8 ? 3e-4 : 2e-5;
}

static uint32_t best(void)
{
    return runs(2) ? 2 : runs(1);
}

/* The plugin's block of the configuration for one of them. */
static const char *config(uint32_t isa, const char *more)
{
    static char text[N_ISA][128];

    snprintf(text[isa], sizeof text[isa], "{\"isa\": \"%s\"%s}", ISA[isa],
             more);
    return text[isa];
}

/* Planes that round nothing, where results are held to limits of F32. */
#define F32_PLANES ", \"kv_dtype\": \"f32\""

#define EACH_ISA(isa)                          \
    for (uint32_t isa = 0; isa < N_ISA; isa++) \
        if (runs(isa))

static struct check check_of(const char *plugin, struct world *w,
                             enum world_kind kind, const char *json)
{
    struct check c = {
        .plugin = plugin,
        .w = w,
        .h = world_new(w, kind, json),
        .oracle = kind == WORLD_KDA   ? oracle_kda
                  : kind == WORLD_MLA ? oracle_mla
                                      : oracle_moe,
        .limit = 2e-5,
    };

    return c;
}

/* The oracles are slow: one answer serves all instruction sets. */
static struct {
    void (*real)(const struct world *w, const struct th *h, uint32_t layer,
                 const float *x, uint32_t n, double *y);
    uint64_t bytes;
    double *y;
} answer;

static void remembered(const struct world *w, const struct th *h,
                       uint32_t layer, const float *x, uint32_t n, double *y)
{
    uint64_t bytes = (uint64_t)n * w->d * sizeof *y;

    if (!answer.y) {
        answer.bytes = bytes;
        answer.y = malloc(bytes);
        cr_assert_not_null(answer.y);
        answer.real(w, h, layer, x, n, answer.y);
    }
    cr_assert_eq(bytes, answer.bytes);
    memcpy(y, answer.y, bytes);
}

static void all_oracles(const char *plugin, enum world_kind kind,
                        const struct world *w, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        EACH_ISA(isa)
        if (matters(isa, &w[i])) {
            struct world one = w[i];
            struct check c =
                check_of(plugin, &one, kind,
                         config(isa, kind == WORLD_MLA ? F32_PLANES : ""));

            c.limit = limit_of(isa, &w[i]);
            answer.real = c.oracle;
            c.oracle = remembered;
            check_oracle(&c);
            th_free(c.h);
        }
        free(answer.y);
        answer.y = NULL;
    }
}

/* The whole contract, bit for bit: however a token is reached, its result is
 * the same. */
static void contract(const char *plugin, enum world_kind kind,
                     const struct world *w, uint32_t steps)
{
    EACH_ISA(isa)
    if (matters(isa, w)) {
        struct world one = *w;
        struct check c = check_of(plugin, &one, kind, config(isa, ""));

        check_cuts(&c);
        if (kind != WORLD_MOE && isa == best())
            check_accept(&c);
        check_random(&c, 3 + isa, steps);
        check_tenant(&c);
        check_padding(&c);
        th_free(c.h);
    }
}

/* ---- Beside the reference twin ------------------------------------------- */

static struct tb *make(struct th *h, const char *plugin, const struct world *w,
                       uint32_t max_tokens, uint32_t max_context)
{
    struct tb_opts o = {
        .plugin = plugin,
        .d = w->d,
        .max_seqs = 4,
        .max_tokens = max_tokens,
        .max_context = max_context,
        .max_draft = 3,
    };
    struct seam_error err = { 0 };
    struct tb *b;

    cr_assert_eq(tb_new(&b, h, &o, &err), SEAM_OK, "%s: %s", plugin, err.text);
    return b;
}

static double diff(const float *a, const float *b, uint64_t n)
{
    double num = 0, den = 1e-300;

    for (uint64_t i = 0; i < n; i++) {
        if (!isfinite(a[i]))
            return INFINITY;
        num += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        den += (double)b[i] * b[i];
    }
    return sqrt(num / den);
}

/* `to` gets what `from` has cached, byte for byte. */
static void take_over(struct tb *to, const struct tb *from)
{
    cr_assert_eq(to->needs.layout_id, from->needs.layout_id);
    cr_assert_eq(to->needs.state_bytes, from->needs.state_bytes);
    cr_assert_eq(to->grant.state_stride, from->grant.state_stride);
    for (uint32_t p = 0; p < from->needs.n_planes; p++) {
        cr_assert_eq(to->grant.page_stride[p], from->grant.page_stride[p]);
        memcpy(to->plane[p][0], from->plane[p][0],
               from->grant.n_pages * from->grant.page_stride[p]);
    }
    for (uint32_t r = 0; r < from->grant.n_state_rows; r++)
        for (uint32_t k = 0; k < from->needs.state_copies; k++)
            memcpy(tb_state(to, 0, (int32_t)r, k),
                   tb_state(from, 0, (int32_t)r, k), from->needs.state_bytes);
    memcpy(to->free_page, from->free_page,
           from->n_free * sizeof *to->free_page);
    to->n_free = from->n_free;
}

static void swap_live(const char *fast, const char *ref, enum world_kind kind,
                      const char *more)
{
    enum { N = 90 };

    EACH_ISA(isa)
    for (uint32_t back = 0; back < 2; back++) {
        struct world w = { .seed = 31 + isa };
        struct th *h = world_new(&w, kind, config(isa, more));
        struct tb *a = make(h, back ? fast : ref, &w, N, N);
        struct tb *b = make(h, back ? ref : fast, &w, N, N);
        float *x = world_input(&w, 5, N);
        float ya[7 * 64], yb[7 * 64];
        struct tb_seq s, *one = &s, t;

        cr_assert_leq(w.d, 64);
        tb_seq_new(a, &s, 2);
        for (uint32_t n = 0; n + 7 <= N; n += 6) {
            uint32_t width = n % 4 ? 4 : 7, keep = n % 4 ? 2 : 7;

            take_over(b, a);
            t = s;
            cr_assert_eq(tb_run(a, &s, x + s.len * w.d, width, ya), SEAM_OK);
            cr_assert_eq(tb_run(b, &t, x + t.len * w.d, width, yb), SEAM_OK);
            cr_assert_lt(diff(yb, ya, width * w.d), 2e-5,
                         "%s after %s: %g at %u", back ? ref : fast,
                         back ? fast : ref, diff(yb, ya, width * w.d), n);
            tb_keep(&s, keep);
            if (n % 3 == 0)
                cr_assert_eq(tb_commit(a, &one, 1), SEAM_OK);
        }
        tb_free(a);
        tb_free(b);
        free(x);
        th_free(h);
    }
}

/* ---- With threads -------------------------------------------------------- */

static void pool_for(void *ctx, uint32_t n, seam_task *fn, void *arg)
{
    struct th *h = ctx;

    seam_pool_run(h->arg, n, fn, arg);
}

/* The same bits from three threads as from one. */
static void threads(const char *plugin, enum world_kind kind)
{
    struct world w = { .seed = 41, .d = 64 };
    struct th *h = world_new(&w, kind, NULL);
    struct tb *b = make(h, plugin, &w, 64, 256);
    float *x = world_input(&w, 5, 64);
    float *want = calloc(64 * (size_t)w.d, sizeof *want);
    float *got = calloc(64 * (size_t)w.d, sizeof *got);
    struct seam_error err = { 0 };
    struct seam_pool *pool;
    struct tb_seq s;

    tb_seq_new(b, &s, 0);
    cr_assert_eq(tb_run(b, &s, x, 64, want), SEAM_OK);
    tb_seq_end(b, &s);
    cr_assert_eq(seam_pool_new(&pool, h->n_workers, &err), 0, "%s", err.text);
    h->arg = pool;
    h->host.parallel_for = pool_for;
    for (uint32_t i = 0; i < 10; i++) {
        uint32_t cut = 1 + 6 * i;

        tb_seq_new(b, &s, (int32_t)(i % 4));
        cr_assert_eq(tb_run(b, &s, x, cut, got), SEAM_OK);
        cr_assert_eq(tb_run(b, &s, x + cut * w.d, 64 - cut, got + cut * w.d),
                     SEAM_OK);
        cr_assert_eq(memcmp(got, want, 64 * w.d * sizeof *got), 0,
                     "%s: other bits with threads", plugin);
        tb_seq_end(b, &s);
    }
    seam_pool_free(pool);
    tb_free(b);
    free(x), free(want), free(got);
    th_free(h);
}

/* ---- Configuration ------------------------------------------------------- */

static void unknown_isa(const char *plugin, enum world_kind kind)
{
    struct world w = { .seed = 51 };
    struct check c = check_of(plugin, &w, kind, "{\"isa\": \"sse9\"}");
    struct tb_opts o = { .plugin = plugin, .d = w.d };
    struct seam_error err = { 0 };
    struct tb *b;

    cr_assert_eq(tb_new(&b, c.h, &o, &err), SEAM_EDATA);
    cr_expect(strstr(err.text, "sse9") && strstr(err.text, plugin), "%s",
              err.text);
    th_config(c.h, "{\"isa\": 2}");
    cr_assert_eq(tb_new(&b, c.h, &o, &err), SEAM_EDATA);
    th_free(c.h);
}

/* ---- Linear attention ---------------------------------------------------- */

Test(kda, equals_the_oracle)
{
    static const struct world w[] = {
        { .seed = 1 },
        { .seed = 2, .flat_config = true, .kda_heads = 1, .kda_dim = 5 },
        { .seed = 3, .conv = 1 },
        { .seed = 4, .conv = 2, .lower_bound = -0.5 },
        { .seed = 5, .d = 136, .kda_heads = 2, .kda_dim = 128 },
        { .seed = 6, .d = 65, .kda_heads = 3, .kda_dim = 67 },
        { .seed = 7, .d = 64, .kda_heads = 8, .kda_dim = 32, .store = TH_GPTQ },
        { .seed = 9, .d = 96, .kda_heads = 4, .kda_dim = 32, .store = TH_I8 },
        { .seed = 8,
          .d = 300,
          .kda_heads = 1,
          .kda_dim = 130,
          .store = TH_FP8 },
    };

    all_oracles("kda", WORLD_KDA, w, sizeof w / sizeof *w);
}

Test(kda, keeps_the_contract)
{
    static const struct world w = { .seed = 11 };

    contract("kda", WORLD_KDA, &w, 200);
}

Test(kda, keeps_the_contract_over_several_panels)
{
    static const struct world w = {
        .seed = 12, .d = 104, .kda_heads = 2, .kda_dim = 70, .store = TH_BF16
    };

    contract("kda", WORLD_KDA, &w, 60);
}

/* Chunks of 8, 4 and 1 tokens; a step of drafts ends in the chunk it begins in,
 * in the next one or beyond. */
Test(kda, keeps_the_contract_with_chunks_of_any_length)
{
    static const double lower_bound[] = { -5, -20, -80 };

    for (uint32_t i = 0; i < 3; i++)
        for (uint32_t ref = 0; ref < 2; ref++) {
            struct world w = { .seed = 14 + i, .lower_bound = lower_bound[i] };
            struct check c =
                check_of(ref ? "kda_ref" : "kda", &w, WORLD_KDA, NULL);

            c.max_draft = 9;
            check_accept(&c);
            check_random(&c, 5 + i, 60);
            check_oracle(&c);
            th_free(c.h);
        }
}

/* A step of up to four tokens overwrites none of the inputs that it needs, or
 * some, or has none to keep. */
Test(kda, keeps_the_contract_with_windows_of_any_length)
{
    static const uint32_t conv[] = { 1, 2, 9 };

    for (uint32_t i = 0; i < 3; i++)
        for (uint32_t ref = 0; ref < 2; ref++) {
            struct world w = { .seed = 17 + i, .conv = conv[i] };
            struct check c =
                check_of(ref ? "kda_ref" : "kda", &w, WORLD_KDA, NULL);

            check_cuts(&c);
            check_accept(&c);
            check_random(&c, 6 + i, 60);
            th_free(c.h);
        }
}

Test(kda, refuses_decays_that_no_chunk_can_hold)
{
    for (uint32_t ref = 0; ref < 2; ref++) {
        struct world w = { .seed = 15, .lower_bound = -81 };
        struct check c = check_of(ref ? "kda_ref" : "kda", &w, WORLD_KDA, NULL);
        struct tb_opts o = { .plugin = c.plugin, .d = w.d };
        struct seam_error err = { 0 };
        struct tb *b;

        cr_assert_eq(tb_new(&b, c.h, &o, &err), SEAM_ENOTSUP);
        cr_expect(strstr(err.text, "gate_lower_bound is -81"), "%s", err.text);
        th_free(c.h);
    }
}

/* A state that does not go with the step is no state to compute from. */
Test(kda, refuses_an_acceptance_that_its_row_does_not_have)
{
    for (uint32_t ref = 0; ref < 2; ref++) {
        struct world w = { .seed = 16 };
        struct check c = check_of(ref ? "kda_ref" : "kda", &w, WORLD_KDA, NULL);
        struct tb *b = make(c.h, c.plugin, &w, 40, 64);
        float *x = world_input(&w, 5, 40), *y = calloc(40, w.d * sizeof *y);
        struct tb_seq s;

        tb_seq_new(b, &s, 0);
        cr_assert_eq(tb_run(b, &s, x, 39, y), SEAM_OK);
        s.n_accept = 0;
        cr_expect_eq(tb_run(b, &s, x, 1, y), SEAM_EINVAL);
        cr_expect(strstr(b->err.text, "n_accept 0 does not fit"), "%s",
                  b->err.text);
        s.n_accept = 100;
        cr_expect_eq(tb_run(b, &s, x, 1, y), SEAM_EINVAL);
        s.n_accept = 39;
        cr_expect_eq(tb_run(b, &s, x, 1, y), SEAM_OK);
        tb_free(b);
        free(x), free(y);
        th_free(c.h);
    }
}

Test(kda, swaps_with_its_reference)
{
    swap_live("kda", "kda_ref", WORLD_KDA, "");
}

Test(kda, computes_the_same_with_threads)
{
    threads("kda", WORLD_KDA);
}

Test(kda, refuses_an_unknown_instruction_set)
{
    unknown_isa("kda", WORLD_KDA);
}

Test(kda, fails_cleanly_to_create)
{
    struct world w = { .seed = 13 };
    struct check c = check_of("kda", &w, WORLD_KDA, NULL);

    check_create(&c, "@layer.0.self_attn.f_b_proj");
    th_free(c.h);
}

/* LS-3: log-decay set through dt_bias, f_b zero; every prompt again in chunks,
 * which must not change a bit. */
static void strong_decay(uint32_t isa, const double *g, uint32_t n,
                         uint32_t chunks)
{
    enum { DIM = 16, D = 32 };
    struct world w = {
        .seed = 21, .kda_heads = 1, .kda_dim = DIM, .d = D, .store = TH_F32
    };
    struct check c = check_of("kda", &w, WORLD_KDA, config(isa, ""));
    struct tb *b = make(c.h, "kda", &w, 256, 256);
    struct seam_error err = { 0 };
    double bias[DIM], zero[DIM * DIM] = { 0 };
    double *want = calloc(n * D, sizeof *want);
    float *x = world_input(&w, 5, n), *y = calloc(n * D, sizeof *y);
    struct tb_seq s;

    for (uint32_t i = 0; i < DIM; i++) {
        double share = g[i] / -5;

        bias[i] = share >= 1 ? 60 : log(share / (1 - share));
    }
    tb_free(b);
    th_values(c.h, "@layer.0.self_attn.A_log", TH_F32, 1, 0, zero);
    th_values(c.h, "@layer.0.self_attn.dt_bias", TH_F32, DIM, 0, bias);
    th_values(c.h, "@layer.0.self_attn.f_b_proj", TH_F32, DIM, DIM, zero);
    b = make(c.h, "kda", &w, 256, 256);
    oracle_kda(&w, c.h, 0, x, n, want);
    tb_seq_new(b, &s, 0);
    for (uint32_t k = 0, t = 0; k < chunks; k++) {
        uint32_t end = n * (k + 1) / chunks;

        if (end > t)
            cr_assert_eq(tb_run(b, &s, x + t * D, end - t, y + t * D), SEAM_OK,
                         "%s", err.text);
        t = end;
    }
    cr_expect_lt(th_error(y, want, n * D), 1e-5, "%s: g %g, %u tokens: %g",
                 ISA[isa], g[0], n, th_error(y, want, n * D));
    tb_free(b);
    free(x), free(y), free(want);
    th_free(c.h);
}

Test(kda, stays_exact_at_strong_decay)
{
    static const double level[] = { -0.1, -1.0,  -1.38, -1.40, -2.5,
                                    -2.7, -2.85, -3.0,  -5.0 };
    static const uint32_t length[] = { 1, 15, 16, 17, 63, 64, 65, 200 };
    double g[16];
    struct th_rng r = { 77 };

    EACH_ISA(isa)
    {
        for (uint32_t i = 0; i < 9; i++) {
            for (uint32_t d = 0; d < 16; d++)
                g[d] = level[i];
            strong_decay(isa, g, 64, 1);
            strong_decay(isa, g, 64, 5);
        }
        for (uint32_t d = 0; d < 16; d++)
            g[d] = -5 * th_uniform(&r);
        for (uint32_t i = 0; i < 8; i++)
            strong_decay(isa, g, length[i], 1 + i % 3);
        for (uint32_t d = 0; d < 16; d++)
            g[d] = d == 7 ? -5 : -1e-3;
        for (uint32_t i = 0; i < 8; i++)
            strong_decay(isa, g, length[i], 2);
    }
}

/* ---- Sparse attention ---------------------------------------------------- */

Test(sparse_mla, equals_the_oracle)
{
    static const struct world w[] = {
        { .seed = 1 },
        { .seed = 2, .kpool = 1, .topk = 7 },
        { .seed = 3, .kpool = 2, .topk = 6, .heads = 1, .index_heads = 5 },
        { .seed = 4, .kpool = 8, .topk = 8 },
        { .seed = 5, .topk = 512 },
        { .seed = 6,
          .d = 136,
          .heads = 3,
          .q_lora = 70,
          .kv_lora = 130,
          .nope = 40,
          .v = 24,
          .index_dim = 66 },
        { .seed = 7,
          .d = 72,
          .heads = 2,
          .nope = 24,
          .v = 40,
          .store = TH_BF16 },
        { .seed = 8, .store = TH_FP8 },
        { .seed = 9, .heads = 8, .kv_lora = 32, .index_heads = 33 },
        { .seed = 10, .heads = 20, .kv_lora = 96, .topk = 80 },
        { .seed = 11, .heads = 49, .kv_lora = 64, .d = 40, .index_heads = 64 },
        { .seed = 12,
          .d = 64,
          .heads = 2,
          .q_lora = 64,
          .kv_lora = 96,
          .nope = 32,
          .v = 32,
          .index_dim = 32,
          .store = TH_I8 },
    };

    all_oracles("sparse_mla", WORLD_MLA, w, sizeof w / sizeof *w);
}

Test(sparse_mla, keeps_the_contract)
{
    static const struct world w = { .seed = 11 };

    contract("sparse_mla", WORLD_MLA, &w, 200);
}

/* With what tiles ask for: latents and keys of a multiple of 32, kept rounded. */
Test(sparse_mla, keeps_the_contract_on_tiles)
{
    static const char *const kept[] = { "bf16", "fp8" };

    for (uint32_t k = 0; k < 2; k++) {
        struct world w = {
            .seed = 14, .kv_lora = 32, .index_dim = 32, .index_heads = 17
        };
        char more[32];
        struct check c;

        snprintf(more, sizeof more, ", \"kv_dtype\": \"%s\"", kept[k]);
        c = check_of("sparse_mla", &w, WORLD_MLA,
                     config(runs(TILES) ? TILES : best(), more));
        check_cuts(&c);
        check_accept(&c);
        check_random(&c, 7 + k, 100);
        check_tenant(&c);
        check_padding(&c);
        th_free(c.h);
    }
}

Test(sparse_mla, keeps_the_contract_with_odd_pools)
{
    struct world w = { .seed = 13, .kpool = 3, .topk = 9 };
    struct check c = check_of("sparse_mla", &w, WORLD_MLA, NULL);

    c.page_tokens = 9;
    c.max_draft = 5;
    check_accept(&c);
    check_random(&c, 2, 100);
    th_free(c.h);
}

/* Everything is selected, so that what is measured is the rounding alone. */
Test(sparse_mla, rounds_what_it_keeps_when_told_to)
{
    EACH_ISA(isa)
    for (uint32_t fp8 = 0; fp8 < 2; fp8++) {
        struct world w = { .seed = 1, .topk = 512 };
        struct check c = check_of("sparse_mla", &w, WORLD_MLA,
                                  config(isa, fp8 ? ", \"kv_dtype\": \"fp8\""
                                                  : ", \"kv_dtype\": "
                                                    "\"bf16\""));
        struct tb *b = make(c.h, "sparse_mla", &w, 16, 64);

        cr_expect_eq(b->needs.plane[0].bytes_per_token,
                     fp8 ? w.kv_lora + 4 : 2 * w.kv_lora);
        tb_free(b);
        c.limit = fp8 ? 8e-2 : 1e-2;
        check_oracle(&c);
        check_cuts(&c);
        check_random(&c, 4, 60);
        th_free(c.h);
    }
}

Test(sparse_mla, swaps_with_its_reference)
{
    swap_live("sparse_mla", "sparse_mla_ref", WORLD_MLA, F32_PLANES);
    swap_live("sparse_mla", "sparse_mla_ref", WORLD_MLA,
              ", \"kv_dtype\": \"bf16\"");
    swap_live("sparse_mla", "sparse_mla_ref", WORLD_MLA,
              ", \"kv_dtype\": \"fp8\"");
}

Test(sparse_mla, computes_the_same_with_threads)
{
    threads("sparse_mla", WORLD_MLA);
}

/* A prompt's rows take the spans of their selections one after the other, a
 * single row's spans are tasks: the bits must be the same.  limit 0: leave the
 * slow oracle out. */
static void long_selection(uint32_t isa, const char *kv, double limit)
{
    enum { N = 1200, ALONE = 3 };
    struct world w = {
        .seed = 43, .d = 32, .heads = 3, .topk = 1100, .kpool = 4
    };
    struct check c = check_of("sparse_mla", &w, WORLD_MLA, config(isa, kv));
    struct tb *b = make(c.h, "sparse_mla", &w, 200, 2048);
    float *x = world_input(&w, 5, N), *y = calloc(N * w.d, sizeof *y);
    double *want = calloc((size_t)N * w.d, sizeof *want);
    float alone[ALONE * 32];
    struct tb_seq s;

    tb_seq_new(b, &s, 0);
    for (uint32_t t = 0; t < N; t += 100)
        cr_assert_eq(tb_run(b, &s, x + t * w.d, 100, y + t * w.d), SEAM_OK);
    tb_seq_end(b, &s);
    tb_seq_new(b, &s, 1);
    for (uint32_t t = 0; t < N - 100; t += 100)
        cr_assert_eq(tb_run(b, &s, x + t * w.d, 100, y + t * w.d), SEAM_OK);
    cr_assert_eq(
        tb_run(b, &s, x + (N - 100) * w.d, 100 - ALONE, y + (N - 100) * w.d),
        SEAM_OK);
    for (uint32_t i = 0; i < ALONE; i++)
        cr_assert_eq(
            tb_run(b, &s, x + (N - ALONE + i) * w.d, 1, alone + i * w.d),
            SEAM_OK);
    cr_expect_eq(memcmp(alone, y + (N - ALONE) * w.d, sizeof alone), 0,
                 "%s%s: other bits alone", ISA[isa], kv);
    if (limit > 0)
        oracle_mla(&w, c.h, 0, x, N, want);
    cr_expect(!(limit > 0) || th_error(y, want, (uint64_t)N * w.d) < limit,
              "%s%s: %g", ISA[isa], kv, th_error(y, want, (uint64_t)N * w.d));
    tb_free(b);
    free(x), free(y), free(want);
    th_free(c.h);
}

Test(sparse_mla, shares_the_spans_of_a_long_selection)
{
    EACH_ISA(isa)
    {
        if (isa >= FIRST_INTEGER)
            continue;
        long_selection(isa, F32_PLANES, isa ? 0 : 1e-4);
        long_selection(isa, ", \"kv_dtype\": \"bf16\"", 0);
    }
}

Test(sparse_mla, refuses_an_unknown_instruction_set)
{
    unknown_isa("sparse_mla", WORLD_MLA);
}

Test(sparse_mla, fails_cleanly_to_create)
{
    struct world w = { .seed = 13 };
    struct check c = check_of("sparse_mla", &w, WORLD_MLA, NULL);

    check_create(&c, "@layer.0.self_attn.indexer.wk");
    th_free(c.h);
}

/* ---- Records ------------------------------------------------------------- */

Test(kv_record, e4m3_rounds_to_the_nearest_code)
{
    /* Every code comes back; what lies between two goes to the nearer one, and
     * from the middle to the even one. */
    for (uint32_t b = 0; b < 256; b++) {
        float v = weights_f8e4m3((uint8_t)b), next, middle;

        if ((b & 0x7f) == 0x7f) {
            cr_expect(isnan(v));
            cr_expect_eq(weights_to_f8e4m3(v) & 0x7f, 0x7f);
            continue;
        }
        cr_expect_eq(weights_to_f8e4m3(v), b, "code %u", b);
        if ((b & 0x7f) == 0x7e)
            continue;
        next = weights_f8e4m3((uint8_t)(b + 1));
        middle = (v + next) / 2;
        cr_expect_eq(weights_to_f8e4m3(middle), b + (b & 1), "code %u", b);
        cr_expect_eq(weights_to_f8e4m3(nextafterf(middle, v)), b);
        cr_expect_eq(weights_to_f8e4m3(nextafterf(middle, next)), b + 1);
    }
    cr_expect_eq(weights_to_f8e4m3(1e9f), 0x7e);
    cr_expect_eq(weights_to_f8e4m3(-INFINITY), 0xfe);
}

Test(kv_record, fp8_keeps_its_precision_at_every_magnitude)
{
    unsigned char record[20 + sizeof(float)];
    float v[20];

    for (int e = -100; e <= 100; e++) {
        float top = 0;

        for (uint32_t i = 0; i < 20; i++) {
            v[i] = ldexpf(i % 2 ? -1.0f - (float)i / 20 : 1.9f, e - (int)i % 5);
            top = fmaxf(top, fabsf(v[i]));
        }
        kv_record_put(record, SEAM_F8E4M3, v, 20);
        for (uint32_t i = 0; i < 20; i++) {
            float got = kv_record_at(record, SEAM_F8E4M3, 20, i);

            cr_assert_leq(fabsf(got - v[i]), fabsf(v[i]) / 16,
                          "2^%d: %g kept as %g", e, v[i], got);
        }
        cr_expect_leq(top / kv_record_scale(record, 20), 448);
        cr_expect_gt(top / kv_record_scale(record, 20), 223);
    }
    memset(v, 0, sizeof v);
    kv_record_put(record, SEAM_F8E4M3, v, 20);
    cr_expect_eq(kv_record_at(record, SEAM_F8E4M3, 20, 3), 0);
    for (uint32_t i = 0; i < 2; i++) {
        v[7] = i ? INFINITY : NAN;
        kv_record_put(record, SEAM_F8E4M3, v, 20);
        cr_expect(isnan(kv_record_at(record, SEAM_F8E4M3, 20, 3)));
    }
}

/* Selections of the rows of one forward. */
struct picks {
    int32_t *at;
    uint32_t rows, width;
};

static void keep_picks(void *ctx, uint32_t layer, const char *name,
                       const struct seam_tensor *t)
{
    struct picks *p = ctx;

    cr_assert_eq(layer, 0);
    cr_assert_str_eq(name, "topk_index");
    p->rows = (uint32_t)t->shape[0];
    p->width = (uint32_t)t->shape[1];
    p->at = realloc(p->at, (size_t)p->rows * p->width * sizeof *p->at);
    cr_assert_not_null(p->at);
    for (uint32_t r = 0; r < p->rows; r++)
        memcpy(p->at + (size_t)r * p->width, (char *)t->data + r * t->stride[0],
               p->width * sizeof *p->at);
}

static int by_value(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

    return (x > y) - (x < y);
}

/* A context of many pools, so that scores come in several tasks and passes:
 * the same selection as the reference's in every row.  Keys of 32 numbers that
 * are kept rounded go to tiles. */
Test(sparse_mla, selects_what_its_reference_selects_in_a_long_context)
{
    enum { N = 1500, STEP = 250 };

    static const struct {
        const char *kept;
        uint32_t index_dim, index_heads;
    } of[] = {
        { F32_PLANES, 0, 0 },
        { ", \"kv_dtype\": \"bf16\"", 0, 0 },
        { ", \"kv_dtype\": \"fp8\"", 0, 0 },
        { ", \"kv_dtype\": \"bf16\"", 32, 17 },
        { ", \"kv_dtype\": \"fp8\"", 32, 17 },
    };

    EACH_ISA(isa)
    for (uint32_t k = 0; k < sizeof of / sizeof *of; k++) {
        struct world w = { .seed = 61,
                           .kpool = 2,
                           .topk = 64,
                           .d = 40,
                           .index_dim = of[k].index_dim,
                           .index_heads = of[k].index_heads };
        struct th *h = world_new(&w, WORLD_MLA, config(isa, of[k].kept));
        const char *name[2] = { "sparse_mla", "sparse_mla_ref" };
        float *x = world_input(&w, 5, N), *y[2];
        struct picks p[2] = { 0 };
        struct tb_seq s[2];
        struct tb *b[2];

        for (uint32_t i = 0; i < 2; i++) {
            const struct seam_trace *trace;

            b[i] = make(h, name[i], &w, STEP, N);
            trace = b[i]->p->extension("trace/1");
            trace->set(b[i]->self, &p[i], keep_picks);
            y[i] = calloc(STEP * (size_t)w.d, sizeof *y[i]);
            tb_seq_new(b[i], &s[i], 1);
        }
        for (uint32_t t = 0; t < N; t += STEP) {
            uint32_t other = 0;

            for (uint32_t i = 0; i < 2; i++)
                cr_assert_eq(tb_run(b[i], &s[i], x + t * w.d, STEP, y[i]),
                             SEAM_OK);
            cr_assert_eq(p[0].width, p[1].width);
            for (uint32_t r = 0; r < STEP; r++) {
                int32_t *a = p[0].at + (size_t)r * p[0].width;
                int32_t *c = p[1].at + (size_t)r * p[1].width;

                qsort(a, p[0].width, sizeof *a, by_value);
                qsort(c, p[1].width, sizeof *c, by_value);
                if (memcmp(a, c, p[0].width * sizeof *a)) {
                    other++; /* scores equal but for rounding */
                    continue;
                }
                cr_assert_lt(diff(y[0] + r * w.d, y[1] + r * w.d, w.d),
                             k ? 2e-3 : 2e-5, "%s: row %u: %g", ISA[isa], t + r,
                             diff(y[0] + r * w.d, y[1] + r * w.d, w.d));
            }
            cr_assert_leq(other, 2, "%s: %u rows at %u select other tokens",
                          ISA[isa], other, t);
        }
        for (uint32_t i = 0; i < 2; i++) {
            tb_free(b[i]);
            free(y[i]);
            free(p[i].at);
        }
        free(x);
        th_free(h);
    }
}

/* ---- Experts ------------------------------------------------------------- */

Test(moe_resident, equals_the_oracle)
{
    static const struct world w[] = {
        { .seed = 1 },
        { .seed = 2, .n_group = 4, .topk_group = 2 },
        { .seed = 3, .n_group = 8, .topk_group = 3, .experts = 8 },
        { .seed = 4, .no_shared = true, .plain_topk = true },
        { .seed = 5, .n_shared = 2, .ff = 16 },
        { .seed = 6, .d = 64, .ff = 32, .expert_store = TH_GPTQ },
        { .seed = 7, .d = 160, .ff = 130, .expert_store = TH_FP8 },
        { .seed = 8, .top_k = 8 },
        { .seed = 9, .top_k = 1, .limit = 100 },
        { .seed = 10, .d = 160, .ff = 160, .expert_store = TH_GPTQ },
        { .seed = 11, .d = 136, .ff = 132, .expert_store = TH_BF16 },
        { .seed = 13, .d = 96, .ff = 160, .expert_store = TH_I8 },
        { .seed = 12, .d = 96, .ff = 128, .top_k = 8, .expert_store = TH_GPTQ },
    };

    all_oracles("moe_resident", WORLD_MOE, w, sizeof w / sizeof *w);
}

Test(moe_resident, keeps_the_contract)
{
    static const struct world w = { .seed = 11 };

    contract("moe_resident", WORLD_MOE, &w, 100);
}

Test(moe_resident, keeps_the_contract_with_int4)
{
    static const struct world w = {
        .seed = 12, .d = 96, .ff = 160, .expert_store = TH_GPTQ
    };

    contract("moe_resident", WORLD_MOE, &w, 60);
}

Test(moe_resident, computes_the_same_with_threads)
{
    threads("moe_resident", WORLD_MOE);
}

Test(moe_resident, refuses_an_unknown_instruction_set)
{
    unknown_isa("moe_resident", WORLD_MOE);
}

Test(moe_resident, fails_cleanly_to_create)
{
    struct world w = { .seed = 13 };
    struct check c = check_of("moe_resident", &w, WORLD_MOE, NULL);

    check_create(&c, "@layer.0.mlp.experts.3.up_proj");
    th_free(c.h);
}

struct routes {
    float logits[64 * 16], weights[64 * 16];
    int32_t index[64 * 16];
    uint32_t rows, top_k;
};

static void keep_routes(void *ctx, uint32_t layer, const char *name,
                        const struct seam_tensor *t)
{
    struct routes *r = ctx;
    uint64_t bytes = (uint64_t)(t->shape[0] * t->shape[1]) * 4;

    cr_assert_eq(layer, 0);
    cr_assert_leq(bytes, sizeof r->logits);
    r->rows = (uint32_t)t->shape[0];
    if (!strcmp(name, "router_logits")) {
        memcpy(r->logits, t->data, bytes);
    } else if (!strcmp(name, "router_weights")) {
        memcpy(r->weights, t->data, bytes);
        r->top_k = (uint32_t)t->shape[1];
    } else {
        cr_assert_str_eq(name, "router_index");
        memcpy(r->index, t->data, bytes);
    }
}

Test(moe_resident, routes_as_its_reference_does)
{
    const char *name[2] = { "moe_resident", "moe_resident_ref" };
    struct world w = { .seed = 71, .n_group = 4, .topk_group = 2 };
    struct th *h = world_new(&w, WORLD_MOE, NULL);
    float *x = world_input(&w, 5, 20), y[20 * 64];
    static struct routes r[2];

    cr_assert_leq(w.d, 64);
    for (uint32_t i = 0; i < 2; i++) {
        struct tb *b = make(h, name[i], &w, 32, 64);
        struct tb_seq s;

        ((const struct seam_trace *)b->p->extension("trace/1"))
            ->set(b->self, &r[i], keep_routes);
        tb_seq_new(b, &s, 0);
        b->tail_pad = 2;
        cr_assert_eq(tb_run(b, &s, x, 20, y), SEAM_OK);
        tb_free(b);
    }
    cr_assert_eq(r[0].rows, 22);
    cr_assert_eq(r[0].top_k, r[1].top_k);
    cr_expect_lt(th_diff(r[0].logits, r[1].logits, 22 * w.experts), 1e-5);
    cr_expect_lt(th_diff(r[0].weights, r[1].weights, 22 * r[0].top_k), 1e-5);
    cr_expect_eq(memcmp(r[0].index, r[1].index, 22 * r[0].top_k * 4), 0);
    free(x);
    th_free(h);
}
