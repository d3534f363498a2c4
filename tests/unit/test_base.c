#include <criterion/criterion.h>
#include <string.h>

#include "core/base/buf.h"
#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/num.h"
#include "core/base/utf8.h"

Test(error, keeps_one_line_of_whole_characters)
{
    struct seam_error e;
    char big[400];

    cr_expect_eq(seam_fail(&e, SEAM_EDATA, "a\nb"), SEAM_EDATA);
    cr_expect_str_eq(e.text, "a b");
    for (size_t i = 0; i + 2 < sizeof big; i += 2)
        memcpy(big + i, "\xc3\xa9", 3);
    seam_fail(&e, SEAM_EDATA, "x%s", big);
    cr_expect(seam_utf8_valid(e.text, strlen(e.text)), "%s", e.text);
    seam_fail(&e, SEAM_EDATA, "%s", big);
    cr_expect(seam_utf8_valid(e.text, strlen(e.text)), "%s", e.text);
}

Test(num, parses_whole_strings_only)
{
    uint64_t u = 7;
    int64_t i = 7;
    double d = 7;

    cr_expect(seam_parse_u64("18446744073709551615", 20, &u));
    cr_expect_eq(u, UINT64_MAX);
    cr_expect_not(seam_parse_u64("18446744073709551616", 20, &u));
    cr_expect_not(seam_parse_u64("", 0, &u));
    cr_expect_not(seam_parse_u64("+3", 2, &u));
    cr_expect_not(seam_parse_u64("3 ", 2, &u));
    cr_expect(seam_parse_i64("-9223372036854775808", 20, &i));
    cr_expect_eq(i, INT64_MIN);
    cr_expect_not(seam_parse_i64("9223372036854775808", 19, &i));
    cr_expect(seam_parse_f64("-1.5e3", &d));
    cr_expect_eq(d, -1500.0);
    cr_expect_not(seam_parse_f64("1e999", &d));
    cr_expect_not(seam_parse_f64("nan", &d));
    cr_expect_not(seam_parse_f64("0x10", &d));
    cr_expect_not(seam_parse_f64("1.0x", &d));
}

Test(num, nearest_name_only_when_near)
{
    static const char *const names[] = { "max_context", "threads", NULL };

    cr_expect_str_eq(seam_nearest("max_contxt", names), "max_context");
    cr_expect_null(seam_nearest("zzzzzz", names));
}

Test(buf, quotes_json)
{
    struct seam_buf b = { 0 };

    seam_buf_json(&b, "a\"\\\n\x01é", 7);
    cr_expect_str_eq(b.p, "\"a\\\"\\\\\\n\\u0001é\"");
    seam_buf_release(&b);
}

Test(utf8, follows_the_standard_on_ill_formed_input)
{
    uint32_t cp;
    size_t len;

    cr_expect_eq(seam_utf8_next("\xf0\x9f\xa6\x8a", 4, &cp, &len),
                 SEAM_UTF8_OK);
    cr_expect_eq(cp, 0x1f98a);
    cr_expect_eq(seam_utf8_next("\xf0\x9f", 2, &cp, &len), SEAM_UTF8_MORE);
    cr_expect_eq(seam_utf8_next("\xed\xa0\x80", 3, &cp, &len), SEAM_UTF8_BAD);
    cr_expect_eq(len, 1);
    cr_expect_eq(seam_utf8_next("\xf0\x9f"
                                "a",
                                3, &cp, &len),
                 SEAM_UTF8_BAD);
    cr_expect_eq(len, 2);
    cr_expect_not(seam_utf8_valid("\xc0\x80", 2));
    cr_expect_eq(seam_utf8_whole("ab\xe6\x9e", 4), 2);
    cr_expect_eq(seam_utf8_whole("ab\xe6\x9e\x97", 5), 5);
    cr_expect_eq(seam_utf8_whole("ab\xff", 3), 3);
}

Test(json, refuses_duplicates_and_depth)
{
    struct seam_error e;
    struct seam_buf deep = { 0 };
    json_t *v;

    cr_expect_null(seam_json_parse("{\"a\":1,\n\"a\":2}", 14, "f", 0, &e));
    cr_expect_eq(strncmp(e.text, "f:2:", 4), 0, "%s", e.text);
    for (int i = 0; i <= SEAM_JSON_DEPTH; i++)
        seam_buf_str(&deep, "[");
    for (int i = 0; i <= SEAM_JSON_DEPTH; i++)
        seam_buf_str(&deep, "]");
    cr_expect_null(seam_json_parse(deep.p, deep.n, "f", 0, &e));
    v = seam_json_parse(deep.p + 1, deep.n - 2, "f", 0, &e);
    cr_expect_not_null(v);
    json_decref(v);
    seam_buf_release(&deep);
    {
        static const char mixed[] = "[9007199254740993,-9223372036854775808,"
                                    "-9223372036854775809,18446744073709551616,"
                                    "\"18446744073709551616\"]";

        cr_expect_null(seam_json_parse(mixed, sizeof mixed - 1, "f", 0, &e));
        v = seam_json_parse(mixed, sizeof mixed - 1, "f", SEAM_JSON_BIG_INT,
                            &e);
        cr_assert_not_null(v, "%s", e.text);
        cr_expect_eq(json_integer_value(json_array_get(v, 0)),
                     9007199254740993);
        cr_expect_eq(json_integer_value(json_array_get(v, 1)), INT64_MIN);
        cr_expect_float_eq(json_real_value(json_array_get(v, 2)), -0x1p63, 1e4);
        cr_expect_float_eq(json_real_value(json_array_get(v, 3)), 0x1p64, 1e4);
        json_decref(v);
    }
    v = seam_json_parse("[18446744073709551615]", 22, "f", SEAM_JSON_BIG_INT,
                        &e);
    cr_expect_not_null(v, "%s", e.text);
    json_decref(v);
}
