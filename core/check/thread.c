#include "core/check/thread.h"

#include <pthread.h>
#include <stdlib.h>

#include "core/check/finding.h"
#include "core/check/synth.h"

enum { THREADS = 64 };

struct turns {
    enum ck_pace pace;
    uint32_t n, now, alive;
    bool done[THREADS];
    struct th_rng rng;
    pthread_mutex_t lock;
    pthread_cond_t cond[THREADS]; /* it is this one's turn                    */
    pthread_barrier_t meet;
    void (*fn)(void *arg, uint32_t i);
    void *arg;
};

struct actor {
    struct turns *t;
    uint32_t i;
};

static _Thread_local struct ck_here here;
static _Thread_local const struct actor *acting;

struct ck_here *ck_here(void)
{
    return &here;
}

/* ---- At the same time ---------------------------------------------------- */

/* Somebody who still runs; under the lock. */
static void turns_next(struct turns *t)
{
    if (!t->alive)
        return;
    do
        t->now = th_below(&t->rng, t->n);
    while (t->done[t->now]);
    pthread_cond_signal(&t->cond[t->now]);
}

static void turns_wait(struct turns *t, uint32_t i)
{
    while (t->now != i)
        pthread_cond_wait(&t->cond[i], &t->lock);
}

void ck_turn(void)
{
    const struct actor *a = acting;

    if (!a || a->t->pace != CK_TURNS)
        return;
    pthread_mutex_lock(&a->t->lock);
    turns_next(a->t);
    turns_wait(a->t, a->i);
    pthread_mutex_unlock(&a->t->lock);
}

void ck_meet(void)
{
    if (acting && acting->t->pace == CK_FREE)
        pthread_barrier_wait(&acting->t->meet);
    else
        ck_turn();
}

static void *actor_main(void *arg)
{
    const struct actor *a = arg;
    struct turns *t = a->t;

    acting = a;
    here.tag = CK_CONTROL;
    if (t->pace == CK_TURNS) {
        pthread_mutex_lock(&t->lock);
        turns_wait(t, a->i);
        pthread_mutex_unlock(&t->lock);
    }
    t->fn(t->arg, a->i);
    pthread_mutex_lock(&t->lock);
    t->done[a->i] = true;
    t->alive--;
    if (t->pace == CK_TURNS)
        turns_next(t);
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

void ck_together(uint32_t n, enum ck_pace pace, uint64_t seed,
                 void (*fn)(void *arg, uint32_t i), void *arg)
{
    struct turns t = { .pace = pace,
                       .n = n,
                       .alive = n,
                       .rng = { seed },
                       .lock = PTHREAD_MUTEX_INITIALIZER,
                       .fn = fn,
                       .arg = arg };
    struct actor a[THREADS];
    pthread_t thread[THREADS];

    ck_own(n && n <= THREADS, "%u threads", n);
    t.now = th_below(&t.rng, n);
    ck_own(!pthread_barrier_init(&t.meet, NULL, n), "no barrier");
    for (uint32_t i = 0; i < n; i++)
        ck_own(!pthread_cond_init(&t.cond[i], NULL), "no condition");
    for (uint32_t i = 0; i < n; i++) {
        a[i] = (struct actor){ &t, i };
        ck_own(!pthread_create(&thread[i], NULL, actor_main, &a[i]),
               "no thread");
    }
    for (uint32_t i = 0; i < n; i++)
        pthread_join(thread[i], NULL);
    for (uint32_t i = 0; i < n; i++)
        pthread_cond_destroy(&t.cond[i]);
    pthread_barrier_destroy(&t.meet);
}

/* ---- One after the other ------------------------------------------------- */

struct move {
    void (*fn)(void *arg);
    void *arg;
    uint32_t tag;
};

struct ck_mover {
    bool fresh, stop;
    struct th_rng rng;
    pthread_mutex_t lock;
    pthread_cond_t cond;
    struct move move;
    uint32_t to; /* 1, 2: the thread that is to run it; 0: none               */
    pthread_t thread[2];
};

static void move_run(const struct move *v)
{
    here.tag = v->tag;
    v->fn(v->arg);
    here.tag = CK_FOREIGN;
}

static void *fresh_main(void *arg)
{
    move_run(arg);
    return NULL;
}

static void mover_serve(struct ck_mover *m, uint32_t me)
{
    pthread_mutex_lock(&m->lock);
    for (;;) {
        while (m->to != me && !m->stop)
            pthread_cond_wait(&m->cond, &m->lock);
        if (m->stop)
            break;
        move_run(&m->move);
        m->to = 0;
        pthread_cond_broadcast(&m->cond);
    }
    pthread_mutex_unlock(&m->lock);
}

static void *first_main(void *arg)
{
    mover_serve(arg, 1);
    return NULL;
}

static void *second_main(void *arg)
{
    mover_serve(arg, 2);
    return NULL;
}

struct ck_mover *ck_mover_new(bool fresh, uint64_t seed)
{
    struct ck_mover *m = calloc(1, sizeof *m);

    ck_own(m, "out of memory");
    m->fresh = fresh;
    m->rng.s = seed;
    ck_own(!pthread_mutex_init(&m->lock, NULL) &&
               !pthread_cond_init(&m->cond, NULL),
           "no lock");
    if (!fresh)
        ck_own(!pthread_create(&m->thread[0], NULL, first_main, m) &&
                   !pthread_create(&m->thread[1], NULL, second_main, m),
               "no thread");
    return m;
}

void ck_mover_free(struct ck_mover *m)
{
    if (!m->fresh) {
        pthread_mutex_lock(&m->lock);
        m->stop = true;
        pthread_cond_broadcast(&m->cond);
        pthread_mutex_unlock(&m->lock);
        pthread_join(m->thread[0], NULL);
        pthread_join(m->thread[1], NULL);
    }
    pthread_cond_destroy(&m->cond);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

void ck_move(struct ck_mover *m, void (*fn)(void *arg), void *arg)
{
    struct move v = { fn, arg, here.tag };
    pthread_t t;

    if (m->fresh) {
        ck_own(!pthread_create(&t, NULL, fresh_main, &v), "no thread");
        pthread_join(t, NULL);
        return;
    }
    pthread_mutex_lock(&m->lock);
    m->move = v;
    m->to = 1 + th_below(&m->rng, 2);
    pthread_cond_broadcast(&m->cond);
    while (m->to)
        pthread_cond_wait(&m->cond, &m->lock);
    pthread_mutex_unlock(&m->lock);
}
