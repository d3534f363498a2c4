#include "chat_out.h"

void chat_out_event(struct chat_out *o, uint32_t kind, const char *p, size_t n)
{
    bool call = kind == SEAM_EV_TOOL_NAME || kind == SEAM_EV_TOOL_ARGS ||
                kind == SEAM_EV_TOOL_END;

    if (!o->rc && (n || kind == SEAM_EV_TOOL_END))
        o->rc =
            o->sink.event(o->sink.ctx, kind, call ? o->n_calls - 1 : 0, p, n);
}

void chat_out_content(struct chat_out *o, const char *p, size_t n)
{
    size_t i = 0;

    if (!o->in_text) {
        while (i < n && text_is_ws(p[i]))
            i++;
        tbuf_add(&o->blank, p, i);
        if (o->blank.failed && !o->rc)
            o->rc = SEAM_ENOMEM;
        if (i == n)
            return;
        o->in_text = true;
        chat_out_event(o, SEAM_EV_TEXT, o->blank.p, o->blank.n);
        tbuf_clear(&o->blank);
    }
    chat_out_event(o, SEAM_EV_TEXT, p + i, n - i);
}

void chat_out_reasoning(struct chat_out *o, const char *p, size_t n)
{
    chat_out_event(o, SEAM_EV_REASONING, p, n);
}

void chat_out_name(struct chat_out *o, struct seam_str name)
{
    o->n_calls++;
    chat_out_event(o, SEAM_EV_TOOL_NAME, name.p, name.n);
}

void chat_out_args(struct chat_out *o, const char *p, size_t n)
{
    chat_out_event(o, SEAM_EV_TOOL_ARGS, p, n);
}

void chat_out_call_end(struct chat_out *o)
{
    chat_out_event(o, SEAM_EV_TOOL_END, NULL, 0);
    o->delivered = true;
    o->in_text = false;
    tbuf_clear(&o->blank);
}

void chat_out_finish(struct chat_out *o)
{
    if (!o->delivered)
        chat_out_event(o, SEAM_EV_TEXT, o->blank.p, o->blank.n);
    tbuf_clear(&o->blank);
}

void chat_out_release(struct chat_out *o)
{
    tbuf_release(&o->blank);
}
