#include "core/check/world.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/check/finding.h"

/* ---- Worlds -------------------------------------------------------------- */

static uint32_t or_default(uint32_t v, uint32_t d)
{
    return v ? v : d;
}

static void world_defaults(struct world *w)
{
    w->n_layers = or_default(w->n_layers, 1);
    w->d = or_default(w->d, 40);
    w->kda_heads = or_default(w->kda_heads, 3);
    w->kda_dim = or_default(w->kda_dim, 16);
    w->conv = or_default(w->conv, 4);
    if (w->lower_bound == 0)
        w->lower_bound = -5;
    w->heads = or_default(w->heads, 3);
    w->q_lora = or_default(w->q_lora, 24);
    w->kv_lora = or_default(w->kv_lora, 20);
    w->nope = or_default(w->nope, 12);
    w->v = or_default(w->v, 10);
    w->index_heads = or_default(w->index_heads, 2);
    w->index_dim = or_default(w->index_dim, 8);
    w->topk = or_default(w->topk, 16);
    w->kpool = or_default(w->kpool, 4);
    w->ff = or_default(w->ff, 32);
    w->experts = or_default(w->experts, 8);
    w->top_k = or_default(w->top_k, 3);
    if (!w->no_shared)
        w->n_shared = or_default(w->n_shared, 1);
    w->n_group = or_default(w->n_group, 1);
    w->topk_group = or_default(w->topk_group, w->n_group);
    if (w->limit == 0)
        w->limit = 1.5;
    if (w->scale == 0)
        w->scale = 2.5;
}

struct adding {
    struct world *w;
    struct th *h;
    uint32_t layer, turn;
};

static void add_store(struct adding *a, const char *name, enum th_store store,
                      uint64_t n_out, uint64_t n_in, double mean, double amp,
                      bool rank3)
{
    char full[160];

    snprintf(full, sizeof full, "@layer.%u.%s", a->layer, name);
    if (rank3)
        th_random3(a->h, full, store, n_out, n_in, mean, amp);
    else
        th_random(a->h, full, store, n_out, n_in, mean, amp);
}

static void add_linear(struct adding *a, const char *name, uint64_t n_out,
                       uint64_t n_in)
{
    static const enum th_store turn[] = { TH_BF16, TH_F32, TH_FP8, TH_F16 };
    enum th_store s = a->w->store ? a->w->store : turn[a->turn++ % 4];

    add_store(a, name, s, n_out, n_in, 0, 1 / sqrt((double)n_in), false);
}

static void add_kda(struct adding *a)
{
    struct world *w = a->w;
    uint64_t hd = (uint64_t)w->kda_heads * w->kda_dim;

    add_linear(a, "self_attn.q_proj", hd, w->d);
    add_linear(a, "self_attn.k_proj", hd, w->d);
    add_linear(a, "self_attn.v_proj", hd, w->d);
    add_linear(a, "self_attn.b_proj", w->kda_heads, w->d);
    add_linear(a, "self_attn.f_a_proj", w->kda_dim, w->d);
    add_linear(a, "self_attn.f_b_proj", hd, w->kda_dim);
    add_linear(a, "self_attn.g_a_proj", w->kda_dim, w->d);
    add_linear(a, "self_attn.g_b_proj", hd, w->kda_dim);
    add_linear(a, "self_attn.o_proj", w->d, hd);
    add_store(a, "self_attn.q_conv1d.weight", TH_BF16, hd, w->conv, 0, .5,
              true);
    add_store(a, "self_attn.k_conv1d.weight", TH_BF16, hd, w->conv, 0, .5,
              true);
    add_store(a, "self_attn.v_conv1d.weight", TH_F32, hd, w->conv, 0, .5, true);
    add_store(a, "self_attn.A_log", TH_F32, w->kda_heads, 0, 0, 1, false);
    add_store(a, "self_attn.dt_bias", TH_F32, hd, 0, -1, 1, false);
    add_store(a, "self_attn.o_norm.weight", TH_BF16, w->kda_dim, 0, 1, .3,
              false);
}

static void add_mla(struct adding *a)
{
    struct world *w = a->w;

    add_linear(a, "self_attn.q_a_proj", w->q_lora, w->d);
    add_linear(a, "self_attn.q_b_proj", (uint64_t)w->heads * w->nope,
               w->q_lora);
    add_linear(a, "self_attn.kv_a_proj_with_mqa", w->kv_lora, w->d);
    add_linear(a, "self_attn.kv_b_proj", (uint64_t)w->heads * (w->nope + w->v),
               w->kv_lora);
    add_linear(a, "self_attn.o_proj", w->d, (uint64_t)w->heads * w->v);
    add_linear(a, "self_attn.indexer.wq_b",
               (uint64_t)w->index_heads * w->index_dim, w->q_lora);
    add_linear(a, "self_attn.indexer.wk", w->index_dim, w->d);
    add_linear(a, "self_attn.indexer.weights_proj", w->index_heads, w->d);
    add_linear(a, "self_attn.indexer.index_kpool_compress_gate", w->index_dim,
               w->d);
    add_store(a, "self_attn.indexer.index_kpool_compress_ape", TH_BF16,
              w->kpool, w->index_dim, 0, 1, false);
    add_store(a, "self_attn.q_a_layernorm.weight", TH_BF16, w->q_lora, 0, 1, .3,
              false);
    add_store(a, "self_attn.kv_a_layernorm.weight", TH_BF16, w->kv_lora, 0, 1,
              .3, false);
    add_store(a, "self_attn.indexer.k_norm.weight", TH_BF16, w->index_dim, 0, 1,
              .3, false);
    add_store(a, "self_attn.indexer.k_norm.bias", TH_BF16, w->index_dim, 0, 0,
              .3, false);
}

static void add_swiglu(struct adding *a, const char *module, uint64_t ff)
{
    static const char *const part[3] = { "gate_proj", "up_proj", "down_proj" };
    char name[96];

    for (uint32_t i = 0; i < 3; i++) {
        uint64_t n_out = i < 2 ? ff : a->w->d, n_in = i < 2 ? a->w->d : ff;

        snprintf(name, sizeof name, "%s.%s", module, part[i]);
        if (a->w->expert_store)
            add_store(a, name, a->w->expert_store, n_out, n_in, 0,
                      2 / sqrt((double)n_in), false);
        else
            add_linear(a, name, n_out, n_in);
    }
}

static void add_moe(struct adding *a)
{
    struct world *w = a->w;
    char name[64];

    add_linear(a, "mlp.gate", w->experts, w->d);
    add_store(a, "mlp.gate.e_score_correction_bias", TH_F32, w->experts, 0, 0,
              .2, false);
    for (uint32_t e = 0; e < w->experts; e++) {
        snprintf(name, sizeof name, "mlp.experts.%u", e);
        add_swiglu(a, name, w->ff);
    }
    if (w->n_shared)
        add_swiglu(a, "mlp.shared_experts", (uint64_t)w->ff * w->n_shared);
}

struct th *world_new(struct world *w, enum world_kind kind,
                     const char *plugin_json)
{
    char json[2048], linear[256];
    struct adding a = { .w = w };

    world_defaults(w);
    snprintf(linear, sizeof linear,
             w->flat_config
                 ? "\"linear_num_heads\": %u, \"linear_head_dim\": %u, "
                   "\"linear_conv_kernel_dim\": %u, "
                   "\"linear_lower_bound\": %.17g"
                 : "\"linear_attn_config\": {\"num_heads\": %u, "
                   "\"head_dim\": %u, \"short_conv_kernel_size\": %u, "
                   "\"gate_lower_bound\": %.17g}",
             w->kda_heads, w->kda_dim, w->conv, w->lower_bound);
    snprintf(json, sizeof json,
             "{\"hidden_size\": %u, \"vocab_size\": 97, "
             "\"rms_norm_eps\": 1e-05, %s, "
             "\"num_attention_heads\": %u, \"q_lora_rank\": %u, "
             "\"kv_lora_rank\": %u, \"qk_nope_head_dim\": %u, "
             "\"qk_rope_head_dim\": 0, \"v_head_dim\": %u, "
             "\"index_n_heads\": %u, \"index_head_dim\": %u, "
             "\"index_topk\": %u, \"index_kpool\": %u, "
             "\"index_kpool_always_select_tail\": true, "
             "\"moe_intermediate_size\": %u, \"n_routed_experts\": %u, "
             "\"num_experts_per_tok\": %u, \"n_shared_experts\": %u, "
             "\"n_group\": %u, \"topk_group\": %u, \"norm_topk_prob\": %s, "
             "\"routed_scaling_factor\": %.17g, \"swiglu_limit\": %.17g}",
             w->d, linear, w->heads, w->q_lora, w->kv_lora, w->nope, w->v,
             w->index_heads, w->index_dim, w->topk, w->kpool, w->ff, w->experts,
             w->top_k, w->n_shared, w->n_group, w->topk_group,
             w->plain_topk ? "false" : "true", w->scale, w->limit);
    a.h = th_new(json, plugin_json);
    a.h->seed = w->seed;
    for (a.layer = 0; a.layer < w->n_layers; a.layer++) {
        if (kind == WORLD_KDA)
            add_kda(&a);
        else if (kind == WORLD_MLA)
            add_mla(&a);
        else
            add_moe(&a);
    }
    return a.h;
}

float *world_input(const struct world *w, uint64_t seed, uint32_t n)
{
    float *x = malloc(((size_t)n * w->d + 1) * sizeof *x);
    struct th_rng r = { seed + 12345 };

    ck_own(x, "out of memory");
    for (size_t i = 0; i < (size_t)n * w->d; i++)
        x[i] = (float)th_normal(&r);
    return x;
}
