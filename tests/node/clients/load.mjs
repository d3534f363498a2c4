// A short load from autocannon: many connections that are kept open, one short
// completion after the other on each.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import autocannon from 'autocannon';

import { MODEL, serve } from './seam.mjs';

const REQUESTS = 200, CONNECTIONS = 16;

// Answers by status, and what went wrong below HTTP.
async function load(url, body) {
    const statuses = {};
    const run = autocannon({
        url: `${url}/v1/completions`,
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(body),
        amount: REQUESTS,
        connections: CONNECTIONS,
        timeout: 240,
    });

    run.on('response', (client, status) => {
        statuses[status] = (statuses[status] ?? 0) + 1;
    });
    const result = await run;

    console.log(`# ${result.requests.total} requests, ${
        JSON.stringify(statuses)}, latency ${result.latency.p50} ms median, ${
        result.latency.max} ms maximum`);
    assert.equal(result.errors, 0);
    assert.equal(result.timeouts, 0);
    assert.equal(result.requests.total, REQUESTS);
    return statuses;
}

const SHORT = { model: MODEL, prompt: 'The function returns', max_tokens: 4,
                temperature: 0 };

test('as many connections as sequences: every request is served', async () => {
    const server = await serve({ 'engine.max_seqs': CONNECTIONS });
    const fds = await server.metric('process_open_fds');

    assert.deepEqual(await load(server.url, SHORT), { 200: REQUESTS });
    await server.idle();
    assert.equal(await server.metric('vllm:generation_tokens_total'),
        4 * REQUESTS);
    assert.ok(await server.metric('process_open_fds') <= fds + CONNECTIONS);
    await server.stop();
});

test('a short queue refuses with 429 and nothing else', async () => {
    const server = await serve({ 'engine.max_seqs': 2, 'engine.max_queue': 2 });
    const statuses = await load(server.url, SHORT);
    const refused = await server.metric('seam_requests_rejected_total');

    assert.ok(Object.keys(statuses).every((s) => s === '200' || s === '429'));
    assert.equal(statuses[429] ?? 0, refused);
    assert.ok(statuses[200] > 0);
    await server.idle();
    await server.stop();
});
