#include "core/server/openai_responses.h"

#include <limits.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "core/server/messages.h"
#include "core/server/request.h"

const struct seam_api_name seam_responses_names[] = {
    { "max_completion_tokens", "max_output_tokens", true },
    { "response_format.json_schema", "text.format", true },
    { "response_format", "text.format", true },
    { "messages", "input", false },
    { NULL, NULL, false },
};

/* ---- Sealed reasoning ---------------------------------------------------- */

#define SEALED "reasoning.encrypted_content"
#define SEAL   "seam.1."
#define N_SEAL (sizeof SEAL - 1)

bool seam_responses_wants_sealed(const json_t *body)
{
    const json_t *v;
    size_t i;

    json_array_foreach(seam_json_member(body, "include"), i, v)
    {
        if (json_is_string(v) && !strcmp(json_string_value(v), SEALED))
            return true;
    }
    return false;
}

json_t *seam_responses_seal(const char *text, size_t n)
{
    unsigned char *out;
    json_t *v;
    int len;

    if (n > INT_MAX / 2)
        return NULL;
    out = malloc(N_SEAL + (n + 2) / 3 * 4 + 1);
    if (!out)
        return NULL;
    memcpy(out, SEAL, N_SEAL);
    len = EVP_EncodeBlock(out + N_SEAL, (const unsigned char *)text, (int)n);
    v = json_stringn_nocheck((char *)out, N_SEAL + (size_t)len);
    free(out);
    return v;
}

/* Append what a seal holds; false: there is none, or somebody else's. */
static bool seal_open(struct seam_buf *b, const json_t *sealed)
{
    const char *p = json_string_value(sealed);
    size_t n = json_string_length(sealed), pad = 0;
    unsigned char *out;
    json_t *text = NULL;
    bool ok;
    int len;

    if (n < N_SEAL || n - N_SEAL > INT_MAX || memcmp(p, SEAL, N_SEAL) != 0)
        return false;
    p += N_SEAL;
    n -= N_SEAL;
    while (pad < 2 && pad < n && p[n - 1 - pad] == '=')
        pad++;
    /* Elsewhere the decoder takes it for zeros. */
    if (memchr(p, '=', n - pad))
        return false;
    out = malloc(n / 4 * 3 + 4);
    if (!out) {
        b->failed = true;
        return false;
    }
    len = EVP_DecodeBlock(out, (const unsigned char *)p, (int)n);
    if (len >= (int)pad)
        text = json_stringn((char *)out, (size_t)len - pad); /* UTF-8 only */
    ok = text;
    if (ok)
        seam_buf_add(b, json_string_value(text), json_string_length(text));
    free(out);
    json_decref(text);
    return ok;
}

/* ---- Items --------------------------------------------------------------- */

/* Consecutive reasoning, text and calls of the assistant are one turn; the
 * model would otherwise see several. */
struct turns {
    json_t *messages;
    json_t *open; /* the assistant's turn so far, or NULL; in messages        */
};

static json_t *turn_open(struct turns *t)
{
    if (!t->open) {
        t->open = json_pack("{s:s, s:[]}", "role", "assistant", "content");
        json_array_append_new(t->messages, t->open);
    }
    return t->open;
}

/* Refuse parts here, by the path they have here. */
static int item_parts(const json_t *list, const char *role, const char *where,
                      const char *field, struct seam_api_error *e)
{
    const json_t *part;
    char path[64];
    size_t i;

    json_array_foreach(list, i, part)
    {
        snprintf(path, sizeof path, "%s.%s[%zu]", where, field, i);
        if (seam_part_check(part, role, path, e))
            return -1;
    }
    return 0;
}

static int item_message(struct turns *t, const json_t *item, const char *where,
                        struct seam_api_error *e)
{
    const char *role = seam_json_text(item, "role");
    json_t *content = seam_json_member(item, "content"), *part;
    size_t i;

    if (!role ||
        (content && !json_is_string(content) && !json_is_array(content)))
        return seam_api_invalid(e, where,
                                "a message needs a role, and content "
                                "that is a string or a list of parts");
    if (item_parts(content, role, where, "content", e))
        return -1;
    if (strcmp(role, "assistant")) {
        t->open = NULL;
        json_array_append_new(t->messages, json_pack("{s:s, s:O*}", "role",
                                                     role, "content", content));
        return 0;
    }
    turn_open(t);
    if (json_is_string(content))
        json_array_append_new(
            json_object_get(t->open, "content"),
            json_pack("{s:s, s:O}", "type", "output_text", "text", content));
    else
        json_array_foreach(content, i, part)
            json_array_append(json_object_get(t->open, "content"), part);
    return 0;
}

static int item_call(struct turns *t, const json_t *item, const char *where,
                     struct seam_api_error *e)
{
    const char *name = seam_json_text(item, "name"),
               *id = seam_json_text(item, "call_id");
    json_t *args = seam_json_member(item, "arguments"), *calls;

    if (!name || !id || (args && !json_is_string(args)))
        return seam_api_invalid(e, where,
                                "a function_call needs a call_id, a "
                                "name, and arguments as a string");
    calls = json_object_get(turn_open(t), "tool_calls");
    if (!calls) {
        calls = json_array();
        json_object_set_new(t->open, "tool_calls", calls);
    }
    json_array_append_new(calls, json_pack("{s:s, s:s, s:{s:s, s:O*}}", "id",
                                           id, "type", "function", "function",
                                           "name", name, "arguments", args));
    return 0;
}

static int item_output(struct turns *t, const json_t *item, const char *where,
                       struct seam_api_error *e)
{
    const char *id = seam_json_text(item, "call_id");
    json_t *output = seam_json_member(item, "output");

    if (!id || (!json_is_string(output) && !json_is_array(output)))
        return seam_api_invalid(e, where,
                                "a function_call_output needs a "
                                "call_id, and an output that is a "
                                "string or a list of parts");
    if (item_parts(output, "tool", where, "output", e))
        return -1;
    t->open = NULL;
    json_array_append_new(t->messages,
                          json_pack("{s:s, s:s, s:O}", "role", "tool",
                                    "tool_call_id", id, "content", output));
    return 0;
}

static void add_texts(struct seam_buf *b, const json_t *list)
{
    const json_t *part, *text;
    size_t i;

    json_array_foreach(list, i, part)
    {
        text = json_object_get(part, "text");
        if (json_is_string(text))
            seam_buf_add(b, json_string_value(text), json_string_length(text));
    }
}

static int item_reasoning(struct turns *t, const json_t *item,
                          struct seam_api_error *e)
{
    struct seam_buf text = { 0 };
    json_t *turn = turn_open(t);
    int rc = 0;
    const json_t *before = json_object_get(turn, "reasoning_content");

    if (before)
        seam_buf_add(&text, json_string_value(before),
                     json_string_length(before));
    if (json_array_size(seam_json_member(item, "content")))
        add_texts(&text, seam_json_member(item, "content"));
    else if (!seal_open(&text, seam_json_member(item, "encrypted_content")))
        add_texts(&text, seam_json_member(item, "summary"));
    if (text.failed ||
        json_object_set_new(turn, "reasoning_content",
                            json_stringn(text.p ? text.p : "", text.n)))
        rc = seam_api_fail(e, 503, "overloaded", NULL, "no memory");
    seam_buf_release(&text);
    return rc;
}

static int convert_item(struct turns *t, const json_t *item, size_t i,
                        struct seam_api_error *e)
{
    const char *type = seam_json_text(item, "type");
    char where[32];

    snprintf(where, sizeof where, "input[%zu]", i);
    if (!json_is_object(item))
        return seam_api_invalid(e, where, "an item must be an object");
    if (!type || !strcmp(type, "message"))
        return item_message(t, item, where, e);
    if (!strcmp(type, "function_call"))
        return item_call(t, item, where, e);
    if (!strcmp(type, "function_call_output"))
        return item_output(t, item, where, e);
    if (!strcmp(type, "reasoning"))
        return item_reasoning(t, item, e);
    if (!strcmp(type, "item_reference"))
        return seam_api_fail(e, 400, "unsupported_parameter", where,
                             "an item cannot be referred to: nothing is "
                             "stored here, clients send items whole when "
                             "their store is false");
    return seam_api_fail(e, 400, "unsupported_parameter", where,
                         "this type of item is not supported");
}

static int convert_input(const json_t *v, json_t *messages,
                         struct seam_api_error *e)
{
    struct turns t = { .messages = messages };
    const json_t *item;
    size_t i;

    if (!v)
        return seam_api_fail(e, 400, "missing_required_parameter", "input",
                             "input is missing");
    if (json_is_string(v)) {
        json_array_append_new(
            messages, json_pack("{s:s, s:O}", "role", "user", "content", v));
        return 0;
    }
    if (!json_is_array(v) || !json_array_size(v))
        return seam_api_invalid(e, "input",
                                "input must be a string or a list "
                                "of items");
    json_array_foreach(v, i, item) if (convert_item(&t, item, i, e)) return -1;
    return 0;
}

/* ---- The rest ------------------------------------------------------------ */

static int convert_text(const json_t *text, json_t *chat,
                        struct seam_buf *ignored, struct seam_api_error *e)
{
    json_t *format = seam_json_member(text, "format");
    const char *type = seam_json_text(format, "type");

    if (!json_is_object(text) || (format && !type))
        return seam_api_invalid(e, "text.format",
                                "text.format must be an "
                                "object with a type");
    seam_ignored_note(ignored, "text", text,
                      (const char *const[]){ "format", NULL });
    if (!format)
        return 0;
    if (strcmp(type, "json_schema"))
        return json_object_set(chat, "response_format", format);
    return json_object_set_new(
        chat, "response_format",
        json_pack("{s:s, s:{s:O*, s:O*, s:O*}}", "type", "json_schema",
                  "json_schema", "name", seam_json_member(format, "name"),
                  "schema", seam_json_member(format, "schema"), "strict",
                  seam_json_member(format, "strict")));
}

static int convert_refused(const json_t *body, struct seam_api_error *e)
{
    static const char *const refused[] = { "previous_response_id",
                                           "conversation", "prompt", NULL };
    const json_t *v;

    for (const char *const *r = refused; *r; r++)
        if (seam_json_member(body, *r))
            return seam_api_fail(e, 400, "unsupported_parameter", *r,
                                 "%s is not supported", *r);
    v = seam_json_member(body, "background");
    if (v && !json_is_false(v))
        return seam_api_fail(e, 400, "unsupported_parameter", "background",
                             "background is not supported");
    v = seam_json_member(body, "truncation");
    if (v && (!json_is_string(v) || (strcmp(json_string_value(v), "auto") &&
                                     strcmp(json_string_value(v), "disabled"))))
        return seam_api_invalid(e, "truncation",
                                "truncation must be auto or "
                                "disabled");
    v = seam_json_member(body, "instructions");
    if (v && !json_is_string(v))
        return seam_api_invalid(e, "instructions",
                                "instructions must be a string");
    v = seam_json_member(body, "metadata");
    if (v && !json_is_object(v))
        return seam_api_invalid(e, "metadata", "metadata must be an object");
    return 0;
}

/* What of include is not honoured, and a store that is wanted. */
static void convert_listed(const json_t *body, struct seam_buf *ignored)
{
    const json_t *v;
    size_t i;

    if (seam_json_member(body, "store") &&
        !json_is_false(seam_json_member(body, "store")))
        seam_ignored_add(ignored, "store");
    if (seam_json_member(body, "include") &&
        !json_is_array(seam_json_member(body, "include")))
        seam_ignored_add(ignored, "include");
    json_array_foreach(seam_json_member(body, "include"), i, v)
    {
        if (!json_is_string(v) || strcmp(json_string_value(v), SEALED))
            seam_ignored_add(ignored, "include");
    }
}

static int convert_others(const json_t *body, json_t *chat,
                          struct seam_buf *ignored, struct seam_api_error *e)
{
    static const char *const known[] = { "model",
                                         "input",
                                         "instructions",
                                         "tools",
                                         "tool_choice",
                                         "parallel_tool_calls",
                                         "max_output_tokens",
                                         "temperature",
                                         "top_p",
                                         "reasoning",
                                         "text",
                                         "stream",
                                         "metadata",
                                         "background",
                                         "truncation",
                                         "priority",
                                         "timeout",
                                         "cache_salt",
                                         "user",
                                         "include",
                                         "store",
                                         NULL };

    convert_listed(body, ignored);
    return seam_request_carry(body, known, chat, ignored, e);
}

json_t *seam_responses_chat(const json_t *body, struct seam_buf *ignored,
                            struct seam_api_error *e)
{
    static const char *const same[][2] = {
        { "model", "model" },
        { "stream", "stream" },
        { "temperature", "temperature" },
        { "top_p", "top_p" },
        { "tools", "tools" },
        { "tool_choice", "tool_choice" },
        { "parallel_tool_calls", "parallel_tool_calls" },
        { "reasoning", "reasoning" },
        { "max_output_tokens", "max_completion_tokens" },
        { "priority", "priority" },
        { "timeout", "timeout" },
        { "cache_salt", "cache_salt" },
        { "user", "user" },
    };
    json_t *chat = json_object(), *messages = json_array(), *v;
    int rc;

    json_object_set_new(chat, "messages", messages);
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        if ((v = seam_json_member(body, same[i][0])))
            json_object_set(chat, same[i][1], v);
    rc = convert_refused(body, e);
    if (!rc && (v = seam_json_member(body, "instructions")))
        json_array_append_new(
            messages, json_pack("{s:s, s:O}", "role", "system", "content", v));
    if (!rc)
        rc = convert_input(seam_json_member(body, "input"), messages, e);
    if (!rc && (v = seam_json_member(body, "text")))
        rc = convert_text(v, chat, ignored, e);
    if (!rc)
        rc = convert_others(body, chat, ignored, e);
    if (rc) {
        json_decref(chat);
        return NULL;
    }
    return chat;
}
