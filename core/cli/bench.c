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
    "  -c, --set, --threads  as for serve; without -c, the plugins of\n"
    "                        conf/nano.json beside the program\n";

struct cli_bench {
    struct seam_cli_opts common;
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
        else
            return seam_cli_usage("bench", "unknown argument", flag);
        if (!ok)
            return seam_cli_usage("bench", "expected another value after",
                                  flag);
    }
    return 0;
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
        rc = bench_flag(b, argv[i], i + 1 < argc ? argv[i + 1] : NULL);
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

static int bench_config(struct cli_bench *b, char *path, struct seam_config *c,
                        struct seam_log *log, struct seam_error *err)
{
    struct seam_cli_opts *o = &b->common;
    static char *no_env[] = { NULL };

    if (o->n_flags < SEAM_CLI_MAX_FLAGS)
        o->flag[o->n_flags++] = (struct seam_flag){ "model.path", path };
    if (o->file)
        return seam_cli_load(o, c, log, err);
    *log = (struct seam_log){ .fd = 2, .level = SEAM_LOG_ERROR };
    return seam_config_parse(c, "seam bench", preset, sizeof preset - 1, no_env,
                             o->flag, o->n_flags, err);
}

static int bench_model(struct cli_bench *b)
{
    struct seam_config c = { 0 };
    struct seam_log log;
    struct seam_error err;
    char *path = NULL;
    int rc;

    if (b->dir)
        return seam_cli_usage("bench model", "unexpected argument", b->dir);
    rc = bench_model_path(b, &path, &err);
    if (!rc)
        rc = bench_config(b, path, &c, &log, &err);
    b->model.config = &c;
    b->model.log = &log;
    if (!rc)
        rc = seam_bench_model_run(&b->model, &err);
    seam_config_release(&c);
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
    return rc;
}
