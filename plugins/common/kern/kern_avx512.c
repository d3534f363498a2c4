/* x86-64 with AVX-512 F, BW, VL and DQ, and the tables that add to it. */
#define KERN_TABLE kern_avx512
#define KERN_NAME  "avx512"
extern const struct kern KERN_TABLE, kern_avx512vnni, kern_amx;
#include "kern_impl.h"

#include "kern_fast.h"

const struct kern kern_avx512vnni = KERN_INIT("avx512vnni", &kern_fast_vnni);
const struct kern kern_amx = KERN_INIT("amx", &kern_fast_amx);
