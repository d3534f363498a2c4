/* Who waits: submissions, in what order they are served, and what each tenant
 * has had so far.
 *
 * Within a priority tenants take turns by the tokens they were served: Virtual
 * Token Counters (Sheng et al., OSDI 2024).  A prompt counts when it is
 * admitted, as far as it was not cached, an answer as it is made, twice, since
 * it holds its row for a step per token.  Whoever comes back after a pause is
 * lifted to the least of those who are there: a pause saves nothing up. */
#include <math.h>
#include <stdlib.h>

#include "core/engine/impl.h"

/* Of an answer's token against a prompt's. */
#define WEIGHT_OUT 2

/* Tenants that are gone are remembered up to so many, for their debts. */
#define MAX_IDLE_TENANTS 1024

/* ---- Tenants (under lock) ------------------------------------------------ */

static struct seam_tenant **tenant_bucket(struct seam_engine *e, uint64_t key)
{
    return &e->tenant[key % SEAM_TENANT_BUCKETS];
}

/* The least served of those who wait or run; without any, what the last one had
 * when it left. */
static uint64_t tenant_floor(const struct seam_engine *e)
{
    uint64_t least = UINT64_MAX;

    for (size_t i = 0; i < SEAM_TENANT_BUCKETS; i++)
        for (struct seam_tenant *t = e->tenant[i]; t; t = t->next) {
            uint64_t served =
                atomic_load_explicit(&t->served, memory_order_relaxed);

            if (t->n_gens && served < least)
                least = served;
        }
    return least == UINT64_MAX ? e->served_last : least;
}

/* Forget who is gone and owes nothing, and if that is not enough all who are
 * gone. */
static void tenant_sweep(struct seam_engine *e, uint64_t floor)
{
    for (int all = 0; all < 2 && e->n_idle_tenants >= MAX_IDLE_TENANTS; all++)
        for (size_t i = 0; i < SEAM_TENANT_BUCKETS; i++)
            for (struct seam_tenant **p = &e->tenant[i]; *p;) {
                struct seam_tenant *t = *p;

                if (t->n_gens || (!all && t->served > floor)) {
                    p = &t->next;
                    continue;
                }
                *p = t->next;
                free(t);
                e->n_idle_tenants--;
            }
}

static struct seam_tenant *tenant_enter(struct seam_engine *e, uint64_t key)
{
    struct seam_tenant **bucket = tenant_bucket(e, key), *t = *bucket;
    uint64_t floor;

    while (t && t->key != key)
        t = t->next;
    if (t && t->n_gens++)
        return t;
    floor = tenant_floor(e);
    if (t) {
        e->n_idle_tenants--;
        if (t->served < floor)
            t->served = floor;
        return t;
    }
    tenant_sweep(e, floor);
    t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    t->key = key;
    t->served = floor;
    t->n_gens = 1;
    t->next = *bucket;
    *bucket = t;
    return t;
}

static void tenant_leave(struct seam_engine *e, struct seam_tenant *t)
{
    if (--t->n_gens)
        return;
    e->n_idle_tenants++;
    e->served_last = t->served;
}

void seam_queue_free(struct seam_engine *e)
{
    for (size_t i = 0; i < SEAM_TENANT_BUCKETS; i++)
        while (e->tenant[i]) {
            struct seam_tenant *t = e->tenant[i];

            e->tenant[i] = t->next;
            free(t);
        }
}

void seam_tenant_charge(struct seam_gen *g, uint32_t prompt, uint32_t out)
{
    /* relaxed: only the engine's thread adds, and while g is there nobody
     * else writes. */
    atomic_fetch_add_explicit(&g->tenant->served,
                              prompt + (uint64_t)out * WEIGHT_OUT,
                              memory_order_relaxed);
}

/* ---- The waiting queue (under lock) -------------------------------------- */

static void queue_append(struct seam_engine *e, struct seam_gen *g)
{
    g->next = NULL;
    *e->last = g;
    e->last = &g->next;
    atomic_fetch_add_explicit(&e->stats.waiting, 1, memory_order_relaxed);
}

static struct seam_gen *queue_take(struct seam_engine *e, struct seam_gen **p)
{
    struct seam_gen *g = *p;

    *p = g->next;
    if (!g->next)
        e->last = p;
    g->next = NULL;
    atomic_fetch_sub_explicit(&e->stats.waiting, 1, memory_order_relaxed);
    return g;
}

bool seam_gen_serves_before(const struct seam_gen *a, const struct seam_gen *b)
{
    uint64_t served_a, served_b;

    if (a->tenant == b->tenant)
        return a->order < b->order;
    served_a = atomic_load_explicit(&a->tenant->served, memory_order_relaxed);
    served_b = atomic_load_explicit(&b->tenant->served, memory_order_relaxed);
    return served_a != served_b ? served_a < served_b : a->order < b->order;
}

bool seam_gen_before(const struct seam_gen *a, const struct seam_gen *b)
{
    if (a->urgency != b->urgency)
        return a->urgency < b->urgency;
    /* What was begun goes on first, the oldest of it. */
    if (!a->info.started_ns != !b->info.started_ns)
        return a->info.started_ns != 0;
    return a->info.started_ns ? a->order < b->order
                              : seam_gen_serves_before(a, b);
}

static struct seam_gen **queue_best(struct seam_engine *e)
{
    struct seam_gen **best = &e->first;

    for (struct seam_gen **p = &e->first; *p; p = &(*p)->next)
        if (seam_gen_before(*p, *best))
            best = p;
    return best;
}

struct seam_gen *seam_queue_peek(struct seam_engine *e)
{
    return *queue_best(e);
}

/* x is served for the first time.  Of those who came earlier and are less
 * urgent the one who would be next has been overtaken; the others have only
 * kept their place behind it, or all of them would be urgent at once. */
static void queue_age(struct seam_engine *e, const struct seam_gen *x)
{
    uint32_t most = (uint32_t)e->config->engine.max_overtaken;
    struct seam_gen *next = NULL;

    if (!most || x->info.started_ns)
        return;
    for (struct seam_gen *g = e->first; g; g = g->next)
        if (g->urgency > x->urgency && g->order < x->order &&
            (!next || seam_gen_before(g, next)))
            next = g;
    if (next && ++next->n_overtaken >= most)
        next->urgency = x->urgency;
}

struct seam_gen *seam_queue_pop(struct seam_engine *e)
{
    struct seam_gen *g = queue_take(e, queue_best(e));

    queue_age(e, g);
    return g;
}

void seam_queue_return(struct seam_engine *e, struct seam_gen *g)
{
    queue_append(e, g);
}

struct seam_gen *seam_queue_pop_over(struct seam_engine *e, uint64_t now)
{
    for (struct seam_gen **p = &e->first; *p; p = &(*p)->next)
        if (seam_gen_is_over(*p, now))
            return queue_take(e, p);
    return NULL;
}

void seam_queue_leave(struct seam_engine *e, struct seam_gen *g)
{
    pthread_mutex_lock(&e->lock);
    tenant_leave(e, g->tenant);
    pthread_mutex_unlock(&e->lock);
}

uint32_t seam_engine_retry_after_s(const struct seam_engine *e)
{
    double mean =
        (double)atomic_load_explicit(&e->mean_ns, memory_order_relaxed) / 1e9;
    uint32_t waiting =
        atomic_load_explicit(&e->stats.waiting, memory_order_relaxed);
    double s = ceil(mean * waiting / (double)e->config->engine.max_seqs);

    /* Half the queue gone is room enough to come back to. */
    s = ceil(s / 2);
    return s < 1 ? 1 : s > 60 ? 60 : (uint32_t)s;
}

void seam_engine_note_run(struct seam_engine *e, uint64_t ns)
{
    uint64_t mean = atomic_load_explicit(&e->mean_ns, memory_order_relaxed);

    atomic_store_explicit(&e->mean_ns, mean ? mean - mean / 8 + ns / 8 : ns,
                          memory_order_relaxed);
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
    for (uint32_t i = 0; p->grammar && i < p->n_stop; i++)
        if (p->stop[i] == p->grammar_after)
            return seam_fail(err, SEAM_EINVAL,
                             "stop token %d ends the reasoning, after which "
                             "the answer is constrained",
                             p->stop[i]);
    if (!p->max_tokens || p->n_top > SEAM_GEN_MAX_TOP || !(p->repetition > 0))
        return seam_fail(err, SEAM_EINVAL,
                         "max_tokens %u, n_top %u, repetition %g; expected at "
                         "least 1, at most %d, above 0",
                         p->max_tokens, p->n_top, (double)p->repetition,
                         SEAM_GEN_MAX_TOP);
    return 0;
}

/* The request's own limit or the server's, whichever is less; 0: none. */
static uint64_t gen_timeout_ms(const struct seam_engine *e,
                               const struct seam_gen_params *p)
{
    uint64_t most = (uint64_t)e->config->engine.max_request_ms;

    return p->timeout_ms && (!most || p->timeout_ms < most) ? p->timeout_ms
                                                            : most;
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
    seam_engine_choose_cuts(e, g);
    g->info.submitted_ns = seam_now_ns();
    if (gen_timeout_ms(e, p))
        g->deadline_ns = g->info.submitted_ns + gen_timeout_ms(e, p) * 1000000u;

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
    } else if (!(g->tenant = tenant_enter(e, p->tenant))) {
        rc = seam_fail(err, SEAM_ENOMEM, "request: out of memory");
    } else {
        atomic_fetch_add_explicit(&g->refs, 1, memory_order_relaxed);
        g->order = e->arrivals++;
        g->urgency = p->priority;
        queue_append(e, g);
        if (atomic_fetch_add_explicit(&e->active, 1, memory_order_relaxed) == 0)
            seam_engine_moved(e, g->info.submitted_ns);
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
