/* Tiny models with random weights, one kind of block each. */
#ifndef SEAM_CHECK_WORLD_H
#define SEAM_CHECK_WORLD_H

#include "core/check/synth.h"

/* A model of one kind of block with random weights.  Zero fields take the
 * defaults of world_new. */
struct world {
    uint32_t n_layers; /* 1                                                   */
    uint64_t seed;
    enum th_store store; /* of linear layers; 0: each another one of F32, F16,
                            BF16 and FP8                                      */
    uint32_t d; /* hidden size                                         */
    /* linear attention */
    uint32_t kda_heads, kda_dim, conv;
    double lower_bound; /* -5 */
    bool flat_config; /* linear_num_heads instead of linear_attn_config      */
    /* sparse attention */
    uint32_t heads, q_lora, kv_lora, nope, v, index_heads, index_dim, topk,
        kpool;
    /* experts */
    uint32_t ff, experts, top_k, n_shared, n_group, topk_group;
    bool no_shared, plain_topk; /* n_shared 0; norm_topk_prob false           */
    enum th_store expert_store; /* 0: store                                   */
    double limit, scale; /* swiglu_limit, routed_scaling_factor               */
};

enum world_kind { WORLD_KDA = 1, WORLD_MLA = 2, WORLD_MOE = 3 };

/* Fills the defaults of *w and builds its host. */
struct th *world_new(struct world *w, enum world_kind kind,
                     const char *plugin_json);

/* Random activations of unit variance, [n][d]; the caller frees them. */
float *world_input(const struct world *w, uint64_t seed, uint32_t n);

#endif
