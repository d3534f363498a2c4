/* Which instruction sets a plugin may use on this machine. */
#ifndef SEAM_LOADER_CPU_H
#define SEAM_LOADER_CPU_H

#include "core/base/error.h"

/* Check a blank-separated list of features, named as in /proc/cpuinfo ("avx2
 * fma amx_tile").  ENOTSUP names the first one that processor or kernel lack,
 * or that this server does not know.  name stands for the plugin.  [any] */
int seam_cpu_check(const char *name, const char *features,
                   struct seam_error *err);

/* Ask the kernel for what has to be asked for before use, which is the state of
 * AMX; for the whole process, never undone.  [control] */
int seam_cpu_enable(const char *name, const char *features,
                    struct seam_error *err);

#endif
