// The official OpenAI client: chat, tools, completions, errors and retries.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import OpenAI from 'openai';
import { zodResponseFormat } from 'openai/helpers/zod';
import { z } from 'zod';

import { ENDLESS, MODEL, PERSON, blocked, callsEnforced, callsOf, execute, noCalls,
         serve, told, toolPrompt, toolRequest, until } from './seam.mjs';

// The conversation after a turn of calls: that turn, and what the calls gave.
function withResults(messages, turn) {
    return [
        ...messages, turn,
        ...turn.tool_calls.map(({ id, function: f }) => ({
            role: 'tool', tool_call_id: id,
            content: execute(f.name, JSON.parse(f.arguments)),
        })),
    ];
}

const SMALL_TALK = {
    model: MODEL,
    messages: [{ role: 'user', content: 'Hello! Who are you?' }],
    temperature: 0,
    max_completion_tokens: 60,
};

let server, client;

function clientOf(s, options = {}) {
    return new OpenAI({ baseURL: s.v1, apiKey: 'none', maxRetries: 0,
                        ...options });
}

before(async () => {
    server = await serve();
    client = clientOf(server);
});

after(() => server.stop());

/* ---- Chat ---------------------------------------------------------------- */

test('a plain answer has text, reasoning and consistent usage', async () => {
    const answer = await client.chat.completions.create(SMALL_TALK);
    const [choice] = answer.choices;

    assert.match(answer.id, /^chatcmpl-.{24,}$/);
    assert.equal(answer.object, 'chat.completion');
    assert.equal(answer.model, MODEL);
    assert.equal(answer.choices.length, 1);
    assert.equal(choice.message.role, 'assistant');
    assert.ok(choice.message.content.length > 0);
    assert.ok(choice.message.reasoning_content.length > 0);
    assert.equal(choice.message.tool_calls, undefined);
    assert.equal(choice.finish_reason, 'stop');
    assert.equal(answer.usage.total_tokens,
        answer.usage.prompt_tokens + answer.usage.completion_tokens);
    assert.ok(answer.usage.completion_tokens_details.reasoning_tokens > 0);
    assert.match(answer._request_id, /^req_/);
});

test('a stream joins to the plain answer', async () => {
    const plain = await client.chat.completions.create(SMALL_TALK);
    const stream = await client.chat.completions.create(
        { ...SMALL_TALK, stream: true,
          stream_options: { include_usage: true } });
    let content = '', reasoning = '', finish, usage, n_usage = 0;

    for await (const chunk of stream) {
        for (const { delta, finish_reason } of chunk.choices) {
            content += delta.content ?? '';
            reasoning += delta.reasoning_content ?? '';
            finish = finish_reason ?? finish;
        }
        if (chunk.usage) {
            assert.deepEqual(chunk.choices, []);
            usage = chunk.usage;
            n_usage++;
        }
    }
    assert.equal(content, plain.choices[0].message.content);
    assert.equal(reasoning, plain.choices[0].message.reasoning_content);
    assert.equal(finish, plain.choices[0].finish_reason);
    assert.equal(n_usage, 1);
    assert.equal(usage.completion_tokens, plain.usage.completion_tokens);
});

test('thinking can be switched off', async () => {
    const answer = await client.chat.completions.create(
        { ...SMALL_TALK,
          chat_template_kwargs: { enable_thinking: false } });

    assert.equal(answer.choices[0].message.reasoning_content, undefined);
    assert.ok(answer.choices[0].message.content.length > 0);
});

test('every way to say the effort means the same', async () => {
    const tokens = async (extra) => (await client.chat.completions.create(
        { ...SMALL_TALK, max_completion_tokens: 1, ...extra }))
        .usage.prompt_tokens;
    const off = await tokens({ enable_thinking: false });

    assert.notEqual(off, await tokens({}));
    assert.equal(await tokens({ reasoning: { enabled: false } }), off);

    const ways = [{ reasoning_effort: 'low' }, { reasoning: { effort: 'low' } },
                  { chat_template_kwargs: { reasoning_effort: 'low' } }];
    const prompts = await Promise.all(ways.map(async (way) =>
        (await server.post('/apply-template',
            { messages: SMALL_TALK.messages, ...way })).text()));

    assert.match(prompts[0], /Low/);
    assert.deepEqual(new Set(prompts), new Set([prompts[0]]));
});

test('log probabilities spell out the answer byte by byte', async () => {
    const answer = await client.chat.completions.create(
        { ...SMALL_TALK, logprobs: true, top_logprobs: 3 });
    const { message, logprobs } = answer.choices[0];
    const text = Buffer.from(logprobs.content.flatMap((t) => t.bytes))
        .toString();

    assert.equal(text,
        `${message.reasoning_content}</think>${message.content}`);
    for (const t of logprobs.content) {
        assert.ok(t.logprob <= 0);
        assert.equal(t.top_logprobs.length, 3);
        assert.equal(t.top_logprobs[0].token, t.token, 'greedy: the best one');
        assert.ok(t.top_logprobs[0].logprob >= t.top_logprobs[1].logprob);
    }
});

test('choice i of n is the answer of seed + i', async () => {
    const request = { ...SMALL_TALK, temperature: 1.2 };
    const two = await client.chat.completions.create(
        { ...request, n: 2, seed: 40 });
    const second = await client.chat.completions.create(
        { ...request, seed: 41 });

    assert.deepEqual(two.choices.map((c) => c.index), [0, 1]);
    assert.equal(two.choices[1].message.content,
        second.choices[0].message.content);
});

test('a limit in the reasoning leaves null content and length', async () => {
    const answer = await client.chat.completions.create(
        { ...SMALL_TALK, max_completion_tokens: 3 });

    assert.equal(answer.choices[0].finish_reason, 'length');
    assert.equal(answer.choices[0].message.content, null);
    assert.equal(answer.usage.completion_tokens, 3);
});

/* ---- Tools --------------------------------------------------------------- */

for (const id of ['single-021', 'parallel-037'])
    test(`${id}: calls, results and a final answer`, async () => {
        const row = toolPrompt(id);
        const request = { model: MODEL, ...toolRequest(row) };
        const first = (await client.chat.completions.create(request))
            .choices[0];

        assert.equal(first.finish_reason, 'tool_calls');
        assert.equal(first.message.content, null);
        assert.deepEqual(callsOf(first.message), row.expected);
        request.messages = withResults(request.messages, first.message);
        const last = (await client.chat.completions.create(request)).choices[0];

        assert.equal(last.finish_reason, 'stop');
        for (const call of row.expected)
            assert.ok(last.message.content.includes(
                told(call.name, call.arguments)), last.message.content);
    });

test('the stream helper collects calls whole', async () => {
    const row = toolPrompt('parallel-037');
    const request = { model: MODEL, ...toolRequest(row) };
    const stream = client.chat.completions.stream(request);
    const done = [];

    stream.on('tool_calls.function.arguments.done', (e) => done.push(e));
    const message = await stream.finalMessage();
    const completion = await stream.finalChatCompletion();

    assert.deepEqual(callsOf(message), row.expected);
    assert.deepEqual(done.map((e) => e.index), [0, 1]);
    assert.deepEqual(done.map((e) => JSON.parse(e.arguments)),
        row.expected.map((c) => c.arguments));
    assert.equal(completion.choices[0].finish_reason, 'tool_calls');
    assert.equal(new Set(message.tool_calls.map((c) => c.id)).size, 2);
});

for (const stream of [false, true])
    test(`runTools goes the whole way, ${stream ? 'streamed' : 'plain'}`,
        async () => {
            const row = toolPrompt('single-060');
            const { tools, ...request } = toolRequest(row);
            const [{ name, arguments: args }] = row.expected;
            const asked = [];
            // The client sends no reasoning back: without thinking there is
            // none to miss.
            const runner = client.chat.completions.runTools({
                model: MODEL,
                ...request,
                chat_template_kwargs: { enable_thinking: false },
                stream,
                tools: tools.map((tool) => ({
                    type: 'function',
                    function: {
                        ...tool.function,
                        parse: JSON.parse,
                        function: (given) => {
                            asked.push([tool.function.name, given]);
                            return execute(tool.function.name, given);
                        },
                    },
                })),
            });

            const content = await runner.finalContent();

            assert.deepEqual(asked, [[name, args]]);
            assert.ok(content.includes(told(name, args)), content);
        });

test('tool_choice none yields no call', async () => {
    const request = { model: MODEL, ...toolRequest(toolPrompt('single-021')),
                      tool_choice: 'none' };
    const [choice] = (await client.chat.completions.create(request)).choices;

    assert.equal(choice.message.tool_calls, undefined);
    assert.notEqual(choice.finish_reason, 'tool_calls');
});

// Small talk, which the model answers without a call unless it must make one.
test('tool_choice required and named yield valid calls', async (t) => {
    if (!await callsEnforced(server))
        return t.skip('a call that is asked for is not enforced');
    const { tools } = toolRequest(toolPrompt('single-073'));
    const names = tools.map((tool) => tool.function.name);

    for (const stream of [false, true])
        for (const name of [null, 'exchange', names[1]]) {
            const request = {
                ...SMALL_TALK,
                max_completion_tokens: 600,
                tools,
                tool_choice: name ? { type: 'function', function: { name } }
                                  : 'required',
            };
            const [choice] = (stream
                ? await client.chat.completions.stream(request)
                    .finalChatCompletion()
                : await client.chat.completions.create(request)).choices;
            const calls = callsOf(choice.message);

            assert.equal(choice.finish_reason, 'tool_calls');
            assert.ok(calls.length > 0);
            for (const call of calls) {
                const { parameters } = tools[names.indexOf(call.name)].function;

                assert.ok(!name || call.name === name);
                for (const key of parameters.required ?? [])
                    assert.ok(key in call.arguments, key);
            }
        }
});

/* ---- Structured output --------------------------------------------------- */

test('json_object yields an object', async () => {
    const answer = await client.chat.completions.create(
        { ...SMALL_TALK, max_completion_tokens: 400,
          response_format: { type: 'json_object' } });
    const [choice] = answer.choices;

    if (choice.finish_reason === 'stop')
        assert.equal(typeof JSON.parse(choice.message.content), 'object');
    else
        assert.match(choice.message.content, /^\s*\{/);
});

for (const stream of [false, true])
    test(`parse yields what the schema describes, ${
        stream ? 'streamed' : 'plain'}`, async () => {
        const request = {
            ...SMALL_TALK,
            max_completion_tokens: 400,
            response_format: zodResponseFormat(z.object({
                name: z.string().max(12),
                tags: z.array(z.enum(['red', 'green'])).max(3),
                age: z.int().min(0).max(130),
                pet: z.object({ kind: z.literal('cat') }).nullable(),
            }), 'person'),
        };
        const answer = stream
            ? await client.chat.completions.stream(request)
                .finalChatCompletion()
            : await client.chat.completions.parse(request);
        const { parsed } = answer.choices[0].message;

        // Zod itself has checked the values.
        assert.deepEqual(Object.keys(parsed), ['name', 'tags', 'age', 'pet']);
    });

for (const stream of [false, true])
    test(`tools beside a format: calls, then what the schema describes, ${
        stream ? 'streamed' : 'plain'}`, async () => {
        const row = toolPrompt('parallel-037');
        const { tools, ...rest } = toolRequest(row);
        const request = {
            model: MODEL, ...rest,
            max_tokens: 400,
            // What the client wants to parse it wants to be strict.
            tools: tools.map(({ function: f }) => ({ type: 'function',
                function: { ...f, strict: true } })),
            response_format: { type: 'json_schema', json_schema: {
                name: 'person', strict: true, schema: PERSON } },
        };
        const ask = async (extra = {}) => (stream
            ? await client.chat.completions.stream({ ...request, ...extra })
                .finalChatCompletion()
            : await client.chat.completions.parse({ ...request, ...extra }))
            .choices[0];
        const first = await ask();

        assert.equal(first.finish_reason, 'tool_calls');
        assert.equal(first.message.content, null);
        assert.equal(first.message.parsed, null);
        assert.deepEqual(callsOf(first.message), row.expected);
        request.messages = withResults(request.messages, first.message);
        const last = await ask({ logit_bias: await noCalls(server) });

        assert.equal(last.finish_reason, 'stop');
        assert.deepEqual(Object.keys(last.message.parsed), ['name', 'age']);
        assert.ok(Number.isInteger(last.message.parsed.age));
        assert.equal((last.message.tool_calls ?? []).length, 0);
    });

test('parse tells an answer that the limit cut from a whole one', async () => {
    await assert.rejects(
        client.chat.completions.parse({
            ...SMALL_TALK, max_completion_tokens: 12,
            response_format: zodResponseFormat(
                z.object({ name: z.string() }), 'person'),
        }), OpenAI.LengthFinishReasonError);
});

/* ---- Completions and models ---------------------------------------------- */

test('echo repeats the prompt, with its log probabilities', async () => {
    const prompt = 'The function returns';
    const answer = await client.completions.create(
        { model: MODEL, prompt, max_tokens: 8, temperature: 0, echo: true,
          logprobs: 2 });
    const { text, logprobs } = answer.choices[0];

    assert.ok(text.startsWith(prompt));
    assert.equal(logprobs.tokens.join(''), text);
    assert.equal(logprobs.token_logprobs[0], null);
    assert.ok(logprobs.token_logprobs.slice(1).every((v) => v <= 0));
    assert.equal(logprobs.text_offset[0], 0);
    assert.equal(logprobs.tokens.length,
        answer.usage.prompt_tokens + answer.usage.completion_tokens);
});

test('a completion stream joins to the plain one', async () => {
    const request = { model: MODEL, prompt: ['The list of', 'A file'],
                      max_tokens: 12, temperature: 0 };
    const plain = await client.completions.create(request);
    const texts = ['', ''];

    for await (const chunk of await client.completions.create(
        { ...request, stream: true }))
        for (const c of chunk.choices)
            texts[c.index] += c.text;
    assert.deepEqual(texts, plain.choices.map((c) => c.text));
});

test('the model is listed and found', async () => {
    const ids = [];

    for await (const model of client.models.list())
        ids.push(model.id);
    assert.deepEqual(ids, [MODEL]);
    assert.equal((await client.models.retrieve(MODEL)).id, MODEL);
    await assert.rejects(client.models.retrieve('gpt-nothing'),
        OpenAI.NotFoundError);
});

/* ---- Leaving ------------------------------------------------------------- */

test('an aborted stream frees its work', async () => {
    const cancelled = await server.metric('seam_requests_cancelled_total');
    const stream = await client.chat.completions.create(ENDLESS);
    let n = 0;

    for await (const chunk of stream) {
        assert.ok(chunk.choices.length <= 1);
        if (++n === 5)
            stream.controller.abort();
    }
    await server.idle();
    assert.equal(await server.metric('seam_requests_cancelled_total'),
        cancelled + 1);
});

test('an aborted plain request frees its work', async () => {
    const control = new AbortController();
    const answer = client.chat.completions.create(
        { ...ENDLESS, stream: false }, { signal: control.signal });

    await until(() => server.running());
    control.abort();
    await assert.rejects(answer, OpenAI.APIUserAbortError);
    await server.idle();
});

/* ---- Errors -------------------------------------------------------------- */

test('a bad field is named', async () => {
    for (const [field, value] of [['temperature', 9], ['top_p', 'high'],
                                  ['n', 0], ['messages', []]])
        await assert.rejects(
            client.chat.completions.create({ ...SMALL_TALK, [field]: value }),
            (e) => {
                assert.ok(e instanceof OpenAI.BadRequestError);
                assert.equal(e.param, field);
                assert.equal(e.type, 'invalid_request_error');
                assert.match(e.requestID, /^req_/);
                return true;
            });
});

test('an unknown model is not found', async () => {
    await assert.rejects(
        client.chat.completions.create({ ...SMALL_TALK, model: 'gpt-4' }),
        (e) => e instanceof OpenAI.NotFoundError &&
            e.code === 'model_not_found');
});

test('a prompt that does not fit says so in words clients know', async () => {
    const small = await serve({ 'model.max_context': 128 });
    const content = 'word '.repeat(200);

    await assert.rejects(
        clientOf(small).chat.completions.create(
            { ...SMALL_TALK, messages: [{ role: 'user', content }] }),
        (e) => {
            assert.ok(e instanceof OpenAI.BadRequestError);
            assert.equal(e.code, 'context_length_exceeded');
            assert.match(e.error.message,
                /^This model's maximum context length is 128 tokens/);
            return true;
        });
    await small.stop();
});

test('only the right key is let in', async () => {
    const guarded = await serve({ 'server.api_keys': ['sk-one', 'sk-two'] });

    for (const apiKey of ['sk-three', 'sk-on', 'sk-one2'])
        await assert.rejects(clientOf(guarded, { apiKey }).models.list(),
            (e) => e instanceof OpenAI.AuthenticationError &&
                e.code === 'invalid_api_key');
    for (const apiKey of ['sk-one', 'sk-two'])
        await clientOf(guarded, { apiKey }).models.list();
    await guarded.stop();
});

/* ---- Retries ------------------------------------------------------------- */

test('a full queue is 429, and a retry gets through', async () => {
    const narrow = await blocked();

    await assert.rejects(clientOf(narrow).chat.completions.create(SMALL_TALK),
        (e) => {
            assert.ok(e instanceof OpenAI.RateLimitError);
            assert.equal(e.code, 'queue_full');
            assert.ok(Number(e.headers.get('retry-after')) >= 1);
            return true;
        });
    const { statuses, fetch } = narrow.freeing();
    const answer = await clientOf(narrow, { maxRetries: 2, fetch })
        .chat.completions.create(SMALL_TALK);

    assert.deepEqual(statuses, [429, 200]);
    assert.ok(answer.choices[0].message.content.length > 0);
    await narrow.stop();
});

test('a draining server is 503, and a retry elsewhere succeeds', async () => {
    const leaving = await serve({ 'server.drain_timeout_ms': 60000 });
    const control = new AbortController();

    await clientOf(leaving).chat.completions.create(ENDLESS,
        { signal: control.signal });
    leaving.drain();
    await until(async () => (await fetch(`${leaving.url}/readyz`)).status ===
        503);
    await assert.rejects(clientOf(leaving).chat.completions.create(SMALL_TALK),
        (e) => {
            assert.ok(e instanceof OpenAI.InternalServerError);
            assert.equal(e.status, 503);
            assert.equal(e.code, 'draining');
            assert.ok(Number(e.headers.get('retry-after')) >= 1);
            return true;
        });
    const { statuses, fetch: moving } = leaving.moving(server);
    const answer = await clientOf(leaving, { maxRetries: 2, fetch: moving })
        .chat.completions.create(SMALL_TALK);

    assert.deepEqual(statuses, [503, 200]);
    assert.ok(answer.choices[0].message.content.length > 0);
    control.abort();
    await leaving.stop();
});
