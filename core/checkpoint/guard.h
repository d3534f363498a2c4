/* Reads of a mapped file that was truncated meanwhile, or whose disk failed.
 *
 * The kernel answers such a read with SIGBUS.  Inside a watched range the
 * handler maps zeros from the page that failed to the end of the range and
 * marks the range lost; the read continues with zeros, and whoever computes
 * with them asks for the mark before believing the result.  Any other SIGBUS
 * goes to the handler that was installed before, or kills the process as it
 * would have.
 *
 * A thread that blocks SIGBUS is killed by the kernel all the same, so no
 * thread that reads weights may block it. */
#ifndef SEAM_CHECKPOINT_GUARD_H
#define SEAM_CHECKPOINT_GUARD_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/error.h"

/* Watch [p, p + bytes), a mapping.  *slot names it for the calls below.
 * ENOMEM: 1,024 ranges are watched already.  [control] */
int seam_sigbus_watch(const void *p, uint64_t bytes, uint32_t *slot,
                      struct seam_error *err);
/* To be called before the range is unmapped.  [control] */
void seam_sigbus_unwatch(uint32_t slot);

bool seam_sigbus_lost(uint32_t slot); /* [any] */

#endif
