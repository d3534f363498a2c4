/* The reference backend, compiled in, and with -DBREAK_NAME=1 one that breaks
 * exactly one rule: what is broken stands in front of its operations. */
#define seam_plugin_entry sound_entry
#include "plugins/backend/cpu_ref/cpu_ref.c"
#undef seam_plugin_entry

#include <stdlib.h>

#include "breaks.h"

extern SEAM_EXPORT const struct seam_plugin seam_plugin_entry;

#if BROKEN(T1)
static float first_input; /* of the call that is under way                   */
#endif
#if BROKEN(T3)
static _Thread_local char here; /* its address is another in each thread     */
static const void *home;
#endif

static int bent_gemm(void *be, const struct seam_exec *e,
                     const struct seam_gemm *a)
{
    int rc = ops_gemm(be, e, a);
    float *y = a->y.data;

    if (BROKEN(M1)) {
        void *volatile p = malloc(8);

        free(p);
    }
    if (rc || !a->y.shape[0])
        return rc;
#if BROKEN(T1)
    first_input = *(const float *)a->x.data;
    host->log(host->ctx, SEAM_LOG_DEBUG, "a product");
    if (first_input != *(const float *)a->x.data)
        *y += 1;
#endif
#if BROKEN(T3)
    if (home && home != &here)
        *y += 1;
    home = &here;
#endif
    if (BROKEN(N1))
        *y *= 1.01f;
    if (BROKEN(M3))
        y[a->y.shape[1]] = 0;
    return rc;
}

static int bent_sample(void *be, const struct seam_exec *e,
                       const struct seam_sample *a)
{
    struct seam_sample b = *a;

    if (BROKEN(B1))
        b.filter.mask = NULL;
    return ops_sample(be, e, &b);
}

/* Drafts stand that should not: the first always does. */
static int bent_verify(void *be, const struct seam_exec *e,
                       const struct seam_verify *a)
{
    int rc = ops_verify(be, e, a);

    for (uint32_t i = 0; BROKEN(B2) && !rc && i < a->n_seqs; i++)
        if (a->n_draft[i] && a->kept[i] == 1)
            a->kept[i] = 2;
    return rc;
}

static int bent_copy(void *self, void *s, void *dst, const void *src,
                     uint64_t bytes, struct seam_error *err)
{
    return be_copy(self, s, dst, src, BROKEN(B3) ? bytes / 2 : bytes, err);
}

static const struct seam_ops bent_ops = {
    .size = sizeof bent_ops,
    .gemm = bent_gemm,
    .embed = ops_embed,
    .residual = ops_residual,
    .norm = ops_norm,
    .glu = ops_glu,
    .gather = ops_gather,
    .sample = bent_sample,
    .verify = bent_verify,
};

static const struct seam_backend bent = {
    .size = sizeof bent,
    .ops = &bent_ops,
    .device = be_device,
    .alloc = be_alloc,
    .free = be_free,
    .stream_new = be_stream_new,
    .stream_free = be_stream_free,
    .event_new = be_event_new,
    .event_free = be_event_free,
    .stream_wait = be_stream_wait,
    .copy = bent_copy,
    .fill = be_fill,
    .event_record = be_event_record,
    .event_join = be_event_join,
    .event_done = be_event_done,
};

const struct seam_plugin seam_plugin_entry = {
    .ident = { SEAM_IDENT(SEAM_KIND_BACKEND, struct seam_backend),
               .name = "backend", .version = "1.0.0", .build = __VERSION__ },
    .table = &bent,
    .init = be_init,
    .create = be_create,
    .destroy = be_destroy,
};
