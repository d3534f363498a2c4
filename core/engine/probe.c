#include "core/engine/probe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"

#define FIRST 3 /* tokens of the first step; the second brings one           */
#define WORDS 32

/* The steps, as int32_t arrays in device memory; the last is for commit. */
enum { STEP_FIRST = 0, STEP_NEXT = 1, STEP_RESUMED = 2, STEP_COMMIT = 3 };
enum {
    W_Q_START = 0,
    W_KV_LEN = 2,
    W_POS = 4,
    W_SLOT = 8,
    W_PAGE = 12,
    W_ROW = 13,
    W_ACCEPT = 14
};

struct seam_probe {
    struct seam_runtime *rt;
    struct seam_memory_source source;
    const struct seam_instance *fresh;
    const struct runtime_grant *grant; /* of the new one */
    uint32_t d, n_first, n_layers;
    int32_t host[2][4][WORDS]; /* of the new one, of the old one */
    char *dev; /* device: words, x [n_first + 1][d], y [n_first][d]   */
    uint64_t at_x, at_y;
    float *want; /* [n_layers][n_first + 1][d] of the old one                */
    float *got;  /* [n_first][d] */
    double bound;
    bool has_want, done;
    uint32_t next; /* what seam_probe_old computes next                      */
    struct seam_error old_err;
};

/* Who runs: the old one on the engine's thread, or the new one. */
struct probe_run {
    int which; /* of host */
    struct seam_exec exec;
    const struct seam_block *table;
    void *self;
    const struct seam_backend *backend;
    const struct runtime_grant *grant;
    const struct seam_needs *needs;
};

static void probe_fill_steps(struct seam_probe *p, int32_t host[4][WORDS],
                             const struct seam_grant *g)
{
    int32_t n = (int32_t)p->n_first;

    for (int s = STEP_FIRST; s <= STEP_COMMIT; s++) {
        int32_t *w = host[s];
        int32_t from = s == STEP_FIRST ? 0 : n;
        int32_t count = s == STEP_FIRST ? n : 1;

        w[W_Q_START + 1] = count;
        w[W_KV_LEN] = from + count;
        for (int32_t i = 0; i < count; i++) {
            w[W_POS + i] = from + i;
            w[W_SLOT + i] =
                (int32_t)((g->n_pages - 1) * g->page_tokens) + from + i;
        }
        w[W_PAGE] = (int32_t)g->n_pages - 1;
        w[W_ROW] = (int32_t)g->n_state_rows - 1;
        w[W_ACCEPT] = s == STEP_NEXT || s == STEP_COMMIT ? n : 0;
    }
}

/* Activations of about the size that a norm leaves. */
static int probe_fill_x(struct seam_probe *p, struct seam_error *err)
{
    uint64_t n = (uint64_t)(p->n_first + 1) * p->d;
    float *x = malloc(n * sizeof *x);
    uint32_t seed = 12345;
    int rc;

    if (!x)
        return seam_fail(err, SEAM_ENOMEM, "out of memory");
    for (uint64_t i = 0; i < n; i++) {
        float sum = 0;

        for (int k = 0; k < 3; k++) {
            seed = seed * 1664525u + 1013904223u;
            sum += (float)(seed >> 8) / 8388608.0f - 1;
        }
        x[i] = sum;
    }
    rc = p->source.table->copy(p->source.self, p->source.stream,
                               p->dev + p->at_x, x, n * sizeof *x, err);
    if (!rc)
        rc = p->source.table->copy(p->source.self, p->source.stream, p->dev,
                                   p->host, sizeof p->host, err);
    if (!rc)
        rc =
            p->source.table->stream_wait(p->source.self, p->source.stream, err);
    free(x);
    return rc;
}

int seam_probe_new(struct seam_probe **out, struct seam_runtime *rt,
                   const struct seam_memory_source *source,
                   const struct seam_instance *fresh,
                   const struct runtime_grant *grant, struct seam_error *err)
{
    struct seam_probe *p = calloc(1, sizeof *p);
    int rc;

    if (!p)
        return seam_fail(err, SEAM_ENOMEM, "out of memory");
    p->rt = rt;
    p->source = *source;
    p->fresh = fresh;
    p->grant = grant;
    p->d = seam_checkpoint_config(rt->model.checkpoint)->hidden;
    p->n_first = rt->limits.max_tokens < FIRST ? 1 : FIRST;
    p->n_layers = fresh->n_layers;
    p->at_x = seam_round_up(sizeof p->host, 256);
    p->at_y =
        p->at_x + seam_round_up((uint64_t)(p->n_first + 1) * p->d * 4, 256);
    p->want = calloc((size_t)p->n_layers * (p->n_first + 1) * p->d + 1,
                     sizeof *p->want);
    p->got = calloc((size_t)p->n_first * p->d, sizeof *p->got);
    rc = p->want && p->got
             ? seam_memory_alloc(source, SEAM_MEM_DEVICE,
                                 p->at_y + (uint64_t)p->n_first * p->d * 4,
                                 (void **)&p->dev, err)
             : seam_fail(err, SEAM_ENOMEM, "out of memory");
    probe_fill_steps(p, p->host[0], &grant->grant);
    probe_fill_steps(p, p->host[1], &rt->memory->block[fresh->role].grant);
    if (!rc)
        rc = probe_fill_x(p, err);
    if (rc) {
        seam_probe_free(p);
        return rc;
    }
    *out = p;
    return 0;
}

void seam_probe_free(struct seam_probe *p)
{
    if (!p)
        return;
    seam_memory_free(&p->source, SEAM_MEM_DEVICE, p->dev);
    free(p->want);
    free(p->got);
    free(p);
}

/* ---- Running ------------------------------------------------------------- */

static int probe_zero(const struct seam_probe *p, const struct probe_run *r,
                      uint32_t layer, struct seam_error *err)
{
    uint64_t bytes = r->grant->grant.state_stride * r->needs->state_copies;

    if (!r->grant->state || layer >= r->grant->n_layers)
        return 0;
    return r->backend->fill(r->exec.ops_self, r->exec.stream,
                            (char *)r->grant->state[layer] +
                                (uint64_t)p->host[r->which][0][W_ROW] * bytes,
                            0, bytes, err);
}

static int probe_commit(const struct seam_probe *p, const struct probe_run *r)
{
    const int32_t *w =
        (const int32_t *)p->dev + (r->which * 4 + STEP_COMMIT) * WORDS;

    return r->needs->state_bytes
               ? r->table->commit(r->self, &r->exec, 1, w + W_ROW, w + W_ACCEPT)
               : 0;
}

/* One layer of one step, to host memory out [tokens][d]. */
static int probe_layer(struct seam_probe *p, const struct probe_run *r, int s,
                       uint32_t layer, float *out, struct seam_error *err)
{
    const int32_t *host = p->host[r->which][s];
    const int32_t *w = (const int32_t *)p->dev + (r->which * 4 + s) * WORDS;
    uint32_t n = (uint32_t)host[W_Q_START + 1];
    uint64_t bytes = (uint64_t)n * p->d * sizeof *out;
    struct seam_step step = {
        .size = sizeof step,
        .flags = n == 1 ? SEAM_STEP_DECODE : 0,
        .n_seqs = 1,
        .n_tokens = n,
        .max_q = n,
        .max_kv = (uint32_t)host[W_KV_LEN],
        .max_pages = 1,
        .q_start = w + W_Q_START,
        .kv_len = w + W_KV_LEN,
        .pos = w + W_POS,
        .slot = w + W_SLOT,
        .page_table = w + W_PAGE,
        .state_row = w + W_ROW,
        .n_accept = w + W_ACCEPT,
        .host_q_start = host + W_Q_START,
        .host_kv_len = host + W_KV_LEN,
    };
    struct seam_tensor t = {
        .bytes = bytes,
        .shape = { n, p->d },
        .stride = { (int64_t)p->d * 4 },
        .dtype = SEAM_F32,
        .rank = 2,
        .device = p->rt->device.ordinal,
    };
    struct seam_block_args a = {
        .size = sizeof a, .layer = layer, .step = &step, .x = t, .y = t
    };
    int rc;

    a.x.data = p->dev + p->at_x +
               (s == STEP_FIRST ? 0 : (uint64_t)p->n_first * p->d * 4);
    a.y.data = p->dev + p->at_y;
    /* What is not written shows as not finite. */
    rc = r->backend->fill(r->exec.ops_self, r->exec.stream, a.y.data, 0xff,
                          bytes, err);
    if (!rc && r->table->begin)
        rc = r->table->begin(r->self, &r->exec, &step);
    if (!rc)
        rc = r->table->forward(r->self, &r->exec, &a);
    if (!rc)
        rc = r->backend->copy(r->exec.ops_self, r->exec.stream, out, a.y.data,
                              bytes, err);
    return rc ? rc
              : r->backend->stream_wait(r->exec.ops_self, r->exec.stream, err);
}

/* ---- The old one --------------------------------------------------------- */

/* The order is: the first step of all layers, the next of all layers, and, for
 * whoever goes on from it, the first again and a commit. */
static int probe_old_item(struct seam_probe *p, const struct probe_run *r,
                          struct seam_error *err)
{
    uint32_t pass = p->next / p->n_layers, layer = p->next % p->n_layers;
    float *want = p->want + (size_t)layer * (p->n_first + 1) * p->d;
    int rc = pass == 1 ? 0 : probe_zero(p, r, layer, err);

    if (rc)
        return rc;
    if (pass == 1)
        return probe_layer(p, r, STEP_NEXT, layer,
                           want + (size_t)p->n_first * p->d, err);
    rc = probe_layer(p, r, STEP_FIRST, layer, pass ? p->got : want, err);
    if (!rc && pass == 2 && layer == p->n_layers - 1)
        rc = probe_commit(p, r);
    return rc;
}

bool seam_probe_old(struct seam_probe *p, uint64_t budget_ns)
{
    enum seam_role role = p->fresh->role;
    const struct seam_needs *needs = &p->rt->needs[role];
    struct seam_error *err = &p->old_err;
    struct probe_run r = {
        .which = 1,
        .exec = seam_runtime_exec(p->rt, err),
        .table = &p->rt->plugin[role]->table.block,
        .self = p->rt->self[role],
        .backend = p->rt->backend,
        .grant = &p->rt->memory->block[role],
        .needs = needs,
    };
    uint32_t passes = needs->state_bytes || needs->n_planes ? 3 : 2;
    uint64_t until = seam_now_ns() + budget_ns;

    while (!p->done) {
        if (p->next >= passes * p->n_layers)
            p->done = p->has_want = true;
        else if (probe_old_item(p, &r, err))
            p->done = true; /* the way out must stay open */
        p->next++;
        if (seam_now_ns() >= until)
            break;
    }
    return !p->done;
}

/* ---- The new one --------------------------------------------------------- */

static int probe_judge(const struct seam_probe *p, uint32_t layer, uint32_t n,
                       const float *want, struct seam_error *err)
{
    double diff = 0, norm = 0;
    uint32_t model_layer = p->fresh->layer[layer];

    for (uint64_t i = 0; i < (uint64_t)n * p->d; i++) {
        double g = (double)p->got[i];

        if (!isfinite(g) || fabs(g) > SEAM_PROBE_LARGEST)
            return seam_fail(err, SEAM_EDATA,
                             "%s: trial: layer %u answers %g; expected a "
                             "finite number of at most %g",
                             p->fresh->host.name, model_layer, g,
                             SEAM_PROBE_LARGEST);
        if (want) {
            double w = (double)want[i];

            diff += (g - w) * (g - w);
            norm += w * w;
        }
    }
    if (want && sqrt(diff) > p->bound * sqrt(norm) + 1e-6)
        return seam_fail(err, SEAM_EDATA,
                         "%s: trial: layer %u differs by %.3g of its norm "
                         "from the plugin in use; expected at most %g",
                         p->fresh->host.name, model_layer,
                         sqrt(diff / (norm + 1e-30)), p->bound);
    return 0;
}

static int probe_step(struct seam_probe *p, const struct probe_run *r, int s,
                      bool zero, struct seam_error *err)
{
    for (uint32_t l = 0; l < p->n_layers; l++) {
        float *want = p->want + (size_t)l * (p->n_first + 1) * p->d;
        int rc = zero ? probe_zero(p, r, l, err) : 0;

        if (!rc)
            rc = probe_layer(p, r, s, l, p->got, err);
        if (rc) /* some return a code alone */
            return *err->text ? seam_fail_at(err, p->fresh->host.name)
                              : seam_fail(err, rc, "%s: trial: code %d",
                                          p->fresh->host.name, rc);
        if (s != STEP_FIRST)
            want += (size_t)p->n_first * p->d;
        rc = probe_judge(p, l, (uint32_t)p->host[0][s][W_Q_START + 1],
                         p->has_want ? want : NULL, err);
        if (rc)
            return rc;
    }
    return 0;
}

int seam_probe_new_one(struct seam_probe *p, void *ws, uint64_t ws_bytes,
                       bool resume, struct seam_error *err)
{
    struct probe_run r = {
        .exec = {
            .size = sizeof r.exec,
            .device = p->rt->device.ordinal,
            .stream = p->source.stream,
            .ws = ws,
            .ws_bytes = ws_bytes,
            .ops = p->source.table->ops,
            .ops_self = p->source.self,
            .err = err,
        },
        .table = &p->fresh->plugin->table.block,
        .self = p->fresh->self,
        .backend = p->source.table,
        .grant = p->grant,
        .needs = &p->fresh->needs,
    };
    int rc = 0;

    *err = (struct seam_error){ 0 };
    p->bound = resume ? SEAM_PROBE_BOUND : SEAM_PROBE_OTHER_BOUND;
    if (resume && p->has_want)
        rc = probe_step(p, &r, STEP_RESUMED, false, err);
    if (!rc)
        rc = probe_step(p, &r, STEP_FIRST, true, err);
    if (!rc)
        rc = probe_step(p, &r, STEP_NEXT, false, err);
    if (!rc && (rc = probe_commit(p, &r)))
        return seam_fail(err, rc, "%s: trial: commit fails with code %d",
                         p->fresh->host.name, rc);
    return rc;
}

/* ---- Parsers ------------------------------------------------------------- */

struct probe_text {
    const struct seam_tokenizer *t;
    const char *what; /* what is wrong, or NULL */
    uint64_t bytes;
};

static int probe_event(void *ctx, uint32_t kind, uint32_t index, const char *s,
                       uint64_t n)
{
    struct probe_text *x = ctx;

    (void)index;
    if (kind < SEAM_EV_TEXT || kind > SEAM_EV_SPECIAL)
        x->what = "an event of unknown kind";
    else if (kind == SEAM_EV_SPECIAL && seam_tokenizer_id(x->t, s, n) < 0)
        x->what = "a special token that the tokenizer lacks";
    x->bytes += n;
    return x->what ? SEAM_EDATA : 0;
}

static int probe_parse(const struct seam_instance *fresh, struct probe_text *x,
                       struct seam_error *err)
{
    static const char answer[] = "It is 7 < 8.\n";
    const struct seam_parser *p = &fresh->plugin->table.parser;
    struct seam_sink sink = { .ctx = x, .event = probe_event };
    struct seam_parse_opts o = { .size = sizeof o };
    struct seam_ids ids = { 0 };
    void *stream = NULL;
    int rc = seam_tokenizer_encode(x->t, answer, sizeof answer - 1, false, &ids,
                                   err);

    if (rc)
        return rc;
    x->bytes = 0;
    rc = p->open(fresh->self, &o, &sink, &stream, err);
    if (!rc) {
        for (size_t i = 0; i < ids.n && !rc; i++) {
            struct seam_str piece;

            rc = seam_tokenizer_bytes(x->t, ids.v[i], &piece)
                     ? p->feed(stream, 1, &ids.v[i], piece)
                     : 0;
        }
        if (!rc)
            rc = p->finish(stream, SEAM_END_STOP);
        p->close(stream);
    }
    seam_ids_release(&ids);
    /* What fits no rule is text: of plain words none may be lost. */
    if (!rc && x->bytes != sizeof answer - 1)
        x->what = "plain text that is lost";
    return rc;
}

int seam_probe_parser(const struct seam_instance *fresh,
                      const struct seam_tokenizer *t, struct seam_error *err)
{
    static const char request[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"7 or 8?\"}]}";
    const struct seam_parser *p = &fresh->plugin->table.parser;
    struct probe_text x = { .t = t };
    struct seam_sink sink = { .ctx = &x, .event = probe_event };
    int rc = 0;

    *err = (struct seam_error){ 0 };
    if (p->render)
        rc = p->render(fresh->self,
                       (struct seam_str){ request, sizeof request - 1 }, &sink,
                       err);
    if (!rc && p->render && !x.bytes)
        x.what = "an empty prompt";
    if (!rc && !x.what)
        rc = probe_parse(fresh, &x, err);
    if (x.what)
        return seam_fail(err, SEAM_EDATA, "%s: trial: the parser gives %s",
                         fresh->host.name, x.what);
    if (rc && !*err->text)
        return seam_fail(err, rc, "%s: trial: code %d", fresh->host.name, rc);
    return rc ? seam_fail_at(err, fresh->host.name) : 0;
}
