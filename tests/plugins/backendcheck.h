/* The checks of backends, with the generator that those of this tree share. */
#ifndef SEAM_TESTS_PLUGINS_BACKENDCHECK_H
#define SEAM_TESTS_PLUGINS_BACKENDCHECK_H

#include "core/check/backend.h"
#include "plugins/common/rng.h"
#include "testhost.h"

static inline void backend_draw(uint64_t seed, uint64_t counter, double u[2])
{
    struct seam_draw d = seam_draw(seed, counter);

    u[0] = d.u[0];
    u[1] = d.u[1];
}

#endif
