/* Any text as tokenizer.json.  What is accepted has to encode any bytes and
 * give them back. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/tokenizer/tokenizer.h"

static void round_trip(const struct seam_tokenizer *t, bool added)
{
    static const char text[] = "I'LL 12345  see\n\n  the <|user|>x\xe6\x9e\x97"
                               "\xff\x00 [ MASK ] aaaaaaaaaa\t";
    struct seam_ids ids = { 0 };
    struct seam_buf back = { 0 };
    struct seam_error err = { 0 };
    struct seam_str s;

    /* The expression may still be one that gives up. */
    if (seam_tokenizer_encode(t, text, sizeof text - 1, added, &ids, &err)) {
        if (ids.n || !err.text[0])
            abort();
        return;
    }
    for (size_t i = 0; i < ids.n; i++) {
        if (!seam_tokenizer_bytes(t, ids.v[i], &s) ||
            (uint32_t)ids.v[i] >= seam_tokenizer_size(t))
            abort();
        if (!added && (seam_tokenizer_flags(t, ids.v[i]) & SEAM_TOKEN_ADDED))
            abort();
        seam_buf_add(&back, s.p, s.n);
    }
    if (!added && (back.n != sizeof text - 1 || memcmp(back.p, text, back.n)))
        abort();
    seam_buf_release(&back);
    seam_ids_release(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct seam_tokenizer *t = NULL;
    struct seam_error err = { 0 };
    int rc = seam_tokenizer_parse(&t, "f", (const char *)data, size, &err);

    if (rc) {
        if (t || !err.text[0])
            abort();
        return 0;
    }
    round_trip(t, false);
    round_trip(t, true);
    seam_tokenizer_free(t);
    return 0;
}
