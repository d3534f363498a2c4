/* A block plugin that computes what its reference does, and on a given
 * occasion does something else:
 *
 *   fault    "none"; "fail", an error; "nomem", ENOMEM; "lost", EDEVICE; "nan",
 *            "inf": one row of the output; "state", "plane", "keep", "scratch": 16 bytes
 *            written past that memory; "hang": until told; "slow"; and in
 *            create: "create_fail", "create_nomem", "create_hang"
 *   layer    in the plugin's n-th layer, from 0
 *   pos      when a sequence comes to this position (its row is the one), or
 *   call     in the n-th step that counts, from 1
 *   warm     steps that do not count: 1, that of the start, unless it says
 *   times    on so many occasions; 0: always
 *   us       "slow": microseconds of every call
 *   say      "hang": descriptor that gets a byte when it begins
 *   fd       until a byte or the end can be read from it, or
 *   fifo     until somebody opens this FIFO for writing
 *
 * FAULT_INNER is the source of the reference, FAULT_NAME and FAULT_KIND what
 * this one is called. */
#define seam_plugin_entry fault_inner
#include FAULT_INNER
#undef seam_plugin_entry

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

extern SEAM_EXPORT const struct seam_plugin seam_plugin_entry;

static const struct seam_host *fault_host;

struct fault {
    void *inner;
    char what[16], fifo[128];
    int64_t layer, pos, call, times, us, fd, say;
    int64_t steps, done; /* that count, once above 0; faults so far */
    struct seam_needs needs;
    struct seam_grant g;
};

static const struct seam_block *inner_block(void)
{
    return fault_inner.table;
}

static bool is(const struct fault *f, const char *what)
{
    return !strcmp(f->what, what);
}

static void fault_wait(const struct fault *f)
{
    char byte;
    int fd;

    fault_host->log(fault_host->ctx, SEAM_LOG_INFO, "the fault hangs");
    if (f->say >= 0 && write((int)f->say, "x", 1) != 1)
        return;
    if (f->fd >= 0) {
        while (read((int)f->fd, &byte, 1) < 0 && errno == EINTR)
            ;
        return;
    }
    do
        fd = open(f->fifo, O_RDONLY | O_CLOEXEC);
    while (fd < 0 && errno == EINTR);
    if (fd >= 0)
        close(fd);
}

/* The row whose turn it is, or -1: it is not the occasion. */
static int64_t fault_row(struct fault *f, const struct seam_block_args *a)
{
    const struct seam_step *s = a->step;

    if (a->layer != (uint32_t)f->layer || (f->times && f->done >= f->times))
        return -1;
    if (f->pos < 0)
        return f->call < 0 || f->steps == f->call ? 0 : -1;
    for (uint32_t t = 0; t < s->n_tokens; t++)
        if (s->pos[t] == f->pos)
            return t;
    return -1;
}

static void past(void *p, uint64_t bytes)
{
    if (p)
        memset((char *)p + bytes, 0x11, 16);
}

static int fault_forward(void *self, const struct seam_exec *e,
                         const struct seam_block_args *a)
{
    struct fault *f = self;
    int64_t row;
    int rc;

    f->steps += a->layer == 0 ? 1 : 0;
    row = f->steps < 1 ? -1 : fault_row(f, a);
    if (is(f, "slow")) {
        struct timespec t = { .tv_sec = f->us / 1000000,
                              .tv_nsec = f->us % 1000000 * 1000 };

        nanosleep(&t, NULL);
    }
    rc = inner_block()->forward(f->inner, e, a);
    if (rc || row < 0)
        return rc;
    f->done++;
    if (is(f, "fail"))
        return plug_fail(e->err, SEAM_EDATA, "told to fail");
    if (is(f, "nomem"))
        return plug_fail(e->err, SEAM_ENOMEM, "told to have no memory");
    if (is(f, "lost"))
        return plug_fail(e->err, SEAM_EDEVICE, "told to be lost");
    if (is(f, "hang"))
        fault_wait(f);
    if (is(f, "nan") || is(f, "inf"))
        *(float *)((char *)a->y.data + row * a->y.stride[0] + 12) =
            is(f, "nan") ? NAN : INFINITY;
    if (is(f, "state") && f->g.state)
        past(f->g.state[a->layer],
             f->g.state_stride * f->needs.state_copies * f->g.n_state_rows);
    if (is(f, "plane") && f->g.plane[0])
        past(f->g.plane[0][a->layer], f->g.page_stride[0] * f->g.n_pages);
    if (is(f, "keep"))
        past(f->g.keep, f->needs.keep_bytes);
    if (is(f, "scratch"))
        past(e->ws, e->ws_bytes);
    return SEAM_OK;
}

static int fault_begin(void *self, const struct seam_exec *e,
                       const struct seam_step *s)
{
    struct fault *f = self;

    return inner_block()->begin ? inner_block()->begin(f->inner, e, s) : 0;
}

static int fault_commit(void *self, const struct seam_exec *e, uint32_t n,
                        const int32_t *row, const int32_t *n_accept)
{
    struct fault *f = self;

    return inner_block()->commit
               ? inner_block()->commit(f->inner, e, n, row, n_accept)
               : 0;
}

/* ---- Life ---------------------------------------------------------------- */

static int fault_init(const struct seam_host *h, struct seam_error *err)
{
    fault_host = h;
    return fault_inner.init(h, err);
}

static void fault_read(struct fault *f, const struct seam_cfg *cfg)
{
    const struct seam_host *h = fault_host;
    struct seam_str s = { 0 };
    int64_t warm = 1;

    f->pos = f->call = f->fd = f->say = -1;
    f->times = 1;
    snprintf(f->what, sizeof f->what, "none");
    if (!h->cfg(h->ctx, cfg, "fault", SEAM_CFG_STR, &s))
        snprintf(f->what, sizeof f->what, "%.*s", (int)s.n, s.p);
    if (!h->cfg(h->ctx, cfg, "fifo", SEAM_CFG_STR, &s))
        snprintf(f->fifo, sizeof f->fifo, "%.*s", (int)s.n, s.p);
    h->cfg(h->ctx, cfg, "layer", SEAM_CFG_I64, &f->layer);
    h->cfg(h->ctx, cfg, "pos", SEAM_CFG_I64, &f->pos);
    h->cfg(h->ctx, cfg, "call", SEAM_CFG_I64, &f->call);
    h->cfg(h->ctx, cfg, "warm", SEAM_CFG_I64, &warm);
    f->steps = -warm;
    h->cfg(h->ctx, cfg, "times", SEAM_CFG_I64, &f->times);
    h->cfg(h->ctx, cfg, "us", SEAM_CFG_I64, &f->us);
    h->cfg(h->ctx, cfg, "fd", SEAM_CFG_I64, &f->fd);
    h->cfg(h->ctx, cfg, "say", SEAM_CFG_I64, &f->say);
}

static int fault_create(const struct seam_create *c, void **self,
                        struct seam_error *err)
{
    struct fault *f = calloc(1, sizeof *f);
    int rc;

    if (!f)
        return plug_fail(err, SEAM_ENOMEM, "out of memory");
    fault_read(f, c->cfg);
    rc = fault_inner.create(c, &f->inner, err);
    if (!rc && is(f, "create_fail"))
        rc = plug_fail(err, SEAM_EDATA, "told to fail");
    if (!rc && is(f, "create_nomem"))
        rc = plug_fail(err, SEAM_ENOMEM, "told to have no memory");
    if (!rc && is(f, "create_hang"))
        fault_wait(f);
    if (rc) {
        if (f->inner)
            fault_inner.destroy(f->inner);
        free(f);
        return rc;
    }
    *self = f;
    return SEAM_OK;
}

static int fault_needs(void *self, struct seam_needs *n, struct seam_error *err)
{
    struct fault *f = self;
    int rc = fault_inner.needs(f->inner, n, err);

    if (!rc && !n->keep_bytes && is(f, "keep"))
        n->keep_bytes = 64;
    f->needs = *n;
    return rc;
}

static int fault_attach(void *self, const struct seam_grant *g,
                        struct seam_error *err)
{
    struct fault *f = self;

    f->g = *g;
    return fault_inner.attach(f->inner, g, err);
}

static void fault_destroy(void *self)
{
    struct fault *f = self;

    fault_inner.destroy(f->inner);
    free(f);
}

static const struct seam_block fault_block = {
    .size = sizeof fault_block,
    .begin = fault_begin,
    .forward = fault_forward,
    .commit = fault_commit,
};

const struct seam_plugin seam_plugin_entry = {
    .ident = { SEAM_IDENT(FAULT_KIND, struct seam_block), .name = FAULT_NAME,
               .version = "1.0" },
    .table = &fault_block,
    .init = fault_init,
    .create = fault_create,
    .needs = fault_needs,
    .attach = fault_attach,
    .destroy = fault_destroy,
};
