/* An HTTP client on a plain socket, which can also say what no client
 * should. */
#ifndef TESTS_HTTP_CLIENT_H
#define TESTS_HTTP_CLIENT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "core/base/buf.h"

/* How long any wait may take before the test fails. */
#define CLIENT_PATIENCE_MS 400000

struct client {
    int fd;
    struct seam_buf in; /* received and not yet used                          */
    bool eof;
};

struct reply {
    int status;
    struct seam_buf head; /* status line and headers                          */
    struct seam_buf body; /* by Content-Length, or to the end                 */
    json_t *json;         /* the body, when it is JSON                        */
};

/* url is what seam_server_url says. */
void client_open(struct client *c, const char *url);
void client_close(struct client *c);
void client_send(struct client *c, const char *p, size_t n);
void client_puts(struct client *c, const char *s);
/* Receive more; false at the end of the stream. */
bool client_more(struct client *c);
/* Read one answer.  False: the connection ended before one began. */
bool client_reply(struct client *c, struct reply *r);
/* True when the peer closes without sending more. */
bool client_closed(struct client *c);
void reply_release(struct reply *r);
/* Value of a header of the reply, copied to out, or NULL. */
const char *reply_header(const struct reply *r, const char *name, char *out,
                         size_t cap);
/* reply.json, by keys: "choices", "0", "message" ... NULL-terminated. */
json_t *reply_at(const struct reply *r, ...);

/* A request with a JSON body on a connection of its own. */
void client_post(const char *url, const char *path, const char *body,
                 struct reply *r);
void client_get(const char *url, const char *path, struct reply *r);

/* Only send the head and body of a POST. */
void client_put_post(struct client *c, const char *path, const char *body);

/* Read the head of an event stream; fails the test unless it is 200. */
void client_stream(struct client *c, struct reply *r);
/* The next event's data, as a NUL-terminated line in *data (to be released);
 * comments are counted, not returned.  False at the end. */
bool client_event(struct client *c, struct seam_buf *data, unsigned *comments);

#endif
