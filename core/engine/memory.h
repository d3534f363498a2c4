/* The memory of block instances: how much there is of what, and who was
 * granted it (private to core/engine).
 *
 * Beyond what sequences use there is one state row and one page, the last of
 * each, for trying a plugin out; they are no part of engine.cache_bytes. */
#ifndef SEAM_ENGINE_MEMORY_H
#define SEAM_ENGINE_MEMORY_H

#include "core/engine/guard.h"
#include "core/engine/instance.h"

/* Roles whose instance is a block with a share of planes and rows. */
#define FIRST_BLOCK SEAM_ROLE_LINEAR
#define LAST_BLOCK  SEAM_ROLE_MOE

/* Where device memory comes from: an instance of the backend, and the stream
 * for what is done with it. */
struct seam_memory_source {
    const struct seam_backend *table;
    void *self;
    void *stream;
    struct seam_guards *guards; /* NULL: no guard bands */
    bool trial;                 /* see guard.h */
};

/* What one block instance was granted.  cache made planes and state, own made
 * keep and pinned; they differ once an instance was replaced. */
struct runtime_grant {
    struct seam_grant grant;
    void **plane[SEAM_MAX_PLANES]; /* [n_layers] */
    void **state;                  /* [n_layers] */
    uint32_t n_layers;
    struct seam_memory_source cache, own;
};

struct runtime_memory {
    struct runtime_grant block[SEAM_N_ROLES];
    void *ws;
    uint64_t ws_bytes;
    struct seam_memory_source ws_source;
};

static inline uint64_t seam_round_up(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

int seam_memory_alloc(const struct seam_memory_source *s, uint32_t mem,
                      uint64_t bytes, void **out, struct seam_error *err);
/* NULL is fine. */
void seam_memory_free(const struct seam_memory_source *s, uint32_t mem,
                      void *p);

/* How many of what fit into engine.cache_bytes. */
struct seam_memory_plan {
    uint32_t page_tokens, n_pages, n_rows, max_pages;
    uint64_t page_bytes, row_bytes;
};
/* inst [SEAM_N_ROLES] are those that need memory.  Never more than most_pages;
 * 0: whatever fits.  When it does not, the message holds the arithmetic. A
 * model.max_context that was asked for has to fit; one that the model was made
 * for may be more than n_pages hold. */
int seam_memory_plan(const struct seam_config *c,
                     const struct seam_limits *limits,
                     const struct seam_instance *const *inst,
                     uint32_t most_pages, struct seam_memory_plan *out,
                     struct seam_error *err);

/* Fill *g for an instance with these needs.  With `share`, whose owner has the
 * same layout, planes and state are the same memory, which one of the two must
 * free.  [control] */
int seam_memory_grant(const struct seam_memory_source *s,
                      const struct seam_memory_plan *plan,
                      const struct seam_needs *n,
                      const struct runtime_grant *share,
                      struct runtime_grant *g, struct seam_error *err);
/* Free keep and pinned memory, and the planes and state with `caches`.  An
 * empty one is fine.  [control] */
void seam_memory_ungrant(struct runtime_grant *g, bool caches);

#endif
