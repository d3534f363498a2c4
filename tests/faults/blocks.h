/* An engine of the small model, one of whose blocks is a plugin that fails on
 * purpose (fault.c), and the requests that tests ask of it. */
#ifndef TESTS_FAULTS_BLOCKS_H
#define TESTS_FAULTS_BLOCKS_H

#include "core/engine/engine.h"

/* Requests, and the tokens of each answer, up to position 50 of the longest. */
#ifdef SEAM_TEST_QUICK
enum { N = 3, LEN = 10 };
#else
enum { N = 3, LEN = 12 };
#endif

/* The roles of the blocks, and the plugins that fail in them.  NONE: the ones
 * that do not. */
enum { NONE = -1, LINEAR = 0, SPARSE = 1, MOE = 2 };
extern const char *const FAULTY[];

struct blocks {
    struct seam_config config;
    struct seam_log log;
    struct seam_engine *e;
};

/* One of the roles has its faulty plugin, with this configuration
 * ("\"fault\":..."). */
void blocks_config(struct seam_config *c, int role, const char *fault);
/* Start with that, and wait until it is loaded or has failed. */
enum seam_engine_state blocks_open(struct blocks *b, int role,
                                   const char *fault, struct seam_error *err);
void blocks_close(struct blocks *b);

/* Request i, of 10, 24 and 42 tokens: a position tells them apart. */
struct seam_gen *blocks_submit(struct blocks *b, int i);
/* Take all its tokens, free it, and say how many there were. */
uint32_t blocks_finish(struct seam_gen *g, int32_t *id,
                       struct seam_gen_info *info);
/* What each request gets of the same plugins without a fault, alone. */
void blocks_expect(int role, int32_t want[N][LEN]);
/* The n tokens that came are those that were wanted of request i. */
void blocks_same(const int32_t *got, uint32_t n, const int32_t *want, int i,
                 const char *when);
/* After the fault the engine serves as before, from the same pages and rows. */
void blocks_recovered(struct blocks *b, int32_t want[N][LEN]);

#endif
