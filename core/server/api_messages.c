/* POST /v1/messages and /v1/messages/count_tokens: docs/api.md, "Messages". */
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "core/server/anthropic.h"
#include "core/server/answer.h"
#include "core/server/routes.h"

enum block_kind { BLOCK_NONE = 0, BLOCK_THINKING, BLOCK_TEXT, BLOCK_TOOL };

struct block {
    enum block_kind kind;
    char id[SEAM_ID_MAX];
    struct seam_buf name, text; /* text: also the input of a tool             */
    bool whole;                 /* a tool's call                              */
};

/* Blocks follow each other; only the last is open. */
struct messages_answer {
    struct seam_answer a;
    struct block *block; /* [n_blocks]; text is kept only when collecting     */
    uint32_t n_blocks, cap_blocks;
    bool open;
    struct seam_chat_event finish;
    struct seam_buf line;
};

static const char *stop_name(const struct seam_chat_event *ev)
{
    if (ev->finish == SEAM_FINISH_CALLS)
        return "tool_use";
    if (ev->finish == SEAM_FINISH_LENGTH)
        return "max_tokens";
    return ev->stop_string >= 0 ? "stop_sequence" : "end_turn";
}

static json_t *stop_sequence(const struct seam_answer *a,
                             const struct seam_chat_event *ev)
{
    return ev->stop_string >= 0 ? json_stringn(a->r.stop[ev->stop_string].p,
                                               a->r.stop[ev->stop_string].n)
                                : json_null();
}

static json_t *usage_json(const struct seam_answer *a)
{
    struct seam_chat_usage u;

    seam_chat_usage(a->chat, &u);
    return json_pack("{s:I, s:i, s:I, s:I}", "input_tokens",
                     (json_int_t)(u.prompt - u.cached),
                     "cache_creation_input_tokens", 0,
                     "cache_read_input_tokens", (json_int_t)u.cached,
                     "output_tokens", (json_int_t)u.completion);
}

static struct block *block_new(struct messages_answer *m, enum block_kind kind)
{
    struct block *b;

    if (m->n_blocks == m->cap_blocks) {
        uint32_t cap = m->cap_blocks ? 2 * m->cap_blocks : 8;
        struct block *p = realloc(m->block, cap * sizeof *p);

        if (!p)
            return NULL;
        m->block = p;
        m->cap_blocks = cap;
    }
    b = &m->block[m->n_blocks++];
    memset(b, 0, sizeof *b);
    b->kind = kind;
    m->open = true;
    return b;
}

/* ---- Streamed ------------------------------------------------------------ */

/* Takes v over. */
static bool send_event(struct messages_answer *m, const char *name, json_t *v)
{
    char *text = v ? json_dumps(v, JSON_COMPACT) : NULL;
    bool ok = text && seam_sse_send(&m->a.sse, name, text, strlen(text));

    free(text);
    json_decref(v);
    return ok;
}

static bool send_delta(struct messages_answer *m, const char *type,
                       const char *field, struct seam_str s)
{
    struct seam_buf *b = &m->line;

    seam_buf_clear(b);
    seam_buf_fmt(b,
                 "{\"type\":\"content_block_delta\",\"index\":%u,\"delta\":"
                 "{\"type\":\"%s\",\"%s\":",
                 m->n_blocks - 1, type, field);
    seam_buf_json(b, s.p ? s.p : "", s.n);
    seam_buf_str(b, "}}");
    return !b->failed &&
           seam_sse_send(&m->a.sse, "content_block_delta", b->p, b->n);
}

static bool send_stop(struct messages_answer *m)
{
    bool ok = true;

    if (!m->open)
        return true;
    m->open = false;
    if (m->block[m->n_blocks - 1].kind == BLOCK_THINKING)
        ok = send_delta(m, "signature_delta", "signature",
                        (struct seam_str){ "", 0 });
    return ok &&
           send_event(m, "content_block_stop",
                      json_pack("{s:s, s:i}", "type", "content_block_stop",
                                "index", (int)m->n_blocks - 1));
}

static bool send_start(struct messages_answer *m, enum block_kind kind,
                       const struct seam_chat_event *ev)
{
    json_t *v;

    if (!send_stop(m) || !block_new(m, kind))
        return false;
    if (kind == BLOCK_THINKING)
        v = json_pack("{s:s, s:s, s:s}", "type", "thinking", "thinking", "",
                      "signature", "");
    else if (kind == BLOCK_TEXT)
        v = json_pack("{s:s, s:s}", "type", "text", "text", "");
    else
        v = json_pack("{s:s, s:s, s:o, s:{}}", "type", "tool_use", "id", ev->id,
                      "name", json_stringn(ev->text.p, ev->text.n), "input");
    return send_event(m, "content_block_start",
                      json_pack("{s:s, s:i, s:o}", "type",
                                "content_block_start", "index",
                                (int)m->n_blocks - 1, "content_block", v));
}

static bool send_text(struct messages_answer *m, enum block_kind kind,
                      const struct seam_chat_event *ev)
{
    bool goes_on = m->open && m->block[m->n_blocks - 1].kind == kind;

    if (!goes_on && !send_start(m, kind, ev))
        return false;
    return kind == BLOCK_THINKING
               ? send_delta(m, "thinking_delta", "thinking", ev->text)
               : send_delta(m, "text_delta", "text", ev->text);
}

static json_t *message_json(const struct messages_answer *m, json_t *content,
                            json_t *reason, json_t *sequence)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:o}", "id", m->a.id,
                     "type", "message", "role", "assistant", "model",
                     m->a.model, "content", content, "stop_reason", reason,
                     "stop_sequence", sequence, "usage", usage_json(&m->a));
}

static bool stream(struct messages_answer *m, const struct seam_chat_event *ev)
{
    switch (ev->kind) {
    case SEAM_CHAT_BEGIN:
        return send_event(
            m, "message_start",
            json_pack("{s:s, s:o}", "type", "message_start", "message",
                      message_json(m, json_array(), json_null(), json_null())));
    case SEAM_CHAT_TEXT:
        return send_text(m, BLOCK_TEXT, ev);
    case SEAM_CHAT_REASONING:
        return send_text(m, BLOCK_THINKING, ev);
    case SEAM_CHAT_TOOL_BEGIN:
        return send_start(m, BLOCK_TOOL, ev);
    case SEAM_CHAT_TOOL_ARGS:
        return send_delta(m, "input_json_delta", "partial_json", ev->text);
    case SEAM_CHAT_TOOL_END:
        return send_stop(m);
    case SEAM_CHAT_FINISH:
        m->finish = *ev;
        break;
    default:
        break;
    }
    return true;
}

static void stream_end(struct messages_answer *m, int rc)
{
    struct seam_chat_event none = { 0 };

    if (rc < 0) {
        seam_buf_clear(&m->line);
        seam_api_error_anthropic(&m->a.err, m->a.h->id, &m->line);
        seam_sse_send(&m->a.sse, "error", m->line.p, m->line.n);
        return;
    }
    if (!m->n_blocks && !send_start(m, BLOCK_TEXT, &none))
        return;
    if (send_stop(m) &&
        send_event(m, "message_delta",
                   json_pack("{s:s, s:{s:s, s:o}, s:o}", "type",
                             "message_delta", "delta", "stop_reason",
                             stop_name(&m->finish), "stop_sequence",
                             stop_sequence(&m->a, &m->finish), "usage",
                             usage_json(&m->a))))
        send_event(m, "message_stop",
                   json_pack("{s:s}", "type", "message_stop"));
}

/* ---- Collected ----------------------------------------------------------- */

static int collect(struct messages_answer *m, const struct seam_chat_event *ev)
{
    enum block_kind kind = BLOCK_NONE;
    struct block *b = m->n_blocks ? &m->block[m->n_blocks - 1] : NULL;

    switch (ev->kind) {
    case SEAM_CHAT_TEXT:
        kind = BLOCK_TEXT;
        break;
    case SEAM_CHAT_REASONING:
        kind = BLOCK_THINKING;
        break;
    case SEAM_CHAT_TOOL_BEGIN:
        b = block_new(m, BLOCK_TOOL);
        if (!b)
            return SEAM_ENOMEM;
        memcpy(b->id, ev->id, strlen(ev->id) + 1);
        seam_buf_add(&b->name, ev->text.p, ev->text.n);
        return b->name.failed ? SEAM_ENOMEM : 0;
    case SEAM_CHAT_TOOL_ARGS:
        kind = BLOCK_TOOL;
        break;
    case SEAM_CHAT_TOOL_END:
        b->whole = true;
        return 0;
    case SEAM_CHAT_FINISH:
        m->finish = *ev;
        return 0;
    default:
        return 0;
    }
    if (!b || b->kind != kind)
        b = block_new(m, kind);
    if (!b)
        return SEAM_ENOMEM;
    seam_buf_add(&b->text, ev->text.p, ev->text.n);
    return b->text.failed ? SEAM_ENOMEM : 0;
}

static json_t *block_json(const struct block *b, struct seam_spelling *s)
{
    json_t *text = json_stringn(b->text.p ? b->text.p : "", b->text.n), *input;

    if (b->kind == BLOCK_TEXT)
        return json_pack("{s:s, s:o}", "type", "text", "text", text);
    if (b->kind == BLOCK_THINKING)
        return json_pack("{s:s, s:o, s:s}", "type", "thinking", "thinking",
                         text, "signature", "");
    json_decref(text);
    input = seam_json_parse(b->text.p ? b->text.p : "", b->text.n, "input",
                            SEAM_JSON_BIG_INT, NULL);
    if (!json_is_object(input) ||
        seam_spelling_add(s, input, b->text.p, b->text.n)) {
        json_decref(input);
        input = json_object();
    }
    return json_pack("{s:s, s:s, s:o, s:o}", "type", "tool_use", "id", b->id,
                     "name", json_stringn(b->name.p, b->name.n), "input",
                     input);
}

static void answer_collected(struct messages_answer *m)
{
    json_t *content = json_array();
    struct seam_spelling s = { 0 };

    for (uint32_t i = 0; i < m->n_blocks; i++)
        if (m->block[i].kind != BLOCK_TOOL || m->block[i].whole)
            json_array_append_new(content, block_json(&m->block[i], &s));
    if (!json_array_size(content))
        json_array_append_new(
            content, json_pack("{s:s, s:s}", "type", "text", "text", ""));
    seam_http_spelled(m->a.h, 200,
                      message_json(m, content,
                                   json_string(stop_name(&m->finish)),
                                   stop_sequence(&m->a, &m->finish)),
                      &s);
    seam_spelling_release(&s);
}

/* ---- Both ---------------------------------------------------------------- */

static int on_event(void *ctx, const struct seam_chat_event *ev)
{
    struct messages_answer *m = ctx;

    return m->a.r.stream ? !stream(m, ev) : collect(m, ev);
}

static int read_chat(struct seam_http *h, bool counting,
                     struct seam_converted *c)
{
    struct seam_api_error e;
    json_t *body;

    *c = (struct seam_converted){ .names = seam_anthropic_names };
    body = seam_request_json(h->body.p ? h->body.p : "", h->body.n,
                             &c->spelling, &e);
    if (body)
        c->chat = seam_anthropic_chat(body, counting, &c->ignored, &e);
    json_decref(body);
    if (c->chat)
        return 0;
    seam_http_fail(h, &e);
    seam_converted_release(c);
    return -1;
}

void seam_api_messages(struct seam_http *h)
{
    struct messages_answer m = { 0 };
    struct seam_converted chat;
    int rc;

    if (read_chat(h, false, &chat) ||
        seam_answer_open(&m.a, h, SEAM_REQUEST_CHAT, "msg_", &chat))
        return;
    m.a.r.call_prefix = "toolu_";
    if (m.a.r.stream)
        seam_sse_begin(&m.a.sse, h);
    rc = seam_answer_run(&m.a, on_event, &m);
    if (m.a.r.stream && rc <= 0)
        stream_end(&m, rc);
    else if (!rc)
        answer_collected(&m);
    for (uint32_t i = 0; i < m.n_blocks; i++) {
        seam_buf_release(&m.block[i].name);
        seam_buf_release(&m.block[i].text);
    }
    free(m.block);
    seam_buf_release(&m.line);
    seam_answer_release(&m.a);
}

void seam_api_count_tokens(struct seam_http *h)
{
    struct seam_converted chat;

    if (!read_chat(h, true, &chat))
        seam_answer_count(h, &chat, NULL);
}
