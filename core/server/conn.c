#include "core/server/conn.h"

#include <arpa/inet.h>
#include <civetweb.h>
#include <dirent.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/num.h"

/* How long, and how much, an answered connection may still send. */
#define LINGER_MS    1000
#define LINGER_BYTES (4u << 20)

/* How long a connection may take to say something before it can be given up,
 * and how often one is while workers are short. */
#define NEWCOMER_MS 500
#define TIGHT_MS    50

/* What the kernel may hold for a client that does not read.  Without a bound
 * loopback takes about 4 MB. */
#define SEND_BUFFER (256 * 1024)

struct seam_conns {
    struct seam_conns_opts o;
    pthread_mutex_t lock; /* list, count, phases and deadlines          */
    pthread_cond_t wake;  /* the monitor: an earlier deadline, or stop  */
    struct seam_conn *head;
    uint64_t next_ns; /* when the monitor looks again; 0: when it is woken   */
    uint32_t count;
    _Atomic uint32_t busy;
    _Atomic bool stopping;
    bool ending; /* under lock: the monitor is to return       */
    pthread_t monitor;
};

/* Under the lock. */
static void conn_shut(const struct seam_conn *c, int how)
{
    if (c->fd >= 0)
        shutdown(c->fd, how);
}

/* ---- Finding sockets ----------------------------------------------------- */

/* Calls fn for every open descriptor until it returns true. */
static int conn_each_fd(bool (*fn)(void *ctx, int fd), void *ctx)
{
    DIR *d = opendir("/proc/self/fd");
    struct dirent *e;
    struct rlimit lim;
    uint64_t fd;
    int found = -1;

    if (!d) { /* no /proc: numbers are handed out from below */
        int n = getrlimit(RLIMIT_NOFILE, &lim) || lim.rlim_cur > 65536
                    ? 65536
                    : (int)lim.rlim_cur;

        for (int i = 0; i < n; i++)
            if (fn(ctx, i))
                return i;
        return -1;
    }
    while (found < 0 && (e = readdir(d)))
        if (seam_parse_u64(e->d_name, strlen(e->d_name), &fd) &&
            (int)fd != dirfd(d) && fn(ctx, (int)fd))
            found = (int)fd;
    closedir(d);
    return found;
}

static uint16_t conn_port(const struct sockaddr_storage *a)
{
    /* sin_port and sin6_port are at the same place. */
    return a->ss_family == AF_INET || a->ss_family == AF_INET6
               ? ntohs(((const struct sockaddr_in *)a)->sin_port)
               : 0;
}

/* Fills *peer when fd is a connection to our port. */
static bool conn_is_ours(const struct seam_conns *cs, int fd,
                         struct sockaddr_storage *peer)
{
    struct sockaddr_storage a = { 0 };
    socklen_t n = sizeof a;

    if (getsockname(fd, (struct sockaddr *)&a, &n) ||
        conn_port(&a) != cs->o.port)
        return false;
    n = sizeof *peer;
    return !getpeername(fd, (struct sockaddr *)peer, &n);
}

/* Under the lock. */
static struct seam_conn *conn_of(const struct seam_conns *cs, int fd)
{
    for (struct seam_conn *c = cs->head; c; c = c->next)
        if (c->fd == fd)
            return c;
    return NULL;
}

struct peer {
    const struct seam_conns *cs;
    uint16_t port;
    const char *address; /* as CivetWeb prints it */
    int fd, hits;        /* the last match, and how many there were */
};

static bool conn_is_peer(void *ctx, int fd)
{
    struct peer *p = ctx;
    struct sockaddr_storage a;
    char text[64];

    if (!conn_is_ours(p->cs, fd, &a) || conn_port(&a) != p->port ||
        getnameinfo((struct sockaddr *)&a, sizeof a, text, sizeof text, NULL, 0,
                    NI_NUMERICHOST) ||
        strcmp(text, p->address))
        return false;
    if (conn_of(p->cs, fd))
        return false;
    p->fd = fd;
    p->hits++;
    return false; /* go on: a second match would make the first a guess */
}

bool seam_conn_identify(struct seam_conns *cs, struct seam_conn *c,
                        const struct mg_connection *mg)
{
    const struct mg_request_info *ri = mg_get_request_info(mg);
    struct peer p = { .cs = cs,
                      .port = (uint16_t)ri->remote_port,
                      .address = ri->remote_addr };
    int bytes = SEND_BUFFER, one = 1;

    if (c->fd >= 0)
        return true;
    pthread_mutex_lock(&cs->lock);
    conn_each_fd(conn_is_peer, &p);
    if (p.hits == 1) {
        c->fd = p.fd;
        if (atomic_load(&cs->stopping))
            conn_shut(c, SHUT_RDWR);
    }
    pthread_mutex_unlock(&cs->lock);
    if (p.hits != 1)
        return false;
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(c->fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    return true;
}

/* ---- Giving up ----------------------------------------------------------- */

struct silent {
    const struct seam_conns *cs;
    uint64_t now;
    uint64_t longest_ns;
    int fd;
};

/* Established, as far as both ends are concerned. */
static bool conn_is_up(int fd, struct tcp_info *info)
{
    socklen_t n = sizeof *info;

    return !getsockopt(fd, IPPROTO_TCP, TCP_INFO, info, &n) &&
           info->tcpi_state == TCP_ESTABLISHED;
}

/* No more will be read than has come: the peer ended, or we did. */
static bool conn_is_deaf(int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLRDHUP };

    return poll(&p, 1, 0) == 1 && (p.revents & POLLRDHUP);
}

/* A connection between requests has been silent since the last answer; one
 * whose body is arriving has had its chance since the body began.  Of one whose
 * first head has not come only the system knows since when: such a one gets a
 * little time, so that a newcomer is not given up for others, and is not silent
 * while something it sent waits for a worker of ours.
 *
 * That may still be wrong about a request that a worker has read and not yet
 * shown to us, so what is given up is only deaf: such a request is answered,
 * and whoever waits for the rest of one hears that there is none. */
static bool conn_is_silent(void *ctx, int fd)
{
    struct silent *s = ctx;
    const struct seam_conn *c;
    struct sockaddr_storage peer;
    struct tcp_info info;
    int unread = 0;
    uint64_t ns;

    /* One whose peer has ended needs no help to end. */
    if (!conn_is_ours(s->cs, fd, &peer) || !conn_is_up(fd, &info) ||
        conn_is_deaf(fd))
        return false;
    c = conn_of(s->cs, fd);
    if (c && c->phase >= SEAM_CONN_BUSY)
        return false;
    if (c)
        ns = s->now - c->since_ns;
    else if (info.tcpi_last_data_recv >= NEWCOMER_MS &&
             !ioctl(fd, FIONREAD, &unread) && !unread)
        ns = (uint64_t)info.tcpi_last_data_recv * 1000000u;
    else
        return false;
    if (s->fd < 0 || ns > s->longest_ns) {
        s->fd = fd;
        s->longest_ns = ns;
    }
    return false;
}

static bool conn_is_tight(const struct seam_conns *cs)
{
    return cs->count + cs->o.n_reserve > cs->o.n_workers;
}

/* Under the lock.  A descriptor that is closed and used anew meanwhile can only
 * be another connection. */
static void conn_evict(struct seam_conns *cs)
{
    struct silent s = { .cs = cs, .now = seam_now_ns(), .fd = -1 };

    conn_each_fd(conn_is_silent, &s);
    if (s.fd >= 0)
        shutdown(s.fd, SHUT_RD);
}

/* ---- The monitor --------------------------------------------------------- */

/* Shuts down what is overdue; returns the next deadline, 0: none. */
static uint64_t conn_expire(struct seam_conns *cs, uint64_t now)
{
    uint64_t next = 0;

    for (struct seam_conn *c = cs->head; c; c = c->next) {
        if (!c->deadline_ns)
            continue;
        if (c->deadline_ns <= now) {
            c->deadline_ns = 0;
            c->expired = true;
            /* The answer to a late body can still be written. */
            conn_shut(c, c->phase == SEAM_CONN_BODY ? SHUT_RD : SHUT_RDWR);
        } else if (!next || c->deadline_ns < next) {
            next = c->deadline_ns;
        }
    }
    return next;
}

static void *conn_monitor(void *arg)
{
    struct seam_conns *cs = arg;

    pthread_mutex_lock(&cs->lock);
    while (!cs->ending) {
        uint64_t now = seam_now_ns(), next = conn_expire(cs, now);

        /* When no worker is free no connection is opened to give up another. */
        if (conn_is_tight(cs)) {
            conn_evict(cs);
            if (!next || next > now + TIGHT_MS * 1000000u)
                next = now + TIGHT_MS * 1000000u;
        }
        cs->next_ns = next;
        if (next) {
            struct timespec t = { .tv_sec = (time_t)(next / 1000000000u),
                                  .tv_nsec = (long)(next % 1000000000u) };

            pthread_cond_timedwait(&cs->wake, &cs->lock, &t);
        } else {
            pthread_cond_wait(&cs->wake, &cs->lock);
        }
    }
    pthread_mutex_unlock(&cs->lock);
    return NULL;
}

static bool conn_stop_one(void *ctx, int fd)
{
    struct sockaddr_storage peer;

    if (conn_is_ours(ctx, fd, &peer))
        shutdown(fd, SHUT_RDWR);
    return false;
}

struct listener {
    uint16_t port;
    int except;
};

static bool conn_is_listener(void *ctx, int fd)
{
    const struct listener *l = ctx;
    struct sockaddr_storage a = { 0 };
    socklen_t n = sizeof a;
    int listening = 0;
    socklen_t m = sizeof listening;

    return fd != l->except &&
           !getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &m) &&
           listening && !getsockname(fd, (struct sockaddr *)&a, &n) &&
           a.ss_family == AF_INET && conn_port(&a) == l->port &&
           ((struct sockaddr_in *)&a)->sin_addr.s_addr ==
               htonl(INADDR_LOOPBACK);
}

int seam_conn_find_listener(uint16_t port, int except)
{
    struct listener l = { .port = port, .except = except };

    return conn_each_fd(conn_is_listener, &l);
}

int seam_conns_new(struct seam_conns **out, const struct seam_conns_opts *o,
                   struct seam_error *err)
{
    struct seam_conns *cs = calloc(1, sizeof *cs);
    pthread_condattr_t attr;
    int rc;

    if (!cs)
        return seam_fail(err, SEAM_ENOMEM, "server: no memory");
    cs->o = *o;
    pthread_mutex_init(&cs->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&cs->wake, &attr);
    pthread_condattr_destroy(&attr);
    rc = pthread_create(&cs->monitor, NULL, conn_monitor, cs);
    if (rc) {
        pthread_cond_destroy(&cs->wake);
        pthread_mutex_destroy(&cs->lock);
        free(cs);
        return seam_fail_errno(err, SEAM_ENOMEM, rc, "server: no thread");
    }
    *out = cs;
    return 0;
}

void seam_conns_free(struct seam_conns *cs)
{
    if (!cs)
        return;
    pthread_mutex_lock(&cs->lock);
    cs->ending = true;
    pthread_cond_signal(&cs->wake);
    pthread_mutex_unlock(&cs->lock);
    pthread_join(cs->monitor, NULL);
    pthread_cond_destroy(&cs->wake);
    pthread_mutex_destroy(&cs->lock);
    free(cs);
}

void seam_conns_stop(struct seam_conns *cs)
{
    pthread_mutex_lock(&cs->lock);
    atomic_store(&cs->stopping, true);
    conn_each_fd(conn_stop_one, cs);
    pthread_mutex_unlock(&cs->lock);
}

bool seam_conns_stopping(const struct seam_conns *cs)
{
    return atomic_load(&cs->stopping);
}

/* ---- One connection ------------------------------------------------------ */

struct seam_conn *seam_conn_open(struct seam_conns *cs)
{
    struct seam_conn *c = calloc(1, sizeof *c);

    if (!c)
        return NULL;
    c->phase = SEAM_CONN_IDLE;
    c->since_ns = seam_now_ns();
    c->fd = -1;
    pthread_mutex_lock(&cs->lock);
    c->next = cs->head;
    if (cs->head)
        cs->head->prev = c;
    cs->head = c;
    cs->count++;
    if (conn_is_tight(cs)) {
        conn_evict(cs);
        pthread_cond_signal(&cs->wake);
    }
    pthread_mutex_unlock(&cs->lock);
    return c;
}

void seam_conn_close(struct seam_conns *cs, struct seam_conn *c)
{
    if (!c)
        return;
    pthread_mutex_lock(&cs->lock);
    if (c->prev)
        c->prev->next = c->next;
    else
        cs->head = c->next;
    if (c->next)
        c->next->prev = c->prev;
    cs->count--;
    pthread_mutex_unlock(&cs->lock);
    free(c);
}

void seam_conn_enter(struct seam_conns *cs, struct seam_conn *c,
                     enum seam_conn_phase phase, uint64_t timeout_ms)
{
    uint64_t now = seam_now_ns();

    pthread_mutex_lock(&cs->lock);
    if (c->phase != phase)
        c->since_ns = now;
    c->phase = phase;
    c->deadline_ns = timeout_ms ? now + timeout_ms * 1000000u : 0;
    /* Most deadlines are never met, and lie behind another. */
    if (c->deadline_ns && (!cs->next_ns || c->deadline_ns < cs->next_ns))
        pthread_cond_signal(&cs->wake);
    pthread_mutex_unlock(&cs->lock);
}

bool seam_conn_expired(struct seam_conns *cs, const struct seam_conn *c)
{
    bool expired;

    pthread_mutex_lock(&cs->lock);
    expired = c->expired;
    pthread_mutex_unlock(&cs->lock);
    return expired;
}

bool seam_conns_admit(struct seam_conns *cs, bool urgent)
{
    uint32_t n = atomic_load(&cs->busy);

    while (n < cs->o.max_busy || urgent)
        if (atomic_compare_exchange_weak(&cs->busy, &n, n + 1))
            return true;
    return false;
}

void seam_conns_leave(struct seam_conns *cs)
{
    atomic_fetch_sub(&cs->busy, 1);
}

uint32_t seam_conns_busy(const struct seam_conns *cs)
{
    return atomic_load(&cs->busy);
}

uint32_t seam_conns_count(struct seam_conns *cs)
{
    uint32_t n;

    pthread_mutex_lock(&cs->lock);
    n = cs->count;
    pthread_mutex_unlock(&cs->lock);
    return n;
}

struct arriving {
    const struct seam_conns *cs;
    uint32_t n;
};

static bool conn_is_arriving(void *ctx, int fd)
{
    struct arriving *a = ctx;
    const struct seam_conn *c;
    struct sockaddr_storage peer;
    int unread = 0;

    if (!conn_is_ours(a->cs, fd, &peer))
        return false;
    c = conn_of(a->cs, fd);
    if (!c || c->phase == SEAM_CONN_IDLE)
        a->n += !ioctl(fd, FIONREAD, &unread) && unread;
    return false;
}

uint32_t seam_conns_arriving(struct seam_conns *cs)
{
    struct arriving a = { .cs = cs };

    pthread_mutex_lock(&cs->lock);
    for (const struct seam_conn *c = cs->head; c; c = c->next)
        a.n += c->phase >= SEAM_CONN_BODY;
    conn_each_fd(conn_is_arriving, &a);
    pthread_mutex_unlock(&cs->lock);
    return a.n;
}

bool seam_conn_given_up(const struct seam_conn *c)
{
    struct tcp_info info;

    return c->fd >= 0 && conn_is_deaf(c->fd) && conn_is_up(c->fd, &info);
}

bool seam_conn_gone(const struct seam_conn *c)
{
    struct tcp_info info;
    char byte;
    ssize_t n;

    if (c->fd < 0)
        return false;
    n = recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    /* Who was given up reads the same as who left. */
    return (n == 0 && !conn_is_up(c->fd, &info)) ||
           (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

void seam_conn_linger(struct seam_conns *cs, struct seam_conn *c)
{
    struct pollfd p = { .fd = c->fd, .events = POLLIN };
    char waste[16384];
    size_t total = 0;
    ssize_t n;

    if (c->fd < 0)
        return;
    seam_conn_enter(cs, c, SEAM_CONN_LINGER, LINGER_MS);
    shutdown(c->fd, SHUT_WR);
    while (total < LINGER_BYTES) {
        if (poll(&p, 1, -1) < 0 && errno != EINTR)
            break;
        n = recv(c->fd, waste, sizeof waste, MSG_DONTWAIT);
        if (n > 0)
            total += (size_t)n;
        else if (n == 0 || (errno != EAGAIN && errno != EINTR))
            break;
    }
    shutdown(c->fd, SHUT_RD);
    seam_conn_enter(cs, c, SEAM_CONN_LINGER, 0);
}

void seam_conn_abort(const struct seam_conn *c)
{
    if (c->fd >= 0)
        shutdown(c->fd, SHUT_RDWR);
}
