/* Repeated measurements: median and spread. */
#ifndef SEAM_BENCH_SAMPLE_H
#define SEAM_BENCH_SAMPLE_H

#include <stdint.h>

#define SEAM_BENCH_MAX_RUNS 1000

struct seam_samples {
    double v[SEAM_BENCH_MAX_RUNS];
    uint32_t n;
};

/* Values above the room are dropped. */
void seam_samples_add(struct seam_samples *s, double v);
/* q in [0, 1], between the two nearest values; 0 of nothing. */
double seam_samples_at(const struct seam_samples *s, double q);
/* (largest - smallest) / median; 0 of nothing. */
double seam_samples_spread(const struct seam_samples *s);

#endif
