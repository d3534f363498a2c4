/* Watching what a loaded plugin calls outside itself.
 *
 * A plugin reaches the C library through the addresses that the dynamic loader
 * wrote into its relocated data.  ck_hook_install points those for allocation
 * and threads at wrappers that count, so that only the plugin's own calls are
 * seen: no preloading, nothing interposed for the rest of the process, and a
 * sanitizer's allocator stays beneath.
 *
 * The wrappers are called by a plugin that knows nothing of us, so their state
 * is the process's.  The process is the child that runs one test. */
#ifndef SEAM_CHECK_HOOK_H
#define SEAM_CHECK_HOOK_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/error.h"

/* Redirect the calls of the object that holds `addr`.  ENOTSUP on a machine
 * whose relocations are not known here. */
int ck_hook_install(const void *addr, struct seam_error *err);

/* From true to false, as often as it is called, calls are noted by name, but
 * not those that a thread makes for a control call (core/check/thread.h). */
void ck_hook_hot(bool hot);
/* While a control call is made beside hot ones, what the plugin's own threads
 * do may be its doing, and is not noted either. */
void ck_hook_beside(bool beside);
/* The first call noted since the last question, or NULL. */
const char *ck_hook_noted(void);
/* Blocks the plugin allocated and has not freed. */
int64_t ck_hook_live(void);
/* n > 0: the n-th allocation from now fails; 0: none. */
void ck_hook_fail(int n);
/* What is left of that; 0: it has happened. */
int ck_hook_left(void);

/* What the object that holds `addr` asks of the dynamic loader.  Each function
 * is called with arg for each name. */
struct ck_object {
    bool textrel, runpath;
    bool exec_stack, relro, bind_now;
};
typedef void ck_name_fn(void *arg, const char *name);
int ck_object_read(const void *addr, struct ck_object *out, ck_name_fn *imports,
                   ck_name_fn *exports, ck_name_fn *libraries, void *arg,
                   struct seam_error *err);

#endif
