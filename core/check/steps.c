/* Groups memory, graph, numbers, state and errors of the kinds attention and
 * moe: steps of one layer, by the driver and the checks of block.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/check/suite.h"

/* Results that may differ in their last digits, of outputs about one. */
#define LOOSE 2e-4
/* Normalised error against the reference, F32. */
#define LIMIT_F32 1e-4
/* In a few tokens of a plugin with planes: of numbers kept rounded, one beside a
 * tie may become the other neighbour. */
#define LIMIT_RARE 2e-3

static struct tb *made(const struct ck_subject *s, struct th *h,
                       const char *plugin, const struct world *w)
{
    struct tb_opts o = {
        .plugin = plugin,
        .n_layers = w->n_layers,
        .d = w->d,
        .max_seqs = 4,
        .max_tokens = 120,
        .max_context = 160,
        .max_draft = 3,
    };
    struct seam_error err = { 0 };
    struct tb *b;

    (void)s;
    ck_require("E5", !tb_new(&b, h, &o, &err), "create, needs or attach: %s",
               err.text);
    return b;
}

/* The checks of block.h for the plugin, which asks once whether it claims that
 * rows are independent of each other to the last bit. */
static struct check check_of(const struct ck_subject *s, struct world *w)
{
    struct check c = {
        .plugin = CK_PLUGIN,
        .w = w,
        .limit = LIMIT_F32,
        .loose = LOOSE,
        .quick = true,
    };
    struct tb *b;

    c.h = ck_world(s, w);
    b = made(s, c.h, CK_PLUGIN, w);
    c.same = b->needs.flags & SEAM_NEEDS_ROW_INVARIANT ? 0 : LOOSE;
    tb_free(b);
    return c;
}

/* ---- Memory -------------------------------------------------------------- */

static float *input(const struct world *w, uint64_t seed, uint32_t n)
{
    return world_input(w, w->seed * 1000 + seed, n);
}

static float *room(const struct world *w, uint32_t n)
{
    float *y = calloc((size_t)n * w->d * w->n_layers + 1, sizeof *y);

    ck_own(y, "out of memory");
    return y;
}

/* Mixed steps; the driver looks at all that must not change. */
void ck_memory_steps(const struct ck_subject *s)
{
    static const uint32_t shape[][3] = {
        { 1, 0, 0 }, { 17, 2, 5 }, { 1, 1, 1 }, { 4, 33, 0 },
        { 1, 1, 4 }, { 3, 2, 1 },  { 0, 1, 0 },
    };
    struct world w = { .seed = 1, .n_layers = 2 };
    struct th *h = ck_world(s, &w);
    struct tb *b = made(s, h, CK_PLUGIN, &w);
    float *x = input(&w, 1, 40), *y = room(&w, 40);
    struct tb_seq q[3], *all[3] = { &q[0], &q[1], &q[2] };

    for (int32_t i = 0; i < 3; i++)
        tb_seq_new(b, &q[i], i + 1);
    for (uint32_t i = 0; i < sizeof shape / sizeof *shape; i++) {
        struct tb_part part[4];

        for (uint32_t k = 0; k < 3; k++)
            part[k] = (struct tb_part){ &q[k], shape[i][k], x, y };
        part[3] = (struct tb_part){ .n = i % 3 };
        b->tail_pad = i % 2;
        ck_require("E5", !tb_step(b, part, 4), "a step: %s", b->err.text);
        if (i % 2)
            ck_require("E5", !tb_commit(b, all, 3), "commit: %s", b->err.text);
    }
    tb_free(b);
    free(x), free(y);
}

/* ---- Graph --------------------------------------------------------------- */

struct snap {
    unsigned char *state;
    uint64_t bytes;
};

/* All planes and rows of layer 0, to go back to. */
static void snap(const struct tb *b, struct snap *at, bool back)
{
    uint64_t rows =
        b->state_bytes
            ? b->grant.n_state_rows *
                  (b->needs.state_copies ? b->needs.state_copies : 1) *
                  b->grant.state_stride
            : 0;
    uint64_t n = rows, k = 0;

    for (uint32_t p = 0; p < b->needs.n_planes; p++)
        n += b->grant.n_pages * b->grant.page_stride[p];
    if (!back) {
        at->state = malloc(n + 1);
        ck_own(at->state, "out of memory");
    }
    for (uint32_t p = 0; p <= b->needs.n_planes; p++) {
        bool is_state = p == b->needs.n_planes;
        uint64_t bytes =
            is_state ? rows : b->grant.n_pages * b->grant.page_stride[p];
        unsigned char *there =
            is_state ? rows ? b->state[0] : NULL : b->plane[p][0];

        if (bytes && back)
            memcpy(there, at->state + k, bytes);
        else if (bytes)
            memcpy(at->state + k, there, bytes);
        k += bytes;
    }
    if (back) {
        free(at->state);
        at->state = NULL;
    }
}

/* The same step again from the same state: the same bits.  Warm-up, and without
 * the host's copies of the arrays when the call can be captured. */
void ck_graph_repeat(const struct ck_subject *s)
{
    static const uint32_t width[] = { 1, 4, 17 };
    struct world w = { .seed = 1 };
    struct th *h = ck_world(s, &w);
    struct tb *b = made(s, h, CK_PLUGIN, &w);
    float *x = input(&w, 1, 60), *want = room(&w, 20), *y = room(&w, 60);

    for (uint32_t i = 0; i < 3; i++) {
        struct tb_seq q, before;
        struct snap at;

        tb_seq_new(b, &q, 1);
        ck_require("E5", !tb_run(b, &q, x, 33, y), "a step: %s", b->err.text);
        for (uint32_t how = 0; how < 4; how++) {
            if (how == 0) {
                /* Pages are taken before, so that both have the same. */
                ck_require("E5", !tb_run(b, &q, x, 1, y), "a step: %s",
                           b->err.text);
                before = q;
                snap(b, &at, false);
                ck_require("E5", !tb_run(b, &q, x, width[i], want),
                           "a step: %s", b->err.text);
                snap(b, &at, true);
                q.len = before.len;
                q.n_accept = before.n_accept;
                q.width = before.width;
                continue;
            }
            snap(b, &at, false);
            b->exec_flags = how == 2 ? SEAM_EXEC_WARMUP : 0;
            b->no_host_arrays =
                how == 3 && (b->needs.capture & SEAM_CAP_FORWARD);
            ck_require("E5", !tb_run(b, &q, x, width[i], y), "a step: %s",
                       b->err.text);
            b->exec_flags = 0;
            b->no_host_arrays = false;
            snap(b, &at, true);
            q.len = before.len;
            q.n_accept = before.n_accept;
            q.width = before.width;
            ck_require(how == 2   ? "G5"
                       : how == 3 ? "G3"
                                  : "G6",
                       !memcmp(y, want, (size_t)width[i] * w.d * sizeof *y),
                       "%s gives other bits, %u tokens",
                       how == 2   ? "a warm-up"
                       : how == 3 ? "a step without host arrays"
                                  : "the same step again",
                       width[i]);
        }
        tb_seq_end(b, &q);
    }
    tb_free(b);
    free(x), free(want), free(y);
}

/* ---- Numbers ------------------------------------------------------------- */

/* y of a whole sequence by the reference, which is the oracle here. */
static void twin(const struct world *w, const struct th *h, uint32_t layer,
                 const float *x, uint32_t n, double *y)
{
    struct world one = *w;
    struct tb *b = made(NULL, (struct th *)(uintptr_t)h, CK_REFERENCE, &one);
    float *out = room(w, n);
    struct tb_seq q;

    (void)layer;
    tb_seq_new(b, &q, 0);
    ck_own(!tb_run(b, &q, x, n, out), "the reference: %s", b->err.text);
    for (size_t i = 0; i < (size_t)n * w->d; i++)
        y[i] = out[i];
    tb_free(b);
    free(out);
}

static void numbers(const struct ck_subject *s, struct world *w)
{
    struct check c = check_of(s, w);
    struct tb *b = made(s, c.h, CK_PLUGIN, w);

    c.oracle = twin;
    if (b->needs.n_planes)
        c.rare = LIMIT_RARE;
    tb_free(b);
    check_oracle(&c);
}

void ck_numbers_twin(const struct ck_subject *s)
{
    struct world w = { .seed = 2 };

    numbers(s, &w);
}

void ck_numbers_int4(const struct ck_subject *s)
{
    /* Linear layers need multiples of 8 and 32; heads as they come. */
    struct world w = { .seed = 3,
                       .d = 64,
                       .kda_heads = 8,
                       .kda_dim = 32,
                       .heads = 4,
                       .q_lora = 32,
                       .kv_lora = 32,
                       .nope = 8,
                       .v = 8,
                       .index_heads = 8,
                       .index_dim = 8,
                       .ff = 32,
                       .store = TH_GPTQ };

    numbers(s, &w);
}

/* ---- State --------------------------------------------------------------- */

#define STATE(name, call)                 \
    void name(const struct ck_subject *s) \
    {                                     \
        struct world w = { .seed = 4 };   \
        struct check c = check_of(s, &w); \
                                          \
        call;                             \
    }

STATE(ck_state_padding, check_padding(&c))
STATE(ck_state_cuts, check_cuts(&c))
STATE(ck_state_accept, check_accept(&c))
STATE(ck_state_tenant, check_tenant(&c))
STATE(ck_state_random, check_random(&c, s->seed + 1, 60))

/* Committed bytes, copied out, put into another row after a disturbance, go on
 * as if nothing had happened, to the last bit. */
void ck_state_snapshot(const struct ck_subject *s)
{
    static const uint32_t length[] = { 1, 3, 4, 15, 16, 17, 33 };
    struct world w = { .seed = 5 };
    struct th *h = ck_world(s, &w);
    struct tb *b = made(s, h, CK_PLUGIN, &w);
    float *x = input(&w, 1, 60), *z = input(&w, 2, 60);
    float *want = room(&w, 60), *y = room(&w, 60);
    unsigned char *saved = malloc(b->state_bytes + 1);

    ck_own(saved, "out of memory");
    for (uint32_t i = 0; i < sizeof length / sizeof *length; i++)
        for (uint32_t keep = 1; keep <= 4; keep++) {
            uint32_t n = length[i], at;
            struct tb_seq q, *one = &q, other;

            tb_seq_new(b, &q, 1);
            ck_require("E5", !tb_run(b, &q, x, n, y), "%s", b->err.text);
            ck_require("E5", !tb_run(b, &q, x + n * w.d, 4, y), "%s",
                       b->err.text);
            tb_keep(&q, keep);
            ck_require("E5", !tb_commit(b, &one, 1), "%s", b->err.text);
            at = q.len;
            if (b->state_bytes)
                memcpy(saved, tb_state(b, 0, q.row, 0), b->state_bytes);
            ck_require("E5", !tb_run(b, &q, x + at * w.d, 7, want), "%s",
                       b->err.text);
            tb_seq_new(b, &other, 0);
            ck_require("E5", !tb_run(b, &other, z, 40, y), "%s", b->err.text);
            tb_seq_end(b, &other);
            /* Back, in a row that held garbage. */
            for (uint32_t k = 0; b->state_bytes && k < b->needs.state_copies;
                 k++)
                memset(tb_state(b, 0, 2, k), 0xff, b->state_bytes);
            if (b->state_bytes)
                memcpy(tb_state(b, 0, 2, 0), saved, b->state_bytes);
            q.row = 2;
            q.len = at;
            q.n_accept = 0;
            q.width = 0;
            ck_require("E5", !tb_run(b, &q, x + at * w.d, 7, y), "%s",
                       b->err.text);
            ck_require("S4", !memcmp(y, want, (size_t)7 * w.d * sizeof *y),
                       "restored after %u tokens, %u of 4 kept: other bits", n,
                       keep);
            tb_seq_end(b, &q);
        }
    tb_free(b);
    free(x), free(z), free(want), free(y), free(saved);
}

/* ---- Errors -------------------------------------------------------------- */

/* Arguments that cannot be: a code and a line, no crash. */
void ck_errors_block(const struct ck_subject *s)
{
    struct world w = { .seed = 6 };
    struct th *h = ck_world(s, &w);
    struct tb *b = made(s, h, CK_PLUGIN, &w);
    float *x = input(&w, 1, 4), *y = room(&w, 4);

    for (uint32_t i = 0; i < 4; i++) {
        static const char *const what[] = { "a layer that does not exist",
                                            "x of another dtype",
                                            "x of another width",
                                            "y of another dtype" };
        struct tb_seq q;
        int rc;

        tb_seq_new(b, &q, 0);
        b->bend = i + 1;
        memset(&b->err, 0, sizeof b->err);
        rc = tb_run(b, &q, x, 3, y);
        b->bend = 0;
        ck_require("E5", rc < 0 && rc >= SEAM_ESTATE && b->err.code == rc,
                   "%s: forward returned %d and left code %d", what[i], rc,
                   b->err.code);
        ck_require("E5",
                   b->err.text[0] && memchr(b->err.text, 0, sizeof b->err.text),
                   "%s: forward left no text", what[i]);
        tb_seq_end(b, &q);
    }
    tb_free(b);
    free(x), free(y);
}
