/* Grammars in text notation as rules. */
#ifndef SEAM_GRAMMAR_TEXT_H
#define SEAM_GRAMMAR_TEXT_H

#include "core/grammar/schema.h"

/* The rule "root" of a text.  spaced is for imports that say so, j for all else.
 * *names, which the caller releases, says which rule has which name. */
uint32_t g_text_add(struct g_schema **docs, struct g_json *j,
                    struct g_json *spaced, const char *p, size_t n,
                    const char *where,
                    const struct seam_grammar_import *imports, size_t n_imports,
                    json_t **names);
/* "rule \"name\"" for a message; false when the rule has none. */
bool g_text_name(const json_t *names, uint32_t rule, char *out, size_t cap);

#endif
