// Tool calls over HTTP against the reference's figures.
//
// All prompts of models/nano/eval_tools.jsonl, greedy, with several requests in
// flight, once as one answer and once streamed.  The share of exact answers
// must be within 1.5 points of what models/nano/REFERENCE.md states for w4a16,
// and a stream, joined, must be the answer that is not streamed.
import assert from 'node:assert/strict';
import { isDeepStrictEqual } from 'node:util';

import { callsOf, serve, toolPrompts, toolRequest } from './seam.mjs';

const REFERENCE = 90.3, POINTS = 1.5;
const IN_FLIGHT = 8;

// Join the chunks of a stream as clients do: strings are added up, calls by
// their index.
async function joined(response) {
    const message = { role: 'assistant', content: '' };
    const calls = [];
    let finish = null, usage, text = '', done = false;

    for await (const part of response.body.pipeThrough(new TextDecoderStream()))
        text += part;
    for (const event of text.split('\n\n')) {
        if (!event || event.startsWith(':'))
            continue;
        assert.ok(event.startsWith('data: '), event);
        if (event === 'data: [DONE]') {
            done = true;
            continue;
        }
        assert.ok(!done, 'nothing follows [DONE]');
        const chunk = JSON.parse(event.slice(6));

        assert.ok(!chunk.error, event);
        usage = chunk.usage ?? usage;
        for (const { delta, finish_reason } of chunk.choices) {
            finish = finish_reason ?? finish;
            if (delta.content)
                message.content += delta.content;
            if (delta.reasoning_content)
                message.reasoning_content =
                    (message.reasoning_content ?? '') + delta.reasoning_content;
            for (const c of delta.tool_calls ?? []) {
                calls[c.index] ??= { ...c, function: { ...c.function,
                                                       arguments: '' } };
                calls[c.index].function.arguments += c.function.arguments ?? '';
            }
        }
    }
    assert.ok(done, 'the stream ends with [DONE]');
    return { message: { ...message, tool_calls: calls }, finish, usage };
}

async function whole(response) {
    const answer = await response.json();

    return { message: answer.choices[0].message,
             finish: answer.choices[0].finish_reason, usage: answer.usage };
}

async function ask(server, row, stream) {
    const body = toolRequest(row);

    if (stream)
        Object.assign(body, { stream,
                              stream_options: { include_usage: true } });
    const response = await server.post('/v1/chat/completions', body);

    assert.equal(response.status, 200, `${row.id}: ${response.status}`);
    return stream ? joined(response) : whole(response);
}

async function askAll(server, rows, stream) {
    const answers = new Array(rows.length);
    let next = 0;

    await Promise.all(Array.from({ length: IN_FLIGHT }, async () => {
        while (next < rows.length) {
            const i = next++;

            answers[i] = await ask(server, rows[i], stream);
        }
    }));
    return answers;
}

// What must not depend on streaming.  Ids are random; a call that the limit cut
// off is no call in an answer, but a stream has sent its beginning.
function comparable({ message, finish, usage }) {
    const calls = (message.tool_calls ?? []).map((c) => c.function);
    const cut = (c) => {
        try {
            return !JSON.parse(c.arguments);
        } catch {
            return true;
        }
    };

    if (finish === 'length' && calls.length && cut(calls.at(-1)))
        calls.pop();
    return { content: message.content ?? '',
             reasoning: message.reasoning_content ?? '', calls, finish,
             completion: usage.completion_tokens,
             reasoning_tokens: usage.completion_tokens_details.reasoning_tokens,
             prompt: usage.prompt_tokens };
}

function exact(row, answer) {
    try {
        return isDeepStrictEqual(callsOf(answer.message), row.expected);
    } catch {
        return false; /* a call that was cut off */
    }
}

function report(title, rows, answers) {
    const kinds = ['all', ...new Set(rows.map((r) => r.kind))];
    let share = 0;

    for (const kind of kinds) {
        const of = rows.map((r, i) => [r, answers[i]])
            .filter(([r]) => kind === 'all' || r.kind === kind);
        const good = of.filter(([r, a]) => exact(r, a)).length;

        if (kind === 'all')
            share = 100 * good / of.length;
        console.log(`${title} ${kind}: ${good} of ${of.length} exact, ` +
                    `${(100 * good / of.length).toFixed(1)} %`);
    }
    return share;
}

const rows = toolPrompts();
const server = await serve();
const began = performance.now();
const plain = await askAll(server, rows, false);
const streamed = await askAll(server, rows, true);

console.log(`${rows.length} prompts twice in ${
    ((performance.now() - began) / 1000).toFixed(1)} s, ${
    IN_FLIGHT} in flight`);
const differing = rows.filter((r, i) =>
    !isDeepStrictEqual(comparable(plain[i]), comparable(streamed[i])));
const shares = [report('plain', rows, plain),
                report('streamed', rows, streamed)];

await server.idle();
await server.stop();
for (const r of differing.slice(0, 3)) {
    const i = rows.indexOf(r);

    console.log(r.id, comparable(plain[i]), comparable(streamed[i]));
}
assert.equal(differing.length, 0,
    `streamed differs from plain: ${differing.map((r) => r.id).join(' ')}`);
for (const share of shares)
    assert.ok(Math.abs(share - REFERENCE) <= POINTS,
        `${share.toFixed(1)} % exact, expected ${REFERENCE} within ${POINTS}`);
