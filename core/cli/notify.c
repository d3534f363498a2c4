#include "core/cli/notify.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/num.h"

/* The interval that is meant for this process, or 0. */
static uint64_t notify_watchdog(void)
{
    const char *usec = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
    uint64_t v;

    if (!usec || !seam_parse_u64(usec, strlen(usec), &v) ||
        v > UINT64_MAX / 1000u)
        return 0;
    if (pid) {
        uint64_t p;

        if (!seam_parse_u64(pid, strlen(pid), &p) || p != (uint64_t)getpid())
            return 0;
    }
    return v * 1000u;
}

int seam_notify_open(struct seam_notify *n, struct seam_error *err)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = { .sun_family = AF_UNIX };
    size_t bytes;

    *n = (struct seam_notify){ .fd = -1 };
    if (!path || !*path)
        return 0;
    bytes = strlen(path);
    /* A path, or '@' and the name of an abstract socket. */
    if ((path[0] != '/' && path[0] != '@') || bytes >= sizeof to.sun_path)
        return seam_fail(err, SEAM_EINVAL,
                         "NOTIFY_SOCKET: is \"%.100s\", expected a path or an "
                         "abstract socket",
                         path);
    memcpy(to.sun_path, path, bytes);
    if (to.sun_path[0] == '@')
        to.sun_path[0] = 0;
    n->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (n->fd < 0 ||
        connect(n->fd, (struct sockaddr *)&to,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + bytes))) {
        int e = errno;

        seam_notify_close(n);
        return seam_fail_errno(err, SEAM_EINVAL, e, "NOTIFY_SOCKET %s", path);
    }
    n->watchdog_ns = notify_watchdog();
    return 0;
}

void seam_notify_close(struct seam_notify *n)
{
    if (n->fd >= 0)
        close(n->fd);
    n->fd = -1;
}

void seam_notify_send(const struct seam_notify *n, const char *state)
{
    ssize_t sent;

    if (n->fd < 0)
        return;
    /* A manager that does not read must not stop the server; what it misses it
     * will find out by its own timeouts. */
    sent = send(n->fd, state, strlen(state), MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)sent;
}

void seam_notify_reloading(const struct seam_notify *n)
{
    char state[96];

    snprintf(state, sizeof state,
             "RELOADING=1\nMONOTONIC_USEC=%llu\nSTATUS=reloading",
             (unsigned long long)(seam_now_ns() / 1000u));
    seam_notify_send(n, state);
}

void seam_notify_alive(struct seam_notify *n, uint64_t now_ns)
{
    if (!n->watchdog_ns || now_ns < n->last_ns + n->watchdog_ns / 2)
        return;
    n->last_ns = now_ns;
    seam_notify_send(n, "WATCHDOG=1");
}
