/* The tools of a request, whatever form they came in. */
#ifndef SEAM_SERVER_TOOLS_H
#define SEAM_SERVER_TOOLS_H

#include "core/server/request.h"

/* A list of those that may be called, to be released; NULL: no memory.  A
 * tool_choice of allowed_tools leaves out the others, one that names a tool does
 * not. */
json_t *seam_tools_callable(const struct seam_request *r);

/* The function object of a tool, which may be the tool itself. */
const json_t *seam_tool_function(const json_t *tool);
/* Of a tool, or of a tool_choice that names one; NULL without any. */
const char *seam_tool_name(const json_t *tool);

/* What the client calls the list, "tools" or "functions", and which entry of it
 * the i-th of the callable ones is. */
const char *seam_tools_field(const struct seam_request *r);
size_t seam_tools_place(const struct seam_request *r, const json_t *callable,
                        size_t i);

#endif
