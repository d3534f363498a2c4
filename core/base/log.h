/* One line per event to a descriptor, as text or as JSON lines.
 *
 * A line is written with one write(2), so lines of several threads do not mix.
 * Text that came from outside cannot forge a line: control characters are
 * escaped in both formats. */
#ifndef SEAM_BASE_LOG_H
#define SEAM_BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include <seam/plugin.h>

struct seam_log {
    int fd;
    uint32_t level; /* least SEAM_LOG_* that is written */
    bool json;
};

/* who names the part that speaks: "server", "engine", a plugin's name.  A NULL
 * log is silence.  [any] */
__attribute__((format(printf, 4, 5))) void seam_log(const struct seam_log *log,
                                                    uint32_t level,
                                                    const char *who,
                                                    const char *fmt, ...);

#endif
