#include "core/check/block.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/check/drive.h"
#include "core/check/finding.h"

enum { LONG = 160 }; /* tokens of the longest sequence here */

#define CALL(b, call)                                                         \
    do {                                                                      \
        int rc_ = (call);                                                     \
                                                                              \
        ck_require("E5", !rc_, "%s: code %d: %s", #call, rc_, (b)->err.text); \
    } while (0)

static uint32_t draft_of(const struct check *c)
{
    return c->max_draft ? c->max_draft : 3;
}

static struct tb *block(const struct check *c)
{
    struct tb_opts o = {
        .plugin = c->plugin,
        .d = c->w->d,
        .max_seqs = 6,
        .max_tokens = LONG + 40,
        .max_context = LONG + 16,
        .max_draft = draft_of(c),
        .page_tokens = c->page_tokens,
    };
    struct seam_error err = { 0 };
    struct tb *b;
    int rc = tb_new(&b, c->h, &o, &err);

    ck_require("E5", !rc, "create, needs or attach: %s", err.text);
    return b;
}

static float *floats(size_t n)
{
    float *p = calloc(n + 1, sizeof *p);

    ck_own(p, "out of memory");
    return p;
}

/* y of a fresh sequence in one step. */
static float *plain(const struct check *c, const float *x, uint32_t n)
{
    struct tb *b = block(c);
    struct tb_seq s;
    float *y = floats((size_t)n * c->w->d);

    tb_seq_new(b, &s, 1);
    CALL(b, tb_run(b, &s, x, n, y));
    tb_free(b);
    return y;
}

/* Fails with `label` unless n rows agree.  What differs only in the last digits
 * is a broken promise of another kind. */
static void agree(const struct check *c, const char *label, const float *got,
                  const float *want, uint32_t n, const char *fmt, ...)
    __attribute__((format(printf, 6, 7)));
static void agree(const struct check *c, const char *label, const float *got,
                  const float *want, uint32_t n, const char *fmt, ...)
{
    double worst = th_diff(got, want, (uint64_t)n * c->w->d);
    char what[256];
    va_list ap;

    if (worst <= c->same)
        return;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    ck_fail(worst <= c->loose ? "S6" : label,
            "%s: %s: differs by %g, allowed %g", c->plugin, what, worst,
            c->same);
}

static void run(struct tb *b, struct tb_seq *s, const float *x, uint32_t n,
                float *y)
{
    CALL(b, tb_run(b, s, x, n, y));
}

/* ---- Against the oracle -------------------------------------------------- */

void check_oracle(const struct check *c)
{
    static const uint32_t length[] = { 1,  2,  3,  4,  5,  7,  8,  9,  15, 16,
                                       17, 18, 19, 20, 31, 32, 33, 40, 100 };
    float *x = world_input(c->w, 1, 100);
    double *want = calloc(100 * (size_t)c->w->d, sizeof *want);
    uint32_t above = 0, all = 0;

    ck_own(want, "out of memory");
    c->oracle(c->w, c->h, 0, x, 100, want);
    for (uint32_t i = 0; i < sizeof length / sizeof *length; i++) {
        float *y = plain(c, x, length[i]);

        for (uint32_t t = 0; t < length[i]; t++) {
            size_t at = (size_t)t * c->w->d;
            double e = th_error(y + at, want + at, c->w->d);

            ck_require("N1", e < (c->rare > 0 ? c->rare : c->limit),
                       "%s: %u tokens: error %g at %u", c->plugin, length[i], e,
                       t);
            above += e >= c->limit;
        }
        all += length[i];
        free(y);
    }
    ck_require("N1", above * 10 <= all, "%s: error above %g in %u of %u tokens",
               c->plugin, c->limit, above, all);
    free(x);
    free(want);
}

/* ---- Cuts ---------------------------------------------------------------- */

void check_cuts(const struct check *c)
{
    static const uint32_t chunk[] = { 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 33 };
    enum { N = 70 };
    uint32_t d = c->w->d;
    float *x = world_input(c->w, 2, N), *want = plain(c, x, N);
    float *y = floats((size_t)N * d);
    struct tb *b = block(c);
    struct tb_seq s;

    for (uint32_t i = 0; i < sizeof chunk / sizeof *chunk; i++) {
        tb_seq_new(b, &s, 0);
        for (uint32_t t = 0; t < N; t += chunk[i]) {
            uint32_t n = N - t < chunk[i] ? N - t : chunk[i];

            run(b, &s, x + (size_t)t * d, n, y + (size_t)t * d);
        }
        agree(c, "S2", y, want, N, "chunks of %u", chunk[i]);
        tb_seq_end(b, &s);
    }
    for (uint32_t i = 2; i < 2 * N; i++) {
        uint32_t cut = i % N ? i % N : 1;
        bool commit = i >= N;
        struct tb_seq *one = &s;

        tb_seq_new(b, &s, 2);
        run(b, &s, x, cut, y);
        if (commit)
            CALL(b, tb_commit(b, &one, 1));
        run(b, &s, x + (size_t)cut * d, N - cut, y + (size_t)cut * d);
        agree(c, commit ? "S4" : "S2", y, want, N, "cut at %u%s", cut,
              commit ? " and committed" : "");
        tb_seq_end(b, &s);
    }
    tb_free(b);
    free(x), free(want), free(y);
}

/* ---- Acceptance ---------------------------------------------------------- */

/* A sequence that knows what is true. */
struct walk {
    const struct check *c;
    struct tb *b;
    struct tb_seq s;
    const float *x, *want; /* [LONG][d]                                      */
    float *in, *out;       /* [LONG][d]                                      */
    struct th_rng r;
    const char *label;
};

/* One step of w tokens of which only the first a are true; those are compared
 * and kept. */
static void walk_step(struct walk *k, uint32_t w, uint32_t a, const char *what)
{
    uint32_t d = k->c->w->d, at = k->s.len;

    memcpy(k->in, k->x + (size_t)at * d, (size_t)a * d * sizeof *k->in);
    for (size_t i = (size_t)a * d; i < (size_t)w * d; i++)
        k->in[i] = (float)(3 * th_normal(&k->r));
    run(k->b, &k->s, k->in, w, k->out);
    agree(k->c, k->label, k->out, k->want + (size_t)at * d, a, "%s, at %u",
          what, at);
    tb_keep(&k->s, a);
}

static void walk_tail(struct walk *k, uint32_t tail, const char *what)
{
    uint32_t w = 1 + draft_of(k->c);

    switch (tail) {
    case 0:
        for (uint32_t i = 0; i < 5; i++)
            walk_step(k, 1, 1, what);
        break;
    case 1:
        walk_step(k, w, 1, what);
        walk_step(k, w, w - (w > 1), what);
        walk_step(k, 1, 1, what);
        walk_step(k, 1, 1, what);
        break;
    case 2:
        walk_step(k, 13, 13, what);
        walk_step(k, 1, 1, what);
        break;
    default:
        walk_step(k, w, w, what);
        walk_step(k, w + 1, w + 1, what);
        walk_step(k, w, 1, what);
        walk_step(k, 1, 1, what);
        break;
    }
}

void check_accept(const struct check *c)
{
    uint32_t d = c->w->d;
    float *x = world_input(c->w, 3, LONG), *want = plain(c, x, LONG);
    struct walk k = {
        .c = c,
        .b = block(c),
        .x = x,
        .want = want,
        .in = floats((size_t)LONG * d),
        .out = floats((size_t)LONG * d),
        .r = { 5 },
    };
    struct tb_seq *one = &k.s;

    for (uint32_t prefix = 0; prefix < 10; prefix += c->quick ? 3 : 1)
        for (uint32_t w = 1; w <= 1 + draft_of(c); w++)
            for (uint32_t a = 1; a <= w; a++)
                for (uint32_t tail = 0; tail < 8; tail++) {
                    char what[96];

                    snprintf(what, sizeof what,
                             "%u tokens, then %u of %u kept, tail %u", prefix,
                             a, w, tail);
                    k.label = tail < 4 ? "S3" : "S4";
                    tb_seq_new(k.b, &k.s, (int32_t)(tail % 4));
                    if (prefix)
                        walk_step(&k, prefix, prefix, what);
                    walk_step(&k, w, a, what);
                    if (tail >= 4)
                        CALL(k.b, tb_commit(k.b, &one, 1));
                    walk_tail(&k, tail % 4, what);
                    tb_seq_end(k.b, &k.s);
                }
    tb_free(k.b);
    free(x), free(want), free(k.in), free(k.out);
}

/* ---- Random steps -------------------------------------------------------- */

enum { SEQS = 4, ROWS = 8 };

struct actor {
    bool alive;
    struct tb_seq s;
    uint32_t truth;       /* which true sequence it follows                 */
    unsigned char *saved; /* committed state, or NULL                       */
    uint32_t saved_len;
};

struct stage {
    const struct check *c;
    struct tb *b;
    struct th_rng r;
    float *x[SEQS], *want[SEQS];
    struct actor a[SEQS];
    bool row_taken[ROWS];
};

static int32_t stage_row(struct stage *g)
{
    for (;;) {
        uint32_t r = th_below(&g->r, ROWS);

        if (!g->row_taken[r]) {
            g->row_taken[r] = true;
            return (int32_t)r;
        }
    }
}

static void stage_end(struct stage *g, struct actor *a)
{
    g->row_taken[a->s.row] = false;
    tb_seq_end(g->b, &a->s);
    free(a->saved);
    memset(a, 0, sizeof *a);
}

static void stage_commit(struct stage *g, struct actor *a)
{
    struct tb_seq *s[3] = { NULL, &a->s, NULL };

    CALL(g->b, tb_commit(g->b, s, 3));
}

/* b becomes a copy of a, with pages of its own. */
static void stage_fork(struct stage *g, const struct actor *a, struct actor *b)
{
    tb_seq_new(g->b, &b->s, stage_row(g));
    b->alive = true;
    b->truth = a->truth;
    b->s.len = a->s.len;
    while (b->s.n_pages < a->s.n_pages) {
        int32_t from = a->s.page[b->s.n_pages];
        int32_t to = g->b->free_page[--g->b->n_free];

        for (uint32_t p = 0; p < g->b->needs.n_planes; p++)
            memcpy(
                g->b->plane[p][0] + (uint64_t)to * g->b->grant.page_stride[p],
                g->b->plane[p][0] + (uint64_t)from * g->b->grant.page_stride[p],
                g->b->plane_bytes[p]);
        b->s.page[b->s.n_pages++] = to;
    }
    if (g->b->state_bytes)
        memcpy(tb_state(g->b, 0, b->s.row, 0), tb_state(g->b, 0, a->s.row, 0),
               g->b->state_bytes);
}

static void stage_save(struct stage *g, struct actor *a)
{
    free(a->saved);
    a->saved = malloc(g->b->state_bytes + 1);
    ck_own(a->saved, "out of memory");
    a->saved_len = a->s.len;
    if (g->b->state_bytes)
        memcpy(a->saved, tb_state(g->b, 0, a->s.row, 0), g->b->state_bytes);
}

/* Back to what was saved, in another row; the planes are merely cut. */
static void stage_restore(struct stage *g, struct actor *a)
{
    int32_t row = stage_row(g);

    g->row_taken[a->s.row] = false;
    a->s.row = row;
    a->s.len = a->saved_len;
    a->s.n_accept = 0;
    a->s.width = 0;
    for (uint32_t k = 0; g->b->state_bytes && k < g->b->needs.state_copies; k++)
        memset(tb_state(g->b, 0, row, k), 0xff, g->b->state_bytes);
    if (g->b->state_bytes)
        memcpy(tb_state(g->b, 0, row, 0), a->saved, g->b->state_bytes);
}

static void stage_step(struct stage *g)
{
    struct tb_part part[2 * SEQS + 1];
    struct actor *who[2 * SEQS + 1];
    uint32_t keep[2 * SEQS + 1], n = 0, d = g->c->w->d;
    uint32_t w1 = 1 + draft_of(g->c), first = th_below(&g->r, SEQS);

    memset(part, 0, sizeof part);
    for (uint32_t i = 0; i < SEQS; i++) {
        struct actor *a = &g->a[(first + i) % SEQS];
        uint32_t w, k, room;
        float *in;

        if (th_below(&g->r, 3) == 0) {
            who[n] = NULL;
            part[n++] = (struct tb_part){ .n = th_below(&g->r, 3) };
        }
        if (!a->alive || th_below(&g->r, 4) == 0)
            continue;
        w = k = 1 + th_below(&g->r, th_below(&g->r, 3) ? w1 : 19);
        room = LONG - a->s.len;
        if (w > room)
            w = k = room;
        if (w <= w1)
            k = 1 + th_below(&g->r, w);
        in = floats((size_t)w * d);
        memcpy(in, g->x[a->truth] + (size_t)a->s.len * d,
               (size_t)k * d * sizeof *in);
        for (size_t j = (size_t)k * d; j < (size_t)w * d; j++)
            in[j] = (float)(3 * th_normal(&g->r));
        who[n] = a;
        keep[n] = k;
        part[n++] = (struct tb_part){
            .seq = &a->s, .n = w, .x = in, .y = floats((size_t)w * d)
        };
    }
    g->b->tail_pad = th_below(&g->r, 3);
    if (n)
        CALL(g->b, tb_step(g->b, part, n));
    for (uint32_t i = 0; i < n; i++) {
        struct actor *a = who[i];
        uint32_t at;

        if (!a)
            continue;
        at = a->s.len - part[i].n;
        agree(g->c, "S2", part[i].y, g->want[a->truth] + (size_t)at * d,
              keep[i], "random step, sequence at %u, %u of %u kept", at,
              keep[i], part[i].n);
        tb_keep(&a->s, keep[i]);
        free((void *)(uintptr_t)part[i].x);
        free(part[i].y);
    }
}

/* Births, deaths, commits, forks, restores. */
static void stage_change(struct stage *g)
{
    struct actor *a = &g->a[th_below(&g->r, SEQS)];
    struct actor *b = &g->a[th_below(&g->r, SEQS)];

    if (!a->alive) {
        a->alive = true;
        a->truth = th_below(&g->r, SEQS);
        tb_seq_new(g->b, &a->s, stage_row(g));
        return;
    }
    switch (th_below(&g->r, 6)) {
    case 0:
        if (a->s.len > 20)
            stage_end(g, a);
        break;
    case 1:
        stage_commit(g, a);
        break;
    case 2:
        stage_commit(g, a);
        if (a != b && a->s.len) {
            if (b->alive)
                stage_end(g, b);
            stage_fork(g, a, b);
        }
        break;
    case 3:
        stage_commit(g, a);
        stage_save(g, a);
        break;
    case 4:
        if (a->saved)
            stage_restore(g, a);
        break;
    default:
        break;
    }
}

void check_random(const struct check *c, uint64_t seed, uint32_t steps)
{
    struct stage g = { .c = c, .b = block(c), .r = { seed } };

    ck_own(g.b->grant.n_state_rows >= ROWS, "%u rows", g.b->grant.n_state_rows);
    for (uint32_t i = 0; i < SEQS; i++) {
        g.x[i] = world_input(c->w, 100 + i, LONG);
        g.want[i] = plain(c, g.x[i], LONG);
    }
    for (uint32_t i = 0; i < steps; i++) {
        stage_change(&g);
        stage_step(&g);
        for (uint32_t k = 0; k < SEQS; k++)
            if (g.a[k].alive && g.a[k].s.len == LONG)
                stage_end(&g, &g.a[k]);
    }
    for (uint32_t i = 0; i < SEQS; i++) {
        if (g.a[i].alive)
            stage_end(&g, &g.a[i]);
        free(g.x[i]);
        free(g.want[i]);
    }
    tb_free(g.b);
}

/* ---- Previous tenant ----------------------------------------------------- */

void check_tenant(const struct check *c)
{
    static const uint32_t length[] = { 1, 2, 3, 17 };
    uint32_t d = c->w->d;
    float *xa = world_input(c->w, 7, 150), *xb = world_input(c->w, 8, 40);
    float *want = plain(c, xb, 40), *y = floats(150 * (size_t)d);
    struct tb *b = block(c);
    struct tb_seq s;

    for (uint32_t i = 0; i < 4; i++) {
        uint32_t n = length[i];

        tb_seq_new(b, &s, 3);
        for (uint32_t t = 0; t < 150; t += 50)
            run(b, &s, xa + (size_t)t * d, 50, y);
        tb_seq_end(b, &s);
        tb_seq_new(b, &s, 3);
        run(b, &s, xb, n, y);
        agree(c, "S5", y, want, n, "after another tenant, %u tokens", n);
        for (uint32_t t = n; t < n + 6; t++) {
            run(b, &s, xb + (size_t)t * d, 1, y);
            agree(c, "S5", y, want + (size_t)t * d, 1,
                  "after another tenant, at %u", t);
        }
        tb_seq_end(b, &s);
    }
    tb_free(b);
    free(xa), free(xb), free(want), free(y);
}

/* ---- Padding ------------------------------------------------------------- */

void check_padding(const struct check *c)
{
    /* Rows: padding, sequence A, padding, sequence B. */
    static const uint32_t shape[][4] = {
        { 14, 19, 0, 0 }, { 1, 32, 0, 0 }, { 0, 16, 1, 16 }, { 0, 20, 13, 0 },
        { 33, 0, 0, 0 },  { 0, 33, 0, 0 }, { 5, 1, 5, 1 },
    };
    uint32_t d = c->w->d;
    float *x = world_input(c->w, 9, 40), *want = plain(c, x, 40);
    float *bad = world_input(c->w, 10, 40);
    float *ya = floats(40 * (size_t)d), *yb = floats(40 * (size_t)d);
    struct tb *b = block(c);
    struct tb_seq s, t;

    for (uint32_t i = 0; i < sizeof shape / sizeof *shape; i++)
        for (uint32_t tail = 0; tail < 3; tail += 2) {
            struct tb_part part[4] = {
                { .n = shape[i][0] },
                { .seq = &s, .n = shape[i][1], .x = x, .y = ya },
                { .n = shape[i][2] },
                { .seq = &t, .n = shape[i][3], .x = x, .y = yb },
            };

            tb_seq_new(b, &s, 4);
            tb_seq_new(b, &t, 0);
            b->tail_pad = tail;
            CALL(b, tb_step(b, part, 4));
            agree(c, "S1", ya, want, shape[i][1], "padding shape %u, A", i);
            agree(c, "S1", yb, want, shape[i][3], "padding shape %u, B", i);
            tb_seq_end(b, &s);
            tb_seq_end(b, &t);
        }
    b->tail_pad = 0;
    /* A NaN on its way in, next to a sound sequence. */
    bad[5 * d + 1] = NAN;
    for (uint32_t i = 0; i < 2; i++) {
        struct tb_part part[2] = {
            { .seq = &s, .n = 20, .x = bad, .y = ya },
            { .seq = &t, .n = 20, .x = x, .y = yb },
        };

        tb_seq_new(b, &s, 4);
        tb_seq_new(b, &t, 0);
        CALL(b, tb_step(b, part, 2));
        agree(c, "N2", yb, want, 20, "next to a NaN");
        bool gone = true;

        for (uint32_t k = 0; k < d; k++)
            gone &= !isnan(ya[5 * d + k]);
        ck_require("N2", !gone, "%s: a NaN came out as numbers like any other",
                   c->plugin);
        tb_seq_end(b, &s);
        tb_seq_end(b, &t);
        tb_seq_new(b, &s, 4);
        run(b, &s, x, 40, ya);
        agree(c, "S5", ya, want, 40, "in the row and pages of a NaN");
        tb_seq_end(b, &s);
    }
    tb_free(b);
    free(x), free(want), free(bad), free(ya), free(yb);
}
