/* Read-only files: mapped whole, and never anything but a regular file. */
#ifndef SEAM_BASE_FILE_H
#define SEAM_BASE_FILE_H

#include <stdint.h>

#include "core/base/error.h"

struct seam_map {
    const unsigned char *p; /* NULL when the file is empty */
    uint64_t bytes;
};

/* Map the regular file at path.  Errors name the path and what it is instead.
 * A later truncation of the file makes reads fault; see seam_checkpoint for who
 * catches that.  [control] */
int seam_map_open(struct seam_map *m, const char *path, struct seam_error *err);
void seam_map_release(struct seam_map *m);

/* The whole file as a NUL-terminated string the caller frees; refused above
 * `max` bytes. */
int seam_file_read(const char *path, uint64_t max, char **text, uint64_t *bytes,
                   struct seam_error *err);

#endif
