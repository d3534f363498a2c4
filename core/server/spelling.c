/* The parser keeps members in the order of the text and refuses those that come
 * twice, so the numbers of a tree, walked in order, are those of the text. */
#include "core/server/spelling.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/num.h"

struct seam_spelled {
    json_t *number;
    const char *p; /* in the text */
    size_t n;
};

static int spelled_order(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t)((const struct seam_spelled *)a)->number;
    uintptr_t y = (uintptr_t)((const struct seam_spelled *)b)->number;

    return (x > y) - (x < y);
}

void seam_spelling_release(struct seam_spelling *s)
{
    for (size_t i = 0; i < s->n; i++)
        json_decref(s->v[i].number);
    free(s->v);
    *s = (struct seam_spelling){ 0 };
}

/* ---- Reading ------------------------------------------------------------- */

struct scan {
    struct seam_spelling *s;
    const char *p, *end;
};

/* The next number of the text, or false at its end. */
static bool scan_number(struct scan *c, const char **at, size_t *n)
{
    while (c->p < c->end) {
        if (*c->p == '"') {
            for (c->p++; c->p < c->end && *c->p != '"'; c->p++)
                if (*c->p == '\\')
                    c->p++;
            c->p++;
        } else if (*c->p == '-' || (*c->p >= '0' && *c->p <= '9')) {
            *at = c->p;
            while (c->p < c->end &&
                   (strchr("+-.eE", *c->p) ? *c->p != 0
                                           : *c->p >= '0' && *c->p <= '9'))
                c->p++;
            *n = (size_t)(c->p - *at);
            return true;
        } else {
            c->p++;
        }
    }
    return false;
}

/* Would the value print as it was written? */
static bool is_plain(const json_t *number, const char *p, size_t n)
{
    return json_is_integer(number) && !(n == 2 && p[0] == '-' && p[1] == '0');
}

static int scan_remember(struct scan *c, json_t *number)
{
    struct seam_spelling *s = c->s;
    const char *p;
    size_t n;

    if (!scan_number(c, &p, &n))
        return SEAM_EINVAL;
    if (is_plain(number, p, n))
        return 0;
    if (s->n == s->cap) {
        size_t cap = s->cap ? s->cap + s->cap / 2 : 32;
        struct seam_spelled *v = realloc(s->v, cap * sizeof *v);

        if (!v)
            return SEAM_ENOMEM;
        s->v = v;
        s->cap = cap;
    }
    s->v[s->n++] = (struct seam_spelled){ json_incref(number), p, n };
    return 0;
}

/* Depth is bounded by the parser. */
static int scan_walk(struct scan *c, json_t *v)
{
    const char *key;
    json_t *item;
    size_t i;
    int rc = 0;

    if (json_is_number(v))
        return scan_remember(c, v);
    if (json_is_array(v))
        json_array_foreach(v, i, item)
        {
            rc = scan_walk(c, item);
            if (rc)
                return rc;
        }
    else if (json_is_object(v))
        json_object_foreach(v, key, item)
        {
            rc = scan_walk(c, item);
            if (rc)
                return rc;
        }
    return 0;
}

int seam_spelling_add(struct seam_spelling *s, const json_t *root,
                      const char *text, size_t n)
{
    struct scan c = { .s = s, .p = text, .end = text + n };
    size_t before = s->n;
    int rc;

    rc = scan_walk(&c, (json_t *)root); /* only its numbers are counted up */
    while (rc && s->n > before)
        json_decref(s->v[--s->n].number);
    if (!rc && s->n != before)
        qsort(s->v, s->n, sizeof *s->v, spelled_order);
    return rc;
}

/* ---- Writing ------------------------------------------------------------- */

/* With as few digits as give the same value again. */
static void dump_real(double d, struct seam_buf *b)
{
    char text[40];
    double back;

    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, d);
        if (seam_parse_f64(text, &back) && back == d)
            break;
    }
    seam_buf_str(b, text);
    if (!strpbrk(text, ".eE"))
        seam_buf_str(b, ".0");
}

static void dump_number(const struct seam_spelling *s, const json_t *v,
                        struct seam_buf *b)
{
    struct seam_spelled key = { .number = (json_t *)v };
    const struct seam_spelled *known =
        s && s->n ? bsearch(&key, s->v, s->n, sizeof key, spelled_order) : NULL;

    if (known)
        seam_buf_add(b, known->p, known->n);
    else if (json_is_integer(v))
        seam_buf_fmt(b, "%lld", (long long)json_integer_value(v));
    else
        dump_real(json_real_value(v), b);
}

static void dump(const struct seam_spelling *s, const json_t *v,
                 struct seam_buf *b)
{
    const char *key;
    json_t *item;
    size_t i;

    switch (json_typeof(v)) {
    case JSON_OBJECT:
        i = 0;
        seam_buf_str(b, "{");
        json_object_foreach((json_t *)v, key, item)
        {
            if (i++)
                seam_buf_str(b, ",");
            seam_buf_json(b, key, strlen(key));
            seam_buf_str(b, ":");
            dump(s, item, b);
        }
        seam_buf_str(b, "}");
        break;
    case JSON_ARRAY:
        seam_buf_str(b, "[");
        json_array_foreach(v, i, item)
        {
            if (i)
                seam_buf_str(b, ",");
            dump(s, item, b);
        }
        seam_buf_str(b, "]");
        break;
    case JSON_STRING:
        seam_buf_json(b, json_string_value(v), json_string_length(v));
        break;
    case JSON_INTEGER:
    case JSON_REAL:
        dump_number(s, v, b);
        break;
    case JSON_TRUE:
        seam_buf_str(b, "true");
        break;
    case JSON_FALSE:
        seam_buf_str(b, "false");
        break;
    case JSON_NULL:
        seam_buf_str(b, "null");
        break;
    }
}

char *seam_spelling_dump(const struct seam_spelling *s, const json_t *v)
{
    struct seam_buf b = { 0 };

    dump(s, v, &b);
    if (b.failed)
        seam_buf_release(&b);
    return b.p;
}
