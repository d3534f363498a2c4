/* Model output of any kind, through every parser plugin.
 *
 * Byte 0 chooses tools, flags, end and prompt, byte 1 how the text is cut; the
 * rest is the text, where the control bytes 0x01 to 0x08 and 0x0e to 0x1f stand
 * for tags and words.  Whatever comes: the events are the same however the text
 * is cut, they are in order and whole characters, the arguments of a whole call
 * are valid JSON, and glm47 says what its reference says. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/plugins/parser_host.h"

extern const struct seam_plugin seam_plugin_glm47, seam_plugin_glm47_ref,
    seam_plugin_hermes, seam_plugin_none;

static const char tools[] =
    "[{\"name\":\"now\"},{\"name\":\"nowhere\",\"parameters\":{\"properties\":"
    "{\"x\":{}}}},{\"name\":\"set\",\"parameters\":{\"$defs\":{\"S\":{\"type\":"
    "[\"string\",\"null\"]}},\"properties\":{\"s\":{\"type\":\"string\"},"
    "\"i\":{\"type\":\"integer\"},\"f\":{\"type\":\"number\"},\"b\":{\"type\":"
    "\"boolean\"},\"o\":{\"type\":\"object\"},\"a\":{\"type\":\"array\"},"
    "\"n\":{\"$ref\":\"#/$defs/S\"},\"u\":{\"anyOf\":[{\"type\":\"integer\"},"
    "{\"type\":\"array\"},{\"type\":\"null\"}]},\"e\":{\"enum\":[\"7\",8,"
    "[1,2.0]]}}}}]";

static const char *const words[32] = {
    [1] = "<think>",
    [2] = "</think>",
    [3] = "<tool_call>",
    [4] = "</tool_call>",
    [5] = "<arg_key>",
    [6] = "</arg_key>",
    [7] = "<arg_value>",
    [8] = "</arg_value>",
    [14] = "now",
    [15] = "set",
    [16] = "nowhere",
    [17] = "<arg_key>s</arg_key>",
    [18] = "<arg_key>i</arg_key><arg_value>",
    [19] = "<arg_key>f</arg_key><arg_value>",
    [20] = "<arg_key>b</arg_key><arg_value>",
    [21] = "<arg_key>o</arg_key><arg_value>",
    [22] = "<arg_key>a</arg_key><arg_value>",
    [23] = "<arg_key>n</arg_key><arg_value>",
    [24] = "<arg_key>u</arg_key><arg_value>",
    [25] = "<arg_key>e</arg_key><arg_value>",
    [26] = "{\"name\": \"now\", \"arguments\": ",
    [27] = "</",
    [28] = "<",
    [29] = "True",
    [30] = "null",
    [31] = "\xe6\x9d\xb1",
};

static void quiet_log(void *ctx, uint32_t level, const char *msg)
{
    (void)ctx;
    (void)level;
    (void)msg;
}

/* Made once: creating an instance is not what is tested. */
static struct phost *host(const struct seam_plugin *plugin, bool forward)
{
    static const struct phost_setting settings[] = {
        { "style", "5.3" }, { "unknown_tool", "forward" }, { NULL, NULL }
    };
    static const struct phost_setting defaults[] = { { "style", "5.3" },
                                                     { NULL, NULL } };
    struct phost *h = calloc(1, sizeof *h);
    struct seam_error err;

    h->settings = forward ? settings : defaults;
    if (phost_start(h, plugin, &err)) {
        fprintf(stderr, "%s\n", err.text);
        abort();
    }
    h->host.log = quiet_log;
    return h;
}

static void fail(const char *what, const struct pout *a, const struct pout *b)
{
    fprintf(stderr, "%s\n%.*s\n", what, (int)a->events.n,
            a->events.p ? a->events.p : "");
    if (b)
        fprintf(stderr, "other:\n%.*s\n", (int)b->events.n,
                b->events.p ? b->events.p : "");
    abort();
}

static bool same(const struct ptext *a, const struct ptext *b)
{
    return a->n == b->n && (a->n == 0 || !memcmp(a->p, b->p, a->n));
}

static bool same_results(const struct pout *a, const struct pout *b)
{
    if (a->n_calls != b->n_calls || !same(&a->reasoning, &b->reasoning) ||
        !same(&a->content, &b->content))
        return false;
    for (uint32_t i = 0; i < a->n_calls && i < PMAX_CALLS; i++)
        if (!same(&a->call[i].name, &b->call[i].name) ||
            !same(&a->call[i].args, &b->call[i].args) ||
            a->call[i].n_ends != b->call[i].n_ends)
            return false;
    return true;
}

/* A whole call's arguments are a JSON object, in another reader's opinion too;
 * it refuses numbers and zero bytes that JSON allows. */
static void check_args(const struct pout *o)
{
    for (uint32_t i = 0; i < o->n_calls && i < PMAX_CALLS; i++) {
        const struct ptext *t = &o->call[i].args;
        json_error_t e;
        json_t *v;

        if (!o->call[i].n_ends)
            continue;
        v = json_loadb(t->p, t->n, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL,
                       &e);
        if (!json_is_object(v) &&
            json_error_code(&e) != json_error_numeric_overflow &&
            json_error_code(&e) != json_error_null_byte_in_key)
            fail("arguments are no JSON object", o, NULL);
        json_decref(v);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    static struct phost *h[7];
    static const struct seam_plugin *const plugins[] = { &seam_plugin_glm47,
                                                         &seam_plugin_glm47_ref,
                                                         &seam_plugin_hermes,
                                                         &seam_plugin_none };
    struct ptext text = { 0 };
    struct pout glm = { 0 };
    struct seam_error err;
    size_t cut[64];
    uint32_t seed;
    struct pcase c;
    bool forward;

    if (n < 2 || n > 4096)
        return 0;
    if (!h[0])
        for (int i = 0; i < 7; i++)
            h[i] = host(plugins[i / 2], i % 2);
    forward = p[0] & 1;
    c = (struct pcase){
        .tools = p[0] & 2 ? NULL : tools,
        .tail = p[0] & 4 ? "<|assistant|></think>" : "<|assistant|><think>",
        .flags = (p[0] >> 3 & 3u) | (p[0] & 64 ? SEAM_PARSE_FORM : 0u),
        .end = p[0] & 32 ? SEAM_END_CUT : SEAM_END_STOP,
    };
    seed = p[1] * 2654435761u + 1;
    ptext_str(&text, "");
    for (size_t i = 2; i < n; i++) {
        if (p[i] < 32 && words[p[i]])
            ptext_str(&text, words[p[i]]);
        else
            ptext_add(&text, (const char *)p + i, 1);
    }
    for (int k = 0; k < 4; k++) {
        struct phost *host_k = h[k < 3 ? 2 * k + forward : 6];
        struct pout whole = { 0 }, cuts = { 0 };
        size_t n_cuts = 0, at = 0;

        if (phost_parse(host_k, &c, text.p, text.n, NULL, 0, &whole, &err))
            fail(err.text, &whole, NULL);
        if (whole.n_bad || whole.n_empty || !whole.whole_characters)
            fail("events a client cannot follow", &whole, NULL);
        check_args(&whole);
        while (n_cuts < 64) {
            seed = seed * 1664525 + 1013904223;
            at += p[1] < 64 ? 1 : seed >> 28;
            if (at >= text.n)
                break;
            cut[n_cuts++] = at;
        }
        if (phost_parse(host_k, &c, text.p, text.n, cut, n_cuts, &cuts, &err))
            fail(err.text, &cuts, NULL);
        if (!same(&whole.events, &cuts.events))
            fail("a cut changes the events", &whole, &cuts);
        if (cuts.n_empty || !cuts.whole_characters)
            fail("a cut gives events a client cannot follow", &cuts, NULL);
        pout_release(&cuts);
        if (k == 0)
            glm = whole;
        else if (k == 1 && !same_results(&glm, &whole))
            fail("glm47 and its reference differ", &glm, &whole);
        if (k)
            pout_release(&whole);
    }
    pout_release(&glm);
    ptext_release(&text);
    return 0;
}
