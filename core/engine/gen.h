/* A generation as engine and owner share it (private to core/engine).
 *
 * The owner's handle and the scheduler each hold a reference.  Tokens pass
 * through an array allocated at submission, so that a step allocates nothing
 * and never waits for a reader. */
#ifndef SEAM_ENGINE_GEN_H
#define SEAM_ENGINE_GEN_H

#include <pthread.h>
#include <stdatomic.h>

#include "core/engine/engine.h"

enum { GEN_LISTED = 1, GEN_IN_PROMPT = 2 };

/* What a reader gets of one token, without its alternatives. */
struct gen_slot {
    int32_t id;
    float logprob;
};

struct gen_top {
    int32_t id;
    float logprob;
};

/* Turns of the user before which a snapshot is kept. */
#define SEAM_GEN_CUTS 4

struct seam_gen {
    struct seam_engine *engine;
    _Atomic int refs;
    _Atomic bool cancelled;
    uint64_t deadline_ns; /* 0: none; fixed at submission */

    /* Fixed at submission. */
    struct seam_gen_params p;
    void *owned; /* what p.prompt, p.bias and p.stop point into */

    /* lock guards what follows up to the next rule; lock order: the engine's
     * lock, then this one. */
    pthread_mutex_t lock;
    pthread_cond_t news;   /* a token or the end */
    struct gen_slot *slot; /* [n_slots] prompt's, if wanted, then generated */
    struct gen_top *top;   /* [n_slots][p.n_top] */
    uint32_t n_slots, n_put, n_taken, n_prompt_slots;
    struct seam_gen_info info;

    /* The scheduler's own. */
    struct seam_gen *next; /* in the waiting queue */
    struct seam_tenant *tenant;
    int32_t *history;   /* [n_prompt + max_tokens] all ids so far */
    uint32_t n_history; /* prompt and generated */
    uint32_t n_done;    /* of those, in the cache */
    uint32_t n_step;    /* of those, in the running step */
    uint32_t n_want;    /* of those, that the step could have taken */
    uint32_t n_resumed; /* of those, from a snapshot */
    unsigned char salt[SEAM_DISK_HASH]; /* hash of p.cache_salt, if any */
    struct seam_disk_load *load; /* from the second tier, under way, or NULL */
    uint64_t load_until;         /* when it goes on without */
    bool at_cut; /* the step ends where a snapshot is worth keeping */
    uint32_t cut[SEAM_GEN_CUTS], n_cuts; /* such places, ascending, but the
                                            prompt's end and intervals */
    int32_t n_accept; /* tokens of the last step, for the plugins */
    int32_t *page;    /* [max pages of its full length] */
    uint32_t n_pages;
    int32_t row;          /* state row, -1: not running */
    uint64_t order;       /* of arrival */
    int32_t urgency;      /* p.priority, or less once it was overtaken by */
    uint32_t n_overtaken; /* so many; under the engine's lock while it waits */
    uint64_t last_ns;     /* when its last token came; 0: none yet */
    uint32_t n_prompt_scored; /* prompt tokens whose logprob is reported */

    /* A constraint, only when asked for. */
    struct seam_matcher *matcher;
    bool constrained; /* the matcher follows from the next token on */
    uint32_t *mask;

    /* What went wrong with this one alone in the step; code 0: nothing. */
    struct seam_error step_err;

    /* Penalties, only when asked for: counts over the vocabulary and the ids
     * that were seen, and room for the bias list made of them. */
    uint32_t *count_out; /* [vocab] times generated */
    uint8_t *mark;       /* [vocab] GEN_LISTED, GEN_IN_PROMPT */
    int32_t *listed;     /* [n_listed] ids that need a bias entry */
    uint32_t n_listed;
    float *add;       /* [vocab] logit bias of an id */
    int32_t *bias_id; /* [vocab] */
    float *bias_div, *bias_add;
};

/* A gen with one reference, or NULL and an error.  max_tokens is already cut to
 * the context. */
struct seam_gen *seam_gen_new(struct seam_engine *e,
                              const struct seam_gen_params *p, uint32_t vocab,
                              uint32_t max_pages, struct seam_error *err);
void seam_gen_unref(struct seam_gen *g);

/* Cancelled, or past its deadline; and as what it then ends. */
bool seam_gen_is_over(const struct seam_gen *g, uint64_t now);
enum seam_gen_end seam_gen_over_end(const struct seam_gen *g, uint64_t now);

/* Hand one token to the reader. */
void seam_gen_put(struct seam_gen *g, int32_t id, float logprob,
                  const int32_t *top_id, const float *top_logprob,
                  uint32_t n_top, bool from_prompt, uint64_t now);
void seam_gen_finish(struct seam_gen *g, enum seam_gen_end end,
                     const struct seam_error *err, uint64_t now);

/* Remember a generated token for penalties. */
void seam_gen_count(struct seam_gen *g, int32_t id);
/* The tokens that the constraint allows next, or NULL: all, or step_err is set.
 * Until it holds, all but the stop ids, so that what it is about cannot be left
 * out (eos [n_eos] are the model's own). */
const uint32_t *seam_gen_mask(struct seam_gen *g, const int32_t *eos,
                              uint32_t n_eos);
/* After the mask, the bias list of the next token: penalties, logit bias, and
 * stop ids banned until min_tokens, if the constraint leaves others. */
uint32_t seam_gen_bias(struct seam_gen *g, const int32_t *eos, uint32_t n_eos);

#endif
