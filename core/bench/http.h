/* A client for streams of HTTP/1.1, as small as a load generator needs it: one
 * connection per request, the body as it arrives. */
#ifndef SEAM_BENCH_HTTP_H
#define SEAM_BENCH_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/base/error.h"

struct seam_http_url {
    char host[256], port[8];
    char base[256]; /* path in front of every request's, without a last slash */
};

/* "http://HOST[:PORT][/BASE]" */
int seam_http_url(const char *url, struct seam_http_url *out,
                  struct seam_error *err);

struct seam_http_request {
    const struct seam_http_url *url;
    const char *method, *path;
    const char *key; /* for "Authorization: Bearer", or NULL                  */
    const char *body;
    size_t n_body;
    uint32_t timeout_ms; /* of silence                                        */
    /* Bytes of the body, chunks taken off, as they arrive; non-zero stops. */
    int (*bytes)(void *ctx, const char *p, size_t n);
    void *ctx;
};

/* 0 with *status once the answer is whole, or when `bytes` stopped it.
 * EDEVICE: connection refused, lost or silent; EDATA: no HTTP.  [any] */
int seam_http_fetch(const struct seam_http_request *r, int *status,
                    struct seam_error *err);

/* Data lines of a stream of events. */
struct seam_http_events {
    struct seam_buf line;
    /* The text after "data:"; non-zero stops. */
    int (*data)(void *ctx, const char *p, size_t n);
    void *ctx;
};
/* Feed bytes; returns what data did. */
int seam_http_events(struct seam_http_events *e, const char *p, size_t n);

#endif
