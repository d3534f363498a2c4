/* How GLM writes calls, as a grammar: the extension call_grammar/1. */
#ifndef SEAM_GLM_CALLS_H
#define SEAM_GLM_CALLS_H

#include <seam/plugin.h>

/* seam_plugin.extension of glm47 and its reference twin. */
const void *glm_extension(const char *id);

#endif
