/* Masks: which tokens may come next.
 *
 * A token is allowed when one of the configurations can take all its bytes.
 * Most of the answer depends on a configuration's state alone: tokens that stay
 * within its rule, and places in the trie where the rule can end in mid-token.
 * That part is computed once and remembered in the grammar, and so is what goes
 * on at those places in the state that follows the rule.  The rest, where that
 * rule ends in turn, is walked with the stack at hand.
 *
 * It does not depend on how often a loop has gone round, either: it is computed
 * for a symbolic count, and says of a token how many rounds must be left.  And
 * where a rule can end after nearly every token, as text does, it is computed
 * for the state together with the state that follows the rule, unless no byte
 * can follow. */
#include "core/grammar/matcher.h"

#include <stdlib.h>

/* What a configuration's state allows: remembered, or just computed. */
struct view {
    const uint32_t *bulk; /* [n_words] or NULL */
    uint32_t n_bulk;      /* as in g_entry */
    const uint32_t *ids;  /* [n_ids], unless words */
    uint32_t n_ids;
    const uint32_t *words;
    const struct g_when *when; /* [n_when]; n_when G_NONE: not known */
    uint32_t n_when;
    const struct g_when *pops; /* [n_pops] */
    uint32_t n_pops;           /* G_NONE: there are, but too many to note */
    uint32_t peak;
};

/* How it is remembered. */
struct how {
    struct g_cache *cache;
    uint64_t key;
    bool pair;          /* together with what follows the rule */
    bool last;          /* which takes no bytes, whatever it is */
    uint32_t must, may; /* rounds of the loop, see g_cond */
};

/* What need not be walked: tokens that begin with a byte, are of these classes
 * alone and have at most so many characters. */
struct known {
    uint64_t classes[256];
    uint32_t n_chars;
};

static inline void bit_set(uint32_t *row, int32_t id)
{
    row[(uint32_t)id / 32] |= 1u << (id & 31);
}

static inline bool holds(struct g_cond c, const struct how *h)
{
    return h->must <= c.lo && h->may >= c.hi;
}

/* ---- Walking ------------------------------------------------------------- */

/* g_step for a set of one configuration that a byte leads to one other, without
 * calls and returns: false when it is not like that. */
static bool step_plainly(struct seam_matcher *m, uint32_t first, uint8_t byte)
{
    struct g_config c = m->config[first];
    const struct g_state *st = &m->g->a.state[c.state], *to;
    const struct g_edge *e = g_edge_of(m->g, st, byte);
    uint32_t peak;

    m->n_configs = first + 1;
    m->n_popped = 0;
    if (!e)
        return true;
    to = &m->g->a.state[e->to];
    if (to->n_calls || (to->flags & (G_TAIL | G_ACCEPT_DONE)) ||
        first + 1 == G_CONFIGS)
        return false;
    if ((to->flags & G_ACCEPT) && c.frame != G_FRAME_BASE)
        return false;
    if (!g_pass(m->g, e, &c))
        return true;
    if (to->flags & G_ACCEPT)
        m->popped[m->n_popped++] = c.cond;
    peak = m->frame[c.frame].depth + (uint32_t)to->need;
    if (peak > m->peak)
        m->peak = peak;
    if (peak <= G_MAX_DEPTH)
        m->config[m->n_configs++] = c;
    return true;
}

/* Does the set config[first, end) take any text of these classes? */
static bool takes_all(const struct seam_matcher *m, uint32_t first,
                      uint32_t end, uint64_t classes)
{
    const struct g_auto *a = &m->g->a;

    for (uint32_t i = first; i < end; i++) {
        const struct g_config *c = &m->config[i];
        const struct g_state *st = &a->state[c->state];

        if ((classes & ~st->loops) || !g_always(c->cond))
            continue;
        /* Counted characters may run out. */
        if (!(st->flags & G_COUNTS) ||
            (c->count < G_SYMBOLIC &&
             a->loop[st->loop - 1].max - c->count > m->g->v->max_len))
            return true;
    }
    return false;
}

static void when_add(struct seam_matcher *m, uint32_t what, struct g_cond cond)
{
    if (m->n_when < m->cap_when)
        m->when[m->n_when] = (struct g_when){ what, cond };
    m->n_when += m->n_when <= m->cap_when;
}

/* ids[n] lead to the set config[first, n_configs), or to the end of the rule. */
static void take(struct seam_matcher *m, const int32_t *ids, uint32_t n,
                 uint32_t first, uint32_t *row)
{
    bool all = false;

    for (uint32_t i = first; i < m->n_configs && !all; i++)
        all = g_always(m->config[i].cond);
    for (uint32_t i = 0; i < m->n_popped && !all; i++)
        all = g_always(m->popped[i]);
    for (uint32_t k = 0; k < n; k++) {
        if (all) {
            bit_set(row, ids[k]);
            continue;
        }
        for (uint32_t i = first; i < m->n_configs; i++)
            when_add(m, (uint32_t)ids[k], m->config[i].cond);
        for (uint32_t i = 0; i < m->n_popped; i++)
            when_add(m, (uint32_t)ids[k], m->popped[i]);
    }
}

/* Set the bits of the tokens below a place that the set config[first,
 * n_configs) takes.  may[256], or NULL, says which bytes that set takes at all;
 * what is known, or NULL, is left out.  With pops, places where the rule ends are
 * noted, up to G_POPS. */
static void walk(struct seam_matcher *m, uint32_t place, uint32_t first,
                 const bool *may, const struct known *known, bool pops,
                 uint32_t *row)
{
    const struct g_trie *t = &m->g->v->trie;
    uint32_t end = t->node[place].end, at = 0;
    struct g_level *level = m->level;
    uint64_t classes = 0;

    level[0] = (struct g_level){ first, m->n_frames, end };
    level[1].config = m->n_configs;
    for (uint32_t i = place + 1; i < end;) {
        const struct g_node *node = &t->node[i];
        uint32_t next;

        while (i >= level[at].end)
            at--;
        if (!at && known)
            classes = known->classes[node->byte];
        if ((!at && may && !may[node->byte]) ||
            (!(node->tokens & ~classes) && node->n_chars <= known->n_chars)) {
            i = node->end;
            continue;
        }
        m->n_walked++;
        next = level[at + 1].config;
        m->n_frames = level[at].frames;
        if (next - level[at].config != 1 ||
            !step_plainly(m, level[at].config, node->byte))
            g_step(m, level[at].config, next, node->byte);
        if (m->overflow)
            return;
        if (takes_all(m, next, m->n_configs, node->below)) {
            uint32_t last =
                node->end < t->n ? t->node[node->end].tok_before : t->n_ids;

            for (uint32_t k = node->tok_before; k < last; k++)
                bit_set(row, t->ids[k]);
            i = node->end;
            continue;
        }
        if (node->n_tok)
            take(m, t->ids + node->tok_before, node->n_tok, next, row);
        if (pops && node->end > i + 1) {
            for (uint32_t k = 0; k < m->n_popped; k++, m->n_pops++)
                if (m->n_pops < G_POPS)
                    m->pop[m->n_pops] = (struct g_when){ i, m->popped[k] };
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

/* ---- One state ----------------------------------------------------------- */

/* Rounds that a loop must still and may still make, as far as a token can tell
 * the difference. */
static void rounds_left(const struct seam_grammar *g, uint32_t loop,
                        uint32_t count, struct how *h)
{
    uint32_t most = g->v->max_len + 1;
    const struct g_loop *l;

    if (!loop)
        return;
    l = &g->a.loop[loop - 1];
    if (l->min > count)
        h->must = l->min - count < most ? l->min - count : most;
    h->may =
        l->max == UINT32_MAX || l->max - count > most ? most : l->max - count;
}

/* Can a rule that ends here be followed by added tokens alone, or by nothing? */
static bool takes_no_bytes(const struct seam_matcher *m, uint32_t frame)
{
    const struct g_state *st = &m->g->a.state[m->frame[frame].ret];

    return frame == G_FRAME_END ||
           (m->frame[frame].ret && !st->n_edges && !st->n_calls &&
            !(st->flags & (G_ACCEPT | G_ACCEPT_DONE)));
}

static struct how how_of(struct seam_matcher *m, const struct g_config *c)
{
    struct seam_grammar *g = m->g;
    const struct g_state *st = &g->a.state[c->state];
    const struct g_frame *f = &m->frame[c->frame];
    uint32_t after = c->frame == G_FRAME_END ? 0 : g->a.state[f->ret].loop;
    struct how h = { .cache = &g->cache, .key = c->state };

    h.last = (st->flags & G_PAIR) && takes_no_bytes(m, c->frame);
    /* Only one of two counts can be left open. */
    h.pair =
        (st->flags & G_PAIR) && !h.last && !(st->loop && after && f->count);
    rounds_left(g, st->loop, c->count, &h);
    if (h.pair) {
        h.key |= (uint64_t)(f->ret + 1) << 32;
        if (!st->loop)
            rounds_left(g, after, f->count, &h);
    } else if (st->shared) {
        h.cache = g->v->shared;
        h.key = (uint64_t)st->shared << 32 | st->local;
    }
    if (h.last)
        h.key |= G_KEY_LAST;
    return h;
}

/* What stands for c while its mask is computed. */
static struct g_config stand_in(struct seam_matcher *m,
                                const struct g_config *c, bool pair)
{
    const struct g_auto *a = &m->g->a;
    bool loop = a->state[c->state].loop;
    struct g_config own = { .state = c->state,
                            .count = loop ? G_SYMBOLIC : 0,
                            .frame = G_FRAME_BASE,
                            .cond = { .lo = G_ANY_LO } };
    struct g_frame f = { .parent = G_FRAME_BASE, .depth = 1, .hash = 3 };

    if (!pair)
        return own;
    if (m->n_frames == G_FRAMES) {
        m->overflow = true;
        return own;
    }
    f.ret = m->frame[c->frame].ret;
    f.count = !loop && a->state[f.ret].loop ? G_SYMBOLIC : 0;
    own.frame = m->n_frames++;
    m->frame[own.frame] = f;
    return own;
}

/* Tokens of whole characters of these classes alone: a row that is remembered
 * for all grammars, or `row`. */
static const uint32_t *bulk_row(const struct seam_vocab *v, uint64_t classes,
                                uint32_t *row)
{
    uint32_t n = v->n_words, slot;
    uint64_t others = ~classes & (((uint64_t)1 << G_N_CLASSES) - 1);
    const struct g_entry *e =
        g_cache_find(v->shared, G_KEY_BULK | classes, &slot);
    struct g_entry *mine;

    if (e)
        return e->data;
    memcpy(row, v->whole + (size_t)(G_SHORT_MAX + 1) * n, n * sizeof *row);
    for (; others; others &= others - 1) {
        const uint32_t *has = v->has + (size_t)__builtin_ctzll(others) * n;

        for (uint32_t i = 0; i < n; i++)
            row[i] &= ~has[i];
    }
    mine = slot == G_NONE || g_cache_full(v->shared, n)
               ? NULL
               : g_cache_alloc(v->shared, n);
    if (!mine)
        return row;
    memset(mine, 0, sizeof *mine);
    memcpy(mine->data, row, n * sizeof *row);
    g_cache_put(v->shared, slot, mine);
    return mine->data;
}

static uint32_t class_of_byte(unsigned byte)
{
    return byte < 0x80 ? g_class_of(byte) : G_CLASS_WIDE;
}

/* Can what follows a rule begin with a character that leads st back to itself? */
static bool returns_take(struct seam_matcher *m, uint32_t frame,
                         const struct g_state *st)
{
    uint32_t first = m->n_configs, frames = m->n_frames;
    uint32_t n = g_return(m, first, frame);
    bool any = m->n_popped;

    for (uint32_t i = first; i < n && !any; i++)
        for (unsigned c = 0; c < 256 && !any; c++)
            any =
                st->loops >> class_of_byte(c) & 1 &&
                g_edge_of(m->g, &m->g->a.state[m->config[i].state], (uint8_t)c);
    m->n_configs = first;
    m->n_frames = frames;
    return any;
}

/* Characters that lead from st to itself or to `home` and keep it there belong to
 * nothing else, so that counting them is all that limits them: beyond the loop's
 * max they could be what follows the rule. */
static bool counts_alone(struct seam_matcher *m, const struct how *h,
                         uint32_t frame, const struct g_state *st,
                         const struct g_state *home)
{
    if (!((st->flags | home->flags) & (G_ACCEPT | G_ACCEPT_DONE)))
        return !st->n_calls;
    return !st->n_calls &&
           (h->last || (h->pair && !returns_take(m, frame, home)));
}

/* Does an edge lead to a state in the way in which that leads to itself? */
static bool leads_home(const struct g_edge *e, const struct g_state *home)
{
    return e->flags == (home->flags & G_COUNTS ? G_INC | G_MORE : 0);
}

/* The state to which most bytes lead from st and which then takes what it is
 * given, or 0. */
static uint32_t home_of(const struct g_auto *a, const struct g_state *st)
{
    uint32_t best = 0, most = 15; /* fewer bytes are soon walked */

    for (uint32_t k = 0; k < st->n_edges; k++) {
        uint32_t to = a->edge[st->edge + k].to, n = 0;
        const struct g_state *home = &a->state[to];

        if (to == best || !home->loops ||
            ((home->flags & G_COUNTS) && home->loop != st->loop))
            continue;
        for (uint32_t i = k; i < st->n_edges; i++) {
            const struct g_edge *e = &a->edge[st->edge + i];

            if (e->to == to && leads_home(e, home))
                n += (uint32_t)e->hi - e->lo + 1;
        }
        if (n > most) {
            most = n;
            best = to;
        }
    }
    return best;
}

/* Allow tokens that lead from st to its home with their first character, and
 * stay there. */
static void bulk_home(const struct seam_matcher *m, const struct g_state *st,
                      uint32_t home, struct known *known, uint32_t *row)
{
    const struct seam_vocab *v = m->g->v;
    const struct g_state *h = &m->g->a.state[home];

    const uint32_t *bulk = bulk_row(v, h->loops, row);

    if (bulk != row)
        memcpy(row, bulk, v->n_words * sizeof *row);
    for (unsigned c = 0; c < 256; c++) {
        const struct g_edge *e = g_edge_of(m->g, st, (uint8_t)c), *same;
        const struct g_node *node = &v->trie.node[v->root[c]];
        uint32_t last;

        if (!v->root[c] || !(h->loops >> class_of_byte(c) & 1))
            continue;
        same = g_edge_of(m->g, h, (uint8_t)c);
        if (e && same && e->to == same->to && e->flags == same->flags) {
            known->classes[c] = h->loops;
            continue;
        }
        last = node->end < v->trie.n ? v->trie.node[node->end].tok_before
                                     : v->trie.n_ids;
        for (uint32_t k = node->tok_before; k < last; k++)
            row[(uint32_t)v->trie.ids[k] / 32] &=
                ~(1u << (v->trie.ids[k] & 31));
    }
}

/* ---- Runs ---------------------------------------------------------------- */

#define MAX_RUN_STATES 64

/* What the characters of some classes lead to. */
struct run {
    const struct seam_grammar *g;
    uint64_t classes;
    uint32_t n_chars; /* of them, any lead on */
    uint32_t need;    /* of all states that they lead to */
};

/* The character of a class that comes first and last; a class has them all. */
static unsigned class_first(uint32_t class, unsigned *last)
{
    unsigned c = 0;

    while (g_class_of(c) != class)
        c++;
    *last = c;
    while (*last + 1 < 0x80 && g_class_of(*last + 1) == class)
        ++*last;
    return c;
}

/* Try r->classes from s on. */
static void run_try(struct run *r, uint32_t s)
{
    uint32_t set[2][MAX_RUN_STATES], n = 1, m;

    set[0][0] = s;
    r->need = 0;
    for (r->n_chars = 0; r->n_chars < G_SHORT_MAX; r->n_chars++) {
        const uint32_t *now = set[r->n_chars % 2];
        uint32_t *next = set[(r->n_chars + 1) % 2];

        m = 0;
        for (uint64_t x = r->classes; x; x &= x - 1) {
            unsigned last;
            unsigned c = class_first((uint32_t)__builtin_ctzll(x), &last);

            for (; c <= last; c++)
                for (uint32_t i = 0; i < n; i++) {
                    const struct g_edge *e =
                        g_edge_of(r->g, &r->g->a.state[now[i]], (uint8_t)c);
                    uint32_t k = 0;

                    if (!e || e->flags)
                        return;
                    while (k < m && next[k] != e->to)
                        k++;
                    if (k == MAX_RUN_STATES)
                        return;
                    next[k] = e->to;
                    m = k == m ? m + 1 : m;
                }
        }
        n = m;
        for (uint32_t i = 0; i < n; i++)
            if (r->g->a.state[next[i]].need > r->need)
                r->need = r->g->a.state[next[i]].need;
    }
}

/* Classes of which any few characters lead from s on, as they do in patterns
 * that are written out.  Finds some, not the most. */
static bool run_find(struct run *r, uint32_t s)
{
    struct run best = { .n_chars = 0 };
    const struct g_state *st = &r->g->a.state[s];

    /* Letters first: others come between them. */
    for (uint32_t i = 0; i < G_CLASS_WIDE - 1; i++) {
        uint32_t class = 1 + (i + 5) % (G_CLASS_WIDE - 1);
        unsigned last, c = class_first(class, &last);

        if (!g_edge_of(r->g, st, (uint8_t)c))
            continue;
        r->classes = best.classes | (uint64_t)1 << class;
        run_try(r, s);
        if (r->n_chars > 1 && r->n_chars >= best.n_chars)
            best = *r;
    }
    *r = best;
    return r->n_chars > 1;
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
        struct g_cond cond;

        if (!g_added_open(m->g, st, e, c->count, &cond))
            continue;
        if (peak > m->peak)
            m->peak = peak;
        if (peak > G_MAX_DEPTH)
            continue;
        if (g_always(cond))
            bit_set(row, e->id);
        else
            when_add(m, (uint32_t)e->id, cond);
    }
}

/* Compute what c's state allows, into m->scratch, m->when and m->pop. */
static struct view compute(struct seam_matcher *m, const struct g_config *c,
                           const struct how *h)
{
    const struct seam_vocab *v = m->g->v;
    const struct g_auto *a = &m->g->a;
    const struct g_state *st = &a->state[c->state];
    uint32_t first = m->n_configs, frames = m->n_frames, home;
    struct g_config own = stand_in(m, c, h->pair);
    uint32_t *row = m->scratch, depth = m->frame[own.frame].depth;
    struct view w = { .words = row, .when = m->when, .pops = m->pop };
    bool counts = st->flags & G_COUNTS, all = st->loops;
    struct known known = { .n_chars = UINT8_MAX };
    struct run run = { .g = m->g };

    m->peak = depth + (uint32_t)st->need;
    m->n_pops = m->n_when = 0;
    memset(row, 0, v->n_words * sizeof *row);
    /* Beyond the loop's max the same characters may belong to what follows. */
    if (counts)
        all = counts_alone(m, h, own.frame, st, st);
    home = all || st->loops ? 0 : home_of(a, st);
    if (home && (a->state[home].flags & G_COUNTS) &&
        !counts_alone(m, h, own.frame, st, &a->state[home]))
        home = 0;
    if (all) {
        w.bulk = bulk_row(v, st->loops, row + v->n_words);
        w.n_bulk = counts ? G_BULK_ROUNDS : G_BULK_ALL;
        for (unsigned i = 0; i < 256; i++)
            known.classes[i] = st->loops;
    } else if (home) {
        uint32_t peak = depth + (uint32_t)a->state[home].need;

        m->peak = peak > m->peak ? peak : m->peak;
        counts = a->state[home].flags & G_COUNTS;
        bulk_home(m, st, home, &known, counts ? row + v->n_words : row);
        w.bulk = counts ? row + v->n_words : NULL;
        w.n_bulk = G_BULK_ROUNDS;
    } else if (st->n_edges && run_find(&run, c->state)) {
        uint32_t peak = depth + run.need;

        m->peak = peak > m->peak ? peak : m->peak;
        w.bulk = bulk_row(v, run.classes, row + v->n_words);
        w.n_bulk = run.n_chars;
        known.n_chars = run.n_chars;
        for (unsigned i = 0; i < 256; i++)
            known.classes[i] = run.classes;
    }
    added_tokens(m, &own, row);
    m->config[m->n_configs++] = own;
    if (!m->overflow)
        walk(m, 0, first, NULL, &known, !h->last, row);
    w.n_when = m->n_when <= m->cap_when ? m->n_when : G_NONE;
    w.n_pops = m->n_pops <= G_POPS ? m->n_pops : G_NONE;
    w.peak = m->peak;
    m->n_configs = first;
    m->n_frames = frames;
    return w;
}

/* ---- Remembering --------------------------------------------------------- */

static void remember(const struct seam_grammar *g, struct g_cache *c,
                     uint32_t slot, const struct view *w,
                     const uint32_t *scratch)
{
    uint32_t n_pops = w->n_pops == G_NONE ? 0 : w->n_pops;
    uint32_t n_when = w->n_when == G_NONE ? 0 : w->n_when;
    uint32_t n_words = g->v->n_words, n_ids = 0, n;
    const uint32_t *bulk = w->bulk;
    struct g_entry *e;
    uint32_t *to;

    if (bulk >= scratch && bulk < scratch + 2 * (size_t)n_words) {
        e = g_cache_alloc(c, n_words);
        if (!e)
            return;
        memcpy(e->data, bulk, n_words * sizeof *bulk);
        bulk = e->data;
    }
    for (uint32_t i = 0; i < n_words; i++)
        for (uint32_t x = w->words[i]; x && n_ids < n_words; x &= x - 1)
            n_ids++;
    n = n_ids < n_words ? n_ids : n_words;
    e = g_cache_alloc(c, n + 2 * ((uint64_t)n_when + n_pops));
    if (!e)
        return;
    *e = (struct g_entry){ .n_ids = n_ids < n_words ? n_ids : G_NONE,
                           .n_when = w->n_when,
                           .n_pops = w->n_pops,
                           .peak = (uint16_t)w->peak,
                           .n_bulk = (uint16_t)w->n_bulk,
                           .bulk = bulk };
    to = e->data;
    if (n_ids >= n_words) {
        memcpy(to, w->words, n_words * sizeof *to);
        to += n_words;
    } else {
        for (uint32_t i = 0; i < n_words; i++)
            for (uint32_t x = w->words[i]; x; x &= x - 1)
                *to++ = 32 * i + (uint32_t)__builtin_ctz(x);
    }
    memcpy(to, w->when, n_when * sizeof *w->when);
    memcpy(to + 2 * (size_t)n_when, w->pops, n_pops * sizeof *w->pops);
    g_cache_put(c, slot, e);
}

static struct view view_of(const struct seam_grammar *g,
                           const struct g_entry *e)
{
    const uint32_t *at = e->data;
    struct view w = { .bulk = e->bulk,
                      .n_bulk = e->n_bulk,
                      .n_when = e->n_when,
                      .n_pops = e->n_pops,
                      .peak = e->peak };

    if (e->n_ids == G_NONE) {
        w.words = at;
        at += g->v->n_words;
    } else {
        w.ids = at;
        w.n_ids = e->n_ids;
        at += e->n_ids;
    }
    w.when = (const struct g_when *)(const void *)at;
    if (e->n_when != G_NONE)
        at += 2 * (size_t)e->n_when;
    w.pops = (const struct g_when *)(const void *)at;
    return w;
}

static struct view look_up(struct seam_matcher *m, const struct g_config *c,
                           struct how *h)
{
    const struct g_entry *e;
    struct view w;
    uint32_t slot;

    *h = how_of(m, c);
    e = g_cache_find(h->cache, h->key, &slot);
    if (!e && h->cache != &m->g->cache &&
        g_cache_full(h->cache, m->g->v->n_words)) {
        h->cache = &m->g->cache;
        h->key = c->state | (h->last ? G_KEY_LAST : 0);
        e = g_cache_find(h->cache, h->key, &slot);
    }
    if (e)
        return view_of(m->g, e);
    w = compute(m, c, h);
    if (slot != G_NONE && !m->overflow)
        remember(m->g, h->cache, slot, &w, m->scratch);
    return w;
}

/* ---- Rows ---------------------------------------------------------------- */

/* Of the tokens in bulk, those of at most n characters. */
static void row_add_bulk(const struct seam_vocab *v, const uint32_t *bulk,
                         uint32_t n, uint32_t *row)
{
    uint32_t k = n > v->max_len    ? G_SHORT_MAX + 1
                 : n < G_SHORT_MAX ? n
                                   : G_SHORT_MAX;
    const uint32_t *whole = v->whole + (size_t)k * v->n_words;

    for (uint32_t i = 0; i < v->n_words; i++)
        row[i] |= bulk[i] & whole[i];
    for (uint32_t i = 0; k == G_SHORT_MAX && i < v->n_more; i++) {
        uint32_t id = (uint32_t)v->more[i].id;

        if (v->more[i].n_chars > n)
            break;
        row[id / 32] |= bulk[id / 32] & 1u << id % 32;
    }
}

static void row_add(const struct seam_matcher *m, const struct view *w,
                    const struct how *h, uint32_t *row)
{
    if (w->bulk)
        row_add_bulk(m->g->v, w->bulk,
                     w->n_bulk == G_BULK_ROUNDS ? h->may : w->n_bulk, row);
    if (w->words)
        for (uint32_t i = 0; i < m->g->v->n_words; i++)
            row[i] |= w->words[i];
    for (uint32_t i = 0; i < w->n_ids; i++)
        bit_set(row, (int32_t)w->ids[i]);
    for (uint32_t i = 0; i < w->n_when; i++)
        if (holds(w->when[i].cond, h))
            bit_set(row, (int32_t)w->when[i].what);
}

/* The bytes that configurations from `first` on take; false: none. */
static bool bytes_taken(const struct seam_matcher *m, uint32_t first, bool *may)
{
    bool any = false;

    for (uint32_t i = first; i < m->n_configs; i++) {
        const struct g_state *st = &m->g->a.state[m->config[i].state];

        for (uint32_t k = 0; k < st->n_edges; k++) {
            const struct g_edge *e = &m->g->a.edge[st->edge + k];

            memset(may + e->lo, true, (size_t)e->hi - e->lo + 1);
            any = true;
        }
    }
    return any;
}

/* What the tokens that end a rule do in the rule behind it, where it goes on in
 * state ret: the tokens that stay there, and the places where it ends in turn. */
static struct view compute_returns(struct seam_matcher *m, const struct view *w,
                                   uint32_t ret)
{
    uint32_t first = m->n_configs, frames = m->n_frames, n, after, n_done;
    struct view out = { .words = m->scratch, .when = m->when, .pops = m->pop };
    struct g_cond done[G_MAX_POPPED];
    bool may[256] = { false }, any;

    m->peak = 0;
    m->n_pops = m->n_when = 0;
    memset(m->scratch, 0, m->g->v->n_words * sizeof *m->scratch);
    if (m->n_frames == G_FRAMES) {
        m->overflow = true;
        return out;
    }
    m->frame[m->n_frames] = (struct g_frame){
        .ret = ret, .parent = G_FRAME_BASE, .depth = 1, .hash = 3
    };
    n = g_return(m, first, m->n_frames++);
    after = m->n_frames;
    n_done = m->n_popped;
    memcpy(done, m->popped, sizeof done);
    any = bytes_taken(m, first, may);
    for (uint32_t i = 0; i < w->n_pops && !m->overflow; i++) {
        for (uint32_t k = 0; k < n_done; k++, m->n_pops++)
            if (m->n_pops < G_POPS)
                m->pop[m->n_pops] = w->pops[i];
        for (uint32_t k = first; k < n; k++)
            m->config[k].cond = w->pops[i].cond;
        m->n_configs = n;
        m->n_frames = after;
        if (any)
            walk(m, w->pops[i].what, first, may, NULL, true, m->scratch);
    }
    out.n_when = m->n_when <= m->cap_when ? m->n_when : G_NONE;
    out.n_pops = m->n_pops <= G_POPS ? m->n_pops : G_NONE;
    out.peak = m->peak;
    m->n_configs = first;
    m->n_frames = frames;
    return out;
}

/* The same, remembered; NULL: it cannot be. */
static const struct g_entry *look_up_returns(struct seam_matcher *m,
                                             const struct g_config *c,
                                             const struct view *w,
                                             const struct how *h,
                                             uint32_t frame)
{
    struct g_cache *cache = &m->g->cache;
    const struct g_frame *f = &m->frame[frame];
    uint64_t key = G_KEY_RETURN | (uint64_t)c->state << 20 | f->ret;
    const struct g_entry *e;
    struct view out;
    uint32_t slot;

    /* Only one count can be left open; w itself must be remembered, as both are
     * computed in the same place. */
    if ((m->g->a.state[f->ret].loop && f->count) || w->n_pops == G_NONE ||
        w->words == m->scratch)
        return NULL;
    if (h->pair)
        key |= ((uint64_t)m->frame[c->frame].ret + 1) << 40;
    e = g_cache_find(cache, key, &slot);
    if (e || slot == G_NONE || g_cache_full(cache, m->g->v->n_words))
        return e;
    out = compute_returns(m, w, f->ret);
    if (m->overflow)
        return NULL;
    remember(m->g, cache, slot, &out, m->scratch);
    return g_cache_find(cache, key, &slot);
}

/* Tokens that end the rule of c and go on in its caller, and so on. */
static void row_add_returns(struct seam_matcher *m, const struct view *w,
                            const struct how *h, uint32_t frame, uint32_t *row)
{
    uint32_t first = m->n_configs, frames = m->n_frames, n, after;
    bool may[256] = { false };

    n = g_return(m, first, frame);
    after = m->n_frames;
    if (bytes_taken(m, first, may))
        for (uint32_t i = 0; i < w->n_pops && !m->overflow; i++) {
            if (!holds(w->pops[i].cond, h))
                continue;
            m->n_configs = n;
            m->n_frames = after;
            walk(m, w->pops[i].what, first, may, NULL, false, row);
        }
    m->n_configs = first;
    m->n_frames = frames;
}

/* All that c allows.  False: it has to be walked. */
static bool row_add_all(struct seam_matcher *m, const struct g_config *c,
                        uint32_t *row)
{
    struct how h;
    struct view w = look_up(m, c, &h);
    uint32_t frame = c->frame, depth = m->frame[frame].depth;
    const struct g_entry *e;

    /* The stand-in's frame is in the peak. */
    if (h.pair)
        frame = m->frame[frame].parent;
    depth = c->frame == frame ? depth : depth - 1;
    if (m->overflow)
        return true;
    if (depth + w.peak > G_MAX_DEPTH || w.n_when == G_NONE)
        return false;
    row_add(m, &w, &h, row);
    if (!w.n_pops || frame == G_FRAME_END)
        return true;
    e = look_up_returns(m, c, &w, &h, frame);
    if (e && e->n_when != G_NONE && e->n_pops != G_NONE &&
        m->frame[frame].depth - 1 + (uint32_t)e->peak <= G_MAX_DEPTH) {
        w = view_of(m->g, e);
        row_add(m, &w, &h, row);
        frame = m->frame[frame].parent;
    }
    if (w.n_pops == G_NONE)
        return false;
    if (w.n_pops && frame != G_FRAME_END)
        row_add_returns(m, &w, &h, frame, row);
    return true;
}

/* All by walking, for stacks that are nearly full. */
static void row_add_walked(struct seam_matcher *m, const struct g_config *c,
                           uint32_t *row)
{
    uint32_t first = m->n_configs, frames = m->n_frames;

    added_tokens(m, c, row);
    m->config[m->n_configs++] = *c;
    walk(m, 0, first, NULL, NULL, false, row);
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

        if (!c.state) {
            for (uint32_t k = 0; k < v->n_stop; k++)
                bit_set(row, v->stop[k]);
            continue;
        }
        if (!row_add_all(m, &c, row))
            row_add_walked(m, &c, row);
    }
    m->n_frames = frames;
    return m->overflow ? g_overflowed(err) : 0;
}

void g_mask_warm(struct seam_matcher *m, const struct g_config *c)
{
    uint32_t frames = m->n_frames, frame = c->frame;
    struct how h;
    struct view w;

    m->n_configs = 0;
    m->overflow = false;
    look_up(m, c, &h);
    if (!m->overflow) {
        w = look_up(m, c, &h);
        if (h.pair)
            frame = m->frame[frame].parent;
        if (w.n_pops && frame != G_FRAME_END)
            look_up_returns(m, c, &w, &h, frame);
    }
    m->n_frames = frames;
    m->overflow = false;
}
