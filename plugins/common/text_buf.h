/* A growable run of bytes that remembers running out of memory, so that a
 * sequence of appends is checked once at its end; and UTF-8 by the Unicode
 * standard, chapter 3.9. */
#ifndef SEAM_TEXT_BUF_H
#define SEAM_TEXT_BUF_H

#include <seam/plugin.h>

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct tbuf {
    char *p; /* not NUL-terminated */
    size_t n, cap;
    bool failed; /* an append found no memory; the content is incomplete */
};

void tbuf_release(struct tbuf *b);
void tbuf_add(struct tbuf *b, const char *p, size_t n);

static inline void tbuf_str(struct tbuf *b, const char *s)
{
    tbuf_add(b, s, strlen(s));
}

static inline void tbuf_clear(struct tbuf *b)
{
    b->n = 0;
}

/* Its content; never a null pointer. */
static inline struct seam_str tbuf_view(const struct tbuf *b)
{
    return (struct seam_str){ b->p ? b->p : "", b->n };
}

/* s as the inside of a JSON string: '"', '\\' and bytes below 0x20 escaped, the
 * latter as \n \r \t \b \f or \u00xx in lower case; everything else raw. */
void tbuf_json_part(struct tbuf *b, const char *s, size_t n);
/* The same with its quotes. */
void tbuf_json(struct tbuf *b, const char *s, size_t n);

/* What stands at p[0, n), n > 0; *len is how many bytes it covers. */
enum tutf8 {
    TUTF8_OK = 1,  /* a character, code point *cp                            */
    TUTF8_BAD = 2, /* a maximal ill-formed part                              */
    TUTF8_MORE = 3 /* the beginning of a character; *len = n                 */
};
enum tutf8 tutf8_next(const char *p, size_t n, uint32_t *cp, size_t *len);
void tbuf_utf8(struct tbuf *b, uint32_t cp);

/* The six bytes that count as white space in model output (chat spec). */
static inline bool text_is_ws(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static inline bool text_is(struct seam_str s, const char *lit)
{
    return s.n == strlen(lit) && !memcmp(s.p, lit, s.n);
}

static inline bool text_same(struct seam_str a, struct seam_str b)
{
    return a.n == b.n && (a.n == 0 || !memcmp(a.p, b.p, a.n));
}

/* Like memcmp, the shorter first when one begins the other. */
int text_order(struct seam_str a, struct seam_str b);

/* First place of lit in s at or after from, or s.n. */
size_t text_find(struct seam_str s, size_t from, const char *lit);

/* s without white space (text_is_ws) at its ends. */
struct seam_str text_trim(struct seam_str s);

#endif
