/* The example of the guide, driven as a server would drive it: random steps and
 * acceptance, padding, strided rows, long prefills, forks and restores. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tests/plugins/testhost.h"

enum { D = 24, LAYERS = 2, SEQS = 4, DRAFT = 3, LONGEST = 12, STEPS = 3000 };

static const float A = 0.75f;

/* One sequence, and what its state must be after each token of its last step;
 * the same in every layer, because all see the same x. */
struct seq {
    struct tb_seq at;
    float state[LONGEST + 1][D]; /* [0]: before the step                      */
};

static void seq_restart(struct tb *b, struct seq *q, int32_t row)
{
    tb_seq_new(b, &q->at, row);
    memset(q->state, 0, sizeof q->state);
}

/* Let n tokens of the last step stand. */
static void seq_keep(struct seq *q, uint32_t n)
{
    tb_keep(&q->at, n);
    memcpy(q->state[0], q->state[n], sizeof q->state[0]);
}

static void seq_commit(struct tb *b, struct seq *q)
{
    struct tb_seq *at = &q->at;

    cr_assert_eq(tb_commit(b, &at, 1), SEAM_OK);
    for (uint32_t l = 0; l < LAYERS; l++)
        cr_assert_eq(
            memcmp(tb_state(b, l, at->row, 0), q->state[0], sizeof q->state[0]),
            0, "committed state of layer %u", l);
}

/* What comes out of n tokens x, and the states on the way. */
static void seq_expect(struct seq *q, const float *x, uint32_t n)
{
    for (uint32_t t = 0; t < n; t++)
        for (uint32_t j = 0; j < D; j++)
            q->state[t + 1][j] = A * q->state[t][j] + (1 - A) * x[t * D + j];
}

Test(ema, equals_an_uninterrupted_run)
{
    struct th *h = th_new("{\"hidden_size\": 24}", "{\"a\": 0.75}");
    struct tb_opts opts = { .plugin = "ema",
                            .n_layers = LAYERS,
                            .d = D,
                            .max_seqs = SEQS,
                            .max_draft = DRAFT };
    static float x[SEQS][LONGEST * D], y[SEQS][LAYERS * LONGEST * D];
    static struct seq q[SEQS];
    struct th_rng rng = { 7 };
    struct seam_error err = { 0 };
    struct tb *b = NULL;
    uint64_t n_rows = 0, n_forks = 0, n_cuts = 0;

    cr_assert_eq(tb_new(&b, h, &opts, &err), SEAM_OK, "%s", err.text);
    for (uint32_t i = 0; i < SEQS; i++)
        seq_restart(b, &q[i], (int32_t)i);
    for (uint32_t step = 0; step < STEPS; step++) {
        struct tb_part part[SEQS];
        uint32_t n_parts = 0;

        b->tail_pad = th_below(&rng, 3);
        for (uint32_t i = 0; i < SEQS; i++) {
            uint32_t n =
                1 + th_below(&rng, th_below(&rng, 4) ? 1 + DRAFT : LONGEST);

            if (th_below(&rng, 5) == 0) { /* padding in its place */
                part[n_parts++] = (struct tb_part){ .n = n % 3 };
                continue;
            }
            if (q[i].at.len + n > 200) {
                tb_seq_end(b, &q[i].at);
                seq_restart(b, &q[i], (int32_t)i);
            }
            for (uint32_t k = 0; k < n * D; k++)
                x[i][k] = (float)th_normal(&rng);
            part[n_parts++] = (struct tb_part){ &q[i].at, n, x[i], y[i] };
        }
        cr_assert_eq(tb_step(b, part, n_parts), SEAM_OK, "%s", b->err.text);
        for (uint32_t i = 0; i < n_parts; i++) {
            uint32_t n = part[i].n, keep = n;

            if (!part[i].seq)
                continue;
            seq_expect(&q[i], x[i], n);
            for (uint32_t l = 0; l < LAYERS; l++)
                cr_assert_eq(memcmp(y[i] + l * n * D, q[i].state[1],
                                    n * D * sizeof(float)),
                             0, "step %u, sequence %u, layer %u", step, i, l);
            n_rows += n * LAYERS;
            if (n <= 1 + DRAFT)
                keep = 1 + th_below(&rng, n);
            n_cuts += keep < n;
            seq_keep(&q[i], keep);
            if (th_below(&rng, 6) == 0)
                seq_commit(b, &q[i]);
        }
        if (th_below(&rng, 10) == 0) { /* 1 goes on where 0 stands */
            seq_commit(b, &q[0]);
            tb_seq_end(b, &q[1].at);
            seq_restart(b, &q[1], 1);
            for (uint32_t l = 0; l < LAYERS; l++)
                memcpy(tb_state(b, l, 1, 0), tb_state(b, l, 0, 0),
                       D * sizeof(float));
            memcpy(q[1].state[0], q[0].state[0], sizeof q[0].state[0]);
            n_forks++;
        }
    }
    cr_expect_gt(n_rows, 20000, "%lu rows", (unsigned long)n_rows);
    cr_expect_gt(n_forks, 100);
    cr_expect_gt(n_cuts, 1000);
    tb_free(b);
    th_free(h);
}

Test(ema, refuses_what_it_cannot_do)
{
    struct tb_opts opts = { .plugin = "ema", .d = D };
    struct seam_error err = { 0 };
    struct tb *b = NULL;
    struct th *h = th_new("{\"hidden_size\": 24}", "{\"a\": \"much\"}");

    cr_expect_eq(tb_new(&b, h, &opts, &err), SEAM_EDATA);
    cr_expect_str_eq(err.text, "ema config: \"a\" must be a number");
    th_free(h);
    h = th_new("{}", NULL);
    cr_expect_eq(tb_new(&b, h, &opts, &err), SEAM_EDATA);
    cr_expect_str_eq(err.text, "model config: hidden_size missing");
    th_free(h);
}
