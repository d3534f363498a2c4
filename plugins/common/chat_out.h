/* From a parser's findings to events.
 *
 * White space at the beginning of a stretch of content waits for what follows:
 * content between calls that is nothing else is dropped once a call is
 * delivered, and kept when none is (chat spec, section 3.5). */
#ifndef SEAM_CHAT_OUT_H
#define SEAM_CHAT_OUT_H

#include "text_buf.h"

struct chat_out {
    struct seam_sink sink;
    int rc;            /* first refusal of the sink, or ENOMEM; then silence  */
    struct tbuf blank; /* white space held back                               */
    bool in_text;      /* this stretch of content has shown something else    */
    bool delivered;    /* a call is complete                                  */
    uint32_t n_calls;  /* calls named so far; the open one is the last        */
};

void chat_out_event(struct chat_out *o, uint32_t kind, const char *p, size_t n);
void chat_out_content(struct chat_out *o, const char *p, size_t n);
void chat_out_reasoning(struct chat_out *o, const char *p, size_t n);
void chat_out_name(struct chat_out *o, struct seam_str name);
void chat_out_args(struct chat_out *o, const char *p, size_t n);
void chat_out_call_end(struct chat_out *o);
void chat_out_finish(struct chat_out *o);
void chat_out_release(struct chat_out *o);

#endif
