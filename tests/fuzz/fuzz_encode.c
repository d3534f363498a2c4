/* Any bytes through the nano model's tokenizer: they come back, plain text never
 * becomes an added token, pieces make no difference, and what is streamed is
 * valid UTF-8. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/utf8.h"
#include "core/tokenizer/tokenizer.h"

static struct seam_tokenizer *nano(void)
{
    static struct seam_tokenizer *t;
    struct seam_error err;

    if (!t && seam_tokenizer_open(
                  &t, SEAM_TEST_SOURCE_DIR "/models/nano/bf16/tokenizer.json",
                  &err)) {
        fprintf(stderr, "%s\n", err.text);
        abort();
    }
    return t;
}

static void check(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "fuzz_encode: %s\n", what);
    abort();
}

static void check_ids(const struct seam_tokenizer *t,
                      const struct seam_ids *ids, const char *p, size_t n)
{
    struct seam_buf bytes = { 0 }, text = { 0 };
    struct seam_detok d = { 0 };
    struct seam_str s;

    for (size_t i = 0; i < ids->n; i++) {
        size_t from = text.n;

        check(seam_tokenizer_bytes(t, ids->v[i], &s), "an id without bytes");
        seam_buf_add(&bytes, s.p, s.n);
        seam_detok_add(&d, s.p, s.n, &text);
        check(text.n == from || seam_utf8_valid(text.p + from, text.n - from),
              "half a character");
    }
    seam_detok_end(&d, &text);
    check(bytes.n == n && (!n || !memcmp(bytes.p, p, n)), "other bytes");
    if (seam_utf8_valid(p, n))
        check(text.n == n && (!n || !memcmp(text.p, p, n)), "other text");
    seam_buf_release(&bytes);
    seam_buf_release(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct seam_tokenizer *t = nano();
    const char *p = (const char *)data;
    struct seam_ids plain = { 0 }, added = { 0 }, pieces = { 0 };
    struct seam_encoder e = { .t = t, .out = &pieces };
    size_t cut = size ? data[0] % size : 0;
    struct seam_error err;

    check(!seam_tokenizer_encode(t, p, size, false, &plain, &err), "refused");
    check_ids(t, &plain, p, size);
    for (size_t i = 0; i < plain.n; i++)
        check(!seam_tokenizer_flags(t, plain.v[i]), "text became a token");
    check(!seam_tokenizer_encode(t, p, size, true, &added, &err), "refused");
    check_ids(t, &added, p, size);
    check(!seam_encoder_text(&e, p, cut) &&
              !seam_encoder_text(&e, p + cut, size - cut) &&
              !seam_encoder_end(&e, &err),
          "refused in pieces");
    check(
        pieces.n == plain.n &&
            (!plain.n || !memcmp(pieces.v, plain.v, plain.n * sizeof *plain.v)),
        "other ids in pieces");
    seam_encoder_release(&e);
    seam_ids_release(&plain);
    seam_ids_release(&added);
    seam_ids_release(&pieces);
    return 0;
}
