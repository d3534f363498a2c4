#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "folder.h"

#define TINY   "tests/golden/tiny-w4a16"
#define PLAIN  "tests/golden/tiny-bf16"
#define P      "model.language_model."
#define MODULE P "layers.3.mlp.experts.5.up_proj"

static struct seam_tensor weight(struct seam_checkpoint *c, const char *name)
{
    struct seam_error err;
    struct seam_tensor t;

    memset(&t, 0xa5, sizeof t);
    cr_assert_eq(seam_checkpoint_weight(c, name, &t, &err), 0, "%s", err.text);
    cr_expect_eq(t.device, -1);
    cr_expect_eq(t.reserved, 0);
    return t;
}

static float bf16(uint16_t v)
{
    uint32_t u = (uint32_t)v << 16;
    float f;

    memcpy(&f, &u, 4);
    return f;
}

/* ---- Plain -------------------------------------------------------------- */

Test(weight, answers_roles_modules_and_full_names)
{
    static const struct {
        const char *name, *full;
        uint32_t rank;
        int64_t shape[3];
    } all[] = {
        { "@embed", P "embed_tokens.weight", 2, { 640, 128 } },
        { "@head", "lm_head.weight", 2, { 640, 128 } },
        { "@norm", P "norm.weight", 1, { 128 } },
        { "@layer.3.self_attn.kv_b_proj",
          P "layers.3.self_attn.kv_b_proj.weight",
          2,
          { 320, 128 } },
        { "@layer.3.self_attn.kv_b_proj.weight",
          P "layers.3.self_attn.kv_b_proj.weight",
          2,
          { 320, 128 } },
        { P "layers.3.self_attn.kv_b_proj",
          P "layers.3.self_attn.kv_b_proj.weight",
          2,
          { 320, 128 } },
        { "@layer.0.self_attn.A_log", P "layers.0.self_attn.A_log", 1, { 4 } },
        { "@layer.0.self_attn.k_conv1d.weight",
          P "layers.0.self_attn.k_conv1d.weight",
          3,
          { 128, 1, 4 } },
        { "@layer.7.hc_ffn_fn", P "layers.7.hc_ffn_fn", 2, { 24, 512 } },
    };
    struct folder f;
    struct seam_checkpoint *c;

    folder_make(&f, PLAIN, true);
    c = folder_open(&f);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct seam_tensor t = weight(c, all[i].name);
        const struct seam_st_tensor *s;
        const unsigned char *data;
        uint32_t element;

        s = seam_checkpoint_find(c, all[i].full, &data);
        cr_assert_not_null(s, "%s", all[i].full);
        element = seam_dtype_bits(s->dtype) / 8;
        cr_expect_eq(t.data, data);
        cr_expect_eq(t.bytes, s->bytes);
        cr_expect_eq(t.dtype, s->dtype);
        cr_expect_eq(t.quant, SEAM_Q_NONE);
        cr_expect(!t.scale && !t.zero);
        cr_expect_eq(t.rank, all[i].rank);
        for (uint32_t k = 0; k < t.rank; k++)
            cr_expect_eq(t.shape[k], all[i].shape[k], "%s", all[i].name);
        if (t.rank == 2)
            cr_expect_eq(t.stride[0], t.shape[1] * element);
        if (t.rank == 3) {
            cr_expect_eq(t.stride[1], t.shape[2] * element);
            cr_expect_eq(t.stride[0], t.shape[1] * t.stride[1]);
        }
    }
    seam_checkpoint_close(c);
    folder_remove(&f);
}

Test(weight, says_what_it_does_not_know)
{
    static const char *const bad[] = {
        "@",
        "@layer",
        "@layer.",
        "@layer.x.norm",
        "@layer.-1.norm",
        "@layer.8.input_layernorm.weight",
        "@layer.18446744073709551616.x",
        "@layer.3",
        "@layer.3.",
        "@Embed",
        "",
        "nothing.of.that.name",
        "@layer.0.self_attn.q_a_proj",
    };
    struct folder f;
    struct seam_checkpoint *c;
    struct seam_tensor t, was;
    struct seam_error err;
    char *long_name = malloc(100001);

    folder_make(&f, PLAIN, true);
    c = folder_open(&f);
    memset(&t, 0xa5, sizeof t);
    was = t;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        cr_expect_eq(seam_checkpoint_weight(c, bad[i], &t, &err), SEAM_ENOENT,
                     "%s", bad[i]);
        cr_expect_neq(err.text[0], 0);
    }
    memset(long_name, 'a', 100000);
    long_name[100000] = 0;
    cr_expect_eq(seam_checkpoint_weight(c, long_name, &t, &err), SEAM_ENOENT);
    cr_expect_eq(memcmp(&t, &was, sizeof t), 0, "untouched on failure");
    free(long_name);
    seam_checkpoint_close(c);
    folder_remove(&f);
}

Test(weight, folds_high_ranks_and_gives_scalars_one_dimension)
{
    static const struct put odd[] = {
        { "five", "F32", 5, { 2, 3, 2, 5, 7 }, NULL, 1680 },
        { "scalar", "BF16", 0, { 0 }, NULL, 2 },
        { "none", "F32", 2, { 0, 3 }, NULL, 0 },
    };
    struct folder f;
    struct seam_checkpoint *c;
    struct seam_tensor t;

    folder_make(&f, PLAIN, true);
    folder_put(&f, "odd.safetensors", odd, 3, 0, true);
    c = folder_open(&f);
    t = weight(c, "five");
    cr_expect_eq(t.rank, 4);
    cr_expect(t.shape[0] == 6 && t.shape[1] == 2 && t.shape[2] == 5 &&
              t.shape[3] == 7);
    cr_expect(t.stride[2] == 28 && t.stride[1] == 140 && t.stride[0] == 280);
    t = weight(c, "scalar");
    cr_expect(t.rank == 1 && t.shape[0] == 1 && t.bytes == 2);
    t = weight(c, "none");
    cr_expect(t.rank == 2 && t.shape[0] == 0 && t.bytes == 0);
    seam_checkpoint_close(c);
    folder_remove(&f);
}

/* ---- Four bits ---------------------------------------------------------- */

/* One weight as plugin.h defines SEAM_Q_GPTQ. */
static float gptq(const struct seam_tensor *t, int64_t n, int64_t i)
{
    const uint32_t *q = t->data, *z = t->zero;
    const uint16_t *s = t->scale;
    int64_t g = i / t->group_cols, n_out = t->shape[0];
    int value = (int)(q[i / 8 * n_out + n] >> 4 * (i % 8) & 15);
    int zero = (int)(z[g * (n_out / 8) + n / 8] >> 4 * (n % 8) & 15);
    uint16_t h = s[g * n_out + n];
    float scale = (float)ldexp((h & 0x3ff) + (h >> 10 & 31 ? 1024 : 0),
                               (h >> 10 & 31 ? (h >> 10 & 31) : 1) - 25);

    return (h & 0x8000 ? -scale : scale) * (float)(value - (zero + 1));
}

Test(weight, four_bit_layers_stand_in_the_file)
{
    struct folder f;
    struct seam_checkpoint *c, *plain = NULL;
    struct seam_tensor t, w;
    struct seam_error err;
    const unsigned char *data;
    double diff = 0, norm = 0;

    folder_make(&f, TINY, true);
    c = folder_open(&f);
    t = weight(c, "@layer.3.mlp.experts.5.up_proj");
    cr_expect(t.dtype == SEAM_I4 && t.quant == SEAM_Q_GPTQ && t.rank == 2);
    cr_expect(t.shape[0] == 128 && t.shape[1] == 128);
    cr_expect_eq(t.bytes, 128 * 128 / 2);
    cr_expect(t.group_rows == 1 && t.group_cols == 128);
    cr_expect_eq(t.scale_dtype, SEAM_F16);
    seam_checkpoint_find(c, MODULE ".qweight", &data);
    cr_expect_eq(t.data, data);
    seam_checkpoint_find(c, MODULE ".scales", &data);
    cr_expect_eq(t.scale, data);
    seam_checkpoint_find(c, MODULE ".qzeros", &data);
    cr_expect_eq(t.zero, data);

    /* The layout is understood: it resembles the unquantised weights. */
    cr_assert_eq(seam_checkpoint_open(&plain, SEAM_TEST_SOURCE_DIR "/" PLAIN,
                                      NULL, NULL, NULL, &err),
                 0);
    w = weight(plain, "@layer.3.mlp.experts.5.up_proj");
    for (int64_t n = 0; n < 128; n++)
        for (int64_t i = 0; i < 128; i++) {
            double a = bf16(((const uint16_t *)w.data)[n * 128 + i]);

            diff += pow(a - gptq(&t, n, i), 2);
            norm += a * a;
        }
    cr_expect_lt(sqrt(diff / norm), 0.15, "relative error %g",
                 sqrt(diff / norm));
    seam_checkpoint_close(plain);
    seam_checkpoint_close(c);
    folder_remove(&f);
}

static void label(const struct folder *f, const char *format)
{
    char quant[256];

    snprintf(quant, sizeof quant,
             "{\"quant_method\":\"gptq\",\"bits\":4,"
             "\"group_size\":128,\"sym\":true%s%s%s}",
             format ? ",\"checkpoint_format\":\"" : "", format ? format : "",
             format ? "\"" : "");
    folder_config(f, false, "quantization_config", quant);
}

Test(weight, zero_points_are_taken_for_what_they_are)
{
    static const struct {
        const char *label; /* checkpoint_format; "auto": AutoRound            */
        uint32_t word;
        bool warns;
    } all[] = {
        { "auto", 0x77777777, false },   { "auto", 0x88888888, true },
        { NULL, 0x77777777, false },     { NULL, 0x88888888, true },
        { "gptq", 0x77777777, false },   { "gptq", 0x88888888, true },
        { "gptq_v2", 0x77777777, true }, { "gptq_v2", 0x88888888, false },
    };

    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++) {
        uint32_t eights[2048], words[16];
        struct seam_checkpoint *c;
        struct seam_tensor t;
        struct folder f;

        memset(eights, 0x88, sizeof eights);
        for (int i = 0; i < 16; i++)
            words[i] = all[k].word;
        folder_make(&f, TINY, false);
        folder_patch(&f, MODULE ".qweight", 0, eights, sizeof eights);
        folder_patch(&f, MODULE ".qzeros", 0, words, sizeof words);
        folder_patch(&f, P "layers.4.mlp.experts.0.down_proj.qzeros", 0, words,
                     sizeof words);
        if (!all[k].label || strcmp(all[k].label, "auto"))
            label(&f, all[k].label);
        c = folder_open(&f);
        t = weight(c, MODULE);
        for (int64_t n = 0; n < 128; n++)
            for (int64_t i = 0; i < 128; i++)
                cr_assert_eq(gptq(&t, n, i), 0, "case %zu: [%lld][%lld] = %g",
                             k, (long long)n, (long long)i, gptq(&t, n, i));
        weight(c, MODULE);
        weight(c, "@layer.4.mlp.experts.0.down_proj");
        cr_expect_eq(folder_count(folder_said(&f), " warn "), all[k].warns,
                     "case %zu: %s", k, f.said);
        cr_expect_eq(folder_count(f.said, MODULE ".qzeros"), all[k].warns);
        seam_checkpoint_close(c);
        folder_remove(&f);
    }
}

Test(weight, refuses_zero_points_that_are_mixed_or_asymmetric)
{
    static const struct {
        uint32_t word, at;
        const char *says;
    } all[] = {
        { 0x88888888, 15, "0x77777777 and 0x88888888 are mixed" },
        { 0x88888888, 0, "mixed" },
        { 0x77777778, 7, "0x77777777 and 0x77777778 are mixed" },
        { 0x00000000, 0, "zero points 0x00000000, expected 0x77777777 or" },
    };

    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++) {
        struct seam_checkpoint *c;
        struct seam_tensor t;
        struct seam_error err;
        struct folder f;

        folder_make(&f, TINY, false);
        folder_patch(&f, MODULE ".qzeros", 4 * all[k].at, &all[k].word, 4);
        c = folder_open(&f);
        cr_expect_eq(seam_checkpoint_weight(c, MODULE, &t, &err), SEAM_EDATA);
        cr_expect(strstr(err.text, MODULE ".qzeros") &&
                      strstr(err.text, all[k].says),
                  "%s", err.text);
        weight(c, "@layer.3.mlp.experts.6.up_proj");
        seam_checkpoint_close(c);
        folder_remove(&f);
    }
}

Test(weight, group_order_may_be_spelled_out_but_not_changed)
{
    int32_t order[128] = { 0 };
    struct put g = { MODULE ".g_idx", "I32", 1, { 128 }, order, sizeof order };
    struct seam_checkpoint *c;
    struct seam_error err;
    struct seam_tensor t;
    struct folder f;

    folder_make(&f, TINY, true);
    folder_put(&f, "order.safetensors", &g, 1, 0, true);
    c = folder_open(&f);
    weight(c, MODULE);
    cr_expect_null(strstr(folder_said(&f), "no use for"));
    seam_checkpoint_close(c);
    order[100] = 1;
    folder_put(&f, "order.safetensors", &g, 1, 0, true);
    c = folder_open(&f);
    cr_expect_eq(seam_checkpoint_weight(c, MODULE, &t, &err), SEAM_EDATA);
    cr_expect(strstr(err.text, "reorders inputs"), "%s", err.text);
    seam_checkpoint_close(c);
    g.shape[0] = 64;
    g.bytes = 256;
    folder_put(&f, "order.safetensors", &g, 1, 0, true);
    c = folder_open(&f);
    cr_expect_eq(seam_checkpoint_weight(c, MODULE, &t, &err), SEAM_EDATA);
    cr_expect(strstr(err.text, "expected I32 [128]"), "%s", err.text);
    seam_checkpoint_close(c);
    folder_remove(&f);
}

/* ---- Eight bits --------------------------------------------------------- */

static float e4m3(uint8_t v)
{
    int e = v >> 3 & 15, m = v & 7;
    float f = e ? ldexpf((float)(8 + m), e - 10) : ldexpf((float)m, -9);

    return v & 0x80 ? -f : f;
}

/* The code nearest to x; 0x7f and 0xff are NaN. */
static uint8_t to_e4m3(float x)
{
    uint8_t best = 0;

    for (int v = 0; v < 256; v++)
        if ((v & 0x7f) != 0x7f &&
            fabsf(e4m3((uint8_t)v) - x) < fabsf(e4m3(best) - x))
            best = (uint8_t)v;
    return best;
}

/* An FP8 copy of a plain matrix, as the FP8 release stores it. */
struct fp8 {
    char name[160], scale_name[160];
    int64_t rows, cols;
    uint8_t *q;      /* [rows][cols]                                          */
    float *scale;    /* [ceil(rows/128)][ceil(cols/128)]                      */
    float *original; /* [rows][cols]                                          */
    struct put put[2];
};

static void fp8_of(struct fp8 *x, struct seam_checkpoint *c, const char *name)
{
    const struct seam_st_tensor *t;
    const unsigned char *data;
    int64_t br, bc;

    t = seam_checkpoint_find(c, name, &data);
    cr_assert_not_null(t);
    snprintf(x->name, sizeof x->name, "%s", name);
    snprintf(x->scale_name, sizeof x->scale_name, "%s_scale_inv", name);
    x->rows = t->shape[0];
    x->cols = t->shape[1];
    br = (x->rows + 127) / 128;
    bc = (x->cols + 127) / 128;
    x->q = malloc((size_t)(x->rows * x->cols));
    x->original = malloc((size_t)(x->rows * x->cols) * sizeof(float));
    x->scale = calloc((size_t)(br * bc), sizeof(float));
    for (int64_t r = 0; r < x->rows; r++)
        for (int64_t k = 0; k < x->cols; k++) {
            float *s = &x->scale[r / 128 * bc + k / 128];
            float v =
                bf16(((const uint16_t *)(const void *)data)[r * x->cols + k]);

            x->original[r * x->cols + k] = v;
            if (fabsf(v) / 448 > *s)
                *s = fabsf(v) / 448;
        }
    for (int64_t r = 0; r < x->rows; r++)
        for (int64_t k = 0; k < x->cols; k++)
            x->q[r * x->cols + k] = to_e4m3(x->original[r * x->cols + k] /
                                            x->scale[r / 128 * bc + k / 128]);
    x->put[0] = (struct put){ x->name, "F8_E4M3",
                              2,       { x->rows, x->cols },
                              x->q,    (uint64_t)(x->rows * x->cols) };
    x->put[1] = (struct put){
        x->scale_name, "F32",    2,
        { br, bc },    x->scale, (uint64_t)(br * bc) * sizeof(float)
    };
}

static void fp8_free(struct fp8 *x)
{
    free(x->q);
    free(x->scale);
    free(x->original);
}

Test(weight, eight_bit_layers_come_with_their_block_scales)
{
    static const char *const names[] = {
        P "layers.3.self_attn.kv_b_proj.weight", /* [320, 128], blocks 3 x 1 */
        P "layers.0.mlp.down_proj.weight",       /* [128, 256], blocks 1 x 2 */
        P "layers.3.mlp.experts.5.up_proj.weight",
        "lm_head.weight",
    };
    struct seam_checkpoint *c;
    struct folder f;

    folder_make(&f, PLAIN, true);
    folder_config(&f, false, "quantization_config",
                  "{\"quant_method\":\"fp8\",\"fmt\":\"e4m3\","
                  "\"activation_scheme\":\"dynamic\","
                  "\"weight_block_size\":[128,128]}");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char shard[32], module[160];
        struct seam_tensor t;
        struct fp8 x;
        float worst = 0;

        c = folder_open(&f);
        fp8_of(&x, c, names[i]);
        seam_checkpoint_close(c);
        snprintf(shard, sizeof shard, "fp8-%zu.safetensors", i);
        folder_put(&f, shard, x.put, 2, 0, true);
        c = folder_open(&f);
        snprintf(module, sizeof module, "%.*s",
                 (int)(strlen(names[i]) - strlen(".weight")), names[i]);
        t = weight(c, module);
        cr_expect(t.dtype == SEAM_F8E4M3 && t.quant == SEAM_Q_GROUP);
        cr_expect(t.rank == 2 && t.shape[0] == x.rows && t.shape[1] == x.cols);
        cr_expect_eq(t.stride[0], x.cols);
        cr_expect_eq(t.bytes, (uint64_t)(x.rows * x.cols));
        cr_expect(t.group_rows == 128 && t.group_cols == 128);
        cr_expect_eq(t.scale_dtype, SEAM_F32);
        cr_expect_null(t.zero);
        cr_assert_eq(memcmp(t.data, x.q, t.bytes), 0);
        for (int64_t r = 0; r < x.rows; r++)
            for (int64_t k = 0; k < x.cols; k++) {
                float s =
                    ((const float *)
                         t.scale)[r / 128 * ((x.cols + 127) / 128) + k / 128];
                float w = e4m3(((const uint8_t *)t.data)[r * x.cols + k]) * s;
                float d = fabsf(w - x.original[r * x.cols + k]);

                /* Half a step of three mantissa bits, or of the smallest
                 * subnormal. */
                if (d - ldexpf(s, -10) > worst * fabsf(w))
                    worst = fabsf(w) > 0 ? (d - ldexpf(s, -10)) / fabsf(w) : 9;
            }
        cr_expect_leq(worst, 1.0f / 16, "%s: relative error %g", names[i],
                      (double)worst);
        cr_expect_null(strstr(folder_said(&f), "no use for"), "%s", f.said);
        seam_checkpoint_close(c);
        fp8_free(&x);
    }
    folder_remove(&f);
}

Test(weight, eight_bit_layers_need_scales_of_the_right_shape)
{
    struct seam_checkpoint *c;
    struct seam_error err;
    struct folder f;
    struct fp8 x;

    folder_make(&f, PLAIN, true);
    c = folder_open(&f);
    fp8_of(&x, c, P "layers.3.self_attn.kv_b_proj.weight");
    seam_checkpoint_close(c);
    x.put[1].shape[0] = 1;
    x.put[1].shape[1] = 3;
    folder_put(&f, "fp8.safetensors", x.put, 2, 0, true);
    cr_expect_eq(folder_try(&f, &err), SEAM_EDATA);
    cr_expect(strstr(err.text, "kv_b_proj.weight_scale_inv\": shape [1, 3], "
                               "expected [3, 1]"),
              "%s", err.text);
    x.put[1] = (struct put){ x.scale_name, "I32", 2, { 3, 1 }, NULL, 12 };
    folder_put(&f, "fp8.safetensors", x.put, 2, 0, true);
    cr_expect_eq(folder_try(&f, &err), SEAM_EDATA);
    cr_expect(strstr(err.text, "dtype I32, expected F32 or BF16"), "%s",
              err.text);
    fp8_free(&x);
    folder_remove(&f);
}

Test(weight, misaligned_quantised_layers_are_copied_whole)
{
    static const char *const parts[] = { MODULE ".qweight", MODULE ".qzeros",
                                         MODULE ".scales" };
    struct seam_checkpoint *c;
    struct seam_tensor t, was;
    struct put put[3];
    struct folder f;

    folder_make(&f, TINY, true);
    c = folder_open(&f);
    was = weight(c, MODULE);
    for (int i = 0; i < 3; i++) {
        const unsigned char *data;
        const struct seam_st_tensor *s;

        s = seam_checkpoint_find(c, parts[i], &data);
        put[i] = (struct put){ parts[i], seam_dtype_name(s->dtype),
                               2,        { s->shape[0], s->shape[1] },
                               data,     s->bytes };
    }
    folder_put(&f, "odd.safetensors", put, 3, 1, true);
    {
        struct seam_checkpoint *odd = folder_open(&f);

        t = weight(odd, MODULE);
        cr_expect_eq((uintptr_t)t.data % 4, 0);
        cr_expect_eq((uintptr_t)t.zero % 4, 0);
        cr_expect_eq((uintptr_t)t.scale % 2, 0);
        for (int64_t n = 0; n < 128; n += 7)
            for (int64_t i = 0; i < 128; i += 5)
                cr_expect_eq(gptq(&t, n, i), gptq(&was, n, i));
        seam_checkpoint_close(odd);
    }
    seam_checkpoint_close(c);
    folder_remove(&f);
}

/* ---- Weights that are lost ---------------------------------------------- */

Test(weight, a_shard_cut_while_it_is_in_use_is_lost_and_kills_nobody)
{
    struct seam_checkpoint *c;
    struct seam_tensor t;
    struct folder f;
    char shard[256];
    uint64_t sum = 0;

    folder_make(&f, PLAIN, false);
    folder_shard_of(&f, "lm_head.weight", shard);
    c = folder_open(&f);
    t = weight(c, "@head");
    cr_expect_null(seam_checkpoint_lost(c));
    cr_assert_eq(truncate(folder_path(&f, shard), 4096), 0);
    for (uint64_t i = 0; i < t.bytes; i++)
        sum += ((const volatile unsigned char *)t.data)[i];
    cr_expect_eq(sum, 0, "zeros are read");
    cr_assert_not_null(seam_checkpoint_lost(c));
    cr_expect_str_eq(seam_checkpoint_lost(c), shard);
    seam_checkpoint_close(c);

    /* Another checkpoint does not inherit the loss. */
    cr_assert_eq(seam_checkpoint_open(&c, SEAM_TEST_SOURCE_DIR "/" PLAIN, NULL,
                                      NULL, NULL, NULL),
                 0);
    cr_expect_null(seam_checkpoint_lost(c));
    seam_checkpoint_close(c);
    folder_remove(&f);
}
