/* seam check: runs the tests of core/check, each in a child with a time limit,
 * and reports what they find.
 *
 * A child writes one record to its pipe and ends: a letter (L finding, S cannot
 * be tested, F family), then the text.  Silence and status 0 mean success; any
 * other end is a finding in itself. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/base/json.h"
#include "core/base/num.h"
#include "core/check/hook.h"
#include "core/check/suite.h"
#include "core/cli/cli.h"
#include "core/loader/cpu.h"
#include "core/loader/ident.h"

enum { LIMIT_S = 120, TEXT = 1024 };

struct check_opts {
    const char *file, *reference, *config, *only;
    uint64_t seed, limit_s;
    bool json, in_process;
};

/* ---- In the child -------------------------------------------------------- */

/* The process runs one test; a plugin's calls come back without a context, and
 * a signal has none. */
static struct {
    int fd; /* of the pipe; -1: in the process itself                         */
    const struct ck_subject *s;
    struct th *h; /* the only host: a plugin keeps the one of its init        */
    const struct seam_plugin *loaded[2]; /* the plugin, its reference         */
} child = { .fd = -1 };

static _Noreturn void child_end(char kind, const char *text)
{
    char record[TEXT + 2];
    int n = snprintf(record, sizeof record, "%c%s", kind, text);
    ssize_t got;

    if (child.fd < 0) {
        printf("%s\n", text);
        exit(kind == 'S' ? 2 : 1);
    }
    if (n >= (int)sizeof record)
        n = sizeof record - 1;
    got = write(child.fd, record, (size_t)n);
    _exit(got == n ? 0 : 1);
}

_Noreturn void ck_fail(const char *label, const char *fmt, ...)
{
    char text[TEXT];
    int n = snprintf(text, sizeof text, "%-3s ", label);
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text + n, sizeof text - (size_t)n, fmt, ap);
    va_end(ap);
    child_end('L', text);
}

_Noreturn void ck_skip(const char *fmt, ...)
{
    char text[TEXT];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    child_end('S', text);
}

void ck_family(uint32_t family)
{
    char record[2] = { 'F', (char)('0' + family) };

    if (child.fd >= 0 && write(child.fd, record, 2) != 2)
        _exit(1);
}

const struct seam_plugin *th_plugin(struct th *h, const char *name)
{
    bool ref = !strcmp(name, CK_REFERENCE);
    const char *path = ref ? child.s->reference : child.s->path;
    const struct seam_plugin *p = child.loaded[ref];
    struct seam_error err = { 0 };
    void *dl;
    int rc;

    ck_own(!child.h || child.h == h, "a second host in one process");
    child.h = h;
    if (p)
        return p;
    dl = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    ck_require(ref ? "?" : "L6", dl, "%s", dlerror());
    p = dlsym(dl, "seam_plugin_entry");
    ck_require(ref ? "?" : "L7", p, "%s: no seam_plugin_entry", path);
    if (!ref)
        ck_own(!ck_hook_install(p, &err), "%s", err.text);
    rc = p->init(&h->host, &err);
    ck_require(ref ? "?" : "L9", !rc, "init failed with code %d: %s", rc,
               err.text);
    child.loaded[ref] = p;
    return p;
}

/* A write into a weight is a rule of its own. */
static void child_fault(int sig, siginfo_t *info, void *context)
{
    const struct th *h = child.h;
    const char *at = info->si_addr, *from = h ? h->arena : NULL;

    (void)context;
    if (sig == SIGSEGV && from && at >= from && at < from + h->arena_bytes)
        ck_fail("M4", "wrote into a weight");
    ck_fail("E6", "crashed: %s at %p", strsignal(sig), info->si_addr);
}

static void child_signals(void)
{
    static const int faults[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT };
    struct sigaction act = { .sa_sigaction = child_fault,
                             .sa_flags = SA_SIGINFO | SA_NODEFER };

    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigaction(faults[i], &act, NULL);
}

/* ---- One test ------------------------------------------------------------ */

enum { OK = 0, FINDING = 1, SKIPPED = 2, NOT_RUN = 3 };

struct result {
    int verdict;
    char label[8];
    char text[TEXT];
};

static void result_set(struct result *r, int verdict, const char *label,
                       const char *text)
{
    r->verdict = verdict;
    snprintf(r->label, sizeof r->label, "%s", label);
    snprintf(r->text, sizeof r->text, "%s", text);
}

/* All that the child says, until it ends or its time is over; false: over. */
static bool read_all(int fd, uint64_t limit_s, char *text, size_t room)
{
    struct timespec t0, t;
    size_t n = 0;

    clock_gettime(CLOCK_MONOTONIC, &t0);
    for (;;) {
        struct pollfd p = { .fd = fd, .events = POLLIN };
        int64_t left;
        ssize_t got;

        clock_gettime(CLOCK_MONOTONIC, &t);
        left = (int64_t)limit_s * 1000 - (t.tv_sec - t0.tv_sec) * 1000 -
               (t.tv_nsec - t0.tv_nsec) / 1000000;
        if (left <= 0)
            return false;
        if (poll(&p, 1, (int)(left > 1000000 ? 1000000 : left)) < 0 &&
            errno != EINTR)
            return false;
        if (!p.revents)
            continue;
        got = read(fd, text + n, room - n - 1);
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    text[n] = 0;
    return true;
}

/* The first line that a child has written to its standard streams, preferring a
 * sanitizer's summary. */
static void first_words(int fd, char *line, size_t room)
{
    char text[16384];
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    const char *at;

    text[n > 0 ? n : 0] = 0;
    at = strstr(text, "ERROR: ");
    if (!at)
        at = strstr(text, "runtime error: ");
    if (!at)
        at = strstr(text, "WARNING: ThreadSanitizer");
    if (!at)
        at = text;
    snprintf(line, room, "%.*s", (int)strcspn(at, "\n"), at);
}

static void run_child(const struct ck_test *t, struct ck_subject *s, int fd,
                      int out)
{
    child.fd = fd;
    child.s = s;
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    signal(SIGPIPE, SIG_IGN);
    child_signals();
    t->run(s);
    fflush(NULL);
    _exit(0);
}

static void result_judge(struct result *r, struct ck_subject *s, int status,
                         bool in_time, uint64_t limit_s, const char *said,
                         const char *printed)
{
    char text[TEXT + 64];

    if (*said == 'F') {
        s->family = (uint32_t)(said[1] - '0');
        said += 2;
    }
    if (!in_time) {
        snprintf(text, sizeof text, "hangs: no end after %llu s",
                 (unsigned long long)limit_s);
        result_set(r, FINDING, "E6", text);
    } else if (*said == 'L') {
        char label[8] = "";

        sscanf(said + 1, "%7s", label);
        result_set(r, FINDING, label, said + 5);
    } else if (*said == 'S') {
        result_set(r, SKIPPED, "", said + 1);
    } else if (WIFSIGNALED(status)) {
        snprintf(text, sizeof text, "crashed: %s. %s",
                 strsignal(WTERMSIG(status)), printed);
        result_set(r, FINDING, "E6", text);
    } else if (WEXITSTATUS(status)) {
        snprintf(text, sizeof text, "ended the process with status %d. %s",
                 WEXITSTATUS(status), printed);
        result_set(r, FINDING, "E6", text);
    } else if (*printed) {
        snprintf(text, sizeof text, "wrote to a standard stream: %s", printed);
        result_set(r, FINDING, "C3", text);
    } else {
        result_set(r, OK, "", "");
    }
}

static int run_test(const struct ck_test *t, struct ck_subject *s,
                    uint64_t limit_s, struct result *r, struct seam_error *err)
{
    int fd[2] = { -1, -1 }, out = memfd_create("check", MFD_CLOEXEC),
        status = 0;
    char said[TEXT + 8], printed[256];
    bool in_time;
    pid_t pid;
    int rc = 0;

    if (out < 0 || pipe2(fd, O_CLOEXEC)) {
        rc = seam_fail_errno(err, SEAM_ENOMEM, errno, "check");
        goto done;
    }
    fflush(NULL);
    pid = fork();
    if (pid < 0) {
        rc = seam_fail_errno(err, SEAM_ENOMEM, errno, "fork");
        goto done;
    }
    if (!pid) {
        setpgid(0, 0);
        close(fd[0]);
        run_child(t, s, fd[1], out);
    }
    close(fd[1]);
    fd[1] = -1;
    in_time = read_all(fd[0], limit_s, said, sizeof said);
    if (!in_time) {
        kill(pid, SIGKILL);
        *said = 0;
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    /* And whatever it left running. */
    kill(-pid, SIGKILL);
    first_words(out, printed, sizeof printed);
    result_judge(r, s, status, in_time, limit_s, said, printed);
done:
    if (fd[0] >= 0)
        close(fd[0]);
    if (fd[1] >= 0)
        close(fd[1]);
    if (out >= 0)
        close(out);
    return rc;
}

/* ---- Options ------------------------------------------------------------- */

/* NAME_ref for NAME and the other way round, in the same folder; NULL: there is
 * none. */
static char *twin_path(const char *path, const char *name)
{
    size_t n = strlen(name);
    bool is_ref = n > 4 && !strcmp(name + n - 4, "_ref");
    char *dir = strdup(path), *twin = NULL;

    if (!dir)
        return NULL;
    if (asprintf(&twin, "%s/%.*s%s.so", dirname(dir), (int)(is_ref ? n - 4 : n),
                 name, is_ref ? "" : "_ref") < 0)
        twin = NULL;
    free(dir);
    if (twin && access(twin, R_OK)) {
        free(twin);
        twin = NULL;
    }
    return twin;
}

/* JSON text given as it is, or in a file. */
static char *config_text(const char *arg, struct seam_error *err)
{
    json_t *v = *arg == '{'
                    ? seam_json_parse(arg, strlen(arg), "--config", 0, err)
                    : seam_json_file(arg, 1u << 20, err);
    char *text = NULL;

    if (!v)
        return NULL;
    if (!json_is_object(v))
        seam_fail(err, SEAM_EINVAL, "--config: expected an object");
    else if (!(text = json_dumps(v, 0)))
        seam_fail(err, SEAM_ENOMEM, "out of memory");
    json_decref(v);
    return text;
}

/* "G,state.accept": groups and tests. */
static bool wanted(const char *only, const struct ck_test *t)
{
    char full[64];

    if (!only)
        return true;
    snprintf(full, sizeof full, "%s.%s", t->group, t->name);
    for (const char *p = only; *p;) {
        size_t n = strcspn(p, ",");

        if ((n == strlen(t->group) && !strncmp(p, t->group, n)) ||
            (n == strlen(full) && !strncmp(p, full, n)))
            return true;
        p += n + (p[n] == ',');
    }
    return false;
}

static int opts_read(struct check_opts *o, int argc, char **argv)
{
    for (int i = 0; i < argc; i++) {
        const char *a = argv[i], *v = i + 1 < argc ? argv[i + 1] : NULL;
        const char **text = !strcmp(a, "--reference") ? &o->reference
                            : !strcmp(a, "--config")  ? &o->config
                            : !strcmp(a, "--only")    ? &o->only
                                                      : NULL;
        uint64_t *num = !strcmp(a, "--seed")    ? &o->seed
                        : !strcmp(a, "--limit") ? &o->limit_s
                                                : NULL;

        if (!strcmp(a, "--json")) {
            o->json = true;
        } else if (!strcmp(a, "--in-process")) {
            o->in_process = true;
        } else if (text || num) {
            if (!v)
                return seam_cli_usage("check", "a value is missing after", a);
            if (text)
                *text = v;
            else if (!seam_parse_u64(v, strlen(v), num))
                return seam_cli_usage("check", "expected a number, not", v);
            i++;
        } else if (*a == '-' || o->file) {
            return seam_cli_usage("check", "unexpected argument", a);
        } else {
            o->file = a;
        }
    }
    if (!o->file)
        return seam_cli_usage("check", "expected a plugin file, got", "");
    if (!o->limit_s)
        o->limit_s = LIMIT_S;
    return 0;
}

/* ---- Reporting ----------------------------------------------------------- */

static void report(const struct check_opts *o, const struct ck_test *t,
                   const struct result *r)
{
    static const char *const word[] = { "ok", "FAIL", "skip", "-" };
    char full[64];
    json_t *line;
    char *text;

    snprintf(full, sizeof full, "%s.%s", t->group, t->name);
    if (!o->json) {
        printf("%-4s %-18s %s%s%s", word[r->verdict], full, r->label,
               *r->label ? ": " : "", r->text);
        if (r->verdict == FINDING)
            printf(" (--only %s --seed %llu)", full,
                   (unsigned long long)o->seed);
        printf("\n");
        return;
    }
    line =
        json_pack("{s:s, s:s, s:s*, s:s*, s:I}", "test", full, "verdict",
                  word[r->verdict], "rule", *r->label ? r->label : NULL, "text",
                  *r->text ? r->text : NULL, "seed", (json_int_t)o->seed);
    text = line ? json_dumps(line, JSON_COMPACT) : NULL;
    printf("%s\n", text ? text : "{}");
    free(text);
    json_decref(line);
}

/* The family has to be known even when its test is not asked for. */
static bool is_probe(const struct ck_test *t)
{
    return t->run == ck_file_family;
}

static int run_here(const struct check_opts *o, struct ck_subject *s,
                    struct seam_error *err)
{
    const struct ck_test *one = NULL;
    uint32_t n = 0;

    for (size_t i = 0; i < ck_n_tests; i++)
        if ((ck_tests[i].kinds & CK_KIND(s->ident.kind)) &&
            wanted(o->only, &ck_tests[i])) {
            one = &ck_tests[i];
            n++;
        }
    if (n != 1)
        return seam_cli_usage("check",
                              "--in-process runs one test; name it with --only "
                              "GROUP.TEST, not",
                              o->only ? o->only : "");
    for (size_t i = 0; i < ck_n_tests; i++) {
        struct result r;

        if (!is_probe(&ck_tests[i]) || is_probe(one) ||
            !(ck_tests[i].kinds & CK_KIND(s->ident.kind)))
            continue;
        if (run_test(&ck_tests[i], s, o->limit_s, &r, err))
            return seam_cli_fail(err);
        if (!s->family) {
            report(o, &ck_tests[i], &r);
            return r.verdict == FINDING ? 1 : 2;
        }
    }
    child.s = s;
    one->run(s);
    printf("ok\n");
    return 0;
}

static int run_all(const struct check_opts *o, struct ck_subject *s,
                   struct seam_error *err)
{
    uint32_t n[4] = { 0 };
    const char *failed = NULL; /* group of the last finding */
    bool broken = false;       /* a basis has failed        */

    for (size_t i = 0; i < ck_n_tests; i++) {
        const struct ck_test *t = &ck_tests[i];
        struct result r = { 0 };
        bool shown = wanted(o->only, t);

        if (!(t->kinds & CK_KIND(s->ident.kind)) || (!shown && !is_probe(t)))
            continue;
        if (broken || (failed && !strcmp(failed, t->group) && !is_probe(t)))
            result_set(&r, NOT_RUN, "", "something before it has failed");
        else if (t->twin && !s->reference)
            result_set(&r, SKIPPED, "",
                       "no reference; give one with --reference");
        else if (run_test(t, s, o->limit_s, &r, err))
            return seam_cli_fail(err);
        if (r.verdict == FINDING) {
            failed = t->group;
            broken |= t->basis;
        }
        if (!shown && r.verdict != FINDING)
            continue;
        n[r.verdict]++;
        report(o, t, &r);
        /* Without a model nothing else can be tested. */
        if (is_probe(t) && !s->family && !broken)
            break;
    }
    if (!o->json)
        printf("%s: %u passed, %u failed, %u could not be tested\n",
               n[FINDING]   ? "does not conform"
               : n[SKIPPED] ? "not tested completely"
               : n[OK]      ? "conforms"
                            : "nothing was tested",
               n[OK], n[FINDING], n[SKIPPED]);
    return n[FINDING] ? 1 : n[SKIPPED] || !n[OK] ? 2 : 0;
}

int seam_cli_check(int argc, char **argv)
{
    struct check_opts o = { .seed = 1 };
    struct ck_subject s = { 0 };
    char *path = NULL, *twin = NULL, *config = NULL, *reference = NULL;
    struct seam_error err = { 0 };
    int rc = opts_read(&o, argc, argv);

    if (rc)
        return rc;
    path = realpath(o.file, NULL);
    if (!path) {
        seam_fail_errno(&err, SEAM_ENOENT, errno, "%s", o.file);
        rc = seam_cli_fail(&err) + 1;
        goto out;
    }
    if (seam_ident_read(path, &s.ident, &err)) {
        static const struct ck_test first = { .group = "file",
                                              .name = "ident" };
        struct result r;

        result_set(&r, FINDING, "L4", err.text);
        report(&o, &first, &r);
        rc = 1;
        goto out;
    }
    if (o.config && !(config = config_text(o.config, &err))) {
        rc = seam_cli_fail(&err) + 1;
        goto out;
    }
    if (s.ident.gpu[0] || s.ident.kind == SEAM_KIND_SPEC ||
        seam_cpu_check(s.ident.name, s.ident.cpu, &err)) {
        fprintf(stderr, "seam check: %s cannot be tested here: %s\n",
                s.ident.name,
                s.ident.gpu[0] ? "it needs a GPU"
                : *err.text    ? err.text
                               : "there are no tests for drafters yet");
        rc = 2;
        goto out;
    }
    if (o.reference) {
        reference = realpath(o.reference, NULL);
        if (!reference) {
            seam_fail_errno(&err, SEAM_ENOENT, errno, "%s", o.reference);
            rc = seam_cli_fail(&err) + 1;
            goto out;
        }
    } else {
        reference = twin_path(path, s.ident.name);
    }
    s.path = path;
    s.reference = reference;
    s.config = config;
    s.seed = o.seed;
    rc = o.in_process ? run_here(&o, &s, &err) : run_all(&o, &s, &err);
out:
    free(path);
    free(twin);
    free(config);
    free(reference);
    return rc;
}
