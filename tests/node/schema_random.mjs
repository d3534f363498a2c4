// Random schemas of the supported keywords.

let state = 1;
export function seedRandom(seed) {
    state = seed;
}
function random() {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
}
const below = (n) => Math.floor(random() * n);
const pick = (list) => list[below(list.length)];
const chance = (p) => random() < p;

const NAMES = ["a", "ab", "abc", "b", "id", "name", "value", "items", "type", "x y",
    "é", "\"q\"", "list", "kind", "nested_property", "url"];

function integer() {
    const a = below(2000) - 1000, b = a + below(pick([1, 3, 20, 500, 5000]));
    const s = { type: "integer" };
    if (chance(0.5))
        s[pick(["minimum", "exclusiveMinimum"])] = a;
    if (chance(0.5))
        s[pick(["maximum", "exclusiveMaximum"])] = b + 2;
    return s;
}

function number() {
    const a = (below(20000) - 10000) / pick([1, 2, 8, 10, 100, 1000]);
    const b = a + below(1000) / pick([1, 4, 10, 1000]) + 0.5;
    const s = { type: "number" };
    if (chance(0.5))
        s[pick(["minimum", "exclusiveMinimum"])] = a;
    if (chance(0.5))
        s[pick(["maximum", "exclusiveMaximum"])] = b;
    return s;
}

function string() {
    const n = below(12), s = { type: "string" };
    switch (below(5)) {
    case 0:
        s.pattern = pick(["^[a-z]{1,8}$", "^\\d+(\\.\\d+)?$", "^(x|yz)*$",
            "^[A-Z]\\w*", "foo|bar$", "^[^\\s]{2,5}$"]);
        break;
    case 1:
        s.format = pick(["date", "time", "date-time", "uuid", "ipv4", "email"]);
        break;
    case 2:
        s.minLength = n;
        if (chance(0.5))
            s.maxLength = n + below(30);
        break;
    case 3:
        s.maxLength = n;
    }
    return s;
}

function array(depth) {
    const n = below(4), s = { type: "array", items: schema(depth - 1) };
    if (chance(0.3))
        s.minItems = n;
    if (chance(0.3))
        s.maxItems = n + below(12);
    if (chance(0.2))
        s.prefixItems = Array.from({ length: 1 + below(3) },
            () => schema(depth - 1));
    return s;
}

function object(depth) {
    const properties = {};
    for (let i = below(6); i; i--)
        properties[pick(NAMES)] = schema(depth - 1);
    const s = { type: "object", properties,
        required: Object.keys(properties).filter(() => chance(0.5)) };
    if (chance(0.5))
        s.additionalProperties = false;
    else if (chance(0.2))
        s.additionalProperties = pick([true, integer(), string()]);
    return s;
}

function union(depth) {
    switch (below(4)) {
    case 0:
        return { anyOf: Array.from({ length: 1 + below(3) },
            () => schema(depth - 1)) };
    case 1:
        return { oneOf: ["a", "b", "c"].slice(0, 1 + below(3)).map((kind) => ({
            type: "object", properties: { kind: { const: kind },
                value: schema(depth - 1) }, required: ["kind"] })) };
    case 2:
        return { type: pick([["integer", "null"], ["string", "boolean"],
            ["number", "string", "null"]]) };
    default:
        return { allOf: [integer(), { minimum: -5000 }] };
    }
}

function schema(depth) {
    if (depth <= 0 || chance(0.3))
        switch (below(8)) {
        case 0:
            return { enum: Array.from({ length: 1 + below(5) },
                () => pick(["a", "ab", 1, 2.5, null, true, [1], { a: 1 }, "é"])) };
        case 1:
            return { const: pick(["x", 3, null, "a\nb"]) };
        case 2:
            return { type: "boolean" };
        case 3:
            return { type: "null" };
        case 4:
            return integer();
        case 5:
            return number();
        default:
            return string();
        }
    return pick([object, object, array, union])(depth);
}

export const randomSchema = () => schema(3);
