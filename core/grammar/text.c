/* Grammars in text notation (docs/structured-output.md). */
#include "core/grammar/text.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/base/utf8.h"
#include "core/grammar/expr.h"

#define MAX_TEXT ((size_t)1 << 20)

struct rule {
    uint32_t rule;
    uint32_t expr;    /* G_NONE: used, not defined yet */
    size_t used;      /* where it is first used or defined */
    const char *name; /* a key of names */
    uint32_t size;    /* about what drawing it takes; 0: not known yet; G_NONE:
                         it is called, not drawn in place */
    bool open;        /* its size is being looked at */
};

struct text {
    struct g_build *b;
    struct g_json *j, *spaced;
    struct g_schema **docs;
    const char *where;
    const char *p;
    size_t n, at;
    uint32_t depth;
    struct g_exprs x;
    json_t *names; /* to indices of rule */
    struct rule *rule;
    uint32_t n_rules, cap_rules;
    const struct seam_grammar_import *import;
    size_t n_imports;
    json_t *imported; /* "RAW NAME" to rules, RAW as in schema.h */
    json_t *never;
};

/* ---- Messages ------------------------------------------------------------ */

/* Put "WHERE:LINE:COLUMN" before what is said about position `at`. */
static void place(struct text *t, size_t at)
{
    char where[200];
    size_t line = 1, begin = 0;

    if (!t->b->rc || !t->b->bare)
        return;
    for (size_t i = 0; i < at && i < t->n; i++)
        if (t->p[i] == '\n') {
            line++;
            begin = i + 1;
        }
    snprintf(where, sizeof where, "%s:%zu:%zu", t->where, line, at - begin + 1);
    seam_fail_at(t->b->err, where);
    t->b->bare = false;
}

static uint32_t wrong(struct text *t, const char *what)
{
    g_fail_bare(t->b, SEAM_EDATA, "%s", what);
    place(t, t->at);
    return 0;
}

/* ---- Characters ---------------------------------------------------------- */

static bool is_name_char(char c, bool first)
{
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_')
        return true;
    return !first && ((c >= '0' && c <= '9') || c == '-');
}

static void skip_blanks(struct text *t)
{
    bool comment = false;

    for (; t->at < t->n; t->at++) {
        char c = t->p[t->at];

        if (comment)
            comment = c != '\n';
        else if (c == '#')
            comment = true;
        else if (c != ' ' && c != '\t' && c != '\r' && c != '\n')
            return;
    }
}

static bool at_char(const struct text *t, char c)
{
    return t->at < t->n && t->p[t->at] == c;
}

static bool at_text(const struct text *t, const char *s)
{
    size_t n = strlen(s);

    return t->n - t->at >= n && !memcmp(t->p + t->at, s, n);
}

static size_t name_length(const struct text *t, size_t at)
{
    size_t n = 0;

    while (at + n < t->n && is_name_char(t->p[at + n], !n))
        n++;
    return n;
}

/* Does "name ::=" or a directive stand here? */
static bool at_statement(struct text *t)
{
    size_t n = name_length(t, t->at), was = t->at;
    bool found;

    if (at_text(t, "@never"))
        return !is_name_char(t->at + 6 < t->n ? t->p[t->at + 6] : ' ', false);
    if (!n)
        return false;
    t->at += n;
    skip_blanks(t);
    found = at_text(t, "::=");
    t->at = was;
    return found;
}

static bool hex_read(struct text *t, size_t n, uint32_t *out)
{
    *out = 0;
    for (size_t i = 0; i < n; i++, t->at++) {
        char c = t->at < t->n ? t->p[t->at] : 0;

        if (c >= '0' && c <= '9')
            *out = *out * 16 + (uint32_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            *out = *out * 16 + (uint32_t)(c - 'a' + 10);
        else if (c >= 'A' && c <= 'F')
            *out = *out * 16 + (uint32_t)(c - 'A' + 10);
        else
            return false;
    }
    return true;
}

/* One character of a literal or a class. */
static uint32_t char_read(struct text *t)
{
    static const char named[][2] = { { 'n', '\n' },
                                     { 'r', '\r' },
                                     { 't', '\t' } };
    uint32_t cp = 0;
    size_t len = 1, n;
    char c;

    if (t->at >= t->n)
        return wrong(t, "ends too early");
    if (t->p[t->at] != '\\') {
        if (seam_utf8_next(t->p + t->at, t->n - t->at, &cp, &len) !=
            SEAM_UTF8_OK)
            return wrong(t, "is not UTF-8");
        t->at += len;
        return cp;
    }
    c = t->at + 1 < t->n ? t->p[t->at + 1] : 0;
    t->at += 2;
    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        if (c == named[i][0])
            return (uint8_t)named[i][1];
    n = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (n) {
        if (!hex_read(t, n, &cp) || cp > G_MAX_CHAR ||
            (cp >= 0xd800 && cp < 0xe000))
            return wrong(t, "expected a code point in hexadecimal digits");
        return cp;
    }
    if (!c || !strchr("\"\\]-[^", c)) {
        t->at--;
        return wrong(t, "this escape is not known");
    }
    return (uint8_t)c;
}

/* ---- Atoms --------------------------------------------------------------- */

static uint32_t choice_read(struct text *t);

static uint32_t one_char(struct text *t, uint32_t cp)
{
    uint32_t from = t->x.n_ranges;

    g_expr_range(&t->x, cp, cp);
    return g_expr_set(&t->x, from, false);
}

static uint32_t literal_read(struct text *t)
{
    uint32_t list = g_expr_new(&t->x, G_EXPR_SEQUENCE);

    t->at++;
    while (!t->b->rc && !at_char(t, '"'))
        g_expr_child(&t->x, list, one_char(t, char_read(t)));
    t->at++;
    return list;
}

static uint32_t class_read(struct text *t)
{
    uint32_t from = t->x.n_ranges;
    bool negate;

    t->at++;
    negate = at_char(t, '^');
    t->at += negate;
    while (!t->b->rc && !at_char(t, ']')) {
        uint32_t lo = char_read(t), hi = lo;

        if (at_char(t, '-') && t->at + 1 < t->n && t->p[t->at + 1] != ']') {
            t->at++;
            hi = char_read(t);
            if (hi < lo)
                return wrong(t, "the range is out of order");
        }
        g_expr_range(&t->x, lo, hi);
    }
    t->at++;
    return g_expr_set(&t->x, from, negate);
}

static uint32_t call_new(struct text *t, uint32_t rule)
{
    uint32_t e = g_expr_new(&t->x, G_EXPR_CALL);

    if (!t->b->rc)
        t->x.expr[e].min = rule;
    return e;
}

/* The rule with this name, known from now on. */
static uint32_t rule_index(struct text *t, const char *p, size_t n)
{
    char name[64];
    const json_t *known;
    json_t *index;

    if (n >= sizeof name)
        return wrong(t, "a name of more than 63 characters");
    memcpy(name, p, n);
    name[n] = 0;
    known = json_object_get(t->names, name);
    if (known)
        return (uint32_t)json_integer_value(known);
    if (!g_grow(t->b, &t->rule, t->n_rules, &t->cap_rules, sizeof *t->rule,
                G_MAX_RULES))
        return 0;
    index = json_integer(t->n_rules);
    if (json_object_set_new(t->names, name, index)) {
        g_fail(t->b, SEAM_ENOMEM, "grammar: out of memory");
        return 0;
    }
    t->rule[t->n_rules] = (struct rule){
        .rule = g_rule_new(t->b),
        .expr = G_NONE,
        .used = t->at,
        .name = json_object_iter_key(json_object_iter_at(t->names, name)),
    };
    return t->n_rules++;
}

static uint32_t added_new(struct text *t, const char *p, size_t n)
{
    const struct seam_vocab *v = t->b->v;
    int32_t id = seam_tokenizer_id(v->t, p, n);
    uint32_t e;

    if (id < 0 || v->kind[id] != G_TOKEN_ADDED)
        return wrong(t, "not an added token of the model, or one that ends the "
                        "answer");
    e = g_expr_new(&t->x, G_EXPR_ADDED);
    if (!t->b->rc)
        t->x.expr[e].min = (uint32_t)id;
    return e;
}

static uint32_t added_read(struct text *t)
{
    const char *end = memchr(t->p + t->at, '>', t->n - t->at);
    size_t n = end ? (size_t)(end - (t->p + t->at)) + 1 : 0;
    uint32_t e;

    if (!n)
        return wrong(t, "a token's name is not closed");
    e = added_new(t, t->p + t->at, n);
    t->at += n;
    return e;
}

/* A string argument in parentheses, into out. */
static size_t argument_read(struct text *t, char *out, size_t cap)
{
    size_t n = 0;

    skip_blanks(t);
    if (!at_char(t, '"')) {
        wrong(t, "expected a string");
        return 0;
    }
    for (t->at++; t->at < t->n && t->p[t->at] != '"'; t->at++) {
        if (n + 1 >= cap || t->p[t->at] == '\\') {
            wrong(t, "too long, or with an escape");
            return 0;
        }
        out[n++] = t->p[t->at];
    }
    out[n] = 0;
    if (t->at >= t->n)
        wrong(t, "ends too early");
    t->at++;
    return n;
}

static uint32_t import_rule(struct text *t, const char *name, uint32_t raw)
{
    const struct seam_grammar_import *found = NULL;
    char key[128];
    const json_t *known;
    uint32_t rule;

    for (size_t i = 0; i < t->n_imports; i++)
        if (!strcmp(t->import[i].name, name))
            found = &t->import[i];
    if (!found)
        return wrong(t, "there is no schema with this name");
    snprintf(key, sizeof key, "%u %s", raw, name);
    known = json_object_get(t->imported, key);
    if (known)
        return (uint32_t)json_integer_value(known);
    /* Set when all rules of the text are read: strings in it obey @never. */
    rule = g_rule_new(t->b);
    if (json_object_set_new(t->imported, key, json_integer(rule)))
        g_fail(t->b, SEAM_ENOMEM, "grammar: out of memory");
    return rule;
}

/* "but" and types behind the name in @value(), or nothing. */
static uint32_t but_read(struct text *t)
{
    static const struct {
        const char *name;
        uint32_t type;
    } types[] = {
        { "null", G_TYPE_NULL },     { "boolean", G_TYPE_BOOLEAN },
        { "number", G_TYPE_NUMBER }, { "array", G_TYPE_ARRAY },
        { "object", G_TYPE_OBJECT },
    };
    uint32_t raw = G_RAW_VALUE;
    bool any = false;
    size_t n, i;

    skip_blanks(t);
    n = name_length(t, t->at);
    if (!n)
        return raw;
    if (n != 3 || memcmp(t->p + t->at, "but", 3) != 0)
        return wrong(t, "expected ')' or \"but\"");
    for (;;) {
        t->at += n;
        skip_blanks(t);
        n = name_length(t, t->at);
        if (!n)
            return any ? raw : wrong(t, "expected a type");
        for (i = 0; i < sizeof types / sizeof *types; i++)
            if (n == strlen(types[i].name) &&
                !memcmp(t->p + t->at, types[i].name, n))
                break;
        if (i == sizeof types / sizeof *types)
            return wrong(t, "expected null, boolean, number, array or object");
        raw |= types[i].type * G_RAW_BUT;
        any = true;
    }
}

static uint32_t builtin_read(struct text *t)
{
    static const struct {
        const char *name;
        enum g_leaf_kind kind;
    } leaf[] = {
        { "json", G_LEAF_VALUE },    { "object", G_LEAF_OBJECT },
        { "array", G_LEAF_ARRAY },   { "string", G_LEAF_STRING },
        { "number", G_LEAF_NUMBER }, { "integer", G_LEAF_INTEGER },

    };
    size_t n = name_length(t, t->at + 1), from = t->at;
    char name[64], token[256];
    uint32_t e = 0;

    if (!n || n >= sizeof name)
        return wrong(t, "expected a name behind '@'");
    memcpy(name, t->p + t->at + 1, n);
    name[n] = 0;
    t->at += 1 + n;
    if (!strcmp(name, "token") || !strcmp(name, "value")) {
        skip_blanks(t);
        if (!at_char(t, '('))
            return wrong(t, "expected '('");
        t->at++;
        skip_blanks(t);
        if (name[0] == 't') {
            n = argument_read(t, token, sizeof token);
            e = t->b->rc ? 0 : added_new(t, token, n);
        } else {
            n = name_length(t, t->at);
            if (!n || n >= sizeof name)
                return wrong(t, "expected the name of a schema");
            memcpy(name, t->p + t->at, n);
            name[n] = 0;
            t->at += n;
            e = call_new(t, import_rule(t, name, but_read(t)));
        }
        skip_blanks(t);
        if (!t->b->rc && !at_char(t, ')'))
            return wrong(t, "expected ')'");
        t->at++;
        return e;
    }
    if (!strcmp(name, "text"))
        return g_expr_new(&t->x, G_EXPR_TEXT);
    for (size_t i = 0; i < sizeof leaf / sizeof *leaf; i++)
        if (!strcmp(leaf[i].name, name))
            return call_new(t, g_json_any(t->j, leaf[i].kind));
    t->at = from;
    e = call_new(t, import_rule(t, name, 0));
    t->at = from + 1 + n;
    return e;
}

static uint32_t group_read(struct text *t)
{
    uint32_t e;

    if (++t->depth > G_MAX_NESTING)
        return wrong(t, "too many brackets in each other");
    t->at++;
    e = choice_read(t);
    if (!t->b->rc && !at_char(t, ')'))
        return wrong(t, "expected ')'");
    t->at++;
    t->depth--;
    return e;
}

static uint32_t atom_read(struct text *t)
{
    size_t n = name_length(t, t->at);
    uint32_t e;

    if (n) {
        uint32_t i = rule_index(t, t->p + t->at, n);

        t->at += n;
        return t->b->rc ? 0 : call_new(t, t->rule[i].rule);
    }
    switch (t->p[t->at]) {
    case '"':
        return literal_read(t);
    case '[':
        return class_read(t);
    case '(':
        return group_read(t);
    case '<':
        return added_read(t);
    case '@':
        return builtin_read(t);
    case '.':
        t->at++;
        e = t->x.n_ranges;
        return g_expr_set(&t->x, e, true);
    default:
        return wrong(t, "expected a literal, a class, a name, '<', '@' or '('");
    }
}

/* ---- Rules --------------------------------------------------------------- */

static bool number_read(struct text *t, uint32_t *out)
{
    uint64_t x = 0;
    size_t from = t->at;

    for (; t->at < t->n && t->p[t->at] >= '0' && t->p[t->at] <= '9'; t->at++)
        if (x < G_NO_MAX - 1)
            x = 10 * x + (uint64_t)(t->p[t->at] - '0');
    *out = x < G_NO_MAX - 1 ? (uint32_t)x : G_NO_MAX - 1;
    return t->at > from;
}

static uint32_t repeat_read(struct text *t, uint32_t child)
{
    uint32_t min, max;

    if (t->b->rc)
        return 0;
    if (at_char(t, '*') || at_char(t, '+') || at_char(t, '?')) {
        min = at_char(t, '+');
        max = at_char(t, '?') ? 1 : G_NO_MAX;
    } else if (at_char(t, '{')) {
        t->at++;
        skip_blanks(t);
        if (!number_read(t, &min))
            return wrong(t, "expected a number");
        max = min;
        skip_blanks(t);
        if (at_char(t, ',')) {
            t->at++;
            skip_blanks(t);
            if (!number_read(t, &max))
                max = G_NO_MAX;
            skip_blanks(t);
        }
        if (!at_char(t, '}') || max < min)
            return wrong(t, "expected {N}, {N,} or {N,M}, N not above M");
    } else {
        return child;
    }
    t->at++;
    return g_expr_repeat(&t->x, child, min, max);
}

static uint32_t sequence_read(struct text *t)
{
    uint32_t list = g_expr_new(&t->x, G_EXPR_SEQUENCE);

    for (;;) {
        skip_blanks(t);
        if (t->b->rc || t->at >= t->n || at_char(t, '|') || at_char(t, ')') ||
            at_statement(t) || !g_work(t->b, 1))
            return list;
        g_expr_child(&t->x, list, repeat_read(t, atom_read(t)));
    }
}

static uint32_t choice_read(struct text *t)
{
    uint32_t list = g_expr_new(&t->x, G_EXPR_CHOICE);

    g_expr_child(&t->x, list, sequence_read(t));
    while (!t->b->rc && at_char(t, '|')) {
        t->at++;
        g_expr_child(&t->x, list, sequence_read(t));
    }
    return list;
}

static void never_read(struct text *t)
{
    char word[64];
    size_t n;

    t->at += strlen("@never");
    for (skip_blanks(t); at_char(t, '"'); skip_blanks(t)) {
        n = argument_read(t, word, sizeof word);
        if (t->b->rc)
            return;
        if (!n || !seam_utf8_valid(word, n)) {
            wrong(t, "expected text that is not empty");
            return;
        }
        if (json_array_append_new(t->never, json_stringn(word, n)))
            g_fail(t->b, SEAM_ENOMEM, "grammar: out of memory");
    }
}

static void statement_read(struct text *t)
{
    size_t n, from = t->at;
    uint32_t i, e;

    if (at_char(t, '@')) {
        never_read(t);
        return;
    }
    n = name_length(t, t->at);
    i = rule_index(t, t->p + t->at, n);
    if (t->b->rc)
        return;
    if (t->rule[i].expr != G_NONE) {
        wrong(t, "this rule is defined twice");
        return;
    }
    t->at += n;
    skip_blanks(t);
    t->at += strlen("::=");
    e = choice_read(t);
    if (t->b->rc)
        return;
    if (t->at < t->n && !at_statement(t)) {
        wrong(t, "nothing is open that could be closed here");
        return;
    }
    t->rule[i].expr = e;
    t->rule[i].used = from;
    g_expr_count(&t->x, e);
}

static uint32_t read_all(struct text *t)
{
    const json_t *root;
    uint32_t i;

    if (t->n > MAX_TEXT)
        return wrong(t, "expected at most 1 MiB");
    for (skip_blanks(t); !t->b->rc && t->at < t->n; skip_blanks(t)) {
        if (!at_statement(t))
            return wrong(t, "expected NAME ::= ...");
        statement_read(t);
        place(t, t->at);
    }
    if (t->b->rc)
        return 0;
    for (i = 0; i < t->n_rules; i++)
        if (t->rule[i].expr == G_NONE) {
            t->at = t->rule[i].used;
            return wrong(t, "this rule is not defined");
        }
    root = json_object_get(t->names, "root");
    if (!root) {
        t->at = 0;
        return wrong(t, "there is no rule \"root\"");
    }
    return t->rule[json_integer_value(root)].rule;
}

/* ---- Rules in place ------------------------------------------------------ */

/* Rules that are small and without recursion are drawn where they are used:
 * what a state allows then depends less on who called. */
#define MAX_IN_PLACE 200
#define TEXT_SIZE    50
#define MAX_DEPTH    40

static uint32_t rule_size(struct text *t, uint32_t i, uint32_t depth);

static struct rule *rule_called(struct text *t, uint32_t rule)
{
    /* The numbers of a text's rules ascend. */
    uint32_t lo = 0, hi = t->n_rules;

    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;

        if (t->rule[mid].rule < rule)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < t->n_rules && t->rule[lo].rule == rule ? &t->rule[lo] : NULL;
}

/* G_NONE: too large, or with calls. */
static uint32_t expr_size(struct text *t, uint32_t at, uint32_t depth)
{
    struct g_expr e = t->x.expr[at];
    uint64_t size = 1;
    struct rule *r;

    if (!g_work(t->b, 1) || depth > MAX_DEPTH)
        return G_NONE;
    switch (e.kind) {
    case G_EXPR_CALL:
        r = rule_called(t, e.min);
        return r ? rule_size(t, (uint32_t)(r - t->rule), depth) : G_NONE;
    case G_EXPR_TEXT:
        return TEXT_SIZE;
    case G_EXPR_SET:
    case G_EXPR_ADDED:
        return 1;
    default:
        break;
    }
    if (e.kind == G_EXPR_REPEAT && e.rule != G_NONE)
        return G_NONE;
    for (uint32_t i = e.first; i != G_NONE; i = t->x.expr[i].next) {
        uint32_t one = expr_size(t, i, depth + 1);

        if (one == G_NONE)
            return G_NONE;
        size += one;
        if (size > MAX_IN_PLACE)
            return G_NONE;
    }
    if (e.kind == G_EXPR_REPEAT)
        size *= e.max == G_NO_MAX ? e.min + 1 : e.max;
    return size > MAX_IN_PLACE ? G_NONE : (uint32_t)size;
}

static uint32_t rule_size(struct text *t, uint32_t i, uint32_t depth)
{
    uint32_t size;

    if (t->rule[i].size || t->rule[i].open)
        return t->rule[i].open ? G_NONE : t->rule[i].size;
    t->rule[i].open = true;
    size = expr_size(t, t->rule[i].expr, depth + 1);
    t->rule[i].open = false;
    t->rule[i].size = size;
    return size;
}

static void put_in_place(struct text *t)
{
    uint32_t n = t->x.n;

    for (uint32_t i = 0; i < t->n_rules && !t->b->rc; i++)
        rule_size(t, i, 0);
    for (uint32_t i = 0; i < n && !t->b->rc; i++) {
        struct g_expr *e = &t->x.expr[i];
        const struct rule *r =
            e->kind == G_EXPR_CALL ? rule_called(t, e->min) : NULL;

        if (!r || r->size == G_NONE)
            continue;
        e->kind = G_EXPR_SAME;
        e->min = r->expr;
    }
}

/* ---- Drawing ------------------------------------------------------------- */

/* Any text less what is never written, for G_EXPR_TEXT. */
static void text_make(struct text *t, struct g_auto *a)
{
    struct g_part part;

    if (!t->j->never)
        return;
    part.from = part.to = g_state(t->b);
    g_chars(t->b, part.from, 0, G_MAX_CHAR, G_RAW, part.to);
    g_json_limit(t->j, &part);
    t->x.text_first = g_determine(t->b, a, part);
    t->x.text = a;
    g_clear(t->b);
}

static void set_all(struct text *t)
{
    struct g_auto any = { 0 };
    const char *key;
    json_t *v;

    put_in_place(t);
    g_json_never(t->j, t->never);
    for (size_t i = 0; i < t->n_imports && !t->spaced->never; i++)
        if (t->import[i].spaced)
            g_json_never(t->spaced, t->never);
    text_make(t, &any);
    for (uint32_t i = 0; i < t->n_rules && !t->b->rc; i++) {
        struct g_part part;

        part.from = g_state(t->b);
        part.to = g_expr_draw(&t->x, part.from, t->rule[i].expr, G_RAW);
        g_rule_set(t->b, t->rule[i].rule, part);
        place(t, t->rule[i].used);
    }
    g_expr_set_rules(&t->x, G_RAW);
    place(t, 0);
    json_object_foreach(t->imported, key, v)
    {
        const char *name = strchr(key, ' ') + 1;

        for (size_t i = 0; i < t->n_imports && !t->b->rc; i++) {
            struct g_part part;

            if (strcmp(t->import[i].name, name) != 0)
                continue;
            /* What was called becomes a call of the schema's rule. */
            uint32_t rule =
                g_schema_add(t->docs, t->import[i].spaced ? t->spaced : t->j,
                             t->import[i].schema, t->import[i].where,
                             (uint32_t)strtoul(key, NULL, 10));

            part.from = g_state(t->b);
            part.to = g_calling(t->b, part.from, rule);
            g_rule_set(t->b, (uint32_t)json_integer_value(v), part);
            break;
        }
    }
    g_auto_release(&any);
}

bool g_text_name(const json_t *names, uint32_t rule, char *out, size_t cap)
{
    const char *key;
    json_t *v;

    json_object_foreach(g_loose(names), key, v)
    {
        if ((uint32_t)json_integer_value(v) == rule) {
            snprintf(out, cap, "rule \"%s\"", key);
            return true;
        }
    }
    return false;
}

uint32_t g_text_add(struct g_schema **docs, struct g_json *j,
                    struct g_json *spaced, const char *p, size_t n,
                    const char *where,
                    const struct seam_grammar_import *imports, size_t n_imports,
                    json_t **names)
{
    struct text t = { .b = j->b,
                      .j = j,
                      .spaced = spaced,
                      .docs = docs,
                      .where = where,
                      .p = p,
                      .n = n,
                      .x = { .b = j->b },
                      .names = json_object(),
                      .imported = json_object(),
                      .never = json_array(),
                      .import = imports,
                      .n_imports = n_imports };
    uint32_t root = 0;

    if (!t.names || !t.imported || !t.never)
        g_fail(t.b, SEAM_ENOMEM, "grammar: out of memory");
    else
        root = read_all(&t);
    if (!t.b->rc)
        set_all(&t);
    for (uint32_t i = 0; i < t.n_rules && !t.b->rc; i++)
        if (json_object_set_new(t.names, t.rule[i].name,
                                json_integer(t.rule[i].rule)))
            g_fail(t.b, SEAM_ENOMEM, "grammar: out of memory");
    g_exprs_release(&t.x);
    free(t.rule);
    json_decref(t.imported);
    json_decref(t.never);
    *names = t.names;
    return root;
}
