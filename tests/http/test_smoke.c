/* The shortest way through the server and back. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/http/fixture.h"

Test(smoke, answers_a_chat)
{
    struct fixture f;
    struct reply r;

    fixture_open(&f, "plan</think>Hello!\1");
    client_post(f.url, "/v1/chat/completions",
                "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],"
                "\"seed\":1}",
                &r);
    cr_assert_eq(r.status, 200, "%s", r.body.p);
    cr_expect_str_eq(json_string_value(reply_at(&r, "choices", "0", "message",
                                                "content", NULL)),
                     "Hello!", "%s", r.body.p);
    cr_expect_str_eq(json_string_value(reply_at(&r, "choices", "0", "message",
                                                "reasoning_content", NULL)),
                     "plan");
    cr_expect_str_eq(
        json_string_value(reply_at(&r, "choices", "0", "finish_reason", NULL)),
        "stop");
    reply_release(&r);
    fixture_close(&f);
}

Test(smoke, streams_the_same)
{
    struct fixture f;
    struct client c;
    struct reply r;
    struct seam_buf data = { 0 }, all = { 0 };
    unsigned n = 0;

    fixture_open(&f, "plan</think>Hello!\1");
    client_open(&c, f.url);
    client_put_post(&c, "/v1/chat/completions",
                    "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],"
                    "\"seed\":1,\"stream\":true}");
    client_stream(&c, &r);
    while (client_event(&c, &data, NULL)) {
        seam_buf_add(&all, data.p, data.n);
        seam_buf_str(&all, "\n");
        n++;
    }
    /* role, 4 of reasoning, 6 of content, finish, [DONE] */
    cr_expect_eq(n, 13, "%s", all.p);
    cr_expect_str_eq(data.p, "data: [DONE]");
    reply_release(&r);
    seam_buf_release(&data);
    seam_buf_release(&all);
    client_close(&c);
    fixture_close(&f);
}

Test(smoke, completes_text)
{
    struct fixture f;
    struct reply r;

    fixture_open(&f, "abc\1");
    client_post(f.url, "/v1/completions", "{\"prompt\":\"x\",\"seed\":1}", &r);
    cr_assert_eq(r.status, 200, "%s", r.body.p);
    cr_expect_str_eq(
        json_string_value(reply_at(&r, "choices", "0", "text", NULL)), "abc");
    reply_release(&r);
    client_get(f.url, "/metrics", &r);
    cr_expect_eq(r.status, 200);
    cr_expect_not_null(strstr(r.body.p, "vllm:num_requests_running"));
    reply_release(&r);
    fixture_close(&f);
}
