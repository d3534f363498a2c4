/* From a request that CivetWeb has read the head of to its handler. */
#ifndef SEAM_SERVER_DISPATCH_H
#define SEAM_SERVER_DISPATCH_H

struct mg_connection;

/* CivetWeb's callbacks begin_request and http_error. */
int seam_dispatch(struct mg_connection *mg);
int seam_dispatch_error(struct mg_connection *mg, int status, const char *text);

#endif
