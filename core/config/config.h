/* The server's settings: one table, one struct, and where each value is from.
 *
 * Precedence: command line, then environment, then file, then default.  Every
 * setting has a key path ("server.listen"), an environment variable made from
 * it (SEAM_SERVER_LISTEN), and the flag --set KEY=VALUE; some have a short flag
 * of their own.  Whatever is unknown, twice, of the wrong type or out of range
 * is refused with file, line, key path and the nearest known key; an
 * environment variable that starts with SEAM_ and names no setting is refused
 * too.  Relative paths in the file are relative to the file's own folder, in
 * flags and environment to the working directory.  docs/configuration.md has
 * the whole. */
#ifndef SEAM_CONFIG_CONFIG_H
#define SEAM_CONFIG_CONFIG_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/config/cfg.h"

/* The parts of the server that a plugin fills.  The key in the file is
 * plugins.ROLE. */
enum seam_role {
    SEAM_ROLE_BACKEND = 0, /* "backend"           SEAM_KIND_BACKEND         */
    SEAM_ROLE_LINEAR = 1,  /* "linear_attention"  SEAM_KIND_ATTENTION       */
    SEAM_ROLE_SPARSE = 2,  /* "sparse_attention"  SEAM_KIND_ATTENTION       */
    SEAM_ROLE_MOE = 3,     /* "moe"               SEAM_KIND_MOE             */
    SEAM_ROLE_PARSER = 4,  /* "parser"            SEAM_KIND_PARSER          */
    SEAM_N_ROLES = 5
};

extern const char *const seam_role_name[SEAM_N_ROLES];
extern const uint16_t seam_role_kind[SEAM_N_ROLES];

/* One entry of "plugins". */
struct seam_plugin_entry_config {
    char *name;     /* what the file must call itself                       */
    char *file;     /* default "NAME.so", found in plugin_dir               */
    char *sha256;   /* 64 hex digits, or NULL when unpinned                 */
    bool unpinned;  /* no pin wanted; one of the two must be given          */
    json_t *config; /* the plugin's own block, or NULL                      */
    char *where;    /* "conf/nano.json: plugins.moe.config", for messages   */
};

struct seam_strings {
    char **v;
    size_t n;
};

struct seam_config {
    char *file; /* path of the file read, or NULL                             */

    struct {
        char *path; /* checkpoint folder; required                  */
        char *name; /* id in the API; default: the folder's name    */
        struct seam_strings aliases;
        bool accept_any_name; /* requests may name any model                  */
        int64_t max_context;  /* tokens of one sequence; 0: the model's       */
    } model;
    struct {
        char *dense; /* "bf16" (as stored), "int8", "int4"                    */
    } weights;
    struct {
        char *listen; /* "127.0.0.1:8080", "[::1]:0", ...             */
        struct seam_strings api_keys;
        char *admin_key;
        bool insecure; /* allow a non-loopback address without a key   */
        int64_t max_connections;
        int64_t max_body_bytes;
        int64_t body_timeout_ms;  /* a request must have arrived by then      */
        int64_t write_timeout_ms; /* a client may not read for so long        */
        int64_t drain_timeout_ms; /* after SIGTERM; 0: cut at once            */
        int64_t stall_timeout_ms; /* a step may take so long                  */
        int64_t stall_abort_ms;   /* then the process ends; 0: never          */
        int64_t sse_ping_ms;      /* >= 100                                   */
        int64_t max_n;            /* choices of one request                   */
        int64_t priority_min;     /* <= 0; requests may ask for no less       */
        int64_t priority_max;     /* >= 0; nor for more                       */
        struct seam_strings cors_origins;
        char *metrics_public;  /* "auto", "yes", "no"                      */
        char *reasoning_field; /* "reasoning_content", "reasoning", "both" */
    } server;
    struct {
        int64_t threads;         /* of the pool; 0: one per physical core    */
        char *pin_threads;       /* "auto", "yes", "no"                      */
        int64_t max_seqs;        /* sequences in one step                    */
        int64_t max_step_tokens; /* token rows in one step; >= max_seqs      */
        int64_t page_tokens;     /* a multiple of 4                          */
        int64_t cache_bytes;     /* for planes and state rows                */
        int64_t max_queue;       /* requests waiting                         */
        int64_t max_overtaken;   /* by more urgent ones; 0: any number       */
        int64_t max_request_ms;  /* from arrival to end; 0: no limit         */
        int64_t grammar_bytes;   /* compiled grammars that are kept; 0: none */
        int64_t prefix_bytes;    /* states of the prefix cache; 0: none      */
        int64_t prefix_interval; /* tokens between its snapshots; 0: none    */
        char *guard_bands;       /* "auto", "yes", "no"                      */
        char *prefix_dir;        /* its second tier, or NULL                */
        int64_t prefix_disk_bytes; /* of files there                          */
        char *trace; /* file of the timeline, or NULL            */
    } engine;
    struct {
        char *level;  /* "debug", "info", "warn", "error"         */
        char *format; /* "text", "json"                           */
    } log;
    char *plugin_dir; /* default: "plugins" beside the program    */
    struct seam_strings plugin_paths;
    struct seam_plugin_entry_config plugin[SEAM_N_ROLES];

    void *origins; /* private: where each value is from, and the file's text  */
};

/* One "--set KEY=VALUE", key and value apart, or one short flag: key is then
 * the flag with its dashes ("--listen").  value NULL stands for "true" where
 * the setting is a boolean. */
struct seam_flag {
    const char *key, *value;
};

/* The key that a short flag stands for, or NULL; *is_switch (may be NULL) tells
 * whether it goes without a value. */
const char *seam_config_flag_key(const char *flag, bool *is_switch);

/* Read file (NULL: none), the SEAM_* members of env (NULL-terminated) and
 * flags into *c.  On failure *c is empty.  [control] */
int seam_config_load(struct seam_config *c, const char *file, char *const *env,
                     const struct seam_flag *flag, size_t n_flags,
                     struct seam_error *err);
void seam_config_release(struct seam_config *c);

/* The same from text[0, n) instead of a file, for tests and fuzzing; name
 * stands for the file in messages, its folder for relative paths. */
int seam_config_parse(struct seam_config *c, const char *name, const char *text,
                      size_t n, char *const *env, const struct seam_flag *flag,
                      size_t n_flags, struct seam_error *err);

/* The block of a plugin for seam_host.cfg, with messages that name file and
 * line.  Freed before c.  NULL when out of memory. */
struct seam_cfg *seam_config_plugin_cfg(const struct seam_config *c,
                                        enum seam_role role,
                                        const struct seam_log *log);

/* Tell fn the key of each setting in which b differs from a, but for those
 * below "plugins.". */
void seam_config_changed(const struct seam_config *a,
                         const struct seam_config *b,
                         void (*fn)(void *ctx, const char *key), void *ctx);
/* Whether two entries ask for the same. */
bool seam_config_same_plugin(const struct seam_plugin_entry_config *a,
                             const struct seam_plugin_entry_config *b);

/* Every effective value with its origin ("default", "file conf/x.json:12",
 * "env SEAM_LOG_LEVEL", "flag --listen"), keys in table order; secrets as
 * "(set)".  As lines "key = value   # origin". */
void seam_config_print(const struct seam_config *c, struct seam_buf *out);
/* The same as {"settings":[{"key","value","origin"},...]}; NULL: no memory. */
json_t *seam_config_json(const struct seam_config *c);

#endif
