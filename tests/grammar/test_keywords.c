/* Every keyword of JSON Schema draft 2020-12, and others that are often met: it
 * is honoured, says nothing about values, or is refused with its path. */
#include "rig.h"

enum what { HOLDS, NOTE, REFUSED };

static const struct {
    const char *keyword;
    enum what what;
    const char *members; /* of a schema, the keyword among them */
    const char *good;    /* a value that conforms; HOLDS and NOTE */
    const char *bad;     /* one that does not; HOLDS */
} KEYWORDS[] = {
    /* Core. */
    { "$schema", NOTE,
      "\"$schema\":\"https://json-schema.org/draft/2020-12/schema\"", "1",
      NULL },
    { "$comment", NOTE, "\"$comment\":\"x\"", "1", NULL },
    { "$defs", NOTE, "\"$defs\":{\"a\":{\"type\":\"null\"}}", "1", NULL },
    { "$ref", HOLDS, "\"$ref\":\"#/$defs/n\"", "null", "1" },
    { "$anchor", REFUSED, "\"$anchor\":\"a\"", NULL, NULL },
    { "$dynamicRef", REFUSED, "\"$dynamicRef\":\"#a\"", NULL, NULL },
    { "$dynamicAnchor", REFUSED, "\"$dynamicAnchor\":\"a\"", NULL, NULL },
    { "$vocabulary", REFUSED, "\"$vocabulary\":{}", NULL, NULL },
    /* Applicators. */
    { "allOf", HOLDS, "\"allOf\":[{\"type\":\"integer\"},{\"minimum\":2}]", "2",
      "1" },
    { "anyOf", HOLDS, "\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"null\"}]",
      "null", "true" },
    { "oneOf", HOLDS, "\"oneOf\":[{\"const\":1},{\"const\":2}]", "2", "3" },
    { "not", REFUSED, "\"not\":{\"type\":\"null\"}", NULL, NULL },
    { "if", REFUSED, "\"if\":{\"type\":\"null\"}", NULL, NULL },
    { "then", REFUSED, "\"then\":{\"type\":\"null\"}", NULL, NULL },
    { "else", REFUSED, "\"else\":{\"type\":\"null\"}", NULL, NULL },
    { "dependentSchemas", REFUSED, "\"dependentSchemas\":{\"a\":{}}", NULL,
      NULL },
    { "prefixItems", HOLDS,
      "\"type\":\"array\",\"prefixItems\":[{\"type\":\"null\"}]", "[null,1]",
      "[1]" },
    { "items", HOLDS, "\"type\":\"array\",\"items\":{\"type\":\"null\"}",
      "[null,null]", "[null,1]" },
    { "contains", REFUSED, "\"contains\":{\"type\":\"null\"}", NULL, NULL },
    { "properties", HOLDS,
      "\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"null\"}}",
      "{\"a\":null}", "{\"a\":1}" },
    { "patternProperties", REFUSED, "\"patternProperties\":{\"^a\":{}}", NULL,
      NULL },
    { "additionalProperties", HOLDS,
      "\"type\":\"object\",\"additionalProperties\":{\"type\":\"null\"}",
      "{\"z\":null}", "{\"z\":1}" },
    { "propertyNames", REFUSED, "\"propertyNames\":{\"maxLength\":3}", NULL,
      NULL },
    { "propertyNames", HOLDS,
      "\"type\":\"object\",\"propertyNames\":{\"type\":\"string\"},"
      "\"additionalProperties\":{\"type\":\"null\"}",
      "{\"z\":null}", "{\"z\":1}" },
    { "unevaluatedItems", REFUSED, "\"unevaluatedItems\":false", NULL, NULL },
    { "unevaluatedProperties", REFUSED, "\"unevaluatedProperties\":false", NULL,
      NULL },
    /* Validation. */
    { "type", HOLDS, "\"type\":[\"boolean\",\"null\"]", "true", "1" },
    { "enum", HOLDS, "\"enum\":[1,\"a\",null]", "\"a\"", "\"b\"" },
    { "const", HOLDS, "\"const\":{\"a\":[1]}", "{\"a\":[1]}", "{\"a\":[2]}" },
    { "multipleOf", HOLDS, "\"type\":\"number\",\"multipleOf\":1", "3", "2.5" },
    { "maximum", HOLDS, "\"type\":\"integer\",\"maximum\":12", "12", "13" },
    { "exclusiveMaximum", HOLDS, "\"type\":\"integer\",\"exclusiveMaximum\":12",
      "11", "12" },
    { "minimum", HOLDS, "\"type\":\"number\",\"minimum\":-1.5", "-1.5",
      "-1.6" },
    { "exclusiveMinimum", HOLDS,
      "\"type\":\"number\",\"exclusiveMinimum\":-1.5", "-1.4", "-1.5" },
    { "maxLength", HOLDS, "\"type\":\"string\",\"maxLength\":2",
      "\"\xc3\xa9\xe6\x9e\x97\"", "\"abc\"" },
    { "minLength", HOLDS, "\"type\":\"string\",\"minLength\":2", "\"ab\"",
      "\"\xe6\x9e\x97\"" },
    { "pattern", HOLDS, "\"type\":\"string\",\"pattern\":\"b+$\"", "\"abb\"",
      "\"ba\"" },
    { "maxItems", HOLDS, "\"type\":\"array\",\"maxItems\":1", "[1]", "[1,2]" },
    { "minItems", HOLDS, "\"type\":\"array\",\"minItems\":1", "[1]", "[]" },
    { "uniqueItems", REFUSED, "\"uniqueItems\":true", NULL, NULL },
    { "uniqueItems", NOTE, "\"type\":\"array\",\"uniqueItems\":false", "[1,1]",
      NULL },
    { "maxContains", REFUSED, "\"maxContains\":1", NULL, NULL },
    { "minContains", REFUSED, "\"minContains\":1", NULL, NULL },
    { "maxProperties", REFUSED, "\"maxProperties\":1", NULL, NULL },
    { "minProperties", REFUSED, "\"minProperties\":1", NULL, NULL },
    { "required", HOLDS, "\"type\":\"object\",\"required\":[\"a\"]",
      "{\"a\":1}", "{}" },
    { "dependentRequired", REFUSED, "\"dependentRequired\":{\"a\":[\"b\"]}",
      NULL, NULL },
    /* Annotations. */
    { "title", NOTE, "\"title\":\"x\"", "1", NULL },
    { "description", NOTE, "\"description\":\"x\"", "1", NULL },
    { "default", NOTE, "\"default\":5", "1", NULL },
    { "deprecated", NOTE, "\"deprecated\":true", "1", NULL },
    { "readOnly", NOTE, "\"readOnly\":true", "1", NULL },
    { "writeOnly", NOTE, "\"writeOnly\":true", "1", NULL },
    { "examples", NOTE, "\"examples\":[5]", "1", NULL },
    { "format", HOLDS, "\"type\":\"string\",\"format\":\"date\"",
      "\"2024-02-29\"", "\"2023-02-29\"" },
    { "format", REFUSED, "\"type\":\"string\",\"format\":\"idn-email\"", NULL,
      NULL },
    { "contentEncoding", REFUSED, "\"contentEncoding\":\"base64\"", NULL,
      NULL },
    { "contentMediaType", REFUSED, "\"contentMediaType\":\"text/plain\"", NULL,
      NULL },
    { "contentSchema", REFUSED, "\"contentSchema\":{}", NULL, NULL },
    /* Of earlier drafts, of OpenAPI, and none at all. */
    { "definitions", NOTE, "\"definitions\":{\"a\":{\"type\":\"null\"}}", "1",
      NULL },
    { "additionalItems", REFUSED, "\"additionalItems\":false", NULL, NULL },
    { "additionalItems", REFUSED,
      "\"prefixItems\":[{}],\"additionalItems\":false", NULL, NULL },
    { "additionalItems", NOTE, "\"items\":{},\"additionalItems\":false", "[1]",
      NULL },
    { "additionalItems", HOLDS,
      "\"type\":\"array\",\"items\":[{\"type\":\"integer\"}],"
      "\"additionalItems\":{\"type\":\"null\"}",
      "[1,null]", "[1,2]" },
    { "additionalItems", HOLDS,
      "\"type\":\"array\",\"items\":[{},{}],\"additionalItems\":false", "[1,2]",
      "[1,2,3]" },
    { "items", HOLDS, "\"type\":\"array\",\"items\":[{\"type\":\"null\"}]",
      "[null,1]", "[1]" },
    { "items", REFUSED, "\"prefixItems\":[{}],\"items\":[{}]", NULL, NULL },
    { "dependencies", REFUSED, "\"dependencies\":{\"a\":[\"b\"]}", NULL, NULL },
    { "id", REFUSED, "\"id\":\"x\"", NULL, NULL },
    { "$recursiveRef", REFUSED, "\"$recursiveRef\":\"#\"", NULL, NULL },
    { "$recursiveAnchor", REFUSED, "\"$recursiveAnchor\":true", NULL, NULL },
    { "extends", REFUSED, "\"extends\":{}", NULL, NULL },
    { "disallow", REFUSED, "\"disallow\":\"null\"", NULL, NULL },
    { "divisibleBy", REFUSED, "\"divisibleBy\":2", NULL, NULL },
    { "nullable", REFUSED, "\"nullable\":true", NULL, NULL },
    { "discriminator", REFUSED, "\"discriminator\":{}", NULL, NULL },
    { "xml", REFUSED, "\"xml\":{}", NULL, NULL },
    { "Type", REFUSED, "\"Type\":\"null\"", NULL, NULL },
    { "maxlength", REFUSED, "\"maxlength\":1", NULL, NULL },
};
#define N_KEYWORDS (sizeof KEYWORDS / sizeof *KEYWORDS)

/* Places in a schema where another stands, and the path to it; %s is its
 * members, $defs of the whole are put behind. */
static const struct {
    const char *before, *after, *path;
    const char *open, *close; /* around the value */
} PLACES[] = {
    { "{", "", "schema", "", "" },
    { "{\"type\":\"array\",\"items\":{", "}", "schema.items", "[", "]" },
    { "{\"type\":\"object\",\"properties\":{\"p\":{", "}},\"required\":[\"p\"]",
      "schema.properties.p", "{\"p\":", "}" },
    { "{\"type\":\"object\",\"additionalProperties\":{", "}",
      "schema.additionalProperties", "{\"q\":", "}" },
    { "{\"type\":\"array\",\"prefixItems\":[{", "}]", "schema.prefixItems[0]",
      "[", "]" },
    { "{\"anyOf\":[{\"const\":\"other\"},{", "}]", "schema.anyOf[1]", "", "" },
    { "{\"allOf\":[{},{", "}]", "schema.allOf[1]", "", "" },
};

static void takes(const struct rig *r, struct seam_matcher *m, size_t place,
                  const char *value, bool want, const char *schema)
{
    char text[256];
    int n = snprintf(text, sizeof text, "%s%s%s", PLACES[place].open, value,
                     PLACES[place].close);

    cr_expect_eq(walk_accepts(m, r->t, text, (size_t)n), want, "%s: %s", schema,
                 text);
}

Test(keywords, each_holds_or_says_nothing_or_is_refused_with_its_path)
{
    struct rig r = small();

    for (size_t i = 0; i < N_KEYWORDS; i++)
        for (size_t k = 0; k < sizeof PLACES / sizeof *PLACES; k++) {
            bool has_defs = !strcmp(KEYWORDS[i].keyword, "$defs") && !k;
            char schema[512], path[128];
            struct seam_grammar *g = NULL;
            struct seam_matcher *m = NULL;
            struct seam_error err = { 0 };
            json_t *v;
            int rc;

            snprintf(schema, sizeof schema, "%s%s%s%s}", PLACES[k].before,
                     KEYWORDS[i].members, PLACES[k].after,
                     has_defs ? "" : ",\"$defs\":{\"n\":{\"type\":\"null\"}}");
            v = json_of(schema);
            rc = seam_grammar_schema(&g, r.v, v, "schema", NULL, &err);
            json_decref(v);
            if (KEYWORDS[i].what == REFUSED) {
                /* Formats are looked at when schemas have been merged. */
                snprintf(path, sizeof path, "%s.%s: ",
                         !strcmp(KEYWORDS[i].keyword, "format") &&
                                 strstr(PLACES[k].path, "allOf")
                             ? "schema"
                             : PLACES[k].path,
                         KEYWORDS[i].keyword);
                cr_expect_eq(rc, SEAM_EDATA, "%s: %d", schema, rc);
                cr_expect_eq(strncmp(err.text, path, strlen(path)), 0,
                             "%s: found \"%s\", expected \"%s\"", schema,
                             err.text, path);
                continue;
            }
            cr_expect_eq(rc, 0, "%s: %s", schema, err.text);
            if (rc)
                continue;
            cr_assert_eq(seam_matcher_new(&m, g, &err), 0);
            takes(&r, m, k, KEYWORDS[i].good, true, schema);
            if (KEYWORDS[i].what == HOLDS)
                takes(&r, m, k, KEYWORDS[i].bad, false, schema);
            seam_matcher_free(m);
            seam_grammar_unref(g);
        }
    rig_close(&r);
}

/* $id changes what references mean below it. */
Test(keywords, an_id_is_for_the_outermost_schema)
{
    struct rig r = small();
    struct seam_grammar *g = compile(&r, "{\"$id\":\"https://example.org/a\"}");
    struct seam_error err = { 0 };
    json_t *v = json_of("{\"items\":{\"$id\":\"b\"}}");

    seam_grammar_unref(g);
    g = NULL;
    cr_expect_eq(seam_grammar_schema(&g, r.v, v, "schema", NULL, &err),
                 SEAM_EDATA);
    cr_expect_eq(strncmp(err.text, "schema.items.$id: ", 18), 0, "%s",
                 err.text);
    json_decref(v);
    rig_close(&r);
}

/* What $schema names is what items and additionalItems mean. */
Test(keywords, earlier_drafts_have_their_tuples)
{
    static const char *const old[] = {
        "http://json-schema.org/draft-04/schema#",
        "http://json-schema.org/draft-07/schema#",
        "https://json-schema.org/draft/2019-09/schema",
    };
    struct rig r = small();

    for (size_t i = 0; i < sizeof old / sizeof *old; i++) {
        char schema[512];
        struct seam_matcher *m;

        snprintf(
            schema, sizeof schema,
            "{\"$schema\":\"%s\",\"$ref\":\"#/definitions/pair\","
            "\"definitions\":{\"pair\":{\"type\":\"array\",\"items\":[{"
            "\"$ref\":\"#/definitions/id\"},{\"type\":[\"string\",\"array\"],\"additionalItems\":{}}],"
            "\"additionalItems\":false,\"minItems\":2},\"id\":{\"type\":"
            "\"integer\"}}}",
            old[i]);
        m = matcher(&r, schema);
        takes(&r, m, 0, "[1,\"a\"]", true, schema);
        takes(&r, m, 0, "[1,[2]]", true, schema);
        takes(&r, m, 0, "[\"a\",1]", false, schema);
        takes(&r, m, 0, "[1,2,3]", false, schema);
        takes(&r, m, 0, "[1]", false, schema);
        seam_matcher_free(m);
    }
    rig_close(&r);
}

/* A value of the wrong kind is not taken for an absent keyword. */
Test(keywords, values_of_the_wrong_kind_are_refused)
{
    static const struct {
        const char *schema, *path;
    } wrong[] = {
        { "{\"type\":\"strong\"}", "schema.type: " },
        { "{\"type\":[]}", "schema.type: " },
        { "{\"type\":null}", "schema.type: " },
        { "{\"enum\":[]}", "schema.enum: " },
        { "{\"enum\":\"a\"}", "schema.enum: " },
        { "{\"const\":12345678901234567890123}", "schema.const: " },
        { "{\"enum\":[1,{\"a\":[-9223372036854775809]}]}", "schema.enum: " },
        { "{\"type\":\"object\",\"properties\":{\"a\":{\"const\":98765432109876543210}}}",
          "schema.properties.a.const: " },
        { "{\"anyOf\":[]}", "schema.anyOf: " },
        { "{\"oneOf\":{}}", "schema.oneOf: " },
        { "{\"allOf\":[1]}", "schema.allOf: " },
        { "{\"$ref\":1}", "schema.$ref: " },
        { "{\"$ref\":\"other.json\"}", "schema.$ref: " },
        { "{\"$ref\":\"#/$defs/none\"}", "schema.$ref: " },
        { "{\"properties\":[]}", "schema.properties: " },
        { "{\"properties\":{\"a\":1}}", "schema.properties: " },
        { "{\"required\":\"a\"}", "schema.required: " },
        { "{\"required\":[1]}", "schema.required: " },
        { "{\"additionalProperties\":1}", "schema.additionalProperties: " },
        { "{\"items\":[1]}", "schema.items: " },
        { "{\"items\":[{\"not\":{}}],\"type\":\"array\"}",
          "schema.items[0].not: " },
        { "{\"items\":[{}],\"additionalItems\":{\"not\":{}},\"type\":"
          "\"array\"}",
          "schema.additionalItems.not: " },
        { "{\"items\":[{}],\"additionalItems\":[{}]}",
          "schema.additionalItems: " },
        { "{\"$schema\":\"https://json-schema.org/draft/2020-12/schema\","
          "\"items\":[{}]}",
          "schema.items: " },
        { "{\"items\":1}", "schema.items: " },
        { "{\"prefixItems\":{}}", "schema.prefixItems: " },
        { "{\"minItems\":-1}", "schema.minItems: " },
        { "{\"maxItems\":1.5}", "schema.maxItems: " },
        { "{\"uniqueItems\":1}", "schema.uniqueItems: " },
        { "{\"minLength\":\"1\"}", "schema.minLength: " },
        { "{\"maxLength\":-1}", "schema.maxLength: " },
        { "{\"pattern\":1}", "schema.pattern: " },
        { "{\"pattern\":\"(\"}", "schema.pattern: " },
        { "{\"pattern\":\"(?=a)b\"}", "schema.pattern: " },
        { "{\"format\":1}", "schema.format: " },
        { "{\"minimum\":\"1\"}", "schema.minimum: " },
        { "{\"type\":\"number\",\"multipleOf\":2}", "schema.multipleOf: " },
        { "{\"type\":\"object\",\"properties\":{\"a\":{\"$defs\":[]}}}",
          "schema.properties.a.$defs: " },
    };
    struct rig r = small();

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        json_t *v = json_of(wrong[i].schema);
        struct seam_grammar *g = NULL;
        struct seam_error err = { 0 };

        cr_expect_eq(seam_grammar_schema(&g, r.v, v, "schema", NULL, &err),
                     SEAM_EDATA, "%s", wrong[i].schema);
        cr_expect_eq(strncmp(err.text, wrong[i].path, strlen(wrong[i].path)), 0,
                     "%s: found \"%s\"", wrong[i].schema, err.text);
        seam_grammar_unref(g);
        json_decref(v);
    }
    rig_close(&r);
}
