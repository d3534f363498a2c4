/* Dealing out work: every unit is done once, in parts that keep within a pile
 * and what may be taken at once, whoever works and in whatever order. */
#include <criterion/criterion.h>
#include <string.h>

#include "kern.h"

enum { PILES = 5, UNITS = 400, CALLS = 4000 };

static struct {
    struct kern_pile pile[PILES];
    uint32_t n_workers, done[PILES][UNITS];
    uint32_t n_calls;
    struct kern_part part[CALLS], next[CALLS];
    bool backwards, alone;
} g;

/* Tasks one after the other, from either end, by one worker or by all. */
static void run_tasks(void *ctx, uint32_t n, seam_task *fn, void *arg)
{
    (void)ctx;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t t = g.backwards ? n - 1 - i : i;

        fn(arg, t, g.alone ? 0 : t);
    }
}

static struct kern_pile pile(const void *arg, uint32_t p)
{
    (void)arg;
    cr_assert_lt(p, PILES);
    return g.pile[p];
}

static void part(void *arg, const struct kern_part *p,
                 const struct kern_part *next, uint32_t worker)
{
    (void)arg;
    (void)worker;
    cr_assert_lt(g.n_calls, CALLS);
    cr_assert(p->n > 0 && p->n <= g.pile[p->pile].most);
    cr_assert_leq(p->i + p->n, g.pile[p->pile].n);
    cr_assert_lt(next->i, g.pile[next->pile].n);
    for (uint32_t i = p->i; i < p->i + p->n; i++)
        g.done[p->pile][i]++;
    g.part[g.n_calls] = *p;
    g.next[g.n_calls++] = *next;
}

static void deal(uint32_t n_workers)
{
    struct seam_host host = { .n_workers = n_workers,
                              .parallel_for = run_tasks };

    g.n_calls = 0;
    memset(g.done, 0, sizeof g.done);
    kern_deal(&host, &(struct kern_deal){ PILES, pile, part, NULL });
    for (uint32_t p = 0; p < PILES; p++)
        for (uint32_t i = 0; i < UNITS; i++)
            cr_assert_eq(g.done[p][i], i < g.pile[p].n);
}

Test(fast_deal, every_unit_is_done_once)
{
    static const struct kern_pile like[][PILES] = {
        { { 24, 16, 3 }, { 0, 1, 1 }, { 48, 16, 3 }, { 1, 4, 9 }, { 7, 2, 1 } },
        { { 1, 1, 1 } },
        { { 0, 1, 1 } },
        { { 400, 400, UINT64_MAX / 500 / 80 } },
        { { 0, 1, 1 }, { 3, 8, 1000 }, { 400, 8, 1 }, { 2, 2, 50 } },
    };
    static const uint32_t workers[] = { 0, 1, 2, 3, 16, 64, 80 };

    for (size_t l = 0; l < sizeof like / sizeof *like; l++)
        for (size_t w = 0; w < sizeof workers / sizeof *workers; w++)
            for (uint32_t order = 0; order < 4; order++) {
                memcpy(g.pile, like[l], sizeof g.pile);
                g.backwards = order & 1;
                g.alone = order & 2;
                deal(workers[w]);
            }
}

Test(fast_deal, a_worker_takes_fewer_and_fewer_then_helps_from_the_far_end)
{
    const struct kern_part *p = g.part;
    uint32_t at = 0, most = 8;

    memcpy(
        g.pile,
        (struct kern_pile[PILES]){ { 100, 8, 7 }, { 50, 8, 2 }, { 80, 8, 1 } },
        sizeof g.pile);
    deal(4);
    /* One after the other, so that the first does everything.  A quarter of the
     * cost is 220, next to 31 units of the first pile. */
    for (; at < 31; at += p++->n) {
        cr_assert(!p->pile && p->i == at, "part of [%u, %u)", p->i, p->n);
        cr_expect(p->n <= most && p->n >= 1);
        most = p->n;
        if (at + p->n < 31)
            cr_expect_eq(g.next[p - g.part].i, at + p->n);
    }
    cr_expect_eq(at, 31);
    cr_expect_eq(most, 1);
    /* The second share ends after 63. */
    cr_expect_eq(p->i, 62);
    for (; p < g.part + g.n_calls; p++)
        cr_expect_eq(p->n, 1);
}
