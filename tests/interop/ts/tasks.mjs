// The official TypeScript client with @modelcontextprotocol/ext-tasks, both unmodified, against the press of
// ../task_server.py.
//
//     node tasks.mjs (modern | legacy) URL
//
// Each flow prints one line of JSON: what came of it in `said`, what the user was asked in `asked`, and in `amiss`
// whatever went wrong. `modern` is 2026-07-28 with the extension of SEP-2663, `legacy` is 2025-11-25 with its own tasks.

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { createTaskSessionFromClient, toolDeclarationFromMcpTool } from '@modelcontextprotocol/ext-tasks/client';

const [era, url] = process.argv.slice(2);
const limit = 10_000;
const user = { answers: [], asked: [], amiss: [] };
const clientInfo = { name: 'interop', version: '1.0.0' };
const capabilities = { elicitation: { form: {} } };
const protocolVersion = '2026-07-28';

// The SDK's own client refuses `resultType: "task"`, so the package asks its host to carry requests of tasks.
let count = 0;
async function rawDispatch(request, { signal, context } = {}) {
    const { method, params } = request;
    const headers = new Headers(context?.headers);
    headers.set('Content-Type', 'application/json');
    headers.set('Accept', 'application/json, text/event-stream');
    headers.set('MCP-Protocol-Version', protocolVersion);
    headers.set('Mcp-Method', method);
    if (!headers.has('Mcp-Name')) headers.set('Mcp-Name', params.name);
    const body = JSON.stringify({ ...request, jsonrpc: '2.0', id: `raw-${++count}` });
    const response = await fetch(url, { method: 'POST', headers, body, signal });
    const { result, error } = await response.json();
    return error === undefined ? { kind: 'result', result } : { kind: 'error', error };
}

function elicit({ kind, params }) {
    user.asked.push(`${kind}: ${params.message}`);
    if (user.answers.length === 0) throw new Error(`nobody answers: ${params.message}`);
    const answer = user.answers.shift();
    return typeof answer === 'string' ? { action: answer } : { action: 'accept', content: answer };
}

async function open() {
    const versionNegotiation = { mode: era === 'modern' ? 'auto' : 'legacy' };
    const client = new Client(clientInfo, { capabilities, versionNegotiation });
    client.onerror = error => user.amiss.push(String(error));
    await client.connect(new StreamableHTTPClientTransport(new URL(url)), { timeout: limit });
    const { tools } = await client.listTools({}, { timeout: limit });
    const declarations = new Map(tools.map(tool => [tool.name, toolDeclarationFromMcpTool(tool)]));
    const framing = { protocolVersion, clientInfo, clientCapabilities: capabilities };
    const session = createTaskSessionFromClient(client, {
        endpointId: 'press',
        tools: { currentTool: name => declarations.get(name) },
        onInputRequest: async request => elicit(request),
        onError: error => user.amiss.push(String(error)),
        ...(era === 'modern' ? { rawDispatch, v2RequestFraming: framing } : {})
    });
    return { session, client, close: () => session.close().then(() => client.close()) };
}

// On 2025-11-25 a task asks who waits for its result. The package waits for the end before it does, so its host does.
const anything = { '~standard': { version: 1, vendor: 'interop', validate: value => ({ value }) } };

async function settled(execution, client) {
    const seen = [];
    const waiting = [];
    const askFor = taskId => {
        const request = { method: 'tasks/result', params: { taskId } };
        const answered = client.request(request, anything, { timeout: limit });
        waiting.push(answered.catch(error => user.amiss.push(String(error))));
    };
    const onEvent = ({ type, task }) => {
        if (type !== 'task' || seen.includes(task.status)) return;
        seen.push(task.status);
        if (era === 'legacy' && task.status === 'input_required') askFor(task.taskId);
    };
    const settlement = await execution.settle({ onEvent });
    await Promise.all(waiting);
    return { ...settlement, seen };
}

function told({ status, result, error }) {
    if (status === 'failed') return { status, code: error.code, message: error.message };
    return result === undefined ? { status } : { status, text: result.content[0].text, isError: result.isError ?? false };
}

function flowsOf({ session, client }) {
    const start = (name, args, ...answers) => {
        user.answers.push(...answers);
        return session.callTool(name, args, { requestTimeoutMs: limit, task: { preference: 'prefer' } });
    };
    const settle = async execution => told((await settled(execution, client)).outcome);
    const snapshotUntil = async (task, message) => {
        for (;;) {
            const { statusMessage } = await task.snapshot();
            if (statusMessage === message) return statusMessage;
        }
    };

    return {
        connecting: () => ({ version: client.getNegotiatedProtocolVersion(), capabilities: session.capabilities }),
        'an ordinary call': async () => {
            const execution = await start('add', { a: 2, b: 3 });
            return { kind: execution.kind, ...(await settle(execution)) };
        },
        'a question in the middle': async () => {
            const execution = await start('report', { year: 2026 }, { title: 'Figures' });
            const { outcome, lastTask, seen } = await settled(execution, client);
            return { kind: execution.kind, ...told(outcome), asks: seen.includes('input_required'), last: lastTask.status };
        },
        'a question declined': async () => settle(await start('report', { year: 2025 }, 'decline')),
        'a tool that fails': async () => settle(await start('jam', {})),
        'stopped at work': async () => {
            const execution = await start('drum', {});
            const message = await snapshotUntil(session.task(execution.handle.taskId), 'drumming');
            await execution.cancel();
            return { message, ...(await settle(execution)) };
        },
        'finished by another client': async () => {
            let saved;
            const execution = await start('report', { year: 2024 });
            await execution.handoff(reference => void (saved = JSON.stringify(reference)));
            user.answers.push({ title: 'Resumed' });
            const other = await open();
            try {
                const resumed = await other.session.resumeTask(JSON.parse(saved));
                return told((await settled(resumed, other.client)).outcome);
            } finally {
                await other.close();
            }
        },
        'an unknown task': () =>
            session.task('no-such-task').snapshot().then(
                view => ({ found: view.status }),
                error => ({ code: error.code })
            )
    };
}

// A flow that hangs is a flow that failed; the others still have their turn.
async function inTime(play) {
    let timer;
    const late = new Promise((_, reject) => {
        timer = setTimeout(() => reject(new Error('the flow did not end')), limit);
    });
    return Promise.race([play(), late]).finally(() => clearTimeout(timer));
}

const opened = await open();
for (const [flow, play] of Object.entries(flowsOf(opened))) {
    Object.assign(user, { answers: [], asked: [], amiss: [] });
    const said = await inTime(play).catch(error => void user.amiss.push(String(error)));
    process.stdout.write(`${JSON.stringify({ flow, said, asked: user.asked, amiss: [...user.amiss, ...user.answers] })}\n`);
}
await opened.close();
