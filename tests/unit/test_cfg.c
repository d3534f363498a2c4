#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/json.h"
#include "core/config/cfg.h"
#include "core/config/keypath.h"

static json_t *value_of(const char *text)
{
    struct seam_error err = { 0 };
    json_t *v = seam_json_parse(text, strlen(text), "test", 0, &err);

    cr_assert_not_null(v, "%s", err.text);
    return v;
}

/* A node, and a log that goes into a pipe. */
struct fixture {
    struct seam_cfg *cfg;
    struct seam_log log;
    int out;
    char text[4096];
};

static void fixture_init(struct fixture *f, const char *text, bool with_lines)
{
    struct seam_cfg_source source = { "conf/x.json", "plugins.moe.config", text,
                                      strlen(text) };
    json_t *v = value_of(text), *node = v;
    int fd[2];

    memset(f, 0, sizeof *f);
    cr_assert_eq(pipe2(fd, O_NONBLOCK | O_CLOEXEC), 0);
    f->out = fd[0];
    f->log = (struct seam_log){ fd[1], SEAM_LOG_DEBUG, false };
    if (with_lines) {
        node = json_object_get(node, "plugins");
        node = json_object_get(node, "moe");
        node = json_object_get(node, "config");
        f->cfg = seam_cfg_new_from(node, &source, &f->log);
    } else {
        f->cfg = seam_cfg_new(node, "x.json: block", &f->log);
    }
    cr_assert_not_null(f->cfg);
    json_decref(v);
}

static void fixture_release(struct fixture *f)
{
    seam_cfg_free(f->cfg);
    close(f->out);
    close(f->log.fd);
}

/* What was logged since the last call. */
static const char *logged(struct fixture *f)
{
    ssize_t n = read(f->out, f->text, sizeof f->text - 1);

    f->text[n > 0 ? n : 0] = 0;
    return f->text;
}

#define expect_has(text, part) \
    cr_expect(strstr(text, part), "no \"%s\" in \"%s\"", part, text)

Test(cfg, reads_each_type_by_path)
{
    struct fixture f;
    int32_t b = -1;
    int64_t i = -1;
    double d = -1;
    struct seam_str s = { 0 };
    uint64_t n = 0;

    fixture_init(&f,
                 "{\"cache\": {\"slots\": 7, \"on\": true, \"off\": false},"
                 " \"layers\": [{\"kind\": \"a\"}, {\"kind\": \"b\\u0000c\"}],"
                 " \"grid\": [[1, 2], [3, 4.5]]}",
                 false);
    cr_expect_eq(seam_cfg_get(f.cfg, "cache.slots", SEAM_CFG_I64, &i), 0);
    cr_expect_eq(i, 7);
    cr_expect_eq(seam_cfg_get(f.cfg, "cache.on", SEAM_CFG_BOOL, &b), 0);
    cr_expect_eq(b, 1);
    cr_expect_eq(seam_cfg_get(f.cfg, "cache.off", SEAM_CFG_BOOL, &b), 0);
    cr_expect_eq(b, 0);
    cr_expect_eq(seam_cfg_get(f.cfg, "layers[1].kind", SEAM_CFG_STR, &s), 0);
    cr_expect(s.n == 3 && memcmp(s.p, "b\0c", 3) == 0);
    cr_expect_eq(seam_cfg_get(f.cfg, "grid[1][1]", SEAM_CFG_F64, &d), 0);
    cr_expect_eq(d, 4.5);
    cr_expect_eq(seam_cfg_get(f.cfg, "grid[1][0]", SEAM_CFG_F64, &d), 0);
    cr_expect_eq(d, 3);
    cr_expect_eq(seam_cfg_get(f.cfg, "layers", SEAM_CFG_LEN, &n), 0);
    cr_expect_eq(n, 2);
    cr_expect_eq(seam_cfg_get(f.cfg, "cache", SEAM_CFG_LEN, &n), 0);
    cr_expect_eq(n, 3);
    cr_expect_str_eq(logged(&f), "");
    fixture_release(&f);
}

Test(cfg, strings_outlive_the_tree_they_were_read_from)
{
    struct fixture f;
    struct seam_str s = { 0 };

    /* The fixture has dropped its own reference already. */
    fixture_init(&f, "{\"name\": \"kept\"}", false);
    cr_expect_eq(seam_cfg_get(f.cfg, "name", SEAM_CFG_STR, &s), 0);
    cr_expect_eq(memcmp(s.p, "kept", 4), 0);
    fixture_release(&f);
}

Test(cfg, absent_leaves_the_default_alone)
{
    static const char *const absent[] = { "b",    "a.x", "l[2]", "l[1][0]",
                                          "n",    "n.x", "n[0]", "l[999999999]",
                                          "o.a.b" };
    struct fixture f;
    int64_t i = 42;

    fixture_init(&f, "{\"a\": {}, \"l\": [1, null], \"n\": null, \"o\": {}}",
                 false);
    for (size_t k = 0; k < sizeof absent / sizeof absent[0]; k++) {
        cr_expect_eq(seam_cfg_get(f.cfg, absent[k], SEAM_CFG_I64, &i),
                     SEAM_ENOENT, "%s", absent[k]);
        cr_expect_eq(i, 42);
    }
    cr_expect_str_eq(logged(&f), "");
    fixture_release(&f);
    cr_expect_eq(seam_cfg_get(NULL, "a", SEAM_CFG_I64, &i), SEAM_ENOENT);
    cr_expect_eq(seam_cfg_check_used(NULL, NULL), 0);
    f.cfg = seam_cfg_new(NULL, "empty", NULL);
    cr_expect_eq(seam_cfg_get(f.cfg, "a.b[0]", SEAM_CFG_I64, &i), SEAM_ENOENT);
    cr_expect_eq(seam_cfg_check_used(f.cfg, NULL), 0);
    seam_cfg_free(f.cfg);
    seam_cfg_free(NULL);
}

Test(cfg, another_type_is_refused_and_logged_with_its_path)
{
    static const struct {
        const char *path;
        uint32_t type;
        const char *says;
    } wrong[] = {
        { "i", SEAM_CFG_BOOL,
          "block.i: is an integer, expected true or false" },
        { "i", SEAM_CFG_STR, "block.i: is an integer, expected a string" },
        { "i", SEAM_CFG_LEN, "expected a list or an object" },
        { "i.x", SEAM_CFG_I64, "block.i: is an integer, expected an object" },
        { "i[0]", SEAM_CFG_I64, "block.i: is an integer, expected a list" },
        { "s", SEAM_CFG_I64, "block.s: is a string, expected an integer" },
        { "s", SEAM_CFG_F64, "block.s: is a string, expected a number" },
        { "b", SEAM_CFG_I64, "block.b: is true or false, expected an integer" },
        { "r", SEAM_CFG_I64, "block.r: is a number with a fraction" },
        { "big", SEAM_CFG_I64, "block.big: is a number" },
        { "l", SEAM_CFG_STR, "block.l: is a list, expected a string" },
        { "l.x", SEAM_CFG_STR, "block.l: is a list, expected an object" },
        { "l[0].x.y", SEAM_CFG_STR, "block.l[0].x: is an integer" },
        { "o", SEAM_CFG_BOOL, "block.o: is an object" },
        { "o[0]", SEAM_CFG_BOOL, "block.o: is an object, expected a list" },
        { "[0]", SEAM_CFG_BOOL, "block: is an object, expected a list" },
        { "i", 99, "block.i" },
    };
    struct fixture f;

    fixture_init(&f,
                 "{\"i\": 1, \"s\": \"1\", \"b\": true, \"r\": 1.5,"
                 " \"big\": 1e19, \"l\": [{\"x\": 1}], \"o\": {\"k\": 1}}",
                 false);
    for (size_t k = 0; k < sizeof wrong / sizeof wrong[0]; k++) {
        unsigned char out[16];
        const char *text;

        memset(out, 0xa5, sizeof out);
        cr_expect_eq(seam_cfg_get(f.cfg, wrong[k].path, wrong[k].type, out),
                     SEAM_EINVAL, "%s", wrong[k].path);
        text = logged(&f);
        cr_expect(strstr(text, wrong[k].says), "%s, not %s", text,
                  wrong[k].says);
        cr_expect(strstr(text, " error config: "), "%s", text);
        for (size_t j = 0; j < sizeof out; j++)
            cr_assert_eq(out[j], 0xa5, "%s wrote", wrong[k].path);
    }
    fixture_release(&f);
}

Test(cfg, whole_reals_are_integers)
{
    struct fixture f;
    int64_t i = 0;

    fixture_init(&f, "{\"a\": 4096.0, \"b\": -9223372036854775808.0}", false);
    cr_expect_eq(seam_cfg_get(f.cfg, "a", SEAM_CFG_I64, &i), 0);
    cr_expect_eq(i, 4096);
    cr_expect_eq(seam_cfg_get(f.cfg, "b", SEAM_CFG_I64, &i), 0);
    cr_expect_eq(i, INT64_MIN);
    fixture_release(&f);
}

Test(cfg, malformed_paths_are_refused)
{
    static const char *const bad[] = { "",      ".",     "a.",           ".a",
                                       "a..b",  "a[",    "a[]",          "a[x]",
                                       "a[0",   "a[0]b", "a.[0]",        "a]",
                                       "a[-1]", "a[01]", "a[1234567890]" };
    struct fixture f;
    int64_t i = 3;

    fixture_init(&f, "{\"a\": [1]}", false);
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
        cr_expect_eq(seam_cfg_get(f.cfg, bad[k], SEAM_CFG_I64, &i), SEAM_EINVAL,
                     "%s", bad[k]);
        expect_has(logged(&f), "malformed");
    }
    cr_expect_eq(i, 3);
    fixture_release(&f);
}

static void expect_unused(const char *text, const char *const *ask,
                          const char *message)
{
    struct seam_error err = { 0 };
    struct fixture f;
    int rc;

    fixture_init(&f, text, false);
    for (; *ask; ask++) {
        uint64_t room[2];

        seam_cfg_get(f.cfg, *ask, SEAM_CFG_I64, room);
    }
    rc = seam_cfg_check_used(f.cfg, &err);
    if (message) {
        cr_expect_eq(rc, SEAM_EINVAL, "%s", text);
        cr_expect_str_eq(err.text, message);
    } else {
        cr_expect_eq(rc, 0, "%s: %s", text, err.text);
    }
    fixture_release(&f);
}

#define ASK(...)          \
    (const char *const[]) \
    {                     \
        __VA_ARGS__, NULL \
    }

Test(cfg, keys_nobody_asked_for_are_refused)
{
    expect_unused("{}", ASK("a"), NULL);
    expect_unused("{\"a\": 1}", ASK("a"), NULL);
    expect_unused("{\"slot\": 1}", ASK("slots"),
                  "x.json: block.slot: unknown key; did you mean \"slots\"?");
    expect_unused("{\"zzzzzzzz\": 1}", ASK("slots"),
                  "x.json: block.zzzzzzzz: unknown key");
    /* Beside a used key, at depth, in lists. */
    expect_unused("{\"cache\": {\"slots\": 1, \"size\": 2}}",
                  ASK("cache.slots", "cache.bytes"),
                  "x.json: block.cache.size: unknown key");
    expect_unused("{\"cache\": {\"slots\": 1, \"byte\": 2}}",
                  ASK("cache.slots", "cache.bytes"),
                  "x.json: block.cache.byte: unknown key; did you mean "
                  "\"cache.bytes\"?");
    expect_unused("{\"l\": [{\"kind\": 1, \"kin\": 2}]}", ASK("l[0].kind"),
                  "x.json: block.l[0].kin: unknown key; did you mean "
                  "\"l[0].kind\"?");
    expect_unused("{\"l\": [1, 2, 3]}", ASK("l[0]", "l[1]"),
                  "x.json: block.l[2]: unknown key; did you mean \"l[0]\"?");
    /* In the wrong place. */
    expect_unused("{\"slots\": 1}", ASK("cache.slots"),
                  "x.json: block.slots: unknown key; did you mean "
                  "\"cache.slots\"?");
}

Test(cfg, a_passed_container_is_used_its_other_keys_are_not)
{
    expect_unused("{\"a\": {\"b\": {}}}", ASK("a.b.c"), NULL);
    expect_unused("{\"a\": {\"b\": {}, \"x\": {}}}", ASK("a.b.c", "a.y"),
                  "x.json: block.a.x: unknown key");
    expect_unused("{\"a\": []}", ASK("a"), NULL);
    expect_unused("{\"a\": [0]}", ASK("a"), "x.json: block.a[0]: unknown key");
}

Test(cfg, a_key_that_looks_like_a_path_is_not_used_by_that_path)
{
    expect_unused("{\"a.b\": 1, \"a\": {\"b\": 1}}", ASK("a.b"),
                  "x.json: block.a.b: unknown key; did you mean \"a.b\"?");
    expect_unused("{\"\": 1}", ASK("a"), "x.json: block.\"\": unknown key");
}

Test(cfg, messages_carry_the_line_when_the_text_is_known)
{
    struct seam_error err = { 0 };
    struct fixture f;
    int64_t i = 0;

    fixture_init(&f,
                 "{\n \"plugins\": {\n  \"x\": {\"config\": {\"slots\": 0}},\n"
                 "  \"moe\": {\n   \"config\": {\n    \"slots\": \"4\",\n"
                 "    \"slotz\": [1,\n 2]}}}}",
                 true);
    cr_expect_eq(seam_cfg_get(f.cfg, "slots", SEAM_CFG_I64, &i), SEAM_EINVAL);
    expect_has(logged(&f), "conf/x.json:6: plugins.moe.config.slots: is a "
                           "string, expected an integer");
    cr_expect_eq(seam_cfg_check_used(f.cfg, &err), SEAM_EINVAL);
    cr_expect_str_eq(err.text, "conf/x.json:7: plugins.moe.config.slotz: "
                               "unknown key; did you mean \"slots\"?");
    cr_expect_eq(seam_cfg_get(f.cfg, "slotz[1].k", SEAM_CFG_I64, &i),
                 SEAM_EINVAL);
    expect_has(logged(&f), "conf/x.json:8: plugins.moe.config.slotz[1]: is");
    fixture_release(&f);
}

Test(keypath, finds_lines_of_keys_and_elements)
{
    static const char text[] = "{ \"a\": {\n"
                               "  \"b\": \"x\\\"{[,:\",\n"
                               "  \"c\\u0064\": [ 1,\n"
                               "    { \"e\": [\n"
                               "[], \"s\" ] },\n"
                               "    3 ],\n"
                               "  \"x.y\": 1 },\n"
                               "  \"b\": 2 }\n";
    static const struct {
        const char *path;
        size_t line;
    } want[] = {
        { "a", 1 },
        { "a.b", 2 },
        { "a.cd", 3 },
        { "a.cd[0]", 3 },
        { "a.cd[1]", 4 },
        { "a.cd[1].e", 4 },
        { "a.cd[1].e[0]", 5 },
        { "a.cd[1].e[1]", 5 },
        { "a.cd[2]", 6 },
        { "a.x.y", 7 },
        { "b", 8 },
        { "a.c", 0 },
        { "a.cd[3]", 0 },
        { "a.cd[2].x", 0 },
        { "", 0 },
        { "a.b.x", 0 },
        { "c", 0 },
        { "[0]", 0 },
    };

    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        size_t line = seam_keypath_line(text, sizeof text - 1, want[i].path);

        cr_expect_eq(line, want[i].line, "%s: line %zu, expected %zu",
                     want[i].path, line, want[i].line);
    }
    cr_expect_eq(seam_keypath_line("[1,\n2]", 6, "[1]"), 2);
}

Test(keypath, names_the_place_before_an_offset)
{
    static const char text[] = "{\"a\": {\"b\": [1, {\"c\": 2}]}, \"d\": 3}";
    static const struct {
        const char *after, *path;
    } want[] = {
        { "{", "" },        { "\"a\"", "a" },           { "[", "a.b[0]" },
        { "[1", "a.b[0]" }, { "\"c\": 2", "a.b[1].c" }, { "\"d\"", "d" }
    };

    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        const char *p = strstr(text, want[i].after);
        struct seam_buf b = { 0 };

        seam_keypath_at(text, sizeof text - 1,
                        (size_t)(p - text) + strlen(want[i].after), &b);
        cr_expect_str_eq(b.p ? b.p : "", want[i].path);
        seam_buf_release(&b);
    }
}

Test(keypath, survives_what_is_not_json)
{
    static const char *const texts[] = { "\"",         "{\"",    "{\"a\\",
                                         "]]]{\"a\":", ",,,:",   "[,,[",
                                         "{,\"a\"",    "}{\"a\"" };
    char deep[400];

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct seam_buf b = { 0 };
        size_t n = strlen(texts[i]);
        char *exact = malloc(n); /* so that a byte beyond is an error */

        memcpy(exact, texts[i], n);
        seam_keypath_line(exact, n, "a.b");
        seam_keypath_at(exact, n, n, &b);
        seam_buf_release(&b);
        free(exact);
    }
    memset(deep, '[', sizeof deep);
    cr_expect_eq(seam_keypath_line(deep, sizeof deep, "a"), 0);
}

Test(keypath, suggests_what_was_meant)
{
    static const char *const known[] = { "model",
                                         "model.path",
                                         "model.max_context",
                                         "server",
                                         "server.listen",
                                         "plugins.moe.name",
                                         "plugins.parser.name",
                                         "log.level",
                                         NULL };

    cr_expect_str_eq(seam_keypath_nearest("model.max_contxt", known),
                     "model.max_context");
    cr_expect_str_eq(seam_keypath_nearest("model.listen", known),
                     "server.listen");
    cr_expect_str_eq(seam_keypath_nearest("listen", known), "server.listen");
    cr_expect_str_eq(seam_keypath_nearest("modle", known), "model");
    cr_expect_str_eq(seam_keypath_nearest("sever.listen", known),
                     "server.listen");
    cr_expect_str_eq(seam_keypath_nearest("plugins.meo.name", known),
                     "plugins.moe.name");
    cr_expect_null(seam_keypath_nearest("zzzz.qqqqqqqq", known));
}
