/* An instance of the glm47 parser, and of its reference twin. */
#ifndef SEAM_GLM_H
#define SEAM_GLM_H

#include <seam/plugin.h>

#include "chat_request.h"
#include "style.h"

struct glm {
    const struct seam_host *host;
    struct glm_style style;
    struct chat_rules rules;
    bool forward_unknown; /* calls of undeclared tools are delivered          */
    uint64_t *n_dropped;  /* counter: calls of undeclared tools, or NULL      */
    uint64_t *n_repaired; /* counter: calls with damaged markup, or NULL      */
};

/* seam_plugin.create and destroy of both.  host is what init was given. */
int glm_create(const struct seam_host *host, const char *name,
               const struct seam_create *c, void **self,
               struct seam_error *err);
void glm_destroy(void *self);

/* A call of a tool that is not declared was left out.  [any] */
void glm_log_dropped(const struct glm *g, struct seam_str name);

static inline void glm_count(uint64_t *counter)
{
    if (counter)
        __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

/* seam_parser.render of both. */
int glm_render(void *self, struct seam_str request, const struct seam_sink *out,
               struct seam_error *err);

#endif
