/* What a GLM model writes and what it means, for the parser alone and for the
 * server: the tools that the outputs are about, and the vectors. */
#ifndef TESTS_PLUGINS_VECTORS_H
#define TESTS_PLUGINS_VECTORS_H

#include <stdint.h>

#define K(k, v) "<arg_key>" k "</arg_key><arg_value>" v "</arg_value>"
#define TC(x)   "<tool_call>" x "</tool_call>"

static const char spec_tools[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\","
    "\"parameters\":{\"type\":\"object\",\"properties\":{"
    "\"city\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\"}}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"now\"}},"
    "{\"name\":\"write_file\",\"parameters\":{\"properties\":{"
    "\"path\":{\"type\":\"string\"},\"content\":{\"type\":\"string\"}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"set\",\"parameters\":{"
    "\"properties\":{\"i\":{\"type\":\"integer\"},\"f\":{\"type\":\"number\"},"
    "\"b\":{\"type\":\"boolean\"},\"o\":{\"type\":\"object\"},"
    "\"a\":{\"type\":\"array\"},\"s\":{\"type\":\"string\"},"
    "\"ns\":{\"type\":[\"string\",\"null\"]},"
    "\"an\":{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]},"
    "\"ni\":{\"type\":[\"integer\",\"null\"]},\"e\":{\"enum\":[\"7\",8]},"
    "\"any\":{}}}}}]";

enum {
    FORWARD = 1,
    NO_TOOLS = 2,
    CUT = 4,
    ANSWER = 8,
    NONE = 16,
    ONE = 32,
    FORM = 64
};

/* calls: "NAME ARGS" of each call, joined by LF; one that has no end is
 * followed by " ...". */
struct vector {
    const char *id, *text;
    uint32_t how;
    const char *reasoning, *content, *calls, *finish;
};

static const struct vector vectors[] = {
#include "parser_vectors.h"
};

#endif
