/* x86-64 with AVX-512 F, BW, VL and DQ. */
#define KERN_TABLE kern_avx512
#define KERN_NAME  "avx512"
extern const struct kern KERN_TABLE;
#include "kern_impl.h"
