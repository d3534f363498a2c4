#include "core/server/constraint.h"

#include <string.h>

/* The message of a refusal, with the path that begins it as the parameter. */
static int constraint_refuse(const struct seam_error *err,
                             struct seam_api_error *e)
{
    const char *colon = strchr(err->text, ':');
    char param[96] = "response_format";

    if (err->code == SEAM_ENOMEM)
        return seam_api_fail(e, 500, NULL, NULL, "out of memory");
    if (colon && (size_t)(colon - err->text) < sizeof param &&
        !strncmp(err->text, param, strlen(param))) {
        memcpy(param, err->text, (size_t)(colon - err->text));
        param[colon - err->text] = 0;
    }
    return seam_api_fail(e, 400, "unsupported_value", param, "%s", err->text);
}

int seam_constraint_make(const struct seam_engine *engine,
                         const struct seam_request *r, struct seam_grammar **g,
                         struct seam_api_error *e)
{
    const struct seam_vocab *v = seam_engine_vocabulary(engine);
    const json_t *format = json_object_get(r->body, "response_format");
    const char *type = json_string_value(json_object_get(format, "type"));
    struct seam_error err;
    int rc;

    *g = NULL;
    if (!type || !strcmp(type, "text"))
        return 0;
    if (r->has_tools && r->tool_choice != SEAM_TOOLS_NONE)
        return seam_api_fail(e, 400, "unsupported_value", "response_format",
                             "response_format cannot be combined with tools "
                             "that may be called");
    if (!strcmp(type, "json_object"))
        rc = seam_grammar_object(g, v, NULL, &err);
    else
        rc = seam_grammar_schema(
            g, v,
            json_object_get(json_object_get(format, "json_schema"), "schema"),
            "response_format.json_schema.schema", NULL, &err);
    return rc ? constraint_refuse(&err, e) : 0;
}

int32_t seam_constraint_after(const struct seam_engine *engine,
                              const int32_t *prompt, size_t n)
{
    const struct seam_tokenizer *t = seam_engine_tokenizer(engine);
    int32_t open = seam_tokenizer_id(t, "<think>", 7);
    int32_t close = seam_tokenizer_id(t, "</think>", 8);
    int32_t turn = seam_tokenizer_id(t, "<|assistant|>", 13);

    if (open < 0 || close < 0)
        return -1;
    /* Only the template writes these ids; text of a request never does. */
    while (n--) {
        if (prompt[n] == open)
            return close;
        if (prompt[n] == close || prompt[n] == turn)
            return -1;
    }
    return -1;
}
