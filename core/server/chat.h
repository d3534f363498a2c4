/* From a checked request to text, reasoning and calls: render, tokenise,
 * submit, and for each token: stop ids, bytes, UTF-8, the parser, stop strings
 * (chat spec 5.5).  Used by every generating route and by `seam run`.
 *
 * The answer is a sequence of events to a sink, the same whether it is streamed
 * or collected. */
#ifndef SEAM_SERVER_CHAT_H
#define SEAM_SERVER_CHAT_H

#include "core/engine/engine.h"
#include "core/server/api_error.h"
#include "core/server/id.h"
#include "core/server/request.h"

struct seam_chat;

enum seam_chat_kind {
    SEAM_CHAT_BEGIN = 1, /* a choice was admitted; once each              */
    SEAM_CHAT_TEXT = 2,  /* content                                       */
    SEAM_CHAT_REASONING = 3,
    SEAM_CHAT_TOOL_BEGIN =
        4,                   /* text is the name, id the call's id            */
    SEAM_CHAT_TOOL_ARGS = 5, /* text is the next part of the arguments        */
    SEAM_CHAT_TOOL_END = 6,  /* the call is whole; without it there is none   */
    SEAM_CHAT_PROMPT = 7,    /* echo: the text of a prompt                    */
    SEAM_CHAT_FINISH = 8     /* once each, last                               */
};

enum seam_finish {
    SEAM_FINISH_STOP = 1,
    SEAM_FINISH_LENGTH = 2,
    SEAM_FINISH_CALLS = 3
};

/* One sampled (or, with echo, prompt) token. */
struct seam_chat_token {
    struct seam_gen_token t;
    bool first; /* of the prompt: it has no probability          */
};

struct seam_chat_event {
    enum seam_chat_kind kind;
    uint32_t choice;
    uint32_t index;       /* TOOL_*: which call, from 0                    */
    struct seam_str text; /* valid UTF-8, borrowed                         */
    const char *id;       /* TOOL_BEGIN                                    */
    /* With logprobs: the tokens since the last event of the choice. */
    const struct seam_chat_token *token;
    uint32_t n_tokens;
    /* FINISH */
    enum seam_finish finish;
    int32_t stop_id; /* the id that ended it, or -1                   */
    int stop_string; /* index in request.stop, or -1                  */
};

struct seam_chat_usage {
    uint64_t prompt, cached, completion, reasoning;
};

struct seam_chat_sink {
    void *ctx;
    /* Non-zero: nobody listens any more. */
    int (*event)(void *ctx, const struct seam_chat_event *ev);
    /* Called at least every poll_ms, whether tokens come or not.  Non-zero:
     * nobody listens any more. */
    int (*poll)(void *ctx);
    uint32_t poll_ms;
};

/* Render and tokenise r, check its length and submit all its choices.  r must
 * live until seam_chat_free. `text` is the request as JSON text for the
 * parser's render (unused for completions).  Submits nothing on failure.
 * [any] */
int seam_chat_open(struct seam_chat **c, struct seam_engine *engine,
                   const struct seam_request *r, struct seam_str text,
                   struct seam_api_error *e);

/* Generate to the end.  0: done; 1: the sink said stop, everything is
 * cancelled; -1: the engine failed, *e says how. */
int seam_chat_run(struct seam_chat *c, const struct seam_chat_sink *sink,
                  struct seam_api_error *e);

/* Number of choices: prompts * n. */
uint32_t seam_chat_choices(const struct seam_chat *c);
/* So far. */
void seam_chat_usage(const struct seam_chat *c, struct seam_chat_usage *out);
/* Cancels what still runs.  NULL is fine. */
void seam_chat_free(struct seam_chat *c);

/* Tokens that are counted or listed for a client, unless the context holds
 * more. */
#define SEAM_COUNT_MAX (1u << 20)
/* What the tokenizer's ELONGWORD means to a client. */
int seam_chat_long_word(struct seam_api_error *e, const char *field);
uint32_t seam_chat_count_max(const struct seam_engine *engine);

/* The prompt alone: its text (may be NULL) and its ids (may be NULL), which are
 * refused as soon as there are more than max. */
int seam_chat_render(struct seam_engine *engine, struct seam_str text,
                     uint32_t max, struct seam_buf *prompt,
                     struct seam_ids *ids, struct seam_api_error *e);

/* Whether the request has fields that parsers know in another form. */
bool seam_chat_is_mapped(const struct seam_request *r);
/* The request as JSON text in the form parsers read: old names mapped. */
char *seam_chat_text(const struct seam_request *r);

/* The bytes of a token as text, ill-formed parts as U+FFFD. */
void seam_chat_token_text(const struct seam_tokenizer *t, int32_t id,
                          struct seam_buf *out);

#endif
