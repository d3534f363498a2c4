#include "folder.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/base/json.h"

#define INDEX "model.safetensors.index.json"

const char *folder_path(const struct folder *f, const char *name)
{
    static char path[4][512];
    static int next;
    char *to = path[next++ % 4];

    snprintf(to, sizeof path[0], "%s/%s", f->dir, name);
    return to;
}

static void copy_file(const char *from, const char *to)
{
    struct seam_map m = { 0 };
    struct seam_error err;
    FILE *out;

    cr_assert_eq(seam_map_open(&m, from, &err), 0, "%s", err.text);
    out = fopen(to, "wx");
    cr_assert_not_null(out, "%s", to);
    cr_assert_eq(fwrite(m.p, 1, m.bytes, out), m.bytes);
    cr_assert_eq(fclose(out), 0);
    seam_map_release(&m);
}

void folder_make(struct folder *f, const char *tree, bool link)
{
    char from[512], path[1024];
    struct dirent *e;
    DIR *d;

    *f = (struct folder){ .dir = "/tmp/seam-test-XXXXXX" };
    cr_assert_not_null(mkdtemp(f->dir));
    snprintf(from, sizeof from, SEAM_TEST_SOURCE_DIR "/%s", tree);
    d = opendir(from);
    cr_assert_not_null(d, "%s", from);
    while ((e = readdir(d))) {
        if (e->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", from, e->d_name);
        if (link && strstr(e->d_name, ".safetensors") &&
            !strstr(e->d_name, ".json"))
            cr_assert_eq(symlink(path, folder_path(f, e->d_name)), 0);
        else
            copy_file(path, folder_path(f, e->d_name));
    }
    closedir(d);
    snprintf(path, sizeof path, "/tmp/seam-log-XXXXXX");
    f->log = (struct seam_log){ .fd = mkstemp(path), .level = SEAM_LOG_DEBUG };
    cr_assert_geq(f->log.fd, 0);
    unlink(path);
}

void folder_remove(struct folder *f)
{
    struct dirent *e;
    DIR *d = opendir(f->dir);

    cr_assert_not_null(d);
    while ((e = readdir(d)))
        if (e->d_name[0] != '.' && unlinkat(dirfd(d), e->d_name, 0))
            unlinkat(dirfd(d), e->d_name, AT_REMOVEDIR);
    closedir(d);
    cr_expect_eq(rmdir(f->dir), 0);
    close(f->log.fd);
}

struct seam_checkpoint *folder_open(struct folder *f)
{
    struct seam_checkpoint *c = NULL;
    struct seam_error err;

    cr_assert_eq(seam_checkpoint_open(&c, f->dir, &f->log, NULL, NULL, &err), 0,
                 "%s", err.text);
    return c;
}

int folder_try(struct folder *f, struct seam_error *err)
{
    struct seam_checkpoint *c = NULL;
    int rc;

    *err = (struct seam_error){ 0 };
    rc = seam_checkpoint_open(&c, f->dir, &f->log, NULL, NULL, err);
    if (rc)
        cr_expect_null(c);
    seam_checkpoint_close(c);
    return rc;
}

const char *folder_said(struct folder *f)
{
    ssize_t n = pread(f->log.fd, f->said, sizeof f->said - 1, 0);

    cr_assert_geq(n, 0);
    f->said[n] = 0;
    return f->said;
}

int folder_count(const char *text, const char *what)
{
    int n = 0;

    for (; (text = strstr(text, what)); text += strlen(what))
        n++;
    return n;
}

json_t *folder_load(const struct folder *f, const char *name)
{
    struct seam_error err;
    json_t *v = seam_json_file(folder_path(f, name), 1 << 24, &err);

    cr_assert_not_null(v, "%s", err.text);
    return v;
}

void folder_store(const struct folder *f, const char *name, json_t *v)
{
    cr_assert_eq(json_dump_file(v, folder_path(f, name), 0), 0);
    json_decref(v);
}

void folder_config(const struct folder *f, bool text, const char *key,
                   const char *value)
{
    json_t *root = folder_load(f, "config.json"), *o = root;

    if (text)
        o = json_object_get(root, "text_config");
    if (value)
        json_object_set_new(o, key, json_loads(value, JSON_DECODE_ANY, NULL));
    else
        json_object_del(o, key);
    folder_store(f, "config.json", root);
}

const char *folder_shard_of(const struct folder *f, const char *tensor,
                            char to[256])
{
    json_t *root = folder_load(f, INDEX);
    const char *s = json_string_value(
        json_object_get(json_object_get(root, "weight_map"), tensor));

    cr_assert_not_null(s, "%s", tensor);
    snprintf(to, 256, "%s", s);
    json_decref(root);
    return to;
}

void folder_forget(const struct folder *f, const char *tensor)
{
    json_t *root = folder_load(f, INDEX);

    cr_assert_eq(json_object_del(json_object_get(root, "weight_map"), tensor),
                 0, "%s", tensor);
    folder_store(f, INDEX, root);
}

void folder_put(const struct folder *f, const char *file, const struct put *t,
                uint32_t n, uint32_t skew, bool index)
{
    char *text = NULL;
    uint64_t at = 0;
    size_t length = 0;
    FILE *h = open_memstream(&text, &length), *out;

    cr_assert_not_null(h);
    fputc('{', h);
    for (uint32_t i = 0; i < n; i++) {
        fprintf(h, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", i ? "," : "",
                t[i].name, t[i].dtype);
        for (uint32_t k = 0; k < t[i].rank; k++)
            fprintf(h, "%s%lld", k ? "," : "", (long long)t[i].shape[k]);
        fprintf(h, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)at,
                (unsigned long long)(at + t[i].bytes));
        at += t[i].bytes;
    }
    fputc('}', h);
    fflush(h);
    for (size_t pad = (8 - length % 8) % 8 + skew; pad; pad--)
        fputc(' ', h);
    fclose(h);

    unlink(folder_path(f, file));
    out = fopen(folder_path(f, file), "wx");
    cr_assert_not_null(out, "%s", file);
    for (int i = 0; i < 8; i++)
        fputc((int)((uint64_t)length >> 8 * i & 0xff), out);
    fwrite(text, 1, length, out);
    for (uint32_t i = 0; i < n; i++)
        for (uint64_t b = 0; b < t[i].bytes; b++)
            fputc(t[i].data ? ((const unsigned char *)t[i].data)[b] : 0, out);
    cr_assert_eq(fclose(out), 0);
    free(text);

    if (index) {
        json_t *root = folder_load(f, INDEX);

        for (uint32_t i = 0; i < n; i++)
            json_object_set_new(json_object_get(root, "weight_map"), t[i].name,
                                json_string(file));
        folder_store(f, INDEX, root);
    }
}

void folder_patch(const struct folder *f, const char *tensor, uint64_t at,
                  const void *data, uint64_t n)
{
    const struct seam_st_tensor *t;
    struct seam_st_header h;
    struct seam_map m = { 0 };
    struct seam_error err;
    char shard[256];
    int fd;

    folder_shard_of(f, tensor, shard);
    cr_assert_eq(seam_map_open(&m, folder_path(f, shard), &err), 0);
    cr_assert_eq(seam_st_parse(&h, shard, m.p, m.bytes, m.bytes, &err), 0);
    t = seam_st_find(&h, tensor);
    cr_assert(t && at + n <= t->bytes);
    fd = open(folder_path(f, shard), O_WRONLY);
    cr_assert_geq(fd, 0);
    cr_assert_eq(pwrite(fd, data, n, (off_t)(t->offset + at)), (ssize_t)n);
    close(fd);
    seam_st_release(&h);
    seam_map_release(&m);
}
