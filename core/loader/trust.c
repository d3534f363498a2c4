/* A plugin runs with all rights of the server, so whoever can write its file,
 * or rename a folder above it, has these rights too. */
#include "core/loader/trust.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* True when path is inside folder, at any depth.  Both are free of links. */
static bool place_is_within(const char *path, const char *folder)
{
    size_t n = strlen(folder);

    if (n == 1 && *folder == '/')
        return true;
    return !strncmp(path, folder, n) && path[n] == '/';
}

static bool place_is_allowed(const struct seam_places *places, const char *path,
                             bool bare)
{
    if (bare && places->plugin_dir && place_is_within(path, places->plugin_dir))
        return true;
    for (size_t i = 0; i < places->n_plugin_paths; i++)
        if (place_is_within(path, places->plugin_paths[i]))
            return true;
    return false;
}

static bool place_goes_up(const char *file)
{
    const char *s = file;

    for (;;) {
        if (!strncmp(s, "..", 2) && (s[2] == '/' || !s[2]))
            return true;
        s = strchr(s, '/');
        if (!s)
            return false;
        s++;
    }
}

int seam_place_find(const struct seam_places *places, const char *name,
                    const char *file, char **path, struct seam_error *err)
{
    bool bare = !strchr(file, '/');
    char *full = NULL, *real = NULL;
    int rc = 0;

    if (!*file || !strcmp(file, ".") || place_goes_up(file)) {
        rc = seam_fail(err, SEAM_EINVAL,
                       "%s: not a file name; expected a name in plugin_dir "
                       "or an absolute path without \"..\"",
                       name);
        goto out;
    }
    if (!bare && *file != '/') {
        rc = seam_fail(err, SEAM_EINVAL,
                       "%s: a relative path; write the bare name of a file in "
                       "plugin_dir, or an absolute path within plugin_paths",
                       name);
        goto out;
    }
    if (bare && !places->plugin_dir) {
        rc = seam_fail(err, SEAM_EINVAL,
                       "%s: a bare file name, but plugin_dir is not set", name);
        goto out;
    }
    if (asprintf(&full, "%s%s%s", bare ? places->plugin_dir : "",
                 bare ? "/" : "", file) < 0) {
        full = NULL;
        rc = seam_fail(err, SEAM_ENOMEM, "%s: out of memory", name);
        goto out;
    }
    real = realpath(full, NULL);
    if (!real && errno == ENOENT) {
        rc = bare ? seam_fail(err, SEAM_ENOENT,
                              "%s: no such file in %s; install it there or "
                              "change plugin_dir",
                              name, places->plugin_dir)
                  : seam_fail(err, SEAM_ENOENT, "%s: no such file", name);
        goto out;
    }
    if (!real) {
        rc = seam_fail_errno(err, SEAM_EDATA, errno, "%s: cannot open", full);
        goto out;
    }
    if (!place_is_allowed(places, real, bare)) {
        rc = strcmp(real, full)
                 ? seam_fail(err, SEAM_EINVAL,
                             "%s: leads to %s, which is outside plugin_paths; "
                             "add its folder there",
                             name, real)
                 : seam_fail(err, SEAM_EINVAL,
                             "%s: outside plugin_paths; add its folder there, "
                             "or move it to plugin_dir and write its bare name",
                             name);
        goto out;
    }
    *path = real;
    real = NULL;
out:
    free(real);
    free(full);
    return rc;
}

/* True for a group that consists of user `uid` alone: the one named like the
 * user that many systems make with each account.  There, files are writable by
 * the group by default, which gives nobody else anything. */
static bool trust_group_is_private(uid_t uid, gid_t gid)
{
    struct passwd pw, *user = NULL;
    struct group gr, *group = NULL;
    char pw_text[4096], gr_text[4096];

    if (getpwuid_r(uid, &pw, pw_text, sizeof pw_text, &user) || !user ||
        getgrgid_r(gid, &gr, gr_text, sizeof gr_text, &group) || !group)
        return false;
    if (user->pw_gid != gid || strcmp(user->pw_name, group->gr_name))
        return false;
    for (char **m = group->gr_mem; *m; m++)
        if (strcmp(*m, user->pw_name))
            return false;
    return true;
}

static bool trust_owner(uid_t uid)
{
    return uid == 0 || uid == geteuid();
}

/* Who besides its owner may write: "everybody", "group 100", or NULL. */
static const char *trust_writer(const struct stat *st, char *buf, size_t cap)
{
    if (st->st_mode & S_IWOTH)
        return "everybody";
    if (!(st->st_mode & S_IWGRP) ||
        trust_group_is_private(st->st_uid, st->st_gid))
        return NULL;
    snprintf(buf, cap, "group %u", (uint32_t)st->st_gid);
    return buf;
}

static int trust_check_owner(const char *name, const char *path,
                             const struct stat *st, struct seam_error *err)
{
    if (trust_owner(st->st_uid))
        return 0;
    return seam_fail(err, SEAM_EDATA,
                     "%s: %s belongs to user %u; expected root or user %u, who "
                     "runs this server",
                     name, path, (uint32_t)st->st_uid, (uint32_t)geteuid());
}

static int trust_check_mode(const char *name, const char *path,
                            const struct stat *st, struct seam_error *err)
{
    char buf[32];
    const char *writer = trust_writer(st, buf, sizeof buf);

    if (!writer)
        return 0;
    return seam_fail(err, SEAM_EDATA,
                     "%s: %s is writable by %s (mode %04o); chmod go-w it",
                     name, path, writer, (uint32_t)st->st_mode & 07777);
}

/* The file itself, or the folder that holds it. */
static int trust_check_file(const char *name, const char *path,
                            const struct stat *st, struct seam_error *err)
{
    int rc = trust_check_owner(name, path, st, err);

    return rc ? rc : trust_check_mode(name, path, st, err);
}

/* A folder further up.  Where everybody may write but names are protected, as
 * in /tmp, nobody can rename the folder below.  A foreign owner could, but he
 * cannot make files that belong to us: that is worth a warning, and the rule
 * for containers into which somebody's source tree is mounted. */
static int trust_check_above(const char *name, const char *path,
                             const struct seam_log *log, struct seam_error *err)
{
    struct stat st;

    if (stat(path, &st))
        return seam_fail_errno(err, SEAM_EDATA, errno, "%s: cannot stat %s",
                               name, path);
    if (!trust_owner(st.st_uid))
        seam_log(log, SEAM_LOG_WARN, "loader",
                 "%s: the folder %s above it belongs to user %u, who can "
                 "replace it",
                 name, path, (uint32_t)st.st_uid);
    if (st.st_mode & S_ISVTX)
        return 0;
    return trust_check_mode(name, path, &st, err);
}

/* Check the folder that holds path, and all above it.  folder is path's own
 * memory, cut shorter at each step. */
static int trust_folders(const char *name, char *folder,
                         const struct seam_log *log, struct seam_error *err)
{
    bool holds = true;
    char *slash;
    int rc = 0;

    while (!rc && (slash = strrchr(folder, '/')) && folder[1]) {
        struct stat st;

        slash[slash == folder] = 0;
        if (!holds)
            rc = trust_check_above(name, folder, log, err);
        else if (stat(folder, &st))
            rc = seam_fail_errno(err, SEAM_EDATA, errno, "%s: cannot stat %s",
                                 name, folder);
        else
            rc = trust_check_file(name, folder, &st, err);
        holds = false;
    }
    return rc;
}

int seam_trust_open(const char *name, const char *path,
                    const struct seam_log *log, int *fd, struct seam_error *err)
{
    char *folder = NULL;
    struct stat st;
    int f = -1, rc = 0;

    /* Before opening, because opening a device can do things. */
    if (lstat(path, &st)) {
        rc = seam_fail_errno(err, SEAM_EDATA, errno, "%s: cannot stat", path);
        goto out;
    }
    if (S_ISREG(st.st_mode)) {
        f = open(path,
                 O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW);
        if (f < 0 || fstat(f, &st)) {
            rc = seam_fail_errno(err, SEAM_EDATA, errno, "%s: cannot open",
                                 path);
            goto out;
        }
    }
    if (!S_ISREG(st.st_mode)) {
        rc = seam_fail(err, SEAM_EDATA, "%s: is %s; expected a regular file",
                       path,
                       S_ISDIR(st.st_mode)    ? "a directory"
                       : S_ISFIFO(st.st_mode) ? "a FIFO"
                                              : "a device or socket");
        goto out;
    }
    rc = trust_check_file(name, path, &st, err);
    if (rc)
        goto out;
    folder = strdup(path);
    if (!folder) {
        rc = seam_fail(err, SEAM_ENOMEM, "%s: out of memory", name);
        goto out;
    }
    rc = trust_folders(name, folder, log, err);
    if (rc)
        goto out;
    *fd = f;
    f = -1;
out:
    if (f >= 0)
        close(f);
    free(folder);
    return rc;
}

int seam_trust_folder(const char *name, const char *path, int fd,
                      struct seam_error *err)
{
    struct stat st;

    if (fstat(fd, &st))
        return seam_fail_errno(err, SEAM_EDATA, errno, "%s: cannot stat %s",
                               name, path);
    return trust_check_file(name, path, &st, err);
}
