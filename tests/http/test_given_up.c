/* Workers run short between the moment when a worker reads a request and the
 * one when it is known whose it is: the moment is held, so that the race is
 * lost each time. */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <poll.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>

#include "tests/http/collect.h"
#include "tests/http/fixture.h"

#define SILENT 40 /* more than there are workers */

/* What begins like this is held after it was read until its connection has been
 * given up.  Set once, before the server starts. */
static struct {
    const char *begins;
    sem_t held;
    _Atomic unsigned judged;
} hold;

/* CivetWeb's recv, and everybody's. */
ssize_t recv(int fd, void *p, size_t n, int flags);
ssize_t recv(int fd, void *p, size_t n, int flags)
{
    static ssize_t (*_Atomic next)(int, void *, size_t, int);
    ssize_t (*call)(int, void *, size_t, int) = atomic_load(&next);
    struct pollfd up = { .fd = fd, .events = POLLRDHUP };
    ssize_t done;
    size_t len = hold.begins ? strlen(hold.begins) : 0;

    if (!call) {
        *(void **)&call = dlsym(RTLD_NEXT, "recv");
        atomic_store(&next, call);
    }
    done = call(fd, p, n, flags);
    if (!len || done < (ssize_t)len || memcmp(p, hold.begins, len))
        return done;
    sem_post(&hold.held);
    if (poll(&up, 1, CLIENT_PATIENCE_MS) == 1)
        atomic_fetch_add(&hold.judged, 1);
    return done;
}

static void open_short(struct fixture *f, const char *begins)
{
    static const struct seam_flag flags[] = {
        { "server.max_connections", "4" },
        { "server.body_timeout_ms", "20000" },
    };

    sem_init(&hold.held, 0, 0);
    hold.begins = begins;
    fixture_init(f);
    fixture_text(f, "</think>ok\1");
    fixture_bind(f, flags, 2, NULL);
    fixture_start(f);
}

/* The request is held: whatever comes now is younger. */
static void crowd(struct fixture *f, struct client *c)
{
    while (sem_wait(&hold.held))
        ;
    for (int i = 0; i < SILENT; i++)
        client_open(&c[i], f->url);
}

static void judged(struct fixture *f, struct client *c)
{
    cr_expect_eq(atomic_load(&hold.judged), 1, "it was not given up");
    for (int i = 0; i < SILENT; i++)
        client_close(&c[i]);
    fixture_close(f);
}

Test(given_up, a_health_check_is_answered)
{
    struct fixture f;
    struct client c[SILENT], probe;
    struct reply r;
    char v[32];

    open_short(&f, "GET /health");
    client_open(&probe, f.url);
    client_puts(&probe, "GET /health HTTP/1.1\r\nHost: t\r\n\r\n");
    crowd(&f, c);
    cr_assert(client_reply(&probe, &r), "no answer");
    cr_expect_eq(r.status, 200);
    cr_expect_str_eq(reply_header(&r, "Connection", v, sizeof v), "close");
    cr_expect(client_closed(&probe));
    reply_release(&r);
    client_close(&probe);
    judged(&f, c);
}

Test(given_up, a_request_whose_connection_was_kept_is_answered)
{
    struct fixture f;
    struct client c[SILENT], probe;
    struct reply r;

    open_short(&f, "GET /livez");
    client_open(&probe, f.url);
    client_puts(&probe, "GET /health HTTP/1.1\r\nHost: t\r\n\r\n");
    cr_assert(client_reply(&probe, &r), "no answer");
    reply_release(&r);
    client_puts(&probe, "GET /livez HTTP/1.1\r\nHost: t\r\n\r\n");
    crowd(&f, c);
    cr_assert(client_reply(&probe, &r), "no answer");
    cr_expect_eq(r.status, 200);
    reply_release(&r);
    client_close(&probe);
    judged(&f, c);
}

/* Its client has not left, though nothing more is read from it. */
Test(given_up, a_stream_is_answered_to_its_end)
{
    struct fixture f;
    struct client c[SILENT], probe;
    struct reply r;
    struct seam_buf event = { 0 };
    char body[512];
    bool done = false;

    open_short(&f, "POST /v1/chat");
    client_open(&probe, f.url);
    client_put_post(&probe, "/v1/chat/completions",
                    ask(body, sizeof body, 1, "\"stream\":true"));
    crowd(&f, c);
    client_stream(&probe, &r);
    while (client_event(&probe, &event, NULL))
        done = !strcmp(event.p, "data: [DONE]");
    cr_expect(done, "the stream was cut after %s", event.p);
    seam_buf_release(&event);
    reply_release(&r);
    client_close(&probe);
    judged(&f, c);
}
