/* Connections as CivetWeb does not show them: their sockets, how long each has
 * kept a worker waiting, and who is to go when workers run short.
 *
 * CivetWeb gives one worker thread to a connection for as long as it is open,
 * and its API has no call for the socket.  Once the head of a request has come
 * the socket is found by its address pair, which lets us notice a peer that
 * left, and bound every wait by a deadline of our own (CivetWeb's are multiples
 * of 2 s and start anew with each byte).  When nearly all workers are held, the
 * connection that has been silent longest is given up for the one that came. */
#ifndef SEAM_SERVER_CONN_H
#define SEAM_SERVER_CONN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/error.h"

struct mg_connection;
struct seam_conns;

enum seam_conn_phase {
    SEAM_CONN_IDLE = 1,   /* between requests, or a head is arriving          */
    SEAM_CONN_LINGER = 2, /* answered; what it still sends is thrown away     */
    SEAM_CONN_BODY = 3,   /* its body is arriving                             */
    SEAM_CONN_BUSY = 4,   /* being answered: never given up                   */
    SEAM_CONN_WRITE = 5   /* the same, waiting for the client to read         */
};

struct seam_conn {
    struct seam_conn *prev, *next; /* under the list's lock, as the next 5    */
    enum seam_conn_phase phase;
    uint64_t since_ns;    /* when the phase began                             */
    uint64_t deadline_ns; /* 0: none                                          */
    bool expired;         /* the deadline passed; the socket was shut down    */
    int fd;               /* -1: not known (yet); owned by CivetWeb           */
};

struct seam_conns_opts {
    uint32_t n_workers; /* CivetWeb's num_threads                         */
    uint32_t n_reserve; /* workers to keep free                           */
    uint32_t max_busy;  /* requests answered at once, those of health
                               checks apart                                   */
    uint16_t port;      /* ours                                           */
};

int seam_conns_new(struct seam_conns **cs, const struct seam_conns_opts *o,
                   struct seam_error *err);
/* All connections must be closed. */
void seam_conns_free(struct seam_conns *cs);
/* Shut every socket down, now and from now on.  [any] */
void seam_conns_stop(struct seam_conns *cs);
bool seam_conns_stopping(const struct seam_conns *cs);

/* A worker took up a connection.  NULL: no memory. */
struct seam_conn *seam_conn_open(struct seam_conns *cs);
/* Find its socket, once mg_get_request_info works.  False: it is not certain
 * which one it is. */
bool seam_conn_identify(struct seam_conns *cs, struct seam_conn *c,
                        const struct mg_connection *mg);
/* To be called before CivetWeb closes the socket. */
void seam_conn_close(struct seam_conns *cs, struct seam_conn *c);

/* Enter a phase in which the peer has timeout_ms (0: no limit) before its
 * socket is shut down: for reading (BODY) or both ways. */
void seam_conn_enter(struct seam_conns *cs, struct seam_conn *c,
                     enum seam_conn_phase phase, uint64_t timeout_ms);
bool seam_conn_expired(struct seam_conns *cs, const struct seam_conn *c);

/* Count a request as being answered; false: max_busy are already, and it is not
 * urgent.  Every true is followed by seam_conns_leave. */
bool seam_conns_admit(struct seam_conns *cs, bool urgent);
void seam_conns_leave(struct seam_conns *cs);
uint32_t seam_conns_busy(const struct seam_conns *cs);
uint32_t seam_conns_count(struct seam_conns *cs);
/* Connections with a request that is not answered yet, all of it here or not:
 * its body is awaited, or bytes wait for a worker. */
uint32_t seam_conns_arriving(struct seam_conns *cs);

/* Nothing more is read from it, since it was silent while workers were short:
 * a request that had come all the same is answered, as its last. */
bool seam_conn_given_up(const struct seam_conn *c);

/* The peer closed its side or the connection broke.  Bytes that wait are a
 * pipelined request, not a goodbye. */
bool seam_conn_gone(const struct seam_conn *c);

/* Announce the end of the answer and throw away what still comes, so that
 * closing does not reset the connection before the client has read it. */
void seam_conn_linger(struct seam_conns *cs, struct seam_conn *c);
/* End it at once; what was written may be lost. */
void seam_conn_abort(const struct seam_conn *c);

/* The listening socket on 127.0.0.1:port that is not `except`, or -1. */
int seam_conn_find_listener(uint16_t port, int except);

#endif
