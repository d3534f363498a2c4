/* What a client is told when a request is not served (docs/api.md, "Errors").
 *
 * The text names the field and the limit.  It never quotes bytes of the request
 * and never a key. */
#ifndef SEAM_SERVER_API_ERROR_H
#define SEAM_SERVER_API_ERROR_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/buf.h"

struct seam_api_error {
    int status;       /* HTTP                                              */
    const char *code; /* static, such as "invalid_value"; NULL: none       */
    char param[96];   /* field at fault, "messages[0].role"; "": none  */
    char text[256];
    uint32_t retry_after_s; /* 0: no such header                           */
};

/* Fill *e and return -1.  param may be NULL. */
__attribute__((format(printf, 5, 6))) int seam_api_fail(
    struct seam_api_error *e, int status, const char *code, const char *param,
    const char *fmt, ...);

/* 400 with code invalid_value. */
__attribute__((format(printf, 3, 4))) int seam_api_invalid(
    struct seam_api_error *e, const char *param, const char *fmt, ...);

/* 400 with text, whose path becomes the parameter when it begins with one:
 * "messages[0].role: reason".  param is the field at fault if it does not. */
int seam_api_fail_path(struct seam_api_error *e, const char *code,
                       const char *param, const char *text);

/* What a field of a chat is called in another API. */
struct seam_api_name {
    const char *chat, *own; /* both NULL: the end                          */
    bool inside; /* what is in it is in the other, at the same place       */
};
/* Put an error about a chat in the words of the request it was made from. */
void seam_api_rename(struct seam_api_error *e,
                     const struct seam_api_name *names);

/* The "type" that goes with a status, for the OpenAI and Anthropic shapes. */
const char *seam_api_type(int status);
const char *seam_api_type_anthropic(int status);

/* {"error":{"message","type","param","code"}} */
void seam_api_error_json(const struct seam_api_error *e, struct seam_buf *out);
/* {"type":"error","error":{"type","message"},"request_id"} */
void seam_api_error_anthropic(const struct seam_api_error *e,
                              const char *request_id, struct seam_buf *out);

#endif
