/* Byte layouts that the built-in plugins of sparse attention share, so that a
 * default plugin and its reference twin can take over each other's planes and
 * state rows (docs/abi.md, section 12).  Changing one means a new number.  That
 * of linear attention is in kda_state.h. */
#ifndef SEAM_PLUGINS_LAYOUT_H
#define SEAM_PLUGINS_LAYOUT_H

#include <stdint.h>

/* sparse_mla: plane 0 "latent" has a record of kv_lora values per token; plane 1
 * "index" has one of index_dim values, a pooled key, per kpool tokens, at record
 * slot / kpool of the pool's last token.  Records are F32, BF16 or FP8, see
 * kv_record.h.  One copy of state, addressed by position, is
 *   f32 ring[ring_slots][2][index_dim]   the normed key, then the gate without
 *       ape, of position t at t % ring_slots */
#define SEAM_LAYOUT_SPARSE_MLA_F32  UINT64_C(0x736d6c6100000001)
#define SEAM_LAYOUT_SPARSE_MLA_BF16 UINT64_C(0x736d6c6100000003)
#define SEAM_LAYOUT_SPARSE_MLA_FP8  UINT64_C(0x736d6c6100000004)

/* Long enough that rejected tokens never overwrite what the next step reads. */
static inline uint32_t seam_ring_slots(uint32_t kpool, uint32_t max_draft)
{
    return (2 * kpool + max_draft - 1) / kpool * kpool;
}

#endif
