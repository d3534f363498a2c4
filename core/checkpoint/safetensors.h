/* The safetensors header, checked as a whole before any tensor is touched.
 * Format: u64 little-endian header length, JSON header, data. */
#ifndef SEAM_CHECKPOINT_SAFETENSORS_H
#define SEAM_CHECKPOINT_SAFETENSORS_H

#include "core/base/error.h"

#define SEAM_ST_MAX_RANK 8

struct seam_st_tensor {
    const char *name; /* NUL-terminated, in the header's memory */
    uint16_t dtype;   /* SEAM_F32, ... ; only what plugin.h names */
    uint16_t rank;    /* 0 .. SEAM_ST_MAX_RANK */
    int64_t shape[SEAM_ST_MAX_RANK];
    uint64_t offset; /* from the start of the file */
    uint64_t bytes;
};

struct seam_st_header {
    struct seam_st_tensor *t; /* sorted by name */
    uint32_t n;
    char *names; /* private */
};

/* Parse the header of the file image p[0, have) of a file of file_bytes bytes
 * (have may be less when only the header is mapped; it must hold all of it).
 * Refuses what docs/checkpoint.md lists, naming file and tensor.  Never
 * allocates more than a small multiple of the header's real size.  [any] */
int seam_st_parse(struct seam_st_header *h, const char *file,
                  const unsigned char *p, uint64_t have, uint64_t file_bytes,
                  struct seam_error *err);
void seam_st_release(struct seam_st_header *h);

const struct seam_st_tensor *seam_st_find(const struct seam_st_header *h,
                                          const char *name);

/* Bits of one element, and the name used in files ("BF16"). */
uint32_t seam_dtype_bits(uint16_t dtype);
const char *seam_dtype_name(uint16_t dtype);

#endif
