/* script - a backend that computes nothing and samples from a list, so that the
 * server can be tested without a model.
 *
 *   scripts   lists of token ids; a request with seed s > 0 gets list s - 1,
 *             one id per token; the end of a list repeats its last id.  Instead
 *             of an id: -1 the logits are not finite, -2 the step fails, -3 the
 *             device is lost
 *   repeat    start again at the end of a list
 *   any_seed  the first list whatever the seed
 *   delay_ms  of every step after the first (the warm-up)
 *   gate_fd   every step first reads one byte from this descriptor; at its end
 *             (EOF) steps run freely
 *   token_fd  the same for every sampled token
 *   trace_fd  every step writes "step <token rows>\n" here, every sampled token
 *             "sample <seed> <counter>\n" */
#include <seam/plugin.h>

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "plugin_util.h"

enum { FAIL_NAN = -1, FAIL_STEP = -2, FAIL_DEVICE = -3 };

static const struct seam_host *host;

struct list {
    int32_t *id;
    uint64_t n;
};

struct script {
    struct list *list;
    uint64_t n_lists;
    int32_t repeat, any_seed;
    int64_t delay_ms;
    int64_t gate_fd, token_fd, trace_fd;
    bool warm; /* the first step is over */
};

/* ---- Steps --------------------------------------------------------------- */

static void trace(const struct script *s, const char *what, uint64_t a,
                  uint64_t b)
{
    char line[80];
    int n = snprintf(line, sizeof line, "%s %llu %llu\n", what,
                     (unsigned long long)a, (unsigned long long)b);

    if (s->trace_fd >= 0 && write((int)s->trace_fd, line, (size_t)n) != n)
        return; /* nobody reads: nothing to do about it */
}

static void gate(int64_t fd)
{
    char byte;

    if (fd >= 0)
        while (read((int)fd, &byte, 1) < 0 && errno == EINTR)
            ;
}

/* Called once at the start of every step. */
static int ops_embed(void *be, const struct seam_exec *e, const int32_t *id,
                     uint32_t n, const struct seam_tensor *table,
                     const struct seam_tensor *y)
{
    struct script *s = be;
    struct timespec t = { .tv_sec = s->delay_ms / 1000,
                          .tv_nsec = s->delay_ms % 1000 * 1000000 };

    (void)e;
    (void)id;
    (void)table;
    (void)y;
    if (!s->warm) {
        s->warm = true;
        return SEAM_OK;
    }
    trace(s, "step", n, 0);
    gate(s->gate_fd);
    if (s->delay_ms)
        nanosleep(&t, NULL);
    return SEAM_OK;
}

static int32_t scripted(const struct script *s, uint64_t seed, uint64_t counter)
{
    const struct list *l;

    if (s->any_seed && s->n_lists)
        seed = 1;
    if (!seed || seed > s->n_lists)
        return 0;
    l = &s->list[seed - 1];
    if (!l->n)
        return 0;
    if (counter >= l->n)
        counter = s->repeat ? counter % l->n : l->n - 1;
    return l->id[counter];
}

/* id, or where row i of a mask forbids it the next that is allowed. */
static int32_t permitted(const struct seam_sample *a, uint32_t i, int32_t id)
{
    const struct seam_filter *f = &a->filter;
    uint32_t n = (uint32_t)a->logits.shape[1];
    const uint32_t *row;

    if (id < 0 || !f->mask || !f->mask_row || f->mask_row[i] < 0)
        return id;
    row = f->mask + (uint64_t)f->mask_row[i] * ((n + 31) / 32);
    for (uint32_t k = 0; k < n; k++) {
        uint32_t x = ((uint32_t)id + k) % n;

        if (row[x / 32] >> (x % 32) & 1)
            return (int32_t)x;
    }
    return id;
}

static int ops_sample(void *be, const struct seam_exec *e,
                      const struct seam_sample *a)
{
    const struct script *s = be;

    for (uint32_t i = 0; i < a->n; i++) {
        uint64_t seed = a->filter.seed[i], counter = a->filter.counter[i];
        int32_t id = scripted(s, seed, counter);

        if (seed) {
            trace(s, "sample", seed, counter);
            gate(s->token_fd);
        }
        if (id == FAIL_STEP)
            return plug_fail(e->err, SEAM_EDATA, "script: told to fail");
        if (id == FAIL_DEVICE)
            return plug_fail(e->err, SEAM_EDEVICE, "script: told to be lost");
        id = permitted(a, i, id);
        a->token[i] = id;
        if (a->logprob)
            a->logprob[i] = -0.125f * (float)(counter % 8);
        for (uint32_t k = 0; k < a->n_top; k++) {
            a->top_id[i * a->n_top + k] = id < 0 ? 0 : id + (int32_t)k;
            a->top_logprob[i * a->n_top + k] =
                -0.125f * (float)(counter % 8) - (float)k;
        }
    }
    return SEAM_OK;
}

static int ops_verify(void *be, const struct seam_exec *e,
                      const struct seam_verify *a)
{
    (void)be;
    (void)a;
    return plug_fail(e->err, SEAM_ENOTSUP, "script: no verification");
}

/* ---- Everything else does nothing ---------------------------------------- */

static int ops_gemm(void *be, const struct seam_exec *e,
                    const struct seam_gemm *a)
{
    (void)be;
    (void)e;
    (void)a;
    return SEAM_OK;
}

static int ops_residual(void *be, const struct seam_exec *e,
                        const struct seam_residual *a)
{
    (void)be;
    (void)e;
    (void)a;
    return SEAM_OK;
}

static int ops_norm(void *be, const struct seam_exec *e,
                    const struct seam_tensor *x, const struct seam_tensor *w,
                    float eps, const struct seam_tensor *y)
{
    (void)be;
    (void)e;
    (void)x;
    (void)w;
    (void)eps;
    (void)y;
    return SEAM_OK;
}

static int ops_glu(void *be, const struct seam_exec *e,
                   const struct seam_tensor *g, const struct seam_tensor *u,
                   float limit, const struct seam_tensor *y)
{
    (void)be;
    (void)e;
    (void)g;
    (void)u;
    (void)limit;
    (void)y;
    return SEAM_OK;
}

static int ops_gather(void *be, const struct seam_exec *e,
                      const struct seam_tensor *x, const int32_t *row,
                      uint32_t n, const struct seam_tensor *y)
{
    (void)be;
    (void)e;
    (void)x;
    (void)row;
    (void)n;
    (void)y;
    return SEAM_OK;
}

static int be_device(void *self, struct seam_device *out,
                     struct seam_error *err)
{
    (void)self;
    (void)err;
    out->ordinal = -1;
    snprintf(out->arch, sizeof out->arch, "script");
    out->units = 1;
    out->wave = 1;
    return SEAM_OK;
}

static int be_alloc(void *self, uint32_t mem, uint64_t bytes, uint64_t align,
                    void **out, struct seam_error *err)
{
    void *p;

    (void)self;
    (void)mem;
    if (posix_memalign(&p, align < sizeof p ? sizeof p : align, bytes))
        return plug_fail(err, SEAM_ENOMEM, "script: no memory");
    memset(p, 0, bytes);
    *out = p;
    return SEAM_OK;
}

static void be_free(void *self, uint32_t mem, void *p)
{
    (void)self;
    (void)mem;
    free(p);
}

static int be_new(void *self, void **handle, struct seam_error *err)
{
    (void)self;
    (void)err;
    *handle = NULL;
    return SEAM_OK;
}

static void be_release(void *self, void *handle)
{
    (void)self;
    (void)handle;
}

static int be_wait(void *self, void *stream, struct seam_error *err)
{
    (void)self;
    (void)stream;
    (void)err;
    return SEAM_OK;
}

static int be_copy(void *self, void *stream, void *dst, const void *src,
                   uint64_t bytes, struct seam_error *err)
{
    (void)self;
    (void)stream;
    (void)err;
    memmove(dst, src, bytes);
    return SEAM_OK;
}

static int be_fill(void *self, void *stream, void *dst, int32_t byte,
                   uint64_t bytes, struct seam_error *err)
{
    (void)self;
    (void)stream;
    (void)err;
    memset(dst, byte, bytes);
    return SEAM_OK;
}

static int be_event(void *self, void *event, void *stream,
                    struct seam_error *err)
{
    (void)self;
    (void)event;
    (void)stream;
    (void)err;
    return SEAM_OK;
}

static int be_done(void *self, void *event, struct seam_error *err)
{
    (void)self;
    (void)event;
    (void)err;
    return 1;
}

/* ---- Life ---------------------------------------------------------------- */

static int script_init(const struct seam_host *h, struct seam_error *err)
{
    (void)err;
    host = h;
    return SEAM_OK;
}

static void script_destroy(void *self)
{
    struct script *s = self;

    for (uint64_t i = 0; i < s->n_lists; i++)
        free(s->list[i].id);
    free(s->list);
    free(s);
}

static int script_read(struct script *s, const struct seam_cfg *cfg)
{
    char path[64];

    for (uint64_t i = 0; i < s->n_lists; i++) {
        struct list *l = &s->list[i];

        snprintf(path, sizeof path, "scripts[%llu]", (unsigned long long)i);
        if (host->cfg(host->ctx, cfg, path, SEAM_CFG_LEN, &l->n))
            return SEAM_EDATA;
        l->id = calloc(l->n ? l->n : 1, sizeof *l->id);
        if (!l->id)
            return SEAM_ENOMEM;
        for (uint64_t j = 0; j < l->n; j++) {
            int64_t v = 0;

            snprintf(path, sizeof path, "scripts[%llu][%llu]",
                     (unsigned long long)i, (unsigned long long)j);
            if (host->cfg(host->ctx, cfg, path, SEAM_CFG_I64, &v))
                return SEAM_EDATA;
            l->id[j] = (int32_t)v;
        }
    }
    return 0;
}

static int script_create(const struct seam_create *c, void **self,
                         struct seam_error *err)
{
    struct script *s = calloc(1, sizeof *s);

    if (!s)
        return plug_fail(err, SEAM_ENOMEM, "script: no memory");
    s->gate_fd = s->token_fd = s->trace_fd = -1;
    host->cfg(host->ctx, c->cfg, "repeat", SEAM_CFG_BOOL, &s->repeat);
    host->cfg(host->ctx, c->cfg, "any_seed", SEAM_CFG_BOOL, &s->any_seed);
    host->cfg(host->ctx, c->cfg, "delay_ms", SEAM_CFG_I64, &s->delay_ms);
    host->cfg(host->ctx, c->cfg, "gate_fd", SEAM_CFG_I64, &s->gate_fd);
    host->cfg(host->ctx, c->cfg, "token_fd", SEAM_CFG_I64, &s->token_fd);
    host->cfg(host->ctx, c->cfg, "trace_fd", SEAM_CFG_I64, &s->trace_fd);
    host->cfg(host->ctx, c->cfg, "scripts", SEAM_CFG_LEN, &s->n_lists);
    s->list = calloc(s->n_lists ? s->n_lists : 1, sizeof *s->list);
    if (!s->list || script_read(s, c->cfg)) {
        if (!s->list)
            s->n_lists = 0;
        script_destroy(s);
        return plug_fail(err, SEAM_EDATA,
                         "script: scripts must be lists of "
                         "token ids");
    }
    *self = s;
    return SEAM_OK;
}

static const struct seam_ops ops = {
    .size = sizeof ops,
    .gemm = ops_gemm,
    .embed = ops_embed,
    .residual = ops_residual,
    .norm = ops_norm,
    .glu = ops_glu,
    .gather = ops_gather,
    .sample = ops_sample,
    .verify = ops_verify,
};

static const struct seam_backend table = {
    .size = sizeof table,
    .ops = &ops,
    .device = be_device,
    .alloc = be_alloc,
    .free = be_free,
    .stream_new = be_new,
    .stream_free = be_release,
    .event_new = be_new,
    .event_free = be_release,
    .stream_wait = be_wait,
    .copy = be_copy,
    .fill = be_fill,
    .event_record = be_event,
    .event_join = be_event,
    .event_done = be_done,
};

SEAM_EXPORT const struct seam_plugin seam_plugin_entry = {
    .ident = { SEAM_IDENT(SEAM_KIND_BACKEND, struct seam_backend),
               .name = "script", .version = "1.0" },
    .table = &table,
    .init = script_init,
    .create = script_create,
    .destroy = script_destroy,
};
