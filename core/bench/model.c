#include "core/bench/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/bench/machine.h"
#include "core/bench/sample.h"
#include "core/checkpoint/inventory.h"
#include "core/engine/runtime.h"

struct bench {
    const struct seam_bench_model_opts *o;
    struct seam_runtime *rt;
    struct seam_machine *machine;
    const struct seam_model_config *m;
    uint32_t n_pages;
    int32_t *page;  /* [n_pages]                                              */
    int32_t *token; /* [longest]                                              */
    void *state;    /* a saved row                                            */
    uint32_t n_done;
    int32_t n_accept;
    uint64_t dense, expert; /* bytes of weights, see seam_bench_bytes         */
    struct seam_samples read;
};

/* ---- Bytes --------------------------------------------------------------- */

static void bytes_of(void *ctx, const struct seam_st_tensor *t)
{
    struct bench *b = ctx;
    const struct seam_model_config *m = b->m;

    switch (seam_part_of(m, t->name)) {
    case SEAM_PART_EMBED:
        b->dense += t->bytes / (uint64_t)t->shape[0]; /* one row              */
        break;
    case SEAM_PART_EXPERTS:
        b->expert += t->bytes;
        break;
    case SEAM_PART_MTP:
    case SEAM_PART_VISION:
    case SEAM_PART_OTHER:
        break;
    default:
        b->dense += t->bytes;
    }
}

static void bench_bytes(const struct bench *b, uint32_t context,
                        struct seam_bench_bytes *out)
{
    const struct seam_runtime *rt = b->rt;

    *out = (struct seam_bench_bytes){
        .dense = b->dense,
        .expert = b->expert / b->m->n_experts * b->m->experts_per_token,
    };
    for (int r = SEAM_ROLE_LINEAR; r <= SEAM_ROLE_MOE; r++) {
        const struct seam_needs *n = &rt->needs[r];

        out->state += 2 * n->state_bytes * n->n_layers;
        for (uint32_t p = 0; p < n->n_planes; p++) {
            uint64_t tokens = context;

            /* A latent is read only where the indexer chose it. */
            if (!strcmp(n->plane[p].name, "latent") &&
                tokens > b->m->index_topk)
                tokens = b->m->index_topk;
            out->cache += tokens * n->plane[p].bytes_per_token * n->n_layers;
        }
    }
}

/* ---- Steps --------------------------------------------------------------- */

static int bench_feed(struct bench *b, uint32_t n, int32_t *next,
                      struct seam_error *err)
{
    struct seam_step_seq q = {
        .token = b->token + b->n_done,
        .n = n,
        .pos = b->n_done,
        .page = b->page,
        .n_pages = b->n_pages,
        .n_accept = b->n_accept,
    };
    struct seam_sample_row row = { .top_p = 1 };
    struct seam_sample_out out = { 0 };
    int32_t last = (int32_t)n - 1;
    int rc = seam_runtime_forward(b->rt, &q, 1, &last, 1, err);

    if (!rc)
        rc = seam_runtime_sample(b->rt, 0, 1, &row, 0, &out, err);
    if (!rc && out.token < 0)
        rc = seam_fail(err, SEAM_EDATA,
                       "the logits after %u tokens are not finite",
                       b->n_done + n);
    if (rc)
        return rc;
    b->n_done += n;
    b->n_accept = (int32_t)n;
    *next = out.token;
    return 0;
}

/* Prefill up to `context` tokens. */
static int bench_fill(struct bench *b, uint32_t context, struct seam_error *err)
{
    int32_t next;
    int rc = 0;

    while (!rc && b->n_done < context) {
        uint32_t n = context - b->n_done;

        if (n > b->rt->limits.max_tokens)
            n = b->rt->limits.max_tokens;
        rc = bench_feed(b, n, &next, err);
    }
    return rc;
}

/* n tokens, `chunk` at a time; *ns is what it took. */
static int bench_time(struct bench *b, uint32_t n, uint32_t chunk, double *ns,
                      struct seam_error *err)
{
    uint64_t from = seam_now_ns();
    int32_t next;
    int rc = 0;

    for (uint32_t at = 0; at < n && !rc; at += chunk)
        rc = bench_feed(b, n - at < chunk ? n - at : chunk, &next, err);
    *ns = (double)(seam_now_ns() - from);
    return rc;
}

/* Runs of one measurement, each from the same state, with the bandwidth
 * measured between them. */
static int bench_runs(struct bench *b, uint32_t n, uint32_t chunk,
                      struct seam_samples *rate, struct seam_error *err)
{
    uint32_t start = b->n_done;
    double ns;
    int rc = seam_runtime_save_row(b->rt, 0, b->n_accept, b->state, err);

    for (uint32_t i = 0; i <= b->o->runs && !rc; i++) {
        b->n_done = start;
        b->n_accept = 0;
        rc = seam_runtime_load_row(b->rt, 0, b->state, err);
        if (!rc)
            rc = bench_time(b, n, chunk, &ns, err);
        if (i) /* the first one warms up */
            seam_samples_add(rate, n * 1e9 / ns);
        seam_samples_add(&b->read, seam_machine_read(b->machine));
    }
    if (!rc)
        rc = seam_runtime_load_row(b->rt, 0, b->state, err);
    b->n_done = start;
    b->n_accept = 0;
    return rc;
}

static int bench_point(struct bench *b, uint32_t context,
                       struct seam_error *err)
{
    struct seam_samples decode = { .n = 0 }, prefill = { .n = 0 };
    struct seam_bench_bytes bytes;
    uint32_t before = b->read.n;
    struct seam_samples read = { .n = 0 };
    uint64_t all;
    int rc = bench_fill(b, context, err);

    bench_bytes(b, context, &bytes);
    all = bytes.dense + bytes.expert + bytes.state + bytes.cache;
    if (!rc && b->o->n_decode)
        rc = bench_runs(b, b->o->n_decode, 1, &decode, err);
    if (rc)
        return rc;
    for (uint32_t i = before; i < b->read.n; i++)
        seam_samples_add(&read, b->read.v[i]);
    if (decode.n) {
        double rate = seam_samples_at(&decode, 0.5);
        double could = seam_samples_at(&read, 0.5);

        printf("decode %u at %u: %.2f tok/s (spread %.0f %%), %.1f MB a token "
               "= %.2f GB/s, %.1f %% of %.2f GB/s\n",
               b->o->n_decode, context, rate,
               100 * seam_samples_spread(&decode), (double)all / 1e6,
               rate * (double)all / 1e9, 100 * rate * (double)all / could,
               could / 1e9);
        printf("  of a token: dense %.1f MB, experts %.1f MB, state %.1f MB, "
               "cache %.1f MB\n",
               (double)bytes.dense / 1e6, (double)bytes.expert / 1e6,
               (double)bytes.state / 1e6, (double)bytes.cache / 1e6);
    }
    if (b->o->n_prefill)
        rc = bench_runs(b, b->o->n_prefill, b->rt->limits.max_tokens, &prefill,
                        err);
    if (!rc && prefill.n)
        printf("prefill %u at %u: %.1f tok/s (spread %.0f %%)\n",
               b->o->n_prefill, context, seam_samples_at(&prefill, 0.5),
               100 * seam_samples_spread(&prefill));
    fflush(stdout);
    return rc;
}

static int bench_open(struct bench *b, struct seam_error *err)
{
    const struct seam_bench_model_opts *o = b->o;
    struct seam_runtime_opts ro = { .config = o->config,
                                    .log = o->log,
                                    .logit_rows = 1 };
    uint32_t longest = 0, step, x = 12345;
    int rc = seam_runtime_open(&b->rt, &ro, err);

    if (rc)
        return rc;
    b->m = seam_checkpoint_config(b->rt->model.checkpoint);
    for (uint32_t i = 0; i < o->n_contexts; i++)
        if (o->context[i] > longest)
            longest = o->context[i];
    step = o->n_decode > o->n_prefill ? o->n_decode : o->n_prefill;
    longest += step;
    if (longest > b->rt->limits.max_context ||
        longest > b->rt->n_pages * b->rt->page_tokens)
        return seam_fail(err, SEAM_EINVAL,
                         "%u tokens are asked for; the model holds %u, the "
                         "cache %u (engine.cache_bytes)",
                         longest, b->rt->limits.max_context,
                         b->rt->n_pages * b->rt->page_tokens);
    b->n_pages = (longest + b->rt->page_tokens - 1) / b->rt->page_tokens;
    b->page = calloc(b->n_pages, sizeof *b->page);
    b->token = calloc(longest, sizeof *b->token);
    b->state = malloc(seam_runtime_row_bytes(b->rt) + 1);
    if (!b->page || !b->token || !b->state)
        return seam_fail(err, SEAM_ENOMEM, "out of memory");
    for (uint32_t i = 0; i < b->n_pages; i++)
        b->page[i] = (int32_t)i;
    for (uint32_t i = 0; i < longest; i++) {
        x = x * 1664525u + 1013904223u;
        b->token[i] = (int32_t)(((uint64_t)x * b->m->vocab) >> 32);
    }
    seam_checkpoint_each(b->rt->model.checkpoint, bytes_of, b);
    rc = seam_machine_new(&b->machine, b->rt->pool, o->read_bytes, err);
    return rc ? rc : seam_runtime_zero_row(b->rt, 0, err);
}

static int order_u32(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

int seam_bench_model_run(const struct seam_bench_model_opts *o,
                         struct seam_error *err)
{
    struct seam_bench_model_opts sorted = *o;
    struct bench b = { .o = &sorted };
    int rc;

    qsort(sorted.context, sorted.n_contexts, sizeof *sorted.context, order_u32);
    rc = bench_open(&b, err);
    for (uint32_t i = 0; i < sorted.n_contexts && !rc; i++)
        rc = bench_point(&b, sorted.context[i], err);
    seam_machine_free(b.machine);
    seam_runtime_close(b.rt);
    free(b.page);
    free(b.token);
    free(b.state);
    return rc;
}
