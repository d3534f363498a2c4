/* The table of settings: what config.c reads, prints and documents by. */
#ifndef SEAM_CONFIG_SETTINGS_H
#define SEAM_CONFIG_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/buf.h"

enum seam_setting_type {
    SEAM_SETTING_BOOL = 1,    /* bool                                         */
    SEAM_SETTING_INT = 2,     /* int64_t                                      */
    SEAM_SETTING_STRING = 3,  /* char *                                       */
    SEAM_SETTING_CHOICE = 4,  /* char *, one of `choices`                     */
    SEAM_SETTING_STRINGS = 5, /* struct seam_strings                          */
    SEAM_SETTING_OBJECT = 6   /* json_t *                                     */
};

struct seam_setting {
    const char *key; /* "server.listen"                            */
    enum seam_setting_type type;
    size_t offset;              /* in struct seam_config                      */
    const char *preset;         /* default as the environment would give it;
                                   NULL: unset                                */
    const char *preset_words;   /* what happens when unset, or NULL           */
    int64_t min, max, step;     /* INT; step: a multiple of it, 0: any        */
    const char *const *choices; /* CHOICE, NULL-terminated                    */
    /* STRING and each of STRINGS: whether the text will do; with `expects`
     * saying what would.  NULL: anything but empty or control characters. */
    bool (*check)(const char *s);
    const char *expects;
    bool is_path;     /* relative to the folder of the file         */
    bool is_secret;   /* never shown                                */
    const char *flag; /* "--listen", or NULL                        */
    const char *help; /* one line                                   */
};

extern const struct seam_setting seam_settings[]; /* ends with a NULL key     */
extern const size_t seam_n_settings;
extern const char *const seam_setting_keys[]; /* ends with NULL           */
/* Keys, and the sections that they lie in ("server", "plugins.moe"). */
extern const char *const seam_setting_paths[]; /* ends with NULL              */

const struct seam_setting *seam_setting_find(const char *key);
bool seam_setting_is_section(const char *path);
const struct seam_setting *seam_setting_by_flag(const char *flag);

/* Name of the environment variable: "SEAM_SERVER_LISTEN". */
#define SEAM_SETTING_ENV_MAX 64
void seam_setting_env(const struct seam_setting *s,
                      char name[SEAM_SETTING_ENV_MAX]);

/* Append what values it takes: "an integer from 1 to 128". */
void seam_setting_expects(const struct seam_setting *s, struct seam_buf *out);

#endif
