// Compare our tokenizer with @huggingface/tokenizers, id by id.
//
// node tokenizer.mjs TOK_DUMP MODEL_DIR
//
// The strings are made from a fixed seed: many scripts, emoji, controls, white
// space, code, random bytes and random code points, and pieces of the
// evaluation text; each is encoded with and without added tokens.  A second
// vocabulary is made so that its ids show the class (letter, number, space,
// other) that the pre-tokeniser gives to every code point.
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Tokenizer } from "@huggingface/tokenizers";

const [dump, model] = process.argv.slice(2);
const SEED = 20260917;

// Plain options, so that nothing but tokenizer.json decides.
const CONFIG = { clean_up_tokenization_spaces: false, remove_space: false };

const isCharacter = (c) => c < 0xd800 || (c > 0xdfff && c <= 0x10ffff);

// Code points that only one side's Unicode version knows; see findYoung.
const young = new Set();
const isYoung = (c) => young.has(c);

let state = SEED;
function random() {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
}
const below = (n) => Math.floor(random() * n);
const pick = (list) => list[below(list.length)];
const repeat = (n, f) => Array.from({ length: n }, f).join("");

const SCRIPTS = [
    [0x41, 0x5a], [0x61, 0x7a], [0xc0, 0x24f], [0x250, 0x2af], [0x370, 0x3ff],
    [0x400, 0x52f], [0x531, 0x587], [0x5d0, 0x5ea], [0x620, 0x6ff],
    [0x710, 0x74f], [0x780, 0x7b1], [0x7c0, 0x7fa], [0x900, 0x97f],
    [0x980, 0x9fe], [0xa01, 0xa76], [0xa81, 0xaff], [0xb82, 0xbfa],
    [0xc00, 0xc7f], [0xd00, 0xd7f], [0xd81, 0xdf4], [0xe01, 0xe5b],
    [0xe81, 0xecd], [0xf00, 0xfda], [0x1000, 0x109f], [0x10a0, 0x10ff],
    [0x1100, 0x11ff], [0x1200, 0x139f], [0x13a0, 0x13fd], [0x1400, 0x167f],
    [0x1780, 0x17f9], [0x1820, 0x18aa], [0x1e00, 0x1fff], [0x2c00, 0x2c5f],
    [0x3041, 0x3096], [0x30a1, 0x30ff], [0x3105, 0x312f], [0x4e00, 0x9fff],
    [0xa000, 0xa48c], [0xac00, 0xd7a3], [0xfb50, 0xfdff], [0xff01, 0xffdc],
    [0x10300, 0x1032f], [0x10900, 0x1091f], [0x12000, 0x12399],
    [0x1d400, 0x1d7ff], [0x20000, 0x2a6df],
];
const MARKS = [[0x300, 0x36f], [0x1ab0, 0x1ace], [0x20d0, 0x20f0],
               [0xfe00, 0xfe0f], [0xe0100, 0xe01ef]];
const NUMBERS = [[0x30, 0x39], [0xb2, 0xb3], [0xbc, 0xbe], [0x660, 0x669],
                 [0x966, 0x96f], [0x2150, 0x2189], [0x2460, 0x249b],
                 [0x3007, 0x3007], [0x1d7ce, 0x1d7ff]];
const EMOJI = [[0x1f300, 0x1f5ff], [0x1f600, 0x1f64f], [0x1f680, 0x1f6d7],
               [0x1f900, 0x1f9ff], [0x1f1e6, 0x1f1ff], [0x2600, 0x27bf]];
const CONTROLS = [[0, 0x1f], [0x7f, 0x9f], [0x200b, 0x200f],
                  [0x202a, 0x202e], [0x2060, 0x206f], [0xfeff, 0xfeff],
                  [0xfff0, 0xffff], [0xe000, 0xe010], [0xad, 0xad]];
const SPACES = [9, 10, 11, 12, 13, 13, 10, 32, 32, 32, 32, 0x85, 0xa0, 0x1680,
                0x180e, 0x2000, 0x2005, 0x200a, 0x200b, 0x2028, 0x2029, 0x202f,
                0x205f, 0x3000, 0xfeff];
const PUNCT = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~«»¿¡…—–“”‘’、。「」×÷€£";

const inRange = ([a, b]) => {
    for (;;) {
        const c = a + below(b - a + 1);
        if (!isYoung(c) && isCharacter(c))
            return String.fromCodePoint(c);
    }
};
const from = (ranges) => inRange(pick(ranges));
const space = () => String.fromCodePoint(pick(SPACES));
const punct = () => pick([...PUNCT]);
const word = (range) => repeat(1 + below(9), () => inRange(range));

const MAKERS = [
    () => { // one script, as prose
        const s = pick(SCRIPTS);
        return repeat(1 + below(12), () => word(s) +
            pick([" ", " ", " ", ", ", ". ", "\n", "  ", "-", ""]));
    },
    () => repeat(1 + below(10), () => word(pick(SCRIPTS)) +
        pick(["", " ", space()])),
    () => repeat(1 + below(20), () => from(SCRIPTS) +
        repeat(below(4), () => from(MARKS))),
    () => repeat(1 + below(20), () => from(EMOJI) +
        pick(["", "", "\u200d", "\ufe0f", "\u{1f3fb}", " "])),
    () => repeat(1 + below(30), () => from(CONTROLS) + pick(["", " ", "a"])),
    () => repeat(1 + below(30), () => pick([space, space, space, punct,
        () => from(SCRIPTS), () => from(NUMBERS)])()),
    () => repeat(1 + below(30), space),
    () => repeat(1 + below(12), () => repeat(1 + below(8),
        () => from(NUMBERS)) + pick(["", " ", ".", ",", "x", "%"])),
    () => repeat(1 + below(8), () => pick(["I", "they", "we", "é", "7", ""]) +
        pick(["'", "’", "''"]) + pick(["s", "S", "t", "re", "RE", "rE", "ve",
        "m", "M", "ll", "LL", "d", "D", "x", "sss", " s"]) +
        pick(["", " ", "!"])),
    () => repeat(1 + below(20), () => punct() +
        pick(["", "", " ", "\n", "\r\n", "a", "1"])),
    () => { // code
        const lines = ["for (int i = 0; i < n; i++) {", "\treturn x->y[3];",
            "if a == b:", "    print(f\"{x!r}\")", "}", "#include <stdio.h>",
            "SELECT * FROM t WHERE id=?;", "{\"a\": [1, 2.5e-3, null]}",
            "// comment", "<div class=\"x\">&nbsp;</div>", "\\frac{a}{b}"];
        return repeat(1 + below(8), () => repeat(below(9), () => " ") +
            pick(lines) + pick(["\n", "\r\n", "\n\n", " "]));
    },
    () => new TextDecoder().decode( // random bytes as text
        Uint8Array.from({ length: 1 + below(60) }, () => below(256))),
    () => repeat(1 + below(60), () => String.fromCharCode(below(256))),
    () => repeat(1 + below(40), () => inRange([0, 0x10ffff])),
    () => repeat(1 + below(40), () => inRange([0, 0xffff])),
    () => { // long runs
        const c = pick([() => "a", () => "_", () => " ", () => "\n",
            () => "林", () => "0", () => from(SCRIPTS), punct])();
        return repeat(1 + below(400), () => c) + pick(["", "x", " x", "\n"]);
    },
    () => { // base64, hexadecimal
        const digits = pick(["0123456789abcdef", "ABCDEFGHIJKLMNOPQRSTUVWXYZ" +
            "abcdefghijklmnopqrstuvwxyz0123456789+/"]);
        return repeat(1 + below(200), () => pick([...digits]));
    },
    (ctx) => { // evaluation text, cut anywhere
        const at = below(ctx.prose.length - 300);
        return ctx.prose.slice(at, at + 1 + below(300)).join("");
    },
    (ctx) => repeat(1 + below(8), () => pick([
        () => pick(ctx.added), () => pick(ctx.added),
        () => pick(ctx.added).slice(0, -1), () => pick(ctx.added).slice(1),
        () => word(pick(SCRIPTS)), space, punct, () => "<", () => "[",
    ])()),
];

let passed = 0, failed = 0;
const cut = (v) => JSON.stringify(v).slice(0, 300);

// Where the two differ by intent: the contraction 's with U+017F for s, which
// Oniguruma and PCRE2 fold to s and this package does not.
const differsByIntent = (text) => /'\u017f/u.test(text);

function compare(name, file, cases) {
    const json = JSON.parse(readFileSync(file, "utf8"));
    const added = new Tokenizer(json, CONFIG);
    const plain = new Tokenizer({ ...json, added_tokens: [] }, CONFIG);
    // Its cache of words costs more than it saves on words that never recur.
    added.model.max_length_to_cache = plain.model.max_length_to_cache = 0;
    const input = cases.map((c) => JSON.stringify(c) + "\n").join("");
    const output = execFileSync(dump, [file],
        { input, maxBuffer: 1 << 30 }).toString("utf8").split("\n");

    cases.forEach(([text, withAdded], i) => {
        const want = (withAdded ? added : plain)
            .encode(text, { add_special_tokens: false }).ids;
        const [got, back] = JSON.parse(output[i]);
        // White space beside a stripping added token is in no token.
        const same = JSON.stringify(want) === JSON.stringify(got) &&
            (back === text || withAdded);

        if (same) {
            passed++;
        } else if (++failed <= 10) {
            console.log(`${name}, ${withAdded ? "added" : "plain"}, seed ` +
                `${SEED}, string ${i}: ${cut(text)}\n` +
                `  expected ${cut(want)}\n  found    ${cut(got)}`);
        }
    });
    console.log(`${name}: ${cases.length} strings compared`);
}

function makeCases(file, n) {
    const json = JSON.parse(readFileSync(file, "utf8"));
    const ctx = {
        prose: [...readFileSync(join(model, "eval_text.txt"), "utf8")],
        added: json.added_tokens.map((a) => a.content),
    };
    const cases = [];

    for (let i = 0; cases.length < 2 * n; i++) {
        const text = MAKERS[i % MAKERS.length](ctx);

        if (!differsByIntent(text))
            cases.push([text, false], [text, true]);
    }
    return cases;
}

// Inputs that are one pre-token of many bytes, or defeat simple merge loops.
function longCases(n) {
    const digits = [..."ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" +
        "0123456789+/"];
    return ["_", "a", "林", " ", "\n", "7"].map((c) => [c.repeat(n), false])
        .concat([[repeat(n, () => pick(digits)), false],
            [repeat(n, () => inRange([0x4e00, 0x9fff])), false],
            [repeat(n, () => inRange([0x61, 0x7a])), false]]);
}

// A vocabulary that shows classes.  In "aC!", letter C joins the a and other C
// the !; in "1C" a number joins the 1; space is what is left.
function classVocabulary(template, regex) {
    const json = JSON.parse(readFileSync(template, "utf8"));
    const letters = [];
    for (let b = 0, n = 256; b < 256; b++)
        letters.push(String.fromCharCode((b >= 33 && b <= 126) ||
            (b >= 161 && b <= 172) || b >= 174 ? b : n++));
    const pieces = new Set(letters), merges = [];
    for (const l of letters)
        for (const pair of [["a", l], [l, "!"], ["1", l]]) {
            pieces.add(pair.join(""));
            merges.push(pair);
        }
    json.added_tokens = [];
    json.model.vocab = Object.fromEntries([...pieces].map((p, i) => [p, i]));
    json.model.merges = merges;
    if (regex)
        json.pre_tokenizer.pretokenizers[0].pattern.Regex = regex;
    return json;
}

// Planes 0 and 1 whole; of the others every 61st, for they hold little but
// ideographs.
function* codePoints() {
    for (let c = 0; c < 0x110000; c += c < 0x20000 ? 1 : 61)
        if (isCharacter(c))
            yield c;
}

// Ask our side which code points have no category: with this expression the
// bytes of such a one join the a before it.
function findYoung(dir, template) {
    const file = join(dir, "unassigned.json");
    const all = [...codePoints()];
    writeFileSync(file, JSON.stringify(classVocabulary(template,
        "a\\p{Cn}|\\P{Cn}|\\p{Cn}")));
    const input = all.map((c) => JSON.stringify(
        [`a${String.fromCodePoint(c)}`, false]) + "\n").join("");
    const output = execFileSync(dump, [file], { input, maxBuffer: 1 << 30 })
        .toString("utf8").split("\n");

    all.forEach((c, i) => {
        const unknown = JSON.parse(output[i])[0][0] !== "a".charCodeAt(0);
        if (unknown !== /\p{Cn}/u.test(String.fromCodePoint(c)))
            young.add(c);
    });
    console.log(`${young.size} code points left out: they are assigned in one ` +
        `side's Unicode version only (ours or ${process.versions.unicode})`);
    if (young.size > 20000)
        failed++;
}

function sweepCases() {
    const cases = [];
    let text = "";

    for (const c of codePoints()) {
        if (isYoung(c))
            continue;
        text += `a${String.fromCodePoint(c)}! 1${String.fromCodePoint(c)}\n`;
        if (text.length > 600) {
            cases.push([text, false]);
            text = "";
        }
    }
    cases.push([text, false]);
    return cases;
}

const dir = mkdtempSync(join(tmpdir(), "seam-tokenizer-"));
try {
    const nano = join(model, "bf16", "tokenizer.json");
    const small = fileURLToPath(
        new URL("../tokenizer/small.json", import.meta.url));
    const classes = join(dir, "classes.json");

    findYoung(dir, nano);
    compare("nano", nano, makeCases(nano, 4000));
    compare("long", nano, longCases(50000));
    compare("small", small, makeCases(small, 1000));
    writeFileSync(classes, JSON.stringify(classVocabulary(nano)));
    compare("code points", classes, sweepCases());
} finally {
    rmSync(dir, { recursive: true });
}
console.log(`${passed} passed, ${failed} failed`);
process.exitCode = failed ? 1 : 0;
