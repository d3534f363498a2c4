/* A parser that keeps the contract, and with -DBREAK_NAME=1 one that breaks
 * exactly one rule of it.  All text is the answer, but that <tool_call> begins a
 * call without arguments and </tool_call> ends it. */
#include <seam/plugin.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "breaks.h"

static const char *const tag[2] = { "<tool_call>", "</tool_call>" };

struct stream {
    struct seam_sink out;
    char held[16];
    uint32_t n_held, calls;
    int rc;
    bool open;
    char *all; /* of P6 */
    uint64_t n_all;
    uint64_t sum;
    const void *home; /* of T3 */
};

#if BROKEN(P5)
static uint32_t live; /* streams */
#endif
#if BROKEN(P5_THREADS)
static char said[64]; /* what is being sent                                  */
#endif
#if BROKEN(T3)
static _Thread_local char here; /* its address is another in each thread     */
#endif

static const struct seam_host *host;

static int parser_init(const struct seam_host *h, struct seam_error *err)
{
    (void)err;
    host = h;
    return SEAM_OK;
}

static void no_task(void *arg, uint32_t i, uint32_t worker)
{
    (void)arg;
    (void)i;
    (void)worker;
}

static int parser_create(const struct seam_create *c, void **self,
                         struct seam_error *err)
{
    (void)c;
    *self = malloc(1);
    if (*self)
        return SEAM_OK;
    *err = (struct seam_error){ .code = SEAM_ENOMEM, .text = "out of memory" };
    return SEAM_ENOMEM;
}

static void send(struct stream *s, uint32_t kind, uint32_t index, const char *p,
                 uint64_t n)
{
    if (s->rc && !BROKEN(P4))
        return;
#if BROKEN(P5_THREADS)
    if (n && n <= sizeof said)
        p = memcpy(said, p, n);
#endif
    s->rc = s->out.event(s->out.ctx, kind, index, p, n);
}

static int parser_open(void *self, const struct seam_parse_opts *o,
                       const struct seam_sink *out, void **stream,
                       struct seam_error *err)
{
    struct stream *s = calloc(1, sizeof *s);

    (void)self;
    (void)o;
    if (!s) {
        *err =
            (struct seam_error){ .code = SEAM_ENOMEM, .text = "out of memory" };
        return SEAM_ENOMEM;
    }
#if BROKEN(P5)
    live++;
#endif
    s->out = *out;
    *stream = s;
    return SEAM_OK;
}

/* A whole tag. */
static void turn(struct stream *s, uint32_t which)
{
    uint32_t i = s->calls;

#if BROKEN(P5)
    if (live > 1)
        return;
#endif
    if (which == 0 && !s->open) {
        send(s, SEAM_EV_TOOL_NAME, i, "now", 3);
        s->open = true;
    } else if (which == 1 && s->open) {
        send(s, SEAM_EV_TOOL_ARGS, i, BROKEN(P3) ? "{]" : "{}", 2);
        send(s, SEAM_EV_TOOL_END, i, NULL, 0);
        s->open = false;
        s->calls++;
    }
}

/* Give back what turned out to be no tag: its first byte, then what follows. */
static void settle(struct stream *s, bool end)
{
    while (s->n_held) {
        uint32_t n = s->n_held, taken = 0;
        bool may = false;

        for (uint32_t k = 0; k < 2; k++) {
            if (n >= strlen(tag[k]) && !memcmp(s->held, tag[k], strlen(tag[k])))
                taken = (uint32_t)strlen(tag[k]), turn(s, k);
            may |= n < strlen(tag[k]) && !memcmp(s->held, tag[k], n);
        }
        if (may && !end)
            return;
        if (!taken) {
            taken = 1;
            if (!s->open)
                send(s, SEAM_EV_TEXT, 0, s->held, 1);
        }
        s->n_held -= taken;
        memmove(s->held, s->held + taken, s->n_held);
    }
}

static int parser_feed(void *stream, uint32_t n, const int32_t *token,
                       struct seam_str text)
{
    struct stream *s = stream;

    (void)n;
    (void)token;
    if (BROKEN(T6))
        host->parallel_for(host->ctx, 1, no_task, NULL);
#if BROKEN(T3)
    if (s->home && s->home != &here)
        send(s, SEAM_EV_TEXT, 0, "?", 1);
    s->home = &here;
#endif
    if (BROKEN(P2) && memchr(text.p, '{', text.n))
        return SEAM_EDATA;
    if (BROKEN(P6)) { /* looks at everything again */
        char *all = realloc(s->all, s->n_all + text.n + 1);

        if (!all)
            return SEAM_ENOMEM;
        memcpy(all + s->n_all, text.p, text.n);
        s->all = all;
        s->n_all += text.n;
        for (uint64_t i = 0; i < s->n_all; i++)
            s->sum += (unsigned char)all[i] ^ s->sum << 1;
    }
    for (uint64_t i = 0; i < text.n && !s->rc;) {
        uint64_t k = i;

        /* A run of plain text in one event, so that characters stay whole. */
        while (k < text.n && text.p[k] != '<' && !s->n_held)
            k++;
        if (k > i) {
            if (!s->open)
                send(s, SEAM_EV_TEXT, 0, text.p + i, k - i);
            i = k;
            continue;
        }
        s->held[s->n_held++] = text.p[i++];
        if ((unsigned char)s->held[s->n_held - 1] >= 0x80) {
            /* No tag contains it; put it back and settle what was before. */
            s->n_held--;
            i--;
            settle(s, true);
            if (!s->n_held) {
                for (k = i; k < text.n && (unsigned char)text.p[k] >= 0x80;)
                    k++;
                if (!s->open)
                    send(s, SEAM_EV_TEXT, 0, text.p + i, k - i);
                i = k;
            }
            continue;
        }
        settle(s, false);
    }
    if (BROKEN(P1))
        settle(s, true);
    return BROKEN(P4) ? SEAM_OK : s->rc;
}

static int parser_finish(void *stream, uint32_t end)
{
    struct stream *s = stream;

    (void)end;
    settle(s, true);
    return BROKEN(P4) ? SEAM_OK : s->rc;
}

static void parser_close(void *stream)
{
    struct stream *s = stream;

#if BROKEN(P5)
    live--;
#endif
    free(s->all);
    free(s);
}

/* Bytes of a request, with a special piece in front. */
static int parser_render(void *self, struct seam_str request,
                         const struct seam_sink *out, struct seam_error *err)
{
    static const char mark[] = "[BOS]";
    int rc = 0;

    (void)self;
    if (request.n < 20) {
        *err = (struct seam_error){ .code = SEAM_EDATA, .text = "no messages" };
        return SEAM_EDATA;
    }
    rc = out->event(out->ctx, SEAM_EV_SPECIAL, 0, mark, 5);
    for (uint64_t i = 0; !rc && i < request.n; i++) {
        if (BROKEN(P7) && request.n - i >= 5 && !memcmp(request.p + i, mark, 5))
            rc = out->event(out->ctx, SEAM_EV_SPECIAL, 0, mark, 5);
        if (!rc)
            rc = out->event(out->ctx, SEAM_EV_TEXT, 0, request.p + i, 1);
    }
    return rc;
}

static const struct seam_parser parser_table = {
    .size = sizeof parser_table,
    .render = parser_render,
    .open = parser_open,
    .feed = parser_feed,
    .finish = parser_finish,
    .close = parser_close,
};

const struct seam_plugin seam_plugin_entry = {
    .ident = { SEAM_IDENT(SEAM_KIND_PARSER, struct seam_parser),
               .name = "parser", .version = "1.0.0", .build = __VERSION__ },
    .table = &parser_table,
    .init = parser_init,
    .create = parser_create,
    .destroy = free,
};
