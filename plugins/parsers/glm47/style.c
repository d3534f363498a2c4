#include "style.h"

static const char *const names[] = {
    [GLM_4_7] = "4.7", [GLM_5] = "5",     [GLM_5_1] = "5.1",
    [GLM_5_2] = "5.2", [GLM_5_3] = "5.3",
};

const char *glm_version_name(enum glm_version version)
{
    return names[version];
}

enum glm_version glm_version_by_name(struct seam_str name)
{
    for (enum glm_version v = GLM_4_7; v <= GLM_5_3; v++)
        if (text_is(name, names[v]))
            return v;
    return 0;
}

struct glm_style glm_style_of(enum glm_version version)
{
    return (struct glm_style){ .version = version,
                               .clears = version != GLM_5_3,
                               .off = GLM_OFF_IGNORE };
}

static bool has(struct seam_str s, const char *lit)
{
    return text_find(s, 0, lit) < s.n;
}

/* The text without comments and blanks, so that what is looked for is found
 * however it is laid out. */
static void squeeze(struct tbuf *b, struct seam_str s)
{
    for (size_t i = 0; i < s.n; i++) {
        if (i + 1 < s.n && s.p[i] == '{' && s.p[i + 1] == '#') {
            i = text_find(s, i, "#}") + 1;
            continue;
        }
        if (!text_is_ws(s.p[i]))
            tbuf_add(b, s.p + i, 1);
    }
}

bool glm_style_detect(struct seam_str template, struct glm_style *out)
{
    struct tbuf b = { 0 };
    struct seam_str t;
    bool ours;

    squeeze(&b, template);
    t = tbuf_view(&b);
    /* /nothink: 4.5 and 4.6, which end lines where we do not. */
    ours = has(t, "[gMASK]<sop>") && has(t, "<|assistant|>") &&
           has(t, "<|observation|>") && has(t, "</think>") &&
           has(t, "<arg_key>") && !has(t, "/nothink") && !b.failed;
    if (!ours)
        goto out;
    if (has(t, "ReasoningEffort:"))
        *out = glm_style_of(has(t, "'low'") || has(t, "\"low\"") ? GLM_5_3
                                                                 : GLM_5_2);
    else
        *out = glm_style_of(has(t, "defer_loading") ? GLM_5_1 : GLM_4_7);
    /* The first 5.3 template cleared like its elders: only a clear_thinking
     * that is given and false kept earlier reasoning. */
    if (out->version == GLM_5_3)
        out->clears = has(t, "clear_thinkingisdefinedandnotclear_thinking") ||
                      has(t, "clear_thinking|default(true)");
    if (out->version == GLM_5_3 && has(t, "enable_thinking"))
        out->off = GLM_OFF_CLOSE;
out:
    tbuf_release(&b);
    return ours;
}
