/* Plugins replaced under running requests: nobody notices but by time. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <malloc.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/engine/swap.h"
#include "tests/engine/talk.h"
#include "tests/support/folder.h"

/* Builds for debugging and sanitizers do fewer of the same. */
#ifdef SEAM_TEST_QUICK
#define N_SWAPS   8
#define N_OTHERS  2
#define N_STREAMS 4
#define LEN       12 /* tokens of one answer */
#define LENGTHY   160
#define SHARE     5 /* of the broken plugins, one in so many is tried */
#elif defined(SEAM_TEST_LONG) /* minutes, since a reference step is slow */
#define N_SWAPS   1000
#define N_OTHERS  100
#define N_STREAMS 32
#define LEN       24
#define LENGTHY   400
#define SHARE     1
#else
#define N_SWAPS   20
#define N_OTHERS  4
#define N_STREAMS 32
#define LEN       24
#define LENGTHY   400
#define SHARE     1
#endif

#define PROMPT 8

static const char swap_config[] =
    "{\"model\": {\"path\": \"%s/models/nano/w4a16\", \"max_context\": 512},"
    " \"plugin_dir\": \"%s\", \"plugin_paths\": [\"%s\"],"
    " \"engine\": {\"threads\": 1, \"page_tokens\": 16, \"max_seqs\": 8,"
    "              \"max_step_tokens\": 64},"
    " \"plugins\": {"
    "  \"backend\": {\"name\": \"cpu\", \"unpinned\": true},"
    "  \"linear_attention\": {\"name\": \"kda\", \"unpinned\": true},"
    "  \"sparse_attention\": {\"name\": \"sparse_mla\", \"unpinned\": true},"
    "  \"moe\": {\"name\": \"moe_resident\", \"unpinned\": true},"
    "  \"parser\": {\"name\": \"none\", \"unpinned\": true}}}";

static const char *const role_key[] = {
    "plugins.backend.name", "plugins.linear_attention.name",
    "plugins.sparse_attention.name", "plugins.moe.name", "plugins.parser.name"
};
static const char *const config_key[] = { "plugins.backend.config",
                                          "plugins.linear_attention.config",
                                          "plugins.sparse_attention.config",
                                          "plugins.moe.config",
                                          "plugins.parser.config" };
static const char *const file_key[] = {
    "plugins.backend.file", "plugins.linear_attention.file",
    "plugins.sparse_attention.file", "plugins.moe.file", "plugins.parser.file"
};

struct fixture {
    struct seam_config config;
    struct seam_log log;
    struct seam_engine *e;
};

static void parse(struct seam_config *c, const struct seam_flag *flag, size_t n)
{
    static char *no_env[] = { NULL };
    struct seam_error err;
    char text[4096];
    int len = snprintf(text, sizeof text, swap_config, SEAM_TEST_SOURCE_DIR,
                       SEAM_TEST_PLUGIN_DIR, ABI_PLUGIN_DIR);

    cr_assert_eq(seam_config_parse(c, "swap.json", text, (size_t)len, no_env,
                                   flag, n, &err),
                 0, "%s", err.text);
}

static void fixture_open(struct fixture *f, const struct seam_flag *flag,
                         size_t n)
{
    struct seam_engine_opts o = { .config = &f->config, .log = &f->log };
    struct seam_error err;

    *f = (struct fixture){ .log = { .fd = STDERR_FILENO,
                                    .level = SEAM_LOG_ERROR } };
    parse(&f->config, flag, n);
    cr_assert_eq(seam_engine_start(&f->e, &o, &err), 0, "%s", err.text);
    cr_assert_eq(seam_engine_wait_loaded(f->e, -1, &err), SEAM_ENGINE_READY,
                 "%s", err.text);
}

static void fixture_close(struct fixture *f)
{
    seam_engine_stop(f->e);
    seam_engine_free(f->e);
    seam_config_release(&f->config);
}

struct wish {
    enum seam_role role;
    const char *name, *file, *config;
    enum seam_swap_layout on;
    int64_t timeout_ms;
};

static struct seam_swap_opts swap_opts(const struct wish *w)
{
    struct seam_flag flag[3] = { { role_key[w->role], w->name } };
    struct seam_swap_opts o = {
        .source = calloc(1, sizeof *o.source),
        .on_layout_change = w->on ? w->on : SEAM_SWAP_REPLAY,
        .timeout_ms = w->timeout_ms ? w->timeout_ms : 60000,
    };
    size_t n = 1;

    if (w->file)
        flag[n++] = (struct seam_flag){ file_key[w->role], w->file };
    if (w->config)
        flag[n++] = (struct seam_flag){ config_key[w->role], w->config };
    parse(&o.source->config, flag, n);
    snprintf(o.source->origin, sizeof o.source->origin, "admin");
    o.role[w->role] = true;
    return o;
}

static int swap(struct fixture *f, const struct wish *w,
                struct seam_swap_report *r, struct seam_error *err)
{
    struct seam_swap_opts o = swap_opts(w);

    *err = (struct seam_error){ 0 };
    return seam_engine_swap(f->e, &o, r, err);
}

static void swap_well(struct fixture *f, enum seam_role role, const char *name,
                      const char *config)
{
    struct wish w = { .role = role, .name = name, .config = config };
    struct seam_swap_report r;
    struct seam_error err;

    cr_assert_eq(swap(f, &w, &r, &err), 0, "%s: %s", name, err.text);
}

static void expect_name(struct fixture *f, enum seam_role role,
                        const char *name)
{
    struct seam_instance *i = seam_engine_plugin(f->e, role);

    cr_expect_str_eq(i->host.name, name);
    seam_instance_unref(i);
}

/* ---- Streams ------------------------------------------------------------- */

struct answer {
    int32_t id[LEN];
    float margin[LEN];
};

static struct seam_gen *submit_for(struct fixture *f, int i, uint32_t len)
{
    int32_t prompt[PROMPT];
    struct seam_gen_params p = {
        .prompt = prompt,
        .n_prompt = PROMPT,
        .max_tokens = len,
        .top_p = 1,
        .repetition = 1,
        .ignore_eos = true,
        .want_logprobs = true,
        .n_top = 2,
    };
    struct seam_error err;
    struct seam_gen *g = NULL;

    for (int j = 0; j < PROMPT; j++)
        prompt[j] = (37 * i + 11 * j) % 6000;
    cr_assert_eq(seam_gen_submit(f->e, &p, &g, &err), 0, "%s", err.text);
    return g;
}

static struct seam_gen *submit(struct fixture *f, int i)
{
    return submit_for(f, i, LEN);
}

/* Every token comes once, in its place. */
static void collect(struct seam_gen *g, struct answer *a)
{
    struct seam_gen_token t[LEN + 1];
    struct seam_gen_info info;
    bool ended = false;
    uint32_t n = 0;

    while (!ended)
        n += seam_gen_take(g, -1, t + n, LEN + 1 - n, &ended);
    seam_gen_info(g, &info);
    cr_assert_eq(info.end, SEAM_GEN_LENGTH, "%s", info.err.text);
    cr_assert_eq(n, LEN);
    cr_assert_eq(info.n_generated, LEN);
    for (uint32_t i = 0; i < n; i++) {
        a->id[i] = t[i].id;
        a->margin[i] = t[i].top_logprob[0] - t[i].top_logprob[1];
    }
    seam_gen_free(g);
}

static void answer_all(struct fixture *f, struct answer a[N_STREAMS])
{
    struct seam_gen *g[N_STREAMS];

    for (int i = 0; i < N_STREAMS; i++)
        g[i] = submit(f, i);
    for (int i = 0; i < N_STREAMS; i++)
        collect(g[i], &a[i]);
}

/* The largest difference of two plugins in what they think of the first
 * token over the second, over what both computed from the same tokens. */
static float difference(const struct answer *a, const struct answer *b)
{
    float most = 0;

    for (int i = 0; i < N_STREAMS; i++)
        for (int j = 0; j < LEN && a[i].id[j] == b[i].id[j]; j++)
            most = fmaxf(most, fabsf(a[i].margin[j] - b[i].margin[j]));
    return most;
}

/* Equal to an unswapped run, up to where the first choice was as good as the
 * second. */
static unsigned compare(const struct answer *got, const struct answer *want,
                        float bound)
{
    unsigned n = 0;

    for (int j = 0; j < LEN; j++) {
        if (got->id[j] != want->id[j]) {
            cr_assert_leq(want->margin[j], bound,
                          "token %d is %d, expected %d; margin %g, plugins "
                          "differ by %g",
                          j, got->id[j], want->id[j], (double)want->margin[j],
                          (double)bound);
            break;
        }
        n++;
    }
    return n;
}

struct load {
    struct fixture *f;
    const struct answer *want;
    float bound;
    _Atomic bool stop;
    _Atomic unsigned rounds, equal, tokens;
};

/* Keep N_STREAMS requests going. */
static void *load_main(void *arg)
{
    struct load *l = arg;
    struct seam_gen *g[N_STREAMS];
    struct answer a;

    for (int i = 0; i < N_STREAMS; i++)
        g[i] = submit(l->f, i);
    while (!atomic_load(&l->stop)) {
        for (int i = 0; i < N_STREAMS; i++) {
            collect(g[i], &a);
            atomic_fetch_add(&l->equal, compare(&a, &l->want[i], l->bound));
            atomic_fetch_add(&l->tokens, LEN);
            g[i] = submit(l->f, i);
        }
        atomic_fetch_add(&l->rounds, 1);
    }
    for (int i = 0; i < N_STREAMS; i++) {
        collect(g[i], &a);
        compare(&a, &l->want[i], l->bound);
    }
    return NULL;
}

/* ---- What is held -------------------------------------------------------- */

static unsigned count_fds(void)
{
    DIR *d = opendir("/proc/self/fd");
    unsigned n = 0;

    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static unsigned count_maps(void)
{
    FILE *m = fopen("/proc/self/maps", "re");
    unsigned n = 0;
    char line[512];

    while (fgets(line, sizeof line, m))
        n += strstr(line, ".so") != NULL;
    fclose(m);
    return n;
}

/* Freed chunks that threads keep for themselves count as held; over all swaps
 * this is less than a few hundred bytes each.  LeakSanitizer sees the rest. */
#define SLACK 262144

static size_t bytes_held(void)
{
#ifdef SEAM_TEST_QUICK
    return 0; /* the sanitizer's own allocator counts */
#else
    struct mallinfo2 m = mallinfo2();

    return m.uordblks + m.hblkhd;
#endif
}

/* ---- Tests --------------------------------------------------------------- */

/* Between a plugin and its twin, back and forth, under load. */
static void swap_under_load(enum seam_role role, const char *a, const char *b,
                            int n_swaps)
{
    static struct answer with_a[N_STREAMS], with_b[N_STREAMS];
    static const struct seam_flag no_prefix[] = { { "engine.prefix_bytes",
                                                    "0" } };
    struct fixture f;
    struct load l = { .f = &f, .want = with_a };
    pthread_t thread;
    unsigned fds, maps;
    size_t bytes;

    fixture_open(&f, no_prefix, 1);
    swap_well(&f, role, b, NULL);
    answer_all(&f, with_b);
    swap_well(&f, role, a, NULL);
    answer_all(&f, with_a);
    /* Each of two choices may move, and what is cached was made by both. */
    l.bound = 2 * difference(with_a, with_b) + 1e-4f;
    cr_assert_lt(l.bound, 0.5, "%s and %s differ by %g", a, b, (double)l.bound);
    fds = count_fds();
    maps = count_maps();
    bytes = bytes_held();
    cr_assert_eq(pthread_create(&thread, NULL, load_main, &l), 0);
    for (int i = 0; i < n_swaps; i++)
        swap_well(&f, role, i % 2 ? a : b, NULL);
    atomic_store(&l.stop, true);
    pthread_join(thread, NULL);
    cr_expect_leq(bytes_held(), bytes + SLACK, "%zu bytes are held, %zu before",
                  bytes_held(), bytes);
    cr_expect_eq(seam_engine_swaps(f.e, role), (uint64_t)n_swaps + 2);
    cr_expect_eq(count_fds(), fds);
    cr_expect_eq(count_maps(), maps);
    /* The bound is no licence: nearly all is equal. */
    cr_expect_geq((double)atomic_load(&l.equal),
                  0.9 * (double)atomic_load(&l.tokens));
    printf("swap: %d swaps of %s and %s, %u tokens, %u equal, bound %g, %u "
           "rounds\n",
           n_swaps, a, b, atomic_load(&l.tokens), atomic_load(&l.equal),
           (double)l.bound, atomic_load(&l.rounds));
    fixture_close(&f);
}

Test(swap, linear_attention_under_streams_changes_no_token)
{
    swap_under_load(SEAM_ROLE_LINEAR, "kda", "kda_ref", N_SWAPS);
}

Test(swap, sparse_attention_under_streams_changes_no_token)
{
    swap_under_load(SEAM_ROLE_SPARSE, "sparse_mla", "sparse_mla_ref", N_OTHERS);
}

Test(swap, moe_under_streams_changes_no_token)
{
    swap_under_load(SEAM_ROLE_MOE, "moe_resident", "moe_resident_ref",
                    N_OTHERS);
}

/* Another layout: what runs is computed again, or ends first. */
static void change_layout(enum seam_swap_layout on)
{
    static struct answer plain[N_STREAMS], small[N_STREAMS], got[N_STREAMS];
    struct wish w = { .role = SEAM_ROLE_SPARSE,
                      .name = "sparse_mla",
                      .config = "{\"kv_dtype\":\"f32\"}",
                      .on = on };
    struct fixture f;
    struct seam_swap_report r;
    struct seam_error err;
    struct seam_gen *g[N_STREAMS];
    uint32_t used;
    float bound;

    fixture_open(&f, NULL, 0);
    answer_all(&f, plain);
    cr_assert_eq(swap(&f, &w, &r, &err), 0, "%s", err.text);
    cr_expect(r.layout_changed);
    cr_expect_eq(atomic_load(&seam_engine_stats(f.e)->pages_used), 0,
                 "snapshots of another layout were kept");
    answer_all(&f, small);
    swap_well(&f, SEAM_ROLE_SPARSE, "sparse_mla", NULL);
    bound = 2 * difference(plain, small) + 1e-4f;
    for (int i = 0; i < N_STREAMS; i++)
        g[i] = submit(&f, i);
    cr_assert_eq(swap(&f, &w, &r, &err), 0, "%s", err.text);
    if (on == SEAM_SWAP_DRAIN)
        cr_expect_eq(r.n_replayed, 0);
    for (int i = 0; i < N_STREAMS; i++) {
        collect(g[i], &got[i]);
        compare(&got[i], &plain[i], bound);
    }
    /* All pages come back. */
    w.config = NULL;
    cr_assert_eq(swap(&f, &w, &r, &err), 0, "%s", err.text);
    used = atomic_load(&seam_engine_stats(f.e)->pages_used);
    cr_expect_eq(used, 0, "%u pages are in use", used);
    fixture_close(&f);
}

Test(swap, another_layout_is_replayed)
{
    change_layout(SEAM_SWAP_REPLAY);
}

Test(swap, another_layout_is_drained_for)
{
    change_layout(SEAM_SWAP_DRAIN);
}

/* With replay there is somebody to replay: the requests are long. */
Test(swap, replay_happens_in_the_middle_of_answers)
{
    struct wish w = { .role = SEAM_ROLE_SPARSE,
                      .name = "sparse_mla",
                      .config = "{\"kv_dtype\":\"f32\"}" };
    struct fixture f;
    struct seam_swap_report r;
    struct seam_error err;
    struct seam_gen_token t[LENGTHY + 1];
    struct seam_gen *g[4];
    int32_t prompt[PROMPT] = { 5, 6, 7, 8, 9, 10, 11, 12 };
    struct seam_gen_params p = { .prompt = prompt,
                                 .n_prompt = PROMPT,
                                 .max_tokens = LENGTHY,
                                 .top_p = 1,
                                 .repetition = 1,
                                 .ignore_eos = true };

    fixture_open(&f, NULL, 0);
    for (int i = 0; i < 4; i++) {
        prompt[0] = i;
        cr_assert_eq(seam_gen_submit(f.e, &p, &g[i], &err), 0);
    }
    for (int i = 0; i < 4; i++) {
        bool ended;

        cr_assert_eq(seam_gen_take(g[i], -1, t, 1, &ended), 1);
    }
    cr_assert_eq(swap(&f, &w, &r, &err), 0, "%s", err.text);
    cr_expect_eq(r.n_replayed, 4);
    /* The time to drain for them is not given. */
    w.config = NULL;
    w.on = SEAM_SWAP_DRAIN;
    w.timeout_ms = 50;
    cr_expect_lt(swap(&f, &w, &r, &err), 0);
    cr_expect_eq(r.why, SEAM_SWAP_LATE, "%s", err.text);
    cr_expect_not_null(strstr(err.text, "timeout_ms"), "%s", err.text);
    for (int i = 0; i < 4; i++) {
        bool ended = false;
        uint32_t n = 1;

        while (!ended)
            n += seam_gen_take(g[i], -1, t, LENGTHY + 1, &ended);
        cr_expect_eq(n, LENGTHY);
        seam_gen_free(g[i]);
    }
    fixture_close(&f);
}

/* What is on disk is of the plugins in use, also when one comes back, within a
 * second and at the address of another. */
Test(swap, the_disk_tier_goes_with_the_plugins)
{
    enum { N = 200, GEN = 6 };
    static const char *const layout[] = { NULL, "{\"kv_dtype\":\"f32\"}" };
    static int32_t prompt[N], want[2][GEN], got[GEN];
    char dir[] = "/tmp/seam-swap-XXXXXX";
    const struct seam_flag flags[] = { { "engine.prefix_dir", dir } };
    struct seam_disk_stats s;
    struct fixture f = { 0 };
    struct seam_error err;
    struct talker t;
    uint32_t cached;

    for (int j = 0; j < N; j++)
        prompt[j] = 29 * j % 6000;
    cr_assert_not_null(mkdtemp(dir));
    cr_assert(talker_open(&t, flags, 1, &err), "%s", err.text);
    f.e = t.e;
    for (int i = 0; i < 6; i++) {
        int32_t *out = i < 2 ? want[i] : got;

        /* The first leaves what the second goes on from. */
        cr_assert(talker_ask(&t, prompt, N - 5, NULL, 0, 0, GEN, got, &cached));
        cr_expect(i > 1 || !cached, "%u tokens of the other layout", cached);
        cr_assert(talker_ask(&t, prompt, N, NULL, 0, 0, GEN, out, &cached));
        cr_expect_gt(cached, N / 2);
        cr_expect(!memcmp(out, want[i % 2], sizeof got), "round %d", i);
        swap_well(&f, SEAM_ROLE_SPARSE, "sparse_mla", layout[(i + 1) % 2]);
        /* Already, not in the next request's step. */
        seam_engine_disk_stats(t.e, &s);
        cr_expect_gt(s.n_foreign, 0);
        cr_expect(i || !s.n_states, "the old plugins' tier is still there");
    }
    talker_close(&t);
    folder_remove(dir);
}

Test(swap, an_open_stream_keeps_the_parser_it_began_with)
{
    struct fixture f;
    struct seam_instance *held;
    const char *name;

    fixture_open(&f, NULL, 0);
    held = seam_engine_plugin(f.e, SEAM_ROLE_PARSER);
    name = held->host.name;
    for (int i = 0; i < 3; i++) {
        swap_well(&f, SEAM_ROLE_PARSER, "glm47", NULL);
        expect_name(&f, SEAM_ROLE_PARSER, "glm47");
        swap_well(&f, SEAM_ROLE_PARSER, "glm47_ref", NULL);
        swap_well(&f, SEAM_ROLE_PARSER, "none", NULL);
    }
    cr_expect_str_eq(name, "none");
    cr_expect_not_null(held->self, "destroyed while in use");
    seam_instance_unref(held);
    fixture_close(&f);
}

/* Each file of the loader's tests, those that are right included: they do
 * nothing, and that is not what they were tried for. */
Test(swap, broken_plugins_are_refused_and_harm_nobody)
{
    static const struct {
        enum seam_role role;
        const char *name, *prefix;
    } as[] = {
        { SEAM_ROLE_PARSER, "plug", "" },
        { SEAM_ROLE_PARSER, "exports_a", "exports_a" },
        { SEAM_ROLE_LINEAR, "kinds", "" },
        { SEAM_ROLE_SPARSE, "ema", "ema" },
        { SEAM_ROLE_MOE, "kinds", "kinds_moe" },
        { SEAM_ROLE_LINEAR, "absent", "plug." },
    };
    static struct answer want[N_STREAMS];
    struct fixture f;
    struct load l = { .f = &f, .want = want, .bound = 1e-4f };
    unsigned fds, n = 0, at = 0;
    DIR *d = opendir(ABI_PLUGIN_DIR);
    struct dirent *e;
    pthread_t thread;

    cr_assert_not_null(d);
    fixture_open(&f, NULL, 0);
    answer_all(&f, want);
    fds = count_fds();
    cr_assert_eq(pthread_create(&thread, NULL, load_main, &l), 0);
    while ((e = readdir(d))) {
        char path[1024];

        /* One of them shows that the others, which are refused before they are
         * in memory, would end the process there. */
        if (e->d_name[0] == '.' || !strcmp(e->d_name, "plug_abort.so"))
            continue;
        snprintf(path, sizeof path, "%s/%s", ABI_PLUGIN_DIR, e->d_name);
        for (size_t i = 0; i < sizeof as / sizeof *as; i++) {
            struct wish w = { .role = as[i].role,
                              .name = as[i].name,
                              .file = path };
            struct seam_swap_report r;
            struct seam_error err;

            if (strncmp(e->d_name, as[i].prefix, strlen(as[i].prefix)) != 0 ||
                at++ % SHARE)
                continue;
            cr_expect_lt(swap(&f, &w, &r, &err), 0, "%s as %s was taken",
                         e->d_name, as[i].name);
            cr_expect_neq(r.why, SEAM_SWAP_DONE);
            cr_expect_gt(strlen(err.text), 10, "%s: %s", e->d_name, err.text);
            cr_expect_null(strchr(err.text, '\n'));
            n++;
        }
    }
    closedir(d);
    cr_expect_gt(n, 50 / SHARE);
    expect_name(&f, SEAM_ROLE_LINEAR, "kda");
    expect_name(&f, SEAM_ROLE_SPARSE, "sparse_mla");
    expect_name(&f, SEAM_ROLE_MOE, "moe_resident");
    expect_name(&f, SEAM_ROLE_PARSER, "none");
    atomic_store(&l.stop, true);
    pthread_join(thread, NULL);
    cr_expect_eq(count_fds(), fds - 1); /* d is closed */
    cr_expect_eq(atomic_load(&l.equal), atomic_load(&l.tokens));
    fixture_close(&f);
}

Test(swap, what_cannot_be_done_is_said)
{
    struct wish backend = { .role = SEAM_ROLE_BACKEND, .name = "cpu_ref" };
    struct wish twice = { .role = SEAM_ROLE_SPARSE, .name = "kda" };
    struct wish wrong = { .role = SEAM_ROLE_LINEAR,
                          .name = "kda",
                          .config = "{\"chunck\":1}" };
    struct fixture f;
    struct seam_swap_report r;
    struct seam_error err;

    fixture_open(&f, NULL, 0);
    cr_expect_lt(swap(&f, &backend, &r, &err), 0);
    cr_expect_eq(r.why, SEAM_SWAP_INVALID);
    cr_expect_not_null(strstr(err.text, "backend"), "%s", err.text);
    cr_expect_lt(swap(&f, &twice, &r, &err), 0);
    cr_expect_eq(r.why, SEAM_SWAP_INVALID, "%s", err.text);
    cr_expect_lt(swap(&f, &wrong, &r, &err), 0);
    cr_expect_not_null(strstr(err.text, "chunck"), "%s", err.text);
    seam_engine_drain(f.e);
    backend.role = SEAM_ROLE_PARSER;
    backend.name = "hermes";
    cr_expect_lt(swap(&f, &backend, &r, &err), 0);
    cr_expect_eq(r.why, SEAM_SWAP_NOT_NOW, "%s", err.text);
    fixture_close(&f);
}

/* Stopping does not wait for a swap, nor lose its memory. */
Test(swap, stop_gives_up_what_is_under_way)
{
    struct wish w = { .role = SEAM_ROLE_SPARSE,
                      .name = "sparse_mla",
                      .config = "{\"kv_dtype\":\"f32\"}",
                      .on = SEAM_SWAP_DRAIN };
    struct fixture f;
    struct seam_swap_opts o = swap_opts(&w);
    struct seam_swap_report r;
    struct seam_error err;
    struct seam_swap *s = NULL;
    struct seam_gen *g[N_STREAMS];

    fixture_open(&f, NULL, 0);
    for (int i = 0; i < N_STREAMS; i++)
        g[i] = submit_for(&f, i, LENGTHY);
    cr_assert_eq(seam_swap_start(f.e, &o, &s, &r, &err), 0, "%s", err.text);
    seam_engine_stop(f.e);
    cr_expect_lt(seam_swap_wait(s, -1, &r, &err), 0);
    cr_expect_eq(r.why, SEAM_SWAP_NOT_NOW, "%s", err.text);
    seam_swap_free(s);
    for (int i = 0; i < N_STREAMS; i++)
        seam_gen_free(g[i]);
    seam_engine_free(f.e);
    seam_config_release(&f.config);
}
