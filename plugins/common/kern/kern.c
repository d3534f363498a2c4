/* Choosing a kernel table, describing weights, and cutting products into tasks
 * of about equal size. */
#include "kern.h"
#include "kern_fast.h"

#include <stdatomic.h>

extern const struct kern kern_generic;
#if defined(__x86_64__)
extern const struct kern kern_avx2, kern_avx512, kern_avx512vnni, kern_amx;
#endif

static bool runs_here(const struct kern *k)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (k == &kern_avx512 || k == &kern_avx512vnni || k == &kern_amx)
        return __builtin_cpu_supports("avx512f") &&
               __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("avx512dq") &&
               (k == &kern_avx512 || __builtin_cpu_supports("avx512vnni")) &&
               (k != &kern_amx || kern_amx_enable());
    if (k == &kern_avx2) /* every processor with AVX2 has F16C */
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
    return k == &kern_generic;
}

const struct kern *kern_pick(const char *want)
{
    static const struct kern *const all[] = {
#if defined(__x86_64__)
        &kern_amx,
        &kern_avx512vnni,
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
                         "of generic, avx2, avx512, avx512vnni, amx that "
                         "this machine has",
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

struct kern_form kern_form(const struct kern *k, const struct kern_mat *w)
{
    struct kern_form f = { KERN_FLOATS, w->group_cols };
    bool fits = k->fast && w->scale_dtype && w->group_cols >= 32 &&
                KERN_OUTS % w->group_cols == 0 && w->k % w->group_cols == 0 &&
                (w->scale_dtype == SEAM_F32 || w->scale_dtype == SEAM_F16 ||
                 w->scale_dtype == SEAM_BF16);

    if (fits && w->dtype == SEAM_I4)
        f.kind = KERN_NIBBLES;
    if (fits && w->dtype == SEAM_I8 && w->group_rows == 1)
        f.kind = KERN_BYTES;
    return f;
}

uint64_t kern_record(struct kern_form f, uint32_t k)
{
    if (f.kind == KERN_TILES) /* three planes of whole tiles */
        return 6 * (((uint64_t)k + 31) & ~(uint64_t)31);
    return (kern_planes(f) * (uint64_t)k + 8 * (uint64_t)(k / f.group) + 63) &
           ~(uint64_t)63;
}

bool kern_mat_plain(const struct kern_mat *m)
{
    return !m->scale_dtype && (m->dtype == SEAM_F32 || m->dtype == SEAM_F16 ||
                               m->dtype == SEAM_BF16);
}

bool kern_mat_across(const struct kern_mat *m)
{
    return kern_mat_plain(m) ||
           (m->dtype == SEAM_I8 && m->group_rows == 1 && m->scale_dtype);
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

/* ---- Dealing ------------------------------------------------------------- */

enum { STACKS = 64 /* more workers share them                              */ };

/* The units [low, high) that nobody has taken, in one word; alone in its cache
 * line. */
struct stack {
    _Alignas(64) _Atomic uint64_t left;
};

struct dealt {
    const struct kern_deal *d;
    uint32_t n;
    struct stack stack[STACKS];
};

/* The rest of the pile from unit u of all on; *pile is that pile. */
static struct kern_part part_from(const struct kern_deal *d, uint32_t u,
                                  struct kern_pile *pile)
{
    struct kern_part p = { .i = u };

    for (;; p.pile++) {
        *pile = d->pile(d->arg, p.pile);
        if (p.i < pile->n)
            break;
        p.i -= pile->n;
    }
    p.n = pile->n - p.i;
    return p;
}

/* Take units from the low end of a stack, a third of what is left if that may be
 * taken at once, or a single one from the high end; next begins at what is then
 * lowest. */
static bool stack_take(const struct kern_deal *d, struct stack *s, bool low,
                       struct kern_part *p, struct kern_part *next)
{
    uint64_t left = atomic_load_explicit(&s->left, memory_order_relaxed), to;
    struct kern_pile pile;
    uint32_t from, end;

    do {
        from = (uint32_t)(left >> 32);
        end = (uint32_t)left;
        if (from >= end)
            return false;
        *p = part_from(d, low ? from : end - 1, &pile);
        if (!low) {
            p->n = 1;
            to = left - 1;
            continue;
        }
        p->n = p->n < pile.most ? p->n : pile.most;
        p->n = p->n < (end - from + 2) / 3 ? p->n : (end - from + 2) / 3;
        from += p->n;
        to = (uint64_t)from << 32 | end;
    } while (!atomic_compare_exchange_weak_explicit(
        &s->left, &left, to, memory_order_relaxed, memory_order_relaxed));
    *next = low && from < end ? part_from(d, from, &pile) : *p;
    return true;
}

static void dealt_task(void *arg, uint32_t own, uint32_t worker)
{
    struct dealt *a = arg;
    const struct kern_deal *d = a->d;
    struct kern_part p, next;

    for (uint32_t s = 0; s < a->n; s++)
        while (stack_take(d, &a->stack[(own + s) % a->n], s == 0, &p, &next))
            d->part(d->arg, &p, &next, worker);
}

void kern_deal(const struct seam_host *h, const struct kern_deal *d)
{
    uint32_t workers = h->n_workers ? h->n_workers : 1, from = 0, units = 0;
    struct dealt a = { .d = d, .n = workers < STACKS ? workers : STACKS };
    uint64_t all = 0, sum = 0;
    uint32_t s = 0;

    for (uint32_t i = 0; i < d->n; i++) {
        struct kern_pile p = d->pile(d->arg, i);

        all += p.n * p.cost;
        units += p.n;
    }
    if (!units)
        return;
    /* A share ends between the two units whose border is next to its end. */
    for (uint32_t i = 0, at = 0; i < d->n; i++) {
        struct kern_pile p = d->pile(d->arg, i);

        while (s + 1 < a.n && p.n) {
            uint64_t end = all * (s + 1) / a.n;
            uint64_t n = end > sum ? (end - sum + p.cost / 2) / p.cost : 0;

            if (n > p.n)
                break;
            at += (uint32_t)n;
            p.n -= (uint32_t)n;
            sum += n * p.cost;
            atomic_init(&a.stack[s++].left, (uint64_t)from << 32 | at);
            from = at;
        }
        at += p.n;
        sum += p.n * p.cost;
    }
    for (; s < a.n; s++, from = units)
        atomic_init(&a.stack[s].left, (uint64_t)from << 32 | units);
    h->parallel_for(h->ctx, workers < units ? workers : units, dealt_task, &a);
}

/* ---- Tasks --------------------------------------------------------------- */

/* Packed inputs of one pass; jobs with the same input share one. */
enum { JOBS = 64, PACKS = 64, PACK_ROWS = 8 /* rows packed by one task */ };

struct pack {
    const float *x;
    int64_t ldx;
    uint32_t k, m;
    struct kern_form f;
    uint64_t stride;
    char *rec;
};

/* Outputs of a unit of a job, and how many units are computed at once: so that
 * the rows of w are read in streams as long as can be, in the end in pieces
 * that are soon done.  Both are in multiples of 16, of 64 with int4, whose one
 * row takes them so. */
struct units {
    uint32_t outs, most;
};

/* A pass: the rows [r0, r0 + rows) of some jobs. */
struct kern_work {
    const struct kern *k;
    const struct kern_job *job;
    uint32_t n_jobs, r0, rows, n_packs;
    char *scratch;
    struct pack pack[PACKS];
    struct units units[JOBS];
};

static uint32_t job_outs(const struct kern_job *j)
{
    return j->across ? j->w->k : j->w->n;
}

static struct units job_units(const struct kern *k, const struct kern_job *j)
{
    uint32_t in = j->across ? j->w->n : j->w->k, step = 1 << 17, least = 16;
    uint32_t kind = kern_form(k, j->w).kind, unit;

    if (j->m == 1 && kind == KERN_NIBBLES)
        return (struct units){ 64, KERN_WIDE / 64 };
    if (j->m == 1 && kind == KERN_BYTES && j->across)
        return (struct units){ 128, KERN_WIDE / 128 };
    if (j->m == 1 && kind == KERN_BYTES)
        return (struct units){ 32, KERN_WIDE / 32 };
    if (j->w->dtype == SEAM_I4)
        least = 64;
    if (j->w->dtype == SEAM_I4 || j->w->dtype == SEAM_I8)
        step = 1 << 18;
    step = (step / (in ? in : 1) + least - 1) / least * least;
    if (j->m > 6 && step < 64)
        step = 64;
    if (j->m > KERN_ROWS || j->w->dtype == SEAM_I4)
        step = step < 128 ? 128 : step;
    step = step < least ? least : step > KERN_OUTS ? KERN_OUTS : step;
    if (j->m > 1 || j->across)
        return (struct units){ step, 1 };
    unit = (step / 2 + least - 1) / least * least;
    return (struct units){ unit, step / unit };
}

/* Rows of a job that the pass has. */
static uint32_t job_rows(const struct kern_work *w, uint32_t m)
{
    uint32_t left = m > w->r0 ? m - w->r0 : 0;

    return left < w->rows ? left : w->rows;
}

enum { ACROSS = 256 /* rows of w that are mixed at once */ };
_Static_assert(KERN_ROWS *ACROSS * sizeof(float) <= KERN_OWN,
               "scratch of job_across");

/* Columns [c0, c0 + n) of I8: each row of w has a scale there, which goes to x
 * instead. */
static void job_across_i8(const struct kern *k, const struct kern_job *j,
                          uint32_t c0, uint32_t n, const float *const *x,
                          uint32_t m, float *const *y, float *scratch)
{
    const struct kern_mat *w = j->w;
    uint32_t gc = w->group_cols, groups = (w->k + gc - 1) / gc;
    const void *row[ACROSS];

    for (uint32_t i = 0; i < w->n; i += ACROSS) {
        uint32_t len = w->n - i < ACROSS ? w->n - i : ACROSS;

        for (uint32_t c = c0, end; c < c0 + n; c = end) {
            const float *xs[KERN_ROWS];
            float *ys[KERN_ROWS];

            end = (c / gc + 1) * gc;
            end = end < c0 + n ? end : c0 + n;
            for (uint32_t l = 0; l < len; l++) {
                uint64_t at = (uint64_t)(w->row0 + i + l) * groups + c / gc;
                float s = w->scale_dtype == SEAM_F32
                              ? ((const float *)w->scale)[at]
                              : weights_elem(w->scale, w->scale_dtype, at);

                row[l] = w->w + (i + l) * w->stride + c;
                for (uint32_t r = 0; r < m; r++)
                    scratch[r * ACROSS + l] = x[r][i + l] * s;
            }
            for (uint32_t r = 0; r < m; r++) {
                xs[r] = scratch + r * ACROSS;
                ys[r] = y[r] + (c - c0);
            }
            k->mix_rows(SEAM_I8, row, len, end - c, xs, m, ys, i > 0 || j->add);
        }
    }
}

static void job_across(const struct kern *k, const struct kern_job *j,
                       uint32_t c0, uint32_t n, const float *const *x,
                       uint32_t m, float *const *y,
                       const struct fast_next *next, void *scratch)
{
    uint64_t elem = weights_elem_bytes(j->w->dtype);
    const void *w[ACROSS];

    if (kern_form(k, j->w).kind == KERN_BYTES) {
        k->fast->across(j->w, c0, n, x, m, y, j->add, next, scratch);
        return;
    }
    if (j->w->dtype == SEAM_I8) {
        job_across_i8(k, j, c0, n, x, m, y, scratch);
        return;
    }
    for (uint32_t i = 0; i < j->w->n; i += ACROSS) {
        uint32_t len = j->w->n - i < ACROSS ? j->w->n - i : ACROSS;
        const float *xi[KERN_ROWS];

        for (uint32_t l = 0; l < len; l++)
            w[l] = j->w->w + (i + l) * j->w->stride + c0 * elem;
        for (uint32_t r = 0; r < m; r++)
            xi[r] = x[r] + i;
        k->mix_rows(j->w->dtype, w, len, n, xi, m, y, i > 0 || j->add);
    }
}

static void job_floats(const struct kern_work *w, const struct kern_job *j,
                       uint32_t o0, uint32_t o1, const struct fast_next *next,
                       void *scratch)
{
    uint32_t end = w->r0 + job_rows(w, j->m);

    for (uint32_t r = w->r0; r < end; r += KERN_ROWS) {
        const float *x[KERN_ROWS];
        float *y[KERN_ROWS];
        uint32_t m = end - r < KERN_ROWS ? end - r : KERN_ROWS;

        for (uint32_t l = 0; l < m; l++) {
            x[l] = j->x + (int64_t)(r + l) * j->ldx;
            y[l] = j->y + (int64_t)(r + l) * j->ldy + o0;
        }
        if (j->across)
            job_across(w->k, j, o0, o1 - o0, x, m, y, next, scratch);
        else
            w->k->dot(j->w, o0, o1, x, m, y, j->bias, j->add, scratch);
    }
}

static void job_packed(const struct kern_work *w, const struct kern_job *j,
                       const struct pack *p, uint32_t o0, uint32_t o1,
                       const struct fast_next *next, void *scratch)
{
    uint32_t n = job_rows(w, j->m);

    if (p->f.kind == KERN_TILES) {
        w->k->fast->dot_tiles(j->w, o0, o1, p->rec, n,
                              j->y + (int64_t)w->r0 * j->ldy + o0, j->ldy,
                              j->bias, j->add, next, scratch);
        return;
    }
    for (uint32_t r = 0; r < n; r += FAST_ROWS)
        w->k->fast->dot(j->w, o0, o1, p->rec + r * p->stride, p->stride,
                        n - r < FAST_ROWS ? n - r : FAST_ROWS,
                        j->y + (int64_t)(w->r0 + r) * j->ldy + o0, j->ldy,
                        j->bias, j->add, next, scratch);
}

/* How the rows of a job are to be packed.  An input of which not even a block
 * fits behind `room` bytes stays as it is. */
static struct kern_form job_form(const struct kern *k, const struct kern_job *j,
                                 uint64_t room)
{
    struct kern_form f = kern_form(k, j->w);

    if (k->fast && k->fast->dot_tiles && j->w->dtype == SEAM_BF16 &&
        !j->w->scale_dtype && j->w->k)
        f = (struct kern_form){ KERN_TILES, 0 };
    if (j->across || (f.kind && kern_record(f, j->w->k) * FAST_BLOCK > room))
        f.kind = KERN_FLOATS;
    return f;
}

static struct pack *pack_find(struct kern_work *w, const struct kern_job *j,
                              struct kern_form f)
{
    for (uint32_t i = 0; i < w->n_packs; i++) {
        struct pack *p = &w->pack[i];

        if (p->x == j->x && p->ldx == j->ldx && p->k == j->w->k &&
            p->f.kind == f.kind && p->f.group == f.group &&
            (f.kind != KERN_TILES || p->m == j->m))
            return p;
    }
    return NULL;
}

/* Rows that one task packs: in tiles those of a block lie side by side. */
static uint32_t pack_rows(const struct pack *p)
{
    return p->f.kind == KERN_TILES ? FAST_BLOCK : PACK_ROWS;
}

static struct kern_pile work_pile(const void *arg, uint32_t i)
{
    const struct kern_work *w = arg;
    const struct kern_job *j = &w->job[i];
    uint32_t rows = job_rows(w, j->m);
    struct units u = w->units[i];

    return (struct kern_pile){ rows ? (job_outs(j) + u.outs - 1) / u.outs : 0,
                               u.most, 1 + u.outs * kern_cost(j->w, rows) };
}

/* Where output o of a job is read first. */
static struct fast_next job_next(const struct kern_job *j, uint32_t o)
{
    if (j->across)
        return (struct fast_next){
            j->w->w + o * weights_elem_bytes(j->w->dtype), j->w->stride
        };
    return fast_next(j->w, o);
}

static void work_part(void *arg, const struct kern_part *t,
                      const struct kern_part *next, uint32_t worker)
{
    struct kern_work *w = arg;
    char *scratch = w->scratch + (uint64_t)worker * KERN_OWN;
    const struct kern_job *j = &w->job[t->pile];
    uint32_t step = w->units[t->pile].outs, o0 = t->i * step;
    uint32_t o1 = (t->i + t->n) * step;
    struct fast_next after =
        job_next(&w->job[next->pile], next->i * w->units[next->pile].outs);
    struct kern_form f = job_form(w->k, j, UINT64_MAX);
    const struct pack *p = f.kind ? pack_find(w, j, f) : NULL;

    o1 = o1 < job_outs(j) ? o1 : job_outs(j);
    if (p)
        job_packed(w, j, p, o0, o1, &after, scratch);
    else
        job_floats(w, j, o0, o1, &after, scratch);
}

static uint32_t pack_tasks(const struct kern_work *w, const struct pack *p)
{
    return (job_rows(w, p->m) + pack_rows(p) - 1) / pack_rows(p);
}

static void pack_task(void *arg, uint32_t i, uint32_t worker)
{
    const struct kern_work *w = arg;
    const struct pack *p = w->pack;
    uint32_t rows, end;

    (void)worker;
    for (; i >= pack_tasks(w, p); p++)
        i -= pack_tasks(w, p);
    rows = job_rows(w, p->m);
    if (p->f.kind == KERN_TILES) {
        w->k->fast->pack_tiles(p->x + (int64_t)w->r0 * p->ldx, p->ldx, p->k,
                               rows, i * FAST_BLOCK, p->rec);
        return;
    }
    end = rows;
    end = end - i * PACK_ROWS < PACK_ROWS ? end : (i + 1) * PACK_ROWS;
    for (uint32_t r = i * PACK_ROWS; r < end; r++)
        w->k->fast->pack(p->x + (int64_t)(w->r0 + r) * p->ldx, p->f, p->k, 0,
                         p->k, p->rec + r * p->stride);
}

/* The inputs of as many jobs as there is room for; w->n_jobs becomes their
 * number, w->rows the rows that one pass can take. */
static void work_plan(struct kern_work *w, uint32_t n_jobs, char *room,
                      uint64_t bytes)
{
    uint64_t sum = 0, at = 0;
    uint32_t n = 0;
    bool tiles = false; /* which take all rows of a pass in one call */

    w->n_packs = 0;
    for (; n < n_jobs && n < JOBS; n++) {
        const struct kern_job *j = &w->job[n];
        struct kern_form f = job_form(w->k, j, bytes);
        struct pack *p = f.kind ? pack_find(w, j, f) : NULL;
        uint64_t stride = f.kind ? kern_record(f, j->w->k) : 0;

        if (p)
            p->m = p->m > j->m ? p->m : j->m;
        if (p || !f.kind || !j->m)
            continue;
        if (w->n_packs == PACKS || (sum + stride) * FAST_BLOCK > bytes)
            break;
        w->pack[w->n_packs++] = (struct pack){
            j->x, j->ldx, j->w->k, j->m, f, stride, NULL,
        };
        sum += stride;
        tiles = tiles || f.kind == KERN_TILES;
    }
    w->n_jobs = n;
    for (uint32_t i = 0; i < n; i++)
        w->units[i] = job_units(w->k, &w->job[i]);
    w->rows = UINT32_MAX;
    if (!w->n_packs)
        return;
    w->rows = (uint32_t)(bytes / sum) & ~(FAST_BLOCK - 1u);
    if (tiles && w->rows > FAST_ROWS)
        w->rows = FAST_ROWS;
    for (uint32_t i = 0; i < w->n_packs; i++) {
        w->pack[i].rec = room + at;
        at += w->pack[i].stride * w->rows;
    }
}

/* One pass; false when no rows are left. */
static bool work_pass(struct kern_work *w, const struct seam_host *h)
{
    uint32_t n_packs = 0;
    uint64_t work = 0;
    bool any = false;

    for (uint32_t i = 0; i < w->n_jobs; i++)
        any = any || work_pile(w, i).n;
    for (uint32_t i = 0; any && i < w->n_packs; i++) {
        n_packs += pack_tasks(w, &w->pack[i]);
        work += (uint64_t)job_rows(w, w->pack[i].m) * w->pack[i].k;
    }
    if (work > 1 << 13)
        h->parallel_for(h->ctx, n_packs, pack_task, w);
    else
        for (uint32_t i = 0; i < n_packs; i++)
            pack_task(w, i, 0);
    kern_deal(h, &(struct kern_deal){ w->n_jobs, work_pile, work_part, w });
    return any;
}

void kern_run(const struct kern *k, const struct seam_host *h,
              const struct kern_job *job, uint32_t n_jobs, void *scratch)
{
    uint32_t workers = h->n_workers ? h->n_workers : 1;
    uint64_t room = (uint64_t)workers * (KERN_SCRATCH - KERN_OWN);
    struct kern_work w = { .k = k, .job = job, .scratch = scratch };

    while (n_jobs) {
        work_plan(&w, n_jobs, (char *)scratch + (uint64_t)workers * KERN_OWN,
                  room);
        for (w.r0 = 0; work_pass(&w, h) && w.rows < UINT32_MAX;)
            w.r0 += w.rows;
        w.job += w.n_jobs;
        n_jobs -= w.n_jobs;
    }
}

void kern_rms(const struct kern *k, const float *x, const void *w,
              uint16_t w_dtype, uint32_t n, float eps, float *y)
{
    float s = 1.0f / sqrtf(k->sum_squares(x, n) / (float)n + eps);

    k->scale(x, s, w, w_dtype, n, y);
}
