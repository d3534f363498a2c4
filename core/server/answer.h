/* What the generating routes share: from an exchange with a body to a running
 * generation, and the pieces of their answers. */
#ifndef SEAM_SERVER_ANSWER_H
#define SEAM_SERVER_ANSWER_H

#include "core/server/chat.h"
#include "core/server/sse.h"

struct seam_answer {
    struct seam_http *h;
    struct seam_request r;
    struct seam_chat *chat;
    struct seam_sse sse;
    char id[SEAM_ID_MAX];
    time_t created;
    const char *model; /* as the request named it                          */
    struct seam_api_error err;
    const char *finish; /* of the last choice, for the log                  */
};

/* Check the body (or, when not NULL, the chat that was made from it, which is
 * taken over), the model's name and the prompt, and submit.  On failure the
 * error is already sent and *a is empty. */
int seam_answer_open(struct seam_answer *a, struct seam_http *h,
                     enum seam_request_kind kind, const char *id_prefix,
                     struct seam_converted *made);

/* Count the prompt of a chat that was made from another API's request, and
 * answer {"input_tokens"}, with "object" unless that is NULL.  Takes the chat
 * over. */
void seam_answer_count(struct seam_http *h, struct seam_converted *chat,
                       const char *object);

/* Generate.  event gets ctx; 0: done.  -1: the engine failed and, unless an
 * event stream has begun, the error was sent; 1: the client left. */
int seam_answer_run(struct seam_answer *a,
                    int (*event)(void *ctx, const struct seam_chat_event *ev),
                    void *ctx);
void seam_answer_release(struct seam_answer *a);

/* Name the fields without effect in the answer's head and the log. */
void seam_answer_ignored(struct seam_http *h, const struct seam_buf *ignored);

/* What request checks need to know of server and model. */
void seam_answer_limits(struct seam_http *h, struct seam_request_limits *l);

/* The model that a request names, checked; -1: *e says it is unknown. */
int seam_answer_model(struct seam_http *h, const char *name, const char **out,
                      struct seam_api_error *e);

const char *seam_finish_name(enum seam_finish f);
/* The stop string or the id of the request's own that ended an answer; null for
 * the model's own end, which is no reason worth telling. */
json_t *seam_stop_reason_json(const struct seam_answer *a,
                              const struct seam_chat_event *finish);

/* {"prompt_tokens",...} with details. */
json_t *seam_usage_json(const struct seam_chat_usage *u);

/* A logprobs entry of a chat answer: {"token","logprob","bytes",
 * "top_logprobs"}. */
json_t *seam_logprob_json(const struct seam_tokenizer *t,
                          const struct seam_gen_token *tok);
/* The number as JSON takes it: -infinity is -9999. */
json_t *seam_logprob_number(float v);

/* A fingerprint of model and version. */
const char *seam_fingerprint(void);

#endif
