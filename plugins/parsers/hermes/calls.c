#include "calls.h"

#include "chat_request.h"
#include "grammar_text.h"
#include "plugin_util.h"

struct writer {
    const struct seam_sink *out;
    int rc;
    struct seam_error *err;
    struct jt_doc doc;
    struct tbuf text, where, schema;
    uint32_t n_schemas;
};

static void refuse(struct writer *w, const char *what)
{
    if (!w->rc)
        w->rc = plug_fail(w->err, SEAM_EDATA, "%.*s: %s", (int)w->where.n,
                          w->where.p ? w->where.p : "", what);
}

static void send(struct writer *w, uint32_t kind, uint32_t index,
                 struct tbuf *b)
{
    if (!w->rc && b->failed)
        w->rc = plug_fail(w->err, SEAM_ENOMEM, "tools: out of memory");
    if (!w->rc && b->n)
        w->rc = w->out->event(w->out->ctx, kind, index, b->p, b->n);
    tbuf_clear(b);
}

/* A tag as a token, or as text. */
static void tag(struct writer *w, bool tokens, const char *s)
{
    tbuf_str(&w->text, tokens ? s : "");
    if (!tokens)
        gt_literal(&w->text, (struct seam_str){ s, strlen(s) });
    tbuf_str(&w->text, " ");
}

/* The schema of the arguments, which are always an object. */
static void arguments(struct writer *w, const struct jt_value *params)
{
    const struct jt_value *type = jt_get(params, "type");
    struct tbuf *b = &w->schema;
    char name[32];

    if (params->kind != JT_OBJECT ||
        (type && !(type->kind == JT_STRING && text_is(type->s, "object")))) {
        tbuf_str(&w->where, type ? ".type" : "");
        refuse(w, "expected the schema of an object");
        return;
    }
    if (type) {
        jt_write(b, params, NULL);
    } else {
        struct tbuf rest = { 0 };

        jt_write(&rest, params, NULL);
        tbuf_str(b, params->first ? "{\"type\": \"object\", "
                                  : "{\"type\": \"object\"");
        if (rest.n)
            tbuf_add(b, rest.p + 1, rest.n - 1);
        b->failed = b->failed || rest.failed;
        tbuf_release(&rest);
    }
    snprintf(name, sizeof name, "@s%u", w->n_schemas);
    tbuf_str(&w->text, name);
    send(w, SEAM_EV_TOOL_NAME, w->n_schemas, &w->where);
    send(w, SEAM_EV_TOOL_ARGS, w->n_schemas, b);
    w->n_schemas++;
}

static void tool(struct writer *w, const struct jt_value *v, size_t i,
                 bool must)
{
    const struct jt_value *f = chat_function(v), *name = jt_get(f, "name");
    const struct jt_value *params = jt_get(f, "parameters");
    struct tbuf head = { 0 };
    char s[48];

    tbuf_clear(&w->where);
    snprintf(s, sizeof s, "tools[%zu]%s", i, f != v ? ".function" : "");
    tbuf_str(&w->where, s);
    if (!jt_is(name, JT_STRING) || !name->s.n) {
        tbuf_str(&w->where, ".name");
        refuse(w, "no name that a call could have");
        return;
    }
    snprintf(s, sizeof s, "tool%zu ::= ", i);
    tbuf_str(&w->text, s);
    tbuf_str(&head, "{\"name\": ");
    tbuf_json(&head, name->s.p, name->s.n);
    tbuf_str(&head, ", \"arguments\": ");
    gt_literal(&w->text, tbuf_view(&head));
    w->text.failed = w->text.failed || head.failed;
    tbuf_release(&head);
    tbuf_str(&w->text, " ");
    if (!must && !jt_is(jt_get(f, "strict"), JT_TRUE)) {
        tbuf_str(&w->text, "@object");
    } else if (jt_none(params)) {
        tbuf_str(&w->text, "\"{}\"");
    } else {
        tbuf_str(&w->where, ".parameters");
        arguments(w, params);
    }
    tbuf_str(&w->text, " \"}\"\n");
    send(w, SEAM_EV_TEXT, 0, &w->text);
}

static void frame(struct writer *w, bool tokens, uint32_t flags, size_t n)
{
    static const char *const words[] = { "<tool_call>", "</think>" };
    bool one = flags & SEAM_CALLS_ONE, must = flags & SEAM_CALLS_MUST;
    bool answer = flags & SEAM_CALLS_ANSWER;
    char name[32];

    tbuf_str(&w->text, "root ::= ");
    if (flags & SEAM_CALLS_THINK) {
        tbuf_str(&w->text, "thoughts ");
        tag(w, tokens, words[1]);
    }
    if (answer)
        tbuf_str(&w->text, one ? "(call | @answer)\n"
                               : "(call (\"\\n\" call)* | @answer)\n");
    else if (must)
        tbuf_str(&w->text, one ? "call\n" : "call (\"\\n\" call)*\n");
    else
        tbuf_str(&w->text,
                 one ? "words (call words)?\n" : "words (call words)*\n");
    if (flags & SEAM_CALLS_THINK)
        gt_without(&w->text, "thoughts", words, 2);
    if (!must && !answer)
        gt_without(&w->text, "words", words, 1);
    tbuf_str(&w->text, "call ::= ");
    tag(w, tokens, words[0]);
    tbuf_str(&w->text, "\"\\n\" (");
    for (size_t i = 0; i < n; i++) {
        snprintf(name, sizeof name, "%stool%zu", i ? " | " : "", i);
        tbuf_str(&w->text, name);
    }
    tbuf_str(&w->text, ") \"\\n\" ");
    tag(w, tokens, "</tool_call>");
    tbuf_str(&w->text, "\n");
    send(w, SEAM_EV_TEXT, 0, &w->text);
}

int hermes_calls_write(bool tag_tokens, struct seam_str tools, uint32_t flags,
                       const struct seam_sink *out, struct seam_error *err)
{
    struct writer w = { .out = out, .err = err };
    size_t i = 0;

    w.rc = jt_read(&w.doc, tools, "tools", err);
    if (!w.rc && (w.doc.root->kind != JT_ARRAY || !w.doc.root->first))
        w.rc = plug_fail(err, SEAM_EDATA, "tools: expected a list of tools");
    if (!w.rc)
        frame(&w, tag_tokens, flags, w.doc.root->count);
    for (const struct jt_value *v = w.rc ? NULL : w.doc.root->first; v && !w.rc;
         v = v->next)
        tool(&w, v, i++, flags & SEAM_CALLS_MUST);
    tbuf_release(&w.text);
    tbuf_release(&w.where);
    tbuf_release(&w.schema);
    jt_release(&w.doc);
    return w.rc;
}
