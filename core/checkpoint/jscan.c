#include "core/checkpoint/jscan.h"

#include <string.h>

#include "core/base/num.h"
#include "core/base/utf8.h"

#define SHOWN_MAX 96 /* bytes of a foreign name in a message                  */

int seam_jscan_shown(const char *name)
{
    size_t n = strnlen(name, SHOWN_MAX + 1);

    return (int)(n <= SHOWN_MAX ? n : seam_utf8_whole(name, SHOWN_MAX));
}

int seam_jscan_fail(const struct seam_jscan *s, const char *expected)
{
    if (s->in)
        return seam_fail(s->err, SEAM_EDATA,
                         "%s: tensor \"%.*s\": byte %llu: "
                         "expected %s",
                         s->what, seam_jscan_shown(s->in), s->in,
                         (unsigned long long)s->at, expected);
    return seam_fail(s->err, SEAM_EDATA, "%s: byte %llu: expected %s", s->what,
                     (unsigned long long)s->at, expected);
}

/* The next byte that is no blank, or 0 at the end. */
static char jscan_peek(struct seam_jscan *s)
{
    while (s->at < s->n) {
        char c = s->text[s->at];

        if (c != ' ' && c != '\t' && c != '\n' && c != '\r')
            return c;
        s->at++;
    }
    return 0;
}

static bool jscan_take(struct seam_jscan *s, char c)
{
    if (jscan_peek(s) != c)
        return false;
    s->at++;
    return true;
}

int seam_jscan_open(struct seam_jscan *s, char bracket)
{
    if (!jscan_take(s, bracket))
        return seam_jscan_fail(s, bracket == '{' ? "an object" : "a list");
    return 0;
}

int seam_jscan_more(struct seam_jscan *s, char closing, bool *first)
{
    if (jscan_take(s, closing)) {
        return 0;
    } else if (*first) {
        *first = false;
        return 1;
    } else if (jscan_take(s, ',')) {
        return 1;
    }
    return seam_jscan_fail(s, closing == '}' ? "',' or '}'" : "',' or ']'");
}

/* Four hexadecimal digits at text[at, at + 4). */
static bool jscan_hex(const struct seam_jscan *s, uint64_t at, uint32_t *v)
{
    *v = 0;
    if (at > s->n || s->n - at < 4)
        return false;
    for (int i = 0; i < 4; i++) {
        char c = s->text[at + (uint64_t)i];

        *v <<= 4;
        if (c >= '0' && c <= '9')
            *v |= (uint32_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            *v |= (uint32_t)(c - 'a' + 10);
        else if (c >= 'A' && c <= 'F')
            *v |= (uint32_t)(c - 'A' + 10);
        else
            return false;
    }
    return true;
}

static char *jscan_put_utf8(char *to, uint32_t cp)
{
    if (cp < 0x80) {
        *to++ = (char)cp;
    } else if (cp < 0x800) {
        *to++ = (char)(0xc0 | cp >> 6);
        *to++ = (char)(0x80 | (cp & 0x3f));
    } else if (cp < 0x10000) {
        *to++ = (char)(0xe0 | cp >> 12);
        *to++ = (char)(0x80 | (cp >> 6 & 0x3f));
        *to++ = (char)(0x80 | (cp & 0x3f));
    } else {
        *to++ = (char)(0xf0 | cp >> 18);
        *to++ = (char)(0x80 | (cp >> 12 & 0x3f));
        *to++ = (char)(0x80 | (cp >> 6 & 0x3f));
        *to++ = (char)(0x80 | (cp & 0x3f));
    }
    return to;
}

/* The escape behind a backslash at s->at, appended at *to. */
static int jscan_escape(struct seam_jscan *s, char **to)
{
    static const char from[] = "\"\\/bfnrt", into[] = "\"\\/\b\f\n\r\t";
    uint32_t cp, low;
    const char *f;

    if (s->at + 1 >= s->n)
        return seam_jscan_fail(s, "an escape");
    if (s->text[s->at + 1] != 'u') {
        f = memchr(from, s->text[s->at + 1], sizeof from - 1);
        if (!f)
            return seam_jscan_fail(s, "an escape that JSON knows");
        *(*to)++ = into[f - from];
        s->at += 2;
        return 0;
    }
    if (!jscan_hex(s, s->at + 2, &cp))
        return seam_jscan_fail(s, "four hexadecimal digits");
    if (cp == 0)
        return seam_jscan_fail(s, "a string without U+0000");
    if (cp >= 0xd800 && cp < 0xe000) {
        if (cp >= 0xdc00 || s->n - s->at < 12 || s->text[s->at + 6] != '\\' ||
            s->text[s->at + 7] != 'u' || !jscan_hex(s, s->at + 8, &low) ||
            low < 0xdc00 || low >= 0xe000)
            return seam_jscan_fail(s, "a surrogate pair");
        cp = 0x10000 + ((cp - 0xd800) << 10) + (low - 0xdc00);
        s->at += 6;
    }
    s->at += 6;
    *to = jscan_put_utf8(*to, cp);
    return 0;
}

int seam_jscan_string(struct seam_jscan *s, char **p, uint64_t *n)
{
    char *start, *to;
    int rc;

    if (!jscan_take(s, '"'))
        return seam_jscan_fail(s, "a string");
    start = to = s->text + s->at;
    while (s->at < s->n && s->text[s->at] != '"') {
        unsigned char c = (unsigned char)s->text[s->at];

        if (c < 0x20)
            return seam_jscan_fail(s, "no raw control character in a string");
        if (c != '\\') {
            *to++ = (char)c;
            s->at++;
            continue;
        }
        rc = jscan_escape(s, &to);
        if (rc)
            return rc;
    }
    if (s->at >= s->n)
        return seam_jscan_fail(s, "the end of a string");
    s->at++;
    *to = 0; /* on the closing quote at the latest */
    *p = start;
    *n = (uint64_t)(to - start);
    return 0;
}

int seam_jscan_key(struct seam_jscan *s, char **p, uint64_t *n)
{
    int rc = seam_jscan_string(s, p, n);

    if (rc)
        return rc;
    return jscan_take(s, ':') ? 0 : seam_jscan_fail(s, "':'");
}

static bool jscan_is_digit(const struct seam_jscan *s)
{
    return s->at < s->n && s->text[s->at] >= '0' && s->text[s->at] <= '9';
}

int seam_jscan_u64(struct seam_jscan *s, uint64_t *v)
{
    uint64_t from;

    jscan_peek(s);
    from = s->at;
    while (jscan_is_digit(s))
        s->at++;
    if (s->at == from || (s->text[from] == '0' && s->at - from > 1) ||
        (s->at < s->n && memchr(".eE", s->text[s->at], 3)) ||
        !seam_parse_u64(s->text + from, (size_t)(s->at - from), v)) {
        s->at = from;
        return seam_jscan_fail(s, "an integer from 0 to 2^64-1");
    }
    return 0;
}

/* -?(0|[1-9][0-9]*)(.[0-9]+)?([eE][+-]?[0-9]+)? */
static int jscan_number(struct seam_jscan *s)
{
    uint64_t from;

    if (s->text[s->at] == '-')
        s->at++;
    from = s->at;
    while (jscan_is_digit(s))
        s->at++;
    if (s->at == from || (s->text[from] == '0' && s->at - from > 1))
        return seam_jscan_fail(s, "a JSON value");
    if (s->at < s->n && s->text[s->at] == '.') {
        from = ++s->at;
        while (jscan_is_digit(s))
            s->at++;
        if (s->at == from)
            return seam_jscan_fail(s, "digits");
    }
    if (s->at < s->n && (s->text[s->at] | 0x20) == 'e') {
        s->at++;
        if (s->at < s->n && (s->text[s->at] == '+' || s->text[s->at] == '-'))
            s->at++;
        from = s->at;
        while (jscan_is_digit(s))
            s->at++;
        if (s->at == from)
            return seam_jscan_fail(s, "digits");
    }
    return 0;
}

/* A value that is no container. */
static int jscan_scalar(struct seam_jscan *s, char c)
{
    static const char *const words[] = { "true", "false", "null" };
    uint64_t n;
    char *p;

    if (c == '"')
        return seam_jscan_string(s, &p, &n);
    if (c == '-' || (c >= '0' && c <= '9'))
        return jscan_number(s);
    for (size_t i = 0; i < 3; i++) {
        n = strlen(words[i]);
        if (s->n - s->at >= n && !memcmp(s->text + s->at, words[i], n)) {
            s->at += n;
            return 0;
        }
    }
    return seam_jscan_fail(s, "a JSON value");
}

int seam_jscan_skip(struct seam_jscan *s)
{
    char closing[SEAM_JSCAN_DEPTH]; /* of the containers that are open */
    bool first[SEAM_JSCAN_DEPTH];
    uint32_t depth = 0;
    uint64_t n;
    char *p, c;
    int rc;

    do {
        if (depth) {
            rc = seam_jscan_more(s, closing[depth - 1], &first[depth - 1]);
            if (rc < 0)
                return rc;
            if (!rc) {
                depth--;
                continue;
            }
            if (closing[depth - 1] == '}') {
                rc = seam_jscan_key(s, &p, &n);
                if (rc)
                    return rc;
            }
        }
        c = jscan_peek(s);
        if (c == '{' || c == '[') {
            if (depth == SEAM_JSCAN_DEPTH)
                return seam_jscan_fail(s, "less nesting");
            s->at++;
            first[depth] = true;
            closing[depth++] = c == '{' ? '}' : ']';
        } else {
            rc = jscan_scalar(s, c);
            if (rc)
                return rc;
        }
    } while (depth);
    return 0;
}

int seam_jscan_end(struct seam_jscan *s)
{
    jscan_peek(s);
    return s->at == s->n ? 0 : seam_jscan_fail(s, "the end of the text");
}
