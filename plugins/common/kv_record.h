/* Records of the planes of sparse attention, as they are stored: n values as
 * F32, as BF16 (rounded to nearest even), or as e4m3 with one F32 scale of the
 * record after them.  The scale is a power of two, so that a stored value times
 * the scale is exact in F32 and in BF16; a record that holds a value that is
 * not finite has a scale that is not a number. */
#ifndef SEAM_PLUGINS_KV_RECORD_H
#define SEAM_PLUGINS_KV_RECORD_H

#include "layout.h"
#include "weights.h"

/* "kv_dtype" of a plugin's configuration, and what is stored for it. */
static const char *const kv_dtype_word[] = { "f32", "bf16", "fp8" };
static const struct {
    uint16_t dtype;
    uint64_t layout; /* of sparse_mla */
} kv_dtype[] = {
    { SEAM_F32, SEAM_LAYOUT_SPARSE_MLA_F32 },
    { SEAM_BF16, SEAM_LAYOUT_SPARSE_MLA_BF16 },
    { SEAM_F8E4M3, SEAM_LAYOUT_SPARSE_MLA_FP8 },
};
enum {
    KV_DTYPES = sizeof kv_dtype / sizeof *kv_dtype,
    KV_DEFAULT = 1, /* BF16: the model's own latents are no more exact    */
};

static inline uint64_t kv_record_bytes(uint16_t dtype, uint32_t n)
{
    return n * weights_elem_bytes(dtype) +
           (dtype == SEAM_F8E4M3 ? sizeof(float) : 0);
}

/* The scale of an e4m3 record of n values. */
static inline float kv_record_scale(const void *record, uint32_t n)
{
    float s;

    memcpy(&s, (const char *)record + n, sizeof s);
    return s;
}

static inline void kv_record_put_f8(unsigned char *to, const float *v,
                                    uint32_t n)
{
    float top = 0, scale, part = 0;
    int e = 0;

    for (uint32_t i = 0; i < n; i++)
        top = fmaxf(top, fabsf(v[i]));
    /* The least power of two that brings the largest to at most 448, which is
     * 0.875 * 2^9. */
    part = frexpf(top, &e);
    e = !isfinite(top) || e < -110 ? -110 : e - (part > 0.875f ? 8 : 9);
    scale = ldexpf(1, e);
    for (uint32_t i = 0; i < n; i++) {
        to[i] = weights_to_f8e4m3(v[i] / scale);
        if (!isfinite(v[i]))
            top = NAN;
    }
    if (!isfinite(top))
        scale = NAN;
    memcpy(to + n, &scale, sizeof scale);
}

static inline void kv_record_put(void *to, uint16_t dtype, const float *v,
                                 uint32_t n)
{
    if (dtype == SEAM_F32)
        memcpy(to, v, n * sizeof *v);
    else if (dtype == SEAM_F8E4M3)
        kv_record_put_f8(to, v, n);
    else
        for (uint32_t i = 0; i < n; i++)
            ((uint16_t *)to)[i] = weights_to_bf16(v[i]);
}

/* Value i of a record of n. */
static inline float kv_record_at(const void *record, uint16_t dtype, uint32_t n,
                                 uint32_t i)
{
    float v = weights_elem(record, dtype, i);

    return dtype == SEAM_F8E4M3 ? v * kv_record_scale(record, n) : v;
}

#endif
