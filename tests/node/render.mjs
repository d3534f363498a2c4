// Compare rendered prompts with the checkpoint's own chat_template.jinja, run by
// @huggingface/jinja, byte by byte.
//
// node render.mjs RENDER_DUMP PLUGIN_DIR TEMPLATE
//
// Conversations are made from a fixed seed: every role, tools and calls, results
// in and out of order, content as lists, reasoning in every place, every flag.
// The plugin gets them as clients send them, the template in the form that
// servers bring them to (chat spec, 2.1).  Left out is what the two are meant to
// do differently: media, real numbers in exponent form (the package prints them
// as JavaScript does), and white space at the ends that only one language
// strips.
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { Interpreter, Template } from "@huggingface/jinja";

const [dump, pluginDir, templateFile] = process.argv.slice(2);
const SEED = 20260918;
const N = 600;

// Three filters of Jinja that the package lacks, with the arguments that chat
// templates give them.
const applyFilter = Interpreter.prototype.applyFilter;
Interpreter.prototype.applyFilter = function (operand, filter, environment) {
    if (filter.type !== "CallExpression" || !Array.isArray(operand.value))
        return applyFilter.call(this, operand, filter, environment);
    const list = (values) => new operand.constructor(values);
    const [args] = this.evaluateArguments(filter.args, environment);
    switch (filter.callee.value) {
    case "map":
        if (args[0]?.value === "first")
            return list(operand.value.map((v) => v.value[0]));
        break;
    case "select":
        if (args[0]?.value === "in") {
            const among = new Set(args[1].value.map((v) => v.value));
            return list(operand.value.filter((v) => among.has(v.value)));
        }
        break;
    case "unique": { // case-sensitive
        const seen = new Set();
        return list(operand.value.filter((v) =>
            !seen.has(v.value) && seen.add(v.value)));
    }
    }
    return applyFilter.call(this, operand, filter, environment);
};

let state = SEED;
function random() {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
}
const below = (n) => Math.floor(random() * n);
const pick = (list) => list[below(list.length)];
const chance = (p) => random() < p;
const many = (most, f) => Array.from({ length: below(most + 1) }, f);

const WORDS = [
    "hello", "the weather", "Größe", "東京", "مرحبا", "🌍", "👩‍👩‍👧", "e\u0301",
    "x < y && a > b", "\n", "\n\n", "\t", "  ", "\r\n", "\u2028", "\u00a0",
    "\u3000", "\u200b", "\u0000", "\u0007", "\u001f", "\u007f", "\"", "\\",
    "'", "/", "</", "<think>", "</think>", "<|user|>", "<|assistant|>",
    "[gMASK]", "<tool_call>", "</tool_call>", "<arg_key>", "</arg_value>",
    "<tool_response>", "{{ x }}", "{% raw %}", "{\"a\": 1}", "None", "null",
    "1.50", "\ufffd", "\ud83d\ude00",
];
const text = () => many(5, () => pick(WORDS)).join(chance(0.5) ? " " : "");

// What Python strips and JavaScript does not, or the other way round.
const UNEVEN = /[\u001c-\u001f\u0085\ufeff]/;
function stripsEvenly(s) {
    return !UNEVEN.test(s.replace(/[^\s\u001c-\u001f\u0085\ufeff]/g, "x")
        .replace(/x.*x/s, "x"));
}
function assistantText() {
    for (;;) {
        const s = text();
        const parts = s.split("</think>");
        if (stripsEvenly(s) && stripsEvenly(parts.at(-1)))
            return s;
    }
}

function number() {
    return pick([0, 1, -1, 42, 2 ** 31, -(2 ** 53 - 1), 0.5, -2.25, 3.14159,
                 0.1, 1 / 3, 123456.789, below(1e9), 1e-4, 12345678.125]);
}
function value(depth) {
    const kind = below(depth > 3 ? 5 : 7);
    if (kind === 0) return null;
    if (kind === 1) return chance(0.5);
    if (kind === 2) return number();
    if (kind <= 4) return text();
    if (kind === 5) return many(4, () => value(depth + 1));
    return object(depth + 1);
}
const KEYS = ["city", "days", "a", "b c", "größe", "<x>", "k\"q", "type",
              "name", "strict", "", "\u2028"];
function object(depth) {
    return Object.fromEntries(many(4, () => [pick(KEYS), value(depth)]));
}

const NAMES = ["get_weather", "now", "write-file", "a.b:c", "set"];

// A tool as a client sends it; flat ones keep their type.
function tool(name) {
    const f = { name };
    if (chance(0.7)) f.description = text();
    if (chance(0.8)) f.parameters = { type: "object", properties: object(1) };
    if (chance(0.3)) f.strict = chance(0.5);
    if (chance(0.2)) f.defer_loading = chance(0.6);
    if (chance(0.2)) f.extra = value(2);
    const t = chance(0.8) ? { type: "function", function: f } :
              chance(0.5) ? { type: "function", ...f } : f;
    return [t, t];
}

// Content in some shape, and as one the template reads.
function content(s) {
    if (s === "" && chance(0.5))
        return pick([[null, ""], [undefined, ""], [[], []]]);
    if (chance(0.6))
        return [s, s];
    const parts = [], plain = [];
    let rest = Array.from(s);
    do {
        const n = 1 + below(rest.length + 1);
        const piece = rest.slice(0, n).join("");
        rest = rest.slice(n);
        plain.push({ type: "text", text: piece });
        parts.push(pick([
            { type: "text", text: piece }, piece,
            { type: "input_text", text: piece },
            { type: "output_text", text: piece },
            { type: "refusal", refusal: piece },
        ]));
    } while (rest.length);
    return [parts, plain];
}

function args() {
    const o = object(1);
    const wire = pick([
        () => o, () => JSON.stringify(o), () => JSON.stringify(o, null, 2),
        () => JSON.stringify(JSON.stringify(o)),
    ])();
    if (chance(0.1))
        return pick([["", {}], [null, {}], ["null", {}], ["{\"cut", {}]]);
    return [wire, o];
}

let ids = 0;
function call() {
    const [wire, plain] = args(), id = chance(0.9) ? `call_${ids++}` : "";
    const name = pick(NAMES), key = chance(0.9) ? "id" : "tool_call_id";
    const make = (a) => ({ [key]: id, type: "function",
                           function: { name, arguments: a } });
    return [make(wire), make(plain), id];
}

function assistant() {
    const [wireContent, plainContent] = content(assistantText());
    const wire = { role: "assistant", content: wireContent };
    const plain = { role: "assistant", content: plainContent };
    const calls = chance(0.4) ? many(3, call) : [];
    if (chance(0.5)) {
        const r = text();
        wire[pick(["reasoning_content", "reasoning", "thinking"])] = r;
        plain.reasoning_content = r;
    } else if (chance(0.2)) {
        wire.reasoning_content = null;
    }
    if (calls.length || chance(0.2)) {
        wire.tool_calls = calls.map((c) => c[0]);
        plain.tool_calls = calls.map((c) => c[1]);
    }
    return [wire, plain, calls.map((c) => c[2])];
}

function answer(s) {
    if (chance(0.1)) {
        const refs = Array.from({ length: 1 + below(2) }, () =>
            ({ type: "tool_reference", name: pick(NAMES) }));
        return [refs, refs];
    }
    return content(s);
}

function results(called) {
    let order = called.slice();
    if (chance(0.5)) order.reverse();
    if (chance(0.2)) order.pop();
    if (chance(0.1)) order.push(pick(["zz", called[0] ?? "", ""]));
    if (!order.length && chance(0.3)) order = ["alone"];
    if (order.length && chance(0.2)) {
        const entries = order.map((id) => {
            const [w, p] = answer(text());
            return [{ output: w ?? null, tool_call_id: id },
                    { output: p, tool_call_id: id }];
        });
        return [[{ role: "tool", content: entries.map((e) => e[0]) },
                 { role: "tool", content: entries.map((e) => e[1]) }]];
    }
    return order.map((id) => {
        const [w, p] = answer(text());
        const key = chance(0.9) ? "tool_call_id" : "id";
        return [{ role: chance(0.9) ? "tool" : "function", [key]: id,
                  content: w },
                { role: "tool", [key]: id, content: p }];
    });
}

function conversation() {
    const wire = [], plain = [];
    const add = ([w, p]) => { wire.push(w); plain.push(p); };
    const said = (role, as = role) => {
        const [w, p] = content(text());
        add([{ role, content: w }, { role: as, content: p }]);
    };
    if (chance(0.5)) said(pick(["system", "developer"]), "system");
    for (const n = 1 + below(4); wire.length < n || chance(0.5);) {
        const kind = below(10);
        if (kind === 0) said("system");
        else if (kind < 5) said("user");
        else {
            const [w, p, called] = assistant();
            add([w, p]);
            if (called.length || chance(0.05)) results(called).forEach(add);
        }
        if (wire.length > 12) break;
    }
    return [wire, plain];
}

const EFFORT = { minimal: "low", low: "low", medium: "high", high: "high",
                 xhigh: "max", max: "max" };

function example() {
    const [wire, plain] = conversation();
    const request = { model: "m", stream: true, messages: wire };
    const inputs = { messages: plain, add_generation_prompt: true };
    const kwargs = {};
    if (chance(0.5)) {
        const tools = NAMES.filter(() => chance(0.5)).map(tool);
        request.tools = tools.map((t) => t[0]);
        inputs.tools = tools.map((t) => t[1]);
    } else {
        inputs.tools = [];
    }
    if (chance(0.4)) {
        const effort = pick(Object.keys(EFFORT));
        pick([request, kwargs]).reasoning_effort = effort;
        inputs.reasoning_effort = EFFORT[effort];
    }
    if (chance(0.4)) {
        inputs.enable_thinking = chance(0.3);
        pick([
            () => { request.enable_thinking = inputs.enable_thinking; },
            () => { kwargs.enable_thinking = inputs.enable_thinking; },
            () => { kwargs.thinking = inputs.enable_thinking; },
            () => { request.thinking = {
                type: inputs.enable_thinking ? "enabled" : "disabled" }; },
        ])();
    }
    if (chance(0.4)) {
        inputs.clear_thinking = chance(0.7);
        if (request.thinking)
            request.thinking.clear_thinking = inputs.clear_thinking;
        else
            kwargs.clear_thinking = inputs.clear_thinking;
    }
    if (chance(0.3))
        request.add_generation_prompt = inputs.add_generation_prompt =
            chance(0.5);
    if (Object.keys(kwargs).length || chance(0.1))
        request.chat_template_kwargs = kwargs;
    return [JSON.stringify(request), inputs];
}

const template = new Template(readFileSync(templateFile, "utf8"));
const examples = Array.from({ length: N }, example);
const run = spawnSync(dump, [pluginDir, "glm47", templateFile], {
    input: examples.map(([request]) => request + "\n").join(""),
    maxBuffer: 1 << 30,
});
if (run.status !== 0) {
    console.error(`${dump} failed: ${run.stderr}`);
    process.exit(1);
}

// "LENGTH\n" and so many bytes and "\n", for each example.
const out = run.stdout;
let at = 0, differ = 0, bytes = 0;
const line = () => {
    const end = out.indexOf(10, at), s = out.toString("utf8", at, end);
    at = end + 1;
    return s;
};
const seen = { calls: 0, tools: 0, results: 0, reasoning: 0, lists: 0 };
for (const [request, inputs] of examples) {
    const n = Number(line());
    const got = n < 0 ? Buffer.from(`refused: ${line()}`) :
                        out.subarray(at, at + n);
    if (n >= 0) at += n + 1;
    const want = Buffer.from(template.render(inputs));
    bytes += want.length;
    seen.tools += inputs.tools.length > 0;
    for (const m of inputs.messages) {
        seen.calls += m.tool_calls?.length ?? 0;
        seen.results += m.role === "tool";
        seen.reasoning += "reasoning_content" in m;
        seen.lists += Array.isArray(m.content);
    }
    if (got.equals(want)) continue;
    if (++differ > 3) continue;
    let first = 0;
    while (got[first] === want[first]) first++;
    const near = (b) => JSON.stringify(
        b.subarray(Math.max(0, first - 60), first + 60).toString("utf8"));
    console.error(`request ${request}\nfirst difference at byte ${first}:\n` +
                  `  plugin   ${near(got)}\n  template ${near(want)}`);
}
if (at !== out.length) {
    console.error(`${out.length - at} bytes behind the last prompt`);
    differ++;
}
console.log(`${N} conversations, ${bytes} bytes, ${differ} differ; seed ` +
            `${SEED}; with ${Object.entries(seen).map(([k, v]) =>
                `${v} ${k}`).join(", ")}`);
for (const [what, n] of Object.entries(seen))
    if (n < 50) {
        console.error(`only ${n} ${what}: the generator is broken`);
        differ++;
    }
process.exit(differ ? 1 : 0);
