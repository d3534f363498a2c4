// The Vercel AI SDK through its provider for OpenAI-compatible servers.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { APICallError, Output, generateObject, generateText, jsonSchema, stepCountIs,
         streamObject, streamText, tool } from 'ai';

import { MODEL, PERSON, execute, serve, told, toolPrompt, toolRequest }
    from './seam.mjs';

const SMALL_TALK = {
    prompt: 'Hello! Who are you?',
    temperature: 0,
    maxOutputTokens: 60,
    maxRetries: 0,
};

let server, model;

before(async () => {
    server = await serve();
    model = createOpenAICompatible({ name: 'seam', baseURL: server.v1,
                                     includeUsage: true })(MODEL);
});

after(() => server.stop());

// A row of the tool prompts as this SDK takes it.
function request(row) {
    const { messages, tools, chat_template_kwargs } = toolRequest(row);
    const calls = [];

    return {
        calls,
        model,
        messages,
        temperature: 0,
        maxOutputTokens: 220,
        maxRetries: 0,
        stopWhen: stepCountIs(3),
        providerOptions: { seam: { chat_template_kwargs } },
        tools: Object.fromEntries(tools.map(({ function: f }) => [f.name, tool({
            description: f.description,
            inputSchema: jsonSchema(f.parameters),
            execute: (input) => {
                calls.push({ name: f.name, arguments: input });
                return execute(f.name, input);
            },
        })])),
    };
}

test('generateText yields text, reasoning and usage', async () => {
    const r = await generateText({ model, ...SMALL_TALK });

    assert.ok(r.text.length > 0);
    assert.ok(r.reasoningText.length > 0);
    assert.equal(r.finishReason, 'stop');
    assert.ok(r.usage.inputTokens > 0);
    assert.ok(r.usage.outputTokens > 0);
    assert.ok(r.usage.outputTokenDetails.reasoningTokens > 0);
});

test('streamText joins to what generateText yields', async () => {
    const plain = await generateText({ model, ...SMALL_TALK });
    const stream = streamText({ model, ...SMALL_TALK });
    let text = '', n = 0;

    for await (const part of stream.textStream) {
        text += part;
        n++;
    }
    assert.ok(n > 1, 'the text comes in pieces');
    assert.equal(text, plain.text);
    assert.equal(await stream.reasoningText, plain.reasoningText);
    assert.equal(await stream.finishReason, 'stop');
    assert.equal((await stream.usage).outputTokens, plain.usage.outputTokens);
});

for (const id of ['single-021', 'parallel-037']) {
    test(`${id}: generateText runs tools to a final answer`, async () => {
        const row = toolPrompt(id);
        const { calls, ...asked } = request(row);
        const r = await generateText(asked);

        assert.deepEqual(calls, row.expected);
        assert.equal(r.steps.length, 2);
        assert.equal(r.steps[0].finishReason, 'tool-calls');
        for (const call of row.expected)
            assert.ok(r.text.includes(told(call.name, call.arguments)), r.text);
    });

    test(`${id}: streamText runs tools to a final answer`, async () => {
        const row = toolPrompt(id);
        const { calls, ...asked } = request(row);
        const stream = streamText(asked);
        const kinds = new Set();

        for await (const part of stream.fullStream) {
            assert.notEqual(part.type, 'error');
            kinds.add(part.type);
        }
        assert.deepEqual(calls, row.expected);
        for (const kind of ['tool-input-start', 'tool-input-delta',
                            'tool-input-end', 'tool-call', 'tool-result',
                            'text-delta'])
            assert.ok(kinds.has(kind), `no ${kind} in the stream`);
        for (const call of row.expected)
            assert.ok((await stream.text).includes(
                told(call.name, call.arguments)));
    });
}

// With schemas sent to the server, which the provider only does when told.
function strictModel() {
    return createOpenAICompatible({ name: 'seam', baseURL: server.v1,
                                    supportsStructuredOutputs: true })(MODEL);
}

test('generateObject yields what the schema describes', async () => {
    const strict = strictModel();
    const { object } = await generateObject(
        { ...SMALL_TALK, model: strict, schema: jsonSchema(PERSON),
          maxOutputTokens: 400 });

    assert.deepEqual(Object.keys(object).sort(), ['age', 'name']);
    assert.equal(typeof object.name, 'string');
    assert.ok(Number.isInteger(object.age));
});

test('generateObject yields one of an enum', async () => {
    const { object } = await generateObject(
        { ...SMALL_TALK, model: strictModel(), output: 'enum',
          enum: ['red', 'green'], maxOutputTokens: 400 });

    assert.ok(['red', 'green'].includes(object));
});

test('tools and an output: calls, then what the schema describes', async () => {
    const row = toolPrompt('parallel-037');
    const { calls, ...asked } = request(row);
    const r = await generateText({
        ...asked, model: strictModel(), maxOutputTokens: 400,
        output: Output.object({ schema: jsonSchema(PERSON) }),
        // The small model has learned to answer in prose, and calls again when
        // it cannot.
        prepareStep: ({ stepNumber }) =>
            stepNumber ? { toolChoice: 'none' } : {},
    });

    assert.deepEqual(calls, row.expected);
    assert.deepEqual(r.steps.map((s) => s.finishReason),
        ['tool-calls', 'stop']);
    assert.deepEqual(Object.keys(r.output).sort(), ['age', 'name']);
});

test('streamObject grows to what the schema describes', async () => {
    const { partialObjectStream, object } = streamObject(
        { ...SMALL_TALK, model: strictModel(), schema: jsonSchema(PERSON),
          maxOutputTokens: 400 });
    let last;

    for await (const part of partialObjectStream)
        last = part;
    assert.deepEqual(last, await object);
    assert.deepEqual(Object.keys(last).sort(), ['age', 'name']);
});

test('toolChoice names the tool that is called', async () => {
    const { tools } = request(toolPrompt('single-073'));
    const [, toolName] = Object.keys(tools);
    const { toolCalls } = await generateText(
        { ...SMALL_TALK, model, tools: { [toolName]: { ...tools[toolName],
                                                       execute: undefined } },
          maxOutputTokens: 600, toolChoice: { type: 'tool', toolName } });

    assert.deepEqual(toolCalls.map((c) => c.toolName), [toolName]);
});

test('an error carries status, message and no retry', async () => {
    await assert.rejects(
        generateText({ model, ...SMALL_TALK, temperature: 9 }), (e) => {
            assert.ok(APICallError.isInstance(e));
            assert.equal(e.statusCode, 400);
            assert.equal(e.isRetryable, false);
            assert.match(e.message, /temperature/);
            return true;
        });
});

test('an aborted stream frees its work', async () => {
    const control = new AbortController();
    const stream = streamText({
        model, ...SMALL_TALK, maxOutputTokens: 16000,
        abortSignal: control.signal,
        providerOptions: { seam: { ignore_eos: true } },
    });
    let n = 0;

    for await (const part of stream.fullStream)
        if (part.type.endsWith('-delta') && ++n === 5)
            control.abort();
    await server.idle();
});
