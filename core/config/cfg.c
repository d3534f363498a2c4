/* Asked paths are kept as text in a JSON object that serves as a set.  Values
 * could not be marked instead: jansson has one `true` for all. */
#include "core/config/cfg.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/buf.h"
#include "core/base/num.h"
#include "core/base/utf8.h"
#include "core/config/keypath.h"

#define CFG_SHOWN 96 /* bytes of a path that go into a message */

struct cfg_asked {
    json_t *set; /* object: path -> true                                      */
    bool failed; /* memory ran out; the set is incomplete                     */
};

struct seam_cfg {
    json_t *v; /* object, or NULL                                            */
    char *where;
    struct seam_cfg_source source; /* text NULL: unknown                      */
    const struct seam_log *log;
    struct cfg_asked *asked; /* behind a pointer: reads take a const node     */
};

struct seam_cfg *seam_cfg_new(json_t *v, const char *where,
                              const struct seam_log *log)
{
    struct seam_cfg *cfg = calloc(1, sizeof *cfg);

    if (!cfg)
        return NULL;
    cfg->v = json_incref(v);
    cfg->where = strdup(where);
    cfg->log = log;
    cfg->asked = calloc(1, sizeof *cfg->asked);
    if (cfg->asked)
        cfg->asked->set = json_object();
    if (!cfg->where || !cfg->asked || !cfg->asked->set) {
        seam_cfg_free(cfg);
        return NULL;
    }
    return cfg;
}

struct seam_cfg *seam_cfg_new_from(json_t *v,
                                   const struct seam_cfg_source *source,
                                   const struct seam_log *log)
{
    struct seam_cfg *cfg = seam_cfg_new(v, source->base, log);

    if (cfg) {
        cfg->source = *source;
        cfg->source.base = cfg->where;
    }
    return cfg;
}

void seam_cfg_free(struct seam_cfg *cfg)
{
    if (!cfg)
        return;
    if (cfg->asked)
        json_decref(cfg->asked->set);
    free(cfg->asked);
    free(cfg->where);
    json_decref(cfg->v);
    free(cfg);
}

/* Append "FILE:LINE: BASE.path: ", or as much of it as is known. */
static void cfg_place(const struct seam_cfg *cfg, const char *path, size_t n,
                      struct seam_buf *out)
{
    struct seam_buf whole = { 0 };
    size_t line = 0;

    if (cfg->source.text) {
        seam_buf_str(&whole, cfg->source.base);
        if (n && path[0] != '[')
            seam_buf_str(&whole, ".");
        seam_buf_add(&whole, path, n);
        if (!whole.failed)
            line = seam_keypath_line(cfg->source.text, cfg->source.n, whole.p);
        seam_buf_str(out, cfg->source.file);
        if (line)
            seam_buf_fmt(out, ":%zu", line);
        seam_buf_str(out, ": ");
    }
    seam_buf_str(out, cfg->where);
    if (n && path[0] != '[')
        seam_buf_str(out, ".");
    seam_buf_add(out, path,
                 n > CFG_SHOWN ? seam_utf8_whole(path, CFG_SHOWN) : n);
    seam_buf_release(&whole);
}

static const char *cfg_type_name(const json_t *v)
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
        return "a number with a fraction or beyond 64 bits";
    case JSON_TRUE:
    case JSON_FALSE:
        return "true or false";
    default:
        return "null";
    }
}

/* Log what stands at path[0, n) and what was expected there. */
static int cfg_refuse(const struct seam_cfg *cfg, const char *path, size_t n,
                      const char *found, const char *expected)
{
    struct seam_buf where = { 0 };

    cfg_place(cfg, path, n, &where);
    seam_log(cfg->log, SEAM_LOG_ERROR, "config", "%s: is %s, expected %s",
             where.p ? where.p : path, found, expected);
    seam_buf_release(&where);
    return SEAM_EINVAL;
}

/* Remember path[0, n) and with it every path that leads there. */
static void cfg_mark(const struct seam_cfg *cfg, const char *path, size_t n)
{
    if (!cfg->asked->failed &&
        json_object_setn_new(cfg->asked->set, path, n, json_true()))
        cfg->asked->failed = true;
}

/* Length of the key or "[index]" that path begins with; 0: malformed. */
static size_t cfg_part(const char *path)
{
    size_t n;

    if (path[0] != '[')
        return strcspn(path, ".[]");
    n = strspn(path + 1, "0123456789");
    if (n == 0 || n > 9 || path[n + 1] != ']' || (path[1] == '0' && n > 1))
        return 0;
    return n + 2;
}

static bool cfg_path_valid(const char *path)
{
    const char *p = path;

    for (;;) {
        size_t n = cfg_part(p);

        if (n == 0 || (*p == '[' && p != path && p[-1] == '.'))
            return false;
        p += n;
        if (*p == 0)
            return true;
        if (*p == '.')
            p++;
        else if (*p != '[')
            return false;
    }
}

/* Find the value at path and mark what was passed.  ENOENT, or EINVAL when a
 * value on the way is no object or list, or path is malformed. */
static int cfg_find(const struct seam_cfg *cfg, const char *path, json_t **out)
{
    json_t *v = cfg->v;
    size_t at = 0;

    if (!cfg_path_valid(path))
        return cfg_refuse(cfg, path, strlen(path),
                          "asked for by a malformed path",
                          "keys, dots and [indices]");
    while (path[at]) {
        size_t parent = at;
        size_t part = at + (path[at] == '.');
        bool in_list = path[part] == '[';
        uint64_t i = 0;

        at = part + cfg_part(path + part);
        if (!v || json_is_null(v))
            v = NULL;
        else if (in_list ? !json_is_array(v) : !json_is_object(v))
            return cfg_refuse(cfg, path, parent, cfg_type_name(v),
                              in_list ? "a list" : "an object");
        else if (!in_list)
            v = json_object_getn(v, path + part, at - part);
        else if (seam_parse_u64(path + part + 1, at - part - 2, &i))
            v = json_array_get(v, i);
        cfg_mark(cfg, path, at);
    }
    if (!v || json_is_null(v))
        return SEAM_ENOENT;
    *out = v;
    return 0;
}

/* v as an integer, if it is one or a real that is. */
static bool cfg_i64(const json_t *v, int64_t *out)
{
    double d = json_real_value(v);

    if (json_is_integer(v)) {
        *out = json_integer_value(v);
        return true;
    }
    if (!json_is_real(v) || !(d >= -0x1p63 && d < 0x1p63) ||
        d != (double)(int64_t)d)
        return false;
    *out = (int64_t)d;
    return true;
}

int seam_cfg_get(const struct seam_cfg *cfg, const char *path, uint32_t type,
                 void *out)
{
    json_t *v = NULL;
    const char *expected;
    int64_t i;
    int rc;

    if (!cfg)
        return SEAM_ENOENT;
    rc = cfg_find(cfg, path, &v);
    if (rc)
        return rc;
    switch (type) {
    case SEAM_CFG_BOOL:
        if (json_is_boolean(v)) {
            *(int32_t *)out = json_is_true(v);
            return 0;
        }
        expected = "true or false";
        break;
    case SEAM_CFG_I64:
        if (cfg_i64(v, &i)) {
            *(int64_t *)out = i;
            return 0;
        }
        expected = "an integer";
        break;
    case SEAM_CFG_F64:
        if (json_is_number(v)) {
            *(double *)out = json_number_value(v);
            return 0;
        }
        expected = "a number";
        break;
    case SEAM_CFG_STR:
        if (json_is_string(v)) {
            struct seam_str *s = out;

            s->p = json_string_value(v);
            s->n = json_string_length(v);
            return 0;
        }
        expected = "a string";
        break;
    case SEAM_CFG_LEN:
        if (json_is_array(v) || json_is_object(v)) {
            *(uint64_t *)out = json_array_size(v) + json_object_size(v);
            return 0;
        }
        expected = "a list or an object";
        break;
    default:
        expected = "a type of plugin.h in the call";
        break;
    }
    return cfg_refuse(cfg, path, strlen(path), cfg_type_name(v), expected);
}

/* The state of a check: path is where it is below cfg->v. */
struct cfg_check {
    const struct seam_cfg *cfg;
    struct seam_buf path;
    bool found; /* path is a key that nobody asked for                        */
};

static void cfg_check_below(struct cfg_check *c, json_t *v);

/* Look at the entry whose path was just appended; cut it off again unless it
 * is the answer. */
static void cfg_check_entry(struct cfg_check *c, json_t *v, size_t keep,
                            bool can_be_asked)
{
    if (c->path.failed)
        return;
    if (!can_be_asked ||
        !json_object_getn(c->cfg->asked->set, c->path.p, c->path.n)) {
        c->found = true;
        return;
    }
    cfg_check_below(c, v);
    if (!c->found && !c->path.failed) {
        c->path.n = keep;
        c->path.p[keep] = 0;
    }
}

/* Depth is bounded by the parser of the JSON. */
static void cfg_check_below(struct cfg_check *c, json_t *v)
{
    size_t keep = c->path.n, i;
    const char *key;
    size_t key_bytes;
    json_t *entry;

    json_object_keylen_foreach(v, key, key_bytes, entry)
    {
        if (c->path.n)
            seam_buf_str(&c->path, ".");
        if (key_bytes)
            seam_buf_add(&c->path, key, key_bytes);
        else
            seam_buf_str(&c->path, "\"\"");
        cfg_check_entry(c, entry, keep,
                        key_bytes && strlen(key) == key_bytes &&
                            !strpbrk(key, ".[]"));
        if (c->found || c->path.failed)
            return;
    }
    json_array_foreach(v, i, entry)
    {
        seam_buf_fmt(&c->path, "[%zu]", i);
        cfg_check_entry(c, entry, keep, true);
        if (c->found || c->path.failed)
            return;
    }
}

/* The asked path nearest to `path`, or NULL.  It lives as long as cfg. */
static const char *cfg_nearest(const struct seam_cfg *cfg, const char *path)
{
    const char **list, *key, *best;
    size_t n = 0;
    json_t *unused;

    list = calloc(json_object_size(cfg->asked->set) + 1, sizeof *list);
    if (!list)
        return NULL;
    json_object_foreach(cfg->asked->set, key, unused) list[n++] = key;
    best = seam_keypath_nearest(path, list);
    free(list);
    return best;
}

int seam_cfg_check_used(const struct seam_cfg *cfg, struct seam_error *err)
{
    struct cfg_check c = { .cfg = cfg };
    struct seam_buf where = { 0 };
    const char *near;
    int rc = 0;

    if (!cfg || !cfg->v)
        return 0;
    cfg_check_below(&c, cfg->v);
    if (cfg->asked->failed || c.path.failed) {
        rc = seam_fail(err, SEAM_ENOMEM, "%s: out of memory", cfg->where);
        goto out;
    }
    if (!c.found)
        goto out;
    cfg_place(cfg, c.path.p, c.path.n, &where);
    near = cfg_nearest(cfg, c.path.p);
    if (where.failed)
        rc = seam_fail(err, SEAM_ENOMEM, "%s: out of memory", cfg->where);
    else if (near)
        rc = seam_fail(err, SEAM_EINVAL,
                       "%s: unknown key; did you mean \"%s\"?", where.p, near);
    else
        rc = seam_fail(err, SEAM_EINVAL, "%s: unknown key", where.p);
out:
    seam_buf_release(&where);
    seam_buf_release(&c.path);
    return rc;
}
