/* The report of `seam inspect`. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/checkpoint/inventory.h"
#include "core/checkpoint/plan.h"

#define N_DTYPES 16 /* above every dtype that a file can hold                 */

/* The choices of dtype that the plan is printed for. */
static const struct column {
    const char *name;
    uint16_t latent, index, conv, state;
} COLUMNS[] = {
    /* "kv_dtype" of the built-in plugins, whose states are F32 */
    { "f32", SEAM_F32, SEAM_F32, SEAM_F32, SEAM_F32 },
    { "bf16", SEAM_BF16, SEAM_BF16, SEAM_F32, SEAM_F32 },
    { "fp8", SEAM_F8E4M3, SEAM_F8E4M3, SEAM_F32, SEAM_F32 },
    /* the figures of the model spec, section 9 */
    { "bf16 conv", SEAM_BF16, SEAM_BF16, SEAM_BF16, SEAM_F32 },
    { "fp8 index", SEAM_BF16, SEAM_F8E4M3, SEAM_BF16, SEAM_F32 },
    { "bf16 state", SEAM_BF16, SEAM_BF16, SEAM_BF16, SEAM_BF16 },
};
#define N_COLUMNS (sizeof COLUMNS / sizeof COLUMNS[0])

/* "168.81 GiB" in one of two buffers, so that a line may hold two. */
static const char *inspect_size(uint64_t bytes, char to[24])
{
    static const char *const unit[] = { "B", "KiB", "MiB", "GiB", "TiB" };
    double v = (double)bytes;
    uint32_t u = 0;

    for (; v >= 1024 && u < 4; u++)
        v /= 1024;
    snprintf(to, 24, u ? "%.2f %s" : "%.0f %s", v, unit[u]);
    return to;
}

/* ---- Architecture ------------------------------------------------------- */

static void inspect_model(const struct seam_checkpoint *c,
                          const struct seam_checkpoint_stats *s,
                          struct seam_buf *out)
{
    const struct seam_model_config *m = seam_checkpoint_config(c);
    uint32_t n_linear = 0, n_dense = 0;
    char a[24], b[24];

    for (uint32_t l = 0; l < m->n_layers; l++) {
        n_linear += m->layer_kind[l] == SEAM_LAYER_LINEAR;
        n_dense += m->mlp_kind[l] == SEAM_MLP_DENSE;
    }
    seam_buf_fmt(out, "checkpoint    %s\n", seam_checkpoint_dir(c));
    seam_buf_fmt(out,
                 "architecture  glm5_next: %u layers (%u linear, %u "
                 "sparse attention; %u dense, %u MoE)%s\n",
                 m->n_layers, n_linear, m->n_layers - n_linear, n_dense,
                 m->n_layers - n_dense,
                 m->n_mtp ? ", MTP block" : ", no MTP block");
    seam_buf_fmt(out,
                 "              hidden %u, vocabulary %u, context %u, %u "
                 "residual streams\n",
                 m->hidden, m->vocab, m->max_context, m->hc_mult);
    seam_buf_fmt(out,
                 "              linear: %u heads of %u; sparse: %u heads, "
                 "latent %u, index %u heads of %u, top %u in pools of %u\n",
                 m->kda_heads, m->kda_dim, m->n_heads, m->kv_lora,
                 m->index_heads, m->index_dim, m->index_topk, m->index_kpool);
    seam_buf_fmt(out,
                 "              experts: %u routed, %u per token, %u "
                 "shared, width %u; dense width %u\n",
                 m->n_experts, m->experts_per_token, m->n_shared,
                 m->moe_intermediate, m->intermediate);
    if (m->has_quant)
        seam_buf_fmt(out, "quantisation  %s, %s, %u bits, groups of %u\n",
                     m->quant_method, m->packing, m->quant_bits,
                     m->quant_group);
    else
        seam_buf_str(out, "quantisation  none\n");
    seam_buf_fmt(out,
                 "tensors       %" PRIu64 " indexed in %" PRIu64
                 " files: %" PRIu64 " bytes (%s) of %" PRIu64 " (%s)\n\n",
                 s->n_indexed, s->n_files, s->indexed_bytes,
                 inspect_size(s->indexed_bytes, a), s->file_bytes,
                 inspect_size(s->file_bytes, b));
}

/* ---- Tensors by part and dtype ------------------------------------------ */

struct tally {
    const struct seam_model_config *m;
    uint64_t n[SEAM_N_PARTS][N_DTYPES], bytes[SEAM_N_PARTS][N_DTYPES];
};

static void inspect_count(void *ctx, const struct seam_st_tensor *t)
{
    struct tally *y = ctx;
    enum seam_part p = seam_part_of(y->m, t->name);

    if (t->dtype < N_DTYPES) {
        y->n[p][t->dtype]++;
        y->bytes[p][t->dtype] += t->bytes;
    }
}

static void inspect_row(struct seam_buf *out, const char *part,
                        const char *dtype, uint64_t n, uint64_t bytes)
{
    char a[24];

    seam_buf_fmt(out, "%-20s%-10s%10" PRIu64 "%18" PRIu64 "%14s\n", part, dtype,
                 n, bytes, inspect_size(bytes, a));
}

/* Returns the bytes that the model reads: all but vision and strangers. */
static uint64_t inspect_tensors(const struct tally *y, struct seam_buf *out)
{
    uint64_t n = 0, bytes = 0, n_used = 0, weights = 0;

    seam_buf_fmt(out, "%-20s%-10s%10s%18s\n", "component", "dtype", "tensors",
                 "bytes");
    for (uint32_t p = 0; p < SEAM_N_PARTS; p++)
        for (uint16_t d = 0; d < N_DTYPES; d++) {
            if (!y->n[p][d])
                continue;
            inspect_row(out, seam_part_name(p), seam_dtype_name(d), y->n[p][d],
                        y->bytes[p][d]);
            n += y->n[p][d];
            bytes += y->bytes[p][d];
            if (p != SEAM_PART_VISION && p != SEAM_PART_OTHER) {
                n_used += y->n[p][d];
                weights += y->bytes[p][d];
            }
        }
    for (uint16_t d = 0; d < N_DTYPES; d++) {
        uint64_t dn = 0, db = 0;

        for (uint32_t p = 0; p < SEAM_N_PARTS; p++) {
            dn += y->n[p][d];
            db += y->bytes[p][d];
        }
        if (dn)
            inspect_row(out, "all", seam_dtype_name(d), dn, db);
    }
    inspect_row(out, "all", "", n, bytes);
    inspect_row(out, "weights in use", "", n_used, weights);
    return weights;
}

/* ---- weights.dense ------------------------------------------------------- */

/* Bytes that the model reads with each form.  What is made replaces what is
 * stored: that stays in the file, and nothing reads it after loading. */
static void inspect_dense(const struct seam_checkpoint *c, uint64_t weights,
                          uint64_t in_use[3], struct seam_buf *out)
{
    static const char *const name[] = { "bf16", "int8", "int4" };

    seam_buf_fmt(out, "\n%-16s%8s%8s%18s%18s%18s\n", "weights.dense", "to int8",
                 "to int4", "made in memory", "of stored bytes",
                 "weights in use");
    for (uint32_t f = 0; f < 3; f++) {
        struct seam_checkpoint_dense d;

        seam_dense_plan(c, (enum seam_dense_form)f, &d);
        in_use[f] = weights - d.stored_bytes + d.bytes;
        seam_buf_fmt(out,
                     "%-16s%8" PRIu64 "%8" PRIu64 "%18" PRIu64 "%18" PRIu64
                     "%18" PRIu64 "\n",
                     name[f], d.n_i8, d.n_i4, d.bytes, d.stored_bytes,
                     in_use[f]);
    }
}

/* ---- Memory ------------------------------------------------------------- */

static void inspect_line(struct seam_buf *out, const char *what,
                         const uint64_t v[N_COLUMNS])
{
    seam_buf_fmt(out, "%-32s", what);
    for (size_t i = 0; i < N_COLUMNS; i++)
        seam_buf_fmt(out, " %13" PRIu64, v[i]);
    seam_buf_str(out, "\n");
}

static void inspect_field(struct seam_buf *out, const char *what,
                          const struct seam_plan *p, size_t field)
{
    uint64_t v[N_COLUMNS];

    for (size_t i = 0; i < N_COLUMNS; i++)
        memcpy(&v[i], (const char *)&p[i] + field, sizeof v[i]);
    inspect_line(out, what, v);
}

static void inspect_plan(const struct seam_model_config *m,
                         const struct seam_plan p[N_COLUMNS],
                         struct seam_buf *out)
{
    uint64_t trunk[N_COLUMNS], mtp[N_COLUMNS];
    char what[64];

    seam_buf_fmt(out, "\n%-32s", "bytes of cache and state");
    for (size_t i = 0; i < N_COLUMNS; i++) {
        seam_buf_fmt(out, " %13s", COLUMNS[i].name);
        trunk[i] = m->max_context * p[i].per_token;
        mtp[i] = m->max_context * p[i].per_token_mtp;
    }
    seam_buf_str(out, "\n");
#define FIELD(what, field) \
    inspect_field(out, what, p, offsetof(struct seam_plan, field))
    FIELD("latent, per token", latent_per_token);
    FIELD("index keys, per token", index_per_token);
    FIELD("per token", per_token);
    FIELD("per token with MTP block", per_token_mtp);
    FIELD("linear state, per sequence", kda_per_seq);
    FIELD("convolution, per sequence", conv_per_seq);
    FIELD("index ring, per sequence", ring_per_seq);
    FIELD("per sequence", per_seq);
    FIELD("and ring of the MTP block", ring_mtp);
#undef FIELD
    snprintf(what, sizeof what, "%u tokens", m->max_context);
    inspect_line(out, what, trunk);
    snprintf(what, sizeof what, "%u tokens with MTP block", m->max_context);
    inspect_line(out, what, mtp);
}

/* How many sequences of how many tokens fit in `left` bytes, with the MTP block
 * where there is one. */
static void inspect_fit(const struct seam_model_config *m,
                        const struct seam_plan p[N_COLUMNS], uint64_t left,
                        struct seam_buf *out)
{
    uint64_t token[N_COLUMNS], seq[N_COLUMNS], v[N_COLUMNS];
    char what[64];

    for (size_t i = 0; i < N_COLUMNS; i++) {
        token[i] = m->n_mtp ? p[i].per_token_mtp : p[i].per_token;
        seq[i] = p[i].per_seq + (m->n_mtp ? p[i].ring_mtp : 0);
        v[i] = left > seq[i] && token[i] ? (left - seq[i]) / token[i] : 0;
        if (v[i] > m->max_context)
            v[i] = m->max_context;
    }
    inspect_line(out, "tokens of one sequence", v);
    for (uint64_t n = 1024;; n *= 8) {
        if (n > m->max_context)
            n = m->max_context;
        for (size_t i = 0; i < N_COLUMNS; i++) {
            uint64_t need = seq[i] + n * token[i];

            v[i] = need ? left / need : 0;
        }
        snprintf(what, sizeof what, "sequences of %" PRIu64 " tokens", n);
        inspect_line(out, what, v);
        if (n == m->max_context)
            break;
    }
}

void seam_inspect(const struct seam_checkpoint *c, uint64_t budget,
                  enum seam_dense_form form, struct seam_buf *out)
{
    const struct seam_model_config *m = seam_checkpoint_config(c);
    struct tally tally = { .m = m };
    struct seam_checkpoint_stats s;
    struct seam_plan p[N_COLUMNS];
    uint64_t weights, in_use[3];
    char a[24], b[24];

    seam_checkpoint_stats(c, &s);
    inspect_model(c, &s, out);
    seam_checkpoint_each(c, inspect_count, &tally);
    weights = inspect_tensors(&tally, out);
    inspect_dense(c, weights, in_use, out);
    weights = in_use[form];
    for (size_t i = 0; i < N_COLUMNS; i++)
        p[i] = seam_plan_of(m, COLUMNS[i].latent, COLUMNS[i].index,
                            COLUMNS[i].conv, COLUMNS[i].state);
    inspect_plan(m, p, out);
    if (!budget)
        return;
    if (weights > budget) {
        seam_buf_fmt(out,
                     "\nbudget %" PRIu64 " (%s) is less than the weights "
                     "need: %" PRIu64 " (%s) are missing\n",
                     budget, inspect_size(budget, a), weights - budget,
                     inspect_size(weights - budget, b));
        seam_buf_str(out, "all of it for caches, weights elsewhere:\n");
        inspect_fit(m, p, budget, out);
        return;
    }
    seam_buf_fmt(out,
                 "\nbudget %" PRIu64 " (%s) less the weights leaves %" PRIu64
                 " (%s)\n",
                 budget, inspect_size(budget, a), budget - weights,
                 inspect_size(budget - weights, b));
    inspect_fit(m, p, budget - weights, out);
}
