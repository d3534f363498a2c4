#include "core/server/stack.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>

struct seam_stack {
    pthread_t thread;
    sem_t begin, done;
    void (*fn)(void *arg); /* NULL: end.  Handed over by the semaphores. */
    void *arg;
};

static void stack_wait(sem_t *s)
{
    while (sem_wait(s) && errno == EINTR)
        ;
}

static void *stack_main(void *arg)
{
    struct seam_stack *s = arg;

    for (;;) {
        stack_wait(&s->begin);
        if (!s->fn)
            return NULL;
        s->fn(s->arg);
        sem_post(&s->done);
    }
}

static int stack_start(struct seam_stack *s, size_t bytes)
{
    pthread_attr_t attr;
    sigset_t all, was;
    int rc = pthread_attr_init(&attr);

    if (rc)
        return rc;
    rc = pthread_attr_setstacksize(&attr, bytes);
    /* Signals are for the main thread, faults for whoever makes them. */
    sigfillset(&all);
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGFPE);
    sigdelset(&all, SIGILL);
    pthread_sigmask(SIG_SETMASK, &all, &was);
    if (!rc)
        rc = pthread_create(&s->thread, &attr, stack_main, s);
    pthread_sigmask(SIG_SETMASK, &was, NULL);
    pthread_attr_destroy(&attr);
    if (!rc)
        pthread_setname_np(s->thread, "seam/request");
    return rc;
}

struct seam_stack *seam_stack_new(size_t bytes)
{
    struct seam_stack *s = calloc(1, sizeof *s);

    if (!s)
        return NULL;
    sem_init(&s->begin, 0, 0);
    sem_init(&s->done, 0, 0);
    if (!stack_start(s, bytes))
        return s;
    sem_destroy(&s->begin);
    sem_destroy(&s->done);
    free(s);
    return NULL;
}

void seam_stack_run(struct seam_stack *s, void (*fn)(void *arg), void *arg)
{
    s->fn = fn;
    s->arg = arg;
    sem_post(&s->begin);
    stack_wait(&s->done);
}

void seam_stack_free(struct seam_stack *s)
{
    if (!s)
        return;
    s->fn = NULL;
    sem_post(&s->begin);
    pthread_join(s->thread, NULL);
    sem_destroy(&s->begin);
    sem_destroy(&s->done);
    free(s);
}
