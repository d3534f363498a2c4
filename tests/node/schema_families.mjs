// Schemas by keyword, each with instances: ajv says which of them are valid.  The
// third list holds valid instances that the grammar does not write by policy.

const object = (properties, required = Object.keys(properties), more = {}) =>
    ({ type: "object", properties, required, additionalProperties: false,
        ...more });
const ANY = [null, true, false, 0, 1, -1, 1.5, "", "a", "foo", [], [1], {},
    { a: 1 }];

// One of each JSON type against each type keyword.
const types = ["null", "boolean", "integer", "number", "string", "array",
    "object"];
const byType = [
    ...types.map((type) => [{ type }, ANY]),
    ...types.flatMap((a, i) => types.slice(i + 1)
        .map((b) => [{ type: [a, b] }, ANY])),
    [{ type: ["string", "null", "integer"] }, ANY],
    [true, ANY],
    [{}, ANY],
    [{ title: "t", description: "d", default: 3, examples: [1], $comment: "c",
        deprecated: true, readOnly: true, writeOnly: false,
        $schema: "https://json-schema.org/draft/2020-12/schema",
        type: "integer" }, ANY],
];

const consts = [0, 1, -12, 2.5, 1e21, 1e-7, true, false, null, "", "a", "é",
    "\u0000\u001f\t\n\r\b\f", "quote \" and \\ and /", "\u2028\u{1f600}", [], {},
    [[]], [1, "a", null], { a: 1 }, { "": { "a b": [{}] } }, "</script>"];
const byValue = [
    ...consts.map((c) => [{ const: c }, [...consts.slice(0, 18), c]]),
    [{ enum: consts }, [...consts, 2, "b", [1]]],
    [{ enum: [1, "1", true, null] }, ANY],
    [{ enum: ["a", "ab", "abc", "b"] }, ["a", "ab", "abc", "abcd", "b", "ba"]],
    [{ type: "string", enum: ["a", "b", 3] }, ["a", "b", 3]],
    [{ type: ["integer", "null"], enum: [1, 2.5, null, "x"] },
        [1, 2.5, null, "x"]],
    [{ enum: [1, 5, 10], minimum: 2, maximum: 9 }, [1, 5, 10]],
    [{ enum: ["a", "abc"], minLength: 2 }, ["a", "abc"]],
    [{ enum: [[1], [1, 2]], minItems: 2 }, [[1], [1, 2]]],
    [{ const: "a", type: "string" }, ["a", "b"]],
];

const ints = [-1000, -101, -100, -99, -11, -10, -9, -2, -1, 0, 1, 2, 9, 10, 11,
    19, 20, 99, 100, 101, 109, 110, 199, 200, 255, 256, 999, 1000, 1001, 12345];
const integer = (more) => [{ type: "integer", ...more }, [...ints, 1.5, "1"]];
const byInteger = [
    integer({}), integer({ minimum: 0 }), integer({ minimum: 1 }),
    integer({ maximum: 0 }), integer({ maximum: -1 }),
    integer({ exclusiveMinimum: 0 }), integer({ exclusiveMaximum: 0 }),
    integer({ minimum: 1, maximum: 10 }), integer({ minimum: 10, maximum: 10 }),
    integer({ minimum: 9, maximum: 100 }), integer({ minimum: -10, maximum: 10 }),
    integer({ minimum: -99, maximum: -10 }),
    integer({ minimum: -101, maximum: 199 }),
    integer({ minimum: 110, maximum: 1000 }),
    integer({ exclusiveMinimum: 99, exclusiveMaximum: 200 }),
    integer({ minimum: 1.5, maximum: 19.99 }),
    integer({ minimum: -1.5, exclusiveMaximum: 2.5 }),
    integer({ minimum: 5, exclusiveMinimum: 5 }),
    integer({ maximum: 255, minimum: 0, multipleOf: 1 }),
    integer({ format: "int32" }), integer({ minimum: 1e3, maximum: 1.2345e4 }),
    [{ type: "integer", minimum: -9007199254740991, maximum: 9007199254740991 },
        [9007199254740991, -9007199254740991, 0]],
    [{ type: "integer", minimum: 12345, maximum: 67890 },
        [12344, 12345, 20000, 67890, 67891, 99999]],
];

const reals = [...ints, 0.1, 0.25, 0.5, 0.75, -0.1, -0.5, 1.25, 1.5, 2.5, 9.5,
    9.99, 10.01, -1.5, -9.75, 99.9, 3.14159];
const number = (more) => [{ type: "number", ...more }, [...reals, "1"]];
const byNumber = [
    [{ type: "number" }, [...reals, 1e85, 1e-7, 1.5e30, "1"]],
    number({ minimum: 0 }), number({ exclusiveMinimum: 0 }),
    number({ maximum: 0 }), number({ exclusiveMaximum: 0 }),
    number({ minimum: 0, maximum: 1 }),
    number({ exclusiveMinimum: 0, exclusiveMaximum: 1 }),
    number({ minimum: 0.5, maximum: 0.5 }),
    number({ minimum: 0.1, maximum: 2.5 }),
    number({ exclusiveMinimum: 0.1, exclusiveMaximum: 2.5 }),
    number({ minimum: -1.5, maximum: 1.25 }),
    number({ minimum: -9.75, exclusiveMaximum: -0.5 }),
    number({ minimum: -100, maximum: 99.95 }),
    number({ exclusiveMaximum: 9.999999 }), number({ multipleOf: 1 }),
    number({ minimum: 1e-3, maximum: 1e3 }),
];

const texts = ["", "a", "ab", "abc", "abcd", "abcdefghij", "abcdefghijk", "é",
    "éé", "\u{1f600}", "\u{1f600}\u{1f600}", "a\nb", "\"", "\\\\", "a b",
    "x".repeat(40), "\t", "日本語", "A1-b", "foo", "foobar", "xfoo", "123",
    "12a", "1.5", "2024-02-29"];
const string = (more, extra = []) =>
    [{ type: "string", ...more }, [...texts, ...extra, 1, null]];
const byString = [
    string({}), string({ minLength: 0 }), string({ minLength: 1 }),
    string({ minLength: 3 }), string({ maxLength: 0 }), string({ maxLength: 1 }),
    string({ maxLength: 2 }), string({ maxLength: 10 }),
    string({ minLength: 2, maxLength: 2 }),
    string({ minLength: 1, maxLength: 4 }),
    string({ minLength: 11, maxLength: 40 }), string({ maxLength: 3000 }),
    string({ minLength: 10 }),
];

const patterns = ["a", "^a", "a$", "^a$", "^abc$", "^(foo|bar)$", "^foo|bar$",
    "foo", "^\\d+$", "^\\d{3}$", "^[0-9]+(\\.[0-9]+)?$", "^[a-z]+$", "^[^a]*$",
    "^.$", "^..$", "^\\w+$", "^\\W$", "^\\s", "\\S$", "^$", "^[A-Z][0-9]-[a-z]$",
    "^(a|aa)+$", "^a{2,3}$", "^a*b?c+$", "^(?:ab)*$", "^[\\w-]+$", "^\\u0061b$",
    "^\\x61", "^[\\u4e00-\\u9fff]+", "\\n", "^[\"\\\\]+$", "b{1,}",
    "^(?<year>\\d{4})-\\d{2}-\\d{2}$", "^\\D*$", "^a.c$", "\\$|\\.", "^x{40}$",
    "^\\u{1f600}$", "^[\\d.]+$", "^(|a|ab)$", "^[a-]+$", "^\\/", "^\\t$"];
const byPattern = [
    ...patterns.map((pattern) => string({ pattern }, ["aaa", "aa", "ba", "ac",
        "axc", "ababab", "bbb", "/x", "$", "a-a", " x"])),
    string({ pattern: "^[a-z]+$", minLength: 2, maxLength: 3 }),
    string({ pattern: "a", maxLength: 3 }), string({ pattern: "o", minLength: 4 }),
    [{ type: ["string", "integer"], pattern: "^a+$" }, ["a", "b", 1, null]],
];

const instants = ["2024-02-29", "2023-02-29", "1900-02-29", "2000-02-29",
    "2024-04-31", "2024-12-31", "2024-13-01", "0000-01-01", "24-01-01",
    "12:00:00Z", "23:59:59+01:00", "24:00:00Z", "12:60:00Z", "12:00:00.123Z",
    "12:00:00", "2024-02-29T12:00:00Z", "2024-02-30T12:00:00Z",
    "2024-02-29T12:00:00.5-23:59", "2024-02-29 12:00:00", "x"];
const formats = [
    ["date", instants], ["time", instants], ["date-time", instants],
    ["uuid", ["123e4567-e89b-12d3-a456-426614174000",
        "123E4567-E89B-12D3-A456-42661417400F", "123e4567", "x"]],
    ["ipv4", ["0.0.0.0", "255.255.255.255", "256.1.1.1", "1.2.3", "01.2.3.4"]],
    ["ipv6", ["::", "::1", "1::", "1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7::",
        "1::3:4:5:6:7:8", "fe80::abcd:1", "1:2:3:4:5:6:7:8:9", ":::", "g::"]],
    ["hostname", ["a", "example.org", "a-b.c", "-a", "a-", "x".repeat(64)]],
    ["email", ["a@b.co", "first.last+tag@example.org", "a@b", "@b.co", "a b@c.d"]],
    ["uri", ["https://example.org", "http://a.b:80/c/d?e=f&g#h",
        "ftp://x.y/%20", "no", "//x"]],
    ["duration", ["P1D", "PT5M", "P1Y2M3DT4H5M6S", "P3W", "P", "PT", "1D"]],
];
const byFormat = formats.map(([format, list]) =>
    [{ type: "string", format }, list.filter((x) => x !== "a@b"),
        []]).concat([
    [{ type: "string", format: "date", maxLength: 10 }, instants],
    [{ type: "string", format: "date", pattern: "^2" }, instants],
]);

const lists = [[], [1], [1, 2], [1, 2, 3], [1, 2, 3, 4], ["a"], ["a", 1],
    [1, "a"], [1, "a", true], [null], [[]], [[1], []],
    Array.from({ length: 12 }, (_, i) => i), {}, "[]"];
const array = (more) => [{ type: "array", ...more }, lists];
const byArray = [
    array({}), array({ items: {} }), array({ items: true }),
    array({ items: false }), array({ items: { type: "integer" } }),
    array({ items: { type: "string" } }), array({ minItems: 1 }),
    array({ minItems: 3 }), array({ maxItems: 0 }), array({ maxItems: 2 }),
    array({ minItems: 2, maxItems: 2 }), array({ minItems: 2, maxItems: 3 }),
    array({ items: { type: "integer" }, minItems: 10 }),
    array({ items: { type: "integer" }, maxItems: 11 }),
    array({ items: { type: "integer" }, minItems: 11, maxItems: 14 }),
    array({ prefixItems: [{ type: "integer" }, { type: "string" }] }),
    array({ prefixItems: [{ type: "integer" }, { type: "string" }],
        items: false }),
    array({ prefixItems: [{ type: "integer" }], items: { type: "boolean" } }),
    array({ prefixItems: [{ type: "integer" }, { type: "string" }],
        items: false, minItems: 2 }),
    array({ prefixItems: [{ type: "integer" }], minItems: 3, maxItems: 20 }),
    array({ items: { type: "array", items: { type: "integer" }, maxItems: 2 } }),
    array({ uniqueItems: false }), array({ items: { enum: ["a", 1] } }),
    [{ type: "array", items: object({ a: { type: "integer" } }) },
        [[], [{ a: 1 }], [{ a: 1 }, { a: 2 }], [{ b: 1 }], [1]]],
];

const things = [{}, { a: 1 }, { a: "x" }, { a: 1, b: 2 }, { b: 2 },
    { a: 1, b: "x" }, { a: 1, c: 3 }, { a: 1, b: 2, c: 3 }, [], 1];
const byObject = [
    [object({}), [{}, { a: 1 }]],
    [object({ a: { type: "integer" } }), things],
    [object({ a: { type: "integer" } }, []), things],
    [object({ a: {}, b: {} }), things],
    [object({ a: {}, b: {} }, ["b"]), things],
    [object({ a: {}, b: {}, c: {} }, []), things],
    [object({ a: {}, b: {}, c: {} }, ["a", "c"]), things],
    [object({ a: { type: "integer" }, b: { type: "string" } }), things,
        []],
    [object({ a: {}, b: {} }), [{ a: 1, b: 2 }], [{ b: 2, a: 1 }]],
    [{ type: "object", properties: { a: {} } }, [{}, { a: 1 }],
        [{ b: 1 }, { a: 1, b: 1 }]],
    [{ properties: { a: {} } }, [{}, { a: 1 }], [1, "x", []]],
    [{ type: "object" }, things],
    [{ type: "object", required: ["a"] }, things],
    [{ type: "object", additionalProperties: { type: "integer" } }, things],
    [{ type: "object", additionalProperties: true }, things],
    [{ type: "object", properties: { a: { type: "integer" } },
        additionalProperties: { type: "string" } },
        [{}, { a: 1 }, { a: 1, b: "x" }, { a: 1, b: 2 }, { b: "x" },
            { a: "x" }, { aa: "x" }, { "": "x" }, { "a\n": "x" }]],
    [{ type: "object", properties: { a: {} }, required: ["a", "z"],
        additionalProperties: { type: "integer" } },
        [{ a: 1, z: 1 }, { a: 1, z: 1, b: 2 }, { a: 1 }, { a: 1, z: "x" }]],
    [object({ "a b": {}, "\"": {}, "é\n": {}, "": {} }),
        [{ "a b": 1, "\"": 2, "é\n": 3, "": 4 }]],
    [object({ a: object({ b: object({ c: { type: "null" } }) }) }),
        [{ a: { b: { c: null } } }, { a: { b: {} } }, { a: 1 }]],
    [object({ a: false, b: {} }, ["b"]), [{ b: 1 }, { a: 1, b: 1 }]],
    [object(Object.fromEntries(Array.from({ length: 60 },
        (_, i) => [`property_${i}`, { type: "integer" }])), []),
        [{}, { property_3: 1, property_40: 2 }, { property_59: 0 }]],
    [object({ type: { type: "string" }, properties: { type: "integer" },
        required: { type: "boolean" } }),
        [{ type: "x", properties: 1, required: true }]],
];

const byUnion = [
    [{ anyOf: [{ type: "integer" }, { type: "string" }] }, ANY],
    [{ anyOf: [{ type: "integer", minimum: 5 }, { type: "integer",
        maximum: -5 }] }, [...ints]],
    [{ anyOf: [{ type: "string", maxLength: 2 }, { type: "string",
        pattern: "^x" }] }, texts],
    [{ anyOf: [{ const: 1 }, { const: "a" }, { type: "null" }] }, ANY],
    [{ anyOf: [object({ a: { type: "integer" } }),
        object({ b: { type: "integer" } })] }, things],
    [{ type: "object", properties: { a: {}, b: {} }, additionalProperties: false,
        anyOf: [{ required: ["a"] }, { required: ["b"] }] }, things],
    [{ type: "integer", anyOf: [{ minimum: 100 }, { maximum: 0 }] }, ints],
    [{ anyOf: [{ anyOf: [{ const: 1 }, { const: 2 }] }, { const: 3 }] },
        [1, 2, 3, 4]],
    [{ anyOf: [{ type: "array", items: { type: "integer" } },
        { type: "array", items: { type: "string" } }] }, lists],
    [{ oneOf: [{ type: "integer" }, { type: "string" }, { type: "null" }] }, ANY],
    [{ oneOf: [{ const: 1 }, { const: 2 }, { enum: ["a", "b"] }] },
        [1, 2, 3, "a", "b", "c"]],
    [{ oneOf: [object({ kind: { const: "a" }, x: {} }),
        object({ kind: { const: "b" }, y: {} })] },
        [{ kind: "a", x: 1 }, { kind: "b", y: 1 }, { kind: "a", y: 1 }]],
    [{ oneOf: [object({ a: {} }), object({ b: {} })] }, things],
    [{ oneOf: [{ type: "object", properties: { k: { enum: [1, 2] } },
        required: ["k"] }, { type: "object", properties: { k: { const: 3 } },
        required: ["k"] }] }, [{ k: 1 }, { k: 2 }, { k: 3 }, { k: 4 }, {}]],
    [{ oneOf: [{ type: "integer", enum: [1, 2] }, { type: "integer",
        minimum: 3 }] }, [0, 1, 2, 3, 4]],
    [{ $defs: { a: object({ t: { const: "a" } }), b: object({ t: {
        const: "b" } }) }, oneOf: [{ $ref: "#/$defs/a" }, { $ref: "#/$defs/b" }] },
        [{ t: "a" }, { t: "b" }, { t: "c" }]],
    [{ allOf: [{ type: "integer" }] }, ANY],
    [{ allOf: [{ minimum: 2 }, { maximum: 10 }], type: "integer" }, ints],
    [{ allOf: [{ type: ["integer", "string"] }, { type: ["integer", "null"] }] },
        ANY],
    [{ allOf: [{ enum: [1, 2, 3] }, { enum: [2, 3, 4] }] }, [1, 2, 3, 4]],
    [{ allOf: [{ type: "object", properties: { a: { type: "integer" } },
        required: ["a"] }, { type: "object", properties: { b: {
        type: "string" } } }] },
        [{ a: 1 }, { a: 1, b: "x" }, { b: "x" }, { a: 1, b: 1 }]],
    [{ allOf: [{ type: "object", properties: { a: { minimum: 1 } } },
        { type: "object", properties: { a: { type: "integer", maximum: 9 } },
            required: ["a"] }] }, [{ a: 0 }, { a: 5 }, { a: 10 }, {}]],
    [{ allOf: [{ type: "object", properties: { a: {}, b: {} } }, { type: "object",
        properties: { a: {} }, additionalProperties: false }] },
        [{}, { a: 1 }, { b: 1 }]],
    [{ allOf: [{ type: "string", minLength: 2 }, { maxLength: 4 }] }, texts],
    [{ allOf: [{ type: "array", items: { minimum: 0 } }, { items: {
        type: "integer" }, maxItems: 2 }] }, lists],
    [{ allOf: [{ anyOf: [{ type: "integer" }, { type: "string" }] },
        { anyOf: [{ type: "integer" }, { type: "null" }] }] }, ANY],
    [{ allOf: [{ prefixItems: [{ type: "integer" }], type: "array" },
        { prefixItems: [true, { type: "string" }], items: false }] }, lists],
];

const tree = { $ref: "#/$defs/node", $defs: { node: object({
    value: { type: "integer" },
    children: { type: "array", items: { $ref: "#/$defs/node" } } }) } };
const list = object({ value: { type: "integer" },
    next: { anyOf: [{ $ref: "#" }, { type: "null" }] } });
const byReference = [
    [{ $ref: "#/$defs/a", $defs: { a: { type: "integer" } } }, ANY],
    [{ $ref: "#/definitions/a", definitions: { a: { type: "string" } } }, ANY],
    [{ $defs: { a: { $ref: "#/$defs/b" }, b: { $ref: "#/$defs/c" },
        c: { type: "null" } }, $ref: "#/$defs/a" }, ANY],
    [{ $defs: { "a/b": { type: "integer" }, "c~d": { $ref: "#/$defs/a~1b" },
        "e%f": { $ref: "#/$defs/c~0d" } }, $ref: "#/$defs/e%25f" }, ANY],
    [{ $defs: { n: { type: "integer" } }, $ref: "#/$defs/n", minimum: 3 }, ints],
    [{ type: "object", properties: { a: { type: "integer" }, b: {
        $ref: "#/properties/a" } } }, [{ a: 1, b: 2 }, { a: 1, b: "x" }, {}]],
    [tree, [{ value: 1, children: [] }, { value: 1, children: [{ value: 2,
        children: [{ value: 3, children: [] }] }] }, { value: 1 }]],
    [list, [{ value: 1, next: null }, { value: 1, next: { value: 2,
        next: null } }, { value: 1 }]],
    [{ anyOf: [{ type: "integer" }, { type: "array", items: { $ref: "#" } }] },
        [1, [], [1], [[1, [2]], 3], ["x"], "x"]],
    [{ type: ["object", "null"], additionalProperties: { $ref: "#" } },
        [null, {}, { a: {} }, { a: { b: null } }, { a: 1 }]],
    [{ $defs: { e: { type: "object", properties: { o: { $ref: "#/$defs/o" } },
        additionalProperties: false }, o: { type: "array", items: {
        $ref: "#/$defs/e" } } }, $ref: "#/$defs/e" },
        [{}, { o: [] }, { o: [{}, { o: [] }] }, { o: 1 }]],
    [{ allOf: [{ $ref: "#/$defs/a" }, { maximum: 10 }], $defs: { a: {
        type: "integer", minimum: 1 } } }, ints],
    [{ allOf: [{ $ref: "#/$defs/a" }, { $ref: "#/$defs/b" }], $defs: { a: {
        type: "object", properties: { x: { $ref: "#/$defs/a" }, y: {} } },
    b: { type: "object", properties: { x: { $ref: "#/$defs/b" }, z: {} },
        required: ["z"] } } },
        [{ z: 1 }, { x: { z: 1 }, z: 2 }, { x: { y: 2 }, z: 1 }, {}]],
];

// Schemas as tools and frameworks write them.
const byUse = [
    [object({ name: { type: "string", minLength: 1 }, age: { type: "integer",
        minimum: 0, maximum: 150 }, email: { type: "string", format: "email" },
        tags: { type: "array", items: { type: "string" }, maxItems: 5 } }),
        [{ name: "A", age: 3, email: "a@b.co", tags: [] }]],
    [object({ steps: { type: "array", items: object({ explanation: {
        type: "string" }, output: { type: "string" } }) }, final_answer: {
        type: "string" } }), [{ steps: [{ explanation: "a", output: "b" }],
        final_answer: "c" }]],
    [object({ location: { type: "string", description: "City" }, unit: {
        type: ["string", "null"], enum: ["c", "f", null] } }),
        [{ location: "x", unit: "c" }, { location: "x", unit: null },
            { location: "x", unit: "k" }]],
    [{ $defs: { Kind: { enum: ["a", "b"], title: "Kind", type: "string" } },
        properties: { kind: { $ref: "#/$defs/Kind" }, limit: { anyOf: [{
            type: "integer" }, { type: "null" }], default: null,
        title: "Limit" } }, required: ["kind"], title: "Args", type: "object" },
        [{ kind: "a" }, { kind: "b", limit: null }, { kind: "a", limit: 3 },
            { kind: "c" }]],
    [object({ ui: { $ref: "#/$defs/ui" } }, ["ui"], { $defs: { ui: object({
        type: { enum: ["div", "button"] }, label: { type: "string" },
        children: { type: "array", items: { $ref: "#/$defs/ui" } } }) } }),
        [{ ui: { type: "div", label: "", children: [{ type: "button",
            label: "x", children: [] }] } }]],
    [{ type: "object", properties: { ids: { type: "array", items: {
        type: "string", format: "uuid" }, minItems: 1, maxItems: 50 },
        since: { type: "string", format: "date-time" }, ratio: { type: "number",
        minimum: 0, maximum: 1 } }, required: ["ids"] },
        [{ ids: [] }, { ids: ["123e4567-e89b-12d3-a456-426614174000"],
            ratio: 0.5 }]],
];

// As draft 7 has tuples, which is what most generators of schemas write.
const draft7 = (schema) =>
    ({ $schema: "http://json-schema.org/draft-07/schema#", ...schema });
const pair = [{ type: "integer" }, { type: "string" }];
const byDraft7 = [
    ...[{ items: pair }, { items: pair, additionalItems: false },
        { items: pair, additionalItems: { type: "boolean" } },
        { items: pair, additionalItems: true, minItems: 1, maxItems: 4 },
        { items: pair, minItems: 2, maxItems: 2 },
        { items: pair, minItems: 4, additionalItems: { type: "null" } },
        { items: { type: "integer" }, additionalItems: false },
        { additionalItems: false }, { additionalItems: { type: "null" } },
        { items: [{ items: [{ const: 1 }], additionalItems: false,
            type: "array" }] },
        { allOf: [{ items: pair }, { items: { type: ["integer", "string"] } }] },
        { allOf: [{ items: pair, additionalItems: { type: "integer" } },
            { items: [{ minimum: 1 }, {}, { maximum: 2 }] }] },
    ].map((s) => [draft7({ type: "array", ...s }),
        [...lists, [1, "a"], [0, "a"], [1, "a", true], [1, "a", 3],
            [1, "a", 1, 1], [1, "a", null, null], ["a", 1], [1, "a", {}, []],
            [[1]], [[1, 1]], [[2]]]]),
    [draft7({ $ref: "#/definitions/point", definitions: { point: {
        type: "array", items: [{ $ref: "#/definitions/n" }, { $ref:
            "#/definitions/point/items/0" }], minItems: 2,
        additionalItems: false }, n: { type: "number" } } }),
    [[1, 2], [1], [1, "a"], [1, 2, 3]]],
    [draft7(object({ range: { type: "array", items: [{ type: "number" },
        { type: "number" }], minItems: 2, maxItems: 2 }, tag: { anyOf: [
        { type: "array", items: [{ const: "a" }] }, { type: "null" }] } })),
    [{ range: [0, 1.5], tag: ["a", 1] }, { range: [0], tag: null },
        { range: [1, 2], tag: ["b"] }]],
];

export const families = [...byType, ...byValue, ...byInteger, ...byNumber,
    ...byString, ...byPattern, ...byFormat, ...byArray, ...byObject, ...byUnion,
    ...byReference, ...byUse, ...byDraft7];

const at = (path) => `schema${path}`;
const inA = (schema) => ({ type: "object", properties: { a: schema } });
export const refused = [
    ...["not", "if", "then", "else", "patternProperties",
        "dependentRequired", "dependentSchemas", "contains", "minContains",
        "unevaluatedProperties", "unevaluatedItems", "minProperties",
        "contentEncoding", "$anchor", "$dynamicRef", "nullable", "x-anything",
        "additionalItems", "dependencies"]
        .map((k) => [inA({ [k]: {} }), at(`.properties.a.${k}: not supported`)]),
    [inA({ type: "array", uniqueItems: true }), at(".properties.a.uniqueItems")],
    [{ $schema: "https://json-schema.org/draft/2020-12/schema",
        ...inA({ type: "array", items: [{}] }) },
        at(".properties.a.items: not supported")],
    [inA({ items: [{}], prefixItems: [{}] }), at(".properties.a.items: not")],
    [draft7(inA({ items: [{}, { if: {} }] })), at(".properties.a.items[1].if")],
    [inA({ type: "number", multipleOf: 0.1 }), at(".properties.a.multipleOf")],
    [inA({ type: "string", format: "regex" }), at(".properties.a.format")],
    [inA({ type: "integer", format: "odd" }), at(".properties.a.format")],
    [inA({ $id: "x" }), at(".properties.a.$id")],
    [inA({ $ref: "other.json" }), at(".properties.a.$ref")],
    [inA({ $ref: "#/$defs/none" }), at(".properties.a.$ref: leads to no")],
    [inA({ type: "strin" }), at(".properties.a.type: not a type")],
    [inA({ type: 3 }), at(".properties.a.type")],
    [inA({ minimum: "3" }), at(".properties.a.minimum: expected a number")],
    [inA({ minLength: -1 }), at(".properties.a.minLength")],
    [inA({ required: "a" }), at(".properties.a.required")],
    [inA({ enum: [] }), at(".properties.a.enum")],
    [inA({ anyOf: [] }), at(".properties.a.anyOf")],
    [inA({ properties: [] }), at(".properties.a.properties")],
    [inA(3), at(".properties: expected an object of schemas")],
    [inA({ oneOf: [{ type: "integer" }, { minimum: 3 }] }),
        at(".properties.a.oneOf: only supported")],
    [inA({ oneOf: [{ type: "object", properties: { k: { const: 1 } } },
        { type: "object", properties: { k: { const: 2 } } }] }),
        at(".properties.a.oneOf: only supported")],
    [inA({ anyOf: [{}, { type: "string", pattern: "(" }] }),
        at(".properties.a.anyOf[1].pattern")],
    [inA({ type: "array", prefixItems: [{}, { if: {} }] }),
        at(".properties.a.prefixItems[1].if")],
    [inA({ allOf: [{}, { not: {} }] }), at(".properties.a.allOf[1].not")],
    ...["*", "a**", "a{2,1}", "(?=a)", "(?!a)", "(?<=a)", "\\bfoo", "(a)\\1",
        "[b-a]", "[a", "a)", "(", "(^a|b)", "\\p{L}", "a{", "\\q", "(".repeat(9000)]
        .map((pattern) => [inA({ type: "string", pattern }),
            at(".properties.a.pattern: character ")]),
    [inA({ type: "string", pattern: "^(a|b)*a(a|b){30}$" }),
        at(".properties.a")],
    [{ $ref: "#" }, at(": refers to itself")],
    [{ $defs: { a: { $ref: "#/$defs/b" }, b: { $ref: "#/$defs/a" } },
        $ref: "#/$defs/a" }, at(".$defs.")],
    [{ anyOf: [{ type: "null" }, { $ref: "#" }] },
        at("")],
    [{ allOf: [{ $ref: "#" }] }, at(".allOf[0].$ref: refers to itself")],
    [false, at(": nothing can satisfy it")],
    [{ type: "integer", minimum: 3, maximum: 2 }, at(": nothing can satisfy")],
    [{ type: "string", minLength: 3, maxLength: 2 }, at(": nothing can satisfy")],
    [{ type: "array", minItems: 3, maxItems: 2 }, at(": nothing can satisfy")],
    [object({ a: false }), at(": nothing can satisfy it")],
    [object({ a: { $ref: "#" } }), at(": nothing can satisfy it")],
    [{ type: "array", items: false, minItems: 1 }, at(": nothing can satisfy")],
    [{ type: "array", items: false, minItems: 20 }, at(": nothing can satisfy")],
    [{ allOf: [{ type: "string" }, { type: "integer" }] },
        at(": nothing can satisfy")],
    [[], at(": expected a schema")], [3, at(": expected a schema")],
    [null, at(": expected a schema")],
];
