#include "oracle.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Pieces -------------------------------------------------------------- */

static const double *get(const struct th *h, uint32_t layer, const char *name)
{
    char full[160];

    snprintf(full, sizeof full, "@layer.%u.%s", layer, name);
    return th_get(h, full);
}

static double *zeros(uint64_t n)
{
    double *p = calloc(n + 1, sizeof *p);

    cr_assert_not_null(p);
    return p;
}

/* y[n_out] = w x for one vector. */
static void matvec(const double *w, const double *x, uint64_t n_out,
                   uint64_t n_in, double *y)
{
    for (uint64_t o = 0; o < n_out; o++) {
        long double s = 0;

        for (uint64_t i = 0; i < n_in; i++)
            s += (long double)w[o * n_in + i] * x[i];
        y[o] = (double)s;
    }
}

static double sig(double v)
{
    return 1 / (1 + exp(-v));
}

static void rmsnorm(double *v, const double *w, uint32_t n, double eps)
{
    double s = 0;

    for (uint32_t i = 0; i < n; i++)
        s += v[i] * v[i];
    s = sqrt(s / n + eps);
    for (uint32_t i = 0; i < n; i++)
        v[i] = v[i] / s * w[i];
}

static void to_double(const float *x, uint64_t n, double *out)
{
    for (uint64_t i = 0; i < n; i++)
        out[i] = x[i];
}

/* ---- Linear attention ---------------------------------------------------- */

void oracle_kda_from(const struct world *w, const struct th *h, uint32_t layer,
                     const float *x, uint32_t n, double *S, double *y)
{
    static const char *const proj[3] = { "self_attn.q_proj", "self_attn.k_proj",
                                         "self_attn.v_proj" };
    static const char *const conv[3] = { "self_attn.q_conv1d.weight",
                                         "self_attn.k_conv1d.weight",
                                         "self_attn.v_conv1d.weight" };
    uint32_t H = w->kda_heads, D = w->kda_dim, HD = H * D;
    double *u = zeros((uint64_t)3 * n * HD), *c = zeros(3 * HD);
    double *xd = zeros(w->d), *low = zeros(D), *f = zeros(HD), *go = zeros(HD);
    double *b = zeros(H), *o = zeros(HD), *p = zeros(D), *dl = zeros(D);
    const double *A = get(h, layer, "self_attn.A_log");
    const double *dt = get(h, layer, "self_attn.dt_bias");

    for (uint32_t t = 0; t < n; t++) {
        to_double(x + (uint64_t)t * w->d, w->d, xd);
        for (uint32_t k = 0; k < 3; k++) {
            const double *cw = get(h, layer, conv[k]);

            matvec(get(h, layer, proj[k]), xd, HD, w->d,
                   u + ((uint64_t)k * n + t) * HD);
            for (uint32_t ch = 0; ch < HD; ch++) {
                double s = 0;

                for (uint32_t j = 0; j < w->conv; j++) {
                    int64_t from = (int64_t)t - (w->conv - 1) + j;

                    if (from >= 0)
                        s += cw[ch * w->conv + j] *
                             u[((uint64_t)k * n + (uint64_t)from) * HD + ch];
                }
                c[k * HD + ch] = s * sig(s);
            }
        }
        matvec(get(h, layer, "self_attn.b_proj"), xd, H, w->d, b);
        matvec(get(h, layer, "self_attn.f_a_proj"), xd, D, w->d, low);
        matvec(get(h, layer, "self_attn.f_b_proj"), low, HD, D, f);
        matvec(get(h, layer, "self_attn.g_a_proj"), xd, D, w->d, low);
        matvec(get(h, layer, "self_attn.g_b_proj"), low, HD, D, go);
        for (uint32_t i = 0; i < H; i++) {
            double *q = c + i * D, *k = c + HD + i * D, *v = c + 2 * HD + i * D;
            double nq = 1e-6, nk = 1e-6, *Sh = S + (uint64_t)i * D * D;

            for (uint32_t d = 0; d < D; d++) {
                nq += q[d] * q[d];
                nk += k[d] * k[d];
            }
            for (uint32_t d = 0; d < D; d++) {
                double a = w->lower_bound *
                           sig(exp(A[i]) * (f[i * D + d] + dt[i * D + d]));

                q[d] = q[d] / sqrt(nq) / sqrt(D);
                k[d] = k[d] / sqrt(nk);
                for (uint32_t e = 0; e < D; e++)
                    Sh[d * D + e] *= exp(a);
            }
            for (uint32_t e = 0; e < D; e++) {
                p[e] = 0;
                for (uint32_t d = 0; d < D; d++)
                    p[e] += Sh[d * D + e] * k[d];
                dl[e] = sig(b[i]) * (v[e] - p[e]);
            }
            for (uint32_t e = 0; e < D; e++) {
                o[i * D + e] = 0;
                for (uint32_t d = 0; d < D; d++) {
                    Sh[d * D + e] += k[d] * dl[e];
                    o[i * D + e] += Sh[d * D + e] * q[d];
                }
            }
            rmsnorm(o + i * D, get(h, layer, "self_attn.o_norm.weight"), D,
                    1e-5);
            for (uint32_t e = 0; e < D; e++)
                o[i * D + e] *= sig(go[i * D + e]);
        }
        matvec(get(h, layer, "self_attn.o_proj"), o, w->d, HD,
               y + (uint64_t)t * w->d);
    }
    free(u), free(c), free(xd), free(low), free(f), free(go), free(b), free(o);
    free(p), free(dl);
}

void oracle_kda(const struct world *w, const struct th *h, uint32_t layer,
                const float *x, uint32_t n, double *y)
{
    double *S = zeros((uint64_t)w->kda_heads * w->kda_dim * w->kda_dim);

    oracle_kda_from(w, h, layer, x, n, S, y);
    free(S);
}

/* ---- Sparse attention ---------------------------------------------------- */

/* Index features of one token. */
static void index_features(const struct world *w, const struct th *h,
                           uint32_t layer, const double *x, double *ik,
                           double *ig)
{
    const double *nw = get(h, layer, "self_attn.indexer.k_norm.weight");
    const double *nb = get(h, layer, "self_attn.indexer.k_norm.bias");
    double mean = 0, var = 0;

    matvec(get(h, layer, "self_attn.indexer.wk"), x, w->index_dim, w->d, ik);
    matvec(get(h, layer, "self_attn.indexer.index_kpool_compress_gate"), x,
           w->index_dim, w->d, ig);
    for (uint32_t i = 0; i < w->index_dim; i++)
        mean += ik[i];
    mean /= w->index_dim;
    for (uint32_t i = 0; i < w->index_dim; i++)
        var += (ik[i] - mean) * (ik[i] - mean);
    var /= w->index_dim;
    for (uint32_t i = 0; i < w->index_dim; i++)
        ik[i] = (ik[i] - mean) / sqrt(var + 1e-6) * nw[i] + nb[i];
}

static void query_latent(const struct world *w, const struct th *h,
                         uint32_t layer, const double *x, double *qr)
{
    matvec(get(h, layer, "self_attn.q_a_proj"), x, w->q_lora, w->d, qr);
    rmsnorm(qr, get(h, layer, "self_attn.q_a_layernorm.weight"), w->q_lora,
            1e-5);
}

struct scored {
    double score;
    int32_t pool;
};

static int by_score(const void *a, const void *b)
{
    const struct scored *x = a, *y = b;

    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return x->pool - y->pool;
}

static int by_position(const void *a, const void *b)
{
    return *(const int32_t *)a - *(const int32_t *)b;
}

uint32_t oracle_mla_select(const struct world *w, const struct th *h,
                           uint32_t layer, const float *x, uint32_t t,
                           int32_t *sel)
{
    uint32_t n = (t + 1) / w->kpool, ID = w->index_dim, IH = w->index_heads;
    uint32_t kp = w->kpool, top = w->topk / kp, k = 0;
    double *xd = zeros(w->d), *qr = zeros(w->q_lora), *iq = zeros(IH * ID);
    double *iw = zeros(IH), *pk = zeros(ID);
    double *ik = zeros(kp * ID), *ig = zeros(kp * ID);
    struct scored *s = calloc(n + 1, sizeof *s);
    const double *ape =
        get(h, layer, "self_attn.indexer.index_kpool_compress_ape");

    to_double(x + (uint64_t)t * w->d, w->d, xd);
    query_latent(w, h, layer, xd, qr);
    matvec(get(h, layer, "self_attn.indexer.wq_b"), qr, IH * ID, w->q_lora, iq);
    matvec(get(h, layer, "self_attn.indexer.weights_proj"), xd, IH, w->d, iw);
    for (uint32_t p = 0; p < n; p++) {
        for (uint32_t j = 0; j < kp; j++) {
            to_double(x + (uint64_t)(p * kp + j) * w->d, w->d, xd);
            index_features(w, h, layer, xd, ik + j * ID, ig + j * ID);
        }
        for (uint32_t d = 0; d < ID; d++) {
            double sum = 0, v = 0;

            for (uint32_t j = 0; j < kp; j++) {
                double e = exp(ig[j * ID + d] + ape[j * ID + d]);

                sum += e;
                v += e * ik[j * ID + d];
            }
            pk[d] = v / sum;
        }
        s[p].pool = (int32_t)p;
        for (uint32_t i = 0; i < IH; i++) {
            double dot = 0;

            for (uint32_t d = 0; d < ID; d++)
                dot += iq[i * ID + d] * pk[d];
            if (dot > 0)
                s[p].score += iw[i] / sqrt(IH) * dot / sqrt(ID);
        }
    }
    qsort(s, n, sizeof *s, by_score);
    for (uint32_t p = 0; p < n && p < top; p++)
        for (uint32_t j = 0; j < kp; j++)
            sel[k++] = s[p].pool * (int32_t)kp + (int32_t)j;
    for (uint32_t j = n * kp; j <= t; j++)
        sel[k++] = (int32_t)j;
    qsort(sel, k, sizeof *sel, by_position);
    free(xd), free(qr), free(iq), free(iw), free(pk), free(ik), free(ig);
    free(s);
    return k;
}

void oracle_mla(const struct world *w, const struct th *h, uint32_t layer,
                const float *x, uint32_t n, double *y)
{
    uint32_t H = w->heads, NV = w->nope + w->v;
    double *xd = zeros(w->d), *qr = zeros(w->q_lora);
    double *q = zeros(H * w->nope), *c = zeros(w->kv_lora);
    double *kv = zeros((uint64_t)n * H * NV), *o = zeros(H * w->v);
    double *p = zeros(n);
    int32_t *sel = calloc(w->topk + w->kpool + 1, sizeof *sel);

    for (uint32_t t = 0; t < n; t++) {
        to_double(x + (uint64_t)t * w->d, w->d, xd);
        matvec(get(h, layer, "self_attn.kv_a_proj_with_mqa"), xd, w->kv_lora,
               w->d, c);
        rmsnorm(c, get(h, layer, "self_attn.kv_a_layernorm.weight"), w->kv_lora,
                1e-5);
        matvec(get(h, layer, "self_attn.kv_b_proj"), c, H * NV, w->kv_lora,
               kv + (uint64_t)t * H * NV);
    }
    for (uint32_t t = 0; t < n; t++) {
        uint32_t k = oracle_mla_select(w, h, layer, x, t, sel);

        to_double(x + (uint64_t)t * w->d, w->d, xd);
        query_latent(w, h, layer, xd, qr);
        matvec(get(h, layer, "self_attn.q_b_proj"), qr, H * w->nope, w->q_lora,
               q);
        for (uint32_t i = 0; i < H; i++) {
            double top = -INFINITY, sum = 0;

            for (uint32_t j = 0; j < k; j++) {
                const double *key = kv + ((uint64_t)sel[j] * H + i) * NV;

                p[j] = 0;
                for (uint32_t d = 0; d < w->nope; d++)
                    p[j] += q[i * w->nope + d] * key[d];
                p[j] /= sqrt(w->nope);
                top = fmax(top, p[j]);
            }
            for (uint32_t j = 0; j < k; j++)
                sum += p[j] = exp(p[j] - top);
            for (uint32_t e = 0; e < w->v; e++) {
                double s = 0;

                for (uint32_t j = 0; j < k; j++)
                    s += p[j] / sum *
                         kv[((uint64_t)sel[j] * H + i) * NV + w->nope + e];
                o[i * w->v + e] = s;
            }
        }
        matvec(get(h, layer, "self_attn.o_proj"), o, w->d, H * w->v,
               y + (uint64_t)t * w->d);
    }
    free(xd), free(qr), free(q), free(c), free(kv), free(o), free(p), free(sel);
}

/* ---- Experts ------------------------------------------------------------- */

static void swiglu(const struct world *w, const struct th *h, uint32_t layer,
                   const char *module, uint32_t ff, const double *x,
                   double share, double *y)
{
    double *g = zeros(ff), *u = zeros(ff), *out = zeros(w->d);
    char name[96];

    snprintf(name, sizeof name, "%s.gate_proj", module);
    matvec(get(h, layer, name), x, ff, w->d, g);
    snprintf(name, sizeof name, "%s.up_proj", module);
    matvec(get(h, layer, name), x, ff, w->d, u);
    for (uint32_t i = 0; i < ff; i++) {
        if (g[i] > w->limit)
            g[i] = w->limit;
        if (u[i] > w->limit)
            u[i] = w->limit;
        if (u[i] < -w->limit)
            u[i] = -w->limit;
        g[i] = g[i] * sig(g[i]) * u[i];
    }
    snprintf(name, sizeof name, "%s.down_proj", module);
    matvec(get(h, layer, name), g, w->d, ff, out);
    for (uint32_t i = 0; i < w->d; i++)
        y[i] += share * out[i];
    free(g), free(u), free(out);
}

/* Rank of expert e by value, ties to the smaller id: how many come before. */
static uint32_t rank_of(const double *v, const bool *in, uint32_t n, uint32_t e)
{
    uint32_t r = 0;

    for (uint32_t i = 0; i < n; i++)
        r += in[i] && i != e && (v[i] > v[e] || (v[i] == v[e] && i < e));
    return r;
}

void oracle_moe(const struct world *w, const struct th *h, uint32_t layer,
                const float *x, uint32_t n, double *y)
{
    uint32_t E = w->experts, per = E / w->n_group;
    double *xd = zeros(w->d), *s = zeros(E), *choice = zeros(E);
    double *group = zeros(w->n_group);
    bool *in = calloc(E, sizeof *in), *all = calloc(w->n_group, sizeof *all);
    const double *bias = get(h, layer, "mlp.gate.e_score_correction_bias");

    for (uint32_t t = 0; t < n; t++) {
        double sum = 1e-20, *yt = y + (uint64_t)t * w->d;
        char name[64];

        to_double(x + (uint64_t)t * w->d, w->d, xd);
        memset(yt, 0, w->d * sizeof *yt);
        matvec(get(h, layer, "mlp.gate"), xd, E, w->d, s);
        for (uint32_t e = 0; e < E; e++) {
            s[e] = sig(s[e]);
            choice[e] = s[e] + bias[e];
            in[e] = true;
        }
        for (uint32_t g = 0; g < w->n_group; g++) {
            bool *mine = calloc(E, sizeof *mine);

            all[g] = true;
            group[g] = 0;
            for (uint32_t e = g * per; e < (g + 1) * per; e++)
                mine[e] = true;
            for (uint32_t e = g * per; e < (g + 1) * per; e++)
                if (rank_of(choice, mine, E, e) < 2)
                    group[g] += choice[e];
            free(mine);
        }
        for (uint32_t e = 0; e < E; e++)
            in[e] = rank_of(group, all, w->n_group, e / per) < w->topk_group;
        for (uint32_t e = 0; e < E; e++)
            if (in[e] && rank_of(choice, in, E, e) < w->top_k)
                sum += s[e];
        for (uint32_t e = 0; e < E; e++) {
            if (!in[e] || rank_of(choice, in, E, e) >= w->top_k)
                continue;
            snprintf(name, sizeof name, "mlp.experts.%u", e);
            swiglu(w, h, layer, name, w->ff, xd,
                   s[e] / (w->plain_topk ? 1 : sum) * w->scale, yt);
        }
        if (w->n_shared)
            swiglu(w, h, layer, "mlp.shared_experts", w->ff * w->n_shared, xd,
                   1, yt);
    }
    free(xd), free(s), free(choice), free(group), free(in), free(all);
}
