/* From messages to prompt pieces (chat spec, section 2).
 *
 * Every special token is a piece of its own; all that came with the request is
 * TEXT, whatever it looks like. */
#include "glm.h"

#include <stdlib.h>

#include "plugin_util.h"

struct renderer {
    const struct glm *g;
    const struct chat_request *r;
    const struct seam_sink *out;
    int rc; /* first refusal of the sink, or ENOMEM; then nothing is sent */
    bool clears;
    bool thinks;         /* the request does not switch thinking off */
    size_t after_user;   /* index of the first message behind the last user's */
    struct named *named; /* [n_named] tools by name, once they are asked for  */
    size_t n_named;
    struct tbuf line;
};

static void piece(struct renderer *x, uint32_t kind, const char *p, size_t n)
{
    if (!x->rc && n)
        x->rc = x->out->event(x->out->ctx, kind, 0, p, n);
}

static void special(struct renderer *x, const char *token)
{
    piece(x, SEAM_EV_SPECIAL, token, strlen(token));
}

static void text(struct renderer *x, struct seam_str s)
{
    piece(x, SEAM_EV_TEXT, s.p, s.n);
}

static void prose(struct renderer *x, const char *s)
{
    piece(x, SEAM_EV_TEXT, s, strlen(s));
}

/* v as JSON text, without the members in skip, and tail behind it. */
static void json(struct renderer *x, const struct jt_value *v,
                 const char *const *skip, const char *tail)
{
    tbuf_clear(&x->line);
    jt_write(&x->line, v, skip);
    tbuf_str(&x->line, tail);
    if (x->line.failed && !x->rc)
        x->rc = SEAM_ENOMEM;
    text(x, tbuf_view(&x->line));
}

/* ---- White space --------------------------------------------------------- */

/* What Python's str.strip takes off. */
static bool is_blank(uint32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 ||
           c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
           c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
           c == 0x3000;
}

static struct seam_str strip_start(struct seam_str s)
{
    uint32_t c;
    size_t len;

    while (s.n && tutf8_next(s.p, s.n, &c, &len) == TUTF8_OK && is_blank(c)) {
        s.p += len;
        s.n -= len;
    }
    return s;
}

static struct seam_str strip_end(struct seam_str s)
{
    uint32_t c;
    size_t len;

    while (s.n) {
        size_t k = 1;

        while (k < s.n && k < 4 && ((unsigned char)s.p[s.n - k] & 0xc0) == 0x80)
            k++;
        if (tutf8_next(s.p + s.n - k, k, &c, &len) != TUTF8_OK || !is_blank(c))
            break;
        s.n -= k;
    }
    return s;
}

static struct seam_str strip(struct seam_str s)
{
    return strip_end(strip_start(s));
}

static struct seam_str strip_lf(struct seam_str s, bool start, bool end)
{
    while (start && s.n && s.p[0] == '\n') {
        s.p++;
        s.n--;
    }
    while (end && s.n && s.p[s.n - 1] == '\n')
        s.n--;
    return s;
}

/* ---- Tools --------------------------------------------------------------- */

static const char *const inner_keys[] = { "strict", "defer_loading", NULL };

/* The line that declares a tool, as 4.7 and 5 print it: the object as it came,
 * wrapped when it came flat. */
static void tool_line_whole(struct renderer *x, const struct jt_value *tool)
{
    static const char *const type[] = { "type", NULL };

    if (jt_get(tool, "function")) {
        json(x, tool, NULL, "\n");
        return;
    }
    prose(x, "{\"type\": \"function\", \"function\": ");
    json(x, tool, type, "}\n");
}

static void tools_block(struct renderer *x)
{
    bool whole = x->g->style.version <= GLM_5;

    if (!x->r->tools)
        return;
    special(x, "<|system|>");
    prose(x, "\n# Tools\n\nYou may call one or more functions to assist with "
             "the user query.\n\nYou are provided with function signatures "
             "within <tools></tools> XML tags:\n<tools>\n");
    for (const struct jt_value *t = x->r->tools->first; t; t = t->next) {
        const struct jt_value *f = chat_function(t);

        if (whole)
            tool_line_whole(x, t);
        else if (!jt_truthy(jt_get(f, "defer_loading")))
            json(x, f, inner_keys, "\n");
    }
    prose(x, "</tools>\n\nFor each function call, output the function name and "
             "arguments within the following XML format:\n");
    special(x, "<tool_call>");
    prose(x, "{function-name}");
    for (int i = 1; i <= 2; i++) {
        special(x, "<arg_key>");
        prose(x, i == 1 ? "{arg-key-1}" : "{arg-key-2}");
        special(x, "</arg_key>");
        special(x, "<arg_value>");
        prose(x, i == 1 ? "{arg-value-1}" : "{arg-value-2}");
        special(x, "</arg_value>");
    }
    prose(x, "...");
    special(x, "</tool_call>");
}

static void effort_line(struct renderer *x)
{
    enum glm_version version = x->g->style.version;
    enum chat_effort effort = x->r->effort;

    if (version < GLM_5_2)
        return;
    if (!x->thinks &&
        (version == GLM_5_2 || x->g->style.off == GLM_OFF_EMPTY_BLOCK))
        return;
    special(x, "<|system|>");
    prose(x, "Reasoning Effort: ");
    prose(x, effort == CHAT_EFFORT_HIGH                        ? "High"
             : effort == CHAT_EFFORT_LOW && version == GLM_5_3 ? "Low"
                                                               : "Max");
}

/* ---- Assistant turns ----------------------------------------------------- */

/* Reasoning that came inside the content: before the first </think>, behind the
 * last <think> there; the content goes on behind the last </think>. */
static void split_reasoning(const struct renderer *x, struct chat_msg *m)
{
    static const char open_tag[] = "<think>", close_tag[] = "</think>";
    const size_t n_open = sizeof open_tag - 1, n_close = sizeof close_tag - 1;
    struct seam_str s = m->text;
    size_t first = text_find(s, 0, close_tag), last = first, at, from = 0;

    if (first == s.n)
        return;
    for (at = first; at < s.n; at = text_find(s, at + n_close, close_tag))
        last = at;
    m->reasoning = (struct seam_str){ s.p, first };
    for (at = text_find(m->reasoning, 0, open_tag); at < first;
         at = text_find(m->reasoning, at + n_open, open_tag))
        from = at + n_open;
    m->reasoning.p += from;
    m->reasoning.n -= from;
    m->text.p += last + n_close;
    m->text.n -= last + n_close;
    m->has_reasoning = true;
    if (x->g->style.version <= GLM_5_1) {
        m->reasoning = strip_lf(m->reasoning, true, true);
        m->text = strip_lf(m->text, true, false);
    }
}

static void think_part(struct renderer *x, const struct chat_msg *m,
                       size_t index)
{
    enum glm_version version = x->g->style.version;
    bool recent = index >= x->after_user, kept = recent || !x->clears;

    if (version >= GLM_5_2) {
        special(x, "<think>");
        if (kept && m->has_reasoning)
            text(x, m->reasoning);
        special(x, "</think>");
        return;
    }
    if (kept && m->has_reasoning && m->reasoning.n) {
        special(x, "<think>");
        text(x, strip(m->reasoning));
    } else if (version == GLM_5_1 && recent && x->thinks) {
        special(x, "<think>");
    }
    special(x, "</think>");
}

static void call(struct renderer *x, const struct chat_call *c)
{
    const struct jt_value *arg = c->args ? c->args->first : NULL;

    special(x, "<tool_call>");
    text(x, c->name);
    for (; arg; arg = arg->next) {
        special(x, "<arg_key>");
        text(x, arg->key);
        special(x, "</arg_key>");
        special(x, "<arg_value>");
        if (arg->kind == JT_STRING)
            text(x, arg->s);
        else
            json(x, arg, NULL, "");
        special(x, "</arg_value>");
    }
    special(x, "</tool_call>");
}

static void assistant(struct renderer *x, const struct chat_msg *given,
                      size_t index)
{
    struct chat_msg m = *given;

    if (!m.has_reasoning)
        split_reasoning(x, &m);
    special(x, "<|assistant|>");
    think_part(x, &m, index);
    text(x, strip(m.text));
    for (size_t i = 0; i < m.n_calls; i++)
        call(x, &m.call[i]);
}

/* The last message, left open: its reasoning when it has nothing else, else its
 * content. */
static void resumed(struct renderer *x, const struct chat_msg *given)
{
    struct chat_msg m = *given;

    if (!m.has_reasoning)
        split_reasoning(x, &m);
    special(x, "<|assistant|>");
    if (m.has_reasoning || x->g->style.version >= GLM_5_2)
        special(x, "<think>");
    if (m.has_reasoning)
        text(x, m.reasoning);
    if (given->has_reasoning && m.text.n == 0)
        return;
    special(x, "</think>");
    text(x, strip_start(m.text));
}

/* ---- Tool results -------------------------------------------------------- */

/* A tool on the list that finds tools by name. */
struct named {
    struct seam_str name;
    size_t pos; /* among the request's tools */
    const struct jt_value *function;
};

static int by_tool_name(const void *a, const void *b)
{
    const struct named *x = a, *y = b;
    int c = text_order(x->name, y->name);

    return c ? c : (x->pos > y->pos) - (x->pos < y->pos);
}

/* Fill x->named, once. */
static bool name_tools(struct renderer *x)
{
    const struct jt_value *tools = x->r->tools;

    if (x->named || !tools)
        return x->named;
    x->named = malloc(tools->count * sizeof *x->named);
    if (!x->named) {
        x->rc = x->rc ? x->rc : SEAM_ENOMEM;
        return false;
    }
    for (const struct jt_value *t = tools->first; t; t = t->next) {
        const struct jt_value *f = chat_function(t);

        x->named[x->n_named] = (struct named){ .name = jt_get(f, "name")->s,
                                               .pos = x->n_named,
                                               .function = f };
        x->n_named++;
    }
    qsort(x->named, x->n_named, sizeof *x->named, by_tool_name);
    return true;
}

/* The declarations of all tools of this name. */
static void disclose(struct renderer *x, struct seam_str name)
{
    size_t lo = 0, hi = x->n_named;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if (text_order(x->named[mid].name, name) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    for (; lo < x->n_named && text_same(x->named[lo].name, name); lo++)
        json(x, x->named[lo].function, inner_keys, "\n");
}

static void disclosed(struct renderer *x, const struct jt_value *refs)
{
    prose(x, "<tools>\n");
    if (name_tools(x))
        for (const struct jt_value *r = refs->first; r; r = r->next)
            disclose(x, jt_get(r, "name")->s);
    prose(x, "</tools>");
}

static void result(struct renderer *x, const struct chat_result *r)
{
    special(x, "<tool_response>");
    if (r->refs)
        disclosed(x, r->refs);
    else
        text(x, r->text);
    special(x, "</tool_response>");
}

/* One entry of the list that puts results in the order of their calls. */
struct ordered {
    struct seam_str id;
    size_t call; /* its place among the calls              */
    const struct chat_result *found;
};

static int by_id(const void *a, const void *b)
{
    return text_order(((const struct ordered *)a)->id,
                      ((const struct ordered *)b)->id);
}

static int by_call(const void *a, const void *b)
{
    const struct ordered *x = a, *y = b;

    return (x->call > y->call) - (x->call < y->call);
}

/* Fill by[n], one entry a call, sorted by id, with the results of
 * msg[from, to).  False when an id is empty, unknown or not unique. */
static bool match_results(const struct renderer *x, struct ordered *by,
                          size_t n, size_t from, size_t to)
{
    for (size_t i = 0; i < n; i++)
        if (!by[i].id.n || (i && text_same(by[i].id, by[i - 1].id)))
            return false;
    for (size_t i = from; i < to; i++) {
        const struct chat_msg *m = &x->r->msg[i];

        for (size_t k = 0; k < m->n_results; k++) {
            struct ordered key = { .id = m->result[k].id }, *hit;

            hit = bsearch(&key, by, n, sizeof *by, by_id);
            if (!hit || hit->found)
                return false;
            hit->found = &m->result[k];
        }
    }
    return true;
}

/* The results in msg[from, to), in the order of the calls that msg[from - 1]
 * made when their ids allow it (5.3), else as they came. */
static void results(struct renderer *x, size_t from, size_t to)
{
    const struct chat_msg *before = from ? &x->r->msg[from - 1] : NULL;
    size_t n = before && before->role == CHAT_ASSISTANT ? before->n_calls : 0;
    struct ordered *by = NULL;
    bool ordered = false;

    special(x, "<|observation|>");
    if (x->g->style.version == GLM_5_3 && n) {
        by = malloc(n * sizeof *by);
        if (!by) {
            x->rc = x->rc ? x->rc : SEAM_ENOMEM;
            return;
        }
        for (size_t i = 0; i < n; i++)
            by[i] = (struct ordered){ .id = before->call[i].id, .call = i };
        qsort(by, n, sizeof *by, by_id);
        ordered = match_results(x, by, n, from, to);
    }
    if (ordered) {
        qsort(by, n, sizeof *by, by_call);
        for (size_t i = 0; i < n; i++)
            if (by[i].found)
                result(x, by[i].found);
    } else {
        for (size_t i = from; i < to; i++)
            for (size_t k = 0; k < x->r->msg[i].n_results; k++)
                result(x, &x->r->msg[i].result[k]);
    }
    free(by);
}

/* ---- The prompt ---------------------------------------------------------- */

static void opening(struct renderer *x)
{
    enum glm_version version = x->g->style.version;
    bool off = !x->thinks;

    if (version == GLM_5_3 && x->g->style.off == GLM_OFF_IGNORE)
        off = false;
    special(x, "<|assistant|>");
    if (!off || version >= GLM_5_2)
        special(x, "<think>");
    if (off)
        special(x, "</think>");
}

static void messages(struct renderer *x)
{
    const struct chat_request *r = x->r;

    for (size_t i = 0; i < r->n_msgs; i++) {
        const struct chat_msg *m = &r->msg[i];
        size_t to = i + 1;

        switch (m->role) {
        case CHAT_SYSTEM:
        case CHAT_USER:
            special(x, m->role == CHAT_USER ? "<|user|>" : "<|system|>");
            text(x, m->text);
            break;
        case CHAT_ASSISTANT:
            if (r->resume && to == r->n_msgs)
                resumed(x, m);
            else
                assistant(x, m, i);
            break;
        case CHAT_TOOL:
            while (to < r->n_msgs && r->msg[to].role == CHAT_TOOL)
                to++;
            results(x, i, to);
            i = to - 1;
            break;
        }
    }
}

int glm_render(void *self, struct seam_str request, const struct seam_sink *out,
               struct seam_error *err)
{
    const struct glm *g = self;
    struct renderer x = { .g = g, .out = out };
    struct chat_request r;
    int rc = chat_read(&r, request, &g->rules, err);

    if (rc)
        goto out;
    x.r = &r;
    x.thinks = r.thinking != CHAT_OFF;
    x.clears = r.clear_thinking != CHAT_UNSET ? r.clear_thinking == CHAT_ON
                                              : g->style.clears;
    for (size_t i = 0; i < r.n_msgs; i++)
        if (r.msg[i].role == CHAT_USER)
            x.after_user = i + 1;
    special(&x, "[gMASK]");
    special(&x, "<sop>");
    effort_line(&x);
    tools_block(&x);
    messages(&x);
    if (r.generate)
        opening(&x);
    rc = x.rc;
    if (rc == SEAM_ENOMEM)
        plug_fail(err, rc, "request: out of memory");
out:
    free(x.named);
    tbuf_release(&x.line);
    chat_release(&r);
    return rc;
}
