/* One step: compute what was chosen, sample, hand out the tokens. */
#include <math.h>

#include "core/engine/impl.h"

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
    uint64_t start;
    int rc;

    if (!n)
        return 0;
    for (uint32_t i = 0; i < n; i++) {
        struct seam_gen *g = e->row_gen[i];
        /* What goes wrong here concerns this one: see engine_deliver. */
        const uint32_t *mask = seam_gen_mask(g, e->eos, e->n_eos);

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
            .mask = mask,
        };
        if (g->p.n_top > n_top)
            n_top = g->p.n_top;
    }
    start = seam_now_ns();
    atomic_store_explicit(&e->sampling, true, memory_order_relaxed);
    rc = seam_runtime_sample(e->rt, 0, n, e->sample, n_top, e->sampled, err);
    atomic_store_explicit(&e->sampling, false, memory_order_relaxed);
    if (e->timeline)
        seam_timeline_span(e->timeline, SEAM_LANE_ROLE + SEAM_ROLE_BACKEND,
                           "sample", -1, start, seam_now_ns());
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

    if (g->step_err.code) {
        *err = g->step_err;
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

static void engine_fail(struct seam_engine *e, struct seam_gen *g,
                        const struct seam_error *err)
{
    struct seam_error why = *err; /* g may go with it */

    seam_log(e->log, SEAM_LOG_ERROR, "engine", "%s, at token %u of a request",
             why.text, g->n_done);
    seam_engine_end_running(e, g, SEAM_GEN_ERROR, &why);
}

/* Nothing is known against what the step made of g. */
static bool engine_is_sound(const struct seam_engine *e,
                            const struct seam_gen *g, uint32_t n_sample)
{
    for (uint32_t i = 0; i < n_sample; i++)
        if (e->row_gen[i] == g && e->sampled[i].token < 0)
            return false;
    return !g->step_err.code;
}

/* Give g the token that was chosen for it, and end it if that was its last. */
static void engine_deliver(struct seam_engine *e, struct seam_gen *g,
                           const struct seam_sample_out *s, uint64_t now)
{
    uint32_t n_out = g->n_history - g->p.n_prompt + 1;
    struct seam_error err;

    if (engine_judge(g, s, &err)) {
        engine_fail(e, g, &err);
        return;
    }
    engine_clock(e, g, now);
    g->history[g->n_history++] = s->token;
    seam_tenant_charge(g, 0, 1);
    seam_gen_count(g, s->token);
    seam_gen_put(g, s->token, s->logprob, s->top_id, s->top_logprob, g->p.n_top,
                 false, now);
    if (engine_is_stop(e, g, s->token) ||
        (g->constrained && seam_matcher_ended(g->matcher)))
        seam_engine_end_running(e, g, SEAM_GEN_STOP, NULL);
    else if (n_out >= g->p.max_tokens)
        seam_engine_end_running(e, g, SEAM_GEN_LENGTH, NULL);
}

/* The step failed: its requests end, everybody else goes on.  A lost device or
 * lost weights end everything. */
static void engine_step_failed(struct seam_engine *e, uint32_t n_seqs, int rc,
                               const struct seam_error *err)
{
    seam_log(e->log, SEAM_LOG_ERROR, "engine", "step failed: %s", err->text);
    for (uint32_t i = 0; i < n_seqs; i++)
        seam_engine_end_running(e, e->seq_gen[i], SEAM_GEN_ERROR, err);
    if (rc != SEAM_EDEVICE)
        return;
    pthread_mutex_lock(&e->lock);
    e->load_err = *err;
    pthread_mutex_unlock(&e->lock);
    seam_engine_set_state(e, SEAM_ENGINE_FAILED);
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
    for (uint32_t i = 0, t = 0; i < n_seqs && !rc; t += e->seq[i++].n)
        seam_runtime_check_rows(e->rt, t, e->seq[i].n,
                                &e->seq_gen[i]->step_err);
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
    /* What is not finite is lost before its prompt ends, and never kept. */
    for (uint32_t i = 0; i < n_seqs; i++) {
        struct seam_gen *g = e->seq_gen[i];

        if (g->step_err.code && g->n_done < g->n_history)
            engine_fail(e, g, &g->step_err);
        else if (g->at_cut && engine_is_sound(e, g, n_sample))
            seam_engine_snapshot(e, g);
    }
    for (uint32_t i = 0; i < n_sample; i++)
        engine_deliver(e, e->row_gen[i], &e->sampled[i], seam_now_ns());
    return 0;
}

/* Called by the model at each of its calls: the one before has ended. */
static void engine_watch(void *ctx, enum seam_glm5_call call, uint32_t layer)
{
    struct seam_engine *e = ctx;
    enum seam_role role = seam_engine_role(e->call);
    uint64_t now = seam_now_ns();

    if (e->call != SEAM_GLM5_IDLE)
        seam_timeline_span(e->timeline, SEAM_LANE_ROLE + role,
                           e->rt->inst[role]->host.name, (int32_t)e->call_layer,
                           e->call_ns, now);
    e->call = call;
    e->call_layer = layer;
    e->call_ns = now;
}

void seam_engine_step(struct seam_engine *e)
{
    struct seam_stats *s = &e->stats;
    uint64_t now = seam_now_ns();
    struct seam_error err;
    uint32_t n_seqs, n_tokens = 0;
    uint64_t start;
    int rc;

    for (uint32_t i = 0; i < e->n_running;) {
        struct seam_gen *g = e->running[i];

        if (seam_gen_is_over(g, now))
            seam_engine_end_running(e, g, seam_gen_over_end(g, now), NULL);
        else
            i++;
    }
    seam_engine_settle_loads(e);
    seam_engine_admit(e);
    n_seqs = seam_engine_choose(e);
    atomic_store_explicit(&s->running, e->n_running, memory_order_relaxed);
    if (!n_seqs) {
        seam_engine_await_load(e);
        return;
    }
    for (uint32_t i = 0; i < n_seqs; i++)
        n_tokens += e->seq[i].n;
    start = seam_now_ns();
    if (e->timeline)
        seam_glm5_next_watch(e->rt->net, engine_watch, e);
    rc = engine_compute(e, n_seqs, &err);
    if (rc)
        engine_step_failed(e, n_seqs, rc, &err);
    atomic_fetch_add_explicit(&s->steps, 1, memory_order_relaxed);
    seam_hist_observe(&s->step_tokens, n_tokens);
    atomic_store_explicit(&s->running, e->n_running, memory_order_relaxed);
    seam_engine_moved(e, seam_now_ns());
    if (e->timeline)
        seam_timeline_step(e->timeline, n_seqs, n_tokens, start, seam_now_ns());
}
