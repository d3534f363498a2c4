/* What a service manager is told, by systemd's protocol (sd_notify(3)): one
 * datagram of NAME=VALUE lines to the socket in NOTIFY_SOCKET.  Without that
 * variable every call does nothing.  The manual page asks programs to speak
 * the protocol themselves rather than to link a library for it. */
#ifndef SEAM_CLI_NOTIFY_H
#define SEAM_CLI_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/error.h"

struct seam_notify {
    int fd;               /* -1: nobody listens */
    uint64_t watchdog_ns; /* a sign of life is due at least so often; 0: none */
    uint64_t last_ns;     /* when the last one was sent */
};

/* Read NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID.  A socket that cannot be
 * reached is an error: the manager would wait for READY=1 in vain.  [control] */
int seam_notify_open(struct seam_notify *n, struct seam_error *err);
void seam_notify_close(struct seam_notify *n);

/* Send "READY=1", "STOPPING=1", "STATUS=..." or several lines. */
void seam_notify_send(const struct seam_notify *n, const char *state);
/* "RELOADING=1" with the time at which it begins, by CLOCK_MONOTONIC as the
 * protocol asks; "READY=1" is to follow, whatever comes of it. */
void seam_notify_reloading(const struct seam_notify *n);
/* Send a sign of life if one is due: at half the interval, as the manual page
 * advises.  To be called only while the server is well. */
void seam_notify_alive(struct seam_notify *n, uint64_t now_ns);

#endif
