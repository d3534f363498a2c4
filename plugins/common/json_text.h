/* JSON as plugins read it: RFC 8259 to the letter, numbers kept as they are
 * written, members in the order of the text.
 *
 * Refused: anything after the value, a byte order mark, ill-formed UTF-8, lone
 * surrogates, reals that no double can hold, nesting beyond JT_DEPTH.  U+0000
 * is an ordinary character.  A key that comes twice keeps its first place and
 * takes its last value, as Python's reader has it. */
#ifndef SEAM_JSON_TEXT_H
#define SEAM_JSON_TEXT_H

#include "text_buf.h"

#define JT_DEPTH 256

enum jt_kind {
    JT_NULL = 1,
    JT_FALSE = 2,
    JT_TRUE = 3,
    JT_NUMBER = 4,
    JT_STRING = 5,
    JT_ARRAY = 6,
    JT_OBJECT = 7
};

struct jt_value {
    uint8_t kind;        /* JT_*                                              */
    bool real;           /* NUMBER with a point or an exponent                */
    uint32_t pos;        /* place in its list or object as written            */
    struct seam_str s;   /* STRING: its bytes, unescaped; NUMBER, ARRAY and
                            OBJECT: its text as written                       */
    struct seam_str key; /* within an object: its key, unescaped              */
    struct jt_value *next;
    struct jt_value *first;   /* ARRAY, OBJECT                                */
    struct jt_value **sorted; /* OBJECT of many members, by key; or NULL      */
    size_t count;
};

struct jt_chunk;

/* Owns a tree, except the text it was read from, which must live as long. */
struct jt_doc {
    const struct jt_value *root;
    struct jt_chunk *chunks;
};

/* Read text into doc->root of an empty doc.  EDATA with "WHAT: byte N: reason",
 * quoting nothing of the text, or ENOMEM.  Release *doc in any case. */
int jt_read(struct jt_doc *doc, struct seam_str text, const char *what,
            struct seam_error *err);
/* The same into *out, in the memory of doc. */
int jt_read_more(struct jt_doc *doc, struct seam_str text, const char *what,
                 const struct jt_value **out, struct seam_error *err);
void jt_release(struct jt_doc *doc);

/* Memory that lives as long as doc; NULL: none left. */
void *jt_alloc(struct jt_doc *doc, size_t bytes);

/* JT_* of the value that text is, without building anything; 0 when it is none,
 * or ENOMEM. */
int jt_check(struct seam_str text, bool *real);

/* Member of an object; NULL when absent, or v is no object (or NULL). */
const struct jt_value *jt_get(const struct jt_value *v, const char *key);
const struct jt_value *jt_find(const struct jt_value *v, struct seam_str key);

static inline bool jt_is(const struct jt_value *v, enum jt_kind kind)
{
    return v && v->kind == kind;
}

/* Absent and null are the same to most readers. */
static inline bool jt_none(const struct jt_value *v)
{
    return !v || v->kind == JT_NULL;
}

/* What Python takes for true. */
bool jt_truthy(const struct jt_value *v);

/* Equal as JSON Schema has it: numbers by value, members in any order. */
bool jt_equal(const struct jt_value *a, const struct jt_value *b);

/* Append v as Python's json.dumps(ensure_ascii=False) prints it; members named
 * in skip (NULL-terminated, or NULL) are left out at the top level. */
void jt_write(struct tbuf *b, const struct jt_value *v,
              const char *const *skip);

/* The value of a number's lexeme.  EDATA when no double can hold it, ENOMEM. */
int jt_double(struct seam_str lexeme, double *out);

#endif
