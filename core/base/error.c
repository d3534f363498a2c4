#include "core/base/error.h"

#include <stdio.h>
#include <string.h>

/* One line of whole UTF-8 characters, whatever was formatted into it. */
static void error_tidy(char *s, size_t cap)
{
    size_t n = strlen(s);

    if (n == cap - 1) {
        while (n && ((unsigned char)s[n - 1] & 0xc0) == 0x80)
            n--;
        if (n && ((unsigned char)s[n - 1] & 0x80))
            n--;
        s[n] = 0;
    }
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] < 0x20 || s[i] == 0x7f)
            s[i] = ' ';
}

static int error_fill(struct seam_error *err, int code, int native,
                      const char *fmt, va_list ap)
{
    if (!err)
        return code;
    err->code = code;
    err->native = native;
    vsnprintf(err->text, sizeof err->text, fmt, ap);
    if (native) {
        size_t n = strlen(err->text);
        char words[96];

        /* The GNU strerror_r may answer with a string of its own. */
        const char *w = strerror_r(native, words, sizeof words);
        snprintf(err->text + n, sizeof err->text - n, ": %s", w);
    }
    error_tidy(err->text, sizeof err->text);
    return code;
}

int seam_fail(struct seam_error *err, int code, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    error_fill(err, code, 0, fmt, ap);
    va_end(ap);
    return code;
}

int seam_fail_errno(struct seam_error *err, int code, int native,
                    const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    error_fill(err, code, native, fmt, ap);
    va_end(ap);
    return code;
}

int seam_fail_at(struct seam_error *err, const char *where)
{
    struct seam_error was = *err;

    snprintf(err->text, sizeof err->text, "%s: %s", where, was.text);
    error_tidy(err->text, sizeof err->text);
    return err->code;
}
