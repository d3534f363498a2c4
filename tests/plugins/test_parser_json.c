/* The plugins' JSON reader and writer. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json_text.h"

#define STR(s) ((struct seam_str){ (s), sizeof(s) - 1 })

Test(parser_json, refuses_what_rfc_8259_does_not_know)
{
    static const struct {
        const char *text, *reason;
    } cases[] = {
        { "", "text ends where a value was expected" },
        { " ", "text ends where" },
        { "nul", "no such word" },
        { "nulll", "text goes on" },
        { "True", "expected a value" },
        { "NaN", "expected a value" },
        { "Infinity", "expected a value" },
        { "+1", "expected a value" },
        { ".5", "expected a value" },
        { "5.", "expected a digit" },
        { "1.e1", "expected a digit" },
        { "1e", "expected a digit" },
        { "1e+", "expected a digit" },
        { "-", "expected a digit" },
        { "-x", "expected a digit" },
        { "01", "number begins with 0" },
        { "-00", "number begins with 0" },
        { "0x10", "text goes on" },
        { "1e999", "number too large" },
        { "-1e400", "number too large" },
        { "'a'", "expected a value" },
        { "\"a", "string without end" },
        { "\"a\\", "string without end" },
        { "\"\\q\"", "unknown escape" },
        { "\"\\u12g4\"", "expected four hex digits" },
        { "\"\\u12\"", "expected four hex digits" },
        { "\"\\ud800\"", "lone surrogate" },
        { "\"\\ud800\\n\"", "lone surrogate" },
        { "\"\\ud800\\u0041\"", "lone surrogate" },
        { "\"\\udc00\"", "lone surrogate" },
        { "\"\n\"", "control character" },
        { "\"\x1f\"", "control character" },
        { "\"\xff\"", "ill-formed UTF-8" },
        { "\"\xc0\x80\"", "ill-formed UTF-8" },
        { "\"\xed\xa0\x80\"", "ill-formed UTF-8" },
        { "\"\xe6\x9e\"", "ill-formed UTF-8" },
        { "\xef\xbb\xbf{}", "expected a value" },
        { "[", "text ends where" },
        { "[1", "expected ',' or ']'" },
        { "[1,", "text ends where" },
        { "[1,]", "expected a value" },
        { "[,]", "expected a value" },
        { "[1 2]", "expected ',' or ']'" },
        { "[1}", "expected ',' or ']'" },
        { "{", "expected a key" },
        { "{a:1}", "expected a key" },
        { "{\"a\"}", "expected ':'" },
        { "{\"a\" 1}", "expected ':'" },
        { "{\"a\":}", "expected a value" },
        { "{\"a\":1,}", "expected a key" },
        { "{\"a\":1 \"b\":2}", "expected ',' or '}'" },
        { "1 2", "text goes on" },
        { "{} x", "text goes on" },
        { "// c\n1", "expected a value" },
        { "\f1", "expected a value" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct seam_str text = { cases[i].text, strlen(cases[i].text) };
        struct seam_error err = { 0 };
        struct jt_doc doc;

        cr_expect_eq(jt_read(&doc, text, "x", &err), SEAM_EDATA, "[%s]",
                     cases[i].text);
        cr_expect(!strncmp(err.text, "x: byte ", 8) &&
                      strstr(err.text, cases[i].reason),
                  "[%s]: %s, expected %s", cases[i].text, err.text,
                  cases[i].reason);
        cr_expect_eq(jt_check(text, NULL), 0);
        jt_release(&doc);
    }
}

Test(parser_json, a_zero_byte_is_no_blank)
{
    static const char text[] = "1\0";
    struct jt_doc doc;
    struct seam_error err = { 0 };

    cr_expect_eq(jt_read(&doc, (struct seam_str){ text, 2 }, "x", &err),
                 SEAM_EDATA);
    jt_release(&doc);
}

static void check_written(const char *text, const char *want)
{
    struct seam_error err = { 0 };
    struct tbuf b = { 0 };
    struct jt_doc doc;

    cr_assert_eq(
        jt_read(&doc, (struct seam_str){ text, strlen(text) }, "x", &err), 0,
        "[%s]: %s", text, err.text);
    jt_write(&b, doc.root, NULL);
    cr_expect(b.n == strlen(want) && !memcmp(b.p, want, b.n),
              "[%s] is written [%.*s], expected [%s]", text, (int)b.n, b.p,
              want);
    tbuf_release(&b);
    jt_release(&doc);
}

/* What Python 3 prints for json.dumps(json.loads(text), ensure_ascii=False). */
Test(parser_json, writes_as_python_does)
{
    static const char *const cases[][2] = {
        { "[]", "[]" },
        { " { } ", "{}" },
        { "[1,2 , 3]", "[1, 2, 3]" },
        { "{\"b\":1,\"a\":{\"c\":[]}}", "{\"b\": 1, \"a\": {\"c\": []}}" },
        { "{\"a\":1,\"b\":2,\"a\":3}", "{\"a\": 3, \"b\": 2}" },
        { "\"\\/\\u00e9\\ud83d\\ude00\\u007f\"", "\"/é😀\x7f\"" },
        { "\"\\u0000\\u000b\\u001f\\b\\f\\n\\r\\t\"",
          "\"\\u0000\\u000b\\u001f\\b\\f\\n\\r\\t\"" },
        { "-0", "0" },
        { "-0.0", "-0.0" },
        { "0.0", "0.0" },
        { "1E5", "100000.0" },
        { "1.50", "1.5" },
        { "1e15", "1000000000000000.0" },
        { "1e16", "1e+16" },
        { "123456789012345680.0", "1.2345678901234568e+17" },
        { "1.5e16", "1.5e+16" },
        { "1e22", "1e+22" },
        { "1e100", "1e+100" },
        { "0.0001", "0.0001" },
        { "0.00001", "1e-05" },
        { "0.00012345", "0.00012345" },
        { "1.25e-7", "1.25e-07" },
        { "5e-324", "5e-324" },
        { "2.2250738585072014e-308", "2.2250738585072014e-308" },
        { "1.7976931348623157e308", "1.7976931348623157e+308" },
        { "0.1", "0.1" },
        { "0.30000000000000004", "0.30000000000000004" },
        { "9007199254740993.0", "9007199254740992.0" },
        { "9007199254740993", "9007199254740993" },
        { "18446744073709551616", "18446744073709551616" },
        { "5.6843418860808015e-14", "5.684341886080802e-14" },
        { "9.5367431640625e-07", "9.5367431640625e-07" },
        { "4.35", "4.35" },
        { "123456.789", "123456.789" },
        { "1e-400", "0.0" },
        { "-1e-400", "-0.0" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_written(cases[i][0], cases[i][1]);
}

/* Powers of two are where the nearest short decimal may read back as another
 * number. */
Test(parser_json, reals_read_back_as_themselves)
{
    for (int e = -1074; e < 1024; e++) {
        double d = ldexp(1, e), back;
        struct tbuf b = { 0 };
        struct jt_doc doc;
        char text[64];
        size_t digits = 0;

        snprintf(text, sizeof text, "%.17e", d);
        cr_assert_eq(
            jt_read(&doc, (struct seam_str){ text, strlen(text) }, "x", NULL),
            0);
        jt_write(&b, doc.root, NULL);
        cr_expect(!jt_double(tbuf_view(&b), &back) && back == d,
                  "2^%d is written %.*s", e, (int)b.n, b.p);
        for (size_t i = 0; i < b.n && b.p[i] != 'e'; i++)
            digits += b.p[i] >= '0' && b.p[i] <= '9';
        cr_expect(digits <= 17 || fabs(d) >= 1e16 || fabs(d) < 1,
                  "2^%d has %zu digits", e, digits);
        tbuf_release(&b);
        jt_release(&doc);
    }
}

Test(parser_json, depth_is_limited)
{
    static char text[2 * JT_DEPTH + 4];
    struct jt_doc doc;
    struct seam_error err = { 0 };

    memset(text, '[', JT_DEPTH);
    memset(text + JT_DEPTH, ']', JT_DEPTH);
    cr_expect_eq(
        jt_read(&doc, (struct seam_str){ text, 2 * JT_DEPTH }, "x", &err), 0,
        "%s", err.text);
    jt_release(&doc);
    memset(text, '[', JT_DEPTH + 1);
    memset(text + JT_DEPTH + 1, ']', JT_DEPTH + 1);
    cr_expect_eq(
        jt_read(&doc, (struct seam_str){ text, 2 * JT_DEPTH + 2 }, "x", &err),
        SEAM_EDATA);
    cr_expect(strstr(err.text, "nested too deeply"), "%s", err.text);
    jt_release(&doc);
}

Test(parser_json, large_objects_are_found_by_key)
{
    struct tbuf b = { 0 };
    struct jt_doc doc;
    const struct jt_value *v;
    char s[64];

    tbuf_str(&b, "{");
    for (int i = 0; i < 100000; i++) {
        snprintf(s, sizeof s, "%s\"k%d\":%d", i ? "," : "", i % 60000, i);
        tbuf_str(&b, s);
    }
    tbuf_str(&b, "}");
    cr_assert_eq(jt_read(&doc, tbuf_view(&b), "x", NULL), 0);
    cr_expect_eq(doc.root->count, 60000);
    v = jt_get(doc.root, "k59999");
    cr_expect(jt_is(v, JT_NUMBER) && text_is(v->s, "59999"));
    v = jt_get(doc.root, "k7");
    cr_expect(jt_is(v, JT_NUMBER) && text_is(v->s, "60007"));
    cr_expect_null(jt_get(doc.root, "k60000"));
    v = doc.root->first->next;
    cr_expect(text_is(v->key, "k1"), "order is kept");
    jt_release(&doc);
    tbuf_release(&b);
}

Test(parser_json, equality_is_that_of_json_schema)
{
    static const struct {
        const char *a, *b;
        bool equal;
    } cases[] = {
        { "1", "1.0", true },
        { "1e2", "100", true },
        { "0", "-0.0", true },
        { "1", "true", false },
        { "9007199254740992", "9007199254740993", false },
        { "\"1\"", "1", false },
        { "[1,2]", "[1.0,2]", true },
        { "[1,2]", "[2,1]", false },
        { "[1]", "[1,1]", false },
        { "{\"a\":1,\"b\":[null]}", "{\"b\":[null],\"a\":1.0}", true },
        { "{\"a\":1}", "{\"b\":1}", false },
        { "{}", "[]", false },
        { "\"\\u0041\"", "\"A\"", true },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct jt_doc a, b;

        cr_assert_eq(
            jt_read(&a, (struct seam_str){ cases[i].a, strlen(cases[i].a) },
                    "a", NULL),
            0);
        cr_assert_eq(
            jt_read(&b, (struct seam_str){ cases[i].b, strlen(cases[i].b) },
                    "b", NULL),
            0);
        cr_expect_eq(jt_equal(a.root, b.root), cases[i].equal, "%s and %s",
                     cases[i].a, cases[i].b);
        cr_expect_eq(jt_equal(b.root, a.root), cases[i].equal, "%s and %s",
                     cases[i].b, cases[i].a);
        jt_release(&a);
        jt_release(&b);
    }
}

Test(parser_json, lists_and_objects_keep_their_text)
{
    static const char text[] = "{\"a\": [1 ,2], \"b\":{ }}";
    struct jt_doc doc;

    cr_assert_eq(jt_read(&doc, STR(text), "x", NULL), 0);
    cr_expect(text_is(doc.root->s, text));
    cr_expect(text_is(jt_get(doc.root, "a")->s, "[1 ,2]"));
    cr_expect(text_is(jt_get(doc.root, "b")->s, "{ }"));
    jt_release(&doc);
}
