/* The processors that this process may use, and which of them share a core. */
#ifndef SEAM_ENGINE_CORES_H
#define SEAM_ENGINE_CORES_H

#include <stdbool.h>
#include <stdint.h>

#define SEAM_MAX_CORES 1024

struct seam_cores {
    uint32_t n_cpus; /* in the affinity mask, at least 1          */
    uint32_t n;      /* cores these belong to, at least 1         */
    bool own;        /* the mask leaves processors to others      */
    uint32_t
        cpu[SEAM_MAX_CORES]; /* [n] the first processor of each core      */
};

/* Look at the affinity mask of the calling thread.  What cannot be found out
 * counts as one core each.  [any] */
void seam_cores_find(struct seam_cores *c);

/* Of the ascending processors cpu[0, n) those that are the first of their core,
 * into out[n]; returns how many.  sys is "/sys/devices/system/cpu". */
uint32_t seam_cores_first(const char *sys, const uint32_t *cpu, uint32_t n,
                          uint32_t *out);

#endif
