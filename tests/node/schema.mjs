// Constrained decoding against ajv: what random walks through a schema's grammar
// write is valid, what is invalid is never accepted, and valid instances in the
// order and spacing that the grammar keeps to are.
import { execFileSync } from "node:child_process";
import { Ajv } from "ajv";
import { Ajv2020 } from "ajv/dist/2020.js";
import addFormats from "ajv-formats";
import { families, refused } from "./schema_families.mjs";
import { randomSchema, seedRandom } from "./schema_random.mjs";

const [tool, tokenizer] = process.argv.slice(2);
const SEED = 20261103;
const N_RANDOM = 200;
const WALKS = 8;

let passed = 0, failed = 0;
const cut = (v) => JSON.stringify(v)?.slice(0, 400);
function report(what, schema, detail) {
    if (++failed <= 12)
        console.log(`${what}\n  schema ${cut(schema)}\n  ${detail}`);
}

// JSON as the grammar writes it: with a blank behind commas and colons, and in
// lines.
const spaced = (v) => Array.isArray(v) ? `[${v.map(spaced).join(", ")}]`
    : v && typeof v === "object" ? `{${Object.entries(v).map(([k, x]) =>
        `${JSON.stringify(k)}: ${spaced(x)}`).join(", ")}}`
    : JSON.stringify(v);
const forms = (v) => [JSON.stringify(v), spaced(v), JSON.stringify(v, null, 2)];

function validator(schema) {
    const draft7 = schema.$schema?.includes("/draft-07/");
    const ajv = new (draft7 ? Ajv : Ajv2020)({ strict: false, logger: false,
        validateFormats: true });
    addFormats(ajv);
    return ajv.compile(schema);
}

function ask(lines) {
    const input = lines.map((l) => JSON.stringify(l) + "\n").join("");
    return execFileSync(tool, [tokenizer], { input, maxBuffer: 1 << 30 })
        .toString("utf8").split("\n").filter((l) => l).map((l) => JSON.parse(l));
}

// Every schema with its instances; "narrow" marks those that JSON Schema allows
// and the grammar, by its policy, does not write.
seedRandom(SEED);
const cases = families.map(([schema, instances = [], narrow = []]) =>
    ({ schema, instances, narrow }));
for (let i = 0; i < N_RANDOM; i++)
    cases.push({ schema: randomSchema(), instances: [], narrow: [] });

const first = ask(cases.map(({ schema, instances, narrow }, i) => ({
    schema, seed: SEED + i, walks: WALKS, steps: 40,
    texts: [...instances, ...narrow].flatMap(forms),
})));

const endless = [];
let compiled = 0, walked = 0, unfinished = 0;
const again = [];
cases.forEach(({ schema, instances, narrow }, i) => {
    const a = first[i];
    if (a.error !== undefined || a.failure !== undefined) {
        report(a.error !== undefined ? "refused" : "failed", schema,
            a.error ?? a.failure);
        return;
    }
    const valid = validator(schema);
    compiled += a.outputs.length > 0;
    unfinished += a.unfinished;
    if (!a.outputs.length)
        endless.push(cut(schema));
    for (const text of a.outputs) {
        walked++;
        let v;
        try {
            v = JSON.parse(text);
        } catch (e) {
            report("written, but not JSON", schema, `${cut(text)}: ${e.message}`);
            continue;
        }
        if (valid(v))
            passed++;
        else
            report("written, but invalid", schema,
                `${cut(text)}: ${cut(valid.errors)}`);
    }
    // What was written is accepted in its plain form as well.
    const plain = a.outputs.map((t) => forms(JSON.parse(t))[i % 3])
        .filter((t) => !/\d[eE][+-]?\d/.test(t));
    again.push({ i, line: { schema, seed: 1, walks: 0, texts: plain } });

    let k = 0;
    for (const v of [...instances, ...narrow]) {
        const want = narrow.includes(v) ? false : valid(v);
        for (const text of forms(v)) {
            if (a.accepted[k++] === want)
                passed++;
            else
                report(want ? "valid, but not accepted" :
                    "accepted, but not to be", schema, cut(text));
        }
        if (narrow.includes(v) && !valid(v))
            report("a narrowed instance is invalid anyway", schema, cut(v));
    }
});

ask(again.map((x) => x.line)).forEach((a, k) => {
    a.accepted.forEach((ok, n) => {
        if (ok)
            passed++;
        else
            report("written, but its plain form is not accepted",
                cases[again[k].i].schema, cut(again[k].line.texts[n]));
    });
});

// What is not supported is refused with its path.
ask(refused.map(([schema]) => ({ schema, seed: 1, walks: 0, texts: [] })))
    .forEach((a, i) => {
        const [schema, path] = refused[i];
        if (a.error?.startsWith(path))
            passed++;
        else
            report("not refused as expected", schema,
                `expected ${path}, found ${cut(a)}`);
    });

console.log(`${compiled} schemas, ${walked} random outputs ` +
    `(${unfinished} walks without an end), ${refused.length} refusals`);
// A walk at random seldom writes, say, "foo".
if (endless.length > 5)
    report("too often no walk found an end", endless, "");
if (compiled < 300) {
    console.log("expected at least 300 schemas");
    failed++;
}
console.log(`${passed} passed, ${failed} failed`);
process.exitCode = failed ? 1 : 0;
