/* Each refusal of docs/abi.md, section 5, with a real shared object. */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/loader/cpu.h"
#include "core/loader/ident.h"
#include "tests/abi/room.h"

#define PARSER SEAM_KIND_PARSER

static bool is_root(void)
{
    return geteuid() == 0;
}

/* Load root/plugins/FILE as the parser "plug" and compare the refusal. */
static void refused(struct room *r, const char *file, int code,
                    const char *text)
{
    struct seam_loaded *p = NULL;
    struct seam_error err = { 0 };
    int rc = room_load(r, file, "plug", PARSER, &p, &err);

    cr_expect_eq(rc, code, "%s: code %d, expected %d", file, rc, code);
    cr_expect_str_eq(err.text, text);
    cr_expect_null(p, "%s: the out-parameter was touched", file);
    seam_loaded_free(p);
}

/* The same, when the text holds names that are made at run time. */
static void refused_with(struct room *r, const char *file, int code,
                         const char *part)
{
    struct seam_loaded *p = NULL;
    struct seam_error err = { 0 };
    int rc = room_load(r, file, "plug", PARSER, &p, &err);

    cr_expect_eq(rc, code, "%s: code %d, expected %d", file, rc, code);
    cr_expect(strstr(err.text, part), "\"%s\" has no \"%s\"", err.text, part);
    cr_expect(!strchr(err.text, '\n') && *err.text);
    cr_expect_null(p);
    seam_loaded_free(p);
}

/* Load what must load. */
static struct seam_loaded *loaded(struct room *r, const char *file,
                                  const char *name, uint16_t kind)
{
    struct seam_loaded *p = NULL;
    struct seam_error err = { 0 };

    cr_assert_eq(room_load(r, file, name, kind, &p, &err), 0, "%s", err.text);
    cr_assert_not_null(p);
    return p;
}

struct refusal {
    const char *file;
    int code;
    const char *text; /* after "FILE.so: " */
};

static void refuses_all(const struct refusal *t, size_t n)
{
    struct room r;
    struct seam_loaded *p;

    room_open(&r);
    for (size_t i = 0; i < n; i++) {
        char file[64], to[96], text[300];

        snprintf(file, sizeof file, "%s.so", t[i].file);
        snprintf(to, sizeof to, "plugins/%s", file);
        snprintf(text, sizeof text, "%s: %s", file, t[i].text);
        room_copy(&r, t[i].file, to);
        refused(&r, file, t[i].code, text);
    }
    /* No trace: nothing is left in the store, and another plugin works. */
    cr_expect_eq(room_count(&r, "tmp"), 1, "one store");
    room_copy(&r, "plug", "plugins/plug.so");
    p = loaded(&r, "plug.so", "plug", PARSER);
    cr_expect_eq(room_test(p)->value(), 1);
    seam_loaded_free(p);
    room_close(&r);
}

/* ---- What loads ---------------------------------------------------------- */

Test(loader, hands_out_a_plugin_that_works)
{
    struct room r;
    struct seam_loaded *p;
    struct seam_error err = { 0 };
    struct seam_host host = { .size = sizeof host };
    char sha[65];
    void *stream = NULL;

    room_open(&r);
    room_copy(&r, "plug", "plugins/plug.so");
    p = loaded(&r, "plug.so", "plug", PARSER);
    cr_expect_str_eq(p->path, room_path(&r, "plugins/plug.so"));
    cr_assert_eq(seam_sha256_file(p->path, sha, &err), 0, "%s", err.text);
    cr_expect_str_eq(p->sha256, sha);
    cr_expect_eq(p->plugin.table, (void *)&p->table);
    cr_expect_eq(p->table.parser.size, sizeof(struct seam_parser));
    cr_expect_null(p->table.parser.render, "plug.c has none");
    cr_expect_eq(p->table.parser.open(NULL, NULL, NULL, &stream, &err), 0);
    cr_expect_not_null(stream);
    cr_expect_eq(room_test(p)->n_init(), 0, "init before seam_loaded_init");
    cr_expect_eq(seam_loaded_init(p, &host, &err), 0, "%s", err.text);
    cr_expect_eq(room_test(p)->n_init(), 1);
    cr_expect_eq(seam_loaded_init(p, &host, &err), SEAM_ESTATE);
    cr_expect_eq(room_test(p)->n_init(), 1);
    seam_loaded_free(p);
    room_close(&r);
}

Test(loader, takes_the_file_name_from_the_name)
{
    struct room r;
    struct seam_loaded *p;

    room_open(&r);
    room_copy(&r, "plug", "plugins/plug.so");
    p = loaded(&r, NULL, "plug", PARSER);
    seam_loaded_free(p);
    room_close(&r);
}

Test(loader, reads_files_however_they_were_linked)
{
    static const char *const files[] = { "plug_sysv", "plug_gnu",
                                         "plug_stripped", "plug_unloadable" };
    struct room r;

    room_open(&r);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct seam_loaded *p;

        room_copy(&r, files[i], "plugins/plug.so");
        p = loaded(&r, "plug.so", "plug", PARSER);
        cr_expect_str_eq(p->plugin.ident.version, "1.0.0");
        seam_loaded_free(p);
    }
    room_close(&r);
}

Test(loader, does_without_section_headers)
{
    struct room r;
    struct seam_loaded *p;
    unsigned char *b;
    Elf64_Ehdr head;
    size_t n;

    room_open(&r);
    b = room_read("plug_stripped", &n);
    memcpy(&head, b, sizeof head);
    n = head.e_shoff; /* strip leaves them at the end */
    head.e_shoff = 0;
    head.e_shnum = head.e_shstrndx = 0;
    memcpy(b, &head, sizeof head);
    room_write(&r, "plugins/plug.so", b, n);
    p = loaded(&r, "plug.so", "plug", PARSER);
    cr_expect_eq(room_test(p)->value(), 1);
    seam_loaded_free(p);
    free(b);
    room_close(&r);
}

Test(loader, copies_the_table_of_each_kind)
{
    struct room r;
    struct seam_loaded *p;

    room_open(&r);
    room_copy(&r, "kinds_backend", "plugins/kinds.so");
    p = loaded(&r, "kinds.so", "kinds", SEAM_KIND_BACKEND);
    cr_expect_eq(p->table.backend.ops, &p->ops);
    cr_expect_eq(p->ops.size, sizeof p->ops);
    cr_expect(p->ops.gemm && p->ops.sum && p->ops.verify);
    cr_expect(p->table.backend.link && p->table.backend.event_done);
    seam_loaded_free(p);

    room_copy(&r, "kinds_cpu", "plugins/kinds.so");
    p = loaded(&r, "kinds.so", "kinds", SEAM_KIND_BACKEND);
    cr_expect(!p->ops.sum && !p->table.backend.link);
    cr_expect(!p->table.backend.capture_begin && !p->table.backend.graph_free);
    seam_loaded_free(p);

    room_copy(&r, "kinds_attention", "plugins/kinds.so");
    p = loaded(&r, "kinds.so", "kinds", SEAM_KIND_ATTENTION);
    cr_expect(!p->table.block.begin && p->table.block.forward &&
              p->table.block.commit);
    seam_loaded_free(p);

    room_copy(&r, "kinds_moe", "plugins/kinds.so");
    p = loaded(&r, "kinds.so", "kinds", SEAM_KIND_MOE);
    cr_expect(p->table.block.forward && !p->table.block.commit);
    seam_loaded_free(p);

    room_copy(&r, "kinds_spec", "plugins/kinds.so");
    p = loaded(&r, "kinds.so", "kinds", SEAM_KIND_SPEC);
    cr_expect(p->table.spec.info && p->table.spec.draft);
    seam_loaded_free(p);
    room_close(&r);
}

Test(loader, loads_the_example_of_the_guide)
{
    struct room r;
    struct seam_loaded *p;

    room_open(&r);
    room_copy(&r, "ema", "plugins/ema.so");
    p = loaded(&r, "ema.so", "ema", SEAM_KIND_ATTENTION);
    cr_expect_not_null(p->table.block.commit);
    seam_loaded_free(p);
    room_close(&r);
}

Test(loader, takes_code_for_the_device_that_is_there)
{
    struct room r;
    struct seam_loaded *p = NULL;
    struct seam_error err = { 0 };
    struct seam_want want = { "plug", "plug.so", NULL, true, PARSER };
    struct seam_loader *l;

    room_open(&r);
    room_copy(&r, "plug_gpu", "plugins/plug.so");
    refused(&r, "plug.so", SEAM_ENOTSUP,
            "plug.so: has code for gfx1200 gfx1201; this server has no GPU");
    l = room_loader(&r, "gfx942");
    cr_expect_eq(seam_loader_load(l, &want, &p, &err), SEAM_ENOTSUP);
    cr_expect_str_eq(err.text, "plug.so: has code for gfx1200 gfx1201; the "
                               "device is gfx942");
    seam_loader_free(l);
    l = room_loader(&r, "gfx120"); /* not as a prefix */
    cr_expect_eq(seam_loader_load(l, &want, &p, &err), SEAM_ENOTSUP);
    seam_loader_free(l);
    l = room_loader(&r, "gfx1201");
    cr_expect_eq(seam_loader_load(l, &want, &p, &err), 0, "%s", err.text);
    seam_loader_free(l);
    cr_expect_eq(room_test(p)->value(), 1, "outlives its loader");
    seam_loaded_free(p);
    room_close(&r);
}

/* ---- Refused before any code runs: all of these would abort -------------- */

Test(loader, refuses_before_any_code_runs)
{
    static const struct refusal all[] = {
        { "no_entry", SEAM_EDATA,
          "not a seam plugin (no readable seam_plugin_entry)" },
        { "magic", SEAM_EDATA,
          "not a seam plugin (seam_plugin_entry does not begin with "
          "\"SEAMPLG\")" },
        { "major_above", SEAM_ENOTSUP,
          "built for seam ABI 1.1; this server speaks 0.1. Rebuild it against "
          "this server's <seam/plugin.h>" },
        { "major_max", SEAM_ENOTSUP,
          "built for seam ABI 65535.65535; this server speaks 0.1. Rebuild it "
          "against this server's <seam/plugin.h>" },
        { "minor_above", SEAM_ENOTSUP,
          "built for seam ABI 0.2; this server speaks 0.1. Rebuild it against "
          "this server's <seam/plugin.h>" },
        { "minor_zero", SEAM_ENOTSUP,
          "built for seam ABI 0.0; this server speaks 0.1. Rebuild it against "
          "this server's <seam/plugin.h>" },
        { "need_above", SEAM_ENOTSUP,
          "needs seam ABI >= 0.2; this server provides 0.1. Update seam, or "
          "rebuild with -DSEAM_ABI_TARGET=1" },
        { "kind_zero", SEAM_EDATA, "kind 0; this server knows 1 to 5" },
        { "kind_unknown", SEAM_EDATA, "kind 77; this server knows 1 to 5" },
        { "kind_other", SEAM_EDATA,
          "is of kind moe; the configuration entry needs parser" },
        { "flags", SEAM_ENOTSUP,
          "flags 0x40; this server knows 0x1. Update seam, or rebuild it "
          "against this server's <seam/plugin.h>" },
        { "reserved", SEAM_EDATA,
          "reserved bytes of its identification are not zero; the file is "
          "damaged or was tampered with" },
        { "name_long", SEAM_EDATA,
          "ident.name has no terminating NUL in its 32 bytes" },
        { "name_odd", SEAM_EDATA,
          "calls itself \"pl ug\"; a name consists of a-z, 0-9 and _" },
        { "name_empty", SEAM_EDATA,
          "calls itself \"\"; a name consists of a-z, 0-9 and _" },
        { "name_other", SEAM_EDATA,
          "calls itself \"plug_fast\"; the configuration entry is \"plug\"" },
        { "version_lines", SEAM_EDATA,
          "ident.version is not one line of UTF-8 text" },
        { "cpu_missing", SEAM_ENOTSUP,
          "needs CPU feature avx512er, which this machine lacks" },
        { "cpu_unknown", SEAM_ENOTSUP,
          "needs CPU feature avx2048, which this server does not know how to "
          "look for" },
        { "gpu_other", SEAM_ENOTSUP,
          "has code for gfx942; this server has no GPU" },
        { "plugin_small", SEAM_EDATA,
          "plugin size 512; expected at least 584. The file is damaged or was "
          "tampered with" },
        { "plugin_large", SEAM_EDATA,
          "plugin size 592; ABI 0.1 has at most 584. The file is damaged or "
          "was tampered with" },
        { "table_zero", SEAM_EDATA,
          "table size 0; expected at least 48. The file is damaged or was "
          "tampered with" },
        { "table_small", SEAM_EDATA,
          "table size 24; expected at least 48. The file is damaged or was "
          "tampered with" },
        { "table_large", SEAM_EDATA,
          "table size 4096; ABI 0.1 has at most 48. The file is damaged or "
          "was tampered with" },
        { "runpath", SEAM_EDATA,
          "looks for libraries in \"/usr/lib:lib\" (DT_RUNPATH); link it with "
          "absolute folders or none" },
        { "runpath_empty", SEAM_EDATA,
          "looks for libraries in \"/usr/lib:\" (DT_RUNPATH); link it with "
          "absolute folders or none" },
    };

    refuses_all(all, sizeof all / sizeof *all);
}

/* What the test above relies on. */
Test(loader, runs_constructors_of_what_it_accepts)
{
    struct room r;
    int status = 0;
    pid_t pid;

    room_open(&r);
    room_copy(&r, "plug_abort", "plugins/plug.so");
    pid = fork();
    if (pid == 0) {
        struct seam_loaded *p = NULL;

        signal(SIGABRT, SIG_DFL);
        room_load(&r, "plug.so", "plug", PARSER, &p, NULL);
        _exit(0);
    }
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT,
              "status %#x: its constructor aborts", status);
    room_close(&r);
}

Test(loader, inspects_without_running_anything)
{
    struct room r;
    struct seam_ident id;
    struct seam_error err = { 0 };
    struct seam_want want = { "plug", "plug.so", NULL, true, PARSER };
    char sha[65], file_sha[65];

    room_open(&r);
    room_copy(&r, "plug_abort", "plugins/plug.so");
    cr_expect_eq(seam_loader_inspect(r.loader, &want, &id, sha, &err), 0, "%s",
                 err.text);
    cr_expect_str_eq(id.name, "plug");
    cr_expect_eq(id.kind, PARSER);
    seam_sha256_file(room_path(&r, "plugins/plug.so"), file_sha, &err);
    cr_expect_str_eq(sha, file_sha);

    /* What is known of a refused one is told. */
    room_copy(&r, "major_above", "plugins/plug.so");
    cr_expect_eq(seam_loader_inspect(r.loader, &want, &id, sha, &err),
                 SEAM_ENOTSUP);
    cr_expect_eq(id.abi_major, 1);
    cr_expect_eq(strlen(sha), 64);
    want.file = "absent.so";
    cr_expect_eq(seam_loader_inspect(r.loader, &want, &id, sha, &err),
                 SEAM_ENOENT);
    cr_expect_str_empty(sha);
    cr_expect_str_empty(id.name);
    room_close(&r);
}

/* ---- Refused once in memory ---------------------------------------------- */

Test(loader, refuses_what_differs_in_memory)
{
    static const struct refusal all[] = {
        { "table_lies", SEAM_EDATA,
          "table size 48 in the file, 24 in memory; the file is damaged or was "
          "tampered with" },
        { "table_zeros", SEAM_EDATA,
          "table size 48 in the file, 0 in memory; the file is damaged or was "
          "tampered with" },
        { "table_null", SEAM_EDATA,
          "plugin.table is NULL; the plugin has to provide it" },
        { "change_ident", SEAM_EDATA,
          "its identification in memory differs from the one in the file; the "
          "file is damaged or was tampered with" },
        { "null_init", SEAM_EDATA,
          "plugin.init is NULL; the plugin has to provide it" },
        { "null_destroy", SEAM_EDATA,
          "plugin.destroy is NULL; the plugin has to provide it" },
        { "null_feed", SEAM_EDATA,
          "parser.feed is NULL; the plugin has to provide it" },
        { "half_needs", SEAM_EDATA,
          "plugin.attach is NULL and plugin.needs is not; expected both or "
          "neither" },
    };

    refuses_all(all, sizeof all / sizeof *all);
}

Test(loader, refuses_tables_with_holes)
{
    static const struct {
        const char *file;
        uint16_t kind;
        const char *text;
    } all[] = {
        { "null_ops", SEAM_KIND_BACKEND,
          "x.so: backend.ops is NULL; the plugin has to provide it" },
        { "null_gemm", SEAM_KIND_BACKEND,
          "x.so: ops.gemm is NULL; the plugin has to provide it" },
        { "null_copy", SEAM_KIND_BACKEND,
          "x.so: backend.copy is NULL; the plugin has to provide it" },
        { "null_done", SEAM_KIND_BACKEND,
          "x.so: backend.event_done is NULL; the plugin has to provide it" },
        { "null_sum", SEAM_KIND_BACKEND,
          "x.so: ops.sum is NULL and backend.link is not; expected both or "
          "neither" },
        { "null_link", SEAM_KIND_BACKEND,
          "x.so: backend.link is NULL and ops.sum is not; expected both or "
          "neither" },
        { "null_launch", SEAM_KIND_BACKEND,
          "x.so: graph_launch is NULL and capture_begin is not; expected both "
          "or neither" },
        { "ops_lies", SEAM_KIND_BACKEND,
          "x.so: ops size 64; expected at least 80. The file is damaged or was "
          "tampered with" },
        { "null_forward", SEAM_KIND_ATTENTION,
          "x.so: attention.forward is NULL; the plugin has to provide it" },
        { "null_draft", SEAM_KIND_SPEC,
          "x.so: spec.draft is NULL; the plugin has to provide it" },
    };
    struct room r;

    room_open(&r);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct seam_loaded *p = NULL;
        struct seam_error err = { 0 };

        room_copy(&r, all[i].file, "plugins/x.so");
        cr_expect_eq(room_load(&r, "x.so", "kinds", all[i].kind, &p, &err),
                     SEAM_EDATA, "%s", all[i].file);
        cr_expect_str_eq(err.text, all[i].text);
        cr_expect_null(p);
    }
    room_close(&r);
}

/* ---- Refused by the dynamic loader --------------------------------------- */

Test(loader, names_the_symbol_that_is_missing)
{
    struct room r;

    room_open(&r);
    room_copy(&r, "unresolved", "plugins/plug.so");
    refused(&r, "plug.so", SEAM_EDATA,
            "plug.so: cannot be loaded: undefined symbol: no_such_fn");
    room_close(&r);
}

Test(loader, names_the_library_that_is_missing)
{
    struct room r;

    room_open(&r);
    room_copy(&r, "gone", "plugins/plug.so");
    refused(&r, "plug.so", SEAM_EDATA,
            "plug.so: cannot be loaded: libseam_abi_gone.so: cannot open "
            "shared object file: No such file or directory");
    room_close(&r);
}

/* ---- Files that are no plugins ------------------------------------------- */

Test(loader, refuses_files_of_other_machines)
{
    struct room r;
    unsigned char *b;
    size_t n;

    room_open(&r);
    b = room_read("plug", &n);
    b[18] = 0xb7;
    b[19] = 0;
    room_write(&r, "plugins/plug.so", b, n);
#if defined(__x86_64__)
    refused(&r, "plug.so", SEAM_EDATA,
            "plug.so: built for AArch64 (ELF machine 183); this server runs on "
            "x86-64 (62)");
#endif
    b[18] = 0xf3;
    room_write(&r, "plugins/plug.so", b, n);
    refused_with(&r, "plug.so", SEAM_EDATA,
                 "plug.so: built for RISC-V (ELF machine 243)");
    free(b);
    b = room_read("plug", &n);
    b[EI_CLASS] = ELFCLASS32;
    room_write(&r, "plugins/plug.so", b, n);
    refused_with(&r, "plug.so", SEAM_EDATA, "plug.so: a 32-bit ELF file");
    b[EI_CLASS] = ELFCLASS64;
    b[EI_DATA] = ELFDATA2MSB;
    room_write(&r, "plugins/plug.so", b, n);
    refused(&r, "plug.so", SEAM_EDATA,
            "plug.so: ELF class 2, byte order 2; expected 64-bit "
            "little-endian");
    b[EI_DATA] = ELFDATA2LSB;
    b[16] = ET_EXEC;
    room_write(&r, "plugins/plug.so", b, n);
    refused(&r, "plug.so", SEAM_EDATA,
            "plug.so: ELF type 2; expected a shared object (3)");
    free(b);
    room_close(&r);
}

Test(loader, refuses_files_that_are_cut)
{
    struct room r;
    unsigned char *b;
    size_t n;

    room_open(&r);
    b = room_read("plug", &n);
    cr_assert_gt(n, 4096);
    room_write(&r, "plugins/plug.so", b, 4096);
    refused_with(&r, "plug.so", SEAM_EDATA,
                 "plug.so: truncated: 4096 bytes, segment ");
    room_write(&r, "plugins/plug.so", b, 100);
    refused(&r, "plug.so", SEAM_EDATA,
            "plug.so: truncated: 100 bytes, its program headers end further "
            "on");
    room_write(&r, "plugins/plug.so", b, 20);
    refused(&r, "plug.so", SEAM_EDATA,
            "plug.so: truncated: 20 bytes, an ELF header has 64");
    room_write(&r, "plugins/plug.so", b, 0);
    refused_with(&r, "plug.so", SEAM_EDATA, "plug.so: is empty");
    room_write(&r, "plugins/plug.so", "#!/bin/sh\nexit 0\n", 17);
    refused_with(&r, "plug.so", SEAM_EDATA, "plug.so: not an ELF file");
    free(b);
    room_close(&r);
}

/* Whatever is left of a file, or changed in it, is refused or read, in memory
 * that ends where the file ends. */
Test(loader, never_reads_past_the_end_of_a_file)
{
    size_t n, accepted = 0;
    unsigned char *b = room_read("plug_stripped", &n);

    for (size_t cut = 0; cut <= n; cut += cut < 1024 || cut + 64 > n ? 1 : 13) {
        unsigned char *p = malloc(cut ? cut : 1);
        struct seam_ident id;
        struct seam_error err;

        cr_assert_not_null(p);
        memcpy(p, b, cut);
        accepted += !seam_ident_parse("cut.so", p, cut, &id, &err);
        free(p);
    }
    cr_expect_gt(accepted, 0, "the whole file is accepted");
    free(b);
}

Test(loader, survives_any_changed_byte)
{
    size_t n;
    unsigned char *b = room_read("plug_stripped", &n);

    for (size_t i = 0; i < n; i++) {
        unsigned char was = b[i];
        struct seam_ident id;
        struct seam_error err;

        b[i] = (unsigned char)~was;
        seam_ident_parse("changed.so", b, n, &id, &err);
        b[i] = was ^ 0x80;
        seam_ident_parse("changed.so", b, n, &id, &err);
        b[i] = was;
    }
    free(b);
}

Test(loader, opens_regular_files_only)
{
    struct room r;
    char text[300];

    room_open(&r);
    snprintf(text, sizeof text,
             "plug.so: no such file in %s; install it there or change "
             "plugin_dir",
             r.plugins);
    refused(&r, "plug.so", SEAM_ENOENT, text);
    cr_assert_eq(symlink("nowhere", room_path(&r, "plugins/link.so")), 0);
    refused_with(&r, "link.so", SEAM_ENOENT, "link.so: no such file");
    cr_assert_eq(mkdir(room_path(&r, "plugins/dir.so"), 0755), 0);
    refused_with(&r, "dir.so", SEAM_EDATA,
                 "dir.so: is a directory; expected a regular file");
    cr_assert_eq(mkfifo(room_path(&r, "plugins/fifo.so"), 0644), 0);
    refused_with(&r, "fifo.so", SEAM_EDATA,
                 "fifo.so: is a FIFO; expected a regular file");
    room_close(&r);
}

Test(loader, says_that_a_file_is_not_readable)
{
    struct room r;

    if (is_root())
        cr_skip_test("root reads files of mode 000");
    room_open(&r);
    room_copy(&r, "plug", "plugins/plug.so");
    chmod(room_path(&r, "plugins/plug.so"), 0);
    refused_with(&r, "plug.so", SEAM_EDATA, "cannot open: Permission denied");
    room_close(&r);
}

/* ---- Where files may be -------------------------------------------------- */

Test(loader, finds_names_in_their_folder_only)
{
    struct room r;
    char cwd[512], up[300];

    room_open(&r);
    cr_assert_not_null(getcwd(cwd, sizeof cwd));
    room_copy(&r, "plug_abort", "plug.so");
    room_copy(&r, "plug_abort", "other/plug.so");
    cr_assert_eq(mkdir(room_path(&r, "plugins/x"), 0755), 0);
    room_copy(&r, "plug_abort", "plugins/x/plug.so");
    cr_assert_eq(chdir(r.other), 0);

    refused_with(&r, "plug.so", SEAM_ENOENT, "no such file in");
    refused_with(&r, "./plug.so", SEAM_EINVAL, "./plug.so: a relative path;");
    refused_with(&r, "x/plug.so", SEAM_EINVAL, "x/plug.so: a relative path;");
    refused_with(&r, "../plug.so", SEAM_EINVAL, "../plug.so: not a file name;");
    refused_with(&r, "x/../../plug.so", SEAM_EINVAL, ": not a file name;");
    refused_with(&r, "..", SEAM_EINVAL, "..: not a file name;");
    refused_with(&r, ".", SEAM_EINVAL, ".: not a file name;");
    refused_with(&r, "", SEAM_EINVAL, ": not a file name;");
    snprintf(up, sizeof up, "%s/../plug.so", r.other);
    refused_with(&r, up, SEAM_EINVAL, ": not a file name;");
    refused_with(&r, room_path(&r, "plug.so"), SEAM_EINVAL,
                 "/plug.so: outside plugin_paths; add its folder there");
    refused_with(&r, room_path(&r, "plugins/x/plug.so"), SEAM_EINVAL,
                 ": outside plugin_paths;");
    refused_with(&r, room_path(&r, "other/absent.so"), SEAM_ENOENT,
                 ": no such file");
    cr_assert_eq(chdir(cwd), 0);
    room_close(&r);
}

Test(loader, finds_absolute_names_within_plugin_paths)
{
    struct room r;
    struct seam_loaded *p;

    room_open(&r);
    cr_assert_eq(mkdir(room_path(&r, "other/deep"), 0755), 0);
    room_copy(&r, "plug", "other/deep/plug.so");
    p = loaded(&r, room_path(&r, "other/deep/plug.so"), "plug", PARSER);
    cr_expect_str_eq(p->path, room_path(&r, "other/deep/plug.so"));
    seam_loaded_free(p);
    /* A folder that merely begins with the same letters is another folder. */
    cr_assert_eq(mkdir(room_path(&r, "other2"), 0755), 0);
    room_copy(&r, "plug_abort", "other2/plug.so");
    refused_with(&r, room_path(&r, "other2/plug.so"), SEAM_EINVAL,
                 ": outside plugin_paths;");
    room_close(&r);
}

Test(loader, follows_links_within_the_folder_only)
{
    struct room r;
    struct seam_loaded *p;

    room_open(&r);
    room_copy(&r, "plug", "plugins/plug.so.1");
    cr_assert_eq(symlink("plug.so.1", room_path(&r, "plugins/in.so")), 0);
    p = loaded(&r, "in.so", "plug", PARSER);
    cr_expect_str_eq(p->path, room_path(&r, "plugins/plug.so.1"));
    seam_loaded_free(p);
    room_copy(&r, "plug_abort", "plug.so");
    cr_assert_eq(symlink("../plug.so", room_path(&r, "plugins/out.so")), 0);
    refused_with(&r, "out.so", SEAM_EINVAL, "out.so: leads to ");
    cr_assert_eq(symlink("..", room_path(&r, "other/up")), 0);
    refused_with(&r, room_path(&r, "other/up/plug.so"), SEAM_EINVAL,
                 "which is outside plugin_paths");
    room_close(&r);
}

/* Runs the probe in folder `cwd` with the environment of a careless or hostile
 * caller, and compares what it prints. */
static void probe(const struct room *r, const char *cwd, const char *self,
                  const char *file, const char *expect)
{
    char out[1024] = { 0 };
    int fd[2], status = 0;
    size_t n = 0;
    ssize_t got;
    pid_t pid;

    cr_assert_eq(pipe(fd), 0);
    pid = fork();
    if (pid == 0) {
        dup2(fd[1], 1);
        setenv("LD_LIBRARY_PATH", room_path(r, "path"), 1);
        setenv("HOME", room_path(r, "home"), 1);
        setenv("PLUG_MARKER", room_path(r, "marker"), 1);
        if (chdir(cwd))
            _exit(98);
        execl(self, self, r->plugins, file, (char *)NULL);
        _exit(99);
    }
    close(fd[1]);
    while ((got = read(fd[0], out + n, sizeof out - 1 - n)) > 0)
        n += (size_t)got;
    close(fd[0]);
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_expect_eq(status, 0, "%s in %s: status %#x", self, cwd, status);
    cr_expect(strstr(out, expect), "%s in %s, file %s: \"%s\" has no \"%s\"",
              self, cwd, file, out, expect);
}

Test(loader, never_runs_decoys)
{
    static const char *const files[] = { "plug.so", "./plug.so", "../plug.so",
                                         "x/../../y", "path/plug.so" };
    static const char *const folders[] = { "cwd", "model", "home", "path" };
    struct room r;
    char self[1024], relative[1200], decoy[64];

    room_open(&r);
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        cr_assert_eq(mkdir(room_path(&r, folders[i]), 0755), 0);
        snprintf(decoy, sizeof decoy, "%s/plug.so", folders[i]);
        room_copy(&r, "plug_marker", decoy);
    }
    room_copy(&r, "plug_marker", "plug.so");
    cr_assert_eq(symlink(ABI_PROBE, room_path(&r, "cwd/probe")), 0);
    /* From the working directory up to the root and down again. */
    snprintf(relative, sizeof relative, "%s%s",
             "../../../../../../../../../../../../../../../..", ABI_PROBE);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        for (size_t k = 0; k < sizeof folders / sizeof *folders; k++) {
            const char *cwd = room_path(&r, folders[k]);

            probe(&r, cwd, ABI_PROBE, files[i], "refused");
            probe(&r, cwd, relative, files[i], "refused");
        }
    snprintf(self, sizeof self, "%s", room_path(&r, "cwd/probe"));
    probe(&r, room_path(&r, "cwd"), self, "plug.so", "refused");
    probe(&r, room_path(&r, "cwd"), "./probe", "plug.so", "refused");
    probe(&r, room_path(&r, "cwd"), ABI_PROBE, room_path(&r, "model/plug.so"),
          "refused");
    /* With the real one in its place, that one is loaded. */
    room_copy(&r, "plug_two", "plugins/plug.so");
    probe(&r, room_path(&r, "cwd"), ABI_PROBE, "plug.so", "value 2");
    cr_expect(access(room_path(&r, "marker"), F_OK), "a decoy has run");

    /* What the claim relies on: a decoy that is loaded leaves its mark. */
    room_copy(&r, "plug_marker", "plugins/plug.so");
    probe(&r, room_path(&r, "cwd"), ABI_PROBE, "plug.so", "value 1");
    cr_expect_eq(access(room_path(&r, "marker"), F_OK), 0);
    room_close(&r);
}

/* ---- Who may have written them ------------------------------------------- */

Test(loader, refuses_what_others_can_write)
{
    struct room r;
    struct seam_loaded *p;
    char text[300];

    room_open(&r);
    room_copy(&r, "plug", "plugins/plug.so");
    chmod(room_path(&r, "plugins/plug.so"), 0666);
    snprintf(text, sizeof text,
             "plug.so: %s/plug.so is writable by everybody (mode 0666); chmod "
             "go-w it",
             r.plugins);
    refused(&r, "plug.so", SEAM_EDATA, text);
    chmod(room_path(&r, "plugins/plug.so"), 0644);

    chmod(r.plugins, 0777);
    snprintf(text, sizeof text,
             "plug.so: %s is writable by everybody (mode 0777); chmod go-w it",
             r.plugins);
    refused(&r, "plug.so", SEAM_EDATA, text);
    /* Where everybody can put files, a sticky bit does not make them ours. */
    chmod(r.plugins, 01777);
    refused_with(&r, "plug.so", SEAM_EDATA, "is writable by everybody");
    chmod(r.plugins, 0755);

    chmod(r.root, 0777);
    snprintf(text, sizeof text,
             "plug.so: %s is writable by everybody (mode 0777); chmod go-w it",
             r.root);
    refused(&r, "plug.so", SEAM_EDATA, text);
    /* Further up it keeps others from renaming what is ours. */
    chmod(r.root, 01777);
    p = loaded(&r, "plug.so", "plug", PARSER);
    seam_loaded_free(p);
    room_close(&r);
}

Test(loader, refuses_what_belongs_to_others)
{
    struct room r;
    struct seam_loaded *p;

    if (!is_root())
        cr_skip_test("only root can give files away");
    room_open(&r);
    room_copy(&r, "plug", "plugins/plug.so");
    cr_assert_eq(chown(room_path(&r, "plugins/plug.so"), 4321, 0), 0);
    refused_with(&r, "plug.so", SEAM_EDATA,
                 "/plug.so belongs to user 4321; expected root or user 0");
    cr_assert_eq(chown(room_path(&r, "plugins/plug.so"), 0, 4321), 0);
    chmod(room_path(&r, "plugins/plug.so"), 0664);
    refused_with(&r, "plug.so", SEAM_EDATA,
                 "/plug.so is writable by group 4321 (mode 0664)");
    chmod(room_path(&r, "plugins/plug.so"), 0644);
    cr_assert_eq(chown(r.plugins, 4321, 0), 0);
    refused_with(&r, "plug.so", SEAM_EDATA,
                 "/plugins belongs to user 4321; expected root or user 0");
    cr_assert_eq(chown(r.plugins, 0, 0), 0);
    /* Further up, a warning. */
    cr_assert_eq(chown(r.root, 4321, 0), 0);
    cr_expect(!room_logged(&r, "belongs to user 4321"));
    p = loaded(&r, "plug.so", "plug", PARSER);
    cr_expect(room_logged(&r, "belongs to user 4321, who can replace it"));
    seam_loaded_free(p);
    cr_assert_eq(chown(r.root, 0, 0), 0);
    room_close(&r);
}

/* ---- Pins ---------------------------------------------------------------- */

Test(loader, compares_pins)
{
    struct room r;
    struct seam_loaded *p = NULL;
    struct seam_error err = { 0 };
    struct seam_want want = { .name = "plug", .kind = PARSER };
    char sha[65], upper[65], text[300];

    room_open(&r);
    room_copy(&r, "plug", "plugins/plug.so");
    seam_sha256_file(room_path(&r, "plugins/plug.so"), sha, &err);
    want.sha256 = sha;
    cr_expect_eq(seam_loader_load(r.loader, &want, &p, &err), 0, "%s",
                 err.text);
    cr_expect(p->pinned);
    seam_loaded_free(p);
    for (size_t i = 0; i < sizeof sha; i++)
        upper[i] = sha[i] >= 'a' ? (char)(sha[i] - 32) : sha[i];
    want.sha256 = upper;
    cr_expect_eq(seam_loader_load(r.loader, &want, &p, &err), 0, "%s",
                 err.text);
    seam_loaded_free(p);

    /* Other content, and code that must not run. */
    room_copy(&r, "plug_abort", "plugins/plug.so");
    seam_sha256_file(room_path(&r, "plugins/plug.so"), upper, &err);
    want.sha256 = sha;
    snprintf(text, sizeof text,
             "plug.so: sha256 is %s; the configuration pins %s. If the change "
             "is intended: seam pin plug.so",
             upper, sha);
    cr_expect_eq(seam_loader_load(r.loader, &want, &p, &err), SEAM_EDATA);
    cr_expect_str_eq(err.text, text);

    want.sha256 = NULL;
    cr_expect_eq(seam_loader_load(r.loader, &want, &p, &err), SEAM_EINVAL);
    cr_expect_str_eq(err.text, "plug.so: neither \"sha256\" nor \"unpinned\" "
                               "is given; seam pin plug.so prints the entry");
    room_close(&r);
}

Test(loader, tells_that_a_plugin_is_not_pinned)
{
    struct room r;
    struct seam_loaded *p;

    room_open(&r);
    room_copy(&r, "plug", "plugins/plug.so");
    p = loaded(&r, "plug.so", "plug", PARSER);
    cr_expect_not(p->pinned);
    seam_loaded_free(p);
    room_close(&r);
}

Test(loader, hashes_as_the_standard_says)
{
    struct room r;
    struct seam_error err = { 0 };
    char sha[65];

    room_open(&r);
    room_write(&r, "abc", "abc", 3);
    cr_expect_eq(seam_sha256_file(room_path(&r, "abc"), sha, &err), 0);
    cr_expect_str_eq(sha, "ba7816bf8f01cfea414140de5dae2223"
                          "b00361a396177a9cb410ff61f20015ad");
    cr_expect_eq(seam_sha256_file(room_path(&r, "absent"), sha, &err),
                 SEAM_ENOENT);
    cr_expect_eq(seam_sha256_file(r.root, sha, &err), SEAM_EDATA);
    room_close(&r);
}

/* ---- Twice, again, and instead ------------------------------------------- */

Test(loader, refuses_a_name_that_is_taken)
{
    struct room r;
    struct seam_loaded *p;
    char text[300];

    room_open(&r);
    room_copy(&r, "plug", "plugins/plug.so");
    room_copy(&r, "plug_abort", "plugins/plug2.so");
    p = loaded(&r, "plug.so", "plug", PARSER);
    snprintf(text, sizeof text,
             "plug.so: a plugin \"plug\" is loaded already, from %s/plug.so; "
             "list it once",
             r.plugins);
    refused(&r, "plug.so", SEAM_EINVAL, text);
    snprintf(text, sizeof text,
             "plug2.so: a plugin \"plug\" is loaded already, from %s/plug.so; "
             "list it once",
             r.plugins);
    refused(&r, "plug2.so", SEAM_EINVAL, text);
    cr_expect_eq(room_test(p)->value(), 1);
    seam_loaded_free(p);
    room_close(&r);
}

Test(loader, loads_again_what_was_freed_with_fresh_data)
{
    struct room r;
    struct seam_host host = { .size = sizeof host };

    room_open(&r);
    room_copy(&r, "plug", "plugins/plug.so");
    for (int i = 0; i < 3; i++) {
        struct seam_loaded *p = loaded(&r, "plug.so", "plug", PARSER);

        cr_expect_eq(seam_loaded_init(p, &host, NULL), 0);
        cr_expect_eq(room_test(p)->n_init(), 1, "round %d", i);
        seam_loaded_free(p);
    }
    room_close(&r);
}

Test(loader, loads_the_new_code_after_a_file_was_replaced)
{
    struct room r;
    struct seam_loaded *old, *p = NULL;
    struct seam_loader *successor;
    struct seam_error err = { 0 };
    struct seam_want want = { "plug", "plug.so", NULL, true, PARSER };

    room_open(&r);
    room_copy(&r, "plug", "plugins/plug.so");
    old = loaded(&r, "plug.so", "plug", PARSER);
    cr_expect_eq(room_test(old)->value(), 1);
    room_replace(&r, "plug_two", "plugins/plug.so");

    /* While the old one is in use: for this there is a second loader. */
    successor = room_loader(&r, NULL);
    cr_assert_eq(seam_loader_load(successor, &want, &p, &err), 0, "%s",
                 err.text);
    cr_expect_eq(room_test(p)->value(), 2);
    cr_expect_eq(room_test(old)->value(), 1);
    seam_loaded_free(p);
    seam_loader_free(successor);

    /* And after it was freed. */
    seam_loaded_free(old);
    p = loaded(&r, "plug.so", "plug", PARSER);
    cr_expect_eq(room_test(p)->value(), 2);
    seam_loaded_free(p);
    room_close(&r);
}

Test(loader, is_not_disturbed_when_a_file_is_overwritten)
{
    struct room r;
    struct seam_loaded *p;
    static char noise[65536];

    room_open(&r);
    room_copy(&r, "plug", "plugins/plug.so");
    p = loaded(&r, "plug.so", "plug", PARSER);
    room_write(&r, "plugins/plug.so", noise, sizeof noise);
    room_write(&r, "plugins/plug.so", noise, 1);
    cr_expect_eq(room_test(p)->value(), 1);
    seam_loaded_free(p);
    room_close(&r);
}

/* ---- init and the end ---------------------------------------------------- */

Test(loader, reports_a_failed_init)
{
    struct room r;
    struct seam_loaded *p;
    struct seam_error err = { 0 };
    struct seam_host host = { .size = sizeof host };

    room_open(&r);
    setenv("PLUG_FINI", room_path(&r, "fini"), 1);
    room_copy(&r, "plug_init_fails", "plugins/plug.so");
    p = loaded(&r, "plug.so", "plug", PARSER);
    cr_expect_eq(seam_loaded_init(p, &host, &err), SEAM_EDEVICE);
    cr_expect_str_eq(err.text, "plug: init failed with code -6: the thing is "
                               "not plugged in");
    seam_loaded_free(p);
    cr_expect(access(room_path(&r, "fini"), F_OK), "fini without init");

    room_copy(&r, "plug_init_silent", "plugins/plug.so");
    p = loaded(&r, "plug.so", "plug", PARSER);
    cr_expect_eq(seam_loaded_init(p, &host, &err), SEAM_ENOTSUP);
    cr_expect_str_eq(err.text, "plug: init failed with code -2: the plugin "
                               "gives no reason");
    seam_loaded_free(p);

    room_copy(&r, "plug", "plugins/plug.so");
    p = loaded(&r, "plug.so", "plug", PARSER);
    cr_expect_eq(seam_loaded_init(p, &host, &err), 0);
    seam_loaded_free(p);
    cr_expect_eq(access(room_path(&r, "fini"), F_OK), 0, "fini was not called");
    unsetenv("PLUG_FINI");
    room_close(&r);
}

static bool is_mapped(const char *part)
{
    char line[1024];
    bool found = false;
    FILE *f = fopen("/proc/self/maps", "r");

    cr_assert_not_null(f);
    while (fgets(line, sizeof line, f))
        found = found || strstr(line, part);
    fclose(f);
    return found;
}

Test(loader, unmaps_what_allows_it_and_nothing_else)
{
    struct room r;
    struct seam_loaded *p;
    char sha[65];

    room_open(&r);
    room_copy(&r, "plug", "plugins/plug.so");
    p = loaded(&r, "plug.so", "plug", PARSER);
    memcpy(sha, p->sha256, sizeof sha);
    seam_loaded_free(p);
    cr_expect(is_mapped(sha));

    room_copy(&r, "plug_unloadable", "plugins/plug.so");
    p = loaded(&r, "plug.so", "plug", PARSER);
    memcpy(sha, p->sha256, sizeof sha);
    cr_expect(is_mapped(sha));
    seam_loaded_free(p);
    cr_expect_not(is_mapped(sha));
    room_close(&r);
}

Test(loader, removes_its_store)
{
    struct room r;
    struct seam_loaded *p;
    struct stat st;
    char store[512], maps[80];

    room_open(&r);
    room_copy(&r, "plug", "plugins/plug.so");
    p = loaded(&r, "plug.so", "plug", PARSER);
    cr_expect_eq(room_count(&r, "tmp"), 1);
    snprintf(maps, sizeof maps, "/%s.so", p->sha256);
    cr_expect(is_mapped(maps), "what runs is the copy");
    cr_expect(is_mapped(r.tmp));
    cr_expect_not(is_mapped(r.plugins));
    snprintf(store, sizeof store, "%s", room_path(&r, "tmp"));
    cr_expect_eq(stat(store, &st), 0);
    seam_loader_free(r.loader);
    r.loader = NULL;
    cr_expect_eq(room_count(&r, "tmp"), 0);
    cr_expect_eq(room_test(p)->value(), 1, "it goes on without the store");
    seam_loaded_free(p);
    room_close(&r);
}

Test(loader, removes_the_stores_of_killed_servers_only)
{
    struct room r;
    struct seam_loader *other;
    struct seam_loaded *p;
    int status;
    pid_t pid;

    room_open(&r);
    room_copy(&r, "plug_abort", "plugins/plug.so");
    pid = fork();
    if (pid == 0) {
        signal(SIGABRT, SIG_DFL);
        other = room_loader(&r, NULL);
        r.loader = other;
        room_load(&r, "plug.so", "plug", PARSER, &p, NULL);
        _exit(0);
    }
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert(WIFSIGNALED(status));
    cr_assert_eq(room_count(&r, "tmp"), 2, "ours and what the child left");
    other = room_loader(&r, NULL);
    cr_expect_eq(room_count(&r, "tmp"), 2, "ours and the new one");
    room_copy(&r, "plug", "plugins/plug.so");
    p = loaded(&r, "plug.so", "plug", PARSER);
    seam_loader_free(other);
    cr_expect_eq(room_count(&r, "tmp"), 1);
    seam_loaded_free(p);
    room_close(&r);
}

Test(loader, keeps_its_store_to_itself)
{
    struct room r;
    struct stat st;
    char pattern[512];
    FILE *ls;

    room_open(&r);
    snprintf(pattern, sizeof pattern, "ls -d %s/*", r.tmp);
    ls = popen(pattern, "r");
    cr_assert(ls && fgets(pattern, sizeof pattern, ls));
    pclose(ls);
    pattern[strcspn(pattern, "\n")] = 0;
    cr_assert_eq(stat(pattern, &st), 0);
    cr_expect_eq(st.st_mode & 07777, 0700, "mode %04o", st.st_mode & 07777);
    room_close(&r);
}

Test(loader, needs_a_place_for_its_store)
{
    struct seam_loader_opts opts = { .plugin_dir = "/" };
    struct seam_loader *l = NULL;
    struct seam_error err = { 0 };
    struct statvfs fs;

    setenv("TMPDIR", "/no/such/folder", 1);
    cr_expect_eq(seam_loader_new(&l, &opts, &err), SEAM_ENOENT);
    cr_expect_str_eq(err.text, "/no/such/folder: no folder for copies of "
                               "plugins; set TMPDIR: No such file or "
                               "directory");
    if (statvfs("/proc", &fs) == 0 && (fs.f_flag & ST_NOEXEC)) {
        setenv("TMPDIR", "/proc", 1);
        cr_expect_eq(seam_loader_new(&l, &opts, &err), SEAM_EDATA);
        cr_expect_str_eq(err.text,
                         "/proc: mounted noexec, plugins cannot be loaded "
                         "from there; set TMPDIR to another folder");
    }
    cr_expect_null(l);
}

/* ---- What plugins see ---------------------------------------------------- */

Test(loader, shows_plugins_no_symbol_of_the_server)
{
    struct room r;
    struct seam_loaded *p;

    room_open(&r);
    room_copy(&r, "plug", "plugins/plug.so");
    p = loaded(&r, "plug.so", "plug", PARSER);
    cr_expect_eq(room_test(p)->sees("server"), 0);
    cr_expect_null(dlsym(RTLD_DEFAULT, "seam_loader_load"));
    cr_expect_null(dlsym(RTLD_DEFAULT, "seam_plugin_entry"));
    seam_loaded_free(p);
    room_close(&r);
}

Test(loader, shows_plugins_nothing_of_each_other)
{
    struct room r;
    struct seam_loaded *a, *b;

    room_open(&r);
    room_copy(&r, "exports_a", "plugins/exports_a.so");
    room_copy(&r, "exports_b", "plugins/exports_b.so");
    a = loaded(&r, "exports_a.so", "exports_a", PARSER);
    b = loaded(&r, "exports_b.so", "exports_b", PARSER);
    cr_expect_eq(room_test(a)->sees("a"), 1, "it exports that itself");
    cr_expect_eq(room_test(a)->sees("b"), 0);
    cr_expect_eq(room_test(b)->sees("a"), 0);
    cr_expect_eq(room_test(b)->sees("b"), 1);
    cr_expect_null(dlsym(RTLD_DEFAULT, "plug_exported_a"));
    seam_loaded_free(a);
    seam_loaded_free(b);
    room_close(&r);
}

/* ---- The processor ------------------------------------------------------- */

#if defined(__x86_64__)
Test(loader, restores_the_floating_point_mode)
{
    struct room r;
    struct seam_loaded *p;
    uint32_t before = __builtin_ia32_stmxcsr();

    room_open(&r);
    room_copy(&r, "plug_flush", "plugins/plug.so");
    p = loaded(&r, "plug.so", "plug", PARSER);
    cr_expect_eq(__builtin_ia32_stmxcsr() & ~0x3fu, before & ~0x3fu);
    cr_expect(room_logged(&r, "plug.so: changed the floating-point mode"));
    seam_loaded_free(p);
    room_close(&r);
}

Test(cpu, agrees_with_the_compiler)
{
    const struct {
        const char *ours;
        int theirs;
    } all[] = {
        { "sse4_2", __builtin_cpu_supports("sse4.2") },
        { "popcnt", __builtin_cpu_supports("popcnt") },
        { "avx", __builtin_cpu_supports("avx") },
        { "avx2", __builtin_cpu_supports("avx2") },
        { "fma", __builtin_cpu_supports("fma") },
        { "bmi1", __builtin_cpu_supports("bmi") },
        { "bmi2", __builtin_cpu_supports("bmi2") },
        { "avx512f", __builtin_cpu_supports("avx512f") },
        { "avx512bw", __builtin_cpu_supports("avx512bw") },
        { "avx512dq", __builtin_cpu_supports("avx512dq") },
        { "avx512cd", __builtin_cpu_supports("avx512cd") },
        { "avx512vl", __builtin_cpu_supports("avx512vl") },
        { "avx512ifma", __builtin_cpu_supports("avx512ifma") },
        { "avx512vbmi", __builtin_cpu_supports("avx512vbmi") },
        { "avx512_vbmi2", __builtin_cpu_supports("avx512vbmi2") },
        { "avx512_vnni", __builtin_cpu_supports("avx512vnni") },
        { "avx512_bitalg", __builtin_cpu_supports("avx512bitalg") },
        { "avx512_bf16", __builtin_cpu_supports("avx512bf16") },
        { "gfni", __builtin_cpu_supports("gfni") },
        { "vpclmulqdq", __builtin_cpu_supports("vpclmulqdq") },
    };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        int rc = seam_cpu_check("x.so", all[i].ours, NULL);

        cr_expect_eq(rc == 0, all[i].theirs != 0, "%s: %d, compiler: %d",
                     all[i].ours, rc, all[i].theirs);
    }
}

Test(cpu, needs_all_words_of_the_list)
{
    cr_expect_eq(seam_cpu_check("x.so", "", NULL), 0);
    cr_expect_eq(seam_cpu_check("x.so", "  sse3  ssse3 ", NULL), 0);
    cr_expect_eq(seam_cpu_check("x.so", "sse3 avx512er", NULL), SEAM_ENOTSUP);
    cr_expect_eq(seam_cpu_check("x.so", "sse", NULL), SEAM_ENOTSUP, "a prefix");
    cr_expect_eq(seam_cpu_check("x.so", "sse33", NULL), SEAM_ENOTSUP);
}

/* Where the processor has AMX, one of its instructions must run afterwards. */
Test(cpu, enables_amx_where_it_is)
{
    if (seam_cpu_check("x.so", "amx_tile amx_bf16", NULL))
        cr_skip_test("no AMX here");
    cr_expect_eq(seam_cpu_enable("x.so", "amx_bf16", NULL), 0);
    __asm__ volatile("tilerelease");
}
#endif

Test(ident, names_kinds)
{
    cr_expect_str_eq(seam_kind_name(SEAM_KIND_BACKEND), "backend");
    cr_expect_str_eq(seam_kind_name(SEAM_KIND_SPEC), "spec");
    cr_expect_str_eq(seam_kind_name(0), "?");
    cr_expect_str_eq(seam_kind_name(6), "?");
}

Test(ident, is_read_from_a_file)
{
    struct seam_ident id;
    struct seam_error err = { 0 };

    cr_expect_eq(seam_ident_read(ABI_PLUGIN_DIR "/plug.so", &id, &err), 0, "%s",
                 err.text);
    cr_expect_str_eq(id.name, "plug");
    cr_expect_eq(seam_ident_read(ABI_PLUGIN_DIR "/absent.so", &id, &err),
                 SEAM_ENOENT);
    cr_expect_eq(seam_ident_read(ABI_PLUGIN_DIR "/no_entry.so", &id, &err),
                 SEAM_EDATA);
}
