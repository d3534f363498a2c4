/* Headers of the prefix cache's files: whatever is accepted agrees with the
 * file's size and is written again as it was read.  Checksums stop nearly every
 * input, so each is also tried with its checksums and key put right. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/engine/disk_file.h"

static void try(const unsigned char *p, uint64_t n)
{
    struct seam_disk_head h;
    struct seam_buf again = { 0 };
    const char *why = NULL;
    int32_t *ids;
    int rc = n >= 24 ? seam_disk_head_read(&h, p, n, n, &why) : SEAM_EDATA;

    if (rc)
        return;
    if (h.header_bytes + h.body_bytes != n ||
        h.header_bytes !=
            SEAM_DISK_FIXED + SEAM_DISK_HASH + 4 * (uint64_t)h.n_ids ||
        h.n_pages * h.page_bytes + h.state_bytes != h.body_bytes)
        abort();
    ids = malloc(4 * (size_t)h.n_ids + 1);
    if (!ids)
        return;
    memcpy(ids, h.ids, 4 * (size_t)h.n_ids);
    if (!seam_disk_head_write(&h, ids, &again) || again.n != h.header_bytes ||
        memcmp(again.p, p, again.n) != 0)
        abort();
    seam_buf_release(&again);
    free(ids);
}

/* The same bytes with a key and checksums that fit them, where the fields have
 * room for any. */
static void repair(unsigned char *p, uint64_t n)
{
    uint64_t header;
    uint32_t kind, step, n_ids;
    int32_t *ids;

    memcpy(p, "SEAMPFX1", 8);
    memcpy(&kind, p + 8, 4);
    memcpy(&step, p + 12, 4);
    header = seam_disk_head_bytes(p);
    if (!header || header > n)
        return;
    n_ids = (uint32_t)(header - SEAM_DISK_FIXED - SEAM_DISK_HASH) / 4;
    step = kind == SEAM_DISK_RUN ? step : n_ids;
    ids = malloc(4 * (size_t)n_ids + 1);
    if (!ids)
        return;
    memcpy(ids, p + SEAM_DISK_FIXED, 4 * (size_t)n_ids);
    memcpy(p + 88, p + 56, SEAM_DISK_HASH);
    if (!n_ids)
        seam_disk_link(p + 88, ids, 0, p + 88);
    for (uint32_t at = 0; step && at < n_ids && step <= n_ids - at; at += step)
        seam_disk_link(p + 88, ids + at, step, p + 88);
    free(ids);
    seam_disk_sum(p, header - SEAM_DISK_HASH, NULL, 0,
                  p + header - SEAM_DISK_HASH);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    unsigned char *copy;

    try(data, n);
    if (n < SEAM_DISK_FIXED)
        return 0;
    copy = malloc(n);
    if (!copy)
        return 0;
    memcpy(copy, data, n);
    repair(copy, n);
    try(copy, n);
    free(copy);
    return 0;
}
