/* The blocks and the residual, one by one, against the traces of the public
 * reference implementation in tests/golden. */
#include "testhost.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/checkpoint/checkpoint.h"
#include "plugins/common/kda_state.h"

enum {
    N = 150,
    D = 128,
    S = 4,
    EXPERTS = 16,
    TOP_K = 4,
    WIDTH = 35,
    DRAFT = 3
};

struct golden {
    struct seam_checkpoint *c;
    struct seam_map map;
    struct seam_st_header trace;
    struct th *h;
};

static int golden_weight(void *arg, const char *name, struct seam_tensor *out)
{
    struct golden *g = arg;
    struct seam_error err;

    return seam_checkpoint_weight(g->c, name, out, &err);
}

static void golden_open(struct golden *g, const char *plugin_json)
{
    static const char root[] = SEAM_TEST_SOURCE_DIR "/tests/golden/";
    struct seam_error err = { 0 };
    char path[512], *text;
    int rc;

    memset(g, 0, sizeof *g);
    snprintf(path, sizeof path, "%stiny-bf16", root);
    rc = seam_checkpoint_open(&g->c, path, NULL, NULL, NULL, &err);
    cr_assert_eq(rc, 0, "%s", err.text);
    snprintf(path, sizeof path, "%strace-bf16.safetensors", root);
    rc = seam_map_open(&g->map, path, &err);
    cr_assert_eq(rc, 0, "%s", err.text);
    rc = seam_st_parse(&g->trace, path, g->map.p, g->map.bytes, g->map.bytes,
                       &err);
    cr_assert_eq(rc, 0, "%s", err.text);
    text = json_dumps(seam_checkpoint_text_config(g->c), JSON_ENCODE_ANY);
    g->h = th_new(text, plugin_json);
    free(text);
    g->h->weight_of = golden_weight;
    g->h->arg = g;
}

static void golden_close(struct golden *g)
{
    th_free(g->h);
    seam_st_release(&g->trace);
    seam_map_release(&g->map);
    seam_checkpoint_close(g->c);
}

/* prefill150.layers.L.NAME, a fresh copy that the test leaks. */
static void *golden_get(struct golden *g, uint32_t layer, const char *name)
{
    const struct seam_st_tensor *t;
    char key[128];
    void *p;

    snprintf(key, sizeof key, "prefill150.layers.%u.%s", layer, name);
    t = seam_st_find(&g->trace, key);
    cr_assert_not_null(t, "no %s in the trace", key);
    p = malloc(t->bytes);
    cr_assert_not_null(p);
    memcpy(p, g->map.p + t->offset, t->bytes);
    return p;
}

static double worst(const float *a, const float *b, uint64_t n)
{
    return th_diff(a, b, n);
}

static struct tb *golden_block(struct golden *g, const char *plugin,
                               const uint32_t *layer, uint32_t n_layers)
{
    struct tb_opts o = {
        .plugin = plugin,
        .layer = layer,
        .n_layers = n_layers,
        .d = D,
        .max_tokens = 160,
        .max_context = 256,
        .max_draft = DRAFT,
    };
    struct seam_error err = { 0 };
    struct tb *b;
    int rc = tb_new(&b, g->h, &o, &err);

    cr_assert_eq(rc, 0, "%s: %s", plugin, err.text);
    return b;
}

/* ---- Linear attention ---------------------------------------------------- */

static void check_kda(const char *plugin)
{
    static const uint32_t layer[] = { 0, 1, 2, 4, 5, 6 };
    struct golden g;

    golden_open(&g, NULL);
    for (uint32_t i = 0; i < 6; i++) {
        struct tb *b = golden_block(&g, plugin, &layer[i], 1);
        float *in = golden_get(&g, layer[i], "attn_in");
        float *want = golden_get(&g, layer[i], "attn_out");
        float *state = golden_get(&g, layer[i], "kda_state");
        float *conv = golden_get(&g, layer[i], "conv_state"); /* [384][4] */
        float *y = malloc(N * D * sizeof *y);
        struct kda_dims dims = { .heads = 4,
                                 .dim = 32,
                                 .n_conv = 4,
                                 .max_draft = DRAFT,
                                 .chunk = kda_chunk(-5) };
        struct kda_state at;
        struct tb_seq s, *one = &s;

        tb_seq_new(b, &s, 1);
        cr_assert_eq(tb_run(b, &s, in, N, y), 0, "%s", b->err.text);
        cr_expect_lt(worst(y, want, N * D), 2e-5, "%s layer %u: %g", plugin,
                     layer[i], worst(y, want, N * D));
        cr_assert_eq(tb_commit(b, &one, 1), 0);
        cr_assert_eq(kda_state_layout(&dims, tb_state(b, 0, 1, 0), &at),
                     b->needs.state_bytes);
        for (uint32_t h = 0; h < 4; h++) {
            double matrix[32 * 32];
            float got[32 * 32];

            kda_state_read(&dims, &at, h, (uint32_t)*at.n, matrix);
            for (uint32_t c = 0; c < 32 * 32; c++)
                got[c] = (float)matrix[c];
            cr_expect_lt(worst(got, state + h * 32 * 32, 32 * 32), 2e-5);
        }
        for (uint32_t ch = 0; ch < 384; ch++)
            for (int32_t j = 0; j < 3; j++)
                cr_expect_float_eq(
                    kda_window(&dims, &at, *at.turn, *at.n - 3 + j)[ch],
                    conv[ch * 4 + 1 + (uint32_t)j], 2e-5,
                    "%s layer %u channel %u", plugin, layer[i], ch);
        tb_free(b);
        free(in), free(want), free(state), free(conv), free(y);
    }
    golden_close(&g);
}

Test(golden_blocks, kda_ref)
{
    check_kda("kda_ref");
}

Test(golden_blocks, kda)
{
    check_kda("kda");
}

/* ---- Sparse attention ---------------------------------------------------- */

static int32_t selected[N][WIDTH];

static void keep_index(void *ctx, uint32_t layer, const char *name,
                       const struct seam_tensor *t)
{
    (void)ctx;
    (void)layer;
    cr_assert_str_eq(name, "topk_index");
    cr_assert_eq(t->shape[0], N);
    cr_assert_eq(t->shape[1], WIDTH);
    cr_assert_eq(t->dtype, SEAM_I32);
    memcpy(selected, t->data, sizeof selected);
}

static int by_value(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

    return (x > y) - (x < y);
}

static void check_mla(const char *plugin)
{
    static const uint32_t layer[] = { 3, 7 };
    /* Exact ties at the cut, where the reference chose arbitrarily. */
    static const uint32_t tied[2][4] = { { N, N, N, N }, { 78, 93, 128, 143 } };
    struct golden g;

    golden_open(&g, NULL);
    th_config(g.h, "{\"kv_dtype\": \"f32\"}");
    for (uint32_t i = 0; i < 2; i++) {
        struct tb *b = golden_block(&g, plugin, &layer[i], 1);
        const struct seam_trace *trace = b->p->extension("trace/1");
        float *in = golden_get(&g, layer[i], "attn_in");
        float *want = golden_get(&g, layer[i], "attn_out");
        int32_t(*index)[WIDTH] = golden_get(&g, layer[i], "topk_index");
        float *y = malloc(N * D * sizeof *y);
        struct tb_seq s;

        cr_assert_not_null(trace);
        trace->set(b->self, NULL, keep_index);
        tb_seq_new(b, &s, 1);
        cr_assert_eq(tb_run(b, &s, in, N, y), 0, "%s", b->err.text);
        for (uint32_t r = 0; r < N; r++) {
            if (r == tied[i][0] || r == tied[i][1] || r == tied[i][2] ||
                r == tied[i][3])
                continue;
            qsort(index[r], WIDTH, sizeof **index, by_value);
            qsort(selected[r], WIDTH, sizeof **selected, by_value);
            cr_expect(!memcmp(index[r], selected[r], sizeof *index),
                      "%s layer %u row %u selects other tokens", plugin,
                      layer[i], r);
            cr_expect_lt(worst(y + r * D, want + r * D, D), 2e-5,
                         "%s layer %u row %u: %g", plugin, layer[i], r,
                         worst(y + r * D, want + r * D, D));
        }
        tb_free(b);
        free(in), free(want), free(index), free(y);
    }
    golden_close(&g);
}

Test(golden_blocks, sparse_mla_ref)
{
    check_mla("sparse_mla_ref");
}

Test(golden_blocks, sparse_mla)
{
    check_mla("sparse_mla");
}

/* ---- Experts ------------------------------------------------------------- */

struct routes {
    float logits[N][EXPERTS], weights[N][TOP_K];
    int32_t index[N][TOP_K];
};

static void keep_routes(void *ctx, uint32_t layer, const char *name,
                        const struct seam_tensor *t)
{
    struct routes *r = ctx;

    (void)layer;
    if (!strcmp(name, "router_logits"))
        memcpy(r->logits, t->data, sizeof r->logits);
    else if (!strcmp(name, "router_weights"))
        memcpy(r->weights, t->data, sizeof r->weights);
    else if (!strcmp(name, "router_index"))
        memcpy(r->index, t->data, sizeof r->index);
    else
        cr_assert_fail("trace of %s", name);
}

static void check_moe(const char *plugin)
{
    static struct routes r;
    struct golden g;

    golden_open(&g, NULL);
    for (uint32_t layer = 1; layer < 8; layer++) {
        struct tb *b = golden_block(&g, plugin, &layer, 1);
        const struct seam_trace *trace = b->p->extension("trace/1");
        float *in = golden_get(&g, layer, "mlp_in");
        float *want = golden_get(&g, layer, "mlp_out");
        float *logits = golden_get(&g, layer, "router_logits");
        float(*weights)[TOP_K] = golden_get(&g, layer, "router_weights");
        int32_t(*index)[TOP_K] = golden_get(&g, layer, "router_index");
        float *y = malloc(N * D * sizeof *y);
        struct tb_seq s;

        cr_assert_not_null(trace);
        trace->set(b->self, &r, keep_routes);
        tb_seq_new(b, &s, 0);
        cr_assert_eq(tb_run(b, &s, in, N, y), 0, "%s", b->err.text);
        cr_expect_lt(worst(y, want, N * D), 5e-5, "%s layer %u: %g", plugin,
                     layer, worst(y, want, N * D));
        cr_expect_lt(worst(r.logits[0], logits, N * EXPERTS), 2e-5);
        for (uint32_t t = 0; t < N; t++)
            for (uint32_t k = 0; k < TOP_K; k++) {
                uint32_t j = 0;

                while (j < TOP_K && index[t][j] != r.index[t][k])
                    j++;
                cr_assert_lt(j, TOP_K, "%s layer %u row %u chose expert %d",
                             plugin, layer, t, r.index[t][k]);
                cr_expect_float_eq(r.weights[t][k], weights[t][j], 1e-5);
            }
        tb_free(b);
        free(in), free(want), free(logits), free(weights), free(index), free(y);
    }
    golden_close(&g);
}

Test(golden_blocks, moe_resident_ref)
{
    check_moe("moe_resident_ref");
}

Test(golden_blocks, moe_resident)
{
    check_moe("moe_resident");
}

/* ---- Residual ------------------------------------------------------------ */

static struct seam_tensor streams_view(float *p)
{
    struct seam_tensor t = th_view(p, N, S * D, S * D);

    t.rank = 3;
    t.shape[1] = S;
    t.shape[2] = D;
    t.stride[1] = D * 4;
    return t;
}

/* From the streams that leave layer l - 1 through both sites of layer l. */
static void check_residual(const char *plugin)
{
    struct golden g;
    struct seam_error err = { 0 };
    struct seam_limits limits = { .size = sizeof limits,
                                  .act_dtype = SEAM_F32,
                                  .max_seqs = 1,
                                  .max_tokens = N,
                                  .tp_size = 1 };
    struct seam_device device = { .size = sizeof device, .ordinal = -1 };
    struct seam_create c = { .size = sizeof c,
                             .limits = &limits,
                             .device = &device };
    struct seam_exec e = { .size = sizeof e, .device = -1, .err = &err };
    const struct seam_plugin *p;
    const struct seam_backend *be;
    void *self;

    golden_open(&g, NULL);
    c.cfg = th_plugin_cfg(g.h);
    c.model = th_model(g.h);
    p = th_plugin(g.h, plugin);
    be = p->table;
    cr_assert_eq(p->create(&c, &self, &err), 0, "%s", err.text);
    for (uint32_t l = 1; l < 8; l++) {
        static const char *const site[2] = { "attn", "ffn" };
        float *x = malloc(N * D * sizeof *x);
        float *streams = golden_get(&g, l - 1, "streams_out");
        float *out = golden_get(&g, l, "streams_out"), *y[2];
        float(*mix)[S + S * S] = malloc(N * sizeof *mix);
        struct seam_residual r = {
            .size = sizeof r,
            .n_streams = S,
            .sinkhorn = 20,
            .eps_norm = 1e-5f,
            .eps_mix = 1e-6f,
            .streams = streams_view(streams),
            .mix = th_view(mix[0], N, S + S * S, S + S * S),
            .x = th_view(x, N, D, D),
        };

        for (uint32_t k = 0; k < 2; k++) {
            char name[64];
            struct seam_tensor *w[4] = { &r.fn, &r.base, &r.scale, &r.w };
            const char *part[4] = { "fn", "base", "scale", NULL };
            float *post, *comb, *in, *collapsed;

            for (uint32_t i = 0; i < 4; i++) {
                if (part[i])
                    snprintf(name, sizeof name, "@layer.%u.hc_%s_%s", l,
                             site[k], part[i]);
                else
                    snprintf(name, sizeof name, "@layer.%u.%s.weight", l,
                             k ? "post_attention_layernorm"
                               : "input_layernorm");
                cr_assert_eq(golden_weight(&g, name, w[i]), 0, "%s", name);
            }
            snprintf(name, sizeof name, "%s_hc.post", site[k]);
            post = golden_get(&g, l, name);
            snprintf(name, sizeof name, "%s_hc.comb", site[k]);
            comb = golden_get(&g, l, name);
            snprintf(name, sizeof name, "%s_hc.collapsed", site[k]);
            collapsed = golden_get(&g, l, name);
            in = golden_get(&g, l, k ? "mlp_in" : "attn_in");
            y[k] = golden_get(&g, l, k ? "mlp_out" : "attn_out");
            cr_assert_eq(be->ops->residual(self, &e, &r), 0, "%s", err.text);
            cr_expect_lt(worst(x, in, N * D), 1e-4, "%s: %g", name,
                         worst(x, in, N * D));
            for (uint32_t t = 0; t < N; t++) {
                cr_expect_lt(worst(mix[t], post + t * S, S), 2e-5);
                cr_expect_lt(worst(mix[t] + S, comb + t * S * S, S * S), 2e-5);
            }
            /* The same without the norm: what the reference calls collapsed. */
            r.w.data = NULL;
            r.y = (struct seam_tensor){ .data = NULL };
            cr_assert_eq(be->ops->residual(self, &e, &r), 0, "%s", err.text);
            cr_expect_lt(worst(x, collapsed, N * D), 5e-4, "%s: %g", name,
                         worst(x, collapsed, N * D));
            /* What the block adds, for the next read. */
            r.y = th_view(y[k], N, D, D);
            if (k == 1) {
                r.x.data = NULL;
                cr_assert_eq(be->ops->residual(self, &e, &r), 0, "%s",
                             err.text);
                cr_expect_lt(worst(streams, out, N * S * D), 5e-4,
                             "%s layer %u: %g", plugin, l,
                             worst(streams, out, N * S * D));
            }
            free(post), free(comb), free(in), free(collapsed);
        }
        free(y[0]), free(y[1]), free(x), free(streams), free(out), free(mix);
    }
    p->destroy(self);
    golden_close(&g);
}

Test(golden_blocks, cpu_ref)
{
    check_residual("cpu_ref");
}

Test(golden_blocks, cpu)
{
    check_residual("cpu");
}
