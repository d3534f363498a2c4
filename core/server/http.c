#include "core/server/http.h"

#include <civetweb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/clock.h"

#define WRITE_MAX 65536

static const char *http_reason(int status)
{
    switch (status) {
    case 100:
        return "Continue";
    case 200:
        return "OK";
    case 204:
        return "No Content";
    case 400:
        return "Bad Request";
    case 401:
        return "Unauthorized";
    case 403:
        return "Forbidden";
    case 404:
        return "Not Found";
    case 405:
        return "Method Not Allowed";
    case 408:
        return "Request Timeout";
    case 413:
        return "Content Too Large";
    case 415:
        return "Unsupported Media Type";
    case 417:
        return "Expectation Failed";
    case 429:
        return "Too Many Requests";
    case 431:
        return "Request Header Fields Too Large";
    case 500:
        return "Internal Server Error";
    case 501:
        return "Not Implemented";
    case 503:
        return "Service Unavailable";
    case 504:
        return "Gateway Timeout";
    case 505:
        return "HTTP Version Not Supported";
    }
    return "Error";
}

const char *seam_http_header(const struct seam_http *h, const char *name,
                             char *out, size_t cap)
{
    return seam_frame_header(h->ri, name, out, cap);
}

void seam_http_add(struct seam_http *h, const char *name, const char *value)
{
    seam_buf_fmt(&h->extra, "%s: %s\r\n", name, value);
}

/* ---- Writing ------------------------------------------------------------- */

bool seam_http_write(struct seam_http *h, const char *p, size_t n)
{
    struct seam_conns *cs = h->s->conns;

    seam_conn_enter(cs, h->c, SEAM_CONN_WRITE,
                    (uint64_t)h->s->config->server.write_timeout_ms);
    while (n && !h->broken) {
        int done = mg_write(h->mg, p, n < WRITE_MAX ? n : WRITE_MAX);

        if (done > 0) {
            p += done;
            n -= (size_t)done;
        } else if (seam_conn_expired(cs, h->c) || seam_http_gone(h)) {
            h->broken = true;
        } /* else CivetWeb's own time for a write was over, and ours is not */
    }
    seam_conn_enter(cs, h->c, SEAM_CONN_BUSY, 0);
    return !h->broken;
}

bool seam_http_gone(struct seam_http *h)
{
    if (h->broken || seam_conns_stopping(h->s->conns) || seam_conn_gone(h->c))
        h->broken = true;
    return h->broken;
}

/* ---- Reading ------------------------------------------------------------- */

static int http_too_large(const struct seam_http *h, struct seam_api_error *e)
{
    return seam_api_fail(e, 413, "body_too_large", NULL,
                         "the body is larger than %lld bytes",
                         (long long)h->s->config->server.max_body_bytes);
}

static int http_cut(struct seam_http *h, struct seam_api_error *e)
{
    uint64_t ms = (seam_now_ns() - h->began_ns) / 1000000u;

    if (seam_conn_expired(h->s->conns, h->c) ||
        ms >= (uint64_t)h->s->config->server.body_timeout_ms)
        return seam_api_fail(e, 408, "request_timeout", NULL,
                             "the body did not arrive within %lld ms",
                             (long long)h->s->config->server.body_timeout_ms);
    if (seam_conn_given_up(h->c))
        return seam_api_fail(e, 408, "request_timeout", NULL,
                             "the rest of the body did not come while others "
                             "waited for the connection");
    return seam_api_fail(e, 400, "invalid_framing", NULL,
                         h->frame.chunked
                             ? "the chunked body is malformed or ends early"
                             : "the body ends before its length is reached");
}

int seam_http_body(struct seam_http *h, struct seam_api_error *e)
{
    const struct seam_config *c = h->s->config;
    uint64_t max = (uint64_t)c->server.max_body_bytes;
    char part[16384];
    int n, rc = 0;

    if (h->frame.length > max)
        return http_too_large(h, e);
    seam_conn_enter(h->s->conns, h->c, SEAM_CONN_BODY,
                    (uint64_t)c->server.body_timeout_ms);
    if (h->frame.expects_continue && h->frame.has_body)
        mg_write(h->mg, "HTTP/1.1 100 Continue\r\n\r\n", 25);
    while (h->frame.chunked || h->body.n < h->frame.length) {
        size_t want = sizeof part;

        if (!h->frame.chunked && h->frame.length - h->body.n < want)
            want = h->frame.length - h->body.n;
        n = mg_read(h->mg, part, want);
        /* 0 is the end of a chunked body, and only that. */
        if (n < 0 || (!h->frame.chunked && (size_t)n != want)) {
            rc = http_cut(h, e);
            goto out;
        }
        if (n == 0)
            break;
        if (h->body.n + (uint64_t)n > max) {
            rc = http_too_large(h, e);
            goto out;
        }
        seam_buf_add(&h->body, part, (size_t)n);
        if (h->body.failed) {
            rc = seam_api_fail(e, 503, "overloaded", NULL, "no memory");
            goto out;
        }
    }
    h->body_read = true;
    /* CivetWeb does not say whether a trailer follows the last chunk. */
    if (h->frame.chunked)
        h->close = true;
out:
    seam_conn_enter(h->s->conns, h->c, SEAM_CONN_BUSY, 0);
    return rc;
}

/* ---- Answering ----------------------------------------------------------- */

void seam_http_reply(struct seam_http *h, int status, const char *type,
                     const char *body, size_t n)
{
    struct seam_buf out = { 0 };
    char date[40];
    time_t now = time(NULL);
    struct tm tm;

    if (h->frame.has_body && !h->body_read)
        h->close = true;
    if (!h->frame.keep_alive)
        h->close = true;
    h->status = status;
    gmtime_r(&now, &tm);
    strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", &tm);
    seam_buf_fmt(&out, "HTTP/1.1 %d %s\r\nDate: %s\r\n", status,
                 http_reason(status), date);
    if (type)
        seam_buf_fmt(&out, "Content-Type: %s\r\n", type);
    if (status != 204)
        seam_buf_fmt(&out, "Content-Length: %zu\r\n", n);
    seam_buf_fmt(&out, "X-Request-Id: %s\r\nConnection: %s\r\n", h->id,
                 h->close ? "close" : "keep-alive");
    if (h->extra.n)
        seam_buf_add(&out, h->extra.p, h->extra.n);
    seam_buf_str(&out, "\r\n");
    if (strcmp(h->method, "HEAD") && status != 204)
        seam_buf_add(&out, body, n);
    if (out.failed)
        h->broken = true;
    else
        seam_http_write(h, out.p, out.n);
    seam_buf_release(&out);
}

void seam_http_json(struct seam_http *h, int status, json_t *v)
{
    seam_http_spelled(h, status, v, NULL);
}

void seam_http_spelled(struct seam_http *h, int status, json_t *v,
                       const struct seam_spelling *s)
{
    char *text = v ? seam_spelling_dump(s, v) : NULL;
    struct seam_api_error e;

    json_decref(v);
    if (text) {
        seam_http_reply(h, status, "application/json", text, strlen(text));
    } else {
        seam_api_fail(&e, 500, NULL, NULL, "no memory");
        seam_http_fail(h, &e);
    }
    free(text);
}

void seam_http_fail(struct seam_http *h, const struct seam_api_error *e)
{
    struct seam_buf out = { 0 };
    char n[16];

    if (e->retry_after_s) {
        snprintf(n, sizeof n, "%u", e->retry_after_s);
        seam_http_add(h, "Retry-After", n);
    }
    if (e->status == 401)
        seam_http_add(h, "WWW-Authenticate", "Bearer");
    if (e->status == 500)
        seam_http_add(h, "x-should-retry", "false");
    if (h->api == SEAM_API_ANTHROPIC)
        seam_api_error_anthropic(e, h->id, &out);
    else
        seam_api_error_json(e, &out);
    snprintf(h->note, sizeof h->note, "%s", e->code ? e->code : "");
    seam_http_reply(h, e->status, "application/json", out.p, out.n);
    seam_buf_release(&out);
}
