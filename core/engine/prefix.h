/* The prefix cache: where a new prompt can go on from what was computed before.
 *
 * Planes can be cut anywhere, but a recurrent state exists only where a copy
 * of it was kept, so the unit is a snapshot: a position, the pages up to it
 * (shared with whoever else uses them, by reference counts of the owner) and
 * the bytes of the state row.  Snapshots hang in a radix tree over token ids,
 * one tree for each salt, so that those who do not know a salt find nothing.
 *
 * Under pressure the snapshot goes that saves the fewest tokens for its bytes
 * and was not used for longest: GreedyDual-Size (Cao and Irani, 1997), with the
 * tokens saved over the next shorter snapshot as cost.  All calls: [submit]. */
#ifndef SEAM_ENGINE_PREFIX_H
#define SEAM_ENGINE_PREFIX_H

#include <stdbool.h>
#include <stdint.h>

#define SEAM_SALT_BYTES 32 /* of a hash of it */

struct seam_prefix;

struct seam_snapshot {
    uint32_t pos; /* tokens it stands for */
    uint32_t n_pages;
    int32_t *page; /* [n_pages], the last one perhaps only partly its own */
    void *state;   /* [state_bytes], freed with free() */
    uint64_t state_bytes;
};

/* budget bounds the bytes of all states.  unref is told of each page a dropped
 * snapshot held.  NULL when out of memory. */
struct seam_prefix *seam_prefix_new(uint64_t budget,
                                    void (*unref)(void *ctx, int32_t page),
                                    void *ctx);
void seam_prefix_free(struct seam_prefix *p);

/* salt is [SEAM_SALT_BYTES] or NULL everywhere. */

/* The longest snapshot that is a prefix of tok[0, n), or NULL.  It stays until
 * the next insert or evict, and counts as used. */
const struct seam_snapshot *seam_prefix_find(struct seam_prefix *p,
                                             const unsigned char *salt,
                                             const int32_t *tok, uint32_t n);

/* True when tok[0, n) itself has a snapshot. */
bool seam_prefix_has(const struct seam_prefix *p, const unsigned char *salt,
                     const int32_t *tok, uint32_t n);

/* Keep s for tok[0, s->pos).  Takes s->state and s->page (both from malloc) and
 * the references on the pages.  When it does not fit the budget even after
 * evictions, or there is one already, it is dropped at once.  Returns true when
 * it was kept. */
bool seam_prefix_insert(struct seam_prefix *p, const unsigned char *salt,
                        const int32_t *tok, const struct seam_snapshot *s);

/* Drop the least valuable snapshot; false when there is none. */
bool seam_prefix_evict(struct seam_prefix *p);

struct seam_prefix_stats {
    uint64_t bytes, budget, n_snapshots, n_evicted;
};
void seam_prefix_stats(const struct seam_prefix *p,
                       struct seam_prefix_stats *out);

#endif
