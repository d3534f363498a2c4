/* Grammars of calls, compiled as the server does, and random words of them. */
#ifndef SEAM_TESTS_DRAW_H
#define SEAM_TESTS_DRAW_H

#include <jansson.h>

#include "core/base/buf.h"
#include "core/grammar/grammar.h"
#include "parser_host.h"

struct draw {
    struct seam_tokenizer *t;
    struct seam_vocab *v;
    uint32_t *row;
    struct phost h;
    const struct seam_call_grammar *x;
};

/* The nano model's tokens and the parser plugin of this name. */
void draw_open(struct draw *d, const char *plugin);
void draw_close(struct draw *d);

/* The schema of the answers that SEAM_CALLS_ANSWER allows. */
extern const char draw_answer[];

/* The grammar of calls of tools, a list.  NULL: refused, *err says why. */
struct seam_grammar *draw_compile(struct draw *d, const json_t *tools,
                                  uint32_t flags, struct seam_error *err);

/* Append a random word of the grammar to out, of some `steps` tokens. */
void draw_word(struct draw *d, struct seam_grammar *g, uint64_t *seed,
               uint32_t steps, struct seam_buf *out);

/* Read a word back and check that there are only calls of the tools, as many as
 * the flags want, with arguments that conform to their schemas; with
 * SEAM_CALLS_MUST no other text, with SEAM_CALLS_ANSWER calls or else an answer. */
void draw_check(struct draw *d, const json_t *tools, uint32_t flags,
                const struct seam_buf *word);

json_t *draw_json(const char *text);

#endif
