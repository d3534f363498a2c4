#include "glm.h"

#include <stdlib.h>

#include "plugin_util.h"

/* What render prints as SPECIAL. */
static const char *const tokens[] = {
    "[gMASK]",       "<sop>",           "<|system|>",      "<|user|>",
    "<|assistant|>", "<|observation|>", "<think>",         "</think>",
    "<tool_call>",   "</tool_call>",    "<tool_response>", "</tool_response>",
    "<arg_key>",     "</arg_key>",      "<arg_value>",     "</arg_value>",
};

struct glm_option {
    const char *text;
    int value;
};

/* Read the string setting key, one of options (ended by NULL), into *value,
 * which holds the default. */
static int glm_option_read(const struct seam_host *h, const char *plugin,
                           const struct seam_cfg *cfg, const char *key,
                           const struct glm_option *options, int *value,
                           struct seam_error *err)
{
    struct seam_str s;
    char list[128] = "";
    int rc = h->cfg(h->ctx, cfg, key, SEAM_CFG_STR, &s);

    if (rc == SEAM_ENOENT)
        return SEAM_OK;
    for (const struct glm_option *o = options; o->text; o++) {
        size_t n = strlen(list);

        snprintf(list + n, sizeof list - n, "%s\"%s\"", n ? ", " : "", o->text);
        if (!rc && text_is(s, o->text)) {
            *value = o->value;
            return SEAM_OK;
        }
    }
    return plug_fail(err, SEAM_EDATA, "%s config: %s is none of %s", plugin,
                     key, list);
}

/* The style that the config forces, or that of the checkpoint's template. */
static int glm_style_choose(struct glm *g, const char *plugin,
                            const struct seam_create *c, struct seam_error *err)
{
    static const struct glm_option styles[] = {
        { "auto", 0 },      { "4.7", GLM_4_7 }, { "5", GLM_5 },
        { "5.1", GLM_5_1 }, { "5.2", GLM_5_2 }, { "5.3", GLM_5_3 },
        { NULL, 0 },
    };
    static const struct glm_option offs[] = {
        { "auto", 0 },
        { "ignore", GLM_OFF_IGNORE },
        { "empty_block", GLM_OFF_EMPTY_BLOCK },
        { NULL, 0 },
    };
    static const char *const off_words[] = {
        [GLM_OFF_IGNORE] = "is ignored",
        [GLM_OFF_CLOSE] = "closes the block, the effort line stays",
        [GLM_OFF_EMPTY_BLOCK] = "closes the block, without an effort line",
    };
    const struct seam_host *h = g->host;
    const char *from = "the config";
    int style = 0, off = 0, rc;
    struct glm_style found;
    struct seam_str text;
    char line[200];

    rc = glm_option_read(h, plugin, c->cfg, "style", styles, &style, err);
    if (!rc)
        rc =
            glm_option_read(h, plugin, c->cfg, "thinking_off", offs, &off, err);
    if (rc)
        return rc;
    if (style)
        g->style = glm_style_of((enum glm_version)style);
    rc = h->file(h->ctx, c->model, "chat_template.jinja", &text);
    if (!rc && glm_style_detect(text, &found)) {
        /* Details of a forced version are its template's, if it has one. */
        if (!style)
            from = "chat_template.jinja";
        if (!style || style == (int)found.version)
            g->style = found;
    } else if (!rc && !style) {
        return plug_fail(err, SEAM_EDATA,
                         "chat_template.jinja: no GLM 4.7 to 5.3 template; set "
                         "\"style\" in the %s config to use one nevertheless",
                         plugin);
    } else if (!style) {
        g->style = glm_style_of(GLM_5_3);
        from = "default, there is no chat_template.jinja";
    }
    if (off)
        g->style.off = (enum glm_off)off;
    snprintf(line, sizeof line,
             "chat style %s (%s): earlier reasoning is %s by default%s%s",
             glm_version_name(g->style.version), from,
             g->style.clears ? "cleared" : "kept",
             g->style.version == GLM_5_3 ? ", thinking off " : "",
             g->style.version == GLM_5_3 ? off_words[g->style.off] : "");
    h->log(h->ctx, SEAM_LOG_INFO, line);
    return SEAM_OK;
}

int glm_create(const struct seam_host *host, const char *name,
               const struct seam_create *c, void **self, struct seam_error *err)
{
    static const struct glm_option unknown[] = { { "drop", 0 },
                                                 { "forward", 1 },
                                                 { NULL, 0 } };
    static const struct glm_option media[] = { { "refuse", 0 },
                                               { "reminder", 1 },
                                               { NULL, 0 } };
    struct glm *g = calloc(1, sizeof *g);
    int forward = 0, reminder = 0, rc = SEAM_OK;
    int32_t strict = 0;

    if (!g)
        return plug_fail(err, SEAM_ENOMEM, "%s: out of memory", name);
    g->host = host;
    rc = glm_style_choose(g, name, c, err);
    if (!rc)
        rc = glm_option_read(host, name, c->cfg, "unknown_tool", unknown,
                             &forward, err);
    if (!rc)
        rc =
            glm_option_read(host, name, c->cfg, "media", media, &reminder, err);
    if (!rc) {
        rc = host->cfg(host->ctx, c->cfg, "strict_history", SEAM_CFG_BOOL,
                       &strict);
        if (rc == SEAM_EINVAL)
            rc = plug_fail(err, SEAM_EDATA,
                           "%s config: strict_history is no boolean", name);
        else
            rc = SEAM_OK;
    }
    for (size_t i = 0; !rc && i < sizeof tokens / sizeof *tokens; i++)
        if (host->token_id(host->ctx, c->model, tokens[i]) < 0)
            rc =
                plug_fail(err, SEAM_ENOENT, "%s: the tokenizer has no token %s",
                          name, tokens[i]);
    if (rc)
        goto out;
    g->forward_unknown = forward;
    g->rules =
        (struct chat_rules){ .host = host,
                             .strict_history = strict,
                             .media_reminder = reminder,
                             .tool_references = g->style.version >= GLM_5_2 };
    g->n_dropped = host->counter(host->ctx, "unknown_calls", "calls");
    g->n_repaired = host->counter(host->ctx, "repaired_calls", "calls");
    *self = g;
    g = NULL;
out:
    free(g);
    return rc;
}

void glm_destroy(void *self)
{
    free(self);
}

void glm_log_dropped(const struct glm *g, struct seam_str name)
{
    char line[200];

    /* Shaped like a name, so fit for a log. */
    snprintf(line, sizeof line,
             "a call of %.*s, which is no tool of the request, is left out",
             (int)(name.n < 128 ? name.n : 128), name.p);
    g->host->log(g->host->ctx, SEAM_LOG_WARN, line);
    glm_count(g->n_dropped);
}
