/* The memory of sequences: pages and rows, and the snapshots of both that later
 * prompts go on from. */
#include <stdlib.h>
#include <string.h>

#include "core/engine/impl.h"

/* A shorter beginning is recomputed sooner than its state is copied. */
#define PREFIX_LEAST 16

static void page_count(struct seam_engine *e)
{
    atomic_store_explicit(&e->stats.pages_used,
                          e->rt->n_pages - e->n_free_pages,
                          memory_order_relaxed);
}

void seam_page_unref(void *ctx, int32_t page)
{
    struct seam_engine *e = ctx;

    if (--e->page_refs[page] == 0)
        e->free_page[e->n_free_pages++] = page;
    page_count(e);
}

int32_t seam_page_take(struct seam_engine *e)
{
    int32_t page = e->free_page[--e->n_free_pages];

    e->page_refs[page] = 1;
    page_count(e);
    return page;
}

/* Have n pages free, by dropping snapshots if need be. */
bool seam_page_make_room(struct seam_engine *e, uint32_t n)
{
    while (e->n_free_pages < n)
        if (!e->prefix || !seam_prefix_evict(e->prefix))
            return false;
    return true;
}

/* Give pages and row back. */
void seam_engine_evict(struct seam_engine *e, struct seam_gen *g)
{
    while (g->n_pages)
        seam_page_unref(e, g->page[--g->n_pages]);
    e->free_row[e->n_free_rows++] = g->row;
    g->row = -1;
    g->n_done = 0;
    g->n_resumed = 0;
    g->n_accept = 0;
    for (uint32_t i = 0; i < e->n_running; i++)
        if (e->running[i] == g) {
            e->n_running--;
            memmove(&e->running[i], &e->running[i + 1],
                    (e->n_running - i) * sizeof *e->running);
            break;
        }
}

/* Keep a snapshot of what g has in the cache. */
void seam_engine_snapshot(struct seam_engine *e, struct seam_gen *g)
{
    struct seam_snapshot s = { .pos = g->n_done };
    struct seam_error err;

    /* What was resumed and not gone on from is there already. */
    if (!e->prefix || s.pos < PREFIX_LEAST || s.pos == g->n_resumed ||
        seam_prefix_has(e->prefix, g->history, s.pos))
        return;
    s.n_pages = seam_engine_pages_for(e, s.pos);
    s.state_bytes = seam_runtime_row_bytes(e->rt);
    s.page = malloc((s.n_pages + 1) * sizeof *s.page);
    s.state = malloc(s.state_bytes + 1);
    if (!s.page || !s.state ||
        seam_runtime_save_row(e->rt, g->row, g->n_accept, s.state, &err)) {
        free(s.page);
        free(s.state);
        return;
    }
    g->n_accept = 0;
    for (uint32_t i = 0; i < s.n_pages; i++) {
        s.page[i] = g->page[i];
        e->page_refs[s.page[i]]++;
    }
    seam_prefix_insert(e->prefix, g->history, &s);
}

/* Go on from the longest snapshot of what g begins with: share its whole pages,
 * copy the page it ends in, load its state.  g has its row; without a snapshot
 * it starts from nothing. */
int seam_engine_resume(struct seam_engine *e, struct seam_gen *g,
                       struct seam_error *err)
{
    /* A prompt to be scored has to be computed from its beginning. */
    bool may = e->prefix && !g->n_prompt_slots;
    const struct seam_snapshot *s =
        may ? seam_prefix_find(e->prefix, g->history, g->n_history - 1) : NULL;
    uint32_t pos = s ? s->pos : 0, whole = pos / e->rt->page_tokens, n_pages;
    int rc;

    if (!g->info.n_cached)
        atomic_fetch_add_explicit(&e->stats.prefix_queries, g->p.n_prompt,
                                  memory_order_relaxed);
    if (!s)
        return 0;
    n_pages = s->n_pages;
    for (uint32_t i = 0; i < n_pages; i++) {
        g->page[g->n_pages++] = s->page[i];
        e->page_refs[s->page[i]]++;
    }
    rc = seam_runtime_load_row(e->rt, g->row, s->state, err);
    if (!rc && whole < n_pages) {
        /* The other tokens of that page are somebody else's.  Making room may
         * drop the snapshot. */
        int32_t shared = g->page[whole];

        if (!seam_page_make_room(e, 1))
            return seam_fail(err, SEAM_ENOMEM, "no page to copy to");
        g->page[whole] = seam_page_take(e);
        rc = seam_runtime_copy_page(e->rt, g->page[whole], shared, err);
        seam_page_unref(e, shared);
    }
    if (rc)
        return rc;
    g->n_done = g->n_resumed = pos;
    if (!g->info.n_cached) {
        pthread_mutex_lock(&g->lock);
        g->info.n_cached = pos;
        pthread_mutex_unlock(&g->lock);
        atomic_fetch_add_explicit(&e->stats.prefix_hits, pos,
                                  memory_order_relaxed);
    }
    return 0;
}

/* Tokens up to the next place in the prompt where a snapshot is worth keeping:
 * its end, where a turn of the user begins, and every so often. */
uint32_t seam_engine_until_cut(const struct seam_engine *e,
                               const struct seam_gen *g)
{
    uint32_t every = (uint32_t)e->config->engine.prefix_interval;
    uint32_t end = g->p.n_prompt, cut = end;

    if (!e->prefix || g->n_done >= end)
        return g->n_history - g->n_done;
    if (every && (g->n_done / every + 1) * every < cut)
        cut = (g->n_done / every + 1) * every;
    for (uint32_t i = g->n_done + 1; i < cut; i++)
        if (g->history[i] == e->user_token && i >= PREFIX_LEAST)
            cut = i;
    return cut - g->n_done;
}
