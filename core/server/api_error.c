#include "core/server/api_error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/base/utf8.h"

/* Whole characters of valid UTF-8 without control characters, whatever a
 * plugin's message held. */
static void api_tidy(char *s, size_t cap)
{
    size_t n = strlen(s);

    if (n == cap - 1)
        n = seam_utf8_whole(s, n);
    s[n] = 0;
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        size_t len;

        if (seam_utf8_next(s + i, n - i, &cp, &len) != SEAM_UTF8_OK)
            memset(s + i, '?', len);
        else if (cp < 0x20 || cp == 0x7f)
            s[i] = ' ';
        i += len;
    }
}

static int api_fill(struct seam_api_error *e, int status, const char *code,
                    const char *param, const char *fmt, va_list ap)
{
    e->status = status;
    e->code = code;
    e->retry_after_s = status == 429 || status == 503 ? 1 : 0;
    snprintf(e->param, sizeof e->param, "%s", param ? param : "");
    vsnprintf(e->text, sizeof e->text, fmt, ap);
    api_tidy(e->param, sizeof e->param);
    api_tidy(e->text, sizeof e->text);
    return -1;
}

int seam_api_fail(struct seam_api_error *e, int status, const char *code,
                  const char *param, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    api_fill(e, status, code, param, fmt, ap);
    va_end(ap);
    return -1;
}

int seam_api_invalid(struct seam_api_error *e, const char *param,
                     const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    api_fill(e, 400, "invalid_value", param, fmt, ap);
    va_end(ap);
    return -1;
}

int seam_api_fail_path(struct seam_api_error *e, const char *code,
                       const char *param, const char *text)
{
    static const char *const fields[] = { "messages",
                                          "tools",
                                          "functions",
                                          "response_format",
                                          "grammar",
                                          "chat_template",
                                          "chat_template_kwargs",
                                          "enable_thinking",
                                          "thinking",
                                          "reasoning_effort",
                                          "add_generation_prompt",
                                          "continue_final_message",
                                          NULL };
    size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyz_"), end;
    char path[sizeof e->param];
    bool known = false;

    for (const char *const *f = fields; *f; f++)
        known = known || (n == strlen(*f) && !memcmp(text, *f, n));
    if (!known || !text[n] || !strchr(".[:", text[n]))
        return seam_api_fail(e, 400, code, param, "%s", text);
    /* Too long a path is cut to the field; keys in it may hold anything. */
    end = strcspn(text, ":");
    if (text[end] && end < sizeof path)
        n = end;
    memcpy(path, text, n);
    path[n] = 0;
    return seam_api_fail(e, 400, code, path, "%s", text);
}

/* Put `own` for `name` where text[0, cap) begins with it at `at`. */
static void api_replace(char *text, size_t cap, size_t at,
                        const struct seam_api_name *name)
{
    size_t n = strlen(name->chat);
    size_t skip = name->inside ? n : n + strcspn(text + at + n, ": ");
    char rest[256];

    snprintf(rest, sizeof rest, "%s%s", name->own, text + at + skip);
    snprintf(text + at, cap - at, "%s", rest);
    api_tidy(text, cap);
}

static bool api_is_named(const char *p, const char *name)
{
    size_t n = strlen(name);

    return !strncmp(p, name, n) && (!p[n] || strchr(".[: ", p[n]));
}

void seam_api_rename(struct seam_api_error *e,
                     const struct seam_api_name *names)
{
    const struct seam_api_name *name = names;

    while (name->chat && !api_is_named(e->param, name->chat))
        name++;
    if (!name->chat)
        return;
    for (size_t at = 0; e->text[at]; at++)
        if ((!at || e->text[at - 1] == ' ') &&
            api_is_named(e->text + at, name->chat)) {
            api_replace(e->text, sizeof e->text, at, name);
            break;
        }
    api_replace(e->param, sizeof e->param, 0, name);
}

const char *seam_api_type(int status)
{
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 429:
        return "rate_limit_error";
    case 501:
        return "not_supported_error";
    case 503:
        return "unavailable_error";
    case 504:
        return "timeout_error";
    case 505: /* the client's choice of version */
        return "invalid_request_error";
    }
    return status >= 500 ? "server_error" : "invalid_request_error";
}

const char *seam_api_type_anthropic(int status)
{
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 413:
        return "request_too_large";
    case 429:
        return "rate_limit_error";
    case 503:
        return "overloaded_error";
    case 504:
        return "timeout_error";
    case 505: /* the client's choice of version */
        return "invalid_request_error";
    }
    return status >= 500 ? "api_error" : "invalid_request_error";
}

static void api_string(struct seam_buf *out, const char *s)
{
    if (s && *s)
        seam_buf_json(out, s, strlen(s));
    else
        seam_buf_str(out, "null");
}

void seam_api_error_json(const struct seam_api_error *e, struct seam_buf *out)
{
    seam_buf_str(out, "{\"error\":{\"message\":");
    seam_buf_json(out, e->text, strlen(e->text));
    seam_buf_fmt(out, ",\"type\":\"%s\",\"param\":", seam_api_type(e->status));
    api_string(out, e->param);
    seam_buf_str(out, ",\"code\":");
    api_string(out, e->code);
    seam_buf_str(out, "}}");
}

void seam_api_error_anthropic(const struct seam_api_error *e,
                              const char *request_id, struct seam_buf *out)
{
    struct seam_buf text = { 0 };

    seam_buf_fmt(out,
                 "{\"type\":\"error\",\"error\":{\"type\":\"%s\","
                 "\"message\":",
                 seam_api_type_anthropic(e->status));
    /* This shape has neither parameter nor code; the text says them, in the
     * words that clients of this API look for. */
    if (e->code && !strcmp(e->code, "context_length_exceeded"))
        seam_buf_str(&text, "prompt is too long: ");
    else if (e->param[0] && !strstr(e->text, e->param))
        seam_buf_fmt(&text, "%s: ", e->param);
    seam_buf_str(&text, e->text);
    seam_buf_json(out, text.p ? text.p : "", text.n);
    seam_buf_release(&text);
    seam_buf_str(out, "},\"request_id\":");
    api_string(out, request_id);
    seam_buf_str(out, "}");
}
