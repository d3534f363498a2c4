/* Server-sent events: one event, one write. */
#ifndef SEAM_SERVER_SSE_H
#define SEAM_SERVER_SSE_H

#include "core/server/http.h"

struct seam_sse {
    struct seam_http *h;
    uint64_t written_ns;
    struct seam_buf line;
};

/* Send the head.  From here on the status is fixed. */
void seam_sse_begin(struct seam_sse *s, struct seam_http *h);
void seam_sse_release(struct seam_sse *s);

/* data must be one line.  event may be NULL.  False: nobody reads any more. */
bool seam_sse_send(struct seam_sse *s, const char *event, const char *data,
                   size_t n);
/* A comment, when nothing was sent for sse_ping_ms. */
bool seam_sse_ping(struct seam_sse *s);

#endif
