/* The reference traces of tests/golden (README.md there), for both plugin sets:
 * every intermediate of one prefill, and the logits of all runs.
 *
 * Exact ties.  The reference picks arbitrarily among pools whose score is
 * exactly 0; ours takes the lower index.  A row is excused from a comparison
 * only if an independent score of ours says that the sets differ in tied pools
 * alone, and only itself, or everything after it where a later layer sees it.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugins/common/kda_state.h"
#include "tests/support/oracle.h"
#include "tests/support/rig.h"

#define N_PREFILL 150
#define N_ALL     176
#define LIMIT     2e-4
/* Rows that may be excused: the fixtures' README lists four in layer 7. */
#define MAX_TIED 4

/* What is seen of a run, in the trace's own layout. */
struct watch {
    struct rig *rig;
    const struct rig_file *trace;
    const struct seam_model_config *c;
    int (*residual)(void *be, const struct seam_exec *e,
                    const struct seam_residual *a);
    uint32_t base; /* tokens before this step */
    uint32_t n;    /* tokens of this step */
    uint32_t call; /* residual calls in this step so far */
    float *spare_x, *spare_mix;
    float *attn_in[2];    /* [N_ALL][hidden] of the sparse layers */
    double worst[16];     /* by name, see watch_name */
    bool tied[N_PREFILL]; /* rows of the last layer that differ by a tie */
    uint32_t n_tied;
};

static struct watch *watching; /* the interposed operation has no context */

/* The traces were made in F32, and the tiny model's random weights make much of
 * what planes round. */
static const struct seam_flag EXACT[] = {
    { "model.max_context", "256" },
    { "plugins.sparse_attention.config", "{\"kv_dtype\": \"f32\"}" },
};

static const char *const watch_name[16] = {
    "attn_in",      "attn_out",   "mlp_in",        "mlp_out",
    "streams_out",  "hc.post",    "hc.comb",       "hc.collapsed",
    "final_norm",   "topk_index", "router_logits", "router_weights",
    "router_index", "kda_state",  "conv_state",    "logits",
};
enum {
    W_ATTN_IN,
    W_ATTN_OUT,
    W_MLP_IN,
    W_MLP_OUT,
    W_STREAMS,
    W_POST,
    W_COMB,
    W_COLLAPSED,
    W_FINAL,
    W_TOPK,
    W_LOGITS_R,
    W_WEIGHTS_R,
    W_INDEX_R,
    W_KDA,
    W_CONV,
    W_LOGITS
};

static const float *watch_ref(const char *fmt, uint32_t layer)
{
    char name[96];

    snprintf(name, sizeof name, fmt, layer);
    return rig_tensor(watching->trace, name, NULL);
}

/* Compare n rows of `width` floats, `stride` bytes apart, with the trace's rows
 * from base on; rows of the last layer that differ by a tie are left out when
 * excuse is set. */
static void watch_compare(int what, const float *ref, const void *got,
                          int64_t stride, uint32_t width, bool excuse)
{
    struct watch *w = watching;

    for (uint32_t i = 0; i < w->n; i++) {
        const float *g = (const float *)((const char *)got + i * stride);
        const float *r = ref + (size_t)(w->base + i) * width;

        if (excuse && w->tied[w->base + i])
            continue;
        for (uint32_t d = 0; d < width; d++) {
            double e = fabs((double)g[d] - (double)r[d]);

            if (!(e <= w->worst[what]))
                w->worst[what] = isnan(e) ? INFINITY : e;
        }
    }
}

/* The branch y that is about to be added: the output of the last block. */
static void watch_branch(const struct seam_residual *a, uint32_t call)
{
    uint32_t layer = (call - 1) / 2;
    bool last = layer == watching->c->n_layers - 1;

    if (call % 2)
        watch_compare(W_ATTN_OUT,
                      watch_ref("prefill150.layers.%u.attn_out", layer),
                      a->y.data, a->y.stride[0], watching->c->hidden, last);
    else
        watch_compare(W_MLP_OUT,
                      watch_ref("prefill150.layers.%u.mlp_out", layer),
                      a->y.data, a->y.stride[0], watching->c->hidden, last);
}

static void watch_site(void *be, const struct seam_exec *e,
                       const struct seam_residual *a, uint32_t call)
{
    struct watch *w = watching;
    uint32_t layer = call / 2, s = a->n_streams, d = w->c->hidden;
    bool ffn = call % 2, excuse = ffn && layer == w->c->n_layers - 1;
    const char *post = ffn ? "prefill150.layers.%u.ffn_hc.post"
                           : "prefill150.layers.%u.attn_hc.post";
    const char *comb = ffn ? "prefill150.layers.%u.ffn_hc.comb"
                           : "prefill150.layers.%u.attn_hc.comb";
    const char *collapsed = ffn ? "prefill150.layers.%u.ffn_hc.collapsed"
                                : "prefill150.layers.%u.attn_hc.collapsed";
    const char *in =
        ffn ? "prefill150.layers.%u.mlp_in" : "prefill150.layers.%u.attn_in";
    struct seam_residual again = *a;

    watch_compare(ffn ? W_MLP_IN : W_ATTN_IN, watch_ref(in, layer), a->x.data,
                  a->x.stride[0], d, excuse);
    watch_compare(W_POST, watch_ref(post, layer), a->mix.data, a->mix.stride[0],
                  s, excuse);
    watch_compare(W_COMB, watch_ref(comb, layer),
                  (const float *)a->mix.data + s, a->mix.stride[0], s * s,
                  excuse);
    /* The collapse itself: the same read once more, without its norm. */
    again.y = (struct seam_tensor){ 0 };
    again.w = (struct seam_tensor){ 0 };
    again.mix.data = w->spare_mix;
    again.x.data = w->spare_x;
    cr_assert_eq(w->residual(be, e, &again), 0);
    watch_compare(W_COLLAPSED, watch_ref(collapsed, layer), w->spare_x,
                  a->x.stride[0], d, excuse);
}

static int watch_residual(void *be, const struct seam_exec *e,
                          const struct seam_residual *a)
{
    struct watch *w = watching;
    uint32_t call = w->call++, layers = w->c->n_layers;
    int rc;

    if (call)
        watch_branch(a, call);
    rc = w->residual(be, e, a);
    if (rc)
        return rc;
    if (call && call % 2 == 0) {
        uint32_t layer = call / 2 - 1;

        watch_compare(W_STREAMS,
                      watch_ref("prefill150.layers.%u.streams_out", layer),
                      a->streams.data, a->streams.stride[0],
                      a->n_streams * w->c->hidden, layer == layers - 1);
    }
    if (call < 2 * layers)
        watch_site(be, e, a, call);
    else
        watch_compare(W_FINAL, watch_ref("prefill150.final_norm", 0), a->x.data,
                      a->x.stride[0], w->c->hidden, true);
    /* Kept for judging ties. */
    if (call < 2 * layers && call % 2 == 0 &&
        w->c->layer_kind[call / 2] == SEAM_LAYER_SPARSE)
        for (uint32_t i = 0; i < w->n; i++)
            memcpy(w->attn_in[call / 2 / 4] +
                       (size_t)(w->base + i) * w->c->hidden,
                   (const char *)a->x.data + i * a->x.stride[0],
                   w->c->hidden * sizeof(float));
    return 0;
}

/* ---- Selection and routing, through the plugins' trace/1 ------------ */

static bool set_has(const int32_t *set, uint32_t n, int32_t v)
{
    for (uint32_t i = 0; i < n; i++)
        if (set[i] == v)
            return true;
    return false;
}

static bool set_within(const int32_t *a, uint32_t na, const int32_t *b,
                       uint32_t nb)
{
    for (uint32_t i = 0; i < na; i++)
        if (a[i] >= 0 && !set_has(b, nb, a[i]))
            return false;
    return true;
}

static void watch_topk(void *ctx, uint32_t index, const char *name,
                       const struct seam_tensor *t)
{
    struct watch *w = ctx;
    uint32_t layer = w->rig->rt->layers[SEAM_ROLE_SPARSE][index];
    uint32_t width = w->c->index_topk + w->c->index_kpool - 1;
    const int32_t *ref;

    if (strcmp(name, "topk_index"))
        return;
    ref = (const int32_t *)watch_ref("prefill150.layers.%u.topk_index", layer);
    for (uint32_t i = 0; i < w->n; i++) {
        const int32_t *got =
            (const int32_t *)((const char *)t->data + i * t->stride[0]);
        const int32_t *want = ref + (size_t)(w->base + i) * width;
        uint32_t n = (uint32_t)t->shape[1];

        if (set_within(got, n, want, width) && set_within(want, width, got, n))
            continue;
        if (layer == w->c->n_layers - 1 &&
            oracle_differs_by_tie(w->rig, layer, w->attn_in[index], w->base + i,
                                  got, n, want, width)) {
            w->tied[w->base + i] = true;
            w->n_tied++;
        } else {
            w->worst[W_TOPK] = INFINITY;
        }
    }
}

static void watch_router(void *ctx, uint32_t index, const char *name,
                         const struct seam_tensor *t)
{
    struct watch *w = ctx;
    uint32_t layer = w->rig->rt->layers[SEAM_ROLE_MOE][index];
    uint32_t k = w->c->experts_per_token;
    bool last = layer == w->c->n_layers - 1;

    if (!strcmp(name, "router_logits")) {
        watch_compare(W_LOGITS_R,
                      watch_ref("prefill150.layers.%u.router_logits", layer),
                      t->data, t->stride[0], w->c->n_experts, last);
        return;
    }
    if (!strcmp(name, "router_index")) {
        const int32_t *ref = (const int32_t *)watch_ref(
            "prefill150.layers.%u.router_index", layer);

        for (uint32_t i = 0; i < w->n; i++) {
            uint32_t at = w->base + i;
            const int32_t *got =
                (const int32_t *)((const char *)t->data + i * t->stride[0]);

            if (!(last && w->tied[at]) &&
                !set_within(got, k, ref + (size_t)at * k, k))
                w->worst[W_INDEX_R] = INFINITY;
        }
        return;
    }
    if (!strcmp(name, "router_weights")) {
        /* The order within a token is free: compare sorted. */
        const float *ref =
            watch_ref("prefill150.layers.%u.router_weights", layer);

        for (uint32_t i = 0; i < w->n; i++) {
            uint32_t at = w->base + i;
            float a[16], b[16];

            memcpy(a, (const char *)t->data + i * t->stride[0], k * sizeof *a);
            memcpy(b, ref + (size_t)at * k, k * sizeof *b);
            oracle_sort(a, k);
            oracle_sort(b, k);
            for (uint32_t j = 0; j < k && !(last && w->tied[at]); j++) {
                double e = fabs((double)a[j] - (double)b[j]);

                if (e > w->worst[W_WEIGHTS_R])
                    w->worst[W_WEIGHTS_R] = e;
            }
        }
    }
}

static void watch_plugin(struct watch *w, enum seam_role role,
                         void (*sink)(void *ctx, uint32_t layer,
                                      const char *name,
                                      const struct seam_tensor *t))
{
    const struct seam_plugin *p = &w->rig->rt->plugin[role]->plugin;
    const struct seam_trace *trace;

    cr_assert_not_null(p->extension);
    trace = p->extension("trace/1");
    cr_assert_not_null(trace, "%s has no trace/1", p->ident.name);
    trace->set(w->rig->rt->self[role], w, sink);
}

/* ---- States -------------------------------------------------------------- */

static void state_compare(struct watch *w, struct rig_seq *s, const char *fmt,
                          bool conv)
{
    struct seam_runtime *rt = w->rig->rt;
    struct kda_dims dims = { .heads = w->c->kda_heads,
                             .dim = w->c->kda_dim,
                             .n_conv = w->c->kda_conv,
                             .max_draft = rt->limits.max_draft,
                             .chunk = kda_chunk(w->c->kda_lower_bound) };
    uint64_t channels = 3ull * dims.heads * dims.dim, bytes;
    uint64_t matrix = (uint64_t)dims.dim * dims.dim;
    double *S = malloc(matrix * sizeof *S);
    struct seam_error err;

    cr_assert_eq(seam_runtime_commit(rt, s->row, s->n_accept, &err), 0, "%s",
                 err.text);
    s->n_accept = 0;
    for (uint32_t l = 0; l < rt->needs[SEAM_ROLE_LINEAR].n_layers; l++) {
        uint32_t layer = rt->layers[SEAM_ROLE_LINEAR][l];
        const float *ref = watch_ref(fmt, layer);
        void *row = seam_runtime_state(rt, SEAM_ROLE_LINEAR, l, s->row, &bytes);
        struct kda_state got;

        cr_assert_eq(kda_state_layout(&dims, row, &got), bytes);
        for (uint32_t h = 0; h < dims.heads; h++) {
            kda_state_read(&dims, &got, h, (uint32_t)*got.n, S);
            for (uint64_t i = 0; i < matrix; i++) {
                double e = fabs(S[i] - (double)ref[h * matrix + i]);

                if (!(e <= w->worst[W_KDA]))
                    w->worst[W_KDA] = e;
            }
        }
        if (!conv)
            continue;
        /* Theirs keeps four inputs of each channel, ours the last three,
         * oldest first. */
        ref = watch_ref("prefill150.layers.%u.conv_state", layer);
        for (uint64_t ch = 0; ch < channels; ch++)
            for (int32_t j = 0; j < 3; j++) {
                const float *u =
                    kda_window(&dims, &got, *got.turn, *got.n - 3 + j);
                double e =
                    fabs((double)u[ch] - (double)ref[ch * 4 + 1 + (uint32_t)j]);

                if (!(e <= w->worst[W_CONV]))
                    w->worst[W_CONV] = e;
            }
    }
    free(S);
}

/* ---- Runs ---------------------------------------------------------------- */

static void watch_open(struct watch *w, struct rig *r,
                       const struct rig_file *trace)
{
    *w = (struct watch){ .rig = r, .trace = trace };
    w->c = seam_checkpoint_config(r->rt->model.checkpoint);
    w->spare_x = calloc((size_t)N_ALL * w->c->hidden, sizeof(float));
    w->spare_mix = calloc(N_ALL * 20, sizeof(float));
    for (int i = 0; i < 2; i++)
        w->attn_in[i] = calloc((size_t)N_ALL * w->c->hidden, sizeof(float));
    watching = w;
}

static void watch_close(struct watch *w)
{
    free(w->spare_x);
    free(w->spare_mix);
    free(w->attn_in[0]);
    free(w->attn_in[1]);
    watching = NULL;
}

/* The largest error over the rows.  A row beyond the limit that a tie may have
 * changed is left out and counted instead. */
static double rows_worst(const float *got, const float *ref, uint32_t n,
                         uint32_t vocab, const bool *tied, uint32_t *n_excused)
{
    double worst = 0;

    for (uint32_t i = 0; i < n; i++) {
        double row = 0;

        for (uint32_t v = 0; v < vocab; v++) {
            double e = fabs((double)got[(size_t)i * vocab + v] -
                            (double)ref[(size_t)i * vocab + v]);

            if (!(e <= row))
                row = isnan(e) ? INFINITY : e;
        }
        if (row > LIMIT && tied && tied[i])
            ++*n_excused;
        else if (row > worst)
            worst = row;
    }
    return worst;
}

static void intermediates(enum rig_set set, uint32_t chunk)
{
    struct rig_file trace;
    struct rig r;
    struct watch w;
    struct rig_seq s;
    struct seam_ops *ops;
    const int32_t *ids;
    float *logits;
    uint32_t excused = 0;

    rig_file_open(&trace, "tests/golden/trace-bf16.safetensors");
    rig_open(&r, set, "tests/golden/tiny-bf16", EXACT, 2);
    watch_open(&w, &r, &trace);
    ops = &r.rt->plugin[SEAM_ROLE_BACKEND]->ops;
    w.residual = ops->residual;
    ops->residual = watch_residual;
    watch_plugin(&w, SEAM_ROLE_SPARSE, watch_topk);
    watch_plugin(&w, SEAM_ROLE_MOE, watch_router);
    ids = rig_tensor(&trace, "input_ids", NULL);
    logits = malloc((size_t)N_ALL * w.c->vocab * sizeof *logits);

    rig_seq_open(&r, &s, 1, 256);
    for (; w.base < N_PREFILL; w.base += w.n) {
        w.n = N_PREFILL - w.base < chunk ? N_PREFILL - w.base : chunk;
        w.call = 0;
        rig_feed(&r, &s, ids + w.base, w.n, w.n,
                 logits + (size_t)w.base * w.c->vocab);
    }
    ops->residual = w.residual;
    w.worst[W_LOGITS] =
        rows_worst(logits, rig_tensor(&trace, "prefill150.logits", NULL),
                   N_PREFILL, w.c->vocab, w.tied, &excused);
    state_compare(&w, &s, "prefill150.layers.%u.kda_state", true);
    watch_plugin(&w, SEAM_ROLE_SPARSE, NULL);
    watch_plugin(&w, SEAM_ROLE_MOE, NULL);

    rig_feed_all(&r, &s, ids + N_PREFILL, N_ALL - N_PREFILL, 1, logits);
    cr_expect_leq(rows_worst(logits,
                             rig_tensor(&trace, "decode26.logits", NULL),
                             N_ALL - N_PREFILL, w.c->vocab, NULL, &excused),
                  LIMIT);
    state_compare(&w, &s, "decode26.layers.%u.kda_state", false);

    for (int i = 0; i < 16; i++) {
        printf("golden %-7s chunk %3u %-14s %.2e\n", set ? "default" : "ref",
               chunk, watch_name[i], w.worst[i]);
        cr_expect_leq(w.worst[i], LIMIT, "%s differs by %g", watch_name[i],
                      w.worst[i]);
    }
    cr_expect_leq(w.n_tied, MAX_TIED, "%u rows differ by a tie", w.n_tied);
    free(logits);
    rig_seq_close(&s);
    watch_close(&w);
    rig_close(&r);
    rig_file_close(&trace);
}

Test(golden, ref_intermediates_in_one_chunk)
{
    intermediates(RIG_REF, 150);
}

Test(golden, ref_intermediates_in_chunks_of_7)
{
    intermediates(RIG_REF, 7);
}

Test(golden, default_intermediates_in_one_chunk)
{
    intermediates(RIG_DEFAULT, 150);
}

Test(golden, default_intermediates_token_by_token)
{
    intermediates(RIG_DEFAULT, 1);
}

Test(golden, default_intermediates_in_chunks_of_7)
{
    intermediates(RIG_DEFAULT, 7);
}

Test(golden, default_intermediates_in_chunks_of_64)
{
    intermediates(RIG_DEFAULT, 64);
}

Test(golden, default_intermediates_in_chunks_of_101)
{
    intermediates(RIG_DEFAULT, 101);
}

/* ---- Logits of all runs, both checkpoints -------------------------------- */

/* Which rows of a run may differ because a tie was decided otherwise: the run's
 * own selections are judged, see oracle.h. */
struct run {
    struct rig r;
    struct rig_file trace;
    struct oracle_ties ties;
    const int32_t *ids;
    float *logits;
    uint32_t vocab;
};

static void run_open(struct run *u, enum rig_set set, bool w4a16)
{
    rig_file_open(&u->trace, w4a16 ? "tests/golden/trace-w4a16.safetensors"
                                   : "tests/golden/trace-bf16.safetensors");
    rig_open(&u->r, set,
             w4a16 ? "tests/golden/tiny-w4a16" : "tests/golden/tiny-bf16",
             EXACT, 2);
    oracle_ties_open(&u->ties, &u->r, N_ALL);
    u->ids = rig_tensor(&u->trace, "input_ids", NULL);
    u->vocab = rig_vocab(&u->r);
    u->logits = malloc((size_t)N_ALL * u->vocab * sizeof *u->logits);
}

static void run_close(struct run *u)
{
    free(u->logits);
    oracle_ties_close(&u->ties);
    rig_close(&u->r);
    rig_file_close(&u->trace);
}

static void logits_of(enum rig_set set, bool w4a16, uint32_t chunk)
{
    struct run u;
    struct rig_seq s;
    uint32_t excused = 0;
    double prefill, decode;

    run_open(&u, set, w4a16);
    rig_seq_open(&u.r, &s, 0, 256);
    oracle_ties_start(&u.ties);
    rig_feed_all(&u.r, &s, u.ids, N_PREFILL, chunk, u.logits);
    prefill =
        rows_worst(u.logits, rig_tensor(&u.trace, "prefill150.logits", NULL),
                   N_PREFILL, u.vocab, oracle_ties_rows(&u.ties), &excused);
    rig_feed_all(&u.r, &s, u.ids + N_PREFILL, N_ALL - N_PREFILL, 1, u.logits);
    decode = rows_worst(u.logits, rig_tensor(&u.trace, "decode26.logits", NULL),
                        N_ALL - N_PREFILL, u.vocab,
                        oracle_ties_rows(&u.ties) + N_PREFILL, &excused);
    printf("golden %-7s %-5s chunk %3u prefill %.2e decode %.2e, %u rows "
           "excused\n",
           set ? "default" : "ref", w4a16 ? "w4a16" : "bf16", chunk, prefill,
           decode, excused);
    cr_expect_leq(prefill, LIMIT);
    cr_expect_leq(decode, LIMIT);
    cr_expect_leq(excused, MAX_TIED);
    rig_seq_close(&s);
    run_close(&u);
}

/* Sanitizers take two of the sizes; each chunk is computed by the same code. */
#ifdef SEAM_TEST_QUICK
#define CHUNKS 7, 150
#else
#define CHUNKS 1, 7, 64, 101, 150
#endif

#define LOGITS_TEST(set_, SET_, dtype_, w4_)                      \
    Test(golden, set_##_##dtype_##_logits_at_every_chunk_size)    \
    {                                                             \
        static const uint32_t chunk[] = { CHUNKS };               \
                                                                  \
        for (size_t i = 0; i < sizeof chunk / sizeof *chunk; i++) \
            logits_of(SET_, w4_, chunk[i]);                       \
    }
LOGITS_TEST(ref, RIG_REF, bf16, false)
LOGITS_TEST(ref, RIG_REF, w4a16, true)
LOGITS_TEST(default, RIG_DEFAULT, bf16, false)
LOGITS_TEST(default, RIG_DEFAULT, w4a16, true)

static void boundary(enum rig_set set, bool w4a16)
{
    struct run u;
    int64_t n;
    const int32_t *length;
    const float *ref;
    double worst = 0;
    uint32_t excused = 0;

    run_open(&u, set, w4a16);
    length = rig_tensor(&u.trace, "boundary.lengths", &n);
    ref = rig_tensor(&u.trace, "boundary.logits", NULL);
    for (int64_t i = 0; i < n; i++) {
        uint32_t len = (uint32_t)length[i];
        struct rig_seq s;
        double e;

        rig_seq_open(&u.r, &s, 0, 256);
        oracle_ties_start(&u.ties);
        rig_feed(&u.r, &s, u.ids, len, 1, u.logits);
        e = rows_worst(u.logits, ref + (size_t)i * u.vocab, 1, u.vocab,
                       oracle_ties_rows(&u.ties) + len - 1, &excused);
        cr_expect_leq(e, LIMIT, "length %u differs by %g", len, e);
        worst = e > worst ? e : worst;
        rig_seq_close(&s);
    }
    printf("golden %-7s %-5s boundary lengths %.2e\n", set ? "default" : "ref",
           w4a16 ? "w4a16" : "bf16", worst);
    run_close(&u);
}

Test(golden, ref_boundary_lengths)
{
    boundary(RIG_REF, false);
    boundary(RIG_REF, true);
}

Test(golden, default_boundary_lengths)
{
    boundary(RIG_DEFAULT, false);
    boundary(RIG_DEFAULT, true);
}

/* Greedy tokens are the reference's, all of them; the top-2 logits agree except
 * where a tie was decided otherwise. */
static void greedy(enum rig_set set, bool w4a16)
{
    struct run u;
    struct rig_seq s;
    const int32_t *want;
    const float *top2;
    int64_t n;
    double worst = 0;
    /* README.md of the fixtures: two steps, and in w4a16 all after the tie of
     * layer 3 at position 62. */
    uint32_t excused = 0, may_be = w4a16 ? 27 : 2;

    run_open(&u, set, w4a16);
    want = rig_tensor(&u.trace, "greedy40.tokens", &n);
    top2 = rig_tensor(&u.trace, "greedy40.top2", NULL);
    rig_seq_open(&u.r, &s, 0, 256);
    oracle_ties_start(&u.ties);
    rig_feed(&u.r, &s, u.ids, 40, 1, u.logits);
    for (int64_t i = 0; i < n; i++) {
        int32_t best = 0;
        float second = -INFINITY;
        double e;

        for (uint32_t v = 1; v < u.vocab; v++)
            if (u.logits[v] > u.logits[best]) {
                second = u.logits[best];
                best = (int32_t)v;
            } else if (u.logits[v] > second) {
                second = u.logits[v];
            }
        cr_expect_eq(best, want[i], "step %d: token %d, expected %d", (int)i,
                     best, want[i]);
        e = fmax(fabs((double)u.logits[best] - (double)top2[2 * i]),
                 fabs((double)second - (double)top2[2 * i + 1]));
        if (e > LIMIT && oracle_ties_rows(&u.ties)[39 + i])
            excused++;
        else
            worst = e > worst ? e : worst;
        cr_expect_leq(worst, LIMIT, "step %d: top-2 differ by %g", (int)i, e);
        rig_feed(&u.r, &s, &want[i], 1, 1, u.logits);
    }
    printf("golden %-7s %-5s greedy top-2 %.2e, %u rows excused\n",
           set ? "default" : "ref", w4a16 ? "w4a16" : "bf16", worst, excused);
    cr_expect_leq(excused, may_be);
    rig_seq_close(&s);
    run_close(&u);
}

Test(golden, ref_greedy_tokens)
{
    greedy(RIG_REF, false);
    greedy(RIG_REF, true);
}

Test(golden, default_greedy_tokens)
{
    greedy(RIG_DEFAULT, false);
    greedy(RIG_DEFAULT, true);
}

/* ---- Several sequences in one step --------------------------------------- */

/* Three sequences of different lengths side by side give bit for bit what each
 * gives alone: the plugins claim ROW_INVARIANT. */
static void company(enum rig_set set)
{
    static const uint32_t length[3] = { 90, 1, 37 };
    struct run u;
    struct rig_seq alone, s[3];
    struct seam_step_seq q[3];
    struct seam_error err;
    int32_t rows[3];
    float *got;
    uint32_t t = 0;

    run_open(&u, set, true);
    oracle_ties_start(&u.ties);
    got = malloc(u.vocab * sizeof *got);
    for (uint32_t i = 0; i < 3; i++) {
        rig_seq_open(&u.r, &s[i], i, 128);
        q[i] = (struct seam_step_seq){
            .token = u.ids + 10 * i,
            .n = length[i],
            .page = s[i].page,
            .n_pages = s[i].n_pages,
            .row = s[i].row,
        };
        t += length[i];
        rows[i] = (int32_t)t - 1;
    }
    cr_assert_eq(seam_runtime_forward(u.r.rt, q, 3, rows, 3, &err), 0, "%s",
                 err.text);
    for (uint32_t i = 0; i < 3; i++)
        cr_assert_eq(
            seam_runtime_logits(u.r.rt, i, u.logits + i * u.vocab, &err), 0);
    for (uint32_t i = 0; i < 3; i++) {
        rig_seq_open(&u.r, &alone, 3, 128);
        oracle_ties_start(&u.ties);
        rig_feed(&u.r, &alone, u.ids + 10 * i, length[i], 1, got);
        cr_expect_arr_eq(got, u.logits + i * u.vocab, u.vocab * sizeof *got,
                         "sequence %u differs in company", i);
        rig_seq_close(&alone);
        rig_seq_close(&s[i]);
    }
    free(got);
    run_close(&u);
}

Test(golden, ref_company_changes_no_bit)
{
    company(RIG_REF);
}

Test(golden, default_company_changes_no_bit)
{
    company(RIG_DEFAULT);
}
