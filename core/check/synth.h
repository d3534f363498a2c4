/* A host made of memory: a model of random weights, a configuration given as
 * text, and accounts of what a plugin takes.  Used by seam check and by the
 * tests of plugins. */
#ifndef SEAM_CHECK_SYNTH_H
#define SEAM_CHECK_SYNTH_H

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include <seam/plugin.h>

/* ---- Random numbers ------------------------------------------------------ */

struct th_rng {
    uint64_t s;
};

uint64_t th_u64(struct th_rng *r);
double th_uniform(struct th_rng *r);             /* [0, 1)                   */
double th_normal(struct th_rng *r);              /* mean 0, variance 1       */
uint32_t th_below(struct th_rng *r, uint32_t n); /* [0, n)                   */

/* ---- The host ------------------------------------------------------------ */

struct th_weight {
    char *name;
    struct seam_tensor t;
    double *value; /* what the stored bytes stand for, row-major       */
    void *data, *scale, *zero;
};

struct th_file {
    char *name;
    char *text;
};

/* How parallel_for deals its tasks.  The first is as different workers in
 * order, what all checks but those of threads see. */
enum th_deal {
    TH_IN_ORDER = 0,
    TH_BACKWARDS, /* the last task first                                      */
    TH_SHUFFLED,  /* in random order, each as a random worker                 */
    TH_FIRST,     /* all as worker 0                                          */
    TH_LAST,      /* all as the last worker                                   */
    TH_TURNS,     /* on as many threads as there are workers, in turns        */
    TH_FREE,      /* the same, at the same time                               */
};

/* One host serves one model; seam_model is the th itself. */
struct th {
    struct seam_host host;
    json_t *model_cfg;
    json_t *plugin_cfg;
    struct th_weight *weight;
    uint32_t n_weights;
    uint64_t seed;
    uint32_t n_workers;
    int fail_alloc; /* n > 0: the n-th alloc from now fails; 0: none    */
    _Atomic uint32_t hot_allocs; /* host allocations within hot calls        */
    enum th_deal deal;
    struct th_rng dealer;
    pthread_mutex_t lock; /* of what the plugin's threads share           */
    const char *misused;  /* the rule that its use of the host breaks ... */
    char misuse[128];     /* ... and how                                  */
    char asked[32][64]; /* paths read from the plugin's own block            */
    uint32_t n_asked;
    void *arena; /* of th_seal                                       */
    size_t arena_bytes;
    _Atomic int64_t live; /* allocations not yet freed                */
    char last_log[256];
    /* what extension() and block() answer; NULL: nothing                     */
    const void *(*extension)(void *arg, const char *id);
    int (*block)(void *arg, uint32_t kind, uint32_t layer,
                 struct seam_lent *out);
    int32_t (*token_id)(void *arg, const char *piece);
    /* asked first for every weight; ENOENT: look among those added here      */
    int (*weight_of)(void *arg, const char *name, struct seam_tensor *out);
    void *arg;
};

/* model_json is the text configuration, plugin_json the plugin's own block (or
 * NULL).  Aborts the test on bad JSON. */
struct th *th_new(const char *model_json, const char *plugin_json);
void th_free(struct th *h);
/* The plugin's own block from now on. */
void th_config(struct th *h, const char *plugin_json);
const struct seam_model *th_model(const struct th *h);
const struct seam_cfg *th_plugin_cfg(const struct th *h);

/* Another text configuration of the model from now on. */
void th_model_config(struct th *h, const char *model_json);

/* Move all weights into memory that cannot be written, each aligned to its
 * element and no more, which is all that a checkpoint promises.  To be called
 * once, when all weights are there. */
void th_seal(struct th *h);

enum th_store {
    TH_F32 = 1,
    TH_F16 = 2,
    TH_BF16 = 3,
    TH_FP8 = 4,  /* F8E4M3, f32 scale per 128 x 128                           */
    TH_GPTQ = 5, /* int4, signed f16 scale per 32 inputs; n_in % 32 == 0,
                    n_out % 8 == 0, random zero points                        */
    TH_I8 = 6,   /* f32 scale per 32 inputs of a row; n_in % 32 == 0          */
};

/* A random weight under `name` (as plugins ask for it): mean + amp * normal,
 * then rounded to its storage.  Shape [n_out, n_in], or [n_out] with n_in 0;
 * rank3 makes it [n_out, 1, n_in].  Depends only on h->seed and name.  Returns
 * the values of the stored bytes, which live as long as h.  Replaces a weight
 * of that name. */
const double *th_random(struct th *h, const char *name, enum th_store store,
                        uint64_t n_out, uint64_t n_in, double mean, double amp);
const double *th_random3(struct th *h, const char *name, enum th_store store,
                         uint64_t n_out, uint64_t n_in, double mean,
                         double amp);
/* The same with given values, F32, F16 or BF16 only. */
const double *th_values(struct th *h, const char *name, enum th_store store,
                        uint64_t n_out, uint64_t n_in, const double *v);
struct th_weight *th_find(const struct th *h, const char *name);
/* Values of a weight; fails the test when there is none. */
const double *th_get(const struct th *h, const char *name);
void th_remove(struct th *h, const char *name);

/* Around each call that must leave all as it found it: no allocation (M1), the
 * same floating-point mode (T5).  call names it in findings.  Within, the thread
 * has the tag submit. */
void th_enter(struct th *h);
void th_leave(struct th *h, const char *call);
/* The same for calls of the tags request and any, which may allocate. */
void th_enter_request(struct th *h);
void th_leave_request(struct th *h, const char *call);
/* Fails when the plugin has called a function of the host from where it must
 * not (T2, T6). */
void th_misuse_check(struct th *h, const char *call);

#endif
