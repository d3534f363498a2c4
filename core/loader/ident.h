/* A plugin's identification, read from its file before any of its code runs. */
#ifndef SEAM_LOADER_IDENT_H
#define SEAM_LOADER_IDENT_H

#include "core/base/error.h"

/* Find seam_plugin_entry in the ELF image p[0, n) through program headers and
 * the dynamic table (section headers may be stripped) and copy its first 512
 * bytes.  Every offset is checked against n; nothing is executed.  EDATA says
 * what is wrong: not ELF, 32-bit, another machine, truncated, libraries looked
 * for relative to the working directory, no entry symbol, wrong magic, or a
 * string that is unterminated or not text.  name stands for the file in
 * messages.  [any] */
int seam_ident_parse(const char *name, const unsigned char *p, uint64_t n,
                     struct seam_ident *out, struct seam_error *err);

/* The same for a file, which is read, not mapped: it may shrink meanwhile. */
int seam_ident_read(const char *path, struct seam_ident *out,
                    struct seam_error *err);

/* "backend", "attention", "moe", "spec", "parser", or "?" */
const char *seam_kind_name(uint32_t kind);

#endif
