// A museum served by the official TypeScript SDK, which asks in every way that SDK has, for Turnwise's client.
//
//     node typescript_server.mjs http PORT     /mcp answers with JSON where it can, /stream always with events
//     node typescript_server.mjs stdio

import { createServer } from 'node:http';

import { toNodeHandler } from '@modelcontextprotocol/node';
import {
    acceptedContent,
    completable,
    createMcpHandler,
    createRequestStateCodec,
    InMemoryServerEventBus,
    inputRequired,
    inputResponse,
    McpServer,
    ProtocolError,
    ResourceTemplate
} from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import * as z from 'zod';

const [kind, port] = process.argv.slice(2);

// A key of its own, so that a flow begun with one process can be finished with another.
const state = createRequestStateCodec({
    key: 'a key for the tests, of thirty-two bytes or more',
    bind: ctx => ctx.mcpReq.method
});
const bus = new InMemoryServerEventBus();
const received = new Map();

const QUESTIONS = ['Who painted it?', 'In which year?', 'In which town?'];
const RESOURCES = ['hours', 'plan', 'diary'].map(name => ({ name, uri: `museum://${name}` }));

const Visitors = z.object({ visitors: z.number().int().min(1) });
const Gift = z.object({ euros: z.number().int().min(1), name: z.string().optional() });
const Town = z.object({ town: z.string() });

const text = said => ({ content: [{ type: 'text', text: said }] });
const message = said => ({ messages: [{ role: 'user', content: { type: 'text', text: said } }] });
const contents = (uri, said) => ({ contents: [{ uri: uri.href, mimeType: 'text/plain', text: said }] });
const prompt = said => [{ role: 'user', content: { type: 'text', text: said } }];
const places = roots => roots.map(root => `${root.name} at ${root.uri}`).join(', ');
const answer = (ctx, key) => inputResponse(ctx.mcpReq.inputResponses, key);
const compact = value => JSON.stringify(value, Object.keys(value).sort());
const outcome = view => (view.action === 'accept' ? compact(view.content) : view.action);

function one(key, request, requestState) {
    return inputRequired({ inputRequests: { [key]: request }, requestState });
}

function howMany(room) {
    return inputRequired.elicit({ message: `How many in the ${room}?`, requestedSchema: Visitors });
}

// Nothing asked

function addPlain(server) {
    server.registerTool(
        'price',
        {
            description: 'Structured output.',
            inputSchema: z.object({ adults: z.number().int(), children: z.number().int().default(0) }),
            outputSchema: z.object({ total: z.number(), currency: z.string() })
        },
        async ({ adults, children }) => {
            const structuredContent = { total: 12 * adults + 5 * children, currency: 'EUR' };
            return { ...text(JSON.stringify(structuredContent)), structuredContent };
        }
    );
    server.registerTool('poster', { description: 'A text and a picture.' }, async () => ({
        content: [
            { type: 'text', text: 'The poster' },
            { type: 'image', data: 'iVBORw0KGgo=', mimeType: 'image/png' }
        ]
    }));
    server.registerTool('echo', { inputSchema: z.object({ text: z.string() }) }, async given => text(given.text));
    server.registerTool(
        'wing',
        {
            description: 'A parameter that an HTTP client repeats in a header.',
            inputSchema: z.object({ name: z.string().meta({ 'x-mcp-header': 'Wing' }) })
        },
        async ({ name }, ctx) => text(`${name}, ${ctx.http?.req?.headers.get('mcp-param-wing') ?? 'no headers'}`)
    );
    server.registerTool('badge', { description: 'What the visitor wears.' }, async ctx =>
        text((ctx.http ? ctx.http.req.headers.get('x-badge') : process.env.BADGE) ?? 'none')
    );
    server.registerTool('visitor', { description: 'What the client says about itself.' }, async ctx => {
        const { name, version } = ctx.mcpReq.envelope['io.modelcontextprotocol/clientInfo'];
        return text(`${name} ${version}`);
    });
    server.registerTool('closed', { description: 'Always fails.' }, async () => {
        throw new Error('The museum is closed');
    });
    server.registerTool('collapse', { description: 'The end of the process.' }, () => process.exit(3));
    server.registerTool('times', { inputSchema: z.object({ method: z.string() }) }, async ({ method }) =>
        text(String(received.get(method) ?? 0))
    );
}

// Asking

function addForms(server) {
    server.registerTool('donate', { description: 'A form, asked again until it is filled in well.' }, async ctx => {
        const gift = acceptedContent(ctx.mcpReq.inputResponses, 'gift', Gift);
        if (gift) return text(compact(gift));
        const given = answer(ctx, 'gift');
        if (given.kind === 'elicit' && given.action !== 'accept') return text(given.action);
        return one('gift', inputRequired.elicit({ message: 'A gift for the museum?', requestedSchema: Gift }));
    });
    server.registerTool('courier', { description: 'Two forms in one round.' }, async ctx => {
        const given = ctx.mcpReq.inputResponses;
        const [whence, whither] = ['whence', 'whither'].map(key => acceptedContent(given, key, Town));
        if (whence && whither) return text(`${whence.town} to ${whither.town}`);
        return inputRequired({
            inputRequests: {
                whence: inputRequired.elicit({ message: 'From which town?', requestedSchema: Town }),
                whither: inputRequired.elicit({ message: 'To which town?', requestedSchema: Town })
            }
        });
    });
    server.registerTool('loan', { description: 'A form with a field of every kind.' }, async ctx => {
        const terms = answer(ctx, 'terms');
        if (terms.kind === 'elicit') return text(outcome(terms));
        const properties = {
            days: { type: 'integer', minimum: 1, default: 7 },
            value: { type: 'number' },
            insured: { type: 'boolean', default: true },
            until: { type: 'string', format: 'date' },
            frame: { type: 'string', enum: ['gilt', 'plain'] },
            crate: { type: 'string', oneOf: [{ const: 's', title: 'Small' }, { const: 'l', title: 'Large' }] },
            extras: { type: 'array', items: { type: 'string', enum: ['glass', 'lamp'] }, maxItems: 2 }
        };
        const requestedSchema = { type: 'object', properties, required: ['days', 'until'] };
        return one('terms', inputRequired.elicit({ message: 'The terms of the loan?', requestedSchema }));
    });
    server.registerTool('membership', { description: 'A page to open.' }, async ctx => {
        const page = answer(ctx, 'page');
        if (page.kind === 'elicit') return text(`flow ${ctx.mcpReq.requestState().flow}: ${page.action}`);
        const asked = { message: 'Become a member?', url: 'https://museum.example/join?flow=1' };
        return one('page', inputRequired.elicitUrl(asked), await state.mint({ flow: 1 }, ctx));
    });
}

function addOthers(server) {
    server.registerTool('caption', { inputSchema: z.object({ room: z.string() }) }, async ({ room }, ctx) => {
        const caption = answer(ctx, 'caption');
        if (caption.kind === 'sampling') {
            return text(`${room}: ${caption.result.content.text} by ${caption.result.model}`);
        }
        const messages = prompt(`A caption for the ${room}`);
        return one('caption', inputRequired.createMessage({ messages, maxTokens: 20, systemPrompt: 'Be brief.' }));
    });
    server.registerTool('research', { inputSchema: z.object({ room: z.string() }) }, async ({ room }, ctx) => {
        const found = answer(ctx, 'found');
        if (found.kind === 'sampling') {
            const uses = [found.result.content].flat().map(use => `${use.name} ${JSON.stringify(use.input)}`);
            return text(`${room}: ${found.result.stopReason}, ${uses.join(', ')}`);
        }
        const tools = [{ name: 'archive', description: 'Look it up', inputSchema: { type: 'object' } }];
        const messages = prompt(`Look up the ${room}`);
        return one('found', inputRequired.createMessage({ messages, maxTokens: 20, tools }));
    });
    server.registerTool('folders', { description: 'Roots.' }, async ctx => {
        const roots = answer(ctx, 'roots');
        return roots.kind === 'roots' ? text(places(roots.roots)) : one('roots', inputRequired.listRoots());
    });
    server.registerTool('cloakroom', { inputSchema: z.object({ bags: z.number() }) }, async ({ bags }, ctx) => {
        const [label, tag, roots] = ['label', 'a tag, ', 'Ämter/1'].map(key => answer(ctx, key));
        if (label.kind === 'elicit' && tag.kind === 'sampling' && roots.kind === 'roots') {
            const kept = ctx.mcpReq.requestState().bags;
            return text(`${kept} bags: ${outcome(label)}; ${tag.result.content.text}; ${places(roots.roots)}`);
        }
        const requestedSchema = z.object({ label: z.string() });
        return inputRequired({
            inputRequests: {
                label: inputRequired.elicit({ message: `A label for ${bags} bags?`, requestedSchema }),
                'a tag, ': inputRequired.createMessage({ messages: prompt('A tag'), maxTokens: 5 }),
                'Ämter/1': inputRequired.listRoots()
            },
            requestState: await state.mint({ bags }, ctx)
        });
    });
}

function addRounds(server) {
    server.registerTool('quiz', { description: 'Three rounds, whose answers are kept in the state.' }, async ctx => {
        const given = ctx.mcpReq.requestState()?.given ?? [];
        const said = answer(ctx, `question-${given.length}`);
        if (said.kind === 'elicit') given.push(said.content?.answer ?? said.action);
        if (given.length === QUESTIONS.length) return text(given.join(', '));
        const requestedSchema = z.object({ answer: z.string() });
        const asked = inputRequired.elicit({ message: QUESTIONS[given.length], requestedSchema });
        return one(`question-${given.length}`, asked, await state.mint({ given }, ctx));
    });
    server.registerTool('queue', { description: 'Nothing to ask, but not yet done, twice.' }, async ctx => {
        const turn = ctx.mcpReq.requestState()?.turn ?? 0;
        if (turn === 2) return text('Your turn');
        return inputRequired({ requestState: await state.mint({ turn: turn + 1 }, ctx) });
    });
    server.registerTool('maze', { description: 'Never stops asking.' }, async () =>
        one('way', inputRequired.elicit({ message: 'Left or right?', requestedSchema: z.object({ way: z.string() }) }))
    );
}

// Telling

async function progress(ctx, step) {
    const progressToken = ctx.mcpReq._meta?.progressToken;
    if (progressToken === undefined) return;
    await ctx.mcpReq.notify({ method: 'notifications/progress', params: { progressToken, ...step } });
}

function addTelling(server) {
    server.registerTool('restore', { description: 'Progress.' }, async ctx => {
        await progress(ctx, { progress: 1, total: 2, message: 'cleaned' });
        await progress(ctx, { progress: 2, total: 2 });
        return text('restored');
    });
    server.registerTool('narrate', { inputSchema: z.object({ level: z.string() }) }, async ({ level }, ctx) => {
        const again = answer(ctx, 'again');
        await ctx.mcpReq.log(level, { asked: again.kind === 'elicit' }, 'guide');
        await progress(ctx, { progress: again.kind === 'elicit' ? 2 : 1 });
        if (again.kind === 'elicit') return text(`Told: ${again.action}`);
        const requestedSchema = z.object({ again: z.boolean() });
        return one('again', inputRequired.elicit({ message: 'Again?', requestedSchema }));
    });
    server.registerTool('linger', { description: 'Ends only when it is cancelled, and tells.' }, async ctx => {
        changed(server, 'museum://lingering');
        await progress(ctx, { progress: 1 });
        return new Promise(resolve => {
            ctx.mcpReq.signal.addEventListener('abort', () => {
                changed(server, 'museum://left');
                resolve(text('left'));
            });
        });
    });
    server.registerTool('rehang', { inputSchema: z.object({ room: z.string() }) }, async ({ room }) => {
        changed(server, `museum://room/${room}`);
        return text('rehung');
    });
    server.registerTool('rebuild', { description: 'Change every list.' }, async () => {
        for (const list of ['tools', 'prompts', 'resources']) listChanged(server, list);
        return text('rebuilt');
    });
}

// Over HTTP a change goes to the bus that every listener is on; over stdio, to the one client there is.
function changed(server, uri) {
    if (kind === 'http') bus.publish({ kind: 'resource_updated', uri });
    else server.server.sendResourceUpdated({ uri }).catch(() => console.error(`nobody hears that ${uri} changed`));
}

function listChanged(server, list) {
    if (kind === 'http') bus.publish({ kind: `${list}_list_changed` });
    else if (list === 'tools') server.sendToolListChanged();
    else if (list === 'prompts') server.sendPromptListChanged();
    else server.sendResourceListChanged();
}

// Prompts, resources, completion

function addPrompts(server) {
    server.registerPrompt('welcome', { argsSchema: z.object({ name: z.string() }) }, ({ name }) =>
        message(`Welcome ${name}`)
    );
    const room = completable(z.string(), (value, context) =>
        ['me', 'uen', ...Object.values(context?.arguments ?? {})].map(end => value + end)
    );
    server.registerPrompt('guide', { argsSchema: z.object({ room }) }, async ({ room }, ctx) => {
        const party = answer(ctx, 'party');
        if (party.kind !== 'elicit') return one('party', howMany(room), await state.mint({ word: 'please' }, ctx));
        return message(`Guide ${outcome(party)} through the ${room}, ${ctx.mcpReq.requestState().word}`);
    });
}

function addResources(server) {
    const template = new ResourceTemplate('museum://room/{name}', {
        list: undefined,
        complete: { name: value => [`${value}ll`] }
    });
    server.registerResource('hours', 'museum://hours', {}, async uri => contents(uri, '9 to 5'));
    server.registerResource('plan', 'museum://plan', {}, async uri => ({
        contents: [{ uri: uri.href, mimeType: 'image/png', blob: 'iVBORw0KGgo=' }]
    }));
    server.registerResource('diary', 'museum://diary', {}, async (uri, ctx) => {
        const page = answer(ctx, 'page');
        if (page.kind === 'elicit') return contents(uri, `Diary: ${outcome(page)}`);
        const requestedSchema = z.object({ page: z.number() });
        return one('page', inputRequired.elicit({ message: 'Which page?', requestedSchema }));
    });
    server.registerResource('room', template, {}, async (uri, { name }, ctx) => {
        const [party, roots] = [answer(ctx, 'party'), answer(ctx, 'roots')];
        if (party.kind === 'elicit' && roots.kind === 'roots') {
            return contents(uri, `${name}: ${outcome(party)}; ${places(roots.roots)}`);
        }
        return inputRequired({ inputRequests: { party: howMany(name), roots: inputRequired.listRoots() } });
    });
    server.registerResource('alarm', 'museum://alarm', {}, async () => {
        throw new ProtocolError(-32050, 'The alarm is on', { wing: 'north' });
    });
    // One resource to a page, which the SDK leaves to its users.
    server.server.setRequestHandler('resources/list', async ({ params }) => {
        const page = Number(params?.cursor ?? 0);
        const more = page + 1 < RESOURCES.length ? { nextCursor: String(page + 1) } : {};
        return { resources: [RESOURCES[page]], ...more };
    });
    server.server.setRequestHandler('prompts/list', async () => {
        received.set('prompts/list', (received.get('prompts/list') ?? 0) + 1);
        return { prompts: [{ name: 'welcome' }, { name: 'guide' }] };
    });
}

function museum() {
    const server = new McpServer(
        { name: 'museum', title: 'The museum', version: '2.4.0' },
        {
            instructions: 'Mind the step.',
            capabilities: { logging: {}, resources: { subscribe: true } },
            cacheHints: { 'prompts/list': { ttlMs: 60_000, cacheScope: 'public' } },
            requestState: { verify: state.verify }
        }
    );
    for (const add of [addPlain, addForms, addOthers, addRounds, addTelling, addPrompts, addResources]) add(server);
    return server;
}

if (kind === 'stdio') {
    serveStdio(museum);
} else {
    const answering = toNodeHandler(createMcpHandler(museum, { bus }));
    const streaming = toNodeHandler(createMcpHandler(museum, { bus, responseMode: 'sse', keepAliveMs: 20 }));
    const listener = (request, response) => (request.url === '/stream' ? streaming : answering)(request, response);
    createServer(listener).listen(Number(port), '127.0.0.1');
}
