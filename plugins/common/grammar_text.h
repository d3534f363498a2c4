/* Pieces of the server's grammar notation, for parsers that say in it how their
 * model writes calls (call_grammar/1). */
#ifndef SEAM_GRAMMAR_TEXT_H
#define SEAM_GRAMMAR_TEXT_H

#include "text_buf.h"

/* s as a literal, quoted. */
void gt_literal(struct tbuf *b, struct seam_str s);

/* A rule NAME for any text that holds none of word[0, n).  Each word begins with
 * '<' and has no other, and no two agree in their second character. */
void gt_without(struct tbuf *b, const char *name, const char *const *word,
                size_t n);

#endif
