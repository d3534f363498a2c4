#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/cli/cli.h"

extern char **environ;

int seam_cli_fail(const struct seam_error *err)
{
    fprintf(stderr, "seam: %s\n", err->text);
    return 1;
}

int seam_cli_usage(const char *command, const char *what, const char *word)
{
    fprintf(stderr, "seam %s: %s '%s'; see seam help\n", command, what, word);
    return 2;
}

static int cli_add(struct seam_cli_opts *o, const char *key, const char *value,
                   struct seam_error *err)
{
    if (o->n_flags == SEAM_CLI_MAX_FLAGS)
        return seam_fail(err, SEAM_EINVAL,
                         "more than %d settings on the "
                         "command line; put them into a file",
                         SEAM_CLI_MAX_FLAGS);
    o->flag[o->n_flags++] = (struct seam_flag){ key, value };
    return 1;
}

/* KEY=VALUE, split in a copy of its own. */
static int cli_set(struct seam_cli_opts *o, const char *arg,
                   struct seam_error *err)
{
    char *copy, *eq;

    if (!strchr(arg, '='))
        return seam_fail(err, SEAM_EINVAL, "--set %s: expected KEY=VALUE", arg);
    if (o->n_flags == SEAM_CLI_MAX_FLAGS)
        return cli_add(o, NULL, NULL, err);
    copy = strdup(arg);
    if (!copy)
        return seam_fail(err, SEAM_ENOMEM, "out of memory");
    eq = strchr(copy, '=');
    *eq = 0;
    o->owned[o->n_flags] = copy;
    return cli_add(o, copy, eq + 1, err);
}

int seam_cli_option(struct seam_cli_opts *o, int argc, char **argv, int *i,
                    struct seam_error *err)
{
    const char *a = argv[*i], *value = *i + 1 < argc ? argv[*i + 1] : NULL;
    bool is_set = !strcmp(a, "--set");
    bool is_file = !strcmp(a, "-c") || !strcmp(a, "--config");
    bool is_switch = false;

    if (!is_set && !is_file && !seam_config_flag_key(a, &is_switch))
        return 0;
    if (is_switch)
        return cli_add(o, a, NULL, err);
    if (!value)
        return seam_fail(err, SEAM_EINVAL, "%s: expected a value", a);
    ++*i;
    if (is_set)
        return cli_set(o, value, err);
    if (!is_file)
        return cli_add(o, a, value, err);
    if (o->file)
        return seam_fail(err, SEAM_EINVAL, "%s is given twice: %s and %s", a,
                         o->file, value);
    o->file = value;
    return 1;
}

void seam_cli_opts_release(struct seam_cli_opts *o)
{
    for (size_t i = 0; i < o->n_flags; i++)
        free(o->owned[i]);
    *o = (struct seam_cli_opts){ 0 };
}

static uint32_t cli_level(const char *name)
{
    return !strcmp(name, "debug")   ? SEAM_LOG_DEBUG
           : !strcmp(name, "warn")  ? SEAM_LOG_WARN
           : !strcmp(name, "error") ? SEAM_LOG_ERROR
                                    : SEAM_LOG_INFO;
}

int seam_cli_load(const struct seam_cli_opts *o, struct seam_config *c,
                  struct seam_log *log, struct seam_error *err)
{
    int rc = seam_config_load(c, o->file, environ, o->flag, o->n_flags, err);

    if (rc)
        return rc;
    *log = (struct seam_log){
        .fd = STDERR_FILENO,
        .level = cli_level(c->log.level),
        .json = !strcmp(c->log.format, "json"),
    };
    return 0;
}
