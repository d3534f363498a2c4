/* The memory of sequences: pages and rows, and the snapshots of both that later
 * prompts go on from, in memory and on disk. */
#include <stdlib.h>
#include <string.h>

#include "core/engine/disk_key.h"
#include "core/engine/impl.h"

/* A shorter beginning is recomputed sooner than its state is copied. */
#define PREFIX_LEAST 16
/* Tokens between two turns before which snapshots are kept. */
#define CUT_LEAST 64

static void page_count(struct seam_engine *e)
{
    atomic_store_explicit(&e->stats.pages_used,
                          e->rt->n_pages - e->n_free_pages,
                          memory_order_relaxed);
}

void seam_page_unref(void *ctx, int32_t page)
{
    struct seam_engine *e = ctx;

    if (--e->page_refs[page] == 0)
        e->free_page[e->n_free_pages++] = page;
    page_count(e);
}

int32_t seam_page_take(struct seam_engine *e)
{
    int32_t page = e->free_page[--e->n_free_pages];

    e->page_refs[page] = 1;
    page_count(e);
    return page;
}

static void snapshot_count(struct seam_engine *e)
{
    struct seam_prefix_stats s;

    seam_prefix_stats(e->prefix, &s);
    atomic_store_explicit(&e->stats.snapshot_bytes, s.bytes,
                          memory_order_relaxed);
    atomic_store_explicit(&e->stats.snapshots, s.n_snapshots,
                          memory_order_relaxed);
    atomic_store_explicit(&e->stats.snapshots_evicted, s.n_evicted,
                          memory_order_relaxed);
}

/* Have n pages free, by dropping snapshots if need be. */
bool seam_page_make_room(struct seam_engine *e, uint32_t n)
{
    while (e->n_free_pages < n) {
        if (!e->prefix || !seam_prefix_evict(e->prefix))
            return false;
        snapshot_count(e);
    }
    return true;
}

/* Give pages and row back. */
void seam_engine_evict(struct seam_engine *e, struct seam_gen *g)
{
    seam_disk_load_free(g->load);
    g->load = NULL;
    while (g->n_pages)
        seam_page_unref(e, g->page[--g->n_pages]);
    e->free_row[e->n_free_rows++] = g->row;
    g->row = -1;
    g->n_done = 0;
    g->n_resumed = 0;
    g->n_accept = 0;
    for (uint32_t i = 0; i < e->n_running; i++)
        if (e->running[i] == g) {
            e->n_running--;
            memmove(&e->running[i], &e->running[i + 1],
                    (e->n_running - i) * sizeof *e->running);
            break;
        }
}

/* ---- The second tier ----------------------------------------------------- */

/* After so long a prompt is computed instead. */
#define LOAD_LIMIT_NS UINT64_C(5000000000)
/* A cancelled one is seen after so long, when nobody computes. */
#define LOAD_LOOK_NS UINT64_C(20000000)
/* What is computed sooner than it is read. */
#define LOAD_LEAST 64

static void cache_loaded(void *ctx)
{
    struct seam_engine *e = ctx;

    pthread_mutex_lock(&e->lock);
    pthread_cond_broadcast(&e->change);
    pthread_mutex_unlock(&e->lock);
}

int seam_engine_open_disk(struct seam_engine *e, struct seam_error *err)
{
    struct seam_disk_opts o = {
        .dir = e->config->engine.prefix_dir,
        .budget = (uint64_t)e->config->engine.prefix_disk_bytes,
        .log = e->log,
        .page_tokens = e->rt->page_tokens,
        .page_bytes = seam_runtime_page_bytes(e->rt),
        .state_bytes = seam_runtime_row_bytes(e->rt),
        .loaded = cache_loaded,
        .ctx = e,
    };
    struct seam_disk *d = NULL;
    int rc;

    if (!o.dir)
        return 0;
    rc = seam_disk_identity(e->rt, o.identity, err);
    if (!rc)
        rc = seam_disk_open(&d, &o, err);
    if (rc == SEAM_ESTATE) {
        seam_log(e->log, SEAM_LOG_WARN, "prefix",
                 "%s; nothing is kept on disk by this one", err->text);
        rc = 0;
    }
    atomic_store_explicit(&e->disk, d, memory_order_release);
    return rc;
}

static struct seam_disk *cache_disk(struct seam_engine *e)
{
    return atomic_load_explicit(&e->disk, memory_order_acquire);
}

struct seam_disk *seam_engine_detach_disk(struct seam_engine *e)
{
    struct seam_disk *d = atomic_exchange(&e->disk, NULL);

    for (uint32_t i = 0; i < e->n_running && d; i++) {
        seam_disk_load_free(e->running[i]->load);
        e->running[i]->load = NULL;
    }
    return d;
}

void seam_engine_renew_disk(struct seam_engine *e, struct seam_disk *was)
{
    struct seam_error err;

    /* Who found it before it was taken away has read its figures then. */
    pthread_mutex_lock(&e->disk_lock);
    pthread_mutex_unlock(&e->disk_lock);
    seam_disk_close(was);
    if (seam_engine_open_disk(e, &err))
        seam_log(e->log, SEAM_LOG_WARN, "prefix",
                 "%s; nothing is kept on disk from here on", err.text);
}

void seam_engine_disk_stats(struct seam_engine *e, struct seam_disk_stats *out)
{
    struct seam_disk *d;

    *out = (struct seam_disk_stats){ 0 };
    pthread_mutex_lock(&e->disk_lock);
    d = cache_disk(e);
    if (d)
        seam_disk_stats(d, out);
    pthread_mutex_unlock(&e->disk_lock);
}

struct page_source {
    struct seam_engine *e;
    const struct seam_gen *g;
};

static int save_page(void *ctx, uint32_t i, void *to)
{
    struct page_source *s = ctx;
    struct seam_error err;

    return seam_runtime_save_page(s->e->rt, s->g->page[i], to, &err);
}

/* Have what g has in the cache, with its state, written. */
static void cache_put(struct seam_engine *e, const struct seam_gen *g,
                      const void *state)
{
    struct seam_disk *d = cache_disk(e);
    struct page_source s = { e, g };
    unsigned char root[SEAM_DISK_HASH];

    if (d && seam_disk_root(d, g->p.cache_salt, root))
        seam_disk_put(d, root, g->history, g->n_done, state, save_page, &s);
}

/* Begin to load what is longer than what g has. */
static void cache_find(struct seam_engine *e, struct seam_gen *g, bool first)
{
    struct seam_disk *d = cache_disk(e);
    uint32_t n = g->n_history - 1;
    unsigned char root[SEAM_DISK_HASH];

    if (!d || n < g->n_done + LOAD_LEAST ||
        !seam_disk_root(d, g->p.cache_salt, root))
        return;
    if (first)
        atomic_fetch_add_explicit(&e->stats.disk_queries,
                                  g->p.n_prompt - g->n_done,
                                  memory_order_relaxed);
    g->load = seam_disk_find(d, root, g->history, n, g->n_done + LOAD_LEAST - 1,
                             g->n_done / e->rt->page_tokens);
    g->load_until = seam_now_ns() + LOAD_LIMIT_NS;
}

/* The pages are g's own from the first one loaded on: the one before was
 * copied or is another. */
static int load_take(struct seam_engine *e, struct seam_gen *g,
                     struct seam_error *err)
{
    uint32_t pos = seam_disk_load_pos(g->load);
    uint32_t end = seam_engine_pages_for(e, pos);
    int rc = 0;

    for (uint32_t i = g->n_done / e->rt->page_tokens; i < end && !rc; i++)
        rc = seam_runtime_load_page(e->rt, g->page[i],
                                    seam_disk_load_page(g->load, i), err);
    if (!rc)
        rc = seam_runtime_load_row(e->rt, g->row, seam_disk_load_state(g->load),
                                   err);
    if (rc)
        return rc;
    if (g->info.n_cached == g->n_done) { /* not counted before */
        atomic_fetch_add_explicit(&e->stats.disk_hits, pos - g->n_done,
                                  memory_order_relaxed);
        pthread_mutex_lock(&g->lock);
        g->info.n_cached = pos;
        pthread_mutex_unlock(&g->lock);
    }
    g->n_done = pos;
    g->n_accept = 0;
    g->n_resumed = 0; /* keep it in memory too */
    seam_engine_snapshot(e, g);
    g->n_resumed = pos;
    return 0;
}

void seam_engine_settle_loads(struct seam_engine *e)
{
    struct seam_error err;
    uint64_t now = 0;

    for (uint32_t i = 0; i < e->n_running;) {
        struct seam_gen *g = e->running[i++];
        int state = g->load ? seam_disk_loaded(g->load) : -1;
        int rc = 0;

        if (!g->load)
            continue;
        now = now ? now : seam_now_ns();
        if (!state && now < g->load_until)
            continue;
        if (state > 0)
            rc = load_take(e, g, &err);
        seam_disk_load_free(g->load);
        g->load = NULL;
        seam_engine_moved(e, now);
        if (rc) {
            seam_engine_end_running(e, g, SEAM_GEN_ERROR, &err);
            i--;
        }
    }
}

/* Under the lock. */
static bool load_pending(const struct seam_engine *e)
{
    bool any = false;

    for (uint32_t i = 0; i < e->n_running; i++) {
        const struct seam_disk_load *l = e->running[i]->load;

        if (l && seam_disk_loaded(l))
            return false;
        any |= l != NULL;
    }
    return any;
}

void seam_engine_await_load(struct seam_engine *e)
{
    uint64_t until = seam_now_ns() + LOAD_LOOK_NS;
    struct timespec at = { .tv_sec = (time_t)(until / 1000000000u),
                           .tv_nsec = (long)(until % 1000000000u) };
    uint64_t arrivals;
    int rc = 0;

    pthread_mutex_lock(&e->lock);
    arrivals = e->arrivals;
    while (!e->stop && !rc && e->arrivals == arrivals && load_pending(e))
        rc = pthread_cond_timedwait(&e->change, &e->lock, &at);
    pthread_mutex_unlock(&e->lock);
    seam_engine_moved(e, seam_now_ns());
}

/* ---- Snapshots ----------------------------------------------------------- */

static const unsigned char *gen_salt(const struct seam_gen *g)
{
    return g->p.cache_salt ? g->salt : NULL;
}

/* Keep a snapshot of what g has in the cache. */
void seam_engine_snapshot(struct seam_engine *e, struct seam_gen *g)
{
    struct seam_snapshot s = { .pos = g->n_done };
    struct seam_error err;

    /* What was resumed and not gone on from is there already. */
    if (!e->prefix || s.pos < PREFIX_LEAST || s.pos == g->n_resumed ||
        seam_prefix_has(e->prefix, gen_salt(g), g->history, s.pos))
        return;
    s.n_pages = seam_engine_pages_for(e, s.pos);
    s.state_bytes = seam_runtime_row_bytes(e->rt);
    s.page = malloc((s.n_pages + 1) * sizeof *s.page);
    s.state = malloc(s.state_bytes + 1);
    if (!s.page || !s.state ||
        seam_runtime_save_row(e->rt, g->row, g->n_accept, s.state, &err)) {
        free(s.page);
        free(s.state);
        return;
    }
    g->n_accept = 0;
    for (uint32_t i = 0; i < s.n_pages; i++) {
        s.page[i] = g->page[i];
        e->page_refs[s.page[i]]++;
    }
    cache_put(e, g, s.state);
    seam_prefix_insert(e->prefix, gen_salt(g), g->history, &s);
    snapshot_count(e);
}

/* Go on from the longest snapshot of what g begins with: share its whole pages,
 * copy the page it ends in, load its state.  g has its row; without a snapshot
 * it starts from nothing. */
static int memory_resume(struct seam_engine *e, struct seam_gen *g,
                         struct seam_error *err)
{
    const struct seam_snapshot *s =
        seam_prefix_find(e->prefix, gen_salt(g), g->history, g->n_history - 1);
    uint32_t pos = s ? s->pos : 0, whole = pos / e->rt->page_tokens, n_pages;
    int rc;

    if (!s)
        return 0;
    n_pages = s->n_pages;
    for (uint32_t i = 0; i < n_pages; i++) {
        g->page[g->n_pages++] = s->page[i];
        e->page_refs[s->page[i]]++;
    }
    rc = seam_runtime_load_row(e->rt, g->row, s->state, err);
    if (!rc && whole < n_pages) {
        /* The other tokens of that page are somebody else's.  Making room may
         * drop the snapshot. */
        int32_t shared = g->page[whole];

        if (!seam_page_make_room(e, 1))
            return seam_fail(err, SEAM_ENOMEM, "no page to copy to");
        g->page[whole] = seam_page_take(e);
        rc = seam_runtime_copy_page(e->rt, g->page[whole], shared, err);
        seam_page_unref(e, shared);
    }
    if (rc)
        return rc;
    g->n_done = g->n_resumed = pos;
    if (!g->info.n_cached) {
        pthread_mutex_lock(&g->lock);
        g->info.n_cached = pos;
        pthread_mutex_unlock(&g->lock);
        atomic_fetch_add_explicit(&e->stats.prefix_hits, pos,
                                  memory_order_relaxed);
    }
    return 0;
}

int seam_engine_resume(struct seam_engine *e, struct seam_gen *g,
                       struct seam_error *err)
{
    bool first = !g->info.n_cached;
    int rc;

    if (first)
        atomic_fetch_add_explicit(&e->stats.prefix_queries, g->p.n_prompt,
                                  memory_order_relaxed);
    /* A prompt to be scored has to be computed from its beginning. */
    if (!e->prefix || g->n_prompt_slots)
        return 0;
    rc = memory_resume(e, g, err);
    if (!rc)
        cache_find(e, g, first);
    return rc;
}

/* The last turns are where the conversation goes on, or is edited; the first
 * ends what conversations have in common.  A prompt of many short turns must
 * not be computed turn by turn. */
void seam_engine_choose_cuts(const struct seam_engine *e, struct seam_gen *g)
{
    const int32_t *tok = g->p.prompt;
    uint32_t n = 0, first = PREFIX_LEAST, next = UINT32_MAX;
    uint32_t place[SEAM_GEN_CUTS];

    while (first < g->p.n_prompt && tok[first] != e->user_token)
        first++;
    for (uint32_t i = g->p.n_prompt; i-- > first && n + 1 < SEAM_GEN_CUTS;)
        if (tok[i] == e->user_token && i + CUT_LEAST <= next)
            place[n++] = next = i;
    if (first < g->p.n_prompt && first + CUT_LEAST <= next)
        place[n++] = first;
    while (n)
        g->cut[g->n_cuts++] = place[--n];
}

uint32_t seam_engine_until_cut(const struct seam_engine *e,
                               const struct seam_gen *g)
{
    uint32_t every = (uint32_t)e->config->engine.prefix_interval;
    uint32_t end = g->p.n_prompt, cut = end;

    if (!e->prefix || g->n_done >= end)
        return g->n_history - g->n_done;
    if (every && (g->n_done / every + 1) * every < cut)
        cut = (g->n_done / every + 1) * every;
    for (uint32_t i = 0; i < g->n_cuts; i++)
        if (g->cut[i] > g->n_done && g->cut[i] < cut)
            cut = g->cut[i];
    return cut - g->n_done;
}
