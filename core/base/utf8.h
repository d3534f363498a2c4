/* UTF-8 by the Unicode standard, chapter 3.9: shortest forms, no surrogates. */
#ifndef SEAM_BASE_UTF8_H
#define SEAM_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What stands at p[0, n), n > 0. */
enum seam_utf8 {
    SEAM_UTF8_OK = 1,  /* a character of *len bytes, code point *cp */
    SEAM_UTF8_BAD = 2, /* a maximal ill-formed part of *len bytes */
    SEAM_UTF8_MORE = 3 /* a beginning of a character; *len = n */
};
enum seam_utf8 seam_utf8_next(const char *p, size_t n, uint32_t *cp,
                              size_t *len);

bool seam_utf8_valid(const char *p, size_t n);

/* Length of the longest prefix of p[0, n) that does not end inside a character
 * that more bytes could complete. */
size_t seam_utf8_whole(const char *p, size_t n);

#endif
