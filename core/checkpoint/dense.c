#include "core/checkpoint/dense.h"
#include "core/checkpoint/dense_group.h"
#include "core/checkpoint/impl.h"
#include "core/checkpoint/inventory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ROWS = 16 /* outputs of a task: a cache line of int4 words         */ };

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
    if (form == SEAM_DENSE_I4 && (n_in % SEAM_GROUP_I4 || n_out % 8))
        form = SEAM_DENSE_I8;
    if (form == SEAM_DENSE_I8 && (n_in % 32 || n_out < 1))
        form = SEAM_DENSE_STORED;
    return form;
}

bool seam_dense_form_read(const char *name, enum seam_dense_form *form)
{
    static const char *const all[] = { "bf16", "int8", "int4" };

    for (uint32_t i = 0; i < 3; i++)
        if (!strcmp(name, all[i])) {
            *form = (enum seam_dense_form)i;
            return true;
        }
    return false;
}

/* ---- How much ------------------------------------------------------------ */

/* The parts of a quantised matrix, each a multiple of 64 bytes but the last. */
struct dense_size {
    uint32_t group;
    uint64_t data, scale, zero;
};

static struct dense_size dense_size(uint64_t n, uint64_t k, bool i4)
{
    struct dense_size s;

    s.group = i4                        ? SEAM_GROUP_I4
              : k % SEAM_GROUP_MAX == 0 ? SEAM_GROUP_MAX
              : k % 64 == 0             ? 64
                                        : 32;
    s.data = i4 ? n * k / 2 : n * k;
    s.data = (s.data + 63) & ~(uint64_t)63;
    s.scale = k / s.group * n * (i4 ? sizeof(uint16_t) : sizeof(float));
    s.scale = (s.scale + 63) & ~(uint64_t)63;
    s.zero = i4 ? k / s.group * (n / 8) * sizeof(uint32_t) : 0;
    return s;
}

struct dense_sum {
    const struct seam_model_config *m;
    enum seam_dense_form most;
    struct seam_checkpoint_dense *out;
};

static void dense_count(void *ctx, const struct seam_st_tensor *t)
{
    struct dense_sum *y = ctx;
    enum seam_part part = seam_part_of(y->m, t->name);
    size_t n = strlen(t->name), end = sizeof ".weight" - 1;
    char name[256];
    enum seam_dense_form form;
    struct dense_size s;

    if (part == SEAM_PART_MTP || part == SEAM_PART_VISION ||
        part == SEAM_PART_OTHER || t->rank != 2 || !seam_is_float(t->dtype) ||
        n >= sizeof name || !dense_ends(t->name, ".weight"))
        return;
    memcpy(name, t->name, n - end);
    name[n - end] = '\0';
    form = seam_dense_form_of(name, t->shape[0], t->shape[1], y->most);
    if (!form)
        return;
    s = dense_size((uint64_t)t->shape[0], (uint64_t)t->shape[1],
                   form == SEAM_DENSE_I4);
    y->out->n_i8 += form == SEAM_DENSE_I8;
    y->out->n_i4 += form == SEAM_DENSE_I4;
    y->out->stored_bytes += t->bytes;
    y->out->bytes += s.data + s.scale + s.zero;
}

void seam_dense_plan(const struct seam_checkpoint *c, enum seam_dense_form most,
                     struct seam_checkpoint_dense *out)
{
    struct dense_sum y = { seam_checkpoint_config(c), most, out };

    *out = (struct seam_checkpoint_dense){ 0 };
    seam_checkpoint_each(c, dense_count, &y);
}

/* ---- How ----------------------------------------------------------------- */

struct dense_work {
    const struct seam_tensor *from;
    const struct seam_dense *to;
    const struct seam_dense_group *how;
    uint64_t n, k;
    uint32_t group;
};

static const char *dense_at(const struct dense_work *w, uint64_t row,
                            uint64_t col)
{
    const struct seam_tensor *t = w->from;
    uint64_t bytes = t->dtype == SEAM_F32 ? 4 : 2;

    return (const char *)t->data + (int64_t)row * t->stride[0] + col * bytes;
}

static void dense_row_i8(const struct dense_work *w, uint64_t o)
{
    const struct seam_tensor *t = &w->to->t;
    int8_t *q = (int8_t *)t->data + o * w->k;
    float *scale = (float *)t->scale + o * (w->k / w->group);
    float x[SEAM_GROUP_MAX];

    for (uint64_t k = 0; k < w->k; k += w->group) {
        w->how->widen(dense_at(w, o, k), w->from->dtype, w->group, x);
        scale[k / w->group] = w->how->bytes(x, w->group, q + k);
    }
}

/* The outputs [o, o + n), whose words lie side by side. */
static void dense_rows_i4(const struct dense_work *w, uint64_t o, uint32_t n)
{
    const struct seam_tensor *t = &w->to->t;
    uint16_t *scale = (uint16_t *)t->scale;
    uint32_t *words = t->data;
    float x[SEAM_GROUP_I4];
    uint32_t q[SEAM_GROUP_I4 / 8], out[SEAM_GROUP_I4 / 8][ROWS];

    for (uint64_t g = 0; g < w->k / SEAM_GROUP_I4; g++) {
        for (uint32_t r = 0; r < n; r++) {
            w->how->widen(dense_at(w, o + r, g * SEAM_GROUP_I4), w->from->dtype,
                          SEAM_GROUP_I4, x);
            scale[g * w->n + o + r] = w->how->nibbles(x, q);
            for (uint32_t i = 0; i < SEAM_GROUP_I4 / 8; i++)
                out[i][r] = q[i];
        }
        for (uint32_t i = 0; i < SEAM_GROUP_I4 / 8; i++)
            memcpy(words + (g * (SEAM_GROUP_I4 / 8) + i) * w->n + o, out[i],
                   n * sizeof **out);
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

enum { LARGE = 2 << 20, PAGE = 4096 };

struct dense_pages {
    char *p;
    uint64_t bytes;
};

static void dense_touch(void *arg, uint32_t i, uint32_t worker)
{
    const struct dense_pages *m = arg;
    uint64_t from = (uint64_t)i * LARGE;

    (void)worker;
    for (uint64_t at = from; at < m->bytes && at < from + LARGE; at += PAGE)
        *(volatile char *)(m->p + at) = 0;
}

/* Large pieces in large pages: a decode step walks through all of them.
 *
 * A page holds rows of many threads (in the layout of int4 all of them), so that
 * none of them is the one that should touch it first; but left to quantising, the
 * thread of a matrix's first task would touch all its int4 pages and draw them
 * to its node.  Touched in turns, they are spread over the nodes of all
 * threads. */
static void *dense_memory(uint64_t bytes, seam_parallel *parallel, void *ctx)
{
    uint64_t align = bytes >= LARGE ? LARGE : 64;
    void *p;

    bytes = (bytes + align - 1) & ~(align - 1);
    p = aligned_alloc(align, bytes);
    if (p && align > 64) {
        struct dense_pages m = { p, bytes };

        madvise(p, bytes, MADV_HUGEPAGE);
        parallel(ctx, (uint32_t)(bytes / LARGE), dense_touch, &m);
    }
    return p;
}

int seam_dense_make(struct seam_dense *d, const struct seam_tensor *t,
                    enum seam_dense_form form, seam_parallel *parallel,
                    void *ctx, struct seam_error *err)
{
    struct dense_work w = { .from = t,
                            .to = d,
                            .how = seam_dense_group_pick(),
                            .n = (uint64_t)t->shape[0],
                            .k = (uint64_t)t->shape[1] };
    bool i4 = form == SEAM_DENSE_I4;
    struct dense_size s = dense_size(w.n, w.k, i4);
    uint64_t tasks = (w.n + ROWS - 1) / ROWS;

    w.group = s.group;
    d->bytes = s.data + s.scale + s.zero;
    d->p = dense_memory(d->bytes, parallel, ctx);
    if (!d->p)
        return seam_fail(err, SEAM_ENOMEM,
                         "out of memory for %llu bytes of quantised weights",
                         (unsigned long long)d->bytes);
    memset(d->p + s.data + s.scale, 0x77,
           s.zero); /* 8, stored less one            */
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
        .scale = d->p + s.data,
        .zero = i4 ? d->p + s.data + s.scale : NULL,
    };
    parallel(ctx, (uint32_t)tasks, dense_task, &w);
    return 0;
}
