/* Files of the second tier of the prefix cache (private to core/engine).
 *
 * Two kinds, both named by the hash of what they stand for, so that a file is
 * never changed once it bears its name:
 *   KEY.run    whole pages one after the other, from page first_page on
 *   KEY.state  a snapshot: the state row, and before it the page that it ends
 *              in when that is not a whole one
 * The chain starts at a root hash (model, plugins, salt); each page's hash is
 * that of the one before and of its token ids.  A run's key is the hash of its
 * last page, a state's the hash of the last whole page and of the ids beyond.
 *
 * A file is header and body.  Numbers are little-endian:
 *     0  magic "SEAMPFX1"              8  u32 kind
 *    12  u32 page_tokens              16  u64 bytes of the header
 *    24  identity[32]                 56  parent[32]: hash before first_page
 *    88  key[32]                     120  u32 first_page, n_pages of the body
 *   128  u32 pos: tokens to its end  132  u32 saved: tokens over the next
 *   136  u64 page_bytes                       shorter snapshot
 *   144  u64 state_bytes             152  SHA-256 of the body
 *   184  u32 ids of the tokens from first_page on
 *        and after them the SHA-256 of the header up to there. */
#ifndef SEAM_ENGINE_DISK_FILE_H
#define SEAM_ENGINE_DISK_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include <seam/plugin.h>

#include "core/base/buf.h"

#define SEAM_DISK_HASH  32
#define SEAM_DISK_FIXED 184 /* bytes of a header before its ids */
#define SEAM_DISK_NAME  80  /* room for a file's name */

enum seam_disk_kind { SEAM_DISK_RUN = 1, SEAM_DISK_STATE = 2 };

struct seam_disk_head {
    enum seam_disk_kind kind;
    uint32_t page_tokens, first_page, n_pages, pos, saved;
    uint64_t page_bytes, state_bytes;
    unsigned char identity[SEAM_DISK_HASH], parent[SEAM_DISK_HASH];
    unsigned char key[SEAM_DISK_HASH], body_sum[SEAM_DISK_HASH];
    /* What follows from it. */
    uint64_t header_bytes, body_bytes;
    uint32_t n_ids;
    const unsigned char *ids; /* in the text it was read from */
};

/* Bytes of the header that begins with text[0, 24), or 0 when it is none. */
uint64_t seam_disk_head_bytes(const unsigned char *text);
/* Read the header text[0, n) of a file of file_bytes.  0; EDATA: damaged, *why
 * says what is wrong; ENOTSUP: another version. */
int seam_disk_head_read(struct seam_disk_head *h, const unsigned char *text,
                        uint64_t n, uint64_t file_bytes, const char **why);
/* The header for h, whose ids come from tok.  False: out of memory. */
bool seam_disk_head_write(const struct seam_disk_head *h, const int32_t *tok,
                          struct seam_buf *out);

/* out = SHA-256(before[32] ids[0, n)); out may be before.  False: no memory. */
bool seam_disk_link(const unsigned char *before, const int32_t *ids, uint32_t n,
                    unsigned char *out);
/* SHA-256 of two runs of bytes. */
bool seam_disk_sum(const void *a, uint64_t n_a, const void *b, uint64_t n_b,
                   unsigned char *out);

/* "<64 hex digits>.run" or ".state"; and whether name is one. */
void seam_disk_name(enum seam_disk_kind kind, const unsigned char *key,
                    char name[SEAM_DISK_NAME]);
bool seam_disk_is_name(const char *name);

#endif
