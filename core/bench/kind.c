#include "core/bench/kind.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"

#define MOST_CALLS 100000 /* in one run                                       */

/* ---- For the families ---------------------------------------------------- */

struct kind_case *kind_add(struct kind *k, const char *name, uint32_t op,
                           uint32_t tokens, uint32_t context, uint32_t seqs)
{
    struct kind_case *c;

    if (k->n_cases == KIND_MAX_CASES ||
        (k->o->only && !strstr(name, k->o->only)))
        return NULL;
    c = &k->c[k->n_cases++];
    snprintf(c->name, sizeof c->name, "%s", name);
    c->op = op;
    c->tokens = tokens;
    c->context = context;
    c->seqs = seqs;
    return c;
}

double kind_error(const float *a, const float *b, uint64_t n)
{
    double diff = 0, all = 0, worst = 0;

    for (uint64_t i = 0; i < n; i++) {
        double d = (double)a[i] - b[i];

        worst = fabs(d) > worst ? fabs(d) : worst;
        diff += d * d;
        all += (double)b[i] * b[i];
    }
    if (!isfinite(diff))
        return INFINITY;
    if (!(all > 0))
        return diff > 0 ? INFINITY : 0;
    diff = sqrt(diff / all);
    worst /= 4 * sqrt(all / (double)n);
    return diff > worst ? diff : worst;
}

void kind_random(float *x, uint64_t n, uint64_t seed)
{
    uint64_t s = seed * 0x9e3779b97f4a7c15u + 1;

    for (uint64_t i = 0; i < n; i++) {
        double sum = 0;

        /* Four uniform numbers are normal enough. */
        s = s * 6364136223846793005u + 1442695040888963407u;
        for (int j = 0; j < 4; j++)
            sum += (double)(s >> (16 * j) & 0xffff) / 65536 - 0.5;
        x[i] = (float)(sum * 1.7320508);
    }
}

/* ---- Right ---------------------------------------------------------------- */

static int kind_check(struct kind *k, struct seam_error *err)
{
    uint32_t n = k->o->config[1] ? 2 : 1;
    int rc = 0;

    for (uint32_t i = 0; i < k->n_cases && !rc; i++)
        for (uint32_t s = 0; s < n && !rc; s++) {
            struct kind_case *c = &k->c[i];

            rc = k->family->check(k, c, &k->side[s], &k->side[2], &c->error[s],
                                  err);
            if (!rc && !(c->error[s] <= k->o->limit))
                rc = seam_fail(
                    err, SEAM_EDATA,
                    "%s: normalised error %.3g against %s in %s, %u tokens "
                    "after %u; expected at most %g, so nothing is timed",
                    k->side[s].name, c->error[s], k->side[2].name, c->name,
                    c->tokens, c->context, k->o->limit);
        }
    return rc;
}

/* ---- Fast ----------------------------------------------------------------- */

/* n calls; *us is one call's mean. */
static int kind_calls(struct kind *k, struct kind_side *s,
                      const struct kind_case *c, uint32_t n, double *us,
                      struct seam_error *err)
{
    uint64_t ns = 0, from;
    int rc = 0;

    for (uint32_t i = 0; i < n && !rc; i++) {
        if (k->family->reset)
            k->family->reset(k, s, c);
        from = seam_now_ns();
        rc = k->family->call(k, s, c, i, err);
        ns += seam_now_ns() - from;
    }
    *us = (double)ns / 1e3 / n;
    return rc;
}

static int kind_time(struct kind *k, struct kind_case *c,
                     struct seam_ceilings *meanwhile, struct seam_error *err)
{
    uint32_t n_sides = k->o->config[1] ? 2 : 1, n[2] = { 1, 1 };
    double us;
    int rc = 0;

    for (uint32_t s = 0; s < n_sides && !rc; s++) {
        rc = k->family->prepare(k, &k->side[s], c, err);
        if (!rc) /* the first one finds everything cold                       */
            rc = kind_calls(k, &k->side[s], c, 1, &us, err);
        if (!rc)
            rc = kind_calls(k, &k->side[s], c, 1, &us, err);
        if (!rc && us * MOST_CALLS > k->o->run_us)
            n[s] = (uint32_t)(k->o->run_us / (us + 0.01)) + 1;
        else if (!rc)
            n[s] = MOST_CALLS;
    }
    for (uint32_t i = 0; i < k->o->runs && !rc; i++) {
        double both[2] = { 0, 0 };

        /* Who begins changes every time. */
        for (uint32_t j = 0; j < n_sides && !rc; j++) {
            uint32_t s = (i + j) % n_sides;
            uint64_t before = k->side[s].host.launches;

            rc = kind_calls(k, &k->side[s], c, n[s], &both[s], err);
            seam_samples_add(&c->us[s], both[s]);
            c->launches[s] = (double)(k->side[s].host.launches - before) / n[s];
        }
        if (n_sides == 2 && both[0] > 0)
            seam_samples_add(&c->ratio, both[0] / both[1]);
        seam_machine_sample(k->machine, meanwhile);
    }
    return rc;
}

static int kind_times(struct kind *k, struct seam_error *err)
{
    struct seam_ceilings *meanwhile = malloc(sizeof *meanwhile);
    int rc = 0;

    if (!meanwhile)
        return seam_fail(err, SEAM_ENOMEM, "out of memory");
    for (uint32_t i = 0; i < k->n_cases && !rc; i++) {
        struct kind_case *c = &k->c[i];

        memset(meanwhile, 0, sizeof *meanwhile);
        rc = kind_time(k, c, meanwhile, err);
        c->read = seam_samples_at(&meanwhile->read, 0.5);
        for (int d = 0; d < SEAM_N_DOTS; d++)
            if (strcmp(seam_machine_isa(k->machine, (enum seam_dot)d), "none"))
                c->dot[d] = seam_samples_at(&meanwhile->dot[d], 0.5);
        for (uint32_t r = 0; r < meanwhile->read.n; r++) {
            seam_samples_add(&k->ceilings->read, meanwhile->read.v[r]);
            for (int d = 0; d < SEAM_N_DOTS; d++)
                seam_samples_add(&k->ceilings->dot[d], meanwhile->dot[d].v[r]);
        }
    }
    free(meanwhile);
    return rc;
}

/* ---- Telling -------------------------------------------------------------- */

static const char *const dot_name[SEAM_N_DOTS] = {
    [SEAM_DOT_F32] = "f32", [SEAM_DOT_BF16] = "bf16", [SEAM_DOT_INT8] = "int8"
};

/* Shares of the ceilings, in percent, 0 where there is none; the verdict says
 * which is nearer, memory or (of the dot products BF16, or F32 where there is no
 * BF16) compute. */
struct roof {
    double gb, gops, read, dot[SEAM_N_DOTS];
    char verdict[64];
};

static void kind_roof(const struct kind_case *c, double us, struct roof *r)
{
    double dot;

    *r = (struct roof){ .gb = us > 0 ? c->bytes / us / 1e3 : 0,
                        .gops = us > 0 ? c->ops / us / 1e3 : 0 };
    r->read = c->read > 0 ? 100e9 * r->gb / c->read : 0;
    for (int d = 0; d < SEAM_N_DOTS; d++)
        r->dot[d] = c->dot[d] > 0 ? 100e9 * r->gops / c->dot[d] : 0;
    dot = r->dot[c->dot[SEAM_DOT_BF16] > 0 ? SEAM_DOT_BF16 : SEAM_DOT_F32];
    if (!c->bytes && !c->ops)
        return;
    if (r->read > 110)
        snprintf(r->verdict, sizeof r->verdict, "read from a cache");
    else if (r->read < 40 && dot < 40)
        snprintf(r->verdict, sizeof r->verdict,
                 "under both roofs (%s is nearer)",
                 r->read >= dot ? "memory" : "compute");
    else
        snprintf(r->verdict, sizeof r->verdict, "limited by %s",
                 r->read >= dot ? "memory" : "compute");
}

static json_t *kind_row(const struct kind *k, const struct kind_case *c,
                        uint32_t s)
{
    double us = seam_samples_at(&c->us[s], 0.5);
    struct roof r;
    json_t *row;

    kind_roof(c, us, &r);
    row = json_pack("{s:s, s:s, s:I, s:I, s:I, s:f, s:o, s:f, s:f}", "case",
                    c->name, "plugin", k->side[s].name, "tokens",
                    (json_int_t)c->tokens, "context", (json_int_t)c->context,
                    "seqs", (json_int_t)c->seqs, "error", c->error[s], "us",
                    seam_report_samples(&c->us[s]), "launches", c->launches[s],
                    "tokens/s",
                    us > 0 ? 1e6 * (double)c->tokens * c->seqs / us : 0);
    if (row && (c->bytes || c->ops)) {
        json_object_set_new(row, "MB", json_real(c->bytes / 1e6));
        json_object_set_new(row, "GB/s", json_real(r.gb));
        json_object_set_new(row, "percent of read", json_real(r.read));
        json_object_set_new(row, "GFLOP/s", json_real(r.gops));
        for (int d = 0; d < SEAM_N_DOTS; d++) {
            char key[32];

            snprintf(key, sizeof key, "percent of %s", dot_name[d]);
            if (c->dot[d] > 0)
                json_object_set_new(row, key, json_real(r.dot[d]));
        }
        json_object_set_new(row, "verdict", json_string(r.verdict));
    }
    if (row && s == 1)
        json_object_set_new(row, "ratio", seam_report_samples(&c->ratio));
    return row;
}

static void kind_print(const struct kind *k, const struct kind_case *c,
                       uint32_t s)
{
    double us = seam_samples_at(&c->us[s], 0.5);
    struct roof r;

    kind_roof(c, us, &r);
    printf("%-18s %-18s %6u %8u %4u %9.2g %11.2f %4.0f %% %8.1f", c->name,
           k->side[s].name, c->tokens, c->context, c->seqs, c->error[s], us,
           100 * seam_samples_spread(&c->us[s]), c->launches[s]);
    if (c->bytes || c->ops) {
        printf(" %9.3f %7.2f %4.0f %% %8.1f", c->bytes / 1e6, r.gb, r.read,
               r.gops);
        for (int d = 0; d < SEAM_N_DOTS; d++)
            if (c->dot[d] > 0)
                printf(" %4.0f %%", r.dot[d]);
            else
                printf("%7s", "-");
        printf("  %s", r.verdict);
    } else
        printf(" %9.0f tok/s", 1e6 * (double)c->tokens * c->seqs / us);
    printf("\n");
    if (s == 1)
        printf("%-18s %s is %.3f times as fast as %s (%.3f to %.3f)\n", "",
               k->side[1].name, seam_samples_at(&c->ratio, 0.5),
               k->side[0].name, seam_samples_at(&c->ratio, 0),
               seam_samples_at(&c->ratio, 1));
}

/* One curve per plugin of a case's time over tokens or context, the others
 * being as in `from`. */
static void page_curves(struct kind *k, struct seam_page *page,
                        const struct kind_case *from, bool over_context)
{
    double x[SEAM_BENCH_MAX_POINTS], y[2][SEAM_BENCH_MAX_POINTS];
    struct seam_curve curve[2] = { { k->side[0].name, x, y[0], 0 },
                                   { k->side[1].name, x, y[1], 0 } };
    uint32_t n_sides = k->o->config[1] ? 2 : 1, n = 0;
    char title[96];

    for (uint32_t i = 0; i < k->n_cases && n < SEAM_BENCH_MAX_POINTS; i++) {
        const struct kind_case *c = &k->c[i];
        uint32_t at = over_context ? c->context : c->tokens;

        if (strcmp(c->name, from->name) || c->seqs != from->seqs ||
            (over_context ? c->tokens != from->tokens
                          : c->context != from->context) ||
            (n && at <= x[n - 1]))
            continue;
        x[n] = at;
        for (uint32_t s = 0; s < n_sides; s++)
            y[s][n] = seam_samples_at(&c->us[s], 0.5);
        n++;
    }
    if (n < 2)
        return;
    curve[0].n = curve[1].n = n;
    snprintf(title, sizeof title, "%s: time of a call over %s", from->name,
             over_context ? "context" : "tokens");
    seam_page_curves(page, title, over_context ? "tokens of context" : "tokens",
                     "us", curve, n_sides);
}

/* Cases of a name come one after another. */
static bool case_is_first(const struct kind *k, uint32_t i)
{
    return i == 0 || strcmp(k->c[i].name, k->c[i - 1].name) != 0;
}

static int kind_page(struct kind *k, const char *machine, const json_t *rows,
                     const char *title, bool svg, struct seam_error *err)
{
    static const char *const columns[] = { "case",
                                           "plugin",
                                           "tokens",
                                           "context",
                                           "seqs",
                                           "error",
                                           "us",
                                           "launches",
                                           "MB",
                                           "GB/s",
                                           "percent of read",
                                           "GFLOP/s",
                                           "percent of f32",
                                           "percent of bf16",
                                           "percent of int8",
                                           "tokens/s",
                                           "verdict",
                                           NULL };
    struct seam_bar *bar = calloc(2 * KIND_MAX_CASES, sizeof *bar);
    char(*label)[64] = calloc(2 * KIND_MAX_CASES, sizeof *label);
    uint32_t n_sides = k->o->config[1] ? 2 : 1, n = 0;
    struct seam_page page;
    int rc;

    if (!bar || !label) {
        rc = seam_fail(err, SEAM_ENOMEM, "out of memory");
        goto out;
    }
    seam_page_open(&page, title, svg);
    seam_page_text(&page, machine);
    for (uint32_t i = 0; i < k->n_cases; i++)
        for (uint32_t s = 0; s < n_sides; s++) {
            const struct kind_case *c = &k->c[i];
            char context[24] = "";

            if (k->o->context.n > 1)
                snprintf(context, sizeof context, " at %u", c->context);
            snprintf(label[n], sizeof label[n], "%.16s%s%.12s %u%s", c->name,
                     n_sides > 1 ? ", " : "",
                     n_sides > 1 ? k->side[s].name : "", c->tokens, context);
            bar[n] =
                (struct seam_bar){ label[n], seam_samples_at(&c->us[s], 0.5) };
            n++;
        }
    seam_page_bars(&page, "Time of a call, by tokens", "us", bar, n);
    for (uint32_t i = 0; i < k->n_cases; i++)
        if (case_is_first(k, i)) {
            page_curves(k, &page, &k->c[i], false);
            page_curves(k, &page, &k->c[i], true);
        }
    seam_page_heading(&page, "All");
    seam_page_table(&page, rows, columns);
    rc = seam_page_write(&page, svg ? k->o->svg : k->o->html, err);
out:
    free(label);
    free(bar);
    return rc;
}

static int kind_report(struct kind *k, struct seam_error *err)
{
    struct seam_buf machine = { 0 };
    json_t *rows = json_array(), *root;
    char title[160];
    int rc = 0;

    printf("%-18s %-18s %6s %8s %4s %9s %11s %6s %8s %9s %7s %6s %8s", "case",
           "plugin", "tokens", "context", "seqs", "error", "us", "spread",
           "launches", "MB", "GB/s", "read", "GFLOP/s");
    for (int d = 0; d < SEAM_N_DOTS; d++)
        printf(" %6s", dot_name[d]);
    printf("\n");
    for (uint32_t i = 0; i < k->n_cases; i++)
        for (uint32_t s = 0; s < (k->o->config[1] ? 2u : 1u); s++) {
            kind_print(k, &k->c[i], s);
            json_array_append_new(rows, kind_row(k, &k->c[i], s));
        }
    seam_report_machine_text(k->machine, k->ceilings, &machine);
    if (machine.p)
        fputs(machine.p, stdout);
    snprintf(title, sizeof title, "seam bench %s, %s",
             seam_role_name[k->o->role], k->o->shape);
    root = json_pack(
        "{s:s, s:s, s:s, s:s, s:o, s:O}", "bench", seam_role_name[k->o->role],
        "shape", k->o->shape, "reference",
        k->o->config[2]->plugin[k->o->role].name, "version", SEAM_VERSION,
        "machine", seam_report_machine(k->machine, k->ceilings), "cases", rows);
    if (!root)
        rc = seam_fail(err, SEAM_ENOMEM, "out of memory");
    if (!rc && k->o->json)
        rc = seam_report_json(k->o->json, root, err);
    if (!rc && k->o->html)
        rc = kind_page(k, machine.p ? machine.p : "", rows, title, false, err);
    if (!rc && k->o->svg)
        rc = kind_page(k, machine.p ? machine.p : "", rows, title, true, err);
    json_decref(root);
    json_decref(rows);
    seam_buf_release(&machine);
    return rc;
}

/* ---- Opening ------------------------------------------------------------- */

static int side_open(struct kind *k, uint32_t i, struct seam_error *err)
{
    struct kind_side *s = &k->side[i];
    struct seam_runtime_opts ro = { .config = k->o->config[i],
                                    .log = k->o->log,
                                    .logit_rows = 1 };
    enum seam_role role = k->o->role;
    int rc = seam_runtime_open(&s->rt, &ro, err);

    s->name = i == 1 && k->o->label ? k->o->label
                                    : k->o->config[i]->plugin[role].name;
    if (rc)
        return rc;
    if (s->rt->device.ordinal >= 0)
        return seam_fail(err, SEAM_ENOTSUP,
                         "%s: only plugins for the host can be timed here",
                         s->name);
    s->host.hosted = s->rt->inst[role]->host;
    seam_counting_host_wrap(&s->host, &s->rt->inst[role]->host.table);
    return k->family->open(k, s, err);
}

static void side_close(struct kind *k, struct kind_side *s)
{
    if (!s->rt)
        return;
    k->family->close(s);
    if (s->host.hosted.table.size)
        s->rt->inst[k->o->role]->host.table = s->host.hosted.table;
    seam_runtime_close(s->rt);
    s->rt = NULL;
}

static uint32_t list_most(const struct seam_bench_list *l)
{
    uint32_t most = 0;

    for (uint32_t i = 0; i < l->n; i++)
        most = l->v[i] > most ? l->v[i] : most;
    return most;
}

int seam_bench_kind_run(const struct seam_bench_kind_opts *o,
                        struct seam_error *err)
{
    struct kind k = {
        .o = o,
        .family = o->role == SEAM_ROLE_BACKEND  ? &kind_ops
                  : o->role == SEAM_ROLE_PARSER ? &kind_parsers
                                                : &kind_blocks,
        .c = calloc(KIND_MAX_CASES, sizeof *k.c),
        .max_tokens = list_most(&o->tokens),
        .max_context = list_most(&o->context),
        .max_seqs = list_most(&o->seqs),
        .ceilings = calloc(1, sizeof *k.ceilings),
    };
    int rc = 0;

    if (!k.c || !k.ceilings)
        rc = seam_fail(err, SEAM_ENOMEM, "out of memory");
    for (uint32_t i = 0; i < 3 && !rc; i++)
        if (o->config[i])
            rc = side_open(&k, i, err);
    if (!rc)
        rc = k.family->cases(&k, err);
    if (!rc && !k.n_cases)
        rc = seam_fail(err, SEAM_EINVAL, "no case has a name with '%s'",
                       o->only ? o->only : "");
    if (!rc)
        rc = kind_check(&k, err);
    side_close(&k, &k.side[2]); /* its memory is wanted                       */
    k.side[2].name = o->config[2]->plugin[o->role].name;
    if (!rc)
        rc = seam_machine_new(&k.machine, k.side[0].rt->pool, o->read_bytes,
                              err);
    if (!rc)
        rc = kind_times(&k, err);
    if (!rc)
        rc = kind_report(&k, err);
    seam_machine_free(k.machine);
    side_close(&k, &k.side[1]);
    side_close(&k, &k.side[0]);
    free(k.c);
    free(k.ceilings);
    return rc;
}
