/* A signal handler gets no argument of ours, so the table of watched ranges is
 * the one piece of process-wide state in the server.  It is fixed in size: the
 * handler may neither lock nor allocate. */
#include "core/checkpoint/guard.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define N_SLOTS 1024

/* begin 0: free.  end is stored before begin (release) and read after it
 * (acquire), so a handler never pairs a new begin with an old end. */
static struct {
    _Atomic uintptr_t begin, end;
    atomic_bool lost;
} slots[N_SLOTS];
static _Atomic uint32_t n_used; /* slots at and above it were never used      */

/* Protects the taking and giving back of slots, and the installation.  The
 * handler stays installed once it is: nobody could tell whether a handler put
 * on top of it meanwhile still calls it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool installed;
/* Written before the handler is installed, constant from then on. */
static struct sigaction before;
static uintptr_t page_bytes;

/* [signal] mmap is not on the list of async-signal-safe functions, but is a
 * plain system call here; called directly it also passes by the sanitizers. */
static bool guard_heal(uintptr_t address)
{
    uint32_t n = atomic_load_explicit(&n_used, memory_order_acquire);

    for (uint32_t i = 0; i < n; i++) {
        uintptr_t begin, end, page;
        int saved = errno;
        int64_t rc;

        begin = atomic_load_explicit(&slots[i].begin, memory_order_acquire);
        end = atomic_load_explicit(&slots[i].end, memory_order_relaxed);
        if (!begin || address < begin || address >= end)
            continue;
        page = address & ~(page_bytes - 1);
        rc = syscall(SYS_mmap, page, end - page, PROT_READ,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE,
                     -1, 0);
        errno = saved;
        if (rc == -1)
            return false;
        atomic_store_explicit(&slots[i].lost, true, memory_order_release);
        return true;
    }
    return false;
}

/* [signal] */
static void guard_handler(int sig, siginfo_t *info, void *context)
{
    /* BUS_* codes are positive; those of kill(2) are not. */
    if (info->si_code > 0 && guard_heal((uintptr_t)info->si_addr))
        return;
    if (before.sa_flags & SA_SIGINFO) {
        before.sa_sigaction(sig, info, context);
    } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
        before.sa_handler(sig);
    } else {
        /* The read fails again when this returns, then without us. */
        sigaction(sig, &before, NULL);
        if (info->si_code <= 0)
            raise(sig);
    }
}

static int guard_install(struct seam_error *err)
{
    struct sigaction ours = { .sa_flags = SA_SIGINFO | SA_ONSTACK };

    page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    ours.sa_sigaction = guard_handler;
    sigemptyset(&ours.sa_mask);
    if (sigaction(SIGBUS, NULL, &before) || sigaction(SIGBUS, &ours, NULL))
        return seam_fail_errno(err, SEAM_ESTATE, errno, "cannot handle SIGBUS");
    installed = true;
    return 0;
}

int seam_sigbus_watch(const void *p, uint64_t bytes, uint32_t *slot,
                      struct seam_error *err)
{
    uint32_t i = 0;
    int rc = 0;

    pthread_mutex_lock(&lock);
    while (i < N_SLOTS &&
           atomic_load_explicit(&slots[i].begin, memory_order_relaxed))
        i++;
    if (i == N_SLOTS) {
        rc = seam_fail(err, SEAM_ENOMEM,
                       "%d weight files are mapped, expected "
                       "no more",
                       N_SLOTS);
        goto out;
    }
    if (!installed) {
        rc = guard_install(err);
        if (rc)
            goto out;
    }
    atomic_store_explicit(&slots[i].lost, false, memory_order_relaxed);
    atomic_store_explicit(&slots[i].end, (uintptr_t)p + bytes,
                          memory_order_relaxed);
    atomic_store_explicit(&slots[i].begin, (uintptr_t)p, memory_order_release);
    if (i >= atomic_load_explicit(&n_used, memory_order_relaxed))
        atomic_store_explicit(&n_used, i + 1, memory_order_release);
    *slot = i;
out:
    pthread_mutex_unlock(&lock);
    return rc;
}

void seam_sigbus_unwatch(uint32_t slot)
{
    pthread_mutex_lock(&lock);
    atomic_store_explicit(&slots[slot].begin, 0, memory_order_release);
    pthread_mutex_unlock(&lock);
}

bool seam_sigbus_lost(uint32_t slot)
{
    return atomic_load_explicit(&slots[slot].lost, memory_order_acquire);
}
