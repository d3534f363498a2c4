#include "core/server/blocks.h"

#include <stdio.h>
#include <string.h>

#include "core/base/json.h"
#include "core/server/request.h"

bool seam_block_is(const json_t *block, const char *type)
{
    const char *t = json_string_value(json_object_get(block, "type"));

    return t && !strcmp(t, type);
}

static int no_memory(struct seam_api_error *e)
{
    return seam_api_fail(e, 503, "overloaded", NULL, "no memory");
}

static int expected(const char *where, const char *key, const char *what,
                    struct seam_api_error *e)
{
    char path[160];

    snprintf(path, sizeof path, "%s.%s", where, key);
    return seam_api_invalid(e, path, "expected %s", what);
}

static void add(struct seam_buf *b, const json_t *text)
{
    seam_buf_add(b, json_string_value(text), json_string_length(text));
}

/* "NAME: TEXT", if there is one. */
static int add_line(struct seam_buf *b, const json_t *block, const char *key,
                    const char *name, const char *where,
                    struct seam_api_error *e)
{
    const json_t *v = seam_json_member(block, key);

    if (v && !json_is_string(v))
        return expected(where, key, "a string", e);
    if (json_string_length(v)) {
        seam_buf_fmt(b, "%s: ", name);
        add(b, v);
        seam_buf_str(b, "\n");
    }
    return 0;
}

/* Blocks of text, or one string, a line end between them. */
static int add_texts(struct seam_buf *b, const json_t *list, const char *where,
                     const char *key, struct seam_api_error *e)
{
    const json_t *block, *text;
    char path[160];
    size_t i;

    if (json_is_string(list)) {
        add(b, list);
        return 0;
    }
    if (!json_is_array(list))
        return expected(where, key, "a string or a list of text blocks", e);
    json_array_foreach(list, i, block)
    {
        text = json_object_get(block, "text");
        snprintf(path, sizeof path, "%s.%s[%zu]", where, key, i);
        if (!seam_block_is(block, "text"))
            return seam_block_refuse(block, path, e);
        if (!json_is_string(text))
            return expected(path, "text", "a string", e);
        if (i)
            seam_buf_str(b, "\n");
        add(b, text);
    }
    return 0;
}

static int add_source(struct seam_buf *b, const json_t *source,
                      const char *where, struct seam_api_error *e)
{
    const json_t *data = seam_json_member(source, "data");

    if (!json_is_object(source))
        return expected(where, "source", "an object", e);
    if (seam_block_is(source, "content"))
        return add_texts(b, seam_json_member(source, "content"), where,
                         "source.content", e);
    if (!seam_block_is(source, "text")) {
        char path[160];

        snprintf(path, sizeof path, "%s.source.type", where);
        return seam_api_fail(e, 400, "unsupported_value", path,
                             "a document must be given as text or content: "
                             "this server reads no other files");
    }
    if (!json_is_string(data))
        return expected(where, "source.data", "a string", e);
    add(b, data);
    return 0;
}

static int write_document(struct seam_buf *b, const json_t *block,
                          const char *where, struct seam_api_error *e)
{
    seam_buf_str(b, "<document>\n");
    if (add_line(b, block, "title", "Title", where, e) ||
        add_line(b, block, "context", "Context", where, e))
        return -1;
    seam_buf_str(b, "\n");
    if (add_source(b, seam_json_member(block, "source"), where, e))
        return -1;
    seam_buf_str(b, "\n</document>\n");
    return 0;
}

static int write_result(struct seam_buf *b, const json_t *block,
                        const char *where, struct seam_api_error *e)
{
    seam_buf_str(b, "<search_result>\n");
    if (add_line(b, block, "title", "Title", where, e) ||
        add_line(b, block, "source", "Source", where, e))
        return -1;
    seam_buf_str(b, "\n");
    if (add_texts(b, seam_json_member(block, "content"), where, "content", e))
        return -1;
    seam_buf_str(b, "\n</search_result>\n");
    return 0;
}

/* Citations would be members of the answer: none come. */
static void note(const json_t *block, bool document, struct seam_buf *ignored)
{
    static const char *const known[][8] = {
        { "type", "title", "source", "content", "citations", "cache_control",
          NULL },
        { "type", "title", "source", "context", "citations", "cache_control",
          NULL },
    };
    const json_t *citations = seam_json_member(block, "citations");

    seam_ignored_note(ignored, "messages.content", block, known[document]);
    if (json_is_true(json_object_get(citations, "enabled")))
        seam_ignored_add(ignored, "messages.content.citations");
}

int seam_block_text(const json_t *block, const char *where, json_t **part,
                    struct seam_buf *ignored, struct seam_api_error *e)
{
    bool document = seam_block_is(block, "document");
    struct seam_buf b = { 0 };
    const json_t *text = block;
    int rc;

    if (seam_block_is(block, "text")) {
        text = json_object_get(block, "text");
        if (!json_is_string(text))
            return expected(where, "text", "a string", e);
    }
    if (json_is_string(text)) {
        *part = json_pack("{s:s, s:O}", "type", "text", "text", text);
        return *part ? 1 : no_memory(e);
    }
    if (!document && !seam_block_is(block, "search_result"))
        return 0;
    note(block, document, ignored);
    rc = document ? write_document(&b, block, where, e)
                  : write_result(&b, block, where, e);
    if (!rc) {
        *part = b.failed ? NULL
                         : json_pack("{s:s, s:s%}", "type", "text", "text", b.p,
                                     b.n);
        rc = *part ? 1 : no_memory(e);
    }
    seam_buf_release(&b);
    return rc;
}

int seam_block_refuse(const json_t *block, const char *where,
                      struct seam_api_error *e)
{
    /* Of tools that Anthropic's own servers run. */
    static const char *const server[] = {
        "server_tool_use",
        "web_search_tool_result",
        "web_fetch_tool_result",
        "code_execution_tool_result",
        "bash_code_execution_tool_result",
        "text_editor_code_execution_tool_result",
        "tool_search_tool_result",
        "mcp_tool_use",
        "mcp_tool_result",
        "container_upload",
    };

    if (seam_block_is(block, "image") || seam_block_is(block, "document"))
        return seam_api_fail(e, 400, "unsupported_value", where,
                             "this server takes text only, no media");
    for (size_t i = 0; i < sizeof server / sizeof *server; i++)
        if (seam_block_is(block, server[i]))
            return seam_api_fail(e, 400, "unsupported_value", where,
                                 "%s is not supported: this server runs no "
                                 "tools of its own",
                                 server[i]);
    return seam_api_invalid(e, where, "unknown type of content block");
}
