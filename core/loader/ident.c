/* The path to the identification is the one the dynamic loader takes: program
 * headers, the dynamic table, its hash table, a symbol, and back through the
 * program headers to the file.  Section headers are never looked at, because
 * strip removes them and the loader does not need them.
 *
 * Every step reads through elf_get() or elf_at(), which know where the file
 * ends.  A lie that gets past this is found by comparing the identification
 * once more in memory (loader.c, step L7). */
#include "core/loader/ident.h"

#include <elf.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/base/num.h"
#include "core/base/utf8.h"

#if defined(__x86_64__)
#define IDENT_MACHINE      EM_X86_64
#define IDENT_MACHINE_NAME "x86-64"
#elif defined(__aarch64__)
#define IDENT_MACHINE      EM_AARCH64
#define IDENT_MACHINE_NAME "AArch64"
#else
#error "add this machine's ELF number"
#endif

#define IDENT_SYMBOL "seam_plugin_entry"

/* A linker writes about ten; each address is looked up in all of them. */
#define IDENT_MAX_PHDRS 256

/* Largest file seam_ident_read takes into memory. */
#define IDENT_MAX_BYTES ((uint64_t)4 << 30)

_Static_assert(sizeof(struct seam_ident) == 512, "frozen for all majors");

struct elf {
    const char *name; /* for messages                                   */
    const unsigned char *p;
    uint64_t n;
    Elf64_Ehdr head;
    uint64_t dynamic; /* address of the dynamic table                   */
    /* From the dynamic table: addresses, 0 when absent. */
    uint64_t symtab, strtab, strsz, hash, gnu_hash;
};

/* Copy len bytes at file offset off, or false when they are not in the file. */
static bool elf_get(const struct elf *e, uint64_t off, void *dst, size_t len)
{
    uint64_t end;

    if (!seam_add(off, len, &end) || end > e->n)
        return false;
    memcpy(dst, e->p + off, len);
    return true;
}

/* Program header i; the table was checked to be in the file. */
static Elf64_Phdr elf_phdr(const struct elf *e, uint32_t i)
{
    Elf64_Phdr ph = { 0 };

    elf_get(e, e->head.e_phoff + i * sizeof ph, &ph, sizeof ph);
    return ph;
}

/* The file offset of address va, and how many bytes from there on the file
 * backs.  False when va is not backed by the file. */
static bool elf_at(const struct elf *e, uint64_t va, uint64_t *off,
                   uint64_t *room)
{
    for (uint32_t i = 0; i < e->head.e_phnum; i++) {
        Elf64_Phdr ph = elf_phdr(e, i);

        if (ph.p_type != PT_LOAD || va < ph.p_vaddr ||
            va - ph.p_vaddr >= ph.p_filesz)
            continue;
        *off = ph.p_offset + (va - ph.p_vaddr);
        *room = ph.p_filesz - (va - ph.p_vaddr);
        return true;
    }
    return false;
}

/* Copy len bytes at address va + step * i. */
static bool elf_load(const struct elf *e, uint64_t va, uint64_t step,
                     uint64_t i, void *dst, size_t len)
{
    uint64_t delta, addr, off, room;

    return seam_mul(step, i, &delta) && seam_add(va, delta, &addr) &&
           elf_at(e, addr, &off, &room) && room >= len &&
           elf_get(e, off, dst, len);
}

/* The NUL-terminated string at offset `at` of the string table, or NULL. */
static const char *elf_string(const struct elf *e, uint64_t at)
{
    uint64_t addr, off, room;

    if (at >= e->strsz || !seam_add(e->strtab, at, &addr) ||
        !elf_at(e, addr, &off, &room))
        return NULL;
    if (room > e->strsz - at)
        room = e->strsz - at;
    if (off > e->n || room > e->n - off || !memchr(e->p + off, 0, room))
        return NULL;
    return (const char *)e->p + off;
}

static const char *elf_machine_name(uint32_t machine)
{
    switch (machine) {
    case EM_386:
        return "i386";
    case EM_ARM:
        return "ARM";
    case EM_X86_64:
        return "x86-64";
    case EM_AARCH64:
        return "AArch64";
    case EM_RISCV:
        return "RISC-V";
    case EM_PPC64:
        return "PowerPC64";
    case EM_S390:
        return "S/390";
    default:
        return "another machine";
    }
}

/* What kind of file it is, and whether all of it is there. */
static int elf_check_file(struct elf *e, struct seam_error *err)
{
    const unsigned char *id = e->head.e_ident;
    uint64_t end;

    if (e->n == 0)
        return seam_fail(err, SEAM_EDATA,
                         "%s: is empty; expected a shared object", e->name);
    if (e->n < SELFMAG || memcmp(e->p, ELFMAG, SELFMAG))
        return seam_fail(err, SEAM_EDATA,
                         "%s: not an ELF file; expected a shared object for %s",
                         e->name, IDENT_MACHINE_NAME);
    if (e->n > EI_CLASS && e->p[EI_CLASS] == ELFCLASS32)
        return seam_fail(err, SEAM_EDATA,
                         "%s: a 32-bit ELF file; this server needs 64-bit %s",
                         e->name, IDENT_MACHINE_NAME);
    if (!elf_get(e, 0, &e->head, sizeof e->head))
        return seam_fail(err, SEAM_EDATA,
                         "%s: truncated: %llu bytes, an ELF header has %zu",
                         e->name, (unsigned long long)e->n, sizeof e->head);
    if (id[EI_CLASS] != ELFCLASS64 || id[EI_DATA] != ELFDATA2LSB)
        return seam_fail(err, SEAM_EDATA,
                         "%s: ELF class %u, byte order %u; expected 64-bit "
                         "little-endian",
                         e->name, id[EI_CLASS], id[EI_DATA]);
    if (e->head.e_machine != IDENT_MACHINE)
        return seam_fail(err, SEAM_EDATA,
                         "%s: built for %s (ELF machine %u); this server runs "
                         "on " IDENT_MACHINE_NAME " (%u)",
                         e->name, elf_machine_name(e->head.e_machine),
                         e->head.e_machine, IDENT_MACHINE);
    if (e->head.e_type != ET_DYN)
        return seam_fail(err, SEAM_EDATA,
                         "%s: ELF type %u; expected a shared object (%u)",
                         e->name, e->head.e_type, ET_DYN);
    if (e->head.e_phentsize != sizeof(Elf64_Phdr) || !e->head.e_phnum ||
        e->head.e_phnum > IDENT_MAX_PHDRS)
        return seam_fail(err, SEAM_EDATA,
                         "%s: %u program headers of %u bytes; expected 1 to %d "
                         "of %zu",
                         e->name, e->head.e_phnum, e->head.e_phentsize,
                         IDENT_MAX_PHDRS, sizeof(Elf64_Phdr));
    if (!seam_add(e->head.e_phoff, e->head.e_phnum * sizeof(Elf64_Phdr),
                  &end) ||
        end > e->n)
        return seam_fail(err, SEAM_EDATA,
                         "%s: truncated: %llu bytes, its program headers end "
                         "further on",
                         e->name, (unsigned long long)e->n);
    for (uint32_t i = 0; i < e->head.e_phnum; i++) {
        Elf64_Phdr ph = elf_phdr(e, i);

        if (!ph.p_filesz)
            continue;
        if (!seam_add(ph.p_offset, ph.p_filesz, &end) || end > e->n)
            return seam_fail(err, SEAM_EDATA,
                             "%s: truncated: %llu bytes, segment %u has %llu "
                             "bytes from offset %llu; copy the file again",
                             e->name, (unsigned long long)e->n, i,
                             (unsigned long long)ph.p_filesz,
                             (unsigned long long)ph.p_offset);
    }
    return 0;
}

/* Entry i of the dynamic table; false at its end.  By address, because that is
 * where the dynamic loader reads it. */
static bool elf_dynamic(const struct elf *e, uint64_t i, Elf64_Dyn *d)
{
    return elf_load(e, e->dynamic, sizeof *d, i, d, sizeof *d) &&
           d->d_tag != DT_NULL;
}

/* True when s starts the same way from any working directory: with '/' or with
 * the folder of the plugin itself. */
static bool path_is_fixed(const char *s)
{
    size_t n = !strncmp(s, "$ORIGIN", 7)     ? 7
               : !strncmp(s, "${ORIGIN}", 9) ? 9
                                             : 0;

    return *s == '/' || (n && (s[n] == '/' || s[n] == ':' || !s[n]));
}

/* The same for each folder of a colon-separated list, in which an empty entry
 * means the working directory. */
static bool paths_are_fixed(const char *list)
{
    const char *s = list;

    while (path_is_fixed(s)) {
        s = strchr(s, ':');
        if (!s)
            return true;
        s++;
    }
    return false;
}

/* A library taken from the working directory is code from whoever can write
 * there. */
static int elf_check_libraries(const struct elf *e, struct seam_error *err)
{
    Elf64_Dyn d;

    for (uint64_t i = 0; elf_dynamic(e, i, &d); i++) {
        bool is_name = d.d_tag == DT_NEEDED || d.d_tag == DT_AUXILIARY ||
                       d.d_tag == DT_FILTER;
        const char *s;

        if (!is_name && d.d_tag != DT_RPATH && d.d_tag != DT_RUNPATH)
            continue;
        s = elf_string(e, d.d_un.d_val);
        if (!s)
            return seam_fail(err, SEAM_EDATA,
                             "%s: entry %llu of its dynamic table is no "
                             "string; the file is damaged",
                             e->name, (unsigned long long)i);
        if (is_name && strchr(s, '/') && !path_is_fixed(s))
            return seam_fail(err, SEAM_EDATA,
                             "%s: needs the library \"%s\" relative to the "
                             "working directory; link it by its plain name",
                             e->name, s);
        if (!is_name && !paths_are_fixed(s))
            return seam_fail(err, SEAM_EDATA,
                             "%s: looks for libraries in \"%s\" "
                             "(DT_RUNPATH); link it with absolute folders or "
                             "none",
                             e->name, s);
    }
    return 0;
}

/* True when sym is a data object that other objects can see. */
static bool elf_is_entry(const struct elf *e, const Elf64_Sym *sym)
{
    uint32_t bind = ELF64_ST_BIND(sym->st_info);
    uint32_t seen = ELF64_ST_VISIBILITY(sym->st_other);
    const char *s;

    if (sym->st_shndx == SHN_UNDEF || sym->st_shndx >= SHN_LORESERVE ||
        ELF64_ST_TYPE(sym->st_info) != STT_OBJECT ||
        (bind != STB_GLOBAL && bind != STB_WEAK) ||
        (seen != STV_DEFAULT && seen != STV_PROTECTED))
        return false;
    s = elf_string(e, sym->st_name);
    return s && !strcmp(s, IDENT_SYMBOL);
}

static bool elf_symbol(const struct elf *e, uint64_t i, Elf64_Sym *sym)
{
    return elf_load(e, e->symtab, sizeof *sym, i, sym, sizeof *sym);
}

/* DT_GNU_HASH: header { n_buckets, first, n_bloom, shift }, the Bloom words,
 * the buckets, then one hash per symbol from `first` on; bit 0 ends a chain. */
static bool elf_find_gnu(const struct elf *e, Elf64_Sym *sym)
{
    uint32_t head[4], h = 5381, link, have;
    uint64_t buckets, chain;

    for (const char *s = IDENT_SYMBOL; *s; s++)
        h = h * 33 + (unsigned char)*s;
    if (!elf_load(e, e->gnu_hash, 0, 0, head, sizeof head) || !head[0] ||
        !seam_add(e->gnu_hash, sizeof head + (uint64_t)head[2] * 8, &buckets) ||
        !seam_add(buckets, (uint64_t)head[0] * 4, &chain) ||
        !elf_load(e, buckets, 4, h % head[0], &link, sizeof link))
        return false;
    if (link < head[1])
        return false;
    do {
        if (!elf_load(e, chain, 4, link - head[1], &have, sizeof have))
            return false;
        if ((have | 1) == (h | 1) && elf_symbol(e, link, sym) &&
            elf_is_entry(e, sym))
            return true;
    } while (!(have & 1) && ++link);
    return false;
}

/* DT_HASH: { n_buckets, n_symbols }, buckets, chain.  Symbols are few, so all
 * are looked at: a chain could be a ring. */
static bool elf_find_sysv(const struct elf *e, Elf64_Sym *sym)
{
    uint32_t head[2];

    if (!elf_load(e, e->hash, 0, 0, head, sizeof head))
        return false;
    for (uint32_t i = 1; i < head[1]; i++) {
        if (!elf_symbol(e, i, sym))
            return false;
        if (elf_is_entry(e, sym))
            return true;
    }
    return false;
}

/* Read the addresses the search needs, then find the entry. */
static int elf_find(struct elf *e, Elf64_Sym *sym, struct seam_error *err)
{
    Elf64_Dyn d;
    bool found;
    int rc;

    for (uint32_t i = 0; i < e->head.e_phnum; i++) {
        Elf64_Phdr ph = elf_phdr(e, i);

        if (ph.p_type == PT_DYNAMIC)
            e->dynamic = ph.p_vaddr;
    }
    for (uint64_t i = 0; elf_dynamic(e, i, &d); i++) {
        if (d.d_tag == DT_SYMTAB)
            e->symtab = d.d_un.d_ptr;
        else if (d.d_tag == DT_STRTAB)
            e->strtab = d.d_un.d_ptr;
        else if (d.d_tag == DT_STRSZ)
            e->strsz = d.d_un.d_val;
        else if (d.d_tag == DT_HASH)
            e->hash = d.d_un.d_ptr;
        else if (d.d_tag == DT_GNU_HASH)
            e->gnu_hash = d.d_un.d_ptr;
    }
    rc = elf_check_libraries(e, err);
    if (rc)
        return rc;
    /* glibc does not look at DT_HASH when there is a DT_GNU_HASH. */
    found =
        e->gnu_hash ? elf_find_gnu(e, sym) : e->hash && elf_find_sysv(e, sym);
    if (!found)
        return seam_fail(err, SEAM_EDATA,
                         "%s: not a seam plugin (no readable " IDENT_SYMBOL ")",
                         e->name);
    return 0;
}

/* Text of an identification ends up in logs and terminals. */
static int ident_check_text(const char *name, const char *field, const char *s,
                            size_t cap, struct seam_error *err)
{
    size_t n = strnlen(s, cap);
    bool plain = seam_utf8_valid(s, n);

    if (n == cap)
        return seam_fail(err, SEAM_EDATA,
                         "%s: ident.%s has no terminating NUL in its %zu bytes",
                         name, field, cap);
    for (size_t i = 0; i < n; i++)
        plain = plain && (unsigned char)s[i] >= 0x20 && s[i] != 0x7f;
    if (!plain)
        return seam_fail(err, SEAM_EDATA,
                         "%s: ident.%s is not one line of UTF-8 text", name,
                         field);
    return 0;
}

static int ident_check(const char *name, const struct seam_ident *id,
                       struct seam_error *err)
{
    const struct {
        const char *field, *s;
        size_t cap;
    } text[] = {
        { "name", id->name, sizeof id->name },
        { "version", id->version, sizeof id->version },
        { "build", id->build, sizeof id->build },
        { "cpu", id->cpu, sizeof id->cpu },
        { "gpu", id->gpu, sizeof id->gpu },
    };
    size_t n;

    if (memcmp(id->magic, SEAM_MAGIC, sizeof id->magic))
        return seam_fail(err, SEAM_EDATA,
                         "%s: not a seam plugin (" IDENT_SYMBOL
                         " does not begin with \"" SEAM_MAGIC "\")",
                         name);
    for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
        int rc =
            ident_check_text(name, text[i].field, text[i].s, text[i].cap, err);

        if (rc)
            return rc;
    }
    n = strspn(id->name, "abcdefghijklmnopqrstuvwxyz0123456789_");
    if (!n || id->name[n])
        return seam_fail(err, SEAM_EDATA,
                         "%s: calls itself \"%s\"; a name consists of a-z, 0-9 "
                         "and _",
                         name, id->name);
    return 0;
}

int seam_ident_parse(const char *name, const unsigned char *p, uint64_t n,
                     struct seam_ident *out, struct seam_error *err)
{
    struct elf e = { .name = name, .p = p, .n = n };
    struct seam_ident id;
    Elf64_Sym sym;
    int rc;

    rc = elf_check_file(&e, err);
    if (rc)
        return rc;
    rc = elf_find(&e, &sym, err);
    if (rc)
        return rc;
    if (sym.st_size < sizeof id)
        return seam_fail(err, SEAM_EDATA,
                         "%s: not a seam plugin (" IDENT_SYMBOL
                         " is %llu bytes, an identification has %zu)",
                         name, (unsigned long long)sym.st_size, sizeof id);
    if (!elf_load(&e, sym.st_value, 0, 0, &id, sizeof id))
        return seam_fail(err, SEAM_EDATA,
                         "%s: not a seam plugin (" IDENT_SYMBOL
                         " has no bytes in the file)",
                         name);
    rc = ident_check(name, &id, err);
    if (rc)
        return rc;
    *out = id;
    return 0;
}

int seam_ident_read(const char *path, struct seam_ident *out,
                    struct seam_error *err)
{
    char *p = NULL;
    uint64_t n = 0;
    int rc;

    rc = seam_file_read(path, IDENT_MAX_BYTES, &p, &n, err);
    if (!rc)
        rc = seam_ident_parse(path, (const unsigned char *)p, n, out, err);
    free(p);
    return rc;
}

const char *seam_kind_name(uint32_t kind)
{
    switch (kind) {
    case SEAM_KIND_BACKEND:
        return "backend";
    case SEAM_KIND_ATTENTION:
        return "attention";
    case SEAM_KIND_MOE:
        return "moe";
    case SEAM_KIND_SPEC:
        return "spec";
    case SEAM_KIND_PARSER:
        return "parser";
    default:
        return "?";
    }
}
