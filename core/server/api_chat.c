/* POST /v1/chat/completions: docs/api.md, "Chat completions". */
#include <stdlib.h>
#include <string.h>

#include "core/server/answer.h"
#include "core/server/reasoning.h"
#include "core/server/routes.h"

struct call {
    char id[SEAM_ID_MAX];
    struct seam_buf name, args;
    bool whole;
};

/* One choice of an answer that is not streamed. */
struct message {
    struct seam_buf content, reasoning;
    struct call *call; /* [n_calls] */
    uint32_t n_calls, cap_calls;
    json_t *logprobs; /* list, or NULL                                 */
    struct seam_chat_event finish;
};

struct chat_answer {
    struct seam_answer a;
    struct seam_reasoning *reasoning; /* [choices]                            */
    struct message *message;          /* [choices]; NULL when streaming       */
    bool field_content, field_plain;  /* names of the reasoning field         */
    struct seam_buf head;             /* of every chunk, up to "choices":[    */
    struct seam_buf chunk;
};

static json_t *logprob_list(const struct chat_answer *c,
                            const struct seam_chat_event *ev)
{
    const struct seam_tokenizer *t =
        seam_engine_tokenizer(seam_server_engine(c->a.h->s));
    json_t *list = json_array();

    for (uint32_t i = 0; i < ev->n_tokens; i++)
        json_array_append_new(list, seam_logprob_json(t, &ev->token[i].t));
    return list;
}

/* ---- Collected ----------------------------------------------------------- */

static struct call *message_call(struct message *m, uint32_t index)
{
    if (index >= m->cap_calls) {
        uint32_t cap = index + 8;
        struct call *p = realloc(m->call, cap * sizeof *p);

        if (!p)
            return NULL;
        memset(p + m->cap_calls, 0, (cap - m->cap_calls) * sizeof *p);
        m->call = p;
        m->cap_calls = cap;
    }
    if (index >= m->n_calls)
        m->n_calls = index + 1;
    return &m->call[index];
}

static int collect(void *ctx, const struct seam_chat_event *ev)
{
    struct chat_answer *c = ctx;
    struct message *m = &c->message[ev->choice];
    struct call *call = NULL;

    if (ev->n_tokens && m->logprobs) {
        json_t *list = logprob_list(c, ev);

        json_array_extend(m->logprobs, list);
        json_decref(list);
    }
    if (ev->kind == SEAM_CHAT_TOOL_BEGIN || ev->kind == SEAM_CHAT_TOOL_ARGS ||
        ev->kind == SEAM_CHAT_TOOL_END) {
        call = message_call(m, ev->index);
        if (!call)
            return SEAM_ENOMEM;
    }
    switch (ev->kind) {
    case SEAM_CHAT_TEXT:
        seam_buf_add(&m->content, ev->text.p, ev->text.n);
        break;
    case SEAM_CHAT_REASONING:
        seam_buf_add(&m->reasoning, ev->text.p, ev->text.n);
        break;
    case SEAM_CHAT_TOOL_BEGIN:
        memcpy(call->id, ev->id, strlen(ev->id) + 1);
        seam_buf_add(&call->name, ev->text.p, ev->text.n);
        break;
    case SEAM_CHAT_TOOL_ARGS:
        seam_buf_add(&call->args, ev->text.p, ev->text.n);
        break;
    case SEAM_CHAT_TOOL_END:
        call->whole = true;
        break;
    case SEAM_CHAT_FINISH:
        m->finish = *ev;
        break;
    default:
        break;
    }
    return m->content.failed || m->reasoning.failed ? SEAM_ENOMEM : 0;
}

static json_t *text_json(const struct seam_buf *b)
{
    return json_stringn(b->p ? b->p : "", b->n);
}

static json_t *message_calls(const struct message *m)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < m->n_calls; i++) {
        const struct call *call = &m->call[i];

        if (call->whole)
            json_array_append_new(
                list, json_pack("{s:s, s:s, s:{s:o, s:o}}", "id", call->id,
                                "type", "function", "function", "name",
                                text_json(&call->name), "arguments",
                                text_json(&call->args)));
    }
    return list;
}

static json_t *message_json(const struct chat_answer *c,
                            const struct message *m)
{
    json_t *calls = message_calls(m), *v = json_object();
    bool cut = m->finish.finish == SEAM_FINISH_LENGTH;

    json_object_set_new(v, "role", json_string("assistant"));
    /* No text and none to be expected. */
    if (!m->content.n && (json_array_size(calls) || (cut && m->reasoning.n)))
        json_object_set_new(v, "content", json_null());
    else
        json_object_set_new(v, "content", text_json(&m->content));
    if (m->reasoning.n && c->field_content)
        json_object_set_new(v, "reasoning_content", text_json(&m->reasoning));
    if (m->reasoning.n && c->field_plain)
        json_object_set_new(v, "reasoning", text_json(&m->reasoning));
    json_object_set_new(v, "refusal", json_null());
    if (json_array_size(calls))
        json_object_set(v, "tool_calls", calls);
    json_decref(calls);
    return v;
}

static void answer_collected(struct chat_answer *c)
{
    struct seam_answer *a = &c->a;
    struct seam_chat_usage u;
    json_t *choices = json_array();

    for (uint32_t i = 0; i < seam_chat_choices(a->chat); i++) {
        struct message *m = &c->message[i];
        json_t *logprobs = json_null();

        if (m->logprobs)
            logprobs =
                json_pack("{s:O, s:n}", "content", m->logprobs, "refusal");
        json_array_append_new(
            choices,
            json_pack("{s:i, s:o, s:o, s:s, s:o}", "index", (int)i, "message",
                      message_json(c, m), "logprobs", logprobs, "finish_reason",
                      seam_finish_name(m->finish.finish), "stop_reason",
                      seam_stop_reason_json(a, &m->finish)));
    }
    seam_chat_usage(a->chat, &u);
    seam_http_json(a->h, 200,
                   json_pack("{s:s, s:s, s:I, s:s, s:s, s:o, s:o}", "id", a->id,
                             "object", "chat.completion", "created",
                             (json_int_t)a->created, "model", a->model,
                             "system_fingerprint", seam_fingerprint(),
                             "choices", choices, "usage", seam_usage_json(&u)));
}

/* ---- Streamed ------------------------------------------------------------ */

static void chunk_usage(struct chat_answer *c, bool now)
{
    struct seam_chat_usage u;
    json_t *v;
    char *text;

    if (!c->a.r.include_usage)
        return;
    if (!now) {
        seam_buf_str(&c->chunk, ",\"usage\":null");
        return;
    }
    seam_chat_usage(c->a.chat, &u);
    v = seam_usage_json(&u);
    text = json_dumps(v, JSON_COMPACT);
    seam_buf_str(&c->chunk, ",\"usage\":");
    seam_buf_str(&c->chunk, text ? text : "null");
    free(text);
    json_decref(v);
}

/* Begin a chunk of one choice, up to the delta's content. */
static void chunk_begin(struct chat_answer *c, uint32_t choice)
{
    seam_buf_clear(&c->chunk);
    seam_buf_add(&c->chunk, c->head.p, c->head.n);
    seam_buf_fmt(&c->chunk, "{\"index\":%u,\"delta\":{", choice);
}

static bool chunk_end(struct chat_answer *c, const struct seam_chat_event *ev)
{
    struct seam_buf *b = &c->chunk;
    char *text;

    seam_buf_str(b, "},\"logprobs\":");
    if (ev->n_tokens) {
        json_t *list = logprob_list(c, ev);

        text = json_dumps(list, JSON_COMPACT | JSON_REAL_PRECISION(9));
        seam_buf_str(b, "{\"content\":");
        seam_buf_str(b, text ? text : "[]");
        seam_buf_str(b, ",\"refusal\":null}");
        free(text);
        json_decref(list);
    } else {
        seam_buf_str(b, "null");
    }
    if (ev->kind == SEAM_CHAT_FINISH) {
        json_t *why = seam_stop_reason_json(&c->a, ev);

        text = json_dumps(why, JSON_COMPACT | JSON_ENCODE_ANY);
        seam_buf_fmt(b, ",\"finish_reason\":\"%s\",\"stop_reason\":%s}]",
                     seam_finish_name(ev->finish), text ? text : "null");
        free(text);
        json_decref(why);
    } else {
        seam_buf_str(b, ",\"finish_reason\":null}]");
    }
    chunk_usage(c, c->a.r.continuous_usage);
    seam_buf_str(b, "}");
    return !b->failed && seam_sse_send(&c->a.sse, NULL, b->p, b->n);
}

static void chunk_field(struct chat_answer *c, const char *name,
                        const struct seam_chat_event *ev)
{
    seam_buf_fmt(&c->chunk, "\"%s\":", name);
    seam_buf_json(&c->chunk, ev->text.p, ev->text.n);
}

static int stream(void *ctx, const struct seam_chat_event *ev)
{
    struct chat_answer *c = ctx;
    struct seam_buf *b = &c->chunk;

    chunk_begin(c, ev->choice);
    switch (ev->kind) {
    case SEAM_CHAT_BEGIN:
        seam_buf_str(b, "\"role\":\"assistant\",\"content\":\"\"");
        break;
    case SEAM_CHAT_TEXT:
        chunk_field(c, "content", ev);
        break;
    case SEAM_CHAT_REASONING:
        if (c->field_content)
            chunk_field(c, "reasoning_content", ev);
        if (c->field_content && c->field_plain)
            seam_buf_str(b, ",");
        if (c->field_plain)
            chunk_field(c, "reasoning", ev);
        break;
    case SEAM_CHAT_TOOL_BEGIN:
        seam_buf_fmt(b,
                     "\"tool_calls\":[{\"index\":%u,\"id\":\"%s\","
                     "\"type\":\"function\",\"function\":{\"name\":",
                     ev->index, ev->id);
        seam_buf_json(b, ev->text.p, ev->text.n);
        seam_buf_str(b, ",\"arguments\":\"\"}}]");
        break;
    case SEAM_CHAT_TOOL_ARGS:
        seam_buf_fmt(b,
                     "\"tool_calls\":[{\"index\":%u,\"function\":"
                     "{\"arguments\":",
                     ev->index);
        seam_buf_json(b, ev->text.p, ev->text.n);
        seam_buf_str(b, "}}]");
        break;
    case SEAM_CHAT_FINISH:
        break;
    default:
        return 0;
    }
    return !chunk_end(c, ev);
}

static void stream_end(struct chat_answer *c, int rc)
{
    struct seam_buf *b = &c->chunk;

    seam_buf_clear(b);
    if (rc < 0) {
        seam_api_error_json(&c->a.err, b);
        seam_sse_send(&c->a.sse, NULL, b->p, b->n);
    } else if (c->a.r.include_usage) {
        seam_buf_add(b, c->head.p, c->head.n);
        seam_buf_str(b, "]");
        chunk_usage(c, true);
        seam_buf_str(b, "}");
        seam_sse_send(&c->a.sse, NULL, b->p, b->n);
    }
    seam_sse_send(&c->a.sse, NULL, "[DONE]", 6);
}

static void stream_head(struct chat_answer *c)
{
    struct seam_answer *a = &c->a;

    seam_buf_fmt(&c->head,
                 "{\"id\":\"%s\",\"object\":\"chat.completion.chunk\","
                 "\"created\":%lld,\"model\":",
                 a->id, (long long)a->created);
    seam_buf_json(&c->head, a->model, strlen(a->model));
    seam_buf_fmt(&c->head, ",\"system_fingerprint\":\"%s\",\"choices\":[",
                 seam_fingerprint());
}

/* ---- Both ---------------------------------------------------------------- */

static int on_event(void *ctx, const struct seam_chat_event *ev)
{
    struct chat_answer *c = ctx;

    return seam_reasoning_event(&c->reasoning[ev->choice], ev,
                                c->message ? collect : stream, c);
}

static bool chat_prepare(struct chat_answer *c)
{
    const struct seam_request *r = &c->a.r;
    const char *field = c->a.h->s->config->server.reasoning_field;
    uint32_t n = seam_chat_choices(c->a.chat);

    c->field_plain = field && strcmp(field, "reasoning_content");
    c->field_content = !field || strcmp(field, "reasoning");
    c->reasoning = calloc(n, sizeof *c->reasoning);
    if (!r->stream)
        c->message = calloc(n, sizeof *c->message);
    if (!c->reasoning || (!r->stream && !c->message))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        seam_reasoning_init(&c->reasoning[i], r);
        if (c->message && r->logprobs)
            c->message[i].logprobs = json_array();
    }
    if (r->stream)
        stream_head(c);
    return !c->head.failed;
}

static void chat_release(struct chat_answer *c)
{
    uint32_t n = c->a.chat ? seam_chat_choices(c->a.chat) : 0;

    for (uint32_t i = 0; i < n && c->message; i++) {
        struct message *m = &c->message[i];

        seam_buf_release(&m->content);
        seam_buf_release(&m->reasoning);
        for (uint32_t j = 0; j < m->n_calls; j++) {
            seam_buf_release(&m->call[j].name);
            seam_buf_release(&m->call[j].args);
        }
        free(m->call);
        json_decref(m->logprobs);
    }
    for (uint32_t i = 0; i < n && c->reasoning; i++)
        seam_reasoning_release(&c->reasoning[i]);
    free(c->message);
    free(c->reasoning);
    seam_buf_release(&c->head);
    seam_buf_release(&c->chunk);
    seam_answer_release(&c->a);
}

void seam_api_chat(struct seam_http *h)
{
    struct chat_answer c = { 0 };
    int rc;

    if (seam_answer_open(&c.a, h, SEAM_REQUEST_CHAT, "chatcmpl-", NULL))
        return;
    if (!chat_prepare(&c)) {
        seam_api_fail(&c.a.err, 503, "overloaded", NULL, "no memory");
        seam_http_fail(h, &c.a.err);
        goto out;
    }
    if (c.a.r.stream)
        seam_sse_begin(&c.a.sse, h);
    rc = seam_answer_run(&c.a, on_event, &c);
    if (c.a.r.stream && rc <= 0)
        stream_end(&c, rc);
    else if (!rc)
        answer_collected(&c);
out:
    chat_release(&c);
}
