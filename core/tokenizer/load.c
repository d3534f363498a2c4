/* tokenizer.json to tables.  The file describes a pipeline of which exactly one
 * shape is implemented, so most of this is comparing: whatever would make the
 * reference tokenise otherwise, and every key that is not known, is refused by
 * name. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/base/json.h"
#include "core/base/num.h"
#include "core/base/utf8.h"
#include "core/tokenizer/impl.h"

#define MAX_FILE ((uint64_t)256 << 20) /* GLM-5's has about 20 MB */

struct load {
    struct seam_tokenizer *t;
    const char *name; /* of the file */
    struct seam_error *err;
    json_t *vocab, *merges, *added; /* borrowed from the document */
    char *text;                     /* scratch for the bytes of a piece */
    size_t text_cap;
};

/* ---- Words for refusals -------------------------------------------------- */

static const char *json_kind(const json_t *v)
{
    switch (v ? (int)json_typeof(v) : -1) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "a list";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
    case JSON_REAL:
        return "a number";
    case JSON_TRUE:
        return "true";
    case JSON_FALSE:
        return "false";
    case JSON_NULL:
        return "null";
    default:
        return "missing";
    }
}

/* At most 40 bytes of s, whole characters, for a message. */
static int shown(const char *s, size_t n)
{
    return (int)(n <= 40 ? n : seam_utf8_whole(s, 40));
}

static int load_nomem(struct load *l)
{
    return seam_fail(l->err, SEAM_ENOMEM, "%s: out of memory", l->name);
}

static int load_expect(struct load *l, const char *where, const char *key,
                       const json_t *found, const char *expected)
{
    const char *dot = *where ? "." : "";

    if (json_is_string(found))
        return seam_fail(
            l->err, SEAM_EDATA, "%s: %s%s%s is \"%.*s\", expected %s", l->name,
            where, dot, key,
            shown(json_string_value(found), json_string_length(found)),
            json_string_value(found), expected);
    return seam_fail(l->err, SEAM_EDATA, "%s: %s%s%s is %s, expected %s",
                     l->name, where, dot, key, json_kind(found), expected);
}

/* ---- Checks -------------------------------------------------------------- */

/* What a key of the pipeline may hold for this implementation to honour it. */
enum rule {
    ANY,       /* read elsewhere, or without effect on ids and bytes */
    BOOL,      /* true or false, without effect on ids and bytes */
    NO,        /* false; absent is false */
    NOTHING,   /* null or absent */
    NO_TEXT,   /* null, "" or absent */
    NO_CHANCE, /* null, 0 or absent */
    TEXT       /* the given string */
};

struct key_rule {
    const char *key;
    enum rule rule;
    const char *text;
};

static bool rule_holds(const struct key_rule *r, const json_t *v,
                       const char **expected)
{
    bool nothing = !v || json_is_null(v);

    switch (r->rule) {
    case ANY:
        return true;
    case BOOL:
        *expected = "true or false";
        return !v || json_is_boolean(v);
    case NO:
        *expected = "false";
        return !v || json_is_false(v);
    case NOTHING:
        *expected = "null";
        return nothing;
    case NO_TEXT:
        *expected = "null";
        return nothing || (json_is_string(v) && !json_string_length(v));
    case NO_CHANCE:
        *expected = "null";
        return nothing || (json_is_number(v) && json_number_value(v) == 0);
    case TEXT:
        *expected = r->text;
        return json_is_string(v) && !strcmp(json_string_value(v), r->text);
    }
    return false;
}

/* Every key of v has a rule and every rule holds.  rules ends with a NULL. */
static int load_rules(struct load *l, const char *where, const json_t *v,
                      const struct key_rule *rules)
{
    const char *key;
    json_t *item;

    if (!json_is_object(v))
        return load_expect(l, "", where, v, "an object");
    json_object_foreach((json_t *)v, key, item)
    {
        const struct key_rule *r = rules;

        while (r->key && strcmp(r->key, key))
            r++;
        if (!r->key)
            return seam_fail(l->err, SEAM_EDATA,
                             "%s: %s%s%.*s is not a key that is known here",
                             l->name, where, *where ? "." : "",
                             shown(key, strlen(key)), key);
    }
    for (const struct key_rule *r = rules; r->key; r++) {
        const char *expected = "";

        item = json_object_get(v, r->key);
        if (!rule_holds(r, item, &expected))
            return load_expect(l, where, r->key, item, expected);
    }
    return 0;
}

static const struct key_rule top_rules[] = {
    { "version", TEXT, "1.0" },      { "truncation", NOTHING, NULL },
    { "padding", NOTHING, NULL },    { "added_tokens", ANY, NULL },
    { "normalizer", NOTHING, NULL }, { "pre_tokenizer", ANY, NULL },
    { "post_processor", ANY, NULL }, { "decoder", ANY, NULL },
    { "model", ANY, NULL },          { NULL, ANY, NULL },
};

static const struct key_rule model_rules[] = {
    { "type", TEXT, "BPE" },
    { "dropout", NO_CHANCE, NULL },
    /* Every byte has an id, so that nothing is ever unknown. */
    { "unk_token", ANY, NULL },
    { "fuse_unk", BOOL, NULL },
    { "continuing_subword_prefix", NO_TEXT, NULL },
    { "end_of_word_suffix", NO_TEXT, NULL },
    { "byte_fallback", NO, NULL },
    { "ignore_merges", BOOL, NULL },
    { "vocab", ANY, NULL },
    { "merges", ANY, NULL },
    { NULL, ANY, NULL },
};

static const struct key_rule sequence_rules[] = {
    { "type", TEXT, "Sequence" },
    { "pretokenizers", ANY, NULL },
    { NULL, ANY, NULL },
};

static const struct key_rule split_rules[] = {
    { "type", TEXT, "Split" },
    { "pattern", ANY, NULL },
    { "behavior", TEXT, "Isolated" },
    { "invert", NO, NULL },
    { NULL, ANY, NULL },
};

/* trim_offsets concerns offsets only. */
static const struct key_rule byte_level_rules[] = {
    { "type", TEXT, "ByteLevel" },
    { "add_prefix_space", NO, NULL },
    { "trim_offsets", BOOL, NULL },
    { "use_regex", NO, NULL },
    { NULL, ANY, NULL },
};

/* As a decoder it has no options with an effect. */
static const struct key_rule decoder_rules[] = {
    { "type", TEXT, "ByteLevel" },
    { "add_prefix_space", BOOL, NULL },
    { "trim_offsets", BOOL, NULL },
    { "use_regex", BOOL, NULL },
    { NULL, ANY, NULL },
};

/* A post-processor trims offsets (ByteLevel) or adds tokens at the ends when
 * special tokens are asked for, which this encoder never does. */
static int load_post_processor(struct load *l, const json_t *v)
{
    const char *type = json_string_value(json_object_get(v, "type"));

    if (!v || json_is_null(v))
        return 0;
    if (type && !strcmp(type, "TemplateProcessing"))
        return 0;
    return load_rules(l, "post_processor", v, decoder_rules);
}

static int load_pre_tokenizer(struct load *l, const json_t *v)
{
    static const struct key_rule pattern_rules[] = {
        { "Regex", ANY, NULL },
        { NULL, ANY, NULL },
    };
    const json_t *list, *pattern, *regex;
    int rc = load_rules(l, "pre_tokenizer", v, sequence_rules);

    if (rc)
        return rc;
    list = json_object_get(v, "pretokenizers");
    if (!json_is_array(list) || json_array_size(list) != 2)
        return seam_fail(l->err, SEAM_EDATA,
                         "%s: pre_tokenizer.pretokenizers is %s of %zu, "
                         "expected Split and ByteLevel",
                         l->name, json_kind(list), json_array_size(list));
    rc = load_rules(l, "pre_tokenizer.pretokenizers[0]",
                    json_array_get(list, 0), split_rules);
    if (!rc)
        rc = load_rules(l, "pre_tokenizer.pretokenizers[1]",
                        json_array_get(list, 1), byte_level_rules);
    if (rc)
        return rc;
    pattern = json_object_get(json_array_get(list, 0), "pattern");
    rc = load_rules(l, "pre_tokenizer.pretokenizers[0].pattern", pattern,
                    pattern_rules);
    if (rc)
        return rc;
    regex = json_object_get(pattern, "Regex");
    if (!json_is_string(regex))
        return load_expect(l, "pre_tokenizer.pretokenizers[0].pattern", "Regex",
                           regex, "a string");
    return seam_split_new(&l->t->split, l->name, json_string_value(regex),
                          json_string_length(regex), l->err);
}

/* ---- Spelling ------------------------------------------------------------ */

/* Bytes 33-126, 161-172 and 174-255 are spelled as themselves, the other 68 in
 * ascending order as U+0100, U+0101, ... */
static bool byte_is_plain(unsigned b)
{
    return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
}

static int spelling_byte(uint32_t cp)
{
    unsigned b = 0;

    if (cp < 0x100)
        return byte_is_plain(cp) ? (int)cp : -1;
    if (cp >= 0x100 + 68)
        return -1;
    for (uint32_t left = cp - 0x100;; b++)
        if (!byte_is_plain(b) && !left--)
            return (int)b;
}

size_t seam_spelling_bytes(const char *p, size_t n, char *out)
{
    size_t len, n_out = 0;
    uint32_t cp;

    for (size_t i = 0; i < n; i += len) {
        int b = -1;

        if (seam_utf8_next(p + i, n - i, &cp, &len) == SEAM_UTF8_OK)
            b = spelling_byte(cp);
        if (b < 0)
            return SIZE_MAX;
        out[n_out++] = (char)b;
    }
    return n_out;
}

/* Room for n bytes of scratch text. */
static int load_text(struct load *l, size_t n)
{
    char *p;

    if (n <= l->text_cap)
        return 0;
    p = realloc(l->text, 2 * n);
    if (!p)
        return load_nomem(l);
    l->text = p;
    l->text_cap = 2 * n;
    return 0;
}

/* ---- Added tokens -------------------------------------------------------- */

static const struct key_rule added_rules[] = {
    { "id", ANY, NULL },           { "content", ANY, NULL },
    { "single_word", BOOL, NULL }, { "lstrip", BOOL, NULL },
    { "rstrip", BOOL, NULL },      { "normalized", BOOL, NULL },
    { "special", BOOL, NULL },     { NULL, ANY, NULL },
};

static int load_id(struct load *l, const char *where, const char *key,
                   const json_t *v, uint32_t *id)
{
    json_int_t i = json_integer_value(v);

    if (!json_is_integer(v))
        return load_expect(l, where, key, v, "an integer");
    if (i < 0 || i >= (json_int_t)SEAM_BPE_MAX_ID)
        return seam_fail(l->err, SEAM_EDATA,
                         "%s: %s: %.*s is %lld, expected 0 to %u", l->name,
                         where, shown(key, strlen(key)), key, (long long)i,
                         SEAM_BPE_MAX_ID - 1);
    *id = (uint32_t)i;
    return 0;
}

/* Shape and ids of added_tokens; the largest id + 1 into *n_ids. */
static int load_added_check(struct load *l, uint32_t *n_ids)
{
    json_t *v, *content, *same;
    char where[48];
    uint32_t id;
    size_t i;
    int rc;

    json_array_foreach(l->added, i, v)
    {
        snprintf(where, sizeof where, "added_tokens[%zu]", i);
        rc = load_rules(l, where, v, added_rules);
        if (!rc)
            rc = load_id(l, where, "id", json_object_get(v, "id"), &id);
        if (rc)
            return rc;
        content = json_object_get(v, "content");
        if (!json_is_string(content) || !json_string_length(content))
            return load_expect(l, where, "content", content,
                               "a string with text");
        same = json_object_getn(l->vocab, json_string_value(content),
                                json_string_length(content));
        if (same && json_integer_value(same) != (json_int_t)id)
            return seam_fail(
                l->err, SEAM_EDATA,
                "%s: %s: \"%.*s\" has id %u, but %lld in model.vocab", l->name,
                where,
                shown(json_string_value(content), json_string_length(content)),
                json_string_value(content), id,
                (long long)json_integer_value(same));
        if (id >= *n_ids)
            *n_ids = id + 1;
    }
    return 0;
}

static int load_added_pieces(struct load *l)
{
    struct seam_bpe *b = &l->t->bpe;
    json_t *v;
    size_t i;

    json_array_foreach(l->added, i, v)
    {
        const json_t *content = json_object_get(v, "content");
        uint32_t id = (uint32_t)json_integer_value(json_object_get(v, "id"));
        uint32_t flags = SEAM_TOKEN_ADDED;

        if (b->piece[id].len)
            return seam_fail(l->err, SEAM_EDATA,
                             "%s: added_tokens[%zu]: id %u is used twice",
                             l->name, i, id);
        if (json_is_true(json_object_get(v, "special")))
            flags |= SEAM_TOKEN_SPECIAL;
        if (seam_bpe_set(b, id, json_string_value(content),
                         json_string_length(content), flags))
            return load_nomem(l);
        l->t->named[l->t->n_named++] = id;
    }
    return 0;
}

static int added_order(const void *a, const void *b)
{
    const struct seam_added *x = a, *y = b;

    return seam_spelling_order(x->p, x->n, y->p, y->n);
}

/* The tokens that are looked for in one pass.  Called when the arena does not
 * move any more. */
static int load_added_set(struct load *l, struct seam_added_set *set,
                          bool normalized)
{
    json_t *v;
    size_t i;

    set->v = calloc(json_array_size(l->added) + 1, sizeof *set->v);
    if (!set->v)
        return load_nomem(l);
    json_array_foreach(l->added, i, v)
    {
        uint32_t id = (uint32_t)json_integer_value(json_object_get(v, "id"));
        const struct seam_piece *s = &l->t->bpe.piece[id];
        uint32_t flags = 0;

        if (json_is_true(json_object_get(v, "normalized")) != normalized)
            continue;
        if (json_is_true(json_object_get(v, "lstrip")))
            flags |= SEAM_ADDED_LSTRIP;
        if (json_is_true(json_object_get(v, "rstrip")))
            flags |= SEAM_ADDED_RSTRIP;
        if (json_is_true(json_object_get(v, "single_word")))
            flags |= SEAM_ADDED_WORD;
        set->v[set->n++] = (struct seam_added){
            .p = l->t->bpe.arena + s->at, .n = s->len, .id = id, .flags = flags
        };
    }
    qsort(set->v, set->n, sizeof *set->v, added_order);
    for (uint32_t k = 0; k < set->n; k++)
        set->first[(unsigned char)set->v[k].p[0] + 1]++;
    for (int c = 0; c < 256; c++)
        set->first[c + 1] += set->first[c];
    return 0;
}

static int named_order(const void *a, const void *b, void *arg)
{
    const struct seam_bpe *bpe = arg;
    const struct seam_piece *x = &bpe->piece[*(const uint32_t *)a];
    const struct seam_piece *y = &bpe->piece[*(const uint32_t *)b];

    return seam_spelling_order(bpe->arena + x->at, x->len, bpe->arena + y->at,
                               y->len);
}

static int load_named(struct load *l)
{
    struct seam_tokenizer *t = l->t;

    qsort_r(t->named, t->n_named, sizeof *t->named, named_order, &t->bpe);
    for (uint32_t i = 0; i + 1 < t->n_named; i++) {
        const struct seam_piece *s = &t->bpe.piece[t->named[i]];

        if (!named_order(&t->named[i], &t->named[i + 1], &t->bpe))
            return seam_fail(l->err, SEAM_EDATA,
                             "%s: \"%.*s\" is an added token twice", l->name,
                             shown(t->bpe.arena + s->at, s->len),
                             t->bpe.arena + s->at);
    }
    return 0;
}

/* ---- Vocabulary and merges ----------------------------------------------- */

static int load_vocab_check(struct load *l, uint32_t *n_ids)
{
    const char *key;
    json_t *v;
    uint32_t id;
    int rc;

    json_object_foreach(l->vocab, key, v)
    {
        rc = load_id(l, "model.vocab", key, v, &id);
        if (rc)
            return rc;
        if (!*key)
            return seam_fail(l->err, SEAM_EDATA,
                             "%s: model.vocab: id %u has no text", l->name, id);
        if (id >= *n_ids)
            *n_ids = id + 1;
    }
    return 0;
}

static int load_vocab(struct load *l)
{
    struct seam_bpe *b = &l->t->bpe;
    const char *key;
    json_t *v;

    json_object_foreach(l->vocab, key, v)
    {
        uint32_t id = (uint32_t)json_integer_value(v);
        size_t n = strlen(key), len;

        /* An added token may be listed here as well.  It stays out of the
         * table of words: no text may become it by merging. */
        if ((b->piece[id].flags & SEAM_TOKEN_ADDED) && b->piece[id].len == n &&
            !memcmp(b->arena + b->piece[id].at, key, n))
            continue;
        if (b->piece[id].len)
            return seam_fail(l->err, SEAM_EDATA,
                             "%s: model.vocab: id %u of \"%.*s\" is used twice",
                             l->name, id, shown(key, n), key);
        if (load_text(l, n))
            return SEAM_ENOMEM;
        len = seam_spelling_bytes(key, n, l->text);
        /* A letter that stands for no byte: it decodes to its own text, and no
         * text becomes it. */
        if (len == SIZE_MAX) {
            if (seam_bpe_set(b, id, key, n, 0))
                return load_nomem(l);
            l->t->named[l->t->n_named++] = id;
            continue;
        }
        if (seam_bpe_set(b, id, l->text, len, 0))
            return load_nomem(l);
        if (!seam_bpe_index(b, id))
            return seam_fail(l->err, SEAM_EDATA,
                             "%s: model.vocab: \"%.*s\" occurs twice", l->name,
                             shown(key, n), key);
    }
    for (int i = 0; i < 256; i++)
        if (b->byte[i] == UINT32_MAX)
            return seam_fail(l->err, SEAM_EDATA,
                             "%s: model.vocab has no ordinary token for the "
                             "byte 0x%02x",
                             l->name, (unsigned)i);
    return 0;
}

/* The two parts of a merge: a list of two, or a string with a blank. */
static int load_merge_parts(struct load *l, size_t i, const json_t *v,
                            struct seam_str part[2])
{
    if (json_is_string(v)) {
        const char *p = json_string_value(v);
        size_t n = json_string_length(v);
        const char *blank = n > 1 ? memchr(p + 1, ' ', n - 1) : NULL;

        if (blank && blank + 1 < p + n) {
            part[0] = (struct seam_str){ p, (size_t)(blank - p) };
            part[1] =
                (struct seam_str){ blank + 1, (size_t)(p + n - blank - 1) };
            return 0;
        }
    } else if (json_array_size(v) == 2) {
        for (size_t k = 0; k < 2; k++) {
            const json_t *s = json_array_get(v, k);

            part[k] = (struct seam_str){ json_string_value(s),
                                         json_string_length(s) };
        }
        if (part[0].n && part[1].n)
            return 0;
    }
    return seam_fail(l->err, SEAM_EDATA,
                     "%s: model.merges[%zu] is %s, expected two pieces, as a "
                     "list or with a blank between",
                     l->name, i, json_kind(v));
}

static int load_merges(struct load *l)
{
    struct seam_bpe *b = &l->t->bpe;
    struct seam_str part[2];
    json_t *v;
    size_t i;

    json_array_foreach(l->merges, i, v)
    {
        int32_t id[2] = { SEAM_ENOENT, SEAM_ENOENT }, made = SEAM_ENOENT;
        size_t n = 0, len = 0;

        if (load_merge_parts(l, i, v, part))
            return SEAM_EDATA;
        if (load_text(l, part[0].n + part[1].n))
            return SEAM_ENOMEM;
        for (int k = 0; k < 2 && len != SIZE_MAX; k++) {
            len = seam_spelling_bytes(part[k].p, part[k].n, l->text + n);
            if (len == SIZE_MAX)
                break;
            id[k] = seam_bpe_find(b, l->text + n, len);
            n += len;
        }
        if (id[0] >= 0 && id[1] >= 0)
            made = seam_bpe_find(b, l->text, n);
        if (made < 0)
            return seam_fail(l->err, SEAM_EDATA,
                             "%s: model.merges[%zu]: %s \"%.*s\" \"%.*s\" is "
                             "not an ordinary token of model.vocab",
                             l->name, i,
                             id[0] < 0   ? "the first of"
                             : id[1] < 0 ? "the second of"
                                         : "what joins",
                             shown(part[0].p, part[0].n), part[0].p,
                             shown(part[1].p, part[1].n), part[1].p);
        seam_bpe_add_merge(b, (uint32_t)id[0], (uint32_t)id[1], (uint32_t)made);
    }
    return 0;
}

/* ---- All of it ----------------------------------------------------------- */

static int load_document(struct load *l, const json_t *doc)
{
    const json_t *model = json_object_get(doc, "model");
    uint32_t n_ids = 0;
    size_t n_vocab, n_merges, n_added;
    int rc;

    if (!json_is_object(doc))
        return seam_fail(l->err, SEAM_EDATA, "%s: is %s, expected an object",
                         l->name, json_kind(doc));
    rc = load_rules(l, "", doc, top_rules);
    if (!rc)
        rc = load_rules(l, "model", model, model_rules);
    if (!rc)
        rc = load_rules(l, "decoder", json_object_get(doc, "decoder"),
                        decoder_rules);
    if (!rc)
        rc = load_post_processor(l, json_object_get(doc, "post_processor"));
    if (!rc)
        rc = load_pre_tokenizer(l, json_object_get(doc, "pre_tokenizer"));
    if (rc)
        return rc;
    l->vocab = json_object_get(model, "vocab");
    l->merges = json_object_get(model, "merges");
    l->added = json_object_get(doc, "added_tokens");
    if (!json_is_object(l->vocab))
        return load_expect(l, "model", "vocab", l->vocab, "an object");
    if (!json_is_array(l->merges))
        return load_expect(l, "model", "merges", l->merges, "a list");
    if (l->added && !json_is_array(l->added))
        return load_expect(l, "", "added_tokens", l->added, "a list");
    n_vocab = json_object_size(l->vocab);
    n_merges = json_array_size(l->merges);
    n_added = json_array_size(l->added);
    if (n_vocab > SEAM_BPE_MAX_ID || n_merges > SEAM_BPE_MAX_ID ||
        n_added > SEAM_BPE_MAX_ID)
        return seam_fail(l->err, SEAM_EDATA,
                         "%s: %zu tokens, %zu merges and %zu added tokens, "
                         "expected at most %u of each",
                         l->name, n_vocab, n_merges, n_added, SEAM_BPE_MAX_ID);
    rc = load_vocab_check(l, &n_ids);
    if (!rc)
        rc = load_added_check(l, &n_ids);
    if (rc)
        return rc;
    l->t->named = calloc(n_vocab + n_added + 1, sizeof *l->t->named);
    l->t->long_word = malloc(sizeof *l->t->long_word);
    if (l->t->long_word)
        pthread_mutex_init(l->t->long_word, NULL);
    if (!l->t->named || !l->t->long_word ||
        seam_bpe_init(&l->t->bpe, n_ids, (uint32_t)n_vocab, (uint32_t)n_merges))
        return load_nomem(l);
    l->t->bpe.whole_words =
        json_is_true(json_object_get(model, "ignore_merges"));
    rc = load_added_pieces(l);
    if (!rc)
        rc = load_vocab(l);
    if (!rc)
        rc = load_named(l);
    if (!rc)
        rc = load_merges(l);
    if (!rc)
        rc = load_added_set(l, &l->t->added[0], false);
    if (!rc)
        rc = load_added_set(l, &l->t->added[1], true);
    return rc;
}

int seam_tokenizer_parse(struct seam_tokenizer **t, const char *name,
                         const char *text, size_t n, struct seam_error *err)
{
    struct load l = { .name = name, .err = err };
    json_t *doc = seam_json_parse(text, n, name, 0, err);
    int rc;

    if (!doc)
        return err ? err->code : SEAM_EDATA;
    l.t = calloc(1, sizeof *l.t);
    rc = l.t ? load_document(&l, doc) : load_nomem(&l);
    if (!rc) {
        *t = l.t;
        l.t = NULL;
    }
    seam_tokenizer_free(l.t);
    free(l.text);
    json_decref(doc);
    return rc;
}

int seam_tokenizer_open(struct seam_tokenizer **t, const char *path,
                        struct seam_error *err)
{
    uint64_t n;
    char *text;
    int rc = seam_file_read(path, MAX_FILE, &text, &n, err);

    if (rc)
        return rc;
    rc = seam_tokenizer_parse(t, path, text, (size_t)n, err);
    free(text);
    return rc;
}

void seam_tokenizer_free(struct seam_tokenizer *t)
{
    if (!t)
        return;
    seam_bpe_release(&t->bpe);
    seam_split_free(t->split);
    free(t->added[0].v);
    free(t->added[1].v);
    free(t->named);
    if (t->long_word)
        pthread_mutex_destroy(t->long_word);
    free(t->long_word);
    free(t);
}
