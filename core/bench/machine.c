#include "core/bench/machine.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/base/clock.h"
#include "core/loader/cpu.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

#define READ_SLICE ((uint64_t)4 << 20)

#define DOT_ROUNDS 40000

typedef uint64_t read_slice(const void *p, uint64_t bytes);
/* Some rounds in registers; returns operations.  *sink keeps the result. */
typedef uint64_t dot_rounds(uint32_t rounds, float *sink);

struct dot {
    const char *isa;
    dot_rounds *run; /* NULL: there is none                                   */
    uint32_t rounds;
};

struct seam_machine {
    struct seam_pool *pool;
    unsigned char *mem;
    uint64_t bytes;
    read_slice *read;
    struct dot dot[SEAM_N_DOTS], *now;
    _Atomic uint64_t ops;
    char name[64];
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

/* ---- Multiplying --------------------------------------------------------- */

/* Twelve sums at a time hide the latency of any of these instructions. */
#define SUMS 12
/* So that the sums are in registers at any level of optimisation but none. */
#ifdef __clang__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 12")
#endif
/* Nor may a compiler find out that they are all the same. */
#define APART(sum)                    \
    UNROLL                            \
    for (int i_ = 0; i_ < SUMS; i_++) \
    __asm__ volatile("" : "+x"((sum)[i_]))

typedef float v4f __attribute__((vector_size(16)));

static uint64_t dot_plain(uint32_t rounds, float *sink)
{
    v4f sum[SUMS] = { 0 }, a = { 1, 2, 3, 4 }, b = { 0.5f, 0.5f, 0.5f, 0.5f };

    APART(sum);
    for (uint32_t r = 0; r < rounds; r++) {
        __asm__ volatile("" : "+x"(a));
        UNROLL
        for (int i = 0; i < SUMS; i++)
            sum[i] += a * b;
    }
    for (int i = 0; i < SUMS; i++)
        *sink += sum[i][0];
    return (uint64_t)rounds * SUMS * 4 * 2;
}

#ifdef __x86_64__
__attribute__((target("avx2,fma"))) static uint64_t dot_fma(uint32_t rounds,
                                                            float *sink)
{
    __m256 sum[SUMS] = { 0 }, a = _mm256_set1_ps(0.5f);
    __m256 b = _mm256_set1_ps(0.25f);

    APART(sum);
    for (uint32_t r = 0; r < rounds; r++) {
        __asm__ volatile("" : "+x"(a));
        UNROLL
        for (int i = 0; i < SUMS; i++)
            sum[i] = _mm256_fmadd_ps(a, b, sum[i]);
    }
    for (int i = 0; i < SUMS; i++)
        *sink += _mm256_cvtss_f32(sum[i]);
    return (uint64_t)rounds * SUMS * 8 * 2;
}

__attribute__((target("avx512f"))) static uint64_t dot_fma512(uint32_t rounds,
                                                              float *sink)
{
    __m512 sum[SUMS] = { 0 }, a = _mm512_set1_ps(0.5f);
    __m512 b = _mm512_set1_ps(0.25f);

    APART(sum);
    for (uint32_t r = 0; r < rounds; r++) {
        __asm__ volatile("" : "+v"(a));
        UNROLL
        for (int i = 0; i < SUMS; i++)
            sum[i] = _mm512_fmadd_ps(a, b, sum[i]);
    }
    for (int i = 0; i < SUMS; i++)
        *sink += _mm512_cvtss_f32(sum[i]);
    return (uint64_t)rounds * SUMS * 16 * 2;
}

__attribute__((target("avx512f,avx512bf16"))) static uint64_t dot_bf16(
    uint32_t rounds, float *sink)
{
    __m512 sum[SUMS] = { 0 };
    __m512i a = _mm512_set1_epi16(0x3f00), b = _mm512_set1_epi16(0x3e80);

    APART(sum);
    for (uint32_t r = 0; r < rounds; r++) {
        __asm__ volatile("" : "+v"(a));
        UNROLL
        for (int i = 0; i < SUMS; i++)
            sum[i] = _mm512_dpbf16_ps(sum[i], (__m512bh)a, (__m512bh)b);
    }
    for (int i = 0; i < SUMS; i++)
        *sink += _mm512_cvtss_f32(sum[i]);
    return (uint64_t)rounds * SUMS * 32 * 2;
}

__attribute__((target("avx512f,avx512vnni"))) static uint64_t dot_int8(
    uint32_t rounds, float *sink)
{
    __m512i sum[SUMS] = { 0 };
    __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(5);

    APART(sum);
    for (uint32_t r = 0; r < rounds; r++) {
        __asm__ volatile("" : "+v"(a));
        UNROLL
        for (int i = 0; i < SUMS; i++)
            sum[i] = _mm512_dpbusd_epi32(sum[i], a, b);
    }
    for (int i = 0; i < SUMS; i++)
        *sink += (float)_mm512_reduce_add_epi32(sum[i]);
    return (uint64_t)rounds * SUMS * 64 * 2;
}

__attribute__((target("avx2"))) static uint64_t dot_int8_avx2(uint32_t rounds,
                                                              float *sink)
{
    /* Sixteen registers hold half as many sums. */
    __m256i sum[SUMS] = { 0 }, one = _mm256_set1_epi16(1);
    __m256i a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(5);

    APART(sum);
    for (uint32_t r = 0; r < rounds; r++) {
        __asm__ volatile("" : "+x"(a));
        UNROLL
        for (int i = 0; i < SUMS / 2; i++) {
            __m256i c = b, p;

            __asm__ volatile("" : "+x"(c));
            p = _mm256_maddubs_epi16(a, c);
            sum[i] = _mm256_add_epi32(sum[i], _mm256_madd_epi16(p, one));
        }
    }
    for (int i = 0; i < SUMS / 2; i++)
        *sink += (float)_mm256_extract_epi32(sum[i], 0);
    return (uint64_t)rounds * SUMS * 32;
}

/* Eight tiles of 16 rows of 64 bytes; 0 to 3 are sums. */
struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
};

static const struct tile_config tile_shape = {
    .palette = 1,
    .bytes = { 64, 64, 64, 64, 64, 64, 64, 64 },
    .rows = { 16, 16, 16, 16, 16, 16, 16, 16 },
};

__attribute__((target("amx-tile"))) static void tiles_begin(void)
{
    _tile_loadconfig(&tile_shape);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    _tile_zero(6);
    _tile_zero(7);
}

__attribute__((target("amx-tile,amx-bf16"))) static uint64_t dot_amx_bf16(
    uint32_t rounds, float *sink)
{
    tiles_begin();
    for (uint32_t r = 0; r < rounds; r++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_release();
    *sink += (float)rounds;
    return (uint64_t)rounds * 4 * 16 * 16 * 32 * 2;
}

__attribute__((target("amx-tile,amx-int8"))) static uint64_t dot_amx_int8(
    uint32_t rounds, float *sink)
{
    tiles_begin();
    for (uint32_t r = 0; r < rounds; r++) {
        _tile_dpbssd(0, 4, 6);
        _tile_dpbssd(1, 4, 7);
        _tile_dpbssd(2, 5, 6);
        _tile_dpbssd(3, 5, 7);
    }
    _tile_release();
    *sink += (float)rounds;
    return (uint64_t)rounds * 4 * 16 * 16 * 64 * 2;
}
#endif

static bool machine_has(const char *features)
{
    return seam_cpu_check("bench", features, NULL) == 0 &&
           seam_cpu_enable("bench", features, NULL) == 0;
}

static void dots_choose(struct dot *d)
{
    d[SEAM_DOT_F32] = (struct dot){ "plain", dot_plain, DOT_ROUNDS };
    d[SEAM_DOT_BF16] = (struct dot){ "none", NULL, 0 };
    d[SEAM_DOT_INT8] = (struct dot){ "none", NULL, 0 };
#ifdef __x86_64__
    if (machine_has("avx2 fma")) {
        d[SEAM_DOT_F32] = (struct dot){ "AVX2", dot_fma, DOT_ROUNDS };
        d[SEAM_DOT_INT8] = (struct dot){ "AVX2", dot_int8_avx2, DOT_ROUNDS };
    }
    if (machine_has("avx512f"))
        d[SEAM_DOT_F32] = (struct dot){ "AVX-512", dot_fma512, DOT_ROUNDS };
    if (machine_has("avx512f avx512_bf16"))
        d[SEAM_DOT_BF16] = (struct dot){ "AVX-512", dot_bf16, DOT_ROUNDS };
    if (machine_has("avx512f avx512_vnni"))
        d[SEAM_DOT_INT8] = (struct dot){ "AVX-512", dot_int8, DOT_ROUNDS };
    if (machine_has("amx_tile amx_bf16"))
        d[SEAM_DOT_BF16] = (struct dot){ "AMX", dot_amx_bf16, DOT_ROUNDS / 4 };
    if (machine_has("amx_tile amx_int8"))
        d[SEAM_DOT_INT8] = (struct dot){ "AMX", dot_amx_int8, DOT_ROUNDS / 4 };
#endif
}

static void dot_task(void *arg, uint32_t i, uint32_t worker)
{
    struct seam_machine *m = arg;
    float sink = 0;

    (void)i;
    (void)worker;
    m->ops += m->now->run(m->now->rounds, &sink);
    m->sum += (uint64_t)(int64_t)sink;
}

double seam_machine_dot(struct seam_machine *m, enum seam_dot dot)
{
    uint64_t from;

    m->now = &m->dot[dot];
    if (!m->now->run)
        return 0;
    m->ops = 0;
    from = seam_now_ns();
    seam_pool_run(m->pool, seam_pool_size(m->pool), dot_task, m);
    return (double)m->ops * 1e9 / (double)(seam_now_ns() - from);
}

const char *seam_machine_isa(const struct seam_machine *m, enum seam_dot dot)
{
    return m->dot[dot].isa;
}

void seam_machine_sample(struct seam_machine *m, struct seam_ceilings *c)
{
    seam_samples_add(&c->read, seam_machine_read(m));
    for (int d = 0; d < SEAM_N_DOTS; d++)
        seam_samples_add(&c->dot[d], seam_machine_dot(m, (enum seam_dot)d));
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

static void machine_ask_name(struct seam_machine *m)
{
    static const char key[] = "model name";
    FILE *f = fopen("/proc/cpuinfo", "re");
    char line[256];

    snprintf(m->name, sizeof m->name, "unknown");
    while (f && fgets(line, sizeof line, f)) {
        char *value = strchr(line, ':');

        if (strncmp(line, key, sizeof key - 1) || !value)
            continue;
        value += 1 + strspn(value + 1, " ");
        value[strcspn(value, "\n")] = 0;
        snprintf(m->name, sizeof m->name, "%s", value);
        break;
    }
    if (f)
        fclose(f);
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
    dots_choose(m->dot);
    machine_ask_name(m);
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

uint32_t seam_machine_threads(const struct seam_machine *m)
{
    return seam_pool_size(m->pool);
}

const char *seam_machine_name(const struct seam_machine *m)
{
    return m->name;
}
