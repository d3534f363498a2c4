/* From output bytes to events. */
#include "stream.h"

#include <stdlib.h>

#include "chat_out.h"
#include "marker.h"
#include "plugin_util.h"

static const char *const markers[] = { "<think>", "</think>" };

struct stream {
    struct marker_lexer lexer;
    struct chat_out out;
    bool reasoning;
};

static void on_text(void *ctx, const char *p, size_t n)
{
    struct stream *s = ctx;

    if (s->reasoning)
        chat_out_reasoning(&s->out, p, n);
    else
        chat_out_content(&s->out, p, n);
}

static void on_marker(void *ctx, uint32_t index)
{
    struct stream *s = ctx;

    s->reasoning = index == 0;
}

int glm_stream_open(void *self, const struct seam_parse_opts *o,
                    const struct seam_sink *out, void **stream,
                    struct seam_error *err)
{
    struct stream *s = calloc(1, sizeof *s);

    (void)self;
    if (!s)
        return plug_fail(err, SEAM_ENOMEM, "glm47: out of memory");
    s->out.sink = *out;
    s->reasoning = chat_reasoning_open(o->prompt_tail, "<|assistant|>");
    s->lexer = (struct marker_lexer){ .markers = markers,
                                      .n_markers = 2,
                                      .ctx = s,
                                      .text = on_text,
                                      .marker = on_marker };
    *stream = s;
    return SEAM_OK;
}

int glm_stream_feed(void *stream, uint32_t n, const int32_t *token,
                    struct seam_str text)
{
    struct stream *s = stream;

    (void)n;
    (void)token;
    if (!s->out.rc)
        marker_feed(&s->lexer, text.p, text.n);
    return s->out.rc;
}

int glm_stream_finish(void *stream, uint32_t end)
{
    struct stream *s = stream;

    (void)end;
    marker_end(&s->lexer);
    if (s->lexer.n_held)
        on_text(s, s->lexer.held, s->lexer.n_held);
    chat_out_finish(&s->out);
    return s->out.rc;
}

void glm_stream_close(void *stream)
{
    struct stream *s = stream;

    if (!s)
        return;
    chat_out_release(&s->out);
    free(s);
}
