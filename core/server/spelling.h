/* How the numbers of parsed JSON were written.
 *
 * jansson keeps a number's value only: 1.50 comes back as 1.5 and an integer
 * beyond 64 bits as a real.  Schemas, arguments and results reach the model as
 * text, and there the digits count.  So what was parsed is remembered together
 * with its text, number by number, and whatever is built out of its values
 * prints them as they came. */
#ifndef SEAM_SERVER_SPELLING_H
#define SEAM_SERVER_SPELLING_H

#include <jansson.h>

#include "core/base/buf.h"

struct seam_spelled;

/* All zero is one that knows nothing. */
struct seam_spelling {
    struct seam_spelled *v; /* [n], by address, which is theirs as long as
                               they are held; only those that would print
                               otherwise                                      */
    size_t n, cap;
};

/* Remember the numbers of root, which text[0, n) was parsed to; the text must
 * live as long as *s.  0, or SEAM_ENOMEM and *s is as it was. */
int seam_spelling_add(struct seam_spelling *s, const json_t *root,
                      const char *text, size_t n);
void seam_spelling_release(struct seam_spelling *s);

/* v as compact JSON, NUL-terminated, for the caller to free; NULL: no memory.
 * s may be NULL. */
char *seam_spelling_dump(const struct seam_spelling *s, const json_t *v);

#endif
