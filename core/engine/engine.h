/* The engine: loads a model and its plugins, then runs steps on one thread.
 *
 * Requests go in as token ids and come out as token ids: rendering, text and
 * stop strings belong to whoever submitted.  Each submission is a seam_gen with
 * a queue of its own, so the engine never waits for a reader. */
#ifndef SEAM_ENGINE_ENGINE_H
#define SEAM_ENGINE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/log.h"
#include "core/checkpoint/checkpoint.h"
#include "core/config/config.h"
#include "core/engine/disk.h"
#include "core/engine/instance.h"
#include "core/engine/stats.h"
#include "core/grammar/compiled.h"
#include "core/loader/loader.h"
#include "core/tokenizer/tokenizer.h"

struct seam_engine;
struct seam_gen;

/* Beyond the ABI's codes, which plugins use. */
enum {
    SEAM_EFULL = -100 /* the queue is full; try again later */
};

enum seam_engine_state {
    SEAM_ENGINE_LOADING = 1,
    SEAM_ENGINE_READY = 2,
    SEAM_ENGINE_DRAINING = 3, /* finishes what it has, takes nothing new */
    SEAM_ENGINE_FAILED = 4,   /* did not load, or the device is lost */
    SEAM_ENGINE_STOPPED = 5
};

/* What happens while loading: text says what, done of total how far. */
typedef void seam_engine_progress(void *ctx, const char *what, uint64_t done,
                                  uint64_t total);

struct seam_engine_opts {
    const struct seam_config *config; /* outlives the engine */
    const struct seam_log *log;
    seam_engine_progress *progress; /* may be NULL; called on the engine's
                                         thread */
    void *progress_ctx;
};

/* An engine that is LOADING; its thread loads and then serves.  [control] */
int seam_engine_start(struct seam_engine **e,
                      const struct seam_engine_opts *opts,
                      struct seam_error *err);
/* Wait until it is no longer LOADING, or timeout_ms (-1: for ever) is over.
 * Returns the state; FAILED fills err.  [any] */
enum seam_engine_state seam_engine_wait_loaded(struct seam_engine *e,
                                               int64_t timeout_ms,
                                               struct seam_error *err);
/* No new submissions from here on; running ones go on.  [any] */
void seam_engine_drain(struct seam_engine *e);
/* Cancel everything and end the thread: at the next step's end, or at the next
 * point of loading.  Then free with seam_engine_free, when no seam_gen is left.
 * [control] */
void seam_engine_stop(struct seam_engine *e);
void seam_engine_free(struct seam_engine *e);

/* ---- Asking; [any], never blocks on a step ------------------------------ */

enum seam_engine_state seam_engine_state(const struct seam_engine *e);
/* How long no step has finished although there is work; 0 when there is none. */
uint64_t seam_engine_still_ms(const struct seam_engine *e);
/* True when that is longer than server.stall_timeout_ms. */
bool seam_engine_stalled(const struct seam_engine *e);
/* What the step under way is in, "plugin kda, layer 3", cut to n bytes; "the
 * scheduler" between two calls. */
void seam_engine_where(const struct seam_engine *e, char *out, size_t n);
/* Submissions queued or running. */
uint32_t seam_engine_active(const struct seam_engine *e);
struct seam_stats *seam_engine_stats(struct seam_engine *e);
/* What the prefix cache keeps on disk; all zero without engine.prefix_dir. */
void seam_engine_disk_stats(struct seam_engine *e, struct seam_disk_stats *out);
/* Seconds after which one who met a full queue may find room: half the queue at
 * the speed of late, 1 to 60. */
uint32_t seam_engine_retry_after_s(const struct seam_engine *e);

/* Valid once READY, and all but the plugins constant from then on. */
const struct seam_tokenizer *seam_engine_tokenizer(const struct seam_engine *e);
/* The plugin that fills a role now, with a reference: it may be replaced at any
 * time, and lives until seam_instance_unref. */
struct seam_instance *seam_engine_plugin(const struct seam_engine *e,
                                         enum seam_role role);
uint32_t seam_engine_max_context(const struct seam_engine *e);
uint32_t seam_engine_max_queue(const struct seam_engine *e);
uint32_t seam_engine_vocab(const struct seam_engine *e);
/* The tokens as grammars see them. */
const struct seam_vocab *seam_engine_vocabulary(const struct seam_engine *e);
/* Grammars over them, as requests ask for them; once READY. */
struct seam_compiled *seam_engine_compiled(const struct seam_engine *e);
/* Ids that end a generation: union of generation_config.json, config.json and
 * the role tokens (chat spec, section 1). */
const int32_t *seam_engine_eos(const struct seam_engine *e, uint32_t *n);
/* Sampling that the checkpoint ships in generation_config.json, for requests
 * that say nothing of it. */
void seam_engine_defaults(const struct seam_engine *e, float *temperature,
                          float *top_p);

/* ---- Generating --------------------------------------------------------- */

#define SEAM_GEN_MAX_TOP 20

struct seam_bias {
    int32_t id;
    float add;
};

struct seam_gen_params {
    const int32_t *prompt; /* [n_prompt], copied */
    uint32_t n_prompt;
    uint32_t max_tokens; /* >= 1; cut to what the context leaves */
    uint32_t min_tokens; /* stops are banned until then */
    float temperature;   /* 0: the most likely token */
    float top_p, min_p;  /* 1 and 0: off */
    int32_t top_k;       /* 0: off */
    uint64_t seed;
    float presence, frequency;    /* on generated tokens; 0: off */
    float repetition;             /* on prompt and generated tokens; 1: off */
    const struct seam_bias *bias; /* [n_bias], distinct ids, copied */
    uint32_t n_bias;
    const int32_t *stop; /* [n_stop] further stop ids, copied */
    uint32_t n_stop;
    bool ignore_eos;
    bool want_logprobs;
    uint32_t n_top; /* <= SEAM_GEN_MAX_TOP; with want_logprobs */
    /* What the answer has to be a word of, or NULL; a reference is taken.  It
     * holds from the first token on, or after the token grammar_after when that
     * is not -1 (the end of the reasoning).  Until then no stop token is chosen:
     * only max_tokens can keep the answer from beginning. */
    struct seam_grammar *grammar;
    int32_t grammar_after;
    bool prompt_logprobs; /* report those of the prompt too */
    /* Prompts with another salt share nothing with this one in the prefix
     * cache; NULL: no salt.  Copied. */
    const char *cache_salt;
    int32_t priority;    /* lower numbers run first; 0: ordinary */
    uint64_t tenant;     /* whose it is, for fair turns; 0: nobody's */
    uint64_t timeout_ms; /* from now to its end; 0: engine.max_request_ms */
};

struct seam_gen_token {
    int32_t id;
    bool from_prompt; /* with prompt_logprobs: prompt[1], [2], ... */
    float logprob;    /* before temperature and filters */
    uint32_t n_top;
    int32_t top_id[SEAM_GEN_MAX_TOP];
    float top_logprob[SEAM_GEN_MAX_TOP];
};

enum seam_gen_end {
    SEAM_GEN_RUNNING = 0,
    SEAM_GEN_STOP = 1,   /* the last token is a stop id */
    SEAM_GEN_LENGTH = 2, /* max_tokens or the context is reached */
    SEAM_GEN_ABORT = 3,  /* cancelled, or the engine stopped */
    SEAM_GEN_ERROR = 4,  /* see info.err */
    SEAM_GEN_TIMEOUT = 5 /* the deadline has passed */
};

struct seam_gen_info {
    enum seam_gen_end end;
    struct seam_error err;
    uint32_t n_prompt, n_cached, n_generated; /* the stop id counts */
    uint64_t submitted_ns, started_ns, first_ns, ended_ns; /* 0: not yet */
};

/* EINVAL: prompt empty, as long as the context, or holding an id outside the
 * vocabulary; EFULL; ESTATE: not READY; ENOMEM.  [any] */
int seam_gen_submit(struct seam_engine *e, const struct seam_gen_params *p,
                    struct seam_gen **g, struct seam_error *err);
/* Take up to cap tokens; waits up to timeout_ms (-1: for ever) for the first.
 * Returns how many.  *ended: the generation is over and nothing is left to take
 * after these.  [one thread per gen] */
uint32_t seam_gen_take(struct seam_gen *g, int64_t timeout_ms,
                       struct seam_gen_token *out, uint32_t cap, bool *ended);
void seam_gen_info(struct seam_gen *g, struct seam_gen_info *out);
/* Ask it to end at the next step.  [any] */
void seam_gen_cancel(struct seam_gen *g);
/* Cancels if it still runs; returns at once.  NULL is fine. */
void seam_gen_free(struct seam_gen *g);

#endif
