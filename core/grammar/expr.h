/* Expressions: what regular expressions and text grammars are read into before
 * they are drawn. */
#ifndef SEAM_GRAMMAR_EXPR_H
#define SEAM_GRAMMAR_EXPR_H

#include "core/grammar/build.h"

#define G_MAX_CHAR 0x10ffffu
#define G_NO_MAX   UINT32_MAX
/* Brackets in brackets. */
#define G_MAX_NESTING 100

enum g_expr_kind {
    G_EXPR_SEQUENCE,
    G_EXPR_CHOICE,
    G_EXPR_SET,    /* one of ranges [first, last) */
    G_EXPR_REPEAT, /* of its only child */
    G_EXPR_CALL,   /* of rule `min` */
    G_EXPR_ADDED,  /* token `min` */
    G_EXPR_SAME,   /* as expression `min` */
    G_EXPR_TEXT    /* any text, less what is never written */
};

struct g_expr {
    enum g_expr_kind kind;
    uint32_t first, last; /* children, linked by next; or ranges */
    uint32_t next;
    uint32_t min, max;
    /* Of a repetition that is counted at run time: its rule; else G_NONE. */
    uint32_t rule;
    bool starts, ends; /* an alternative that is anchored there */
};

struct g_range {
    uint32_t lo, hi;
};

struct g_exprs {
    struct g_build *b;
    struct g_expr *expr;
    uint32_t n, cap;
    struct g_range *range;
    uint32_t n_ranges, cap_ranges;
    /* Of G_EXPR_TEXT, when there is something that is never written. */
    const struct g_auto *text;
    uint32_t text_first;
};

void g_exprs_release(struct g_exprs *x);

/* These return 0 after a failure; a failure is bare. */
uint32_t g_expr_new(struct g_exprs *x, enum g_expr_kind kind);
void g_expr_child(struct g_exprs *x, uint32_t parent, uint32_t child);
uint32_t g_expr_repeat(struct g_exprs *x, uint32_t child, uint32_t min,
                       uint32_t max);
void g_expr_range(struct g_exprs *x, uint32_t lo, uint32_t hi);
/* A set of the ranges added from `from` on, or of all other characters. */
uint32_t g_expr_set(struct g_exprs *x, uint32_t from, bool negate);
/* The same, without making an expression of them. */
void g_expr_tidy(struct g_exprs *x, uint32_t from, bool negate);

/* Let long repetitions of one set in the alternatives of `at` be counted at run
 * time where that is unambiguous: each gets a rule, which g_expr_set_rules sets.
 * Nothing else may be drawn while it does. */
void g_expr_count(struct g_exprs *x, uint32_t at);
void g_expr_set_rules(struct g_exprs *x, enum g_coding coding);

uint32_t g_expr_draw(struct g_exprs *x, uint32_t from, uint32_t at,
                     enum g_coding coding);

#endif
