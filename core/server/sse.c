#include "core/server/sse.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/base/clock.h"

void seam_sse_begin(struct seam_sse *s, struct seam_http *h)
{
    char date[40];
    time_t now = time(NULL);
    struct tm tm;

    *s = (struct seam_sse){ .h = h, .written_ns = seam_now_ns() };
    h->streaming = true;
    h->close = true;
    h->status = 200;
    gmtime_r(&now, &tm);
    strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", &tm);
    seam_buf_fmt(&s->line,
                 "HTTP/1.1 200 OK\r\nDate: %s\r\n"
                 "Content-Type: text/event-stream; charset=utf-8\r\n"
                 "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n"
                 "X-Request-Id: %s\r\nConnection: close\r\n",
                 date, h->id);
    if (h->extra.n)
        seam_buf_add(&s->line, h->extra.p, h->extra.n);
    seam_buf_str(&s->line, "\r\n");
    if (s->line.failed)
        h->broken = true;
    else
        seam_http_write(h, s->line.p, s->line.n);
}

void seam_sse_release(struct seam_sse *s)
{
    seam_buf_release(&s->line);
}

bool seam_sse_send(struct seam_sse *s, const char *event, const char *data,
                   size_t n)
{
    seam_buf_clear(&s->line);
    if (event)
        seam_buf_fmt(&s->line, "event: %s\n", event);
    seam_buf_str(&s->line, "data: ");
    seam_buf_add(&s->line, data, n);
    seam_buf_str(&s->line, "\n\n");
    s->written_ns = seam_now_ns();
    if (s->line.failed) {
        s->h->broken = true;
        return false;
    }
    return seam_http_write(s->h, s->line.p, s->line.n);
}

bool seam_sse_ping(struct seam_sse *s)
{
    uint64_t every = (uint64_t)s->h->s->config->server.sse_ping_ms * 1000000u;

    if (!every || seam_now_ns() - s->written_ns < every)
        return !s->h->broken;
    s->written_ns = seam_now_ns();
    return seam_http_write(s->h, ": ping\n\n", 8);
}
