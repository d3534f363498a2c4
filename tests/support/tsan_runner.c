/* Runs Criterion tests without Criterion's runner, for ThreadSanitizer builds.
 *
 * Criterion isolates each test through an arena at an address that TSan keeps
 * for itself, so no test starts.  This file stands in for the few functions
 * that the Test() and cr_*() macros call: each test runs in a fork, a failed
 * assertion prints and marks the process, and main() counts.  Parameterised
 * tests and expected signals are not supported. */
#include <criterion/criterion.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXIT_SKIPPED 77

extern struct criterion_test *__start_cr_tst[], *__stop_cr_tst[];

static const struct criterion_test *running;
static int failed;

void criterion_internal_test_setup(void)
{
    if (running->data->init)
        running->data->init();
}

void criterion_internal_test_main(void (*fn)(void))
{
    fn();
}

void criterion_internal_test_teardown(void)
{
    if (running->data->fini)
        running->data->fini();
}

void cri_asserts_passed_incr(void)
{
}

void criterion_send_assert(struct criterion_assert_stats *s)
{
    failed = 1;
    fprintf(stderr, "%s:%u: assertion failed: %s\n", s->file, s->line,
            s->message ? s->message : "");
}

void criterion_abort_test(void)
{
    fflush(NULL);
    _exit(1);
}

void criterion_skip_test(const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    vfprintf(stderr, format, ap);
    va_end(ap);
    fputc('\n', stderr);
    exit(EXIT_SKIPPED);
}

int main(void)
{
    int n_failed = 0, n_skipped = 0, n = 0;

    for (struct criterion_test **t = __start_cr_tst; t < __stop_cr_tst; t++) {
        int status = 0;
        pid_t pid;

        if (!*t)
            continue;
        n++;
        fflush(NULL);
        pid = fork();
        if (pid == 0) {
            running = *t;
            (*t)->test();
            exit(failed);
        }
        waitpid(pid, &status, 0);
        if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SKIPPED) {
            n_skipped++;
        } else if (status) {
            n_failed++;
            fprintf(stderr, "[FAIL] %s::%s (status %#x)\n", (*t)->category,
                    (*t)->name, status);
        }
    }
    printf("tested: %d, skipped: %d, failed: %d\n", n, n_skipped, n_failed);
    return n_failed != 0;
}
