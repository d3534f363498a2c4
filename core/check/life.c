/* Group life: every legal order of calls, and creating in adverse conditions. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/check/hook.h"
#include "core/check/suite.h"

uint32_t ck_threads(void)
{
    DIR *d = opendir("/proc/self/task");
    uint32_t n = 0;

    if (!d)
        return 0;
    for (struct dirent *e; (e = readdir(d));)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

/* A tokenizer that has every piece: ids by their bytes. */
static int32_t any_token(void *arg, const char *piece)
{
    uint32_t id = 7;

    (void)arg;
    while (*piece)
        id = id * 31 + (unsigned char)*piece++;
    return (int32_t)(id % 150000);
}

struct th *ck_world(const struct ck_subject *s, struct world *w)
{
    struct th *h;

    w->seed += s->seed;
    h = world_new(w, s->family, s->config);
    h->token_id = any_token;
    th_seal(h);
    return h;
}

/* ---- Making an instance -------------------------------------------------- */

void ck_made_init(struct ck_made *m, struct th *h, const char *plugin)
{
    memset(m, 0, sizeof *m);
    m->h = h;
    m->limits = (struct seam_limits){
        .size = sizeof m->limits,
        .act_dtype = SEAM_F32,
        .max_seqs = 4,
        .max_tokens = 32,
        .max_context = 64,
        .max_draft = 3,
        .tp_size = 1,
    };
    m->device = (struct seam_device){
        .size = sizeof m->device,
        .ordinal = -1,
        .arch = "x86-64",
        .mem_bytes = 1u << 30,
        .units = 1,
        .wave = 1,
    };
    m->create = (struct seam_create){
        .size = sizeof m->create,
        .n_layers = 1,
        .layer = m->layer,
        .limits = &m->limits,
        .device = &m->device,
        .cfg = th_plugin_cfg(h),
        .model = th_model(h),
    };
    m->p = th_plugin(h, plugin);
}

/* One line, NUL-terminated, not empty. */
static bool is_line(const struct seam_error *e)
{
    const char *end = memchr(e->text, 0, sizeof e->text);

    return end && end > e->text && !strpbrk(e->text, "\r\n");
}

static void error_check(const struct seam_error *e, int rc, const char *call)
{
    static const struct seam_error clean = { .code = 0x5a5a5a5a };

    if (!rc) {
        ck_require("E5", !memcmp(e, &clean, sizeof clean),
                   "%s succeeded and touched the error", call);
        return;
    }
    ck_require("E5", rc < 0 && rc >= SEAM_ESTATE,
               "%s returned %d, no code of the contract", call, rc);
    ck_require("E5", e->code == rc, "%s returned %d and left code %d", call, rc,
               e->code);
    ck_require("E5", is_line(e), "%s failed with %d and left no line of text",
               call, rc);
}

int ck_made_create(struct ck_made *m)
{
    int64_t live = m->h->live, own = ck_hook_live();
    uint32_t threads = ck_threads();
    int rc;

    m->err = (struct seam_error){ .code = 0x5a5a5a5a };
    m->self = NULL;
    rc = m->p->create(&m->create, &m->self, &m->err);
    error_check(&m->err, rc, "create");
    th_misuse_check(m->h, "create");
    if (!rc)
        return rc;
    ck_require("E2", m->h->live == live && ck_hook_live() <= own,
               "create failed (%s) and left %lld blocks of the host and %lld "
               "of its own",
               m->err.text, (long long)(m->h->live - live),
               (long long)(ck_hook_live() - own));
    ck_require("E2", ck_threads() == threads,
               "create failed (%s) and left a thread", m->err.text);
    m->self = NULL;
    return rc;
}

void ck_made_destroy(struct ck_made *m)
{
    if (m->self)
        m->p->destroy(m->self);
    m->self = NULL;
}

/* ---- Orders -------------------------------------------------------------- */

/* needs and attach with memory of our own; how far says where to stop. */
struct granted {
    struct seam_needs needs;
    unsigned char canary[64];
    void *plane[SEAM_MAX_PLANES][64], *state[64];
    struct seam_grant g;
    void *mem[2 + 2 * SEAM_MAX_PLANES];
    uint32_t n_mem;
};

static void *grant_block(struct granted *g, uint64_t bytes)
{
    void *p = NULL;

    ck_own(!posix_memalign(&p, 256, bytes ? bytes : 1), "out of memory");
    memset(p, 0, bytes);
    g->mem[g->n_mem++] = p;
    return p;
}

static void grant_all(struct ck_made *m, struct granted *g, bool attach)
{
    struct seam_error err = { .code = 0x5a5a5a5a };
    struct seam_needs again;
    int rc;

    memset(g, 0, sizeof *g);
    memset(g->canary, 0xc3, sizeof g->canary);
    if (!m->p->needs)
        return;
    /* A host newer than the plugin has a longer struct. */
    g->needs.size = sizeof g->needs + sizeof g->canary;
    g->needs.n_layers = 1;
    rc = m->p->needs(m->self, &g->needs, &err);
    error_check(&err, rc, "needs");
    ck_require("E5", !rc, "needs: %s", err.text);
    for (size_t i = 0; i < sizeof g->canary; i++)
        ck_require("M3", g->canary[i] == 0xc3,
                   "needs wrote behind the struct it knows");
    ck_require("M6", g->needs.n_planes <= SEAM_MAX_PLANES && g->needs.n_layers,
               "needs: %u planes, %u layers", g->needs.n_planes,
               g->needs.n_layers);
    for (uint32_t p = 0; p < g->needs.n_planes; p++)
        ck_require("M6",
                   g->needs.plane[p].bytes_per_token &&
                       memchr(g->needs.plane[p].name, 0, 16),
                   "needs: plane %u has no bytes or no name", p);
    ck_require("M6", !g->needs.state_bytes || g->needs.state_copies,
               "needs: state without a copy");
    ck_require("M6", g->needs.aux_streams <= 4, "needs: %u aux streams",
               g->needs.aux_streams);
    memset(&again, 0, sizeof again);
    again.size = sizeof again;
    if (!attach)
        return;
    g->g = (struct seam_grant){
        .size = sizeof g->g,
        .page_tokens = g->needs.page_multiple ? g->needs.page_multiple * 4 : 16,
        .n_pages = 2,
        .n_state_rows = 2,
    };
    for (uint32_t p = 0; p < g->needs.n_planes; p++) {
        g->g.page_stride[p] =
            ((uint64_t)g->g.page_tokens * g->needs.plane[p].bytes_per_token +
             255) /
            256 * 256;
        g->plane[p][0] = grant_block(g, 2 * g->g.page_stride[p]);
        g->g.plane[p] = g->plane[p];
    }
    if (g->needs.state_bytes) {
        g->g.state_stride = (g->needs.state_bytes + 255) / 256 * 256;
        g->state[0] =
            grant_block(g, 2 * g->needs.state_copies * g->g.state_stride);
        g->g.state = g->state;
    }
    if (g->needs.keep_bytes)
        g->g.keep = grant_block(g, g->needs.keep_bytes);
    if (g->needs.pinned_bytes)
        g->g.pinned = grant_block(g, g->needs.pinned_bytes);
    err.code = 0x5a5a5a5a;
    rc = m->p->attach(m->self, &g->g, &err);
    error_check(&err, rc, "attach");
    ck_require("E5", !rc, "attach: %s", err.text);
}

static void grant_free(struct granted *g)
{
    while (g->n_mem)
        free(g->mem[--g->n_mem]);
}

static void quiesce(struct ck_made *m, uint32_t threads)
{
    struct timespec t0, t1;

    if (!m->p->quiesce)
        return;
    clock_gettime(CLOCK_MONOTONIC, &t0);
    m->p->quiesce(m->self);
    clock_gettime(CLOCK_MONOTONIC, &t1);
    ck_require("D1", t1.tv_sec - t0.tv_sec < 6, "quiesce took %ld s",
               (long)(t1.tv_sec - t0.tv_sec));
    ck_require("T2", ck_threads() <= threads,
               "%u threads after quiesce, %u before create", ck_threads(),
               threads);
}

/* far 0: create; 1: needs; 2: attach; 3: quiesce. */
static void life(struct ck_made *m, uint32_t far)
{
    int64_t live = m->h->live, own = ck_hook_live();
    uint32_t threads = ck_threads();
    struct granted g = { 0 };

    ck_require("E5", !ck_made_create(m), "create: %s", m->err.text);
    if (far)
        grant_all(m, &g, far > 1);
    if (far > 2)
        quiesce(m, threads);
    ck_made_destroy(m);
    grant_free(&g);
    ck_require("E2", m->h->live == live && ck_hook_live() <= own,
               "destroy left %lld blocks of the host and %lld of its own",
               (long long)(m->h->live - live),
               (long long)(ck_hook_live() - own));
    ck_require("T2", ck_threads() <= threads, "destroy left a thread");
}

void ck_life_order(const struct ck_subject *s)
{
    struct world w = { .seed = 1 };
    struct th *h = ck_world(s, &w);
    struct granted ga, gb;
    struct ck_made a, b;
    uint32_t threads;
    int64_t live, own;

    ck_made_init(&a, h, CK_PLUGIN);
    for (uint32_t turn = 0; turn < 2; turn++)
        for (uint32_t far = 0; far < 4; far++)
            life(&a, far);
    /* Two at once, ended in the order of their making. */
    threads = ck_threads();
    live = h->live;
    own = ck_hook_live();
    ck_made_init(&b, h, CK_PLUGIN);
    ck_require("D3", !ck_made_create(&a) && !ck_made_create(&b),
               "a second instance: %s", b.err.text);
    grant_all(&a, &ga, true);
    grant_all(&b, &gb, true);
    quiesce(&a, UINT32_MAX);
    ck_made_destroy(&a);
    grant_free(&ga);
    quiesce(&b, threads);
    ck_made_destroy(&b);
    grant_free(&gb);
    ck_require("E2", h->live == live && ck_hook_live() <= own,
               "two instances left memory");
    /* What a newer host passes is longer than what the plugin knows. */
    {
        struct {
            struct seam_create c;
            char more[64];
        } longer = { .c = a.create };

        struct {
            struct seam_limits l;
            char more[64];
        } limits = { .l = a.limits };

        memset(longer.more, 0xee, sizeof longer.more);
        memset(limits.more, 0xee, sizeof limits.more);
        longer.c.size = sizeof longer;
        limits.l.size = sizeof limits;
        longer.c.limits = &limits.l;
        a.err.code = 0;
        ck_require("V1", !a.p->create(&longer.c, &a.self, &a.err),
                   "longer structs are refused: %s", a.err.text);
        ck_made_destroy(&a);
    }
    if (a.p->fini)
        a.p->fini();
    ck_require("E2", h->live == 0, "fini left %lld blocks of the host",
               (long long)h->live);
}

/* ---- Failing ------------------------------------------------------------- */

void ck_life_alloc(const struct ck_subject *s)
{
    struct world w = { .seed = 1 };
    struct th *h = ck_world(s, &w);
    struct ck_made m;

    ck_made_init(&m, h, CK_PLUGIN);
    for (uint32_t of_host = 0; of_host < 2; of_host++)
        for (int n = 1; n < 20000; n++) {
            int rc, left;

            if (of_host)
                h->fail_alloc = n;
            else
                ck_hook_fail(n);
            rc = ck_made_create(&m);
            left = of_host ? h->fail_alloc : ck_hook_left();
            h->fail_alloc = 0;
            ck_hook_fail(0);
            ck_made_destroy(&m);
            ck_require("E2", !rc || rc == SEAM_ENOMEM,
                       "allocation %d failed: create gave code %d: %s", n, rc,
                       m.err.text);
            if (left)
                break;
        }
}

/* Each weight that create asks for, missing or of another shape. */
void ck_life_weights(const struct ck_subject *s)
{
    struct world w = { .seed = 1 };
    struct th *h = ck_world(s, &w);
    struct ck_made m;

    ck_made_init(&m, h, CK_PLUGIN);
    for (uint32_t i = 0; i < h->n_weights; i++) {
        struct seam_tensor t = h->weight[i].t;
        char *name = h->weight[i].name;
        char none[] = "?";
        int missing, shape;

        h->weight[i].name = none;
        missing = ck_made_create(&m);
        ck_made_destroy(&m);
        h->weight[i].name = name;
        h->weight[i].t.shape[0] += 8;
        shape = ck_made_create(&m);
        ck_made_destroy(&m);
        h->weight[i].t = t;
        ck_require("E7", !missing == !shape,
                   "%s: missing gives code %d, another shape %d", name, missing,
                   shape);
    }
}

/* Values of a type that nobody expects. */
void ck_life_config(const struct ck_subject *s)
{
    struct world w = { .seed = 1 };
    struct th *h = ck_world(s, &w);
    struct ck_made m;
    static const char *const bad[] = { "[]",           "{}",   "-1",  "1e300",
                                       "\"\xc3\xa9\"", "true", "null" };
    char *asked;

    ck_made_init(&m, h, CK_PLUGIN);
    h->n_asked = 0;
    ck_require("E5", !ck_made_create(&m), "create: %s", m.err.text);
    ck_made_destroy(&m);
    asked = malloc(sizeof h->asked);
    ck_own(asked, "out of memory");
    memcpy(asked, h->asked, sizeof h->asked);
    for (uint32_t i = 0, n = h->n_asked; i < n; i++)
        for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
            const char *key = asked + i * sizeof *h->asked;
            char text[160];

            if (strpbrk(key, ".[\"\\"))
                continue;
            snprintf(text, sizeof text, "{\"%s\": %s}", key, bad[k]);
            th_config(h, text);
            m.create.cfg = th_plugin_cfg(h);
            ck_made_create(&m); /* may do as it likes, but cleanly */
            ck_made_destroy(&m);
        }
    th_config(h, "{\"no such key\": {\"a\": [1, null, \"x\"]}}");
    m.create.cfg = th_plugin_cfg(h);
    ck_require("E7", !ck_made_create(&m),
               "keys it does not ask for made create fail: %s", m.err.text);
    ck_made_destroy(&m);
    free(asked);
}

/* Sizes, dtypes and devices: taken, or refused with a reason. */
void ck_life_limits(const struct ck_subject *s)
{
    struct world w = { .seed = 1 };
    struct th *h = ck_world(s, &w);
    struct ck_made m;

    for (uint32_t i = 0; i < 6; i++) {
        int rc;

        ck_made_init(&m, h, CK_PLUGIN);
        switch (i) {
        case 0:
            m.limits.act_dtype = SEAM_BF16;
            break;
        case 1:
            m.limits.act_dtype = SEAM_F16;
            break;
        case 2:
            m.limits.max_draft = 0;
            break;
        case 3:
            m.limits.tp_size = 2;
            break;
        case 4:
            m.limits.max_tokens = m.limits.max_seqs = 1;
            break;
        default:
            m.device.ordinal = 0;
            break;
        }
        rc = ck_made_create(&m);
        ck_made_destroy(&m);
        ck_require("E7", (i != 2 && i != 4) || !rc, "%s is refused: %s",
                   i == 2 ? "max_draft 0" : "one token", m.err.text);
        ck_require("E7", i != 5 || s->ident.gpu[0] || rc,
                   "a plugin without GPU code was made for device 0");
    }
    /* A model that says nothing about itself. */
    ck_made_init(&m, h, CK_PLUGIN);
    th_model_config(h, "{}");
    ck_made_create(&m);
    ck_made_destroy(&m);
}
