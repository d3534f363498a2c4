/* Checkpoint folders that tests may damage: copies of those in the repository,
 * and new shards written into them. */
#ifndef SEAM_TESTS_FOLDER_H
#define SEAM_TESTS_FOLDER_H

#include <jansson.h>

#include "core/checkpoint/checkpoint.h"

#define FOLDER_LOG_BYTES 8192

struct folder {
    char dir[64];
    struct seam_log log;         /* to a file without a name                  */
    char said[FOLDER_LOG_BYTES]; /* by folder_said                            */
};

/* Copy tree/... of the source tree into a new temporary folder; with `link`,
 * shards become symbolic links. */
void folder_make(struct folder *f, const char *tree, bool link);
void folder_remove(struct folder *f);

/* DIR/name in one of a few static buffers. */
const char *folder_path(const struct folder *f, const char *name);

/* Open with the folder's log, asserting that it works, or returning what it
 * refuses with. */
struct seam_checkpoint *folder_open(struct folder *f);
int folder_try(struct folder *f, struct seam_error *err);
/* All that was logged so far. */
const char *folder_said(struct folder *f);
/* How often `what` stands in `text`. */
int folder_count(const char *text, const char *what);

/* config.json and the index as values; store and release. */
json_t *folder_load(const struct folder *f, const char *name);
void folder_store(const struct folder *f, const char *name, json_t *v);

/* Set (value NULL: delete) one key of config.json, in text_config or not. */
void folder_config(const struct folder *f, bool text, const char *key,
                   const char *value);
/* The shard that the index names for a tensor. */
const char *folder_shard_of(const struct folder *f, const char *tensor,
                            char to[256]);
/* Delete a tensor's entry from the index. */
void folder_forget(const struct folder *f, const char *tensor);

/* A tensor to write. */
struct put {
    const char *name, *dtype;
    uint32_t rank;
    int64_t shape[8];
    const void *data; /* NULL: zeros                                          */
    uint64_t bytes;
};

/* Write a shard; `skew` spaces more behind its header.  With `index`, the
 * index' entries of these tensors are set to it. */
void folder_put(const struct folder *f, const char *file, const struct put *t,
                uint32_t n, uint32_t skew, bool index);

/* Overwrite bytes of a tensor in its shard. */
void folder_patch(const struct folder *f, const char *tensor, uint64_t at,
                  const void *data, uint64_t n);

#endif
