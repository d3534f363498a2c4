/* What the checks find.  The two functions here are the program's: seam check
 * reports and ends the child that ran the test, a test program fails its
 * test. */
#ifndef SEAM_CHECK_FINDING_H
#define SEAM_CHECK_FINDING_H

#include <seam/plugin.h>

struct th;

/* The plugin breaks rule `label` of the guide ("M3"); the text says how.  Label
 * "?" is a mistake of the checks or of the machine, not of the plugin. */
_Noreturn void ck_fail(const char *label, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* The plugin that a check calls `name`, loaded and initialised with h. */
const struct seam_plugin *th_plugin(struct th *h, const char *name);

#define ck_require(label, cond, ...)       \
    do {                                   \
        if (!(cond))                       \
            ck_fail((label), __VA_ARGS__); \
    } while (0)

/* For what the checks themselves rely on. */
#define ck_own(cond, ...) ck_require("?", cond, __VA_ARGS__)

#endif
