#include "core/bench/shape.h"

#include <stdbool.h>
#include <string.h>

#include "core/base/json.h"
#include "core/checkpoint/model_config.h"

const char *const seam_bench_shapes[] = { "real", "mid", "nano", NULL };

enum { REAL = 0, MID = 1, NANO = 2, N_SHAPES = 3 };

/* Of "real", two layers are enough to hold one of each kind, and a vocabulary
 * that is not the release's leaves room for its 288 experts. */
// clang-format off
static const struct shape_key {
    const char *key;
    json_int_t value[N_SHAPES];
} SHAPE_KEYS[] = {
    { "hidden_size",             {    4096,   1536,   256 } },
    { "vocab_size",              {   16384,  16384,  6144 } },
    { "num_hidden_layers",       {       2,     12,     8 } },
    { "max_position_embeddings", { 1048576, 262144, 65536 } },
    { "intermediate_size",       {   12288,   4608,   512 } },
    { "num_attention_heads",     {      64,     24,     4 } },
    { "q_lora_rank",             {    1536,    512,   128 } },
    { "kv_lora_rank",            {     512,    512,   128 } },
    { "qk_nope_head_dim",        {     256,    256,    64 } },
    { "v_head_dim",              {     256,    256,    64 } },
    { "index_n_heads",           {      32,     16,     4 } },
    { "index_head_dim",          {     128,    128,    64 } },
    { "index_topk",              {    2048,   2048,   256 } },
    { "index_kpool",             {       4,      4,     4 } },
    { "n_routed_experts",        {     288,     32,    16 } },
    { "num_experts_per_tok",     {       8,      8,     4 } },
    { "n_shared_experts",        {       1,      1,     1 } },
    { "moe_intermediate_size",   {    2048,    512,   128 } },
    { "n_group",                 {       1,      1,     1 } },
    { "topk_group",              {       1,      1,     1 } },
    { "hc_mult",                 {       4,      4,     4 } },
    { "hc_sinkhorn_iters",       {      20,     20,    20 } },
    { "first_k_dense_replace",   {       1,      1,     3 } },
    { "num_nextn_predict_layers",{       0,      0,     0 } },
    { "qk_rope_head_dim",        {       0,      0,     0 } },
};

static const struct linear_key {
    const char *key;
    json_int_t value[N_SHAPES];
} LINEAR_KEYS[] = {
    { "num_heads",               {      64,     24,     4 } },
    { "head_dim",                {     128,    128,    64 } },
    { "short_conv_kernel_size",  {       4,      4,     4 } },
};
// clang-format on

/* Every fourth layer is sparse; of "real", the second of its two. */
static json_t *shape_layers(json_int_t n, json_int_t from, json_int_t step,
                            const char *other, const char *hit)
{
    json_t *list = json_array();

    for (json_int_t l = 0; l < n; l++) {
        bool is_hit = l >= from && (l - from) % step == 0;

        json_array_append_new(list, json_string(is_hit ? hit : other));
    }
    return list;
}

static json_t *shape_text(int s)
{
    json_t *text =
        json_pack("{s:s, s:s, s:b, s:b, s:b, s:b, s:s, s:s}", "model_type",
                  "glm5_next_text", "hidden_act", "silu", "attention_bias", 0,
                  "index_kpool_always_select_tail", 1, "norm_topk_prob", 1,
                  "tie_word_embeddings", 0, "scoring_func", "sigmoid",
                  "topk_method", "noaux_tc");
    json_t *linear = json_object();

    for (size_t i = 0; i < sizeof SHAPE_KEYS / sizeof *SHAPE_KEYS; i++)
        json_object_set_new(text, SHAPE_KEYS[i].key,
                            json_integer(SHAPE_KEYS[i].value[s]));
    for (size_t i = 0; i < sizeof LINEAR_KEYS / sizeof *LINEAR_KEYS; i++)
        json_object_set_new(linear, LINEAR_KEYS[i].key,
                            json_integer(LINEAR_KEYS[i].value[s]));
    json_object_set_new(linear, "gate_lower_bound", json_real(-5));
    json_object_set_new(text, "linear_attn_config", linear);
    json_object_set_new(text, "rms_norm_eps", json_real(1e-5));
    json_object_set_new(text, "swiglu_limit", json_real(10));
    json_object_set_new(text, "routed_scaling_factor", json_real(2.5));
    json_object_set_new(text, "hc_eps", json_real(1e-6));
    return text;
}

static json_int_t shape_int(const json_t *text, const char *key)
{
    return json_integer_value(json_object_get(text, key));
}

/* What follows from the keys, unless the file gives it. */
static void shape_derive(json_t *text)
{
    json_int_t n = shape_int(text, "num_hidden_layers");
    json_int_t dense = shape_int(text, "first_k_dense_replace");
    json_t *heads = json_object_get(text, "num_attention_heads");
    json_int_t first = n < 4 ? n - 1 : 3;

    if (n < 1 || n > SEAM_MAX_LAYERS)
        return; /* refused when the whole is read */
    json_object_set(text, "num_key_value_heads", heads);
    if (!json_object_get(text, "layer_types"))
        json_object_set_new(text, "layer_types",
                            shape_layers(n, first, 4, "linear_attention",
                                         "deepseek_sparse_attention"));
    if (!json_object_get(text, "mlp_layer_types"))
        json_object_set_new(text, "mlp_layer_types",
                            shape_layers(n, dense, 1, "dense", "sparse"));
    json_object_set_new(text, "indexer_types",
                        shape_layers(n, 0, 1, "full", "full"));
}

/* The keys of the file over those of the shape; one that no shape has is a
 * mistake. */
static int shape_update(json_t *text, const char *file, struct seam_error *err)
{
    json_t *root = seam_json_file(file, 1 << 20, err), *over, *v;
    const char *key;
    int rc = 0;

    if (!root)
        return err->code;
    over = json_object_get(root, "text_config");
    if (!over)
        over = root;
    json_object_foreach(over, key, v)
    {
        if (!strcmp(key, "layer_types") || !strcmp(key, "mlp_layer_types") ||
            json_object_get(text, key))
            json_object_set(text, key, v);
        else if (over == root)
            rc = seam_fail(err, SEAM_EDATA, "%s: no shape has a key %.60s",
                           file, key);
    }
    json_decref(root);
    return rc;
}

/* The last ids of the vocabulary are the special tokens, in make.c's order. */
static json_t *shape_root(json_t *text)
{
    json_int_t vocab = shape_int(text, "vocab_size");
    json_t *root = json_pack(
        "{s:[s], s:s, s:s, s:b, s:[I, I, I], s:o, s:{s:s, s:s, s:i, s:i, s:b, "
        "s:s}}",
        "architectures", "Glm5NextForConditionalGeneration", "model_type",
        "glm5_next", "dtype", "bfloat16", "tie_word_embeddings", 0,
        "eos_token_id", vocab - 36, vocab - 29, vocab - 27, "text_config", text,
        "quantization_config", "quant_method", "auto-round", "packing_format",
        "auto_round:auto_gptq", "bits", 4, "group_size", 128, "sym", 1,
        "data_type", "int");

    return root;
}

json_t *seam_bench_shape(const char *which, struct seam_error *err)
{
    int s = N_SHAPES;
    json_t *text, *root;
    struct seam_model_config m;

    for (int i = 0; i < N_SHAPES; i++)
        if (!strcmp(which, seam_bench_shapes[i]))
            s = i;
    text = shape_text(s == N_SHAPES ? REAL : s);
    if (s == N_SHAPES && shape_update(text, which, err)) {
        json_decref(text);
        return NULL;
    }
    shape_derive(text);
    root = shape_root(text);
    if (!root) {
        seam_fail(err, SEAM_ENOMEM, "shape %s: out of memory", which);
        return NULL;
    }
    if (seam_model_config_read(&m, which, root, err)) {
        json_decref(root);
        return NULL;
    }
    return root;
}
