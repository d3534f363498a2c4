/* POST /tokenize, /detokenize and /apply-template. */
#include <math.h>
#include <string.h>

#include "core/server/answer.h"
#include "core/server/routes.h"

static bool flag_at(const json_t *body, const char *name, bool preset)
{
    const json_t *v = json_object_get(body, name);

    return json_is_boolean(v) ? json_is_true(v) : preset;
}

static int flags_check(const json_t *body, struct seam_api_error *e)
{
    static const char *const names[] = { "add_special_tokens", "parse_special",
                                         "return_token_strs",  "with_pieces",
                                         "add_special",        NULL };

    for (const char *const *n = names; *n; n++) {
        const json_t *v = json_object_get(body, *n);

        if (v && !json_is_null(v) && !json_is_boolean(v))
            return seam_api_invalid(e, *n, "%s must be true or false", *n);
    }
    return 0;
}

/* The prompt that a body with messages renders to, checked as a chat is. */
static int messages_render(struct seam_http *h, json_t *body,
                           struct seam_buf *prompt, struct seam_ids *ids,
                           struct seam_api_error *e)
{
    struct seam_engine *engine = seam_server_engine(h->s);
    struct seam_request_limits l;
    struct seam_request r;
    struct seam_str text = { h->body.p, h->body.n };
    char *made = NULL;
    int rc;

    seam_answer_limits(h, &l);
    if (seam_request_read(&r, SEAM_REQUEST_CHAT, body, &l, e))
        return -1;
    if (seam_chat_is_mapped(&r)) {
        made = seam_chat_text(&r);
        if (made)
            text = (struct seam_str){ made, strlen(made) };
    }
    rc = seam_chat_render(engine, text, prompt, ids, e);
    free(made);
    seam_request_release(&r);
    return rc;
}

static int text_ids(struct seam_http *h, const json_t *body,
                    struct seam_ids *ids, struct seam_api_error *e)
{
    const json_t *v = json_object_get(body, "prompt");
    const char *name = "prompt";
    struct seam_error err = { 0 };
    int rc;

    if (!v) {
        v = json_object_get(body, "content");
        name = "content";
    }
    if (!v)
        return seam_api_fail(e, 400, "missing_required_parameter", "prompt",
                             "prompt, content or messages is missing");
    if (!json_is_string(v))
        return seam_api_invalid(e, name, "%s must be a string", name);
    rc = seam_tokenizer_encode(seam_engine_tokenizer(seam_server_engine(h->s)),
                               json_string_value(v), json_string_length(v),
                               flag_at(body, "parse_special", true), ids, &err);
    if (rc == SEAM_ENOMEM)
        return seam_api_fail(e, 503, "overloaded", NULL, "no memory");
    return rc ? seam_api_invalid(e, name, "%s cannot be tokenised", name) : 0;
}

static json_t *token_text(const struct seam_tokenizer *t, int32_t id)
{
    struct seam_buf text = { 0 };
    json_t *v;

    seam_chat_token_text(t, id, &text);
    v = json_stringn(text.p ? text.p : "", text.n);
    seam_buf_release(&text);
    return v;
}

static json_t *ids_json(struct seam_http *h, const json_t *body,
                        const struct seam_ids *ids)
{
    struct seam_engine *engine = seam_server_engine(h->s);
    const struct seam_tokenizer *t = seam_engine_tokenizer(engine);
    json_t *tokens = json_array(), *strings = json_null();
    bool pieces = flag_at(body, "with_pieces", false);

    if (flag_at(body, "return_token_strs", false))
        strings = json_array();
    for (size_t i = 0; i < ids->n; i++) {
        json_array_append_new(
            tokens, pieces ? json_pack("{s:i, s:o}", "id", (int)ids->v[i],
                                       "piece", token_text(t, ids->v[i]))
                           : json_integer(ids->v[i]));
        if (json_is_array(strings))
            json_array_append_new(strings, token_text(t, ids->v[i]));
    }
    return json_pack("{s:I, s:I, s:o, s:o}", "count", (json_int_t)ids->n,
                     "max_model_len",
                     (json_int_t)seam_engine_max_context(engine), "tokens",
                     tokens, "token_strs", strings);
}

void seam_api_tokenize(struct seam_http *h)
{
    struct seam_api_error e;
    struct seam_ids ids = { 0 };
    json_t *body = seam_request_json(h->body.p ? h->body.p : "", h->body.n, &e);
    int rc = body ? flags_check(body, &e) : -1;

    if (!rc)
        rc = json_object_get(body, "messages")
                 ? messages_render(h, body, NULL, &ids, &e)
                 : text_ids(h, body, &ids, &e);
    if (rc)
        seam_http_fail(h, &e);
    else
        seam_http_json(h, 200, ids_json(h, body, &ids));
    seam_ids_release(&ids);
    json_decref(body);
}

static int detokenize(struct seam_http *h, const json_t *body,
                      struct seam_buf *text, struct seam_api_error *e)
{
    const struct seam_tokenizer *t =
        seam_engine_tokenizer(seam_server_engine(h->s));
    const json_t *list = json_object_get(body, "tokens"), *v;
    struct seam_detok d = { 0 };
    size_t i;

    if (!json_is_array(list))
        return seam_api_invalid(e, "tokens",
                                "tokens must be a list of token "
                                "ids");
    json_array_foreach(list, i, v)
    {
        double id = json_number_value(v);
        struct seam_str bytes;

        if (!json_is_number(v) || id != floor(id) || id < 0 || id > INT32_MAX ||
            !seam_tokenizer_bytes(t, (int32_t)id, &bytes))
            return seam_api_invalid(e, "tokens",
                                    "tokens holds what is no id "
                                    "of the vocabulary");
        seam_detok_add(&d, bytes.p, bytes.n, text);
    }
    seam_detok_end(&d, text);
    return text->failed ? seam_api_fail(e, 503, "overloaded", NULL, "no memory")
                        : 0;
}

void seam_api_detokenize(struct seam_http *h)
{
    struct seam_api_error e;
    struct seam_buf text = { 0 };
    json_t *body = seam_request_json(h->body.p ? h->body.p : "", h->body.n, &e);

    if (!body || detokenize(h, body, &text, &e)) {
        seam_http_fail(h, &e);
    } else {
        json_t *s = json_stringn(text.p ? text.p : "", text.n);

        seam_http_json(h, 200,
                       json_pack("{s:O, s:o}", "prompt", s, "content", s));
    }
    seam_buf_release(&text);
    json_decref(body);
}

void seam_api_template(struct seam_http *h)
{
    struct seam_api_error e;
    struct seam_buf prompt = { 0 };
    json_t *body = seam_request_json(h->body.p ? h->body.p : "", h->body.n, &e);

    if (!body || messages_render(h, body, &prompt, NULL, &e))
        seam_http_fail(h, &e);
    else
        seam_http_json(
            h, 200,
            json_pack("{s:o}", "prompt",
                      json_stringn(prompt.p ? prompt.p : "", prompt.n)));
    seam_buf_release(&prompt);
    json_decref(body);
}
