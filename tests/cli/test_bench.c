/* seam bench as its user meets it.  Nothing here depends on how fast anything
 * is. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/cli/process.h"

#define PLUGIN_DIR "plugin_dir=" SEAM_TEST_PLUGIN_DIR
#define BROKEN     SEAM_TEST_BINARY_DIR "/tests/check"
#define ARGS(...)  ((const char *const[]){ __VA_ARGS__, NULL })

/* A folder for a test, removed by leave(). */
struct place {
    char dir[64], json[96], html[96], svg[96], model[96];
};

static void enter(struct place *p)
{
    snprintf(p->dir, sizeof p->dir, "/tmp/seam-bench-XXXXXX");
    cr_assert_not_null(mkdtemp(p->dir));
    snprintf(p->json, sizeof p->json, "%s/out.json", p->dir);
    snprintf(p->html, sizeof p->html, "%s/out.html", p->dir);
    snprintf(p->svg, sizeof p->svg, "%s/out.svg", p->dir);
    snprintf(p->model, sizeof p->model, "%s/model", p->dir);
}

static void leave(const struct place *p)
{
    char command[160];
    FILE *f;

    snprintf(command, sizeof command, "rm -r '%s'", p->dir);
    f = popen(command, "r");
    cr_assert_not_null(f);
    cr_expect_eq(pclose(f), 0);
}

static void says(const char *const *args, int status, const char *out,
                 const char *err)
{
    struct process p;

    process_run(&p, args, NULL);
    cr_expect_eq(p.status, status, "exit status %d, expected %d; %s%s",
                 p.status, status, p.out_text.p, p.err_text.p);
    if (out)
        cr_expect_not_null(strstr(p.out_text.p, out), "no \"%s\" in: %s", out,
                           p.out_text.p);
    if (err)
        cr_expect_not_null(strstr(p.err_text.p, err), "no \"%s\" in: %s", err,
                           p.err_text.p);
    process_release(&p);
}

static json_t *json_of(const char *path)
{
    json_error_t e;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &e);

    cr_assert_not_null(root, "%s: %s", path, e.text);
    return root;
}

static double number(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);

    if (json_is_object(v))
        v = json_object_get(v, "median");
    cr_assert(json_is_number(v), "no number %s", key);
    return json_number_value(v);
}

static void expect_page(const char *path, bool svg)
{
    char *text = calloc(1, 1 << 20);
    FILE *f = fopen(path, "r");
    size_t n;

    cr_assert(f && text);
    n = fread(text, 1, (1 << 20) - 1, f);
    cr_expect_gt(n, 500);
    cr_expect_not_null(strstr(text, "<svg"), "no chart");
    cr_expect_not_null(strstr(text, svg ? "</svg>" : "</html>"), "not whole");
    cr_expect_eq(!strncmp(text, "<svg xmlns=", 11), svg);
    cr_expect_null(strstr(text, "nan<"), "a number that is none");
    fclose(f);
    free(text);
}

Test(bench, refuses_what_it_does_not_know)
{
    says(ARGS("bench", "--help"), 0, "seam bench model", NULL);
    says(ARGS("bench"), 2, NULL, "seam bench make");
    says(ARGS("bench", "everything"), 2, NULL, "'everything'");
    says(ARGS("bench", "model", "--runs", "0"), 2, NULL, "--runs");
    says(ARGS("bench", "model", "--contxt", "1"), 2, NULL, "'--contxt'");
    says(ARGS("bench", "make"), 2, NULL, "new folder");
    says(ARGS("bench", "make", "--shape", "/nonexistent", "/nonexistent/x"), 1,
         NULL, "/nonexistent");
    says(ARGS("bench", "linear", "--seqs", "0"), 2, NULL,
         "integers from 1, each above the last");
    says(ARGS("bench", "serve", "--count", "0"), 2, NULL,
         "an integer from 1 after '--count'");
}

Test(bench, makes_a_checkpoint_that_is_read_again)
{
    struct place p;

    enter(&p);
    says(ARGS("bench", "make", "--shape", "nano", p.model), 0, "15.7 M weights",
         NULL);
    says(ARGS("bench", "make", "--shape", "nano", p.model), 1, NULL,
         "File exists");
    says(ARGS("inspect", p.model), 0, "8 layers (6 linear, 2 sparse", NULL);
    leave(&p);
}

Test(bench, takes_shapes_from_files)
{
    struct place p;
    FILE *f;

    enter(&p);
    f = fopen(p.json, "w");
    cr_assert_not_null(f);
    fputs("{\"hidden_size\": 128, \"num_hidden_layers\": 1, "
          "\"n_routed_experts\": 4, \"num_experts_per_tok\": 2, "
          "\"first_k_dense_replace\": 0, \"vocab_size\": 512, "
          "\"moe_intermediate_size\": 128, \"num_attention_heads\": 2, "
          "\"q_lora_rank\": 64, \"kv_lora_rank\": 64, \"index_n_heads\": 2}",
          f);
    fclose(f);
    says(ARGS("bench", "make", "--shape", p.json, p.model), 0, "weights", NULL);
    says(ARGS("inspect", p.model), 0, "4 routed, 2 per token", NULL);
    f = fopen(p.json, "w");
    fputs("{\"hidden_sice\": 128}", f);
    fclose(f);
    says(ARGS("bench", "make", "--shape", p.json, p.html), 1, NULL,
         "hidden_sice");
    leave(&p);
}

Test(bench, takes_a_model_apart)
{
    struct place p;
    json_t *root;
    const json_t *points, *decode, *parts, *part;
    double percent = 0;
    size_t i;

    enter(&p);
    says(ARGS("bench", "model", "--shape", "nano", "--dir", p.dir, "--runs",
              "1", "--decode", "2", "--prefill", "8", "--context", "0,40,96",
              "--distinct", "64", "--read-mb", "8", "--json", p.json, "--html",
              p.html, "--set", PLUGIN_DIR, "--threads", "2", "--versus",
              "engine.threads=1"),
         0, "with engine.threads=1:", "made ");
    root = json_of(p.json);
    cr_expect_gt(number(root, "load_ms"), 0);
    cr_expect_gt(number(root, "first_token_ms"), number(root, "load_ms"));
    points = json_object_get(root, "points");
    cr_assert_eq(json_array_size(points), 3);
    cr_expect_eq(number(json_array_get(points, 1), "context"), 40);
    cr_expect_gt(number(json_object_get(json_array_get(points, 1), "prefill"),
                        "times_first"),
                 0);
    decode = json_object_get(json_array_get(points, 2), "decode");
    cr_expect_gt(number(decode, "tokens_per_s"), 0);
    cr_expect_gt(number(decode, "percent_of_read"), 0);
    cr_expect_gt(number(decode, "launches"), 0);
    /* 8.2 M weights: half of them BF16, experts int4. */
    cr_expect_gt(number(decode, "bytes"), 12e6);
    cr_expect_lt(number(decode, "bytes"), 18e6);
    cr_expect_gt(number(decode, "bytes_cache"), 0);
    parts = json_object_get(decode, "parts");
    json_array_foreach(parts, i, part) percent += number(part, "percent");
    cr_expect(fabs(percent - 100) < 0.1, "the parts add up to %g %%", percent);
    cr_expect_gt(number(decode, "percent_glue"), 0);
    cr_expect_lt(number(decode, "percent_glue"), 100);
    cr_expect_gt(number(decode, "versus_ratio"), 0);
    cr_expect_gt(number(decode, "times_first"), 0);
    cr_expect_gt(number(json_object_get(root, "machine"), "read_bytes"), 0);
    json_decref(root);
    expect_page(p.html, false);
    leave(&p);
}

Test(bench, decodes_several_sequences)
{
    struct place p;
    json_t *root;
    const json_t *decode;

    enter(&p);
    says(ARGS("bench", "model", "--shape", "nano", "--dir", p.dir, "--runs",
              "1", "--decode", "2", "--prefill", "0", "--context", "70",
              "--seqs", "3", "--read-mb", "8", "--json", p.json, "--set",
              PLUGIN_DIR, "--threads", "2"),
         0, "3 sequences: decode 2 at 70", NULL);
    root = json_of(p.json);
    decode = json_object_get(json_array_get(json_object_get(root, "points"), 0),
                             "decode");
    cr_expect_eq(number(decode, "seqs"), 3);
    /* More experts than for one token, which takes 1.04 MB of them. */
    cr_expect_gt(number(decode, "bytes_experts"), 1.5e6);
    cr_expect_lt(number(decode, "bytes_experts"), 3.2e6);
    json_decref(root);
    leave(&p);
}

Test(bench, takes_the_model_of_a_configuration)
{
    says(ARGS("bench", "model", "-c", SEAM_TEST_SOURCE_DIR "/conf/nano.json",
              "--runs", "1", "--decode", "2", "--prefill", "0", "--read-mb",
              "8", "--set", PLUGIN_DIR, "--threads", "2"),
         0, "decode 2 at 0", NULL);
}

Test(bench, says_what_does_not_fit)
{
    struct place p;

    enter(&p);
    says(ARGS("bench", "model", "--shape", "nano", "--dir", p.dir, "--set",
              PLUGIN_DIR, "--context", "65536"),
         1, NULL, "65536");
    says(ARGS("bench", "model", "--shape", "nano", "--dir", p.dir, "--set",
              "engine.thread=1"),
         1, NULL, "engine.threads");
    leave(&p);
}

/* Arguments of a small measurement of one kind. */
#define SMALL(dir, ...)                                                        \
    ARGS("bench", __VA_ARGS__, "--shape", "nano", "--dir", dir, "--runs", "1", \
         "--run-ms", "1", "--read-mb", "8", "--threads", "2", "--set",         \
         PLUGIN_DIR)

static void expect_sane(const json_t *c)
{
    cr_expect_geq(number(c, "error"), 0);
    cr_expect_leq(number(c, "error"), 0.02);
    cr_expect_gt(number(c, "us"), 0);
    cr_expect_gt(number(c, "tokens/s"), 0);
    if (!json_object_get(c, "verdict"))
        return;
    cr_expect_gt(number(c, "MB"), 0);
    cr_expect_gt(number(c, "percent of read"), 0);
    /* Caches are faster than memory, and plugins are compiled better than the
     * ceilings of a debug build, but not without bounds. */
    cr_expect_lt(number(c, "percent of read"), 1e5);
    cr_expect_geq(number(c, "percent of f32"), 0);
    cr_expect_lt(number(c, "percent of f32"), 1e5);
}

Test(bench, sets_a_plugin_against_another)
{
    struct place p;
    json_t *root;
    const json_t *cases, *c;
    size_t i;

    enter(&p);
    says(SMALL(p.dir, "linear", "--tokens", "1,3", "--context", "0,70",
               "--seqs", "2", "--distinct", "64", "--against", "kda_ref",
               "--json", p.json, "--html", p.html, "--svg", p.svg),
         0, "kda_ref is ", NULL);
    expect_page(p.svg, true);
    root = json_of(p.json);
    cases = json_object_get(root, "cases");
    cr_expect_eq(json_array_size(cases), 8); /* 2 x 2 x 2 plugins */
    json_array_foreach(cases, i, c)
    {
        expect_sane(c);
        cr_expect_eq(number(c, "seqs"), 2);
        if (i % 2)
            cr_expect_gt(number(c, "ratio"), 0);
    }
    json_decref(root);
    expect_page(p.html, false);
    leave(&p);
}

static void one_kind(const char *kind, const char *tokens,
                     const char *case_name)
{
    struct place p;
    json_t *root;
    const json_t *cases, *c;
    bool found = false;
    size_t i;

    enter(&p);
    says(SMALL(p.dir, kind, "--tokens", tokens, "--json", p.json), 0, case_name,
         NULL);
    root = json_of(p.json);
    cases = json_object_get(root, "cases");
    json_array_foreach(cases, i, c)
    {
        expect_sane(c);
        found |=
            !strcmp(json_string_value(json_object_get(c, "case")), case_name);
    }
    cr_expect(found, "%s: no case %s", kind, case_name);
    json_decref(root);
    leave(&p);
}

Test(bench, takes_a_file_from_where_one_is)
{
    struct place p;

    enter(&p);
    cr_assert_eq(chdir(p.dir), 0);
    cr_assert_eq(symlink(SEAM_TEST_PLUGIN_DIR "/kda.so", "mine.so"), 0);
    says(SMALL(p.dir, "linear", "--tokens", "1", "--against", "./mine.so"), 0,
         "kda (2) is ", NULL);
    says(SMALL(p.dir, "linear", "--against", "./yours.so"), 1, NULL,
         "./yours.so: No such file");
    cr_assert_eq(chdir("/"), 0);
    leave(&p);
}

Test(bench, measures_sparse_attention)
{
    one_kind("sparse", "2", "sparse_attention");
}

Test(bench, measures_experts)
{
    one_kind("moe", "2", "moe");
}

Test(bench, measures_the_operations_of_a_backend)
{
    one_kind("backend", "2", "gemm expert");
    one_kind("backend", "2", "sample max");
}

Test(bench, measures_parsers)
{
    /* Several calls with content between them, which the reference tells at the
     * end and others as it comes. */
    one_kind("parser", "400", "calls");
}

Test(bench, does_not_time_what_is_wrong)
{
    struct place p;

    enter(&p);
    says(SMALL(p.dir, "backend", "--plugin", BROKEN "/broken_backend_N1.so",
               "--reference", "cpu_ref", "--only", "gemm", "--limit", "1e-3"),
         1, NULL, "nothing is timed");
    says(SMALL(p.dir, "backend", "--plugin",
               BROKEN "/broken_backend_NOTHING.so", "--reference", "cpu_ref",
               "--only", "gemm", "--limit", "1e-3"),
         0, "gemm attention", NULL);
    says(SMALL(p.dir, "linear", "--limit", "0"), 1, NULL,
         "kda: normalised error");
    leave(&p);
}

Test(bench, says_which_plugin_does_not_fit)
{
    struct place p;

    enter(&p);
    says(SMALL(p.dir, "moe", "--plugin", "nothing_like_it"), 1, NULL,
         "nothing_like_it");
    says(SMALL(p.dir, "moe", "--only", "gemm"), 1, NULL, "no case");
    says(SMALL(p.dir, "backend", "--plugin", "moe_resident"), 1, NULL,
         "is of kind moe");
    says(SMALL(p.dir, "attention"), 2, NULL, "linear or sparse");
    says(SMALL(p.dir, "linear", "--tokens", "4,1"), 2, NULL, "--tokens");
    leave(&p);
}

/* A server and one measurement of it. */
static void load(const struct place *p, const char *url, int status,
                 const char *out, const char *const *more)
{
    const char *args[40] = {
        "bench", "serve", "--url", url, "--json", p->json
    };
    size_t n = 6;

    while (*more)
        args[n++] = *more++;
    says(args, status, out, NULL);
}

static void expect_load(const struct place *p, double ok, double failed)
{
    json_t *root = json_of(p->json);
    const json_t *ttft = json_object_get(root, "ttft_ms");
    const json_t *good = json_object_get(root, "goodput");

    cr_expect_eq(number(root, "ok"), ok);
    cr_expect_eq(number(root, "failed"), failed);
    cr_expect_eq(number(ttft, "n"), ok);
    cr_expect_gt(number(ttft, "p50"), 0);
    cr_expect_leq(number(ttft, "p50"), number(ttft, "p99"));
    cr_expect_leq(number(ttft, "p99"), number(ttft, "max"));
    cr_expect_gt(number(root, "prompt_tokens"), 0);
    cr_expect_gt(number(root, "completion_tokens"), 0);
    cr_expect_geq(number(good, "share"), 0);
    cr_expect_leq(number(good, "share"), 1);
    json_decref(root);
}

Test(bench, loads_a_server)
{
    struct process server;
    struct place p;
    char url[64], file[96];
    FILE *f;

    enter(&p);
    process_serve(&server, ARGS("--set", "engine.max_seqs=2"), url);
    load(&p, url, 0, "TTFT",
         ARGS("--count", "3", "--concurrency", "2", "--max-tokens", "4"));
    expect_load(&p, 3, 0);
    /* A bound that everything keeps, and arrivals at random. */
    load(&p, url, 0, "100.0 % of all",
         ARGS("--count", "2", "--rate", "100", "--concurrency", "2",
              "--max-tokens", "3", "--slo-ttft", "1e7", "--slo-tpot", "1e7"));
    expect_load(&p, 2, 0);
    snprintf(file, sizeof file, "%s/requests.jsonl", p.dir);
    f = fopen(file, "w");
    cr_assert_not_null(f);
    fputs("{\"prompt\": \"One\", \"max_tokens\": 3}\n\n"
          "{\"messages\": 3}\n",
          f);
    fclose(f);
    load(&p, url, 0, "failed 1 times: status 400",
         ARGS("--count", "2", "--concurrency", "1", "--requests", file));
    expect_load(&p, 1, 1);
    f = fopen(file, "w");
    fputs("{\"prompt\": \"One\"}\n{\"prompt\": }\n", f);
    fclose(f);
    says(ARGS("bench", "serve", "--url", url, "--requests", file), 1, NULL,
         "requests.jsonl:2");
    process_signal(&server, SIGTERM);
    process_finish(&server);
    process_release(&server);
    says(ARGS("bench", "serve", "--url", url, "--count", "1"), 1, NULL,
         "refused");
    leave(&p);
}

Test(bench, refuses_loads_that_make_no_sense)
{
    says(ARGS("bench", "serve"), 2, NULL, "--url");
    says(ARGS("bench", "serve", "--url", "https://h"), 1, NULL, "http://");
    says(ARGS("bench", "serve", "--url", "http://h:0"), 1, NULL, "no port");
    says(ARGS("bench", "serve", "--url", "http://h", "--rate", "0"), 2, NULL,
         "--rate");
    says(ARGS("bench", "serve", "--url", "http://h", "--mix", "x"), 2, NULL,
         "chat, long or agent");
}
