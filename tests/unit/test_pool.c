#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sched.h>

#include "core/engine/cores.h"
#include "core/engine/pool.h"

#define MANY 10000

static struct seam_pool *pool_of(uint32_t n)
{
    struct seam_pool *p = NULL;
    struct seam_error err = { 0 };

    cr_assert_eq(seam_pool_new(&p, n, &err), 0, "%s", err.text);
    return p;
}

/* Plain counters: a second visit, or a missing happens-before edge between the
 * task and the caller, shows as a wrong sum or as a race. */
struct visits {
    uint32_t n_workers;
    uint32_t count[MANY];
    _Atomic uint32_t out_of_range;
};

static void visit(void *arg, uint32_t i, uint32_t worker)
{
    struct visits *v = arg;

    if (i >= MANY || worker >= v->n_workers)
        atomic_fetch_add(&v->out_of_range, 1);
    else
        v->count[i]++;
}

Test(pool, runs_each_index_once_for_every_count)
{
    static const uint32_t counts[] = { 0, 1, 2, 3, 4, 5, 63, MANY };
    static struct visits v;

    for (uint32_t size = 1; size <= 5; size++) {
        struct seam_pool *p = pool_of(size);

        cr_expect_eq(seam_pool_size(p), size);
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
            memset(&v, 0, sizeof v);
            v.n_workers = size;
            seam_pool_run(p, counts[c], visit, &v);
            for (uint32_t i = 0; i < MANY; i++)
                cr_assert_eq(v.count[i], i < counts[c],
                             "size %u, n %u: index %u ran %u times", size,
                             counts[c], i, v.count[i]);
            cr_expect_eq(v.out_of_range, 0);
        }
        seam_pool_free(p);
    }
}

Test(pool, many_short_jobs_in_a_row_lose_nothing)
{
    struct seam_pool *p = pool_of(4);
    static struct visits v;

    v.n_workers = 4;
    for (uint32_t round = 0; round < 5000; round++)
        seam_pool_run(p, 1 + round % 7, visit, &v);
    for (uint32_t i = 0; i < 7; i++) {
        uint32_t want = 0;

        for (uint32_t round = 0; round < 5000; round++)
            want += i < 1 + round % 7;
        cr_expect_eq(v.count[i], want, "index %u: %u, expected %u", i,
                     v.count[i], want);
    }
    seam_pool_free(p);
}

/* One plain cell per worker: two threads with one worker number would race. */
struct scratch {
    struct seam_pool *p;
    uint64_t cell[8];
    uint32_t inside[8];
    _Atomic uint32_t shared;
};

static void scratch_use(void *arg, uint32_t i, uint32_t worker)
{
    struct scratch *s = arg;

    (void)i;
    if (s->inside[worker]++)
        atomic_fetch_add(&s->shared, 1);
    s->cell[worker]++;
    s->inside[worker]--;
}

struct caller {
    struct scratch *s;
    uint32_t rounds;
};

static void *caller_main(void *arg)
{
    struct caller *c = arg;

    for (uint32_t r = 0; r < c->rounds; r++)
        seam_pool_run(c->s->p, 1 + r % 9, scratch_use, c->s);
    return NULL;
}

Test(pool, callers_take_turns_and_never_share_a_worker)
{
    struct scratch s = { .p = pool_of(4) };
    struct caller c = { &s, 1000 };
    pthread_t t[4];
    uint64_t sum = 0, want = 0;

    for (int i = 0; i < 4; i++)
        cr_assert_eq(pthread_create(&t[i], NULL, caller_main, &c), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], NULL);
    for (int i = 0; i < 8; i++)
        sum += s.cell[i];
    for (uint32_t r = 0; r < c.rounds; r++)
        want += 4 * (1 + r % 9);
    cr_expect_eq(sum, want, "%lu tasks, expected %lu", sum, want);
    cr_expect_eq(s.shared, 0);
    seam_pool_free(s.p);
}

struct nest {
    struct seam_pool *p, *other;
    uint32_t depth;
    uint32_t outer_worker[8];
    _Atomic uint32_t inner, strayed;
};

struct nest_call {
    struct nest *n;
    uint32_t worker, next;
    pthread_t thread;
    _Atomic uint32_t out_of_order;
};

static void nest_inner(void *arg, uint32_t i, uint32_t worker)
{
    struct nest_call *c = arg;

    atomic_fetch_add(&c->n->inner, 1);
    if (worker != c->worker || !pthread_equal(pthread_self(), c->thread))
        atomic_fetch_add(&c->n->strayed, 1);
    if (i != c->next++)
        atomic_fetch_add(&c->out_of_order, 1);
}

static void nest_outer(void *arg, uint32_t i, uint32_t worker)
{
    struct nest *n = arg;
    struct nest_call c = { n, worker, 0, pthread_self(), 0 };

    (void)i;
    seam_pool_run(n->p, 16, nest_inner, &c);
    if (c.out_of_order)
        atomic_fetch_add(&n->strayed, 1);
}

Test(pool, nested_calls_run_in_order_on_the_calling_worker)
{
    struct nest n = { .p = pool_of(4) };

    /* n 1 takes the short way through seam_pool_run. */
    seam_pool_run(n.p, 1, nest_outer, &n);
    seam_pool_run(n.p, 64, nest_outer, &n);
    cr_expect_eq(n.inner, 65 * 16);
    cr_expect_eq(n.strayed, 0);
    seam_pool_free(n.p);
}

/* a -> b -> a: the innermost call is nested in a although b lies between. */
static void nest_through_back(void *arg, uint32_t i, uint32_t worker)
{
    struct nest *n = arg;

    (void)i;
    (void)worker;
    atomic_fetch_add(&n->inner, 1);
}

static void nest_through_b(void *arg, uint32_t i, uint32_t worker)
{
    struct nest *n = arg;

    (void)i;
    (void)worker;
    if (n->depth)
        seam_pool_run(n->p, 3, nest_through_back, n);
}

static void nest_through_a(void *arg, uint32_t i, uint32_t worker)
{
    struct nest *n = arg;

    (void)i;
    (void)worker;
    seam_pool_run(n->other, 1, nest_through_b, n);
}

Test(pool, nesting_through_another_pool_does_not_deadlock)
{
    struct nest n = { .p = pool_of(2), .other = pool_of(2), .depth = 1 };

    seam_pool_run(n.p, 1, nest_through_a, &n);
    cr_expect_eq(n.inner, 3);
    seam_pool_free(n.p);
    seam_pool_free(n.other);
}

/* Every task waits until all have begun: passes only with as many threads. */
struct meet {
    pthread_barrier_t all;
    _Atomic uint32_t named, masked;
};

static void meet_all(void *arg, uint32_t i, uint32_t worker)
{
    struct meet *m = arg;

    (void)i;
    if (worker) {
        char name[16] = "";
        sigset_t set;

        pthread_getname_np(pthread_self(), name, sizeof name);
        if (strcmp(name, "seam/pool") == 0)
            atomic_fetch_add(&m->named, 1);
        pthread_sigmask(SIG_BLOCK, NULL, &set);
        if (sigismember(&set, SIGTERM) && sigismember(&set, SIGINT) &&
            !sigismember(&set, SIGBUS) && !sigismember(&set, SIGSEGV))
            atomic_fetch_add(&m->masked, 1);
    }
    pthread_barrier_wait(&m->all);
}

Test(pool, all_workers_take_part_named_and_without_signals)
{
    struct seam_pool *p = pool_of(4);
    struct meet m = { 0 };
    sigset_t mine;

    pthread_barrier_init(&m.all, NULL, 4);
    /* Several rounds, so that sleeping workers are woken as well. */
    for (int round = 0; round < 50; round++)
        seam_pool_run(p, 4, meet_all, &m);
    cr_expect_eq(m.named, 50 * 3, "%u", m.named);
    cr_expect_eq(m.masked, 50 * 3, "%u", m.masked);
    pthread_sigmask(SIG_BLOCK, NULL, &mine);
    cr_expect_not(sigismember(&mine, SIGTERM), "the caller's mask changed");
    seam_pool_free(p);
    pthread_barrier_destroy(&m.all);
}

Test(pool, has_a_worker_per_core_by_default)
{
    struct seam_cores c;
    struct seam_pool *p = pool_of(0);

    seam_cores_find(&c);
    cr_expect_eq(seam_pool_size(p), c.n, "%u, not %u", seam_pool_size(p), c.n);
    seam_pool_free(p);
}

/* How many processors each worker may run on. */
static void count_mask(void *arg, uint32_t i, uint32_t worker)
{
    _Atomic int *cpus = arg;
    cpu_set_t set;

    (void)i;
    if (!sched_getaffinity(0, sizeof set, &set))
        atomic_store(&cpus[worker], CPU_COUNT(&set));
}

Test(pool, binds_all_but_the_caller)
{
    struct seam_pool *p = pool_of(3);
    struct seam_error err = { 0 };
    _Atomic int cpus[3] = { 0 };
    struct seam_cores c;
    cpu_set_t set;

    seam_cores_find(&c);
    if (!c.own)
        cr_expect_eq(seam_pool_pin(p, true, &err), 0, "a whole machine");
    cr_expect_eq(seam_pool_pin(p, false, &err), 2, "%s", err.text);
    for (int n = 0; n < 100000 && !(cpus[1] && cpus[2]); n++)
        seam_pool_run(p, 64, count_mask, cpus);
    cr_expect_leq(cpus[1], 1);
    cr_expect_leq(cpus[2], 1);
    cr_assert_eq(sched_getaffinity(0, sizeof set, &set), 0);
    cr_expect_eq((uint32_t)CPU_COUNT(&set), c.n_cpus, "the caller was bound");
    seam_pool_free(p);
}

Test(pool, refuses_an_absurd_size)
{
    struct seam_pool *p = NULL;
    struct seam_error err = { 0 };

    cr_expect_eq(seam_pool_new(&p, 100000, &err), SEAM_EINVAL);
    cr_expect_null(p);
    cr_expect(strstr(err.text, "100000") && strstr(err.text, "1024"), "%s",
              err.text);
    seam_pool_free(NULL);
}
