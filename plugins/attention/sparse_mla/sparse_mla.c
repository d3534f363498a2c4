/* sparse_mla - latent attention over the tokens a pooled indexer selects,
 * docs/spec/glm5_next.md section 4, for the host's processors in F32.
 *
 * The absorbed form: queries go into the latent space, attention happens there,
 * and the result comes out through the value half of kv_b.  A task is one row
 * and a group of heads, at best all of them; it reads each selected latent once
 * for all of them, in tiles, with a running softmax.  What is computed for a
 * row does not depend on the other rows of the step.
 *
 * Rollback costs nothing: latents and pools past the standing tokens are never
 * read before they are written again, and the ring of keys and gates is long
 * enough that rejected tokens never overwrite what a standing pool needs.  The
 * bytes are those of layout.h. */
#include <seam/plugin.h>

#include <math.h>
#include <string.h>

#include "kern_attend.h"
#include "kv_record.h"
#include "select.h"

static const struct seam_host *host;

enum { LATENT = 0, INDEX = 1 }; /* planes */

enum {
    TILE = 64,      /* tokens attended to at a time                     */
    SPAN = 512,     /* tokens under one running softmax, a TILE multiple */
    MAX_PARTS = 16, /* spans of a pass that tasks may share             */
    MAX_GROUP = 32, /* heads of one task                                */
    PAD = 16,       /* floats between widened records                   */
    CHUNK = 96,     /* rows whose queries are in latent space at once   */
    POOLS = 256,    /* pools scored by one task ...                     */
    SCORE_ROWS = 8, /* ... for so many rows                             */
    MAX_INDEX_HEADS = 128,
    MAX_F8 = 2048,    /* values of a record that is widened to be read    */
    SCORES = 1 << 20, /* scores kept at once                              */
    FEW_ROWS = 8      /* rows of cheap work that are one task             */
};

struct layer {
    struct kern_mat q_a, q_b;   /* [q_lora, d], [H * nope, q_lora]           */
    struct kern_mat kv_a, kv_b; /* [kv_lora, d], [H * (nope + v), kv_lora]   */
    struct kern_mat o;          /* [d, H * v]                                */
    struct kern_mat wq_b;       /* [IH * ID, q_lora]                         */
    struct kern_mat wk, gate;   /* [ID, d]                                   */
    struct kern_mat wp;         /* [IH, d]     weights_proj                  */
    float *q_norm, *kv_norm;    /* [q_lora], [kv_lora]                       */
    float *k_norm, *k_bias;     /* [ID]                                      */
    float *ape;                 /* [kpool][ID]                               */
    struct kern_mat *half;      /* [2 H]       kv_b by head: keys, values    */
    float *wide;                /* kv_b as floats when it is quantised      */
};

struct mla {
    const struct kern *k;
    uint32_t n_layers, max_tokens, max_kv;
    uint32_t d, heads, q_lora, kv_lora, nope, v;
    uint32_t ih, id;           /* index heads and their width               */
    uint32_t kpool, top_pools; /* tokens per pool, pools selected           */
    uint32_t width;            /* most tokens one query selects             */
    uint32_t ring;             /* slots                                     */
    uint32_t n_workers;
    uint32_t kv;   /* index into kv_dtype                       */
    uint16_t kept; /* dtype of the records: F32, BF16 or F8E4M3 */
    const struct kern_attend *tiles; /* NULL: vectors                        */
    const struct kern_attend *index; /* the same for the indexer             */
    float eps;
    struct layer *layer;
    char *scratch;        /* [n_workers] of KERN_SCRATCH bytes         */
    float *room;          /* [n_workers][room_floats]                  */
    struct kern_job *job; /* [H]                                       */
    struct seam_grant g;
    void (*sink)(void *, uint32_t, const char *, const struct seam_tensor *);
    void *sink_ctx;
};

/* What one call keeps in ws; T is max_tokens. */
struct work {
    float *qr;      /* [T][q_lora]                                            */
    float *q;       /* [T][pitch]  queries [H][nope], later outputs [H][v]    */
    float *c;       /* [T][kv_lora]                                           */
    float *iq;      /* [T][IH * ID]                                           */
    float *iqt;     /* [T][turned_floats] the same as scores want them        */
    float *ik, *ig; /* [T][ID]                                                */
    float *iw;      /* [T][IH]                                                */
    float *qt;      /* [CHUNK][H * kv_lora] queries, then what they attended  */
    float *part;    /* [MAX_PARTS][H][kv_lora + 2] see part_of                */
    float *score;   /* [SCORES]                                               */
    int32_t *sel;   /* [T][width] positions, ascending                        */
    int32_t *n_sel; /* [T]  0 for padding, -1 when scores are not numbers     */
    int32_t *seq;   /* [T]  sequence of a row; -1 for padding                 */
    /* of this call */
    const struct mla *m;
    const struct layer *l;
    uint32_t layer, n, group;
    uint32_t r0, rows; /* rows of this pass                                 */
    uint32_t n_pools;  /* most pools of one of them                         */
    uint32_t n_spans;  /* most spans of one of them                         */
    const struct seam_step *step;
};

static uint64_t max2(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Floats between rows of work.q. */
static uint32_t pitch(const struct mla *m)
{
    return m->heads * (m->nope > m->v ? m->nope : m->v);
}

/* Heads of the indexer, up to a whole vector. */
static uint32_t wide_heads(const struct mla *m)
{
    return (m->ih + m->k->lanes - 1) / m->k->lanes * m->k->lanes;
}

/* The indexer's queries of a row: packed for tiles, or [ID][wide_heads]. */
static uint64_t turned_floats(const struct mla *m)
{
    return m->index ? m->index->index_bytes(m->id, m->ih) / sizeof(float)
                    : (uint64_t)m->id * wide_heads(m);
}

/* Weighted latents of a head, its largest score and its sum. */
static uint64_t part_floats(const struct mla *m)
{
    return (uint64_t)m->kv_lora + 2;
}

/* Probabilities, two sums and widened latents of a tile, or what tiles need for
 * these; or widened keys. */
static uint64_t room_floats(const struct mla *m)
{
    uint64_t lat = (uint64_t)m->kv_lora + PAD, tile = TILE * lat;
    uint64_t keys =
        m->index ? m->index->index_keys_bytes(m->id, POOLS) / sizeof(float)
                 : POOLS * ((uint64_t)m->id + PAD);

    if (m->tiles)
        tile = max2(tile, m->tiles->bytes(m->kv_lora) / sizeof(float));
    tile += 2 * MAX_GROUP * lat + MAX_GROUP * TILE;
    return (max2(tile, keys) + 15) & ~(uint64_t)15;
}

static uint64_t n_scores(const struct mla *m)
{
    return max2(m->max_kv / m->kpool + 1, SCORES);
}

static uint64_t work_layout(const struct mla *m, void *ws, struct work *s)
{
    struct plug_arena a = { .p = ws };
    uint64_t t = m->max_tokens, rows = t < CHUNK ? t : CHUNK;

    s->qr = plug_take(&a, t * m->q_lora, sizeof *s->qr);
    s->q = plug_take(&a, t * pitch(m), sizeof *s->q);
    s->c = plug_take(&a, t * m->kv_lora, sizeof *s->c);
    s->iq = plug_take(&a, t * m->ih * m->id, sizeof *s->iq);
    s->iqt = plug_take(&a, t * turned_floats(m), sizeof *s->iqt);
    s->ik = plug_take(&a, t * m->id, sizeof *s->ik);
    s->ig = plug_take(&a, t * m->id, sizeof *s->ig);
    s->iw = plug_take(&a, t * m->ih, sizeof *s->iw);
    s->qt = plug_take(&a, rows * m->heads * m->kv_lora, sizeof *s->qt);
    s->part =
        plug_take(&a, MAX_PARTS * m->heads * part_floats(m), sizeof *s->part);
    s->score = plug_take(&a, n_scores(m), sizeof *s->score);
    s->sel = plug_take(&a, t * m->width, sizeof *s->sel);
    s->n_sel = plug_take(&a, t, sizeof *s->n_sel);
    s->seq = plug_take(&a, t, sizeof *s->seq);
    return a.used;
}

static void parallel(uint32_t n, seam_task *fn, void *arg)
{
    if (n)
        host->parallel_for(host->ctx, n, fn, arg);
}

/* ---- Where things are cached --------------------------------------------- */

static uint64_t record_bytes(const struct mla *m, uint32_t plane)
{
    return kv_record_bytes(m->kept, plane == INDEX ? m->id : m->kv_lora);
}

/* The record of a slot (page * page_tokens + offset): of its token, or of the
 * pool it belongs to. */
static void *record(const struct mla *m, uint32_t layer, uint32_t plane,
                    uint32_t page, uint32_t at)
{
    return (char *)m->g.plane[plane][layer] +
           (uint64_t)page * m->g.page_stride[plane] +
           (uint64_t)(plane == INDEX ? at / m->kpool : at) *
               record_bytes(m, plane);
}

static void *record_of_slot(const struct mla *m, uint32_t layer, uint32_t plane,
                            int32_t slot)
{
    uint32_t u = (uint32_t)slot;

    return record(m, layer, plane, u / m->g.page_tokens, u % m->g.page_tokens);
}

/* The record of position pos of sequence i. */
static void *record_at(const struct work *s, uint32_t plane, uint32_t i,
                       uint32_t pos)
{
    const int32_t *pages =
        s->step->page_table + (uint64_t)i * s->step->max_pages;
    uint32_t pt = s->m->g.page_tokens;

    return record(s->m, s->layer, plane, (uint32_t)pages[pos / pt], pos % pt);
}

/* Key and gate of position pos in the ring of a state row. */
static float *ring_at(const struct mla *m, uint32_t layer, int32_t row,
                      uint32_t pos)
{
    float *ring = (float *)((char *)m->g.state[layer] +
                            (uint64_t)row * m->g.state_stride);

    return ring + (uint64_t)(pos % m->ring) * 2 * m->id;
}

/* Make rec[] point to records of k values as floats: as they lie, or widened
 * into room [n][k + PAD]. */
static void as_floats(const struct mla *m, const void **rec, uint32_t n,
                      uint32_t k, float *room)
{
    for (uint32_t i = 0; m->kept != SEAM_F32 && i < n; i++) {
        float *to = room + (uint64_t)i * (k + PAD);

        m->k->widen(rec[i], m->kept, k, to);
        if (m->kept == SEAM_F8E4M3)
            m->k->scale(to, kv_record_scale(rec[i], k), NULL, 0, k, to);
        rec[i] = to;
    }
}

/* ---- Storing ------------------------------------------------------------- */

/* 4.3: mean subtracted, biased variance, eps 1e-6. */
static void layer_norm(const struct kern *k, float *v, const float *w,
                       const float *b, uint32_t n)
{
    float mean = k->sum(v, n) / (float)n, s;

    for (uint32_t i = 0; i < n; i++)
        v[i] -= mean;
    s = 1 / sqrtf(k->sum_squares(v, n) / (float)n + 1e-6f);
    for (uint32_t i = 0; i < n; i++)
        v[i] = v[i] * s * w[i] + b[i];
}

/* Norms of some rows, and their latents into the cache. */
static void norm_task(void *arg, uint32_t t, uint32_t worker)
{
    const struct work *s = arg;
    const struct mla *m = s->m;
    uint32_t end = (t + 1) * FEW_ROWS < s->n ? (t + 1) * FEW_ROWS : s->n;
    float weight = 1 / sqrtf((float)m->ih * (float)m->id);

    (void)worker;
    for (uint32_t r = t * FEW_ROWS; r < end; r++) {
        float *qr = s->qr + (uint64_t)r * m->q_lora;
        float *c = s->c + (uint64_t)r * m->kv_lora;

        if (s->seq[r] < 0)
            continue;
        kern_rms(m->k, qr, s->l->q_norm, SEAM_F32, m->q_lora, m->eps, qr);
        kern_rms(m->k, c, s->l->kv_norm, SEAM_F32, m->kv_lora, m->eps, c);
        layer_norm(m->k, s->ik + (uint64_t)r * m->id, s->l->k_norm,
                   s->l->k_bias, m->id);
        m->k->scale(s->iw + (uint64_t)r * m->ih, weight, NULL, 0, m->ih,
                    s->iw + (uint64_t)r * m->ih);
        kv_record_put(record_of_slot(m, s->layer, LATENT, s->step->slot[r]),
                      m->kept, c, m->kv_lora);
    }
}

/* 4.3: the pool whose last token is at position last, from the ring; e has room
 * for [kpool][ID], of which the first row becomes the pool. */
static void make_pool(const struct work *s, int32_t row, uint32_t last,
                      void *to, float *e)
{
    const struct mla *m = s->m;
    uint32_t first = last + 1 - m->kpool;

    for (uint32_t i = 0; i < m->kpool; i++) {
        const float *gate = ring_at(m, s->layer, row, first + i) + m->id;

        for (uint32_t d = 0; d < m->id; d++)
            e[i * m->id + d] = gate[d] + s->l->ape[i * m->id + d];
    }
    for (uint32_t d = 0; d < m->id; d++) {
        float top = e[d];

        for (uint32_t i = 1; i < m->kpool; i++)
            top = e[i * m->id + d] > top ? e[i * m->id + d] : top;
        for (uint32_t i = 0; i < m->kpool; i++)
            e[i * m->id + d] -= top;
    }
    m->k->exp_sum(e, m->kpool * m->id, 1, 0);
    for (uint32_t d = 0; d < m->id; d++) {
        float sum = 0, key = 0;

        for (uint32_t i = 0; i < m->kpool; i++) {
            sum += e[i * m->id + d];
            key += e[i * m->id + d] * ring_at(m, s->layer, row, first + i)[d];
        }
        e[d] = key / sum;
    }
    kv_record_put(to, m->kept, e, m->id);
}

/* Keys and gates of a sequence's tokens into the ring, in order, and each pool
 * as its last token arrives. */
static void store_task(void *arg, uint32_t i, uint32_t worker)
{
    const struct work *s = arg;
    const struct mla *m = s->m;
    const struct seam_step *step = s->step;
    float *e = (float *)(m->scratch + (uint64_t)worker * KERN_SCRATCH);

    for (int32_t t = step->q_start[i]; t < step->q_start[i + 1]; t++) {
        uint32_t pos = (uint32_t)step->pos[t];
        float *ring;

        if (s->seq[t] < 0)
            continue;
        ring = ring_at(m, s->layer, step->state_row[i], pos);
        memcpy(ring, s->ik + (uint64_t)t * m->id, m->id * sizeof *ring);
        memcpy(ring + m->id, s->ig + (uint64_t)t * m->id, m->id * sizeof *ring);
        if ((pos + 1) % m->kpool == 0)
            make_pool(s, step->state_row[i], pos,
                      record_of_slot(m, s->layer, INDEX, step->slot[t]), e);
    }
}

/* ---- Selecting ----------------------------------------------------------- */

static uint32_t pools_of(const struct work *s, uint32_t r)
{
    return ((uint32_t)s->step->pos[r] + 1) / s->m->kpool;
}

/* True when row r has to choose. */
static bool chooses(const struct work *s, uint32_t r)
{
    return s->seq[r] >= 0 && pools_of(s, r) > s->m->top_pools;
}

/* The indexer's queries of some rows, turned so that a head is a lane, or
 * packed for tiles. */
static void turn_task(void *arg, uint32_t t, uint32_t worker)
{
    const struct work *s = arg;
    const struct mla *m = s->m;
    uint32_t end = (t + 1) * FEW_ROWS < s->n ? (t + 1) * FEW_ROWS : s->n;
    uint32_t wide = wide_heads(m);

    (void)worker;
    for (uint32_t r = t * FEW_ROWS; r < end; r++) {
        const float *q = s->iq + (uint64_t)r * m->ih * m->id;
        float *to = s->iqt + r * turned_floats(m);

        if (!chooses(s, r))
            continue;
        if (m->index) {
            m->index->index_queries(to, m->id, q, m->ih);
            continue;
        }
        for (uint32_t i = 0; i < m->id; i++, to += wide) {
            for (uint32_t h = 0; h < m->ih; h++)
                to[h] = q[h * m->id + i];
            for (uint32_t h = m->ih; h < wide; h++)
                to[h] = 0;
        }
    }
}

/* Pools of the part of POOLS that starts at p0 which row r scores. */
static uint32_t pools_in(const struct work *s, uint32_t r, uint32_t p0)
{
    uint32_t n = chooses(s, r) ? pools_of(s, r) : 0;

    return n <= p0 ? 0 : n - p0 < POOLS ? n - p0 : POOLS;
}

/* 4.4: scores of POOLS pools for SCORE_ROWS rows, which read the keys once if
 * they are of one sequence; weights hold 32^-0.5 128^-0.5. */
static void score_task(void *arg, uint32_t t, uint32_t worker)
{
    const struct work *s = arg;
    const struct mla *m = s->m;
    uint32_t parts = (s->n_pools + POOLS - 1) / POOLS;
    uint32_t p0 = t % parts * POOLS, r0 = t / parts * SCORE_ROWS;
    uint32_t end = s->rows - r0 < SCORE_ROWS ? s->rows : r0 + SCORE_ROWS;
    float *room = m->room + (uint64_t)worker * room_floats(m);
    const void *key[POOLS];
    int32_t seq = -1;

    for (uint32_t i = r0; i < end; i++) {
        uint32_t r = s->r0 + i, n = pools_in(s, r, p0);

        if (n && s->seq[r] != seq) {
            uint32_t last = i, most;

            seq = s->seq[r];
            while (last + 1 < end && s->seq[s->r0 + last + 1] == seq)
                last++;
            most = pools_in(s, s->r0 + last, p0);
            most = most > n ? most : n;
            for (uint32_t p = 0; p < most; p++)
                key[p] =
                    record_at(s, INDEX, (uint32_t)seq, (p0 + p) * m->kpool);
            if (m->index)
                m->index->index_keys(room, m->id, m->kept, key, most);
            else
                as_floats(m, key, most, m->id, room);
        }
        if (n && m->index)
            m->index->index_scores(s->iqt + r * turned_floats(m), room, n,
                                   m->id, s->iw + (uint64_t)r * m->ih, m->ih,
                                   s->score + (uint64_t)i * s->n_pools + p0);
        else if (n)
            m->k->pool_scores((const float *const *)key, n, m->id,
                              s->iqt + r * turned_floats(m), wide_heads(m),
                              s->iw + (uint64_t)r * m->ih, m->ih,
                              s->score + (uint64_t)i * s->n_pools + p0);
    }
}

static void select_task(void *arg, uint32_t t, uint32_t worker)
{
    const struct work *s = arg;
    const struct mla *m = s->m;
    uint32_t r = s->r0 + t, n, k = 0;
    uint32_t *bins = (uint32_t *)(m->scratch + (uint64_t)worker * KERN_SCRATCH);
    int32_t *sel = s->sel + (uint64_t)r * m->width;

    s->n_sel[r] = 0;
    if (s->seq[r] < 0)
        return;
    n = pools_of(s, r);
    if (!chooses(s, r)) {
        while (k <= (uint32_t)s->step->pos[r]) {
            sel[k] = (int32_t)k;
            k++;
        }
        s->n_sel[r] = (int32_t)k;
        return;
    }
    if (!select_largest(s->score + (uint64_t)t * s->n_pools, n, m->top_pools,
                        bins, (uint32_t *)sel)) {
        s->n_sel[r] = -1;
        return;
    }
    /* From pools to tokens, from the back because it happens in place. */
    for (uint32_t p = m->top_pools; p-- > 0;) {
        int32_t first = sel[p] * (int32_t)m->kpool;

        for (uint32_t i = m->kpool; i-- > 0;)
            sel[p * m->kpool + i] = first + (int32_t)i;
    }
    k = m->top_pools * m->kpool;
    for (uint32_t i = n * m->kpool; i <= (uint32_t)s->step->pos[r]; i++)
        sel[k++] = (int32_t)i;
    s->n_sel[r] = (int32_t)k;
}

/* Selection of all rows, as many at a time as there is room for scores. */
static void select_rows(struct work *s)
{
    uint32_t most = 0, batch;

    for (uint32_t r = 0; r < s->n; r++)
        if (chooses(s, r) && pools_of(s, r) > most)
            most = pools_of(s, r);
    batch = most ? (uint32_t)(n_scores(s->m) / most) : s->n;
    s->n_pools = most;
    if (most)
        parallel((s->n + FEW_ROWS - 1) / FEW_ROWS, turn_task, s);
    for (s->r0 = 0; s->r0 < s->n; s->r0 += batch) {
        s->rows = s->n - s->r0 < batch ? s->n - s->r0 : batch;
        if (most)
            parallel((s->rows + SCORE_ROWS - 1) / SCORE_ROWS *
                         ((most + POOLS - 1) / POOLS),
                     score_task, s);
        parallel(s->rows, select_task, s);
    }
}

/* ---- Attending ----------------------------------------------------------- */

/* A running softmax over tiles of tokens, for the heads of one task.  A row's
 * selection is cut into spans of fixed places, each with a softmax of its own,
 * which are joined in order: so that tasks may share the spans of a row without
 * changing a bit. */
struct attend {
    uint32_t n;                /* heads                                      */
    const float *q[MAX_GROUP]; /* [kv_lora]                                  */
    float *sum[MAX_GROUP];     /* [kv_lora] weighted latents so far, ...     */
    uint64_t ld;               /* ... so many floats apart                   */
    float *p[MAX_GROUP];       /* [TILE]                                     */
    float top[MAX_GROUP], total[MAX_GROUP];
};

static uint32_t spans_of(const struct work *s, uint32_t r)
{
    uint32_t n = s->n_sel[r] > 0 ? (uint32_t)s->n_sel[r] : 0;

    return n < SPAN ? n > 0 : (n + SPAN / 2) / SPAN;
}

/* One tile of latents, the first of a span or another; room is for widened
 * records, or for the tiles. */
static void attend_tile(const struct mla *m, struct attend *a, const void **lat,
                        uint32_t n, bool first, float *room)
{
    float scale = 1 / sqrtf((float)m->nope);

    if (m->tiles) {
        m->tiles->scores(room, m->kv_lora, a->n, m->kept, lat, n, a->p);
    } else {
        as_floats(m, lat, n, m->kv_lora, room);
        m->k->dot_rows(SEAM_F32, lat, n, m->kv_lora, a->q, a->n, a->p);
    }
    for (uint32_t h = 0; h < a->n; h++) {
        float top = m->k->max(a->p[h], n) * scale;

        if (first)
            a->top[h] = top;
        if (top > a->top[h]) {
            float old = expf(a->top[h] - top);

            a->total[h] *= old;
            m->k->scale(a->sum[h], old, NULL, 0, m->kv_lora, a->sum[h]);
            a->top[h] = top;
        }
        a->total[h] += m->k->exp_sum(a->p[h], n, scale, a->top[h]);
    }
    if (m->tiles)
        m->tiles->mix(room, m->kv_lora, a->n, (const float *const *)a->p, n,
                      a->sum[0], a->ld, !first);
    else
        m->k->mix_rows(SEAM_F32, lat, n, m->kv_lora, (const float *const *)a->p,
                       a->n, a->sum, !first);
}

/* Span j of row r, from the beginning. */
static void attend_span(const struct work *s, uint32_t r, uint32_t j,
                        struct attend *a, float *room)
{
    const struct mla *m = s->m;
    const int32_t *sel = s->sel + (uint64_t)r * m->width;
    uint32_t end =
        j + 1 < spans_of(s, r) ? (j + 1) * SPAN : (uint32_t)s->n_sel[r];

    for (uint32_t h = 0; h < a->n; h++)
        a->total[h] = 0;
    for (uint32_t i = j * SPAN; i < end; i += TILE) {
        uint32_t n = end - i < TILE ? end - i : TILE;
        const void *lat[TILE];

        for (uint32_t k = 0; k < n; k++)
            lat[k] =
                record_at(s, LATENT, (uint32_t)s->seq[r], (uint32_t)sel[i + k]);
        attend_tile(m, a, lat, n, i == j * SPAN, room);
    }
    if (m->tiles)
        m->tiles->settle(m->kv_lora, a->n, a->sum[0], a->ld);
}

/* Take the softmax b of a later span into a. */
static void join(const struct mla *m, float *sum, float *top, float *total,
                 const float *sum_b, float top_b, float total_b)
{
    float all = top_b > *top ? top_b : *top;
    float wa = expf(*top - all), wb = expf(top_b - all);

    m->k->scale(sum, wa, NULL, 0, m->kv_lora, sum);
    m->k->axpy(wb, sum_b, m->kv_lora, sum);
    *total = *total * wa + total_b * wb;
    *top = all;
}

/* What a task computes with: heads [h0, h0 + n) of row r; room as in
 * attend_tile. */
static void attend_init(const struct work *s, struct attend *a, uint32_t r,
                        uint32_t h0, float *mem, float *room)
{
    const struct mla *m = s->m;
    float *qt = s->qt + ((uint64_t)(r - s->r0) * m->heads + h0) * m->kv_lora;

    a->n = m->heads - h0 < s->group ? m->heads - h0 : s->group;
    for (uint32_t h = 0; h < a->n; h++) {
        a->q[h] = qt + (uint64_t)h * m->kv_lora;
        a->p[h] = mem + h * TILE;
    }
    if (m->tiles)
        m->tiles->queries(room, m->kv_lora, a->q, a->n);
}

/* A row and some heads, one span after the other. */
static void attend_task(void *arg, uint32_t t, uint32_t worker)
{
    const struct work *s = arg;
    const struct mla *m = s->m;
    uint32_t groups = (m->heads + s->group - 1) / s->group;
    uint32_t r = s->r0 + t / groups, h0 = t % groups * s->group;
    uint32_t spans = spans_of(s, r);
    uint64_t ld = (uint64_t)m->kv_lora + PAD;
    float *mem = m->room + (uint64_t)worker * room_floats(m);
    float *first = mem + MAX_GROUP * TILE, *next = first + MAX_GROUP * ld;
    float *room = next + MAX_GROUP * ld;
    float *qt = s->qt + ((uint64_t)(r - s->r0) * m->heads + h0) * m->kv_lora;
    float top[MAX_GROUP], total[MAX_GROUP];
    struct attend a;

    if (!spans)
        return;
    attend_init(s, &a, r, h0, mem, room);
    a.ld = ld;
    for (uint32_t j = 0; j < spans; j++) {
        for (uint32_t h = 0; h < a.n; h++)
            a.sum[h] = (j ? next : first) + h * ld;
        attend_span(s, r, j, &a, room);
        for (uint32_t h = 0; h < a.n; h++)
            if (j) {
                join(m, first + h * ld, &top[h], &total[h], a.sum[h], a.top[h],
                     a.total[h]);
            } else {
                top[h] = a.top[h];
                total[h] = a.total[h];
            }
    }
    for (uint32_t h = 0; h < a.n; h++)
        m->k->scale(first + h * ld, 1 / total[h], NULL, 0, m->kv_lora,
                    qt + (uint64_t)h * m->kv_lora);
}

/* Where span j of row r leaves the sum of head h; top and total follow it. */
static float *part_of(const struct work *s, uint32_t r, uint32_t j, uint32_t h)
{
    uint64_t i = ((uint64_t)(r - s->r0) * s->n_spans + j) * s->m->heads + h;

    return s->part + i * part_floats(s->m);
}

/* One span of a row for some heads ... */
static void span_task(void *arg, uint32_t t, uint32_t worker)
{
    const struct work *s = arg;
    const struct mla *m = s->m;
    uint32_t groups = (m->heads + s->group - 1) / s->group;
    uint32_t h0 = t % groups * s->group, j = t / groups % s->n_spans;
    uint32_t r = s->r0 + t / groups / s->n_spans;
    float *mem = m->room + (uint64_t)worker * room_floats(m);
    struct attend a;

    if (j >= spans_of(s, r))
        return;
    attend_init(s, &a, r, h0, mem, mem + MAX_GROUP * TILE);
    for (uint32_t h = 0; h < a.n; h++)
        a.sum[h] = part_of(s, r, j, h0 + h);
    a.ld = part_floats(m);
    attend_span(s, r, j, &a, mem + MAX_GROUP * TILE);
    for (uint32_t h = 0; h < a.n; h++) {
        a.sum[h][m->kv_lora] = a.top[h];
        a.sum[h][m->kv_lora + 1] = a.total[h];
    }
}

/* ... and the spans of a row put together, a head a task. */
static void join_task(void *arg, uint32_t t, uint32_t worker)
{
    const struct work *s = arg;
    const struct mla *m = s->m;
    uint32_t r = s->r0 + t / m->heads, h = t % m->heads;
    float *sum = part_of(s, r, 0, h);
    float *top = sum + m->kv_lora, *total = top + 1;

    (void)worker;
    if (!spans_of(s, r))
        return;
    for (uint32_t j = 1; j < spans_of(s, r); j++) {
        const float *b = part_of(s, r, j, h);

        join(m, sum, top, total, b, b[m->kv_lora], b[m->kv_lora + 1]);
    }
    m->k->scale(sum, 1 / *total, NULL, 0, m->kv_lora,
                s->qt + (uint64_t)t * m->kv_lora);
}

/* Heads of one task: many, to read latents seldom, but few enough that one row
 * keeps the pool busy.  With tiles, fewer than a side of them cost as much. */
static uint32_t group_of(const struct mla *m, uint32_t rows)
{
    uint32_t g = m->heads;

    for (uint32_t tasks; g > 1; g = (g + 1) / 2) {
        tasks = rows * ((m->heads + g - 1) / g);
        if (tasks >= 2 * m->n_workers ||
            (m->tiles && g <= ATTEND_SIDE && tasks >= m->n_workers))
            break;
    }
    return g < MAX_GROUP ? g : MAX_GROUP;
}

/* Attention of rows [r0, r0 + rows): a task per row, or, where rows are fewer
 * than workers, per span of a row. */
static void attend_pass(struct work *s)
{
    const struct mla *m = s->m;
    uint32_t groups = (m->heads + MAX_GROUP - 1) / MAX_GROUP;

    s->n_spans = 0;
    for (uint32_t r = s->r0; r < s->r0 + s->rows; r++)
        s->n_spans = spans_of(s, r) > s->n_spans ? spans_of(s, r) : s->n_spans;
    if (m->n_workers > 1 && s->n_spans > 1 &&
        s->rows * s->n_spans <= MAX_PARTS &&
        s->rows * groups < 2 * m->n_workers) {
        s->group = group_of(m, s->rows * s->n_spans);
        parallel(s->rows * s->n_spans * ((m->heads + s->group - 1) / s->group),
                 span_task, s);
        parallel(s->rows * m->heads, join_task, s);
    } else {
        s->group = group_of(m, s->rows);
        parallel(s->rows * ((m->heads + s->group - 1) / s->group), attend_task,
                 s);
    }
}

/* 4.2 for rows [r0, r0 + rows): queries to latent space, attention, and out
 * through the values; their outputs replace the rows of s->q. */
static void attend_rows(struct work *s)
{
    const struct mla *m = s->m;
    int64_t hl = (int64_t)m->heads * m->kv_lora;
    float *q = s->q + (uint64_t)s->r0 * pitch(m);

    for (uint32_t h = 0; h < m->heads; h++)
        m->job[h] = (struct kern_job){
            .w = &s->l->half[2 * h],
            .x = q + (uint64_t)h * m->nope,
            .ldx = pitch(m),
            .y = s->qt + (uint64_t)h * m->kv_lora,
            .ldy = hl,
            .m = s->rows,
            .across = true,
        };
    kern_run(m->k, host, m->job, m->heads, m->scratch);
    attend_pass(s);
    for (uint32_t h = 0; h < m->heads; h++)
        m->job[h] = (struct kern_job){
            .w = &s->l->half[2 * h + 1],
            .x = s->qt + (uint64_t)h * m->kv_lora,
            .ldx = hl,
            .y = q + (uint64_t)h * m->v,
            .ldy = pitch(m),
            .m = s->rows,
        };
    kern_run(m->k, host, m->job, m->heads, m->scratch);
}

/* ---- The block ----------------------------------------------------------- */

static int step_check(const struct mla *m, const struct seam_exec *e,
                      const struct seam_step *s)
{
    for (uint32_t i = 0; i < s->n_seqs; i++) {
        if (s->q_start[i] < 0 || s->q_start[i + 1] < s->q_start[i] ||
            (uint32_t)s->q_start[i + 1] > s->n_tokens)
            return plug_fail(e->err, SEAM_EINVAL,
                             "sparse_mla: sequence %u has tokens [%d, %d) of "
                             "%u",
                             i, s->q_start[i], s->q_start[i + 1], s->n_tokens);
        if (s->state_row[i] >= (int64_t)m->g.n_state_rows || s->kv_len[i] < 0 ||
            (uint32_t)s->kv_len[i] > m->max_kv)
            return plug_fail(e->err, SEAM_EINVAL,
                             "sparse_mla: sequence %u in row %d of %u with %d "
                             "tokens, expected at most %u",
                             i, s->state_row[i], m->g.n_state_rows,
                             s->kv_len[i], m->max_kv);
        for (int32_t t = s->q_start[i]; t < s->q_start[i + 1]; t++)
            if (s->slot[t] >= 0 && (s->pos[t] < 0 || s->pos[t] >= s->kv_len[i]))
                return plug_fail(e->err, SEAM_EINVAL,
                                 "sparse_mla: token %d at position %d of %d", t,
                                 s->pos[t], s->kv_len[i]);
    }
    return SEAM_OK;
}

static void find_sequences(struct work *s)
{
    const struct seam_step *step = s->step;

    for (uint32_t r = 0; r < s->n; r++)
        s->seq[r] = -1;
    for (uint32_t i = 0; i < step->n_seqs; i++)
        for (int32_t t = step->q_start[i];
             step->state_row[i] >= 0 && t < step->q_start[i + 1]; t++)
            if (step->slot[t] >= 0)
                s->seq[t] = (int32_t)i;
}

static struct kern_job rows_job(const struct kern_mat *w,
                                const struct seam_tensor *x, float *y,
                                uint32_t n)
{
    return (struct kern_job){
        .w = w,
        .x = x->data,
        .ldx = x->stride[0] / 4,
        .y = y,
        .ldy = w->n,
        .m = n,
    };
}

static void project(struct work *s, const struct seam_tensor *x)
{
    const struct mla *m = s->m;
    const struct layer *l = s->l;
    struct kern_job job[5] = {
        rows_job(&l->q_a, x, s->qr, s->n), rows_job(&l->kv_a, x, s->c, s->n),
        rows_job(&l->wk, x, s->ik, s->n),  rows_job(&l->gate, x, s->ig, s->n),
        rows_job(&l->wp, x, s->iw, s->n),
    };

    kern_run(m->k, host, job, 5, m->scratch);
    parallel((s->n + FEW_ROWS - 1) / FEW_ROWS, norm_task, s);
    parallel(s->step->n_seqs, store_task, s);
    for (uint32_t i = 0; i < 2; i++) {
        job[i].w = i ? &l->wq_b : &l->q_b;
        job[i].x = s->qr;
        job[i].ldx = m->q_lora;
        job[i].y = i ? s->iq : s->q;
        job[i].ldy = i ? job[i].w->n : pitch(m);
    }
    kern_run(m->k, host, job, 2, m->scratch);
}

/* Padding rows are zero, rows without a selection not numbers. */
static void finish_rows(const struct work *s, const struct seam_tensor *y)
{
    for (uint32_t r = 0; r < s->n; r++) {
        float *out = plug_row(y, r);

        if (s->n_sel[r] > 0)
            continue;
        for (uint32_t i = 0; i < s->m->d; i++)
            out[i] = s->n_sel[r] < 0 ? NAN : 0;
    }
}

static void trace(const struct work *s)
{
    const struct mla *m = s->m;
    struct seam_tensor t = {
        .data = s->sel,
        .bytes = (uint64_t)s->n * m->width * 4,
        .shape = { s->n, m->width },
        .stride = { (int64_t)m->width * 4 },
        .dtype = SEAM_I32,
        .rank = 2,
        .device = -1,
    };

    for (uint32_t r = 0; r < s->n; r++)
        for (uint32_t i = s->n_sel[r] > 0 ? (uint32_t)s->n_sel[r] : 0;
             i < m->width; i++)
            s->sel[(uint64_t)r * m->width + i] = -1;
    m->sink(m->sink_ctx, s->layer, "topk_index", &t);
}

static int mla_forward(void *self, const struct seam_exec *e,
                       const struct seam_block_args *b)
{
    struct mla *m = self;
    uint32_t n = b->step->n_tokens, chunk = n < CHUNK ? n : CHUNK;
    struct kern_job out;
    struct work s;
    int rc;

    if (b->layer >= m->n_layers || n > m->max_tokens ||
        !plug_is_rows(&b->x, SEAM_F32, 4, n, m->d) ||
        !plug_is_rows(&b->y, SEAM_F32, 4, n, m->d))
        return plug_fail(e->err, SEAM_EINVAL,
                         "sparse_mla: layer %u with %u rows, expected under "
                         "%u with [rows <= %u, %u] F32",
                         b->layer, n, m->n_layers, m->max_tokens, m->d);
    if (work_layout(m, e->ws, &s) > e->ws_bytes)
        return plug_fail(e->err, SEAM_EINVAL, "sparse_mla: ws is %llu bytes",
                         (unsigned long long)e->ws_bytes);
    rc = step_check(m, e, b->step);
    if (rc)
        return rc;
    s.m = m;
    s.l = &m->layer[b->layer];
    s.layer = b->layer;
    s.step = b->step;
    s.n = n;
    find_sequences(&s);
    project(&s, &b->x);
    select_rows(&s);
    for (s.r0 = 0; s.r0 < n; s.r0 += chunk) {
        s.rows = n - s.r0 < chunk ? n - s.r0 : chunk;
        attend_rows(&s);
    }
    out = (struct kern_job){
        .w = &s.l->o,
        .x = s.q,
        .ldx = pitch(m),
        .y = b->y.data,
        .ldy = b->y.stride[0] / 4,
        .m = n,
    };
    kern_run(m->k, host, &out, 1, m->scratch);
    finish_rows(&s, &b->y);
    if (m->sink)
        trace(&s);
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
    double eps = 0;
    const struct {
        const char *key;
        uint32_t lo, hi, *out;
    } key[] = {
        { "hidden_size", 1, 1 << 20, &m->d },
        { "num_attention_heads", 1, 1 << 12, &m->heads },
        { "q_lora_rank", 1, 1 << 16, &m->q_lora },
        { "kv_lora_rank", 1, 1 << 12, &m->kv_lora },
        { "qk_nope_head_dim", 1, 1 << 12, &m->nope },
        { "qk_rope_head_dim", 0, 0, &rope },
        { "v_head_dim", 1, 1 << 12, &m->v },
        { "index_n_heads", 1, MAX_INDEX_HEADS, &m->ih },
        { "index_head_dim", 1, 1 << 12, &m->id },
        { "index_topk", 1, 1 << 20, &topk },
        { "index_kpool", 1, 32, &m->kpool },
    };
    int rc = kern_configure(host, c->cfg, "sparse_mla", &m->k, err);

    for (uint32_t i = 0; !rc && i < sizeof key / sizeof *key; i++)
        rc = plug_model_u32(host, mc, key[i].key, NULL, key[i].lo, key[i].hi,
                            key[i].out, err);
    if (!rc)
        rc = plug_model_f64(host, mc, "rms_norm_eps", NULL, &eps, err);
    if (!rc)
        rc = plug_cfg_word(host, c->cfg, "sparse_mla config", "kv_dtype",
                           kv_dtype_word, KV_DTYPES, KV_DEFAULT, &m->kv, err);
    if (rc)
        return rc;
    if (host->cfg(host->ctx, mc, "index_kpool_always_select_tail",
                  SEAM_CFG_BOOL, &tail) == SEAM_EINVAL ||
        !tail)
        return plug_fail(err, SEAM_ENOTSUP,
                         "model config: index_kpool_always_select_tail must be "
                         "true");
    m->eps = (float)eps;
    m->kept = kv_dtype[m->kv].dtype;
    if (m->kept != SEAM_F32 && m->kv_lora % 32 == 0)
        m->tiles = kern_attend(m->k);
    if (m->kept != SEAM_F32 && m->id % 32 == 0)
        m->index = kern_attend(m->k);
    if (m->kept == SEAM_F8E4M3 && (m->kv_lora > MAX_F8 || m->id > MAX_F8))
        return plug_fail(err, SEAM_ENOTSUP,
                         "sparse_mla config: kv_dtype \"fp8\" holds records of "
                         "at most %d values; the model has %u and %u",
                         MAX_F8, m->kv_lora, m->id);
    m->top_pools = topk / m->kpool;
    if (!m->top_pools)
        return plug_fail(err, SEAM_EDATA,
                         "model config: index_topk %u is less than index_kpool "
                         "%u",
                         topk, m->kpool);
    m->width = m->top_pools * m->kpool + m->kpool - 1;
    m->max_tokens = c->limits->max_tokens;
    m->max_kv = c->limits->max_context + c->limits->max_draft;
    m->ring = seam_ring_slots(m->kpool, c->limits->max_draft);
    return SEAM_OK;
}

/* kv_b by head.  Both halves are walked row by row, so a quantised one is
 * unpacked first. */
static int split_kv_b(struct layer *l, const struct mla *m,
                      const struct seam_create *c, uint32_t layer,
                      struct seam_error *err)
{
    struct kern_mat w = l->kv_b;
    struct seam_tensor t = { 0 };
    int rc;

    l->half = plug_zalloc(host, 2 * (uint64_t)m->heads, sizeof *l->half);
    if (!l->half)
        return plug_fail(err, SEAM_ENOMEM, "sparse_mla: out of memory");
    if (!kern_mat_across(&w)) {
        rc = plug_weight(host, c->model, layer, "self_attn.kv_b_proj", w.n, w.k,
                         &t, err);
        if (rc)
            return rc;
        l->wide = plug_zalloc(host, (uint64_t)w.n * w.k, sizeof *l->wide);
        if (!l->wide)
            return plug_fail(err, SEAM_ENOMEM, "sparse_mla: out of memory");
        for (uint32_t r = 0; r < w.n; r++)
            weights_row_f32(&t, r, l->wide + (uint64_t)r * w.k);
        w = (struct kern_mat){
            .w = (const unsigned char *)l->wide,
            .stride = w.k * sizeof *l->wide,
            .n = w.n,
            .k = w.k,
            .dtype = SEAM_F32,
        };
    }
    for (uint32_t h = 0; h < m->heads; h++) {
        uint32_t row = h * (m->nope + m->v);

        l->half[2 * h] = kern_mat_rows(&w, row, m->nope);
        l->half[2 * h + 1] = kern_mat_rows(&w, row + m->nope, m->v);
    }
    return SEAM_OK;
}

static int read_ape(struct layer *l, const struct mla *m,
                    const struct seam_create *c, uint32_t layer,
                    struct seam_error *err)
{
    struct seam_tensor t = { 0 };
    int rc = plug_weight(host, c->model, layer,
                         "self_attn.indexer.index_kpool_compress_ape", m->kpool,
                         m->id, &t, err);

    if (rc)
        return rc;
    l->ape = plug_zalloc(host, (uint64_t)m->kpool * m->id, sizeof *l->ape);
    if (!l->ape)
        return plug_fail(err, SEAM_ENOMEM, "sparse_mla: out of memory");
    for (uint32_t r = 0; r < m->kpool; r++)
        weights_row_f32(&t, r, l->ape + (uint64_t)r * m->id);
    return SEAM_OK;
}

static int read_layer(struct layer *l, const struct mla *m,
                      const struct seam_create *c, uint32_t layer,
                      struct seam_error *err)
{
    const struct {
        const char *name;
        uint32_t n_out, n_in;
        struct kern_mat *out;
    } linear[] = {
        { "self_attn.q_a_proj", m->q_lora, m->d, &l->q_a },
        { "self_attn.q_b_proj", m->heads * m->nope, m->q_lora, &l->q_b },
        { "self_attn.kv_a_proj_with_mqa", m->kv_lora, m->d, &l->kv_a },
        { "self_attn.kv_b_proj", m->heads * (m->nope + m->v), m->kv_lora,
          &l->kv_b },
        { "self_attn.o_proj", m->d, m->heads * m->v, &l->o },
        { "self_attn.indexer.wq_b", m->ih * m->id, m->q_lora, &l->wq_b },
        { "self_attn.indexer.wk", m->id, m->d, &l->wk },
        { "self_attn.indexer.index_kpool_compress_gate", m->id, m->d,
          &l->gate },
        { "self_attn.indexer.weights_proj", m->ih, m->d, &l->wp },
    };
    const struct {
        const char *name;
        uint32_t n;
        float **out;
    } vector[] = {
        { "self_attn.q_a_layernorm.weight", m->q_lora, &l->q_norm },
        { "self_attn.kv_a_layernorm.weight", m->kv_lora, &l->kv_norm },
        { "self_attn.indexer.k_norm.weight", m->id, &l->k_norm },
        { "self_attn.indexer.k_norm.bias", m->id, &l->k_bias },
    };
    int rc = SEAM_OK;

    for (uint32_t i = 0; !rc && i < sizeof linear / sizeof *linear; i++)
        rc = kern_weight(host, c->model, layer, linear[i].name, linear[i].n_out,
                         linear[i].n_in, linear[i].out, err);
    for (uint32_t i = 0; !rc && i < sizeof vector / sizeof *vector; i++)
        rc = kern_vector(host, c->model, layer, vector[i].name, vector[i].n,
                         vector[i].out, err);
    if (!rc)
        rc = read_ape(l, m, c, layer, err);
    if (!rc)
        rc = split_kv_b(l, m, c, layer, err);
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
        plug_free(host, m->layer[i].half);
        plug_free(host, m->layer[i].wide);
    }
    plug_free(host, m->layer);
    plug_free(host, m->scratch);
    plug_free(host, m->room);
    plug_free(host, m->job);
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
                         "sparse_mla runs on one CPU in F32 only");
    m = plug_zalloc(host, 1, sizeof *m);
    if (!m)
        goto no_memory;
    m->n_workers = host->n_workers ? host->n_workers : 1;
    rc = read_config(m, c, err);
    if (rc)
        goto out;
    m->layer = plug_zalloc(host, c->n_layers, sizeof *m->layer);
    m->scratch = plug_zalloc(host, m->n_workers, KERN_SCRATCH);
    m->room = plug_zalloc(host, m->n_workers * room_floats(m), sizeof *m->room);
    m->job = plug_zalloc(host, m->heads, sizeof *m->job);
    if (!m->layer || !m->scratch || !m->room || !m->job)
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
    rc = plug_fail(err, SEAM_ENOMEM, "sparse_mla: out of memory");
out:
    mla_destroy(m);
    return rc;
}

static int mla_needs(void *self, struct seam_needs *n, struct seam_error *err)
{
    struct mla *m = self;
    struct work s;

    (void)err;
    n->capture = SEAM_CAP_BEGIN | SEAM_CAP_FORWARD | SEAM_CAP_COMMIT;
    n->flags = SEAM_NEEDS_ROW_INVARIANT;
    n->ws_bytes = work_layout(m, NULL, &s);
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
                         "sparse_mla: pages of %u tokens, expected a multiple "
                         "of %u",
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
               .flags = SEAM_PLUGIN_UNLOADABLE, .name = "sparse_mla",
               .version = "1.0.0", .build = __VERSION__ },
    .table = &mla_block,
    .init = mla_init,
    .create = mla_create,
    .needs = mla_needs,
    .attach = mla_attach,
    .destroy = mla_destroy,
    .extension = mla_extension,
};
