/* Groups file: what can be said of the file and of loading it. */
#include <dlfcn.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "core/check/hook.h"
#include "core/check/suite.h"
#include "core/loader/ident.h"
#include "core/loader/loader.h"

static uint32_t fp_mode(void)
{
#if defined(__x86_64__)
    return _mm_getcsr() & ~(uint32_t)_MM_EXCEPT_MASK;
#else
    return 0;
#endif
}

/* The rule that a file which can be read breaks when it cannot be loaded. */
static const char *load_rule(const char *path, const struct seam_ident *ident)
{
    void *dl = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const struct seam_plugin *p = dl ? dlsym(dl, "seam_plugin_entry") : NULL;

    if (!dl)
        return "L6";
    return !p || memcmp(&p->ident, ident, sizeof *ident) ? "L7" : "L8";
}

/* As the server loads it: L1 to L8. */
void ck_file_load(const struct ck_subject *s)
{
    char *dir = strdup(s->path), *folder;
    const struct seam_log log = { .fd = -1, .level = SEAM_LOG_ERROR };
    struct seam_loader_opts opts = { .n_plugin_paths = 1, .log = &log };
    struct seam_want want = {
        .name = s->ident.name,
        .file = s->path,
        .unpinned = true,
        .kind = s->ident.kind,
    };
    struct seam_loader *l = NULL;
    struct seam_loaded *p = NULL;
    struct seam_ident ident;
    struct seam_error err;
    char sha[65] = "";
    bool readable;
    int rc;

    ck_own(dir, "out of memory");
    folder = dirname(dir);
    opts.plugin_paths = (const char *const *)&folder;
    ck_own(!seam_loader_new(&l, &opts, &err), "%s", err.text);
    rc = seam_loader_inspect(l, &want, &ident, sha, &err);
    readable = sha[0] && ident.magic[0];
    if (!rc)
        rc = seam_loader_load(l, &want, &p, &err);
    seam_loaded_free(p);
    seam_loader_free(l);
    free(dir);
    if (rc)
        ck_fail(readable ? load_rule(s->path, &ident) : "L4", "%s", err.text);
}

/* ---- The object ---------------------------------------------------------- */

/* What section 11 rules out and a name gives away. */
static const char *const banned[] = {
    "fork",        "vfork",      "execl",
    "execlp",      "execv",      "execve",
    "execvp",      "system",     "popen",
    "posix_spawn", "socket",     "connect",
    "bind",        "listen",     "setlocale",
    "signal",      "sigaction",  "sigprocmask",
    "chdir",       "umask",      "setrlimit",
    "setenv",      "putenv",     "unsetenv",
    "atexit",      "exit",       "_exit",
    "_Exit",       "quick_exit", "abort",
    "fesetenv",    "fesetround", "fesetexceptflag",
    "printf",      "puts",       "putchar",
    "perror",      "open",       "open64",
    "fopen",       "fopen64",    "dlopen",
    "longjmp",     "siglongjmp",
};

static void import(void *arg, const char *name)
{
    (void)arg;
    for (size_t i = 0; i < sizeof banned / sizeof *banned; i++)
        if (!strcmp(name, banned[i]))
            ck_fail("C1", "imports %s, which a plugin does not call", name);
}

static void export(void *arg, const char *name)
{
    (void)arg;
    if (strcmp(name, "seam_plugin_entry") && *name)
        ck_fail("C2",
                "exports %s; link with a version script that exports "
                "seam_plugin_entry alone",
                name);
}

static void library(void *arg, const char *name)
{
    (void)arg;
    (void)name;
}

/* Loading by itself changes nothing of the process. */
void ck_file_object(const struct ck_subject *s)
{
    uint32_t threads = ck_threads(), mode = fp_mode();
    struct ck_object o;
    struct seam_error err;
    void *dl = dlopen(s->path, RTLD_NOW | RTLD_LOCAL), *entry;

    ck_require("L6", dl, "%s", dlerror());
    ck_require("T5", fp_mode() == mode,
               "loading changed the floating-point mode: MXCSR %#x, was %#x; "
               "linked with -ffast-math?",
               fp_mode(), mode);
    ck_require("T2", ck_threads() == threads, "loading started a thread");
    entry = dlsym(dl, "seam_plugin_entry");
    ck_require("L7", entry, "no seam_plugin_entry in memory");
    ck_own(!ck_object_read(entry, &o, import, export, library, NULL, &err),
           "%s", err.text);
    ck_require("F1", !o.textrel, "has text relocations; compile with -fPIC");
    ck_require("F1", !o.exec_stack,
               "asks for an executable stack; link with -z noexecstack");
    ck_require("F1", o.relro && o.bind_now,
               "tables stay writable; link with -z relro -z now");
}

/* ---- What it can be made for --------------------------------------------- */

void ck_file_family(const struct ck_subject *s)
{
    static const enum world_kind attention[] = { WORLD_KDA, WORLD_MLA };
    struct ck_subject one = *s;
    struct seam_error why[2];
    struct th *h = NULL, *other;

    if (s->ident.kind == SEAM_KIND_MOE) {
        ck_family(WORLD_MOE);
        return;
    }
    /* The plugin knows the first host for ever, so it gets the second world
     * within the first host. */
    for (uint32_t i = 0; i < 2; i++) {
        struct world w = { .seed = s->seed };
        struct ck_made m;

        one.family = attention[i];
        other = ck_world(&one, &w);
        if (!h) {
            h = other;
        } else {
            struct th swap = *h;

            h->weight = other->weight;
            h->n_weights = other->n_weights;
            h->model_cfg = other->model_cfg;
            other->weight = swap.weight;
            other->n_weights = swap.n_weights;
            other->model_cfg = swap.model_cfg;
        }
        ck_made_init(&m, h, CK_PLUGIN);
        if (!ck_made_create(&m)) {
            ck_family(one.family);
            return;
        }
        why[i] = m.err;
    }
    ck_skip("it can be made for neither family of attention: linear: %s; "
            "sparse: %s",
            why[0].text, why[1].text);
}
