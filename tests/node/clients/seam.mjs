// A server for the tests of this folder, and what they share.
//
// Every test is started as `node TEST.mjs SEAM PLUGINS ROOT`: the program, the
// folder of its plugins and the root of the sources.  Ports are free ones, and
// nothing waits for time to pass: tests poll what the server says about itself
// until it is so, and ctest bounds the whole.
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';

const [seam, plugins, root] = process.argv.slice(2);

if (!root) {
    console.error('usage: node TEST.mjs SEAM PLUGINS ROOT');
    process.exit(2);
}

export const MODEL = 'glm5-next-nano';

// Poll until check() holds something true, and return that.
export async function until(check, pause_ms = 20) {
    for (;;) {
        const found = await check();

        if (found)
            return found;
        await pause(pause_ms);
    }
}

class Server {
    constructor(child) {
        this.child = child;
        this.log = '';
        this.ended = new Promise((resolve) => child.on('exit',
            (code, signal) => resolve({ code, signal })));
    }

    // Resolves with the URL, which the log names once the port is bound.
    listening() {
        return new Promise((resolve, reject) => {
            this.child.stderr.setEncoding('utf8').on('data', (text) => {
                const found = /listening on (http:\S+)/.exec(this.log += text);

                if (found)
                    resolve(found[1]);
            });
            this.child.on('error', reject);
            this.child.on('exit', () => reject(
                new Error(`seam serve ended early:\n${this.log}`)));
        });
    }

    get v1() {
        return `${this.url}/v1`;
    }

    post(path, body, headers = {}) {
        return fetch(this.url + path, {
            method: 'POST',
            headers: { 'content-type': 'application/json', ...headers },
            body: JSON.stringify(body),
        });
    }

    // The value of one series of /metrics; labels as they are printed.
    async metric(name, labels = '') {
        const text = await (await fetch(`${this.url}/metrics`)).text();
        const line = text.split('\n').find((l) =>
            l.startsWith(`${name}{`) && l.includes(labels) ||
            l.startsWith(`${name} `));

        return line === undefined ? 0 : Number(line.split(' ').at(-1));
    }

    running() {
        return this.metric('vllm:num_requests_running');
    }

    waiting() {
        return this.metric('vllm:num_requests_waiting');
    }

    // Until no sequence runs or waits.
    idle() {
        return until(async () =>
            !await this.running() && !await this.waiting());
    }

    // Once: a second signal would end it at once.
    drain() {
        if (!this.draining)
            this.child.kill('SIGTERM');
        this.draining = true;
    }

    // A fetch that, once this server has answered 503, turns to another, as a
    // balancer does.
    moving(other) {
        const statuses = [];

        return { statuses, fetch: async (url, init) => {
            const response = await fetch(statuses.length
                ? String(url).replace(this.url, other.url) : url, init);

            statuses.push(response.status);
            return response;
        } };
    }

    // End it in order; throws with its log when it does not leave with 0.
    async stop() {
        this.child.ref();
        this.drain();
        const { code, signal } = await this.ended;

        if (code !== 0)
            throw new Error(`seam serve ended with ${code ?? signal}:\n` +
                            this.log);
    }
}

// Start a server with the settings of conf/nano.json and those given as
// { 'engine.max_queue': 1 }, and wait until it takes work.
export async function serve(settings = {}) {
    const args = ['serve', '-c', join(root, 'conf/nano.json'), '--listen',
                  '127.0.0.1:0', '--set', `plugin_dir=${plugins}`];

    for (const [key, value] of Object.entries(settings))
        args.push('--set', `${key}=${
            typeof value === 'object' ? JSON.stringify(value) : value}`);

    const server = new Server(spawn(seam, args,
        { stdio: ['ignore', 'ignore', 'pipe'] }));

    // Nothing outlives the test, however it ends.
    process.on('exit', () => server.child.kill('SIGKILL'));
    server.url = await server.listening();
    server.child.unref();
    server.child.stderr.unref();
    await until(async () => (await fetch(`${server.url}/readyz`)).ok ||
        server.child.exitCode !== null && Promise.reject(
            new Error(`seam serve failed:\n${server.log}`)));
    return server;
}

// Generates until somebody stops it.
export const ENDLESS = {
    model: MODEL,
    messages: [{ role: 'user', content: 'Hello! Who are you?' }],
    max_tokens: 16000,
    ignore_eos: true,
    stream: true,
};

// A server for one sequence that is busy with one request while another fills
// its queue.  freeing() is a fetch that ends both at the first 429, so that a
// retry finds the way free.
export async function blocked() {
    const server = await serve({ 'engine.max_seqs': 1,
                                 'engine.max_queue': 1 });
    const control = new AbortController();
    const begin = () => fetch(`${server.v1}/chat/completions`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(ENDLESS),
        signal: control.signal,
    });
    const answers = [await begin()];

    await until(() => server.running());
    answers.push(await begin());
    await until(() => server.waiting());
    server.freeing = () => {
        const statuses = [];

        return { statuses, fetch: async (url, init) => {
            const response = await fetch(url, init);

            statuses.push(response.status);
            if (response.status === 429) {
                control.abort();
                await server.idle();
            }
            return response;
        } };
    };
    return server;
}

// A schema for structured output.
export const PERSON = {
    title: 'person',
    type: 'object',
    properties: { name: { type: 'string', maxLength: 12 },
                  age: { type: 'integer', minimum: 0, maximum: 130 } },
    required: ['name', 'age'],
    additionalProperties: false,
};

// The rows of models/nano/eval_tools.jsonl.
export function toolPrompts() {
    return readFileSync(join(root, 'models/nano/eval_tools.jsonl'), 'utf8')
        .split('\n').filter(Boolean).map((line) => JSON.parse(line));
}

export function toolPrompt(id) {
    return toolPrompts().find((row) => row.id === id);
}

// What a request for such a row carries besides the model.
export function toolRequest(row) {
    return {
        messages: row.messages,
        tools: row.tools,
        temperature: 0,
        max_tokens: 220,
        chat_template_kwargs: {
            enable_thinking: row.enable_thinking,
            reasoning_effort: row.reasoning_effort,
        },
    };
}

// A bias that lets the model write no call: what else it may write it does.
export async function noCalls(server) {
    const { tokens: [id] } = await (await server.post('/tokenize',
        { content: '<tool_call>' })).json();

    return { [id]: -100 };
}

// Calls as {name, arguments}, arguments as values.
export function callsOf(message) {
    return (message.tool_calls ?? []).map((call) => ({
        name: call.function.name,
        arguments: JSON.parse(call.function.arguments),
    }));
}

/* ---- Tools that the prompts call ----------------------------------------- */

const CITIES = {
    Dazotir: { temperature: 21, condition: 'sunny' },
    Sisogeville: { temperature: 4, condition: 'rain' },
};

// Sums and differences of integers.
function arithmetic(expression) {
    const terms = expression.replaceAll(' ', '').match(/[+-]?\d+/g);

    return terms.reduce((sum, term) => sum + Number(term), 0);
}

// Each yields its result, spaced as the model has learned it, and what an
// answer that uses the result says.
const TOOLS = {
    ticker_lookup_mini: () =>
        ['{"price": 117.25, "currency": "USD"}', '117.25'],
    weather: ({ place }) => {
        const { temperature, condition } = CITIES[place];

        return [`{"temperature": ${temperature}, "unit": "celsius", ` +
                `"condition": "${condition}"}`, `${temperature}`];
    },
    inductive_math_eval: ({ expression }) => {
        const result = arithmetic(expression);

        return [`{"result": ${result}}`, `${expression} = ${result}`];
    },
};

export function execute(name, args) {
    return TOOLS[name](args)[0];
}

export function told(name, args) {
    return TOOLS[name](args)[1];
}

// Whether tool_choice binds the model; if not, an answer says so.
export async function callsEnforced(server) {
    const { tools, messages } = toolRequest(toolPrompt('single-060'));
    const answer = await server.post('/v1/chat/completions',
        { messages, tools, tool_choice: 'required', max_tokens: 1 });

    return !(answer.headers.get('x-seam-ignored') ?? '')
        .includes('tool_choice');
}
