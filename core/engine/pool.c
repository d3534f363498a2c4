/* Indices are claimed one at a time from an atomic counter, so that uneven work
 * balances itself.  What a job is (fn, arg, n) lies in plain members: they are
 * read only by a thread that has claimed an index, and a job with a claimed
 * index that has not been finished cannot be replaced.  A worker that comes
 * late finds the counter at zero, and touches nothing.
 *
 * Between jobs workers spin for a moment, because a decode step is hundreds of
 * short jobs in a row, and then sleep on a futex. */
#include "core/engine/pool.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/engine/cores.h"

#define POOL_MAX \
    SEAM_MAX_CORES     /* more workers than that are a typing error           */
#define POOL_SPIN 4000 /* pauses before sleeping: of the order of 100 us      */

struct pool_worker {
    struct seam_pool *pool;
    uint32_t index; /* 1 .. n - 1; 0 is whoever calls seam_pool_run           */
    pthread_t thread;
};

struct seam_pool {
    uint32_t n;    /* workers, the caller included                            */
    uint32_t spin; /* pauses before sleeping; 0 when cores are oversubscribed */

    /* Held by the caller of a run from its first to its last index: orders
     * callers, and with that protects the members of the job and the scratch
     * of worker 0. */
    pthread_mutex_t turn;

    seam_task *fn;
    void *arg;
    uint32_t n_tasks;

    _Atomic uint32_t unclaimed; /* indices nobody has taken                   */
    _Atomic uint32_t pending;   /* indices not finished; the caller's futex   */
    _Atomic bool caller_sleeps;
    _Atomic uint32_t epoch; /* counts jobs and the stop; the workers' futex   */
    _Atomic uint32_t sleepers;
    _Atomic bool stop;

    uint32_t n_started;
    struct pool_worker *worker; /* [n - 1]                                    */
};

/* Which pools the current thread is running a task of, innermost first.  It is
 * thread-local because seam_host.parallel_for, called from inside a task, has
 * no argument that could say so. */
struct pool_frame {
    const struct seam_pool *pool;
    uint32_t worker;
    const struct pool_frame *outer;
};
static _Thread_local const struct pool_frame *pool_inside;

static void pool_sleep(_Atomic uint32_t *word, uint32_t seen)
{
    syscall(SYS_futex, (uint32_t *)word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL,
            0);
}

static void pool_wake(_Atomic uint32_t *word, uint32_t n)
{
    syscall(SYS_futex, (uint32_t *)word, FUTEX_WAKE_PRIVATE,
            n > INT32_MAX ? INT32_MAX : (int)n, NULL, NULL, 0);
}

static void pool_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Take one index of the job that is on, if one is left. */
static bool pool_claim(struct seam_pool *p, uint32_t *i)
{
    uint32_t left = atomic_load_explicit(&p->unclaimed, memory_order_relaxed);

    /* Acquire: pairs with the release of the caller, who wrote the job. */
    do {
        if (left == 0)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(
        &p->unclaimed, &left, left - 1, memory_order_acquire,
        memory_order_relaxed));
    *i = p->n_tasks - left;
    return true;
}

/* Work until no index is left to take. */
static void pool_work(struct seam_pool *p, uint32_t worker)
{
    uint32_t i;

    while (pool_claim(p, &i)) {
        p->fn(p->arg, i, worker);
        /* Sequentially consistent, like the caller's store to caller_sleeps:
         * either we see that it sleeps, or it sees pending at zero.  From here
         * on the job may be gone. */
        if (atomic_fetch_sub(&p->pending, 1) == 1 &&
            atomic_load(&p->caller_sleeps))
            pool_wake(&p->pending, 1);
    }
}

static bool pool_has_news(struct seam_pool *p)
{
    return atomic_load_explicit(&p->unclaimed, memory_order_relaxed) ||
           atomic_load_explicit(&p->stop, memory_order_relaxed);
}

static void *pool_main(void *arg)
{
    struct pool_worker *w = arg;
    struct seam_pool *p = w->pool;
    struct pool_frame frame = { p, w->index, NULL };

    pool_inside = &frame;
    while (!atomic_load_explicit(&p->stop, memory_order_relaxed)) {
        /* Read before the last look for work, so that a job published after
         * that look makes the futex refuse to sleep. */
        uint32_t epoch = atomic_load(&p->epoch);

        pool_work(p, w->index);
        for (uint32_t s = 0; s < p->spin && !pool_has_news(p); s++)
            pool_pause();
        if (pool_has_news(p))
            continue;
        /* Sequentially consistent: whoever bumps the epoch and then finds no
         * sleepers has bumped it before the futex compares it. */
        atomic_fetch_add(&p->sleepers, 1);
        pool_sleep(&p->epoch, epoch);
        atomic_fetch_sub(&p->sleepers, 1);
    }
    return NULL;
}

static void pool_announce(struct seam_pool *p, uint32_t n)
{
    atomic_fetch_add(&p->epoch, 1);
    if (n && atomic_load(&p->sleepers))
        pool_wake(&p->epoch, n);
}

void seam_pool_run(struct seam_pool *p, uint32_t n, seam_task *fn, void *arg)
{
    struct pool_frame frame = { p, 0, pool_inside };
    uint32_t left;

    for (const struct pool_frame *f = pool_inside; f; f = f->outer) {
        if (f->pool != p)
            continue;
        for (uint32_t i = 0; i < n; i++)
            fn(arg, i, f->worker);
        return;
    }
    if (n == 0)
        return;
    pthread_mutex_lock(&p->turn);
    pool_inside = &frame;
    if (n == 1 || p->n == 1) {
        for (uint32_t i = 0; i < n; i++)
            fn(arg, i, 0);
        goto out;
    }
    p->fn = fn;
    p->arg = arg;
    p->n_tasks = n;
    atomic_store_explicit(&p->pending, n, memory_order_relaxed);
    atomic_store_explicit(&p->unclaimed, n, memory_order_release);
    pool_announce(p, n - 1 < p->n - 1 ? n - 1 : p->n - 1);
    pool_work(p, 0);

    /* Acquire: what the tasks wrote is visible to the caller. */
    for (uint32_t s = 0; s < p->spin; s++) {
        if (!atomic_load_explicit(&p->pending, memory_order_acquire))
            goto out;
        pool_pause();
    }
    atomic_store(&p->caller_sleeps, true);
    while ((left = atomic_load(&p->pending)))
        pool_sleep(&p->pending, left);
    atomic_store(&p->caller_sleeps, false);
out:
    pool_inside = frame.outer;
    pthread_mutex_unlock(&p->turn);
}

void seam_pool_alone(struct seam_pool *p, void (*fn)(void *arg), void *arg)
{
    struct pool_frame frame = { p, 0, pool_inside };

    pool_inside = &frame;
    fn(arg);
    pool_inside = frame.outer;
}

/* Signals are for the main thread; only those that a thread raises by itself
 * stay open, because a blocked one kills the process without a handler. */
static void pool_mask(sigset_t *set)
{
    static const int own[] = { SIGSEGV, SIGBUS,  SIGFPE, SIGILL,
                               SIGTRAP, SIGABRT, SIGSYS, SIGPROF };

    sigfillset(set);
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        sigdelset(set, own[i]);
}

static int pool_start(struct seam_pool *p, struct seam_error *err)
{
    sigset_t mask, was;
    int rc = 0;

    pool_mask(&mask);
    pthread_sigmask(SIG_BLOCK, &mask, &was);
    while (!rc && p->n_started < p->n - 1) {
        struct pool_worker *w = &p->worker[p->n_started];
        int e;

        w->pool = p;
        w->index = p->n_started + 1;
        e = pthread_create(&w->thread, NULL, pool_main, w);
        if (e) {
            rc = seam_fail_errno(err, SEAM_ENOMEM, e,
                                 "pool: cannot start thread %u of %u "
                                 "(engine.threads)",
                                 w->index, p->n - 1);
        } else {
            pthread_setname_np(w->thread, "seam/pool");
            p->n_started++;
        }
    }
    pthread_sigmask(SIG_SETMASK, &was, NULL);
    return rc;
}

int seam_pool_new(struct seam_pool **out, uint32_t n, struct seam_error *err)
{
    struct seam_pool *p = NULL;
    struct seam_cores cores;
    int rc = 0;

    seam_cores_find(&cores);
    if (n == 0)
        n = cores.n;
    if (n > POOL_MAX)
        return seam_fail(err, SEAM_EINVAL,
                         "pool: %u threads, expected at most %d", n, POOL_MAX);
    p = calloc(1, sizeof *p);
    if (!p)
        return seam_fail(err, SEAM_ENOMEM, "pool: out of memory");
    pthread_mutex_init(&p->turn, NULL);
    p->n = n;
    p->spin = n <= cores.n_cpus ? POOL_SPIN : 0;
    p->worker = calloc(n, sizeof *p->worker);
    if (!p->worker) {
        rc = seam_fail(err, SEAM_ENOMEM, "pool: out of memory");
        goto out;
    }
    rc = pool_start(p, err);
    if (rc)
        goto out;
    *out = p;
    p = NULL;
out:
    seam_pool_free(p);
    return rc;
}

void seam_pool_free(struct seam_pool *p)
{
    if (!p)
        return;
    atomic_store(&p->stop, true);
    pool_announce(p, UINT32_MAX);
    for (uint32_t i = 0; i < p->n_started; i++)
        pthread_join(p->worker[i].thread, NULL);
    free(p->worker);
    pthread_mutex_destroy(&p->turn);
    free(p);
}

uint32_t seam_pool_size(const struct seam_pool *p)
{
    return p->n;
}

int seam_pool_pin(struct seam_pool *p, bool only_own, struct seam_error *err)
{
    struct seam_cores c;
    cpu_set_t *set = NULL;
    size_t bytes;
    int e = 0;

    seam_cores_find(&c);
    if (only_own && !(c.own && c.n == p->n && p->n_started))
        return 0;
    bytes = CPU_ALLOC_SIZE(c.cpu[c.n - 1] + 1);
    set = CPU_ALLOC(c.cpu[c.n - 1] + 1);
    if (!set)
        return seam_fail(err, SEAM_ENOMEM, "pool: out of memory");
    for (uint32_t i = 0; i < p->n_started && !e; i++) {
        CPU_ZERO_S(bytes, set);
        CPU_SET_S(c.cpu[p->worker[i].index % c.n], bytes, set);
        e = pthread_setaffinity_np(p->worker[i].thread, bytes, set);
    }
    CPU_FREE(set);
    return e ? seam_fail_errno(err, SEAM_EINVAL, e,
                               "pool: cannot pin a thread "
                               "(engine.pin_threads)")
             : (int)p->n_started;
}
