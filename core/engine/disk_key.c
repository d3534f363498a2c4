#include "core/engine/disk_key.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/error.h"
#include "core/base/file.h"

/* A file's own hash, or of nothing when there is none. */
static int key_file(struct seam_buf *b, const char *dir, const char *name,
                    struct seam_error *err)
{
    unsigned char sum[SEAM_DISK_HASH];
    struct seam_map m = { 0 };
    char path[4096];
    int rc;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    rc = seam_map_open(&m, path, err);
    if (rc && rc != SEAM_ENOENT)
        return rc;
    if (!seam_disk_sum(m.p, m.bytes, NULL, 0, sum))
        rc = seam_fail(err, SEAM_ENOMEM, "prefix: out of memory");
    else
        rc = 0;
    seam_map_release(&m);
    seam_buf_fmt(b, "%s ", name);
    seam_buf_add(b, (const char *)sum, sizeof sum);
    return rc;
}

static int key_is_shard(const struct dirent *e)
{
    const char *dot = strrchr(e->d_name, '.');

    return dot && !strcmp(dot, ".safetensors");
}

/* Weights that were replaced have another size or time; to read them all would
 * take longer than what is saved. */
static int key_shards(struct seam_buf *b, const char *dir,
                      struct seam_error *err)
{
    struct dirent **list = NULL;
    int n = scandir(dir, &list, key_is_shard, alphasort), rc = 0;

    if (n < 0)
        return seam_fail_errno(err, SEAM_EDATA, errno, "%s: cannot list", dir);
    for (int i = 0; i < n; i++) {
        struct stat st;
        char path[4096];

        snprintf(path, sizeof path, "%s/%s", dir, list[i]->d_name);
        if (!rc && stat(path, &st))
            rc = seam_fail_errno(err, SEAM_EDATA, errno, "%s: cannot stat",
                                 path);
        if (!rc)
            seam_buf_fmt(b, "%s %lld %lld.%09ld\n", list[i]->d_name,
                         (long long)st.st_size, (long long)st.st_mtim.tv_sec,
                         st.st_mtim.tv_nsec);
        free(list[i]);
    }
    free(list);
    return rc;
}

static int key_plugin(struct seam_buf *b, const struct seam_runtime *rt, int r,
                      struct seam_error *err)
{
    const struct seam_instance *i = rt->inst[r];
    const struct seam_needs *n = &i->needs;
    char *text = NULL;

    if (i->entry->config) {
        text = json_dumps(i->entry->config,
                          JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY);
        if (!text)
            return seam_fail(err, SEAM_ENOMEM, "prefix: out of memory");
    }
    seam_buf_fmt(b, "%s %s %s %llx %u %u %llu %s\n", seam_role_name[r],
                 i->host.name, i->plugin->sha256,
                 (unsigned long long)n->layout_id, n->n_layers, n->n_planes,
                 (unsigned long long)n->state_bytes, text ? text : "");
    for (uint32_t p = 0; p < n->n_planes; p++)
        seam_buf_fmt(b, "%u\n", n->plane[p].bytes_per_token);
    free(text);
    return 0;
}

int seam_disk_identity(const struct seam_runtime *rt,
                       unsigned char out[SEAM_DISK_HASH],
                       struct seam_error *err)
{
    const char *dir = seam_checkpoint_dir(rt->model.checkpoint);
    struct seam_buf b = { 0 };
    int rc;

    seam_buf_fmt(&b, "seam prefix 1, pages of %u, activations %u\n",
                 rt->page_tokens, rt->limits.act_dtype);
    rc = key_file(&b, dir, "config.json", err);
    if (!rc)
        rc = key_file(&b, dir, "model.safetensors.index.json", err);
    if (!rc)
        rc = key_shards(&b, dir, err);
    for (int r = SEAM_ROLE_BACKEND; r <= SEAM_ROLE_MOE && !rc; r++)
        rc = key_plugin(&b, rt, r, err);
    if (!rc && (b.failed || !seam_disk_sum(b.p, b.n, NULL, 0, out)))
        rc = seam_fail(err, SEAM_ENOMEM, "prefix: out of memory");
    seam_buf_release(&b);
    return rc;
}
