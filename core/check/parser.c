/* Group parser: cuts, damage, order of events, sinks that refuse, prompts. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/buf.h"
#include "core/base/utf8.h"
#include "core/check/suite.h"

/* ---- What models write --------------------------------------------------- */

static const char *const samples[] = {
    "",
    "Plain text, nothing else.",
    "Zwölf Boxkämpfer \xe6\x9d\xb1\xe4\xba\xac \xf0\x9f\x98\x80 end",
    "thinking aloud</think>The answer.",
    "<think>first this</think>then that <b and <x</y> <",
    "</think>if a < b && c > d: <tool_ca</tool_call>",
    "</think>One moment.\n<tool_call>get_weather<arg_key>city</arg_key>"
    "<arg_value>\xe6\x9d\xb1\xe4\xba\xac</arg_value><arg_key>days</arg_key>"
    "<arg_value>3</arg_value></tool_call>\n<tool_call>now</tool_call>",
    "</think><tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Rome"
    "\n</arg_value>\n</tool_call> and more",
    "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": "
    "\"R\\u00f6m\", \"days\": 2}}\n</tool_call>",
    "a<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>b<tool_call>"
    "{\"name\": \"now\", \"arguments\": {}}</tool_call>c",
    "</think><tool_call>get_weather<arg_key>city</arg_key><arg_value>Par",
    "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Pa",
    "<tool_call><tool_call></think><think></tool_call><arg_key></arg_value>",
    "<tool_call>{]</tool_call><tool_call>\"\\",
};
enum { SAMPLES = sizeof samples / sizeof *samples };

static const char tools[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", "
    "\"parameters\": {\"type\": \"object\", \"properties\": {\"city\": "
    "{\"type\": \"string\"}, \"days\": {\"type\": \"integer\"}}}}}, "
    "{\"type\": \"function\", \"function\": {\"name\": \"now\"}}]";

static const char *const tails[] = { "", "<think>", "</think>" };

/* ---- One generation ------------------------------------------------------ */

struct events {
    struct seam_buf text; /* "K<index>:bytes" per run of equal kind           */
    uint32_t kind, index, n;
    uint32_t refuse; /* the event of this number is refused; 0: none          */
    uint32_t after;  /* events that came after that                           */
    uint32_t calls;  /* highest index plus one                                */
    bool open, ended;
    struct seam_buf args; /* of the open call                                 */
    const char *broken;   /* the first rule of order that was broken          */
};

enum { REFUSAL = 4711 };

static void events_release(struct events *e)
{
    seam_buf_release(&e->text);
    seam_buf_release(&e->args);
    *e = (struct events){ 0 };
}

/* Never ends the test by itself: the plugin is on the stack. */
static int event(void *ctx, uint32_t kind, uint32_t index, const char *p,
                 uint64_t n)
{
    static const char letter[] = "?TRNAE";
    struct events *e = ctx;
    char head[16];

    ck_turn(); /* the bytes stay as they are until we return                 */
    if (e->refuse && e->n >= e->refuse) {
        e->after++;
        return REFUSAL;
    }
    if (++e->n == e->refuse)
        return REFUSAL;
    if (kind < SEAM_EV_TEXT || kind > SEAM_EV_TOOL_END) {
        e->broken = "an event of a kind that feed does not send";
        return 0;
    }
    if (n && !seam_utf8_valid(p, n))
        e->broken = "an event that is not whole characters";
    if (kind != e->kind || index != e->index || kind == SEAM_EV_TOOL_NAME ||
        kind == SEAM_EV_TOOL_END) {
        snprintf(head, sizeof head, "\x1e%c%u:", letter[kind], index);
        seam_buf_add(&e->text, head, strlen(head));
    }
    e->kind = kind;
    e->index = index;
    seam_buf_add(&e->text, p, n);
    switch (kind) {
    case SEAM_EV_TOOL_NAME:
        if (index != e->calls || !n)
            e->broken = "a call without a name, or numbered out of turn";
        e->calls = index + 1;
        e->open = true;
        e->args.n = 0;
        break;
    case SEAM_EV_TOOL_ARGS:
        if (!e->open || index + 1 != e->calls)
            e->broken = "arguments of a call that is not open";
        seam_buf_add(&e->args, p, n);
        break;
    case SEAM_EV_TOOL_END: {
        json_t *v = json_loadb(e->args.p ? e->args.p : "", e->args.n,
                               JSON_DECODE_ANY, NULL);

        if (!e->open || index + 1 != e->calls)
            e->broken = "the end of a call that is not open";
        else if (!json_is_object(v))
            e->broken = "the end of a call whose arguments are no JSON object";
        e->open = false;
        json_decref(v);
        break;
    }
    default:
        break;
    }
    return 0;
}

struct reader {
    struct th *h;
    const struct seam_plugin *p;
    const struct seam_parser *t;
    void *self;
};

static void reader_open(const struct ck_subject *s, struct reader *r)
{
    struct world w = { .seed = 1 };
    struct ck_made m;

    ck_made_init(&m, ck_world(s, &w), CK_PLUGIN);
    ck_require("E5", !ck_made_create(&m), "create: %s", m.err.text);
    *r = (struct reader){ m.h, m.p, m.p->table, m.self };
}

static struct seam_str str(const char *s)
{
    return (struct seam_str){ s, strlen(s) };
}

static void *stream_open(const struct reader *r, bool with_tools,
                         const char *tail, const struct seam_sink *sink)
{
    struct seam_parse_opts o = {
        .size = sizeof o,
        .tools = str(with_tools ? tools : ""),
        .prompt_tail = str(tail),
    };
    struct seam_error err = { 0 };
    void *stream = NULL;
    int rc = r->t->open(r->self, &o, sink, &stream, &err);

    ck_require("E5", !rc, "open: code %d: %s", rc, err.text);
    return stream;
}

/* In memory of its own, so that reads beyond it are seen. */
static int feed(const struct reader *r, void *stream, const char *p, size_t n)
{
    char *copy = malloc(n ? n : 1);
    int rc;

    ck_own(copy, "out of memory");
    memcpy(copy, p, n);
    th_enter_request(r->h);
    rc = r->t->feed(stream, 0, NULL, (struct seam_str){ copy, n });
    th_leave_request(r->h, "feed");
    free(copy);
    return rc;
}

static int finish(const struct reader *r, void *stream)
{
    int rc;

    th_enter_request(r->h);
    rc = r->t->finish(stream, SEAM_END_STOP);
    th_leave_request(r->h, "finish");
    return rc;
}

static void stream_close(const struct reader *r, void *stream)
{
    th_enter_request(r->h);
    r->t->close(stream);
    th_leave_request(r->h, "close");
}

/* The next character boundary after at. */
static size_t next(const char *p, size_t n, size_t at)
{
    do
        at++;
    while (at < n && ((unsigned char)p[at] & 0xc0) == 0x80);
    return at < n ? at : n;
}

/* All of p[0, n): in two pieces that meet at `cut`, or with cut 0 in pieces of
 * `step` characters. */
static int parse(const struct reader *r, bool with_tools, const char *tail,
                 const char *p, size_t n, size_t cut, uint32_t step,
                 struct events *e)
{
    struct seam_sink sink = { e, event };
    void *stream = stream_open(r, with_tools, tail, &sink);
    int rc = 0;

    for (size_t from = 0, to; !rc && from < n; from = to) {
        to = cut && from < cut ? cut : n;
        if (!cut) {
            to = from;
            for (uint32_t k = 0; k < step && to < n; k++)
                to = next(p, n, to);
        }
        rc = feed(r, stream, p + from, to - from);
    }
    if (!rc)
        rc = finish(r, stream);
    stream_close(r, stream);
    return rc;
}

static void sane(int rc, const struct events *e, const char *what)
{
    ck_require("P2", !rc, "feed or finish gave code %d on model output: %s", rc,
               what);
    ck_require("P3", !e->broken, "%s, in: %s", e->broken, what);
}

static bool same(const struct events *a, const struct events *b)
{
    return a->text.n == b->text.n &&
           (!a->text.n || !memcmp(a->text.p, b->text.p, a->text.n));
}

/* ---- The tests ----------------------------------------------------------- */

void ck_parser_cuts(const struct ck_subject *s)
{
    struct reader r;

    reader_open(s, &r);
    for (uint32_t i = 0; i < SAMPLES * 6; i++) {
        const char *p = samples[i / 6], *tail = tails[i % 3];
        bool with = i / 3 % 2;
        size_t n = strlen(p);
        struct events whole = { 0 };

        sane(parse(&r, with, tail, p, n, n, 0, &whole), &whole, p);
        for (uint32_t step = 1; step <= 3; step++) {
            struct events e = { 0 };

            sane(parse(&r, with, tail, p, n, 0, step, &e), &e, p);
            ck_require("P1", same(&e, &whole),
                       "other events in pieces of %u characters: %s", step, p);
            events_release(&e);
        }
        for (size_t cut = next(p, n, 0); cut < n; cut = next(p, n, cut)) {
            struct events e = { 0 };

            sane(parse(&r, with, tail, p, n, cut, 0, &e), &e, p);
            ck_require("P1", same(&e, &whole),
                       "other events when cut at %zu: %s", cut, p);
            events_release(&e);
        }
        events_release(&whole);
    }
}

/* Pieces of everything in any order, and characters at random. */
void ck_parser_random(const struct ck_subject *s)
{
    static const char *const piece[] = {
        "<tool_call>",
        "</tool_call>",
        "<arg_key>",
        "</arg_key>",
        "<arg_value>",
        "</arg_value>",
        "<think>",
        "</think>",
        "get_weather",
        "now",
        "city",
        "{\"name\": \"now\"",
        "\"arguments\":",
        "{",
        "}",
        "\"",
        "\\",
        "\n",
        " ",
        "<",
        "\xc3\xa9",
        "\xf0\x9f\x98\x80",
        "[",
        "null",
        "<|user|>",
        "<|endoftext|>",
        "1e9",
        ",",
    };
    struct th_rng g = { s->seed };
    struct reader r;

    reader_open(s, &r);
    for (uint32_t i = 0; i < 600; i++) {
        struct seam_buf b = { 0 };
        struct events whole = { 0 }, e = { 0 };
        uint32_t n = th_below(&g, 30);

        for (uint32_t k = 0; k < n; k++) {
            const char *p = piece[th_below(&g, sizeof piece / sizeof *piece)];
            char c = (char)(1 + th_below(&g, 126));

            if (i % 4 == 3)
                seam_buf_add(&b, &c, 1);
            else
                seam_buf_add(&b, p, strlen(p));
        }
        seam_buf_add(&b, "", 1); /* for the messages */
        sane(parse(&r, i % 2, tails[i % 3], b.p, b.n - 1, b.n - 1, 0, &whole),
             &whole, b.p);
        sane(parse(&r, i % 2, tails[i % 3], b.p, b.n - 1, 0, 1 + i % 3, &e), &e,
             b.p);
        ck_require("P1", same(&e, &whole), "other events in pieces of %u: %s",
                   1 + i % 3, b.p);
        events_release(&whole);
        events_release(&e);
        seam_buf_release(&b);
    }
}

void ck_parser_sink(const struct ck_subject *s)
{
    struct reader r;

    reader_open(s, &r);
    for (uint32_t i = 0; i < SAMPLES * 2; i++) {
        const char *p = samples[i / 2];
        size_t n = strlen(p);
        struct events all = { 0 };

        parse(&r, i % 2, "", p, n, n, 0, &all);
        for (uint32_t k = 1; k <= all.n; k++) {
            struct events e = { .refuse = k };
            int rc = parse(&r, i % 2, "", p, n, n, 0, &e);

            ck_require("P4", rc == REFUSAL,
                       "the sink refused event %u and feed or finish gave %d",
                       k, rc);
            ck_require("P4", !e.after,
                       "%u events after the one that was refused", e.after);
            events_release(&e);
        }
        events_release(&all);
    }
}

/* Two generations at once, piece by piece. */
void ck_parser_streams(const struct ck_subject *s)
{
    struct reader r;

    reader_open(s, &r);
    for (uint32_t i = 0; i + 1 < SAMPLES; i++) {
        const char *p[2] = { samples[i], samples[i + 1] };
        size_t n[2] = { strlen(p[0]), strlen(p[1]) }, at[2] = { 0, 0 };
        struct events alone[2] = { { .n = 0 } }, e[2] = { { .n = 0 } };
        struct seam_sink sink[2] = { { &e[0], event }, { &e[1], event } };
        void *stream[2];

        for (uint32_t k = 0; k < 2; k++) {
            parse(&r, true, "", p[k], n[k], n[k], 0, &alone[k]);
            stream[k] = stream_open(&r, true, "", &sink[k]);
        }
        while (at[0] < n[0] || at[1] < n[1])
            for (uint32_t k = 0; k < 2; k++) {
                size_t to = next(p[k], n[k], at[k]);

                if (at[k] < n[k])
                    feed(&r, stream[k], p[k] + at[k], to - at[k]);
                at[k] = to;
            }
        for (uint32_t k = 0; k < 2; k++) {
            finish(&r, stream[k]);
            stream_close(&r, stream[k]);
            ck_require("P5", same(&e[k], &alone[k]),
                       "other events beside another stream: %s", p[k]);
            events_release(&e[k]);
            events_release(&alone[k]);
        }
    }
}

/* Processor time of 8 and of 64 times the same text, a character at a time: a
 * parser that looks back over all it has seen needs 64 times as long, not 8. */
void ck_parser_linear(const struct ck_subject *s)
{
    struct reader r;

    reader_open(s, &r);
    for (uint32_t i = 0; i < SAMPLES; i++) {
        const char *tail = "<tool_call>get_weather<arg_key>city</arg_key>"
                           "<arg_value>";
        double time[2] = { 1e9, 1e9 };

        for (uint32_t turn = 0; turn < 6; turn++) {
            uint32_t times = turn % 2 ? 64 : 8;
            struct events e = { 0 };
            struct seam_buf b = { 0 };
            struct timespec t0, t1;
            double took;

            /* The first two: a value and a reasoning without end. */
            if (i == 0)
                seam_buf_add(&b, tail, strlen(tail));
            for (uint32_t k = 0; k < times; k++)
                for (uint32_t j = 0; j < 8; j++)
                    if (i < 2)
                        seam_buf_add(&b, "and so on and so on ", 20);
                    else
                        seam_buf_add(&b, samples[i], strlen(samples[i]));
            clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t0);
            parse(&r, true, "", b.p ? b.p : "", b.n, 0, 1, &e);
            clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t1);
            took = (double)(t1.tv_sec - t0.tv_sec) +
                   (double)(t1.tv_nsec - t0.tv_nsec) / 1e9;
            if (took < time[turn % 2])
                time[turn % 2] = took;
            events_release(&e);
            seam_buf_release(&b);
        }
        ck_require("P6", time[1] < 0.05 || time[1] < 30 * time[0],
                   "8 times the text takes %.0f times as long (%.3f s): %s",
                   time[1] / time[0], time[1], samples[i]);
    }
}

/* ---- Prompts ------------------------------------------------------------- */

struct prompt {
    struct seam_buf special; /* each piece, ended by a NUL                    */
    struct seam_buf text;
    const char *broken;
};

static int piece_event(void *ctx, uint32_t kind, uint32_t index, const char *p,
                       uint64_t n)
{
    struct prompt *q = ctx;

    (void)index;
    ck_turn();
    if (kind == SEAM_EV_SPECIAL) {
        seam_buf_add(&q->special, p, n);
        seam_buf_add(&q->special, "", 1);
    } else if (kind == SEAM_EV_TEXT) {
        seam_buf_add(&q->text, p, n);
    } else {
        q->broken = "render sent an event that is neither TEXT nor SPECIAL";
    }
    return 0;
}

static void prompt_release(struct prompt *q)
{
    seam_buf_release(&q->special);
    seam_buf_release(&q->text);
}

/* A conversation in which a user, a system prompt, an assistant and a tool all
 * say `say`. */
static void render(const struct reader *r, const char *say, bool calls,
                   struct prompt *q)
{
    struct seam_sink sink = { q, piece_event };
    struct seam_error err = { 0 };
    json_t *v = json_pack("{s:[{s:s,s:s},{s:s,s:s},{s:s,s:s},{s:s,s:s}]}",
                          "messages", "role", "system", "content", say, "role",
                          "user", "content", say, "role", "assistant",
                          "content", say, "role", "user", "content", say);
    char *text;
    int rc;

    if (calls)
        json_object_set_new(v, "tools", json_loads(tools, 0, NULL));
    text = json_dumps(v, 0);
    ck_own(text, "out of memory");
    th_enter_request(r->h);
    rc = r->t->render(r->self, str(text), &sink, &err);
    th_leave_request(r->h, "render");
    ck_require("E5", !rc, "render: code %d: %s", rc, err.text);
    ck_require("P7", !q->broken, "%s", q->broken);
    free(text);
    json_decref(v);
}

void ck_parser_render(const struct ck_subject *s)
{
    static const char *const bad[] = {
        "", "{", "[]", "{\"messages\": 3}", "{\"messages\": [1]}", "\xff"
    };
    struct reader r;

    reader_open(s, &r);
    if (!r.t->render)
        ck_skip("the plugin has no render");
    for (uint32_t calls = 0; calls < 2; calls++) {
        struct prompt plain = { { 0 }, { 0 }, NULL };

        render(&r, "hello", calls, &plain);
        /* Each special piece in what people say, whole and with its rest. */
        for (size_t at = 0; at < plain.special.n;
             at += strlen(plain.special.p + at) + 1) {
            const char *piece = plain.special.p + at;
            struct prompt q = { { 0 }, { 0 }, NULL };
            char say[256];

            snprintf(say, sizeof say, "a %s b%s", piece, piece);
            render(&r, say, calls, &q);
            ck_require("P7",
                       q.special.n == plain.special.n &&
                           !memcmp(q.special.p, plain.special.p, q.special.n),
                       "what a user wrote became special: %s", piece);
            prompt_release(&q);
        }
        prompt_release(&plain);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct prompt q = { { 0 }, { 0 }, NULL };
        struct seam_sink sink = { &q, piece_event };
        struct seam_error err = { 0 };
        int rc = r.t->render(r.self, str(bad[i]), &sink, &err);

        ck_require("E5", rc < 0 && err.code == rc && err.text[0],
                   "render of %s gave %d with the text \"%s\"",
                   *bad[i] ? bad[i] : "nothing", rc, err.text);
        prompt_release(&q);
    }
}

/* ---- Threads ------------------------------------------------------------- */

enum { STREAMS = 4 };

/* Generations on threads of their own, and in between a prompt on each. */
struct chorus {
    const struct reader *r;
    uint32_t first; /* sample of the first                                   */
    struct events alone[STREAMS], e[STREAMS];
    struct prompt prompt_alone[STREAMS], prompt[STREAMS];
    int rc[STREAMS];
};

static void chorus_one(const struct chorus *c, uint32_t i, struct events *e,
                       struct prompt *q, int *rc)
{
    const char *p = samples[(c->first + i) % SAMPLES];

    ck_meet();
    *rc = parse(c->r, true, tails[i % 3], p, strlen(p), 0, 1 + i % 3, e);
    ck_meet();
    if (c->r->t->render)
        render(c->r, p, i % 2, q);
}

static void chorus_sing(void *arg, uint32_t i)
{
    struct chorus *c = arg;

    chorus_one(c, i, &c->e[i], &c->prompt[i], &c->rc[i]);
}

static bool same_prompt(const struct prompt *a, const struct prompt *b)
{
    return a->text.n == b->text.n && a->special.n == b->special.n &&
           (!a->text.n || !memcmp(a->text.p, b->text.p, a->text.n)) &&
           (!a->special.n || !memcmp(a->special.p, b->special.p, a->special.n));
}

void ck_parser_threads(const struct ck_subject *s)
{
    struct reader r;

    reader_open(s, &r);
    for (uint32_t round = 0; round < 4 * SAMPLES; round++) {
        bool free_pace = round / SAMPLES % 2;
        struct chorus c = { .r = &r, .first = round % SAMPLES };
        int rc;

        for (uint32_t i = 0; i < STREAMS; i++) {
            chorus_one(&c, i, &c.alone[i], &c.prompt_alone[i], &rc);
            sane(rc, &c.alone[i], samples[(c.first + i) % SAMPLES]);
        }
        ck_together(STREAMS, free_pace ? CK_FREE : CK_TURNS, s->seed + round,
                    chorus_sing, &c);
        for (uint32_t i = 0; i < STREAMS; i++) {
            const char *p = samples[(c.first + i) % SAMPLES];

            ck_require("P5", !c.rc[i] && same(&c.e[i], &c.alone[i]),
                       "other events beside streams on other threads: %s", p);
            ck_require("P5", same_prompt(&c.prompt[i], &c.prompt_alone[i]),
                       "another prompt beside calls on other threads: %s", p);
            events_release(&c.e[i]);
            events_release(&c.alone[i]);
            prompt_release(&c.prompt[i]);
            prompt_release(&c.prompt_alone[i]);
        }
    }
}

struct fed {
    const struct reader *r;
    void *stream;
    const char *p; /* NULL: the end                                          */
    size_t n;
    int rc;
};

static void fed_run(void *arg)
{
    struct fed *f = arg;

    f->rc = f->p ? feed(f->r, f->stream, f->p, f->n) : finish(f->r, f->stream);
}

/* Each call of a stream from another thread. */
void ck_parser_moved(const struct ck_subject *s)
{
    struct reader r;

    reader_open(s, &r);
    for (uint32_t i = 0; i < 2 * SAMPLES; i++) {
        struct ck_mover *mover = ck_mover_new(i % 2, s->seed + i);
        const char *p = samples[i / 2];
        size_t n = strlen(p), to;
        struct events alone = { 0 }, e = { 0 };
        struct seam_sink sink = { &e, event };
        struct fed f = { .r = &r };

        sane(parse(&r, true, "", p, n, 0, 2, &alone), &alone, p);
        f.stream = stream_open(&r, true, "", &sink);
        for (size_t at = 0; !f.rc && at < n; at = to) {
            to = next(p, n, next(p, n, at));
            f.p = p + at;
            f.n = to - at;
            ck_move(mover, fed_run, &f);
        }
        f.p = NULL;
        if (!f.rc)
            ck_move(mover, fed_run, &f);
        stream_close(&r, f.stream);
        ck_mover_free(mover);
        ck_require("T3", !f.rc && same(&e, &alone),
                   "other events when calls come from several threads: %s", p);
        events_release(&e);
        events_release(&alone);
    }
}
