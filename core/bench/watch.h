/* Time at the boundary of every call that a step makes: tables around those of
 * the plugins, which the product never sees. */
#ifndef SEAM_BENCH_WATCH_H
#define SEAM_BENCH_WATCH_H

#include <stdatomic.h>

#include "core/engine/host.h"
#include "core/model/glm5_next.h"

/* What a step is made of.  Up to WATCH_DENSE weights are read, the rest is
 * glue. */
enum seam_watch_part {
    SEAM_WATCH_LINEAR = 0, /* linear attention                                */
    SEAM_WATCH_SPARSE,
    SEAM_WATCH_MOE,
    SEAM_WATCH_HEAD,
    SEAM_WATCH_DENSE, /* gemm of the dense MLP                                */
    SEAM_WATCH_GLU,
    SEAM_WATCH_RESIDUAL,
    SEAM_WATCH_EMBED,
    SEAM_WATCH_GATHER, /* and other operations                                */
    SEAM_WATCH_BEGIN,
    SEAM_WATCH_SAMPLE, /* timed by the caller                                 */
    SEAM_WATCH_REST,   /* between the calls: filled in by the caller          */
    SEAM_N_WATCHED
};
extern const char *const seam_watch_name[SEAM_N_WATCHED];
#define SEAM_WATCH_GLUE SEAM_WATCH_GLU /* the first part that is glue         */

struct seam_watch_sum {
    uint64_t ns, calls;
};

/* A host whose parallel_for is counted.  The hosted comes first, so that all
 * other functions find it where they expect it. */
struct seam_counting_host {
    struct seam_hosted hosted;
    _Atomic uint64_t launches;
};
/* Make the table that a plugin was given call h, whose hosted is filled. */
void seam_counting_host_wrap(struct seam_counting_host *h,
                             struct seam_host *table);

struct seam_watch {
    struct seam_glm5_next_opts real;
    struct seam_backend backend;
    struct seam_ops ops;
    struct seam_watch_block {
        struct seam_watch *watch;
        struct seam_block table;
        const struct seam_block_ref *real;
        enum seam_watch_part part;
    } block[3];
    uint32_t vocab;
    struct seam_watch_sum sum[SEAM_N_WATCHED];
};

/* For seam_runtime_opts.wrap, with a struct seam_watch of zeros as ctx that
 * outlives the runtime. */
void seam_watch_wrap(void *ctx, struct seam_glm5_next_opts *o);

#endif
