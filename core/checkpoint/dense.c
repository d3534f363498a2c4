#include "core/checkpoint/dense.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    GROUP_I8 =
        128, /* inputs that share a scale; 64 or 32 where k asks for it */
    GROUP_I4 = 128,
    ROWS = 16, /* outputs of a task: a cache line of int4 words             */
    RATIOS = 8 /* scales tried for a group of int4                           */
};

/* ---- Which --------------------------------------------------------------- */

static bool dense_ends(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);

    return n >= m && !strcmp(name + n - m, end);
}

enum seam_dense_form seam_dense_form_of(const char *name, int64_t n_out,
                                        int64_t n_in, enum seam_dense_form most)
{
    static const char *const any[] = {
        ".self_attn.q_proj",
        ".self_attn.k_proj",
        ".self_attn.v_proj",
        ".self_attn.o_proj",
        ".self_attn.q_a_proj",
        ".self_attn.q_b_proj",
        ".self_attn.kv_a_proj_with_mqa",
        ".mlp.gate_proj",
        ".mlp.up_proj",
        ".mlp.down_proj",
        ".mlp.shared_experts.gate_proj",
        ".mlp.shared_experts.up_proj",
        ".mlp.shared_experts.down_proj",
    };
    /* kv_b_proj is used along and across; the others feed gates, a choice or
     * all tokens' probabilities. */
    static const char *const bytes[] = {
        ".self_attn.kv_b_proj",
        ".self_attn.f_a_proj",
        ".self_attn.f_b_proj",
        ".self_attn.g_a_proj",
        ".self_attn.g_b_proj",
        ".self_attn.indexer.wq_b",
        "lm_head",
    };
    enum seam_dense_form form = SEAM_DENSE_STORED;

    for (size_t i = 0; i < sizeof any / sizeof *any; i++)
        if (dense_ends(name, any[i]))
            form = most;
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++)
        if (dense_ends(name, bytes[i]))
            form = most ? SEAM_DENSE_I8 : SEAM_DENSE_STORED;
    if (form == SEAM_DENSE_I4 && (n_in % GROUP_I4 || n_out % 8))
        form = SEAM_DENSE_I8;
    if (form == SEAM_DENSE_I8 && (n_in % 32 || n_out < 1))
        form = SEAM_DENSE_STORED;
    return form;
}

/* ---- How ----------------------------------------------------------------- */

struct dense_work {
    const struct seam_tensor *from;
    const struct seam_dense *to;
    uint64_t n, k;
    uint32_t group;
};

static float dense_f16(uint16_t h)
{
    uint32_t e = h >> 10 & 31, m = h & 1023;
    float f = e == 31 ? (m ? NAN : INFINITY)
              : e     ? ldexpf((float)(m | 1024), (int)e - 25)
                      : ldexpf((float)m, -24);

    return h & 0x8000 ? -f : f;
}

/* The nearest half; |f| below 65504. */
static uint16_t dense_to_f16(float f)
{
    uint16_t sign = signbit(f) ? 0x8000 : 0;
    float a = fabsf(f);
    int e;
    long m;

    if (a == 0)
        return sign;
    frexpf(a, &e);
    e = e - 1 < -14 ? -14 : e - 1;
    m = lrintf(ldexpf(a, 10 - e)); /* 1024 .. 2048, less when subnormal    */
    return (uint16_t)(sign | (uint16_t)(((e + 14) << 10) + m));
}

static void dense_widen(const struct seam_tensor *t, uint64_t row, uint64_t col,
                        uint32_t n, float *x)
{
    const char *p = (const char *)t->data + (int64_t)row * t->stride[0];

    for (uint32_t i = 0; i < n; i++) {
        uint16_t h;
        uint32_t u;

        switch (t->dtype) {
        case SEAM_BF16:
            memcpy(&h, p + 2 * (col + i), sizeof h);
            u = (uint32_t)h << 16;
            memcpy(&x[i], &u, sizeof u);
            break;
        case SEAM_F16:
            memcpy(&h, p + 2 * (col + i), sizeof h);
            x[i] = dense_f16(h);
            break;
        default:
            memcpy(&x[i], p + 4 * (col + i), sizeof *x);
        }
    }
}

/* Nearest integer; |x| below 2^22. */
static inline float dense_round(float x)
{
    const float magic = 12582912.0f; /* 1.5 * 2^23 */

    return x + magic - magic;
}

/* One scale per group, the largest value to 127. */
static void dense_row_i8(const struct dense_work *w, uint64_t o)
{
    const struct seam_tensor *t = &w->to->t;
    int8_t *q = (int8_t *)t->data + o * w->k;
    float *scale = (float *)t->scale + o * (w->k / w->group), x[GROUP_I8];

    for (uint64_t k = 0; k < w->k; k += w->group) {
        float top = 0, inv;

        dense_widen(w->from, o, k, w->group, x);
        for (uint32_t i = 0; i < w->group; i++)
            top = fabsf(x[i]) > top ? fabsf(x[i]) : top;
        scale[k / w->group] = top / 127;
        inv = top > 0 ? 127 / top : 0;
        for (uint32_t i = 0; i < w->group; i++)
            q[k + i] = (int8_t)lrintf(x[i] * inv);
    }
}

/* Squared error of x as q * s with q in [-8, 7]. */
static inline __attribute__((always_inline)) float dense_error(const float *x,
                                                               float s)
{
    float inv = 1 / s, e[8] = { 0 };

    for (uint32_t i = 0; i < GROUP_I4; i += 8)
        for (uint32_t j = 0; j < 8; j++) {
            float v = x[i + j] * inv, d;

            v = v < -8 ? -8 : v;
            v = v > 7 ? 7 : v;
            d = x[i + j] - dense_round(v) * s;
            e[j] += d * d;
        }
    return (e[0] + e[1]) + (e[2] + e[3]) + ((e[4] + e[5]) + (e[6] + e[7]));
}

/* The scale, an F16, that loses least: the value of the largest magnitude goes
 * to -8, whatever its sign, or beyond; or to 7. */
static inline __attribute__((always_inline)) uint16_t dense_search(
    const float *x)
{
    static const float ratio[RATIOS] = { -1,    -.93f, -.87f, -.81f,
                                         -.75f, -.68f, 1.14f, 1 };
    float top = 0, least = INFINITY;
    uint16_t best = 0;

    for (uint32_t i = 0; i < GROUP_I4; i++)
        top = fabsf(x[i]) > fabsf(top) ? x[i] : top;
    for (uint32_t r = 0; r < RATIOS; r++) {
        uint16_t h = dense_to_f16(top / 8 * ratio[r]);
        float s = dense_f16(h), e;

        if (s == 0)
            continue;
        e = dense_error(x, s);
        if (e < least) {
            least = e;
            best = h;
        }
    }
    return best;
}

/* The same arithmetic twice, so the same scales on every machine. */
static uint16_t dense_scale_any(const float *x)
{
    return dense_search(x);
}
#if defined(__x86_64__)
static __attribute__((target("avx2"))) uint16_t dense_scale_avx2(const float *x)
{
    return dense_search(x);
}
#endif

static uint16_t dense_scale_i4(const float *x)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2"))
        return dense_scale_avx2(x);
#endif
    return dense_scale_any(x);
}

static void dense_rows_i4(const struct dense_work *w, uint64_t o, uint32_t n)
{
    const struct seam_tensor *t = &w->to->t;
    uint16_t *scale = (uint16_t *)t->scale;
    uint32_t *words = t->data;
    float x[GROUP_I4];
    uint32_t q[GROUP_I4 / 8][ROWS];

    for (uint64_t g = 0; g < w->k / GROUP_I4; g++) {
        memset(q, 0, sizeof q);
        for (uint32_t r = 0; r < n; r++) {
            uint16_t h;
            float s, inv;

            dense_widen(w->from, o + r, g * GROUP_I4, GROUP_I4, x);
            h = dense_scale_i4(x);
            s = dense_f16(h);
            inv = s != 0 ? 1 / s : 0;
            scale[g * w->n + o + r] = h;
            for (uint32_t i = 0; i < GROUP_I4; i++) {
                float v = x[i] * inv;
                uint32_t c;

                v = v < -8 ? -8 : v > 7 ? 7 : v;
                c = (uint32_t)((int32_t)dense_round(v) + 8);
                q[i / 8][r] |= c << 4 * (i % 8);
            }
        }
        for (uint32_t i = 0; i < GROUP_I4 / 8; i++)
            memcpy(words + (g * (GROUP_I4 / 8) + i) * w->n + o, q[i],
                   n * sizeof **q);
    }
}

static void dense_task(void *arg, uint32_t i, uint32_t worker)
{
    const struct dense_work *w = arg;
    uint64_t o = (uint64_t)i * ROWS;
    uint32_t n = w->n - o < ROWS ? (uint32_t)(w->n - o) : ROWS;

    (void)worker;
    if (w->to->t.dtype == SEAM_I4)
        dense_rows_i4(w, o, n);
    else
        for (uint32_t r = 0; r < n; r++)
            dense_row_i8(w, o + r);
}

/* Large pieces in large pages: a decode step walks through all of them. */
static void *dense_memory(uint64_t bytes)
{
    uint64_t align = bytes >= 2 << 20 ? 2 << 20 : 64;
    void *p;

    bytes = (bytes + align - 1) & ~(align - 1);
    p = aligned_alloc(align, bytes);
    if (p && align > 64)
        madvise(p, bytes, MADV_HUGEPAGE);
    return p;
}

int seam_dense_make(struct seam_dense *d, const struct seam_tensor *t,
                    enum seam_dense_form form, seam_parallel *parallel,
                    void *ctx, struct seam_error *err)
{
    struct dense_work w = { .from = t,
                            .to = d,
                            .n = (uint64_t)t->shape[0],
                            .k = (uint64_t)t->shape[1] };
    bool i4 = form == SEAM_DENSE_I4;
    uint64_t data, scale, zero, tasks = (w.n + ROWS - 1) / ROWS;

    w.group = i4                    ? GROUP_I4
              : w.k % GROUP_I8 == 0 ? GROUP_I8
              : w.k % 64 == 0       ? 64
                                    : 32;
    data = i4 ? w.n * w.k / 2 : w.n * w.k;
    data = (data + 63) & ~(uint64_t)63;
    scale = w.k / w.group * w.n * (i4 ? sizeof(uint16_t) : sizeof(float));
    scale = (scale + 63) & ~(uint64_t)63;
    zero = i4 ? w.k / w.group * (w.n / 8) * sizeof(uint32_t) : 0;
    d->bytes = data + scale + zero;
    d->p = dense_memory(d->bytes);
    if (!d->p)
        return seam_fail(err, SEAM_ENOMEM,
                         "out of memory for %llu bytes of quantised weights",
                         (unsigned long long)d->bytes);
    memset(d->p + data + scale, 0x77, zero); /* 8, stored less one            */
    d->t = (struct seam_tensor){
        .data = d->p,
        .bytes = i4 ? w.n * w.k / 2 : w.n * w.k,
        .shape = { t->shape[0], t->shape[1] },
        .stride = { i4 ? 0 : t->shape[1] },
        .dtype = i4 ? SEAM_I4 : SEAM_I8,
        .rank = 2,
        .device = -1,
        .quant = i4 ? SEAM_Q_GPTQ : SEAM_Q_GROUP,
        .scale_dtype = i4 ? SEAM_F16 : SEAM_F32,
        .group_rows = 1,
        .group_cols = w.group,
        .scale = d->p + data,
        .zero = i4 ? d->p + data + scale : NULL,
    };
    parallel(ctx, (uint32_t)tasks, dense_task, &w);
    return 0;
}
