/* Makes a checkpoint folder of the real size out of nothing: config.json, the
 * index and 36 shards with real headers whose data is a hole.  Names, shapes,
 * dtypes and totals are those of model spec 1.4 and 7, written down here a
 * second time so that they check core/checkpoint instead of repeating it. */
#ifndef SEAM_TESTS_REAL_SIZE_H
#define SEAM_TESTS_REAL_SIZE_H

#include <stdint.h>

#define REAL_ENTRIES       113074u
#define REAL_FILES         36u
#define REAL_VISION        347u
#define REAL_FILE_BYTES    181472931028u
#define REAL_INDEXED_BYTES 181253290872u /* 168.805 GiB                       */

/* dir exists and is empty.  0, or -1 with *why: "no sparse files here" and the
 * like.  disk_bytes: what the folder really takes. */
int real_size_make(const char *dir, uint64_t *disk_bytes, const char **why);

/* Delete a folder that holds plain files only. */
void real_size_remove(const char *dir);

#endif
