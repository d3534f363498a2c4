#include "core/checkpoint/safetensors.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/num.h"
#include "core/base/utf8.h"
#include "core/checkpoint/jscan.h"

#define LENGTH_BYTES 8
#define HEADER_MAX   100000000u /* the reference reader's limit               */
#define ACCEPTED     "F32, F16, BF16, F8_E4M3, F8_E5M2, I8, U8, I32 or I64"

static const struct st_dtype {
    const char *name;
    uint16_t dtype, bits;
    bool stored; /* accepted in files */
} ST_DTYPES[] = {
    { "F32", SEAM_F32, 32, true },
    { "F16", SEAM_F16, 16, true },
    { "BF16", SEAM_BF16, 16, true },
    { "F8_E4M3", SEAM_F8E4M3, 8, true },
    { "F8_E5M2", SEAM_F8E5M2, 8, true },
    { "F8_E4M3FNUZ", SEAM_F8E4M3FNUZ, 8, false },
    { "F8_E5M2FNUZ", SEAM_F8E5M2FNUZ, 8, false },
    { "I8", SEAM_I8, 8, true },
    { "U8", SEAM_U8, 8, true },
    { "I32", SEAM_I32, 32, true },
    { "I64", SEAM_I64, 64, true },
    { "I4", SEAM_I4, 4, false },
    { "F4", SEAM_F4E2M1, 4, false },
    { "F8_E8M0", SEAM_E8M0, 8, false },
};
#define N_DTYPES (sizeof ST_DTYPES / sizeof ST_DTYPES[0])

uint32_t seam_dtype_bits(uint16_t dtype)
{
    for (size_t i = 0; i < N_DTYPES; i++)
        if (ST_DTYPES[i].dtype == dtype)
            return ST_DTYPES[i].bits;
    return 0;
}

const char *seam_dtype_name(uint16_t dtype)
{
    for (size_t i = 0; i < N_DTYPES; i++)
        if (ST_DTYPES[i].dtype == dtype)
            return ST_DTYPES[i].name;
    return "unknown";
}

/* ---- One tensor's description ------------------------------------------- */

static int st_fail(const struct seam_jscan *s, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

static int st_fail(const struct seam_jscan *s, const char *fmt, ...)
{
    char text[160];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return seam_fail(s->err, SEAM_EDATA, "%s: tensor \"%.*s\": %s", s->what,
                     seam_jscan_shown(s->in), s->in, text);
}

static int st_read_dtype(struct seam_jscan *s, struct seam_st_tensor *t)
{
    uint64_t n;
    char *p;
    int rc = seam_jscan_string(s, &p, &n);

    if (rc)
        return rc;
    for (size_t i = 0; i < N_DTYPES; i++)
        if (ST_DTYPES[i].stored && !strcmp(p, ST_DTYPES[i].name)) {
            t->dtype = ST_DTYPES[i].dtype;
            return 0;
        }
    return st_fail(s, "dtype \"%.*s\", expected " ACCEPTED, seam_jscan_shown(p),
                   p);
}

static int st_read_shape(struct seam_jscan *s, struct seam_st_tensor *t)
{
    bool first = true;
    uint64_t v;
    int rc = seam_jscan_open(s, '[');

    while (!rc && (rc = seam_jscan_more(s, ']', &first)) > 0) {
        rc = seam_jscan_u64(s, &v);
        if (rc)
            break;
        if (v > INT64_MAX)
            return st_fail(s, "shape[%u] is %llu, expected less than 2^63",
                           t->rank, (unsigned long long)v);
        if (t->rank == SEAM_ST_MAX_RANK)
            return st_fail(s, "more than %d dimensions", SEAM_ST_MAX_RANK);
        t->shape[t->rank++] = (int64_t)v;
    }
    return rc;
}

/* t->offset and t->bytes are begin and length within the data for now. */
static int st_read_span(struct seam_jscan *s, struct seam_st_tensor *t)
{
    uint64_t v[2], n = 0;
    bool first = true;
    int rc = seam_jscan_open(s, '[');

    while (!rc && (rc = seam_jscan_more(s, ']', &first)) > 0) {
        if (n == 2)
            return st_fail(s, "more than 2 data_offsets, expected 2");
        rc = seam_jscan_u64(s, &v[n++]);
    }
    if (rc)
        return rc;
    if (n != 2)
        return st_fail(s, "%llu data_offsets, expected 2",
                       (unsigned long long)n);
    if (v[0] > v[1])
        return st_fail(s, "data_offsets [%llu,%llu] begin after their end",
                       (unsigned long long)v[0], (unsigned long long)v[1]);
    t->offset = v[0];
    t->bytes = v[1] - v[0];
    return 0;
}

static int st_read_tensor(struct seam_jscan *s, struct seam_st_tensor *t)
{
    static const char *const keys[] = { "dtype", "shape", "data_offsets" };
    uint32_t seen = 0, k;
    bool first = true;
    uint64_t n;
    char *key;
    int rc = seam_jscan_open(s, '{');

    while (!rc && (rc = seam_jscan_more(s, '}', &first)) > 0) {
        rc = seam_jscan_key(s, &key, &n);
        if (rc)
            break;
        for (k = 0; k < 3 && strcmp(key, keys[k]); k++)
            ;
        if (k == 3)
            return st_fail(s,
                           "key \"%.*s\", expected dtype, shape and "
                           "data_offsets",
                           seam_jscan_shown(key), key);
        if (seen & 1u << k)
            return st_fail(s, "duplicate key \"%s\"", keys[k]);
        seen |= 1u << k;
        rc = k == 0   ? st_read_dtype(s, t)
             : k == 1 ? st_read_shape(s, t)
                      : st_read_span(s, t);
    }
    if (rc)
        return rc;
    for (k = 0; k < 3; k++)
        if (!(seen & 1u << k))
            return st_fail(s, "no %s", keys[k]);
    return 0;
}

/* "__metadata__" maps strings to strings and means nothing here. */
static int st_read_metadata(struct seam_jscan *s)
{
    bool first = true;
    uint64_t n;
    char *p;
    int rc = seam_jscan_open(s, '{');

    while (!rc && (rc = seam_jscan_more(s, '}', &first)) > 0) {
        rc = seam_jscan_key(s, &p, &n);
        if (!rc)
            rc = seam_jscan_string(s, &p, &n);
    }
    return rc;
}

static int st_read_all(struct seam_jscan *s, struct seam_st_header *h)
{
    bool first = true, metadata = false;
    struct seam_st_tensor *t;
    uint32_t cap = 0;
    uint64_t n;
    char *name;
    int rc = seam_jscan_open(s, '{');

    while (!rc && (rc = seam_jscan_more(s, '}', &first)) > 0) {
        s->in = NULL;
        rc = seam_jscan_key(s, &name, &n);
        if (rc)
            break;
        if (!strcmp(name, "__metadata__")) {
            if (metadata)
                return seam_fail(s->err, SEAM_EDATA,
                                 "%s: duplicate name \"__metadata__\"",
                                 s->what);
            metadata = true;
            rc = st_read_metadata(s);
            continue;
        }
        if (h->n == cap) {
            cap = cap ? cap * 2 : 64;
            t = realloc(h->t, cap * sizeof *t);
            if (!t)
                return seam_fail(s->err, SEAM_ENOMEM, "%s: out of memory",
                                 s->what);
            h->t = t;
        }
        t = &h->t[h->n++];
        *t = (struct seam_st_tensor){ .name = name };
        s->in = name;
        rc = st_read_tensor(s, t);
    }
    s->in = NULL;
    return rc ? rc : seam_jscan_end(s);
}

/* ---- The whole ---------------------------------------------------------- */

static int st_by_name(const void *a, const void *b)
{
    const struct seam_st_tensor *x = a, *y = b;

    return strcmp(x->name, y->name);
}

/* In order of their data; of those that begin together, empty ones first. */
static int st_by_span(const void *a, const void *b)
{
    const struct seam_st_tensor *const *x = a, *const *y = b;

    if ((*x)->offset != (*y)->offset)
        return (*x)->offset < (*y)->offset ? -1 : 1;
    if ((*x)->bytes != (*y)->bytes)
        return (*x)->bytes < (*y)->bytes ? -1 : 1;
    return 0;
}

/* Does the span hold exactly what dtype and shape need? */
static int st_check_size(struct seam_jscan *s, const struct seam_st_tensor *t)
{
    uint64_t bits = seam_dtype_bits(t->dtype);

    for (uint32_t i = 0; i < t->rank; i++)
        if (!seam_mul(bits, (uint64_t)t->shape[i], &bits))
            return st_fail(s, "the product of its shape overflows 64 bits");
    if (bits / 8 != t->bytes)
        return st_fail(s,
                       "data_offsets span %llu bytes, expected %llu by "
                       "dtype and shape",
                       (unsigned long long)t->bytes,
                       (unsigned long long)(bits / 8));
    return 0;
}

/* Spans tile data[0, data_bytes) without gap and overlap. */
static int st_check_spans(struct seam_jscan *s, const struct seam_st_header *h,
                          uint64_t data_from, uint64_t data_bytes)
{
    const struct seam_st_tensor **order, *t;
    uint64_t end = 0, need = 0;
    int rc = 0;

    order = malloc(((size_t)h->n + 1) * sizeof *order);
    if (!order)
        return seam_fail(s->err, SEAM_ENOMEM, "%s: out of memory", s->what);
    for (uint32_t i = 0; i < h->n; i++) {
        order[i] = &h->t[i];
        if (h->t[i].offset + h->t[i].bytes > need)
            need = h->t[i].offset + h->t[i].bytes;
    }
    qsort(order, h->n, sizeof *order, st_by_span);
    for (uint32_t i = 0; i < h->n && need > data_bytes; i++) {
        t = order[i];
        if (t->offset + t->bytes <= data_bytes)
            continue;
        rc = seam_fail(s->err, SEAM_EDATA,
                       "%s: %llu bytes missing, data goes "
                       "past the end of the file at %llu; first tensor cut is "
                       "\"%.*s\", which starts at byte %llu",
                       s->what, (unsigned long long)(need - data_bytes),
                       (unsigned long long)(data_from + data_bytes),
                       seam_jscan_shown(t->name), t->name,
                       (unsigned long long)(data_from + t->offset));
        goto out;
    }
    for (uint32_t i = 0; i < h->n; i++) {
        s->in = h->t[i].name;
        rc = st_check_size(s, &h->t[i]);
        if (rc)
            goto out;
    }
    for (uint32_t i = 0; i < h->n; i++) {
        t = order[i];
        s->in = t->name;
        if (t->offset != end) {
            rc =
                st_fail(s,
                        "data begins at offset %llu, expected %llu where "
                        "the tensor before it ends",
                        (unsigned long long)t->offset, (unsigned long long)end);
            goto out;
        }
        end += t->bytes;
    }
    if (end != data_bytes)
        rc = seam_fail(s->err, SEAM_EDATA,
                       "%s: %llu bytes behind the last "
                       "tensor, expected the file to end at byte %llu",
                       s->what, (unsigned long long)(data_bytes - end),
                       (unsigned long long)(data_from + end));
out:
    free(order);
    return rc;
}

/* The length field against what is really there, before it is used. */
static int st_check_length(const char *file, const unsigned char *p,
                           uint64_t have, uint64_t file_bytes, uint64_t *n,
                           struct seam_error *err)
{
    uint64_t v = 0;

    if (file_bytes < LENGTH_BYTES || have < LENGTH_BYTES)
        return seam_fail(err, SEAM_EDATA,
                         "%s: %llu bytes, expected at least "
                         "the %d of the header length",
                         file, (unsigned long long)file_bytes, LENGTH_BYTES);
    for (int i = LENGTH_BYTES - 1; i >= 0; i--)
        v = v << 8 | p[i];
    if (v < 2 || v > HEADER_MAX)
        return seam_fail(err, SEAM_EDATA,
                         "%s: header length %llu, expected 2 "
                         "to %u",
                         file, (unsigned long long)v, HEADER_MAX);
    if (v > file_bytes - LENGTH_BYTES || v > have - LENGTH_BYTES)
        return seam_fail(err, SEAM_EDATA,
                         "%s: header length %llu, but the "
                         "file has %llu bytes behind that field",
                         file, (unsigned long long)v,
                         (unsigned long long)(file_bytes - LENGTH_BYTES));
    if (p[LENGTH_BYTES] != '{')
        return seam_fail(err, SEAM_EDATA,
                         "%s: header begins with byte 0x%02x, "
                         "expected '{'",
                         file, p[LENGTH_BYTES]);
    *n = v;
    return 0;
}

int seam_st_parse(struct seam_st_header *h, const char *file,
                  const unsigned char *p, uint64_t have, uint64_t file_bytes,
                  struct seam_error *err)
{
    struct seam_st_header out = { 0 };
    struct seam_jscan s = { .what = file, .err = err };
    uint64_t n = 0;
    int rc = st_check_length(file, p, have, file_bytes, &n, err);

    if (rc)
        return rc;
    /* A copy: the file may be changed by others while it is read, and names are
     * decoded in place. */
    out.names = malloc((size_t)n + 1);
    if (!out.names)
        return seam_fail(err, SEAM_ENOMEM, "%s: out of memory", file);
    memcpy(out.names, p + LENGTH_BYTES, (size_t)n);
    out.names[n] = 0;
    if (!seam_utf8_valid(out.names, (size_t)n)) {
        rc = seam_fail(err, SEAM_EDATA, "%s: header is not UTF-8", file);
        goto out;
    }
    s.text = out.names;
    s.n = n;
    rc = st_read_all(&s, &out);
    if (rc)
        goto out;
    if (out.n)
        qsort(out.t, out.n, sizeof *out.t, st_by_name);
    for (uint32_t i = 1; i < out.n; i++) {
        const char *name = out.t[i].name;

        if (!strcmp(out.t[i - 1].name, name)) {
            rc = seam_fail(err, SEAM_EDATA, "%s: duplicate name \"%.*s\"", file,
                           seam_jscan_shown(name), name);
            goto out;
        }
    }
    rc = st_check_spans(&s, &out, LENGTH_BYTES + n,
                        file_bytes - LENGTH_BYTES - n);
    if (rc)
        goto out;
    for (uint32_t i = 0; i < out.n; i++)
        out.t[i].offset += LENGTH_BYTES + n;
    *h = out;
    out = (struct seam_st_header){ 0 };
out:
    seam_st_release(&out);
    return rc;
}

void seam_st_release(struct seam_st_header *h)
{
    free(h->t);
    free(h->names);
    *h = (struct seam_st_header){ 0 };
}

const struct seam_st_tensor *seam_st_find(const struct seam_st_header *h,
                                          const char *name)
{
    struct seam_st_tensor key = { .name = name };

    return h->n ? bsearch(&key, h->t, h->n, sizeof *h->t, st_by_name) : NULL;
}
