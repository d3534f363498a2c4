/* The state that the built-in plugins of linear attention keep of a sequence,
 * shared so that one can go on with what another has left (docs/abi.md,
 * section 12).  Changing it means a new number.
 *
 * The recurrence (docs/spec/glm5_next.md, section 3.4) changes the whole
 * matrix with every token.  Kept in chunks (section 3.6) it is read with every
 * token and written with every C-th: S is the matrix at the beginning of a
 * chunk, and what the tokens since then have done to it stands in a log.  With
 * the products D_j of the decays since the chunk began, the matrix after entry
 * j is
 *
 *   S_j = diag(D_j) (S + sum_{i <= j} key_i delta_i^T),   key_i = k_i / D_i
 *
 * Chunks are counted from the beginning of the sequence, and a chunk is folded
 * into S when a token comes after it, so that neither what is kept nor any bit
 * of a result depends on how the sequence was cut into steps.
 *
 * Rollback is forgetting entries: the log has room for those of a whole chunk
 * and of max_draft tokens after it, which are entries of the next one.  The
 * inputs of the convolution are a ring with one row more for each draft than the
 * next token needs, so that those of forgotten entries are overwritten next. */
#ifndef SEAM_PLUGINS_KDA_STATE_H
#define SEAM_PLUGINS_KDA_STATE_H

#include <seam/plugin.h>

#include <stdint.h>
#include <string.h>

#define SEAM_LAYOUT_KDA UINT64_C(0x6b64610000000003)

enum {
    KDA_CHUNK = 8,   /* tokens of a chunk at most                             */
    KDA_COLUMNS = 64 /* value columns of S that lie together                  */
};
/* D_i stays above exp(-KDA_DEPTH) in a chunk, so that 1 / D_i is finite and a
 * product with it exact to the last bits (section 3.6). */
#define KDA_DEPTH 80

struct kda_dims {
    uint32_t heads, dim, n_conv, max_draft; /* dim: of a head                 */
    uint32_t chunk;                         /* kda_chunk of its lower bound   */
};

/* One row of state of one layer.  Floats; H heads of D keys and values, R =
 * kda_log_rows, M = 1 + max_draft, W = kda_window_rows. */
struct kda_state {
    float *S; /* [H] matrices, see kda_columns_at                             */
    float *key;    /* [H][R][D]                                               */
    float *delta;  /* [H][R][D]                                               */
    float *decay;  /* [H][M][D]       D_j of entry j at (j + *turn) % M       */
    float *window; /* [W][3 * H * D]  inputs of the convolution, channels
                      q | k | v: of entry j at (j + *turn) % W                */
    int32_t *n;    /* entries before the last step; add the tokens of it that
                      stand.  Negative when it has folded some of its own.    */
    uint32_t *turn; /* entries that were ever folded, kda_turn of them        */
};

/* Tokens of a chunk when no decay is below exp(lower_bound); 0: not even one. */
static inline uint32_t kda_chunk(double lower_bound)
{
    double n = lower_bound < 0 ? KDA_DEPTH / -lower_bound : KDA_CHUNK;

    return n >= KDA_CHUNK ? KDA_CHUNK : n >= 1 ? (uint32_t)n : 0;
}

static inline uint32_t kda_log_rows(const struct kda_dims *d)
{
    return d->chunk + d->max_draft;
}

/* Inputs that are kept: those that the next token needs, however many drafts of
 * the last step stand. */
static inline uint32_t kda_window_rows(const struct kda_dims *d)
{
    return d->n_conv > 1 ? d->n_conv - 1 + d->max_draft : 0;
}

/* The columns from e, a multiple of KDA_COLUMNS, to the next one: [D] rows of
 * kda_columns(dim, e) in a head's matrix. */
static inline uint32_t kda_columns(uint32_t dim, uint32_t e)
{
    return dim - e < KDA_COLUMNS ? dim - e : KDA_COLUMNS;
}

static inline uint64_t kda_columns_at(uint32_t dim, uint32_t e)
{
    return (uint64_t)e * dim;
}

/* Where the value e of key d is in a head's matrix. */
static inline uint64_t kda_at(uint32_t dim, uint32_t d, uint32_t e)
{
    uint32_t e0 = e / KDA_COLUMNS * KDA_COLUMNS;

    return kda_columns_at(dim, e0) + (uint64_t)d * kda_columns(dim, e0) + e -
           e0;
}

/* Bytes of a row; with p, where its parts are in it. */
static inline uint64_t kda_state_layout(const struct kda_dims *d, void *p,
                                        struct kda_state *s)
{
    uint64_t w = (uint64_t)d->heads * d->dim;
    uint64_t part[] = { w * d->dim, w * kda_log_rows(d), w * kda_log_rows(d),
                        w * (1 + d->max_draft), 3 * w * kda_window_rows(d) };
    float **out[] = { &s->S, &s->key, &s->delta, &s->decay, &s->window };
    uint64_t at = 0;

    for (uint32_t i = 0; i < sizeof part / sizeof *part; i++) {
        *out[i] = p ? (float *)p + at : NULL;
        at += part[i];
    }
    s->n = p ? (int32_t *)p + at : NULL;
    s->turn = p ? (uint32_t *)p + at + 1 : NULL;
    return (at + 2) * sizeof(float);
}

/* The row of a layer in memory that was granted. */
static inline struct kda_state kda_state_of(const struct kda_dims *d,
                                            const struct seam_grant *g,
                                            uint32_t layer, int32_t row)
{
    struct kda_state s;

    kda_state_layout(
        d, (char *)g->state[layer] + (uint64_t)row * g->state_stride, &s);
    return s;
}

/* Entries ever folded as a state counts them, with what matters of it for the
 * two rings. */
static inline uint32_t kda_turn(const struct kda_dims *d, uint32_t folded)
{
    uint32_t rows = kda_window_rows(d);

    return folded % ((1 + d->max_draft) * (rows ? rows : 1));
}

/* Where the entry j of head h keeps its decay, when `turn` have been folded. */
static inline float *kda_decay(const struct kda_dims *d,
                               const struct kda_state *s, uint32_t turn,
                               uint32_t h, uint32_t j)
{
    uint32_t m = 1 + d->max_draft;

    return s->decay + ((uint64_t)h * m + (turn % m + j) % m) * d->dim;
}

static inline float *kda_entry(const struct kda_dims *d, float *log, uint32_t h,
                               uint32_t j)
{
    return log + ((uint64_t)h * kda_log_rows(d) + j) * d->dim;
}

/* The inputs of entry j >= 1 - conv when `turn` have been folded; those of
 * entries before 0 are older ones.  NULL: a convolution that keeps none. */
static inline float *kda_window(const struct kda_dims *d,
                                const struct kda_state *s, uint32_t turn,
                                int32_t j)
{
    uint32_t rows = kda_window_rows(d);

    return rows ? s->window + (turn % rows + rows + (uint32_t)j) % rows * 3 *
                                  (uint64_t)d->heads * d->dim
                : NULL;
}

/* Let acc tokens of the last step stand: what commit does to a row. */
static inline void kda_state_commit(const struct kda_state *s, int32_t acc)
{
    *s->n += acc;
}

/* The matrix of head h after n entries, in double: out [D key][D value].
 * Whole chunks are rounded as they are when they are folded. */
static inline void kda_state_read(const struct kda_dims *d,
                                  const struct kda_state *s, uint32_t h,
                                  uint32_t n, double *out)
{
    uint32_t dim = d->dim;
    const float *S = s->S + (uint64_t)h * dim * dim;

    for (uint32_t k = 0; k < dim; k++)
        for (uint32_t v = 0; v < dim; v++)
            out[k * dim + v] = S[kda_at(dim, k, v)];
    for (uint32_t j = 0; j < n; j++) {
        const float *key = kda_entry(d, s->key, h, j);
        const float *delta = kda_entry(d, s->delta, h, j);
        const float *decay = kda_decay(d, s, *s->turn, h, j);
        int whole = (j + 1) % d->chunk == 0;

        for (uint32_t k = 0; k < dim; k++)
            for (uint32_t v = 0; v < dim; v++) {
                double *x = &out[k * dim + v];

                *x += (double)key[k] * delta[v];
                if (whole || j + 1 == n)
                    *x *= decay[k];
                if (whole)
                    *x = (float)*x;
            }
    }
}

/* Drop the first chunk of head h's log, which holds n >= chunk entries. */
static inline void kda_state_drop(const struct kda_dims *d,
                                  const struct kda_state *s, uint32_t h,
                                  uint32_t n)
{
    uint64_t rest = (uint64_t)(n - d->chunk) * d->dim * sizeof(float);

    memmove(kda_entry(d, s->key, h, 0), kda_entry(d, s->key, h, d->chunk),
            rest);
    memmove(kda_entry(d, s->delta, h, 0), kda_entry(d, s->delta, h, d->chunk),
            rest);
}

#endif
