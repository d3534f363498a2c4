/* What a request demands of the form of its answer, as a grammar: response_format
 * json_object and json_schema. */
#ifndef SEAM_SERVER_CONSTRAINT_H
#define SEAM_SERVER_CONSTRAINT_H

#include "core/engine/engine.h"
#include "core/server/request.h"

/* *g becomes a grammar with one reference, or NULL when any answer will do.
 * Compiling takes bounded time and memory; what a schema asks for and is not
 * supported is refused with its path.  [any] */
int seam_constraint_make(const struct seam_engine *engine,
                         const struct seam_request *r, struct seam_grammar **g,
                         struct seam_api_error *e);

/* The token after which the constraint holds: the end of the reasoning when the
 * prompt leaves it open, else -1 for from the start. */
int32_t seam_constraint_after(const struct seam_engine *engine,
                              const int32_t *prompt, size_t n);

#endif
