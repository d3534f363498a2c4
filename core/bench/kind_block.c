/* Attention and experts: one layer's call, the layers taking turns, so that
 * weights come from memory as they do in a step. */
#include <stdlib.h>
#include <string.h>

#include "core/bench/bytes.h"
#include "core/bench/kind.h"

struct block {
    const struct kind *k;
    struct kind_side *side;
    const struct seam_block *table;
    void *self;
    uint32_t n_layers, d, seq_pages, max_rows;
    struct seam_bench_weights weights;
    float *x, *y;     /* [max_rows][d]                                        */
    int32_t *q_start; /* [max_seqs + 1]                                       */
    int32_t *kv_len, *state_row, *n_accept; /* [max_seqs]                     */
    int32_t *pos, *slot;                    /* [max_rows]                     */
    int32_t *page_table;                    /* [max_seqs][seq_pages]          */
    void *state;                            /* a saved row                    */
    uint32_t n_done; /* tokens of sequence 0 in the cache                     */
    int32_t accept;  /* of its last step                                      */
    uint32_t n_calls; /* since block_prepare                                  */
};

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static void block_close(struct kind_side *s)
{
    struct block *b = s->work;

    if (!b)
        return;
    free(b->x);
    free(b->y);
    free(b->q_start);
    free(b->kv_len);
    free(b->state_row);
    free(b->n_accept);
    free(b->pos);
    free(b->slot);
    free(b->page_table);
    free(b->state);
    free(b);
    s->work = NULL;
}

static int block_open(struct kind *k, struct kind_side *s,
                      struct seam_error *err)
{
    const struct seam_runtime *rt = s->rt;
    enum seam_role role = k->o->role;
    uint32_t page = rt->page_tokens, longest;
    struct block *b = calloc(1, sizeof *b);

    s->work = b;
    if (!b)
        return seam_fail(err, SEAM_ENOMEM, "out of memory");
    b->k = k;
    b->side = s;
    b->table = &rt->plugin[role]->table.block;
    b->self = rt->self[role];
    b->n_layers = rt->needs[role].n_layers;
    b->d = seam_checkpoint_config(rt->model.checkpoint)->hidden;
    if (!b->n_layers)
        return seam_fail(err, SEAM_EINVAL, "%s: the shape has no such layer",
                         s->name);
    longest = larger(k->max_context, k->o->check_context) +
              larger(k->max_tokens, k->o->check_tokens);
    b->seq_pages = (longest + page - 1) / page;
    if ((uint64_t)b->seq_pages * k->max_seqs > rt->n_pages)
        return seam_fail(err, SEAM_EINVAL,
                         "%u sequences of %u tokens; the cache holds %u "
                         "tokens (engine.cache_bytes)",
                         k->max_seqs, longest, rt->n_pages * page);
    b->max_rows = larger(rt->limits.max_tokens, k->max_tokens * k->max_seqs);
    b->x = malloc(((uint64_t)b->max_rows * b->d + 1) * sizeof *b->x);
    b->y = malloc(((uint64_t)b->max_rows * b->d + 1) * sizeof *b->y);
    b->q_start = calloc(k->max_seqs + 1, sizeof *b->q_start);
    b->kv_len = calloc(k->max_seqs + 1, sizeof *b->kv_len);
    b->state_row = calloc(k->max_seqs + 1, sizeof *b->state_row);
    b->n_accept = calloc(k->max_seqs + 1, sizeof *b->n_accept);
    b->pos = calloc(b->max_rows + 1, sizeof *b->pos);
    b->slot = calloc(b->max_rows + 1, sizeof *b->slot);
    b->page_table =
        calloc((uint64_t)k->max_seqs * b->seq_pages + 1, sizeof *b->page_table);
    b->state = malloc(seam_runtime_row_bytes(rt) + 1);
    if (!b->x || !b->y || !b->q_start || !b->kv_len || !b->state_row ||
        !b->n_accept || !b->pos || !b->slot || !b->page_table || !b->state)
        return seam_fail(err, SEAM_ENOMEM, "out of memory");
    kind_random(b->x, (uint64_t)b->max_rows * b->d, 7);
    return seam_bench_weigh(rt->model.checkpoint, &b->weights, err);
}

/* ---- Calls --------------------------------------------------------------- */

static struct seam_exec block_exec(const struct block *b,
                                   struct seam_error *err)
{
    struct seam_runtime *rt = b->side->rt;

    return (struct seam_exec){
        .size = sizeof(struct seam_exec),
        .device = rt->device.ordinal,
        .ws = rt->memory->ws,
        .ws_bytes = rt->memory->ws_bytes,
        .ops = rt->backend->ops,
        .ops_self = rt->self[SEAM_ROLE_BACKEND],
        .err = err,
    };
}

/* A step of `seqs` sequences that bring n tokens each after `at`. */
static void block_step(struct block *b, uint32_t seqs, uint32_t n, uint32_t at,
                       int32_t accept, struct seam_step *step)
{
    uint32_t page = b->side->rt->page_tokens, row = 0;

    for (uint32_t i = 0; i < seqs; i++) {
        int32_t first = (int32_t)(i * b->seq_pages);

        b->q_start[i] = (int32_t)row;
        b->kv_len[i] = (int32_t)(at + n);
        b->state_row[i] = (int32_t)i;
        b->n_accept[i] = accept;
        for (uint32_t p = 0; p < b->seq_pages; p++)
            b->page_table[i * b->seq_pages + p] = first + (int32_t)p;
        for (uint32_t t = at; t < at + n; t++, row++) {
            b->pos[row] = (int32_t)t;
            b->slot[row] = (first + (int32_t)(t / page)) * (int32_t)page +
                           (int32_t)(t % page);
        }
    }
    b->q_start[seqs] = (int32_t)row;
    *step = (struct seam_step){
        .size = sizeof *step,
        .flags = n == 1 ? SEAM_STEP_DECODE : 0,
        .n_seqs = seqs,
        .n_tokens = row,
        .max_q = n,
        .max_kv = at + n,
        .max_pages = b->seq_pages,
        .q_start = b->q_start,
        .kv_len = b->kv_len,
        .pos = b->pos,
        .slot = b->slot,
        .page_table = b->page_table,
        .state_row = b->state_row,
        .n_accept = b->n_accept,
        .host_q_start = b->q_start,
        .host_kv_len = b->kv_len,
    };
}

static struct seam_tensor block_view(const struct block *b, float *p,
                                     uint32_t rows)
{
    return (struct seam_tensor){
        .data = p,
        .bytes = (uint64_t)rows * b->d * sizeof *p,
        .shape = { rows, b->d },
        .stride = { (int64_t)b->d * (int64_t)sizeof *p },
        .dtype = SEAM_F32,
        .rank = 2,
        .device = -1,
    };
}

static int block_forward(struct block *b, const struct seam_step *step,
                         uint32_t layer, struct seam_error *err)
{
    struct seam_exec e = block_exec(b, err);
    struct seam_block_args a = {
        .size = sizeof a,
        .layer = layer,
        .step = step,
        .x = block_view(b, b->x, step->n_tokens),
        .y = block_view(b, b->y, step->n_tokens),
    };

    return b->table->forward(b->self, &e, &a);
}

static int block_begin(struct block *b, const struct seam_step *step,
                       struct seam_error *err)
{
    struct seam_exec e = block_exec(b, err);

    return b->table->begin ? b->table->begin(b->self, &e, step) : 0;
}

/* Sequence 0 from its beginning. */
static int block_restart(struct block *b, struct seam_error *err)
{
    b->n_done = 0;
    b->accept = 0;
    return seam_runtime_zero_row(b->side->rt, 0, err);
}

/* Feed sequence 0, through every layer, until it has `until` tokens. */
static int block_feed(struct block *b, uint32_t until, uint32_t chunk,
                      struct seam_error *err)
{
    struct seam_step step;
    int rc = 0;

    while (b->n_done < until && !rc) {
        uint32_t n = until - b->n_done < chunk ? until - b->n_done : chunk;

        block_step(b, 1, n, b->n_done, b->accept, &step);
        rc = block_begin(b, &step, err);
        for (uint32_t l = 0; l < b->n_layers && !rc; l++)
            rc = block_forward(b, &step, l, err);
        b->n_done += n;
        b->accept = (int32_t)n;
    }
    return rc;
}

/* Make the state of sequence 0 plain bytes. */
static int block_commit(struct block *b, struct seam_error *err)
{
    struct seam_exec e = block_exec(b, err);
    int32_t row = 0, accept = b->accept;
    int rc = b->table->commit && accept
                 ? b->table->commit(b->self, &e, 1, &row, &accept)
                 : 0;

    b->accept = 0;
    return rc ? rc : seam_runtime_save_row(b->side->rt, 0, 0, b->state, err);
}

/* As in seam bench model: pages after the first `distinct` tokens are copies. */
static int block_fill(struct block *b, uint32_t context, struct seam_error *err)
{
    struct seam_runtime *rt = b->side->rt;
    uint32_t page = rt->page_tokens, most = rt->limits.max_tokens;
    uint32_t unique = (b->k->o->distinct + page - 1) / page * page;
    uint32_t whole = context / page * page;
    int rc = 0;

    if (context > unique && b->n_done < whole) {
        rc = block_feed(b, unique, most, err);
        if (!rc && b->n_done % page)
            rc = block_feed(b, (b->n_done / page + 1) * page, most, err);
        for (uint32_t p = b->n_done / page; p < whole / page && !rc; p++)
            rc = seam_runtime_copy_page(rt, (int32_t)p,
                                        (int32_t)(p % (unique / page)), err);
        if (b->n_done < whole)
            b->n_done = whole;
    }
    return rc ? rc : block_feed(b, context, most, err);
}

/* ---- Cases --------------------------------------------------------------- */

static void block_case(const struct block *b, struct kind_case *c)
{
    const struct seam_runtime *rt = b->side->rt;
    const struct seam_model_config *m =
        seam_checkpoint_config(rt->model.checkpoint);
    enum seam_role role = b->k->o->role;
    enum seam_watch_part part = seam_watch_role[role];
    double n = (double)c->tokens * c->seqs, layers = b->n_layers;
    double bytes = (double)b->weights.bytes.part[part] / layers;
    double ops = 2 * n * (double)b->weights.n[part] / layers;
    struct seam_bench_bytes cached;

    seam_bench_cached(rt, role, c->context, &cached);
    if (role == SEAM_ROLE_MOE) {
        double one = (double)b->weights.expert_bytes / layers;

        bytes -= one * m->experts_per_token;
        bytes +=
            one * seam_bench_experts(m->n_experts, m->experts_per_token, n);
    }
    /* Activations in and out. */
    c->bytes = bytes + (double)cached.all * c->seqs + 8 * n * b->d;
    if (role == SEAM_ROLE_LINEAR)
        ops += n * 7 * m->kda_heads * m->kda_dim * m->kda_dim;
    if (role == SEAM_ROLE_SPARSE) {
        double seen = c->context < m->index_topk ? c->context : m->index_topk;

        ops +=
            n * 4 * m->n_heads * seen * m->kv_lora +
            n * 2 * m->index_heads * m->index_dim * c->context / m->index_kpool;
    }
    c->ops = ops;
}

static int block_cases(struct kind *k, struct seam_error *err)
{
    const struct seam_bench_kind_opts *o = k->o;
    bool has_context = o->role != SEAM_ROLE_MOE;

    (void)err;
    for (uint32_t c = 0; c < (has_context ? o->context.n : 1); c++)
        for (uint32_t s = 0; s < o->seqs.n; s++)
            for (uint32_t t = 0; t < o->tokens.n; t++) {
                struct kind_case *to =
                    kind_add(k, seam_role_name[o->role], 0, o->tokens.v[t],
                             has_context ? o->context.v[c] : 0, o->seqs.v[s]);

                if (to)
                    block_case(k->side[0].work, to);
            }
    return 0;
}

/* The outputs of `n` tokens after `context`, in the first layer and, behind
 * them, in the last. */
static int block_outputs(struct block *b, uint32_t context, uint32_t n,
                         float *out, struct seam_error *err)
{
    struct seam_step step;
    size_t size = (size_t)n * b->d;
    int rc = block_restart(b, err);

    if (!rc)
        rc = block_feed(b, context, b->side->rt->limits.max_tokens, err);
    if (rc)
        return rc;
    block_step(b, 1, n, b->n_done, b->accept, &step);
    rc = block_begin(b, &step, err);
    for (uint32_t i = 0; i < 2 && !rc; i++) {
        rc = block_forward(b, &step, i ? b->n_layers - 1 : 0, err);
        memcpy(out + i * size, b->y, size * sizeof *out);
        if (b->n_layers == 1) { /* it has gone on already                     */
            memcpy(out + size, b->y, size * sizeof *out);
            break;
        }
    }
    return rc ? rc : block_restart(b, err);
}

static int block_check(struct kind *k, const struct kind_case *c,
                       struct kind_side *s, struct kind_side *ref,
                       double *error, struct seam_error *err)
{
    struct block *a = s->work, *b = ref->work;
    uint32_t n = smaller(c->tokens, k->o->check_tokens);
    uint32_t context = smaller(c->context, k->o->check_context);
    size_t size = 2 * (size_t)n * a->d;
    float *y = calloc(2 * size + 1, sizeof *y);
    int rc = 0;

    /* The same call may have been compared for a case before. */
    for (const struct kind_case *d = k->c; d < c; d++)
        if (smaller(d->tokens, k->o->check_tokens) == n &&
            smaller(d->context, k->o->check_context) == context) {
            *error = d->error[s - k->side];
            free(y);
            return 0;
        }
    if (!y)
        return seam_fail(err, SEAM_ENOMEM, "out of memory");
    rc = block_outputs(a, context, n, y, err);
    if (!rc)
        rc = block_outputs(b, context, n, y + size, err);
    if (!rc)
        *error = kind_error(y, y + size, size);
    free(y);
    return rc;
}

static int block_prepare(struct kind *k, struct kind_side *s,
                         const struct kind_case *c, struct seam_error *err)
{
    struct block *b = s->work;
    uint32_t page = s->rt->page_tokens;
    uint32_t n_pages = (c->context + page - 1) / page;
    struct seam_step step;
    int rc = 0;

    (void)k;
    b->n_calls = 0;
    if (b->n_done > c->context || (!b->n_done && !b->accept))
        rc = block_restart(b, err);
    else if (b->accept == 0)
        rc = seam_runtime_load_row(s->rt, 0, b->state, err);
    if (!rc)
        rc = block_fill(b, c->context, err);
    if (!rc)
        rc = block_commit(b, err);
    for (uint32_t i = 1; i < c->seqs && !rc; i++) {
        rc = seam_runtime_load_row(s->rt, (int32_t)i, b->state, err);
        for (uint32_t p = 0; p < n_pages && !rc; p++)
            rc = seam_runtime_copy_page(s->rt, (int32_t)(i * b->seq_pages + p),
                                        (int32_t)p, err);
    }
    if (rc)
        return rc;
    block_step(b, c->seqs, c->tokens, c->context, 0, &step);
    return block_begin(b, &step, err);
}

/* The same tokens at the same place again and again: only the state goes on,
 * which is as good as any other. */
static int block_call(struct kind *k, struct kind_side *s,
                      const struct kind_case *c, uint32_t i,
                      struct seam_error *err)
{
    struct block *b = s->work;
    bool first = b->n_calls < b->n_layers;
    struct seam_step step;

    (void)k;
    (void)i;
    block_step(b, c->seqs, c->tokens, c->context,
               first ? 0 : (int32_t)c->tokens, &step);
    return block_forward(b, &step, b->n_calls++ % b->n_layers, err);
}

const struct kind_family kind_blocks = {
    .open = block_open,
    .close = block_close,
    .cases = block_cases,
    .check = block_check,
    .prepare = block_prepare,
    .call = block_call,
};
