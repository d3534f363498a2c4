/* Who runs: submissions wait in a queue, are admitted while rows and pages last,
 * and are preempted when pages run out. */
#include "core/engine/impl.h"

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

struct seam_gen *seam_queue_pop(struct seam_engine *e)
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

/* ---- Choosing a step ----------------------------------------------------- */

/* Put the youngest running sequence back to the head of the queue; its tokens
 * are kept and recomputed when it returns. */
static void engine_preempt(struct seam_engine *e, struct seam_gen *g)
{
    seam_engine_evict(e, g);
    atomic_fetch_add_explicit(&e->stats.preemptions, 1, memory_order_relaxed);
    pthread_mutex_lock(&e->lock);
    queue_push_front(e, g);
    pthread_mutex_unlock(&e->lock);
}

/* Make sure g has pages for `tokens` tokens; false when g itself had to go. */
static bool engine_reserve(struct seam_engine *e, struct seam_gen *g,
                           uint32_t tokens)
{
    uint32_t want = seam_engine_pages_for(e, tokens);

    while (g->n_pages < want) {
        struct seam_gen *youngest;

        if (seam_page_make_room(e, 1)) {
            g->page[g->n_pages++] = seam_page_take(e);
            continue;
        }
        youngest = e->running[e->n_running - 1];
        engine_preempt(e, youngest);
        if (youngest == g)
            return false;
    }
    return true;
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
        seam_page_make_room(e,
                            seam_engine_pages_for(e, e->first->n_history + 1)))
        g = seam_queue_pop(e);
    pthread_mutex_unlock(&e->lock);
    return g;
}

/* Move waiting generations to running while rows and pages last. */
void seam_engine_admit(struct seam_engine *e)
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
        seam_engine_end(e, g, SEAM_GEN_ABORT, NULL);
    }
    while ((g = engine_next(e))) {
        engine_enter(e, g);
        if (seam_engine_resume(e, g, &err)) {
            seam_engine_end_running(e, g, SEAM_GEN_ERROR, &err);
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
uint32_t seam_engine_choose(struct seam_engine *e)
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
        uint32_t cut = seam_engine_until_cut(e, g), n = cut;

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
