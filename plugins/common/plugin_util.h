/* What every plugin of this tree needs and the ABI does not give: filling an
 * error, reading configuration within bounds, asking for a weight by layer,
 * carving scratch.  Static inline, so that a plugin stays one object with one
 * symbol. */
#ifndef SEAM_PLUGIN_UTIL_H
#define SEAM_PLUGIN_UTIL_H

#include <seam/plugin.h>

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "weights.h"

/* Fill *err (NULL is fine) and return code.  The text is cut to its buffer. */
static inline int plug_fail(struct seam_error *err, int code, const char *fmt,
                            ...) __attribute__((format(printf, 3, 4)));
static inline int plug_fail(struct seam_error *err, int code, const char *fmt,
                            ...)
{
    va_list ap;

    if (!err)
        return code;
    err->code = code;
    err->native = 0;
    va_start(ap, fmt);
    vsnprintf(err->text, sizeof err->text, fmt, ap);
    va_end(ap);
    return code;
}

/* ---- Configuration ------------------------------------------------------- */

/* Read the integer `key` of node into *out when it is there.  ENOENT when it is
 * absent (*out untouched, err untouched); EDATA when it is no integer within
 * [lo, hi].  what names the node in messages: "model config", "kda config". */
static inline int plug_cfg_u32(const struct seam_host *h,
                               const struct seam_cfg *node, const char *what,
                               const char *key, uint32_t lo, uint32_t hi,
                               uint32_t *out, struct seam_error *err)
{
    int64_t v = 0;
    int rc = h->cfg(h->ctx, node, key, SEAM_CFG_I64, &v);

    if (rc == SEAM_ENOENT)
        return rc;
    if (rc)
        return plug_fail(err, SEAM_EDATA,
                         "%s: %s is no integer, expected one "
                         "in [%u, %u]",
                         what, key, lo, hi);
    if (v < (int64_t)lo || v > (int64_t)hi)
        return plug_fail(err, SEAM_EDATA, "%s: %s is %lld, expected %u to %u",
                         what, key, (long long)v, lo, hi);
    *out = (uint32_t)v;
    return SEAM_OK;
}

/* A key of the model's configuration that must be there; alt (may be NULL) is
 * another spelling, tried second.  EDATA. */
static inline int plug_model_u32(const struct seam_host *h,
                                 const struct seam_cfg *node, const char *key,
                                 const char *alt, uint32_t lo, uint32_t hi,
                                 uint32_t *out, struct seam_error *err)
{
    int rc = plug_cfg_u32(h, node, "model config", key, lo, hi, out, err);

    if (rc == SEAM_ENOENT && alt)
        rc = plug_cfg_u32(h, node, "model config", alt, lo, hi, out, err);
    if (rc == SEAM_ENOENT)
        rc = plug_fail(err, SEAM_EDATA, "model config: %s%s%s is missing", key,
                       alt ? " or " : "", alt ? alt : "");
    return rc;
}

static inline int plug_model_f64(const struct seam_host *h,
                                 const struct seam_cfg *node, const char *key,
                                 const char *alt, double *out,
                                 struct seam_error *err)
{
    int rc = h->cfg(h->ctx, node, key, SEAM_CFG_F64, out);

    if (rc == SEAM_ENOENT && alt)
        rc = h->cfg(h->ctx, node, alt, SEAM_CFG_F64, out);
    if (rc)
        rc = plug_fail(err, SEAM_EDATA,
                       "model config: %s%s%s is %s, expected "
                       "a number",
                       key, alt ? " or " : "", alt ? alt : "",
                       rc == SEAM_ENOENT ? "missing" : "no number");
    return rc;
}

/* The index of the string `key` of node among the n words; def when it is
 * absent, EDATA when it is another. */
static inline int plug_cfg_word(const struct seam_host *h,
                                const struct seam_cfg *node, const char *what,
                                const char *key, const char *const *word,
                                uint32_t n, uint32_t def, uint32_t *out,
                                struct seam_error *err)
{
    struct seam_str v = { 0 };
    int rc = h->cfg(h->ctx, node, key, SEAM_CFG_STR, &v);

    *out = def;
    if (rc == SEAM_ENOENT)
        return SEAM_OK;
    for (uint32_t i = 0; !rc && i < n; i++)
        if (v.n == strlen(word[i]) && !memcmp(v.p, word[i], v.n)) {
            *out = i;
            return SEAM_OK;
        }
    return plug_fail(err, SEAM_EDATA, "%s: %s is none of \"%s\", ... \"%s\"",
                     what, key, word[0], word[n - 1]);
}

/* ---- Weights ------------------------------------------------------------- */

/* The weight `rest` of model layer `layer`, in host memory, checked by
 * weights_check: [n_out, n_in], or a vector of n_out when n_in is 0. */
static inline int plug_weight(const struct seam_host *h,
                              const struct seam_model *m, uint32_t layer,
                              const char *rest, uint64_t n_out, uint64_t n_in,
                              struct seam_tensor *out, struct seam_error *err)
{
    char name[160], why[160];
    int rc;

    snprintf(name, sizeof name, "@layer.%u.%s", layer, rest);
    rc = h->weight(h->ctx, m, name, SEAM_MEM_HOST, out);
    if (rc == SEAM_ENOENT)
        return plug_fail(err, rc, "weight %s: not in the checkpoint", name);
    if (rc)
        return plug_fail(err, rc, "weight %s: the host cannot provide it (%d)",
                         name, rc);
    rc = weights_check(out, n_out, n_in, why, sizeof why);
    if (rc)
        return plug_fail(err, rc, "weight %s: %s", name, why);
    return SEAM_OK;
}

/* ---- Activations --------------------------------------------------------- */

/* First byte of row r of a tensor of rank 2. */
static inline void *plug_row(const struct seam_tensor *t, int64_t r)
{
    return (char *)t->data + r * t->stride[0];
}

/* True when t is [n, d] of dtype in host memory with room for it. */
static inline bool plug_is_rows(const struct seam_tensor *t, uint16_t dtype,
                                uint64_t elem, uint64_t n, uint64_t d)
{
    return t->data && t->dtype == dtype && t->quant == SEAM_Q_NONE &&
           t->device == -1 && t->rank == 2 && t->shape[0] >= 0 &&
           (uint64_t)t->shape[0] == n && (uint64_t)t->shape[1] == d &&
           (n == 0 ||
            (t->stride[0] >= 0 &&
             (n - 1) * (uint64_t)t->stride[0] + d * elem <= t->bytes));
}

/* ---- Memory -------------------------------------------------------------- */

/* Zeroed host memory in the server's accounts, or NULL; plug_free frees it.
 * [control] */
static inline void *plug_zalloc(const struct seam_host *h, uint64_t count,
                                uint64_t elem)
{
    uint64_t bytes;
    void *p;

    if (__builtin_mul_overflow(count, elem, &bytes))
        return NULL;
    p = h->alloc(h->ctx, SEAM_MEM_HOST, -1, bytes ? bytes : 1, 64);
    if (p)
        memset(p, 0, bytes);
    return p;
}

static inline void plug_free(const struct seam_host *h, void *p)
{
    if (p)
        h->free(h->ctx, p);
}

/* ---- Scratch ------------------------------------------------------------- */

/* Successive 64-byte aligned pieces of exec.ws or grant.keep.  With p NULL it
 * only adds up, so that needs() and forward() can share one layout function. */
struct plug_arena {
    char *p; /* NULL: counting                                        */
    uint64_t used;
};

static inline void *plug_take(struct plug_arena *a, uint64_t count,
                              uint64_t elem)
{
    void *p = a->p ? a->p + a->used : NULL;

    a->used += (count * elem + 63) & ~(uint64_t)63;
    return p;
}

#endif
