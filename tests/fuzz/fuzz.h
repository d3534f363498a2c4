/* What libFuzzer calls; included into every target by the build. */
#ifndef SEAM_TESTS_FUZZ_H
#define SEAM_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

#endif
