/* A folder of its own for each test, with plugins copied into it. */
#ifndef SEAM_TESTS_ABI_ROOM_H
#define SEAM_TESTS_ABI_ROOM_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/log.h"
#include "core/loader/loader.h"

struct room {
    char root[128];    /* made by mkdtemp                                     */
    char plugins[160]; /* root/plugins, the plugin_dir                        */
    char other[160];   /* root/other, a plugin_path                           */
    char tmp[160];     /* root/tmp, TMPDIR                                    */
    char log_path[160];
    struct seam_log log;
    struct seam_loader *loader;
};

/* What plug.c answers by extension("test/1"). */
struct plug_test {
    int (*value)(void);
    int (*n_init)(void);
    int (*sees)(const char *what);
};

/* Make the folders and a loader.  Failures end the test. */
void room_open(struct room *r);
/* A further loader of the same folders. */
struct seam_loader *room_loader(const struct room *r, const char *gpu);
/* Remove it all. */
void room_close(struct room *r);

/* Copy ABI_PLUGIN_DIR/from.so to root/to. */
void room_copy(const struct room *r, const char *from, const char *to);
/* The same in one step for whoever has root/to open. */
void room_replace(const struct room *r, const char *from, const char *to);
/* n bytes as root/to. */
void room_write(const struct room *r, const char *to, const void *p, size_t n);
/* The bytes of ABI_PLUGIN_DIR/from.so, to be freed. */
unsigned char *room_read(const char *from, size_t *n);
/* root/name in a buffer of the room's, good until the eighth next call. */
const char *room_path(const struct room *r, const char *name);
/* Number of entries of root/name. */
int room_count(const struct room *r, const char *name);
/* Is this text in the log so far? */
bool room_logged(const struct room *r, const char *text);

/* Load root/plugins/FILE, calling itself NAME, unpinned. */
int room_load(struct room *r, const char *file, const char *name, uint16_t kind,
              struct seam_loaded **out, struct seam_error *err);
const struct plug_test *room_test(const struct seam_loaded *p);

#endif
