/* Ids that nobody can guess or meet twice. */
#ifndef SEAM_SERVER_ID_H
#define SEAM_SERVER_ID_H

#include <stdint.h>

#define SEAM_ID_MAX 48

/* prefix (at most 16 characters) and 24 random letters and digits. */
void seam_id_make(char out[SEAM_ID_MAX], const char *prefix);
uint64_t seam_id_random(void);

#endif
