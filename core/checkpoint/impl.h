/* What the files of core/checkpoint share about an open checkpoint. */
#ifndef SEAM_CHECKPOINT_IMPL_H
#define SEAM_CHECKPOINT_IMPL_H

#include "core/base/file.h"
#include "core/checkpoint/checkpoint.h"

#define SEAM_INDEX_FILE  "model.safetensors.index.json"
#define SEAM_SINGLE_FILE "model.safetensors"

struct seam_shard {
    char *name;
    struct seam_map map;
    struct seam_st_header h;
    uint32_t slot; /* of the guard, if `watched` */
    bool watched;
};

/* An indexed tensor. */
struct seam_entry {
    const struct seam_st_tensor *t; /* in its shard's header */
    uint16_t shard;
    bool used; /* the model has a place for it */
};

struct seam_dense;

/* Memory handed out until the checkpoint is closed. */
struct seam_keep {
    struct seam_keep *next;
    char *name; /* of a cached side file, or NULL */
    uint64_t bytes;
    unsigned char *p;
};

struct seam_checkpoint {
    char *dir;
    const struct seam_log *log;
    json_t *root;
    struct seam_model_config config;
    struct seam_shard *shard;
    struct seam_entry *entry; /* [n] sorted by name */
    uint32_t n_shards, n;
    uint32_t n_skipped;      /* vision tensors */
    void **copy;             /* [n] aligned copies, or NULL */
    struct seam_keep *files; /* side files */
    struct seam_keep *zeros; /* arrays of v1 zero points */
    bool warned_zero;

    /* Quantised linear layers, see dense.h. */
    uint32_t dense_form;      /* enum seam_dense_form */
    struct seam_dense *dense; /* [n], or NULL; p NULL: not made */
    seam_parallel *parallel;
    void *parallel_ctx;
    struct seam_checkpoint_dense made;
};

/* Index of the entry called name, or -1. */
int64_t seam_entry_find(const struct seam_checkpoint *c, const char *name);

/* The three tensors of a quantised linear layer "NAME", as entries. */
struct seam_gptq {
    int64_t qweight, qzeros, scales, g_idx; /* g_idx may be -1 */
    int64_t n_out, n_in;
};

/* Find them and check that they fit together.  qweight is the entry of
 * "NAME.qweight". */
int seam_gptq_find(const struct seam_checkpoint *c, const char *name,
                   int64_t qweight, struct seam_gptq *g,
                   struct seam_error *err);

/* The entry of the scales of an F8_E4M3 tensor, checked to be
 * [ceil(rows/128), ceil(cols/128)]; -1 and *err when there is none. */
int64_t seam_fp8_scale(const struct seam_checkpoint *c, int64_t weight,
                       struct seam_error *err);

bool seam_is_float(uint16_t dtype); /* F32, F16, BF16 */

/* "SHARD: tensor "NAME": " and the rest. */
int seam_entry_fail(const struct seam_checkpoint *c, int64_t i,
                    struct seam_error *err, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

#endif
