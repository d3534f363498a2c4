/* The commands that look and do not serve: inspect, plugins, pin. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/num.h"
#include "core/checkpoint/plan.h"
#include "core/cli/cli.h"
#include "core/loader/ident.h"
#include "core/loader/loader.h"

#define GIB (1024u * 1024u * 1024u)

/* "64GiB", "512MiB" or plain bytes. */
static bool tools_bytes(const char *s, uint64_t *out)
{
    static const struct {
        const char *suffix;
        uint64_t unit;
    } unit[] = {
        { "GiB", GIB }, { "MiB", 1024u * 1024u }, { "KiB", 1024u }, { "", 1 }
    };
    size_t n = strlen(s);

    for (size_t i = 0; i < sizeof unit / sizeof *unit; i++) {
        size_t k = strlen(unit[i].suffix);
        uint64_t v;

        if (n <= k || strcmp(s + n - k, unit[i].suffix))
            continue;
        return seam_parse_u64(s, n - k, &v) && seam_mul(v, unit[i].unit, out);
    }
    return false;
}

int seam_cli_inspect(int argc, char **argv)
{
    struct seam_log log = { .fd = STDERR_FILENO, .level = SEAM_LOG_WARN };
    struct seam_checkpoint *c;
    struct seam_buf text = { 0 };
    struct seam_error err;
    const char *dir = NULL;
    enum seam_dense_form form = SEAM_DENSE_STORED;
    uint64_t budget = 64ull * GIB;

    for (int i = 0; i < argc; i++) {
        if (!strcmp(argv[i], "--budget")) {
            if (i + 1 == argc || !tools_bytes(argv[++i], &budget))
                return seam_cli_usage("inspect",
                                      "--budget needs bytes, such "
                                      "as 64GiB, not",
                                      i < argc ? argv[i] : "");
        } else if (!strcmp(argv[i], "--dense")) {
            if (i + 1 == argc || !seam_dense_form_read(argv[++i], &form))
                return seam_cli_usage("inspect",
                                      "--dense needs bf16, int8 or int4, not",
                                      i < argc ? argv[i] : "");
        } else if (argv[i][0] == '-' || dir) {
            return seam_cli_usage("inspect", "unexpected argument", argv[i]);
        } else {
            dir = argv[i];
        }
    }
    if (!dir)
        return seam_cli_usage("inspect", "expected a checkpoint folder, got",
                              "");
    if (seam_checkpoint_open(&c, dir, &log, NULL, NULL, &err))
        return seam_cli_fail(&err);
    seam_inspect(c, budget, form, &text);
    if (text.p)
        fputs(text.p, stdout);
    seam_buf_release(&text);
    seam_checkpoint_close(c);
    return 0;
}

/* What loading one entry would come to. */
static bool tools_show_plugin(struct seam_loader *l,
                              const struct seam_plugin_entry_config *p,
                              int role)
{
    struct seam_want want = {
        .name = p->name,
        .file = p->file,
        .sha256 = p->sha256,
        .unpinned = p->unpinned,
        .kind = seam_role_kind[role],
    };
    struct seam_ident ident = { 0 };
    struct seam_loaded *loaded = NULL;
    struct seam_error err;
    char sha[65] = "";
    int rc = seam_loader_inspect(l, &want, &ident, sha, &err);

    if (!rc)
        rc = seam_loader_load(l, &want, &loaded, &err);
    printf("%-17s %-10s %-16s %-10s %u.%u  %.16s  %s\n", seam_role_name[role],
           ident.kind ? seam_kind_name(ident.kind) : "-", p->name,
           ident.version[0] ? ident.version : "-", ident.abi_major,
           ident.abi_minor, sha[0] ? sha : "-",
           rc            ? err.text
           : p->unpinned ? "ok, not pinned"
                         : "ok");
    seam_loaded_free(loaded);
    return !rc;
}

int seam_cli_plugins(int argc, char **argv)
{
    struct seam_cli_opts o = { 0 };
    struct seam_config c = { 0 };
    struct seam_loader *loader = NULL;
    struct seam_loader_opts lo;
    struct seam_log log;
    struct seam_error err;
    int rc = 0;

    for (int i = 0; i < argc && !rc; i++) {
        int took = seam_cli_option(&o, argc, argv, &i, &err);

        if (took < 0)
            rc = seam_cli_fail(&err) + 1;
        else if (!took)
            rc = seam_cli_usage("plugins", "unknown argument", argv[i]);
    }
    if (!rc && seam_cli_load(&o, &c, &log, &err))
        rc = seam_cli_fail(&err);
    if (rc)
        goto out;
    lo = (struct seam_loader_opts){
        .plugin_dir = c.plugin_dir,
        .plugin_paths = (const char *const *)c.plugin_paths.v,
        .n_plugin_paths = c.plugin_paths.n,
        .log = &log,
    };
    if (seam_loader_new(&loader, &lo, &err)) {
        rc = seam_cli_fail(&err);
        goto out;
    }
    printf("%-17s %-10s %-16s %-10s %-4s %-17s %s\n", "role", "kind", "name",
           "version", "ABI", " SHA-256", " verdict");
    for (int r = 0; r < SEAM_N_ROLES; r++)
        if (!tools_show_plugin(loader, &c.plugin[r], r))
            rc = 1;
out:
    seam_loader_free(loader);
    seam_config_release(&c);
    seam_cli_opts_release(&o);
    return rc;
}

int seam_cli_pin(int argc, char **argv)
{
    struct seam_ident ident;
    struct seam_error err;
    char sha[65];
    const char *base;

    if (argc != 1)
        return seam_cli_usage("pin", "expected one plugin file, got",
                              argc ? argv[1] : "");
    if (seam_ident_read(argv[0], &ident, &err) ||
        seam_sha256_file(argv[0], sha, &err))
        return seam_cli_fail(&err);
    base = strrchr(argv[0], '/');
    base = base ? base + 1 : argv[0];
    printf("{ \"name\": \"%s\", \"file\": \"%s\", \"sha256\": \"%s\" }\n",
           ident.name, base, sha);
    return 0;
}
