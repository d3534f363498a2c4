/* Loads plugins, or refuses them in one line that says what to do.
 *
 * docs/abi.md "Loading and refusing" lists the steps L1 to L9.  Up to L5
 * nothing of the plugin has run, and a refused plugin leaves no trace. */
#ifndef SEAM_LOADER_LOADER_H
#define SEAM_LOADER_LOADER_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/error.h"
#include "core/base/log.h"

struct seam_loader;

struct seam_loader_opts {
    const char *plugin_dir;          /* where bare file names are found */
    const char *const *plugin_paths; /* folders that absolute names may be in */
    size_t n_plugin_paths;
    const char *gpu; /* target of the device, or NULL: no GPU */
    const struct seam_log *log;
};

struct seam_want {
    const char *name;   /* what the configuration calls it */
    const char *file;   /* bare name, or absolute within plugin_paths; NULL:
                           "NAME.so" */
    const char *sha256; /* pin, or NULL with unpinned */
    bool unpinned;
    uint16_t kind; /* SEAM_KIND_* expected */
};

/* A loaded plugin.  plugin and the table of its kind are the host's zero-filled
 * copies, so a member newer than the plugin reads as NULL. */
struct seam_loaded {
    struct seam_plugin plugin;
    union {
        struct seam_backend backend;
        struct seam_block block;
        struct seam_spec spec;
        struct seam_parser parser;
    } table;             /* plugin.table points here */
    struct seam_ops ops; /* of a backend; table.backend.ops points here */
    char sha256[65];     /* of the file, lower-case hex */
    bool pinned; /* the configuration gave that hash, and it is the one */
    char *path;  /* absolute path of the file that was asked for */
    void *dl;    /* private */
    bool inited; /* private */
};

/* Makes the private store (mode 0700, on a filesystem that allows execution) in
 * $TMPDIR or /tmp.  opts is copied, but for log.  [control] */
int seam_loader_new(struct seam_loader **l, const struct seam_loader_opts *opts,
                    struct seam_error *err);
/* Removes the store; plugins still loaded keep working. */
void seam_loader_free(struct seam_loader *l);

/* Steps L1 to L8.  A name can be loaded again when its seam_loaded was freed,
 * or by another loader, which is how a running plugin gets a successor: either
 * way from the file as it is now, with static data of its own.
 * ENOENT: no such file; ENOTSUP: not for this server or machine; EINVAL: a
 * configuration that cannot be right; EDATA: all else.  [control] */
int seam_loader_load(struct seam_loader *l, const struct seam_want *want,
                     struct seam_loaded **out, struct seam_error *err);

/* Step L9; host must outlive the plugin.  [control] */
int seam_loaded_init(struct seam_loaded *p, const struct seam_host *host,
                     struct seam_error *err);

/* fini when inited, dlclose when the plugin is UNLOADABLE.  NULL is fine.
 * [control] */
void seam_loaded_free(struct seam_loaded *p);

/* Steps L1 to L5 and no further: nothing of the plugin runs.  ident and sha256
 * (65 bytes) are filled as far as the checks came. */
int seam_loader_inspect(struct seam_loader *l, const struct seam_want *want,
                        struct seam_ident *ident, char *sha256,
                        struct seam_error *err);

/* SHA-256 of a file as 64 hex digits and a NUL. */
int seam_sha256_file(const char *path, char out[65], struct seam_error *err);

#endif
