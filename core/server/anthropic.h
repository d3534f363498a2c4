/* Requests of the Anthropic Messages API in the form of a chat request. */
#ifndef SEAM_SERVER_ANTHROPIC_H
#define SEAM_SERVER_ANTHROPIC_H

#include <jansson.h>
#include <stdbool.h>

#include "core/server/api_error.h"

/* What differs in name. */
extern const struct seam_api_name seam_anthropic_names[];

/* A new chat request, or NULL and *e.  counting: for count_tokens, which needs
 * no max_tokens.  ignored receives the names of fields without effect. */
json_t *seam_anthropic_chat(const json_t *body, bool counting,
                            struct seam_buf *ignored, struct seam_api_error *e);

#endif
