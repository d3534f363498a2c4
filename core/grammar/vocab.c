/* The tokens: a trie of their bytes, and sets of them by the characters they are
 * made of. */
#include "core/grammar/impl.h"

#include <stdlib.h>

#include "core/base/num.h"
#include "core/base/utf8.h"

/* For masks of rules that all grammars share. */
#define SHARED_BYTES ((uint64_t)16 << 20)
#define SHARED_KEYS  4096

static void trie_release(struct g_trie *t)
{
    free(t->node);
    free(t->ids);
}

void seam_vocab_free(struct seam_vocab *v)
{
    if (!v)
        return;
    trie_release(&v->trie);
    free(v->kind);
    free(v->stop);
    free(v->has);
    free(v->whole);
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

/* Note in path[0, s.n], the nodes of a token, what it is made of.  Returns its
 * characters, or 0 when they are not all whole. */
static uint32_t classify(struct g_trie *t, const uint32_t *path,
                         struct seam_str s, uint64_t *classes)
{
    /* Of the character that begins at a place; G_N_CLASSES: none does. */
    uint8_t at[G_MAX_TOKEN + 1];
    uint64_t below = 0;
    uint32_t n_chars = 0;

    *classes = 0;
    memset(at, G_N_CLASSES, s.n + 1);
    for (size_t i = 0, len; i < s.n; i += len, n_chars++) {
        uint32_t cp;

        if (seam_utf8_next(s.p + i, s.n - i, &cp, &len) == SEAM_UTF8_OK) {
            at[i] = (uint8_t)g_class_of(cp);
            *classes |= 1ull << at[i];
            continue;
        }
        at[i] = G_CLASS_BROKEN;
        *classes |= 1ull << G_CLASS_BROKEN;
        n_chars = 0;
        break;
    }
    if (n_chars)
        at[s.n] = G_CLASS_BROKEN; /* the end, which nothing follows */
    for (size_t i = s.n + 1; i--;) {
        struct g_node *node = &t->node[path[i]];

        node->tokens |= *classes;
        if (n_chars > node->n_chars)
            node->n_chars = n_chars < 255 ? (uint8_t)n_chars : 255;
        if (at[i] < G_N_CLASSES && (i < s.n || !n_chars))
            below |= 1ull << at[i];
        node->below |= at[i] < G_N_CLASSES ? below : UINT64_MAX;
    }
    return n_chars;
}

static int more_order(const void *a, const void *b)
{
    const struct g_long *x = a, *y = b;

    if (x->n_chars != y->n_chars)
        return x->n_chars < y->n_chars ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Into the sets by length and by class. */
static void vocab_sort(struct seam_vocab *v, int32_t id, uint32_t n_chars,
                       uint64_t classes)
{
    uint32_t bit = 1u << (id & 31), word = (uint32_t)id / 32;

    for (; classes; classes &= classes - 1)
        v->has[(size_t)__builtin_ctzll(classes) * v->n_words + word] |= bit;
    if (!n_chars)
        return;
    for (size_t k = n_chars; k <= G_SHORT_MAX; k++)
        v->whole[k * v->n_words + word] |= bit;
    v->whole[(size_t)(G_SHORT_MAX + 1) * v->n_words + word] |= bit;
    if (n_chars > G_SHORT_MAX)
        v->more[v->n_more++] = (struct g_long){ id, n_chars };
}

/* The trie and the sets of trie.ids, which are sorted by their bytes. */
static int vocab_build(struct seam_vocab *v)
{
    struct g_trie *t = &v->trie;
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
    if (n_nodes < UINT32_MAX)
        t->node = calloc(n_nodes, sizeof *t->node);
    v->whole = calloc((size_t)(G_SHORT_MAX + 2) * v->n_words, sizeof *v->whole);
    v->has = calloc((size_t)G_N_CLASSES * v->n_words, sizeof *v->has);
    v->more = calloc((size_t)t->n_ids + 1, sizeof *v->more);
    if (!path || !t->node || !v->whole || !v->has || !v->more)
        goto out;
    t->n = 1;
    prev = (struct seam_str){ 0 };
    for (uint32_t i = 0; i < t->n_ids; i++) {
        struct seam_str s = text_of(v, t->ids[i]);
        size_t keep = common(prev, s);
        uint64_t classes;
        uint32_t n_chars;

        for (; depth > keep; depth--)
            t->node[path[depth]].end = t->n;
        for (; depth < s.n; t->n++) {
            if (!depth)
                v->root[(unsigned char)s.p[0]] = t->n;
            t->node[t->n].byte = (unsigned char)s.p[depth];
            t->node[t->n].tok_before = i;
            path[++depth] = t->n;
        }
        /* Nothing stands for no bytes, so the root has no token. */
        t->node[path[depth]].n_tok++;
        n_chars = classify(t, path, s, &classes);
        vocab_sort(v, t->ids[i], n_chars, classes);
        prev = s;
    }
    for (;; depth--) {
        t->node[path[depth]].end = t->n;
        if (!depth)
            break;
    }
    qsort(v->more, v->n_more, sizeof *v->more, more_order);
    rc = 0;
out:
    free(path);
    return rc;
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
    v->trie.ids = ids;
    v->trie.n_ids = n;
    ids = NULL;
    rc = vocab_build(v);
    if (!rc)
        rc = g_cache_init(v->shared, SHARED_BYTES, SHARED_KEYS);
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
