/* Requests of the Responses API in the form of a chat request. */
#ifndef SEAM_SERVER_OPENAI_RESPONSES_H
#define SEAM_SERVER_OPENAI_RESPONSES_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "core/server/api_error.h"

/* What differs in name. */
extern const struct seam_api_name seam_responses_names[];

/* A new chat request, or NULL and *e.  ignored receives the names of fields
 * without effect. */
json_t *seam_responses_chat(const json_t *body, struct seam_buf *ignored,
                            struct seam_api_error *e);

/* Does the request want reasoning in a form that it will send back? */
bool seam_responses_wants_sealed(const json_t *body);
/* Reasoning as the encrypted_content of an item, a new string: what clients that
 * keep no text of it send back whole.  It is encoded, not encrypted: they have
 * the text anyway.  NULL: no memory. */
json_t *seam_responses_seal(const char *text, size_t n);

#endif
