/* The reference twin of the glm47 parser: it keeps the whole output and reads
 * it at the end, in the order of the grammar.
 *
 *   output = text *( "<tool_call>" name *( key value ) "</tool_call>" text )
 *
 * What is damaged is repaired by the rules of the chat spec, sections 3.4 and
 * 3.9.  Prompts and the typing of values are shared with glm47. */
#include <stdlib.h>

#include "calls.h"
#include "glm.h"
#include "markers.h"
#include "plugin_util.h"
#include "tools.h"
#include "typing.h"

/* ---- The output as a list of texts and markers --------------------------- */

struct item {
    int marker; /* M_*, or -1: text */
    struct seam_str text;
};

struct ref {
    const struct glm *g;
    struct seam_sink sink;
    struct glm_tools tools;
    uint32_t flags;
    bool reasoning; /* the channel that text goes to now */
    bool form;      /* of SEAM_PARSE_FORM: the answer's text has begun */

    struct tbuf input; /* as fed */
    struct tbuf clean; /* with U+FFFD for what is ill-formed */
    struct item *item; /* [n] */
    size_t n;
    struct seam_str held; /* beginning of a marker at the very end */
    bool stop;            /* the generation ended of its own accord */

    /* What was found. */
    struct tbuf thoughts, stretch, content;
    bool any_call; /* a call is complete */
    uint32_t n_calls;
    int rc;
};

static void send(struct ref *r, uint32_t kind, uint32_t index,
                 struct seam_str s)
{
    if (!r->rc && (s.n || kind == SEAM_EV_TOOL_END))
        r->rc = r->sink.event(r->sink.ctx, kind, index, s.p, s.n);
}

static struct seam_str literal(uint32_t marker)
{
    return (struct seam_str){ glm_markers[marker],
                              strlen(glm_markers[marker]) };
}

static bool begins(struct seam_str s, const char *with)
{
    return s.n < strlen(with) && !memcmp(s.p, with, s.n);
}

/* The marker at p, or -1. */
static int marker_at(const char *p, const char *end)
{
    for (int m = 0; m < N_MARKERS; m++) {
        size_t n = strlen(glm_markers[m]);

        if ((size_t)(end - p) >= n && !memcmp(p, glm_markers[m], n))
            return m;
    }
    return -1;
}

static bool marker_begins_at(const char *p, const char *end)
{
    for (int m = 0; m < N_MARKERS; m++)
        if (begins((struct seam_str){ p, (uint64_t)(end - p) }, glm_markers[m]))
            return true;
    return false;
}

static void make_clean(struct ref *r)
{
    const char *p = tbuf_view(&r->input).p, *end = p + r->input.n;
    uint32_t cp;
    size_t len;

    for (; p < end; p += len) {
        if (tutf8_next(p, (size_t)(end - p), &cp, &len) == TUTF8_OK)
            tbuf_add(&r->clean, p, len);
        else
            tbuf_str(&r->clean, "\xef\xbf\xbd");
    }
}

static bool make_items(struct ref *r)
{
    const char *p = tbuf_view(&r->clean).p, *end = p + r->clean.n, *from = p;

    r->item = calloc(r->clean.n + 1, sizeof *r->item);
    if (!r->item)
        return false;
    while (p < end) {
        int m = marker_at(p, end);
        bool held = m < 0 && *p == '<' && marker_begins_at(p, end);

        if (m < 0 && !held) {
            p++;
            continue;
        }
        if (p > from)
            r->item[r->n++] =
                (struct item){ -1, { from, (uint64_t)(p - from) } };
        if (held) {
            r->held = (struct seam_str){ p, (uint64_t)(end - p) };
            return true;
        }
        r->item[r->n++] = (struct item){ m, literal((uint32_t)m) };
        p += strlen(glm_markers[m]);
        from = p;
    }
    if (p > from)
        r->item[r->n++] = (struct item){ -1, { from, (uint64_t)(p - from) } };
    return true;
}

/* The marker of item i; -1 for text, -2 behind the last. */
static int marker(const struct ref *r, size_t i)
{
    return i < r->n ? r->item[i].marker : -2;
}

/* Item i is text and all white space. */
static bool is_blank(const struct ref *r, size_t i)
{
    return marker(r, i) == -1 && text_trim(r->item[i].text).n == 0;
}

/* ---- Text ---------------------------------------------------------------- */

static void text(struct ref *r, struct seam_str s)
{
    if ((r->flags & SEAM_PARSE_FORM) && !r->form && !r->reasoning)
        r->form = text_trim(s).n > 0;
    tbuf_add(r->reasoning ? &r->thoughts : &r->stretch, s.p, s.n);
}

/* A stretch of content ends at a call that was delivered, or at the end. */
static void stretch_end(struct ref *r)
{
    if (!r->any_call || text_trim(tbuf_view(&r->stretch)).n)
        tbuf_add(&r->content, r->stretch.p, r->stretch.n);
    tbuf_clear(&r->stretch);
}

/* ---- Calls --------------------------------------------------------------- */

struct call {
    const struct glm_tool *tool; /* NULL: not declared */
    struct seam_str name;
    bool delivered;
    uint32_t index; /* once a value is wanted */
    bool named;
    struct tbuf args;
    struct seam_str *key; /* [n_keys] given so far */
    size_t n_keys;
};

static bool is_name(struct seam_str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (!glm_is_name_char(s.p[i]))
            return false;
    return s.n >= 1 && s.n <= GLM_NAME_MAX;
}

static bool is_word(struct seam_str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (!glm_is_key_char(s.p[i]))
            return false;
    return true;
}

/* More bytes could make a call of raw. */
static bool may_become_name(const struct ref *r, struct seam_str raw)
{
    struct seam_str name = text_trim(raw), open = raw;

    while (open.n && text_is_ws(open.p[0])) {
        open.p++;
        open.n--;
    }
    if (!open.n || glm_tools_begin(&r->tools, open))
        return true;
    for (size_t i = 0; i < r->tools.n; i++) {
        struct seam_str known = r->tools.tool[i].name;

        if (name.n >= known.n && !memcmp(name.p, known.p, known.n) &&
            is_word(text_trim(
                (struct seam_str){ name.p + known.n, name.n - known.n })))
            return true;
    }
    return !r->reasoning && is_name(name);
}

static void call_begin(struct ref *r, struct call *c,
                       const struct glm_tool *tool, struct seam_str name)
{
    bool first = !(r->flags & SEAM_PARSE_ONE_CALL) || !r->n_calls;

    *c = (struct call){ .tool = tool, .name = tool ? tool->name : name };
    c->delivered = (tool || r->g->forward_unknown) && first &&
                   !(r->flags & SEAM_PARSE_NO_CALLS);
    r->reasoning = false;
}

static void call_name(struct ref *r, struct call *c)
{
    if (c->named || !c->delivered)
        return;
    c->named = true;
    c->index = r->n_calls++;
    send(r, SEAM_EV_TOOL_NAME, c->index, c->name);
}

/* Only a whole call has an end; of one that was cut there is what was sent. */
static void call_end(struct ref *r, struct call *c, bool whole)
{
    if (whole)
        call_name(r, c);
    if (c->delivered && c->named) {
        if (whole)
            tbuf_str(&c->args, c->n_keys ? "}" : "{}");
        if (c->args.failed)
            r->rc = SEAM_ENOMEM;
        send(r, SEAM_EV_TOOL_ARGS, c->index, tbuf_view(&c->args));
        if (whole)
            send(r, SEAM_EV_TOOL_END, c->index, (struct seam_str){ NULL, 0 });
        if (whole) {
            r->any_call = true;
            stretch_end(r);
        }
    }
    tbuf_release(&c->args);
    free(c->key);
}

/* One argument, value as text; of a value that was cut only what a client may
 * have seen. */
static void argument(struct ref *r, struct call *c, struct seam_str key,
                     const struct tbuf *value, bool whole)
{
    struct glm_param param = { 0 };
    struct seam_str *more;

    if (!key.n || !c->delivered)
        return;
    for (size_t i = 0; i < c->n_keys; i++)
        if (text_same(c->key[i], key))
            return;
    more = realloc(c->key, (c->n_keys + 1) * sizeof *more);
    if (!more) {
        r->rc = SEAM_ENOMEM;
        return;
    }
    c->key = more;
    c->key[c->n_keys++] = key;
    call_name(r, c);
    if (c->tool)
        param = glm_param_of(c->tool->params, c->tool->props, key);
    if (param.no_memory)
        r->rc = SEAM_ENOMEM;
    if (!whole && !param.raw_string)
        return;
    tbuf_str(&c->args, c->n_keys > 1 ? ", " : "{");
    tbuf_json(&c->args, key.p, key.n);
    tbuf_str(&c->args, ": ");
    if (whole) {
        glm_value(&param, tbuf_view(value), &c->args);
    } else {
        tbuf_str(&c->args, "\"");
        tbuf_json_part(&c->args, value->p, value->n);
    }
}

/* ---- Values -------------------------------------------------------------- */

/* Item i is </arg_value> and what follows shows that it closes. */
static bool closes(const struct ref *r, size_t i)
{
    int next;

    if (marker(r, i) != M_VALUE_END)
        return false;
    i += is_blank(r, i + 1) ? 2 : 1;
    next = marker(r, i);
    return next == M_KEY || next == M_CALL || next == M_CALL_END;
}

/* The value that begins with item i, into value.  Returns the item that follows
 * it; r->n when the output ended first. */
static size_t value_read(struct ref *r, size_t i, struct tbuf *value)
{
    struct seam_str held = r->held;
    size_t tail = r->n;
    bool follows;

    for (size_t k = i; k < r->n; k++)
        if (closes(r, k)) {
            for (; i < k; i++)
                tbuf_add(value, r->item[i].text.p, r->item[i].text.n);
            return k + (is_blank(r, k + 1) ? 2 : 1);
        }
    /* A closing tag at the very end, of the value or of the call. */
    if (tail > i && is_blank(r, tail - 1))
        tail--;
    if (tail > i && (marker(r, tail - 1) == M_VALUE_END ||
                     marker(r, tail - 1) == M_CALL_END))
        tail--;
    else
        tail = r->n;
    for (; i < tail; i++)
        tbuf_add(value, r->item[i].text.p, r->item[i].text.n);
    if (!r->stop)
        return r->n;
    follows = tail < r->n && marker(r, tail) == M_VALUE_END &&
              (begins(held, "<arg_key>") || begins(held, "<tool_call>") ||
               begins(held, "</tool_call>"));
    if (held.n && !follows) {
        for (; i < r->n; i++)
            tbuf_add(value, r->item[i].text.p, r->item[i].text.n);
        if (held.n < 3 || !begins(held, "</arg_value>"))
            tbuf_add(value, held.p, held.n);
    }
    return r->n;
}

/* key (empty: none) and the value from item i on.  Returns the item behind. */
static size_t value(struct ref *r, struct call *c, struct seam_str key,
                    size_t i)
{
    struct tbuf v = { 0 };
    size_t next = value_read(r, i, &v);

    argument(r, c, key, &v, next < r->n || r->stop);
    if (v.failed)
        r->rc = SEAM_ENOMEM;
    tbuf_release(&v);
    return next;
}

/* ---- Keys ---------------------------------------------------------------- */

/* Behind a key: its value, or nothing when there is none. */
static size_t after_key(struct ref *r, struct call *c, struct seam_str key,
                        size_t i)
{
    struct seam_str *s;

    for (; i < r->n; i++) {
        switch (marker(r, i)) {
        case M_VALUE:
            return value(r, c, key, i + 1);
        case M_VALUE_END:
            return value(r, c, key, i);
        case M_KEY_END:
            break;
        case -1:
            if (is_blank(r, i))
                break;
            s = &r->item[i].text;
            while (text_is_ws(s->p[0])) {
                s->p++;
                s->n--;
            }
            return value(r, c, key, i);
        default:
            return i;
        }
    }
    return i;
}

/* From the item behind <arg_key>. */
static size_t key_read(struct ref *r, struct call *c, size_t i)
{
    struct seam_str key = { "", 0 };

    if (marker(r, i) == -1)
        key = text_trim(r->item[i++].text);
    switch (marker(r, i)) {
    case M_KEY_END:
    case M_VALUE_END:
        return after_key(r, c, key, i + 1);
    case M_VALUE:
        return value(r, c, key, i + 1);
    default:
        return i; /* dropped */
    }
}

/* The inside of a call from item i on.  Returns the item to go on with: behind
 * </tool_call>, at a further <tool_call>, or the end. */
static size_t call_inside(struct ref *r, struct call *c, size_t i)
{
    const struct seam_str none = { "", 0 };

    while (i < r->n) {
        switch (marker(r, i)) {
        case M_CALL_END:
            call_end(r, c, true);
            return i + 1;
        case M_CALL:
            call_end(r, c, true);
            return i;
        case M_KEY:
            i = key_read(r, c, i + 1);
            break;
        case M_VALUE:
            i = value(r, c, none, i + 1);
            break;
        default:
            i++;
        }
    }
    r->held.n = 0; /* a tag begun inside a call is no text */
    call_end(r, c, r->stop);
    return i;
}

/* Item i is <tool_call>.  Returns the item to go on with; *called: it was a
 * call, delivered or not. */
static size_t call(struct ref *r, size_t i, bool *called)
{
    bool has_text = marker(r, i + 1) == -1;
    struct seam_str raw = { "", 0 }, name, key;
    const struct glm_tool *tool = NULL;
    size_t at = i + (has_text ? 2 : 1);
    int next = marker(r, at);
    struct call c;

    if (has_text)
        raw = r->item[i + 1].text;
    name = text_trim(raw);
    *called = true;
    tool = glm_tools_find(&r->tools, name);
    if (next == -2) {
        if (tool && r->stop) {
            call_begin(r, &c, tool, name);
            return call_inside(r, &c, at);
        }
        if (!r->reasoning && may_become_name(r, raw) &&
            glm_tools_begin(&r->tools, name)) {
            r->held.n = 0;
            return at;
        }
    } else if (tool && next != M_THINK && next != M_THINK_END) {
        call_begin(r, &c, tool, name);
        return call_inside(r, &c, at);
    } else if ((next == M_KEY_END || next == M_VALUE) &&
               (tool = glm_tools_glued(&r->tools, name, &key))) {
        call_begin(r, &c, tool, name);
        at = next == M_VALUE ? value(r, &c, key, at + 1)
                             : after_key(r, &c, key, at + 1);
        return call_inside(r, &c, at);
    } else if ((next == M_KEY || next == M_CALL_END) && !r->reasoning &&
               is_name(name)) {
        call_begin(r, &c, NULL, name);
        if (!r->g->forward_unknown)
            glm_log_dropped(r->g, name);
        return call_inside(r, &c, at);
    }
    *called = false;
    text(r, literal(M_CALL));
    text(r, raw);
    return at;
}

static void output(struct ref *r)
{
    bool after_call = false; /* only white space since a call */
    size_t i = 0;

    while (i < r->n) {
        int m = marker(r, i);

        if (r->form) {
            text(r, r->item[i++].text);
            continue;
        }
        if (m == M_CALL && r->tools.n) {
            i = call(r, i, &after_call);
            continue;
        }
        if (m == M_THINK || m == M_THINK_END) {
            r->reasoning = m == M_THINK;
            after_call = false;
        } else if (!after_call ||
                   (m != M_CALL_END && m != M_KEY_END && m != M_VALUE_END)) {
            text(r, r->item[i].text);
            after_call = after_call && is_blank(r, i);
        }
        i++;
    }
    text(r, r->held);
    stretch_end(r);
}

/* ---- The plugin ---------------------------------------------------------- */

static void ref_close(void *stream)
{
    struct ref *r = stream;

    if (!r)
        return;
    glm_tools_release(&r->tools);
    tbuf_release(&r->input);
    tbuf_release(&r->clean);
    free(r->item);
    tbuf_release(&r->thoughts);
    tbuf_release(&r->stretch);
    tbuf_release(&r->content);
    free(r);
}

static int ref_open(void *self, const struct seam_parse_opts *o,
                    const struct seam_sink *out, void **stream,
                    struct seam_error *err)
{
    struct ref *r = calloc(1, sizeof *r);
    int rc;

    if (!r)
        return plug_fail(err, SEAM_ENOMEM, "glm47_ref: out of memory");
    rc = glm_tools_read(&r->tools, o->tools, err);
    if (rc) {
        ref_close(r);
        return rc;
    }
    r->g = self;
    r->sink = *out;
    r->held = (struct seam_str){ "", 0 };
    r->flags = o->flags;
    r->reasoning = chat_reasoning_open(o->prompt_tail, "<|assistant|>");
    *stream = r;
    return SEAM_OK;
}

static int ref_feed(void *stream, uint32_t n, const int32_t *token,
                    struct seam_str text_in)
{
    struct ref *r = stream;

    (void)n;
    (void)token;
    tbuf_add(&r->input, text_in.p, text_in.n);
    return r->input.failed ? SEAM_ENOMEM : SEAM_OK;
}

static int ref_finish(void *stream, uint32_t end)
{
    struct ref *r = stream;

    r->stop = end == SEAM_END_STOP;
    make_clean(r);
    if (r->clean.failed || !make_items(r))
        return SEAM_ENOMEM;
    output(r);
    if (!r->rc &&
        (r->thoughts.failed || r->stretch.failed || r->content.failed))
        r->rc = SEAM_ENOMEM;
    send(r, SEAM_EV_REASONING, 0, tbuf_view(&r->thoughts));
    send(r, SEAM_EV_TEXT, 0, tbuf_view(&r->content));
    return r->rc;
}

static const struct seam_parser table = {
    .size = sizeof(struct seam_parser),
    .render = glm_render,
    .open = ref_open,
    .feed = ref_feed,
    .finish = ref_finish,
    .close = ref_close,
};

/* Set by init, before any instance exists. */
static const struct seam_host *host;

static int ref_init(const struct seam_host *h, struct seam_error *err)
{
    (void)err;
    host = h;
    return SEAM_OK;
}

static int ref_create(const struct seam_create *c, void **self,
                      struct seam_error *err)
{
    return glm_create(host, "glm47_ref", c, self, err);
}

const struct seam_plugin seam_plugin_entry = {
    .ident = { SEAM_IDENT(SEAM_KIND_PARSER, struct seam_parser),
               .flags = SEAM_PLUGIN_UNLOADABLE, .name = "glm47_ref",
               .version = "1.0.0", .build = __VERSION__ },
    .table = &table,
    .init = ref_init,
    .create = ref_create,
    .destroy = glm_destroy,
    .extension = glm_extension,
};
