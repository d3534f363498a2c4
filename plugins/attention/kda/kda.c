/* kda - Kimi delta attention, docs/spec/glm5_next.md section 3, for the host's
 * processors in F32.
 *
 * The delta rule is computed in chunks (section 3.6) whose tokens are added one
 * by one: a token needs the matrix as it was at the beginning of its chunk and
 * the entries of the tokens since then, which the state keeps (kda_state.h).
 * Prompts and single tokens thus do the same sums in the same order, and a
 * result depends neither on how a prompt is cut nor on what else is in the
 * step.  A task is one head of one sequence; of a step of few tokens it reads
 * more than it computes, and what the next one needs is fetched meanwhile. */
#include <seam/plugin.h>

#include <math.h>
#include <string.h>

#include "kda_state.h"
#include "kern.h"

static const struct seam_host *host;

enum { MAX_CONV = 16, MAX_DIM = KERN_KEYS };
_Static_assert(KDA_CHUNK <= KERN_CHUNK, "a chunk is one call");
enum { Q = 0, K = 1, V = 2 }; /* channels of the convolution, in this order  */

struct layer {
    struct kern_mat proj[3];  /* [H * D, d]  q, k, v                          */
    struct kern_mat b;        /* [H, d]                                       */
    struct kern_mat f_a, f_b; /* [D, d], [H * D, D]                           */
    struct kern_mat g_a, g_b; /* the same                                     */
    struct kern_mat o;        /* [d, H * D]                                   */
    float *conv;              /* [n_conv][3 * H * D]                          */
    float *A;                 /* [H]         exp(A_log)                       */
    float *dt_bias;           /* [H * D]                                      */
    float *o_norm;            /* [D]                                          */
};

struct kda {
    const struct kern *k;
    uint32_t n_layers, max_tokens;
    uint32_t d, heads, dim, n_conv; /* dim: of a head, for keys and values    */
    struct kda_dims dims;           /* the same, for kda_state.h              */
    float lower_bound, eps;
    struct layer *layer;
    char *scratch; /* [n_workers] of KERN_SCRATCH bytes      */
    float *ahead;  /* [n_workers][dim][dim] a matrix that may be forgotten    */
    struct seam_grant g;
};

/* What one call keeps in ws; T is max_tokens, W heads * dim. */
struct work {
    float *u;      /* [T][3 W]    q | k | v: inputs, then convolved; the
                       outputs replace v                                      */
    float *b;      /* [T][heads]                                             */
    float *low;    /* [T][2 dim]  f_a, g_a                                   */
    float *f;      /* [T][W]      then the decay                             */
    float *go;     /* [T][W]                                                 */
    int32_t *live; /* [T]         at q_start of a sequence its rows that are
                       no padding, then -1                                    */
    /* of this call */
    const struct kda *m;
    const struct layer *l;
    uint32_t layer;
    const struct seam_step *step;
};

static uint64_t work_layout(const struct kda *m, void *ws, struct work *s)
{
    struct plug_arena a = { .p = ws };
    uint64_t t = m->max_tokens, w = (uint64_t)m->heads * m->dim;

    s->u = plug_take(&a, t * 3 * w, sizeof *s->u);
    s->b = plug_take(&a, t * m->heads, sizeof *s->b);
    s->low = plug_take(&a, t * 2 * m->dim, sizeof *s->low);
    s->f = plug_take(&a, t * w, sizeof *s->f);
    s->go = plug_take(&a, t * w, sizeof *s->go);
    s->live = plug_take(&a, t, sizeof *s->live);
    return a.used;
}

/* ---- State --------------------------------------------------------------- */

/* True when all of a step's n tokens stand. */
static bool lasting(const struct kda *m, uint32_t n)
{
    return n > 1 + m->dims.max_draft;
}

/* ---- One head of one sequence -------------------------------------------- */

struct head {
    const struct work *s;
    uint32_t h, n;      /* which head, how many tokens                    */
    const int32_t *tok; /* [n] their rows                                 */
    struct kda_state state;
    int32_t n_accept;
    uint64_t w;        /* heads * dim                                     */
    const float *next; /* the matrix that will be read after this one, or
                          NULL                                            */
};

/* Task i; false: no tokens. */
static bool head_find(const struct work *s, uint32_t i, struct head *p)
{
    const struct kda *m = s->m;
    uint32_t seq = i / m->heads, n;

    *p = (struct head){
        .s = s,
        .h = i % m->heads,
        .tok = s->live + s->step->q_start[seq],
        .n_accept = s->step->n_accept[seq],
        .w = (uint64_t)m->heads * m->dim,
    };
    n = (uint32_t)(s->step->q_start[seq + 1] - s->step->q_start[seq]);
    while (p->n < n && p->tok[p->n] >= 0)
        p->n++;
    if (p->n)
        p->state =
            kda_state_of(&m->dims, &m->g, s->layer, s->step->state_row[seq]);
    return p->n;
}

static float *matrix(const struct head *p)
{
    return p->state.S + (uint64_t)p->h * p->s->m->dim * p->s->m->dim;
}

static float *input(const struct head *p, uint32_t part, uint32_t j)
{
    return p->s->u + (uint64_t)p->tok[j] * 3 * p->w + part * p->w +
           (uint64_t)p->h * p->s->m->dim;
}

/* 3.2 in place, last token first because each needs the inputs before it.  The
 * inputs enter the window first; what they overwrite there of those that this
 * step needs is copied to hist [conv - 1][3][dim]. */
static void convolve(const struct head *p, float *hist)
{
    const struct kda *m = p->s->m;
    uint32_t past = m->n_conv - 1, dim = m->dim, turn = *p->state.turn;
    int32_t have = *p->state.n + p->n_accept;
    bool over = past + p->n > kda_window_rows(&m->dims);
    const float *tap[MAX_CONV];
    uint64_t ld = over ? dim : p->w; /* from channels to channels */

    for (uint32_t i = 0; i < past; i++) {
        tap[i] =
            kda_window(&m->dims, &p->state, turn, have + (int32_t)(i - past)) +
            (uint64_t)p->h * dim;
        for (uint32_t c = Q; over && c <= V; c++)
            memcpy(hist + (i * 3 + c) * dim, tap[i] + c * p->w,
                   dim * sizeof *hist);
        tap[i] = over ? hist + i * 3 * dim : tap[i];
    }
    for (uint32_t j = past && p->n > kda_window_rows(&m->dims) ? p->n - past
                                                               : 0;
         past && j < p->n; j++)
        for (uint32_t c = Q; c <= V; c++)
            memcpy(kda_window(&m->dims, &p->state, turn, have + (int32_t)j) +
                       c * p->w + (uint64_t)p->h * dim,
                   input(p, c, j), dim * sizeof *hist);
    for (uint32_t j = p->n; j-- > 0;)
        for (uint32_t c = Q; c <= V; c++) {
            const float *u[MAX_CONV];

            for (uint32_t i = 0; i <= past; i++)
                u[i] = j + i < past ? tap[j + i] + c * ld
                                    : input(p, c, j + i - past);
            m->k->conv(p->s->l->conv + c * p->w + (uint64_t)p->h * dim,
                       3 * p->w, u, m->n_conv, dim, input(p, c, j));
        }
}

/* 3.3: unit length, times scale. */
static void unit(const struct kern *k, float *v, uint32_t n, float scale)
{
    k->scale(v, scale / sqrtf(k->sum_squares(v, n) + 1e-6f), NULL, 0, n, v);
}

/* Entry j of one of the head's logs. */
static float *entry(const struct head *p, float *log, uint32_t j)
{
    return kda_entry(&p->s->m->dims, log, p->h, j);
}

/* Fold the chunk of the log that begins with entry j; D is its last decay. */
static void fold(const struct head *p, uint32_t j, const float *D,
                 const float *S, float *T)
{
    const struct kda *m = p->s->m;
    const float *key = entry(p, p->state.key, j);
    const float *delta = entry(p, p->state.delta, j);

    for (uint32_t e = 0; e < m->dim; e += KDA_COLUMNS)
        m->k->fold(S + kda_columns_at(m->dim, e), m->dim,
                   kda_columns(m->dim, e), D, key, delta + e, m->dim,
                   m->dims.chunk, T + kda_columns_at(m->dim, e));
}

/* Tokens [j, j + n) of the step, all of one chunk that begins with entry `from`
 * of the log and has i entries before them, when `turn` have been folded.  D
 * [dim] is the decay so far. */
static void chunk(const struct head *p, const float *S, uint32_t turn,
                  uint32_t from, uint32_t i, uint32_t j, uint32_t n, float *D)
{
    const struct work *s = p->s;
    const struct kda *m = s->m;
    uint32_t dim = m->dim;
    float *key = entry(p, p->state.key, from);
    float *delta = entry(p, p->state.delta, from);
    const float *x[2 * KDA_CHUNK];
    const void *keys[KDA_CHUNK];
    float dot[2 * KDA_CHUNK][KDA_CHUNK], *y[2 * KDA_CHUNK];
    struct kern_delta t[KDA_CHUNK];

    for (uint32_t c = 0; c < i + n; c++)
        keys[c] = key + (uint64_t)c * dim;
    for (uint32_t c = 0; c < n; c++) {
        float *q = input(p, Q, j + c), *k = input(p, K, j + c);
        uint64_t row = (uint64_t)p->tok[j + c];

        if (!(i + c))
            for (uint32_t d = 0; d < dim; d++)
                D[d] = 1;
        m->k->anchor(s->f + row * p->w + (uint64_t)p->h * dim, dim, D, q, k,
                     key + (uint64_t)(i + c) * dim);
        memcpy(kda_decay(&m->dims, &p->state, turn, p->h, from + i + c), D,
               dim * sizeof *D);
        x[2 * c] = k;
        x[2 * c + 1] = q;
        y[2 * c] = dot[2 * c];
        y[2 * c + 1] = dot[2 * c + 1];
        t[c] = (struct kern_delta){ .q = q,
                                    .k = k,
                                    .a = dot[2 * c],
                                    .b = dot[2 * c + 1],
                                    .v = input(p, V, j + c),
                                    .beta = s->b[row * m->heads + p->h] };
    }
    m->k->dot_rows(SEAM_F32, keys, i + n, dim, x, 2 * n, y);
    for (uint32_t e = 0; e < dim; e += KDA_COLUMNS) {
        const float *next = e + KDA_COLUMNS < dim
                                ? S + kda_columns_at(dim, e + KDA_COLUMNS)
                                : p->next;

        m->k->delta(S + kda_columns_at(dim, e), dim, kda_columns(dim, e), t, i,
                    n, delta + e, dim, next);
        for (uint32_t c = 0; c < n; c++)
            t[c].v += KDA_COLUMNS;
    }
}

/* 3.6; where values were, outputs are.  A chunk that ends within a step whose
 * tokens may be forgotten is folded beside the state. */
static void delta_rule(const struct head *p, uint32_t worker)
{
    const struct kda *m = p->s->m;
    uint32_t C = m->dims.chunk, from = 0, i, n;
    uint32_t have = (uint32_t)(*p->state.n + p->n_accept);
    uint32_t turn = *p->state.turn;
    float *S = matrix(p);
    float *T = m->ahead + (uint64_t)worker * m->dim * m->dim;
    float D[KERN_KEYS];

    T = lasting(m, p->n) ? S : T;
    for (; have >= C; have -= C) {
        fold(p, 0, kda_decay(&m->dims, &p->state, turn, p->h, C - 1), S, S);
        kda_state_drop(&m->dims, &p->state, p->h, have);
        turn += C;
    }
    if (have)
        memcpy(D, kda_decay(&m->dims, &p->state, turn, p->h, have - 1),
               m->dim * sizeof *D);
    i = have;
    for (uint32_t j = 0; j < p->n; j += n, i += n) {
        if (i == C) {
            fold(p, from, D, S, T);
            S = T;
            from += lasting(m, p->n) ? 0 : C;
            turn += lasting(m, p->n) ? C : 0;
            i = 0;
        }
        n = p->n - j < C - i ? p->n - j : C - i;
        chunk(p, S, turn, from, i, j, n, D);
    }
}

static void head_compute(const struct head *p, uint32_t worker)
{
    const struct work *s = p->s;
    const struct kda *m = s->m;
    uint32_t dim = m->dim;
    uint64_t at = (uint64_t)p->h * dim;
    float *hist = (float *)(m->scratch + (uint64_t)worker * KERN_SCRATCH);

    convolve(p, hist);
    for (uint32_t j = 0; j < p->n; j++) {
        float *beta = s->b + (uint64_t)p->tok[j] * m->heads + p->h;

        unit(m->k, input(p, Q, j), dim, 1 / sqrtf((float)dim));
        unit(m->k, input(p, K, j), dim, 1);
        m->k->decay(s->f + p->tok[j] * p->w + at, s->l->dt_bias + at,
                    s->l->A[p->h], m->lower_bound, dim);
        *beta = 1 / (1 + expf(-*beta));
    }
    delta_rule(p, worker);
    for (uint32_t j = 0; j < p->n; j++) {
        float *o = input(p, V, j), sum = m->k->sum_squares(o, dim);

        m->k->gated(o, 1 / sqrtf(sum / (float)dim + m->eps), s->l->o_norm,
                    s->go + p->tok[j] * p->w + at, dim, o);
    }
}

static void fetch(const float *p, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += 16)
        __builtin_prefetch(p + i);
}

/* What a task reads beside its matrix: some thirty pieces of a few cache lines,
 * which no processor foresees.  Waiting for each in turn takes half as long as
 * reading the matrix. */
static void head_fetch(const struct head *p)
{
    const struct kda *m = p->s->m;
    uint32_t past = m->n_conv - 1, turn = *p->state.turn, dim = m->dim;
    int32_t have = *p->state.n + p->n_accept;
    uint32_t rows = (uint32_t)have + p->n;
    uint64_t at = (uint64_t)p->h * dim;

    for (uint32_t i = 0; i <= past; i++)
        for (uint32_t c = Q; c <= V; c++) {
            if (past)
                fetch(kda_window(&m->dims, &p->state, turn,
                                 have + (int32_t)(i - past)) +
                          c * p->w + at,
                      dim);
            fetch(p->s->l->conv + (i * 3 + c) * p->w + at, dim);
        }
    for (uint32_t j = 0; j < p->n; j++) {
        for (uint32_t c = Q; c <= V; c++)
            fetch(input(p, c, j), dim);
        fetch(p->s->f + (uint64_t)p->tok[j] * p->w + at, dim);
        fetch(p->s->go + (uint64_t)p->tok[j] * p->w + at, dim);
    }
    fetch(p->s->l->dt_bias + at, dim);
    rows = rows < kda_log_rows(&m->dims) ? rows : kda_log_rows(&m->dims);
    fetch(entry(p, p->state.key, 0), rows * dim);
    fetch(entry(p, p->state.delta, 0), rows * dim);
    fetch(kda_decay(&m->dims, &p->state, turn, p->h, 0),
          (1 + m->dims.max_draft) * dim);
}

static struct kern_pile heads_pile(const void *arg, uint32_t i)
{
    const struct work *s = arg;

    (void)i;
    return (struct kern_pile){ s->step->n_seqs * s->m->heads, 1, 1 };
}

static void heads_part(void *arg, const struct kern_part *t,
                       const struct kern_part *next, uint32_t worker)
{
    const struct work *s = arg;
    struct head p, q;

    if (!head_find(s, t->i, &p))
        return;
    if (next->i != t->i && !lasting(s->m, p.n) && head_find(s, next->i, &q) &&
        !lasting(s->m, q.n)) {
        p.next = matrix(&q);
        head_fetch(&q);
    }
    head_compute(&p, worker);
}

/* Count what is in the logs of the step's sequences now. */
static void count_entries(const struct work *s)
{
    const struct seam_step *step = s->step;
    int32_t C = (int32_t)s->m->dims.chunk;

    for (uint32_t i = 0; i < step->n_seqs; i++) {
        const int32_t *tok = s->live + step->q_start[i];
        uint32_t all = (uint32_t)(step->q_start[i + 1] - step->q_start[i]);
        int32_t before, folds;
        struct kda_state state;
        uint32_t n = 0;

        while (n < all && tok[n] >= 0)
            n++;
        if (!n)
            continue;
        state =
            kda_state_of(&s->m->dims, &s->m->g, s->layer, step->state_row[i]);
        before = *state.n + step->n_accept[i];
        folds = before / C;
        if (lasting(s->m, n)) /* all but the last chunk is folded */
            folds = (before + (int32_t)n - 1) / C;
        *state.n = before - folds * C;
        *state.turn =
            kda_turn(&s->m->dims, *state.turn + (uint32_t)(folds * C));
    }
}

/* ---- The block ----------------------------------------------------------- */

static int step_check(const struct kda *m, const struct seam_exec *e,
                      const struct seam_step *s, uint32_t layer)
{
    struct kda_state state;
    int64_t n;

    for (uint32_t i = 0; i < s->n_seqs; i++) {
        if (s->q_start[i] < 0 || s->q_start[i + 1] < s->q_start[i] ||
            (uint32_t)s->q_start[i + 1] > s->n_tokens)
            return plug_fail(e->err, SEAM_EINVAL,
                             "kda: sequence %u has tokens [%d, %d) of %u", i,
                             s->q_start[i], s->q_start[i + 1], s->n_tokens);
        if (s->n_accept[i] < 0 || s->state_row[i] >= (int64_t)m->g.n_state_rows)
            return plug_fail(e->err, SEAM_EINVAL,
                             "kda: sequence %u in row %d of %u with n_accept "
                             "%d",
                             i, s->state_row[i], m->g.n_state_rows,
                             s->n_accept[i]);
        if (s->state_row[i] < 0)
            continue;
        state = kda_state_of(&m->dims, &m->g, layer, s->state_row[i]);
        n = (int64_t)*state.n + s->n_accept[i];
        if (n < 0 || n > kda_log_rows(&m->dims))
            return plug_fail(e->err, SEAM_EINVAL,
                             "kda: sequence %u: n_accept %d does not fit what "
                             "its last step left in row %d",
                             i, s->n_accept[i], s->state_row[i]);
    }
    return SEAM_OK;
}

/* Which rows are no padding.  Rows that no sequence claims are padding too. */
static void list_live(const struct seam_step *step, struct work *s)
{
    for (uint32_t i = 0; i < step->n_seqs; i++) {
        int32_t n = step->q_start[i];

        for (int32_t t = n; t < step->q_start[i + 1]; t++)
            if (step->state_row[i] >= 0 && step->slot[t] >= 0)
                s->live[n++] = t;
        while (n < step->q_start[i + 1])
            s->live[n++] = -1;
    }
}

/* Zero the rows of y that are padding. */
static void clear_padding(const struct kda *m, const struct work *s,
                          const struct seam_tensor *y, uint32_t n)
{
    const struct seam_step *step = s->step;
    uint32_t r = 0;

    for (uint32_t i = 0; i < step->n_seqs; i++)
        for (int32_t t = step->q_start[i]; t < step->q_start[i + 1]; t++) {
            uint32_t end = s->live[t] < 0 ? (uint32_t)step->q_start[i + 1]
                                          : (uint32_t)s->live[t];

            for (; r < end; r++)
                memset(plug_row(y, r), 0, m->d * sizeof(float));
            r += s->live[t] >= 0;
        }
    for (; r < n; r++)
        memset(plug_row(y, r), 0, m->d * sizeof(float));
}

static int kda_forward(void *self, const struct seam_exec *e,
                       const struct seam_block_args *b)
{
    struct kda *m = self;
    const struct seam_step *step = b->step;
    uint32_t n = step->n_tokens, n_jobs = 0;
    uint64_t w = (uint64_t)m->heads * m->dim;
    struct kern_job job[8];
    struct work s;
    int rc;

    if (b->layer >= m->n_layers || n > m->max_tokens ||
        !plug_is_rows(&b->x, SEAM_F32, 4, n, m->d) ||
        !plug_is_rows(&b->y, SEAM_F32, 4, n, m->d))
        return plug_fail(e->err, SEAM_EINVAL,
                         "kda: layer %u with %u rows, expected under %u with "
                         "[rows <= %u, %u] F32",
                         b->layer, n, m->n_layers, m->max_tokens, m->d);
    if (work_layout(m, e->ws, &s) > e->ws_bytes)
        return plug_fail(e->err, SEAM_EINVAL, "kda: ws is %llu bytes",
                         (unsigned long long)e->ws_bytes);
    rc = step_check(m, e, step, b->layer);
    if (rc)
        return rc;
    s.m = m;
    s.l = &m->layer[b->layer];
    s.layer = b->layer;
    s.step = step;
    list_live(step, &s);

#define JOB(w_, y_, ld_)                                                     \
    job[n_jobs++] = (struct kern_job)                                        \
    {                                                                        \
        .w = &s.l->w_, .x = b->x.data, .ldx = b->x.stride[0] / 4, .y = (y_), \
        .ldy = (int64_t)(ld_), .m = n                                        \
    }
    for (uint32_t p = Q; p <= V; p++)
        JOB(proj[p], s.u + p * w, 3 * w);
    JOB(b, s.b, m->heads);
    JOB(f_a, s.low, 2 * m->dim);
    JOB(g_a, s.low + m->dim, 2 * m->dim);
#undef JOB
    kern_run(m->k, host, job, n_jobs, m->scratch);
    for (uint32_t i = 0; i < 2; i++)
        job[i] = (struct kern_job){
            .w = i ? &s.l->g_b : &s.l->f_b,
            .x = s.low + i * m->dim,
            .ldx = 2 * (int64_t)m->dim,
            .y = i ? s.go : s.f,
            .ldy = (int64_t)w,
            .m = n,
        };
    kern_run(m->k, host, job, 2, m->scratch);
    kern_deal(host, &(struct kern_deal){ 1, heads_pile, heads_part, &s });
    count_entries(&s);
    job[0] = (struct kern_job){
        .w = &s.l->o,
        .x = s.u + 2 * w,
        .ldx = 3 * (int64_t)w,
        .y = b->y.data,
        .ldy = b->y.stride[0] / 4,
        .m = n,
    };
    kern_run(m->k, host, job, 1, m->scratch);
    clear_padding(m, &s, &b->y, n);
    return SEAM_OK;
}

static int kda_commit(void *self, const struct seam_exec *e, uint32_t n,
                      const int32_t *row, const int32_t *n_accept)
{
    struct kda *m = self;

    (void)e;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t l = 0; row[i] >= 0 && l < m->n_layers; l++) {
            struct kda_state state = kda_state_of(&m->dims, &m->g, l, row[i]);

            kda_state_commit(&state, n_accept[i]);
        }
    return SEAM_OK;
}

/* ---- The instance -------------------------------------------------------- */

static int kda_init(const struct seam_host *h, struct seam_error *err)
{
    (void)err;
    host = h;
    return SEAM_OK;
}

static int read_config(struct kda *m, const struct seam_create *c,
                       struct seam_error *err)
{
    const struct seam_cfg *mc = host->model_cfg(host->ctx, c->model);
    const struct {
        const char *key, *flat;
        uint32_t lo, hi, *out;
    } key[] = {
        { "hidden_size", NULL, 1, 1 << 20, &m->d },
        { "linear_attn_config.num_heads", "linear_num_heads", 1, 1 << 12,
          &m->heads },
        { "linear_attn_config.head_dim", "linear_head_dim", 1, MAX_DIM,
          &m->dim },
        { "linear_attn_config.short_conv_kernel_size", "linear_conv_kernel_dim",
          1, MAX_CONV, &m->n_conv },
    };
    double lower_bound = 0, eps = 0;
    int rc = kern_configure(host, c->cfg, "kda", &m->k, err);

    for (uint32_t i = 0; !rc && i < sizeof key / sizeof *key; i++)
        rc = plug_model_u32(host, mc, key[i].key, key[i].flat, key[i].lo,
                            key[i].hi, key[i].out, err);
    if (!rc)
        rc = plug_model_f64(host, mc, "linear_attn_config.gate_lower_bound",
                            "linear_lower_bound", &lower_bound, err);
    if (!rc)
        rc = plug_model_f64(host, mc, "rms_norm_eps", NULL, &eps, err);
    m->dims.chunk = kda_chunk(lower_bound);
    if (!rc && !m->dims.chunk)
        rc = plug_fail(err, SEAM_ENOTSUP,
                       "kda: linear_attn_config.gate_lower_bound is %g, "
                       "expected at least -%d",
                       lower_bound, KDA_DEPTH);
    m->lower_bound = (float)lower_bound;
    m->eps = (float)eps;
    return rc;
}

static int read_conv(struct layer *l, const struct kda *m,
                     const struct seam_create *c, uint32_t layer,
                     struct seam_error *err)
{
    static const char *const name[3] = { "self_attn.q_conv1d.weight",
                                         "self_attn.k_conv1d.weight",
                                         "self_attn.v_conv1d.weight" };
    uint64_t w = (uint64_t)m->heads * m->dim;

    l->conv = plug_zalloc(host, 3 * w * m->n_conv, sizeof *l->conv);
    if (!l->conv)
        return plug_fail(err, SEAM_ENOMEM, "kda: out of memory");
    for (uint32_t p = Q; p <= V; p++) {
        struct seam_tensor t;
        int rc =
            plug_weight(host, c->model, layer, name[p], w, m->n_conv, &t, err);

        if (rc)
            return rc;
        for (uint64_t ch = 0; ch < w; ch++)
            for (uint32_t j = 0; j < m->n_conv; j++)
                l->conv[j * 3 * w + p * w + ch] = (float)weights_at(&t, ch, j);
    }
    return SEAM_OK;
}

static int read_layer(struct layer *l, const struct kda *m,
                      const struct seam_create *c, uint32_t layer,
                      struct seam_error *err)
{
    uint32_t w = m->heads * m->dim;
    const struct {
        const char *name;
        uint32_t n_out, n_in;
        struct kern_mat *out;
    } linear[] = {
        { "self_attn.q_proj", w, m->d, &l->proj[Q] },
        { "self_attn.k_proj", w, m->d, &l->proj[K] },
        { "self_attn.v_proj", w, m->d, &l->proj[V] },
        { "self_attn.b_proj", m->heads, m->d, &l->b },
        { "self_attn.f_a_proj", m->dim, m->d, &l->f_a },
        { "self_attn.f_b_proj", w, m->dim, &l->f_b },
        { "self_attn.g_a_proj", m->dim, m->d, &l->g_a },
        { "self_attn.g_b_proj", w, m->dim, &l->g_b },
        { "self_attn.o_proj", m->d, w, &l->o },
    };
    int rc = SEAM_OK;

    for (uint32_t i = 0; !rc && i < sizeof linear / sizeof *linear; i++)
        rc = kern_weight(host, c->model, layer, linear[i].name, linear[i].n_out,
                         linear[i].n_in, linear[i].out, err);
    if (!rc)
        rc = read_conv(l, m, c, layer, err);
    if (!rc)
        rc = kern_vector(host, c->model, layer, "self_attn.A_log", m->heads,
                         &l->A, err);
    for (uint32_t h = 0; !rc && h < m->heads; h++)
        l->A[h] = expf(l->A[h]);
    if (!rc)
        rc = kern_vector(host, c->model, layer, "self_attn.dt_bias", w,
                         &l->dt_bias, err);
    if (!rc)
        rc = kern_vector(host, c->model, layer, "self_attn.o_norm.weight",
                         m->dim, &l->o_norm, err);
    return rc;
}

static void kda_destroy(void *self)
{
    struct kda *m = self;

    if (!m)
        return;
    for (uint32_t i = 0; m->layer && i < m->n_layers; i++) {
        plug_free(host, m->layer[i].conv);
        plug_free(host, m->layer[i].A);
        plug_free(host, m->layer[i].dt_bias);
        plug_free(host, m->layer[i].o_norm);
    }
    plug_free(host, m->layer);
    plug_free(host, m->scratch);
    plug_free(host, m->ahead);
    plug_free(host, m);
}

static int kda_create(const struct seam_create *c, void **self,
                      struct seam_error *err)
{
    struct kda *m;
    int rc;

    if (c->device->ordinal != -1 || c->limits->act_dtype != SEAM_F32 ||
        c->limits->tp_size > 1)
        return plug_fail(err, SEAM_ENOTSUP, "kda runs on one CPU in F32 only");
    m = plug_zalloc(host, 1, sizeof *m);
    if (!m)
        goto no_memory;
    m->max_tokens = c->limits->max_tokens;
    rc = read_config(m, c, err);
    if (rc)
        goto out;
    m->dims.heads = m->heads;
    m->dims.dim = m->dim;
    m->dims.n_conv = m->n_conv;
    m->dims.max_draft = c->limits->max_draft;
    m->layer = plug_zalloc(host, c->n_layers, sizeof *m->layer);
    m->scratch = plug_zalloc(host, host->n_workers, KERN_SCRATCH);
    m->ahead = plug_zalloc(host, (uint64_t)host->n_workers * m->dim * m->dim,
                           sizeof *m->ahead);
    if (!m->layer || !m->scratch || !m->ahead)
        goto no_memory;
    m->n_layers = c->n_layers;
    for (uint32_t i = 0; i < c->n_layers; i++) {
        rc = read_layer(&m->layer[i], m, c, c->layer[i], err);
        if (rc)
            goto out;
    }
    *self = m;
    return SEAM_OK;

no_memory:
    rc = plug_fail(err, SEAM_ENOMEM, "kda: out of memory");
out:
    kda_destroy(m);
    return rc;
}

static int kda_needs(void *self, struct seam_needs *n, struct seam_error *err)
{
    struct kda *m = self;
    struct kda_state state;
    struct work s;

    (void)err;
    n->capture = SEAM_CAP_BEGIN | SEAM_CAP_FORWARD | SEAM_CAP_COMMIT;
    n->flags = SEAM_NEEDS_ROW_INVARIANT;
    n->ws_bytes = work_layout(m, NULL, &s);
    n->layout_id = SEAM_LAYOUT_KDA;
    n->state_bytes = kda_state_layout(&m->dims, NULL, &state);
    n->state_copies = 1;
    return SEAM_OK;
}

static int kda_attach(void *self, const struct seam_grant *g,
                      struct seam_error *err)
{
    struct kda *m = self;

    (void)err;
    m->g = *g;
    return SEAM_OK;
}

static const struct seam_block kda_block = {
    .size = sizeof kda_block,
    .forward = kda_forward,
    .commit = kda_commit,
};

const struct seam_plugin seam_plugin_entry = {
    .ident = { SEAM_IDENT(SEAM_KIND_ATTENTION, struct seam_block),
               .flags = SEAM_PLUGIN_UNLOADABLE, .name = "kda",
               .version = "1.0.0", .build = __VERSION__ },
    .table = &kda_block,
    .init = kda_init,
    .create = kda_create,
    .needs = kda_needs,
    .attach = kda_attach,
    .destroy = kda_destroy,
};
