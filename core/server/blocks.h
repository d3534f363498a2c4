/* Content blocks of the Anthropic Messages API that a model reads as text. */
#ifndef SEAM_SERVER_BLOCKS_H
#define SEAM_SERVER_BLOCKS_H

#include <jansson.h>
#include <stdbool.h>

#include "core/server/api_error.h"

/* Is it of this type? */
bool seam_block_is(const json_t *block, const char *type);

/* A block of text, a document or a search result as a text part of a chat:
 *
 *   <document>                      <search_result>
 *   Title: T                        Title: T
 *   Context: C                      Source: S
 *
 *   TEXT                            TEXT
 *   </document>                     </search_result>
 *
 * each line ended by LF.  A string is a block of text.  1 and *part, 0: of
 * another type, or -1 and *e; where is the path of the block.  ignored receives
 * the names of members without effect. */
int seam_block_text(const json_t *block, const char *where, json_t **part,
                    struct seam_buf *ignored, struct seam_api_error *e);

/* Refuse a block of another type than those that may stand here: -1. */
int seam_block_refuse(const json_t *block, const char *where,
                      struct seam_api_error *e);

#endif
