/* What a request body asks for, checked field by field (docs/api.md).
 *
 * A field we know with a wrong type or range is refused by name; so is one that
 * would change the result and is not supported.  null stands for absent, 5.0
 * for 5.  Everything else is ignored and listed. */
#ifndef SEAM_SERVER_REQUEST_H
#define SEAM_SERVER_REQUEST_H

#include <jansson.h>
#include <stdbool.h>

#include "core/base/buf.h"
#include "core/engine/engine.h"
#include "core/server/api_error.h"
#include "core/server/spelling.h"
#include "core/server/stop.h"

#define SEAM_MAX_N        128
#define SEAM_MAX_BIAS     1024
#define SEAM_MAX_STOP_IDS 256

enum seam_request_kind { SEAM_REQUEST_CHAT = 1, SEAM_REQUEST_COMPLETION = 2 };

enum seam_tool_choice {
    SEAM_TOOLS_AUTO = 1,
    SEAM_TOOLS_NONE = 2,
    SEAM_TOOLS_REQUIRED = 3,
    SEAM_TOOLS_NAMED = 4
};

/* What the server and its model allow. */
struct seam_request_limits {
    uint32_t vocab;
    uint32_t max_n;
    uint32_t max_stops;       /* stop strings; 0: as OpenAI               */
    float temperature, top_p; /* when the request says nothing            */
    int32_t priority_min, priority_max;
};

struct seam_request {
    enum seam_request_kind kind;
    json_t *body;
    struct seam_spelling spelling; /* of the numbers in body                  */
    const char *model; /* NULL: the default; borrowed from body          */
    bool stream;
    bool include_usage, continuous_usage;
    uint32_t n;
    int32_t priority;       /* lower first                                   */
    const char *cache_salt; /* NULL: none; borrowed from body              */
    uint64_t timeout_ms;    /* 0: the server's                               */
    uint64_t tenant;        /* whose turn it takes: from `user`, 0: nobody's */
    int64_t max_tokens;     /* 0: as many as fit                              */
    uint32_t min_tokens;
    double temperature, top_p, min_p;
    int64_t top_k;
    bool has_seed;
    int64_t seed;
    double presence, frequency, repetition;
    struct seam_bias *bias; /* [n_bias]                                       */
    uint32_t n_bias;
    int32_t *stop_id; /* [n_stop_id]                                    */
    uint32_t n_stop_id;
    struct seam_str stop[SEAM_MAX_STOPS]; /* borrowed from body               */
    uint32_t n_stop;
    bool ignore_eos, include_stop, skip_special;
    bool logprobs;
    uint32_t top_logprobs;
    /* chat */
    const char *call_prefix; /* of ids of calls                          */
    bool has_tools;
    enum seam_tool_choice tool_choice;
    bool parallel_calls;
    bool include_reasoning, separate_reasoning, stream_reasoning;
    /* completion */
    bool echo;
    const json_t *prompt; /* borrowed from body                             */
    struct seam_buf
        ignored; /* names of fields without effect, "a, b"         */
};

/* Check text[0, n) against the rules for its kind.  On failure *r is empty and
 * *e says why.  [any] */
int seam_request_parse(struct seam_request *r, enum seam_request_kind kind,
                       const char *text, size_t n,
                       const struct seam_request_limits *l,
                       struct seam_api_error *e);
/* The same of a value that was parsed; takes its own reference. */
int seam_request_read(struct seam_request *r, enum seam_request_kind kind,
                      json_t *body, const struct seam_request_limits *l,
                      struct seam_api_error *e);
/* A chat made from another API's request. */
struct seam_converted {
    json_t *chat;
    const struct seam_api_name *names; /* of its fields in the original       */
    struct seam_buf ignored;           /* as in seam_request                  */
    struct seam_spelling spelling; /* of the numbers in the original          */
};
/* The same of such a chat, which is released in any case. */
int seam_request_adopt(struct seam_request *r, struct seam_converted *c,
                       const struct seam_request_limits *l,
                       struct seam_api_error *e);
void seam_converted_release(struct seam_converted *c);
/* What to do with the fields of another API's request that are not in known
 * (NULL-terminated), its own: those of a chat that mean the same there are
 * added to chat, those that would change the answer and cannot are refused, all
 * others are noted in *ignored. */
int seam_request_carry(const json_t *body, const char *const *known,
                       json_t *chat, struct seam_buf *ignored,
                       struct seam_api_error *e);
void seam_request_release(struct seam_request *r);

/* Text to a JSON object, within bounds on depth and on the memory that the
 * parsed form takes.  The spelling of its numbers is added to *s, unless that
 * is NULL; text must live as long.  NULL: *e says why. */
json_t *seam_request_json(const char *text, size_t n, struct seam_spelling *s,
                          struct seam_api_error *e);

/* An integer from lo to hi, which may be written as 5.0.  name is the field. */
int seam_request_int(const json_t *v, const char *name, int64_t lo, int64_t hi,
                     int64_t *out, struct seam_api_error *e);
/* Seconds, more than 0 and at most a day, as text or number, to milliseconds.
 * name is the field or header. */
int seam_request_timeout(double seconds, const char *name, uint64_t *ms,
                         struct seam_api_error *e);
/* A number for a name that requests share, never 0. */
uint64_t seam_request_tenant(const char *name, size_t n);

/* Note a field that has no effect. */
void seam_request_ignore(struct seam_request *r, const char *field);
/* The same in a list of such names, "a, b".  Each stands there once; bytes that
 * a header cannot hold are written as %0A, long names end with "...", and so
 * does a long list with "(others)". */
void seam_ignored_add(struct seam_buf *ignored, const char *field);
/* Add the names of another list, but not those in but (NULL-terminated), unless
 * it is NULL. */
void seam_ignored_join(struct seam_buf *ignored, const struct seam_buf *more,
                       const char *const *but);
/* Note all members of body that are not in known (NULL-terminated), with
 * "FIELD." before their names when field is not NULL. */
void seam_ignored_note(struct seam_buf *ignored, const char *field,
                       const json_t *body, const char *const *known);

#endif
