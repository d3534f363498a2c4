/* JSON schemas as rules.  A rule is set for each schema that stands for itself;
 * objects, arrays and values are drawn into it, the schemas of their parts are
 * called.  Branches of a union are drawn into one drawing as far as possible, so
 * that what they have in common is read once.  Rules are set one after the other
 * from a list of jobs: nothing recurses with the schema. */
#include "core/grammar/schema.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/json.h"
#include "core/grammar/regex.h"

/* Items and characters up to this number are drawn one by one; beyond it they
 * are counted at run time. */
#define MAX_UNROLLED 8

/* Unions in unions up to this depth are drawn into each other. */
#define MAX_UNIONS 4

enum job_kind {
    JOB_SCHEMA, /* any schema v */
    JOB_STRING, /* a flat schema v of strings with a pattern or format */
    JOB_KEYS,   /* keys of an object other than those of the object v */
    JOB_REST    /* the rest of an array: min to max more items, and its end */
};

struct g_job {
    enum job_kind kind;
    const json_t *v;
    const struct g_place *place;
    uint32_t rule;
    uint32_t raw; /* G_RAW_* */
    uint32_t item, min, max;
};

/* A schema at its place. */
struct spot {
    const struct g_place *place;
    uint32_t raw;
    int depth; /* of unions */
};

/* ---- Jobs ---------------------------------------------------------------- */

static const struct g_place *place_new(struct g_schema *s,
                                       const struct g_place *up,
                                       const char *key, size_t index)
{
    struct g_place *p;

    if (!g_grow(s->b, &s->place, s->n_places, &s->cap_places, sizeof *s->place,
                UINT32_MAX / 2))
        return up;
    p = malloc(sizeof *p);
    if (!p) {
        g_fail(s->b, SEAM_ENOMEM, "grammar: out of memory");
        return up;
    }
    *p = (struct g_place){ .up = up, .key = key, .index = index };
    s->place[s->n_places++] = p;
    return p;
}

static uint32_t job_add(struct g_schema *s, struct g_job job)
{
    job.rule = g_rule_new(s->b);
    if (!g_grow(s->b, &s->job, s->n_jobs, &s->cap_jobs, sizeof *s->job,
                G_MAX_RULES))
        return 0;
    s->job[s->n_jobs++] = job;
    return job.rule;
}

static int memo_put(struct g_schema *s, const char *key, uint32_t rule)
{
    if (!s->b->rc &&
        json_object_set_new_nocheck(s->memo, key, json_integer(rule)))
        g_fail(s->b, SEAM_ENOMEM, "grammar: out of memory");
    return s->b->rc;
}

static bool is_any(const json_t *v)
{
    return json_is_true(v) || (json_is_object(v) && !json_object_size(v));
}

static uint32_t any_rule(struct g_schema *s, uint32_t raw)
{
    return g_json_any(s->j, raw ? G_LEAF_TEXT : G_LEAF_VALUE);
}

/* The rule of a schema; the same for the same schema. */
static uint32_t rule_of(struct g_schema *s, const json_t *v, uint32_t raw,
                        const struct g_place *up, const char *key, size_t index)
{
    struct g_job job = { .kind = JOB_SCHEMA, .v = v, .raw = raw };
    char name[48];
    const json_t *known;
    uint32_t rule;

    if (s->b->rc)
        return 0;
    if (is_any(v))
        return any_rule(s, raw);
    snprintf(name, sizeof name, "%p %u", (const void *)v, raw);
    known = json_object_get(s->memo, name);
    if (known && !json_is_boolean(v))
        return (uint32_t)json_integer_value(known);
    job.place = place_new(s, up, key, index);
    rule = job_add(s, job);
    memo_put(s, name, rule);
    return rule;
}

/* ---- Strings ------------------------------------------------------------- */

/* A count of the schema; what is beyond 32 bits is as good as the largest. */
static uint32_t count_of(const json_t *v, const char *key, uint32_t absent)
{
    const json_t *x = json_object_get(v, key);
    double n = json_number_value(x);

    if (!x)
        return absent;
    return n >= UINT32_MAX - 1 ? UINT32_MAX - 1 : (uint32_t)n;
}

static uint32_t draw_lengths(struct g_build *b, uint32_t from, uint32_t min,
                             uint32_t max, enum g_coding coding)
{
    uint32_t end = g_state(b), n = max == UINT32_MAX ? min : max;

    if (min > max)
        return end;
    for (uint32_t i = 0; i < n && !b->rc; i++) {
        uint32_t next = g_state(b);

        if (i >= min)
            g_empty(b, from, end);
        g_chars(b, from, 0, 0x10ffff, coding, next);
        from = next;
    }
    g_empty(b, from, end);
    if (max == UINT32_MAX)
        g_chars(b, from, 0, 0x10ffff, coding, from);
    return end;
}

/* Limit the drawing from part.from to part.to to what c has as well. */
static void also(struct g_build *b, struct g_part *part, struct g_part other)
{
    struct g_auto x = { 0 }, y = { 0 };
    uint32_t at = g_determine(b, &x, *part);
    uint32_t with = g_determine(b, &y, other);

    g_clear(b);
    part->from = g_state(b);
    part->to = g_both(b, part->from, &x, at, &y, with, false);
    g_auto_release(&x);
    g_auto_release(&y);
}

/* Text that reads as JSON of a type, white space around it or not; of arrays and
 * objects also what only begins and ends like one. */
static const struct {
    uint32_t type;
    const char *pattern;
} reads_as[] = {
    { G_TYPE_NULL, "null" },
    { G_TYPE_BOOLEAN, "true|false" },
    { G_TYPE_INTEGER | G_TYPE_NUMBER,
      "-?(?:0|[1-9][0-9]*)(?:\\.[0-9]+)?(?:[eE][+-]?[0-9]+)?" },
    { G_TYPE_ARRAY, "\\[[\\s\\S]*\\]" },
    { G_TYPE_OBJECT, "\\{[\\s\\S]*\\}" },
};

/* Take out of the part what reads as one of the types. */
static void no_look_alikes(struct g_schema *s, struct g_part *part,
                           uint32_t types)
{
    static const char blank[] = "[ \\t\\n\\v\\f\\r]*";
    struct g_auto x = { 0 }, y = { 0 };
    struct g_build *b = s->b;
    uint32_t at = g_determine(b, &x, *part), but;
    struct seam_buf p = { 0 };
    const char *bar = "";

    g_clear(b);
    seam_buf_fmt(&p, "%s(?:", blank);
    for (size_t i = 0; i < sizeof reads_as / sizeof *reads_as; i++)
        if (reads_as[i].type & types) {
            seam_buf_fmt(&p, "%s%s", bar, reads_as[i].pattern);
            bar = "|";
        }
    seam_buf_fmt(&p, ")%s", blank);
    if (p.failed)
        g_fail(b, SEAM_ENOMEM, "grammar: out of memory");
    if (!b->rc) {
        but = g_determine(b, &y, g_regex(b, p.p, p.n, G_RAW, true, false));
        g_clear(b);
        part->from = g_state(b);
        part->to = g_both(b, part->from, &x, at, &y, but, true);
    }
    seam_buf_release(&p);
    g_auto_release(&x);
    g_auto_release(&y);
}

static void set_string(struct g_schema *s, const struct g_job *job)
{
    struct g_build *b = s->b;
    const json_t *pattern = json_object_get(job->v, "pattern");
    const json_t *format = json_object_get(job->v, "format");
    uint32_t min = count_of(job->v, "minLength", 0);
    uint32_t max = count_of(job->v, "maxLength", UINT32_MAX), open;
    enum g_coding coding = job->raw ? G_RAW : G_JSON;
    uint32_t but = job->raw / G_RAW_BUT;
    bool alone = !format && !min && max == UINT32_MAX && !s->j->never && !but;
    struct g_part part = { G_NONE, G_NONE };

    if (format) {
        const char *p = g_format_pattern(json_string_value(format));

        if (!p) {
            g_fail_place(b, job->place, "format", "\"%.40s\" not supported",
                         json_string_value(format));
            return;
        }
        part = g_regex(b, p, strlen(p), coding, true, false);
    }
    if (pattern) {
        struct g_part other =
            g_regex(b, json_string_value(pattern), json_string_length(pattern),
                    coding, false, alone);

        if (b->rc && b->bare) {
            char where[300];
            struct g_place in = { .up = job->place, .key = "pattern" };

            g_place_text(&in, where, sizeof where);
            seam_fail_at(b->err, where);
            b->bare = false;
            return;
        }
        if (part.from == G_NONE)
            part = other;
        else
            also(b, &part, other);
    }
    if (min || max != UINT32_MAX) {
        struct g_part other;

        other.from = g_state(b);
        other.to = draw_lengths(b, other.from, min, max, coding);
        if (part.from == G_NONE)
            part = other;
        else
            also(b, &part, other);
    }
    if (part.from == G_NONE) {
        part.from = part.to = g_state(b);
        g_chars(b, part.from, 0, 0x10ffff, coding, part.to);
    }
    if (but)
        no_look_alikes(s, &part, but);
    g_json_limit(s->j, &part);
    if (!job->raw) {
        open = g_state(b);
        g_empty(b, g_literal(b, open, "\"", 1), part.from);
        part = (struct g_part){ open, g_literal(b, part.to, "\"", 1) };
    }
    g_rule_set(b, job->rule, part);
}

static uint32_t string_rule(struct g_schema *s, const json_t *v,
                            const struct spot *at)
{
    struct g_job job = {
        .kind = JOB_STRING, .v = v, .place = at->place, .raw = at->raw
    };
    const json_t *pattern = json_object_get(v, "pattern");
    const json_t *format = json_object_get(v, "format");
    uint32_t min = count_of(v, "minLength", 0), rule;
    uint32_t max = count_of(v, "maxLength", UINT32_MAX);
    struct seam_buf key = { 0 };
    const json_t *known;

    if (!pattern && !format && at->raw <= G_RAW_VALUE)
        return g_json_rule(
            s->j,
            (struct g_leaf){ .kind = at->raw ? G_LEAF_TEXT : G_LEAF_STRING,
                             .min_chars = min,
                             .max_chars = max });
    seam_buf_fmt(&key, "string %u %u %u %s ", at->raw, min, max,
                 format ? json_string_value(format) : "");
    if (pattern)
        seam_buf_json(&key, json_string_value(pattern),
                      json_string_length(pattern));
    if (key.failed) {
        g_fail(s->b, SEAM_ENOMEM, "grammar: out of memory");
        return 0;
    }
    known = json_object_get(s->memo, key.p);
    if (known) {
        rule = (uint32_t)json_integer_value(known);
    } else {
        rule = job_add(s, job);
        memo_put(s, key.p, rule);
    }
    seam_buf_release(&key);
    return rule;
}

/* ---- Numbers ------------------------------------------------------------- */

static struct g_decimal decimal_of(const json_t *v)
{
    struct g_decimal d = { 0 };

    if (json_is_integer(v) && json_integer_value(v) >= -G_INTEGER_MAX &&
        json_integer_value(v) <= G_INTEGER_MAX)
        d.digits = json_integer_value(v);
    else
        g_decimal_of(json_number_value(v), &d);
    return d;
}

/* The tighter of an inclusive and an exclusive limit. */
static struct g_bound bound_of(const json_t *v, const char *inclusive,
                               const char *exclusive, bool upper)
{
    const json_t *in = json_object_get(v, inclusive);
    const json_t *ex = json_object_get(v, exclusive);
    struct g_bound bound = { .given = in || ex };
    double x = json_number_value(in), y = json_number_value(ex);

    if (!bound.given)
        return bound;
    bound.exclusive = !in || (ex && (upper ? y <= x : y >= x));
    bound.at = decimal_of(bound.exclusive ? ex : in);
    return bound;
}

/* The least (up) or greatest integer within the bound. */
static int64_t bound_integer(const struct g_bound *bound, bool up)
{
    struct g_decimal d = bound->at;
    bool rest = false;

    if (!bound->given)
        return up ? -G_INTEGER_MAX : G_INTEGER_MAX;
    for (; d.scale > 0 && d.digits; d.scale--) {
        rest = rest || d.digits % 10;
        d.digits /= 10;
    }
    for (; d.scale < 0 && d.digits; d.scale++) {
        if (d.digits > G_INTEGER_MAX / 10 || d.digits < -G_INTEGER_MAX / 10)
            return d.digits > 0 ? G_INTEGER_MAX + 1 : -G_INTEGER_MAX - 1;
        d.digits *= 10;
    }
    if (rest) {
        if (up && bound->at.digits > 0)
            d.digits++;
        if (!up && bound->at.digits < 0)
            d.digits--;
    } else if (bound->exclusive) {
        d.digits += up ? 1 : -1;
    }
    return d.digits;
}

static uint32_t number_rule(struct g_schema *s, const json_t *v, bool integer,
                            const struct g_place *place)
{
    const json_t *multiple = json_object_get(v, "multipleOf");
    const json_t *format = json_object_get(v, "format");
    struct g_leaf leaf = { .kind = G_LEAF_NUMBER };
    int64_t lo, hi, least = -G_INTEGER_MAX, most = G_INTEGER_MAX;

    if (multiple) {
        if (json_number_value(multiple) != 1) {
            g_fail_place(s->b, place, "multipleOf", "not supported except 1");
            return 0;
        }
        integer = true;
    }
    leaf.lo = bound_of(v, "minimum", "exclusiveMinimum", false);
    leaf.hi = bound_of(v, "maximum", "exclusiveMaximum", true);
    /* Formats of strings say nothing about numbers. */
    if (format && !g_format_pattern(json_string_value(format)) &&
        (!integer ||
         !g_format_range(json_string_value(format), &least, &most))) {
        g_fail_place(s->b, place, "format", "\"%.40s\" not supported here",
                     json_string_value(format));
        return 0;
    }
    if (integer) {
        lo = bound_integer(&leaf.lo, true);
        hi = bound_integer(&leaf.hi, false);
        lo = lo > least ? lo : least;
        hi = hi < most ? hi : most;
        leaf = (struct g_leaf){
            .kind = G_LEAF_INTEGER,
            .min = lo,
            .max = hi,
        };
    }
    return g_json_rule(s->j, leaf);
}

/* ---- Arrays -------------------------------------------------------------- */

static uint32_t item_rule(struct g_schema *s, const json_t *v, size_t i,
                          const struct g_place *place)
{
    const json_t *prefix = g_schema_prefix(v), *items = g_schema_items(v);
    bool tuple = json_is_array(json_object_get(v, "items"));

    if (i < json_array_size(prefix))
        return rule_of(s, json_array_get(prefix, i), false,
                       place_new(s, place, tuple ? "items" : "prefixItems", 0),
                       NULL, i);
    return rule_of(s, items ? items : json_true(), false, place,
                   tuple ? "additionalItems" : "items", 0);
}

static void set_rest(struct g_schema *s, const struct g_job *job)
{
    struct g_build *b = s->b;
    struct g_part before = { G_NONE, G_NONE }, each, after;

    each.from = g_state(b);
    each.to = g_calling(b, g_json_gap(s->j, g_literal(b, each.from, ",", 1)),
                        job->item);
    after.from = g_state(b);
    after.to = g_literal(b, g_json_gap(s->j, after.from), "]", 1);
    g_rule_loop(b, job->rule, before, each, after, job->min, job->max);
}

/* ']' behind n items. */
static void draw_end(struct g_schema *s, uint32_t at, uint32_t n, uint32_t to)
{
    g_bytes(s->b, n ? g_json_gap(s->j, at) : at, ']', ']', to);
}

static void draw_array(struct g_schema *s, const json_t *v,
                       const struct g_place *place, struct g_part part)
{
    struct g_build *b = s->b;
    uint32_t min = count_of(v, "minItems", 0);
    uint32_t max = count_of(v, "maxItems", UINT32_MAX);
    uint32_t n_prefix = (uint32_t)json_array_size(g_schema_prefix(v));
    uint32_t n, at;

    if (json_is_false(g_schema_items(v)) && max > n_prefix)
        max = n_prefix;
    if (min > max)
        return;
    /* Items that are drawn one by one: those with schemas of their own, and at
     * least one, since only the first has no comma before it. */
    n = n_prefix > 1 ? n_prefix : 1;
    if (min > n && min <= MAX_UNROLLED)
        n = min;
    if (max <= MAX_UNROLLED || n > max)
        n = max;
    at = g_json_gap(s->j, g_literal(b, part.from, "[", 1));
    for (uint32_t i = 0; i < n && !b->rc; i++) {
        if (i >= min)
            draw_end(s, at, i, part.to);
        if (i)
            at = g_json_gap(s->j, g_literal(b, at, ",", 1));
        at = g_calling(b, at, item_rule(s, v, i, place));
    }
    if (min > n || (max > n && max != UINT32_MAX)) {
        struct g_job rest = {
            .kind = JOB_REST,
            .place = place,
            .item = item_rule(s, v, n, place),
            .min = min > n ? min - n : 0,
            .max = max == UINT32_MAX ? max : max - n,
        };

        g_call(b, at, job_add(s, rest), part.to);
        return;
    }
    if (max > n)
        g_call(b, g_json_gap(s->j, g_literal(b, at, ",", 1)),
               item_rule(s, v, n, place), at);
    draw_end(s, at, n, part.to);
}

/* ---- Objects ------------------------------------------------------------- */

static void set_keys(struct g_schema *s, const struct g_job *job)
{
    struct g_build *b = s->b;
    struct g_auto all = { 0 }, told = { 0 };
    struct g_part any, list;
    uint32_t x, y;
    const char *key;
    json_t *v;

    any.from = g_state(b);
    any.to = g_state(b);
    x = g_literal(b, any.from, "\"", 1);
    g_chars(b, x, 0, 0x10ffff, G_JSON, x);
    g_bytes(b, x, '"', '"', any.to);
    list.from = g_state(b);
    list.to = g_state(b);
    json_object_foreach(g_loose(job->v), key, v)
    {
        y = g_literal(b, list.from, "\"", 1);
        y = g_text(b, y, key, strlen(key), G_JSON);
        g_bytes(b, y, '"', '"', list.to);
    }
    x = g_determine(b, &all, any);
    y = g_determine(b, &told, list);
    g_clear(b);
    any.from = g_state(b);
    any.to = g_both(b, any.from, &all, x, &told, y, true);
    g_json_limit(s->j, &any);
    g_rule_set(b, job->rule, any);
    g_auto_release(&all);
    g_auto_release(&told);
}

/* All members that are told by name: those declared, in their order, then those
 * that are only required; to true where required, else null. */
static const json_t *names_of(struct g_schema *s, const json_t *v)
{
    json_t *names = json_object(), *x;
    const char *key;
    size_t i;

    if (!names || json_array_append_new(s->made, names)) {
        g_fail(s->b, SEAM_ENOMEM, "grammar: out of memory");
        return NULL;
    }
    json_object_foreach(json_object_get(v, "properties"), key, x)
    {
        if (json_object_set_new_nocheck(names, key, json_null()))
            g_fail(s->b, SEAM_ENOMEM, "grammar: out of memory");
    }
    json_array_foreach(json_object_get(v, "required"), i, x)
    {
        if (json_object_set_new_nocheck(names, json_string_value(x),
                                        json_true()))
            g_fail(s->b, SEAM_ENOMEM, "grammar: out of memory");
    }
    g_work(s->b, 10 * json_object_size(names));
    return names;
}

static void draw_values(struct g_schema *s, const json_t *v,
                        const struct spot *at, struct g_part part);

/* A member's value: few words are drawn, everything else is called. */
static void draw_member_value(struct g_schema *s, const json_t *v,
                              const struct g_place *up, const char *key,
                              struct g_part part)
{
    static const char *const other[] = { "$ref", "allOf", "anyOf", "oneOf" };
    bool values = json_object_get(v, "const") || json_object_get(v, "enum");
    struct spot at = { 0 };

    for (size_t i = 0; i < sizeof other / sizeof *other; i++)
        values = values && !json_object_get(v, other[i]);
    if (!values) {
        g_call(s->b, part.from, rule_of(s, v, false, up, key, 0), part.to);
        return;
    }
    at.place = place_new(s, up, key, 0);
    v = g_schema_flat(s, v, at.place);
    if (v)
        draw_values(s, v, &at, part);
}

static void draw_object(struct g_schema *s, const json_t *v,
                        const struct g_place *place, struct g_part part)
{
    struct g_build *b = s->b;
    const json_t *declared = json_object_get(v, "properties");
    const json_t *more = json_object_get(v, "additionalProperties");
    const json_t *names = names_of(s, v), *member;
    const struct g_place *in = place_new(s, place, "properties", 0);
    struct g_job keys = { .kind = JOB_KEYS, .v = names, .place = place };
    /* Before the first member, and behind one. */
    uint32_t first = g_json_gap(s->j, g_literal(b, part.from, "{", 1));
    uint32_t later = g_state(b), at;
    const char *key;
    json_t *required;

    json_object_foreach(g_loose(names), key, required)
    {
        uint32_t next = g_state(b), none = g_state(b);

        member = json_object_get(declared, key);
        if (!member)
            member = more ? more : json_true();
        at = g_state(b);
        g_empty(b, first, at);
        g_empty(b, g_json_gap(s->j, g_literal(b, later, ",", 1)), at);
        at = g_json_name(s->j, at, key, strlen(key));
        draw_member_value(s, member, in, key, (struct g_part){ at, next });
        if (!json_is_true(required)) {
            g_empty(b, first, none);
            g_empty(b, later, next);
        }
        first = none;
        later = next;
        if (b->rc)
            return;
    }
    /* Members that are neither declared nor mentioned are left out: an answer
     * without them conforms as well. */
    if (!more)
        more = declared ? json_false() : json_true();
    if (!json_is_false(more)) {
        at = g_state(b);
        g_empty(b, first, at);
        g_empty(b, g_json_gap(s->j, g_literal(b, later, ",", 1)), at);
        at = g_calling(b, at,
                       json_object_size(names)
                           ? job_add(s, keys)
                           : g_json_any(s->j, G_LEAF_STRING));
        g_call(b, g_json_colon(s->j, at),
               rule_of(s, more, false, place, "additionalProperties", 0),
               later);
    }
    g_bytes(b, first, '}', '}', part.to);
    g_bytes(b, g_json_gap(s->j, later), '}', '}', part.to);
}

/* ---- Any schema ---------------------------------------------------------- */

static void draw_values(struct g_schema *s, const json_t *v,
                        const struct spot *at, struct g_part part)
{
    const json_t *one = json_object_get(v, "const"), *x;
    const json_t *list = json_object_get(v, "enum");
    size_t n = one ? 1 : json_array_size(list);

    for (size_t i = 0; i < n && g_work(s->b, 20); i++) {
        int admitted;

        x = one ? one : json_array_get(list, i);
        admitted = g_schema_admits(v, x, !one || !list);
        if (admitted < 0) {
            g_fail_place(s->b, at->place, one ? "const" : "enum",
                         "not supported together with all of the other "
                         "keywords here");
            return;
        }
        if (admitted && at->raw && json_is_string(x))
            g_empty(s->b,
                    g_json_text(s->j, part.from, json_string_value(x),
                                json_string_length(x), G_RAW),
                    part.to);
        else if (admitted)
            g_empty(s->b, g_json_exactly(s->j, part.from, x), part.to);
    }
}

static void draw_any(struct g_schema *s, const json_t *v, const struct spot *at,
                     struct g_part part);

/* Does it begin in a way that is better read together with others? */
static bool joins(const json_t *v)
{
    return json_object_get(v, "anyOf") || json_object_get(v, "oneOf") ||
           json_object_get(v, "const") || json_object_get(v, "enum") ||
           (json_object_get(v, "type") && g_schema_types(v) == G_TYPE_OBJECT);
}

static void draw_branches(struct g_schema *s, const json_t *v, const char *key,
                          const struct spot *at, struct g_part part)
{
    const json_t *list = json_object_get(v, key), *rest;
    const struct g_place *in = place_new(s, at->place, key, 0);
    bool alone;

    if (!strcmp(key, "oneOf") && !g_schema_apart(s, list, in) && !s->b->rc) {
        g_fail_place(s->b, at->place, key,
                     "only supported where the schemas exclude each other by "
                     "type, const, enum or a required member");
        return;
    }
    rest = g_schema_without(s, v, key);
    alone = rest && !g_schema_says(rest, "");
    for (size_t i = 0; i < json_array_size(list) && !s->b->rc; i++) {
        struct spot here = { .place = place_new(s, in, NULL, i),
                             .raw = at->raw,
                             .depth = at->depth + 1 };
        const json_t *x = json_array_get(list, i);
        const json_t *f = g_schema_flat(s, x, here.place);

        if (f && !alone)
            f = x = g_schema_meet(s, rest, f, here.place);
        if (!f)
            return;
        if (here.depth <= MAX_UNIONS && joins(f))
            draw_any(s, f, &here, part);
        else
            g_call(s->b, part.from, rule_of(s, x, at->raw, here.place, "", 0),
                   part.to);
    }
}

static void draw_types(struct g_schema *s, const json_t *v,
                       const struct spot *at, struct g_part part)
{
    struct g_build *b = s->b;
    uint32_t types = g_schema_types(v), about = g_schema_about(v);

    if (!json_object_get(v, "type"))
        types = about;
    if (json_object_get(v, "format") &&
        !(types & (G_TYPE_STRING | G_TYPE_INTEGER | G_TYPE_NUMBER))) {
        g_fail_place(b, at->place, "format", "not supported without strings");
        return;
    }
    if (types & G_TYPE_NULL)
        g_empty(b, g_literal(b, part.from, "null", 4), part.to);
    if (types & G_TYPE_BOOLEAN) {
        g_empty(b, g_literal(b, part.from, "true", 4), part.to);
        g_empty(b, g_literal(b, part.from, "false", 5), part.to);
    }
    if (types & (G_TYPE_NUMBER | G_TYPE_INTEGER))
        g_call(b, part.from,
               number_rule(s, v, !(types & G_TYPE_NUMBER), at->place), part.to);
    if (types & G_TYPE_STRING)
        g_call(b, part.from, string_rule(s, v, at), part.to);
    if ((types & G_TYPE_ARRAY) && (about & G_TYPE_ARRAY))
        draw_array(s, v, at->place, part);
    else if (types & G_TYPE_ARRAY)
        g_call(b, part.from, g_json_any(s->j, G_LEAF_ARRAY), part.to);
    if ((types & G_TYPE_OBJECT) && (about & G_TYPE_OBJECT))
        draw_object(s, v, at->place, part);
    else if (types & G_TYPE_OBJECT)
        g_call(b, part.from, g_json_any(s->j, G_LEAF_OBJECT), part.to);
    if (!types)
        g_call(b, part.from, any_rule(s, at->raw), part.to);
}

/* A flat schema. */
static void draw_any(struct g_schema *s, const json_t *v, const struct spot *at,
                     struct g_part part)
{
    if (is_any(v))
        g_call(s->b, part.from, any_rule(s, at->raw), part.to);
    else if (json_object_get(v, "anyOf"))
        draw_branches(s, v, "anyOf", at, part);
    else if (json_object_get(v, "oneOf"))
        draw_branches(s, v, "oneOf", at, part);
    else if (json_object_get(v, "const") || json_object_get(v, "enum"))
        draw_values(s, v, at, part);
    else if (json_is_object(v))
        draw_types(s, v, at, part);
}

/* The place of what a reference leads to. */
static const struct g_place *place_of_target(struct g_schema *s,
                                             const json_t *ref,
                                             const struct g_place *p)
{
    const char *text = json_string_value(ref);
    json_t *path = json_string(text[1] ? text + 2 : "");
    const char *key;

    if (!path || json_array_append_new(s->made, path)) {
        g_fail(s->b, SEAM_ENOMEM, "grammar: out of memory");
        return p;
    }
    for (char *c = (char *)(uintptr_t)json_string_value(path); *c; c++)
        if (*c == '/')
            *c = '.';
    while (p->up)
        p = p->up;
    key = json_string_value(path);
    return *key ? place_new(s, p, key, 0) : p;
}

static void set_schema(struct g_schema *s, const struct g_job *job)
{
    struct g_build *b = s->b;
    const json_t *v = job->v, *ref = json_object_get(v, "$ref"), *to;
    struct g_part part = { g_state(b), g_state(b) };
    struct spot at = { .place = job->place, .raw = job->raw };

    if (ref && !g_schema_says(v, "$ref")) {
        if (g_schema_check(s, v, job->place))
            return;
        to = g_schema_target(s, ref, job->place);
        if (to)
            g_call(b, part.from,
                   rule_of(s, to, job->raw, place_of_target(s, ref, job->place),
                           "", 0),
                   part.to);
    } else {
        v = g_schema_flat(s, v, job->place);
        if (v)
            draw_any(s, v, &at, part);
    }
    g_rule_set(b, job->rule, part);
}

static void job_do(struct g_schema *s, const struct g_job *job)
{
    char where[300];

    g_clear(s->b);
    switch (job->kind) {
    case JOB_SCHEMA:
        set_schema(s, job);
        break;
    case JOB_STRING:
        set_string(s, job);
        break;
    case JOB_KEYS:
        set_keys(s, job);
        break;
    case JOB_REST:
        set_rest(s, job);
        break;
    }
    if (s->b->rc && s->b->bare) {
        g_place_text(job->place, where, sizeof where);
        seam_fail_at(s->b->err, where);
        s->b->bare = false;
    }
}

static bool depth_is_at_most(const json_t *v, int most)
{
    const char *key;
    json_t *x;
    size_t i;

    if (!json_is_array(v) && !json_is_object(v))
        return true;
    if (!most)
        return false;
    json_array_foreach(g_loose(v), i, x)
    {
        if (!depth_is_at_most(x, most - 1))
            return false;
    }
    json_object_foreach(g_loose(v), key, x)
    {
        if (!depth_is_at_most(x, most - 1))
            return false;
    }
    return true;
}

uint32_t g_schema_add(struct g_schema **list, struct g_json *j,
                      const json_t *root, const char *where, uint32_t raw)
{
    struct g_schema *s = calloc(1, sizeof *s);
    const struct g_place *place;
    uint32_t rule = 0;

    if (!s) {
        g_fail(j->b, SEAM_ENOMEM, "grammar: out of memory");
        return 0;
    }
    s->next = *list;
    *list = s;
    s->b = j->b;
    s->j = j;
    s->root = root;
    s->made = json_array();
    s->memo = json_object();
    if (!s->made || !s->memo)
        g_fail(j->b, SEAM_ENOMEM, "grammar: out of memory");
    place = place_new(s, NULL, where, 0);
    if (!json_is_object(root) && !json_is_boolean(root))
        g_fail_place(j->b, place, NULL, "expected a schema");
    else if (!depth_is_at_most(root, SEAM_JSON_DEPTH))
        g_fail_place(j->b, place, NULL, "nested more than %d levels deep",
                     SEAM_JSON_DEPTH);
    rule = rule_of(s, root, raw, place, "", 0);
    for (uint32_t i = 0; i < s->n_jobs && !j->b->rc; i++) {
        struct g_job job = s->job[i];

        job_do(s, &job);
    }
    return rule;
}

void g_schema_release(struct g_schema *s)
{
    while (s) {
        struct g_schema *next = s->next;

        json_decref(s->made);
        json_decref(s->memo);
        for (uint32_t i = 0; i < s->n_places; i++)
            free(s->place[i]);
        free(s->place);
        free(s->job);
        free(s);
        s = next;
    }
}

bool g_schema_where(const struct g_schema *s, uint32_t rule, char *out,
                    size_t cap)
{
    for (; s; s = s->next)
        for (uint32_t i = 0; i < s->n_jobs; i++)
            if (s->job[i].rule == rule) {
                g_place_text(s->job[i].place, out, cap);
                return true;
            }
    return false;
}
