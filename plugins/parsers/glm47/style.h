/* The variants of the GLM chat format (chat spec, section 2), and which of them
 * a checkpoint's template is. */
#ifndef SEAM_GLM_STYLE_H
#define SEAM_GLM_STYLE_H

#include "text_buf.h"

enum glm_version {
    GLM_4_7 = 1, /* also 4.7-Flash */
    GLM_5 = 2,
    GLM_5_1 = 3,
    GLM_5_2 = 4,
    GLM_5_3 = 5 /* also 5.3-Flash */
};

/* What a 5.3 prompt does when the request switches thinking off; in the older
 * formats it can be switched off anyway. */
enum glm_off {
    GLM_OFF_IGNORE = 1,     /* think nevertheless                             */
    GLM_OFF_CLOSE = 2,      /* close the block; the effort line stays         */
    GLM_OFF_EMPTY_BLOCK = 3 /* close the block, no effort line                */
};

struct glm_style {
    enum glm_version version;
    bool clears; /* reasoning of earlier turns goes, unless asked for    */
    enum glm_off off;
};

/* The usual behaviour of a version. */
struct glm_style glm_style_of(enum glm_version version);

/* By the features of a template's text; false when it is none of ours. */
bool glm_style_detect(struct seam_str template, struct glm_style *out);

const char *glm_version_name(enum glm_version version);
/* 0 when there is no such version. */
enum glm_version glm_version_by_name(struct seam_str name);

#endif
