/* The second tier of the prefix cache: snapshots in a folder, which outlive the
 * process.
 *
 * The engine's thread puts a snapshot by copying its bytes into a bounded
 * queue, and asks for one by starting a load; two threads of the tier's own
 * write and read, so that no step waits for a disk.  What is written gets its
 * name only once it is complete, and what is read is used only when every
 * checksum is right: a process killed at any moment leaves nothing wrong.
 *
 * Pages that several snapshots share are stored once (disk_file.h).  Beyond the
 * budget the snapshot goes that saves the fewest tokens for its bytes and was
 * not used for longest, files of other models before any of ours, and a run of
 * pages with the last that needs it. */
#ifndef SEAM_ENGINE_DISK_H
#define SEAM_ENGINE_DISK_H

#include "core/base/log.h"
#include "core/engine/disk_file.h"

struct seam_disk;
struct seam_disk_load;

struct seam_disk_opts {
    const char *dir; /* made when missing, not its parents */
    uint64_t budget; /* bytes of all files, those of other models too */
    const struct seam_log *log;
    /* SHA-256 of all that decides what the bytes mean. */
    unsigned char identity[SEAM_DISK_HASH];
    uint32_t page_tokens;
    uint64_t page_bytes, state_bytes;
    void (*loaded)(void *ctx); /* a load has ended; on the reader's thread */
    void *ctx;
};

/* Read what the folder holds (headers only) and start the threads.  ESTATE:
 * another process uses it.  [control] */
int seam_disk_open(struct seam_disk **d, const struct seam_disk_opts *opts,
                   struct seam_error *err);
/* Write what is queued, end the threads, free.  No load may be left.  NULL is
 * fine.  [control] */
void seam_disk_close(struct seam_disk *d);

/* The root of the chain for a salt; NULL: none. */
bool seam_disk_root(const struct seam_disk *d, const char *salt,
                    unsigned char root[SEAM_DISK_HASH]);

/* Keep the snapshot of tok[0, pos): state [state_bytes], and the pages of which
 * `page` writes number i to `to`, asked for those alone that are not there yet.
 * False: it is there already, the queue is full, or there is no memory.  Never
 * waits for a disk.  [one thread, the same as find] */
bool seam_disk_put(struct seam_disk *d, const unsigned char *root,
                   const int32_t *tok, uint32_t pos, const void *state,
                   int (*page)(void *ctx, uint32_t i, void *to), void *ctx);

/* Begin to read the longest snapshot of tok[0, n) with more than `least`
 * tokens: its state, and its pages from first_page on.  NULL: there is none. */
struct seam_disk_load *seam_disk_find(struct seam_disk *d,
                                      const unsigned char *root,
                                      const int32_t *tok, uint32_t n,
                                      uint32_t least, uint32_t first_page);
/* 1: read; 0: not yet; -1: it could not be, go on without. */
int seam_disk_loaded(const struct seam_disk_load *l);
uint32_t seam_disk_load_pos(const struct seam_disk_load *l);
/* Once read: page i of the snapshot, first_page and after, and the state. */
const void *seam_disk_load_page(const struct seam_disk_load *l, uint32_t i);
const void *seam_disk_load_state(const struct seam_disk_load *l);
/* Also gives up one that is not read yet.  NULL is fine. */
void seam_disk_load_free(struct seam_disk_load *l);

/* Wait until everything put so far is written or given up.  [control] */
void seam_disk_flush(struct seam_disk *d);

struct seam_disk_stats {
    uint64_t bytes, budget, n_states, n_runs;
    uint64_t n_written, n_evicted; /* snapshots */
    uint64_t n_dropped;            /* not kept: queue full or write failed */
    uint64_t n_damaged;            /* files found damaged and removed */
    uint64_t n_foreign;            /* files of other models, left alone */
    uint64_t queue_bytes;
};
/* [any] */
void seam_disk_stats(struct seam_disk *d, struct seam_disk_stats *out);

#endif
