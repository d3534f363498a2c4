#include "tests/support/oracle.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct oracle_ties *recording; /* the operation has no context */

void oracle_sort(float *v, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++)
        for (uint32_t j = i; j && v[j - 1] > v[j]; j--) {
            float t = v[j];

            v[j] = v[j - 1];
            v[j - 1] = t;
        }
}

/* A weight as doubles, whatever its dtype; freed by the caller. */
static double *oracle_weight(const struct rig *r, uint32_t layer,
                             const char *rest)
{
    struct seam_tensor t;
    struct seam_error err;
    char name[128];
    uint64_t n = 1;
    double *out;

    snprintf(name, sizeof name, "@layer.%u.self_attn.%s", layer, rest);
    cr_assert_eq(
        seam_checkpoint_weight(r->rt->model.checkpoint, name, &t, &err), 0,
        "%s", err.text);
    cr_assert(t.dtype == SEAM_BF16 || t.dtype == SEAM_F32, "%s", name);
    for (uint32_t d = 0; d < t.rank; d++)
        n *= (uint64_t)t.shape[d];
    out = malloc(n * sizeof *out);
    cr_assert_not_null(out);
    for (uint64_t i = 0; i < n; i++) {
        uint32_t bits;
        float f;

        if (t.dtype == SEAM_F32) {
            memcpy(&f, (const char *)t.data + 4 * i, 4);
        } else {
            uint16_t half;

            memcpy(&half, (const char *)t.data + 2 * i, 2);
            bits = (uint32_t)half << 16;
            memcpy(&f, &bits, 4);
        }
        out[i] = (double)f;
    }
    return out;
}

static void oracle_linear(const double *w, const double *x, uint32_t n_out,
                          uint32_t n_in, double *y)
{
    for (uint32_t o = 0; o < n_out; o++) {
        y[o] = 0;
        for (uint32_t i = 0; i < n_in; i++)
            y[o] += w[(size_t)o * n_in + i] * x[i];
    }
}

struct oracle_indexer {
    const struct seam_model_config *c;
    double *q_a, *q_norm, *wq, *wk, *k_w, *k_b, *wp, *ape, *gate;
    double *pool; /* [n_pools][index_dim] */
};

static void indexer_open(struct oracle_indexer *o, const struct rig *r,
                         uint32_t layer, const float *x, uint32_t rows)
{
    const struct seam_model_config *c =
        seam_checkpoint_config(r->rt->model.checkpoint);
    uint32_t d = c->hidden, n = c->index_dim, k = c->index_kpool;
    double *xin = malloc(d * sizeof *xin);
    double *ik = malloc((size_t)rows * n * sizeof *ik);
    double *ig = malloc((size_t)rows * n * sizeof *ig);

    *o = (struct oracle_indexer){
        .c = c,
        .q_a = oracle_weight(r, layer, "q_a_proj"),
        .q_norm = oracle_weight(r, layer, "q_a_layernorm.weight"),
        .wq = oracle_weight(r, layer, "indexer.wq_b"),
        .wk = oracle_weight(r, layer, "indexer.wk"),
        .k_w = oracle_weight(r, layer, "indexer.k_norm.weight"),
        .k_b = oracle_weight(r, layer, "indexer.k_norm.bias"),
        .wp = oracle_weight(r, layer, "indexer.weights_proj"),
        .ape = oracle_weight(r, layer, "indexer.index_kpool_compress_ape"),
        .gate = oracle_weight(r, layer, "indexer.index_kpool_compress_gate"),
        .pool = malloc((size_t)(rows / k + 1) * n * sizeof(double)),
    };
    for (uint32_t t = 0; t < rows; t++) {
        double mean = 0, var = 0, *key = ik + (size_t)t * n;

        for (uint32_t i = 0; i < d; i++)
            xin[i] = (double)x[(size_t)t * d + i];
        oracle_linear(o->wk, xin, n, d, key);
        oracle_linear(o->gate, xin, n, d, ig + (size_t)t * n);
        for (uint32_t i = 0; i < n; i++)
            mean += key[i] / n;
        for (uint32_t i = 0; i < n; i++)
            var += (key[i] - mean) * (key[i] - mean) / n;
        for (uint32_t i = 0; i < n; i++)
            key[i] = (key[i] - mean) / sqrt(var + 1e-6) * o->k_w[i] + o->k_b[i];
    }
    for (uint32_t p = 0; p < rows / k; p++)
        for (uint32_t i = 0; i < n; i++) {
            double sum = 0, acc = 0;

            for (uint32_t s = 0; s < k; s++) {
                size_t at = (size_t)(p * k + s) * n + i;
                double e = exp(ig[at] + o->ape[s * n + i]);

                sum += e;
                acc += e * ik[at];
            }
            o->pool[(size_t)p * n + i] = acc / sum;
        }
    free(xin);
    free(ik);
    free(ig);
}

static void indexer_close(struct oracle_indexer *o)
{
    free(o->q_a);
    free(o->q_norm);
    free(o->wq);
    free(o->wk);
    free(o->k_w);
    free(o->k_b);
    free(o->wp);
    free(o->ape);
    free(o->gate);
    free(o->pool);
}

/* Scores of the complete pools that query `row` sees; returns how many. */
static uint32_t indexer_score(const struct oracle_indexer *o, const float *x,
                              uint32_t row, double *score)
{
    const struct seam_model_config *c = o->c;
    uint32_t n = (row + 1) / c->index_kpool, dim = c->index_dim;
    double *xin = malloc(c->hidden * sizeof *xin);
    double *qr = malloc(c->q_lora * sizeof *qr);
    double *iq = malloc((size_t)c->index_heads * dim * sizeof *iq);
    double *iw = malloc(c->index_heads * sizeof *iw);
    double square = 0;

    for (uint32_t i = 0; i < c->hidden; i++)
        xin[i] = (double)x[(size_t)row * c->hidden + i];
    oracle_linear(o->q_a, xin, c->q_lora, c->hidden, qr);
    for (uint32_t i = 0; i < c->q_lora; i++)
        square += qr[i] * qr[i] / c->q_lora;
    for (uint32_t i = 0; i < c->q_lora; i++)
        qr[i] *= o->q_norm[i] / sqrt(square + (double)c->rms_eps);
    oracle_linear(o->wq, qr, c->index_heads * dim, c->q_lora, iq);
    oracle_linear(o->wp, xin, c->index_heads, c->hidden, iw);
    for (uint32_t p = 0; p < n; p++) {
        score[p] = 0;
        for (uint32_t h = 0; h < c->index_heads; h++) {
            double dot = 0;

            for (uint32_t i = 0; i < dim; i++)
                dot += iq[h * dim + i] * o->pool[(size_t)p * dim + i];
            if (dot > 0)
                score[p] += iw[h] / sqrt(c->index_heads) * dot / sqrt(dim);
        }
    }
    free(xin);
    free(qr);
    free(iq);
    free(iw);
    return n;
}

static bool oracle_has(const int32_t *set, uint32_t n, int32_t v)
{
    for (uint32_t i = 0; i < n; i++)
        if (set[i] == v)
            return true;
    return false;
}

bool oracle_differs_by_tie(const struct rig *r, uint32_t layer, const float *x,
                           uint32_t row, const int32_t *a, uint32_t na,
                           const int32_t *b, uint32_t nb)
{
    struct oracle_indexer o;
    double *score = calloc(row + 1, sizeof *score);
    bool tie = true, any = false;
    double level = 0;
    uint32_t n;

    indexer_open(&o, r, layer, x, row + 1);
    n = indexer_score(&o, x, row, score);
    for (uint32_t p = 0; p < n && tie; p++) {
        int32_t t = (int32_t)(p * o.c->index_kpool);

        if (oracle_has(a, na, t) == oracle_has(b, nb, t))
            continue;
        if (any && score[p] != level)
            tie = false;
        level = score[p];
        any = true;
    }
    indexer_close(&o);
    free(score);
    return any && tie;
}

/* ---- Recording ----------------------------------------------------------- */

static int ties_residual(void *be, const struct seam_exec *e,
                         const struct seam_residual *a)
{
    struct oracle_ties *t = recording;
    const struct seam_model_config *c =
        seam_checkpoint_config(t->rig->rt->model.checkpoint);
    uint32_t call = t->call++, layer = call / 2;
    uint32_t n = (uint32_t)a->streams.shape[0];
    int rc = t->residual(be, e, a);

    if (!rc && call % 2 == 0 && layer < c->n_layers && t->x[layer]) {
        cr_assert_leq(t->n_rows + n, t->max_rows);
        for (uint32_t i = 0; i < n; i++)
            memcpy(t->x[layer] + (size_t)(t->n_rows + i) * c->hidden,
                   (const char *)a->x.data + i * a->x.stride[0],
                   c->hidden * sizeof(float));
    }
    if (call == 2 * c->n_layers) {
        t->n_rows += n;
        t->call = 0;
    }
    return rc;
}

void oracle_ties_open(struct oracle_ties *t, struct rig *r, uint32_t max_rows)
{
    const struct seam_model_config *c =
        seam_checkpoint_config(r->rt->model.checkpoint);
    struct seam_ops *ops = &r->rt->plugin[SEAM_ROLE_BACKEND]->ops;

    *t = (struct oracle_ties){ .rig = r, .max_rows = max_rows };
    for (uint32_t l = 0; l < c->n_layers; l++)
        if (c->layer_kind[l] == SEAM_LAYER_SPARSE)
            t->x[l] = calloc((size_t)max_rows * c->hidden, sizeof(float));
    t->excused = calloc(max_rows + 1, sizeof *t->excused);
    t->residual = ops->residual;
    ops->residual = ties_residual;
    recording = t;
}

void oracle_ties_close(struct oracle_ties *t)
{
    t->rig->rt->plugin[SEAM_ROLE_BACKEND]->ops.residual = t->residual;
    for (uint32_t l = 0; l < SEAM_MAX_LAYERS; l++)
        free(t->x[l]);
    free(t->excused);
    recording = NULL;
}

void oracle_ties_start(struct oracle_ties *t)
{
    t->n_rows = 0;
    t->call = 0;
    memset(t->excused, 0, t->max_rows * sizeof *t->excused);
}

static int descending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? 1 : x > y ? -1 : 0;
}

const bool *oracle_ties_rows(struct oracle_ties *t)
{
    const struct seam_model_config *c =
        seam_checkpoint_config(t->rig->rt->model.checkpoint);
    double *score = calloc(t->max_rows + 1, sizeof *score);

    for (uint32_t l = 0; l < c->n_layers; l++) {
        uint32_t keep = c->index_topk / c->index_kpool;
        struct oracle_indexer o;

        if (!t->x[l])
            continue;
        indexer_open(&o, t->rig, l, t->x[l], t->n_rows);
        for (uint32_t row = 0; row < t->n_rows; row++) {
            uint32_t n = indexer_score(&o, t->x[l], row, score);

            if (n <= keep)
                continue;
            qsort(score, n, sizeof *score, descending);
            if (score[keep - 1] != score[keep])
                continue;
            t->excused[row] = true;
            for (uint32_t i = row; l + 1 < c->n_layers && i < t->n_rows; i++)
                t->excused[i] = true;
        }
        indexer_close(&o);
    }
    free(score);
    return t->excused;
}
