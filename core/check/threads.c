/* Group threads: the calls that the ABI allows at the same time, made at the same
 * time; calls from one thread and another; tasks in any order on any worker.
 * The results are, bit for bit, those of the same calls one after the other.
 *
 * Threads that go in turns (CK_TURNS) change places in each function of the
 * host, so that what a plugin keeps outside its instance across one of them is
 * overwritten for certain.  Threads that run freely (CK_FREE) meet before each
 * step; what they find depends on luck, and on ThreadSanitizer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/check/hook.h"
#include "core/check/suite.h"

/* ---- A play: calls of one instance whose results are kept ---------------- */

enum { STEPS = 8, ROUNDS = 8, N_ROWS = 96, SEQS = 2 };

struct play {
    struct th *h;
    const struct world *w;
    float *x, *y;
    size_t n_y; /* floats written so far                                     */
    struct ck_mover *mover;
    /* attention and moe */
    struct tb *b;
    struct tb_seq q[SEQS];
    /* backend */
    struct ck_made m;
};

static size_t play_room(const struct play *p)
{
    return (size_t)STEPS * 64 * 128 * (p->w->n_layers + 1);
}

/* Tokens that each sequence brings to a step. */
static const uint32_t brings[STEPS][SEQS] = { { 5, 0 },  { 1, 3 }, { 16, 1 },
                                              { 1, 1 },  { 4, 4 }, { 1, 1 },
                                              { 33, 1 }, { 1, 2 } };

static void block_open(struct play *p)
{
    struct tb_opts o = {
        .plugin = CK_PLUGIN,
        .n_layers = p->w->n_layers,
        .d = p->w->d,
        .max_seqs = SEQS,
        .max_tokens = 64,
        .max_context = 128,
        .max_draft = 3,
    };
    struct seam_error err = { 0 };

    ck_require("E5", !tb_new(&p->b, p->h, &o, &err),
               "create, needs or attach: %s", err.text);
    for (int32_t i = 0; i < SEQS; i++)
        tb_seq_new(p->b, &p->q[i], i);
}

static void block_step(struct play *p, uint32_t k)
{
    struct tb_part part[SEQS];
    struct tb_seq *all[SEQS];

    for (uint32_t i = 0; i < SEQS; i++) {
        part[i] = (struct tb_part){ .seq = &p->q[i],
                                    .n = brings[k][i],
                                    .x = p->x + (size_t)p->q[i].len * p->w->d,
                                    .y = p->y + p->n_y };
        all[i] = &p->q[i];
        p->n_y += (size_t)brings[k][i] * p->w->d * p->w->n_layers;
    }
    p->b->mover = p->mover;
    p->b->tail_pad = k % 2;
    ck_require("E5", !tb_step(p->b, part, SEQS), "a step: %s", p->b->err.text);
    if (k == 4)
        for (uint32_t i = 0; i < SEQS; i++)
            tb_keep(&p->q[i], 2 + i);
    if (k == 5)
        ck_require("E5", !tb_commit(p->b, all, SEQS), "commit: %s",
                   p->b->err.text);
}

/* ---- Backends ------------------------------------------------------------ */

static void backend_open(struct play *p)
{
    ck_made_init(&p->m, p->h, CK_PLUGIN);
    ck_require("E5", !p->m.p->create(&p->m.create, &p->m.self, &p->m.err),
               "create: %s", p->m.err.text);
    if (p->m.p->needs) {
        struct seam_needs n = { .size = sizeof n };
        struct seam_grant g = { .size = sizeof g };

        ck_require("E5",
                   !p->m.p->needs(p->m.self, &n, &p->m.err) &&
                       !p->m.p->attach(p->m.self, &g, &p->m.err),
                   "needs or attach: %s", p->m.err.text);
    }
}

struct op {
    struct play *p;
    const struct seam_gemm *gemm;
    const struct seam_sample *sample;
    const struct seam_tensor *x, *y; /* of norm, then of glu                  */
    const struct seam_tensor *norm;
    int rc;
};

static void op_run(void *arg)
{
    struct op *o = arg;
    struct ck_made *m = &o->p->m;
    const struct seam_backend *t = m->p->table;
    struct seam_exec e = { .size = sizeof e, .device = -1, .err = &m->err };

    th_enter(m->h);
    if (o->gemm)
        o->rc = t->ops->gemm(m->self, &e, o->gemm);
    else if (o->sample)
        o->rc = t->ops->sample(m->self, &e, o->sample);
    else if (o->norm)
        o->rc = t->ops->norm(m->self, &e, o->x, o->norm, 1e-5f, o->y);
    else
        o->rc = t->ops->glu(m->self, &e, o->x, o->x, 1.5f, o->y);
    th_leave(m->h, "an operation");
}

static void op(struct op o)
{
    if (o.p->mover)
        ck_move(o.p->mover, op_run, &o);
    else
        op_run(&o);
    ck_require("E5", !o.rc, "an operation: %s", o.p->m.err.text);
}

/* Products with weights of every dtype, and what follows them. */
static void backend_step(struct play *p, uint32_t k)
{
    static const int64_t rows[STEPS] = { 1, 3, 17, 32, 2, 4, 31, 1 };
    static const char *const weight[] = { "gate", "experts.0.gate_proj",
                                          "experts.0.up_proj",
                                          "experts.1.gate_proj" };
    int64_t m = rows[k], d = p->w->d;
    const float *x = p->x + (size_t)(k * 8) * p->w->d;

    for (size_t i = 0; i < sizeof weight / sizeof *weight; i++) {
        float one[4] = { 1, 1, 1, 1 }, zero[4] = { 0 }, *y = p->y + p->n_y;
        uint64_t seed[4] = { k, 1, 2, 3 };
        int32_t all[4] = { 0 }, token[4];
        char name[96];
        struct seam_gemm g = { .size = sizeof g };
        struct seam_tensor in, out;
        struct seam_sample s = {
            .size = sizeof s,
            .n = (uint32_t)(m < 4 ? m : 4),
            .filter = { .temperature = one,
                        .top_p = one,
                        .min_p = zero,
                        .top_k = all,
                        .seed = seed,
                        .counter = seed },
            .token = token,
        };
        int64_t n;

        snprintf(name, sizeof name, "@layer.0.mlp.%s", weight[i]);
        g.w = th_find(p->h, name)->t;
        n = g.w.shape[0];
        g.x = th_view((float *)(uintptr_t)x, m, d, d);
        g.y = out = th_view(y, m, n, n);
        op((struct op){ .p = p, .gemm = &g });
        in = out;
        out = th_view(y + m * n, m, n, n);
        op((struct op){ .p = p, .x = &in, .y = &out });
        s.logits = th_view(y, s.n, n, n);
        op((struct op){ .p = p, .sample = &s });
        p->n_y += (size_t)(2 * m * n);
        for (uint32_t j = 0; j < s.n; j++)
            p->y[p->n_y++] = (float)token[j];
    }
}

/* ---- Either -------------------------------------------------------------- */

static bool is_backend(const struct ck_subject *s)
{
    return s->ident.kind == SEAM_KIND_BACKEND;
}

struct stage {
    const struct ck_subject *s;
    struct th *h;
    struct world w;
    enum ck_pace pace;
    float *want[2]; /* results of the players, one after the other           */
    size_t n_want;
    const char *label;
    char how[96];
};

static void play_new(const struct stage *g, struct play *p, uint32_t who)
{
    memset(p, 0, sizeof *p);
    p->h = g->h;
    p->w = &g->w;
    p->x = world_input(&g->w, g->s->seed * 100 + who, N_ROWS);
    p->y = calloc(play_room(p), sizeof *p->y);
    ck_own(p->y, "out of memory");
}

static void play_open(const struct stage *g, struct play *p)
{
    if (is_backend(g->s))
        backend_open(p);
    else
        block_open(p);
}

static void play_step(const struct stage *g, struct play *p, uint32_t k)
{
    if (is_backend(g->s))
        backend_step(p, k);
    else
        block_step(p, k);
}

static void play_close(struct play *p)
{
    tb_free(p->b);
    p->b = NULL;
    if (p->m.self && p->m.p->quiesce)
        p->m.p->quiesce(p->m.self);
    ck_made_destroy(&p->m);
}

static void play_free(struct play *p)
{
    play_close(p);
    free(p->x);
    free(p->y);
}

static void play_all(const struct stage *g, struct play *p)
{
    play_open(g, p);
    for (uint32_t k = 0; k < STEPS; k++)
        play_step(g, p, k);
    play_close(p);
}

/* What player `who` computed is what it computes alone. */
static void compare(const struct stage *g, const struct play *p, uint32_t who)
{
    for (size_t i = 0; i < p->n_y && i < g->n_want; i++)
        ck_require(g->label, !memcmp(&p->y[i], &g->want[who][i], sizeof *p->y),
                   "other bits %s: value %zu is %.9g, was %.9g", g->how, i,
                   (double)p->y[i], (double)g->want[who][i]);
}

static void stage_open(struct stage *g, const struct ck_subject *s,
                       uint32_t workers, const char *label)
{
    memset(g, 0, sizeof *g);
    g->s = s;
    g->label = label;
    g->w = (struct world){ .seed = 7, .n_layers = 2 };
    g->h = ck_world(s, &g->w);
    g->h->n_workers = g->h->host.n_workers = workers;
    g->h->dealer.s = s->seed;
    for (uint32_t i = 0; i < 2; i++) {
        struct play p;

        play_new(g, &p, i);
        play_all(g, &p);
        g->want[i] = p.y;
        g->n_want = p.n_y;
        p.y = NULL;
        play_free(&p);
    }
}

static void stage_close(struct stage *g)
{
    free(g->want[0]);
    free(g->want[1]);
}

/* ---- Tasks --------------------------------------------------------------- */

static void tasks(const struct ck_subject *s, uint32_t workers)
{
    static const struct {
        enum th_deal deal;
        const char *how;
        uint32_t times;
    } way[] = {
        { TH_BACKWARDS, "with tasks in reversed order", 1 },
        { TH_SHUFFLED, "with tasks in random order on random workers", 3 },
        { TH_FIRST, "with all tasks on worker 0", 1 },
        { TH_LAST, "with all tasks on the last worker", 1 },
        { TH_TURNS, "with tasks on threads, in turns", 2 },
        { TH_FREE, "with tasks on threads, freely", 2 },
    };
    struct stage g;

    stage_open(&g, s, workers, "T7");
    for (size_t i = 0; i < sizeof way / sizeof *way; i++)
        for (uint32_t k = 0; k < way[i].times; k++) {
            struct play p;

            snprintf(g.how, sizeof g.how, "%s, of %u", way[i].how, workers);
            g.h->deal = way[i].deal;
            play_new(&g, &p, 0);
            play_all(&g, &p);
            compare(&g, &p, 0);
            play_free(&p);
        }
    stage_close(&g);
}

void ck_threads_tasks(const struct ck_subject *s)
{
    tasks(s, 3);
}

/* More workers than most calls have tasks. */
void ck_threads_workers(const struct ck_subject *s)
{
    tasks(s, 16);
}

/* ---- Moved --------------------------------------------------------------- */

void ck_threads_moved(const struct ck_subject *s)
{
    struct stage g;

    stage_open(&g, s, 3, "T3");
    for (uint32_t how = 0; how < 3; how++) {
        struct play p;

        snprintf(g.how, sizeof g.how, "when %s",
                 how ? "two threads call in irregular turns"
                     : "each call comes from a new thread");
        play_new(&g, &p, 0);
        p.mover = ck_mover_new(!how, s->seed + how);
        play_all(&g, &p);
        compare(&g, &p, 0);
        ck_mover_free(p.mover);
        play_free(&p);
    }
    stage_close(&g);
}

/* ---- Instances ----------------------------------------------------------- */

struct couple {
    const struct stage *g;
    struct play p[2];
    bool making; /* the second makes and ends an instance again and again    */
};

static void couple_act(void *arg, uint32_t i)
{
    struct couple *c = arg;

    for (uint32_t k = 0; k < STEPS; k++) {
        ck_meet();
        if (!i || !c->making) {
            play_step(c->g, &c->p[i], k);
            continue;
        }
        play_open(c->g, &c->p[i]);
        play_close(&c->p[i]);
    }
}

/* Calls of control are one at a time in a process, so that of what steps there
 * all is made before and ended after. */
static void couple(struct stage *g, bool making, enum ck_pace pace,
                   uint64_t seed)
{
    struct couple c = { .g = g, .making = making };

    snprintf(g->how, sizeof g->how, "while another instance %s, %s",
             making ? "is made and ended" : "steps",
             pace == CK_TURNS ? "in turns" : "freely");
    for (uint32_t i = 0; i < 2; i++) {
        play_new(g, &c.p[i], i);
        if (!i || !making)
            play_open(g, &c.p[i]);
    }
    ck_hook_beside(making);
    ck_together(2, pace, seed, couple_act, &c);
    ck_hook_beside(false);
    for (uint32_t i = 0; i < 2; i++) {
        compare(g, &c.p[i], i);
        play_free(&c.p[i]);
    }
}

void ck_threads_instances(const struct ck_subject *s)
{
    struct stage g;

    stage_open(&g, s, 3, "T1");
    for (uint32_t round = 0; round < ROUNDS; round++)
        for (uint32_t making = 0; making < 2; making++) {
            couple(&g, making, CK_TURNS, s->seed + round);
            couple(&g, making, CK_FREE, 0);
        }
    stage_close(&g);
}
