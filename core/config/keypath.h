/* Paths of keys in JSON, such as "plugins.moe.config.layers[3].kind": where in
 * the text one stands, which one stands at a place, and which known one is
 * meant by an unknown one.
 *
 * The JSON library keeps no lines of keys.  These walk the text again, when
 * there is a message to write; any text is safe, only valid JSON is meaningful.
 * A key that holds '.' or '[' looks like a path of several keys. */
#ifndef SEAM_CONFIG_KEYPATH_H
#define SEAM_CONFIG_KEYPATH_H

#include <stddef.h>

#include "core/base/buf.h"

/* Line, from 1, of the first key or list element with this path; 0: none. */
size_t seam_keypath_line(const char *text, size_t n, const char *path);

/* Append the path of the last key that ends, or list element that begins, at or
 * before text[offset]. */
void seam_keypath_at(const char *text, size_t n, size_t offset,
                     struct seam_buf *out);

/* The last part of a path: "kind" of "layers[3].kind". */
const char *seam_keypath_last(const char *path);

/* The path of known (NULL-terminated) that was meant by the unknown `path`: the
 * same key in another place, else a similar key in the same place, else, if the
 * place is unknown too, a similar path; or NULL. */
const char *seam_keypath_nearest(const char *path, const char *const *known);

#endif
