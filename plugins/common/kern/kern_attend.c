#include "kern_attend.h"

#include "kern_fast.h"

#if defined(__x86_64__)
extern const struct kern_attend kern_attend_amx;

const struct kern_attend *kern_attend(const struct kern *k)
{
    return k->fast == &kern_fast_amx ? &kern_attend_amx : NULL;
}
#else
const struct kern_attend *kern_attend(const struct kern *k)
{
    (void)k;
    return NULL;
}
#endif
