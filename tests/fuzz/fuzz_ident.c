/* The identification of a plugin out of any bytes. */
#include <stdlib.h>
#include <string.h>

#include "core/loader/ident.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct seam_ident id;
    struct seam_error err = { 0 };
    int rc = seam_ident_parse("input", p, n, &id, &err);

    /* What comes back is either a reason or an identification to print. */
    if (rc && (rc != SEAM_EDATA || err.code != rc || !*err.text))
        abort();
    if (!rc && (memcmp(id.magic, SEAM_MAGIC, sizeof id.magic) || !*id.name ||
                strnlen(id.name, sizeof id.name) == sizeof id.name ||
                strnlen(id.version, sizeof id.version) == sizeof id.version ||
                strnlen(id.build, sizeof id.build) == sizeof id.build ||
                strnlen(id.cpu, sizeof id.cpu) == sizeof id.cpu ||
                strnlen(id.gpu, sizeof id.gpu) == sizeof id.gpu))
        abort();
    return 0;
}
