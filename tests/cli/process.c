#include "tests/cli/process.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_ARGS    40
#define PATIENCE_MS 180000

extern char **environ;

/* The environment without our own variables, then the extra ones. */
static char **process_env(const char *const *extra)
{
    static char *env[512];
    size_t n = 0;

    for (char **e = environ; *e && n < 400; e++)
        if (strncmp(*e, "SEAM_", 5))
            env[n++] = *e;
    for (; extra && *extra && n < 511; extra++)
        env[n++] = (char *)*extra;
    env[n] = NULL;
    return env;
}

void process_start(struct process *p, const char *const *args,
                   const char *const *env)
{
    process_start_other(p, SEAM_TEST_BINARY_DIR "/seam", args, env);
}

void process_start_other(struct process *p, const char *path,
                         const char *const *args, const char *const *env)
{
    char *argv[MAX_ARGS] = { (char *)"seam" };
    int out[2], err[2], n = 1;

    *p = (struct process){ .status = -1 };
    for (; *args && n < MAX_ARGS - 1; args++)
        argv[n++] = (char *)*args;
    cr_assert(!pipe(out) && !pipe(err));
    p->pid = fork();
    cr_assert(p->pid >= 0);
    if (p->pid == 0) {
        sigset_t none;

        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        dup2(out[1], STDOUT_FILENO);
        dup2(err[1], STDERR_FILENO);
        for (int fd = 3; fd < 1024; fd++)
            close(fd);
        execve(path, argv, process_env(env));
        _exit(127);
    }
    close(out[1]);
    close(err[1]);
    p->out = out[0];
    p->err = err[0];
}

/* Wait for either stream and take what is there; false when both ended. */
static bool process_read(struct process *p)
{
    struct pollfd fd[2] = { { p->out, POLLIN, 0 }, { p->err, POLLIN, 0 } };
    char chunk[4096];
    int n = poll(fd, 2, PATIENCE_MS);

    cr_assert(n > 0, "seam says nothing for minutes; so far: %s%s",
              p->out_text.p ? p->out_text.p : "",
              p->err_text.p ? p->err_text.p : "");
    for (int i = 0; i < 2; i++) {
        ssize_t got;

        if (!fd[i].revents)
            continue;
        got = read(fd[i].fd, chunk, sizeof chunk);
        if (got > 0) {
            seam_buf_add(i ? &p->err_text : &p->out_text, chunk, (size_t)got);
        } else {
            close(fd[i].fd);
            *(i ? &p->err : &p->out) = -1;
        }
    }
    return p->out >= 0 || p->err >= 0;
}

bool process_until(struct process *p, const char *text)
{
    while (!p->err_text.p || !strstr(p->err_text.p, text))
        if (!process_read(p))
            return false;
    return true;
}

void process_finish(struct process *p)
{
    int status;

    while (process_read(p))
        ;
    cr_assert_eq(waitpid(p->pid, &status, 0), p->pid);
    p->status =
        WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    p->pid = 0;
}

void process_signal(struct process *p, int sig)
{
    cr_assert_eq(kill(p->pid, sig), 0);
}

void process_release(struct process *p)
{
    if (p->pid > 0) {
        kill(p->pid, SIGKILL);
        process_finish(p);
    }
    seam_buf_release(&p->out_text);
    seam_buf_release(&p->err_text);
}

void process_run(struct process *p, const char *const *args,
                 const char *const *env)
{
    process_start(p, args, env);
    process_finish(p);
    seam_buf_str(&p->out_text, "");
    seam_buf_str(&p->err_text, "");
}

void process_serve(struct process *p, const char *const *args, char url[64])
{
    const char *all[MAX_ARGS] = { "serve",
                                  "-c",
                                  (SEAM_TEST_SOURCE_DIR "/conf/nano.json"),
                                  "--set",
                                  ("plugin_dir=" SEAM_TEST_PLUGIN_DIR),
                                  "--listen",
                                  "127.0.0.1:0" };
    int n = 7;
    const char *at;
    size_t len;

    for (; args && *args && n < MAX_ARGS - 1; args++)
        all[n++] = *args;
    process_start(p, all, NULL);
    cr_assert(process_until(p, "ready after"), "%s", p->err_text.p);
    at = strstr(p->err_text.p, "http://127.0.0.1:");
    cr_assert_not_null(at);
    len = strcspn(at + 7, "/ \n") + 7;
    cr_assert_lt(len, 64);
    memcpy(url, at, len);
    url[len] = 0;
}

/* ---- A service manager --------------------------------------------------- */

void manager_open(struct manager *m)
{
    struct sockaddr_un at = { .sun_family = AF_UNIX };

    *m = (struct manager){ .dir = "/tmp/seam-notify-XXXXXX" };
    m->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    cr_assert(m->fd >= 0 && mkdtemp(m->dir));
    snprintf(at.sun_path, sizeof at.sun_path, "%s/notify", m->dir);
    snprintf(m->env, sizeof m->env, "NOTIFY_SOCKET=%s", at.sun_path);
    cr_assert_eq(bind(m->fd, (struct sockaddr *)&at, sizeof at), 0);
}

void manager_until(struct manager *m, const char *text)
{
    ssize_t n;

    do {
        struct pollfd p = { m->fd, POLLIN, 0 };

        cr_assert_eq(poll(&p, 1, PATIENCE_MS), 1, "was not told \"%s\"", text);
        n = recv(m->fd, m->told, sizeof m->told - 1, 0);
        cr_assert_gt(n, 0);
        m->told[n] = 0;
    } while (!strstr(m->told, text));
}

void manager_close(struct manager *m)
{
    close(m->fd);
    unlink(strchr(m->env, '=') + 1);
    rmdir(m->dir);
}
