#include "core/check/drive.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/check/finding.h"

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

    ck_own(b->n_mem < 64, "too many blocks of memory");
    ck_own(!posix_memalign(&p, 256, bytes ? bytes : 1), "out of memory");
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
            ck_fail("M3", "%s %u: guard byte %d was overwritten", what, i, k);
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

    ck_require("M6", n->n_planes <= SEAM_MAX_PLANES,
               "needs: %u planes, at most %d", n->n_planes, SEAM_MAX_PLANES);
    if (n->page_multiple)
        b->o.page_tokens =
            (uint32_t)round_up(b->o.page_tokens, n->page_multiple);
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

    ck_own(b, "out of memory");
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
    ck_own(n >= 1 && n <= s->width, "kept %u of %u", n, s->width);
    s->len -= s->width - n;
    s->n_accept = (int32_t)n;
}

/* One call of the plugin; the first member that is set says which. */
struct call {
    struct tb *b;
    const struct seam_exec *e;
    const struct seam_step *begin;
    const struct seam_block_args *forward;
    const int32_t *row, *n_accept; /* of commit                              */
    uint32_t n;
    int rc;
};

static void call_run(void *arg)
{
    struct call *c = arg;
    const struct seam_block *t = c->b->table;

    th_enter(c->b->h);
    if (c->begin)
        c->rc = t->begin(c->b->self, c->e, c->begin);
    else if (c->forward)
        c->rc = t->forward(c->b->self, c->e, c->forward);
    else
        c->rc = t->commit(c->b->self, c->e, c->n, c->row, c->n_accept);
    th_leave(c->b->h, c->begin ? "begin" : c->forward ? "forward" : "commit");
}

/* With scratch that says nothing. */
static int call(struct call c)
{
    memset(c.b->ws, 0xff, c.b->ws_bytes);
    if (c.b->mover)
        ck_move(c.b->mover, call_run, &c);
    else
        call_run(&c);
    return c.rc;
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

    ck_own(n_seqs <= 64, "%u sequences", n_seqs);
    for (uint32_t i = 0; i < n_seqs; i++) {
        row[i] = s[i] ? s[i]->row : -1;
        acc[i] = s[i] ? s[i]->n_accept : 0;
    }
    if (b->table->commit)
        rc = call((struct call){
            .b = b, .e = &e, .row = row, .n_accept = acc, .n = n_seqs });
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
    ck_own(n_parts <= 64, "%u sequences", n_parts);
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
            ck_own(b->n_free > 0 && q->n_pages < 1024, "out of pages");
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
    ck_own(m->pos && m->slot && m->page_table, "out of memory");
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

/* What no server passes. */
static void step_bend(const struct tb *b, struct seam_block_args *a)
{
    switch (b->bend) {
    case 1:
        a->layer = b->o.n_layers;
        break;
    case 2:
        a->x.dtype = SEAM_I32;
        break;
    case 3:
        a->x.shape[1]--;
        break;
    case 4:
        a->y.dtype = SEAM_I32;
        break;
    default:
        break;
    }
}

int tb_step(struct tb *b, const struct tb_part *part, uint32_t n_parts)
{
    struct step_mem m;
    struct seam_exec e = { .size = sizeof e,
                           .flags = b->exec_flags,
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
    if (b->no_host_arrays)
        m.s.host_q_start = m.s.host_kv_len = NULL;
    rows = m.s.n_tokens;
    ck_own(rows <= b->o.max_tokens, "a step of %u rows", rows);
    /* One gap row in front of y's first row and behind its last. */
    x = malloc(((size_t)rows * stride + 1) * sizeof *x);
    y = malloc((size_t)(rows + 2) * stride * sizeof *y);
    ck_own(x && y, "out of memory");
    for (size_t i = 0; i < (size_t)rows * stride; i++)
        x[i] = NAN; /* gaps and padding */
    for (uint32_t i = 0; i < n_parts; i++)
        for (uint32_t t = 0; part[i].seq && t < part[i].n; t++)
            memcpy(x + (size_t)((uint32_t)m.q_start[i] + t) * stride,
                   part[i].x + (size_t)t * d, d * sizeof *x);
    if (b->table->begin)
        rc = call((struct call){ .b = b, .e = &e, .begin = &m.s });
    for (uint32_t l = 0; !rc && l < b->o.n_layers; l++) {
        struct seam_block_args a = {
            .size = sizeof a,
            .layer = l,
            .step = &m.s,
            .x = th_view(x, rows, d, stride),
            .y = th_view(y + stride, rows, d, stride),
        };

        step_bend(b, &a);
        for (size_t i = 0; i < (size_t)(rows + 2) * stride; i++)
            y[i] = GAP_VALUE;
        rc = call((struct call){ .b = b, .e = &e, .forward = &a });
        if (rc)
            break;
        for (uint32_t r = 0; r < rows + 2; r++)
            for (uint32_t i = r == 0 || r == rows + 1 ? 0 : d; i < stride; i++)
                if (y[(size_t)r * stride + i] != GAP_VALUE)
                    ck_fail("M3", "y: wrote outside row %u", r - 1);
        for (uint32_t r = 0; r < rows; r++)
            for (uint32_t i = 0; m.slot[r] < 0 && i < d; i++)
                if (y[(size_t)(r + 1) * stride + i] != 0)
                    ck_fail("S1", "padding row %u is not zero", r);
        for (uint32_t i = 0; i < n_parts; i++)
            for (uint32_t t = 0; part[i].seq && part[i].y && t < part[i].n; t++)
                memcpy(part[i].y + ((size_t)l * part[i].n + t) * d,
                       y + (size_t)((uint32_t)m.q_start[i] + t + 1) * stride,
                       d * sizeof *y);
    }
    guards_check(b);
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
