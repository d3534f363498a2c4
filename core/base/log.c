#include "core/base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "core/base/buf.h"

static const char *log_level_name(uint32_t level)
{
    return level >= SEAM_LOG_ERROR  ? "error"
           : level == SEAM_LOG_WARN ? "warn"
           : level == SEAM_LOG_INFO ? "info"
                                    : "debug";
}

/* Control characters as \xNN, so that one event stays one line. */
static void log_escape(struct seam_buf *b, const char *s)
{
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;

        if (c < 0x20 || c == 0x7f)
            seam_buf_fmt(b, "\\x%02x", c);
        else
            seam_buf_add(b, s, 1);
    }
}

void seam_log(const struct seam_log *log, uint32_t level, const char *who,
              const char *fmt, ...)
{
    struct seam_buf line = { 0 };
    char text[1024], when[40];
    struct timespec now;
    struct tm tm;
    va_list ap;
    int n;

    if (!log || level < log->level)
        return;
    va_start(ap, fmt);
    n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (n < 0)
        return;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &tm);
    if (log->json) {
        seam_buf_fmt(&line,
                     "{\"time\":\"%s.%03ldZ\",\"level\":\"%s\",\"who\":", when,
                     now.tv_nsec / 1000000, log_level_name(level));
        seam_buf_json(&line, who, __builtin_strlen(who));
        seam_buf_str(&line, ",\"msg\":");
        seam_buf_json(&line, text, __builtin_strlen(text));
        seam_buf_str(&line, "}\n");
    } else {
        seam_buf_fmt(&line, "%s.%03ldZ %-5s %s: ", when, now.tv_nsec / 1000000,
                     log_level_name(level), who);
        log_escape(&line, text);
        seam_buf_str(&line, "\n");
    }
    if (!line.failed) {
        /* A log that cannot be written has nowhere to say so. */
        ssize_t done = write(log->fd, line.p, line.n);

        (void)done;
    }
    seam_buf_release(&line);
}
