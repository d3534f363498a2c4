#include "core/engine/prefix.h"

#include <stdlib.h>
#include <string.h>

/* A radix tree node: the run of tokens that leads to it from its parent, and
 * perhaps a snapshot at its end.  A node without a snapshot has two children or
 * more. */
struct node {
    struct node *parent, *child, *sibling;
    int32_t *run; /* [n_run], n_run >= 1 but for the root */
    uint32_t n_run;
    uint32_t depth; /* tokens from the root to the end of run */
    struct seam_snapshot snap;
    bool has_snap;
    double value;               /* GreedyDual-Size priority */
    struct node *older, *newer; /* list of all nodes with a snapshot */
};

/* The tree of a salt. */
struct root {
    struct node node; /* first, so that a node without parent is one */
    struct root *next;
    unsigned char salt[SEAM_SALT_BYTES];
};

struct seam_prefix {
    struct root plain;   /* without a salt */
    struct root *salted; /* each with something in it */
    struct node *oldest, *newest;
    uint64_t bytes, budget, n_snapshots, n_evicted;
    double clock; /* value of the last snapshot evicted */
    void (*unref)(void *ctx, int32_t page);
    void *ctx;
};

struct seam_prefix *seam_prefix_new(uint64_t budget,
                                    void (*unref)(void *ctx, int32_t page),
                                    void *ctx)
{
    struct seam_prefix *p = calloc(1, sizeof *p);

    if (!p)
        return NULL;
    p->budget = budget;
    p->unref = unref;
    p->ctx = ctx;
    return p;
}

static struct node *node_child(const struct node *n, int32_t first)
{
    struct node *c = n->child;

    while (c && c->run[0] != first)
        c = c->sibling;
    return c;
}

static uint32_t run_common(const int32_t *a, uint32_t na, const int32_t *b,
                           uint32_t nb)
{
    uint32_t n = na < nb ? na : nb, i = 0;

    while (i < n && a[i] == b[i])
        i++;
    return i;
}

static struct node *prefix_root(const struct seam_prefix *p,
                                const unsigned char *salt)
{
    struct root *r = p->salted;

    if (!salt)
        return (struct node *)&p->plain.node;
    while (r && memcmp(r->salt, salt, SEAM_SALT_BYTES) != 0)
        r = r->next;
    return r ? &r->node : NULL;
}

/* Walk from the root `at` down tok[0, n) as far as whole runs match. */
static struct node *prefix_walk(struct node *at, const int32_t *tok, uint32_t n)
{
    for (;;) {
        struct node *c = at->depth < n ? node_child(at, tok[at->depth]) : NULL;

        if (!c || c->depth > n ||
            run_common(c->run, c->n_run, tok + at->depth, n - at->depth) <
                c->n_run)
            return at;
        at = c;
    }
}

static void list_remove(struct seam_prefix *p, struct node *n)
{
    *(n->older ? &n->older->newer : &p->oldest) = n->newer;
    *(n->newer ? &n->newer->older : &p->newest) = n->older;
    n->older = n->newer = NULL;
}

static void list_append(struct seam_prefix *p, struct node *n)
{
    n->older = p->newest;
    n->newer = NULL;
    *(p->newest ? &p->newest->newer : &p->oldest) = n;
    p->newest = n;
}

/* Tokens that having this snapshot saves over the next shorter one, for each
 * MiB it takes. */
static double node_worth(const struct node *n)
{
    uint32_t before = 0;

    for (const struct node *a = n->parent; a; a = a->parent)
        if (a->has_snap) {
            before = a->snap.pos;
            break;
        }
    return (double)(n->snap.pos - before) /
           ((double)n->snap.state_bytes / 1048576 + 1);
}

static void node_use(struct seam_prefix *p, struct node *n)
{
    n->value = p->clock + node_worth(n);
    list_remove(p, n);
    list_append(p, n);
}

const struct seam_snapshot *seam_prefix_find(struct seam_prefix *p,
                                             const unsigned char *salt,
                                             const int32_t *tok, uint32_t n)
{
    struct node *at = prefix_root(p, salt);

    if (at)
        at = prefix_walk(at, tok, n);

    while (at && !at->has_snap)
        at = at->parent;
    if (!at)
        return NULL;
    node_use(p, at);
    return &at->snap;
}

bool seam_prefix_has(const struct seam_prefix *p, const unsigned char *salt,
                     const int32_t *tok, uint32_t n)
{
    struct node *at = prefix_root(p, salt);

    if (!at)
        return false;
    at = prefix_walk(at, tok, n);
    return at->depth == n && at->has_snap;
}

/* ---- Dropping ------------------------------------------------------------ */

static void node_unlink(struct node *n)
{
    struct node **c = &n->parent->child;

    while (*c != n)
        c = &(*c)->sibling;
    *c = n->sibling;
}

/* Join a node that holds nothing with its only child. */
static void node_merge(struct node *n)
{
    struct node *c = n->child, **link;
    int32_t *run = malloc((n->n_run + c->n_run) * sizeof *run);

    /* Without memory the tree merely stays less compact. */
    if (!run)
        return;
    memcpy(run, n->run, n->n_run * sizeof *run);
    memcpy(run + n->n_run, c->run, c->n_run * sizeof *run);
    free(c->run);
    c->run = run;
    c->n_run += n->n_run;
    c->parent = n->parent;
    link = &n->parent->child;
    while (*link != n)
        link = &(*link)->sibling;
    c->sibling = n->sibling;
    *link = c;
    free(n->run);
    free(n);
}

static void root_drop(struct seam_prefix *p, struct node *n)
{
    struct root **r = &p->salted, *gone;

    while (&(*r)->node != n)
        r = &(*r)->next;
    gone = *r;
    *r = gone->next;
    free(gone);
}

/* Remove nodes that have lost their purpose, from n upwards. */
static void node_tidy(struct seam_prefix *p, struct node *n)
{
    while (n->parent && !n->has_snap) {
        struct node *parent = n->parent;

        if (n->child && n->child->sibling)
            return;
        if (n->child) {
            node_merge(n);
            return;
        }
        node_unlink(n);
        free(n->run);
        free(n);
        n = parent;
    }
    if (!n->parent && !n->child && n != &p->plain.node)
        root_drop(p, n);
}

static void snapshot_drop(struct seam_prefix *p, const struct seam_snapshot *s)
{
    for (uint32_t i = 0; i < s->n_pages; i++)
        p->unref(p->ctx, s->page[i]);
    free(s->page);
    free(s->state);
}

static void node_drop(struct seam_prefix *p, struct node *n)
{
    list_remove(p, n);
    p->bytes -= n->snap.state_bytes;
    p->n_snapshots--;
    n->has_snap = false;
    snapshot_drop(p, &n->snap);
    node_tidy(p, n);
}

bool seam_prefix_evict(struct seam_prefix *p)
{
    struct node *worst = p->oldest;

    if (!worst)
        return false;
    /* Of equal value the oldest goes, being first in the list. */
    for (struct node *n = worst->newer; n; n = n->newer)
        if (n->value < worst->value)
            worst = n;
    p->clock = worst->value;
    p->n_evicted++;
    node_drop(p, worst);
    return true;
}

void seam_prefix_free(struct seam_prefix *p)
{
    if (!p)
        return;
    while (p->oldest)
        node_drop(p, p->oldest);
    while (p->salted) { /* left behind by an insertion without memory */
        struct root *r = p->salted;

        p->salted = r->next;
        free(r);
    }
    free(p);
}

/* ---- Keeping ------------------------------------------------------------- */

static struct node *node_new(struct node *parent, const int32_t *run,
                             uint32_t n_run)
{
    struct node *n = calloc(1, sizeof *n);

    if (!n)
        return NULL;
    n->run = malloc(n_run * sizeof *run);
    if (!n->run) {
        free(n);
        return NULL;
    }
    memcpy(n->run, run, n_run * sizeof *run);
    n->n_run = n_run;
    n->parent = parent;
    n->depth = parent->depth + n_run;
    n->sibling = parent->child;
    parent->child = n;
    return n;
}

/* Cut the run of n after `keep` tokens; returns the new upper node. */
static struct node *node_split(struct node *n, uint32_t keep)
{
    struct node *parent = n->parent, *upper;

    node_unlink(n);
    upper = node_new(parent, n->run, keep);
    if (!upper) {
        n->sibling = parent->child;
        parent->child = n;
        return NULL;
    }
    n->n_run -= keep;
    memmove(n->run, n->run + keep, n->n_run * sizeof *n->run);
    n->parent = upper;
    n->sibling = NULL;
    upper->child = n;
    return upper;
}

static struct node *root_new(struct seam_prefix *p, const unsigned char *salt)
{
    struct root *r = calloc(1, sizeof *r);

    if (!r)
        return NULL;
    memcpy(r->salt, salt, SEAM_SALT_BYTES);
    r->next = p->salted;
    p->salted = r;
    return &r->node;
}

/* The node at the end of tok[0, n), made if need be. */
static struct node *prefix_node(struct seam_prefix *p,
                                const unsigned char *salt, const int32_t *tok,
                                uint32_t n)
{
    struct node *at = prefix_root(p, salt), *c;
    uint32_t common;

    if (!at && !(at = root_new(p, salt)))
        return NULL;
    at = prefix_walk(at, tok, n);

    if (at->depth == n)
        return at;
    c = node_child(at, tok[at->depth]);
    if (!c)
        return node_new(at, tok + at->depth, n - at->depth);
    common = run_common(c->run, c->n_run, tok + at->depth, n - at->depth);
    at = node_split(c, common);
    if (!at || at->depth == n)
        return at;
    c = node_new(at, tok + at->depth, n - at->depth);
    if (!c)
        node_tidy(p, at);
    return c;
}

bool seam_prefix_insert(struct seam_prefix *p, const unsigned char *salt,
                        const int32_t *tok, const struct seam_snapshot *s)
{
    struct node *n;

    if (!s->pos || s->state_bytes > p->budget ||
        seam_prefix_has(p, salt, tok, s->pos)) {
        snapshot_drop(p, s);
        return false;
    }
    while (p->bytes + s->state_bytes > p->budget)
        seam_prefix_evict(p);
    n = prefix_node(p, salt, tok, s->pos);
    if (!n) {
        snapshot_drop(p, s);
        return false;
    }
    n->snap = *s;
    n->has_snap = true;
    n->value = p->clock + node_worth(n);
    list_append(p, n);
    p->bytes += s->state_bytes;
    p->n_snapshots++;
    return true;
}

void seam_prefix_stats(const struct seam_prefix *p,
                       struct seam_prefix_stats *out)
{
    *out = (struct seam_prefix_stats){
        .bytes = p->bytes,
        .budget = p->budget,
        .n_snapshots = p->n_snapshots,
        .n_evicted = p->n_evicted,
    };
}
