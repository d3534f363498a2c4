/* Remembered masks: a table of atomic slots and memory that is only ever added
 * to, so that any number of threads may look up and add without a lock. */
#include <stdlib.h>

#include "core/grammar/impl.h"

#define LEAST_KEYS 64
#define MOST_KEYS  ((uint32_t)1 << 18)

int g_cache_init(struct g_cache *c, uint64_t bytes, uint32_t n_keys)
{
    uint32_t n = LEAST_KEYS;

    while (n < MOST_KEYS && n / 2 < n_keys)
        n *= 2;
    c->bytes = bytes;
    c->mask = n - 1;
    c->key = calloc(n, sizeof *c->key);
    c->at = calloc(n, sizeof *c->at);
    /* Not cleared: the pages that are never used cost nothing. */
    c->mem = malloc(bytes);
    return c->key && c->at && c->mem ? 0 : SEAM_ENOMEM;
}

void g_cache_release(struct g_cache *c)
{
    if (!c)
        return;
    free((void *)c->key);
    free((void *)c->at);
    free(c->mem);
}

const struct g_entry *g_cache_find(struct g_cache *c, uint64_t key,
                                   uint32_t *slot)
{
    uint32_t at = (uint32_t)((key * 0x9e3779b97f4a7c15u) >> 40) & c->mask;

    *slot = G_NONE;
    for (uint32_t tries = 0; tries <= c->mask; tries++) {
        /* relaxed: only the number matters; `at` carries the data. */
        uint64_t there =
            atomic_load_explicit(&c->key[at], memory_order_relaxed);

        if (!there) {
            if (atomic_load_explicit(&c->n_keys, memory_order_relaxed) >
                c->mask / 4 * 3)
                return NULL;
            if (atomic_compare_exchange_strong_explicit(
                    &c->key[at], &there, key, memory_order_relaxed,
                    memory_order_relaxed)) {
                atomic_fetch_add_explicit(&c->n_keys, 1, memory_order_relaxed);
                *slot = at; /* whoever takes it fills it */
                return NULL;
            }
        }
        if (there == key) {
            uint64_t p = atomic_load_explicit(&c->at[at], memory_order_acquire);

            return p ? (const struct g_entry *)(const void *)(c->mem + p - 1)
                     : NULL;
        }
        at = (at + 1) & c->mask;
    }
    return NULL;
}

struct g_entry *g_cache_alloc(struct g_cache *c, uint64_t n)
{
    uint64_t used = atomic_load_explicit(&c->used, memory_order_relaxed);
    uint64_t bytes = sizeof(struct g_entry) + n * sizeof(uint32_t);

    bytes = (bytes + 7) & ~(uint64_t)7;
    do {
        if (bytes > c->bytes - used)
            return NULL;
    } while (!atomic_compare_exchange_weak_explicit(
        &c->used, &used, used + bytes, memory_order_relaxed,
        memory_order_relaxed));
    return (struct g_entry *)(void *)(c->mem + used);
}

void g_cache_put(struct g_cache *c, uint32_t slot, const struct g_entry *e)
{
    atomic_fetch_add_explicit(&c->n_entries, 1, memory_order_relaxed);
    /* release: whoever sees the offset sees the entry. */
    atomic_store_explicit(&c->at[slot],
                          (uint64_t)((const unsigned char *)e - c->mem) + 1,
                          memory_order_release);
}

bool g_cache_full(const struct g_cache *c, uint32_t n_words)
{
    return c->bytes - atomic_load_explicit(&c->used, memory_order_relaxed) <
           (uint64_t)4 * n_words * sizeof(uint32_t);
}
