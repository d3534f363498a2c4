/* The commands of the seam program.  Each takes the arguments after its own
 * name and returns the process's exit status: 0 done, 1 refused or failed,
 * 2 wrong usage. */
#ifndef SEAM_CLI_CLI_H
#define SEAM_CLI_CLI_H

#include <stdbool.h>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/config/config.h"

int seam_cli_serve(int argc, char **argv);
int seam_cli_run(int argc, char **argv);
int seam_cli_inspect(int argc, char **argv);
int seam_cli_plugins(int argc, char **argv);
int seam_cli_pin(int argc, char **argv);
/* 0 conforms, 1 does not, 2 could not be tested here. */
int seam_cli_check(int argc, char **argv);
int seam_cli_eval(int argc, char **argv);
int seam_cli_bench(int argc, char **argv);

/* What the commands that read a configuration have in common:
 * -c FILE, --set KEY=VALUE and the short flags of settings. */
#define SEAM_CLI_MAX_FLAGS 64

struct seam_cli_opts {
    const char *file;
    struct seam_flag flag[SEAM_CLI_MAX_FLAGS];
    char *owned[SEAM_CLI_MAX_FLAGS]; /* split copies of --set arguments       */
    size_t n_flags;
};

/* If argv[*i] is one of the common options, take it and what belongs to it and
 * leave *i on its last argument.  Returns 1 when it was taken, 0 when it is
 * none of them, negative with a message when it is wrong. */
int seam_cli_option(struct seam_cli_opts *o, int argc, char **argv, int *i,
                    struct seam_error *err);
void seam_cli_opts_release(struct seam_cli_opts *o);

/* Load the configuration those options name and set the log up by it. */
int seam_cli_load(const struct seam_cli_opts *o, struct seam_config *c,
                  struct seam_log *log, struct seam_error *err);

/* "seam: TEXT" on standard error; returns 1. */
int seam_cli_fail(const struct seam_error *err);
/* "seam COMMAND: TEXT, see seam help"; returns 2. */
int seam_cli_usage(const char *command, const char *what, const char *word);

#endif
