#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "core/base/json.h"
#include "core/checkpoint/model_config.h"

static json_t *loaded(const char *dir)
{
    struct seam_error err;
    char path[512];
    json_t *v;

    snprintf(path, sizeof path, SEAM_TEST_SOURCE_DIR "/%s/config.json", dir);
    v = seam_json_file(path, 1 << 20, &err);
    cr_assert_not_null(v, "%s", err.text);
    return v;
}

/* The object at "a.b", or the root for "". */
static json_t *section(json_t *root, const char *path)
{
    char part[64];

    while (*path) {
        size_t n = strcspn(path, ".");

        snprintf(part, sizeof part, "%.*s", (int)n, path);
        root = json_object_get(root, part);
        path += n + (path[n] == '.');
    }
    return root;
}

struct change {
    const char *in, *key, *value; /* value NULL: delete the key               */
    const char *says;             /* of the refusal; NULL: accepted           */
};

static void apply(json_t *root, const struct change *c)
{
    json_t *o = section(root, c->in);
    json_error_t je;

    cr_assert_not_null(o, "%s", c->in);
    if (!c->value) {
        cr_assert_eq(json_object_del(o, c->key), 0, "%s", c->key);
        return;
    }
    cr_assert_eq(
        json_object_set_new(
            o, c->key,
            json_loads(c->value, JSON_DECODE_ANY | JSON_ALLOW_NUL, &je)),
        0, "%s: %s", c->value, je.text);
}

/* Each change alone, to the config of dir. */
static void check(const char *dir, const struct change *c, size_t n)
{
    for (size_t i = 0; i < n; i++, c++) {
        json_t *root = loaded(dir);
        struct seam_model_config m;
        struct seam_error err = { 0 };
        char where[128];
        int rc;

        apply(root, c);
        rc = seam_model_config_read(&m, "config.json", root, &err);
        if (!c->says) {
            cr_expect_eq(rc, 0, "%s %s = %s: %s", c->in, c->key,
                         c->value ? c->value : "(deleted)", err.text);
        } else {
            cr_expect_eq(rc, SEAM_EDATA, "%s.%s = %s: accepted", c->in, c->key,
                         c->value ? c->value : "(deleted)");
            snprintf(where, sizeof where, "config.json: %s%s%s", c->in,
                     *c->in ? "." : "", c->key);
            cr_expect(!rc || !strncmp(err.text, where, strlen(where)),
                      "\"%s\" does not begin with \"%s\"", err.text, where);
            cr_expect(!rc || strstr(err.text, c->says), "\"%s\" lacks \"%s\"",
                      err.text, c->says);
        }
        json_decref(root);
    }
}

#define NANO             "models/nano/bf16"
#define TEXT             "text_config"
#define CHECK(dir, list) check(dir, list, sizeof list / sizeof list[0])

Test(model_config, reads_the_nested_form)
{
    json_t *root = loaded("models/nano/w4a16");
    struct seam_model_config m;
    struct seam_error err;

    cr_assert_eq(seam_model_config_read(&m, "config.json", root, &err), 0, "%s",
                 err.text);
    cr_expect_eq(m.hidden, 256);
    cr_expect_eq(m.vocab, 6144);
    cr_expect_eq(m.n_layers, 8);
    cr_expect_eq(m.n_mtp, 1);
    cr_expect_eq(m.max_context, 16384);
    cr_expect_float_eq(m.rms_eps, 1e-5f, 0);
    cr_expect_float_eq(m.swiglu_limit, 10.0f, 0);
    cr_expect_eq(m.intermediate, 512);
    cr_expect(m.n_heads == 4 && m.q_lora == 128 && m.kv_lora == 128);
    cr_expect(m.nope == 64 && m.v_head == 64);
    cr_expect(m.index_heads == 4 && m.index_dim == 64);
    cr_expect(m.index_topk == 256 && m.index_kpool == 4);
    cr_expect(m.kda_heads == 4 && m.kda_dim == 64 && m.kda_conv == 4);
    cr_expect_float_eq(m.kda_lower_bound, -5.0f, 0);
    cr_expect(m.n_experts == 16 && m.experts_per_token == 4);
    cr_expect(m.n_shared == 1 && m.moe_intermediate == 128);
    cr_expect(m.n_group == 1 && m.topk_group == 1 && m.norm_topk);
    cr_expect_float_eq(m.routed_scale, 2.5f, 0);
    cr_expect(m.hc_mult == 4 && m.hc_rounds == 20);
    cr_expect_float_eq(m.hc_eps, 1e-6f, 0);
    for (uint32_t l = 0; l < 8; l++) {
        cr_expect_eq(m.layer_kind[l],
                     l % 4 == 3 ? SEAM_LAYER_SPARSE : SEAM_LAYER_LINEAR);
        cr_expect_eq(m.mlp_kind[l], l < 3 ? SEAM_MLP_DENSE : SEAM_MLP_SPARSE);
    }
    cr_expect_eq(m.layer_kind[8], SEAM_LAYER_SPARSE);
    cr_expect_eq(m.mlp_kind[8], SEAM_MLP_SPARSE);
    cr_expect_eq(m.n_eos, 3);
    cr_expect(m.eos[0] == 6100 && m.eos[1] == 6107 && m.eos[2] == 6109);
    cr_expect(m.has_quant && m.quant_bits == 4 && m.quant_group == 128);
    cr_expect_str_eq(m.quant_method, "auto-round");
    cr_expect_str_eq(m.packing, "auto_round:auto_gptq");
    cr_expect_not(m.zero_is_v2);
    json_decref(root);
}

Test(model_config, reads_what_hugging_face_writes)
{
    json_t *root = loaded("tests/golden/tiny-bf16");
    struct seam_model_config m;
    struct seam_error err;

    cr_assert_eq(seam_model_config_read(&m, "config.json", root, &err), 0, "%s",
                 err.text);
    cr_expect(m.kda_heads == 4 && m.kda_dim == 32 && m.kda_conv == 4);
    cr_expect_eq(m.n_mtp, 1, "the key is absent");
    cr_expect(m.n_eos == 1 && m.eos[0] == 1);
    cr_expect_not(m.has_quant);
    json_decref(root);
}

Test(model_config, reads_the_flat_form)
{
    json_t *root = loaded(NANO), *text = json_object_get(root, TEXT);
    const struct change bad = { "", "hidden_size", "0", "found 0" };
    struct seam_model_config m;
    struct seam_error err;

    cr_assert_eq(seam_model_config_read(&m, "config.json", text, &err), 0, "%s",
                 err.text);
    cr_expect_eq(m.hidden, 256);
    apply(text, &bad);
    cr_expect_eq(seam_model_config_read(&m, "f", text, &err), SEAM_EDATA);
    cr_expect(!strncmp(err.text, "f: hidden_size: found 0", 23), "%s",
              err.text);
    json_decref(root);
}

Test(model_config, every_key_of_the_table_is_needed)
{
    static const char *const keys[] = {
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "q_lora_rank",
        "kv_lora_rank",
        "qk_nope_head_dim",
        "qk_rope_head_dim",
        "v_head_dim",
        "attention_bias",
        "index_n_heads",
        "index_head_dim",
        "index_topk",
        "index_kpool",
        "index_kpool_always_select_tail",
        "indexer_types",
        "vocab_size",
        "max_position_embeddings",
        "rms_norm_eps",
        "hidden_act",
        "swiglu_limit",
        "intermediate_size",
        "moe_intermediate_size",
        "n_routed_experts",
        "num_experts_per_tok",
        "n_shared_experts",
        "n_group",
        "topk_group",
        "norm_topk_prob",
        "routed_scaling_factor",
        "hc_mult",
        "hc_eps",
        "hc_sinkhorn_iters",
        "layer_types",
        "mlp_layer_types",
    };
    static const char *const linear[] = { "num_heads", "head_dim",
                                          "short_conv_kernel_size",
                                          "gate_lower_bound" };
    static const char *const flat[] = { "linear_num_heads", "linear_head_dim",
                                        "linear_conv_kernel_dim",
                                        "linear_lower_bound" };

    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        struct change c = { TEXT, keys[i], NULL, "found nothing" };

        check(NANO, &c, 1);
    }
    for (size_t i = 0; i < 4; i++) {
        struct change c = { TEXT ".linear_attn_config", linear[i], NULL,
                            "found nothing" };
        struct change f = { TEXT, flat[i], NULL, "found nothing" };

        check(NANO, &c, 1);
        check("tests/golden/tiny-bf16", &f, 1);
    }
    struct change type = { "", "model_type", NULL, "\"glm5_next\"" };

    check(NANO, &type, 1);
}

Test(model_config, keys_that_hugging_face_leaves_out_may_be_missing)
{
    static const char *const keys[] = {
        "num_nextn_predict_layers",
        "first_k_dense_replace",
        "mla_use_nope",
        "scoring_func",
        "topk_method",
        "moe_router_dtype",
        "index_kpool_compress",
        "indexer_rope_interleave",
        "index_share_for_mtp_iteration",
        "mhc",
        "qk_head_dim",
        "dtype",
        "model_type",
        "eos_token_id",
        "tie_word_embeddings",
    };

    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        struct change c = { TEXT, keys[i], NULL, NULL };

        check(NANO, &c, 1);
    }
}

Test(model_config, refuses_behaviour_it_does_not_have)
{
    static const struct change list[] = {
        { "", "model_type", "\"glm4_moe\"", "found \"glm4_moe\"" },
        { "", "model_type", "\"glm5_next_text\"", "expected \"glm5_next\"" },
        { "", "model_type", "\"glm5_next\\u0000x\"", "expected" },
        { TEXT, "model_type", "\"llama\"", "\"glm5_next_text\"" },
        { "", "text_config", "[]", "an object" },
        { TEXT, "mla_use_nope", "false", "found false, expected true" },
        { TEXT, "mla_use_nope", "1", "expected true" },
        { TEXT, "scoring_func", "\"softmax\"", "expected \"sigmoid\"" },
        { TEXT, "topk_method", "\"greedy\"", "\"noaux_tc\"" },
        { TEXT, "index_kpool_compress", "false", "true" },
        { TEXT, "index_kpool_always_select_tail", "false", "true" },
        { TEXT, "mhc", "false", "true" },
        { TEXT, "qk_rope_head_dim", "64", "found 64, expected 0" },
        { TEXT, "qk_head_dim", "128", "qk_nope_head_dim = 64" },
        { TEXT, "attention_bias", "true", "false" },
        { TEXT, "hidden_act", "\"gelu\"", "\"silu\"" },
        { TEXT, "tie_word_embeddings", "true", "false" },
        { "", "tie_word_embeddings", "true", "false" },
        { TEXT, "num_key_value_heads", "1", "num_attention_heads = 4" },
        { TEXT, "num_nextn_predict_layers", "2", "from 0 to 1" },
        { TEXT, "swiglu_limit", "null", "found null" },
        { TEXT ".linear_attn_config", "safe_gate", "false", NULL },
    };

    CHECK(NANO, list);
}

Test(model_config, refuses_values_out_of_range)
{
    static const struct change list[] = {
        { TEXT, "hidden_size", "0", "found 0" },
        { TEXT, "hidden_size", "-256", "found -256" },
        { TEXT, "hidden_size", "256.0", "found 256" },
        { TEXT, "hidden_size", "\"256\"", "found \"256\"" },
        { TEXT, "hidden_size", "4294967552", "found 4294967552" },
        { TEXT, "hidden_size", "9223372036854775807", "to 131072" },
        { TEXT, "hidden_size", "true", "found true" },
        { TEXT, "hidden_size", "[256]", "found a list of 1" },
        { TEXT, "hidden_size", "{}", "found an object" },
        { TEXT, "vocab_size", "0", "found 0" },
        { TEXT, "num_hidden_layers", "0", "found 0" },
        { TEXT, "num_hidden_layers", "256", "to 255" },
        { TEXT, "num_attention_heads", "0", "found 0" },
        { TEXT, "q_lora_rank", "null", "found null" },
        { TEXT, "index_kpool", "0", "found 0" },
        { TEXT, "index_topk", "255", "a multiple of index_kpool = 4" },
        { TEXT, "n_routed_experts", "0", "found 0" },
        { TEXT, "num_experts_per_tok", "17", "at most the 16 experts" },
        { TEXT, "n_group", "3", "equal groups" },
        { TEXT, "n_group", "16", "equal groups" },
        { TEXT, "topk_group", "2", "at most n_group = 1" },
        { TEXT, "n_shared_experts", "0", "found 0" },
        { TEXT, "rms_norm_eps", "0", "found 0" },
        { TEXT, "rms_norm_eps", "-1e-5", "a number" },
        { TEXT, "rms_norm_eps", "\"1e-5\"", "a number" },
        { TEXT, "swiglu_limit", "0.0", "a number" },
        { TEXT, "swiglu_limit", "10", NULL },
        { TEXT, "norm_topk_prob", "1", "true or false" },
        { TEXT, "norm_topk_prob", "false", NULL },
        { TEXT, "hc_mult", "0", "found 0" },
        { TEXT, "hc_eps", "1", "a number" },
        { TEXT ".linear_attn_config", "num_heads", "0", "found 0" },
        { TEXT ".linear_attn_config", "short_conv_kernel_size", "1",
          "found 1" },
        { TEXT ".linear_attn_config", "gate_lower_bound", "5", "a number" },
        { TEXT ".linear_attn_config", "gate_lower_bound", "0", "a number" },
        { TEXT, "linear_attn_config", "7", "an object" },
    };

    CHECK(NANO, list);
}

Test(model_config, layer_lists_name_the_layer_that_is_wrong)
{
    static const struct change list[] = {
        { TEXT, "layer_types", "[]", "a list of num_hidden_layers = 8" },
        { TEXT, "layer_types", "{}", "a list of" },
        { TEXT, "num_hidden_layers", "7", NULL }, /* replaced below */
        { TEXT, "mlp_layer_types",
          "[\"dense\",\"dense\",\"dense\",\"moe\",\"sparse\",\"sparse\","
          "\"sparse\",\"sparse\"]",
          "[3]: found \"moe\"" },
        { TEXT, "indexer_types",
          "[\"full\",\"full\",\"full\",\"full\",\"full\",\"full\",\"full\","
          "\"shared\"]",
          "[7]: found \"shared\", expected \"full\"" },
        { TEXT, "layer_types",
          "[\"linear_attention\",\"linear_attention\",\"linear_attention\","
          "\"full_attention\",\"linear_attention\",\"linear_attention\","
          "\"linear_attention\",\"full_attention\"]",
          NULL },
        { TEXT, "layer_types",
          "[\"linear_attention\",\"linear_attention\",\"linear_attention\","
          "\"sliding_attention\",\"linear_attention\",\"linear_attention\","
          "\"linear_attention\",\"full_attention\"]",
          "[3]: found \"sliding_attention\"" },
        { TEXT, "layer_types",
          "[\"linear_attention\",\"linear_attention\",\"linear_attention\","
          "7,\"linear_attention\",\"linear_attention\","
          "\"linear_attention\",\"full_attention\"]",
          "[3]: found 7" },
    };
    struct change c[8];

    memcpy(c, list, sizeof c);
    c[2] = (struct change){ TEXT, "indexer_types", "[\"full\"]",
                            "found a list of 1" };
    CHECK(NANO, c);
}

Test(model_config, layer_numbers_must_agree_with_layer_types)
{
    static const struct change list[] = {
        { TEXT ".linear_attn_config", "kda_layers", "[0,1,2,4,5,7]",
          "the layers that layer_types says" },
        { TEXT ".linear_attn_config", "kda_layers", "[0,1,2,4,5]",
          "list of 5" },
        { TEXT ".linear_attn_config", "kda_layers", "[0,1,2,4,5,6,7]",
          "list of 7" },
        { TEXT ".linear_attn_config", "full_attn_layers", "[3,6]", "layer" },
        { TEXT ".linear_attn_config", "full_attn_layers", "3", "layer" },
        { TEXT ".linear_attn_config", "full_attn_layers", "[4,8]", NULL },
        { TEXT ".linear_attn_config", "kda_layers", NULL, NULL },
    };

    CHECK(NANO, list);
}

Test(model_config, null_lower_bound_is_minus_five_unless_the_gate_is_another)
{
    static const struct change null = { TEXT ".linear_attn_config",
                                        "gate_lower_bound", "null", NULL };
    static const struct change unsafe = { TEXT ".linear_attn_config",
                                          "safe_gate", "false", NULL };
    json_t *root = loaded(NANO);
    struct seam_model_config m;
    struct seam_error err;

    apply(root, &null);
    cr_assert_eq(seam_model_config_read(&m, "config.json", root, &err), 0, "%s",
                 err.text);
    cr_expect_float_eq(m.kda_lower_bound, -5.0f, 0);
    apply(root, &unsafe);
    cr_expect_eq(seam_model_config_read(&m, "config.json", root, &err),
                 SEAM_EDATA);
    json_decref(root);
    root = loaded(NANO);
    json_object_del(section(root, TEXT ".linear_attn_config"),
                    "gate_lower_bound");
    json_object_set_new(section(root, TEXT ".linear_attn_config"),
                        "lower_bound", json_real(-4.5));
    cr_assert_eq(seam_model_config_read(&m, "config.json", root, &err), 0, "%s",
                 err.text);
    cr_expect_float_eq(m.kda_lower_bound, -4.5f, 0);
    json_decref(root);
    struct change flat = { TEXT, "linear_lower_bound", "null", "found null" };

    check("tests/golden/tiny-bf16", &flat, 1);
}

Test(model_config, end_tokens_are_a_number_or_a_list_in_either_place)
{
    static const struct change ok[] = {
        { TEXT, "eos_token_id", "7", NULL },
        { TEXT, "eos_token_id", "[]", NULL },
        { TEXT, "eos_token_id", "null", NULL },
        { "", "eos_token_id", "7", NULL },
        { "", "eos_token_id", NULL, NULL },
        { TEXT, "eos_token_id", "[1,2,3,4,5]", NULL },
        { TEXT, "eos_token_id", "[1,2,3,4,5,6]", NULL }, /* replaced below */
        { TEXT, "eos_token_id", "6144", "below vocab_size = 6144" },
        { TEXT, "eos_token_id", "[-1]", "found -1" },
        { TEXT, "eos_token_id", "[1.5]", "found 1.5" },
        { TEXT, "eos_token_id", "\"7\"", "found \"7\"" },
        { TEXT, "eos_token_id", "[[7]]", "found a list" },
    };
    json_t *root = loaded(NANO);
    struct change c[12];
    struct seam_model_config m;
    struct seam_error err;

    memcpy(c, ok, sizeof c);
    c[6] = (struct change){ TEXT, "eos_token_id", "[1,2,3,4,5,6,7,8,9]",
                            "at most 8 ids" };
    CHECK(NANO, c);
    apply(root, &ok[0]);
    cr_assert_eq(seam_model_config_read(&m, "config.json", root, &err), 0);
    cr_expect_eq(m.n_eos, 4, "both places count: %u", m.n_eos);
    cr_expect_eq(m.eos[0], 7);
    json_decref(root);
}

#define QUANT "quantization_config"

Test(model_config, refuses_quantisation_it_cannot_read)
{
    static const struct change list[] = {
        { "", QUANT, "7", "an object" },
        { "", QUANT, "null", NULL },
        { "", QUANT, NULL, NULL },
        { QUANT, "quant_method", "\"awq\"", "found \"awq\"" },
        { QUANT, "quant_method", NULL, "found nothing" },
        { QUANT, "packing_format", "\"auto_round:auto_awq\"",
          "\"auto_round:auto_gptq\"" },
        { QUANT, "packing_format", NULL, "found nothing" },
        { QUANT, "bits", "8", "found 8, expected 4" },
        { QUANT, "bits", NULL, "found nothing" },
        { QUANT, "sym", "false", "found false" },
        { QUANT, "sym", NULL, "found nothing" },
        { QUANT, "group_size", "-1", "found -1" },
        { QUANT, "group_size", "0", "found 0" },
        { QUANT, "group_size", "100", "a multiple of 8" },
        { QUANT, "group_size", "32", NULL },
        { QUANT, "group_size", NULL, "found nothing" },
        { QUANT, "data_type", "\"mx_fp\"", "\"int\"" },
        { QUANT, "data_type", NULL, NULL },
        { QUANT, "desc_act", "true", "false" },
    };

    CHECK("models/nano/w4a16", list);
}

static int quantised(struct seam_model_config *m, const char *quant,
                     struct seam_error *err)
{
    struct change c = { "", QUANT, quant, NULL };
    json_t *root = loaded(NANO);
    int rc;

    apply(root, &c);
    rc = seam_model_config_read(m, "config.json", root, err);
    json_decref(root);
    return rc;
}

Test(model_config, reads_gptq_labels)
{
    struct seam_model_config m;
    struct seam_error err;

#define GPTQ(more)                                             \
    "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":32," \
    "\"sym\":true,\"desc_act\":false" more "}"
    cr_assert_eq(quantised(&m, GPTQ(""), &err), 0, "%s", err.text);
    cr_expect(m.has_quant && !m.zero_is_v2 && m.quant_group == 32);
    cr_assert_eq(quantised(&m, GPTQ(",\"checkpoint_format\":\"gptq\""), &err),
                 0, "%s", err.text);
    cr_expect_not(m.zero_is_v2);
    cr_assert_eq(
        quantised(&m, GPTQ(",\"checkpoint_format\":\"gptq_v2\""), &err), 0,
        "%s", err.text);
    cr_expect(m.zero_is_v2);
    cr_expect_eq(quantised(&m, GPTQ(",\"checkpoint_format\":\"marlin\""), &err),
                 SEAM_EDATA);
    cr_expect(strstr(err.text, "checkpoint_format"), "%s", err.text);
}

Test(model_config, reads_fp8_blocks_of_128)
{
    struct seam_model_config m;
    struct seam_error err;

#define FP8(block, more) \
    "{\"quant_method\":\"fp8\",\"weight_block_size\":" block more "}"
    cr_assert_eq(
        quantised(&m,
                  FP8("[128,128]", ",\"fmt\":\"e4m3\","
                                   "\"activation_scheme\":\"dynamic\""),
                  &err),
        0, "%s", err.text);
    cr_expect(m.has_quant && m.quant_bits == 8 && m.quant_group == 128);
    cr_expect_str_eq(m.quant_method, "fp8");
    cr_expect_eq(quantised(&m, FP8("[64,128]", ""), &err), SEAM_EDATA);
    cr_expect(strstr(err.text, "weight_block_size"), "%s", err.text);
    cr_expect_eq(quantised(&m, FP8("null", ""), &err), SEAM_EDATA);
    cr_expect_eq(quantised(&m, FP8("[128,128,1]", ""), &err), SEAM_EDATA);
    cr_expect_eq(quantised(&m, FP8("[128,128]", ",\"fmt\":\"e5m2\""), &err),
                 SEAM_EDATA);
    cr_expect(strstr(err.text, "fmt"), "%s", err.text);
}

Test(model_config, leaves_the_output_alone_when_it_fails)
{
    json_t *root = loaded(NANO);
    struct change c = { TEXT, "hc_mult", "0", NULL };
    struct seam_model_config m, was;
    struct seam_error err;

    memset(&m, 0xa5, sizeof m);
    was = m;
    apply(root, &c);
    cr_expect_eq(seam_model_config_read(&m, "f", root, &err), SEAM_EDATA);
    cr_expect_eq(memcmp(&m, &was, sizeof m), 0);
    json_decref(root);
    root = json_string("x");
    cr_expect_eq(seam_model_config_read(&m, "f", root, &err), SEAM_EDATA);
    json_decref(root);
}
