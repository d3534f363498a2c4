/* SIGKILL at any moment leaves no wrong prefix: a process that writes and reads
 * the second tier is killed again and again, and whatever one of them answers
 * equals what a process without a cache answers.  SEAM_TEST_KILLS sets how
 * often. */
#include <criterion/criterion.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/num.h"
#include "tests/engine/killed.h"
#include "tests/engine/talk.h"
#include "tests/support/folder.h"

#ifdef SEAM_TEST_QUICK
enum { N_KILLS = 3, LATEST_MS = 4000 };
#else
enum { N_KILLS = 8, LATEST_MS = 1500 };
#endif

struct answer {
    bool there;
    int32_t id[KILLED_GEN];
};

struct child {
    pid_t pid;
    int fd;
    char text[4096];
    size_t n;
};

static void child_start(struct child *c, const char *dir, unsigned seed)
{
    char number[16];
    int fd[2];

    cr_assert_eq(pipe(fd), 0);
    snprintf(number, sizeof number, "%u", seed);
    c->pid = fork();
    cr_assert_geq(c->pid, 0);
    if (!c->pid) {
        dup2(fd[1], STDOUT_FILENO);
        close(fd[0]);
        close(fd[1]);
        execl(SEAM_TEST_BINARY_DIR "/tests/engine/prefix_child", "prefix_child",
              dir, number, NULL);
        _exit(127);
    }
    close(fd[1]);
    c->fd = fd[0];
    c->n = 0;
}

/* The next whole line, or NULL when the child has ended or `until` is over. */
static char *child_line(struct child *c, char line[1024], uint64_t until)
{
    for (;;) {
        char *end = memchr(c->text, '\n', c->n);
        struct pollfd p = { .fd = c->fd, .events = POLLIN };
        uint64_t now = seam_now_ns();
        ssize_t got;

        if (end) {
            size_t n = (size_t)(end - c->text);

            cr_assert_lt(n, 1024);
            memcpy(line, c->text, n);
            line[n] = 0;
            c->n -= n + 1;
            memmove(c->text, end + 1, c->n);
            return line;
        }
        if (until && now >= until)
            return NULL;
        if (poll(&p, 1, until ? (int)((until - now) / 1000000) + 1 : -1) <= 0)
            continue;
        got = read(c->fd, c->text + c->n, sizeof c->text - c->n);
        if (got <= 0)
            return NULL;
        c->n += (size_t)got;
    }
}

static int child_end(struct child *c, bool kill_it)
{
    int status = 0;

    if (kill_it)
        kill(c->pid, SIGKILL);
    close(c->fd);
    while (waitpid(c->pid, &status, 0) < 0 && errno == EINTR)
        ;
    return status;
}

/* Read a line into a place of want, or compare it with that.  Returns the
 * tokens that were cached. */
static uint32_t judge(const char *line, struct answer (*want)[KILLED_TURNS],
                      bool first, int round)
{
    int c, turn, used, at = 0;
    uint32_t cached;

    cr_assert_eq(sscanf(line, "%d %d %u%n", &c, &turn, &cached, &at), 3, "%s",
                 line);
    cr_assert(c >= 0 && c < KILLED_N && turn >= 0 && turn < KILLED_TURNS);
    for (int i = 0; i < KILLED_GEN; i++, at += used) {
        int32_t id;

        cr_assert_eq(sscanf(line + at, " %d%n", &id, &used), 1, "%s", line);
        if (first)
            want[c][turn].id[i] = id;
        else
            cr_assert_eq(id, want[c][turn].id[i],
                         "round %d, conversation %d, turn %d, token %d: %d "
                         "after %u cached, %d without a cache",
                         round, c, turn, i, id, cached, want[c][turn].id[i]);
    }
    want[c][turn].there = true;
    return cached;
}

Test(killed, sigkill_at_any_moment_leaves_no_wrong_prefix, .timeout = 1200)
{
    static struct answer want[KILLED_N][KILLED_TURNS];
    const char *kills = getenv("SEAM_TEST_KILLS");
    char dir[] = "/tmp/seam-killed-XXXXXX", line[1024];
    uint64_t n_kills = N_KILLS, cached = 0, answers = 0, ended = 0;
    unsigned seed = 17;
    struct child c;

    if (kills)
        cr_assert(seam_parse_u64(kills, strlen(kills), &n_kills));
    cr_assert_not_null(mkdtemp(dir));
    child_start(&c, "-", 0);
    cr_assert_not_null(child_line(&c, line, 0));
    while (child_line(&c, line, 0))
        cr_assert_eq(judge(line, want, true, -1), 0);
    cr_assert_eq(child_end(&c, false), 0);
    for (int i = 0; i < KILLED_N; i++)
        for (int j = 0; j < KILLED_TURNS; j++)
            cr_assert(want[i][j].there);

    for (uint64_t round = 0; round <= n_kills; round++) {
        bool last = round == n_kills;
        uint64_t until = 0;

        child_start(&c, dir, (unsigned)rand_r(&seed));
        /* Some are killed while they still start. */
        if (round % 8 == 7 && !last)
            until = seam_now_ns() + rand_r(&seed) % 300 * UINT64_C(1000000);
        if (!child_line(&c, line, until)) {
            child_end(&c, true);
            continue;
        }
        cr_assert_str_eq(line, "ready");
        if (!last)
            until =
                seam_now_ns() + rand_r(&seed) % LATEST_MS * UINT64_C(1000000);
        while (child_line(&c, line, until)) {
            cached += judge(line, want, false, (int)round);
            answers++;
        }
        if (last)
            cr_assert_eq(child_end(&c, false), 0);
        else
            ended += WIFEXITED(child_end(&c, true)) != 0;
    }
    printf("killed: %llu rounds (%llu were through before), %llu answers as "
           "without a cache, %llu tokens of them cached\n",
           (unsigned long long)n_kills, (unsigned long long)ended,
           (unsigned long long)answers, (unsigned long long)cached);
    cr_expect_gt(cached, KILLED_N * 90);
    folder_remove(dir);
}
