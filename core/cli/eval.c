/* seam eval ppl: how well the model, as configured, predicts a text.
 *
 * The text is cut into rows of --window tokens, each scored on its own; the
 * first token of a row is not scored, and a last row that is not full is left
 * out.  That is the convention of the reference figures of models/nano. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/base/num.h"
#include "core/cli/cli.h"
#include "core/engine/runtime.h"

#define EVAL_WINDOW    1024
#define EVAL_MAX_BYTES (1ull << 30)
/* Tokens of one step, and so rows of logits that have to be kept. */
#define EVAL_CHUNK 256

struct eval {
    struct seam_cli_opts common;
    const char *file;
    uint64_t window, max_rows; /* max_rows 0: all */
    bool json;

    struct seam_runtime *rt;
    struct seam_ids ids;
    int32_t *page; /* [of one window] */
    uint32_t n_pages, chunk;
    float *logits; /* [vocab] */

    double nll; /* natural logarithms, summed */
    uint64_t n_scored, n_bytes, n_rows;
};

/* -log p(id) under softmax of l [n]; infinite where a logit is not finite. */
static double eval_nll(const float *l, uint32_t n, int32_t id)
{
    double sum = 0;
    float max = -INFINITY;

    for (uint32_t i = 0; i < n; i++) {
        if (!isfinite(l[i]))
            return INFINITY;
        max = l[i] > max ? l[i] : max;
    }
    for (uint32_t i = 0; i < n; i++)
        sum += exp((double)(l[i] - max));
    return log(sum) + (double)max - (double)l[id];
}

static int eval_row(struct eval *v, const int32_t *id, struct seam_error *err)
{
    uint32_t vocab = seam_checkpoint_config(v->rt->model.checkpoint)->vocab;
    int32_t row[EVAL_CHUNK];
    struct seam_step_seq s = { .page = v->page, .n_pages = v->n_pages };
    int rc = seam_runtime_zero_row(v->rt, 0, err);

    for (uint32_t at = 0; !rc && at < v->window; at += s.n) {
        uint32_t left = (uint32_t)v->window - at;

        s.token = id + at;
        s.pos = at;
        s.n_accept = (int32_t)(at ? s.n : 0);
        s.n = left < v->chunk ? left : v->chunk;
        for (uint32_t i = 0; i < s.n; i++)
            row[i] = (int32_t)i;
        rc = seam_runtime_forward(v->rt, &s, 1, row, s.n, err);
        for (uint32_t i = 0; !rc && i < s.n && at + i + 1 < v->window; i++) {
            struct seam_str bytes = { 0 };
            int32_t next = id[at + i + 1];

            rc = seam_runtime_logits(v->rt, i, v->logits, err);
            if (rc)
                break;
            v->nll += eval_nll(v->logits, vocab, next);
            v->n_scored++;
            if (seam_tokenizer_bytes(v->rt->model.tokenizer, next, &bytes))
                v->n_bytes += bytes.n;
        }
    }
    v->n_rows += !rc;
    return rc;
}

static int eval_open(struct eval *v, const struct seam_config *c,
                     const struct seam_log *log, struct seam_error *err)
{
    struct seam_runtime_opts o = {
        .config = c,
        .log = log,
        .logit_rows = EVAL_CHUNK,
    };
    uint64_t n;
    char *text = NULL;
    int rc = seam_runtime_open(&v->rt, &o, err);

    if (rc)
        return rc;
    if (!v->rt->model.tokenizer)
        return seam_fail(err, SEAM_ENOENT, "%s: no tokenizer.json",
                         c->model.path);
    rc = seam_file_read(v->file, EVAL_MAX_BYTES, &text, &n, err);
    if (!rc)
        rc = seam_tokenizer_encode(v->rt->model.tokenizer, text, n, false,
                                   &v->ids, err);
    free(text);
    if (rc)
        return rc;
    if (v->window > v->rt->limits.max_context)
        return seam_fail(
            err, SEAM_EINVAL, "--window is %llu; the context holds %u tokens",
            (unsigned long long)v->window, v->rt->limits.max_context);
    if (v->ids.n < v->window)
        return seam_fail(err, SEAM_EINVAL,
                         "%s has %zu tokens; one row needs --window = %llu",
                         v->file, v->ids.n, (unsigned long long)v->window);
    v->n_pages =
        (uint32_t)((v->window + v->rt->page_tokens - 1) / v->rt->page_tokens);
    if (v->n_pages > v->rt->n_pages)
        return seam_fail(err, SEAM_ENOMEM,
                         "--window %llu needs %u pages; engine.cache_bytes "
                         "holds %u",
                         (unsigned long long)v->window, v->n_pages,
                         v->rt->n_pages);
    v->chunk = v->rt->limits.max_tokens < EVAL_CHUNK ? v->rt->limits.max_tokens
                                                     : EVAL_CHUNK;
    v->page = calloc(v->n_pages, sizeof *v->page);
    v->logits = calloc(seam_checkpoint_config(v->rt->model.checkpoint)->vocab,
                       sizeof *v->logits);
    if (!v->page || !v->logits)
        return seam_fail(err, SEAM_ENOMEM, "out of memory");
    for (uint32_t i = 0; i < v->n_pages; i++)
        v->page[i] = (int32_t)i;
    return 0;
}

static void eval_print(const struct eval *v, double seconds)
{
    double nll = v->nll / (double)v->n_scored;
    double bits = v->nll / log(2) / (double)(v->n_bytes ? v->n_bytes : 1);

    if (v->json)
        printf("{\"rows\": %llu, \"window\": %llu, "
               "\"tokens\": %llu, \"nll\": %.6f, \"perplexity\": %.6f, "
               "\"bits_per_byte\": %.6f, \"seconds\": %.3f}\n",
               (unsigned long long)v->n_rows, (unsigned long long)v->window,
               (unsigned long long)v->n_scored, nll, exp(nll), bits, seconds);
    else
        printf("%s: perplexity %.4f (%.5f nats a token, %.4f bits a byte)\n"
               "%llu rows of %llu tokens, %llu predictions, %.1f tokens/s\n",
               v->file, exp(nll), nll, bits, (unsigned long long)v->n_rows,
               (unsigned long long)v->window, (unsigned long long)v->n_scored,
               (double)(v->n_rows * v->window) / seconds);
}

static int eval_run(struct eval *v, const struct seam_config *c,
                    const struct seam_log *log)
{
    struct seam_error err;
    uint64_t start, rows;
    int rc;

    rc = eval_open(v, c, log, &err);
    start = seam_now_ns();
    rows = v->window ? v->ids.n / v->window : 0;
    if (v->max_rows && v->max_rows < rows)
        rows = v->max_rows;
    for (uint64_t i = 0; !rc && i < rows; i++)
        rc = eval_row(v, v->ids.v + i * v->window, &err);
    if (!rc && !isfinite(v->nll))
        rc = seam_fail(&err, SEAM_EDATA, "the model's output is not finite");
    if (rc)
        seam_cli_fail(&err);
    else
        eval_print(v, (double)(seam_now_ns() - start + 1) / 1e9);
    free(v->page);
    free(v->logits);
    seam_ids_release(&v->ids);
    seam_runtime_close(v->rt);
    return rc ? 1 : 0;
}

static int eval_args(struct eval *v, int argc, char **argv)
{
    struct seam_error err;

    if (!argc || strcmp(argv[0], "ppl"))
        return seam_cli_usage("eval", "expected ppl FILE, got",
                              argc ? argv[0] : "");
    for (int i = 1; i < argc; i++) {
        const char *next = i + 1 < argc ? argv[i + 1] : "";
        bool window = !strcmp(argv[i], "--window");
        int took = seam_cli_option(&v->common, argc, argv, &i, &err);

        if (took < 0)
            return seam_cli_fail(&err) + 1;
        if (took)
            continue;
        if (window || !strcmp(argv[i], "--rows")) {
            uint64_t *to = window ? &v->window : &v->max_rows;

            if (!seam_parse_u64(next, strlen(next), to) || *to < 1u + window ||
                *to > INT32_MAX)
                return seam_cli_usage("eval",
                                      window ? "--window needs a number of "
                                               "tokens from 2 on, not"
                                             : "--rows needs a number of rows "
                                               "from 1 on, not",
                                      next);
            i++;
        } else if (!strcmp(argv[i], "--json")) {
            v->json = true;
        } else if (argv[i][0] == '-' || v->file) {
            return seam_cli_usage("eval", "unexpected argument", argv[i]);
        } else {
            v->file = argv[i];
        }
    }
    if (!v->file)
        return seam_cli_usage("eval", "expected a text file, got", "");
    return 0;
}

int seam_cli_eval(int argc, char **argv)
{
    struct eval v = { .window = EVAL_WINDOW };
    struct seam_config c = { 0 };
    struct seam_log log;
    struct seam_error err;
    int rc = eval_args(&v, argc, argv);

    if (!rc && seam_cli_load(&v.common, &c, &log, &err))
        rc = seam_cli_fail(&err);
    if (!rc && log.level == SEAM_LOG_INFO)
        log.level = SEAM_LOG_WARN;
    if (!rc)
        rc = eval_run(&v, &c, &log);
    seam_config_release(&c);
    seam_cli_opts_release(&v.common);
    return rc;
}
