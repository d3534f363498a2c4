#include "parser_host.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/utf8.h"

/* ---- Text ---------------------------------------------------------------- */

void ptext_add(struct ptext *t, const char *p, size_t n)
{
    if (t->n + n + 1 > t->cap) {
        t->cap = (t->n + n + 1) * 2;
        t->p = realloc(t->p, t->cap);
        if (!t->p)
            abort();
    }
    if (n)
        memcpy(t->p + t->n, p, n);
    t->n += n;
    t->p[t->n] = 0;
}

void ptext_str(struct ptext *t, const char *s)
{
    ptext_add(t, s, strlen(s));
}

void ptext_release(struct ptext *t)
{
    free(t->p);
    *t = (struct ptext){ 0 };
}

/* ---- Host ---------------------------------------------------------------- */

static void host_log(void *ctx, uint32_t level, const char *msg)
{
    static const char *const words[] = { "?", "DEBUG ", "INFO ", "WARN ",
                                         "ERROR " };
    struct phost *h = ctx;

    ptext_str(&h->log, words[level < 5 ? level : 0]);
    ptext_str(&h->log, msg);
    ptext_str(&h->log, "\n");
}

static uint64_t *host_counter(void *ctx, const char *name, const char *unit)
{
    struct phost *h = ctx;

    (void)name;
    (void)unit;
    return &h->counter[h->n_counters++ % 8];
}

static int host_cfg(void *ctx, const struct seam_cfg *node, const char *path,
                    uint32_t type, void *out)
{
    struct phost *h = ctx;
    const struct phost_setting *s = h->settings;

    (void)node;
    for (; s && s->key; s++) {
        bool truth = !strcmp(s->value, "true");
        bool boolean = truth || !strcmp(s->value, "false");

        if (strcmp(s->key, path))
            continue;
        if (type == SEAM_CFG_BOOL && boolean) {
            *(int32_t *)out = truth;
            return SEAM_OK;
        }
        if (type == SEAM_CFG_STR && !boolean) {
            *(struct seam_str *)out =
                (struct seam_str){ s->value, strlen(s->value) };
            return SEAM_OK;
        }
        return SEAM_EINVAL;
    }
    return SEAM_ENOENT;
}

static int host_file(void *ctx, const struct seam_model *m, const char *name,
                     struct seam_str *out)
{
    struct phost *h = ctx;

    (void)m;
    if (strcmp(name, "chat_template.jinja") || !h->template_text)
        return SEAM_ENOENT;
    *out = (struct seam_str){ h->template_text, h->template_n };
    return SEAM_OK;
}

static int32_t host_token_id(void *ctx, const struct seam_model *m,
                             const char *piece)
{
    struct phost *h = ctx;

    (void)m;
    if (h->missing_token && !strcmp(h->missing_token, piece))
        return SEAM_ENOENT;
    return 7;
}

static const void *host_extension(void *ctx, const char *id)
{
    (void)ctx;
    (void)id;
    return NULL;
}

int phost_start(struct phost *h, const struct seam_plugin *plugin,
                struct seam_error *err)
{
    struct seam_limits limits = { .size = sizeof limits };
    struct seam_device device = { .size = sizeof device, .ordinal = -1 };
    struct seam_create create = { .size = sizeof create,
                                  .limits = &limits,
                                  .device = &device };
    int rc;

    h->host = (struct seam_host){ .size = sizeof h->host,
                                  .abi_major = SEAM_ABI_MAJOR,
                                  .abi_minor = SEAM_ABI_MINOR,
                                  .n_workers = 1,
                                  .ctx = h,
                                  .log = host_log,
                                  .counter = host_counter,
                                  .cfg = host_cfg,
                                  .file = host_file,
                                  .token_id = host_token_id,
                                  .extension = host_extension };
    h->plugin = plugin;
    h->parser = plugin->table;
    rc = plugin->init(&h->host, err);
    return rc ? rc : plugin->create(&create, &h->self, err);
}

int phost_load(struct phost *h, const char *dir, const char *name,
               struct seam_error *err)
{
    const struct seam_plugin *plugin;
    char path[512];

    snprintf(path, sizeof path, "%s/%s.so", dir, name);
    h->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!h->library)
        return seam_fail(err, SEAM_ENOENT, "%s", dlerror());
    plugin = dlsym(h->library, "seam_plugin_entry");
    if (!plugin)
        return seam_fail(err, SEAM_ENOENT, "%s: no seam_plugin_entry", path);
    return phost_start(h, plugin, err);
}

void phost_unload(struct phost *h)
{
    if (h->self)
        h->plugin->destroy(h->self);
    if (h->plugin && h->plugin->fini)
        h->plugin->fini();
    if (h->library)
        dlclose(h->library);
    ptext_release(&h->log);
    *h = (struct phost){ 0 };
}

/* ---- Rendering ----------------------------------------------------------- */

struct render_ctx {
    struct ptext *out;
    bool marked;
    bool bad; /* an event that render must not send */
};

static int render_event(void *ctx, uint32_t kind, uint32_t index, const char *p,
                        uint64_t n)
{
    struct render_ctx *r = ctx;
    bool special = kind == SEAM_EV_SPECIAL;

    if ((kind != SEAM_EV_TEXT && !special) || index || !n)
        r->bad = true;
    if (special && r->marked)
        ptext_str(r->out, "\x01");
    ptext_add(r->out, p, n);
    if (special && r->marked)
        ptext_str(r->out, "\x02");
    return 0;
}

static int render(struct phost *h, const char *request, size_t n, bool marked,
                  struct ptext *out, struct seam_error *err)
{
    struct render_ctx ctx = { .out = out, .marked = marked };
    struct seam_sink sink = { .ctx = &ctx, .event = render_event };
    int rc =
        h->parser->render(h->self, (struct seam_str){ request, n }, &sink, err);

    if (!rc && ctx.bad)
        rc = seam_fail(err, SEAM_ESTATE, "render sent a strange event");
    return rc;
}

int phost_render(struct phost *h, const char *request, size_t n,
                 struct ptext *out, struct seam_error *err)
{
    return render(h, request, n, false, out, err);
}

int phost_render_marked(struct phost *h, const char *request, size_t n,
                        struct ptext *out, struct seam_error *err)
{
    return render(h, request, n, true, out, err);
}

/* ---- Parsing ------------------------------------------------------------- */

static int parse_event(void *ctx, uint32_t kind, uint32_t index, const char *p,
                       uint64_t n)
{
    static const char letters[] = "?TRNAE";
    struct pout *o = ctx;
    struct pcall *c = index < PMAX_CALLS ? &o->call[index] : NULL;

    o->n_events++;
    if (o->stop_after && o->n_events == o->stop_after)
        return 1234;
    if (!n && kind != SEAM_EV_TOOL_END)
        o->n_empty++;
    if (n && !seam_utf8_valid(p, n))
        o->whole_characters = false;
    if (kind != o->last_kind || index != o->last_index ||
        kind == SEAM_EV_TOOL_NAME || kind == SEAM_EV_TOOL_END) {
        char head[16];

        snprintf(head, sizeof head, "%s%c%u:", o->events.n ? "\x1e" : "",
                 kind < 6 ? letters[kind] : '?', (unsigned)index);
        ptext_str(&o->events, head);
    }
    o->last_kind = kind;
    o->last_index = index;
    ptext_add(&o->events, p, n);
    switch (kind) {
    case SEAM_EV_TEXT:
        ptext_add(&o->content, p, n);
        return 0;
    case SEAM_EV_REASONING:
        ptext_add(&o->reasoning, p, n);
        return 0;
    case SEAM_EV_TOOL_NAME:
        if (index != o->n_calls)
            o->n_bad++;
        o->n_calls = index + 1;
        if (c && c->n_names++ == 0)
            ptext_add(&c->name, p, n);
        else if (c)
            o->n_bad++;
        return 0;
    case SEAM_EV_TOOL_ARGS:
        if (index + 1 != o->n_calls || (c && c->n_ends))
            o->n_bad++;
        if (c)
            ptext_add(&c->args, p, n);
        return 0;
    case SEAM_EV_TOOL_END:
        if (index + 1 != o->n_calls || n || (c && c->n_ends++))
            o->n_bad++;
        return 0;
    default:
        o->n_bad++;
        return 0;
    }
}

struct seam_sink phost_sink(struct pout *o)
{
    o->whole_characters = true;
    return (struct seam_sink){ .ctx = o, .event = parse_event };
}

static int count_event(void *ctx, uint32_t kind, uint32_t index, const char *p,
                       uint64_t n)
{
    (void)kind;
    (void)index;
    (void)p;
    *(uint64_t *)ctx += n;
    return 0;
}

struct seam_sink phost_counter(uint64_t *bytes)
{
    return (struct seam_sink){ .ctx = bytes, .event = count_event };
}

void pout_release(struct pout *o)
{
    ptext_release(&o->reasoning);
    ptext_release(&o->content);
    ptext_release(&o->events);
    for (uint32_t i = 0; i < PMAX_CALLS; i++) {
        ptext_release(&o->call[i].name);
        ptext_release(&o->call[i].args);
    }
    *o = (struct pout){ 0 };
}

static struct seam_str str(const char *s)
{
    return (struct seam_str){ s ? s : "", s ? strlen(s) : 0 };
}

/* A piece in memory of its own, so that a sanitizer sees reads beyond it. */
static int feed(struct phost *h, void *stream, const char *p, size_t n)
{
    char *copy = malloc(n ? n : 1);
    int rc;

    if (!copy)
        abort();
    if (n)
        memcpy(copy, p, n);
    rc = h->parser->feed(stream, 0, NULL, (struct seam_str){ copy, n });
    free(copy);
    return rc;
}

int phost_parse(struct phost *h, const struct pcase *c, const char *text,
                size_t n, const size_t *cut, size_t n_cuts, struct pout *out,
                struct seam_error *err)
{
    struct seam_parse_opts opts = { .size = sizeof opts,
                                    .flags = c->flags,
                                    .tools = str(c->tools),
                                    .prompt_tail = str(c->tail) };
    struct seam_sink sink = phost_sink(out);
    void *stream = NULL;
    size_t from = 0;
    int rc = h->parser->open(h->self, &opts, &sink, &stream, err);

    if (rc)
        return rc;
    for (size_t i = 0; i < n_cuts && !rc; i++) {
        rc = feed(h, stream, text + from, cut[i] - from);
        from = cut[i];
    }
    if (!rc)
        rc = feed(h, stream, text + from, n - from);
    if (!rc)
        rc = h->parser->finish(stream, c->end);
    h->parser->close(stream);
    return rc;
}

int phost_parse_steps(struct phost *h, const struct pcase *c, const char *text,
                      size_t n, size_t step, struct pout *out,
                      struct seam_error *err)
{
    size_t *cut = malloc((n / step + 1) * sizeof *cut), k = 0;
    int rc;

    if (!cut)
        abort();
    for (size_t at = step; at < n; at += step)
        cut[k++] = at;
    rc = phost_parse(h, c, text, n, cut, k, out, err);
    free(cut);
    return rc;
}
