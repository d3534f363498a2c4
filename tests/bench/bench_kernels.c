/* bench_kernels [--isa NAME] [--threads N] [--shape real|mid|nano]
 *               [--context N] [--only PREFIX] [--seconds S]
 *
 * What the kernels and the blocks of the default CPU plugins cost at the shapes
 * of a model, with random weights.  Weights rotate through more memory than the
 * caches hold.  Every line: rows of the step, the least and the median time of a
 * call, the bytes of weights and state it must move, and what that makes of the
 * read bandwidth and of the multiply-add rate that are measured first. */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/engine/pool.h"
#include "plugins/common/kern/kern.h"

enum { MAX_RUNS = 4000 };

struct shape {
    const char *name;
    uint32_t d, kda_heads, kda_dim, heads, q_lora, kv_lora, nope, v;
    uint32_t ih, id, topk, ff, experts, top_k, dense, vocab;
};

/* experts: fewer than the real 288, so that a layer fits; a step's rows choose
 * among them. */
static const struct shape SHAPES[] = {
    { "real", 4096, 64, 128, 64, 1536, 512, 256, 256, 32, 128, 2048, 2048, 64,
      8, 12288, 154880 },
    { "mid", 1536, 24, 128, 24, 512, 512, 256, 256, 16, 128, 2048, 512, 32, 8,
      4608, 16384 },
    { "nano", 256, 4, 64, 4, 128, 128, 64, 64, 4, 64, 256, 128, 16, 4, 512,
      6144 },
};

static struct {
    const struct shape *s;
    const char *isa, *only;
    uint32_t threads, context;
    double seconds;
    const struct kern *k;
    struct seam_pool *pool;
    struct seam_host host;
    char *weights; /* [weight_bytes] bf16 numbers                          */
    uint64_t weight_bytes, next;
    double read_gbs, gflops;
} g;

static void *memory(uint64_t bytes)
{
    void *p = NULL;

    if (posix_memalign(&p, 4096, bytes)) {
        fprintf(stderr, "out of memory: %llu bytes\n",
                (unsigned long long)bytes);
        exit(1);
    }
    memset(p, 0, bytes);
    return p;
}

/* ---- A host -------------------------------------------------------------- */

static void host_log(void *ctx, uint32_t level, const char *msg)
{
    (void)ctx;
    (void)level;
    fprintf(stderr, "%s\n", msg);
}

static void *host_alloc(void *ctx, uint32_t mem, int32_t device, uint64_t bytes,
                        uint64_t align)
{
    (void)ctx;
    (void)mem;
    (void)device;
    (void)align;
    return memory(bytes);
}

static void host_free(void *ctx, void *p)
{
    (void)ctx;
    free(p);
}

static void host_for(void *ctx, uint32_t n, seam_task *fn, void *arg)
{
    (void)ctx;
    seam_pool_run(g.pool, n, fn, arg);
}

/* The model's configuration from the shape; a plugin's block has only "isa". */
static int host_cfg(void *ctx, const struct seam_cfg *node, const char *path,
                    uint32_t type, void *out)
{
    const struct shape *s = g.s;
    const struct {
        const char *key;
        double v;
    } keys[] = {
        { "hidden_size", s->d },
        { "vocab_size", s->vocab },
        { "linear_attn_config.num_heads", s->kda_heads },
        { "linear_attn_config.head_dim", s->kda_dim },
        { "linear_attn_config.short_conv_kernel_size", 4 },
        { "linear_attn_config.gate_lower_bound", -5 },
        { "rms_norm_eps", 1e-5 },
        { "num_attention_heads", s->heads },
        { "q_lora_rank", s->q_lora },
        { "kv_lora_rank", s->kv_lora },
        { "qk_nope_head_dim", s->nope },
        { "qk_rope_head_dim", 0 },
        { "v_head_dim", s->v },
        { "index_n_heads", s->ih },
        { "index_head_dim", s->id },
        { "index_topk", s->topk },
        { "index_kpool", 4 },
        { "moe_intermediate_size", s->ff },
        { "n_routed_experts", s->experts },
        { "num_experts_per_tok", s->top_k },
        { "n_shared_experts", 1 },
        { "n_group", 1 },
        { "topk_group", 1 },
        { "routed_scaling_factor", 2.5 },
        { "swiglu_limit", 10 },
        { "norm_topk_prob", 1 },
    };

    (void)ctx;
    if (!node) {
        if (strcmp(path, "isa"))
            return SEAM_ENOENT;
        *(struct seam_str *)out = (struct seam_str){ g.isa, strlen(g.isa) };
        return SEAM_OK;
    }
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (strcmp(path, keys[i].key))
            continue;
        if (type == SEAM_CFG_I64)
            *(int64_t *)out = (int64_t)keys[i].v;
        else if (type == SEAM_CFG_F64)
            *(double *)out = keys[i].v;
        else
            *(int32_t *)out = keys[i].v != 0;
        return SEAM_OK;
    }
    return SEAM_ENOENT;
}

static const struct seam_cfg *host_model_cfg(void *ctx,
                                             const struct seam_model *m)
{
    (void)ctx;
    return (const struct seam_cfg *)m;
}

/* The next piece of the weights. */
static void *piece(uint64_t bytes)
{
    void *p;

    if (bytes > g.weight_bytes) {
        fprintf(stderr, "weight of %llu bytes\n", (unsigned long long)bytes);
        exit(1);
    }
    if (g.next + bytes > g.weight_bytes)
        g.next = 0;
    p = g.weights + g.next;
    g.next += (bytes + 63) & ~(uint64_t)63;
    return p;
}

static struct seam_tensor bf16(uint32_t n, uint32_t k)
{
    uint64_t bytes = (uint64_t)n * (k ? k : 1) * 2;

    return (struct seam_tensor){
        .data = piece(bytes),
        .bytes = bytes,
        .shape = { n, k },
        .stride = { 2 * (int64_t)k },
        .dtype = SEAM_BF16,
        .rank = k ? 2 : 1,
        .device = -1,
    };
}

static struct seam_tensor f32(uint32_t n)
{
    float *p = memory(n * 4);

    for (uint32_t i = 0; i < n; i++)
        p[i] = .01f * (float)(i % 7);
    return (struct seam_tensor){
        .data = p,
        .bytes = n * 4,
        .shape = { n },
        .dtype = SEAM_F32,
        .rank = 1,
        .device = -1,
    };
}

/* Symmetric int4 in groups of 128, f16 scales. */
static struct seam_tensor gptq(uint32_t n, uint32_t k)
{
    uint64_t bytes = (uint64_t)n * k / 2;
    uint16_t *scale = piece((uint64_t)k / 128 * n * 2);
    unsigned char *zero = memory((uint64_t)k / 128 * n / 2);

    memset(zero, 0x77, (uint64_t)k / 128 * n / 2);
    return (struct seam_tensor){
        .data = piece(bytes),
        .bytes = bytes,
        .shape = { n, k },
        .stride = { 0 },
        .dtype = SEAM_I4,
        .rank = 2,
        .device = -1,
        .quant = SEAM_Q_GPTQ,
        .scale_dtype = SEAM_BF16,
        .group_rows = 1,
        .group_cols = 128,
        .scale = scale,
        .zero = zero,
    };
}

/* Symmetric int8 in groups of 128, f32 scales. */
static struct seam_tensor int8(uint32_t n, uint32_t k)
{
    uint64_t bytes = (uint64_t)n * k;

    return (struct seam_tensor){
        .data = piece(bytes),
        .bytes = bytes,
        .shape = { n, k },
        .stride = { k },
        .dtype = SEAM_I8,
        .rank = 2,
        .device = -1,
        .quant = SEAM_Q_GROUP,
        .scale_dtype = SEAM_F32,
        .group_rows = 1,
        .group_cols = 128,
        .scale = piece((uint64_t)k / 128 * n * 4),
    };
}

static int host_weight(void *ctx, const struct seam_model *m, const char *name,
                       uint32_t mem, struct seam_tensor *out)
{
    const struct shape *s = g.s;
    uint32_t kw = s->kda_heads * s->kda_dim;
    const struct {
        const char *end;
        uint32_t n, k;
    } w[] = {
        { "q_proj", kw, s->d },
        { "k_proj", kw, s->d },
        { "v_proj", kw, s->d },
        { ".b_proj", s->kda_heads, s->d },
        { "f_a_proj", s->kda_dim, s->d },
        { "g_a_proj", s->kda_dim, s->d },
        { "f_b_proj", kw, s->kda_dim },
        { "g_b_proj", kw, s->kda_dim },
        { "_conv1d.weight", kw, 4 },
        { "o_norm.weight", s->kda_dim, 0 },
        { "0.self_attn.o_proj", s->d, kw },
        { "1.self_attn.o_proj", s->d, s->heads * s->v },
        { "q_a_proj", s->q_lora, s->d },
        { "q_b_proj", s->heads * s->nope, s->q_lora },
        { "kv_a_proj_with_mqa", s->kv_lora, s->d },
        { "kv_b_proj", s->heads * (s->nope + s->v), s->kv_lora },
        { "indexer.wq_b", s->ih * s->id, s->q_lora },
        { "indexer.wk", s->id, s->d },
        { "kpool_compress_gate", s->id, s->d },
        { "weights_proj", s->ih, s->d },
        { "kpool_compress_ape", 4, s->id },
        { "q_a_layernorm.weight", s->q_lora, 0 },
        { "kv_a_layernorm.weight", s->kv_lora, 0 },
        { "k_norm.weight", s->id, 0 },
        { "k_norm.bias", s->id, 0 },
        { "mlp.gate", s->experts, s->d },
        { "shared_experts.gate_proj", s->ff, s->d },
        { "shared_experts.up_proj", s->ff, s->d },
        { "shared_experts.down_proj", s->d, s->ff },
    };
    size_t len = strlen(name);

    (void)ctx;
    (void)m;
    (void)mem;
    if (strstr(name, ".experts.")) {
        bool down = strstr(name, "down_proj") != NULL;

        *out = gptq(down ? s->d : s->ff, down ? s->ff : s->d);
        return SEAM_OK;
    }
    if (strstr(name, "A_log") || strstr(name, "dt_bias") ||
        strstr(name, "correction_bias")) {
        *out = f32(strstr(name, "A_log")     ? s->kda_heads
                   : strstr(name, "dt_bias") ? kw
                                             : s->experts);
        return SEAM_OK;
    }
    for (size_t i = 0; i < sizeof w / sizeof *w; i++) {
        size_t n = strlen(w[i].end);

        if (len >= n && !strcmp(name + len - n, w[i].end)) {
            *out = bf16(w[i].n, w[i].k);
            return SEAM_OK;
        }
    }
    return SEAM_ENOENT;
}

/* ---- Timing -------------------------------------------------------------- */

/* One thread is timed by the processor time it used, so that a busy machine
 * disturbs little; several by the clock. */
static uint64_t now_ns(void)
{
    struct timespec t;

    if (g.threads > 1)
        return seam_now_ns();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Run fn until the time is over; prints a line. */
static void line(const char *what, uint32_t rows, double bytes, double flops,
                 void (*fn)(void *), void *arg)
{
    static double t[MAX_RUNS];
    uint32_t n = 0;
    uint64_t end;

    if (g.only && strncmp(what, g.only, strlen(g.only)))
        return;
    fn(arg);
    fn(arg);
    end = now_ns() + (uint64_t)(g.seconds * 1e9);
    while (n < MAX_RUNS && (n < 3 || now_ns() < end)) {
        uint64_t t0 = now_ns();

        fn(arg);
        t[n++] = (double)(now_ns() - t0) * 1e-9;
    }
    qsort(t, n, sizeof *t, by_value);
    printf("%-34s %5u %10.1f %10.1f %8.2f %5.0f%% %9.2f %5.0f%%\n", what, rows,
           t[0] * 1e6, t[n / 2] * 1e6, bytes / t[0] * 1e-9,
           g.read_gbs > 0 ? bytes / t[0] * 1e-7 / g.read_gbs : 0,
           flops / t[0] * 1e-9,
           g.gflops > 0 ? flops / t[0] * 1e-7 / g.gflops : 0);
    fflush(stdout);
}

/* ---- The machine --------------------------------------------------------- */

static void read_task(void *arg, uint32_t i, uint32_t worker)
{
    const float *p = (const float *)(g.weights + (uint64_t)i * (1 << 20));
    float *sums = arg;

    sums[worker % 64 * 16] += g.k->sum(p, 1 << 18);
}

static void read_all(void *arg)
{
    host_for(NULL, (uint32_t)(g.weight_bytes >> 20), read_task, arg);
}

/* Multiply-adds on data in the first-level cache: one row against 16 outputs
 * repeats nothing, so take the tile of six rows at a small k. */
static void peak_task(void *arg, uint32_t i, uint32_t worker)
{
    const struct kern *k = arg;
    static float w[4][512], x[6][512], y[64][6][4];
    const void *pw[4] = { w[0], w[1], w[2], w[3] };
    const float *px[6] = { x[0], x[1], x[2], x[3], x[4], x[5] };
    float *py[6];

    (void)i;
    for (uint32_t r = 0; r < 6; r++)
        py[r] = y[worker % 64][r];
    for (uint32_t n = 0; n < 400; n++)
        k->dot_rows(SEAM_F32, pw, 4, 512, px, 6, py);
}

static void peak(void *arg)
{
    host_for(NULL, g.threads, peak_task, arg);
}

static double best(void (*fn)(void *), void *arg)
{
    double t = 1e9;

    for (int i = 0; i < 12; i++) {
        uint64_t t0 = now_ns();
        double dt;

        fn(arg);
        dt = (double)(now_ns() - t0) * 1e-9;
        t = dt < t ? dt : t;
    }
    return t;
}

/* ---- Products ------------------------------------------------------------ */

struct product {
    const struct kern *k;
    struct kern_mat w[64]; /* turn by turn                                   */
    uint32_t n_w, at, m;
    float *x, *y;
    void *scratch;
};

static void product(void *arg)
{
    struct product *p = arg;
    const struct kern_mat *w = &p->w[p->at++ % p->n_w];
    struct kern_job j = {
        .w = w, .x = p->x, .ldx = w->k, .y = p->y, .ldy = w->n, .m = p->m
    };

    kern_run(p->k, &g.host, &j, 1, p->scratch);
}

static void products(const struct kern *k, const char *name, uint32_t bits,
                     uint32_t n, uint32_t kk)
{
    static const uint32_t ms[] = { 1, 2, 4, 8, 16, 48, 512 };
    double bytes = (double)n * kk *
                   (bits == 4   ? 0.5 + 2.0 / 128
                    : bits == 8 ? 1 + 4.0 / 128
                                : 2);
    struct product p = { .k = k };
    char why[160], what[64];

    p.n_w = (uint32_t)((double)g.weight_bytes / bytes);
    p.n_w = p.n_w > 64 ? 64 : p.n_w < 1 ? 1 : p.n_w;
    for (uint32_t i = 0; i < p.n_w; i++) {
        struct seam_tensor t = bits == 4   ? gptq(n, kk)
                               : bits == 8 ? int8(n, kk)
                                           : bf16(n, kk);

        kern_mat_init(&p.w[i], &t, why, sizeof why);
    }
    p.x = memory(512ull * kk * 4);
    p.y = memory(512ull * n * 4);
    p.scratch = memory((uint64_t)g.threads * KERN_SCRATCH);
    for (uint64_t i = 0; i < 512ull * kk; i++)
        p.x[i] = (float)(i % 13) - 6;
    for (uint32_t i = 0; i < sizeof ms / sizeof *ms; i++) {
        p.m = ms[i];
        snprintf(what, sizeof what, "%s [%u, %u]", name, n, kk);
        line(what, p.m, bytes, 2.0 * n * kk * p.m, product, &p);
    }
    free(p.x);
    free(p.y);
    free(p.scratch);
}

/* ---- Blocks -------------------------------------------------------------- */

struct block {
    const struct seam_block *table;
    void *self;
    struct seam_exec e;
    struct seam_error err;
    struct seam_step step;
    struct seam_block_args a;
    struct seam_needs needs;
    int32_t q_start[2], kv_len, *pos, *slot, *pages, row, accept;
};

static void forward(void *arg)
{
    struct block *b = arg;

    if (b->table->forward(b->self, &b->e, &b->a)) {
        fprintf(stderr, "%s\n", b->err.text);
        exit(1);
    }
}

enum { PAGE = 64, MAX_ROWS = 512 };

/* One layer of a plugin at steps of several widths. */
static void blocks(const char *name, uint32_t layer,
                   double (*bytes)(uint32_t rows), double flops_of_row)
{
    static const uint32_t ms[] = { 1, 4, 8, 64, 512 };
    uint32_t context = g.context + MAX_ROWS, n_pages = context / PAGE + 2;
    struct seam_limits limits = { .size = sizeof limits,
                                  .act_dtype = SEAM_F32,
                                  .max_seqs = 1,
                                  .max_tokens = MAX_ROWS,
                                  .max_context = n_pages * PAGE,
                                  .tp_size = 1 };
    struct seam_device device = { .size = sizeof device, .ordinal = -1 };
    static char model;
    struct seam_create c = { .size = sizeof c,
                             .n_layers = 1,
                             .layer = &layer,
                             .limits = &limits,
                             .device = &device,
                             .model = (const struct seam_model *)&model };
    struct seam_grant grant = { .size = sizeof grant,
                                .page_tokens = PAGE,
                                .n_pages = n_pages,
                                .n_state_rows = 1 };
    struct block b = { .needs = { .size = sizeof b.needs, .n_layers = 1 } };
    void *plane[SEAM_MAX_PLANES], *state;
    const struct seam_plugin *p;
    uint64_t row = (uint64_t)g.s->d * 4;
    char path[512];
    void *dl;

    if (g.only && strncmp(name, g.only, strlen(g.only)))
        return;
    snprintf(path, sizeof path, "%s/%s.so", SEAM_BENCH_PLUGIN_DIR, name);
    dl = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    p = dl ? dlsym(dl, "seam_plugin_entry") : NULL;
    if (!p || p->init(&g.host, &b.err) || p->create(&c, &b.self, &b.err) ||
        p->needs(b.self, &b.needs, &b.err)) {
        fprintf(stderr, "%s: %s\n", path, dl ? b.err.text : dlerror());
        exit(1);
    }
    for (uint32_t i = 0; i < b.needs.n_planes; i++) {
        grant.page_stride[i] =
            (uint64_t)PAGE * b.needs.plane[i].bytes_per_token;
        plane[i] = memory(n_pages * grant.page_stride[i]);
        for (uint64_t j = 0; j < n_pages * grant.page_stride[i] / 4; j++)
            ((float *)plane[i])[j] = .1f * (float)(j * 2654435761u >> 28);
        grant.plane[i] = &plane[i];
    }
    grant.state_stride = b.needs.state_bytes;
    state = memory(b.needs.state_bytes * (b.needs.state_copies + 1) + 64);
    grant.state = &state;
    if (p->attach(b.self, &grant, &b.err))
        exit(1);
    b.table = p->table;
    b.pos = memory(MAX_ROWS * 4);
    b.slot = memory(MAX_ROWS * 4);
    b.pages = memory(n_pages * 4);
    for (uint32_t i = 0; i < n_pages; i++)
        b.pages[i] = (int32_t)((i * 7) % n_pages);
    b.e = (struct seam_exec){ .size = sizeof b.e,
                              .device = -1,
                              .ws = memory(b.needs.ws_bytes),
                              .ws_bytes = b.needs.ws_bytes,
                              .err = &b.err };
    b.step = (struct seam_step){ .size = sizeof b.step,
                                 .n_seqs = 1,
                                 .max_pages = n_pages,
                                 .q_start = b.q_start,
                                 .kv_len = &b.kv_len,
                                 .pos = b.pos,
                                 .slot = b.slot,
                                 .page_table = b.pages,
                                 .state_row = &b.row,
                                 .n_accept = &b.accept };
    b.a = (struct seam_block_args){ .size = sizeof b.a, .step = &b.step };
    b.a.x = (struct seam_tensor){ .data = memory(MAX_ROWS * row),
                                  .bytes = MAX_ROWS * row,
                                  .shape = { 0, g.s->d },
                                  .stride = { (int64_t)row },
                                  .dtype = SEAM_F32,
                                  .rank = 2,
                                  .device = -1 };
    b.a.y = b.a.x;
    b.a.y.data = memory(MAX_ROWS * row);
    for (uint64_t i = 0; i < MAX_ROWS * row / 4; i++)
        ((float *)b.a.x.data)[i] = (float)(i * 2654435761u % 1000) / 500 - 1;
    for (uint32_t i = 0; i < sizeof ms / sizeof *ms; i++) {
        uint32_t m = ms[i];
        char what[64];

        b.step.n_tokens = m;
        b.step.max_q = m;
        b.q_start[1] = (int32_t)m;
        b.kv_len = (int32_t)(g.context + m);
        for (uint32_t r = 0; r < m; r++) {
            b.pos[r] = (int32_t)(g.context + r);
            b.slot[r] = b.pages[b.pos[r] / PAGE] * PAGE + b.pos[r] % PAGE;
        }
        b.a.x.shape[0] = b.a.y.shape[0] = m;
        snprintf(what, sizeof what, "%s at %u", name, g.context);
        line(what, m, bytes(m), flops_of_row * m, forward, &b);
    }
    p->destroy(b.self);
}

/* ---- What must be read --------------------------------------------------- */

static double seen(void)
{
    return g.context < g.s->topk ? g.context : g.s->topk;
}

static double kda_weights(void)
{
    const struct shape *s = g.s;
    double kw = (double)s->kda_heads * s->kda_dim;

    return 4 * kw * s->d + 2 * kw * s->kda_dim +
           s->d * (2.0 * s->kda_dim + s->kda_heads);
}

/* Weights, and the state in and out. */
static double kda_bytes(uint32_t rows)
{
    (void)rows;
    return 2 * kda_weights() +
           8.0 * g.s->kda_heads * g.s->kda_dim * g.s->kda_dim;
}

static double mla_weights(void)
{
    const struct shape *s = g.s;
    double hn = (double)s->heads * s->nope, hv = (double)s->heads * s->v;

    return (double)s->d * (s->q_lora + s->kv_lora + 2 * s->id + s->ih) +
           s->q_lora * (hn + (double)s->ih * s->id) + (hn + hv) * s->kv_lora +
           hv * s->d;
}

/* Weights, and each selected latent once. */
static double mla_bytes(uint32_t rows)
{
    (void)rows;
    return 2 * mla_weights() + seen() * g.s->kv_lora * 4;
}

/* The router, the shared expert, and each expert that some row chooses if all
 * choose alike. */
static double moe_bytes(uint32_t rows)
{
    const struct shape *s = g.s;
    double one = 3.0 * s->d * s->ff, share = (double)s->top_k / s->experts;
    double hit = s->experts * (1 - pow(1 - share, rows));

    return one * (hit * (0.5 + 2.0 / 128) + 2) + 2.0 * s->experts * s->d;
}

/* ---- Main ---------------------------------------------------------------- */

static const char *option(int argc, char **argv, const char *name,
                          const char *otherwise)
{
    for (int i = 1; i + 1 < argc; i++)
        if (!strcmp(argv[i], name))
            return argv[i + 1];
    return otherwise;
}

static void make_weights(void)
{
    uint32_t r = 12345;

    g.weight_bytes = 768ull << 20;
    g.weights = memory(g.weight_bytes);
    for (uint64_t i = 0; i < g.weight_bytes / 2; i++) {
        r = r * 1664525 + 1013904223;
        /* +-2^-6 .. 2^-5 */
        ((uint16_t *)g.weights)[i] =
            (uint16_t)(0x3c80 | (r >> 31) << 15 | (r >> 16 & 0x7f));
    }
}

int main(int argc, char **argv)
{
    const char *shape = option(argc, argv, "--shape", "real");
    const struct kern *k;
    struct seam_error err;
    static float sums[64 * 16];

    g.isa = option(argc, argv, "--isa", "auto");
    g.only = option(argc, argv, "--only", NULL);
    g.threads =
        (uint32_t)strtoul(option(argc, argv, "--threads", "2"), NULL, 10);
    g.context =
        (uint32_t)strtoul(option(argc, argv, "--context", "2048"), NULL, 10);
    g.seconds = strtod(option(argc, argv, "--seconds", "1"), NULL);
    for (size_t i = 0; i < sizeof SHAPES / sizeof *SHAPES; i++)
        if (!strcmp(SHAPES[i].name, shape))
            g.s = &SHAPES[i];
    k = g.k = kern_pick(g.isa);
    if (!g.s || !k || !g.threads || seam_pool_new(&g.pool, g.threads, &err)) {
        fprintf(stderr, "no such shape or instruction set\n");
        return 1;
    }
    g.host = (struct seam_host){
        .size = sizeof g.host,
        .abi_major = SEAM_ABI_MAJOR,
        .abi_minor = SEAM_ABI_MINOR,
        .n_workers = g.threads,
        .log = host_log,
        .alloc = host_alloc,
        .free = host_free,
        .parallel_for = host_for,
        .cfg = host_cfg,
        .model_cfg = host_model_cfg,
        .weight = host_weight,
    };
    make_weights();
    g.read_gbs = (double)g.weight_bytes / best(read_all, sums) * 1e-9;
    g.gflops = (double)g.threads * 400 * 6 * 4 * 512 * 2 /
               best(peak, (void *)(uintptr_t)k) * 1e-9;
    printf("shape %s, %s, %u threads: reads %.1f GB/s, multiply-add %.0f "
           "GFLOP/s\n",
           g.s->name, k->name, g.threads, g.read_gbs, g.gflops);
    printf("%-34s %5s %10s %10s %8s %6s %9s %6s\n", "", "rows", "least us",
           "median us", "GB/s", "", "GFLOP/s", "");
    {
        const struct shape *s = g.s;
        double state = 3.0 * s->kda_heads * s->kda_dim * s->kda_dim;
        double att = 2.0 * s->heads * s->kv_lora * seen();
        double one = 3.0 * s->d * s->ff;

        products(k, "bf16", 16, s->d, s->d);
        products(k, "int8", 8, s->d, s->d);
        products(k, "int4", 4, s->d, s->d);
        products(k, "int4", 4, s->ff, s->d);
        products(k, "int4", 4, s->d, s->ff);
        blocks("kda", 0, kda_bytes, 2 * (kda_weights() + state));
        blocks("sparse_mla", 1, mla_bytes, 2 * (mla_weights() + att));
        blocks("moe_resident", 2, moe_bytes,
               2 * (one * (s->top_k + 1) + (double)s->experts * s->d));
    }
    seam_pool_free(g.pool);
    return 0;
}
