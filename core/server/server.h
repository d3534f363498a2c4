/* The HTTP server (docs/api.md): CivetWeb in front of one engine. */
#ifndef SEAM_SERVER_SERVER_H
#define SEAM_SERVER_SERVER_H

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/config/config.h"
#include "core/engine/engine.h"

struct seam_server;

/* Bind server.listen before anything else is done with it (ENOTSUP: a
 * non-loopback address without a key and without insecure; EDATA: not an
 * address; EDEVICE: in use or not allowed, with the system's reason), so that a
 * second server on the port fails before it reads weights.  [control] */
int seam_server_bind(struct seam_server **s, const struct seam_config *c,
                     const struct seam_log *log, struct seam_error *err);
/* "http://127.0.0.1:41234", with the port that port 0 became. */
const char *seam_server_url(const struct seam_server *s);
/* Answer requests from e, which may still be loading.  [control] */
int seam_server_start(struct seam_server *s, struct seam_engine *e,
                      struct seam_error *err);
/* Not ready from now on; new work gets 503.  [any] */
void seam_server_drain(struct seam_server *s);
/* Requests being answered, streams included.  [any] */
uint32_t seam_server_active(const struct seam_server *s);
/* Connections whose request is not answered yet, those above and what is still
 * on its way.  [any] */
uint32_t seam_server_arriving(const struct seam_server *s);
/* Close every connection and free all.  NULL is fine.  [control] */
void seam_server_stop(struct seam_server *s);

#endif
