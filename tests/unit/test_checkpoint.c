#include <criterion/criterion.h>
#include <string.h>

#include "core/checkpoint/checkpoint.h"

static struct seam_checkpoint *opened(const char *dir)
{
    struct seam_checkpoint *c = NULL;
    struct seam_error err;
    char path[512];

    snprintf(path, sizeof path, SEAM_TEST_SOURCE_DIR "/%s", dir);
    cr_assert_eq(seam_checkpoint_open(&c, path, NULL, NULL, NULL, &err), 0,
                 "%s", err.text);
    return c;
}

Test(checkpoint, opens_what_the_repository_holds)
{
    static const struct {
        const char *dir;
        uint32_t n, n_mtp;
    } all[] = {
        { "models/nano/bf16", 532, 1 },
        { "models/nano/w4a16", 1108, 1 },
        { "tests/golden/tiny-bf16", 559, 0 },
        { "tests/golden/tiny-w4a16", 1231, 0 },
    };

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct seam_checkpoint *c = opened(all[i].dir);
        struct seam_checkpoint_stats s;

        seam_checkpoint_stats(c, &s);
        cr_expect_eq(s.n_indexed, all[i].n, "%s: %llu", all[i].dir,
                     (unsigned long long)s.n_indexed);
        cr_expect_eq(seam_checkpoint_config(c)->n_mtp, all[i].n_mtp);
        cr_expect_null(seam_checkpoint_lost(c));
        seam_checkpoint_close(c);
    }
}

Test(checkpoint, resolves_roles_modules_and_names)
{
    struct seam_checkpoint *c = opened("models/nano/w4a16");
    struct seam_tensor t;
    struct seam_error err;

    cr_assert_eq(seam_checkpoint_weight(c, "@embed", &t, &err), 0, "%s",
                 err.text);
    cr_expect(t.shape[0] == 6144 && t.shape[1] == 256);
    cr_expect_eq(t.stride[0], 512);
    cr_assert_eq(
        seam_checkpoint_weight(c, "@layer.3.mlp.experts.5.down_proj", &t, &err),
        0, "%s", err.text);
    cr_expect(t.quant == SEAM_Q_GPTQ && t.dtype == SEAM_I4);
    cr_expect(t.shape[0] == 256 && t.shape[1] == 128);
    cr_assert_eq(seam_checkpoint_weight(c, "@layer.0.self_attn.q_conv1d.weight",
                                        &t, &err),
                 0, "%s", err.text);
    cr_expect_eq(t.rank, 3);
    cr_expect_eq(seam_checkpoint_weight(c, "@layer.9.enorm.weight", &t, &err),
                 SEAM_ENOENT);
    seam_checkpoint_close(c);
}
