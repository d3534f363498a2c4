/* The rules of JSON that grammars share: white space, strings, numbers, any
 * value. */
#ifndef SEAM_GRAMMAR_JSON_H
#define SEAM_GRAMMAR_JSON_H

#include "core/grammar/build.h"

enum g_leaf_kind {
    G_LEAF_GAP = 0, /* white space between tokens */
    G_LEAF_VALUE,
    G_LEAF_OBJECT,
    G_LEAF_ARRAY,
    G_LEAF_STRING,  /* with quotes; min to max characters */
    G_LEAF_TEXT,    /* without quotes and escapes */
    G_LEAF_INTEGER, /* in [min, max] */
    G_LEAF_NUMBER
};

/* A decimal number: digits * 10^-scale, exactly. */
struct g_decimal {
    int64_t digits;
    int32_t scale;
};

struct g_bound {
    bool given, exclusive;
    struct g_decimal at;
};

/* What JSON integers are limited to; no more digits are ever written. */
#define G_INTEGER_MAX 999999999999999999

struct g_leaf {
    enum g_leaf_kind kind;
    uint32_t min_chars, max_chars; /* of strings; UINT32_MAX: any number */
    int64_t min, max;              /* of integers */
    struct g_bound lo, hi;         /* of numbers */
    uint32_t rule;
    bool is_set;
};

struct g_json {
    struct g_build *b;
    bool compact;
    struct g_leaf *leaf;
    uint32_t n_leaves, cap_leaves;
    /* Strings that no text contains, as its bytes are written. */
    json_t *never;          /* a reference */
    struct g_auto contains; /* of what contains one */
    uint32_t contains_first;
};

void g_json_release(struct g_json *j);

/* No string and no text ever contains one of these.  Before the first rule is
 * set. */
void g_json_never(struct g_json *j, json_t *words);
/* Take what contains one out of the part, which has no calls.  The rest of the
 * drawing is lost. */
void g_json_limit(struct g_json *j, struct g_part *part);

/* The rule of a leaf, which g_json_finish sets; rule and is_set are filled
 * here.  Nothing is drawn, so this may be called in mid-drawing. */
uint32_t g_json_rule(struct g_json *j, struct g_leaf leaf);
uint32_t g_json_any(struct g_json *j, enum g_leaf_kind kind); /* no limits */
/* Set the rules asked for.  The drawing is used. */
void g_json_finish(struct g_json *j);

/* ---- Drawing; each returns the state it leads to ------------------------- */

uint32_t g_json_gap(struct g_json *j, uint32_t from);
uint32_t g_json_colon(struct g_json *j, uint32_t from);
/* "name": */
uint32_t g_json_name(struct g_json *j, uint32_t from, const char *p, size_t n);
/* Exactly this text, inside a string or raw. */
uint32_t g_json_text(struct g_json *j, uint32_t from, const char *p, size_t n,
                     enum g_coding coding);
/* Exactly this value. */
uint32_t g_json_exactly(struct g_json *j, uint32_t from, const json_t *v);
/* One character of a string that is not further restricted, in any of its
 * spellings. */
uint32_t g_json_char(struct g_build *b, uint32_t from);

/* A finite double as the shortest decimal that reads back as it; false when
 * that has more than 18 digits or a scale beyond 300. */
bool g_decimal_of(double x, struct g_decimal *out);

#endif
