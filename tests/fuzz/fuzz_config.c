/* Input: the text of a configuration file, then strings, each after a NUL byte:
 * "E" and what follows SEAM_ in an environment variable; "P" and a path to read
 * in a plugin's block; else a flag "KEY=VALUE", or "KEY" without a value. */
#undef NDEBUG /* assert() is how a target reports, in every build */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "core/config/config.h"
#include "core/config/keypath.h"

#define MAX_EXTRA 8
#define MAX_PATHS 64

struct extra {
    char *env[MAX_EXTRA + 1];
    struct seam_flag flag[MAX_EXTRA];
    const char *path[MAX_EXTRA];
    size_t n_env, n_flags, n_paths;
    char *owned[MAX_EXTRA];
    size_t n_owned;
};

static void extra_read(struct extra *x, const char *p, const char *end)
{
    while (p < end && x->n_owned < MAX_EXTRA) {
        size_t n = strnlen(p, (size_t)(end - p));
        char *s = malloc(n + 6), *equals;

        if (!s)
            abort();
        x->owned[x->n_owned++] = s;
        if (n && p[0] == 'E') {
            memcpy(s, "SEAM_", 5);
            memcpy(s + 5, p + 1, n - 1);
            s[n + 4] = 0;
            x->env[x->n_env++] = s;
        } else if (n && p[0] == 'P') {
            memcpy(s, p + 1, n - 1);
            s[n - 1] = 0;
            x->path[x->n_paths++] = s;
        } else {
            memcpy(s, p, n);
            s[n] = 0;
            equals = strchr(s, '=');
            if (equals)
                *equals = 0;
            x->flag[x->n_flags++] =
                (struct seam_flag){ s, equals ? equals + 1 : NULL };
        }
        p += n + 1;
    }
}

/* Every key of valid JSON has a line, unless its name looks like a path. */
static void check_lines(const char *text, size_t n, json_t *v, char *path,
                        size_t at, size_t cap, unsigned *budget)
{
    const char *key;
    json_t *entry;
    size_t i;

    json_object_foreach(v, key, entry)
    {
        int more = snprintf(path + at, cap - at, "%s%s", at ? "." : "", key);

        if (!*key || strpbrk(key, ".[]") || (size_t)more >= cap - at ||
            !*budget)
            continue;
        --*budget;
        assert(seam_keypath_line(text, n, path) > 0);
        check_lines(text, n, entry, path, at + (size_t)more, cap, budget);
    }
    json_array_foreach(v, i, entry)
    {
        int more = snprintf(path + at, cap - at, "[%zu]", i);

        if ((size_t)more >= cap - at || !*budget)
            continue;
        --*budget;
        assert(seam_keypath_line(text, n, path) > 0);
        check_lines(text, n, entry, path, at + (size_t)more, cap, budget);
    }
}

static void check_keypaths(const char *text, size_t n)
{
    json_t *v = seam_json_parse(text, n, "fuzz", 0, NULL);
    struct seam_buf at = { 0 };
    unsigned budget = MAX_PATHS;
    char path[512];

    if (v)
        check_lines(text, n, v, path, 0, sizeof path, &budget);
    json_decref(v);
    for (size_t i = 0; i < n; i += n / 8 + 1) {
        seam_buf_clear(&at);
        seam_keypath_at(text, n, i, &at);
        if (at.n)
            seam_keypath_line(text, n, at.p);
    }
    seam_buf_release(&at);
}

static void check_plugin(const struct seam_config *c, enum seam_role role,
                         const struct extra *x)
{
    struct seam_cfg *cfg = seam_config_plugin_cfg(c, role, NULL);
    struct seam_error err = { 0 };

    for (size_t i = 0; i < x->n_paths; i++)
        for (uint32_t type = SEAM_CFG_BOOL; type <= SEAM_CFG_LEN + 1; type++) {
            union {
                int32_t b;
                int64_t i;
                double d;
                struct seam_str s;
                uint64_t n;
            } out;

            seam_cfg_get(cfg, x->path[i], type, &out);
        }
    if (seam_cfg_check_used(cfg, &err))
        assert(err.text[0]);
    seam_cfg_free(cfg);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const struct seam_config empty;
    const char *text = (const char *)data, *end = text + n;
    size_t text_bytes = n ? strnlen(text, n) : 0;
    struct extra x = { 0 };
    struct seam_error err = { 0 };
    struct seam_config c;

    if (text_bytes < n)
        extra_read(&x, text + text_bytes + 1, end);
    check_keypaths(text, text_bytes);
    if (seam_config_parse(&c, "conf/fuzz.json", text, text_bytes, x.env, x.flag,
                          x.n_flags, &err)) {
        assert(err.text[0]);
        assert(memcmp(&c, &empty, sizeof c) == 0);
    } else {
        struct seam_buf b = { 0 };
        json_t *all = seam_config_json(&c);

        assert(all);
        json_decref(all);
        seam_config_print(&c, &b);
        assert(!b.failed);
        seam_buf_release(&b);
        for (int role = 0; role < SEAM_N_ROLES; role++)
            check_plugin(&c, (enum seam_role)role, &x);
    }
    seam_config_release(&c);
    for (size_t i = 0; i < x.n_owned; i++)
        free(x.owned[i]);
    return 0;
}
