// The official Anthropic client: messages, tools, thinking, counting, errors.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import Anthropic from '@anthropic-ai/sdk';
import { betaTool } from '@anthropic-ai/sdk/helpers/beta/json-schema';
import { jsonSchemaOutputFormat } from '@anthropic-ai/sdk/helpers/json-schema';

import { MODEL, PERSON, blocked, callsEnforced, execute, serve, told,
         toolPrompt, until } from './seam.mjs';

const SMALL_TALK = {
    model: MODEL,
    max_tokens: 60,
    messages: [{ role: 'user', content: 'Hello! Who are you?' }],
    temperature: 0,
    thinking: { type: 'enabled', budget_tokens: 1024 },
};

const ENDLESS = { ...SMALL_TALK, max_tokens: 16000, ignore_eos: true,
                  stream: true };

let server, client;

function clientOf(s, options = {}) {
    return new Anthropic({ baseURL: s.url, apiKey: 'none', maxRetries: 0,
                           ...options });
}

before(async () => {
    server = await serve();
    client = clientOf(server);
});

after(() => server.stop());

// A row of the tool prompts as this API takes it.
function request(row) {
    return {
        model: MODEL,
        max_tokens: 220,
        temperature: 0,
        messages: row.messages,
        tools: row.tools.map(({ function: f }) => ({
            name: f.name, description: f.description,
            input_schema: f.parameters,
        })),
        thinking: row.enable_thinking
            ? { type: 'enabled', budget_tokens: 1024 } : { type: 'disabled' },
        output_config: { effort: row.reasoning_effort },
    };
}

function textOf(message) {
    return message.content.filter((b) => b.type === 'text')
        .map((b) => b.text).join('');
}

function callsOf(message) {
    return message.content.filter((b) => b.type === 'tool_use')
        .map((b) => ({ name: b.name, arguments: b.input }));
}

/* ---- Messages ------------------------------------------------------------ */

test('a message has thinking, text and usage', async () => {
    const m = await client.messages.create(SMALL_TALK);

    assert.match(m.id, /^msg_.{24,}$/);
    assert.equal(m.type, 'message');
    assert.equal(m.role, 'assistant');
    assert.equal(m.model, MODEL);
    assert.deepEqual(m.content.map((b) => b.type), ['thinking', 'text']);
    assert.ok(m.content[0].thinking.length > 0);
    assert.equal(m.content[0].signature, '');
    assert.ok(m.content[1].text.length > 0);
    assert.equal(m.stop_reason, 'end_turn');
    assert.equal(m.stop_sequence, null);
    assert.ok(m.usage.output_tokens > 0);
    assert.match(m._request_id, /^req_/);
});

test('the stream helper ends with the plain message', async () => {
    const plain = await client.messages.create(SMALL_TALK);
    const stream = client.messages.stream(SMALL_TALK);
    let text = '', thinking = '', n = 0;

    stream.on('text', (part) => {
        text += part;
        n++;
    });
    stream.on('thinking', (part) => {
        thinking += part;
    });
    const m = await stream.finalMessage();

    assert.ok(n > 1, 'the text comes in pieces');
    assert.equal(text, textOf(plain));
    assert.equal(thinking, plain.content[0].thinking);
    assert.deepEqual(m.content, plain.content);
    assert.equal(m.stop_reason, 'end_turn');
    assert.equal(m.usage.output_tokens, plain.usage.output_tokens);
});

test('events come in order: blocks do not overlap, indexes are dense',
    async () => {
        const row = toolPrompt('parallel-037');
        const events = [];
        let open = null, next = 0;

        for await (const e of await client.messages.create(
            { ...request(row), stream: true }))
            if (e.type !== 'ping')
                events.push(e);
        const types = events.map((e) => e.type);

        assert.equal(types[0], 'message_start');
        assert.deepEqual(events[0].message.content, []);
        assert.equal(events[0].message.stop_reason, null);
        assert.ok(events[0].message.usage.input_tokens >= 0);
        assert.deepEqual(types.slice(-2), ['message_delta', 'message_stop']);
        assert.equal(events.at(-2).delta.stop_reason, 'tool_use');
        for (const e of events.slice(1, -2)) {
            assert.equal(e.index, open ? next - 1 : next);
            if (e.type === 'content_block_start') {
                assert.equal(open, null);
                next++;
                open = { type: e.content_block.type, signatures: 0, json: '' };
                if (open.type === 'tool_use')
                    assert.deepEqual(e.content_block.input, {});
            } else if (e.type === 'content_block_delta') {
                assert.equal(open.signatures, 0, 'the signature is last');
                open.signatures += e.delta.type === 'signature_delta';
                open.json += e.delta.partial_json ?? '';
            } else {
                assert.equal(e.type, 'content_block_stop');
                assert.equal(open.signatures, Number(open.type === 'thinking'));
                if (open.type === 'tool_use')
                    JSON.parse(open.json);
                open = null;
            }
        }
        assert.equal(open, null);
        assert.equal(next, 3, 'thinking and two calls');
    });

test('thinking can be disabled', async () => {
    const m = await client.messages.create(
        { ...SMALL_TALK, thinking: { type: 'disabled' } });

    assert.deepEqual(m.content.map((b) => b.type), ['text']);
});

test('limits and stop sequences are told apart', async () => {
    const whole = textOf(await client.messages.create(SMALL_TALK));
    const stop = whole.split(' ').at(-1);
    const short = await client.messages.create({ ...SMALL_TALK,
                                                 max_tokens: 5 });
    const stopped = await client.messages.create({ ...SMALL_TALK,
                                                   stop_sequences: [stop] });

    assert.equal(short.stop_reason, 'max_tokens');
    assert.equal(short.usage.output_tokens, 5);
    assert.equal(stopped.stop_reason, 'stop_sequence');
    assert.equal(stopped.stop_sequence, stop);
    assert.equal(textOf(stopped), whole.slice(0, whole.indexOf(stop)));
});

test('count_tokens counts what a message is billed', async () => {
    for (const { max_tokens, temperature, ...asked } of [
        SMALL_TALK, request(toolPrompt('parallel-037')),
        { ...SMALL_TALK, system: 'Answer briefly.' }]) {
        const { input_tokens } = await client.messages.countTokens(asked);
        const { usage } = await client.messages.create(
            { ...asked, max_tokens: 1 });

        assert.equal(input_tokens,
            usage.input_tokens + usage.cache_read_input_tokens);
    }
});

test('what agents send is taken: beta, cache control, billing header',
    async () => {
        const marked = (text) => ({ type: 'text', text,
                                    cache_control: { type: 'ephemeral' } });
        const plain = await client.messages.create(
            { ...SMALL_TALK, system: 'Answer briefly.' });
        const m = await client.beta.messages.create({
            ...SMALL_TALK,
            betas: ['interleaved-thinking-2025-05-14'],
            metadata: { user_id: 'u1' },
            system: [{ type: 'text',
                       text: 'x-anthropic-billing-header: cc_version=2' },
                     marked('Answer briefly.')],
            messages: [{ role: 'user',
                         content: [marked('Hello! Who are you?')] }],
        });

        assert.deepEqual(m.content, plain.content);
    });

test('models are listed in this API\'s shape', async () => {
    const ids = [];

    for await (const model of client.models.list()) {
        assert.equal(model.type, 'model');
        ids.push(model.id);
    }
    assert.deepEqual(ids, [MODEL]);
});

/* ---- Tools --------------------------------------------------------------- */

for (const id of ['single-021', 'parallel-037'])
    for (const streamed of [false, true])
        test(`${id}: calls, results and a final answer, ${
            streamed ? 'streamed' : 'plain'}`, async () => {
            const row = toolPrompt(id);
            const asked = request(row);
            const ask = () => streamed
                ? client.messages.stream(asked).finalMessage()
                : client.messages.create(asked);
            const first = await ask();

            assert.equal(first.stop_reason, 'tool_use');
            assert.equal(first.content[0].type, 'thinking');
            assert.deepEqual(callsOf(first), row.expected);
            asked.messages = [
                ...asked.messages,
                { role: 'assistant', content: first.content },
                { role: 'user',
                  content: first.content.filter((b) => b.type === 'tool_use')
                      .map((b) => ({ type: 'tool_result', tool_use_id: b.id,
                                     content: execute(b.name, b.input) })) },
            ];
            const last = await ask();

            assert.equal(last.stop_reason, 'end_turn');
            for (const call of row.expected)
                assert.ok(textOf(last).includes(
                    told(call.name, call.arguments)), textOf(last));
        });

for (const stream of [false, true])
    test(`toolRunner goes the whole way, ${stream ? 'streamed' : 'plain'}`,
        async () => {
            const row = toolPrompt('parallel-037');
            const calls = [];
            const { tools, ...asked } = request(row);
            const runner = client.beta.messages.toolRunner({
                ...asked,
                stream,
                tools: tools.map((t) => betaTool({
                    name: t.name,
                    description: t.description,
                    inputSchema: t.input_schema,
                    run: (input) => {
                        calls.push({ name: t.name, arguments: input });
                        return execute(t.name, input);
                    },
                })),
            });
            const last = await runner.runUntilDone();

            assert.deepEqual(calls, row.expected);
            for (const call of row.expected)
                assert.ok(textOf(last).includes(
                    told(call.name, call.arguments)), textOf(last));
        });

test('tool_choice any and tool yield a call', async (t) => {
    if (!await callsEnforced(server))
        return t.skip('a call that is asked for is not enforced');
    const { tools } = request(toolPrompt('single-073'));

    for (const choice of [{ type: 'any' },
                          { type: 'tool', name: 'exchange' }]) {
        const m = await client.messages.create(
            { ...SMALL_TALK, max_tokens: 600, tools, tool_choice: choice });
        const calls = callsOf(m);

        assert.equal(m.stop_reason, 'tool_use');
        assert.ok(calls.length > 0);
        assert.ok(calls.every((c) => !choice.name || c.name === choice.name));
    }
});

test('parse yields what the schema describes', async () => {
    const m = await client.messages.parse({
        ...SMALL_TALK,
        max_tokens: 400,
        output_config: { format: jsonSchemaOutputFormat(PERSON) },
    });

    assert.equal(typeof m.parsed_output.name, 'string');
    assert.ok(Number.isInteger(m.parsed_output.age));
});

/* ---- Leaving ------------------------------------------------------------- */

test('tools and a format: calls, then what the schema describes', async () => {
    const row = toolPrompt('parallel-037');
    const asked = { ...request(row), max_tokens: 400 };

    asked.output_config = { ...asked.output_config,
                            format: jsonSchemaOutputFormat(PERSON) };
    const first = await client.messages.parse(asked);

    assert.equal(first.stop_reason, 'tool_use');
    assert.deepEqual(callsOf(first), row.expected);
    asked.messages = [
        ...asked.messages, { role: 'assistant', content: first.content },
        { role: 'user', content: first.content
            .filter((b) => b.type === 'tool_use').map((b) => ({
                type: 'tool_result', tool_use_id: b.id,
                content: execute(b.name, b.input),
            })) },
    ];
    asked.tool_choice = { type: 'none' };
    const last = await client.messages.parse(asked);

    assert.equal(last.stop_reason, 'end_turn');
    assert.deepEqual(Object.keys(last.parsed_output), ['name', 'age']);
});

test('a document is read, and says what of it has no effect', async () => {
    const { data, response } = await client.messages.create({
        ...SMALL_TALK,
        messages: [{ role: 'user', content: [
            { type: 'document', title: 'News', citations: { enabled: true },
              source: { type: 'text', media_type: 'text/plain',
                        data: 'It rains.' } },
            { type: 'text', text: 'Hello! Who are you?' }] }],
    }).withResponse();

    assert.ok(textOf(data).length > 0);
    assert.match(response.headers.get('x-seam-ignored'),
        /messages\.content\.citations/);
});

test('an aborted stream frees its work', async () => {
    const stream = client.messages.stream(ENDLESS);
    let n = 0;

    await assert.rejects(async () => {
        for await (const event of stream)
            if (event.type === 'content_block_delta' && ++n === 5)
                stream.abort();
    }, Anthropic.APIUserAbortError);
    await server.idle();
});

/* ---- Errors -------------------------------------------------------------- */

test('an answer goes on from a last turn of the assistant\'s', async () => {
    const prefill = 'I am a';
    const request = { ...SMALL_TALK, thinking: { type: 'disabled' },
                      messages: [...SMALL_TALK.messages,
                                 { role: 'assistant', content: prefill }] };
    const plain = await client.messages.create(request);

    assert.deepEqual(plain.content.map((b) => b.type), ['text']);
    assert.notEqual(textOf(plain).trim(), '');
    assert.equal(await client.messages.stream(request).finalText(),
        textOf(plain));
});

test('the id of a request is where the client looks for it', async () => {
    const m = await client.messages.create({ ...SMALL_TALK, max_tokens: 1 });
    const { request_id } = await client.messages
        .create({ ...SMALL_TALK, max_tokens: 1, stream: true }).withResponse();

    assert.match(m._request_id, /^req_/);
    assert.match(request_id, /^req_/);
});

test('a prompt that does not fit says so in words clients know', async () => {
    await assert.rejects(
        client.messages.create({ ...SMALL_TALK, messages: [
            { role: 'user', content: 'word '.repeat(20000) }] }),
        (e) => e instanceof Anthropic.BadRequestError &&
            /prompt is too long/.test(e.message));
});

test('bad requests have a type and a message', async () => {
    for (const [change, about] of [[{ temperature: 9 }, /temperature/],
                                   [{ max_tokens: 0 }, /max_tokens/],
                                   [{ messages: [] }, /messages/],
                                   [{ max_tokens: undefined }, /max_tokens/]])
        await assert.rejects(
            client.messages.create({ ...SMALL_TALK, ...change }), (e) => {
                assert.ok(e instanceof Anthropic.BadRequestError, `${e}`);
                assert.equal(e.type, 'invalid_request_error');
                assert.equal(e.error.type, 'error');
                assert.match(e.error.error.message, about);
                assert.match(e.requestID, /^req_/);
                assert.equal(e.error.request_id, e.requestID);
                return true;
            });
    await assert.rejects(client.messages.countTokens({ model: MODEL }),
        Anthropic.BadRequestError);
});

test('an unknown model is not found', async () => {
    await assert.rejects(
        client.messages.create({ ...SMALL_TALK, model: 'claude-nothing' }),
        (e) => e instanceof Anthropic.NotFoundError &&
            e.type === 'not_found_error');
});

test('only the right key is let in, in either header', async () => {
    const guarded = await serve({ 'server.api_keys': ['sk-one'] });
    const bare = { apiKey: null, authToken: null };

    for (const key of [{ apiKey: 'sk-two' }, { authToken: 'sk-two' }])
        await assert.rejects(
            clientOf(guarded, { ...bare, ...key }).messages.create(SMALL_TALK),
            (e) => e instanceof Anthropic.AuthenticationError &&
                e.type === 'authentication_error');
    for (const key of [{ apiKey: 'sk-one' }, { authToken: 'sk-one' }])
        await clientOf(guarded, { ...bare, ...key }).messages
            .create(SMALL_TALK);
    await guarded.stop();
});

/* ---- Retries ------------------------------------------------------------- */

test('a full queue is 429, and a retry gets through', async () => {
    const narrow = await blocked();

    await assert.rejects(clientOf(narrow).messages.create(SMALL_TALK), (e) => {
        assert.ok(e instanceof Anthropic.RateLimitError);
        assert.equal(e.type, 'rate_limit_error');
        assert.ok(Number(e.headers.get('retry-after')) >= 1);
        return true;
    });
    const { statuses, fetch } = narrow.freeing();
    const m = await clientOf(narrow, { maxRetries: 2, fetch }).messages
        .create(SMALL_TALK);

    assert.deepEqual(statuses, [429, 200]);
    assert.ok(textOf(m).length > 0);
    await narrow.stop();
});

test('a draining server is overloaded, and a retry elsewhere succeeds',
    async () => {
        const leaving = await serve({ 'server.drain_timeout_ms': 60000 });
        const stream = clientOf(leaving).messages.stream(ENDLESS);

        await stream.emitted('connect');
        leaving.drain();
        await until(async () =>
            (await fetch(`${leaving.url}/readyz`)).status === 503);
        await assert.rejects(clientOf(leaving).messages.create(SMALL_TALK),
            (e) => e.type === 'overloaded_error');

        const { statuses, fetch: moving } = leaving.moving(server);
        const m = await clientOf(leaving, { maxRetries: 2, fetch: moving })
            .messages.create(SMALL_TALK);

        assert.equal(statuses.length, 2);
        assert.equal(statuses[1], 200);
        assert.ok(textOf(m).length > 0);
        stream.abort();
        await stream.done().catch(() => {});
        await leaving.stop();
    });
