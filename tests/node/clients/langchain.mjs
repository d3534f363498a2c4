// LangChain's ChatOpenAI.
import assert from 'node:assert/strict';
import { webcrypto } from 'node:crypto';
import { after, before, test } from 'node:test';
import { ContextOverflowError } from '@langchain/core/errors';
import { HumanMessage, SystemMessage, ToolMessage, coerceMessageLikeToMessage }
    from '@langchain/core/messages';
import { tool } from '@langchain/core/tools';
import { ChatOpenAI } from '@langchain/openai';

import { MODEL, PERSON, callsEnforced, execute, serve, told, toolPrompt,
         toolRequest } from './seam.mjs';

// LangChain asks for Node 20; all that it misses in 18, which Debian 12 has, is
// this global.
globalThis.crypto ??= webcrypto;

const SMALL_TALK = [new SystemMessage('Answer briefly.'),
                    new HumanMessage('Hello! Who are you?')];

let server;

before(async () => {
    server = await serve();
});

after(() => server.stop());

function chat(options = {}, extra = {}) {
    return new ChatOpenAI({ model: MODEL, apiKey: 'none', temperature: 0,
                            maxTokens: 220, maxRetries: 0,
                            configuration: { baseURL: server.v1 },
                            modelKwargs: extra, ...options });
}

test('invoke yields text and usage', async () => {
    const answer = await chat().invoke(SMALL_TALK);

    assert.ok(answer.content.length > 0);
    assert.equal(answer.response_metadata.finish_reason, 'stop');
    assert.equal(answer.usage_metadata.total_tokens,
        answer.usage_metadata.input_tokens +
        answer.usage_metadata.output_tokens);
    assert.ok(answer.usage_metadata.output_token_details.reasoning > 0);
});

test('a stream adds up to what invoke yields', async () => {
    const plain = await chat().invoke(SMALL_TALK);
    let sum, n = 0;

    for await (const chunk of await chat().stream(SMALL_TALK)) {
        sum = sum ? sum.concat(chunk) : chunk;
        n++;
    }
    assert.ok(n > 2);
    assert.equal(sum.content, plain.content);
    assert.deepEqual(sum.usage_metadata.output_tokens,
        plain.usage_metadata.output_tokens);
});

for (const id of ['single-060', 'parallel-037'])
    for (const streamed of [false, true])
        test(`${id}: bound tools to a final answer, ${
            streamed ? 'streamed' : 'plain'}`, async () => {
            const row = toolPrompt(id);
            const { messages, tools } = toolRequest(row);
            const byName = Object.fromEntries(tools.map(({ function: f }) =>
                [f.name, tool((input) => execute(f.name, input),
                    { name: f.name, description: f.description,
                      schema: f.parameters })]));
            // LangChain drops the reasoning of earlier messages: without
            // thinking there is none to miss.
            const bound = chat({}, { enable_thinking: false })
                .bindTools(Object.values(byName));
            const history = messages.map(coerceMessageLikeToMessage);
            const ask = async () => {
                if (!streamed)
                    return bound.invoke(history);
                let sum;

                for await (const chunk of await bound.stream(history))
                    sum = sum ? sum.concat(chunk) : chunk;
                return sum;
            };
            const first = await ask();

            assert.deepEqual(first.tool_calls.map(({ name, args }) =>
                ({ name, arguments: args })), row.expected);
            history.push(first);
            for (const call of first.tool_calls) {
                const result = await byName[call.name].invoke(call);

                assert.ok(result instanceof ToolMessage);
                history.push(result);
            }
            const last = await ask();

            for (const call of row.expected)
                assert.ok(last.content.includes(
                    told(call.name, call.arguments)), last.content);
        });

for (const method of ['jsonSchema', 'functionCalling'])
    test(`withStructuredOutput by ${method} yields what the schema describes`,
        async (t) => {
            if (method === 'functionCalling' && !await callsEnforced(server))
                return t.skip('a call that is asked for is not enforced');
            const answer = await chat({ maxTokens: 400 })
                .withStructuredOutput(PERSON, { method }).invoke(SMALL_TALK);

            assert.deepEqual(Object.keys(answer).sort(), ['age', 'name']);
            assert.equal(typeof answer.name, 'string');
            assert.ok(Number.isInteger(answer.age));
        });

test('bound tools and a format: calls, then what the schema describes',
    async () => {
        const row = toolPrompt('single-060');
        const { messages, tools } = toolRequest(row);
        const format = { type: 'json_schema', json_schema: {
            name: 'person', strict: true, schema: PERSON } };
        const history = messages.map(coerceMessageLikeToMessage);
        const ask = (tool_choice) => chat({ maxTokens: 400 },
            { enable_thinking: false }).bindTools(tools,
            { response_format: format, tool_choice }).invoke(history);
        const first = await ask('auto');

        assert.deepEqual(first.tool_calls.map(({ name, args }) =>
            ({ name, arguments: args })), row.expected);
        history.push(first, ...first.tool_calls.map((call) =>
            new ToolMessage({ tool_call_id: call.id,
                              content: execute(call.name, call.args) })));
        const last = await ask('none');

        assert.deepEqual(Object.keys(JSON.parse(last.content)),
            ['name', 'age']);
    });

test('a prompt that is too long is recognised as such', async () => {
    const small = await serve({ 'model.max_context': 128 });
    const model = chat({ configuration: { baseURL: small.v1 } });

    await assert.rejects(model.invoke('word '.repeat(200)),
        (e) => ContextOverflowError.isInstance(e));
    await small.stop();
});

test('the Responses API gives the same, plain and streamed', async () => {
    const model = chat({ useResponsesApi: true });
    const plain = await model.invoke(SMALL_TALK);
    let sum;

    for await (const chunk of await model.stream(SMALL_TALK))
        sum = sum ? sum.concat(chunk) : chunk;
    assert.ok(plain.text.length > 0);
    assert.equal(plain.text, (await chat().invoke(SMALL_TALK)).text);
    assert.equal(sum.text, plain.text);
    assert.equal(sum.usage_metadata.total_tokens,
        plain.usage_metadata.total_tokens);
});

test('an aborted stream frees its work', async () => {
    const control = new AbortController();
    const endless = chat({ maxTokens: 16000 }, { ignore_eos: true });

    await assert.rejects(async () => {
        for await (const _ of await endless.stream(SMALL_TALK,
            { signal: control.signal }))
            control.abort();
    });
    await server.idle();
});
