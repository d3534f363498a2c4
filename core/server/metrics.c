/* GET /metrics: Prometheus text, under the names dashboards know. */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/engine/instance.h"
#include "core/server/routes.h"

struct metrics {
    struct seam_buf out;
    struct seam_buf labels; /* model_name="...",engine="0" */
};

static uint64_t load64(const _Atomic uint64_t *p)
{
    return atomic_load_explicit(p, memory_order_relaxed);
}

static uint32_t load32(const _Atomic uint32_t *p)
{
    return atomic_load_explicit(p, memory_order_relaxed);
}

static void metrics_head(struct metrics *m, const char *name, const char *type,
                         const char *help)
{
    seam_buf_fmt(&m->out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name,
                 type);
}

static void metrics_value(struct metrics *m, const char *name, double v)
{
    seam_buf_fmt(&m->out, "%s{%s} %.17g\n", name, m->labels.p, v);
}

static void metrics_one(struct metrics *m, const char *name, const char *type,
                        const char *help, double v)
{
    metrics_head(m, name, type, help);
    metrics_value(m, name, v);
}

static void metrics_histogram(struct metrics *m, const char *name,
                              const char *help, const struct seam_hist *h)
{
    uint64_t sum = 0;

    metrics_head(m, name, "histogram", help);
    /* Buckets are read first, so that none exceeds the count given below. */
    for (uint32_t i = 0; i < h->n_bounds; i++) {
        sum += load64(&h->count[i]);
        seam_buf_fmt(&m->out, "%s_bucket{%s,le=\"%g\"} %llu\n", name,
                     m->labels.p, h->bound[i], (unsigned long long)sum);
    }
    sum += load64(&h->count[h->n_bounds]);
    seam_buf_fmt(&m->out, "%s_bucket{%s,le=\"+Inf\"} %llu\n", name, m->labels.p,
                 (unsigned long long)sum);
    seam_buf_fmt(&m->out, "%s_sum{%s} %.17g\n", name, m->labels.p,
                 (double)load64(&h->sum_micro) / 1e6);
    seam_buf_fmt(&m->out, "%s_count{%s} %llu\n", name, m->labels.p,
                 (unsigned long long)sum);
}

static void metrics_engine(struct metrics *m, const struct seam_config *c,
                           struct seam_stats *s)
{
    static const char *const why[] = { "stop", "length", "abort", "error" };
    uint32_t used = load32(&s->pages_used), total = load32(&s->pages_total);
    uint64_t ended[4] = { load64(&s->ended_stop), load64(&s->ended_length),
                          load64(&s->ended_abort), load64(&s->ended_error) };

    metrics_one(m, "vllm:num_requests_running", "gauge",
                "Sequences being generated.", load32(&s->running));
    metrics_one(m, "vllm:num_requests_waiting", "gauge",
                "Sequences waiting to run.", load32(&s->waiting));
    metrics_one(m, "vllm:kv_cache_usage_perc", "gauge",
                "Share of the cache pages in use, 0 to 1.",
                total ? (double)used / total : 0);
    metrics_head(m, "vllm:cache_config_info", "gauge",
                 "How the cache is laid out.");
    seam_buf_fmt(&m->out,
                 "vllm:cache_config_info{%s,block_size=\"%lld\","
                 "num_gpu_blocks=\"%u\"} 1\n",
                 m->labels.p, (long long)c->engine.page_tokens, total);
    metrics_one(m, "vllm:num_preemptions_total", "counter",
                "Sequences set back for want of pages.",
                (double)load64(&s->preemptions));
    metrics_one(m, "vllm:prompt_tokens_total", "counter",
                "Prompt tokens processed.", (double)load64(&s->prompt_tokens));
    metrics_one(m, "vllm:generation_tokens_total", "counter",
                "Tokens generated.", (double)load64(&s->generation_tokens));
    metrics_head(m, "vllm:request_success_total", "counter",
                 "Generations that ended, by reason.");
    for (int i = 0; i < 4; i++)
        seam_buf_fmt(&m->out,
                     "vllm:request_success_total{%s,finished_reason=\"%s\"} "
                     "%llu\n",
                     m->labels.p, why[i], (unsigned long long)ended[i]);
    metrics_one(m, "vllm:prefix_cache_queries_total", "counter",
                "Prompt tokens looked up in the prefix cache.",
                (double)load64(&s->prefix_queries));
    metrics_one(m, "vllm:prefix_cache_hits_total", "counter",
                "Prompt tokens found there.", (double)load64(&s->prefix_hits));
    metrics_one(m, "vllm:external_prefix_cache_queries_total", "counter",
                "Prompt tokens not in memory that were looked up on disk.",
                (double)load64(&s->disk_queries));
    metrics_one(m, "vllm:external_prefix_cache_hits_total", "counter",
                "Prompt tokens found there.", (double)load64(&s->disk_hits));
    metrics_one(m, "seam_prefix_snapshot_bytes", "gauge",
                "States kept in memory for later prompts.",
                (double)load64(&s->snapshot_bytes));
    metrics_one(m, "seam_prefix_snapshots", "gauge", "Their number.",
                (double)load64(&s->snapshots));
    metrics_one(m, "seam_prefix_evictions_total", "counter",
                "Those dropped from memory for want of room.",
                (double)load64(&s->snapshots_evicted));
    metrics_histogram(m, "vllm:time_to_first_token_seconds",
                      "From submission to the first token.", &s->ttft);
    metrics_histogram(m, "vllm:inter_token_latency_seconds",
                      "Between two tokens.", &s->itl);
    metrics_histogram(m, "vllm:e2e_request_latency_seconds",
                      "From submission to the end.", &s->e2e);
    metrics_histogram(m, "vllm:request_queue_time_seconds",
                      "Time spent waiting.", &s->queue);
    metrics_histogram(m, "vllm:request_prefill_time_seconds",
                      "Time spent on the prompt.", &s->prefill);
    metrics_histogram(m, "vllm:request_decode_time_seconds",
                      "Time spent generating.", &s->decode);
    metrics_histogram(m, "vllm:request_inference_time_seconds",
                      "Time spent running: on the prompt and generating.",
                      &s->inference);
    metrics_histogram(m, "vllm:request_time_per_output_token_seconds",
                      "Mean time between two tokens of a generation.",
                      &s->per_token);
    metrics_histogram(m, "vllm:request_max_num_generation_tokens",
                      "Longest generation of a request.", &s->gen_most);
    metrics_histogram(m, "vllm:request_params_max_tokens",
                      "Tokens a request may generate.", &s->asked_tokens);
    metrics_histogram(m, "vllm:request_params_n", "Choices a request asks for.",
                      &s->asked_n);
    metrics_histogram(m, "vllm:request_prompt_tokens", "Length of prompts.",
                      &s->prompt_len);
    metrics_histogram(m, "vllm:request_generation_tokens",
                      "Tokens generated for a request.", &s->gen_len);
    metrics_histogram(m, "vllm:iteration_tokens_total", "Token rows of a step.",
                      &s->step_tokens);
    metrics_one(m, "seam_steps_total", "counter", "Steps of the engine.",
                (double)load64(&s->steps));
    metrics_one(m, "seam_requests_rejected_total", "counter",
                "Submissions refused because the queue was full.",
                (double)load64(&s->rejected));
    metrics_one(m, "seam_requests_timed_out_total", "counter",
                "Generations ended by their deadline.",
                (double)load64(&s->timeouts));
}

static void metrics_grammars(struct metrics *m, struct seam_compiled *c)
{
    struct seam_compiled_stats s;

    seam_compiled_stats(c, &s);
    metrics_one(m, "seam_grammar_cache_hits_total", "counter",
                "Constraints whose grammar was compiled before.",
                (double)s.hits);
    metrics_one(m, "seam_grammar_cache_misses_total", "counter",
                "Constraints that were compiled.", (double)s.misses);
    metrics_one(m, "seam_grammar_cache_evictions_total", "counter",
                "Compiled grammars that gave way to others.",
                (double)s.evictions);
    metrics_one(m, "seam_grammar_cache_bytes", "gauge",
                "Memory of compiled grammars and their masks.",
                (double)s.bytes);
    metrics_one(m, "seam_grammar_cache_grammars", "gauge",
                "Compiled grammars that are remembered.", (double)s.n_grammars);
}

static void metrics_disk(struct metrics *m, const struct seam_disk_stats *s)
{
    metrics_one(m, "seam_prefix_disk_bytes", "gauge",
                "Files of the prefix cache.", (double)s->bytes);
    metrics_one(m, "seam_prefix_disk_snapshots", "gauge",
                "Snapshots among them.", (double)s->n_states);
    metrics_one(m, "seam_prefix_disk_queue_bytes", "gauge",
                "Snapshots waiting to be written.", (double)s->queue_bytes);
    metrics_one(m, "seam_prefix_disk_writes_total", "counter",
                "Snapshots written.", (double)s->n_written);
    metrics_one(m, "seam_prefix_disk_evictions_total", "counter",
                "Snapshots dropped from disk for want of room.",
                (double)s->n_evicted);
    metrics_one(m, "seam_prefix_disk_dropped_total", "counter",
                "Snapshots not written: the queue was full or a write failed.",
                (double)s->n_dropped);
    metrics_one(m, "seam_prefix_disk_damaged_total", "counter",
                "Files found damaged, and removed.", (double)s->n_damaged);
}

static void metrics_swaps(struct metrics *m, struct seam_stats *s)
{
    metrics_head(m, "seam_plugin_swaps_total", "counter",
                 "Plugins replaced at run time, or not.");
    for (int r = 0; r < SEAM_N_ROLES; r++)
        seam_buf_fmt(&m->out,
                     "seam_plugin_swaps_total{role=\"%s\",result=\"ok\"} %llu\n"
                     "seam_plugin_swaps_total{role=\"%s\",result=\"refused\"} "
                     "%llu\n",
                     seam_role_name[r],
                     (unsigned long long)load64(&s->swaps_ok[r]),
                     seam_role_name[r],
                     (unsigned long long)load64(&s->swaps_refused[r]));
}

static void metrics_counter(void *ctx, const char *plugin, const char *name,
                            const char *unit, uint64_t value)
{
    char whole[128], help[128];

    snprintf(whole, sizeof whole, "seam_plugin_%s_%s_total", plugin, name);
    snprintf(help, sizeof help, "Counted by the plugin, in %s.", unit);
    metrics_one(ctx, whole, "counter", help, (double)value);
}

/* What the plugins in use count themselves (plugin.h, seam_host.counter). */
static void metrics_plugins(struct metrics *m, const struct seam_engine *e)
{
    for (int r = 0; r < SEAM_N_ROLES; r++) {
        struct seam_instance *i = seam_engine_plugin(e, (enum seam_role)r);

        seam_hosted_counters(&i->host, metrics_counter, m);
        seam_instance_unref(i);
    }
}

static void metrics_process(struct metrics *m)
{
    long pages = 0, skip = 0;
    unsigned fds = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    DIR *d = opendir("/proc/self/fd");

    if (f) {
        if (fscanf(f, "%ld %ld", &skip, &pages) != 2)
            pages = 0;
        fclose(f);
    }
    if (d) {
        while (readdir(d))
            fds++;
        closedir(d);
        fds = fds > 3 ? fds - 3 : 0; /* ".", ".." and the folder itself */
    }
    seam_buf_fmt(&m->out,
                 "# HELP process_resident_memory_bytes Resident memory.\n"
                 "# TYPE process_resident_memory_bytes gauge\n"
                 "process_resident_memory_bytes %ld\n"
                 "# HELP process_open_fds Open file descriptors.\n"
                 "# TYPE process_open_fds gauge\nprocess_open_fds %u\n",
                 pages * sysconf(_SC_PAGESIZE), fds);
}

static void metrics_http(struct metrics *m, struct seam_server *s)
{
    metrics_head(m, "seam_http_requests_total", "counter",
                 "Answers by route and status.");
    for (uint32_t r = 0; r < SEAM_N_ROUTES; r++)
        for (uint32_t c = 0; c < SEAM_N_CODES; c++) {
            uint64_t n = load64(&s->answers[r][c]);

            if (n)
                seam_buf_fmt(&m->out,
                             "seam_http_requests_total{route=\"%s\","
                             "code=\"%d\"} %llu\n",
                             seam_route_label(r), seam_code_of(c),
                             (unsigned long long)n);
        }
    metrics_one(m, "seam_http_connections", "gauge", "Open connections.",
                seam_conns_count(s->conns));
    metrics_one(m, "seam_requests_cancelled_total", "counter",
                "Requests whose client left before the answer was complete.",
                (double)load64(&s->cancelled));
}

static void metrics_label(struct seam_buf *b, const char *s)
{
    for (; *s; s++) {
        if (*s == '\\' || *s == '"')
            seam_buf_add(b, "\\", 1);
        if (*s == '\n')
            seam_buf_str(b, "\\n");
        else
            seam_buf_add(b, s, 1);
    }
}

void seam_api_metrics(struct seam_http *h)
{
    struct seam_engine *e = seam_server_engine(h->s);
    struct metrics m = { 0 };
    struct seam_disk_stats disk = { 0 };
    struct seam_stats none; /* before there is an engine: all zero */

    seam_buf_str(&m.labels, "model_name=\"");
    metrics_label(&m.labels, seam_server_model(h->s));
    seam_buf_str(&m.labels, "\",engine=\"0\"");
    seam_stats_init(&none);
    metrics_engine(&m, h->s->config, e ? seam_engine_stats(e) : &none);
    if (e && seam_engine_state(e) == SEAM_ENGINE_READY) {
        metrics_grammars(&m, seam_engine_compiled(e));
        metrics_plugins(&m, e);
    }
    if (e)
        seam_engine_disk_stats(e, &disk);
    metrics_disk(&m, &disk);
    metrics_swaps(&m, e ? seam_engine_stats(e) : &none);
    metrics_http(&m, h->s);
    metrics_process(&m);
    seam_http_reply(h, 200, "text/plain; version=0.0.4; charset=utf-8",
                    m.out.p ? m.out.p : "", m.out.n);
    seam_buf_release(&m.out);
    seam_buf_release(&m.labels);
}
