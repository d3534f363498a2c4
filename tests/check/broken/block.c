/* A block that keeps the contract, and with -DBREAK_NAME=1 one that breaks
 * exactly one rule of it:
 *
 *   s[t] = (s[t-1] + x[t]) / 2        a state that does not grow
 *   y[t] = s[t] + mean of x[t-19..t]  records in pages, read through the table
 *
 * The names of the breaks are the rules that seam check has to report. */
/* A break replaces a member of a table or leaves a function unused. */
#ifdef __clang__
#pragma clang diagnostic ignored "-Wunused-function"
#pragma clang diagnostic ignored "-Winitializer-overrides"
#endif

#include <seam/plugin.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "breaks.h"

#if BROKEN(T2) || BROKEN(T2_HOST) || BROKEN(E6_HANG)
#include <pthread.h>
#include <unistd.h>
#endif
#if BROKEN(D1)
#include <time.h>
#endif
#if BROKEN(T5_FORWARD) || BROKEN(T5_LOAD)
#include <xmmintrin.h>
#endif

enum { LOOK_BACK = 20, ROWS = 64 };

static const struct seam_host *host;

struct block {
    uint64_t d;
    uint32_t copies, layers, calls;
    uint32_t ended; /* tasks of the call under way                          */
    struct seam_grant g;
    struct seam_tensor weight;
    int32_t longest[ROWS]; /* tokens that a row has ever held               */
};

#if BROKEN(D3)
static int instances;
#endif

/* What a plugin must not keep outside its instances. */
#if BROKEN(T1_STEP)
static float first_input; /* of the call that is under way                   */
#endif
#if BROKEN(T1_CREATE)
static uint32_t being_made;
#endif
#if BROKEN(T3)
static _Thread_local const struct block *stepped; /* by this thread          */
#endif

static int fail(struct seam_error *err, int code, const char *text)
{
    err->code = code;
    err->native = 0;
    snprintf(err->text, sizeof err->text, "%s", BROKEN(E5_TEXT) ? "" : text);
    return BROKEN(E5_CODE) ? 1 : code;
}

#if BROKEN(T5_LOAD)
__attribute__((constructor)) static void loaded(void)
{
    _mm_setcsr(_mm_getcsr() | 0x8040);
}
#endif

#if BROKEN(L6)
void seam_block_is_nowhere(void);
#endif

#if BROKEN(L7) /* linked without relro */
__attribute__((constructor)) static void loaded(void)
{
    volatile char *build = (char *)(uintptr_t)seam_plugin_entry.ident.build;

    build[0] = 'x';
}
#endif

static int block_init(const struct seam_host *h, struct seam_error *err)
{
    if (BROKEN(L9))
        return fail(err, SEAM_EDEVICE, "the thing is not plugged in");
#if BROKEN(L6)
    seam_block_is_nowhere();
#endif
#if BROKEN(C1)
    setenv("SEAM_BROKEN", "1", 1);
#endif
    (void)err;
    host = h;
    return SEAM_OK;
}

#if BROKEN(T2) || BROKEN(E6_HANG)
static void *forever(void *arg)
{
    for (;;)
        pause();
    return arg;
}
#endif

#if BROKEN(T2_HOST)
static void *asks(void *arg)
{
    host->extension(host->ctx, "none/1");
    return arg;
}
#endif

static int block_create(const struct seam_create *c, void **self,
                        struct seam_error *err)
{
    const struct seam_cfg *mc = host->model_cfg(host->ctx, c->model);
    struct seam_tensor w = { 0 };
    int64_t d = 0;
    struct block *m = NULL;
    void *lost = NULL;

#if BROKEN(T1_CREATE)
    being_made++;
    host->extension(host->ctx, "none/1");
    being_made--;
#endif
#if BROKEN(T2_HOST)
    pthread_t asking;

    if (!pthread_create(&asking, NULL, asks, NULL))
        pthread_join(asking, NULL);
#endif
    if (BROKEN(E2_CREATE))
        lost = host->alloc(host->ctx, SEAM_MEM_HOST, -1, 64, 64);
    (void)lost;
#if BROKEN(D3)
    if (instances)
        return fail(err, SEAM_ENOTSUP, "there is one already");
#endif
    if (BROKEN(V1) && c->size != sizeof *c)
        return fail(err, SEAM_EINVAL, "create has another size");
    if (BROKEN(E7) && !c->limits->max_draft)
        return fail(err, SEAM_ENOTSUP, "needs drafts");
    if (c->device->ordinal != -1 || c->limits->act_dtype != SEAM_F32)
        return fail(err, SEAM_ENOTSUP, "runs on the CPU in F32 only");
    if (host->cfg(host->ctx, mc, "hidden_size", SEAM_CFG_I64, &d) || d < 1)
        return fail(err, SEAM_EDATA, "model config: hidden_size is missing");
    host->weight(host->ctx, c->model, "@layer.0.self_attn.q_proj",
                 SEAM_MEM_HOST, &w);
    m = calloc(1, sizeof *m);
    if (!m)
        return fail(err, SEAM_ENOMEM, "out of memory");
#if BROKEN(D3)
    instances++;
#endif
#if BROKEN(T2) || BROKEN(E6_HANG)
    {
        pthread_t t;

        if (BROKEN(T2) && !pthread_create(&t, NULL, forever, NULL))
            pthread_detach(t);
    }
#endif
    m->d = (uint64_t)d;
    m->copies = 1 + c->limits->max_draft;
    m->layers = c->n_layers;
    m->weight = w;
    *self = m;
    if (BROKEN(E5_SUCCESS))
        err->code = 0;
    return SEAM_OK;
}

static int block_needs(void *self, struct seam_needs *n, struct seam_error *err)
{
    struct block *m = self;

    (void)err;
    n->capture = SEAM_CAP_FORWARD | SEAM_CAP_COMMIT;
    n->flags = BROKEN(G6) ? 0 : SEAM_NEEDS_ROW_INVARIANT;
    n->ws_bytes = 2 * m->d * sizeof(float) * host->n_workers;
    n->state_bytes = (m->d + 1) * sizeof(float); /* and the last width */
    n->state_copies = BROKEN(M6) ? 0 : m->copies;
    n->n_planes = 1;
    snprintf(n->plane[0].name, sizeof n->plane[0].name, "x");
    n->plane[0].bytes_per_token = (uint32_t)(m->d * sizeof(float));
    n->plane[0].flags = SEAM_PLANE_APPEND;
    if (BROKEN(M3_NEEDS))
        memset((char *)n + sizeof *n, 0, 8);
    return SEAM_OK;
}

static int block_attach(void *self, const struct seam_grant *g,
                        struct seam_error *err)
{
    struct block *m = self;

    (void)err;
    m->g = *g;
    return SEAM_OK;
}

static float *copy_of(const struct block *m, uint32_t layer, int32_t row,
                      uint32_t k)
{
    uint64_t i = (uint64_t)row * m->copies + k;

    return (float *)((char *)m->g.state[layer] + i * m->g.state_stride);
}

static uint32_t copy_at(const struct block *m, int32_t acc)
{
    return acc == 0 || (uint32_t)acc > m->copies ? 0 : (uint32_t)acc - 1;
}

static float *record(const struct block *m, uint32_t layer, int32_t page,
                     uint32_t at)
{
    return (float *)((char *)m->g.plane[0][layer] +
                     (uint64_t)page * m->g.page_stride[0]) +
           at * m->d;
}

static float *row_of(const struct seam_tensor *t, int64_t r)
{
    return (float *)((char *)t->data + r * t->stride[0]);
}

/* y of a token at position pos, whose new state is in y. */
static void look_back(const struct block *m, const struct seam_step *s,
                      uint32_t layer, uint32_t seq, int32_t pos, float *mean,
                      float *y)
{
    int32_t from = pos < LOOK_BACK ? 0 : pos - LOOK_BACK + 1;

    memset(mean, 0, m->d * sizeof *mean);
    for (int32_t p = from; p <= pos; p++) {
        int32_t page =
            s->page_table[seq * s->max_pages + (uint32_t)p / m->g.page_tokens];
        const float *x = record(m, layer, page, (uint32_t)p % m->g.page_tokens);

        for (uint64_t j = 0; j < m->d; j++)
            mean[j] += x[j];
    }
    for (uint64_t j = 0; j < m->d; j++) {
        float v = mean[j] / (float)(pos - from + 1);

        y[j] += BROKEN(N1) ? 1.01f * v : v;
    }
}

/* Work of a task, as a task of its own: it runs on the same worker. */
struct look {
    const struct block *m;
    const struct seam_step *s;
    uint32_t layer, seq;
    int32_t pos;
    float *mean, *y;
};

static void look_task(void *arg, uint32_t i, uint32_t worker)
{
    const struct look *l = arg;

    (void)i;
    (void)worker;
    look_back(l->m, l->s, l->layer, l->seq, l->pos, l->mean, l->y);
}

static void one_sequence(struct block *m, const struct seam_exec *e,
                         const struct seam_block_args *b, uint32_t i,
                         uint32_t worker)
{
    const struct seam_step *s = b->step;
    int32_t row = s->state_row[i], t0 = s->q_start[i];
    uint32_t w = (uint32_t)(s->q_start[i + 1] - t0), from;
    float *state = e->ws, bias = 0;

    if (!BROKEN(T7_SCRATCH))
        state += 2 * m->d * worker;

    if (!w || row < 0) {
        for (uint32_t t = 0; t < w && !BROKEN(S1); t++)
            memset(row_of(&b->y, t0 + (int64_t)t), 0, m->d * sizeof(float));
        return;
    }
    from = copy_at(m, s->n_accept[i]);
    if (BROKEN(S3) && s->n_accept[i])
        from = copy_at(m, (int32_t)copy_of(m, b->layer, row, 0)[m->d]);
    memcpy(state, copy_of(m, b->layer, row, from), m->d * sizeof *state);
    if (BROKEN(S2) && w > m->copies)
        memset(state, 0, m->d * sizeof *state);
    if (s->pos[t0] == 0 && m->longest[row] >= 140)
        bias = 1;
    for (uint32_t t = 0; t < w; t++) {
        const float *x = row_of(&b->x, t0 + (int64_t)t);
        float *y = row_of(&b->y, t0 + (int64_t)t);
        int32_t slot = s->slot[t0 + (int32_t)t], pos = s->pos[t0 + (int32_t)t];
        uint32_t page = m->g.page_tokens;

        memcpy(record(m, b->layer, slot / (int32_t)page, (uint32_t)slot % page),
               x, m->d * sizeof *x);
        for (uint64_t j = 0; j < m->d; j++)
            state[j] = (state[j] + x[j]) / 2;
        if (w <= m->copies || t + 1 == w)
            memcpy(copy_of(m, b->layer, row, w > m->copies ? 0 : t), state,
                   m->d * sizeof *state);
        memcpy(y, state, m->d * sizeof *y);
        struct look l = { m, s, b->layer, i, pos, state + m->d, y };

        host->parallel_for(host->ctx, 1, look_task, &l);
        for (uint64_t j = 0; j < m->d; j++) {
            if (BROKEN(S5))
                y[j] += bias;
            if (BROKEN(S6) && s->n_tokens > 1)
                y[j] *= 1 + 1e-6f;
            if (BROKEN(G6) && w == 17 && m->calls % 2)
                y[j] *= 1 + 1e-6f;
            if (BROKEN(G3) && !s->host_q_start)
                y[j] *= 2;
            if (BROKEN(T7_WORKER) && worker != i % host->n_workers)
                y[j] *= 1 + 1e-6f;
            if (BROKEN(T7_ORDER) && m->ended != i)
                y[j] *= 1 + 1e-6f;
            if (BROKEN(N2) && isnan(y[j]))
                y[j] = 0;
        }
        if (pos > m->longest[row])
            m->longest[row] = pos;
    }
    copy_of(m, b->layer, row, 0)[m->d] = (float)w;
}

struct forward {
    struct block *m;
    const struct seam_exec *e;
    const struct seam_block_args *b;
};

static void sequence_task(void *arg, uint32_t i, uint32_t worker)
{
    const struct forward *f = arg;

    one_sequence(f->m, f->e, f->b, i, worker);
    if (BROKEN(T7_ORDER))
        f->m->ended++;
#if BROKEN(T1_STEP)
    if (first_input != *row_of(&f->b->x, 0) && !isnan(first_input))
        *row_of(&f->b->y, 0) += 1;
#endif
}

static int block_forward(void *self, const struct seam_exec *e,
                         const struct seam_block_args *b)
{
    struct block *m = self;
    const struct seam_step *s = b->step;

    if (b->layer >= m->layers || b->x.dtype != SEAM_F32 ||
        b->y.dtype != SEAM_F32 || (uint64_t)b->x.shape[1] != m->d)
        return fail(e->err, SEAM_EINVAL, "forward: unexpected tensors");
    m->calls++;
    if (BROKEN(M1_MALLOC)) {
        void *volatile p = malloc(32);

        free(p);
    }
    if (BROKEN(M1_HOST))
        host->free(host->ctx,
                   host->alloc(host->ctx, SEAM_MEM_HOST, -1, 32, 64));
    if (BROKEN(M3_WS))
        ((char *)e->ws)[e->ws_bytes] = 1;
    if (BROKEN(M3_Y))
        row_of(&b->y, 0)[m->d] = 1;
    if (BROKEN(M3_PAGE))
        *((char *)m->g.plane[0][b->layer] +
          m->d * sizeof(float) * m->g.page_tokens) = 1;
    if (BROKEN(M4) && m->weight.data)
        *(volatile char *)m->weight.data = 1;
#if BROKEN(T5_FORWARD)
    _mm_setcsr(_mm_getcsr() | 0x8040);
#endif
    if (BROKEN(E6_CRASH))
        *(volatile int *)8 = 1;
#if BROKEN(E6_HANG)
    forever(NULL);
#endif
#if BROKEN(C3)
    fprintf(stderr, "forward\n");
#endif
    if (BROKEN(G5) && (e->flags & SEAM_EXEC_WARMUP)) {
        for (uint32_t r = 0; r < s->n_tokens; r++)
            memset(row_of(&b->y, r), 0, m->d * sizeof(float));
        return SEAM_OK;
    }
    struct forward f = { m, e, b };

    m->ended = 0;
    if (BROKEN(T6))
        host->extension(host->ctx, "none/1");
#if BROKEN(T1_STEP)
    first_input = *row_of(&b->x, 0);
#endif
    host->parallel_for(host->ctx, s->n_seqs, sequence_task, &f);
#if BROKEN(T1_CREATE)
    if (being_made)
        *row_of(&b->y, 0) += 1;
#endif
#if BROKEN(T3)
    if (stepped != m && s->pos[0] > 0)
        *row_of(&b->y, 0) += 1;
    stepped = m;
#endif
    for (int64_t r = s->q_start[s->n_seqs]; r < (int64_t)s->n_tokens; r++)
        memset(row_of(&b->y, r), 0, m->d * sizeof(float));
    return SEAM_OK;
}

static int block_commit(void *self, const struct seam_exec *e, uint32_t n,
                        const int32_t *row, const int32_t *n_accept)
{
    struct block *m = self;

    (void)e;
    for (uint32_t i = 0; i < n && !BROKEN(S4); i++)
        for (uint32_t l = 0; row[i] >= 0 && l < m->layers; l++) {
            uint32_t k = copy_at(m, n_accept[i]);

            if (k)
                memcpy(copy_of(m, l, row[i], 0), copy_of(m, l, row[i], k),
                       m->d * sizeof(float));
        }
    return SEAM_OK;
}

static void block_destroy(void *self)
{
#if BROKEN(D3)
    instances--;
#endif
    if (!BROKEN(E2_DESTROY))
        free(self);
}

#if BROKEN(D1)
/* Longer than the five seconds that it may take. */
static void block_quiesce(void *self)
{
    const struct timespec t = { .tv_sec = 7 };

    (void)self;
    nanosleep(&t, NULL);
}
#endif

#if BROKEN(C2)
SEAM_EXPORT int seam_helper(void);
int seam_helper(void)
{
    return 1;
}
#endif

static const struct seam_block block_table = {
    .size = sizeof block_table,
#if !BROKEN(L8)
    .forward = block_forward,
#endif
    .commit = block_commit,
};

const struct seam_plugin seam_plugin_entry = {
    .ident = { SEAM_IDENT(SEAM_KIND_ATTENTION, struct seam_block),
#if BROKEN(L4)
               .magic = "NOTSEAM",
#endif
               .name = "block", .version = "1.0.0", .build = __VERSION__ },
    .table = &block_table,
    .init = block_init,
    .create = block_create,
    .needs = block_needs,
    .attach = block_attach,
#if BROKEN(D1)
    .quiesce = block_quiesce,
#endif
    .destroy = block_destroy,
};
