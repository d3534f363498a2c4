/* Checks of block plugins that only tests make; the others are those of seam
 * check, core/check/block.h. */
#ifndef SEAM_TESTS_PLUGINS_BLOCKCHECK_H
#define SEAM_TESTS_PLUGINS_BLOCKCHECK_H

#include "core/check/block.h"
#include "oracle.h"

/* Every failing allocation of create is ENOMEM and leaves nothing behind; a
 * weight that is missing or has another shape is named; half precision is
 * ENOTSUP. */
void check_create(const struct check *c, const char *some_weight);

#endif
