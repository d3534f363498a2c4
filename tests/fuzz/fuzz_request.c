/* Bodies of generating requests, of all four APIs: the first byte chooses. */
#include <stdlib.h>
#include <string.h>

#include "core/base/utf8.h"
#include "core/server/anthropic.h"
#include "core/server/chat.h"
#include "core/server/openai_responses.h"
#include "core/server/request.h"

static const struct seam_request_limits limits = {
    .vocab = 6144,
    .max_n = 8,
    .temperature = 1.0f,
    .top_p = 0.95f,
};

/* An error is for the client: whole, valid, and with its status. */
static void check_error(const struct seam_api_error *e)
{
    if ((e->status != 400 && e->status != 503) || !*e->text ||
        !seam_utf8_valid(e->text, strlen(e->text)) ||
        !seam_utf8_valid(e->param, strlen(e->param)))
        abort();
}

/* What was written is read, and written again the same. */
static void check_text(const char *text)
{
    struct seam_spelling s = { 0 };
    struct seam_api_error e;
    json_t *v = seam_request_json(text, strlen(text), &s, &e);
    char *again;

    if (!v) {
        /* Only what the mapping of old fields made a little larger. */
        if (!strstr(e.text, "nested") && !strstr(e.text, "too many values"))
            abort();
        return;
    }
    again = seam_spelling_dump(&s, v);
    if (again && strcmp(text, again))
        abort();
    free(again);
    json_decref(v);
    seam_spelling_release(&s);
}

/* What was accepted can be used. */
static void check_request(const struct seam_request *r)
{
    char *text;

    if (r->n < 1 || r->n > limits.max_n || !(r->temperature >= 0) ||
        !(r->temperature <= 2) || r->n_stop > SEAM_MAX_STOPS ||
        r->max_tokens < 0 ||
        (r->ignored.n && !seam_utf8_valid(r->ignored.p, r->ignored.n)))
        abort();
    for (uint32_t i = 0; i < r->n_stop; i++)
        if (!r->stop[i].n || r->stop[i].n > SEAM_MAX_STOP_LEN)
            abort();
    for (uint32_t i = 0; i < r->n_bias; i++)
        if (r->bias[i].id < 0 || (uint32_t)r->bias[i].id >= limits.vocab)
            abort();
    text = seam_chat_text(r);
    if (text)
        check_text(text);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct seam_api_error e = { 0 };
    struct seam_request r;
    struct seam_converted c = { 0 };
    json_t *body;
    int kind, rc;

    if (!n)
        return 0;
    kind = *p % 4;
    if (kind < 2) {
        rc = seam_request_parse(
            &r, kind ? SEAM_REQUEST_COMPLETION : SEAM_REQUEST_CHAT,
            (const char *)p + 1, n - 1, &limits, &e);
    } else {
        body = seam_request_json((const char *)p + 1, n - 1, &c.spelling, &e);
        if (body)
            c.chat = kind == 2
                         ? seam_anthropic_chat(body, false, &c.ignored, &e)
                         : seam_responses_chat(body, &c.ignored, &e);
        json_decref(body);
        rc = c.chat ? seam_request_adopt(&r, &c, &limits, &e) : -1;
        seam_converted_release(&c);
    }
    if (rc) {
        check_error(&e);
        return 0;
    }
    check_request(&r);
    seam_request_release(&r);
    return 0;
}
