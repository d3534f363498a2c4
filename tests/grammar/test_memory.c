/* Grammars with the n-th allocation failing, for each n, and how much memory
 * costly ones take.
 *
 * The program is linked with --wrap for what core/ allocates with; jansson is
 * given the same functions once the inputs are parsed. */
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>

#include "core/grammar/compiled.h"
#include "rig.h"

static int countdown = -1; /* allocations until one fails; -1: none does */
static size_t live, peak;

static bool fails(void)
{
    return countdown >= 0 && countdown-- == 0;
}

static void *count(void *p)
{
    live += malloc_usable_size(p);
    if (live > peak)
        peak = live;
    return p;
}

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void __real_free(void *p);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void __wrap_free(void *p);

void *__wrap_malloc(size_t n)
{
    return fails() ? NULL : count(__real_malloc(n));
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : count(__real_calloc(n, size));
}

void *__wrap_realloc(void *p, size_t n)
{
    size_t was = malloc_usable_size(p);
    void *q = fails() ? NULL : __real_realloc(p, n);

    if (q) {
        live -= was;
        count(q);
    }
    return q;
}

void __wrap_free(void *p)
{
    live -= malloc_usable_size(p);
    __real_free(p);
}

static void *json_malloc(size_t n)
{
    return __wrap_malloc(n);
}

static void json_free(void *p)
{
    __wrap_free(p);
}

/* From here on jansson allocates as core/ does. */
static void count_json(void)
{
    json_set_alloc_funcs(json_malloc, json_free);
}

/* ---- Failing allocations ------------------------------------------------- */

Test(memory, making_a_vocabulary_fails_cleanly)
{
    struct rig r = small();
    bool failed = true;
    int i;

    for (i = 0; failed; i++) {
        struct seam_vocab *v = NULL;
        struct seam_error err = { 0 };
        int rc;

        countdown = i;
        rc = seam_vocab_new(&v, r.t, r.n_rows, &r.stop, 1, &err);
        failed = countdown < 0;
        countdown = -1;
        cr_assert_eq(rc, failed ? SEAM_ENOMEM : 0, "allocation %d: %d", i, rc);
        cr_assert_eq(!rc, !!v);
        cr_assert(!rc || strstr(err.text, "out of memory"), "allocation %d: %s",
                  i, err.text);
        seam_vocab_free(v);
    }
    cr_expect_gt(i, 10);
    rig_close(&r);
}

static const char SCHEMA[] =
    "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\","
    "\"maxLength\":9},\"b\":{\"type\":\"array\",\"items\":{\"$ref\":"
    "\"#/$defs/n\"},\"minItems\":10,\"maxItems\":20},\"c\":{\"oneOf\":[{\"const\":"
    "1},{\"enum\":[\"x\",{\"y\":[null]}]}]},\"d\":{\"allOf\":[{\"type\":"
    "\"object\",\"properties\":{\"q\":{\"minimum\":1}}},{\"properties\":{\"q\":{"
    "\"type\":\"integer\"}},\"additionalProperties\":{\"type\":\"string\","
    "\"pattern\":\"^[a-z]{1,90}$\"}}]},\"e\":{\"type\":\"string\",\"format\":"
    "\"date\",\"minLength\":3}},\"$defs\":{\"n\":{\"anyOf\":[{\"type\":\"number\","
    "\"minimum\":0.5},{\"$ref\":\"#\"}]}}}";

Test(memory, compiling_a_schema_fails_cleanly, .timeout = 600)
{
    struct rig r = small();
    json_t *schema;
    bool failed = true;
    int i;

    count_json();
    schema = json_of(SCHEMA);
    for (i = 0; failed; i++) {
        struct seam_grammar *g = NULL;
        struct seam_matcher *m = NULL;
        struct seam_error err = { 0 };
        size_t before = live;
        int rc;

        countdown = i;
        rc = seam_grammar_schema(&g, r.v, schema, "schema", NULL, &err);
        if (!rc)
            rc = seam_matcher_new(&m, g, &err);
        failed = countdown < 0;
        countdown = -1;
        cr_assert_eq(rc, failed ? SEAM_ENOMEM : 0, "allocation %d: %d %s", i,
                     rc, err.text);
        cr_assert(!rc || strstr(err.text, "out of memory"), "allocation %d: %s",
                  i, err.text);
        seam_matcher_free(m);
        seam_grammar_unref(g);
        cr_assert_eq(live, before, "allocation %d: %zu bytes are left", i,
                     live - before);
    }
    cr_expect_gt(i, 200, "only %d allocations", i);
    json_decref(schema);
    rig_close(&r);
}

Test(memory, compiling_a_text_fails_cleanly, .timeout = 600)
{
    static const char text[] =
        "@never \"</a>\"\nroot ::= <think> @text item{2,40} @value(s) @json\n"
        "item ::= \"(\" item \")\" | [a-z]{1,99} \";\" | ws\nws ::= [ \\n]+\n";
    struct rig r = small();
    struct seam_grammar_import import = { .name = "s", .where = "s" };
    json_t *schema;
    bool failed = true;
    int i;

    count_json();
    schema = json_of("{\"type\":\"string\",\"maxLength\":20}");
    import.schema = schema;
    for (i = 0; failed; i++) {
        struct seam_grammar *g = NULL;
        struct seam_matcher *m = NULL, *copy = NULL;
        struct seam_error err = { 0 };
        size_t before = live;
        int rc;

        countdown = i;
        rc = seam_grammar_text(&g, r.v, text, strlen(text), "text", &import, 1,
                               NULL, &err);
        if (!rc)
            rc = seam_matcher_new(&m, g, &err);
        if (!rc)
            rc = seam_matcher_clone(&copy, m, &err);
        failed = countdown < 0;
        countdown = -1;
        cr_assert_eq(rc, failed ? SEAM_ENOMEM : 0, "allocation %d: %d %s", i,
                     rc, err.text);
        seam_matcher_free(copy);
        seam_matcher_free(m);
        seam_grammar_unref(g);
        cr_assert_eq(live, before, "allocation %d: %zu bytes are left", i,
                     live - before);
    }
    cr_expect_gt(i, 100, "only %d allocations", i);
    json_decref(schema);
    rig_close(&r);
}

/* Sanitizers look at a share of the allocations here. */
#ifdef SEAM_TEST_QUICK
#define STEP 7
#else
#define STEP 1
#endif

/* What finds no memory is not remembered, and asking again succeeds. */
Test(memory, remembering_a_grammar_fails_cleanly, .timeout = 600)
{
    struct rig r = small();
    json_t *schema;
    bool failed = true;
    int i, n_refused = 0;

    count_json();
    schema = json_of("{\"type\":\"string\",\"pattern\":\"^[a-z]{1,9}x\"}");
    for (i = 0; failed; i += STEP) {
        struct seam_compiled *c = NULL;
        struct seam_grammar *g = NULL, *again = NULL;
        struct seam_error err = { 0 };
        size_t before = live;
        int rc;

        countdown = i;
        rc = seam_compiled_new(&c, r.v, 1 << 24, &err);
        if (!rc)
            rc = seam_compiled_schema(c, &g, schema, "schema", 0, &err);
        failed = countdown < 0;
        countdown = -1;
        cr_assert(!rc || (failed && rc == SEAM_ENOMEM), "allocation %d: %d %s",
                  i, rc, err.text);
        cr_assert_eq(!rc, !!g);
        n_refused += rc != 0;
        if (c) {
            cr_assert_eq(
                seam_compiled_schema(c, &again, schema, "schema", 0, &err), 0);
            cr_assert_not_null(again);
        }
        seam_grammar_unref(g);
        seam_grammar_unref(again);
        seam_compiled_free(c);
        cr_assert_eq(live, before, "allocation %d: %zu bytes are left", i,
                     live - before);
    }
    cr_expect_gt(n_refused, 20 / STEP, "only %d refusals", n_refused);
    json_decref(schema);
    rig_close(&r);
}

Test(memory, computing_the_vocabularys_masks_fails_cleanly, .timeout = 600)
{
    struct rig r = small();
    bool failed = true;
    int i;

    count_json();
    for (i = 0; failed; i += STEP) {
        struct seam_error err = { 0 };
        size_t before = live;
        int rc;

        countdown = i;
        rc = seam_vocab_warm(r.v, &err);
        failed = countdown < 0;
        countdown = -1;
        cr_assert_eq(rc, failed ? SEAM_ENOMEM : 0, "allocation %d: %d %s", i,
                     rc, err.text);
        cr_assert_eq(live, before, "allocation %d: %zu bytes are left", i,
                     live - before);
    }
    cr_expect_gt(i, 50, "only %d allocations", i);
    rig_close(&r);
}

Test(memory, nothing_is_allocated_along_the_way)
{
    struct rig r = nano();
    struct seam_grammar *g = compile(&r, SCHEMA);
    struct seam_matcher *m = NULL;
    struct seam_buf out = { 0 };
    uint64_t seed = 3;

    cr_assert_eq(seam_matcher_new(&m, g, NULL), 0);
    for (int i = 0; i < 400 && !seam_matcher_ended(m); i++) {
        int32_t id = 0;
        size_t n = 0;

        countdown = 0; /* the first allocation fails and shows */
        cr_assert_eq(seam_matcher_mask(m, r.row, NULL), 0);
        for (int32_t k = 0; k < (int32_t)r.n_rows; k++)
            if (allowed(r.row, k) && walk_random_u64(&seed) % ++n == 0)
                id = k;
        cr_assert_eq(seam_matcher_accept(m, id, NULL), 1);
        cr_assert_eq(seam_matcher_rollback(m, 1), 0);
        cr_assert_eq(seam_matcher_accept(m, id, NULL), 1);
        cr_assert_eq(countdown, 0, "something was allocated");
        countdown = -1;
    }
    seam_buf_release(&out);
    seam_matcher_free(m);
    seam_grammar_unref(g);
    rig_close(&r);
}

/* ---- Costly schemas ------------------------------------------------------ */

/* Compiles or refuses; either way within the memory that a request may take. */
static void check_cost(const struct rig *r, json_t *schema, const char *what,
                       int expected)
{
    struct seam_grammar *g = NULL;
    struct seam_matcher *m = NULL;
    struct seam_error err = { 0 };
    size_t before = live;
    int rc;

    peak = live;
    rc = seam_grammar_schema(&g, r->v, schema, what, NULL, &err);
    if (!rc)
        rc = seam_matcher_new(&m, g, &err);
    if (!rc)
        cr_expect_eq(seam_matcher_mask(m, r->row, &err), 0, "%s: %s", what,
                     err.text);
    cr_expect_eq(rc, expected, "%s: %d %s", what, rc, err.text);
    cr_expect_lt(peak - before, (size_t)64 << 20, "%s: %zu KiB", what,
                 (peak - before) >> 10);
    seam_matcher_free(m);
    seam_grammar_unref(g);
    json_decref(schema);
}

static json_t *pattern(const char *p)
{
    return json_pack("{s:s,s:s}", "type", "string", "pattern", p);
}

/* $defs d0 to d(n-1), each `key` of several references to the next. */
static json_t *chain(int n, const char *key, int width, bool objects)
{
    json_t *defs = json_object();
    char name[32], next[64];

    for (int i = 0; i < n; i++) {
        json_t *list = json_array();

        snprintf(name, sizeof name, "d%d", i);
        snprintf(next, sizeof next, "#/$defs/d%d", i + 1);
        for (int k = 0; k < width; k++) {
            json_t *inner = i + 1 < n ? json_pack("{s:s}", "$ref", next)
                                      : json_pack("{s:s}", "type", "null");

            json_array_append_new(
                list, objects
                          ? json_pack("{s:s,s:{s:{s:i},s:o},s:[s,s]}", "type",
                                      "object", "properties", "k", "const", k,
                                      "v", inner, "required", "k", "v")
                          : inner);
        }
        json_object_set_new(defs, name, json_pack("{s:o}", key, list));
    }
    return json_pack("{s:o,s:s}", "$defs", defs, "$ref", "#/$defs/d0");
}

static json_t *many_properties(int n, bool required)
{
    json_t *properties = json_object(), *names = json_array();
    char name[32];

    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof name, "property_%d", i);
        json_object_set_new(properties, name,
                            json_pack("{s:s}", "type", "string"));
        if (required)
            json_array_append_new(names, json_string(name));
    }
    return json_pack("{s:s,s:o,s:o}", "type", "object", "properties",
                     properties, "required", names);
}

Test(cost, of_patterns)
{
    static const struct {
        const char *pattern;
        int expected;
    } list[] = {
        { "(a|aa)+$", 0 },
        { "^(a|aa)+$", 0 },
        { "^a{0,100000}$", 0 },
        { "a{0,100000}", SEAM_EDATA },
        { "{0,100000}", SEAM_EDATA },
        { "*", SEAM_EDATA },
        { "^(a|b)*a(a|b){40}$", SEAM_EDATA },
        { "^((a{100}){100}){100}$", SEAM_EDATA },
        { "^(((((a*)*)*)*)*)*$", 0 },
        { "(.*){50}", 0 },
        { "(?:a?){500}a{500}", 0 },
        { "^.{3000}a", SEAM_EDATA },
        { "^.{0,65536}$", 0 },
    };
    struct rig r = small();
    char deep[50001];

    count_json();
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        check_cost(&r, pattern(list[i].pattern), list[i].pattern,
                   list[i].expected);
    memset(deep, '(', 50000);
    deep[50000] = 0;
    check_cost(&r, pattern(deep), "parentheses", SEAM_EDATA);
    rig_close(&r);
}

Test(cost, of_schemas_that_multiply, .timeout = 600)
{
    struct rig r = small();

    count_json();
    check_cost(&r, chain(12, "oneOf", 3, true), "oneOf of objects", 0);
    check_cost(&r, chain(12, "oneOf", 3, false), "oneOf", SEAM_EDATA);
    check_cost(&r, chain(12, "anyOf", 3, false), "anyOf", 0);
    check_cost(&r, chain(30, "anyOf", 9, true), "anyOf of objects", 0);
    check_cost(&r, chain(20, "allOf", 2, false), "allOf", SEAM_EDATA);
    rig_close(&r);
}

Test(cost, of_large_schemas, .timeout = 600)
{
    struct rig r = small();
    json_t *list = json_array(), *deep = json_object();
    char *text = malloc(200001);

    count_json();
    memset(text, 'x', 200000);
    text[200000] = 0;
    check_cost(&r, many_properties(300, false), "300 optional", 0);
    check_cost(&r, many_properties(5000, false), "5000 optional", SEAM_EDATA);
    check_cost(&r, many_properties(3000, true), "3000 required", 0);
    check_cost(&r, json_pack("{s:s}", "const", text), "long value", SEAM_EDATA);
    check_cost(&r, json_pack("{s:s,s:s}", "type", "null", "description", text),
               "long description", 0);
    check_cost(&r,
               json_pack("{s:s,s:i}", "type", "array", "minItems", 1000000000),
               "many items", 0);
    check_cost(
        &r, json_pack("{s:s,s:i}", "type", "string", "maxLength", 2000000000),
        "many characters", 0);
    for (int i = 0; i < 3000; i++)
        json_array_append_new(list, json_sprintf("value number %d", i));
    check_cost(&r, json_pack("{s:o}", "enum", list), "many values", 0);
    for (int i = 0; i < 1500; i++)
        deep = json_pack("{s:s,s:{s:o}}", "type", "object", "properties", "a",
                         deep);
    check_cost(&r, deep, "deep", SEAM_EDATA);
    free(text);
    rig_close(&r);
}

/* What compiles a request's schema may have a small stack. */
static void *compile_all(void *arg)
{
    const struct rig *r = arg;
    json_t *deep = json_pack("{s:s}", "type", "null");
    json_t *value = json_null();

    for (int i = 0; i < 60; i++)
        deep = json_pack("{s:s,s:{s:o}}", "type", "object", "properties", "a",
                         deep);
    check_cost(r, deep, "nested properties", 0);
    for (int i = 0; i < 120; i++)
        value = json_pack("[o]", value);
    check_cost(r, json_pack("{s:o}", "const", value), "nested value", 0);
    deep = json_pack("{s:s}", "type", "null");
    for (int i = 0; i < 60; i++)
        deep = json_pack("{s:[o]}", i % 2 ? "anyOf" : "allOf", deep);
    check_cost(r, deep, "nested unions", 0);
    check_cost(r,
               pattern("^(((((((((((((((((((((((((((((a)*)*)*)*)*)*)*)*)*)*"
                       ")*)*)*)*)*)*)*)*)*)*)*)*)*)*)*)*)*)*)$"),
               "nested groups", 0);
    check_cost(r, chain(30, "allOf", 1, false), "references", 0);
    return NULL;
}

Test(cost, of_stack)
{
    struct rig r = small();
    pthread_attr_t attr;
    pthread_t thread;

    pthread_attr_init(&attr);
    cr_assert_eq(pthread_attr_setstacksize(&attr, 256 << 10), 0);
    cr_assert_eq(pthread_create(&thread, &attr, compile_all, &r), 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attr);
    rig_close(&r);
}
