/* POST /tokenize, /detokenize and /apply-template. */
#include <math.h>
#include <stdlib.h>
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

/* Name what has no effect; of a body with messages, fields of a chat that only
 * change how it is answered have none either, but belong there. */
static void tokens_ignored(struct seam_http *h, const struct seam_buf *names,
                           const char *const *known)
{
    struct seam_buf rest = { 0 };

    seam_ignored_join(&rest, names, known);
    seam_answer_ignored(h, &rest);
    seam_buf_release(&rest);
}

/* The prompt that a body with messages renders to, checked as a chat is. */
static int messages_render(struct seam_http *h, struct seam_buf *prompt,
                           struct seam_ids *ids, struct seam_api_error *e)
{
    static const char *const known[] = { "add_special_tokens", "parse_special",
                                         "return_token_strs",  "with_pieces",
                                         "add_special",        NULL };
    struct seam_engine *engine = seam_server_engine(h->s);
    struct seam_request_limits l;
    struct seam_request r;
    struct seam_str text = { h->body.p, h->body.n };
    const char *model;
    char *made = NULL;
    int rc;

    seam_answer_limits(h, &l);
    if (seam_request_parse(&r, SEAM_REQUEST_CHAT, text.p, text.n, &l, e))
        return -1;
    rc = seam_answer_model(h, r.model, &model, e);
    if (!rc && seam_chat_is_mapped(&r)) {
        made = seam_chat_text(&r);
        if (made)
            text = (struct seam_str){ made, strlen(made) };
        else
            rc = seam_api_fail(e, 503, "overloaded", NULL, "no memory");
    }
    if (!rc)
        rc = seam_chat_render(engine, text, seam_chat_count_max(engine), prompt,
                              ids, e);
    if (!rc)
        tokens_ignored(h, &r.ignored, known);
    free(made);
    seam_request_release(&r);
    return rc;
}

/* A body without messages may name a model, too. */
static int tokens_model(struct seam_http *h, const json_t *body,
                        struct seam_api_error *e)
{
    const json_t *v = json_object_get(body, "model");
    const char *model;

    if (v && !json_is_null(v) && !json_is_string(v))
        return seam_api_invalid(e, "model", "model must be a string");
    return seam_answer_model(h, json_string_value(v), &model, e);
}

static int text_ids(struct seam_http *h, const json_t *body,
                    struct seam_ids *ids, struct seam_api_error *e)
{
    const json_t *v = json_object_get(body, "prompt");
    static const char *const known[] = { "prompt",
                                         "content",
                                         "model",
                                         "add_special_tokens",
                                         "parse_special",
                                         "return_token_strs",
                                         "with_pieces",
                                         "add_special",
                                         NULL };
    struct seam_engine *engine = seam_server_engine(h->s);
    const char *name = "prompt";
    struct seam_buf ignored = { 0 };
    struct seam_error err = { 0 };
    uint32_t max = seam_chat_count_max(engine);
    int rc;

    if (!v || json_is_null(v)) {
        v = json_object_get(body, "content");
        name = "content";
    }
    if (!v || json_is_null(v))
        return seam_api_fail(e, 400, "missing_required_parameter", "prompt",
                             "prompt, content or messages is missing");
    if (!json_is_string(v))
        return seam_api_invalid(e, name, "%s must be a string", name);
    rc = tokens_model(h, body, e);
    if (rc)
        return rc;
    rc = seam_tokenizer_encode_max(seam_engine_tokenizer(engine),
                                   json_string_value(v), json_string_length(v),
                                   flag_at(body, "parse_special", true), max,
                                   ids, &err);
    if (rc == SEAM_ENOMEM)
        return seam_api_fail(e, 503, "overloaded", NULL, "no memory");
    if (rc == SEAM_ELONGWORD)
        return seam_chat_long_word(e, name);
    if (rc == SEAM_ETOOLONG)
        return seam_api_invalid(e, name, "%s has more than %u tokens", name,
                                max);
    if (rc)
        return seam_api_invalid(e, name, "%s cannot be tokenised", name);
    seam_ignored_note(&ignored, NULL, body, known);
    seam_answer_ignored(h, &ignored);
    seam_buf_release(&ignored);
    return 0;
}

/* A token's bytes as a JSON string. */
static void add_text(struct seam_buf *out, const struct seam_tokenizer *t,
                     int32_t id, struct seam_buf *text)
{
    seam_buf_clear(text);
    seam_chat_token_text(t, id, text);
    seam_buf_json(out, text->p ? text->p : "", text->n);
}

/* There may be a million: written as text, without a tree of values. */
static void ids_write(struct seam_http *h, const json_t *body,
                      const struct seam_ids *ids, struct seam_buf *out)
{
    struct seam_engine *engine = seam_server_engine(h->s);
    const struct seam_tokenizer *t = seam_engine_tokenizer(engine);
    bool pieces = flag_at(body, "with_pieces", false);
    struct seam_buf text = { 0 };

    seam_buf_fmt(out, "{\"count\":%zu,\"max_model_len\":%u,\"tokens\":[",
                 ids->n, seam_engine_max_context(engine));
    for (size_t i = 0; i < ids->n; i++) {
        seam_buf_fmt(out, "%s%s%d", i ? "," : "", pieces ? "{\"id\":" : "",
                     (int)ids->v[i]);
        if (pieces) {
            seam_buf_str(out, ",\"piece\":");
            add_text(out, t, ids->v[i], &text);
            seam_buf_str(out, "}");
        }
    }
    seam_buf_str(out, "],\"token_strs\":");
    if (flag_at(body, "return_token_strs", false)) {
        for (size_t i = 0; i < ids->n; i++) {
            seam_buf_str(out, i ? "," : "[");
            add_text(out, t, ids->v[i], &text);
        }
        seam_buf_str(out, ids->n ? "]" : "[]");
    } else {
        seam_buf_str(out, "null");
    }
    seam_buf_str(out, "}");
    if (text.failed)
        out->failed = true;
    seam_buf_release(&text);
}

static bool has_messages(const json_t *body)
{
    const json_t *v = json_object_get(body, "messages");

    return v && !json_is_null(v);
}

void seam_api_tokenize(struct seam_http *h)
{
    struct seam_api_error e;
    struct seam_ids ids = { 0 };
    struct seam_buf out = { 0 };
    json_t *body =
        seam_request_json(h->body.p ? h->body.p : "", h->body.n, NULL, &e);
    int rc = body ? flags_check(body, &e) : -1;

    if (!rc)
        rc = has_messages(body) ? messages_render(h, NULL, &ids, &e)
                                : text_ids(h, body, &ids, &e);
    if (!rc) {
        ids_write(h, body, &ids, &out);
        if (out.failed)
            rc = seam_api_fail(&e, 503, "overloaded", NULL, "no memory");
    }
    if (rc)
        seam_http_fail(h, &e);
    else
        seam_http_reply(h, 200, "application/json", out.p, out.n);
    seam_buf_release(&out);
    seam_ids_release(&ids);
    json_decref(body);
}

static int detokenize(struct seam_http *h, const json_t *body,
                      struct seam_buf *text, struct seam_api_error *e)
{
    const struct seam_tokenizer *t =
        seam_engine_tokenizer(seam_server_engine(h->s));
    static const char *const known[] = { "tokens", "model", NULL };
    const json_t *list = json_object_get(body, "tokens"), *v;
    struct seam_buf ignored = { 0 };
    struct seam_detok d = { 0 };
    size_t i;

    if (tokens_model(h, body, e))
        return -1;
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
    seam_ignored_note(&ignored, NULL, body, known);
    seam_answer_ignored(h, &ignored);
    seam_buf_release(&ignored);
    return text->failed ? seam_api_fail(e, 503, "overloaded", NULL, "no memory")
                        : 0;
}

void seam_api_detokenize(struct seam_http *h)
{
    struct seam_api_error e;
    struct seam_buf text = { 0 };
    json_t *body =
        seam_request_json(h->body.p ? h->body.p : "", h->body.n, NULL, &e);

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

    if (messages_render(h, &prompt, NULL, &e))
        seam_http_fail(h, &e);
    else
        seam_http_json(
            h, 200,
            json_pack("{s:o}", "prompt",
                      json_stringn(prompt.p ? prompt.p : "", prompt.n)));
    seam_buf_release(&prompt);
}
