/* Building the automaton of a grammar, rule by rule.
 *
 * A front end (schema.c, text.c) draws the rule at hand as a nondeterministic
 * automaton, then hands it to g_rule_set, which makes it deterministic and
 * clears the drawing.  Rules may be called before they are set.
 *
 * Failures stick: after the first one all functions do nothing and return 0, so
 * that a front end checks b->rc at its ends only. */
#ifndef SEAM_GRAMMAR_BUILD_H
#define SEAM_GRAMMAR_BUILD_H

#include "core/grammar/impl.h"

/* What one grammar may cost.  Work is counted in elementary steps, of which a
 * second holds some hundred million. */
#define G_MAX_RULES  20000
#define G_MAX_STATES 100000
#define G_MAX_EDGES  1000000
#define G_MAX_ARCS   600000
#define G_MAX_WORK   40000000

enum { G_ARC_EMPTY = 0, G_ARC_BYTES, G_ARC_CALL, G_ARC_ADDED };

struct g_arc {
    uint32_t next; /* arc of the same state, or G_NONE */
    uint32_t to;
    uint32_t arg; /* rule, or token id */
    uint8_t kind, lo, hi;
};

struct g_sets; /* subset construction's own */

struct g_build {
    const struct seam_vocab *v;
    struct seam_error *err;
    int rc;
    /* The message says what, but not where: the front end puts that before. */
    bool bare;
    uint64_t work;

    struct g_auto a;
    uint32_t *rule; /* [n_rules] first state, or G_NONE */
    uint32_t n_rules, cap_rules;

    /* The drawing. */
    uint32_t *head; /* [n_heads] first arc of a state, or G_NONE */
    struct g_arc *arc;
    uint32_t n_heads, cap_heads, n_arcs, cap_arcs;
};

void g_build_init(struct g_build *b, const struct seam_vocab *v,
                  struct seam_error *err);
void g_build_release(struct g_build *b);

/* Sets rc and the message, unless there is one already.  Returns rc. */
__attribute__((format(printf, 3, 4))) int g_fail(struct g_build *b, int code,
                                                 const char *fmt, ...);
/* The same for a message that the front end completes with the place. */
__attribute__((format(printf, 3, 4))) int g_fail_bare(struct g_build *b,
                                                      int code, const char *fmt,
                                                      ...);
/* False, and a failure, when n more steps are too many. */
bool g_work(struct g_build *b, uint64_t n);

/* Room for one more in an array; false and a failure when there is none. */
bool g_grow(struct g_build *b, void *array, uint32_t n, uint32_t *cap,
            size_t size, uint32_t max);

uint32_t g_rule_new(struct g_build *b);

/* ---- Drawing ------------------------------------------------------------- */

void g_clear(struct g_build *b);
uint32_t g_state(struct g_build *b);
void g_empty(struct g_build *b, uint32_t from, uint32_t to);
void g_bytes(struct g_build *b, uint32_t from, uint8_t lo, uint8_t hi,
             uint32_t to);
void g_call(struct g_build *b, uint32_t from, uint32_t rule, uint32_t to);
void g_added(struct g_build *b, uint32_t from, int32_t id, uint32_t to);
/* These return the state they lead to. */
uint32_t g_literal(struct g_build *b, uint32_t from, const char *p, size_t n);
uint32_t g_calling(struct g_build *b, uint32_t from, uint32_t rule);

/* How characters become bytes. */
enum g_coding {
    G_RAW = 0,
    /* Inside a JSON string, each character in one way only: '"', '\\' and
     * controls escaped, everything else raw. */
    G_JSON = 1
};
/* One character in [lo, hi]; surrogates are left out. */
void g_chars(struct g_build *b, uint32_t from, uint32_t lo, uint32_t hi,
             enum g_coding coding, uint32_t to);
/* Text, without quotes; valid UTF-8. */
uint32_t g_text(struct g_build *b, uint32_t from, const char *p, size_t n,
                enum g_coding coding);

/* ---- Rules --------------------------------------------------------------- */

/* Everything drawn between the two states. */
struct g_part {
    uint32_t from, to;
};

void g_rule_set(struct g_build *b, uint32_t rule, struct g_part part);
/* before, then between min and max times each, then after; counted at run time.
 * No word of each is empty, and there is a way to tell its end from its
 * continuation and from the beginning of after; G_NONE as from: an empty part.
 * When the parts are not like that the rule is set to calls of others. */
void g_rule_loop(struct g_build *b, uint32_t rule, struct g_part before,
                 struct g_part each, struct g_part after, uint32_t min,
                 uint32_t max);

/* before, then as many rounds as min and max say, then after.  body draws any
 * number of rounds: each time its end is reached one more was made, which must
 * be possible after each.  before and after are words that are not empty and
 * have no calls, and after begins as no round does; G_NONE as from: absent. */
void g_rule_counted(struct g_build *b, uint32_t rule, struct g_part before,
                    struct g_part body, struct g_part after, uint32_t min,
                    uint32_t max);

/* Make the drawing deterministic into another automaton, without clearing it;
 * returns the first state. */
uint32_t g_determine(struct g_build *b, struct g_auto *a, struct g_part part);
/* Draw words of a from state x that are words of b from state y (both without
 * calls and added tokens), from `from` to the state returned. */
uint32_t g_both(struct g_build *b, uint32_t from, const struct g_auto *a,
                uint32_t x, const struct g_auto *c, uint32_t y, bool negate);

/* Draw the words of a from state x, without calls and added tokens. */
uint32_t g_copy(struct g_build *b, uint32_t from, const struct g_auto *a,
                uint32_t x);

/* ---- The whole ----------------------------------------------------------- */

/* Link the rules, take out what leads nowhere, and make the grammar that begins
 * with rule start.  On failure *bad is the rule at fault, or G_NONE; the
 * message ends with what is wrong with it, for the front end to name it. */
int g_build_finish(struct g_build *b, uint32_t start,
                   const struct seam_grammar_opts *opts,
                   struct seam_grammar **g, uint32_t *bad);

#endif
