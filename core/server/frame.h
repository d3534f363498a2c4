/* Where a request ends: the checks that CivetWeb leaves out.
 *
 * CivetWeb takes the first of two lengths, lets chunking win over a length,
 * ignores what its header parser cannot read (a 65th header, a folded line),
 * and accepts bare line feeds, blanks before a colon and signed lengths.
 * Whoever stands in front of us may read the same bytes otherwise, so all of
 * that is refused and the connection closed. */
#ifndef SEAM_SERVER_FRAME_H
#define SEAM_SERVER_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/server/api_error.h"

struct mg_request_info;

/* CivetWeb's buffer for request heads, and the largest head that is
 * accepted. */
#define SEAM_HEAD_BUFFER 32768
#define SEAM_HEAD_MAX    16384

struct seam_frame {
    bool has_body; /* a length above 0, or chunked                      */
    bool chunked;
    uint64_t length; /* when not chunked                                  */
    bool keep_alive; /* what the client asks for                          */
    bool expects_continue;
};

/* Check the head in ri, whose bytes start at base in CivetWeb's buffer of
 * SEAM_HEAD_BUFFER bytes (decode_url must be off, so that they are as
 * received).  On failure the connection must be closed. */
int seam_frame_check(const struct mg_request_info *ri, const char *base,
                     struct seam_frame *f, struct seam_api_error *e);

/* How often the head has the header. */
uint32_t seam_frame_count(const struct mg_request_info *ri, const char *name);
/* Value of the header without white space at its end, copied to out (NULL when
 * it is absent or does not fit). */
const char *seam_frame_header(const struct mg_request_info *ri,
                              const char *name, char *out, size_t cap);

/* True when the comma-separated list holds the token, whatever its case. */
bool seam_frame_has_token(const char *list, const char *token);

#endif
