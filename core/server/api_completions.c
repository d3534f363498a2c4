/* POST /v1/completions: docs/api.md, "Completions". */
#include <stdlib.h>
#include <string.h>

#include "core/base/utf8.h"
#include "core/server/answer.h"
#include "core/server/routes.h"

/* The four parallel lists of a logprobs object. */
struct lists {
    json_t *tokens, *logprobs, *top, *offset;
};

struct text_choice {
    struct seam_buf text;
    struct lists l;          /* when collecting and asked for                 */
    struct seam_detok detok; /* of the tokens reported so far ...             */
    uint64_t offset;         /* ... and the code points they make             */
    struct seam_chat_event finish;
};

struct text_answer {
    struct seam_answer a;
    const struct seam_tokenizer *tok;
    struct text_choice *choice;
};

/* ---- Log probabilities --------------------------------------------------- */

static struct lists lists_new(void)
{
    return (struct lists){ json_array(), json_array(), json_array(),
                           json_array() };
}

static json_t *lists_json(struct lists *l)
{
    json_t *v = json_pack("{s:o, s:o, s:o, s:o}", "tokens", l->tokens,
                          "token_logprobs", l->logprobs, "top_logprobs", l->top,
                          "text_offset", l->offset);

    *l = (struct lists){ 0 };
    return v;
}

static void lists_release(struct lists *l)
{
    json_decref(l->tokens);
    json_decref(l->logprobs);
    json_decref(l->top);
    json_decref(l->offset);
}

static json_t *token_string(const struct text_answer *t, int32_t id,
                            struct seam_buf *text)
{
    seam_buf_clear(text);
    seam_chat_token_text(t->tok, id, text);
    return json_stringn(text->p ? text->p : "", text->n);
}

/* Code points that the token completes. */
static void count_points(const struct text_answer *t, struct text_choice *c,
                         int32_t id)
{
    struct seam_buf text = { 0 };
    struct seam_str bytes;
    uint32_t cp;
    size_t len;

    if (seam_tokenizer_flags(t->tok, id) & SEAM_TOKEN_SPECIAL &&
        t->a.r.skip_special)
        return;
    if (seam_tokenizer_bytes(t->tok, id, &bytes))
        seam_detok_add(&c->detok, bytes.p, bytes.n, &text);
    for (size_t i = 0; i < text.n; i += len, c->offset++)
        if (seam_utf8_next(text.p + i, text.n - i, &cp, &len) != SEAM_UTF8_OK)
            len = 1;
    seam_buf_release(&text);
}

static void lists_add(const struct text_answer *t, struct text_choice *c,
                      struct lists *l, const struct seam_chat_token *tok)
{
    struct seam_buf text = { 0 };
    json_t *top = tok->first ? json_null() : json_object();

    json_array_append_new(l->tokens, token_string(t, tok->t.id, &text));
    json_array_append_new(l->logprobs,
                          tok->first ? json_null()
                                     : seam_logprob_number(tok->t.logprob));
    for (uint32_t i = 0; i < tok->t.n_top && !tok->first; i++) {
        seam_buf_clear(&text);
        seam_chat_token_text(t->tok, tok->t.top_id[i], &text);
        json_object_setn_new(top, text.p ? text.p : "", text.n,
                             seam_logprob_number(tok->t.top_logprob[i]));
    }
    json_array_append_new(l->top, top);
    json_array_append_new(l->offset, json_integer((json_int_t)c->offset));
    count_points(t, c, tok->t.id);
    seam_buf_release(&text);
}

static json_t *choice_json(const struct text_answer *t, uint32_t index,
                           json_t *text, json_t *logprobs,
                           const struct seam_chat_event *finish)
{
    return json_pack(
        "{s:i, s:o, s:o, s:o, s:o}", "index", (int)index, "text", text,
        "logprobs", logprobs, "finish_reason",
        finish ? json_string(seam_finish_name(finish->finish)) : json_null(),
        "stop_reason",
        finish ? seam_stop_reason_json(&t->a, finish) : json_null());
}

static json_t *answer_json(const struct text_answer *t, json_t *choices)
{
    return json_pack("{s:s, s:s, s:I, s:s, s:s, s:o}", "id", t->a.id, "object",
                     "text_completion", "created", (json_int_t)t->a.created,
                     "model", t->a.model, "system_fingerprint",
                     seam_fingerprint(), "choices", choices);
}

/* ---- Collected ----------------------------------------------------------- */

static int collect(struct text_answer *t, const struct seam_chat_event *ev)
{
    struct text_choice *c = &t->choice[ev->choice];

    for (uint32_t i = 0; i < ev->n_tokens; i++)
        lists_add(t, c, &c->l, &ev->token[i]);
    if (ev->kind == SEAM_CHAT_TEXT || ev->kind == SEAM_CHAT_PROMPT)
        seam_buf_add(&c->text, ev->text.p, ev->text.n);
    if (ev->kind == SEAM_CHAT_FINISH)
        c->finish = *ev;
    return c->text.failed ? SEAM_ENOMEM : 0;
}

static void answer_collected(struct text_answer *t)
{
    json_t *choices = json_array(), *v;
    struct seam_chat_usage u;

    for (uint32_t i = 0; i < seam_chat_choices(t->a.chat); i++) {
        struct text_choice *c = &t->choice[i];

        json_array_append_new(
            choices,
            choice_json(
                t, i, json_stringn(c->text.p ? c->text.p : "", c->text.n),
                c->l.tokens ? lists_json(&c->l) : json_null(), &c->finish));
    }
    v = answer_json(t, choices);
    seam_chat_usage(t->a.chat, &u);
    json_object_set_new(v, "usage", seam_usage_json(&u));
    seam_http_json(t->a.h, 200, v);
}

/* ---- Streamed ------------------------------------------------------------ */

/* Takes choices over. */
static bool send_chunk(struct text_answer *t, json_t *choices, bool usage)
{
    json_t *v = answer_json(t, choices);
    struct seam_chat_usage u;
    char *text;
    bool ok;

    if (t->a.r.include_usage) {
        seam_chat_usage(t->a.chat, &u);
        json_object_set_new(v, "usage",
                            usage || t->a.r.continuous_usage
                                ? seam_usage_json(&u)
                                : json_null());
    }
    text = json_dumps(v, JSON_COMPACT | JSON_REAL_PRECISION(9));
    ok = text && seam_sse_send(&t->a.sse, NULL, text, strlen(text));
    free(text);
    json_decref(v);
    return ok;
}

static int stream(struct text_answer *t, const struct seam_chat_event *ev)
{
    struct text_choice *c = &t->choice[ev->choice];
    json_t *logprobs = NULL, *choices;
    struct lists l;

    if (ev->kind == SEAM_CHAT_BEGIN)
        return 0;
    if (t->a.r.logprobs && ev->n_tokens) {
        l = lists_new();
        for (uint32_t i = 0; i < ev->n_tokens; i++)
            lists_add(t, c, &l, &ev->token[i]);
        logprobs = lists_json(&l);
    }
    choices = json_pack(
        "[o]",
        choice_json(t, ev->choice,
                    json_stringn(ev->text.p ? ev->text.p : "", ev->text.n),
                    logprobs ? logprobs : json_null(),
                    ev->kind == SEAM_CHAT_FINISH ? ev : NULL));
    return !send_chunk(t, choices, false);
}

static void stream_end(struct text_answer *t, int rc)
{
    struct seam_buf b = { 0 };

    if (rc < 0) {
        seam_api_error_json(&t->a.err, &b);
        seam_sse_send(&t->a.sse, NULL, b.p, b.n);
        seam_buf_release(&b);
    } else if (t->a.r.include_usage) {
        send_chunk(t, json_array(), true);
    }
    seam_sse_send(&t->a.sse, NULL, "[DONE]", 6);
}

/* ---- Both ---------------------------------------------------------------- */

static int on_event(void *ctx, const struct seam_chat_event *ev)
{
    struct text_answer *t = ctx;

    return t->a.r.stream ? stream(t, ev) : collect(t, ev);
}

static void text_release(struct text_answer *t)
{
    uint32_t n = t->a.chat ? seam_chat_choices(t->a.chat) : 0;

    for (uint32_t i = 0; i < n && t->choice; i++) {
        seam_buf_release(&t->choice[i].text);
        lists_release(&t->choice[i].l);
    }
    free(t->choice);
    seam_answer_release(&t->a);
}

void seam_api_completions(struct seam_http *h)
{
    struct text_answer t = { 0 };
    uint32_t n;
    int rc;

    if (seam_answer_open(&t.a, h, SEAM_REQUEST_COMPLETION, "cmpl-", NULL))
        return;
    t.tok = seam_engine_tokenizer(seam_server_engine(h->s));
    n = seam_chat_choices(t.a.chat);
    t.choice = calloc(n, sizeof *t.choice);
    if (!t.choice) {
        seam_api_fail(&t.a.err, 503, "overloaded", NULL, "no memory");
        seam_http_fail(h, &t.a.err);
        goto out;
    }
    for (uint32_t i = 0; i < n && t.a.r.logprobs && !t.a.r.stream; i++)
        t.choice[i].l = lists_new();
    if (t.a.r.stream)
        seam_sse_begin(&t.a.sse, h);
    rc = seam_answer_run(&t.a, on_event, &t);
    if (t.a.r.stream && rc <= 0)
        stream_end(&t, rc);
    else if (!rc)
        answer_collected(&t);
out:
    text_release(&t);
}
