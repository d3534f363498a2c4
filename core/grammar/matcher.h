/* The inside of a matcher, shared by matcher.c and mask.c. */
#ifndef SEAM_GRAMMAR_MATCHER_H
#define SEAM_GRAMMAR_MATCHER_H

#include "core/grammar/impl.h"

#define G_FRAMES   2048 /* of all stacks together */
#define G_CONFIGS  4096 /* of all sets along one token */
#define G_MAX_SET  256  /* of one set, those that only call included */
#define G_MAX_KEPT 128  /* of one set, those that consume something */
#define G_POPS     4096
/* Different conditions under which one step ends the rule. */
#define G_MAX_POPPED 8

struct g_frame {
    uint64_t hash; /* of the stack from here down */
    uint32_t ret, count;
    uint32_t parent;
    uint16_t depth;
};

/* Frames that are always there: what is below the whole grammar, and what is
 * below a rule while its own mask is computed. */
enum { G_FRAME_END = 0, G_FRAME_BASE = 1, G_FRAME_FIRST = 2 };

struct g_config {
    uint32_t state;
    uint32_t count; /* rounds of the loop that the state is in */
    uint32_t frame;
    struct g_cond cond; /* holds always, unless a count is symbolic */
};

static inline bool g_always(struct g_cond c)
{
    return c.lo == G_ANY_LO && !c.hi;
}

struct g_kept {
    uint32_t n;
    bool ended;
    struct g_config config[G_MAX_KEPT];
};

/* Along one token: what was there when a byte was reached. */
struct g_level {
    uint32_t config; /* first of its set; the set ends where the next begins */
    uint32_t frames;
    uint32_t end; /* of the node's descendants */
};

struct seam_matcher {
    struct seam_grammar *g;
    uint64_t n_accepted; /* tokens, and 1 for the beginning */
    uint64_t n_oldest;   /* least n_accepted whose set is still in hist */
    struct g_kept hist[SEAM_MATCHER_ROLLBACK + 1]; /* by n_accepted, a ring */

    uint32_t n_frames;
    struct g_frame frame[G_FRAMES];

    /* What a call leaves behind is of no use to the next. */
    uint32_t n_configs;
    bool overflow; /* something did not fit */
    /* A step reached the end of the rule above G_FRAME_BASE, when this holds. */
    uint32_t n_popped;
    struct g_cond popped[G_MAX_POPPED];
    uint32_t peak; /* most frames needed, counted from the stack's beginning */
    struct g_config config[G_CONFIGS];
    uint32_t moved[G_FRAMES];
    struct g_level level[G_MAX_TOKEN + 2];
    uint32_t n_pops;
    struct g_when pop[G_POPS];
    uint32_t n_when, cap_when; /* n_when > cap_when: there were more */
    struct g_when *when;       /* [cap_when] tokens with conditions */
    uint64_t n_walked;         /* nodes of the trie, ever */
    uint32_t *scratch;         /* [2 * n_words] */
};

const struct g_edge *g_edge_of(const struct seam_grammar *g,
                               const struct g_state *st, uint8_t byte);
uint32_t g_step(struct seam_matcher *m, uint32_t first, uint32_t n,
                uint8_t byte);
/* The set after the rule whose frame this is has ended, from config[first] on;
 * returns where it ends. */
uint32_t g_return(struct seam_matcher *m, uint32_t first, uint32_t frame);
/* Lead *c over an edge of its state; false: closed after so many rounds. */
bool g_pass(const struct seam_grammar *g, const struct g_edge *e,
            struct g_config *c);
bool g_added_open(const struct seam_grammar *g, const struct g_state *st,
                  const struct g_added *e, uint32_t count, struct g_cond *cond);
/* The set of now as config[0, n), with room for frames; returns n. */
uint32_t g_load(struct seam_matcher *m);
int g_overflowed(struct seam_error *err);
/* Have the mask of a configuration remembered. */
void g_mask_warm(struct seam_matcher *m, const struct g_config *c);

#endif
