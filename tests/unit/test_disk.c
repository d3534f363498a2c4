/* The second tier of the prefix cache by itself: what is found is right, after
 * a restart, under a budget, and whatever happens to the files. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/engine/disk.h"

enum { PT = 4, PAGE = 96, STATE = 130, LEN = 64 };

/* Sanitizers compute fewer of the same. */
#ifdef SEAM_TEST_QUICK
enum { N_RANDOM = 200, FLIP_EVERY = 5 };
#else
enum { N_RANDOM = 600, FLIP_EVERY = 1 };
#endif

struct rig {
    char dir[32], name[512];
    struct seam_disk_opts o;
    struct seam_disk *d;
    pthread_mutex_t lock;
    pthread_cond_t news;
};

static void loaded(void *ctx)
{
    struct rig *r = ctx;

    pthread_mutex_lock(&r->lock);
    pthread_cond_broadcast(&r->news);
    pthread_mutex_unlock(&r->lock);
}

static void rig_open(struct rig *r)
{
    struct seam_error err;

    cr_assert_eq(seam_disk_open(&r->d, &r->o, &err), 0, "%s", err.text);
}

static void rig_new(struct rig *r, uint64_t budget)
{
    *r = (struct rig){ .dir = "/tmp/seam-disk-XXXXXX" };
    cr_assert_not_null(mkdtemp(r->dir));
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->news, NULL);
    r->o = (struct seam_disk_opts){
        .dir = r->dir,
        .budget = budget,
        .identity = "somebody",
        .page_tokens = PT,
        .page_bytes = PAGE,
        .state_bytes = STATE,
        .loaded = loaded,
        .ctx = r,
    };
    rig_open(r);
}

/* Calls fn for each file of the folder but the lock. */
static uint64_t each_file(const struct rig *r,
                          void (*fn)(const struct rig *r, const char *path))
{
    DIR *dir = opendir(r->dir);
    struct dirent *e;
    uint64_t bytes = 0;
    char path[512];
    struct stat st;

    cr_assert_not_null(dir);
    while ((e = readdir(dir))) {
        if (e->d_name[0] == '.' || !strcmp(e->d_name, "lock"))
            continue;
        snprintf(path, sizeof path, "%s/%s", r->dir, e->d_name);
        cr_assert_eq(stat(path, &st), 0);
        bytes += (uint64_t)st.st_size;
        if (fn)
            fn(r, path);
    }
    closedir(dir);
    return bytes;
}

static void remove_file(const struct rig *r, const char *path)
{
    (void)r;
    unlink(path);
}

static void rig_free(struct rig *r)
{
    char path[64];

    seam_disk_close(r->d);
    each_file(r, remove_file);
    snprintf(path, sizeof path, "%s/lock", r->dir);
    unlink(path);
    cr_expect_eq(rmdir(r->dir), 0);
}

static void restart(struct rig *r)
{
    seam_disk_close(r->d);
    rig_open(r);
}

/* The bytes that belong to tok[0, n). */
static void content(const int32_t *tok, uint32_t n, unsigned salt, void *to,
                    uint32_t bytes)
{
    uint64_t h = 1469598103934665603u + salt;

    for (uint32_t i = 0; i < n; i++)
        h = (h ^ (uint32_t)tok[i]) * 1099511628211u;
    for (uint32_t i = 0; i < bytes; i++) {
        h = h * 6364136223846793005u + 1;
        ((unsigned char *)to)[i] = (unsigned char)(h >> 56);
    }
}

struct source {
    const int32_t *tok;
    uint32_t pos, asked;
};

static int page(void *ctx, uint32_t i, void *to)
{
    struct source *s = ctx;
    uint32_t end = (i + 1) * PT < s->pos ? (i + 1) * PT : s->pos;

    s->asked++;
    content(s->tok, end, 1, to, PAGE);
    return 0;
}

static bool put_salted(struct rig *r, const char *salt, const int32_t *tok,
                       uint32_t pos, uint32_t *asked)
{
    struct source s = { tok, pos, 0 };
    unsigned char state[STATE], root[SEAM_DISK_HASH];
    bool kept;

    content(tok, pos, 2, state, STATE);
    cr_assert(seam_disk_root(r->d, salt, root));
    kept = seam_disk_put(r->d, root, tok, pos, state, page, &s);
    if (asked)
        *asked = s.asked;
    return kept;
}

static bool put(struct rig *r, const int32_t *tok, uint32_t pos)
{
    return put_salted(r, NULL, tok, pos, NULL);
}

/* The position found, 0 without one or when it could not be read; what is read
 * must be right. */
static uint32_t find_salted(struct rig *r, const char *salt, const int32_t *tok,
                            uint32_t n, uint32_t least)
{
    unsigned char root[SEAM_DISK_HASH], want[STATE > PAGE ? STATE : PAGE];
    struct seam_disk_load *l;
    uint32_t pos = 0, first = least / PT;
    struct source s = { tok, 0, 0 };

    cr_assert(seam_disk_root(r->d, salt, root));
    l = seam_disk_find(r->d, root, tok, n, least, first);
    if (!l)
        return 0;
    pthread_mutex_lock(&r->lock);
    while (!seam_disk_loaded(l))
        pthread_cond_wait(&r->news, &r->lock);
    pthread_mutex_unlock(&r->lock);
    if (seam_disk_loaded(l) > 0) {
        pos = s.pos = seam_disk_load_pos(l);
        cr_assert(pos > least && pos <= n);
        for (uint32_t i = first; i * PT < pos; i++) {
            page(&s, i, want);
            cr_assert(!memcmp(seam_disk_load_page(l, i), want, PAGE),
                      "page %u of %u tokens is wrong", i, pos);
        }
        content(tok, pos, 2, want, STATE);
        cr_assert(!memcmp(seam_disk_load_state(l), want, STATE),
                  "the state of %u tokens is wrong", pos);
    }
    seam_disk_load_free(l);
    return pos;
}

static uint32_t find(struct rig *r, const int32_t *tok, uint32_t n)
{
    return find_salted(r, NULL, tok, n, 0);
}

static void tokens(int32_t *tok, int32_t from)
{
    for (int32_t i = 0; i < LEN; i++)
        tok[i] = from + i;
}

static struct seam_disk_stats stats(struct rig *r)
{
    struct seam_disk_stats s;

    seam_disk_flush(r->d);
    seam_disk_stats(r->d, &s);
    return s;
}

Test(disk, gives_the_longest_snapshot_also_after_a_restart)
{
    struct rig r;
    int32_t tok[LEN], other[LEN];

    rig_new(&r, 1 << 20);
    tokens(tok, 100);
    tokens(other, 100);
    other[21] = 7;
    cr_expect(put(&r, tok, 10));
    cr_expect(put(&r, tok, 32));
    cr_expect(put(&r, tok, 41));
    cr_expect_not(put(&r, tok, 32), "kept twice");
    for (int i = 0; i < 2; i++) {
        struct seam_disk_stats s = stats(&r);

        cr_expect_eq(s.n_states, 3);
        cr_expect_eq(s.n_dropped, 0);
        cr_expect_eq(s.bytes, each_file(&r, NULL));
        cr_expect_eq(find(&r, tok, LEN), 41);
        cr_expect_eq(find(&r, tok, 41), 41);
        cr_expect_eq(find(&r, tok, 40), 32);
        cr_expect_eq(find(&r, tok, 31), 10);
        cr_expect_eq(find(&r, tok, 9), 0);
        cr_expect_eq(find(&r, other, LEN), 10);
        cr_expect_eq(find_salted(&r, NULL, tok, LEN, 40), 41);
        cr_expect_eq(find_salted(&r, NULL, tok, LEN, 41), 0);
        restart(&r);
    }
    rig_free(&r);
}

Test(disk, writes_a_page_once)
{
    struct rig r;
    int32_t tok[LEN], branch[LEN];
    uint32_t asked = 0;
    uint64_t before;

    rig_new(&r, 1 << 20);
    tokens(tok, 0);
    memcpy(branch, tok, sizeof tok);
    branch[30] = -1;
    put_salted(&r, NULL, tok, 40, &asked);
    cr_expect_eq(asked, 10);
    put_salted(&r, NULL, tok, 50, &asked);
    cr_expect_eq(asked, 3, "%u pages", asked); /* 40 to 48, and the rest */
    before = stats(&r).bytes;
    put_salted(&r, NULL, branch, 32, &asked);
    cr_expect_eq(asked, 1, "%u pages", asked); /* 28 to 32 */
    cr_expect_lt(stats(&r).bytes - before, 2 * (PAGE + STATE) + 500);
    restart(&r);
    put_salted(&r, NULL, tok, 60, &asked);
    cr_expect_eq(asked, 3, "%u pages", asked); /* 48 to 60 */
    seam_disk_flush(r.d);
    cr_expect_eq(find(&r, branch, LEN), 32);
    cr_expect_eq(find(&r, tok, LEN), 60);
    rig_free(&r);
}

Test(disk, keeps_salts_and_models_apart)
{
    struct rig r;
    int32_t tok[LEN];

    rig_new(&r, 1 << 20);
    tokens(tok, 5);
    put(&r, tok, 20);
    put_salted(&r, "a", tok, 30, NULL);
    seam_disk_flush(r.d);
    cr_expect_eq(find(&r, tok, LEN), 20);
    cr_expect_eq(find_salted(&r, "a", tok, LEN, 0), 30);
    cr_expect_eq(find_salted(&r, "b", tok, LEN, 0), 0);
    r.o.identity[3] ^= 1;
    restart(&r);
    cr_expect_eq(stats(&r).n_foreign, 4);
    cr_expect_eq(find(&r, tok, LEN), 0);
    r.o.identity[3] ^= 1;
    restart(&r);
    cr_expect_eq(find_salted(&r, "a", tok, LEN, 0), 30);
    cr_expect_eq(stats(&r).n_foreign, 0);
    rig_free(&r);
}

Test(disk, belongs_to_one_process)
{
    struct rig r;
    struct seam_disk *second;
    struct seam_error err;

    rig_new(&r, 1 << 20);
    cr_expect_eq(seam_disk_open(&second, &r.o, &err), SEAM_ESTATE);
    cr_expect_not_null(strstr(err.text, r.dir), "%s", err.text);
    rig_free(&r);
}

Test(disk, says_why_a_folder_cannot_be_used)
{
    struct seam_disk_opts o = { .dir = "/proc/none" };
    struct seam_disk *d;
    struct seam_error err;

    cr_expect_eq(seam_disk_open(&d, &o, &err), SEAM_EDATA);
    cr_expect_not_null(strstr(err.text, "/proc/none"), "%s", err.text);
}

/* The name of the only snapshot's state. */
static void name_state(const struct rig *r, const char *path)
{
    if (strstr(path, ".state"))
        snprintf(((struct rig *)r)->name, sizeof r->name, "%s", path);
}

Test(disk, follows_no_link_that_was_planted)
{
    static const char text[] = "somebody's own file";
    char outside[64], lock[64], got[sizeof text + 1] = "";
    struct seam_error err;
    int32_t tok[LEN];
    struct rig r;
    int fd;

    rig_new(&r, 1 << 20);
    tokens(tok, 100);
    snprintf(outside, sizeof outside, "%s-outside", r.dir);
    snprintf(lock, sizeof lock, "%s/lock", r.dir);
    /* To create a file through it. */
    seam_disk_close(r.d);
    cr_assert_eq(unlink(lock), 0);
    cr_assert_eq(symlink(outside, lock), 0);
    cr_expect_eq(seam_disk_open(&r.d, &r.o, &err), SEAM_EDATA);
    cr_expect_not_null(strstr(err.text, "lock"), "%s", err.text);
    cr_expect_eq(access(outside, F_OK), -1, "made through the link");
    cr_assert_eq(unlink(lock), 0);
    /* To read one, and to write over it. */
    rig_open(&r);
    cr_expect(put(&r, tok, 10));
    seam_disk_close(r.d);
    each_file(&r, name_state);
    cr_assert_eq(unlink(r.name), 0);
    fd = open(outside, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    cr_assert_geq(fd, 0);
    cr_assert_eq(write(fd, text, sizeof text), sizeof text);
    cr_assert_eq(symlink(outside, r.name), 0);
    rig_open(&r);
    cr_expect_eq(find(&r, tok, 10), 0);
    cr_expect(put(&r, tok, 10));
    cr_expect_eq(stats(&r).n_written, 1);
    cr_expect_eq(find(&r, tok, 10), 10);
    cr_assert_eq(pread(fd, got, sizeof got, 0), sizeof text);
    cr_expect_str_eq(got, text);
    close(fd);
    unlink(outside);
    rig_free(&r);
}

Test(disk, is_in_no_folder_that_others_can_write)
{
    struct seam_error err;
    struct rig r;

    rig_new(&r, 1 << 20);
    seam_disk_close(r.d);
    cr_assert_eq(chmod(r.dir, 0707), 0);
    cr_expect_eq(seam_disk_open(&r.d, &r.o, &err), SEAM_EDATA);
    cr_expect_not_null(strstr(err.text, "engine.prefix_dir"), "%s", err.text);
    cr_expect_not_null(strstr(err.text, "writable by everybody (mode 0707)"),
                       "%s", err.text);
    cr_assert_eq(chmod(r.dir, 0700), 0);
    if (!chown(r.dir, 12345, (gid_t)-1)) { /* for root alone */
        cr_expect_eq(seam_disk_open(&r.d, &r.o, &err), SEAM_EDATA);
        cr_expect_not_null(strstr(err.text, "belongs to user 12345"), "%s",
                           err.text);
        cr_assert_eq(chown(r.dir, geteuid(), (gid_t)-1), 0);
    }
    rig_open(&r);
    rig_free(&r);
}

Test(disk, gives_up_loads_that_nobody_wants)
{
    struct rig r;
    int32_t tok[LEN];
    unsigned char root[SEAM_DISK_HASH];

    rig_new(&r, 1 << 20);
    tokens(tok, 0);
    put(&r, tok, 50);
    seam_disk_flush(r.d);
    cr_assert(seam_disk_root(r.d, NULL, root));
    for (int i = 0; i < 50; i++)
        seam_disk_load_free(seam_disk_find(r.d, root, tok, LEN, 0, 0));
    cr_expect_eq(find(&r, tok, LEN), 50);
    rig_free(&r);
}

/* ---- Against a model of it ------------------------------------------------ */

Test(disk, random_trees_stay_right_within_the_budget)
{
    enum { N = 40 };
    static int32_t tok[N][LEN];
    uint64_t budget = 24000;
    uint64_t hits = 0, evicted = 0;
    unsigned seed = 5;
    struct rig r;

    rig_new(&r, budget);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < LEN; j++)
            tok[i][j] = j < 8 ? 1 : (int32_t)(rand_r(&seed) % 2);
    for (int i = 0; i < N_RANDOM; i++) {
        int k = rand_r(&seed) % N;
        uint32_t n = 1 + (uint32_t)rand_r(&seed) % LEN;

        switch (rand_r(&seed) % 8) {
        case 0:
            seam_disk_flush(r.d);
            cr_assert_leq(each_file(&r, NULL), budget, "at %d", i);
            break;
        case 1:
            if (rand_r(&seed) % 8 == 0) {
                evicted += stats(&r).n_evicted;
                restart(&r);
            }
            break;
        case 2:
        case 3:
        case 4:
            put(&r, tok[k], n);
            break;
        default:
            hits += find_salted(&r, NULL, tok[k], n,
                                (uint32_t)rand_r(&seed) % n) > 0;
            break;
        }
    }
    evicted += stats(&r).n_evicted;
    cr_expect_gt(hits, N_RANDOM / 30, "%llu", (unsigned long long)hits);
    cr_expect_gt(evicted, N_RANDOM / 60, "%llu", (unsigned long long)evicted);
    cr_expect_eq(stats(&r).bytes, each_file(&r, NULL));
    rig_free(&r);
}

/* What is used stays, what is not goes. */
Test(disk, drops_what_is_not_used)
{
    struct rig r;
    int32_t used[LEN], tok[LEN];

    rig_new(&r, 8 * 1500);
    tokens(used, -1000);
    put(&r, used, 40);
    for (int i = 0; i < 40; i++) {
        tokens(tok, 1000 * i);
        put(&r, tok, 40);
        seam_disk_flush(r.d);
        cr_assert_eq(find(&r, used, LEN), 40, "gone after %d others", i);
    }
    cr_expect_gt(stats(&r).n_evicted, 20);
    rig_free(&r);
}

/* ---- Damage --------------------------------------------------------------- */

static unsigned char *read_all(const char *path, size_t *n)
{
    struct stat st;
    int fd = open(path, O_RDONLY);
    unsigned char *p;

    cr_assert(fd >= 0 && !fstat(fd, &st));
    *n = (size_t)st.st_size;
    p = malloc(*n + 1);
    cr_assert_eq(read(fd, p, *n), (ssize_t)*n);
    close(fd);
    return p;
}

static void write_all(const char *path, const void *p, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    cr_assert_geq(fd, 0);
    cr_assert_eq(write(fd, p, n), (ssize_t)n);
    close(fd);
}

static char a_run[256], a_state[256];

static void remember(const struct rig *r, const char *path)
{
    (void)r;
    snprintf(strstr(path, ".run") ? a_run : a_state, sizeof a_run, "%s", path);
}

/* One file is changed while the server is down: nothing wrong is found, and
 * what is damaged is gone afterwards. */
static void hurt(struct rig *r, const int32_t *tok, const char *path,
                 const unsigned char *p, size_t n, const char *what, size_t at)
{
    uint32_t got;

    seam_disk_close(r->d);
    write_all(path, p, n);
    rig_open(r);
    got = find(r, tok, LEN);
    cr_assert_eq(got, 0, "%s at %zu of %s: %u tokens", what, at, path, got);
    /* The version's digit makes it a file that others may read. */
    cr_expect(access(path, F_OK) != 0 || stats(r).n_foreign == 1,
              "%s at %zu of %s is still there", what, at, path);
    unlink(path);
}

static void hurt_everywhere(struct rig *r, const int32_t *tok, const char *path)
{
    size_t n, other_n;
    unsigned char *p = read_all(path, &n), *other;
    const char *rest = path == a_run ? a_state : a_run;

    other = read_all(rest, &other_n);
    for (size_t i = 0; i < n; i += FLIP_EVERY) {
        p[i] ^= (unsigned char)(1u << (i % 8));
        hurt(r, tok, path, p, n, "a bit flipped", i);
        p[i] ^= (unsigned char)(1u << (i % 8));
        write_all(rest, other, other_n);
    }
    for (size_t i = 0; i < n; i += 7 * FLIP_EVERY) {
        hurt(r, tok, path, p, i, "cut", i);
        write_all(rest, other, other_n);
    }
    p = realloc(p, n + 10);
    memset(p + n, 0, 10);
    hurt(r, tok, path, p, n + 10, "ten bytes more", n);
    write_all(rest, other, other_n);
    /* Whole again: found again. */
    seam_disk_close(r->d);
    write_all(path, p, n);
    rig_open(r);
    cr_expect_eq(find(r, tok, LEN), 18);
    free(p);
    free(other);
}

Test(disk, ignores_and_removes_what_is_damaged, .timeout = 300)
{
    struct rig r;
    int32_t tok[LEN];

    rig_new(&r, 1 << 20);
    tokens(tok, 3);
    put(&r, tok, 18);
    seam_disk_flush(r.d);
    each_file(&r, remember);
    hurt_everywhere(&r, tok, a_run);
    hurt_everywhere(&r, tok, a_state);
    rig_free(&r);
}

/* A file under another's name is neither. */
Test(disk, does_not_believe_a_name)
{
    struct rig r;
    int32_t tok[LEN], other[LEN];
    unsigned char *p;
    size_t n;

    rig_new(&r, 1 << 20);
    tokens(tok, 3);
    tokens(other, 9);
    put(&r, tok, 18);
    seam_disk_flush(r.d);
    each_file(&r, remember);
    p = read_all(a_state, &n);
    seam_disk_close(r.d);
    each_file(&r, remove_file);
    rig_open(&r);
    put(&r, other, 18);
    seam_disk_flush(r.d);
    each_file(&r, remember);
    seam_disk_close(r.d);
    write_all(a_state, p, n);
    rig_open(&r);
    cr_expect_eq(find(&r, other, LEN), 0);
    cr_expect_eq(find(&r, tok, LEN), 0);
    free(p);
    rig_free(&r);
}

/* What a killed process leaves: unfinished files, runs without a state, states
 * without a run. */
Test(disk, tidies_up_after_a_killed_process)
{
    struct rig r;
    int32_t tok[LEN], other[LEN];
    char path[64];

    rig_new(&r, 1 << 20);
    tokens(tok, 3);
    tokens(other, 77);
    put(&r, tok, 18);
    seam_disk_flush(r.d);
    each_file(&r, remember);
    seam_disk_close(r.d);
    unlink(a_run);
    snprintf(path, sizeof path, "%s/seam-tmp-1-1", r.dir);
    write_all(path, "half", 4);
    rig_open(&r);
    cr_expect_eq(find(&r, tok, LEN), 0);
    cr_expect_eq(each_file(&r, NULL), 0);
    put(&r, other, 18);
    seam_disk_flush(r.d);
    each_file(&r, remember);
    seam_disk_close(r.d);
    unlink(a_state);
    rig_open(&r);
    cr_expect_eq(find(&r, other, LEN), 0);
    cr_expect_eq(each_file(&r, NULL), 0);
    rig_free(&r);
}

/* A file that goes bad under the running server. */
Test(disk, survives_files_that_change_while_it_runs)
{
    struct rig r;
    int32_t tok[LEN];
    unsigned char *p;
    size_t n;

    rig_new(&r, 1 << 20);
    tokens(tok, 3);
    put(&r, tok, 18);
    put(&r, tok, 30);
    seam_disk_flush(r.d);
    for (int i = 0; i < 2; i++) {
        each_file(&r, remember);
        p = read_all(a_run, &n);
        p[n - 5] ^= 16;
        write_all(a_run, p, n);
        free(p);
        /* Which run it was decides whether the shorter one is left. */
        cr_expect_eq(find(&r, tok, LEN), 0);
        cr_expect_leq(find(&r, tok, LEN), 18);
        cr_expect_geq(stats(&r).n_damaged, 1);
        cr_expect(put(&r, tok, 30));
        seam_disk_flush(r.d);
        cr_expect_eq(find(&r, tok, LEN), 30);
    }
    rig_free(&r);
}
