/* JSON text to jansson values, strictly: no duplicate keys, no trailing bytes,
 * bounded depth.  Depth is checked before parsing, so that neither jansson nor
 * our own walks ever recurse deeper than SEAM_JSON_DEPTH. */
#ifndef SEAM_BASE_JSON_H
#define SEAM_BASE_JSON_H

#include <jansson.h>

#include "core/base/error.h"

#define SEAM_JSON_DEPTH 128

enum {
    SEAM_JSON_BIG_INT = 1 /* integers beyond 64 bits become reals, the nearest
                             there are */
};

/* text[0, n) as a value the caller releases with json_decref, or NULL with a
 * message "WHAT:LINE:COLUMN: reason" that quotes nothing of the text.  U+0000
 * in string values is kept.  [any] */
json_t *seam_json_parse(const char *text, size_t n, const char *what,
                        uint32_t flags, struct seam_error *err);

/* The same for a file of at most max bytes. */
json_t *seam_json_file(const char *path, uint64_t max, struct seam_error *err);

/* A member that is present and not null, or NULL; and its text if it is a
 * string, or NULL. */
static inline json_t *seam_json_member(const json_t *o, const char *key)
{
    json_t *v = json_object_get(o, key);

    return json_is_null(v) ? NULL : v;
}

static inline const char *seam_json_text(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

#endif
