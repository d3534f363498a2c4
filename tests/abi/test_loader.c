#include <criterion/criterion.h>
#include "core/loader/loader.h"
Test(loader, loads_a_plugin)
{
    struct seam_loader *l = NULL;
    struct seam_loaded *p = NULL;
    struct seam_error err = { 0 };
    struct seam_loader_opts o = { .plugin_dir = ABI_PLUGIN_DIR };
    struct seam_want w = { .name = "plug",
                           .unpinned = true,
                           .kind = SEAM_KIND_PARSER };
    cr_assert_eq(seam_loader_new(&l, &o, &err), 0, "%s", err.text);
    cr_assert_eq(seam_loader_load(l, &w, &p, &err), 0, "%s", err.text);
    seam_loaded_free(p);
    seam_loader_free(l);
}
