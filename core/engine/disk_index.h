/* What the folder of the second tier holds, by hash (private to core/engine).
 *
 * Every item is a file, there or being written.  Its parent is the run with the
 * page before its first; a run stays as long as something has it as parent.
 * Under the lock of whoever owns the index. */
#ifndef SEAM_ENGINE_DISK_INDEX_H
#define SEAM_ENGINE_DISK_INDEX_H

#include "core/engine/disk_file.h"

struct disk_item {
    struct disk_item *older, *newer; /* all, by last use */
    struct disk_item *parent;        /* NULL: starts at the root */
    uint32_t kind;                   /* enum seam_disk_kind; 0: foreign */
    uint32_t refs;                   /* of those whose parent it is */
    bool pending;                    /* not yet written */
    bool gone;                       /* no longer in the index */
    uint32_t first_page, n_pages, pos, saved;
    uint64_t bytes; /* of the file */
    double value;   /* of a state, see prefix.h */
    unsigned char before[SEAM_DISK_HASH], key[SEAM_DISK_HASH];
    unsigned char (*hash)[SEAM_DISK_HASH]; /* of a run [n_pages]: after each */
    int32_t *tail; /* of a state: ids beyond its whole pages */
    uint32_t n_tail;
    char name[SEAM_DISK_NAME];
};

struct disk_link {
    struct disk_link *next;
    struct disk_item *item;
    uint32_t at; /* page of a run */
};

struct disk_map {
    struct disk_link **bucket; /* [n_buckets] a power of two, or NULL */
    uint64_t n_buckets, n;
};

struct disk_index {
    struct disk_item *oldest, *newest;
    struct disk_map page, state; /* by hash after a page; by hash before */
    uint64_t bytes, n_states, n_runs, n_foreign;
    double clock;
};

/* Take item in (parent and all set but the lists); a reference is taken on the
 * parent.  False when out of memory: it is then as before. */
bool disk_index_add(struct disk_index *x, struct disk_item *item);
/* The run that holds the page with this hash, and which of its pages. */
struct disk_item *disk_index_page(const struct disk_index *x,
                                  const unsigned char *hash, uint32_t *at);
/* The longest state after `before` whose tail begins tok[0, n); NULL: none.
 * Pending ones count when `pending` says so. */
struct disk_item *disk_index_state(const struct disk_index *x,
                                   const unsigned char *before,
                                   const int32_t *tok, uint32_t n,
                                   bool pending);
void disk_index_use(struct disk_index *x, struct disk_item *item);
/* The one to go first that is written: a foreign file, else the state of least
 * value.  NULL: none. */
struct disk_item *disk_index_victim(struct disk_index *x);
/* Take item out; its parent's reference goes, and a parent that nobody needs
 * any more goes too.  drop is told of each, to remove the file, before it is
 * freed; pending and referenced ones are not freed but marked gone. */
typedef void disk_drop(void *ctx, const struct disk_item *item);
void disk_index_remove(struct disk_index *x, struct disk_item *item,
                       disk_drop *drop, void *ctx);
/* The same with everything that builds on it. */
void disk_index_remove_tree(struct disk_index *x, struct disk_item *item,
                            disk_drop *drop, void *ctx);
/* A reference on a run by somebody else, given back. */
void disk_index_unref(struct disk_index *x, struct disk_item *run,
                      disk_drop *drop, void *ctx);
struct disk_item *disk_index_named(const struct disk_index *x,
                                   const char *name);
void disk_item_free(struct disk_item *item);
void disk_index_release(struct disk_index *x);

#endif
