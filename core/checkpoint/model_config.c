/* Every key is read by name with its range; nothing falls back to a library's
 * default, because the libraries' defaults differ (model spec, 1.1).  Ranges
 * are generous, but keep every product of dimensions far below 2^63. */
#include "core/checkpoint/model_config.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "core/base/utf8.h"

#define MAX_LAYERS (SEAM_MAX_LAYERS - 1) /* one place is the MTP block's      */
#define MAX_WIDTH  (1u << 17)            /* of a hidden size                  */
#define MAX_HEADS  4096u
#define MAX_HEAD   4096u /* of a head's dimension             */

#define AT(field)  offsetof(struct seam_model_config, field)

/* Integers that must be there. */
static const struct u32_key {
    const char *key;
    size_t at;
    uint32_t lo, hi;
} U32_KEYS[] = {
    { "hidden_size", AT(hidden), 1, MAX_WIDTH },
    { "vocab_size", AT(vocab), 1, 1u << 24 },
    { "num_hidden_layers", AT(n_layers), 1, MAX_LAYERS },
    { "max_position_embeddings", AT(max_context), 1, 1u << 30 },
    { "intermediate_size", AT(intermediate), 1, 1u << 20 },
    { "num_attention_heads", AT(n_heads), 1, MAX_HEADS },
    { "q_lora_rank", AT(q_lora), 1, MAX_WIDTH },
    { "kv_lora_rank", AT(kv_lora), 1, MAX_WIDTH },
    { "qk_nope_head_dim", AT(nope), 1, MAX_HEAD },
    { "v_head_dim", AT(v_head), 1, MAX_HEAD },
    { "index_n_heads", AT(index_heads), 1, MAX_HEADS },
    { "index_head_dim", AT(index_dim), 1, MAX_HEAD },
    { "index_topk", AT(index_topk), 1, 1u << 24 },
    { "index_kpool", AT(index_kpool), 1, 256 },
    { "n_routed_experts", AT(n_experts), 1, 4096 },
    { "num_experts_per_tok", AT(experts_per_token), 1, 256 },
    { "n_shared_experts", AT(n_shared), 1, 64 },
    { "moe_intermediate_size", AT(moe_intermediate), 1, 1u << 20 },
    { "n_group", AT(n_group), 1, 4096 },
    { "topk_group", AT(topk_group), 1, 4096 },
    { "hc_mult", AT(hc_mult), 1, 16 },
    { "hc_sinkhorn_iters", AT(hc_rounds), 1, 1000 },
};

static const struct float_key {
    const char *key;
    size_t at;
    double lo, hi;
} FLOAT_KEYS[] = {
    { "rms_norm_eps", AT(rms_eps), 1e-12, 0.1 },
    { "swiglu_limit", AT(swiglu_limit), 1e-3, 1e6 },
    { "routed_scaling_factor", AT(routed_scale), 1e-6, 1e6 },
    { "hc_eps", AT(hc_eps), 1e-12, 0.1 },
};

/* Keys with one legal value: behaviour that this model always has. */
static const struct fixed_key {
    const char *key, *word; /* word, or ... */
    int64_t number;         /* ... number, 0 and 1 also for false and true    */
    bool is_bool, optional;
} FIXED_KEYS[] = {
    { "hidden_act", "silu", 0, false, false },
    { "qk_rope_head_dim", NULL, 0, false, false },
    { "attention_bias", NULL, 0, true, false },
    { "index_kpool_always_select_tail", NULL, 1, true, false },
    /* not written by HF */
    { "mla_use_nope", NULL, 1, true, true },
    { "scoring_func", "sigmoid", 0, false, true },
    { "topk_method", "noaux_tc", 0, false, true },
    { "index_kpool_compress", NULL, 1, true, true },
    { "mhc", NULL, 1, true, true },
};

#define N_OF(a) (sizeof(a) / sizeof(a)[0])

/* One object of the file. */
struct conf {
    const json_t *o;
    const char *file, *section; /* section "" is the root                     */
    struct seam_error *err;
};

/* ---- Reading one key ---------------------------------------------------- */

static bool conf_is_word(const json_t *v, const char *word)
{
    return json_is_string(v) && json_string_length(v) == strlen(word) &&
           !memcmp(json_string_value(v), word, strlen(word));
}

static void conf_show(const json_t *v, char *to, size_t n)
{
    if (!v) {
        snprintf(to, n, "nothing");
    } else if (json_is_object(v)) {
        snprintf(to, n, "an object");
    } else if (json_is_array(v)) {
        snprintf(to, n, "a list of %zu", json_array_size(v));
    } else if (json_is_string(v)) {
        const char *s = json_string_value(v);

        snprintf(to, n, "\"%.*s\"", (int)seam_utf8_whole(s, strnlen(s, 40)), s);
    } else if (json_is_integer(v)) {
        snprintf(to, n, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
    } else if (json_is_real(v)) {
        snprintf(to, n, "%.9g", json_real_value(v));
    } else {
        snprintf(to, n, "%s",
                 json_is_null(v)   ? "null"
                 : json_is_true(v) ? "true"
                                   : "false");
    }
}

static int conf_refuse(const struct conf *c, const char *key, const json_t *v,
                       const char *expected, ...)
    __attribute__((format(printf, 4, 5)));

static int conf_refuse(const struct conf *c, const char *key, const json_t *v,
                       const char *expected, ...)
{
    char found[64], want[128];
    va_list ap;

    conf_show(v, found, sizeof found);
    va_start(ap, expected);
    vsnprintf(want, sizeof want, expected, ap);
    va_end(ap);
    return seam_fail(c->err, SEAM_EDATA, "%s: %s%s%s: found %s, expected %s",
                     c->file, c->section, *c->section ? "." : "", key, found,
                     want);
}

static int conf_u32(const struct conf *c, const char *key, uint32_t lo,
                    uint32_t hi, uint32_t *out)
{
    const json_t *v = json_object_get(c->o, key);

    if (!json_is_integer(v) || json_integer_value(v) < lo ||
        json_integer_value(v) > hi)
        return conf_refuse(c, key, v, "an integer from %u to %u", lo, hi);
    *out = (uint32_t)json_integer_value(v);
    return 0;
}

/* A number in [lo, hi]; integers are numbers too. */
static int conf_float(const struct conf *c, const char *key, double lo,
                      double hi, float *out)
{
    const json_t *v = json_object_get(c->o, key);
    double d = json_is_number(v) ? json_number_value(v) : NAN;

    if (!(d >= lo && d <= hi))
        return conf_refuse(c, key, v, "a number from %g to %g", lo, hi);
    *out = (float)d;
    return 0;
}

static int conf_fixed(const struct conf *c, const struct fixed_key *k)
{
    const json_t *v = json_object_get(c->o, k->key);

    if (!v && k->optional)
        return 0;
    if (k->word)
        return conf_is_word(v, k->word)
                   ? 0
                   : conf_refuse(c, k->key, v, "\"%s\"", k->word);
    if (k->is_bool)
        return json_is_boolean(v) && json_is_true(v) == (k->number != 0)
                   ? 0
                   : conf_refuse(c, k->key, v, "%s",
                                 k->number ? "true" : "false");
    return json_is_integer(v) && json_integer_value(v) == k->number
               ? 0
               : conf_refuse(c, k->key, v, "%" PRId64, k->number);
}

/* ---- Lists with one entry per layer ------------------------------------- */

struct word {
    const char *word;
    uint8_t value;
};

/* words ends with a NULL word; out [n] may be NULL. */
static int conf_layers(const struct conf *c, const char *key, uint32_t n,
                       const struct word *words, uint8_t *out)
{
    const json_t *list = json_object_get(c->o, key), *v;
    char at[64], all[120] = "";
    const struct word *w;
    size_t used = 0;

    if (!json_is_array(list) || json_array_size(list) != n)
        return conf_refuse(c, key, list, "a list of num_hidden_layers = %u", n);
    for (uint32_t i = 0; i < n; i++) {
        v = json_array_get(list, i);
        for (w = words; w->word && !conf_is_word(v, w->word); w++)
            ;
        if (!w->word) {
            for (w = words; w->word; w++)
                used +=
                    (size_t)snprintf(all + used, sizeof all - used, "%s\"%s\"",
                                     used ? " or " : "", w->word);
            snprintf(at, sizeof at, "%s[%u]", key, i);
            return conf_refuse(c, at, v, "%s", all);
        }
        if (out)
            out[i] = w->value;
    }
    return 0;
}

/* kda_layers and full_attn_layers repeat what layer_types says, counted from 0
 * (other families count from 1).  A list that says something else belongs to a
 * damaged config. */
static int conf_layer_list(const struct conf *c, const char *key,
                           const struct seam_model_config *m, uint8_t kind)
{
    const json_t *list = json_object_get(c->o, key);

    if (!list)
        return 0;
    for (int64_t base = 0; base < 2 && json_is_array(list); base++) {
        bool same = true;
        size_t at = 0;

        for (uint32_t i = 0; i < m->n_layers && same; i++) {
            const json_t *v = json_array_get(list, at);

            if (m->layer_kind[i] != kind)
                continue;
            same = json_is_integer(v) && json_integer_value(v) == i + base;
            at++;
        }
        if (same && at == json_array_size(list))
            return 0;
    }
    return conf_refuse(c, key, list, "the layers that layer_types says");
}

static int conf_kinds(const struct conf *c, struct seam_model_config *m)
{
    static const struct word kinds[] = {
        { "linear_attention", SEAM_LAYER_LINEAR },
        { "deepseek_sparse_attention", SEAM_LAYER_SPARSE },
        { "full_attention", SEAM_LAYER_SPARSE },
        { NULL, 0 },
    };
    static const struct word mlps[] = {
        { "dense", SEAM_MLP_DENSE },
        { "sparse", SEAM_MLP_SPARSE },
        { NULL, 0 },
    };
    static const struct word indexers[] = { { "full", 1 }, { NULL, 0 } };
    int rc = conf_layers(c, "layer_types", m->n_layers, kinds, m->layer_kind);

    if (!rc)
        rc = conf_layers(c, "mlp_layer_types", m->n_layers, mlps, m->mlp_kind);
    if (!rc)
        rc = conf_layers(c, "indexer_types", m->n_layers, indexers, NULL);
    if (rc)
        return rc;
    m->layer_kind[m->n_layers] = SEAM_LAYER_SPARSE;
    m->mlp_kind[m->n_layers] = SEAM_MLP_SPARSE;
    return 0;
}

/* ---- Groups of keys ----------------------------------------------------- */

static int conf_model_type(const struct conf *root, const struct conf *text)
{
    const json_t *v = json_object_get(root->o, "model_type");

    if (root->o == text->o)
        return conf_is_word(v, "glm5_next") || conf_is_word(v, "glm5_next_text")
                   ? 0
                   : conf_refuse(root, "model_type", v,
                                 "\"glm5_next\" or \"glm5_next_text\"");
    if (!conf_is_word(v, "glm5_next"))
        return conf_refuse(root, "model_type", v, "\"glm5_next\"");
    v = json_object_get(text->o, "model_type");
    if (v && !conf_is_word(v, "glm5_next_text"))
        return conf_refuse(text, "model_type", v, "\"glm5_next_text\"");
    return 0;
}

/* The gate's lower bound.  In linear_attn_config HF reads "lower_bound" where
 * the release writes "gate_lower_bound", and takes null for -5 unless safe_gate
 * is false, which would be another gate; its flat key has no such rule. */
static int conf_lower_bound(const struct conf *c, bool nested,
                            struct seam_model_config *m)
{
    const char *key = nested ? "gate_lower_bound" : "linear_lower_bound";

    if (nested && !json_object_get(c->o, key) &&
        json_object_get(c->o, "lower_bound"))
        key = "lower_bound";
    if (nested && json_is_null(json_object_get(c->o, key)) &&
        !json_is_false(json_object_get(c->o, "safe_gate"))) {
        m->kda_lower_bound = -5.0f;
        return 0;
    }
    return conf_float(c, key, -1e3, -1e-3, &m->kda_lower_bound);
}

/* Linear attention: an object of its own, or the flat names of HF. */
static int conf_linear(const struct conf *text, struct seam_model_config *m)
{
    const json_t *o = json_object_get(text->o, "linear_attn_config");
    struct conf c = *text;
    int rc;

    if (o && !json_is_object(o))
        return conf_refuse(text, "linear_attn_config", o, "an object");
    if (o) {
        c.o = o;
        c.section = *text->section ? "text_config.linear_attn_config"
                                   : "linear_attn_config";
    }
    rc = conf_u32(&c, o ? "num_heads" : "linear_num_heads", 1, MAX_HEADS,
                  &m->kda_heads);
    if (!rc)
        rc = conf_u32(&c, o ? "head_dim" : "linear_head_dim", 1, MAX_HEAD,
                      &m->kda_dim);
    if (!rc)
        rc = conf_u32(&c,
                      o ? "short_conv_kernel_size" : "linear_conv_kernel_dim",
                      2, 64, &m->kda_conv);
    if (!rc)
        rc = conf_lower_bound(&c, o != NULL, m);
    if (!rc && o)
        rc = conf_layer_list(&c, "kda_layers", m, SEAM_LAYER_LINEAR);
    if (!rc && o)
        rc = conf_layer_list(&c, "full_attn_layers", m, SEAM_LAYER_SPARSE);
    return rc;
}

/* Values that must fit each other. */
static int conf_agree(const struct conf *c, const struct seam_model_config *m)
{
    const json_t *v = json_object_get(c->o, "num_key_value_heads");

    if (!json_is_integer(v) || json_integer_value(v) != m->n_heads)
        return conf_refuse(c, "num_key_value_heads", v,
                           "num_attention_heads = %u", m->n_heads);
    v = json_object_get(c->o, "qk_head_dim");
    if (v && (!json_is_integer(v) || json_integer_value(v) != m->nope))
        return conf_refuse(c, "qk_head_dim", v, "qk_nope_head_dim = %u",
                           m->nope);
    if (m->index_topk % m->index_kpool)
        return conf_refuse(c, "index_topk", json_object_get(c->o, "index_topk"),
                           "a multiple of index_kpool = %u", m->index_kpool);
    if (m->n_experts % m->n_group ||
        (m->n_group > 1 && m->n_experts / m->n_group < 2))
        return conf_refuse(c, "n_group", json_object_get(c->o, "n_group"),
                           "equal groups of at least 2 of the %u experts",
                           m->n_experts);
    if (m->topk_group > m->n_group)
        return conf_refuse(c, "topk_group", json_object_get(c->o, "topk_group"),
                           "at most n_group = %u", m->n_group);
    if (m->experts_per_token > m->n_experts / m->n_group * m->topk_group)
        return conf_refuse(c, "num_experts_per_tok",
                           json_object_get(c->o, "num_experts_per_tok"),
                           "at most the %u experts of topk_group groups",
                           m->n_experts / m->n_group * m->topk_group);
    return 0;
}

static int conf_text(const struct conf *c, struct seam_model_config *m)
{
    const json_t *v;
    int rc = 0;

    for (size_t i = 0; i < N_OF(U32_KEYS) && !rc; i++)
        rc = conf_u32(c, U32_KEYS[i].key, U32_KEYS[i].lo, U32_KEYS[i].hi,
                      (uint32_t *)((char *)m + U32_KEYS[i].at));
    for (size_t i = 0; i < N_OF(FLOAT_KEYS) && !rc; i++)
        rc =
            conf_float(c, FLOAT_KEYS[i].key, FLOAT_KEYS[i].lo, FLOAT_KEYS[i].hi,
                       (float *)((char *)m + FLOAT_KEYS[i].at));
    for (size_t i = 0; i < N_OF(FIXED_KEYS) && !rc; i++)
        rc = conf_fixed(c, &FIXED_KEYS[i]);
    if (rc)
        return rc;
    v = json_object_get(c->o, "norm_topk_prob");
    if (!json_is_boolean(v))
        return conf_refuse(c, "norm_topk_prob", v, "true or false");
    m->norm_topk = json_is_true(v);
    m->n_mtp = 1;
    if (json_object_get(c->o, "num_nextn_predict_layers"))
        rc = conf_u32(c, "num_nextn_predict_layers", 0, 1, &m->n_mtp);
    if (!rc)
        rc = conf_kinds(c, m);
    if (!rc)
        rc = conf_linear(c, m);
    return rc ? rc : conf_agree(c, m);
}

/* One id or a list of them, added to what is there. */
static int conf_eos(const struct conf *c, struct seam_model_config *m)
{
    const json_t *v = json_object_get(c->o, "eos_token_id"), *id;
    size_t n = json_is_array(v) ? json_array_size(v) : 1;
    uint32_t k;

    if (!v || json_is_null(v))
        return 0;
    for (size_t i = 0; i < n; i++) {
        id = json_is_array(v) ? json_array_get(v, i) : v;
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) >= m->vocab)
            return conf_refuse(c, "eos_token_id", id,
                               "token ids below vocab_size = %u", m->vocab);
        for (k = 0; k < m->n_eos; k++)
            if (m->eos[k] == json_integer_value(id))
                break;
        if (k < m->n_eos)
            continue;
        if (k == N_OF(m->eos))
            return conf_refuse(c, "eos_token_id", v, "at most %zu ids",
                               N_OF(m->eos));
        m->eos[m->n_eos++] = (int32_t)json_integer_value(id);
    }
    return 0;
}

/* tie_word_embeddings may stand in either object, but in one it must. */
static int conf_untied(const struct conf *root, const struct conf *text)
{
    const char *key = "tie_word_embeddings";
    const json_t *a = json_object_get(text->o, key);
    const json_t *b = json_object_get(root->o, key);

    if (!json_is_false(a) && (a || !json_is_false(b)))
        return conf_refuse(text, key, a, "false");
    if (b && !json_is_false(b))
        return conf_refuse(root, key, b, "false");
    return 0;
}

/* ---- Quantisation ------------------------------------------------------- */

/* GPTQ layout, as AutoRound and GPTQ label it. */
static int conf_quant_int4(const struct conf *c, struct seam_model_config *m)
{
    static const struct fixed_key fixed[] = {
        { "bits", NULL, 4, false, false },
        { "sym", NULL, 1, true, false },
        { "data_type", "int", 0, false, true },
        { "desc_act", NULL, 0, true, true },
    };
    const json_t *v;
    int rc = 0;

    for (size_t i = 0; i < N_OF(fixed) && !rc; i++)
        rc = conf_fixed(c, &fixed[i]);
    if (!rc)
        rc = conf_u32(c, "group_size", 8, 1u << 16, &m->quant_group);
    if (rc)
        return rc;
    if (m->quant_group % 8)
        return conf_refuse(c, "group_size", json_object_get(c->o, "group_size"),
                           "a multiple of 8");
    m->quant_bits = 4;
    if (!strcmp(m->quant_method, "auto-round")) {
        v = json_object_get(c->o, "packing_format");
        if (!conf_is_word(v, "auto_round:auto_gptq"))
            return conf_refuse(c, "packing_format", v,
                               "\"auto_round:auto_gptq\"");
        snprintf(m->packing, sizeof m->packing, "auto_round:auto_gptq");
        return 0;
    }
    v = json_object_get(c->o, "checkpoint_format");
    if (v && !conf_is_word(v, "gptq") && !conf_is_word(v, "gptq_v2"))
        return conf_refuse(c, "checkpoint_format", v,
                           "\"gptq\" or \"gptq_v2\"");
    m->zero_is_v2 = v && conf_is_word(v, "gptq_v2");
    snprintf(m->packing, sizeof m->packing, "%s",
             m->zero_is_v2 ? "gptq_v2" : "gptq");
    return 0;
}

static int conf_quant_fp8(const struct conf *c, struct seam_model_config *m)
{
    const json_t *v = json_object_get(c->o, "weight_block_size");
    static const struct fixed_key fmt = { "fmt", "e4m3", 0, false, true };

    if (json_array_size(v) != 2 ||
        json_integer_value(json_array_get(v, 0)) != 128 ||
        json_integer_value(json_array_get(v, 1)) != 128)
        return conf_refuse(c, "weight_block_size", v, "[128, 128]");
    m->quant_bits = 8;
    m->quant_group = 128;
    snprintf(m->packing, sizeof m->packing, "fp8");
    return conf_fixed(c, &fmt);
}

static int conf_quant(const struct conf *root, const struct conf *text,
                      struct seam_model_config *m)
{
    const json_t *v = json_object_get(root->o, "quantization_config");
    struct conf c = *root;

    c.section = "quantization_config";
    if (!v && text->o != root->o) {
        v = json_object_get(text->o, "quantization_config");
        c.section = "text_config.quantization_config";
    }
    if (!v || json_is_null(v))
        return 0;
    if (!json_is_object(v))
        return conf_refuse(root, "quantization_config", v, "an object");
    c.o = v;
    v = json_object_get(c.o, "quant_method");
    if (!conf_is_word(v, "auto-round") && !conf_is_word(v, "gptq") &&
        !conf_is_word(v, "fp8"))
        return conf_refuse(&c, "quant_method", v,
                           "\"auto-round\", \"gptq\" or \"fp8\"");
    m->has_quant = true;
    snprintf(m->quant_method, sizeof m->quant_method, "%s",
             json_string_value(v));
    return strcmp(m->quant_method, "fp8") ? conf_quant_int4(&c, m)
                                          : conf_quant_fp8(&c, m);
}

int seam_model_config_read(struct seam_model_config *out, const char *file,
                           const json_t *root, struct seam_error *err)
{
    struct conf r = { root, file, "", err }, t = r;
    struct seam_model_config m = { 0 };
    int rc;

    if (!json_is_object(root))
        return seam_fail(err, SEAM_EDATA, "%s: expected an object", file);
    if (json_object_get(root, "text_config")) {
        t.o = json_object_get(root, "text_config");
        t.section = "text_config";
        if (!json_is_object(t.o))
            return conf_refuse(&r, "text_config", t.o, "an object");
    }
    rc = conf_model_type(&r, &t);
    if (!rc)
        rc = conf_text(&t, &m);
    if (!rc)
        rc = conf_untied(&r, &t);
    if (!rc)
        rc = conf_eos(&t, &m);
    if (!rc && t.o != r.o)
        rc = conf_eos(&r, &m);
    if (!rc)
        rc = conf_quant(&r, &t, &m);
    if (rc)
        return rc;
    *out = m;
    return 0;
}
