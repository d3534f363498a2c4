#include <criterion/criterion.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/engine/cores.h"

#define N 6

/* One processor in a folder like /sys/devices/system/cpu, or its removal. */
static void sys_cpu(const char *dir, uint32_t cpu, const char *siblings,
                    bool there)
{
    char path[3][128];
    FILE *f;

    snprintf(path[0], sizeof path[0], "%s/cpu%u", dir, cpu);
    snprintf(path[1], sizeof path[1], "%s/cpu%u/topology", dir, cpu);
    snprintf(path[2], sizeof path[2], "%s/cpu%u/topology/thread_siblings_list",
             dir, cpu);
    if (!there) {
        unlink(path[2]);
        rmdir(path[1]);
        rmdir(path[0]);
        return;
    }
    cr_assert_eq(mkdir(path[0], 0700), 0);
    cr_assert_eq(mkdir(path[1], 0700), 0);
    if (!siblings)
        return;
    f = fopen(path[2], "w");
    cr_assert_not_null(f);
    fprintf(f, "%s\n", siblings);
    fclose(f);
}

/* The first processors of the cores of cpu[0, n), as one number of a digit
 * each. */
static uint32_t first_of(const char *const *siblings, const uint32_t *cpu,
                         uint32_t n)
{
    char dir[] = "/tmp/seam-cores-XXXXXX";
    uint32_t out[N], found, all = 0;

    cr_assert_not_null(mkdtemp(dir));
    for (uint32_t i = 0; i < N; i++)
        sys_cpu(dir, i, siblings[i], true);
    found = seam_cores_first(dir, cpu, n, out);
    for (uint32_t i = 0; i < found; i++)
        all = all * 10 + out[i];
    for (uint32_t i = 0; i < N; i++)
        sys_cpu(dir, i, NULL, false);
    rmdir(dir);
    return all;
}

Test(cores, count_once_however_their_threads_are_numbered)
{
    static const uint32_t all[N] = { 0, 1, 2, 3, 4, 5 }, some[] = { 1, 4, 5 };
    static const char *const far[N] = {
        "0,3", "1,4", "2,5", "0,3", "1,4", "2,5"
    };
    static const char *const near[N] = { "0-1", "0-1", "2-3",
                                         "2-3", "4-5", "4-5" };
    static const char *const odd[N] = { "0", NULL, "2-3", "2-3", "", "x" };

    cr_expect_eq(first_of(far, all, N), 12); /* 0, 1, 2 */
    cr_expect_eq(first_of(far, some, 3), 15);
    cr_expect_eq(first_of(near, all, N), 24); /* 0, 2, 4 */
    cr_expect_eq(first_of(near, some, 3), 14);
    cr_expect_eq(first_of(odd, all, N), 1245); /* 0, 1, 2, 4, 5 */
}

Test(cores, are_those_of_the_affinity_mask)
{
    struct seam_cores c;
    cpu_set_t set;

    cr_assert_eq(sched_getaffinity(0, sizeof set, &set), 0);
    seam_cores_find(&c);
    cr_expect_eq(c.n_cpus, (uint32_t)CPU_COUNT(&set));
    cr_assert(c.n >= 1 && c.n <= c.n_cpus, "%u of %u", c.n, c.n_cpus);
    for (uint32_t i = 0; i < c.n; i++) {
        cr_expect(CPU_ISSET(c.cpu[i], &set));
        cr_expect(!i || c.cpu[i] > c.cpu[i - 1]);
    }
}
