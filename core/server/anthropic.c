#include "core/server/anthropic.h"

#include <stdio.h>
#include <string.h>

#include "core/base/json.h"
#include "core/server/blocks.h"
#include "core/server/request.h"

const struct seam_api_name seam_anthropic_names[] = {
    { "stop", "stop_sequences", true },
    { "response_format.json_schema", "output_config.format", true },
    { "response_format", "output_config.format", true },
    { "reasoning_effort", "output_config.effort", true },
    { "messages", "messages", false },
    { "tools", "tools", false },
    { NULL, NULL, false },
};

/* ---- Content ------------------------------------------------------------- */

/* A text block in the chat form, or NULL when v is none. */
static json_t *text_part(const json_t *v)
{
    if (json_is_string(v))
        return json_pack("{s:s, s:O}", "type", "text", "text", v);
    if (seam_block_is(v, "text") && seam_json_text(v, "text"))
        return json_pack("{s:s, s:O}", "type", "text", "text",
                         json_object_get(v, "text"));
    return NULL;
}

/* system: one message of its text blocks.  The billing header that one client
 * puts there changes with every request and would defeat the prefix cache. */
static int convert_system(const json_t *v, json_t *messages,
                          struct seam_api_error *e)
{
    static const char billing[] = "x-anthropic-billing-header";
    json_t *parts, *part;
    const json_t *block;
    size_t i;

    if (json_is_string(v)) {
        json_array_append_new(
            messages, json_pack("{s:s, s:O}", "role", "system", "content", v));
        return 0;
    }
    if (!json_is_array(v))
        return seam_api_invalid(e, "system",
                                "system must be a string or a "
                                "list of text blocks");
    parts = json_array();
    json_array_foreach(v, i, block)
    {
        part = text_part(block);
        if (!part) {
            json_decref(parts);
            return seam_api_invalid(e, "system",
                                    "system may hold text blocks "
                                    "only");
        }
        if (strncmp(seam_json_text(part, "text"), billing, sizeof billing - 1))
            json_array_append_new(parts, part);
        else
            json_decref(part);
    }
    if (json_array_size(parts))
        json_array_append_new(messages, json_pack("{s:s, s:O}", "role",
                                                  "system", "content", parts));
    json_decref(parts);
    return 0;
}

static int convert_result(const json_t *block, const char *where,
                          json_t *messages, struct seam_buf *ignored,
                          struct seam_api_error *e)
{
    const json_t *content = seam_json_member(block, "content"), *item;
    json_t *parts = json_array(), *part;
    char at[96];
    size_t i;

    if (content && !json_is_string(content) && !json_is_array(content)) {
        json_decref(parts);
        return seam_api_invalid(e, where,
                                "the content of a tool_result must be "
                                "a string or a list of blocks");
    }
    if (json_is_string(content) && json_string_length(content))
        json_array_append_new(parts, text_part(content));
    json_array_foreach(content, i, item)
    {
        int rc;

        snprintf(at, sizeof at, "%s.content[%zu]", where, i);
        rc = seam_block_text(item, at, &part, ignored, e);
        if (rc <= 0) {
            json_decref(parts);
            return rc ? rc : seam_block_refuse(item, at, e);
        }
        json_array_append_new(parts, part);
    }
    if (!json_array_size(parts) &&
        json_is_true(seam_json_member(block, "is_error")))
        json_array_append_new(
            parts, json_pack("{s:s, s:s}", "type", "text", "text", "Error"));
    json_array_append_new(
        messages, json_pack("{s:s, s:s, s:o}", "role", "tool", "tool_call_id",
                            seam_json_text(block, "tool_use_id")
                                ? seam_json_text(block, "tool_use_id")
                                : "",
                            "content", parts));
    return 0;
}

/* Results come first: they answer the turn before. */
static int convert_user(const json_t *blocks, size_t index, json_t *messages,
                        struct seam_buf *ignored, struct seam_api_error *e)
{
    json_t *parts = json_array(), *part;
    const json_t *block;
    char where[64];
    size_t i;
    int rc = 0;

    json_array_foreach(blocks, i, block)
    {
        snprintf(where, sizeof where, "messages[%zu].content[%zu]", index, i);
        if (seam_block_is(block, "tool_result")) {
            rc = convert_result(block, where, messages, ignored, e);
        } else {
            rc = seam_block_text(block, where, &part, ignored, e);
            if (!rc)
                rc = seam_block_refuse(block, where, e);
            if (rc > 0)
                rc = json_array_append_new(parts, part);
        }
        if (rc)
            break;
    }
    if (!rc && json_array_size(parts))
        json_array_append_new(messages, json_pack("{s:s, s:O}", "role", "user",
                                                  "content", parts));
    json_decref(parts);
    return rc;
}

static int convert_assistant(const json_t *blocks, size_t index,
                             json_t *messages, struct seam_api_error *e)
{
    struct seam_buf thinking = { 0 };
    json_t *parts = json_array(), *calls = json_array(), *m, *part;
    const json_t *block;
    char where[64];
    bool thought = false;
    size_t i;
    int rc = 0;

    json_array_foreach(blocks, i, block)
    {
        snprintf(where, sizeof where, "messages[%zu].content[%zu]", index, i);
        part = text_part(block);
        if (part) {
            json_array_append_new(parts, part);
        } else if (seam_block_is(block, "thinking")) {
            const json_t *t = json_object_get(block, "thinking");

            thought = true;
            if (json_is_string(t))
                seam_buf_add(&thinking, json_string_value(t),
                             json_string_length(t));
        } else if (seam_block_is(block, "tool_use") &&
                   seam_json_text(block, "name")) {
            const json_t *input = seam_json_member(block, "input");

            json_array_append_new(
                calls,
                json_pack("{s:s, s:s, s:{s:s, s:o}}", "id",
                          seam_json_text(block, "id")
                              ? seam_json_text(block, "id")
                              : "",
                          "type", "function", "function", "name",
                          seam_json_text(block, "name"), "arguments",
                          json_is_object(input) ? json_incref((json_t *)input)
                                                : json_object()));
        } else if (!seam_block_is(block, "redacted_thinking")) {
            rc = seam_block_refuse(block, where, e);
            break;
        }
    }
    if (!rc) {
        m = json_pack("{s:s, s:O}", "role", "assistant", "content", parts);
        if (thought)
            json_object_set_new(
                m, "reasoning_content",
                json_stringn(thinking.p ? thinking.p : "", thinking.n));
        if (json_array_size(calls))
            json_object_set(m, "tool_calls", calls);
        json_array_append_new(messages, m);
    }
    json_decref(parts);
    json_decref(calls);
    seam_buf_release(&thinking);
    return rc;
}

static int convert_messages(const json_t *list, json_t *messages,
                            struct seam_buf *ignored, struct seam_api_error *e)
{
    const json_t *m, *content;
    char where[64];
    size_t i;

    if (!json_is_array(list) || !json_array_size(list))
        return seam_api_invalid(e, "messages",
                                "messages must be a list of at "
                                "least one message");
    json_array_foreach(list, i, m)
    {
        const char *role = seam_json_text(m, "role");
        int rc;

        snprintf(where, sizeof where, "messages[%zu]", i);
        content = seam_json_member(m, "content");
        if (!role || !content ||
            (!json_is_string(content) && !json_is_array(content)))
            return seam_api_invalid(e, where,
                                    "a message needs a role, and a "
                                    "content that is a string or a "
                                    "list of blocks");
        if (!strcmp(role, "system")) {
            if (convert_system(content, messages, e))
                return -1;
            continue;
        }
        if (strcmp(role, "user") && strcmp(role, "assistant"))
            rc = seam_api_invalid(e, where,
                                  "the role must be user, assistant "
                                  "or system");
        else if (json_is_string(content))
            rc = json_array_append_new(
                     messages,
                     json_pack("{s:s, s:O}", "role", role, "content", content))
                     ? seam_api_fail(e, 503, "overloaded", NULL, "no memory")
                     : 0;
        else if (!strcmp(role, "user"))
            rc = convert_user(content, i, messages, ignored, e);
        else
            rc = convert_assistant(content, i, messages, e);
        if (rc)
            return rc;
    }
    return 0;
}

/* When the last turn is the assistant's and has text only, the answer goes on
 * from its end. */
static void convert_prefill(const json_t *messages, json_t *chat)
{
    const json_t *m = json_array_get(messages, json_array_size(messages) - 1);
    const json_t *content = json_object_get(m, "content");
    const char *role = seam_json_text(m, "role");

    if (!role || strcmp(role, "assistant") ||
        json_object_get(m, "tool_calls") ||
        !(json_array_size(content) || json_string_length(content)))
        return;
    json_object_set_new(chat, "continue_final_message", json_true());
    json_object_set_new(chat, "add_generation_prompt", json_false());
}

/* ---- Tools --------------------------------------------------------------- */

static int convert_tools(const json_t *list, json_t *chat,
                         struct seam_buf *ignored, struct seam_api_error *e)
{
    /* The last two ask for what is done in any case. */
    static const char *const known[] = {
        "type",   "name",          "description",           "input_schema",
        "strict", "cache_control", "eager_input_streaming", NULL
    };
    json_t *tools, *f;
    const json_t *t;
    size_t i;

    if (!json_is_array(list))
        return seam_api_invalid(e, "tools", "tools must be a list");
    tools = json_array();
    json_array_foreach(list, i, t)
    {
        const json_t *type = seam_json_member(t, "type"), *v;

        /* Tools that Anthropic's own servers would run. */
        if (type && !seam_block_is(t, "custom") &&
            !seam_block_is(t, "function")) {
            seam_ignored_add(ignored, "tools.type");
            continue;
        }
        f = json_object();
        if ((v = seam_json_member(t, "name")))
            json_object_set(f, "name", (json_t *)v);
        if ((v = seam_json_member(t, "description")))
            json_object_set(f, "description", (json_t *)v);
        if ((v = seam_json_member(t, "input_schema")))
            json_object_set(f, "parameters", (json_t *)v);
        if ((v = seam_json_member(t, "strict")))
            json_object_set(f, "strict", (json_t *)v);
        seam_ignored_note(ignored, "tools", t, known);
        json_array_append_new(
            tools, json_pack("{s:s, s:o}", "type", "function", "function", f));
    }
    if (json_array_size(tools))
        json_object_set(chat, "tools", tools);
    json_decref(tools);
    return 0;
}

static int convert_choice(const json_t *v, json_t *chat,
                          struct seam_api_error *e)
{
    const char *type = seam_json_text(v, "type");

    if (json_is_true(seam_json_member(v, "disable_parallel_tool_use")))
        json_object_set_new(chat, "parallel_tool_calls", json_false());
    if (type && !strcmp(type, "auto"))
        return json_object_set_new(chat, "tool_choice", json_string("auto"));
    if (type && !strcmp(type, "none"))
        return json_object_set_new(chat, "tool_choice", json_string("none"));
    if (type && !strcmp(type, "any"))
        return json_object_set_new(chat, "tool_choice",
                                   json_string("required"));
    if (type && !strcmp(type, "tool") && seam_json_text(v, "name"))
        return json_object_set_new(chat, "tool_choice",
                                   json_pack("{s:s, s:{s:s}}", "type",
                                             "function", "function", "name",
                                             seam_json_text(v, "name")));
    return seam_api_invalid(e, "tool_choice",
                            "tool_choice must have the type "
                            "auto, any, none, or tool with "
                            "a name");
}

/* ---- The rest ------------------------------------------------------------ */

static int convert_output(const json_t *v, json_t *chat,
                          struct seam_buf *ignored, struct seam_api_error *e)
{
    json_t *effort = seam_json_member(v, "effort"),
           *format = seam_json_member(v, "format");

    if (!json_is_object(v))
        return seam_api_invalid(e, "output_config",
                                "output_config must be an "
                                "object");
    seam_ignored_note(ignored, "output_config", v,
                      (const char *const[]){ "effort", "format", NULL });
    if (effort)
        json_object_set(chat, "reasoning_effort", effort);
    if (format)
        json_object_set_new(chat, "response_format",
                            json_pack("{s:s, s:{s:s, s:O*}}", "type",
                                      "json_schema", "json_schema", "name",
                                      "output", "schema",
                                      json_object_get(format, "schema")));
    return 0;
}

static int convert_others(const json_t *body, json_t *chat,
                          struct seam_buf *ignored, struct seam_api_error *e)
{
    static const char *const known[] = {
        "model",          "messages",      "max_tokens",  "system",
        "stop_sequences", "stream",        "temperature", "top_p",
        "top_k",          "tools",         "tool_choice", "thinking",
        "output_config",  "priority",      "timeout",     "cache_salt",
        "output_format",  "cache_control", NULL
    };

    return seam_request_carry(body, known, chat, ignored, e);
}

json_t *seam_anthropic_chat(const json_t *body, bool counting,
                            struct seam_buf *ignored, struct seam_api_error *e)
{
    static const char *const same[][2] = {
        { "model", "model" },           { "max_tokens", "max_tokens" },
        { "stream", "stream" },         { "temperature", "temperature" },
        { "top_p", "top_p" },           { "top_k", "top_k" },
        { "thinking", "thinking" },     { "stop_sequences", "stop" },
        { "priority", "priority" },     { "timeout", "timeout" },
        { "cache_salt", "cache_salt" },
    };
    json_t *chat = json_object(), *messages = json_array(), *v;
    int rc = 0;

    json_object_set_new(chat, "messages", messages);
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        if ((v = seam_json_member(body, same[i][0])))
            json_object_set(chat, same[i][1], v);
    if (!counting && !seam_json_member(body, "max_tokens"))
        rc = seam_api_fail(e, 400, "missing_required_parameter", "max_tokens",
                           "max_tokens is missing");
    if (!rc && (v = seam_json_member(body, "system")))
        rc = convert_system(v, messages, e);
    if (!rc)
        rc = convert_messages(seam_json_member(body, "messages"), messages,
                              ignored, e);
    if (!rc)
        convert_prefill(messages, chat);
    if (!rc && (v = seam_json_member(body, "tools")))
        rc = convert_tools(v, chat, ignored, e);
    if (!rc && (v = seam_json_member(body, "tool_choice")))
        rc = convert_choice(v, chat, e);
    if (!rc && (v = seam_json_member(body, "output_config")))
        rc = convert_output(v, chat, ignored, e);
    /* As it was called before it moved there. */
    if (!rc && (v = seam_json_member(body, "output_format"))) {
        json_t *config = json_pack("{s:O}", "format", v);

        rc = convert_output(config, chat, ignored, e);
        json_decref(config);
    }
    if (!rc)
        rc = convert_others(body, chat, ignored, e);
    if (rc) {
        json_decref(chat);
        return NULL;
    }
    return chat;
}
