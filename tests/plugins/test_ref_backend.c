/* The reference backend, operation by operation. */
#include "backendcheck.h"

#include <criterion/criterion.h>

#include "plugins/common/rng.h"
#include "plugins/common/weights.h"

static const struct backend_check ref = {
    .plugin = "cpu_ref",
    .limit = 1e-6,
    .sample = 2e-6,
    .draw = backend_draw,
};

Test(rng, is_philox)
{
    /* The published known answers of Philox 4x32-10. */
    static const uint32_t in[3][6] = {
        { 0, 0, 0, 0, 0, 0 },
        { ~0u, ~0u, ~0u, ~0u, ~0u, ~0u },
        { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822,
          0x299f31d0 },
    };
    static const uint32_t out[3][4] = {
        { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 },
        { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd },
        { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 },
    };

    for (uint32_t i = 0; i < 3; i++) {
        uint32_t x[4] = { in[i][0], in[i][1], in[i][2], in[i][3] };

        seam_philox(x, in[i][4], in[i][5]);
        for (uint32_t k = 0; k < 4; k++)
            cr_expect_eq(x[k], out[i][k], "answer %u, word %u: %08x", i, k,
                         x[k]);
    }
}

Test(weights, converts_every_half_and_byte)
{
    for (uint32_t i = 0; i < 65536; i++) {
        uint16_t h = (uint16_t)i;
        int e = h >> 10 & 31, m = h & 1023;
        double v = e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);

        if (e == 31)
            cr_assert(m ? isnan(weights_f16(h)) : isinf(weights_f16(h)));
        else
            cr_assert_eq(weights_f16(h), h & 0x8000 ? -v : v, "%04x", h);
        /* bf16 survives the way to float and back. */
        if (isnan(weights_bf16(h)))
            cr_assert(isnan(weights_bf16(weights_to_bf16(weights_bf16(h)))));
        else
            cr_assert_eq(weights_to_bf16(weights_bf16(h)), h);
    }
    /* Halfway goes to the even neighbour. */
    cr_expect_eq(weights_to_bf16(weights_f32_of_bits(0x3f808000)), 0x3f80);
    cr_expect_eq(weights_to_bf16(weights_f32_of_bits(0x3f818000)), 0x3f82);
    cr_expect_eq(weights_to_bf16(weights_f32_of_bits(0x3f808001)), 0x3f81);
    cr_expect_eq(weights_to_bf16(weights_f32_of_bits(0x7f7fffff)), 0x7f80);
    cr_expect_eq(weights_f8e4m3(0x7e), 448);
    cr_expect_eq(weights_f8e4m3(0x01), 0x1p-9f);
    cr_expect_eq(weights_f8e4m3(0xb8), -1);
    cr_expect(isnan(weights_f8e4m3(0x7f)) && isnan(weights_f8e4m3(0xff)));
}

Test(cpu_ref, multiplies)
{
    check_gemm(&ref);
}

Test(cpu_ref, moves_and_scales_rows)
{
    check_rows(&ref);
}

Test(cpu_ref, mixes_the_residual_streams)
{
    check_residual_ops(&ref);
}

Test(cpu_ref, samples_and_reports)
{
    check_sample(&ref);
}

Test(cpu_ref, filters_in_the_documented_order)
{
    check_sample_filters(&ref);
}

Test(cpu_ref, verifies_drafts)
{
    check_verify(&ref);
}

Test(cpu_ref, verifies_without_loss)
{
    check_verify_lossless(&ref);
}

Test(cpu_ref, serves_the_host_as_a_device)
{
    check_device(&ref);
}

Test(cpu_ref, refuses_what_does_not_fit)
{
    check_refusals(&ref);
}
