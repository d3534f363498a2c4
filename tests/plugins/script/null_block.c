/* A block that adds nothing and keeps nothing; compiled once for each part of
 * the server that needs one, under the name NULL_NAME and of the kind
 * NULL_KIND. */
#include <seam/plugin.h>

static int null_forward(void *self, const struct seam_exec *e,
                        const struct seam_block_args *a)
{
    (void)self;
    (void)e;
    (void)a;
    return SEAM_OK;
}

static int null_init(const struct seam_host *host, struct seam_error *err)
{
    (void)host;
    (void)err;
    return SEAM_OK;
}

static int null_create(const struct seam_create *c, void **self,
                       struct seam_error *err)
{
    static char instance;

    (void)c;
    (void)err;
    *self = &instance;
    return SEAM_OK;
}

static void null_destroy(void *self)
{
    (void)self;
}

static const struct seam_block table = {
    .size = sizeof table,
    .forward = null_forward,
};

SEAM_EXPORT const struct seam_plugin seam_plugin_entry = {
    .ident = { SEAM_IDENT(NULL_KIND, struct seam_block), .name = NULL_NAME,
               .version = "1.0" },
    .table = &table,
    .init = null_init,
    .create = null_create,
    .destroy = null_destroy,
};
