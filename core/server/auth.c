#include "core/server/auth.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

int seam_auth_init(struct seam_auth *a, const struct seam_config *c,
                   struct seam_error *err)
{
    size_t n = c->server.api_keys.n;

    *a = (struct seam_auth){ 0 };
    if (n) {
        a->key = calloc(n, sizeof *a->key);
        if (!a->key)
            return seam_fail(err, SEAM_ENOMEM, "server: no memory");
    }
    a->n_keys = n;
    for (size_t i = 0; i < n; i++) {
        const char *k = c->server.api_keys.v[i];

        SHA256((const unsigned char *)k, strlen(k), a->key[i]);
    }
    a->has_admin = c->server.admin_key && *c->server.admin_key;
    if (a->has_admin)
        SHA256((const unsigned char *)c->server.admin_key,
               strlen(c->server.admin_key), a->admin);
    return 0;
}

void seam_auth_release(struct seam_auth *a)
{
    free(a->key);
    *a = (struct seam_auth){ 0 };
}

/* The key that was presented, or NULL. */
static const char *auth_presented(const char *authorization,
                                  const char *x_api_key)
{
    if (authorization && !strncasecmp(authorization, "Bearer ", 7) &&
        authorization[7])
        return authorization + 7;
    return x_api_key && *x_api_key ? x_api_key : NULL;
}

size_t seam_auth_key(const struct seam_auth *a, const char *authorization,
                     const char *x_api_key)
{
    const char *k = auth_presented(authorization, x_api_key);
    unsigned char digest[32];
    size_t found = 0;

    if (!k)
        return 0;
    SHA256((const unsigned char *)k, strlen(k), digest);
    for (size_t i = a->n_keys; i; i--)
        if (!CRYPTO_memcmp(digest, a->key[i - 1], sizeof digest))
            found = i;
    return found;
}

bool seam_auth_admin(const struct seam_auth *a, const char *authorization,
                     const char *x_api_key)
{
    const char *k = auth_presented(authorization, x_api_key);
    unsigned char digest[32];

    if (!k || !a->has_admin)
        return false;
    SHA256((const unsigned char *)k, strlen(k), digest);
    return !CRYPTO_memcmp(digest, a->admin, sizeof digest);
}
