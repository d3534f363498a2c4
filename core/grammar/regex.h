/* Regular expressions as drawings: the subset of ECMA-262 that docs/structured-
 * output.md lists, with its "u" flag. */
#ifndef SEAM_GRAMMAR_REGEX_H
#define SEAM_GRAMMAR_REGEX_H

#include "core/grammar/build.h"

/* Draw the strings in which the expression p[0, n) has a match, or, when whole,
 * those that it matches as a whole.  alone: nothing else is drawn yet, and calls
 * may be drawn.  A failure is bare. */
struct g_part g_regex(struct g_build *b, const char *p, size_t n,
                      enum g_coding coding, bool whole, bool alone);

#endif
