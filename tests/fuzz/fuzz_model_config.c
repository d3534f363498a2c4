/* Input: the text of config.json.  What is accepted must be a model whose
 * tensors can be listed and whose memory can be planned. */
#undef NDEBUG /* assert() is how a target reports, in every build */
#include <assert.h>
#include <string.h>

#include "core/base/json.h"
#include "core/checkpoint/inventory.h"
#include "core/checkpoint/plan.h"

#define MAX_EXPERTS 2000 /* of all layers, for a quick walk                   */

static int check_tensor(void *ctx, const struct seam_expected *e)
{
    uint64_t values = 1;

    (void)ctx;
    assert(strlen(e->name) < 128);
    assert(e->rank >= 1 && e->rank <= 3);
    for (uint32_t i = 0; i < e->rank; i++) {
        assert(e->shape[i] > 0);
        assert(!__builtin_mul_overflow(values, (uint64_t)e->shape[i], &values));
    }
    assert(values < UINT64_MAX / 64);
    return 0;
}

static void check_accepted(const struct seam_model_config *m)
{
    struct seam_plan p =
        seam_plan_of(m, SEAM_F32, SEAM_F32, SEAM_F32, SEAM_F32);

    assert(m->n_layers >= 1 && m->n_layers < SEAM_MAX_LAYERS);
    assert(m->n_mtp <= 1 && m->n_eos <= 8);
    assert(m->index_topk % m->index_kpool == 0);
    assert(m->n_experts % m->n_group == 0 && m->topk_group <= m->n_group);
    assert(m->experts_per_token <= m->n_experts);
    assert(m->kda_lower_bound < 0 && m->rms_eps > 0 && m->hc_eps > 0);
    for (uint32_t l = 0; l <= m->n_layers; l++) {
        assert(m->layer_kind[l] == SEAM_LAYER_LINEAR ||
               m->layer_kind[l] == SEAM_LAYER_SPARSE);
        assert(m->mlp_kind[l] == SEAM_MLP_DENSE ||
               m->mlp_kind[l] == SEAM_MLP_SPARSE);
    }
    for (uint32_t i = 0; i < m->n_eos; i++)
        assert(m->eos[i] >= 0 && (uint32_t)m->eos[i] < m->vocab);
    assert(!m->has_quant || m->quant_group > 0);
    assert(p.per_token_mtp > p.per_token);
    assert(p.per_seq < UINT64_MAX / 2);
    if ((uint64_t)m->n_experts * (m->n_layers + 1) < MAX_EXPERTS)
        seam_inventory(m, 0, m->n_layers + 1, true, check_tensor, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const struct seam_model_config empty;
    struct seam_model_config m = empty;
    struct seam_error err = { 0 };
    json_t *v;

    v = seam_json_parse((const char *)data, n, "fuzz", 0, &err);
    if (!v)
        return 0;
    if (seam_model_config_read(&m, "fuzz", v, &err)) {
        assert(err.code < 0 && err.text[0]);
        assert(!memcmp(&m, &empty, sizeof m));
    } else {
        check_accepted(&m);
    }
    json_decref(v);
    return 0;
}
