#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/plan.h"
#include "real_size.h"

#define MAX_RSS_KIB (300 * 1024)

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

/* Made in a child, so that the memory it takes is not the test's. */
static void make(const char *dir)
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        const char *why;
        uint64_t disk;

        if (!real_size_make(dir, &disk, &why))
            _exit(0);
        fprintf(stderr, "%s\n", why);
        _exit(77);
    }
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    if (status) {
        real_size_remove(dir);
        cr_skip_test("no 169 GiB of sparse files can be made in %s", dir);
    }
}

static void last_progress(void *ctx, uint32_t done, uint32_t total)
{
    uint32_t *last = ctx;

    cr_expect_eq(done, *last + 1);
    cr_expect_eq(total, REAL_FILES);
    *last = done;
}

/* The figures of model spec, section 9. */
static void expect_lines(const char *report)
{
    static const char *const lines[] = {
        "latent, per token                        22528         11264 "
        "         5676         11264         11264         11264\n",
        "index keys, per token                     1408           704 "
        "          363           704           363           704\n",
        "per token                                23936         11968 "
        "         6039         11968         11627         11968\n",
        "per token with MTP block                 26112         13056 "
        "         6588         13056 ",
        "linear state, per sequence           142606336     142606336 "
        "    142606336     142606336     142606336      71303168\n",
        "convolution, per sequence             10027008      10027008 "
        "     10027008       5013504       5013504       5013504\n",
        "index ring, per sequence                 45056         45056 "
        "        45056         22528 ",
        "per sequence                         152678400     152678400 "
        "    152678400     147642368 ",
        "1048576 tokens                     25098715136   12549357568 "
        "   6332350464   12549357568 ",
        "1048576 tokens with MTP block      27380416512   13690208256 "
        "   6908018688   13690208256 ",
        "113074 indexed in 36 files: 181253290872 bytes (168.81 GiB) of "
        "181472931028 (169.01 GiB)",
    };

    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        cr_expect(strstr(report, lines[i]), "no \"%s\" in\n%s", lines[i],
                  report);
}

Test(real_size, opens_and_plans_the_released_checkpoint)
{
    char dir[] = "/tmp/seam-real-XXXXXX";
    struct seam_checkpoint *c = NULL;
    struct seam_checkpoint_stats s;
    struct seam_error err = { 0 };
    struct seam_buf report = { 0 };
    struct rusage use;
    struct seam_tensor t;
    struct seam_plan p;
    uint32_t progress = 0;
    int rc;

    cr_assert_not_null(mkdtemp(dir));
    make(dir);
    rc = seam_checkpoint_open(&c, dir, NULL, last_progress, &progress, &err);
    real_size_remove(dir);
    cr_assert_eq(rc, 0, "%s", err.text);
    cr_expect_eq(progress, REAL_FILES);

    seam_checkpoint_stats(c, &s);
    cr_expect_eq(s.n_indexed, REAL_ENTRIES);
    cr_expect_eq(s.n_files, REAL_FILES);
    cr_expect_eq(s.n_skipped, REAL_VISION);
    cr_expect_eq(s.file_bytes, REAL_FILE_BYTES);
    cr_expect_eq(s.indexed_bytes, REAL_INDEXED_BYTES, "%llu",
                 (unsigned long long)s.indexed_bytes);

    p = seam_plan_of(seam_checkpoint_config(c), SEAM_BF16, SEAM_BF16, SEAM_BF16,
                     SEAM_F32);
    cr_expect_eq(p.per_token, 11968);
    cr_expect_eq(p.per_seq, 147642368);
    cr_expect_eq(p.per_token_mtp, 13056);
    seam_inspect(c, 0, SEAM_DENSE_STORED, &report);
    cr_expect_not(report.failed);
    expect_lines(report.p);

    /* Stale duplicates are not what is found, ... */
    cr_expect_eq(seam_checkpoint_weight(c, "@layer.0.self_attn.q_conv1d.weight",
                                        &t, &err),
                 0, "%s", err.text);
    cr_expect(t.rank == 3 && t.shape[0] == 8192);
    cr_expect_null(seam_checkpoint_find(c, "model.stale", NULL));
    /* ... and the holes are zeros, which are nobody's zero points. */
    cr_expect_eq(
        seam_checkpoint_weight(c, "@layer.3.mlp.experts.0.up_proj", &t, &err),
        SEAM_EDATA);

    getrusage(RUSAGE_SELF, &use);
    cr_expect(SANITIZED || use.ru_maxrss < MAX_RSS_KIB, "%ld KiB",
              use.ru_maxrss);
    seam_buf_release(&report);
    seam_checkpoint_close(c);
}
