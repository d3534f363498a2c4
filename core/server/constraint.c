#include "core/server/constraint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "core/server/tools.h"

/* Schemas that a parser may send. */
#define MAX_SCHEMAS 65536

static int no_memory(struct seam_api_error *e)
{
    return seam_api_fail(e, 503, "overloaded", NULL, "no memory");
}

/* The message of a refusal, with the path that begins it as the parameter. */
static int constraint_refuse(const char *param, int rc, const char *text,
                             struct seam_api_error *e)
{
    if (rc == SEAM_ENOMEM)
        return no_memory(e);
    return seam_api_fail_path(e, "unsupported_value", param, text);
}

/* ---- Calls --------------------------------------------------------------- */

/* A grammar on its way from the parser. */
struct calls {
    const struct seam_request *r;
    const struct seam_grammar_import
        *answer;   /* what may come instead, or NULL */
    json_t *tools; /* those that the parser was given */
    struct seam_buf text;
    struct schema {
        char name[16];
        struct seam_buf where, text;
        json_t *v;
    } * schema; /* [n] */
    uint32_t n, cap;
    struct seam_grammar_import *import; /* [n], then the answer's */
};

static void calls_release(struct calls *c)
{
    for (uint32_t i = 0; i < c->n; i++) {
        seam_buf_release(&c->schema[i].where);
        seam_buf_release(&c->schema[i].text);
        json_decref(c->schema[i].v);
    }
    free(c->schema);
    free(c->import);
    seam_buf_release(&c->text);
    json_decref(c->tools);
}

/* "tools[2].function" of the list given to the parser, as the client has it. */
static void calls_path(const struct calls *c, const char *path,
                       struct seam_buf *out)
{
    size_t n = 0, i = 0;

    if (!strncmp(path, "tools[", 6)) {
        for (n = 6; path[n] >= '0' && path[n] <= '9' && n < 16; n++)
            i = 10 * i + (size_t)(path[n] - '0');
        seam_buf_fmt(out, "%s[%zu", seam_tools_field(c->r),
                     seam_tools_place(c->r, c->tools, i));
    }
    seam_buf_str(out, path + n);
}

static int calls_event(void *ctx, uint32_t kind, uint32_t index, const char *p,
                       uint64_t n)
{
    struct calls *c = ctx;
    struct seam_buf *b;

    if (kind == SEAM_EV_TEXT) {
        seam_buf_add(&c->text, p, n);
        return c->text.failed ? SEAM_ENOMEM : 0;
    }
    if ((kind != SEAM_EV_TOOL_NAME && kind != SEAM_EV_TOOL_ARGS) ||
        index > c->n || index >= MAX_SCHEMAS)
        return SEAM_EINVAL;
    if (index == c->cap) {
        uint32_t cap = c->cap ? 2 * c->cap : 16;
        struct schema *more = realloc(c->schema, cap * sizeof *more);

        if (!more)
            return SEAM_ENOMEM;
        c->schema = more;
        c->cap = cap;
    }
    if (index == c->n) {
        c->schema[index] = (struct schema){ .v = NULL };
        snprintf(c->schema[index].name, sizeof c->schema[index].name, "s%u",
                 index);
        c->n++;
    }
    b = kind == SEAM_EV_TOOL_NAME ? &c->schema[index].where
                                  : &c->schema[index].text;
    seam_buf_add(b, p, n);
    return b->failed ? SEAM_ENOMEM : 0;
}

/* The schemas as the compiler wants them. */
static int calls_import(struct calls *c, struct seam_error *err)
{
    c->import = calloc(c->n + 1, sizeof *c->import);
    if (!c->import)
        return seam_fail(err, SEAM_ENOMEM, "no memory");
    for (uint32_t i = 0; i < c->n; i++) {
        struct schema *s = &c->schema[i];
        struct seam_buf where = { 0 };

        calls_path(c, s->where.n ? s->where.p : "tools", &where);
        seam_buf_release(&s->where);
        s->where = where;
        if (where.failed)
            return seam_fail(err, SEAM_ENOMEM, "no memory");
        s->v = seam_json_parse(s->text.p, s->text.n, "schema",
                               SEAM_JSON_BIG_INT, err);
        if (!s->v)
            return err->code;
        c->import[i] = (struct seam_grammar_import){ .name = s->name,
                                                     .schema = s->v,
                                                     .where = s->where.p };
    }
    if (c->answer)
        c->import[c->n] = *c->answer;
    return 0;
}

/* Leave only the tool that tool_choice, or function_call, names. */
static int calls_name(struct calls *c)
{
    const json_t *choice = json_object_get(c->r->body, "tool_choice");
    json_t *one = json_array();
    const char *want;
    json_t *tool;
    size_t i;

    if (!json_is_object(choice))
        choice = json_object_get(c->r->body, "function_call");
    want = seam_tool_name(choice);
    json_array_foreach(c->tools, i, tool)
    {
        const char *name = seam_tool_name(tool);

        if (want && name && !strcmp(want, name) && one)
            json_array_append(one, tool);
    }
    json_decref(c->tools);
    c->tools = one;
    return json_array_size(one) ? 0 : SEAM_ENOMEM;
}

static const struct seam_call_grammar *calls_extension(
    const struct seam_instance *parser)
{
    const struct seam_plugin *p = &parser->plugin->plugin;
    const struct seam_call_grammar *x =
        p->extension ? p->extension("call_grammar/1") : NULL;

    return x && SEAM_HAS(x, write) ? x : NULL;
}

static bool is_strict(const json_t *tools)
{
    const json_t *tool;
    size_t i;

    json_array_foreach(tools, i, tool)
    {
        if (json_is_true(json_object_get(seam_tool_function(tool), "strict")) ||
            json_is_true(json_object_get(tool, "strict")))
            return true;
    }
    return false;
}

static bool is_forced(const struct seam_request *r)
{
    return r->tool_choice == SEAM_TOOLS_REQUIRED ||
           r->tool_choice == SEAM_TOOLS_NAMED;
}

static int constraint_apart(const struct seam_instance *parser,
                            struct seam_api_error *e)
{
    return seam_api_fail(e, 400, "unsupported_value", "response_format",
                         "response_format cannot be combined with tools that "
                         "may be called: the parser plugin %s does not say "
                         "how its model writes calls",
                         parser->host.name);
}

static int calls_compile(const struct seam_engine *engine,
                         const struct seam_instance *parser, struct calls *c,
                         uint32_t flags, struct seam_grammar **g,
                         struct seam_api_error *e)
{
    const struct seam_call_grammar *x = calls_extension(parser);
    struct seam_sink sink = { .ctx = c, .event = calls_event };
    char *tools = json_dumps(c->tools, JSON_COMPACT);
    struct seam_error err = { 0 };
    struct seam_buf text = { 0 };
    int rc = SEAM_ENOMEM;

    if (tools)
        rc = x->write(parser->self, (struct seam_str){ tools, strlen(tools) },
                      flags, &sink, &err);
    free(tools);
    if (rc == SEAM_EINVAL)
        return seam_api_fail(e, 500, NULL, NULL,
                             "the parser plugin's grammar of calls cannot be "
                             "used");
    /* One made before there was such a thing. */
    if (!rc && c->answer && (!c->text.n || !strstr(c->text.p, "@answer")))
        return constraint_apart(parser, e);
    if (!rc)
        rc = calls_import(c, &err);
    if (!rc)
        rc = seam_compiled_text(
            seam_engine_compiled(engine), g, c->text.p, c->text.n, "tools",
            c->import, c->n + (c->answer != NULL), SEAM_GRAMMAR_COMPACT, &err);
    if (!rc)
        return 0;
    /* What the parser says is of its list; imports were told their paths. */
    if (c->import)
        seam_buf_str(&text, err.text);
    else
        calls_path(c, err.text, &text);
    rc = constraint_refuse(seam_tools_field(c->r),
                           text.failed ? SEAM_ENOMEM : rc, text.p ? text.p : "",
                           e);
    seam_buf_release(&text);
    return rc;
}

/* answer: what may come in the place of calls, or NULL: text, unless calls are
 * asked for.  Without a grammar the model is free, or has nothing to call. */
static int calls_make(const struct seam_engine *engine,
                      const struct seam_instance *parser,
                      const struct seam_request *r, bool thinking,
                      const struct seam_grammar_import *answer,
                      struct seam_grammar **g, struct seam_api_error *e)
{
    bool named = r->tool_choice == SEAM_TOOLS_NAMED, forced = is_forced(r);
    struct calls c = { .r = r,
                       .answer = answer,
                       .tools = seam_tools_callable(r) };
    uint32_t flags = (thinking ? SEAM_CALLS_THINK : 0) |
                     (forced ? SEAM_CALLS_MUST : 0) |
                     (answer ? SEAM_CALLS_ANSWER : 0) |
                     (named || !r->parallel_calls ? SEAM_CALLS_ONE : 0);
    int rc = 0;

    if (!c.tools || (named && calls_name(&c)))
        rc = no_memory(e);
    else if (answer && !json_array_size(c.tools))
        rc = 0;
    else if (answer && !calls_extension(parser))
        rc = constraint_apart(parser, e);
    else if (!answer && !forced &&
             (!calls_extension(parser) || !is_strict(c.tools)))
        rc = 0; /* the model is free */
    else if (!json_array_size(c.tools))
        rc = seam_api_invalid(e, "tool_choice",
                              "tool_choice asks for a call but allows none of "
                              "the tools");
    else if (!calls_extension(parser))
        rc = seam_api_fail(e, 400, "unsupported_value", "tool_choice",
                           "tool_choice cannot be enforced: the parser plugin "
                           "%s does not say how its model writes calls",
                           parser->host.name);
    else
        rc = calls_compile(engine, parser, &c, flags, g, e);
    calls_release(&c);
    return rc;
}

void seam_constraint_note(const struct seam_engine *engine,
                          struct seam_request *r)
{
    struct seam_instance *parser;
    json_t *tools;
    bool held;

    if (!r->has_tools || r->tool_choice == SEAM_TOOLS_NONE)
        return;
    parser = seam_engine_plugin(engine, SEAM_ROLE_PARSER);
    held = calls_extension(parser) != NULL;
    seam_instance_unref(parser);
    if (held)
        return;
    tools = seam_tools_callable(r);
    if (is_strict(tools))
        seam_request_ignore(r, "tools.strict");
    json_decref(tools);
}

/* ---- Text ---------------------------------------------------------------- */

int32_t seam_constraint_after(const struct seam_engine *engine,
                              const int32_t *prompt, size_t n)
{
    const struct seam_tokenizer *t = seam_engine_tokenizer(engine);
    int32_t open = seam_tokenizer_id(t, "<think>", 7);
    int32_t close = seam_tokenizer_id(t, "</think>", 8);
    int32_t turn = seam_tokenizer_id(t, "<|assistant|>", 13);

    if (open < 0 || close < 0)
        return -1;
    /* Only the template writes these ids; text of a request never does. */
    while (n--) {
        if (prompt[n] == open)
            return close;
        if (prompt[n] == close || prompt[n] == turn)
            return -1;
    }
    return -1;
}

/* What response_format asks for, as a schema to be released; NULL: no memory.
 * type is json_object or json_schema. */
static json_t *format_schema(const json_t *format, const char *type,
                             const char **where)
{
    const json_t *v = json_object_get(format, "json_schema");

    *where = "response_format.json_schema.schema";
    if (!strcmp(type, "json_schema"))
        return json_incref(json_object_get(v, "schema"));
    *where = "response_format";
    return json_pack("{s:s}", "type", "object");
}

/* Calls, or else text of the format. */
static int format_or_calls(const struct seam_engine *engine,
                           const struct seam_instance *parser,
                           const struct seam_request *r, bool thinking,
                           const json_t *format, const char *type,
                           struct seam_constraint *c, struct seam_api_error *e)
{
    struct seam_grammar_import answer = { .name = "answer", .spaced = true };
    json_t *schema = format_schema(format, type, &answer.where);
    int rc;

    answer.schema = schema;
    rc = schema
             ? calls_make(engine, parser, r, thinking, &answer, &c->grammar, e)
             : no_memory(e);
    c->whole = c->form = c->grammar != NULL;
    json_decref(schema);
    return rc;
}

static int format_make(const struct seam_engine *engine,
                       const struct seam_request *r, const json_t *format,
                       const char *type, struct seam_constraint *c,
                       struct seam_api_error *e)
{
    struct seam_compiled *known = seam_engine_compiled(engine);
    const json_t *text = json_object_get(r->body, "grammar");
    const char *field = type ? "response_format" : "grammar";
    struct seam_error err = { 0 };
    int rc;

    c->form = true;
    if (!type)
        rc = seam_compiled_text(known, &c->grammar, json_string_value(text),
                                json_string_length(text), field, NULL, 0, 0,
                                &err);
    else if (!strcmp(type, "json_object"))
        rc = seam_compiled_object(known, &c->grammar, 0, &err);
    else
        rc = seam_compiled_schema(
            known, &c->grammar,
            json_object_get(json_object_get(format, "json_schema"), "schema"),
            "response_format.json_schema.schema", 0, &err);
    return rc ? constraint_refuse(field, rc, err.text, e) : 0;
}

int seam_constraint_make(const struct seam_engine *engine,
                         const struct seam_instance *parser,
                         const struct seam_request *r, const int32_t *prompt,
                         size_t n_prompt, struct seam_constraint *c,
                         struct seam_api_error *e)
{
    const json_t *format = json_object_get(r->body, "response_format");
    bool text = json_is_string(json_object_get(r->body, "grammar"));
    const char *type = json_string_value(json_object_get(format, "type"));
    bool calls = r->has_tools && r->tool_choice != SEAM_TOOLS_NONE;
    bool thinking =
        calls && seam_constraint_after(engine, prompt, n_prompt) >= 0;
    int rc;

    *c = (struct seam_constraint){ .grammar = NULL };
    if (type && !strcmp(type, "text"))
        type = NULL;
    if (type && text)
        return seam_api_fail(e, 400, "unsupported_value", "grammar",
                             "grammar cannot be combined with response_format");
    if (calls && text)
        return seam_api_fail(e, 400, "unsupported_value", "grammar",
                             "grammar cannot be combined with tools that may "
                             "be called");
    /* Where a call has to come there is no text that could have a format. */
    if ((!type && !text) || (calls && is_forced(r))) {
        /* Reasoning could call a tool or end the answer. */
        c->whole = true;
        return calls ? calls_make(engine, parser, r, thinking, NULL,
                                  &c->grammar, e)
                     : 0;
    }
    if (calls) {
        rc = format_or_calls(engine, parser, r, thinking, format, type, c, e);
        if (rc || c->grammar)
            return rc;
    }
    return format_make(engine, r, format, type, c, e);
}
