#include "core/bench/watch.h"

#include "core/base/clock.h"

const char *const seam_watch_name[SEAM_N_WATCHED] = {
    [SEAM_WATCH_LINEAR] = "linear attention",
    [SEAM_WATCH_SPARSE] = "sparse attention",
    [SEAM_WATCH_MOE] = "experts",
    [SEAM_WATCH_HEAD] = "output head",
    [SEAM_WATCH_DENSE] = "dense MLP",
    [SEAM_WATCH_GLU] = "glu",
    [SEAM_WATCH_RESIDUAL] = "residual",
    [SEAM_WATCH_EMBED] = "embed",
    [SEAM_WATCH_GATHER] = "gather, norm",
    [SEAM_WATCH_BEGIN] = "begin",
    [SEAM_WATCH_SAMPLE] = "sample",
    [SEAM_WATCH_REST] = "between",
};

static void watch_add(struct seam_watch *w, enum seam_watch_part part,
                      uint64_t from)
{
    w->sum[part].ns += seam_now_ns() - from;
    w->sum[part].calls++;
}

/* ---- Blocks -------------------------------------------------------------- */

static int watch_begin(void *self, const struct seam_exec *e,
                       const struct seam_step *s)
{
    struct seam_watch_block *b = self;
    uint64_t from = seam_now_ns();
    int rc = b->real->table->begin(b->real->self, e, s);

    watch_add(b->watch, SEAM_WATCH_BEGIN, from);
    return rc;
}

static int watch_forward(void *self, const struct seam_exec *e,
                         const struct seam_block_args *a)
{
    struct seam_watch_block *b = self;
    uint64_t from = seam_now_ns();
    int rc = b->real->table->forward(b->real->self, e, a);

    watch_add(b->watch, b->part, from);
    return rc;
}

/* ---- The backend --------------------------------------------------------- */

static int watch_alloc(void *self, uint32_t mem, uint64_t bytes, uint64_t align,
                       void **out, struct seam_error *err)
{
    struct seam_watch *w = self;

    return w->real.backend->alloc(w->real.backend_self, mem, bytes, align, out,
                                  err);
}

static void watch_free(void *self, uint32_t mem, void *p)
{
    struct seam_watch *w = self;

    w->real.backend->free(w->real.backend_self, mem, p);
}

static int watch_gemm(void *be, const struct seam_exec *e,
                      const struct seam_gemm *a)
{
    struct seam_watch *w = be;
    uint64_t from = seam_now_ns();
    int rc = w->real.backend->ops->gemm(w->real.backend_self, e, a);

    watch_add(w, a->w.shape[0] == w->vocab ? SEAM_WATCH_HEAD : SEAM_WATCH_DENSE,
              from);
    return rc;
}

static int watch_embed(void *be, const struct seam_exec *e, const int32_t *id,
                       uint32_t n, const struct seam_tensor *table,
                       const struct seam_tensor *y)
{
    struct seam_watch *w = be;
    uint64_t from = seam_now_ns();
    int rc =
        w->real.backend->ops->embed(w->real.backend_self, e, id, n, table, y);

    watch_add(w, SEAM_WATCH_EMBED, from);
    return rc;
}

static int watch_residual(void *be, const struct seam_exec *e,
                          const struct seam_residual *a)
{
    struct seam_watch *w = be;
    uint64_t from = seam_now_ns();
    int rc = w->real.backend->ops->residual(w->real.backend_self, e, a);

    watch_add(w, SEAM_WATCH_RESIDUAL, from);
    return rc;
}

static int watch_norm(void *be, const struct seam_exec *e,
                      const struct seam_tensor *x, const struct seam_tensor *m,
                      float eps, const struct seam_tensor *y)
{
    struct seam_watch *w = be;
    uint64_t from = seam_now_ns();
    int rc = w->real.backend->ops->norm(w->real.backend_self, e, x, m, eps, y);

    watch_add(w, SEAM_WATCH_GATHER, from);
    return rc;
}

static int watch_glu(void *be, const struct seam_exec *e,
                     const struct seam_tensor *g, const struct seam_tensor *u,
                     float limit, const struct seam_tensor *y)
{
    struct seam_watch *w = be;
    uint64_t from = seam_now_ns();
    int rc = w->real.backend->ops->glu(w->real.backend_self, e, g, u, limit, y);

    watch_add(w, SEAM_WATCH_GLU, from);
    return rc;
}

static int watch_gather(void *be, const struct seam_exec *e,
                        const struct seam_tensor *x, const int32_t *row,
                        uint32_t n, const struct seam_tensor *y)
{
    struct seam_watch *w = be;
    uint64_t from = seam_now_ns();
    int rc =
        w->real.backend->ops->gather(w->real.backend_self, e, x, row, n, y);

    watch_add(w, SEAM_WATCH_GATHER, from);
    return rc;
}

void seam_watch_wrap(void *ctx, struct seam_glm5_next_opts *o)
{
    struct seam_watch *w = ctx;
    struct seam_block_ref *ref[3] = { &o->linear, &o->sparse, &o->moe };
    const struct seam_block_ref *real[3] = { &w->real.linear, &w->real.sparse,
                                             &w->real.moe };

    w->real = *o;
    w->vocab = seam_checkpoint_config(o->checkpoint)->vocab;
    w->ops = (struct seam_ops){
        .size = sizeof w->ops,
        .gemm = watch_gemm,
        .embed = watch_embed,
        .residual = watch_residual,
        .norm = watch_norm,
        .glu = watch_glu,
        .gather = watch_gather,
    };
    w->backend = (struct seam_backend){
        .size = sizeof w->backend,
        .ops = &w->ops,
        .alloc = watch_alloc,
        .free = watch_free,
    };
    o->backend = &w->backend;
    o->backend_self = w;
    for (uint32_t i = 0; i < 3; i++) {
        struct seam_watch_block *b = &w->block[i];

        if (!real[i]->table)
            continue;
        b->watch = w;
        b->real = real[i];
        b->part = (enum seam_watch_part)(SEAM_WATCH_LINEAR + i);
        b->table = *real[i]->table;
        b->table.forward = watch_forward;
        if (b->table.begin)
            b->table.begin = watch_begin;
        ref[i]->table = &b->table;
        ref[i]->self = b;
    }
}

/* ---- Launches ------------------------------------------------------------ */

static void counting_parallel_for(void *ctx, uint32_t n, seam_task *fn,
                                  void *arg)
{
    struct seam_counting_host *h = ctx;

    atomic_fetch_add_explicit(&h->launches, 1, memory_order_relaxed);
    seam_pool_run(h->hosted.pool, n, fn, arg);
}

void seam_counting_host_wrap(struct seam_counting_host *h,
                             struct seam_host *table)
{
    table->ctx = h;
    table->parallel_for = counting_parallel_for;
}
