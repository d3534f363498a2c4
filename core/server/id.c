#include "core/server/id.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "core/base/clock.h"

static void id_bytes(unsigned char *p, size_t n)
{
    /* At most 256 bytes are never cut short once the pool is ready. */
    if (getrandom(p, n, 0) == (ssize_t)n)
        return;
    for (size_t i = 0; i < n; i++) /* no pool: still distinct */
        p[i] = (unsigned char)(seam_now_ns() * 0x9e3779b97f4a7c15u >> 56);
}

void seam_id_make(char out[SEAM_ID_MAX], const char *prefix)
{
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyz"
                                 "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    unsigned char r[24];
    int n = snprintf(out, 17, "%s", prefix);

    if (n > 16)
        n = 16;
    id_bytes(r, sizeof r);
    for (size_t i = 0; i < sizeof r; i++)
        out[(size_t)n + i] = digits[r[i] % 62];
    out[(size_t)n + sizeof r] = 0;
}

uint64_t seam_id_random(void)
{
    uint64_t v;

    id_bytes((unsigned char *)&v, sizeof v);
    return v;
}
