/* config.json of a glm5_next checkpoint (model spec, section 1.1). */
#ifndef SEAM_CHECKPOINT_MODEL_CONFIG_H
#define SEAM_CHECKPOINT_MODEL_CONFIG_H

#include <jansson.h>
#include <stdbool.h>

#include "core/base/error.h"

#define SEAM_MAX_LAYERS 256

enum seam_layer_kind { SEAM_LAYER_LINEAR = 1, SEAM_LAYER_SPARSE = 2 };
enum seam_mlp_kind { SEAM_MLP_DENSE = 1, SEAM_MLP_SPARSE = 2 };

struct seam_model_config {
    uint32_t hidden, vocab, n_layers, max_context;
    uint32_t n_mtp; /* 1 unless the key says 0; the
                                                  block is layer n_layers */
    float rms_eps;
    float swiglu_limit;
    uint32_t intermediate; /* dense MLP */
    /* sparse (MLA) attention */
    uint32_t n_heads, q_lora, kv_lora, nope, v_head;
    uint32_t index_heads, index_dim, index_topk, index_kpool;
    /* linear (KDA) attention */
    uint32_t kda_heads, kda_dim, kda_conv;
    float kda_lower_bound;
    /* experts */
    uint32_t n_experts, experts_per_token, n_shared, moe_intermediate;
    uint32_t n_group, topk_group;
    bool norm_topk;
    float routed_scale;
    /* hyper-connections */
    uint32_t hc_mult, hc_rounds;
    float hc_eps;
    uint8_t layer_kind[SEAM_MAX_LAYERS]; /* enum seam_layer_kind */
    uint8_t mlp_kind[SEAM_MAX_LAYERS];   /* enum seam_mlp_kind */
    int32_t eos[8];
    uint32_t n_eos;
    bool has_quant; /* quantization_config is there */
    uint32_t quant_bits, quant_group;
    char quant_method[32]; /* "auto-round", "gptq", "fp8" */
    char packing[32];      /* "auto_round:auto_gptq", ... */
    bool zero_is_v2;       /* a gptq_v2 label: zero points stored as they are */
};

/* Fill *out from the parsed root of config.json.  Required keys, keys that HF
 * leaves out, values that must have one value: model spec 1.1.  A missing or
 * wrong key is refused as "FILE: text_config.KEY: found ..., expected ...".
 * [any] */
int seam_model_config_read(struct seam_model_config *out, const char *file,
                           const json_t *root, struct seam_error *err);

#endif
