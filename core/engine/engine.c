#include "core/engine/engine.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/engine/impl.h"
#include "core/engine/swap.h"

/* ---- Asking -------------------------------------------------------------- */

enum seam_engine_state seam_engine_state(const struct seam_engine *e)
{
    /* acquire: whoever sees READY sees what loading wrote. */
    return (enum seam_engine_state)atomic_load_explicit(&e->state,
                                                        memory_order_acquire);
}

uint64_t seam_engine_still_ms(const struct seam_engine *e)
{
    uint64_t moved, now = seam_now_ns();

    if (!atomic_load_explicit(&e->active, memory_order_relaxed))
        return 0;
    moved = atomic_load_explicit(&e->moved_ns, memory_order_relaxed);
    return now > moved ? (now - moved) / 1000000u : 0;
}

bool seam_engine_stalled(const struct seam_engine *e)
{
    return seam_engine_still_ms(e) >
           (uint64_t)e->config->server.stall_timeout_ms;
}

void seam_engine_where(const struct seam_engine *e, char *out, size_t n)
{
    enum seam_glm5_call call = SEAM_GLM5_IDLE;
    bool sampling = atomic_load_explicit(&e->sampling, memory_order_relaxed);
    struct seam_instance *i;
    uint32_t layer = 0;

    if (seam_engine_state(e) != SEAM_ENGINE_LOADING && e->rt && e->rt->net)
        call = seam_glm5_next_where(e->rt->net, &layer);
    if (!sampling && call == SEAM_GLM5_IDLE) {
        snprintf(out, n, "the scheduler");
        return;
    }
    i = seam_runtime_instance(e->rt, sampling ? SEAM_ROLE_BACKEND
                                              : seam_engine_role(call));
    if (sampling)
        snprintf(out, n, "plugin %s, sampling", i->host.name);
    else
        snprintf(out, n, "plugin %s, layer %u", i->host.name, layer);
    seam_instance_unref(i);
}

uint32_t seam_engine_active(const struct seam_engine *e)
{
    return atomic_load_explicit(&e->active, memory_order_relaxed);
}

struct seam_stats *seam_engine_stats(struct seam_engine *e)
{
    return &e->stats;
}

const struct seam_tokenizer *seam_engine_tokenizer(const struct seam_engine *e)
{
    return e->rt->model.tokenizer;
}

struct seam_instance *seam_engine_plugin(const struct seam_engine *e,
                                         enum seam_role role)
{
    return seam_runtime_instance(e->rt, role);
}

uint32_t seam_engine_max_context(const struct seam_engine *e)
{
    return e->rt->limits.max_context;
}

uint32_t seam_engine_max_queue(const struct seam_engine *e)
{
    return (uint32_t)e->config->engine.max_queue;
}

uint32_t seam_engine_vocab(const struct seam_engine *e)
{
    return seam_checkpoint_config(e->rt->model.checkpoint)->vocab;
}

const struct seam_vocab *seam_engine_vocabulary(const struct seam_engine *e)
{
    return e->vocabulary;
}

struct seam_compiled *seam_engine_compiled(const struct seam_engine *e)
{
    return e->compiled;
}

const int32_t *seam_engine_eos(const struct seam_engine *e, uint32_t *n)
{
    *n = e->n_eos;
    return e->eos;
}

void seam_engine_defaults(const struct seam_engine *e, float *temperature,
                          float *top_p)
{
    *temperature = e->temperature;
    *top_p = e->top_p;
}

/* ---- Ends of generations ------------------------------------------------- */

void seam_engine_set_state(struct seam_engine *e, enum seam_engine_state state)
{
    pthread_mutex_lock(&e->lock);
    atomic_store_explicit(&e->state, state, memory_order_release);
    pthread_cond_broadcast(&e->change);
    pthread_mutex_unlock(&e->lock);
}

static void engine_count_end(struct seam_engine *e, const struct seam_gen *g,
                             enum seam_gen_end end, uint64_t now)
{
    struct seam_stats *s = &e->stats;

    switch (end) {
    case SEAM_GEN_STOP:
        atomic_fetch_add(&s->ended_stop, 1);
        break;
    case SEAM_GEN_LENGTH:
        atomic_fetch_add(&s->ended_length, 1);
        break;
    case SEAM_GEN_ABORT:
        atomic_fetch_add(&s->ended_abort, 1);
        break;
    case SEAM_GEN_TIMEOUT:
        atomic_fetch_add(&s->ended_abort, 1);
        atomic_fetch_add(&s->timeouts, 1);
        break;
    default:
        atomic_fetch_add(&s->ended_error, 1);
        break;
    }
    if (end == SEAM_GEN_STOP || end == SEAM_GEN_LENGTH) {
        seam_engine_note_run(e, now - g->info.started_ns);
        seam_hist_observe(&s->e2e, (double)(now - g->info.submitted_ns) / 1e9);
        seam_hist_observe(&s->decode, (double)(now - g->info.first_ns) / 1e9);
        seam_hist_observe(&s->inference,
                          (double)(now - g->info.started_ns) / 1e9);
        if (g->info.n_generated > 1)
            seam_hist_observe(&s->per_token, (double)(now - g->info.first_ns) /
                                                 1e9 /
                                                 (g->info.n_generated - 1));
        seam_hist_observe(&s->gen_len, g->info.n_generated);
    }
}

/* The gen leaves the engine; the caller has taken it off its list. */
void seam_engine_end(struct seam_engine *e, struct seam_gen *g,
                     enum seam_gen_end end, const struct seam_error *err)
{
    uint64_t now = seam_now_ns();

    if (end == SEAM_GEN_ABORT || end == SEAM_GEN_TIMEOUT)
        seam_log(e->log, SEAM_LOG_INFO, "engine",
                 "request %s after %u prompt and %u generated tokens",
                 end == SEAM_GEN_ABORT ? "cancelled" : "past its deadline",
                 g->n_done < g->p.n_prompt ? g->n_done : g->p.n_prompt,
                 g->info.n_generated);
    if (e->timeline)
        seam_timeline_request(e->timeline, g->order, &g->info, end, now);
    engine_count_end(e, g, end, now);
    atomic_fetch_sub_explicit(&e->active, 1, memory_order_relaxed);
    seam_queue_leave(e, g);
    seam_gen_finish(g, end, err, now);
    seam_gen_unref(g);
}

void seam_engine_end_running(struct seam_engine *e, struct seam_gen *g,
                             enum seam_gen_end end,
                             const struct seam_error *err)
{
    uint32_t n_done = g->n_done;

    /* Also what was cancelled is kept: a retry goes on from there. */
    if (end != SEAM_GEN_ERROR)
        seam_engine_snapshot(e, g);
    seam_engine_evict(e, g);
    g->n_done = n_done; /* for the log: it does not come back */
    seam_engine_end(e, g, end, err);
}

/* ---- The thread ---------------------------------------------------------- */

static void engine_abort_all(struct seam_engine *e,
                             const struct seam_error *err)
{
    enum seam_gen_end end = err ? SEAM_GEN_ERROR : SEAM_GEN_ABORT;

    while (e->n_running)
        seam_engine_end_running(e, e->running[e->n_running - 1], end, err);
    for (;;) {
        struct seam_gen *g = NULL;

        pthread_mutex_lock(&e->lock);
        if (e->first)
            g = seam_queue_pop(e);
        pthread_mutex_unlock(&e->lock);
        if (!g)
            break;
        seam_engine_end(e, g, end, err);
    }
    atomic_store_explicit(&e->stats.running, 0, memory_order_relaxed);
}

/* Wait until there is something to do; false when it is to end. */
static bool engine_wait(struct seam_engine *e)
{
    bool go;

    pthread_mutex_lock(&e->lock);
    while (!e->stop && !e->n_running && !e->first &&
           !atomic_load_explicit(&e->swap_due, memory_order_relaxed))
        pthread_cond_wait(&e->change, &e->lock);
    go = !e->stop;
    pthread_mutex_unlock(&e->lock);
    return go;
}

static void *engine_main(void *arg)
{
    struct seam_engine *e = arg;
    struct seam_error err;
    int rc = seam_engine_load(e, &err);

    pthread_mutex_lock(&e->lock);
    if (rc)
        e->load_err = err;
    atomic_store_explicit(&e->state,
                          rc ? SEAM_ENGINE_FAILED : SEAM_ENGINE_READY,
                          memory_order_release);
    pthread_cond_broadcast(&e->change);
    pthread_mutex_unlock(&e->lock);
    while (!rc && engine_wait(e)) {
        if (atomic_load_explicit(&e->swap_due, memory_order_relaxed))
            seam_swapper_boundary(e);
        seam_engine_step(e);
        if (seam_engine_state(e) == SEAM_ENGINE_FAILED)
            rc = SEAM_EDEVICE;
    }
    seam_swapper_stop(e);
    pthread_mutex_lock(&e->lock);
    err = e->load_err;
    pthread_mutex_unlock(&e->lock);
    engine_abort_all(e, rc ? &err : NULL);
    if (!rc)
        seam_engine_set_state(e, SEAM_ENGINE_STOPPED);
    return NULL;
}

int seam_engine_start(struct seam_engine **out,
                      const struct seam_engine_opts *opts,
                      struct seam_error *err)
{
    struct seam_engine *e = calloc(1, sizeof *e);
    pthread_condattr_t attr;
    sigset_t all, was;
    int rc;

    if (!e)
        return seam_fail(err, SEAM_ENOMEM, "engine: out of memory");
    e->config = opts->config;
    e->log = opts->log;
    e->progress = opts->progress;
    e->progress_ctx = opts->progress_ctx;
    e->state = SEAM_ENGINE_LOADING;
    e->last = &e->first;
    seam_stats_init(&e->stats);
    pthread_mutex_init(&e->lock, NULL);
    pthread_mutex_init(&e->disk_lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&e->change, &attr);
    pthread_condattr_destroy(&attr);
    /* Signals are for the main thread alone, but not those that a fault raises
     * here: a lost shard must reach its handler. */
    sigfillset(&all);
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGFPE);
    sigdelset(&all, SIGILL);
    pthread_sigmask(SIG_SETMASK, &all, &was);
    rc = pthread_create(&e->thread, NULL, engine_main, e);
    pthread_sigmask(SIG_SETMASK, &was, NULL);
    if (rc) {
        pthread_cond_destroy(&e->change);
        pthread_mutex_destroy(&e->disk_lock);
        pthread_mutex_destroy(&e->lock);
        free(e);
        return seam_fail_errno(err, SEAM_ENOMEM, rc,
                               "engine: cannot start a "
                               "thread");
    }
    pthread_setname_np(e->thread, "seam/engine");
    *out = e;
    return 0;
}

enum seam_engine_state seam_engine_wait_loaded(struct seam_engine *e,
                                               int64_t timeout_ms,
                                               struct seam_error *err)
{
    uint64_t until = seam_now_ns() + (uint64_t)timeout_ms * 1000000u;
    struct timespec at = { .tv_sec = (time_t)(until / 1000000000u),
                           .tv_nsec = (long)(until % 1000000000u) };
    enum seam_engine_state state;
    int rc = 0;

    pthread_mutex_lock(&e->lock);
    while (seam_engine_state(e) == SEAM_ENGINE_LOADING && !rc)
        rc = timeout_ms < 0 ? pthread_cond_wait(&e->change, &e->lock)
                            : pthread_cond_timedwait(&e->change, &e->lock, &at);
    state = seam_engine_state(e);
    if (state == SEAM_ENGINE_FAILED && err)
        *err = e->load_err;
    pthread_mutex_unlock(&e->lock);
    return state;
}

void seam_engine_drain(struct seam_engine *e)
{
    bool ready;

    pthread_mutex_lock(&e->lock);
    ready = seam_engine_state(e) == SEAM_ENGINE_READY;
    if (ready)
        atomic_store_explicit(&e->state, SEAM_ENGINE_DRAINING,
                              memory_order_release);
    pthread_cond_broadcast(&e->change);
    pthread_mutex_unlock(&e->lock);
    if (ready)
        seam_swapper_stop(e);
}

void seam_engine_stop(struct seam_engine *e)
{
    pthread_mutex_lock(&e->lock);
    e->stop = true;
    pthread_cond_broadcast(&e->change);
    pthread_mutex_unlock(&e->lock);
    pthread_join(e->thread, NULL);
    seam_swapper_join(e);
}

void seam_engine_free(struct seam_engine *e)
{
    if (!e)
        return;
    seam_timeline_close(e->timeline);
    seam_queue_free(e);
    seam_prefix_free(e->prefix);
    seam_compiled_free(e->compiled);
    seam_disk_close(e->disk);
    seam_vocab_free(e->vocabulary);
    seam_swapper_free(e);
    seam_runtime_close(e->rt);
    free(e->running);
    free(e->free_page);
    free(e->free_row);
    free(e->page_refs);
    free(e->seq);
    free(e->seq_gen);
    free(e->logit_row);
    free(e->row_gen);
    free(e->row_at);
    free(e->sample);
    free(e->sampled);
    free(e->scratch);
    pthread_cond_destroy(&e->change);
    pthread_mutex_destroy(&e->disk_lock);
    pthread_mutex_destroy(&e->lock);
    free(e);
}
