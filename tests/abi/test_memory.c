/* The loader with the n-th allocation failing, for each n.
 *
 * The program is linked with --wrap for what the loader allocates with, so the
 * calls of core/ come here. */
#include <criterion/criterion.h>
#include <errno.h>
#include <openssl/evp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/abi/room.h"

static int countdown = -1; /* allocations until one fails; -1: none does      */

static bool fails(void)
{
    return countdown >= 0 && countdown-- == 0;
}

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
char *__real_strdup(const char *s);
char *__real_realpath(const char *path, char *out);
EVP_MD_CTX *__real_EVP_MD_CTX_new(void);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
char *__wrap_strdup(const char *s);
char *__wrap_realpath(const char *path, char *out);
int __wrap_asprintf(char **out, const char *format, ...);
EVP_MD_CTX *__wrap_EVP_MD_CTX_new(void);

void *__wrap_malloc(size_t n)
{
    return fails() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : __real_calloc(n, size);
}

char *__wrap_strdup(const char *s)
{
    return fails() ? NULL : __real_strdup(s);
}

char *__wrap_realpath(const char *path, char *out)
{
    if (fails()) {
        errno = ENOMEM;
        return NULL;
    }
    return __real_realpath(path, out);
}

int __wrap_asprintf(char **out, const char *format, ...)
{
    va_list ap;
    int n;

    *out = NULL;
    if (fails())
        return -1;
    va_start(ap, format);
    n = vasprintf(out, format, ap);
    va_end(ap);
    return n;
}

EVP_MD_CTX *__wrap_EVP_MD_CTX_new(void)
{
    return fails() ? NULL : __real_EVP_MD_CTX_new();
}

Test(memory, leaves_nothing_behind_when_it_runs_out)
{
    const struct seam_host host = { .size = sizeof host };
    const struct seam_want want = { "plug", "plug.so", NULL, true,
                                    SEAM_KIND_PARSER };
    const char *paths[1];
    struct room r;
    int rc = -1, n;

    room_open(&r);
    room_copy(&r, "plug", "plugins/plug.so");
    paths[0] = r.other;
    seam_loader_free(r.loader);
    r.loader = NULL;
    for (n = 0; rc && n < 100; n++) {
        struct seam_loader_opts opts = {
            .plugin_dir = r.plugins,
            .plugin_paths = paths,
            .n_plugin_paths = 1,
            .gpu = "gfx1201",
        };
        struct seam_loader *l = NULL;
        struct seam_loaded *p = NULL;
        struct seam_error err = { 0 };

        countdown = n;
        rc = seam_loader_new(&l, &opts, &err);
        if (!rc)
            rc = seam_loader_load(l, &want, &p, &err);
        if (!rc)
            rc = seam_loaded_init(p, &host, &err);
        if (rc)
            cr_expect(*err.text && !p, "allocation %d: \"%s\"", n, err.text);
        else
            cr_expect_geq(countdown, 0, "allocation %d was not noticed", n);
        countdown = -1;
        seam_loaded_free(p);
        seam_loader_free(l);
        cr_expect_eq(room_count(&r, "tmp"), 0, "allocation %d", n);
    }
    cr_expect_eq(rc, 0, "it works in the end");
    cr_expect_gt(n, 10, "%d allocations were tried", n);
    room_close(&r);
}
