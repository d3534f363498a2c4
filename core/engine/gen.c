#include "core/engine/gen.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/num.h"

static bool gen_has_bias(const struct seam_gen_params *p)
{
    return p->n_bias || p->min_tokens || p->presence != 0 ||
           p->frequency != 0 || p->repetition != 1;
}

static void gen_free(struct seam_gen *g)
{
    pthread_cond_destroy(&g->news);
    pthread_mutex_destroy(&g->lock);
    free(g->owned);
    free(g->slot);
    free(g->top);
    free(g->history);
    free(g->page);
    seam_matcher_free(g->matcher);
    seam_grammar_unref(g->p.grammar);
    free(g->mask);
    free(g->count_out);
    free(g->mark);
    free(g->listed);
    free(g->add);
    free(g->bias_id);
    free(g->bias_div);
    free(g->bias_add);
    free(g);
}

void seam_gen_unref(struct seam_gen *g)
{
    /* acq_rel: whoever frees sees all that the other side wrote. */
    if (g && atomic_fetch_sub_explicit(&g->refs, 1, memory_order_acq_rel) == 1)
        gen_free(g);
}

/* Copy the arrays of *p behind each other into memory of our own. */
static bool gen_own(struct seam_gen *g, const struct seam_gen_params *p)
{
    size_t prompt = p->n_prompt * sizeof *p->prompt;
    size_t bias = p->n_bias * sizeof *p->bias;
    size_t stop = p->n_stop * sizeof *p->stop;
    size_t salt = p->cache_salt ? strlen(p->cache_salt) + 1 : 0;
    char *m = malloc(prompt + bias + stop + salt + 1);

    if (!m)
        return false;
    g->owned = m;
    g->p = *p;
    g->p.grammar = p->grammar ? seam_grammar_ref(p->grammar) : NULL;
    memcpy(m, p->prompt, prompt);
    g->p.prompt = (int32_t *)m;
    if (bias)
        memcpy(m + prompt, p->bias, bias);
    g->p.bias = (struct seam_bias *)(m + prompt);
    if (stop)
        memcpy(m + prompt + bias, p->stop, stop);
    g->p.stop = (int32_t *)(m + prompt + bias);
    if (salt)
        g->p.cache_salt = memcpy(m + prompt + bias + stop, p->cache_salt, salt);
    return !salt || seam_disk_sum(p->cache_salt, salt - 1, NULL, 0, g->salt);
}

/* Wait on news by the monotonic clock, which nobody sets back. */
static bool gen_init_sync(struct seam_gen *g)
{
    pthread_condattr_t attr;
    bool ok;

    if (pthread_condattr_init(&attr))
        return false;
    ok = !pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) &&
         !pthread_cond_init(&g->news, &attr);
    pthread_condattr_destroy(&attr);
    if (ok && pthread_mutex_init(&g->lock, NULL)) {
        pthread_cond_destroy(&g->news);
        ok = false;
    }
    return ok;
}

static bool gen_alloc(struct seam_gen *g, uint32_t vocab, uint32_t max_pages)
{
    const struct seam_gen_params *p = &g->p;
    uint64_t total = (uint64_t)p->n_prompt + p->max_tokens;

    g->n_prompt_slots = p->prompt_logprobs ? p->n_prompt - 1 : 0;
    g->n_slots = g->n_prompt_slots + p->max_tokens;
    g->slot = calloc(g->n_slots, sizeof *g->slot);
    g->history = malloc(total * sizeof *g->history);
    g->page = malloc(((uint64_t)max_pages + 1) * sizeof *g->page);
    if (!g->slot || !g->history || !g->page)
        return false;
    if (p->n_top) {
        g->top = calloc((size_t)g->n_slots * p->n_top, sizeof *g->top);
        if (!g->top)
            return false;
    }
    memcpy(g->history, p->prompt, p->n_prompt * sizeof *g->history);
    g->n_history = p->n_prompt;
    if (!gen_has_bias(p))
        return true;
    g->count_out = calloc(vocab, sizeof *g->count_out);
    g->mark = calloc(vocab, sizeof *g->mark);
    g->listed = calloc(vocab, sizeof *g->listed);
    g->add = calloc(vocab, sizeof *g->add);
    g->bias_id = calloc(vocab, sizeof *g->bias_id);
    g->bias_div = calloc(vocab, sizeof *g->bias_div);
    g->bias_add = calloc(vocab, sizeof *g->bias_add);
    return g->count_out && g->mark && g->listed && g->add && g->bias_id &&
           g->bias_div && g->bias_add;
}

static void gen_list(struct seam_gen *g, int32_t id, uint8_t mark)
{
    if (!g->mark[id])
        g->listed[g->n_listed++] = id;
    g->mark[id] |= GEN_LISTED | mark;
}

void seam_gen_count(struct seam_gen *g, int32_t id)
{
    if (!g->count_out)
        return;
    gen_list(g, id, 0);
    g->count_out[id]++;
}

struct seam_gen *seam_gen_new(struct seam_engine *e,
                              const struct seam_gen_params *p, uint32_t vocab,
                              uint32_t max_pages, struct seam_error *err)
{
    struct seam_gen *g = calloc(1, sizeof *g);

    if (!g || !gen_init_sync(g)) {
        free(g);
        seam_fail(err, SEAM_ENOMEM, "request: out of memory");
        return NULL;
    }
    g->engine = e;
    g->refs = 1;
    g->row = -1;
    if (!gen_own(g, p) || !gen_alloc(g, vocab, max_pages)) {
        gen_free(g);
        seam_fail(err, SEAM_ENOMEM, "request: out of memory");
        return NULL;
    }
    if (g->p.grammar) {
        g->constrained = p->grammar_after < 0;
        if (seam_matcher_new(&g->matcher, g->p.grammar, err)) {
            gen_free(g);
            return NULL;
        }
        g->mask = calloc(seam_matcher_words(g->matcher), sizeof *g->mask);
        if (!g->mask) {
            gen_free(g);
            seam_fail(err, SEAM_ENOMEM, "request: out of memory");
            return NULL;
        }
    }
    g->info.n_prompt = p->n_prompt;
    if (g->add) {
        for (uint32_t i = 0; i < p->n_bias; i++) {
            g->add[p->bias[i].id] = p->bias[i].add;
            gen_list(g, p->bias[i].id, 0);
        }
        for (uint32_t i = 0; i < p->n_prompt && p->repetition != 1; i++)
            gen_list(g, p->prompt[i], GEN_IN_PROMPT);
    }
    return g;
}

bool seam_gen_is_over(const struct seam_gen *g, uint64_t now)
{
    return atomic_load_explicit(&g->cancelled, memory_order_relaxed) ||
           (g->deadline_ns && now >= g->deadline_ns);
}

enum seam_gen_end seam_gen_over_end(const struct seam_gen *g, uint64_t now)
{
    return g->deadline_ns && now >= g->deadline_ns ? SEAM_GEN_TIMEOUT
                                                   : SEAM_GEN_ABORT;
}

void seam_gen_put(struct seam_gen *g, int32_t id, float logprob,
                  const int32_t *top_id, const float *top_logprob,
                  uint32_t n_top, bool from_prompt, uint64_t now)
{
    pthread_mutex_lock(&g->lock);
    if (g->n_put < g->n_slots) {
        g->slot[g->n_put] = (struct gen_slot){ id, logprob };
        for (uint32_t k = 0; k < g->p.n_top; k++)
            g->top[(size_t)g->n_put * g->p.n_top + k] =
                k < n_top ? (struct gen_top){ top_id[k], top_logprob[k] }
                          : (struct gen_top){ -1, -INFINITY };
        g->n_put++;
    }
    if (!from_prompt) {
        g->info.n_generated++;
        if (!g->info.first_ns)
            g->info.first_ns = now;
    }
    pthread_cond_signal(&g->news);
    pthread_mutex_unlock(&g->lock);
}

void seam_gen_finish(struct seam_gen *g, enum seam_gen_end end,
                     const struct seam_error *err, uint64_t now)
{
    pthread_mutex_lock(&g->lock);
    if (g->info.end == SEAM_GEN_RUNNING) {
        g->info.end = end;
        g->info.ended_ns = now;
        if (err)
            g->info.err = *err;
    }
    pthread_cond_broadcast(&g->news);
    pthread_mutex_unlock(&g->lock);
}

/* Ban `id` for this token: it is either in the list already, or added to it. */
static uint32_t gen_ban(struct seam_gen *g, uint32_t n, int32_t id)
{
    for (uint32_t i = 0; i < n; i++)
        if (g->bias_id[i] == id) {
            g->bias_add[i] = -INFINITY;
            return n;
        }
    g->bias_id[n] = id;
    g->bias_div[n] = 1;
    g->bias_add[n] = -INFINITY;
    return n + 1;
}

static bool gen_is_in(const int32_t *ids, uint32_t n, int32_t id)
{
    for (uint32_t i = 0; i < n; i++)
        if (ids[i] == id)
            return true;
    return false;
}

/* Does the constraint leave nothing but stop tokens? */
static bool gen_must_end(const struct seam_gen *g, const int32_t *eos,
                         uint32_t n_eos)
{
    if (!g->constrained)
        return false;
    for (uint32_t i = 0; i < seam_matcher_words(g->matcher); i++)
        for (uint32_t x = g->mask[i]; x; x &= x - 1) {
            int32_t id = (int32_t)(32 * i + (uint32_t)__builtin_ctz(x));

            if (!gen_is_in(eos, n_eos, id) &&
                !gen_is_in(g->p.stop, g->p.n_stop, id))
                return false;
        }
    return true;
}

const uint32_t *seam_gen_mask(struct seam_gen *g, const int32_t *eos,
                              uint32_t n_eos)
{
    uint32_t vocab = seam_engine_vocab(g->engine);

    if (!g->matcher)
        return NULL;
    if (g->constrained)
        return seam_matcher_mask(g->matcher, g->mask, &g->step_err) ? NULL
                                                                    : g->mask;
    memset(g->mask, 0xff, vocab / 32 * sizeof *g->mask);
    if (vocab % 32)
        g->mask[vocab / 32] = (1u << vocab % 32) - 1;
    for (uint32_t i = 0; i < n_eos && !g->p.ignore_eos; i++)
        g->mask[eos[i] / 32] &= ~(1u << eos[i] % 32);
    for (uint32_t i = 0; i < g->p.n_stop; i++)
        g->mask[g->p.stop[i] / 32] &= ~(1u << g->p.stop[i] % 32);
    return g->mask;
}

uint32_t seam_gen_bias(struct seam_gen *g, const int32_t *eos, uint32_t n_eos)
{
    const struct seam_gen_params *p = &g->p;
    uint32_t n = 0, n_out = g->n_history - p->n_prompt;

    if (!g->count_out)
        return 0;
    for (uint32_t i = 0; i < g->n_listed; i++) {
        int32_t id = g->listed[i];
        float count = (float)g->count_out[id];
        bool repeated = count > 0 || (g->mark[id] & GEN_IN_PROMPT);

        g->bias_id[n] = id;
        g->bias_div[n] = repeated ? p->repetition : 1;
        g->bias_add[n] =
            g->add[id] - p->frequency * count - (count > 0 ? p->presence : 0);
        n++;
    }
    if (n_out >= p->min_tokens || gen_must_end(g, eos, n_eos))
        return n;
    for (uint32_t i = 0; i < n_eos && !p->ignore_eos; i++)
        n = gen_ban(g, n, eos[i]);
    for (uint32_t i = 0; i < p->n_stop; i++)
        n = gen_ban(g, n, p->stop[i]);
    return n;
}

/* ---- The reader's side --------------------------------------------------- */

static void gen_copy_out(const struct seam_gen *g, uint32_t i,
                         struct seam_gen_token *t)
{
    t->id = g->slot[i].id;
    t->logprob = g->slot[i].logprob;
    t->from_prompt = i < g->n_prompt_slots;
    t->n_top = 0;
    for (uint32_t k = 0; k < g->p.n_top; k++) {
        const struct gen_top *top = &g->top[(size_t)i * g->p.n_top + k];

        if (top->id < 0)
            break;
        t->top_id[k] = top->id;
        t->top_logprob[k] = top->logprob;
        t->n_top++;
    }
}

/* The deadline holds for the reader even when the engine hangs and does not
 * look at it.  Under g's lock. */
static void gen_expire(struct seam_gen *g)
{
    uint64_t now = seam_now_ns();

    if (!g->deadline_ns || now < g->deadline_ns ||
        g->info.end != SEAM_GEN_RUNNING)
        return;
    g->info.end = SEAM_GEN_TIMEOUT;
    g->info.ended_ns = now;
}

uint32_t seam_gen_take(struct seam_gen *g, int64_t timeout_ms,
                       struct seam_gen_token *out, uint32_t cap, bool *ended)
{
    uint64_t until = timeout_ms < 0
                         ? UINT64_MAX
                         : seam_now_ns() + (uint64_t)timeout_ms * 1000000u;
    struct timespec at;
    uint32_t n = 0;

    if (g->deadline_ns && g->deadline_ns < until)
        until = g->deadline_ns;
    at = (struct timespec){ .tv_sec = (time_t)(until / 1000000000u),
                            .tv_nsec = (long)(until % 1000000000u) };
    pthread_mutex_lock(&g->lock);
    while (g->n_taken == g->n_put && g->info.end == SEAM_GEN_RUNNING) {
        if (until == UINT64_MAX)
            pthread_cond_wait(&g->news, &g->lock);
        else if (pthread_cond_timedwait(&g->news, &g->lock, &at) == ETIMEDOUT)
            break;
    }
    gen_expire(g);
    while (n < cap && g->n_taken < g->n_put)
        gen_copy_out(g, g->n_taken++, &out[n++]);
    *ended = g->info.end != SEAM_GEN_RUNNING && g->n_taken == g->n_put;
    pthread_mutex_unlock(&g->lock);
    return n;
}

void seam_gen_info(struct seam_gen *g, struct seam_gen_info *out)
{
    pthread_mutex_lock(&g->lock);
    *out = g->info;
    pthread_mutex_unlock(&g->lock);
}

void seam_gen_cancel(struct seam_gen *g)
{
    /* relaxed: the scheduler looks again before every step. */
    atomic_store_explicit(&g->cancelled, true, memory_order_relaxed);
}

void seam_gen_free(struct seam_gen *g)
{
    if (!g)
        return;
    seam_gen_cancel(g);
    seam_gen_unref(g);
}
