/* Arithmetic and parsing for numbers that come from outside. */
#ifndef SEAM_BASE_NUM_H
#define SEAM_BASE_NUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* False on overflow; *out is then untouched. */
static inline bool seam_mul(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t r;

    if (__builtin_mul_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

static inline bool seam_add(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t r;

    if (__builtin_add_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

/* Decimal digits only, the whole of s[0, n).  False when s is empty, holds
 * anything else (signs and blanks included), or does not fit. */
bool seam_parse_u64(const char *s, size_t n, uint64_t *out);
/* The same with one leading '-' allowed. */
bool seam_parse_i64(const char *s, size_t n, int64_t *out);

/* A finite decimal number, the whole of the NUL-terminated s, in the C locale's
 * notation whatever the process locale is. */
bool seam_parse_f64(const char *s, double *out);

/* Edit distance for "did you mean": the candidate nearest to `word`, or NULL
 * when none is near enough to be what was meant.  list ends with NULL. */
const char *seam_nearest(const char *word, const char *const *list);

#endif
