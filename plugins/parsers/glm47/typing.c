#include "typing.h"

#include <stdlib.h>

enum {
    TYPE_NULL = 1,
    TYPE_BOOL = 2,
    TYPE_INTEGER = 4,
    TYPE_REAL = 8, /* numbers that are no integers */
    TYPE_STRING = 16,
    TYPE_ARRAY = 32,
    TYPE_OBJECT = 64,
    TYPE_NUMBER = TYPE_INTEGER | TYPE_REAL,
    TYPE_ALL = 127,
    TYPE_KNOWN = 128 /* internal: something was said about the type */
};

#define MAX_DEPTH 32   /* of $ref, anyOf, oneOf and allOf                     */
#define MAX_STEPS 2048 /* schemas looked at for one parameter                 */

/* ---- Schemas ------------------------------------------------------------- */

/* A walk over all that a schema says about its value. */
struct walk {
    const struct jt_value *root;
    const struct jt_value *path[MAX_DEPTH]; /* schemas being looked at        */
    uint32_t depth, steps;
    bool no_memory;
    bool gave_up; /* too many steps: unknown                                  */
    bool listed, listed_other; /* listed values met; some are no strings      */
    /* When values are compared: */
    const struct seam_str *raw;   /* the text, or NULL                        */
    const struct jt_value *value; /* what it says as JSON, or NULL            */
    bool is_string, is_other;     /* equals a listed string, a listed other   */
};

static uint32_t type_of_name(struct seam_str name)
{
    static const struct {
        const char *name;
        uint32_t type;
    } names[] = {
        { "string", TYPE_STRING },   { "str", TYPE_STRING },
        { "text", TYPE_STRING },     { "varchar", TYPE_STRING },
        { "char", TYPE_STRING },     { "enum", TYPE_STRING },
        { "integer", TYPE_INTEGER }, { "int", TYPE_INTEGER },
        { "int32", TYPE_INTEGER },   { "int64", TYPE_INTEGER },
        { "uint", TYPE_INTEGER },    { "long", TYPE_INTEGER },
        { "short", TYPE_INTEGER },   { "number", TYPE_NUMBER },
        { "float", TYPE_NUMBER },    { "float32", TYPE_NUMBER },
        { "float64", TYPE_NUMBER },  { "double", TYPE_NUMBER },
        { "boolean", TYPE_BOOL },    { "bool", TYPE_BOOL },
        { "object", TYPE_OBJECT },   { "dict", TYPE_OBJECT },
        { "array", TYPE_ARRAY },     { "arr", TYPE_ARRAY },
        { "list", TYPE_ARRAY },      { "sequence", TYPE_ARRAY },
        { "null", TYPE_NULL },
    };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (text_is(name, names[i].name))
            return names[i].type;
    return 0;
}

static uint32_t type_of_kind(int kind, bool real)
{
    switch (kind) {
    case JT_NULL:
        return TYPE_NULL;
    case JT_FALSE:
    case JT_TRUE:
        return TYPE_BOOL;
    case JT_NUMBER:
        return real ? TYPE_REAL : TYPE_INTEGER;
    case JT_STRING:
        return TYPE_STRING;
    case JT_ARRAY:
        return TYPE_ARRAY;
    case JT_OBJECT:
        return TYPE_OBJECT;
    default:
        return 0;
    }
}

/* The keyword "type": a name or a list of names. */
static uint32_t types_named(const struct jt_value *v)
{
    uint32_t types = 0, one;

    if (jt_is(v, JT_STRING)) {
        types = type_of_name(v->s);
    } else if (jt_is(v, JT_ARRAY)) {
        for (v = v->first; v; v = v->next) {
            one = v->kind == JT_STRING ? type_of_name(v->s) : 0;
            if (!one)
                return TYPE_ALL;
            types |= one;
        }
    }
    return types ? types | TYPE_KNOWN : TYPE_ALL;
}

static uint32_t type_listed(struct walk *w, const struct jt_value *v)
{
    w->listed = true;
    if (v->kind != JT_STRING)
        w->listed_other = true;
    if (w->raw && v->kind == JT_STRING && text_same(*w->raw, v->s))
        w->is_string = true;
    if (w->value && v->kind != JT_STRING && jt_equal(w->value, v))
        w->is_other = true;
    if (v->kind == JT_NUMBER && v->real)
        return TYPE_NUMBER | TYPE_KNOWN;
    return type_of_kind(v->kind, v->real) | TYPE_KNOWN;
}

/* One step of a JSON pointer: p[0, n) unescaped names a member or an entry. */
static const struct jt_value *pointer_step(const struct jt_value *v,
                                           const char *p, size_t n,
                                           bool *no_memory)
{
    struct tbuf key = { 0 };
    size_t index = 0;

    for (size_t i = 0; i < n; i++) {
        char c = p[i];

        if (c == '~' && i + 1 < n && (p[i + 1] == '0' || p[i + 1] == '1'))
            c = p[++i] == '0' ? '~' : '/';
        tbuf_add(&key, &c, 1);
    }
    if (jt_is(v, JT_ARRAY)) {
        for (size_t i = 0; i < key.n; i++) {
            if (key.p[i] < '0' || key.p[i] > '9' || key.n > 6)
                index = v->count;
            else
                index = index * 10 + (size_t)(key.p[i] - '0');
        }
        for (v = key.n ? v->first : NULL; v && index; index--)
            v = v->next;
    } else {
        v = jt_find(v, tbuf_view(&key));
    }
    if (key.failed) {
        *no_memory = true;
        v = NULL;
    }
    tbuf_release(&key);
    return v;
}

const struct jt_value *glm_pointer(const struct jt_value *root,
                                   struct seam_str ref, bool *no_memory)
{
    const struct jt_value *v = root;
    size_t at = 1;

    if (!ref.n || ref.p[0] != '#' || (ref.n > 1 && ref.p[1] != '/'))
        return NULL;
    while (v && at < ref.n) {
        size_t end = text_find(ref, at + 1, "/");

        v = pointer_step(v, ref.p + at + 1, end - at - 1, no_memory);
        at = end;
    }
    return v;
}

static uint32_t meet(uint32_t a, uint32_t b)
{
    return (a & b & TYPE_ALL) | ((a | b) & TYPE_KNOWN);
}

static uint32_t types_of(struct walk *w, const struct jt_value *s);

/* anyOf and oneOf: any of the branches' types. */
static uint32_t types_any(struct walk *w, const struct jt_value *list)
{
    uint32_t types = 0;
    bool known = true;

    if (!jt_is(list, JT_ARRAY) || !list->first)
        return TYPE_ALL;
    for (const struct jt_value *v = list->first; v; v = v->next) {
        uint32_t one = types_of(w, v);

        known = known && (one & TYPE_KNOWN);
        types |= one;
    }
    return known ? types : TYPE_ALL;
}

static uint32_t types_of_inner(struct walk *w, const struct jt_value *s)
{
    const struct jt_value *list = jt_get(s, "enum"), *v;
    uint32_t types = types_named(jt_get(s, "type")), one = 0;

    if (jt_is(list, JT_ARRAY) && list->first) {
        for (v = list->first; v; v = v->next)
            one |= type_listed(w, v);
        types = meet(types, one);
    }
    v = jt_get(s, "const");
    if (v)
        types = meet(types, type_listed(w, v));
    v = jt_get(s, "$ref");
    if (jt_is(v, JT_STRING))
        types =
            meet(types, types_of(w, glm_pointer(w->root, v->s, &w->no_memory)));
    types = meet(types, types_any(w, jt_get(s, "anyOf")));
    types = meet(types, types_any(w, jt_get(s, "oneOf")));
    list = jt_get(s, "allOf");
    if (jt_is(list, JT_ARRAY))
        for (v = list->first; v; v = v->next)
            types = meet(types, types_of(w, v));
    if (!(types & TYPE_KNOWN) || !(types & TYPE_ALL))
        return TYPE_ALL;
    if (jt_is(jt_get(s, "nullable"), JT_TRUE))
        types |= TYPE_NULL;
    return types;
}

/* TYPE_ALL without TYPE_KNOWN: nothing is known, or too much was said. */
static uint32_t types_of(struct walk *w, const struct jt_value *s)
{
    uint32_t types;

    if (!jt_is(s, JT_OBJECT) || w->gave_up)
        return TYPE_ALL;
    if (++w->steps > MAX_STEPS) {
        w->gave_up = true;
        return TYPE_ALL;
    }
    if (w->depth == MAX_DEPTH)
        return TYPE_ALL;
    for (uint32_t i = 0; i < w->depth; i++)
        if (w->path[i] == s)
            return TYPE_ALL;
    w->path[w->depth++] = s;
    types = types_of_inner(w, s);
    w->depth--;
    return types;
}

int glm_properties(const struct jt_value *params, const struct jt_value **out)
{
    const struct jt_value *s = params, *ref;
    bool no_memory = false;

    *out = NULL;
    for (int i = 0; i < MAX_DEPTH && jt_is(s, JT_OBJECT); i++) {
        const struct jt_value *props = jt_get(s, "properties");

        if (jt_is(props, JT_OBJECT)) {
            *out = props->first ? props : NULL;
            break;
        }
        ref = jt_get(s, "$ref");
        s = jt_is(ref, JT_STRING) ? glm_pointer(params, ref->s, &no_memory)
                                  : NULL;
    }
    return no_memory ? SEAM_ENOMEM : SEAM_OK;
}

struct glm_param glm_param_of(const struct jt_value *root,
                              const struct jt_value *props, struct seam_str key)
{
    struct glm_param p = { .root = root, .schema = jt_find(props, key) };
    struct walk w = { .root = root };
    uint32_t types = types_of(&w, p.schema);

    if (!w.gave_up && (types & TYPE_KNOWN))
        p.types = types & TYPE_ALL;
    p.listed = w.listed;
    p.no_memory = w.no_memory;
    p.raw_string = p.types == TYPE_STRING && !w.listed_other && !w.gave_up;
    return p;
}

/* ---- Exactness ----------------------------------------------------------- */

/* A walk over the keywords that say which values a parameter may have. */
struct exact {
    const struct jt_value *root;
    const struct jt_value *path[MAX_DEPTH];
    uint32_t depth, steps;
    bool typed;   /* types are named                                        */
    bool other;   /* values are listed that are no strings                  */
    bool twin;    /* a listed string reads as another JSON value            */
    bool lists;   /* anyOf, oneOf, allOf                                    */
    bool bound;   /* values that are no strings are restricted otherwise   */
    bool unknown; /* too much, or circular                                 */
    bool no_memory;
};

static bool is_one_of(struct seam_str key, const char *const *list)
{
    while (*list && !text_is(key, *list))
        list++;
    return *list != NULL;
}

static void exact_listed(struct exact *x, const struct jt_value *v)
{
    int kind;

    if (v->kind != JT_STRING) {
        x->other = true;
        return;
    }
    kind = jt_check(text_trim(v->s), NULL);
    if (kind < 0)
        x->no_memory = true;
    else if (kind && kind != JT_STRING)
        x->twin = true;
}

static void exact_walk(struct exact *x, const struct jt_value *s);

static void exact_member(struct exact *x, const struct jt_value *m)
{
    static const char *const neutral[] = {
        "minLength", "maxLength",  "pattern",  "title",     "description",
        "default",   "examples",   "$schema",  "$id",       "$comment",
        "$defs",     "deprecated", "readOnly", "writeOnly", "definitions",
        "format",    NULL
    };
    static const char *const lists[] = { "anyOf", "oneOf", "allOf", NULL };

    if (is_one_of(m->key, neutral))
        return;
    if (text_is(m->key, "type")) {
        x->typed = true;
    } else if (text_is(m->key, "const")) {
        exact_listed(x, m);
    } else if (text_is(m->key, "enum") && m->kind == JT_ARRAY) {
        for (const struct jt_value *v = m->first; v; v = v->next)
            exact_listed(x, v);
    } else if (is_one_of(m->key, lists) && m->kind == JT_ARRAY) {
        x->lists = true;
        for (const struct jt_value *v = m->first; v; v = v->next)
            exact_walk(x, v);
    } else if (text_is(m->key, "$ref") && m->kind == JT_STRING) {
        exact_walk(x, glm_pointer(x->root, m->s, &x->no_memory));
    } else {
        x->bound = true;
    }
}

static void exact_walk(struct exact *x, const struct jt_value *s)
{
    if (jt_is(s, JT_TRUE) || x->unknown)
        return;
    if (!jt_is(s, JT_OBJECT) || ++x->steps > MAX_STEPS || x->depth == MAX_DEPTH)
        x->unknown = true;
    for (uint32_t i = 0; i < x->depth; i++)
        if (x->path[i] == s)
            x->unknown = true;
    if (x->unknown)
        return;
    x->path[x->depth++] = s;
    for (const struct jt_value *m = s->first; m; m = m->next)
        exact_member(x, m);
    x->depth--;
}

/* Does the schema itself list all values? */
static bool is_list(const struct glm_param *p, bool *no_memory)
{
    const struct jt_value *s = p->schema;

    for (int i = 0; i < MAX_DEPTH && jt_is(s, JT_OBJECT); i++) {
        if (jt_get(s, "const") || jt_is(jt_get(s, "enum"), JT_ARRAY))
            return true;
        s = jt_get(s, "$ref");
        s = jt_is(s, JT_STRING) ? glm_pointer(p->root, s->s, no_memory) : NULL;
    }
    return false;
}

/* Types that text is not to look like when it is read by types. */
static uint32_t looks(uint32_t types)
{
    static const uint32_t look[][2] = {
        { TYPE_NULL, GLM_LOOKS_NULL },     { TYPE_BOOL, GLM_LOOKS_BOOLEAN },
        { TYPE_NUMBER, GLM_LOOKS_NUMBER }, { TYPE_INTEGER, GLM_LOOKS_NUMBER },
        { TYPE_ARRAY, GLM_LOOKS_ARRAY },   { TYPE_OBJECT, GLM_LOOKS_OBJECT },
    };
    uint32_t to = 0;

    for (size_t i = 0; i < sizeof look / sizeof *look; i++)
        if (!types || (types & look[i][0]))
            to |= look[i][1];
    return to;
}

int glm_param_exact(const struct glm_param *p, uint32_t *but)
{
    struct exact x = { .root = p->root };
    bool listed;

    *but = 0;
    if (p->no_memory)
        return SEAM_ENOMEM;
    if (p->raw_string || !p->schema)
        return 1;
    exact_walk(&x, p->schema);
    listed = is_list(p, &x.no_memory);
    if (x.no_memory)
        return SEAM_ENOMEM;
    if (x.unknown)
        return 0;
    /* Its text is read as the string, which a list alone allows as well. */
    if (x.twin)
        return listed && !x.typed && !x.bound && !x.lists;
    if (listed || (p->types && !(p->types & TYPE_STRING)))
        return 1;
    /* Text that looks like another value is read as that, and has to be one. */
    if (x.bound || x.other || (!p->types && x.typed))
        *but = looks(p->types);
    return 1;
}

/* ---- Helpers ------------------------------------------------------------- */

/* b was needed on the way to out. */
static void settle(struct tbuf *b, struct tbuf *out)
{
    if (b->failed)
        out->failed = true;
    tbuf_release(b);
}

/* JT_* of text, or 0. */
static int check(struct seam_str text, bool *real, struct tbuf *out)
{
    int kind = jt_check(text, real);

    if (kind < 0)
        out->failed = true;
    return kind < 0 ? 0 : kind;
}

/* ---- Numbers ------------------------------------------------------------- */

/* A number as people write it, [+-] digits [. digits] [e [+-] digits] with
 * digits on one side of the point at least, as a JSON number. */
static bool number_loose(struct seam_str s, struct tbuf *out, bool *real)
{
    const char *p = s.p, *end = s.p + s.n, *from;
    bool minus = false, any = false;

    *real = false;
    tbuf_clear(out);
    if (p < end && (*p == '+' || *p == '-'))
        minus = *p++ == '-';
    for (from = p; p < end && *p >= '0' && *p <= '9'; p++)
        any = true;
    while (p - from > 1 && *from == '0')
        from++;
    if (minus)
        tbuf_str(out, "-");
    if (p > from)
        tbuf_add(out, from, (size_t)(p - from));
    else
        tbuf_str(out, "0");
    if (p < end && *p == '.') {
        *real = true;
        for (from = ++p; p < end && *p >= '0' && *p <= '9'; p++)
            any = true;
        tbuf_str(out, ".");
        if (p > from)
            tbuf_add(out, from, (size_t)(p - from));
        else
            tbuf_str(out, "0");
    }
    if (any && p < end && (*p == 'e' || *p == 'E')) {
        *real = true;
        tbuf_add(out, p++, 1);
        if (p < end && (*p == '+' || *p == '-'))
            tbuf_add(out, p++, 1);
        if (p == end)
            return false;
        while (p < end && *p >= '0' && *p <= '9')
            tbuf_add(out, p++, 1);
    }
    if (!any || p < end || out->failed)
        return false;
    if (out->n == 2 && out->p[0] == '-' && out->p[1] == '0') {
        tbuf_clear(out);
        tbuf_str(out, "0");
    }
    return check(tbuf_view(out), NULL, out) == JT_NUMBER;
}

/* The digits of a JSON number whose value is an integer. */
static bool number_integral(struct seam_str s, struct tbuf *out)
{
    const char *p = s.p, *end = s.p + s.n;
    int64_t exp = 0, given = 0;
    bool minus = *p == '-', down = false, point = false;
    size_t lead = 0;

    tbuf_clear(out);
    p += minus;
    for (; p < end && *p != 'e' && *p != 'E'; p++) {
        if (*p == '.')
            point = true;
        else
            tbuf_add(out, p, 1);
        if (point && *p != '.')
            exp--;
    }
    if (p < end && ++p < end && (*p == '+' || *p == '-'))
        down = *p++ == '-';
    /* Doubles end near 10^308; what is beyond is 0 or no integer. */
    for (; p < end; p++)
        if (given < 1000000000)
            given = given * 10 + (*p - '0');
    exp += down ? -given : given;
    while (out->n && out->p[out->n - 1] == '0') {
        out->n--;
        exp++;
    }
    if (out->n == 0) {
        tbuf_str(out, "0");
        return !out->failed;
    }
    if (exp < 0 || exp > 400)
        return false;
    for (; exp > 0; exp--)
        tbuf_str(out, "0");
    while (lead < out->n && out->p[lead] == '0')
        lead++;
    if (out->failed)
        return false;
    memmove(out->p, out->p + lead, out->n - lead);
    out->n -= lead;
    if (minus) {
        tbuf_str(out, "-");
        if (out->failed)
            return false;
        memmove(out->p + 1, out->p, out->n - 1);
        out->p[0] = '-';
    }
    return true;
}

/* ---- Python literals ----------------------------------------------------- */

/* Lists, tuples, dicts, strings, numbers, True, False and None, as a model that
 * thinks in Python writes them; JSON's words are taken too. */
struct python {
    const char *p, *end;
    struct tbuf *out;
    uint32_t depth;
};

static void py_blank(struct python *y)
{
    while (y->p < y->end && text_is_ws(*y->p))
        y->p++;
}

static bool py_hex(struct python *y, int n, uint32_t *cp)
{
    *cp = 0;
    for (; n > 0; n--) {
        char c = y->p < y->end ? *y->p++ : 0;

        if (c >= '0' && c <= '9')
            *cp = *cp << 4 | (uint32_t)(c - '0');
        else if ((c | 32) >= 'a' && (c | 32) <= 'f')
            *cp = *cp << 4 | (uint32_t)((c | 32) - 'a' + 10);
        else
            return false;
    }
    return *cp <= 0x10ffff && (*cp < 0xd800 || *cp > 0xdfff);
}

/* Into b: what a backslash and the character behind it stand for. */
static bool py_escape(struct python *y, struct tbuf *b)
{
    static const char from[] = "abfnrtv\\'\"", to[] = "\a\b\f\n\r\t\v\\'\"";
    const char *at;
    uint32_t cp;
    char c;

    if (y->p == y->end)
        return false;
    c = *y->p++;
    if (c == 'x' || c == 'u' || c == 'U') {
        if (!py_hex(y, c == 'x' ? 2 : c == 'u' ? 4 : 8, &cp))
            return false;
        tbuf_utf8(b, cp);
        return true;
    }
    if (c == '\n')
        return true;
    at = c ? strchr(from, c) : NULL;
    if (at) {
        tbuf_add(b, to + (at - from), 1);
    } else {
        /* Python keeps the backslash of an escape it does not know. */
        tbuf_str(b, "\\");
        tbuf_add(b, &c, 1);
    }
    return true;
}

static bool py_string(struct python *y)
{
    struct tbuf b = { 0 };
    char quote = *y->p++;
    bool ok = false;

    while (y->p < y->end && *y->p != quote) {
        char c = *y->p++;

        if (c != '\\')
            tbuf_add(&b, &c, 1);
        else if (!py_escape(y, &b))
            goto out;
    }
    ok = y->p < y->end && !b.failed;
    if (ok) {
        y->p++;
        tbuf_json(y->out, b.p, b.n);
    }
out:
    settle(&b, y->out);
    return ok;
}

static bool py_word(struct python *y)
{
    static const char *const words[][2] = {
        { "True", "true" }, { "False", "false" }, { "None", "null" },
        { "true", "true" }, { "false", "false" }, { "null", "null" },
    };

    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t n = strlen(words[i][0]);

        if ((size_t)(y->end - y->p) >= n && !memcmp(y->p, words[i][0], n)) {
            y->p += n;
            tbuf_str(y->out, words[i][1]);
            return true;
        }
    }
    return false;
}

static bool py_number(struct python *y)
{
    const char *from = y->p;
    struct tbuf b = { 0 };
    bool real, ok;

    while (y->p < y->end && strchr("+-.0123456789eE", *y->p) && *y->p)
        y->p++;
    ok = number_loose((struct seam_str){ from, (uint64_t)(y->p - from) }, &b,
                      &real);
    if (ok)
        tbuf_add(y->out, b.p, b.n);
    settle(&b, y->out);
    return ok;
}

static bool py_value(struct python *y);

/* The key of a dict; JSON has only strings for keys. */
static bool py_key(struct python *y)
{
    bool ok;

    if (y->p < y->end && (*y->p == '\'' || *y->p == '"'))
        return py_string(y);
    tbuf_str(y->out, "\"");
    ok = py_word(y) || py_number(y);
    tbuf_str(y->out, "\"");
    return ok;
}

static bool py_entries(struct python *y, char close)
{
    bool dict = close == '}', first = true;

    if (y->depth == JT_DEPTH)
        return false;
    y->depth++;
    y->p++;
    tbuf_str(y->out, dict ? "{" : "[");
    for (;;) {
        py_blank(y);
        if (y->p < y->end && *y->p == close)
            break;
        if (!first)
            tbuf_str(y->out, ", ");
        first = false;
        if (dict) {
            if (!py_key(y))
                return false;
            py_blank(y);
            if (y->p == y->end || *y->p++ != ':')
                return false;
            tbuf_str(y->out, ": ");
        }
        if (!py_value(y))
            return false;
        py_blank(y);
        if (y->p < y->end && *y->p == ',')
            y->p++;
        else if (y->p == y->end || *y->p != close)
            return false;
    }
    y->p++;
    y->depth--;
    tbuf_str(y->out, dict ? "}" : "]");
    return true;
}

static bool py_value(struct python *y)
{
    py_blank(y);
    if (y->p == y->end)
        return false;
    switch (*y->p) {
    case '[':
        return py_entries(y, ']');
    case '(':
        return py_entries(y, ')');
    case '{':
        return py_entries(y, '}');
    case '\'':
    case '"':
        return py_string(y);
    default:
        return py_word(y) || py_number(y);
    }
}

/* The list or dict that t is in Python, as JSON. */
static bool python_literal(struct seam_str t, uint32_t types, struct tbuf *out)
{
    struct python y = { .p = t.p, .end = t.p + t.n, .out = out };
    uint32_t type = 0;

    tbuf_clear(out);
    if (t.n)
        type = t.p[0] == '{'                    ? TYPE_OBJECT
               : t.p[0] == '[' || t.p[0] == '(' ? TYPE_ARRAY
                                                : 0;
    if (!(type & types) || !py_value(&y) || y.p < y.end || out->failed)
        return false;
    return check(tbuf_view(out), NULL, out) != 0;
}

/* ---- Values -------------------------------------------------------------- */

static bool is_word(struct seam_str s, const char *lower)
{
    if (s.n != strlen(lower))
        return false;
    for (size_t i = 0; i < s.n; i++)
        if ((s.p[i] | 32) != lower[i])
            return false;
    return true;
}

/* A number that JSON does not know in this form; a real is taken for an integer
 * when it is one and only integers are wanted. */
static bool repair_number(uint32_t types, struct seam_str t, struct tbuf *out)
{
    struct tbuf b = { 0 };
    bool real = false, ok = false;

    if (!(types & TYPE_NUMBER) || !number_loose(t, &b, &real))
        goto out;
    if (real && !(types & TYPE_REAL)) {
        ok = number_integral(tbuf_view(&b), out);
    } else {
        tbuf_add(out, b.p, b.n);
        ok = true;
    }
out:
    settle(&b, out);
    return ok;
}

static bool repair_bool(uint32_t types, struct seam_str t, struct tbuf *out)
{
    bool digit = !(types & TYPE_NUMBER);
    bool yes = is_word(t, "true") || (digit && text_is(t, "1"));
    bool no = is_word(t, "false") || (digit && text_is(t, "0"));

    if (!(types & TYPE_BOOL) || (!yes && !no))
        return false;
    tbuf_str(out, yes ? "true" : "false");
    return true;
}

static bool value_of_type(uint32_t types, struct seam_str t, bool quoted,
                          struct tbuf *out);

/* t without its quotes, as JSON has them or else as they stand. */
static bool repair_quoted(uint32_t types, struct seam_str t, struct tbuf *out)
{
    struct seam_str inner = { t.p + 1, t.n - 2 };
    struct jt_doc doc = { 0 };
    int rc = SEAM_EDATA;
    bool ok = false;

    if (t.n < 2 || t.p[0] != t.p[t.n - 1] || (t.p[0] != '"' && t.p[0] != '\''))
        return false;
    if (t.p[0] == '"')
        rc = jt_read(&doc, t, "value", NULL);
    if (rc == SEAM_ENOMEM)
        out->failed = true;
    else
        ok = value_of_type(types, text_trim(rc ? inner : doc.root->s), true,
                           out);
    jt_release(&doc);
    return ok;
}

/* Append t, trimmed, as a value of one of types, which strings are not among;
 * false, nothing appended, when it can be read as none. */
static bool value_of_type(uint32_t types, struct seam_str t, bool quoted,
                          struct tbuf *out)
{
    struct tbuf b = { 0 };
    bool real = false, ok;
    int kind = check(t, &real, out);

    if (type_of_kind(kind, real) & types) {
        tbuf_add(out, t.p, t.n);
        return true;
    }
    ok = kind == JT_NUMBER && (types & TYPE_INTEGER) && number_integral(t, &b);
    if (!ok && !quoted)
        ok = repair_quoted(types, t, &b);
    if (!ok && (types & TYPE_NULL) &&
        (is_word(t, "null") || is_word(t, "none"))) {
        tbuf_clear(&b);
        tbuf_str(&b, "null");
        ok = true;
    }
    if (!ok) {
        tbuf_clear(&b);
        ok = repair_number(types, t, &b) || repair_bool(types, t, &b) ||
             python_literal(t, types, &b);
    }
    if (ok)
        tbuf_add(out, b.p, b.n);
    settle(&b, out);
    return ok;
}

/* True when raw is one of the values the schema lists; then it is appended. */
static bool value_listed(const struct glm_param *param, struct seam_str raw,
                         struct seam_str t, struct tbuf *out)
{
    struct walk w = { .root = param->root, .raw = &raw };
    struct jt_doc doc = { 0 };
    int rc;

    if (!param->listed)
        return false;
    rc = t.n ? jt_read(&doc, t, "value", NULL) : SEAM_EDATA;
    if (rc == SEAM_ENOMEM)
        out->failed = true;
    w.value = rc ? NULL : doc.root;
    types_of(&w, param->schema);
    if (w.no_memory)
        out->failed = true;
    if (w.is_string)
        tbuf_json(out, raw.p, raw.n);
    else if (w.is_other)
        tbuf_add(out, t.p, t.n);
    jt_release(&doc);
    return w.is_string || w.is_other;
}

void glm_value(const struct glm_param *param, struct seam_str raw,
               struct tbuf *out)
{
    struct seam_str t = text_trim(raw);
    uint32_t types = param->types, type;
    bool real = false, string;
    int kind;

    if (value_listed(param, raw, t, out) || out->failed)
        return;
    if (types == TYPE_STRING) {
        tbuf_json(out, raw.p, raw.n);
        return;
    }
    kind = check(t, &real, out);
    type = type_of_kind(kind, real);
    if (types == 0)
        string = !kind || kind == JT_STRING;
    else if (types & TYPE_STRING)
        string = kind == JT_STRING || !(type & types) || t.n != raw.n;
    else if (value_of_type(types, t, false, out))
        return;
    else
        string = !kind;
    if (string)
        tbuf_json(out, raw.p, raw.n);
    else
        tbuf_add(out, t.p, t.n);
}
