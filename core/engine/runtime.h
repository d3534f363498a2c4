/* A model ready to compute: checkpoint, plugins, instances and their memory.
 *
 * The runtime knows sequences only as what one step is told about them; who
 * they are, and which of them run, is the scheduler's business (engine.c).
 * Golden tests and benchmarks drive it directly. */
#ifndef SEAM_ENGINE_RUNTIME_H
#define SEAM_ENGINE_RUNTIME_H

#include <stdatomic.h>
#include <stdbool.h>

#include "core/engine/memory.h"
#include "core/model/glm5_next.h"

struct seam_runtime_opts {
    const struct seam_config *config; /* outlives the runtime */
    const struct seam_log *log;
    /* Called while opening; returning non-zero gives up with ESTATE. */
    int (*progress)(void *ctx, const char *what, uint64_t done, uint64_t total);
    void *progress_ctx;
    uint32_t logit_rows; /* of one step; 0: enough to serve */
    /* Called before the model is made, which then calls what this leaves in *o:
     * for measurements, which put tables of their own around the plugins'. */
    void (*wrap)(void *ctx, struct seam_glm5_next_opts *o);
    void *wrap_ctx;
};

/* One sequence's share of a step.  Arrays are host memory, borrowed. */
struct seam_step_seq {
    const int32_t *token; /* [n] ids fed */
    uint32_t n;
    uint32_t pos;        /* position of token[0] = tokens cached before */
    const int32_t *page; /* [n_pages] in order */
    uint32_t n_pages;
    int32_t row;      /* state row */
    int32_t n_accept; /* see seam_step */
};

/* What is asked of row i of the last step's logits. */
struct seam_sample_row {
    float temperature, top_p, min_p;
    int32_t top_k;
    uint64_t seed, counter;
    const int32_t *bias_id; /* [n_bias] distinct */
    const float *bias_div, *bias_add;
    uint32_t n_bias;
    const uint32_t *mask; /* [seam_runtime_mask_words] or NULL: every token */
};

struct seam_sample_out {
    int32_t token; /* -1: the logits are not finite */
    float logprob;
    const int32_t *top_id; /* [n_top], valid until the next sample */
    const float *top_logprob;
};

struct seam_runtime {
    const struct seam_config *config;
    const struct seam_log *log;
    struct seam_pool *pool;
    struct seam_model model; /* checkpoint, tokenizer, text_config */
    struct seam_loader *loader;
    struct seam_instances instances;
    /* Replaced between two steps, under instances.lock; what follows is of
     * these, for the thread that runs the steps alone. */
    struct seam_instance *inst[SEAM_N_ROLES];
    struct seam_loaded *plugin[SEAM_N_ROLES];
    void *self[SEAM_N_ROLES];
    struct seam_needs needs[SEAM_N_ROLES];
    uint32_t *layers[SEAM_N_ROLES]; /* model layers served */
    struct seam_limits limits;
    struct seam_device device;
    const struct seam_backend *backend;
    struct seam_glm5_next *net;
    /* A second instance of the backend, for calls beside the steps, once
     * somebody made it.  [control] */
    struct seam_memory_source second;

    uint32_t page_tokens, n_rows;
    /* relaxed: changes between two steps, when a plugin brings another layout */
    _Atomic uint32_t n_pages;
    uint64_t page_bytes, row_bytes; /* over all layers and plugins */
    uint32_t max_pages;             /* of one sequence */
    uint32_t max_logit_rows;        /* of one step */
    uint32_t n_workers;

    struct seam_guards *guards; /* NULL: none; see guard.h */
    struct runtime_memory *memory;
    struct runtime_step *step; /* private */
};

/* Open everything config names.  Errors name file, plugin, key or tensor; when
 * the memory does not suffice, the message holds the arithmetic.  [control] */
int seam_runtime_open(struct seam_runtime **rt,
                      const struct seam_runtime_opts *opts,
                      struct seam_error *err);
void seam_runtime_close(struct seam_runtime *rt);

/* The instance that fills a role now, with a reference.  [any] */
struct seam_instance *seam_runtime_instance(struct seam_runtime *rt,
                                            enum seam_role role);
/* create and needs of an instance that was loaded.  [control] */
int seam_runtime_create(struct seam_runtime *rt, struct seam_instance *i,
                        struct seam_error *err);

/* Put i, which is attached to *grant, into its role, and return what was there
 * with what it was granted.  [submit], between two steps */
struct seam_instance *seam_runtime_exchange(struct seam_runtime *rt,
                                            struct seam_instance *i,
                                            const struct runtime_grant *grant,
                                            struct runtime_grant *old);
/* Where a block's call runs.  [submit] */
struct seam_exec seam_runtime_exec(struct seam_runtime *rt,
                                   struct seam_error *err);
/* Make row the state before the first token.  [submit] */
int seam_runtime_zero_row(struct seam_runtime *rt, int32_t row,
                          struct seam_error *err);
/* Make the first copy in row hold the state after n_accept tokens of its last
 * step; n_accept is 0 for it from then on.  [submit] */
int seam_runtime_commit(struct seam_runtime *rt, int32_t row, int32_t n_accept,
                        struct seam_error *err);

/* The first copy in a state row of a block role's layer, counted over the
 * layers it serves, and its bytes; NULL when it keeps none.  What the copy
 * holds is plain bytes after a commit, in device memory. */
void *seam_runtime_state(const struct seam_runtime *rt, enum seam_role role,
                         uint32_t layer, int32_t row, uint64_t *bytes);

/* The state of a sequence as plain bytes: one copy of every layer of every
 * block.  save commits the row first (n_accept is 0 for it from then on); both
 * wait until the bytes have moved.  [submit] */
uint64_t seam_runtime_row_bytes(const struct seam_runtime *rt);
int seam_runtime_save_row(struct seam_runtime *rt, int32_t row,
                          int32_t n_accept, void *bytes,
                          struct seam_error *err);
int seam_runtime_load_row(struct seam_runtime *rt, int32_t row,
                          const void *bytes, struct seam_error *err);
/* A page as plain bytes: its part of every plane of every layer, without the
 * padding.  Both wait until the bytes have moved.  [submit] */
uint64_t seam_runtime_page_bytes(const struct seam_runtime *rt);
int seam_runtime_save_page(struct seam_runtime *rt, int32_t page, void *bytes,
                           struct seam_error *err);
int seam_runtime_load_page(struct seam_runtime *rt, int32_t page,
                           const void *bytes, struct seam_error *err);
/* Copy a page in every plane of every layer.  [submit] */
int seam_runtime_copy_page(struct seam_runtime *rt, int32_t to, int32_t from,
                           struct seam_error *err);

/* Run one step of at most limits.max_seqs sequences and limits.max_tokens
 * tokens; logit_row [n_rows] are the token rows, counted over the whole step,
 * whose logits are wanted.  Of a plugin's failure the message begins with
 * "plugin NAME, layer N: ".  [submit] */
int seam_runtime_forward(struct seam_runtime *rt,
                         const struct seam_step_seq *seq, uint32_t n_seqs,
                         const int32_t *logit_row, uint32_t n_rows,
                         struct seam_error *err);
/* Whether the last step left token rows [from, from + n) of it finite; if not
 * EDATA, and the message names plugin and layer.  [submit] */
int seam_runtime_check_rows(struct seam_runtime *rt, uint32_t from, uint32_t n,
                            struct seam_error *err);

/* Copy row i of the last step's logits to out [vocab].  To be called before
 * seam_runtime_sample, which may change them.  [submit] */
int seam_runtime_logits(struct seam_runtime *rt, uint32_t i, float *out,
                        struct seam_error *err);

/* Choose a token for the last n rows of logits of the last step, from row
 * `first` on, and wait for the answer.  n_top <= SEAM_MAX_TOP.  [submit] */
#define SEAM_MAX_TOP 32
int seam_runtime_sample(struct seam_runtime *rt, uint32_t first, uint32_t n,
                        const struct seam_sample_row *row, uint32_t n_top,
                        struct seam_sample_out *out, struct seam_error *err);

/* 32-bit words of a mask over the rows of the head. */
uint32_t seam_runtime_mask_words(const struct seam_runtime *rt);

/* The memory plan in one line: what weights, pages and rows take. */
void seam_runtime_plan(const struct seam_runtime *rt, struct seam_buf *out);

#endif
