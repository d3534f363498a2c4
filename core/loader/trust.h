/* Where a plugin's file may be, and who may have put it there; the same of
 * other folders whose content is believed. */
#ifndef SEAM_LOADER_TRUST_H
#define SEAM_LOADER_TRUST_H

#include <stddef.h>

#include "core/base/error.h"
#include "core/base/log.h"

struct seam_places {
    const char *plugin_dir;    /* absolute, links resolved; may not exist     */
    char *const *plugin_paths; /* the same                                    */
    size_t n_plugin_paths;
};

/* The absolute path, without links, of what the configuration calls `file`: a
 * bare name within plugin_dir, or an absolute path within one of plugin_paths.
 * *path is the caller's to free.  name stands for the file in messages. */
int seam_place_find(const struct seam_places *places, const char *name,
                    const char *file, char **path, struct seam_error *err);

/* Open the regular file at `path` (from seam_place_find) and check that nobody
 * but root and the server's user can have written it or put it there.  *fd is
 * the caller's to close. */
int seam_trust_open(const char *name, const char *path,
                    const struct seam_log *log, int *fd,
                    struct seam_error *err);

/* Check of the open folder `fd` that nobody but root and the server's user can
 * have put a file there.  name stands for it in messages. */
int seam_trust_folder(const char *name, const char *path, int fd,
                      struct seam_error *err);

#endif
