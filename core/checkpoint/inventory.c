#include "core/checkpoint/inventory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One walk over the inventory. */
struct walk {
    int (*fn)(void *ctx, const struct seam_expected *e);
    void *ctx;
    const char *prefix; /* of the names below                                 */
    int rc;             /* first value of fn that was not 0                   */
};

static void walk_tell(struct walk *w, const char *name, uint8_t cls,
                      uint8_t rank, int64_t a, int64_t b, int64_t c)
{
    char whole[160];
    struct seam_expected e = { whole, cls, rank, { a, b, c } };

    if (w->rc)
        return;
    snprintf(whole, sizeof whole, "%s%s", w->prefix, name);
    w->rc = w->fn(w->ctx, &e);
}

static void walk_vector(struct walk *w, const char *name, int64_t n)
{
    walk_tell(w, name, SEAM_CLASS_PLAIN, 1, n, 0, 0);
}

static void walk_matrix(struct walk *w, const char *name, int64_t rows,
                        int64_t cols)
{
    walk_tell(w, name, SEAM_CLASS_PLAIN, 2, rows, cols, 0);
}

static void walk_linear(struct walk *w, const char *name, int64_t n_out,
                        int64_t n_in)
{
    walk_tell(w, name, SEAM_CLASS_LINEAR, 2, n_out, n_in, 0);
}

static void walk_kda(struct walk *w, const struct seam_model_config *m)
{
    int64_t d = m->hidden, dim = m->kda_dim;
    int64_t wide = (int64_t)m->kda_heads * dim;

    walk_linear(w, "self_attn.q_proj", wide, d);
    walk_linear(w, "self_attn.k_proj", wide, d);
    walk_linear(w, "self_attn.v_proj", wide, d);
    for (const char *c = "qkv"; *c; c++) {
        char name[] = "self_attn.?_conv1d.weight";

        name[10] = *c;
        walk_tell(w, name, SEAM_CLASS_PLAIN, 3, wide, 1, m->kda_conv);
    }
    walk_linear(w, "self_attn.f_a_proj", dim, d);
    walk_linear(w, "self_attn.g_a_proj", dim, d);
    walk_linear(w, "self_attn.f_b_proj", wide, dim);
    walk_linear(w, "self_attn.g_b_proj", wide, dim);
    walk_linear(w, "self_attn.b_proj", m->kda_heads, d);
    walk_vector(w, "self_attn.A_log", m->kda_heads);
    walk_vector(w, "self_attn.dt_bias", wide);
    walk_vector(w, "self_attn.o_norm.weight", dim);
    walk_linear(w, "self_attn.o_proj", d, wide);
}

static void walk_mla(struct walk *w, const struct seam_model_config *m)
{
    int64_t d = m->hidden, heads = m->n_heads, idx = m->index_dim;

    walk_linear(w, "self_attn.q_a_proj", m->q_lora, d);
    walk_vector(w, "self_attn.q_a_layernorm.weight", m->q_lora);
    walk_linear(w, "self_attn.q_b_proj", heads * m->nope, m->q_lora);
    walk_linear(w, "self_attn.kv_a_proj_with_mqa", m->kv_lora, d);
    walk_vector(w, "self_attn.kv_a_layernorm.weight", m->kv_lora);
    walk_linear(w, "self_attn.kv_b_proj",
                heads * ((int64_t)m->nope + m->v_head), m->kv_lora);
    walk_linear(w, "self_attn.o_proj", d, heads * m->v_head);
    walk_linear(w, "self_attn.indexer.wq_b", m->index_heads * idx, m->q_lora);
    walk_linear(w, "self_attn.indexer.wk", idx, d);
    walk_vector(w, "self_attn.indexer.k_norm.weight", idx);
    walk_vector(w, "self_attn.indexer.k_norm.bias", idx);
    walk_linear(w, "self_attn.indexer.weights_proj", m->index_heads, d);
    walk_matrix(w, "self_attn.indexer.index_kpool_compress_ape", m->index_kpool,
                idx);
    walk_matrix(w, "self_attn.indexer.index_kpool_compress_gate", idx, d);
}

/* gate, up and down projection of one feed-forward network. */
static void walk_ffn(struct walk *w, const char *under, int64_t d,
                     int64_t inner)
{
    char name[64];

    snprintf(name, sizeof name, "%sgate_proj", under);
    walk_linear(w, name, inner, d);
    snprintf(name, sizeof name, "%sup_proj", under);
    walk_linear(w, name, inner, d);
    snprintf(name, sizeof name, "%sdown_proj", under);
    walk_linear(w, name, d, inner);
}

static void walk_moe(struct walk *w, const struct seam_model_config *m)
{
    char under[48];

    walk_matrix(w, "mlp.gate.weight", m->n_experts, m->hidden);
    walk_vector(w, "mlp.gate.e_score_correction_bias", m->n_experts);
    walk_ffn(w, "mlp.shared_experts.", m->hidden,
             (int64_t)m->moe_intermediate * m->n_shared);
    for (uint32_t e = 0; e < m->n_experts; e++) {
        snprintf(under, sizeof under, "mlp.experts.%u.", e);
        walk_ffn(w, under, m->hidden, m->moe_intermediate);
    }
}

static void walk_hc(struct walk *w, const struct seam_model_config *m)
{
    int64_t n = (2 + (int64_t)m->hc_mult) * m->hc_mult;
    int64_t wide = (int64_t)m->hc_mult * m->hidden;

    walk_matrix(w, "hc_attn_fn", n, wide);
    walk_vector(w, "hc_attn_base", n);
    walk_vector(w, "hc_attn_scale", 3);
    walk_matrix(w, "hc_ffn_fn", n, wide);
    walk_vector(w, "hc_ffn_base", n);
    walk_vector(w, "hc_ffn_scale", 3);
}

int seam_inventory(const struct seam_model_config *m, uint32_t from,
                   uint32_t to, bool ends,
                   int (*fn)(void *ctx, const struct seam_expected *e),
                   void *ctx)
{
    struct walk w = { .fn = fn, .ctx = ctx, .prefix = "" };
    char prefix[64];

    if (ends) {
        walk_matrix(&w, SEAM_PREFIX "embed_tokens.weight", m->vocab, m->hidden);
        walk_linear(&w, "lm_head", m->vocab, m->hidden);
        walk_vector(&w, SEAM_PREFIX "norm.weight", m->hidden);
    }
    w.prefix = prefix;
    for (uint32_t l = from; l < to && !w.rc; l++) {
        snprintf(prefix, sizeof prefix, SEAM_PREFIX "layers.%u.", l);
        walk_vector(&w, "input_layernorm.weight", m->hidden);
        walk_vector(&w, "post_attention_layernorm.weight", m->hidden);
        if (l < m->n_layers) {
            walk_hc(&w, m);
        } else {
            walk_vector(&w, "enorm.weight", m->hidden);
            walk_vector(&w, "hnorm.weight", m->hidden);
            walk_vector(&w, "shared_head.norm.weight", m->hidden);
            walk_linear(&w, "eh_proj", m->hidden, 2 * (int64_t)m->hidden);
        }
        if (m->layer_kind[l] == SEAM_LAYER_LINEAR)
            walk_kda(&w, m);
        else
            walk_mla(&w, m);
        if (m->mlp_kind[l] == SEAM_MLP_DENSE)
            walk_ffn(&w, "mlp.", m->hidden, m->intermediate);
        else
            walk_moe(&w, m);
    }
    return w.rc;
}

/* ---- Parts -------------------------------------------------------------- */

static bool part_begins(const char *s, const char *with)
{
    return !strncmp(s, with, strlen(with));
}

enum seam_part seam_part_of(const struct seam_model_config *m, const char *name)
{
    static const char layers[] = SEAM_PREFIX "layers.";
    unsigned long l;
    char *rest;

    if (part_begins(name, SEAM_VISION))
        return SEAM_PART_VISION;
    if (part_begins(name, "lm_head."))
        return SEAM_PART_HEAD;
    if (part_begins(name, SEAM_PREFIX "embed_tokens."))
        return SEAM_PART_EMBED;
    if (!strcmp(name, SEAM_PREFIX "norm.weight"))
        return SEAM_PART_NORM;
    if (!part_begins(name, layers))
        return SEAM_PART_OTHER;
    l = strtoul(name + sizeof layers - 1, &rest, 10);
    if (*rest != '.' || l > m->n_layers)
        return SEAM_PART_OTHER;
    rest++;
    if (l == m->n_layers)
        return SEAM_PART_MTP;
    if (part_begins(rest, "hc_"))
        return SEAM_PART_HC;
    if (strstr(rest, "layernorm.") && !part_begins(rest, "self_attn."))
        return SEAM_PART_NORM;
    if (part_begins(rest, "self_attn.indexer."))
        return SEAM_PART_INDEXER;
    if (part_begins(rest, "self_attn."))
        return m->layer_kind[l] == SEAM_LAYER_LINEAR ? SEAM_PART_KDA
                                                     : SEAM_PART_MLA;
    if (part_begins(rest, "mlp.gate."))
        return SEAM_PART_ROUTER;
    if (part_begins(rest, "mlp.experts."))
        return SEAM_PART_EXPERTS;
    if (part_begins(rest, "mlp.shared_experts."))
        return SEAM_PART_SHARED;
    return part_begins(rest, "mlp.") ? SEAM_PART_DENSE : SEAM_PART_OTHER;
}

const char *seam_part_name(enum seam_part p)
{
    static const char *const names[SEAM_N_PARTS] = {
        [SEAM_PART_EMBED] = "embedding",
        [SEAM_PART_HEAD] = "output head",
        [SEAM_PART_NORM] = "norms",
        [SEAM_PART_HC] = "hyper-connections",
        [SEAM_PART_KDA] = "linear attention",
        [SEAM_PART_MLA] = "sparse attention",
        [SEAM_PART_INDEXER] = "indexer",
        [SEAM_PART_DENSE] = "dense MLP",
        [SEAM_PART_ROUTER] = "router",
        [SEAM_PART_EXPERTS] = "routed experts",
        [SEAM_PART_SHARED] = "shared experts",
        [SEAM_PART_MTP] = "MTP block",
        [SEAM_PART_VISION] = "vision (skipped)",
        [SEAM_PART_OTHER] = "other (unused)",
    };

    return names[p];
}
