/* What the prefix cache is worth: the second turn of a long conversation with
 * the nano model, cold, from memory, and from disk after a restart.
 *   bench_prefix [TOKENS [KV_DTYPE]] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/num.h"
#include "core/engine/engine.h"
#include "tests/support/folder.h"

enum { ANSWER = 32, QUESTION = 60, RUNS = 5 };

static const char bench_config[] =
    "{\"model\": {\"path\": \"%s/models/nano/w4a16\"},"
    " \"plugin_dir\": \"%s\","
    " \"engine\": {\"max_seqs\": 4},"
    " \"plugins\": {"
    "  \"backend\": {\"name\": \"cpu\", \"unpinned\": true},"
    "  \"linear_attention\": {\"name\": \"kda\", \"unpinned\": true},"
    "  \"sparse_attention\": {\"name\": \"sparse_mla\", \"unpinned\": true,"
    "                         \"config\": {\"kv_dtype\": \"%s\"}},"
    "  \"moe\": {\"name\": \"moe_resident\", \"unpinned\": true},"
    "  \"parser\": {\"name\": \"none\", \"unpinned\": true}}}";

struct bench {
    struct seam_config config;
    struct seam_log log;
    struct seam_engine *e;
    const char *dtype;
};

static bool bench_open(struct bench *b, const char *key, const char *value)
{
    static char *no_env[] = { NULL };
    struct seam_flag flag = { key, value };
    struct seam_engine_opts o = { .config = &b->config, .log = &b->log };
    struct seam_error err;
    char text[4096];
    int n = snprintf(text, sizeof text, bench_config, SEAM_TEST_SOURCE_DIR,
                     SEAM_BENCH_PLUGIN_DIR, b->dtype);

    b->log = (struct seam_log){ .fd = STDERR_FILENO, .level = SEAM_LOG_WARN };
    if (seam_config_parse(&b->config, "bench.json", text, (size_t)n, no_env,
                          &flag, key ? 1 : 0, &err) ||
        seam_engine_start(&b->e, &o, &err) ||
        seam_engine_wait_loaded(b->e, -1, &err) != SEAM_ENGINE_READY) {
        fprintf(stderr, "bench_prefix: %s\n", err.text);
        return false;
    }
    return true;
}

static void bench_close(struct bench *b)
{
    seam_engine_stop(b->e);
    seam_engine_free(b->e);
    seam_config_release(&b->config);
}

/* Milliseconds to the first token; the answer into out [ANSWER]. */
static double ask(struct bench *b, const int32_t *prompt, uint32_t n,
                  int32_t *out, uint32_t *cached)
{
    struct seam_gen_params p = {
        .prompt = prompt,
        .n_prompt = n,
        .max_tokens = ANSWER,
        .top_p = 1,
        .repetition = 1,
        .ignore_eos = true,
    };
    struct seam_gen_token t[ANSWER];
    struct seam_gen_info info;
    struct seam_gen *g;
    struct seam_error err;
    bool ended = false;
    uint32_t got = 0;

    if (seam_gen_submit(b->e, &p, &g, &err)) {
        fprintf(stderr, "bench_prefix: %s\n", err.text);
        exit(1);
    }
    while (!ended)
        got += seam_gen_take(g, -1, t + got, ANSWER - got, &ended);
    for (uint32_t i = 0; i < got; i++)
        out[i] = t[i].id;
    seam_gen_info(g, &info);
    seam_gen_free(g);
    *cached = info.n_cached;
    return (double)(info.first_ns - info.submitted_ns) / 1e6;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *v)
{
    qsort(v, RUNS, sizeof *v, by_value);
    return v[RUNS / 2];
}

int main(int argc, char **argv)
{
    uint64_t n_first = 8000;
    char dir[] = "/tmp/seam-bench-XXXXXX";
    double cold[RUNS], memory[RUNS], disk[RUNS], c, m, d;
    int32_t *prompt, answer[ANSWER], got[ANSWER];
    uint32_t n, cached = 0, from_disk = 0;
    struct seam_disk_stats s;
    struct bench b = { .dtype = argc > 2 ? argv[2] : "f32" };
    unsigned seed = 3;
    bool same = true;

    if ((argc > 1 && !seam_parse_u64(argv[1], strlen(argv[1]), &n_first)) ||
        n_first > 1000000 || !mkdtemp(dir))
        return 2;
    n = (uint32_t)n_first;
    prompt = malloc((n + ANSWER + QUESTION) * sizeof *prompt);
    if (!prompt)
        return 1;
    for (uint32_t i = 0; i < n; i++)
        prompt[i] = (int32_t)(rand_r(&seed) % 6000);

    /* The first turn, and the second one from memory; a run differs from the
     * one before in its last tokens. */
    if (!bench_open(&b, "engine.prefix_dir", dir))
        return 1;
    ask(&b, prompt, n, answer, &cached);
    memcpy(prompt + n, answer, sizeof answer);
    n += ANSWER;
    for (int i = 0; i < QUESTION; i++)
        prompt[n++] = 17 * i + 5;
    for (int r = 0; r < RUNS; r++) {
        prompt[n - 40] = r;
        memory[r] = ask(&b, prompt, n, r ? got : answer, &cached);
    }
    printf("conversation: %u tokens, then %u more; kv_dtype %s\n",
           (uint32_t)n_first, ANSWER + QUESTION, b.dtype);
    printf("snapshots: %llu in memory, %llu bytes of state each\n",
           (unsigned long long)seam_engine_stats(b.e)->snapshots,
           (unsigned long long)(seam_engine_stats(b.e)->snapshot_bytes /
                                seam_engine_stats(b.e)->snapshots));
    bench_close(&b);
    for (int r = 0; r < RUNS; r++) {
        uint32_t k;

        if (!bench_open(&b, "engine.prefix_dir", dir))
            return 1;
        prompt[n - 40] = 100 + r;
        disk[r] = ask(&b, prompt, n, got, &k);
        from_disk = (uint32_t)seam_engine_stats(b.e)->disk_hits;
        seam_engine_disk_stats(b.e, &s);
        bench_close(&b);
    }
    printf("on disk: %llu snapshots in %llu runs and states, %llu bytes\n",
           (unsigned long long)s.n_states,
           (unsigned long long)(s.n_runs + s.n_states),
           (unsigned long long)s.bytes);
    if (!bench_open(&b, "engine.prefix_bytes", "0"))
        return 1;
    for (int r = 0; r < RUNS; r++) {
        uint32_t none;

        prompt[n - 40] = r;
        cold[r] = ask(&b, prompt, n, got, &none);
        same = same && (r || !memcmp(got, answer, sizeof got));
    }
    bench_close(&b);
    folder_remove(dir);
    c = median(cold);
    m = median(memory);
    d = median(disk);
    printf("time to first token of the second turn, median of %d:\n"
           "  cold               %9.2f ms\n"
           "  from memory        %9.2f ms  1/%.0f  (%u tokens cached)\n"
           "  from disk, restart %9.2f ms  1/%.0f  (%u tokens cached)\n"
           "answers are %s\n",
           RUNS, c, m, c / m, cached, d, c / d, from_disk,
           same ? "equal" : "DIFFERENT");
    free(prompt);
    return same ? 0 : 1;
}
