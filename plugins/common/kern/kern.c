/* Choosing a kernel table, describing weights, and cutting products into tasks
 * of about equal size. */
#include "kern.h"

extern const struct kern kern_generic;
#if defined(__x86_64__)
extern const struct kern kern_avx2, kern_avx512;
#endif

static bool runs_here(const struct kern *k)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (k == &kern_avx512)
        return __builtin_cpu_supports("avx512f") &&
               __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("avx512dq");
    if (k == &kern_avx2) /* every processor with AVX2 has F16C */
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
    return k == &kern_generic;
}

const struct kern *kern_pick(const char *want)
{
    static const struct kern *const all[] = {
#if defined(__x86_64__)
        &kern_avx512,
        &kern_avx2,
#endif
        &kern_generic,
    };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if ((!strcmp(want, "auto") || !strcmp(want, all[i]->name)) &&
            runs_here(all[i]))
            return all[i];
    return NULL;
}

int kern_configure(const struct seam_host *h, const struct seam_cfg *cfg,
                   const char *plugin, const struct kern **out,
                   struct seam_error *err)
{
    struct seam_str s = { "auto", 4 };
    char name[16] = "";
    int rc = cfg ? h->cfg(h->ctx, cfg, "isa", SEAM_CFG_STR, &s) : SEAM_ENOENT;

    if (rc && rc != SEAM_ENOENT)
        return plug_fail(err, SEAM_EDATA, "%s config: isa is no string",
                         plugin);
    if (s.n < sizeof name)
        memcpy(name, s.p, s.n);
    *out = kern_pick(name);
    if (!*out)
        return plug_fail(err, SEAM_EDATA,
                         "%s config: isa is \"%.*s\", expected \"auto\" or one "
                         "of generic, avx2, avx512 that this machine has",
                         plugin, (int)(s.n < 32 ? s.n : 32), s.p);
    return SEAM_OK;
}

/* ---- Weights ------------------------------------------------------------- */

/* True when every stored zero point is 7, that is 8. */
static bool zeros_are_eight(const struct seam_tensor *t, uint32_t n, uint32_t k)
{
    const unsigned char *z = t->zero;
    uint64_t words = (uint64_t)(k / t->group_cols) * (n / 8);

    for (uint64_t i = 0; i < words; i++) {
        uint32_t w;

        memcpy(&w, z + 4 * i, sizeof w);
        if (w != 0x77777777)
            return false;
    }
    return true;
}

int kern_mat_init(struct kern_mat *m, const struct seam_tensor *t, char *why,
                  size_t cap)
{
    bool scaled = t->quant == SEAM_Q_GROUP || t->quant == SEAM_Q_GPTQ;
    uint64_t n = weights_rows(t), k = weights_cols(t);

    if (n > UINT32_MAX / 2 || k > UINT32_MAX / 2) {
        snprintf(why, cap, "found %llu by %llu, expected less than 2^31",
                 (unsigned long long)n, (unsigned long long)k);
        return SEAM_ENOTSUP;
    }
    if (t->quant == SEAM_Q_GPTQ &&
        (t->group_cols % 8 || t->group_cols > 1024)) {
        snprintf(why, cap,
                 "found int4 groups of %u inputs, expected a "
                 "multiple of 8, at most 1024",
                 t->group_cols);
        return SEAM_ENOTSUP;
    }
    *m = (struct kern_mat){
        .w = t->data,
        .stride = t->rank > 1 ? (uint64_t)t->stride[0] : 0,
        .n = (uint32_t)n,
        .k = (uint32_t)k,
        .n_stored = (uint32_t)n,
        .dtype = t->dtype,
        .scale_dtype = scaled ? t->scale_dtype : 0,
        .group_rows = t->group_rows,
        .group_cols = t->group_cols,
        .scale = t->scale,
        .zero = t->quant == SEAM_Q_GPTQ &&
                        !zeros_are_eight(t, (uint32_t)n, (uint32_t)k)
                    ? t->zero
                    : NULL,
    };
    return SEAM_OK;
}

struct kern_mat kern_mat_rows(const struct kern_mat *m, uint32_t row0,
                              uint32_t n)
{
    struct kern_mat r = *m;

    r.w += row0 * m->stride;
    r.row0 += row0;
    r.n = n;
    return r;
}

bool kern_mat_plain(const struct kern_mat *m)
{
    return !m->scale_dtype && (m->dtype == SEAM_F32 || m->dtype == SEAM_F16 ||
                               m->dtype == SEAM_BF16);
}

int kern_weight(const struct seam_host *h, const struct seam_model *m,
                uint32_t layer, const char *rest, uint32_t n, uint32_t k,
                struct kern_mat *out, struct seam_error *err)
{
    struct seam_tensor t = { 0 };
    char why[160];
    int rc = plug_weight(h, m, layer, rest, n, k, &t, err);

    if (rc)
        return rc;
    rc = kern_mat_init(out, &t, why, sizeof why);
    if (rc)
        return plug_fail(err, rc, "weight @layer.%u.%s: %s", layer, rest, why);
    return SEAM_OK;
}

int kern_vector(const struct seam_host *h, const struct seam_model *m,
                uint32_t layer, const char *rest, uint32_t n, float **out,
                struct seam_error *err)
{
    struct seam_tensor t = { 0 };
    float *v;
    int rc = plug_weight(h, m, layer, rest, n, 0, &t, err);

    if (rc)
        return rc;
    v = h->alloc(h->ctx, SEAM_MEM_HOST, -1, n * sizeof *v, 64);
    if (!v)
        return plug_fail(err, SEAM_ENOMEM, "weight @layer.%u.%s: no memory",
                         layer, rest);
    weights_row_f32(&t, 0, v);
    *out = v;
    return SEAM_OK;
}

/* ---- Tasks --------------------------------------------------------------- */

struct kern_work {
    const struct kern *k;
    const struct kern_job *job;
    uint32_t n_jobs;
    char *scratch;
};

static uint32_t job_outs(const struct kern_job *j)
{
    return j->across ? j->w->k : j->w->n;
}

/* Outputs of one task: a multiple of 16, and enough that waking a worker is
 * cheap beside the work. */
static uint32_t job_step(const struct kern_job *j)
{
    uint32_t in = j->across ? j->w->n : j->w->k, step = 1 << 16;

    if (j->w->dtype == SEAM_I4)
        step = 1 << 18;
    step = (step / (in ? in : 1) + 15) & ~15u;
    if (j->m > 6 && step < 64)
        step = 64;
    if (j->m > KERN_ROWS && step < 128)
        step = 128;
    if (j->w->dtype == SEAM_I4 && step < 128)
        step = 128;
    return step < 16 ? 16 : step > KERN_OUTS ? KERN_OUTS : step;
}

static uint32_t job_tasks(const struct kern_job *j)
{
    uint32_t step = job_step(j);

    return j->m ? (job_outs(j) + step - 1) / step : 0;
}

static void job_across(const struct kern *k, const struct kern_job *j,
                       uint32_t c0, uint32_t n, const float *const *x,
                       uint32_t m, float *const *y)
{
    uint64_t elem = weights_elem_bytes(j->w->dtype);
    const void *w[256];

    for (uint32_t i = 0; i < j->w->n; i += 256) {
        uint32_t len = j->w->n - i < 256 ? j->w->n - i : 256;
        const float *xi[KERN_ROWS];

        for (uint32_t l = 0; l < len; l++)
            w[l] = j->w->w + (i + l) * j->w->stride + c0 * elem;
        for (uint32_t r = 0; r < m; r++)
            xi[r] = x[r] + i;
        k->mix_rows(j->w->dtype, w, len, n, xi, m, y, i > 0 || j->add);
    }
}

static void work_task(void *arg, uint32_t i, uint32_t worker)
{
    struct kern_work *w = arg;
    const struct kern_job *j = w->job;
    uint32_t o0, o1, step;

    for (;; j++) {
        uint32_t n = job_tasks(j);

        if (i < n)
            break;
        i -= n;
    }
    step = job_step(j);
    o0 = i * step;
    o1 = job_outs(j) - o0 < step ? job_outs(j) : o0 + step;
    for (uint32_t r = 0; r < j->m; r += KERN_ROWS) {
        const float *x[KERN_ROWS];
        float *y[KERN_ROWS];
        uint32_t m = j->m - r < KERN_ROWS ? j->m - r : KERN_ROWS;

        for (uint32_t l = 0; l < m; l++) {
            x[l] = j->x + (int64_t)(r + l) * j->ldx;
            y[l] = j->y + (int64_t)(r + l) * j->ldy + o0;
        }
        if (j->across)
            job_across(w->k, j, o0, o1 - o0, x, m, y);
        else
            w->k->dot(j->w, o0, o1, x, m, y, j->bias, j->add,
                      w->scratch + (uint64_t)worker * KERN_SCRATCH);
    }
}

void kern_run(const struct kern *k, const struct seam_host *h,
              const struct kern_job *job, uint32_t n_jobs, void *scratch)
{
    struct kern_work w = { k, job, n_jobs, scratch };
    uint32_t n = 0;

    for (uint32_t i = 0; i < n_jobs; i++)
        n += job_tasks(&job[i]);
    if (n)
        h->parallel_for(h->ctx, n, work_task, &w);
}

void kern_rms(const struct kern *k, const float *x, const void *w,
              uint16_t w_dtype, uint32_t n, float eps, float *y)
{
    float s = 1.0f / sqrtf(k->sum_squares(x, n) / (float)n + eps);

    k->scale(x, s, w, w_dtype, n, y);
}
