/* One HTTP exchange: what was asked, reading its body, answering it. */
#ifndef SEAM_SERVER_HTTP_H
#define SEAM_SERVER_HTTP_H

#include <jansson.h>
#include <stdbool.h>

#include "core/base/buf.h"
#include "core/server/api_error.h"
#include "core/server/frame.h"
#include "core/server/spelling.h"
#include "core/server/state.h"

/* Milliseconds between two looks at whether the client is still there. */
#define SEAM_HTTP_POLL_MS 50

enum seam_api { SEAM_API_OPENAI = 1, SEAM_API_ANTHROPIC = 2 };

struct seam_http {
    struct seam_server *s;
    struct seam_conn *c;
    struct mg_connection *mg;
    const struct mg_request_info *ri;
    struct seam_frame frame;
    enum seam_api api; /* shape of errors                                 */
    char method[16];
    char path[512];        /* decoded, without query and final slash          */
    char id[132];          /* X-Request-Id                                    */
    struct seam_buf body;  /* once read                                       */
    struct seam_buf extra; /* further header lines of the answer              */
    bool body_read;        /* all of it; without: the connection is closed    */
    bool close;            /* the connection is closed after the answer       */
    bool streaming;        /* the head of an event stream is out              */
    bool broken;           /* the client is gone; nothing more is written     */
    int status;            /* of the answer; 0: none yet; 499: client left    */
    size_t key;            /* which API key was shown, from 1; 0: none needed */
    uint64_t began_ns;
    char note[160]; /* for the log line                                */
};

/* Value of a request header, copied to out; NULL when absent or too long. */
const char *seam_http_header(const struct seam_http *h, const char *name,
                             char *out, size_t cap);

/* Read the body into h->body: at most max_body_bytes, within body_timeout_ms.
 * A body that is cut short or ill-framed fails and never reaches a parser. */
int seam_http_body(struct seam_http *h, struct seam_api_error *e);

/* Add a header line to the answer. */
void seam_http_add(struct seam_http *h, const char *name, const char *value);

void seam_http_reply(struct seam_http *h, int status, const char *type,
                     const char *body, size_t n);
/* Takes v over; NULL becomes 500. */
void seam_http_json(struct seam_http *h, int status, json_t *v);
/* The same, numbers as *s has them; it may be NULL. */
void seam_http_spelled(struct seam_http *h, int status, json_t *v,
                       const struct seam_spelling *s);
void seam_http_fail(struct seam_http *h, const struct seam_api_error *e);

/* Write bytes within write_timeout_ms; false: the client is gone or does not
 * read, and h->broken is set. */
bool seam_http_write(struct seam_http *h, const char *p, size_t n);
/* The client left, or the server stops. */
bool seam_http_gone(struct seam_http *h);

#endif
