/* Regular expressions as drawings: the subset of ECMA-262 that docs/structured-
 * output.md lists, with its "u" flag. */
#ifndef SEAM_GRAMMAR_REGEX_H
#define SEAM_GRAMMAR_REGEX_H

#include "core/grammar/build.h"

/* Draw the strings in which the expression p[0, n) has a match, or, when whole,
 * those that it matches as a whole.  A failure is bare.  Returns the state it
 * leads to. */
uint32_t g_regex(struct g_build *b, uint32_t from, const char *p, size_t n,
                 enum g_coding coding, bool whole);

#endif
