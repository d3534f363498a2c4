/* The parser of models without a chat format: "ROLE: TEXT\n" for a prompt, and
 * all output is the answer.  Also the least that a parser can be. */
#include <stdlib.h>

#include "chat_out.h"
#include "chat_request.h"
#include "marker.h"
#include "plugin_util.h"

struct none {
    struct chat_rules rules;
};

struct stream {
    struct marker_lexer lexer; /* without markers: keeps characters whole     */
    struct chat_out out;
};

/* Set by init, before any instance exists. */
static const struct seam_host *host;

static void text(const struct seam_sink *out, int *rc, const char *p, size_t n)
{
    if (!*rc && n)
        *rc = out->event(out->ctx, SEAM_EV_TEXT, 0, p, n);
}

static int none_render(void *self, struct seam_str request,
                       const struct seam_sink *out, struct seam_error *err)
{
    static const char *const openings[] = {
        [CHAT_SYSTEM] = "system: ",
        [CHAT_USER] = "user: ",
        [CHAT_ASSISTANT] = "assistant: ",
        [CHAT_TOOL] = "tool: ",
    };
    const struct none *none = self;
    struct chat_request r;
    int rc = chat_read(&r, request, &none->rules, err);

    for (size_t i = 0; !rc && i < r.n_msgs; i++) {
        const struct chat_msg *m = &r.msg[i];
        const char *opening = openings[m->role];

        text(out, &rc, opening, strlen(opening));
        text(out, &rc, m->text.p, m->text.n);
        for (size_t k = 0; k < m->n_results; k++) {
            text(out, &rc, " ", k > 0);
            text(out, &rc, m->result[k].text.p, m->result[k].text.n);
        }
        text(out, &rc, "\n", !(r.resume && i + 1 == r.n_msgs));
    }
    if (!rc && r.generate)
        text(out, &rc, "assistant:", 10);
    chat_release(&r);
    return rc;
}

static void on_text(void *ctx, const char *p, size_t n)
{
    chat_out_event(ctx, SEAM_EV_TEXT, p, n);
}

static int none_open(void *self, const struct seam_parse_opts *o,
                     const struct seam_sink *out, void **stream,
                     struct seam_error *err)
{
    struct stream *s = calloc(1, sizeof *s);

    (void)self;
    (void)o;
    if (!s)
        return plug_fail(err, SEAM_ENOMEM, "none: out of memory");
    s->out.sink = *out;
    s->lexer = (struct marker_lexer){ .ctx = &s->out, .text = on_text };
    *stream = s;
    return SEAM_OK;
}

static int none_feed(void *stream, uint32_t n, const int32_t *token,
                     struct seam_str fed)
{
    struct stream *s = stream;

    (void)n;
    (void)token;
    if (!s->out.rc)
        marker_feed(&s->lexer, fed.p, fed.n);
    return s->out.rc;
}

static int none_finish(void *stream, uint32_t end)
{
    struct stream *s = stream;

    (void)end;
    marker_end(&s->lexer);
    on_text(&s->out, s->lexer.held, s->lexer.n_held);
    return s->out.rc;
}

static void none_close(void *stream)
{
    struct stream *s = stream;

    if (s)
        chat_out_release(&s->out);
    free(s);
}

static int none_init(const struct seam_host *h, struct seam_error *err)
{
    (void)err;
    host = h;
    return SEAM_OK;
}

static int none_create(const struct seam_create *c, void **self,
                       struct seam_error *err)
{
    struct none *none = calloc(1, sizeof *none);

    (void)c;
    if (!none)
        return plug_fail(err, SEAM_ENOMEM, "none: out of memory");
    none->rules = (struct chat_rules){ .host = host };
    *self = none;
    return SEAM_OK;
}

static void none_destroy(void *self)
{
    free(self);
}

static const struct seam_parser table = {
    .size = sizeof(struct seam_parser),
    .render = none_render,
    .open = none_open,
    .feed = none_feed,
    .finish = none_finish,
    .close = none_close,
};

const struct seam_plugin seam_plugin_entry = {
    .ident = { SEAM_IDENT(SEAM_KIND_PARSER, struct seam_parser),
               .flags = SEAM_PLUGIN_UNLOADABLE, .name = "none",
               .version = "1.0.0", .build = __VERSION__ },
    .table = &table,
    .init = none_init,
    .create = none_create,
    .destroy = none_destroy,
};
