/* The pre-tokeniser: cuts text at the matches of the regular expression in
 * tokenizer.json.  Used by core/tokenizer alone.
 *
 * The expression was written for Oniguruma and is run by PCRE2.  Where the two
 * read the same text differently it is translated (\s) or refused (\w, \h,
 * nested classes, ...), so that what compiles means what was meant. */
#ifndef SEAM_TOKENIZER_SPLIT_H
#define SEAM_TOKENIZER_SPLIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/error.h"

/* Immutable; any number of threads. */
struct seam_split;

/* EDATA with a message that begins with name, ENOMEM. */
int seam_split_new(struct seam_split **s, const char *name, const char *pattern,
                   size_t n, struct seam_error *err);
void seam_split_free(struct seam_split *s);

/* What one thread needs to match; reused from text to text. */
struct seam_split_work {
    void *match;   /* PCRE2's match data */
    void *context; /* and match context, with its limits */
    char *shadow;  /* copy of a text that is not all UTF-8 */
    size_t shadow_cap;
};
void seam_split_work_release(struct seam_split_work *w);

/* One pass over text p[0, n), which stays where it is until the pass is done.
 * The parts handed out are never empty and follow each other without gaps:
 * matches, and what lies between matches.  A byte that is not UTF-8 is matched
 * as if it were a symbol of its own, neither letter, number nor space. */
struct seam_split_pass {
    const struct seam_split *s;
    struct seam_split_work *w;
    const char *text; /* what is matched: p or its shadow */
    size_t n;
    size_t at;        /* end of the last part */
    size_t match_end; /* of a match that begins behind a gap at `at`, or 0 */
};
/* ENOMEM. */
int seam_split_begin(struct seam_split_pass *q, const struct seam_split *s,
                     struct seam_split_work *w, const char *p, size_t n);
/* 1 with the part [*from, *to), 0 at the end; EDATA when the expression needs
 * more steps on this text than its length allows, ENOMEM. */
int seam_split_next(struct seam_split_pass *q, size_t *from, size_t *to,
                    struct seam_error *err);

/* Is the one character p[0, n) a word character, as the reference's
 * "single_word" has it?  [any] */
bool seam_split_is_word(const struct seam_split *s, const char *p, size_t n);

#endif
