#include "core/check/synth.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/check/finding.h"
#include "core/check/hook.h"
#include "core/check/thread.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

/* ---- Random numbers ------------------------------------------------------ */

uint64_t th_u64(struct th_rng *r) /* splitmix64 */
{
    uint64_t z = r->s += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

double th_uniform(struct th_rng *r)
{
    return (double)(th_u64(r) >> 11) * 0x1p-53;
}

double th_normal(struct th_rng *r)
{
    double u = 1 - th_uniform(r), v = th_uniform(r);

    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

uint32_t th_below(struct th_rng *r, uint32_t n)
{
    return (uint32_t)(th_u64(r) % n);
}

/* ---- Host functions ------------------------------------------------------ */

/* Each function of the host begins here: what tags may call it, and a place
 * where another thread may go on.  What is wrong is said later, since the plugin
 * is on the stack. */
static struct th *host_begin(void *ctx, const char *name, uint32_t tags)
{
    static const char *const word[] = { [CK_CONTROL] = "control",
                                        [CK_SUBMIT] = "submit",
                                        [CK_REQUEST] = "request or any",
                                        [CK_WORKER] = "worker" };
    uint32_t tag = ck_here()->tag;
    struct th *h = ctx;

    if (!(tag & tags)) {
        pthread_mutex_lock(&h->lock);
        if (!h->misused && tag)
            snprintf(h->misuse, sizeof h->misuse,
                     "host.%s was called from a call of tag %s", name,
                     word[tag]);
        else if (!h->misused)
            snprintf(h->misuse, sizeof h->misuse,
                     "host.%s was called by a thread of the plugin", name);
        if (!h->misused)
            h->misused = tag ? "T6" : "T2";
        pthread_mutex_unlock(&h->lock);
    }
    ck_turn();
    return h;
}

static void host_log(void *ctx, uint32_t level, const char *msg)
{
    struct th *h = ctx;

    (void)level;
    pthread_mutex_lock(&h->lock);
    snprintf(h->last_log, sizeof h->last_log, "%s", msg);
    pthread_mutex_unlock(&h->lock);
    ck_turn();
}

/* A header in front of each allocation would break alignment, so only counts
 * are kept; leaks are AddressSanitizer's business. */
static void *host_alloc(void *ctx, uint32_t mem, int32_t device, uint64_t bytes,
                        uint64_t align)
{
    uint32_t hot = ck_here()->tag & (CK_SUBMIT | CK_WORKER); /* M1, not T6 */
    struct th *h = host_begin(ctx, "alloc", CK_CONTROL | hot);
    void *p = NULL;

    (void)mem;
    (void)device;
    if (hot)
        h->hot_allocs++;
    if (h->fail_alloc > 0 && --h->fail_alloc == 0)
        return NULL;
    if (posix_memalign(&p, align < 64 ? 64 : align, bytes ? bytes : 1))
        return NULL;
    memset(p, 0xff, bytes);
    h->live++;
    return p;
}

static void host_free(void *ctx, void *p)
{
    struct th *h = host_begin(ctx, "free", CK_CONTROL);

    if (p)
        h->live--;
    free(p);
}

static uint32_t fp_mode(void)
{
#if defined(__x86_64__)
    return _mm_getcsr() & ~(uint32_t)_MM_EXCEPT_MASK;
#else
    return 0;
#endif
}

/* One parallel_for. */
struct deal {
    struct th *h;
    seam_task *fn;
    void *arg;
    uint32_t n;
    _Atomic uint32_t next; /* of threads                                      */
};

static void deal_one(const struct deal *d, uint32_t i, uint32_t worker)
{
    struct ck_here *here = ck_here(), before = *here;
    uint32_t mode = fp_mode();

    *here = (struct ck_here){ .tag = CK_WORKER, .worker = worker };
    d->fn(d->arg, i, worker);
    *here = before;
    if (fp_mode() == mode)
        return;
    pthread_mutex_lock(&d->h->lock);
    if (!d->h->misused) {
        d->h->misused = "T5";
        snprintf(d->h->misuse, sizeof d->h->misuse,
                 "a task changed the floating-point mode");
    }
    pthread_mutex_unlock(&d->h->lock);
}

static void deal_thread(void *arg, uint32_t worker)
{
    struct deal *d = arg;

    ck_meet();
    for (uint32_t i; (i = atomic_fetch_add(&d->next, 1)) < d->n;) {
        deal_one(d, i, worker);
        ck_turn();
    }
}

static void deal_shuffled(struct deal *d)
{
    uint32_t *order = malloc((d->n + 1) * sizeof *order);

    ck_own(order, "out of memory");
    for (uint32_t i = 0; i < d->n; i++) {
        uint32_t j = th_below(&d->h->dealer, i + 1);

        order[i] = order[j];
        order[j] = i;
    }
    for (uint32_t i = 0; i < d->n; i++)
        deal_one(d, order[i], th_below(&d->h->dealer, d->h->n_workers));
    free(order);
}

/* Results must not depend on any of this. */
static void host_parallel_for(void *ctx, uint32_t n, seam_task *fn, void *arg)
{
    struct th *h =
        host_begin(ctx, "parallel_for", CK_CONTROL | CK_SUBMIT | CK_WORKER);
    struct deal d = { .h = h, .fn = fn, .arg = arg, .n = n };
    uint32_t last = h->n_workers - 1;

    if (ck_here()->tag == CK_WORKER) { /* serially on the calling worker */
        for (uint32_t i = 0; i < n; i++)
            deal_one(&d, i, ck_here()->worker);
        return;
    }
    switch (h->deal) {
    case TH_BACKWARDS:
        for (uint32_t i = n; i-- > 0;)
            deal_one(&d, i, i % h->n_workers);
        break;
    case TH_SHUFFLED:
        deal_shuffled(&d);
        break;
    case TH_TURNS:
    case TH_FREE:
        ck_together(h->n_workers, h->deal == TH_FREE ? CK_FREE : CK_TURNS,
                    th_u64(&h->dealer), deal_thread, &d);
        break;
    default:
        for (uint32_t i = 0; i < n; i++) {
            deal_one(&d, i,
                     h->deal == TH_FIRST  ? 0
                     : h->deal == TH_LAST ? last
                                          : i % h->n_workers);
            ck_turn();
        }
        break;
    }
}

static uint64_t *host_counter(void *ctx, const char *name, const char *unit)
{
    static uint64_t cell[16];
    static uint32_t used;

    host_begin(ctx, "counter", CK_CONTROL);
    (void)name;
    (void)unit;
    return &cell[used++ % 16];
}

/* "a.b[3].c" below v, or NULL. */
static json_t *cfg_walk(json_t *v, const char *path)
{
    while (v && *path) {
        if (*path == '[') {
            char *end;

            v = json_array_get(v, strtoul(path + 1, &end, 10));
            path = end + 1;
        } else {
            size_t n = strcspn(path, ".[");
            char key[128];

            if (n >= sizeof key)
                return NULL;
            memcpy(key, path, n);
            key[n] = 0;
            v = json_object_get(v, key);
            path += n;
        }
        if (*path == '.')
            path++;
    }
    return v;
}

static int host_cfg(void *ctx, const struct seam_cfg *node, const char *path,
                    uint32_t type, void *out)
{
    struct th *h = host_begin(ctx, "cfg", CK_CONTROL);
    json_t *v = cfg_walk((json_t *)(uintptr_t)node, path);
    double d;

    if (node == th_plugin_cfg(h) &&
        h->n_asked < sizeof h->asked / sizeof *h->asked)
        snprintf(h->asked[h->n_asked++], sizeof *h->asked, "%s", path);
    if (!v)
        return SEAM_ENOENT;
    switch (type) {
    case SEAM_CFG_BOOL:
        if (!json_is_boolean(v))
            return SEAM_EINVAL;
        *(int32_t *)out = json_is_true(v);
        return SEAM_OK;
    case SEAM_CFG_I64:
        d = json_number_value(v);
        if (!json_is_number(v) || floor(d) != d)
            return SEAM_EINVAL;
        *(int64_t *)out =
            json_is_integer(v) ? json_integer_value(v) : (int64_t)d;
        return SEAM_OK;
    case SEAM_CFG_F64:
        if (!json_is_number(v))
            return SEAM_EINVAL;
        *(double *)out = json_number_value(v);
        return SEAM_OK;
    case SEAM_CFG_STR:
        if (!json_is_string(v))
            return SEAM_EINVAL;
        ((struct seam_str *)out)->p = json_string_value(v);
        ((struct seam_str *)out)->n = json_string_length(v);
        return SEAM_OK;
    case SEAM_CFG_LEN:
        if (!json_is_array(v) && !json_is_object(v))
            return SEAM_EINVAL;
        *(uint64_t *)out =
            json_is_array(v) ? json_array_size(v) : json_object_size(v);
        return SEAM_OK;
    default:
        return SEAM_EINVAL;
    }
}

static const struct seam_cfg *host_model_cfg(void *ctx,
                                             const struct seam_model *m)
{
    struct th *h = host_begin(ctx, "model_cfg", CK_CONTROL);

    (void)m;
    return (const struct seam_cfg *)h->model_cfg;
}

static int host_weight(void *ctx, const struct seam_model *m, const char *name,
                       uint32_t mem, struct seam_tensor *out)
{
    struct th *h = host_begin(ctx, "weight", CK_CONTROL);
    struct th_weight *w;
    int rc = h->weight_of ? h->weight_of(h->arg, name, out) : SEAM_ENOENT;

    (void)m;
    (void)mem;
    if (rc != SEAM_ENOENT)
        return rc;
    w = th_find(h, name);
    if (!w)
        return SEAM_ENOENT;
    *out = w->t;
    return SEAM_OK;
}

static int host_file(void *ctx, const struct seam_model *m, const char *name,
                     struct seam_str *out)
{
    host_begin(ctx, "file", CK_CONTROL);
    (void)m;
    (void)name;
    (void)out;
    return SEAM_ENOENT;
}

static int32_t host_token_id(void *ctx, const struct seam_model *m,
                             const char *piece)
{
    struct th *h = host_begin(ctx, "token_id", CK_CONTROL);

    (void)m;
    return h->token_id ? h->token_id(h->arg, piece) : SEAM_ENOENT;
}

static int host_block(void *ctx, const struct seam_model *m, uint32_t kind,
                      uint32_t layer, struct seam_lent *out)
{
    struct th *h = host_begin(ctx, "block", CK_CONTROL);

    (void)m;
    return h->block ? h->block(h->arg, kind, layer, out) : SEAM_ENOENT;
}

static const void *host_extension(void *ctx, const char *id)
{
    struct th *h = host_begin(ctx, "extension", CK_CONTROL);

    return h->extension ? h->extension(h->arg, id) : NULL;
}

void th_enter(struct th *h)
{
    (void)h;
    ck_turn();
    ck_here()->mode = fp_mode();
    ck_here()->tag = CK_SUBMIT;
    ck_hook_hot(true);
}

void th_misuse_check(struct th *h, const char *call)
{
    const char *rule;

    pthread_mutex_lock(&h->lock);
    rule = h->misused;
    pthread_mutex_unlock(&h->lock);
    ck_require(rule, !rule, "%s: %s", call, h->misuse);
}

void th_leave(struct th *h, const char *call)
{
    struct ck_here *here = ck_here();
    uint32_t mode = fp_mode();
    const char *noted;

    ck_hook_hot(false);
    here->tag = CK_CONTROL;
    ck_require("T5", mode == here->mode,
               "%s changed the floating-point mode: MXCSR %#x, was %#x", call,
               mode, here->mode);
    ck_require("M1", !h->hot_allocs, "%s allocated %u times from the host",
               call, h->hot_allocs);
    noted = ck_hook_noted();
    ck_require("M1", !noted, "%s called %s", call, noted);
    th_misuse_check(h, call);
}

void th_enter_request(struct th *h)
{
    (void)h;
    ck_turn();
    ck_here()->mode = fp_mode();
    ck_here()->tag = CK_REQUEST;
}

void th_leave_request(struct th *h, const char *call)
{
    struct ck_here *here = ck_here();

    here->tag = CK_CONTROL;
    ck_require("T5", fp_mode() == here->mode,
               "%s changed the floating-point mode", call);
    th_misuse_check(h, call);
}

static json_t *parse(const char *text)
{
    json_error_t e;
    json_t *v = json_loads(text, JSON_REJECT_DUPLICATES, &e);

    ck_own(v, "JSON: %s in %s", e.text, text);
    return v;
}

struct th *th_new(const char *model_json, const char *plugin_json)
{
    struct th *h = calloc(1, sizeof *h);

    ck_own(h, "out of memory");
    h->model_cfg = parse(model_json);
    h->n_workers = 3;
    ck_own(!pthread_mutex_init(&h->lock, NULL), "no lock");
    ck_here()->tag = CK_CONTROL; /* of the thread that makes all calls       */
    h->host = (struct seam_host){
        .size = sizeof h->host,
        .abi_major = SEAM_ABI_MAJOR,
        .abi_minor = SEAM_ABI_MINOR,
        .n_workers = h->n_workers,
        .ctx = h,
        .log = host_log,
        .alloc = host_alloc,
        .free = host_free,
        .parallel_for = host_parallel_for,
        .counter = host_counter,
        .cfg = host_cfg,
        .model_cfg = host_model_cfg,
        .weight = host_weight,
        .file = host_file,
        .token_id = host_token_id,
        .block = host_block,
        .extension = host_extension,
    };
    th_config(h, plugin_json);
    return h;
}

static void weight_release(struct th_weight *w, bool sealed)
{
    free(w->name);
    free(w->value);
    if (sealed)
        return;
    free(w->data);
    free(w->scale);
    free(w->zero);
}

void th_free(struct th *h)
{
    if (!h)
        return;
    for (uint32_t i = 0; i < h->n_weights; i++)
        weight_release(&h->weight[i], h->arena);
    free(h->weight);
    if (h->arena)
        munmap(h->arena, h->arena_bytes);
    json_decref(h->model_cfg);
    json_decref(h->plugin_cfg);
    pthread_mutex_destroy(&h->lock);
    free(h);
}

void th_config(struct th *h, const char *plugin_json)
{
    json_decref(h->plugin_cfg);
    h->plugin_cfg = parse(plugin_json ? plugin_json : "{}");
}

void th_model_config(struct th *h, const char *model_json)
{
    json_decref(h->model_cfg);
    h->model_cfg = parse(model_json);
}

const struct seam_model *th_model(const struct th *h)
{
    return (const struct seam_model *)h;
}

const struct seam_cfg *th_plugin_cfg(const struct th *h)
{
    return (const struct seam_cfg *)h->plugin_cfg;
}

/* ---- Weights ------------------------------------------------------------- */

struct th_weight *th_find(const struct th *h, const char *name)
{
    for (uint32_t i = 0; i < h->n_weights; i++)
        if (!strcmp(h->weight[i].name, name))
            return &h->weight[i];
    return NULL;
}

void th_remove(struct th *h, const char *name)
{
    struct th_weight *w = th_find(h, name);

    if (!w)
        return;
    weight_release(w, false);
    *w = h->weight[--h->n_weights];
}

const double *th_get(const struct th *h, const char *name)
{
    struct th_weight *w = th_find(h, name);

    ck_own(w, "no weight %s", name);
    return w->value;
}

/* Normal and subnormal halves; what tests store is never larger. */
static uint16_t half_of(double v)
{
    int e = v == 0 ? -14 : ilogb(v) < -14 ? -14 : ilogb(v);
    uint32_t q = (uint32_t)nearbyint(ldexp(fabs(v), 10 - e));

    return (uint16_t)((signbit(v) ? 0x8000u : 0) |
                      (((uint32_t)(e + 14) << 10) + q));
}

static double half_value(uint16_t h)
{
    int e = h >> 10 & 31, m = h & 1023;

    return (h & 0x8000 ? -1 : 1) *
           (e ? ldexp(1024 + m, e - 25) : ldexp(m, -24));
}

static double fp8_value(uint8_t b)
{
    double sign = b & 0x80 ? -1 : 1;
    int e = b >> 3 & 15, m = b & 7;

    return sign * (e ? ldexp(8 + m, e - 10) : ldexp(m, -9));
}

/* The nearest stored value by search: slow and plain. */
static uint8_t fp8_of(double v)
{
    uint8_t best = 0;

    for (int b = 0; b < 256; b++)
        if ((b & 0x7f) != 0x7f &&
            fabs(fp8_value((uint8_t)b) - v) < fabs(fp8_value(best) - v))
            best = (uint8_t)b;
    return best;
}

static struct th_weight *weight_slot(struct th *h, const char *name)
{
    struct th_weight *w;

    th_remove(h, name);
    h->weight = realloc(h->weight, (h->n_weights + 1) * sizeof *w);
    ck_own(h->weight, "out of memory");
    w = &h->weight[h->n_weights++];
    memset(w, 0, sizeof *w);
    w->name = strdup(name);
    return w;
}

/* Store w->value, rounding it to what is stored. */
static void weight_store(struct th_weight *w, enum th_store store,
                         uint64_t n_out, uint64_t n_in, bool rank3,
                         struct th_rng *r)
{
    uint64_t cols = n_in ? n_in : n_out, rows = n_in ? n_out : 1;
    uint64_t n = rows * cols, elem = 0;
    struct seam_tensor *t = &w->t;

    memset(t, 0, sizeof *t);
    t->device = -1;
    t->rank = n_in ? rank3 ? 3 : 2 : 1;
    t->shape[0] = (int64_t)n_out;
    if (n_in)
        t->shape[rank3 ? 2 : 1] = (int64_t)n_in;
    if (rank3)
        t->shape[1] = 1;
    switch (store) {
    case TH_F32:
        elem = 4;
        t->dtype = SEAM_F32;
        w->data = malloc(n * elem + 1);
        for (uint64_t i = 0; i < n; i++) {
            ((float *)w->data)[i] = (float)w->value[i];
            w->value[i] = ((float *)w->data)[i];
        }
        break;
    case TH_F16:
        elem = 2;
        t->dtype = SEAM_F16;
        w->data = malloc(n * elem + 1);
        for (uint64_t i = 0; i < n; i++) {
            ((uint16_t *)w->data)[i] = half_of(w->value[i]);
            w->value[i] = half_value(((uint16_t *)w->data)[i]);
        }
        break;
    case TH_BF16:
        elem = 2;
        t->dtype = SEAM_BF16;
        w->data = malloc(n * elem + 1);
        for (uint64_t i = 0; i < n; i++) {
            float f = (float)w->value[i];
            uint32_t u;

            memcpy(&u, &f, 4);
            u &= 0xffff0000; /* cut, not rounded: any bf16 will do */
            ((uint16_t *)w->data)[i] = (uint16_t)(u >> 16);
            memcpy(&f, &u, 4);
            w->value[i] = f;
        }
        break;
    case TH_FP8: {
        uint64_t pr = (rows + 127) / 128, pc = (cols + 127) / 128;
        float *scale = malloc(pr * pc * sizeof *scale);

        elem = 1;
        t->dtype = SEAM_F8E4M3;
        t->quant = SEAM_Q_GROUP;
        t->scale_dtype = SEAM_F32;
        t->group_rows = t->group_cols = 128;
        for (uint64_t i = 0; i < pr * pc; i++)
            scale[i] = (float)(0.003 * (1 + th_uniform(r)));
        w->scale = scale;
        t->scale = scale;
        w->data = malloc(n + 1);
        for (uint64_t i = 0; i < n; i++) {
            double s = scale[i / cols / 128 * pc + i % cols / 128];
            uint8_t b = fp8_of(w->value[i] / s);

            ((uint8_t *)w->data)[i] = b;
            w->value[i] = fp8_value(b) * s;
        }
        break;
    }
    case TH_I8: {
        uint64_t g = 32, ng = cols / g;
        float *scale = malloc(rows * ng * sizeof *scale + 1);

        ck_own(cols % g == 0, "%s: rows of %llu for I8", w->name,
               (unsigned long long)cols);
        elem = 1;
        t->dtype = SEAM_I8;
        t->quant = SEAM_Q_GROUP;
        t->scale_dtype = SEAM_F32;
        t->group_rows = 1;
        t->group_cols = (uint32_t)g;
        w->data = malloc(n + 1);
        for (uint64_t i = 0; i < n; i += g) {
            double big = 1e-3;

            for (uint64_t j = i; j < i + g; j++)
                big = fmax(big, fabs(w->value[j]));
            scale[i / g] = (float)(big / 127);
            for (uint64_t j = i; j < i + g; j++) {
                long c = lround(w->value[j] / scale[i / g]);

                c = c < -127 ? -127 : c > 127 ? 127 : c;
                ((int8_t *)w->data)[j] = (int8_t)c;
                w->value[j] = scale[i / g] * (double)c;
            }
        }
        w->scale = scale;
        t->scale = scale;
        break;
    }
    case TH_GPTQ: {
        uint64_t g = 32, ng = cols / g;
        uint32_t *q = calloc(cols / 8 * rows + 1, 4);
        uint32_t *z = calloc(ng * (rows / 8) + 1, 4);
        uint16_t *s = malloc(ng * rows * sizeof *s + 1);

        ck_own(cols % g == 0, "%s: rows of %llu for GPTQ", w->name,
               (unsigned long long)cols);
        ck_own(rows % 8 == 0, "%s: %llu rows for GPTQ", w->name,
               (unsigned long long)rows);
        t->dtype = SEAM_I4;
        t->quant = SEAM_Q_GPTQ;
        t->scale_dtype = SEAM_F16;
        t->group_rows = 1;
        t->group_cols = (uint32_t)g;
        for (uint64_t o = 0; o < rows; o++)
            for (uint64_t k = 0; k < ng; k++) {
                double big = 1e-3, step;
                uint32_t zero = 5 + th_below(r, 6); /* the true zero point */

                for (uint64_t i = k * g; i < (k + 1) * g; i++)
                    big = fmax(big, fabs(w->value[o * cols + i]));
                s[k * rows + o] = half_of(big / (th_below(r, 2) ? 7 : -7));
                step = half_value(s[k * rows + o]);
                z[k * (rows / 8) + o / 8] |= (zero - 1) << 4 * (o % 8);
                for (uint64_t i = k * g; i < (k + 1) * g; i++) {
                    double v = w->value[o * cols + i] / step + zero;
                    long c = lround(fmin(15, fmax(0, v)));

                    q[i / 8 * rows + o] |= (uint32_t)c << 4 * (i % 8);
                    w->value[o * cols + i] = step * ((double)c - zero);
                }
            }
        w->data = q;
        w->scale = s;
        w->zero = z;
        t->scale = s;
        t->zero = z;
        t->bytes = cols / 8 * rows * 4;
        break;
    }
    }
    t->data = w->data;
    if (elem) {
        t->bytes = n * elem;
        for (uint32_t d = 0; d + 1 < t->rank; d++)
            t->stride[d] = (int64_t)(cols * elem);
    }
}

/* Bytes of the scales and of the zero points. */
static uint64_t scale_bytes(const struct seam_tensor *t)
{
    uint64_t rows = (uint64_t)t->shape[0], cols = (uint64_t)t->shape[1];

    if (t->quant == SEAM_Q_GPTQ)
        return cols / t->group_cols * rows * 2;
    if (t->dtype == SEAM_I8)
        return cols / t->group_cols * rows * 4;
    return (rows + 127) / 128 * ((cols + 127) / 128) * 4;
}

static uint64_t zero_bytes(const struct seam_tensor *t)
{
    return (uint64_t)t->shape[1] / t->group_cols * ((uint64_t)t->shape[0] / 8) *
           4;
}

/* The next piece: 8 bytes behind a multiple of 16, so that whoever relies on
 * more than its element is caught by a misaligned load. */
static void *seal_piece(struct th *h, size_t *at, void *from, uint64_t bytes)
{
    char *p;

    *at = (*at + 15) / 16 * 16 + 8;
    p = h->arena ? (char *)h->arena + *at : NULL;
    *at += bytes;
    if (p) {
        memcpy(p, from, bytes);
        free(from);
    }
    return p;
}

void th_seal(struct th *h)
{
    for (uint32_t pass = 0; pass < 2; pass++) {
        size_t at = 0;

        for (uint32_t i = 0; i < h->n_weights; i++) {
            struct th_weight *w = &h->weight[i];
            void *data = seal_piece(h, &at, w->data, w->t.bytes), *scale = NULL;
            void *zero = NULL;

            if (w->scale)
                scale = seal_piece(h, &at, w->scale, scale_bytes(&w->t));
            if (w->zero)
                zero = seal_piece(h, &at, w->zero, zero_bytes(&w->t));
            if (!h->arena)
                continue;
            w->t.data = w->data = data;
            w->t.scale = w->scale = scale;
            w->t.zero = w->zero = zero;
        }
        if (pass)
            break;
        h->arena_bytes = at + 1;
        h->arena = mmap(NULL, h->arena_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        ck_own(h->arena != MAP_FAILED, "out of memory");
    }
    mprotect(h->arena, h->arena_bytes, PROT_READ);
}

static const double *weight_random(struct th *h, const char *name,
                                   enum th_store store, uint64_t n_out,
                                   uint64_t n_in, bool rank3, double mean,
                                   double amp)
{
    struct th_weight *w = weight_slot(h, name);
    uint64_t n = n_out * (n_in ? n_in : 1);
    struct th_rng r = { h->seed * 0x100000001b3u + 0xcbf29ce484222325u };

    for (const char *c = name; *c; c++)
        r.s = (r.s ^ (unsigned char)*c) * 0x100000001b3u;
    w->value = malloc((n + 1) * sizeof *w->value);
    ck_own(w->value, "out of memory");
    for (uint64_t i = 0; i < n; i++)
        w->value[i] = mean + amp * th_normal(&r);
    weight_store(w, store, n_out, n_in, rank3, &r);
    return w->value;
}

const double *th_random(struct th *h, const char *name, enum th_store store,
                        uint64_t n_out, uint64_t n_in, double mean, double amp)
{
    return weight_random(h, name, store, n_out, n_in, false, mean, amp);
}

const double *th_random3(struct th *h, const char *name, enum th_store store,
                         uint64_t n_out, uint64_t n_in, double mean, double amp)
{
    return weight_random(h, name, store, n_out, n_in, true, mean, amp);
}

const double *th_values(struct th *h, const char *name, enum th_store store,
                        uint64_t n_out, uint64_t n_in, const double *v)
{
    struct th_weight *w = weight_slot(h, name);
    uint64_t n = n_out * (n_in ? n_in : 1);

    ck_own(store == TH_F32 || store == TH_F16 || store == TH_BF16,
           "%s: values of a quantised store", name);
    w->value = malloc((n + 1) * sizeof *w->value);
    ck_own(w->value, "out of memory");
    memcpy(w->value, v, n * sizeof *v);
    weight_store(w, store, n_out, n_in, false, NULL);
    return w->value;
}
