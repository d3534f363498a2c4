#include "core/engine/guard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/engine/memory.h"

/* Keeps the alignment of grants, and room for a misplaced row. */
#define BAND 256

/* No float of this pattern is near a usual value, no index is valid. */
#define PATTERN 0xa5

struct guarded {
    char *base; /* the front band */
    uint64_t bytes;
    uint32_t mem;
    bool trial;
    struct seam_memory_source source;
    char name[120];
};

struct seam_guards {
    pthread_mutex_t lock; /* guards all that follows: grants come and go beside
                             the steps when plugins are swapped */
    struct guarded *v;    /* [n] */
    size_t n, cap;
};

bool seam_guards_wanted(const struct seam_config *c)
{
    const char *s = c->engine.guard_bands;

#ifdef NDEBUG
    return s && !strcmp(s, "yes");
#else
    return !s || strcmp(s, "no") != 0;
#endif
}

struct seam_guards *seam_guards_new(void)
{
    struct seam_guards *g = calloc(1, sizeof *g);

    if (g)
        pthread_mutex_init(&g->lock, NULL);
    return g;
}

void seam_guards_free(struct seam_guards *g)
{
    if (!g)
        return;
    pthread_mutex_destroy(&g->lock);
    free(g->v);
    free(g);
}

/* The band at p, as it should be. */
static int guards_paint(const struct guarded *v, char *p,
                        struct seam_error *err)
{
    const struct seam_memory_source *s = &v->source;

    if (v->mem != SEAM_MEM_DEVICE) {
        memset(p, PATTERN, BAND);
        return 0;
    }
    return s->table->fill(s->self, s->stream, p, PATTERN, BAND, err);
}

static char *guards_back(const struct guarded *v)
{
    return v->base + BAND + v->bytes;
}

int seam_guards_alloc(struct seam_guards *g, const struct seam_memory_source *s,
                      uint32_t mem, uint64_t bytes, void **out,
                      struct seam_error *err)
{
    struct guarded v = {
        .bytes = bytes, .mem = mem, .trial = s->trial, .source = *s
    };
    int rc = s->table->alloc(s->self, mem, bytes + 2 * BAND, 256,
                             (void **)&v.base, err);

    if (rc)
        return rc;
    rc = guards_paint(&v, v.base, err);
    if (!rc)
        rc = guards_paint(&v, guards_back(&v), err);
    pthread_mutex_lock(&g->lock);
    if (!rc && g->n == g->cap) {
        size_t cap = g->cap ? 2 * g->cap : 64;
        struct guarded *more = realloc(g->v, cap * sizeof *more);

        if (more) {
            g->v = more;
            g->cap = cap;
        } else {
            rc = seam_fail(err, SEAM_ENOMEM, "guard bands: out of memory");
        }
    }
    if (!rc) {
        g->v[g->n++] = v;
        *out = v.base + BAND;
    }
    pthread_mutex_unlock(&g->lock);
    if (rc)
        s->table->free(s->self, mem, v.base);
    return rc;
}

/* Under the lock; NULL when p is not guarded. */
static struct guarded *guards_find(struct seam_guards *g, const void *p)
{
    for (size_t i = 0; i < g->n; i++)
        if (g->v[i].base + BAND == p)
            return &g->v[i];
    return NULL;
}

void seam_guards_release(struct seam_guards *g,
                         const struct seam_memory_source *s, uint32_t mem,
                         void *p)
{
    struct guarded *v;
    char *base = p;

    pthread_mutex_lock(&g->lock);
    v = guards_find(g, p);
    if (v) {
        base = v->base;
        *v = g->v[--g->n];
    }
    pthread_mutex_unlock(&g->lock);
    s->table->free(s->self, mem, base);
}

void seam_guards_name(struct seam_guards *g, const void *p, const char *name)
{
    struct guarded *v;

    pthread_mutex_lock(&g->lock);
    v = guards_find(g, p);
    if (v)
        snprintf(v->name, sizeof v->name, "%s", name);
    pthread_mutex_unlock(&g->lock);
}

void seam_guards_name_grant(struct seam_guards *g,
                            const struct seam_instance *i,
                            const struct runtime_grant *grant)
{
    const char *plugin = i->host.name;
    char name[120];

    for (uint32_t p = 0; p < i->needs.n_planes; p++)
        for (uint32_t l = 0; l < grant->n_layers; l++) {
            snprintf(name, sizeof name, "plugin %s, layer %u: plane %.15s",
                     plugin, i->layer[l], i->needs.plane[p].name);
            seam_guards_name(g, grant->plane[p][l], name);
        }
    for (uint32_t l = 0; grant->state && l < grant->n_layers; l++) {
        snprintf(name, sizeof name, "plugin %s, layer %u: its state", plugin,
                 i->layer[l]);
        seam_guards_name(g, grant->state[l], name);
    }
    snprintf(name, sizeof name, "plugin %s: the memory of its own", plugin);
    seam_guards_name(g, grant->grant.keep, name);
    snprintf(name, sizeof name, "plugin %s: its pinned memory", plugin);
    seam_guards_name(g, grant->grant.pinned, name);
}

void seam_guards_accept(struct seam_guards *g, const void *p,
                        const struct seam_memory_source *s)
{
    struct guarded *v;

    pthread_mutex_lock(&g->lock);
    v = guards_find(g, p);
    if (v) {
        v->trial = false;
        v->source = *s;
    }
    pthread_mutex_unlock(&g->lock);
}

void seam_guards_accept_grant(struct seam_guards *g,
                              const struct runtime_grant *grant,
                              const struct seam_memory_source *s)
{
    for (uint32_t p = 0; p < SEAM_MAX_PLANES; p++)
        for (uint32_t l = 0; grant->plane[p] && l < grant->n_layers; l++)
            seam_guards_accept(g, grant->plane[p][l], s);
    for (uint32_t l = 0; grant->state && l < grant->n_layers; l++)
        seam_guards_accept(g, grant->state[l], s);
    seam_guards_accept(g, grant->grant.keep, s);
    seam_guards_accept(g, grant->grant.pinned, s);
}

/* Look at one band; *far is the furthest byte that was hit, as a distance from
 * the grant, 0 when it is whole. */
static int guards_look(const struct guarded *v, char *p, bool front,
                       uint32_t *far, struct seam_error *err)
{
    const struct seam_memory_source *s = &v->source;
    unsigned char copy[BAND];
    int rc = 0;

    *far = 0;
    if (v->mem == SEAM_MEM_DEVICE) {
        rc = s->table->copy(s->self, s->stream, copy, p, BAND, err);
        if (!rc)
            rc = s->table->stream_wait(s->self, s->stream, err);
    } else {
        memcpy(copy, p, BAND);
    }
    for (uint32_t i = 0; i < BAND && !rc; i++) {
        uint32_t at = front ? i : BAND - 1 - i;

        if (copy[at] != PATTERN) {
            *far = BAND - i;
            break;
        }
    }
    return rc;
}

static int guards_check_one(const struct guarded *v, struct seam_error *err)
{
    uint32_t before = 0, behind = 0;
    struct seam_error ignored;
    int rc = guards_look(v, v->base, true, &before, err);

    if (!rc)
        rc = guards_look(v, guards_back(v), false, &behind, err);
    if (rc || (!before && !behind))
        return rc;
    guards_paint(v, v->base, &ignored);
    guards_paint(v, guards_back(v), &ignored);
    return seam_fail(err, SEAM_EDATA,
                     "%s was written past: up to %u bytes %s it (%llu bytes; "
                     "engine.guard_bands)",
                     v->name[0] ? v->name : "memory of a step",
                     behind ? behind : before, behind ? "behind" : "before",
                     (unsigned long long)v->bytes);
}

int seam_guards_check(struct seam_guards *g, bool trial, struct seam_error *err)
{
    struct seam_error one;
    int rc = 0;

    pthread_mutex_lock(&g->lock);
    /* All are looked at, so that none is found again by the next step. */
    for (size_t i = 0; i < g->n; i++)
        if (g->v[i].trial == trial && guards_check_one(&g->v[i], &one) && !rc) {
            *err = one;
            rc = one.code;
        }
    pthread_mutex_unlock(&g->lock);
    return rc;
}
