/* The tokenizer with the n-th allocation failing, for each n.
 *
 * The program is linked with --wrap for what core/ allocates with.  jansson's
 * own allocations are left alone: when one of them fails inside a string,
 * jansson 2.14 drops a byte and goes on. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/tokenizer/tokenizer.h"

static int countdown = -1; /* allocations until one fails; -1: none does */

static bool fails(void)
{
    return countdown >= 0 && countdown-- == 0;
}

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_pcre2_compile_context_create_8(void *general);
void *__real_pcre2_match_context_create_8(void *general);
void *__real_pcre2_match_data_create_8(uint32_t n, void *general);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_pcre2_compile_context_create_8(void *general);
void *__wrap_pcre2_match_context_create_8(void *general);
void *__wrap_pcre2_match_data_create_8(uint32_t n, void *general);

void *__wrap_malloc(size_t n)
{
    return fails() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    return fails() ? NULL : __real_realloc(p, n);
}

void *__wrap_pcre2_compile_context_create_8(void *general)
{
    return fails() ? NULL : __real_pcre2_compile_context_create_8(general);
}

void *__wrap_pcre2_match_context_create_8(void *general)
{
    return fails() ? NULL : __real_pcre2_match_context_create_8(general);
}

void *__wrap_pcre2_match_data_create_8(uint32_t n, void *general)
{
    return fails() ? NULL : __real_pcre2_match_data_create_8(n, general);
}

static char *small_text(size_t *n)
{
    struct seam_error err;
    uint64_t bytes;
    char *text = NULL;

    cr_assert_eq(seam_file_read(SEAM_TEST_SOURCE_DIR
                                "/tests/tokenizer/small.json",
                                1 << 20, &text, &bytes, &err),
                 0, "%s", err.text);
    *n = bytes;
    return text;
}

Test(memory, loading_fails_cleanly_wherever_it_runs_out)
{
    size_t n;
    char *text = small_text(&n);
    bool failed = true;
    int i;

    for (i = 0; failed; i++) {
        struct seam_tokenizer *t = NULL;
        struct seam_error err = { 0 };
        int rc;

        countdown = i;
        rc = seam_tokenizer_parse(&t, "t.json", text, n, &err);
        failed = countdown < 0;
        countdown = -1;
        cr_assert_eq(rc, failed ? SEAM_ENOMEM : 0, "allocation %d: %d", i, rc);
        cr_assert_eq(!rc, !!t);
        cr_assert(!rc || strstr(err.text, "out of memory"), "allocation %d: %s",
                  i, err.text);
        seam_tokenizer_free(t);
    }
    cr_expect_gt(i, 12, "only %d allocations", i);
    free(text);
}

static int encode_all(const struct seam_tokenizer *t, struct seam_ids *ids,
                      struct seam_error *err)
{
    static const char text[] = "hello <|user|>the world\xff aaaaaaaaaaaaaaaaaaa"
                               "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
                               "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
                               "zqzqzqzqzqzqzqzqzqzqzqzqzqzqzqzqzqzqzqzqzqzqzq";
    struct seam_encoder e = { .t = t, .out = ids };
    int rc = seam_tokenizer_encode(t, text, sizeof text - 1, true, ids, err);

    if (!rc)
        rc = seam_encoder_text(&e, text, sizeof text - 1);
    if (!rc)
        rc = seam_encoder_special(&e, "<think>", 7, err);
    if (!rc)
        rc = seam_encoder_end(&e, err);
    seam_encoder_release(&e);
    return rc;
}

Test(memory, encoding_fails_cleanly_wherever_it_runs_out)
{
    size_t n;
    char *text = small_text(&n);
    struct seam_tokenizer *t = NULL;
    struct seam_error err;
    bool failed = true;
    int i;

    cr_assert_eq(seam_tokenizer_parse(&t, "t.json", text, n, &err), 0);
    for (i = 0; failed; i++) {
        struct seam_ids ids = { 0 };
        int rc;

        countdown = i;
        rc = encode_all(t, &ids, &err);
        failed = countdown < 0;
        countdown = -1;
        cr_assert_eq(rc, failed ? SEAM_ENOMEM : 0, "allocation %d: %d", i, rc);
        cr_assert(rc || ids.n > 100);
        seam_ids_release(&ids);
    }
    cr_expect_gt(i, 10, "only %d allocations", i);
    seam_tokenizer_free(t);
    free(text);
}
