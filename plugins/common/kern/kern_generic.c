/* Any machine. */
#define KERN_TABLE kern_generic
#define KERN_NAME  "generic"
extern const struct kern KERN_TABLE;
#include "kern_impl.h"
