/* Reading JSON schemas: which keywords there are, where references lead, what
 * two schemas allow together, and what they certainly do not. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/grammar/schema.h"

/* References and merges inside each other. */
#define MAX_HOPS 64

/* ---- Places -------------------------------------------------------------- */

void g_place_text(const struct g_place *p, char *out, size_t cap)
{
    const struct g_place *list[64];
    size_t n = 0, at = 0;

    /* The inner part of a place that is too deep to be told. */
    for (; p && n < sizeof list / sizeof *list; p = p->up)
        list[n++] = p;
    out[0] = 0;
    if (p)
        at = (size_t)snprintf(out, cap, "...");
    while (n-- && at < cap) {
        const char *dot = at && list[n]->key && list[n]->key[0] ? "." : "";
        int more = list[n]->key
                       ? snprintf(out + at, cap - at, "%s%s", dot, list[n]->key)
                       : snprintf(out + at, cap - at, "[%zu]", list[n]->index);

        if (more < 0)
            break;
        at += (size_t)more;
    }
}

int g_fail_place(struct g_build *b, const struct g_place *p, const char *key,
                 const char *fmt, ...)
{
    struct g_place in = { .up = p, .key = key };
    char where[300], what[200];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    g_place_text(key ? &in : p, where, sizeof where);
    return g_fail(b, SEAM_EDATA, "%s: %s", where, what);
}

/* ---- Keywords ------------------------------------------------------------ */

enum value_kind {
    ANY_VALUE,
    STRING,
    NUMBER,
    COUNT,
    BOOLEAN,
    SCHEMA,
    SCHEMAS, /* array of them, not empty */
    ITEMS,   /* a schema, or an array of them */
    SCHEMAS_BY_NAME,
    STRINGS,
    ARRAY,
    TYPE,
    REFUSED
};

struct keyword {
    const char *name;
    enum value_kind kind;
    bool is_note;   /* says nothing about values */
    uint32_t types; /* about values of which it says something */
};

static const struct keyword keywords[] = {
    { "type", TYPE, false, 0 },
    { "enum", ARRAY, false, 0 },
    { "const", ANY_VALUE, false, 0 },
    { "anyOf", SCHEMAS, false, 0 },
    { "oneOf", SCHEMAS, false, 0 },
    { "allOf", SCHEMAS, false, 0 },
    { "$ref", STRING, false, 0 },
    { "properties", SCHEMAS_BY_NAME, false, G_TYPE_OBJECT },
    { "required", STRINGS, false, G_TYPE_OBJECT },
    { "additionalProperties", SCHEMA, false, G_TYPE_OBJECT },
    { "items", ITEMS, false, G_TYPE_ARRAY },
    { "additionalItems", SCHEMA, false, G_TYPE_ARRAY },
    { "prefixItems", SCHEMAS, false, G_TYPE_ARRAY },
    { "minItems", COUNT, false, G_TYPE_ARRAY },
    { "maxItems", COUNT, false, G_TYPE_ARRAY },
    { "uniqueItems", BOOLEAN, false, G_TYPE_ARRAY },
    { "minLength", COUNT, false, G_TYPE_STRING },
    { "maxLength", COUNT, false, G_TYPE_STRING },
    { "pattern", STRING, false, G_TYPE_STRING },
    { "format", STRING, false, G_TYPE_STRING },
    { "minimum", NUMBER, false, G_TYPE_NUMBER },
    { "maximum", NUMBER, false, G_TYPE_NUMBER },
    { "exclusiveMinimum", NUMBER, false, G_TYPE_NUMBER },
    { "exclusiveMaximum", NUMBER, false, G_TYPE_NUMBER },
    { "multipleOf", NUMBER, false, G_TYPE_NUMBER },
    { "propertyNames", SCHEMA, true, 0 }, /* only where it says nothing */
    { "$defs", SCHEMAS_BY_NAME, true, 0 },
    { "definitions", SCHEMAS_BY_NAME, true, 0 },
    { "title", ANY_VALUE, true, 0 },
    { "description", ANY_VALUE, true, 0 },
    { "default", ANY_VALUE, true, 0 },
    { "examples", ANY_VALUE, true, 0 },
    { "$schema", ANY_VALUE, true, 0 },
    { "$id", ANY_VALUE, true, 0 },
    { "$comment", ANY_VALUE, true, 0 },
    { "deprecated", ANY_VALUE, true, 0 },
    { "readOnly", ANY_VALUE, true, 0 },
    { "writeOnly", ANY_VALUE, true, 0 },
};

static const struct keyword *keyword_find(const char *name)
{
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++)
        if (!strcmp(keywords[i].name, name))
            return &keywords[i];
    return NULL;
}

uint32_t g_schema_about(const json_t *v)
{
    uint32_t bits = 0;
    const char *key;
    json_t *x;

    json_object_foreach(g_loose(v), key, x)
    {
        const struct keyword *k = keyword_find(key);

        bits |= k ? k->types : 0;
    }
    return bits;
}

static const struct {
    const char *name;
    uint32_t type;
} types[] = {
    { "null", G_TYPE_NULL },       { "boolean", G_TYPE_BOOLEAN },
    { "integer", G_TYPE_INTEGER }, { "number", G_TYPE_NUMBER | G_TYPE_INTEGER },
    { "string", G_TYPE_STRING },   { "array", G_TYPE_ARRAY },
    { "object", G_TYPE_OBJECT },
};
#define N_TYPES (sizeof types / sizeof *types)

static bool is_text(const json_t *v)
{
    return json_is_string(v) &&
           strlen(json_string_value(v)) == json_string_length(v);
}

static uint32_t type_named(const json_t *v)
{
    for (size_t i = 0; is_text(v) && i < N_TYPES; i++)
        if (!strcmp(json_string_value(v), types[i].name))
            return types[i].type;
    return 0;
}

uint32_t g_schema_types(const json_t *v)
{
    const json_t *type = json_object_get(v, "type"), *x;
    uint32_t bits = 0;
    size_t i;

    if (!type)
        return G_TYPE_ALL;
    if (json_is_string(type))
        return type_named(type);
    json_array_foreach(type, i, x)
    {
        bits |= type_named(x);
    }
    return bits;
}

static bool is_schema(const json_t *v)
{
    return json_is_object(v) || json_is_boolean(v);
}

/* What a keyword's value should have been, or NULL when it is that. */
static const char *value_wrong(const struct keyword *k, const json_t *v)
{
    const json_t *x;
    const char *name;
    size_t i;

    switch (k->kind) {
    case STRING:
        return is_text(v) ? NULL : "expected a string without U+0000";
    case NUMBER:
        return json_is_number(v) ? NULL : "expected a number";
    case BOOLEAN:
        return json_is_boolean(v) ? NULL : "expected a boolean";
    case COUNT:
        if (json_is_integer(v) && json_integer_value(v) >= 0)
            return NULL;
        if (json_is_real(v) && json_real_value(v) >= 0 &&
            json_real_value(v) == floor(json_real_value(v)))
            return NULL;
        return "expected an integer, 0 or more";
    case SCHEMA:
        return is_schema(v) ? NULL : "expected a schema";
    case ITEMS:
    case SCHEMAS:
        if (k->kind == ITEMS && !json_is_array(v))
            return is_schema(v) ? NULL : "expected a schema";
        if (k->kind == SCHEMAS && !json_array_size(v))
            return "expected an array of schemas, not empty";
        json_array_foreach(v, i, x)
        {
            if (!is_schema(x))
                return "expected an array of schemas";
        }
        return NULL;
    case SCHEMAS_BY_NAME:
        if (!json_is_object(v))
            return "expected an object of schemas";
        json_object_foreach(g_loose(v), name, x)
        {
            if (!is_schema(x))
                return "expected an object of schemas";
        }
        return NULL;
    case STRINGS:
        if (!json_is_array(v))
            return "expected an array of strings";
        json_array_foreach(v, i, x)
        {
            if (!is_text(x))
                return "expected an array of strings without U+0000";
        }
        return NULL;
    case ARRAY:
        return json_array_size(v) ? NULL : "expected an array, not empty";
    case TYPE:
        if (json_is_string(v))
            return type_named(v) ? NULL : "not a type of JSON";
        if (!json_array_size(v))
            return "expected a type, or an array of types";
        json_array_foreach(v, i, x)
        {
            if (!type_named(x))
                return "not a type of JSON";
        }
        return NULL;
    default:
        return NULL;
    }
}

/* Does every name conform?  So it does to {"type": "string"}, which generators
 * of schemas write for maps. */
static bool is_any_name(const json_t *v)
{
    const char *type = json_string_value(json_object_get(v, "type"));

    return json_is_true(v) ||
           (json_is_object(v) &&
            json_object_size(v) == (type && !strcmp(type, "string")));
}

/* Does the whole say that it is of one of these drafts? */
static bool is_draft(const struct g_schema *s, const char *a, const char *b)
{
    const char *draft = json_string_value(json_object_get(s->root, "$schema"));

    return draft && (strstr(draft, a) || strstr(draft, b));
}

/* What is wrong with items or additionalItems as drafts differ, or NULL. */
static const char *tuple_wrong(const struct g_schema *s, const json_t *v,
                               const char *key)
{
    const json_t *items = json_object_get(v, "items");
    bool tuple = json_is_array(items);

    if (json_object_get(v, "prefixItems"))
        return tuple || *key == 'a' ? "not supported beside prefixItems" : NULL;
    if (tuple && is_draft(s, "/2020-12/", "/next/"))
        return "not supported as an array in the draft that $schema names; use "
               "prefixItems";
    /* It says nothing then, which who wrote it may not know. */
    if (!items && *key == 'a' && !is_draft(s, "/draft-0", "/2019-09/"))
        return "not supported without items";
    return NULL;
}

/* A real has no more digits than this that are surely those it was read from. */
#define REAL_DIGITS 1000000000000000 /* 15 */

/* Is there an integer in v that is beyond 64 bits?  It became a real, whose
 * digits may no longer be those that were written; a few are. */
static bool has_big(struct g_schema *s, const json_t *v)
{
    struct g_decimal d = { 0 };
    const char *key;
    json_t *x;
    size_t i;

    if (!g_work(s->b, 1))
        return false;
    if (json_is_real(v))
        return fabs(json_real_value(v)) >= 0x1p63 &&
               (!g_decimal_of(json_real_value(v), &d) ||
                d.digits >= REAL_DIGITS || d.digits <= -REAL_DIGITS);
    json_array_foreach(g_loose(v), i, x)
    {
        if (has_big(s, x))
            return true;
    }
    json_object_foreach(g_loose(v), key, x)
    {
        if (has_big(s, x))
            return true;
    }
    return false;
}

int g_schema_check(struct g_schema *s, const json_t *v, const struct g_place *p)
{
    const char *key, *wrong;
    json_t *x;

    json_object_foreach(g_loose(v), key, x)
    {
        const struct keyword *k = keyword_find(key);

        if (!g_work(s->b, 20))
            return s->b->rc;
        if (!k)
            return g_fail_place(s->b, p, key, "not supported");
        wrong = value_wrong(k, x);
        if (wrong)
            return g_fail_place(s->b, p, key, "%s", wrong);
        if ((!strcmp(key, "const") || !strcmp(key, "enum")) && has_big(s, x))
            return g_fail_place(s->b, p, key,
                                "numbers beyond 64 bits with more than 15 "
                                "digits are not supported");
        if (!strcmp(key, "items") || !strcmp(key, "additionalItems")) {
            wrong = tuple_wrong(s, v, key);
            if (wrong)
                return g_fail_place(s->b, p, key, "%s", wrong);
        }
        if (!strcmp(key, "$id") && v != s->root)
            return g_fail_place(s->b, p, key,
                                "not supported except in the outermost schema");
        if (!strcmp(key, "propertyNames") && !is_any_name(x))
            return g_fail_place(s->b, p, key,
                                "not supported where it restricts names");
        if (!strcmp(key, "uniqueItems") && json_is_true(x))
            return g_fail_place(s->b, p, key, "true is not supported");
    }
    return 0;
}

bool g_schema_says(const json_t *v, const char *but)
{
    const char *key;
    json_t *x;

    json_object_foreach(g_loose(v), key, x)
    {
        const struct keyword *k = keyword_find(key);

        if (strcmp(key, but) && !(k && k->is_note))
            return true;
    }
    return false;
}

/* ---- Values -------------------------------------------------------------- */

bool g_json_same(const json_t *a, const json_t *b)
{
    const char *key;
    json_t *x;
    size_t i;

    if (json_is_number(a) && json_is_number(b)) {
        if (json_is_integer(a) && json_is_integer(b))
            return json_integer_value(a) == json_integer_value(b);
        return json_number_value(a) == json_number_value(b);
    }
    if (json_typeof(a) != json_typeof(b))
        return false;
    if (json_is_array(a)) {
        if (json_array_size(a) != json_array_size(b))
            return false;
        json_array_foreach(g_loose(a), i, x)
        {
            if (!g_json_same(x, json_array_get(b, i)))
                return false;
        }
        return true;
    }
    if (json_is_object(a)) {
        if (json_object_size(a) != json_object_size(b))
            return false;
        json_object_foreach(g_loose(a), key, x)
        {
            const json_t *y = json_object_get(b, key);

            if (!y || !g_json_same(x, y))
                return false;
        }
        return true;
    }
    return json_equal(a, b);
}

static uint32_t value_type(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_NULL:
        return G_TYPE_NULL;
    case JSON_TRUE:
    case JSON_FALSE:
        return G_TYPE_BOOLEAN;
    case JSON_INTEGER:
        return G_TYPE_INTEGER;
    case JSON_REAL:
        return json_real_value(v) == floor(json_real_value(v)) ? G_TYPE_INTEGER
                                                               : G_TYPE_NUMBER;
    case JSON_STRING:
        return G_TYPE_STRING;
    case JSON_ARRAY:
        return G_TYPE_ARRAY;
    case JSON_OBJECT:
        return G_TYPE_OBJECT;
    }
    return 0;
}

static size_t text_chars(const json_t *v)
{
    const char *p = json_string_value(v);
    size_t n = json_string_length(v), count = 0;

    for (size_t i = 0; i < n; i++)
        count += ((unsigned char)p[i] & 0xc0) != 0x80;
    return count;
}

static int keyword_admits(const struct keyword *k, const json_t *arg,
                          const json_t *v)
{
    double n = json_number_value(v), at = json_number_value(arg);
    uint32_t type = value_type(v);
    const json_t *x;
    size_t i;

    if (k->is_note)
        return 1;
    if (!strcmp(k->name, "type"))
        return 1; /* looked at once for all */
    if (!strcmp(k->name, "const"))
        return g_json_same(arg, v);
    if (!strcmp(k->name, "enum")) {
        json_array_foreach(arg, i, x)
        {
            if (g_json_same(x, v))
                return 1;
        }
        return 0;
    }
    if (k->types &&
        !(k->types & (type == G_TYPE_INTEGER ? type | G_TYPE_NUMBER : type)))
        return 1;
    if (!strcmp(k->name, "minimum"))
        return n >= at;
    if (!strcmp(k->name, "maximum"))
        return n <= at;
    if (!strcmp(k->name, "exclusiveMinimum"))
        return n > at;
    if (!strcmp(k->name, "exclusiveMaximum"))
        return n < at;
    if (!strcmp(k->name, "minLength"))
        return (double)text_chars(v) >= at;
    if (!strcmp(k->name, "maxLength"))
        return (double)text_chars(v) <= at;
    if (!strcmp(k->name, "minItems"))
        return (double)json_array_size(v) >= at;
    if (!strcmp(k->name, "maxItems"))
        return (double)json_array_size(v) <= at;
    if (!strcmp(k->name, "uniqueItems"))
        return 1;
    if (!strcmp(k->name, "required")) {
        json_array_foreach(arg, i, x)
        {
            if (!json_object_get(v, json_string_value(x)))
                return 0;
        }
        return 1;
    }
    if (!strcmp(k->name, "additionalProperties") && json_is_true(arg))
        return 1;
    return -1;
}

int g_schema_admits(const json_t *schema, const json_t *v, bool listed)
{
    uint32_t type = value_type(v), allowed;
    const char *key;
    json_t *x;
    int all = 1;

    if (json_is_boolean(schema))
        return json_is_true(schema);
    allowed = g_schema_types(schema);
    if (!(allowed & type) &&
        !(type == G_TYPE_INTEGER && (allowed & G_TYPE_NUMBER)))
        return 0;
    json_object_foreach(g_loose(schema), key, x)
    {
        const struct keyword *k = keyword_find(key);
        int one;

        if (listed && (!strcmp(key, "enum") || !strcmp(key, "const")))
            continue;
        one = k ? keyword_admits(k, x, v) : -1;
        if (!one)
            return 0;
        if (one < 0)
            all = -1;
    }
    return all;
}

/* ---- References ---------------------------------------------------------- */

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* One part of a JSON pointer in a URI fragment, decoded.  Returns where the
 * next begins, or NULL when it is malformed or too long. */
static const char *pointer_part(const char *p, char *out, size_t cap)
{
    size_t n = 0;

    for (p++; *p && *p != '/'; p++) {
        char c = *p;

        if (c == '%') {
            int hi = hex_value(p[1]), lo = hi < 0 ? -1 : hex_value(p[2]);

            if (lo < 0 || !(16 * hi + lo))
                return NULL;
            c = (char)(16 * hi + lo);
            p += 2;
        }
        if (c == '~') {
            if (p[1] != '0' && p[1] != '1')
                return NULL;
            c = *++p == '0' ? '~' : '/';
        }
        if (n + 1 >= cap)
            return NULL;
        out[n++] = c;
    }
    out[n] = 0;
    return p;
}

const json_t *g_schema_target(struct g_schema *s, const json_t *ref,
                              const struct g_place *p)
{
    const char *at = json_string_value(ref);
    const json_t *v = s->root;
    char part[512];

    if (at[0] != '#' || (at[1] && at[1] != '/')) {
        g_fail_place(s->b, p, "$ref",
                     "not supported except within the schema (\"#/...\")");
        return NULL;
    }
    for (at++; v && *at;) {
        if (!g_work(s->b, 20))
            return NULL;
        at = pointer_part(at, part, sizeof part);
        if (!at) {
            v = NULL;
        } else if (json_is_array(v)) {
            char *end;
            unsigned long i = strtoul(part, &end, 10);

            v = part[0] >= '0' && part[0] <= '9' && !*end ? json_array_get(v, i)
                                                          : NULL;
        } else {
            v = json_object_get(v, part);
        }
        if (!at)
            break;
    }
    if (!v || !is_schema(v)) {
        g_fail_place(s->b, p, "$ref", "leads to no schema");
        return NULL;
    }
    return v;
}

/* ---- Merging ------------------------------------------------------------- */

/* Keep v until the compiler is done; NULL and a failure without memory. */
static json_t *made(struct g_schema *s, json_t *v)
{
    if (!v || json_array_append_new(s->made, v)) {
        g_fail(s->b, SEAM_ENOMEM, "grammar: out of memory");
        return NULL;
    }
    return v;
}

/* jansson's own copy does not say when it ran out of memory half-way. */
static json_t *copy_of(struct g_schema *s, const json_t *v)
{
    json_t *copy = json_object(), *x;
    const char *key;

    json_object_foreach(g_loose(v), key, x)
    {
        if (json_object_set(copy, key, x)) {
            json_decref(copy);
            copy = NULL;
            break;
        }
    }
    return made(s, copy);
}

static int set(struct g_schema *s, json_t *object, const char *key, json_t *v)
{
    if (!v || json_object_set_new(object, key, v))
        return g_fail(s->b, SEAM_ENOMEM, "grammar: out of memory");
    return 0;
}

json_t *g_schema_without(struct g_schema *s, const json_t *v, const char *key)
{
    json_t *copy = copy_of(s, v);

    if (copy)
        json_object_del(copy, key);
    return copy;
}

/* A schema for what both allow, to be merged when it is looked at.  The same for
 * the same two, so that recursive schemas that apply together come to an end. */
static json_t *both(struct g_schema *s, json_t *a, json_t *b)
{
    char key[48];
    json_t *v;

    if (json_is_true(a) || (json_is_object(a) && !json_object_size(a)))
        return json_incref(b);
    if (json_is_true(b) || (json_is_object(b) && !json_object_size(b)) ||
        a == b)
        return json_incref(a);
    if (json_is_false(a) || json_is_false(b))
        return json_false();
    snprintf(key, sizeof key, "%p & %p", (void *)a, (void *)b);
    v = json_object_get(s->memo, key);
    if (v)
        return json_incref(v);
    v = json_pack("{s:[O,O]}", "allOf", a, b);
    if (v && json_object_set(s->memo, key, v)) {
        json_decref(v);
        return NULL;
    }
    return v;
}

static json_t *meet_types(uint32_t bits)
{
    json_t *list = json_array();

    for (size_t i = 0; list && i < N_TYPES; i++) {
        bool integer = types[i].type == G_TYPE_INTEGER;

        if ((types[i].type & bits) != types[i].type ||
            (integer && (bits & G_TYPE_NUMBER)))
            continue;
        if (json_array_append_new(list, json_string(types[i].name))) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

/* The values that const or else enum lists. */
static size_t n_values(const json_t *v)
{
    return json_object_get(v, "const")
               ? 1
               : json_array_size(json_object_get(v, "enum"));
}

static json_t *value_at(const json_t *v, size_t i)
{
    json_t *one = json_object_get(v, "const");

    return one ? one : json_array_get(json_object_get(v, "enum"), i);
}

static bool lists(const json_t *v, const json_t *value)
{
    for (size_t i = 0; i < n_values(v); i++)
        if (g_json_same(value_at(v, i), value))
            return true;
    return false;
}

static int meet_values(struct g_schema *s, json_t *out, const json_t *a,
                       const json_t *b)
{
    json_t *list;

    if (!n_values(a) || !n_values(b))
        return 0;
    list = json_array();
    for (size_t i = 0; i < n_values(a) && g_work(s->b, n_values(b)); i++)
        if (lists(b, value_at(a, i)) && json_array_append(list, value_at(a, i)))
            g_fail(s->b, SEAM_ENOMEM, "grammar: out of memory");
    json_object_del(out, "const");
    return set(s, out, "enum", list);
}

/* What additional members of v may be: a schema, borrowed; true when it does
 * not say. */
static json_t *more_of(const json_t *v, const char *key)
{
    json_t *x = json_object_get(v, key);

    return x ? x : json_true();
}

static int meet_properties(struct g_schema *s, json_t *out, const json_t *a,
                           const json_t *b)
{
    json_t *pa = json_object_get(a, "properties");
    json_t *pb = json_object_get(b, "properties");
    json_t *ma = more_of(a, "additionalProperties");
    json_t *mb = more_of(b, "additionalProperties");
    json_t *list, *x, *y;
    const char *key;

    if (json_object_get(a, "additionalProperties") ||
        json_object_get(b, "additionalProperties"))
        set(s, out, "additionalProperties", both(s, ma, mb));
    if (!pa && !pb)
        return s->b->rc;
    list = json_object();
    json_object_foreach(pa, key, x)
    {
        if (!g_work(s->b, 20))
            break;
        y = json_object_get(pb, key);
        if (set(s, list, key, both(s, x, y ? y : mb)))
            break;
    }
    json_object_foreach(pb, key, x)
    {
        if (!g_work(s->b, 20))
            break;
        if (!json_object_get(pa, key) && set(s, list, key, both(s, ma, x)))
            break;
    }
    return set(s, out, "properties", list);
}

json_t *g_schema_prefix(const json_t *v)
{
    json_t *items = json_object_get(v, "items");

    return json_is_array(items) ? items : json_object_get(v, "prefixItems");
}

json_t *g_schema_items(const json_t *v)
{
    json_t *items = json_object_get(v, "items");

    return json_is_array(items) ? json_object_get(v, "additionalItems") : items;
}

static int meet_items(struct g_schema *s, json_t *out, const json_t *a,
                      const json_t *b)
{
    json_t *pa = g_schema_prefix(a), *pb = g_schema_prefix(b), *list;
    json_t *ia = g_schema_items(a), *ib = g_schema_items(b);
    bool said = ia || ib;
    size_t n = json_array_size(pa);

    ia = ia ? ia : json_true();
    ib = ib ? ib : json_true();
    /* As the latest draft has it. */
    json_object_del(out, "items");
    json_object_del(out, "additionalItems");
    if (said)
        set(s, out, "items", both(s, ia, ib));
    if (!pa && !pb)
        return s->b->rc;
    if (json_array_size(pb) > n)
        n = json_array_size(pb);
    list = json_array();
    for (size_t i = 0; i < n && g_work(s->b, 20); i++) {
        json_t *x = json_array_get(pa, i), *y = json_array_get(pb, i);

        if (json_array_append_new(list, both(s, x ? x : ia, y ? y : ib)))
            g_fail(s->b, SEAM_ENOMEM, "grammar: out of memory");
    }
    return set(s, out, "prefixItems", list);
}

/* The tighter of two limits. */
static int meet_limits(struct g_schema *s, json_t *out, const json_t *a,
                       const json_t *b)
{
    static const struct {
        const char *name;
        bool upper;
    } limit[] = {
        { "minimum", false },          { "maximum", true },
        { "exclusiveMinimum", false }, { "exclusiveMaximum", true },
        { "minLength", false },        { "maxLength", true },
        { "minItems", false },         { "maxItems", true },
    };

    for (size_t i = 0; i < sizeof limit / sizeof *limit; i++) {
        json_t *x = json_object_get(a, limit[i].name);
        json_t *y = json_object_get(b, limit[i].name);

        if (!x || !y)
            continue;
        if ((json_number_value(x) < json_number_value(y)) != limit[i].upper)
            x = y;
        set(s, out, limit[i].name, json_incref(x));
    }
    return s->b->rc;
}

static int meet_required(struct g_schema *s, json_t *out, const json_t *a,
                         const json_t *b)
{
    json_t *x = json_object_get(a, "required");
    json_t *y = json_object_get(b, "required"), *list;

    if (!x || !y)
        return 0;
    list = json_array();
    if (json_array_extend(list, x) || json_array_extend(list, y))
        g_fail(s->b, SEAM_ENOMEM, "grammar: out of memory");
    g_work(s->b, json_array_size(list));
    return set(s, out, "required", list);
}

/* anyOf of both: of each pair one. */
static int meet_any(struct g_schema *s, json_t *out, const json_t *a,
                    const json_t *b)
{
    json_t *x = json_object_get(a, "anyOf"), *y = json_object_get(b, "anyOf");
    json_t *list, *v, *w;
    size_t i, k;

    if (!x || !y)
        return 0;
    list = json_array();
    json_array_foreach(x, i, v)
    {
        json_array_foreach(y, k, w)
        {
            if (!g_work(s->b, 100))
                break;
            if (json_array_append_new(list, both(s, v, w)))
                g_fail(s->b, SEAM_ENOMEM, "grammar: out of memory");
        }
    }
    return set(s, out, "anyOf", list);
}

const json_t *g_schema_meet(struct g_schema *s, const json_t *a,
                            const json_t *b, const struct g_place *p)
{
    static const char *const single[] = { "oneOf", "pattern", "format",
                                          "multipleOf" };
    const char *key;
    json_t *out, *x;
    uint32_t bits;

    if (s->b->rc)
        return NULL;
    if (json_is_false(a) || json_is_true(b))
        return a;
    if (json_is_false(b) || json_is_true(a))
        return b;
    for (size_t i = 0; i < sizeof single / sizeof *single; i++) {
        const json_t *y = json_object_get(b, single[i]);

        x = json_object_get(a, single[i]);
        if (x && y && !json_equal(x, y)) {
            g_fail_place(s->b, p, single[i],
                         "not supported in two schemas that both apply");
            return NULL;
        }
    }
    out = copy_of(s, a);
    if (!out || !g_work(s->b, 1000 + json_object_size(a) + json_object_size(b)))
        return NULL;
    json_object_foreach(g_loose(b), key, x)
    {
        if (!json_object_get(out, key) && set(s, out, key, json_incref(x)))
            return NULL;
    }
    bits = g_schema_types(a) & g_schema_types(b);
    if (json_object_get(out, "type")) {
        if (!bits)
            return json_false();
        set(s, out, "type", meet_types(bits));
    }
    if (meet_values(s, out, a, b) || meet_properties(s, out, a, b) ||
        meet_items(s, out, a, b) || meet_limits(s, out, a, b) ||
        meet_required(s, out, a, b) || meet_any(s, out, a, b))
        return NULL;
    if (json_object_get(out, "enum") &&
        !json_array_size(json_object_get(out, "enum")))
        return json_false();
    return out;
}

/* Schemas that are being flattened, from the inside out. */
struct hop {
    const struct hop *up;
    const json_t *v;
    int n;
};

static const json_t *flat(struct g_schema *s, const json_t *v,
                          const struct g_place *p, const struct hop *up)
{
    struct hop here = { .up = up, .v = v, .n = up ? up->n + 1 : 1 };

    const json_t *ref = json_object_get(v, "$ref");
    const json_t *all = json_object_get(v, "allOf"), *out, *x;
    size_t i;

    if (s->b->rc || json_is_boolean(v))
        return s->b->rc ? NULL : v;
    if (g_schema_check(s, v, p) || !g_work(s->b, 50))
        return NULL;
    if (!ref && !all)
        return v;
    for (const struct hop *h = up; h; h = h->up)
        if (h->v == v) {
            g_fail_place(s->b, p, "$ref", "refers to itself");
            return NULL;
        }
    if (here.n > MAX_HOPS) {
        g_fail_place(s->b, p, NULL, "refers to others more than %d deep",
                     MAX_HOPS);
        return NULL;
    }
    out = g_schema_without(s, v, "$ref");
    if (out && all)
        out = g_schema_without(s, out, "allOf");
    if (out && !g_schema_says(out, ""))
        out = json_true();
    if (out && ref) {
        x = g_schema_target(s, ref, p);
        x = x ? flat(s, x, p, &here) : NULL;
        out = x ? g_schema_meet(s, x, out, p) : NULL;
    }
    if (!out)
        return NULL;
    json_array_foreach(all, i, x)
    {
        struct g_place member = { .up = p, .key = "allOf" };
        struct g_place place = { .up = &member, .index = i };

        x = flat(s, x, &place, &here);
        out = x ? g_schema_meet(s, out, x, p) : NULL;
        if (!out)
            return NULL;
    }
    return out;
}

const json_t *g_schema_flat(struct g_schema *s, const json_t *v,
                            const struct g_place *p)
{
    return flat(s, v, p, NULL);
}

/* ---- oneOf --------------------------------------------------------------- */

static bool types_apart(uint32_t a, uint32_t b)
{
    if (a & G_TYPE_NUMBER)
        a |= G_TYPE_INTEGER;
    if (b & G_TYPE_NUMBER)
        b |= G_TYPE_INTEGER;
    return !(a & b);
}

/* Does b refuse all values that a lists? */
static bool values_apart(struct g_schema *s, const json_t *a, const json_t *b)
{
    size_t n = n_values(a);

    for (size_t i = 0; i < n; i++)
        if (!g_work(s->b, 1 + n_values(b)) ||
            g_schema_admits(b, value_at(a, i), false))
            return false;
    return n;
}

static bool is_required(const json_t *v, const char *name)
{
    const json_t *x;
    size_t i;

    json_array_foreach(json_object_get(v, "required"), i, x)
    {
        if (!strcmp(json_string_value(x), name))
            return true;
    }
    return false;
}

/* b requires a member that a does not have. */
static bool member_missing(const json_t *a, const json_t *b)
{
    const json_t *x;
    size_t i;

    if (!json_is_false(json_object_get(a, "additionalProperties")))
        return false;
    json_array_foreach(json_object_get(b, "required"), i, x)
    {
        if (!json_object_get(json_object_get(a, "properties"),
                             json_string_value(x)))
            return true;
    }
    return false;
}

static bool apart(struct g_schema *s, const json_t *a, const json_t *b,
                  const struct g_place *p, int depth)
{
    json_t *pa = json_object_get(a, "properties"), *x;
    json_t *pb = json_object_get(b, "properties");
    const char *key;

    if (!g_work(s->b, 200))
        return false;
    if (json_is_false(a) || json_is_false(b))
        return true;
    if (json_is_true(a) || json_is_true(b))
        return false;
    if (types_apart(g_schema_types(a), g_schema_types(b)) ||
        values_apart(s, a, b) || values_apart(s, b, a))
        return true;
    /* What follows is about objects, so both must be nothing else. */
    if (g_schema_types(a) != G_TYPE_OBJECT ||
        g_schema_types(b) != G_TYPE_OBJECT || depth > 4)
        return false;
    if (member_missing(a, b) || member_missing(b, a))
        return true;
    json_object_foreach(pa, key, x)
    {
        const json_t *y = json_object_get(pb, key), *fx, *fy;

        if (!y || !g_work(s->b, 20) || !is_required(a, key) ||
            !is_required(b, key))
            continue;
        fx = g_schema_flat(s, x, p);
        fy = fx ? g_schema_flat(s, y, p) : NULL;
        if (fy && apart(s, fx, fy, p, depth + 1))
            return true;
    }
    return false;
}

bool g_schema_apart(struct g_schema *s, const json_t *branches,
                    const struct g_place *p)
{
    json_t *list = json_array(), *x;
    bool all = true;
    size_t i;

    json_array_foreach(g_loose(branches), i, x)
    {
        const json_t *y = g_schema_flat(s, x, p);

        if (y && json_array_append(list, g_loose(y)))
            g_fail(s->b, SEAM_ENOMEM, "grammar: out of memory");
        all = all && y;
    }
    for (i = 0; all && i < json_array_size(list); i++)
        for (size_t k = i + 1; all && k < json_array_size(list); k++)
            all = apart(s, json_array_get(list, i), json_array_get(list, k), p,
                        0);
    json_decref(list);
    return all;
}
