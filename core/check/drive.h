/* Runs a block plugin as the engine would, and unfriendly on purpose: scratch is
 * filled with NaN before every call, activations are strided with gaps that
 * must not be written, pages and state rows lie between guard bytes, pages of a
 * sequence are scattered.  What it finds wrong goes to ck_fail. */
#ifndef SEAM_CHECK_DRIVE_H
#define SEAM_CHECK_DRIVE_H

#include "core/check/synth.h"
#include "core/check/thread.h"

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
    uint32_t exec_flags;        /* SEAM_EXEC_* of the next steps              */
    bool no_host_arrays;        /* the next steps come without host_*         */
    uint32_t bend; /* 1: a layer too high, 2: x I32, 3: x narrower, 4: y I32  */
    void *ops_self;
    struct ck_mover *mover; /* of the calls of steps; NULL: made right here   */
    struct seam_error err;  /* of the last call that failed               */
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
