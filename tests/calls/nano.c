#include "tests/calls/nano.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char config[] =
    "{\"model\": {\"path\": \"%s/models/nano/w4a16\", \"max_context\": 2048},"
    " \"server\": {\"listen\": \"127.0.0.1:0\"}, \"plugin_dir\": \"%s\","
    " \"engine\": {\"threads\": 2, \"max_seqs\": 4, \"max_step_tokens\": 256},"
    " \"plugins\": {"
    "  \"backend\": {\"name\": \"cpu\", \"unpinned\": true},"
    "  \"linear_attention\": {\"name\": \"kda\", \"unpinned\": true},"
    "  \"sparse_attention\": {\"name\": \"sparse_mla\", \"unpinned\": true},"
    "  \"moe\": {\"name\": \"moe_resident\", \"unpinned\": true},"
    "  \"parser\": {\"name\": \"%s\", \"unpinned\": true}}}";

void nano_open(struct nano *s, const char *parser)
{
    static char *no_env[] = { NULL };
    struct seam_engine_opts o = { .config = &s->config, .log = &s->log };
    struct seam_error err;
    char text[2048];
    int n = snprintf(text, sizeof text, config, SEAM_TEST_SOURCE_DIR,
                     SEAM_TEST_PLUGIN_DIR, parser);

    memset(s, 0, sizeof *s);
    s->log = (struct seam_log){ .fd = STDERR_FILENO, .level = SEAM_LOG_ERROR };
    cr_assert_eq(seam_config_parse(&s->config, "nano.json", text, (size_t)n,
                                   no_env, NULL, 0, &err),
                 0, "%s", err.text);
    cr_assert_eq(seam_server_bind(&s->server, &s->config, &s->log, &err), 0,
                 "%s", err.text);
    cr_assert_eq(seam_engine_start(&s->engine, &o, &err), 0, "%s", err.text);
    cr_assert_eq(seam_server_start(s->server, s->engine, &err), 0, "%s",
                 err.text);
    cr_assert_eq(seam_engine_wait_loaded(s->engine, -1, &err),
                 SEAM_ENGINE_READY, "%s", err.text);
    s->url = seam_server_url(s->server);
}

void nano_close(struct nano *s)
{
    seam_server_stop(s->server);
    seam_engine_stop(s->engine);
    seam_engine_free(s->engine);
    seam_config_release(&s->config);
}
