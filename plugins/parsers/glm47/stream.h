/* The incremental parser of the glm47 plugin: seam_parser.open to close. */
#ifndef SEAM_GLM_STREAM_H
#define SEAM_GLM_STREAM_H

#include "glm.h"

int glm_stream_open(void *self, const struct seam_parse_opts *o,
                    const struct seam_sink *out, void **stream,
                    struct seam_error *err);
int glm_stream_feed(void *stream, uint32_t n, const int32_t *token,
                    struct seam_str text);
int glm_stream_finish(void *stream, uint32_t end);
void glm_stream_close(void *stream);

#endif
