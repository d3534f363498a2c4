/* Opening: everything that can be known without reading weights is known before
 * seam_checkpoint_open returns, and the order is cheap first: config, index,
 * presence of the files, headers, and last what the model needs. */
#include "core/checkpoint/dense.h"
#include "core/checkpoint/impl.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/buf.h"
#include "core/base/json.h"
#include "core/checkpoint/guard.h"
#include "core/checkpoint/index.h"
#include "core/checkpoint/inventory.h"
#include "core/checkpoint/jscan.h"

#define WHO              "checkpoint"
#define CONFIG_FILE      "config.json"
#define CONFIG_MAX_BYTES (16u << 20)
#define INDEX_MAX_BYTES  (256u << 20)
#define SIDE_MAX_BYTES   (64u << 20)

static int open_path(const struct seam_checkpoint *c, const char *name,
                     char path[PATH_MAX], struct seam_error *err)
{
    if (snprintf(path, PATH_MAX, "%s/%s", c->dir, name) >= PATH_MAX)
        return seam_fail(err, SEAM_EDATA,
                         "%s: the path of %zu bytes is too "
                         "long",
                         name, strlen(c->dir) + 1 + strlen(name));
    return 0;
}

/* ---- Lookup ------------------------------------------------------------- */

/* First entry whose name is not less than `name`. */
static uint32_t entry_lower(const struct seam_checkpoint *c, const char *name)
{
    uint32_t lo = 0, hi = c->n;

    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;

        if (strcmp(c->entry[mid].t->name, name) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

int64_t seam_entry_find(const struct seam_checkpoint *c, const char *name)
{
    uint32_t i = entry_lower(c, name);

    return i < c->n && !strcmp(c->entry[i].t->name, name) ? (int64_t)i : -1;
}

/* Entries whose name begins with prefix: *first and how many. */
static uint32_t entry_range(const struct seam_checkpoint *c, const char *prefix,
                            uint32_t *first)
{
    size_t n = strlen(prefix);
    uint32_t i = entry_lower(c, prefix);

    *first = i;
    while (i < c->n && !strncmp(c->entry[i].t->name, prefix, n))
        i++;
    return i - *first;
}

/* ---- Configuration and index -------------------------------------------- */

static int open_config(struct seam_checkpoint *c, struct seam_error *err)
{
    char path[PATH_MAX], *text;
    uint64_t n;
    int rc = open_path(c, CONFIG_FILE, path, err);

    if (!rc)
        rc = seam_file_read(path, CONFIG_MAX_BYTES, &text, &n, err);
    if (rc)
        return rc;
    c->root = seam_json_parse(text, (size_t)n, CONFIG_FILE, 0, err);
    free(text);
    if (!c->root)
        return SEAM_EDATA;
    return seam_model_config_read(&c->config, CONFIG_FILE, c->root, err);
}

/* x->text stays NULL where there is no index file. */
static int open_index(const struct seam_checkpoint *c, struct seam_index *x,
                      struct seam_error *err)
{
    char path[PATH_MAX], *text;
    struct seam_error e;
    struct stat st;
    uint64_t n;
    int rc = open_path(c, SEAM_INDEX_FILE, path, err);

    if (rc)
        return rc;
    rc = seam_file_read(path, INDEX_MAX_BYTES, &text, &n, &e);
    if (!rc)
        return seam_index_parse(x, SEAM_INDEX_FILE, text, n, err);
    if (rc != SEAM_ENOENT) {
        *err = e;
        return rc;
    }
    rc = open_path(c, SEAM_SINGLE_FILE, path, err);
    if (rc)
        return rc;
    if (stat(path, &st) && errno == ENOENT)
        return seam_fail(err, SEAM_ENOENT, "%s: neither %s nor %s is there",
                         c->dir, SEAM_INDEX_FILE, SEAM_SINGLE_FILE);
    return 0;
}

/* ---- Shards ------------------------------------------------------------- */

/* c->shard from the index' list of files; all that are missing are named. */
static int open_list(struct seam_checkpoint *c, const struct seam_index *x,
                     struct seam_error *err)
{
    uint32_t n = x->text ? x->n_files : 1, n_links = 0, n_missing = 0;
    struct seam_buf missing = { 0 };
    char path[PATH_MAX];
    struct stat st;
    int rc = 0;

    c->shard = calloc(n ? n : 1, sizeof *c->shard);
    if (!c->shard)
        return seam_fail(err, SEAM_ENOMEM, "%s: out of memory", c->dir);
    for (uint32_t i = 0; i < n && !rc; i++) {
        c->shard[i].name = strdup(x->text ? x->file[i] : SEAM_SINGLE_FILE);
        c->n_shards = i + 1;
        if (!c->shard[i].name) {
            rc = seam_fail(err, SEAM_ENOMEM, "%s: out of memory", c->dir);
            break;
        }
        rc = open_path(c, c->shard[i].name, path, err);
        if (rc)
            break;
        if (!lstat(path, &st) && S_ISLNK(st.st_mode))
            n_links++;
        if (stat(path, &st) && errno == ENOENT) {
            seam_buf_fmt(&missing, "%s%s", n_missing ? ", " : "",
                         c->shard[i].name);
            n_missing++;
            seam_log(c->log, SEAM_LOG_ERROR, WHO, "%s is missing", path);
        }
    }
    if (!rc && n_missing)
        rc = seam_fail(err, SEAM_ENOENT, "%s: %u of %u shards missing: %s",
                       SEAM_INDEX_FILE, n_missing, n,
                       missing.failed ? "(out of memory)" : missing.p);
    if (!rc && n_links)
        seam_log(c->log, SEAM_LOG_INFO, WHO,
                 "%s: %u of %u shards are symbolic links", c->dir, n_links, n);
    seam_buf_release(&missing);
    return rc;
}

static int open_shard(struct seam_checkpoint *c, struct seam_shard *s,
                      struct seam_error *err)
{
    char path[PATH_MAX];
    int rc = open_path(c, s->name, path, err);

    if (!rc)
        rc = seam_map_open(&s->map, path, err);
    if (rc)
        return rc;
    if (s->map.p) {
        rc = seam_sigbus_watch(s->map.p, s->map.bytes, &s->slot, err);
        if (rc)
            return rc;
        s->watched = true;
    }
    rc = seam_st_parse(&s->h, s->name, s->map.p, s->map.bytes, s->map.bytes,
                       err);
    if (s->watched && seam_sigbus_lost(s->slot))
        return seam_fail(err, SEAM_EDATA,
                         "%s: was cut, or could not be read, "
                         "while it was opened",
                         s->name);
    return rc;
}

/* c->entry: what the index says, or all of a single file. */
static int open_entries(struct seam_checkpoint *c, const struct seam_index *x,
                        struct seam_error *err)
{
    uint32_t n = x->text ? x->n : c->shard[0].h.n;

    c->entry = calloc(n ? n : 1, sizeof *c->entry);
    if (!c->entry)
        return seam_fail(err, SEAM_ENOMEM, "%s: out of memory", c->dir);
    for (uint32_t i = 0; i < n; i++) {
        struct seam_shard *s = &c->shard[x->text ? x->e[i].file : 0];

        c->entry[i].shard = (uint16_t)(s - c->shard);
        c->entry[i].t =
            x->text ? seam_st_find(&s->h, x->e[i].name) : &s->h.t[i];
        if (!c->entry[i].t)
            return seam_fail(err, SEAM_EDATA,
                             "%s: tensor \"%.*s\" is said to "
                             "be in %s, which has no such tensor",
                             SEAM_INDEX_FILE, seam_jscan_shown(x->e[i].name),
                             x->e[i].name, s->name);
    }
    c->n = n;
    return 0;
}

/* ---- What the model needs ----------------------------------------------- */

static void shape_show(char *to, size_t cap, const int64_t *shape,
                       uint32_t rank)
{
    size_t n = 0;

    to[0] = 0;
    for (uint32_t i = 0; i < rank && n < cap; i++)
        n += (size_t)snprintf(to + n, cap - n, "%s%lld", i ? ", " : "",
                              (long long)shape[i]);
}

static int need_shape(const struct seam_checkpoint *c, int64_t i,
                      const int64_t *shape, uint32_t rank,
                      struct seam_error *err)
{
    const struct seam_st_tensor *t = c->entry[i].t;
    char found[72], want[72];

    if (t->rank == rank && !memcmp(t->shape, shape, rank * sizeof *shape))
        return 0;
    shape_show(found, sizeof found, t->shape, t->rank);
    shape_show(want, sizeof want, shape, rank);
    return seam_entry_fail(
        c, i, err, "shape [%s], expected [%s] by " CONFIG_FILE, found, want);
}

/* A linear layer stored quantised in three tensors. */
static int need_gptq(struct seam_checkpoint *c, const struct seam_expected *e,
                     int64_t i, struct seam_error *err)
{
    const int64_t shape[2] = { e->shape[1] / 8, e->shape[0] };
    struct seam_gptq g;
    int rc = need_shape(c, i, shape, 2, err);

    if (!rc)
        rc = seam_gptq_find(c, e->name, i, &g, err);
    if (rc)
        return rc;
    if (g.n_in != e->shape[1])
        return seam_entry_fail(c, i, err, "%lld inputs, expected %lld",
                               (long long)g.n_in, (long long)e->shape[1]);
    c->entry[g.qweight].used = true;
    c->entry[g.qzeros].used = true;
    c->entry[g.scales].used = true;
    if (g.g_idx >= 0)
        c->entry[g.g_idx].used = true;
    return 0;
}

struct need {
    struct seam_checkpoint *c;
    struct seam_error *err;
};

static int need_tensor(void *ctx, const struct seam_expected *e)
{
    struct need *need = ctx;
    struct seam_checkpoint *c = need->c;
    bool linear = e->cls == SEAM_CLASS_LINEAR;
    const struct seam_st_tensor *t;
    char name[200];
    int64_t i, q = -1;
    int rc;

    if (linear) {
        snprintf(name, sizeof name, "%s.qweight", e->name);
        q = seam_entry_find(c, name);
    }
    snprintf(name, sizeof name, "%s%s", e->name, linear ? ".weight" : "");
    i = seam_entry_find(c, name);
    if (i >= 0 && q >= 0)
        return seam_entry_fail(c, i, need->err,
                               "is there twice, also as "
                               ".qweight");
    if (q >= 0)
        return need_gptq(c, e, q, need->err);
    if (i < 0)
        return seam_fail(need->err, SEAM_EDATA, "%s: tensor \"%s\" is missing",
                         SEAM_INDEX_FILE, name);
    rc = need_shape(c, i, e->shape, e->rank, need->err);
    if (rc)
        return rc;
    c->entry[i].used = true;
    t = c->entry[i].t;
    if (seam_is_float(t->dtype))
        return 0;
    if (!linear || t->dtype != SEAM_F8E4M3)
        return seam_entry_fail(
            c, i, need->err, "dtype %s, expected %s", seam_dtype_name(t->dtype),
            linear ? "BF16, F16, F32 or F8_E4M3" : "BF16, F16 or F32");
    i = seam_fp8_scale(c, i, need->err);
    if (i < 0)
        return SEAM_EDATA;
    c->entry[i].used = true;
    return 0;
}

/* Every tensor of the model is there; what else is there is counted. */
static int open_needs(struct seam_checkpoint *c, struct seam_error *err)
{
    struct seam_model_config *m = &c->config;
    struct need need = { c, err };
    uint32_t first, n_mtp_tensors, n_extra = 0;
    const char *extra = NULL;
    char prefix[64];
    int rc = seam_inventory(m, 0, m->n_layers, true, need_tensor, &need);

    if (rc)
        return rc;
    /* The MTP block is there when its tensors are: HF's configs do not say. */
    snprintf(prefix, sizeof prefix, SEAM_PREFIX "layers.%u.", m->n_layers);
    n_mtp_tensors = entry_range(c, prefix, &first);
    if (m->n_mtp && n_mtp_tensors) {
        rc = seam_inventory(m, m->n_layers, m->n_layers + 1, false, need_tensor,
                            &need);
        if (rc)
            return rc;
    } else {
        m->n_mtp = 0;
        seam_log(c->log, SEAM_LOG_INFO, WHO, "%s: without its MTP block",
                 c->dir);
    }
    c->n_skipped = entry_range(c, SEAM_VISION, &first);
    if (c->n_skipped)
        seam_log(c->log, SEAM_LOG_INFO, WHO,
                 "%s: %u vision tensors skipped "
                 "(text only)",
                 c->dir, c->n_skipped);
    for (uint32_t i = 0; i < c->n; i++) {
        if (c->entry[i].used || (i >= first && i - first < c->n_skipped))
            continue;
        if (!n_extra++)
            extra = c->entry[i].t->name;
    }
    if (n_extra)
        seam_log(c->log, SEAM_LOG_WARN, WHO,
                 "%s: %u tensors that the model "
                 "has no use for, the first is \"%s\"",
                 c->dir, n_extra, extra);
    return 0;
}

/* ---- Public ------------------------------------------------------------- */

/* Put the folder before the file name that a message begins with, as long as it
 * fits without losing any of the message. */
static void open_place(const struct seam_checkpoint *c, struct seam_error *err)
{
    struct seam_error was = *err;
    size_t n = strlen(c->dir);

    if (!strncmp(was.text, c->dir, n) ||
        n + 1 + strlen(was.text) >= sizeof err->text)
        return;
    snprintf(err->text, sizeof err->text, "%s/%s", c->dir, was.text);
}

int seam_checkpoint_open(struct seam_checkpoint **out, const char *dir,
                         const struct seam_log *log,
                         seam_checkpoint_progress *progress, void *ctx,
                         struct seam_error *err)
{
    struct seam_checkpoint *c = calloc(1, sizeof *c);
    struct seam_index index = { 0 };
    struct seam_error ignored;
    int rc;

    if (!err)
        err = &ignored;
    if (!c || !(c->dir = strdup(dir))) {
        rc = seam_fail(err, SEAM_ENOMEM, "%s: out of memory", dir);
        goto out;
    }
    c->log = log;
    for (size_t n = strlen(c->dir); n > 1 && c->dir[n - 1] == '/'; n--)
        c->dir[n - 1] = 0;
    rc = open_config(c, err);
    if (!rc)
        rc = open_index(c, &index, err);
    if (!rc)
        rc = open_list(c, &index, err);
    for (uint32_t i = 0; !rc && i < c->n_shards; i++) {
        rc = open_shard(c, &c->shard[i], err);
        if (!rc && progress)
            progress(ctx, i + 1, c->n_shards);
    }
    if (!rc)
        rc = open_entries(c, &index, err);
    if (!rc)
        rc = open_needs(c, err);
    if (rc) {
        open_place(c, err);
        goto out;
    }
    *out = c;
    c = NULL;
out:
    seam_index_release(&index);
    seam_checkpoint_close(c);
    return rc;
}

static void keep_free(struct seam_keep *k)
{
    while (k) {
        struct seam_keep *next = k->next;

        free(k->name);
        free(k->p);
        free(k);
        k = next;
    }
}

void seam_checkpoint_close(struct seam_checkpoint *c)
{
    if (!c)
        return;
    for (uint32_t i = 0; i < c->n && c->copy; i++)
        free(c->copy[i]);
    free(c->copy);
    for (uint32_t i = 0; i < c->n_shards; i++) {
        struct seam_shard *s = &c->shard[i];

        if (s->watched)
            seam_sigbus_unwatch(s->slot);
        seam_map_release(&s->map);
        seam_st_release(&s->h);
        free(s->name);
    }
    free(c->shard);
    free(c->entry);
    keep_free(c->files);
    keep_free(c->zeros);
    seam_dense_release(c);
    json_decref(c->root);
    free(c->dir);
    free(c);
}

const char *seam_checkpoint_dir(const struct seam_checkpoint *c)
{
    return c->dir;
}

const struct seam_model_config *seam_checkpoint_config(
    const struct seam_checkpoint *c)
{
    return &c->config;
}

json_t *seam_checkpoint_text_config(const struct seam_checkpoint *c)
{
    json_t *text = json_object_get(c->root, "text_config");

    return text ? text : c->root;
}

const struct seam_st_tensor *seam_checkpoint_find(
    const struct seam_checkpoint *c, const char *name,
    const unsigned char **data)
{
    int64_t i = seam_entry_find(c, name);

    if (i < 0)
        return NULL;
    if (data)
        *data = c->shard[c->entry[i].shard].map.p + c->entry[i].t->offset;
    return c->entry[i].t;
}

int seam_checkpoint_file(struct seam_checkpoint *c, const char *name,
                         struct seam_str *out, struct seam_error *err)
{
    char path[PATH_MAX], *text = NULL;
    struct seam_keep *k;
    uint64_t n;
    int rc;

    for (k = c->files; k; k = k->next)
        if (!strcmp(k->name, name))
            goto found;
    if (!seam_is_plain_name(name))
        return seam_fail(err, SEAM_EINVAL,
                         "side file \"%.*s\": expected a "
                         "plain file name",
                         seam_jscan_shown(name), name);
    rc = open_path(c, name, path, err);
    if (!rc)
        rc = seam_file_read(path, SIDE_MAX_BYTES, &text, &n, err);
    if (rc)
        return rc;
    k = calloc(1, sizeof *k);
    if (!k || !(k->name = strdup(name))) {
        free(k);
        free(text);
        return seam_fail(err, SEAM_ENOMEM, "%s: out of memory", name);
    }
    k->p = (unsigned char *)text;
    k->bytes = n;
    k->next = c->files;
    c->files = k;
found:
    *out = (struct seam_str){ (const char *)k->p, k->bytes };
    return 0;
}

void seam_checkpoint_stats(const struct seam_checkpoint *c,
                           struct seam_checkpoint_stats *out)
{
    struct seam_checkpoint_stats s = { 0 };

    s.n_indexed = c->n;
    s.n_files = c->n_shards;
    s.n_skipped = c->n_skipped;
    for (uint32_t i = 0; i < c->n; i++)
        s.indexed_bytes += c->entry[i].t->bytes;
    for (uint32_t i = 0; i < c->n_shards; i++)
        s.file_bytes += c->shard[i].map.bytes;
    *out = s;
}

void seam_checkpoint_each(const struct seam_checkpoint *c,
                          void (*fn)(void *ctx, const struct seam_st_tensor *t),
                          void *ctx)
{
    for (uint32_t i = 0; i < c->n; i++)
        fn(ctx, c->entry[i].t);
}

const char *seam_checkpoint_lost(const struct seam_checkpoint *c)
{
    for (uint32_t i = 0; i < c->n_shards; i++)
        if (c->shard[i].watched && seam_sigbus_lost(c->shard[i].slot))
            return c->shard[i].name;
    return NULL;
}
