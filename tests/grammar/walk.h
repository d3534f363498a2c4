/* Random words of a grammar, and words checked against it. */
#ifndef SEAM_TESTS_WALK_H
#define SEAM_TESTS_WALK_H

#include "core/grammar/grammar.h"

/* Follow allowed tokens at random from where m stands, until a stop token is
 * taken; the tokens' bytes are appended to out.  From the `steps`-th token on,
 * what closes brackets and quotes is preferred.  1: the end was reached; 0: not
 * within 4 * steps; negative: the matcher failed. */
int walk_random(struct seam_matcher *m, const struct seam_tokenizer *t,
                uint32_t *row, uint64_t *seed, uint32_t steps,
                struct seam_buf *out, struct seam_error *err);

/* Does the grammar take p[0, n), as the tokenizer cuts it, and may it then end?
 * m is reset before and after. */
bool walk_accepts(struct seam_matcher *m, const struct seam_tokenizer *t,
                  const char *p, size_t n);

uint64_t walk_random_u64(uint64_t *seed);

#endif
