/* The plugins' JSON reader against jansson's: both take and refuse the same
 * texts, but for what is stated below; and what it writes it reads back. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json_text.h"

static void fail(const char *what, const char *more)
{
    fprintf(stderr, "%s: %s\n", what, more);
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    char *copy = malloc(n ? n : 1);
    struct seam_str text = { copy, n };
    struct tbuf once = { 0 }, twice = { 0 };
    struct seam_error err = { 0 };
    struct jt_doc doc, again = { 0 };
    json_error_t e = { 0 };
    json_t *v;
    bool real;
    int rc;

    if (!copy)
        return 0;
    memcpy(copy, p, n);
    rc = jt_read(&doc, text, "text", &err);
    v = json_loadb(copy, n,
                   JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL,
                   &e);
    /* Integers may have any number of digits, keys any character. */
    if (!rc && !v && json_error_code(&e) != json_error_numeric_overflow &&
        json_error_code(&e) != json_error_null_byte_in_key)
        fail("jansson refuses what we take", e.text);
    /* Less nesting is taken here, and a zero byte does not end a text. */
    if (rc && v && !strstr(err.text, "nested too deeply") && !memchr(p, 0, n))
        fail("jansson takes what we refuse", err.text);
    if ((jt_check(text, &real) > 0) != (rc == 0))
        fail("checking is not reading", err.text);
    json_decref(v);
    if (rc)
        goto out;
    jt_write(&once, doc.root, NULL);
    if (jt_read(&again, tbuf_view(&once), "written", &err))
        fail("cannot read what was written", err.text);
    if (!jt_equal(doc.root, again.root))
        fail("what was written is something else", "");
    jt_write(&twice, again.root, NULL);
    if (!text_same(tbuf_view(&once), tbuf_view(&twice)))
        fail("written twice, it differs", "");
out:
    jt_release(&again);
    jt_release(&doc);
    tbuf_release(&twice);
    tbuf_release(&once);
    free(copy);
    return 0;
}
