/* A parser plugin that is right until a -D switch breaks one thing.
 *
 * CMakeLists.txt next to this file builds it once for each row of the tests.
 * Those that must be refused before their code runs are all built with
 * PLUG_ABORT: if the loader runs them all the same, the test dies. */
#include <seam/plugin.h>

#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Not each switch leaves everything in use. */
#define UNUSED __attribute__((unused))

#ifndef PLUG_NAME
#define PLUG_NAME "plug"
#endif
#ifndef PLUG_VERSION
#define PLUG_VERSION "1.0.0"
#endif
#ifndef PLUG_MAGIC
#define PLUG_MAGIC SEAM_MAGIC
#endif
#ifndef PLUG_MAJOR
#define PLUG_MAJOR SEAM_ABI_MAJOR
#endif
#ifndef PLUG_MINOR
#define PLUG_MINOR SEAM_ABI_MINOR
#endif
#ifndef PLUG_NEED
#define PLUG_NEED SEAM_ABI_NEED
#endif
#ifndef PLUG_KIND
#define PLUG_KIND SEAM_KIND_PARSER
#endif
#ifndef PLUG_FLAGS
#define PLUG_FLAGS 0
#endif
#ifndef PLUG_CPU
#define PLUG_CPU ""
#endif
#ifndef PLUG_GPU
#define PLUG_GPU ""
#endif
#ifndef PLUG_RESERVED
#define PLUG_RESERVED 0
#endif
#ifndef PLUG_PLUGIN_SIZE
#define PLUG_PLUGIN_SIZE sizeof(struct seam_plugin)
#endif
#ifndef PLUG_TABLE_SIZE /* in the identification */
#define PLUG_TABLE_SIZE sizeof(struct seam_parser)
#endif
#ifndef PLUG_TABLE_SIZE_MEM /* in the table itself */
#define PLUG_TABLE_SIZE_MEM sizeof(struct seam_parser)
#endif
#ifndef PLUG_INIT
#define PLUG_INIT plug_init
#endif
#ifndef PLUG_DESTROY
#define PLUG_DESTROY plug_destroy
#endif
#ifndef PLUG_FEED
#define PLUG_FEED plug_feed
#endif
#ifndef PLUG_TABLE
#define PLUG_TABLE &plug_table
#endif

/* What the tests ask of a plugin that runs, by extension("test/1"). */
struct plug_test {
    int (*value)(void);  /* PLUG_VALUE, to tell builds apart              */
    int (*n_init)(void); /* calls of init in this image                   */
    int (*sees)(const char *what); /* is that symbol there?                   */
};

#ifndef PLUG_VALUE
#define PLUG_VALUE 1
#endif

static int n_init;

#ifdef PLUG_ABORT
__attribute__((constructor)) static void plug_abort(void)
{
    abort();
}
#endif

#ifdef PLUG_MARKER /* decoys leave a file where the test looks for it */
__attribute__((constructor)) static void plug_marker(void)
{
    const char *path = getenv("PLUG_MARKER");
    int fd = path ? open(path, O_CREAT | O_WRONLY, 0600) : -1;

    if (fd >= 0)
        close(fd);
}
#endif

#ifdef PLUG_FLUSH /* what crtfastmath.o does */
__attribute__((constructor)) static void plug_flush(void)
{
    __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040);
}
#endif

#ifdef PLUG_CHANGE_IDENT /* rewrite the version once loaded */
__attribute__((constructor)) static void plug_change(void)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t at = (uintptr_t)&seam_plugin_entry;

    /* The compiler must not know that these bytes are constant. */
    __asm__("" : "+r"(at));
    if (mprotect((void *)(at & ~(page - 1)), 2 * page,
                 PROT_READ | PROT_WRITE) == 0)
        memcpy((char *)at + offsetof(struct seam_plugin, ident.version),
               "9.9.9", 6);
}
#endif

#ifdef PLUG_UNRESOLVED
int no_such_fn(void);
#endif

#ifdef PLUG_GONE /* from a library that is not there at run time */
int abi_gone(void);
#endif

/* Symbols of the server, and of the other plugins of the tests.  Weak: where
 * nothing provides them they are NULL. */
__attribute__((weak)) int seam_fail(struct seam_error *err, int code,
                                    const char *fmt, ...);
__attribute__((weak)) int seam_loader_load(void *l, const void *want,
                                           void **out, struct seam_error *err);
__attribute__((weak)) void seam_log(const void *log, uint32_t level,
                                    const char *who, const char *fmt, ...);
__attribute__((weak)) extern int plug_exported_a, plug_exported_b;

#ifdef PLUG_EXPORT /* visible to others, if the loader let them see it */
__attribute__((visibility("default"))) int PLUG_EXPORT = 1;
#endif

static int plug_value(void)
{
    return PLUG_VALUE;
}

static int plug_n_init(void)
{
    return n_init;
}

/* Apart, because a plugin that defines one of them knows the answer. */
static int is_there(const int *p)
{
    return p != NULL;
}

static int plug_sees(const char *what)
{
    if (!strcmp(what, "server"))
        return seam_fail || seam_loader_load || seam_log;
    if (!strcmp(what, "a"))
        return is_there(&plug_exported_a);
    if (!strcmp(what, "b"))
        return is_there(&plug_exported_b);
    return -1;
}

static const struct plug_test plug_test = { plug_value, plug_n_init,
                                            plug_sees };

UNUSED static int plug_init(const struct seam_host *host,
                            struct seam_error *err)
{
    (void)host;
    n_init++;
#if defined(PLUG_INIT_FAILS)
    err->code = SEAM_EDEVICE;
    snprintf(err->text, sizeof err->text, "the thing is not plugged in");
    return SEAM_EDEVICE;
#elif defined(PLUG_INIT_SILENT)
    (void)err;
    return SEAM_ENOTSUP;
#else
    (void)err;
    return SEAM_OK;
#endif
}

/* Tells the test that it was called: the test gave the name of a file. */
static void plug_fini(void)
{
    const char *path = getenv("PLUG_FINI");
    int fd = path ? open(path, O_CREAT | O_WRONLY, 0600) : -1;

    if (fd >= 0)
        close(fd);
}

static int plug_create(const struct seam_create *c, void **self,
                       struct seam_error *err)
{
    (void)c;
    (void)err;
    *self = &n_init;
    return SEAM_OK;
}

UNUSED static int plug_needs(void *self, struct seam_needs *out,
                             struct seam_error *err)
{
    (void)self;
    (void)out;
    (void)err;
    return SEAM_OK;
}

UNUSED static void plug_destroy(void *self)
{
    (void)self;
}

static const void *plug_extension(const char *id)
{
    return strcmp(id, "test/1") ? NULL : &plug_test;
}

static int plug_open(void *self, const struct seam_parse_opts *o,
                     const struct seam_sink *out, void **stream,
                     struct seam_error *err)
{
    (void)self;
    (void)o;
    (void)out;
    (void)err;
    *stream = &n_init;
    return SEAM_OK;
}

UNUSED static int plug_feed(void *stream, uint32_t n, const int32_t *token,
                            struct seam_str text)
{
    (void)stream;
    (void)n;
    (void)token;
    (void)text;
#ifdef PLUG_UNRESOLVED
    return no_such_fn();
#elif defined(PLUG_GONE)
    return abi_gone();
#else
    return SEAM_OK;
#endif
}

static int plug_finish(void *stream, uint32_t end)
{
    (void)stream;
    (void)end;
    return SEAM_OK;
}

static void plug_close(void *stream)
{
    (void)stream;
}

UNUSED static const struct seam_parser plug_table = {
    .size = PLUG_TABLE_SIZE_MEM,
    .open = plug_open,
    .feed = PLUG_FEED,
    .finish = plug_finish,
    .close = plug_close,
};

/* Read-only zeros, where the table should be. */
UNUSED static const char plug_zeros[512];

#ifdef PLUG_NO_ENTRY
#define seam_plugin_entry plug_other_entry
extern SEAM_EXPORT const struct seam_plugin seam_plugin_entry;
#endif

const struct seam_plugin seam_plugin_entry = {
    .ident = {
        .magic = PLUG_MAGIC,
        .abi_major = PLUG_MAJOR,
        .abi_minor = PLUG_MINOR,
        .abi_need = PLUG_NEED,
        .kind = PLUG_KIND,
        .plugin_size = PLUG_PLUGIN_SIZE,
        .table_size = PLUG_TABLE_SIZE,
        .flags = PLUG_FLAGS,
        .name = PLUG_NAME,
        .version = PLUG_VERSION,
        .build = __VERSION__,
        .cpu = PLUG_CPU,
        .gpu = PLUG_GPU,
        .reserved1 = { PLUG_RESERVED },
    },
    .table = PLUG_TABLE,
    .init = PLUG_INIT,
    .fini = plug_fini,
    .create = plug_create,
#ifdef PLUG_HALF_NEEDS
    .needs = plug_needs,
#endif
    .destroy = PLUG_DESTROY,
    .extension = plug_extension,
};
