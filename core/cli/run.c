/* seam run: one answer in the terminal, as it is generated. */
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/num.h"
#include "core/cli/cli.h"
#include "core/cli/progress.h"
#include "core/server/chat.h"

struct run {
    struct seam_cli_opts common;
    const char *prompt, *instructions;
    json_t *body;      /* what a client would send */
    bool completion;   /* --raw: continue the text as it is */
    bool colour;       /* reasoning apart from the answer */
    bool reasoning;    /* what was printed last was reasoning */
    uint64_t first_ns; /* when the first text came; 0: none did               */
};

static void run_switch(struct run *r, bool reasoning)
{
    if (r->reasoning == reasoning)
        return;
    r->reasoning = reasoning;
    if (r->colour)
        fputs(reasoning ? "\033[2m" : "\033[0m", stdout);
    if (!reasoning)
        fputs("\n\n", stdout);
}

static int run_event(void *ctx, const struct seam_chat_event *ev)
{
    struct run *r = ctx;

    if (!r->first_ns && ev->kind != SEAM_CHAT_BEGIN &&
        ev->kind != SEAM_CHAT_PROMPT && ev->kind != SEAM_CHAT_FINISH)
        r->first_ns = seam_now_ns();
    switch (ev->kind) {
    case SEAM_CHAT_TEXT:
    case SEAM_CHAT_PROMPT:
    case SEAM_CHAT_REASONING:
        run_switch(r, ev->kind == SEAM_CHAT_REASONING);
        fwrite(ev->text.p, 1, ev->text.n, stdout);
        break;
    case SEAM_CHAT_TOOL_BEGIN:
        run_switch(r, false);
        printf("[call %.*s ", (int)ev->text.n, ev->text.p);
        break;
    case SEAM_CHAT_TOOL_ARGS:
        fwrite(ev->text.p, 1, ev->text.n, stdout);
        break;
    case SEAM_CHAT_TOOL_END:
        fputs("]\n", stdout);
        break;
    default:
        break;
    }
    return fflush(stdout) ? 1 : 0;
}

/* What it took; the time between tokens needs two of them. */
static void run_figures(const struct run *r, const struct seam_chat_usage *u,
                        uint64_t start, uint64_t end)
{
    fprintf(stderr, "%llu prompt tokens, %llu generated",
            (unsigned long long)u->prompt, (unsigned long long)u->completion);
    if (r->first_ns)
        fprintf(stderr, "; first after %.0f ms",
                (double)(r->first_ns - start) / 1e6);
    if (r->first_ns && u->completion > 1 && end > r->first_ns)
        fprintf(stderr, ", then %.1f tokens/s",
                (double)(u->completion - 1) * 1e9 /
                    (double)(end - r->first_ns));
    fputc('\n', stderr);
}

static int run_poll(void *ctx)
{
    (void)ctx;
    return 0;
}

static int run_generate(struct run *r, struct seam_engine *e,
                        const struct seam_config *c)
{
    struct seam_chat_sink sink = {
        .ctx = r, .event = run_event, .poll = run_poll, .poll_ms = 100
    };
    struct seam_request_limits limits = { .vocab = seam_engine_vocab(e),
                                          .max_n = (uint32_t)c->server.max_n };
    struct seam_request request;
    struct seam_chat *chat = NULL;
    struct seam_chat_usage usage;
    struct seam_api_error err;
    uint64_t start = seam_now_ns(), end;
    char *text = NULL;
    int rc;

    seam_engine_defaults(e, &limits.temperature, &limits.top_p);
    rc = seam_request_read(
        &request, r->completion ? SEAM_REQUEST_COMPLETION : SEAM_REQUEST_CHAT,
        r->body, &limits, &err);
    if (rc) {
        fprintf(stderr, "seam: %s\n", err.text);
        return 1;
    }
    text = seam_chat_text(&request);
    rc = text ? seam_chat_open(&chat, e, &request,
                               (struct seam_str){ text, strlen(text) }, &err)
              : seam_api_fail(&err, 500, NULL, NULL, "out of memory");
    if (!rc)
        rc = seam_chat_run(chat, &sink, &err);
    end = seam_now_ns();
    run_switch(r, false);
    fputs(r->colour ? "\033[0m\n" : "\n", stdout);
    if (rc < 0) {
        fprintf(stderr, "seam: %s\n", err.text);
    } else {
        seam_chat_usage(chat, &usage);
        run_figures(r, &usage, start, end);
    }
    seam_chat_free(chat);
    free(text);
    seam_request_release(&request);
    return rc ? 1 : 0;
}

static int run(struct run *r, const struct seam_config *c,
               const struct seam_log *log)
{
    struct seam_progress progress;
    struct seam_engine_opts eo = {
        .config = c,
        .log = log,
        .progress = seam_progress_show,
        .progress_ctx = &progress,
    };
    struct seam_engine *e;
    struct seam_error err;
    int rc;

    signal(SIGPIPE, SIG_IGN);
    seam_progress_init(&progress, log);
    if (seam_engine_start(&e, &eo, &err))
        return seam_cli_fail(&err);
    if (seam_engine_wait_loaded(e, -1, &err) == SEAM_ENGINE_READY)
        rc = run_generate(r, e, c);
    else
        rc = seam_cli_fail(&err);
    seam_engine_stop(e);
    seam_engine_free(e);
    return rc;
}

/* One message of it; false: the text is not UTF-8, or out of memory. */
static bool run_message(json_t *messages, const char *role, const char *text)
{
    return !json_array_append_new(
        messages,
        json_pack("{s:s, s:o}", "role", role, "content", json_string(text)));
}

/* The request's body from what the command line says; false as above. */
static bool run_body(struct run *r)
{
    json_t *messages;
    bool ok;

    if (r->completion)
        return !json_object_set_new(r->body, "prompt", json_string(r->prompt));
    messages = json_array();
    ok = !r->instructions || run_message(messages, "system", r->instructions);
    ok = ok && run_message(messages, "user", r->prompt);
    return !json_object_set_new(r->body, "messages", messages) && ok;
}

/* --max-tokens 100 and the like go into the body as the API names them. */
static int run_field(struct run *r, const char *flag, const char *value)
{
    static const struct {
        const char *flag, *field;
        bool integer;
    } field[] = {
        { "--max-tokens", "max_tokens", true },
        { "--seed", "seed", true },
        { "--top-k", "top_k", true },
        { "--temperature", "temperature", false },
        { "--top-p", "top_p", false },
        { "--min-p", "min_p", false },
    };

    for (size_t i = 0; i < sizeof field / sizeof *field; i++) {
        int64_t n;
        double d;

        if (strcmp(flag, field[i].flag))
            continue;
        if (!value)
            return seam_cli_usage("run", "expected a value after", flag);
        if (field[i].integer && seam_parse_i64(value, strlen(value), &n))
            json_object_set_new(r->body, field[i].field, json_integer(n));
        else if (!field[i].integer && seam_parse_f64(value, &d))
            json_object_set_new(r->body, field[i].field, json_real(d));
        else
            return seam_cli_usage("run", "expected a number, not", value);
        return 0;
    }
    return seam_cli_usage("run", "unknown argument", flag);
}

static int run_args(struct run *r, int argc, char **argv)
{
    struct seam_error err;

    for (int i = 0; i < argc; i++) {
        const char *next = i + 1 < argc ? argv[i + 1] : NULL;
        int took = seam_cli_option(&r->common, argc, argv, &i, &err);

        if (took < 0)
            return seam_cli_fail(&err) + 1;
        if (took)
            continue;
        if (!strcmp(argv[i], "--raw")) {
            r->completion = true;
        } else if (!strcmp(argv[i], "-p") || !strcmp(argv[i], "--prompt") ||
                   !strcmp(argv[i], "--system")) {
            if (!next)
                return seam_cli_usage("run", "expected a text after", argv[i]);
            *(argv[i][2] == 's' ? &r->instructions : &r->prompt) = next;
            i++;
        } else {
            int rc = run_field(r, argv[i], next);

            if (rc)
                return rc;
            i++;
        }
    }
    if (!r->prompt)
        return seam_cli_usage("run", "expected a prompt, -p", "TEXT");
    return 0;
}

int seam_cli_run(int argc, char **argv)
{
    struct run r = { .body = json_object(),
                     .colour = isatty(STDOUT_FILENO) != 0 };
    struct seam_config c = { 0 };
    struct seam_log log;
    struct seam_error err;
    int rc = run_args(&r, argc, argv);

    if (!rc && !run_body(&r)) {
        seam_fail(&err, SEAM_EINVAL, "the prompt is not valid UTF-8");
        rc = seam_cli_fail(&err);
    }
    if (!rc && seam_cli_load(&r.common, &c, &log, &err))
        rc = seam_cli_fail(&err);
    /* What the server says about itself is not part of an answer. */
    if (!rc && log.level == SEAM_LOG_INFO)
        log.level = SEAM_LOG_WARN;
    if (!rc)
        rc = run(&r, &c, &log);
    seam_config_release(&c);
    seam_cli_opts_release(&r.common);
    json_decref(r.body);
    return rc;
}
