/* Plugins that hang on their way in, or when they have taken over: the other
 * one serves meanwhile, and who waits is told what hangs. */
#include <criterion/criterion.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/engine/swap.h"
#include "tests/faults/blocks.h"

/* The plugin hangs until it is told, and says when it begins to. */
struct ends {
    int tell[2], say[2];
};

static void ends_open(struct ends *e)
{
    cr_assert(!pipe(e->tell) && !pipe(e->say));
}

static void ends_close(struct ends *e)
{
    for (int i = 0; i < 2; i++) {
        close(e->tell[i]);
        close(e->say[i]);
    }
}

static int swap_to(struct blocks *b, const char *fault, int64_t timeout_ms,
                   struct seam_swap **s, struct seam_swap_report *r,
                   struct seam_error *err)
{
    struct seam_swap_opts o = {
        .source = calloc(1, sizeof *o.source),
        .on_layout_change = SEAM_SWAP_REPLAY,
        .timeout_ms = timeout_ms,
    };

    blocks_config(&o.source->config, LINEAR, fault);
    snprintf(o.source->origin, sizeof o.source->origin, "admin");
    o.role[SEAM_ROLE_LINEAR] = true;
    return seam_swap_start(b->e, &o, s, r, err);
}

/* Begin one that hangs before it has taken over.  On a slow machine its time is
 * over before: it gets more. */
static struct seam_swap *hang(struct blocks *b, const struct ends *e,
                              const char *fault)
{
    struct pollfd p = { .fd = e->say[0], .events = POLLIN };

    for (int64_t ms = 1000;; ms *= 2) {
        struct seam_swap_report r;
        struct seam_swap *s = NULL;
        struct seam_error err;
        char byte;
        int rc;

        cr_assert_eq(swap_to(b, fault, ms, &s, &r, &err), 0, "%s", err.text);
        do
            rc = seam_swap_wait(s, 20, &r, &err);
        while (rc == 1 && !poll(&p, 1, 0));
        if (poll(&p, 1, 0) == 1) {
            cr_assert_eq(read(e->say[0], &byte, 1), 1);
            return s;
        }
        cr_assert(rc < 0 && r.why == SEAM_SWAP_LATE, "%d: %s", rc, err.text);
        seam_swap_free(s);
    }
}

static void expect_name(struct blocks *b, const char *name)
{
    struct seam_instance *i = seam_engine_plugin(b->e, SEAM_ROLE_LINEAR);

    cr_expect_str_eq(i->host.name, name);
    seam_instance_unref(i);
}

static void hangs_before(const char *fault, const char *stage)
{
    static int32_t want[N][LEN];
    struct seam_swap_report r;
    struct seam_swap *s, *second = NULL;
    struct seam_error err;
    struct ends e;
    struct blocks b;
    char config[128], where[96] = "", text[96];
    int rc;

    blocks_expect(NONE, want);
    ends_open(&e);
    cr_assert_eq(blocks_open(&b, NONE, "", &err), SEAM_ENGINE_READY, "%s",
                 err.text);
    snprintf(config, sizeof config, "%s,\"fd\":%d,\"say\":%d", fault, e.tell[0],
             e.say[1]);
    s = hang(&b, &e, config);
    blocks_recovered(&b, want);
    /* It can be named at once, and whoever waits learns it in the end. */
    seam_engine_swap_still_ms(b.e, where, sizeof where);
    snprintf(text, sizeof text, "%s of plugin fault_linear", stage);
    cr_expect_str_eq(where, text);
    cr_expect_lt(seam_swap_wait(s, -1, &r, &err), 0);
    cr_expect_eq(r.why, SEAM_SWAP_LATE);
    snprintf(text, sizeof text, "is over in %s of fault_linear", stage);
    cr_expect_not_null(strstr(err.text, text), "%s", err.text);
    seam_swap_free(s);
    cr_expect_lt(swap_to(&b, "", 60000, &second, &r, &err), 0);
    cr_expect_eq(r.why, SEAM_SWAP_BUSY, "%s", err.text);
    blocks_recovered(&b, want);
    expect_name(&b, "kda");
    /* When it returns the way is free. */
    cr_assert_eq(write(e.tell[1], "x", 1), 1);
    do
        rc = swap_to(&b, "", 600000, &second, &r, &err);
    while (rc && r.why == SEAM_SWAP_BUSY);
    cr_assert_eq(rc, 0, "%s", err.text);
    cr_assert_eq(seam_swap_wait(second, -1, &r, &err), 0, "%s", err.text);
    seam_swap_free(second);
    expect_name(&b, "fault_linear");
    blocks_close(&b);
    ends_close(&e);
}

Test(swaps, a_plugin_that_hangs_in_create_holds_up_other_swaps_alone)
{
    hangs_before("\"fault\":\"create_hang\"", "create");
}

Test(swaps, a_plugin_that_hangs_in_its_trial_holds_up_other_swaps_alone)
{
    hangs_before("\"fault\":\"hang\",\"warm\":0,\"layer\":0", "trial");
}

/* It passed, and hangs in a step: as one that was there from the start. */
Test(swaps, a_plugin_that_hangs_after_the_take_over_is_named_by_the_watchdog)
{
    static int32_t want[N][LEN];
    struct seam_swap_report r;
    struct seam_swap *s = NULL;
    struct seam_gen_info info;
    struct seam_error err;
    struct seam_gen *g;
    struct ends e;
    struct blocks b;
    char config[128], where[96], byte;
    int32_t got[LEN];

    blocks_expect(LINEAR, want);
    ends_open(&e);
    cr_assert_eq(blocks_open(&b, LINEAR, "", &err), SEAM_ENGINE_READY, "%s",
                 err.text);
    snprintf(config, sizeof config,
             "\"fault\":\"hang\",\"pos\":48,\"layer\":1,\"fd\":%d,"
             "\"say\":%d",
             e.tell[0], e.say[1]);
    cr_assert_eq(swap_to(&b, config, 600000, &s, &r, &err), 0, "%s", err.text);
    cr_assert_eq(seam_swap_wait(s, -1, &r, &err), 0, "%s", err.text);
    seam_swap_free(s);
    g = blocks_submit(&b, 2);
    cr_assert_eq(read(e.say[0], &byte, 1), 1); /* it hangs */
    while (!seam_engine_stalled(b.e)) /* bounded by the test's own limit */
        ;
    seam_engine_where(b.e, where, sizeof where);
    cr_expect(!strncmp(where, "plugin fault_linear, layer ", 27), "%s", where);
    cr_assert_eq(write(e.tell[1], "x", 1), 1);
    cr_assert_eq(blocks_finish(g, got, &info), LEN, "%s", info.err.text);
    blocks_same(got, LEN, want[2], 2, "after hanging");
    blocks_recovered(&b, want);
    blocks_close(&b);
    ends_close(&e);
}
