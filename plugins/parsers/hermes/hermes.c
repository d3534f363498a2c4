/* The parser of models that speak ChatML and write calls as JSON, as Hermes and
 * Qwen do:
 *
 *   <|im_start|>user\nTEXT<|im_end|>\n
 *   <tool_call>{"name": NAME, "arguments": {...}}</tool_call>
 *
 * A call is held until it is whole: only then is it known to be one, and its
 * arguments are sent as they were written. */
#include <stdlib.h>

#include "calls.h"
#include "chat_out.h"
#include "chat_request.h"
#include "marker.h"
#include "plugin_util.h"

struct hermes {
    const struct seam_host *host;
    struct chat_rules rules;
    bool forward_unknown;
    bool tag_tokens; /* think and call tags are tokens of the model          */
};

/* Set by init, before any instance exists. */
static const struct seam_host *host;

/* ---- Prompts ------------------------------------------------------------- */

struct renderer {
    const struct hermes *h;
    const struct chat_request *r;
    const struct seam_sink *out;
    int rc;
    struct tbuf line;
};

static void piece(struct renderer *x, uint32_t kind, struct seam_str s)
{
    if (!x->rc && s.n)
        x->rc = x->out->event(x->out->ctx, kind, 0, s.p, s.n);
}

static void text(struct renderer *x, struct seam_str s)
{
    piece(x, SEAM_EV_TEXT, s);
}

static void prose(struct renderer *x, const char *s)
{
    text(x, (struct seam_str){ s, strlen(s) });
}

static void special(struct renderer *x, const char *s)
{
    piece(x, SEAM_EV_SPECIAL, (struct seam_str){ s, strlen(s) });
}

static void tag(struct renderer *x, const char *s)
{
    piece(x, x->h->tag_tokens ? SEAM_EV_SPECIAL : SEAM_EV_TEXT,
          (struct seam_str){ s, strlen(s) });
}

static void json(struct renderer *x, const struct jt_value *v)
{
    tbuf_clear(&x->line);
    jt_write(&x->line, v, NULL);
    if (x->line.failed && !x->rc)
        x->rc = SEAM_ENOMEM;
    text(x, tbuf_view(&x->line));
}

static void turn(struct renderer *x, const char *role)
{
    special(x, "<|im_start|>");
    prose(x, role);
    prose(x, "\n");
}

static void turn_end(struct renderer *x)
{
    special(x, "<|im_end|>");
    prose(x, "\n");
}

static void tools(struct renderer *x)
{
    prose(x, "# Tools\n\nYou may call one or more functions to assist with the "
             "user query.\n\nYou are provided with function signatures within "
             "<tools></tools> XML tags:\n<tools>");
    for (const struct jt_value *t = x->r->tools->first; t; t = t->next) {
        prose(x, "\n{\"type\": \"function\", \"function\": ");
        json(x, chat_function(t));
        prose(x, "}");
    }
    prose(x, "\n</tools>\n\nFor each function call, return a json object with "
             "function name and arguments within ");
    tag(x, "<tool_call>");
    tag(x, "</tool_call>");
    prose(x, " XML tags:\n");
    tag(x, "<tool_call>");
    prose(x, "\n{\"name\": <function-name>, \"arguments\": "
             "<args-json-object>}\n");
    tag(x, "</tool_call>");
}

static void call(struct renderer *x, const struct chat_call *c)
{
    static const struct jt_value none = { .kind = JT_OBJECT };

    tag(x, "<tool_call>");
    prose(x, "\n{\"name\": ");
    tbuf_clear(&x->line);
    tbuf_json(&x->line, c->name.p, c->name.n);
    text(x, tbuf_view(&x->line));
    prose(x, ", \"arguments\": ");
    json(x, c->args ? c->args : &none);
    prose(x, "}\n");
    tag(x, "</tool_call>");
}

/* recent: behind the last user message, where reasoning is kept. */
static void assistant(struct renderer *x, const struct chat_msg *m, bool recent,
                      bool open)
{
    turn(x, "assistant");
    if (recent && m->has_reasoning && m->reasoning.n) {
        tag(x, "<think>");
        prose(x, "\n");
        text(x, m->reasoning);
        if (open && !m->text.n)
            return;
        prose(x, "\n");
        tag(x, "</think>");
        prose(x, "\n\n");
    }
    text(x, m->text);
    if (open)
        return;
    for (size_t i = 0; i < m->n_calls; i++) {
        if (i || m->text.n)
            prose(x, "\n");
        call(x, &m->call[i]);
    }
    turn_end(x);
}

static void results(struct renderer *x, const struct chat_msg *m)
{
    for (size_t i = 0; i < m->n_results; i++) {
        prose(x, i ? "\n<tool_response>\n" : "<tool_response>\n");
        text(x, m->result[i].text);
        prose(x, "\n</tool_response>");
    }
}

static void messages(struct renderer *x)
{
    const struct chat_request *r = x->r;
    size_t after_user = 0, i = 0;

    for (size_t k = 0; k < r->n_msgs; k++)
        if (r->msg[k].role == CHAT_USER)
            after_user = k + 1;
    if (r->tools) {
        turn(x, "system");
        if (r->msg[0].role == CHAT_SYSTEM) {
            text(x, r->msg[i++].text);
            prose(x, "\n\n");
        }
        tools(x);
        turn_end(x);
    }
    for (; i < r->n_msgs; i++) {
        const struct chat_msg *m = &r->msg[i];

        switch (m->role) {
        case CHAT_SYSTEM:
        case CHAT_USER:
            turn(x, m->role == CHAT_USER ? "user" : "system");
            text(x, m->text);
            turn_end(x);
            break;
        case CHAT_ASSISTANT:
            assistant(x, m, i >= after_user, r->resume && i + 1 == r->n_msgs);
            break;
        case CHAT_TOOL:
            if (i == 0 || m[-1].role != CHAT_TOOL)
                turn(x, "user");
            else
                prose(x, "\n");
            results(x, m);
            if (i + 1 == r->n_msgs || m[1].role != CHAT_TOOL)
                turn_end(x);
            break;
        }
    }
    if (!r->generate)
        return;
    turn(x, "assistant");
    if (r->thinking == CHAT_OFF) {
        tag(x, "<think>");
        prose(x, "\n\n");
        tag(x, "</think>");
        prose(x, "\n\n");
    }
}

static int hermes_render(void *self, struct seam_str request,
                         const struct seam_sink *out, struct seam_error *err)
{
    struct renderer x = { .h = self, .out = out };
    struct chat_request r;
    int rc = chat_read(&r, request, &x.h->rules, err);

    if (!rc) {
        x.r = &r;
        messages(&x);
        rc = x.rc;
        if (rc == SEAM_ENOMEM)
            plug_fail(err, rc, "request: out of memory");
    }
    tbuf_release(&x.line);
    chat_release(&r);
    return rc;
}

/* ---- Output -------------------------------------------------------------- */

enum { M_THINK = 0, M_THINK_END = 1, M_CALL = 2, M_CALL_END = 3 };

static const char *const markers[] = { "<think>", "</think>", "<tool_call>",
                                       "</tool_call>" };

struct stream {
    const struct hermes *h;
    struct marker_lexer lexer;
    struct chat_out out;
    struct jt_doc tools;
    const struct jt_value **tool; /* [n_tools] function objects, by name      */
    size_t n_tools;
    uint32_t flags;
    bool reasoning; /* channel of text, or the one a call came from           */
    bool form;      /* of SEAM_PARSE_FORM: the answer's text has begun        */
    bool in_call;
    /* The call's body, and where in its JSON it ends so far. */
    struct tbuf body;
    bool begun; /* something but white space has come                     */
    bool in_string, escaped;
};

static struct seam_str tool_name(const struct jt_value *function)
{
    return jt_get(function, "name")->s;
}

static int by_name(const void *a, const void *b)
{
    return text_order(tool_name(*(const struct jt_value *const *)a),
                      tool_name(*(const struct jt_value *const *)b));
}

static bool is_declared(const struct stream *s, struct seam_str name)
{
    size_t lo = 0, hi = s->n_tools;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int c = text_order(tool_name(s->tool[mid]), name);

        if (c == 0)
            return true;
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return false;
}

static void stream_text(struct stream *s, const char *p, size_t n)
{
    if ((s->flags & SEAM_PARSE_FORM) && !s->form && !s->reasoning)
        s->form = text_trim((struct seam_str){ p, n }).n > 0;
    if (s->reasoning)
        chat_out_reasoning(&s->out, p, n);
    else
        chat_out_content(&s->out, p, n);
}

static void marker_text(struct stream *s, uint32_t m)
{
    stream_text(s, markers[m], strlen(markers[m]));
}

static void call_begin(struct stream *s)
{
    s->in_call = true;
    s->begun = s->in_string = s->escaped = false;
    tbuf_clear(&s->body);
}

static void call_is_text(struct stream *s)
{
    s->in_call = false;
    marker_text(s, M_CALL);
    if (s->body.n)
        stream_text(s, s->body.p, s->body.n);
}

/* The arguments of a call, as JSON text of an object. */
static bool call_args(struct jt_doc *doc, const struct jt_value *v,
                      struct seam_str *out)
{
    *out = (struct seam_str){ "{}", 2 };
    if (jt_none(v))
        return true;
    if (v->kind == JT_STRING) {
        *out = text_trim(v->s);
        return jt_read_more(doc, *out, "arguments", &v, NULL) == 0 &&
               v->kind == JT_OBJECT;
    }
    *out = v->s;
    return v->kind == JT_OBJECT;
}

static void call_send(struct stream *s, struct seam_str name,
                      struct seam_str args)
{
    bool known = is_declared(s, name);
    bool later = (s->flags & SEAM_PARSE_ONE_CALL) && s->out.n_calls;

    s->reasoning = false;
    if (!known && !s->h->forward_unknown) {
        s->h->host->log(s->h->host->ctx, SEAM_LOG_WARN,
                        "a call of no tool of the request is left out");
        return;
    }
    if (later || (s->flags & SEAM_PARSE_NO_CALLS))
        return;
    chat_out_name(&s->out, name);
    chat_out_args(&s->out, args.p, args.n);
    chat_out_call_end(&s->out);
}

/* The body is at its end: send it as a call; false when it is none. */
static bool call_end(struct stream *s)
{
    const struct jt_value *name = NULL, *v = NULL;
    struct jt_doc doc = { 0 };
    struct seam_str args;
    int rc = jt_read(&doc, text_trim(tbuf_view(&s->body)), "call", NULL);
    bool ok = false;

    if (rc == SEAM_ENOMEM)
        s->out.rc = rc;
    if (!rc) {
        name = jt_get(doc.root, "name");
        v = jt_get(doc.root, "arguments");
        if (!v)
            v = jt_get(doc.root, "parameters");
    }
    if (jt_is(name, JT_STRING) && name->s.n && call_args(&doc, v, &args)) {
        call_send(s, name->s, args);
        s->in_call = false;
        ok = true;
    }
    jt_release(&doc);
    return ok;
}

/* p[0, n) goes into the body; false when it can be no JSON object. */
static bool call_take(struct stream *s, const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char c = p[i];

        if (!s->begun) {
            if (text_is_ws(c))
                continue;
            s->begun = true;
            if (c != '{') {
                tbuf_add(&s->body, p, n);
                return false;
            }
        }
        if (s->in_string && s->escaped)
            s->escaped = false;
        else if (s->in_string && c == '\\')
            s->escaped = true;
        else if (c == '"')
            s->in_string = !s->in_string;
    }
    tbuf_add(&s->body, p, n);
    return true;
}

static void on_text(void *ctx, const char *p, size_t n)
{
    struct stream *s = ctx;

    if (!s->in_call)
        stream_text(s, p, n);
    else if (!call_take(s, p, n))
        call_is_text(s);
}

static void on_marker(void *ctx, uint32_t m)
{
    struct stream *s = ctx;

    if (s->in_call && s->in_string) {
        call_take(s, markers[m], strlen(markers[m]));
        return;
    }
    if (s->in_call) {
        if ((m == M_CALL || m == M_CALL_END) && call_end(s)) {
            if (m == M_CALL)
                call_begin(s);
            return;
        }
        call_is_text(s);
    }
    if (s->form)
        marker_text(s, m);
    else if (m == M_CALL && s->n_tools)
        call_begin(s);
    else if (m == M_CALL || m == M_CALL_END)
        marker_text(s, m);
    else
        s->reasoning = m == M_THINK;
}

static void stream_close(void *stream)
{
    struct stream *s = stream;

    if (!s)
        return;
    chat_out_release(&s->out);
    tbuf_release(&s->body);
    jt_release(&s->tools);
    free(s->tool);
    free(s);
}

static int read_tools(struct stream *s, struct seam_str list,
                      struct seam_error *err)
{
    int rc;

    if (!list.n)
        return SEAM_OK;
    rc = jt_read(&s->tools, list, "tools", err);
    if (rc || s->tools.root->kind == JT_NULL)
        return rc;
    if (s->tools.root->kind != JT_ARRAY)
        return plug_fail(err, SEAM_EDATA, "tools: expected a list");
    s->tool = calloc(s->tools.root->count + 1, sizeof *s->tool);
    if (!s->tool)
        return plug_fail(err, SEAM_ENOMEM, "tools: out of memory");
    for (const struct jt_value *v = s->tools.root->first; v; v = v->next)
        if (jt_is(jt_get(chat_function(v), "name"), JT_STRING))
            s->tool[s->n_tools++] = chat_function(v);
    if (s->n_tools)
        qsort(s->tool, s->n_tools, sizeof *s->tool, by_name);
    return SEAM_OK;
}

static int stream_open(void *self, const struct seam_parse_opts *o,
                       const struct seam_sink *out, void **stream,
                       struct seam_error *err)
{
    struct stream *s = calloc(1, sizeof *s);
    int rc;

    if (!s)
        return plug_fail(err, SEAM_ENOMEM, "hermes: out of memory");
    rc = read_tools(s, o->tools, err);
    if (rc) {
        stream_close(s);
        return rc;
    }
    s->h = self;
    s->flags = o->flags;
    s->out.sink = *out;
    s->reasoning = chat_reasoning_open(o->prompt_tail, "<|im_start|>assistant");
    s->lexer = (struct marker_lexer){ .markers = markers,
                                      .n_markers = 4,
                                      .ctx = s,
                                      .text = on_text,
                                      .marker = on_marker };
    *stream = s;
    return SEAM_OK;
}

static int stream_rc(struct stream *s)
{
    if (s->body.failed && !s->out.rc)
        s->out.rc = SEAM_ENOMEM;
    return s->out.rc;
}

static int stream_feed(void *stream, uint32_t n, const int32_t *token,
                       struct seam_str s_text)
{
    struct stream *s = stream;

    (void)n;
    (void)token;
    if (!s->out.rc)
        marker_feed(&s->lexer, s_text.p, s_text.n);
    return stream_rc(s);
}

static int stream_finish(void *stream, uint32_t end)
{
    struct stream *s = stream;
    bool held = true; /* a tag begun is text */

    marker_end(&s->lexer);
    if (s->in_call) {
        if (end == SEAM_END_STOP && call_end(s))
            held = false;
        else if (end == SEAM_END_STOP || s->reasoning)
            call_is_text(s);
        else
            held = false; /* an open call that was cut leaves no trace */
    }
    if (held && s->lexer.n_held)
        stream_text(s, s->lexer.held, s->lexer.n_held);
    chat_out_finish(&s->out);
    return stream_rc(s);
}

/* ---- The plugin ---------------------------------------------------------- */

static int hermes_init(const struct seam_host *h, struct seam_error *err)
{
    (void)err;
    host = h;
    return SEAM_OK;
}

static int hermes_create(const struct seam_create *c, void **self,
                         struct seam_error *err)
{
    static const char *const needed[] = { "<|im_start|>", "<|im_end|>" };
    struct hermes *h = calloc(1, sizeof *h);
    struct seam_str unknown = { "drop", 4 };
    int rc = SEAM_OK;

    if (!h)
        return plug_fail(err, SEAM_ENOMEM, "hermes: out of memory");
    for (size_t i = 0; !rc && i < sizeof needed / sizeof *needed; i++)
        if (host->token_id(host->ctx, c->model, needed[i]) < 0)
            rc = plug_fail(err, SEAM_ENOENT,
                           "hermes: the tokenizer has no token %s", needed[i]);
    if (!rc && host->cfg(host->ctx, c->cfg, "unknown_tool", SEAM_CFG_STR,
                         &unknown) == SEAM_EINVAL)
        unknown.n = 0;
    if (!rc && !text_is(unknown, "drop") && !text_is(unknown, "forward"))
        rc = plug_fail(err, SEAM_EDATA,
                       "hermes config: unknown_tool is none "
                       "of \"drop\", \"forward\"");
    if (rc)
        goto out;
    h->host = host;
    h->rules = (struct chat_rules){ .host = host };
    h->forward_unknown = text_is(unknown, "forward");
    h->tag_tokens = true;
    for (size_t i = 0; i < sizeof markers / sizeof *markers; i++)
        h->tag_tokens = h->tag_tokens &&
                        host->token_id(host->ctx, c->model, markers[i]) >= 0;
    *self = h;
    h = NULL;
out:
    free(h);
    return rc;
}

static void hermes_destroy(void *self)
{
    free(self);
}

static const struct seam_parser table = {
    .size = sizeof(struct seam_parser),
    .render = hermes_render,
    .open = stream_open,
    .feed = stream_feed,
    .finish = stream_finish,
    .close = stream_close,
};

static int calls_write(void *self, struct seam_str tools_json, uint32_t flags,
                       const struct seam_sink *out, struct seam_error *err)
{
    const struct hermes *h = self;

    return hermes_calls_write(h->tag_tokens, tools_json, flags, out, err);
}

static const void *hermes_extension(const char *id)
{
    static const struct seam_call_grammar calls = {
        .size = sizeof(struct seam_call_grammar),
        .write = calls_write,
    };

    return strcmp(id, "call_grammar/1") ? NULL : &calls;
}

const struct seam_plugin seam_plugin_entry = {
    .ident = { SEAM_IDENT(SEAM_KIND_PARSER, struct seam_parser),
               .flags = SEAM_PLUGIN_UNLOADABLE, .name = "hermes",
               .version = "1.0.0", .build = __VERSION__ },
    .table = &table,
    .init = hermes_init,
    .create = hermes_create,
    .destroy = hermes_destroy,
    .extension = hermes_extension,
};
