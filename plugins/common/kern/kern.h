/* The kernels of the default CPU plugins.
 *
 * One table of functions per instruction set, chosen once when a plugin is
 * initialised.  Activations and accumulators are f32, weights are read where
 * they lie.  The order in which one output is summed depends on the shape of
 * its weight alone, never on how many rows or outputs are computed together:
 * that is what makes a row's result independent of the batch. */
#ifndef SEAM_KERN_H
#define SEAM_KERN_H

#include <stdbool.h>

#include "plugin_util.h"

/* Rows of x that one call takes; callers cut larger batches. */
#define KERN_ROWS 96
/* Outputs that one call of dot takes, and with one packed row. */
#define KERN_OUTS 256
#define KERN_WIDE 1024
/* Scratch of one worker, 64-byte aligned: what dot needs, and behind that of
 * all workers room for packed rows. */
#define KERN_OWN     (1u << 19)
#define KERN_SCRATCH (3u << 19)

/* A linear layer [n, k] as it is stored. */
struct kern_mat {
    const unsigned char *w;
    uint64_t stride; /* bytes from row to row; not with GPTQ         */
    uint32_t n, k;
    uint32_t row0; /* of the stored tensor, for finding scales     */
    uint32_t n_stored;
    uint16_t dtype;       /* SEAM_F32, ..., SEAM_I4 for GPTQ              */
    uint16_t scale_dtype; /* 0: values stand for themselves               */
    uint32_t group_rows, group_cols;
    const unsigned char *scale;
    const unsigned char
        *zero; /* GPTQ; NULL: every zero point is 8            */
};

/* How rows of x must be packed for the products of a weight. */
enum {
    KERN_FLOATS = 0,  /* rows as they are                                    */
    KERN_NIBBLES = 1, /* for GPTQ                                            */
    KERN_BYTES = 2,   /* for I8 rows with a scale per group                  */
    KERN_TILES = 3    /* for BF16 rows, by kern_run alone                    */
};
struct kern_form {
    uint32_t kind, group; /* inputs that share a scale                       */
};

/* Planes of 8 bits that a packed row has. */
static inline uint32_t kern_planes(struct kern_form f)
{
    return f.kind == KERN_NIBBLES ? 3 : 2;
}

struct kern_fast; /* kern_fast.h */

/* A token of the delta rule in chunks, kda_state.h; i is its place in its chunk
 * and D_i the product of the decays up to it. */
struct kern_delta {
    const float *q, *k; /* [nk] times D_i, nk <= KERN_KEYS                    */
    const float *a;     /* [i]      sum_d k[d] key_j[d] of the entries before */
    const float *b;     /* [i + 1]  sum_d q[d] key_j[d], its own as well      */
    float *v;           /* [nv] value, replaced by the output                 */
    float beta;
};
#define KERN_KEYS 512
/* Entries of a log, and tokens, that one call takes. */
#define KERN_CHUNK 8

struct kern {
    const char *name;
    const struct kern_fast *fast; /* products of packed rows, or NULL        */
    uint32_t lanes;

    /* y[r][o] = (add ? y[r][o] : 0) + sum_i w[o][i] x[r][i] + bias[o] for the
     * outputs o in [o0, o1), at most KERN_OUTS, o0 a multiple of 16, and m rows,
     * at most KERN_ROWS.  y[r] points to output o0, bias (or NULL) to output 0.
     * scratch is KERN_OWN bytes. */
    void (*dot)(const struct kern_mat *w, uint32_t o0, uint32_t o1,
                const float *const *x, uint32_t m, float *const *y,
                const float *bias, bool add, void *scratch);

    /* The same for n rows given one by one, F32, F16 or BF16:
     * y[r][o] = sum_i w[o][i] x[r][i], any n and m. */
    void (*dot_rows)(uint16_t dtype, const void *const *w, uint32_t n,
                     uint32_t k, const float *const *x, uint32_t m,
                     float *const *y);

    /* Across rows: y[r][c] = (add ? y[r][c] : 0) + sum_i x[r][i] w[i][c] for c
     * in [0, n), in ascending i; n_w rows of w, F32, F16, BF16 or unscaled I8,
     * any m. */
    void (*mix_rows)(uint16_t dtype, const void *const *w, uint32_t n_w,
                     uint32_t n, const float *const *x, uint32_t m,
                     float *const *y, bool add);

    /* out[p] = sum_h w[h] max(0, sum_i key[p][i] qt[i][h]) for n keys of k
     * numbers and n_h heads; qt is [k][ld], zero from head n_h to the next
     * multiple of `lanes`.  A dot product that is no number stays one. */
    void (*pool_scores)(const float *const *key, uint32_t n, uint32_t k,
                        const float *qt, uint64_t ld, const float *w,
                        uint32_t n_h, float *out);

    float (*sum_squares)(const float *x, uint32_t n);
    float (*sum)(const float *x, uint32_t n);
    /* y = x * s * w; w NULL: y = x * s.  y may be x. */
    void (*scale)(const float *x, float s, const void *w, uint16_t w_dtype,
                  uint32_t n, float *y);
    void (*add)(const float *a, const float *b, uint32_t n, float *y);
    /* y += s * x */
    void (*axpy)(float s, const float *x, uint32_t n, float *y);
    /* y = silu(min(g, limit)) * clamp(u, -limit, limit); limit 0: no clamp. */
    void (*glu)(const float *g, const float *u, float limit, uint32_t n,
                float *y);
    /* Largest value; -infinity for n 0. */
    float (*max)(const float *x, uint32_t n);
    /* x = exp(x * s - top); returns the sum. */
    float (*exp_sum)(float *x, uint32_t n, float s, float top);
    /* Values of any of the three dtypes as floats. */
    void (*widen)(const void *p, uint16_t dtype, uint32_t n, float *y);

    /* Residual streams X[j] = X + j * ld, j < n_s <= KERN_STREAMS:
     * X[j][c] = post[j] y[c] + sum_i comb[i * n_s + j] X[i][c] for c < n. */
    void (*streams_mix)(float *X, uint64_t ld, uint32_t n_s, const float *post,
                        const float *comb, const float *y, uint32_t n);
    /* out[c] = sum_j pre[j] X[j][c] */
    void (*streams_read)(const float *X, uint64_t ld, uint32_t n_s,
                         const float *pre, uint32_t n, float *out);

    /* One input of the short convolution for n channels:
     * y[c] = silu(sum_j w[j][c] u[j][c]), j < taps; w is [taps][ldw]. */
    void (*conv)(const float *w, uint64_t ldw, const float *const *u,
                 uint32_t taps, uint32_t n, float *y);
    /* f = exp(lb * sigmoid(a * (f + bias))) */
    void (*decay)(float *f, const float *bias, float a, float lb, uint32_t n);
    /* The next token of a chunk: D *= g, q *= D, key = k / D, k *= D; n
     * numbers each. */
    void (*anchor)(const float *g, uint32_t n, float *D, float *q, float *k,
                   float *key);
    /* n tokens of the delta rule, one after the other, for nv value columns of
     * a head whose matrix at the beginning of the chunk is S [nk][nv]; delta is
     * the log's [i + n][ld], of which the first i are there:
     *   x_t = v_t - S^T k_t - sum_{j < i + t} a_t[j] delta_j
     *   delta_{i + t} = beta_t x_t
     *   v_t = S^T q_t + sum_{j <= i + t} b_t[j] delta_j
     * i + n <= KERN_CHUNK.  How many tokens come together changes no bit.  Of a
     * single token the matrix at next, as large as S, is fetched meanwhile;
     * NULL: there is none. */
    void (*delta)(const float *S, uint32_t nk, uint32_t nv,
                  const struct kern_delta *t, uint32_t i, uint32_t n,
                  float *delta, uint64_t ld, const float *next);
    /* T = diag(D) (S + sum_{j < n} key_j delta_j^T) for a chunk of n tokens, all
     * as above, key [n][nk]; T may be S. */
    void (*fold)(const float *S, uint32_t nk, uint32_t nv, const float *D,
                 const float *key, const float *delta, uint64_t ld, uint32_t n,
                 float *T);
    /* y = x * s * w * sigmoid(gate) */
    void (*gated)(const float *x, float s, const float *w, const float *gate,
                  uint32_t n, float *y);
};

#define KERN_STREAMS 8

/* The best table for this machine, or the one named: "auto", "generic",
 * "avx2", "avx512", "avx512vnni", "amx".  NULL: unknown, or this machine cannot
 * run it. */
const struct kern *kern_pick(const char *want);

/* The table that the key "isa" of a plugin's configuration asks for; absent
 * means "auto".  EDATA.  [control] */
int kern_configure(const struct seam_host *h, const struct seam_cfg *cfg,
                   const char *plugin, const struct kern **out,
                   struct seam_error *err);

/* Describe a tensor that passed weights_check as a matrix.  ENOTSUP: GPTQ groups
 * that are no multiple of 8, with the reason in why. */
int kern_mat_init(struct kern_mat *m, const struct seam_tensor *t, char *why,
                  size_t cap);
/* Rows [row0, row0 + n) of a matrix that is not GPTQ. */
struct kern_mat kern_mat_rows(const struct kern_mat *m, uint32_t row0,
                              uint32_t n);
/* True when its rows can be given to dot_rows and mix_rows. */
bool kern_mat_plain(const struct kern_mat *m);
/* True when jobs may go across it: plain, or I8 with a scale per group of a
 * row. */
bool kern_mat_across(const struct kern_mat *m);

/* How rows of x are to be packed for fast->dot; KERN_FLOATS: w is not for it.
 * Never KERN_TILES. */
struct kern_form kern_form(const struct kern *k, const struct kern_mat *w);
/* Bytes of a packed row of k inputs, a multiple of 64. */
uint64_t kern_record(struct kern_form f, uint32_t k);

/* plug_weight and kern_mat_init in one. */
int kern_weight(const struct seam_host *h, const struct seam_model *m,
                uint32_t layer, const char *rest, uint32_t n, uint32_t k,
                struct kern_mat *out, struct seam_error *err);
/* A vector of n, as floats in memory from the host's alloc. */
int kern_vector(const struct seam_host *h, const struct seam_model *m,
                uint32_t layer, const char *rest, uint32_t n, float **out,
                struct seam_error *err);

/* Work that is dealt out before it begins: piles of like units, one after the
 * other, of which each worker has a stretch of about the same cost, and knows
 * what comes next.  It takes many units at a time and fewer towards the end of
 * its stretch, where who has finished helps from the far end: long pieces are
 * read faster, short ones end together. */
struct kern_pile {
    uint32_t n;    /* units                                                  */
    uint32_t most; /* that are taken at once                                 */
    uint64_t cost; /* of one, in any measure, not 0                          */
};

/* Units [i, i + n) of a pile. */
struct kern_part {
    uint32_t pile, i, n;
};

struct kern_deal {
    uint32_t n; /* piles                                                     */
    struct kern_pile (*pile)(const void *arg, uint32_t p);
    /* The worker will most likely have next after p; it is p when there is
     * nothing more, and its n means nothing. */
    void (*part)(void *arg, const struct kern_part *p,
                 const struct kern_part *next, uint32_t worker);
    void *arg;
};

void kern_deal(const struct seam_host *h, const struct kern_deal *d);

/* What a product of m rows costs an output, in units that are good for nothing
 * but comparing: reading, for few rows. */
static inline uint64_t kern_cost(const struct kern_mat *w, uint32_t m)
{
    uint64_t half_bytes = 2 * weights_elem_bytes(w->dtype);

    return ((half_bytes ? half_bytes : 1) + m / 4) * (uint64_t)w->k;
}

/* One product y (+)= x w^T + bias over m rows. */
struct kern_job {
    const struct kern_mat *w;
    const float *x;
    int64_t ldx; /* floats from row to row                       */
    float *y;
    int64_t ldy;
    uint32_t m;
    bool add;
    bool across; /* y[r][c] = sum_i x[r][i] w[i][c]; see kern_mat_across    */
    const float *bias; /* [n] or NULL                                  */
};

/* Run n_jobs products on the pool and wait; they must not depend on each
 * other.  scratch has KERN_SCRATCH bytes per worker. */
void kern_run(const struct kern *k, const struct seam_host *h,
              const struct kern_job *job, uint32_t n_jobs, void *scratch);

/* y = rms(x) * w, w of n elements of dtype or NULL. */
void kern_rms(const struct kern *k, const float *x, const void *w,
              uint16_t w_dtype, uint32_t n, float eps, float *y);

#endif
