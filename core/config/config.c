/* A value from the environment or a flag is first made a JSON value by the type
 * of its setting, so that everything after that is the same for all three
 * sources: one check, one assignment. */
#include "core/config/config.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/base/json.h"
#include "core/base/num.h"
#include "core/base/utf8.h"
#include "core/config/keypath.h"
#include "core/config/settings.h"

#define CONFIG_MAX_BYTES (1u << 20) /* of the file                            */
#define CONFIG_SHOWN     64         /* bytes of foreign text in a message     */

/* What struct seam_config hides. */
struct config_private {
    char **origin; /* [seam_n_settings]; NULL: default                        */
    char *text;    /* of the file, for the lines of plugin settings; NULL: no
                      file                                                    */
    size_t n;
};

/* One reading of all sources. */
struct config_reader {
    struct seam_config *c;
    const char *file; /* name in messages, or NULL                            */
    struct config_private *p;
    struct seam_error *err; /* not NULL                                       */
};

static int config_no_memory(const struct config_reader *r)
{
    return seam_fail(r->err, SEAM_ENOMEM, "configuration: out of memory");
}

/* ---- Members by setting -------------------------------------------------- */

static void *config_member(const struct seam_config *c,
                           const struct seam_setting *s)
{
    return (char *)(uintptr_t)c + s->offset;
}

static void config_strings_release(struct seam_strings *v)
{
    for (size_t i = 0; i < v->n; i++)
        free(v->v[i]);
    free(v->v);
    *v = (struct seam_strings){ 0 };
}

static void config_clear(struct seam_config *c, const struct seam_setting *s)
{
    void *member = config_member(c, s);

    switch (s->type) {
    case SEAM_SETTING_BOOL:
        *(bool *)member = false;
        break;
    case SEAM_SETTING_INT:
        *(int64_t *)member = 0;
        break;
    case SEAM_SETTING_STRING:
    case SEAM_SETTING_CHOICE:
        free(*(char **)member);
        *(char **)member = NULL;
        break;
    case SEAM_SETTING_STRINGS:
        config_strings_release(member);
        break;
    case SEAM_SETTING_OBJECT:
        json_decref(*(json_t **)member);
        *(json_t **)member = NULL;
        break;
    }
}

void seam_config_release(struct seam_config *c)
{
    struct config_private *p = c->origins;

    for (const struct seam_setting *s = seam_settings; s->key; s++)
        config_clear(c, s);
    for (int r = 0; r < SEAM_N_ROLES; r++)
        free(c->plugin[r].where);
    free(c->file);
    if (p) {
        for (size_t i = 0; p->origin && i < seam_n_settings; i++)
            free(p->origin[i]);
        free(p->origin);
        free(p->text);
        free(p);
    }
    *c = (struct seam_config){ 0 };
}

/* ---- Messages ------------------------------------------------------------ */

/* Append s, cut to what a message has room for, and without NUL bytes, which
 * would end it. */
static void config_shorten(struct seam_buf *out, const char *s, size_t n)
{
    size_t shown = n > CONFIG_SHOWN ? seam_utf8_whole(s, CONFIG_SHOWN) : n;

    seam_buf_str(out, "");
    for (size_t i = 0; i < shown; i++)
        seam_buf_add(out, s[i] ? &s[i] : "?", 1);
    if (shown < n)
        seam_buf_str(out, "...");
}

static const char *config_kind(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "a list";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
        return "an integer";
    case JSON_REAL:
        return "a number";
    case JSON_TRUE:
        return "true";
    case JSON_FALSE:
        return "false";
    default:
        return "null";
    }
}

/* Append what v is, in words. */
static void config_describe(const json_t *v, bool is_secret,
                            struct seam_buf *out)
{
    bool is_word = !json_is_string(v) && !json_is_number(v);

    if (is_secret || is_word) {
        seam_buf_fmt(out, "%s%s", config_kind(v),
                     is_word ? "" : " (not shown)");
    } else if (json_is_string(v)) {
        seam_buf_str(out, "\"");
        config_shorten(out, json_string_value(v), json_string_length(v));
        seam_buf_str(out, "\"");
    } else if (json_is_integer(v)) {
        seam_buf_fmt(out, "%lld", (long long)json_integer_value(v));
    } else {
        seam_buf_fmt(out, "%.17g", json_real_value(v));
    }
}

/* "conf/x.json:12" for the key or element at path, or without line. */
static void config_place(const struct config_reader *r, const char *path,
                         struct seam_buf *out)
{
    size_t line = seam_keypath_line(r->p->text, r->p->n, path);

    seam_buf_str(out, r->file);
    if (line)
        seam_buf_fmt(out, ":%zu", line);
}

/* Origins read "file conf/x.json:12"; messages go without "file ". */
static const char *config_origin_place(const char *origin)
{
    return strncmp(origin, "file ", 5) == 0 ? origin + 5 : origin;
}

/* Refuse v, or one element of it, as the value of s. */
static int config_refuse(const struct config_reader *r,
                         const struct seam_setting *s, const char *origin,
                         const json_t *v)
{
    struct seam_buf found = { 0 }, expected = { 0 };
    int rc;

    config_describe(v, s->is_secret, &found);
    seam_setting_expects(s, &expected);
    if (found.failed || expected.failed)
        rc = config_no_memory(r);
    else
        rc =
            seam_fail(r->err, SEAM_EDATA, "%s: %s: is %s, expected %s",
                      config_origin_place(origin), s->key, found.p, expected.p);
    seam_buf_release(&found);
    seam_buf_release(&expected);
    return rc;
}

static int config_unknown(const struct config_reader *r, const char *place,
                          const char *path)
{
    const char *near = seam_keypath_nearest(path, seam_setting_paths);
    struct seam_buf shown = { 0 };
    int rc;

    config_shorten(&shown, path, strlen(path));
    if (shown.failed)
        rc = config_no_memory(r);
    else if (seam_setting_is_section(path))
        rc = seam_fail(r->err, SEAM_EDATA,
                       "%s: %s: is a section, expected a key in it", place,
                       shown.p);
    else if (near)
        rc = seam_fail(r->err, SEAM_EDATA,
                       "%s: %s: unknown key; did you mean \"%s\"?", place,
                       shown.p, near);
    else
        rc = seam_fail(r->err, SEAM_EDATA, "%s: %s: unknown key", place,
                       shown.p);
    seam_buf_release(&shown);
    return rc;
}

/* ---- From a JSON value to the member ------------------------------------- */

/* The folder that relative paths from `origin` start at; *n 0: here. */
static const char *config_folder(const struct config_reader *r,
                                 const char *origin, size_t *n)
{
    const char *slash = NULL;

    if (r->file && strncmp(origin, "file ", 5) == 0)
        slash = strrchr(r->file, '/');
    *n = slash ? (size_t)(slash - r->file) + 1 : 0;
    return r->file;
}

/* A text that s allows, as the program keeps it; NULL with a message. */
static char *config_text(const struct config_reader *r,
                         const struct seam_setting *s, const char *origin,
                         const json_t *v)
{
    struct seam_buf b = { 0 };
    const char *t = json_string_value(v), *folder;
    size_t n = json_string_length(v), folder_bytes = 0;
    bool ok = t && n && strlen(t) == n;

    for (size_t i = 0; ok && i < n; i++)
        ok = (unsigned char)t[i] >= 0x20 && t[i] != 0x7f;
    if (!ok || (s->check && !s->check(t))) {
        config_refuse(r, s, origin, v);
        return NULL;
    }
    folder = config_folder(r, origin, &folder_bytes);
    if (s->is_path && t[0] != '/' && folder_bytes)
        seam_buf_add(&b, folder, folder_bytes);
    seam_buf_add(&b, t, n);
    if (b.failed) {
        seam_buf_release(&b);
        config_no_memory(r);
    }
    return b.p;
}

static int config_set_strings(const struct config_reader *r,
                              const struct seam_setting *s, const char *origin,
                              const json_t *v, struct seam_strings *out)
{
    struct seam_strings list = { 0 };
    size_t n = json_array_size(v);

    if (!json_is_array(v))
        return config_refuse(r, s, origin, v);
    list.v = calloc(n ? n : 1, sizeof *list.v);
    if (!list.v)
        return config_no_memory(r);
    for (; list.n < n; list.n++) {
        list.v[list.n] = config_text(r, s, origin, json_array_get(v, list.n));
        if (!list.v[list.n]) {
            config_strings_release(&list);
            return r->err->code;
        }
    }
    *out = list;
    return 0;
}

/* v as an integer.  Reals are integers when nothing is lost: the parser makes
 * all numbers reals when one of them is beyond 64 bits. */
static bool config_i64(const json_t *v, int64_t *out)
{
    double d = json_real_value(v);

    if (json_is_integer(v)) {
        *out = json_integer_value(v);
        return true;
    }
    if (!json_is_real(v) || !(d >= -0x1p53 && d <= 0x1p53) ||
        d != (double)(int64_t)d)
        return false;
    *out = (int64_t)d;
    return true;
}

/* Refuse null at any depth of v, which stands at path: a plugin would take it
 * for absent, and a setting that is written down must have an effect. */
static int config_no_nulls(const struct config_reader *r, const json_t *v,
                           const char *origin, struct seam_buf *path)
{
    size_t keep = path->n, i;
    json_t *entry, *w = (json_t *)(uintptr_t)v;
    const char *key;
    int rc = 0;

    if (json_is_null(v)) {
        struct seam_buf place = { 0 };

        if (strncmp(origin, "file ", 5) == 0)
            config_place(r, path->p, &place);
        else
            seam_buf_str(&place, origin);
        rc = place.failed ? config_no_memory(r)
                          : seam_fail(r->err, SEAM_EDATA,
                                      "%s: %s: is null, expected a value or "
                                      "no such key",
                                      place.p, path->p);
        seam_buf_release(&place);
        return rc;
    }
    json_object_foreach(w, key, entry)
    {
        seam_buf_fmt(path, ".%s", key);
        rc = path->failed ? config_no_memory(r)
                          : config_no_nulls(r, entry, origin, path);
        if (rc)
            return rc;
        path->n = keep;
    }
    json_array_foreach(w, i, entry)
    {
        seam_buf_fmt(path, "[%zu]", i);
        rc = path->failed ? config_no_memory(r)
                          : config_no_nulls(r, entry, origin, path);
        if (rc)
            return rc;
        path->n = keep;
    }
    return 0;
}

static int config_set_object(const struct config_reader *r,
                             const struct seam_setting *s, const char *origin,
                             const json_t *v, json_t **out)
{
    struct seam_buf path = { 0 };
    int rc;

    if (!json_is_object(v))
        return config_refuse(r, s, origin, v);
    seam_buf_str(&path, s->key);
    rc = path.failed ? config_no_memory(r)
                     : config_no_nulls(r, v, origin, &path);
    if (!rc) {
        json_decref(*out);
        *out = json_incref((json_t *)(uintptr_t)v);
    }
    seam_buf_release(&path);
    return rc;
}

/* Check v and make it the value of s.  origin NULL: the default. */
static int config_set(const struct config_reader *r,
                      const struct seam_setting *s, const json_t *v,
                      const char *origin)
{
    struct seam_strings strings = { 0 };
    const char *from = origin ? origin : "default";
    void *member = config_member(r->c, s);
    char **kept = &r->p->origin[s - seam_settings];
    char *copy = NULL, *text = NULL;
    int64_t i = 0;
    int rc = 0;

    if (origin) {
        copy = strdup(origin);
        if (!copy)
            return config_no_memory(r);
    }
    switch (s->type) {
    case SEAM_SETTING_BOOL:
        if (!json_is_boolean(v))
            goto refuse;
        *(bool *)member = json_is_true(v);
        break;
    case SEAM_SETTING_INT:
        if (!config_i64(v, &i) || i < s->min || i > s->max ||
            (s->step && i % s->step))
            goto refuse;
        *(int64_t *)member = i;
        break;
    case SEAM_SETTING_CHOICE:
    case SEAM_SETTING_STRING:
        if (s->type == SEAM_SETTING_CHOICE) {
            size_t k = 0;

            while (s->choices[k] &&
                   (!json_is_string(v) ||
                    strcmp(s->choices[k], json_string_value(v)) != 0))
                k++;
            if (!s->choices[k])
                goto refuse;
        }
        text = config_text(r, s, from, v);
        if (!text)
            goto fail;
        config_clear(r->c, s);
        *(char **)member = text;
        break;
    case SEAM_SETTING_STRINGS:
        rc = config_set_strings(r, s, from, v, &strings);
        if (rc)
            goto out;
        config_clear(r->c, s);
        *(struct seam_strings *)member = strings;
        break;
    case SEAM_SETTING_OBJECT:
        rc = config_set_object(r, s, from, v, member);
        if (rc)
            goto out;
        break;
    }
    free(*kept);
    *kept = copy;
    copy = NULL;
    goto out;
refuse:
    config_refuse(r, s, from, v);
fail:
    rc = r->err->code;
out:
    free(copy);
    return rc;
}

/* ---- The file ------------------------------------------------------------ */

static int config_entry(const struct config_reader *r, const char *path,
                        const json_t *v);

/* Refuse a key that no path can name, such as "server.listen". */
static int config_odd_key(const struct config_reader *r, const char *path,
                          const char *key, size_t key_bytes)
{
    struct seam_buf place = { 0 }, shown = { 0 };
    int rc;

    config_place(r, path, &place);
    config_shorten(&shown, key, key_bytes);
    if (place.failed || shown.failed)
        rc = config_no_memory(r);
    else
        rc = seam_fail(r->err, SEAM_EDATA,
                       "%s: \"%s\": unknown key; sections are written as "
                       "nested objects",
                       place.p, shown.p);
    seam_buf_release(&shown);
    seam_buf_release(&place);
    return rc;
}

/* The entries of the section at path ("" for the whole file). */
static int config_section(const struct config_reader *r, const char *path,
                          json_t *v)
{
    struct seam_buf full = { 0 };
    const char *key;
    size_t key_bytes;
    json_t *entry;
    int rc = 0;

    json_object_keylen_foreach(v, key, key_bytes, entry)
    {
        seam_buf_clear(&full);
        seam_buf_fmt(&full, "%s%s", path, *path ? "." : "");
        seam_buf_add(&full, key, key_bytes);
        if (full.failed)
            rc = config_no_memory(r);
        else if (!key_bytes || strlen(key) != key_bytes || strpbrk(key, ".[]"))
            rc = config_odd_key(r, full.p, key, key_bytes);
        else
            rc = config_entry(r, full.p, entry);
        if (rc)
            break;
    }
    seam_buf_release(&full);
    return rc;
}

static int config_entry(const struct config_reader *r, const char *path,
                        const json_t *v)
{
    const struct seam_setting *s = seam_setting_find(path);
    struct seam_buf origin = { 0 };
    int rc;

    seam_buf_str(&origin, "file ");
    config_place(r, path, &origin);
    if (origin.failed)
        rc = config_no_memory(r);
    else if (s)
        rc = config_set(r, s, v, origin.p);
    else if (!seam_setting_is_section(path))
        rc = config_unknown(r, config_origin_place(origin.p), path);
    else if (!json_is_object(v))
        rc = seam_fail(r->err, SEAM_EDATA, "%s: %s: is %s, expected an object",
                       config_origin_place(origin.p), path, config_kind(v));
    else
        rc = config_section(r, path, (json_t *)(uintptr_t)v);
    seam_buf_release(&origin);
    return rc;
}

/* The parser's message, or a better one where a key was given twice. */
static void config_explain(const struct config_reader *r)
{
    struct seam_buf path = { 0 };
    json_error_t je;
    json_t *v;

    v = json_loadb(r->p->text, r->p->n,
                   JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY,
                   &je);
    json_decref(v);
    if (v || json_error_code(&je) != json_error_duplicate_key)
        return;
    seam_keypath_at(r->p->text, r->p->n, (size_t)je.position, &path);
    if (path.p && !path.failed) {
        struct seam_buf shown = { 0 };

        config_shorten(&shown, path.p, path.n);
        if (!shown.failed)
            seam_fail(r->err, SEAM_EDATA,
                      "%s:%d: %s: key given twice, first in line %zu", r->file,
                      je.line, shown.p,
                      seam_keypath_line(r->p->text, r->p->n, path.p));
        seam_buf_release(&shown);
    }
    seam_buf_release(&path);
}

static int config_read_file(const struct config_reader *r)
{
    json_t *v = seam_json_parse(r->p->text, r->p->n, r->file, SEAM_JSON_BIG_INT,
                                r->err);
    int rc;

    if (!v) {
        config_explain(r);
        return r->err->code;
    }
    if (json_is_object(v))
        rc = config_section(r, "", v);
    else
        rc = seam_fail(r->err, SEAM_EDATA, "%s: is %s, expected an object",
                       r->file, config_kind(v));
    json_decref(v);
    return rc;
}

/* ---- Environment and flags ----------------------------------------------- */

/* "a,b,c" or a JSON list; "[]" is how to say none. */
static json_t *config_list_value(const char *text, const char *origin,
                                 struct seam_error *err)
{
    json_t *list;

    if (text[0] == '[')
        return seam_json_parse(text, strlen(text), origin, 0, err);
    list = json_array();
    for (;;) {
        size_t n = strcspn(text, ",");

        if (!list || json_array_append_new(list, json_stringn(text, n))) {
            json_decref(list);
            seam_fail(err, SEAM_ENOMEM, "%s: out of memory", origin);
            return NULL;
        }
        if (text[n] == 0)
            return list;
        text += n + 1;
    }
}

/* Text from outside the file as a JSON value of the type s has, or as a string
 * that config_set then refuses. */
static json_t *config_value(const struct seam_setting *s, const char *text,
                            const char *origin, struct seam_error *err)
{
    json_t *v = NULL;
    int64_t i;

    if (!seam_utf8_valid(text, strlen(text))) {
        seam_fail(err, SEAM_EDATA, "%s: %s: is not UTF-8", origin, s->key);
        return NULL;
    }
    switch (s->type) {
    case SEAM_SETTING_BOOL:
        if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0)
            v = json_boolean(text[0] == 't');
        else
            v = json_string(text);
        break;
    case SEAM_SETTING_INT:
        if (seam_parse_i64(text, strlen(text), &i))
            v = json_integer(i);
        else
            v = json_string(text);
        break;
    case SEAM_SETTING_STRING:
    case SEAM_SETTING_CHOICE:
        v = json_string(text);
        break;
    case SEAM_SETTING_STRINGS:
        return config_list_value(text, origin, err);
    case SEAM_SETTING_OBJECT:
        return seam_json_parse(text, strlen(text), origin, 0, err);
    }
    if (!v)
        seam_fail(err, SEAM_ENOMEM, "%s: out of memory", origin);
    return v;
}

static int config_set_text(const struct config_reader *r,
                           const struct seam_setting *s, const char *text,
                           const char *origin)
{
    json_t *v = config_value(s, text, origin, r->err);
    int rc;

    if (!v)
        return r->err->code;
    rc = config_set(r, s, v, origin);
    json_decref(v);
    return rc;
}

static int config_defaults(const struct config_reader *r)
{
    int rc = 0;

    for (const struct seam_setting *s = seam_settings; !rc && s->key; s++) {
        json_t *v;

        if (!s->preset)
            continue;
        v = config_value(s, s->preset, "default", r->err);
        rc = v ? config_set(r, s, v, NULL) : r->err->code;
        json_decref(v);
    }
    return rc;
}

/* The variable that was meant by name, or NULL; *mem keeps it. */
static const char *config_nearest_env(const char *name, struct seam_buf *mem)
{
    const char *best = NULL, **list;
    size_t n = strlen(name), i = 0;

    list = calloc(seam_n_settings + 1, sizeof *list);
    if (!list)
        return NULL;
    for (const struct seam_setting *s = seam_settings; s->key; s++) {
        char env[SEAM_SETTING_ENV_MAX];

        seam_setting_env(s, env);
        seam_buf_add(mem, env, sizeof env);
    }
    for (; !mem->failed && i < seam_n_settings; i++) {
        const char *env = mem->p + i * SEAM_SETTING_ENV_MAX;
        size_t bytes = strlen(env);

        list[i] = env;
        /* SEAM_LISTEN for SEAM_SERVER_LISTEN. */
        if (!best && n > 5 && bytes > n - 4 &&
            strcmp(env + bytes - (n - 4), name + 4) == 0)
            best = env;
    }
    if (!best)
        best = seam_nearest(name, list);
    free(list);
    return best;
}

/* Refuse the variable name[0, n). */
static int config_unknown_env(const struct config_reader *r, const char *name,
                              size_t n)
{
    struct seam_buf shown = { 0 }, upper = { 0 }, mem = { 0 };
    const char *near;
    int rc;

    config_shorten(&shown, name, n);
    config_shorten(&upper, name, n);
    if (shown.failed || upper.failed) {
        rc = config_no_memory(r);
        goto out;
    }
    for (size_t i = 0; i < upper.n; i++)
        if (upper.p[i] >= 'a' && upper.p[i] <= 'z')
            upper.p[i] = (char)(upper.p[i] - 'a' + 'A');
    near = config_nearest_env(upper.p, &mem);
    if (near)
        rc = seam_fail(r->err, SEAM_EDATA,
                       "env %s: names no setting; did you mean \"%s\"?",
                       shown.p, near);
    else
        rc = seam_fail(r->err, SEAM_EDATA,
                       "env %s: names no setting, and SEAM_ is reserved for "
                       "settings",
                       shown.p);
out:
    seam_buf_release(&mem);
    seam_buf_release(&upper);
    seam_buf_release(&shown);
    return rc;
}

static int config_env_one(const struct config_reader *r, const char *var,
                          bool *given)
{
    const char *end = strchr(var, '=');
    size_t n = end ? (size_t)(end - var) : strlen(var);
    char name[SEAM_SETTING_ENV_MAX], origin[SEAM_SETTING_ENV_MAX + 4];
    const struct seam_setting *s;

    for (s = seam_settings; s->key; s++) {
        seam_setting_env(s, name);
        if (strlen(name) == n && memcmp(name, var, n) == 0)
            break;
    }
    if (!s->key || !end)
        return config_unknown_env(r, var, n);
    snprintf(origin, sizeof origin, "env %s", name);
    if (given[s - seam_settings])
        return seam_fail(r->err, SEAM_EDATA, "%s: given twice", origin);
    given[s - seam_settings] = true;
    return config_set_text(r, s, end + 1, origin);
}

static int config_read_env(const struct config_reader *r, char *const *env)
{
    bool *given = calloc(seam_n_settings, sizeof *given);
    int rc = 0;

    if (!given)
        return config_no_memory(r);
    for (; !rc && env && *env; env++)
        if (strncmp(*env, "SEAM_", 5) == 0)
            rc = config_env_one(r, *env, given);
    free(given);
    return rc;
}

static int config_unknown_flag(const struct config_reader *r, const char *flag)
{
    const char **list = calloc(seam_n_settings + 1, sizeof *list);
    const char *near;
    size_t n = 0;
    int rc;

    if (!list)
        return config_no_memory(r);
    for (const struct seam_setting *s = seam_settings; s->key; s++)
        if (s->flag)
            list[n++] = s->flag;
    near = seam_nearest(flag, list);
    if (near)
        rc = seam_fail(r->err, SEAM_EDATA,
                       "flag %.*s: unknown; did you mean \"%s\"?", CONFIG_SHOWN,
                       flag, near);
    else
        rc = seam_fail(r->err, SEAM_EDATA, "flag %.*s: unknown", CONFIG_SHOWN,
                       flag);
    free(list);
    return rc;
}

static int config_flag_one(const struct config_reader *r,
                           const struct seam_flag *flag, bool *given)
{
    bool is_short = flag->key[0] == '-';
    const struct seam_setting *s = is_short ? seam_setting_by_flag(flag->key)
                                            : seam_setting_find(flag->key);
    const char *value = flag->value;
    char origin[32];

    if (!s)
        return is_short ? config_unknown_flag(r, flag->key)
                        : config_unknown(r, "flag --set", flag->key);
    snprintf(origin, sizeof origin, "flag %s", is_short ? s->flag : "--set");
    if (given[s - seam_settings])
        return seam_fail(r->err, SEAM_EDATA,
                         "%s: %s: given twice on the "
                         "command line",
                         origin, s->key);
    given[s - seam_settings] = true;
    if (!value && s->type == SEAM_SETTING_BOOL)
        value = "true";
    if (!value)
        return seam_fail(r->err, SEAM_EDATA, "%s: %s: needs a value", origin,
                         s->key);
    return config_set_text(r, s, value, origin);
}

static int config_read_flags(const struct config_reader *r,
                             const struct seam_flag *flag, size_t n)
{
    bool *given = calloc(seam_n_settings, sizeof *given);
    int rc = 0;

    if (!given)
        return config_no_memory(r);
    for (size_t i = 0; !rc && i < n; i++)
        rc = config_flag_one(r, &flag[i], given);
    free(given);
    return rc;
}

/* ---- What follows from other values -------------------------------------- */

/* A computed default; takes text, NULL being out of memory. */
static int config_derive(const struct config_reader *r, char **member,
                         char *text)
{
    *member = text;
    return text ? 0 : config_no_memory(r);
}

/* The last part of the checkpoint's path. */
static char *config_model_name(const char *path)
{
    char *real = NULL, *name;
    size_t end, start;

    if (strcmp(path, ".") == 0 || strcmp(path, "..") == 0)
        real = realpath(path, NULL);
    if (real)
        path = real;
    end = strlen(path);
    while (end > 1 && path[end - 1] == '/')
        end--;
    start = end;
    while (start && path[start - 1] != '/')
        start--;
    name = end > start ? strndup(path + start, end - start) : strdup("model");
    free(real);
    return name;
}

/* "plugins" beside the running program: where the build puts both. */
static char *config_plugin_dir(void)
{
    char exe[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    struct seam_buf b = { 0 };
    char *slash;

    exe[n > 0 ? n : 0] = 0;
    slash = strrchr(exe, '/');
    seam_buf_add(&b, exe, slash ? (size_t)(slash - exe) + 1 : 0);
    seam_buf_str(&b, "plugins");
    if (b.failed)
        seam_buf_release(&b);
    return b.p;
}

/* Where a whole setting is from, for messages: "conf/x.json", "env SEAM_X". */
static const char *config_whence(const struct config_reader *r)
{
    return r->file ? r->file : "configuration";
}

static int config_finish_plugin(const struct config_reader *r, int role)
{
    struct seam_plugin_entry_config *p = &r->c->plugin[role];
    const char *name = seam_role_name[role], *origin;
    struct seam_buf b = { 0 };
    char key[48];

    if (!p->name)
        return seam_fail(r->err, SEAM_EDATA,
                         "%s: plugins.%s.name: not set; each of backend, "
                         "linear_attention, sparse_attention, moe and parser "
                         "needs a plugin",
                         config_whence(r), name);
    if (p->sha256 && p->unpinned)
        return seam_fail(r->err, SEAM_EDATA,
                         "%s: plugins.%s: both sha256 and unpinned are given, "
                         "expected one of them",
                         config_whence(r), name);
    if (!p->sha256 && !p->unpinned)
        return seam_fail(r->err, SEAM_EDATA,
                         "%s: plugins.%s: not pinned; give its sha256, or "
                         "\"unpinned\": true to accept any file",
                         config_whence(r), name);
    if (!p->file) {
        seam_buf_fmt(&b, "%s.so", p->name);
        if (b.failed)
            return config_no_memory(r);
        p->file = b.p;
        b = (struct seam_buf){ 0 };
    }
    snprintf(key, sizeof key, "plugins.%s.config", name);
    origin = r->p->origin[seam_setting_find(key) - seam_settings];
    if (origin && strncmp(origin, "file ", 5) != 0)
        seam_buf_fmt(&b, "%s: %s", origin, key);
    else
        seam_buf_fmt(&b, "%s: %s", config_whence(r), key);
    if (b.failed)
        return config_no_memory(r);
    p->where = b.p;
    return 0;
}

static int config_finish(const struct config_reader *r)
{
    struct seam_config *c = r->c;
    int rc = 0;

    if (!c->model.path)
        return seam_fail(r->err, SEAM_EDATA,
                         "%s: model.path: not set; give the checkpoint's "
                         "folder there, by SEAM_MODEL_PATH or by --model",
                         config_whence(r));
    if (c->engine.max_step_tokens < c->engine.max_seqs)
        return seam_fail(r->err, SEAM_EDATA,
                         "%s: engine.max_step_tokens: is %lld, expected at "
                         "least engine.max_seqs, which is %lld",
                         config_whence(r), (long long)c->engine.max_step_tokens,
                         (long long)c->engine.max_seqs);
    if (c->engine.prefix_dir && !c->engine.prefix_bytes)
        return seam_fail(r->err, SEAM_EDATA,
                         "%s: engine.prefix_dir: is set, but nothing goes "
                         "there while engine.prefix_bytes is 0; drop one of "
                         "the two",
                         config_whence(r));
    for (size_t i = 0; i < c->server.api_keys.n && c->server.admin_key; i++)
        if (!strcmp(c->server.api_keys.v[i], c->server.admin_key))
            return seam_fail(r->err, SEAM_EDATA,
                             "%s: server.admin_key: is one of "
                             "server.api_keys, so that every client could "
                             "swap plugins; choose another",
                             config_whence(r));
    if (!c->model.name)
        rc = config_derive(r, &c->model.name, config_model_name(c->model.path));
    if (!rc && !c->plugin_dir)
        rc = config_derive(r, &c->plugin_dir, config_plugin_dir());
    for (int role = 0; !rc && role < SEAM_N_ROLES; role++)
        rc = config_finish_plugin(r, role);
    return rc;
}

/* ---- Loading ------------------------------------------------------------- */

/* Takes text (malloc'd, or NULL: no file). */
static int config_load(struct seam_config *out, const char *name, char *text,
                       size_t n, char *const *env, const struct seam_flag *flag,
                       size_t n_flags, struct seam_error *err)
{
    struct seam_config c = { 0 };
    struct seam_error unused;
    struct config_reader r = { &c, text ? name : NULL, calloc(1, sizeof *r.p),
                               err ? err : &unused };
    int rc = 0;

    c.origins = r.p;
    if (!r.p) {
        free(text);
        rc = config_no_memory(&r);
        goto out;
    }
    r.p->text = text;
    r.p->n = n;
    r.p->origin = calloc(seam_n_settings, sizeof *r.p->origin);
    if (r.file)
        c.file = strdup(r.file);
    if (!r.p->origin || (r.file && !c.file)) {
        rc = config_no_memory(&r);
        goto out;
    }
    rc = config_defaults(&r);
    if (!rc && r.file)
        rc = config_read_file(&r);
    if (!rc)
        rc = config_read_env(&r, env);
    if (!rc)
        rc = config_read_flags(&r, flag, n_flags);
    if (!rc)
        rc = config_finish(&r);
out:
    if (rc)
        seam_config_release(&c);
    *out = c;
    return rc;
}

int seam_config_load(struct seam_config *c, const char *file, char *const *env,
                     const struct seam_flag *flag, size_t n_flags,
                     struct seam_error *err)
{
    char *text = NULL;
    uint64_t n = 0;

    if (file) {
        int rc = seam_file_read(file, CONFIG_MAX_BYTES, &text, &n, err);

        if (rc) {
            *c = (struct seam_config){ 0 };
            return rc;
        }
    }
    return config_load(c, file, text, n, env, flag, n_flags, err);
}

int seam_config_parse(struct seam_config *c, const char *name, const char *text,
                      size_t n, char *const *env, const struct seam_flag *flag,
                      size_t n_flags, struct seam_error *err)
{
    char *copy = malloc(n + 1);

    if (!copy) {
        *c = (struct seam_config){ 0 };
        return seam_fail(err, SEAM_ENOMEM, "%s: out of memory", name);
    }
    memcpy(copy, text, n);
    copy[n] = 0;
    return config_load(c, name, copy, n, env, flag, n_flags, err);
}

const char *seam_config_flag_key(const char *flag, bool *is_switch)
{
    const struct seam_setting *s = seam_setting_by_flag(flag);

    if (!s)
        return NULL;
    if (is_switch)
        *is_switch = s->type == SEAM_SETTING_BOOL;
    return s->key;
}

struct seam_cfg *seam_config_plugin_cfg(const struct seam_config *c,
                                        enum seam_role role,
                                        const struct seam_log *log)
{
    const struct seam_plugin_entry_config *p = &c->plugin[role];
    const struct config_private *priv = c->origins;
    struct seam_cfg_source source = { .file = c->file };
    char key[48];
    const char *origin;

    snprintf(key, sizeof key, "plugins.%s.config", seam_role_name[role]);
    origin = priv->origin[seam_setting_find(key) - seam_settings];
    if (!priv->text || !origin || strncmp(origin, "file ", 5) != 0)
        return seam_cfg_new(p->config, p->where, log);
    source.base = key;
    source.text = priv->text;
    source.n = priv->n;
    return seam_cfg_new_from(p->config, &source, log);
}

/* ---- Comparing ----------------------------------------------------------- */

static bool config_same_text(const char *a, const char *b)
{
    return a && b ? !strcmp(a, b) : a == b;
}

static bool config_same(const struct seam_config *a,
                        const struct seam_config *b,
                        const struct seam_setting *s)
{
    const void *x = config_member(a, s), *y = config_member(b, s);
    const struct seam_strings *v = x, *w = y;

    switch (s->type) {
    case SEAM_SETTING_BOOL:
        return *(const bool *)x == *(const bool *)y;
    case SEAM_SETTING_INT:
        return *(const int64_t *)x == *(const int64_t *)y;
    case SEAM_SETTING_STRING:
    case SEAM_SETTING_CHOICE:
        return config_same_text(*(char *const *)x, *(char *const *)y);
    case SEAM_SETTING_STRINGS:
        if (v->n != w->n)
            return false;
        for (size_t i = 0; i < v->n; i++)
            if (strcmp(v->v[i], w->v[i]) != 0)
                return false;
        return true;
    case SEAM_SETTING_OBJECT:
        break;
    }
    /* jansson compares NULLs as different. */
    return *(json_t *const *)x == *(json_t *const *)y ||
           json_equal(*(json_t *const *)x, *(json_t *const *)y);
}

void seam_config_changed(const struct seam_config *a,
                         const struct seam_config *b,
                         void (*fn)(void *ctx, const char *key), void *ctx)
{
    for (const struct seam_setting *s = seam_settings; s->key; s++)
        if (strncmp(s->key, "plugins.", 8) != 0 && !config_same(a, b, s))
            fn(ctx, s->key);
}

bool seam_config_same_plugin(const struct seam_plugin_entry_config *a,
                             const struct seam_plugin_entry_config *b)
{
    return config_same_text(a->name, b->name) &&
           config_same_text(a->file, b->file) &&
           config_same_text(a->sha256, b->sha256) &&
           a->unpinned == b->unpinned &&
           (a->config == b->config || json_equal(a->config, b->config));
}

/* ---- Showing ------------------------------------------------------------- */

/* The effective value, NULL when out of memory. */
static json_t *config_shown(const struct seam_config *c,
                            const struct seam_setting *s)
{
    void *member = config_member(c, s);
    json_t *list;

    switch (s->type) {
    case SEAM_SETTING_BOOL:
        return json_boolean(*(bool *)member);
    case SEAM_SETTING_INT:
        return json_integer(*(int64_t *)member);
    case SEAM_SETTING_STRING:
    case SEAM_SETTING_CHOICE:
        if (!*(char **)member)
            return json_null();
        return json_string(s->is_secret ? "(set)" : *(char **)member);
    case SEAM_SETTING_STRINGS: {
        const struct seam_strings *v = member;

        if (s->is_secret && v->n)
            return json_string("(set)");
        list = json_array();
        for (size_t i = 0; list && i < v->n; i++)
            if (json_array_append_new(list, json_string(v->v[i]))) {
                json_decref(list);
                return NULL;
            }
        return list;
    }
    case SEAM_SETTING_OBJECT:
        /* A copy: the caller's thread is not ours. */
        return *(json_t **)member ? json_deep_copy(*(json_t **)member)
                                  : json_null();
    }
    return NULL;
}

static const char *config_origin(const struct seam_config *c,
                                 const struct seam_setting *s)
{
    const struct config_private *p = c->origins;
    const char *origin = p ? p->origin[s - seam_settings] : NULL;

    return origin ? origin : "default";
}

void seam_config_print(const struct seam_config *c, struct seam_buf *out)
{
    for (const struct seam_setting *s = seam_settings; s->key; s++) {
        json_t *v = config_shown(c, s);
        char *text = v ? json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;

        if (text)
            seam_buf_fmt(out, "%s = %s   # %s\n", s->key, text,
                         config_origin(c, s));
        else
            out->failed = true;
        free(text);
        json_decref(v);
    }
}

json_t *seam_config_json(const struct seam_config *c)
{
    json_t *list = json_array(), *all;

    for (const struct seam_setting *s = seam_settings; list && s->key; s++) {
        json_t *entry = json_object();

        /* Each of these takes its value, and fails on NULL. */
        if (json_object_set_new(entry, "key", json_string(s->key)) ||
            json_object_set_new(entry, "value", config_shown(c, s)) ||
            json_object_set_new(entry, "origin",
                                json_string(config_origin(c, s)))) {
            json_decref(entry);
            json_decref(list);
            return NULL;
        }
        if (json_array_append_new(list, entry)) {
            json_decref(list);
            return NULL;
        }
    }
    all = json_object();
    if (json_object_set_new(all, "settings", list)) {
        json_decref(all);
        return NULL;
    }
    return all;
}
