/* JSON schemas as rules: a rule for each schema, one more for each object, array
 * and restricted string in it.  Rules are set one after the other from a list of
 * jobs, so that nothing recurses with the schema. */
#include "core/grammar/schema.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/grammar/regex.h"

/* Items and characters up to this number are drawn one by one; beyond it they
 * are counted at run time. */
#define MAX_UNROLLED 8

enum job_kind { JOB_SCHEMA, JOB_STRING, JOB_ARRAY, JOB_OBJECT };

struct g_job {
    enum job_kind kind;
    const json_t *v; /* any schema; flat for the other kinds */
    const struct g_place *place;
    uint32_t rule;
    bool raw; /* strings stand without quotes and escapes */
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

static uint32_t job_add(struct g_schema *s, enum job_kind kind, const json_t *v,
                        const struct g_place *place)
{
    uint32_t rule = g_rule_new(s->b);

    if (!g_grow(s->b, &s->job, s->n_jobs, &s->cap_jobs, sizeof *s->job,
                G_MAX_RULES))
        return 0;
    s->job[s->n_jobs++] = (struct g_job){
        .kind = kind,
        .v = v,
        .place = place,
        .rule = rule,
        .raw = s->raw && (kind == JOB_SCHEMA || kind == JOB_STRING),
    };
    return rule;
}

static int memo_put(struct g_schema *s, const char *key, uint32_t rule)
{
    if (!s->b->rc &&
        json_object_set_new_nocheck(s->memo, key, json_integer(rule)))
        g_fail(s->b, SEAM_ENOMEM, "grammar: out of memory");
    return s->b->rc;
}

/* The rule of a schema; the same for the same schema. */
static uint32_t rule_of(struct g_schema *s, const json_t *v,
                        const struct g_place *up, const char *key, size_t index)
{
    char name[32];
    const json_t *known;
    uint32_t rule;

    if (s->b->rc)
        return 0;
    if (json_is_true(v) || (json_is_object(v) && !json_object_size(v)))
        return g_json_any(s->j, s->raw ? G_LEAF_TEXT : G_LEAF_VALUE);
    snprintf(name, sizeof name, "%p%s", (const void *)v, s->raw ? " raw" : "");
    known = json_object_get(s->memo, name);
    if (known && !json_is_boolean(v))
        return (uint32_t)json_integer_value(known);
    rule = job_add(s, JOB_SCHEMA, v, place_new(s, up, key, index));
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

static struct g_part draw_pattern(struct g_build *b, const char *pattern,
                                  size_t n, enum g_coding coding, bool whole)
{
    struct g_part p;

    p.from = g_state(b);
    p.to = g_regex(b, p.from, pattern, n, coding, whole);
    return p;
}

static void set_string(struct g_schema *s, const struct g_job *job)
{
    struct g_build *b = s->b;
    const json_t *pattern = json_object_get(job->v, "pattern");
    const json_t *format = json_object_get(job->v, "format");
    uint32_t min = count_of(job->v, "minLength", 0);
    uint32_t max = count_of(job->v, "maxLength", UINT32_MAX), open;
    enum g_coding coding = job->raw ? G_RAW : G_JSON;
    struct g_part part = { G_NONE, G_NONE };

    if (format) {
        const char *p = g_format_pattern(json_string_value(format));

        if (!p) {
            g_fail_place(b, job->place, "format", "\"%.40s\" not supported",
                         json_string_value(format));
            return;
        }
        part = draw_pattern(b, p, strlen(p), coding, true);
    }
    if (pattern) {
        struct g_part other =
            draw_pattern(b, json_string_value(pattern),
                         json_string_length(pattern), coding, false);

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
        also(b, &part, other);
    }
    g_json_limit(s->j, &part);
    if (!job->raw) {
        open = g_state(b);
        g_empty(b, g_literal(b, open, "\"", 1), part.from);
        part = (struct g_part){ open, g_literal(b, part.to, "\"", 1) };
    }
    g_rule_set(b, job->rule, part);
}

static uint32_t string_rule(struct g_schema *s, const json_t *v,
                            const struct g_place *place)
{
    const json_t *pattern = json_object_get(v, "pattern");
    const json_t *format = json_object_get(v, "format");
    uint32_t min = count_of(v, "minLength", 0), rule;
    uint32_t max = count_of(v, "maxLength", UINT32_MAX);
    struct seam_buf key = { 0 };
    const json_t *known;

    if (!pattern && !format)
        return g_json_rule(
            s->j, (struct g_leaf){ .kind = s->raw ? G_LEAF_TEXT : G_LEAF_STRING,
                                   .min_chars = min,
                                   .max_chars = max });
    seam_buf_fmt(&key, "%s %u %u %s ", s->raw ? "text" : "string", min, max,
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
        rule = job_add(s, JOB_STRING, v, place);
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
    const json_t *prefix = json_object_get(v, "prefixItems");
    const json_t *items = json_object_get(v, "items");

    if (i < json_array_size(prefix))
        return rule_of(s, json_array_get(prefix, i),
                       place_new(s, place, "prefixItems", 0), NULL, i);
    return rule_of(s, items ? items : json_true(), place, "items", 0);
}

/* The rest of an array behind its first items: any number of further ones in
 * [min, max], and its end; as a rule of its own. */
static void set_array_rest(struct g_schema *s, uint32_t rule, uint32_t item,
                           uint32_t min, uint32_t max)
{
    struct g_build *b = s->b;
    struct g_part before = { G_NONE, G_NONE }, each, after;

    each.from = g_state(b);
    each.to =
        g_calling(b, g_json_gap(s->j, g_literal(b, each.from, ",", 1)), item);
    after.from = g_state(b);
    after.to = g_literal(b, g_json_gap(s->j, after.from), "]", 1);
    g_rule_loop(b, rule, before, each, after, min, max);
}

static void set_array(struct g_schema *s, const struct g_job *job)
{
    struct g_build *b = s->b;
    const json_t *v = job->v;
    uint32_t min = count_of(v, "minItems", 0);
    uint32_t max = count_of(v, "maxItems", UINT32_MAX);
    uint32_t n_prefix =
        (uint32_t)json_array_size(json_object_get(v, "prefixItems"));
    uint32_t n_drawn, rest = G_NONE, at, end;

    if (json_is_false(json_object_get(v, "items")) && max > n_prefix)
        max = n_prefix;
    if (min > max) {
        struct g_part none = { g_state(b), g_state(b) };

        g_rule_set(b, job->rule, none);
        return;
    }
    /* Items that are drawn one by one: those with schemas of their own, and at
     * least one, since only the first has no comma before it. */
    n_drawn = n_prefix > 1 ? n_prefix : 1;
    if (min > n_drawn && min <= MAX_UNROLLED)
        n_drawn = min;
    if (max <= MAX_UNROLLED || n_drawn > max)
        n_drawn = max;
    if (min > n_drawn || (max > n_drawn && max != UINT32_MAX)) {
        rest = g_rule_new(b);
        set_array_rest(s, rest, item_rule(s, v, n_drawn, job->place),
                       min > n_drawn ? min - n_drawn : 0,
                       max == UINT32_MAX ? max : max - n_drawn);
    }
    at = g_state(b);
    end = g_state(b);
    {
        uint32_t from = at;

        at = g_json_gap(s->j, g_literal(b, from, "[", 1));
        for (uint32_t i = 0; i < n_drawn && !b->rc; i++) {
            if (i >= min)
                g_bytes(b, i ? g_json_gap(s->j, at) : at, ']', ']', end);
            if (i)
                at = g_json_gap(s->j, g_literal(b, at, ",", 1));
            at = g_calling(b, at, item_rule(s, v, i, job->place));
        }
        if (rest != G_NONE) {
            g_call(b, at, rest, end);
        } else if (n_drawn >= min) {
            if (max > n_drawn) {
                uint32_t more = g_json_gap(s->j, g_literal(b, at, ",", 1));

                g_call(b, more, item_rule(s, v, n_drawn, job->place), at);
            }
            g_bytes(b, n_drawn ? g_json_gap(s->j, at) : at, ']', ']', end);
        }
        at = from;
    }
    g_rule_set(b, job->rule, (struct g_part){ at, end });
}

/* ---- Objects ------------------------------------------------------------- */

struct members {
    const json_t *declared; /* properties */
    const json_t *required;
    const json_t *more; /* schema of others; NULL: there are none */
    json_t *names;      /* object: all that are told by name, to null */
};

/* Keys of members that are not told by name. */
static uint32_t other_key_rule(struct g_schema *s, const json_t *names)
{
    struct g_build *b = s->b;
    struct g_auto all = { 0 }, told = { 0 };
    struct g_part any, list;
    uint32_t rule, x, y;
    const char *key;
    json_t *v;

    if (!json_object_size(names))
        return g_json_any(s->j, G_LEAF_STRING);
    rule = g_rule_new(b);
    any.from = g_state(b);
    any.to = g_state(b);
    x = g_literal(b, any.from, "\"", 1);
    g_chars(b, x, 0, 0x10ffff, G_JSON, x);
    g_bytes(b, x, '"', '"', any.to);
    list.from = g_state(b);
    list.to = g_state(b);
    json_object_foreach(g_loose(names), key, v)
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
    g_rule_set(b, rule, any);
    g_auto_release(&all);
    g_auto_release(&told);
    return rule;
}

/* Add the names of required members that have no schema of their own. */
static void members_find(struct g_schema *s, const json_t *v, struct members *m)
{
    const json_t *x, *more = json_object_get(v, "additionalProperties");
    const char *key;
    size_t i;
    json_t *y;

    *m = (struct members){ .declared = json_object_get(v, "properties"),
                           .required = json_object_get(v, "required"),
                           .names = json_object() };
    /* Places refer to its keys. */
    if (!m->names || json_array_append_new(s->made, m->names)) {
        g_fail(s->b, SEAM_ENOMEM, "grammar: out of memory");
        return;
    }
    /* Members that are neither declared nor mentioned are left out: an answer
     * without them conforms as well. */
    m->more = more ? more : m->declared ? NULL : json_true();
    if (json_is_false(m->more))
        m->more = NULL;
    json_object_foreach(g_loose(m->declared), key, y)
    {
        if (json_object_set_new_nocheck(m->names, key, json_null()))
            g_fail(s->b, SEAM_ENOMEM, "grammar: out of memory");
    }
    json_array_foreach(g_loose(m->required), i, x)
    {
        if (json_object_set_new_nocheck(m->names, json_string_value(x),
                                        json_true()))
            g_fail(s->b, SEAM_ENOMEM, "grammar: out of memory");
    }
    g_work(s->b, json_object_size(m->names));
}

static void draw_members(struct g_schema *s, const struct g_job *job,
                         const struct members *m, uint32_t other_key,
                         struct g_part part)
{
    struct g_build *b = s->b;
    const json_t *absent = json_object_get(job->v, "additionalProperties");
    /* Before the first member, and behind one. */
    uint32_t first = g_json_gap(s->j, g_literal(b, part.from, "{", 1));
    uint32_t later = g_state(b), at;
    const struct g_place *in = NULL;
    const char *key;
    json_t *required;

    json_object_foreach(m->names, key, required)
    {
        const json_t *v = json_object_get(m->declared, key);
        uint32_t next = g_state(b), none = g_state(b);

        if (!in)
            in = place_new(s, job->place, "properties", 0);
        if (!v)
            v = absent ? absent : json_true();
        at = g_state(b);
        g_empty(b, first, at);
        g_empty(b, g_json_gap(s->j, g_literal(b, later, ",", 1)), at);
        at = g_json_name(s->j, at, key, strlen(key));
        g_call(b, at, rule_of(s, v, in, key, 0), next);
        if (!json_is_true(required)) {
            g_empty(b, first, none);
            g_empty(b, later, next);
        }
        first = none;
        later = next;
    }
    if (m->more) {
        at = g_state(b);
        g_empty(b, first, at);
        g_empty(b, g_json_gap(s->j, g_literal(b, later, ",", 1)), at);
        at = g_json_colon(s->j, g_calling(b, at, other_key));
        g_call(b, at,
               rule_of(s, m->more, job->place, "additionalProperties", 0),
               later);
    }
    g_bytes(b, first, '}', '}', part.to);
    g_bytes(b, g_json_gap(s->j, later), '}', '}', part.to);
}

static void set_object(struct g_schema *s, const struct g_job *job)
{
    struct members m;
    struct g_part part;
    uint32_t other_key = G_NONE;

    members_find(s, job->v, &m);
    if (s->b->rc)
        return;
    if (m.more)
        other_key = other_key_rule(s, m.names);
    part.from = g_state(s->b);
    part.to = g_state(s->b);
    draw_members(s, job, &m, other_key, part);
    g_rule_set(s->b, job->rule, part);
}

/* ---- Any schema ---------------------------------------------------------- */

static void draw_values(struct g_schema *s, const struct g_job *job,
                        const json_t *v, struct g_part part)
{
    const json_t *one = json_object_get(v, "const"), *x;
    const json_t *list = json_object_get(v, "enum");
    size_t n = one ? 1 : json_array_size(list);

    for (size_t i = 0; i < n && !s->b->rc; i++) {
        int admitted;

        x = one ? one : json_array_get(list, i);
        g_work(s->b, n);
        admitted = g_schema_admits(v, x);
        if (admitted < 0) {
            g_fail_place(s->b, job->place, one ? "const" : "enum",
                         "not supported together with all of the other "
                         "keywords here");
            return;
        }
        if (admitted && job->raw && json_is_string(x))
            g_empty(s->b,
                    g_json_text(s->j, part.from, json_string_value(x),
                                json_string_length(x), G_RAW),
                    part.to);
        else if (admitted)
            g_empty(s->b, g_json_exactly(s->j, part.from, x), part.to);
    }
}

static void draw_branches(struct g_schema *s, const struct g_job *job,
                          const json_t *v, const char *key, struct g_part part)
{
    const json_t *list = json_object_get(v, key), *rest;
    const struct g_place *in = place_new(s, job->place, key, 0);
    bool alone;

    if (!strcmp(key, "oneOf") && !g_schema_apart(s, list, in)) {
        g_fail_place(s->b, job->place, key,
                     "only supported where the schemas exclude each other by "
                     "type, const, enum or a required member");
        return;
    }
    rest = g_schema_without(s, v, key);
    alone = rest && !g_schema_says(rest, "");
    for (size_t i = 0; i < json_array_size(list) && !s->b->rc; i++) {
        const json_t *x = json_array_get(list, i);

        if (!alone) {
            struct g_place here = { .up = in, .index = i };

            x = g_schema_flat(s, x, &here);
            x = x ? g_schema_meet(s, rest, x, &here) : NULL;
        }
        if (x)
            g_call(s->b, part.from, rule_of(s, x, in, NULL, i), part.to);
    }
}

static void draw_types(struct g_schema *s, const struct g_job *job,
                       const json_t *v, struct g_part part)
{
    struct g_build *b = s->b;
    uint32_t types = g_schema_types(v);

    if (!json_object_get(v, "type"))
        types = g_schema_about(v);
    if (json_object_get(v, "format") &&
        !(types & (G_TYPE_STRING | G_TYPE_INTEGER | G_TYPE_NUMBER))) {
        g_fail_place(b, job->place, "format", "not supported without strings");
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
               number_rule(s, v, !(types & G_TYPE_NUMBER), job->place),
               part.to);
    if (types & G_TYPE_STRING)
        g_call(b, part.from, string_rule(s, v, job->place), part.to);
    if (types & G_TYPE_ARRAY)
        g_call(b, part.from,
               g_schema_about(v) & G_TYPE_ARRAY
                   ? job_add(s, JOB_ARRAY, v, job->place)
                   : g_json_any(s->j, G_LEAF_ARRAY),
               part.to);
    if (types & G_TYPE_OBJECT)
        g_call(b, part.from,
               g_schema_about(v) & G_TYPE_OBJECT
                   ? job_add(s, JOB_OBJECT, v, job->place)
                   : g_json_any(s->j, G_LEAF_OBJECT),
               part.to);
    if (!types)
        g_call(b, part.from,
               g_json_any(s->j, s->raw ? G_LEAF_TEXT : G_LEAF_VALUE), part.to);
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
    const json_t *v = job->v, *ref = json_object_get(v, "$ref");
    struct g_part part = { g_state(b), g_state(b) };

    if (ref && !g_schema_says(v, "$ref")) {
        const json_t *to;

        if (g_schema_check(s, v, job->place))
            return;
        to = g_schema_target(s, ref, job->place);
        if (!to)
            return;
        g_call(b, part.from,
               rule_of(s, to, place_of_target(s, ref, job->place), "", 0),
               part.to);
    } else {
        v = g_schema_flat(s, v, job->place);
        if (!v)
            return;
        if (json_is_true(v) || (json_is_object(v) && !json_object_size(v)))
            g_call(b, part.from,
                   g_json_any(s->j, s->raw ? G_LEAF_TEXT : G_LEAF_VALUE),
                   part.to);
        else if (json_object_get(v, "anyOf"))
            draw_branches(s, job, v, "anyOf", part);
        else if (json_object_get(v, "oneOf"))
            draw_branches(s, job, v, "oneOf", part);
        else if (json_object_get(v, "const") || json_object_get(v, "enum"))
            draw_values(s, job, v, part);
        else if (json_is_object(v))
            draw_types(s, job, v, part);
    }
    g_rule_set(b, job->rule, part);
}

static void job_do(struct g_schema *s, const struct g_job *job)
{
    char where[300];

    g_clear(s->b);
    s->raw = job->raw;
    switch (job->kind) {
    case JOB_SCHEMA:
        set_schema(s, job);
        break;
    case JOB_STRING:
        set_string(s, job);
        break;
    case JOB_ARRAY:
        set_array(s, job);
        break;
    case JOB_OBJECT:
        set_object(s, job);
        break;
    }
    if (s->b->rc && s->b->bare) {
        g_place_text(job->place, where, sizeof where);
        seam_fail_at(s->b->err, where);
        s->b->bare = false;
    }
}

uint32_t g_schema_add(struct g_schema **list, struct g_json *j,
                      const json_t *root, const char *where, bool raw)
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
    s->raw = raw;
    s->made = json_array();
    s->memo = json_object();
    if (!s->made || !s->memo)
        g_fail(j->b, SEAM_ENOMEM, "grammar: out of memory");
    place = place_new(s, NULL, where, 0);
    if (!json_is_object(root) && !json_is_boolean(root))
        g_fail_place(j->b, place, NULL, "expected a schema");
    if (!j->b->rc)
        rule = job_add(s, JOB_SCHEMA, root, place);
    /* A reference to the whole is a call of this rule. */
    if (!j->b->rc) {
        char name[32];

        snprintf(name, sizeof name, "%p%s", (const void *)root,
                 raw ? " raw" : "");
        memo_put(s, name, rule);
    }
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
