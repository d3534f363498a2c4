/* Sockets, CivetWeb and the dispatch of requests.
 *
 * The listening socket is ours, since CivetWeb says of a failed bind only that
 * it failed.  It is started on a port of its own on loopback, and then our
 * socket takes that one's place under the same descriptor.  All requests arrive
 * in begin_request, so that nothing of CivetWeb's own file serving is ever
 * reached. */
#include "core/server/server.h"

#include <arpa/inet.h>
#include <civetweb.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/num.h"
#include "core/server/dispatch.h"
#include "core/server/frame.h"
#include "core/server/state.h"

/* Workers beyond max_connections: for health checks, for refusals, and for
 * connections between requests.  RESERVE of them are kept free. */
#define SPARE_WORKERS 16
#define RESERVE       4

/* ---- The address --------------------------------------------------------- */

struct address {
    struct sockaddr_storage sa;
    socklen_t n;
    bool loopback;
    char host[64];
    uint16_t port;
};

/* "127.0.0.1:80", "[::1]:80", "localhost:80" */
static int address_parse(const char *s, struct address *a,
                         struct seam_error *err)
{
    const char *colon = strrchr(s, ':');
    struct sockaddr_in *v4 = (struct sockaddr_in *)&a->sa;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&a->sa;
    uint64_t port;
    size_t n;

    memset(a, 0, sizeof *a);
    if (!colon)
        goto bad;
    n = (size_t)(colon - s);
    if (n >= sizeof a->host || !n)
        goto bad;
    if (!seam_parse_u64(colon + 1, strlen(colon + 1), &port) || port > 65535)
        return seam_fail(err, SEAM_EDATA,
                         "server.listen: %s: the port must be "
                         "a number from 0 to 65535",
                         s);
    a->port = (uint16_t)port;
    memcpy(a->host, s, n);
    a->host[n] = 0;
    if (!strcmp(a->host, "localhost"))
        snprintf(a->host, sizeof a->host, "127.0.0.1");
    if (a->host[0] == '[' && a->host[strlen(a->host) - 1] == ']') {
        char bare[sizeof a->host];

        snprintf(bare, sizeof bare, "%.*s", (int)strlen(a->host) - 2,
                 a->host + 1);
        if (inet_pton(AF_INET6, bare, &v6->sin6_addr) != 1)
            goto bad;
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(a->port);
        a->n = sizeof *v6;
        a->loopback = IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
        return 0;
    }
    if (inet_pton(AF_INET, a->host, &v4->sin_addr) != 1)
        goto bad;
    v4->sin_family = AF_INET;
    v4->sin_port = htons(a->port);
    a->n = sizeof *v4;
    a->loopback = ntohl(v4->sin_addr.s_addr) >> 24 == 127;
    return 0;
bad:
    return seam_fail(err, SEAM_EDATA,
                     "server.listen: %s: not an address; "
                     "expected 127.0.0.1:8080, [::1]:8080 or localhost:8080",
                     s);
}

static int server_listen(struct seam_server *s, struct address *a,
                         struct seam_error *err)
{
    int one = 1, fd;

    fd = socket(a->sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return seam_fail_errno(err, SEAM_EDEVICE, errno,
                               "cannot listen on "
                               "%s:%u",
                               a->host, a->port);
    /* Lets a restart bind while old connections are in TIME_WAIT; it does not
     * let two servers share a port, as SO_REUSEPORT would. */
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (a->sa.ss_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&a->sa, a->n) || listen(fd, 128)) {
        int rc = seam_fail_errno(err, SEAM_EDEVICE, errno,
                                 "cannot listen on "
                                 "%s:%u",
                                 a->host, a->port);

        close(fd);
        return rc;
    }
    a->n = sizeof a->sa;
    if (!getsockname(fd, (struct sockaddr *)&a->sa, &a->n))
        a->port = ntohs(((struct sockaddr_in *)&a->sa)->sin_port);
    s->listen_fd = fd;
    s->loopback = a->loopback;
    snprintf(s->url, sizeof s->url, "http://%s:%u", a->host, a->port);
    return 0;
}

/* ---- CivetWeb ------------------------------------------------------------ */

static int server_log(const struct mg_connection *mg, const char *text)
{
    struct seam_server *s = mg ? mg_get_user_context_data(mg) : NULL;

    if (s)
        seam_log(s->log, SEAM_LOG_DEBUG, "civetweb", "%s", text);
    return 1;
}

static int server_opened(const struct mg_connection *mg, void **data)
{
    struct seam_server *s = mg_get_user_context_data(mg);

    *data = seam_conn_open(s->conns);
    return 0;
}

static void server_closed(const struct mg_connection *mg)
{
    struct seam_server *s = mg_get_user_context_data(mg);

    seam_conn_close(s->conns, mg_get_user_connection_data(mg));
}

static void *server_thread(const struct mg_context *mg, int type)
{
    struct seam_worker *w;

    (void)mg;
    if (type != 1)
        return NULL;
    w = calloc(1, sizeof *w);
    if (w)
        w->stack = seam_stack_new(SEAM_REQUEST_STACK);
    if (w && !w->stack) {
        free(w);
        w = NULL;
    }
    return w; /* without it the worker answers 503 */
}

static void server_thread_end(const struct mg_context *mg, int type,
                              void *worker)
{
    struct seam_worker *w = worker;

    (void)mg;
    (void)type;
    if (w)
        seam_stack_free(w->stack);
    free(w);
}

static int server_connect(const struct sockaddr *a, socklen_t n)
{
    int fd = socket(a->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd >= 0 && connect(fd, a, n)) {
        close(fd);
        return -1;
    }
    return fd;
}

static int server_connect_loopback(uint16_t port)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port) };

    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return server_connect((struct sockaddr *)&a, sizeof a);
}

/* Learn where each worker's buffer starts, which tells later whether a request
 * began with white space (frame.h): one connection for each, all open at once,
 * so that each worker answers one. */
static int server_prime(uint16_t port, uint32_t workers, struct seam_error *err)
{
    static const char ask[] = "GET / HTTP/1.1\r\nHost: seam\r\n\r\n";
    struct timeval patience = { .tv_sec = 60 }; /* of a busy machine */
    uint32_t n = 0;
    int *fd = calloc(workers, sizeof *fd), rc = 0;
    char byte;

    if (!fd)
        return seam_fail(err, SEAM_ENOMEM, "server: no memory");
    while (n < workers && (fd[n] = server_connect_loopback(port)) >= 0) {
        setsockopt(fd[n], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        if (send(fd[n++], ask, sizeof ask - 1, MSG_NOSIGNAL) < 0)
            break;
    }
    for (uint32_t i = 0; i < n && !rc; i++) {
        ssize_t got;

        /* With a time limit it is not restarted after a stop of the process. */
        do
            got = recv(fd[i], &byte, 1, 0);
        while (got < 0 && errno == EINTR);
        if (got != 1)
            rc = got ? errno : ECONNRESET;
    }
    if (rc || n < workers)
        rc = seam_fail_errno(err, SEAM_EDEVICE, rc ? rc : errno,
                             "server: %u workers cannot be started", workers);
    while (n)
        close(fd[--n]);
    free(fd);
    return rc;
}

/* Put our listening socket where CivetWeb's is.  Its master thread sleeps on
 * the old one: a connection there wakes it, and one on ours makes it look
 * up. */
static int server_take_over(struct seam_server *s, const struct address *a,
                            uint32_t workers, struct seam_error *err)
{
    struct mg_server_port port;
    int fd, ours, old, rc;

    if (mg_get_server_ports(s->mg, 1, &port) != 1)
        return seam_fail(err, SEAM_EDEVICE, "server: CivetWeb has no port");
    fd = seam_conn_find_listener((uint16_t)port.port, s->listen_fd);
    if (fd < 0)
        return seam_fail(err, SEAM_EDEVICE,
                         "server: CivetWeb's socket was not "
                         "found");
    rc = server_prime((uint16_t)port.port, workers, err);
    if (rc)
        return rc;
    atomic_store(&s->primed, true);
    if (dup3(s->listen_fd, fd, O_CLOEXEC) < 0)
        return seam_fail_errno(err, SEAM_EDEVICE, errno,
                               "server: cannot hand "
                               "over the socket");
    ours = server_connect((const struct sockaddr *)&a->sa, a->n);
    old = server_connect_loopback((uint16_t)port.port);
    if (ours >= 0)
        close(ours);
    if (old >= 0)
        close(old);
    return 0;
}

static int server_civetweb(struct seam_server *s, const struct address *a,
                           struct seam_error *err)
{
    const struct seam_config *c = s->config;
    uint32_t workers = (uint32_t)c->server.max_connections + SPARE_WORKERS;
    struct seam_conns_opts o = {
        .n_workers = workers,
        .n_reserve = RESERVE,
        .max_busy = (uint32_t)c->server.max_connections,
        .port = a->port,
    };
    struct mg_callbacks cb = {
        .begin_request = seam_dispatch,
        .http_error = seam_dispatch_error,
        .log_message = server_log,
        .init_thread = server_thread,
        .exit_thread = server_thread_end,
        .init_connection = server_opened,
        .connection_close = server_closed,
    };
    char threads[16], head[16], patience[16];
    /* CivetWeb's own time counts for the head of a request; elsewhere the
     * deadlines of conn.c do. */
    const char *options[] = { "listening_ports",
                              "127.0.0.1:0",
                              "num_threads",
                              threads,
                              "max_request_size",
                              head,
                              "request_timeout_ms",
                              patience,
                              "keep_alive_timeout_ms",
                              "75000",
                              "enable_keep_alive",
                              "yes",
                              "connection_queue",
                              "128",
                              "decode_url",
                              "no",
                              "enable_auth_domain_check",
                              "no",
                              "enable_directory_listing",
                              "no",
                              "access_control_allow_origin",
                              "",
                              "access_control_allow_methods",
                              "",
                              "access_control_allow_headers",
                              "",
                              NULL };
    int rc = seam_conns_new(&s->conns, &o, err);

    if (rc)
        return rc;
    snprintf(threads, sizeof threads, "%u", workers);
    snprintf(head, sizeof head, "%d", SEAM_HEAD_BUFFER);
    snprintf(patience, sizeof patience, "%lld",
             (long long)c->server.body_timeout_ms);
    mg_init_library(0);
    s->mg = mg_start(&cb, s, options);
    if (!s->mg) {
        mg_exit_library();
        return seam_fail(err, SEAM_EDEVICE, "server: CivetWeb does not start");
    }
    return server_take_over(s, a, workers, err);
}

/* ---- Public -------------------------------------------------------------- */

int seam_server_bind(struct seam_server **out, const struct seam_config *c,
                     const struct seam_log *log, struct seam_error *err)
{
    struct seam_server *s;
    struct address a;
    int rc = address_parse(c->server.listen, &a, err);

    if (rc)
        return rc;
    if (!a.loopback && !c->server.api_keys.n && !c->server.insecure)
        return seam_fail(err, SEAM_ENOTSUP,
                         "server.listen: %s can be reached "
                         "from other machines; set server.api_keys, or "
                         "--insecure to serve without a key",
                         c->server.listen);
    if (a.sa.ss_family == AF_INET6 && !mg_check_feature(MG_FEATURES_IPV6))
        return seam_fail(err, SEAM_ENOTSUP,
                         "server.listen: %s: the CivetWeb of this system is "
                         "built without IPv6; listen on an IPv4 address",
                         c->server.listen);
    s = calloc(1, sizeof *s);
    if (!s)
        return seam_fail(err, SEAM_ENOMEM, "server: no memory");
    s->config = c;
    s->log = log;
    s->listen_fd = -1;
    s->started = time(NULL);
    rc = seam_auth_init(&s->auth, c, err);
    if (!rc)
        rc = server_listen(s, &a, err);
    if (!rc) {
        s->metrics_public =
            c->server.metrics_public && strcmp(c->server.metrics_public, "auto")
                ? !strcmp(c->server.metrics_public, "yes")
                : a.loopback;
        rc = server_civetweb(s, &a, err);
    }
    if (rc) {
        seam_server_stop(s);
        return rc;
    }
    *out = s;
    return 0;
}

const char *seam_server_url(const struct seam_server *s)
{
    return s->url;
}

int seam_server_start(struct seam_server *s, struct seam_engine *e,
                      struct seam_error *err)
{
    if (seam_server_engine(s))
        return seam_fail(err, SEAM_ESTATE, "server: started twice");
    atomic_store(&s->engine, e);
    return 0;
}

void seam_server_drain(struct seam_server *s)
{
    atomic_store(&s->draining, true);
}

uint32_t seam_server_active(const struct seam_server *s)
{
    return seam_conns_busy(s->conns);
}

uint32_t seam_server_arriving(const struct seam_server *s)
{
    return seam_conns_arriving(s->conns);
}

void seam_server_stop(struct seam_server *s)
{
    if (!s)
        return;
    if (s->conns)
        seam_conns_stop(s->conns);
    if (s->mg) {
        /* Wakes the thread that waits for connections. */
        shutdown(s->listen_fd, SHUT_RDWR);
        mg_stop(s->mg);
        mg_exit_library();
    }
    seam_conns_free(s->conns);
    if (s->listen_fd >= 0)
        close(s->listen_fd);
    seam_auth_release(&s->auth);
    free(s);
}

/* ---- State --------------------------------------------------------------- */

const char *seam_server_unready(struct seam_server *s)
{
    struct seam_engine *e = seam_server_engine(s);

    if (!e)
        return "loading";
    switch (seam_engine_state(e)) {
    case SEAM_ENGINE_LOADING:
        return "loading";
    case SEAM_ENGINE_FAILED:
    case SEAM_ENGINE_STOPPED:
        return "failed";
    case SEAM_ENGINE_READY:
    case SEAM_ENGINE_DRAINING:
        break;
    }
    if (seam_engine_stalled(e))
        return "stalled";
    return atomic_load(&s->draining) ||
                   seam_engine_state(e) == SEAM_ENGINE_DRAINING
               ? "draining"
               : NULL;
}

const char *seam_server_model(const struct seam_server *s)
{
    const char *path = s->config->model.path, *slash;

    if (s->config->model.name && *s->config->model.name)
        return s->config->model.name;
    slash = path ? strrchr(path, '/') : NULL;
    return slash && slash[1] ? slash + 1 : path ? path : "model";
}

bool seam_server_knows_model(const struct seam_server *s, const char *name)
{
    if (s->config->model.accept_any_name || !strcmp(name, seam_server_model(s)))
        return true;
    for (size_t i = 0; i < s->config->model.aliases.n; i++)
        if (!strcmp(name, s->config->model.aliases.v[i]))
            return true;
    return false;
}
