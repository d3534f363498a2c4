#include "core/base/json.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"

/* Deepest nesting of brackets outside strings.  The text need not be JSON. */
static unsigned json_depth(const char *s, size_t n)
{
    unsigned depth = 0, deepest = 0;
    bool in_string = false;

    for (size_t i = 0; i < n; i++) {
        char c = s[i];

        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '[' || c == '{') {
            if (++depth > deepest)
                deepest = depth;
        } else if ((c == ']' || c == '}') && depth) {
            depth--;
        }
    }
    return deepest;
}

/* jansson's message without what it quotes of the text ("near '...'"). */
static const char *json_reason(json_error_t *je)
{
    char *near = strstr(je->text, " near ");

    if (near)
        *near = 0;
    return je->text;
}

json_t *seam_json_parse(const char *text, size_t n, const char *what,
                        uint32_t flags, struct seam_error *err)
{
    size_t jflags = JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY;
    unsigned depth = json_depth(text, n);
    json_error_t je;
    json_t *v;

    if (depth > SEAM_JSON_DEPTH) {
        seam_fail(err, SEAM_EDATA,
                  "%s: nested %u levels deep, expected at "
                  "most %d",
                  what, depth, SEAM_JSON_DEPTH);
        return NULL;
    }
    if (flags & SEAM_JSON_BIG_INT)
        jflags |= JSON_DECODE_INT_AS_REAL;
    v = json_loadb(text, n, jflags & ~(size_t)JSON_DECODE_INT_AS_REAL, &je);
    if (!v && (flags & SEAM_JSON_BIG_INT))
        v = json_loadb(text, n, jflags, &je);
    if (!v)
        seam_fail(err, SEAM_EDATA, "%s:%d:%d: %s", what, je.line, je.column,
                  json_reason(&je));
    return v;
}

json_t *seam_json_file(const char *path, uint64_t max, struct seam_error *err)
{
    char *text;
    uint64_t n;
    json_t *v;

    if (seam_file_read(path, max, &text, &n, err))
        return NULL;
    v = seam_json_parse(text, n, path, 0, err);
    free(text);
    return v;
}
