/* JSON schemas as rules.  Several schemas may be added to one grammar. */
#ifndef SEAM_GRAMMAR_SCHEMA_H
#define SEAM_GRAMMAR_SCHEMA_H

#include "core/grammar/json.h"

/* Where a schema stands: a list from the inside out, with the text that begins
 * messages at its end. */
struct g_place {
    const struct g_place *up;
    const char *key; /* a member; or, with up NULL, the beginning */
    size_t index;    /* of an array, when key is NULL */
};

/* "where.properties.a[2]" into out, cut to cap. */
void g_place_text(const struct g_place *p, char *out, size_t cap);

struct g_job; /* a rule to be set */

/* What the compiler of one schema document works with.  It is kept until the
 * grammar is finished, for messages about its rules. */
struct g_schema {
    struct g_schema *next;
    struct g_build *b;
    struct g_json *j;
    const json_t *root;
    json_t *made; /* array of schemas that came about by merging */
    json_t *memo; /* rules by what they are of */
    struct g_job *job;
    uint32_t n_jobs, cap_jobs;
    struct g_place **place; /* those that outlive a call */
    uint32_t n_places, cap_places;
};

/* jansson's walks take no const; nothing is changed through this. */
static inline json_t *g_loose(const json_t *v)
{
    return (json_t *)(uintptr_t)v;
}

/* Fails with the place before the message. */
__attribute__((format(printf, 4, 5))) int g_fail_place(struct g_build *b,
                                                       const struct g_place *p,
                                                       const char *key,
                                                       const char *fmt, ...);

/* ---- Reading and merging (merge.c) --------------------------------------- */

/* Refuse keywords that are not supported and values of the wrong type. */
int g_schema_check(struct g_schema *s, const json_t *v,
                   const struct g_place *p);
/* What a $ref leads to, or NULL and a failure. */
const json_t *g_schema_target(struct g_schema *s, const json_t *ref,
                              const struct g_place *p);
/* v without $ref and allOf at its top: a boolean or an object that allows the
 * same, v itself if it has none.  NULL on failure. */
const json_t *g_schema_flat(struct g_schema *s, const json_t *v,
                            const struct g_place *p);
/* What both allow; flat ones.  NULL on failure. */
const json_t *g_schema_meet(struct g_schema *s, const json_t *a,
                            const json_t *b, const struct g_place *p);
/* Is it certain that no value conforms to two of the array's schemas? */
bool g_schema_apart(struct g_schema *s, const json_t *branches,
                    const struct g_place *p);
/* v without the named keyword; NULL on failure. */
json_t *g_schema_without(struct g_schema *s, const json_t *v, const char *key);
/* Does it say anything about values, apart from the keyword `but`? */
bool g_schema_says(const json_t *v, const char *but);
/* The schemas of the first items of an array, and that of all others; NULL: not
 * said.  Up to draft 2019-09 they are called items and additionalItems, when the
 * former is an array. */
json_t *g_schema_prefix(const json_t *v);
json_t *g_schema_items(const json_t *v);
/* 1, 0, or -1: cannot be told here.  listed: value is from its own enum. */
int g_schema_admits(const json_t *schema, const json_t *value, bool listed);
bool g_json_same(const json_t *a, const json_t *b); /* 1 is 1.0 */

enum {
    G_TYPE_NULL = 1,
    G_TYPE_BOOLEAN = 2,
    G_TYPE_INTEGER = 4,
    G_TYPE_NUMBER = 8, /* integers as well */
    G_TYPE_STRING = 16,
    G_TYPE_ARRAY = 32,
    G_TYPE_OBJECT = 64,
    G_TYPE_ALL = 127
};
/* The types that some keyword of v is about. */
uint32_t g_schema_about(const json_t *v);
/* Of "type"; G_TYPE_ALL when it is absent. */
uint32_t g_schema_types(const json_t *v);

/* ---- Formats (format.c) -------------------------------------------------- */

/* NULL: not supported for strings. */
const char *g_format_pattern(const char *name);
/* Of integers; false: not supported for them. */
bool g_format_range(const char *name, int64_t *min, int64_t *max);

/* ---- Rules (schema.c) ---------------------------------------------------- */

/* How a string stands that is the whole value: 0: as JSON; otherwise as it is,
 * without quotes and escapes, and then it is none that reads as a value of one of
 * these types, G_TYPE_* times G_RAW_BUT. */
enum { G_RAW_VALUE = 1, G_RAW_BUT = 256 };

/* The rule of a schema document, which lives until g_schema_release; where does
 * as well. */
uint32_t g_schema_add(struct g_schema **list, struct g_json *j,
                      const json_t *root, const char *where, uint32_t raw);
void g_schema_release(struct g_schema *list);
/* The place of a rule that was made for a schema of the list; false when there
 * is none. */
bool g_schema_where(const struct g_schema *list, uint32_t rule, char *out,
                    size_t cap);

#endif
