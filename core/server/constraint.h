/* What a request demands of the form of its answer, as a grammar:
 * response_format json_object and json_schema, alone or beside tools, grammar,
 * tool_choice required and named, tools that say "strict". */
#ifndef SEAM_SERVER_CONSTRAINT_H
#define SEAM_SERVER_CONSTRAINT_H

#include "core/engine/engine.h"
#include "core/server/request.h"

struct seam_constraint {
    struct seam_grammar *grammar; /* NULL: any answer will do */
    bool whole;                   /* the grammar is of the reasoning, too */
    bool form;                    /* it is of text: what SEAM_PARSE_FORM says */
};

/* *c gets a grammar with one reference, if one is needed for answers to the
 * prompt.  Compiling takes bounded time and memory; what a schema asks for and
 * is not supported is refused with its path.  [any] */
int seam_constraint_make(const struct seam_engine *engine,
                         const struct seam_instance *parser,
                         const struct seam_request *r, const int32_t *prompt,
                         size_t n_prompt, struct seam_constraint *c,
                         struct seam_api_error *e);

/* The token after which a grammar that is not of the whole holds: the end of the
 * reasoning when the prompt leaves it open, else -1 for from the start. */
int32_t seam_constraint_after(const struct seam_engine *engine,
                              const int32_t *prompt, size_t n);

/* List what of the request has no effect with this parser. */
void seam_constraint_note(const struct seam_engine *engine,
                          struct seam_request *r);

#endif
