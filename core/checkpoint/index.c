#include "core/checkpoint/index.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/utf8.h"
#include "core/checkpoint/jscan.h"

#define SUFFIX         ".safetensors"
#define NAME_MAX_BYTES 255
#define N_BUCKETS      (2 * SEAM_INDEX_MAX_FILES) /* a power of two           */

/* While reading: files found by a hash of their name, because a hostile map may
 * name a thousand files in turn. */
struct reader {
    struct seam_jscan s;
    struct seam_index *x;
    uint32_t cap;
    uint16_t bucket[N_BUCKETS]; /* file + 1, 0: empty                         */
};

bool seam_is_plain_name(const char *name)
{
    size_t n = strlen(name);

    if (n == 0 || n > NAME_MAX_BYTES || !strcmp(name, ".") ||
        !strcmp(name, ".."))
        return false;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)name[i];

        if (c < 0x20 || c == 0x7f || c == '/' || c == '\\')
            return false;
    }
    return true;
}

static int index_check_file(const struct reader *r, const char *file)
{
    size_t n = strlen(file), k = strlen(SUFFIX);

    if (!seam_is_plain_name(file))
        return seam_fail(r->s.err, SEAM_EDATA,
                         "%s: tensor \"%.*s\": file "
                         "\"%.*s\" (%zu bytes), expected a plain file name",
                         r->s.what, seam_jscan_shown(r->s.in), r->s.in,
                         seam_jscan_shown(file) / 2, file, n);
    if (n <= k || strcmp(file + n - k, SUFFIX))
        return seam_fail(r->s.err, SEAM_EDATA,
                         "%s: tensor \"%.*s\": file "
                         "\"%.*s\", expected a name that ends in " SUFFIX,
                         r->s.what, seam_jscan_shown(r->s.in), r->s.in,
                         seam_jscan_shown(file), file);
    return 0;
}

static int index_add_file(struct reader *r, const char *name, uint32_t *file)
{
    struct seam_index *x = r->x;
    uint32_t h = 2166136261u;
    int rc;

    if (x->n && !strcmp(x->file[x->e[x->n - 1].file], name)) {
        *file = x->e[x->n - 1].file;
        return 0;
    }
    for (const char *p = name; *p; p++)
        h = (h ^ (unsigned char)*p) * 16777619u;
    for (h &= N_BUCKETS - 1; r->bucket[h]; h = (h + 1) & (N_BUCKETS - 1)) {
        *file = r->bucket[h] - 1u;
        if (!strcmp(x->file[*file], name))
            return 0;
    }
    rc = index_check_file(r, name);
    if (rc)
        return rc;
    if (x->n_files == SEAM_INDEX_MAX_FILES)
        return seam_fail(r->s.err, SEAM_EDATA, "%s: more than %d files",
                         r->s.what, SEAM_INDEX_MAX_FILES);
    *file = x->n_files;
    x->file[x->n_files++] = name;
    r->bucket[h] = (uint16_t)x->n_files;
    return 0;
}

static int index_read_map(struct reader *r)
{
    struct seam_index *x = r->x;
    struct seam_index_entry *e;
    char *name, *file;
    bool first = true;
    uint32_t number = 0;
    uint64_t n;
    int rc = seam_jscan_open(&r->s, '{');

    while (!rc && (rc = seam_jscan_more(&r->s, '}', &first)) > 0) {
        r->s.in = NULL;
        rc = seam_jscan_key(&r->s, &name, &n);
        if (rc)
            break;
        r->s.in = name;
        rc = seam_jscan_string(&r->s, &file, &n);
        if (!rc)
            rc = index_add_file(r, file, &number);
        if (rc)
            break;
        if (x->n == r->cap) {
            r->cap = r->cap ? r->cap * 2 : 256;
            e = realloc(x->e, r->cap * sizeof *e);
            if (!e)
                return seam_fail(r->s.err, SEAM_ENOMEM, "%s: out of memory",
                                 r->s.what);
            x->e = e;
        }
        x->e[x->n++] = (struct seam_index_entry){ name, number };
    }
    r->s.in = NULL;
    return rc;
}

static int index_by_name(const void *a, const void *b)
{
    const struct seam_index_entry *x = a, *y = b;

    return strcmp(x->name, y->name);
}

static int index_read(struct reader *r)
{
    struct seam_index *x = r->x;
    bool first = true, seen = false;
    uint64_t n;
    char *key;
    int rc = seam_jscan_open(&r->s, '{');

    while (!rc && (rc = seam_jscan_more(&r->s, '}', &first)) > 0) {
        rc = seam_jscan_key(&r->s, &key, &n);
        if (rc)
            break;
        if (strcmp(key, "weight_map")) {
            rc = seam_jscan_skip(&r->s);
        } else if (seen) {
            return seam_fail(r->s.err, SEAM_EDATA,
                             "%s: duplicate name \"weight_map\"", r->s.what);
        } else {
            seen = true;
            rc = index_read_map(r);
        }
    }
    if (!rc)
        rc = seam_jscan_end(&r->s);
    if (rc)
        return rc;
    if (!seen)
        return seam_fail(r->s.err, SEAM_EDATA,
                         "%s: weight_map: found nothing, "
                         "expected an object of file names",
                         r->s.what);
    if (x->n)
        qsort(x->e, x->n, sizeof *x->e, index_by_name);
    for (uint32_t i = 1; i < x->n; i++)
        if (!strcmp(x->e[i - 1].name, x->e[i].name))
            return seam_fail(r->s.err, SEAM_EDATA,
                             "%s: duplicate name \"%.*s\"", r->s.what,
                             seam_jscan_shown(x->e[i].name), x->e[i].name);
    return 0;
}

int seam_index_parse(struct seam_index *x, const char *what, char *text,
                     uint64_t n, struct seam_error *err)
{
    struct seam_index out = { .text = text };
    struct reader r = { .x = &out };
    int rc;

    r.s = (struct seam_jscan){ .text = text, .n = n, .what = what, .err = err };
    out.file = malloc(SEAM_INDEX_MAX_FILES * sizeof *out.file);
    if (!out.file)
        rc = seam_fail(err, SEAM_ENOMEM, "%s: out of memory", what);
    else if (!seam_utf8_valid(text, (size_t)n))
        rc = seam_fail(err, SEAM_EDATA, "%s: is not UTF-8", what);
    else
        rc = index_read(&r);
    if (rc) {
        seam_index_release(&out);
        return rc;
    }
    *x = out;
    return 0;
}

void seam_index_release(struct seam_index *x)
{
    free(x->e);
    free(x->file);
    free(x->text);
    *x = (struct seam_index){ 0 };
}
