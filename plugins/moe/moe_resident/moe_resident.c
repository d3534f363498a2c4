/* moe_resident - the experts of docs/spec/glm5_next.md, section 5, all in host
 * memory, for the host's processors in F32.
 *
 * Rows are routed, then sorted by expert, so that each expert's weights are read
 * once for all rows that chose it.  First every task computes a slice of one
 * expert's inner activations; then every task owns a slice of the output columns
 * and adds up the experts there in ascending order, which needs no locks and
 * makes a row's sum independent of the other rows.  A single row's experts are
 * multiplied one after the other instead, and then added up in that order. */
#include <seam/plugin.h>

#include <math.h>
#include <string.h>

#include "kern_fast.h"

static const struct seam_host *host;

enum {
    MAX_GROUPS = 256,
    SLICE = KERN_OUTS, /* inner activations of one task                    */
    ONE_STEP = 64,     /* outputs of a single row that may be a task       */
    FEW_ROWS = 8       /* rows routed by one task                          */
};

/* Rows of one product; those of packed rows must not be fewer. */
#define ROWS FAST_ROWS
_Static_assert(KERN_ROWS <= FAST_ROWS, "rows of a product");

/* Per worker: the kernels' scratch, then [2][ROWS][KERN_OUTS] floats, then
 * packed rows of one expert. */
#define GATHER_BYTES (1u << 19)
#define WORKER_FIXED (KERN_SCRATCH + 2 * ROWS * KERN_OUTS * 4)

/* Routed experts and the shared one may be stored differently. */
enum { ROUTED, SHARED, SIDES };

/* gate_proj, up_proj [ff, d] and down_proj [d, ff] of one SwiGLU. */
struct mlp {
    struct kern_mat gate, up, down;
};

struct layer {
    struct kern_mat router; /* [n_experts, d]                                */
    float *bias;            /* [n_experts] for the choice alone              */
    struct mlp *expert;     /* [n_experts], then the shared one, which is
                               n_shared * ff wide                            */
    /* How rows of x and inner activations are packed for the products. */
    struct kern_form outer[SIDES], inner[SIDES];
};

struct moe {
    const struct kern *k;
    uint32_t n_layers, max_tokens, n_workers;
    uint32_t d, ff, n_experts, top_k, n_group, topk_group, n_shared;
    bool norm_topk;
    float scale, limit; /* limit 0: no clamp                                 */
    struct layer *layer;
    char *scratch; /* [n_workers] of worker_bytes                       */
    uint64_t worker_bytes;
    /* Of the layers: the largest packed row; whether inner activations of some
     * stay floats. */
    uint64_t outer_bytes[SIDES], inner_bytes[SIDES];
    bool floats;
    void (*sink)(void *, uint32_t, const char *, const struct seam_tensor *);
    void *sink_ctx;
};

/* What one call keeps in ws; T is max_tokens.  A pair is a row and one of the
 * experts it chose; pairs are sorted by expert, then by row.  The shared expert
 * is number n_experts, and its pairs are all rows. */
struct work {
    float *logit;    /* [T][n_experts]                                       */
    float *choice;   /* [T][n_experts] sigmoid + bias                        */
    float *weight;   /* [T][top_k]                                           */
    int32_t *index;  /* [T][top_k]     -1: padding, or scores not numbers    */
    uint32_t *start; /* [n_experts + 2] first pair of an expert              */
    uint32_t *busy;  /* [n_experts + 1] experts with pairs, ascending        */
    uint32_t *row;   /* [T * (top_k + 1)] of a pair                          */
    float *share;    /* [T * (top_k + 1)]                                    */
    float *each;     /* [top_k + 1][d] what busy experts make of a single row */
    float *inner;    /* [T * top_k][ff], then [T][n_shared * ff]             */
    char *x_rec[SIDES];     /* [T] packed rows of x                          */
    char *inner_rec[SIDES]; /* [T * top_k] and [T] packed inner activations  */
    /* of this call */
    const struct moe *m;
    const struct layer *l;
    const struct seam_step *step;
    const struct seam_tensor *x, *y;
    uint32_t n, n_busy, slice;
};

static uint64_t work_layout(const struct moe *m, void *ws, struct work *s)
{
    struct plug_arena a = { .p = ws };
    uint64_t t = m->max_tokens, e = m->n_experts;

    s->logit = plug_take(&a, t * e, sizeof *s->logit);
    s->choice = plug_take(&a, t * e, sizeof *s->choice);
    s->weight = plug_take(&a, t * m->top_k, sizeof *s->weight);
    s->index = plug_take(&a, t * m->top_k, sizeof *s->index);
    s->start = plug_take(&a, e + 2, sizeof *s->start);
    s->busy = plug_take(&a, e + 1, sizeof *s->busy);
    s->row = plug_take(&a, t * (m->top_k + 1), sizeof *s->row);
    s->share = plug_take(&a, t * (m->top_k + 1), sizeof *s->share);
    s->each = plug_take(&a, (uint64_t)(m->top_k + 1) * m->d, sizeof *s->each);
    s->inner =
        plug_take(&a, m->floats ? t * m->ff * (m->top_k + m->n_shared) : 0,
                  sizeof *s->inner);
    for (uint32_t i = 0; i < SIDES; i++) {
        uint64_t pairs = i == ROUTED ? t * m->top_k : t;

        s->x_rec[i] = plug_take(&a, t + FAST_BLOCK, m->outer_bytes[i]);
        s->inner_rec[i] = plug_take(&a, pairs + FAST_BLOCK, m->inner_bytes[i]);
    }
    return a.used;
}

static void parallel(uint32_t n, seam_task *fn, void *arg)
{
    if (n)
        host->parallel_for(host->ctx, n, fn, arg);
}

/* ---- Routing ------------------------------------------------------------- */

/* The largest of v[0, n), the first of equals; -1 when all are -infinity. */
static int32_t argmax(const float *v, uint32_t n)
{
    int32_t best = -1;

    for (uint32_t i = 0; i < n; i++)
        if (v[i] > -INFINITY && (best < 0 || v[i] > v[best]))
            best = (int32_t)i;
    return best;
}

/* Keep the topk_group groups whose two best choices have the largest sum (of
 * equals the first); the experts of the others are out. */
static void drop_groups(const struct moe *m, float *choice)
{
    uint32_t per = m->n_experts / m->n_group;
    float best[2], sum[MAX_GROUPS];
    bool keep[MAX_GROUPS] = { false };

    for (uint32_t g = 0; g < m->n_group; g++) {
        best[0] = best[1] = -INFINITY;
        for (uint32_t e = g * per; e < (g + 1) * per; e++) {
            if (choice[e] > best[0]) {
                best[1] = best[0];
                best[0] = choice[e];
            } else if (choice[e] > best[1]) {
                best[1] = choice[e];
            }
        }
        sum[g] = best[0] + (per > 1 ? best[1] : 0);
    }
    for (uint32_t k = 0; k < m->topk_group; k++) {
        int32_t g = argmax(sum, m->n_group);

        if (g < 0)
            break;
        keep[g] = true;
        sum[g] = -INFINITY;
    }
    for (uint32_t e = 0; e < m->n_experts; e++)
        if (!keep[e / per])
            choice[e] = -INFINITY;
}

/* True when the shared expert takes the packed rows of the routed ones. */
static bool same_rows(const struct layer *l)
{
    return l->outer[ROUTED].kind == l->outer[SHARED].kind &&
           l->outer[ROUTED].group == l->outer[SHARED].group;
}

static void pack_row(const struct work *s, uint32_t r)
{
    for (uint32_t i = 0; i < SIDES; i++) {
        struct kern_form f = s->l->outer[i];

        if (f.kind && !(i == SHARED && same_rows(s->l)))
            s->m->k->fast->pack(plug_row(s->x, r), f, s->m->d, 0, s->m->d,
                                s->x_rec[i] + r * kern_record(f, s->m->d));
    }
}

/* 5.2 for some rows: logits to experts and weights. */
static void route_task(void *arg, uint32_t t, uint32_t worker)
{
    const struct work *s = arg;
    const struct moe *m = s->m;
    uint32_t end = (t + 1) * FEW_ROWS < s->n ? (t + 1) * FEW_ROWS : s->n;

    (void)worker;
    for (uint32_t r = t * FEW_ROWS; r < end; r++) {
        const float *logit = s->logit + (uint64_t)r * m->n_experts;
        float *choice = s->choice + (uint64_t)r * m->n_experts;
        int32_t *index = s->index + (uint64_t)r * m->top_k;
        float *weight = s->weight + (uint64_t)r * m->top_k;
        float sum = 1e-20f;

        if (s->step->slot[r] < 0) {
            for (uint32_t k = 0; k < m->top_k; k++)
                index[k] = -1;
            continue;
        }
        pack_row(s, r);
        for (uint32_t e = 0; e < m->n_experts; e++)
            choice[e] = 1 / (1 + expf(-logit[e])) + s->l->bias[e];
        if (m->topk_group < m->n_group)
            drop_groups(m, choice);
        for (uint32_t k = 0; k < m->top_k; k++) {
            int32_t e = argmax(choice, m->n_experts);

            index[k] = e;
            weight[k] = e < 0 ? NAN : 1 / (1 + expf(-logit[e]));
            sum += weight[k];
            if (e >= 0)
                choice[e] = -INFINITY;
        }
        for (uint32_t k = 0; k < m->top_k; k++)
            weight[k] *= m->scale / (m->norm_topk ? sum : 1);
    }
}

/* True when row r chose experts. */
static bool routed(const struct work *s, uint32_t r)
{
    const int32_t *index = s->index + (uint64_t)r * s->m->top_k;

    for (uint32_t k = 0; k < s->m->top_k; k++)
        if (index[k] < 0)
            return false;
    return true;
}

/* Sort the pairs by expert. */
static void group_pairs(struct work *s)
{
    const struct moe *m = s->m;
    uint32_t n = m->n_experts;

    memset(s->start, 0, (n + 2) * sizeof *s->start);
    for (uint32_t r = 0; r < s->n; r++)
        for (uint32_t k = 0; routed(s, r) && k < m->top_k; k++)
            s->start[s->index[(uint64_t)r * m->top_k + k] + 1]++;
    for (uint32_t e = 0; e < n; e++)
        s->start[e + 1] += s->start[e];
    s->start[n + 1] = s->start[n];
    /* start[e] runs through its pairs and ends where e + 1 began. */
    for (uint32_t r = 0; r < s->n; r++) {
        if (!routed(s, r))
            continue;
        for (uint32_t k = 0; k < m->top_k; k++) {
            uint64_t i = (uint64_t)r * m->top_k + k;
            uint32_t at = s->start[s->index[i]]++;

            s->row[at] = r;
            s->share[at] = s->weight[i];
        }
        if (m->n_shared)
            s->row[s->start[n + 1]++] = r;
    }
    for (uint32_t e = n; e > 0; e--)
        s->start[e] = s->start[e - 1];
    s->start[0] = 0;
    s->n_busy = 0;
    for (uint32_t e = 0; e <= n; e++)
        if (s->start[e + 1] > s->start[e])
            s->busy[s->n_busy++] = e;
}

/* ---- Experts ------------------------------------------------------------- */

/* Inner activations of pair i, which is one of expert e. */
static float *inner_of(const struct work *s, uint32_t e, uint32_t i)
{
    const struct moe *m = s->m;
    uint32_t routed_pairs = s->start[m->n_experts];

    if (e < m->n_experts)
        return s->inner + (uint64_t)i * m->ff;
    return s->inner + (uint64_t)routed_pairs * m->ff +
           (uint64_t)(i - routed_pairs) * m->ff * m->n_shared;
}

/* Packed rows of x for n pairs from i on, one behind the other: where they are,
 * or gathered into buf. */
static const char *gather(const struct work *s, uint32_t side, uint32_t i,
                          uint32_t n, uint64_t stride, char *buf)
{
    const char *rec =
        s->x_rec[side == SHARED && same_rows(s->l) ? ROUTED : side];

    if (s->row[i + n - 1] - s->row[i] == n - 1)
        return rec + s->row[i] * stride;
    for (uint32_t r = 0; r < n; r++)
        memcpy(buf + r * stride, rec + s->row[i + r] * stride, stride);
    return buf;
}

/* gate and up for n pairs from i on: [n][KERN_OUTS] each. */
static void inner_products(const struct work *s, const struct mlp *w,
                           uint32_t side, uint32_t o0, uint32_t o1, uint32_t i,
                           uint32_t n, float *gate, float *up,
                           const struct fast_next *next, char *scratch)
{
    const struct kern *k = s->m->k;
    struct kern_form f = s->l->outer[side];
    uint64_t stride = f.kind ? kern_record(f, s->m->d) : 0;
    const float *x[KERN_ROWS];
    float *g[KERN_ROWS], *u[KERN_ROWS];

    if (f.kind) {
        const char *rec = gather(s, side, i, n, stride, scratch + WORKER_FIXED);
        struct fast_next second = fast_next(&w->up, o0);

        k->fast->dot(&w->gate, o0, o1, rec, stride, n, gate, KERN_OUTS, NULL,
                     false, &second, scratch);
        k->fast->dot(&w->up, o0, o1, rec, stride, n, up, KERN_OUTS, NULL, false,
                     next, scratch);
        return;
    }
    for (uint32_t r = 0; r < n; r++) {
        x[r] = plug_row(s->x, s->row[i + r]);
        g[r] = gate + r * KERN_OUTS;
        u[r] = up + r * KERN_OUTS;
    }
    k->dot(&w->gate, o0, o1, x, n, g, NULL, false, scratch);
    k->dot(&w->up, o0, o1, x, n, u, NULL, false, scratch);
}

/* Pairs of one expert that a product takes at once; of packed rows as many as
 * can be gathered. */
static uint32_t rows_at_once(const struct work *s, struct kern_form f)
{
    uint64_t n =
        f.kind ? (s->m->worker_bytes - WORKER_FIXED) / kern_record(f, s->m->d)
               : KERN_ROWS;

    return n < ROWS ? (uint32_t)n & ~(FAST_BLOCK - 1u) : ROWS;
}

/* Outputs of a product that a task takes at most: of packed rows, a single one
 * more. */
static uint32_t at_once(const struct work *s)
{
    return s->n > 1 || s->m->floats ? KERN_OUTS : KERN_WIDE;
}

/* Inner activations of a slice of expert e: small ones for one row, which is
 * soon read, in whole groups. */
static uint32_t inner_slice(const struct work *s, uint32_t e)
{
    uint32_t side = e < s->m->n_experts ? ROUTED : SHARED;
    uint32_t group = s->l->inner[side].group;

    if (s->n > 1 || (group && SLICE / 2 % group))
        return SLICE;
    return SLICE / 2;
}

/* The inner activations of a busy expert, in slices. */
static struct kern_pile inner_pile(const void *arg, uint32_t b)
{
    const struct work *s = arg;
    uint32_t e = s->busy[b], rows = s->start[e + 1] - s->start[e];
    const struct kern_mat *gate = &s->l->expert[e].gate;
    uint32_t width = inner_slice(s, e);

    return (struct kern_pile){ (gate->n + width - 1) / width,
                               at_once(s) / width,
                               width * kern_cost(gate, rows) };
}

/* 5.1, up to down_proj: some slices for all rows of their expert. */
static void inner_part(void *arg, const struct kern_part *t,
                       const struct kern_part *next, uint32_t worker)
{
    const struct work *s = arg;
    const struct moe *m = s->m;
    char *scratch = m->scratch + worker * m->worker_bytes;
    float *gate = (float *)(scratch + KERN_SCRATCH);
    float *up = gate + ROWS * KERN_OUTS;
    uint32_t e = s->busy[t->pile], then = s->busy[next->pile];
    uint32_t width = inner_slice(s, e);
    uint32_t o0 = t->i * width, o1 = (t->i + t->n) * width;
    const struct mlp *w = &s->l->expert[e];
    struct fast_next after =
        fast_next(&s->l->expert[then].gate, next->i * inner_slice(s, then));
    uint32_t side = e < m->n_experts ? ROUTED : SHARED;
    uint32_t first = side == ROUTED ? 0 : s->start[m->n_experts];
    struct kern_form f = s->l->inner[side];
    uint32_t rows = rows_at_once(s, s->l->outer[side]);

    o1 = o1 < w->gate.n ? o1 : w->gate.n;
    for (uint32_t i = s->start[e]; i < s->start[e + 1]; i += rows) {
        uint32_t left = s->start[e + 1] - i;
        uint32_t n = left < rows ? left : rows;

        inner_products(s, w, side, o0, o1, i, n, gate, up, &after, scratch);
        for (uint32_t r = 0; r < n; r++) {
            float *g = gate + r * KERN_OUTS;
            float *to = f.kind ? g : inner_of(s, e, i + r) + o0;

            m->k->glu(g, up + r * KERN_OUTS, m->limit, o1 - o0, to);
            if (f.kind)
                m->k->fast->pack(g, f, w->down.k, o0, o1 - o0,
                                 s->inner_rec[side] +
                                     (i + r - first) *
                                         kern_record(f, w->down.k));
        }
    }
}

/* Outputs [o0, o1) of down_proj for n pairs of expert e from i on. */
static void down_products(const struct work *s, uint32_t e, uint32_t o0,
                          uint32_t o1, uint32_t i, uint32_t n, float *tmp,
                          const struct fast_next *next, char *scratch)
{
    const struct kern *k = s->m->k;
    uint32_t side = e < s->m->n_experts ? ROUTED : SHARED;
    uint32_t first = side == ROUTED ? 0 : s->start[s->m->n_experts];
    const struct kern_mat *w = &s->l->expert[e].down;
    struct kern_form f = s->l->inner[side];
    const float *x[KERN_ROWS];
    float *y[KERN_ROWS];

    if (f.kind) {
        uint64_t stride = kern_record(f, w->k);

        k->fast->dot(w, o0, o1, s->inner_rec[side] + (i - first) * stride,
                     stride, n, tmp, KERN_OUTS, NULL, false, next, scratch);
        return;
    }
    for (uint32_t r = 0; r < n; r++) {
        x[r] = inner_of(s, e, i + r);
        y[r] = tmp + r * KERN_OUTS;
    }
    k->dot(w, o0, o1, x, n, y, NULL, false, scratch);
}

/* down_proj for a single row: every expert by itself, so that its weights are
 * read as they lie, and then the sum. */
static struct kern_pile one_pile(const void *arg, uint32_t b)
{
    const struct work *s = arg;
    const struct kern_mat *w = &s->l->expert[s->busy[b]].down;

    return (struct kern_pile){ (w->n + ONE_STEP - 1) / ONE_STEP,
                               at_once(s) / 2 / ONE_STEP,
                               ONE_STEP * kern_cost(w, 1) };
}

static void one_part(void *arg, const struct kern_part *t,
                     const struct kern_part *next, uint32_t worker)
{
    const struct work *s = arg;
    const struct moe *m = s->m;
    uint32_t e = s->busy[t->pile], o0 = t->i * ONE_STEP;
    uint32_t o1 = (t->i + t->n) * ONE_STEP;
    struct fast_next after =
        fast_next(&s->l->expert[s->busy[next->pile]].down, next->i * ONE_STEP);

    down_products(s, e, o0, o1 < m->d ? o1 : m->d, s->start[e], 1,
                  s->each + (uint64_t)t->pile * m->d + o0, &after,
                  m->scratch + worker * m->worker_bytes);
}

/* y += what expert e made of pair i, n columns. */
static void add_expert(const struct work *s, uint32_t e, uint32_t i,
                       const float *v, uint32_t n, float *y)
{
    if (e < s->m->n_experts)
        s->m->k->axpy(s->share[i], v, n, y);
    else
        s->m->k->add(y, v, n, y);
}

/* Columns that one worker sums. */
static uint32_t sum_width(const struct moe *m)
{
    return ((m->d + m->n_workers - 1) / m->n_workers + 15) & ~15u;
}

static void one_sum(void *arg, uint32_t t, uint32_t worker)
{
    const struct work *s = arg;
    uint32_t d = s->m->d, width = sum_width(s->m), o = t * width;
    uint32_t n = d - o < width ? d - o : width;
    float *y = (float *)plug_row(s->y, 0) + o;

    (void)worker;
    memset(y, 0, n * sizeof *y);
    for (uint32_t b = 0; b < s->n_busy; b++)
        add_expert(s, s->busy[b], s->start[s->busy[b]],
                   s->each + (uint64_t)b * d + o, n, y);
}

static struct kern_pile down_pile(const void *arg, uint32_t p)
{
    const struct work *s = arg;

    (void)p;
    return (struct kern_pile){ (s->m->d + s->slice - 1) / s->slice, 1, 1 };
}

/* Slices of output columns: every expert's share of them, experts ascending. */
static void down_part(void *arg, const struct kern_part *t,
                      const struct kern_part *next, uint32_t worker)
{
    const struct work *s = arg;
    const struct moe *m = s->m;
    char *scratch = m->scratch + worker * m->worker_bytes;
    float *tmp = (float *)(scratch + KERN_SCRATCH);
    uint32_t o0 = t->i * s->slice, o1 = (t->i + t->n) * s->slice;

    o1 = o1 < m->d ? o1 : m->d;
    for (uint32_t r = 0; r < s->n; r++)
        memset((float *)plug_row(s->y, r) + o0, 0, (o1 - o0) * sizeof *tmp);
    for (uint32_t b = 0; b < s->n_busy; b++) {
        uint32_t e = s->busy[b];
        bool packed = s->l->inner[e < m->n_experts ? ROUTED : SHARED].kind != 0;
        uint32_t rows = packed ? ROWS : KERN_ROWS;
        bool last = b + 1 == s->n_busy;
        struct fast_next after =
            fast_next(&s->l->expert[s->busy[last ? 0 : b + 1]].down,
                      last ? next->i * s->slice : o0);

        for (uint32_t i = s->start[e]; i < s->start[e + 1]; i += rows) {
            uint32_t left = s->start[e + 1] - i;
            uint32_t n = left < rows ? left : rows;

            down_products(s, e, o0, o1, i, n, tmp, &after, scratch);
            for (uint32_t r = 0; r < n; r++) {
                float *y = (float *)plug_row(s->y, s->row[i + r]) + o0;

                add_expert(s, e, i + r, tmp + r * KERN_OUTS, o1 - o0, y);
            }
        }
    }
}

/* ---- Trace --------------------------------------------------------------- */

static void trace(const struct work *s, uint32_t layer, const char *name,
                  uint16_t dtype, void *data, uint32_t width)
{
    const struct moe *m = s->m;
    struct seam_tensor t = {
        .data = data,
        .bytes = (uint64_t)s->n * width * 4,
        .shape = { s->n, width },
        .stride = { (int64_t)width * 4 },
        .dtype = dtype,
        .rank = 2,
        .device = -1,
    };

    for (uint32_t r = 0; dtype == SEAM_F32 && r < s->n; r++)
        if (s->step->slot[r] < 0)
            memset((float *)data + (uint64_t)r * width, 0,
                   width * sizeof(float));
    m->sink(m->sink_ctx, layer, name, &t);
}

static void moe_trace_set(void *self, void *ctx,
                          void (*sink)(void *, uint32_t, const char *,
                                       const struct seam_tensor *))
{
    struct moe *m = self;

    m->sink = sink;
    m->sink_ctx = ctx;
}

/* ---- The block ----------------------------------------------------------- */

/* Output columns of one task: enough tasks for the pool, wide enough that rows
 * of int4 words are read in long pieces. */
static uint32_t down_slice(const struct moe *m)
{
    uint32_t s = (m->d / (4 * m->n_workers) + 63) & ~63u;

    return s < 128 ? 128 : s > KERN_OUTS ? KERN_OUTS : s;
}

static int moe_forward(void *self, const struct seam_exec *e,
                       const struct seam_block_args *b)
{
    struct moe *m = self;
    uint32_t n = b->step->n_tokens;
    struct kern_job router;
    struct work s;

    if (b->layer >= m->n_layers || n > m->max_tokens ||
        !plug_is_rows(&b->x, SEAM_F32, 4, n, m->d) ||
        !plug_is_rows(&b->y, SEAM_F32, 4, n, m->d))
        return plug_fail(e->err, SEAM_EINVAL,
                         "moe_resident: layer %u with %u rows, expected under "
                         "%u with [rows <= %u, %u] F32",
                         b->layer, n, m->n_layers, m->max_tokens, m->d);
    if (work_layout(m, e->ws, &s) > e->ws_bytes)
        return plug_fail(e->err, SEAM_EINVAL, "moe_resident: ws is %llu bytes",
                         (unsigned long long)e->ws_bytes);
    s.m = m;
    s.l = &m->layer[b->layer];
    s.step = b->step;
    s.x = &b->x;
    s.y = &b->y;
    s.n = n;
    s.slice = down_slice(m);
    router = (struct kern_job){
        .w = &s.l->router,
        .x = b->x.data,
        .ldx = b->x.stride[0] / 4,
        .y = s.logit,
        .ldy = m->n_experts,
        .m = n,
    };
    kern_run(m->k, host, &router, 1, m->scratch);
    parallel((n + FEW_ROWS - 1) / FEW_ROWS, route_task, &s);
    group_pairs(&s);
    kern_deal(host,
              &(struct kern_deal){ s.n_busy, inner_pile, inner_part, &s });
    if (n == 1) {
        kern_deal(host,
                  &(struct kern_deal){ s.n_busy, one_pile, one_part, &s });
        parallel((m->d + sum_width(m) - 1) / sum_width(m), one_sum, &s);
    } else {
        kern_deal(host, &(struct kern_deal){ 1, down_pile, down_part, &s });
    }
    for (uint32_t r = 0; r < n; r++)
        if (b->step->slot[r] >= 0 && !routed(&s, r))
            for (uint32_t i = 0; i < m->d; i++)
                ((float *)plug_row(&b->y, r))[i] = NAN;
    if (m->sink) {
        trace(&s, b->layer, "router_logits", SEAM_F32, s.logit, m->n_experts);
        trace(&s, b->layer, "router_weights", SEAM_F32, s.weight, m->top_k);
        trace(&s, b->layer, "router_index", SEAM_I32, s.index, m->top_k);
    }
    return SEAM_OK;
}

/* ---- The instance -------------------------------------------------------- */

static int moe_init(const struct seam_host *h, struct seam_error *err)
{
    (void)err;
    host = h;
    return SEAM_OK;
}

static int read_config(struct moe *m, const struct seam_create *c,
                       struct seam_error *err)
{
    const struct seam_cfg *mc = host->model_cfg(host->ctx, c->model);
    const struct {
        const char *key;
        uint32_t lo, hi, *out;
    } key[] = {
        { "hidden_size", 1, 1 << 20, &m->d },
        { "moe_intermediate_size", 1, 1 << 20, &m->ff },
        { "n_routed_experts", 1, 1 << 16, &m->n_experts },
        { "num_experts_per_tok", 1, 1 << 16, &m->top_k },
        { "n_shared_experts", 0, 64, &m->n_shared },
        { "n_group", 1, MAX_GROUPS, &m->n_group },
        { "topk_group", 1, MAX_GROUPS, &m->topk_group },
    };
    double scale = 0, limit = 0;
    int32_t norm = 0;
    int rc = kern_configure(host, c->cfg, "moe_resident", &m->k, err);

    for (uint32_t i = 0; !rc && i < sizeof key / sizeof *key; i++)
        rc = plug_model_u32(host, mc, key[i].key, NULL, key[i].lo, key[i].hi,
                            key[i].out, err);
    if (!rc)
        rc = plug_model_f64(host, mc, "routed_scaling_factor", NULL, &scale,
                            err);
    if (!rc)
        rc = plug_model_f64(host, mc, "swiglu_limit", NULL, &limit, err);
    if (rc)
        return rc;
    if (host->cfg(host->ctx, mc, "norm_topk_prob", SEAM_CFG_BOOL, &norm))
        return plug_fail(err, SEAM_EDATA,
                         "model config: norm_topk_prob is missing or no "
                         "boolean");
    m->norm_topk = norm != 0;
    m->scale = (float)scale;
    m->limit = limit > 0 ? (float)limit : 0;
    if (m->n_experts % m->n_group || m->topk_group > m->n_group ||
        m->top_k > m->n_experts / m->n_group * m->topk_group)
        return plug_fail(err, SEAM_EDATA,
                         "model config: %u of %u experts in %u of %u groups is "
                         "impossible",
                         m->top_k, m->n_experts, m->topk_group, m->n_group);
    return SEAM_OK;
}

static int read_mlp(struct mlp *w, const struct moe *m,
                    const struct seam_create *c, uint32_t layer,
                    const char *module, uint32_t width, struct seam_error *err)
{
    struct kern_mat *t[3] = { &w->gate, &w->up, &w->down };
    static const char *const part[3] = { "gate_proj", "up_proj", "down_proj" };
    char name[128];
    int rc = SEAM_OK;

    for (uint32_t i = 0; !rc && i < 3; i++) {
        snprintf(name, sizeof name, "%s.%s", module, part[i]);
        rc = kern_weight(host, c->model, layer, name, i < 2 ? width : m->d,
                         i < 2 ? m->d : width, t[i], err);
    }
    return rc;
}

/* The form that all the products want, or KERN_FLOATS when they differ. */
static struct kern_form form_of(const struct kern *k, const struct mlp *w,
                                uint32_t n, bool down)
{
    struct kern_form f = kern_form(k, down ? &w->down : &w->gate);

    for (uint32_t i = 0; i < n; i++) {
        const struct kern_mat *t[2] = { &w[i].gate, &w[i].up };

        for (uint32_t j = 0; j < 2; j++) {
            struct kern_form g = kern_form(k, down ? &w[i].down : t[j]);

            if (g.kind != f.kind || g.group != f.group)
                f.kind = KERN_FLOATS;
        }
    }
    return f;
}

/* How the layer's products want their rows, and what that asks of m. */
static void plan_layer(struct moe *m, struct layer *l)
{
    for (uint32_t i = 0; i < SIDES; i++) {
        const struct mlp *w = &l->expert[i == ROUTED ? 0 : m->n_experts];
        uint32_t n = i == ROUTED ? m->n_experts : 1;
        uint64_t bytes;

        if (i == SHARED && !m->n_shared)
            break;
        l->outer[i] = form_of(m->k, w, n, false);
        l->inner[i] = form_of(m->k, w, n, true);
        if (l->outer[i].kind) {
            bytes = kern_record(l->outer[i], m->d);
            if (bytes > m->outer_bytes[i])
                m->outer_bytes[i] = bytes;
        }
        if (l->inner[i].kind) {
            bytes = kern_record(l->inner[i], w->down.k);
            if (bytes > m->inner_bytes[i])
                m->inner_bytes[i] = bytes;
        } else {
            m->floats = true;
        }
    }
}

static int read_layer(struct layer *l, const struct moe *m,
                      const struct seam_create *c, uint32_t layer,
                      struct seam_error *err)
{
    char name[64];
    int rc = kern_weight(host, c->model, layer, "mlp.gate", m->n_experts, m->d,
                         &l->router, err);

    if (!rc)
        rc = kern_vector(host, c->model, layer,
                         "mlp.gate.e_score_correction_bias", m->n_experts,
                         &l->bias, err);
    for (uint32_t e = 0; !rc && e < m->n_experts; e++) {
        snprintf(name, sizeof name, "mlp.experts.%u", e);
        rc = read_mlp(&l->expert[e], m, c, layer, name, m->ff, err);
    }
    if (!rc && m->n_shared)
        rc = read_mlp(&l->expert[m->n_experts], m, c, layer,
                      "mlp.shared_experts", m->ff * m->n_shared, err);
    return rc;
}

static void moe_destroy(void *self)
{
    struct moe *m = self;

    if (!m)
        return;
    for (uint32_t i = 0; m->layer && i < m->n_layers; i++) {
        plug_free(host, m->layer[i].expert);
        plug_free(host, m->layer[i].bias);
    }
    plug_free(host, m->layer);
    plug_free(host, m->scratch);
    plug_free(host, m);
}

static int moe_create(const struct seam_create *c, void **self,
                      struct seam_error *err)
{
    uint64_t most;
    struct moe *m;
    int rc;

    if (c->device->ordinal != -1 || c->limits->act_dtype != SEAM_F32 ||
        c->limits->tp_size > 1)
        return plug_fail(err, SEAM_ENOTSUP,
                         "moe_resident runs on one CPU in F32 only");
    m = plug_zalloc(host, 1, sizeof *m);
    if (!m)
        goto no_memory;
    m->max_tokens = c->limits->max_tokens;
    m->n_workers = host->n_workers ? host->n_workers : 1;
    rc = read_config(m, c, err);
    if (rc)
        goto out;
    m->layer = plug_zalloc(host, c->n_layers, sizeof *m->layer);
    if (!m->layer)
        goto no_memory;
    m->n_layers = c->n_layers;
    for (uint32_t i = 0; i < c->n_layers; i++) {
        struct layer *l = &m->layer[i];

        l->expert =
            plug_zalloc(host, (uint64_t)m->n_experts + 1, sizeof *l->expert);
        if (!l->expert)
            goto no_memory;
        rc = read_layer(l, m, c, c->layer[i], err);
        if (rc)
            goto out;
        plan_layer(m, l);
    }
    most = m->outer_bytes[ROUTED] > m->outer_bytes[SHARED]
               ? m->outer_bytes[ROUTED]
               : m->outer_bytes[SHARED];
    m->worker_bytes =
        WORKER_FIXED +
        (most * FAST_BLOCK > GATHER_BYTES ? most * FAST_BLOCK : GATHER_BYTES);
    m->scratch = plug_zalloc(host, m->n_workers, m->worker_bytes);
    if (!m->scratch)
        goto no_memory;
    *self = m;
    return SEAM_OK;

no_memory:
    rc = plug_fail(err, SEAM_ENOMEM, "moe_resident: out of memory");
out:
    moe_destroy(m);
    return rc;
}

static int moe_needs(void *self, struct seam_needs *n, struct seam_error *err)
{
    struct work s;

    (void)err;
    n->capture = SEAM_CAP_BEGIN | SEAM_CAP_FORWARD | SEAM_CAP_COMMIT;
    n->flags = SEAM_NEEDS_ROW_INVARIANT;
    n->ws_bytes = work_layout(self, NULL, &s);
    return SEAM_OK;
}

static int moe_attach(void *self, const struct seam_grant *g,
                      struct seam_error *err)
{
    (void)self;
    (void)g;
    (void)err;
    return SEAM_OK;
}

static const void *moe_extension(const char *id)
{
    static const struct seam_trace t = { .size = sizeof t,
                                         .set = moe_trace_set };

    return strcmp(id, "trace/1") ? NULL : &t;
}

static const struct seam_block moe_block = {
    .size = sizeof moe_block,
    .forward = moe_forward,
};

const struct seam_plugin seam_plugin_entry = {
    .ident = { SEAM_IDENT(SEAM_KIND_MOE, struct seam_block),
               .flags = SEAM_PLUGIN_UNLOADABLE, .name = "moe_resident",
               .version = "1.0.0", .build = __VERSION__ },
    .table = &moe_block,
    .init = moe_init,
    .create = moe_create,
    .needs = moe_needs,
    .attach = moe_attach,
    .destroy = moe_destroy,
    .extension = moe_extension,
};
