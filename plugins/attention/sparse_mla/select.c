/* The value at the cut is found by counting, from the highest bits down, how
 * many scores share a prefix: three passes over the scores whatever their
 * order, and nothing is moved. */
#include "select.h"

#include <string.h>

/* Larger floats to larger integers; the zeros are one. */
static uint32_t key_of(float f)
{
    uint32_t u;

    f += 0.0f;
    memcpy(&u, &f, sizeof u);
    return u ^ ((uint32_t) - (int32_t)(u >> 31) | 0x80000000u);
}

/* Of the keys that agree with *prefix above bit `shift + bits`, find the bin of
 * the next `bits` bits that holds the *keep-th largest; *keep becomes its rank
 * within that bin. */
static void narrow(const float *score, uint32_t n, uint32_t shift,
                   uint32_t bits, uint32_t *prefix, uint32_t *keep,
                   uint32_t *bins)
{
    uint32_t last = (1u << bits) - 1, b = last;
    uint32_t top = shift + bits;

    memset(bins, 0, (last + 1) * sizeof *bins);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t k = key_of(score[i]);

        if (top == 32 || k >> top == *prefix >> top)
            bins[k >> shift & last]++;
    }
    for (; b > 0 && bins[b] < *keep; b--)
        *keep -= bins[b];
    *prefix |= b << shift;
}

bool select_largest(const float *score, uint32_t n, uint32_t keep,
                    uint32_t *bins, uint32_t *out)
{
    uint32_t cut = 0, ties = keep, k = 0;
    float nan = 0;

    for (uint32_t i = 0; i < n; i++)
        nan += score[i] != score[i];
    if (nan > 0)
        return false;
    if (!keep)
        return true;
    narrow(score, n, 21, 11, &cut, &ties, bins);
    narrow(score, n, 10, 11, &cut, &ties, bins);
    narrow(score, n, 0, 10, &cut, &ties, bins);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t key = key_of(score[i]);

        if (key < cut || (key == cut && !ties))
            continue;
        ties -= key == cut;
        out[k++] = i;
    }
    return true;
}
