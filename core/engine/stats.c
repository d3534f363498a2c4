/* The bounds are those of vLLM, so that dashboards made for it work here
 * (docs/spec/http_api.md, section 9). */
#include "core/engine/stats.h"

#include <string.h>

#define N_OF(a) ((uint32_t)(sizeof(a) / sizeof(a)[0]))

static const double bound_ttft[] = { .001, .005, .01, .02, .04, .06, .08, .1,
                                     .25,  .5,   .75, 1,   2.5, 5,   7.5, 10,
                                     20,   40,   80,  160, 640, 2560 };
static const double bound_itl[] = { .01, .025, .05, .075, .1, .15, .2,
                                    .3,  .4,   .5,  .75,  1,  2.5, 5,
                                    7.5, 10,   20,  40,   80 };
static const double bound_request[] = { .3, .5,  .8,  1,   1.5, 2,    2.5,
                                        5,  10,  15,  20,  30,  40,   50,
                                        60, 120, 240, 480, 960, 1920, 7680 };
/* Beyond any context the family has. */
static const double bound_tokens[] = { 1,    2,    5,     10,    20,
                                       50,   100,  200,   500,   1000,
                                       2000, 5000, 10000, 20000, 50000,
                                       1e5,  2e5,  5e5,   1e6 };
static const double bound_step[] = { 1,   8,    16,   32,   64,   128,  256,
                                     512, 1024, 2048, 4096, 8192, 16384 };

static const double bound_n[] = { 1, 2, 5, 10, 20 };

_Static_assert(N_OF(bound_ttft) <= SEAM_HIST_MAX, "SEAM_HIST_MAX");
_Static_assert(N_OF(bound_itl) <= SEAM_HIST_MAX, "SEAM_HIST_MAX");
_Static_assert(N_OF(bound_request) <= SEAM_HIST_MAX, "SEAM_HIST_MAX");
_Static_assert(N_OF(bound_tokens) <= SEAM_HIST_MAX, "SEAM_HIST_MAX");
_Static_assert(N_OF(bound_step) <= SEAM_HIST_MAX, "SEAM_HIST_MAX");

static void stats_hist(struct seam_hist *h, const double *bound, uint32_t n)
{
    h->bound = bound;
    h->n_bounds = n;
}

void seam_stats_init(struct seam_stats *s)
{
    memset(s, 0, sizeof *s);
    stats_hist(&s->ttft, bound_ttft, N_OF(bound_ttft));
    stats_hist(&s->itl, bound_itl, N_OF(bound_itl));
    stats_hist(&s->e2e, bound_request, N_OF(bound_request));
    stats_hist(&s->queue, bound_request, N_OF(bound_request));
    stats_hist(&s->prefill, bound_request, N_OF(bound_request));
    stats_hist(&s->decode, bound_request, N_OF(bound_request));
    stats_hist(&s->inference, bound_request, N_OF(bound_request));
    stats_hist(&s->per_token, bound_itl, N_OF(bound_itl));
    stats_hist(&s->gen_most, bound_tokens, N_OF(bound_tokens));
    stats_hist(&s->asked_tokens, bound_tokens, N_OF(bound_tokens));
    stats_hist(&s->asked_n, bound_n, N_OF(bound_n));
    stats_hist(&s->prompt_len, bound_tokens, N_OF(bound_tokens));
    stats_hist(&s->gen_len, bound_tokens, N_OF(bound_tokens));
    stats_hist(&s->step_tokens, bound_step, N_OF(bound_step));
}

void seam_hist_observe(struct seam_hist *h, double v)
{
    uint32_t i = 0;

    /* Clocks do not run backwards; if they do, or the value is not a number, it
     * counts as nothing rather than as a sum beyond all bounds. */
    if (!(v > 0))
        v = 0;
    if (v > 1e12)
        v = 1e12;
    while (i < h->n_bounds && v > h->bound[i])
        i++;
    atomic_fetch_add_explicit(&h->count[i], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&h->sum_micro, (uint64_t)(v * 1e6 + .5),
                              memory_order_relaxed);
    atomic_fetch_add_explicit(&h->total, 1, memory_order_relaxed);
}
