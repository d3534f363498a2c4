/* Plugins of one kind, measured by themselves or one against another: first
 * whether the results are right, then how fast they come.
 *
 * The plugins run in whole runtimes, so that weights, caches and threads are
 * those of the server; what is timed is one call at the plugin's boundary. */
#ifndef SEAM_BENCH_KIND_H
#define SEAM_BENCH_KIND_H

#include "core/bench/model.h"
#include "core/bench/report.h"
#include "core/bench/watch.h"
#include "core/engine/runtime.h"

struct seam_bench_list {
    uint32_t v[SEAM_BENCH_MAX_POINTS];
    uint32_t n;
};

struct seam_bench_kind_opts {
    enum seam_role role;
    const char *shape;
    /* [0] the plugin, [1] the one against it or NULL, [2] the reference.  They
     * differ in the plugin of the role alone. */
    const struct seam_config *config[3];
    const struct seam_log *log;
    const char *only; /* cases whose name holds that, or NULL                 */
    struct seam_bench_list tokens, context, seqs;
    uint32_t runs;
    uint32_t run_us;        /* a run repeats its call for about that long     */
    uint32_t distinct;      /* as in seam_bench_model_opts                    */
    uint32_t check_tokens;  /* of a call that is compared with the reference  */
    uint32_t check_context; /* tokens before them                             */
    double limit;           /* of the normalised error                        */
    uint64_t read_bytes;
    const char *json, *html, *svg;
    /* What [1] is called in the report; NULL: its name. */
    const char *label;
};

/* EDATA: a plugin is wrong, and nothing was timed.  [control] */
int seam_bench_kind_run(const struct seam_bench_kind_opts *o,
                        struct seam_error *err);

/* ---- Private to core/bench ----------------------------------------------- */

#define KIND_MAX_CASES 128

/* One plugin in its runtime. */
struct kind_side {
    const char *name;
    struct seam_runtime *rt;
    struct seam_counting_host host;
    void *work; /* of the family                                              */
};

/* One call that is measured. */
struct kind_case {
    char name[40];
    uint32_t op; /* the family's own                                          */
    uint32_t tokens, context, seqs;
    double bytes, ops; /* at least; 0: not known                              */
    double error[2];   /* of each side                                        */
    struct seam_samples us[2], ratio;
    double launches[2];
    double read, dot[SEAM_N_DOTS]; /* ceilings measured meanwhile             */
};

struct kind {
    const struct seam_bench_kind_opts *o;
    const struct kind_family *family;
    struct kind_side side[3];
    struct kind_case *c; /* [KIND_MAX_CASES]                                  */
    uint32_t n_cases;
    uint32_t max_tokens, max_context, max_seqs;
    struct seam_machine *machine;
    struct seam_ceilings *ceilings; /* of the whole run                       */
};

/* What is measured of a kind: blocks, operations of backends, parsers. */
struct kind_family {
    /* Scratch of one side. */
    int (*open)(struct kind *k, struct kind_side *s, struct seam_error *err);
    void (*close)(struct kind_side *s);
    /* Fill k->c with kind_add. */
    int (*cases)(struct kind *k, struct seam_error *err);
    /* Normalised error of s against ref, on a call that is perhaps smaller. */
    int (*check)(struct kind *k, const struct kind_case *c, struct kind_side *s,
                 struct kind_side *ref, double *error, struct seam_error *err);
    /* Before the calls of a case. */
    int (*prepare)(struct kind *k, struct kind_side *s,
                   const struct kind_case *c, struct seam_error *err);
    /* Before each call, not timed; may be NULL. */
    void (*reset)(struct kind *k, struct kind_side *s,
                  const struct kind_case *c);
    /* Call number i. */
    int (*call)(struct kind *k, struct kind_side *s, const struct kind_case *c,
                uint32_t i, struct seam_error *err);
};
extern const struct kind_family kind_blocks, kind_ops, kind_parsers;

/* The next case, or NULL when it is not wanted or there is no room. */
struct kind_case *kind_add(struct kind *k, const char *name, uint32_t op,
                           uint32_t tokens, uint32_t context, uint32_t seqs);

/* sqrt(sum (a - b)^2 / sum b^2), or a quarter of the largest difference over
 * the root mean square of b when that is more, so that one wrong value among
 * many is seen; infinite when a is not finite. */
double kind_error(const float *a, const float *b, uint64_t n);

/* n random numbers of unit variance. */
void kind_random(float *x, uint64_t n, uint64_t seed);

#endif
