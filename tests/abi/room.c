#include "tests/abi/room.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/file.h"

const char *room_path(const struct room *r, const char *name)
{
    static char buf[8][512];
    static int next;
    char *s = buf[next++ % 8];

    snprintf(s, sizeof *buf, "%s/%s", r->root, name);
    return s;
}

struct seam_loader *room_loader(const struct room *r, const char *gpu)
{
    const char *paths[] = { r->other };
    struct seam_loader_opts opts = {
        .plugin_dir = r->plugins,
        .plugin_paths = paths,
        .n_plugin_paths = 1,
        .gpu = gpu,
        .log = &r->log,
    };
    struct seam_loader *l = NULL;
    struct seam_error err = { 0 };

    cr_assert_eq(seam_loader_new(&l, &opts, &err), 0, "%s", err.text);
    return l;
}

void room_open(struct room *r)
{
    const char *tmp = getenv("TMPDIR");

    memset(r, 0, sizeof *r);
    umask(022);
    snprintf(r->root, sizeof r->root, "%s/seam-abi-XXXXXX",
             tmp && *tmp ? tmp : "/tmp");
    cr_assert(mkdtemp(r->root), "mkdtemp %s", r->root);
    chmod(r->root, 0755);
    snprintf(r->plugins, sizeof r->plugins, "%s/plugins", r->root);
    snprintf(r->other, sizeof r->other, "%s/other", r->root);
    snprintf(r->tmp, sizeof r->tmp, "%s/tmp", r->root);
    snprintf(r->log_path, sizeof r->log_path, "%s/log", r->root);
    cr_assert(!mkdir(r->plugins, 0755) && !mkdir(r->other, 0755) &&
              !mkdir(r->tmp, 0755));
    setenv("TMPDIR", r->tmp, 1);
    r->log.fd = open(r->log_path, O_RDWR | O_CREAT | O_APPEND, 0600);
    r->log.level = SEAM_LOG_DEBUG;
    cr_assert_geq(r->log.fd, 0);
    r->loader = room_loader(r, NULL);
}

static int room_remove(const char *path, const struct stat *st, int type,
                       struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}

void room_close(struct room *r)
{
    seam_loader_free(r->loader);
    close(r->log.fd);
    nftw(r->root, room_remove, 16, FTW_DEPTH | FTW_PHYS);
}

unsigned char *room_read(const char *from, size_t *n)
{
    struct seam_error err = { 0 };
    char path[512], *p = NULL;
    uint64_t bytes = 0;

    snprintf(path, sizeof path, "%s/%s.so", ABI_PLUGIN_DIR, from);
    cr_assert_eq(seam_file_read(path, 1 << 26, &p, &bytes, &err), 0, "%s",
                 err.text);
    *n = (size_t)bytes;
    return (unsigned char *)p;
}

void room_write(const struct room *r, const char *to, const void *p, size_t n)
{
    int fd = open(room_path(r, to), O_WRONLY | O_CREAT | O_TRUNC, 0644);

    cr_assert_geq(fd, 0, "%s", to);
    cr_assert_eq(write(fd, p, n), (ssize_t)n, "%s", to);
    close(fd);
}

void room_copy(const struct room *r, const char *from, const char *to)
{
    size_t n;
    unsigned char *p = room_read(from, &n);

    room_write(r, to, p, n);
    free(p);
}

void room_replace(const struct room *r, const char *from, const char *to)
{
    room_copy(r, from, "incoming");
    cr_assert_eq(rename(room_path(r, "incoming"), room_path(r, to)), 0);
}

int room_count(const struct room *r, const char *name)
{
    DIR *d = opendir(room_path(r, name));
    const struct dirent *e;
    int n = 0;

    cr_assert(d, "%s", name);
    while ((e = readdir(d)))
        n += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
    closedir(d);
    return n;
}

bool room_logged(const struct room *r, const char *text)
{
    char *p = NULL;
    uint64_t n = 0;
    bool found;

    cr_assert_eq(seam_file_read(r->log_path, 1 << 20, &p, &n, NULL), 0);
    found = strstr(p, text) != NULL;
    free(p);
    return found;
}

int room_load(struct room *r, const char *file, const char *name, uint16_t kind,
              struct seam_loaded **out, struct seam_error *err)
{
    struct seam_want want = {
        .name = name, .file = file, .unpinned = true, .kind = kind
    };

    return seam_loader_load(r->loader, &want, out, err);
}

const struct plug_test *room_test(const struct seam_loaded *p)
{
    const struct plug_test *t = p->plugin.extension("test/1");

    cr_assert(t, "plug.c answers \"test/1\"");
    return t;
}
