/* The server's own state, shared by its modules. */
#ifndef SEAM_SERVER_STATE_H
#define SEAM_SERVER_STATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "core/server/auth.h"
#include "core/server/conn.h"
#include "core/server/server.h"
#include "core/server/stack.h"

struct mg_context;

/* Answers counted for /metrics, by route and status. */
#define SEAM_N_ROUTES 32
#define SEAM_N_CODES  24

/* What a worker thread of CivetWeb's keeps. */
struct seam_worker {
    const char *base; /* where its buffer for requests starts                 */
    struct seam_stack *stack; /* on which it runs them */
};

/* Enough for the deepest request that is accepted, several times over, and for
 * a build with sanitizers. */
#define SEAM_REQUEST_STACK (2u << 20)

struct seam_server {
    const struct seam_config *config;
    const struct seam_log *log;
    struct seam_engine *_Atomic engine; /* NULL: not started                  */
    _Atomic bool draining;
    struct mg_context *mg;
    struct seam_conns *conns;
    struct seam_auth auth;
    char url[96];
    int listen_fd;
    _Atomic bool primed; /* every worker's base is known                      */
    bool loopback;       /* bound to a loopback address                       */
    bool metrics_public;
    time_t started; /* wall clock                                        */
    _Atomic uint64_t answers[SEAM_N_ROUTES][SEAM_N_CODES];
    _Atomic uint64_t cancelled; /* requests whose client left               */
};

/* The engine when it serves, or NULL. */
static inline struct seam_engine *seam_server_engine(struct seam_server *s)
{
    return atomic_load(&s->engine);
}

/* What keeps the server from taking work: NULL, "loading", "draining",
 * "stalled" or "failed". */
const char *seam_server_unready(struct seam_server *s);

/* The name under which the model is served; the folder's unless configured. */
const char *seam_server_model(const struct seam_server *s);
/* True when a request may name the model so. */
bool seam_server_knows_model(const struct seam_server *s, const char *name);

#endif
