/* The parser of the GLM 4.7 and 5 families: prompts in their chat format, and
 * their output taken apart while it comes. */
#include "calls.h"
#include "glm.h"
#include "stream.h"

/* Set by init, before any instance exists. */
static const struct seam_host *host;

static int glm47_init(const struct seam_host *h, struct seam_error *err)
{
    (void)err;
    host = h;
    return SEAM_OK;
}

static int glm47_create(const struct seam_create *c, void **self,
                        struct seam_error *err)
{
    return glm_create(host, "glm47", c, self, err);
}

static const struct seam_parser table = {
    .size = sizeof(struct seam_parser),
    .render = glm_render,
    .open = glm_stream_open,
    .feed = glm_stream_feed,
    .finish = glm_stream_finish,
    .close = glm_stream_close,
};

const struct seam_plugin seam_plugin_entry = {
    .ident = { SEAM_IDENT(SEAM_KIND_PARSER, struct seam_parser),
               .flags = SEAM_PLUGIN_UNLOADABLE, .name = "glm47",
               .version = "1.0.0", .build = __VERSION__ },
    .table = &table,
    .init = glm47_init,
    .create = glm47_create,
    .destroy = glm_destroy,
    .extension = glm_extension,
};
