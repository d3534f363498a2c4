#include "core/config/settings.h"

#include <string.h>

#include "core/base/num.h"
#include "core/config/config.h"

#define DAY_MS 86400000

const char *const seam_role_name[SEAM_N_ROLES] = {
    [SEAM_ROLE_BACKEND] = "backend",
    [SEAM_ROLE_LINEAR] = "linear_attention",
    [SEAM_ROLE_SPARSE] = "sparse_attention",
    [SEAM_ROLE_MOE] = "moe",
    [SEAM_ROLE_PARSER] = "parser",
};

const uint16_t seam_role_kind[SEAM_N_ROLES] = {
    [SEAM_ROLE_BACKEND] = SEAM_KIND_BACKEND,
    [SEAM_ROLE_LINEAR] = SEAM_KIND_ATTENTION,
    [SEAM_ROLE_SPARSE] = SEAM_KIND_ATTENTION,
    [SEAM_ROLE_MOE] = SEAM_KIND_MOE,
    [SEAM_ROLE_PARSER] = SEAM_KIND_PARSER,
};

static const char *const choices_metrics[] = { "auto", "yes", "no", NULL };
static const char *const choices_reasoning[] = { "reasoning_content",
                                                 "reasoning", "both", NULL };
static const char *const choices_dense[] = { "bf16", "int8", "int4", NULL };
static const char *const choices_level[] = { "debug", "info", "warn", "error",
                                             NULL };
static const char *const choices_format[] = { "text", "json", NULL };

/* HOST:PORT or [IPV6]:PORT.  Whether the host exists is for bind to say. */
static bool check_listen(const char *s)
{
    const char *colon = strrchr(s, ':');
    uint64_t port;

    if (!colon || colon == s || strlen(colon + 1) > 5 ||
        !seam_parse_u64(colon + 1, strlen(colon + 1), &port) || port > 65535)
        return false;
    if (s[0] == '[')
        return colon[-1] == ']' && colon - s > 2;
    return strchr(s, ':') == colon;
}

/* What can follow "Bearer " in a header, so that a key with a line break from
 * the end of a secret's file is an error and not a key that never fits. */
static bool check_key(const char *s)
{
    for (; *s; s++)
        if (*s <= ' ' || *s > '~')
            return false;
    return true;
}

static bool check_name(const char *s)
{
    size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789_");

    return s[n] == 0 && n < sizeof((struct seam_ident *)0)->name;
}

static bool check_sha256(const char *s)
{
    return strlen(s) == 64 && s[strspn(s, "0123456789abcdef")] == 0;
}

/* Each entry is its key and then members of struct seam_setting. */
#define AT(member) .offset = offsetof(struct seam_config, member)

// clang-format off
#define BOOL(member, preset_) \
    .type = SEAM_SETTING_BOOL, AT(member), .preset = (preset_)
#define INT(member, preset_, min_, max_) \
    .type = SEAM_SETTING_INT, AT(member), .preset = (preset_), \
    .min = (min_), .max = (max_)
#define STRING(member) .type = SEAM_SETTING_STRING, AT(member)
#define CHOICE(member, preset_, choices_) \
    .type = SEAM_SETTING_CHOICE, AT(member), .preset = (preset_), \
    .choices = (choices_)
#define STRINGS(member) \
    .type = SEAM_SETTING_STRINGS, AT(member), .preset = "[]"

#define SETTINGS_MODEL(S) \
S("model.path", STRING(model.path), .is_path = true, .flag = "--model", \
  .preset_words = "required", \
  .help = "folder of the checkpoint, as downloaded") \
S("model.name", STRING(model.name), .flag = "--name", \
  .preset_words = "the folder's name", \
  .help = "id of the model in the API") \
S("model.aliases", STRINGS(model.aliases), \
  .help = "further names that requests may use") \
S("model.accept_any_name", BOOL(model.accept_any_name, "false"), \
  .help = "serve requests that name any model") \
S("model.max_context", INT(model.max_context, "0", 0, INT32_MAX), \
  .flag = "--max-context", \
  .help = "tokens of one sequence; 0: as many as the model was made for")

#define SETTINGS_WEIGHTS(S) \
S("weights.dense", CHOICE(weights.dense, "bf16", choices_dense), \
  .help = "16-bit linear layers other than experts: as they are stored, or " \
          "quantised while loading")

#define SETTINGS_SERVER(S) \
S("server.listen", STRING(server.listen), .preset = "127.0.0.1:8080", \
  .check = check_listen, .flag = "--listen", \
  .expects = "HOST:PORT or [IPV6]:PORT, port 0 to 65535", \
  .help = "address to listen on; port 0: any free one") \
S("server.api_keys", STRINGS(server.api_keys), .is_secret = true, \
  .check = check_key, .expects = "printable ASCII without blanks", \
  .help = "keys, one of which each request must bring; none: open to all") \
S("server.admin_key", STRING(server.admin_key), .is_secret = true, \
  .check = check_key, .expects = "printable ASCII without blanks", \
  .preset_words = "no admin interface", \
  .help = "key of the admin interface, such as GET /v1/config") \
S("server.insecure", BOOL(server.insecure, "false"), .flag = "--insecure", \
  .help = "allow an address other than loopback without api_keys") \
S("server.max_connections", INT(server.max_connections, "64", 1, 65536), \
  .help = "connections served at the same time") \
S("server.max_body_bytes", \
  INT(server.max_body_bytes, "16777216", 1024, 1 << 30), \
  .help = "largest request body") \
S("server.body_timeout_ms", INT(server.body_timeout_ms, "30000", 1, DAY_MS), \
  .help = "time in which a request must have arrived") \
S("server.write_timeout_ms", \
  INT(server.write_timeout_ms, "30000", 1, DAY_MS), \
  .help = "time after which a client that does not read is dropped") \
S("server.drain_timeout_ms", \
  INT(server.drain_timeout_ms, "30000", 0, DAY_MS), \
  .help = "time that running requests get after SIGTERM") \
S("server.stall_timeout_ms", \
  INT(server.stall_timeout_ms, "60000", 1, DAY_MS), \
  .help = "time one step may take before /readyz reports failure") \
S("server.stall_abort_ms", INT(server.stall_abort_ms, "0", 0, DAY_MS), \
  .help = "time one step may take before the process ends itself, for who " \
          "starts it anew; 0: it waits") \
S("server.sse_ping_ms", INT(server.sse_ping_ms, "10000", 100, DAY_MS), \
  .help = "pause in a stream after which a comment keeps it alive") \
S("server.max_n", INT(server.max_n, "8", 1, 128), \
  .help = "most choices (n) of one request") \
S("server.priority_min", INT(server.priority_min, "0", -1000000, 0), \
  .help = "lowest priority number, which is served first, that requests may " \
          "ask for") \
S("server.priority_max", INT(server.priority_max, "1000000", 0, 1000000), \
  .help = "highest priority number that requests may ask for") \
S("server.cors_origins", STRINGS(server.cors_origins), \
  .help = "origins whose pages may call the API; \"*\": all") \
S("server.metrics_public", \
  CHOICE(server.metrics_public, "auto", choices_metrics), \
  .help = "/metrics without a key; auto: only on a loopback address") \
S("server.reasoning_field", \
  CHOICE(server.reasoning_field, "reasoning_content", choices_reasoning), \
  .help = "member of a message that carries the reasoning")

#define SETTINGS_ENGINE(S) \
S("engine.threads", INT(engine.threads, "0", 0, 1024), .flag = "--threads", \
  .help = "threads that compute; 0: one per physical core the process may " \
          "use") \
S("engine.pin_threads", \
  CHOICE(engine.pin_threads, "auto", choices_metrics), \
  .help = "bind them to cores; auto: if the process is confined to part of " \
          "the machine and has one for each core of it") \
S("engine.max_seqs", INT(engine.max_seqs, "16", 1, 4096), \
  .help = "sequences that are generated at the same time") \
S("engine.max_step_tokens", \
  INT(engine.max_step_tokens, "512", 1, 1 << 20), \
  .help = "tokens computed in one step; at least engine.max_seqs") \
S("engine.page_tokens", INT(engine.page_tokens, "64", 4, 4096), .step = 4, \
  .help = "tokens in one page of the cache") \
S("engine.cache_bytes", \
  INT(engine.cache_bytes, "1073741824", 1 << 20, INT64_C(1) << 46), \
  .help = "memory for the caches and states of all sequences") \
S("engine.max_queue", INT(engine.max_queue, "256", 1, 1000000), \
  .help = "requests that may wait; more are refused with status 429") \
S("engine.max_overtaken", INT(engine.max_overtaken, "64", 0, 1000000), \
  .help = "requests with a lower priority number that may be served before " \
          "one that came earlier; then it is as urgent as they; 0: any " \
          "number") \
S("engine.max_request_ms", INT(engine.max_request_ms, "0", 0, DAY_MS), \
  .help = "time from arrival to the end of an answer, then status 504; 0: no " \
          "limit") \
S("engine.grammar_bytes", \
  INT(engine.grammar_bytes, "67108864", 0, INT64_C(1) << 40), \
  .help = "memory for compiled grammars and their masks, kept for later " \
          "requests; 0: none") \
S("engine.prefix_bytes", \
  INT(engine.prefix_bytes, "268435456", 0, INT64_C(1) << 46), \
  .help = "memory for states that later prompts can go on from; 0: none") \
S("engine.prefix_interval", \
  INT(engine.prefix_interval, "2048", 0, 1 << 20), \
  .help = "tokens of a prompt after which such a state is kept; 0: only at " \
          "turns") \
S("engine.guard_bands", \
  CHOICE(engine.guard_bands, "auto", choices_metrics), \
  .help = "look after each step for writes past the memory that plugins were " \
          "granted; auto: in debug builds") \
S("engine.prefix_dir", STRING(engine.prefix_dir), .is_path = true, \
  .preset_words = "none", \
  .help = "folder where such states outlive the server, made when missing; " \
          "not with engine.prefix_bytes 0") \
S("engine.prefix_disk_bytes", \
  INT(engine.prefix_disk_bytes, "8589934592", 1 << 20, INT64_C(1) << 46), \
  .help = "size of the files in that folder") \
S("engine.trace", STRING(engine.trace), .is_path = true, .flag = "--trace", \
  .preset_words = "none", \
  .help = "file that receives a timeline of steps, plugins and requests, in " \
          "Chrome's trace format") \
S("log.level", CHOICE(log.level, "info", choices_level), \
  .flag = "--log-level", .help = "least severe messages that are written") \
S("log.format", CHOICE(log.format, "text", choices_format), \
  .help = "one line of text or one JSON object per message") \
S("plugin_dir", STRING(plugin_dir), .is_path = true, \
  .preset_words = "`plugins` beside the program", \
  .help = "folder in which plugins are found by file name") \
S("plugin_paths", STRINGS(plugin_paths), .is_path = true, \
  .help = "further folders that plugins may be loaded from by absolute path")

#define SETTINGS_PLUGIN(S, role, r) \
S("plugins." role ".name", STRING(plugin[r].name), \
  .check = check_name, .preset_words = "required", \
  .expects = "a name of a-z, 0-9 and _, at most 31 bytes", \
  .help = "name of the plugin, which its file must bear too") \
S("plugins." role ".file", STRING(plugin[r].file), \
  .preset_words = "NAME`.so`", \
  .help = "its file: a name in plugin_dir, or an absolute path") \
S("plugins." role ".sha256", STRING(plugin[r].sha256), \
  .check = check_sha256, .expects = "64 lower-case hexadecimal digits", \
  .preset_words = "required, unless unpinned", \
  .help = "checksum of the only file that is accepted") \
S("plugins." role ".unpinned", BOOL(plugin[r].unpinned, "false"), \
  .help = "accept any file of that name") \
S("plugins." role ".config", .type = SEAM_SETTING_OBJECT, \
  AT(plugin[r].config), .preset_words = "empty", \
  .help = "settings of the plugin itself; its documentation lists them")

#define SETTINGS(S) \
    SETTINGS_MODEL(S) SETTINGS_WEIGHTS(S) SETTINGS_SERVER(S) SETTINGS_ENGINE(S) \
    SETTINGS_PLUGIN(S, "backend", SEAM_ROLE_BACKEND) \
    SETTINGS_PLUGIN(S, "linear_attention", SEAM_ROLE_LINEAR) \
    SETTINGS_PLUGIN(S, "sparse_attention", SEAM_ROLE_SPARSE) \
    SETTINGS_PLUGIN(S, "moe", SEAM_ROLE_MOE) \
    SETTINGS_PLUGIN(S, "parser", SEAM_ROLE_PARSER)
// clang-format on

#define AS_SETTING(key_, ...) { .key = key_, __VA_ARGS__ },
#define AS_KEY(key_, ...)     key_,

const struct seam_setting seam_settings[] = { SETTINGS(AS_SETTING){ 0 } };
const char *const seam_setting_keys[] = { SETTINGS(AS_KEY) NULL };
const char *const seam_setting_paths[] = { SETTINGS(AS_KEY) "model",
                                           "weights",
                                           "server",
                                           "engine",
                                           "log",
                                           "plugins",
                                           "plugins.backend",
                                           "plugins.linear_attention",
                                           "plugins.sparse_attention",
                                           "plugins.moe",
                                           "plugins.parser",
                                           NULL };
const size_t seam_n_settings =
    sizeof seam_settings / sizeof seam_settings[0] - 1;

const struct seam_setting *seam_setting_find(const char *key)
{
    for (const struct seam_setting *s = seam_settings; s->key; s++)
        if (strcmp(s->key, key) == 0)
            return s;
    return NULL;
}

bool seam_setting_is_section(const char *path)
{
    size_t n = strlen(path);

    for (const struct seam_setting *s = seam_settings; s->key; s++)
        if (strncmp(s->key, path, n) == 0 && s->key[n] == '.')
            return true;
    return false;
}

const struct seam_setting *seam_setting_by_flag(const char *flag)
{
    for (const struct seam_setting *s = seam_settings; s->key; s++)
        if (s->flag && strcmp(s->flag, flag) == 0)
            return s;
    return NULL;
}

void seam_setting_env(const struct seam_setting *s,
                      char name[SEAM_SETTING_ENV_MAX])
{
    size_t n = 5;

    memcpy(name, "SEAM_", 5);
    for (const char *p = s->key; *p && n < SEAM_SETTING_ENV_MAX - 1; p++)
        name[n++] = *p == '.'                ? '_'
                    : *p >= 'a' && *p <= 'z' ? (char)(*p - 'a' + 'A')
                                             : *p;
    name[n] = 0;
}

void seam_setting_expects(const struct seam_setting *s, struct seam_buf *out)
{
    switch (s->type) {
    case SEAM_SETTING_BOOL:
        seam_buf_str(out, "true or false");
        break;
    case SEAM_SETTING_INT:
        seam_buf_fmt(out, "an integer from %lld to %lld", (long long)s->min,
                     (long long)s->max);
        if (s->step)
            seam_buf_fmt(out, ", a multiple of %lld", (long long)s->step);
        break;
    case SEAM_SETTING_STRING:
        seam_buf_str(out, s->expects ? s->expects : "a string, not empty");
        break;
    case SEAM_SETTING_CHOICE:
        seam_buf_str(out, "one of ");
        for (size_t i = 0; s->choices[i]; i++)
            seam_buf_fmt(out, "%s%s", i ? ", " : "", s->choices[i]);
        break;
    case SEAM_SETTING_STRINGS:
        seam_buf_fmt(out, "a list of strings, %s%s",
                     s->expects ? "each " : "none of them empty",
                     s->expects ? s->expects : "");
        break;
    case SEAM_SETTING_OBJECT:
        seam_buf_str(out, "an object");
        break;
    }
}
