/* The parts of a request that are made of lists: messages, tools, prompts. */
#ifndef SEAM_SERVER_MESSAGES_H
#define SEAM_SERVER_MESSAGES_H

#include <jansson.h>

#include "core/server/request.h"

/* Shapes that the chat spec accepts (2.1); the parser normalises them. */
int seam_messages_check(const json_t *messages, struct seam_api_error *e);

/* The same of one part of the content of a message with that role; where is its
 * path. */
int seam_part_check(const json_t *part, const char *role, const char *where,
                    struct seam_api_error *e);

/* Functions, wrapped or flat; name is the field, for messages. */
int seam_tools_check(const json_t *tools, const char *name,
                     struct seam_api_error *e);

/* tool_choice, or function_call of old clients, against the tools of body. */
int seam_tool_choice_check(const json_t *body, const char *name,
                           const json_t *v, enum seam_tool_choice *out,
                           struct seam_api_error *e);

/* A string, a list of strings, a list of ids, or a list of lists of ids. */
int seam_prompt_check(const json_t *prompt, uint32_t vocab,
                      struct seam_api_error *e);

#endif
