#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/config/config.h"
#include "core/config/settings.h"

/* What every configuration needs, on one line: tests put theirs before it. */
#define PLUGINS                                                              \
    "\"plugins\": {\"backend\": {\"name\": \"cpu\", \"unpinned\": true},"    \
    " \"linear_attention\": {\"name\": \"kda\", \"unpinned\": true},"        \
    " \"sparse_attention\": {\"name\": \"sparse_mla\", \"unpinned\": true}," \
    " \"moe\": {\"name\": \"moe_resident\", \"unpinned\": true},"            \
    " \"parser\": {\"name\": \"glm47\", \"unpinned\": true}}"
#define MODEL   "\"model\": {\"path\": \"m/nano\"}, "
#define MINIMAL "{" MODEL PLUGINS "}"

#define ENV(...)          \
    (char *[])            \
    {                     \
        __VA_ARGS__, NULL \
    }
#define NONE   \
    (char *[]) \
    {          \
        NULL   \
    }

static struct seam_config parsed_with(const char *text, char *const *env,
                                      const struct seam_flag *flag, size_t n)
{
    struct seam_error err = { 0 };
    struct seam_config c;

    cr_assert_eq(seam_config_parse(&c, "conf/x.json", text, strlen(text), env,
                                   flag, n, &err),
                 0, "%s: %s", text, err.text);
    return c;
}

static struct seam_config parsed(const char *text)
{
    return parsed_with(text, NONE, NULL, 0);
}

static void refused_with(const char *text, char *const *env,
                         const struct seam_flag *flag, size_t n,
                         const char *message)
{
    static const struct seam_config empty;
    struct seam_error err = { 0 };
    struct seam_config c;
    int rc;

    memset(&c, 0xa5, sizeof c);
    rc = seam_config_parse(&c, "conf/x.json", text, strlen(text), env, flag, n,
                           &err);
    cr_expect_eq(rc, SEAM_EDATA, "%s: rc %d", text, rc);
    cr_expect_str_eq(err.text, message);
    if (rc)
        cr_expect_eq(memcmp(&c, &empty, sizeof c), 0, "not left empty");
    else
        seam_config_release(&c);
}

static void refused(const char *text, const char *message)
{
    refused_with(text, NONE, NULL, 0, message);
}

static void refused_env(char *var, const char *message)
{
    refused_with(MINIMAL, ENV(var), NULL, 0, message);
}

static void refused_flag(const char *key, const char *value,
                         const char *message)
{
    struct seam_flag flag = { key, value };

    refused_with(MINIMAL, NONE, &flag, 1, message);
}

/* The line of seam_config_print for key. */
static void expect_printed(const struct seam_config *c, const char *line)
{
    struct seam_buf b = { 0 };
    size_t n = strlen(line);
    const char *p;
    bool found = false;

    seam_config_print(c, &b);
    cr_assert_not(b.failed);
    for (p = b.p; p && *p; p = strchr(p, '\n') + 1)
        if (strncmp(p, line, n) == 0 && p[n] == '\n')
            found = true;
    cr_expect(found, "no line \"%s\" in:\n%s", line, b.p);
    seam_buf_release(&b);
}

/* ---- Values -------------------------------------------------------------- */

Test(config, defaults_are_the_documented_ones)
{
    struct seam_config c = parsed(MINIMAL);

    cr_expect_str_eq(c.file, "conf/x.json");
    cr_expect_str_eq(c.model.name, "nano");
    cr_expect_eq(c.model.aliases.n, 0);
    cr_expect_not(c.model.accept_any_name);
    cr_expect_eq(c.model.max_context, 0);
    cr_expect_str_eq(c.server.listen, "127.0.0.1:8080");
    cr_expect_eq(c.server.api_keys.n, 0);
    cr_expect_null(c.server.admin_key);
    cr_expect_not(c.server.insecure);
    cr_expect_eq(c.server.max_connections, 64);
    cr_expect_eq(c.server.max_body_bytes, 16 << 20);
    cr_expect_eq(c.server.body_timeout_ms, 30000);
    cr_expect_eq(c.server.write_timeout_ms, 30000);
    cr_expect_eq(c.server.drain_timeout_ms, 30000);
    cr_expect_eq(c.server.stall_timeout_ms, 60000);
    cr_expect_eq(c.server.sse_ping_ms, 10000);
    cr_expect_eq(c.server.max_n, 8);
    cr_expect_eq(c.server.cors_origins.n, 0);
    cr_expect_str_eq(c.server.metrics_public, "auto");
    cr_expect_str_eq(c.server.reasoning_field, "reasoning_content");
    cr_expect_eq(c.engine.threads, 0);
    cr_expect_eq(c.engine.max_seqs, 16);
    cr_expect_eq(c.engine.max_step_tokens, 512);
    cr_expect_eq(c.engine.page_tokens, 64);
    cr_expect_eq(c.engine.cache_bytes, 1 << 30);
    cr_expect_eq(c.engine.max_queue, 256);
    cr_expect_str_eq(c.log.level, "info");
    cr_expect_str_eq(c.log.format, "text");
    cr_expect_eq(c.plugin_paths.n, 0);
    cr_expect_str_eq(c.plugin[SEAM_ROLE_MOE].file, "moe_resident.so");
    cr_expect_null(c.plugin[SEAM_ROLE_MOE].config);
    cr_expect_str_eq(c.plugin[SEAM_ROLE_MOE].where,
                     "conf/x.json: plugins.moe.config");
    seam_config_release(&c);
}

Test(config, plugin_dir_defaults_to_beside_the_program)
{
    struct seam_config c = parsed(MINIMAL);
    char exe[4096], want[4200];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);

    cr_assert(n > 0);
    exe[n] = 0;
    *strrchr(exe, '/') = 0;
    snprintf(want, sizeof want, "%s/plugins", exe);
    cr_expect_str_eq(c.plugin_dir, want);
    seam_config_release(&c);
}

Test(config, reads_every_section)
{
    static const char text[] =
        "{\"model\": {\"path\": \"/abs/m/\", \"name\": \"n\","
        "  \"aliases\": [\"a\", \"b\"], \"accept_any_name\": true,"
        "  \"max_context\": 4096},"
        " \"server\": {\"listen\": \"[::1]:0\", \"api_keys\": [\"k1\"],"
        "  \"admin_key\": \"adm\", \"insecure\": true, \"max_n\": 128,"
        "  \"cors_origins\": [\"*\"], \"metrics_public\": \"yes\","
        "  \"reasoning_field\": \"both\", \"drain_timeout_ms\": 0},"
        " \"engine\": {\"threads\": 3, \"page_tokens\": 4,"
        "  \"cache_bytes\": 70368744177664},"
        " \"log\": {\"level\": \"debug\", \"format\": \"json\"},"
        " \"plugin_dir\": \"p\", \"plugin_paths\": [\"q\", \"/r\"],"
        " \"plugins\": {"
        "  \"backend\": {\"name\": \"cpu\", \"file\": \"/x/y.so\","
        "   \"sha256\": \"0123456789abcdef0123456789abcdef"
        "0123456789abcdef0123456789abcdef\"},"
        "  \"linear_attention\": {\"name\": \"kda\", \"unpinned\": true},"
        "  \"sparse_attention\": {\"name\": \"m\", \"unpinned\": true},"
        "  \"moe\": {\"name\": \"e\", \"unpinned\": true,"
        "   \"config\": {\"slots\": 3}},"
        "  \"parser\": {\"name\": \"g\", \"unpinned\": true}}}";
    struct seam_config c = parsed(text);

    cr_expect_str_eq(c.model.path, "/abs/m/");
    cr_expect_str_eq(c.model.name, "n");
    cr_assert_eq(c.model.aliases.n, 2);
    cr_expect_str_eq(c.model.aliases.v[1], "b");
    cr_expect(c.model.accept_any_name);
    cr_expect_eq(c.model.max_context, 4096);
    cr_expect_str_eq(c.server.listen, "[::1]:0");
    cr_assert_eq(c.server.api_keys.n, 1);
    cr_expect_str_eq(c.server.api_keys.v[0], "k1");
    cr_expect_str_eq(c.server.admin_key, "adm");
    cr_expect(c.server.insecure);
    cr_expect_eq(c.server.max_n, 128);
    cr_expect_eq(c.server.drain_timeout_ms, 0);
    cr_expect_eq(c.engine.page_tokens, 4);
    cr_expect_eq(c.engine.cache_bytes, INT64_C(1) << 46);
    cr_expect_str_eq(c.log.format, "json");
    cr_expect_str_eq(c.plugin_dir, "conf/p");
    cr_expect_str_eq(c.plugin_paths.v[0], "conf/q");
    cr_expect_str_eq(c.plugin_paths.v[1], "/r");
    cr_expect_str_eq(c.plugin[SEAM_ROLE_BACKEND].file, "/x/y.so");
    cr_expect_not(c.plugin[SEAM_ROLE_BACKEND].unpinned);
    cr_expect_eq(json_integer_value(
                     json_object_get(c.plugin[SEAM_ROLE_MOE].config, "slots")),
                 3);
    seam_config_release(&c);
}

Test(config, relative_paths_start_at_the_file_or_at_the_working_directory)
{
    struct seam_flag flag = { "plugin_dir", "p" };
    struct seam_config c =
        parsed_with(MINIMAL, ENV("SEAM_PLUGIN_PATHS=q,/r"), &flag, 1);

    cr_expect_str_eq(c.model.path, "conf/m/nano");
    cr_expect_str_eq(c.plugin_dir, "p");
    cr_expect_str_eq(c.plugin_paths.v[0], "q");
    seam_config_release(&c);
}

Test(config, the_model_is_named_after_its_folder)
{
    static const struct {
        const char *path, *name;
    } want[] = {
        { "/a/b", "b" }, { "b//", "b" }, { "/", "model" }, { "a/b.c/", "b.c" }
    };
    char cwd[4096];
    struct seam_flag flag = { "--model", "." };
    struct seam_config c;

    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        flag.value = want[i].path;
        c = parsed_with(MINIMAL, NONE, &flag, 1);
        cr_expect_str_eq(c.model.name, want[i].name);
        seam_config_release(&c);
    }
    flag.value = ".";
    c = parsed_with(MINIMAL, NONE, &flag, 1);
    cr_assert_not_null(getcwd(cwd, sizeof cwd));
    cr_expect_str_eq(c.model.name, strrchr(cwd, '/') + 1);
    seam_config_release(&c);
}

/* ---- Precedence and origins ---------------------------------------------- */

Test(config, flag_beats_environment_beats_file_beats_default)
{
    static const char text[] =
        "{\n\"log\": {\n\"level\": \"warn\"},\n" MODEL PLUGINS "}";
    struct seam_flag flag = { "--log-level", "debug" };
    struct seam_flag set = { "log.level", "info" };
    struct seam_config c;

    c = parsed(MINIMAL);
    expect_printed(&c, "log.level = \"info\"   # default");
    seam_config_release(&c);
    c = parsed(text);
    expect_printed(&c, "log.level = \"warn\"   # file conf/x.json:3");
    seam_config_release(&c);
    c = parsed_with(text, ENV("HOME=/", "SEAM_LOG_LEVEL=error"), NULL, 0);
    expect_printed(&c, "log.level = \"error\"   # env SEAM_LOG_LEVEL");
    cr_expect_str_eq(c.log.level, "error");
    seam_config_release(&c);
    c = parsed_with(text, ENV("SEAM_LOG_LEVEL=error"), &flag, 1);
    expect_printed(&c, "log.level = \"debug\"   # flag --log-level");
    cr_expect_str_eq(c.log.level, "debug");
    seam_config_release(&c);
    c = parsed_with(text, ENV("SEAM_LOG_LEVEL=error"), &set, 1);
    expect_printed(&c, "log.level = \"info\"   # flag --set");
    seam_config_release(&c);
}

Test(config, an_overridden_value_is_checked_all_the_same)
{
    struct seam_flag flag = { "--log-level", "debug" };

    refused_with("{\"log\": {\"level\": \"loud\"}, " MODEL PLUGINS "}", NONE,
                 &flag, 1,
                 "conf/x.json:1: log.level: is \"loud\", expected one of "
                 "debug, info, warn, error");
}

Test(config, everything_can_come_without_a_file)
{
    struct seam_flag flag[] = {
        { "--model", "/m" },
        { "--insecure", NULL },
        { "plugins.backend.name", "cpu" },
        { "plugins.backend.unpinned", "true" },
        { "plugins.linear_attention.name", "kda" },
        { "plugins.linear_attention.unpinned", "true" },
        { "plugins.sparse_attention.name", "sparse_mla" },
        { "plugins.sparse_attention.unpinned", NULL },
        { "plugins.moe.name", "moe_ref" },
        { "plugins.moe.unpinned", "true" },
        { "plugins.moe.config", "{\"slots\": 2}" },
    };
    struct seam_error err = { 0 };
    struct seam_config c;
    int rc;

    rc = seam_config_load(&c, NULL,
                          ENV("SEAM_PLUGINS_PARSER_NAME=glm47",
                              "SEAM_PLUGINS_PARSER_UNPINNED=true",
                              "SEAM_PLUGINS_PARSER_CONFIG={}"),
                          flag, sizeof flag / sizeof flag[0], &err);
    cr_assert_eq(rc, 0, "%s", err.text);
    cr_expect_null(c.file);
    cr_expect(c.server.insecure);
    cr_expect_str_eq(c.plugin[SEAM_ROLE_PARSER].where,
                     "env SEAM_PLUGINS_PARSER_CONFIG: plugins.parser.config");
    expect_printed(&c, "plugins.moe.config = {\"slots\":2}   # flag --set");
    seam_config_release(&c);
    rc = seam_config_load(&c, NULL, NONE, flag, 1, &err);
    cr_expect_eq(rc, SEAM_EDATA);
    cr_expect_str_eq(err.text,
                     "configuration: plugins.backend.name: not set; each of "
                     "backend, linear_attention, sparse_attention, moe and "
                     "parser needs a plugin");
}

Test(config, one_part_is_swapped_by_one_value)
{
    struct seam_config c = parsed_with(
        MINIMAL, ENV("SEAM_PLUGINS_MOE_NAME=moe_resident_ref"), NULL, 0);

    cr_expect_str_eq(c.plugin[SEAM_ROLE_MOE].name, "moe_resident_ref");
    cr_expect_str_eq(c.plugin[SEAM_ROLE_MOE].file, "moe_resident_ref.so");
    seam_config_release(&c);
}

/* ---- Refusals: the file -------------------------------------------------- */

Test(config, unknown_keys_are_refused_with_line_and_nearest)
{
    refused("{\n\"model\": {\n\"path\": \"m\",\n\"max_contxt\": 4096}}",
            "conf/x.json:4: model.max_contxt: unknown key; did you mean "
            "\"model.max_context\"?");
    refused("{\"modle\": {}}",
            "conf/x.json:1: modle: unknown key; did you mean \"model\"?");
    refused("{\"qqqqqqqqqqqqqq\": 1}",
            "conf/x.json:1: qqqqqqqqqqqqqq: unknown key");
    refused("{\"server\": {}, \"\\u0073erverr\": {\"listen\": 1}}",
            "conf/x.json:1: serverr: unknown key; did you mean \"server\"?");
}

Test(config, known_keys_in_the_wrong_section_are_refused_with_the_right_one)
{
    refused("{\"model\": {\"listen\": \"127.0.0.1:1\"}}",
            "conf/x.json:1: model.listen: unknown key; did you mean "
            "\"server.listen\"?");
    refused("{\n\n\"threads\": 2}",
            "conf/x.json:3: threads: unknown key; did you mean "
            "\"engine.threads\"?");
}

Test(config, dotted_keys_are_refused)
{
    refused("{\"server.listen\": \"127.0.0.1:1\"}",
            "conf/x.json:1: \"server.listen\": unknown key; sections are "
            "written as nested objects");
    refused("{\"\": 1}", "conf/x.json:1: \"\": unknown key; sections are "
                         "written as nested objects");
}

Test(config, keys_given_twice_are_refused_with_both_lines)
{
    refused("{\"server\": {\n\"listen\": \"127.0.0.1:1\",\n\"max_n\": 1,\n"
            "\"listen\": \"127.0.0.1:2\"}}",
            "conf/x.json:4: server.listen: key given twice, first in line 2");
    refused("{\"server\": {},\n\"log\": {},\n\"s\\u0065rver\": {}}",
            "conf/x.json:3: server: key given twice, first in line 1");
    refused("{\"plugins\": {\"moe\": {\"config\": {\"l\": [{}, {\"a\": 1,\n"
            "\"a\": 2}]}}}}",
            "conf/x.json:2: plugins.moe.config.l[1].a: key given twice, first "
            "in line 1");
}

Test(config, other_types_are_refused)
{
    static const struct {
        const char *text, *message;
    } wrong[] = {
        { "[]", "conf/x.json: is a list, expected an object" },
        { "3", "conf/x.json: is an integer, expected an object" },
        { "{\"model\": 1}",
          "conf/x.json:1: model: is an integer, expected an object" },
        { "{\"plugins\": {\"moe\": \"moe_ref\"}}",
          "conf/x.json:1: plugins.moe: is a string, expected an object" },
        { "{\"model\": {\"path\": [\"m\"]}}",
          "conf/x.json:1: model.path: is a list, expected a string, "
          "not empty" },
        { "{\"model\": {\"path\": null}}",
          "conf/x.json:1: model.path: is null, expected a string, not empty" },
        { "{\"model\": {\"aliases\": \"a\"}}",
          "conf/x.json:1: model.aliases: is \"a\", expected a list of strings, "
          "none of them empty" },
        { "{\"model\": {\"aliases\": [\"a\", 2]}}",
          "conf/x.json:1: model.aliases: is 2, expected a list of strings, "
          "none of them empty" },
        { "{\"log\": {\"level\": true}}",
          "conf/x.json:1: log.level: is true, expected one of debug, info, "
          "warn, error" },
        { "{\"log\": {\"level\": \"INFO\"}}",
          "conf/x.json:1: log.level: is \"INFO\", expected one of debug, info, "
          "warn, error" },
        { "{\"log\": {\"level\": \"info\\u0000\"}}",
          "conf/x.json:1: log.level: is \"info?\", expected one of debug, "
          "info, warn, error" },
        { "{\"plugins\": {\"moe\": {\"config\": [1]}}}",
          "conf/x.json:1: plugins.moe.config: is a list, expected an object" },
        { "{\"plugins\": {\"moe\": {\"config\": {\"a\": [1,\nnull]}}}}",
          "conf/x.json:2: plugins.moe.config.a[1]: is null, expected a value "
          "or no such key" },
    };

    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        refused(wrong[i].text, wrong[i].message);
}

Test(config, integers_are_whole_and_in_range)
{
    static const struct {
        const char *value, *found;
    } wrong[] = {
        { "\"4k\"", "\"4k\"" },
        { "4096.5", "4096.5" },
        { "-1", "-1" },
        { "2147483648", "2147483648" },
        { "9223372036854775807", "9223372036854775807" },
        { "9223372036854775808", "9.2233720368547758e+18" },
        { "1e300", "1.0000000000000001e+300" },
        { "true", "true" },
        { "{}", "an object" },
        { "\"4096\"", "\"4096\"" },
    };
    struct seam_config c;

    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char text[256], message[256];

        snprintf(text, sizeof text, "{\n\"model\": {\"max_context\": %s}}",
                 wrong[i].value);
        snprintf(message, sizeof message,
                 "conf/x.json:2: model.max_context: is %s, expected an integer "
                 "from 0 to 2147483647",
                 wrong[i].found);
        refused(text, message);
    }
    refused("{\"engine\": {\"max_seqs\": 0}}",
            "conf/x.json:1: engine.max_seqs: is 0, expected an integer from 1 "
            "to 4096");
    refused("{\"engine\": {\"page_tokens\": 6}}",
            "conf/x.json:1: engine.page_tokens: is 6, expected an integer from "
            "4 to 4096, a multiple of 4");
    /* JSON has one kind of number. */
    c = parsed("{\"engine\": {\"threads\": 4.0}, " MODEL PLUGINS "}");
    cr_expect_eq(c.engine.threads, 4);
    seam_config_release(&c);
}

Test(config, every_integer_setting_has_its_limits)
{
    for (const struct seam_setting *s = seam_settings; s->key; s++) {
        const int64_t outside[] = { s->min - 1, s->max + 1, INT64_MIN,
                                    INT64_MAX };

        if (s->type != SEAM_SETTING_INT)
            continue;
        for (size_t i = 0; i < 4; i++) {
            char value[32], message[256];

            snprintf(value, sizeof value, "%lld", (long long)outside[i]);
            snprintf(message, sizeof message,
                     "flag --set: %s: is %s, expected an integer from %lld to "
                     "%lld%s",
                     s->key, value, (long long)s->min, (long long)s->max,
                     s->step ? ", a multiple of 4" : "");
            refused_flag(s->key, value, message);
        }
    }
}

Test(config, booleans_are_true_or_false)
{
    static const char *const words[] = { "no",    "off",  "0",    "1",
                                         "FALSE", "nope", "True", "" };

    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        char env[64], text[128], message[128];

        snprintf(env, sizeof env, "SEAM_SERVER_INSECURE=%s", words[i]);
        snprintf(message, sizeof message,
                 "env SEAM_SERVER_INSECURE: server.insecure: is \"%s\", "
                 "expected true or false",
                 words[i]);
        refused_env(env, message);
        snprintf(text, sizeof text, "{\"server\": {\"insecure\": \"%s\"}}",
                 words[i]);
        snprintf(message, sizeof message,
                 "conf/x.json:1: server.insecure: is \"%s\", expected true or "
                 "false",
                 words[i]);
        refused(text, message);
    }
    refused("{\"server\": {\"insecure\": 0}}",
            "conf/x.json:1: server.insecure: is 0, expected true or false");
}

Test(config, text_that_is_no_json_is_refused_with_line_and_column)
{
    struct seam_error err = { 0 };
    struct seam_config c;
    static const char secret[] =
        "{\"server\": {\n\"admin_key\": \"hunter2\" \"x\"}}";

    cr_expect_eq(seam_config_parse(&c, "conf/x.json", secret, strlen(secret),
                                   NONE, NULL, 0, &err),
                 SEAM_EDATA);
    cr_expect(strncmp(err.text, "conf/x.json:2:", 14) == 0, "%s", err.text);
    cr_expect_null(strstr(err.text, "hunter2"), "%s", err.text);
    cr_expect_neq(
        seam_config_parse(&c, "conf/x.json", "", 0, NONE, NULL, 0, &err), 0);
    cr_expect_neq(
        seam_config_parse(&c, "conf/x.json", "{} x", 4, NONE, NULL, 0, NULL),
        0);
}

Test(config, addresses_have_a_host_and_a_port)
{
    static const char *const bad[] = {
        "127.0.0.1", ":8080", "127.0.0.1:65536", "127.0.0.1:", "127.0.0.1:-1",
        "::1:8080",  "[]:80", "[::1]",           "[::1:80",    "h:80 "
    };
    static const char *const good[] = { "0.0.0.0:0", "[::]:65535",
                                        "localhost:80" };
    struct seam_flag flag = { "--listen", NULL };

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char message[160];

        snprintf(message, sizeof message,
                 "flag --listen: server.listen: is \"%s\", expected HOST:PORT "
                 "or [IPV6]:PORT, port 0 to 65535",
                 bad[i]);
        refused_flag("--listen", bad[i], message);
    }
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct seam_config c;

        flag.value = good[i];
        c = parsed_with(MINIMAL, NONE, &flag, 1);
        cr_expect_str_eq(c.server.listen, good[i]);
        seam_config_release(&c);
    }
}

/* ---- Refusals: plugins --------------------------------------------------- */

Test(config, an_unknown_role_is_refused)
{
    refused("{\"plugins\": {\n\"meo\": {\"name\": \"x\"}}}",
            "conf/x.json:2: plugins.meo: unknown key; did you mean "
            "\"plugins.moe\"?");
    refused("{\"plugins\": {\"moe\": {\"nmae\": \"x\"}}}",
            "conf/x.json:1: plugins.moe.nmae: unknown key; did you mean "
            "\"plugins.moe.name\"?");
}

Test(config, each_role_is_required)
{
    static const char *const roles[] = { "backend", "linear_attention",
                                         "sparse_attention", "moe", "parser" };

    for (size_t missing = 0; missing < 5; missing++) {
        char text[1024] = "{" MODEL "\"plugins\": {", message[256];
        size_t n = strlen(text);

        for (size_t i = 0; i < 5; i++)
            if (i != missing)
                n += (size_t)snprintf(
                    text + n, sizeof text - n,
                    "%s\"%s\": {\"name\": \"x\", \"unpinned\": true}",
                    text[n - 1] == '{' ? "" : ",", roles[i]);
        snprintf(text + n, sizeof text - n, "}}");
        snprintf(message, sizeof message,
                 "conf/x.json: plugins.%s.name: not set; each of backend, "
                 "linear_attention, sparse_attention, moe and parser needs a "
                 "plugin",
                 roles[missing]);
        refused(text, message);
    }
}

Test(config, exactly_one_of_pin_and_unpinned_is_required)
{
    static const char pin[] =
        "SEAM_PLUGINS_MOE_SHA256=0123456789abcdef0123456789abcdef"
        "0123456789abcdef0123456789abcdef";
    struct seam_flag off = { "plugins.moe.unpinned", "false" };
    struct seam_config c;
    char env[128];

    snprintf(env, sizeof env, "%s", pin);
    refused_env(env, "conf/x.json: plugins.moe: both sha256 and unpinned are "
                     "given, expected one of them");
    refused_flag("plugins.moe.unpinned", "false",
                 "conf/x.json: plugins.moe: not pinned; give its sha256, or "
                 "\"unpinned\": true to accept any file");
    c = parsed_with(MINIMAL, ENV(env), &off, 1);
    cr_expect_str_eq(c.plugin[SEAM_ROLE_MOE].sha256, strchr(pin, '=') + 1);
    seam_config_release(&c);
}

Test(config, a_pin_is_64_lower_case_hex_digits)
{
    static const char *const bad[] = {
        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde",
        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0",
        "0123456789ABCDEF0123456789abcdef0123456789abcdef0123456789abcdef",
        "g123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    };

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char message[256];

        snprintf(message, sizeof message,
                 "flag --set: plugins.moe.sha256: is \"%.64s%s\", expected 64 "
                 "lower-case hexadecimal digits",
                 bad[i], strlen(bad[i]) > 64 ? "..." : "");
        refused_flag("plugins.moe.sha256", bad[i], message);
    }
}

Test(config, plugin_names_are_those_a_plugin_can_have)
{
    static const char *const bad[] = { "Cpu", "a b", "../x", "a.so",
                                       "abcdefghijklmnopqrstuvwxyz012345" };
    struct seam_flag flag = { "plugins.moe.name",
                              "abcdefghijklmnopqrstuvwxyz_0123" };
    struct seam_config c = parsed_with(MINIMAL, NONE, &flag, 1);

    cr_expect_str_eq(c.plugin[SEAM_ROLE_MOE].name, flag.value);
    seam_config_release(&c);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char message[160];

        snprintf(message, sizeof message,
                 "flag --set: plugins.moe.name: is \"%s\", expected a name of "
                 "a-z, 0-9 and _, at most 31 bytes",
                 bad[i]);
        refused_flag("plugins.moe.name", bad[i], message);
    }
}

Test(config, plugin_blocks_report_file_and_line)
{
    static const char text[] =
        "{\n" MODEL "\"plugins\": {\n"
        "\"backend\": {\"name\": \"cpu\", \"unpinned\": true,\n"
        " \"config\": {\"slots\": 1,\n \"slotz\": 2}},\n"
        "\"linear_attention\": {\"name\": \"kda\", \"unpinned\": true},\n"
        "\"sparse_attention\": {\"name\": \"m\", \"unpinned\": true},\n"
        "\"moe\": {\"name\": \"e\", \"unpinned\": true},\n"
        "\"parser\": {\"name\": \"g\", \"unpinned\": true}}}";
    struct seam_error err = { 0 };
    struct seam_config c = parsed(text);
    struct seam_cfg *cfg = seam_config_plugin_cfg(&c, SEAM_ROLE_BACKEND, NULL);
    int64_t v = 0;

    cr_assert_not_null(cfg);
    cr_expect_eq(seam_cfg_get(cfg, "slots", SEAM_CFG_I64, &v), 0);
    cr_expect_eq(v, 1);
    cr_expect_eq(seam_cfg_check_used(cfg, &err), SEAM_EINVAL);
    cr_expect_str_eq(err.text, "conf/x.json:5: plugins.backend.config.slotz: "
                               "unknown key; did you mean \"slots\"?");
    seam_cfg_free(cfg);
    seam_config_release(&c);

    c = parsed_with(text, ENV("SEAM_PLUGINS_BACKEND_CONFIG={\"x\": 1}"), NULL,
                    0);
    cfg = seam_config_plugin_cfg(&c, SEAM_ROLE_BACKEND, NULL);
    cr_assert_not_null(cfg);
    cr_expect_eq(seam_cfg_check_used(cfg, &err), SEAM_EINVAL);
    cr_expect_str_eq(err.text, "env SEAM_PLUGINS_BACKEND_CONFIG: "
                               "plugins.backend.config.x: unknown key");
    seam_cfg_free(cfg);
    cfg = seam_config_plugin_cfg(&c, SEAM_ROLE_MOE, NULL);
    cr_assert_not_null(cfg);
    cr_expect_eq(seam_cfg_check_used(cfg, &err), 0);
    seam_cfg_free(cfg);
    seam_config_release(&c);
}

/* ---- Refusals: environment and command line ------------------------------ */

Test(config, unknown_seam_variables_are_refused_with_the_nearest)
{
    refused_env("SEAM_SERVER_LISTN=127.0.0.1:1",
                "env SEAM_SERVER_LISTN: names no setting; did you mean "
                "\"SEAM_SERVER_LISTEN\"?");
    refused_env("SEAM_LISTEN=127.0.0.1:1",
                "env SEAM_LISTEN: names no setting; did you mean "
                "\"SEAM_SERVER_LISTEN\"?");
    refused_env("SEAM_QQQQQQQQQQQQQQQQQ=1",
                "env SEAM_QQQQQQQQQQQQQQQQQ: names no setting, and SEAM_ is "
                "reserved for settings");
    refused_env("SEAM_server_listen=1",
                "env SEAM_server_listen: names no setting; did you mean "
                "\"SEAM_SERVER_LISTEN\"?");
    refused_with(MINIMAL, ENV("SEAM_LOG_LEVEL=info", "SEAM_LOG_LEVEL=debug"),
                 NULL, 0, "env SEAM_LOG_LEVEL: given twice");
}

Test(config, other_programs_variables_are_none_of_our_business)
{
    struct seam_config c = parsed_with(
        MINIMAL, ENV("SEAMLESS=1", "MY_SEAM_X=1", "seam_x=1", "SEAM=1"), NULL,
        0);

    seam_config_release(&c);
    c = parsed_with(MINIMAL, NULL, NULL, 0);
    seam_config_release(&c);
}

Test(config, environment_values_are_parsed_strictly)
{
    static const char *const bad[] = { "4k",  "+4",  " 4",   "4 ", "",
                                       "0x4", "4.0", "1025", "-1" };

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char env[64], message[160];
        bool number = strcmp(bad[i], "1025") == 0 || strcmp(bad[i], "-1") == 0;
        const char *quote = number ? "" : "\"";

        snprintf(env, sizeof env, "SEAM_ENGINE_THREADS=%s", bad[i]);
        snprintf(message, sizeof message,
                 "env SEAM_ENGINE_THREADS: engine.threads: is %s%s%s, expected "
                 "an integer from 0 to 1024",
                 quote, bad[i], quote);
        refused_env(env, message);
    }
    refused_env("SEAM_MODEL_PATH=",
                "env SEAM_MODEL_PATH: model.path: is \"\", expected a string, "
                "not empty");
    refused_env("SEAM_MODEL_PATH=a\nb",
                "env SEAM_MODEL_PATH: model.path: is \"a b\", expected a "
                "string, not empty");
    refused_env("SEAM_MODEL_PATH=\xff",
                "env SEAM_MODEL_PATH: model.path: is not UTF-8");
    refused_env("SEAM_PLUGINS_MOE_CONFIG=[1]",
                "env SEAM_PLUGINS_MOE_CONFIG: plugins.moe.config: is a list, "
                "expected an object");
    refused_env("SEAM_PLUGINS_MOE_CONFIG={\"a\": null}",
                "env SEAM_PLUGINS_MOE_CONFIG: plugins.moe.config.a: is null, "
                "expected a value or no such key");
}

Test(config, lists_outside_the_file_are_commas_or_json)
{
    static const struct {
        const char *value;
        size_t n;
        const char *last;
    } good[] = { { "a", 1, "a" },
                 { "a,b c", 2, "b c" },
                 { "[\"a,b\", \"c\"]", 2, "c" },
                 { "[]", 0, NULL } };
    static const char *const bad[] = {
        "", "a,", ",a", "a,,b", "[\"\"]", "[1]"
    };

    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct seam_flag flag = { "model.aliases", good[i].value };
        struct seam_config c = parsed_with(MINIMAL, NONE, &flag, 1);

        cr_assert_eq(c.model.aliases.n, good[i].n);
        if (good[i].n)
            cr_expect_str_eq(c.model.aliases.v[good[i].n - 1], good[i].last);
        seam_config_release(&c);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char message[160];

        snprintf(message, sizeof message,
                 "flag --set: model.aliases: is %s, expected a list of "
                 "strings, none of them empty",
                 strcmp(bad[i], "[1]") == 0 ? "1" : "\"\"");
        refused_flag("model.aliases", bad[i], message);
    }
    refused_flag("model.aliases", "[\"a\"", "flag --set:1:4: ']' expected");
}

Test(config, unknown_flags_are_refused_with_the_nearest)
{
    struct seam_flag twice[] = { { "--listen", "h:1" },
                                 { "server.listen", "h:2" } };

    refused_flag("--lisen", "h:1",
                 "flag --lisen: unknown; did you mean \"--listen\"?");
    refused_flag("server.listn", "h:1",
                 "flag --set: server.listn: unknown key; did you mean "
                 "\"server.listen\"?");
    refused_flag("server", "x",
                 "flag --set: server: is a section, expected a key in it");
    refused_flag(
        "plugins.moe.config.slots", "4",
        "flag --set: plugins.moe.config.slots: unknown key; did you mean "
        "\"plugins.moe.config\"?");
    refused_flag("--listen", NULL,
                 "flag --listen: server.listen: needs a "
                 "value");
    refused_with(MINIMAL, NONE, twice, 2,
                 "flag --set: server.listen: given twice on the command line");
}

/* ---- Refusals: what does not fit together -------------------------------- */

Test(config, a_model_is_required)
{
    refused("{" PLUGINS "}",
            "conf/x.json: model.path: not set; give the checkpoint's folder "
            "there, by SEAM_MODEL_PATH or by --model");
}

Test(config, a_step_holds_a_token_of_every_sequence)
{
    refused("{\"engine\": {\"max_seqs\": 20, \"max_step_tokens\": 19}, " MODEL
                PLUGINS "}",
            "conf/x.json: engine.max_step_tokens: is 19, expected at least "
            "engine.max_seqs, which is 20");
}

Test(config, a_folder_of_prefixes_needs_prefixes)
{
    refused("{\"engine\": {\"prefix_bytes\": 0, \"prefix_dir\": \"p\"}, " MODEL
                PLUGINS "}",
            "conf/x.json: engine.prefix_dir: is set, but nothing goes there "
            "while engine.prefix_bytes is 0; drop one of the two");
}

Test(config, no_client_is_an_administrator_by_accident)
{
    refused("{\"server\": {\"api_keys\": [\"sesame\", \"tahini\"], "
            "\"admin_key\": \"tahini\"}, " MODEL PLUGINS "}",
            "conf/x.json: server.admin_key: is one of server.api_keys, so "
            "that every client could swap plugins; choose another");
}

/* ---- Secrets ------------------------------------------------------------- */

Test(config, secrets_are_never_shown)
{
    static const char text[] =
        "{\"server\": {\"api_keys\": [\"sesame\", \"tahini\"],"
        " \"admin_key\": \"hunter2\"}, " MODEL PLUGINS "}";
    struct seam_config c = parsed(text);
    struct seam_buf b = { 0 };
    json_t *all = seam_config_json(&c);
    char *dump = json_dumps(all, 0);

    seam_config_print(&c, &b);
    expect_printed(&c, "server.api_keys = \"(set)\"   # file conf/x.json:1");
    expect_printed(&c, "server.admin_key = \"(set)\"   # file conf/x.json:1");
    cr_expect_null(strstr(b.p, "sesame"));
    cr_expect_null(strstr(b.p, "hunter2"));
    cr_expect_null(strstr(dump, "tahini"));
    cr_expect_null(strstr(dump, "hunter2"));
    free(dump);
    json_decref(all);
    seam_buf_release(&b);
    seam_config_release(&c);

    c = parsed(MINIMAL);
    expect_printed(&c, "server.api_keys = []   # default");
    expect_printed(&c, "server.admin_key = null   # default");
    seam_config_release(&c);
    refused_env("SEAM_SERVER_ADMIN_KEY=hunter2 ",
                "env SEAM_SERVER_ADMIN_KEY: server.admin_key: is a string "
                "(not shown), expected printable ASCII without blanks");
    refused_env("SEAM_SERVER_API_KEYS=",
                "env SEAM_SERVER_API_KEYS: server.api_keys: is a string "
                "(not shown), expected a list of strings, each printable "
                "ASCII without blanks");
    refused("{\"server\": {\"admin_key\": 4711}}",
            "conf/x.json:1: server.admin_key: is an integer (not shown), "
            "expected printable ASCII without blanks");
}

/* ---- Showing ------------------------------------------------------------- */

Test(config, json_lists_every_setting_in_table_order)
{
    struct seam_config c = parsed(MINIMAL);
    json_t *all = seam_config_json(&c);
    json_t *list = json_object_get(all, "settings");
    const char *const *keys = seam_setting_keys;
    size_t n = 0;

    for (; keys[n]; n++) {
        json_t *entry = json_array_get(list, n);

        cr_assert_str_eq(json_string_value(json_object_get(entry, "key")),
                         keys[n]);
        cr_expect_not_null(json_object_get(entry, "value"));
        cr_expect(json_is_string(json_object_get(entry, "origin")));
    }
    cr_expect_eq(json_array_size(list), n);
    json_decref(all);
    seam_config_release(&c);
}

Test(config, what_it_prints_for_the_plugin_blocks_is_a_copy)
{
    struct seam_config c = parsed_with(
        MINIMAL, ENV("SEAM_PLUGINS_MOE_CONFIG={\"slots\": 3}"), NULL, 0);
    json_t *all = seam_config_json(&c);

    json_object_clear(json_object_get(
        json_array_get(json_object_get(all, "settings"), 0), "value"));
    json_decref(all);
    expect_printed(&c, "plugins.moe.config = {\"slots\":3}   # env "
                       "SEAM_PLUGINS_MOE_CONFIG");
    seam_config_release(&c);
}

/* ---- The table ----------------------------------------------------------- */

Test(settings, table_is_consistent)
{
    size_t n = 0;

    for (const struct seam_setting *s = seam_settings; s->key; s++, n++) {
        char env[SEAM_SETTING_ENV_MAX], other[SEAM_SETTING_ENV_MAX];

        cr_expect_str_eq(seam_setting_keys[n], s->key);
        cr_expect_str_eq(seam_setting_paths[n], s->key);
        cr_expect(s->help && *s->help, "%s", s->key);
        cr_expect(s->preset || s->preset_words, "%s: no default", s->key);
        cr_expect_lt(strlen(s->key) + 6, SEAM_SETTING_ENV_MAX);
        seam_setting_env(s, env);
        for (const struct seam_setting *t = seam_settings; t < s; t++) {
            seam_setting_env(t, other);
            cr_expect_str_neq(env, other);
            cr_expect_str_neq(s->key, t->key);
            cr_expect_neq(s->offset, t->offset, "%s, %s", s->key, t->key);
            cr_expect(!s->flag || !t->flag || strcmp(s->flag, t->flag));
        }
        if (s->flag) {
            bool is_switch = false;

            cr_expect_str_eq(seam_config_flag_key(s->flag, &is_switch), s->key);
            cr_expect_eq(is_switch, s->type == SEAM_SETTING_BOOL);
        }
    }
    cr_expect_eq(n, seam_n_settings);
    cr_expect_null(seam_setting_keys[n]);
    cr_expect_null(seam_config_flag_key("--nonsense", NULL));
    for (size_t i = n; seam_setting_paths[i]; i++)
        cr_expect(seam_setting_is_section(seam_setting_paths[i]), "%s",
                  seam_setting_paths[i]);
    for (const struct seam_setting *s = seam_settings; s->key; s++)
        for (const char *dot = strchr(s->key, '.'); dot;
             dot = strchr(dot + 1, '.')) {
            bool listed = false;

            for (size_t i = n; seam_setting_paths[i]; i++)
                if (strncmp(seam_setting_paths[i], s->key,
                            (size_t)(dot - s->key)) == 0 &&
                    !seam_setting_paths[i][dot - s->key])
                    listed = true;
            cr_expect(listed, "section of %s is not listed", s->key);
        }
}

/* Its row of the table in docs/configuration.md, with the line break. */
static void setting_row(const struct seam_setting *s, struct seam_buf *out)
{
    char env[SEAM_SETTING_ENV_MAX];

    seam_setting_env(s, env);
    seam_buf_fmt(out, "| `%s` | ", s->key);
    seam_setting_expects(s, out);
    if (s->preset)
        seam_buf_fmt(out, " | `%s` | `%s`", s->preset, env);
    else
        seam_buf_fmt(out, " | %s | `%s`", s->preset_words, env);
    if (s->flag)
        seam_buf_fmt(out, ", `%s`", s->flag);
    seam_buf_fmt(out, " | %s |\n", s->help);
}

Test(settings, the_document_has_every_setting_as_the_table_has_it)
{
    struct seam_error err = { 0 };
    char *text = NULL;
    uint64_t n = 0;

    cr_assert_eq(seam_file_read(SEAM_TEST_SOURCE_DIR "/docs/configuration.md",
                                1 << 20, &text, &n, &err),
                 0, "%s", err.text);
    for (const struct seam_setting *s = seam_settings; s->key; s++) {
        struct seam_buf row = { 0 };

        setting_row(s, &row);
        cr_expect(strstr(text, row.p),
                  "docs/configuration.md lacks the line\n%s", row.p);
        seam_buf_release(&row);
    }
    free(text);
}

/* ---- Files --------------------------------------------------------------- */

static struct seam_config loaded(const char *file)
{
    struct seam_error err = { 0 };
    struct seam_config c;

    cr_assert_eq(seam_config_load(&c, file, NONE, NULL, 0, &err), 0, "%s",
                 err.text);
    return c;
}

Test(config, the_files_we_ship_are_valid)
{
    static const struct {
        const char *file, *path, *moe;
    } shipped[] = {
        { "conf/nano.json", "conf/../models/nano/w4a16", "moe_resident" },
        { "conf/nano-ref.json", "conf/../models/nano/bf16",
          "moe_resident_ref" },
        { "conf/glm-5.3-flash.json", "/models/GLM-5.3-Flash-W4A16-AutoRound",
          "moe_resident" },
    };

    cr_assert_eq(chdir(SEAM_TEST_SOURCE_DIR), 0);
    for (size_t i = 0; i < sizeof shipped / sizeof shipped[0]; i++) {
        struct seam_config c = loaded(shipped[i].file);

        cr_expect_str_eq(c.model.path, shipped[i].path);
        cr_expect_str_eq(c.plugin[SEAM_ROLE_MOE].name, shipped[i].moe);
        if (c.model.path[0] != '/')
            cr_expect_eq(access(c.model.path, R_OK), 0, "%s", c.model.path);
        seam_config_release(&c);
    }
}

Test(config, a_file_that_cannot_be_read_is_named)
{
    char dir[] = "/tmp/seam-config-XXXXXX", path[64];
    struct seam_error err = { 0 };
    struct seam_config c;
    FILE *f;

    cr_assert_not_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/absent.json", dir);
    cr_expect_eq(seam_config_load(&c, path, NONE, NULL, 0, &err), SEAM_ENOENT);
    cr_expect(strstr(err.text, path), "%s", err.text);
    cr_expect_neq(seam_config_load(&c, dir, NONE, NULL, 0, &err), 0);
    cr_expect(strstr(err.text, "directory"), "%s", err.text);
    snprintf(path, sizeof path, "%s/big.json", dir);
    f = fopen(path, "w");
    cr_assert_not_null(f);
    fputs("{}", f);
    cr_expect_eq(ftruncate(fileno(f), 2 << 20), 0);
    fclose(f);
    cr_expect_eq(seam_config_load(&c, path, NONE, NULL, 0, &err), SEAM_EDATA);
    cr_expect(strstr(err.text, "1048576"), "%s", err.text);
    seam_config_release(&c);
    unlink(path);
    rmdir(dir);
}
