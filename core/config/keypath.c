#include "core/config/keypath.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "core/base/num.h"

/* One open bracket, and where in it the walk is. */
struct keypath_level {
    bool is_list;
    size_t index;    /* of a list: the current element                      */
    const char *key; /* of an object: the current key with its quotes       */
    size_t key_bytes;
};

/* A walk over JSON text that stops at each key and each list element. */
struct keypath_walk {
    const char *p, *end;
    size_t line;
    bool wants_key;     /* the next string is a key                           */
    bool wants_element; /* the next token begins a list element               */
    size_t depth;
    struct keypath_level level[SEAM_JSON_DEPTH];
};

static void keypath_start(struct keypath_walk *w, const char *text, size_t n)
{
    memset(w, 0, sizeof *w);
    w->p = text;
    w->end = text + n;
    w->line = 1;
}

/* Step over the string that begins at w->p.  Strings hold no line breaks. */
static void keypath_string(struct keypath_walk *w)
{
    w->p++;
    while (w->p < w->end && *w->p != '"')
        w->p += *w->p == '\\' && w->end - w->p > 1 ? 2 : 1;
    if (w->p < w->end)
        w->p++;
}

static bool keypath_open(struct keypath_walk *w, bool is_list)
{
    if (w->depth == SEAM_JSON_DEPTH)
        return false;
    w->level[w->depth++] = (struct keypath_level){ .is_list = is_list };
    w->wants_key = !is_list;
    w->wants_element = is_list;
    return true;
}

static void keypath_comma(struct keypath_walk *w)
{
    struct keypath_level *l = w->depth ? &w->level[w->depth - 1] : NULL;

    if (!l)
        return;
    if (l->is_list)
        l->index++;
    w->wants_element = l->is_list;
    w->wants_key = !l->is_list;
}

/* Go to the next key or element: w->p is then behind the key, or at the
 * element.  False at the end of the text. */
static bool keypath_next(struct keypath_walk *w)
{
    while (w->p < w->end) {
        char c = *w->p;

        if (c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == ':') {
            w->line += c == '\n';
            w->p++;
        } else if (c == ']' || c == '}') {
            w->depth -= w->depth > 0;
            w->wants_key = w->wants_element = false;
            w->p++;
        } else if (c == ',') {
            keypath_comma(w);
            w->p++;
        } else if (w->wants_element) {
            w->wants_element = false;
            return true;
        } else if (c == '{' || c == '[') {
            if (!keypath_open(w, c == '['))
                return false;
            w->p++;
        } else if (c == '"') {
            const char *from = w->p;

            keypath_string(w);
            if (w->wants_key) {
                struct keypath_level *l = &w->level[w->depth - 1];

                l->key = from;
                l->key_bytes = (size_t)(w->p - from);
                w->wants_key = false;
                return true;
            }
        } else {
            w->p++;
        }
    }
    return false;
}

/* Append what the current place adds to the path of the bracket around it. */
static void keypath_part(const struct keypath_level *l, bool is_first,
                         struct seam_buf *out)
{
    json_t *key = NULL;

    if (l->is_list) {
        seam_buf_fmt(out, "[%zu]", l->index);
        return;
    }
    if (!is_first)
        seam_buf_str(out, ".");
    if (l->key)
        key = json_loadb(l->key, l->key_bytes, JSON_DECODE_ANY | JSON_ALLOW_NUL,
                         NULL);
    if (key)
        seam_buf_add(out, json_string_value(key), json_string_length(key));
    json_decref(key);
}

size_t seam_keypath_line(const char *text, size_t n, const char *path)
{
    struct keypath_walk w;
    struct seam_buf part = { 0 };
    size_t path_bytes = strlen(path), line = 0;
    size_t matched = 0;             /* brackets that are on the path     */
    size_t at[SEAM_JSON_DEPTH + 1]; /* where in path each of them ends   */

    at[0] = 0;
    keypath_start(&w, text, n);
    while (!line && keypath_next(&w)) {
        if (w.depth == 0 || matched < w.depth - 1)
            continue;
        matched = w.depth - 1;
        seam_buf_clear(&part);
        keypath_part(&w.level[matched], matched == 0, &part);
        if (part.failed || part.n > path_bytes - at[matched] ||
            (part.n && memcmp(path + at[matched], part.p, part.n) != 0))
            continue;
        at[matched + 1] = at[matched] + part.n;
        if (at[matched + 1] == path_bytes)
            line = w.line;
        matched++;
    }
    seam_buf_release(&part);
    return line;
}

void seam_keypath_at(const char *text, size_t n, size_t offset,
                     struct seam_buf *out)
{
    struct keypath_walk w, last;
    bool found = false;

    keypath_start(&w, text, n);
    while (keypath_next(&w) && (size_t)(w.p - text) <= offset) {
        last = w;
        found = true;
    }
    for (size_t i = 0; found && i < last.depth; i++)
        keypath_part(&last.level[i], i == 0, out);
}

const char *seam_keypath_last(const char *path)
{
    const char *dot = strrchr(path, '.');

    return dot ? dot + 1 : path;
}

/* Whether a and b are keys of one object. */
static bool keypath_siblings(const char *a, const char *b)
{
    size_t na = (size_t)(seam_keypath_last(a) - a);

    return na == (size_t)(seam_keypath_last(b) - b) && memcmp(a, b, na) == 0;
}

/* The known path whose last part is `last`, preferring places like path's. */
static const char *keypath_moved(const char *path, const char *const *known,
                                 const char **some)
{
    size_t n = 0;
    const char *best;

    for (; *known; known++)
        if (strcmp(seam_keypath_last(*known), seam_keypath_last(path)) == 0)
            some[n++] = *known;
    some[n] = NULL;
    best = seam_nearest(path, some);
    return best ? best : some[0];
}

static const char *keypath_similar(const char *path, const char *const *known,
                                   const char **some)
{
    const char *best;
    size_t n = 0;

    for (size_t i = 0; known[i]; i++)
        if (keypath_siblings(path, known[i]))
            some[n++] = seam_keypath_last(known[i]);
    some[n] = NULL;
    best = seam_nearest(seam_keypath_last(path), some);
    for (size_t i = 0; best && known[i]; i++)
        if (keypath_siblings(path, known[i]) &&
            strcmp(seam_keypath_last(known[i]), best) == 0)
            return known[i];
    return NULL;
}

const char *seam_keypath_nearest(const char *path, const char *const *known)
{
    const char *best, **some;
    bool has_siblings = false;
    size_t n = 0;

    for (; known[n]; n++)
        if (keypath_siblings(path, known[n]))
            has_siblings = true;
    some = calloc(n + 1, sizeof *some);
    if (!some)
        return NULL;
    best = keypath_moved(path, known, some);
    if (!best)
        best = keypath_similar(path, known, some);
    if (!best && !has_siblings)
        best = seam_nearest(path, known);
    free(some);
    return best;
}
