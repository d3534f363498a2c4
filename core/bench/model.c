#include "core/bench/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/bench/bytes.h"
#include "core/bench/report.h"
#include "core/bench/watch.h"
#include "core/engine/runtime.h"

/* One configuration.  Two of them are measured alternately. */
struct side {
    struct seam_runtime *rt;
    struct seam_watch watch;
    struct seam_counting_host host[SEAM_N_ROLES];
    void *state[SEAM_BENCH_MAX_POINTS]; /* the row at each point              */
    uint32_t n_done;
    int32_t n_accept;
    struct seam_bench_weights weights;
    double load_ms;
};

struct measured {
    struct seam_samples rate;
    struct seam_watch_sum sum[SEAM_N_WATCHED];
    uint64_t launches, steps;
    double ns; /* of all runs together                                        */
};

/* A context that runs begin with. */
struct point {
    uint32_t context;
    struct measured measured[2]; /* of the sides                              */
    /* By run, of reading the mean of what was read before and after it: that
     * changes from one to the next. */
    struct seam_ceilings ceilings;
};

struct bench {
    const struct seam_bench_model_opts *o;
    struct side side[2];
    uint32_t n_sides;
    struct seam_pool *pool; /* of the first side                              */
    struct seam_machine *machine;
    const struct seam_model_config *m;
    uint32_t n_pages;
    int32_t *page;  /* [n_seqs][n_pages]                                      */
    int32_t *token; /* [longest]                                              */
    uint32_t longest;
    /* Of a step that decodes. */
    struct seam_step_seq *seq;     /* [n_seqs]                                */
    struct seam_sample_row *row;   /* [n_seqs]                                */
    struct seam_sample_out *drawn; /* [n_seqs]                                */
    int32_t *last;                 /* [n_seqs] 0, 1, 2, ...                   */
    struct point *point; /* [n_contexts], ascending                           */
    struct seam_ceilings all, now;
    double first_ms; /* from the beginning of loading to the first token      */
    json_t *points;
};

/* ---- Bytes --------------------------------------------------------------- */

/* What a step with one token for each of n sequences at `context` makes each
 * part read, if nothing is read twice. */
static void side_bytes(const struct bench *b, const struct side *s, uint32_t n,
                       uint32_t context, struct seam_bench_bytes *out)
{
    const struct seam_bench_weights *w = &s->weights;
    struct seam_bench_bytes cached;
    uint64_t experts =
        (uint64_t)((double)w->expert_bytes *
                   seam_bench_experts(b->m->n_experts, b->m->experts_per_token,
                                      n));
    uint64_t rows = (n - 1) * w->bytes.part[SEAM_WATCH_EMBED];

    *out = w->bytes;
    out->part[SEAM_WATCH_MOE] += experts - out->experts;
    out->part[SEAM_WATCH_EMBED] += rows;
    out->all += experts - out->experts + rows;
    out->experts = experts;
    for (int r = SEAM_ROLE_LINEAR; r <= SEAM_ROLE_MOE; r++) {
        uint64_t k = (uint64_t)n * s->rt->needs[r].n_layers;

        seam_bench_cached(s->rt, (enum seam_role)r, context, &cached);
        out->part[seam_watch_role[r]] += k * (cached.state + cached.cache);
        out->state += k * cached.state;
        out->cache += k * cached.cache;
    }
    out->all += out->state + out->cache;
}

/* ---- Steps --------------------------------------------------------------- */

static int side_feed(struct bench *b, struct side *s, uint32_t n,
                     struct seam_error *err)
{
    struct seam_step_seq q = {
        .token = b->token + s->n_done,
        .n = n,
        .pos = s->n_done,
        .page = b->page,
        .n_pages = b->n_pages,
        .n_accept = s->n_accept,
    };
    struct seam_sample_row row = { .top_p = 1 };
    struct seam_sample_out out = { 0 };
    int32_t last = (int32_t)n - 1;
    uint64_t from;
    int rc = seam_runtime_forward(s->rt, &q, 1, &last, 1, err);

    from = seam_now_ns();
    if (!rc)
        rc = seam_runtime_sample(s->rt, 0, 1, &row, 0, &out, err);
    if (!rc && out.token < 0)
        rc = seam_fail(err, SEAM_EDATA,
                       "the logits after %u tokens are not finite",
                       s->n_done + n);
    if (rc)
        return rc;
    s->watch.sum[SEAM_WATCH_SAMPLE].ns += seam_now_ns() - from;
    s->watch.sum[SEAM_WATCH_SAMPLE].calls++;
    s->n_done += n;
    s->n_accept = (int32_t)n;
    return 0;
}

/* One token for each sequence; all of them stand at the same place. */
static int side_decode(struct bench *b, struct side *s, struct seam_error *err)
{
    uint32_t n = b->o->n_seqs;
    uint64_t from;
    int rc;

    for (uint32_t i = 0; i < n; i++) {
        b->seq[i] = (struct seam_step_seq){
            .token = b->token + (s->n_done + 31 * i) % b->longest,
            .n = 1,
            .pos = s->n_done,
            .page = b->page + (size_t)i * b->n_pages,
            .n_pages = b->n_pages,
            .row = (int32_t)i,
            .n_accept = s->n_accept,
        };
        b->row[i] = (struct seam_sample_row){ .top_p = 1 };
        b->last[i] = (int32_t)i;
    }
    rc = seam_runtime_forward(s->rt, b->seq, n, b->last, n, err);
    from = seam_now_ns();
    if (!rc)
        rc = seam_runtime_sample(s->rt, 0, n, b->row, 0, b->drawn, err);
    for (uint32_t i = 0; i < n && !rc; i++)
        if (b->drawn[i].token < 0)
            rc = seam_fail(err, SEAM_EDATA,
                           "the logits after %u tokens are not finite",
                           s->n_done + 1);
    if (rc)
        return rc;
    s->watch.sum[SEAM_WATCH_SAMPLE].ns += seam_now_ns() - from;
    s->watch.sum[SEAM_WATCH_SAMPLE].calls++;
    s->n_done++;
    s->n_accept = 1;
    return 0;
}

/* Give all other sequences what the first one has in the cache. */
static int side_spread(struct bench *b, struct side *s, struct seam_error *err)
{
    uint32_t page = s->rt->page_tokens;
    uint32_t n = (s->n_done + page - 1) / page;
    int rc = 0;

    for (uint32_t i = 1; i < b->o->n_seqs && !rc; i++)
        for (uint32_t p = 0; p < n && !rc; p++)
            rc = seam_runtime_copy_page(
                s->rt, b->page[(size_t)i * b->n_pages + p], b->page[p], err);
    return rc;
}

/* Compute up to `until` tokens. */
static int side_prefill(struct bench *b, struct side *s, uint32_t until,
                        struct seam_error *err)
{
    int rc = 0;

    while (!rc && s->n_done < until) {
        uint32_t n = until - s->n_done;

        if (n > s->rt->limits.max_tokens)
            n = s->rt->limits.max_tokens;
        rc = side_feed(b, s, n, err);
    }
    return rc;
}

/* `context` tokens in the cache.  Records do not depend on positions, so that
 * copies of pages that were computed are as good as further ones; the state is
 * the one after the last token computed. */
static int side_fill(struct bench *b, struct side *s, uint32_t context,
                     struct seam_error *err)
{
    uint32_t page = s->rt->page_tokens;
    uint32_t unique = (b->o->distinct + page - 1) / page * page;
    uint32_t whole = context / page * page;
    int rc;

    if (context <= unique || context <= s->n_done)
        return side_prefill(b, s, context, err);
    rc = side_prefill(b, s, unique, err);
    if (!rc && s->n_done % page)
        rc = side_prefill(b, s, (s->n_done / page + 1) * page, err);
    for (uint32_t p = s->n_done / page; p < whole / page && !rc; p++)
        rc = seam_runtime_copy_page(s->rt, b->page[p],
                                    b->page[p % (unique / page)], err);
    if (s->n_done < whole)
        s->n_done = whole;
    return rc ? rc : side_prefill(b, s, context, err);
}

static uint64_t side_launches(const struct side *s)
{
    uint64_t n = 0;

    for (int r = 0; r < SEAM_N_ROLES; r++)
        n += atomic_load_explicit(&s->host[r].launches, memory_order_relaxed);
    return n;
}

/* One run of n tokens from a point on: `chunk` at a time, or with chunk 0, one
 * at a time of every sequence. */
static int side_run(struct bench *b, struct side *s, const struct point *p,
                    uint32_t n, uint32_t chunk, struct measured *to,
                    struct seam_error *err)
{
    uint32_t n_seqs = chunk ? 1 : b->o->n_seqs, step = chunk ? chunk : 1;
    uint64_t from, launches = side_launches(s);
    double ns;
    int rc = 0;

    for (uint32_t i = 0; i < n_seqs && !rc; i++)
        rc = seam_runtime_load_row(s->rt, (int32_t)i, s->state[p - b->point],
                                   err);
    s->n_done = p->context;
    s->n_accept = 0;
    memset(s->watch.sum, 0, sizeof s->watch.sum);
    from = seam_now_ns();
    for (uint32_t at = 0; at < n && !rc; at += step)
        rc = chunk ? side_feed(b, s, n - at < step ? n - at : step, err)
                   : side_decode(b, s, err);
    ns = (double)(seam_now_ns() - from);
    if (rc || !to)
        return rc;
    seam_samples_add(&to->rate, (double)n * n_seqs * 1e9 / ns);
    to->ns += ns;
    to->steps += (n + step - 1) / step;
    to->launches += side_launches(s) - launches;
    for (int w = 0; w < SEAM_N_WATCHED; w++) {
        to->sum[w].ns += s->watch.sum[w].ns;
        to->sum[w].calls += s->watch.sum[w].calls;
    }
    return 0;
}

/* Measure the ceilings; `to` takes them for the run before, unless NULL.  What
 * was read the last time is replaced. */
static void bench_ceilings(struct bench *b, struct seam_ceilings *to,
                           double *read)
{
    double before = *read;

    b->now = (struct seam_ceilings){ .read = { .n = 0 } };
    seam_machine_sample(b->machine, &b->now);
    *read = b->now.read.v[0];
    seam_samples_add(&b->all.read, *read);
    if (to)
        seam_samples_add(&to->read, (before + *read) / 2);
    for (int d = 0; d < SEAM_N_DOTS; d++) {
        seam_samples_add(&b->all.dot[d], b->now.dot[d].v[0]);
        if (to)
            seam_samples_add(&to->dot[d], b->now.dot[d].v[0]);
    }
}

/* Runs of n tokens at all points, which take turns, as do the sides at each of
 * them: so that both can be compared though the machine changes. */
static int bench_runs(struct bench *b, uint32_t n, uint32_t chunk,
                      struct seam_error *err)
{
    double read = 0;
    int rc = 0;

    for (uint32_t i = 0; i < b->o->n_contexts; i++) {
        struct point *p = &b->point[i];

        memset(p->measured, 0, sizeof p->measured);
        memset(&p->ceilings, 0, sizeof p->ceilings);
    }
    /* The first round warms up; who begins changes every time. */
    for (uint32_t i = 0; i <= b->o->runs && !rc; i++)
        for (uint32_t j = 0; j < b->o->n_contexts && !rc; j++) {
            struct point *p = &b->point[j];

            for (uint32_t k = 0; k < b->n_sides && !rc; k++) {
                uint32_t who = (i + k) % b->n_sides;

                rc = side_run(b, &b->side[who], p, n, chunk,
                              i ? &p->measured[who] : NULL, err);
            }
            bench_ceilings(b, i ? &p->ceilings : NULL, &read);
        }
    return rc;
}

/* ---- Reports ------------------------------------------------------------- */

/* What was not in any call is glue too. */
static void measured_rest(struct measured *m)
{
    uint64_t inside = 0;

    for (int p = 0; p < SEAM_WATCH_REST; p++)
        inside += m->sum[p].ns;
    if (m->ns > (double)inside)
        m->sum[SEAM_WATCH_REST].ns = (uint64_t)m->ns - inside;
    m->sum[SEAM_WATCH_REST].calls = m->steps;
}

static double measured_glue(const struct measured *m)
{
    uint64_t ns = 0;

    for (int p = SEAM_WATCH_GLUE; p < SEAM_N_WATCHED; p++)
        ns += m->sum[p].ns;
    return m->ns > 0 ? (double)ns / m->ns : 0;
}

/* The parts of a step as a table.  With bytes, held against `read` bytes a
 * second; else with products, held against `dot` operations a second. */
static json_t *bench_parts(const struct measured *m,
                           const struct seam_bench_bytes *bytes, double read,
                           const double *ops, double dot)
{
    json_t *rows = json_array();

    for (int p = 0; p < SEAM_N_WATCHED; p++) {
        double steps = (double)(m->steps ? m->steps : 1);
        double us = (double)m->sum[p].ns / 1e3 / steps;
        json_t *row;

        if (!m->sum[p].calls)
            continue;
        row = json_pack("{s:s, s:f, s:f, s:f}", "part", seam_watch_name[p],
                        "calls", (double)m->sum[p].calls / steps, "us", us,
                        "percent", 100 * (double)m->sum[p].ns / m->ns);
        if (bytes && bytes->part[p] && us > 0) {
            double gb = (double)bytes->part[p] / us / 1e3;

            json_object_set_new(row, "MB",
                                json_real((double)bytes->part[p] / 1e6));
            json_object_set_new(row, "GB/s", json_real(gb));
            json_object_set_new(row, "percent of read",
                                json_real(read > 0 ? 100e9 * gb / read : 0));
        }
        if (ops && ops[p] > 0 && us > 0) {
            double gops = ops[p] / us / 1e3;

            json_object_set_new(row, "GFLOP", json_real(ops[p] / 1e9));
            json_object_set_new(row, "GFLOP/s", json_real(gops));
            json_object_set_new(row, "percent of dot",
                                json_real(dot > 0 ? 100e9 * gops / dot : 0));
        }
        json_array_append_new(rows, row);
    }
    return rows;
}

static void print_parts(const json_t *rows, bool are_ops)
{
    static const char *const key[2][3] = {
        { "MB", "GB/s", "percent of read" },
        { "GFLOP", "GFLOP/s", "percent of dot" },
    };
    const json_t *row;
    size_t i;

    printf("  %-18s %6s %10s %6s %9s %7s %6s\n", "part", "calls", "us", "share",
           key[are_ops][0], key[are_ops][1], are_ops ? "dot" : "read");
    json_array_foreach(rows, i, row)
    {
        printf("  %-18s %6.4g %10.1f %4.1f %%",
               json_string_value(json_object_get(row, "part")),
               json_number_value(json_object_get(row, "calls")),
               json_number_value(json_object_get(row, "us")),
               json_number_value(json_object_get(row, "percent")));
        if (json_object_get(row, key[are_ops][0]))
            printf(" %9.2f %7.2f %4.0f %%",
                   json_number_value(json_object_get(row, key[are_ops][0])),
                   json_number_value(json_object_get(row, key[are_ops][1])),
                   json_number_value(json_object_get(row, key[are_ops][2])));
        printf("\n");
    }
}

static void bench_ratio(const struct bench *b, const struct measured m[2],
                        json_t *to)
{
    struct seam_samples ratio = { .n = 0 };

    if (b->n_sides < 2)
        return;
    for (uint32_t i = 0; i < m[0].rate.n && i < m[1].rate.n; i++)
        seam_samples_add(&ratio, m[1].rate.v[i] / m[0].rate.v[i]);
    printf("  with %s: %.2f tok/s, %.3f times as fast (%.3f to %.3f)\n",
           b->o->versus_name, seam_samples_at(&m[1].rate, 0.5),
           seam_samples_at(&ratio, 0.5), seam_samples_at(&ratio, 0),
           seam_samples_at(&ratio, 1));
    json_object_set_new(to, "versus", seam_report_samples(&m[1].rate));
    json_object_set_new(to, "versus_ratio", seam_report_samples(&ratio));
}

/* How many times as long a token takes as at the first context. */
static void bench_length(const struct bench *b, const struct point *p,
                         const char *what, json_t *to)
{
    const struct seam_samples *first = &b->point[0].measured[0].rate;
    const struct seam_samples *rate = &p->measured[0].rate;
    struct seam_samples ratio = { .n = 0 };

    if (p == b->point)
        return;
    for (uint32_t i = 0; i < first->n && i < rate->n; i++)
        seam_samples_add(&ratio, first->v[i] / rate->v[i]);
    printf("  %s at %u takes %.3f times (%.3f to %.3f) what it takes at %u\n",
           what, p->context, seam_samples_at(&ratio, 0.5),
           seam_samples_at(&ratio, 0), seam_samples_at(&ratio, 1),
           b->point[0].context);
    json_object_set_new(to, "times_first", seam_report_samples(&ratio));
}

static json_t *report_decode(struct bench *b, struct point *p)
{
    struct measured *m = p->measured;
    const struct seam_ceilings *c = &p->ceilings;
    uint32_t context = p->context;
    struct seam_bench_bytes bytes;
    double rate = seam_samples_at(&m[0].rate, 0.5);
    double read = seam_samples_at(&c->read, 0.5), used;
    struct seam_samples share = { .n = 0 };
    json_t *o, *parts;

    side_bytes(b, &b->side[0], b->o->n_seqs, context, &bytes);
    measured_rest(&m[0]);
    used = rate / b->o->n_seqs * (double)bytes.all;
    for (uint32_t i = 0; i < m[0].rate.n && i < c->read.n; i++)
        seam_samples_add(&share, 100 * m[0].rate.v[i] / b->o->n_seqs *
                                     (double)bytes.all / c->read.v[i]);
    parts = bench_parts(&m[0], &bytes, read, NULL, 0);
    if (b->o->n_seqs > 1)
        printf("%u sequences: ", b->o->n_seqs);
    printf("decode %u at %u: %.2f tok/s (spread %.0f %%), %.1f MB a step = "
           "%.2f GB/s, %.1f %% (%.0f to %.0f) of read %.2f GB/s\n",
           b->o->n_decode, context, rate, 100 * seam_samples_spread(&m[0].rate),
           (double)bytes.all / 1e6, used / 1e9, seam_samples_at(&share, 0.5),
           seam_samples_at(&share, 0), seam_samples_at(&share, 1), read / 1e9);
    printf(
        "  of a token: experts %.1f MB, other weights %.1f MB, state %.1f "
        "MB, cache %.1f MB; glue %.1f %%, %.1f launches\n",
        (double)bytes.experts / 1e6,
        (double)(bytes.all - bytes.experts - bytes.state - bytes.cache) / 1e6,
        (double)bytes.state / 1e6, (double)bytes.cache / 1e6,
        100 * measured_glue(&m[0]), (double)m[0].launches / (double)m[0].steps);
    print_parts(parts, false);
    o = json_pack("{s:o, s:I, s:I, s:I, s:I, s:I, s:f, s:o, s:f, s:f, s:o}",
                  "tokens_per_s", seam_report_samples(&m[0].rate), "seqs",
                  (json_int_t)b->o->n_seqs, "bytes", (json_int_t)bytes.all,
                  "bytes_experts", (json_int_t)bytes.experts, "bytes_state",
                  (json_int_t)bytes.state, "bytes_cache",
                  (json_int_t)bytes.cache, "read_bytes", read,
                  "percent_of_read", seam_report_samples(&share),
                  "percent_glue", 100 * measured_glue(&m[0]), "launches",
                  (double)m[0].launches / (double)m[0].steps, "parts", parts);
    bench_ratio(b, m, o);
    bench_length(b, p, "decoding", o);
    return o;
}

static json_t *report_prefill(struct bench *b, struct point *point)
{
    struct measured *m = point->measured;
    const struct seam_ceilings *c = &point->ceilings;
    const struct side *s = &b->side[0];
    double rate = seam_samples_at(&m[0].rate, 0.5), ops = 0;
    double part_ops[SEAM_N_WATCHED];
    double f32 = seam_samples_at(&c->dot[SEAM_DOT_F32], 0.5);
    double bf16 = seam_samples_at(&c->dot[SEAM_DOT_BF16], 0.5);
    double int8 = seam_samples_at(&c->dot[SEAM_DOT_INT8], 0.5);
    json_t *o, *parts;

    /* Products with weights alone: attention itself comes on top.  Only the
     * last token of each step goes through the head. */
    for (int p = 0; p < SEAM_N_WATCHED; p++) {
        double steps = (double)(m[0].steps ? m[0].steps : 1);
        double tokens = (double)b->o->n_prefill * m[0].rate.n / steps;

        part_ops[p] =
            2 * (double)s->weights.n[p] * (p == SEAM_WATCH_HEAD ? 1 : tokens);
        ops += part_ops[p] * rate / tokens;
    }
    measured_rest(&m[0]);
    parts = bench_parts(&m[0], NULL, 0, part_ops, bf16);
    printf("prefill %u at %u: %.1f tok/s (spread %.0f %%) = %.0f GFLOP/s of "
           "weights, %.0f %% of f32, %.1f %% of bf16, %.1f %% of int8; glue "
           "%.1f %%\n",
           b->o->n_prefill, point->context, rate,
           100 * seam_samples_spread(&m[0].rate), ops / 1e9,
           f32 > 0 ? 100 * ops / f32 : 0, bf16 > 0 ? 100 * ops / bf16 : 0,
           int8 > 0 ? 100 * ops / int8 : 0, 100 * measured_glue(&m[0]));
    print_parts(parts, true);
    o = json_pack("{s:o, s:f, s:f, s:f, s:f, s:f, s:o}", "tokens_per_s",
                  seam_report_samples(&m[0].rate), "ops_per_s", ops,
                  "percent_of_f32", f32 > 0 ? 100 * ops / f32 : 0,
                  "percent_of_bf16", bf16 > 0 ? 100 * ops / bf16 : 0,
                  "percent_of_int8", int8 > 0 ? 100 * ops / int8 : 0,
                  "percent_glue", 100 * measured_glue(&m[0]), "parts", parts);
    bench_ratio(b, m, o);
    bench_length(b, point, "prefilling", o);
    return o;
}

/* Bring all sides to the context of a point, from the one before. */
static int point_reach(struct bench *b, struct point *p, struct seam_error *err)
{
    int rc = 0;

    for (uint32_t k = 0; k < b->n_sides && !rc; k++) {
        struct side *s = &b->side[k];
        void **state = &s->state[p - b->point];

        *state = malloc(seam_runtime_row_bytes(s->rt) + 1);
        if (!*state)
            return seam_fail(err, SEAM_ENOMEM, "out of memory");
        rc = side_fill(b, s, p->context, err);
        if (!rc)
            rc = seam_runtime_save_row(s->rt, 0, s->n_accept, *state, err);
        s->n_accept = 0; /* saving commits                                    */
    }
    return rc;
}

static int bench_points(struct bench *b, struct seam_error *err)
{
    const struct seam_bench_model_opts *o = b->o;
    int rc = 0;

    for (uint32_t i = 0; i < o->n_contexts && !rc; i++) {
        b->point[i].context = o->context[i];
        rc = point_reach(b, &b->point[i], err);
    }
    for (uint32_t k = 0; k < b->n_sides && !rc && o->n_decode; k++)
        rc = side_spread(b, &b->side[k], err);
    if (!rc && o->n_decode)
        rc = bench_runs(b, o->n_decode, 0, err);
    for (uint32_t i = 0; i < o->n_contexts && !rc; i++) {
        json_t *report =
            json_pack("{s:I}", "context", (json_int_t)b->point[i].context);

        json_array_append_new(b->points, report);
        if (o->n_decode)
            json_object_set_new(report, "decode",
                                report_decode(b, &b->point[i]));
    }
    fflush(stdout);
    if (!rc && o->n_prefill)
        rc = bench_runs(b, o->n_prefill, b->side[0].rt->limits.max_tokens, err);
    for (uint32_t i = 0; i < o->n_contexts && !rc && o->n_prefill; i++)
        json_object_set_new(json_array_get(b->points, i), "prefill",
                            report_prefill(b, &b->point[i]));
    fflush(stdout);
    return rc;
}

/* Curve of one rate over contexts, if there are several. */
static void page_curve(struct seam_page *page, const json_t *points,
                       const char *what)
{
    double x[SEAM_BENCH_MAX_POINTS], y[SEAM_BENCH_MAX_POINTS];
    struct seam_curve curve = { what, x, y, 0 };
    const json_t *p;
    size_t i;

    json_array_foreach(points, i, p)
    {
        const json_t *rate =
            json_object_get(json_object_get(p, what), "tokens_per_s");

        if (!rate || curve.n == SEAM_BENCH_MAX_POINTS)
            continue;
        x[curve.n] = (double)json_integer_value(json_object_get(p, "context"));
        y[curve.n++] = json_number_value(json_object_get(rate, "median"));
    }
    if (curve.n > 1)
        seam_page_curves(page, what, "tokens of context", "tokens/s", &curve,
                         1);
}

static void page_parts(struct seam_page *page, const json_t *point,
                       const char *what)
{
    static const char *const columns[] = {
        "part", "calls", "us", "percent", "MB", "GB/s", "percent of read", NULL
    };
    const json_t *rows = json_object_get(json_object_get(point, what), "parts");
    struct seam_bar bar[SEAM_N_WATCHED];
    char title[64];
    const json_t *row;
    uint32_t n = 0;
    size_t i;

    if (!rows)
        return;
    json_array_foreach(rows, i, row)
    {
        bar[n].label = json_string_value(json_object_get(row, "part"));
        bar[n++].value = json_number_value(json_object_get(row, "us"));
    }
    snprintf(title, sizeof title, "A step of %s at %lld", what,
             (long long)json_integer_value(json_object_get(point, "context")));
    seam_page_bars(page, title, "us", bar, n);
    seam_page_table(page, rows, columns);
}

static int bench_page(const struct bench *b, const char *machine, bool svg,
                      struct seam_error *err)
{
    struct seam_page page;
    char title[128];
    const json_t *p;
    size_t i;

    snprintf(title, sizeof title, "seam bench model, %s", b->o->shape);
    seam_page_open(&page, title, svg);
    seam_page_text(&page, machine);
    page_curve(&page, b->points, "decode");
    page_curve(&page, b->points, "prefill");
    json_array_foreach(b->points, i, p)
    {
        page_parts(&page, p, "decode");
        page_parts(&page, p, "prefill");
    }
    return seam_page_write(&page, svg ? b->o->svg : b->o->html, err);
}

static int bench_report(struct bench *b, struct seam_error *err)
{
    struct seam_buf machine = { 0 };
    json_t *root;
    int rc = 0;

    seam_report_machine_text(b->machine, &b->all, &machine);
    if (machine.p)
        fputs(machine.p, stdout);
    if (b->o->json) {
        root = json_pack(
            "{s:s, s:s, s:f, s:f, s:s, s:o, s:O}", "bench", "model", "shape",
            b->o->shape, "load_ms", b->side[0].load_ms, "first_token_ms",
            b->first_ms, "version", SEAM_VERSION, "machine",
            seam_report_machine(b->machine, &b->all), "points", b->points);
        rc = root ? seam_report_json(b->o->json, root, err)
                  : seam_fail(err, SEAM_ENOMEM, "out of memory");
        json_decref(root);
    }
    if (!rc && b->o->html)
        rc = bench_page(b, machine.p ? machine.p : "", false, err);
    if (!rc && b->o->svg)
        rc = bench_page(b, machine.p ? machine.p : "", true, err);
    seam_buf_release(&machine);
    return rc;
}

/* ---- Opening ------------------------------------------------------------- */

static int side_open(struct bench *b, struct side *s,
                     const struct seam_config *config, struct seam_error *err)
{
    struct seam_runtime_opts ro = {
        .config = config,
        .log = b->o->log,
        .logit_rows = b->o->n_seqs,
        .wrap = seam_watch_wrap,
        .wrap_ctx = &s->watch,
    };
    uint64_t from = seam_now_ns();
    int rc = seam_runtime_open(&s->rt, &ro, err);

    if (rc)
        return rc;
    s->load_ms = (double)(seam_now_ns() - from) / 1e6;
    for (int r = 0; r < SEAM_N_ROLES; r++) {
        s->host[r].hosted = s->rt->inst[r]->host;
        seam_counting_host_wrap(&s->host[r], &s->rt->inst[r]->host.table);
    }
    rc = seam_bench_weigh(s->rt->model.checkpoint, &s->weights, err);
    return rc ? rc : seam_runtime_zero_row(s->rt, 0, err);
}

static void side_close(struct side *s)
{
    for (int r = 0; s->rt && r < SEAM_N_ROLES; r++)
        if (s->host[r].hosted.table.size)
            s->rt->inst[r]->host.table = s->host[r].hosted.table;
    seam_runtime_close(s->rt);
    for (uint32_t i = 0; i < SEAM_BENCH_MAX_POINTS; i++)
        free(s->state[i]);
}

/* One token, as the first answer after a start, and back to the beginning. */
static int bench_first(struct bench *b, struct side *s, struct seam_error *err)
{
    uint64_t from = seam_now_ns();
    int rc = side_feed(b, s, 1, err);

    b->first_ms = s->load_ms + (double)(seam_now_ns() - from) / 1e6;
    s->n_done = 0;
    s->n_accept = 0;
    printf("loaded in %.1f ms, the first token after %.1f ms\n", s->load_ms,
           b->first_ms);
    return rc ? rc : seam_runtime_zero_row(s->rt, 0, err);
}

static int bench_open(struct bench *b, struct seam_error *err)
{
    const struct seam_bench_model_opts *o = b->o;
    uint32_t longest = 0, x = 12345;
    const struct seam_runtime *rt;
    int rc = side_open(b, &b->side[0], o->config, err);

    b->n_sides = 1;
    if (!rc && o->versus) {
        b->n_sides = 2;
        rc = side_open(b, &b->side[1], o->versus, err);
    }
    if (rc)
        return rc;
    rt = b->side[0].rt;
    b->m = seam_checkpoint_config(rt->model.checkpoint);
    for (uint32_t i = 0; i < o->n_contexts; i++)
        if (o->context[i] > longest)
            longest = o->context[i];
    longest += o->n_decode > o->n_prefill ? o->n_decode : o->n_prefill;
    b->n_pages = (longest + rt->page_tokens - 1) / rt->page_tokens;
    if (longest > rt->limits.max_context ||
        (uint64_t)b->n_pages * o->n_seqs > rt->n_pages)
        return seam_fail(err, SEAM_EINVAL,
                         "%u times %u tokens are asked for; the model holds "
                         "%u, the cache %u (engine.cache_bytes)",
                         o->n_seqs, longest, rt->limits.max_context,
                         rt->n_pages * rt->page_tokens);
    b->longest = longest;
    b->seq = calloc(o->n_seqs, sizeof *b->seq);
    b->row = calloc(o->n_seqs, sizeof *b->row);
    b->drawn = calloc(o->n_seqs, sizeof *b->drawn);
    b->last = calloc(o->n_seqs, sizeof *b->last);
    b->page = calloc((size_t)b->n_pages * o->n_seqs + 1, sizeof *b->page);
    b->token = calloc(longest + 1, sizeof *b->token);
    b->point = calloc(o->n_contexts + 1, sizeof *b->point);
    b->points = json_array();
    if (!b->page || !b->point || !b->token || !b->points || !b->seq ||
        !b->row || !b->drawn || !b->last)
        return seam_fail(err, SEAM_ENOMEM, "out of memory");
    for (uint32_t i = 0; i < b->n_pages * o->n_seqs; i++)
        b->page[i] = (int32_t)i;
    for (uint32_t i = 0; i < longest; i++) {
        x = x * 1664525u + 1013904223u;
        b->token[i] = (int32_t)(((uint64_t)x * b->m->vocab) >> 32);
    }
    rc = bench_first(b, &b->side[0], err);
    return rc ? rc
              : seam_machine_new(&b->machine, rt->pool, o->read_bytes, err);
}

static int order_u32(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

int seam_bench_model_run(const struct seam_bench_model_opts *o,
                         struct seam_error *err)
{
    struct seam_bench_model_opts sorted = *o;
    struct bench *b = calloc(1, sizeof *b);
    int rc;

    if (!b)
        return seam_fail(err, SEAM_ENOMEM, "out of memory");
    b->o = &sorted;
    qsort(sorted.context, sorted.n_contexts, sizeof *sorted.context, order_u32);
    rc = bench_open(b, err);
    if (!rc)
        rc = bench_points(b, err);
    if (!rc)
        rc = bench_report(b, err);
    seam_machine_free(b->machine);
    for (uint32_t k = 0; k < b->n_sides; k++)
        side_close(&b->side[k]);
    json_decref(b->points);
    free(b->seq);
    free(b->row);
    free(b->drawn);
    free(b->last);
    free(b->page);
    free(b->token);
    free(b->point);
    free(b);
    return rc;
}
