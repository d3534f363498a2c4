#include <criterion/criterion.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/checkpoint/guard.h"

#define PAGES 16

/* PAGES pages of a file whose bytes are all 1, then cut to `left` pages. */
static unsigned char *cut_mapping(uint32_t left)
{
    char path[] = "/tmp/seam-guard-XXXXXX";
    size_t n = PAGES * (size_t)sysconf(_SC_PAGESIZE);
    int fd = mkstemp(path);
    unsigned char *p;

    cr_assert_geq(fd, 0);
    unlink(path);
    cr_assert_eq(ftruncate(fd, (off_t)n), 0);
    p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    cr_assert_neq(p, MAP_FAILED);
    memset(p, 1, n);
    cr_assert_eq(ftruncate(fd, (off_t)(left * n / PAGES)), 0);
    close(fd);
    return p;
}

static unsigned char read_page(const unsigned char *p, uint32_t page)
{
    return *(const volatile unsigned char *)(p +
                                             page *
                                                 (size_t)sysconf(_SC_PAGESIZE) +
                                             5);
}

static uint32_t watched(const unsigned char *p)
{
    struct seam_error err;
    uint32_t slot;

    cr_assert_eq(seam_sigbus_watch(p, PAGES * (uint64_t)sysconf(_SC_PAGESIZE),
                                   &slot, &err),
                 0, "%s", err.text);
    return slot;
}

static void unmap(unsigned char *p)
{
    munmap(p, PAGES * (size_t)sysconf(_SC_PAGESIZE));
}

Test(guard, a_lost_page_reads_as_zeros_and_is_remembered)
{
    unsigned char *a = cut_mapping(8), *b = cut_mapping(PAGES);
    uint32_t sa = watched(a), sb = watched(b);

    cr_expect_eq(read_page(a, 7), 1);
    cr_expect_not(seam_sigbus_lost(sa));
    cr_expect_eq(read_page(a, 12), 0);
    cr_expect(seam_sigbus_lost(sa));
    cr_expect_eq(read_page(a, 8), 0, "a page before the first fault");
    cr_expect_eq(read_page(a, 15), 0);
    cr_expect_eq(read_page(a, 7), 1, "what is left stays");
    cr_expect_eq(read_page(b, 15), 1);
    cr_expect_not(seam_sigbus_lost(sb));
    seam_sigbus_unwatch(sa);
    seam_sigbus_unwatch(sb);
    unmap(a);
    unmap(b);
}

Test(guard, slots_are_used_again_without_their_past)
{
    unsigned char *a = cut_mapping(0);
    uint32_t slot = watched(a);

    cr_expect_eq(read_page(a, 0), 0);
    cr_expect(seam_sigbus_lost(slot));
    seam_sigbus_unwatch(slot);
    unmap(a);
    a = cut_mapping(PAGES);
    cr_expect_eq(watched(a), slot);
    cr_expect_not(seam_sigbus_lost(slot));
    seam_sigbus_unwatch(slot);
    unmap(a);
}

static void *read_all(void *p)
{
    for (uint32_t i = 0; i < PAGES; i++)
        cr_expect_eq(read_page(p, i), i < 4);
    return NULL;
}

Test(guard, many_threads_may_lose_the_same_range)
{
    unsigned char *a = cut_mapping(4);
    uint32_t slot = watched(a);
    pthread_t t[4];

    for (int i = 0; i < 4; i++)
        cr_assert_eq(pthread_create(&t[i], NULL, read_all, a), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], NULL);
    cr_expect(seam_sigbus_lost(slot));
    seam_sigbus_unwatch(slot);
    unmap(a);
}

Test(guard, no_more_ranges_than_there_is_room_for)
{
    static unsigned char page[2048];
    struct seam_error err;
    uint32_t slot[1024], one;

    for (int i = 0; i < 1024; i++)
        cr_assert_eq(seam_sigbus_watch(page + i, 1, &slot[i], &err), 0);
    cr_expect_eq(seam_sigbus_watch(page + 1024, 1, &one, &err), SEAM_ENOMEM);
    seam_sigbus_unwatch(slot[512]);
    cr_expect_eq(seam_sigbus_watch(page + 1024, 1, &one, &err), 0);
    cr_expect_eq(one, slot[512]);
}

/* ---- Other people's SIGBUS ---------------------------------------------- */

/* Exit status of a child that reads a lost page nobody watches, or sends itself
 * the signal. */
static int stray(bool sent)
{
    unsigned char *a = cut_mapping(PAGES), *b = cut_mapping(0);
    int status = 0;
    pid_t pid;

    watched(a);
    pid = fork();
    if (pid == 0) {
        close(2); /* what a sanitizer says about it */
        if (sent)
            raise(SIGBUS);
        else
            read_page(b, 0);
        _exit(0);
    }
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    return status;
}

Test(guard, a_sigbus_elsewhere_still_kills)
{
    for (int sent = 0; sent < 2; sent++) {
        int status = stray(sent);

        /* A sanitizer's handler, which was there before, reports and exits. */
        cr_expect(WIFSIGNALED(status) ? WTERMSIG(status) == SIGBUS
                                      : WEXITSTATUS(status) != 0,
                  "status %#x", (unsigned)status);
    }
}

static sigjmp_buf jump;
static volatile sig_atomic_t n_own;

static void own_handler(int sig)
{
    (void)sig;
    n_own++;
    siglongjmp(jump, 1);
}

static void own_action(int sig, siginfo_t *info, void *context)
{
    (void)context;
    if (info->si_signo == sig)
        own_handler(sig);
}

Test(guard, hands_a_sigbus_elsewhere_to_the_handler_before_it)
{
    struct sigaction own = { .sa_handler = own_handler };
    unsigned char *a = cut_mapping(0), *b = cut_mapping(0);
    uint32_t slot;

    sigaction(SIGBUS, &own, NULL);
    slot = watched(a);
    if (!sigsetjmp(jump, 1))
        read_page(b, 0);
    cr_expect_eq(n_own, 1);
    cr_expect_eq(read_page(a, 0), 0);
    cr_expect_eq(n_own, 1);
    seam_sigbus_unwatch(slot);
    if (!sigsetjmp(jump, 1))
        read_page(b, 0);
    cr_expect_eq(n_own, 2, "also when nothing is watched any more");
}

Test(guard, hands_over_what_it_knows_about_the_signal)
{
    struct sigaction own = { .sa_sigaction = own_action,
                             .sa_flags = SA_SIGINFO };
    unsigned char *a = cut_mapping(PAGES), *b = cut_mapping(0);

    sigaction(SIGBUS, &own, NULL);
    watched(a);
    if (!sigsetjmp(jump, 1))
        read_page(b, 3);
    cr_expect_eq(n_own, 1);
}
