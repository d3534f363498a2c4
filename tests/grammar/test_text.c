/* Grammars in text notation. */
#include "rig.h"

/* ---- Words --------------------------------------------------------------- */

static void check_words(const char *grammar, const char *const *in,
                        const char *const *out)
{
    struct rig r = small();
    struct seam_matcher *m = text_matcher(&r, grammar, NULL, 0);

    for (; *in; in++)
        cr_expect(walk_accepts(m, r.t, *in, strlen(*in)),
                  "%s: \"%s\" is not accepted", grammar, *in);
    for (; *out; out++)
        cr_expect(!walk_accepts(m, r.t, *out, strlen(*out)),
                  "%s: \"%s\" is accepted", grammar, *out);
    check_masks(&r, m, grammar, 77, 60);
    seam_matcher_free(m);
    rig_close(&r);
}

#define WORDS(...) ((const char *const[]){ __VA_ARGS__, NULL })

Test(text, literals_choices_and_groups)
{
    check_words("root ::= \"ab\" | \"a\" (\"c\" | \"\") # comment\n\n  \"d\"",
                WORDS("ab", "acd", "ad"), WORDS("", "a", "ac", "abd", "add"));
}

Test(text, repetitions)
{
    check_words("root ::= \"a\"* \"b\"+ \"c\"? \"d\"{2} \"e\"{1,} \"f\"{0,2}",
                WORDS("bdde", "aabbcddeeff", "bddef"),
                WORDS("adde", "bde", "bddd", "bddefff", "bccdde", "bddde"));
}

Test(text, classes_and_escapes)
{
    check_words("root ::= [a-c_\\]-] [^a-c\\n] . \"\\x41\\u00e9\\U0001F600"
                "\\t\\\"\\\\\"",
                WORDS("axxA\xc3\xa9\xf0\x9f\x98\x80\t\"\\",
                      "]\xe6\x9e\x97\nA\xc3\xa9\xf0\x9f\x98\x80\t\"\\",
                      "-d\xf0\x9f\x98\x80"
                      "A\xc3\xa9\xf0\x9f\x98\x80\t\"\\"),
                WORDS("dxxA\xc3\xa9\xf0\x9f\x98\x80\t\"\\",
                      "aaxA\xc3\xa9\xf0\x9f\x98\x80\t\"\\",
                      "a\nxA\xc3\xa9\xf0\x9f\x98\x80\t\"\\"));
}

Test(text, recursion_on_the_right_and_in_the_middle)
{
    check_words("root ::= expr\n"
                "expr ::= term ((\"+\" | \"-\") term)*\n"
                "term ::= [0-9]+ | \"(\" expr \")\"\n",
                WORDS("1", "1+2", "(1+2)-3", "((((7))))", "12-(3+(4-5))"),
                WORDS("", "1+", "(1", "1)", "()", "+1"));
    check_words("root ::= \"a\" root \"b\" | \"\"", WORDS("", "ab", "aaabbb"),
                WORDS("a", "b", "aab", "abb", "ba"));
    check_words("root ::= \"a\" root | \"b\"", WORDS("b", "ab", "aaaaaaaab"),
                WORDS("", "a", "ba"));
}

/* Far more rounds than there are frames, since a call at the end pushes none. */
Test(text, right_recursion_has_no_depth)
{
    struct rig r = small();
    struct seam_matcher *m =
        text_matcher(&r, "root ::= @integer \",\" root | \"b\"", NULL, 0);
    int32_t one = seam_tokenizer_id(r.t, "1", 1);
    int32_t comma = seam_tokenizer_id(r.t, ",", 1);

    for (int i = 0; i < 3000; i++) {
        cr_assert_eq(seam_matcher_accept(m, one, NULL), 1);
        cr_assert_eq(seam_matcher_accept(m, comma, NULL), 1);
    }
    check_mask(&r, m, "right recursion");
    seam_matcher_free(m);
    rig_close(&r);
}

Test(text, counted_characters)
{
    struct rig r = small();
    struct seam_matcher *m =
        text_matcher(&r, "root ::= \"<\" [a-z]{3,500} \">\"", NULL, 0);
    char text[600] = "<";

    for (size_t n = 0; n < 520; n++) {
        memset(text + 1, 'a', n);
        text[n + 1] = '>';
        cr_expect_eq(walk_accepts(m, r.t, text, n + 2), n >= 3 && n <= 500,
                     "%zu characters", n);
    }
    check_masks(&r, m, "counted", 5, 100);
    seam_matcher_free(m);
    rig_close(&r);
}

Test(text, strings_without_quotes_do_not_look_like_what_they_are_not)
{
    static const struct {
        const char *text;
        bool ok;
    } words[] = {
        { "[\"a\",\"b\"]", true },
        { "[1]", false },
        { "[a]", false },
        { " [1] ", false },
        { "[x", true },
        { "x]", true },
        { "{}", true },
        { "7", true },
        { "3", false },
        { "-1.5e3", false },
        { " 3", false },
        { "1.", true },
        { "7 days", true },
        { "true", true },
        { "\"3\"", true },
        { "null", true },
        { "abcdef", true },
        { "a", false },
        { "[]", true },
        { "9e", true },
        { "-", false },
    };
    static const char schema[] =
        "{\"anyOf\":[{\"type\":\"string\",\"minLength\":2},{\"type\":"
        "\"integer\",\"minimum\":5},{\"type\":\"array\",\"items\":{\"type\":"
        "\"string\"}}]}";
    struct rig r = small();
    json_t *v = json_of(schema);
    struct seam_grammar_import import = { .name = "v",
                                          .schema = v,
                                          .where = "schema" };
    struct seam_matcher *m =
        text_matcher(&r, "root ::= @value(v but number array)", &import, 1);

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        cr_expect_eq(walk_accepts(m, r.t, words[i].text, strlen(words[i].text)),
                     words[i].ok, "%s", words[i].text);
    check_masks(&r, m, "look-alikes", 6, 100);
    seam_matcher_free(m);
    json_decref(v);
    rig_close(&r);
}

Test(text, has_json_built_in)
{
    check_words("root ::= \"x=\" @json \";\" @integer \";\" @string",
                WORDS("x=1.5;2;\"a\"", "x={\"a\": [null]};-3;\"\""),
                WORDS("x=;2;\"a\"", "x=1;2.5;\"a\"", "x=1;2;a"));
    check_words("root ::= @object @array @number",
                WORDS("{}[]1", "{\"a\":1}[{}]-2e5"), WORDS("[]{}1", "{}[]"));
}

Test(text, ambiguity_that_stays_small_is_no_problem)
{
    check_words("root ::= (a | b)* \"x\"\na ::= \"y\" \"y\"? c\n"
                "b ::= \"y\"+ c\nc ::= \"z\" c? | \"\"\n",
                WORDS("x", "yyyx", "yzyzzyyyyzx"), WORDS("", "zx", "y"));
}

/* ---- Added tokens -------------------------------------------------------- */

static const char TOOLS[] =
    "@never \"<arg_key>\" \"</arg_key>\" \"<arg_value>\" \"</arg_value>\"\n"
    "       \"<tool_call>\" \"</tool_call>\"\n"
    "root ::= @text call+\n"
    "call ::= <tool_call> (weather | now) </tool_call>\n"
    "now ::= \"now\"\n"
    "weather ::= \"get_weather\"\n"
    "  <arg_key> \"city\" </arg_key> <arg_value> @value(city) </arg_value>\n"
    "  (<arg_key> \"days\" </arg_key> <arg_value> @value(days) </arg_value>)?\n"
    "  (<arg_key> \"unit\" </arg_key> <arg_value> @value(unit) </arg_value>)?\n"
    "  (<arg_key> \"more\" </arg_key> <arg_value> @more </arg_value>)?\n";

/* Feeds text; what is in <> becomes the added token where there is one. */
static bool feed(const struct rig *r, struct seam_matcher *m, const char *text)
{
    seam_matcher_reset(m);
    while (*text) {
        const char *end = *text == '<' ? strchr(text, '>') : NULL;
        int32_t id = -1;
        size_t n = 1;

        if (end)
            id = seam_tokenizer_id(r->t, text, (size_t)(end - text) + 1);
        if (id >= 0 && (seam_tokenizer_flags(r->t, id) & SEAM_TOKEN_ADDED)) {
            n = (size_t)(end - text) + 1;
            if (seam_matcher_accept(m, id, NULL) != 1)
                return false;
        } else {
            struct seam_ids ids = { 0 };
            bool ok = true;

            cr_assert_eq(
                seam_tokenizer_encode(r->t, text, 1, false, &ids, NULL), 0);
            for (size_t i = 0; ok && i < ids.n; i++)
                ok = seam_matcher_accept(m, ids.v[i], NULL) == 1;
            seam_ids_release(&ids);
            if (!ok)
                return false;
        }
        text += n;
    }
    return seam_matcher_can_end(m);
}

Test(added, tokens_are_symbols_of_their_own)
{
    static const char *const good[] = {
        "<tool_call>now</tool_call>",
        "a <b> text\n<tool_call>now</tool_call><tool_call>now</tool_call>",
        "<tool_call>get_weather<arg_key>city</arg_key><arg_value>New\n \"York\""
        "</arg_value></tool_call>",
        "<tool_call>get_weather<arg_key>city</arg_key><arg_value></arg_value>"
        "<arg_key>days</arg_key><arg_value>14</arg_value><arg_key>unit</arg_key>"
        "<arg_value>c</arg_value></tool_call>",
        "<tool_call>get_weather<arg_key>city</arg_key><arg_value>x</arg_value>"
        "<arg_key>more</arg_key><arg_value>{\"a\": \"</b>\"}</arg_value>"
        "</tool_call>",
    };
    static const char *const bad[] = {
        "text",
        "<tool_call>now",
        "<tool_call>later</tool_call>",
        "<tool_call>now</tool_call>text",
        "<tool_call></tool_call>",
        "<tool_call>get_weather</tool_call>",
        "<tool_call>get_weather<arg_key>city</arg_key><arg_value>x</arg_value>"
        "<arg_key>days</arg_key><arg_value>15</arg_value></tool_call>",
        "<tool_call>get_weather<arg_key>city</arg_key><arg_value>x</arg_value>"
        "<arg_key>unit</arg_key><arg_value>\"c\"</arg_value></tool_call>",
        "<tool_call>get_weather<arg_key>city</arg_key><arg_value>x<think>"
        "</arg_value></tool_call>",
    };
    struct rig r = nano();
    json_t *city = json_of("{\"type\":\"string\"}");
    json_t *days = json_of("{\"type\":\"integer\",\"minimum\":1,\"maximum\":"
                           "14}");
    json_t *unit = json_of("{\"enum\":[\"c\",\"f\"]}");
    json_t *more = json_of("{\"type\":\"object\"}");
    struct seam_grammar_import imports[] = {
        { .name = "city", .schema = city, .where = "city" },
        { .name = "days", .schema = days, .where = "days" },
        { .name = "unit", .schema = unit, .where = "unit" },
        { .name = "more", .schema = more, .where = "more" },
    };
    struct seam_matcher *m = text_matcher(&r, TOOLS, imports, 4);

    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        cr_expect(feed(&r, m, good[i]), "%s", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        cr_expect(!feed(&r, m, bad[i]), "%s", bad[i]);
    check_masks(&r, m, "tools", 3, 60);
    seam_matcher_free(m);
    json_decref(city);
    json_decref(days);
    json_decref(unit);
    json_decref(more);
    rig_close(&r);
}

/* Ordinary tokens that spell a tag never complete it, whatever the token
 * boundaries and wherever the text stands. */
Test(added, tags_are_never_spelled)
{
    static const struct {
        const char *grammar, *before;
    } at[] = {
        { "@never \"</arg_value>\"\nroot ::= @text <think>", "" },
        { "@never \"</arg_value>\"\nroot ::= @string", "\"" },
        { "@never \"</arg_value>\"\nroot ::= @json", "{\"" },
        { "@never \"</arg_value>\"\nroot ::= @object", "{\"a\": [\"" },
        { "@never \"</arg_value>\"\nroot ::= @value(s)", "" },
        { "@never \"</arg_value>\"\nroot ::= @value(n)", "" },
        { "@never \"</arg_value>\"\nroot ::= @o", "{\"b\": 1, \"" },
        { "@never \"</arg_value>\"\nroot ::= @value(p)", "" },
    };
    static const char tag[] = "</arg_value>";
    struct rig r = nano();
    json_t *s = json_of("{\"type\":\"string\"}");
    json_t *n = json_of("{\"type\":\"string\",\"maxLength\":40}");
    json_t *o = json_of("{\"type\":\"object\",\"properties\":{\"b\":{}},"
                        "\"additionalProperties\":true}");
    json_t *p = json_of("{\"type\":\"string\",\"pattern\":\"^[^q]*$\"}");
    struct seam_grammar_import imports[] = {
        { .name = "s", .schema = s, .where = "s" },
        { .name = "n", .schema = n, .where = "n" },
        { .name = "o", .schema = o, .where = "o" },
        { .name = "p", .schema = p, .where = "p" },
    };

    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        struct seam_matcher *m = text_matcher(&r, at[i].grammar, imports, 4);
        struct seam_ids ids = { 0 };

        seam_tokenizer_encode(r.t, at[i].before, strlen(at[i].before), false,
                              &ids, NULL);
        seam_tokenizer_encode(r.t, "x <</arg_</a", 12, false, &ids, NULL);
        for (size_t k = 0; k < ids.n; k++)
            cr_assert_eq(seam_matcher_accept(m, ids.v[k], NULL), 1, "%s",
                         at[i].grammar);
        for (size_t k = 0; tag[k]; k++) {
            int32_t id = seam_tokenizer_id(r.t, tag + k, 1);

            cr_assert_eq(seam_matcher_accept(m, id, NULL), !!tag[k + 1],
                         "%s: byte %zu", at[i].grammar, k);
        }
        check_mask(&r, m, at[i].grammar);
        cr_expect_eq(
            seam_matcher_accept(m, seam_tokenizer_id(r.t, "<", 1), NULL), 1);
        seam_ids_release(&ids);
        seam_matcher_free(m);
    }
    json_decref(s);
    json_decref(n);
    json_decref(o);
    json_decref(p);
    rig_close(&r);
}

/* Counted characters, and tags that are never spelled, at once. */
Test(added, tags_do_not_upset_counting)
{
    struct rig r = small();
    json_t *n =
        json_of("{\"type\":\"string\",\"minLength\":3,\"maxLength\":7}");
    struct seam_grammar_import import = { .name = "n",
                                          .schema = n,
                                          .where = "n" };
    const char *const grammar[] = {
        "@never \"<he\" \"</a>\"\nroot ::= @n",
        "@never \"<he\" \"</a>\"\nroot ::= @value(n) \"|\"",
        "@never \"<he\" \"</a>\"\nroot ::= @text \"the\"",
    };

    for (size_t i = 0; i < 3; i++) {
        struct seam_matcher *m = text_matcher(&r, grammar[i], &import, 1);

        check_masks(&r, m, grammar[i], 50 + i, 200);
        /* Where a tag might begin. */
        for (int k = 0; k < 6; k++) {
            const char *const text[] = { "\"<", "\"aaaa<", "\"aa</",
                                         "<",   "aaaa<",   "aa</" };
            struct seam_ids ids = ids_of(&r, text[k]);
            bool ok = true;

            seam_matcher_reset(m);
            for (size_t x = 0; ok && x < ids.n; x++)
                ok = seam_matcher_accept(m, ids.v[x], NULL) == 1;
            if (ok)
                check_mask(&r, m, grammar[i]);
            seam_ids_release(&ids);
        }
        seam_matcher_free(m);
    }
    json_decref(n);
    rig_close(&r);
}

/* ---- Refusals ------------------------------------------------------------ */

static void check_refused(const char *grammar, const char *message)
{
    static struct rig r;
    struct seam_error err = { 0 };
    struct seam_grammar *g = NULL;

    if (!r.t)
        r = small();
    cr_expect_eq(seam_grammar_text(&g, r.v, grammar, strlen(grammar), "g", NULL,
                                   0, NULL, &err),
                 SEAM_EDATA, "%s", grammar);
    cr_expect_null(g);
    cr_expect_not_null(strstr(err.text, message),
                       "%s: found \"%s\", expected "
                       "\"%s\"",
                       grammar, err.text, message);
}

Test(refusal, names_line_and_column)
{
    check_refused("", "g:1:1: there is no rule \"root\"");
    check_refused("x ::= \"a\"", "there is no rule \"root\"");
    check_refused("root ::= \"a\"\n  b", "g:2:3: this rule is not defined");
    check_refused("root ::= \"a", "ends too early");
    check_refused("root ::= \"\\q\"", "g:1:12: this escape is not known");
    check_refused("root ::= [a", "ends too early");
    check_refused("root ::= [b-a]", "out of order");
    check_refused("root ::= (\"a\"", "expected ')'");
    check_refused("root ::= \"a\")", "g:1:13: nothing is open");
    check_refused("root ::= \"a\"{2,1}", "N not above M");
    check_refused("root ::= *", "g:1:10: expected a literal");
    check_refused("root = \"a\"", "g:1:1: expected NAME ::=");
    check_refused("root ::= \"a\"\nroot ::= \"b\"", "defined twice");
    check_refused("root ::= <no_such_token>", "not an added token");
    check_refused("root ::= @token(\"hello\")", "not an added token");
    check_refused("root ::= <|end|>", "one that ends the answer");
    check_refused("root ::= @nothing", "no schema with this name");
    check_refused("root ::= @value(nothing)", "no schema with this name");
    check_refused("root ::= @value(a but)", "g:1:22: expected a type");
    check_refused("root ::= @value(a but integer)", "g:1:23: expected null");
    check_refused("root ::= @value(a or number)", "expected ')' or \"but\"");
    check_refused("root ::= \"\\ud800\"", "expected a code point");
    check_refused("@never \"\"\nroot ::= \"a\"", "not empty");
    check_refused("root ::= \"\xff\"", "is not UTF-8");
}

Test(refusal, of_rules_that_go_round_without_consuming)
{
    check_refused("root ::= root \"a\" | \"b\"",
                  "g: rule \"root\": refers to itself before");
    check_refused("root ::= a \"x\"\na ::= b?\nb ::= c* a | \"y\"\nc ::= \"\"",
                  "refers to itself before");
    check_refused("root ::= a\na ::= b\nb ::= a", "refers to itself before");
}

Test(refusal, of_rules_that_nothing_satisfies)
{
    check_refused("root ::= \"a\" root", "nothing can satisfy it");
    check_refused("root ::= a\na ::= \"(\" a \")\"", "nothing can satisfy it");
    check_refused("root ::= []", "nothing can satisfy it");
}

Test(refusal, of_what_takes_too_much)
{
    static char deep[120000];

    memset(deep, '(', 50000);
    memcpy(deep, "root ::= ", 9);
    check_refused(deep, "too many brackets");
    check_refused("root ::= (((\"a\" | \"b\"){99}){99}){99}", "too complex");
    check_refused("root ::= ([ab])* \"a\" ([ab]){30}", "too complex");
}

Test(refusal, comes_at_run_time_only_for_too_many_readings)
{
    struct rig r = small();
    struct seam_matcher *m = text_matcher(
        &r,
        "root ::= s\ns ::= \"a\" s \"b\" | \"a\" s \"c\" | \"a\" s s | "
        "\"a\"",
        NULL, 0);
    struct seam_error err = { 0 };
    int32_t a = seam_tokenizer_id(r.t, "a", 1);
    int rc = 1, n = 0;

    while (rc == 1 && n++ < 100)
        rc = seam_matcher_accept(m, a, &err);
    cr_expect_eq(rc, SEAM_EDATA);
    cr_expect_not_null(strstr(err.text, "too many ways"), "%s", err.text);
    /* It is still where it was. */
    rc = seam_matcher_mask(m, r.row, &err);
    cr_expect(rc == 0 || rc == SEAM_EDATA);
    seam_matcher_reset(m);
    check_mask(&r, m, "after too many readings");
    seam_matcher_free(m);
    rig_close(&r);
}
