/* What every block plugin owes the engine, as checks on one layer: the result
 * of a token depends on its sequence alone, however it came there. */
#ifndef SEAM_CHECK_BLOCK_H
#define SEAM_CHECK_BLOCK_H

#include "core/check/world.h"

struct check {
    const char *plugin;
    const struct world *w;
    struct th *h;
    /* Layer 0 of a whole sequence. */
    void (*oracle)(const struct world *w, const struct th *h, uint32_t layer,
                   const float *x, uint32_t n, double *y);
    double limit; /* normalised error against the oracle                      */
    double rare; /* the same of at most a tenth of the tokens; 0: limit       */
    double same; /* largest difference between two ways to the same token;
                     0: none                                                  */
    double loose; /* a larger one is an error of its own, a smaller one a broken
                     promise of row invariance (S6); 0: no distinction        */
    uint32_t max_draft, page_tokens; /* 0: 3, 16                              */
    bool quick; /* fewer prefixes                                             */
};

/* Prefill of many lengths against the oracle. */
void check_oracle(const struct check *c);
/* A prompt cut into equal chunks of every size, and at every single place. */
void check_cuts(const struct check *c);
/* Every width and every n_accept after every phase, rejected tokens being
 * garbage, followed by single tokens, further drafts or a long chunk, with and
 * without a commit in between. */
void check_accept(const struct check *c);
/* Random steps of several sequences at once, with padding sequences and rows,
 * acceptance, commits, forks and restores, against each sequence alone. */
void check_random(const struct check *c, uint64_t seed, uint32_t steps);
/* A row that held NaN and was zeroed, pages that held another sequence. */
void check_tenant(const struct check *c);
/* Padding in every place: rows elsewhere are the same bits, and a sequence with
 * a NaN spoils no other. */
void check_padding(const struct check *c);
#endif
