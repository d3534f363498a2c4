#include "core/bench/load.h"

#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/base/json.h"
#include "core/bench/http.h"
#include "core/bench/report.h"

#define MAX_FILE   ((uint64_t)1 << 30)
#define MOST_TEXTS 6 /* different messages in the report                      */

/* Numbers of which percentiles are wanted. */
struct series {
    double *v;
    size_t n, cap;
    bool failed;
};

struct outcome {
    int status; /* 0: no answer                                               */
    uint64_t n_prompt, n_tokens, n_events;
    double ttft_ms, tpot_ms, e2e_ms;
    bool within; /* the bounds                                                */
};

struct load {
    const struct seam_load_opts *o;
    struct seam_http_url url;
    char model[256];
    json_t *bodies; /* of the file                                            */
    uint64_t start_ns;

    /* Guards all that follows. */
    pthread_mutex_t lock;
    uint64_t n_begun, s; /* s: the generator of arrivals                      */
    double arrival_s;    /* of the request that begins next                   */
    struct series ttft, tpot, itl, e2e;
    uint64_t n_ok, n_failed, n_within, n_prompt, n_tokens;
    char failure[MOST_TEXTS][160];
    uint64_t n_failure[MOST_TEXTS];
    double last_s; /* when the last one ended                                 */
};

/* ---- Numbers ------------------------------------------------------------- */

static void series_add(struct series *s, double v)
{
    if (s->n == s->cap) {
        size_t cap = s->cap ? 2 * s->cap : 1024;
        double *more = realloc(s->v, cap * sizeof *more);

        if (!more) {
            s->failed = true;
            return;
        }
        s->v = more;
        s->cap = cap;
    }
    s->v[s->n++] = v;
}

static int series_order(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Of a sorted series. */
static double series_at(const struct series *s, double q)
{
    size_t i = s->n ? (size_t)ceil(q * (double)s->n) : 0;

    return s->n ? s->v[i ? i - 1 : 0] : 0;
}

static uint64_t next_random(uint64_t *s)
{
    uint64_t z = *s += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* (0, 1] */
static double next_uniform(uint64_t *s)
{
    return (double)((next_random(s) >> 11) + 1) / 9007199254740992.0;
}

/* Between lo and hi, small ones more often. */
static uint32_t next_length(uint64_t *s, uint32_t lo, uint32_t hi)
{
    double x = next_uniform(s);

    return lo + (uint32_t)((hi - lo) * x * x);
}

/* ---- Requests ------------------------------------------------------------ */

static json_t *words(uint64_t *s, uint32_t n)
{
    static const char *const list[] = {
        "river ",  "stone ", "the ",  "of ",    "a ",     "light, ",
        "answer ", "makes ", "when ", "under ", "paper ", "seven ",
        "north. ", "and ",   "to ",   "why ",
    };
    struct seam_buf b = { 0 };
    json_t *text;

    for (uint32_t i = 0; i < n; i++)
        seam_buf_str(&b, list[next_random(s) % (sizeof list / sizeof *list)]);
    text = b.failed ? NULL : json_stringn(b.p ? b.p : "", b.n);
    seam_buf_release(&b);
    return text;
}

static json_t *message(const char *role, json_t *text)
{
    return json_pack("{s:s, s:o}", "role", role, "content", text);
}

/* Request i of a mix:
 *   chat   a short question, an answer of up to 256 tokens
 *   long   a document, a short answer
 *   agent  eight talks that go on in turn, each with a long beginning of its
 *          own that all its requests share */
static json_t *mix_body(const struct load *l, uint64_t i)
{
    uint64_t s = l->o->seed * 1000003 + i;
    json_t *messages = json_array();
    uint32_t most = 0;

    if (!strcmp(l->o->mix, "chat")) {
        json_array_append_new(
            messages, message("user", words(&s, next_length(&s, 16, 400))));
        most = next_length(&s, 32, 256);
    } else if (!strcmp(l->o->mix, "long")) {
        json_array_append_new(
            messages, message("user", words(&s, next_length(&s, 1000, 6000))));
        most = next_length(&s, 16, 128);
    } else {
        uint64_t talk = i % 8, turn = i / 8 % 6;
        uint64_t own = l->o->seed * 7919 + talk * 31 + i / 48;

        json_array_append_new(messages, message("system", words(&own, 800)));
        for (uint64_t t = 0; t <= turn; t++) {
            json_array_append_new(
                messages,
                message("user", words(&own, next_length(&own, 20, 200))));
            if (t < turn)
                json_array_append_new(messages,
                                      message("assistant", words(&own, 60)));
        }
        most = next_length(&s, 16, 128);
    }
    return json_pack("{s:s, s:o, s:I, s:I}", "model", l->model, "messages",
                     messages, "max_tokens", (json_int_t)most, "seed",
                     (json_int_t)(i + 1));
}

/* Body of request i as text, and where it is to go. */
static char *load_body(const struct load *l, uint64_t i, const char **path)
{
    json_t *body = l->bodies ? json_deep_copy(json_array_get(
                                   l->bodies, i % json_array_size(l->bodies)))
                             : mix_body(l, i);
    char *text;

    if (!body)
        return NULL;
    if (!json_object_get(body, "model"))
        json_object_set_new(body, "model", json_string(l->model));
    if (l->o->max_tokens)
        json_object_set_new(body, "max_tokens", json_integer(l->o->max_tokens));
    json_object_set_new(body, "stream", json_true());
    json_object_set_new(body, "stream_options",
                        json_pack("{s:b}", "include_usage", 1));
    *path = json_object_get(body, "prompt") ? "/v1/completions"
                                            : "/v1/chat/completions";
    text = json_dumps(body, JSON_COMPACT);
    json_decref(body);
    return text;
}

/* ---- One request --------------------------------------------------------- */

struct running {
    struct seam_http_events events;
    struct seam_buf other; /* of an answer that is no stream                  */
    struct outcome o;
    uint64_t begin_ns, first_ns, last_ns;
    struct series itl;
    char error[120];
};

/* Does the event carry something that the model wrote? */
static bool event_has_token(const json_t *root)
{
    static const char *const member[] = { "content", "reasoning_content",
                                          "reasoning", NULL };
    const json_t *choice = json_array_get(json_object_get(root, "choices"), 0);
    const json_t *delta = json_object_get(choice, "delta");

    if (json_string_length(json_object_get(choice, "text")) ||
        json_object_get(delta, "tool_calls"))
        return true;
    for (const char *const *m = member; *m; m++)
        if (json_string_length(json_object_get(delta, *m)))
            return true;
    return false;
}

static int running_data(void *ctx, const char *p, size_t n)
{
    struct running *r = ctx;
    uint64_t now = seam_now_ns();
    const json_t *usage, *error;
    json_t *root;

    if (n == 6 && !memcmp(p, "[DONE]", 6))
        return 0;
    root = json_loadb(p, n, 0, NULL);
    if (!root)
        return 0;
    error = json_object_get(root, "error");
    if (json_is_object(error))
        snprintf(r->error, sizeof r->error, "%s",
                 json_string_value(json_object_get(error, "message"))
                     ? json_string_value(json_object_get(error, "message"))
                     : "an error in the stream");
    usage = json_object_get(root, "usage");
    if (json_is_object(usage)) {
        r->o.n_prompt = (uint64_t)json_integer_value(
            json_object_get(usage, "prompt_tokens"));
        r->o.n_tokens = (uint64_t)json_integer_value(
            json_object_get(usage, "completion_tokens"));
    }
    if (event_has_token(root)) {
        if (r->first_ns)
            series_add(&r->itl, (double)(now - r->last_ns) / 1e6);
        else
            r->first_ns = now;
        r->last_ns = now;
        r->o.n_events++;
    }
    json_decref(root);
    return 0;
}

static int running_bytes(void *ctx, const char *p, size_t n)
{
    struct running *r = ctx;

    if (r->other.n < 4096)
        seam_buf_add(&r->other, p, n < 4096 ? n : 4096);
    return seam_http_events(&r->events, p, n);
}

/* What an answer that is no stream says about itself. */
static void running_refusal(struct running *r)
{
    json_t *root =
        json_loadb(r->other.p ? r->other.p : "", r->other.n, 0, NULL);
    const char *text = json_string_value(
        json_object_get(json_object_get(root, "error"), "message"));

    snprintf(r->error, sizeof r->error, "status %d%s%.80s", r->o.status,
             text ? ": " : "", text ? text : "");
    json_decref(root);
}

static void load_one(struct load *l, uint64_t i, struct running *r)
{
    const struct seam_load_opts *o = l->o;
    const char *path = "";
    char *body = load_body(l, i, &path);
    struct seam_http_request q = {
        .url = &l->url,
        .method = "POST",
        .path = path,
        .key = o->key,
        .body = body,
        .n_body = body ? strlen(body) : 0,
        .timeout_ms = o->timeout_ms,
        .bytes = running_bytes,
        .ctx = r,
    };
    struct seam_error err;
    uint64_t end;

    r->events = (struct seam_http_events){ .data = running_data, .ctx = r };
    if (!body)
        snprintf(r->error, sizeof r->error, "out of memory");
    else if (seam_http_fetch(&q, &r->o.status, &err))
        snprintf(r->error, sizeof r->error, "%.110s", err.text);
    else if (r->o.status != 200)
        running_refusal(r);
    else if (!r->error[0] && !r->first_ns)
        snprintf(r->error, sizeof r->error, "an answer without a token");
    end = seam_now_ns();
    if (!r->o.n_tokens)
        r->o.n_tokens = r->o.n_events;
    r->o.e2e_ms = (double)(end - r->begin_ns) / 1e6;
    if (r->first_ns) {
        r->o.ttft_ms = (double)(r->first_ns - r->begin_ns) / 1e6;
        if (r->o.n_tokens > 1)
            r->o.tpot_ms = (double)(r->last_ns - r->first_ns) / 1e6 /
                           (double)(r->o.n_tokens - 1);
    }
    r->o.within = (!(o->slo_ttft_ms > 0) || r->o.ttft_ms <= o->slo_ttft_ms) &&
                  (!(o->slo_tpot_ms > 0) || r->o.tpot_ms <= o->slo_tpot_ms);
    seam_buf_release(&r->events.line);
    seam_buf_release(&r->other);
    free(body);
}

/* ---- All of them --------------------------------------------------------- */

static void load_count(struct load *l, const struct running *r)
{
    const struct outcome *o = &r->o;

    pthread_mutex_lock(&l->lock);
    l->last_s = (double)(seam_now_ns() - l->start_ns) / 1e9;
    if (r->error[0]) {
        uint32_t k = 0;

        l->n_failed++;
        while (k < MOST_TEXTS - 1 && l->n_failure[k] &&
               strcmp(l->failure[k], r->error))
            k++;
        snprintf(l->failure[k], sizeof l->failure[k], "%s", r->error);
        l->n_failure[k]++;
    } else {
        l->n_ok++;
        l->n_within += o->within;
        l->n_prompt += o->n_prompt;
        l->n_tokens += o->n_tokens;
        series_add(&l->ttft, o->ttft_ms);
        if (o->n_tokens > 1)
            series_add(&l->tpot, o->tpot_ms);
        series_add(&l->e2e, o->e2e_ms);
        for (size_t i = 0; i < r->itl.n; i++)
            series_add(&l->itl, r->itl.v[i]);
    }
    pthread_mutex_unlock(&l->lock);
}

/* The number of the next request and when it arrives; false: there is none. */
static bool load_next(struct load *l, uint64_t *i, double *at)
{
    const struct seam_load_opts *o = l->o;
    double now = (double)(seam_now_ns() - l->start_ns) / 1e9;
    bool go;

    pthread_mutex_lock(&l->lock);
    if (o->rate > 0)
        l->arrival_s -= log(next_uniform(&l->s)) / o->rate;
    *at = o->rate > 0 ? l->arrival_s : now;
    go = (!o->n_requests || l->n_begun < o->n_requests) &&
         (!(o->duration_s > 0) || *at < o->duration_s);
    if (go)
        *i = l->n_begun++;
    pthread_mutex_unlock(&l->lock);
    return go;
}

static void load_wait(const struct load *l, double at)
{
    uint64_t ns = l->start_ns + (uint64_t)(at * 1e9);
    struct timespec t = { .tv_sec = (time_t)(ns / 1000000000u),
                          .tv_nsec = (long)(ns % 1000000000u) };

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL))
        ;
}

static void *load_thread(void *arg)
{
    struct load *l = arg;
    uint64_t i;
    double at;

    while (load_next(l, &i, &at)) {
        struct running *r = calloc(1, sizeof *r);

        if (!r)
            break;
        load_wait(l, at);
        /* From its arrival: waiting for one of our own threads counts too. */
        r->begin_ns = l->start_ns + (uint64_t)(at * 1e9);
        load_one(l, i, r);
        load_count(l, r);
        free(r->itl.v);
        free(r);
    }
    return NULL;
}

/* ---- Telling ------------------------------------------------------------- */

static json_t *load_series(const char *name, struct series *s)
{
    static const double at[] = { 0.5, 0.9, 0.95, 0.99, 1 };
    static const char *const key[] = { "p50", "p90", "p95", "p99", "max" };
    json_t *o = json_object();
    double sum = 0;

    if (s->n)
        qsort(s->v, s->n, sizeof *s->v, series_order);
    for (size_t i = 0; i < s->n; i++)
        sum += s->v[i];
    sum = s->n ? sum / (double)s->n : 0;
    printf("%-10s %8zu %10.2f", name, s->n, sum);
    json_object_set_new(o, "n", json_integer((json_int_t)s->n));
    json_object_set_new(o, "mean", json_real(sum));
    for (size_t i = 0; i < 5; i++) {
        printf(" %10.2f", series_at(s, at[i]));
        json_object_set_new(o, key[i], json_real(series_at(s, at[i])));
    }
    printf("\n");
    return o;
}

static int load_report(struct load *l, struct seam_error *err)
{
    const struct seam_load_opts *o = l->o;
    double s = l->last_s > 0 ? l->last_s : 1e-9;
    json_t *root = json_object(), *failures = json_array();
    int rc = 0;

    printf("%llu requests in %.2f s (%llu failed), %.3f a second; %.1f tokens "
           "read and %.1f written a second\n",
           (unsigned long long)(l->n_ok + l->n_failed), s,
           (unsigned long long)l->n_failed, (double)l->n_ok / s,
           (double)l->n_prompt / s, (double)l->n_tokens / s);
    for (uint32_t k = 0; k < MOST_TEXTS && l->n_failure[k]; k++) {
        printf("  failed %llu times: %s\n", (unsigned long long)l->n_failure[k],
               l->failure[k]);
        json_array_append_new(failures,
                              json_pack("{s:s, s:I}", "text", l->failure[k],
                                        "n", (json_int_t)l->n_failure[k]));
    }
    printf("%-10s %8s %10s %10s %10s %10s %10s %10s\n", "ms", "n", "mean",
           "p50", "p90", "p95", "p99", "max");
    json_object_set_new(root, "bench", json_string("serve"));
    json_object_set_new(root, "version", json_string(SEAM_VERSION));
    json_object_set_new(root, "mix",
                        json_string(o->requests ? o->requests : o->mix));
    json_object_set_new(root, "seed", json_integer((json_int_t)o->seed));
    json_object_set_new(root, "concurrency", json_integer(o->concurrency));
    json_object_set_new(root, "rate", json_real(o->rate));
    json_object_set_new(root, "seconds", json_real(s));
    json_object_set_new(root, "ok", json_integer((json_int_t)l->n_ok));
    json_object_set_new(root, "failed", json_integer((json_int_t)l->n_failed));
    json_object_set_new(root, "failures", failures);
    json_object_set_new(root, "prompt_tokens",
                        json_integer((json_int_t)l->n_prompt));
    json_object_set_new(root, "completion_tokens",
                        json_integer((json_int_t)l->n_tokens));
    json_object_set_new(root, "ttft_ms", load_series("TTFT", &l->ttft));
    json_object_set_new(root, "tpot_ms", load_series("TPOT", &l->tpot));
    json_object_set_new(root, "itl_ms", load_series("ITL", &l->itl));
    json_object_set_new(root, "e2e_ms", load_series("whole", &l->e2e));
    json_object_set_new(
        root, "goodput",
        json_pack("{s:f, s:f, s:f, s:f}", "slo_ttft_ms", o->slo_ttft_ms,
                  "slo_tpot_ms", o->slo_tpot_ms, "requests_per_s",
                  (double)l->n_within / s, "share",
                  (double)l->n_within / (double)(l->n_ok + l->n_failed)));
    if (o->slo_ttft_ms > 0 || o->slo_tpot_ms > 0)
        printf("goodput: %.3f requests a second within TTFT %g ms and TPOT %g "
               "ms, %.1f %% of all\n",
               (double)l->n_within / s, o->slo_ttft_ms, o->slo_tpot_ms,
               100 * (double)l->n_within / (double)(l->n_ok + l->n_failed));
    if (o->json)
        rc = seam_report_json(o->json, root, err);
    json_decref(root);
    if (!rc && !l->n_ok)
        rc = seam_fail(err, SEAM_EDEVICE, "no request succeeded: %s",
                       l->failure[0]);
    return rc;
}

/* ---- Opening ------------------------------------------------------------- */

static int collect(void *ctx, const char *p, size_t n)
{
    struct seam_buf *b = ctx;

    seam_buf_add(b, p, n);
    return b->n > (1u << 20);
}

/* The first model that the server has; asked even when one is named, so that
 * what is wrong with the address is said once. */
static int load_model(struct load *l, struct seam_error *err)
{
    struct seam_buf b = { 0 };
    struct seam_http_request q = { .url = &l->url,
                                   .method = "GET",
                                   .path = "/v1/models",
                                   .key = l->o->key,
                                   .timeout_ms = l->o->timeout_ms,
                                   .bytes = collect,
                                   .ctx = &b };
    json_t *root = NULL;
    const char *id;
    int status, rc = seam_http_fetch(&q, &status, err);

    if (rc) {
        rc = seam_fail_at(err, l->o->url);
    } else if (status != 200) {
        rc = seam_fail(err, SEAM_EDATA, "%s/v1/models: status %d", l->o->url,
                       status);
    } else {
        root = json_loadb(b.p ? b.p : "", b.n, 0, NULL);
        id = json_string_value(json_object_get(
            json_array_get(json_object_get(root, "data"), 0), "id"));
        if (l->o->model)
            id = l->o->model;
        if (!id)
            rc =
                seam_fail(err, SEAM_EDATA, "%s/v1/models: no model", l->o->url);
        else
            snprintf(l->model, sizeof l->model, "%s", id);
    }
    json_decref(root);
    seam_buf_release(&b);
    return rc;
}

/* One JSON object a line; empty lines do not count. */
static int load_file(struct load *l, struct seam_error *err)
{
    const char *path = l->o->requests;
    char *text = NULL, where[300];
    uint64_t n;
    uint32_t line = 0;
    int rc;

    l->bodies = json_array();
    rc = l->bodies ? seam_file_read(path, MAX_FILE, &text, &n, err)
                   : seam_fail(err, SEAM_ENOMEM, "out of memory");
    for (char *p = text; !rc && p && *p;) {
        size_t k = strcspn(p, "\n");
        json_t *v;

        line++;
        snprintf(where, sizeof where, "%.200s:%u", path, line);
        if (strspn(p, " \t\r") < k) {
            v = seam_json_parse(p, k, where, 0, err);
            if (!v)
                rc = err->code;
            else if (!json_is_object(v))
                rc =
                    seam_fail(err, SEAM_EDATA, "%s: expected an object", where);
            if (!rc)
                json_array_append(l->bodies, v);
            json_decref(v);
        }
        p += k + (p[k] == '\n');
    }
    if (!rc && !json_array_size(l->bodies))
        rc = seam_fail(err, SEAM_EDATA, "%s: no requests", path);
    free(text);
    return rc;
}

static int load_threads(struct load *l, struct seam_error *err)
{
    pthread_t *thread = calloc(l->o->concurrency, sizeof *thread);
    uint32_t n = 0;
    int why = 0;

    if (!thread)
        return seam_fail(err, SEAM_ENOMEM, "out of memory");
    l->start_ns = seam_now_ns();
    while (n < l->o->concurrency && !why) {
        why = pthread_create(&thread[n], NULL, load_thread, l);
        n += !why;
    }
    for (uint32_t i = 0; i < n; i++)
        pthread_join(thread[i], NULL);
    free(thread);
    return n ? 0
             : seam_fail_errno(err, SEAM_ENOMEM, why, "cannot start a thread");
}

int seam_bench_load_run(const struct seam_load_opts *o, struct seam_error *err)
{
    struct load *l = calloc(1, sizeof *l);
    int rc;

    if (!l)
        return seam_fail(err, SEAM_ENOMEM, "out of memory");
    l->o = o;
    l->s = o->seed;
    pthread_mutex_init(&l->lock, NULL);
    rc = seam_http_url(o->url, &l->url, err);
    if (!rc && o->requests)
        rc = load_file(l, err);
    if (!rc)
        rc = load_model(l, err);
    if (!rc)
        rc = load_threads(l, err);
    if (!rc)
        rc = load_report(l, err);
    pthread_mutex_destroy(&l->lock);
    json_decref(l->bodies);
    free(l->ttft.v);
    free(l->tpot.v);
    free(l->itl.v);
    free(l->e2e.v);
    free(l);
    return rc;
}
