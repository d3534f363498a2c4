/* sparse_mla_ref - latent attention over the tokens a pooled indexer selects,
 * docs/spec/glm5_next.md section 4, in the expanded form: the reference that
 * faster plugins are measured by.
 *
 * Arithmetic is in double; input and output are F32, and so is what is
 * cached, but for "kv_dtype": "bf16" or "fp8", which holds for both planes.  A
 * step first stores its tokens one by one (latent, ring, and a pool when its
 * last token is there), then reads: what a token is stored as never depends on
 * how the prompt was cut into steps.
 *
 * Rollback costs nothing.  Latents and pools past the standing tokens are never
 * read before they are written again, and the ring is long enough that rejected
 * tokens never overwrite what a standing pool still needs.  The bytes are
 * SEAM_LAYOUT_SPARSE_MLA_* in layout.h. */
#include <seam/plugin.h>

#include <math.h>
#include <string.h>

#include "kv_record.h"
#include "plugin_util.h"

static const struct seam_host *host;

enum { LATENT = 0, INDEX = 1 }; /* planes */

struct layer {
    struct seam_tensor q_a, q_b;   /* [q_lora, d], [H * nope, q_lora]         */
    struct seam_tensor kv_a, kv_b; /* [kv_lora, d], [H * (nope + v), kv_lora] */
    struct seam_tensor o;          /* [d, H * v]                              */
    struct seam_tensor wq_b;       /* [IH * ID, q_lora]                       */
    struct seam_tensor wk, gate;   /* [ID, d]                                 */
    struct seam_tensor wp;         /* [IH, d]     weights_proj                */
    double *q_norm, *kv_norm;      /* [q_lora], [kv_lora]                     */
    double *k_norm, *k_bias;       /* [ID]                                    */
    double *ape;                   /* [kpool][ID]                             */
};

struct mla {
    uint32_t n_layers, max_tokens, max_kv;
    uint32_t d, heads, q_lora, kv_lora, nope, v;
    uint32_t ih, id;           /* index heads and their width             */
    uint32_t kpool, top_pools; /* tokens per pool, pools selected         */
    uint32_t width;            /* most tokens one query selects           */
    uint32_t ring;             /* slots                                   */
    uint32_t kv;               /* index into kv_dtype                     */
    double eps;
    struct layer *layer;
    struct seam_grant g;
    void (*sink)(void *, uint32_t, const char *, const struct seam_tensor *);
    void *sink_ctx;
};

/* What one call keeps in ws; T is max_tokens, N the longest context. */
struct scratch {
    double *x;         /* [T][d]                                            */
    double *qr;        /* [T][q_lora]                                       */
    double *q;         /* [T][H * nope]                                     */
    double *c;         /* [T][kv_lora]                                      */
    double *iq;        /* [T][IH * ID]                                      */
    double *ik, *ig;   /* [T][ID]                                           */
    double *iw;        /* [T][IH]                                           */
    double *o;         /* [T][H * v]                                        */
    double *out;       /* [T][d]                                            */
    double *row;       /* [max row of a weight]                             */
    double *wk, *wv;   /* [nope][kv_lora], [v][kv_lora] of one head         */
    double *key, *val; /* [N][nope], [N][v] of one head; selected tokens    */
    double *lat;       /* [max(kv_lora, ID)] one record                     */
    float *lat32;      /* [max(kv_lora, ID)] one to be stored               */
    double *score;     /* [N / kpool]                                       */
    double *p;         /* [width]                                           */
    uint8_t *chosen;   /* [N / kpool] pools of one query                    */
    uint8_t *used;     /* [N] tokens some query of the sequence selects     */
    int32_t *sel;      /* [T][width] positions, ascending; -1: unused       */
    uint8_t *lost;     /* [T] a score is not a number                       */
};

static uint64_t max2(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t scratch_layout(const struct mla *m, void *ws, struct scratch *s)
{
    struct plug_arena a = { .p = ws };
    uint64_t t = m->max_tokens, n = m->max_kv;
    uint64_t hv = (uint64_t)m->heads * m->v;

    s->x = plug_take(&a, t * m->d, sizeof *s->x);
    s->qr = plug_take(&a, t * m->q_lora, sizeof *s->qr);
    s->q = plug_take(&a, t * m->heads * m->nope, sizeof *s->q);
    s->c = plug_take(&a, t * m->kv_lora, sizeof *s->c);
    s->iq = plug_take(&a, t * m->ih * m->id, sizeof *s->iq);
    s->ik = plug_take(&a, t * m->id, sizeof *s->ik);
    s->ig = plug_take(&a, t * m->id, sizeof *s->ig);
    s->iw = plug_take(&a, t * m->ih, sizeof *s->iw);
    s->o = plug_take(&a, t * hv, sizeof *s->o);
    s->out = plug_take(&a, t * m->d, sizeof *s->out);
    s->row = plug_take(&a, max2(max2(m->d, m->q_lora), max2(m->kv_lora, hv)),
                       sizeof *s->row);
    s->wk = plug_take(&a, (uint64_t)m->nope * m->kv_lora, sizeof *s->wk);
    s->wv = plug_take(&a, (uint64_t)m->v * m->kv_lora, sizeof *s->wv);
    s->key = plug_take(&a, n * m->nope, sizeof *s->key);
    s->val = plug_take(&a, n * m->v, sizeof *s->val);
    s->lat = plug_take(&a, max2(m->kv_lora, m->id), sizeof *s->lat);
    s->lat32 = plug_take(&a, max2(m->kv_lora, m->id), sizeof *s->lat32);
    s->score = plug_take(&a, n / m->kpool + 1, sizeof *s->score);
    s->p = plug_take(&a, m->width, sizeof *s->p);
    s->chosen = plug_take(&a, n / m->kpool + 1, sizeof *s->chosen);
    s->used = plug_take(&a, n, sizeof *s->used);
    s->sel = plug_take(&a, t * m->width, sizeof *s->sel);
    s->lost = plug_take(&a, t, sizeof *s->lost);
    return a.used;
}

/* ---- Where things are cached --------------------------------------------- */

static uint64_t record_bytes(const struct mla *m, uint32_t plane)
{
    return kv_record_bytes(kv_dtype[m->kv].dtype,
                           plane == INDEX ? m->id : m->kv_lora);
}

/* The record of a slot (page * page_tokens + offset): of its token, or of the
 * pool it belongs to. */
static void *record(const struct mla *m, uint32_t layer, uint32_t plane,
                    int64_t slot)
{
    int64_t page = slot / m->g.page_tokens, at = slot % m->g.page_tokens;

    return (char *)m->g.plane[plane][layer] +
           (uint64_t)page * m->g.page_stride[plane] +
           (uint64_t)(plane == INDEX ? at / m->kpool : at) *
               record_bytes(m, plane);
}

/* Where sequence i keeps position pos. */
static int64_t slot_of(const struct mla *m, const struct seam_step *s,
                       uint32_t i, uint32_t pos)
{
    int64_t page =
        s->page_table[(uint64_t)i * s->max_pages + pos / m->g.page_tokens];

    return page * m->g.page_tokens + pos % m->g.page_tokens;
}

/* Key and gate of position pos in the ring of a state row. */
static float *ring_at(const struct mla *m, uint32_t layer, int32_t row,
                      uint32_t pos)
{
    float *ring = (float *)((char *)m->g.state[layer] +
                            (uint64_t)row * m->g.state_stride);

    return ring + (uint64_t)(pos % m->ring) * 2 * m->id;
}

/* ---- The formulas -------------------------------------------------------- */

static void rms(double *v, const double *w, uint32_t n, double eps)
{
    double scale = 1 / sqrt(weights_dot(v, v, n) / n + eps);

    for (uint32_t i = 0; i < n; i++)
        v[i] *= scale * w[i];
}

/* 4.3: mean subtracted, biased variance, eps 1e-6. */
static void layer_norm(double *v, const double *w, const double *b, uint32_t n)
{
    double mean = 0, var = 0;

    for (uint32_t i = 0; i < n; i++)
        mean += v[i] / n;
    for (uint32_t i = 0; i < n; i++)
        var += (v[i] - mean) * (v[i] - mean) / n;
    for (uint32_t i = 0; i < n; i++)
        v[i] = (v[i] - mean) / sqrt(var + 1e-6) * w[i] + b[i];
}

/* 4.1 and 4.3 for all n rows of s->x. */
static void project(const struct mla *m, const struct layer *l, uint32_t n,
                    struct scratch *s)
{
    weights_linear(&l->q_a, s->x, m->d, n, s->qr, m->q_lora, s->row);
    for (uint64_t r = 0; r < n; r++)
        rms(s->qr + r * m->q_lora, l->q_norm, m->q_lora, m->eps);
    weights_linear(&l->q_b, s->qr, m->q_lora, n, s->q, m->heads * m->nope,
                   s->row);
    weights_linear(&l->kv_a, s->x, m->d, n, s->c, m->kv_lora, s->row);
    for (uint64_t r = 0; r < n; r++)
        rms(s->c + r * m->kv_lora, l->kv_norm, m->kv_lora, m->eps);
    weights_linear(&l->wq_b, s->qr, m->q_lora, n, s->iq, m->ih * m->id, s->row);
    weights_linear(&l->wk, s->x, m->d, n, s->ik, m->id, s->row);
    for (uint64_t r = 0; r < n; r++)
        layer_norm(s->ik + r * m->id, l->k_norm, l->k_bias, m->id);
    weights_linear(&l->gate, s->x, m->d, n, s->ig, m->id, s->row);
    weights_linear(&l->wp, s->x, m->d, n, s->iw, m->ih, s->row);
    for (uint64_t i = 0; i < (uint64_t)n * m->ih; i++)
        s->iw[i] /= sqrt(m->ih);
}

/* 4.3: the pool whose last token is at position last, from the ring. */
static void make_pool(const struct mla *m, const struct layer *l,
                      uint32_t layer, int32_t row, uint32_t last, float *pk,
                      void *to)
{
    uint32_t first = last + 1 - m->kpool;

    for (uint32_t d = 0; d < m->id; d++) {
        double top = -INFINITY, sum = 0, key = 0;

        for (uint32_t i = 0; i < m->kpool; i++)
            top = fmax(top, ring_at(m, layer, row, first + i)[m->id + d] +
                                l->ape[i * m->id + d]);
        for (uint32_t i = 0; i < m->kpool; i++) {
            const float *at = ring_at(m, layer, row, first + i);
            double w = exp(at[m->id + d] + l->ape[i * m->id + d] - top);

            sum += w;
            key += w * at[d];
        }
        pk[d] = (float)(key / sum);
    }
    kv_record_put(to, kv_dtype[m->kv].dtype, pk, m->id);
}

/* Store token r of the step: latent, ring, and its pool if it is the last. */
static void store(const struct mla *m, const struct layer *l, uint32_t layer,
                  const struct seam_step *step, int32_t row, uint64_t r,
                  struct scratch *s)
{
    uint32_t pos = (uint32_t)step->pos[r];
    float *ring = ring_at(m, layer, row, pos);

    for (uint32_t i = 0; i < m->kv_lora; i++)
        s->lat32[i] = (float)s->c[r * m->kv_lora + i];
    kv_record_put(record(m, layer, LATENT, step->slot[r]),
                  kv_dtype[m->kv].dtype, s->lat32, m->kv_lora);
    for (uint32_t i = 0; i < m->id; i++) {
        ring[i] = (float)s->ik[r * m->id + i];
        ring[m->id + i] = (float)s->ig[r * m->id + i];
    }
    if ((pos + 1) % m->kpool == 0)
        make_pool(m, l, layer, row, pos, s->lat32,
                  record(m, layer, INDEX, step->slot[r]));
}

/* 4.4: the positions token r of sequence i attends to, ascending, into its row
 * of s->sel. */
static void choose(const struct mla *m, uint32_t layer,
                   const struct seam_step *step, uint32_t i, uint64_t r,
                   struct scratch *s)
{
    uint32_t pos = (uint32_t)step->pos[r], n = (pos + 1) / m->kpool, k = 0;
    int32_t *sel = s->sel + r * m->width;
    uint16_t dtype = kv_dtype[m->kv].dtype;

    for (uint32_t p = 0; p < n; p++) {
        const void *pk =
            record(m, layer, INDEX, slot_of(m, step, i, p * m->kpool));

        for (uint32_t d = 0; d < m->id; d++)
            s->lat[d] = kv_record_at(pk, dtype, m->id, d);
        s->score[p] = 0;
        for (uint32_t h = 0; h < m->ih; h++) {
            double dot = 0;

            for (uint32_t d = 0; d < m->id; d++)
                dot += s->iq[(r * m->ih + h) * m->id + d] * s->lat[d];
            dot /= sqrt(m->id);
            /* Not fmax: a NaN must not look like a zero. */
            s->score[p] += s->iw[r * m->ih + h] * (dot < 0 ? 0 : dot);
        }
        s->lost[r] |= isnan(s->score[p]);
        s->chosen[p] = n <= m->top_pools;
    }
    for (uint32_t left = m->top_pools; n > m->top_pools && left > 0; left--) {
        int64_t best = -1;

        for (uint32_t p = 0; p < n; p++)
            if (!s->chosen[p] && !isnan(s->score[p]) &&
                (best < 0 || s->score[p] > s->score[best]))
                best = p;
        if (best < 0)
            break;
        s->chosen[best] = 1;
    }
    for (uint32_t p = 0; p < n; p++)
        for (uint32_t t = 0; s->chosen[p] && t < m->kpool; t++)
            sel[k++] = (int32_t)(p * m->kpool + t);
    for (uint32_t t = n * m->kpool; t <= pos; t++)
        sel[k++] = (int32_t)t;
    while (k < m->width)
        sel[k++] = -1;
}

/* 4.2, one head: softmax over the selected tokens, o = sum of their values. */
static void attend(const struct mla *m, const double *q, const int32_t *sel,
                   const struct scratch *s, double *o)
{
    double top = -INFINITY, sum = 0;
    uint32_t n = 0;

    for (; n < m->width && sel[n] >= 0; n++) {
        s->p[n] = weights_dot(q, s->key + (uint64_t)sel[n] * m->nope, m->nope) /
                  sqrt(m->nope);
        top = fmax(top, s->p[n]);
    }
    for (uint32_t i = 0; i < n; i++)
        sum += s->p[i] = exp(s->p[i] - top);
    memset(o, 0, m->v * sizeof *o);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t e = 0; e < m->v; e++)
            o[e] += s->p[i] / sum * s->val[(uint64_t)sel[i] * m->v + e];
}

/* Keys and values of head h for the tokens in s->used. */
static void expand(const struct mla *m, const struct layer *l, uint32_t layer,
                   const struct seam_step *step, uint32_t i, uint32_t n,
                   uint32_t h, struct scratch *s)
{
    uint64_t first = (uint64_t)h * (m->nope + m->v);

    for (uint32_t e = 0; e < m->nope; e++)
        weights_row(&l->kv_b, first + e, s->wk + (uint64_t)e * m->kv_lora);
    for (uint32_t e = 0; e < m->v; e++)
        weights_row(&l->kv_b, first + m->nope + e,
                    s->wv + (uint64_t)e * m->kv_lora);
    for (uint32_t t = 0; t < n; t++) {
        const void *c;

        if (!s->used[t])
            continue;
        c = record(m, layer, LATENT, slot_of(m, step, i, t));
        for (uint32_t j = 0; j < m->kv_lora; j++)
            s->lat[j] = kv_record_at(c, kv_dtype[m->kv].dtype, m->kv_lora, j);
        for (uint32_t e = 0; e < m->nope; e++)
            s->key[(uint64_t)t * m->nope + e] = weights_dot(
                s->wk + (uint64_t)e * m->kv_lora, s->lat, m->kv_lora);
        for (uint32_t e = 0; e < m->v; e++)
            s->val[(uint64_t)t * m->v + e] = weights_dot(
                s->wv + (uint64_t)e * m->kv_lora, s->lat, m->kv_lora);
    }
}

/* One sequence of the step: tokens [t0, t1). */
static void sequence(const struct mla *m, const struct layer *l, uint32_t layer,
                     const struct seam_step *step, uint32_t i,
                     struct scratch *s)
{
    int32_t t0 = step->q_start[i], t1 = step->q_start[i + 1];
    uint32_t n = (uint32_t)step->kv_len[i];

    for (int32_t t = t0; t < t1; t++)
        if (step->slot[t] >= 0)
            store(m, l, layer, step, step->state_row[i], (uint64_t)t, s);
    for (int32_t t = t0; t < t1; t++)
        if (step->slot[t] >= 0)
            choose(m, layer, step, i, (uint64_t)t, s);
    memset(s->used, 0, n);
    for (int32_t t = t0; t < t1; t++)
        for (uint32_t k = 0; k < m->width; k++)
            if (s->sel[(uint64_t)t * m->width + k] >= 0)
                s->used[s->sel[(uint64_t)t * m->width + k]] = 1;
    for (uint32_t h = 0; h < m->heads; h++) {
        expand(m, l, layer, step, i, n, h, s);
        for (int32_t t = t0; t < t1; t++)
            attend(m, s->q + ((uint64_t)t * m->heads + h) * m->nope,
                   s->sel + (uint64_t)t * m->width, s,
                   s->o + ((uint64_t)t * m->heads + h) * m->v);
    }
}

/* ---- The block ----------------------------------------------------------- */

static int step_check(const struct mla *m, const struct seam_exec *e,
                      const struct seam_step *s)
{
    for (uint32_t i = 0; i < s->n_seqs; i++) {
        if (s->q_start[i] < 0 || s->q_start[i + 1] < s->q_start[i] ||
            (uint32_t)s->q_start[i + 1] > s->n_tokens)
            return plug_fail(e->err, SEAM_EINVAL,
                             "sparse_mla_ref: sequence %u "
                             "has tokens [%d, %d) of %u",
                             i, s->q_start[i], s->q_start[i + 1], s->n_tokens);
        if (s->state_row[i] >= (int64_t)m->g.n_state_rows || s->kv_len[i] < 0 ||
            (uint32_t)s->kv_len[i] > m->max_kv)
            return plug_fail(e->err, SEAM_EINVAL,
                             "sparse_mla_ref: sequence %u "
                             "in row %d of %u with %d tokens, expected at most "
                             "%u",
                             i, s->state_row[i], m->g.n_state_rows,
                             s->kv_len[i], m->max_kv);
        for (int32_t t = s->q_start[i]; t < s->q_start[i + 1]; t++)
            if (s->slot[t] >= 0 && (s->pos[t] < 0 || s->pos[t] >= s->kv_len[i]))
                return plug_fail(e->err, SEAM_EINVAL,
                                 "sparse_mla_ref: token "
                                 "%d at position %d of %d",
                                 t, s->pos[t], s->kv_len[i]);
    }
    return SEAM_OK;
}

static int mla_forward(void *self, const struct seam_exec *e,
                       const struct seam_block_args *b)
{
    struct mla *m = self;
    const struct seam_step *step = b->step;
    uint32_t n = step->n_tokens;
    uint64_t hv = (uint64_t)m->heads * m->v;
    const struct layer *l;
    struct scratch s;
    int rc;

    if (b->layer >= m->n_layers || n > m->max_tokens ||
        !plug_is_rows(&b->x, SEAM_F32, 4, n, m->d) ||
        !plug_is_rows(&b->y, SEAM_F32, 4, n, m->d))
        return plug_fail(e->err, SEAM_EINVAL,
                         "sparse_mla_ref: layer %u with "
                         "%u rows, expected under %u with [rows <= %u, %u] F32",
                         b->layer, n, m->n_layers, m->max_tokens, m->d);
    if (scratch_layout(m, e->ws, &s) > e->ws_bytes)
        return plug_fail(e->err, SEAM_EINVAL,
                         "sparse_mla_ref: ws is %llu "
                         "bytes",
                         (unsigned long long)e->ws_bytes);
    rc = step_check(m, e, step);
    if (rc)
        return rc;
    l = &m->layer[b->layer];
    for (uint32_t r = 0; r < n; r++) {
        const float *x = plug_row(&b->x, r);

        for (uint32_t i = 0; i < m->d; i++)
            s.x[(uint64_t)r * m->d + i] = step->slot[r] < 0 ? 0 : x[i];
        s.lost[r] = 0;
    }
    for (uint64_t i = 0; i < (uint64_t)n * m->width; i++)
        s.sel[i] = -1;
    memset(s.o, 0, n * hv * sizeof *s.o);
    project(m, l, n, &s);
    for (uint32_t i = 0; i < step->n_seqs; i++)
        if (step->state_row[i] >= 0)
            sequence(m, l, b->layer, step, i, &s);
    weights_linear(&l->o, s.o, hv, n, s.out, m->d, s.row);
    for (uint32_t r = 0; r < n; r++) {
        float *y = plug_row(&b->y, r);

        for (uint32_t i = 0; i < m->d; i++)
            y[i] = s.lost[r] ? NAN : (float)s.out[(uint64_t)r * m->d + i];
    }
    if (m->sink) {
        struct seam_tensor t = {
            .data = s.sel,
            .bytes = (uint64_t)n * m->width * 4,
            .shape = { n, m->width },
            .stride = { (int64_t)m->width * 4 },
            .dtype = SEAM_I32,
            .rank = 2,
            .device = -1,
        };

        m->sink(m->sink_ctx, b->layer, "topk_index", &t);
    }
    return SEAM_OK;
}

/* The ring holds every token that stands, whichever they are. */
static int mla_commit(void *self, const struct seam_exec *e, uint32_t n,
                      const int32_t *row, const int32_t *n_accept)
{
    (void)self;
    (void)e;
    (void)n;
    (void)row;
    (void)n_accept;
    return SEAM_OK;
}

static void mla_trace_set(void *self, void *ctx,
                          void (*sink)(void *, uint32_t, const char *,
                                       const struct seam_tensor *))
{
    struct mla *m = self;

    m->sink = sink;
    m->sink_ctx = ctx;
}

/* ---- The instance -------------------------------------------------------- */

static int mla_init(const struct seam_host *h, struct seam_error *err)
{
    (void)err;
    host = h;
    return SEAM_OK;
}

static int read_config(struct mla *m, const struct seam_create *c,
                       struct seam_error *err)
{
    const struct seam_cfg *mc = host->model_cfg(host->ctx, c->model);
    uint32_t rope = 0, topk = 0;
    int32_t tail = 1;
    const struct {
        const char *key;
        uint32_t lo, hi, *out;
    } key[] = {
        { "hidden_size", 1, 1 << 20, &m->d },
        { "num_attention_heads", 1, 1 << 12, &m->heads },
        { "q_lora_rank", 1, 1 << 16, &m->q_lora },
        { "kv_lora_rank", 1, 1 << 16, &m->kv_lora },
        { "qk_nope_head_dim", 1, 1 << 12, &m->nope },
        { "qk_rope_head_dim", 0, 0, &rope },
        { "v_head_dim", 1, 1 << 12, &m->v },
        { "index_n_heads", 1, 1 << 12, &m->ih },
        { "index_head_dim", 1, 1 << 12, &m->id },
        { "index_topk", 1, 1 << 20, &topk },
        { "index_kpool", 1, 256, &m->kpool },
    };
    int rc = SEAM_OK;

    for (uint32_t i = 0; !rc && i < sizeof key / sizeof *key; i++)
        rc = plug_model_u32(host, mc, key[i].key, NULL, key[i].lo, key[i].hi,
                            key[i].out, err);
    if (!rc)
        rc = plug_model_f64(host, mc, "rms_norm_eps", NULL, &m->eps, err);
    if (!rc)
        rc = plug_cfg_word(host, c->cfg, "sparse_mla_ref config", "kv_dtype",
                           kv_dtype_word, KV_DTYPES, KV_DEFAULT, &m->kv, err);
    if (rc)
        return rc;
    if (host->cfg(host->ctx, mc, "index_kpool_always_select_tail",
                  SEAM_CFG_BOOL, &tail) == SEAM_EINVAL ||
        !tail)
        return plug_fail(err, SEAM_ENOTSUP,
                         "model config: "
                         "index_kpool_always_select_tail must be true");
    m->top_pools = topk / m->kpool;
    if (!m->top_pools)
        return plug_fail(err, SEAM_EDATA,
                         "model config: index_topk %u is less "
                         "than index_kpool %u",
                         topk, m->kpool);
    m->width = m->top_pools * m->kpool + m->kpool - 1;
    m->max_tokens = c->limits->max_tokens;
    m->max_kv = c->limits->max_context + c->limits->max_draft;
    m->ring = seam_ring_slots(m->kpool, c->limits->max_draft);
    return SEAM_OK;
}

/* The weight `name` as doubles in memory of the instance's own. */
static int read_values(double **out, const struct seam_create *c,
                       uint32_t layer, const char *name, uint64_t n_out,
                       uint64_t n_in, struct seam_error *err)
{
    struct seam_tensor t;
    int rc = plug_weight(host, c->model, layer, name, n_out, n_in, &t, err);

    if (rc)
        return rc;
    *out = plug_zalloc(host, n_out * (n_in ? n_in : 1), sizeof **out);
    if (!*out)
        return plug_fail(err, SEAM_ENOMEM, "sparse_mla_ref: out of memory");
    if (!n_in)
        weights_row(&t, 0, *out);
    for (uint64_t r = 0; n_in && r < n_out; r++)
        weights_row(&t, r, *out + r * n_in);
    return SEAM_OK;
}

static int read_layer(struct layer *l, const struct mla *m,
                      const struct seam_create *c, uint32_t layer,
                      struct seam_error *err)
{
    const struct {
        const char *name;
        uint64_t n_out, n_in;
        struct seam_tensor *out;
    } linear[] = {
        { "self_attn.q_a_proj", m->q_lora, m->d, &l->q_a },
        { "self_attn.q_b_proj", (uint64_t)m->heads * m->nope, m->q_lora,
          &l->q_b },
        { "self_attn.kv_a_proj_with_mqa", m->kv_lora, m->d, &l->kv_a },
        { "self_attn.kv_b_proj", (uint64_t)m->heads * (m->nope + m->v),
          m->kv_lora, &l->kv_b },
        { "self_attn.o_proj", m->d, (uint64_t)m->heads * m->v, &l->o },
        { "self_attn.indexer.wq_b", (uint64_t)m->ih * m->id, m->q_lora,
          &l->wq_b },
        { "self_attn.indexer.wk", m->id, m->d, &l->wk },
        { "self_attn.indexer.index_kpool_compress_gate", m->id, m->d,
          &l->gate },
        { "self_attn.indexer.weights_proj", m->ih, m->d, &l->wp },
    };
    const struct {
        const char *name;
        uint64_t n_out, n_in;
        double **out;
    } values[] = {
        { "self_attn.q_a_layernorm.weight", m->q_lora, 0, &l->q_norm },
        { "self_attn.kv_a_layernorm.weight", m->kv_lora, 0, &l->kv_norm },
        { "self_attn.indexer.k_norm.weight", m->id, 0, &l->k_norm },
        { "self_attn.indexer.k_norm.bias", m->id, 0, &l->k_bias },
        { "self_attn.indexer.index_kpool_compress_ape", m->kpool, m->id,
          &l->ape },
    };
    int rc = SEAM_OK;

    for (uint32_t i = 0; !rc && i < sizeof linear / sizeof *linear; i++)
        rc = plug_weight(host, c->model, layer, linear[i].name, linear[i].n_out,
                         linear[i].n_in, linear[i].out, err);
    for (uint32_t i = 0; !rc && i < sizeof values / sizeof *values; i++)
        rc = read_values(values[i].out, c, layer, values[i].name,
                         values[i].n_out, values[i].n_in, err);
    return rc;
}

static void mla_destroy(void *self)
{
    struct mla *m = self;

    if (!m)
        return;
    for (uint32_t i = 0; m->layer && i < m->n_layers; i++) {
        plug_free(host, m->layer[i].q_norm);
        plug_free(host, m->layer[i].kv_norm);
        plug_free(host, m->layer[i].k_norm);
        plug_free(host, m->layer[i].k_bias);
        plug_free(host, m->layer[i].ape);
    }
    plug_free(host, m->layer);
    plug_free(host, m);
}

static int mla_create(const struct seam_create *c, void **self,
                      struct seam_error *err)
{
    struct mla *m;
    int rc;

    if (c->device->ordinal != -1 || c->limits->act_dtype != SEAM_F32 ||
        c->limits->tp_size > 1)
        return plug_fail(err, SEAM_ENOTSUP,
                         "sparse_mla_ref runs on one CPU in "
                         "F32 only");
    m = plug_zalloc(host, 1, sizeof *m);
    if (!m)
        goto no_memory;
    rc = read_config(m, c, err);
    if (rc)
        goto out;
    m->layer = plug_zalloc(host, c->n_layers, sizeof *m->layer);
    if (!m->layer)
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
    rc = plug_fail(err, SEAM_ENOMEM, "sparse_mla_ref: out of memory");
out:
    mla_destroy(m);
    return rc;
}

static int mla_needs(void *self, struct seam_needs *n, struct seam_error *err)
{
    struct mla *m = self;
    struct scratch s;

    (void)err;
    n->capture = SEAM_CAP_BEGIN | SEAM_CAP_FORWARD | SEAM_CAP_COMMIT;
    n->flags = SEAM_NEEDS_ROW_INVARIANT;
    n->ws_bytes = scratch_layout(m, NULL, &s);
    n->layout_id = kv_dtype[m->kv].layout;
    n->state_bytes = (uint64_t)m->ring * 2 * m->id * sizeof(float);
    n->state_copies = 1;
    n->page_multiple = m->kpool;
    n->n_planes = 2;
    n->plane[LATENT] = (struct seam_plane){
        .name = "latent",
        .bytes_per_token = (uint32_t)record_bytes(m, LATENT),
        .flags = SEAM_PLANE_APPEND,
    };
    n->plane[INDEX] = (struct seam_plane){
        .name = "index",
        .bytes_per_token =
            (uint32_t)((record_bytes(m, INDEX) + m->kpool - 1) / m->kpool),
        .flags = SEAM_PLANE_APPEND,
    };
    return SEAM_OK;
}

static int mla_attach(void *self, const struct seam_grant *g,
                      struct seam_error *err)
{
    struct mla *m = self;

    if (g->page_tokens % m->kpool)
        return plug_fail(err, SEAM_EINVAL,
                         "sparse_mla_ref: pages of %u tokens, "
                         "expected a multiple of %u",
                         g->page_tokens, m->kpool);
    m->g = *g;
    return SEAM_OK;
}

static const void *mla_extension(const char *id)
{
    static const struct seam_trace t = { .size = sizeof t,
                                         .set = mla_trace_set };

    return strcmp(id, "trace/1") ? NULL : &t;
}

static const struct seam_block mla_block = {
    .size = sizeof mla_block,
    .forward = mla_forward,
    .commit = mla_commit,
};

const struct seam_plugin seam_plugin_entry = {
    .ident = { SEAM_IDENT(SEAM_KIND_ATTENTION, struct seam_block),
               .flags = SEAM_PLUGIN_UNLOADABLE, .name = "sparse_mla_ref",
               .version = "1.0.0", .build = __VERSION__ },
    .table = &mla_block,
    .init = mla_init,
    .create = mla_create,
    .needs = mla_needs,
    .attach = mla_attach,
    .destroy = mla_destroy,
    .extension = mla_extension,
};
