/* bench_open [DIR]: what opening, validating and planning a checkpoint costs.
 * Without DIR it makes the sparse one of the real size and deletes it. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/checkpoint/plan.h"
#include "real_size.h"

static double cpu_seconds(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

/* In a child, so that its memory does not count. */
static int make(const char *dir)
{
    const char *why;
    uint64_t disk;
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        if (!real_size_make(dir, &disk, &why))
            _exit(0);
        fprintf(stderr, "%s: %s\n", dir, why);
        _exit(1);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && !status ? 0 : -1;
}

int main(int argc, char **argv)
{
    char made[] = "/tmp/seam-bench-XXXXXX";
    const char *dir = argc > 1 ? argv[1] : mkdtemp(made);
    struct seam_checkpoint *c = NULL;
    struct seam_checkpoint_stats s;
    struct seam_buf report = { 0 };
    struct seam_error err;
    struct rusage use;
    double cpu;
    uint64_t t0;
    int rc;

    if (!dir || (argc < 2 && make(dir))) {
        if (dir)
            real_size_remove(dir);
        return 1;
    }
    cpu = cpu_seconds();
    t0 = seam_now_ns();
    rc = seam_checkpoint_open(&c, dir, NULL, NULL, NULL, &err);
    if (!rc)
        seam_inspect(c, 0, SEAM_DENSE_STORED, &report);
    cpu = cpu_seconds() - cpu;
    t0 = seam_now_ns() - t0;
    if (argc < 2)
        real_size_remove(dir);
    if (rc) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    getrusage(RUSAGE_SELF, &use);
    seam_checkpoint_stats(c, &s);
    printf("%llu tensors, %llu files, %.3f GiB indexed: %.3f s CPU (limit 3), "
           "%.3f s wall, %.1f MiB peak RSS (limit 300)\n",
           (unsigned long long)s.n_indexed, (unsigned long long)s.n_files,
           (double)s.indexed_bytes / (double)(1u << 30), cpu, (double)t0 * 1e-9,
           (double)use.ru_maxrss / 1024);
    seam_buf_release(&report);
    seam_checkpoint_close(c);
    return 0;
}
