#include "core/cli/progress.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BAR 32

void seam_progress_init(struct seam_progress *p, const struct seam_log *log)
{
    *p = (struct seam_progress){ .log = log };
    p->terminal = isatty(STDERR_FILENO) && !log->json;
}

void seam_progress_show(void *ctx, const char *what, uint64_t done,
                        uint64_t total)
{
    struct seam_progress *p = ctx;
    uint32_t tenth = total ? (uint32_t)(done * 10 / total) : 10;
    bool fresh = strcmp(what, p->what) != 0;

    if (!fresh && tenth == p->last_tenth && !p->terminal)
        return;
    p->last_tenth = tenth;
    snprintf(p->what, sizeof p->what, "%s", what);
    if (p->terminal) {
        int filled = total ? (int)(done * BAR / total) : BAR;

        /* One line, drawn over until its phase is done. */
        fprintf(stderr, "\r\033[Kloading [%.*s%*s] %s %llu/%llu", filled,
                "################################", BAR - filled, "", what,
                (unsigned long long)done, (unsigned long long)total);
        if (done >= total)
            fputs("\r\033[K", stderr);
        fflush(stderr);
    } else {
        seam_log(p->log, SEAM_LOG_INFO, "loading", "%s %llu of %llu", what,
                 (unsigned long long)done, (unsigned long long)total);
    }
}
