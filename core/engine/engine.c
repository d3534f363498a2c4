#include "core/engine/engine.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/json.h"
#include "core/engine/gen.h"
#include "core/engine/prefix.h"
#include "core/engine/runtime.h"

#define MAX_EOS 32

/* A shorter beginning is recomputed sooner than its state is copied. */
#define PREFIX_LEAST 16

struct seam_engine {
    const struct seam_config *config;
    const struct seam_log *log;
    seam_engine_progress *progress;
    void *progress_ctx;
    struct seam_stats stats;
    pthread_t thread;

    /* Guards state, load_err, the waiting queue and stop. */
    pthread_mutex_t lock;
    pthread_cond_t change; /* work came, state changed, or stop was asked */
    struct seam_error load_err;
    struct seam_gen *first, **last; /* waiting, in order of service */
    uint64_t arrivals;
    bool stop;

    _Atomic int state;       /* enum seam_engine_state; written under lock */
    _Atomic uint32_t active; /* waiting and running */
    /* When something last moved: a step ended, or work came to an idle engine.
     * relaxed: read by health checks that compare it with the clock. */
    _Atomic uint64_t moved_ns;
    _Atomic bool
        sampling; /* relaxed: for the watchdog, see seam_engine_where */

    /* From here on constant once READY, and written before by the thread. */
    struct seam_runtime *rt;
    int32_t eos[MAX_EOS];
    uint32_t n_eos;
    float temperature, top_p;
    struct seam_vocab *vocabulary;

    /* The thread's own. */
    struct seam_gen **running; /* [n_running], in order of arrival */
    uint32_t n_running;
    int32_t *free_page, *free_row;
    uint32_t *page_refs; /* [n_pages] sequences and snapshots that hold it */
    struct seam_prefix *prefix; /* NULL: switched off */
    int32_t user_token;         /* a turn begins with it; -1: there is none */
    uint32_t n_free_pages, n_free_rows;
    struct seam_step_seq *seq; /* [max_seqs] the step being made */
    struct seam_gen **seq_gen; /* [max_seqs] whose it is */
    int32_t *logit_row;        /* [max_logit_rows] */
    struct seam_gen **row_gen; /* [max_logit_rows] */
    uint32_t *row_at;          /* [max_logit_rows] prompt token scored */
    struct seam_sample_row *sample;
    struct seam_sample_out *sampled;
    float *scratch; /* [vocab] */
};

/* ---- Asking -------------------------------------------------------------- */

enum seam_engine_state seam_engine_state(const struct seam_engine *e)
{
    /* acquire: whoever sees READY sees what loading wrote. */
    return (enum seam_engine_state)atomic_load_explicit(&e->state,
                                                        memory_order_acquire);
}

bool seam_engine_stalled(const struct seam_engine *e)
{
    uint64_t moved, limit;

    if (!atomic_load_explicit(&e->active, memory_order_relaxed))
        return false;
    moved = atomic_load_explicit(&e->moved_ns, memory_order_relaxed);
    limit = (uint64_t)e->config->server.stall_timeout_ms * 1000000u;
    return seam_now_ns() > moved + limit;
}

void seam_engine_where(const struct seam_engine *e, char *out, size_t n)
{
    static const enum seam_role role[] = {
        [SEAM_GLM5_BACKEND] = SEAM_ROLE_BACKEND,
        [SEAM_GLM5_LINEAR] = SEAM_ROLE_LINEAR,
        [SEAM_GLM5_SPARSE] = SEAM_ROLE_SPARSE,
        [SEAM_GLM5_MOE] = SEAM_ROLE_MOE,
    };
    enum seam_glm5_call call = SEAM_GLM5_IDLE;
    uint32_t layer = 0;

    if (seam_engine_state(e) != SEAM_ENGINE_LOADING && e->rt && e->rt->net)
        call = seam_glm5_next_where(e->rt->net, &layer);
    if (atomic_load_explicit(&e->sampling, memory_order_relaxed))
        snprintf(out, n, "plugin %s, sampling",
                 e->rt->host[SEAM_ROLE_BACKEND].name);
    else if (call == SEAM_GLM5_IDLE)
        snprintf(out, n, "the scheduler");
    else
        snprintf(out, n, "plugin %s, layer %u", e->rt->host[role[call]].name,
                 layer);
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

const struct seam_checkpoint *seam_engine_checkpoint(
    const struct seam_engine *e)
{
    return e->rt->model.checkpoint;
}

const struct seam_parser *seam_engine_parser(const struct seam_engine *e,
                                             void **self)
{
    *self = e->rt->self[SEAM_ROLE_PARSER];
    return &e->rt->plugin[SEAM_ROLE_PARSER]->table.parser;
}

uint32_t seam_engine_max_context(const struct seam_engine *e)
{
    return e->rt->limits.max_context;
}

uint32_t seam_engine_vocab(const struct seam_engine *e)
{
    return seam_checkpoint_config(e->rt->model.checkpoint)->vocab;
}

const struct seam_vocab *seam_engine_vocabulary(const struct seam_engine *e)
{
    return e->vocabulary;
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

const struct seam_loaded *seam_engine_plugin(const struct seam_engine *e,
                                             enum seam_role role)
{
    return e->rt->plugin[role];
}

static void engine_set_state(struct seam_engine *e,
                             enum seam_engine_state state)
{
    pthread_mutex_lock(&e->lock);
    atomic_store_explicit(&e->state, state, memory_order_release);
    pthread_cond_broadcast(&e->change);
    pthread_mutex_unlock(&e->lock);
}

static uint32_t engine_pages_for(const struct seam_engine *e, uint32_t tokens)
{
    return (tokens + e->rt->page_tokens - 1) / e->rt->page_tokens;
}

/* ---- Ends of generations ------------------------------------------------- */

static void engine_moved(struct seam_engine *e, uint64_t now)
{
    atomic_store_explicit(&e->moved_ns, now, memory_order_relaxed);
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
    default:
        atomic_fetch_add(&s->ended_error, 1);
        break;
    }
    if (end == SEAM_GEN_STOP || end == SEAM_GEN_LENGTH) {
        seam_hist_observe(&s->e2e, (double)(now - g->info.submitted_ns) / 1e9);
        seam_hist_observe(&s->decode, (double)(now - g->info.first_ns) / 1e9);
        seam_hist_observe(&s->gen_len, g->info.n_generated);
    }
}

/* The gen leaves the engine; the caller has taken it off its list. */
static void engine_end(struct seam_engine *e, struct seam_gen *g,
                       enum seam_gen_end end, const struct seam_error *err)
{
    uint64_t now = seam_now_ns();

    if (end == SEAM_GEN_ABORT)
        seam_log(e->log, SEAM_LOG_INFO, "engine",
                 "request cancelled after %u prompt and %u generated tokens",
                 g->n_done < g->p.n_prompt ? g->n_done : g->p.n_prompt,
                 g->info.n_generated);
    engine_count_end(e, g, end, now);
    atomic_fetch_sub_explicit(&e->active, 1, memory_order_relaxed);
    seam_gen_finish(g, end, err, now);
    seam_gen_unref(g);
}

static void page_count(struct seam_engine *e)
{
    atomic_store_explicit(&e->stats.pages_used,
                          e->rt->n_pages - e->n_free_pages,
                          memory_order_relaxed);
}

static void page_unref(void *ctx, int32_t page)
{
    struct seam_engine *e = ctx;

    if (--e->page_refs[page] == 0)
        e->free_page[e->n_free_pages++] = page;
    page_count(e);
}

static int32_t page_take(struct seam_engine *e)
{
    int32_t page = e->free_page[--e->n_free_pages];

    e->page_refs[page] = 1;
    page_count(e);
    return page;
}

/* Have n pages free, by dropping snapshots if need be. */
static bool page_make_room(struct seam_engine *e, uint32_t n)
{
    while (e->n_free_pages < n)
        if (!e->prefix || !seam_prefix_evict(e->prefix))
            return false;
    return true;
}

/* Give pages and row back. */
static void engine_evict(struct seam_engine *e, struct seam_gen *g)
{
    while (g->n_pages)
        page_unref(e, g->page[--g->n_pages]);
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

/* Keep a snapshot of what g has in the cache. */
static void engine_snapshot(struct seam_engine *e, struct seam_gen *g)
{
    struct seam_snapshot s = { .pos = g->n_done };
    struct seam_error err;

    /* What was resumed and not gone on from is there already. */
    if (!e->prefix || s.pos < PREFIX_LEAST || s.pos == g->n_resumed ||
        seam_prefix_has(e->prefix, g->history, s.pos))
        return;
    s.n_pages = engine_pages_for(e, s.pos);
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
    seam_prefix_insert(e->prefix, g->history, &s);
}

static void engine_end_running(struct seam_engine *e, struct seam_gen *g,
                               enum seam_gen_end end,
                               const struct seam_error *err)
{
    /* Also what was cancelled is kept: a retry goes on from there. */
    if (end != SEAM_GEN_ERROR)
        engine_snapshot(e, g);
    engine_evict(e, g);
    engine_end(e, g, end, err);
}

/* ---- The waiting queue (under lock) -------------------------------------- */

static void queue_append(struct seam_engine *e, struct seam_gen *g)
{
    g->next = NULL;
    *e->last = g;
    e->last = &g->next;
    atomic_fetch_add_explicit(&e->stats.waiting, 1, memory_order_relaxed);
}

static void queue_push_front(struct seam_engine *e, struct seam_gen *g)
{
    g->next = e->first;
    if (!e->first)
        e->last = &g->next;
    e->first = g;
    atomic_fetch_add_explicit(&e->stats.waiting, 1, memory_order_relaxed);
}

static struct seam_gen *queue_pop(struct seam_engine *e)
{
    struct seam_gen *g = e->first;

    e->first = g->next;
    if (!e->first)
        e->last = &e->first;
    g->next = NULL;
    atomic_fetch_sub_explicit(&e->stats.waiting, 1, memory_order_relaxed);
    return g;
}

/* Take the cancelled ones out of the queue, wherever they stand. */
static struct seam_gen *queue_pop_cancelled(struct seam_engine *e)
{
    for (struct seam_gen **p = &e->first; *p; p = &(*p)->next) {
        struct seam_gen *g = *p;

        if (!atomic_load_explicit(&g->cancelled, memory_order_relaxed))
            continue;
        *p = g->next;
        if (!g->next)
            e->last = p;
        g->next = NULL;
        atomic_fetch_sub_explicit(&e->stats.waiting, 1, memory_order_relaxed);
        return g;
    }
    return NULL;
}

/* ---- Submitting ---------------------------------------------------------- */

static int gen_check(const struct seam_engine *e,
                     const struct seam_gen_params *p, struct seam_error *err)
{
    uint32_t context = seam_engine_max_context(e);
    uint32_t vocab = seam_engine_vocab(e);

    if (!p->n_prompt)
        return seam_fail(err, SEAM_EINVAL, "the prompt is empty");
    if (p->n_prompt >= context)
        return seam_fail(err, SEAM_EINVAL,
                         "the prompt has %u tokens; the context holds %u",
                         p->n_prompt, context);
    for (uint32_t i = 0; i < p->n_prompt; i++)
        if (p->prompt[i] < 0 || (uint32_t)p->prompt[i] >= vocab)
            return seam_fail(err, SEAM_EINVAL,
                             "prompt token %u is %d; expected 0 to %u", i,
                             p->prompt[i], vocab - 1);
    for (uint32_t i = 0; i < p->n_bias; i++)
        if (p->bias[i].id < 0 || (uint32_t)p->bias[i].id >= vocab)
            return seam_fail(err, SEAM_EINVAL,
                             "bias for token %d; expected 0 to %u",
                             p->bias[i].id, vocab - 1);
    for (uint32_t i = 0; i < p->n_stop; i++)
        if (p->stop[i] < 0 || (uint32_t)p->stop[i] >= vocab)
            return seam_fail(err, SEAM_EINVAL,
                             "stop token %d; expected 0 to %u", p->stop[i],
                             vocab - 1);
    if (!p->max_tokens || p->n_top > SEAM_GEN_MAX_TOP || !(p->repetition > 0))
        return seam_fail(err, SEAM_EINVAL,
                         "max_tokens %u, n_top %u, repetition %g; expected at "
                         "least 1, at most %d, above 0",
                         p->max_tokens, p->n_top, (double)p->repetition,
                         SEAM_GEN_MAX_TOP);
    return 0;
}

int seam_gen_submit(struct seam_engine *e, const struct seam_gen_params *p,
                    struct seam_gen **out, struct seam_error *err)
{
    struct seam_gen_params cut = *p;
    const struct seam_runtime *rt = e->rt;
    uint32_t waiting, longest, need;
    struct seam_gen *g;
    int rc;

    if (seam_engine_state(e) != SEAM_ENGINE_READY)
        return seam_fail(err, SEAM_ESTATE, "the engine is not ready");
    rc = gen_check(e, p, err);
    if (rc)
        return rc;
    if (cut.max_tokens > rt->limits.max_context - cut.n_prompt)
        cut.max_tokens = rt->limits.max_context - cut.n_prompt;
    /* What no eviction could make room for is refused now. */
    longest = cut.n_prompt + cut.max_tokens;
    need = (longest + rt->page_tokens - 1) / rt->page_tokens;
    if (need > rt->n_pages) {
        uint32_t fits = rt->n_pages * rt->page_tokens;

        if (cut.n_prompt >= fits)
            return seam_fail(err, SEAM_EINVAL,
                             "the prompt has %u tokens; the cache holds %u "
                             "(engine.cache_bytes)",
                             cut.n_prompt, fits);
        cut.max_tokens = fits - cut.n_prompt;
        need = rt->n_pages;
    }
    g = seam_gen_new(e, &cut, seam_engine_vocab(e), need, err);
    if (!g)
        return SEAM_ENOMEM;
    g->info.submitted_ns = seam_now_ns();

    pthread_mutex_lock(&e->lock);
    waiting = atomic_load_explicit(&e->stats.waiting, memory_order_relaxed);
    if (seam_engine_state(e) != SEAM_ENGINE_READY || e->stop) {
        rc = seam_fail(err, SEAM_ESTATE, "the engine is not ready");
    } else if (waiting >= (uint64_t)e->config->engine.max_queue) {
        atomic_fetch_add_explicit(&e->stats.rejected, 1, memory_order_relaxed);
        rc = seam_fail(err, SEAM_EFULL,
                       "%u requests are waiting; "
                       "engine.max_queue is %lld",
                       waiting, (long long)e->config->engine.max_queue);
    } else {
        atomic_fetch_add_explicit(&g->refs, 1, memory_order_relaxed);
        g->order = e->arrivals++;
        queue_append(e, g);
        if (atomic_fetch_add_explicit(&e->active, 1, memory_order_relaxed) == 0)
            engine_moved(e, g->info.submitted_ns);
        pthread_cond_broadcast(&e->change);
    }
    pthread_mutex_unlock(&e->lock);
    if (rc) {
        seam_gen_unref(g);
        return rc;
    }
    seam_hist_observe(&e->stats.prompt_len, p->n_prompt);
    *out = g;
    return 0;
}

/* ---- Scheduling ---------------------------------------------------------- */

/* Put the youngest running sequence back to the head of the queue; its tokens
 * are kept and recomputed when it returns. */
static void engine_preempt(struct seam_engine *e, struct seam_gen *g)
{
    engine_evict(e, g);
    atomic_fetch_add_explicit(&e->stats.preemptions, 1, memory_order_relaxed);
    pthread_mutex_lock(&e->lock);
    queue_push_front(e, g);
    pthread_mutex_unlock(&e->lock);
}

/* Make sure g has pages for `tokens` tokens; false when g itself had to go. */
static bool engine_reserve(struct seam_engine *e, struct seam_gen *g,
                           uint32_t tokens)
{
    uint32_t want = engine_pages_for(e, tokens);

    while (g->n_pages < want) {
        struct seam_gen *youngest;

        if (page_make_room(e, 1)) {
            g->page[g->n_pages++] = page_take(e);
            continue;
        }
        youngest = e->running[e->n_running - 1];
        engine_preempt(e, youngest);
        if (youngest == g)
            return false;
    }
    return true;
}

/* Go on from the longest snapshot of what g begins with: share its whole pages,
 * copy the page it ends in, load its state.  g has its row; without a snapshot
 * it starts from nothing. */
static int engine_resume(struct seam_engine *e, struct seam_gen *g,
                         struct seam_error *err)
{
    /* A prompt to be scored has to be computed from its beginning. */
    bool may = e->prefix && !g->n_prompt_slots;
    const struct seam_snapshot *s =
        may ? seam_prefix_find(e->prefix, g->history, g->n_history - 1) : NULL;
    uint32_t pos = s ? s->pos : 0, whole = pos / e->rt->page_tokens, n_pages;
    int rc;

    if (!g->info.n_cached)
        atomic_fetch_add_explicit(&e->stats.prefix_queries, g->p.n_prompt,
                                  memory_order_relaxed);
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

        if (!page_make_room(e, 1))
            return seam_fail(err, SEAM_ENOMEM, "no page to copy to");
        g->page[whole] = page_take(e);
        rc = seam_runtime_copy_page(e->rt, g->page[whole], shared, err);
        page_unref(e, shared);
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

/* g gets its row and place among the running. */
static void engine_enter(struct seam_engine *e, struct seam_gen *g)
{
    uint64_t now = seam_now_ns();
    uint32_t at;

    g->row = e->free_row[--e->n_free_rows];
    /* running stays in order of arrival, also after a preemption. */
    for (at = e->n_running; at && e->running[at - 1]->order > g->order; at--)
        e->running[at] = e->running[at - 1];
    e->running[at] = g;
    e->n_running++;
    if (g->info.started_ns)
        return;
    pthread_mutex_lock(&g->lock);
    g->info.started_ns = now;
    pthread_mutex_unlock(&g->lock);
    seam_hist_observe(&e->stats.queue,
                      (double)(now - g->info.submitted_ns) / 1e9);
}

/* The next to run if there is a row and, snapshots aside, room for what is
 * known of it and one more token. */
static struct seam_gen *engine_next(struct seam_engine *e)
{
    struct seam_gen *g = NULL;

    pthread_mutex_lock(&e->lock);
    if (e->first && e->n_free_rows &&
        page_make_room(e, engine_pages_for(e, e->first->n_history + 1)))
        g = queue_pop(e);
    pthread_mutex_unlock(&e->lock);
    return g;
}

/* Move waiting generations to running while rows and pages last. */
static void engine_admit(struct seam_engine *e)
{
    struct seam_gen *cancelled = NULL, *g;
    struct seam_error err;

    pthread_mutex_lock(&e->lock);
    while ((g = queue_pop_cancelled(e))) {
        g->next = cancelled;
        cancelled = g;
    }
    pthread_mutex_unlock(&e->lock);
    while (cancelled) {
        g = cancelled;
        cancelled = g->next;
        engine_end(e, g, SEAM_GEN_ABORT, NULL);
    }
    while ((g = engine_next(e))) {
        engine_enter(e, g);
        if (engine_resume(e, g, &err)) {
            engine_end_running(e, g, SEAM_GEN_ERROR, &err);
            continue;
        }
        /* The pages it was admitted for are its own at once, so that the next
         * admission does not count on them. */
        engine_reserve(e, g, g->n_history);
    }
}

static bool gen_is_decoding(const struct seam_gen *g)
{
    return g->n_done + 1 == g->n_history && g->n_done >= g->p.n_prompt;
}

/* Tokens up to the next place in the prompt where a snapshot is worth keeping:
 * its end, where a turn of the user begins, and every so often. */
static uint32_t engine_until_cut(const struct seam_engine *e,
                                 const struct seam_gen *g)
{
    uint32_t every = (uint32_t)e->config->engine.prefix_interval;
    uint32_t end = g->p.n_prompt, cut = end;

    if (!e->prefix || g->n_done >= end)
        return g->n_history - g->n_done;
    if (every && (g->n_done / every + 1) * every < cut)
        cut = (g->n_done / every + 1) * every;
    for (uint32_t i = g->n_done + 1; i < cut; i++)
        if (g->history[i] == e->user_token && i >= PREFIX_LEAST)
            cut = i;
    return cut - g->n_done;
}

/* Add n more tokens of g to the step. */
static void engine_take(struct seam_engine *e, struct seam_gen *g, uint32_t n,
                        uint32_t *n_seqs)
{
    g->n_step = n;
    g->at_cut = false;
    e->seq_gen[*n_seqs] = g;
    e->seq[(*n_seqs)++] = (struct seam_step_seq){
        .token = g->history + g->n_done,
        .n = n,
        .pos = g->n_done,
        .page = g->page,
        .n_pages = g->n_pages,
        .row = g->row,
        .n_accept = g->n_accept,
    };
}

/* Choose the step: every sequence that decodes, then prompts in order of
 * arrival while tokens are left.  Returns how many sequences. */
static uint32_t engine_choose(struct seam_engine *e)
{
    uint32_t budget = e->rt->limits.max_tokens, n_seqs = 0;
    uint32_t score = e->rt->max_logit_rows - e->rt->limits.max_seqs;

    for (uint32_t i = 0; i < e->n_running;) {
        struct seam_gen *g = e->running[i];

        if (!gen_is_decoding(g) || engine_reserve(e, g, g->n_history))
            i++;
    }
    for (uint32_t i = 0; i < e->n_running; i++)
        if (gen_is_decoding(e->running[i])) {
            engine_take(e, e->running[i], 1, &n_seqs);
            budget--;
        }
    for (uint32_t i = 0; i < e->n_running && budget; i++) {
        struct seam_gen *g = e->running[i];
        uint32_t cut = engine_until_cut(e, g), n = cut;

        if (gen_is_decoding(g))
            continue;
        if (n > budget)
            n = budget;
        if (g->n_prompt_scored < g->n_prompt_slots) {
            if (n > score)
                n = score;
            score -= n;
        }
        if (!n)
            continue;
        engine_take(e, g, n, &n_seqs);
        g->at_cut = n == cut && g->n_done + n <= g->p.n_prompt;
        budget -= n;
    }
    return n_seqs;
}

/* ---- A step -------------------------------------------------------------- */

/* The rows of logits wanted: first one for each sequence that gets a token,
 * then those of prompt tokens to score.  Returns their number, *n_sample of the
 * first kind. */
static uint32_t engine_rows(struct seam_engine *e, uint32_t n_seqs,
                            uint32_t *n_sample)
{
    uint32_t n = 0, t = 0;

    for (uint32_t i = 0; i < n_seqs; i++) {
        struct seam_gen *g = e->seq_gen[i];

        t += g->n_step;
        if (g->n_done + g->n_step < g->n_history)
            continue;
        e->row_gen[n] = g;
        e->logit_row[n++] = (int32_t)t - 1;
    }
    *n_sample = n;
    t = 0;
    for (uint32_t i = 0; i < n_seqs; t += e->seq_gen[i++]->n_step) {
        struct seam_gen *g = e->seq_gen[i];

        for (uint32_t j = 0; j < g->n_step; j++) {
            uint32_t at = g->n_done + j + 1; /* the token this row predicts */

            if (at > g->n_prompt_slots || at <= g->n_prompt_scored)
                continue;
            e->row_gen[n] = g;
            e->row_at[n] = at;
            e->logit_row[n++] = (int32_t)(t + j);
        }
    }
    return n;
}

/* log softmax of l [n] at id, and the n_top most likely ids. */
static float engine_score(const float *l, uint32_t n, int32_t id,
                          uint32_t n_top, int32_t *top_id, float *top_logprob)
{
    float max = -INFINITY;
    double sum = 0, log_sum;
    uint32_t have = 0;

    for (uint32_t i = 0; i < n; i++)
        max = l[i] > max ? l[i] : max;
    for (uint32_t i = 0; i < n; i++)
        sum += exp((double)l[i] - (double)max);
    log_sum = log(sum) + (double)max;
    for (uint32_t i = 0; i < n && n_top; i++) {
        uint32_t at = have;

        if (have == n_top && l[i] <= top_logprob[have - 1])
            continue;
        if (have < n_top)
            have++;
        else
            at = have - 1;
        for (; at && top_logprob[at - 1] < l[i]; at--) {
            top_logprob[at] = top_logprob[at - 1];
            top_id[at] = top_id[at - 1];
        }
        top_logprob[at] = l[i];
        top_id[at] = (int32_t)i;
    }
    for (uint32_t k = 0; k < have; k++)
        top_logprob[k] = (float)((double)top_logprob[k] - log_sum);
    return (float)((double)l[id] - log_sum);
}

static int engine_score_prompts(struct seam_engine *e, uint32_t from,
                                uint32_t n_rows, uint64_t now,
                                struct seam_error *err)
{
    int32_t top_id[SEAM_GEN_MAX_TOP];
    float top[SEAM_GEN_MAX_TOP];

    for (uint32_t i = from; i < n_rows; i++) {
        struct seam_gen *g = e->row_gen[i];
        int32_t id = g->history[e->row_at[i]];
        int rc = seam_runtime_logits(e->rt, i, e->scratch, err);
        float lp;

        if (rc)
            return rc;
        lp = engine_score(e->scratch, seam_engine_vocab(e), id, g->p.n_top,
                          top_id, top);
        seam_gen_put(g, id, lp, top_id, top, g->p.n_top, true, now);
        g->n_prompt_scored = e->row_at[i];
    }
    return 0;
}

static int engine_sample(struct seam_engine *e, uint32_t n,
                         struct seam_error *err)
{
    uint32_t n_top = 0;
    int rc;

    if (!n)
        return 0;
    for (uint32_t i = 0; i < n; i++) {
        struct seam_gen *g = e->row_gen[i];

        e->sample[i] = (struct seam_sample_row){
            .temperature = g->p.temperature,
            .top_p = g->p.top_p,
            .min_p = g->p.min_p,
            .top_k = g->p.top_k,
            .seed = g->p.seed,
            .counter = g->n_history - g->p.n_prompt,
            .n_bias = seam_gen_bias(g, e->eos, e->n_eos),
            .bias_id = g->bias_id,
            .bias_div = g->bias_div,
            .bias_add = g->bias_add,
        };
        /* What goes wrong here concerns this one: see engine_deliver. */
        if (g->constrained &&
            !seam_matcher_mask(g->matcher, g->mask, &g->mask_err))
            e->sample[i].mask = g->mask;
        if (g->p.n_top > n_top)
            n_top = g->p.n_top;
    }
    atomic_store_explicit(&e->sampling, true, memory_order_relaxed);
    rc = seam_runtime_sample(e->rt, 0, n, e->sample, n_top, e->sampled, err);
    atomic_store_explicit(&e->sampling, false, memory_order_relaxed);
    return rc;
}

static bool engine_is_stop(const struct seam_engine *e,
                           const struct seam_gen *g, int32_t id)
{
    for (uint32_t i = 0; i < g->p.n_stop; i++)
        if (g->p.stop[i] == id)
            return true;
    for (uint32_t i = 0; i < e->n_eos && !g->p.ignore_eos; i++)
        if (e->eos[i] == id)
            return true;
    return false;
}

/* Why the token that was chosen for g cannot be used, or 0. */
static int engine_judge(struct seam_gen *g, const struct seam_sample_out *s,
                        struct seam_error *err)
{
    int took;

    if (g->mask_err.code) {
        *err = g->mask_err;
        return err->code;
    }
    if (s->token < 0)
        return seam_fail(err, SEAM_EDATA, "the model's output is not finite");
    if (!g->constrained) {
        g->constrained = g->matcher && s->token == g->p.grammar_after;
        return 0;
    }
    took = seam_matcher_accept(g->matcher, s->token, err);
    if (took < 0)
        return took;
    return took ? 0
                : seam_fail(err, SEAM_EINVAL,
                            "token %d was chosen against the "
                            "constraint",
                            s->token);
}

/* Times of a token, for the metrics. */
static void engine_clock(struct seam_engine *e, struct seam_gen *g,
                         uint64_t now)
{
    if (g->last_ns) {
        seam_hist_observe(&e->stats.itl, (double)(now - g->last_ns) / 1e9);
    } else {
        seam_hist_observe(&e->stats.ttft,
                          (double)(now - g->info.submitted_ns) / 1e9);
        seam_hist_observe(&e->stats.prefill,
                          (double)(now - g->info.started_ns) / 1e9);
    }
    g->last_ns = now;
    atomic_fetch_add_explicit(&e->stats.generation_tokens, 1,
                              memory_order_relaxed);
}

/* Give g the token that was chosen for it, and end it if that was its last. */
static void engine_deliver(struct seam_engine *e, struct seam_gen *g,
                           const struct seam_sample_out *s, uint64_t now)
{
    uint32_t n_out = g->n_history - g->p.n_prompt + 1;
    struct seam_error err;

    if (engine_judge(g, s, &err)) {
        seam_log(e->log, SEAM_LOG_ERROR, "engine",
                 "%s, at token %u of a request", err.text, g->n_history);
        engine_end_running(e, g, SEAM_GEN_ERROR, &err);
        return;
    }
    engine_clock(e, g, now);
    g->history[g->n_history++] = s->token;
    seam_gen_count(g, s->token);
    seam_gen_put(g, s->token, s->logprob, s->top_id, s->top_logprob, g->p.n_top,
                 false, now);
    if (engine_is_stop(e, g, s->token) ||
        (g->constrained && seam_matcher_ended(g->matcher)))
        engine_end_running(e, g, SEAM_GEN_STOP, NULL);
    else if (n_out >= g->p.max_tokens)
        engine_end_running(e, g, SEAM_GEN_LENGTH, NULL);
}

/* The step failed: its requests end, everybody else goes on.  A lost device or
 * lost weights end everything. */
static void engine_step_failed(struct seam_engine *e, uint32_t n_seqs, int rc,
                               const struct seam_error *err)
{
    seam_log(e->log, SEAM_LOG_ERROR, "engine", "step failed: %s", err->text);
    for (uint32_t i = 0; i < n_seqs; i++)
        engine_end_running(e, e->seq_gen[i], SEAM_GEN_ERROR, err);
    if (rc != SEAM_EDEVICE)
        return;
    pthread_mutex_lock(&e->lock);
    e->load_err = *err;
    pthread_mutex_unlock(&e->lock);
    engine_set_state(e, SEAM_ENGINE_FAILED);
}

static int engine_compute(struct seam_engine *e, uint32_t n_seqs,
                          struct seam_error *err)
{
    uint32_t n_sample, n_rows;
    const char *lost;
    int rc = 0;

    for (uint32_t i = 0; i < n_seqs && !rc; i++)
        if (!e->seq_gen[i]->n_done)
            rc = seam_runtime_zero_row(e->rt, e->seq_gen[i]->row, err);
    if (rc)
        return rc;
    n_rows = engine_rows(e, n_seqs, &n_sample);
    rc = seam_runtime_forward(e->rt, e->seq, n_seqs, e->logit_row, n_rows, err);
    if (!rc)
        rc = engine_score_prompts(e, n_sample, n_rows, seam_now_ns(), err);
    if (!rc)
        rc = engine_sample(e, n_sample, err);
    if (rc)
        return rc;
    lost = seam_checkpoint_lost(e->rt->model.checkpoint);
    if (lost)
        return seam_fail(err, SEAM_EDEVICE,
                         "%s: weights were lost, the file "
                         "was cut short while in use",
                         lost);
    for (uint32_t i = 0; i < n_seqs; i++) {
        struct seam_gen *g = e->seq_gen[i];
        uint32_t before = g->n_done;

        g->n_done += g->n_step;
        g->n_accept = (int32_t)g->n_step;
        if (before < g->p.n_prompt) {
            uint32_t upto =
                g->n_done < g->p.n_prompt ? g->n_done : g->p.n_prompt;
            atomic_fetch_add_explicit(&e->stats.prompt_tokens, upto - before,
                                      memory_order_relaxed);
        }
    }
    for (uint32_t i = 0; i < n_seqs; i++)
        if (e->seq_gen[i]->at_cut)
            engine_snapshot(e, e->seq_gen[i]);
    for (uint32_t i = 0; i < n_sample; i++)
        engine_deliver(e, e->row_gen[i], &e->sampled[i], seam_now_ns());
    return 0;
}

static void engine_step(struct seam_engine *e)
{
    struct seam_stats *s = &e->stats;
    struct seam_error err;
    uint32_t n_seqs, n_tokens = 0;
    int rc;

    for (uint32_t i = 0; i < e->n_running;) {
        struct seam_gen *g = e->running[i];

        if (atomic_load_explicit(&g->cancelled, memory_order_relaxed))
            engine_end_running(e, g, SEAM_GEN_ABORT, NULL);
        else
            i++;
    }
    engine_admit(e);
    n_seqs = engine_choose(e);
    atomic_store_explicit(&s->running, e->n_running, memory_order_relaxed);
    if (!n_seqs)
        return;
    for (uint32_t i = 0; i < n_seqs; i++)
        n_tokens += e->seq[i].n;
    rc = engine_compute(e, n_seqs, &err);
    if (rc)
        engine_step_failed(e, n_seqs, rc, &err);
    atomic_fetch_add_explicit(&s->steps, 1, memory_order_relaxed);
    seam_hist_observe(&s->step_tokens, n_tokens);
    atomic_store_explicit(&s->running, e->n_running, memory_order_relaxed);
    engine_moved(e, seam_now_ns());
}

/* ---- Loading ------------------------------------------------------------- */

static void engine_add_eos(struct seam_engine *e, int32_t id)
{
    if (id < 0 || e->n_eos == MAX_EOS)
        return;
    for (uint32_t i = 0; i < e->n_eos; i++)
        if (e->eos[i] == id)
            return;
    e->eos[e->n_eos++] = id;
}

static void engine_add_eos_json(struct seam_engine *e, const json_t *v)
{
    size_t i;
    json_t *item;

    if (json_is_integer(v))
        engine_add_eos(e, (int32_t)json_integer_value(v));
    json_array_foreach((json_t *)v, i, item) if (json_is_integer(item))
        engine_add_eos(e, (int32_t)json_integer_value(item));
}

/* A number of generation_config.json within [lo, hi], else the preset. */
static float engine_number(const json_t *root, const char *key, double lo,
                           double hi, float preset)
{
    const json_t *v = json_object_get(root, key);
    double d = json_number_value(v);

    return json_is_number(v) && d >= lo && d <= hi ? (float)d : preset;
}

/* generation_config.json: how the checkpoint is meant to be sampled. */
static void engine_read_generation(struct seam_engine *e)
{
    struct seam_str text;
    struct seam_error err;
    json_t *root = NULL;

    if (!seam_checkpoint_file(e->rt->model.checkpoint, "generation_config.json",
                              &text, &err)) {
        root =
            seam_json_parse(text.p, text.n, "generation_config.json", 0, &err);
        if (!root)
            seam_log(e->log, SEAM_LOG_WARN, "engine", "%s", err.text);
    }
    engine_add_eos_json(e, json_object_get(root, "eos_token_id"));
    e->temperature = engine_number(root, "temperature", 0, 2, 1.0f);
    e->top_p = engine_number(root, "top_p", 1e-6, 1, 0.95f);
    if (json_is_false(json_object_get(root, "do_sample")))
        e->temperature = 0;
    json_decref(root);
}

/* The union of what the configs name and of the tokens that open another turn:
 * a config that lists one id must not shrink the set (chat spec, section 1). */
static void engine_find_eos(struct seam_engine *e)
{
    static const char *const role[] = { "<|endoftext|>", "<|user|>",
                                        "<|observation|>", "<|system|>",
                                        "<|assistant|>" };
    const struct seam_model_config *m =
        seam_checkpoint_config(e->rt->model.checkpoint);
    const struct seam_tokenizer *t = e->rt->model.tokenizer;

    for (uint32_t i = 0; i < m->n_eos; i++)
        engine_add_eos(e, m->eos[i]);
    for (size_t i = 0; i < sizeof role / sizeof *role; i++) {
        int32_t id = seam_tokenizer_id(t, role[i], strlen(role[i]));

        /* An ordinary piece of text that happens to be spelled so is none. */
        if (id >= 0 && (seam_tokenizer_flags(t, id) & SEAM_TOKEN_ADDED))
            engine_add_eos(e, id);
    }
}

static int engine_progress(void *ctx, const char *what, uint64_t done,
                           uint64_t total)
{
    struct seam_engine *e = ctx;
    bool stop;

    if (e->progress)
        e->progress(e->progress_ctx, what, done, total);
    pthread_mutex_lock(&e->lock);
    stop = e->stop;
    pthread_mutex_unlock(&e->lock);
    return stop;
}

static int engine_alloc(struct seam_engine *e, struct seam_error *err)
{
    const struct seam_runtime *rt = e->rt;
    uint32_t seqs = rt->limits.max_seqs, rows = rt->max_logit_rows;

    e->running = calloc(seqs, sizeof *e->running);
    e->free_page = calloc(rt->n_pages, sizeof *e->free_page);
    e->free_row = calloc(rt->n_rows, sizeof *e->free_row);
    e->page_refs = calloc(rt->n_pages, sizeof *e->page_refs);
    e->seq = calloc(seqs, sizeof *e->seq);
    e->seq_gen = calloc(seqs, sizeof *e->seq_gen);
    e->logit_row = calloc(rows, sizeof *e->logit_row);
    e->row_gen = calloc(rows, sizeof *e->row_gen);
    e->row_at = calloc(rows, sizeof *e->row_at);
    e->sample = calloc(seqs, sizeof *e->sample);
    e->sampled = calloc(seqs, sizeof *e->sampled);
    e->scratch = calloc(seam_engine_vocab(e), sizeof *e->scratch);
    if (!e->running || !e->free_page || !e->free_row || !e->page_refs ||
        !e->seq || !e->seq_gen || !e->logit_row || !e->row_gen || !e->row_at ||
        !e->sample || !e->sampled || !e->scratch)
        return seam_fail(err, SEAM_ENOMEM, "engine: out of memory");
    /* Lowest numbers on top, so that a small load touches little memory. */
    while (e->n_free_pages < rt->n_pages) {
        e->free_page[e->n_free_pages] =
            (int32_t)(rt->n_pages - 1 - e->n_free_pages);
        e->n_free_pages++;
    }
    while (e->n_free_rows < rt->n_rows) {
        e->free_row[e->n_free_rows] =
            (int32_t)(rt->n_rows - 1 - e->n_free_rows);
        e->n_free_rows++;
    }
    atomic_store(&e->stats.pages_total, rt->n_pages);
    e->user_token = seam_tokenizer_id(rt->model.tokenizer, "<|user|>", 8);
    if (!e->config->engine.prefix_bytes)
        return 0;
    e->prefix = seam_prefix_new((uint64_t)e->config->engine.prefix_bytes,
                                page_unref, e);
    return e->prefix ? 0 : seam_fail(err, SEAM_ENOMEM, "engine: out of memory");
}

/* One step of one token through everything, so that what is slow the first time
 * is over, and what is broken is known, before the first request. */
static int engine_warm_up(struct seam_engine *e, struct seam_error *err)
{
    struct seam_sample_row row = { .top_p = 1 };
    struct seam_sample_out out;
    int32_t token = e->n_eos ? e->eos[0] : 0, page = e->free_page[0];
    int32_t logit_row = 0;
    struct seam_step_seq seq = { .token = &token,
                                 .n = 1,
                                 .page = &page,
                                 .n_pages = 1,
                                 .row = e->free_row[0] };
    int rc = seam_runtime_zero_row(e->rt, seq.row, err);

    if (!rc)
        rc = seam_runtime_forward(e->rt, &seq, 1, &logit_row, 1, err);
    if (!rc)
        rc = seam_runtime_sample(e->rt, 0, 1, &row, 0, &out, err);
    if (!rc && out.token < 0)
        rc = seam_fail(err, SEAM_EDATA, "the model's output is not finite");
    return rc ? seam_fail_at(err, "warm-up step") : 0;
}

static int engine_load(struct seam_engine *e, struct seam_error *err)
{
    struct seam_runtime_opts o = {
        .config = e->config,
        .log = e->log,
        .progress = engine_progress,
        .progress_ctx = e,
    };
    struct seam_buf plan = { 0 };
    int rc = seam_runtime_open(&e->rt, &o, err);

    if (rc)
        return rc;
    if (!e->rt->model.tokenizer)
        return seam_fail(err, SEAM_ENOENT, "%s: no tokenizer.json",
                         e->config->model.path);
    engine_find_eos(e);
    engine_read_generation(e);
    rc = seam_vocab_new(&e->vocabulary, e->rt->model.tokenizer,
                        seam_engine_vocab(e), e->eos, e->n_eos, err);
    if (rc)
        return rc;
    rc = engine_alloc(e, err);
    if (!rc)
        rc = engine_warm_up(e, err);
    if (rc)
        return rc;
    seam_runtime_plan(e->rt, &plan);
    if (!plan.failed)
        seam_log(e->log, SEAM_LOG_INFO, "engine", "%s", plan.p);
    seam_buf_release(&plan);
    return 0;
}

/* ---- The thread ---------------------------------------------------------- */

static void engine_abort_all(struct seam_engine *e,
                             const struct seam_error *err)
{
    enum seam_gen_end end = err ? SEAM_GEN_ERROR : SEAM_GEN_ABORT;

    while (e->n_running)
        engine_end_running(e, e->running[e->n_running - 1], end, err);
    for (;;) {
        struct seam_gen *g = NULL;

        pthread_mutex_lock(&e->lock);
        if (e->first)
            g = queue_pop(e);
        pthread_mutex_unlock(&e->lock);
        if (!g)
            break;
        engine_end(e, g, end, err);
    }
    atomic_store_explicit(&e->stats.running, 0, memory_order_relaxed);
}

/* Wait until there is something to do; false when it is to end. */
static bool engine_wait(struct seam_engine *e)
{
    bool go;

    pthread_mutex_lock(&e->lock);
    while (!e->stop && !e->n_running && !e->first)
        pthread_cond_wait(&e->change, &e->lock);
    go = !e->stop;
    pthread_mutex_unlock(&e->lock);
    return go;
}

static void *engine_main(void *arg)
{
    struct seam_engine *e = arg;
    struct seam_error err;
    int rc = engine_load(e, &err);

    pthread_mutex_lock(&e->lock);
    if (rc)
        e->load_err = err;
    atomic_store_explicit(&e->state,
                          rc ? SEAM_ENGINE_FAILED : SEAM_ENGINE_READY,
                          memory_order_release);
    pthread_cond_broadcast(&e->change);
    pthread_mutex_unlock(&e->lock);
    while (!rc && engine_wait(e)) {
        engine_step(e);
        if (seam_engine_state(e) == SEAM_ENGINE_FAILED)
            rc = SEAM_EDEVICE;
    }
    pthread_mutex_lock(&e->lock);
    err = e->load_err;
    pthread_mutex_unlock(&e->lock);
    engine_abort_all(e, rc ? &err : NULL);
    if (!rc)
        engine_set_state(e, SEAM_ENGINE_STOPPED);
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
    pthread_mutex_lock(&e->lock);
    if (seam_engine_state(e) == SEAM_ENGINE_READY)
        atomic_store_explicit(&e->state, SEAM_ENGINE_DRAINING,
                              memory_order_release);
    pthread_cond_broadcast(&e->change);
    pthread_mutex_unlock(&e->lock);
}

void seam_engine_stop(struct seam_engine *e)
{
    pthread_mutex_lock(&e->lock);
    e->stop = true;
    pthread_cond_broadcast(&e->change);
    pthread_mutex_unlock(&e->lock);
    pthread_join(e->thread, NULL);
}

void seam_engine_free(struct seam_engine *e)
{
    if (!e)
        return;
    seam_prefix_free(e->prefix);
    seam_vocab_free(e->vocabulary);
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
    pthread_mutex_destroy(&e->lock);
    free(e);
}
