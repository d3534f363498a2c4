/* An open Hugging Face checkpoint folder: configuration, index, mapped shards.
 *
 * Tensors are found through weight_map of model.safetensors.index.json alone
 * (shards may hold stale duplicates); a folder with a single model.safetensors
 * and no index is accepted.  Everything that headers can tell is validated at
 * open: every indexed tensor exists in its shard, lies within it, and has the
 * dtype and shape that config.json implies (model spec 1.4 and 7); no tensor of
 * the model is missing.  Zero points are checked when their weight is asked
 * for.  Shards stay memory-mapped; a shard truncated later is noticed instead
 * of killing the process (see seam_checkpoint_lost). */
#ifndef SEAM_CHECKPOINT_CHECKPOINT_H
#define SEAM_CHECKPOINT_CHECKPOINT_H

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/checkpoint/model_config.h"
#include "core/checkpoint/safetensors.h"

struct seam_checkpoint;

/* done of total shards are validated.  [control] */
typedef void seam_checkpoint_progress(void *ctx, uint32_t done, uint32_t total);

/* log receives the notes: vision tensors skipped, tensors without a use, zero
 * points of another convention, symlinked shards; it must live until close.
 * Errors name file and key or tensor, what was found and what was expected.
 * config.n_mtp is corrected to whether the block's tensors are there.
 * [control] */
int seam_checkpoint_open(struct seam_checkpoint **c, const char *dir,
                         const struct seam_log *log,
                         seam_checkpoint_progress *progress, void *ctx,
                         struct seam_error *err);
void seam_checkpoint_close(struct seam_checkpoint *c);

const char *seam_checkpoint_dir(const struct seam_checkpoint *c);
const struct seam_model_config *seam_checkpoint_config(
    const struct seam_checkpoint *c);
/* text_config (or the root where it is flat), borrowed. */
json_t *seam_checkpoint_text_config(const struct seam_checkpoint *c);

/* One indexed tensor as stored; *data points into the mapping.  NULL: there is
 * none.  [any] */
const struct seam_st_tensor *seam_checkpoint_find(
    const struct seam_checkpoint *c, const char *name,
    const unsigned char **data);

/* Run fn(arg, i, worker) for i in [0, n) and wait. */
typedef void seam_parallel(void *ctx, uint32_t n, seam_task *fn, void *arg);

/* From now on 16-bit linear layers asked for by module name become int8 or int4
 * in memory of the checkpoint's own, each once, with the help of parallel:
 * form is "bf16" (as they are stored, also before the first call), "int8" or
 * "int4".  Which layers, and at most what: core/checkpoint/dense.c.  [control] */
void seam_checkpoint_quantise(struct seam_checkpoint *c, const char *form,
                              seam_parallel *parallel, void *ctx);
/* What that made so far. */
struct seam_checkpoint_dense {
    uint64_t n_i8, n_i4;          /* layers                                   */
    uint64_t stored_bytes, bytes; /* before and after                         */
    uint64_t ns;                  /* time it took                             */
};
void seam_checkpoint_dense(const struct seam_checkpoint *c,
                           struct seam_checkpoint_dense *out);

/* seam_host.weight for MEM_HOST: resolves "@embed", "@head", "@norm" and
 * "@layer.L.REST", module names (NAME.weight, with NAME.weight_scale_inv as
 * Q_GROUP of 128 x 128, or NAME.qweight/.qzeros/.scales as Q_GPTQ) and full
 * names.  Data not aligned to its element is copied into memory of the
 * checkpoint's own first.  A conv weight [n,1,k] stays rank 3; of a rank above
 * SEAM_MAX_RANK the leading dimensions are folded into one; rank 0 is [1].
 * Views live until close.  ENOENT, ENOMEM, EDATA.  [control] */
int seam_checkpoint_weight(struct seam_checkpoint *c, const char *name,
                           struct seam_tensor *out, struct seam_error *err);

/* A side file of the folder by plain name ("chat_template.jinja"), at most 64
 * MiB, cached; NUL-terminated, valid until close.  ENOENT.  [control] */
int seam_checkpoint_file(struct seam_checkpoint *c, const char *name,
                         struct seam_str *out, struct seam_error *err);

/* Totals for `seam inspect`. */
struct seam_checkpoint_stats {
    uint64_t n_indexed, n_files, indexed_bytes, file_bytes;
    uint64_t n_skipped; /* vision tensors */
};
void seam_checkpoint_stats(const struct seam_checkpoint *c,
                           struct seam_checkpoint_stats *out);
/* Calls fn for every indexed tensor, in name order. */
void seam_checkpoint_each(const struct seam_checkpoint *c,
                          void (*fn)(void *ctx, const struct seam_st_tensor *t),
                          void *ctx);

/* The first shard whose pages could no longer be read, or NULL while all is
 * well.  A SIGBUS inside a mapped shard is answered with pages of zeros and
 * remembered here; the engine looks after every step.  Threads that read
 * weights must not block SIGBUS.  [any] */
const char *seam_checkpoint_lost(const struct seam_checkpoint *c);

#endif
