/* Encoding: text is cut at added tokens (when asked to), the rest by the
 * pre-tokeniser, and each part is merged on its own. */
#include "core/tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/utf8.h"
#include "core/tokenizer/impl.h"

/* Positions are 32-bit in the merge loop. */
#define MAX_TEXT ((size_t)1 << 30)
/* Bytes of a word that is merged while no other of such a length is. */
#define LONG_WORD ((size_t)64 << 10)

/* ---- Ids ----------------------------------------------------------------- */

void seam_ids_release(struct seam_ids *ids)
{
    free(ids->v);
    *ids = (struct seam_ids){ 0 };
}

int seam_ids_add(struct seam_ids *ids, int32_t id)
{
    if (ids->n == ids->cap) {
        size_t cap = ids->cap ? 2 * ids->cap : 64;
        int32_t *v;

        if (cap > SIZE_MAX / sizeof *v)
            return SEAM_ENOMEM;
        v = realloc(ids->v, cap * sizeof *v);
        if (!v)
            return SEAM_ENOMEM;
        ids->v = v;
        ids->cap = cap;
    }
    ids->v[ids->n++] = id;
    return 0;
}

/* ---- Questions about tokens ---------------------------------------------- */

uint32_t seam_tokenizer_size(const struct seam_tokenizer *t)
{
    return t->bpe.n_ids;
}

int32_t seam_tokenizer_id(const struct seam_tokenizer *t, const char *piece,
                          size_t n)
{
    uint32_t lo = 0, hi = t->n_named;
    char small[256], *bytes = small;
    int32_t id = SEAM_ENOENT;
    size_t len;

    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        const struct seam_piece *s = &t->bpe.piece[t->named[mid]];
        int c = seam_spelling_order(piece, n, t->bpe.arena + s->at, s->len);

        if (!c)
            return (int32_t)t->named[mid];
        if (c < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    if (n > sizeof small)
        bytes = malloc(n);
    len = bytes ? seam_spelling_bytes(piece, n, bytes) : SIZE_MAX;
    if (len != SIZE_MAX && len)
        id = seam_bpe_find(&t->bpe, bytes, len);
    if (bytes != small)
        free(bytes);
    return id;
}

bool seam_tokenizer_bytes(const struct seam_tokenizer *t, int32_t id,
                          struct seam_str *out)
{
    const struct seam_piece *s;

    if (id < 0 || (uint32_t)id >= t->bpe.n_ids)
        return false;
    s = &t->bpe.piece[id];
    if (!s->len)
        return false;
    *out = (struct seam_str){ .p = t->bpe.arena + s->at, .n = s->len };
    return true;
}

uint32_t seam_tokenizer_flags(const struct seam_tokenizer *t, int32_t id)
{
    if (id < 0 || (uint32_t)id >= t->bpe.n_ids)
        return 0;
    return t->bpe.piece[id].flags & (SEAM_TOKEN_ADDED | SEAM_TOKEN_SPECIAL);
}

/* ---- Encoding ------------------------------------------------------------ */

struct encoding {
    const struct seam_tokenizer *t;
    struct seam_ids *out;
    size_t max; /* ids in out */
    struct seam_split_work split;
    struct seam_bpe_work bpe;
    struct seam_error *err;
};

static int encode_too_long(const struct encoding *e)
{
    return seam_fail(e->err, SEAM_ETOOLONG,
                     "tokenizer: the text has more than %zu tokens", e->max);
}

/* Whether n more bytes make more ids than there may be, were all of them the
 * longest there are. */
static bool encode_is_too_long(const struct encoding *e, size_t n)
{
    size_t longest = e->t->bpe.longest;

    for (int pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < e->t->added[pass].n; i++) {
            const struct seam_added *a = &e->t->added[pass].v[i];

            if (a->flags & (SEAM_ADDED_LSTRIP | SEAM_ADDED_RSTRIP))
                return e->out->n > e->max; /* takes any number of bytes */
            if (a->n > longest)
                longest = a->n;
        }
    return e->out->n > e->max || (longest && n / longest > e->max - e->out->n);
}

static int encode_word(struct encoding *e, const char *p, size_t n)
{
    int rc;

    if (n > SEAM_MAX_WORD)
        return seam_fail(e->err, SEAM_ELONGWORD,
                         "tokenizer: a run of %zu bytes without a break, "
                         "expected at most %zu",
                         n, SEAM_MAX_WORD);
    if (n <= LONG_WORD)
        return seam_bpe_encode(&e->t->bpe, &e->bpe, p, n, e->out);
    pthread_mutex_lock(e->t->long_word);
    rc = seam_bpe_encode(&e->t->bpe, &e->bpe, p, n, e->out);
    seam_bpe_work_release(&e->bpe);
    pthread_mutex_unlock(e->t->long_word);
    return rc;
}

static int encode_plain(struct encoding *e, const char *p, size_t n)
{
    struct seam_split_pass pass;
    size_t from, to;
    int rc;

    if (!n)
        return 0;
    if (seam_split_begin(&pass, e->t->split, &e->split, p, n))
        return seam_fail(e->err, SEAM_ENOMEM, "tokenizer: out of memory");
    while ((rc = seam_split_next(&pass, &from, &to, e->err)) > 0) {
        rc = encode_word(e, p + from, to - from);
        if (rc == SEAM_ENOMEM)
            return seam_fail(e->err, rc, "tokenizer: out of memory");
        if (rc)
            return rc;
        if (e->out->n > e->max)
            return encode_too_long(e);
    }
    return rc;
}

/* The longest token of the set that stands at p[0, n), or NULL. */
static const struct seam_added *added_at(const struct seam_added_set *set,
                                         const char *p, size_t n)
{
    uint32_t lo = set->first[(unsigned char)p[0]];
    uint32_t hi = set->first[(unsigned char)p[0] + 1];
    const struct seam_added *best = NULL;

    /* All of v[lo, hi) agree with p on the first d bytes. */
    for (size_t d = 1; lo < hi; d++) {
        uint32_t a, b;
        unsigned char c;

        if (set->v[lo].n == d)
            best = &set->v[lo++];
        if (d == n)
            break;
        c = (unsigned char)p[d];
        for (a = lo, b = hi; a < b;) {
            uint32_t mid = a + (b - a) / 2;

            if ((unsigned char)set->v[mid].p[d] < c)
                a = mid + 1;
            else
                b = mid;
        }
        lo = a;
        for (b = hi; a < b;) {
            uint32_t mid = a + (b - a) / 2;

            if ((unsigned char)set->v[mid].p[d] <= c)
                a = mid + 1;
            else
                b = mid;
        }
        hi = a;
    }
    return best;
}

/* The character that ends at p + at: its length, 0 at the beginning. */
static size_t char_before(const char *p, size_t at, uint32_t *cp)
{
    for (size_t k = 1; k <= 4 && k <= at; k++) {
        size_t len;

        if (((unsigned char)p[at - k] & 0xc0) == 0x80)
            continue;
        if (seam_utf8_next(p + at - k, k, cp, &len) == SEAM_UTF8_OK && len == k)
            return k;
        break;
    }
    return 0;
}

static size_t char_at(const char *p, size_t n, uint32_t *cp)
{
    size_t len;

    if (n && seam_utf8_next(p, n, cp, &len) == SEAM_UTF8_OK)
        return len;
    return 0;
}

/* Unicode White_Space. */
static bool is_space(uint32_t cp)
{
    return (cp >= 0x09 && cp <= 0x0d) || cp == 0x20 || cp == 0x85 ||
           cp == 0xa0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) ||
           cp == 0x2028 || cp == 0x2029 || cp == 0x202f || cp == 0x205f ||
           cp == 0x3000;
}

static bool added_stands_alone(const struct seam_tokenizer *t, const char *p,
                               size_t n, size_t from, size_t to)
{
    size_t before, len;
    uint32_t cp;

    before = char_before(p, from, &cp);
    if (before && seam_split_is_word(t->split, p + from - before, before))
        return false;
    len = char_at(p + to, n - to, &cp);
    return !len || !seam_split_is_word(t->split, p + to, len);
}

/* Cut at the tokens of set[pass], hand what lies between to the next pass. */
static int encode_added(struct encoding *e, uint32_t pass, const char *p,
                        size_t n)
{
    const struct seam_added_set *set = &e->t->added[pass];
    size_t done = 0, i = 0, len;
    uint32_t cp;
    int rc = 0;

    if (pass == 2)
        return encode_plain(e, p, n);
    if (!set->n)
        return encode_added(e, pass + 1, p, n);
    while (!rc && i < n) {
        const struct seam_added *a = added_at(set, p + i, n - i);
        size_t from = i, to;

        if (!a) {
            i++;
            continue;
        }
        i = to = i + a->n;
        if ((a->flags & SEAM_ADDED_WORD) &&
            !added_stands_alone(e->t, p, n, from, to))
            continue;
        if (a->flags & SEAM_ADDED_LSTRIP)
            while (from > done && (len = char_before(p, from, &cp)) &&
                   is_space(cp) && len <= from - done)
                from -= len;
        if (a->flags & SEAM_ADDED_RSTRIP)
            while ((len = char_at(p + to, n - to, &cp)) && is_space(cp))
                to += len;
        rc = encode_added(e, pass + 1, p + done, from - done);
        if (!rc && seam_ids_add(e->out, (int32_t)a->id))
            rc = seam_fail(e->err, SEAM_ENOMEM, "tokenizer: out of memory");
        i = done = to;
    }
    return rc ? rc : encode_added(e, pass + 1, p + done, n - done);
}

int seam_tokenizer_encode(const struct seam_tokenizer *t, const char *p,
                          size_t n, bool added, struct seam_ids *out,
                          struct seam_error *err)
{
    return seam_tokenizer_encode_max(t, p, n, added, SIZE_MAX, out, err);
}

int seam_tokenizer_encode_max(const struct seam_tokenizer *t, const char *p,
                              size_t n, bool added, size_t max,
                              struct seam_ids *out, struct seam_error *err)
{
    struct encoding e = { .t = t, .out = out, .max = max, .err = err };
    size_t before = out->n;
    int rc;

    if (n > MAX_TEXT)
        return seam_fail(err, SEAM_EDATA,
                         "tokenizer: %zu bytes of text, expected at most %zu",
                         n, MAX_TEXT);
    if (encode_is_too_long(&e, n))
        return encode_too_long(&e);
    rc = added ? encode_added(&e, 0, p, n) : encode_plain(&e, p, n);
    if (!rc && out->n > max) /* of added tokens */
        rc = encode_too_long(&e);
    if (rc)
        out->n = before;
    seam_bpe_work_release(&e.bpe);
    seam_split_work_release(&e.split);
    return rc;
}

/* ---- Piecewise ----------------------------------------------------------- */

int seam_encoder_text(struct seam_encoder *e, const char *p, size_t n)
{
    seam_buf_add(&e->run, p, n);
    return e->run.failed ? SEAM_ENOMEM : 0;
}

int seam_encoder_end(struct seam_encoder *e, struct seam_error *err)
{
    int rc;

    if (e->run.failed)
        rc = seam_fail(err, SEAM_ENOMEM, "tokenizer: out of memory");
    else
        rc = seam_tokenizer_encode_max(e->t, e->run.p, e->run.n, false,
                                       e->max ? e->max : SIZE_MAX, e->out, err);
    seam_buf_clear(&e->run);
    return rc;
}

int seam_encoder_special(struct seam_encoder *e, const char *p, size_t n,
                         struct seam_error *err)
{
    int32_t id = seam_tokenizer_id(e->t, p, n);
    int rc;

    if (id < 0 || !(seam_tokenizer_flags(e->t, id) & SEAM_TOKEN_ADDED))
        return seam_fail(err, SEAM_EDATA,
                         "tokenizer: \"%.*s\" is not an added token",
                         (int)(n < 64 ? n : 64), p);
    rc = seam_encoder_end(e, err);
    if (!rc && seam_ids_add(e->out, id))
        rc = seam_fail(err, SEAM_ENOMEM, "tokenizer: out of memory");
    return rc;
}

void seam_encoder_release(struct seam_encoder *e)
{
    seam_buf_release(&e->run);
}
