#include "tests/http/client.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

void client_open(struct client *c, const char *url)
{
    struct addrinfo hint = { .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV };
    struct addrinfo *a = NULL;
    char host[64];
    const char *port = strrchr(url, ':') + 1;
    size_t n;

    *c = (struct client){ 0 };
    url += strlen("http://");
    n = (size_t)(port - 1 - url);
    if (*url == '[') {
        url++;
        n -= 2;
    }
    snprintf(host, sizeof host, "%.*s", (int)n, url);
    cr_assert_eq(getaddrinfo(host, port, &hint, &a), 0);
    c->fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_geq(c->fd, 0);
    cr_assert_eq(connect(c->fd, a->ai_addr, a->ai_addrlen), 0, "%s:%s: %s",
                 host, port, strerror(errno));
    freeaddrinfo(a);
}

void client_close(struct client *c)
{
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
    seam_buf_release(&c->in);
}

void client_send(struct client *c, const char *p, size_t n)
{
    while (n) {
        ssize_t done = send(c->fd, p, n, MSG_NOSIGNAL);

        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0) /* the server has closed: the answer says why */
            return;
        p += done;
        n -= (size_t)done;
    }
}

void client_puts(struct client *c, const char *s)
{
    client_send(c, s, strlen(s));
}

bool client_more(struct client *c)
{
    struct pollfd p = { .fd = c->fd, .events = POLLIN };
    char part[16384];
    ssize_t n;
    int rc;

    if (c->eof)
        return false;
    do
        rc = poll(&p, 1, CLIENT_PATIENCE_MS);
    while (rc < 0 && errno == EINTR);
    cr_assert_eq(rc, 1, "nothing came for %d ms", CLIENT_PATIENCE_MS);
    n = recv(c->fd, part, sizeof part, 0);
    if (n <= 0) {
        c->eof = true;
        return false;
    }
    seam_buf_add(&c->in, part, (size_t)n);
    return true;
}

static void client_drop(struct client *c, size_t n)
{
    memmove(c->in.p, c->in.p + n, c->in.n - n);
    c->in.n -= n;
    c->in.p[c->in.n] = 0;
}

/* Move n bytes, or all up to the end of the stream, to out. */
static void client_take(struct client *c, size_t n, struct seam_buf *out)
{
    while (c->in.n < n && client_more(c))
        ;
    if (n > c->in.n)
        n = c->in.n;
    seam_buf_add(out, c->in.p ? c->in.p : "", n);
    if (n)
        client_drop(c, n);
}

static bool client_head(struct client *c, struct reply *r)
{
    char *end;

    while (!c->in.p || !(end = strstr(c->in.p, "\r\n\r\n")))
        if (!client_more(c))
            return false;
    seam_buf_clear(&r->head);
    client_take(c, (size_t)(end - c->in.p) + 4, &r->head);
    cr_assert_eq(sscanf(r->head.p, "HTTP/1.1 %d", &r->status), 1, "%s",
                 r->head.p);
    return true;
}

bool client_reply(struct client *c, struct reply *r)
{
    char v[32];
    const char *length;

    memset(r, 0, sizeof *r);
    do
        if (!client_head(c, r))
            return false;
    while (r->status == 100);
    length = reply_header(r, "Content-Length", v, sizeof v);
    if (length)
        client_take(c, strtoul(length, NULL, 10), &r->body);
    else if (r->status != 204)
        client_take(c, SIZE_MAX, &r->body);
    if (r->body.n)
        r->json = json_loadb(r->body.p, r->body.n,
                             JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL);
    return true;
}

bool client_closed(struct client *c)
{
    return !c->in.n && !client_more(c);
}

void reply_release(struct reply *r)
{
    seam_buf_release(&r->head);
    seam_buf_release(&r->body);
    json_decref(r->json);
    memset(r, 0, sizeof *r);
}

const char *reply_header(const struct reply *r, const char *name, char *out,
                         size_t cap)
{
    size_t n = strlen(name);

    for (const char *p = strstr(r->head.p, "\r\n"); p && p[2];
         p = strstr(p + 2, "\r\n")) {
        const char *v = p + 2 + n, *end;

        if (strncasecmp(p + 2, name, n) || *v != ':')
            continue;
        v += 1 + strspn(v + 1, " ");
        end = strstr(v, "\r\n");
        snprintf(out, cap, "%.*s", (int)(end - v), v);
        return out;
    }
    return NULL;
}

json_t *reply_at(const struct reply *r, ...)
{
    json_t *v = r->json;
    const char *key;
    va_list ap;

    va_start(ap, r);
    while (v && (key = va_arg(ap, const char *)))
        v = json_is_array(v) ? json_array_get(v, strtoul(key, NULL, 10))
                             : json_object_get(v, key);
    va_end(ap);
    return v;
}

void client_put_post(struct client *c, const char *path, const char *body)
{
    struct seam_buf b = { 0 };

    seam_buf_fmt(&b,
                 "POST %s HTTP/1.1\r\nHost: test\r\n"
                 "Content-Type: application/json\r\nContent-Length: %zu\r\n"
                 "\r\n",
                 path, strlen(body));
    seam_buf_str(&b, body);
    client_send(c, b.p, b.n);
    seam_buf_release(&b);
}

void client_post(const char *url, const char *path, const char *body,
                 struct reply *r)
{
    struct client c;

    client_open(&c, url);
    client_put_post(&c, path, body);
    cr_assert(client_reply(&c, r), "no answer to %s", path);
    client_close(&c);
}

void client_get(const char *url, const char *path, struct reply *r)
{
    struct client c;
    struct seam_buf b = { 0 };

    client_open(&c, url);
    seam_buf_fmt(&b, "GET %s HTTP/1.1\r\nHost: test\r\n\r\n", path);
    client_send(&c, b.p, b.n);
    seam_buf_release(&b);
    cr_assert(client_reply(&c, r), "no answer to %s", path);
    client_close(&c);
}

void client_stream(struct client *c, struct reply *r)
{
    char v[64];

    memset(r, 0, sizeof *r);
    cr_assert(client_head(c, r), "no answer");
    if (r->status != 200)
        client_take(c, SIZE_MAX, &r->body);
    cr_assert_eq(r->status, 200, "%s%s", r->head.p, r->body.p);
    cr_assert_str_eq(reply_header(r, "Content-Type", v, sizeof v),
                     "text/event-stream; charset=utf-8");
}

bool client_event(struct client *c, struct seam_buf *data, unsigned *comments)
{
    char *end;

    for (;;) {
        while (!c->in.p || !(end = strstr(c->in.p, "\n\n")))
            if (!client_more(c))
                return false;
        *end = 0;
        seam_buf_clear(data);
        if (c->in.p[0] == ':') {
            if (comments)
                ++*comments;
            client_drop(c, (size_t)(end - c->in.p) + 2);
            continue;
        }
        seam_buf_str(data, c->in.p);
        client_drop(c, (size_t)(end - c->in.p) + 2);
        return true;
    }
}
