#include "tests/http/fixture.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/json.h"

#define NANO SEAM_TEST_SOURCE_DIR "/models/nano/w4a16"

static const char fixture_config[] =
    "{\"model\": {\"path\": \"%s/model\", \"name\": \"scripted\","
    "             \"max_context\": 4096},"
    " \"plugin_dir\": \"%s\", \"plugin_paths\": [\"%s\"],"
    " \"server\": {\"listen\": \"127.0.0.1:0\"},"
    " \"log\": {\"level\": \"debug\"},"
    " \"engine\": {\"threads\": 1, \"max_seqs\": 4, \"page_tokens\": 16,"
    "              \"max_step_tokens\": 256, \"cache_bytes\": 1048576},"
    " \"plugins\": {"
    "  \"backend\": {\"name\": \"script\", \"unpinned\": true,"
    "    \"file\": \"%s/script.so\", \"config\": {\"scripts\": [%s]%s}},"
    "  \"linear_attention\": {\"name\": \"null_linear\", \"unpinned\": true,"
    "    \"file\": \"%s/null_linear.so\"},"
    "  \"sparse_attention\": {\"name\": \"null_sparse\", \"unpinned\": true,"
    "    \"file\": \"%s/null_sparse.so\"},"
    "  \"moe\": {\"name\": \"null_moe\", \"unpinned\": true,"
    "    \"file\": \"%s/null_moe.so\"},"
    "  \"parser\": {\"name\": \"glm47\", \"unpinned\": true}}}";

static const struct {
    const char *text;
    int32_t id;
} TAGS[] = {
    { "\1", TOK_EOS },
    { "<think>", TOK_THINK },
    { "</think>", TOK_UNTHINK },
    { "<tool_call>", TOK_CALL },
    { "</tool_call>", TOK_UNCALL },
    { "<arg_key>", TOK_KEY },
    { "</arg_key>", TOK_UNKEY },
    { "<arg_value>", TOK_VALUE },
    { "</arg_value>", TOK_UNVALUE },
};

/* ---- The model's folder -------------------------------------------------- */

/* A byte in the vocabulary's spelling, as UTF-8. */
static void spell_byte(struct seam_buf *b, unsigned char c)
{
    uint32_t cp = c;
    char u[3];

    if (!((c >= 33 && c <= 126) || (c >= 161 && c <= 172) || c >= 174)) {
        cp = 256;
        for (unsigned i = 0; i < c; i++)
            if (!((i >= 33 && i <= 126) || (i >= 161 && i <= 172) || i >= 174))
                cp++;
    }
    if (cp < 128) {
        u[0] = (char)cp;
        seam_buf_add(b, u, 1);
    } else {
        u[0] = (char)(0xc0 | cp >> 6);
        u[1] = (char)(0x80 | (cp & 63));
        seam_buf_add(b, u, 2);
    }
}

int32_t fixture_piece(struct fixture *f, const char *p, size_t n)
{
    struct seam_buf spelled = { 0 };
    const char *known;
    int32_t id;

    for (size_t i = 0; i < sizeof TAGS / sizeof *TAGS; i++)
        if (strlen(TAGS[i].text) == n && !memcmp(TAGS[i].text, p, n))
            return TAGS[i].id;
    if (n == 1)
        return (unsigned char)*p;
    seam_buf_str(&spelled, ",\"");
    for (size_t i = 0; i < n; i++)
        spell_byte(&spelled, (unsigned char)p[i]);
    seam_buf_str(&spelled, "\":");
    known = strstr(f->vocab.p, spelled.p);
    if (known) {
        id = (int32_t)strtol(known + spelled.n, NULL, 10);
    } else {
        cr_assert_null(memchr(p, '"', n), "spell it as single bytes");
        id = f->next_id++;
        seam_buf_fmt(&f->vocab, "%s%d", spelled.p, id);
    }
    seam_buf_release(&spelled);
    cr_assert_lt(id, 6000);
    return id;
}

static void write_file(const char *dir, const char *name, const char *p,
                       size_t n)
{
    char path[256];
    FILE *out;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    out = fopen(path, "w");
    cr_assert_not_null(out, "%s", path);
    cr_assert_eq(fwrite(p, 1, n, out), n);
    cr_assert_eq(fclose(out), 0);
}

static void write_tokenizer(struct fixture *f, const char *dir)
{
    struct seam_error err;
    json_t *t = seam_json_file(NANO "/tokenizer.json", 16 << 20, &err), *vocab;
    char *text;

    cr_assert_not_null(t, "%s", err.text);
    seam_buf_str(&f->vocab, "}");
    vocab = json_loadb(f->vocab.p, f->vocab.n, 0, NULL);
    cr_assert_not_null(vocab, "%s", f->vocab.p);
    json_object_set_new(json_object_get(t, "model"), "vocab", vocab);
    json_object_set_new(json_object_get(t, "model"), "merges", json_array());
    text = json_dumps(t, JSON_COMPACT);
    write_file(dir, "tokenizer.json", text, strlen(text));
    free(text);
    json_decref(t);
}

static void make_model(struct fixture *f)
{
    char dir[128], from[512], to[512];
    struct dirent *e;
    DIR *d = opendir(NANO);

    cr_assert_not_null(d);
    snprintf(dir, sizeof dir, "%s/model", f->dir);
    cr_assert_eq(mkdir(dir, 0700), 0);
    while ((e = readdir(d))) {
        if (e->d_name[0] == '.' || !strcmp(e->d_name, "tokenizer.json"))
            continue;
        snprintf(from, sizeof from, "%s/%s", NANO, e->d_name);
        snprintf(to, sizeof to, "%s/%s", dir, e->d_name);
        cr_assert_eq(symlink(from, to), 0);
    }
    closedir(d);
    write_tokenizer(f, dir);
}

static void remove_dir(const char *dir)
{
    char path[512];
    struct dirent *e;
    DIR *d = opendir(dir);

    while (d && (e = readdir(d))) {
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        if (e->d_name[0] != '.' && unlink(path))
            remove_dir(path);
    }
    if (d)
        closedir(d);
    rmdir(dir);
}

/* ---- Scripts ------------------------------------------------------------- */

void fixture_init(struct fixture *f)
{
    memset(f, 0, sizeof *f);
    snprintf(f->dir, sizeof f->dir, "/tmp/seam-http-XXXXXX");
    cr_assert_not_null(mkdtemp(f->dir));
    f->gate[0] = f->gate[1] = f->trace[0] = f->trace[1] = -1;
    f->next_id = 256;
    for (int c = 0; c < 256; c++) {
        struct seam_buf one = { 0 };

        spell_byte(&one, (unsigned char)c);
        seam_buf_str(&f->vocab, c ? "," : "{");
        seam_buf_json(&f->vocab, one.p, one.n);
        seam_buf_fmt(&f->vocab, ":%d", c);
        seam_buf_release(&one);
    }
    cr_assert_eq(pipe2(f->log_pipe, O_CLOEXEC), 0);
    fcntl(f->log_pipe[1], F_SETPIPE_SZ, 1 << 20);
}

unsigned fixture_script(struct fixture *f, const int32_t *id, size_t n)
{
    seam_buf_str(&f->scripts, f->n_scripts ? ",[" : "[");
    for (size_t i = 0; i < n; i++)
        seam_buf_fmt(&f->scripts, "%s%d", i ? "," : "", id[i]);
    seam_buf_str(&f->scripts, "]");
    return ++f->n_scripts;
}

unsigned fixture_text(struct fixture *f, const char *text)
{
    int32_t id[8192];
    size_t n = 0;

    while (*text) {
        size_t len = 1;

        cr_assert_lt(n, sizeof id / sizeof *id);
        for (size_t i = 0; i < sizeof TAGS / sizeof *TAGS; i++)
            if (!strncmp(text, TAGS[i].text, strlen(TAGS[i].text)))
                len = strlen(TAGS[i].text);
        id[n++] = fixture_piece(f, text, len);
        text += len;
    }
    return fixture_script(f, id, n);
}

unsigned fixture_pieces(struct fixture *f, const char *pieces)
{
    int32_t id[1024];
    size_t n = 0;

    for (;;) {
        size_t len = strcspn(pieces, "|");

        cr_assert_lt(n, sizeof id / sizeof *id);
        if (len)
            id[n++] = fixture_piece(f, pieces, len);
        if (!pieces[len])
            break;
        pieces += len + 1;
    }
    return fixture_script(f, id, n);
}

void fixture_gate_steps(struct fixture *f)
{
    cr_assert_eq(pipe2(f->gate, O_CLOEXEC), 0);
}

void fixture_gate_tokens(struct fixture *f)
{
    cr_assert_eq(pipe2(f->gate, O_CLOEXEC), 0);
    f->gate_tokens = true;
}

void fixture_use_trace(struct fixture *f)
{
    cr_assert_eq(pipe2(f->trace, O_CLOEXEC), 0);
    fcntl(f->trace[1], F_SETPIPE_SZ, 1 << 20);
    fcntl(f->trace[1], F_SETFL, O_NONBLOCK);
}

/* ---- Life ---------------------------------------------------------------- */

void fixture_bind(struct fixture *f, const struct seam_flag *extra,
                  size_t n_extra, const char *script)
{
    static char *no_env[] = { NULL };
    const char *d = SCRIPT_PLUGIN_DIR;
    struct seam_buf text = { 0 }, more = { 0 };
    struct seam_error err;

    make_model(f);
    if (f->gate[0] >= 0)
        seam_buf_fmt(&more, ",\"%s\":%d",
                     f->gate_tokens ? "token_fd" : "gate_fd", f->gate[0]);
    if (f->trace[1] >= 0)
        seam_buf_fmt(&more, ",\"trace_fd\":%d", f->trace[1]);
    seam_buf_str(&more, script ? script : "");
    seam_buf_fmt(&text, fixture_config, f->dir, SEAM_TEST_PLUGIN_DIR, d, d,
                 f->scripts.p ? f->scripts.p : "", more.p, d, d, d);
    f->log = (struct seam_log){ .fd = f->log_pipe[1], .level = SEAM_LOG_DEBUG };
    cr_assert_eq(seam_config_parse(&f->config, "test.json", text.p, text.n,
                                   no_env, extra, n_extra, &err),
                 0, "%s", err.text);
    seam_buf_release(&text);
    seam_buf_release(&more);
    cr_assert_eq(seam_server_bind(&f->server, &f->config, &f->log, &err), 0,
                 "%s", err.text);
    f->url = seam_server_url(f->server);
}

void fixture_start(struct fixture *f)
{
    struct seam_engine_opts o = { .config = &f->config, .log = &f->log };
    struct seam_error err;

    cr_assert_eq(seam_engine_start(&f->engine, &o, &err), 0, "%s", err.text);
    cr_assert_eq(seam_server_start(f->server, f->engine, &err), 0);
    cr_assert_eq(seam_engine_wait_loaded(f->engine, -1, &err),
                 SEAM_ENGINE_READY, "%s", err.text);
}

void fixture_open(struct fixture *f, const char *text)
{
    fixture_init(f);
    fixture_text(f, text);
    fixture_bind(f, NULL, 0, NULL);
    fixture_start(f);
}

static void close_pipe(int fd[2])
{
    for (int i = 0; i < 2; i++)
        if (fd[i] >= 0)
            close(fd[i]);
}

void fixture_close(struct fixture *f)
{
    fixture_open_gate(f);
    seam_server_stop(f->server);
    if (f->engine) {
        seam_engine_stop(f->engine);
        seam_engine_free(f->engine);
    }
    seam_config_release(&f->config);
    close_pipe(f->gate);
    close_pipe(f->trace);
    close_pipe(f->log_pipe);
    seam_buf_release(&f->vocab);
    seam_buf_release(&f->scripts);
    seam_buf_release(&f->log_text);
    seam_buf_release(&f->trace_text);
    remove_dir(f->dir);
}

/* ---- Events -------------------------------------------------------------- */

void fixture_let(struct fixture *f, unsigned n)
{
    while (n--)
        cr_assert_eq(write(f->gate[1], "x", 1), 1);
}

void fixture_open_gate(struct fixture *f)
{
    if (f->gate[1] >= 0)
        close(f->gate[1]);
    f->gate[1] = -1;
}

/* Move what is in the pipe to text, waiting for it when wait is set. */
static void drain(int fd, struct seam_buf *text, bool wait)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };
    char part[8192];
    int rc = poll(&p, 1, wait ? CLIENT_PATIENCE_MS : 0);

    if (wait)
        cr_assert_eq(rc, 1, "nothing came for %d ms", CLIENT_PATIENCE_MS);
    while (rc > 0) {
        ssize_t n = read(fd, part, sizeof part);

        if (n <= 0)
            break;
        seam_buf_add(text, part, (size_t)n);
        rc = poll(&p, 1, 0);
    }
}

unsigned fixture_count_trace(struct fixture *f, const char *what)
{
    unsigned n = 0;

    drain(f->trace[0], &f->trace_text, false);
    for (const char *p = f->trace_text.p; p && *p;) {
        n += !strncmp(p, what, strlen(what));
        p = strchr(p, '\n');
        p += p ? 1 : 0;
    }
    return n;
}

void fixture_wait_trace(struct fixture *f, const char *what, unsigned n)
{
    while (fixture_count_trace(f, what) < n)
        drain(f->trace[0], &f->trace_text, true);
}

void fixture_take_log(struct fixture *f)
{
    drain(f->log_pipe[0], &f->log_text, false);
}

void fixture_wait_log(struct fixture *f, const char *text)
{
    fixture_take_log(f);
    while (!f->log_text.p || !strstr(f->log_text.p, text))
        drain(f->log_pipe[0], &f->log_text, true);
}

void fixture_alive(struct fixture *f, unsigned seed, const char *content)
{
    struct reply r;
    char body[256];

    client_get(f->url, "/health", &r);
    cr_assert_eq(r.status, 200, "%s", r.body.p);
    reply_release(&r);
    snprintf(body, sizeof body,
             "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],"
             "\"seed\":%u}",
             seed);
    client_post(f->url, "/v1/chat/completions", body, &r);
    cr_assert_eq(r.status, 200, "%s", r.body.p);
    cr_expect_str_eq(json_string_value(reply_at(&r, "choices", "0", "message",
                                                "content", NULL)),
                     content);
    reply_release(&r);
}
