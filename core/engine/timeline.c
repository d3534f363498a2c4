#include "core/engine/timeline.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/config/config.h"

#define RING    32768u /* records; a power of two */
#define PAUSE   10     /* ms between two looks into the ring */

#define N_LANES (SEAM_LANE_ROLE + SEAM_N_ROLES)

enum { SPAN = 1, STEP = 2, REQUEST = 3 };

struct record {
    uint32_t kind, lane;
    char name[32];
    int32_t layer;
    uint32_t n_seqs, n_tokens; /* of a request: prompt and generated tokens */
    uint32_t n_cached, end;
    uint64_t number;
    uint64_t at[4]; /* start and end; of a request: submitted, started, first
                       token, ended; 0: never */
};

struct seam_timeline {
    FILE *file;
    char *path;
    const struct seam_log *log;
    pthread_t thread;
    uint64_t origin_ns;
    bool failed; /* the writer's own: the file takes no more */

    /* Single producer, single consumer: put is released by the engine's thread
     * when the record is whole, taken by the writer when it has been read. */
    _Atomic uint64_t put, taken;
    _Atomic uint64_t dropped; /* relaxed: a count */
    _Atomic bool stop;        /* release: everything was put before it */
    struct record ring[RING];
};

/* ---- Putting ------------------------------------------------------------- */

static struct record *ring_next(struct seam_timeline *t, uint32_t kind)
{
    uint64_t put = atomic_load_explicit(&t->put, memory_order_relaxed);
    struct record *r;

    /* Acquire: the writer is done with what the record held. */
    if (put - atomic_load_explicit(&t->taken, memory_order_acquire) == RING) {
        atomic_fetch_add_explicit(&t->dropped, 1, memory_order_relaxed);
        return NULL;
    }
    r = &t->ring[put % RING];
    *r = (struct record){ .kind = kind };
    return r;
}

static void ring_publish(struct seam_timeline *t)
{
    uint64_t put = atomic_load_explicit(&t->put, memory_order_relaxed);

    atomic_store_explicit(&t->put, put + 1, memory_order_release);
}

void seam_timeline_span(struct seam_timeline *t, uint32_t lane,
                        const char *name, int32_t layer, uint64_t start_ns,
                        uint64_t end_ns)
{
    struct record *r = ring_next(t, SPAN);

    if (!r)
        return;
    r->lane = lane;
    r->layer = layer;
    strncpy(r->name, name, sizeof r->name - 1);
    r->at[0] = start_ns;
    r->at[1] = end_ns;
    ring_publish(t);
}

void seam_timeline_step(struct seam_timeline *t, uint32_t n_seqs,
                        uint32_t n_tokens, uint64_t start_ns, uint64_t end_ns)
{
    struct record *r = ring_next(t, STEP);

    if (!r)
        return;
    r->n_seqs = n_seqs;
    r->n_tokens = n_tokens;
    r->at[0] = start_ns;
    r->at[1] = end_ns;
    ring_publish(t);
}

void seam_timeline_request(struct seam_timeline *t, uint64_t number,
                           const struct seam_gen_info *info,
                           enum seam_gen_end end, uint64_t end_ns)
{
    struct record *r = ring_next(t, REQUEST);

    if (!r)
        return;
    r->number = number;
    r->n_seqs = info->n_prompt;
    r->n_tokens = info->n_generated;
    r->n_cached = info->n_cached;
    r->end = end;
    r->at[0] = info->submitted_ns;
    r->at[1] = info->started_ns;
    r->at[2] = info->first_ns;
    r->at[3] = end_ns;
    ring_publish(t);
}

/* ---- Writing ------------------------------------------------------------- */

/* Microseconds since the timeline was opened. */
static double file_us(const struct seam_timeline *t, uint64_t ns)
{
    return ns > t->origin_ns ? (double)(ns - t->origin_ns) / 1e3 : 0;
}

static void file_lanes(FILE *f)
{
    fputs("[\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":1,\"args\":{"
          "\"name\":\"seam\"}}",
          f);
    for (uint32_t lane = 0; lane < N_LANES; lane++)
        fprintf(f,
                ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,"
                "\"tid\":%u,\"args\":{\"name\":\"%s\"}}"
                ",\n{\"name\":\"thread_sort_index\",\"ph\":\"M\",\"pid\":1,"
                "\"tid\":%u,\"args\":{\"sort_index\":%u}}",
                lane,
                lane < SEAM_LANE_ROLE ? "steps"
                                      : seam_role_name[lane - SEAM_LANE_ROLE],
                lane, lane);
}

/* One phase of a request, as a pair of nested asynchronous events. */
static void file_phase(const struct seam_timeline *t, const char *name,
                       uint64_t number, uint64_t from, uint64_t to)
{
    static const char line[] =
        ",\n{\"name\":\"%s\",\"cat\":\"request\",\"ph\":\"%c\",\"pid\":1,"
        "\"tid\":0,\"id\":%llu,\"ts\":%.3f}";

    fprintf(t->file, line, name, 'b', (unsigned long long)number,
            file_us(t, from));
    fprintf(t->file, line, name, 'e', (unsigned long long)number,
            file_us(t, to));
}

static void file_request(const struct seam_timeline *t, const struct record *r)
{
    static const char *const end[] = { "running", "stop", "length", "abort",
                                       "error" };
    uint64_t started = r->at[1] ? r->at[1] : r->at[3];
    uint64_t first = r->at[2] ? r->at[2] : r->at[3];

    fprintf(t->file,
            ",\n{\"name\":\"request %llu\",\"cat\":\"request\",\"ph\":\"b\","
            "\"pid\":1,\"tid\":0,\"id\":%llu,\"ts\":%.3f,\"args\":{"
            "\"prompt\":%u,\"cached\":%u,\"generated\":%u,\"end\":\"%s\"}}",
            (unsigned long long)r->number, (unsigned long long)r->number,
            file_us(t, r->at[0]), r->n_seqs, r->n_cached, r->n_tokens,
            r->end < sizeof end / sizeof *end ? end[r->end] : "?");
    file_phase(t, "queue", r->number, r->at[0], started);
    if (r->at[1])
        file_phase(t, "prefill", r->number, started, first);
    if (r->at[2])
        file_phase(t, "decode", r->number, first, r->at[3]);
    fprintf(t->file,
            ",\n{\"name\":\"request %llu\",\"cat\":\"request\",\"ph\":\"e\","
            "\"pid\":1,\"tid\":0,\"id\":%llu,\"ts\":%.3f}",
            (unsigned long long)r->number, (unsigned long long)r->number,
            file_us(t, r->at[3]));
}

static void file_record(const struct seam_timeline *t, const struct record *r)
{
    double ts = file_us(t, r->at[0]);
    double dur = file_us(t, r->at[1]) - ts;

    if (r->kind == REQUEST) {
        file_request(t, r);
        return;
    }
    if (r->kind == STEP)
        fprintf(t->file,
                ",\n{\"name\":\"step\",\"ph\":\"X\",\"pid\":1,\"tid\":%d,"
                "\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"sequences\":%u,"
                "\"tokens\":%u}}",
                SEAM_LANE_STEP, ts, dur, r->n_seqs, r->n_tokens);
    else if (r->layer < 0)
        fprintf(t->file,
                ",\n{\"name\":\"%s\",\"ph\":\"X\",\"pid\":1,\"tid\":%u,"
                "\"ts\":%.3f,\"dur\":%.3f}",
                r->name, r->lane, ts, dur);
    else
        fprintf(t->file,
                ",\n{\"name\":\"%s\",\"ph\":\"X\",\"pid\":1,\"tid\":%u,"
                "\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"layer\":%d}}",
                r->name, r->lane, ts, dur, r->layer);
}

/* Say once that the file takes no more, and go on without. */
static void file_check(struct seam_timeline *t)
{
    if (t->failed || (!fflush(t->file) && !ferror(t->file)))
        return;
    t->failed = true;
    seam_log(t->log, SEAM_LOG_ERROR, "timeline",
             "%s: %s; nothing more is written to it", t->path, strerror(errno));
}

static void *timeline_main(void *arg)
{
    struct seam_timeline *t = arg;
    struct timespec pause = { .tv_nsec = PAUSE * 1000000L };
    bool stop;

    do {
        uint64_t taken = atomic_load_explicit(&t->taken, memory_order_relaxed);
        uint64_t put;

        /* Before the ring, so that what was put before the stop is seen. */
        stop = atomic_load_explicit(&t->stop, memory_order_acquire);
        put = atomic_load_explicit(&t->put, memory_order_acquire);
        for (; taken < put; taken++)
            if (!t->failed)
                file_record(t, &t->ring[taken % RING]);
        atomic_store_explicit(&t->taken, taken, memory_order_release);
        file_check(t);
        if (!stop)
            nanosleep(&pause, NULL);
    } while (!stop);
    return NULL;
}

/* ---- Life ---------------------------------------------------------------- */

int seam_timeline_open(struct seam_timeline **out, const char *path,
                       const struct seam_log *log, struct seam_error *err)
{
    struct seam_timeline *t = calloc(1, sizeof *t);
    int rc;

    if (!t)
        return seam_fail(err, SEAM_ENOMEM, "timeline: out of memory");
    t->log = log;
    t->origin_ns = seam_now_ns();
    t->path = strdup(path);
    if (!t->path) {
        rc = seam_fail(err, SEAM_ENOMEM, "timeline: out of memory");
        goto fail;
    }
    t->file = fopen(path, "we");
    if (!t->file) {
        rc = seam_fail_errno(err, SEAM_EINVAL, errno,
                             "engine.trace: %s: cannot write", path);
        goto fail;
    }
    file_lanes(t->file);
    rc = pthread_create(&t->thread, NULL, timeline_main, t);
    if (rc) {
        rc = seam_fail_errno(err, SEAM_ENOMEM, rc,
                             "timeline: cannot start a thread");
        goto fail;
    }
    pthread_setname_np(t->thread, "seam/timeline");
    *out = t;
    return 0;
fail:
    if (t->file)
        fclose(t->file);
    free(t->path);
    free(t);
    return rc;
}

void seam_timeline_close(struct seam_timeline *t)
{
    uint64_t dropped;

    if (!t)
        return;
    atomic_store_explicit(&t->stop, true, memory_order_release);
    pthread_join(t->thread, NULL);
    dropped = atomic_load_explicit(&t->dropped, memory_order_relaxed);
    if (dropped) {
        seam_log(t->log, SEAM_LOG_WARN, "timeline",
                 "%s: %llu records were dropped, the disk was too slow",
                 t->path, (unsigned long long)dropped);
        fprintf(t->file,
                ",\n{\"name\":\"dropped\",\"ph\":\"C\",\"pid\":1,\"ts\":0,"
                "\"args\":{\"records\":%llu}}",
                (unsigned long long)dropped);
    }
    fputs("\n]\n", t->file);
    file_check(t);
    fclose(t->file);
    free(t->path);
    free(t);
}
