/* A growable run of bytes that remembers running out of memory, so that a
 * sequence of appends is checked once at its end. */
#ifndef SEAM_BASE_BUF_H
#define SEAM_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>

struct seam_buf {
    char *p; /* NUL-terminated once anything was appended */
    size_t n, cap;
    bool failed; /* an append found no memory; the content is incomplete */
};

void seam_buf_release(struct seam_buf *b);
void seam_buf_clear(struct seam_buf *b); /* keeps the memory, clears failed */
void seam_buf_add(struct seam_buf *b, const char *p, size_t n);
void seam_buf_str(struct seam_buf *b, const char *s);
__attribute__((format(printf, 2, 3))) void seam_buf_fmt(struct seam_buf *b,
                                                        const char *fmt, ...);

/* s as a JSON string with its quotes, escapes per RFC 8259: '"', '\\' and bytes
 * below 0x20; everything else raw.  s must be valid UTF-8 for valid JSON. */
void seam_buf_json(struct seam_buf *b, const char *s, size_t n);

#endif
