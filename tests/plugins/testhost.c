/* The program's side of core/check/finding.h: plugins come from
 * SEAM_TEST_PLUGIN_DIR, what is found fails the running test. */
#include "testhost.h"

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

_Noreturn void ck_fail(const char *label, const char *fmt, ...)
{
    char text[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    cr_assert_fail("%s: %s", label, text);
    abort();
}

/* Open SEAM_TEST_PLUGIN_DIR/NAME.so and run its init; fails the test when it
 * cannot.  The library stays open. */
const struct seam_plugin *th_plugin(struct th *h, const char *name)
{
    const struct seam_plugin *p;
    struct seam_error err = { 0 };
    char path[512];
    void *dl;

    snprintf(path, sizeof path, "%s/%s.so", SEAM_TEST_PLUGIN_DIR, name);
    dl = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    cr_assert_not_null(dl, "%s", dlerror());
    p = dlsym(dl, "seam_plugin_entry");
    cr_assert_not_null(p, "%s exports no seam_plugin_entry", path);
    cr_assert_eq(p->init(&h->host, &err), SEAM_OK, "%s: %s", name, err.text);
    return p;
}
