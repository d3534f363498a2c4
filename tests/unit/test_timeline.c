#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/config/config.h"
#include "core/engine/timeline.h"

static const struct seam_log silent = { .fd = -1, .level = SEAM_LOG_ERROR + 1 };

struct folder {
    char dir[64], file[96];
};

static void folder_open(struct folder *f)
{
    snprintf(f->dir, sizeof f->dir, "/tmp/seam-timeline-XXXXXX");
    cr_assert_not_null(mkdtemp(f->dir));
    snprintf(f->file, sizeof f->file, "%s/t.json", f->dir);
}

static void folder_close(struct folder *f)
{
    unlink(f->file);
    rmdir(f->dir);
}

/* How many events have this phase and this string under key. */
static int count(const json_t *events, const char *ph, const char *key,
                 const char *value)
{
    const json_t *ev;
    size_t i;
    int n = 0;

    json_array_foreach((json_t *)events, i, ev) n +=
        !strcmp(json_string_value(json_object_get(ev, "ph")), ph) &&
        !strcmp(json_string_value(json_object_get(ev, key)), value);
    return n;
}

Test(timeline, is_json_with_a_lane_per_role_and_phases_per_request)
{
    struct seam_gen_info info = { .n_prompt = 7, .n_generated = 3 };
    struct seam_timeline *t;
    struct seam_error err;
    struct folder f;
    json_error_t why;
    json_t *events;
    uint64_t now;

    folder_open(&f);
    cr_assert_eq(seam_timeline_open(&t, f.file, &silent, &err), 0, "%s",
                 err.text);
    now = seam_now_ns();
    info.submitted_ns = now;
    info.started_ns = now + 1000;
    info.first_ns = now + 5000;
    seam_timeline_step(t, 2, 9, now, now + 4000);
    seam_timeline_span(t, SEAM_LANE_ROLE + SEAM_ROLE_LINEAR, "kda", 3, now,
                       now + 2000);
    seam_timeline_span(t, SEAM_LANE_ROLE + SEAM_ROLE_BACKEND, "sample", -1, now,
                       now + 2000);
    seam_timeline_request(t, 42, &info, SEAM_GEN_STOP, now + 9000);
    seam_timeline_close(t);

    events = json_load_file(f.file, 0, &why);
    cr_assert_not_null(events, "%s", why.text);
    cr_expect_eq(count(events, "M", "name", "thread_name"), 1 + SEAM_N_ROLES);
    cr_expect_eq(count(events, "X", "name", "step"), 1);
    cr_expect_eq(count(events, "X", "name", "kda"), 1);
    cr_expect_eq(count(events, "X", "name", "sample"), 1);
    cr_expect_eq(count(events, "b", "cat", "request"), 4);
    cr_expect_eq(count(events, "e", "cat", "request"), 4);
    cr_expect_eq(count(events, "b", "name", "decode"), 1);
    json_decref(events);
    folder_close(&f);
}

Test(timeline, of_a_request_that_never_ran_has_only_its_wait)
{
    struct seam_gen_info info = { .submitted_ns = seam_now_ns() };
    struct seam_timeline *t;
    struct seam_error err;
    struct folder f;
    json_t *events;

    folder_open(&f);
    cr_assert_eq(seam_timeline_open(&t, f.file, &silent, &err), 0);
    seam_timeline_request(t, 1, &info, SEAM_GEN_ABORT, seam_now_ns());
    seam_timeline_close(t);
    events = json_load_file(f.file, 0, NULL);
    cr_assert_not_null(events);
    cr_expect_eq(count(events, "b", "name", "queue"), 1);
    cr_expect_eq(count(events, "b", "name", "prefill"), 0);
    json_decref(events);
    folder_close(&f);
}

/* More records at once than the ring holds: some may be lost, none is torn. */
Test(timeline, a_full_ring_drops_whole_records)
{
    struct seam_timeline *t;
    struct seam_error err;
    struct folder f;
    json_t *events;
    uint64_t now = seam_now_ns();
    int n, dropped;

    folder_open(&f);
    cr_assert_eq(seam_timeline_open(&t, f.file, &silent, &err), 0);
    for (int i = 0; i < 100000; i++)
        seam_timeline_step(t, 1, 1, now, now + 1);
    seam_timeline_close(t);
    events = json_load_file(f.file, 0, NULL);
    cr_assert_not_null(events);
    n = count(events, "X", "name", "step");
    dropped = count(events, "C", "name", "dropped");
    cr_expect(dropped ? n >= 32768 && n < 100000 : n == 100000,
              "%d records, %d notes of dropped ones", n, dropped);
    json_decref(events);
    folder_close(&f);
}

Test(timeline, names_a_path_that_cannot_be_written)
{
    struct seam_timeline *t = NULL;
    struct seam_error err;

    cr_expect_neq(seam_timeline_open(&t, "/nonexistent/t.json", &silent, &err),
                  0);
    cr_expect_not_null(strstr(err.text, "/nonexistent/t.json"), "%s", err.text);
    cr_expect_null(t);
    seam_timeline_close(NULL);
}
