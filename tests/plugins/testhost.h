/* What the tests of plugins share: a host made of memory, and a driver that
 * runs a block plugin as the engine would.
 *
 * The driver is unfriendly on purpose: scratch is filled with NaN before every
 * call, activations are strided with gaps that must not be written, pages and
 * state rows lie between guard bytes, pages of a sequence are scattered.  What
 * it finds wrong fails the running test. */
#ifndef SEAM_TESTS_PLUGINS_TESTHOST_H
#define SEAM_TESTS_PLUGINS_TESTHOST_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include <seam/plugin.h>

/* ---- Random numbers ------------------------------------------------------ */

struct th_rng {
    uint64_t s;
};

uint64_t th_u64(struct th_rng *r);
double th_uniform(struct th_rng *r);             /* [0, 1)                   */
double th_normal(struct th_rng *r);              /* mean 0, variance 1       */
uint32_t th_below(struct th_rng *r, uint32_t n); /* [0, n)                   */

/* ---- The host ------------------------------------------------------------ */

struct th_weight {
    char *name;
    struct seam_tensor t;
    double *value; /* what the stored bytes stand for, row-major       */
    void *data, *scale, *zero;
};

struct th_file {
    char *name;
    char *text;
};

/* One host serves one model; seam_model is the th itself. */
struct th {
    struct seam_host host;
    json_t *model_cfg;
    json_t *plugin_cfg;
    struct th_weight *weight;
    uint32_t n_weights;
    uint64_t seed;
    uint32_t n_workers;
    int fail_alloc;      /* n > 0: the n-th alloc from now fails; 0: none    */
    bool hot;            /* inside a call that must not allocate             */
    uint32_t hot_allocs; /* host allocations seen there                      */
    int64_t live;        /* allocations not yet freed                        */
    char last_log[256];
    /* what extension() and block() answer; NULL: nothing                     */
    const void *(*extension)(void *arg, const char *id);
    int (*block)(void *arg, uint32_t kind, uint32_t layer,
                 struct seam_lent *out);
    int32_t (*token_id)(void *arg, const char *piece);
    /* asked first for every weight; ENOENT: look among those added here      */
    int (*weight_of)(void *arg, const char *name, struct seam_tensor *out);
    void *arg;
};

/* model_json is the text configuration, plugin_json the plugin's own block (or
 * NULL).  Aborts the test on bad JSON. */
struct th *th_new(const char *model_json, const char *plugin_json);
void th_free(struct th *h);
/* The plugin's own block from now on. */
void th_config(struct th *h, const char *plugin_json);
const struct seam_model *th_model(const struct th *h);
const struct seam_cfg *th_plugin_cfg(const struct th *h);

enum th_store {
    TH_F32 = 1,
    TH_F16 = 2,
    TH_BF16 = 3,
    TH_FP8 = 4,  /* F8E4M3, f32 scale per 128 x 128                           */
    TH_GPTQ = 5, /* int4, signed f16 scale per 32 inputs; n_in % 32 == 0,
                    n_out % 8 == 0, random zero points                        */
};

/* A random weight under `name` (as plugins ask for it): mean + amp * normal,
 * then rounded to its storage.  Shape [n_out, n_in], or [n_out] with n_in 0;
 * rank3 makes it [n_out, 1, n_in].  Depends only on h->seed and name.  Returns
 * the values of the stored bytes, which live as long as h.  Replaces a weight
 * of that name. */
const double *th_random(struct th *h, const char *name, enum th_store store,
                        uint64_t n_out, uint64_t n_in, double mean, double amp);
const double *th_random3(struct th *h, const char *name, enum th_store store,
                         uint64_t n_out, uint64_t n_in, double mean,
                         double amp);
/* The same with given values, F32, F16 or BF16 only. */
const double *th_values(struct th *h, const char *name, enum th_store store,
                        uint64_t n_out, uint64_t n_in, const double *v);
struct th_weight *th_find(const struct th *h, const char *name);
/* Values of a weight; fails the test when there is none. */
const double *th_get(const struct th *h, const char *name);
void th_remove(struct th *h, const char *name);

/* ---- Plugins ------------------------------------------------------------- */

/* Open SEAM_TEST_PLUGIN_DIR/NAME.so and run its init; fails the test when it
 * cannot.  The library stays open. */
const struct seam_plugin *th_plugin(struct th *h, const char *name);

/* A view of packed or strided floats. */
struct seam_tensor th_view(float *data, int64_t rows, int64_t cols,
                           int64_t stride_floats);

/* ---- Driving a block ----------------------------------------------------- */

struct tb_opts {
    const char *plugin;
    const uint32_t *layer; /* NULL: layers 0 .. n_layers - 1                  */
    uint32_t n_layers;     /* 0: 1                                            */
    uint32_t d;            /* hidden size                                     */
    uint32_t max_seqs, max_tokens, max_context, max_draft; /* 0: 4, 64, 256, 0*/
    uint32_t page_tokens; /* 0: 16                                           */
    uint32_t n_rows;      /* 0: max_seqs + 2                                 */
    uint32_t n_pages;     /* 0: enough for max_seqs full sequences           */
};

struct tb {
    struct th *h;
    struct tb_opts o;
    const struct seam_plugin *p;
    const struct seam_block *table;
    void *self;
    struct seam_limits limits;
    struct seam_device device;
    struct seam_create create;
    struct seam_needs needs;
    struct seam_grant grant;
    uint32_t *layers;
    unsigned char **plane[SEAM_MAX_PLANES]; /* [layer], between guards        */
    uint64_t plane_bytes[SEAM_MAX_PLANES];
    unsigned char **state; /* [layer]                        */
    uint64_t state_bytes;
    void *keep, *pinned, *ws;
    uint64_t ws_bytes;
    uint32_t tail_pad; /* padding rows after the last sequence of each step   */
    int32_t *free_page;
    uint32_t n_free;
    const struct seam_ops *ops; /* passed down in exec; may stay NULL         */
    void *ops_self;
    struct seam_error err; /* of the last call that failed               */
    void *mem[64];
    uint32_t n_mem;
};

/* Create, ask, grant.  On failure *out is NULL and err is the plugin's. */
int tb_new(struct tb **out, struct th *h, const struct tb_opts *o,
           struct seam_error *err);
void tb_free(struct tb *b);

/* A sequence: its row, its scattered pages, how far it is. */
struct tb_seq {
    int32_t row;
    uint32_t len;     /* tokens cached and standing                         */
    int32_t n_accept; /* of its previous step, for the next one             */
    uint32_t width;   /* tokens of its previous step                        */
    uint32_t n_pages;
    int32_t page[1024];
};

/* A new sequence in state row `row`, which is zeroed. */
void tb_seq_new(struct tb *b, struct tb_seq *s, int32_t row);
/* Pages go back, the row is filled with NaN. */
void tb_seq_end(struct tb *b, struct tb_seq *s);
/* Of the last step only the first n tokens stand (n in 1 .. width). */
void tb_keep(struct tb_seq *s, uint32_t n);
/* Commit all n_seqs sequences in one call. */
int tb_commit(struct tb *b, struct tb_seq *const *s, uint32_t n_seqs);

/* What one sequence brings to a step. */
struct tb_part {
    struct tb_seq *seq; /* NULL: a padding sequence of n padding rows         */
    uint32_t n;
    const float *x; /* [n][d]                                             */
    float *y;       /* out [n_layers][n][d]; NULL for padding             */
};

/* One step through begin and forward of every layer, all with the same x; then
 * the sequences stand after all their tokens (see tb_keep).  Checks that
 * padding rows came out zero, that gaps and guards are untouched and that
 * nothing was allocated. */
int tb_step(struct tb *b, const struct tb_part *part, uint32_t n_parts);
/* The same for one sequence. */
int tb_run(struct tb *b, struct tb_seq *s, const float *x, uint32_t n,
           float *y);

/* First bytes of copy k of a state row. */
void *tb_state(const struct tb *b, uint32_t layer, int32_t row, uint32_t k);

/* ---- Comparing ----------------------------------------------------------- */

/* sqrt(sum (a - b)^2 / sum b^2) over n values; infinite when a is not. */
double th_error(const float *a, const double *b, uint64_t n);
/* Largest |a - b| over n floats; infinite when one is not finite. */
double th_diff(const float *a, const float *b, uint64_t n);

#endif
