#include "chat_request.h"

#include "plugin_util.h"

#define REMINDER(what)                                                  \
    "<reminder>You are unable to process this " what                    \
    " because you don't have multi-modal input ability. Try different " \
    "methods.</reminder>"

/* State of one chat_read. */
struct chat_reader {
    struct chat_request *r;
    const struct chat_rules *rules;
    struct seam_error *err;
    char path[96]; /* of what is being read, for messages */
};

static int chat_no_memory(struct chat_reader *c)
{
    return plug_fail(c->err, SEAM_ENOMEM, "request: out of memory");
}

static int chat_bad(struct chat_reader *c, const char *why)
{
    return plug_fail(c->err, SEAM_EDATA, "%s: %s", c->path, why);
}

__attribute__((format(printf, 2, 3))) static void chat_at(struct chat_reader *c,
                                                          const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(c->path, sizeof c->path, fmt, ap);
    va_end(ap);
}

static bool chat_has_type(const struct jt_value *v, const char *type)
{
    const struct jt_value *t = jt_get(v, "type");

    return jt_is(t, JT_STRING) && text_is(t->s, type);
}

/* Move what b holds into the request's memory. */
static int chat_keep(struct chat_reader *c, struct tbuf *b,
                     struct seam_str *out)
{
    char *p = jt_alloc(&c->r->doc, b->n ? b->n : 1);

    if (!p || b->failed)
        return chat_no_memory(c);
    if (b->n)
        memcpy(p, b->p, b->n);
    *out = (struct seam_str){ p, b->n };
    return SEAM_OK;
}

/* ---- Content ------------------------------------------------------------- */

static const struct chat_part {
    const char *type, *field;
    enum { PART_TEXT = 1, PART_THINK = 2, PART_MEDIA = 3 } kind;
    const char *reminder;
} parts[] = {
    { "text", "text", PART_TEXT, NULL },
    { "input_text", "text", PART_TEXT, NULL },
    { "output_text", "text", PART_TEXT, NULL },
    { "refusal", "refusal", PART_TEXT, NULL },
    { "thinking", "thinking", PART_THINK, NULL },
    { "reasoning", "reasoning", PART_THINK, NULL },
    { "image", NULL, PART_MEDIA, REMINDER("image") },
    { "image_url", NULL, PART_MEDIA, REMINDER("image") },
    { "input_image", NULL, PART_MEDIA, REMINDER("image") },
    { "video", NULL, PART_MEDIA, REMINDER("video") },
    { "video_url", NULL, PART_MEDIA, REMINDER("video") },
    { "input_video", NULL, PART_MEDIA, REMINDER("video") },
    { "audio", NULL, PART_MEDIA, REMINDER("audio") },
    { "audio_url", NULL, PART_MEDIA, REMINDER("audio") },
    { "input_audio", NULL, PART_MEDIA, REMINDER("audio") },
};

static const struct chat_part *chat_part_of(const struct jt_value *v)
{
    const struct jt_value *type = jt_get(v, "type");

    if (!type && jt_is(jt_get(v, "text"), JT_STRING))
        return &parts[0];
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (jt_is(type, JT_STRING) && text_is(type->s, parts[i].type))
            return &parts[i];
    return NULL;
}

/* One entry of a content list into text or think (NULL: not allowed here). */
static int chat_part_read(struct chat_reader *c, const struct jt_value *v,
                          struct tbuf *text, struct tbuf *think,
                          bool *has_think)
{
    const struct chat_part *part;
    const struct jt_value *field;

    if (v->kind == JT_STRING) {
        tbuf_add(text, v->s.p, v->s.n);
        return SEAM_OK;
    }
    if (v->kind != JT_OBJECT)
        return chat_bad(c, "expected a content part or a string");
    part = chat_part_of(v);
    if (!part || (part->kind == PART_THINK && !think))
        return chat_bad(c, "unknown type of content part");
    if (part->kind == PART_MEDIA) {
        if (!c->rules->media_reminder)
            return chat_bad(c, "this model reads text only, no images, video "
                               "or audio");
        tbuf_str(text, part->reminder);
        return SEAM_OK;
    }
    field = jt_get(v, part->field);
    if (!field && part->kind == PART_THINK)
        field = jt_get(v, "text");
    if (!jt_is(field, JT_STRING)) {
        size_t n = strlen(c->path);

        snprintf(c->path + n, sizeof c->path - n, ".%s", part->field);
        return chat_bad(c, "expected a string");
    }
    if (part->kind == PART_THINK) {
        *has_think = true;
        tbuf_add(think, field->s.p, field->s.n);
    } else {
        tbuf_add(text, field->s.p, field->s.n);
    }
    return SEAM_OK;
}

/* Content v at c->path: text, and the thinking parts among it when m is an
 * assistant's message. */
static int chat_content(struct chat_reader *c, const struct jt_value *v,
                        struct chat_msg *m, struct seam_str *out)
{
    struct tbuf text = { 0 }, think = { 0 };
    char where[sizeof c->path];
    bool has_think = false;
    int rc = SEAM_OK;
    size_t i = 0;

    *out = (struct seam_str){ "", 0 };
    if (jt_none(v))
        return SEAM_OK;
    if (v->kind == JT_STRING) {
        *out = v->s;
        return SEAM_OK;
    }
    if (v->kind != JT_ARRAY)
        return chat_bad(c, "expected a string or a list of content parts");
    memcpy(where, c->path, sizeof where);
    for (v = v->first; v && !rc; v = v->next) {
        chat_at(c, "%.*s[%zu]", 72, where, i++);
        rc = chat_part_read(c, v, &text, m ? &think : NULL, &has_think);
    }
    if (!rc)
        rc = chat_keep(c, &text, out);
    if (!rc && has_think) {
        m->has_reasoning = true;
        rc = chat_keep(c, &think, &m->reasoning);
    }
    tbuf_release(&think);
    tbuf_release(&text);
    return rc;
}

/* ---- Assistant ----------------------------------------------------------- */

/* Arguments as text: an object, blank or null for none, or an object written as
 * a string once more.  *out stays NULL for what is none of these. */
static int chat_args_text(struct chat_reader *c, struct seam_str text,
                          const struct jt_value **out, bool *bad)
{
    const struct jt_value *v = NULL;
    int rc;

    *bad = false;
    for (int layer = 0; layer < 2; layer++) {
        if (text_trim(text).n == 0)
            return SEAM_OK;
        rc = jt_read_more(&c->r->doc, text, c->path, &v, c->err);
        if (rc == SEAM_ENOMEM)
            return rc;
        if (rc)
            break;
        if (v->kind == JT_NULL)
            return SEAM_OK;
        if (v->kind == JT_OBJECT) {
            *out = v;
            return SEAM_OK;
        }
        if (v->kind != JT_STRING)
            break;
        text = v->s;
    }
    *bad = true;
    return SEAM_OK;
}

static int chat_args(struct chat_reader *c, const struct jt_value *v,
                     const struct jt_value **out)
{
    bool bad = false;
    char line[192];
    int rc;

    *out = NULL;
    if (jt_none(v))
        return SEAM_OK;
    if (v->kind == JT_OBJECT) {
        *out = v;
        return SEAM_OK;
    }
    if (v->kind == JT_STRING) {
        rc = chat_args_text(c, v->s, out, &bad);
        if (rc || !bad)
            return rc;
    }
    if (c->rules->strict_history)
        return chat_bad(c, "expected a JSON object, or its text");
    snprintf(line, sizeof line,
             "%s: no JSON object; rendered as a call without arguments",
             c->path);
    c->rules->host->log(c->rules->host->ctx, SEAM_LOG_WARN, line);
    return SEAM_OK;
}

static struct seam_str chat_string(const struct jt_value *v)
{
    return jt_is(v, JT_STRING) ? v->s : (struct seam_str){ "", 0 };
}

/* The name that ties results to calls. */
static struct seam_str chat_id(const struct jt_value *v)
{
    struct seam_str id = chat_string(jt_get(v, "tool_call_id"));

    return id.n ? id : chat_string(jt_get(v, "id"));
}

static int chat_call_read(struct chat_reader *c, const struct jt_value *v,
                          const char *where, struct chat_call *out)
{
    const struct jt_value *f = jt_get(v, "function"), *name;

    chat_at(c, "%s", where);
    if (v->kind != JT_OBJECT)
        return chat_bad(c, "expected an object");
    if (!jt_is(f, JT_OBJECT))
        f = v;
    name = jt_get(f, "name");
    chat_at(c, "%s%s.name", where, f == v ? "" : ".function");
    if (!jt_is(name, JT_STRING) || name->s.n == 0)
        return chat_bad(c, "expected the name of a function");
    out->id = chat_id(v);
    out->name = name->s;
    chat_at(c, "%s%s.arguments", where, f == v ? "" : ".function");
    return chat_args(c, jt_get(f, "arguments"), &out->args);
}

static int chat_calls(struct chat_reader *c, const struct jt_value *v,
                      size_t index, struct chat_msg *m)
{
    const struct jt_value *list = jt_get(v, "tool_calls");
    const struct jt_value *legacy = jt_get(v, "function_call");
    char where[64];
    int rc = SEAM_OK;

    if (jt_none(list) && jt_none(legacy))
        return SEAM_OK;
    if (jt_none(list)) {
        m->call = jt_alloc(&c->r->doc, sizeof *m->call);
        if (!m->call)
            return chat_no_memory(c);
        *m->call = (struct chat_call){ 0 };
        m->n_calls = 1;
        snprintf(where, sizeof where, "messages[%zu].function_call", index);
        return chat_call_read(c, legacy, where, m->call);
    }
    if (list->kind != JT_ARRAY) {
        chat_at(c, "messages[%zu].tool_calls", index);
        return chat_bad(c, "expected a list");
    }
    m->call = jt_alloc(&c->r->doc, list->count * sizeof *m->call);
    if (!m->call)
        return chat_no_memory(c);
    for (const struct jt_value *e = list->first; e && !rc; e = e->next) {
        struct chat_call *call = &m->call[m->n_calls];

        *call = (struct chat_call){ 0 };
        snprintf(where, sizeof where, "messages[%zu].tool_calls[%zu]", index,
                 m->n_calls++);
        rc = chat_call_read(c, e, where, call);
    }
    return rc;
}

static int chat_assistant(struct chat_reader *c, const struct jt_value *v,
                          size_t index, struct chat_msg *m)
{
    static const char *const fields[] = { "reasoning_content", "reasoning",
                                          "thinking" };
    const struct jt_value *content = jt_get(v, "content"), *e;
    int rc;

    if (jt_none(content) && jt_is(jt_get(v, "refusal"), JT_STRING))
        content = jt_get(v, "refusal");
    chat_at(c, "messages[%zu].content", index);
    rc = chat_content(c, content, m, &m->text);
    if (rc)
        return rc;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        e = jt_get(v, fields[i]);
        if (jt_is(e, JT_STRING)) {
            m->has_reasoning = true;
            m->reasoning = e->s;
            break;
        }
    }
    return chat_calls(c, v, index, m);
}

/* ---- Tool results -------------------------------------------------------- */

/* A result at c->path: text, or references to tools. */
static int chat_answer(struct chat_reader *c, const struct jt_value *v,
                       struct chat_result *out)
{
    char where[sizeof c->path];
    size_t i = 0;

    if (!jt_is(v, JT_ARRAY) || !v->first ||
        !chat_has_type(v->first, "tool_reference"))
        return chat_content(c, v, NULL, &out->text);
    memcpy(where, c->path, sizeof where);
    for (const struct jt_value *e = v->first; e; e = e->next) {
        chat_at(c, "%.*s[%zu]", 72, where, i++);
        if (!c->rules->tool_references)
            return chat_bad(c, "this model's format has no tool references");
        if (!chat_has_type(e, "tool_reference") ||
            !jt_is(jt_get(e, "name"), JT_STRING))
            return chat_bad(c, "expected a tool_reference with a name");
    }
    out->refs = v;
    out->text = (struct seam_str){ "", 0 };
    return SEAM_OK;
}

static int chat_tool(struct chat_reader *c, const struct jt_value *v,
                     size_t index, bool legacy, struct chat_msg *m)
{
    const struct jt_value *content = jt_get(v, "content"), *e = NULL;
    bool outputs = jt_is(content, JT_ARRAY) && jt_get(content->first, "output");
    int rc = SEAM_OK;

    m->result = jt_alloc(&c->r->doc,
                         (outputs ? content->count : 1) * sizeof *m->result);
    if (!m->result)
        return chat_no_memory(c);
    if (!outputs) {
        *m->result = (struct chat_result){ .id = chat_id(v) };
        if (legacy && !m->result->id.n)
            m->result->id = chat_string(jt_get(v, "name"));
        m->n_results = 1;
        chat_at(c, "messages[%zu].content", index);
        return chat_answer(c, content, m->result);
    }
    for (e = content->first; e && !rc; e = e->next) {
        struct chat_result *res = &m->result[m->n_results];

        chat_at(c, "messages[%zu].content[%zu]", index, m->n_results++);
        if (e->kind != JT_OBJECT)
            return chat_bad(c, "expected an object with an output");
        *res = (struct chat_result){ .id = chat_id(e) };
        chat_at(c, "messages[%zu].content[%zu].output", index,
                m->n_results - 1);
        rc = chat_answer(c, jt_get(e, "output"), res);
    }
    return rc;
}

/* ---- Messages and options ------------------------------------------------ */

static int chat_message(struct chat_reader *c, const struct jt_value *v,
                        size_t index)
{
    static const struct {
        const char *name;
        enum chat_role role;
    } roles[] = {
        { "system", CHAT_SYSTEM }, { "developer", CHAT_SYSTEM },
        { "user", CHAT_USER },     { "assistant", CHAT_ASSISTANT },
        { "tool", CHAT_TOOL },     { "function", CHAT_TOOL },
    };
    struct chat_msg *m = &c->r->msg[index];
    const struct jt_value *role;

    *m = (struct chat_msg){ .text = { "", 0 }, .reasoning = { "", 0 } };
    chat_at(c, "messages[%zu]", index);
    if (v->kind != JT_OBJECT)
        return chat_bad(c, "expected an object");
    role = jt_get(v, "role");
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (jt_is(role, JT_STRING) && text_is(role->s, roles[i].name))
            m->role = roles[i].role;
    switch (m->role) {
    case CHAT_SYSTEM:
    case CHAT_USER:
        chat_at(c, "messages[%zu].content", index);
        return chat_content(c, jt_get(v, "content"), NULL, &m->text);
    case CHAT_ASSISTANT:
        return chat_assistant(c, v, index, m);
    case CHAT_TOOL:
        return chat_tool(c, v, index, text_is(role->s, "function"), m);
    default:
        chat_at(c, "messages[%zu].role", index);
        return chat_bad(c, "expected system, developer, user, assistant or "
                           "tool");
    }
}

static int chat_tools(struct chat_reader *c)
{
    const struct jt_value *tools = jt_get(c->r->doc.root, "tools"), *e, *f;
    size_t i = 0;

    if (jt_none(tools))
        return SEAM_OK;
    chat_at(c, "tools");
    if (tools->kind != JT_ARRAY)
        return chat_bad(c, "expected a list");
    for (e = tools->first; e; e = e->next, i++) {
        chat_at(c, "tools[%zu]", i);
        if (e->kind != JT_OBJECT)
            return chat_bad(c, "expected an object");
        f = chat_function(e);
        if (!jt_is(f, JT_OBJECT) || !jt_is(jt_get(f, "name"), JT_STRING)) {
            chat_at(c, "tools[%zu]%s.name", i, f == e ? "" : ".function");
            return chat_bad(c, "expected the name of a function");
        }
    }
    if (tools->first)
        c->r->tools = tools;
    return SEAM_OK;
}

static int chat_switch_read(struct chat_reader *c, const struct jt_value *v,
                            const char *key, enum chat_switch *out)
{
    *out = CHAT_UNSET;
    v = jt_get(v, key);
    if (jt_none(v))
        return SEAM_OK;
    if (v->kind != JT_TRUE && v->kind != JT_FALSE)
        return chat_bad(c, "expected true or false");
    *out = v->kind == JT_TRUE ? CHAT_ON : CHAT_OFF;
    return SEAM_OK;
}

/* "none" is no effort but thinking switched off. */
static int chat_effort_read(struct chat_reader *c, const struct jt_value *v,
                            enum chat_effort *out, bool *none)
{
    static const struct {
        const char *name;
        enum chat_effort effort;
    } efforts[] = {
        { "none", CHAT_EFFORT_UNSET }, { "minimal", CHAT_EFFORT_LOW },
        { "low", CHAT_EFFORT_LOW },    { "medium", CHAT_EFFORT_HIGH },
        { "high", CHAT_EFFORT_HIGH },  { "xhigh", CHAT_EFFORT_MAX },
        { "max", CHAT_EFFORT_MAX },
    };

    *out = CHAT_EFFORT_UNSET;
    *none = false;
    for (size_t i = 0; i < sizeof efforts / sizeof *efforts; i++) {
        if (!jt_is(v, JT_STRING) || !text_is(v->s, efforts[i].name))
            continue;
        *out = efforts[i].effort;
        *none = i == 0;
        return SEAM_OK;
    }
    return chat_bad(c, "expected none, minimal, low, medium, high, xhigh or "
                       "max");
}

/* {"type": "enabled"|"disabled", "clear_thinking": bool}, or just a bool. */
static int chat_thinking_read(struct chat_reader *c, const struct jt_value *v,
                              enum chat_switch *on, enum chat_switch *clear)
{
    char where[sizeof c->path];
    const struct jt_value *type;
    int rc;

    *on = *clear = CHAT_UNSET;
    if (jt_none(v))
        return SEAM_OK;
    if (v->kind == JT_TRUE || v->kind == JT_FALSE) {
        *on = v->kind == JT_TRUE ? CHAT_ON : CHAT_OFF;
        return SEAM_OK;
    }
    if (v->kind != JT_OBJECT)
        return chat_bad(c, "expected an object with a type");
    memcpy(where, c->path, sizeof where);
    type = jt_get(v, "type");
    if (jt_is(type, JT_STRING) &&
        (text_is(type->s, "enabled") || text_is(type->s, "adaptive"))) {
        *on = CHAT_ON;
    } else if (jt_is(type, JT_STRING) && text_is(type->s, "disabled")) {
        *on = CHAT_OFF;
    } else if (!jt_none(type)) {
        chat_at(c, "%.64s.type", where);
        return chat_bad(c, "expected enabled or disabled");
    }
    chat_at(c, "%.64s.clear_thinking", where);
    rc = chat_switch_read(c, v, "clear_thinking", clear);
    if (!rc && *clear == CHAT_UNSET)
        rc = chat_switch_read(c, v, "clearThinking", clear);
    return rc;
}

/* Thinking, clearing and effort: first the template's own arguments, then the
 * fields of the request. */
static int chat_options(struct chat_reader *c)
{
    static const char kwargs[] = "chat_template_kwargs";
    struct chat_request *r = c->r;
    const struct jt_value *root = r->doc.root, *kw = jt_get(root, kwargs), *v;
    int rc;

    if (jt_none(kw))
        kw = NULL;
    chat_at(c, "%s", kwargs);
    if (kw && kw->kind != JT_OBJECT)
        return chat_bad(c, "expected an object");
    chat_at(c, "%s.chat_template", kwargs);
    if (kw && !jt_none(jt_get(kw, "chat_template")))
        return chat_bad(c, "templates are not taken from requests");
    for (int level = 0; level < 2; level++) {
        const struct jt_value *from = level ? root : kw;
        const char *pre = level ? "" : "chat_template_kwargs.";
        enum chat_switch on, clear, object_on, object_clear;
        enum chat_effort effort = CHAT_EFFORT_UNSET;
        bool none = false, given;

        if (!from)
            continue;
        chat_at(c, "%senable_thinking", pre);
        rc = chat_switch_read(c, from, "enable_thinking", &on);
        if (rc)
            return rc;
        chat_at(c, "%sclear_thinking", pre);
        rc = chat_switch_read(c, from, "clear_thinking", &clear);
        if (rc)
            return rc;
        chat_at(c, "%sthinking", pre);
        rc = chat_thinking_read(c, jt_get(from, "thinking"), &object_on,
                                &object_clear);
        if (rc)
            return rc;
        v = jt_get(from, "reasoning_effort");
        given = !jt_none(v);
        chat_at(c, "%sreasoning_effort", pre);
        if (given)
            rc = chat_effort_read(c, v, &effort, &none);
        if (rc)
            return rc;
        /* An effort given above outranks one given here. */
        if (r->effort == CHAT_EFFORT_UNSET)
            r->effort = effort;
        else
            none = false;
        if (r->thinking == CHAT_UNSET)
            r->thinking = on != CHAT_UNSET ? on : none ? CHAT_OFF : object_on;
        if (r->clear_thinking == CHAT_UNSET)
            r->clear_thinking = clear != CHAT_UNSET ? clear : object_clear;
    }
    return SEAM_OK;
}

static int chat_ends(struct chat_reader *c)
{
    const struct jt_value *root = c->r->doc.root;
    enum chat_switch generate, resume;
    int rc;

    chat_at(c, "add_generation_prompt");
    rc = chat_switch_read(c, root, "add_generation_prompt", &generate);
    if (rc)
        return rc;
    chat_at(c, "continue_final_message");
    rc = chat_switch_read(c, root, "continue_final_message", &resume);
    if (rc)
        return rc;
    c->r->resume = resume == CHAT_ON;
    if (c->r->resume && generate == CHAT_ON)
        return chat_bad(c, "excludes add_generation_prompt");
    if (c->r->resume && c->r->msg[c->r->n_msgs - 1].role != CHAT_ASSISTANT)
        return chat_bad(c, "the last message is not the assistant's");
    c->r->generate = generate != CHAT_OFF && !c->r->resume;
    return SEAM_OK;
}

int chat_read(struct chat_request *r, struct seam_str text,
              const struct chat_rules *rules, struct seam_error *err)
{
    struct chat_reader c = { .r = r, .rules = rules, .err = err };
    const struct jt_value *list, *v;
    int rc;

    *r = (struct chat_request){ 0 };
    rc = jt_read(&r->doc, text, "request", err);
    if (rc)
        return rc;
    chat_at(&c, "request");
    if (r->doc.root->kind != JT_OBJECT)
        return chat_bad(&c, "expected an object");
    chat_at(&c, "chat_template");
    if (!jt_none(jt_get(r->doc.root, "chat_template")))
        return chat_bad(&c, "templates are not taken from requests");
    list = jt_get(r->doc.root, "messages");
    chat_at(&c, "messages");
    if (!jt_is(list, JT_ARRAY) || !list->first)
        return chat_bad(&c, "expected a list of at least one message");
    r->msg = jt_alloc(&r->doc, list->count * sizeof *r->msg);
    if (!r->msg)
        return chat_no_memory(&c);
    for (v = list->first; v && !rc; v = v->next)
        rc = chat_message(&c, v, r->n_msgs++);
    if (!rc)
        rc = chat_tools(&c);
    if (!rc)
        rc = chat_options(&c);
    if (!rc)
        rc = chat_ends(&c);
    return rc;
}

void chat_release(struct chat_request *r)
{
    jt_release(&r->doc);
}

const struct jt_value *chat_function(const struct jt_value *tool)
{
    const struct jt_value *f = jt_get(tool, "function");

    return f ? f : tool;
}

bool chat_reasoning_open(struct seam_str tail, const char *turn)
{
    static const char open_tag[] = "<think>", close_tag[] = "</think>";
    size_t at, from = tail.n;

    /* Behind the opening of the last answer, the scaffold's tags come first:
     * what they open is open unless some tag closes it, and a <think> in the
     * text of an answer to be continued opens nothing. */
    for (at = text_find(tail, 0, turn); at < tail.n;
         at = text_find(tail, at + 1, turn))
        from = at;
    if (text_find(tail, from, close_tag) < tail.n)
        return false;
    if (text_find(tail, from, open_tag) < tail.n)
        return true;
    /* Such a text may hold the opening itself; or there is none. */
    for (at = text_find(tail, 0, open_tag); at < tail.n;
         at = text_find(tail, at + 1, open_tag))
        from = at;
    return text_find(tail, 0, open_tag) < tail.n &&
           text_find(tail, from, close_tag) == tail.n;
}
