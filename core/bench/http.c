#include "core/bench/http.h"

#include <ctype.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "core/base/num.h"

#define MAX_HEAD (64u << 10)
#define MAX_LINE (16u << 20) /* of a stream's event                           */

int seam_http_url(const char *url, struct seam_http_url *out,
                  struct seam_error *err)
{
    static const char scheme[] = "http://";
    const char *at = url + sizeof scheme - 1, *end, *host_end;
    size_t n;
    uint64_t port = 80;

    if (strncmp(url, scheme, sizeof scheme - 1))
        return seam_fail(err, SEAM_EINVAL,
                         "%s: expected http://HOST:PORT, encrypted "
                         "connections are not made here",
                         url);
    *out = (struct seam_http_url){ .port = "80" };
    end = at + strcspn(at, "/");
    host_end = *at == '[' ? strchr(at, ']') : at + strcspn(at, ":/");
    if (!host_end || host_end > end)
        return seam_fail(err, SEAM_EINVAL, "%s: no host", url);
    n = (size_t)(host_end - at);
    if (*at == '[') {
        at++;
        n--;
        host_end++;
    }
    if (!n || n >= sizeof out->host)
        return seam_fail(err, SEAM_EINVAL, "%s: no host", url);
    memcpy(out->host, at, n);
    if (*host_end == ':') {
        host_end++;
        if (!seam_parse_u64(host_end, (size_t)(end - host_end), &port) ||
            !port || port > 65535)
            return seam_fail(err, SEAM_EINVAL, "%s: no port", url);
    } else if (host_end != end) {
        return seam_fail(err, SEAM_EINVAL, "%s: no port", url);
    }
    snprintf(out->port, sizeof out->port, "%u", (unsigned)port);
    n = strlen(end);
    while (n && end[n - 1] == '/')
        n--;
    if (n >= sizeof out->base)
        return seam_fail(err, SEAM_EINVAL, "%s: too long", url);
    memcpy(out->base, end, n);
    return 0;
}

/* ---- The connection ------------------------------------------------------ */

static int http_connect(const struct seam_http_request *r, int *fd,
                        struct seam_error *err)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *list, *a;
    struct timeval t = { .tv_sec = r->timeout_ms / 1000,
                         .tv_usec = r->timeout_ms % 1000 * 1000 };
    int one = 1, why = 0;
    int rc = getaddrinfo(r->url->host, r->url->port, &hints, &list);

    if (rc)
        return seam_fail(err, SEAM_EDEVICE, "%s: %s", r->url->host,
                         gai_strerror(rc));
    *fd = -1;
    for (a = list; a && *fd < 0; a = a->ai_next) {
        *fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (*fd >= 0 && !connect(*fd, a->ai_addr, a->ai_addrlen))
            break;
        why = errno;
        if (*fd >= 0)
            close(*fd);
        *fd = -1;
    }
    freeaddrinfo(list);
    if (*fd < 0)
        return seam_fail_errno(err, SEAM_EDEVICE, why, "%s:%s", r->url->host,
                               r->url->port);
    setsockopt(*fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(*fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
    setsockopt(*fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t);
    return 0;
}

static int http_send(int fd, const char *p, size_t n, struct seam_error *err)
{
    while (n) {
        ssize_t k = send(fd, p, n, MSG_NOSIGNAL);

        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return seam_fail_errno(err, SEAM_EDEVICE, errno, "sending");
        p += k;
        n -= (size_t)k;
    }
    return 0;
}

static int http_ask(int fd, const struct seam_http_request *r,
                    struct seam_error *err)
{
    struct seam_buf head = { 0 };
    int rc;

    seam_buf_fmt(&head, "%s %s%s HTTP/1.1\r\nHost: %s:%s\r\n", r->method,
                 r->url->base, r->path, r->url->host, r->url->port);
    seam_buf_str(&head, "Connection: close\r\nAccept: */*\r\n");
    if (r->key)
        seam_buf_fmt(&head, "Authorization: Bearer %s\r\n", r->key);
    if (r->body)
        seam_buf_fmt(&head,
                     "Content-Type: application/json\r\n"
                     "Content-Length: %zu\r\n",
                     r->n_body);
    seam_buf_str(&head, "\r\n");
    if (r->body)
        seam_buf_add(&head, r->body, r->n_body);
    rc = head.failed ? seam_fail(err, SEAM_ENOMEM, "out of memory")
                     : http_send(fd, head.p, head.n, err);
    seam_buf_release(&head);
    return rc;
}

/* ---- The answer ---------------------------------------------------------- */

enum body { BODY_CLOSE, BODY_LENGTH, BODY_CHUNKS };

struct answer {
    const struct seam_http_request *r;
    struct seam_buf head;
    bool in_body, done;
    int status;
    enum body how;
    uint64_t left; /* of the body, or of the chunk                           */
    char size[24]; /* the line with a chunk's length, as far as it came      */
    size_t n_size;
    bool in_chunk, at_end; /* in its bytes; after the last one                */
};

/* The value of a header, or NULL.  head is NUL-terminated. */
static const char *answer_header(const char *head, const char *name)
{
    size_t n = strlen(name);

    for (const char *p = strstr(head, "\r\n"); p; p = strstr(p + 2, "\r\n"))
        if (!strncasecmp(p + 2, name, n) && p[2 + n] == ':') {
            p += 3 + n;
            return p + strspn(p, " \t");
        }
    return NULL;
}

static int answer_head(struct answer *a, struct seam_error *err)
{
    const char *head = a->head.p, *v;
    char *end;
    long status;

    if (strncmp(head, "HTTP/1.", 7) || strlen(head) < 12)
        return seam_fail(err, SEAM_EDATA, "the answer is no HTTP");
    status = strtol(head + 9, &end, 10);
    if (end != head + 12 || status < 100)
        return seam_fail(err, SEAM_EDATA, "the answer has no status");
    a->status = (int)status;
    a->how = BODY_CLOSE;
    v = answer_header(head, "transfer-encoding");
    if (v && !strncasecmp(v, "chunked", 7)) {
        a->how = BODY_CHUNKS;
        return 0;
    }
    v = answer_header(head, "content-length");
    if (v) {
        if (!seam_parse_u64(v, strspn(v, "0123456789"), &a->left))
            return seam_fail(err, SEAM_EDATA, "a length that is no number");
        a->how = BODY_LENGTH;
        a->done = a->left == 0;
    }
    return 0;
}

/* The line with the length of the next chunk, or what follows the last. */
static int answer_size(struct answer *a, struct seam_error *err)
{
    char *end;

    a->size[a->n_size] = 0;
    a->n_size = 0;
    if (a->at_end) {
        a->done = a->size[0] == 0;
        return 0;
    }
    if (!a->size[0]) /* the end of the chunk before                           */
        return 0;
    if (!isxdigit((unsigned char)a->size[0]))
        return seam_fail(err, SEAM_EDATA, "a chunk without a length");
    a->left = strtoull(a->size, &end, 16);
    a->in_chunk = a->left > 0;
    a->at_end = a->left == 0;
    return 0;
}

/* p[0, n) of the body as it came. */
static int answer_body(struct answer *a, const char *p, size_t n,
                       struct seam_error *err)
{
    int rc = 0;

    while (n && !a->done && !rc) {
        size_t k = n;

        if (a->how == BODY_CHUNKS && !a->in_chunk) {
            if (*p == '\n')
                rc = answer_size(a, err);
            else if (*p != '\r' && a->n_size < sizeof a->size - 1)
                a->size[a->n_size++] = *p;
            p++;
            n--;
            continue;
        }
        if (a->how != BODY_CLOSE && k > a->left)
            k = (size_t)a->left;
        if (a->r->bytes && a->r->bytes(a->r->ctx, p, k))
            a->done = true;
        p += k;
        n -= k;
        if (a->how == BODY_CLOSE)
            continue;
        a->left -= k;
        if (!a->left && a->how == BODY_LENGTH)
            a->done = true;
        else if (!a->left)
            a->in_chunk = false;
    }
    return rc;
}

static int answer_bytes(struct answer *a, const char *p, size_t n,
                        struct seam_error *err)
{
    const char *end;
    size_t from = a->head.n > 3 ? a->head.n - 3 : 0, body;
    int rc;

    if (a->in_body)
        return answer_body(a, p, n, err);
    seam_buf_add(&a->head, p, n);
    if (a->head.failed)
        return seam_fail(err, SEAM_ENOMEM, "out of memory");
    end = memmem(a->head.p + from, a->head.n - from, "\r\n\r\n", 4);
    if (!end)
        return a->head.n < MAX_HEAD
                   ? 0
                   : seam_fail(err, SEAM_EDATA, "headers without an end");
    body = (size_t)(end + 4 - a->head.p);
    a->in_body = true;
    from = a->head.n - body;
    a->head.p[body - 2] = 0;
    rc = answer_head(a, err);
    return rc ? rc : answer_body(a, p + (n - from), from, err);
}

int seam_http_fetch(const struct seam_http_request *r, int *status,
                    struct seam_error *err)
{
    struct answer a = { .r = r };
    char bytes[16384];
    int fd = -1, rc = http_connect(r, &fd, err);

    if (rc)
        return rc;
    rc = http_ask(fd, r, err);
    while (!rc && !a.done) {
        ssize_t n = recv(fd, bytes, sizeof bytes, 0);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            rc = errno == EAGAIN
                     ? seam_fail(err, SEAM_EDEVICE, "nothing came for %u ms",
                                 r->timeout_ms)
                     : seam_fail_errno(err, SEAM_EDEVICE, errno, "receiving");
        else if (n == 0 && a.in_body && a.how == BODY_CLOSE)
            break;
        else if (n == 0)
            rc = seam_fail(err, SEAM_EDEVICE, "the answer broke off");
        else
            rc = answer_bytes(&a, bytes, (size_t)n, err);
    }
    close(fd);
    seam_buf_release(&a.head);
    if (!rc)
        *status = a.status;
    return rc;
}

/* ---- Events -------------------------------------------------------------- */

int seam_http_events(struct seam_http_events *e, const char *p, size_t n)
{
    int rc = 0;

    while (n && !rc) {
        const char *end = memchr(p, '\n', n);
        size_t k = end ? (size_t)(end - p) : n;
        const char *line;

        if (e->line.n + k <= MAX_LINE)
            seam_buf_add(&e->line, p, k);
        p += k + (end != NULL);
        n -= k + (end != NULL);
        if (!end)
            break;
        line = e->line.p ? e->line.p : "";
        k = e->line.n;
        if (k && line[k - 1] == '\r')
            k--;
        if (k >= 5 && !memcmp(line, "data:", 5)) {
            size_t at = k > 5 && line[5] == ' ' ? 6 : 5;

            rc = e->data(e->ctx, line + at, k - at);
        }
        seam_buf_clear(&e->line);
    }
    return rc;
}
