#include "blockcheck.h"

#include <criterion/criterion.h>
#include <string.h>

static struct tb *block(const struct check *c)
{
    struct tb_opts o = { .plugin = c->plugin, .d = c->w->d, .max_draft = 3 };
    struct seam_error err = { 0 };
    struct tb *b;

    cr_assert_eq(tb_new(&b, c->h, &o, &err), SEAM_OK, "%s: %s", c->plugin,
                 err.text);
    return b;
}

/* ---- Creation ------------------------------------------------------------ */

void check_create(const struct check *c, const char *some_weight)
{
    struct tb *b = block(c);
    struct seam_limits limits = b->limits;
    struct seam_device device = b->device;
    struct seam_create create = b->create;
    const struct seam_plugin *p = b->p;
    struct seam_error err;
    int64_t live = c->h->live;
    void *self = NULL;
    int rc = SEAM_ENOMEM;

    create.limits = &limits;
    create.device = &device;
    for (int n = 1; rc; n++) {
        c->h->fail_alloc = n;
        memset(&err, 0, sizeof err);
        rc = p->create(&create, &self, &err);
        cr_assert(rc == SEAM_OK || rc == SEAM_ENOMEM, "%s: %d", c->plugin, rc);
        if (!rc)
            break;
        cr_assert_eq(err.code, SEAM_ENOMEM);
        cr_assert_neq(err.text[0], 0);
        cr_assert_eq(c->h->live, live, "%s: allocation %d failed, %ld left",
                     c->plugin, n, (long)(c->h->live - live));
        cr_assert_lt(n, 10000);
    }
    c->h->fail_alloc = 0;
    p->destroy(self);
    cr_assert_eq(c->h->live, live, "%s: destroy left memory", c->plugin);

    limits.act_dtype = SEAM_BF16;
    cr_assert_eq(p->create(&create, &self, &err), SEAM_ENOTSUP);
    limits.act_dtype = SEAM_F32;
    device.ordinal = 0;
    cr_assert_eq(p->create(&create, &self, &err), SEAM_ENOTSUP);
    device.ordinal = -1;
    th_random(c->h, some_weight, TH_F32, 3, 5, 0, 1);
    cr_assert_eq(p->create(&create, &self, &err), SEAM_EDATA);
    cr_assert(strstr(err.text, some_weight) && strstr(err.text, "[3, 5]"), "%s",
              err.text);
    th_remove(c->h, some_weight);
    cr_assert_eq(p->create(&create, &self, &err), SEAM_ENOENT);
    cr_assert(strstr(err.text, some_weight), "%s", err.text);
    cr_assert_eq(c->h->live, live);
    tb_free(b);
}
