/* How GLM writes calls, as a grammar (chat spec, section 3.11):
 *
 *   <tool_call> NAME pairs </tool_call>
 *   pair = <arg_key> KEY </arg_key> <arg_value> VALUE </arg_value>
 *
 * The tags are tokens of their own.  The pairs of the declared properties come
 * in the order of their declaration, those that are not required may be left
 * out.  A value is what the property's schema allows, strings as they stand:
 * that needs schemas whose values typing.c reads back as what they were. */
#include "calls.h"

#include <stdlib.h>

#include "chat_request.h"
#include "grammar_text.h"
#include "markers.h"
#include "plugin_util.h"
#include "typing.h"

#define MAX_REFS 32 /* parameters that refer to parameters ... */

struct writer {
    const struct seam_sink *out;
    struct seam_error *err;
    int rc;
    uint32_t flags;
    struct jt_doc doc; /* the tools */
    struct tbuf text;  /* of the rule at hand */
    struct tbuf where; /* path of what is at hand */
    struct tbuf schema;
    uint32_t n_schemas;
    /* Of the tool at hand: what $ref points into, or NULL. */
    const struct jt_value *params;
};

/* ---- Failing ------------------------------------------------------------- */

static bool out_of_memory(struct writer *w)
{
    if (!w->rc)
        w->rc = plug_fail(w->err, SEAM_ENOMEM, "tools: out of memory");
    return false;
}

/* "PATH: what" */
static bool refuse(struct writer *w, const char *what)
{
    if (!w->rc)
        w->rc = plug_fail(w->err, SEAM_EDATA, "%.*s: %s", (int)w->where.n,
                          w->where.p ? w->where.p : "", what);
    return false;
}

static void send(struct writer *w, uint32_t kind, uint32_t index,
                 struct tbuf *b)
{
    if (b->failed)
        out_of_memory(w);
    if (!w->rc && b->n)
        w->rc = w->out->event(w->out->ctx, kind, index, b->p, b->n);
}

static void send_text(struct writer *w)
{
    send(w, SEAM_EV_TEXT, 0, &w->text);
    tbuf_clear(&w->text);
}

/* ---- Paths --------------------------------------------------------------- */

/* Append ".key"; returns what to cut the path back to. */
static size_t path_add(struct writer *w, struct seam_str key)
{
    size_t n = w->where.n;

    tbuf_str(&w->where, ".");
    tbuf_add(&w->where, key.p, key.n);
    return n;
}

static size_t path_str(struct writer *w, const char *key)
{
    return path_add(w, (struct seam_str){ key, strlen(key) });
}

static void path_index(struct writer *w, const char *list, size_t i)
{
    char s[48];

    snprintf(s, sizeof s, "%s[%zu]", list, i);
    tbuf_str(&w->where, s);
}

/* ---- Schemas ------------------------------------------------------------- */

static bool has_ref(const struct jt_value *v)
{
    if (jt_is(v, JT_OBJECT) && jt_is(jt_get(v, "$ref"), JT_STRING))
        return true;
    for (v = v->kind == JT_OBJECT || v->kind == JT_ARRAY ? v->first : NULL; v;
         v = v->next)
        if (has_ref(v))
            return true;
    return false;
}

/* What a member of a schema holds. */
enum holds { HOLDS_SCHEMA, HOLDS_SCHEMAS_BY_NAME, HOLDS_DATA };

static enum holds holds(struct seam_str key)
{
    static const char *const by_name[] = { "properties", "$defs", "definitions",
                                           "patternProperties",
                                           "dependentSchemas" };
    static const char *const data[] = { "enum", "const", "default", "examples",
                                        "required" };

    for (size_t i = 0; i < sizeof by_name / sizeof *by_name; i++)
        if (text_is(key, by_name[i]))
            return HOLDS_SCHEMAS_BY_NAME;
    for (size_t i = 0; i < sizeof data / sizeof *data; i++)
        if (text_is(key, data[i]))
            return HOLDS_DATA;
    return HOLDS_SCHEMA;
}

/* v as JSON text; its references within the document lead to where that now
 * stands, in $defs.parameters of another. */
static void write_moved(struct tbuf *b, const struct jt_value *v,
                        enum holds what)
{
    bool object = v->kind == JT_OBJECT;

    if (what == HOLDS_DATA || (!object && v->kind != JT_ARRAY)) {
        jt_write(b, v, NULL);
        return;
    }
    tbuf_str(b, object ? "{" : "[");
    for (const struct jt_value *m = v->first; m; m = m->next) {
        if (m != v->first)
            tbuf_str(b, ", ");
        if (object) {
            tbuf_json(b, m->key.p, m->key.n);
            tbuf_str(b, ": ");
        }
        if (object && what == HOLDS_SCHEMA && text_is(m->key, "$ref") &&
            m->kind == JT_STRING && m->s.n && m->s.p[0] == '#') {
            tbuf_str(b, "\"#/$defs/parameters");
            tbuf_json_part(b, m->s.p + 1, m->s.n - 1);
            tbuf_str(b, "\"");
        } else {
            write_moved(b, m,
                        object && what == HOLDS_SCHEMA ? holds(m->key)
                                                       : HOLDS_SCHEMA);
        }
    }
    tbuf_str(b, object ? "}" : "]");
}

/* The next numbered schema: that of the property v, which w->where names. */
static void send_schema(struct writer *w, const struct jt_value *v)
{
    struct tbuf *b = &w->schema;

    tbuf_clear(b);
    if (has_ref(v)) {
        tbuf_str(b, "{\"allOf\": [");
        write_moved(b, v, HOLDS_SCHEMA);
        tbuf_str(b, "], \"$defs\": {\"parameters\": ");
        write_moved(b, w->params, HOLDS_SCHEMA);
        tbuf_str(b, "}}");
    } else {
        jt_write(b, v, NULL);
    }
    send(w, SEAM_EV_TOOL_NAME, w->n_schemas, &w->where);
    send(w, SEAM_EV_TOOL_ARGS, w->n_schemas, b);
    w->n_schemas++;
}

/* ---- Pairs --------------------------------------------------------------- */

static bool key_usable(struct writer *w, struct seam_str key)
{
    struct seam_str t = text_trim(key);

    if (!key.n || t.n != key.n)
        return refuse(w, "a name that is empty, or begins or ends with white "
                         "space, cannot be an argument's");
    for (size_t m = 0; m < N_MARKERS; m++)
        if (text_find(key, 0, glm_markers[m]) < key.n)
            return refuse(w, "a name with a tag of the output format in it "
                             "cannot be an argument's");
    return true;
}

/* value: a rule or an expression. */
static void pair(struct writer *w, struct seam_str key, const char *value,
                 bool required)
{
    tbuf_str(&w->text, required ? "\n  " : "\n  (");
    tbuf_str(&w->text, "<arg_key> ");
    gt_literal(&w->text, key);
    tbuf_str(&w->text, " </arg_key> <arg_value> ");
    tbuf_str(&w->text, value);
    tbuf_str(&w->text, required ? " </arg_value>" : " </arg_value>)?");
}

static bool is_listed(const struct jt_value *list, struct seam_str key)
{
    for (const struct jt_value *v = jt_is(list, JT_ARRAY) ? list->first : NULL;
         v; v = v->next)
        if (v->kind == JT_STRING && text_same(v->s, key))
            return true;
    return false;
}

static void property(struct writer *w, const struct jt_value *props,
                     const struct jt_value *p, bool required)
{
    struct glm_param param = glm_param_of(w->params, props, p->key);
    size_t cut = path_add(w, p->key);
    static const char *const types[] = { "null", "boolean", "number", "array",
                                         "object" };
    char value[96];
    size_t n;
    uint32_t but;
    int exact = glm_param_exact(&param, &but);

    if (exact < 0)
        out_of_memory(w);
    else if (key_usable(w, p->key) && !exact)
        refuse(w, "strings and other values that it allows cannot be told "
                  "apart when they are written without quotes");
    if (w->rc)
        return;
    n = (size_t)snprintf(value, sizeof value, "@value(s%u%s", w->n_schemas,
                         but ? " but" : "");
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (but >> i & 1)
            n += (size_t)snprintf(value + n, sizeof value - n, " %s", types[i]);
    snprintf(value + n, sizeof value - n, ")");
    send_schema(w, p);
    pair(w, p->key, value, required);
    w->where.n = cut;
}

/* Required, but nothing is said of it. */
static void undeclared(struct writer *w, const struct jt_value *s,
                       const struct jt_value *props)
{
    const struct jt_value *list = jt_get(s, "required");
    const struct jt_value *more = jt_get(s, "additionalProperties");

    if (!jt_is(list, JT_ARRAY))
        return;
    for (const struct jt_value *v = list->first; v && !w->rc; v = v->next) {
        size_t cut = path_str(w, "required");
        bool twice = false;

        for (const struct jt_value *o = list->first; o != v; o = o->next)
            twice = twice || (o->kind == JT_STRING && text_same(o->s, v->s));
        if (v->kind != JT_STRING)
            refuse(w, "expected a list of names");
        else if (jt_find(props, v->s) || twice)
            ;
        else if (more && more->kind != JT_TRUE)
            refuse(w, "names what is not among the properties");
        else if (key_usable(w, v->s))
            pair(w, v->s, "@text", true);
        if (!w->rc)
            w->where.n = cut;
    }
}

/* ---- Tools --------------------------------------------------------------- */

/* The schema that says what parameters there are, behind $ref; refused when it
 * says more than can be held to. */
static const struct jt_value *parameters(struct writer *w)
{
    static const char *const known[] = {
        "properties",  "required",    "additionalProperties",
        "$defs",       "definitions", "$schema",
        "$id",         "$comment",    "title",
        "description", "default",     "examples",
        "deprecated",  "readOnly",    "writeOnly",
    };
    const struct jt_value *s = w->params;
    bool no_memory = false;

    for (int i = 0; i < MAX_REFS && jt_is(s, JT_OBJECT); i++) {
        const struct jt_value *ref = jt_get(s, "$ref");

        if (!jt_is(ref, JT_STRING) || jt_get(s, "properties"))
            break;
        s = glm_pointer(w->params, ref->s, &no_memory);
    }
    if (no_memory)
        out_of_memory(w);
    else if (!jt_is(s, JT_OBJECT))
        refuse(w, "expected the schema of an object");
    for (const struct jt_value *m = w->rc ? NULL : s->first; m; m = m->next) {
        size_t i = 0, n = sizeof known / sizeof *known;

        while (i < n && !text_is(m->key, known[i]))
            i++;
        if (i < n || (text_is(m->key, "type") && m->kind == JT_STRING &&
                      text_is(m->s, "object")))
            continue;
        path_add(w, m->key);
        refuse(w, "not supported for the parameters as a whole");
        return NULL;
    }
    return w->rc ? NULL : s;
}

/* Pairs of a tool that is held to its schema. */
static void strict_pairs(struct writer *w)
{
    const struct jt_value *s = parameters(w), *props, *required;

    if (!s)
        return;
    props = jt_get(s, "properties");
    required = jt_get(s, "required");
    if (props && props->kind != JT_OBJECT) {
        path_str(w, "properties");
        refuse(w, "expected an object");
        return;
    }
    for (const struct jt_value *p = props ? props->first : NULL; p && !w->rc;
         p = p->next) {
        size_t cut = path_str(w, "properties");

        property(w, props, p, is_listed(required, p->key));
        if (!w->rc)
            w->where.n = cut;
    }
    if (!w->rc)
        undeclared(w, s, props);
}

static void tool(struct writer *w, const struct jt_value *v, size_t i)
{
    const struct jt_value *f = chat_function(v), *name = jt_get(f, "name");
    char rule[32];
    bool strict;

    tbuf_clear(&w->where);
    path_index(w, "tools", i);
    if (f != v)
        path_str(w, "function");
    if (!jt_is(name, JT_STRING) || !name->s.n ||
        text_find(name->s, 0, "<") < name->s.n ||
        text_trim(name->s).n != name->s.n) {
        path_str(w, "name");
        refuse(w, "no name that a call could have");
        return;
    }
    w->params = jt_get(f, "parameters");
    strict =
        (w->flags & SEAM_CALLS_MUST) || jt_is(jt_get(f, "strict"), JT_TRUE);
    snprintf(rule, sizeof rule, "tool%zu ::= ", i);
    tbuf_str(&w->text, rule);
    gt_literal(&w->text, name->s);
    if (!strict) {
        tbuf_str(&w->text, " (<arg_key> @text </arg_key> <arg_value> @text "
                           "</arg_value>)*");
    } else if (!jt_none(w->params)) {
        path_str(w, "parameters");
        strict_pairs(w);
    }
    tbuf_str(&w->text, "\n");
    send_text(w);
}

/* The rules that lead to those of the tools. */
static void frame(struct writer *w, size_t n_tools)
{
    const char *const think[] = { glm_markers[M_CALL],
                                  glm_markers[M_THINK_END] };
    bool one = w->flags & SEAM_CALLS_ONE, must = w->flags & SEAM_CALLS_MUST;
    bool answer = w->flags & SEAM_CALLS_ANSWER;
    char name[32];

    tbuf_str(&w->text, "root ::= ");
    if (w->flags & SEAM_CALLS_THINK)
        tbuf_str(&w->text, "thoughts </think> ");
    if (answer)
        tbuf_str(&w->text, one ? "(call | @answer)\n" : "(call+ | @answer)\n");
    else if (must)
        tbuf_str(&w->text, one ? "call\n" : "call+\n");
    else
        tbuf_str(&w->text,
                 one ? "words (call words)?\n" : "words (call words)*\n");
    if (w->flags & SEAM_CALLS_THINK)
        gt_without(&w->text, "thoughts", think, 2);
    if (!must && !answer)
        gt_without(&w->text, "words", think, 1);
    tbuf_str(&w->text, "call ::= <tool_call> (");
    for (size_t i = 0; i < n_tools; i++) {
        snprintf(name, sizeof name, "%stool%zu", i ? " | " : "", i);
        tbuf_str(&w->text, name);
    }
    tbuf_str(&w->text, ") </tool_call>\n@never \"</arg_value>\"\n");
    send_text(w);
}

static int calls_write(void *self, struct seam_str tools, uint32_t flags,
                       const struct seam_sink *out, struct seam_error *err)
{
    struct writer w = { .out = out, .err = err, .flags = flags };
    size_t i = 0;

    (void)self;
    w.rc = jt_read(&w.doc, tools, "tools", err);
    if (!w.rc && (w.doc.root->kind != JT_ARRAY || !w.doc.root->first))
        w.rc = plug_fail(err, SEAM_EDATA, "tools: expected a list of tools");
    if (!w.rc)
        frame(&w, w.doc.root->count);
    for (const struct jt_value *v = w.rc ? NULL : w.doc.root->first; v && !w.rc;
         v = v->next)
        tool(&w, v, i++);
    tbuf_release(&w.text);
    tbuf_release(&w.where);
    tbuf_release(&w.schema);
    jt_release(&w.doc);
    return w.rc;
}

const void *glm_extension(const char *id)
{
    static const struct seam_call_grammar table = {
        .size = sizeof(struct seam_call_grammar),
        .write = calls_write,
    };

    return strcmp(id, "call_grammar/1") ? NULL : &table;
}
