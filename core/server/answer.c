#include "core/server/answer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "core/base/num.h"
#include "core/server/constraint.h"
#include "core/server/frame.h"

const char *seam_fingerprint(void)
{
    return "seam-" SEAM_VERSION;
}

const char *seam_finish_name(enum seam_finish f)
{
    return f == SEAM_FINISH_CALLS    ? "tool_calls"
           : f == SEAM_FINISH_LENGTH ? "length"
                                     : "stop";
}

json_t *seam_stop_reason_json(const struct seam_answer *a,
                              const struct seam_chat_event *finish)
{
    if (finish->stop_string >= 0)
        return json_stringn(a->r.stop[finish->stop_string].p,
                            a->r.stop[finish->stop_string].n);
    for (uint32_t i = 0; i < a->r.n_stop_id; i++)
        if (finish->stop_id == a->r.stop_id[i])
            return json_integer(finish->stop_id);
    return json_null();
}

void seam_answer_limits(struct seam_http *h, struct seam_request_limits *l)
{
    const struct seam_config *c = h->s->config;
    struct seam_engine *e = seam_server_engine(h->s);

    *l = (struct seam_request_limits){
        .vocab = seam_engine_vocab(e),
        .max_n = c->server.max_n < SEAM_MAX_N ? (uint32_t)c->server.max_n
                                              : SEAM_MAX_N,
        /* OpenAI allows 4; Anthropic names no limit. */
        .max_stops = h->api == SEAM_API_ANTHROPIC ? SEAM_MAX_STOPS : 4,
        .priority_min = (int32_t)c->server.priority_min,
        .priority_max = (int32_t)c->server.priority_max,
    };
    seam_engine_defaults(e, &l->temperature, &l->top_p);
}

int seam_answer_model(struct seam_http *h, const char *name, const char **out,
                      struct seam_api_error *e)
{
    if (name && !seam_server_knows_model(h->s, name))
        return seam_api_fail(e, 404, "model_not_found", "model",
                             "the model that was asked for is not served here; "
                             "this server has %s",
                             seam_server_model(h->s));
    *out = name ? name : seam_server_model(h->s);
    return 0;
}

void seam_answer_ignored(struct seam_http *h, const struct seam_buf *ignored)
{
    if (!ignored->n)
        return;
    seam_http_add(h, "X-Seam-Ignored", ignored->p);
    seam_log(h->s->log, SEAM_LOG_DEBUG, "server",
             "%s: fields without effect: %s", h->id, ignored->p);
}

/* Whose turn it takes: with several keys the key's, so that nobody gains by
 * inventing users; else the user's that it names.  X-Request-Timeout counts
 * like the field. */
static int answer_headers(struct seam_answer *a)
{
    static const char name[] = "X-Request-Timeout";
    char v[64];
    double seconds = 0;
    uint64_t ms = 0;
    uint32_t n = seam_frame_count(a->h->ri, name);
    const char *s = seam_http_header(a->h, name, v, sizeof v);

    if (a->h->s->auth.n_keys > 1)
        a->r.tenant = a->h->key;
    if (!n || (n == 1 && s && !*s))
        return 0;
    if (n > 1 || !s || !seam_parse_f64(s, &seconds))
        seconds = 0; /* as bad as none at all */
    if (seam_request_timeout(seconds, name, &ms, &a->err))
        return -1;
    if (!a->r.timeout_ms || ms < a->r.timeout_ms)
        a->r.timeout_ms = ms;
    return 0;
}

int seam_answer_open(struct seam_answer *a, struct seam_http *h,
                     enum seam_request_kind kind, const char *id_prefix,
                     struct seam_converted *chat)
{
    struct seam_request_limits l;
    const struct seam_api_name *names = chat ? chat->names : NULL;
    struct seam_str text = { h->body.p, h->body.n };
    char *made = NULL;
    int rc;

    memset(a, 0, sizeof *a);
    a->h = h;
    seam_answer_limits(h, &l);
    if (chat)
        rc = seam_request_adopt(&a->r, chat, &l, &a->err);
    else
        rc = seam_request_parse(&a->r, kind, text.p, text.n, &l, &a->err);
    if (!rc)
        rc = answer_headers(a);
    if (!rc)
        rc = seam_answer_model(h, a->r.model, &a->model, &a->err);
    /* The client's own text keeps numbers as they were written. */
    if (!rc && kind == SEAM_REQUEST_CHAT &&
        (chat || seam_chat_is_mapped(&a->r))) {
        made = seam_chat_text(&a->r);
        if (made)
            text = (struct seam_str){ made, strlen(made) };
        else
            rc = seam_api_fail(&a->err, 503, "overloaded", NULL, "no memory");
    }
    if (!rc)
        rc = seam_chat_open(&a->chat, seam_server_engine(h->s), &a->r, text,
                            &a->err);
    free(made);
    if (rc) {
        if (names)
            seam_api_rename(&a->err, names);
        seam_http_fail(h, &a->err);
        seam_answer_release(a);
        return -1;
    }
    seam_id_make(a->id, id_prefix);
    a->created = time(NULL);
    seam_constraint_note(seam_server_engine(h->s), &a->r);
    seam_answer_ignored(h, &a->r.ignored);
    return 0;
}

void seam_answer_count(struct seam_http *h, struct seam_converted *chat,
                       const char *object)
{
    struct seam_engine *engine = seam_server_engine(h->s);
    const struct seam_api_name *names = chat->names;
    struct seam_request_limits l;
    struct seam_request r = { 0 };
    struct seam_api_error e;
    struct seam_ids ids = { 0 };
    const char *model;
    char *text = NULL;
    int rc;

    seam_answer_limits(h, &l);
    rc = seam_request_adopt(&r, chat, &l, &e);
    if (!rc)
        rc = seam_answer_model(h, r.model, &model, &e);
    if (!rc) {
        text = seam_chat_text(&r);
        rc = text
                 ? seam_chat_render(engine,
                                    (struct seam_str){ text, strlen(text) },
                                    seam_chat_count_max(engine), NULL, &ids, &e)
                 : seam_api_fail(&e, 503, "overloaded", NULL, "no memory");
    }
    if (rc) {
        seam_api_rename(&e, names);
        seam_http_fail(h, &e);
    } else {
        seam_answer_ignored(h, &r.ignored);
        seam_http_json(h, 200,
                       json_pack("{s:s*, s:I}", "object", object,
                                 "input_tokens", (json_int_t)ids.n));
    }
    free(text);
    seam_ids_release(&ids);
    seam_request_release(&r);
}

struct run {
    struct seam_answer *a;
    int (*event)(void *ctx, const struct seam_chat_event *ev);
    void *ctx;
};

static int run_event(void *ctx, const struct seam_chat_event *ev)
{
    struct run *run = ctx;

    if (ev->kind == SEAM_CHAT_FINISH)
        run->a->finish = seam_finish_name(ev->finish);
    return run->event(run->ctx, ev);
}

static int run_poll(void *ctx)
{
    struct seam_answer *a = ((struct run *)ctx)->a;

    if (seam_http_gone(a->h))
        return 1;
    return a->h->streaming && !seam_sse_ping(&a->sse);
}

int seam_answer_run(struct seam_answer *a,
                    int (*event)(void *ctx, const struct seam_chat_event *ev),
                    void *ctx)
{
    struct seam_http *h = a->h;
    struct run run = { a, event, ctx };
    struct seam_chat_sink sink = { .ctx = &run,
                                   .event = run_event,
                                   .poll = run_poll,
                                   .poll_ms = SEAM_HTTP_POLL_MS };
    struct seam_chat_usage u;
    int rc = seam_chat_run(a->chat, &sink, &a->err);

    seam_chat_usage(a->chat, &u);
    if (rc > 0) {
        bool slow = seam_conn_expired(h->s->conns, h->c);

        atomic_fetch_add(&h->s->cancelled, 1);
        h->status = 499;
        h->broken = true;
        snprintf(h->note, sizeof h->note,
                 "cancelled: the client %s; prompt %llu, completion %llu",
                 slow ? "does not read" : "left", (unsigned long long)u.prompt,
                 (unsigned long long)u.completion);
        return 1;
    }
    snprintf(h->note, sizeof h->note, "prompt %llu, completion %llu%s%s",
             (unsigned long long)u.prompt, (unsigned long long)u.completion,
             a->finish ? ", " : "", a->finish ? a->finish : "");
    if (rc < 0 && !h->streaming)
        seam_http_fail(h, &a->err);
    return rc;
}

void seam_answer_release(struct seam_answer *a)
{
    seam_chat_free(a->chat);
    seam_request_release(&a->r);
    seam_sse_release(&a->sse);
    a->chat = NULL;
}

json_t *seam_usage_json(const struct seam_chat_usage *u)
{
    return json_pack("{s:I, s:I, s:I, s:{s:I}, s:{s:I}}", "prompt_tokens",
                     (json_int_t)u->prompt, "completion_tokens",
                     (json_int_t)u->completion, "total_tokens",
                     (json_int_t)(u->prompt + u->completion),
                     "prompt_tokens_details", "cached_tokens",
                     (json_int_t)u->cached, "completion_tokens_details",
                     "reasoning_tokens", (json_int_t)u->reasoning);
}

json_t *seam_logprob_number(float v)
{
    return json_real(isfinite(v) ? (double)v : -9999.0);
}

static json_t *logprob_one(const struct seam_tokenizer *t, int32_t id,
                           float logprob)
{
    struct seam_buf text = { 0 };
    struct seam_str bytes = { 0 };
    json_t *list = json_array(), *v;

    seam_chat_token_text(t, id, &text);
    if (seam_tokenizer_bytes(t, id, &bytes))
        for (uint64_t i = 0; i < bytes.n; i++)
            json_array_append_new(list,
                                  json_integer((unsigned char)bytes.p[i]));
    v = json_pack("{s:o, s:o, s:o}", "token",
                  json_stringn(text.p ? text.p : "", text.n), "logprob",
                  seam_logprob_number(logprob), "bytes", list);
    seam_buf_release(&text);
    return v;
}

json_t *seam_logprob_json(const struct seam_tokenizer *t,
                          const struct seam_gen_token *tok)
{
    json_t *v = logprob_one(t, tok->id, tok->logprob), *top = json_array();

    for (uint32_t i = 0; i < tok->n_top; i++)
        json_array_append_new(
            top, logprob_one(t, tok->top_id[i], tok->top_logprob[i]));
    json_object_set_new(v, "top_logprobs", top);
    return v;
}
