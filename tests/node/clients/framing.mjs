// Server-sent events byte by byte, as curl receives them.
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { after, before, test } from 'node:test';

import { MODEL, serve, toolPrompt, toolRequest, until } from './seam.mjs';

const CHAT = {
    model: MODEL,
    messages: [{ role: 'user', content: 'Hello! Who are you?' }],
    temperature: 0,
    max_tokens: 60,
};
const skip = spawnSync('curl', ['--version']).error
    ? 'curl is not installed' : false;

let server;

before(async () => {
    server = await serve({ 'engine.max_seqs': 2, 'server.sse_ping_ms': 100 });
});

after(() => server.stop());

// Start curl; its output is headers, an empty line and the body as received.
function curl(path, body) {
    const child = spawn('curl', ['-sNi', '--raw', '-H',
                                 'content-type: application/json',
                                 '--data-binary', '@-', server.url + path],
        { stdio: ['pipe', 'pipe', 'inherit'] });

    child.stdin.end(JSON.stringify(body));
    child.bytes = Buffer.alloc(0);
    child.stdout.on('data', (part) => {
        child.bytes = Buffer.concat([child.bytes, part]);
    });
    child.ended = new Promise((resolve) => child.on('close', resolve));
    return child;
}

async function received(path, body) {
    const child = curl(path, body);

    assert.equal(await child.ended, 0, 'curl failed');
    const at = child.bytes.indexOf('\r\n\r\n');

    return { head: child.bytes.subarray(0, at).toString('latin1'),
             body: child.bytes.subarray(at + 4) };
}

// The events of a body that holds nothing else.
function events(bytes, { done = true } = {}) {
    const text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })
        .decode(bytes);
    const found = [];
    let at = 0;

    while (at < text.length) {
        const end = text.indexOf('\n\n', at);
        const event = text.slice(at, end);

        assert.ok(end > at, `no event ends after ${JSON.stringify(
            text.slice(at, at + 80))}`);
        assert.ok(!/[\r\n]/.test(event), JSON.stringify(event));
        if (event !== ': ping') {
            assert.ok(event.startsWith('data: '), JSON.stringify(event));
            found.push(event.slice(6));
        }
        at = end + 2;
    }
    if (done)
        assert.equal(found.pop(), '[DONE]');
    return found.map((data) => {
        const value = JSON.parse(data);

        assert.ok(data.startsWith('{') && data.endsWith('}'), data);
        assert.ok(!('error' in value), data);
        return value;
    });
}

test('the head promises a stream of events', { skip }, async () => {
    const { head } = await received('/v1/chat/completions',
        { ...CHAT, stream: true });
    const lines = head.split('\r\n');
    const headers = Object.fromEntries(lines.slice(1).map((line) => {
        const at = line.indexOf(': ');

        return [line.slice(0, at).toLowerCase(), line.slice(at + 2)];
    }));

    assert.equal(lines[0], 'HTTP/1.1 200 OK');
    assert.equal(headers['content-type'], 'text/event-stream; charset=utf-8');
    assert.equal(headers['cache-control'], 'no-cache');
    assert.equal(headers['x-accel-buffering'], 'no');
    assert.equal(headers.connection, 'close');
    assert.match(headers['x-request-id'], /^req_/);
    assert.equal(headers['content-length'], undefined);
    assert.equal(headers['transfer-encoding'], undefined);
});

test('chat: role, deltas, finish, usage, done', { skip }, async () => {
    const { body } = await received('/v1/chat/completions',
        { ...CHAT, stream: true, stream_options: { include_usage: true } });
    const chunks = events(body);
    const [first, ...rest] = chunks;
    const usage = rest.pop(), last = rest.pop();

    assert.deepEqual(first.choices[0].delta,
        { role: 'assistant', content: '' });
    for (const chunk of rest) {
        const [{ delta, finish_reason }] = chunk.choices;

        assert.equal(Object.keys(delta).length, 1);
        assert.ok(['content', 'reasoning_content'].includes(
            Object.keys(delta)[0]));
        assert.ok(Object.values(delta)[0].length > 0, 'no empty delta');
        assert.equal(finish_reason, null);
        assert.equal(chunk.usage, null);
    }
    assert.deepEqual(last.choices[0].delta, {});
    assert.equal(last.choices[0].finish_reason, 'stop');
    assert.deepEqual(usage.choices, []);
    assert.ok(usage.usage.completion_tokens > 0);
    for (const key of ['id', 'created', 'model', 'object'])
        assert.equal(new Set(chunks.map((c) => c[key])).size, 1, key);
});

test('without include_usage no chunk has the key', { skip }, async () => {
    const { body } = await received('/v1/chat/completions',
        { ...CHAT, stream: true });

    assert.ok(events(body).every((chunk) => !('usage' in chunk)));
});

test('a call: id and name once, arguments in pieces', { skip }, async () => {
    const row = toolPrompt('parallel-037');
    const { body } = await received('/v1/chat/completions',
        { model: MODEL, ...toolRequest(row), stream: true });
    const parts = events(body).flatMap((c) => c.choices[0].delta.tool_calls ??
        []);
    const seen = [];

    for (const part of parts) {
        if (part.id) {
            assert.equal(part.index, seen.length, 'indexes are dense');
            assert.equal(part.type, 'function');
            assert.equal(part.function.arguments, '');
            seen.push({ name: part.function.name, text: '' });
        } else {
            assert.deepEqual(Object.keys(part), ['index', 'function']);
            assert.deepEqual(Object.keys(part.function), ['arguments']);
            assert.equal(part.index, seen.length - 1);
            seen.at(-1).text += part.function.arguments;
        }
    }
    assert.deepEqual(seen.map(({ name, text }) =>
        ({ name, arguments: JSON.parse(text) })), row.expected);
});

test('n choices interleave, each with its own begin and end', { skip },
    async () => {
        const { body } = await received('/v1/chat/completions',
            { ...CHAT, stream: true, n: 2, seed: 1, temperature: 1 });
        const chunks = events(body);

        for (const index of [0, 1]) {
            const own = chunks.map((c) => c.choices[0])
                .filter((c) => c.index === index);

            assert.equal(own[0].delta.role, 'assistant');
            assert.equal(own.filter((c) => c.delta.role).length, 1);
            assert.ok(own.at(-1).finish_reason);
            assert.equal(own.filter((c) => c.finish_reason).length, 1);
        }
    });

test('wild text never splits a character', { skip }, async () => {
    const wild = { model: MODEL, prompt: 'Größe 漢字 🙂 Ω ру', max_tokens: 120,
                   temperature: 2, top_p: 1, seed: 7, ignore_eos: true,
                   skip_special_tokens: false };
    const { body } = await received('/v1/completions',
        { ...wild, stream: true });
    const plain = await (await server.post('/v1/completions', wild)).json();
    const text = events(body).map((c) => c.choices[0].text).join('');

    assert.ok(/[^\x00-\x7f]/.test(text), 'the text is not only ASCII');
    assert.equal(text, plain.choices[0].text);
});

test('events arrive as they are made, pings while there are none', { skip },
    async () => {
        const endless = { ...CHAT, stream: true, max_tokens: 16000,
                          ignore_eos: true };
        const blockers = [curl('/v1/chat/completions', endless),
                          curl('/v1/chat/completions', endless)];

        for (const b of blockers)
            await until(() => b.bytes.toString().split('\n\ndata: ').length >
                5);
        assert.equal(await server.running(), 2, 'both still run');

        const third = curl('/v1/chat/completions', { ...CHAT, stream: true });

        await until(() => third.bytes.toString().split(': ping\n\n').length >
            3);
        for (const b of blockers)
            b.kill();
        assert.equal(await third.ended, 0);
        const body = third.bytes.subarray(third.bytes.indexOf('\r\n\r\n') + 4);

        assert.equal(events(body).at(-1).choices[0].finish_reason, 'stop');
        await Promise.all(blockers.map((b) => b.ended));
        await server.idle();
    });
