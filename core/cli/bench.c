/* seam bench: how fast the parts are, and the whole. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/num.h"
#include "core/bench/make.h"
#include "core/bench/model.h"
#include "core/bench/shape.h"
#include "core/cli/cli.h"

static const char help[] =
    "seam bench: how fast the parts are, and the whole\n"
    "\n"
    "  seam bench make [--shape S] [--seed N] DIR   a random checkpoint\n"
    "  seam bench model [options]                   whole steps of a model\n"
    "\n"
    "  --shape S             real, mid, nano, a folder with a checkpoint, or\n"
    "                        a JSON file with keys of text_config; mid\n"
    "  --dir DIR             where random models are kept;\n"
    "                        $XDG_CACHE_HOME/seam\n"
    "\n"
    "options of model:\n"
    "  --context N,N,...     tokens that stand before what is timed; 0\n"
    "  --decode N            tokens decoded in a run; 32\n"
    "  --prefill N           tokens prefilled in a run; 512\n"
    "  --runs N              runs of each measurement; 5\n"
    "  --distinct N          tokens of context that are computed, the rest\n"
    "                        being copies of their pages; 1024\n"
    "  --versus KEY=VALUE    alternate with a second run that has this setting\n"
    "  --read-mb N           memory to measure the read bandwidth with; 1024\n"
    "  --json FILE, --html FILE   the same as data, and as a page\n"
    "  -c, --set, --threads  as for serve; without -c, the plugins of\n"
    "                        conf/nano.json beside the program\n";

struct cli_bench {
    struct seam_cli_opts common;
    struct seam_cli_opts versus;
    const char *shape, *base, *dir;
    uint64_t seed;
    struct seam_bench_model_opts model;
};

/* "N,N,..." */
static bool bench_list(const char *s, uint32_t *out, uint32_t *n)
{
    uint64_t v;

    for (*n = 0; *n < SEAM_BENCH_MAX_POINTS; s++) {
        size_t len = strcspn(s, ",");

        if (!seam_parse_u64(s, len, &v) || v > UINT32_MAX / 2)
            return false;
        out[(*n)++] = (uint32_t)v;
        s += len;
        if (!*s)
            return true;
    }
    return false;
}

static bool bench_u32(const char *s, uint32_t *out)
{
    uint32_t n;

    return !strchr(s, ',') && bench_list(s, out, &n);
}

/* One flag with a value; 0, or the status of a usage error. */
static int bench_flag(struct cli_bench *b, const char *flag, const char *value)
{
    struct seam_bench_model_opts *m = &b->model;
    bool ok;

    if (!value)
        return seam_cli_usage("bench", "expected a value after", flag);
    if (!strcmp(flag, "--shape"))
        b->shape = value;
    else if (!strcmp(flag, "--dir"))
        b->base = value;
    else if (!strcmp(flag, "--json"))
        m->json = value;
    else if (!strcmp(flag, "--html"))
        m->html = value;
    else {
        if (!strcmp(flag, "--seed"))
            ok = seam_parse_u64(value, strlen(value), &b->seed);
        else if (!strcmp(flag, "--context"))
            ok = bench_list(value, m->context, &m->n_contexts);
        else if (!strcmp(flag, "--decode"))
            ok = bench_u32(value, &m->n_decode);
        else if (!strcmp(flag, "--prefill"))
            ok = bench_u32(value, &m->n_prefill);
        else if (!strcmp(flag, "--runs"))
            ok = bench_u32(value, &m->runs) && m->runs > 0;
        else if (!strcmp(flag, "--distinct"))
            ok = bench_u32(value, &m->distinct) && m->distinct > 0;
        else if (!strcmp(flag, "--read-mb")) {
            ok = seam_parse_u64(value, strlen(value), &m->read_bytes) &&
                 m->read_bytes > 0 && m->read_bytes < 1u << 20;
            m->read_bytes <<= 20;
        } else
            return seam_cli_usage("bench", "unknown argument", flag);
        if (!ok)
            return seam_cli_usage("bench", "expected another value after",
                                  flag);
    }
    return 0;
}

/* A setting of the second run. */
static int bench_versus(struct cli_bench *b, const char *value)
{
    char *argv[] = { "--set", (char *)value };
    struct seam_error err;
    int i = 0;

    if (!value)
        return seam_cli_usage("bench", "expected a value after", "--versus");
    b->model.versus_name = value;
    return seam_cli_option(&b->versus, 2, argv, &i, &err) < 0
               ? seam_cli_fail(&err) + 1
               : 0;
}

static int bench_args(struct cli_bench *b, int argc, char **argv)
{
    struct seam_error err;

    for (int i = 0; i < argc; i++) {
        int took = seam_cli_option(&b->common, argc, argv, &i, &err);
        int rc;

        if (took < 0)
            return seam_cli_fail(&err) + 1;
        if (took)
            continue;
        if (argv[i][0] != '-') {
            if (b->dir)
                return seam_cli_usage("bench", "unexpected argument", argv[i]);
            b->dir = argv[i];
            continue;
        }
        rc = !strcmp(argv[i], "--versus")
                 ? bench_versus(b, i + 1 < argc ? argv[i + 1] : NULL)
                 : bench_flag(b, argv[i], i + 1 < argc ? argv[i + 1] : NULL);
        if (rc)
            return rc;
        i++;
    }
    return 0;
}

/* ---- make ---------------------------------------------------------------- */

static int bench_make(struct cli_bench *b)
{
    struct seam_bench_made made;
    struct seam_error err;
    json_t *shape;
    int rc;

    if (!b->dir)
        return seam_cli_usage("bench make", "expected a new folder, not", "");
    shape = seam_bench_shape(b->shape, &err);
    if (!shape)
        return seam_cli_fail(&err);
    rc = seam_bench_make(shape, b->dir, b->seed, &made, &err);
    json_decref(shape);
    if (rc)
        return seam_cli_fail(&err);
    printf("%s: %.1f MB, %.1f M weights, of which a token uses %.1f M\n",
           b->dir, (double)made.bytes / 1e6, (double)made.n_params / 1e6,
           (double)made.n_active / 1e6);
    return 0;
}

/* ---- model --------------------------------------------------------------- */

/* The settings of a measurement, where the command line gives no others. */
static const char preset[] =
    "{\"log\": {\"level\": \"error\"},"
    " \"engine\": {\"max_seqs\": 1, \"max_step_tokens\": 512,"
    "              \"prefix_bytes\": 0},"
    " \"plugins\": {"
    "  \"backend\": {\"name\": \"cpu\", \"unpinned\": true},"
    "  \"linear_attention\": {\"name\": \"kda\", \"unpinned\": true},"
    "  \"sparse_attention\": {\"name\": \"sparse_mla\", \"unpinned\": true},"
    "  \"moe\": {\"name\": \"moe_resident\", \"unpinned\": true},"
    "  \"parser\": {\"name\": \"none\", \"unpinned\": true}}}";

/* The checkpoint of --shape: a folder as it is, or a random model. */
static int bench_model_path(struct cli_bench *b, char **path,
                            struct seam_error *err)
{
    struct stat st;
    int made, rc;

    if (!stat(b->shape, &st) && S_ISDIR(st.st_mode)) {
        *path = strdup(b->shape);
        return *path ? 0 : seam_fail(err, SEAM_ENOMEM, "out of memory");
    }
    rc = seam_bench_model(b->shape, b->base, path, &made, err);
    if (!rc && made)
        fprintf(stderr, "made %s\n", *path);
    return rc;
}

/* A setting's key, whichever of its two names it is given by. */
static const char *bench_key(const char *key)
{
    const char *of = seam_config_flag_key(key, NULL);

    return of ? of : key;
}

/* The settings of the command line, those of `more` and the model's path. */
static int bench_config(const struct cli_bench *b,
                        const struct seam_cli_opts *more, const char *path,
                        struct seam_config *c, struct seam_log *log,
                        struct seam_error *err)
{
    struct seam_cli_opts all = b->common, *o = &all;
    static char *no_env[] = { NULL };

    if (o->n_flags + more->n_flags + 1 > SEAM_CLI_MAX_FLAGS)
        return seam_fail(err, SEAM_EINVAL, "more than %d settings",
                         SEAM_CLI_MAX_FLAGS - 1);
    for (size_t i = 0; i < more->n_flags; i++) {
        size_t k = 0;

        while (k < o->n_flags &&
               strcmp(bench_key(o->flag[k].key), bench_key(more->flag[i].key)))
            k++;
        o->flag[k] = more->flag[i];
        o->n_flags += k == o->n_flags;
    }
    o->flag[o->n_flags++] = (struct seam_flag){ "model.path", path };
    if (o->file)
        return seam_cli_load(o, c, log, err);
    *log = (struct seam_log){ .fd = 2, .level = SEAM_LOG_ERROR };
    return seam_config_parse(c, "seam bench", preset, sizeof preset - 1, no_env,
                             o->flag, o->n_flags, err);
}

static int bench_model(struct cli_bench *b)
{
    static const struct seam_cli_opts none;
    struct seam_config c = { 0 }, second = { 0 };
    struct seam_log log;
    struct seam_error err;
    char *path = NULL;
    int rc;

    if (b->dir)
        return seam_cli_usage("bench model", "unexpected argument", b->dir);
    rc = bench_model_path(b, &path, &err);
    if (!rc)
        rc = bench_config(b, &none, path, &c, &log, &err);
    if (!rc && b->versus.n_flags)
        rc = bench_config(b, &b->versus, path, &second, &log, &err);
    b->model.config = &c;
    b->model.versus = b->versus.n_flags ? &second : NULL;
    b->model.log = &log;
    b->model.shape = b->shape;
    if (!rc)
        rc = seam_bench_model_run(&b->model, &err);
    seam_config_release(&c);
    seam_config_release(&second);
    free(path);
    return rc ? seam_cli_fail(&err) : 0;
}

int seam_cli_bench(int argc, char **argv)
{
    struct cli_bench b = {
        .shape = "mid",
        .seed = 1,
        .model = { .n_contexts = 1,
                   .n_decode = 32,
                   .n_prefill = 512,
                   .runs = 5,
                   .distinct = 1024,
                   .read_bytes = (uint64_t)1 << 30 },
    };
    int rc;

    for (int i = 0; i < argc; i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
            fputs(help, stdout);
            return 0;
        }
    if (!argc) {
        fputs(help, stderr);
        return 2;
    }
    rc = bench_args(&b, argc - 1, argv + 1);
    if (!rc && !strcmp(argv[0], "make"))
        rc = bench_make(&b);
    else if (!rc && !strcmp(argv[0], "model"))
        rc = bench_model(&b);
    else if (!rc)
        rc = seam_cli_usage("bench", "there is nothing to bench called",
                            argv[0]);
    seam_cli_opts_release(&b.common);
    seam_cli_opts_release(&b.versus);
    return rc;
}
