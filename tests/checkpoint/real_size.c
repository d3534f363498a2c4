#include "real_size.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LAYERS         45
#define EXPERTS        288
#define SHARDS         34
#define FILE_EXTRA     34 /* model_extra_tensors: the MTP block               */
#define FILE_CONV      35 /* model_extra_conv                                 */
#define DISK_MAX_BYTES (256u << 20) /* more means that holes are not holes    */

struct tensor {
    char name[104];
    const char *dtype;
    uint32_t rank;
    int64_t shape[5];
    uint64_t bytes;
    int file;
    bool stale; /* in the shard, but not what the index names */
};

struct maker {
    const char *dir, *why;
    struct tensor *t;
    uint32_t n, cap;
    int file; /* of the tensors being added; -1: shared out later       */
    uint64_t disk;
};

/* ---- The inventory ------------------------------------------------------ */

static void add(struct maker *m, const char *dtype, uint32_t rank,
                const int64_t *shape, const char *fmt, ...)
{
    struct tensor *t;
    va_list ap;

    if (m->n == m->cap) {
        m->cap = m->cap ? m->cap * 2 : 4096;
        m->t = realloc(m->t, m->cap * sizeof *m->t);
        if (!m->t)
            abort(); /* a test program */
    }
    t = &m->t[m->n++];
    *t = (struct tensor){ .dtype = dtype, .rank = rank, .file = m->file };
    va_start(ap, fmt);
    vsnprintf(t->name, sizeof t->name, fmt, ap);
    va_end(ap);
    t->bytes = dtype[0] == 'U' ? 1 : strchr(dtype, '3') ? 4 : 2;
    for (uint32_t i = 0; i < rank; i++) {
        t->shape[i] = shape[i];
        t->bytes *= (uint64_t)shape[i];
    }
}

#define ADD(m, dtype, name, ...)                                        \
    add(m, dtype, sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t), \
        (int64_t[]){ __VA_ARGS__ }, "%s%s", under, name)

static void add_kda(struct maker *m, const char *under)
{
    ADD(m, "BF16", "q_proj.weight", 8192, 4096);
    ADD(m, "BF16", "k_proj.weight", 8192, 4096);
    ADD(m, "BF16", "v_proj.weight", 8192, 4096);
    m->file = FILE_CONV;
    ADD(m, "BF16", "q_conv1d.weight", 8192, 1, 4);
    ADD(m, "BF16", "k_conv1d.weight", 8192, 1, 4);
    ADD(m, "BF16", "v_conv1d.weight", 8192, 1, 4);
    m->file = -1;
    for (const char *c = "qkv"; *c; c++) {
        char name[] = "?_conv1d.weight";

        name[0] = *c;
        ADD(m, "BF16", name, 24576, 1, 4);
        m->t[m->n - 1].stale = true;
    }
    ADD(m, "BF16", "f_a_proj.weight", 128, 4096);
    ADD(m, "BF16", "g_a_proj.weight", 128, 4096);
    ADD(m, "BF16", "f_b_proj.weight", 8192, 128);
    ADD(m, "BF16", "g_b_proj.weight", 8192, 128);
    ADD(m, "BF16", "b_proj.weight", 64, 4096);
    ADD(m, "F32", "A_log", 64);
    ADD(m, "F32", "dt_bias", 8192);
    ADD(m, "BF16", "o_norm.weight", 128);
    ADD(m, "BF16", "o_proj.weight", 4096, 8192);
}

static void add_dsa(struct maker *m, const char *under)
{
    ADD(m, "BF16", "q_a_proj.weight", 1536, 4096);
    ADD(m, "BF16", "q_a_layernorm.weight", 1536);
    ADD(m, "BF16", "q_b_proj.weight", 16384, 1536);
    ADD(m, "BF16", "kv_a_proj_with_mqa.weight", 512, 4096);
    ADD(m, "BF16", "kv_a_layernorm.weight", 512);
    ADD(m, "BF16", "kv_b_proj.weight", 32768, 512);
    ADD(m, "BF16", "o_proj.weight", 4096, 16384);
    ADD(m, "BF16", "indexer.wq_b.weight", 4096, 1536);
    ADD(m, "BF16", "indexer.wk.weight", 128, 4096);
    ADD(m, "BF16", "indexer.k_norm.weight", 128);
    ADD(m, "BF16", "indexer.k_norm.bias", 128);
    ADD(m, "BF16", "indexer.weights_proj.weight", 32, 4096);
    ADD(m, "BF16", "indexer.index_kpool_compress_ape", 4, 128);
    ADD(m, "BF16", "indexer.index_kpool_compress_gate", 128, 4096);
}

/* A quantised linear layer, group 128. */
static void add_int4(struct maker *m, const char *under, int64_t n_out,
                     int64_t n_in)
{
    ADD(m, "I32", "qweight", n_in / 8, n_out);
    ADD(m, "I32", "qzeros", n_in / 128, n_out / 8);
    ADD(m, "F16", "scales", n_in / 128, n_out);
}

static void add_moe(struct maker *m, const char *under)
{
    char name[128];

    ADD(m, "BF16", "gate.weight", EXPERTS, 4096);
    ADD(m, "F32", "gate.e_score_correction_bias", EXPERTS);
    ADD(m, "BF16", "shared_experts.gate_proj.weight", 2048, 4096);
    ADD(m, "BF16", "shared_experts.up_proj.weight", 2048, 4096);
    ADD(m, "BF16", "shared_experts.down_proj.weight", 4096, 2048);
    for (int e = 0; e < EXPERTS; e++) {
        snprintf(name, sizeof name, "%sexperts.%d.gate_proj.", under, e);
        add_int4(m, name, 2048, 4096);
        snprintf(name, sizeof name, "%sexperts.%d.up_proj.", under, e);
        add_int4(m, name, 2048, 4096);
        snprintf(name, sizeof name, "%sexperts.%d.down_proj.", under, e);
        add_int4(m, name, 4096, 2048);
    }
}

static void add_layer(struct maker *m, int l)
{
    char under[80];

    m->file = l < LAYERS ? -1 : FILE_EXTRA;
    snprintf(under, sizeof under, "model.language_model.layers.%d.", l);
    ADD(m, "BF16", "input_layernorm.weight", 4096);
    ADD(m, "BF16", "post_attention_layernorm.weight", 4096);
    if (l < LAYERS) {
        ADD(m, "BF16", "hc_attn_fn", 24, 16384);
        ADD(m, "F32", "hc_attn_base", 24);
        ADD(m, "F32", "hc_attn_scale", 3);
        ADD(m, "BF16", "hc_ffn_fn", 24, 16384);
        ADD(m, "F32", "hc_ffn_base", 24);
        ADD(m, "F32", "hc_ffn_scale", 3);
    } else {
        ADD(m, "BF16", "enorm.weight", 4096);
        ADD(m, "BF16", "hnorm.weight", 4096);
        ADD(m, "BF16", "shared_head.norm.weight", 4096);
        ADD(m, "BF16", "eh_proj.weight", 4096, 8192);
    }
    snprintf(under, sizeof under, "model.language_model.layers.%d.self_attn.",
             l);
    if (l < LAYERS && l % 4 != 3)
        add_kda(m, under);
    else
        add_dsa(m, under);
    snprintf(under, sizeof under, "model.language_model.layers.%d.mlp.", l);
    if (l < 3) {
        ADD(m, "BF16", "gate_proj.weight", 12288, 4096);
        ADD(m, "BF16", "up_proj.weight", 12288, 4096);
        ADD(m, "BF16", "down_proj.weight", 4096, 12288);
    } else {
        add_moe(m, under);
    }
}

/* 24 blocks of width 1024; the counts, 347 tensors and 563,627,008 values, are
 * the measured ones. */
static void add_vision(struct maker *m)
{
    const char *under = "model.visual.";
    char block[40];

    m->file = -1;
    ADD(m, "BF16", "patch_embed.proj.weight", 1024, 3, 2, 14, 14);
    ADD(m, "BF16", "patch_embed.proj.bias", 1024);
    ADD(m, "BF16", "post_layernorm.weight", 1024);
    ADD(m, "BF16", "downsample.weight", 4096, 1024, 2, 2);
    ADD(m, "BF16", "downsample.bias", 4096);
    ADD(m, "BF16", "merger.proj.weight", 4096, 4096);
    ADD(m, "BF16", "merger.post_projection_norm.weight", 4096);
    ADD(m, "BF16", "merger.post_projection_norm.bias", 4096);
    ADD(m, "BF16", "merger.gate_proj.weight", 10240, 4096);
    ADD(m, "BF16", "merger.up_proj.weight", 10240, 4096);
    ADD(m, "BF16", "merger.down_proj.weight", 4096, 10240);
    under = block;
    for (int b = 0; b < 24; b++) {
        snprintf(block, sizeof block, "model.visual.blocks.%d.", b);
        ADD(m, "BF16", "norm1.weight", 1024);
        ADD(m, "BF16", "norm2.weight", 1024);
        ADD(m, "BF16", "attn.qkv.weight", 3072, 1024);
        ADD(m, "BF16", "attn.qkv.bias", 3072);
        ADD(m, "BF16", "attn.q_norm.weight", 64);
        ADD(m, "BF16", "attn.k_norm.weight", 64);
        ADD(m, "BF16", "attn.proj.weight", 1024, 1024);
        ADD(m, "BF16", "attn.proj.bias", 1024);
        ADD(m, "BF16", "mlp.gate_proj.weight", 4096, 1024);
        ADD(m, "BF16", "mlp.gate_proj.bias", 4096);
        ADD(m, "BF16", "mlp.up_proj.weight", 4096, 1024);
        ADD(m, "BF16", "mlp.up_proj.bias", 4096);
        ADD(m, "BF16", "mlp.down_proj.weight", 1024, 4096);
        ADD(m, "BF16", "mlp.down_proj.bias", 1024);
    }
}

static void add_all(struct maker *m)
{
    const char *under = "model.language_model.";
    uint64_t all = 0, so_far = 0;

    m->file = -1;
    ADD(m, "BF16", "embed_tokens.weight", 154880, 4096);
    for (int l = 0; l <= LAYERS; l++)
        add_layer(m, l);
    m->file = -1;
    ADD(m, "BF16", "norm.weight", 4096);
    under = "";
    ADD(m, "BF16", "lm_head.weight", 154880, 4096);
    add_vision(m);
    for (uint32_t i = 0; i < m->n; i++)
        all += m->t[i].file < 0 ? m->t[i].bytes : 0;
    for (uint32_t i = 0; i < m->n; i++) {
        if (m->t[i].file >= 0)
            continue;
        m->t[i].file = (int)(so_far * SHARDS / all);
        so_far += m->t[i].bytes;
    }
}

/* ---- Files -------------------------------------------------------------- */

static void file_name(int file, char *to, size_t n)
{
    if (file == FILE_EXTRA)
        snprintf(to, n, "model_extra_tensors.safetensors");
    else if (file == FILE_CONV)
        snprintf(to, n, "model_extra_conv.safetensors");
    else
        snprintf(to, n, "model-%05d-of-%05d.safetensors", file + 1, SHARDS);
}

static FILE *create(struct maker *m, const char *name)
{
    char path[4096];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", m->dir, name);
    f = fopen(path, "wxe");
    if (!f)
        m->why = strerror(errno);
    return f;
}

/* Flush, make the file `bytes` long, and add what it takes on the disk. */
static bool finish(struct maker *m, FILE *f, uint64_t bytes)
{
    struct stat st;
    bool ok = !fflush(f) && (!bytes || !ftruncate(fileno(f), (off_t)bytes)) &&
              !fstat(fileno(f), &st);

    if (!ok)
        m->why = strerror(errno);
    else
        m->disk += (uint64_t)st.st_blocks * 512;
    fclose(f);
    if (ok && m->disk > DISK_MAX_BYTES) {
        m->why = "the file system keeps no sparse files";
        ok = false;
    }
    return ok;
}

static void header_tensor(FILE *f, const struct tensor *t, uint64_t from)
{
    fprintf(f, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", t->name, t->dtype);
    for (uint32_t i = 0; i < t->rank; i++)
        fprintf(f, "%s%lld", i ? "," : "", (long long)t->shape[i]);
    fprintf(f, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)from,
            (unsigned long long)(from + t->bytes));
}

/* One shard.  With `total`, the file is made exactly that long by one more
 * stale tensor: the real files are 0.2 GB longer than what their index names,
 * and what all of it is, is not known. */
static bool write_shard(struct maker *m, int file, uint64_t total,
                        uint64_t *bytes)
{
    static const char begin[] = "{\"__metadata__\":{\"format\":\"pt\"}";
    char name[64], *text = NULL;
    uint64_t data = 0, length;
    size_t n = 0;
    FILE *f, *h;

    file_name(file, name, sizeof name);
    f = create(m, name);
    if (!f)
        return false;
    h = open_memstream(&text, &n);
    if (!h)
        abort(); /* a test program */
    fputs(begin, h);
    for (uint32_t i = 0; i < m->n; i++) {
        if (m->t[i].file != file)
            continue;
        header_tensor(h, &m->t[i], data);
        data += m->t[i].bytes;
    }
    fflush(h);
    if (total) {
        struct tensor stale = { .name = "model.stale",
                                .dtype = "U8",
                                .rank = 1 };

        length = (n + 256) / 8 * 8; /* room for its description */
        stale.bytes = total - 8 - length - data;
        stale.shape[0] = (int64_t)stale.bytes;
        header_tensor(h, &stale, data);
        data += stale.bytes;
    } else {
        length = (n + 8) / 8 * 8;
    }
    fputc('}', h);
    fflush(h);
    while (n < length) {
        fputc(' ', h);
        fflush(h);
    }
    fclose(h);
    for (int i = 0; i < 8; i++)
        fputc((int)(length >> 8 * i & 0xff), f);
    fwrite(text, 1, n, f);
    free(text);
    *bytes = 8 + length + data;
    return finish(m, f, *bytes);
}

static bool write_index(struct maker *m)
{
    const char *separator = "";
    uint64_t total = 0;
    char name[64];
    FILE *f = create(m, "model.safetensors.index.json");

    if (!f)
        return false;
    for (uint32_t i = 0; i < m->n; i++)
        total += m->t[i].stale ? 0 : m->t[i].bytes;
    fprintf(f,
            "{\n  \"metadata\": {\n    \"total_size\": %llu\n  },\n"
            "  \"weight_map\": {",
            (unsigned long long)total);
    for (uint32_t i = 0; i < m->n; i++) {
        if (m->t[i].stale)
            continue;
        file_name(m->t[i].file, name, sizeof name);
        fprintf(f, "%s\n    \"%s\": \"%s\"", separator, m->t[i].name, name);
        separator = ",";
    }
    fputs("\n  }\n}\n", f);
    return finish(m, f, 0);
}

static void write_list(FILE *f, const char *key, const char *odd,
                       const char *even, bool (*is_even)(int))
{
    fprintf(f, "    \"%s\": [", key);
    for (int l = 0; l < LAYERS; l++)
        fprintf(f, "%s\"%s\"", l ? ", " : "", is_even(l) ? even : odd);
    fputs("],\n", f);
}

static bool is_sparse(int l)
{
    return l % 4 == 3;
}

static bool is_moe(int l)
{
    return l >= 3;
}

static bool write_config(struct maker *m)
{
    FILE *f = create(m, "config.json");

    if (!f)
        return false;
    fputs("{\n  \"architectures\": [\"Glm5NextForConditionalGeneration\"],\n"
          "  \"model_type\": \"glm5_next\",\n  \"dtype\": \"bfloat16\",\n"
          "  \"tie_word_embeddings\": false,\n"
          "  \"eos_token_id\": [154820, 154827, 154829],\n"
          "  \"text_config\": {\n    \"model_type\": \"glm5_next_text\",\n"
          "    \"hidden_size\": 4096, \"vocab_size\": 154880,\n"
          "    \"num_hidden_layers\": 45, \"num_nextn_predict_layers\": 1,\n"
          "    \"num_attention_heads\": 64, \"num_key_value_heads\": 64,\n"
          "    \"max_position_embeddings\": 1048576, \"q_lora_rank\": 1536,\n"
          "    \"kv_lora_rank\": 512, \"qk_nope_head_dim\": 256,\n"
          "    \"qk_rope_head_dim\": 0, \"qk_head_dim\": 256,\n"
          "    \"v_head_dim\": 256, \"mla_use_nope\": true,\n"
          "    \"attention_bias\": false, \"rms_norm_eps\": 1e-05,\n"
          "    \"hidden_act\": \"silu\", \"swiglu_limit\": 10.0,\n"
          "    \"intermediate_size\": 12288, \"moe_intermediate_size\": 2048,\n"
          "    \"n_routed_experts\": 288, \"num_experts_per_tok\": 8,\n"
          "    \"n_shared_experts\": 1, \"first_k_dense_replace\": 3,\n"
          "    \"scoring_func\": \"sigmoid\", \"topk_method\": \"noaux_tc\",\n"
          "    \"n_group\": 1, \"topk_group\": 1, \"norm_topk_prob\": true,\n"
          "    \"routed_scaling_factor\": 2.5,\n"
          "    \"moe_router_dtype\": \"float32\", \"index_n_heads\": 32,\n"
          "    \"index_head_dim\": 128, \"index_topk\": 2048,\n"
          "    \"index_kpool\": 4, \"index_kpool_compress\": true,\n"
          "    \"index_kpool_always_select_tail\": true,\n"
          "    \"indexer_rope_interleave\": true,\n"
          "    \"index_share_for_mtp_iteration\": true,\n"
          "    \"tie_word_embeddings\": false, \"mhc\": true,\n"
          "    \"hc_mult\": 4, \"hc_eps\": 1e-06, \"hc_sinkhorn_iters\": 20,\n"
          "    \"linear_attn_config\": {\"num_heads\": 64, \"head_dim\": 128,\n"
          "      \"short_conv_kernel_size\": 4, \"gate_lower_bound\": -5.0},\n",
          f);
    write_list(f, "layer_types", "linear_attention",
               "deepseek_sparse_attention", is_sparse);
    write_list(f, "mlp_layer_types", "dense", "sparse", is_moe);
    write_list(f, "indexer_types", "full", "full", is_moe);
    fputs("    \"bos_token_id\": null, \"pad_token_id\": 154820\n  },\n"
          "  \"quantization_config\": {\"quant_method\": \"auto-round\",\n"
          "    \"packing_format\": \"auto_round:auto_gptq\", \"bits\": 4,\n"
          "    \"group_size\": 128, \"sym\": true, \"data_type\": \"int\"}\n"
          "}\n",
          f);
    return finish(m, f, 0);
}

int real_size_make(const char *dir, uint64_t *disk_bytes, const char **why)
{
    struct maker m = { .dir = dir, .why = "?" };
    uint64_t total = 0, bytes = 0;
    bool ok;

    add_all(&m);
    ok = write_config(&m) && write_index(&m);
    for (int file = (int)REAL_FILES - 1; file >= 0 && ok; file--) {
        ok = write_shard(&m, file, file ? 0 : REAL_FILE_BYTES - total, &bytes);
        total += bytes;
    }
    free(m.t);
    *disk_bytes = m.disk;
    *why = m.why;
    return ok ? 0 : -1;
}

void real_size_remove(const char *dir)
{
    struct dirent *e;
    DIR *d = opendir(dir);

    while (d && (e = readdir(d)))
        if (e->d_name[0] != '.')
            unlinkat(dirfd(d), e->d_name, 0);
    if (d)
        closedir(d);
    rmdir(dir);
}
