/* POST /v1/responses: docs/api.md, "Responses".  Nothing is stored. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/server/answer.h"
#include "core/server/openai_responses.h"
#include "core/server/routes.h"

enum item_kind { ITEM_REASONING = 1, ITEM_MESSAGE = 2, ITEM_CALL = 3 };

struct item {
    enum item_kind kind;
    char id[SEAM_ID_MAX], call_id[SEAM_ID_MAX];
    struct seam_buf name, text; /* text: also the arguments of a call         */
    bool whole;                 /* a call that is one                         */
    bool
        sealed; /* reasoning with encrypted_content                           */
};

/* Items follow each other; only the last is open. */
struct response {
    struct seam_answer a;
    json_t *body;      /* what was asked, for the fields that are echoed      */
    struct item *item; /* [n_items]                                           */
    uint32_t n_items, cap_items;
    bool open;
    bool cut;    /* at a limit                                          */
    bool sealed; /* clients get reasoning to send back                  */
    json_int_t sequence;
    struct seam_buf line;
};

/* ---- Objects ------------------------------------------------------------- */

static json_t *text_json(const struct seam_buf *b)
{
    return json_stringn(b->p ? b->p : "", b->n);
}

/* What a message or reasoning holds, with the text given.  Takes it over. */
static json_t *part_json(const struct item *it, json_t *text)
{
    if (it->kind == ITEM_REASONING)
        return json_pack("{s:s, s:o}", "type", "reasoning_text", "text", text);
    return json_pack("{s:s, s:o, s:[]}", "type", "output_text", "text", text,
                     "annotations");
}

static json_t *item_json(const struct item *it, const char *status)
{
    bool begun = !strcmp(status, "in_progress");
    json_t *sealed = NULL;

    switch (it->kind) {
    case ITEM_REASONING:
        if (it->sealed && !begun)
            sealed =
                seam_responses_seal(it->text.p ? it->text.p : "", it->text.n);
        return json_pack(
            "{s:s, s:s, s:[], s:o, s:o*, s:s}", "type", "reasoning", "id",
            it->id, "summary", "content",
            begun ? json_array()
                  : json_pack("[o]", part_json(it, text_json(&it->text))),
            "encrypted_content", sealed, "status", status);
    case ITEM_MESSAGE:
        return json_pack(
            "{s:s, s:s, s:s, s:s, s:o}", "type", "message", "id", it->id,
            "role", "assistant", "status", status, "content",
            begun ? json_array()
                  : json_pack("[o]", part_json(it, text_json(&it->text))));
    case ITEM_CALL:
        break;
    }
    return json_pack(
        "{s:s, s:s, s:s, s:o, s:o, s:s}", "type", "function_call", "id", it->id,
        "call_id", it->call_id, "name", text_json(&it->name), "arguments",
        begun ? json_string("") : text_json(&it->text), "status", status);
}

static const char *item_status(const struct response *r, const struct item *it)
{
    bool last = it == &r->item[r->n_items - 1];

    if (it->kind == ITEM_CALL)
        return it->whole ? "completed" : "incomplete";
    return r->cut && last ? "incomplete" : "completed";
}

static json_t *usage_json(const struct response *r)
{
    struct seam_chat_usage u;

    seam_chat_usage(r->a.chat, &u);
    return json_pack("{s:I, s:{s:I}, s:I, s:{s:I}, s:I}", "input_tokens",
                     (json_int_t)u.prompt, "input_tokens_details",
                     "cached_tokens", (json_int_t)u.cached, "output_tokens",
                     (json_int_t)u.completion, "output_tokens_details",
                     "reasoning_tokens", (json_int_t)u.reasoning,
                     "total_tokens", (json_int_t)(u.prompt + u.completion));
}

static void echo(const struct response *r, json_t *v, const char *name,
                 json_t *preset)
{
    json_t *given = json_object_get(r->body, name);

    if (given && !json_is_null(given)) {
        json_object_set(v, name, given);
        json_decref(preset);
    } else {
        json_object_set_new(v, name, preset);
    }
}

/* A call that was cut is no call: it is left out. */
static json_t *response_json(const struct response *r, const char *status)
{
    json_t *output = json_array(), *v;
    bool begun = !strcmp(status, "in_progress");
    bool failed = !strcmp(status, "failed");

    for (uint32_t i = 0; i < r->n_items; i++)
        if (r->item[i].kind != ITEM_CALL || r->item[i].whole)
            json_array_append_new(
                output, item_json(&r->item[i], item_status(r, &r->item[i])));
    v = json_pack("{s:s, s:s, s:I, s:s, s:s, s:o, s:o, s:o, s:o}", "id",
                  r->a.id, "object", "response", "created_at",
                  (json_int_t)r->a.created, "status", status, "model",
                  r->a.model, "output", output, "error",
                  failed ? json_pack("{s:s, s:s}", "code", "server_error",
                                     "message", r->a.err.text)
                         : json_null(),
                  "incomplete_details",
                  r->cut ? json_pack("{s:s}", "reason", "max_output_tokens")
                         : json_null(),
                  "usage", begun ? json_null() : usage_json(r));
    echo(r, v, "parallel_tool_calls", json_true());
    echo(r, v, "tool_choice", json_string("auto"));
    echo(r, v, "tools", json_array());
    echo(r, v, "temperature", json_real(r->a.r.temperature));
    echo(r, v, "top_p", json_real(r->a.r.top_p));
    echo(r, v, "max_output_tokens", json_null());
    echo(r, v, "instructions", json_null());
    echo(r, v, "metadata", json_object());
    return v;
}

/* ---- Events -------------------------------------------------------------- */

/* Takes v over; type and number are added. */
static bool send_event(struct response *r, const char *type, json_t *v)
{
    char *text;
    bool ok;

    json_object_set_new(v, "type", json_string(type));
    json_object_set_new(v, "sequence_number", json_integer(r->sequence++));
    text = seam_spelling_dump(&r->a.r.spelling, v);
    ok = text && seam_sse_send(&r->a.sse, type, text, strlen(text));
    free(text);
    json_decref(v);
    return ok;
}

/* An event inside the open item; content_index for parts. */
static json_t *inner(const struct response *r)
{
    const struct item *it = &r->item[r->n_items - 1];
    json_t *v = json_pack("{s:s, s:i}", "item_id", it->id, "output_index",
                          (int)r->n_items - 1);

    if (it->kind != ITEM_CALL)
        json_object_set_new(v, "content_index", json_integer(0));
    return v;
}

static bool send_delta(struct response *r, struct seam_str s)
{
    const struct item *it = &r->item[r->n_items - 1];
    const char *type =
        it->kind == ITEM_REASONING ? "response.reasoning_text.delta"
        : it->kind == ITEM_MESSAGE ? "response.output_text.delta"
                                   : "response.function_call_arguments.delta";
    struct seam_buf *b = &r->line;

    seam_buf_clear(b);
    seam_buf_fmt(b,
                 "{\"type\":\"%s\",\"sequence_number\":%lld,\"item_id\":"
                 "\"%s\",\"output_index\":%u,%s%s\"delta\":",
                 type, (long long)r->sequence++, it->id, r->n_items - 1,
                 it->kind == ITEM_CALL ? "" : "\"content_index\":0,",
                 it->kind == ITEM_MESSAGE ? "\"logprobs\":[]," : "");
    seam_buf_json(b, s.p, s.n);
    seam_buf_str(b, "}");
    return !b->failed && seam_sse_send(&r->a.sse, type, b->p, b->n);
}

static bool send_added(struct response *r)
{
    const struct item *it = &r->item[r->n_items - 1];
    json_t *v;

    if (!send_event(r, "response.output_item.added",
                    json_pack("{s:i, s:o}", "output_index", (int)r->n_items - 1,
                              "item", item_json(it, "in_progress"))))
        return false;
    if (it->kind == ITEM_CALL)
        return true;
    v = inner(r);
    json_object_set_new(v, "part", part_json(it, json_string("")));
    return send_event(r, "response.content_part.added", v);
}

static bool send_done(struct response *r)
{
    const struct item *it = &r->item[r->n_items - 1];
    json_t *v = inner(r);
    bool ok;

    if (it->kind == ITEM_CALL) {
        json_object_set_new(v, "arguments", text_json(&it->text));
        json_object_set_new(v, "name", text_json(&it->name));
        ok = send_event(r, "response.function_call_arguments.done", v);
    } else {
        bool thinks = it->kind == ITEM_REASONING;

        json_object_set_new(v, "text", text_json(&it->text));
        if (!thinks)
            json_object_set_new(v, "logprobs", json_array());
        ok = send_event(r,
                        thinks ? "response.reasoning_text.done"
                               : "response.output_text.done",
                        v);
        v = inner(r);
        json_object_set_new(v, "part", part_json(it, text_json(&it->text)));
        ok = send_event(r, "response.content_part.done", v) && ok;
    }
    return send_event(r, "response.output_item.done",
                      json_pack("{s:i, s:o}", "output_index",
                                (int)r->n_items - 1, "item",
                                item_json(it, item_status(r, it)))) &&
           ok;
}

/* ---- Items --------------------------------------------------------------- */

/* 0, SEAM_ENOMEM, or 1: nobody reads. */
static int item_close(struct response *r)
{
    if (!r->open)
        return 0;
    r->open = false;
    return r->a.r.stream && !send_done(r);
}

static int item_begin(struct response *r, enum item_kind kind,
                      const struct seam_chat_event *ev)
{
    int rc = item_close(r);
    struct item *it;

    if (rc)
        return rc;
    if (r->n_items == r->cap_items) {
        uint32_t cap = r->cap_items ? 2 * r->cap_items : 8;
        struct item *p = realloc(r->item, cap * sizeof *p);

        if (!p)
            return SEAM_ENOMEM;
        r->item = p;
        r->cap_items = cap;
    }
    it = &r->item[r->n_items++];
    memset(it, 0, sizeof *it);
    it->kind = kind;
    it->sealed = r->sealed;
    r->open = true;
    seam_id_make(it->id, kind == ITEM_REASONING ? "rs_"
                         : kind == ITEM_MESSAGE ? "msg_"
                                                : "fc_");
    if (kind == ITEM_CALL) {
        memcpy(it->call_id, ev->id, strlen(ev->id) + 1);
        seam_buf_add(&it->name, ev->text.p, ev->text.n);
    }
    return r->a.r.stream && !send_added(r);
}

static int item_text(struct response *r, enum item_kind kind,
                     const struct seam_chat_event *ev)
{
    struct item *it = r->n_items ? &r->item[r->n_items - 1] : NULL;
    int rc = 0;

    if (!r->open || it->kind != kind)
        rc = item_begin(r, kind, ev);
    if (rc)
        return rc;
    it = &r->item[r->n_items - 1];
    seam_buf_add(&it->text, ev->text.p, ev->text.n);
    if (it->text.failed)
        return SEAM_ENOMEM;
    return r->a.r.stream && !send_delta(r, ev->text);
}

static int on_event(void *ctx, const struct seam_chat_event *ev)
{
    struct response *r = ctx;

    switch (ev->kind) {
    case SEAM_CHAT_BEGIN:
        return r->a.r.stream &&
               !(send_event(r, "response.created",
                            json_pack("{s:o}", "response",
                                      response_json(r, "in_progress"))) &&
                 send_event(r, "response.in_progress",
                            json_pack("{s:o}", "response",
                                      response_json(r, "in_progress"))));
    case SEAM_CHAT_TEXT:
        return item_text(r, ITEM_MESSAGE, ev);
    case SEAM_CHAT_REASONING:
        return item_text(r, ITEM_REASONING, ev);
    case SEAM_CHAT_TOOL_BEGIN:
        return item_begin(r, ITEM_CALL, ev);
    case SEAM_CHAT_TOOL_ARGS:
        return item_text(r, ITEM_CALL, ev);
    case SEAM_CHAT_TOOL_END:
        r->item[r->n_items - 1].whole = true;
        return item_close(r);
    case SEAM_CHAT_FINISH:
        r->cut = ev->finish == SEAM_FINISH_LENGTH;
        /* An answer always has a message or a call. */
        if (!r->n_items && !r->cut) {
            int rc = item_begin(r, ITEM_MESSAGE, ev);

            if (rc)
                return rc;
        }
        return item_close(r);
    default:
        return 0;
    }
}

/* ---- The answer ---------------------------------------------------------- */

static void stream_end(struct response *r, int rc)
{
    const char *status = rc < 0   ? "failed"
                         : r->cut ? "incomplete"
                                  : "completed";
    char type[32];

    snprintf(type, sizeof type, "response.%s", status);
    send_event(r, type,
               json_pack("{s:o}", "response", response_json(r, status)));
}

/* What was asked, and the chat it means; NULL: the error was sent. */
static json_t *read_chat(struct seam_http *h, struct seam_converted *c)
{
    struct seam_api_error e;
    json_t *body;

    *c = (struct seam_converted){ .names = seam_responses_names };
    body = seam_request_json(h->body.p ? h->body.p : "", h->body.n,
                             &c->spelling, &e);
    if (body)
        c->chat = seam_responses_chat(body, &c->ignored, &e);
    if (c->chat) {
        json_object_del(body, "input"); /* the largest part, not repeated */
        return body;
    }
    seam_http_fail(h, &e);
    seam_converted_release(c);
    json_decref(body);
    return NULL;
}

void seam_api_responses(struct seam_http *h)
{
    struct response r = { 0 };
    struct seam_converted chat;
    int rc;

    r.body = read_chat(h, &chat);
    if (!r.body)
        return;
    r.sealed = seam_responses_wants_sealed(r.body);
    if (seam_answer_open(&r.a, h, SEAM_REQUEST_CHAT, "resp_", &chat)) {
        json_decref(r.body);
        return;
    }
    if (r.a.r.stream)
        seam_sse_begin(&r.a.sse, h);
    rc = seam_answer_run(&r.a, on_event, &r);
    if (r.a.r.stream && rc <= 0)
        stream_end(&r, rc);
    else if (!rc)
        seam_http_spelled(h, 200,
                          response_json(&r, r.cut ? "incomplete" : "completed"),
                          &r.a.r.spelling);
    for (uint32_t i = 0; i < r.n_items; i++) {
        seam_buf_release(&r.item[i].name);
        seam_buf_release(&r.item[i].text);
    }
    free(r.item);
    json_decref(r.body);
    seam_buf_release(&r.line);
    seam_answer_release(&r.a);
}

void seam_api_input_tokens(struct seam_http *h)
{
    struct seam_converted chat;
    json_t *body = read_chat(h, &chat);

    if (body)
        seam_answer_count(h, &chat, "response.input_tokens");
    json_decref(body);
}

void seam_api_response(struct seam_http *h)
{
    struct seam_api_error e;

    seam_api_fail(&e, 404, "not_found", NULL, "responses are not stored");
    seam_http_fail(h, &e);
}
