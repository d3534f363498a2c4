/* Conversations with an engine over the nano model, for tests of its prefix
 * cache: many that begin alike, each turn the whole of the one before, its
 * answer and something new. */
#ifndef TESTS_ENGINE_TALK_H
#define TESTS_ENGINE_TALK_H

#include "core/engine/engine.h"

struct talker {
    struct seam_config config;
    struct seam_log log;
    struct seam_engine *e;
};

/* An engine with 512 tokens of context, pages of 16 and four rows; extra
 * [n_extra] are settings that differ.  False, and err, when it does not start. */
bool talker_open(struct talker *t, const struct seam_flag *extra,
                 size_t n_extra, struct seam_error *err);
void talker_close(struct talker *t);

/* Answer prompt[0, n) with `max` tokens into out; cached: how many tokens were
 * not computed.  False when it did not end as it should. */
bool talker_ask(struct talker *t, const int32_t *prompt, uint32_t n,
                const char *salt, float temperature, uint64_t seed,
                uint32_t max, int32_t *out, uint32_t *cached);

/* Take everything until it has ended, at most cap tokens; returns how many. */
uint32_t gen_take_all(struct seam_gen *g, struct seam_gen_token *out,
                      uint32_t cap);

#endif
