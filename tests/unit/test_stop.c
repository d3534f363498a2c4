#include <criterion/criterion.h>
#include <string.h>

#include "core/server/stop.h"

#define S(text)               \
    {                         \
        text, sizeof text - 1 \
    }

Test(stop, holds_only_what_could_become_a_stop)
{
    static const struct seam_str s[] = { S("Oslo Quito"), S("END") };
    struct seam_buf out = { 0 };
    struct seam_stop m;

    cr_assert_eq(seam_stop_init(&m, s, 2), 0);
    cr_expect_not(seam_stop_feed(&m, "Lima Os", 7, false, &out));
    cr_expect_str_eq(out.p, "Lima ");
    cr_expect_not(seam_stop_feed(&m, "lo Quebec E", 11, false, &out));
    cr_expect_str_eq(out.p, "Lima Oslo Quebec ");
    seam_stop_flush(&m, &out);
    cr_expect_str_eq(out.p, "Lima Oslo Quebec E");
    /* What was flushed is no beginning any more. */
    cr_expect_not(seam_stop_feed(&m, "ND", 2, false, &out));
    cr_expect_str_eq(out.p, "Lima Oslo Quebec END");
    seam_stop_release(&m);
    seam_buf_release(&out);
}

Test(stop, falls_back_inside_a_failed_match)
{
    static const struct seam_str s[] = { S("aabaac") };
    struct seam_buf out = { 0 };
    struct seam_stop m;

    cr_assert_eq(seam_stop_init(&m, s, 1), 0);
    for (const char *p = "aabaabaac!"; *p; p++)
        if (seam_stop_feed(&m, p, 1, false, &out))
            break;
    cr_expect_eq(m.hit, 0);
    cr_expect_str_eq(out.p, "aab");
    seam_stop_release(&m);
    seam_buf_release(&out);
}

Test(stop, takes_the_longest_of_those_that_end_together)
{
    static const struct seam_str s[] = { S("b"), S("aab"), S("ab") };
    struct seam_buf out = { 0 };
    struct seam_stop m;

    cr_assert_eq(seam_stop_init(&m, s, 3), 0);
    cr_expect(seam_stop_feed(&m, "xaab", 4, true, &out));
    cr_expect_eq(m.hit, 1);
    cr_expect_str_eq(out.p, "xaab");
    seam_stop_release(&m);
    seam_buf_release(&out);
}
