/* The private store: copies of plugin files that nobody else can change.
 *
 * The dynamic loader is given a copy, never the original: so what was checked
 * is what runs, a file replaced at the same path loads as new code (glibc
 * compares names before files), and a running server does not notice when a
 * file is overwritten in place. */
#ifndef SEAM_LOADER_STORE_H
#define SEAM_LOADER_STORE_H

#include "core/base/error.h"

struct seam_store {
    char *dir; /* absolute, mode 0700, or NULL                                */
    int fd;    /* of dir; holds a lock that says the store is in use          */
};

/* Make a folder of the process's own in $TMPDIR or /tmp, and remove those that
 * processes of the same user have left there when they were killed.  Refused
 * where programs cannot be executed.  [control] */
int seam_store_open(struct seam_store *s, struct seam_error *err);
/* Remove the folder with all copies.  NULL dir is fine. */
void seam_store_close(struct seam_store *s);

/* Copy the file open at fd as <sha256>.so, hashing on the way; a copy of equal
 * content gets a number before the suffix, so that each load has static data of
 * its own.  sha has 65 bytes, *copy is the caller's to free.  name stands for
 * the file in messages.  [control] */
int seam_store_add(struct seam_store *s, int fd, const char *name, char *sha,
                   char **copy, struct seam_error *err);

#endif
