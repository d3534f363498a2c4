/* What the engine does once, before the first request. */
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "core/engine/impl.h"
#include "core/engine/swap.h"

static void engine_add_eos(struct seam_engine *e, int32_t id)
{
    if (id < 0 || e->n_eos == SEAM_ENGINE_MAX_EOS)
        return;
    for (uint32_t i = 0; i < e->n_eos; i++)
        if (e->eos[i] == id)
            return;
    e->eos[e->n_eos++] = id;
}

/* eos_token_id of generation_config.json: an id or a list of them. */
static int engine_add_eos_json(struct seam_engine *e, const json_t *v,
                               struct seam_error *err)
{
    size_t n = json_is_array(v) ? json_array_size(v) : 1;

    for (size_t i = 0; i < n; i++) {
        const json_t *item = json_is_array(v) ? json_array_get(v, i) : v;
        json_int_t id = json_integer_value(item);

        if (!json_is_integer(item) || id < 0)
            continue;
        if (id >= seam_engine_vocab(e))
            return seam_fail(err, SEAM_EDATA,
                             "%s/generation_config.json: eos_token_id: is "
                             "%lld, expected 0 to %u",
                             e->config->model.path, (long long)id,
                             seam_engine_vocab(e) - 1);
        engine_add_eos(e, (int32_t)id);
    }
    return 0;
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
static int engine_read_generation(struct seam_engine *e,
                                  struct seam_error *error)
{
    struct seam_str text;
    struct seam_error err;
    json_t *root = NULL;
    int rc;

    if (!seam_checkpoint_file(e->rt->model.checkpoint, "generation_config.json",
                              &text, &err)) {
        root =
            seam_json_parse(text.p, text.n, "generation_config.json", 0, &err);
        if (!root)
            seam_log(e->log, SEAM_LOG_WARN, "engine", "%s", err.text);
    }
    rc = engine_add_eos_json(e, json_object_get(root, "eos_token_id"), error);
    e->temperature = engine_number(root, "temperature", 0, 2, 1.0f);
    e->top_p = engine_number(root, "top_p", 1e-6, 1, 0.95f);
    if (json_is_false(json_object_get(root, "do_sample")))
        e->temperature = 0;
    json_decref(root);
    return rc;
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
                                seam_page_unref, e);
    if (!e->prefix)
        return seam_fail(err, SEAM_ENOMEM, "engine: out of memory");
    return seam_engine_open_disk(e, err);
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

int seam_engine_load(struct seam_engine *e, struct seam_error *err)
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
    rc = engine_read_generation(e, err);
    if (!rc)
        rc = seam_vocab_new(&e->vocabulary, e->rt->model.tokenizer,
                            seam_engine_vocab(e), e->eos, e->n_eos, err);
    if (!rc)
        rc = seam_vocab_warm(e->vocabulary, err);
    if (!rc)
        rc = seam_compiled_new(&e->compiled, e->vocabulary,
                               (uint64_t)e->config->engine.grammar_bytes, err);
    if (rc)
        return rc;
    rc = engine_alloc(e, err);
    if (!rc)
        rc = engine_warm_up(e, err);
    if (rc)
        return rc;
    if (e->config->engine.trace)
        rc = seam_timeline_open(&e->timeline, e->config->engine.trace, e->log,
                                err);
    if (rc)
        return rc;
    rc = seam_swapper_open(e, err);
    if (rc)
        return rc;
    seam_runtime_plan(e->rt, &plan);
    if (!plan.failed)
        seam_log(e->log, SEAM_LOG_INFO, "engine", "%s", plan.p);
    seam_buf_release(&plan);
    return 0;
}
