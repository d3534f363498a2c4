/* x86-64 with AVX2, FMA and F16C. */
#define KERN_TABLE kern_avx2
#define KERN_NAME  "avx2"
extern const struct kern KERN_TABLE;
#include "kern_impl.h"
