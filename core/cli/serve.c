/* seam serve: bind, load, answer, and leave in order. */
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/cli/cli.h"
#include "core/cli/notify.h"
#include "core/cli/progress.h"
#include "core/engine/engine.h"
#include "core/engine/reload.h"
#include "core/server/server.h"

/* How long the engine may take to end its step after everything was cancelled.
 * A plugin that hangs must not keep the process from leaving. */
#define LAST_RESORT_S 10

#define POLL_MS       50

/* From the second signal on nothing is orderly any more. */
static void serve_exit_now(int sig)
{
    static const char text[] = "seam: leaving at once\n";
    ssize_t n = write(STDERR_FILENO, text, sizeof text - 1);

    (void)n;
    _exit(sig == SIGALRM ? 1 : 128 + sig);
}

static void serve_arm_exit(void)
{
    struct sigaction a = { .sa_handler = serve_exit_now };
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGALRM);
    sigaction(SIGTERM, &a, NULL);
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGALRM, &a, NULL);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

/* Wait for a signal or the timeout; 0 when none came. */
static int serve_poll(const sigset_t *set, int timeout_ms)
{
    struct timespec t = { .tv_sec = timeout_ms / 1000,
                          .tv_nsec = timeout_ms % 1000 * 1000000L };
    int sig = sigtimedwait(set, NULL, &t);

    return sig < 0 ? 0 : sig;
}

/* Say when a step has taken too long, in what, and when it goes on after all.
 * Returns whether it is stuck now. */
static bool serve_watch(struct seam_engine *e, const struct seam_log *log,
                        bool was)
{
    bool now = seam_engine_stalled(e);
    char where[96];

    if (now && !was) {
        seam_engine_where(e, where, sizeof where);
        seam_log(log, SEAM_LOG_ERROR, "watchdog",
                 "no step has ended within server.stall_timeout_ms; it is in "
                 "%s",
                 where);
    } else if (was && !now) {
        seam_log(log, SEAM_LOG_INFO, "watchdog", "steps end again");
    }
    return now;
}

/* The same of a plugin on its way in: the one in use goes on. */
static bool serve_watch_swap(struct seam_engine *e, const struct seam_config *c,
                             const struct seam_log *log, bool was)
{
    char where[96];
    bool now = seam_engine_state(e) == SEAM_ENGINE_READY &&
               seam_engine_swap_still_ms(e, where, sizeof where) >
                   (uint64_t)c->server.stall_timeout_ms;

    if (now && !was)
        seam_log(log, SEAM_LOG_ERROR, "watchdog",
                 "a swap hangs in %s; the plugin in use goes on, and no other "
                 "swap can begin until that returns",
                 where);
    return now;
}

/* End the process, leaving a core for whoever looks into it, when a step has
 * hung for server.stall_abort_ms: nothing in here can take it back from the
 * plugin, only a new process can. */
static void serve_give_up(struct seam_engine *e, const struct seam_config *c,
                          const struct seam_log *log)
{
    uint64_t limit = (uint64_t)c->server.stall_abort_ms;
    uint64_t still = seam_engine_still_ms(e);
    char where[96];

    if (!limit || still < limit)
        return;
    seam_engine_where(e, where, sizeof where);
    seam_log(log, SEAM_LOG_ERROR, "watchdog",
             "no step has ended for %llu ms; server.stall_abort_ms is %llu: "
             "aborting in %s",
             (unsigned long long)still, (unsigned long long)limit, where);
    abort();
}

/* What SIGHUP began. */
struct reload {
    const struct seam_cli_opts *o;
    struct seam_swap *swap; /* NULL: nothing is under way */
    bool again;             /* another came meanwhile */
    bool told;              /* the manager waits for READY=1 */
};

/* Read the configuration again, as at the start. */
static void serve_reload(struct seam_engine *e, const struct seam_log *log,
                         struct reload *r)
{
    struct seam_source *source = calloc(1, sizeof *source);
    struct seam_log unused;
    struct seam_error err;
    int rc = source ? seam_cli_load(r->o, &source->config, &unused, &err)
                    : seam_fail(&err, SEAM_ENOMEM, "out of memory");

    if (rc) {
        free(source);
    } else {
        snprintf(source->origin, sizeof source->origin, "file");
        rc = seam_reload_start(e, source, &r->swap, &err);
    }
    if (rc < 0)
        seam_log(log, SEAM_LOG_ERROR, "server",
                 "SIGHUP: nothing is changed: %s", err.text);
    else
        seam_log(log, SEAM_LOG_INFO, "server", "SIGHUP: %s",
                 rc ? "no plugin differs" : "swapping the plugins that differ");
}

/* Begin what was asked for, or see how far it is.  The service manager hears of
 * either end. */
static void serve_reloading(struct seam_engine *e, const struct seam_log *log,
                            const struct seam_notify *notify, struct reload *r)
{
    struct seam_swap_report report;
    struct seam_error err; /* the engine has logged it */

    if (r->swap && seam_swap_wait(r->swap, 0, &report, &err) <= 0) {
        seam_swap_free(r->swap);
        r->swap = NULL;
    }
    if (r->again && !r->swap && seam_engine_state(e) == SEAM_ENGINE_READY) {
        r->again = false;
        r->told = true;
        seam_notify_reloading(notify);
        serve_reload(e, log, r);
    }
    if (r->told && !r->swap && !r->again) {
        r->told = false;
        seam_notify_send(notify, "READY=1\nSTATUS=ready");
    }
}

/* Until a signal, or until the engine fails.  Returns the signal, 0 for failed;
 * *err then says why. */
static int serve_wait(struct seam_engine *e, const struct seam_config *c,
                      const struct seam_log *log, const char *url,
                      const sigset_t *set, struct seam_notify *notify,
                      struct reload *reload, struct seam_error *err)
{
    uint64_t start = seam_now_ns();
    bool said_ready = false, stalled = false, hangs = false;

    for (;;) {
        enum seam_engine_state state = seam_engine_wait_loaded(e, 0, err);
        int sig = serve_poll(set, POLL_MS);

        if (sig && sig != SIGHUP)
            return sig;
        reload->again |= sig == SIGHUP;
        if (state == SEAM_ENGINE_FAILED)
            return 0;
        stalled = serve_watch(e, log, stalled);
        hangs = serve_watch_swap(e, c, log, hangs);
        serve_give_up(e, c, log);
        if (state == SEAM_ENGINE_READY && !said_ready) {
            said_ready = true;
            seam_log(log, SEAM_LOG_INFO, "server",
                     "ready after %.2f s: %s/v1/chat/completions",
                     (double)(seam_now_ns() - start) / 1e9, url);
            seam_notify_send(notify, "READY=1\nSTATUS=ready");
        }
        serve_reloading(e, log, notify, reload);
        if (!stalled)
            seam_notify_alive(notify, seam_now_ns());
    }
}

/* Let running work end within drain_timeout_ms, and who has sent a request hear
 * that there is no more.  What the listening socket holds shows a moment
 * later, so that one look is not enough. */
static void serve_drain(struct seam_server *s, struct seam_engine *e,
                        const struct seam_config *c, const struct seam_log *log)
{
    uint64_t until =
        seam_now_ns() + (uint64_t)c->server.drain_timeout_ms * 1000000u;
    struct timespec pause = { .tv_nsec = POLL_MS * 1000000L };
    uint32_t quiet = 0;

    for (;;) {
        uint32_t n = seam_server_arriving(s);
        bool any = seam_engine_active(e) || seam_server_active(s) || n;

        quiet = any ? 0 : quiet + 1;
        if (quiet > 1)
            return;
        if (seam_now_ns() >= until) {
            if (any)
                seam_log(log, SEAM_LOG_WARN, "server",
                         "%u requests did not end within "
                         "server.drain_timeout_ms = %lld and are cut",
                         n, (long long)c->server.drain_timeout_ms);
            return;
        }
        nanosleep(&pause, NULL);
    }
}

/* What was chosen, and where: a line for each setting that is no default. */
static void serve_settings(const struct seam_config *c,
                           const struct seam_log *log)
{
    static const char preset[] = "   # default";
    struct seam_buf text = { 0 };
    char *rest = NULL;

    seam_config_print(c, &text);
    for (char *line = text.p ? strtok_r(text.p, "\n", &rest) : NULL; line;
         line = strtok_r(NULL, "\n", &rest)) {
        size_t n = strlen(line);

        if (n < sizeof preset ||
            strcmp(line + n - (sizeof preset - 1), preset) != 0)
            seam_log(log, SEAM_LOG_INFO, "config", "%s", line);
    }
    seam_buf_release(&text);
}

static int serve(const struct seam_config *c, const struct seam_log *log,
                 const struct seam_cli_opts *o, struct seam_notify *notify)
{
    struct reload reload = { .o = o };
    struct seam_progress progress;
    struct seam_engine_opts eo = {
        .config = c,
        .log = log,
        .progress = seam_progress_show,
        .progress_ctx = &progress,
    };
    struct seam_server *server = NULL;
    struct seam_engine *engine = NULL;
    struct seam_error err;
    sigset_t set;
    int rc, sig;

    signal(SIGPIPE, SIG_IGN);
    /* Large blocks go back to the system when they are freed.  By itself glibc
     * stops that after the first, and every worker's arena would keep what its
     * largest request took. */
    mallopt(M_MMAP_THRESHOLD, 1 << 20);
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    seam_progress_init(&progress, log);
    serve_settings(c, log);

    rc = seam_server_bind(&server, c, log, &err);
    if (rc)
        return seam_cli_fail(&err);
    rc = seam_engine_start(&engine, &eo, &err);
    if (!rc)
        rc = seam_server_start(server, engine, &err);
    if (rc) {
        seam_cli_fail(&err);
        goto out;
    }
    seam_log(log, SEAM_LOG_INFO, "server", "listening on %s",
             seam_server_url(server));
    seam_notify_send(notify, "STATUS=loading");
    sig = serve_wait(engine, c, log, seam_server_url(server), &set, notify,
                     &reload, &err);
    serve_arm_exit();
    seam_notify_send(notify, "STOPPING=1\nSTATUS=draining");
    if (sig) {
        seam_server_drain(server);
        seam_engine_drain(engine);
        seam_log(log, SEAM_LOG_INFO, "server", "%s: draining",
                 sig == SIGTERM ? "SIGTERM" : "SIGINT");
        serve_drain(server, engine, c, log);
    } else {
        rc = seam_cli_fail(&err);
    }
out:
    alarm(LAST_RESORT_S);
    if (engine)
        seam_engine_stop(engine);
    seam_server_stop(server);
    seam_swap_free(reload.swap);
    seam_engine_free(engine);
    alarm(0);
    if (!rc)
        seam_log(log, SEAM_LOG_INFO, "server", "stopped");
    return rc ? 1 : 0;
}

int seam_cli_serve(int argc, char **argv)
{
    struct seam_cli_opts o = { 0 };
    struct seam_config c = { 0 };
    struct seam_notify notify;
    struct seam_log log;
    struct seam_error err;
    bool print = false;
    int rc = 0;

    for (int i = 0; i < argc && !rc; i++) {
        int took = seam_cli_option(&o, argc, argv, &i, &err);

        if (took < 0)
            rc = seam_cli_fail(&err) + 1;
        else if (!took && !strcmp(argv[i], "--print-config"))
            print = true;
        else if (!took)
            rc = seam_cli_usage("serve", "unknown argument", argv[i]);
    }
    if (!rc && seam_cli_load(&o, &c, &log, &err))
        rc = seam_cli_fail(&err);
    if (!rc && print) {
        struct seam_buf text = { 0 };

        seam_config_print(&c, &text);
        if (text.p)
            fputs(text.p, stdout);
        seam_buf_release(&text);
    } else if (!rc) {
        rc = seam_notify_open(&notify, &err) ? seam_cli_fail(&err)
                                             : serve(&c, &log, &o, &notify);
        seam_notify_close(&notify);
    }
    seam_config_release(&c);
    seam_cli_opts_release(&o);
    return rc;
}
