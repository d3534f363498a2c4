/* A strict pull scanner for the two JSON texts that a big checkpoint has by the
 * hundred thousand entries: the safetensors header and the weight_map.
 *
 * jansson builds a tree that takes up to forty times the memory of a hostile
 * header ("[[],[],...") and keeps only the last of two members of one name
 * unless told otherwise; here the caller walks the text itself, nothing is
 * allocated, and strings are decoded in place.  Integers are digits only.
 * Text must be UTF-8 as a whole (checked by the caller once).  Everything else
 * of the project goes through core/base/json.h. */
#ifndef SEAM_CHECKPOINT_JSCAN_H
#define SEAM_CHECKPOINT_JSCAN_H

#include <stdbool.h>

#include "core/base/error.h"

#define SEAM_JSCAN_DEPTH 64 /* of values that are skipped */

struct seam_jscan {
    char *text; /* [n], overwritten by decoded strings */
    uint64_t n, at;
    const char *what; /* file, for messages */
    const char *in;   /* tensor that is being read, or NULL */
    struct seam_error *err;
};

/* Each returns 0 or fills *err: "WHAT: [tensor "IN": ]byte AT: expected ...".
 *
 * A container is walked with
 *     rc = seam_jscan_open(s, '{');
 *     for (bool first = true; !rc && (rc = seam_jscan_more(s, '}', &first));)
 * where more returns 1: a member or element follows, 0: the closing bracket
 * was read, negative: an error. */
int seam_jscan_open(struct seam_jscan *s, char bracket);
int seam_jscan_more(struct seam_jscan *s, char closing, bool *first);

/* A string, decoded and NUL-terminated in place.  U+0000 and lone surrogates
 * are refused. */
int seam_jscan_string(struct seam_jscan *s, char **p, uint64_t *n);
/* The same followed by ':'. */
int seam_jscan_key(struct seam_jscan *s, char **p, uint64_t *n);
/* An integer in [0, 2^64) without sign, fraction or exponent. */
int seam_jscan_u64(struct seam_jscan *s, uint64_t *v);
/* Any value. */
int seam_jscan_skip(struct seam_jscan *s);
/* Nothing but blanks is left. */
int seam_jscan_end(struct seam_jscan *s);

int seam_jscan_fail(const struct seam_jscan *s, const char *expected);

/* Bytes of name to show in a message, for %.*s: cut on a character boundary. */
int seam_jscan_shown(const char *name);

#endif
