/* How far loading is: a bar on a terminal, a few log lines elsewhere. */
#ifndef SEAM_CLI_PROGRESS_H
#define SEAM_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/log.h"

struct seam_progress {
    const struct seam_log *log;
    bool terminal;
    uint32_t last_tenth; /* of the phase that is shown                        */
    char what[64];
};

void seam_progress_init(struct seam_progress *p, const struct seam_log *log);

/* A seam_engine_progress; ctx is a struct seam_progress.  [engine's thread] */
void seam_progress_show(void *ctx, const char *what, uint64_t done,
                        uint64_t total);

#endif
