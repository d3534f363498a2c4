#include "core/engine/memory.h"

#include <stdlib.h>
#include <string.h>

int seam_memory_alloc(const struct seam_memory_source *s, uint32_t mem,
                      uint64_t bytes, void **out, struct seam_error *err)
{
    if (!bytes) {
        *out = NULL;
        return 0;
    }
    return s->guards ? seam_guards_alloc(s->guards, s, mem, bytes, out, err)
                     : s->table->alloc(s->self, mem, bytes, 256, out, err);
}

void seam_memory_free(const struct seam_memory_source *s, uint32_t mem, void *p)
{
    if (p && s->guards)
        seam_guards_release(s->guards, s, mem, p);
    else if (p)
        s->table->free(s->self, mem, p);
}

/* ---- The plan ------------------------------------------------------------ */

static uint64_t plane_stride(uint32_t page_tokens, const struct seam_plane *p)
{
    return seam_round_up((uint64_t)p->bytes_per_token * page_tokens, 256);
}

static uint64_t state_stride(const struct seam_needs *n)
{
    return seam_round_up(n->state_bytes, 256);
}

int seam_memory_plan(const struct seam_config *c,
                     const struct seam_limits *limits,
                     const struct seam_instance *const *inst,
                     uint32_t most_pages, struct seam_memory_plan *out,
                     struct seam_error *err)
{
    uint64_t budget = (uint64_t)c->engine.cache_bytes;
    uint64_t rows, pages, most;
    struct seam_memory_plan p = {
        .page_tokens = (uint32_t)c->engine.page_tokens,
        .n_rows = limits->max_seqs,
    };

    for (int r = FIRST_BLOCK; r <= LAST_BLOCK; r++) {
        const struct seam_needs *n = &inst[r]->needs;

        if (n->page_multiple && p.page_tokens % n->page_multiple)
            return seam_fail(err, SEAM_EINVAL,
                             "engine.page_tokens is %u; plugin %s needs a "
                             "multiple of %u",
                             p.page_tokens, inst[r]->host.name,
                             n->page_multiple);
        for (uint32_t i = 0; i < n->n_planes; i++)
            p.page_bytes +=
                n->n_layers * plane_stride(p.page_tokens, &n->plane[i]);
        p.row_bytes += n->n_layers * n->state_copies * state_stride(n);
    }
    p.max_pages = (uint32_t)(seam_round_up(limits->max_context, p.page_tokens) /
                             p.page_tokens);
    rows = p.n_rows * p.row_bytes;
    /* No more pages than all sequences at full length could fill. */
    most = (uint64_t)p.max_pages * p.n_rows;
    if (most_pages && most > most_pages)
        most = most_pages;
    if (rows > budget ||
        (p.page_bytes && (budget - rows) / p.page_bytes < p.n_rows))
        return seam_fail(
            err, SEAM_ENOMEM,
            "engine.cache_bytes is %llu; %u sequences need %u x %llu bytes of "
            "state and at least one page of %llu bytes each = %llu. Lower "
            "engine.max_seqs or raise engine.cache_bytes",
            (unsigned long long)budget, p.n_rows, p.n_rows,
            (unsigned long long)p.row_bytes, (unsigned long long)p.page_bytes,
            (unsigned long long)(rows + p.n_rows * p.page_bytes));
    pages = p.page_bytes ? (budget - rows) / p.page_bytes : most;
    if (pages > most)
        pages = most;
    /* Slots are int32_t, those of the page for trials too. */
    if ((pages + 1) * p.page_tokens > INT32_MAX)
        pages = INT32_MAX / p.page_tokens - 1;
    p.n_pages = (uint32_t)pages;
    if (p.n_pages < p.max_pages && c->model.max_context)
        return seam_fail(
            err, SEAM_ENOMEM,
            "engine.cache_bytes is %llu; %u x %llu bytes of state and %u pages "
            "of %llu bytes for the %u tokens of model.max_context = %llu. Lower "
            "that to %u, lower engine.max_seqs or raise engine.cache_bytes",
            (unsigned long long)budget, p.n_rows,
            (unsigned long long)p.row_bytes, p.max_pages,
            (unsigned long long)p.page_bytes, limits->max_context,
            (unsigned long long)(rows + p.max_pages * p.page_bytes),
            p.n_pages * p.page_tokens);
    *out = p;
    return 0;
}

/* ---- Grants -------------------------------------------------------------- */

static int grant_caches(const struct seam_memory_source *s,
                        const struct seam_memory_plan *plan,
                        const struct seam_needs *n, struct runtime_grant *g,
                        struct seam_error *err)
{
    int rc = 0;

    for (uint32_t p = 0; p < n->n_planes; p++) {
        uint64_t stride = plane_stride(plan->page_tokens, &n->plane[p]);

        g->plane[p] = calloc(n->n_layers, sizeof(void *));
        if (!g->plane[p])
            return seam_fail(err, SEAM_ENOMEM, "out of memory");
        for (uint32_t l = 0; l < n->n_layers && !rc; l++)
            rc =
                seam_memory_alloc(s, SEAM_MEM_DEVICE, stride * g->grant.n_pages,
                                  &g->plane[p][l], err);
        if (rc)
            return rc;
        g->grant.page_stride[p] = stride;
    }
    if (!n->state_bytes)
        return 0;
    g->state = calloc(n->n_layers, sizeof(void *));
    if (!g->state)
        return seam_fail(err, SEAM_ENOMEM, "out of memory");
    for (uint32_t l = 0; l < n->n_layers && !rc; l++)
        rc = seam_memory_alloc(s, SEAM_MEM_DEVICE,
                               g->grant.state_stride * n->state_copies *
                                   g->grant.n_state_rows,
                               &g->state[l], err);
    return rc;
}

static int grant_own(const struct seam_memory_source *s,
                     const struct seam_needs *n, struct runtime_grant *g,
                     struct seam_error *err)
{
    int rc = seam_memory_alloc(s, SEAM_MEM_DEVICE, n->keep_bytes,
                               &g->grant.keep, err);

    if (!rc)
        rc = seam_memory_alloc(s, SEAM_MEM_PINNED, n->pinned_bytes,
                               &g->grant.pinned, err);
    if (!rc && n->keep_bytes)
        rc = s->table->fill(s->self, s->stream, g->grant.keep, 0, n->keep_bytes,
                            err);
    if (!rc && n->pinned_bytes)
        memset(g->grant.pinned, 0, n->pinned_bytes);
    return rc;
}

int seam_memory_grant(const struct seam_memory_source *s,
                      const struct seam_memory_plan *plan,
                      const struct seam_needs *n,
                      const struct runtime_grant *share,
                      struct runtime_grant *g, struct seam_error *err)
{
    int rc = 0;

    *g = (struct runtime_grant){ .n_layers = n->n_layers,
                                 .cache = *s,
                                 .own = *s };
    g->grant = (struct seam_grant){
        .size = sizeof g->grant,
        .page_tokens = plan->page_tokens,
        .n_pages = plan->n_pages + 1,
        .n_state_rows = plan->n_rows + 1,
        .state_stride = state_stride(n),
    };
    if (share) {
        g->grant = share->grant;
        g->grant.keep = g->grant.pinned = NULL;
        memcpy(g->plane, share->plane, sizeof g->plane);
        g->state = share->state;
        g->cache = share->cache;
    } else {
        rc = grant_caches(s, plan, n, g, err);
        for (uint32_t p = 0; p < n->n_planes; p++)
            g->grant.plane[p] = g->plane[p];
        g->grant.state = g->state;
    }
    return rc ? rc : grant_own(s, n, g, err);
}

void seam_memory_ungrant(struct runtime_grant *g, bool caches)
{
    for (uint32_t p = 0; caches && p < SEAM_MAX_PLANES; p++) {
        for (uint32_t l = 0; g->plane[p] && l < g->n_layers; l++)
            seam_memory_free(&g->cache, SEAM_MEM_DEVICE, g->plane[p][l]);
        free(g->plane[p]);
    }
    for (uint32_t l = 0; caches && g->state && l < g->n_layers; l++)
        seam_memory_free(&g->cache, SEAM_MEM_DEVICE, g->state[l]);
    if (caches)
        free(g->state);
    seam_memory_free(&g->own, SEAM_MEM_DEVICE, g->grant.keep);
    seam_memory_free(&g->own, SEAM_MEM_PINNED, g->grant.pinned);
    *g = (struct runtime_grant){ 0 };
}
