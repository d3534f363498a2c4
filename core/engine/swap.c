#include "core/engine/swap.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/engine/impl.h"
#include "core/engine/probe.h"

/* How long the engine's thread computes for a trial between two steps; at least
 * one layer. */
#define TRIAL_NS 200000u

/* How long after its time a swap may still say what it hangs in. */
#define GRACE_NS 500000000u

/* What the engine's thread is asked for between two steps. */
enum swap_ask { ASK_OLD = 1, ASK_TAKE_OVER = 2 };
enum swap_turn { TURN_NONE = 0, TURN_ASKED = 1, TURN_TAKEN = 2, TURN_DONE = 3 };

/* One plugin on its way in. */
struct swap_part {
    struct seam_instance *fresh, *old;
    struct runtime_grant grant, old_grant;
    struct seam_probe *probe;
    bool granted, keeps; /* keeps: the caches of the old one are its own */
};

struct seam_swap {
    struct seam_engine *engine;
    struct seam_swap_opts o;
    uint64_t asked_ns, until_ns;
    uint32_t refs; /* this and the next five: under instances.lock */
    bool over, given_up;
    const char *stage; /* for whoever waits: what is being done, of whom */
    enum seam_role stage_role;
    uint64_t stage_ns; /* since when; 0: it waits for the steps, not a plugin */
    int rc;
    struct seam_error err;
    struct seam_swap_report report;

    /* The swapper's own, and the engine's while it has the turn. */
    struct swap_part part[SEAM_N_ROLES];
    struct seam_memory_plan plan;
    void *ws;
    uint64_t ws_bytes;
    struct seam_memory_source ws_source;
    enum swap_ask ask;
    struct seam_error turn_err;
    int turn_rc;
    struct seam_disk *disk; /* the old ones' tier, to be closed */
};

struct seam_swapper {
    pthread_t thread;
    bool started;

    /* Under instances.lock. */
    bool stop;
    struct seam_swap *job;
    enum swap_turn turn;

    uint32_t most_pages;
    _Atomic uint64_t done[SEAM_N_ROLES];
};

static struct seam_instances *home(const struct seam_engine *e)
{
    return &e->rt->instances;
}

static bool is_block(int role)
{
    return role >= FIRST_BLOCK && role <= LAST_BLOCK;
}

/* ---- The engine's part --------------------------------------------------- */

static bool swap_relays(const struct seam_swap *s)
{
    for (int r = FIRST_BLOCK; r <= LAST_BLOCK; r++)
        if (s->part[r].fresh && !s->part[r].keeps)
            return true;
    return false;
}

/* Make what the old plugins keep of the running sequences plain bytes.  One
 * that cannot be written down is computed again. */
static int swap_commit(struct seam_engine *e, struct seam_error *err)
{
    int rc = 0;

    for (uint32_t i = e->n_running; i-- && !rc;) {
        struct seam_gen *g = e->running[i];

        if (!g->n_accept)
            continue;
        rc = seam_runtime_commit(e->rt, g->row, g->n_accept, err);
        g->n_accept = 0;
        if (rc)
            seam_engine_preempt(e, g);
    }
    return rc;
}

/* Nobody holds a page or a row any more: the pages are counted anew. */
static void swap_pages(struct seam_engine *e, uint32_t n_pages)
{
    e->rt->n_pages = n_pages;
    e->n_free_pages = 0;
    while (e->n_free_pages < n_pages) {
        e->free_page[e->n_free_pages] =
            (int32_t)(n_pages - 1 - e->n_free_pages);
        e->n_free_pages++;
    }
    atomic_store_explicit(&e->stats.pages_total, n_pages, memory_order_relaxed);
}

/* Exchange the pointers.  False when the running ones have to end first. */
static bool swap_take_over(struct seam_engine *e, struct seam_swap *s)
{
    struct seam_runtime *rt = e->rt;
    uint64_t start = seam_now_ns();
    bool relays = swap_relays(s);

    if (relays && s->o.on_layout_change == SEAM_SWAP_DRAIN && e->n_running)
        return false;
    s->turn_rc = 0;
    if (relays) {
        s->report.n_replayed = e->n_running;
        while (e->n_running)
            seam_engine_preempt(e, e->running[e->n_running - 1]);
        while (e->prefix && seam_prefix_evict(e->prefix))
            ;
        swap_pages(e, s->plan.n_pages);
        rt->page_bytes = s->plan.page_bytes;
        rt->row_bytes = s->plan.row_bytes;
    } else if (s->part[SEAM_ROLE_LINEAR].fresh ||
               s->part[SEAM_ROLE_SPARSE].fresh ||
               s->part[SEAM_ROLE_MOE].fresh) {
        s->turn_rc = swap_commit(e, &s->turn_err);
    }
    if (s->turn_rc)
        return true;
    for (int r = 0; r < SEAM_N_ROLES; r++) {
        struct swap_part *p = &s->part[r];

        if (!p->fresh)
            continue;
        p->old = seam_runtime_exchange(rt, p->fresh, &p->grant, &p->old_grant);
        p->fresh = NULL;
        if (is_block(r) && !s->disk)
            s->disk = seam_engine_detach_disk(e);
    }
    /* The larger scratch stays; the other one is freed by the swapper. */
    if (s->ws_bytes > rt->memory->ws_bytes) {
        void *old = rt->memory->ws;
        struct seam_memory_source source = rt->memory->ws_source;

        rt->memory->ws = s->ws;
        rt->memory->ws_bytes = s->ws_bytes;
        rt->memory->ws_source = s->ws_source;
        if (rt->guards)
            seam_guards_accept(rt->guards, rt->memory->ws, &source);
        s->ws = old;
        s->ws_source = source;
    }
    s->report.pause_ns = seam_now_ns() - start;
    return true;
}

/* One that computes for the trial; true when there is more to do. */
static bool swap_old(struct seam_swap *s)
{
    for (int r = 0; r < SEAM_N_ROLES; r++)
        if (s->part[r].probe && seam_probe_old(s->part[r].probe, TRIAL_NS))
            return true;
    return false;
}

void seam_swapper_boundary(struct seam_engine *e)
{
    struct seam_swapper *w = e->swapper;
    struct seam_swap *s;
    bool more;

    pthread_mutex_lock(&home(e)->lock);
    s = w->turn == TURN_ASKED ? w->job : NULL;
    if (s)
        w->turn = TURN_TAKEN;
    pthread_mutex_unlock(&home(e)->lock);
    if (!s)
        return;
    more = s->ask == ASK_OLD ? swap_old(s) : !swap_take_over(e, s);
    pthread_mutex_lock(&home(e)->lock);
    w->turn = more ? TURN_ASKED : TURN_DONE;
    if (!more)
        atomic_store_explicit(&e->swap_due, false, memory_order_relaxed);
    pthread_cond_broadcast(&home(e)->news);
    pthread_mutex_unlock(&home(e)->lock);
}

/* ---- The swapper's part -------------------------------------------------- */

static int swap_fail(struct seam_swap *s, enum seam_swap_why why, int rc)
{
    s->report.why = why;
    return rc;
}

static struct timespec swap_time(uint64_t ns)
{
    return (struct timespec){ .tv_sec = (time_t)(ns / 1000000000u),
                              .tv_nsec = (long)(ns % 1000000000u) };
}

/* Whether it makes sense to go on, and what with. */
static int swap_stage(struct seam_swap *s, const char *stage,
                      enum seam_role role)
{
    struct seam_engine *e = s->engine;
    bool stop, late;

    pthread_mutex_lock(&home(e)->lock);
    s->stage = stage;
    s->stage_role = role;
    s->stage_ns = seam_now_ns();
    stop = e->swapper->stop;
    late = s->given_up || seam_now_ns() >= s->until_ns;
    pthread_mutex_unlock(&home(e)->lock);
    if (stop)
        return swap_fail(
            s, SEAM_SWAP_NOT_NOW,
            seam_fail(&s->err, SEAM_ESTATE, "the server is leaving"));
    if (late)
        return swap_fail(s, SEAM_SWAP_LATE,
                         seam_fail(&s->err, SEAM_ESTATE,
                                   "timeout_ms = %lld is over before %s",
                                   (long long)s->o.timeout_ms, stage));
    return 0;
}

/* Have the engine do something between two steps, and wait for it. */
static int swap_turn(struct seam_swap *s, enum swap_ask ask, const char *stage)
{
    struct seam_engine *e = s->engine;
    struct seam_swapper *w = e->swapper;
    struct timespec until = swap_time(s->until_ns);
    enum swap_turn turn;
    bool stop = false;
    int late = 0;

    s->ask = ask;
    pthread_mutex_lock(&home(e)->lock);
    s->stage = stage;
    s->stage_ns = 0;
    w->turn = TURN_ASKED;
    pthread_mutex_unlock(&home(e)->lock);
    pthread_mutex_lock(&e->lock);
    atomic_store_explicit(&e->swap_due, true, memory_order_relaxed);
    pthread_cond_broadcast(&e->change);
    pthread_mutex_unlock(&e->lock);

    pthread_mutex_lock(&home(e)->lock);
    while (w->turn != TURN_DONE) {
        stop = w->stop || s->given_up;
        if (w->turn == TURN_ASKED && (stop || late))
            break;
        /* What the engine has begun it also ends. */
        if (w->turn == TURN_TAKEN)
            pthread_cond_wait(&home(e)->news, &home(e)->lock);
        else
            late = pthread_cond_timedwait(&home(e)->news, &home(e)->lock,
                                          &until) == ETIMEDOUT;
    }
    turn = w->turn;
    w->turn = TURN_NONE;
    s->stage_ns = seam_now_ns();
    atomic_store_explicit(&e->swap_due, false, memory_order_relaxed);
    pthread_mutex_unlock(&home(e)->lock);
    if (turn == TURN_DONE)
        return 0;
    if (stop)
        return swap_fail(
            s, SEAM_SWAP_NOT_NOW,
            seam_fail(&s->err, SEAM_ESTATE, "the server is leaving"));
    return swap_fail(s, SEAM_SWAP_LATE,
                     seam_fail(&s->err, SEAM_ESTATE,
                               "%s did not come about within timeout_ms = %lld",
                               stage, (long long)s->o.timeout_ms));
}

/* L1 to L9, in a loader of its own: a running plugin's name is taken, and what
 * is left of the file goes with the instance. */
static int swap_load(struct seam_swap *s, int role)
{
    struct seam_engine *e = s->engine;
    struct seam_runtime *rt = e->rt;
    const struct seam_config *c = e->config;
    const char *name = s->o.source->config.plugin[role].name;
    struct seam_loader_opts lo = {
        .plugin_dir = c->plugin_dir,
        .plugin_paths = (const char *const *)c->plugin_paths.v,
        .n_plugin_paths = c->plugin_paths.n,
        .log = e->log,
    };
    struct seam_instance_opts io = {
        .home = home(e),
        .config = &s->o.source->config,
        .source = s->o.source,
        .own = true,
        .log = e->log,
        .pool = rt->pool,
    };
    int rc = swap_stage(s, "loading", (enum seam_role)role);

    if (rc)
        return rc;
    for (int r = 0; r < SEAM_N_ROLES; r++) {
        const char *other = s->o.role[r] ? s->o.source->config.plugin[r].name
                                         : rt->inst[r]->host.name;

        if (r != role && !strcmp(other, name))
            return swap_fail(s, SEAM_SWAP_INVALID,
                             seam_fail(&s->err, SEAM_EINVAL,
                                       "plugins.%s: %s fills the role of %s",
                                       seam_role_name[role], name,
                                       seam_role_name[r]));
    }
    rc = seam_loader_new(&io.loader, &lo, &s->err);
    if (!rc)
        rc = seam_instance_load(&s->part[role].fresh, &io, (enum seam_role)role,
                                &s->err);
    if (!rc)
        rc = swap_stage(s, "create", (enum seam_role)role);
    else
        swap_fail(s, SEAM_SWAP_REFUSED, rc);
    if (rc)
        return rc;
    rc = seam_runtime_create(rt, s->part[role].fresh, &s->err);
    return rc ? swap_fail(s,
                          rc == SEAM_ENOMEM ? SEAM_SWAP_NO_MEMORY
                                            : SEAM_SWAP_REFUSED,
                          rc)
              : 0;
}

/* Whether b may go on with the planes and states of a. */
static bool swap_same_layout(const struct seam_needs *a,
                             const struct seam_needs *b)
{
    bool none =
        !a->n_planes && !b->n_planes && !a->state_bytes && !b->state_bytes;

    if (none)
        return true;
    if (!a->layout_id || a->layout_id != b->layout_id ||
        a->n_planes != b->n_planes || a->n_layers != b->n_layers ||
        a->state_bytes != b->state_bytes || a->state_copies != b->state_copies)
        return false;
    for (uint32_t i = 0; i < a->n_planes; i++)
        if (a->plane[i].bytes_per_token != b->plane[i].bytes_per_token)
            return false;
    return true;
}

/* An instance of the backend for this thread: calls of the other one must not
 * overlap with the steps. */
static int swap_source(struct seam_swap *s)
{
    struct seam_engine *e = s->engine;
    struct seam_runtime *rt = e->rt;
    struct seam_memory_source *to = &rt->second;
    struct seam_instance *i = rt->inst[SEAM_ROLE_BACKEND];
    struct seam_create c = {
        .size = sizeof c,
        .limits = &rt->limits,
        .device = &rt->device,
        .cfg = i->cfg,
        .model = &rt->model,
    };
    void *self = NULL;
    int rc;

    if (to->self)
        return 0;
    rc = i->plugin->plugin.create(&c, &self, &s->err);
    if (rc)
        return seam_fail_at(&s->err, "a second backend");
    rc = rt->backend->stream_new(self, &to->stream, &s->err);
    if (rc) {
        i->plugin->plugin.destroy(self);
        return seam_fail_at(&s->err, "a second backend");
    }
    to->self = self;
    to->table = rt->backend;
    to->guards = rt->guards;
    to->trial = true;
    return 0;
}

/* What the caches will be, and whether that is possible. */
static int swap_plan(struct seam_swap *s)
{
    struct seam_runtime *rt = s->engine->rt;
    const struct seam_instance *inst[SEAM_N_ROLES];
    uint32_t most = s->engine->swapper->most_pages, now = rt->n_pages;
    bool relays = false;
    int rc;

    for (int r = 0; r < SEAM_N_ROLES; r++) {
        struct swap_part *p = &s->part[r];

        inst[r] = p->fresh ? p->fresh : rt->inst[r];
        if (!is_block(r))
            continue;
        p->keeps =
            p->fresh && swap_same_layout(&rt->inst[r]->needs, &p->fresh->needs);
        relays |= p->fresh && !p->keeps;
        if ((!p->fresh || p->keeps) &&
            rt->memory->block[r].grant.n_pages - 1 < most)
            most = rt->memory->block[r].grant.n_pages - 1;
    }
    rc = seam_memory_plan(s->engine->config, &rt->limits, inst, most, &s->plan,
                          &s->err);
    if (rc || !relays)
        return rc;
    if (s->plan.n_pages < now && s->plan.n_pages < s->plan.max_pages)
        return seam_fail(
            &s->err, SEAM_ENOMEM,
            "engine.cache_bytes is %lld: %u pages of %llu bytes "
            "fit with the new layout; the longest sequence needs "
            "%u",
            (long long)s->engine->config->engine.cache_bytes, s->plan.n_pages,
            (unsigned long long)s->plan.page_bytes, s->plan.max_pages);
    return 0;
}

static int swap_grant(struct seam_swap *s, int role)
{
    struct seam_runtime *rt = s->engine->rt;
    struct swap_part *p = &s->part[role];
    const struct seam_memory_source *source = &s->engine->rt->second;
    int rc = swap_stage(s, "attach", (enum seam_role)role);

    if (rc)
        return rc;
    p->granted = true;
    rc = seam_memory_grant(source, &s->plan, &p->fresh->needs,
                           p->keeps ? &rt->memory->block[role] : NULL,
                           &p->grant, &s->err);
    if (rc)
        return swap_fail(s, SEAM_SWAP_NO_MEMORY, rc);
    rc = seam_instance_attach(p->fresh, &p->grant.grant, &s->err);
    if (rc)
        return swap_fail(s, SEAM_SWAP_REFUSED, rc);
    if (p->fresh->n_layers)
        rc =
            seam_probe_new(&p->probe, rt, source, p->fresh, &p->grant, &s->err);
    return rc ? swap_fail(s, SEAM_SWAP_NO_MEMORY, rc) : 0;
}

/* Memory, attach and trial of the blocks. */
static int swap_blocks(struct seam_swap *s)
{
    struct seam_runtime *rt = s->engine->rt;
    uint64_t ws = rt->needs[SEAM_ROLE_BACKEND].ws_bytes;
    int rc = swap_source(s);

    if (!rc)
        rc = swap_plan(s);
    if (rc)
        return swap_fail(
            s, rc == SEAM_ENOMEM ? SEAM_SWAP_NO_MEMORY : SEAM_SWAP_REFUSED, rc);
    for (int r = FIRST_BLOCK; r <= LAST_BLOCK && !rc; r++) {
        if (!s->part[r].fresh)
            continue;
        rc = swap_grant(s, r);
        if (s->part[r].fresh->needs.ws_bytes > ws)
            ws = s->part[r].fresh->needs.ws_bytes;
    }
    if (rc)
        return rc;
    s->ws_bytes = ws;
    s->ws_source = rt->second;
    rc = seam_memory_alloc(&rt->second, SEAM_MEM_DEVICE, ws, &s->ws, &s->err);
    if (rc)
        return swap_fail(s, SEAM_SWAP_NO_MEMORY, rc);
    rc = swap_turn(s, ASK_OLD, "the end of a step");
    for (int r = FIRST_BLOCK; r <= LAST_BLOCK && !rc; r++) {
        struct swap_part *p = &s->part[r];

        if (!p->probe)
            continue;
        rc = swap_stage(s, "trial", (enum seam_role)r);
        if (rc)
            return rc;
        rc =
            seam_probe_new_one(p->probe, s->ws, s->ws_bytes, p->keeps, &s->err);
        swap_fail(s, rc ? SEAM_SWAP_REFUSED : SEAM_SWAP_DONE, 0);
    }
    return rc;
}

static int swap_prepare(struct seam_swap *s)
{
    bool blocks = false;
    int rc = 0;

    if (s->o.role[SEAM_ROLE_BACKEND])
        return swap_fail(s, SEAM_SWAP_INVALID,
                         seam_fail(&s->err, SEAM_ENOTSUP,
                                   "plugins.backend: all memory is the "
                                   "backend's, so it is not replaced while "
                                   "the server runs; restart it"));
    for (int r = 0; r < SEAM_N_ROLES && !rc; r++) {
        if (!s->o.role[r])
            continue;
        rc = swap_load(s, r);
        blocks |= is_block(r);
    }
    if (rc)
        return rc;
    if (s->part[SEAM_ROLE_PARSER].fresh) {
        rc = swap_stage(s, "trial", SEAM_ROLE_PARSER);
        if (rc)
            return rc;
        rc = seam_probe_parser(s->part[SEAM_ROLE_PARSER].fresh,
                               s->engine->rt->model.tokenizer, &s->err);
        if (rc)
            return swap_fail(s, SEAM_SWAP_REFUSED, rc);
    }
    return blocks ? swap_blocks(s) : 0;
}

/* quiesce, destroy, and what it was granted; then nobody's but those who still
 * read with it. */
static void swap_end_old(struct seam_swap *s, struct swap_part *p)
{
    struct seam_instance *i = p->old;
    uint64_t start = seam_now_ns();

    if (is_block((int)i->role)) {
        seam_instance_end(i);
        if (seam_now_ns() - start > 5000000000u)
            seam_log(s->engine->log, SEAM_LOG_WARN, i->host.name,
                     "took %.1f s to quiesce and be destroyed; at most 5 s are "
                     "expected",
                     (double)(seam_now_ns() - start) / 1e9);
        seam_memory_ungrant(&p->old_grant, !p->keeps);
    }
    seam_instance_unref(i);
    p->old = NULL;
}

static void swap_clean(struct seam_swap *s)
{
    struct seam_runtime *rt = s->engine->rt;

    for (int r = 0; r < SEAM_N_ROLES; r++) {
        struct swap_part *p = &s->part[r];

        seam_probe_free(p->probe);
        p->probe = NULL;
        if (p->old)
            swap_end_old(s, p);
        if (!p->fresh)
            continue;
        seam_instance_end(p->fresh);
        if (p->granted)
            seam_memory_ungrant(&p->grant, !p->keeps);
        seam_instance_free(p->fresh);
        p->fresh = NULL;
    }
    seam_memory_free(&s->ws_source, SEAM_MEM_DEVICE, s->ws);
    s->ws = NULL;
    seam_instances_reap(&rt->instances);
}

static void swap_tell(struct seam_swap *s)
{
    struct seam_engine *e = s->engine;

    for (int r = 0; r < SEAM_N_ROLES; r++) {
        const struct seam_plugin_entry_config *p =
            &s->o.source->config.plugin[r];

        if (!s->o.role[r])
            continue;
        if (s->rc) {
            atomic_fetch_add_explicit(&e->stats.swaps_refused[r], 1,
                                      memory_order_relaxed);
            seam_log(e->log, SEAM_LOG_WARN, "engine",
                     "plugins.%s stays as it is, no swap to %s: %s",
                     seam_role_name[r], p->name, s->err.text);
            continue;
        }
        atomic_fetch_add_explicit(&e->stats.swaps_ok[r], 1,
                                  memory_order_relaxed);
        atomic_fetch_add_explicit(&e->swapper->done[r], 1,
                                  memory_order_relaxed);
        seam_log(e->log, SEAM_LOG_INFO, "engine",
                 "plugins.%s is now %s (%s): %llu us between two steps, %u "
                 "sequences replayed",
                 seam_role_name[r], p->name, s->o.source->origin,
                 (unsigned long long)(s->report.pause_ns / 1000),
                 s->report.n_replayed);
    }
}

static void swap_run(struct seam_swap *s)
{
    struct seam_engine *e = s->engine;
    int rc = swap_prepare(s);

    if (!rc)
        rc = swap_stage(s, "taking over", SEAM_ROLE_BACKEND);
    s->report.layout_changed = !rc && swap_relays(s);
    s->report.prepare_ns = seam_now_ns() - s->asked_ns;
    if (!rc) {
        bool drain = s->report.layout_changed &&
                     s->o.on_layout_change == SEAM_SWAP_DRAIN;

        atomic_store_explicit(&e->hold, drain, memory_order_relaxed);
        rc = swap_turn(s, ASK_TAKE_OVER,
                       drain ? "the end of all running requests"
                             : "the end of a step");
        atomic_store_explicit(&e->hold, false, memory_order_relaxed);
        if (drain) {
            pthread_mutex_lock(&e->lock);
            pthread_cond_broadcast(&e->change);
            pthread_mutex_unlock(&e->lock);
        }
    }
    if (!rc && s->turn_rc) {
        s->err = s->turn_err;
        rc = swap_fail(s, SEAM_SWAP_REFUSED, s->turn_rc);
    }
    s->rc = rc;
    if (!rc)
        s->report.why = SEAM_SWAP_DONE;
    swap_tell(s);
    if (s->disk)
        seam_engine_renew_disk(e, s->disk);
    swap_clean(s);
}

/* ---- The thread ---------------------------------------------------------- */

/* Under the lock; it may be gone afterwards. */
static bool swap_drop(struct seam_swap *s)
{
    return --s->refs == 0;
}

static void swap_release(struct seam_swap *s)
{
    seam_source_unref(home(s->engine), s->o.source);
    free(s);
}

static void swapper_loop(void *arg)
{
    struct seam_engine *e = arg;
    struct seam_swapper *w = e->swapper;
    struct seam_instances *h = home(e);

    pthread_mutex_lock(&h->lock);
    for (;;) {
        struct seam_swap *s = w->job;
        bool last;

        if (!s && !h->retired && w->stop)
            break;
        if (!s && !h->retired) {
            pthread_cond_wait(&h->news, &h->lock);
            continue;
        }
        pthread_mutex_unlock(&h->lock);
        if (s)
            swap_run(s);
        else
            seam_instances_reap(h);
        pthread_mutex_lock(&h->lock);
        if (!s)
            continue;
        w->job = NULL;
        s->over = true;
        last = swap_drop(s);
        pthread_cond_broadcast(&h->news);
        if (last) {
            pthread_mutex_unlock(&h->lock);
            swap_release(s);
            pthread_mutex_lock(&h->lock);
        }
    }
    pthread_mutex_unlock(&h->lock);
}

/* On this thread the plugins' parallel loops run alone: the workers are for the
 * steps. */
static void *swapper_main(void *arg)
{
    struct seam_engine *e = arg;

    seam_pool_alone(e->rt->pool, swapper_loop, e);
    return NULL;
}

int seam_swapper_open(struct seam_engine *e, struct seam_error *err)
{
    struct seam_swapper *w = calloc(1, sizeof *w);
    int rc;

    if (!w)
        return seam_fail(err, SEAM_ENOMEM, "engine: out of memory");
    w->most_pages = e->rt->n_pages;
    e->swapper = w;
    rc = pthread_create(&w->thread, NULL, swapper_main, e);
    if (rc)
        return seam_fail_errno(err, SEAM_ENOMEM, rc,
                               "engine: cannot start a thread");
    pthread_setname_np(w->thread, "seam/swap");
    w->started = true;
    return 0;
}

void seam_swapper_stop(struct seam_engine *e)
{
    if (!e->swapper)
        return;
    pthread_mutex_lock(&home(e)->lock);
    e->swapper->stop = true;
    pthread_cond_broadcast(&home(e)->news);
    pthread_mutex_unlock(&home(e)->lock);
}

void seam_swapper_join(struct seam_engine *e)
{
    if (!e->swapper || !e->swapper->started)
        return;
    seam_swapper_stop(e);
    pthread_join(e->swapper->thread, NULL);
    e->swapper->started = false;
}

void seam_swapper_free(struct seam_engine *e)
{
    struct seam_swapper *w = e->swapper;

    if (!w)
        return;
    free(w);
    e->swapper = NULL;
}

/* ---- Asking -------------------------------------------------------------- */

int seam_swap_start(struct seam_engine *e, const struct seam_swap_opts *o,
                    struct seam_swap **out, struct seam_swap_report *report,
                    struct seam_error *err)
{
    struct seam_swap *s = calloc(1, sizeof *s);
    bool ready = seam_engine_state(e) == SEAM_ENGINE_READY;
    int rc = 0;

    *report = (struct seam_swap_report){ 0 };
    if (!s || !ready) {
        report->why = s ? SEAM_SWAP_NOT_NOW : SEAM_SWAP_NO_MEMORY;
        rc = s ? seam_fail(err, SEAM_ESTATE, "the engine is not ready")
               : seam_fail(err, SEAM_ENOMEM, "out of memory");
        free(s);
        seam_config_release(&o->source->config);
        free(o->source);
        return rc;
    }
    s->engine = e;
    s->o = *o;
    s->o.source->refs = 1;
    s->asked_ns = seam_now_ns();
    s->until_ns = s->asked_ns + (uint64_t)o->timeout_ms * 1000000u;
    s->refs = 2;
    s->stage = "beginning";
    pthread_mutex_lock(&home(e)->lock);
    if (e->swapper->stop) {
        report->why = SEAM_SWAP_NOT_NOW;
        rc = seam_fail(err, SEAM_ESTATE, "the server is leaving");
    } else if (e->swapper->job) {
        report->why = SEAM_SWAP_BUSY;
        rc = seam_fail(err, SEAM_ESTATE, "another swap is under way");
    } else {
        e->swapper->job = s;
        pthread_cond_broadcast(&home(e)->news);
    }
    pthread_mutex_unlock(&home(e)->lock);
    if (rc)
        swap_release(s);
    else
        *out = s;
    return rc;
}

int seam_swap_wait(struct seam_swap *s, int64_t timeout_ms,
                   struct seam_swap_report *report, struct seam_error *err)
{
    struct seam_instances *h = home(s->engine);
    uint64_t last = s->until_ns + GRACE_NS;
    uint64_t until =
        timeout_ms < 0 ? last : seam_now_ns() + (uint64_t)timeout_ms * 1000000u;
    struct timespec at = swap_time(until < last ? until : last);
    int rc = 0;

    pthread_mutex_lock(&h->lock);
    while (!s->over && !rc)
        rc = pthread_cond_timedwait(&h->news, &h->lock, &at);
    if (s->over) {
        rc = s->rc;
        *report = s->report;
        if (rc)
            *err = s->err;
    } else if (seam_now_ns() >= last) {
        report->why = SEAM_SWAP_LATE;
        rc = seam_fail(err, SEAM_ESTATE,
                       "timeout_ms = %lld is over in %s of %s; no other swap "
                       "can begin until that returns",
                       (long long)s->o.timeout_ms, s->stage,
                       s->o.source->config.plugin[s->stage_role].name);
    } else {
        rc = 1;
    }
    pthread_mutex_unlock(&h->lock);
    return rc;
}

void seam_swap_free(struct seam_swap *s)
{
    struct seam_instances *h;
    bool last;

    if (!s)
        return;
    h = home(s->engine);
    pthread_mutex_lock(&h->lock);
    s->given_up = !s->over;
    last = swap_drop(s);
    pthread_cond_broadcast(&h->news);
    pthread_mutex_unlock(&h->lock);
    if (last)
        swap_release(s);
}

int seam_engine_swap(struct seam_engine *e, const struct seam_swap_opts *o,
                     struct seam_swap_report *report, struct seam_error *err)
{
    struct seam_swap *s = NULL;
    int rc = seam_swap_start(e, o, &s, report, err);

    if (!rc)
        rc = seam_swap_wait(s, -1, report, err);
    seam_swap_free(s);
    return rc;
}

uint64_t seam_engine_swap_still_ms(struct seam_engine *e, char *where, size_t n)
{
    const struct seam_swap *s;
    uint64_t ms = 0;

    if (!e->swapper || !e->rt)
        return 0;
    pthread_mutex_lock(&home(e)->lock);
    s = e->swapper->job;
    if (s && s->stage_ns) {
        ms = (seam_now_ns() - s->stage_ns) / 1000000u;
        snprintf(where, n, "%s of plugin %s", s->stage,
                 s->o.source->config.plugin[s->stage_role].name);
    }
    pthread_mutex_unlock(&home(e)->lock);
    return ms;
}

uint64_t seam_engine_swaps(const struct seam_engine *e, enum seam_role role)
{
    return e->swapper ? atomic_load_explicit(&e->swapper->done[role],
                                             memory_order_relaxed)
                      : 0;
}
