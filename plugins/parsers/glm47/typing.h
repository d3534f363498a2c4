/* From an argument's text to its JSON value, guided by the schema of the
 * parameter (chat spec, section 3.6). */
#ifndef SEAM_GLM_TYPING_H
#define SEAM_GLM_TYPING_H

#include "json_text.h"

/* What is known of one parameter before its value comes. */
struct glm_param {
    const struct jt_value *root;   /* document of the parameters, or NULL     */
    const struct jt_value *schema; /* of this parameter, or NULL              */
    uint32_t types;                /* GLM_TYPE_*, 0: anything                 */
    bool raw_string; /* every text is a string as it stands                   */
    bool listed;     /* some values are listed (enum, const)                  */
    bool no_memory;  /* none of this can be relied on                         */
};

struct glm_param glm_param_of(const struct jt_value *root,
                              const struct jt_value *props,
                              struct seam_str key);

/* Append the JSON text of the value that raw stands for.  Out of memory shows
 * in out->failed. */
void glm_value(const struct glm_param *param, struct seam_str raw,
               struct tbuf *out);

/* Types that a text may look like. */
enum {
    GLM_LOOKS_NULL = 1,
    GLM_LOOKS_BOOLEAN = 2,
    GLM_LOOKS_NUMBER = 4,
    GLM_LOOKS_ARRAY = 8,
    GLM_LOOKS_OBJECT = 16
};

/* Is every value that conforms to the parameter's schema, written into a call
 * with a string as it stands, read back by glm_value as one that conforms?  1, 0
 * or ENOMEM; 0 also where that cannot be told.  *but: provided that no string is
 * written that looks like one of these types (GLM_LOOKS_*). */
int glm_param_exact(const struct glm_param *param, uint32_t *but);

/* What "#" or "#/..." leads to within the document root; NULL for anything
 * else.  Sets *no_memory, or leaves it. */
const struct jt_value *glm_pointer(const struct jt_value *root,
                                   struct seam_str ref, bool *no_memory);

/* properties of a parameters document, which may itself be a $ref; NULL when it
 * declares none.  ENOMEM. */
int glm_properties(const struct jt_value *params, const struct jt_value **out);

#endif
