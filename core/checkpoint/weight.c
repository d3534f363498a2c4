/* Weights as plugins ask for them: by role, module or full name, in the forms
 * of quantisation that plugin.h describes. */
#include "core/checkpoint/impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/num.h"
#include "core/checkpoint/dense.h"
#include "core/checkpoint/inventory.h"
#include "core/checkpoint/jscan.h"

#define NAME_BYTES 512
#define FP8_BLOCK  128

/* Symmetric 4-bit layers have zero point 8 everywhere: eight of them in a word,
 * stored less one (v1) or as they are (v2). */
#define ZERO_V1 0x77777777u
#define ZERO_V2 0x88888888u

bool seam_is_float(uint16_t dtype)
{
    return dtype == SEAM_F32 || dtype == SEAM_F16 || dtype == SEAM_BF16;
}

int seam_entry_fail(const struct seam_checkpoint *c, int64_t i,
                    struct seam_error *err, const char *fmt, ...)
{
    const char *name = c->entry[i].t->name;
    char text[160];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return seam_fail(err, SEAM_EDATA, "%s: tensor \"%.*s\": %s",
                     c->shard[c->entry[i].shard].name, seam_jscan_shown(name),
                     name, text);
}

/* The entry of "NAME" followed by `suffix`. */
static int64_t weight_entry(const struct seam_checkpoint *c, const char *name,
                            const char *suffix)
{
    char whole[NAME_BYTES];
    int n = snprintf(whole, sizeof whole, "%s%s", name, suffix);

    return n < (int)sizeof whole ? seam_entry_find(c, whole) : -1;
}

/* ---- Checks ------------------------------------------------------------- */

/* Refuse entry i unless it is a matrix of that shape. */
static int weight_check_matrix(const struct seam_checkpoint *c, int64_t i,
                               int64_t rows, int64_t cols,
                               struct seam_error *err)
{
    const struct seam_st_tensor *t = c->entry[i].t;

    if (t->rank != 2)
        return seam_entry_fail(c, i, err,
                               "rank %u, expected shape [%lld, "
                               "%lld]",
                               t->rank, (long long)rows, (long long)cols);
    if (t->shape[0] != rows || t->shape[1] != cols)
        return seam_entry_fail(c, i, err,
                               "shape [%lld, %lld], expected "
                               "[%lld, %lld]",
                               (long long)t->shape[0], (long long)t->shape[1],
                               (long long)rows, (long long)cols);
    return 0;
}

int seam_gptq_find(const struct seam_checkpoint *c, const char *name,
                   int64_t qweight, struct seam_gptq *g, struct seam_error *err)
{
    const struct seam_st_tensor *w = c->entry[qweight].t;
    struct seam_gptq out = { .qweight = qweight };
    uint32_t group = c->config.quant_group;
    int rc;

    if (!c->config.has_quant || c->config.quant_bits != 4)
        return seam_entry_fail(c, qweight, err,
                               "found, but config.json: "
                               "quantization_config describes no 4-bit "
                               "weights");
    if (w->dtype != SEAM_I32)
        return seam_entry_fail(c, qweight, err, "dtype %s, expected I32",
                               seam_dtype_name(w->dtype));
    if (w->rank != 2 || w->shape[0] < 1 || w->shape[1] < 8 || w->shape[1] % 8 ||
        w->shape[0] > INT64_MAX / 8 || w->shape[0] * 8 % group)
        return seam_entry_fail(c, qweight, err,
                               "expected [inputs/8, outputs] "
                               "with whole groups of %u inputs and outputs "
                               "in eights",
                               group);
    out.n_in = w->shape[0] * 8;
    out.n_out = w->shape[1];
    out.qzeros = weight_entry(c, name, ".qzeros");
    out.scales = weight_entry(c, name, ".scales");
    out.g_idx = weight_entry(c, name, ".g_idx");
    if (out.qzeros < 0 || out.scales < 0)
        return seam_entry_fail(c, qweight, err, "found without its %s",
                               out.qzeros < 0 ? ".qzeros" : ".scales");
    if (c->entry[out.qzeros].t->dtype != SEAM_I32)
        return seam_entry_fail(c, out.qzeros, err, "dtype %s, expected I32",
                               seam_dtype_name(c->entry[out.qzeros].t->dtype));
    if (!seam_is_float(c->entry[out.scales].t->dtype))
        return seam_entry_fail(c, out.scales, err,
                               "dtype %s, expected F16, "
                               "BF16 or F32",
                               seam_dtype_name(c->entry[out.scales].t->dtype));
    rc = weight_check_matrix(c, out.qzeros, out.n_in / group, out.n_out / 8,
                             err);
    if (!rc)
        rc = weight_check_matrix(c, out.scales, out.n_in / group, out.n_out,
                                 err);
    if (rc)
        return rc;
    *g = out;
    return 0;
}

int64_t seam_fp8_scale(const struct seam_checkpoint *c, int64_t weight,
                       struct seam_error *err)
{
    const struct seam_st_tensor *t = c->entry[weight].t;
    int64_t s = weight_entry(c, t->name, "_scale_inv");

    if (s < 0) {
        seam_entry_fail(c, weight, err, "F8_E4M3 without its _scale_inv");
        return -1;
    }
    if (t->rank != 2) {
        seam_entry_fail(c, weight, err, "F8_E4M3 of rank %u, expected 2",
                        t->rank);
        return -1;
    }
    if (c->entry[s].t->dtype != SEAM_F32 && c->entry[s].t->dtype != SEAM_BF16) {
        seam_entry_fail(c, s, err, "dtype %s, expected F32 or BF16",
                        seam_dtype_name(c->entry[s].t->dtype));
        return -1;
    }
    if (weight_check_matrix(c, s, (t->shape[0] + FP8_BLOCK - 1) / FP8_BLOCK,
                            (t->shape[1] + FP8_BLOCK - 1) / FP8_BLOCK, err))
        return -1;
    return s;
}

/* ---- Data --------------------------------------------------------------- */

/* The bytes of entry i, aligned to its element: in the mapping, or in a copy
 * where the file is not aligned. */
static int weight_data(struct seam_checkpoint *c, int64_t i, const void **data,
                       struct seam_error *err)
{
    const struct seam_st_tensor *t = c->entry[i].t;
    const unsigned char *p = c->shard[c->entry[i].shard].map.p + t->offset;
    uint32_t element = seam_dtype_bits(t->dtype) / 8;

    if ((uintptr_t)p % element == 0) {
        *data = p;
        return 0;
    }
    if (!c->copy)
        c->copy = calloc(c->n, sizeof *c->copy);
    if (c->copy && !c->copy[i]) {
        c->copy[i] = malloc(t->bytes ? (size_t)t->bytes : 1);
        if (c->copy[i])
            memcpy(c->copy[i], p, (size_t)t->bytes);
    }
    if (!c->copy || !c->copy[i])
        return seam_fail(err, SEAM_ENOMEM,
                         "%s: out of memory for an aligned "
                         "copy of tensor \"%.*s\" (%llu bytes)",
                         c->shard[c->entry[i].shard].name,
                         seam_jscan_shown(t->name), t->name,
                         (unsigned long long)t->bytes);
    *data = c->copy[i];
    return 0;
}

/* At least `bytes` of v1 zero points; one array serves all layers it is large
 * enough for. */
static const void *weight_v1_zeros(struct seam_checkpoint *c, uint64_t bytes)
{
    struct seam_keep *k;

    for (k = c->zeros; k; k = k->next)
        if (k->bytes >= bytes)
            return k->p;
    k = calloc(1, sizeof *k);
    if (!k)
        return NULL;
    k->p = malloc((size_t)bytes);
    if (!k->p) {
        free(k);
        return NULL;
    }
    memset(k->p, ZERO_V1 & 0xff, (size_t)bytes);
    k->bytes = bytes;
    k->next = c->zeros;
    c->zeros = k;
    return k->p;
}

/* Which convention are the zero points stored in?  What they are decides; a
 * label that says otherwise gets one warning per checkpoint.  *zero is an array
 * in the convention of SEAM_Q_GPTQ.  Checked here and not at open, because all
 * of them together are a gigabyte of the real model. */
static int weight_zeros(struct seam_checkpoint *c, int64_t i, const void **zero,
                        struct seam_error *err)
{
    const struct seam_st_tensor *t = c->entry[i].t;
    uint64_t n = t->bytes / sizeof(uint32_t);
    const uint32_t *z;
    int rc = weight_data(c, i, zero, err);

    if (rc)
        return rc;
    z = *zero;
    if (z[0] != ZERO_V1 && z[0] != ZERO_V2)
        return seam_entry_fail(c, i, err,
                               "zero points 0x%08x, expected "
                               "0x%08x or 0x%08x (symmetric 4 bit)",
                               z[0], ZERO_V1, ZERO_V2);
    for (uint64_t k = 1; k < n; k++)
        if (z[k] != z[0])
            return seam_entry_fail(c, i, err,
                                   "zero points 0x%08x and 0x%08x "
                                   "are mixed, expected one of them",
                                   z[0], z[k]);
    if ((z[0] == ZERO_V2) != c->config.zero_is_v2 && !c->warned_zero) {
        c->warned_zero = true;
        seam_log(c->log, SEAM_LOG_WARN, "checkpoint",
                 "tensor \"%s\": holds "
                 "zero points 0x%08x although it is labelled %s; used as what "
                 "they are (not repeated for other tensors)",
                 t->name, z[0], c->config.packing);
    }
    if (z[0] == ZERO_V1)
        return 0;
    *zero = weight_v1_zeros(c, t->bytes);
    return *zero ? 0 : seam_fail(err, SEAM_ENOMEM, "out of memory");
}

/* ---- The answers -------------------------------------------------------- */

static int weight_gptq(struct seam_checkpoint *c, const char *name, int64_t i,
                       struct seam_tensor *out, struct seam_error *err)
{
    struct seam_tensor t = { .rank = 2, .device = -1, .dtype = SEAM_I4 };
    const void *data, *scale, *zero, *order;
    struct seam_gptq g;
    int rc = seam_gptq_find(c, name, i, &g, err);

    if (!rc)
        rc = weight_data(c, g.qweight, &data, err);
    if (!rc)
        rc = weight_data(c, g.scales, &scale, err);
    if (!rc)
        rc = weight_zeros(c, g.qzeros, &zero, err);
    if (!rc && g.g_idx >= 0)
        rc = weight_data(c, g.g_idx, &order, err);
    if (rc)
        return rc;
    if (g.g_idx >= 0) {
        const struct seam_st_tensor *x = c->entry[g.g_idx].t;

        if (x->dtype != SEAM_I32 || x->rank != 1 || x->shape[0] != g.n_in)
            return seam_entry_fail(c, g.g_idx, err, "expected I32 [%lld]",
                                   (long long)g.n_in);
        for (int64_t k = 0; k < g.n_in; k++)
            if (((const int32_t *)order)[k] != k / c->config.quant_group)
                return seam_entry_fail(c, g.g_idx, err,
                                       "reorders inputs, "
                                       "expected groups in order");
    }
    t.data = (void *)data;
    t.bytes = c->entry[g.qweight].t->bytes;
    t.shape[0] = g.n_out;
    t.shape[1] = g.n_in;
    t.quant = SEAM_Q_GPTQ;
    t.scale_dtype = c->entry[g.scales].t->dtype;
    t.group_rows = 1;
    t.group_cols = c->config.quant_group;
    t.scale = scale;
    t.zero = zero;
    *out = t;
    return 0;
}

/* A stored tensor as it is; F8_E4M3 with its block scales. */
static int weight_stored(struct seam_checkpoint *c, int64_t i,
                         struct seam_tensor *out, struct seam_error *err)
{
    const struct seam_st_tensor *s = c->entry[i].t;
    uint32_t element = seam_dtype_bits(s->dtype) / 8;
    uint32_t fold = s->rank > SEAM_MAX_RANK ? s->rank - SEAM_MAX_RANK : 0;
    struct seam_tensor t = { .device = -1, .dtype = s->dtype };
    const void *data;
    int64_t scale;
    int rc = weight_data(c, i, &data, err);

    if (rc)
        return rc;
    t.data = (void *)data;
    t.bytes = s->bytes;
    t.rank = s->rank ? (uint16_t)(s->rank - fold) : 1;
    t.shape[0] = 1;
    for (uint32_t k = 0; k < s->rank; k++)
        if (k <= fold)
            t.shape[0] *= s->shape[k];
        else
            t.shape[k - fold] = s->shape[k];
    for (uint32_t k = t.rank - 1u; k > 0; k--)
        t.stride[k - 1] =
            t.shape[k] * (k == t.rank - 1u ? element : t.stride[k]);
    if (s->dtype == SEAM_F8E4M3) {
        scale = seam_fp8_scale(c, i, err);
        if (scale < 0)
            return SEAM_EDATA;
        rc = weight_data(c, scale, &t.scale, err);
        if (rc)
            return rc;
        t.quant = SEAM_Q_GROUP;
        t.scale_dtype = c->entry[scale].t->dtype;
        t.group_rows = t.group_cols = FP8_BLOCK;
    }
    *out = t;
    return 0;
}

/* Roles to names: "@layer.3.mlp.gate" is "model.language_model.layers.3...". */
static int weight_name(const struct seam_checkpoint *c, const char *name,
                       char *to, size_t cap, struct seam_error *err)
{
    static const char layer[] = "@layer.";
    const char *rest = NULL;
    uint64_t l;
    int n;

    if (*name != '@') {
        n = snprintf(to, cap, "%s", name);
    } else if (!strcmp(name, "@embed")) {
        n = snprintf(to, cap, SEAM_PREFIX "embed_tokens");
    } else if (!strcmp(name, "@head")) {
        n = snprintf(to, cap, "lm_head");
    } else if (!strcmp(name, "@norm")) {
        n = snprintf(to, cap, SEAM_PREFIX "norm");
    } else if (!strncmp(name, layer, sizeof layer - 1) &&
               (rest = strchr(name + sizeof layer - 1, '.')) &&
               seam_parse_u64(name + sizeof layer - 1,
                              (size_t)(rest - name) - (sizeof layer - 1), &l) &&
               l < c->config.n_layers + c->config.n_mtp) {
        n = snprintf(to, cap, SEAM_PREFIX "layers.%u%s", (uint32_t)l, rest);
    } else {
        return seam_fail(err, SEAM_ENOENT,
                         "weight \"%.*s\": expected @embed, "
                         "@head, @norm or @layer.L.NAME with L below %u",
                         seam_jscan_shown(name), name,
                         c->config.n_layers + c->config.n_mtp);
    }
    if (n >= (int)cap)
        return seam_fail(err, SEAM_ENOENT,
                         "weight \"%.*s...\": name of more "
                         "than %zu bytes",
                         seam_jscan_shown(name), name, cap);
    return 0;
}

/* ---- Quantised on request ------------------------------------------------ */

void seam_checkpoint_quantise(struct seam_checkpoint *c, const char *form,
                              seam_parallel *parallel, void *ctx)
{
    enum seam_dense_form f = SEAM_DENSE_STORED;

    seam_dense_form_read(form, &f);
    c->dense_form = f;
    c->parallel = parallel;
    c->parallel_ctx = ctx;
}

void seam_checkpoint_dense(const struct seam_checkpoint *c,
                           struct seam_checkpoint_dense *out)
{
    *out = c->made;
}

/* The linear layer `name` of entry i, which *t describes as it is stored. */
static int weight_dense(struct seam_checkpoint *c, const char *name, int64_t i,
                        struct seam_tensor *t, struct seam_error *err)
{
    enum seam_dense_form form = SEAM_DENSE_STORED;
    struct seam_dense *d;
    uint64_t start;
    int rc = 0;

    if (c->dense_form && t->rank == 2 && t->quant == SEAM_Q_NONE &&
        seam_is_float(t->dtype))
        form = seam_dense_form_of(name, t->shape[0], t->shape[1],
                                  (enum seam_dense_form)c->dense_form);
    if (!form)
        return 0;
    if (!c->dense)
        c->dense = calloc(c->n, sizeof *c->dense);
    if (!c->dense)
        return seam_fail(err, SEAM_ENOMEM, "out of memory");
    d = &c->dense[i];
    if (!d->p) {
        start = seam_now_ns();
        rc = seam_dense_make(d, t, form, c->parallel, c->parallel_ctx, err);
        c->made.ns += seam_now_ns() - start;
        if (rc)
            return rc;
        c->made.n_i8 += form == SEAM_DENSE_I8;
        c->made.n_i4 += form == SEAM_DENSE_I4;
        c->made.bytes += d->bytes;
        c->made.stored_bytes += t->bytes;
    }
    *t = d->t;
    return 0;
}

void seam_dense_release(struct seam_checkpoint *c)
{
    for (uint32_t i = 0; c->dense && i < c->n; i++)
        free(c->dense[i].p);
    free(c->dense);
    c->dense = NULL;
}

int seam_checkpoint_weight(struct seam_checkpoint *c, const char *name,
                           struct seam_tensor *out, struct seam_error *err)
{
    char full[NAME_BYTES];
    int64_t i;
    int rc = weight_name(c, name, full, sizeof full, err);

    if (rc)
        return rc;
    i = seam_entry_find(c, full);
    if (i >= 0)
        return weight_stored(c, i, out, err);
    i = weight_entry(c, full, ".qweight");
    if (i >= 0)
        return weight_gptq(c, full, i, out, err);
    i = weight_entry(c, full, ".weight");
    if (i >= 0)
        rc = weight_stored(c, i, out, err);
    if (i >= 0)
        return rc ? rc : weight_dense(c, full, i, out, err);
    return seam_fail(err, SEAM_ENOENT,
                     "%s: no tensor \"%.*s\", with or "
                     "without .weight or .qweight",
                     SEAM_INDEX_FILE, seam_jscan_shown(full), full);
}
