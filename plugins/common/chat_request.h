/* A chat request as renderers want it: the many shapes that clients send
 * brought to one (chat spec, section 2.1).  Fields that no renderer reads are
 * ignored, so the whole request body may be passed. */
#ifndef SEAM_CHAT_REQUEST_H
#define SEAM_CHAT_REQUEST_H

#include "json_text.h"

enum chat_role {
    CHAT_SYSTEM = 1,
    CHAT_USER = 2,
    CHAT_ASSISTANT = 3,
    CHAT_TOOL = 4
};

enum chat_effort {
    CHAT_EFFORT_UNSET = 0,
    CHAT_EFFORT_LOW = 1,
    CHAT_EFFORT_HIGH = 2,
    CHAT_EFFORT_MAX = 3
};

enum chat_switch { CHAT_UNSET = 0, CHAT_OFF = 1, CHAT_ON = 2 };

struct chat_call {
    struct seam_str id, name;    /* id may be empty                           */
    const struct jt_value *args; /* an object, or NULL for none               */
};

/* One result of a tool message: text, or tools to be disclosed. */
struct chat_result {
    struct seam_str id;
    struct seam_str text;
    const struct jt_value *refs; /* list of {"type":"tool_reference","name"}  */
};

struct chat_msg {
    enum chat_role role;
    struct seam_str text;
    bool has_reasoning; /* present, even if empty                    */
    struct seam_str reasoning;
    struct chat_call *call; /* [n_calls]                                 */
    size_t n_calls;
    struct chat_result *result; /* [n_results], of a tool message            */
    size_t n_results;
};

struct chat_request {
    struct jt_doc doc;
    struct chat_msg *msg; /* [n_msgs], at least one                   */
    size_t n_msgs;
    const struct jt_value *tools; /* non-empty list of objects, or NULL       */
    enum chat_switch thinking, clear_thinking;
    enum chat_effort effort;
    bool generate; /* end with the opening of the answer                      */
    bool resume;   /* leave the last message, an assistant's, open            */
};

/* What a renderer can do. */
struct chat_rules {
    const struct seam_host *host; /* for log lines                            */
    bool strict_history;  /* bad arguments in history: EDATA, not {}         */
    bool media_reminder;  /* say that media cannot be read, not EDATA        */
    bool tool_references; /* accepted as the content of tool messages        */
};

/* EDATA with "PATH: reason", PATH being what the client sent, such as
 * messages[0].role; ENOMEM.  text must outlive *r; release *r in any case. */
int chat_read(struct chat_request *r, struct seam_str text,
              const struct chat_rules *rules, struct seam_error *err);
void chat_release(struct chat_request *r);

/* The function object of a tool, which may come flat. */
const struct jt_value *chat_function(const struct jt_value *tool);

/* Where reasoning stands at the end of a prompt: true when the last answer's
 * <think> is open (chat spec, section 3.3).  turn is what opens an answer. */
bool chat_reasoning_open(struct seam_str prompt_tail, const char *turn);

#endif
