#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>

#include "core/engine/stats.h"

static uint64_t observed(const struct seam_hist *h)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i <= SEAM_HIST_MAX; i++)
        n += h->count[i];
    return n;
}

Test(stats, every_histogram_starts_empty_with_ascending_bounds)
{
    struct seam_stats s;
    const struct seam_hist *h[] = { &s.ttft,    &s.itl,        &s.e2e,
                                    &s.queue,   &s.prefill,    &s.decode,
                                    &s.gen_len, &s.prompt_len, &s.step_tokens };

    memset(&s, 0xa5, sizeof s);
    seam_stats_init(&s);
    for (size_t k = 0; k < sizeof h / sizeof h[0]; k++) {
        cr_assert(h[k]->n_bounds > 0 && h[k]->n_bounds <= SEAM_HIST_MAX);
        for (uint32_t i = 1; i < h[k]->n_bounds; i++)
            cr_expect_lt(h[k]->bound[i - 1], h[k]->bound[i], "histogram %zu",
                         k);
        cr_expect_eq(observed(h[k]), 0);
        cr_expect_eq(h[k]->total, 0);
    }
    cr_expect_eq(s.steps, 0);
    cr_expect_eq(s.pages_total, 0);
}

Test(stats, bounds_are_those_that_dashboards_expect)
{
    struct seam_stats s;

    seam_stats_init(&s);
    cr_expect_eq(s.ttft.n_bounds, 22);
    cr_expect_eq(s.ttft.bound[0], .001);
    cr_expect_eq(s.ttft.bound[21], 2560);
    cr_expect_eq(s.itl.n_bounds, 19);
    cr_expect_eq(s.itl.bound[18], 80);
    cr_expect_eq(s.e2e.n_bounds, 21);
    cr_expect_eq(s.e2e.bound[20], 7680);
    cr_expect_eq(s.step_tokens.n_bounds, 13);
    cr_expect_eq(s.step_tokens.bound[12], 16384);
}

Test(stats, a_bound_belongs_to_its_bucket)
{
    struct seam_stats s;

    seam_stats_init(&s);
    seam_hist_observe(&s.itl, .01);
    seam_hist_observe(&s.itl, .0100001);
    seam_hist_observe(&s.itl, 80);
    seam_hist_observe(&s.itl, 81);
    cr_expect_eq(s.itl.count[0], 1);
    cr_expect_eq(s.itl.count[1], 1);
    cr_expect_eq(s.itl.count[18], 1);
    cr_expect_eq(s.itl.count[19], 1);
    cr_expect_eq(s.itl.total, 4);
    cr_expect_eq(s.itl.sum_micro, 161020000, "%lu", s.itl.sum_micro);
}

Test(stats, nonsense_does_not_spoil_the_sum)
{
    struct seam_stats s;

    seam_stats_init(&s);
    seam_hist_observe(&s.e2e, -1);
    seam_hist_observe(&s.e2e, NAN);
    cr_expect_eq(s.e2e.count[0], 2);
    cr_expect_eq(s.e2e.sum_micro, 0);
    seam_hist_observe(&s.e2e, INFINITY);
    cr_expect_eq(s.e2e.count[21], 1);
    cr_expect_eq(s.e2e.sum_micro, 1000000000000000000u);
}

#define ROUNDS 20000

static void *observe_many(void *arg)
{
    struct seam_stats *s = arg;

    for (int i = 0; i < ROUNDS; i++) {
        seam_hist_observe(&s->step_tokens, i % 40);
        atomic_fetch_add_explicit(&s->steps, 1, memory_order_relaxed);
    }
    return NULL;
}

Test(stats, threads_lose_no_observation)
{
    struct seam_stats s;
    pthread_t t[3];

    seam_stats_init(&s);
    for (int i = 0; i < 3; i++)
        cr_assert_eq(pthread_create(&t[i], NULL, observe_many, &s), 0);
    for (int i = 0; i < 3; i++)
        pthread_join(t[i], NULL);
    cr_expect_eq(observed(&s.step_tokens), 3 * ROUNDS);
    cr_expect_eq(s.step_tokens.total, 3 * ROUNDS);
    cr_expect_eq(s.steps, 3 * ROUNDS);
    cr_expect_eq(s.step_tokens.sum_micro, 3ull * ROUNDS / 40 * 780 * 1000000);
}
