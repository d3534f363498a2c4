/* The seam program as a process: started, read line by line, signalled. */
#ifndef TESTS_CLI_PROCESS_H
#define TESTS_CLI_PROCESS_H

#include <stdbool.h>
#include <sys/types.h>

#include "core/base/buf.h"

struct process {
    pid_t pid;
    int out, err; /* our ends */
    struct seam_buf out_text, err_text;
    int status; /* exit status, or 128 + signal */
};

/* Start build/seam with args (NULL-terminated, without the program's name).
 * env holds further "NAME=VALUE", NULL-terminated, or is NULL; no SEAM_* is
 * inherited. */
void process_start(struct process *p, const char *const *args,
                   const char *const *env);
/* The same with another program. */
void process_start_other(struct process *p, const char *path,
                         const char *const *args, const char *const *env);
/* Read standard error until it holds text; false when the process ended
 * first. */
bool process_until(struct process *p, const char *text);
/* Read both streams to their end and wait. */
void process_finish(struct process *p);
void process_signal(struct process *p, int sig);
void process_release(struct process *p);

/* Start, finish: for what ends by itself. */
void process_run(struct process *p, const char *const *args,
                 const char *const *env);

/* seam serve on conf/nano.json and a free port, with further arguments, ready.
 * url receives where it listens. */
void process_serve(struct process *p, const char *const *args, char url[64]);

/* Who started the program, by systemd's notify protocol. */
struct manager {
    int fd;
    char dir[32], env[80]; /* env: to be given to process_start */
    char told[256];        /* what came last */
};

void manager_open(struct manager *m);
/* Receive until what is told holds text. */
void manager_until(struct manager *m, const char *text);
void manager_close(struct manager *m);

#endif
