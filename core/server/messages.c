#include "core/server/messages.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/json.h"

#define MAX_PROMPTS 64

static bool is_one_of(const char *s, const char *const *list)
{
    for (; s && *list; list++)
        if (!strcmp(s, *list))
            return true;
    return false;
}

/* ---- Messages ------------------------------------------------------------ */

int seam_part_check(const json_t *part, const char *role, const char *where,
                    struct seam_api_error *e)
{
    static const char *const text[] = { "text", "input_text", "output_text",
                                        NULL };
    static const char *const media[] = {
        "image",     "image_url",  "input_image", "video",
        "video_url", "audio",      "audio_url",   "input_audio",
        "file",      "input_file", "document",    NULL
    };
    static const char *const think[] = { "thinking", "reasoning",
                                         "redacted_thinking", NULL };
    const char *type;

    if (json_is_string(part))
        return 0;
    if (!json_is_object(part))
        return seam_api_invalid(e, where,
                                "a content part must be an object or "
                                "a string");
    type = seam_json_text(part, "type");
    if (!strcmp(role, "tool") && (seam_json_member(part, "output") ||
                                  (type && !strcmp(type, "tool_reference"))))
        return 0;
    if (is_one_of(type, text)) {
        if (seam_json_text(part, "text"))
            return 0;
        return seam_api_invalid(e, where, "the part has no text");
    }
    if (type && !strcmp(type, "refusal")) {
        if (seam_json_text(part, "refusal"))
            return 0;
        return seam_api_invalid(e, where, "the part has no refusal");
    }
    if (!strcmp(role, "assistant") && is_one_of(type, think))
        return 0;
    if (is_one_of(type, media))
        return seam_api_fail(e, 400, "unsupported_value", where,
                             "this server takes text only, no media");
    return seam_api_invalid(e, where, "unknown type of content part");
}

static int call_check(const json_t *call, const char *where,
                      struct seam_api_error *e)
{
    const json_t *f = json_object_get(call, "function");
    const json_t *args;

    if (!json_is_object(f))
        f = call; /* flat */
    if (!json_is_object(f) || !seam_json_text(f, "name"))
        return seam_api_invalid(e, where,
                                "a tool call needs a function with a "
                                "name");
    args = seam_json_member(f, "arguments");
    if (args && !json_is_string(args) && !json_is_object(args))
        return seam_api_invalid(e, where,
                                "arguments must be a string or an "
                                "object");
    return 0;
}

static int message_check(const json_t *m, size_t i, struct seam_api_error *e)
{
    static const char *const roles[] = { "system",    "developer", "user",
                                         "assistant", "tool",      "function",
                                         NULL };
    const char *role = seam_json_text(m, "role");
    const json_t *v, *item;
    char where[64];
    size_t j;

    snprintf(where, sizeof where, "messages[%zu]", i);
    if (!json_is_object(m))
        return seam_api_invalid(e, where, "a message must be an object");
    snprintf(where, sizeof where, "messages[%zu].role", i);
    if (!is_one_of(role, roles))
        return seam_api_invalid(e, where,
                                "the role must be system, developer, "
                                "user, assistant, tool or function");
    if (!strcmp(role, "function"))
        role = "tool";
    v = seam_json_member(m, "content");
    if (json_is_array(v)) {
        json_array_foreach(v, j, item)
        {
            snprintf(where, sizeof where, "messages[%zu].content[%zu]", i, j);
            if (seam_part_check(item, role, where, e))
                return -1;
        }
    } else if (v && !json_is_string(v)) {
        snprintf(where, sizeof where, "messages[%zu].content", i);
        return seam_api_invalid(e, where,
                                "content must be a string or a list "
                                "of parts");
    }
    v = seam_json_member(m, "tool_calls");
    if (v) {
        snprintf(where, sizeof where, "messages[%zu].tool_calls", i);
        if (!json_is_array(v))
            return seam_api_invalid(e, where, "tool_calls must be a list");
        json_array_foreach(v, j, item)
        {
            snprintf(where, sizeof where, "messages[%zu].tool_calls[%zu]", i,
                     j);
            if (call_check(item, where, e))
                return -1;
        }
    }
    v = seam_json_member(m, "function_call");
    if (v) {
        snprintf(where, sizeof where, "messages[%zu].function_call", i);
        if (call_check(v, where, e))
            return -1;
    }
    v = seam_json_member(m, "tool_call_id");
    if (v && !json_is_string(v)) {
        snprintf(where, sizeof where, "messages[%zu].tool_call_id", i);
        return seam_api_invalid(e, where, "tool_call_id must be a string");
    }
    return 0;
}

int seam_messages_check(const json_t *messages, struct seam_api_error *e)
{
    const json_t *m;
    size_t i;

    if (!json_is_array(messages) || !json_array_size(messages))
        return seam_api_invalid(e, "messages",
                                "messages must be a list of at "
                                "least one message");
    json_array_foreach(messages, i, m) if (message_check(m, i, e)) return -1;
    return 0;
}

/* ---- Tools --------------------------------------------------------------- */

static bool tool_name_ok(const char *s)
{
    size_t n = s ? strlen(s) : 0;

    return n >= 1 && n <= 128 &&
           strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                     "0123456789_.:-") == n;
}

/* The function of a tool, wrapped or flat. */
static const json_t *tool_function(const json_t *tool)
{
    const json_t *f = json_object_get(tool, "function");

    return json_is_object(f) ? f : tool;
}

static int tool_check(const json_t *tool, const char *field, size_t i,
                      json_t *seen, struct seam_api_error *e)
{
    const json_t *f, *v;
    const char *name, *type;
    char where[96];

    snprintf(where, sizeof where, "%s[%zu]", field, i);
    if (!json_is_object(tool))
        return seam_api_invalid(e, where, "a tool must be an object");
    type = seam_json_text(tool, "type");
    if (type && strcmp(type, "function")) {
        snprintf(where, sizeof where, "%s[%zu].type", field, i);
        return seam_api_fail(e, 400, "unsupported_value", where,
                             "the only type of tool is function");
    }
    v = seam_json_member(tool, "function");
    if (v && !json_is_object(v)) {
        snprintf(where, sizeof where, "%s[%zu].function", field, i);
        return seam_api_invalid(e, where, "function must be an object");
    }
    f = tool_function(tool);
    snprintf(where, sizeof where, "%s[%zu].%sname", field, i,
             f == tool ? "" : "function.");
    name = seam_json_text(f, "name");
    if (!tool_name_ok(name))
        return seam_api_invalid(e, where,
                                "a tool needs a name of 1 to 128 "
                                "characters A-Z a-z 0-9 _ . : -");
    if (json_object_get(seen, name))
        return seam_api_invalid(e, where, "two tools have this name");
    if (json_object_set_new(seen, name, json_true()))
        return seam_api_fail(e, 503, "overloaded", NULL, "no memory");
    v = seam_json_member(f, "parameters");
    if (v && !json_is_object(v)) {
        snprintf(where, sizeof where, "%s[%zu].%sparameters", field, i,
                 f == tool ? "" : "function.");
        return seam_api_invalid(e, where, "parameters must be an object");
    }
    v = seam_json_member(f, "description");
    if (v && !json_is_string(v)) {
        snprintf(where, sizeof where, "%s[%zu].%sdescription", field, i,
                 f == tool ? "" : "function.");
        return seam_api_invalid(e, where, "description must be a string");
    }
    return 0;
}

int seam_tools_check(const json_t *tools, const char *name,
                     struct seam_api_error *e)
{
    json_t *seen = json_object();
    const json_t *tool;
    size_t i;
    int rc = 0;

    if (!json_is_array(tools))
        rc = seam_api_invalid(e, name, "%s must be a list", name);
    else if (!seen)
        rc = seam_api_fail(e, 503, "overloaded", NULL, "no memory");
    else
        json_array_foreach(tools, i, tool)
        {
            rc = tool_check(tool, name, i, seen, e);
            if (rc)
                break;
        }
    json_decref(seen);
    return rc;
}

static bool tool_declared(const json_t *body, const char *name)
{
    static const char *const lists[] = { "tools", "functions" };
    const json_t *tool;
    size_t i;

    for (int l = 0; l < 2; l++)
        json_array_foreach(json_object_get(body, lists[l]), i, tool)
        {
            const char *n = seam_json_text(tool_function(tool), "name");

            if (n && !strcmp(n, name))
                return true;
        }
    return false;
}

int seam_tool_choice_check(const json_t *body, const char *field,
                           const json_t *v, enum seam_tool_choice *out,
                           struct seam_api_error *e)
{
    const char *s = json_string_value(v), *name;

    if (s) {
        if (!strcmp(s, "auto"))
            *out = SEAM_TOOLS_AUTO;
        else if (!strcmp(s, "none"))
            *out = SEAM_TOOLS_NONE;
        else if (!strcmp(s, "required"))
            *out = SEAM_TOOLS_REQUIRED;
        else
            return seam_api_invalid(e, field,
                                    "%s must be none, auto, required "
                                    "or name a function",
                                    field);
        return 0;
    }
    if (!json_is_object(v))
        return seam_api_invalid(e, field, "%s must be a string or an object",
                                field);
    s = seam_json_text(v, "type");
    if (s && !strcmp(s, "allowed_tools")) {
        const json_t *a = json_object_get(v, "allowed_tools");

        s = seam_json_text(json_is_object(a) ? a : v, "mode");
        if (!s || (strcmp(s, "auto") && strcmp(s, "required")))
            return seam_api_invalid(e, field,
                                    "the mode of allowed_tools must "
                                    "be auto or required");
        *out = !strcmp(s, "auto") ? SEAM_TOOLS_AUTO : SEAM_TOOLS_REQUIRED;
        return 0;
    }
    name = seam_json_text(tool_function(v), "name");
    if ((s && strcmp(s, "function")) || !name)
        return seam_api_invalid(e, field, "%s must name a function", field);
    if (!tool_declared(body, name))
        return seam_api_invalid(e, field,
                                "%s names a function that is not "
                                "among the tools",
                                field);
    *out = SEAM_TOOLS_NAMED;
    return 0;
}

/* ---- Prompts of plain completions ---------------------------------------- */

static bool id_ok(const json_t *v, uint32_t vocab)
{
    double d;

    if (json_is_integer(v))
        return json_integer_value(v) >= 0 && json_integer_value(v) < vocab;
    d = json_real_value(v);
    return json_is_real(v) && d == floor(d) && d >= 0 && d < vocab;
}

static int ids_check(const json_t *list, uint32_t vocab,
                     struct seam_api_error *e)
{
    const json_t *v;
    size_t i;

    if (!json_array_size(list))
        return seam_api_invalid(e, "prompt", "a prompt is empty");
    json_array_foreach(list, i, v) if (
        !id_ok(v, vocab)) return seam_api_invalid(e, "prompt",
                                                  "token ids must be integers "
                                                  "from 0 to %u",
                                                  vocab - 1);
    return 0;
}

int seam_prompt_check(const json_t *prompt, uint32_t vocab,
                      struct seam_api_error *e)
{
    const json_t *first = json_array_get(prompt, 0), *v;
    size_t i;

    if (json_is_string(prompt))
        return 0;
    if (!json_is_array(prompt) || !first)
        return seam_api_invalid(e, "prompt",
                                "prompt must be a string or a list "
                                "of strings or token ids");
    if (json_is_number(first))
        return ids_check(prompt, vocab, e);
    if (json_array_size(prompt) > MAX_PROMPTS)
        return seam_api_invalid(e, "prompt", "at most %d prompts", MAX_PROMPTS);
    json_array_foreach(prompt, i, v)
    {
        if (json_is_string(first) ? !json_is_string(v) : !json_is_array(v))
            return seam_api_invalid(e, "prompt",
                                    "all prompts must be strings, "
                                    "or all lists of token ids");
        if (json_is_array(v) && ids_check(v, vocab, e))
            return -1;
    }
    return 0;
}
