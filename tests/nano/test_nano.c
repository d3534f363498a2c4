/* The trained nano model against models/nano/REFERENCE.md, for both plugin sets
 * and both checkpoints: greedy continuations and perplexity. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "tests/support/rig.h"

#define N_GREEDY 64
/* What planes are kept as, and what the reference, which rounds nothing, allows
 * beside it. */
static const struct kept {
    const char *config;
    double margin; /* below it another token is no error */
    double top5;   /* of the first logits                */
} F32 = { "{\"kv_dtype\": \"f32\"}", 1e-3, 2e-4 },
  BF16 = { "{}", 2e-2, 2e-2 }; /* the default */

static void nano_open(struct rig *r, enum rig_set set, bool w4a16,
                      const struct kept *kept)
{
    const struct seam_flag flags[] = {
        { "model.max_context", "2048" },
        { "plugins.sparse_attention.config", kept->config },
    };

    rig_open(r, set, w4a16 ? "models/nano/w4a16" : "models/nano/bf16", flags,
             2);
}

/* ---- Greedy -------------------------------------------------------------- */

static uint32_t argmax(const float *l, uint32_t n)
{
    uint32_t best = 0;

    for (uint32_t i = 1; i < n; i++)
        if (l[i] > l[best])
            best = i;
    return best;
}

/* Continue one golden prompt; returns the tokens that were compared. */
static int greedy_row(struct rig *r, const json_t *row, const char *dtype,
                      const struct kept *kept, float *logits, double *worst)
{
    const char *id = json_string_value(json_object_get(row, "id"));
    const json_t *ids = json_object_get(row, "ids");
    const json_t *ref = json_object_get(row, dtype);
    const json_t *want = json_object_get(ref, "greedy");
    const json_t *margin = json_object_get(ref, "margins");
    const json_t *top5 = json_object_get(ref, "first_top5");
    uint32_t n = (uint32_t)json_array_size(ids), vocab = rig_vocab(r);
    int32_t *prompt = malloc(n * sizeof *prompt), token;
    struct rig_seq s;
    int compared = 0;

    cr_assert(n && json_array_size(want) == N_GREEDY);
    for (uint32_t i = 0; i < n; i++)
        prompt[i] = (int32_t)json_integer_value(json_array_get(ids, i));
    rig_seq_open(r, &s, 0, n + N_GREEDY);
    for (uint32_t at = 0; at < n; at += 256)
        rig_feed(r, &s, prompt + at, n - at < 256 ? n - at : 256, 1, logits);
    for (size_t k = 0; k < json_array_size(top5); k++) {
        const json_t *pair = json_array_get(top5, k);
        double e =
            fabs((double)logits[json_integer_value(json_array_get(pair, 0))] -
                 json_number_value(json_array_get(pair, 1)));

        *worst = e > *worst ? e : *worst;
        cr_expect_leq(e, kept->top5, "%s: first logits differ by %g", id, e);
    }
    for (int i = 0; i < N_GREEDY; i++) {
        int32_t expected =
            (int32_t)json_integer_value(json_array_get(want, (size_t)i));
        double m = json_number_value(json_array_get(margin, (size_t)i));

        token = (int32_t)argmax(logits, vocab);
        if (token != expected && m <= kept->margin)
            break;
        cr_expect_eq(token, expected,
                     "%s %s step %d: token %d, expected %d "
                     "(margin %g)",
                     id, dtype, i, token, expected, m);
        if (token != expected)
            break;
        compared++;
        rig_feed(r, &s, &token, 1, 1, logits);
    }
    rig_seq_close(&s);
    free(prompt);
    return compared;
}

static void greedy(enum rig_set set, bool w4a16, const struct kept *kept)
{
    FILE *f =
        fopen(SEAM_TEST_SOURCE_DIR "/models/nano/golden_greedy.jsonl", "r");
    struct seam_error err;
    struct rig r;
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    int rows = 0, compared = 0;
    double worst = 0;
    float *logits;

    cr_assert_not_null(f);
    nano_open(&r, set, w4a16, kept);
    logits = malloc(rig_vocab(&r) * sizeof *logits);
    while ((n = getline(&line, &cap, f)) > 0) {
        json_t *row = seam_json_parse(line, (size_t)n, "golden", 0, &err);

        cr_assert_not_null(row, "%s", err.text);
        compared +=
            greedy_row(&r, row, w4a16 ? "w4a16" : "bf16", kept, logits, &worst);
        rows++;
        json_decref(row);
    }
    printf("nano %-7s %-5s greedy: %d of %d tokens equal, first logits within "
           "%.2e\n",
           set ? "default" : "ref", w4a16 ? "w4a16" : "bf16", compared,
           rows * N_GREEDY, worst);
    cr_expect_eq(rows, 20);
    cr_expect_geq(compared, rows * N_GREEDY - N_GREEDY);
    free(logits);
    free(line);
    fclose(f);
    rig_close(&r);
}

Test(nano, default_greedy_bf16)
{
    greedy(RIG_DEFAULT, false, &F32);
}

Test(nano, default_greedy_w4a16)
{
    greedy(RIG_DEFAULT, true, &F32);
}

Test(nano, default_greedy_bf16_with_bf16_planes)
{
    greedy(RIG_DEFAULT, false, &BF16);
}

#ifdef SEAM_TEST_FULL

Test(nano, ref_greedy_bf16)
{
    greedy(RIG_REF, false, &F32);
}

Test(nano, ref_greedy_w4a16)
{
    greedy(RIG_REF, true, &F32);
}

/* ---- Perplexity ---------------------------------------------------------- */

#define PPL_ROWS 19
#define PPL_LEN  1024

static double row_nll(struct rig *r, const int32_t *id, float *logits)
{
    uint32_t vocab = rig_vocab(r);
    struct rig_seq s;
    double nll = 0;

    rig_seq_open(r, &s, 0, PPL_LEN);
    for (uint32_t at = 0; at < PPL_LEN; at += 256) {
        rig_feed(r, &s, id + at, 256, 256, logits);
        for (uint32_t i = 0; i < 256 && at + i + 1 < PPL_LEN; i++) {
            const float *l = logits + (size_t)i * vocab;
            float max = l[argmax(l, vocab)];
            double sum = 0;

            for (uint32_t v = 0; v < vocab; v++)
                sum += (double)expf(l[v] - max);
            nll += log(sum) + (double)max - (double)l[id[at + i + 1]];
        }
    }
    rig_seq_close(&s);
    return nll;
}

/* REFERENCE.md: the first 19 x 1024 tokens, each row on its own. */
static void perplexity(enum rig_set set, bool w4a16)
{
    double reference = w4a16 ? 11.3761 : 11.1888, nll = 0, ppl;
    struct seam_error err;
    struct seam_ids ids = { 0 };
    struct rig r;
    char *text;
    uint64_t n;
    float *logits;

    cr_assert_eq(seam_file_read(SEAM_TEST_SOURCE_DIR
                                "/models/nano/eval_text.txt",
                                1 << 20, &text, &n, &err),
                 0, "%s", err.text);
    nano_open(&r, set, w4a16, &F32);
    cr_assert_eq(seam_tokenizer_encode(r.rt->model.tokenizer, text, n, false,
                                       &ids, &err),
                 0, "%s", err.text);
    cr_assert_eq(ids.n, 20266);
    logits = malloc((size_t)256 * rig_vocab(&r) * sizeof *logits);
    for (uint32_t i = 0; i < PPL_ROWS; i++)
        nll += row_nll(&r, ids.v + i * PPL_LEN, logits);
    ppl = exp(nll / (PPL_ROWS * (PPL_LEN - 1)));
    printf("nano %-7s %-5s perplexity %.4f, reference %.4f\n",
           set ? "default" : "ref", w4a16 ? "w4a16" : "bf16", ppl, reference);
    cr_expect_float_eq(ppl, reference, reference * 1e-3,
                       "perplexity %g, "
                       "expected %g",
                       ppl, reference);
    free(logits);
    seam_ids_release(&ids);
    free(text);
    rig_close(&r);
}

Test(nano, default_perplexity_bf16)
{
    perplexity(RIG_DEFAULT, false);
}

Test(nano, default_perplexity_w4a16)
{
    perplexity(RIG_DEFAULT, true);
}

Test(nano, ref_perplexity_bf16)
{
    perplexity(RIG_REF, false);
}

Test(nano, ref_perplexity_w4a16)
{
    perplexity(RIG_REF, true);
}

#endif
