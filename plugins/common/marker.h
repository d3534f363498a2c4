/* Cuts model output, in pieces of any size, into text and markers.
 *
 * A marker is one of a list of tags that begin with '<' and hold no other; none
 * begins another.  Only what may still become a marker is kept back, and what
 * may still become a character: no text ends inside one, and each ill-formed
 * part becomes U+FFFD. */
#ifndef SEAM_MARKER_H
#define SEAM_MARKER_H

#include "text_buf.h"

#define MARKER_MAX 16 /* bytes of the longest marker */

struct marker_lexer {
    const char *const *markers; /* [n_markers] */
    uint32_t n_markers;
    void *ctx;
    void (*text)(void *ctx, const char *p, size_t n); /* n > 0 */
    void (*marker)(void *ctx, uint32_t index);
    char held[MARKER_MAX]; /* the beginning of a marker                     */
    size_t n_held;
    char part[4]; /* the beginning of a character                           */
    size_t n_part;
};

void marker_feed(struct marker_lexer *l, const char *p, size_t n);

/* No more comes: what is a character begun becomes U+FFFD.  held stays, for the
 * caller to decide what a marker begun means. */
void marker_end(struct marker_lexer *l);

#endif
