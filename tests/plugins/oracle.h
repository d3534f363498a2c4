/* The blocks of docs/spec/glm5_next.md in double precision, written for the
 * tests alone: whole sequences at once, no cache, no rounding, nothing shared
 * with any plugin. */
#ifndef SEAM_TESTS_PLUGINS_ORACLE_H
#define SEAM_TESTS_PLUGINS_ORACLE_H

#include "core/check/world.h"
#include "testhost.h"

/* y[n][d] of a sequence x[n][d] from its first token on. */
void oracle_kda(const struct world *w, const struct th *h, uint32_t layer,
                const float *x, uint32_t n, double *y);
void oracle_mla(const struct world *w, const struct th *h, uint32_t layer,
                const float *x, uint32_t n, double *y);
void oracle_moe(const struct world *w, const struct th *h, uint32_t layer,
                const float *x, uint32_t n, double *y);

/* The same for linear attention with a start state: S[heads][dim][dim], read
 * and left as it is after x; the window before x is zero. */
void oracle_kda_from(const struct world *w, const struct th *h, uint32_t layer,
                     const float *x, uint32_t n, double *S, double *y);
/* Selected positions of token t, ascending, sel[n] with n returned. */
uint32_t oracle_mla_select(const struct world *w, const struct th *h,
                           uint32_t layer, const float *x, uint32_t t,
                           int32_t *sel);

#endif
