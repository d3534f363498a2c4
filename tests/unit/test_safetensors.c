#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "core/base/utf8.h"
#include "core/checkpoint/index.h"
#include "core/checkpoint/safetensors.h"

#define FILE_NAME "model-00002-of-00003.safetensors"

/* A header parsed from exactly as much heap memory as the file is long, so that
 * AddressSanitizer sees every byte read beyond it. */
struct parsed {
    struct seam_st_header h;
    struct seam_error err;
    int rc;
};

static struct parsed parse_bytes(const void *bytes, size_t n)
{
    struct parsed r = { .h = { 0 } };
    unsigned char *p = malloc(n ? n : 1);

    cr_assert_not_null(p);
    memcpy(p, bytes, n);
    r.rc = seam_st_parse(&r.h, FILE_NAME, n ? p : NULL, n, n, &r.err);
    free(p);
    return r;
}

/* The header text, its true length before it and `data` zeros behind it. */
static struct parsed parse(const char *text, size_t data)
{
    size_t n = strlen(text);
    unsigned char *p = calloc(1, 8 + n + data);
    struct parsed r;

    cr_assert_not_null(p);
    for (int i = 0; i < 8; i++)
        p[i] = (unsigned char)((uint64_t)n >> 8 * i);
    memcpy(p + 8, text, n);
    r = parse_bytes(p, 8 + n + data);
    free(p);
    return r;
}

static void refused(const struct parsed *r, const char *says, const char *what)
{
    cr_expect_eq(r->rc, SEAM_EDATA, "%s: accepted", what);
    cr_expect(!r->rc || strstr(r->err.text, says), "%s: \"%s\" lacks \"%s\"",
              what, r->err.text, says);
    cr_expect(!r->rc || strstr(r->err.text, FILE_NAME), "%s: \"%s\"", what,
              r->err.text);
    cr_expect(!r->rc || seam_utf8_valid(r->err.text, strlen(r->err.text)));
    cr_expect_null(r->h.t, "%s: output touched", what);
}

Test(safetensors, refuses_every_length_that_lies)
{
    static const struct {
        const char *bytes;
        size_t n;
        const char *says;
    } all[] = {
        { "", 0, "0 bytes" },
        { "\x02\0\0\0\0\0\0", 7, "7 bytes" },
        { "\0\0\0\0\0\0\0\0", 8, "header length 0" },
        { "\0\0\0\0\0\0\0\0{}", 10, "header length 0" },
        { "\x01\0\0\0\0\0\0\0{", 9, "header length 1" },
        { "\xff\xff\xff\xff\xff\xff\xff\xff{}", 10,
          "header length 18446744073709551615" },
        { "\xfb\xff\xff\xff\xff\xff\xff\xff{}", 10,
          "header length 18446744073709551611" },
        { "\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10,
          "header length 9223372036854775807" },
        { "\x01\xe1\xf5\x05\0\0\0\0{}", 10, "header length 100000001" },
        { "\x03\0\0\0\0\0\0\0{}", 10, "header length 3" },
        { "\x02\0\0\0\0\0\0\0[]", 10, "expected '{'" },
        { "\x07\0\0\0\0\0\0\0{\"\xff\":1}", 15, "not UTF-8" },
        { "\x03\0\0\0\0\0\0\0 {}", 11, "expected '{'" },
    };

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct parsed r = parse_bytes(all[i].bytes, all[i].n);

        refused(&r, all[i].says, all[i].says);
    }
}

Test(safetensors, a_lying_length_costs_no_memory)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    cr_skip_test("sanitizers keep freed memory");
#else
    struct rusage before, after;

    getrusage(RUSAGE_SELF, &before);
    for (int i = 0; i < 64; i++) {
        struct parsed r = parse_bytes("\0\xe1\xf5\x05\0\0\0\0{}", 10);

        refused(&r, "header length 100000000", "length");
    }
    getrusage(RUSAGE_SELF, &after);
    cr_expect_lt(after.ru_maxrss - before.ru_maxrss, 16 * 1024);
#endif
}

Test(safetensors, an_empty_header_has_no_tensors)
{
    struct parsed r = parse_bytes("\x02\0\0\0\0\0\0\0{}", 10);

    cr_assert_eq(r.rc, 0, "%s", r.err.text);
    cr_expect_eq(r.h.n, 0);
    cr_expect_null(seam_st_find(&r.h, "a"));
    seam_st_release(&r.h);
    seam_st_release(&r.h);
}

/* clang-format cannot lay out strings joined by a macro. */
/* clang-format off */
#define T(dtype, shape, span) \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" span "}"

Test(safetensors, refuses_headers_that_lie)
{
    static const struct {
        const char *text;
        size_t data;
        const char *says;
    } all[] = {
        { "{\"a\":" T("F32", "[640,480]", "[0,8]") "}", 8,
          "\"a\": data_offsets span 8 bytes, expected 1228800" },
        { "{\"a\":" T("F32", "[2]", "[0,4096]") "}", 8,
          "4088 bytes missing, data goes past the end of the file" },
        { "{\"a\":" T("F32", "[2]", "[8,0]") "}", 8, "begin after their end" },
        { "{\"a\":" T("U8", "[4294967296,4294967296]", "[0,0]") "}", 0,
          "\"a\": the product of its shape overflows" },
        { "{\"a\":" T("U8", "[9223372036854775807,2]", "[0,0]") "}", 0,
          "overflows" },
        { "{\"a\":" T("U8", "[9223372036854775808]", "[0,0]") "}", 0,
          "expected less than 2^63" },
        { "{\"a\":" T("F32", "[2]", "[0,8]") ",\"a\":"
          T("F32", "[2]", "[8,16]") "}",
          16, "duplicate name \"a\"" },
        { "{\"a\":" T("F32", "[2]", "[0,8]") ",\"a\":"
          T("I32", "[2]", "[0,8]") "}",
          8, "duplicate name \"a\"" },
        { "{\"a\":" T("F32", "[2]", "[0,8]") ",\"\\u0061\":"
          T("F32", "[2]", "[8,16]") "}",
          16, "duplicate name \"a\"" },
        { "{\"__metadata__\":{},\"__metadata__\":{}}", 0, "duplicate name" },
        { "{\"a\":" T("F32", "[2]", "[0]") "}", 8, "1 data_offsets" },
        { "{\"a\":" T("F32", "[2]", "[]") "}", 8, "0 data_offsets" },
        { "{\"a\":" T("F32", "[2]", "[0,8,8]") "}", 8, "\"a\": more than 2" },
        { "{\"a\":" T("F32", "[2]", "[0,8.0]") "}", 8, "an integer" },
        { "{\"a\":" T("F32", "[2]", "[-0,8]") "}", 8, "an integer" },
        { "{\"a\":" T("F32", "[2]", "[-8,0]") "}", 8, "an integer" },
        { "{\"a\":" T("F32", "[250]", "[0,1e3]") "}", 1000, "an integer" },
        { "{\"a\":" T("F32", "[2]", "[\"0\",\"8\"]") "}", 8, "an integer" },
        { "{\"a\":" T("F32", "[2]", "[00,8]") "}", 8, "an integer" },
        { "{\"a\":" T("F32", "[2]", "[0,18446744073709551616]") "}", 8,
          "an integer" },
        { "{\"a\":"
          T("F32", "[2]", "[18446744073709551615,18446744073709551615]") "}",
          8, "bytes missing" },
        { "{\"a\":" T("F32", "[2]", "{}") "}", 8, "a list" },
        { "{\"a\":" T("F32", "2", "[0,8]") "}", 8, "a list" },
        { "{\"a\":" T("F32", "[-2]", "[0,8]") "}", 8, "an integer" },
        { "{\"a\":" T("F32", "[1,1,1,1,1,1,1,1,2]", "[0,8]") "}", 8,
          "more than 8 dimensions" },
        { "{\"a\":" T("F4", "[16]", "[0,8]") "}", 8,
          "\"a\": dtype \"F4\", expected F32" },
        { "{\"a\":" T("F64", "[1]", "[0,8]") "}", 8, "dtype \"F64\"" },
        { "{\"a\":" T("BOOL", "[8]", "[0,8]") "}", 8, "dtype \"BOOL\"" },
        { "{\"a\":" T("f32", "[2]", "[0,8]") "}", 8, "dtype \"f32\"" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8,
          "\"a\": no data_offsets" },
        { "{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}", 8,
          "\"a\": no shape" },
        { "{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", 8,
          "\"a\": no dtype" },
        { "{\"a\":{\"dtype\":\"F32\",\"dtype\":\"I32\",\"shape\":[2],"
          "\"data_offsets\":[0,8]}}",
          8, "duplicate key \"dtype\"" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],"
          "\"x\":1}}",
          8, "key \"x\"" },
        { "{\"a\":[]}", 0, "an object" },
        { "{\"a\":null}", 0, "an object" },
        { "{\"__metadata__\":{\"a\":1}}", 0, "a string" },
        { "{\"__metadata__\":[]}", 0, "an object" },
        /* the data is not tiled */
        { "{\"a\":" T("F32", "[2]", "[0,8]") ",\"b\":"
          T("F32", "[2]", "[0,8]") "}",
          8, "\"b\": data begins at offset 0, expected 8" },
        { "{\"a\":" T("F32", "[2]", "[0,8]") ",\"b\":"
          T("F32", "[2]", "[4,12]") "}",
          12, "\"b\": data begins at offset 4" },
        { "{\"a\":" T("F32", "[2]", "[0,8]") ",\"b\":"
          T("F32", "[2]", "[12,20]") "}",
          20, "offset 12, expected 8" },
        { "{\"a\":" T("F32", "[2]", "[4,12]") "}", 12, "offset 4, expected 0" },
        { "{\"a\":" T("F32", "[2]", "[0,8]") "}", 9,
          "1 bytes behind the last tensor" },
        { "{}", 4, "4 bytes behind the last tensor" },
        /* not JSON */
        { "{\"a\"", 0, "':'" },
        { "{\"a", 0, "the end of a string" },
        { "{,}", 0, "a string" },
        { "{\"a\":" T("F32", "[2]", "[0,8]") ",}", 8, "a string" },
        { "{}}", 0, "the end of the text" },
        { "{}x", 0, "the end of the text" },
        { "{\"a\\u0000\":" T("F32", "[2]", "[0,8]") "}", 8, "U+0000" },
        { "{\"a\\ud800\":" T("F32", "[2]", "[0,8]") "}", 8, "surrogate" },
        { "{\"a\\udc00\":" T("F32", "[2]", "[0,8]") "}", 8, "surrogate" },
        { "{\"a\\ud800\\u0041\":" T("F32", "[2]", "[0,8]") "}", 8,
          "surrogate" },
        { "{\"a\\x\":" T("F32", "[2]", "[0,8]") "}", 8, "an escape" },
        { "{\"a\\u12g4\":" T("F32", "[2]", "[0,8]") "}", 8, "hexadecimal" },
        { "{\"a\\", 0, "an escape" },
        { "{\"a\\u00", 0, "hexadecimal" },
        { "{\"a\nb\":" T("F32", "[2]", "[0,8]") "}", 8, "control character" },
    };

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct parsed r = parse(all[i].text, all[i].data);

        refused(&r, all[i].says, all[i].text);
    }
}

Test(safetensors, accepts_empty_and_scalar_tensors_in_any_order)
{
    static const char text[] =
        "{\"empty\":" T("F32", "[0]", "[0,0]") ","
        "\"b\":" T("F32", "[2]", "[4,12]") ","
        "\"scalar\":" T("F32", "[]", "[0,4]") ","
        "\"void\":" T("I64", "[3,0]", "[12,12]") ","
        "\"__metadata__\":{\"format\":\"pt\"}}    ";
    struct parsed r = parse(text, 12);
    const struct seam_st_tensor *t;

    cr_assert_eq(r.rc, 0, "%s", r.err.text);
    cr_expect_eq(r.h.n, 4);
    cr_expect_str_eq(r.h.t[0].name, "b");
    cr_expect_str_eq(r.h.t[3].name, "void");
    t = seam_st_find(&r.h, "scalar");
    cr_assert_not_null(t);
    cr_expect_eq(t->rank, 0);
    cr_expect_eq(t->bytes, 4);
    t = seam_st_find(&r.h, "b");
    cr_assert_not_null(t);
    cr_expect_eq(t->offset, seam_st_find(&r.h, "scalar")->offset + 4);
    cr_expect_eq(t->shape[0], 2);
    t = seam_st_find(&r.h, "empty");
    cr_assert_not_null(t);
    cr_expect_eq(t->bytes, 0);
    cr_expect_null(seam_st_find(&r.h, "c"));
    seam_st_release(&r.h);
}

Test(safetensors, accepts_every_dtype_it_names)
{
    static const struct {
        const char *name;
        uint16_t dtype, bytes;
    } all[] = {
        { "F32", SEAM_F32, 4 },        { "F16", SEAM_F16, 2 },
        { "BF16", SEAM_BF16, 2 },      { "F8_E4M3", SEAM_F8E4M3, 1 },
        { "F8_E5M2", SEAM_F8E5M2, 1 }, { "I8", SEAM_I8, 1 },
        { "U8", SEAM_U8, 1 },          { "I32", SEAM_I32, 4 },
        { "I64", SEAM_I64, 8 },
    };

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        char text[160];
        struct parsed r;

        snprintf(text, sizeof text,
                 "{\"a\":{\"dtype\":\"%s\",\"shape\":[3],"
                 "\"data_offsets\":[0,%d]}}",
                 all[i].name, 3 * all[i].bytes);
        r = parse(text, 3u * all[i].bytes);
        cr_assert_eq(r.rc, 0, "%s", r.err.text);
        cr_expect_eq(r.h.t[0].dtype, all[i].dtype);
        cr_expect_eq(seam_dtype_bits(all[i].dtype), 8u * all[i].bytes);
        cr_expect_str_eq(seam_dtype_name(all[i].dtype), all[i].name);
        seam_st_release(&r.h);
    }
    cr_expect_eq(seam_dtype_bits(SEAM_I4), 4);
    cr_expect_eq(seam_dtype_bits(99), 0);
}

Test(safetensors, decodes_escaped_names)
{
    struct parsed r =
        parse("{\"\\u00e9\\ud83e\\udd8a\\u20ac\\\"\\\\\\/\\n\":" T("U8", "[1]",
                                                                   "[0,1]") "}",
              1);

    cr_assert_eq(r.rc, 0, "%s", r.err.text);
    cr_expect_str_eq(r.h.t[0].name, "\xc3\xa9\xf0\x9f\xa6\x8a\xe2\x82\xac\"\\/"
                                    "\n");
    seam_st_release(&r.h);
}

Test(safetensors, names_the_first_tensor_that_is_cut)
{
    const char *text = "{\"z\":" T("F32", "[2]", "[0,8]") ",\"a\":" T(
        "F32", "[4]", "[8,24]") ",\"m\":" T("F32", "[1]", "[24,28]") "}";
    char says[96];
    struct parsed r = parse(text, 27); /* the last byte is gone */

    snprintf(says, sizeof says, "1 bytes missing");
    refused(&r, says, "last byte");
    snprintf(says, sizeof says, "\"m\", which starts at byte %zu",
             8 + strlen(text) + 24);
    refused(&r, says, "last byte");
    r = parse(text, 12);
    refused(&r, "16 bytes missing", "two tensors");
    snprintf(says, sizeof says, "\"a\", which starts at byte %zu",
             8 + strlen(text) + 8);
    refused(&r, says, "two tensors");
    r = parse(text, 0); /* header only */
    refused(&r, "28 bytes missing", "header only");
    snprintf(says, sizeof says, "\"z\", which starts at byte %zu",
             8 + strlen(text));
    refused(&r, says, "header only");
}

Test(safetensors, long_foreign_names_leave_messages_whole)
{
    char text[2048], name[1024] = "";
    struct parsed r;

    for (int i = 0; i < 500; i++)
        memcpy(name + 2 * i, "\xc3\xa9", 3);
    snprintf(text, sizeof text, "{\"%s\":" T("F4", "[2]", "[0,8]") "}", name);
    r = parse(text, 8);
    refused(&r, "dtype \"F4\"", "long name");
}

Test(safetensors, header_may_be_mapped_alone)
{
    static const char text[] = "{\"a\":" T("F32", "[1024]", "[0,4096]") "}";
    unsigned char image[8 + sizeof text - 1] = { sizeof text - 1 };
    struct seam_st_header h = { 0 };
    struct seam_error err;

    memcpy(image + 8, text, sizeof text - 1);
    cr_expect_eq(seam_st_parse(&h, FILE_NAME, image, sizeof image,
                               sizeof image + 4096, &err),
                 0, "%s", err.text);
    seam_st_release(&h);
    cr_expect_eq(seam_st_parse(&h, FILE_NAME, image, sizeof image - 1,
                               sizeof image + 4096, &err),
                 SEAM_EDATA);
}

/* clang-format on */

/* ---- The index ---------------------------------------------------------- */

static int index_of(struct seam_index *x, const char *text,
                    struct seam_error *err)
{
    char *own = strdup(text);

    cr_assert_not_null(own);
    return seam_index_parse(x, "index", own, strlen(own), err);
}

Test(index, reads_entries_sorted_and_files_once)
{
    struct seam_index x = { 0 };
    struct seam_error err;
    int rc = index_of(&x,
                      "{\"metadata\": {\"total_size\": 1, \"x\": [1.5e3, "
                      "null, {\"y\": [true, false, -0.5]}]},\n\"weight_map\": "
                      "{\"b\": \"2.safetensors\", \"a\": \"1.safetensors\", "
                      "\"c\": \"2.safetensors\"}}",
                      &err);

    cr_assert_eq(rc, 0, "%s", err.text);
    cr_expect_eq(x.n, 3);
    cr_expect_eq(x.n_files, 2);
    cr_expect_str_eq(x.e[0].name, "a");
    cr_expect_str_eq(x.file[x.e[0].file], "1.safetensors");
    cr_expect_eq(x.e[1].file, x.e[2].file);
    seam_index_release(&x);
}

Test(index, refuses_what_is_not_a_plain_file_name)
{
    static const char *const bad[] = {
        "../o/x.safetensors",
        "/tmp/o/x.safetensors",
        "a/../../o/x.safetensors",
        "",
        ".",
        "..",
        "x\\\\y.safetensors",
        "x\\ny.safetensors",
        "x.bin",
        ".safetensors",
        "x\\u0000y.safetensors",
        "x\\u007f.safetensors",
    };
    struct seam_index x = { 0 };
    struct seam_error err;
    char text[6000], name[5001];

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        snprintf(text, sizeof text, "{\"weight_map\":{\"t\":\"%s\"}}", bad[i]);
        cr_expect_eq(index_of(&x, text, &err), SEAM_EDATA, "%s", bad[i]);
        cr_expect(strstr(err.text, "tensor \"t\""), "%s", err.text);
    }
    memset(name, 'a', 5000);
    memcpy(name + 4988, ".safetensors", 13);
    snprintf(text, sizeof text, "{\"weight_map\":{\"t\":\"%s\"}}", name);
    cr_expect_eq(index_of(&x, text, &err), SEAM_EDATA);
    cr_expect(strstr(err.text, "5000 bytes"), "%s", err.text);
    memmove(name, name + 5000 - 255, 256);
    snprintf(text, sizeof text, "{\"weight_map\":{\"t\":\"%s\"}}", name);
    cr_expect_eq(index_of(&x, text, &err), 0, "%s", err.text);
    seam_index_release(&x);
}

Test(index, refuses_what_is_not_an_index)
{
    static const struct {
        const char *text, *says;
    } all[] = {
        { "", "an object" },
        { "[]", "an object" },
        { "{}", "weight_map: found nothing" },
        { "{\"weight_map\":[]}", "an object" },
        { "{\"weight_map\":{\"a\":1}}", "a string" },
        { "{\"weight_map\":{},\"weight_map\":{}}", "duplicate" },
        { "{\"weight_map\":{\"a\":\"x.safetensors\",\"a\":\"x.safetensors\"}}",
          "duplicate name \"a\"" },
        { "{\"weight_map\":{}} {}", "the end" },
        { "{\"x\":tru,\"weight_map\":{}}", "a JSON value" },
        { "{\"x\":01,\"weight_map\":{}}", "a JSON value" },
        { "{\"x\":1.,\"weight_map\":{}}", "digits" },
        { "{\"x\":1e,\"weight_map\":{}}", "digits" },
        { "{\"x\":-,\"weight_map\":{}}", "a JSON value" },
        { "{\"x\":[1,],\"weight_map\":{}}", "a JSON value" },
        { "{\"x\":{\"a\"},\"weight_map\":{}}", "':'" },
        { "{\"x\":[1}", "',' or ']'" },
        { "{\"x\":", "a JSON value" },
        { "{\"x\":\"\xff\",\"weight_map\":{}}", "not UTF-8" },
    };
    struct seam_index x = { 0 };
    struct seam_error err;

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        cr_expect_eq(index_of(&x, all[i].text, &err), SEAM_EDATA, "%s",
                     all[i].text);
        cr_expect(strstr(err.text, all[i].says), "\"%s\" lacks \"%s\"",
                  err.text, all[i].says);
    }
}

Test(index, bounds_nesting_and_files)
{
    struct seam_index x = { 0 };
    struct seam_error err;
    char *text = malloc(1 << 20), *to;

    cr_assert_not_null(text);
    to = text + sprintf(text, "{\"x\":");
    memset(to, '[', 100000);
    to[100000] = 0;
    cr_expect_eq(index_of(&x, text, &err), SEAM_EDATA);
    cr_expect(strstr(err.text, "less nesting"), "%s", err.text);

    for (int n = SEAM_INDEX_MAX_FILES; n <= SEAM_INDEX_MAX_FILES + 1; n++) {
        to = text + sprintf(text, "{\"weight_map\":{");
        for (int i = 0; i < n; i++)
            to += sprintf(to, "%s\"t%d\":\"f%d.safetensors\"", i ? "," : "", i,
                          i);
        sprintf(to, "}}");
        if (n == SEAM_INDEX_MAX_FILES) {
            cr_expect_eq(index_of(&x, text, &err), 0, "%s", err.text);
            cr_expect_eq(x.n_files, (uint32_t)n);
            seam_index_release(&x);
        } else {
            cr_expect_eq(index_of(&x, text, &err), SEAM_EDATA);
        }
    }
    free(text);
}
