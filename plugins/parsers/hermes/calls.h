/* How the models of hermes write calls, as a grammar: the extension
 * call_grammar/1. */
#ifndef SEAM_HERMES_CALLS_H
#define SEAM_HERMES_CALLS_H

#include <seam/plugin.h>

#include <stdbool.h>

/* seam_call_grammar.write; tag_tokens: the tags are tokens of the model. */
int hermes_calls_write(bool tag_tokens, struct seam_str tools, uint32_t flags,
                       const struct seam_sink *out, struct seam_error *err);

#endif
