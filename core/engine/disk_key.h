/* What stored prefixes belong to (private to core/engine). */
#ifndef SEAM_ENGINE_DISK_KEY_H
#define SEAM_ENGINE_DISK_KEY_H

#include "core/engine/disk_file.h"
#include "core/engine/runtime.h"

/* Hash of all that decides what the bytes of pages and states mean, and what
 * would be computed instead of them: the checkpoint (config.json, the index,
 * names, sizes and times of the shards), for each block and the backend the
 * plugin's name, file, configuration, layout id and sizes, and the page size.
 * [control] */
int seam_disk_identity(const struct seam_runtime *rt,
                       unsigned char out[SEAM_DISK_HASH],
                       struct seam_error *err);

#endif
