/* Two threads of one core share its vector units and its path to memory, which
 * is all that the kernels need: a second one adds little and makes each slower.
 * The kernel lists the threads of a core in topology/thread_siblings_list, the
 * lowest first; that number names the core. */
#include "core/engine/cores.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

/* The lowest processor of the core that cpu belongs to. */
static uint32_t cores_name(const char *sys, uint32_t cpu)
{
    char path[256];
    unsigned first = cpu;
    FILE *f;

    snprintf(path, sizeof path, "%s/cpu%u/topology/thread_siblings_list", sys,
             cpu);
    f = fopen(path, "re");
    if (!f)
        return cpu;
    if (fscanf(f, "%u", &first) != 1)
        first = cpu;
    fclose(f);
    return first;
}

uint32_t seam_cores_first(const char *sys, const uint32_t *cpu, uint32_t n,
                          uint32_t *out)
{
    uint32_t name[SEAM_MAX_CORES], found = 0;

    for (uint32_t i = 0; i < n && found < SEAM_MAX_CORES; i++) {
        uint32_t c = cores_name(sys, cpu[i]), k = 0;

        while (k < found && name[k] != c)
            k++;
        if (k < found)
            continue;
        name[found] = c;
        out[found++] = cpu[i];
    }
    return found;
}

/* Processors of the affinity mask, at most SEAM_MAX_CORES. */
static uint32_t cores_mask(uint32_t *cpu)
{
    uint32_t n = 0;

    /* The kernel refuses masks smaller than its own. */
    for (size_t max = 1024; max <= 1 << 20 && !n; max *= 2) {
        size_t bytes = CPU_ALLOC_SIZE(max);
        cpu_set_t *set = CPU_ALLOC(max);
        int rc, saved;

        if (!set)
            break;
        rc = sched_getaffinity(0, bytes, set);
        saved = errno;
        for (uint32_t i = 0; !rc && i < max && n < SEAM_MAX_CORES; i++)
            if (CPU_ISSET_S(i, bytes, set))
                cpu[n++] = i;
        CPU_FREE(set);
        if (rc && saved != EINVAL)
            break;
    }
    return n;
}

void seam_cores_find(struct seam_cores *c)
{
    uint32_t cpu[SEAM_MAX_CORES] = { 0 };
    int64_t online = sysconf(_SC_NPROCESSORS_ONLN);

    c->n_cpus = cores_mask(cpu);
    c->own = c->n_cpus && c->n_cpus < online;
    if (!c->n_cpus)
        c->n_cpus = 1;
    c->n = seam_cores_first("/sys/devices/system/cpu", cpu, c->n_cpus, c->cpu);
}
