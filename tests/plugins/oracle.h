/* The blocks of docs/spec/glm5_next.md in double precision, written for the
 * tests alone: whole sequences at once, no cache, no rounding, nothing shared
 * with any plugin. */
#ifndef SEAM_TESTS_PLUGINS_ORACLE_H
#define SEAM_TESTS_PLUGINS_ORACLE_H

#include "testhost.h"

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

/* y[n][d] of a sequence x[n][d] from its first token on. */
void oracle_kda(const struct world *w, const struct th *h, uint32_t layer,
                const float *x, uint32_t n, double *y);
void oracle_mla(const struct world *w, const struct th *h, uint32_t layer,
                const float *x, uint32_t n, double *y);
void oracle_moe(const struct world *w, const struct th *h, uint32_t layer,
                const float *x, uint32_t n, double *y);

/* The same for linear attention with a start state: S[heads][dim][dim], read
 * and left as it is after x; the window before x is zero. */
void oracle_kda_from(const struct world *w, const struct th *h, uint32_t layer,
                     const float *x, uint32_t n, double *S, double *y);
/* Selected positions of token t, ascending, sel[n] with n returned. */
uint32_t oracle_mla_select(const struct world *w, const struct th *h,
                           uint32_t layer, const float *x, uint32_t t,
                           int32_t *sel);

#endif
