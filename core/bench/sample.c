#include "core/bench/sample.h"

#include <stdlib.h>
#include <string.h>

void seam_samples_add(struct seam_samples *s, double v)
{
    if (s->n < SEAM_BENCH_MAX_RUNS)
        s->v[s->n++] = v;
}

static int sample_order(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double seam_samples_at(const struct seam_samples *s, double q)
{
    double sorted[SEAM_BENCH_MAX_RUNS], at;
    uint32_t i;

    if (!s->n)
        return 0;
    memcpy(sorted, s->v, s->n * sizeof *sorted);
    qsort(sorted, s->n, sizeof *sorted, sample_order);
    at = q * (s->n - 1);
    i = (uint32_t)at;
    if (i + 1 >= s->n)
        return sorted[s->n - 1];
    return sorted[i] + (at - i) * (sorted[i + 1] - sorted[i]);
}

double seam_samples_spread(const struct seam_samples *s)
{
    double median = seam_samples_at(s, 0.5);

    return median > 0 ? (seam_samples_at(s, 1) - seam_samples_at(s, 0)) / median
                      : 0;
}
