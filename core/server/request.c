#include "core/server/request.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "core/base/num.h"
#include "core/server/messages.h"

/* Memory that parsed JSON may take; a small text can become a large tree. */
#define TREE_BYTES (48u << 20)

/* ---- Text to JSON -------------------------------------------------------- */

/* What jansson allocates for the values in the text, roughly and from above;
 * strings are counted by the text's own length. */
static uint64_t request_tree_bytes(const char *s, size_t n)
{
    uint64_t bytes = n;
    bool in_string = false;

    for (size_t i = 0; i < n; i++) {
        char c = s[i];

        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
            continue;
        }
        switch (c) {
        case '"':
            in_string = true;
            break;
        case '{':
        case '[':
            bytes += 256;
            break;
        case ':':
            bytes += 128;
            break;
        case ',':
            bytes += 64;
            break;
        }
    }
    return bytes;
}

static bool request_is_blank(const char *s, size_t n)
{
    while (n && memchr(" \t\r\n", s[n - 1], 4))
        n--;
    return !n;
}

json_t *seam_request_json(const char *text, size_t n, struct seam_spelling *s,
                          struct seam_api_error *e)
{
    struct seam_error err;
    json_t *v;

    if (request_is_blank(text, n)) {
        seam_api_fail(e, 400, "invalid_json", NULL, "the body is empty");
        return NULL;
    }
    if (request_tree_bytes(text, n) > TREE_BYTES) {
        seam_api_fail(e, 400, "invalid_json", NULL,
                      "the body holds too many values (more than %u MiB once "
                      "parsed)",
                      TREE_BYTES >> 20);
        return NULL;
    }
    v = seam_json_parse(text, n, "body", SEAM_JSON_BIG_INT, &err);
    if (!v) {
        seam_api_fail(e, 400, "invalid_json", NULL,
                      "the body is not valid JSON: %s", err.text);
        return NULL;
    }
    if (!json_is_object(v)) {
        seam_api_fail(e, 400, "invalid_json", NULL,
                      "the body is not a JSON object");
        json_decref(v);
        return NULL;
    }
    if (s && seam_spelling_add(s, v, text, n)) {
        seam_api_fail(e, 503, "overloaded", NULL, "no memory");
        json_decref(v);
        return NULL;
    }
    return v;
}

/* ---- What has no effect -------------------------------------------------- */

/* More of them than this many bytes are summed up: what is listed has to fit
 * into a line of the log, together with the request's id. */
#define IGNORED_MAX  720
#define IGNORED_NAME 72

/* The next name of "a, b, c" from *p on, *n bytes; NULL: no more. */
static const char *ignored_next(const char **p, size_t *n)
{
    const char *name = *p;

    if (!name || !*name)
        return NULL;
    *n = strcspn(name, ",");
    *p = name + *n;
    *p += strspn(*p, ", ");
    return name;
}

static bool ignored_has(const struct seam_buf *ignored, const char *name,
                        size_t n)
{
    const char *p = ignored->p, *have;
    size_t len;

    while ((have = ignored_next(&p, &len)))
        if (len == n && !memcmp(have, name, n))
            return true;
    return false;
}

/* Add a name that may stand in a header, once. */
static void ignored_put(struct seam_buf *ignored, const char *name, size_t n)
{
    static const char others[] = "(others)";

    if (ignored_has(ignored, name, n))
        return;
    if (ignored->n > IGNORED_MAX) {
        name = others;
        n = sizeof others - 1;
        if (ignored_has(ignored, name, n))
            return;
    }
    if (ignored->n)
        seam_buf_str(ignored, ", ");
    seam_buf_add(ignored, name, n);
}

/* "FIELD.key", or key when field is NULL: bytes that are not plain are written
 * as in an address, a long name is cut. */
static void ignored_name(struct seam_buf *ignored, const char *field,
                         const char *key)
{
    char name[IGNORED_NAME + 8];
    size_t n = 0;
    const char *part[3] = { field ? field : "", field ? "." : "", key };

    for (int i = 0; i < 3; i++)
        for (const char *p = part[i]; *p && n <= IGNORED_NAME; p++) {
            bool plain = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') ||
                         (*p >= '0' && *p <= '9') || strchr("_.-", *p);

            n += (size_t)snprintf(name + n, sizeof name - n,
                                  plain ? "%c" : "%%%02X", (unsigned char)*p);
        }
    if (n > IGNORED_NAME) {
        n = IGNORED_NAME - 3;
        memcpy(name + n, "...", 3);
        n += 3;
    }
    if (n)
        ignored_put(ignored, name, n);
    else
        ignored_put(ignored, "(empty)", 7);
}

void seam_ignored_add(struct seam_buf *ignored, const char *field)
{
    ignored_name(ignored, NULL, field);
}

void seam_ignored_join(struct seam_buf *ignored, const struct seam_buf *more,
                       const char *const *but)
{
    const char *p = more->p, *name;
    size_t n;

    while ((name = ignored_next(&p, &n))) {
        const char *const *k = but;

        while (k && *k && (strlen(*k) != n || memcmp(*k, name, n) != 0))
            k++;
        if (!k || !*k)
            ignored_put(ignored, name, n);
    }
}

void seam_ignored_note(struct seam_buf *ignored, const char *field,
                       const json_t *body, const char *const *known)
{
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)body, key, v)
    {
        const char *const *k = known;

        while (*k && strcmp(*k, key))
            k++;
        if (!*k && !json_is_null(v))
            ignored_name(ignored, field, key);
    }
}

void seam_request_ignore(struct seam_request *r, const char *field)
{
    seam_ignored_add(&r->ignored, field);
}

/* ---- Typed reads --------------------------------------------------------- */

static int request_bool(const json_t *v, const char *name, bool *out,
                        struct seam_api_error *e)
{
    if (!json_is_boolean(v))
        return seam_api_invalid(e, name, "%s must be true or false", name);
    *out = json_is_true(v);
    return 0;
}

int seam_request_int(const json_t *v, const char *name, int64_t lo, int64_t hi,
                     int64_t *out, struct seam_api_error *e)
{
    int64_t i;

    if (json_is_integer(v)) {
        i = json_integer_value(v);
    } else if (json_is_real(v) && fabs(json_real_value(v)) < 9e15 &&
               json_real_value(v) == floor(json_real_value(v))) {
        i = (int64_t)json_real_value(v);
    } else {
        return seam_api_invalid(e, name, "%s must be an integer", name);
    }
    if (i < lo || i > hi)
        return seam_api_invalid(e, name, "%s must be between %lld and %lld",
                                name, (long long)lo, (long long)hi);
    *out = i;
    return 0;
}

static int request_num(const json_t *v, const char *name, double lo, double hi,
                       double *out, struct seam_api_error *e)
{
    double d = 0;

    if (!json_is_number(v))
        return seam_api_invalid(e, name, "%s must be a number", name);
    d = json_number_value(v);
    if (!(d >= lo && d <= hi))
        return seam_api_invalid(e, name, "%s must be between %g and %g", name,
                                lo, hi);
    *out = d;
    return 0;
}

/* ---- Fields with rules of their own -------------------------------------- */

struct parse {
    struct seam_request *r;
    const struct seam_request_limits *l;
    struct seam_api_error *e;
};

static int field_model(struct parse *p, const char *name, const json_t *v)
{
    if (!json_is_string(v))
        return seam_api_invalid(p->e, name, "%s must be a string", name);
    p->r->model = json_string_value(v);
    return 0;
}

static int field_max_tokens(struct parse *p, const char *name, const json_t *v)
{
    int64_t n = 0;

    if (seam_request_int(v, name, -1, INT32_MAX, &n, p->e))
        return -1;
    if (n == -1) /* how some clients say "no limit" */
        return 0;
    if (n == 0)
        return seam_api_invalid(p->e, name, "%s must be at least 1", name);
    if (p->r->max_tokens && p->r->max_tokens != n)
        return seam_api_invalid(p->e, name,
                                "max_tokens and "
                                "max_completion_tokens differ");
    p->r->max_tokens = n;
    return 0;
}

static int field_temperature(struct parse *p, const char *name, const json_t *v)
{
    return request_num(v, name, 0, 2, &p->r->temperature, p->e);
}

static int field_top_p(struct parse *p, const char *name, const json_t *v)
{
    return request_num(v, name, 0, 1, &p->r->top_p, p->e);
}

static int field_min_p(struct parse *p, const char *name, const json_t *v)
{
    return request_num(v, name, 0, 1, &p->r->min_p, p->e);
}

static int field_top_k(struct parse *p, const char *name, const json_t *v)
{
    if (seam_request_int(v, name, -1, INT32_MAX, &p->r->top_k, p->e))
        return -1;
    if (p->r->top_k < 0)
        p->r->top_k = 0;
    return 0;
}

static int field_penalty(struct parse *p, const char *name, const json_t *v)
{
    return request_num(v, name, -2, 2,
                       *name == 'p' ? &p->r->presence : &p->r->frequency, p->e);
}

static int field_repetition(struct parse *p, const char *name, const json_t *v)
{
    if (request_num(v, name, 0, 100, &p->r->repetition, p->e))
        return -1;
    if (p->r->repetition <= 0)
        return seam_api_invalid(p->e, name, "%s must be above 0", name);
    return 0;
}

static int field_n(struct parse *p, const char *name, const json_t *v)
{
    int64_t n = 0;

    if (seam_request_int(v, name, 1, p->l->max_n, &n, p->e))
        return -1;
    p->r->n = (uint32_t)n;
    return 0;
}

static int field_seed(struct parse *p, const char *name, const json_t *v)
{
    if (seam_request_int(v, name, INT64_MIN, INT64_MAX, &p->r->seed, p->e))
        return -1;
    p->r->has_seed = true;
    return 0;
}

static int field_min_tokens(struct parse *p, const char *name, const json_t *v)
{
    int64_t n = 0;

    if (seam_request_int(v, name, 0, INT32_MAX, &n, p->e))
        return -1;
    p->r->min_tokens = (uint32_t)n;
    return 0;
}

static int request_stop(struct parse *p, const char *name, const json_t *v)
{
    struct seam_request *r = p->r;
    size_t n = json_string_length(v);

    if (!json_is_string(v))
        return seam_api_invalid(p->e, name,
                                "%s must be a string or a list of "
                                "strings",
                                name);
    if (n < 1 || n > SEAM_MAX_STOP_LEN)
        return seam_api_invalid(p->e, name,
                                "%s: a string must have 1 to %d bytes", name,
                                SEAM_MAX_STOP_LEN);
    r->stop[r->n_stop++] = (struct seam_str){ json_string_value(v), n };
    return 0;
}

static int field_stop(struct parse *p, const char *name, const json_t *v)
{
    uint32_t max = p->l->max_stops ? p->l->max_stops : 4;
    const json_t *item;
    size_t i;

    if (!json_is_array(v))
        return request_stop(p, name, v);
    if (json_array_size(v) > max)
        return seam_api_invalid(p->e, name, "%s may hold at most %u strings",
                                name, max);
    json_array_foreach(v, i, item) if (request_stop(p, name, item)) return -1;
    return 0;
}

static int field_stop_ids(struct parse *p, const char *name, const json_t *v)
{
    struct seam_request *r = p->r;
    size_t n = json_array_size(v), i;
    const json_t *item;

    if (!json_is_array(v) || n > SEAM_MAX_STOP_IDS)
        return seam_api_invalid(p->e, name,
                                "%s must be a list of at most %d "
                                "token ids",
                                name, SEAM_MAX_STOP_IDS);
    r->stop_id = calloc(n ? n : 1, sizeof *r->stop_id);
    if (!r->stop_id)
        return seam_api_fail(p->e, 503, "overloaded", NULL, "no memory");
    json_array_foreach(v, i, item)
    {
        int64_t id = 0;

        if (seam_request_int(item, name, 0, (int64_t)p->l->vocab - 1, &id,
                             p->e))
            return -1;
        r->stop_id[r->n_stop_id++] = (int32_t)id;
    }
    return 0;
}

static int field_logit_bias(struct parse *p, const char *name, const json_t *v)
{
    struct seam_request *r = p->r;
    size_t n = json_object_size(v);
    const char *key;
    json_t *item;

    if (!json_is_object(v) || n > SEAM_MAX_BIAS)
        return seam_api_invalid(p->e, name,
                                "%s must be an object of at most "
                                "%d entries",
                                name, SEAM_MAX_BIAS);
    r->bias = calloc(n ? n : 1, sizeof *r->bias);
    if (!r->bias)
        return seam_api_fail(p->e, 503, "overloaded", NULL, "no memory");
    json_object_foreach((json_t *)v, key, item)
    {
        uint64_t id;
        double add = 0;

        if (!seam_parse_u64(key, strlen(key), &id) || id >= p->l->vocab)
            return seam_api_invalid(p->e, name,
                                    "%s has a key that is not a "
                                    "token id below %u",
                                    name, p->l->vocab);
        if (request_num(item, name, -100, 100, &add, p->e))
            return -1;
        for (uint32_t i = 0; i < r->n_bias; i++) /* "7" and "07" */
            if (r->bias[i].id == (int32_t)id)
                return seam_api_invalid(p->e, name, "%s names a token twice",
                                        name);
        r->bias[r->n_bias++] = (struct seam_bias){ (int32_t)id, (float)add };
    }
    return 0;
}

static int field_logprobs(struct parse *p, const char *name, const json_t *v)
{
    int64_t n = 0;

    if (p->r->kind == SEAM_REQUEST_CHAT)
        return request_bool(v, name, &p->r->logprobs, p->e);
    if (seam_request_int(v, name, 0, SEAM_GEN_MAX_TOP, &n, p->e))
        return -1;
    p->r->logprobs = true;
    p->r->top_logprobs = (uint32_t)n;
    return 0;
}

static int field_top_logprobs(struct parse *p, const char *name,
                              const json_t *v)
{
    int64_t n = 0;

    if (seam_request_int(v, name, 0, SEAM_GEN_MAX_TOP, &n, p->e))
        return -1;
    p->r->top_logprobs = (uint32_t)n;
    return 0;
}

static int field_stream_options(struct parse *p, const char *name,
                                const json_t *v)
{
    static const struct {
        const char *key, *path;
    } known[] = {
        { "include_usage", "stream_options.include_usage" },
        { "continuous_usage_stats", "stream_options.continuous_usage_stats" },
        { "include_obfuscation", "stream_options.include_obfuscation" },
    };
    bool value[3] = { false };

    if (!json_is_object(v))
        return seam_api_invalid(p->e, name, "%s must be an object", name);
    for (int i = 0; i < 3; i++) {
        const json_t *o = json_object_get(v, known[i].key);

        if (o && !json_is_null(o) &&
            request_bool(o, known[i].path, &value[i], p->e))
            return -1;
    }
    seam_ignored_note(
        &p->r->ignored, name, v,
        (const char *const[]){ "include_usage", "continuous_usage_stats",
                               value[2] ? NULL : "include_obfuscation", NULL });
    p->r->include_usage = value[0];
    p->r->continuous_usage = value[0] && value[1];
    return 0;
}

static int field_messages(struct parse *p, const char *name, const json_t *v)
{
    static const char *const known[] = { "role",
                                         "content",
                                         "tool_calls",
                                         "tool_call_id",
                                         "reasoning_content",
                                         "reasoning",
                                         "thinking",
                                         "refusal",
                                         "function_call",
                                         NULL };
    const json_t *m;
    size_t i;

    if (seam_messages_check(v, p->e))
        return -1;
    json_array_foreach(v, i, m)
        seam_ignored_note(&p->r->ignored, name, m, known);
    return 0;
}

static int field_tools(struct parse *p, const char *name, const json_t *v)
{
    if (json_is_array(v) && !json_array_size(v))
        return 0;
    p->r->has_tools = true;
    return seam_tools_check(v, name, p->e);
}

static int field_functions(struct parse *p, const char *name, const json_t *v)
{
    const json_t *f;
    size_t i;

    if (!json_is_array(v))
        return seam_api_invalid(p->e, name, "%s must be a list", name);
    if (!json_array_size(v))
        return 0;
    json_array_foreach(v, i, f) if (!json_is_object(f)) return seam_api_invalid(
        p->e, name, "%s must hold objects", name);
    p->r->has_tools = true;
    return seam_tools_check(v, name, p->e);
}

/* What is in a schema is for the grammar to judge (constraint.c). */
static int field_response_format(struct parse *p, const char *name,
                                 const json_t *v)
{
    const char *type = json_string_value(json_object_get(v, "type"));

    if (!json_is_object(v) || !type)
        return seam_api_invalid(p->e, name, "%s must be an object with a type",
                                name);
    if (!strcmp(type, "text") || !strcmp(type, "json_object"))
        return 0;
    if (strcmp(type, "json_schema"))
        return seam_api_invalid(p->e, "response_format.type",
                                "response_format.type must be text, "
                                "json_object or json_schema");
    if (!json_object_get(json_object_get(v, "json_schema"), "schema"))
        return seam_api_invalid(p->e, "response_format.json_schema.schema",
                                "the schema is missing");
    return 0;
}

/* Its text is for the grammar's compiler to judge. */
static int field_grammar(struct parse *p, const char *name, const json_t *v)
{
    if (!json_is_string(v))
        return seam_api_invalid(p->e, name, "%s must be a string", name);
    return 0;
}

static int field_modalities(struct parse *p, const char *name, const json_t *v)
{
    if (json_array_size(v) == 1 && json_is_string(json_array_get(v, 0)) &&
        !strcmp(json_string_value(json_array_get(v, 0)), "text"))
        return 0;
    return seam_api_fail(p->e, 400, "unsupported_value", name,
                         "the only modality is text");
}

static int field_best_of(struct parse *p, const char *name, const json_t *v)
{
    const json_t *n = json_object_get(p->r->body, "n");
    int64_t best = 0, want = 1;

    if (seam_request_int(v, name, 1, SEAM_MAX_N, &best, p->e) ||
        (n && !json_is_null(n) &&
         seam_request_int(n, "n", 1, p->l->max_n, &want, p->e)))
        return -1;
    if (best != want)
        return seam_api_fail(p->e, 400, "unsupported_parameter", name,
                             "best_of must equal n");
    return 0;
}

static int field_prompt(struct parse *p, const char *name, const json_t *v)
{
    (void)name;
    p->r->prompt = v;
    return seam_prompt_check(v, p->l->vocab, p->e);
}

static int field_effort(struct parse *p, const char *name, const json_t *v)
{
    static const char *const known[] = { "none", "minimal", "low", "medium",
                                         "high", "xhigh",   "max" };
    const char *s = json_string_value(v);

    for (size_t i = 0; s && i < sizeof known / sizeof *known; i++)
        if (!strcmp(s, known[i]))
            return 0;
    return seam_api_invalid(p->e, name,
                            "%s must be one of none, minimal, low, "
                            "medium, high, xhigh, max",
                            name);
}

static int field_reasoning(struct parse *p, const char *name, const json_t *v)
{
    const json_t *o;
    bool b;
    int64_t n = 0;

    if (!json_is_object(v))
        return seam_api_invalid(p->e, name, "%s must be an object", name);
    o = json_object_get(v, "effort");
    if (o && !json_is_null(o) && field_effort(p, "reasoning.effort", o))
        return -1;
    o = json_object_get(v, "enabled");
    if (o && !json_is_null(o) && request_bool(o, "reasoning.enabled", &b, p->e))
        return -1;
    o = json_object_get(v, "max_tokens");
    if (o && !json_is_null(o)) {
        if (seam_request_int(o, "reasoning.max_tokens", 0, INT32_MAX, &n, p->e))
            return -1;
        seam_request_ignore(p->r, "reasoning.max_tokens");
    }
    seam_ignored_note(
        &p->r->ignored, name, v,
        (const char *const[]){ "effort", "enabled", "max_tokens", NULL });
    return 0;
}

static int field_thinking(struct parse *p, const char *name, const json_t *v)
{
    const json_t *o = json_object_get(v, "type");
    const char *type = json_string_value(o);
    int64_t n = 0;
    bool b;

    if (!json_is_object(v))
        return seam_api_invalid(p->e, name, "%s must be an object", name);
    if (o && !json_is_null(o) &&
        (!type || (strcmp(type, "enabled") && strcmp(type, "disabled") &&
                   strcmp(type, "adaptive"))))
        return seam_api_invalid(p->e, "thinking.type",
                                "thinking.type must be "
                                "enabled, disabled or adaptive");
    o = json_object_get(v, "budget_tokens");
    if (o && !json_is_null(o)) {
        if (seam_request_int(o, "thinking.budget_tokens", 0, INT32_MAX, &n,
                             p->e))
            return -1;
        seam_request_ignore(p->r, "thinking.budget_tokens");
    }
    o = json_object_get(v, "clear_thinking");
    if (o && !json_is_null(o) &&
        request_bool(o, "thinking.clear_thinking", &b, p->e))
        return -1;
    seam_ignored_note(&p->r->ignored, name, v,
                      (const char *const[]){ "type", "budget_tokens",
                                             "clear_thinking", NULL });
    return 0;
}

static int field_kwargs(struct parse *p, const char *name, const json_t *v)
{
    static const struct {
        const char *key, *path;
        bool effort;
    } known[] = {
        { "enable_thinking", "chat_template_kwargs.enable_thinking", false },
        { "thinking", "chat_template_kwargs.thinking", false },
        { "clear_thinking", "chat_template_kwargs.clear_thinking", false },
        { "reasoning_effort", "chat_template_kwargs.reasoning_effort", true },
    };
    bool b;

    if (!json_is_object(v))
        return seam_api_invalid(p->e, name, "%s must be an object", name);
    if (json_object_get(v, "chat_template"))
        return seam_api_fail(p->e, 400, "unsupported_parameter",
                             "chat_template_kwargs.chat_template",
                             "a template cannot come with a request");
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const json_t *o = json_object_get(v, known[i].key);

        if (!o || json_is_null(o))
            continue;
        if (known[i].effort ? field_effort(p, known[i].path, o)
                            : request_bool(o, known[i].path, &b, p->e))
            return -1;
    }
    seam_ignored_note(&p->r->ignored, name, v,
                      (const char *const[]){ known[0].key, known[1].key,
                                             known[2].key, known[3].key,
                                             NULL });
    return 0;
}

static int field_function_call(struct parse *p, const char *name,
                               const json_t *v)
{
    return seam_tool_choice_check(p->r->body, name, v, &p->r->tool_choice,
                                  p->e);
}

/* ---- Whose it is, and when ---- */

int seam_request_timeout(double seconds, const char *name, uint64_t *ms,
                         struct seam_api_error *e)
{
    if (!(seconds > 0 && seconds <= 86400))
        return seam_api_invalid(e, name,
                                "%s must be a number of seconds above 0, at "
                                "most 86400",
                                name);
    *ms = seconds < 0.001 ? 1 : (uint64_t)(seconds * 1000);
    return 0;
}

uint64_t seam_request_tenant(const char *name, size_t n)
{
    uint64_t h = 14695981039346656037u; /* FNV-1a */

    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)name[i]) * 1099511628211u;
    return h ? h : 1;
}

static int field_timeout(struct parse *p, const char *name, const json_t *v)
{
    if (!json_is_number(v))
        return seam_api_invalid(p->e, name, "%s must be a number of seconds",
                                name);
    return seam_request_timeout(json_number_value(v), name, &p->r->timeout_ms,
                                p->e);
}

/* As vLLM: a secret that tells prefix caches apart. */
static int field_cache_salt(struct parse *p, const char *name, const json_t *v)
{
    if (!json_is_string(v) || !json_string_length(v) ||
        json_string_length(v) > 1024 ||
        strlen(json_string_value(v)) != json_string_length(v))
        return seam_api_invalid(p->e, name,
                                "%s must be a string of 1 to 1024 bytes", name);
    p->r->cache_salt = json_string_value(v);
    return 0;
}

static int field_priority(struct parse *p, const char *name, const json_t *v)
{
    int64_t n = 0;

    if (seam_request_int(v, name, p->l->priority_min, p->l->priority_max, &n,
                         p->e))
        return -1;
    p->r->priority = (int32_t)n;
    return 0;
}

/* Anything is allowed, only a name has an effect. */
static int field_user(struct parse *p, const char *name, const json_t *v)
{
    if (json_is_string(v))
        p->r->tenant =
            seam_request_tenant(json_string_value(v), json_string_length(v));
    else
        seam_request_ignore(p->r, name);
    return 0;
}

/* ---- The table ----------------------------------------------------------- */

#define CHAT (1u << SEAM_REQUEST_CHAT)
#define COMP (1u << SEAM_REQUEST_COMPLETION)
#define BOTH (CHAT | COMP)

enum rule {
    RULE_OWN = 1,    /* check() decides                                      */
    RULE_BOOL = 2,   /* a bool, stored at `at` when that is not 0            */
    RULE_REFUSE = 3, /* changes results and is not supported                 */
    RULE_FALSE = 4   /* the same, but false asks for nothing                 */
};

struct field {
    const char *name;
    uint32_t kinds;
    enum rule rule;
    int (*check)(struct parse *p, const char *name, const json_t *v);
    size_t at;
};

#define AT(member) offsetof(struct seam_request, member)

/* clang-format off */
static const struct field FIELDS[] = {
    { "model",                 BOTH, RULE_OWN, field_model, 0 },
    { "messages",              CHAT, RULE_OWN, field_messages, 0 },
    { "prompt",                COMP, RULE_OWN, field_prompt, 0 },
    { "stream",                BOTH, RULE_BOOL, NULL, AT(stream) },
    { "stream_options",        BOTH, RULE_OWN, field_stream_options, 0 },
    { "max_tokens",            BOTH, RULE_OWN, field_max_tokens, 0 },
    { "max_completion_tokens", CHAT, RULE_OWN, field_max_tokens, 0 },
    { "min_tokens",            BOTH, RULE_OWN, field_min_tokens, 0 },
    { "temperature",           BOTH, RULE_OWN, field_temperature, 0 },
    { "top_p",                 BOTH, RULE_OWN, field_top_p, 0 },
    { "top_k",                 BOTH, RULE_OWN, field_top_k, 0 },
    { "min_p",                 BOTH, RULE_OWN, field_min_p, 0 },
    { "n",                     BOTH, RULE_OWN, field_n, 0 },
    { "seed",                  BOTH, RULE_OWN, field_seed, 0 },
    { "stop",                  BOTH, RULE_OWN, field_stop, 0 },
    { "stop_token_ids",        BOTH, RULE_OWN, field_stop_ids, 0 },
    { "ignore_eos",            BOTH, RULE_BOOL, NULL, AT(ignore_eos) },
    { "include_stop_str_in_output", BOTH, RULE_BOOL, NULL, AT(include_stop) },
    { "skip_special_tokens",   BOTH, RULE_BOOL, NULL, AT(skip_special) },
    { "presence_penalty",      BOTH, RULE_OWN, field_penalty, 0 },
    { "frequency_penalty",     BOTH, RULE_OWN, field_penalty, 0 },
    { "repetition_penalty",    BOTH, RULE_OWN, field_repetition, 0 },
    { "repeat_penalty",        BOTH, RULE_OWN, field_repetition, 0 },
    { "logit_bias",            BOTH, RULE_OWN, field_logit_bias, 0 },
    { "logprobs",              BOTH, RULE_OWN, field_logprobs, 0 },
    { "top_logprobs",          CHAT, RULE_OWN, field_top_logprobs, 0 },
    { "best_of",               BOTH, RULE_OWN, field_best_of, 0 },
    { "echo",                  COMP, RULE_BOOL, NULL, AT(echo) },
    { "tools",                 CHAT, RULE_OWN, field_tools, 0 },
    { "tool_choice",           CHAT, RULE_OWN, field_function_call, 0 },
    { "functions",             CHAT, RULE_OWN, field_functions, 0 },
    { "function_call",         CHAT, RULE_OWN, field_function_call, 0 },
    { "parallel_tool_calls",   CHAT, RULE_BOOL, NULL, AT(parallel_calls) },
    { "response_format",       BOTH, RULE_OWN, field_response_format, 0 },
    { "grammar",               BOTH, RULE_OWN, field_grammar, 0 },
    { "modalities",            CHAT, RULE_OWN, field_modalities, 0 },
    { "priority",              BOTH, RULE_OWN, field_priority, 0 },
    { "cache_salt",            BOTH, RULE_OWN, field_cache_salt, 0 },
    { "timeout",               BOTH, RULE_OWN, field_timeout, 0 },
    { "user",                  BOTH, RULE_OWN, field_user, 0 },
    { "reasoning_effort",      CHAT, RULE_OWN, field_effort, 0 },
    { "reasoning",             CHAT, RULE_OWN, field_reasoning, 0 },
    { "thinking",              CHAT, RULE_OWN, field_thinking, 0 },
    { "enable_thinking",       CHAT, RULE_BOOL, NULL, 0 },
    { "chat_template_kwargs",  CHAT, RULE_OWN, field_kwargs, 0 },
    { "include_reasoning",     CHAT, RULE_BOOL, NULL, AT(include_reasoning) },
    { "separate_reasoning",    CHAT, RULE_BOOL, NULL, AT(separate_reasoning) },
    { "stream_reasoning",      CHAT, RULE_BOOL, NULL, AT(stream_reasoning) },
    { "add_generation_prompt", CHAT, RULE_BOOL, NULL, 0 },
    { "continue_final_message",CHAT, RULE_BOOL, NULL, 0 },

    { "echo",                  CHAT, RULE_FALSE, NULL, 0 },
    { "return_token_ids",      BOTH, RULE_FALSE, NULL, 0 },
    { "use_beam_search",       BOTH, RULE_FALSE, NULL, 0 },
    { "thinking_token_budget", CHAT, RULE_REFUSE, NULL, 0 },
    { "suffix",                COMP, RULE_REFUSE, NULL, 0 },
    { "audio",                 CHAT, RULE_REFUSE, NULL, 0 },
    { "web_search_options",    CHAT, RULE_REFUSE, NULL, 0 },
    { "chat_template",         BOTH, RULE_REFUSE, NULL, 0 },
    { "prompt_logprobs",       BOTH, RULE_REFUSE, NULL, 0 },
    { "logits_processors",     BOTH, RULE_REFUSE, NULL, 0 },
    { "lora",                  BOTH, RULE_REFUSE, NULL, 0 },
    { "json_schema",           BOTH, RULE_REFUSE, NULL, 0 },
    { "regex",                 BOTH, RULE_REFUSE, NULL, 0 },
    { "ebnf",                  BOTH, RULE_REFUSE, NULL, 0 },
    { "guided_json",           BOTH, RULE_REFUSE, NULL, 0 },
    { "guided_regex",          BOTH, RULE_REFUSE, NULL, 0 },
    { "guided_choice",         BOTH, RULE_REFUSE, NULL, 0 },
    { "guided_grammar",        BOTH, RULE_REFUSE, NULL, 0 },
    { "structured_outputs",    BOTH, RULE_REFUSE, NULL, 0 },
    { "typical_p",             BOTH, RULE_REFUSE, NULL, 0 },
    { "mirostat",              BOTH, RULE_REFUSE, NULL, 0 },
    { "dry_multiplier",        BOTH, RULE_REFUSE, NULL, 0 },
    { "length_penalty",        BOTH, RULE_REFUSE, NULL, 0 },
    { "stop_regex",            BOTH, RULE_REFUSE, NULL, 0 },
    { "bad_words",             BOTH, RULE_REFUSE, NULL, 0 },
    { "allowed_token_ids",     BOTH, RULE_REFUSE, NULL, 0 },
};
/* clang-format on */

static const struct field *request_field(enum seam_request_kind kind,
                                         const char *name)
{
    for (size_t i = 0; i < sizeof FIELDS / sizeof *FIELDS; i++)
        if (FIELDS[i].kinds & 1u << kind && !strcmp(FIELDS[i].name, name))
            return &FIELDS[i];
    return NULL;
}

/* ---- Requests of other APIs ---- */

static bool request_is_in(const char *const *list, const char *name)
{
    while (*list && strcmp(*list, name))
        list++;
    return *list;
}

/* What a field says that asks for nothing but the one answer, without log
 * probabilities, that the other APIs have. */
static bool request_asks_nothing(const char *name, const json_t *v)
{
    if (!strcmp(name, "n") || !strcmp(name, "best_of"))
        return json_is_number(v) && json_number_value(v) == 1;
    if (!strcmp(name, "top_logprobs"))
        return json_is_number(v) && json_number_value(v) == 0;
    return !strcmp(name, "logprobs") && json_is_false(v);
}

int seam_request_carry(const json_t *body, const char *const *known,
                       json_t *chat, struct seam_buf *ignored,
                       struct seam_api_error *e)
{
    static const char *const same[] = { "seed",
                                        "min_p",
                                        "top_k",
                                        "min_tokens",
                                        "presence_penalty",
                                        "frequency_penalty",
                                        "repetition_penalty",
                                        "repeat_penalty",
                                        "logit_bias",
                                        "stop",
                                        "stop_token_ids",
                                        "ignore_eos",
                                        "include_stop_str_in_output",
                                        "skip_special_tokens",
                                        "thinking",
                                        "enable_thinking",
                                        "chat_template_kwargs",
                                        "modalities",
                                        NULL };
    static const char *const needless[] = { "user", "stream_options", NULL };
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)body, key, v)
    {
        const struct field *f = request_field(SEAM_REQUEST_CHAT, key);

        if (json_is_null(v) || request_is_in(known, key))
            continue;
        if (!f || request_is_in(needless, key))
            seam_ignored_add(ignored, key);
        else if (f->rule == RULE_FALSE || f->rule == RULE_REFUSE ||
                 (request_is_in(same, key) && !json_object_get(chat, key)))
            json_object_set(chat, key, v);
        else if (!request_asks_nothing(key, v))
            return seam_api_fail(e, 400, "unsupported_parameter", key,
                                 "%s is not supported on this route", key);
    }
    return 0;
}

/* ---- All of them ---- */

static int request_apply(struct parse *p, const struct field *f,
                         const json_t *v)
{
    bool b = false;

    switch (f->rule) {
    case RULE_OWN:
        return f->check(p, f->name, v);
    case RULE_BOOL:
        if (request_bool(v, f->name, &b, p->e))
            return -1;
        if (f->at)
            memcpy((char *)p->r + f->at, &b, sizeof b);
        return 0;
    case RULE_FALSE:
        if (json_is_false(v))
            return 0;
        break;
    case RULE_REFUSE:
        break;
    }
    return seam_api_fail(p->e, 400, "unsupported_parameter", f->name,
                         "%s is not supported", f->name);
}

/* Rules that join two fields. */
static int request_together(struct parse *p)
{
    struct seam_request *r = p->r;
    const json_t *options = json_object_get(r->body, "stream_options");
    const char *first = r->kind == SEAM_REQUEST_CHAT ? "messages" : "prompt";
    const json_t *v = json_object_get(r->body, first);

    if (!v || json_is_null(v))
        return seam_api_fail(p->e, 400, "missing_required_parameter", first,
                             "%s is missing", first);
    if (options && !json_is_null(options) && !r->stream)
        return seam_api_invalid(p->e, "stream_options",
                                "stream_options needs stream to be true");
    if (r->kind == SEAM_REQUEST_CHAT && r->top_logprobs && !r->logprobs)
        return seam_api_invalid(p->e, "top_logprobs",
                                "top_logprobs needs logprobs to be true");
    if (json_is_true(json_object_get(r->body, "continue_final_message")) &&
        !json_is_false(json_object_get(r->body, "add_generation_prompt")))
        return seam_api_invalid(p->e, "continue_final_message",
                                "continue_final_message needs "
                                "add_generation_prompt to be false");
    if (!r->has_tools && (r->tool_choice == SEAM_TOOLS_REQUIRED ||
                          r->tool_choice == SEAM_TOOLS_NAMED))
        return seam_api_invalid(p->e, "tool_choice",
                                "tool_choice asks for a call but there are no "
                                "tools");
    if (r->kind == SEAM_REQUEST_COMPLETION && !r->max_tokens)
        r->max_tokens = 16;
    return 0;
}

/* The decimal number that f was read from: 0.95, not 0.949999988. */
static double request_decimal(float f)
{
    char text[32];
    double d = f;

    snprintf(text, sizeof text, "%.7g", (double)f);
    seam_parse_f64(text, &d);
    return d;
}

int seam_request_read(struct seam_request *r, enum seam_request_kind kind,
                      json_t *body, const struct seam_request_limits *l,
                      struct seam_api_error *e)
{
    struct parse p = { .r = r, .l = l, .e = e };
    const char *key;
    json_t *v;

    *r = (struct seam_request){
        .kind = kind,
        .body = json_incref(body),
        .n = 1,
        .temperature = request_decimal(l->temperature),
        .top_p = request_decimal(l->top_p),
        .repetition = 1,
        .skip_special = true,
        .tool_choice = SEAM_TOOLS_AUTO,
        .call_prefix = "call_",
        .parallel_calls = true,
        .include_reasoning = true,
        .separate_reasoning = true,
        .stream_reasoning = true,
    };
    json_object_foreach(body, key, v)
    {
        const struct field *f = request_field(kind, key);

        if (!f && !json_is_null(v))
            seam_request_ignore(r, key);
        else if (f && !json_is_null(v) && request_apply(&p, f, v))
            goto fail;
    }
    if (!request_together(&p))
        return 0;
fail:
    seam_request_release(r);
    return -1;
}

int seam_request_parse(struct seam_request *r, enum seam_request_kind kind,
                       const char *text, size_t n,
                       const struct seam_request_limits *l,
                       struct seam_api_error *e)
{
    struct seam_spelling spelling = { 0 };
    json_t *body = seam_request_json(text, n, &spelling, e);
    int rc = -1;

    *r = (struct seam_request){ 0 };
    if (body)
        rc = seam_request_read(r, kind, body, l, e);
    json_decref(body);
    if (rc)
        seam_spelling_release(&spelling);
    else
        r->spelling = spelling;
    return rc;
}

int seam_request_adopt(struct seam_request *r, struct seam_converted *c,
                       const struct seam_request_limits *l,
                       struct seam_api_error *e)
{
    int rc = seam_request_read(r, SEAM_REQUEST_CHAT, c->chat, l, e);

    if (!rc) {
        r->spelling = c->spelling;
        c->spelling = (struct seam_spelling){ 0 };
        seam_ignored_join(&c->ignored, &r->ignored, NULL);
        seam_buf_release(&r->ignored);
        r->ignored = c->ignored;
        c->ignored = (struct seam_buf){ 0 };
    }
    seam_converted_release(c);
    return rc;
}

void seam_converted_release(struct seam_converted *c)
{
    json_decref(c->chat);
    seam_buf_release(&c->ignored);
    seam_spelling_release(&c->spelling);
    *c = (struct seam_converted){ 0 };
}

void seam_request_release(struct seam_request *r)
{
    json_decref(r->body);
    seam_spelling_release(&r->spelling);
    free(r->bias);
    free(r->stop_id);
    seam_buf_release(&r->ignored);
    *r = (struct seam_request){ 0 };
}
