#include "testhost.h"

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static void host_log(void *ctx, uint32_t level, const char *msg)
{
    struct th *h = ctx;

    (void)level;
    snprintf(h->last_log, sizeof h->last_log, "%s", msg);
}

/* A header in front of each allocation would break alignment, so only counts
 * are kept; leaks are AddressSanitizer's business. */
static void *host_alloc(void *ctx, uint32_t mem, int32_t device, uint64_t bytes,
                        uint64_t align)
{
    struct th *h = ctx;
    void *p = NULL;

    (void)mem;
    (void)device;
    if (h->hot)
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
    struct th *h = ctx;

    if (p)
        h->live--;
    free(p);
}

static void host_parallel_for(void *ctx, uint32_t n, seam_task *fn, void *arg)
{
    struct th *h = ctx;

    /* Serially, but as different workers: results must not depend on it. */
    for (uint32_t i = 0; i < n; i++)
        fn(arg, i, i % h->n_workers);
}

static uint64_t *host_counter(void *ctx, const char *name, const char *unit)
{
    static uint64_t cell[16];
    static uint32_t used;

    (void)ctx;
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

            cr_assert_lt(n, sizeof key);
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
    json_t *v = cfg_walk((json_t *)(uintptr_t)node, path);
    double d;

    (void)ctx;
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
    struct th *h = ctx;

    (void)m;
    return (const struct seam_cfg *)h->model_cfg;
}

static int host_weight(void *ctx, const struct seam_model *m, const char *name,
                       uint32_t mem, struct seam_tensor *out)
{
    struct th *h = ctx;
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
    (void)ctx;
    (void)m;
    (void)name;
    (void)out;
    return SEAM_ENOENT;
}

static int32_t host_token_id(void *ctx, const struct seam_model *m,
                             const char *piece)
{
    struct th *h = ctx;

    (void)m;
    return h->token_id ? h->token_id(h->arg, piece) : SEAM_ENOENT;
}

static int host_block(void *ctx, const struct seam_model *m, uint32_t kind,
                      uint32_t layer, struct seam_lent *out)
{
    struct th *h = ctx;

    (void)m;
    return h->block ? h->block(h->arg, kind, layer, out) : SEAM_ENOENT;
}

static const void *host_extension(void *ctx, const char *id)
{
    struct th *h = ctx;

    return h->extension ? h->extension(h->arg, id) : NULL;
}

static json_t *parse(const char *text)
{
    json_error_t e;
    json_t *v = json_loads(text, JSON_REJECT_DUPLICATES, &e);

    cr_assert_not_null(v, "test JSON: %s in %s", e.text, text);
    return v;
}

struct th *th_new(const char *model_json, const char *plugin_json)
{
    struct th *h = calloc(1, sizeof *h);

    cr_assert_not_null(h);
    h->model_cfg = parse(model_json);
    h->n_workers = 3;
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

static void weight_release(struct th_weight *w)
{
    free(w->name);
    free(w->value);
    free(w->data);
    free(w->scale);
    free(w->zero);
}

void th_free(struct th *h)
{
    if (!h)
        return;
    for (uint32_t i = 0; i < h->n_weights; i++)
        weight_release(&h->weight[i]);
    free(h->weight);
    json_decref(h->model_cfg);
    json_decref(h->plugin_cfg);
    free(h);
}

void th_config(struct th *h, const char *plugin_json)
{
    json_decref(h->plugin_cfg);
    h->plugin_cfg = parse(plugin_json ? plugin_json : "{}");
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
    weight_release(w);
    *w = h->weight[--h->n_weights];
}

const double *th_get(const struct th *h, const char *name)
{
    struct th_weight *w = th_find(h, name);

    cr_assert_not_null(w, "the test has no weight %s", name);
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
    cr_assert_not_null(h->weight);
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
    case TH_GPTQ: {
        uint64_t g = 32, ng = cols / g;
        uint32_t *q = calloc(cols / 8 * rows + 1, 4);
        uint32_t *z = calloc(ng * (rows / 8) + 1, 4);
        uint16_t *s = malloc(ng * rows * sizeof *s + 1);

        cr_assert_eq(cols % g, 0);
        cr_assert_eq(rows % 8, 0);
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
    cr_assert_not_null(w->value);
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

    cr_assert(store == TH_F32 || store == TH_F16 || store == TH_BF16);
    w->value = malloc((n + 1) * sizeof *w->value);
    cr_assert_not_null(w->value);
    memcpy(w->value, v, n * sizeof *v);
    weight_store(w, store, n_out, n_in, false, NULL);
    return w->value;
}

/* ---- Plugins ------------------------------------------------------------- */

const struct seam_plugin *th_plugin(struct th *h, const char *name)
{
    const struct seam_plugin *p;
    struct seam_error err = { 0 };
    char path[512];
    void *dl;

    snprintf(path, sizeof path, "%s/%s.so", SEAM_TEST_PLUGIN_DIR, name);
    dl = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    cr_assert_not_null(dl, "%s", dlerror());
    p = dlsym(dl, "seam_plugin_entry");
    cr_assert_not_null(p, "%s exports no seam_plugin_entry", path);
    cr_assert_eq(p->init(&h->host, &err), SEAM_OK, "%s: %s", name, err.text);
    return p;
}

struct seam_tensor th_view(float *data, int64_t rows, int64_t cols,
                           int64_t stride_floats)
{
    return (struct seam_tensor){
        .data = data,
        .bytes = rows ? (uint64_t)((rows - 1) * stride_floats + cols) * 4 : 0,
        .shape = { rows, cols },
        .stride = { stride_floats * 4 },
        .dtype = SEAM_F32,
        .rank = 2,
        .device = -1,
    };
}

/* ---- Driving a block ----------------------------------------------------- */

enum { GUARD = 256, GAP = 3 }; /* bytes; floats after each activation row */
enum { GUARD_BYTE = 0xa5, DIRT_BYTE = 0x7f };
#define GAP_VALUE 12345.5f

static void *driver_alloc(struct tb *b, uint64_t bytes)
{
    void *p = NULL;

    cr_assert_lt(b->n_mem, 64);
    cr_assert_eq(posix_memalign(&p, 256, bytes ? bytes : 1), 0);
    b->mem[b->n_mem++] = p;
    return p;
}

/* `count` pieces of `bytes`, each followed by GUARD guard bytes. */
static unsigned char *guarded_alloc(struct tb *b, uint64_t bytes, int fill)
{
    unsigned char *p = driver_alloc(b, bytes + GUARD);

    memset(p, fill, bytes);
    memset(p + bytes, GUARD_BYTE, GUARD);
    return p;
}

static void guard_check(const unsigned char *p, const char *what, uint32_t i)
{
    for (int k = 0; k < GUARD; k++)
        if (p[k] != GUARD_BYTE)
            cr_assert_fail("%s %u: guard byte %d was overwritten", what, i, k);
}

static void guards_check(const struct tb *b)
{
    uint32_t copies = b->needs.state_copies ? b->needs.state_copies : 1;

    for (uint32_t l = 0; l < b->needs.n_layers; l++) {
        for (uint32_t p = 0; p < b->needs.n_planes; p++)
            for (uint32_t g = 0; g < b->grant.n_pages; g++)
                guard_check(b->plane[p][l] + g * b->grant.page_stride[p] +
                                b->plane_bytes[p],
                            b->needs.plane[p].name, g);
        for (uint32_t r = 0;
             b->state_bytes && r < b->grant.n_state_rows * copies; r++)
            guard_check(b->state[l] + r * b->grant.state_stride +
                            b->state_bytes,
                        "state copy", r);
    }
    guard_check((unsigned char *)b->keep + b->needs.keep_bytes, "keep", 0);
    guard_check((unsigned char *)b->pinned + b->needs.pinned_bytes, "pinned",
                0);
    guard_check((unsigned char *)b->ws + b->ws_bytes, "ws", 0);
}

static uint64_t round_up(uint64_t v, uint64_t to)
{
    return (v + to - 1) / to * to;
}

static int driver_grant(struct tb *b, struct seam_error *err)
{
    const struct seam_needs *n = &b->needs;
    struct seam_grant *g = &b->grant;
    uint32_t copies = n->state_copies ? n->state_copies : 1;

    cr_assert_leq(n->n_planes, SEAM_MAX_PLANES);
    if (n->page_multiple)
        cr_assert_eq(b->o.page_tokens % n->page_multiple, 0,
                     "the test's page size does not suit the plugin");
    g->size = sizeof *g;
    g->page_tokens = b->o.page_tokens;
    g->n_pages = b->o.n_pages;
    g->n_state_rows = b->o.n_rows;
    for (uint32_t p = 0; p < n->n_planes; p++) {
        b->plane_bytes[p] =
            (uint64_t)n->plane[p].bytes_per_token * g->page_tokens;
        g->page_stride[p] = round_up(b->plane_bytes[p] + GUARD, 256);
        b->plane[p] = driver_alloc(b, n->n_layers * sizeof *b->plane[p]);
        for (uint32_t l = 0; l < n->n_layers; l++) {
            uint64_t bytes = g->n_pages * g->page_stride[p];

            b->plane[p][l] = driver_alloc(b, bytes);
            memset(b->plane[p][l], GUARD_BYTE, bytes);
            for (uint32_t k = 0; k < g->n_pages; k++)
                memset(b->plane[p][l] + k * g->page_stride[p], DIRT_BYTE,
                       b->plane_bytes[p]);
        }
        g->plane[p] = (void *const *)b->plane[p];
    }
    b->state_bytes = n->state_bytes;
    if (n->state_bytes) {
        g->state_stride = round_up(n->state_bytes + GUARD, 256);
        b->state = driver_alloc(b, n->n_layers * sizeof *b->state);
        for (uint32_t l = 0; l < n->n_layers; l++) {
            uint64_t k = g->n_state_rows * copies;

            b->state[l] = driver_alloc(b, k * g->state_stride);
            memset(b->state[l], GUARD_BYTE, k * g->state_stride);
            for (uint64_t i = 0; i < k; i++)
                memset(b->state[l] + i * g->state_stride, 0xff, n->state_bytes);
        }
        g->state = (void *const *)b->state;
    }
    b->keep = guarded_alloc(b, n->keep_bytes, 0);
    b->pinned = guarded_alloc(b, n->pinned_bytes, 0);
    g->keep = n->keep_bytes ? b->keep : NULL;
    g->pinned = n->pinned_bytes ? b->pinned : NULL;
    b->ws_bytes = n->ws_bytes;
    b->ws = guarded_alloc(b, n->ws_bytes, 0xff);
    return b->p->attach ? b->p->attach(b->self, g, err) : SEAM_OK;
}

int tb_new(struct tb **out, struct th *h, const struct tb_opts *o,
           struct seam_error *err)
{
    struct tb *b = calloc(1, sizeof *b);
    struct th_rng r = { h->seed + 99 };
    int rc;

    cr_assert_not_null(b);
    b->h = h;
    b->o = *o;
    if (!b->o.n_layers)
        b->o.n_layers = 1;
    if (!b->o.max_seqs)
        b->o.max_seqs = 4;
    if (!b->o.max_tokens)
        b->o.max_tokens = 64;
    if (!b->o.max_context)
        b->o.max_context = 256;
    if (!b->o.page_tokens)
        b->o.page_tokens = 16;
    if (!b->o.n_rows)
        b->o.n_rows = b->o.max_seqs + 2;
    if (!b->o.n_pages)
        b->o.n_pages =
            (b->o.max_seqs + 1) *
            ((b->o.max_context + b->o.max_draft) / b->o.page_tokens + 2);
    b->layers = driver_alloc(b, b->o.n_layers * sizeof *b->layers);
    for (uint32_t l = 0; l < b->o.n_layers; l++)
        b->layers[l] = o->layer ? o->layer[l] : l;
    b->limits = (struct seam_limits){
        .size = sizeof b->limits,
        .act_dtype = SEAM_F32,
        .max_seqs = b->o.max_seqs,
        .max_tokens = b->o.max_tokens,
        .max_context = b->o.max_context,
        .max_draft = b->o.max_draft,
        .tp_size = 1,
    };
    b->device = (struct seam_device){
        .size = sizeof b->device,
        .ordinal = -1,
        .arch = "x86-64",
        .mem_bytes = 1u << 30,
        .units = 1,
        .wave = 1,
    };
    b->create = (struct seam_create){
        .size = sizeof b->create,
        .n_layers = b->o.n_layers,
        .layer = b->layers,
        .limits = &b->limits,
        .device = &b->device,
        .cfg = th_plugin_cfg(h),
        .model = th_model(h),
    };
    b->p = th_plugin(h, o->plugin);
    b->table = b->p->table;
    rc = b->p->create(&b->create, &b->self, err);
    if (rc) {
        b->self = NULL;
        goto out;
    }
    b->needs.size = sizeof b->needs;
    b->needs.n_layers = b->o.n_layers;
    rc = b->p->needs ? b->p->needs(b->self, &b->needs, err) : SEAM_OK;
    if (!rc)
        rc = driver_grant(b, err);
    if (rc)
        goto out;
    /* Pages in random order. */
    b->free_page = driver_alloc(b, b->o.n_pages * sizeof *b->free_page);
    for (uint32_t i = 0; i < b->o.n_pages; i++) {
        uint32_t j = th_below(&r, i + 1);

        b->free_page[i] = b->free_page[j];
        b->free_page[j] = (int32_t)i;
    }
    b->n_free = b->o.n_pages;
out:
    if (rc) {
        tb_free(b);
        b = NULL;
    }
    *out = b;
    return rc;
}

void tb_free(struct tb *b)
{
    if (!b)
        return;
    if (b->self && b->p->quiesce)
        b->p->quiesce(b->self);
    if (b->self)
        b->p->destroy(b->self);
    for (uint32_t i = 0; i < b->n_mem; i++)
        free(b->mem[i]);
    free(b);
}

void *tb_state(const struct tb *b, uint32_t layer, int32_t row, uint32_t k)
{
    return b->state[layer] +
           ((uint64_t)row * b->needs.state_copies + k) * b->grant.state_stride;
}

static void row_fill(struct tb *b, int32_t row, int byte)
{
    for (uint32_t l = 0; b->state_bytes && l < b->needs.n_layers; l++)
        for (uint32_t k = 0; k < b->needs.state_copies; k++)
            memset(tb_state(b, l, row, k), byte, b->state_bytes);
}

void tb_seq_new(struct tb *b, struct tb_seq *s, int32_t row)
{
    memset(s, 0, sizeof *s);
    s->row = row;
    row_fill(b, row, 0);
}

void tb_seq_end(struct tb *b, struct tb_seq *s)
{
    row_fill(b, s->row, 0xff);
    while (s->n_pages)
        b->free_page[b->n_free++] = s->page[--s->n_pages];
}

void tb_keep(struct tb_seq *s, uint32_t n)
{
    cr_assert(n >= 1 && n <= s->width);
    s->len -= s->width - n;
    s->n_accept = (int32_t)n;
}

int tb_commit(struct tb *b, struct tb_seq *const *s, uint32_t n_seqs)
{
    int32_t row[64], acc[64];
    struct seam_exec e = { .size = sizeof e,
                           .device = -1,
                           .ws = b->ws,
                           .ws_bytes = b->ws_bytes,
                           .err = &b->err };
    int rc = SEAM_OK;

    cr_assert_leq(n_seqs, 64);
    for (uint32_t i = 0; i < n_seqs; i++) {
        row[i] = s[i] ? s[i]->row : -1;
        acc[i] = s[i] ? s[i]->n_accept : 0;
    }
    memset(b->ws, 0xff, b->ws_bytes);
    b->h->hot = true;
    if (b->table->commit)
        rc = b->table->commit(b->self, &e, n_seqs, row, acc);
    b->h->hot = false;
    guards_check(b);
    for (uint32_t i = 0; !rc && i < n_seqs; i++) {
        if (!s[i])
            continue;
        s[i]->n_accept = 0;
        s[i]->width = 0;
        /* All but the first copy are free now. */
        for (uint32_t l = 0; b->state_bytes && l < b->needs.n_layers; l++)
            for (uint32_t k = 1; k < b->needs.state_copies; k++)
                memset(tb_state(b, l, s[i]->row, k), 0xff, b->state_bytes);
    }
    return rc;
}

/* The arrays of one step. */
struct step_mem {
    struct seam_step s;
    int32_t q_start[65], kv_len[64], state_row[64], n_accept[64];
    int32_t *pos, *slot, *page_table;
};

static void step_fill(struct tb *b, struct step_mem *m,
                      const struct tb_part *part, uint32_t n_parts)
{
    uint32_t page = b->o.page_tokens, rows = 0, max_pages = 1;
    bool decode = true;

    memset(m, 0, sizeof *m);
    cr_assert_leq(n_parts, 64);
    for (uint32_t i = 0; i < n_parts; i++) {
        struct tb_seq *q = part[i].seq;

        rows += part[i].n;
        decode &= part[i].n <= 1 + b->o.max_draft;
        if (part[i].n > m->s.max_q)
            m->s.max_q = part[i].n;
        if (!q)
            continue;
        /* The page table reaches max_draft tokens past kv_len. */
        while (q->n_pages * page < q->len + part[i].n + b->o.max_draft) {
            cr_assert(b->n_free > 0 && q->n_pages < 1024, "out of pages");
            q->page[q->n_pages++] = b->free_page[--b->n_free];
        }
        if (q->n_pages > max_pages)
            max_pages = q->n_pages;
        if (q->len + part[i].n > m->s.max_kv)
            m->s.max_kv = q->len + part[i].n;
    }
    m->s.size = sizeof m->s;
    m->s.flags = decode ? SEAM_STEP_DECODE : 0;
    m->s.n_seqs = n_parts;
    m->s.n_tokens = rows + b->tail_pad;
    m->s.max_pages = max_pages;
    m->pos = calloc(m->s.n_tokens + 1, sizeof *m->pos);
    m->slot = calloc(m->s.n_tokens + 1, sizeof *m->slot);
    m->page_table =
        malloc(((size_t)n_parts * max_pages + 1) * sizeof *m->page_table);
    cr_assert(m->pos && m->slot && m->page_table);
    rows = 0;
    for (uint32_t i = 0; i < n_parts; i++) {
        struct tb_seq *q = part[i].seq;

        m->q_start[i] = (int32_t)rows;
        m->kv_len[i] = q ? (int32_t)(q->len + part[i].n) : 0;
        m->state_row[i] = q ? q->row : -1;
        m->n_accept[i] = q ? q->n_accept : 0;
        for (uint32_t t = 0; t < part[i].n; t++, rows++) {
            uint32_t p = q ? q->len + t : 0;

            m->pos[rows] = (int32_t)p;
            m->slot[rows] =
                q ? (int32_t)(q->page[p / page] * (int32_t)page + p % page)
                  : -1;
        }
        for (uint32_t g = 0; g < max_pages; g++)
            m->page_table[i * max_pages + g] =
                q && g < q->n_pages ? q->page[g] : -1;
    }
    m->q_start[n_parts] = (int32_t)rows;
    for (; rows < m->s.n_tokens; rows++)
        m->slot[rows] = -1;
    m->s.q_start = m->q_start;
    m->s.kv_len = m->kv_len;
    m->s.pos = m->pos;
    m->s.slot = m->slot;
    m->s.page_table = m->page_table;
    m->s.state_row = m->state_row;
    m->s.n_accept = m->n_accept;
    m->s.host_q_start = m->q_start;
    m->s.host_kv_len = m->kv_len;
}

int tb_step(struct tb *b, const struct tb_part *part, uint32_t n_parts)
{
    struct step_mem m;
    struct seam_exec e = { .size = sizeof e,
                           .device = -1,
                           .ws = b->ws,
                           .ws_bytes = b->ws_bytes,
                           .ops = b->ops,
                           .ops_self = b->ops_self,
                           .err = &b->err };
    uint32_t d = b->o.d, stride = d + GAP, rows;
    float *x, *y;
    int rc = SEAM_OK;

    step_fill(b, &m, part, n_parts);
    rows = m.s.n_tokens;
    cr_assert_leq(rows, b->o.max_tokens, "the test's step is too long");
    /* One gap row in front of y's first row and behind its last. */
    x = malloc(((size_t)rows * stride + 1) * sizeof *x);
    y = malloc((size_t)(rows + 2) * stride * sizeof *y);
    cr_assert(x && y);
    for (size_t i = 0; i < (size_t)rows * stride; i++)
        x[i] = NAN; /* gaps and padding */
    for (uint32_t i = 0; i < n_parts; i++)
        for (uint32_t t = 0; part[i].seq && t < part[i].n; t++)
            memcpy(x + (size_t)((uint32_t)m.q_start[i] + t) * stride,
                   part[i].x + (size_t)t * d, d * sizeof *x);
    if (b->table->begin) {
        memset(b->ws, 0xff, b->ws_bytes);
        b->h->hot = true;
        rc = b->table->begin(b->self, &e, &m.s);
        b->h->hot = false;
    }
    for (uint32_t l = 0; !rc && l < b->o.n_layers; l++) {
        struct seam_block_args a = {
            .size = sizeof a,
            .layer = l,
            .step = &m.s,
            .x = th_view(x, rows, d, stride),
            .y = th_view(y + stride, rows, d, stride),
        };

        for (size_t i = 0; i < (size_t)(rows + 2) * stride; i++)
            y[i] = GAP_VALUE;
        memset(b->ws, 0xff, b->ws_bytes);
        b->h->hot = true;
        rc = b->table->forward(b->self, &e, &a);
        b->h->hot = false;
        if (rc)
            break;
        for (uint32_t r = 0; r < rows + 2; r++)
            for (uint32_t i = r == 0 || r == rows + 1 ? 0 : d; i < stride; i++)
                if (y[(size_t)r * stride + i] != GAP_VALUE)
                    cr_assert_fail("y: wrote outside row %u", r - 1);
        for (uint32_t r = 0; r < rows; r++)
            for (uint32_t i = 0; m.slot[r] < 0 && i < d; i++)
                if (y[(size_t)(r + 1) * stride + i] != 0)
                    cr_assert_fail("padding row %u is not zero", r);
        for (uint32_t i = 0; i < n_parts; i++)
            for (uint32_t t = 0; part[i].seq && part[i].y && t < part[i].n; t++)
                memcpy(part[i].y + ((size_t)l * part[i].n + t) * d,
                       y + (size_t)((uint32_t)m.q_start[i] + t + 1) * stride,
                       d * sizeof *y);
    }
    guards_check(b);
    cr_assert_eq(b->h->hot_allocs, 0, "the plugin allocated in a hot call");
    for (uint32_t i = 0; !rc && i < n_parts; i++) {
        struct tb_seq *q = part[i].seq;

        if (!q || !part[i].n)
            continue;
        q->len += part[i].n;
        q->width = part[i].n;
        q->n_accept = (int32_t)part[i].n;
    }
    free(x);
    free(y);
    free(m.pos);
    free(m.slot);
    free(m.page_table);
    return rc;
}

int tb_run(struct tb *b, struct tb_seq *s, const float *x, uint32_t n, float *y)
{
    struct tb_part part = { .seq = s, .n = n, .x = x, .y = y };

    return tb_step(b, &part, 1);
}

/* ---- Comparing ----------------------------------------------------------- */

double th_error(const float *a, const double *b, uint64_t n)
{
    double num = 0, den = 1e-300;

    for (uint64_t i = 0; i < n; i++) {
        if (!isfinite(a[i]))
            return INFINITY;
        num += (a[i] - b[i]) * (a[i] - b[i]);
        den += b[i] * b[i];
    }
    return sqrt(num / den);
}

double th_diff(const float *a, const float *b, uint64_t n)
{
    double worst = 0;

    for (uint64_t i = 0; i < n; i++) {
        if (!isfinite(a[i]) || !isfinite(b[i]))
            return INFINITY;
        worst = fmax(worst, fabs((double)a[i] - (double)b[i]));
    }
    return worst;
}
