#include <criterion/criterion.h>
#include <jansson.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/base/utf8.h"
#include "core/tokenizer/bpe.h"
#include "core/tokenizer/split.h"
#include "core/tokenizer/tokenizer.h"

#define NANO  SEAM_TEST_SOURCE_DIR "/models/nano/"
#define SMALL SEAM_TEST_SOURCE_DIR "/tests/tokenizer/small.json"

/* The expression of the GLM family, as their tokenizer.json has it. */
#define GLM                                                                  \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}" \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* ---- Helpers ------------------------------------------------------------- */

static struct seam_tokenizer *open_file(const char *path)
{
    struct seam_tokenizer *t = NULL;
    struct seam_error err;

    cr_assert_eq(seam_tokenizer_open(&t, path, &err), 0, "%s", err.text);
    return t;
}

static struct seam_tokenizer *nano(void)
{
    return open_file(NANO "bf16/tokenizer.json");
}

static char *read_text(const char *path, uint64_t *n)
{
    struct seam_error err;
    char *text = NULL;

    cr_assert_eq(seam_file_read(path, 1 << 26, &text, n, &err), 0, "%s",
                 err.text);
    return text;
}

static json_t *small_document(void)
{
    json_t *doc = json_load_file(SMALL, 0, NULL);

    cr_assert_not_null(doc);
    return doc;
}

static int parse_document(struct seam_tokenizer **t, const json_t *doc,
                          struct seam_error *err)
{
    char *text = json_dumps(doc, JSON_ENCODE_ANY);
    int rc = seam_tokenizer_parse(t, "t.json", text, strlen(text), err);

    free(text);
    return rc;
}

/* Takes the document. */
static struct seam_tokenizer *tokenizer_of(json_t *doc)
{
    struct seam_tokenizer *t = NULL;
    struct seam_error err;

    cr_assert_eq(parse_document(&t, doc, &err), 0, "%s", err.text);
    json_decref(doc);
    return t;
}

static struct seam_ids encode(const struct seam_tokenizer *t, const char *p,
                              size_t n, bool added)
{
    struct seam_ids ids = { 0 };
    struct seam_error err;

    cr_assert_eq(seam_tokenizer_encode(t, p, n, added, &ids, &err), 0, "%s",
                 err.text);
    return ids;
}

static struct seam_buf decode(const struct seam_tokenizer *t,
                              const struct seam_ids *ids)
{
    struct seam_buf b = { 0 };
    struct seam_str s;

    for (size_t i = 0; i < ids->n; i++) {
        cr_assert(seam_tokenizer_bytes(t, ids->v[i], &s), "id %d has no bytes",
                  ids->v[i]);
        seam_buf_add(&b, s.p, s.n);
    }
    return b;
}

/* The bytes of the tokens of text, with '|' between; "<id>" would be unclear
 * for text with a '|', which no caller has. */
static char *pieces(const struct seam_tokenizer *t, const char *text,
                    bool added)
{
    static char line[4096];
    struct seam_ids ids = encode(t, text, strlen(text), added);
    struct seam_str s;
    size_t n = 0;

    for (size_t i = 0; i < ids.n; i++) {
        cr_assert(seam_tokenizer_bytes(t, ids.v[i], &s));
        cr_assert_lt(n + s.n + 1, sizeof line);
        if (i)
            line[n++] = '|';
        memcpy(line + n, s.p, s.n);
        n += s.n;
    }
    line[n] = 0;
    seam_ids_release(&ids);
    return line;
}

static bool has_added(const struct seam_tokenizer *t,
                      const struct seam_ids *ids)
{
    for (size_t i = 0; i < ids->n; i++)
        if (seam_tokenizer_flags(t, ids->v[i]) & SEAM_TOKEN_ADDED)
            return true;
    return false;
}

static void expect_round_trip(const struct seam_tokenizer *t, const char *p,
                              size_t n, const char *what)
{
    struct seam_ids ids = encode(t, p, n, false);
    struct seam_buf b = decode(t, &ids);

    cr_expect_not(has_added(t, &ids), "%s: text became an added token", what);
    cr_expect_eq(b.n, n, "%s: %zu bytes of %zu came back", what, b.n, n);
    cr_expect(b.n != n || !memcmp(b.p ? b.p : "", p, n), "%s: other bytes",
              what);
    seam_ids_release(&ids);
    seam_buf_release(&b);
}

static uint64_t next_random(uint64_t *x)
{
    *x = *x * 6364136223846793005u + 1442695040888963407u;
    return *x >> 33;
}

/* The parts of text, with '|' between. */
static char *parts(const char *regex, const char *text, size_t n)
{
    static char line[4096];
    struct seam_split *s = NULL;
    struct seam_split_work w = { 0 };
    struct seam_split_pass q;
    struct seam_error err;
    size_t from, to, at = 0, done = 0;
    int rc;

    cr_assert_eq(seam_split_new(&s, "t", regex, strlen(regex), &err), 0, "%s",
                 err.text);
    cr_assert_eq(seam_split_begin(&q, s, &w, text, n), 0);
    while ((rc = seam_split_next(&q, &from, &to, &err)) > 0) {
        cr_assert_eq(from, done);
        cr_assert_lt(from, to);
        cr_assert_leq(to, n);
        cr_assert_lt(at + to - from + 1, sizeof line);
        if (from)
            line[at++] = '|';
        memcpy(line + at, text + from, to - from);
        at += to - from;
        done = to;
    }
    cr_assert_eq(rc, 0, "%s", err.text);
    cr_assert_eq(done, n);
    line[at] = 0;
    seam_split_work_release(&w);
    seam_split_free(s);
    return line;
}

static void expect_parts(const char *text, const char *expected)
{
    char *found = parts(GLM, text, strlen(text));

    cr_expect_str_eq(found, expected, "\"%s\", not \"%s\"", found, expected);
}

/* ---- The nano model's vectors -------------------------------------------- */

Test(tokenizer, gives_the_ids_of_the_reference_prompts)
{
    struct seam_tokenizer *t = nano();
    uint64_t n;
    char *text = read_text(NANO "golden_greedy.jsonl", &n), *save = NULL;
    int n_lines = 0;

    for (char *line = strtok_r(text, "\n", &save); line;
         line = strtok_r(NULL, "\n", &save), n_lines++) {
        json_t *v = json_loads(line, 0, NULL);
        json_t *ids = json_object_get(v, "ids");
        const json_t *prompt = json_object_get(v, "prompt");
        struct seam_ids got = encode(t, json_string_value(prompt),
                                     json_string_length(prompt), true);
        struct seam_buf back = decode(t, &got);
        size_t i;
        json_t *id;

        cr_assert_eq(got.n, json_array_size(ids), "line %d: %zu ids, not %zu",
                     n_lines, got.n, json_array_size(ids));
        json_array_foreach(ids, i, id) cr_assert_eq(
            got.v[i], json_integer_value(id), "line %d, token %zu: %d, not %d",
            n_lines, i, got.v[i], (int)json_integer_value(id));
        cr_expect_str_eq(back.p, json_string_value(prompt));
        seam_buf_release(&back);
        seam_ids_release(&got);
        json_decref(v);
    }
    cr_assert_eq(n_lines, 20);
    free(text);
    seam_tokenizer_free(t);
}

Test(tokenizer, gives_as_many_tokens_for_the_evaluation_text_as_the_reference)
{
    struct seam_tokenizer *t = nano();
    uint64_t n;
    char *text = read_text(NANO "eval_text.txt", &n);
    struct seam_ids got = encode(t, text, n, false);

    cr_expect_eq(got.n, 20266, "%zu tokens, not 20266", got.n);
    expect_round_trip(t, text, n, "eval_text.txt");
    seam_ids_release(&got);
    free(text);
    seam_tokenizer_free(t);
}

Test(tokenizer, knows_its_tokens_by_id_and_by_spelling)
{
    struct seam_tokenizer *t = nano();
    struct seam_str s;

    cr_expect_eq(seam_tokenizer_size(t), 6136);
    cr_expect_eq(seam_tokenizer_id(t, "<|assistant|>", 13), 6108);
    cr_expect_eq(seam_tokenizer_id(t, "!", 1), 0);
    cr_expect_eq(seam_tokenizer_id(t,
                                   "\xc4\xa0"
                                   "Max",
                                   5),
                 6099);
    cr_expect_eq(seam_tokenizer_id(t, " Max", 4), SEAM_ENOENT);
    cr_expect_eq(seam_tokenizer_id(t, "", 0), SEAM_ENOENT);
    cr_expect_eq(seam_tokenizer_id(t, "no such token", 13), SEAM_ENOENT);
    cr_assert(seam_tokenizer_bytes(t, 6099, &s));
    cr_expect(s.n == 4 && !memcmp(s.p, " Max", 4));
    cr_expect_eq(seam_tokenizer_flags(t, 6099), 0);
    cr_expect_eq(seam_tokenizer_flags(t, 6108),
                 SEAM_TOKEN_ADDED | SEAM_TOKEN_SPECIAL);
    cr_expect_eq(seam_tokenizer_flags(t, 6121), SEAM_TOKEN_ADDED);
    for (int32_t id = 0; id < (int32_t)seam_tokenizer_size(t); id++)
        cr_assert(seam_tokenizer_bytes(t, id, &s), "id %d", id);
    seam_tokenizer_free(t);
}

Test(tokenizer, has_no_bytes_for_ids_that_are_not_in_use)
{
    struct seam_tokenizer *t = open_file(SMALL);
    uint32_t size = seam_tokenizer_size(t);
    struct seam_str s;

    /* A hole in the middle, and padding rows of the embedding. */
    cr_expect_not(seam_tokenizer_bytes(t, 305, &s));
    cr_expect_not(seam_tokenizer_bytes(t, (int32_t)size, &s));
    cr_expect_not(seam_tokenizer_bytes(t, INT32_MAX, &s));
    cr_expect_not(seam_tokenizer_bytes(t, -1, &s));
    cr_expect_eq(seam_tokenizer_flags(t, (int32_t)size), 0);
    cr_expect_eq(seam_tokenizer_flags(t, -1), 0);
    cr_expect(seam_tokenizer_bytes(t, (int32_t)size - 1, &s));
    seam_tokenizer_free(t);
}

/* ---- The pre-tokeniser --------------------------------------------------- */

Test(split, follows_the_alternatives_in_their_order)
{
    expect_parts("I'LL 1234  x\n\n y", "I|'LL| |123|4| | x|\n\n| y");
    expect_parts("", "");
    expect_parts("a", "a");
    expect_parts("they've we'd", "they|'ve| we|'d");
    expect_parts("'x 'S", "'x| '|S");
    expect_parts("!abc", "!abc");
    expect_parts("!!abc", "!!|abc");
    expect_parts(" !?\r\n\n x", " !?\r\n\n| x");
    expect_parts("\tx", "\tx");
    expect_parts("\nx", "\n|x");
    expect_parts("  \n \t\n  x", "  \n \t\n| | x");
    expect_parts("x   ", "x|   ");
    expect_parts("   x", "  | x");
    expect_parts("   1", "  | |1");
    expect_parts(" 12", " |12");
    expect_parts("x \n", "x| \n");
    /* Marks are neither letters nor numbers. */
    expect_parts("e\xcc\x81"
                 "a",
                 "e|\xcc\x81"
                 "a");
    /* Roman numeral twelve and one half are numbers. */
    expect_parts("\xe2\x85\xab\xc2\xbd"
                 "7 8",
                 "\xe2\x85\xab\xc2\xbd"
                 "7| |8");
}

/* Oniguruma's reading: s, S and U+017F are one letter without case. */
Test(split, takes_long_s_for_s_in_contractions)
{
    expect_parts("x'\xc5\xbf"
                 "a",
                 "x|'\xc5\xbf|a");
    expect_parts("x'\xc5\xa1"
                 "a",
                 "x|'\xc5\xa1"
                 "a");
}

Test(split, knows_exactly_the_white_space_of_unicode)
{
    struct seam_split *s = NULL;
    struct seam_split_work w = { 0 };
    struct seam_error err;
    uint32_t n_found = 0;

    cr_assert_eq(seam_split_new(&s, "t", "\\s", 2, &err), 0, "%s", err.text);
    for (uint32_t cp = 0; cp < 0x110000; cp++) {
        static const uint32_t single[] = { 0x20,   0x85,   0xa0,
                                           0x1680, 0x2028, 0x2029,
                                           0x202f, 0x205f, 0x3000 };
        bool expected = (cp >= 9 && cp <= 13) || (cp >= 0x2000 && cp <= 0x200a);
        struct seam_split_pass q;
        size_t from, to;
        char text[8] = { 0 };
        size_t n;

        if (cp >= 0xd800 && cp < 0xe000)
            continue;
        for (size_t i = 0; i < sizeof single / sizeof *single; i++)
            expected |= single[i] == cp;
        if (cp < 0x80) {
            text[0] = (char)cp;
            n = 1;
        } else if (cp < 0x800) {
            text[0] = (char)(0xc0 | cp >> 6);
            n = 2;
        } else if (cp < 0x10000) {
            text[0] = (char)(0xe0 | cp >> 12);
            n = 3;
        } else {
            text[0] = (char)(0xf0 | cp >> 18);
            n = 4;
        }
        for (size_t i = 1; i < n; i++)
            text[i] = (char)(0x80 | (cp >> 6 * (n - 1 - i) & 0x3f));
        /* "C1": one part when C does not match, two when it does. */
        text[n] = '1';
        cr_assert_eq(seam_split_begin(&q, s, &w, text, n + 1), 0);
        cr_assert_eq(seam_split_next(&q, &from, &to, &err), 1);
        cr_assert_eq(to == n, expected, "U+%04X", cp);
        n_found += to == n;
    }
    cr_expect_eq(n_found, 25);
    seam_split_work_release(&w);
    seam_split_free(s);
}

Test(split, takes_each_bad_byte_for_a_symbol)
{
    static const struct {
        const char *text, *expected;
    } rows[] = {
        { "a\xff", "a|\xff" },
        { " \xff\xfe\n x", " \xff\xfe\n| x" },
        { "  \xff", " | \xff" },    /* as "  !" is cut */
        { "\xffword", "\xffword" }, /* as "!word" is */
        { "\xe6\x9e", "\xe6\x9e" }, /* a cut character */
        { "\xe6\x9e\xe6\x9e\x97", "\xe6\x9e|\xe6\x9e\x97" },
        { "\xed\xa0\x80"
          "1",
          "\xed\xa0\x80|1" },       /* a surrogate */
        { "\xc0\x80", "\xc0\x80" }, /* an overlong form */
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *found = parts(GLM, rows[i].text, strlen(rows[i].text));

        cr_expect_str_eq(found, rows[i].expected, "row %zu: \"%s\"", i, found);
    }
    cr_expect_str_eq(parts(GLM, "a\0b", 3), "a|");
}

Test(split, hands_out_what_lies_between_matches)
{
    cr_expect_str_eq(parts("b+", "abbcb", 5), "a|bb|c|b");
    cr_expect_str_eq(parts("x", "abc", 3), "abc");
    cr_expect_str_eq(parts("(?<=a)b", "abab", 4), "a|b|a|b");
    cr_expect_str_eq(parts("^a", "a\na", 3), "a|\n|a");
}

Test(split, refuses_what_the_two_engines_read_differently)
{
    static const struct {
        const char *regex, *why;
    } rows[] = {
        { "\\w+", "an escape at byte 0" },
        { "a\\b", "an escape at byte 1" },
        { "\\h", "an escape" },
        { "\\R", "an escape" },
        { "\\x41", "an escape" },
        { "\\", "an escape" },
        { "\\p{Han}", "a property" },
        { "\\pL", "a property" },
        { "\\p{", "a property" },
        { "\\p", "a property" },
        { "[[:alpha:]]", "a class in a class at byte 1" },
        { "[a-z&&b]", "an intersection" },
        { "[]a]", "a class that begins with ']'" },
        { "[^]a]", "a class that begins with ']'" },
        { "(?m:a.b)", "a group" },
        { "(?s).", "a group" },
        { "a(?i)b|c", "a group" },
        { "(?#x)a", "a group" },
        { "(*ANYCRLF)a", "a group" },
        { "a{1,2}+", "a quantifier on a quantifier" },
        { "a{2}?", "a quantifier on a quantifier" },
        { "a{,2}", "a quantifier without" },
        { "(?i:'ss)", "letters that may be one" },
        { "(?i:\xc3\x9f)", "letters that may be one" },
        { "(a", "does not compile" },
        { "a**b)", "does not compile" },
        { "\xff", "does not compile" },
        { "a*", "can match nothing" },
        { "", "can match nothing" },
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct seam_split *s = NULL;
        struct seam_error err = { 0 };

        cr_expect_eq(
            seam_split_new(&s, "t", rows[i].regex, strlen(rows[i].regex), &err),
            SEAM_EDATA, "%s", rows[i].regex);
        cr_expect_null(s);
        cr_expect(strstr(err.text, rows[i].why), "%s: %s", rows[i].regex,
                  err.text);
    }
}

Test(split, gives_up_on_an_expression_that_explodes)
{
    static const char regex[] = "(?:a+)+b|a";
    static char text[4096];
    struct seam_split *s = NULL;
    struct seam_split_work w = { 0 };
    struct seam_split_pass q;
    struct seam_error err = { 0 };
    size_t from, to;

    memset(text, 'a', sizeof text);
    cr_assert_eq(seam_split_new(&s, "t", regex, sizeof regex - 1, &err), 0,
                 "%s", err.text);
    cr_assert_eq(seam_split_begin(&q, s, &w, text, sizeof text), 0);
    cr_expect_eq(seam_split_next(&q, &from, &to, &err), SEAM_EDATA);
    cr_expect(strstr(err.text, "gave up at byte 0 of 4096"), "%s", err.text);
    seam_split_work_release(&w);
    seam_split_free(s);
}

/* ---- A made-up vocabulary ------------------------------------------------ */

/* Chat spec, B34. */
Test(tokenizer, takes_a_whole_word_that_no_merge_makes)
{
    static const char word[] = " \xe7\x8e\x8b";
    json_t *doc = small_document();
    struct seam_tokenizer *t = open_file(SMALL);
    struct seam_ids ids = encode(t, word, 4, false);

    cr_expect_eq(ids.n, 1, "%zu tokens", ids.n);
    seam_ids_release(&ids);
    cr_expect_str_eq(pieces(t, "unreachable", false), "unreachable");
    /* Only as a whole pre-token. */
    cr_expect_str_eq(pieces(t, "unreachables", false),
                     "u|n|r|e|a|c|h|a|b|l|e|s");
    seam_tokenizer_free(t);

    json_object_set_new(json_object_get(doc, "model"), "ignore_merges",
                        json_false());
    t = tokenizer_of(doc);
    ids = encode(t, word, 4, false);
    cr_expect_eq(ids.n, 4, "%zu tokens", ids.n);
    seam_ids_release(&ids);
    cr_expect_str_eq(pieces(t, "unreachable", false), "u|n|r|e|a|c|h|a|b|l|e");
    seam_tokenizer_free(t);
}

Test(tokenizer, merges_the_lowest_rank_first_and_the_leftmost_of_equals)
{
    struct seam_tokenizer *t = open_file(SMALL);

    cr_expect_str_eq(pieces(t, "hello the world", false), "hello| the| world");
    cr_expect_str_eq(pieces(t, "aaa", false), "aa|a");
    cr_expect_str_eq(pieces(t, "aaaaaaaaaaaaaaa", false), "aaaaaaaa|aaaa|aa|a");
    /* "l"+"l" has a lower rank than "l"+"o". */
    cr_expect_str_eq(pieces(t, "llo", false), "ll|o");
    cr_expect_str_eq(pieces(t, "1230", false), "123|0");
    /* Bytes of two characters do not meet across pre-tokens, but do inside. */
    cr_expect_str_eq(pieces(t, "\xf0\x9f\x98\x80", false), "\xf0\x9f\x98|\x80");
    seam_tokenizer_free(t);
}

Test(tokenizer, reads_merges_as_strings_and_as_pairs)
{
    json_t *doc = small_document(), *merge;
    json_t *model = json_object_get(doc, "model"), *pairs = json_array();
    struct seam_tokenizer *a, *b;
    uint64_t n;
    char *text = read_text(NANO "eval_text.txt", &n);
    struct seam_ids x, y;
    size_t i;

    json_array_foreach(json_object_get(model, "merges"), i, merge)
    {
        const char *s = json_string_value(merge);
        const char *blank = strchr(s, ' ');

        json_array_append_new(
            pairs, json_pack("[s%s]", s, (size_t)(blank - s), blank + 1));
    }
    json_object_set_new(model, "merges", pairs);
    a = open_file(SMALL);
    b = tokenizer_of(doc);
    x = encode(a, text, n, true);
    y = encode(b, text, n, true);
    cr_expect_eq(x.n, y.n);
    cr_expect(x.n == y.n && !memcmp(x.v, y.v, x.n * sizeof *x.v));
    seam_ids_release(&x);
    seam_ids_release(&y);
    seam_tokenizer_free(a);
    seam_tokenizer_free(b);
    free(text);
}

/* The reference keeps one rank per pair, and the last one wins. */
Test(tokenizer, keeps_the_last_rank_of_a_pair_that_comes_twice)
{
    json_t *doc = small_document();
    json_t *model = json_object_get(doc, "model");
    struct seam_tokenizer *t;

    json_object_set_new(model, "ignore_merges", json_false());
    json_array_append_new(json_object_get(model, "merges"), json_string("l l"));
    t = tokenizer_of(doc);
    cr_expect_str_eq(pieces(t, "llo", false), "l|lo");
    seam_tokenizer_free(t);
}

Test(tokenizer, decodes_a_piece_spelled_in_other_letters_as_it_stands)
{
    struct seam_tokenizer *t = open_file(SMALL);
    int32_t id = seam_tokenizer_id(t, "\xe6\x97\xa5", 3);
    struct seam_str s;

    cr_assert_geq(id, 0);
    cr_assert(seam_tokenizer_bytes(t, id, &s));
    cr_expect(s.n == 3 && !memcmp(s.p, "\xe6\x97\xa5", 3));
    cr_expect_eq(seam_tokenizer_flags(t, id), 0);
    /* No text becomes it. */
    cr_expect_str_eq(pieces(t, "\xe6\x97\xa5", false), "\xe6|\x97|\xa5");
    seam_tokenizer_free(t);
}

/* ---- Added tokens -------------------------------------------------------- */

Test(tokenizer, finds_the_leftmost_and_longest_added_token)
{
    struct seam_tokenizer *t = open_file(SMALL);
    int32_t user = seam_tokenizer_id(t, "<|user|>", 8);
    struct seam_ids ids;

    cr_expect_str_eq(pieces(t, "a<think>b</think>", true),
                     "a|<think>|b|</think>");
    cr_expect_str_eq(pieces(t, "[ MASK ][ MASK", true), "[ MASK ]|[| |M|A|S|K");
    cr_expect_str_eq(pieces(t, "x<both>y", true), "x|<both>|y");
    cr_expect_str_eq(pieces(t, "\xe6\x9e\x97\xe6\x9e\x97\xe6\x9e\x97", true),
                     "\xe6\x9e\x97\xe6\x9e\x97|\xe6\x9e\x97");
    /* "<t" begins where "<think>" would have. */
    cr_expect_str_eq(pieces(t, "<tx", true), "<t|x");
    ids = encode(t, "<|user|>x<|user|><|user|", 24, true);
    cr_assert_geq(ids.n, 3);
    cr_expect_eq(ids.v[0], seam_tokenizer_id(t, "<|user|>x", 9));
    cr_expect_eq(ids.v[1], user);
    cr_expect_neq(ids.v[2], user);
    seam_ids_release(&ids);
    seam_tokenizer_free(t);
}

static struct seam_tokenizer *with_added(const char *content, const char *flag)
{
    json_t *doc = small_document();
    json_t *list = json_object_get(doc, "added_tokens");

    json_array_append_new(
        list, json_pack("{si ss sb}", "id", 400, "content", content, flag, 1));
    return tokenizer_of(doc);
}

Test(tokenizer, lets_added_tokens_take_white_space_along)
{
    struct seam_tokenizer *t = with_added("<L>", "lstrip");

    cr_expect_str_eq(pieces(t, "a \n\xe3\x80\x80<L> b", true), "a|<L>| |b");
    cr_expect_str_eq(pieces(t, "  <L>  <L>x", true), "<L>|<L>|x");
    /* What the token before has taken is gone. */
    cr_expect_str_eq(pieces(t, "<think> <L>", true), "<think>|<L>");
    /* U+200B is not white space, a byte that is not UTF-8 neither. */
    cr_expect_str_eq(pieces(t, "\xff <L>", true), "\xff|<L>");
    seam_tokenizer_free(t);

    t = with_added("<R>", "rstrip");
    cr_expect_str_eq(pieces(t,
                            "a <R> \n\xc2\x85"
                            "b",
                            true),
                     "a| |<R>|b");
    cr_expect_str_eq(pieces(t, "<R>  ", true), "<R>");
    cr_expect_str_eq(pieces(t, "<R> \x85", true), "<R>|\x85");
    seam_tokenizer_free(t);
}

Test(tokenizer, finds_single_words_only_where_they_stand_alone)
{
    struct seam_tokenizer *t = with_added("WW", "single_word");
    int32_t id = seam_tokenizer_id(t, "WW", 2);
    static const struct {
        const char *text;
        bool found;
    } rows[] = {
        { "WW", true },
        { " WW ", true },
        { "-WW-", true },
        { "aWW", false },
        { "WWa", false },
        { "_WW", false },
        { "WW1", false },
        { "\xc3\xa9WW", false },
        { "WW\xcc\x81", false },
        { "\xe7\x8e\x8bWW", false },
        { "WW\xe2\x80\x8d", false },
        { "\xffWW\xff", true },
        { "\xe2\x80\x94WW", true },
    };

    cr_assert_eq(id, 400);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct seam_ids ids =
            encode(t, rows[i].text, strlen(rows[i].text), true);
        bool found = has_added(t, &ids);

        cr_expect_eq(found, rows[i].found, "row %zu", i);
        seam_ids_release(&ids);
    }
    seam_tokenizer_free(t);
}

/* Two passes: tokens marked "normalized" get what the others have left. */
Test(tokenizer, looks_for_normalized_tokens_second)
{
    struct seam_tokenizer *t = with_added("ab</thin", "normalized");

    cr_expect_str_eq(pieces(t, "ab</thin", true), "ab</thin");
    cr_expect_str_eq(pieces(t, "ab</think>", true), "a|b|</think>");
    seam_tokenizer_free(t);
}

static void expect_text_stays_text(const struct seam_tokenizer *t)
{
    static const char *const around[][2] = {
        { "", "" },   { "ok", "done" },   { " ", "\n" },
        { "<", ">" }, { "\xff", "\xe6" },
    };

    for (int32_t id = 0; id < (int32_t)seam_tokenizer_size(t); id++) {
        struct seam_str s;

        if (!(seam_tokenizer_flags(t, id) & SEAM_TOKEN_ADDED))
            continue;
        cr_assert(seam_tokenizer_bytes(t, id, &s));
        for (size_t k = 0; k < sizeof around / sizeof *around; k++) {
            struct seam_buf b = { 0 };

            seam_buf_str(&b, around[k][0]);
            seam_buf_add(&b, s.p, s.n);
            seam_buf_add(&b, s.p, s.n);
            seam_buf_str(&b, around[k][1]);
            expect_round_trip(t, b.p, b.n, b.p);
            seam_buf_release(&b);
        }
    }
}

Test(tokenizer, never_makes_an_added_token_of_plain_text)
{
    static const char text[] = "ok<|assistant|>done<|user|>hi";
    struct seam_tokenizer *t = nano();

    expect_round_trip(t, text, sizeof text - 1, text);
    expect_text_stays_text(t);
    seam_tokenizer_free(t);
    /* Here "<both>" is in the vocabulary too and whole words are taken. */
    t = open_file(SMALL);
    expect_text_stays_text(t);
    seam_tokenizer_free(t);
}

/* ---- Any bytes ----------------------------------------------------------- */

Test(tokenizer, gives_any_bytes_back)
{
    struct seam_tokenizer *t[] = { nano(), open_file(SMALL) };
    uint64_t seed = 7, x = seed;

    for (int i = 0; i < 3000; i++) {
        char text[96];
        size_t n = next_random(&x) % sizeof text;
        uint64_t range = i % 3 ? 256 : 16;

        for (size_t k = 0; k < n; k++)
            text[k] =
                (char)(next_random(&x) % range + (range == 16 ? 0x80 : 0));
        for (int k = 0; k < 2; k++) {
            expect_round_trip(t[k], text, n, "random bytes, seed 7");
            struct seam_ids ids = encode(t[k], text, n, true);
            struct seam_buf b = decode(t[k], &ids);

            cr_expect(b.n == n && (!n || !memcmp(b.p, text, n)));
            seam_ids_release(&ids);
            seam_buf_release(&b);
        }
    }
    seam_tokenizer_free(t[0]);
    seam_tokenizer_free(t[1]);
}

Test(tokenizer, appends_to_what_is_there_and_takes_back_what_failed)
{
    json_t *doc = small_document();
    json_t *list =
        json_object_get(json_object_get(doc, "pre_tokenizer"), "pretokenizers");
    struct seam_tokenizer *t;
    struct seam_ids ids = { 0 };
    struct seam_error err;
    static char text[4096];

    json_object_set_new(json_object_get(json_array_get(list, 0), "pattern"),
                        "Regex", json_string("x|(?:a+)+b"));
    t = tokenizer_of(doc);
    cr_assert_eq(seam_tokenizer_encode(t, "x", 1, false, &ids, &err), 0);
    cr_assert_eq(seam_tokenizer_encode(t, "xx", 2, false, &ids, &err), 0);
    cr_expect_eq(ids.n, 3);
    memset(text, 'a', sizeof text);
    text[0] = 'x';
    cr_expect_eq(seam_tokenizer_encode(t, text, sizeof text, false, &ids, &err),
                 SEAM_EDATA);
    cr_expect_eq(ids.n, 3, "%zu ids", ids.n);
    cr_expect_eq(seam_tokenizer_encode(t, NULL, 0, true, &ids, &err), 0);
    cr_expect_eq(ids.n, 3);
    seam_ids_release(&ids);
    seam_tokenizer_free(t);
}

Test(tokenizer, gives_up_on_text_of_more_ids_than_it_may_have)
{
    struct seam_tokenizer *t = nano();
    struct seam_ids ids = { 0 };
    struct seam_error err;
    static char text[SEAM_MAX_WORD + 1];
    static const char few[] = "one two <|user|> three";
    size_t n;

    cr_assert_eq(
        seam_tokenizer_encode(t, few, sizeof few - 1, true, &ids, &err), 0);
    n = ids.n;
    cr_expect_eq(seam_tokenizer_encode_max(t, few, sizeof few - 1, true, 2 * n,
                                           &ids, &err),
                 0);
    cr_expect_eq(ids.n, 2 * n);
    for (size_t max = 2 * n; max < 3 * n; max++) {
        cr_expect_eq(seam_tokenizer_encode_max(t, few, sizeof few - 1, true,
                                               max, &ids, &err),
                     SEAM_ETOOLONG, "%zu", max);
        cr_expect_eq(ids.n, 2 * n);
    }
    memset(text, 'a', sizeof text);
    cr_expect_eq(
        seam_tokenizer_encode_max(t, text, sizeof text, true, 100, &ids, &err),
        SEAM_ETOOLONG);
    cr_expect_eq(seam_tokenizer_encode(t, text, sizeof text, true, &ids, &err),
                 SEAM_ELONGWORD);
    cr_expect_eq(ids.n, 2 * n);
    text[9] = '1';
    cr_expect_eq(seam_tokenizer_encode(t, text, sizeof text, true, &ids, &err),
                 0);
    seam_ids_release(&ids);
    seam_tokenizer_free(t);
}

/* ---- Growth -------------------------------------------------------------- */

/* A chain of merges over powers of two of one byte, as a vocabulary with long
 * runs has: the worst case for the heap. */
static void run_vocabulary(struct seam_bpe *b, int n_merges)
{
    static char run[1 << 12];

    cr_assert_eq(seam_bpe_init(b, 256 + (uint32_t)n_merges,
                               256 + (uint32_t)n_merges, (uint32_t)n_merges),
                 0);
    for (uint32_t i = 0; i < 256; i++) {
        char c = (char)i;

        cr_assert_eq(seam_bpe_set(b, i, &c, 1, 0), 0);
        cr_assert(seam_bpe_index(b, i));
    }
    memset(run, 'a', sizeof run);
    for (int k = 0; k < n_merges; k++) {
        uint32_t left = k ? 255 + (uint32_t)k : 'a';

        cr_assert_eq(seam_bpe_set(b, 256 + (uint32_t)k, run, (size_t)2 << k, 0),
                     0);
        cr_assert(seam_bpe_index(b, 256 + (uint32_t)k));
        seam_bpe_add_merge(b, left, left, 256 + (uint32_t)k);
    }
}

static uint64_t steps_for(const struct seam_bpe *b, const char *p, size_t n)
{
    struct seam_bpe_work w = { 0 };
    struct seam_ids ids = { 0 };
    uint64_t steps;

    cr_assert_eq(seam_bpe_encode(b, &w, p, n, &ids), 0);
    cr_assert_gt(ids.n, 0);
    steps = w.n_steps;
    seam_bpe_work_release(&w);
    seam_ids_release(&ids);
    return steps;
}

/* Counted steps, not time: at most 2.6 times as many for twice the text, and
 * fewer than 64 per byte at 200,000. */
/* TK-2. */
Test(bpe, does_n_log_n_steps_on_one_long_word)
{
    static char text[200000];
    struct seam_bpe b;

    memset(text, 'a', sizeof text);
    for (int n_merges = 1; n_merges <= 11; n_merges += 5) {
        uint64_t before = 0;

        run_vocabulary(&b, n_merges);
        for (size_t n = 25000; n <= sizeof text; n *= 2) {
            uint64_t steps = steps_for(&b, text, n);

            cr_expect_lt(steps, 64 * n, "%d merges, %zu bytes: %zu steps",
                         n_merges, n, (size_t)steps);
            if (before)
                cr_expect_leq((double)steps / (double)before, 2.6,
                              "%d merges, %zu bytes: %zu steps after %zu",
                              n_merges, n, (size_t)steps, (size_t)before);
            before = steps;
        }
        seam_bpe_release(&b);
    }
}

/* The merge loop alone is not enough: cutting has to be linear too.  These end
 * in a refusal when the expression needs more steps than its share. */
Test(tokenizer, encodes_long_runs_of_anything)
{
    static const char *const units[] = {
        "_",
        "a",
        "\xe6\x9e\x97",
        " ",
        "\n",
        "\r\n",
        " \n",
        "7",
        "<",
        "\xff",
        "' ",
        "\xe3\x80\x80",
        "\xf0\x9f\x98\x80",
        "x ",
        "<|",
        "\xe6\x9e",
    };
    struct seam_tokenizer *t = nano();

    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        size_t unit = strlen(units[i]), n = 200000 * unit;
        char *text = malloc(n + 1);
        struct seam_ids ids;
        struct seam_buf b;

        cr_assert_not_null(text);
        for (size_t k = 0; k < n; k++)
            text[k] = units[i][k % unit];
        text[n] = 'x';
        ids = encode(t, text, n + 1, true);
        b = decode(t, &ids);
        cr_expect(b.n == n + 1 && !memcmp(b.p, text, n + 1), "unit %zu", i);
        seam_buf_release(&b);
        seam_ids_release(&ids);
        free(text);
    }
    seam_tokenizer_free(t);
}

/* ---- Piecewise ----------------------------------------------------------- */

Test(encoder, joins_text_pieces_and_ends_the_run_at_a_special_one)
{
    struct seam_tokenizer *t = nano();
    struct seam_ids ids = { 0 }, whole;
    struct seam_encoder e = { .t = t, .out = &ids };
    struct seam_error err;
    static const char text[] = "Hello, the world\xe6\x9e\x97 1234";

    /* Cut at every place, the character in the middle included. */
    whole = encode(t, text, sizeof text - 1, false);
    for (size_t cut = 0; cut < sizeof text; cut++) {
        ids.n = 0;
        cr_assert_eq(seam_encoder_text(&e, text, cut), 0);
        cr_assert_eq(seam_encoder_text(&e, text + cut, sizeof text - 1 - cut),
                     0);
        cr_assert_eq(seam_encoder_end(&e, &err), 0);
        cr_expect(ids.n == whole.n &&
                      !memcmp(ids.v, whole.v, whole.n * sizeof *whole.v),
                  "cut at %zu", cut);
    }
    seam_ids_release(&whole);

    ids.n = 0;
    cr_assert_eq(seam_encoder_special(&e, "[gMASK]", 7, &err), 0);
    cr_assert_eq(seam_encoder_text(&e, "<sop>", 5), 0);
    cr_assert_eq(seam_encoder_special(&e, "<|user|>", 8, &err), 0);
    cr_assert_eq(seam_encoder_end(&e, &err), 0);
    cr_assert_gt(ids.n, 3);
    cr_expect_eq(ids.v[0], 6102);
    cr_expect_eq(ids.v[ids.n - 1], 6107);
    for (size_t i = 1; i + 1 < ids.n; i++)
        cr_expect_eq(seam_tokenizer_flags(t, ids.v[i]), 0);
    seam_encoder_release(&e);
    seam_ids_release(&ids);
    seam_tokenizer_free(t);
}

Test(encoder, refuses_special_pieces_that_are_no_added_tokens)
{
    struct seam_tokenizer *t = nano();
    struct seam_ids ids = { 0 };
    struct seam_encoder e = { .t = t, .out = &ids };
    struct seam_error err = { 0 };

    cr_expect_eq(seam_encoder_special(&e, "<nope>", 6, &err), SEAM_EDATA);
    cr_expect(strstr(err.text, "<nope>"), "%s", err.text);
    cr_expect_eq(seam_encoder_special(&e, "the", 3, &err), SEAM_EDATA);
    cr_expect_eq(seam_encoder_special(&e, "", 0, &err), SEAM_EDATA);
    cr_expect_eq(ids.n, 0);
    seam_encoder_release(&e);
    seam_ids_release(&ids);
    seam_tokenizer_free(t);
}

/* ---- Threads ------------------------------------------------------------- */

static void *encode_in_thread(void *arg)
{
    const struct seam_tokenizer *t = arg;
    uint64_t x = 3;

    for (int i = 0; i < 200; i++) {
        struct seam_ids ids = { 0 };
        char text[200];

        for (size_t k = 0; k < sizeof text; k++)
            text[k] = (char)(next_random(&x) % 96 + 32);
        if (seam_tokenizer_encode(t, text, sizeof text, i & 1, &ids, NULL))
            return arg;
        seam_ids_release(&ids);
    }
    return NULL;
}

Test(tokenizer, serves_several_threads_at_once)
{
    struct seam_tokenizer *t = nano();
    pthread_t thread[4];
    void *failed;

    for (int i = 0; i < 4; i++)
        cr_assert_eq(pthread_create(&thread[i], NULL, encode_in_thread, t), 0);
    for (int i = 0; i < 4; i++) {
        cr_assert_eq(pthread_join(thread[i], &failed), 0);
        cr_expect_null(failed);
    }
    seam_tokenizer_free(t);
}

/* ---- Refusals ------------------------------------------------------------ */

/* Put value (JSON text; "" removes) at a path of keys and indices. */
static void set_at(json_t *doc, const char *path, const char *value)
{
    char copy[128], *save = NULL, *key, *next;
    json_t *at = doc;
    json_t *v = *value ? json_loads(value, JSON_DECODE_ANY, NULL) : NULL;

    cr_assert(!*value || v, "%s", value);
    snprintf(copy, sizeof copy, "%s", path);
    for (key = strtok_r(copy, "/", &save); (next = strtok_r(NULL, "/", &save));
         key = next)
        at = json_is_array(at) ? json_array_get(at, strtoul(key, NULL, 10))
                               : json_object_get(at, key);
    cr_assert_not_null(at, "%s", path);
    if (json_is_array(at)) {
        size_t i = strtoul(key, NULL, 10);

        if (i == json_array_size(at))
            json_array_append_new(at, v);
        else if (v)
            json_array_set_new(at, i, v);
        else
            json_array_remove(at, i);
    } else if (v) {
        json_object_set_new(at, key, v);
    } else {
        json_object_del(at, key);
    }
}

Test(tokenizer, refuses_by_name_what_it_does_not_honour)
{
    static const struct {
        const char *path, *value, *why;
    } rows[] = {
        { "normalizer", "{\"type\":\"NFC\"}", "normalizer is an object" },
        { "truncation", "{}", "truncation is an object, expected null" },
        { "padding", "{}", "padding is an object" },
        { "version", "\"2.0\"", "version is \"2.0\", expected 1.0" },
        { "extra", "1", "extra is not a key" },
        { "decoder", "null", "decoder is null" },
        { "decoder/type", "\"Metaspace\"", "decoder.type is \"Metaspace\"" },
        { "decoder/x", "1", "decoder.x is not a key" },
        { "post_processor/type", "\"Other\"", "post_processor.type" },
        { "pre_tokenizer", "null", "pre_tokenizer is null" },
        { "pre_tokenizer/type", "\"ByteLevel\"", "pre_tokenizer.type" },
        { "pre_tokenizer/pretokenizers/2", "{}", "a list of 3" },
        { "pre_tokenizer/pretokenizers", "{}", "expected Split and ByteLevel" },
        { "pre_tokenizer/pretokenizers/0/behavior", "\"Removed\"",
          "pretokenizers[0].behavior is \"Removed\", expected Isolated" },
        { "pre_tokenizer/pretokenizers/0/invert", "true", "invert is true" },
        { "pre_tokenizer/pretokenizers/0/pattern", "{\"String\":\" \"}",
          "pattern.String is not a key" },
        { "pre_tokenizer/pretokenizers/0/pattern/Regex", "7",
          "Regex is a num" },
        { "pre_tokenizer/pretokenizers/0/pattern/Regex", "\"(\"",
          "does not compile" },
        { "pre_tokenizer/pretokenizers/1/add_prefix_space", "true",
          "add_prefix_space is true, expected false" },
        { "pre_tokenizer/pretokenizers/1/use_regex", "true", "use_regex" },
        { "model/type", "\"Unigram\"", "model.type is \"Unigram\"" },
        { "model/type", "", "model.type is missing" },
        { "model/dropout", "0.1", "model.dropout" },
        { "model/byte_fallback", "true", "model.byte_fallback is true" },
        { "model/continuing_subword_prefix", "\"##\"",
          "model.continuing_subword_prefix is \"##\"" },
        { "model/end_of_word_suffix", "\"</w>\"", "model.end_of_word_suffix" },
        { "model/ignore_merges", "1", "model.ignore_merges is a number" },
        { "model/cache", "1", "model.cache is not a key" },
        { "model", "[]", "model is a list, expected an object" },
        { "model/vocab", "[]", "model.vocab is a list" },
        { "model/merges", "{}", "model.merges is an object" },
        { "model/vocab/A", "", "no ordinary token for the byte 0x41" },
        { "model/vocab/A", "66", "is used twice" },
        { "model/vocab/A", "-1", "A is -1, expected 0 to 4194303" },
        { "model/vocab/A", "4194304", "A is 4194304" },
        { "model/vocab/A", "1.0", "A is a number, expected an integer" },
        { "model/vocab/A", "\"x\"", "A is \"x\"" },
        { "model/merges/0", "7", "model.merges[0] is a number" },
        { "model/merges/0", "[\"a\"]", "model.merges[0]" },
        { "model/merges/0", "[\"a\",7]", "model.merges[0]" },
        { "model/merges/0", "[\"a\",\"\"]", "model.merges[0]" },
        { "model/merges/0", "\"ab\"", "model.merges[0]" },
        { "model/merges/0", "\"a \"", "model.merges[0]" },
        { "model/merges/0", "\" \"", "model.merges[0]" },
        { "model/merges/3", "\"zz a\"",
          "merges[3]: the first of \"zz\" \"a\"" },
        { "model/merges/3", "\"a zz\"", "merges[3]: the second of" },
        { "model/merges/3", "\"z z\"", "merges[3]: what joins" },
        { "model/merges/3", "\"< both>\"", "merges[3]" },
        { "added_tokens", "{}", "added_tokens is an object" },
        { "added_tokens/0", "7", "added_tokens[0] is a number" },
        { "added_tokens/0/id", "\"7\"", "added_tokens[0].id is \"7\"" },
        { "added_tokens/0/id", "", "added_tokens[0].id is missing" },
        { "added_tokens/0/id", "65", "id 65 of \"A\" is used twice" },
        { "added_tokens/1/id", "311", "added_tokens[1]: id 311 is used twice" },
        { "added_tokens/0/id", "99999999", "is 99999999, expected" },
        { "added_tokens/0/content", "\"\"", "expected a string with text" },
        { "added_tokens/0/content", "null", "added_tokens[0].content is null" },
        { "added_tokens/0/content", "\"A\"", "\"A\" has id 311, but 65 in" },
        { "added_tokens/0/content", "\"<think>\"",
          "\"<think>\" is an added token twice" },
        { "added_tokens/0/lstrip", "1", "added_tokens[0].lstrip is a number" },
        { "added_tokens/0/rank", "1", "added_tokens[0].rank is not a key" },
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct seam_tokenizer *t = NULL;
        struct seam_error err = { 0 };
        json_t *doc = small_document();
        int rc;

        set_at(doc, rows[i].path, rows[i].value);
        rc = parse_document(&t, doc, &err);
        cr_expect_eq(rc, SEAM_EDATA, "row %zu: %s = %s: %d", i, rows[i].path,
                     rows[i].value, rc);
        cr_expect(strstr(err.text, rows[i].why) &&
                      !strncmp(err.text, "t.json: ", 8),
                  "row %zu: \"%s\" without \"%s\"", i, err.text, rows[i].why);
        seam_tokenizer_free(t);
        json_decref(doc);
    }
}

Test(tokenizer, refuses_text_that_is_no_tokenizer)
{
    static const char *const texts[] = {
        "", "{}", "[]", "7", "null", "{\"model\":", "\xff",
    };
    struct seam_tokenizer *t = NULL;
    struct seam_error err;

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        err = (struct seam_error){ 0 };
        cr_expect_eq(seam_tokenizer_parse(&t, "t.json", texts[i],
                                          strlen(texts[i]), &err),
                     SEAM_EDATA, "%s", texts[i]);
        cr_expect_eq(strncmp(err.text, "t.json:", 7), 0, "%s", err.text);
    }
    cr_expect_eq(seam_tokenizer_open(&t, NANO "no such file", &err),
                 SEAM_ENOENT);
    cr_expect_eq(seam_tokenizer_open(&t, NANO, &err), SEAM_EDATA);
    cr_expect_null(t);
    seam_tokenizer_free(NULL);
}

/* What has no effect on ids and bytes may stand there. */
Test(tokenizer, accepts_what_makes_no_difference)
{
    static const struct {
        const char *path, *value;
    } rows[] = {
        { "post_processor", "null" },
        { "post_processor", "" },
        { "post_processor", "{\"type\":\"TemplateProcessing\",\"single\":[]}" },
        { "added_tokens", "[]" },
        { "added_tokens", "" },
        { "normalizer", "" },
        { "version", "\"1.0\"" },
        { "model/dropout", "0" },
        { "model/unk_token", "\"<unk>\"" },
        { "model/continuing_subword_prefix", "\"\"" },
        { "model/ignore_merges", "" },
        { "model/fuse_unk", "true" },
        { "pre_tokenizer/pretokenizers/1/trim_offsets", "false" },
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        json_t *doc = small_document();
        struct seam_tokenizer *t;

        set_at(doc, rows[i].path, rows[i].value);
        t = tokenizer_of(doc);
        cr_expect_str_eq(pieces(t, "hello the world", true),
                         "hello| the| world");
        seam_tokenizer_free(t);
    }
}
