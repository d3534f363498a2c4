#include "tests/engine/talk.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char talk_config[] =
    "{\"model\": {\"path\": \"%s/models/nano/w4a16\", \"max_context\": 512},"
    " \"plugin_dir\": \"%s\","
    " \"engine\": {\"threads\": 1, \"page_tokens\": 16, \"max_seqs\": 4,"
    "              \"max_step_tokens\": 64},"
    " \"plugins\": {"
    "  \"backend\": {\"name\": \"cpu\", \"unpinned\": true},"
    "  \"linear_attention\": {\"name\": \"kda\", \"unpinned\": true},"
    "  \"sparse_attention\": {\"name\": \"sparse_mla\", \"unpinned\": true},"
    "  \"moe\": {\"name\": \"moe_resident\", \"unpinned\": true},"
    "  \"parser\": {\"name\": \"none\", \"unpinned\": true}}}";

bool talker_open(struct talker *t, const struct seam_flag *extra,
                 size_t n_extra, struct seam_error *err)
{
    static char *no_env[] = { NULL };
    struct seam_engine_opts o = { .config = &t->config, .log = &t->log };
    char text[4096];
    int n = snprintf(text, sizeof text, talk_config, SEAM_TEST_SOURCE_DIR,
                     SEAM_TEST_PLUGIN_DIR);

    *t = (struct talker){ .log = { .fd = STDERR_FILENO,
                                   .level = SEAM_LOG_ERROR } };
    return !seam_config_parse(&t->config, "engine.json", text, (size_t)n,
                              no_env, extra, n_extra, err) &&
           !seam_engine_start(&t->e, &o, err) &&
           seam_engine_wait_loaded(t->e, -1, err) == SEAM_ENGINE_READY;
}

void talker_close(struct talker *t)
{
    seam_engine_stop(t->e);
    seam_engine_free(t->e);
    seam_config_release(&t->config);
}

bool talker_ask(struct talker *t, const int32_t *prompt, uint32_t n,
                const char *salt, float temperature, uint64_t seed,
                uint32_t max, int32_t *out, uint32_t *cached)
{
    struct seam_gen_params p = {
        .prompt = prompt,
        .n_prompt = n,
        .max_tokens = max,
        .temperature = temperature,
        .top_p = 1,
        .repetition = 1,
        .seed = seed,
        .ignore_eos = true,
        .cache_salt = salt,
    };
    struct seam_gen_token token[16];
    struct seam_gen_info info;
    struct seam_gen *g;
    struct seam_error err;
    bool ended = false;
    uint32_t got = 0;

    if (seam_gen_submit(t->e, &p, &g, &err)) {
        fprintf(stderr, "talk: %s\n", err.text);
        return false;
    }
    while (!ended) {
        uint32_t some = seam_gen_take(g, -1, token, 16, &ended);

        for (uint32_t i = 0; i < some && got < max; i++)
            out[got++] = token[i].id;
    }
    seam_gen_info(g, &info);
    if (info.end != SEAM_GEN_LENGTH || got != max)
        fprintf(stderr, "talk: %u of %u tokens, end %d: %s\n", got, max,
                info.end, info.err.text);
    seam_gen_free(g);
    *cached = info.n_cached;
    return info.end == SEAM_GEN_LENGTH && got == max;
}

uint32_t gen_take_all(struct seam_gen *g, struct seam_gen_token *out,
                      uint32_t cap)
{
    bool ended = false;
    uint32_t n = 0;

    while (!ended)
        n += seam_gen_take(g, -1, out + n, cap - n, &ended);
    return n;
}
