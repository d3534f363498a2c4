/* Merging works on a linked list of symbols and a heap of candidate merges.  A
 * merge changes at most two neighbouring pairs, which are pushed anew; entries
 * of pairs that no longer exist stay in the heap and are recognised when they
 * come up, because each symbol remembers the rank of the pair it begins. */
#include "core/tokenizer/bpe.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/num.h"

#define NONE UINT32_MAX

/* Slots for n entries: a power of two, at least twice n. */
static uint32_t bpe_slots(uint32_t n)
{
    uint32_t slots = 16;

    while (slots / 2 < n)
        slots *= 2;
    return slots;
}

int seam_bpe_init(struct seam_bpe *b, uint32_t n_ids, uint32_t n_words,
                  uint32_t n_merges)
{
    uint32_t n_word_slots = bpe_slots(n_words);
    uint32_t n_merge_slots = bpe_slots(n_merges);

    *b = (struct seam_bpe){ .n_ids = n_ids };
    b->piece = calloc(n_ids ? n_ids : 1, sizeof *b->piece);
    b->word = calloc(n_word_slots, sizeof *b->word);
    b->word_mask = n_word_slots - 1;
    b->merge = malloc(n_merge_slots * sizeof *b->merge);
    b->merge_mask = n_merge_slots - 1;
    b->made = malloc((n_merges ? n_merges : 1) * sizeof *b->made);
    if (!b->piece || !b->word || !b->merge || !b->made) {
        seam_bpe_release(b);
        return SEAM_ENOMEM;
    }
    for (uint32_t i = 0; i < n_merge_slots; i++)
        b->merge[i] = (struct seam_merge){ .rank = NONE };
    for (int i = 0; i < 256; i++)
        b->byte[i] = NONE;
    return 0;
}

void seam_bpe_release(struct seam_bpe *b)
{
    free(b->arena);
    free(b->piece);
    free(b->word);
    free(b->merge);
    free(b->made);
    *b = (struct seam_bpe){ 0 };
}

int seam_bpe_set(struct seam_bpe *b, uint32_t id, const char *p, size_t n,
                 uint32_t flags)
{
    if (n > UINT32_MAX / 2 - b->arena_n)
        return SEAM_ENOMEM;
    if (b->arena_n + n > b->arena_cap) {
        size_t cap = b->arena_cap ? b->arena_cap : 4096;
        char *arena;

        while (cap < b->arena_n + n)
            cap *= 2;
        arena = realloc(b->arena, cap);
        if (!arena)
            return SEAM_ENOMEM;
        b->arena = arena;
        b->arena_cap = cap;
    }
    memcpy(b->arena + b->arena_n, p, n);
    b->piece[id] = (struct seam_piece){ .at = (uint32_t)b->arena_n,
                                        .len = (uint32_t)n,
                                        .flags = flags };
    b->arena_n += n;
    return 0;
}

/* ---- Tables -------------------------------------------------------------- */

static uint64_t bpe_mix(uint64_t x)
{
    x ^= x >> 32;
    x *= 0x9e3779b97f4a7c15u;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9u;
    return x ^ x >> 32;
}

static uint32_t bpe_hash(const char *p, size_t n)
{
    uint64_t h = n;

    for (; n >= 8; p += 8, n -= 8) {
        uint64_t v;

        memcpy(&v, p, 8);
        h = bpe_mix(h ^ v);
    }
    if (n) {
        uint64_t v = 0;

        memcpy(&v, p, n);
        h = bpe_mix(h ^ v);
    }
    return (uint32_t)bpe_mix(h);
}

/* Slot that holds the piece p[0, n), or the empty one where it would be. */
static uint32_t bpe_word_slot(const struct seam_bpe *b, const char *p, size_t n)
{
    uint32_t i = bpe_hash(p, n) & b->word_mask;

    for (; b->word[i]; i = (i + 1) & b->word_mask) {
        const struct seam_piece *s = &b->piece[b->word[i] - 1];

        if (s->len == n && !memcmp(b->arena + s->at, p, n))
            break;
    }
    return i;
}

bool seam_bpe_index(struct seam_bpe *b, uint32_t id)
{
    const struct seam_piece *s = &b->piece[id];
    uint32_t i = bpe_word_slot(b, b->arena + s->at, s->len);

    if (b->word[i])
        return false;
    b->word[i] = id + 1;
    if (s->len > b->longest)
        b->longest = s->len;
    if (s->len == 1)
        b->byte[(unsigned char)b->arena[s->at]] = id;
    return true;
}

int32_t seam_bpe_find(const struct seam_bpe *b, const char *p, size_t n)
{
    uint32_t w = b->word[bpe_word_slot(b, p, n)];

    return w ? (int32_t)(w - 1) : SEAM_ENOENT;
}

static uint32_t bpe_merge_slot(const struct seam_bpe *b, uint64_t key)
{
    uint32_t i = (uint32_t)bpe_mix(key) & b->merge_mask;

    while (b->merge[i].rank != NONE && b->merge[i].key != key)
        i = (i + 1) & b->merge_mask;
    return i;
}

void seam_bpe_add_merge(struct seam_bpe *b, uint32_t left, uint32_t right,
                        uint32_t made)
{
    uint64_t key = (uint64_t)left << 32 | right;
    uint32_t i = bpe_merge_slot(b, key);

    b->merge[i] = (struct seam_merge){ .key = key, .rank = b->n_merges };
    b->made[b->n_merges++] = made;
}

/* ---- The merge loop ------------------------------------------------------ */

void seam_bpe_work_release(struct seam_bpe_work *w)
{
    free(w->sym);
    free(w->heap);
    *w = (struct seam_bpe_work){ 0 };
}

static int work_reserve(struct seam_bpe_work *w, size_t n)
{
    size_t cap = w->cap ? w->cap : 64;
    uint64_t bytes;
    void *p;

    if (n <= w->cap)
        return 0;
    while (cap < n)
        cap *= 2;
    if (!seam_mul(cap, 3 * sizeof *w->heap, &bytes) || bytes > SIZE_MAX)
        return SEAM_ENOMEM;
    p = realloc(w->sym, cap * sizeof *w->sym);
    if (!p)
        return SEAM_ENOMEM;
    w->sym = p;
    p = realloc(w->heap, (size_t)bytes);
    if (!p)
        return SEAM_ENOMEM;
    w->heap = p;
    w->cap = cap;
    return 0;
}

static void heap_push(struct seam_bpe_work *w, uint64_t entry)
{
    size_t i = w->n_heap++;

    while (i && w->heap[(i - 1) / 2] > entry) {
        w->heap[i] = w->heap[(i - 1) / 2];
        i = (i - 1) / 2;
        w->n_steps++;
    }
    w->heap[i] = entry;
    w->n_steps++;
}

static uint64_t heap_pop(struct seam_bpe_work *w)
{
    uint64_t top = w->heap[0], last = w->heap[--w->n_heap];
    size_t i = 0, child;

    while ((child = 2 * i + 1) < w->n_heap) {
        if (child + 1 < w->n_heap && w->heap[child + 1] < w->heap[child])
            child++;
        if (w->heap[child] >= last)
            break;
        w->heap[i] = w->heap[child];
        i = child;
        w->n_steps++;
    }
    w->heap[i] = last;
    w->n_steps++;
    return top;
}

/* Look up the pair that begins at symbol i, and queue its merge. */
static void work_pair(const struct seam_bpe *b, struct seam_bpe_work *w,
                      uint32_t i)
{
    struct seam_symbol *s = &w->sym[i];
    uint64_t key;

    s->rank = NONE;
    if (s->next == NONE)
        return;
    key = (uint64_t)s->id << 32 | w->sym[s->next].id;
    s->rank = b->merge[bpe_merge_slot(b, key)].rank;
    w->n_steps++;
    if (s->rank != NONE)
        heap_push(w, (uint64_t)s->rank << 32 | i);
}

/* Each merge takes one symbol away and pushes at most two entries, so there are
 * never more than n + 2n in the heap. */
static void work_merge(const struct seam_bpe *b, struct seam_bpe_work *w)
{
    while (w->n_heap) {
        uint64_t top = heap_pop(w);
        uint32_t rank = (uint32_t)(top >> 32), i = (uint32_t)top;
        struct seam_symbol *s = &w->sym[i], *gone;

        if (s->rank != rank)
            continue;
        gone = &w->sym[s->next];
        s->id = b->made[rank];
        s->next = gone->next;
        gone->rank = NONE;
        if (s->next != NONE)
            w->sym[s->next].prev = i;
        work_pair(b, w, i);
        if (s->prev != NONE)
            work_pair(b, w, s->prev);
    }
}

int seam_bpe_encode(const struct seam_bpe *b, struct seam_bpe_work *w,
                    const char *p, size_t n, struct seam_ids *out)
{
    int rc = 0;

    if (!n)
        return 0;
    if (n == 1)
        return seam_ids_add(out, (int32_t)b->byte[(unsigned char)p[0]]);
    if (b->whole_words) {
        int32_t id = seam_bpe_find(b, p, n);

        if (id >= 0)
            return seam_ids_add(out, id);
    }
    if (work_reserve(w, n))
        return SEAM_ENOMEM;
    w->n_heap = 0;
    for (uint32_t i = 0; i < n; i++)
        w->sym[i] = (struct seam_symbol){
            .id = b->byte[(unsigned char)p[i]],
            .prev = i ? i - 1 : NONE,
            .next = i + 1 < n ? i + 1 : NONE,
        };
    for (uint32_t i = 0; i < n; i++)
        work_pair(b, w, i);
    work_merge(b, w);
    for (uint32_t i = 0; !rc && i != NONE; i = w->sym[i].next)
        rc = seam_ids_add(out, (int32_t)w->sym[i].id);
    return rc;
}
