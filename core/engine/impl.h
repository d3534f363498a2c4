/* The engine's inside, as its files share it (private to core/engine).
 *
 *   engine.c    asking, the thread and the ends of generations
 *   load.c      what is done once, before the first request
 *   queue.c     submissions, who waits, what each tenant was served
 *   schedule.c  admission, preemption, what a step is made of
 *   cache.c     pages, and the snapshots that prompts go on from
 *   swap.c      replacing plugins while requests run
 *   step.c      computing a step and handing out its tokens */
#ifndef SEAM_ENGINE_IMPL_H
#define SEAM_ENGINE_IMPL_H

#include "core/base/clock.h"
#include "core/engine/disk.h"
#include "core/engine/gen.h"
#include "core/engine/prefix.h"
#include "core/engine/runtime.h"
#include "core/engine/timeline.h"

#define SEAM_ENGINE_MAX_EOS 32

#define SEAM_TENANT_BUCKETS 64

/* Whose requests share in turn with those of others. */
struct seam_tenant {
    struct seam_tenant *next; /* of its bucket */
    uint64_t key;
    _Atomic uint64_t served; /* tokens, weighted; see queue.c */
    uint32_t n_gens;         /* waiting and running */
};

struct seam_engine {
    const struct seam_config *config;
    const struct seam_log *log;
    seam_engine_progress *progress;
    void *progress_ctx;
    struct seam_stats stats;
    pthread_t thread;

    /* Guards state, load_err, the waiting queue, the tenants and stop. */
    pthread_mutex_t lock;
    pthread_cond_t change; /* work came, state changed, or stop was asked */
    struct seam_error load_err;
    struct seam_gen *first, **last; /* waiting, in order of arrival here */
    uint64_t arrivals;
    struct seam_tenant *tenant[SEAM_TENANT_BUCKETS];
    uint32_t n_idle_tenants;
    uint64_t served_last; /* what the tenant that left last had */
    bool stop;

    _Atomic int state;       /* enum seam_engine_state; written under lock */
    _Atomic uint32_t active; /* waiting and running */
    /* When something last moved: a step ended, or work came to an idle engine.
     * relaxed: read by health checks that compare it with the clock. */
    _Atomic uint64_t moved_ns;
    _Atomic bool
        sampling; /* relaxed: for the watchdog, see seam_engine_where */
    _Atomic uint64_t mean_ns; /* a run lately took, for Retry-After; relaxed */

    /* The swapper wants something between two steps; new requests wait while
     * the running ones end.  relaxed: looked at again at each step. */
    _Atomic bool swap_due, hold;

    /* From here on constant once READY, and written before by the thread. */
    struct seam_timeline *timeline; /* NULL: none is wanted */
    struct seam_runtime *rt;
    struct seam_swapper *swapper;
    int32_t eos[SEAM_ENGINE_MAX_EOS];
    uint32_t n_eos;
    float temperature, top_p;
    struct seam_vocab *vocabulary;
    struct seam_compiled *compiled; /* has a lock of its own */

    /* The thread's own. */
    struct seam_gen **running; /* [n_running] by urgency, then arrival */
    uint32_t n_running;
    int32_t *free_page, *free_row;
    uint32_t *page_refs; /* [n_pages] sequences and snapshots that hold it */
    struct seam_prefix *prefix; /* NULL: switched off */
    /* Its second tier, or NULL.  release and acquire: who finds it finds it
     * open.  The thread takes it away when plugins are exchanged, and the
     * swapper puts one for the new ones there. */
    struct seam_disk *_Atomic disk;
    /* Held while the tier's figures are read, so that it is not closed then; no
     * step takes it. */
    pthread_mutex_t disk_lock;
    int32_t user_token; /* a turn begins with it; -1: there is none */
    uint32_t n_free_pages, n_free_rows;
    struct seam_step_seq *seq; /* [max_seqs] the step being made */
    struct seam_gen **seq_gen; /* [max_seqs] whose it is */
    int32_t *logit_row;        /* [max_logit_rows] */
    struct seam_gen **row_gen; /* [max_logit_rows] */
    uint32_t *row_at;          /* [max_logit_rows] prompt token scored */
    struct seam_sample_row *sample;
    struct seam_sample_out *sampled;
    float *scratch; /* [vocab] */
    /* The plugin's call that is on, for the timeline. */
    enum seam_glm5_call call;
    uint32_t call_layer;
    uint64_t call_ns;
};

static inline uint32_t seam_engine_pages_for(const struct seam_engine *e,
                                             uint32_t tokens)
{
    return (tokens + e->rt->page_tokens - 1) / e->rt->page_tokens;
}

static inline void seam_engine_moved(struct seam_engine *e, uint64_t now)
{
    atomic_store_explicit(&e->moved_ns, now, memory_order_relaxed);
}

/* The role whose plugin is called. */
static inline enum seam_role seam_engine_role(enum seam_glm5_call call)
{
    return call == SEAM_GLM5_LINEAR   ? SEAM_ROLE_LINEAR
           : call == SEAM_GLM5_SPARSE ? SEAM_ROLE_SPARSE
           : call == SEAM_GLM5_MOE    ? SEAM_ROLE_MOE
                                      : SEAM_ROLE_BACKEND;
}

/* All that follows is for the engine's thread. */

void seam_engine_set_state(struct seam_engine *e, enum seam_engine_state state);
/* The gen leaves the engine; the caller has taken it off its list. */
void seam_engine_end(struct seam_engine *e, struct seam_gen *g,
                     enum seam_gen_end end, const struct seam_error *err);
/* The same for a running one: keeps a snapshot and gives back what it holds. */
void seam_engine_end_running(struct seam_engine *e, struct seam_gen *g,
                             enum seam_gen_end end,
                             const struct seam_error *err);

/* Everything from opening the model to a step that works.  Errors name file,
 * plugin, key or tensor. */
int seam_engine_load(struct seam_engine *e, struct seam_error *err);

/* ---- queue.c; under the lock, where not said otherwise ---- */

/* Who is served first of all that wait: the lowest priority number (or what
 * engine.max_overtaken made of it), then what was begun, then the tenant that
 * was served least, then the oldest.  peek is NULL when nobody waits; pop is for
 * when somebody does. */
struct seam_gen *seam_queue_peek(struct seam_engine *e);
struct seam_gen *seam_queue_pop(struct seam_engine *e);
bool seam_gen_before(const struct seam_gen *a, const struct seam_gen *b);
/* A preempted one waits again. */
void seam_queue_return(struct seam_engine *e, struct seam_gen *g);
/* Take one out that was cancelled or is past its deadline, or NULL. */
struct seam_gen *seam_queue_pop_over(struct seam_engine *e, uint64_t now);
/* g is neither waiting nor running any more.  Takes the lock. */
void seam_queue_leave(struct seam_engine *e, struct seam_gen *g);
void seam_queue_free(struct seam_engine *e);
/* The same for those that run: the tenant served least, then the oldest. */
bool seam_gen_serves_before(const struct seam_gen *a, const struct seam_gen *b);
/* Tokens were served to g's tenant.  Without the lock. */
void seam_tenant_charge(struct seam_gen *g, uint32_t prompt, uint32_t out);
/* A run took so long from start to end.  Without the lock. */
void seam_engine_note_run(struct seam_engine *e, uint64_t ns);

/* ---- schedule.c ---- */

/* Move waiting generations to running while rows and pages last. */
void seam_engine_admit(struct seam_engine *e);
/* Choose the step: every sequence that decodes, then prompts while tokens are
 * left.  Returns how many sequences. */
uint32_t seam_engine_choose(struct seam_engine *e);

/* ---- cache.c ---- */

/* Have n pages free, by dropping snapshots if need be; then take one.  ctx of
 * unref is the engine. */
bool seam_page_make_room(struct seam_engine *e, uint32_t n);
int32_t seam_page_take(struct seam_engine *e);
void seam_page_unref(void *ctx, int32_t page);
/* Give pages and row back; g is no longer running. */
void seam_engine_evict(struct seam_engine *e, struct seam_gen *g);
/* Keep a snapshot of what g has in the cache, where that is worth it. */
void seam_engine_snapshot(struct seam_engine *e, struct seam_gen *g);
/* Go on from the longest snapshot of what g begins with.  g has its row;
 * without a snapshot it starts from nothing. */
int seam_engine_resume(struct seam_engine *e, struct seam_gen *g,
                       struct seam_error *err);
/* The second tier, if one is configured.  [control] */
int seam_engine_open_disk(struct seam_engine *e, struct seam_error *err);
/* After an exchange of plugins the tier belongs to the old ones: take it away
 * (NULL: there is none), then close it and open one for the new ones, for which
 * nobody waits.  [control] the second */
struct seam_disk *seam_engine_detach_disk(struct seam_engine *e);
void seam_engine_renew_disk(struct seam_engine *e, struct seam_disk *was);
/* Take over what was loaded from it meanwhile.  Before a step is chosen. */
void seam_engine_settle_loads(struct seam_engine *e);
/* Nobody can compute: if somebody waits for a load, wait until it is there,
 * until work comes, or for a moment. */
void seam_engine_await_load(struct seam_engine *e);
/* Note before which turns of its prompt g keeps a snapshot.  [any] */
void seam_engine_choose_cuts(const struct seam_engine *e, struct seam_gen *g);
/* Tokens up to the next place in the prompt where a snapshot is worth keeping:
 * its end, where one of those turns begins, and every so often. */
uint32_t seam_engine_until_cut(const struct seam_engine *e,
                               const struct seam_gen *g);

/* Put a running one back to the head of the queue; its tokens are kept and
 * computed again when it returns. */
void seam_engine_preempt(struct seam_engine *e, struct seam_gen *g);

/* Admit, choose, compute, deliver. */
void seam_engine_step(struct seam_engine *e);

#endif
