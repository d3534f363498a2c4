/* Requests of any kind, through every renderer: a refusal comes with a message
 * and before the first piece; what is special is one of the known tokens; text
 * is well-formed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/utf8.h"
#include "tests/plugins/parser_host.h"

extern const struct seam_plugin seam_plugin_glm47, seam_plugin_hermes,
    seam_plugin_none;

static const char *const tokens[] = {
    "[gMASK]",       "<sop>",           "<|system|>",      "<|user|>",
    "<|assistant|>", "<|observation|>", "<think>",         "</think>",
    "<tool_call>",   "</tool_call>",    "<tool_response>", "</tool_response>",
    "<arg_key>",     "</arg_key>",      "<arg_value>",     "</arg_value>",
    "<|im_start|>",  "<|im_end|>",
};

static void fail(const char *what, const char *more)
{
    fprintf(stderr, "%s: %s\n", what, more);
    abort();
}

static int event(void *ctx, uint32_t kind, uint32_t index, const char *p,
                 uint64_t n)
{
    bool known = false;

    ++*(uint32_t *)ctx;
    if (index || !n || (kind != SEAM_EV_TEXT && kind != SEAM_EV_SPECIAL))
        fail("strange event", "");
    if (!seam_utf8_valid(p, n))
        fail("ill-formed text", "");
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++)
        known = known || (n == strlen(tokens[i]) && !memcmp(p, tokens[i], n));
    if (kind == SEAM_EV_SPECIAL && !known)
        fail("special text", "");
    return 0;
}

static void quiet_log(void *ctx, uint32_t level, const char *msg)
{
    (void)ctx;
    (void)level;
    (void)msg;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    static const struct phost_setting styles[][4] = {
        { { "style", "4.7" }, { NULL, NULL } },
        { { "style", "5.1" }, { NULL, NULL } },
        { { "style", "5.2" }, { NULL, NULL } },
        { { "style", "5.3" },
          { "media", "reminder" },
          { "thinking_off", "empty_block" },
          { NULL, NULL } },
        { { "style", "5.3" }, { "strict_history", "true" }, { NULL, NULL } },
        { { NULL, NULL } },
        { { NULL, NULL } },
    };
    enum { N = sizeof styles / sizeof *styles };
    static struct phost h[N];
    char *copy;

    for (int i = 0; i < N && !h[i].self; i++) {
        struct seam_error err;

        h[i].settings = styles[i];
        if (phost_start(&h[i],
                        i < 5   ? &seam_plugin_glm47
                        : i < 6 ? &seam_plugin_hermes
                                : &seam_plugin_none,
                        &err))
            fail("create", err.text);
        h[i].host.log = quiet_log;
    }
    copy = malloc(n ? n : 1);
    if (!copy)
        return 0;
    memcpy(copy, p, n);
    for (int i = 0; i < N; i++) {
        uint32_t events = 0;
        struct seam_sink sink = { .ctx = &events, .event = event };
        struct seam_error err = { 0 };
        int rc = h[i].parser->render(h[i].self, (struct seam_str){ copy, n },
                                     &sink, &err);

        if (rc &&
            (rc != SEAM_EDATA || err.code != rc || !err.text[0] || events))
            fail("refusal", err.text);
        if (!rc && !events)
            fail("no prompt", "");
    }
    free(copy);
    return 0;
}
