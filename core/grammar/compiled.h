/* Compiled grammars, remembered by what they were compiled from.
 *
 * Agents send the same tools and schemas with every request; compiling and
 * computing masks ahead is done once for them.  The key is the exact text,
 * names and options; where a message would say the fault is does not matter,
 * because what is refused is not remembered.  Of several threads that ask for
 * the same at once one compiles and the others wait for it.  All functions may
 * be called by any thread. */
#ifndef SEAM_GRAMMAR_COMPILED_H
#define SEAM_GRAMMAR_COMPILED_H

#include "core/grammar/grammar.h"

struct seam_compiled;

/* What is spent on masks ahead, see seam_grammar_warm: some tens of
 * milliseconds. */
#define SEAM_COMPILED_NODES 3000000

/* Remembers up to max_bytes, keys and masks included, and drops what was not
 * asked for longest; 0: nothing.  v outlives it.  ENOMEM. */
int seam_compiled_new(struct seam_compiled **c, const struct seam_vocab *v,
                      uint64_t max_bytes, struct seam_error *err);
/* Grammars in use live on.  NULL: none. */
void seam_compiled_free(struct seam_compiled *c);

/* As the functions of grammar.h of the same name, with masks computed ahead.
 * *g gets a reference. */
int seam_compiled_schema(struct seam_compiled *c, struct seam_grammar **g,
                         const json_t *schema, const char *where,
                         uint32_t flags, struct seam_error *err);
int seam_compiled_object(struct seam_compiled *c, struct seam_grammar **g,
                         uint32_t flags, struct seam_error *err);
int seam_compiled_text(struct seam_compiled *c, struct seam_grammar **g,
                       const char *text, size_t n, const char *where,
                       const struct seam_grammar_import *imports,
                       size_t n_imports, uint32_t flags,
                       struct seam_error *err);

struct seam_compiled_stats {
    uint64_t hits, misses, evictions; /* a hit may have had to wait */
    uint64_t bytes;
    uint32_t n_grammars;
};
void seam_compiled_stats(struct seam_compiled *c,
                         struct seam_compiled_stats *out);

#endif
