/* A server in this process in front of the nano model. */
#ifndef SEAM_TESTS_CALLS_NANO_H
#define SEAM_TESTS_CALLS_NANO_H

#include "core/server/server.h"

struct nano {
    struct seam_config config;
    struct seam_log log;
    struct seam_engine *engine;
    struct seam_server *server;
    const char *url;
};

void nano_open(struct nano *s, const char *parser);
void nano_close(struct nano *s);

#endif
