#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/utf8.h"
#include "core/tokenizer/tokenizer.h"

#define BAD "\xef\xbf\xbd"

/* text[0, n) in pieces of the given size, ended. */
static struct seam_buf in_pieces(const char *text, size_t n, size_t size)
{
    struct seam_detok d = { 0 };
    struct seam_buf out = { 0 };

    for (size_t i = 0; i < n; i += size) {
        seam_detok_add(&d, text + i, n - i < size ? n - i : size, &out);
        cr_expect_leq(d.n_held, 3);
        cr_expect(seam_utf8_valid(out.p ? out.p : "", out.n),
                  "half a character after byte %zu", i);
    }
    seam_detok_end(&d, &out);
    cr_expect_eq(d.n_held, 0);
    return out;
}

/* By the definition: each maximal ill-formed part is one U+FFFD. */
static struct seam_buf by_definition(const char *text, size_t n)
{
    struct seam_buf out = { 0 };
    uint32_t cp;
    size_t len;

    for (size_t i = 0; i < n; i += len) {
        if (seam_utf8_next(text + i, n - i, &cp, &len) == SEAM_UTF8_OK)
            seam_buf_add(&out, text + i, len);
        else
            seam_buf_str(&out, BAD);
    }
    return out;
}

Test(detok, joins_a_character_split_over_tokens)
{
    static const char *const tokens[] = { "\xf0\x9f", "\xa6",     "\x8a",
                                          " ",        "\xe6\x9e", "\x97" };
    static const char *const expected[] = { "",  "", "\xf0\x9f\xa6\x8a",
                                            " ", "", "\xe6\x9e\x97" };
    struct seam_detok d = { 0 };
    struct seam_buf out = { 0 };

    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        seam_buf_clear(&out);
        seam_detok_add(&d, tokens[i], strlen(tokens[i]), &out);
        cr_expect_str_eq(out.p ? out.p : "", expected[i], "piece %zu", i);
    }
    seam_buf_clear(&out);
    seam_detok_end(&d, &out);
    cr_expect_eq(out.n, 0);
    seam_buf_release(&out);
}

Test(detok, lets_no_character_wait_longer_than_for_its_own_last_byte)
{
    static const char fox[] = "\xf0\x9f\xa6\x8a";
    struct seam_detok d = { 0 };
    struct seam_buf out = { 0 };

    for (size_t i = 0; i < 50; i++)
        for (size_t k = 0; k < 4; k++) {
            seam_detok_add(&d, fox + k, 1, &out);
            cr_expect_eq(out.n, 4 * (i + (k == 3)), "emoji %zu, byte %zu", i,
                         k);
        }
    /* A real U+FFFD is a character like any other. */
    seam_buf_clear(&out);
    seam_detok_add(&d, BAD, 3, &out);
    cr_expect_str_eq(out.p, BAD);
    seam_buf_release(&out);
}

Test(detok, replaces_each_maximal_ill_formed_part_by_one_mark)
{
    static const struct {
        const char *bytes, *expected;
    } rows[] = {
        /* The Unicode standard's example, table 3-8. */
        { "a\xf1\x80\x80\xe1\x80\xc2"
          "b\x80"
          "c\x80\xbf"
          "d",
          "a" BAD BAD BAD "b" BAD "c" BAD BAD "d" },
        { "\xc0\xaf", BAD BAD },
        { "\xed\xa0\x80", BAD BAD BAD },
        { "\xf4\x91\x92\x93\xff"
          "A\x80\xbf"
          "B",
          BAD BAD BAD BAD BAD "A" BAD BAD "B" },
        { "\xe6\x9e", BAD },
        { "\xf0\x9f\xa6", BAD },
        { "\xe6\x9e\xe6\x9e\x97", BAD "\xe6\x9e\x97" },
        { "\xf0\x9f\xe6\x9e\x97", BAD "\xe6\x9e\x97" },
        { "\xff", BAD },
        { "", "" },
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t size = 1; size <= 5; size++) {
            struct seam_buf out =
                in_pieces(rows[i].bytes, strlen(rows[i].bytes), size);

            cr_expect_str_eq(out.p ? out.p : "", rows[i].expected,
                             "row %zu in pieces of %zu", i, size);
            seam_buf_release(&out);
        }
}

/* As soon as a beginning cannot be completed its mark is out. */
Test(detok, does_not_hold_what_cannot_become_a_character)
{
    struct seam_detok d = { 0 };
    struct seam_buf out = { 0 };

    seam_detok_add(&d, "\xe6\x9e", 2, &out);
    cr_expect_eq(out.n, 0);
    seam_detok_add(&d, "<", 1, &out);
    cr_expect_str_eq(out.p, BAD "<");
    seam_buf_clear(&out);
    seam_detok_add(&d, "\xe0\x80", 2, &out);
    cr_expect_str_eq(out.p, BAD BAD);
    seam_buf_clear(&out);
    seam_detok_add(&d, "\xf0\x9f", 2, &out);
    seam_detok_end(&d, &out);
    cr_expect_str_eq(out.p, BAD);
    /* And is as new after the end. */
    seam_detok_add(&d, "a", 1, &out);
    cr_expect_str_eq(out.p, BAD "a");
    seam_buf_release(&out);
}

Test(detok, gives_the_same_text_however_the_bytes_are_cut)
{
    static const char alphabet[] = "a\x80\x9f\xa0\xbf\xc2\xe0\xed\xe6\xf0\xf4"
                                   "\xff\x00";
    uint64_t x = 11;

    for (int i = 0; i < 20000; i++) {
        char text[24];
        size_t n;
        struct seam_buf expected;

        x = x * 6364136223846793005u + 1442695040888963407u;
        n = (x >> 33) % sizeof text;
        for (size_t k = 0; k < n; k++) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            text[k] = alphabet[(x >> 33) % (sizeof alphabet - 1)];
        }
        expected = by_definition(text, n);
        for (size_t size = 1; size <= 7; size++) {
            struct seam_buf out = in_pieces(text, n, size);

            cr_assert(out.n == expected.n &&
                          (!out.n || !memcmp(out.p, expected.p, out.n)),
                      "seed 11, text %d in pieces of %zu", i, size);
            seam_buf_release(&out);
        }
        seam_buf_release(&expected);
    }
}
