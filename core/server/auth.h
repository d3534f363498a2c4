/* API keys, kept and compared as digests of one size, so that neither length
 * nor content of a key shows in the time a comparison takes. */
#ifndef SEAM_SERVER_AUTH_H
#define SEAM_SERVER_AUTH_H

#include <stdbool.h>
#include <stddef.h>

#include "core/config/config.h"

struct seam_auth {
    unsigned char (*key)[32]; /* [n_keys] */
    size_t n_keys;
    unsigned char admin[32];
    bool has_admin;
};

int seam_auth_init(struct seam_auth *a, const struct seam_config *c,
                   struct seam_error *err);
void seam_auth_release(struct seam_auth *a);

/* Which key the headers' values (either may be NULL) present, as "Bearer K" or
 * K: 1 for the first of server.api_keys; 0: none of them. */
size_t seam_auth_key(const struct seam_auth *a, const char *authorization,
                     const char *x_api_key);
bool seam_auth_admin(const struct seam_auth *a, const char *authorization,
                     const char *x_api_key);

#endif
