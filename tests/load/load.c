/* Load on the real program: many connections that stream, wait, leave and read
 * slowly, with prompts and answers of mixed lengths.
 *
 *   seam_load --seam PROGRAM --config FILE [--seconds N] [--connections N]
 *             [--seed N] [--curve] [-- further arguments of seam serve]
 *
 * It starts the server, loads it, stops it, and exits 1 if anything came that
 * is no documented refusal, if descriptors or (in runs of a minute or more)
 * memory grew, or if the server did not end with status 0.  --curve prints
 * tokens per second for 1 to 64 streams instead.
 *
 * One thread with epoll, so that 256 clients cost the machine little. */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/buf.h"
#include "core/base/clock.h"

#define MS           UINT64_C(1000000)
#define SECOND       (1000 * MS)
#define MAX_CONNS    1024
#define PATIENCE_S   600 /* no answer may take longer: as patient as SDKs */
#define SLOW_BYTES   512
#define SLOW_EVERY   (50 * MS)
#define VOCAB        6000
#define MAX_SET_ARGS 64

enum kind {
    STREAM = 0,
    PLAIN = 1,
    LEAVE = 2, /* closes after some events, or before the first */
    SLOW = 3,  /* a small window, read in small bites */
    PROBE = 4, /* health and metrics */
    N_KINDS = 5
};
static const char *const KIND[] = { "stream", "plain", "leave", "slow",
                                    "probe" };

enum outcome {
    DONE = 0,
    REFUSED = 1, /* 429 or 503 with Retry-After; its own deadline */
    LEFT = 2,
    WRONG = 3,
    N_OUTCOMES = 4
};

struct conn {
    int fd; /* -1: resting until wake_ns */
    enum kind kind;
    bool reused; /* a request on it was answered before */
    bool head;   /* of the answer has come */
    int status;
    int64_t length;      /* of the body, -1: to the end */
    struct seam_buf out; /* not sent yet, from out_at on */
    size_t out_at;
    struct seam_buf in; /* not used yet */
    uint64_t began_ns, last_ns, wake_ns;
    unsigned events, leave_after, retry_s;
    bool patient; /* has a low priority, and therefore a deadline */
    bool late;    /* which has passed */
    bool done;    /* [DONE] came */
};

/* What was measured, grown as needed. */
struct samples {
    float *v;
    size_t n, cap;
};

struct load {
    struct sockaddr_in to;
    pid_t pid;
    int log, epoll;
    unsigned seed, n_conns;
    struct conn *conn;
    uint64_t start_ns, end_ns;
    bool ending; /* no new requests */
    uint64_t count[N_KINDS][N_OUTCOMES], tokens, reopened;
    struct samples ttft, itl, rss;
    unsigned fds_before, fds_most, n_wrong_said;
};

/* ---- Helpers ------------------------------------------------------------- */

static void die(const char *what)
{
    fprintf(stderr, "load: %s: %s\n", what, strerror(errno));
    exit(2);
}

static void sample(struct samples *s, double v)
{
    if (s->n == s->cap) {
        s->cap = s->cap ? 2 * s->cap : 4096;
        s->v = realloc(s->v, s->cap * sizeof *s->v);
        if (!s->v)
            die("memory");
    }
    s->v[s->n++] = (float)v;
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return (x > y) - (x < y);
}

static double percentile(const struct samples *s, double p)
{
    return s->n ? (double)s->v[(size_t)(p / 100 * (double)(s->n - 1))] : 0;
}

static void print_percentiles(const char *name, struct samples *s)
{
    if (s->n)
        qsort(s->v, s->n, sizeof *s->v, by_value);
    printf("%-12s p50 %8.1f   p90 %8.1f   p99 %8.1f   p99.9 %8.1f   max "
           "%8.1f ms (%zu)\n",
           name, percentile(s, 50), percentile(s, 90), percentile(s, 99),
           percentile(s, 99.9), percentile(s, 100), s->n);
}

static unsigned draw(struct load *l, unsigned n)
{
    return (unsigned)rand_r(&l->seed) % n;
}

/* ---- The server ---------------------------------------------------------- */

static unsigned server_fds(const struct load *l)
{
    char path[64];
    unsigned n = 0;
    DIR *d;

    snprintf(path, sizeof path, "/proc/%d/fd", (int)l->pid);
    d = opendir(path);
    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n > 2 ? n - 2 : 0;
}

/* In MiB. */
static double server_rss(const struct load *l)
{
    char path[64];
    long size = 0, pages = 0;
    FILE *f;

    snprintf(path, sizeof path, "/proc/%d/statm", (int)l->pid);
    f = fopen(path, "re");
    if (!f || fscanf(f, "%ld %ld", &size, &pages) != 2)
        pages = 0;
    if (f)
        fclose(f);
    return (double)pages * (double)sysconf(_SC_PAGESIZE) / 1048576;
}

/* Read its log until a line holds text; copies what follows to out. */
static void server_until(struct load *l, const char *text, char *out, size_t n)
{
    struct seam_buf all = { 0 };
    const char *at;

    for (;;) {
        char part[4096];
        ssize_t got = read(l->log, part, sizeof part);

        if (got <= 0) {
            fprintf(stderr, "load: the server ended: %s\n", all.p);
            exit(2);
        }
        seam_buf_add(&all, part, (size_t)got);
        at = strstr(all.p, text);
        if (at && strchr(at, '\n'))
            break;
    }
    at += strlen(text);
    snprintf(out, n, "%.*s", (int)strcspn(at, " /\n"), at);
    seam_buf_release(&all);
}

static void server_start(struct load *l, const char *program,
                         const char *config, char **more, int n_more)
{
    char *argv[MAX_SET_ARGS + 16] = {
        (char *)program, (char *)"serve",    (char *)"-c",
        (char *)config,  (char *)"--listen", (char *)"127.0.0.1:0"
    };
    char port[64];
    int p[2], n = 6;

    for (int i = 0; i < n_more && i < MAX_SET_ARGS; i++)
        argv[n++] = more[i];
    if (pipe2(p, O_CLOEXEC))
        die("pipe");
    l->pid = fork();
    if (l->pid < 0)
        die("fork");
    if (!l->pid) {
        dup2(p[1], STDERR_FILENO);
        execv(program, argv);
        _exit(127);
    }
    close(p[1]);
    l->log = p[0];
    server_until(l, "listening on http://127.0.0.1:", port, sizeof port);
    l->to = (struct sockaddr_in){ .sin_family = AF_INET };
    l->to.sin_port = htons((uint16_t)strtoul(port, NULL, 10));
    l->to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    server_until(l, "ready after ", port, sizeof port);
    fcntl(l->log, F_SETFL, O_NONBLOCK);
}

/* Its log must not fill the pipe; errors in it are shown. */
static void server_log(struct load *l)
{
    char part[65536];
    ssize_t n;

    while ((n = read(l->log, part, sizeof part - 1)) > 0) {
        part[n] = 0;
        for (char *s = part, *end; (end = strchr(s, '\n')); s = end + 1) {
            *end = 0;
            if (strstr(s, " error ") || strstr(s, "Sanitizer") ||
                strstr(s, "WARNING: ") || strstr(s, "SUMMARY"))
                fprintf(stderr, "server: %s\n", s);
        }
    }
}

static int server_stop(struct load *l)
{
    int status = 0;

    kill(l->pid, SIGTERM);
    fcntl(l->log, F_SETFL, 0);
    server_log(l); /* to its end */
    if (waitpid(l->pid, &status, 0) != l->pid)
        die("waitpid");
    close(l->log);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* ---- Requests ------------------------------------------------------------ */

/* Most are short, some long: n tokens. */
static unsigned draw_prompt(struct load *l)
{
    unsigned what = draw(l, 10);

    return what < 6   ? 4 + draw(l, 60)
           : what < 9 ? 100 + draw(l, 300)
                      : 600 + draw(l, 900);
}

static void write_request(struct load *l, struct conn *c, unsigned n_prompt,
                          unsigned n_out)
{
    struct seam_buf body = { 0 };
    /* Some share their beginning with others, as conversations do. */
    unsigned from = draw(l, 3) ? draw(l, VOCAB) : 17;

    seam_buf_str(&body, "{\"prompt\":[");
    for (unsigned i = 0; i < n_prompt; i++)
        seam_buf_fmt(&body, "%s%u", i ? "," : "", (from + 7 * i) % VOCAB);
    seam_buf_fmt(&body,
                 "],\"max_tokens\":%u,\"ignore_eos\":true,\"seed\":%u,"
                 "\"user\":\"u%u\",%s\"stream\":%s}",
                 n_out, draw(l, 1000), draw(l, 8),
                 c->patient ? "\"priority\":1,\"timeout\":30," : "",
                 c->kind == PLAIN ? "false" : "true");
    seam_buf_fmt(&c->out,
                 "POST /v1/completions HTTP/1.1\r\nHost: load\r\n"
                 "Content-Type: application/json\r\n"
                 "Content-Length: %zu\r\n\r\n",
                 body.n);
    seam_buf_add(&c->out, body.p, body.n);
    seam_buf_release(&body);
}

static void conn_watch(struct load *l, struct conn *c, int op)
{
    struct epoll_event ev = { .data.u64 = (uint64_t)(c - l->conn) };

    ev.events = c->out_at < c->out.n ? EPOLLIN | EPOLLOUT : EPOLLIN;
    if (epoll_ctl(l->epoll, op, c->fd, &ev))
        die("epoll_ctl");
}

static void conn_connect(struct load *l, struct conn *c)
{
    int small = 4096;

    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (c->fd < 0)
        die("socket");
    if (c->kind == SLOW)
        setsockopt(c->fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    if (connect(c->fd, (struct sockaddr *)&l->to, sizeof l->to) &&
        errno != EINPROGRESS)
        die("connect");
    c->reused = false;
    conn_watch(l, c, EPOLL_CTL_ADD);
}

static void conn_close(struct conn *c)
{
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
}

/* The next request, on the open connection if there is one. */
static void conn_begin(struct load *l, struct conn *c)
{
    unsigned what = draw(l, 100);

    c->kind = what < 62   ? STREAM
              : what < 78 ? PLAIN
              : what < 90 ? LEAVE
              : what < 95 ? SLOW
                          : PROBE;
    if (c->kind == SLOW || c->kind == LEAVE)
        conn_close(c);
    seam_buf_clear(&c->out);
    seam_buf_clear(&c->in);
    c->out_at = 0;
    c->head = c->done = c->late = false;
    /* What can wait may wait long under such a load: it has a deadline. */
    c->patient = c->kind != PROBE && !draw(l, 20);
    c->status = 0;
    c->length = -1;
    c->events = 0;
    c->retry_s = 0;
    c->leave_after = draw(l, 12);
    if (c->kind == PROBE)
        seam_buf_fmt(&c->out, "GET %s HTTP/1.1\r\nHost: load\r\n\r\n",
                     draw(l, 2) ? "/health" : "/metrics");
    else
        write_request(l, c, draw_prompt(l), 1 + draw(l, 64));
    c->began_ns = seam_now_ns();
    c->last_ns = 0;
    if (c->fd < 0)
        conn_connect(l, c);
    else
        conn_watch(l, c, EPOLL_CTL_MOD);
}

/* The request is over; wait before the next as told, or begin it. */
static void conn_over(struct load *l, struct conn *c, enum outcome how)
{
    bool keep = how == DONE && c->length >= 0 && c->kind != SLOW;

    l->count[c->kind][how]++;
    if (how == WRONG && l->n_wrong_said++ < 10)
        fprintf(stderr, "load: %s: status %d after %.1f s, %u events: %.300s\n",
                KIND[c->kind], c->status,
                (double)(seam_now_ns() - c->began_ns) / 1e9, c->events,
                c->in.p ? c->in.p : "(nothing)");
    if (!keep)
        conn_close(c);
    else
        c->reused = true;
    c->wake_ns = seam_now_ns() + (c->retry_s ? c->retry_s * SECOND / 4 : MS);
    if (c->fd >= 0 && l->ending)
        conn_close(c);
}

static void drop(struct seam_buf *b, size_t n)
{
    memmove(b->p, b->p + n, b->n - n + 1);
    b->n -= n;
}

static bool conn_head(struct conn *c)
{
    char *end = c->in.p ? strstr(c->in.p, "\r\n\r\n") : NULL;
    const char *v;

    if (!end)
        return false;
    *end = 0;
    if (sscanf(c->in.p, "HTTP/1.1 %d", &c->status) != 1)
        c->status = -1;
    if ((v = strcasestr(c->in.p, "\r\nContent-Length:")))
        c->length = strtoll(v + 17, NULL, 10);
    if ((v = strcasestr(c->in.p, "\r\nRetry-After:")))
        c->retry_s = (unsigned)strtoul(v + 14, NULL, 10);
    drop(&c->in, (size_t)(end - c->in.p) + 4);
    c->head = true;
    return true;
}

/* One event of a stream; false when it is an error. */
static bool conn_event(struct load *l, struct conn *c, const char *p)
{
    const char *text = strstr(p, "\"text\":\"");
    uint64_t now = seam_now_ns();

    if (p[0] == ':')
        return true;
    if (!strcmp(p, "data: [DONE]")) {
        c->done = true;
        return true;
    }
    if (!strncmp(p, "data: {\"error\":", 15)) {
        c->late = c->patient && strstr(p, "deadline_exceeded");
        return c->late;
    }
    if (!text || text[8] == '"')
        return true;
    c->events++;
    l->tokens++;
    if (c->kind == STREAM && now < l->end_ns) {
        if (c->last_ns)
            sample(&l->itl, (double)(now - c->last_ns) / 1e6);
        else
            sample(&l->ttft, (double)(now - c->began_ns) / 1e6);
    }
    c->last_ns = now;
    return true;
}

/* Use what has come; true when the request is over. */
static bool conn_read(struct load *l, struct conn *c, bool eof)
{
    char *end;

    if (!c->head && !conn_head(c)) {
        if (!eof)
            return false;
        /* The server may close a connection between two requests. */
        if (c->reused && !c->in.n) {
            l->reopened++;
            c->out_at = 0;
            conn_close(c);
            conn_connect(l, c);
            return false;
        }
        conn_over(l, c, c->kind == LEAVE ? LEFT : WRONG);
        return true;
    }
    if (c->length >= 0) { /* a whole body */
        bool refused = (c->retry_s && (c->status == 429 || c->status == 503)) ||
                       (c->patient && c->status == 504);

        if (c->in.n < (size_t)c->length && !eof)
            return false;
        conn_over(l, c,
                  c->in.n < (size_t)c->length ? WRONG
                  : c->status == 200          ? DONE
                  : refused                   ? REFUSED
                                              : WRONG);
        return true;
    }
    while (c->in.p && (end = strstr(c->in.p, "\n\n"))) {
        *end = 0;
        if (c->status != 200 || !conn_event(l, c, c->in.p)) {
            conn_over(l, c, WRONG);
            return true;
        }
        drop(&c->in, (size_t)(end - c->in.p) + 2);
        if (c->kind == LEAVE && c->events >= c->leave_after) {
            conn_over(l, c, LEFT);
            return true;
        }
    }
    if (!eof)
        return false;
    conn_over(l, c, !c->done ? WRONG : c->late ? REFUSED : DONE);
    return true;
}

static void conn_ready(struct load *l, struct conn *c, uint32_t events)
{
    char part[16384];
    size_t want = c->kind == SLOW ? SLOW_BYTES : sizeof part;
    ssize_t n;

    if (c->fd < 0)
        return;
    if (events & EPOLLOUT && c->out_at < c->out.n) {
        n = send(c->fd, c->out.p + c->out_at, c->out.n - c->out_at,
                 MSG_NOSIGNAL);
        if (n > 0)
            c->out_at += (size_t)n;
        if (c->out_at == c->out.n) {
            if (c->kind == LEAVE && !c->leave_after) {
                conn_over(l, c, LEFT);
                return;
            }
            conn_watch(l, c, EPOLL_CTL_MOD);
        }
    }
    if (!(events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
        return;
    n = recv(c->fd, part, want, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0)
        seam_buf_add(&c->in, part, (size_t)n);
    if (conn_read(l, c, n <= 0))
        return;
    if (c->kind == SLOW && c->fd >= 0 && n > 0) {
        /* Out of epoll until its next bite. */
        epoll_ctl(l->epoll, EPOLL_CTL_DEL, c->fd, NULL);
        c->wake_ns = seam_now_ns() + SLOW_EVERY;
    }
}

/* Begin what rests and let slow ones read; returns how many are under way. */
static unsigned load_wake(struct load *l)
{
    uint64_t now = seam_now_ns();
    unsigned open = 0;

    for (unsigned i = 0; i < l->n_conns; i++) {
        struct conn *c = &l->conn[i];
        bool idle = c->wake_ns && (c->fd < 0 || c->kind != SLOW);

        if (idle && l->ending) {
            conn_close(c);
            continue;
        }
        open++;
        if (c->wake_ns && now >= c->wake_ns) {
            c->wake_ns = 0;
            if (idle)
                conn_begin(l, c);
            else
                conn_watch(l, c, EPOLL_CTL_ADD);
        }
        if (!idle && now - c->began_ns > PATIENCE_S * SECOND) {
            fprintf(stderr, "load: no end after %d s\n", PATIENCE_S);
            conn_over(l, c, WRONG);
        }
    }
    return open;
}

static void load_run(struct load *l, unsigned seconds)
{
    struct epoll_event ev[256];
    uint64_t look_ns = 0;

    l->fds_before = server_fds(l);
    l->start_ns = seam_now_ns();
    l->end_ns = l->start_ns + seconds * SECOND;
    for (unsigned i = 0; i < l->n_conns; i++) {
        l->conn[i].fd = -1;
        l->conn[i].wake_ns = l->start_ns + i * MS; /* not all at once */
    }
    while (load_wake(l)) {
        uint64_t now = seam_now_ns();
        int n = epoll_wait(l->epoll, ev, 256, 5);

        for (int i = 0; i < n; i++)
            conn_ready(l, &l->conn[ev[i].data.u64], ev[i].events);
        server_log(l);
        l->ending = now >= l->end_ns;
        if (now - look_ns > SECOND && !l->ending) {
            unsigned fds = server_fds(l);

            look_ns = now;
            sample(&l->rss, server_rss(l));
            if (fds > l->fds_most)
                l->fds_most = fds;
        }
    }
}

/* ---- Verdict ------------------------------------------------------------- */

/* Descriptors are back once the server has seen its clients go. */
static unsigned fds_after(struct load *l)
{
    uint64_t until = seam_now_ns() + 120 * SECOND;
    unsigned n;

    do {
        server_log(l);
        n = server_fds(l);
    } while (n > l->fds_before && seam_now_ns() < until);
    return n;
}

static double mean(const struct samples *s, size_t from, size_t to)
{
    double sum = 0;

    for (size_t i = from; i < to; i++)
        sum += (double)s->v[i];
    return to > from ? sum / (double)(to - from) : 0;
}

static int load_report(struct load *l, unsigned seconds)
{
    unsigned fds = fds_after(l);
    size_t n = l->rss.n;
    double early =
        mean(&l->rss, n / 3, n / 3 + n / 6 + 1 < n ? n / 3 + n / 6 + 1 : n);
    double late = mean(&l->rss, n - n / 6 - (n > 0), n);
    uint64_t wrong = 0, all = 0;
    bool grew = seconds >= 60 && late > early * 1.05 + 4, bad;
    int status;

    printf("%u connections, %u s\n", l->n_conns, seconds);
    printf("%-8s %10s %10s %10s %10s\n", "", "done", "refused", "left",
           "wrong");
    for (int k = 0; k < N_KINDS; k++) {
        printf("%-8s", KIND[k]);
        for (int o = 0; o < N_OUTCOMES; o++) {
            printf(" %10llu", (unsigned long long)l->count[k][o]);
            all += l->count[k][o];
        }
        printf("\n");
        wrong += l->count[k][WRONG];
    }
    printf("%.1f requests/s, %.0f streamed events/s, %llu connections closed "
           "between requests\n",
           (double)all / seconds, (double)l->tokens / seconds,
           (unsigned long long)l->reopened);
    print_percentiles("first token", &l->ttft);
    print_percentiles("inter-token", &l->itl);
    printf("resident     %.1f MiB from a third to a half of the run, %.1f at "
           "its end\n",
           early, late);
    printf("descriptors  %u before, %u at most, %u after\n", l->fds_before,
           l->fds_most, fds);
    status = server_stop(l);
    printf("exit status  %d\n", status);
    /* In a few seconds of a sanitizer's pace not every kind comes through. */
    bad = wrong || fds > l->fds_before || grew || status ||
          !(l->count[STREAM][DONE] + l->count[PLAIN][DONE]);
    printf("%s\n", bad ? "FAILED" : "ok");
    return bad;
}

/* ---- The curve ----------------------------------------------------------- */

/* n streams of n_out tokens at once; tokens per second from the first event of
 * all to the last. */
static double curve_point(struct load *l, unsigned n, unsigned n_out)
{
    struct epoll_event ev[64];
    uint64_t first = 0, last = 0;
    unsigned open = n;

    l->n_conns = n;
    l->tokens = 0;
    l->end_ns = UINT64_MAX;
    l->ending = true; /* one request each */
    for (unsigned i = 0; i < n; i++) {
        struct conn *c = &l->conn[i];

        seam_buf_release(&c->in);
        seam_buf_release(&c->out);
        *c = (struct conn){ .fd = -1, .length = -1, .kind = STREAM };
        c->began_ns = seam_now_ns();
        write_request(l, c, 32, n_out);
        conn_connect(l, c);
    }
    while (open) {
        int k = epoll_wait(l->epoll, ev, 64, 1000);
        uint64_t before = l->tokens;

        for (int i = 0; i < k; i++)
            conn_ready(l, &l->conn[ev[i].data.u64], ev[i].events);
        if (l->tokens > before) {
            last = seam_now_ns();
            first = first ? first : last;
        }
        server_log(l);
        open = 0;
        for (unsigned i = 0; i < n; i++)
            open += l->conn[i].fd >= 0;
    }
    return (double)(n * (n_out - 1)) / ((double)(last - first) / 1e9);
}

static int load_curve(struct load *l)
{
    double one = 0;

    printf("%8s %12s %14s %8s\n", "streams", "tokens/s", "per stream",
           "factor");
    for (unsigned n = 1; n <= 64; n *= 2) {
        double best = 0;

        uint64_t until = seam_now_ns() + 10 * SECOND;

        /* The best of three, or of fewer on a machine that is busy. */
        for (int again = 0; again < 3; again++) {
            double v = curve_point(l, n, 64);

            best = v > best ? v : best;
            if (seam_now_ns() > until)
                break;
        }
        one = one > 0 ? one : best;
        printf("%8u %12.0f %14.1f %8.2f\n", n, best, best / n, best / one);
        fflush(stdout);
    }
    for (int k = 0; k < N_KINDS; k++)
        if (l->count[k][WRONG] || l->count[k][REFUSED])
            return 1;
    return server_stop(l) != 0;
}

int main(int argc, char **argv)
{
    struct load l = { .n_conns = 256, .seed = 1 };
    const char *program = NULL, *config = NULL;
    unsigned seconds = 10;
    bool curve = false;
    int i = 1, rc;

    for (; i < argc && strcmp(argv[i], "--"); i++) {
        const char *v = i + 1 < argc ? argv[i + 1] : "";

        if (!strcmp(argv[i], "--curve")) {
            curve = true;
            continue;
        }
        if (!strcmp(argv[i], "--seam"))
            program = v;
        else if (!strcmp(argv[i], "--config"))
            config = v;
        else if (!strcmp(argv[i], "--seconds"))
            seconds = (unsigned)strtoul(v, NULL, 10);
        else if (!strcmp(argv[i], "--connections"))
            l.n_conns = (unsigned)strtoul(v, NULL, 10);
        else if (!strcmp(argv[i], "--seed"))
            l.seed = (unsigned)strtoul(v, NULL, 10);
        else
            program = NULL;
        i++;
    }
    if (!program || !config || !seconds || !l.n_conns ||
        l.n_conns > MAX_CONNS) {
        fprintf(stderr, "load: see the head of load.c for its arguments\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    l.conn = calloc(MAX_CONNS, sizeof *l.conn);
    l.epoll = epoll_create1(EPOLL_CLOEXEC);
    if (!l.conn || l.epoll < 0)
        die("start");
    server_start(&l, program, config, argv + i + 1,
                 i < argc ? argc - i - 1 : 0);
    if (curve) {
        rc = load_curve(&l);
    } else {
        load_run(&l, seconds);
        rc = load_report(&l, seconds);
    }
    for (unsigned k = 0; k < MAX_CONNS; k++) {
        seam_buf_release(&l.conn[k].in);
        seam_buf_release(&l.conn[k].out);
    }
    free(l.conn);
    free(l.ttft.v);
    free(l.itl.v);
    free(l.rss.v);
    close(l.epoll);
    return rc;
}
