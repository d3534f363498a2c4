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

/* Is the digits' value beyond an int64_t? */
static bool json_is_big(const char *p, size_t n, bool negative)
{
    if (n && *p == '0') /* no number, or 0 */
        return false;
    return n > 19 ||
           (n == 19 &&
            memcmp(p, negative ? "9223372036854775808" : "9223372036854775807",
                   19) > 0);
}

/* Write the integer s[0, n) as a real of the same length: an exponent takes the
 * place of its last two digits. */
static void json_make_real(char *s, size_t n, bool negative)
{
    if (n - negative <= 308) {
        memcpy(s + n - 2, "e2", 2);
    } else { /* no double is that large */
        memset(s + negative, ' ', n - negative);
        memcpy(s + negative, "1e308", 5);
    }
}

/* The text with its integers beyond 64 bits made reals; NULL when it has none,
 * or no memory.  It need not be JSON. */
static char *json_without_big(const char *text, size_t n)
{
    char *copy = NULL;
    size_t i = 0;

    while (i < n) {
        size_t from = i;
        bool negative = text[i] == '-';

        if (text[i] == '"') {
            for (i++; i < n && text[i] != '"'; i++)
                if (text[i] == '\\')
                    i++;
            i++;
            continue;
        }
        i += negative;
        while (i < n && text[i] >= '0' && text[i] <= '9')
            i++;
        if (i == from + negative) {
            i = from + 1;
            continue;
        }
        if (i < n && strchr(".eE", text[i]) && text[i]) {
            while (i < n && strchr("+-.eE0123456789", text[i]) && text[i])
                i++;
            continue;
        }
        if (!json_is_big(text + from + negative, i - from - negative, negative))
            continue;
        if (!copy) {
            copy = malloc(n);
            if (!copy)
                return NULL;
            memcpy(copy, text, n);
        }
        json_make_real(copy + from, i - from, negative);
    }
    return copy;
}

json_t *seam_json_parse(const char *text, size_t n, const char *what,
                        uint32_t flags, struct seam_error *err)
{
    size_t jflags = JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY;
    unsigned depth = json_depth(text, n);
    json_error_t je;
    char *copy;
    json_t *v;

    if (depth > SEAM_JSON_DEPTH) {
        seam_fail(err, SEAM_EDATA,
                  "%s: nested %u levels deep, expected at "
                  "most %d",
                  what, depth, SEAM_JSON_DEPTH);
        return NULL;
    }
    v = json_loadb(text, n, jflags, &je);
    copy = v || !(flags & SEAM_JSON_BIG_INT) ? NULL : json_without_big(text, n);
    if (copy)
        v = json_loadb(copy, n, jflags, &je);
    free(copy);
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
