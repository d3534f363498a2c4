#include "core/server/chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/server/constraint.h"
#include "core/server/tools.h"

/* How long to wait for one choice while others may have tokens. */
#define TURN_MS 5

struct choice {
    struct seam_chat *chat;
    uint32_t index;
    struct seam_gen *gen;
    void *stream; /* of the parser; NULL: raw text                */
    struct seam_detok detok;
    struct seam_stop stop;
    struct seam_buf text; /* what the current token decodes to            */
    struct seam_buf out;  /* what leaves the stop matcher                 */
    struct seam_chat_token *token; /* [n_tokens] not reported yet             */
    uint32_t n_tokens, cap_tokens;
    uint64_t n_generated, n_reasoning;
    uint32_t calls; /* whole ones                                   */
    char call_id[SEAM_ID_MAX];
    bool prompt_done; /* echo: the prompt's text was reported         */
    bool stopped;     /* by a stop string or after the only call      */
    bool done;
    struct seam_chat_event finish;
};

struct seam_chat {
    struct seam_engine *engine;
    struct seam_constraint constraint;
    const struct seam_tokenizer *tok;
    struct seam_instance *plugin; /* the parser, until the last token        */
    const struct seam_parser *parser;
    const struct seam_request *r;
    const struct seam_chat_sink *sink;
    struct seam_ids *prompt; /* [n_prompts]                                  */
    uint32_t n_prompts;
    struct choice *choice; /* [n_choices]                                  */
    uint32_t n_choices;
    struct seam_buf prompt_text;
    char *tools; /* JSON for the parser, or NULL                 */
    const int32_t *eos;
    uint32_t n_eos;
    uint64_t polled_ns;
};

static int chat_no_memory(struct seam_api_error *e)
{
    return seam_api_fail(e, 503, "overloaded", NULL, "no memory");
}

/* ---- The prompt ---------------------------------------------------------- */

/* A prompt of no more bytes than this is always counted to its end. */
#define COUNT_BYTES (256u << 10)

int seam_chat_long_word(struct seam_api_error *e, const char *field)
{
    return seam_api_invalid(e, field,
                            "%s has a run of more than %zu bytes without a "
                            "break between words",
                            field, SEAM_MAX_WORD);
}

struct render {
    struct seam_encoder enc;
    struct seam_buf *text;
    struct seam_ids *ids;
    struct seam_error err;
    uint64_t bytes; /* so far */
    uint32_t max;
    int rc; /* of the tokenizer, when it refuses the text */
};

static int chat_too_long(struct seam_api_error *e, uint32_t max,
                         const char *field, const char *relation, uint64_t n)
{
    return seam_api_fail(e, 400, "context_length_exceeded", field,
                         "This model's maximum context length is %u tokens. "
                         "However, the prompt has %s%llu tokens.",
                         max, relation, (unsigned long long)n);
}

static int render_rc(struct render *r, int rc)
{
    if (rc == SEAM_ETOOLONG || rc == SEAM_ELONGWORD)
        r->rc = rc;
    return rc;
}

static int render_event(void *ctx, uint32_t kind, uint32_t index, const char *p,
                        uint64_t n)
{
    struct render *r = ctx;

    (void)index;
    if (r->text)
        seam_buf_add(r->text, p, n);
    if (!r->ids)
        return 0;
    r->bytes += n;
    r->enc.max = r->bytes > COUNT_BYTES ? r->max : 0;
    if (kind == SEAM_EV_SPECIAL)
        return render_rc(r, seam_encoder_special(&r->enc, p, n, &r->err));
    return seam_encoder_text(&r->enc, p, n);
}

uint32_t seam_chat_count_max(const struct seam_engine *engine)
{
    uint32_t context = seam_engine_max_context(engine);

    return context > SEAM_COUNT_MAX ? context : SEAM_COUNT_MAX;
}

static int chat_render(struct seam_engine *engine,
                       const struct seam_instance *plugin, struct seam_str text,
                       uint32_t max, struct seam_buf *prompt,
                       struct seam_ids *ids, struct seam_api_error *e)
{
    const struct seam_parser *parser = &plugin->plugin->table.parser;
    struct render r = { .text = prompt, .ids = ids, .max = max };
    struct seam_sink sink = { .ctx = &r, .event = render_event };
    struct seam_error err = { 0 };
    int rc;

    if (!parser->render)
        return seam_api_fail(e, 501, NULL, NULL,
                             "the parser plugin of this "
                             "model does not render chat prompts");
    r.enc =
        (struct seam_encoder){ .t = seam_engine_tokenizer(engine), .out = ids };
    rc = parser->render(plugin->self, text, &sink, &err);
    if (!rc && ids)
        rc = render_rc(&r, seam_encoder_end(&r.enc, &r.err));
    if (!rc && prompt && prompt->failed)
        rc = SEAM_ENOMEM;
    seam_encoder_release(&r.enc);
    if (rc == SEAM_ENOMEM)
        return chat_no_memory(e);
    if (rc && r.rc == SEAM_ELONGWORD)
        return seam_chat_long_word(e, "messages");
    if (rc && r.rc)
        return chat_too_long(e, seam_engine_max_context(engine), "messages",
                             "more than ", max);
    if (rc && r.err.text[0]) /* a control token the tokenizer lacks */
        return seam_api_fail(e, 500, NULL, NULL,
                             "the prompt could not be "
                             "tokenised: %s",
                             r.err.text);
    /* The parser's message begins with the path in what it was given. */
    if (rc)
        return seam_api_fail_path(e, "invalid_value", "messages", err.text);
    return 0;
}

int seam_chat_render(struct seam_engine *engine, struct seam_str text,
                     uint32_t max, struct seam_buf *prompt,
                     struct seam_ids *ids, struct seam_api_error *e)
{
    struct seam_instance *plugin = seam_engine_plugin(engine, SEAM_ROLE_PARSER);
    int rc = chat_render(engine, plugin, text, max, prompt, ids, e);

    seam_instance_unref(plugin);
    return rc;
}

/* {"effort","enabled"} to the fields of their own, which outrank it. */
static void chat_map_reasoning(json_t *body)
{
    static const char *const names[][2] = {
        { "effort", "reasoning_effort" },
        { "enabled", "enable_thinking" },
    };
    json_t *from = json_object_get(body, "reasoning");

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        json_t *v = json_object_get(from, names[i][0]);
        const json_t *own = json_object_get(body, names[i][1]);

        if (v && !json_is_null(v) && (!own || json_is_null(own)))
            json_object_set(body, names[i][1], v);
    }
}

bool seam_chat_is_mapped(const struct seam_request *r)
{
    return json_object_get(r->body, "functions") ||
           json_object_get(r->body, "reasoning");
}

/* Old and flat forms of tools and calls become the present ones. */
char *seam_chat_text(const struct seam_request *r)
{
    json_t *functions = json_object_get(r->body, "functions");
    json_t *body = json_copy(r->body), *tools, *f;
    char *text = NULL;
    size_t i;

    if (!body)
        return NULL;
    if (json_is_array(functions) && json_array_size(functions) &&
        !json_object_get(body, "tools")) {
        tools = json_array();
        json_array_foreach(functions, i, f) json_array_append_new(
            tools, json_pack("{s:s, s:O}", "type", "function", "function", f));
        json_object_set_new(body, "tools", tools);
        json_object_del(body, "functions");
    }
    chat_map_reasoning(body);
    text = seam_spelling_dump(&r->spelling, body);
    json_decref(body);
    return text;
}

static int chat_encode_prompt(struct seam_chat *c, const json_t *v,
                              struct seam_ids *ids, struct seam_api_error *e)
{
    struct seam_error err;
    const json_t *id;
    size_t i;
    int rc = 0;

    if (json_is_string(v)) {
        uint32_t context = seam_engine_max_context(c->engine);
        size_t n = json_string_length(v);

        rc = seam_tokenizer_encode_max(c->tok, json_string_value(v), n, true,
                                       n > COUNT_BYTES ? context : SIZE_MAX,
                                       ids, &err);
        if (rc == SEAM_ELONGWORD)
            return seam_chat_long_word(e, "prompt");
        if (rc == SEAM_ETOOLONG)
            return chat_too_long(e, context, "prompt", "more than ", context);
        if (rc == SEAM_ENOMEM)
            return chat_no_memory(e);
        if (rc)
            return seam_api_invalid(e, "prompt",
                                    "the prompt cannot be "
                                    "tokenised: %s",
                                    err.text);
        return 0;
    }
    json_array_foreach(v, i, id) rc |=
        seam_ids_add(ids, (int32_t)json_number_value(id));
    return rc ? chat_no_memory(e) : 0;
}

static int chat_prompts(struct seam_chat *c, struct seam_str text,
                        struct seam_api_error *e)
{
    const json_t *p = c->r->prompt;
    bool many = json_is_array(p) && !json_is_number(json_array_get(p, 0));

    c->n_prompts = many ? (uint32_t)json_array_size(p) : 1;
    c->prompt = calloc(c->n_prompts, sizeof *c->prompt);
    if (!c->prompt)
        return chat_no_memory(e);
    if (c->r->kind == SEAM_REQUEST_CHAT)
        return chat_render(c->engine, c->plugin, text,
                           seam_engine_max_context(c->engine), &c->prompt_text,
                           c->prompt, e);
    for (uint32_t i = 0; i < c->n_prompts; i++)
        if (chat_encode_prompt(c, many ? json_array_get(p, i) : p,
                               &c->prompt[i], e))
            return -1;
    return 0;
}

/* The prompt must leave room for at least one token. */
static int chat_check_length(const struct seam_chat *c,
                             struct seam_api_error *e)
{
    uint32_t max = seam_engine_max_context(c->engine);
    const char *field = c->r->kind == SEAM_REQUEST_CHAT ? "messages" : "prompt";

    for (uint32_t i = 0; i < c->n_prompts; i++) {
        if (!c->prompt[i].n)
            return seam_api_invalid(e, field, "the prompt is empty");
        if (c->prompt[i].n >= max)
            return chat_too_long(e, max, field, "", c->prompt[i].n);
    }
    return 0;
}

/* ---- Events out ---------------------------------------------------------- */

static int chat_emit(struct choice *ch, struct seam_chat_event *ev)
{
    int rc;

    ev->choice = ch->index;
    ev->token = ch->token;
    ev->n_tokens = ch->n_tokens;
    rc = ch->chat->sink->event(ch->chat->sink->ctx, ev);
    ch->n_tokens = 0;
    return rc ? 1 : 0;
}

static int chat_emit_text(struct choice *ch, enum seam_chat_kind kind,
                          const char *p, size_t n)
{
    struct seam_chat_event ev = { .kind = kind, .text = { p, n } };

    return n ? chat_emit(ch, &ev) : 0;
}

/* Text on its way out of the parser. */
static int chat_content(struct choice *ch, const char *p, size_t n)
{
    const struct seam_request *r = ch->chat->r;

    seam_buf_clear(&ch->out);
    if (ch->n_generated <= r->min_tokens)
        seam_buf_add(&ch->out, p, n); /* stops do not count yet */
    else if (seam_stop_feed(&ch->stop, p, n, r->include_stop, &ch->out)) {
        ch->stopped = true;
        ch->finish.stop_string = ch->stop.hit;
    }
    if (ch->out.failed || ch->stop.held.failed)
        return SEAM_ENOMEM;
    return chat_emit_text(ch, SEAM_CHAT_TEXT, ch->out.p, ch->out.n);
}

static int chat_flush(struct choice *ch)
{
    seam_buf_clear(&ch->out);
    seam_stop_flush(&ch->stop, &ch->out);
    if (ch->out.failed)
        return SEAM_ENOMEM;
    return chat_emit_text(ch, SEAM_CHAT_TEXT, ch->out.p, ch->out.n);
}

static int chat_parsed(void *ctx, uint32_t kind, uint32_t index, const char *p,
                       uint64_t n)
{
    struct choice *ch = ctx;
    struct seam_chat_event ev = { .index = index, .text = { p, n } };
    int rc;

    if (ch->stopped)
        return 0;
    switch (kind) {
    case SEAM_EV_TEXT:
        return chat_content(ch, p, n);
    case SEAM_EV_REASONING:
        ch->n_reasoning = ch->n_generated;
        return chat_emit_text(ch, SEAM_CHAT_REASONING, p, n);
    case SEAM_EV_TOOL_NAME:
        rc = chat_flush(ch);
        if (rc)
            return rc;
        seam_id_make(ch->call_id, ch->chat->r->call_prefix);
        ev.kind = SEAM_CHAT_TOOL_BEGIN;
        ev.id = ch->call_id;
        return chat_emit(ch, &ev);
    case SEAM_EV_TOOL_ARGS:
        ev.kind = SEAM_CHAT_TOOL_ARGS;
        return n ? chat_emit(ch, &ev) : 0;
    case SEAM_EV_TOOL_END:
        ch->calls++;
        if (!ch->chat->r->parallel_calls)
            ch->stopped = true;
        ev.kind = SEAM_CHAT_TOOL_END;
        return chat_emit(ch, &ev);
    }
    return 0;
}

/* ---- Tokens in ----------------------------------------------------------- */

static bool chat_is_stop(const struct seam_chat *c, int32_t id)
{
    if (!c->r->ignore_eos)
        for (uint32_t i = 0; i < c->n_eos; i++)
            if (c->eos[i] == id)
                return true;
    for (uint32_t i = 0; i < c->r->n_stop_id; i++)
        if (c->r->stop_id[i] == id)
            return true;
    return false;
}

/* Tags that parsers live on, whatever the tokenizer says of them. */
static bool chat_is_marker(struct seam_str s)
{
    static const char *const markers[] = {
        "<think>",         "</think>",         "<tool_call>", "</tool_call>",
        "<arg_key>",       "</arg_key>",       "<arg_value>", "</arg_value>",
        "<tool_response>", "</tool_response>", NULL
    };

    for (const char *const *m = markers; *m; m++)
        if (s.n == strlen(*m) && !memcmp(s.p, *m, s.n))
            return true;
    return false;
}

/* Append what the token adds to the text: whole characters only. */
static void chat_decode(struct choice *ch, int32_t id)
{
    const struct seam_chat *c = ch->chat;
    uint32_t flags = seam_tokenizer_flags(c->tok, id);
    struct seam_str bytes = { 0 };

    if (!seam_tokenizer_bytes(c->tok, id, &bytes))
        return;
    if (!(flags & SEAM_TOKEN_ADDED)) {
        seam_detok_add(&ch->detok, bytes.p, bytes.n, &ch->text);
        return;
    }
    seam_detok_end(&ch->detok, &ch->text);
    if (flags & SEAM_TOKEN_SPECIAL && c->r->skip_special &&
        !chat_is_marker(bytes))
        return;
    seam_buf_add(&ch->text, bytes.p, bytes.n);
}

static int chat_remember(struct choice *ch, const struct seam_gen_token *t,
                         bool first)
{
    if (!ch->chat->r->logprobs)
        return 0;
    if (ch->n_tokens == ch->cap_tokens) {
        uint32_t cap = ch->cap_tokens ? 2 * ch->cap_tokens : 16;
        struct seam_chat_token *p = realloc(ch->token, cap * sizeof *p);

        if (!p)
            return SEAM_ENOMEM;
        ch->token = p;
        ch->cap_tokens = cap;
    }
    ch->token[ch->n_tokens].t = *t;
    ch->token[ch->n_tokens++].first = first;
    return 0;
}

/* The decoded text of the current token to the parser, or straight on. */
static int chat_forward(struct choice *ch, uint32_t n, const int32_t *id)
{
    const struct seam_chat *c = ch->chat;

    if (ch->text.failed)
        return SEAM_ENOMEM;
    if (!ch->stream)
        return ch->text.n ? chat_content(ch, ch->text.p, ch->text.n) : 0;
    return c->parser->feed(ch->stream, n, id,
                           (struct seam_str){ ch->text.p, ch->text.n });
}

/* echo: the prompt's tokens come first; its text leaves as one event. */
static int chat_prompt_event(struct choice *ch)
{
    const struct seam_chat *c = ch->chat;
    const struct seam_ids *ids = &c->prompt[ch->index / c->r->n];
    struct seam_detok d = { 0 };
    struct seam_chat_event ev = { .kind = SEAM_CHAT_PROMPT };
    struct seam_buf text = { 0 };
    int rc;

    ch->prompt_done = true;
    for (size_t i = 0; i < ids->n; i++) {
        struct seam_str bytes;

        if (seam_tokenizer_bytes(c->tok, ids->v[i], &bytes))
            seam_detok_add(&d, bytes.p, bytes.n, &text);
    }
    seam_detok_end(&d, &text);
    ev.text = (struct seam_str){ text.p, text.n };
    rc = text.failed ? SEAM_ENOMEM : chat_emit(ch, &ev);
    seam_buf_release(&text);
    return rc;
}

static int chat_token(struct choice *ch, const struct seam_gen_token *t)
{
    struct seam_chat *c = ch->chat;
    int rc;

    if (t->from_prompt)
        return chat_remember(ch, t, false);
    if (c->r->echo && !ch->prompt_done && (rc = chat_prompt_event(ch)))
        return rc;
    ch->n_generated++;
    if (chat_is_stop(c, t->id)) {
        ch->finish.stop_id = t->id;
        return 0; /* the generation ends here; the stop is no text */
    }
    rc = chat_remember(ch, t, false);
    if (rc)
        return rc;
    seam_buf_clear(&ch->text);
    chat_decode(ch, t->id);
    return chat_forward(ch, 1, &t->id);
}

/* ---- The end ------------------------------------------------------------- */

static int chat_engine_error(const struct seam_gen_info *info,
                             struct seam_api_error *e)
{
    if (info->end == SEAM_GEN_ABORT)
        return seam_api_fail(e, 503, "draining", NULL,
                             "the server is shutting down");
    if (info->end == SEAM_GEN_TIMEOUT)
        return seam_api_fail(e, 504, "deadline_exceeded", NULL,
                             "the deadline passed after %u generated tokens",
                             info->n_generated);
    /* Of the engine's message the client gets where it was, "plugin NAME, layer
     * N", and not what may hold names of files. */
    if (!strncmp(info->err.text, "plugin ", 7))
        return seam_api_fail(e, 500, NULL, NULL,
                             "the engine failed on this request: %.*s",
                             (int)strcspn(info->err.text, ":"), info->err.text);
    return seam_api_fail(e, 500, NULL, NULL,
                         "the engine failed on this request");
}

/* Flush everything and report why it ended.  Returns as chat_token does. */
static int chat_finish(struct choice *ch, bool cut)
{
    const struct seam_chat *c = ch->chat;
    int rc = 0;

    if (!ch->stopped) {
        seam_buf_clear(&ch->text);
        seam_detok_end(&ch->detok, &ch->text);
        if (ch->text.n)
            rc = chat_forward(ch, 0, NULL);
        if (!rc && ch->stream)
            rc = c->parser->finish(ch->stream,
                                   cut ? SEAM_END_CUT : SEAM_END_STOP);
        if (!rc && !ch->stopped)
            rc = chat_flush(ch);
        if (rc)
            return rc;
    }
    ch->finish.kind = SEAM_CHAT_FINISH;
    ch->finish.finish = ch->stopped ? SEAM_FINISH_STOP
                        : cut       ? SEAM_FINISH_LENGTH
                                    : SEAM_FINISH_STOP;
    if (ch->calls && ch->finish.finish == SEAM_FINISH_STOP)
        ch->finish.finish = SEAM_FINISH_CALLS;
    ch->done = true;
    seam_gen_cancel(ch->gen);
    return chat_emit(ch, &ch->finish);
}

/* Take what choice has; 1 nobody listens, SEAM_E*: failed (with *e filled when
 * the engine did). */
static int chat_step(struct choice *ch, int64_t wait_ms, bool *some,
                     struct seam_api_error *e)
{
    struct seam_gen_token t[8];
    struct seam_gen_info info;
    bool ended = false;
    uint32_t n = seam_gen_take(ch->gen, wait_ms, t, 8, &ended);
    int rc;

    *some = n > 0;
    for (uint32_t i = 0; i < n; i++) {
        rc = chat_token(ch, &t[i]);
        if (rc)
            return rc;
        if (ch->stopped)
            return chat_finish(ch, false);
    }
    if (!ended)
        return 0;
    seam_gen_info(ch->gen, &info);
    if (info.end != SEAM_GEN_STOP && info.end != SEAM_GEN_LENGTH) {
        chat_engine_error(&info, e);
        return SEAM_ESTATE;
    }
    if (ch->chat->r->echo && !ch->prompt_done && (rc = chat_prompt_event(ch)))
        return rc;
    return chat_finish(ch, info.end == SEAM_GEN_LENGTH);
}

static int chat_poll(struct seam_chat *c)
{
    uint64_t now = seam_now_ns();

    if (now - c->polled_ns < (uint64_t)c->sink->poll_ms * 1000000u)
        return 0;
    c->polled_ns = now;
    return c->sink->poll && c->sink->poll(c->sink->ctx) ? 1 : 0;
}

static int chat_begin(struct seam_chat *c)
{
    for (uint32_t i = 0; i < c->n_choices; i++) {
        struct seam_chat_event ev = { .kind = SEAM_CHAT_BEGIN };
        struct choice *ch = &c->choice[i];
        struct seam_gen_token first = { .id = c->prompt[i / c->r->n].v[0] };
        int rc = chat_emit(ch, &ev);

        if (!rc && c->r->echo)
            rc = chat_remember(ch, &first, true);
        if (rc)
            return rc;
    }
    return 0;
}

/* For dashboards: what was asked for, and in the end what came of it. */
static void chat_count_asked(const struct seam_chat *c)
{
    struct seam_stats *s = seam_engine_stats(c->engine);
    uint64_t room = seam_engine_max_context(c->engine) - c->prompt->n;
    uint64_t max = c->r->max_tokens;

    seam_hist_observe(&s->asked_n, c->r->n);
    seam_hist_observe(&s->asked_tokens,
                      (double)(max && max < room ? max : room));
}

static void chat_count_most(const struct seam_chat *c)
{
    uint64_t most = 0;

    for (uint32_t i = 0; i < c->n_choices; i++)
        if (c->choice[i].n_generated > most)
            most = c->choice[i].n_generated;
    seam_hist_observe(&seam_engine_stats(c->engine)->gen_most, (double)most);
}

int seam_chat_run(struct seam_chat *c, const struct seam_chat_sink *sink,
                  struct seam_api_error *e)
{
    uint32_t open = c->n_choices, turn = 0;
    int rc;

    memset(e, 0, sizeof *e);
    c->sink = sink;
    c->polled_ns = seam_now_ns();
    rc = chat_begin(c);
    while (!rc && open) {
        bool any = false;

        for (uint32_t i = 0; i < c->n_choices && !rc; i++) {
            struct choice *ch = &c->choice[i];
            bool some = false;

            if (ch->done)
                continue;
            rc = chat_step(ch, open == 1 ? sink->poll_ms : 0, &some, e);
            any |= some || ch->done;
            open -= ch->done;
            if (!rc)
                rc = chat_poll(c);
        }
        /* Several, and none has anything: rest at one of them, in turn. */
        if (!rc && open > 1 && !any) {
            struct choice *ch;
            bool some;

            do
                ch = &c->choice[turn++ % c->n_choices];
            while (ch->done);
            rc = chat_step(ch, TURN_MS, &some, e);
            open -= ch->done;
        }
    }
    if (rc)
        for (uint32_t i = 0; i < c->n_choices; i++)
            seam_gen_cancel(c->choice[i].gen);
    if (rc < 0 && !e->status)
        chat_no_memory(e);
    if (!rc)
        chat_count_most(c);
    return rc < 0 ? -1 : rc;
}

/* ---- Making one ---------------------------------------------------------- */

static int chat_submit(struct seam_chat *c, struct choice *ch, uint64_t seed,
                       struct seam_api_error *e)
{
    const struct seam_request *r = c->r;
    const struct seam_ids *ids = &c->prompt[ch->index / r->n];
    uint32_t room = seam_engine_max_context(c->engine) - (uint32_t)ids->n;
    struct seam_gen_params p = {
        .prompt = ids->v,
        .n_prompt = (uint32_t)ids->n,
        .max_tokens = r->max_tokens && r->max_tokens < room
                          ? (uint32_t)r->max_tokens
                          : room,
        .min_tokens = r->min_tokens,
        .temperature = (float)r->temperature,
        .top_p = (float)r->top_p,
        .min_p = (float)r->min_p,
        .top_k = (int32_t)r->top_k,
        .seed = seed + ch->index % r->n,
        .presence = (float)r->presence,
        .frequency = (float)r->frequency,
        .repetition = (float)r->repetition,
        .bias = r->bias,
        .n_bias = r->n_bias,
        .stop = r->stop_id,
        .n_stop = r->n_stop_id,
        .ignore_eos = r->ignore_eos,
        .want_logprobs = r->logprobs,
        .n_top = r->top_logprobs,
        .prompt_logprobs = r->echo && r->logprobs,
        .priority = r->priority,
        .cache_salt = r->cache_salt,
        .tenant = r->tenant,
        .timeout_ms = r->timeout_ms,
        .grammar = c->constraint.grammar,
        .grammar_after = c->constraint.whole
                             ? -1
                             : seam_constraint_after(c->engine, ids->v, ids->n),
    };
    struct seam_error err = { 0 };
    int rc = seam_gen_submit(c->engine, &p, &ch->gen, &err);

    switch (rc) {
    case 0:
        return 0;
    case SEAM_EFULL:
        seam_api_fail(e, 429, "queue_full", NULL,
                      "too many requests are waiting; try again later");
        e->retry_after_s = seam_engine_retry_after_s(c->engine);
        return -1;
    case SEAM_ESTATE:
        return seam_api_fail(e, 503, "draining", NULL,
                             "the server takes no new work");
    case SEAM_EINVAL:
        return seam_api_fail(e, 400, "invalid_value", NULL, "%s", err.text);
    case SEAM_ENOMEM:
        return chat_no_memory(e);
    }
    return seam_api_fail(e, 500, NULL, NULL, "the engine refused the request");
}

static int chat_open_stream(struct choice *ch, struct seam_api_error *e)
{
    struct seam_chat *c = ch->chat;
    const struct seam_request *r = c->r;
    struct seam_sink sink = { .ctx = ch, .event = chat_parsed };
    struct seam_error err = { 0 };
    struct seam_parse_opts o = {
        .size = sizeof o,
        .flags = (r->tool_choice == SEAM_TOOLS_NONE ? SEAM_PARSE_NO_CALLS : 0) |
                 (r->parallel_calls ? 0 : SEAM_PARSE_ONE_CALL) |
                 (c->constraint.form ? SEAM_PARSE_FORM : 0),
        .prompt_tail = { c->prompt_text.p, c->prompt_text.n },
    };

    if (c->tools)
        o.tools = (struct seam_str){ c->tools, strlen(c->tools) };
    if (c->parser->open(c->plugin->self, &o, &sink, &ch->stream, &err))
        return seam_api_fail_path(e, "invalid_value", "tools", err.text);
    return 0;
}

/* The tools that may be called, as JSON for the parser; NULL without any. */
static int chat_tools(struct seam_chat *c, struct seam_api_error *e)
{
    json_t *list;

    if (c->r->kind != SEAM_REQUEST_CHAT || !c->r->has_tools)
        return 0;
    list = seam_tools_callable(c->r);
    if (json_array_size(list))
        c->tools = seam_spelling_dump(&c->r->spelling, list);
    if (!list || (json_array_size(list) && !c->tools)) {
        json_decref(list);
        return chat_no_memory(e);
    }
    json_decref(list);
    return 0;
}

static int chat_choices(struct seam_chat *c, struct seam_api_error *e)
{
    const struct seam_request *r = c->r;
    uint64_t seed = r->has_seed ? (uint64_t)r->seed : seam_id_random();
    uint32_t n = c->n_prompts * r->n, max = seam_engine_max_queue(c->engine);

    /* To come back later would be of no use. */
    if (n > max)
        return seam_api_invalid(e, c->n_prompts > 1 ? "prompt" : "n",
                                "%u choices are asked for (%u prompts, n %u); "
                                "this server's queue holds %u "
                                "(engine.max_queue)",
                                n, c->n_prompts, r->n, max);
    c->choice = calloc(n, sizeof *c->choice);
    if (!c->choice)
        return chat_no_memory(e);
    for (uint32_t i = 0; i < n; i++) {
        struct choice *ch = &c->choice[i];

        ch->chat = c;
        ch->index = i;
        ch->finish.stop_id = ch->finish.stop_string = -1;
        c->n_choices = i + 1;
        if (seam_stop_init(&ch->stop, r->stop, r->n_stop))
            return chat_no_memory(e);
        if (r->kind == SEAM_REQUEST_CHAT && chat_open_stream(ch, e))
            return -1;
    }
    for (uint32_t i = 0; i < n; i++)
        if (chat_submit(c, &c->choice[i], seed, e))
            return -1;
    return 0;
}

int seam_chat_open(struct seam_chat **out, struct seam_engine *engine,
                   const struct seam_request *r, struct seam_str text,
                   struct seam_api_error *e)
{
    struct seam_chat *c = calloc(1, sizeof *c);
    int rc;

    if (!c)
        return chat_no_memory(e);
    c->engine = engine;
    c->r = r;
    c->tok = seam_engine_tokenizer(engine);
    c->plugin = seam_engine_plugin(engine, SEAM_ROLE_PARSER);
    c->parser = &c->plugin->plugin->table.parser;
    c->eos = seam_engine_eos(engine, &c->n_eos);
    rc = chat_tools(c, e);
    if (!rc)
        rc = chat_prompts(c, text, e);
    if (!rc)
        rc = chat_check_length(c, e);
    /* Only a chat has calls, and it has one prompt. */
    if (!rc)
        rc = seam_constraint_make(engine, c->plugin, r, c->prompt->v,
                                  c->prompt->n, &c->constraint, e);
    if (!rc)
        rc = chat_choices(c, e);
    if (rc) {
        seam_chat_free(c);
        return rc;
    }
    chat_count_asked(c);
    *out = c;
    return 0;
}

uint32_t seam_chat_choices(const struct seam_chat *c)
{
    return c->n_choices;
}

void seam_chat_usage(const struct seam_chat *c, struct seam_chat_usage *out)
{
    *out = (struct seam_chat_usage){ 0 };
    for (uint32_t i = 0; i < c->n_prompts; i++)
        out->prompt += c->prompt[i].n;
    for (uint32_t i = 0; i < c->n_choices; i++) {
        struct seam_gen_info info;

        out->completion += c->choice[i].n_generated;
        out->reasoning += c->choice[i].n_reasoning;
        if (i % c->r->n == 0) {
            seam_gen_info(c->choice[i].gen, &info);
            out->cached += info.n_cached;
        }
    }
}

void seam_chat_free(struct seam_chat *c)
{
    if (!c)
        return;
    for (uint32_t i = 0; i < c->n_choices; i++) {
        struct choice *ch = &c->choice[i];

        seam_gen_free(ch->gen);
        if (ch->stream)
            c->parser->close(ch->stream);
        seam_stop_release(&ch->stop);
        seam_buf_release(&ch->text);
        seam_buf_release(&ch->out);
        free(ch->token);
    }
    free(c->choice);
    for (uint32_t i = 0; i < c->n_prompts && c->prompt; i++)
        seam_ids_release(&c->prompt[i]);
    free(c->prompt);
    seam_buf_release(&c->prompt_text);
    seam_grammar_unref(c->constraint.grammar);
    free(c->tools);
    seam_instance_unref(c->plugin);
    free(c);
}

void seam_chat_token_text(const struct seam_tokenizer *t, int32_t id,
                          struct seam_buf *out)
{
    struct seam_detok d = { 0 };
    struct seam_str bytes;

    if (!seam_tokenizer_bytes(t, id, &bytes))
        return;
    seam_detok_add(&d, bytes.p, bytes.n, out);
    seam_detok_end(&d, out);
}
