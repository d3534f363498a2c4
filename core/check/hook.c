#include "core/check/hook.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/check/thread.h"

/* ---- Counting ------------------------------------------------------------ */

/* Blocks of the plugin: it also frees what library functions allocated for it,
 * so a mere count would drift.  Open addressing; 0 is free, 1 was used. */
enum { SLOTS = 1 << 16 };

static struct {
    pthread_mutex_t lock; /* of everything here; plugins have threads        */
    bool beside;
    uint32_t hot; /* calls that are under way                                 */
    const char *noted;
    int fail;
    int64_t live;
    uintptr_t block[SLOTS];
} hook = { .lock = PTHREAD_MUTEX_INITIALIZER };

static uint32_t hook_slot(uintptr_t p)
{
    return (uint32_t)((p >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 48);
}

/* A call of the plugin; false when it is to fail. */
static bool hook_call(const char *name, bool allocates)
{
    uint32_t tag = ck_here()->tag;
    bool go = true;

    pthread_mutex_lock(&hook.lock);
    if (hook.hot && !hook.noted && tag != CK_CONTROL && tag != CK_REQUEST &&
        (tag || !hook.beside))
        hook.noted = name;
    if (allocates && hook.fail > 0 && --hook.fail == 0)
        go = false;
    pthread_mutex_unlock(&hook.lock);
    if (!go)
        errno = ENOMEM;
    return go;
}

static void *hook_took(void *p)
{
    uint32_t i = hook_slot((uintptr_t)p);

    if (!p)
        return p;
    pthread_mutex_lock(&hook.lock);
    for (uint32_t k = 0; k < SLOTS; k++, i++)
        if (hook.block[i % SLOTS] <= 1) {
            hook.block[i % SLOTS] = (uintptr_t)p;
            hook.live++;
            break;
        }
    pthread_mutex_unlock(&hook.lock);
    return p;
}

static void hook_gave(void *p)
{
    uint32_t i = hook_slot((uintptr_t)p);

    if (!p)
        return;
    pthread_mutex_lock(&hook.lock);
    for (uint32_t k = 0; k < SLOTS && hook.block[i % SLOTS]; k++, i++)
        if (hook.block[i % SLOTS] == (uintptr_t)p) {
            hook.block[i % SLOTS] = 1;
            hook.live--;
            break;
        }
    pthread_mutex_unlock(&hook.lock);
}

void ck_hook_hot(bool hot)
{
    pthread_mutex_lock(&hook.lock);
    if (hot && !hook.hot)
        hook.noted = NULL;
    hook.hot += hot ? 1 : -1u;
    pthread_mutex_unlock(&hook.lock);
}

void ck_hook_beside(bool beside)
{
    pthread_mutex_lock(&hook.lock);
    hook.beside = beside;
    pthread_mutex_unlock(&hook.lock);
}

const char *ck_hook_noted(void)
{
    const char *name;

    pthread_mutex_lock(&hook.lock);
    name = hook.noted;
    hook.noted = NULL;
    pthread_mutex_unlock(&hook.lock);
    return name;
}

int64_t ck_hook_live(void)
{
    int64_t n;

    pthread_mutex_lock(&hook.lock);
    n = hook.live;
    pthread_mutex_unlock(&hook.lock);
    return n;
}

void ck_hook_fail(int n)
{
    pthread_mutex_lock(&hook.lock);
    hook.fail = n;
    pthread_mutex_unlock(&hook.lock);
}

int ck_hook_left(void)
{
    int n;

    pthread_mutex_lock(&hook.lock);
    n = hook.fail;
    pthread_mutex_unlock(&hook.lock);
    return n;
}

/* ---- Wrappers ------------------------------------------------------------ */

static void *wrap_malloc(size_t n)
{
    return hook_call("malloc", true) ? hook_took(malloc(n)) : NULL;
}

static void *wrap_calloc(size_t n, size_t size)
{
    return hook_call("calloc", true) ? hook_took(calloc(n, size)) : NULL;
}

static void *wrap_realloc(void *p, size_t n)
{
    void *q;

    if (!hook_call("realloc", true))
        return NULL;
    /* Before, since another thread may be given the address at once. */
    hook_gave(p);
    q = realloc(p, n);
    if (!q && n)
        hook_took(p);
    return hook_took(q);
}

static void wrap_free(void *p)
{
    if (p)
        hook_call("free", false);
    hook_gave(p);
    free(p);
}

static void *wrap_aligned_alloc(size_t align, size_t n)
{
    return hook_call("aligned_alloc", true) ? hook_took(aligned_alloc(align, n))
                                            : NULL;
}

static int wrap_posix_memalign(void **out, size_t align, size_t n)
{
    int rc;

    if (!hook_call("posix_memalign", true))
        return ENOMEM;
    rc = posix_memalign(out, align, n);
    if (!rc)
        hook_took(*out);
    return rc;
}

static char *wrap_strdup(const char *s)
{
    return hook_call("strdup", true) ? hook_took(strdup(s)) : NULL;
}

static char *wrap_strndup(const char *s, size_t n)
{
    return hook_call("strndup", true) ? hook_took(strndup(s, n)) : NULL;
}

static int wrap_vasprintf(char **out, const char *fmt, va_list ap)
{
    int n;

    if (!hook_call("vasprintf", true))
        return -1;
    n = vasprintf(out, fmt, ap);
    if (n >= 0)
        hook_took(*out);
    return n;
}

static int wrap_asprintf(char **out, const char *fmt, ...)
{
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = wrap_vasprintf(out, fmt, ap);
    va_end(ap);
    return n;
}

static void *wrap_mmap(void *at, size_t n, int prot, int flags, int fd,
                       off_t off)
{
    if (!hook_call("mmap", true))
        return MAP_FAILED;
    return mmap(at, n, prot, flags, fd, off);
}

static int wrap_munmap(void *at, size_t n)
{
    hook_call("munmap", false);
    return munmap(at, n);
}

static int wrap_pthread_create(pthread_t *t, const pthread_attr_t *a,
                               void *(*fn)(void *), void *arg)
{
    return hook_call("pthread_create", false) ? pthread_create(t, a, fn, arg)
                                              : EAGAIN;
}

static const struct {
    const char *name;
    uintptr_t to;
} wrappers[] = {
    { "malloc", (uintptr_t)wrap_malloc },
    { "calloc", (uintptr_t)wrap_calloc },
    { "realloc", (uintptr_t)wrap_realloc },
    { "free", (uintptr_t)wrap_free },
    { "aligned_alloc", (uintptr_t)wrap_aligned_alloc },
    { "memalign", (uintptr_t)wrap_aligned_alloc },
    { "posix_memalign", (uintptr_t)wrap_posix_memalign },
    { "strdup", (uintptr_t)wrap_strdup },
    { "strndup", (uintptr_t)wrap_strndup },
    { "asprintf", (uintptr_t)wrap_asprintf },
    { "vasprintf", (uintptr_t)wrap_vasprintf },
    { "mmap", (uintptr_t)wrap_mmap },
    { "munmap", (uintptr_t)wrap_munmap },
    { "pthread_create", (uintptr_t)wrap_pthread_create },
};

/* ---- Objects in memory --------------------------------------------------- */

#if defined(__x86_64__)
#define IS_IMPORT(type)                                             \
    ((type) == R_X86_64_JUMP_SLOT || (type) == R_X86_64_GLOB_DAT || \
     (type) == R_X86_64_64)
#elif defined(__aarch64__)
#define IS_IMPORT(type)                                               \
    ((type) == R_AARCH64_JUMP_SLOT || (type) == R_AARCH64_GLOB_DAT || \
     (type) == R_AARCH64_ABS64)
#endif

struct object {
    const struct link_map *map;
    const Elf64_Sym *sym;
    const char *str;
    const Elf64_Rela *rela, *plt;
    size_t n_rela, n_plt;
    const uint32_t *gnu_hash;
    uint64_t flags, flags_1;
    bool textrel, runpath;
};

static int object_open(const void *addr, struct object *o,
                       struct seam_error *err)
{
    Dl_info info;
    void *map = NULL;

    memset(o, 0, sizeof *o);
    if (!dladdr1(addr, &info, &map, RTLD_DL_LINKMAP) || !map)
        return seam_fail(err, SEAM_ENOENT, "no object at %p", addr);
    o->map = map;
    for (const Elf64_Dyn *d = o->map->l_ld; d->d_tag != DT_NULL; d++) {
        const void *p = (const void *)d->d_un.d_ptr;

        switch (d->d_tag) {
        case DT_SYMTAB:
            o->sym = p;
            break;
        case DT_STRTAB:
            o->str = p;
            break;
        case DT_RELA:
            o->rela = p;
            break;
        case DT_RELASZ:
            o->n_rela = d->d_un.d_val / sizeof *o->rela;
            break;
        case DT_JMPREL:
            o->plt = p;
            break;
        case DT_PLTRELSZ:
            o->n_plt = d->d_un.d_val / sizeof *o->plt;
            break;
        case DT_GNU_HASH:
            o->gnu_hash = p;
            break;
        case DT_FLAGS:
            o->flags = d->d_un.d_val;
            break;
        case DT_FLAGS_1:
            o->flags_1 = d->d_un.d_val;
            break;
        case DT_TEXTREL:
            o->textrel = true;
            break;
        case DT_RPATH:
        case DT_RUNPATH:
            o->runpath = true;
            break;
        default:
            break;
        }
    }
    return 0;
}

static const char *object_name(const struct object *o, const Elf64_Rela *r)
{
    return o->str + o->sym[ELF64_R_SYM(r->r_info)].st_name;
}

#ifdef IS_IMPORT
static int hook_patch(const struct object *o, const Elf64_Rela *r,
                      struct seam_error *err)
{
    uintptr_t at = o->map->l_addr + r->r_offset,
              page = (uintptr_t)getpagesize();

    if (!IS_IMPORT(ELF64_R_TYPE(r->r_info)) || !ELF64_R_SYM(r->r_info) ||
        o->sym[ELF64_R_SYM(r->r_info)].st_shndx != SHN_UNDEF)
        return 0;
    for (size_t i = 0; i < sizeof wrappers / sizeof *wrappers; i++) {
        if (strcmp(object_name(o, r), wrappers[i].name))
            continue;
        /* What is read-only after relocation stays writable: nobody but this
         * child sees it. */
        if (mprotect((void *)(at / page * page), 2 * page,
                     PROT_READ | PROT_WRITE) &&
            mprotect((void *)(at / page * page), page, PROT_READ | PROT_WRITE))
            return seam_fail(err, SEAM_EINVAL, "mprotect: %s", strerror(errno));
        memcpy((void *)at, &wrappers[i].to, sizeof wrappers[i].to);
    }
    return 0;
}
#endif

int ck_hook_install(const void *addr, struct seam_error *err)
{
    struct object o;
    int rc = object_open(addr, &o, err);

#ifdef IS_IMPORT
    for (size_t i = 0; !rc && i < o.n_rela; i++)
        rc = hook_patch(&o, &o.rela[i], err);
    for (size_t i = 0; !rc && i < o.n_plt; i++)
        rc = hook_patch(&o, &o.plt[i], err);
#else
    if (!rc)
        rc = seam_fail(err, SEAM_ENOTSUP,
                       "no relocation types known for this "
                       "machine");
#endif
    return rc;
}

/* One more than the highest symbol that the hash table reaches; exported ones
 * are all there. */
static uint32_t object_symbols(const struct object *o)
{
    const uint32_t *h = o->gnu_hash, *bucket, *chain;
    uint32_t n = 0;

    if (!h)
        return 0;
    bucket = h + 4 + h[2] * (sizeof(uintptr_t) / sizeof *h);
    chain = bucket + h[0];
    for (uint32_t i = 0; i < h[0]; i++)
        if (bucket[i] > n)
            n = bucket[i];
    if (n < h[1])
        return h[1];
    while (!(chain[n - h[1]] & 1))
        n++;
    return n + 1;
}

struct phdrs {
    const void *base;
    struct ck_object *out;
};

static int object_phdrs(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct phdrs *p = arg;

    (void)size;
    if ((const void *)info->dlpi_addr != p->base)
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type == PT_GNU_RELRO)
            p->out->relro = true;
        if (info->dlpi_phdr[i].p_type == PT_GNU_STACK)
            p->out->exec_stack = info->dlpi_phdr[i].p_flags & PF_X;
    }
    return 1;
}

int ck_object_read(const void *addr, struct ck_object *out, ck_name_fn *imports,
                   ck_name_fn *exports, ck_name_fn *libraries, void *arg,
                   struct seam_error *err)
{
    struct object o;
    struct phdrs p;
    int rc = object_open(addr, &o, err);

    if (rc)
        return rc;
    *out = (struct ck_object){
        .textrel = o.textrel || (o.flags & DF_TEXTREL),
        .runpath = o.runpath,
        .bind_now = (o.flags & DF_BIND_NOW) || (o.flags_1 & DF_1_NOW),
        .exec_stack = true, /* what the absence of the header means */
    };
    p = (struct phdrs){ (const void *)o.map->l_addr, out };
    dl_iterate_phdr(object_phdrs, &p);
    for (const Elf64_Dyn *d = o.map->l_ld; d->d_tag != DT_NULL; d++)
        if (d->d_tag == DT_NEEDED)
            libraries(arg, o.str + d->d_un.d_val);
    for (size_t i = 0; i < o.n_rela + o.n_plt; i++) {
        const Elf64_Rela *r = i < o.n_rela ? &o.rela[i] : &o.plt[i - o.n_rela];
        uint64_t s = ELF64_R_SYM(r->r_info);

        if (s && o.sym[s].st_shndx == SHN_UNDEF)
            imports(arg, object_name(&o, r));
    }
    for (uint32_t i = 1; i < object_symbols(&o); i++)
        if (o.sym[i].st_shndx != SHN_UNDEF &&
            ELF64_ST_BIND(o.sym[i].st_info) != STB_LOCAL)
            exports(arg, o.str + o.sym[i].st_name);
    return 0;
}
