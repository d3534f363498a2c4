/* Masks: which tokens may come next.
 *
 * A token is allowed when one of the configurations can take all its bytes.
 * Most of the answer depends on a configuration's state alone: tokens that stay
 * within its rule, and places in the trie where the rule can end in mid-token.
 * That part is computed once and remembered in the grammar; the rest, from those
 * places on, is walked with the stack at hand. */
#include "core/grammar/matcher.h"

#include <stdlib.h>

/* What a configuration's state allows: remembered, or just computed. */
struct view {
    const uint32_t *ids; /* [n_ids], unless words */
    uint32_t n_ids;
    const uint32_t *words;
    const uint32_t *pops; /* [n_pops] */
    uint32_t n_pops;      /* G_NONE: there are, but too many to note */
    uint32_t peak;
};

static inline void bit_set(uint32_t *row, int32_t id)
{
    row[(uint32_t)id / 32] |= 1u << (id & 31);
}

/* g_step for a set of one configuration that a byte leads to one other, without
 * calls and returns: false when it is not like that. */
static bool step_plainly(struct seam_matcher *m, uint32_t first, uint8_t byte)
{
    const struct g_auto *a = &m->g->a;
    struct g_config c = m->config[first];
    const struct g_state *st = &a->state[c.state], *to;
    const struct g_edge *e = g_edge_of(m->g, st, byte);
    uint32_t peak;

    m->n_configs = first + 1;
    m->popped = false;
    if (!e)
        return true;
    to = &a->state[e->to];
    if ((e->flags | to->n_calls) || (to->flags & (G_TAIL | G_ACCEPT_DONE)) ||
        first + 1 == G_CONFIGS)
        return false;
    if (to->flags & G_ACCEPT) {
        if (c.frame != G_FRAME_BASE)
            return false;
        m->popped = true;
    }
    peak = m->frame[c.frame].depth + (uint32_t)to->need;
    if (peak > G_MAX_DEPTH)
        return false;
    if (peak > m->peak)
        m->peak = peak;
    if (to->loop != st->loop)
        c.count = 0;
    c.state = e->to;
    m->config[m->n_configs++] = c;
    return true;
}

/* Does the set config[first, end) take all plain text? */
static bool takes_plain(const struct seam_matcher *m, uint32_t first,
                        uint32_t end)
{
    for (uint32_t i = first; i < end; i++) {
        const struct g_state *st = &m->g->a.state[m->config[i].state];

        /* Counted characters may run out. */
        if ((st->flags & G_LOOPS_PLAIN) &&
            !(g_edge_of(m->g, st, ' ')->flags & G_INC))
            return true;
    }
    return false;
}

/* Set the bits of the tokens below a place that the set config[first,
 * n_configs) takes.  may[256], or NULL, says which bytes that set takes at all.
 * With pops, places where the rule ends are noted, up to G_POPS. */
static void walk(struct seam_matcher *m, uint32_t place, uint32_t first,
                 const bool *may, bool pops, uint32_t *row)
{
    uint32_t in = place & G_IN_REST, at = 0;
    const struct g_trie *t = in ? &m->g->v->rest : &m->g->v->even;
    uint32_t end = t->node[place ^ in].end;
    struct g_level *level = m->level;

    level[0] = (struct g_level){ first, m->n_frames, end };
    level[1].config = m->n_configs;
    for (uint32_t i = (place ^ in) + 1; i < end;) {
        const struct g_node *node = &t->node[i];
        uint32_t next;

        while (i >= level[at].end)
            at--;
        if (!at && may && !may[node->byte]) {
            i = node->end;
            continue;
        }
        next = level[at + 1].config;
        m->n_frames = level[at].frames;
        if (next - level[at].config != 1 ||
            !step_plainly(m, level[at].config, node->byte))
            g_step(m, level[at].config, next, node->byte);
        if (m->overflow)
            return;
        if (!in && takes_plain(m, next, m->n_configs)) {
            uint32_t last =
                node->end < t->n ? t->node[node->end].tok_before : t->n_ids;

            for (uint32_t k = node->tok_before; k < last; k++)
                bit_set(row, t->ids[k]);
            i = node->end;
            continue;
        }
        if (m->n_configs > next || m->popped)
            for (uint32_t k = 0; k < node->n_tok; k++)
                bit_set(row, t->ids[node->tok_before + k]);
        if (m->popped && pops && node->end > i + 1) {
            if (m->n_pops < G_POPS)
                m->pop[m->n_pops] = i | in;
            m->n_pops++;
        }
        if (m->n_configs == next) {
            i = node->end;
            continue;
        }
        at++;
        level[at].frames = m->n_frames;
        level[at].end = node->end;
        level[at + 1].config = m->n_configs;
        i++;
    }
}

/* From the beginning of all tokens; with `plain`, those are known already. */
static void walk_all(struct seam_matcher *m, uint32_t first, bool plain,
                     bool pops, uint32_t *row)
{
    uint32_t n = m->n_configs, frames = m->n_frames;

    if (!plain)
        walk(m, 0, first, NULL, pops, row);
    m->n_configs = n;
    m->n_frames = frames;
    if (!m->overflow)
        walk(m, G_IN_REST, first, NULL, pops, row);
}

/* ---- One state ----------------------------------------------------------- */

/* Rounds that a loop must still and may still make, as far as a token can tell
 * the difference. */
static void rounds_left(const struct seam_grammar *g, const struct g_config *c,
                        uint32_t *must, uint32_t *may)
{
    uint32_t loop = g->a.state[c->state].loop, most = g->v->max_len + 1;
    const struct g_loop *l;

    *must = *may = 0;
    if (!loop)
        return;
    l = &g->a.loop[loop - 1];
    if (l->min > c->count)
        *must = l->min - c->count < most ? l->min - c->count : most;
    *may = l->max == UINT32_MAX || l->max - c->count > most ? most
                                                            : l->max - c->count;
}

/* Plain tokens of at most n characters. */
static void plain_tokens(const struct seam_vocab *v, uint32_t n, uint32_t *row)
{
    uint32_t k = n < G_PLAIN_MAX ? n : G_PLAIN_MAX;

    if (n > v->max_len)
        k = G_PLAIN_MAX + 1;
    memcpy(row, v->plain + (size_t)k * v->n_words, v->n_words * sizeof *row);
    if (k != G_PLAIN_MAX)
        return;
    for (uint32_t i = 0; i < v->n_more && v->more[i].n_chars <= n; i++)
        bit_set(row, v->more[i].id);
}

static void added_tokens(struct seam_matcher *m, const struct g_config *c,
                         uint32_t *row)
{
    const struct g_auto *a = &m->g->a;
    const struct g_state *st = &a->state[c->state];

    for (uint32_t k = 0; k < st->n_added; k++) {
        const struct g_added *e = &a->added[st->added + k];
        uint32_t peak =
            m->frame[c->frame].depth + (uint32_t)a->state[e->to].need;

        if (!g_added_open(m->g, st, e, c->count))
            continue;
        if (peak > m->peak)
            m->peak = peak;
        if (peak <= G_MAX_DEPTH)
            bit_set(row, e->id);
    }
}

/* Compute what c's state allows, into m->scratch and m->pop. */
static struct view compute(struct seam_matcher *m, const struct g_config *c)
{
    const struct seam_vocab *v = m->g->v;
    const struct g_state *st = &m->g->a.state[c->state];
    uint32_t first = m->n_configs, frames = m->n_frames;
    struct g_config own = { c->state, c->count, G_FRAME_BASE };
    struct view w = { .words = m->scratch, .pops = m->pop };

    m->peak = st->need;
    m->n_pops = 0;
    if (st->flags & G_LOOPS_PLAIN) {
        const struct g_edge *e = g_edge_of(m->g, st, ' ');
        uint32_t must, may;

        rounds_left(m->g, c, &must, &may);
        plain_tokens(v, e->flags & G_INC ? may : UINT32_MAX, m->scratch);
    } else {
        memset(m->scratch, 0, v->n_words * sizeof *m->scratch);
    }
    added_tokens(m, &own, m->scratch);
    m->config[m->n_configs++] = own;
    walk_all(m, first, st->flags & G_LOOPS_PLAIN, true, m->scratch);
    w.n_pops = m->n_pops <= G_POPS ? m->n_pops : G_NONE;
    w.peak = m->peak;
    m->n_configs = first;
    m->n_frames = frames;
    return w;
}

/* ---- Remembering --------------------------------------------------------- */

#define CACHE_KEYS 4096

int g_cache_init(struct g_cache *c, uint64_t bytes)
{
    c->bytes = bytes;
    c->mask = CACHE_KEYS - 1;
    c->key = calloc(CACHE_KEYS, sizeof *c->key);
    c->at = calloc(CACHE_KEYS, sizeof *c->at);
    c->mem = calloc(1, c->bytes);
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

/* Where the mask of c's state is remembered, and under which key. */
static struct g_cache *cache_of(struct seam_grammar *g,
                                const struct g_config *c, uint64_t *key)
{
    const struct g_state *st = &g->a.state[c->state];
    uint32_t must, may;

    rounds_left(g, c, &must, &may);
    *key = (uint64_t)must << 16 | may;
    if (st->shared) {
        *key |= (uint64_t)st->shared << 48 | (uint64_t)st->local << 32;
        return g->v->shared;
    }
    *key |= (uint64_t)c->state << 32;
    return &g->cache;
}

/* The slot of a key, taken for it if it has none; G_NONE when there is no room.
 * *mine: this call took it. */
static uint32_t cache_slot(struct g_cache *c, uint64_t key, bool *mine)
{
    uint32_t at = (uint32_t)((key * 0x9e3779b97f4a7c15u) >> 40) & c->mask;

    *mine = false;
    for (uint32_t tries = 0; tries <= c->mask; tries++) {
        /* relaxed: only the number matters; `at` carries the data. */
        uint64_t there =
            atomic_load_explicit(&c->key[at], memory_order_relaxed);

        if (there == key)
            return at;
        if (!there) {
            if (atomic_load_explicit(&c->n_keys, memory_order_relaxed) >
                c->mask / 4 * 3)
                return G_NONE;
            if (atomic_compare_exchange_strong_explicit(
                    &c->key[at], &there, key, memory_order_relaxed,
                    memory_order_relaxed)) {
                atomic_fetch_add_explicit(&c->n_keys, 1, memory_order_relaxed);
                *mine = true;
                return at;
            }
            if (there == key)
                return at;
        }
        at = (at + 1) & c->mask;
    }
    return G_NONE;
}

static struct g_entry *cache_alloc(struct g_cache *c, uint64_t bytes)
{
    uint64_t used = atomic_load_explicit(&c->used, memory_order_relaxed);

    bytes = (bytes + 7) & ~(uint64_t)7;
    do {
        if (bytes > c->bytes - used)
            return NULL;
    } while (!atomic_compare_exchange_weak_explicit(
        &c->used, &used, used + bytes, memory_order_relaxed,
        memory_order_relaxed));
    return (struct g_entry *)(void *)(c->mem + used);
}

static void cache_put(const struct seam_grammar *g, struct g_cache *c,
                      uint32_t slot, const struct view *w)
{
    uint32_t n_pops = w->n_pops == G_NONE ? 0 : w->n_pops;
    uint32_t n_words = g->v->n_words, n_ids = 0, n;
    struct g_entry *e;

    for (uint32_t i = 0; i < n_words; i++)
        n_ids += (uint32_t)__builtin_popcount(w->words[i]);
    n = n_ids < n_words ? n_ids : n_words;
    e = cache_alloc(c, sizeof *e + ((uint64_t)n + n_pops) * sizeof *e->data);
    if (!e)
        return;
    *e = (struct g_entry){ .n_ids = n_ids < n_words ? n_ids : G_NONE,
                           .n_pops = w->n_pops,
                           .peak = (uint16_t)w->peak };
    if (n_ids >= n_words) {
        memcpy(e->data, w->words, n_words * sizeof *e->data);
    } else {
        n = 0;
        for (uint32_t i = 0; i < n_words; i++)
            for (uint32_t x = w->words[i]; x; x &= x - 1)
                e->data[n++] = 32 * i + (uint32_t)__builtin_ctz(x);
    }
    memcpy(e->data + n, w->pops, n_pops * sizeof *e->data);
    atomic_fetch_add_explicit(&c->n_entries, 1, memory_order_relaxed);
    /* release: whoever sees the offset sees the entry. */
    atomic_store_explicit(&c->at[slot],
                          (uint64_t)((unsigned char *)e - c->mem) + 1,
                          memory_order_release);
}

static struct view view_of(const struct seam_grammar *g,
                           const struct g_entry *e)
{
    bool dense = e->n_ids == G_NONE;
    uint32_t n = dense ? g->v->n_words : e->n_ids;

    return (struct view){ .ids = dense ? NULL : e->data,
                          .n_ids = dense ? 0 : e->n_ids,
                          .words = dense ? e->data : NULL,
                          .pops = e->data + n,
                          .n_pops = e->n_pops,
                          .peak = e->peak };
}

static struct view look_up(struct seam_matcher *m, const struct g_config *c)
{
    uint64_t key;
    struct g_cache *cache = cache_of(m->g, c, &key);
    bool mine;
    uint32_t slot = cache_slot(cache, key, &mine);
    struct view w;

    if (slot != G_NONE && !mine) {
        uint64_t at =
            atomic_load_explicit(&cache->at[slot], memory_order_acquire);

        if (at)
            return view_of(
                m->g,
                (const struct g_entry *)(const void *)(cache->mem + at - 1));
    }
    w = compute(m, c);
    if (mine && !m->overflow)
        cache_put(m->g, cache, slot, &w);
    return w;
}

/* ---- Rows ---------------------------------------------------------------- */

static void row_add(const struct seam_matcher *m, const struct view *w,
                    uint32_t *row)
{
    if (w->words)
        for (uint32_t i = 0; i < m->g->v->n_words; i++)
            row[i] |= w->words[i];
    for (uint32_t i = 0; i < w->n_ids; i++)
        bit_set(row, (int32_t)w->ids[i]);
}

/* Tokens that end the rule of c and go on in its caller.  False: the places where
 * that can be are not known. */
static bool row_add_returns(struct seam_matcher *m, const struct g_config *c,
                            const struct view *w, uint32_t *row)
{
    uint32_t first = m->n_configs, frames = m->n_frames, n, after;
    bool may[256] = { false }, any = false;

    if (!w->n_pops || c->frame == G_FRAME_END)
        return true;
    n = g_return(m, first, c->frame);
    after = m->n_frames;
    for (uint32_t i = first; i < n; i++) {
        const struct g_state *st = &m->g->a.state[m->config[i].state];

        for (uint32_t k = 0; k < st->n_edges; k++) {
            const struct g_edge *e = &m->g->a.edge[st->edge + k];

            memset(may + e->lo, true, (size_t)e->hi - e->lo + 1);
            any = true;
        }
    }
    for (uint32_t i = 0; any && w->n_pops != G_NONE && i < w->n_pops; i++) {
        m->n_configs = n;
        m->n_frames = after;
        walk(m, w->pops[i], first, may, false, row);
        if (m->overflow)
            break;
    }
    m->n_configs = first;
    m->n_frames = frames;
    return !any || w->n_pops != G_NONE;
}

/* All by walking, for stacks that are nearly full. */
static void row_add_walked(struct seam_matcher *m, const struct g_config *c,
                           uint32_t *row)
{
    uint32_t first = m->n_configs, frames = m->n_frames;

    added_tokens(m, c, row);
    m->config[m->n_configs++] = *c;
    walk_all(m, first, false, false, row);
    m->n_configs = first;
    m->n_frames = frames;
}

int seam_matcher_mask(struct seam_matcher *m, uint32_t *row,
                      struct seam_error *err)
{
    const struct seam_vocab *v = m->g->v;
    uint32_t n, frames;

    if (seam_matcher_ended(m))
        return seam_fail(err, SEAM_ESTATE,
                         "grammar: the output has ended, no mask follows");
    memset(row, 0, v->n_words * sizeof *row);
    n = g_load(m);
    frames = m->n_frames;
    for (uint32_t i = 0; i < n && !m->overflow; i++) {
        struct g_config c = m->config[i];
        struct view w;

        if (!c.state) {
            for (uint32_t k = 0; k < v->n_stop; k++)
                bit_set(row, v->stop[k]);
            continue;
        }
        w = look_up(m, &c);
        if (m->frame[c.frame].depth + w.peak > G_MAX_DEPTH) {
            row_add_walked(m, &c, row);
            continue;
        }
        row_add(m, &w, row);
        if (!row_add_returns(m, &c, &w, row))
            row_add_walked(m, &c, row);
    }
    m->n_frames = frames;
    return m->overflow ? g_overflowed(err) : 0;
}
