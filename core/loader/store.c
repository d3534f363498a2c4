#include "core/loader/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "core/loader/loader.h"

/* Plugins with device code for many targets are a few hundred MiB. */
#define STORE_MAX_BYTES ((uint64_t)4 << 30)
#define STORE_CHUNK     ((size_t)256 << 10)

#define SHA256_BYTES    32

/* Folders of this name that nobody has locked are removed. */
#define STORE_PREFIX "seam-store-"

/* Remove the files of folder `dir`, which has no folders in it. */
static void store_empty(int dir)
{
    int fd = dup(dir);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry;

    if (!d) {
        if (fd >= 0)
            close(fd);
        return;
    }
    while ((entry = readdir(d)))
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
            unlinkat(dir, entry->d_name, 0);
    closedir(d);
}

/* Remove store `name` of folder `root` if nobody has it locked.  What cannot be
 * removed stays: it is somebody else's, or of no harm. */
static void store_sweep(int root, const char *name)
{
    int fd =
        openat(root, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;

    if (fd < 0)
        return;
    if (!fstat(fd, &st) && st.st_uid == geteuid() &&
        !flock(fd, LOCK_EX | LOCK_NB)) {
        store_empty(fd);
        unlinkat(root, name, AT_REMOVEDIR);
    }
    close(fd);
}

static void store_sweep_all(const char *root)
{
    DIR *d = opendir(root);
    const struct dirent *entry;

    while (d && (entry = readdir(d)))
        if (!strncmp(entry->d_name, STORE_PREFIX, sizeof STORE_PREFIX - 1))
            store_sweep(dirfd(d), entry->d_name);
    if (d)
        closedir(d);
}

/* Make and lock a folder.  Another process may sweep it away before it is
 * locked; then it has no link any more, and is made again. */
static int store_make(struct seam_store *s, const char *root,
                      struct seam_error *err)
{
    struct stat st = { 0 };
    char *dir = NULL;
    int fd = -1, rc = 0;

    do {
        if (fd >= 0)
            close(fd);
        fd = -1;
        free(dir);
        if (asprintf(&dir, "%s/" STORE_PREFIX "XXXXXX", root) < 0) {
            dir = NULL;
            rc = seam_fail(err, SEAM_ENOMEM, "out of memory");
            goto out;
        }
        if (!mkdtemp(dir)) {
            rc = seam_fail_errno(err, SEAM_EDATA, errno,
                                 "%s: cannot make a folder for copies of "
                                 "plugins; set TMPDIR",
                                 root);
            goto out;
        }
        fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 && errno == ENOENT)
            continue;
        if (fd < 0 || flock(fd, LOCK_EX) || fstat(fd, &st)) {
            rc =
                seam_fail_errno(err, SEAM_EDATA, errno, "%s: cannot lock", dir);
            rmdir(dir);
            goto out;
        }
    } while (fd < 0 || !st.st_nlink);
    s->dir = dir;
    s->fd = fd;
    dir = NULL;
    fd = -1;
out:
    if (fd >= 0)
        close(fd);
    free(dir);
    return rc;
}

int seam_store_open(struct seam_store *s, struct seam_error *err)
{
    const char *tmp = getenv("TMPDIR");
    struct statvfs fs;
    char *root = NULL;
    int rc = 0;

    if (!tmp || !*tmp)
        tmp = "/tmp";
    root = realpath(tmp, NULL);
    if (!root) {
        rc = seam_fail_errno(err, SEAM_ENOENT, errno,
                             "%s: no folder for copies of plugins; set TMPDIR",
                             tmp);
        goto out;
    }
    if (statvfs(root, &fs) == 0 && (fs.f_flag & ST_NOEXEC)) {
        rc = seam_fail(err, SEAM_EDATA,
                       "%s: mounted noexec, plugins cannot be loaded from "
                       "there; set TMPDIR to another folder",
                       root);
        goto out;
    }
    store_sweep_all(root);
    rc = store_make(s, root, err);
out:
    free(root);
    return rc;
}

void seam_store_close(struct seam_store *s)
{
    if (!s->dir)
        return;
    store_empty(s->fd);
    rmdir(s->dir);
    close(s->fd);
    free(s->dir);
    *s = (struct seam_store){ 0 };
}

static int store_write(int out, const unsigned char *p, size_t n)
{
    while (n) {
        ssize_t done = write(out, p, n);

        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return -1;
        p += done;
        n -= (size_t)done;
    }
    return 0;
}

/* Hash fd to its end into 64 hex digits, copying it to `out` unless that is
 * -1. */
static int store_digest(int fd, int out, const char *name, char *hex,
                        struct seam_error *err)
{
    unsigned char md[SHA256_BYTES];
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    unsigned char *buf = malloc(STORE_CHUNK);
    uint64_t total = 0;
    ssize_t got = 1;
    int rc = 0;

    if (!ctx || !buf || EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) != 1) {
        rc = seam_fail(err, SEAM_ENOMEM, "%s: no memory for hashing", name);
        goto out;
    }
    while (got) {
        got = read(fd, buf, STORE_CHUNK);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            rc = seam_fail_errno(err, SEAM_EDATA, errno, "%s: cannot read",
                                 name);
            goto out;
        }
        total += (uint64_t)got;
        if (total > STORE_MAX_BYTES) {
            rc = seam_fail(err, SEAM_EDATA,
                           "%s: more than %llu bytes; expected a plugin", name,
                           (unsigned long long)STORE_MAX_BYTES);
            goto out;
        }
        if (EVP_DigestUpdate(ctx, buf, (size_t)got) != 1) {
            rc = seam_fail(err, SEAM_ENOMEM, "%s: cannot hash", name);
            goto out;
        }
        if (out >= 0 && store_write(out, buf, (size_t)got)) {
            rc = seam_fail_errno(err, SEAM_EDATA, errno,
                                 "%s: cannot copy it to the private store; "
                                 "set TMPDIR to a folder with more room",
                                 name);
            goto out;
        }
    }
    if (EVP_DigestFinal_ex(ctx, md, NULL) != 1) {
        rc = seam_fail(err, SEAM_ENOMEM, "%s: cannot hash", name);
        goto out;
    }
    for (size_t i = 0; i < sizeof md; i++)
        snprintf(hex + 2 * i, 3, "%02x", md[i]);
out:
    free(buf);
    EVP_MD_CTX_free(ctx);
    return rc;
}

/* A name for content `sha` that is not taken; NULL when out of memory. */
static char *store_name(const struct seam_store *s, const char *sha)
{
    for (uint32_t i = 0;; i++) {
        char *path = NULL;
        int n = i ? asprintf(&path, "%s/%s.%u.so", s->dir, sha, i)
                  : asprintf(&path, "%s/%s.so", s->dir, sha);

        if (n < 0)
            return NULL;
        if (access(path, F_OK))
            return path;
        free(path);
    }
}

int seam_store_add(struct seam_store *s, int fd, const char *name, char *sha,
                   char **copy, struct seam_error *err)
{
    char *incoming = NULL, *path = NULL;
    char hex[2 * SHA256_BYTES + 1];
    bool made = false;
    int out = -1, rc = 0;

    if (asprintf(&incoming, "%s/incoming", s->dir) < 0) {
        incoming = NULL;
        rc = seam_fail(err, SEAM_ENOMEM, "%s: out of memory", name);
        goto out;
    }
    out = open(incoming, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
               0500);
    if (out < 0) {
        rc = seam_fail_errno(err, SEAM_EDATA, errno, "%s: cannot copy it to %s",
                             name, s->dir);
        goto out;
    }
    made = true;
    rc = store_digest(fd, out, name, hex, err);
    if (rc)
        goto out;
    path = store_name(s, hex);
    if (!path) {
        rc = seam_fail(err, SEAM_ENOMEM, "%s: out of memory", name);
        goto out;
    }
    if (rename(incoming, path)) {
        rc = seam_fail_errno(err, SEAM_EDATA, errno, "%s: cannot copy it to %s",
                             name, s->dir);
        goto out;
    }
    made = false;
    memcpy(sha, hex, sizeof hex);
    *copy = path;
    path = NULL;
out:
    if (out >= 0)
        close(out);
    if (made)
        unlink(incoming);
    free(path);
    free(incoming);
    return rc;
}

int seam_sha256_file(const char *path, char out[65], struct seam_error *err)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), rc;

    if (fd < 0)
        return seam_fail_errno(err, errno == ENOENT ? SEAM_ENOENT : SEAM_EDATA,
                               errno, "%s: cannot open", path);
    if (fstat(fd, &st) || !S_ISREG(st.st_mode))
        rc = seam_fail(err, SEAM_EDATA, "%s: not a regular file", path);
    else
        rc = store_digest(fd, -1, path, out, err);
    close(fd);
    return rc;
}
