/* What a call must read at least, and how much it must multiply. */
#ifndef SEAM_BENCH_BYTES_H
#define SEAM_BENCH_BYTES_H

#include "core/bench/watch.h"
#include "core/engine/runtime.h"

struct seam_bench_bytes {
    uint64_t part[SEAM_N_WATCHED]; /* all of what follows, by part            */
    uint64_t all, experts, state, cache;
};

/* Weights that one token uses, over all layers. */
struct seam_bench_weights {
    struct seam_bench_bytes bytes;
    uint64_t n[SEAM_N_WATCHED]; /* numbers, whatever they take                */
    uint64_t n_active;
    uint64_t expert_bytes, n_expert; /* of one expert in every layer          */
};

/* What reading all of a weight takes, quantised or not, scales included. */
uint64_t seam_bench_tensor_bytes(const struct seam_tensor *t);

/* Weights as the checkpoint hands them out.  [control] */
int seam_bench_weigh(struct seam_checkpoint *c, struct seam_bench_weights *w,
                     struct seam_error *err);

/* State, read, and records of `context` tokens, of which latents at most
 * index_topk, in one layer of a role.  The rest of *out is zero. */
void seam_bench_cached(const struct seam_runtime *rt, enum seam_role role,
                       uint32_t context, struct seam_bench_bytes *out);

/* Of n tokens that each choose k of e experts at random, how many experts are
 * chosen at least once. */
double seam_bench_experts(double e, double k, double n);

/* The part that a block's role is. */
extern const enum seam_watch_part seam_watch_role[SEAM_N_ROLES];

#endif
