/* Reading stored weights as numbers: one element, one row, one linear layer.
 *
 * Every conversion here is exact: a stored value is at most 24 significant bits
 * times a scale of at most 24, which a double holds.  weights_linear is the
 * reference product of the reference plugins. */
#ifndef SEAM_WEIGHTS_H
#define SEAM_WEIGHTS_H

#include <seam/plugin.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- Elements ------------------------------------------------------------ */

static inline float weights_f32_of_bits(uint32_t u)
{
    float f;

    memcpy(&f, &u, sizeof f);
    return f;
}

static inline uint32_t weights_bits_of_f32(float f)
{
    uint32_t u;

    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float weights_bf16(uint16_t h)
{
    return weights_f32_of_bits((uint32_t)h << 16);
}

/* Round to nearest even; a NaN stays one. */
static inline uint16_t weights_to_bf16(float f)
{
    uint32_t u = weights_bits_of_f32(f);

    if ((u & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static inline float weights_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = h >> 10 & 31,
             m = h & 1023;
    float f;

    if (e == 31)
        return weights_f32_of_bits(sign | 0x7f800000 | m << 13);
    if (e)
        return weights_f32_of_bits(sign | (e + 112) << 23 | m << 13);
    f = (float)m * 0x1p-24f; /* subnormal or zero */
    return sign ? -f : f;
}

/* OCP e4m3 "fn": bias 7, no infinities, 0x7f and 0xff are NaN. */
static inline float weights_f8e4m3(uint8_t b)
{
    uint32_t sign = (uint32_t)(b & 0x80) << 24, e = b >> 3 & 15, m = b & 7;
    float f;

    if (e == 15 && m == 7)
        return weights_f32_of_bits(sign | 0x7fc00000);
    if (e)
        return weights_f32_of_bits(sign | (e + 120) << 23 | m << 20);
    f = (float)m * 0x1p-9f;
    return sign ? -f : f;
}

/* To nearest, ties to even; what is larger than 448 becomes 448. */
static inline uint8_t weights_to_f8e4m3(float f)
{
    uint32_t u = weights_bits_of_f32(f), sign = u >> 24 & 0x80;

    u &= 0x7fffffff;
    if (u > 0x7f800000)
        return (uint8_t)(sign | 0x7f);
    if (u < 0x3c800000) /* below 2^-6: in steps of 2^-9 */
        return (uint8_t)(sign | (uint32_t)lrintf(fabsf(f) * 512));
    u += 0x7ffff + (u >> 20 & 1);
    u = (u >> 20) - (120 << 3);
    return (uint8_t)(sign | (u < 0x7e ? u : 0x7e));
}

/* Element i of a packed array of dtype; NaN for a dtype weights_check does not
 * let through.  The array need not be aligned. */
static inline float weights_elem(const void *p, uint16_t dtype, uint64_t i)
{
    const unsigned char *b = p;
    uint16_t h;
    float f;

    switch (dtype) {
    case SEAM_F32:
        memcpy(&f, b + 4 * i, sizeof f);
        return f;
    case SEAM_F16:
        memcpy(&h, b + 2 * i, sizeof h);
        return weights_f16(h);
    case SEAM_BF16:
        memcpy(&h, b + 2 * i, sizeof h);
        return weights_bf16(h);
    case SEAM_F8E4M3:
        return weights_f8e4m3(b[i]);
    case SEAM_I8:
        return (int8_t)b[i];
    case SEAM_E8M0: /* 2^(b - 127), 255 is NaN */
        return b[i] == 255 ? NAN : ldexpf(1.0f, (int)b[i] - 127);
    default:
        return NAN;
    }
}

/* Bytes of one element; 0 for a dtype that is not read here. */
static inline uint64_t weights_elem_bytes(uint16_t dtype)
{
    switch (dtype) {
    case SEAM_F32:
        return 4;
    case SEAM_F16:
    case SEAM_BF16:
        return 2;
    case SEAM_F8E4M3:
    case SEAM_E8M0:
    case SEAM_I8:
        return 1;
    default:
        return 0;
    }
}

/* ---- Shapes -------------------------------------------------------------- */

/* Elements under one index of the first dimension; of a vector, all. */
static inline uint64_t weights_cols(const struct seam_tensor *t)
{
    uint64_t n = 1;

    for (uint32_t d = t->rank > 1 ? 1 : 0; d < t->rank; d++)
        n *= (uint64_t)t->shape[d];
    return n;
}

static inline uint64_t weights_rows(const struct seam_tensor *t)
{
    return t->rank > 1 ? (uint64_t)t->shape[0] : 1;
}

/* Check that t is [n_out, n_in] (a convolution's [n_out, 1, n_in] too), or with
 * n_in 0 a vector of n_out, in host memory, within its bytes, and of a storage
 * that weights_row reads.  EDATA or ENOTSUP with found and expected in why. */
static inline int weights_check(const struct seam_tensor *t, uint64_t n_out,
                                uint64_t n_in, char *why, size_t cap)
{
    uint64_t rows = weights_rows(t), cols = weights_cols(t), need;
    int at = 0;

    if (n_in == 0
            ? rows * cols != n_out || (t->rank > 1 && rows != 1 && cols != 1)
            : t->rank < 2 || rows != n_out || cols != n_in) {
        at = snprintf(why, cap, "found shape [");
        for (uint32_t d = 0; d < t->rank && (size_t)at < cap; d++)
            at += snprintf(why + at, cap - (size_t)at, d ? ", %lld" : "%lld",
                           (long long)t->shape[d]);
        if ((size_t)at >= cap)
            return SEAM_EDATA;
        if (n_in)
            snprintf(why + at, cap - (size_t)at, "], expected [%llu, %llu]",
                     (unsigned long long)n_out, (unsigned long long)n_in);
        else
            snprintf(why + at, cap - (size_t)at, "], expected [%llu]",
                     (unsigned long long)n_out);
        return SEAM_EDATA;
    }
    if (!t->data || t->device != -1) {
        snprintf(why, cap, "found on device %d, expected host memory",
                 t->device);
        return SEAM_EDATA;
    }
    switch (t->quant) {
    case SEAM_Q_NONE:
    case SEAM_Q_GROUP:
        need = weights_elem_bytes(t->dtype);
        if (!need || (t->quant == SEAM_Q_NONE && t->dtype == SEAM_I8) ||
            (t->quant == SEAM_Q_GROUP &&
             (!t->scale || t->zero || !t->group_rows || !t->group_cols ||
              !weights_elem_bytes(t->scale_dtype))))
            break;
        need *= cols;
        if (rows > 1)
            need += (rows - 1) * (uint64_t)t->stride[0];
        if (need > t->bytes) {
            snprintf(why, cap, "found %llu bytes, expected %llu",
                     (unsigned long long)t->bytes, (unsigned long long)need);
            return SEAM_EDATA;
        }
        return SEAM_OK;
    case SEAM_Q_GPTQ:
        if (t->dtype != SEAM_I4 || !t->scale || !t->zero || !t->group_cols ||
            !weights_elem_bytes(t->scale_dtype))
            break;
        if (n_in % 8 || n_in % t->group_cols || n_out % 8 ||
            n_in / 8 * n_out * 4 > t->bytes) {
            snprintf(why, cap,
                     "found %llu bytes for [%llu, %llu] in groups of "
                     "%u, expected %llu",
                     (unsigned long long)t->bytes, (unsigned long long)n_out,
                     (unsigned long long)n_in, t->group_cols,
                     (unsigned long long)(n_in / 8 * n_out * 4));
            return SEAM_EDATA;
        }
        return SEAM_OK;
    default:
        break;
    }
    snprintf(why, cap,
             "found dtype %u with quantisation %u, expected F32, F16, "
             "BF16, F8E4M3, I8 in groups or GPTQ int4",
             t->dtype, t->quant);
    return SEAM_ENOTSUP;
}

/* ---- Rows ---------------------------------------------------------------- */

/* Element i of row r of a tensor that passed weights_check.  A vector is row 0,
 * further dimensions are flattened. */
static inline double weights_at(const struct seam_tensor *t, uint64_t r,
                                uint64_t i)
{
    const unsigned char *p = t->data, *z = t->zero;
    uint64_t n_out = weights_rows(t), g;
    uint32_t q, zero;
    double v;

    if (t->quant == SEAM_Q_GPTQ) {
        g = i / t->group_cols;
        memcpy(&q, p + 4 * (i / 8 * n_out + r), sizeof q);
        memcpy(&zero, z + 4 * (g * (n_out / 8) + r / 8), sizeof zero);
        q = q >> 4 * (i % 8) & 15;
        zero = (zero >> 4 * (r % 8) & 15) + 1; /* stored minus one */
        return (double)weights_elem(t->scale, t->scale_dtype, g * n_out + r) *
               ((int)q - (int)zero);
    }
    if (t->rank > 1)
        p += (int64_t)r * t->stride[0];
    v = weights_elem(p, t->dtype, i);
    if (t->quant == SEAM_Q_GROUP) {
        g = (weights_cols(t) + t->group_cols - 1) / t->group_cols;
        v *= weights_elem(t->scale, t->scale_dtype,
                          r / t->group_rows * g + i / t->group_cols);
    }
    return v;
}

/* Row r, out[weights_cols(t)]. */
static inline void weights_row(const struct seam_tensor *t, uint64_t r,
                               double *out)
{
    uint64_t cols = weights_cols(t);

    for (uint64_t i = 0; i < cols; i++)
        out[i] = weights_at(t, r, i);
}

/* The same rounded to float. */
static inline void weights_row_f32(const struct seam_tensor *t, uint64_t r,
                                   float *out)
{
    uint64_t cols = weights_cols(t);

    for (uint64_t i = 0; i < cols; i++)
        out[i] = (float)weights_at(t, r, i);
}

/* ---- Products ------------------------------------------------------------ */

/* Four running sums, so that a reference need not wait for each addition; the
 * order depends on n alone. */
static inline double weights_dot(const double *a, const double *b, uint64_t n)
{
    double s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    uint64_t i = 0;

    for (; i + 4 <= n; i += 4) {
        s0 += a[i] * b[i];
        s1 += a[i + 1] * b[i + 1];
        s2 += a[i + 2] * b[i + 2];
        s3 += a[i + 3] * b[i + 3];
    }
    for (; i < n; i++)
        s0 += a[i] * b[i];
    return (s0 + s1) + (s2 + s3);
}

/* y[r][o] = sum_i w[o][i] x[r][i] for n rows; x is [n][ldx], y [n][ldy], row
 * scratch of weights_cols(w).  Each row of w is read once per call. */
static inline void weights_linear(const struct seam_tensor *w, const double *x,
                                  uint64_t ldx, uint64_t n, double *y,
                                  uint64_t ldy, double *row)
{
    uint64_t n_in = weights_cols(w), n_out = weights_rows(w);

    for (uint64_t o = 0; n > 0 && o < n_out; o++) {
        weights_row(w, o, row);
        for (uint64_t r = 0; r < n; r++)
            y[r * ldy + o] = weights_dot(row, x + r * ldx, n_in);
    }
}

#endif
