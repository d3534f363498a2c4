#include "core/server/reasoning.h"

#include <stdlib.h>
#include <string.h>

void seam_reasoning_init(struct seam_reasoning *s, const struct seam_request *r)
{
    *s = (struct seam_reasoning){ .include = r->include_reasoning,
                                  .separate = r->separate_reasoning,
                                  .stream = r->stream_reasoning || !r->stream };
}

void seam_reasoning_release(struct seam_reasoning *s)
{
    seam_buf_release(&s->held);
    free(s->token);
    *s = (struct seam_reasoning){ 0 };
}

static int reasoning_hold(struct seam_reasoning *s,
                          const struct seam_chat_event *ev)
{
    seam_buf_add(&s->held, ev->text.p, ev->text.n);
    if (ev->n_tokens) {
        size_t n = s->n_tokens + ev->n_tokens;
        struct seam_chat_token *t = realloc(s->token, n * sizeof *t);

        if (!t)
            return SEAM_ENOMEM;
        memcpy(t + s->n_tokens, ev->token, ev->n_tokens * sizeof *t);
        s->token = t;
        s->n_tokens = (uint32_t)n;
    }
    return s->held.failed ? SEAM_ENOMEM : 0;
}

/* What was held, now that something else follows. */
static int reasoning_let_go(struct seam_reasoning *s, uint32_t choice,
                            int (*out)(void *ctx,
                                       const struct seam_chat_event *ev),
                            void *ctx)
{
    struct seam_chat_event ev = { .kind = SEAM_CHAT_REASONING,
                                  .choice = choice,
                                  .text = { s->held.p, s->held.n },
                                  .token = s->token,
                                  .n_tokens = s->n_tokens };
    int rc = s->held.n ? out(ctx, &ev) : 0;

    seam_buf_clear(&s->held);
    s->n_tokens = 0;
    return rc;
}

static int reasoning_inline(
    struct seam_reasoning *s, const struct seam_chat_event *ev,
    int (*out)(void *ctx, const struct seam_chat_event *ev), void *ctx)
{
    struct seam_chat_event tag = { .kind = SEAM_CHAT_TEXT,
                                   .choice = ev->choice };
    struct seam_chat_event text = *ev;
    bool reasoning = ev->kind == SEAM_CHAT_REASONING;
    int rc = 0;

    text.kind = SEAM_CHAT_TEXT;
    if (reasoning != s->open && ev->kind != SEAM_CHAT_FINISH) {
        tag.text.p = reasoning ? "<think>" : "</think>";
        tag.text.n = strlen(tag.text.p);
        s->open = reasoning;
        rc = out(ctx, &tag);
    }
    return rc ? rc : out(ctx, reasoning ? &text : ev);
}

int seam_reasoning_event(
    struct seam_reasoning *s, const struct seam_chat_event *ev,
    int (*out)(void *ctx, const struct seam_chat_event *ev), void *ctx)
{
    bool reasoning = ev->kind == SEAM_CHAT_REASONING;
    int rc;

    if (reasoning && !s->include)
        return 0;
    if (!s->separate && ev->kind != SEAM_CHAT_BEGIN)
        return reasoning_inline(s, ev, out, ctx);
    if (reasoning && !s->stream)
        return reasoning_hold(s, ev);
    if (s->held.n) {
        rc = reasoning_let_go(s, ev->choice, out, ctx);
        if (rc)
            return rc;
    }
    return out(ctx, ev);
}
