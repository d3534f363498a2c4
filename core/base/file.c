#include "core/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* O_NONBLOCK so that opening a FIFO is an answer and not a wait. */
static int file_open(const char *path, struct stat *st, struct seam_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    if (fd < 0)
        return seam_fail_errno(err, errno == ENOENT ? SEAM_ENOENT : SEAM_EDATA,
                               errno, "%s: cannot open", path);
    if (fstat(fd, st)) {
        int saved = errno;

        close(fd);
        return seam_fail_errno(err, SEAM_EDATA, saved, "%s: cannot stat", path);
    }
    if (!S_ISREG(st->st_mode)) {
        close(fd);
        return seam_fail(err, SEAM_EDATA, "%s: is %s, expected a regular file",
                         path,
                         S_ISDIR(st->st_mode)    ? "a directory"
                         : S_ISFIFO(st->st_mode) ? "a FIFO"
                                                 : "a device or socket");
    }
    return fd;
}

int seam_map_open(struct seam_map *m, const char *path, struct seam_error *err)
{
    struct stat st;
    void *p = NULL;
    int fd = file_open(path, &st, err), rc = 0;

    if (fd < 0)
        return fd;
    if (st.st_size > 0) {
        p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED)
            rc = seam_fail_errno(err, SEAM_ENOMEM, errno, "%s: cannot map",
                                 path);
        else
            /* A hint: file systems with large folios then cache the file in
             * pages of 2 MiB, which load faster and need fewer entries in the
             * processor's page tables. */
            madvise(p, (size_t)st.st_size, MADV_HUGEPAGE);
    }
    close(fd);
    if (rc)
        return rc;
    m->p = p;
    m->bytes = (uint64_t)st.st_size;
    return 0;
}

void seam_map_release(struct seam_map *m)
{
    if (m->p)
        munmap((void *)m->p, m->bytes);
    *m = (struct seam_map){ 0 };
}

int seam_file_read(const char *path, uint64_t max, char **text, uint64_t *bytes,
                   struct seam_error *err)
{
    struct stat st;
    char *buf = NULL;
    uint64_t n = 0;
    int fd = file_open(path, &st, err), rc = 0;

    if (fd < 0)
        return fd;
    if ((uint64_t)st.st_size > max) {
        rc = seam_fail(err, SEAM_EDATA, "%s: %llu bytes, expected at most %llu",
                       path, (unsigned long long)st.st_size,
                       (unsigned long long)max);
        goto out;
    }
    buf = malloc((size_t)st.st_size + 1);
    if (!buf) {
        rc = seam_fail(err, SEAM_ENOMEM, "%s: out of memory", path);
        goto out;
    }
    while (n < (uint64_t)st.st_size) {
        ssize_t got = read(fd, buf + n, (size_t)((uint64_t)st.st_size - n));

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            rc = seam_fail_errno(
                err, SEAM_EDATA, got ? errno : 0, "%s: read %llu of %llu bytes",
                path, (unsigned long long)n, (unsigned long long)st.st_size);
            goto out;
        }
        n += (uint64_t)got;
    }
    buf[n] = 0;
    *text = buf;
    *bytes = n;
    buf = NULL;
out:
    free(buf);
    close(fd);
    return rc;
}
