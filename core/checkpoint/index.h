/* The weight_map of model.safetensors.index.json: which shard holds which
 * tensor. */
#ifndef SEAM_CHECKPOINT_INDEX_H
#define SEAM_CHECKPOINT_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/error.h"

#define SEAM_INDEX_MAX_FILES 1024

struct seam_index_entry {
    const char *name;
    uint32_t file;
};

struct seam_index {
    struct seam_index_entry *e; /* [n] sorted by name */
    uint32_t n, n_files;
    const char **file; /* [n_files] in order of appearance */
    char *text;        /* private: what name and file point into */
};

/* Takes over text[0, n], which is NUL-terminated heap memory; it is freed on
 * failure too.  Refused: what is not JSON of that form, a name twice, and file
 * values that are not plain names.  No file is opened.  [any] */
int seam_index_parse(struct seam_index *x, const char *what, char *text,
                     uint64_t n, struct seam_error *err);
void seam_index_release(struct seam_index *x);

/* A name that cannot leave its folder: 1 to 255 bytes without '/', '\' and
 * control characters, and neither "." nor "..". */
bool seam_is_plain_name(const char *name);

#endif
