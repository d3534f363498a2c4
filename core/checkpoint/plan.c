#include "core/checkpoint/plan.h"

#define FP8_SCALE_BYTES 4 /* one F32 per record (model spec, 4.6)             */

static uint64_t plan_bytes(uint16_t dtype)
{
    return seam_dtype_bits(dtype) / 8;
}

static uint64_t plan_record(uint16_t dtype, uint64_t n)
{
    uint64_t bytes = plan_bytes(dtype);

    return n * bytes + (bytes == 1 ? FP8_SCALE_BYTES : 0);
}

struct seam_plan seam_plan_of(const struct seam_model_config *m,
                              uint16_t latent_dtype, uint16_t index_dtype,
                              uint16_t conv_dtype, uint16_t state_dtype)
{
    uint64_t latent = plan_record(latent_dtype, m->kv_lora);
    uint64_t pool = plan_record(index_dtype, m->index_dim);
    uint64_t index = (pool + m->index_kpool - 1) / m->index_kpool;
    uint64_t n_linear = 0, n_sparse = 0;
    struct seam_plan p = { 0 };

    for (uint32_t l = 0; l < m->n_layers; l++) {
        n_linear += m->layer_kind[l] == SEAM_LAYER_LINEAR;
        n_sparse += m->layer_kind[l] == SEAM_LAYER_SPARSE;
    }
    p.latent_per_token = n_sparse * latent;
    p.index_per_token = n_sparse * index;
    p.per_token = p.latent_per_token + p.index_per_token;
    p.per_token_mtp = p.per_token + latent + index;
    p.kda_per_seq = n_linear * m->kda_heads * m->kda_dim * m->kda_dim *
                    plan_bytes(state_dtype);
    p.conv_per_seq = n_linear * 3 * m->kda_heads * m->kda_dim *
                     (m->kda_conv - 1) * plan_bytes(conv_dtype);
    p.ring_mtp = 2ull * m->index_kpool * m->index_dim * plan_bytes(conv_dtype);
    p.ring_per_seq = n_sparse * p.ring_mtp;
    p.per_seq = p.kda_per_seq + p.conv_per_seq + p.ring_per_seq;
    return p;
}
