/* Who runs: the waiting are admitted while rows and pages last, and who matters
 * least is preempted when they run out.  What a step is made of. */
#include "core/engine/impl.h"

/* ---- Preemption ---------------------------------------------------------- */

void seam_engine_preempt(struct seam_engine *e, struct seam_gen *g)
{
    seam_engine_evict(e, g);
    atomic_fetch_add_explicit(&e->stats.preemptions, 1, memory_order_relaxed);
    pthread_mutex_lock(&e->lock);
    seam_queue_return(e, g);
    pthread_mutex_unlock(&e->lock);
}

/* Make sure g has pages for `tokens` tokens, at the cost of those after it in
 * running; false when g itself had to go. */
static bool engine_reserve(struct seam_engine *e, struct seam_gen *g,
                           uint32_t tokens)
{
    uint32_t want = seam_engine_pages_for(e, tokens);

    while (g->n_pages < want) {
        struct seam_gen *last;

        if (seam_page_make_room(e, 1)) {
            g->page[g->n_pages++] = seam_page_take(e);
            continue;
        }
        last = e->running[e->n_running - 1];
        seam_engine_preempt(e, last);
        if (last == g)
            return false;
    }
    return true;
}

/* Preempt for g, which waits and needs a row and `pages`, the last of the
 * running, if its priority is lower and it is of any use; false if not.  Who is
 * equal is never preempted for one who waits: work would be done twice for
 * nothing. */
static bool engine_displace(struct seam_engine *e, const struct seam_gen *g,
                            uint32_t pages)
{
    uint32_t free = e->n_free_pages;
    struct seam_gen *last;

    if (!e->n_running)
        return false;
    last = e->running[e->n_running - 1];
    if (last->urgency <= g->urgency)
        return false;
    for (uint32_t i = e->n_running;
         i && e->running[i - 1]->urgency > g->urgency; i--)
        free += e->running[i - 1]->n_pages;
    if (free < pages)
        return false;
    /* For a row alone nothing of it need be lost. */
    if (e->n_free_pages >= pages)
        seam_engine_snapshot(e, last);
    seam_engine_preempt(e, last);
    return true;
}

/* ---- Admission ----------------------------------------------------------- */

/* g gets its row and place among the running. */
static void engine_enter(struct seam_engine *e, struct seam_gen *g)
{
    uint64_t now = seam_now_ns();
    uint32_t at;

    g->row = e->free_row[--e->n_free_rows];
    /* running stays in order of priority, then arrival, also after a
     * preemption: the last is preempted first. */
    for (at = e->n_running; at; at--) {
        const struct seam_gen *b = e->running[at - 1];

        if (b->urgency < g->urgency ||
            (b->urgency == g->urgency && b->order < g->order))
            break;
        e->running[at] = e->running[at - 1];
    }
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

/* While plugins wait for the running ones to end nothing new begins; what was
 * preempted has begun. */
static bool engine_holds(const struct seam_engine *e, const struct seam_gen *g)
{
    return atomic_load_explicit(&e->hold, memory_order_relaxed) &&
           !g->info.started_ns;
}

/* The next to run if there is a row and, snapshots aside, room for what is
 * known of it and one more token.  Nobody overtakes one for whom there is none:
 * a long prompt would wait for ever. */
static struct seam_gen *engine_next(struct seam_engine *e)
{
    struct seam_gen *g;
    uint32_t pages;
    bool fits;

    do {
        pthread_mutex_lock(&e->lock);
        g = seam_queue_peek(e);
        if (g && engine_holds(e, g))
            g = NULL;
        pages = g ? seam_engine_pages_for(e, g->n_history + 1) : 0;
        fits = g && e->n_free_rows && seam_page_make_room(e, pages);
        if (fits)
            seam_queue_pop(e);
        pthread_mutex_unlock(&e->lock);
        /* Only this thread takes from the queue, so that g is the same. */
    } while (g && !fits && engine_displace(e, g, pages));
    return fits ? g : NULL;
}

static void engine_end_waiting(struct seam_engine *e, uint64_t now)
{
    struct seam_gen *over = NULL, *g;

    pthread_mutex_lock(&e->lock);
    while ((g = seam_queue_pop_over(e, now))) {
        g->next = over;
        over = g;
    }
    pthread_mutex_unlock(&e->lock);
    while (over) {
        g = over;
        over = g->next;
        seam_engine_end(e, g, seam_gen_over_end(g, now), NULL);
    }
}

/* Move waiting generations to running while rows and pages last. */
void seam_engine_admit(struct seam_engine *e)
{
    struct seam_error err;
    struct seam_gen *g;

    engine_end_waiting(e, seam_now_ns());
    while ((g = engine_next(e))) {
        bool first = !g->info.started_ns;

        engine_enter(e, g);
        if (seam_engine_resume(e, g, &err)) {
            seam_engine_end_running(e, g, SEAM_GEN_ERROR, &err);
            continue;
        }
        if (first)
            seam_tenant_charge(g, g->p.n_prompt - g->info.n_cached, 0);
        /* The pages it was admitted for are its own at once, so that the next
         * admission does not count on them. */
        engine_reserve(e, g, g->n_history);
    }
}

/* ---- Choosing a step ----------------------------------------------------- */

static bool gen_is_decoding(const struct seam_gen *g)
{
    return g->n_done + 1 == g->n_history && g->n_done >= g->p.n_prompt;
}

/* g with its n_step tokens becomes part of the step. */
static void engine_take(struct seam_engine *e, struct seam_gen *g,
                        uint32_t *n_seqs)
{
    e->seq_gen[*n_seqs] = g;
    e->seq[(*n_seqs)++] = (struct seam_step_seq){
        .token = g->history + g->n_done,
        .n = g->n_step,
        .pos = g->n_done,
        .page = g->page,
        .n_pages = g->n_pages,
        .row = g->row,
        .n_accept = g->n_accept,
    };
}

/* How much of its prompt g can do in this step. */
static uint32_t engine_want(struct seam_engine *e, struct seam_gen *g,
                            uint32_t *score)
{
    uint32_t n = seam_engine_until_cut(e, g);

    g->at_cut = g->n_done + n <= g->p.n_prompt;
    if (g->n_prompt_scored < g->n_prompt_slots) {
        if (n > *score) {
            n = *score;
            g->at_cut = false;
        }
        *score -= n;
    }
    return n;
}

static bool gen_is_shorter(const struct seam_gen *a, const struct seam_gen *b)
{
    uint32_t left_a = a->n_history - a->n_done;
    uint32_t left_b = b->n_history - b->n_done;

    return left_a != left_b ? left_a < left_b : a->order < b->order;
}

/* Share out up to n tokens among running[from, to), first to whom `before`
 * places first.  Returns how many were taken. */
static uint32_t engine_deal(struct seam_engine *e, uint32_t from, uint32_t to,
                            uint32_t n,
                            bool (*before)(const struct seam_gen *a,
                                           const struct seam_gen *b))
{
    uint32_t taken = 0;

    while (taken < n) {
        struct seam_gen *next = NULL;
        uint32_t more;

        for (uint32_t i = from; i < to; i++) {
            struct seam_gen *g = e->running[i];

            if (g->n_step < g->n_want && (!next || before(g, next)))
                next = g;
        }
        if (!next)
            break;
        more = next->n_want - next->n_step;
        if (more > n - taken)
            more = n - taken;
        next->n_step += more;
        taken += more;
    }
    return taken;
}

/* Prompts of one priority: half the tokens go to whoever is served first, so
 * that a long prompt always gets on, half to whoever has the least left, so
 * that a short one does not wait for it. */
static uint32_t engine_deal_prompts(struct seam_engine *e, uint32_t from,
                                    uint32_t to, uint32_t budget)
{
    uint32_t taken =
        engine_deal(e, from, to, (budget + 1) / 2, seam_gen_serves_before);

    return taken + engine_deal(e, from, to, budget - taken, gen_is_shorter);
}

/* Choose the step: every sequence that decodes, then prompts by priority, as
 * in Sarathi-Serve (Agrawal et al., OSDI 2024): prompts are cut to what is left
 * of the step's tokens, and never hold up those that decode.  Returns how many
 * sequences. */
uint32_t seam_engine_choose(struct seam_engine *e)
{
    uint32_t budget = e->rt->limits.max_tokens, n_seqs = 0, to;
    uint32_t score = e->rt->max_logit_rows - e->rt->limits.max_seqs;

    for (uint32_t i = 0; i < e->n_running;) {
        struct seam_gen *g = e->running[i];

        if (!gen_is_decoding(g) || engine_reserve(e, g, g->n_history))
            i++;
    }
    for (uint32_t i = 0; i < e->n_running; i++) {
        struct seam_gen *g = e->running[i];

        g->n_step = g->n_want = 0;
        g->at_cut = false;
        if (gen_is_decoding(g)) {
            g->n_step = 1;
            budget--;
        } else if (!g->load) {
            g->n_want = engine_want(e, g, &score);
        }
    }
    for (uint32_t from = 0; from < e->n_running && budget; from = to) {
        int32_t priority = e->running[from]->urgency;

        for (to = from;
             to < e->n_running && e->running[to]->urgency == priority; to++)
            ;
        budget -= engine_deal_prompts(e, from, to, budget);
    }
    for (uint32_t i = 0; i < e->n_running; i++) {
        struct seam_gen *g = e->running[i];

        g->at_cut = g->at_cut && g->n_step == g->n_want;
        if (g->n_step)
            engine_take(e, g, &n_seqs);
    }
    return n_seqs;
}
