/* Counter-based random numbers (Philox 4x32, 10 rounds): a draw is a function
 * of (seed, counter) alone, so that it depends neither on the batch nor on what
 * was drawn before, and two backends draw alike.
 *
 * What a draw is used for is part of the agreement between backends:
 *   u[0]  picks the token of a row: the first id, in ascending order, at which
 *         the running sum of the filtered probabilities exceeds u[0] times
 *         their total
 *   u[1]  verify with q: the draft x stands iff u[1] * q(x) < p(x); if it does
 *         not, u[0] of the same row picks from max(0, p - q)
 * verify without q (q_width 0) picks with u[0] from p in every row; the draft
 * stands iff it is the token picked.  So drafts that are certain never change
 * what sample would have chosen with the same seeds and counters. */
#ifndef SEAM_PLUGINS_RNG_H
#define SEAM_PLUGINS_RNG_H

#include <stdint.h>

struct seam_draw {
    double u[2]; /* independent, uniform in [0, 1), multiples of 2^-53 */
};

static inline void seam_philox(uint32_t x[4], uint32_t k0, uint32_t k1)
{
    for (int i = 0; i < 10; i++) {
        uint64_t p0 = (uint64_t)x[0] * 0xD2511F53u;
        uint64_t p1 = (uint64_t)x[2] * 0xCD9E8D57u;
        uint32_t y0 = (uint32_t)(p1 >> 32) ^ x[1] ^ k0;
        uint32_t y2 = (uint32_t)(p0 >> 32) ^ x[3] ^ k1;

        x[0] = y0;
        x[1] = (uint32_t)p1;
        x[2] = y2;
        x[3] = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

static inline struct seam_draw seam_draw(uint64_t seed, uint64_t counter)
{
    uint32_t x[4] = { (uint32_t)counter, (uint32_t)(counter >> 32), 0, 0 };
    struct seam_draw d;

    seam_philox(x, (uint32_t)seed, (uint32_t)(seed >> 32));
    for (int i = 0; i < 2; i++) {
        uint64_t w = (uint64_t)x[2 * i + 1] << 32 | x[2 * i];

        d.u[i] = (double)(w >> 11) * 0x1p-53;
    }
    return d;
}

#endif
