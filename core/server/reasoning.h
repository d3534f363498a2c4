/* How a client wants its reasoning: as it comes, in one piece, inline in the
 * content, or not at all. */
#ifndef SEAM_SERVER_REASONING_H
#define SEAM_SERVER_REASONING_H

#include "core/server/chat.h"

struct seam_reasoning {
    bool include, separate, stream;
    bool open;            /* inline: "<think>" was sent, "</think>" not     */
    struct seam_buf held; /* in one piece: until it ends                    */
    struct seam_chat_token *token; /* [n_tokens] that came with it            */
    uint32_t n_tokens;
};

void seam_reasoning_init(struct seam_reasoning *s,
                         const struct seam_request *r);
void seam_reasoning_release(struct seam_reasoning *s);

/* Pass ev on to out, changed as the client wants it. */
int seam_reasoning_event(
    struct seam_reasoning *s, const struct seam_chat_event *ev,
    int (*out)(void *ctx, const struct seam_chat_event *ev), void *ctx);

#endif
