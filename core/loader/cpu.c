/* CPUID says what the processor can do, XGETBV which registers the kernel saves
 * for it; only both together make an instruction usable.
 *
 * Not __builtin_cpu_supports: its argument is a literal, and gcc and clang know
 * different names. */
#include "core/loader/cpu.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* What the kernel must save, as bits of XCR0. */
enum { SAVE_NONE = 0, SAVE_YMM = 0x6, SAVE_ZMM = 0xe6, SAVE_TILE = 0x60000 };

struct cpu_feature {
    const char *name;
    uint32_t leaf, subleaf;
    uint8_t reg; /* 0..3: eax, ebx, ecx, edx                                  */
    uint8_t bit;
    uint32_t save;
};

#if defined(__x86_64__)
#include <cpuid.h>

enum { EAX = 0, EBX = 1, ECX = 2, EDX = 3 };

// clang-format off
static const struct cpu_feature cpu_features[] = {
    { "sse3",             1, 0, ECX,  0, SAVE_NONE },
    { "pclmulqdq",        1, 0, ECX,  1, SAVE_NONE },
    { "ssse3",            1, 0, ECX,  9, SAVE_NONE },
    { "fma",              1, 0, ECX, 12, SAVE_YMM  },
    { "sse4_1",           1, 0, ECX, 19, SAVE_NONE },
    { "sse4_2",           1, 0, ECX, 20, SAVE_NONE },
    { "movbe",            1, 0, ECX, 22, SAVE_NONE },
    { "popcnt",           1, 0, ECX, 23, SAVE_NONE },
    { "aes",              1, 0, ECX, 25, SAVE_NONE },
    { "avx",              1, 0, ECX, 28, SAVE_YMM  },
    { "f16c",             1, 0, ECX, 29, SAVE_YMM  },
    { "bmi1",             7, 0, EBX,  3, SAVE_NONE },
    { "avx2",             7, 0, EBX,  5, SAVE_YMM  },
    { "bmi2",             7, 0, EBX,  8, SAVE_NONE },
    { "avx512f",          7, 0, EBX, 16, SAVE_ZMM  },
    { "avx512dq",         7, 0, EBX, 17, SAVE_ZMM  },
    { "avx512ifma",       7, 0, EBX, 21, SAVE_ZMM  },
    { "avx512er",         7, 0, EBX, 27, SAVE_ZMM  },
    { "avx512cd",         7, 0, EBX, 28, SAVE_ZMM  },
    { "avx512bw",         7, 0, EBX, 30, SAVE_ZMM  },
    { "avx512vl",         7, 0, EBX, 31, SAVE_ZMM  },
    { "avx512_vbmi",      7, 0, ECX,  1, SAVE_ZMM  },
    { "avx512vbmi",       7, 0, ECX,  1, SAVE_ZMM  },
    { "avx512_vbmi2",     7, 0, ECX,  6, SAVE_ZMM  },
    { "gfni",             7, 0, ECX,  8, SAVE_NONE },
    { "vaes",             7, 0, ECX,  9, SAVE_YMM  },
    { "vpclmulqdq",       7, 0, ECX, 10, SAVE_YMM  },
    { "avx512_vnni",      7, 0, ECX, 11, SAVE_ZMM  },
    { "avx512_bitalg",    7, 0, ECX, 12, SAVE_ZMM  },
    { "avx512_vpopcntdq", 7, 0, ECX, 14, SAVE_ZMM  },
    { "amx_bf16",         7, 0, EDX, 22, SAVE_TILE },
    { "avx512_fp16",      7, 0, EDX, 23, SAVE_ZMM  },
    { "amx_tile",         7, 0, EDX, 24, SAVE_TILE },
    { "amx_int8",         7, 0, EDX, 25, SAVE_TILE },
    { "avx_vnni",         7, 1, EAX,  4, SAVE_YMM  },
    { "avx512_bf16",      7, 1, EAX,  5, SAVE_ZMM  },
    { "amx_fp16",         7, 1, EAX, 21, SAVE_TILE },
    { "lzcnt",   0x80000001, 0, ECX,  5, SAVE_NONE },
};
// clang-format on

/* XCR0: what the kernel saves at a switch of threads. */
static uint64_t cpu_saved(void)
{
    uint32_t a, b, c, d, lo, hi;

    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE))
        return 0;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (uint64_t)hi << 32 | lo;
}

static bool cpu_has(const struct cpu_feature *f)
{
    uint32_t r[4];

    return __get_cpuid_count(f->leaf, f->subleaf, &r[0], &r[1], &r[2], &r[3]) &&
           (r[f->reg] >> f->bit & 1) && (cpu_saved() & f->save) == f->save;
}
#else
static const struct cpu_feature cpu_features[] = { { .name = "" } };

static bool cpu_has(const struct cpu_feature *f)
{
    (void)f;
    return false;
}
#endif

/* The next word of *list, its length in *n; NULL at the end. */
static const char *cpu_word(const char **list, size_t *n)
{
    const char *s = *list + strspn(*list, " ");

    *n = strcspn(s, " ");
    *list = s + *n;
    return *n ? s : NULL;
}

static const struct cpu_feature *cpu_find(const char *s, size_t n)
{
    for (size_t i = 0; i < sizeof cpu_features / sizeof *cpu_features; i++)
        if (!strncmp(cpu_features[i].name, s, n) && !cpu_features[i].name[n])
            return &cpu_features[i];
    return NULL;
}

int seam_cpu_check(const char *name, const char *features,
                   struct seam_error *err)
{
    const char *s;
    size_t n;

    while ((s = cpu_word(&features, &n))) {
        const struct cpu_feature *f = cpu_find(s, n);

        if (!f)
            return seam_fail(err, SEAM_ENOTSUP,
                             "%s: needs CPU feature %.*s, which this server "
                             "does not know how to look for",
                             name, (int)n, s);
        if (!cpu_has(f))
            return seam_fail(err, SEAM_ENOTSUP,
                             "%s: needs CPU feature %.*s, which this machine "
                             "lacks",
                             name, (int)n, s);
    }
    return 0;
}

/* arch_prctl's, in the kernel since 5.16; without them AMX cannot be used. */
#define ARCH_REQ_XCOMP_PERM 0x1023
#define XFEATURE_XTILEDATA  18

int seam_cpu_enable(const char *name, const char *features,
                    struct seam_error *err)
{
    bool tiles = false;
    const char *s;
    size_t n;

    while ((s = cpu_word(&features, &n))) {
        const struct cpu_feature *f = cpu_find(s, n);

        tiles = tiles || (f && f->save == SAVE_TILE);
    }
#if defined(__x86_64__)
    if (tiles &&
        syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA))
        return seam_fail_errno(err, SEAM_ENOTSUP, errno,
                               "%s: needs AMX, which the kernel does not let "
                               "this process use",
                               name);
#endif
    return 0;
}
