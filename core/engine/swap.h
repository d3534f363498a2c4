/* Replacing plugins while requests run.
 *
 * A thread of its own loads the new plugin, makes its instance and memory, and
 * tries it out; the steps go on meanwhile.  Between two steps the engine's
 * thread then only exchanges pointers.  On any failure the old plugin stays.
 * docs/reliability.md, "Hot swap", has the whole. */
#ifndef SEAM_ENGINE_SWAP_H
#define SEAM_ENGINE_SWAP_H

#include "core/engine/engine.h"

/* What happens to sequences whose caches the new plugin cannot read. */
enum seam_swap_layout {
    SEAM_SWAP_REPLAY = 1, /* they are computed again from their tokens */
    SEAM_SWAP_DRAIN = 2   /* they end first, nothing new begins meanwhile */
};

struct seam_swap_opts {
    /* From malloc, with refs 0; taken, also on failure. */
    struct seam_source *source;
    bool role[SEAM_N_ROLES]; /* which of its plugins are wanted: all or none */
    enum seam_swap_layout on_layout_change;
    int64_t timeout_ms; /* until the new ones have taken over */
};

/* Why there was no swap. */
enum seam_swap_why {
    SEAM_SWAP_DONE = 0,
    SEAM_SWAP_INVALID = 1,  /* what was asked for cannot be done at run time */
    SEAM_SWAP_REFUSED = 2,  /* a plugin did not load or did not pass */
    SEAM_SWAP_BUSY = 3,     /* another swap is under way */
    SEAM_SWAP_NOT_NOW = 4,  /* loading, leaving, or failed */
    SEAM_SWAP_LATE = 5,     /* timeout_ms is over */
    SEAM_SWAP_NO_MEMORY = 6 /* the new ones do not fit beside the old */
};

struct seam_swap_report {
    enum seam_swap_why why;
    bool layout_changed;
    uint32_t n_replayed; /* sequences that are computed again */
    uint64_t prepare_ns; /* from the request to the boundary */
    uint64_t pause_ns;   /* between two steps */
};

struct seam_swap;

/* Begin; fails when it cannot even begin.  [any] */
int seam_swap_start(struct seam_engine *e, const struct seam_swap_opts *o,
                    struct seam_swap **s, struct seam_swap_report *report,
                    struct seam_error *err);
/* Wait up to timeout_ms (-1: until it is over or late).  1: not over yet; 0:
 * the new ones serve; negative: nothing has changed, err says why. */
int seam_swap_wait(struct seam_swap *s, int64_t timeout_ms,
                   struct seam_swap_report *report, struct seam_error *err);
/* One that is not over is given up: it ends as soon as the plugin lets it.  NULL
 * is fine. */
void seam_swap_free(struct seam_swap *s);

/* All three.  [any, may block for timeout_ms] */
int seam_engine_swap(struct seam_engine *e, const struct seam_swap_opts *o,
                     struct seam_swap_report *report, struct seam_error *err);

/* For how long the swap under way has been in one call of its new plugin, and
 * what that is; 0: there is none, or it waits for the steps.  [any] */
uint64_t seam_engine_swap_still_ms(struct seam_engine *e, char *where,
                                   size_t n);

/* Swaps of a role so far. */
uint64_t seam_engine_swaps(const struct seam_engine *e, enum seam_role role);

/* ---- For the engine (core/engine) ---------------------------------------- */

/* Start the thread.  Once loaded. */
int seam_swapper_open(struct seam_engine *e, struct seam_error *err);
/* Give up what is under way and begin nothing more.  [any] */
void seam_swapper_stop(struct seam_engine *e);
/* End the thread, once the steps have ended. */
void seam_swapper_join(struct seam_engine *e);
/* After that. */
void seam_swapper_free(struct seam_engine *e);
/* What is to be done between two steps.  [submit] */
void seam_swapper_boundary(struct seam_engine *e);

#endif
