#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "core/checkpoint/inventory.h"
#include "core/checkpoint/plan.h"

/* The released model: 45 layers, every fourth with sparse attention. */
static struct seam_model_config released(void)
{
    struct seam_model_config m = {
        .hidden = 4096,
        .vocab = 154880,
        .n_layers = 45,
        .n_mtp = 1,
        .max_context = 1048576,
        .kv_lora = 512,
        .index_dim = 128,
        .index_kpool = 4,
        .kda_heads = 64,
        .kda_dim = 128,
        .kda_conv = 4,
    };

    for (uint32_t l = 0; l <= m.n_layers; l++)
        m.layer_kind[l] = l % 4 == 3 || l == m.n_layers ? SEAM_LAYER_SPARSE
                                                        : SEAM_LAYER_LINEAR;
    return m;
}

Test(plan, gives_the_figures_of_the_model_spec)
{
    struct seam_model_config m = released();
    struct seam_plan p =
        seam_plan_of(&m, SEAM_BF16, SEAM_BF16, SEAM_BF16, SEAM_F32);

    cr_expect_eq(p.latent_per_token, 11264);
    cr_expect_eq(p.index_per_token, 704);
    cr_expect_eq(p.per_token, 11968);
    cr_expect_eq(p.per_token_mtp, 13056);
    cr_expect_eq(p.kda_per_seq, 142606336);
    cr_expect_eq(p.conv_per_seq, 5013504);
    cr_expect_eq(p.ring_per_seq, 22528);
    cr_expect_eq(p.ring_mtp, 2048);
    cr_expect_eq(p.per_seq, 147642368);
    cr_expect_eq(m.max_context * p.per_token, 12549357568u);
    cr_expect_eq(m.max_context * p.per_token_mtp, 13690208256u);
}

Test(plan, follows_the_dtypes)
{
    struct seam_model_config m = released();
    struct seam_plan p =
        seam_plan_of(&m, SEAM_BF16, SEAM_F8E4M3, SEAM_BF16, SEAM_BF16);

    cr_expect_eq(p.index_per_token, 363);
    cr_expect_eq(p.per_token, 11627);
    cr_expect_eq(p.kda_per_seq, 71303168);
    p = seam_plan_of(&m, SEAM_F8E4M3, SEAM_F8E4M3, SEAM_F32, SEAM_F32);
    cr_expect_eq(p.latent_per_token, 11 * (512 + 4));
    cr_expect_eq(p.index_per_token, 363);
    p = seam_plan_of(&m, SEAM_F32, SEAM_F32, SEAM_F32, SEAM_F32);
    cr_expect_eq(p.per_token, 2 * 11968);
    cr_expect_eq(p.conv_per_seq, 2 * 5013504);
    cr_expect_eq(p.ring_per_seq, 2 * 22528);
}

static struct seam_checkpoint *opened(const char *dir)
{
    struct seam_checkpoint *c = NULL;
    struct seam_error err;
    char path[512];

    snprintf(path, sizeof path, SEAM_TEST_SOURCE_DIR "/%s", dir);
    cr_assert_eq(seam_checkpoint_open(&c, path, NULL, NULL, NULL, &err), 0,
                 "%s", err.text);
    return c;
}

static char *report_with(const char *dir, uint64_t budget,
                         enum seam_dense_form form)
{
    struct seam_checkpoint *c = opened(dir);
    struct seam_buf b = { 0 };

    seam_inspect(c, budget, form, &b);
    seam_checkpoint_close(c);
    cr_assert_not(b.failed);
    return b.p;
}

static char *report(const char *dir, uint64_t budget)
{
    return report_with(dir, budget, SEAM_DENSE_STORED);
}

static void expect_lines(char *text, const char *const *lines)
{
    for (; *lines; lines++)
        cr_expect(strstr(text, *lines), "no \"%s\" in\n%s", *lines, text);
    free(text);
}

Test(inspect, tells_parts_dtypes_and_plan)
{
    static const char *const lines[] = {
        "8 layers (6 linear, 2 sparse attention; 3 dense, 5 MoE), MTP block",
        "quantisation  auto-round, auto_round:auto_gptq, 4 bits, groups of 128",
        "1108 indexed in 2 files: 21612192 bytes (20.61 MiB)",
        "routed experts      I32              480           3962880",
        "routed experts      F16              240            122880",
        "MTP block           I32               96            792576",
        "per token                                 1152           576           298",
        /* 6 layers x 4 heads x 64 x 64 values of 4 bytes */
        "linear state, per sequence              393216",
        NULL,
    };

    expect_lines(report("models/nano/w4a16", 0), lines);
}

Test(inspect, fits_sequences_into_a_budget)
{
    /* Room for the weights and 100 sequences of 1024 tokens to the byte:
     * in bf16 a token takes 3 x (256 + 32) bytes; a sequence takes 393,216 of
     * linear state, 6 x 768 x 3 x 4 of convolution and 3 x 2,048 of rings. */
    const uint64_t one = 1024 * 864 + 393216 + 55296 + 6144;
    static const char *const fit[] = {
        "leaves 133939200 ",
        "sequences of 1024 tokens                    60           100 ",
        "tokens of one sequence                   16384         16384 ",
        NULL,
    };
    static const char *const short_by_one[] = {
        "sequences of 1024 tokens                    60            99 ",
        NULL,
    };
    static const char *const too_small[] = {
        "is less than the weights need: 21611192 (20.61 MiB) are missing",
        NULL,
    };

    cr_assert_eq(100 * one, 133939200);
    expect_lines(report("models/nano/w4a16", 21612192 + 100 * one), fit);
    expect_lines(report("models/nano/w4a16", 21612192 + 100 * one - 1),
                 short_by_one);
    expect_lines(report("models/nano/w4a16", 1000), too_small);
}

Test(inspect, says_that_the_mtp_block_is_missing)
{
    static const char *const lines[] = { "no MTP block", "quantisation  none",
                                         NULL };

    expect_lines(report("tests/golden/tiny-bf16", 0), lines);
}

static void one_by_one(void *ctx, uint32_t n, seam_task *fn, void *arg)
{
    (void)ctx;
    for (uint32_t i = 0; i < n; i++)
        fn(arg, i, 0);
}

static int ask_for(void *ctx, const struct seam_expected *e)
{
    struct seam_tensor t;
    struct seam_error err;

    if (e->cls == SEAM_CLASS_LINEAR)
        cr_expect_eq(seam_checkpoint_weight(ctx, e->name, &t, &err), 0, "%s",
                     err.text);
    return 0;
}

Test(inspect, plans_what_weights_dense_makes)
{
    static const char *const dir[] = { "models/nano/w4a16",
                                       "tests/golden/tiny-bf16" };
    static const char *const name[] = { "bf16", "int8", "int4" };

    for (uint32_t i = 0; i < 2; i++)
        for (uint32_t f = 0; f < 3; f++) {
            struct seam_checkpoint *c = opened(dir[i]);
            const struct seam_model_config *m = seam_checkpoint_config(c);
            struct seam_checkpoint_dense plan, made;

            seam_dense_plan(c, (enum seam_dense_form)f, &plan);
            seam_checkpoint_quantise(c, name[f], one_by_one, NULL);
            seam_inventory(m, 0, m->n_layers, true, ask_for, c);
            seam_checkpoint_dense(c, &made);
            cr_expect_eq(plan.bytes, made.bytes, "%s %s: %llu, made %llu",
                         dir[i], name[f], (unsigned long long)plan.bytes,
                         (unsigned long long)made.bytes);
            cr_expect_eq(plan.stored_bytes, made.stored_bytes);
            cr_expect_eq(plan.n_i8, made.n_i8);
            cr_expect_eq(plan.n_i4, made.n_i4);
            cr_expect_eq(plan.bytes > 0, f > 0);
            seam_checkpoint_close(c);
        }
}

Test(inspect, fits_a_budget_beside_quantised_weights)
{
    struct seam_checkpoint *c = opened("models/nano/w4a16");
    struct seam_checkpoint_dense d;
    char line[3][128];
    const char *lines[4] = { line[0], line[1], line[2], NULL };
    uint64_t in_use;

    seam_dense_plan(c, SEAM_DENSE_I4, &d);
    seam_checkpoint_close(c);
    in_use = 21612192 - d.stored_bytes + d.bytes;
    snprintf(line[0], sizeof line[0], "int4%20llu%8llu%18llu%18llu%18llu\n",
             (unsigned long long)d.n_i8, (unsigned long long)d.n_i4,
             (unsigned long long)d.bytes, (unsigned long long)d.stored_bytes,
             (unsigned long long)in_use);
    snprintf(line[1], sizeof line[1], "leaves 1000000 ");
    /* and as it is stored, which the budget is not about */
    snprintf(line[2], sizeof line[2], "bf16%20d%8d%18d%18d%18d\n", 0, 0, 0, 0,
             21612192);
    expect_lines(
        report_with("models/nano/w4a16", in_use + 1000000, SEAM_DENSE_I4),
        lines);
}
