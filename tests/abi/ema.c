/* ema.c - the smallest recurrent block: y[t] = s[t] = a s[t-1] + (1 - a) x[t].
 *
 * It shows what an attention plugin with state owes the core: one copy of the
 * state per token that may yet be rejected, and a commit that leaves plain
 * bytes in the first copy.  CPU, F32. */
#include <seam/plugin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct seam_host *host;

struct ema {
    uint64_t d;      /* width of a row of x, from the model's config */
    uint32_t copies; /* 1 + max_draft                                */
    uint32_t layers;
    float a;
    struct seam_grant g;
};

static int fail(struct seam_error *err, int code, const char *text)
{
    err->code = code;
    err->native = 0;
    snprintf(err->text, sizeof err->text, "%s", text);
    return code;
}

static int ema_init(const struct seam_host *h, struct seam_error *err)
{
    (void)err;
    host = h;
    return SEAM_OK;
}

static int ema_create(const struct seam_create *c, void **self,
                      struct seam_error *err)
{
    const struct seam_cfg *mc = host->model_cfg(host->ctx, c->model);
    int64_t d = 0;
    double a = 0.9;

    if (c->device->ordinal != -1 || c->limits->act_dtype != SEAM_F32)
        return fail(err, SEAM_ENOTSUP, "ema runs on the CPU in F32 only");
    if (host->cfg(host->ctx, mc, "hidden_size", SEAM_CFG_I64, &d) || d < 1)
        return fail(err, SEAM_EDATA, "model config: hidden_size missing");
    if (host->cfg(host->ctx, c->cfg, "a", SEAM_CFG_F64, &a) == SEAM_EINVAL)
        return fail(err, SEAM_EDATA, "ema config: \"a\" must be a number");

    struct ema *m = calloc(1, sizeof *m);
    if (!m)
        return fail(err, SEAM_ENOMEM, "out of memory");
    m->d = (uint64_t)d;
    m->copies = 1 + c->limits->max_draft;
    m->layers = c->n_layers;
    m->a = (float)a;
    *self = m;
    return SEAM_OK;
}

static int ema_needs(void *self, struct seam_needs *n, struct seam_error *err)
{
    struct ema *m = self;
    (void)err;
    n->capture = SEAM_CAP_FORWARD | SEAM_CAP_COMMIT;
    n->flags = SEAM_NEEDS_ROW_INVARIANT;
    n->state_bytes = m->d * sizeof(float);
    n->state_copies = m->copies;
    n->layout_id = 0x656d610000000001; /* change it when the state changes */
    return SEAM_OK;
}

static int ema_attach(void *self, const struct seam_grant *g,
                      struct seam_error *err)
{
    struct ema *m = self;
    (void)err;
    m->g = *g;
    return SEAM_OK;
}

/* Copy `k` of a row: the state after the step's k-th token, counted from 0. */
static float *copy_of(const struct ema *m, uint32_t layer, int32_t row,
                      uint32_t k)
{
    uint64_t i = (uint64_t)row * m->copies + k;
    return (float *)((char *)m->g.state[layer] + i * m->g.state_stride);
}

/* The copy that holds the state after `acc` tokens.  A step too long to be
 * rolled back leaves its last state, the only one that can be asked for, in the
 * first copy. */
static uint32_t copy_at(const struct ema *m, int32_t acc)
{
    return acc == 0 || (uint32_t)acc > m->copies ? 0 : (uint32_t)acc - 1;
}

static float *row_of(const struct seam_tensor *t, int64_t r)
{
    return (float *)((char *)t->data + r * t->stride[0]);
}

static int ema_forward(void *self, const struct seam_exec *e,
                       const struct seam_block_args *b)
{
    struct ema *m = self;
    const struct seam_step *s = b->step;
    int64_t end = s->q_start[s->n_seqs];

    if (b->layer >= m->layers || b->x.dtype != SEAM_F32 ||
        b->y.dtype != SEAM_F32 || (uint64_t)b->x.shape[1] != m->d)
        return fail(e->err, SEAM_EINVAL, "ema: forward expects rows of d F32");
    for (uint32_t i = 0; i < s->n_seqs; i++) {
        int32_t row = s->state_row[i], t0 = s->q_start[i];
        uint32_t w = (uint32_t)(s->q_start[i + 1] - t0);
        const float *prev = NULL;

        if (row >= 0)
            prev = copy_of(m, b->layer, row, copy_at(m, s->n_accept[i]));
        for (uint32_t t = 0; t < w; t++) {
            const float *x = row_of(&b->x, t0 + (int64_t)t);
            float *y = row_of(&b->y, t0 + (int64_t)t);

            if (row < 0) { /* a padding sequence */
                memset(y, 0, m->d * sizeof *y);
                continue;
            }
            for (uint64_t j = 0; j < m->d; j++)
                y[j] = m->a * prev[j] + (1 - m->a) * x[j];
            prev = y; /* the copies are written once prev is done with */
        }
        for (uint32_t t = w > m->copies ? w - 1 : 0; row >= 0 && t < w; t++)
            memcpy(copy_of(m, b->layer, row, w > m->copies ? 0 : t),
                   row_of(&b->y, t0 + (int64_t)t), m->d * sizeof(float));
    }
    for (int64_t r = end; r < (int64_t)s->n_tokens; r++) /* padding rows */
        memset(row_of(&b->y, r), 0, m->d * sizeof(float));
    return SEAM_OK;
}

static int ema_commit(void *self, const struct seam_exec *e, uint32_t n,
                      const int32_t *row, const int32_t *n_accept)
{
    struct ema *m = self;
    (void)e;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t l = 0; row[i] >= 0 && l < m->layers; l++) {
            uint32_t k = copy_at(m, n_accept[i]);
            if (k)
                memcpy(copy_of(m, l, row[i], 0), copy_of(m, l, row[i], k),
                       m->d * sizeof(float));
        }
    return SEAM_OK;
}

static const struct seam_block ema_block = {
    .size = sizeof ema_block,
    .forward = ema_forward,
    .commit = ema_commit,
};

const struct seam_plugin seam_plugin_entry = {
    .ident = { SEAM_IDENT(SEAM_KIND_ATTENTION, struct seam_block),
               .name = "ema", .version = "1.0.0", .build = __VERSION__ },
    .table = &ema_block,
    .init = ema_init,
    .create = ema_create,
    .needs = ema_needs,
    .attach = ema_attach,
    .destroy = free,
};
