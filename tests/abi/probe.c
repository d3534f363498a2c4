/* probe PLUGIN_DIR FILE: load the parser "plug" from FILE, in a process whose
 * environment and working directory the test has chosen. */
#include <stdio.h>

#include "tests/abi/room.h"

int main(int argc, char **argv)
{
    struct seam_loader *l = NULL;
    struct seam_loaded *p = NULL;
    struct seam_error err = { 0 };
    struct seam_loader_opts opts = { .plugin_dir = argc > 1 ? argv[1] : NULL };
    struct seam_want want = { .name = "plug",
                              .file = argc > 2 ? argv[2] : NULL,
                              .unpinned = true,
                              .kind = SEAM_KIND_PARSER };
    const struct plug_test *test;

    if (seam_loader_new(&l, &opts, &err)) {
        printf("no loader: %s\n", err.text);
        return 1;
    }
    if (seam_loader_load(l, &want, &p, &err)) {
        printf("refused: %s\n", err.text);
    } else {
        test = p->plugin.extension("test/1");
        printf("value %d\n", test ? test->value() : -1);
    }
    seam_loaded_free(p);
    seam_loader_free(l);
    return 0;
}
