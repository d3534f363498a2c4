/* seam bench: how fast the parts are, and the whole. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/num.h"
#include "core/bench/kind.h"
#include "core/bench/load.h"
#include "core/bench/make.h"
#include "core/bench/model.h"
#include "core/bench/shape.h"
#include "core/cli/cli.h"
#include "core/loader/ident.h"

static const char help[] =
    "seam bench: how fast the parts are, and the whole\n"
    "\n"
    "  seam bench make [--shape S] [--seed N] DIR   a random checkpoint\n"
    "  seam bench model [options]                   whole steps of a model\n"
    "  seam bench KIND [options]                    plugins of one kind: linear\n"
    "                        or sparse (attention), moe, backend, parser\n"
    "  seam bench serve --url URL [options]         a running server\n"
    "\n"
    "  --shape S             real, mid, nano, a folder with a checkpoint, or\n"
    "                        a JSON file with keys of text_config; mid\n"
    "  --dir DIR             where random models are kept;\n"
    "                        $XDG_CACHE_HOME/seam\n"
    "\n"
    "  --runs N              runs of each measurement; 5\n"
    "  --distinct N          tokens of context that are computed, the rest\n"
    "                        being copies of their pages; 1024\n"
    "  --read-mb N           memory to measure the read bandwidth with; 1024\n"
    "  --json FILE, --html FILE, --svg FILE   the same as data, as a page,\n"
    "                        and its charts alone\n"
    "  -c, --set, --threads  as for serve; without -c, the tree's plugins\n"
    "\n"
    "options of model:\n"
    "  --context N,N,...     tokens that stand before what is timed; 0\n"
    "  --decode N            tokens decoded in a run; 32\n"
    "  --seqs N              sequences that are decoded at a time; 1\n"
    "  --prefill N           tokens prefilled in a run; 512\n"
    "  --versus KEY=VALUE    alternate with a second run that has this setting\n"
    "\n"
    "options of a kind:\n"
    "  --plugin NAME         the plugin, or its file; the tree's\n"
    "  --against NAME        another one, which takes turns with it\n"
    "  --reference NAME      whose results are right; the plugin's NAME_ref\n"
    "  --limit X             normalised error that is allowed; 0.02\n"
    "  --check-tokens N, --check-context N   of what is compared; 8, 40\n"
    "  --tokens N,N,...      tokens that a sequence brings; 1,512\n"
    "  --context N,N,...     tokens that stand before them; 0\n"
    "  --seqs N,N,...        sequences in a step; 1\n"
    "  --only TEXT           cases whose name holds that\n"
    "  --run-ms N            a run repeats its call for so long; 50\n"
    "\n"
    "options of serve:\n"
    "  --url URL             http://HOST:PORT\n"
    "  --key KEY             one of server.api_keys\n"
    "  --model NAME          the server's first\n"
    "  --requests FILE       bodies of requests, one a line\n"
    "  --mix chat|long|agent made-up ones instead; chat\n"
    "  --concurrency N       requests at a time; 4, with --rate at most 256\n"
    "  --rate R              arrivals a second, at random (Poisson)\n"
    "  --count N             requests in all\n"
    "  --duration S          none begins later; 30 without --count\n"
    "  --max-tokens N        of every answer\n"
    "  --timeout S           without a byte; 300\n"
    "  --slo-ttft MS, --slo-tpot MS   bounds for goodput\n"
    "  --seed N              other requests and arrivals; 1\n";

struct cli_bench {
    struct seam_cli_opts common;
    struct seam_cli_opts versus;
    const char *shape, *base, *dir;
    uint64_t seed;
    struct seam_bench_model_opts model;
    struct seam_bench_kind_opts kind;
    const char *plugin[3]; /* names or files: it, the one against, reference  */
    char *file[3];         /* where plugin[] is a file: its absolute path     */
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

/* A list of `--tokens 1,8,64`. */
static bool bench_points(const char *s, struct seam_bench_list *l)
{
    if (!bench_list(s, l->v, &l->n))
        return false;
    for (uint32_t i = 0; i < l->n; i++)
        for (uint32_t j = 0; j < i; j++)
            if (l->v[j] >= l->v[i])
                return false;
    return true;
}

/* Say what a flag takes. */
static int bench_refuse(const char *flag)
{
    static const struct {
        const char *flag, *what;
    } known[] = {
        { "--seed", "an integer from 0" },
        { "--context", "integers from 0, each above the last, as 0,4096," },
        { "--tokens", "integers from 1, each above the last, as 1,8,64," },
        { "--seqs", "integers from 1, each above the last, as 1,8,64," },
        { "--limit", "a number from 0" },
        { "--check-context", "an integer from 0" },
        { "--run-ms", "an integer from 0 to 59999" },
        { "--decode", "an integer from 0" },
        { "--prefill", "an integer from 0" },
        { "--read-mb", "an integer from 1 to 1048575" },
    };
    const char *what = "an integer from 1";
    char text[96];

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(flag, known[i].flag))
            what = known[i].what;
    snprintf(text, sizeof text, "expected %s after", what);
    return seam_cli_usage("bench", text, flag);
}

/* One flag with a value; 0, or the status of a usage error. */
static int bench_flag(struct cli_bench *b, const char *flag, const char *value)
{
    struct seam_bench_model_opts *m = &b->model;
    struct seam_bench_kind_opts *k = &b->kind;
    uint32_t n;
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
    else if (!strcmp(flag, "--svg"))
        m->svg = value;
    else if (!strcmp(flag, "--plugin"))
        b->plugin[0] = value;
    else if (!strcmp(flag, "--against"))
        b->plugin[1] = value;
    else if (!strcmp(flag, "--reference"))
        b->plugin[2] = value;
    else if (!strcmp(flag, "--only"))
        k->only = value;
    else {
        if (!strcmp(flag, "--seed"))
            ok = seam_parse_u64(value, strlen(value), &b->seed);
        else if (!strcmp(flag, "--context"))
            ok = bench_points(value, &k->context);
        else if (!strcmp(flag, "--tokens"))
            ok = bench_points(value, &k->tokens) && k->tokens.v[0] > 0;
        else if (!strcmp(flag, "--seqs"))
            ok = bench_points(value, &k->seqs) && k->seqs.v[0] > 0;
        else if (!strcmp(flag, "--limit"))
            ok = seam_parse_f64(value, &k->limit) && k->limit >= 0;
        else if (!strcmp(flag, "--check-tokens"))
            ok = bench_u32(value, &k->check_tokens) && k->check_tokens > 0;
        else if (!strcmp(flag, "--check-context"))
            ok = bench_u32(value, &k->check_context);
        else if (!strcmp(flag, "--run-ms")) {
            ok = bench_u32(value, &n) && n < 60000;
            k->run_us = n * 1000;
        } else if (!strcmp(flag, "--decode"))
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
            return bench_refuse(flag);
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

/* ---- serve --------------------------------------------------------------- */

static bool load_positive(const char *s, double *out)
{
    return seam_parse_f64(s, out) && *out > 0;
}

/* A flag of seam bench serve: 0, or the status of a usage error. */
static int load_flag(struct seam_load_opts *o, const char *flag,
                     const char *value)
{
    const struct {
        const char *flag;
        const char **text;
        uint32_t *number;
        double *real;
    } known[] = {
        { "--url", &o->url, NULL, NULL },
        { "--key", &o->key, NULL, NULL },
        { "--model", &o->model, NULL, NULL },
        { "--requests", &o->requests, NULL, NULL },
        { "--mix", &o->mix, NULL, NULL },
        { "--json", &o->json, NULL, NULL },
        { "--concurrency", NULL, &o->concurrency, NULL },
        { "--count", NULL, &o->n_requests, NULL },
        { "--max-tokens", NULL, &o->max_tokens, NULL },
        { "--rate", NULL, NULL, &o->rate },
        { "--duration", NULL, NULL, &o->duration_s },
        { "--slo-ttft", NULL, NULL, &o->slo_ttft_ms },
        { "--slo-tpot", NULL, NULL, &o->slo_tpot_ms },
    };
    const char *want = "expected an integer from 0 after";
    double s;
    bool ok = false;

    if (!value)
        return seam_cli_usage("bench serve", "expected a value after", flag);
    if (!strcmp(flag, "--seed")) {
        ok = seam_parse_u64(value, strlen(value), &o->seed);
    } else if (!strcmp(flag, "--timeout")) {
        ok = load_positive(value, &s) && s < 1e6;
        o->timeout_ms = ok ? (uint32_t)(s * 1000) : 0;
        want = "expected a number of seconds above 0 and below 1000000 after";
    } else {
        size_t i = 0, n = sizeof known / sizeof *known;

        while (i < n && strcmp(known[i].flag, flag))
            i++;
        if (i == n)
            return seam_cli_usage("bench serve", "unknown argument", flag);
        if (known[i].text) {
            *known[i].text = value;
            ok = true;
        } else if (known[i].number) {
            want = "expected an integer from 1 after";
            ok = bench_u32(value, known[i].number) && *known[i].number > 0;
        } else {
            want = "expected a number above 0 after";
            ok = load_positive(value, known[i].real);
        }
    }
    return ok ? 0 : seam_cli_usage("bench serve", want, flag);
}

static int bench_serve(int argc, char **argv)
{
    struct seam_load_opts o = { .mix = "chat",
                                .timeout_ms = 300000,
                                .seed = 1 };
    struct seam_error err;
    int rc = 0;

    for (int i = 0; i < argc && !rc; i += 2)
        rc = load_flag(&o, argv[i], i + 1 < argc ? argv[i + 1] : NULL);
    if (rc)
        return rc;
    if (!o.url)
        return seam_cli_usage("bench serve", "expected an address, --url",
                              "URL");
    if (strcmp(o.mix, "chat") && strcmp(o.mix, "long") &&
        strcmp(o.mix, "agent"))
        return seam_cli_usage("bench serve",
                              "expected chat, long or agent, not", o.mix);
    if (!o.concurrency)
        o.concurrency = o.rate > 0 ? 256 : 4;
    if (o.concurrency > 4096)
        return seam_cli_usage("bench serve", "expected at most 4096 for",
                              "--concurrency");
    if (!o.n_requests && !(o.duration_s > 0))
        o.duration_s = 30;
    signal(SIGPIPE, SIG_IGN);
    return seam_bench_load_run(&o, &err) ? seam_cli_fail(&err) : 0;
}

/* ---- Arguments ----------------------------------------------------------- */

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

/* The shape that is asked for, or the usual one. */
static const char *bench_shape(const struct cli_bench *b)
{
    return b->shape ? b->shape : "mid";
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
    shape = seam_bench_shape(bench_shape(b), &err);
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
static void bench_preset(const struct cli_bench *b, struct seam_buf *out)
{
    static const char *const name[SEAM_N_ROLES] = {
        [SEAM_ROLE_BACKEND] = "cpu",       [SEAM_ROLE_LINEAR] = "kda",
        [SEAM_ROLE_SPARSE] = "sparse_mla", [SEAM_ROLE_MOE] = "moe_resident",
        [SEAM_ROLE_PARSER] = "none",
    };
    const char *separator = "";

    seam_buf_str(out, "{\"log\": {\"level\": \"error\"}, \"engine\": "
                      "{\"max_seqs\": 1, \"max_step_tokens\": 512, "
                      "\"prefix_bytes\": 0}, \"plugin_paths\": [");
    for (int i = 0; i < 3; i++) {
        const char *slash = b->plugin[i] ? strrchr(b->plugin[i], '/') : NULL;

        if (!slash)
            continue;
        seam_buf_str(out, separator);
        seam_buf_json(out, b->plugin[i], (size_t)(slash - b->plugin[i]));
        separator = ", ";
    }
    seam_buf_str(out, "], \"plugins\": {");
    for (int r = 0; r < SEAM_N_ROLES; r++)
        seam_buf_fmt(out, "%s\"%s\": {\"name\": \"%s\", \"unpinned\": true}",
                     r ? ", " : "", seam_role_name[r], name[r]);
    seam_buf_str(out, "}}");
}

/* The checkpoint of --shape: a folder as it is, or a random model. */
static int bench_model_path(struct cli_bench *b, char **path,
                            struct seam_error *err)
{
    struct stat st;
    int made, rc;

    if (!b->shape && b->common.file)
        return 0; /* the configuration's                                      */
    if (!stat(bench_shape(b), &st) && S_ISDIR(st.st_mode)) {
        *path = strdup(bench_shape(b));
        return *path ? 0 : seam_fail(err, SEAM_ENOMEM, "out of memory");
    }
    rc = seam_bench_model(bench_shape(b), b->base, path, &made, err);
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

/* Add a setting; with `keep`, only where it is not given yet. */
static int bench_put(struct seam_cli_opts *o, const char *key,
                     const char *value, bool keep, struct seam_error *err)
{
    size_t k = 0;

    while (k < o->n_flags && strcmp(bench_key(o->flag[k].key), bench_key(key)))
        k++;
    if (k == SEAM_CLI_MAX_FLAGS)
        return seam_fail(err, SEAM_EINVAL, "more than %d settings",
                         SEAM_CLI_MAX_FLAGS);
    if (k < o->n_flags && keep)
        return 0;
    o->flag[k] = (struct seam_flag){ key, value };
    o->n_flags += k == o->n_flags;
    return 0;
}

/* The settings of the command line, those of `more` and the model's path. */
static int bench_config(const struct cli_bench *b,
                        const struct seam_cli_opts *more, const char *path,
                        struct seam_config *c, struct seam_log *log,
                        struct seam_error *err)
{
    struct seam_cli_opts o = b->common; /* it owns nothing here               */
    static char *no_env[] = { NULL };
    struct seam_buf preset = { 0 };
    int rc = path ? bench_put(&o, "model.path", path, false, err) : 0;

    for (size_t i = 0; i < more->n_flags && !rc; i++)
        rc = bench_put(&o, more->flag[i].key, more->flag[i].value, false, err);
    if (rc)
        return rc;
    if (o.file)
        return seam_cli_load(&o, c, log, err);
    *log = (struct seam_log){ .fd = 2, .level = SEAM_LOG_ERROR };
    bench_preset(b, &preset);
    rc = preset.failed ? seam_fail(err, SEAM_ENOMEM, "out of memory")
                       : seam_config_parse(c, "seam bench", preset.p, preset.n,
                                           no_env, o.flag, o.n_flags, err);
    seam_buf_release(&preset);
    return rc;
}

/* Room for the sequences, where the command line says nothing else. */
static int bench_seqs(struct cli_bench *b, char *text, size_t n,
                      struct seam_error *err)
{
    snprintf(text, n, "%u", b->kind.seqs.v[b->kind.seqs.n - 1]);
    return b->kind.seqs.v[b->kind.seqs.n - 1] > 1
               ? bench_put(&b->common, "engine.max_seqs", text, true, err)
               : 0;
}

static int bench_model(struct cli_bench *b)
{
    static const struct seam_cli_opts none;
    struct seam_config c = { 0 }, second = { 0 };
    struct seam_log log;
    struct seam_error err;
    char *path = NULL, seqs[24];
    int rc;

    if (b->dir)
        return seam_cli_usage("bench model", "unexpected argument", b->dir);
    rc = bench_model_path(b, &path, &err);
    if (!rc)
        rc = bench_seqs(b, seqs, sizeof seqs, &err);
    if (!rc)
        rc = bench_config(b, &none, path, &c, &log, &err);
    if (!rc && b->versus.n_flags)
        rc = bench_config(b, &b->versus, path, &second, &log, &err);
    b->model.n_seqs = b->kind.seqs.v[b->kind.seqs.n - 1];
    memcpy(b->model.context, b->kind.context.v, sizeof b->model.context);
    b->model.n_contexts = b->kind.context.n;
    b->model.config = &c;
    b->model.versus = b->versus.n_flags ? &second : NULL;
    b->model.log = &log;
    b->model.shape = path ? bench_shape(b) : c.model.path;
    if (!rc)
        rc = seam_bench_model_run(&b->model, &err);
    seam_config_release(&c);
    seam_config_release(&second);
    free(path);
    return rc ? seam_cli_fail(&err) : 0;
}

/* ---- A kind -------------------------------------------------------------- */

/* One of the three plugins: what its configuration has of its own. */
struct bench_plugin {
    struct seam_cli_opts more;
    char key[3][64], name[64], label[80], number[4][24];
};

/* The name of a plugin, or of the one in a file. */
static int bench_plugin_name(const char *plugin, char *name, size_t n,
                             struct seam_error *err)
{
    struct seam_ident ident;
    int rc = 0;

    if (!strchr(plugin, '/')) {
        snprintf(name, n, "%s", plugin);
        return 0;
    }
    rc = seam_ident_read(plugin, &ident, err);
    if (!rc)
        snprintf(name, n, "%s", ident.name);
    return rc;
}

static int bench_plugin_flags(struct cli_bench *b, const char *plugin,
                              struct bench_plugin *p, struct seam_error *err)
{
    static const char *const member[] = { "name", "unpinned", "file" };
    const char *role = seam_role_name[b->kind.role];
    const char *value[] = { p->name, "true",
                            strchr(plugin, '/') ? plugin : NULL };
    int rc = bench_plugin_name(plugin, p->name, sizeof p->name, err);

    for (size_t i = 0; i < 3 && !rc; i++) {
        snprintf(p->key[i], sizeof p->key[i], "plugins.%s.%s", role, member[i]);
        if (value[i])
            rc = bench_put(&p->more, p->key[i], value[i], false, err);
    }
    return rc;
}

/* Room for the largest case, where the command line says nothing else. */
static int bench_room(struct cli_bench *b, struct bench_plugin *p,
                      struct seam_error *err)
{
    static const char *const key[] = { "engine.max_seqs",
                                       "engine.max_step_tokens",
                                       "model.max_context",
                                       "engine.cache_bytes" };
    const struct seam_bench_kind_opts *k = &b->kind;
    uint64_t seqs = k->seqs.v[k->seqs.n - 1];
    uint64_t tokens = k->tokens.v[k->tokens.n - 1];
    uint64_t context = k->context.v[k->context.n - 1];
    uint64_t value[4] = { seqs, tokens * seqs, context + tokens + 4096,
                          (uint64_t)16 << 30 };
    int rc = 0;

    if (context < k->check_context)
        value[2] += k->check_context;
    if (value[1] < 256)
        value[1] = 256;
    if (value[1] < k->check_tokens)
        value[1] = k->check_tokens;
    for (size_t i = 0; i < 4 && !rc; i++) {
        bool given = false;

        for (size_t f = 0; f < b->common.n_flags; f++)
            given |= !strcmp(bench_key(b->common.flag[f].key), key[i]);
        snprintf(p->number[i], sizeof p->number[i], "%llu",
                 (unsigned long long)value[i]);
        if (!given)
            rc = bench_put(&p->more, key[i], p->number[i], false, err);
    }
    return rc;
}

/* Which role a kind's word means; SEAM_N_ROLES: none. */
static enum seam_role bench_role(const char *word)
{
    static const char *const brief[SEAM_N_ROLES] = { "backend", "linear",
                                                     "sparse", "moe",
                                                     "parser" };

    for (int r = 0; r < SEAM_N_ROLES; r++)
        if (!strcmp(word, brief[r]) || !strcmp(word, seam_role_name[r]))
            return (enum seam_role)r;
    return SEAM_N_ROLES;
}

/* Files are absolute for the loader, whatever they are called here. */
static int bench_files(struct cli_bench *b, struct seam_error *err)
{
    for (int i = 0; i < 3; i++) {
        if (!b->plugin[i] || !strchr(b->plugin[i], '/'))
            continue;
        b->file[i] = realpath(b->plugin[i], NULL);
        if (!b->file[i])
            return seam_fail_errno(err, SEAM_ENOENT, errno, "%s", b->plugin[i]);
        b->plugin[i] = b->file[i];
    }
    return 0;
}

/* What the one against is called where both plugins have one name: its file, if
 * that says more. */
static const char *bench_label(const struct cli_bench *b, const char *name,
                               char *text, size_t n)
{
    const char *slash = b->plugin[1] ? strrchr(b->plugin[1], '/') : NULL;
    const char *file = slash ? slash + 1 : name;
    size_t same = strlen(name);

    if (!strncmp(file, name, same) &&
        (!file[same] || !strcmp(file + same, ".so")))
        snprintf(text, n, "%s (2)", name);
    else
        snprintf(text, n, "%s", file);
    return text;
}

static int bench_kind_configs(struct cli_bench *b, const char *path,
                              struct bench_plugin p[3], struct seam_config c[3],
                              struct seam_log *log, struct seam_error *err)
{
    static const char *const preset[SEAM_N_ROLES] = { "cpu", "kda",
                                                      "sparse_mla",
                                                      "moe_resident", "glm47" };
    char reference[80];
    size_t n;
    int rc;

    if (!b->plugin[0])
        b->plugin[0] = preset[b->kind.role];
    rc = bench_files(b, err);
    if (rc)
        return rc;
    rc = bench_plugin_flags(b, b->plugin[0], &p[0], err);
    n = strlen(p[0].name);
    snprintf(reference, sizeof reference, "%s%s", p[0].name,
             n > 4 && !strcmp(p[0].name + n - 4, "_ref") ? "" : "_ref");
    if (!rc && b->plugin[1])
        rc = bench_plugin_flags(b, b->plugin[1], &p[1], err);
    if (!rc && b->plugin[1] && !strcmp(p[0].name, p[1].name))
        b->kind.label =
            bench_label(b, p[1].name, p[1].label, sizeof p[1].label);
    if (!rc)
        rc = bench_plugin_flags(b, b->plugin[2] ? b->plugin[2] : reference,
                                &p[2], err);
    for (int i = 0; i < 3 && !rc; i++) {
        if (i == 1 && !b->plugin[1])
            continue;
        rc = bench_room(b, &p[i], err);
        if (!rc)
            rc = bench_config(b, &p[i].more, path, &c[i], log, err);
        b->kind.config[i] = &c[i];
    }
    return rc;
}

static int bench_kind(struct cli_bench *b, enum seam_role role)
{
    struct bench_plugin *p = calloc(3, sizeof *p);
    struct seam_config c[3] = { { 0 }, { 0 }, { 0 } };
    struct seam_log log;
    struct seam_error err;
    char *path = NULL;
    int rc;

    if (b->dir) {
        free(p);
        return seam_cli_usage("bench", "unexpected argument", b->dir);
    }
    b->kind.role = role;
    b->kind.shape =
        b->shape || !b->common.file ? bench_shape(b) : b->common.file;
    b->kind.log = &log;
    b->kind.runs = b->model.runs;
    b->kind.distinct = b->model.distinct;
    b->kind.read_bytes = b->model.read_bytes;
    b->kind.json = b->model.json;
    b->kind.html = b->model.html;
    b->kind.svg = b->model.svg;
    rc = p ? bench_model_path(b, &path, &err)
           : seam_fail(&err, SEAM_ENOMEM, "out of memory");
    if (!rc)
        rc = bench_kind_configs(b, path, p, c, &log, &err);
    if (!rc)
        rc = seam_bench_kind_run(&b->kind, &err);
    for (int i = 0; i < 3; i++)
        seam_config_release(&c[i]);
    for (int i = 0; i < 3; i++)
        free(b->file[i]);
    free(path);
    free(p);
    return rc ? seam_cli_fail(&err) : 0;
}

int seam_cli_bench(int argc, char **argv)
{
    struct cli_bench b = {
        .seed = 1,
        .kind = { .tokens = { { 1, 512 }, 2 },
                  .context = { { 0 }, 1 },
                  .seqs = { { 1 }, 1 },
                  .run_us = 50000,
                  .check_tokens = 8,
                  .check_context = 40,
                  .limit = 0.02 },
        .model = { .n_decode = 32,
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
    if (!strcmp(argv[0], "serve"))
        return bench_serve(argc - 1, argv + 1);
    rc = bench_args(&b, argc - 1, argv + 1);
    if (!rc && !strcmp(argv[0], "make"))
        rc = bench_make(&b);
    else if (!rc && !strcmp(argv[0], "model"))
        rc = bench_model(&b);
    else if (!rc && bench_role(argv[0]) != SEAM_N_ROLES)
        rc = bench_kind(&b, bench_role(argv[0]));
    else if (!rc && !strcmp(argv[0], "attention"))
        rc = seam_cli_usage("bench", "expected linear or sparse, not", argv[0]);
    else if (!rc)
        rc = seam_cli_usage("bench", "there is nothing to bench called",
                            argv[0]);
    seam_cli_opts_release(&b.common);
    seam_cli_opts_release(&b.versus);
    return rc;
}
