#include "core/engine/runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/num.h"

/* Rows of logits beyond one per sequence, so that a prompt's own probabilities
 * can be asked for a chunk at a time. */
#define EXTRA_LOGIT_ROWS 48

/* A step's arrays: written in one host block, copied at once to its twin on the
 * device, read back from `answer` after sampling. */
struct runtime_step {
    void *stream;
    char *host, *dev; /* [bytes] each */
    uint64_t bytes;
    char *answer_host, *answer_dev;
    uint64_t answer_bytes;
    struct seam_tensor logits; /* of the last step */
    uint32_t n_rows;
    uint32_t n_mask_words; /* of one row */
    bool has_padding;      /* rows of the head that are no token: mask row 0 */

    /* Offsets in host and dev. */
    uint64_t q_start, kv_len, pos, slot, page_table, state_row, n_accept;
    uint64_t token, logit_row;
    uint64_t temperature, top_p, min_p, top_k, seed, counter;
    uint64_t bias_start, bias_id, bias_div, bias_add, mask, mask_row;
    uint64_t max_bias;
    /* Offsets in answer. */
    uint64_t out_token, out_logprob, out_top_id, out_top_logprob;
};

/* ---- Memory -------------------------------------------------------------- */

static struct seam_memory_source runtime_source(const struct seam_runtime *rt)
{
    return (struct seam_memory_source){ rt->backend,
                                        rt->self[SEAM_ROLE_BACKEND],
                                        rt->step->stream, rt->guards, false };
}

static int runtime_alloc(struct seam_runtime *rt, uint32_t mem, uint64_t bytes,
                         void **out, struct seam_error *err)
{
    struct seam_memory_source s = runtime_source(rt);

    return seam_memory_alloc(&s, mem, bytes, out, err);
}

static void runtime_free(struct seam_runtime *rt, uint32_t mem, void *p)
{
    struct seam_memory_source s = runtime_source(rt);

    seam_memory_free(&s, mem, p);
}

/* ---- A step's arrays ----------------------------------------------------- */

static uint64_t step_place(uint64_t *at, uint64_t n, uint64_t size)
{
    uint64_t offset = *at;

    *at = seam_round_up(offset + n * size, 64);
    return offset;
}

static int runtime_step_open(struct seam_runtime *rt, struct seam_error *err)
{
    struct runtime_step *s = rt->step;
    uint64_t seqs = rt->limits.max_seqs, tokens = rt->limits.max_tokens;
    uint64_t rows = rt->max_logit_rows, at = 0;
    uint32_t vocab = seam_checkpoint_config(rt->model.checkpoint)->vocab;
    uint32_t used =
        rt->model.tokenizer ? seam_tokenizer_size(rt->model.tokenizer) : vocab;
    uint32_t *mask;
    int rc;

    /* Rows of the head above the ids in use are padding and never chosen. */
    s->has_padding = used < vocab;
    s->n_mask_words = (vocab + 31) / 32;
    s->max_bias = rows < seqs ? rows * vocab : seqs * vocab;
    s->q_start = step_place(&at, seqs + 1, 4);
    s->kv_len = step_place(&at, seqs, 4);
    s->pos = step_place(&at, tokens, 4);
    s->slot = step_place(&at, tokens, 4);
    s->page_table = step_place(&at, seqs * rt->max_pages, 4);
    s->state_row = step_place(&at, seqs, 4);
    s->n_accept = step_place(&at, seqs, 4);
    s->token = step_place(&at, tokens, 4);
    s->logit_row = step_place(&at, rows, 4);
    s->temperature = step_place(&at, rows, 4);
    s->top_p = step_place(&at, rows, 4);
    s->min_p = step_place(&at, rows, 4);
    s->top_k = step_place(&at, rows, 4);
    s->seed = step_place(&at, rows, 8);
    s->counter = step_place(&at, rows, 8);
    s->bias_start = step_place(&at, rows + 1, 4);
    s->mask_row = step_place(&at, rows, 4);
    s->mask = step_place(&at, (1 + rows) * s->n_mask_words, 4);
    s->bias_id = step_place(&at, s->max_bias, 4);
    s->bias_div = step_place(&at, s->max_bias, 4);
    s->bias_add = step_place(&at, s->max_bias, 4);
    s->bytes = at;
    at = 0;
    s->out_token = step_place(&at, rows, 4);
    s->out_logprob = step_place(&at, rows, 4);
    s->out_top_id = step_place(&at, rows * SEAM_MAX_TOP, 4);
    s->out_top_logprob = step_place(&at, rows * SEAM_MAX_TOP, 4);
    s->answer_bytes = at;

    rc = runtime_alloc(rt, SEAM_MEM_PINNED, s->bytes, (void **)&s->host, err);
    if (!rc)
        rc =
            runtime_alloc(rt, SEAM_MEM_DEVICE, s->bytes, (void **)&s->dev, err);
    if (!rc)
        rc = runtime_alloc(rt, SEAM_MEM_PINNED, s->answer_bytes,
                           (void **)&s->answer_host, err);
    if (!rc)
        rc = runtime_alloc(rt, SEAM_MEM_DEVICE, s->answer_bytes,
                           (void **)&s->answer_dev, err);
    if (rc)
        return rc;
    mask = (uint32_t *)(s->host + s->mask);
    memset(mask, 0, s->n_mask_words * sizeof *mask);
    for (uint32_t id = 0; id < used; id++)
        mask[id / 32] |= 1u << (id % 32);
    return rt->backend->copy(rt->self[SEAM_ROLE_BACKEND], s->stream,
                             s->dev + s->mask, s->host + s->mask,
                             s->n_mask_words * sizeof *mask, err);
}

/* ---- Opening ------------------------------------------------------------- */

static int runtime_load_plugin(struct seam_runtime *rt, int role,
                               struct seam_error *err)
{
    struct seam_instance_opts o = {
        .home = &rt->instances,
        .config = rt->config,
        .loader = rt->loader,
        .log = rt->log,
        .pool = rt->pool,
    };
    int rc = seam_instance_load(&rt->inst[role], &o, (enum seam_role)role, err);

    if (!rc)
        rt->plugin[role] = rt->inst[role]->plugin;
    return rc;
}

int seam_runtime_create(struct seam_runtime *rt, struct seam_instance *i,
                        struct seam_error *err)
{
    const struct seam_model_config *c =
        seam_checkpoint_config(rt->model.checkpoint);
    bool is_block = i->role >= FIRST_BLOCK && i->role <= LAST_BLOCK;
    uint32_t *layer = is_block ? calloc(SEAM_MAX_LAYERS, sizeof *layer) : NULL;
    uint32_t n = 0;

    if (is_block && !layer)
        return seam_fail(err, SEAM_ENOMEM, "out of memory");
    if (i->role == SEAM_ROLE_LINEAR)
        n = seam_glm5_next_mixers(c, SEAM_LAYER_LINEAR, layer);
    else if (i->role == SEAM_ROLE_SPARSE)
        n = seam_glm5_next_mixers(c, SEAM_LAYER_SPARSE, layer);
    else if (i->role == SEAM_ROLE_MOE)
        n = seam_glm5_next_mlps(c, SEAM_MLP_SPARSE, layer);
    return seam_instance_create(i, layer, n, &rt->limits, &rt->device,
                                &rt->model, err);
}

struct seam_instance *seam_runtime_instance(struct seam_runtime *rt,
                                            enum seam_role role)
{
    struct seam_instance *i;

    pthread_mutex_lock(&rt->instances.lock);
    i = rt->inst[role];
    i->refs++;
    pthread_mutex_unlock(&rt->instances.lock);
    return i;
}

static void runtime_use(struct seam_runtime *rt, struct seam_instance *i)
{
    rt->plugin[i->role] = i->plugin;
    rt->self[i->role] = i->self;
    rt->needs[i->role] = i->needs;
    rt->layers[i->role] = i->layer;
}

static int runtime_create(struct seam_runtime *rt, int role,
                          struct seam_error *err)
{
    int rc = seam_runtime_create(rt, rt->inst[role], err);

    runtime_use(rt, rt->inst[role]);
    return rc;
}

static int runtime_attach(struct seam_runtime *rt, int role,
                          const struct seam_memory_plan *plan,
                          struct seam_error *err)
{
    struct seam_memory_source s = runtime_source(rt);
    struct runtime_grant *g = &rt->memory->block[role];
    int rc = seam_memory_grant(&s, plan, &rt->needs[role], NULL, g, err);

    if (!rc && rt->guards)
        seam_guards_name_grant(rt->guards, rt->inst[role], g);
    return rc ? rc : seam_instance_attach(rt->inst[role], &g->grant, err);
}

static struct seam_block_ref runtime_block(const struct seam_runtime *rt,
                                           int role)
{
    return (struct seam_block_ref){ &rt->plugin[role]->table.block,
                                    rt->self[role] };
}

struct seam_instance *seam_runtime_exchange(struct seam_runtime *rt,
                                            struct seam_instance *i,
                                            const struct runtime_grant *grant,
                                            struct runtime_grant *old)
{
    struct seam_instance *was = rt->inst[i->role];
    struct runtime_grant *g = &rt->memory->block[i->role];

    pthread_mutex_lock(&rt->instances.lock);
    rt->inst[i->role] = i;
    pthread_mutex_unlock(&rt->instances.lock);
    runtime_use(rt, i);
    *old = *g;
    *g = *grant;
    if (rt->guards) {
        struct seam_memory_source s = runtime_source(rt);

        seam_guards_accept_grant(rt->guards, g, &s);
        seam_guards_name_grant(rt->guards, i, g);
    }
    if (i->role == SEAM_ROLE_LINEAR || i->role == SEAM_ROLE_SPARSE ||
        i->role == SEAM_ROLE_MOE)
        seam_glm5_next_replace(rt->net,
                               i->role == SEAM_ROLE_LINEAR   ? SEAM_GLM5_LINEAR
                               : i->role == SEAM_ROLE_SPARSE ? SEAM_GLM5_SPARSE
                                                             : SEAM_GLM5_MOE,
                               runtime_block(rt, (int)i->role));
    return was;
}

static int runtime_open_net(struct seam_runtime *rt,
                            const struct seam_runtime_opts *opts,
                            struct seam_error *err)
{
    struct seam_glm5_next_opts o = {
        .checkpoint = rt->model.checkpoint,
        .backend = rt->backend,
        .backend_self = rt->self[SEAM_ROLE_BACKEND],
        .limits = &rt->limits,
        .device = rt->device.ordinal,
        .max_rows = rt->max_logit_rows,
        .linear = runtime_block(rt, SEAM_ROLE_LINEAR),
        .sparse = runtime_block(rt, SEAM_ROLE_SPARSE),
        .moe = runtime_block(rt, SEAM_ROLE_MOE),
    };

    if (opts->wrap)
        opts->wrap(opts->wrap_ctx, &o);
    return seam_glm5_next_new(&rt->net, &o, err);
}

/* The limits every plugin sizes itself by. */
static int runtime_limits(struct seam_runtime *rt, uint32_t logit_rows,
                          struct seam_error *err)
{
    const struct seam_config *c = rt->config;
    uint32_t most = seam_checkpoint_config(rt->model.checkpoint)->max_context;
    uint64_t want =
        c->model.max_context ? (uint64_t)c->model.max_context : most;

    if (want > most)
        return seam_fail(err, SEAM_EINVAL,
                         "model.max_context is %llu; the checkpoint's "
                         "max_position_embeddings is %u",
                         (unsigned long long)want, most);
    rt->limits = (struct seam_limits){
        .size = sizeof rt->limits,
        .act_dtype = SEAM_F32,
        .max_seqs = (uint32_t)c->engine.max_seqs,
        .max_tokens = (uint32_t)c->engine.max_step_tokens,
        .max_context = (uint32_t)want,
        .tp_size = 1,
    };
    if (rt->limits.max_tokens < rt->limits.max_seqs)
        return seam_fail(err, SEAM_EINVAL,
                         "engine.max_step_tokens is %u; expected at least "
                         "engine.max_seqs, which is %u",
                         rt->limits.max_tokens, rt->limits.max_seqs);
    rt->max_logit_rows =
        logit_rows ? logit_rows : rt->limits.max_seqs + EXTRA_LOGIT_ROWS;
    return 0;
}

struct runtime_opening {
    const struct seam_runtime_opts *opts;
    bool stop;
};

static void runtime_shard_done(void *ctx, uint32_t done, uint32_t total)
{
    struct runtime_opening *o = ctx;

    if (o->opts->progress)
        o->stop |= o->opts->progress(o->opts->progress_ctx, "shards", done,
                                     total) != 0;
}

static int runtime_say(struct runtime_opening *o, const char *what,
                       uint64_t done, uint64_t total, struct seam_error *err)
{
    if (o->opts->progress)
        o->stop |=
            o->opts->progress(o->opts->progress_ctx, what, done, total) != 0;
    return o->stop ? seam_fail(err, SEAM_ESTATE, "loading was interrupted") : 0;
}

static void runtime_parallel(void *ctx, uint32_t n, seam_task *fn, void *arg)
{
    seam_pool_run(ctx, n, fn, arg);
}

/* What weights.dense has made of the layers that were asked for. */
static void runtime_say_dense(const struct seam_runtime *rt)
{
    struct seam_checkpoint_dense d;

    seam_checkpoint_dense(rt->model.checkpoint, &d);
    if (d.bytes)
        seam_log(
            rt->log, SEAM_LOG_INFO, "engine",
            "weights.dense: %llu layers became int4, %llu int8, in %.1f s; "
            "they take %llu MiB beside the files instead of %llu within",
            (unsigned long long)d.n_i4, (unsigned long long)d.n_i8,
            (double)d.ns * 1e-9, (unsigned long long)(d.bytes >> 20),
            (unsigned long long)(d.stored_bytes >> 20));
}

static int runtime_open_model(struct seam_runtime *rt,
                              struct runtime_opening *o, struct seam_error *err)
{
    const struct seam_config *c = rt->config;
    struct seam_tokenizer *tok = NULL;
    char path[4096];
    int rc = seam_checkpoint_open(&rt->model.checkpoint, c->model.path, rt->log,
                                  runtime_shard_done, o, err);

    if (rc)
        return rc;
    seam_checkpoint_quantise(rt->model.checkpoint, c->weights.dense,
                             runtime_parallel, rt->pool);
    snprintf(path, sizeof path, "%s/tokenizer.json", c->model.path);
    rc = seam_tokenizer_open(&tok, path, err);
    if (rc && rc != SEAM_ENOENT)
        return rc;
    rt->model.tokenizer = rc ? NULL : tok;
    rt->model.cfg =
        seam_cfg_new(seam_checkpoint_text_config(rt->model.checkpoint),
                     "config.json", rt->log);
    if (!rt->model.cfg)
        return seam_fail(err, SEAM_ENOMEM, "out of memory");
    return runtime_limits(rt, o->opts->logit_rows, err);
}

/* One warning at each start, whatever the number of plugins. */
static void runtime_warn_unpinned(const struct seam_runtime *rt)
{
    struct seam_buf names = { 0 };

    for (int r = 0; r < SEAM_N_ROLES; r++)
        if (!rt->plugin[r]->pinned)
            seam_buf_fmt(&names, "%s%s", names.n ? ", " : "",
                         rt->inst[r]->host.name);
    if (names.n && !names.failed)
        seam_log(rt->log, SEAM_LOG_WARN, "loader",
                 "not pinned, so any file of these names is accepted: %s; "
                 "seam pin FILE prints the entry that pins one",
                 names.p);
    seam_buf_release(&names);
}

static int runtime_open_plugins(struct seam_runtime *rt,
                                struct runtime_opening *o,
                                struct seam_error *err)
{
    const struct seam_config *c = rt->config;
    struct seam_loader_opts lo = {
        .plugin_dir = c->plugin_dir,
        .plugin_paths = (const char *const *)c->plugin_paths.v,
        .n_plugin_paths = c->plugin_paths.n,
        .log = rt->log,
    };
    void *be;
    int rc = seam_loader_new(&rt->loader, &lo, err);

    for (int r = 0; r < SEAM_N_ROLES && !rc; r++)
        rc = runtime_load_plugin(rt, r, err);
    if (rc)
        return rc;
    runtime_warn_unpinned(rt);
    rt->device = (struct seam_device){
        .size = sizeof rt->device, .ordinal = -1, .arch = "x86-64", .wave = 1
    };
    rc = runtime_create(rt, SEAM_ROLE_BACKEND, err);
    if (rc)
        return rc;
    rt->backend = &rt->plugin[SEAM_ROLE_BACKEND]->table.backend;
    be = rt->self[SEAM_ROLE_BACKEND];
    rc = rt->backend->device(be, &rt->device, err);
    if (!rc)
        rc = rt->backend->stream_new(be, &rt->step->stream, err);
    for (int r = FIRST_BLOCK; r < SEAM_N_ROLES && !rc; r++) {
        rc = runtime_say(o, rt->inst[r]->host.name, (uint64_t)r, SEAM_N_ROLES,
                         err);
        if (!rc)
            rc = runtime_create(rt, r, err);
    }
    return rc;
}

/* Scratch of one call, shared by all instances: the largest wish counts. */
static int runtime_open_memory(struct seam_runtime *rt, struct seam_error *err)
{
    struct seam_memory_plan plan;
    int rc = seam_memory_plan(rt->config, &rt->limits,
                              (const struct seam_instance *const *)rt->inst, 0,
                              &plan, err);

    if (rc)
        return rc;
    rt->page_tokens = plan.page_tokens;
    rt->n_pages = plan.n_pages;
    rt->n_rows = plan.n_rows;
    rt->max_pages = plan.max_pages;
    rt->page_bytes = plan.page_bytes;
    rt->row_bytes = plan.row_bytes;
    if (rt->n_pages < rt->max_pages) {
        seam_log(rt->log, SEAM_LOG_WARN, "engine",
                 "the model was made for %u tokens; engine.cache_bytes holds "
                 "%u, which is the context now",
                 rt->limits.max_context, rt->n_pages * rt->page_tokens);
        rt->limits.max_context = rt->n_pages * rt->page_tokens;
        rt->max_pages = rt->n_pages;
    }
    for (int r = FIRST_BLOCK; r <= LAST_BLOCK && !rc; r++)
        rc = runtime_attach(rt, r, &plan, err);
    rt->memory->ws_source = runtime_source(rt);
    for (int r = 0; r <= LAST_BLOCK; r++)
        if (rt->needs[r].ws_bytes > rt->memory->ws_bytes)
            rt->memory->ws_bytes = rt->needs[r].ws_bytes;
    if (!rc)
        rc = runtime_alloc(rt, SEAM_MEM_DEVICE, rt->memory->ws_bytes,
                           &rt->memory->ws, err);
    if (!rc && rt->guards && rt->memory->ws)
        seam_guards_name(rt->guards, rt->memory->ws,
                         "the scratch of a call, which all plugins share,");
    return rc ? rc : runtime_step_open(rt, err);
}

static int runtime_open_pool(struct seam_runtime *rt, struct seam_error *err)
{
    const char *pin = rt->config->engine.pin_threads;
    int rc =
        seam_pool_new(&rt->pool, (uint32_t)rt->config->engine.threads, err);

    if (rc || !strcmp(pin, "no"))
        return rc;
    rc = seam_pool_pin(rt->pool, !strcmp(pin, "auto"), err);
    return rc < 0 ? rc : 0;
}

int seam_runtime_open(struct seam_runtime **out,
                      const struct seam_runtime_opts *opts,
                      struct seam_error *err)
{
    struct runtime_opening o = { .opts = opts };
    struct seam_runtime *rt = calloc(1, sizeof *rt);
    int rc = SEAM_ENOMEM;

    if (!rt)
        return seam_fail(err, SEAM_ENOMEM, "out of memory");
    seam_instances_init(&rt->instances);
    rt->config = opts->config;
    rt->log = opts->log;
    rt->memory = calloc(1, sizeof *rt->memory);
    rt->step = calloc(1, sizeof *rt->step);
    if (!rt->memory || !rt->step) {
        seam_fail(err, SEAM_ENOMEM, "out of memory");
        goto fail;
    }
    if (seam_guards_wanted(rt->config)) {
        rt->guards = seam_guards_new();
        if (!rt->guards) {
            seam_fail(err, SEAM_ENOMEM, "out of memory");
            goto fail;
        }
    }
    rc = runtime_open_pool(rt, err);
    if (!rc)
        rc = runtime_open_model(rt, &o, err);
    if (!rc)
        rc = runtime_say(&o, "plugins", 0, SEAM_N_ROLES, err);
    if (!rc)
        rc = runtime_open_plugins(rt, &o, err);
    if (!rc)
        rc = runtime_open_memory(rt, err);
    if (!rc)
        rc = runtime_open_net(rt, opts, err);
    if (!rc)
        rc = runtime_say(&o, "plugins", SEAM_N_ROLES, SEAM_N_ROLES, err);
    if (rc)
        goto fail;
    runtime_say_dense(rt);
    *out = rt;
    return 0;
fail:
    seam_runtime_close(rt);
    return rc;
}

void seam_runtime_close(struct seam_runtime *rt)
{
    if (!rt)
        return;
    seam_glm5_next_free(rt->net);
    seam_instances_reap(&rt->instances);
    for (int r = SEAM_N_ROLES - 1; r > SEAM_ROLE_BACKEND; r--)
        seam_instance_end(rt->inst[r]);
    if (rt->backend) {
        for (int r = FIRST_BLOCK; r <= LAST_BLOCK; r++)
            seam_memory_ungrant(&rt->memory->block[r], true);
        seam_memory_free(&rt->memory->ws_source, SEAM_MEM_DEVICE,
                         rt->memory->ws);
        runtime_free(rt, SEAM_MEM_PINNED, rt->step->host);
        runtime_free(rt, SEAM_MEM_DEVICE, rt->step->dev);
        runtime_free(rt, SEAM_MEM_PINNED, rt->step->answer_host);
        runtime_free(rt, SEAM_MEM_DEVICE, rt->step->answer_dev);
        if (rt->step->stream)
            rt->backend->stream_free(rt->self[SEAM_ROLE_BACKEND],
                                     rt->step->stream);
        if (rt->second.self) {
            if (rt->second.stream)
                rt->backend->stream_free(rt->second.self, rt->second.stream);
            rt->plugin[SEAM_ROLE_BACKEND]->plugin.destroy(rt->second.self);
        }
    }
    for (int r = SEAM_N_ROLES - 1; r >= 0; r--)
        seam_instance_free(rt->inst[r]);
    seam_loader_free(rt->loader);
    seam_cfg_free(rt->model.cfg);
    seam_tokenizer_free((struct seam_tokenizer *)rt->model.tokenizer);
    seam_checkpoint_close(rt->model.checkpoint);
    seam_pool_free(rt->pool);
    seam_instances_release(&rt->instances);
    seam_guards_free(rt->guards);
    free(rt->step);
    free(rt->memory);
    free(rt);
}

/* ---- Running ------------------------------------------------------------- */

struct seam_exec seam_runtime_exec(struct seam_runtime *rt,
                                   struct seam_error *err)
{
    return (struct seam_exec){
        .size = sizeof(struct seam_exec),
        .device = rt->device.ordinal,
        .stream = rt->step->stream,
        .ws = rt->memory->ws,
        .ws_bytes = rt->memory->ws_bytes,
        .ops = rt->backend->ops,
        .ops_self = rt->self[SEAM_ROLE_BACKEND],
        .err = err,
    };
}

int seam_runtime_zero_row(struct seam_runtime *rt, int32_t row,
                          struct seam_error *err)
{
    int rc = 0;

    for (int r = FIRST_BLOCK; r <= LAST_BLOCK; r++) {
        const struct runtime_grant *g = &rt->memory->block[r];
        uint64_t bytes = g->grant.state_stride * rt->needs[r].state_copies;

        for (uint32_t l = 0; g->state && l < g->n_layers && !rc; l++)
            rc = rt->backend->fill(
                rt->self[SEAM_ROLE_BACKEND], rt->step->stream,
                (char *)g->state[l] + (uint64_t)row * bytes, 0, bytes, err);
    }
    return rc;
}

void *seam_runtime_state(const struct seam_runtime *rt, enum seam_role role,
                         uint32_t layer, int32_t row, uint64_t *bytes)
{
    const struct runtime_grant *g = &rt->memory->block[role];

    if (!g->state || layer >= g->n_layers)
        return NULL;
    *bytes = rt->needs[role].state_bytes;
    return (char *)g->state[layer] +
           (uint64_t)row * g->grant.state_stride * rt->needs[role].state_copies;
}

int seam_runtime_commit(struct seam_runtime *rt, int32_t row, int32_t n_accept,
                        struct seam_error *err)
{
    struct seam_exec e = seam_runtime_exec(rt, err);
    struct runtime_step *s = rt->step;
    int32_t *host = (int32_t *)(s->host + s->state_row);
    int rc;

    /* The two arrays are at the front of their slots in a step that is over. */
    host[0] = row;
    memcpy(s->host + s->n_accept, &n_accept, sizeof n_accept);
    rc = rt->backend->copy(rt->self[SEAM_ROLE_BACKEND], s->stream, s->dev,
                           s->host, s->logit_row, err);
    for (int r = FIRST_BLOCK; r <= LAST_BLOCK && !rc; r++) {
        const struct seam_block *b = &rt->plugin[r]->table.block;

        if (rt->needs[r].state_bytes)
            rc = b->commit(rt->self[r], &e, 1,
                           (const int32_t *)(s->dev + s->state_row),
                           (const int32_t *)(s->dev + s->n_accept));
    }
    return rc;
}

uint64_t seam_runtime_row_bytes(const struct seam_runtime *rt)
{
    uint64_t bytes = 0;

    for (int r = FIRST_BLOCK; r <= LAST_BLOCK; r++)
        bytes += rt->needs[r].state_bytes * rt->needs[r].n_layers;
    return bytes;
}

/* Move the first copies of a row between the device and host memory. */
static int runtime_move_row(struct seam_runtime *rt, int32_t row, char *host,
                            bool load, struct seam_error *err)
{
    void *be = rt->self[SEAM_ROLE_BACKEND];
    int rc = 0;

    for (int r = FIRST_BLOCK; r <= LAST_BLOCK; r++)
        for (uint32_t l = 0; l < rt->memory->block[r].n_layers && !rc; l++) {
            uint64_t n = 0;
            void *dev = seam_runtime_state(rt, (enum seam_role)r, l, row, &n);

            if (!dev)
                continue;
            rc = load ? rt->backend->copy(be, rt->step->stream, dev, host, n,
                                          err)
                      : rt->backend->copy(be, rt->step->stream, host, dev, n,
                                          err);
            host += n;
        }
    return rc ? rc : rt->backend->stream_wait(be, rt->step->stream, err);
}

int seam_runtime_save_row(struct seam_runtime *rt, int32_t row,
                          int32_t n_accept, void *bytes, struct seam_error *err)
{
    int rc = seam_runtime_commit(rt, row, n_accept, err);

    return rc ? rc : runtime_move_row(rt, row, bytes, false, err);
}

int seam_runtime_load_row(struct seam_runtime *rt, int32_t row,
                          const void *bytes, struct seam_error *err)
{
    return runtime_move_row(rt, row, (char *)bytes, true, err);
}

/* Move the bytes of a page between every plane and host memory. */
static int runtime_move_page(struct seam_runtime *rt, int32_t page, char *host,
                             bool load, struct seam_error *err)
{
    void *be = rt->self[SEAM_ROLE_BACKEND];
    int rc = 0;

    for (int r = FIRST_BLOCK; r <= LAST_BLOCK; r++)
        for (uint32_t p = 0; p < rt->needs[r].n_planes; p++)
            for (uint32_t l = 0; l < rt->memory->block[r].n_layers && !rc;
                 l++) {
                const struct runtime_grant *g = &rt->memory->block[r];
                uint64_t n = (uint64_t)rt->needs[r].plane[p].bytes_per_token *
                             rt->page_tokens;
                char *dev = (char *)g->plane[p][l] +
                            (uint64_t)page * g->grant.page_stride[p];

                rc = load ? rt->backend->copy(be, rt->step->stream, dev, host,
                                              n, err)
                          : rt->backend->copy(be, rt->step->stream, host, dev,
                                              n, err);
                host += n;
            }
    return rc ? rc : rt->backend->stream_wait(be, rt->step->stream, err);
}

uint64_t seam_runtime_page_bytes(const struct seam_runtime *rt)
{
    uint64_t bytes = 0;

    for (int r = FIRST_BLOCK; r <= LAST_BLOCK; r++)
        for (uint32_t p = 0; p < rt->needs[r].n_planes; p++)
            bytes += (uint64_t)rt->needs[r].plane[p].bytes_per_token *
                     rt->page_tokens * rt->memory->block[r].n_layers;
    return bytes;
}

int seam_runtime_save_page(struct seam_runtime *rt, int32_t page, void *bytes,
                           struct seam_error *err)
{
    return runtime_move_page(rt, page, bytes, false, err);
}

int seam_runtime_load_page(struct seam_runtime *rt, int32_t page,
                           const void *bytes, struct seam_error *err)
{
    return runtime_move_page(rt, page, (char *)bytes, true, err);
}

int seam_runtime_copy_page(struct seam_runtime *rt, int32_t to, int32_t from,
                           struct seam_error *err)
{
    int rc = 0;

    for (int r = FIRST_BLOCK; r <= LAST_BLOCK; r++) {
        const struct runtime_grant *g = &rt->memory->block[r];

        for (uint32_t p = 0; p < rt->needs[r].n_planes; p++)
            for (uint32_t l = 0; l < g->n_layers && !rc; l++) {
                uint64_t stride = g->grant.page_stride[p];
                char *plane = g->plane[p][l];

                rc = rt->backend->copy(
                    rt->self[SEAM_ROLE_BACKEND], rt->step->stream,
                    plane + (uint64_t)to * stride,
                    plane + (uint64_t)from * stride, stride, err);
            }
    }
    return rc;
}

/* Write the arrays of a step into the host block. */
static void runtime_fill(struct seam_runtime *rt,
                         const struct seam_step_seq *seq, uint32_t n_seqs,
                         const int32_t *logit_row, uint32_t n_rows,
                         struct seam_step *step)
{
    struct runtime_step *s = rt->step;
    int32_t *q_start = (int32_t *)(s->host + s->q_start);
    int32_t *kv_len = (int32_t *)(s->host + s->kv_len);
    int32_t *pos = (int32_t *)(s->host + s->pos);
    int32_t *slot = (int32_t *)(s->host + s->slot);
    int32_t *table = (int32_t *)(s->host + s->page_table);
    int32_t *state_row = (int32_t *)(s->host + s->state_row);
    int32_t *n_accept = (int32_t *)(s->host + s->n_accept);
    int32_t *token = (int32_t *)(s->host + s->token);
    uint32_t max_pages = 1, t = 0;

    for (uint32_t i = 0; i < n_seqs; i++)
        if (seq[i].n_pages > max_pages)
            max_pages = seq[i].n_pages;
    *step = (struct seam_step){
        .size = sizeof *step,
        .flags = SEAM_STEP_DECODE,
        .n_seqs = n_seqs,
        .max_pages = max_pages,
    };
    for (uint32_t i = 0; i < n_seqs; i++) {
        const struct seam_step_seq *q = &seq[i];

        q_start[i] = (int32_t)t;
        kv_len[i] = (int32_t)(q->pos + q->n);
        state_row[i] = q->row;
        n_accept[i] = q->n_accept;
        for (uint32_t p = 0; p < max_pages; p++)
            table[i * max_pages + p] = p < q->n_pages ? q->page[p] : 0;
        for (uint32_t j = 0; j < q->n; j++, t++) {
            uint32_t at = q->pos + j;

            token[t] = q->token[j];
            pos[t] = (int32_t)at;
            slot[t] = q->page[at / rt->page_tokens] * (int32_t)rt->page_tokens +
                      (int32_t)(at % rt->page_tokens);
        }
        if (q->n > step->max_q)
            step->max_q = q->n;
        if (q->pos + q->n > step->max_kv)
            step->max_kv = q->pos + q->n;
    }
    q_start[n_seqs] = (int32_t)t;
    if (n_rows)
        memcpy(s->host + s->logit_row, logit_row, n_rows * sizeof *logit_row);
    step->n_tokens = t;
    if (step->max_q > 1 + rt->limits.max_draft)
        step->flags &= ~(uint32_t)SEAM_STEP_DECODE;
    step->q_start = (const int32_t *)(s->dev + s->q_start);
    step->kv_len = (const int32_t *)(s->dev + s->kv_len);
    step->pos = (const int32_t *)(s->dev + s->pos);
    step->slot = (const int32_t *)(s->dev + s->slot);
    step->page_table = (const int32_t *)(s->dev + s->page_table);
    step->state_row = (const int32_t *)(s->dev + s->state_row);
    step->n_accept = (const int32_t *)(s->dev + s->n_accept);
    step->host_q_start = q_start;
    step->host_kv_len = kv_len;
}

/* Put the plugin and layer of a call before the message. */
static int runtime_fail_in(const struct seam_runtime *rt,
                           enum seam_glm5_call call, uint32_t layer,
                           struct seam_error *err)
{
    static const enum seam_role role[] = {
        [SEAM_GLM5_IDLE] = SEAM_ROLE_BACKEND,
        [SEAM_GLM5_BACKEND] = SEAM_ROLE_BACKEND,
        [SEAM_GLM5_LINEAR] = SEAM_ROLE_LINEAR,
        [SEAM_GLM5_SPARSE] = SEAM_ROLE_SPARSE,
        [SEAM_GLM5_MOE] = SEAM_ROLE_MOE,
    };
    char where[96];

    snprintf(where, sizeof where, "plugin %s, layer %u",
             rt->inst[role[call]]->host.name, layer);
    return seam_fail_at(err, where);
}

int seam_runtime_forward(struct seam_runtime *rt,
                         const struct seam_step_seq *seq, uint32_t n_seqs,
                         const int32_t *logit_row, uint32_t n_rows,
                         struct seam_error *err)
{
    struct seam_exec e = seam_runtime_exec(rt, err);
    struct runtime_step *s = rt->step;
    enum seam_glm5_call call;
    struct seam_step step;
    uint64_t tokens = 0;
    uint32_t layer;
    int rc;

    *err = (struct seam_error){ 0 };
    for (uint32_t i = 0; i < n_seqs; i++) {
        tokens += seq[i].n;
        if ((uint64_t)seq[i].n_pages * rt->page_tokens < seq[i].pos + seq[i].n)
            return seam_fail(err, SEAM_EINVAL,
                             "step: sequence %u has %u pages "
                             "for %u tokens",
                             i, seq[i].n_pages, seq[i].pos + seq[i].n);
    }
    if (!n_seqs || n_seqs > rt->limits.max_seqs ||
        tokens > rt->limits.max_tokens || n_rows > rt->max_logit_rows)
        return seam_fail(err, SEAM_EINVAL,
                         "step: %u sequences, %llu tokens, "
                         "%u rows of logits; expected at most %u, %u, %u",
                         n_seqs, (unsigned long long)tokens, n_rows,
                         rt->limits.max_seqs, rt->limits.max_tokens,
                         rt->max_logit_rows);
    runtime_fill(rt, seq, n_seqs, logit_row, n_rows, &step);
    /* Everything up to the sampling parameters in one copy. */
    rc = rt->backend->copy(rt->self[SEAM_ROLE_BACKEND], s->stream, s->dev,
                           s->host, s->temperature, err);
    if (rc)
        return rc;
    s->n_rows = n_rows;
    rc = seam_glm5_next_step(
        rt->net, &e, &step, (const int32_t *)(s->dev + s->token),
        (const int32_t *)(s->dev + s->logit_row), n_rows, &s->logits);
    if (rc) {
        call = seam_glm5_next_failed(rt->net, &layer);
        /* A plugin may have forgotten to say what went wrong. */
        if (err->code != rc)
            seam_fail(err, rc, "failed with code %d", rc);
        return runtime_fail_in(rt, call, layer, err);
    }
    return rt->guards ? seam_guards_check(rt->guards, false, err) : 0;
}

int seam_runtime_check_rows(struct seam_runtime *rt, uint32_t from, uint32_t n,
                            struct seam_error *err)
{
    uint32_t layer;
    enum seam_glm5_call call = seam_glm5_next_bad(rt->net, from, n, &layer);

    if (call == SEAM_GLM5_IDLE)
        return 0;
    seam_fail(err, SEAM_EDATA, "the output is not finite");
    return runtime_fail_in(rt, call, layer, err);
}

int seam_runtime_logits(struct seam_runtime *rt, uint32_t i, float *out,
                        struct seam_error *err)
{
    struct runtime_step *s = rt->step;
    uint64_t bytes = (uint64_t)s->logits.shape[1] * sizeof *out;
    int rc;

    if (i >= s->n_rows)
        return seam_fail(err, SEAM_EINVAL, "logits: row %u of %u", i,
                         s->n_rows);
    rc = rt->backend->copy(rt->self[SEAM_ROLE_BACKEND], s->stream, out,
                           (char *)s->logits.data + i * s->logits.stride[0],
                           bytes, err);
    return rc ? rc
              : rt->backend->stream_wait(rt->self[SEAM_ROLE_BACKEND], s->stream,
                                         err);
}

/* Write the sampling parameters into the host block; returns the entries of
 * bias lists, or -1 when there is no room for them. */
static int64_t runtime_fill_sample(struct runtime_step *s, uint32_t n,
                                   const struct seam_sample_row *row,
                                   uint64_t *n_masks)
{
    float *temperature = (float *)(s->host + s->temperature);
    float *top_p = (float *)(s->host + s->top_p);
    float *min_p = (float *)(s->host + s->min_p);
    int32_t *top_k = (int32_t *)(s->host + s->top_k);
    uint64_t *seed = (uint64_t *)(s->host + s->seed);
    uint64_t *counter = (uint64_t *)(s->host + s->counter);
    int32_t *bias_start = (int32_t *)(s->host + s->bias_start);
    int32_t *mask_row = (int32_t *)(s->host + s->mask_row);
    uint64_t at = 0;

    for (uint32_t i = 0; i < n; i++) {
        const struct seam_sample_row *r = &row[i];

        temperature[i] = r->temperature;
        top_p[i] = r->top_p;
        min_p[i] = r->min_p;
        top_k[i] = r->top_k;
        seed[i] = r->seed;
        counter[i] = r->counter;
        mask_row[i] = s->has_padding ? 0 : -1;
        if (r->mask) {
            mask_row[i] = (int32_t)++ * n_masks;
            memcpy((uint32_t *)(s->host + s->mask) + *n_masks * s->n_mask_words,
                   r->mask, s->n_mask_words * sizeof *r->mask);
        }
        bias_start[i] = (int32_t)at;
        if (at + r->n_bias > s->max_bias)
            return -1;
        if (!r->n_bias)
            continue;
        memcpy((int32_t *)(s->host + s->bias_id) + at, r->bias_id,
               r->n_bias * sizeof *r->bias_id);
        memcpy((float *)(s->host + s->bias_div) + at, r->bias_div,
               r->n_bias * sizeof *r->bias_div);
        memcpy((float *)(s->host + s->bias_add) + at, r->bias_add,
               r->n_bias * sizeof *r->bias_add);
        at += r->n_bias;
    }
    bias_start[n] = (int32_t)at;
    return (int64_t)at;
}

/* Parameters and masks in one copy, then the bias lists as far as they go. */
static int runtime_copy_sample(struct seam_runtime *rt, uint64_t n_masks,
                               uint64_t n_bias, struct seam_error *err)
{
    struct runtime_step *s = rt->step;
    uint64_t masks = (1 + n_masks) * s->n_mask_words * sizeof(uint32_t);
    uint64_t from[] = { s->temperature, s->bias_id, s->bias_div, s->bias_add };
    uint64_t bytes[] = { s->mask + masks - s->temperature, n_bias * 4,
                         n_bias * 4, n_bias * 4 };
    int rc = 0;

    for (size_t i = 0; i < sizeof from / sizeof *from && !rc; i++)
        if (bytes[i])
            rc = rt->backend->copy(rt->self[SEAM_ROLE_BACKEND], s->stream,
                                   s->dev + from[i], s->host + from[i],
                                   bytes[i], err);
    return rc;
}

uint32_t seam_runtime_mask_words(const struct seam_runtime *rt)
{
    return rt->step->n_mask_words;
}

int seam_runtime_sample(struct seam_runtime *rt, uint32_t first, uint32_t n,
                        const struct seam_sample_row *row, uint32_t n_top,
                        struct seam_sample_out *out, struct seam_error *err)
{
    struct seam_exec e = seam_runtime_exec(rt, err);
    struct runtime_step *s = rt->step;
    void *be = rt->self[SEAM_ROLE_BACKEND];
    char *dev = s->dev, *ans = s->answer_dev;
    struct seam_sample a = { .size = sizeof a, .n = n, .n_top = n_top };
    uint64_t n_masks = 0;
    int64_t n_bias;
    int rc;

    if (!n || first + n > s->n_rows || n_top > SEAM_MAX_TOP)
        return seam_fail(err, SEAM_EINVAL,
                         "sample: rows %u to %u of %u, top "
                         "%u of at most %d",
                         first, first + n, s->n_rows, n_top, SEAM_MAX_TOP);
    n_bias = runtime_fill_sample(s, n, row, &n_masks);
    if (n_bias < 0)
        return seam_fail(err, SEAM_EINVAL,
                         "sample: more bias entries than "
                         "%llu",
                         (unsigned long long)s->max_bias);
    rc = runtime_copy_sample(rt, n_masks, (uint64_t)n_bias, err);
    if (rc)
        return rc;
    a.logits = s->logits;
    a.logits.data = (char *)s->logits.data + first * s->logits.stride[0];
    a.logits.shape[0] = n;
    a.logits.bytes = (uint64_t)s->logits.stride[0] * n;
    a.filter = (struct seam_filter){
        .temperature = (const float *)(dev + s->temperature),
        .top_p = (const float *)(dev + s->top_p),
        .min_p = (const float *)(dev + s->min_p),
        .top_k = (const int32_t *)(dev + s->top_k),
        .seed = (const uint64_t *)(dev + s->seed),
        .counter = (const uint64_t *)(dev + s->counter),
    };
    if (n_bias) {
        a.filter.bias_start = (const int32_t *)(dev + s->bias_start);
        a.filter.bias_id = (const int32_t *)(dev + s->bias_id);
        a.filter.bias_div = (const float *)(dev + s->bias_div);
        a.filter.bias_add = (const float *)(dev + s->bias_add);
    }
    if (s->has_padding || n_masks) {
        a.filter.mask = (const uint32_t *)(dev + s->mask);
        a.filter.mask_row = (const int32_t *)(dev + s->mask_row);
    }
    a.token = (int32_t *)(ans + s->out_token);
    a.logprob = (float *)(ans + s->out_logprob);
    a.top_id = (int32_t *)(ans + s->out_top_id);
    a.top_logprob = (float *)(ans + s->out_top_logprob);
    *err = (struct seam_error){ 0 };
    rc = rt->backend->ops->sample(be, &e, &a);
    if (rc) {
        char where[96];

        if (err->code != rc)
            seam_fail(err, rc, "failed with code %d", rc);
        snprintf(where, sizeof where, "plugin %s, sampling",
                 rt->inst[SEAM_ROLE_BACKEND]->host.name);
        return seam_fail_at(err, where);
    }
    if (!rc)
        rc = rt->backend->copy(be, s->stream, s->answer_host, s->answer_dev,
                               n_top ? s->answer_bytes : s->out_top_id, err);
    if (!rc)
        rc = rt->backend->stream_wait(be, s->stream, err);
    for (uint32_t i = 0; i < n && !rc; i++) {
        ans = s->answer_host;
        out[i].token = ((int32_t *)(ans + s->out_token))[i];
        out[i].logprob = ((float *)(ans + s->out_logprob))[i];
        out[i].top_id = (int32_t *)(ans + s->out_top_id) + i * n_top;
        out[i].top_logprob = (float *)(ans + s->out_top_logprob) + i * n_top;
    }
    return rc;
}

void seam_runtime_plan(const struct seam_runtime *rt, struct seam_buf *out)
{
    uint64_t pages = rt->n_pages * rt->page_bytes;
    uint64_t rows = rt->n_rows * rt->row_bytes;

    seam_buf_fmt(out,
                 "cache %.1f MiB: %u pages of %u tokens (%llu bytes a token), "
                 "%u sequences (%llu bytes each); at most %u tokens in one",
                 (double)(pages + rows) / 1048576, rt->n_pages, rt->page_tokens,
                 (unsigned long long)(rt->page_bytes / rt->page_tokens),
                 rt->n_rows, (unsigned long long)rt->row_bytes,
                 rt->limits.max_context);
}
