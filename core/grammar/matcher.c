/* Where a sequence stands: a set of configurations, and how tokens move it.
 *
 * Stacks are lists in one array of frames that share their tails; a frame is
 * never changed.  The configurations after each of the last tokens are kept, so
 * that taking a token back is a step in a ring.  Frames that no kept
 * configuration can reach are squeezed out when the array is half full. */
#include "core/grammar/matcher.h"

#include <stdlib.h>

#define N_HIST (SEAM_MATCHER_ROLLBACK + 1)

/* ---- Configurations ------------------------------------------------------ */

static uint64_t mix(uint64_t h, uint64_t x)
{
    h = (h ^ x) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

/* A frame on top of `parent`; an equal one of this step is used again. */
static uint32_t frame_push(struct seam_matcher *m, uint32_t since, uint32_t ret,
                           uint32_t count, uint32_t parent)
{
    const struct g_frame *up = &m->frame[parent];
    struct g_frame f = { .ret = ret,
                         .count = count,
                         .parent = parent,
                         .depth = (uint16_t)(up->depth + 1),
                         .hash = mix(mix(up->hash, ret), count) };

    for (uint32_t i = since; i < m->n_frames; i++)
        if (m->frame[i].hash == f.hash)
            return i;
    if (m->n_frames == G_FRAMES) {
        m->overflow = true;
        return parent;
    }
    m->frame[m->n_frames] = f;
    return m->n_frames++;
}

static const struct g_cond always = { .lo = G_ANY_LO, .hi = 0 };

static bool cond_same(struct g_cond a, struct g_cond b)
{
    return a.lo == b.lo && a.hi == b.hi;
}

/* The end of the rule above G_FRAME_BASE was reached. */
static void popped(struct seam_matcher *m, struct g_cond cond)
{
    for (uint32_t i = 0; i < m->n_popped; i++)
        if (cond_same(m->popped[i], cond))
            return;
    if (m->n_popped == G_MAX_POPPED)
        m->overflow = true;
    else
        m->popped[m->n_popped++] = cond;
}

/* Add a configuration to the set that begins at `first`, unless it is there.
 * Equal stacks have equal hashes; should unequal ones ever have, an alternative
 * is lost, which allows less and nothing wrong. */
static void config_add(struct seam_matcher *m, uint32_t first, uint32_t state,
                       uint32_t count, uint32_t frame, struct g_cond cond)
{
    const struct g_state *st = &m->g->a.state[state];
    uint32_t peak;

    /* An end of the rule and nothing else: what follows it in the caller. */
    while (st->flags & G_TAIL) {
        const struct g_frame *f = &m->frame[frame];

        if (frame == G_FRAME_BASE) {
            popped(m, cond);
            return;
        }
        state = frame == G_FRAME_END ? 0 : f->ret;
        count = frame == G_FRAME_END ? 0 : f->count;
        frame = frame == G_FRAME_END ? G_FRAME_END : f->parent;
        st = &m->g->a.state[state];
        if (!state)
            break;
    }
    peak = m->frame[frame].depth + (uint32_t)st->need;
    if (peak > m->peak)
        m->peak = peak;
    if (peak > G_MAX_DEPTH)
        return;
    for (uint32_t i = first; i < m->n_configs; i++)
        if (m->config[i].state == state && m->config[i].count == count &&
            m->frame[m->config[i].frame].hash == m->frame[frame].hash &&
            cond_same(m->config[i].cond, cond))
            return;
    if (m->n_configs == G_CONFIGS || m->n_configs - first == G_MAX_SET) {
        m->overflow = true;
        return;
    }
    m->config[m->n_configs++] = (struct g_config){
        .state = state, .count = count, .frame = frame, .cond = cond
    };
}

/* May an edge, call or end with these flags be used after count rounds?  Narrows
 * *cond where the count is not known. */
static bool open_at(const struct g_auto *a, uint32_t loop, uint8_t flags,
                    uint32_t count, struct g_cond *cond)
{
    if (!(flags & (G_MORE | G_DONE)))
        return true;
    if (count >= G_SYMBOLIC) {
        uint16_t n = (uint16_t)(count - G_SYMBOLIC);

        if ((flags & G_MORE) && cond->hi < n + 1)
            cond->hi = n + 1;
        if ((flags & G_DONE) && cond->lo > n)
            cond->lo = n;
        return true;
    }
    if ((flags & G_MORE) && count >= a->loop[loop - 1].max)
        return false;
    return !(flags & G_DONE) || count >= a->loop[loop - 1].min;
}

static uint32_t count_after(const struct g_auto *a, uint32_t loop, uint32_t to,
                            uint8_t flags, uint32_t count)
{
    uint32_t more = a->state[to].loop == loop ? count : 0;

    /* Loops without a maximum stop counting before they wrap. */
    return more + ((flags & G_INC) && more != G_SYMBOLIC - 1);
}

bool g_pass(const struct seam_grammar *g, const struct g_edge *e,
            struct g_config *c)
{
    uint32_t loop = g->a.state[c->state].loop;

    if (!open_at(&g->a, loop, e->flags, c->count, &c->cond))
        return false;
    c->count = count_after(&g->a, loop, e->to, e->flags, c->count);
    c->state = e->to;
    return true;
}

/* Add what the configurations from `first` on reach by calls and ends. */
static void configs_close(struct seam_matcher *m, uint32_t first,
                          uint32_t since)
{
    const struct g_auto *a = &m->g->a;

    for (uint32_t i = first; i < m->n_configs && !m->overflow; i++) {
        struct g_config c = m->config[i];
        const struct g_state *st = &a->state[c.state];

        struct g_cond cond = c.cond;

        if ((st->flags & G_SIMPLE) || !c.state)
            continue;
        if ((st->flags & G_ACCEPT) ||
            ((st->flags & G_ACCEPT_DONE) &&
             open_at(a, st->loop, G_DONE, c.count, &cond))) {
            if (c.frame == G_FRAME_BASE)
                popped(m, cond);
            else if (c.frame == G_FRAME_END)
                config_add(m, first, 0, 0, G_FRAME_END, cond);
            else
                config_add(m, first, m->frame[c.frame].ret,
                           m->frame[c.frame].count, m->frame[c.frame].parent,
                           cond);
        }
        for (uint32_t k = 0; k < st->n_calls && !m->overflow; k++) {
            const struct g_call *call = &a->call[st->call + k];
            const struct g_state *ret = &a->state[call->ret];
            uint32_t frame = c.frame, count, peak;

            cond = c.cond;
            if (!open_at(a, st->loop, call->flags, c.count, &cond))
                continue;
            if (!(ret->flags & G_TAIL)) {
                /* The way on from the return must fit as well. */
                peak = m->frame[frame].depth + (uint32_t)ret->need;
                if (peak > m->peak)
                    m->peak = peak;
                if (peak > G_MAX_DEPTH)
                    continue;
                peak = m->frame[frame].depth + 1 +
                       (uint32_t)a->state[call->rule].need;
                if (peak > m->peak)
                    m->peak = peak;
                if (peak > G_MAX_DEPTH)
                    continue;
                count =
                    count_after(a, st->loop, call->ret, call->flags, c.count);
                frame = frame_push(m, since, call->ret, count, c.frame);
            }
            config_add(m, first, call->rule, 0, frame, cond);
        }
    }
}

const struct g_edge *g_edge_of(const struct seam_grammar *g,
                               const struct g_state *st, uint8_t byte)
{
    const struct g_edge *e;

    if (!st->n_edges)
        return NULL;
    if (st->dense) {
        uint32_t k = g->dense[st->dense - 1][byte];

        return k ? &g->a.edge[k - 1] : NULL;
    }
    e = g->a.edge + st->edge;
    for (uint32_t k = 0; k < st->n_edges; k++, e++)
        if (byte <= e->hi)
            return byte >= e->lo ? e : NULL;
    return NULL;
}

/* The set config[first, n) after one byte, put behind it.  Returns where it
 * begins: it ends at n_configs. */
uint32_t g_step(struct seam_matcher *m, uint32_t first, uint32_t n,
                uint8_t byte)
{
    const struct seam_grammar *g = m->g;
    uint32_t since = m->n_frames;
    bool simple = true;

    m->n_configs = n;
    m->n_popped = 0;
    for (uint32_t i = first; i < n; i++) {
        struct g_config c = m->config[i];
        const struct g_state *st = &g->a.state[c.state];
        const struct g_edge *e = g_edge_of(g, st, byte);

        if (!e || !g_pass(g, e, &c))
            continue;
        simple = simple && (g->a.state[c.state].flags & G_SIMPLE);
        config_add(m, n, c.state, c.count, c.frame, c.cond);
    }
    if (!simple)
        configs_close(m, n, since);
    return n;
}

/* The same for an added token. */
static void step_added(struct seam_matcher *m, uint32_t n, int32_t id)
{
    const struct g_auto *a = &m->g->a;
    uint32_t since = m->n_frames;

    m->n_configs = n;
    m->n_popped = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct g_config c = m->config[i];
        const struct g_state *st = &a->state[c.state];

        for (uint32_t k = 0; k < st->n_added; k++) {
            const struct g_added *e = &a->added[st->added + k];

            if (e->id == id && open_at(a, st->loop, e->flags, c.count, &c.cond))
                config_add(m, n, e->to,
                           count_after(a, st->loop, e->to, e->flags, c.count),
                           c.frame, c.cond);
        }
    }
    configs_close(m, n, since);
}

bool g_added_open(const struct seam_grammar *g, const struct g_state *st,
                  const struct g_added *e, uint32_t count, struct g_cond *cond)
{
    *cond = always;
    return open_at(&g->a, st->loop, e->flags, count, cond);
}

uint32_t g_return(struct seam_matcher *m, uint32_t first, uint32_t frame)
{
    m->n_configs = first;
    m->n_popped = 0;
    if (frame == G_FRAME_END)
        config_add(m, first, 0, 0, G_FRAME_END, always);
    else
        config_add(m, first, m->frame[frame].ret, m->frame[frame].count,
                   m->frame[frame].parent, always);
    configs_close(m, first, m->n_frames);
    return m->n_configs;
}

/* ---- The sets that are kept ---------------------------------------------- */

static struct g_kept *kept(struct seam_matcher *m, uint64_t back)
{
    return &m->hist[(m->n_accepted - back) % N_HIST];
}

static const struct g_kept *now(const struct seam_matcher *m)
{
    return &m->hist[m->n_accepted % N_HIST];
}

/* Squeeze out frames that none of the kept sets reaches.  A frame's parent is
 * before it, and stays so. */
static void frames_squeeze(struct seam_matcher *m)
{
    uint32_t *to = m->moved, n = G_FRAME_FIRST;
    uint64_t n_kept = m->n_accepted - m->n_oldest;

    memset(to, 0, m->n_frames * sizeof *to);
    for (uint64_t back = 0; back <= n_kept; back++)
        for (uint32_t i = 0; i < kept(m, back)->n; i++)
            to[kept(m, back)->config[i].frame] = 1;
    for (uint32_t i = m->n_frames; i-- > G_FRAME_FIRST;)
        if (to[i])
            to[m->frame[i].parent] = 1;
    for (uint32_t i = 0; i < G_FRAME_FIRST; i++)
        to[i] = i;
    for (uint32_t i = G_FRAME_FIRST; i < m->n_frames; i++) {
        if (!to[i])
            continue;
        m->frame[n] = m->frame[i];
        m->frame[n].parent = to[m->frame[i].parent];
        to[i] = n++;
    }
    m->n_frames = n;
    for (uint64_t back = 0; back <= n_kept; back++)
        for (uint32_t i = 0; i < kept(m, back)->n; i++)
            kept(m, back)->config[i].frame = to[kept(m, back)->config[i].frame];
}

int g_overflowed(struct seam_error *err)
{
    return seam_fail(err, SEAM_EDATA,
                     "grammar: too many ways to read the output (more than %d "
                     "at once, or stacks of more than %d frames together)",
                     G_MAX_SET, G_FRAMES);
}

/* Put the set config[first, n_configs) behind the last kept one. */
static int keep(struct seam_matcher *m, uint32_t first, struct seam_error *err)
{
    struct g_kept k = { .ended = false };

    for (uint32_t i = first; i < m->n_configs; i++) {
        const struct g_state *st = &m->g->a.state[m->config[i].state];

        if (m->config[i].state && !st->n_edges && !st->n_added)
            continue;
        if (k.n == G_MAX_KEPT)
            return g_overflowed(err);
        k.config[k.n++] = m->config[i];
    }
    m->n_accepted++;
    if (m->n_accepted > m->n_oldest + SEAM_MATCHER_ROLLBACK)
        m->n_oldest = m->n_accepted - SEAM_MATCHER_ROLLBACK;
    *kept(m, 0) = k;
    return 0;
}

static void begin(struct seam_matcher *m)
{
    uint32_t first = 0;

    m->n_accepted = 0;
    m->n_oldest = 1;
    m->n_frames = G_FRAME_FIRST;
    m->frame[G_FRAME_END] = (struct g_frame){ .hash = 1 };
    m->frame[G_FRAME_BASE] = (struct g_frame){ .hash = 2 };
    m->n_configs = 0;
    m->overflow = false;
    m->n_popped = 0;
    m->peak = 0;
    config_add(m, first, m->g->start, 0, G_FRAME_END, always);
    configs_close(m, first, m->n_frames);
}

/* What one mask needs beside the matcher itself. */
static bool room(struct seam_matcher *m, const struct seam_grammar *g)
{
    m->scratch = malloc(2 * (size_t)g->v->n_words * sizeof *m->scratch);
    m->cap_when = g->a.n_loops ? g->v->trie.n_ids + g->v->trie.n_ids / 4 : 0;
    m->when = malloc(((size_t)m->cap_when + 1) * sizeof *m->when);
    return m->scratch && m->when;
}

int seam_matcher_new(struct seam_matcher **out, struct seam_grammar *g,
                     struct seam_error *err)
{
    struct seam_matcher *m = calloc(1, sizeof *m);
    int rc = 0;

    if (!m || !room(m, g)) {
        rc = seam_fail(err, SEAM_ENOMEM, "grammar: out of memory");
        goto out;
    }
    m->g = seam_grammar_ref(g);
    /* Have the pages now rather than while a step waits for the first mask;
     * what is in these is never read before it is written. */
    memset(m->frame, 0xff, sizeof m->frame);
    memset(m->config, 0xff, sizeof m->config);
    memset(m->pop, 0xff, sizeof m->pop);
    begin(m);
    if (m->overflow)
        rc = g_overflowed(err);
    else
        rc = keep(m, 0, err);
out:
    if (rc)
        seam_matcher_free(m);
    else
        *out = m;
    return rc;
}

void seam_matcher_free(struct seam_matcher *m)
{
    if (!m)
        return;
    seam_grammar_unref(m->g);
    free(m->scratch);
    free(m->when);
    free(m);
}

int seam_matcher_clone(struct seam_matcher **out, const struct seam_matcher *m,
                       struct seam_error *err)
{
    struct seam_matcher *copy = malloc(sizeof *copy);

    if (copy)
        *copy = *m;
    if (!copy || !room(copy, m->g)) {
        if (copy) {
            free(copy->scratch);
            free(copy->when);
        }
        free(copy);
        return seam_fail(err, SEAM_ENOMEM, "grammar: out of memory");
    }
    seam_grammar_ref(copy->g);
    *out = copy;
    return 0;
}

void seam_matcher_reset(struct seam_matcher *m)
{
    /* Went well when the matcher was made, so it does now. */
    begin(m);
    keep(m, 0, NULL);
}

uint32_t seam_matcher_words(const struct seam_matcher *m)
{
    return m->g->v->n_words;
}

/* ---- Tokens -------------------------------------------------------------- */

bool seam_matcher_can_end(const struct seam_matcher *m)
{
    const struct g_kept *k = now(m);

    for (uint32_t i = 0; !k->ended && i < k->n; i++)
        if (!k->config[i].state)
            return true;
    return false;
}

bool seam_matcher_ended(const struct seam_matcher *m)
{
    return now(m)->ended;
}

/* The kept set, at the beginning of the room for configurations. */
uint32_t g_load(struct seam_matcher *m)
{
    const struct g_kept *k = now(m);

    if (m->n_frames > G_FRAMES / 2)
        frames_squeeze(m);
    memcpy(m->config, k->config, k->n * sizeof *k->config);
    m->n_configs = k->n;
    m->overflow = false;
    m->peak = 0;
    return k->n;
}

int seam_matcher_accept(struct seam_matcher *m, int32_t id,
                        struct seam_error *err)
{
    const struct seam_vocab *v = m->g->v;
    uint32_t first = 0, n, before;
    struct seam_str s;
    int rc;

    if (id < 0 || (uint32_t)id >= v->n_rows || now(m)->ended)
        return 0;
    if (v->kind[id] == G_TOKEN_NONE)
        return 0;
    if (v->kind[id] == G_TOKEN_STOP) {
        if (!seam_matcher_can_end(m))
            return 0;
        m->n_configs = 0;
        rc = keep(m, 0, err);
        kept(m, 0)->ended = true;
        return rc ? rc : 1;
    }
    n = g_load(m);
    before = m->n_frames;
    if (v->kind[id] == G_TOKEN_ADDED) {
        step_added(m, n, id);
        first = n;
    } else {
        seam_tokenizer_bytes(v->t, id, &s);
        for (size_t i = 0; i < s.n && first < n && !m->overflow; i++) {
            /* Sets alternate between the two ends of the room. */
            if (first) {
                memmove(m->config, m->config + first,
                        (n - first) * sizeof *m->config);
                n -= first;
            }
            first = g_step(m, 0, n, (uint8_t)s.p[i]);
            n = m->n_configs;
        }
    }
    if (m->overflow)
        rc = g_overflowed(err);
    else if (first == m->n_configs)
        rc = 0;
    else
        rc = keep(m, first, err) ? SEAM_EDATA : 1;
    if (rc <= 0)
        m->n_frames = before;
    return rc;
}

int seam_matcher_rollback(struct seam_matcher *m, uint32_t n)
{
    if (n > SEAM_MATCHER_ROLLBACK || n > m->n_accepted - m->n_oldest)
        return SEAM_EINVAL;
    m->n_accepted -= n;
    return 0;
}

int seam_matcher_masks(struct seam_matcher *m, const int32_t *draft, uint32_t n,
                       uint32_t *rows, struct seam_error *err)
{
    uint32_t n_words = m->g->v->n_words, done = 0;
    int rc;

    if (n > SEAM_MATCHER_ROLLBACK)
        return seam_fail(err, SEAM_EINVAL,
                         "grammar: %u drafts, expected at most %d", n,
                         SEAM_MATCHER_ROLLBACK);
    for (;;) {
        rc = seam_matcher_mask(m, rows + (size_t)done * n_words, err);
        if (rc || done == n)
            break;
        rc = seam_matcher_accept(m, draft[done], err);
        if (rc <= 0)
            break;
        done++;
        if (seam_matcher_ended(m)) {
            seam_matcher_rollback(m, done);
            return (int)done;
        }
    }
    seam_matcher_rollback(m, done);
    return rc < 0 ? rc : (int)done + 1;
}
