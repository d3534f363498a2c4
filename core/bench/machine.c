#include "core/bench/machine.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/base/clock.h"

#define READ_SLICE ((uint64_t)4 << 20)

typedef uint64_t read_slice(const void *p, uint64_t bytes);

struct seam_machine {
    struct seam_pool *pool;
    unsigned char *mem;
    uint64_t bytes;
    read_slice *read;
    _Atomic uint64_t sum; /* so that no read can be left out                  */
};

/* ---- Reading ------------------------------------------------------------- */

typedef uint64_t v4u __attribute__((vector_size(32)));
typedef uint64_t v8u __attribute__((vector_size(64)));

static uint64_t read_plain(const void *p, uint64_t bytes)
{
    const uint64_t *q = p;
    uint64_t a = 0, b = 0, c = 0, d = 0;

    for (uint64_t i = 0; i < bytes / 8; i += 4) {
        a += q[i];
        b += q[i + 1];
        c += q[i + 2];
        d += q[i + 3];
    }
    return a + b + c + d;
}

#ifdef __x86_64__
__attribute__((target("avx2"))) static uint64_t read_avx2(const void *p,
                                                          uint64_t bytes)
{
    const v4u *q = p;
    v4u a = { 0 }, b = { 0 }, c = { 0 }, d = { 0 };

    for (uint64_t i = 0; i < bytes / 32; i += 4) {
        a += q[i];
        b += q[i + 1];
        c += q[i + 2];
        d += q[i + 3];
    }
    a += b + c + d;
    return a[0] + a[1] + a[2] + a[3];
}

__attribute__((target("avx512f"))) static uint64_t read_avx512(const void *p,
                                                               uint64_t bytes)
{
    const v8u *q = p;
    v8u a = { 0 }, b = { 0 }, c = { 0 }, d = { 0 };

    for (uint64_t i = 0; i < bytes / 64; i += 4) {
        a += q[i];
        b += q[i + 1];
        c += q[i + 2];
        d += q[i + 3];
    }
    a += b + c + d;
    return a[0] + a[1] + a[2] + a[3] + a[4] + a[5] + a[6] + a[7];
}
#endif

static read_slice *read_best(void)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f"))
        return read_avx512;
    if (__builtin_cpu_supports("avx2"))
        return read_avx2;
#endif
    return read_plain;
}

static void read_task(void *arg, uint32_t i, uint32_t worker)
{
    struct seam_machine *m = arg;
    uint32_t n = seam_pool_size(m->pool);
    uint64_t share = m->bytes / n / READ_SLICE * READ_SLICE;
    uint64_t sum = 0;

    (void)worker;
    /* Each thread has a stretch of its own, as with rows of a weight. */
    for (uint64_t at = 0; at < share; at += READ_SLICE)
        sum += m->read(m->mem + i * share + at, READ_SLICE);
    m->sum += sum;
}

double seam_machine_read(struct seam_machine *m)
{
    uint32_t n = seam_pool_size(m->pool);
    uint64_t bytes = m->bytes / n / READ_SLICE * READ_SLICE * n;
    uint64_t from = seam_now_ns();

    seam_pool_run(m->pool, n, read_task, m);
    return (double)bytes * 1e9 / (double)(seam_now_ns() - from);
}

/* ---- Opening ------------------------------------------------------------- */

static void touch_task(void *arg, uint32_t i, uint32_t worker)
{
    struct seam_machine *m = arg;
    uint32_t n = seam_pool_size(m->pool);
    uint64_t share = m->bytes / n;

    (void)worker;
    memset(m->mem + i * share, (int)i + 1, share);
}

int seam_machine_new(struct seam_machine **out, struct seam_pool *pool,
                     uint64_t bytes, struct seam_error *err)
{
    struct seam_machine *m = calloc(1, sizeof *m);
    uint64_t least = READ_SLICE * seam_pool_size(pool);
    void *p;

    if (!m)
        return seam_fail(err, SEAM_ENOMEM, "out of memory");
    m->pool = pool;
    m->bytes = bytes < least ? least : bytes;
    m->read = read_best();
    p = mmap(NULL, m->bytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        free(m);
        return seam_fail(err, SEAM_ENOMEM,
                         "no memory for %llu bytes to read from",
                         (unsigned long long)bytes);
    }
    m->mem = p;
    madvise(p, m->bytes, MADV_HUGEPAGE);
    seam_pool_run(pool, seam_pool_size(pool), touch_task, m);
    *out = m;
    return 0;
}

void seam_machine_free(struct seam_machine *m)
{
    if (!m)
        return;
    munmap(m->mem, m->bytes);
    free(m);
}
