#include "core/grammar/compiled.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/buf.h"

/* Each reserves memory for its masks, used or not. */
#define MAX_GRAMMARS 512

/* What a grammar is made from. */
struct source {
    enum { FROM_SCHEMA = 0, FROM_OBJECT, FROM_TEXT } kind;
    const json_t *schema;
    const char *text;
    size_t n;
    const char *where;
    const struct seam_grammar_import *imports;
    size_t n_imports;
    uint32_t flags;
};

struct entry {
    struct entry *next;
    uint64_t hash;
    char *key; /* [n_key] */
    size_t n_key;
    struct seam_grammar *grammar; /* NULL: being compiled */
    uint64_t used;                /* when it was asked for last */
};

struct seam_compiled {
    const struct seam_vocab *v;
    uint64_t max_bytes;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t done;  /* one is compiled, or was refused */
    struct entry *first;
    uint64_t clock;
    struct seam_compiled_stats stats;
};

static int no_memory(struct seam_error *err)
{
    return seam_fail(err, SEAM_ENOMEM, "grammar: out of memory");
}

int seam_compiled_new(struct seam_compiled **out, const struct seam_vocab *v,
                      uint64_t max_bytes, struct seam_error *err)
{
    struct seam_compiled *c = calloc(1, sizeof *c);

    if (!c)
        return no_memory(err);
    c->v = v;
    c->max_bytes = max_bytes;
    if (pthread_mutex_init(&c->lock, NULL)) {
        free(c);
        return no_memory(err);
    }
    if (pthread_cond_init(&c->done, NULL)) {
        pthread_mutex_destroy(&c->lock);
        free(c);
        return no_memory(err);
    }
    *out = c;
    return 0;
}

static void entry_free(struct entry *e)
{
    seam_grammar_unref(e->grammar);
    free(e->key);
    free(e);
}

void seam_compiled_free(struct seam_compiled *c)
{
    if (!c)
        return;
    while (c->first) {
        struct entry *e = c->first;

        c->first = e->next;
        entry_free(e);
    }
    pthread_cond_destroy(&c->done);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

/* ---- Keys ---------------------------------------------------------------- */

/* Each part with its length before it, so that no two keys run together. */
static void key_part(struct seam_buf *key, const void *p, uint64_t n)
{
    seam_buf_add(key, (const char *)&n, sizeof n);
    seam_buf_add(key, p, n);
}

static void key_json(struct seam_buf *key, const json_t *v)
{
    char *text = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY);

    if (text)
        key_part(key, text, strlen(text));
    else
        key->failed = true;
    free(text);
}

static void key_make(struct seam_buf *key, const struct source *s)
{
    uint32_t head[2] = { s->kind, s->flags };

    key_part(key, head, sizeof head);
    if (s->kind == FROM_SCHEMA)
        key_json(key, s->schema);
    if (s->kind != FROM_TEXT)
        return;
    key_part(key, s->text, s->n);
    for (size_t i = 0; i < s->n_imports; i++) {
        key_part(key, s->imports[i].name, strlen(s->imports[i].name));
        key_part(key, s->imports[i].spaced ? "s" : "", s->imports[i].spaced);
        key_json(key, s->imports[i].schema);
    }
}

static uint64_t key_hash(const struct seam_buf *key)
{
    uint64_t h = 0xcbf29ce484222325u;

    for (size_t i = 0; i < key->n; i++)
        h = (h ^ (unsigned char)key->p[i]) * 0x100000001b3u;
    return h;
}

/* ---- Entries (under the lock) -------------------------------------------- */

static struct entry **find(struct seam_compiled *c, const struct seam_buf *key,
                           uint64_t hash)
{
    struct entry **p = &c->first;

    while (*p && ((*p)->hash != hash || (*p)->n_key != key->n ||
                  memcmp((*p)->key, key->p, key->n)))
        p = &(*p)->next;
    return p;
}

static uint64_t bytes_of(const struct entry *e)
{
    struct seam_grammar_stats stats;

    seam_grammar_stats(e->grammar, &stats);
    return stats.bytes + stats.cache_used + e->n_key + sizeof *e;
}

/* Masks are added while grammars are in use: the sum is made anew. */
static void evict(struct seam_compiled *c)
{
    for (;;) {
        struct entry **oldest = NULL, *e;

        c->stats.bytes = 0;
        c->stats.n_grammars = 0;
        for (struct entry **p = &c->first; *p; p = &(*p)->next) {
            if (!(*p)->grammar)
                continue;
            c->stats.bytes += bytes_of(*p);
            c->stats.n_grammars++;
            if (!oldest || (*p)->used < (*oldest)->used)
                oldest = p;
        }
        if (!oldest || (c->stats.bytes <= c->max_bytes &&
                        c->stats.n_grammars <= MAX_GRAMMARS))
            return;
        e = *oldest;
        *oldest = e->next;
        entry_free(e);
        c->stats.evictions++;
    }
}

/* ---- Asking -------------------------------------------------------------- */

static int compile(const struct seam_compiled *c, const struct source *s,
                   struct seam_grammar **g, struct seam_error *err)
{
    struct seam_grammar_opts opts = { .flags = s->flags };
    int rc;

    if (s->kind == FROM_SCHEMA)
        rc = seam_grammar_schema(g, c->v, s->schema, s->where, &opts, err);
    else if (s->kind == FROM_OBJECT)
        rc = seam_grammar_object(g, c->v, &opts, err);
    else
        rc = seam_grammar_text(g, c->v, s->text, s->n, s->where, s->imports,
                               s->n_imports, &opts, err);
    if (rc)
        return rc;
    rc = seam_grammar_warm(*g, SEAM_COMPILED_NODES, err);
    if (rc) {
        seam_grammar_unref(*g);
        *g = NULL;
    }
    return rc;
}

/* Take the place of a key that is being compiled, or NULL when there is no
 * memory for it. */
static struct entry *entry_new(struct seam_compiled *c, struct seam_buf *key,
                               uint64_t hash)
{
    struct entry *e = calloc(1, sizeof *e);

    if (!e)
        return NULL;
    e->hash = hash;
    e->key = key->p;
    e->n_key = key->n;
    *key = (struct seam_buf){ 0 };
    e->next = c->first;
    c->first = e;
    return e;
}

static int ask(struct seam_compiled *c, const struct source *s,
               struct seam_grammar **g, struct seam_error *err)
{
    struct seam_buf key = { 0 };
    struct entry **p, *e = NULL;
    uint64_t hash;
    int rc = 0;

    *g = NULL;
    key_make(&key, s);
    if (key.failed) {
        seam_buf_release(&key);
        return no_memory(err);
    }
    hash = key_hash(&key);
    pthread_mutex_lock(&c->lock);
    for (;;) {
        p = find(c, &key, hash);
        if (!*p || (*p)->grammar)
            break;
        pthread_cond_wait(&c->done, &c->lock);
    }
    if (*p) {
        (*p)->used = ++c->clock;
        *g = seam_grammar_ref((*p)->grammar);
        c->stats.hits++;
    } else {
        c->stats.misses++;
        if (key.n <= c->max_bytes / 2)
            e = entry_new(c, &key, hash);
    }
    pthread_mutex_unlock(&c->lock);
    seam_buf_release(&key);
    if (*g)
        return 0;
    rc = compile(c, s, g, err);
    if (!e)
        return rc;
    pthread_mutex_lock(&c->lock);
    if (rc) {
        for (p = &c->first; *p != e; p = &(*p)->next)
            ;
        *p = e->next;
        entry_free(e);
    } else {
        e->grammar = seam_grammar_ref(*g);
        e->used = ++c->clock;
        evict(c);
    }
    pthread_cond_broadcast(&c->done);
    pthread_mutex_unlock(&c->lock);
    return rc;
}

int seam_compiled_schema(struct seam_compiled *c, struct seam_grammar **g,
                         const json_t *schema, const char *where,
                         uint32_t flags, struct seam_error *err)
{
    struct source s = {
        .kind = FROM_SCHEMA, .schema = schema, .where = where, .flags = flags
    };

    return ask(c, &s, g, err);
}

int seam_compiled_object(struct seam_compiled *c, struct seam_grammar **g,
                         uint32_t flags, struct seam_error *err)
{
    struct source s = { .kind = FROM_OBJECT, .flags = flags };

    return ask(c, &s, g, err);
}

int seam_compiled_text(struct seam_compiled *c, struct seam_grammar **g,
                       const char *text, size_t n, const char *where,
                       const struct seam_grammar_import *imports,
                       size_t n_imports, uint32_t flags, struct seam_error *err)
{
    struct source s = { .kind = FROM_TEXT,
                        .text = text,
                        .n = n,
                        .where = where,
                        .imports = imports,
                        .n_imports = n_imports,
                        .flags = flags };

    return ask(c, &s, g, err);
}

void seam_compiled_stats(struct seam_compiled *c,
                         struct seam_compiled_stats *out)
{
    pthread_mutex_lock(&c->lock);
    evict(c);
    *out = c->stats;
    pthread_mutex_unlock(&c->lock);
}
