/* The steps are those of docs/abi.md, "Loading and refusing".  trust.c does L1
 * and L2, store.c L3, ident.c L4; here are L5 and all that follows once code of
 * the plugin has begun to run.
 *
 * A plugin in use is an entry of the loader's list, so that a name is not given
 * twice.  Either may be freed first. */
#include "core/loader/loader.h"

#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/loader/cpu.h"
#include "core/loader/ident.h"
#include "core/loader/store.h"
#include "core/loader/trust.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

/* Room for what a plugin is called in messages, which are one short line. */
#define LABEL_BYTES 96

struct loaded {
    struct seam_loaded pub; /* what callers hold                              */
    struct seam_loader *loader; /* NULL once that was freed                   */
    struct loaded *next;
};

struct seam_loader {
    struct seam_places places;
    char *plugin_dir, **plugin_paths; /* owned; places points here            */
    char *gpu;
    const struct seam_log *log;
    struct seam_store store;
    struct loaded *first;
};

/* A plugin that has passed L1 to L5 and has not run. */
struct candidate {
    char label[LABEL_BYTES];
    char *path; /* the original                                               */
    char *copy; /* in the store                                               */
    char sha256[65];
    struct seam_ident ident;
};

/* ---- Sizes and mandatory members ---------------------------------------- */

/* Where member m ends. */
#define END(type, m) \
    ((uint32_t)(offsetof(struct type, m) + sizeof(((struct type *)0)->m)))

/* Tables are this long in the oldest minor that is served: up to the last
 * member of ABI 0.1.  Members that come later do not change these. */
#define MIN_PLUGIN  END(seam_plugin, extension)
#define MIN_BACKEND END(seam_backend, event_done)
#define MIN_OPS     END(seam_ops, verify)
#define MIN_BLOCK   END(seam_block, commit)
#define MIN_SPEC    END(seam_spec, draft)
#define MIN_PARSER  END(seam_parser, close)

struct kind_table {
    uint32_t min, size;
};

static struct kind_table kind_table(uint32_t kind)
{
    switch (kind) {
    case SEAM_KIND_BACKEND:
        return (struct kind_table){ MIN_BACKEND, sizeof(struct seam_backend) };
    case SEAM_KIND_ATTENTION:
    case SEAM_KIND_MOE:
        return (struct kind_table){ MIN_BLOCK, sizeof(struct seam_block) };
    case SEAM_KIND_SPEC:
        return (struct kind_table){ MIN_SPEC, sizeof(struct seam_spec) };
    case SEAM_KIND_PARSER:
        return (struct kind_table){ MIN_PARSER, sizeof(struct seam_parser) };
    default:
        return (struct kind_table){ 0, 0 };
    }
}

/* A function pointer of a table, by its offset. */
struct member {
    const char *name;
    size_t at;
};

#define MEMBER(type, m)              \
    {                                \
#m, offsetof(struct type, m) \
    }

static const struct member plugin_members[] = {
    MEMBER(seam_plugin, init),
    MEMBER(seam_plugin, create),
    MEMBER(seam_plugin, destroy),
};

static const struct member backend_members[] = {
    MEMBER(seam_backend, device),       MEMBER(seam_backend, alloc),
    MEMBER(seam_backend, free),         MEMBER(seam_backend, stream_new),
    MEMBER(seam_backend, stream_free),  MEMBER(seam_backend, event_new),
    MEMBER(seam_backend, event_free),   MEMBER(seam_backend, stream_wait),
    MEMBER(seam_backend, copy),         MEMBER(seam_backend, fill),
    MEMBER(seam_backend, event_record), MEMBER(seam_backend, event_join),
    MEMBER(seam_backend, event_done),
};

static const struct member graph_members[] = {
    MEMBER(seam_backend, capture_begin),
    MEMBER(seam_backend, capture_end),
    MEMBER(seam_backend, graph_launch),
    MEMBER(seam_backend, graph_free),
};

static const struct member ops_members[] = {
    MEMBER(seam_ops, gemm),     MEMBER(seam_ops, embed),
    MEMBER(seam_ops, residual), MEMBER(seam_ops, norm),
    MEMBER(seam_ops, glu),      MEMBER(seam_ops, gather),
    MEMBER(seam_ops, sample),   MEMBER(seam_ops, verify),
};

static const struct member block_members[] = {
    MEMBER(seam_block, forward),
};

static const struct member spec_members[] = {
    MEMBER(seam_spec, info),
    MEMBER(seam_spec, draft),
};

static const struct member parser_members[] = {
    MEMBER(seam_parser, open),
    MEMBER(seam_parser, feed),
    MEMBER(seam_parser, finish),
    MEMBER(seam_parser, close),
};

#define COUNT(a) (sizeof(a) / sizeof *(a))

static bool member_is_null(const void *table, const struct member *m)
{
    void (*fn)(void);

    memcpy(&fn, (const char *)table + m->at, sizeof fn);
    return !fn;
}

static int members_require(const char *label, const char *what,
                           const void *table, const struct member *m, size_t n,
                           struct seam_error *err)
{
    for (size_t i = 0; i < n; i++)
        if (member_is_null(table, &m[i]))
            return seam_fail(err, SEAM_EDATA,
                             "%s: %s.%s is NULL; the plugin has to provide it",
                             label, what, m[i].name);
    return 0;
}

static int members_both(const char *label, const char *a, bool has_a,
                        const char *b, bool has_b, struct seam_error *err)
{
    if (has_a == has_b)
        return 0;
    return seam_fail(err, SEAM_EDATA,
                     "%s: %s is NULL and %s is not; expected both or neither",
                     label, has_a ? b : a, has_a ? a : b);
}

/* ---- L5: is it what was asked for, and can it work here? ----------------- */

static int check_version(const char *label, const struct seam_ident *id,
                         struct seam_error *err)
{
    /* While the major is 0, a minor keeps no promise to another. */
    bool speaks = id->abi_major == SEAM_ABI_MAJOR &&
                  (SEAM_ABI_MAJOR != 0 || id->abi_minor == SEAM_ABI_MINOR);

    if (!speaks)
        return seam_fail(err, SEAM_ENOTSUP,
                         "%s: built for seam ABI %u.%u; this server speaks "
                         "%u.%u. Rebuild it against this server's "
                         "<seam/plugin.h>",
                         label, id->abi_major, id->abi_minor, SEAM_ABI_MAJOR,
                         SEAM_ABI_MINOR);
    if (id->abi_need > SEAM_ABI_MINOR)
        return seam_fail(err, SEAM_ENOTSUP,
                         "%s: needs seam ABI >= %u.%u; this server provides "
                         "%u.%u. Update seam, or rebuild with "
                         "-DSEAM_ABI_TARGET=%u",
                         label, id->abi_major, id->abi_need, SEAM_ABI_MAJOR,
                         SEAM_ABI_MINOR, SEAM_ABI_MINOR);
    return 0;
}

/* Only a plugin of a newer minor has a table longer than ours. */
static int check_size(const char *label, const char *what,
                      const struct seam_ident *id, uint32_t found, uint32_t min,
                      uint32_t ours, struct seam_error *err)
{
    if (found < min)
        return seam_fail(err, SEAM_EDATA,
                         "%s: %s size %u; expected at least %u. The file is "
                         "damaged or was tampered with",
                         label, what, found, min);
    if (found > ours && id->abi_minor <= SEAM_ABI_MINOR)
        return seam_fail(err, SEAM_EDATA,
                         "%s: %s size %u; ABI %u.%u has at most %u. The file "
                         "is damaged or was tampered with",
                         label, what, found, id->abi_major, id->abi_minor,
                         ours);
    return 0;
}

static int check_layout(const char *label, const struct seam_ident *id,
                        struct seam_error *err)
{
    static const char zero[sizeof id->reserved1];
    struct kind_table t = kind_table(id->kind);
    int rc;

    if (!t.size)
        return seam_fail(err, SEAM_EDATA,
                         "%s: kind %u; this server knows 1 to %u", label,
                         id->kind, SEAM_KIND_PARSER);
    rc = check_size(label, "plugin", id, id->plugin_size, MIN_PLUGIN,
                    sizeof(struct seam_plugin), err);
    if (!rc)
        rc = check_size(label, "table", id, id->table_size, t.min, t.size, err);
    if (rc)
        return rc;
    if (id->flags & ~(uint32_t)SEAM_PLUGIN_UNLOADABLE)
        return seam_fail(err, SEAM_ENOTSUP,
                         "%s: flags %#x; this server knows %#x. Update seam, "
                         "or rebuild it against this server's <seam/plugin.h>",
                         label, id->flags, SEAM_PLUGIN_UNLOADABLE);
    if (id->reserved0 || memcmp(id->reserved1, zero, sizeof zero))
        return seam_fail(err, SEAM_EDATA,
                         "%s: reserved bytes of its identification are not "
                         "zero; the file is damaged or was tampered with",
                         label);
    return 0;
}

static int check_gpu(const char *label, const char *targets, const char *gpu,
                     struct seam_error *err)
{
    size_t n = gpu ? strlen(gpu) : 0;
    const char *s = targets;

    s += strspn(s, " ");
    if (!*s)
        return 0;
    if (!n)
        return seam_fail(err, SEAM_ENOTSUP,
                         "%s: has code for %s; this server has no GPU", label,
                         s);
    while (*s) {
        size_t word = strcspn(s, " ");

        if (word == n && !memcmp(s, gpu, n))
            return 0;
        s += word;
        s += strspn(s, " ");
    }
    return seam_fail(err, SEAM_ENOTSUP, "%s: has code for %s; the device is %s",
                     label, targets, gpu);
}

static int loader_check(const struct seam_loader *l,
                        const struct seam_want *want, const char *label,
                        const struct seam_ident *id, struct seam_error *err)
{
    int rc = check_version(label, id, err);

    if (!rc)
        rc = check_layout(label, id, err);
    if (rc)
        return rc;
    if (id->kind != want->kind)
        return seam_fail(err, SEAM_EDATA,
                         "%s: is of kind %s; the configuration entry needs %s",
                         label, seam_kind_name(id->kind),
                         seam_kind_name(want->kind));
    if (strcmp(id->name, want->name))
        return seam_fail(err, SEAM_EDATA,
                         "%s: calls itself \"%s\"; the configuration entry is "
                         "\"%s\"",
                         label, id->name, want->name);
    rc = seam_cpu_check(label, id->cpu, err);
    if (!rc)
        rc = check_gpu(label, id->gpu, l->gpu, err);
    if (rc)
        return rc;
    for (const struct loaded *p = l->first; p; p = p->next)
        if (!strcmp(p->pub.plugin.ident.name, id->name))
            return seam_fail(err, SEAM_EINVAL,
                             "%s: a plugin \"%s\" is loaded already, from %s; "
                             "list it once",
                             label, id->name, p->pub.path);
    return 0;
}

/* ---- L1 to L5 ------------------------------------------------------------ */

static void candidate_release(struct candidate *c)
{
    if (c->copy)
        unlink(c->copy);
    free(c->copy);
    free(c->path);
    *c = (struct candidate){ 0 };
}

/* What the configuration calls it, or the end of that. */
static void candidate_name(struct candidate *c, const char *file)
{
    size_t n = strlen(file), room = sizeof c->label - 1;

    if (n <= room)
        snprintf(c->label, sizeof c->label, "%s", file);
    else
        snprintf(c->label, sizeof c->label, "...%s", file + n - (room - 3));
}

static int candidate_check_pin(const struct candidate *c,
                               const struct seam_want *want,
                               struct seam_error *err)
{
    if (want->sha256 && strcasecmp(want->sha256, c->sha256))
        return seam_fail(err, SEAM_EDATA,
                         "%s: sha256 is %s; the configuration pins %s. If the "
                         "change is intended: seam pin %s",
                         c->label, c->sha256, want->sha256, c->label);
    if (!want->sha256 && !want->unpinned)
        return seam_fail(err, SEAM_EINVAL,
                         "%s: neither \"sha256\" nor \"unpinned\" is given; "
                         "seam pin %s prints the entry",
                         c->label, c->label);
    return 0;
}

/* Map the copy, which nobody else can shorten, and read its identification. */
static int candidate_read_ident(struct candidate *c, struct seam_error *err)
{
    struct seam_map map = { 0 };
    int rc = seam_map_open(&map, c->copy, err);

    if (!rc)
        rc = seam_ident_parse(c->label, map.p, map.bytes, &c->ident, err);
    seam_map_release(&map);
    return rc;
}

/* On failure c holds what was found so far. */
static int loader_examine(struct seam_loader *l, const struct seam_want *want,
                          struct candidate *c, struct seam_error *err)
{
    char *file = NULL;
    int fd = -1, rc;

    if (want->file)
        file = strdup(want->file);
    else if (asprintf(&file, "%s.so", want->name) < 0)
        file = NULL;
    if (!file) {
        rc = seam_fail(err, SEAM_ENOMEM, "%s: out of memory", want->name);
        goto out;
    }
    candidate_name(c, file);
    rc = seam_place_find(&l->places, c->label, file, &c->path, err);
    if (rc)
        goto out;
    rc = seam_trust_open(c->label, c->path, l->log, &fd, err);
    if (rc)
        goto out;
    rc = seam_store_add(&l->store, fd, c->label, c->sha256, &c->copy, err);
    if (rc)
        goto out;
    rc = candidate_check_pin(c, want, err);
    if (rc)
        goto out;
    rc = candidate_read_ident(c, err);
    if (rc)
        goto out;
    rc = loader_check(l, want, c->label, &c->ident, err);
out:
    if (fd >= 0)
        close(fd);
    free(file);
    return rc;
}

/* ---- L6 to L8 ------------------------------------------------------------ */

/* Linking with -ffast-math adds start-up code that makes the loading thread
 * flush denormals to zero, which changes the results of everything else. */
static void loader_guard_fp(const struct seam_loader *l, const char *label,
                            uint32_t before)
{
#if defined(__x86_64__)
    uint32_t flags = _MM_EXCEPT_MASK, now = _mm_getcsr();

    if ((before & ~flags) == (now & ~flags))
        return;
    _mm_setcsr(before);
    seam_log(l->log, SEAM_LOG_WARN, "loader",
             "%s: changed the floating-point mode on loading (MXCSR %#x, was "
             "%#x; linked with -ffast-math?); changed back",
             label, now, before);
#else
    (void)l, (void)label, (void)before;
#endif
}

static int loader_open(const struct seam_loader *l, const struct candidate *c,
                       void **dl, struct seam_error *err)
{
    int flags = RTLD_NOW | RTLD_LOCAL, rc;
    size_t n = strlen(c->copy);
    uint32_t fp = 0;
    const char *why;
    void *h;

    if (!(c->ident.flags & SEAM_PLUGIN_UNLOADABLE))
        flags |= RTLD_NODELETE;
    rc = seam_cpu_enable(c->label, c->ident.cpu, err);
    if (rc)
        return rc;
#if defined(__x86_64__)
    fp = _mm_getcsr();
#endif
    h = dlopen(c->copy, flags);
    loader_guard_fp(l, c->label, fp);
    if (!h) {
        /* The copy's name means nothing to the reader. */
        why = dlerror();
        if (why && !strncmp(why, c->copy, n) && !strncmp(why + n, ": ", 2))
            why += n + 2;
        return seam_fail(err, SEAM_EDATA, "%s: cannot be loaded: %s", c->label,
                         why ? why : "no reason given");
    }
    *dl = h;
    return 0;
}

/* Copy what the plugin has of a table, zeroing the rest.  Returns its size as
 * the plugin states it. */
static uint32_t table_copy(void *dst, size_t cap, const void *src)
{
    uint32_t size;

    memcpy(&size, src, sizeof size);
    memset(dst, 0, cap);
    memcpy(dst, src, size < cap ? size : cap);
    return size;
}

static int load_plugin(struct seam_loaded *p, const struct candidate *c,
                       struct seam_error *err)
{
    const struct seam_plugin *entry = dlsym(p->dl, "seam_plugin_entry");
    const struct seam_ident *id = &c->ident;
    size_t n = id->plugin_size;

    if (!entry)
        return seam_fail(err, SEAM_EDATA,
                         "%s: seam_plugin_entry is in the file, but not in "
                         "memory; the file is damaged or was tampered with",
                         c->label);
    if (memcmp(&entry->ident, id, sizeof *id))
        return seam_fail(err, SEAM_EDATA,
                         "%s: its identification in memory differs from the "
                         "one in the file; the file is damaged or was tampered "
                         "with",
                         c->label);
    memset(&p->plugin, 0, sizeof p->plugin);
    memcpy(&p->plugin, entry, n < sizeof p->plugin ? n : sizeof p->plugin);
    return 0;
}

static int load_table(struct seam_loaded *p, const struct candidate *c,
                      struct seam_error *err)
{
    const void *table = p->plugin.table;
    uint32_t want = c->ident.table_size, found;

    if (!table)
        return seam_fail(err, SEAM_EDATA,
                         "%s: plugin.table is NULL; the plugin has to provide "
                         "it",
                         c->label);
    memcpy(&found, table, sizeof found);
    if (found != want)
        return seam_fail(err, SEAM_EDATA,
                         "%s: table size %u in the file, %u in memory; the "
                         "file is damaged or was tampered with",
                         c->label, want, found);
    table_copy(&p->table, kind_table(c->ident.kind).size, table);
    p->plugin.table = &p->table;
    return 0;
}

static int load_ops(struct seam_loaded *p, const struct candidate *c,
                    struct seam_error *err)
{
    const struct seam_ops *ops = p->table.backend.ops;
    int rc;

    if (!ops)
        return seam_fail(err, SEAM_EDATA,
                         "%s: backend.ops is NULL; the plugin has to provide "
                         "it",
                         c->label);
    rc = check_size(c->label, "ops", &c->ident, ops->size, MIN_OPS, sizeof *ops,
                    err);
    if (rc)
        return rc;
    table_copy(&p->ops, sizeof p->ops, ops);
    p->table.backend.ops = &p->ops;
    return 0;
}

static int check_backend(const struct seam_loaded *p, const char *label,
                         struct seam_error *err)
{
    const struct seam_backend *b = &p->table.backend;
    int rc;

    rc = members_require(label, "backend", b, backend_members,
                         COUNT(backend_members), err);
    if (!rc)
        rc = members_require(label, "ops", b->ops, ops_members,
                             COUNT(ops_members), err);
    if (!rc)
        rc = members_both(label, "backend.link", b->link, "ops.sum",
                          b->ops->sum, err);
    for (size_t i = 1; !rc && i < COUNT(graph_members); i++)
        rc = members_both(
            label, graph_members[0].name, !member_is_null(b, &graph_members[0]),
            graph_members[i].name, !member_is_null(b, &graph_members[i]), err);
    return rc;
}

static int check_members(const struct seam_loaded *p, const char *label,
                         struct seam_error *err)
{
    const char *kind = seam_kind_name(p->plugin.ident.kind);
    int rc;

    rc = members_require(label, "plugin", &p->plugin, plugin_members,
                         COUNT(plugin_members), err);
    if (!rc)
        rc = members_both(label, "plugin.needs", p->plugin.needs,
                          "plugin.attach", p->plugin.attach, err);
    if (rc)
        return rc;
    switch (p->plugin.ident.kind) {
    case SEAM_KIND_BACKEND:
        return check_backend(p, label, err);
    case SEAM_KIND_SPEC:
        return members_require(label, kind, &p->table, spec_members,
                               COUNT(spec_members), err);
    case SEAM_KIND_PARSER:
        return members_require(label, kind, &p->table, parser_members,
                               COUNT(parser_members), err);
    default:
        return members_require(label, kind, &p->table, block_members,
                               COUNT(block_members), err);
    }
}

int seam_loader_load(struct seam_loader *l, const struct seam_want *want,
                     struct seam_loaded **out, struct seam_error *err)
{
    struct candidate c = { 0 };
    struct loaded *p = NULL;
    int rc;

    p = calloc(1, sizeof *p);
    if (!p) {
        rc = seam_fail(err, SEAM_ENOMEM, "%s: out of memory", want->name);
        goto out;
    }
    rc = loader_examine(l, want, &c, err);
    if (rc)
        goto out;
    rc = loader_open(l, &c, &p->pub.dl, err);
    if (rc)
        goto out;
    rc = load_plugin(&p->pub, &c, err);
    if (!rc)
        rc = load_table(&p->pub, &c, err);
    if (!rc && c.ident.kind == SEAM_KIND_BACKEND)
        rc = load_ops(&p->pub, &c, err);
    if (!rc)
        rc = check_members(&p->pub, c.label, err);
    if (rc)
        goto out;
    memcpy(p->pub.sha256, c.sha256, sizeof p->pub.sha256);
    p->pub.pinned = want->sha256 != NULL;
    p->pub.path = c.path;
    c.path = NULL;
    p->loader = l;
    p->next = l->first;
    l->first = p;
    *out = &p->pub;
    p = NULL;
    /* The copy stays in the store, for debuggers. */
    free(c.copy);
    c.copy = NULL;
out:
    seam_loaded_free(p ? &p->pub : NULL);
    candidate_release(&c);
    return rc;
}

int seam_loader_inspect(struct seam_loader *l, const struct seam_want *want,
                        struct seam_ident *ident, char *sha256,
                        struct seam_error *err)
{
    struct candidate c = { 0 };
    int rc = loader_examine(l, want, &c, err);

    *ident = c.ident;
    memcpy(sha256, c.sha256, sizeof c.sha256);
    candidate_release(&c);
    return rc;
}

/* ---- L9 and the end ------------------------------------------------------ */

int seam_loaded_init(struct seam_loaded *p, const struct seam_host *host,
                     struct seam_error *err)
{
    const char *name = p->plugin.ident.name;
    struct seam_error why = { 0 };
    int rc;

    if (p->inited)
        return seam_fail(err, SEAM_ESTATE, "%s: is initialised already", name);
    rc = p->plugin.init(host, &why);
    why.text[sizeof why.text - 1] = 0;
    if (rc)
        return seam_fail(err, rc < 0 ? rc : SEAM_EINVAL,
                         "%s: init failed with code %d: %s", name, rc,
                         *why.text ? why.text : "the plugin gives no reason");
    p->inited = true;
    return 0;
}

void seam_loaded_free(struct seam_loaded *pub)
{
    struct loaded *p = (struct loaded *)pub;

    if (!p)
        return;
    if (p->loader)
        for (struct loaded **at = &p->loader->first; *at; at = &(*at)->next)
            if (*at == p) {
                *at = p->next;
                break;
            }
    if (pub->inited && pub->plugin.fini)
        pub->plugin.fini();
    if (pub->dl && (pub->plugin.ident.flags & SEAM_PLUGIN_UNLOADABLE))
        dlclose(pub->dl);
    free(pub->path);
    free(p);
}

/* The absolute form of a folder's name; one that does not exist keeps it. */
static char *folder_name(const char *dir)
{
    char *real = realpath(dir, NULL), *cwd, *full = NULL;

    if (real || errno == ENOMEM)
        return real;
    if (*dir == '/')
        return strdup(dir);
    cwd = realpath(".", NULL);
    if (cwd && asprintf(&full, "%s/%s", cwd, dir) < 0)
        full = NULL;
    free(cwd);
    return full;
}

int seam_loader_new(struct seam_loader **out,
                    const struct seam_loader_opts *opts, struct seam_error *err)
{
    struct seam_loader *l = calloc(1, sizeof *l);
    bool whole;
    int rc;

    if (!l)
        return seam_fail(err, SEAM_ENOMEM, "out of memory");
    l->log = opts->log;
    l->plugin_dir = opts->plugin_dir ? folder_name(opts->plugin_dir) : NULL;
    l->plugin_paths = calloc(opts->n_plugin_paths + 1, sizeof(char *));
    l->gpu = opts->gpu ? strdup(opts->gpu) : NULL;
    whole = (!opts->plugin_dir || l->plugin_dir) && l->plugin_paths &&
            (!opts->gpu || l->gpu);
    for (size_t i = 0; whole && i < opts->n_plugin_paths; i++) {
        l->plugin_paths[i] = folder_name(opts->plugin_paths[i]);
        whole = l->plugin_paths[i] != NULL;
    }
    if (!whole) {
        rc = seam_fail(err, SEAM_ENOMEM, "out of memory");
        goto out;
    }
    l->places = (struct seam_places){ l->plugin_dir, l->plugin_paths,
                                      opts->n_plugin_paths };
    rc = seam_store_open(&l->store, err);
    if (rc)
        goto out;
    *out = l;
    l = NULL;
out:
    seam_loader_free(l);
    return rc;
}

void seam_loader_free(struct seam_loader *l)
{
    if (!l)
        return;
    for (struct loaded *p = l->first; p; p = p->next)
        p->loader = NULL;
    seam_store_close(&l->store);
    for (char **path = l->plugin_paths; path && *path; path++)
        free(*path);
    free(l->plugin_paths);
    free(l->plugin_dir);
    free(l->gpu);
    free(l);
}
