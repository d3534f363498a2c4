/* From output bytes to events (chat spec, section 3): one state machine, whose
 * decisions depend on the bytes and never on how they were cut.
 *
 *   TOP      reasoning or content, text passes through
 *   NAME     behind <tool_call>: nothing is decided yet, all is held
 *   KEY, AFTER_KEY, VALUE    one argument
 *   BETWEEN  inside a call, waiting for a tag to go on with
 *
 * Held are: a candidate for a name, a key, a value that is no plain string, and
 * in VALUE a closing tag until what follows shows that it closes. */
#include "stream.h"

#include <stdlib.h>

#include "chat_out.h"
#include "marker.h"
#include "markers.h"
#include "plugin_util.h"
#include "tools.h"
#include "typing.h"

enum state { TOP = 1, NAME, KEY, AFTER_KEY, VALUE, BETWEEN };

/* Tail of a value that may turn out to be markup. */
enum tail {
    TAIL_NONE = 0,
    TAIL_CLOSER = 1, /* </arg_value>, then white space */
    TAIL_END = 2     /* </tool_call>, then white space */
};

/* What a candidate for a name can still become. */
struct candidate {
    struct tbuf raw; /* all bytes behind <tool_call>                          */
    size_t n;        /* bytes behind the white space at its beginning         */
    size_t lo, hi;   /* tools whose names begin with them; empty: none        */
    /* Behind the longest name so far: */
    enum { REST_NONE, REST_BLANK, REST_KEY, REST_END } rest;
    /* As the name of an undeclared tool: */
    enum { SHAPE_START, SHAPE_WORD, SHAPE_END, SHAPE_NONE } shape;
    size_t n_shape;
};

/* The keys of one call, each once. */
struct keys {
    struct tbuf text;
    struct key {
        size_t at, n;
    } * key;      /* [n]                                                  */
    size_t *slot; /* [n_slots] index into key plus one, or 0              */
    size_t n, n_slots;
};

struct stream {
    const struct glm *g;
    struct marker_lexer lexer;
    struct chat_out out;
    struct glm_tools tools;
    uint32_t flags; /* SEAM_PARSE_* */

    enum state state;
    bool reasoning;  /* channel of TOP, or the one a candidate came from      */
    bool form;       /* of SEAM_PARSE_FORM: the answer's text has begun       */
    bool after_call; /* only white space since a call                         */

    struct candidate name;

    /* The open call. */
    const struct glm_tool *tool; /* NULL: not declared                        */
    struct tbuf undeclared;      /* then its name                             */
    bool delivered; /* its events are sent                                    */
    bool named;     /* TOOL_NAME is out                                       */
    bool repaired;
    struct keys keys;

    /* The open argument. */
    struct tbuf key;
    bool wanted; /* its value is not thrown away                              */
    struct glm_param param;
    struct tbuf value; /* unless param.raw_string                             */
    enum tail tail;
    struct tbuf tail_blank;

    struct tbuf piece; /* scratch: JSON text to send                          */
};

static void no_memory(struct stream *s)
{
    if (!s->out.rc)
        s->out.rc = SEAM_ENOMEM;
}

/* ---- Keys ---------------------------------------------------------------- */

static void keys_release(struct keys *k)
{
    tbuf_release(&k->text);
    free(k->key);
    free(k->slot);
    *k = (struct keys){ 0 };
}

static void keys_clear(struct keys *k)
{
    /* Clearing must not cost more than the calls it is done for. */
    if (k->n_slots > 64)
        keys_release(k);
    tbuf_clear(&k->text);
    if (k->n)
        memset(k->slot, 0, k->n_slots * sizeof *k->slot);
    k->n = 0;
}

static struct seam_str keys_at(const struct keys *k, size_t i)
{
    return (struct seam_str){ k->text.p + k->key[i].at, k->key[i].n };
}

/* The slot of key s, or the free one it belongs in. */
static size_t *keys_slot(const struct keys *k, struct seam_str s)
{
    uint64_t h = 14695981039346656037u;
    size_t at;

    for (size_t i = 0; i < s.n; i++)
        h = (h ^ (unsigned char)s.p[i]) * 1099511628211u;
    at = (size_t)(h ^ h >> 32) & (k->n_slots - 1);
    while (k->slot[at] && !text_same(keys_at(k, k->slot[at] - 1), s))
        at = (at + 1) & (k->n_slots - 1);
    return &k->slot[at];
}

static bool keys_grow(struct keys *k)
{
    size_t n = k->n_slots ? k->n_slots * 2 : 16;
    size_t *slot = calloc(n, sizeof *slot);
    struct key *key = realloc(k->key, n / 2 * sizeof *key);

    if (key)
        k->key = key;
    if (!slot || !key) {
        free(slot);
        return false;
    }
    free(k->slot);
    k->slot = slot;
    k->n_slots = n;
    for (size_t i = 0; i < k->n; i++)
        *keys_slot(k, keys_at(k, i)) = i + 1;
    return true;
}

/* 1: s is new, 0: it was there, ENOMEM. */
static int keys_add(struct keys *k, struct seam_str s)
{
    size_t *slot;

    if (k->n >= k->n_slots / 2 && !keys_grow(k))
        return SEAM_ENOMEM;
    slot = keys_slot(k, s);
    if (*slot)
        return 0;
    k->key[k->n] = (struct key){ k->text.n, s.n };
    tbuf_add(&k->text, s.p, s.n);
    if (k->text.failed)
        return SEAM_ENOMEM;
    *slot = ++k->n;
    return 1;
}

/* ---- Top ----------------------------------------------------------------- */

static void top_text(struct stream *s, const char *p, size_t n)
{
    for (size_t i = 0; s->after_call && i < n; i++)
        if (!text_is_ws(p[i]))
            s->after_call = false;
    if ((s->flags & SEAM_PARSE_FORM) && !s->form && !s->reasoning)
        s->form = text_trim((struct seam_str){ p, n }).n > 0;
    if (s->reasoning)
        chat_out_reasoning(&s->out, p, n);
    else
        chat_out_content(&s->out, p, n);
}

static void name_begin(struct stream *s)
{
    struct candidate *c = &s->name;

    s->state = NAME;
    s->after_call = false;
    tbuf_clear(&c->raw);
    c->n = c->n_shape = c->lo = 0;
    c->hi = s->tools.n;
    c->rest = REST_NONE;
    c->shape = SHAPE_START;
}

static void top_marker(struct stream *s, uint32_t m)
{
    if (s->form) {
        top_text(s, glm_markers[m], strlen(glm_markers[m]));
        return;
    }
    switch (m) {
    case M_THINK:
        s->reasoning = true;
        s->after_call = false;
        return;
    case M_THINK_END:
        s->reasoning = false;
        s->after_call = false;
        return;
    case M_CALL:
        if (s->tools.n) {
            name_begin(s);
            return;
        }
        break;
    case M_CALL_END:
    case M_KEY_END:
    case M_VALUE_END:
        if (s->after_call)
            return;
        break;
    }
    top_text(s, glm_markers[m], strlen(glm_markers[m]));
}

/* ---- The call ------------------------------------------------------------ */

static void call_begin(struct stream *s, const struct glm_tool *tool)
{
    bool known = tool || s->g->forward_unknown;
    bool later = (s->flags & SEAM_PARSE_ONE_CALL) && s->out.n_calls;

    s->reasoning = false;
    s->tool = tool;
    s->delivered = known && !later && !(s->flags & SEAM_PARSE_NO_CALLS);
    s->named = s->repaired = false;
    keys_clear(&s->keys);
    if (!known)
        glm_log_dropped(s->g, tbuf_view(&s->undeclared));
}

static void call_name(struct stream *s)
{
    if (s->delivered && !s->named)
        chat_out_name(&s->out,
                      s->tool ? s->tool->name : tbuf_view(&s->undeclared));
    s->named = true;
}

static void call_end(struct stream *s)
{
    if (s->delivered) {
        call_name(s);
        if (s->keys.n)
            chat_out_args(&s->out, "}", 1);
        else
            chat_out_args(&s->out, "{}", 2);
        chat_out_call_end(&s->out);
        if (s->repaired)
            glm_count(s->g->n_repaired);
    }
    s->state = TOP;
    s->after_call = true;
}

/* ---- Arguments ----------------------------------------------------------- */

static void key_begin(struct stream *s)
{
    tbuf_clear(&s->key);
    s->state = KEY;
}

static void send_piece(struct stream *s)
{
    if (s->piece.failed)
        no_memory(s);
    chat_out_args(&s->out, s->piece.p, s->piece.n);
    tbuf_clear(&s->piece);
}

/* A value begins; with keyed it belongs to s->key, else to nothing. */
static void value_begin(struct stream *s, bool keyed)
{
    struct seam_str key = text_trim(tbuf_view(&s->key));
    int fresh = 0;

    s->state = VALUE;
    s->tail = TAIL_NONE;
    tbuf_clear(&s->value);
    s->wanted = false;
    if (!keyed || !key.n || !s->delivered)
        return;
    fresh = keys_add(&s->keys, key);
    if (fresh < 0)
        no_memory(s);
    if (fresh <= 0)
        return;
    s->wanted = true;
    call_name(s);
    s->param = s->tool ? glm_param_of(s->tool->params, s->tool->props, key)
                       : (struct glm_param){ 0 };
    if (s->param.no_memory)
        no_memory(s);
    tbuf_str(&s->piece, s->keys.n > 1 ? ", " : "{");
    tbuf_json(&s->piece, key.p, key.n);
    tbuf_str(&s->piece, ": ");
    if (s->param.raw_string) {
        tbuf_str(&s->piece, "\"");
        send_piece(s);
    }
    /* Else the key goes out with its value. */
}

static void value_data(struct stream *s, const char *p, size_t n)
{
    if (!s->wanted)
        return;
    if (s->param.raw_string) {
        tbuf_json_part(&s->piece, p, n);
        send_piece(s);
    } else {
        tbuf_add(&s->value, p, n);
    }
}

static void value_end(struct stream *s)
{
    if (!s->wanted)
        return;
    if (s->param.raw_string)
        tbuf_str(&s->piece, "\"");
    else
        glm_value(&s->param, tbuf_view(&s->value), &s->piece);
    send_piece(s);
}

/* What was held as markup is data. */
static void value_tail_is_data(struct stream *s)
{
    const char *tag =
        glm_markers[s->tail == TAIL_END ? M_CALL_END : M_VALUE_END];

    if (s->tail == TAIL_NONE)
        return;
    value_data(s, tag, strlen(tag));
    value_data(s, s->tail_blank.p, s->tail_blank.n);
    s->tail = TAIL_NONE;
}

static void value_tail_begin(struct stream *s, enum tail tail)
{
    s->tail = tail;
    tbuf_clear(&s->tail_blank);
}

static void value_text(struct stream *s, const char *p, size_t n)
{
    size_t i = 0;

    if (s->tail != TAIL_NONE) {
        while (i < n && text_is_ws(p[i]))
            i++;
        tbuf_add(&s->tail_blank, p, i);
        if (i == n)
            return;
        value_tail_is_data(s);
    }
    value_data(s, p + i, n - i);
}

static void value_marker(struct stream *s, uint32_t m)
{
    if (s->tail == TAIL_CLOSER &&
        (m == M_KEY || m == M_CALL_END || m == M_CALL)) {
        value_end(s);
        if (m == M_KEY) {
            key_begin(s);
            return;
        }
        s->repaired = s->repaired || m == M_CALL;
        call_end(s);
        if (m == M_CALL)
            name_begin(s);
        return;
    }
    value_tail_is_data(s);
    if (m == M_VALUE_END)
        value_tail_begin(s, TAIL_CLOSER);
    else if (m == M_CALL_END)
        value_tail_begin(s, TAIL_END);
    else
        value_data(s, glm_markers[m], strlen(glm_markers[m]));
}

/* A tag inside a call, outside of values; keyed: behind a key, whose value is
 * to come. */
static void call_marker(struct stream *s, uint32_t m, bool keyed)
{
    switch (m) {
    case M_KEY:
        s->repaired = s->repaired || keyed;
        key_begin(s);
        break;
    case M_VALUE:
        s->repaired = s->repaired || !keyed;
        value_begin(s, keyed);
        break;
    case M_CALL_END:
        s->repaired = s->repaired || keyed;
        call_end(s);
        break;
    case M_CALL:
        s->repaired = true;
        call_end(s);
        name_begin(s);
        break;
    case M_VALUE_END:
        s->repaired = true;
        if (!keyed)
            break;
        /* Its opening tag is lost, and it is empty. */
        value_begin(s, true);
        value_marker(s, m);
        break;
    case M_KEY_END:
        s->repaired = true;
        break;
    default:
        s->repaired = true;
        s->state = BETWEEN;
        break;
    }
}

static void key_marker(struct stream *s, uint32_t m)
{
    switch (m) {
    case M_VALUE_END:
        s->repaired = true;
        /* fall through */
    case M_KEY_END:
        s->state = AFTER_KEY;
        break;
    case M_VALUE:
        s->repaired = true;
        value_begin(s, true);
        break;
    default:
        s->repaired = true;
        call_marker(s, m, false);
        break;
    }
}

static void after_key_text(struct stream *s, const char *p, size_t n)
{
    size_t i = 0;

    while (i < n && text_is_ws(p[i]))
        i++;
    if (i == n)
        return;
    /* The tag that opens the value is lost. */
    s->repaired = true;
    value_begin(s, true);
    value_text(s, p + i, n - i);
}

/* ---- The name ------------------------------------------------------------ */

/* Take byte c; false when the candidate can become neither a declared name, nor
 * one with a key glued to it, nor, in content, any name at all. */
static bool name_byte(struct stream *s, char c)
{
    struct candidate *k = &s->name;
    bool blank = text_is_ws(c), exact = false;

    if (blank && k->n == 0)
        return true;
    /* A declared name, or its beginning. */
    if (k->lo < k->hi)
        glm_tools_narrow(&s->tools, k->n, c, &k->lo, &k->hi);
    k->n++;
    exact = k->lo < k->hi && s->tools.tool[k->lo].name.n == k->n;
    /* A declared name and a word. */
    if (exact)
        k->rest = REST_BLANK;
    else if (k->rest == REST_KEY && blank)
        k->rest = REST_END;
    else if (k->rest == REST_BLANK && glm_is_key_char(c))
        k->rest = REST_KEY;
    else if (!(k->rest == REST_BLANK && blank) &&
             !(k->rest == REST_KEY && glm_is_key_char(c)) &&
             !(k->rest == REST_END && blank))
        k->rest = REST_NONE;
    /* Some name. */
    if (k->shape == SHAPE_WORD && blank)
        k->shape = SHAPE_END;
    else if (k->shape <= SHAPE_WORD && glm_is_name_char(c) &&
             k->n_shape++ < GLM_NAME_MAX)
        k->shape = SHAPE_WORD;
    else if (!(k->shape == SHAPE_END && blank))
        k->shape = SHAPE_NONE;
    return k->lo < k->hi || k->rest != REST_NONE ||
           (!s->reasoning && k->shape != SHAPE_NONE);
}

/* The candidate was none: it is text of the channel it came from. */
static void name_is_text(struct stream *s)
{
    s->state = TOP;
    top_text(s, glm_markers[M_CALL], strlen(glm_markers[M_CALL]));
    if (s->name.raw.n)
        top_text(s, s->name.raw.p, s->name.raw.n);
}

static void name_text(struct stream *s, const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (name_byte(s, p[i]))
            continue;
        tbuf_add(&s->name.raw, p, i);
        name_is_text(s);
        top_text(s, p + i, n - i);
        return;
    }
    tbuf_add(&s->name.raw, p, n);
}

static void name_marker(struct stream *s, uint32_t m)
{
    struct seam_str name = text_trim(tbuf_view(&s->name.raw)), key;
    const struct glm_tool *tool = NULL;

    if (m != M_THINK && m != M_THINK_END)
        tool = glm_tools_find(&s->tools, name);
    if (tool) {
        call_begin(s, tool);
        s->state = BETWEEN;
        call_marker(s, m, false);
        return;
    }
    if (m == M_KEY_END || m == M_VALUE) {
        tool = glm_tools_glued(&s->tools, name, &key);
        if (tool) {
            call_begin(s, tool);
            s->repaired = true;
            tbuf_clear(&s->key);
            tbuf_add(&s->key, key.p, key.n);
            s->state = AFTER_KEY;
            if (m == M_VALUE)
                value_begin(s, true);
            return;
        }
    }
    if ((m == M_KEY || m == M_CALL_END) && !s->reasoning &&
        (s->name.shape == SHAPE_WORD || s->name.shape == SHAPE_END)) {
        tbuf_clear(&s->undeclared);
        tbuf_add(&s->undeclared, name.p, name.n);
        call_begin(s, NULL);
        s->state = BETWEEN;
        call_marker(s, m, false);
        return;
    }
    name_is_text(s);
    top_marker(s, m);
}

/* ---- Input --------------------------------------------------------------- */

static void on_text(void *ctx, const char *p, size_t n)
{
    struct stream *s = ctx;

    switch (s->state) {
    case TOP:
        top_text(s, p, n);
        break;
    case NAME:
        name_text(s, p, n);
        break;
    case KEY:
        tbuf_add(&s->key, p, n);
        break;
    case AFTER_KEY:
        after_key_text(s, p, n);
        break;
    case VALUE:
        value_text(s, p, n);
        break;
    case BETWEEN:
        break;
    }
}

static void on_marker(void *ctx, uint32_t m)
{
    struct stream *s = ctx;

    switch (s->state) {
    case TOP:
        top_marker(s, m);
        break;
    case NAME:
        name_marker(s, m);
        break;
    case KEY:
        key_marker(s, m);
        break;
    case AFTER_KEY:
        call_marker(s, m, true);
        break;
    case VALUE:
        value_marker(s, m);
        break;
    case BETWEEN:
        call_marker(s, m, false);
        break;
    }
}

static int check_memory(struct stream *s)
{
    if (s->name.raw.failed || s->undeclared.failed || s->key.failed ||
        s->value.failed || s->tail_blank.failed || s->piece.failed ||
        s->keys.text.failed)
        no_memory(s);
    return s->out.rc;
}

int glm_stream_feed(void *stream, uint32_t n, const int32_t *token,
                    struct seam_str text)
{
    struct stream *s = stream;

    /* The text is the contract: who drafts tokens may deliver bytes only. */
    (void)n;
    (void)token;
    if (!s->out.rc)
        marker_feed(&s->lexer, text.p, text.n);
    return check_memory(s);
}

/* ---- The end ------------------------------------------------------------- */

/* The marker begun, held[0, n), can still become marker m. */
static bool begins(struct seam_str held, uint32_t m)
{
    return held.n < strlen(glm_markers[m]) &&
           !memcmp(glm_markers[m], held.p, held.n);
}

static void name_finish(struct stream *s, struct seam_str held, bool stop)
{
    struct seam_str name = text_trim(tbuf_view(&s->name.raw));
    const struct glm_tool *tool = glm_tools_find(&s->tools, name);

    if (stop && tool) {
        call_begin(s, tool);
        s->repaired = true;
        call_end(s);
    } else if (s->reasoning || !glm_tools_begin(&s->tools, name)) {
        name_is_text(s);
        if (held.n)
            top_text(s, held.p, held.n);
    }
}

/* An open value at a real end is whole, and what may be markup is. */
static void value_finish(struct stream *s, struct seam_str held)
{
    bool follows =
        begins(held, M_KEY) || begins(held, M_CALL) || begins(held, M_CALL_END);

    if (held.n && !(s->tail == TAIL_CLOSER && follows)) {
        value_tail_is_data(s);
        /* At least "</a" of the closing tag. */
        if (held.n < 3 || !begins(held, M_VALUE_END))
            value_data(s, held.p, held.n);
    }
    value_end(s);
    s->repaired = true;
    call_end(s);
}

int glm_stream_finish(void *stream, uint32_t end)
{
    struct stream *s = stream;
    bool stop = end == SEAM_END_STOP;
    struct seam_str held;

    marker_end(&s->lexer);
    held = (struct seam_str){ s->lexer.held, s->lexer.n_held };
    switch (s->state) {
    case TOP:
        if (held.n)
            top_text(s, held.p, held.n);
        break;
    case NAME:
        name_finish(s, held, stop);
        break;
    case VALUE:
        if (stop)
            value_finish(s, held);
        break;
    case KEY:
    case AFTER_KEY:
    case BETWEEN:
        s->repaired = true;
        if (stop)
            call_end(s);
        break;
    }
    chat_out_finish(&s->out);
    return check_memory(s);
}

int glm_stream_open(void *self, const struct seam_parse_opts *o,
                    const struct seam_sink *out, void **stream,
                    struct seam_error *err)
{
    struct stream *s = calloc(1, sizeof *s);
    int rc;

    if (!s)
        return plug_fail(err, SEAM_ENOMEM, "glm47: out of memory");
    rc = glm_tools_read(&s->tools, o->tools, err);
    if (rc) {
        glm_stream_close(s);
        return rc;
    }
    s->g = self;
    s->flags = o->flags;
    s->out.sink = *out;
    s->state = TOP;
    s->reasoning = chat_reasoning_open(o->prompt_tail, "<|assistant|>");
    s->lexer = (struct marker_lexer){ .markers = glm_markers,
                                      .n_markers = N_MARKERS,
                                      .ctx = s,
                                      .text = on_text,
                                      .marker = on_marker };
    *stream = s;
    return SEAM_OK;
}

void glm_stream_close(void *stream)
{
    struct stream *s = stream;

    if (!s)
        return;
    tbuf_release(&s->piece);
    tbuf_release(&s->tail_blank);
    tbuf_release(&s->value);
    tbuf_release(&s->key);
    keys_release(&s->keys);
    tbuf_release(&s->undeclared);
    tbuf_release(&s->name.raw);
    glm_tools_release(&s->tools);
    chat_out_release(&s->out);
    free(s);
}
