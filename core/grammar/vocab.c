/* The tokens as tries: one over all text tokens, one without the plain ones. */
#include "core/grammar/impl.h"

#include <stdlib.h>

#include "core/base/num.h"
#include "core/base/utf8.h"

/* For masks of rules that all grammars share. */
#define SHARED_BYTES ((uint64_t)16 << 20)

static void trie_release(struct g_trie *t)
{
    free(t->node);
    free(t->ids);
}

void seam_vocab_free(struct seam_vocab *v)
{
    if (!v)
        return;
    trie_release(&v->even);
    trie_release(&v->rest);
    free(v->kind);
    free(v->stop);
    free(v->plain);
    free(v->more);
    g_cache_release(v->shared);
    free(v->shared);
    free(v);
}

uint32_t seam_vocab_words(const struct seam_vocab *v)
{
    return v->n_words;
}

static struct seam_str text_of(const struct seam_vocab *v, int32_t id)
{
    struct seam_str s = { 0 };

    seam_tokenizer_bytes(v->t, id, &s);
    return s;
}

static int bytes_order(const void *a, const void *b, void *ctx)
{
    const int32_t *x = a, *y = b;
    struct seam_str s = text_of(ctx, *x), t = text_of(ctx, *y);
    int c = memcmp(s.p, t.p, s.n < t.n ? s.n : t.n);

    if (c)
        return c;
    if (s.n != t.n)
        return s.n < t.n ? -1 : 1;
    return *x < *y ? -1 : 1;
}

static size_t common(struct seam_str a, struct seam_str b)
{
    size_t n = a.n < b.n ? a.n : b.n, i = 0;

    while (i < n && a.p[i] == b.p[i])
        i++;
    return i;
}

/* A trie of t->ids[n_ids], which are sorted by their bytes. */
static int trie_build(struct seam_vocab *v, struct g_trie *t)
{
    struct seam_str prev = { 0 };
    uint64_t n_nodes = 1;
    uint32_t *path = calloc((size_t)v->max_len + 1, sizeof *path);
    size_t depth = 0;
    int rc = SEAM_ENOMEM;

    for (uint32_t i = 0; i < t->n_ids; i++) {
        struct seam_str s = text_of(v, t->ids[i]);

        n_nodes += s.n - common(prev, s);
        prev = s;
    }
    if (!path || n_nodes >= UINT32_MAX)
        goto out;
    t->node = calloc(n_nodes, sizeof *t->node);
    if (!t->node)
        goto out;
    t->n = 1;
    prev = (struct seam_str){ 0 };
    for (uint32_t i = 0; i < t->n_ids; i++) {
        struct seam_str s = text_of(v, t->ids[i]);
        size_t keep = common(prev, s);

        for (; depth > keep; depth--)
            t->node[path[depth]].end = t->n;
        for (; depth < s.n; t->n++) {
            t->node[t->n].byte = (unsigned char)s.p[depth];
            t->node[t->n].tok_before = i;
            path[++depth] = t->n;
        }
        /* Nothing stands for no bytes, so the root has no token. */
        t->node[path[depth]].n_tok++;
        prev = s;
    }
    for (;; depth--) {
        t->node[path[depth]].end = t->n;
        if (!depth)
            break;
    }
    rc = 0;
out:
    free(path);
    return rc;
}

/* The characters of a plain token, or 0. */
static uint32_t plain_chars(struct seam_str s)
{
    uint32_t n_chars = 0;

    for (size_t i = 0, len; i < s.n; i += len, n_chars++) {
        uint32_t cp;

        if (seam_utf8_next(s.p + i, s.n - i, &cp, &len) != SEAM_UTF8_OK)
            return 0;
        if (cp < 0x80 && !g_is_plain_ascii(cp))
            return 0;
    }
    return n_chars;
}

static int more_order(const void *a, const void *b)
{
    const struct g_plain *x = a, *y = b;

    if (x->n_chars != y->n_chars)
        return x->n_chars < y->n_chars ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Part ids[n], which are sorted, into plain tokens and others. */
static int vocab_part(struct seam_vocab *v, const int32_t *ids, uint32_t n)
{
    uint32_t n_words = v->n_words;

    v->plain = calloc((size_t)(G_PLAIN_MAX + 2) * n_words, sizeof *v->plain);
    v->more = calloc((size_t)n + 1, sizeof *v->more);
    v->even.ids = calloc((size_t)n + 1, sizeof *v->even.ids);
    v->rest.ids = calloc((size_t)n + 1, sizeof *v->rest.ids);
    if (!v->plain || !v->more || !v->even.ids || !v->rest.ids)
        return SEAM_ENOMEM;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t n_chars = plain_chars(text_of(v, ids[i]));
        uint32_t bit = 1u << (ids[i] & 31), word = (uint32_t)ids[i] / 32;

        if (!n_chars) {
            v->rest.ids[v->rest.n_ids++] = ids[i];
            continue;
        }
        v->even.ids[v->even.n_ids++] = ids[i];
        for (uint32_t k = n_chars; k <= G_PLAIN_MAX; k++)
            v->plain[k * n_words + word] |= bit;
        v->plain[(G_PLAIN_MAX + 1) * n_words + word] |= bit;
        if (n_chars > G_PLAIN_MAX)
            v->more[v->n_more++] = (struct g_plain){ ids[i], n_chars };
    }
    qsort(v->more, v->n_more, sizeof *v->more, more_order);
    return 0;
}

static int vocab_stops(struct seam_vocab *v, const int32_t *stop, uint32_t n,
                       struct seam_error *err)
{
    v->stop = calloc((size_t)n + 1, sizeof *v->stop);
    if (!v->stop)
        return seam_fail(err, SEAM_ENOMEM, "grammar: out of memory");
    for (uint32_t i = 0; i < n; i++) {
        if (stop[i] < 0 || (uint32_t)stop[i] >= v->n_rows)
            return seam_fail(err, SEAM_EINVAL,
                             "grammar: stop token %d, expected 0 to %u",
                             stop[i], v->n_rows - 1);
        v->kind[stop[i]] = G_TOKEN_STOP;
        v->stop[i] = stop[i];
    }
    v->n_stop = n;
    return 0;
}

/* Sort tokens into kinds; those of text into ids. */
static uint32_t vocab_kinds(struct seam_vocab *v, int32_t *ids, uint32_t n_ids)
{
    bool single[256] = { false };
    uint32_t n = 0, n_single = 0;

    for (uint32_t i = 0; i < n_ids; i++) {
        int32_t id = (int32_t)i;
        struct seam_str s;

        if (v->kind[id] || !seam_tokenizer_bytes(v->t, id, &s))
            continue;
        if (seam_tokenizer_flags(v->t, id) & SEAM_TOKEN_ADDED) {
            v->kind[id] = G_TOKEN_ADDED;
            continue;
        }
        /* Longer ones stay without a kind and are never allowed. */
        if (s.n > G_MAX_TOKEN)
            continue;
        v->kind[id] = G_TOKEN_TEXT;
        ids[n++] = id;
        if (s.n > v->max_len)
            v->max_len = (uint32_t)s.n;
        if (s.n == 1 && !single[(unsigned char)s.p[0]]) {
            single[(unsigned char)s.p[0]] = true;
            n_single++;
        }
    }
    v->n_single = n_single;
    return n;
}

int seam_vocab_new(struct seam_vocab **out, const struct seam_tokenizer *t,
                   uint32_t n_rows, const int32_t *stop, uint32_t n_stop,
                   struct seam_error *err)
{
    uint32_t n_ids = seam_tokenizer_size(t), n;
    struct seam_vocab *v = NULL;
    int32_t *ids = NULL;
    int rc = 0;

    if (!n_rows || n_rows > INT32_MAX || n_ids > n_rows)
        return seam_fail(err, SEAM_EINVAL,
                         "grammar: %u tokens for logits of width %u", n_ids,
                         n_rows);
    v = calloc(1, sizeof *v);
    if (v) {
        v->t = t;
        v->n_rows = n_rows;
        v->n_words = n_rows / 32 + (n_rows % 32 ? 1 : 0);
        v->kind = calloc(n_rows, 1);
        v->shared = calloc(1, sizeof *v->shared);
        ids = calloc((size_t)n_ids + 1, sizeof *ids);
    }
    if (!v || !v->kind || !v->shared || !ids) {
        rc = seam_fail(err, SEAM_ENOMEM, "grammar: out of memory");
        goto out;
    }
    rc = vocab_stops(v, stop, n_stop, err);
    if (rc)
        goto out;
    n = vocab_kinds(v, ids, n_ids);
    /* With them every grammar can go on wherever it stands. */
    if (v->n_single != 256) {
        rc = seam_fail(err, SEAM_EINVAL,
                       "grammar: %u single bytes are tokens, expected 256",
                       v->n_single);
        goto out;
    }
    qsort_r(ids, n, sizeof *ids, bytes_order, v);
    rc = vocab_part(v, ids, n);
    if (!rc)
        rc = trie_build(v, &v->even);
    if (!rc)
        rc = trie_build(v, &v->rest);
    if (!rc)
        rc = g_cache_init(v->shared, SHARED_BYTES);
    if (rc)
        rc = seam_fail(err, rc, "grammar: out of memory");
out:
    free(ids);
    if (rc)
        seam_vocab_free(v);
    else
        *out = v;
    return rc;
}
