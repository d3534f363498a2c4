/* Errors are values: a negative SEAM_E* code and one line for the operator. */
#ifndef SEAM_BASE_ERROR_H
#define SEAM_BASE_ERROR_H

#include <stdarg.h>

#include <seam/plugin.h>

/* Fill *err (may be NULL) and return code.  The text becomes one line: control
 * characters are replaced, and what does not fit is cut on a character
 * boundary.  [any] */
__attribute__((format(printf, 3, 4))) int seam_fail(struct seam_error *err,
                                                    int code, const char *fmt,
                                                    ...);

/* The same with ": " and the system's words for errno value `native`. */
__attribute__((format(printf, 4, 5))) int seam_fail_errno(
    struct seam_error *err, int code, int native, const char *fmt, ...);

/* Put "where: " before a message that is already there.  Returns err->code. */
int seam_fail_at(struct seam_error *err, const char *where);

#endif
