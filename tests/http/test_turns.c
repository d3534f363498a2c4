/* Whose turn it is: priorities, turns between tenants, the tokens of a step,
 * and deadlines, step by step in front of the scripted backend. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "core/engine/impl.h"
#include "tests/http/collect.h"
#include "tests/http/fixture.h"

#define CHAT "/v1/chat/completions"

/* A fixture whose steps wait to be let. */
static void open_gated(struct fixture *f, const struct seam_flag *flags,
                       size_t n)
{
    static const int32_t a[] = { 'a' };

    fixture_init(f);
    fixture_script(f, a, 1);
    fixture_gate_steps(f);
    fixture_use_trace(f);
    fixture_bind(f, flags, n, NULL);
    fixture_start(f);
}

static struct seam_gen *submit(struct fixture *f, uint32_t n_prompt,
                               uint32_t max_tokens, int32_t priority,
                               uint64_t tenant)
{
    static const int32_t prompt[1000] = { 0 };
    struct seam_gen_params p = {
        .prompt = prompt,
        .n_prompt = n_prompt,
        .max_tokens = max_tokens,
        .top_p = 1,
        .repetition = 1,
        .seed = 1,
        .ignore_eos = true,
        .priority = priority,
        .tenant = tenant,
    };
    struct seam_error err;
    struct seam_gen *g = NULL;

    cr_assert_eq(seam_gen_submit(f->engine, &p, &g, &err), 0, "%s", err.text);
    return g;
}

static struct seam_gen *submit_ids(struct fixture *f, const int32_t *id,
                                   uint32_t n)
{
    struct seam_gen_params p = {
        .prompt = id,
        .n_prompt = n,
        .max_tokens = 1,
        .top_p = 1,
        .repetition = 1,
        .seed = 1,
        .ignore_eos = true,
    };
    struct seam_error err;
    struct seam_gen *g = NULL;

    cr_assert_eq(seam_gen_submit(f->engine, &p, &g, &err), 0, "%s", err.text);
    return g;
}

static void finish(struct seam_gen *g, struct seam_gen_info *info)
{
    struct seam_gen_token t[16];
    bool ended = false;

    while (!ended)
        seam_gen_take(g, -1, t, 16, &ended);
    seam_gen_info(g, info);
    seam_gen_free(g);
}

/* Submit all while one holds the only row, and compare the order in which they
 * start: rank[i] of request i, from 0. */
static void expect_order_with(const struct seam_flag *flags, size_t n_flags,
                              const int32_t *priority, const uint64_t *tenant,
                              const int *rank, int n)
{
    struct seam_gen_info info[16];
    struct seam_gen *g[16], *holds;
    struct fixture f;

    open_gated(&f, flags, n_flags);
    holds = submit(&f, 1, 1, 0, 99);
    fixture_wait_trace(&f, "step", 1);
    for (int i = 0; i < n; i++)
        g[i] = submit(&f, 8, 1, priority ? priority[i] : 0,
                      tenant ? tenant[i] : 0);
    fixture_open_gate(&f);
    finish(holds, &info[0]);
    for (int i = 0; i < n; i++)
        finish(g[i], &info[i]);
    for (int i = 0; i < n; i++) {
        int before = 0;

        cr_expect_eq(info[i].end, SEAM_GEN_LENGTH);
        for (int j = 0; j < n; j++)
            before += info[j].started_ns < info[i].started_ns;
        cr_expect_eq(before, rank[i], "request %d was number %d, expected %d",
                     i, before, rank[i]);
    }
    fixture_close(&f);
}

static void expect_order(const int32_t *priority, const uint64_t *tenant,
                         const int *rank, int n)
{
    static const struct seam_flag one[] = { { "engine.max_seqs", "1" } };

    expect_order_with(one, 1, priority, tenant, rank, n);
}

/* Two that can wait, and then five that cannot: after two of these the first is
 * served, after two more the second. */
Test(turns, who_is_overtaken_often_enough_is_served)
{
    static const struct seam_flag flags[] = { { "engine.max_seqs", "1" },
                                              { "engine.max_overtaken", "2" } };
    static const struct seam_flag strict[] = {
        { "engine.max_seqs", "1" }, { "engine.max_overtaken", "0" }
    };
    static const int32_t priority[] = { 5, 9, 0, 0, 0, 0, 0 };
    static const int rank[] = { 2, 5, 0, 1, 3, 4, 6 };
    static const int never[] = { 5, 6, 0, 1, 2, 3, 4 };

    expect_order_with(flags, 2, priority, NULL, rank, 7);
    expect_order_with(strict, 2, priority, NULL, never, 7);
}

/* Who came later has not been overtaken. */
Test(turns, who_comes_after_the_urgent_waits_for_them)
{
    static const struct seam_flag flags[] = { { "engine.max_seqs", "1" },
                                              { "engine.max_overtaken", "1" } };
    static const int32_t priority[] = { 0, 0, 0, 7, 0 };
    static const int rank[] = { 0, 1, 2, 4, 3 };

    expect_order_with(flags, 2, priority, NULL, rank, 5);
}

Test(turns, lower_priority_numbers_run_first_and_equals_as_they_came)
{
    static const int32_t priority[] = { 3, 0, -1, 3, 0, 7 };
    static const int rank[] = { 3, 1, 0, 4, 2, 5 };

    expect_order(priority, NULL, rank, 6);
}

/* One came with many requests, the other later with two. */
Test(turns, tenants_share_by_the_tokens_they_were_served)
{
    static const uint64_t tenant[] = { 1, 1, 1, 1, 1, 2, 2 };
    static const int rank[] = { 0, 2, 4, 5, 6, 1, 3 };

    expect_order(NULL, tenant, rank, 7);
}

Test(turns, priority_comes_before_the_tenants_turn)
{
    static const int32_t priority[] = { 0, 0, 1, 0 };
    static const uint64_t tenant[] = { 1, 1, 2, 1 };
    static const int rank[] = { 0, 1, 3, 2 };

    expect_order(priority, tenant, rank, 4);
}

/* A pause saves up nothing: who was away gets a turn, not all the turns that
 * others had meanwhile. */
Test(turns, a_pause_saves_up_no_turns)
{
    static const struct seam_flag one[] = { { "engine.max_seqs", "1" } };
    struct seam_gen_info info[6];
    struct seam_gen *g[6], *holds;
    struct fixture f;

    open_gated(&f, one, 1);
    /* Tenant 1 is served for long while 2 is not there. */
    holds = submit(&f, 200, 8, 0, 1);
    fixture_wait_trace(&f, "step", 1);
    for (int i = 0; i < 3; i++)
        g[i] = submit(&f, 8, 1, 0, 1);
    for (int i = 3; i < 6; i++)
        g[i] = submit(&f, 8, 1, 0, 2);
    fixture_open_gate(&f);
    finish(holds, &info[0]);
    for (int i = 0; i < 6; i++)
        finish(g[i], &info[i]);
    /* 2 comes in at the count of 1 when it came, before the long answer was
     * counted: it may catch up on that, and no more. */
    cr_expect(info[3].started_ns < info[1].started_ns);
    cr_expect(info[0].started_ns < info[5].started_ns ||
              info[5].started_ns < info[2].started_ns);
    fixture_close(&f);
}

/* Who is gone is forgotten, at the latest when there are too many. */
Test(turns, tenants_that_are_gone_take_no_memory)
{
    struct seam_gen_info info;
    struct fixture f;

    open_gated(&f, NULL, 0);
    fixture_open_gate(&f);
    for (uint64_t tenant = 1; tenant <= 1500; tenant++)
        finish(submit(&f, 2, 1, 0, tenant * UINT64_C(0x9e3779b97f4a7c15)),
               &info);
    pthread_mutex_lock(&f.engine->lock);
    cr_expect_leq(f.engine->n_idle_tenants, 1024);
    pthread_mutex_unlock(&f.engine->lock);
    fixture_close(&f);
}

/* Where in the trace a request of this seed was sampled first. */
static const char *sampled(struct fixture *f, unsigned seed)
{
    char line[32];

    snprintf(line, sizeof line, "sample %u 0", seed);
    fixture_wait_trace(f, line, 1);
    return strstr(f->trace_text.p, line);
}

/* Keys take turns; the users that one of them invents do not count, nor does
 * what stands beside the key. */
Test(turns, with_several_keys_a_tenant_is_a_key)
{
    static const struct seam_flag flags[] = {
        { "engine.max_seqs", "1" },
        { "server.api_keys", "[\"left\",\"right\"]" },
    };
    static const char *const key[] = {
        "Authorization: Bearer left",
        "X-Api-Key: left\r\nAuthorization: Basic one-user",
        "Authorization: bearer left\r\nX-Api-Key: whatever",
        "X-Api-Key: left\r\nAuthorization: Basic other-user",
        "X-Api-Key: right\r\nAuthorization: Basic one-user",
        "Authorization: Bearer right",
    };
    static const unsigned order[] = { 1, 5, 2, 6, 3, 4 };
    struct client c[6];
    struct fixture f;
    struct reply r;

    fixture_init(&f);
    for (int i = 0; i < 6; i++)
        fixture_text(&f, "</think>ok\1");
    fixture_gate_steps(&f);
    fixture_use_trace(&f);
    fixture_bind(&f, flags, 2, NULL);
    fixture_start(&f);
    for (unsigned i = 0; i < 6; i++) {
        struct seam_buf b = { 0 };
        char body[256], user[32];

        snprintf(user, sizeof user, "\"user\":\"u%u\"", i);
        ask(body, sizeof body, i + 1, user);
        seam_buf_fmt(&b,
                     "POST " CHAT " HTTP/1.1\r\nHost: t\r\n%s\r\n"
                     "Content-Length: %zu\r\n\r\n%s",
                     key[i], strlen(body), body);
        client_open(&c[i], f.url);
        client_puts(&c[i], b.p);
        seam_buf_release(&b);
        while (seam_engine_active(f.engine) <= i) /* in this order */
            ;
        if (!i)
            fixture_wait_trace(&f, "step", 1); /* it has the row */
    }
    fixture_open_gate(&f);
    for (int i = 0; i < 6; i++) {
        cr_assert(client_reply(&c[i], &r));
        cr_expect_eq(r.status, 200, "%s", r.body.p);
        reply_release(&r);
        client_close(&c[i]);
    }
    for (int i = 1; i < 6; i++)
        cr_expect(sampled(&f, order[i - 1]) < sampled(&f, order[i]),
                  "%u came before %u: %s", order[i], order[i - 1],
                  f.trace_text.p);
    fixture_close(&f);
}

/* Sixteen tokens a step: the long prompt gets half of them at least, the short
 * one the rest, and is done while the other has long to go. */
Test(turns, a_long_prompt_does_not_hold_up_a_short_one)
{
    static const struct seam_flag flags[] = {
        { "engine.max_step_tokens", "16" }, { "engine.prefix_bytes", "0" }
    };
    struct seam_gen_token t[4];
    struct seam_gen_info info;
    struct seam_gen *lengthy, *brief;
    struct fixture f;
    bool ended;

    open_gated(&f, flags, 2);
    lengthy = submit(&f, 400, 1, 0, 0);
    fixture_wait_trace(&f, "step 16", 1);
    brief = submit(&f, 6, 1, 0, 0);
    fixture_let(&f, 2);
    cr_assert_eq(seam_gen_take(brief, -1, t, 4, &ended), 1);
    seam_gen_info(lengthy, &info);
    cr_expect_eq(info.end, SEAM_GEN_RUNNING);
    cr_expect_eq(info.first_ns, 0);
    /* 400 tokens in steps of 16, of which the short one took 6. */
    fixture_open_gate(&f);
    finish(lengthy, &info);
    finish(brief, &info);
    cr_expect_eq(fixture_count_trace(&f, "step"), 26);
    fixture_close(&f);
}

/* And the long one is not held up by a stream of short ones. */
Test(turns, short_prompts_do_not_starve_a_long_one)
{
    static const struct seam_flag flags[] = {
        { "engine.max_step_tokens", "16" }, { "engine.prefix_bytes", "0" }
    };
    struct seam_gen_info info;
    struct seam_gen *lengthy, *brief = NULL;
    struct fixture f;
    unsigned steps = 1;

    open_gated(&f, flags, 2);
    lengthy = submit(&f, 96, 1, 0, 0);
    fixture_wait_trace(&f, "step", 1);
    for (;; steps++) {
        struct seam_gen *next = submit(&f, 16, 1, 0, 0);

        seam_gen_free(brief);
        brief = next;
        fixture_let(&f, 1);
        fixture_wait_trace(&f, "step", steps + 1);
        seam_gen_info(lengthy, &info);
        if (info.end != SEAM_GEN_RUNNING)
            break;
    }
    /* 16 at once, then at least 8 a step: 1 + 10, and the one under way. */
    cr_expect_leq(steps, 12, "%u steps", steps);
    seam_gen_free(brief);
    fixture_open_gate(&f);
    finish(lengthy, &info);
    cr_expect_eq(info.end, SEAM_GEN_LENGTH);
    fixture_close(&f);
}

/* ---- Deadlines ----------------------------------------------------------- */

static void expect_504(struct fixture *f, const char *more, const char *head)
{
    struct seam_buf b = { 0 };
    struct client c;
    struct reply r;
    char body[256];

    ask(body, sizeof body, 1, more);
    seam_buf_fmt(&b,
                 "POST " CHAT " HTTP/1.1\r\nHost: t\r\n%s"
                 "Content-Length: %zu\r\n\r\n%s",
                 head, strlen(body), body);
    client_open(&c, f->url);
    client_puts(&c, b.p);
    cr_assert(client_reply(&c, &r));
    cr_expect_eq(r.status, 504, "%s", r.body.p);
    cr_expect_str_eq(json_string_value(reply_at(&r, "error", "code", NULL)),
                     "deadline_exceeded");
    cr_expect_str_eq(json_string_value(reply_at(&r, "error", "type", NULL)),
                     "timeout_error");
    reply_release(&r);
    client_close(&c);
    seam_buf_release(&b);
}

/* The step never ends: the deadline holds all the same. */
Test(turns, a_deadline_ends_what_waits_and_what_hangs)
{
    static const struct seam_flag one[] = { { "engine.max_seqs", "1" } };
    struct fixture f;
    struct reply r;
    char body[256];

    open_gated(&f, one, 1);
    expect_504(&f, "\"timeout\":0.05", "");
    expect_504(&f, "\"timeout\":0.05", "X-Request-Timeout: 60\r\n");
    expect_504(&f, "\"timeout\":60", "X-Request-Timeout: 0.05\r\n");
    fixture_open_gate(&f);
    client_post(f.url, CHAT, ask(body, sizeof body, 1, "\"max_tokens\":3"), &r);
    cr_expect_eq(r.status, 200, "%s", r.body.p);
    reply_release(&r);
    cr_expect_geq(atomic_load(&seam_engine_stats(f.engine)->timeouts), 1);
    fixture_close(&f);
}

Test(turns, the_servers_own_limit_holds_in_mid_stream)
{
    static const struct seam_flag limit[] = { { "engine.max_request_ms",
                                                "200" } };
    struct seam_buf event = { 0 };
    struct fixture f;
    struct client c;
    struct reply r;
    bool failed = false, done = false;
    char body[256];

    open_gated(&f, limit, 1);
    client_open(&c, f.url);
    client_put_post(&c, CHAT, ask(body, sizeof body, 1, "\"stream\":true"));
    client_stream(&c, &r);
    while (client_event(&c, &event, NULL)) {
        failed |= strstr(event.p, "deadline_exceeded") != NULL;
        done = strstr(event.p, "[DONE]") != NULL;
    }
    cr_expect(failed, "no error event");
    cr_expect(done, "no [DONE]");
    seam_buf_release(&event);
    reply_release(&r);
    client_close(&c);
    fixture_close(&f);
}

Test(turns, bad_deadlines_and_priorities_are_refused_by_name)
{
    static const struct {
        const char *more, *head, *param;
    } bad[] = {
        { "\"timeout\":0", "", "timeout" },
        { "\"timeout\":\"5\"", "", "timeout" },
        { "\"timeout\":1e9", "", "timeout" },
        { "\"timeout\":1", "X-Request-Timeout: soon\r\n", "X-Request-Timeout" },
        { "\"timeout\":1", "X-Request-Timeout: -1\r\n", "X-Request-Timeout" },
        { "\"timeout\":1", "X-Request-Timeout: 1.2.3\r\n",
          "X-Request-Timeout" },
        { "\"timeout\":1",
          "X-Request-Timeout: 1.00000000000000000000000000000000000000000000000"
          "0000000000000000000000000000\r\n",
          "X-Request-Timeout" },
        { "\"timeout\":1", "X-Request-Timeout: 0x10\r\n", "X-Request-Timeout" },
        { "\"timeout\":1", "X-Request-Timeout: 60\r\nX-Request-Timeout: 1\r\n",
          "X-Request-Timeout" },
        { "\"priority\":-1", "", "priority" },
        { "\"priority\":11", "", "priority" },
        { "\"priority\":0.5", "", "priority" },
    };
    static const struct seam_flag flags[] = { { "server.priority_max", "10" } };
    struct fixture f;

    fixture_init(&f);
    fixture_text(&f, "</think>ok\1");
    fixture_bind(&f, flags, 1, NULL);
    fixture_start(&f);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct seam_buf b = { 0 };
        struct client c;
        struct reply r;
        char body[256];

        ask(body, sizeof body, 1, bad[i].more);
        seam_buf_fmt(&b,
                     "POST " CHAT " HTTP/1.1\r\nHost: t\r\n%s"
                     "Content-Length: %zu\r\n\r\n%s",
                     bad[i].head, strlen(body), body);
        client_open(&c, f.url);
        client_puts(&c, b.p);
        cr_assert(client_reply(&c, &r));
        cr_expect_eq(r.status, 400, "%s: %s", bad[i].more, r.body.p);
        cr_expect_str_eq(
            json_string_value(reply_at(&r, "error", "param", NULL)),
            bad[i].param);
        reply_release(&r);
        client_close(&c);
        seam_buf_release(&b);
    }
    fixture_alive(&f, 1, "ok");
    fixture_close(&f);
}

/* 400 turns of ten tokens: sixteen steps of 256 would do, a step for each turn
 * would be 400.  Where a prompt that begins alike goes on from is the first
 * turn or one of the last. */
Test(turns, a_prompt_of_many_short_turns_takes_few_steps)
{
    enum { TURNS = 400, TURN = 10, N = TURNS * TURN };
    static const struct { /* tokens that a prompt shares, and is spared */
        uint32_t same, cached;
    } as[] = { { N - 1, N - TURN },            /* all but the end */
               { N - 5, N - TURN },            /* the last turn, edited */
               { N - TURN - 1, N - 8 * TURN }, /* the one before */
               { 4 * TURN, 2 * TURN } };       /* another conversation */
    static int32_t prompt[N];
    struct seam_gen_info info;
    struct fixture f;

    open_gated(&f, NULL, 0);
    fixture_open_gate(&f);
    for (int i = 0; i < N; i++)
        prompt[i] = i % TURN ? 'a' + i % 7 : TOK_EOS;
    finish(submit_ids(&f, prompt, N), &info);
    cr_expect_leq(fixture_count_trace(&f, "step"), 24);
    for (size_t i = 0; i < sizeof as / sizeof *as; i++) {
        prompt[as[i].same] = 'z';
        finish(submit_ids(&f, prompt, as[i].same + 1), &info);
        prompt[as[i].same] =
            as[i].same % TURN ? 'a' + (int32_t)as[i].same % 7 : TOK_EOS;
        cr_expect_eq(info.n_cached, as[i].cached, "%u alike: %u cached, not %u",
                     as[i].same, info.n_cached, as[i].cached);
    }
    fixture_close(&f);
}

/* Nor does a step wait for who reads them. */
Test(turns, metrics_wait_for_no_step)
{
    struct fixture f;
    struct reply r;

    fixture_open(&f, "</think>ok\1");
    pthread_mutex_lock(&f.engine->lock);
    client_get(f.url, "/metrics", &r);
    pthread_mutex_unlock(&f.engine->lock);
    cr_expect_eq(r.status, 200);
    cr_expect_not_null(strstr(r.body.p, "seam_prefix_disk_bytes"));
    reply_release(&r);
    fixture_close(&f);
}
