// The official OpenAI client on the Responses API.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import OpenAI from 'openai';
import { zodTextFormat } from 'openai/helpers/zod';
import { z } from 'zod';

import { MODEL, execute, serve, told, toolPrompt } from './seam.mjs';

const SMALL_TALK = {
    model: MODEL,
    input: 'Hello! Who are you?',
    temperature: 0,
    max_output_tokens: 60,
};

let server, client;

before(async () => {
    server = await serve();
    client = new OpenAI({ baseURL: server.v1, apiKey: 'none', maxRetries: 0 });
});

after(() => server.stop());

// A row of the tool prompts as this API takes it.
function request(row) {
    return {
        model: MODEL,
        input: row.messages,
        temperature: 0,
        max_output_tokens: 220,
        reasoning: { effort: row.reasoning_effort },
        tools: row.tools.map(({ function: f }) =>
            ({ type: 'function', strict: false, ...f })),
    };
}

// Without what is random or a matter of time.
function comparable(response) {
    const { id, created_at, usage, output, ...rest } = response;

    return { ...rest, output: output.map(({ id, call_id, ...item }) => item),
             usage: { ...usage, input_tokens_details: null } };
}

function callsOf(response) {
    return response.output.filter((item) => item.type === 'function_call')
        .map((item) => ({ name: item.name,
                          arguments: JSON.parse(item.arguments) }));
}

test('a response has reasoning, a message and usage', async () => {
    const r = await client.responses.create(
        { ...SMALL_TALK, metadata: { topic: 'greeting' } });

    assert.match(r.id, /^resp_.{24,}$/);
    assert.equal(r.object, 'response');
    assert.equal(r.status, 'completed');
    assert.equal(r.model, MODEL);
    assert.equal(r.error, null);
    assert.equal(r.incomplete_details, null);
    assert.deepEqual(r.metadata, { topic: 'greeting' });
    assert.deepEqual(r.output.map((item) => item.type),
        ['reasoning', 'message']);
    assert.ok(r.output[0].content[0].text.length > 0);
    assert.ok(r.output_text.length > 0);
    assert.equal(r.usage.total_tokens,
        r.usage.input_tokens + r.usage.output_tokens);
    assert.ok(r.usage.output_tokens_details.reasoning_tokens > 0);
});

test('instructions are the first system message', async () => {
    const { messages, ...rest } = {
        model: MODEL, temperature: 0, max_tokens: 60,
        messages: [{ role: 'system', content: 'Answer briefly.' },
                   { role: 'user', content: SMALL_TALK.input }],
    };
    const chat = await client.chat.completions.create({ ...rest, messages });
    const r = await client.responses.create(
        { ...SMALL_TALK, instructions: 'Answer briefly.' });

    assert.equal(r.output_text, chat.choices[0].message.content);
    assert.equal(r.usage.input_tokens, chat.usage.prompt_tokens);
});

for (const id of ['text', 'parallel-037'])
    test(`${id}: the events of a stream are complete and in order`,
        async () => {
            const asked = id === 'text' ? SMALL_TALK : request(toolPrompt(id));
            const plain = await client.responses.create(asked);
            const events = [];

            for await (const e of await client.responses.create(
                { ...asked, stream: true }))
                events.push(e);
            const types = events.map((e) => e.type);

            assert.deepEqual(events.map((e) => e.sequence_number),
                events.map((_, i) => i));
            assert.deepEqual(types.slice(0, 2),
                ['response.created', 'response.in_progress']);
            assert.equal(types.at(-1), 'response.completed');

            // Items follow each other, and so do the parts inside.
            let item = null, part = null, text = '', next = 0;

            for (const e of events.slice(2, -1)) {
                const kind = e.type.replace(/^response\./, '');

                if (kind === 'output_item.added') {
                    assert.equal(item, null);
                    assert.equal(e.output_index, next++);
                    item = e.item;
                    text = '';
                    continue;
                }
                assert.equal(e.output_index, next - 1);
                if (kind === 'output_item.done') {
                    assert.equal(e.item.id, item.id);
                    assert.equal(e.item.type, item.type);
                    assert.equal(part, null);
                    item = null;
                    continue;
                }
                assert.equal(e.item_id, item.id);
                if (kind === 'content_part.added')
                    part = e.part;
                else if (kind === 'content_part.done')
                    part = null;
                else if (kind.endsWith('.delta'))
                    text += e.delta;
                else
                    assert.equal(e.text ?? e.arguments, text, kind);
            }
            assert.equal(item, null);
            assert.deepEqual(comparable(events.at(-1).response), (() => {
                const { output_text, ...wire } = comparable(plain);

                return wire;
            })());
        });

test('the stream helper ends with the plain response', async () => {
    const plain = await client.responses.create(SMALL_TALK);
    const stream = client.responses.stream(SMALL_TALK);
    let text = '';

    stream.on('response.output_text.delta', (e) => {
        text += e.delta;
    });
    const r = await stream.finalResponse();

    assert.equal(text, plain.output_text);
    assert.equal(r.output_text, plain.output_text);
    assert.equal(r.status, 'completed');
});

// Clients that keep no text of the reasoning send it back sealed.
function sealed({ content, status, ...item }) {
    return item.type === 'reasoning' ? item : { content, status, ...item };
}

for (const [id, seal] of [['single-021', false], ['parallel-037', false],
                          ['parallel-037', true]])
    test(`${id}: calls, results and a final answer${
        seal ? ', reasoning sealed' : ''}`, async () => {
        const row = toolPrompt(id);
        const asked = request(row);

        if (seal)
            Object.assign(asked, { store: false,
                include: ['reasoning.encrypted_content'] });
        const first = await client.responses.create(asked);

        assert.deepEqual(callsOf(first), row.expected);
        asked.input = [
            ...asked.input, ...seal ? first.output.map(sealed) : first.output,
            ...first.output.filter((item) => item.type === 'function_call')
                .map((item) => ({
                    type: 'function_call_output', call_id: item.call_id,
                    output: execute(item.name, JSON.parse(item.arguments)),
                })),
        ];
        const last = await client.responses.create(asked);

        assert.deepEqual(callsOf(last), []);
        for (const call of row.expected)
            assert.ok(last.output_text.includes(
                told(call.name, call.arguments)), last.output_text);
    });

for (const stream of [false, true])
    test(`parse yields what the schema describes, ${
        stream ? 'streamed' : 'plain'}`, async () => {
        const asked = {
            ...SMALL_TALK,
            max_output_tokens: 400,
            text: { format: zodTextFormat(z.object({
                name: z.string().max(12),
                age: z.int().min(0).max(130),
            }), 'person') },
        };
        const r = stream
            ? await client.responses.stream(asked).finalResponse()
            : await client.responses.parse(asked);

        assert.deepEqual(Object.keys(r.output_parsed), ['name', 'age']);
    });

test('inputTokens counts what a response is billed', async () => {
    const { input_tokens, object } = await client.responses.inputTokens.count(
        { model: MODEL, input: SMALL_TALK.input });
    const r = await client.responses.create(
        { ...SMALL_TALK, max_output_tokens: 1 });

    assert.equal(object, 'response.input_tokens');
    assert.equal(input_tokens, r.usage.input_tokens);
});

test('a limit makes a response incomplete', async () => {
    const r = await client.responses.create(
        { ...SMALL_TALK, max_output_tokens: 3 });
    let last;

    for await (const e of await client.responses.create(
        { ...SMALL_TALK, max_output_tokens: 3, stream: true }))
        last = e;
    assert.equal(r.status, 'incomplete');
    assert.deepEqual(r.incomplete_details, { reason: 'max_output_tokens' });
    assert.equal(r.usage.output_tokens, 3);
    assert.equal(last.type, 'response.incomplete');
});

test('what would need a store is refused by name', async () => {
    for (const [field, value] of [['previous_response_id', 'resp_1'],
                                  ['background', true],
                                  ['conversation', 'conv_1']])
        await assert.rejects(
            client.responses.create({ ...SMALL_TALK, [field]: value }), (e) => {
                assert.ok(e instanceof OpenAI.BadRequestError);
                assert.equal(e.param, field);
                assert.equal(e.code, 'unsupported_parameter');
                return true;
            });
    await assert.rejects(client.responses.retrieve('resp_1'),
        OpenAI.NotFoundError);
    await assert.rejects(client.responses.delete('resp_1'),
        OpenAI.NotFoundError);
});

test('an aborted stream frees its work', async () => {
    const stream = await client.responses.create(
        { ...SMALL_TALK, max_output_tokens: 16000, ignore_eos: true,
          stream: true });
    let n = 0;

    for await (const e of stream)
        if (e.type.endsWith('.delta') && ++n === 5)
            stream.controller.abort();
    await server.idle();
});
