#include "core/server/frame.h"

#include <civetweb.h>
#include <string.h>
#include <strings.h>

#include "core/base/num.h"

static int frame_bad(struct seam_api_error *e, const char *what)
{
    return seam_api_fail(e, 400, "invalid_framing", NULL, "%s", what);
}

static bool frame_token_char(unsigned char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
           (c >= 'a' && c <= 'z') || (c && strchr("!#$%&'*+-.^_`|~", c));
}

/* CivetWeb ends each part of the head with a NUL where a separator was.  Laid
 * end to end the parts must cover the head: any other separator than one blank,
 * a colon or CR LF shows as a gap or an overlap. */
static int frame_tiles(const struct mg_request_info *ri, const char *base,
                       struct seam_api_error *e)
{
    const char *limit = base + SEAM_HEAD_BUFFER;
    const char *p = ri->request_uri;

    if (ri->request_method != base)
        return frame_bad(e, "the request begins with white space");
    if (p != base + strlen(ri->request_method) + 1)
        return frame_bad(e, "malformed request line");
    p += strlen(p);
    if (ri->query_string) {
        if (ri->query_string != p + 1)
            return frame_bad(e, "malformed request line");
        p = ri->query_string + strlen(ri->query_string);
    }
    if (ri->http_version != p + 1 + strlen("HTTP/"))
        return frame_bad(e, "malformed request line");
    p = ri->http_version + strlen(ri->http_version);
    if (!ri->num_headers)
        return 0; /* HTTP/1.0; 1.1 needs a Host */
    for (int i = 0; i < ri->num_headers; i++) {
        const struct mg_header *h = &ri->http_headers[i];
        const char *colon = h->name + strlen(h->name);

        if (h->name != p + 2)
            return frame_bad(e, "a line of the head does not end in CR LF");
        for (const char *c = h->name; c < colon; c++)
            if (!frame_token_char((unsigned char)*c))
                return frame_bad(e, "a header name holds a character that "
                                    "names cannot hold");
        for (const char *c = colon + 1; c < h->value; c++)
            if (!*c)
                return frame_bad(e, "white space before the colon of a header");
        p = h->value + strlen(h->value);
    }
    if (p + 3 >= limit || p + 4 - base > SEAM_HEAD_MAX)
        return seam_api_fail(e, 431, "headers_too_large", NULL,
                             "the request head is longer than %d bytes",
                             SEAM_HEAD_MAX);
    if (ri->num_headers >= MG_MAX_HEADERS)
        return seam_api_fail(e, 431, "headers_too_large", NULL,
                             "more than %d headers", MG_MAX_HEADERS - 1);
    if (p[1] || p[2] != '\r' || p[3])
        return frame_bad(e, "malformed header line");
    return 0;
}

const char *seam_frame_header(const struct mg_request_info *ri,
                              const char *name, char *out, size_t cap)
{
    for (int i = 0; i < ri->num_headers; i++) {
        const char *v = ri->http_headers[i].value;
        size_t n;

        if (strcasecmp(ri->http_headers[i].name, name))
            continue;
        n = strlen(v);
        while (n && (v[n - 1] == ' ' || v[n - 1] == '\t'))
            n--;
        if (n >= cap)
            return NULL;
        memcpy(out, v, n);
        out[n] = 0;
        return out;
    }
    return NULL;
}

bool seam_frame_has_token(const char *list, const char *token)
{
    size_t want = strlen(token);

    while (list && *list) {
        size_t n;

        list += strspn(list, " \t,");
        n = strcspn(list, " \t,");
        if (n == want && !strncasecmp(list, token, n))
            return true;
        list += n;
    }
    return false;
}

uint32_t seam_frame_count(const struct mg_request_info *ri, const char *name)
{
    uint32_t n = 0;

    for (int i = 0; i < ri->num_headers; i++)
        n += !strcasecmp(ri->http_headers[i].name, name);
    return n;
}

static int frame_length(const struct mg_request_info *ri, struct seam_frame *f,
                        struct seam_api_error *e)
{
    uint32_t lengths = seam_frame_count(ri, "Content-Length");
    uint32_t codings = seam_frame_count(ri, "Transfer-Encoding");
    char value[64];

    if (lengths && codings)
        return frame_bad(e, "both Content-Length and Transfer-Encoding");
    if (lengths > 1 || codings > 1)
        return frame_bad(e, "Content-Length or Transfer-Encoding given twice");
    if (codings) {
        if (!seam_frame_header(ri, "Transfer-Encoding", value, sizeof value) ||
            strcasecmp(value, "chunked"))
            return frame_bad(e, "Transfer-Encoding must be chunked");
        if (!strcmp(ri->http_version, "1.0"))
            return frame_bad(e, "HTTP/1.0 has no Transfer-Encoding");
        f->chunked = f->has_body = true;
    } else if (lengths) {
        if (!seam_frame_header(ri, "Content-Length", value, sizeof value) ||
            !*value || strspn(value, "0123456789") != strlen(value))
            return frame_bad(e, "Content-Length must be decimal digits");
        if (!seam_parse_u64(value, strlen(value), &f->length))
            f->length = UINT64_MAX; /* above any limit */
        f->has_body = f->length > 0;
    }
    return 0;
}

int seam_frame_check(const struct mg_request_info *ri, const char *base,
                     struct seam_frame *f, struct seam_api_error *e)
{
    bool old = !strcmp(ri->http_version, "1.0");
    char value[256];
    uint32_t hosts;

    *f = (struct seam_frame){ 0 };
    if (frame_tiles(ri, base, e) || frame_length(ri, f, e))
        return -1;
    hosts = seam_frame_count(ri, "Host");
    if (hosts > 1 || (!hosts && !old))
        return frame_bad(e, hosts ? "Host given twice" : "no Host header");
    /* CivetWeb decides by the same rule. */
    if (seam_frame_count(ri, "Connection"))
        f->keep_alive = seam_frame_has_token(
            seam_frame_header(ri, "Connection", value, sizeof value),
            "keep-alive");
    else
        f->keep_alive = !old;
    if (seam_frame_count(ri, "Expect")) {
        if (!seam_frame_header(ri, "Expect", value, sizeof value) ||
            strcasecmp(value, "100-continue"))
            return seam_api_fail(e, 417, "expectation_failed", NULL,
                                 "the only expectation known is 100-continue");
        f->expects_continue = !old;
    }
    return 0;
}
