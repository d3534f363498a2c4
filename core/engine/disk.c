#include "core/engine/disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/base/num.h"
#include "core/engine/disk_index.h"
#include "core/loader/trust.h"

/* Bytes of one run: what is read and summed for the sake of one page of it. */
#define RUN_BYTES (UINT64_C(64) << 20)
/* Bytes that may wait to be written, and at least two snapshots. */
#define QUEUE_BYTES (UINT64_C(256) << 20)
#define TMP_PREFIX  "seam-tmp-"
/* Nothing that was put there is followed, or waited for. */
#define READ_FLAGS (O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)

/* One snapshot to be written: runs, then the state. */
struct disk_job {
    struct disk_job *next;
    struct disk_item **item; /* [n_items] */
    uint32_t n_items;
    int32_t *ids;    /* from the first item's first page on */
    char *body;      /* the items' bodies one after the other */
    uint64_t *bytes; /* [n_items] of each body */
    uint64_t total;
};

/* Pages of one file that a load needs. */
struct disk_part {
    char name[SEAM_DISK_NAME];
    unsigned char key[SEAM_DISK_HASH];
    uint32_t from, n, to; /* pages of the file, and where they go */
};

struct seam_disk_load {
    struct seam_disk_load *next;
    struct seam_disk *d;
    _Atomic int refs;  /* the asker's and the reader's */
    _Atomic int state; /* what seam_disk_loaded says */
    uint32_t pos, first_page, n_pages;
    struct disk_part *part; /* [n_parts], the state's file last */
    uint32_t n_parts;
    char *page; /* [n_pages][page_bytes] */
    char *state_bytes;
};

/* A file to be removed. */
struct doomed {
    struct doomed *next;
    char name[SEAM_DISK_NAME];
};

/* What seam_disk_stats tells, so that it waits for nobody, nor anybody for it.
 * relaxed: each is a figure by itself. */
struct figures {
    _Atomic uint64_t bytes, n_states, n_runs, n_written, n_evicted, n_dropped,
        n_damaged, n_foreign, queue_bytes;
};

struct seam_disk {
    struct seam_disk_opts o;
    char *dir;
    int dirfd, lockfd;
    pthread_t writer, reader;
    bool started;
    uint64_t n_tmp;        /* the writer's, and until it starts the opener's */
    struct doomed *doomed; /* the same */

    /* Guards all that follows. */
    pthread_mutex_t lock;
    pthread_cond_t news; /* work came or went, or stop was asked */
    struct disk_index index;
    struct disk_job *job, **last_job; /* the first one is being written */
    struct seam_disk_load *load, **last_load;
    uint64_t queue_bytes;
    uint64_t n_written, n_evicted, n_dropped, n_damaged;
    bool stop;
    bool said_failed; /* that a write failed, until one succeeds */

    struct figures figures;
};

/* Every change of a figure ends so. */
static void disk_unlock(struct seam_disk *d)
{
    struct figures *f = &d->figures;
    const struct {
        _Atomic uint64_t *to;
        uint64_t n;
    } all[] = {
        { &f->bytes, d->index.bytes },
        { &f->n_states, d->index.n_states },
        { &f->n_runs, d->index.n_runs },
        { &f->n_written, d->n_written },
        { &f->n_evicted, d->n_evicted },
        { &f->n_dropped, d->n_dropped },
        { &f->n_damaged, d->n_damaged },
        { &f->n_foreign, d->index.n_foreign },
        { &f->queue_bytes, d->queue_bytes },
    };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        atomic_store_explicit(all[i].to, all[i].n, memory_order_relaxed);
    pthread_mutex_unlock(&d->lock);
}

/* ---- Files --------------------------------------------------------------- */

static bool fd_write(int fd, const void *p, uint64_t n)
{
    const char *at = p;

    while (n) {
        ssize_t put = write(fd, at, n < 1 << 30 ? n : 1 << 30);

        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return false;
        at += put;
        n -= (uint64_t)put;
    }
    return true;
}

static bool fd_read(int fd, void *p, uint64_t n)
{
    char *at = p;

    while (n) {
        ssize_t got = read(fd, at, n < 1 << 30 ? n : 1 << 30);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        at += got;
        n -= (uint64_t)got;
    }
    return true;
}

/* The header of an open file; *text is to be freed in any case.  As
 * seam_disk_head_read; ENOENT: it cannot be read at all. */
static int file_head(int fd, struct seam_disk_head *h, unsigned char **text,
                     const char **why)
{
    unsigned char first[SEAM_DISK_FIXED];
    struct stat st;
    uint64_t n;

    *text = NULL;
    *why = "no header";
    if (fstat(fd, &st) || !S_ISREG(st.st_mode))
        return SEAM_ENOENT;
    if (st.st_size < SEAM_DISK_FIXED)
        return SEAM_EDATA;
    if (!fd_read(fd, first, sizeof first))
        return SEAM_ENOENT;
    n = seam_disk_head_bytes(first);
    if (!n || n > (uint64_t)st.st_size)
        return SEAM_EDATA;
    *text = malloc(n);
    if (!*text)
        return SEAM_ENOENT;
    memcpy(*text, first, sizeof first);
    if (!fd_read(fd, *text + sizeof first, n - sizeof first))
        return SEAM_ENOENT;
    return seam_disk_head_read(h, *text, n, (uint64_t)st.st_size, why);
}

/* Is it about the same kind of bytes as ours? */
static bool head_fits(const struct seam_disk *d, const struct seam_disk_head *h)
{
    return h->page_tokens == d->o.page_tokens &&
           h->page_bytes == d->o.page_bytes &&
           h->state_bytes ==
               (h->kind == SEAM_DISK_STATE ? d->o.state_bytes : 0) &&
           !memcmp(h->identity, d->o.identity, SEAM_DISK_HASH);
}

/* disk_drop of what is evicted or damaged.  Under the lock, because a name
 * must not be written anew in between. */
static void drop_file(void *ctx, const struct disk_item *i)
{
    const struct seam_disk *d = ctx;

    if (!i->pending)
        unlinkat(d->dirfd, i->name, 0);
}

static void disk_damaged(struct seam_disk *d, const char *name, const char *why)
{
    struct disk_item *i;

    seam_log(d->o.log, SEAM_LOG_WARN, "prefix",
             "%s/%s: damaged, %s; removed, with what builds on it", d->dir,
             name, why);
    pthread_mutex_lock(&d->lock);
    d->n_damaged++;
    i = disk_index_named(&d->index, name);
    if (i && !i->pending)
        disk_index_remove_tree(&d->index, i, drop_file, d);
    else if (!i)
        unlinkat(d->dirfd, name, 0);
    disk_unlock(d);
}

/* ---- Reading ------------------------------------------------------------- */

/* One part of a load.  ENOENT: the file is no longer there. */
static int load_part(struct seam_disk *d, struct seam_disk_load *l,
                     const struct disk_part *p, bool state, const char **why)
{
    int fd = openat(d->dirfd, p->name, READ_FLAGS);
    unsigned char *text = NULL, sum[SEAM_DISK_HASH];
    struct seam_disk_head h;
    char *body = NULL;
    int rc = SEAM_ENOENT;

    if (fd < 0)
        return SEAM_ENOENT;
    rc = file_head(fd, &h, &text, why);
    if (rc)
        goto out;
    *why = "it is another file than its name says";
    rc = SEAM_EDATA;
    if (!head_fits(d, &h) || memcmp(h.key, p->key, SEAM_DISK_HASH) != 0 ||
        (uint64_t)p->from + p->n > h.n_pages)
        goto out;
    rc = SEAM_ENOENT;
    body = malloc(h.body_bytes + 1);
    if (!body || !fd_read(fd, body, h.body_bytes) ||
        !seam_disk_sum(body, h.body_bytes, NULL, 0, sum))
        goto out;
    *why = "the content's checksum is wrong";
    rc = SEAM_EDATA;
    if (memcmp(sum, h.body_sum, sizeof sum) != 0)
        goto out;
    memcpy(l->page + p->to * d->o.page_bytes, body + p->from * d->o.page_bytes,
           p->n * d->o.page_bytes);
    if (state)
        memcpy(l->state_bytes, body + h.n_pages * d->o.page_bytes,
               d->o.state_bytes);
    /* Its time is when it was last used, also after a restart. */
    futimens(fd, NULL);
    rc = 0;
out:
    free(body);
    free(text);
    close(fd);
    return rc;
}

static bool load_read(struct seam_disk *d, struct seam_disk_load *l)
{
    l->page = malloc(l->n_pages * d->o.page_bytes + 1);
    l->state_bytes = malloc(d->o.state_bytes + 1);
    if (!l->page || !l->state_bytes)
        return false;
    for (uint32_t i = 0; i < l->n_parts; i++) {
        const char *why = "";
        int rc;

        /* Given up by the asker: nobody looks at it any more. */
        if (atomic_load_explicit(&l->refs, memory_order_relaxed) == 1)
            return false;
        rc = load_part(d, l, &l->part[i], i + 1 == l->n_parts, &why);
        if (rc == SEAM_EDATA)
            disk_damaged(d, l->part[i].name, why);
        if (rc)
            return false;
    }
    return true;
}

static void *reader_main(void *arg)
{
    struct seam_disk *d = arg;

    for (;;) {
        struct seam_disk_load *l;

        pthread_mutex_lock(&d->lock);
        while (!d->load && !d->stop)
            pthread_cond_wait(&d->news, &d->lock);
        l = d->load;
        if (l) {
            d->load = l->next;
            if (!d->load)
                d->last_load = &d->load;
        }
        disk_unlock(d);
        if (!l)
            return NULL;
        /* release: whoever sees the state sees the bytes. */
        atomic_store_explicit(&l->state, load_read(d, l) ? 1 : -1,
                              memory_order_release);
        seam_disk_load_free(l);
        d->o.loaded(d->o.ctx);
    }
}

/* ---- Writing ------------------------------------------------------------- */

static bool item_write(struct seam_disk *d, const struct disk_item *i,
                       const int32_t *ids, const char *body, uint64_t bytes)
{
    struct seam_disk_head h = {
        .kind = (enum seam_disk_kind)i->kind,
        .page_tokens = d->o.page_tokens,
        .first_page = i->first_page,
        .n_pages = i->n_pages,
        .pos = i->pos,
        .saved = i->saved,
        .page_bytes = d->o.page_bytes,
        .state_bytes = i->kind == SEAM_DISK_STATE ? d->o.state_bytes : 0,
    };
    struct seam_buf head = { 0 };
    char tmp[64];
    bool ok;
    int fd;

    memcpy(h.identity, d->o.identity, SEAM_DISK_HASH);
    memcpy(h.parent, i->before, SEAM_DISK_HASH);
    memcpy(h.key, i->key, SEAM_DISK_HASH);
    if (!seam_disk_sum(body, bytes, NULL, 0, h.body_sum) ||
        !seam_disk_head_write(&h, ids, &head)) {
        seam_buf_release(&head);
        errno = ENOMEM;
        return false;
    }
    snprintf(tmp, sizeof tmp, TMP_PREFIX "%ld-%llu", (long)getpid(),
             (unsigned long long)d->n_tmp++);
    fd = openat(d->dirfd, tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    ok = fd >= 0 && fd_write(fd, head.p, head.n) && fd_write(fd, body, bytes) &&
         !fdatasync(fd);
    if (fd >= 0 && close(fd))
        ok = false;
    if (ok && renameat(d->dirfd, tmp, d->dirfd, i->name))
        ok = false;
    if (!ok && fd >= 0) {
        int saved = errno;

        unlinkat(d->dirfd, tmp, 0);
        errno = saved;
    }
    seam_buf_release(&head);
    return ok;
}

/* disk_drop of what is evicted: only the writer makes files, so it can remove
 * them without the lock before it makes the next. */
static void drop_later(void *ctx, const struct disk_item *i)
{
    struct seam_disk *d = ctx;
    struct doomed *x = i->pending ? NULL : malloc(sizeof *x);

    if (!x) {
        drop_file(ctx, i);
        return;
    }
    memcpy(x->name, i->name, sizeof x->name);
    x->next = d->doomed;
    d->doomed = x;
}

/* Make the budget hold what is written and the job under way.  Under the
 * lock. */
static bool disk_make_room(struct seam_disk *d)
{
    uint64_t later = 0;

    for (struct disk_job *j = d->job ? d->job->next : NULL; j; j = j->next)
        for (uint32_t n = 0; n < j->n_items; n++)
            later += j->item[n]->gone ? 0 : j->item[n]->bytes;
    while (d->index.bytes - later > d->o.budget) {
        struct disk_item *victim = disk_index_victim(&d->index);

        if (!victim)
            return false;
        d->n_evicted += victim->kind == SEAM_DISK_STATE;
        disk_index_remove(&d->index, victim, drop_later, d);
    }
    return true;
}

static void disk_remove_doomed(struct seam_disk *d)
{
    while (d->doomed) {
        struct doomed *x = d->doomed;

        d->doomed = x->next;
        unlinkat(d->dirfd, x->name, 0);
        free(x);
    }
}

/* Under the lock: whether the item is still wanted, and if not, that it ends
 * here. */
static void item_settle(struct seam_disk *d, struct disk_item *i, bool written)
{
    i->pending = false;
    if (i->gone) {
        if (written)
            unlinkat(d->dirfd, i->name, 0);
        if (!i->refs)
            disk_item_free(i);
    } else if (!written) {
        disk_index_remove_tree(&d->index, i, drop_file, d);
    }
}

static void job_write(struct seam_disk *d, struct disk_job *job)
{
    const char *body = job->body;
    const int32_t *ids = job->ids;
    bool ok, synced = false;
    int error = 0;

    pthread_mutex_lock(&d->lock);
    ok = disk_make_room(d);
    disk_unlock(d);
    disk_remove_doomed(d);
    for (uint32_t n = 0; n < job->n_items; n++) {
        struct disk_item *i = job->item[n];
        bool gone;

        pthread_mutex_lock(&d->lock);
        gone = i->gone;
        disk_unlock(d);
        if (ok && !gone && !item_write(d, i, ids, body, job->bytes[n])) {
            error = errno;
            ok = false;
        }
        ids += i->kind == SEAM_DISK_RUN ? i->n_pages * d->o.page_tokens : 0;
        body += job->bytes[n];
        if (n + 1 == job->n_items && ok)
            synced = !fsync(d->dirfd);
        pthread_mutex_lock(&d->lock);
        /* Those of this job that follow build on it: they go with it, as
         * pending ones that are gone. */
        item_settle(d, i, ok && !gone);
        disk_unlock(d);
    }
    pthread_mutex_lock(&d->lock);
    if (ok)
        d->n_written++;
    else
        d->n_dropped++;
    if (error && !d->said_failed)
        seam_log(d->o.log, SEAM_LOG_WARN, "prefix",
                 "%s: cannot write: %s; snapshots stay in memory alone", d->dir,
                 strerror(error));
    d->said_failed = error || (d->said_failed && !synced);
    disk_unlock(d);
}

static void job_free(struct disk_job *job)
{
    free(job->item);
    free(job->ids);
    free(job->body);
    free(job->bytes);
    free(job);
}

static void *writer_main(void *arg)
{
    struct seam_disk *d = arg;

    for (;;) {
        struct disk_job *job;

        pthread_mutex_lock(&d->lock);
        while (!d->job && !d->stop)
            pthread_cond_wait(&d->news, &d->lock);
        job = d->job;
        disk_unlock(d);
        if (!job)
            return NULL;
        job_write(d, job);
        pthread_mutex_lock(&d->lock);
        d->job = job->next;
        if (!d->job)
            d->last_job = &d->job;
        d->queue_bytes -= job->total;
        pthread_cond_broadcast(&d->news);
        disk_unlock(d);
        job_free(job);
    }
}

void seam_disk_flush(struct seam_disk *d)
{
    pthread_mutex_lock(&d->lock);
    while (d->job)
        pthread_cond_wait(&d->news, &d->lock);
    disk_unlock(d);
}

/* ---- Putting ------------------------------------------------------------- */

bool seam_disk_root(const struct seam_disk *d, const char *salt,
                    unsigned char root[SEAM_DISK_HASH])
{
    return seam_disk_sum(d->o.identity, SEAM_DISK_HASH, salt,
                         salt ? strlen(salt) : 0, root);
}

/* Hashes after 0, 1, ... k pages of tok. */
static unsigned char (*disk_chain(const struct seam_disk *d,
                                  const unsigned char *root, const int32_t *tok,
                                  uint32_t k))[SEAM_DISK_HASH]
{
    unsigned char(*h)[SEAM_DISK_HASH] =
        malloc(((uint64_t)k + 1) * SEAM_DISK_HASH);
    bool ok = h != NULL;

    if (ok)
        memcpy(h[0], root, SEAM_DISK_HASH);
    for (uint32_t i = 0; ok && i < k; i++)
        ok = seam_disk_link(h[i], tok + (uint64_t)i * d->o.page_tokens,
                            d->o.page_tokens, h[i + 1]);
    if (!ok) {
        free(h);
        return NULL;
    }
    return h;
}

/* The longest snapshot of tok[0, n), whose chain is h.  Under the lock. */
static struct disk_item *disk_longest(const struct seam_disk *d,
                                      unsigned char (*h)[SEAM_DISK_HASH],
                                      const int32_t *tok, uint32_t n,
                                      uint32_t least, bool pending)
{
    uint32_t pt = d->o.page_tokens;

    for (uint32_t k = n / pt + 1; k-- > least / pt;) {
        struct disk_item *i = disk_index_state(
            &d->index, h[k], tok + (uint64_t)k * pt, n - k * pt, pending);

        if (i && i->pos > least)
            return i;
    }
    return NULL;
}

static struct disk_item *item_new(enum seam_disk_kind kind, uint32_t first,
                                  uint32_t n_pages, uint32_t pos,
                                  const unsigned char *before)
{
    struct disk_item *i = calloc(1, sizeof *i);

    if (!i)
        return NULL;
    i->kind = kind;
    i->first_page = first;
    i->n_pages = n_pages;
    i->pos = pos;
    memcpy(i->before, before, SEAM_DISK_HASH);
    return i;
}

static struct disk_item *item_run(const struct seam_disk *d, uint32_t first,
                                  uint32_t n,
                                  unsigned char (*h)[SEAM_DISK_HASH])
{
    struct disk_item *i = item_new(SEAM_DISK_RUN, first, n,
                                   (first + n) * d->o.page_tokens, h[first]);

    if (!i)
        return NULL;
    i->hash = malloc((uint64_t)n * SEAM_DISK_HASH);
    if (!i->hash) {
        disk_item_free(i);
        return NULL;
    }
    memcpy(i->hash, h[first + 1], (uint64_t)n * SEAM_DISK_HASH);
    memcpy(i->key, h[first + n], SEAM_DISK_HASH);
    i->bytes = SEAM_DISK_FIXED + SEAM_DISK_HASH +
               (uint64_t)n * (d->o.page_tokens * 4 + d->o.page_bytes);
    seam_disk_name(SEAM_DISK_RUN, i->key, i->name);
    return i;
}

static struct disk_item *item_state(const struct seam_disk *d,
                                    const int32_t *tail, uint32_t pos,
                                    uint32_t saved, const unsigned char *before)
{
    uint32_t pt = d->o.page_tokens, n = pos % pt;
    struct disk_item *i =
        item_new(SEAM_DISK_STATE, pos / pt, n ? 1 : 0, pos, before);

    if (!i)
        return NULL;
    i->saved = saved;
    i->n_tail = n;
    i->tail = malloc(n * sizeof *tail + 1);
    if (!i->tail || !seam_disk_link(before, tail, n, i->key)) {
        disk_item_free(i);
        return NULL;
    }
    if (n)
        memcpy(i->tail, tail, n * sizeof *tail);
    i->bytes = SEAM_DISK_FIXED + SEAM_DISK_HASH + n * UINT64_C(4) +
               i->n_pages * d->o.page_bytes + d->o.state_bytes;
    seam_disk_name(SEAM_DISK_STATE, i->key, i->name);
    return i;
}

/* Room for a snapshot whose pages from `first` on are written too. */
static struct disk_job *job_new(const struct seam_disk *d, const int32_t *tok,
                                uint32_t first, uint32_t pos,
                                unsigned char (*h)[SEAM_DISK_HASH],
                                uint32_t saved)
{
    uint32_t pt = d->o.page_tokens, whole = pos / pt, most, n;
    uint64_t pages = whole - first + (pos % pt ? 1 : 0);
    struct disk_job *job = calloc(1, sizeof *job);
    bool ok;

    if (!job)
        return NULL;
    most = d->o.page_bytes ? (uint32_t)(RUN_BYTES / d->o.page_bytes) : 1024;
    most = most ? most : 1;
    n = (whole - first + most - 1) / most + 1;
    job->total = pages * d->o.page_bytes + d->o.state_bytes;
    job->item = calloc(n, sizeof *job->item);
    job->bytes = calloc(n, sizeof *job->bytes);
    job->body = malloc(job->total + 1);
    job->ids = malloc((uint64_t)(pos - first * pt) * sizeof *tok + 1);
    ok = job->item && job->bytes && job->body && job->ids;
    for (uint32_t at = first; ok && at < whole; at += most) {
        uint32_t take = whole - at < most ? whole - at : most;

        job->bytes[job->n_items] = take * d->o.page_bytes;
        job->item[job->n_items] = item_run(d, at, take, h);
        ok = job->item[job->n_items] != NULL;
        job->n_items += ok;
    }
    if (ok) {
        job->bytes[job->n_items] =
            (pos % pt ? d->o.page_bytes : 0) + d->o.state_bytes;
        job->item[job->n_items] =
            item_state(d, tok + (uint64_t)whole * pt, pos, saved, h[whole]);
        ok = job->item[job->n_items] != NULL;
        job->n_items += ok;
    }
    if (ok) {
        memcpy(job->ids, tok + (uint64_t)first * pt,
               (uint64_t)(pos - first * pt) * sizeof *tok);
        return job;
    }
    for (uint32_t i = 0; i < job->n_items; i++)
        disk_item_free(job->item[i]);
    job_free(job);
    return NULL;
}

/* Take the job's items into the index and queue it.  Under the lock. */
static bool job_queue(struct seam_disk *d, struct disk_job *job,
                      struct disk_item *parent)
{
    uint32_t n = 0;

    for (; n < job->n_items; n++) {
        struct disk_item *i = job->item[n];

        i->pending = true;
        i->parent = parent;
        if (!disk_index_add(&d->index, i))
            break;
        parent = i;
    }
    if (n < job->n_items) {
        /* Nobody else knows of them yet. */
        for (uint32_t i = n; i < job->n_items; i++)
            disk_item_free(job->item[i]);
        for (uint32_t i = 0; i < n; i++)
            job->item[i]->pending = false;
        if (n) /* takes those before along */
            disk_index_remove(&d->index, job->item[n - 1], drop_file, d);
        return false;
    }
    *d->last_job = job;
    d->last_job = &job->next;
    d->queue_bytes += job->total;
    pthread_cond_broadcast(&d->news);
    return true;
}

bool seam_disk_put(struct seam_disk *d, const unsigned char *root,
                   const int32_t *tok, uint32_t pos, const void *state,
                   int (*page)(void *ctx, uint32_t i, void *to), void *ctx)
{
    uint32_t pt = d->o.page_tokens, whole = pos / pt, first = whole, at = 0;
    uint64_t most = QUEUE_BYTES, total;
    unsigned char(*h)[SEAM_DISK_HASH] = disk_chain(d, root, tok, whole);
    struct disk_item *parent = NULL, *have;
    struct disk_job *job = NULL;
    char *to;
    bool ok = false;

    if (!h)
        return false;
    if (most < 2 * d->o.state_bytes)
        most = 2 * d->o.state_bytes;
    pthread_mutex_lock(&d->lock);
    have = disk_longest(d, h, tok, pos, 0, true);
    while (first && !(parent = disk_index_page(&d->index, h[first], &at)))
        first--;
    total = d->o.state_bytes + ((uint64_t)whole - first + 1) * d->o.page_bytes;
    if (have && have->pos == pos) {
        disk_index_use(&d->index, have);
    } else if (d->stop || total > d->o.budget ||
               d->queue_bytes + total > most) {
        d->n_dropped++;
    } else {
        if (parent)
            parent->refs++; /* it stays until the job has it */
        ok = true;
    }
    disk_unlock(d);
    if (!ok)
        goto out;
    job = job_new(d, tok, first, pos, h, pos - (have ? have->pos : 0));
    ok = job != NULL;
    to = ok ? job->body : NULL;
    for (uint32_t i = first; ok && i * (uint64_t)pt < pos; i++) {
        ok = page(ctx, i, to) == 0;
        to += d->o.page_bytes;
    }
    if (ok)
        memcpy(to, state, d->o.state_bytes);
    pthread_mutex_lock(&d->lock);
    if (job && (!ok || (parent && parent->gone))) {
        for (uint32_t i = 0; i < job->n_items; i++)
            disk_item_free(job->item[i]);
        ok = false;
    } else if (job) {
        ok = job_queue(d, job, parent);
    }
    d->n_dropped += !ok;
    if (parent)
        disk_index_unref(&d->index, parent, drop_file, d);
    disk_unlock(d);
    if (job && !ok)
        job_free(job);
out:
    free(h);
    return ok;
}

/* ---- Finding ------------------------------------------------------------- */

/* What to read for i, from first_page on: its runs, then itself.  Under the
 * lock. */
static struct seam_disk_load *load_plan(struct seam_disk *d,
                                        const struct disk_item *i,
                                        uint32_t first_page,
                                        unsigned char (*h)[SEAM_DISK_HASH])
{
    struct seam_disk_load *l = calloc(1, sizeof *l);
    uint32_t end = i->pos / d->o.page_tokens, n = 0;

    if (!l)
        return NULL;
    l->d = d;
    l->pos = i->pos;
    l->first_page = first_page;
    l->n_pages = end - first_page + i->n_pages;
    l->part = calloc((uint64_t)end - first_page + 1, sizeof *l->part);
    if (!l->part) {
        free(l);
        return NULL;
    }
    while (end > first_page) {
        uint32_t at = 0, begin;
        struct disk_item *run = disk_index_page(&d->index, h[end], &at);
        struct disk_part *p = &l->part[n++];

        if (!run) { /* cannot be: i would have gone with it */
            free(l->part);
            free(l);
            return NULL;
        }
        begin = run->first_page > first_page ? run->first_page : first_page;
        *p = (struct disk_part){ .from = begin - run->first_page,
                                 .n = end - begin,
                                 .to = begin - first_page };
        memcpy(p->name, run->name, sizeof p->name);
        memcpy(p->key, run->key, sizeof p->key);
        end = begin;
    }
    l->part[n] =
        (struct disk_part){ .n = i->n_pages, .to = l->n_pages - i->n_pages };
    memcpy(l->part[n].name, i->name, sizeof i->name);
    memcpy(l->part[n].key, i->key, sizeof i->key);
    l->n_parts = n + 1;
    return l;
}

struct seam_disk_load *seam_disk_find(struct seam_disk *d,
                                      const unsigned char *root,
                                      const int32_t *tok, uint32_t n,
                                      uint32_t least, uint32_t first_page)
{
    unsigned char(*h)[SEAM_DISK_HASH];
    struct seam_disk_load *l = NULL;
    struct disk_item *i;

    if (n <= least)
        return NULL;
    h = disk_chain(d, root, tok, n / d->o.page_tokens);
    if (!h)
        return NULL;
    pthread_mutex_lock(&d->lock);
    i = disk_longest(d, h, tok, n, least, false);
    if (i && (l = load_plan(d, i, first_page, h))) {
        disk_index_use(&d->index, i);
        l->refs = 2;
        *d->last_load = l;
        d->last_load = &l->next;
        pthread_cond_broadcast(&d->news);
    }
    disk_unlock(d);
    free(h);
    return l;
}

int seam_disk_loaded(const struct seam_disk_load *l)
{
    return atomic_load_explicit(&l->state, memory_order_acquire);
}

uint32_t seam_disk_load_pos(const struct seam_disk_load *l)
{
    return l->pos;
}

const void *seam_disk_load_page(const struct seam_disk_load *l, uint32_t i)
{
    return l->page + (uint64_t)(i - l->first_page) * l->d->o.page_bytes;
}

const void *seam_disk_load_state(const struct seam_disk_load *l)
{
    return l->state_bytes;
}

void seam_disk_load_free(struct seam_disk_load *l)
{
    /* acq_rel: whoever frees sees all that the other side wrote. */
    if (!l || atomic_fetch_sub_explicit(&l->refs, 1, memory_order_acq_rel) != 1)
        return;
    free(l->part);
    free(l->page);
    free(l->state_bytes);
    free(l);
}

/* ---- Opening ------------------------------------------------------------- */

/* A file that was found. */
struct found {
    struct disk_item *item;
    struct timespec used;
};

/* By last use. */
static int found_by_use(const void *a, const void *b)
{
    const struct timespec *x = &((const struct found *)a)->used;
    const struct timespec *y = &((const struct found *)b)->used;

    if (x->tv_sec != y->tv_sec)
        return x->tv_sec < y->tv_sec ? -1 : 1;
    return (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

/* What builds on something comes after it. */
static int found_by_place(const void *a, const void *b)
{
    const struct disk_item *x = ((const struct found *)a)->item;
    const struct disk_item *y = ((const struct found *)b)->item;

    if (x->first_page != y->first_page)
        return x->first_page < y->first_page ? -1 : 1;
    return (int)x->kind - (int)y->kind;
}

static struct disk_item *item_of_head(const struct seam_disk *d,
                                      const struct seam_disk_head *h)
{
    struct disk_item *i;
    unsigned char(*hash)[SEAM_DISK_HASH];
    int32_t *ids = malloc(h->n_ids * sizeof *ids + 1);

    if (!ids)
        return NULL;
    memcpy(ids, h->ids, h->n_ids * sizeof *ids);
    if (h->kind == SEAM_DISK_STATE) {
        i = item_state(d, ids, h->pos, h->saved, h->parent);
        free(ids);
        return i;
    }
    hash = disk_chain(d, h->parent, ids, h->n_pages);
    i = hash ? item_run(d, 0, h->n_pages, hash) : NULL;
    if (i) {
        i->first_page = h->first_page;
        i->pos = h->pos;
    }
    free(hash);
    free(ids);
    return i;
}

/* Look at one file; *f is filled when it is to be counted.  EDATA: damaged. */
static int scan_file(const struct seam_disk *d, const char *name,
                     struct found *f, const char **why)
{
    int fd = openat(d->dirfd, name, READ_FLAGS), rc;
    unsigned char *text = NULL;
    struct seam_disk_head h;
    struct stat st;

    if (fd < 0)
        return SEAM_ENOENT;
    rc = fstat(fd, &st) ? SEAM_ENOENT : file_head(fd, &h, &text, why);
    close(fd);
    if (!rc && head_fits(d, &h)) {
        f->item = item_of_head(d, &h);
        rc = f->item ? 0 : SEAM_ENOENT;
        if (!rc && strcmp(f->item->name, name) != 0) {
            disk_item_free(f->item);
            f->item = NULL;
            *why = "it is another file than its name says";
            rc = SEAM_EDATA;
        }
    } else if (!rc || rc == SEAM_ENOTSUP) {
        f->item = calloc(1, sizeof *f->item);
        rc = f->item ? 0 : SEAM_ENOENT;
        if (!rc) {
            memcpy(f->item->name, name, strlen(name) + 1);
            f->item->bytes = (uint64_t)st.st_size;
        }
    }
    f->used = st.st_mtim;
    free(text);
    return rc;
}

/* Take what was found into the index; what builds on nothing is of no use. */
static uint64_t scan_index(struct seam_disk *d, struct found *f, size_t n)
{
    uint64_t orphans = 0;
    uint32_t at;

    if (n)
        qsort(f, n, sizeof *f, found_by_place);
    for (size_t i = 0; i < n; i++) {
        struct disk_item *item = f[i].item;

        if (item->kind && item->first_page) {
            item->parent = disk_index_page(&d->index, item->before, &at);
            if (!item->parent ||
                item->parent->first_page + at + 1 != item->first_page) {
                unlinkat(d->dirfd, item->name, 0);
                disk_item_free(item);
                f[i].item = NULL;
                orphans++;
                continue;
            }
        }
        if (!disk_index_add(&d->index, item)) {
            disk_item_free(item);
            f[i].item = NULL;
        }
    }
    return orphans;
}

/* Remove the runs that nothing needs, from the ends on. */
static uint64_t scan_tidy(struct seam_disk *d)
{
    uint64_t was = d->index.n_runs;
    struct disk_item *i = d->index.oldest;

    while (i) {
        if (i->kind == SEAM_DISK_RUN && !i->refs) {
            disk_index_remove(&d->index, i, drop_file, d);
            i = d->index.oldest;
        } else {
            i = i->newer;
        }
    }
    return was - d->index.n_runs;
}

static int disk_scan(struct seam_disk *d, struct seam_error *err)
{
    int fd = dup(d->dirfd), rc = 0;
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct found *f = NULL;
    size_t n = 0, cap = 0;
    uint64_t orphans = 0;
    struct dirent *e;

    if (!dir) {
        if (fd >= 0)
            close(fd);
        return seam_fail_errno(err, SEAM_EDATA, errno, "%s: cannot list",
                               d->dir);
    }
    while (!rc && (e = readdir(dir))) {
        const char *why = "";

        if (!strncmp(e->d_name, TMP_PREFIX, strlen(TMP_PREFIX)))
            unlinkat(d->dirfd, e->d_name, 0);
        if (!seam_disk_is_name(e->d_name))
            continue;
        if (n == cap) {
            struct found *more = realloc(f, (cap = 2 * cap + 64) * sizeof *f);

            if (!more) {
                rc = seam_fail(err, SEAM_ENOMEM, "prefix: out of memory");
                break;
            }
            f = more;
        }
        f[n] = (struct found){ 0 };
        switch (scan_file(d, e->d_name, &f[n], &why)) {
        case 0:
            n++;
            break;
        case SEAM_EDATA:
            disk_damaged(d, e->d_name, why);
            break;
        default:
            break;
        }
    }
    closedir(dir);
    if (!rc) {
        orphans = scan_index(d, f, n);
        if (n)
            qsort(f, n, sizeof *f, found_by_use);
        for (size_t i = 0; i < n; i++)
            if (f[i].item)
                disk_index_use(&d->index, f[i].item);
        orphans += scan_tidy(d);
        disk_make_room(d);
        disk_remove_doomed(d);
        seam_log(d->o.log, SEAM_LOG_INFO, "prefix",
                 "%s: %llu snapshots, %.1f of %.1f MiB; %llu files of other "
                 "models or settings left alone, %llu without their beginning "
                 "removed",
                 d->dir, (unsigned long long)d->index.n_states,
                 (double)d->index.bytes / 1048576,
                 (double)d->o.budget / 1048576,
                 (unsigned long long)d->index.n_foreign,
                 (unsigned long long)orphans);
    } else {
        for (size_t i = 0; i < n; i++)
            disk_item_free(f[i].item);
    }
    free(f);
    return rc;
}

/* What is read here goes into answers, so nobody else may write here; and what
 * is planted all the same leads nowhere. */
static int disk_open_dir(struct seam_disk *d, struct seam_error *err)
{
    int rc;

    if (mkdir(d->dir, 0700) && errno != EEXIST)
        return seam_fail_errno(err, SEAM_EDATA, errno,
                               "engine.prefix_dir: %s: cannot make it", d->dir);
    d->dirfd = open(d->dir, READ_FLAGS | O_DIRECTORY);
    if (d->dirfd < 0)
        return seam_fail_errno(err, SEAM_EDATA, errno,
                               "engine.prefix_dir: %s: cannot open", d->dir);
    rc = seam_trust_folder("engine.prefix_dir", d->dir, d->dirfd, err);
    if (rc)
        return rc;
    d->lockfd =
        openat(d->dirfd, "lock",
               O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (d->lockfd < 0)
        return seam_fail_errno(err, SEAM_EDATA, errno,
                               "engine.prefix_dir: %s: cannot write lock",
                               d->dir);
    if (flock(d->lockfd, LOCK_EX | LOCK_NB))
        return seam_fail(err, SEAM_ESTATE,
                         "engine.prefix_dir: %s: another process uses it",
                         d->dir);
    return 0;
}

/* Signals are for the main thread alone. */
static int disk_start(struct seam_disk *d, struct seam_error *err)
{
    sigset_t all, was;
    int rc;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &was);
    rc = pthread_create(&d->writer, NULL, writer_main, d);
    if (!rc) {
        rc = pthread_create(&d->reader, NULL, reader_main, d);
        if (rc) {
            pthread_mutex_lock(&d->lock);
            d->stop = true;
            pthread_cond_broadcast(&d->news);
            disk_unlock(d);
            pthread_join(d->writer, NULL);
        }
    }
    pthread_sigmask(SIG_SETMASK, &was, NULL);
    if (rc)
        return seam_fail_errno(err, SEAM_ENOMEM, rc,
                               "prefix: cannot start a thread");
    pthread_setname_np(d->writer, "seam/write");
    pthread_setname_np(d->reader, "seam/read");
    d->started = true;
    return 0;
}

int seam_disk_open(struct seam_disk **out, const struct seam_disk_opts *opts,
                   struct seam_error *err)
{
    struct seam_disk *d = calloc(1, sizeof *d);
    int rc;

    if (!d)
        return seam_fail(err, SEAM_ENOMEM, "prefix: out of memory");
    d->o = *opts;
    d->dirfd = d->lockfd = -1;
    d->last_job = &d->job;
    d->last_load = &d->load;
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->news, NULL);
    d->dir = strdup(opts->dir);
    rc = d->dir ? disk_open_dir(d, err)
                : seam_fail(err, SEAM_ENOMEM, "prefix: out of memory");
    if (!rc)
        rc = disk_scan(d, err);
    pthread_mutex_lock(&d->lock);
    disk_unlock(d); /* what was found */
    if (!rc)
        rc = disk_start(d, err);
    if (rc) {
        seam_disk_close(d);
        return rc;
    }
    *out = d;
    return 0;
}

void seam_disk_close(struct seam_disk *d)
{
    if (!d)
        return;
    if (d->started) {
        pthread_mutex_lock(&d->lock);
        d->stop = true;
        pthread_cond_broadcast(&d->news);
        disk_unlock(d);
        pthread_join(d->writer, NULL);
        pthread_join(d->reader, NULL);
    }
    disk_index_release(&d->index);
    if (d->lockfd >= 0)
        close(d->lockfd);
    if (d->dirfd >= 0)
        close(d->dirfd);
    pthread_cond_destroy(&d->news);
    pthread_mutex_destroy(&d->lock);
    free(d->dir);
    free(d);
}

static uint64_t figure(const _Atomic uint64_t *f)
{
    return atomic_load_explicit(f, memory_order_relaxed);
}

void seam_disk_stats(struct seam_disk *d, struct seam_disk_stats *out)
{
    const struct figures *f = &d->figures;

    *out = (struct seam_disk_stats){
        .bytes = figure(&f->bytes),
        .budget = d->o.budget,
        .n_states = figure(&f->n_states),
        .n_runs = figure(&f->n_runs),
        .n_written = figure(&f->n_written),
        .n_evicted = figure(&f->n_evicted),
        .n_dropped = figure(&f->n_dropped),
        .n_damaged = figure(&f->n_damaged),
        .n_foreign = figure(&f->n_foreign),
        .queue_bytes = figure(&f->queue_bytes),
    };
}
