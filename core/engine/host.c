#include "core/engine/host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/num.h"

/* A block handed to a plugin: the size precedes it, so that free can account
 * for it.  The gap is as wide as the alignment asked for. */
struct host_block {
    void *base;
    uint64_t bytes;
};

struct seam_hosted_counter {
    struct seam_hosted_counter *next;
    uint64_t value;
    char name[64];
    char unit[32];
};

static void host_log(void *ctx, uint32_t level, const char *msg)
{
    struct seam_hosted *h = ctx;

    seam_log(h->log, level, h->name, "%s", msg);
}

static void *host_alloc(void *ctx, uint32_t mem, int32_t device, uint64_t bytes,
                        uint64_t align)
{
    struct seam_hosted *h = ctx;
    uint64_t gap =
        align < sizeof(struct host_block) ? sizeof(struct host_block) : align;
    uint64_t total;
    struct host_block b = { .bytes = bytes };
    char *p;

    (void)device;
    /* Device memory is the backend's; plugins of a device ask for it through
     * needs, so the host table only ever gives host memory. */
    if (mem == SEAM_MEM_DEVICE || !align || (align & (align - 1)))
        return NULL;
    if (align < sizeof(void *))
        align = sizeof(void *);
    if (!seam_add(bytes, gap, &total))
        return NULL;
    if (posix_memalign(&b.base, align, total))
        return NULL;
    p = (char *)b.base + gap;
    memcpy(p - sizeof b, &b, sizeof b);
    h->allocated += bytes;
    return p;
}

static void host_free(void *ctx, void *p)
{
    struct seam_hosted *h = ctx;
    struct host_block b;

    if (!p)
        return;
    memcpy(&b, (char *)p - sizeof b, sizeof b);
    h->allocated -= b.bytes;
    free(b.base);
}

static void host_parallel_for(void *ctx, uint32_t n, seam_task *fn, void *arg)
{
    struct seam_hosted *h = ctx;

    seam_pool_run(h->pool, n, fn, arg);
}

static uint64_t *host_counter(void *ctx, const char *name, const char *unit)
{
    struct seam_hosted *h = ctx;
    struct seam_hosted_counter *c;

    for (c = h->counter; c; c = c->next)
        if (!strcmp(c->name, name))
            return &c->value;
    c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    snprintf(c->name, sizeof c->name, "%s", name);
    snprintf(c->unit, sizeof c->unit, "%s", unit);
    c->next = h->counter;
    h->counter = c;
    return &c->value;
}

static int host_cfg(void *ctx, const struct seam_cfg *node, const char *path,
                    uint32_t type, void *out)
{
    (void)ctx;
    return seam_cfg_get(node, path, type, out);
}

static const struct seam_cfg *host_model_cfg(void *ctx,
                                             const struct seam_model *m)
{
    (void)ctx;
    return m->cfg;
}

static int host_weight(void *ctx, const struct seam_model *m, const char *name,
                       uint32_t mem, struct seam_tensor *out)
{
    struct seam_hosted *h = ctx;
    struct seam_error err;
    int rc;

    /* One kind of memory serves both: on the CPU a view of the file is where
     * the weight is used. */
    if (mem != SEAM_MEM_HOST && mem != SEAM_MEM_DEVICE)
        return SEAM_EINVAL;
    rc = seam_checkpoint_weight(m->checkpoint, name, out, &err);
    if (rc && rc != SEAM_ENOENT)
        seam_log(h->log, SEAM_LOG_ERROR, h->name, "%s", err.text);
    return rc;
}

static int host_file(void *ctx, const struct seam_model *m, const char *name,
                     struct seam_str *out)
{
    struct seam_error err;

    (void)ctx;
    return seam_checkpoint_file(m->checkpoint, name, out, &err);
}

static int32_t host_token_id(void *ctx, const struct seam_model *m,
                             const char *piece)
{
    (void)ctx;
    if (!m->tokenizer)
        return SEAM_ENOENT;
    return seam_tokenizer_id(m->tokenizer, piece, strlen(piece));
}

static int host_no_block(void *ctx, const struct seam_model *m, uint32_t kind,
                         uint32_t layer, struct seam_lent *out)
{
    (void)ctx, (void)m, (void)kind, (void)layer, (void)out;
    return SEAM_ENOENT;
}

static const void *host_extension(void *ctx, const char *id)
{
    (void)ctx, (void)id;
    return NULL;
}

void seam_hosted_init(struct seam_hosted *h, const char *name,
                      const struct seam_log *log, struct seam_pool *pool)
{
    *h = (struct seam_hosted){ .log = log, .pool = pool };
    snprintf(h->name, sizeof h->name, "%s", name);
    h->table = (struct seam_host){
        .size = sizeof h->table,
        .abi_major = SEAM_ABI_MAJOR,
        .abi_minor = SEAM_ABI_MINOR,
        .n_workers = seam_pool_size(pool),
        .ctx = h,
        .log = host_log,
        .alloc = host_alloc,
        .free = host_free,
        .parallel_for = host_parallel_for,
        .counter = host_counter,
        .cfg = host_cfg,
        .model_cfg = host_model_cfg,
        .weight = host_weight,
        .file = host_file,
        .token_id = host_token_id,
        .block = host_no_block,
        .extension = host_extension,
    };
}

void seam_hosted_release(struct seam_hosted *h)
{
    if (h->allocated)
        seam_log(h->log, SEAM_LOG_WARN, h->name,
                 "still holds %llu bytes after fini",
                 (unsigned long long)h->allocated);
    while (h->counter) {
        struct seam_hosted_counter *next = h->counter->next;

        free(h->counter);
        h->counter = next;
    }
}

void seam_hosted_counters(const struct seam_hosted *h,
                          void (*fn)(void *ctx, const char *plugin,
                                     const char *name, const char *unit,
                                     uint64_t value),
                          void *ctx)
{
    for (const struct seam_hosted_counter *c = h->counter; c; c = c->next)
        fn(ctx, h->name, c->name, c->unit,
           __atomic_load_n(&c->value, __ATOMIC_RELAXED));
}
