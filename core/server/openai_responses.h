/* Requests of the Responses API in the form of a chat request. */
#ifndef SEAM_SERVER_OPENAI_RESPONSES_H
#define SEAM_SERVER_OPENAI_RESPONSES_H

#include <jansson.h>

#include "core/server/api_error.h"

/* What differs in name. */
extern const struct seam_api_name seam_responses_names[];

/* A new chat request, or NULL and *e.  ignored receives the names of fields
 * without effect. */
json_t *seam_responses_chat(const json_t *body, struct seam_buf *ignored,
                            struct seam_api_error *e);

#endif
