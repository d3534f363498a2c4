/* The tools of a request as the parser needs them: by name, with the schemas of
 * their parameters. */
#ifndef SEAM_GLM_TOOLS_H
#define SEAM_GLM_TOOLS_H

#include "json_text.h"

struct glm_tool {
    struct seam_str name;
    const struct jt_value *params; /* document that $ref points into, or NULL */
    const struct jt_value *props;  /* properties, or NULL: none declared      */
};

struct glm_tools {
    struct jt_doc doc;
    struct glm_tool *tool; /* [n] by name, each name once                     */
    size_t n;
    size_t longest; /* bytes of the longest name                              */
};

/* list is a JSON list of tools, flat or wrapped, or empty text; it must outlive
 * *t.  EDATA, ENOMEM.  Release *t in any case. */
int glm_tools_read(struct glm_tools *t, struct seam_str list,
                   struct seam_error *err);
void glm_tools_release(struct glm_tools *t);

/* The tool of exactly this name, or NULL. */
const struct glm_tool *glm_tools_find(const struct glm_tools *t,
                                      struct seam_str name);

/* True when some name begins with s (or is s). */
bool glm_tools_begin(const struct glm_tools *t, struct seam_str s);

/* A name that lost the tag between itself and its first key: the longest name
 * that s begins with and whose rest, white space aside, is a declared property;
 * any word will do for a tool that declares none. */
const struct glm_tool *glm_tools_glued(const struct glm_tools *t,
                                       struct seam_str s, struct seam_str *key);

/* Narrow [*lo, *hi), the tools whose names agree in the first `at` bytes, to
 * those with byte c next. */
void glm_tools_narrow(const struct glm_tools *t, size_t at, char c, size_t *lo,
                      size_t *hi);

/* What a name that lost its tag may run into. */
static inline bool glm_is_key_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '$' ||
           c == '-';
}

static inline bool glm_is_name_char(char c)
{
    return (glm_is_key_char(c) && c != '$') || c == ':';
}

#define GLM_NAME_MAX 128 /* characters of a name that is not declared */

#endif
