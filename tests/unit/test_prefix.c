#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "core/engine/prefix.h"

#define N_PAGES 4096

static int refs[N_PAGES];

static void unref(void *ctx, int32_t page)
{
    (void)ctx;
    refs[page]--;
}

/* A snapshot of `bytes` at pos that holds pages [from, from + n). */
static bool put(struct seam_prefix *p, const int32_t *tok, uint32_t pos,
                uint64_t bytes, int32_t from, uint32_t n)
{
    struct seam_snapshot s = {
        .pos = pos,
        .n_pages = n,
        .page = malloc((n + 1) * sizeof(int32_t)),
        .state = malloc(bytes),
        .state_bytes = bytes,
    };

    for (uint32_t i = 0; i < n; i++) {
        s.page[i] = from + (int32_t)i;
        refs[from + (int32_t)i]++;
    }
    return seam_prefix_insert(p, NULL, tok, &s);
}

static uint32_t found(struct seam_prefix *p, const int32_t *tok, uint32_t n)
{
    const struct seam_snapshot *s = seam_prefix_find(p, NULL, tok, n);

    return s ? s->pos : 0;
}

static const int32_t TOK[64] = {
    5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2,
    9, 9, 9, 9, 9, 9, 9, 9, 8, 8, 8, 8, 8, 8, 8, 8
};

Test(prefix, resumes_only_at_snapshots)
{
    struct seam_prefix *p = seam_prefix_new(1000, unref, NULL);

    cr_expect(put(p, TOK, 16, 10, 0, 1));
    cr_expect(put(p, TOK, 32, 10, 0, 2));
    cr_expect_eq(found(p, TOK, 15), 0);
    cr_expect_eq(found(p, TOK, 31), 16);
    cr_expect_eq(found(p, TOK, 32), 32);
    cr_expect_eq(found(p, TOK, 64), 32);
    cr_expect(seam_prefix_has(p, NULL, TOK, 16));
    cr_expect_not(seam_prefix_has(p, NULL, TOK, 17));
    seam_prefix_free(p);
    cr_expect_eq(refs[0], 0);
    cr_expect_eq(refs[1], 0);
}

Test(prefix, branches_share_what_they_have_in_common)
{
    struct seam_prefix *p = seam_prefix_new(1000, unref, NULL);
    int32_t other[64];

    memcpy(other, TOK, sizeof other);
    other[20] = 1;
    cr_expect(put(p, TOK, 32, 10, 0, 2));
    cr_expect(put(p, other, 40, 10, 2, 2));
    cr_expect_eq(found(p, other, 40), 40);
    cr_expect_eq(found(p, other, 39), 0);
    cr_expect(put(p, TOK, 20, 10, 4, 1)); /* at the fork itself */
    cr_expect_eq(found(p, other, 39), 20);
    cr_expect(put(p, TOK, 8, 10, 5, 1)); /* inside the common run */
    cr_expect_eq(found(p, TOK, 19), 8);
    cr_expect_not(put(p, TOK, 8, 10, 5, 1), "kept twice");
    seam_prefix_free(p);
    for (int i = 0; i < 8; i++)
        cr_expect_eq(refs[i], 0, "page %d: %d references left", i, refs[i]);
}

Test(prefix, budget_is_kept_and_the_least_worth_goes)
{
    struct seam_prefix *p = seam_prefix_new(30, unref, NULL);
    struct seam_prefix_stats s;
    int32_t b[64] = { 100 }, c[64] = { 200 }, d[64] = { 300 };

    cr_expect(put(p, TOK, 40, 10, 0, 1));
    cr_expect(put(p, b, 4, 10, 1, 1)); /* saves least */
    cr_expect(put(p, c, 30, 10, 2, 1));
    cr_expect(put(p, d, 30, 10, 3, 1));
    seam_prefix_stats(p, &s);
    cr_expect_eq(s.bytes, 30);
    cr_expect_eq(s.n_evicted, 1);
    cr_expect_eq(found(p, b, 64), 0);
    cr_expect_eq(found(p, TOK, 64), 40);
    cr_expect_eq(refs[1], 0);
    cr_expect_not(put(p, b, 4, 31, 1, 1), "larger than the budget");
    cr_expect_eq(found(p, TOK, 64), 40);
    while (seam_prefix_evict(p))
        ;
    seam_prefix_stats(p, &s);
    cr_expect_eq(s.bytes, 0);
    cr_expect_eq(s.n_snapshots, 0);
    seam_prefix_free(p);
}

/* Against a plain list of what was put and not evicted since. */
Test(prefix, random_trees_answer_like_a_list)
{
    struct seam_prefix *p = seam_prefix_new(400, unref, NULL);
    static int32_t tok[300][24];
    static uint32_t pos[300];
    unsigned seed = 12345;

    for (int i = 0; i < 300; i++) {
        pos[i] = 1 + (seed = seed * 1103515245u + 12345u) / 65536u % 24;
        for (int j = 0; j < 24; j++)
            tok[i][j] = (seed = seed * 1103515245u + 12345u) / 65536u % 2;
        put(p, tok[i], pos[i], 1 + i % 20, i % N_PAGES, 1);
        for (int k = 0; k <= i; k++) {
            uint32_t best = 0;

            for (int m = 0; m <= i; m++)
                if (seam_prefix_has(p, NULL, tok[m], pos[m]) && pos[m] > best &&
                    !memcmp(tok[m], tok[k], pos[m] * sizeof(int32_t)))
                    best = pos[m];
            cr_assert_eq(found(p, tok[k], 24), best, "put %d, query %d", i, k);
        }
    }
    seam_prefix_free(p);
    for (int i = 0; i < N_PAGES; i++)
        cr_assert_eq(refs[i], 0);
}
