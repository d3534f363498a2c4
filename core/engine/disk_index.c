#include "core/engine/disk_index.h"

#include <stdlib.h>
#include <string.h>

/* ---- Maps ---------------------------------------------------------------- */

/* Keys are hashes already. */
static uint64_t map_place(const struct disk_map *m, const unsigned char *hash)
{
    uint64_t h;

    memcpy(&h, hash, sizeof h);
    return h & (m->n_buckets - 1);
}

static const unsigned char *link_key(const struct disk_link *l)
{
    return l->item->kind == SEAM_DISK_RUN ? l->item->hash[l->at]
                                          : l->item->before;
}

static struct disk_link *map_first(const struct disk_map *m,
                                   const unsigned char *hash)
{
    return m->bucket ? m->bucket[map_place(m, hash)] : NULL;
}

static bool map_grow(struct disk_map *m)
{
    struct disk_map grown = { .n_buckets = m->bucket ? 2 * m->n_buckets : 256,
                              .n = m->n };

    grown.bucket = calloc(grown.n_buckets, sizeof *grown.bucket);
    if (!grown.bucket)
        return false;
    for (uint64_t b = 0; m->bucket && b < m->n_buckets; b++)
        while (m->bucket[b]) {
            struct disk_link *l = m->bucket[b], **to;

            m->bucket[b] = l->next;
            to = &grown.bucket[map_place(&grown, link_key(l))];
            l->next = *to;
            *to = l;
        }
    free(m->bucket);
    *m = grown;
    return true;
}

static bool map_add(struct disk_map *m, struct disk_item *item, uint32_t at)
{
    struct disk_link *l, **to;

    if ((!m->bucket || m->n >= m->n_buckets) && !map_grow(m))
        return false;
    l = malloc(sizeof *l);
    if (!l)
        return false;
    l->item = item;
    l->at = at;
    to = &m->bucket[map_place(m, link_key(l))];
    l->next = *to;
    *to = l;
    m->n++;
    return true;
}

static void map_remove(struct disk_map *m, const struct disk_item *item,
                       const unsigned char *hash)
{
    struct disk_link **p;

    if (!m->bucket)
        return;
    p = &m->bucket[map_place(m, hash)];
    while (*p) {
        struct disk_link *l = *p;

        if (l->item != item || memcmp(link_key(l), hash, SEAM_DISK_HASH)) {
            p = &l->next;
            continue;
        }
        *p = l->next;
        free(l);
        m->n--;
    }
}

static void map_release(struct disk_map *m)
{
    for (uint64_t b = 0; m->bucket && b < m->n_buckets; b++)
        while (m->bucket[b]) {
            struct disk_link *l = m->bucket[b];

            m->bucket[b] = l->next;
            free(l);
        }
    free(m->bucket);
}

/* ---- The list ------------------------------------------------------------ */

static void list_remove(struct disk_index *x, struct disk_item *i)
{
    *(i->older ? &i->older->newer : &x->oldest) = i->newer;
    *(i->newer ? &i->newer->older : &x->newest) = i->older;
    i->older = i->newer = NULL;
}

static void list_append(struct disk_index *x, struct disk_item *i)
{
    i->older = x->newest;
    i->newer = NULL;
    *(x->newest ? &x->newest->newer : &x->oldest) = i;
    x->newest = i;
}

static double item_value(const struct disk_index *x, const struct disk_item *i)
{
    return x->clock + (double)i->saved / ((double)i->bytes / 1048576 + 1);
}

void disk_index_use(struct disk_index *x, struct disk_item *i)
{
    i->value = item_value(x, i);
    list_remove(x, i);
    list_append(x, i);
}

/* ---- In and out ---------------------------------------------------------- */

static void index_unmap(struct disk_index *x, const struct disk_item *i)
{
    for (uint32_t p = 0; i->kind == SEAM_DISK_RUN && p < i->n_pages; p++)
        map_remove(&x->page, i, i->hash[p]);
    if (i->kind == SEAM_DISK_STATE)
        map_remove(&x->state, i, i->before);
}

static void index_count(struct disk_index *x, const struct disk_item *i,
                        uint64_t by)
{
    x->bytes += by * i->bytes;
    x->n_states += i->kind == SEAM_DISK_STATE ? by : 0;
    x->n_runs += i->kind == SEAM_DISK_RUN ? by : 0;
    x->n_foreign += i->kind ? 0 : by;
}

bool disk_index_add(struct disk_index *x, struct disk_item *i)
{
    bool ok = true;

    for (uint32_t p = 0; ok && i->kind == SEAM_DISK_RUN && p < i->n_pages; p++)
        ok = map_add(&x->page, i, p);
    if (i->kind == SEAM_DISK_STATE)
        ok = map_add(&x->state, i, 0);
    if (!ok) {
        index_unmap(x, i);
        return false;
    }
    if (i->parent)
        i->parent->refs++;
    i->value = item_value(x, i);
    list_append(x, i);
    index_count(x, i, 1);
    return true;
}

struct disk_item *disk_index_page(const struct disk_index *x,
                                  const unsigned char *hash, uint32_t *at)
{
    for (struct disk_link *l = map_first(&x->page, hash); l; l = l->next)
        if (!memcmp(l->item->hash[l->at], hash, SEAM_DISK_HASH)) {
            *at = l->at;
            return l->item;
        }
    return NULL;
}

struct disk_item *disk_index_state(const struct disk_index *x,
                                   const unsigned char *before,
                                   const int32_t *tok, uint32_t n, bool pending)
{
    struct disk_item *best = NULL;

    for (struct disk_link *l = map_first(&x->state, before); l; l = l->next) {
        struct disk_item *i = l->item;

        if ((pending || !i->pending) && i->n_tail <= n &&
            (!best || i->n_tail > best->n_tail) &&
            !memcmp(i->before, before, SEAM_DISK_HASH) &&
            (!i->n_tail || !memcmp(i->tail, tok, i->n_tail * sizeof *tok)))
            best = i;
    }
    return best;
}

struct disk_item *disk_index_victim(struct disk_index *x)
{
    struct disk_item *worst = NULL;

    for (struct disk_item *i = x->oldest; i; i = i->newer) {
        if (!i->kind)
            return i;
        if (i->kind == SEAM_DISK_STATE && !i->pending &&
            (!worst || i->value < worst->value))
            worst = i;
    }
    if (worst)
        x->clock = worst->value;
    return worst;
}

void disk_item_free(struct disk_item *i)
{
    if (!i)
        return;
    free(i->hash);
    free(i->tail);
    free(i);
}

void disk_index_unref(struct disk_index *x, struct disk_item *run,
                      disk_drop *drop, void *ctx)
{
    if (!run || --run->refs)
        return;
    if (!run->gone)
        disk_index_remove(x, run, drop, ctx);
    else if (!run->pending)
        disk_item_free(run);
}

void disk_index_remove(struct disk_index *x, struct disk_item *i,
                       disk_drop *drop, void *ctx)
{
    struct disk_item *parent = i->parent;

    index_unmap(x, i);
    list_remove(x, i);
    index_count(x, i, (uint64_t)-1);
    i->gone = true;
    i->parent = NULL;
    drop(ctx, i);
    if (!i->pending && !i->refs)
        disk_item_free(i);
    disk_index_unref(x, parent, drop, ctx);
}

void disk_index_remove_tree(struct disk_index *x, struct disk_item *i,
                            disk_drop *drop, void *ctx)
{
    struct disk_item *child = x->oldest;

    /* The last of them takes i along. */
    i->refs++;
    while (child) {
        if (child->parent == i) {
            disk_index_remove_tree(x, child, drop, ctx);
            child = x->oldest;
        } else {
            child = child->newer;
        }
    }
    i->refs--;
    disk_index_remove(x, i, drop, ctx);
}

struct disk_item *disk_index_named(const struct disk_index *x, const char *name)
{
    for (struct disk_item *i = x->oldest; i; i = i->newer)
        if (!strcmp(i->name, name))
            return i;
    return NULL;
}

void disk_index_release(struct disk_index *x)
{
    while (x->oldest) {
        struct disk_item *i = x->oldest;

        list_remove(x, i);
        disk_item_free(i);
    }
    map_release(&x->page);
    map_release(&x->state);
    *x = (struct disk_index){ 0 };
}
