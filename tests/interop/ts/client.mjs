// The official TypeScript client, unmodified, against the travel desk of ../server.py.
//
//     node client.mjs http URL
//     node client.mjs stdio COMMAND ARGUMENT...
//     node client.mjs watch URL
//
// Each flow prints one line of JSON: what the client got in `said`, what its user was asked in `asked`, and in `amiss`
// whatever went wrong: errors, complaints of the client about the server's messages, answers nobody asked for.
// `watch` listens until the server ends the subscription.

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { getDefaultEnvironment, StdioClientTransport } from '@modelcontextprotocol/client/stdio';

const [kind, ...address] = process.argv.slice(2);
const limit = { timeout: 10_000 };

function transport() {
    if (kind !== 'stdio') return new StreamableHTTPClientTransport(new URL(address[0]));
    const env = { ...getDefaultEnvironment(), PYTHONPATH: process.env.PYTHONPATH };
    return new StdioClientTransport({ command: address[0], args: address.slice(1), env });
}

// The user: gives the next answer from a list. An answer is a form's content, or the name of an action.
const user = { answers: [], asked: [], logs: [], events: [], amiss: [], wake: () => {} };

function elicit({ params }) {
    user.asked.push(params.mode === 'url' ? params.url : params.message);
    if (user.answers.length === 0) throw new Error(`nobody answers: ${params.message}`);
    const answer = user.answers.shift();
    return typeof answer === 'string' ? { action: answer } : { action: 'accept', content: answer };
}

function sample({ params }) {
    const last = params.messages.at(-1).content;
    user.asked.push(`${params.messages.length} messages, ${params.maxTokens} tokens`);
    const reply = { model: 'model-1', role: 'assistant' };
    if (params.tools && last.type === 'text') {
        const use = { type: 'tool_use', id: 'use-1', name: params.tools[0].name, input: { city: 'Roma' } };
        return { ...reply, stopReason: 'toolUse', content: [use] };
    }
    const { text } = last.type === 'tool_result' ? last.content[0] : last;
    return { ...reply, stopReason: 'endTurn', content: { type: 'text', text: `<${text}>` } };
}

function heard(event) {
    user.events.push(event);
    user.wake();
}

async function events(count) {
    while (user.events.length < count) await new Promise(resolve => (user.wake = resolve));
    return user.events;
}

async function connect({ silent = false } = {}) {
    const capabilities = silent ? {} : { elicitation: { form: {}, url: {} }, sampling: { tools: {} }, roots: {} };
    const client = new Client(
        { name: 'interop', version: '1.0.0' },
        { capabilities, versionNegotiation: { mode: 'auto' } }
    );
    if (!silent) {
        client.setRequestHandler('elicitation/create', elicit);
        client.setRequestHandler('sampling/createMessage', sample);
        client.setRequestHandler('roots/list', () => {
            user.asked.push('roots');
            return { roots: [{ uri: 'file:///home/ada/papers', name: 'papers' }] };
        });
    }
    client.setNotificationHandler('notifications/message', ({ params }) => {
        user.logs.push([params.level, params.logger ?? null, params.data]);
    });
    client.setNotificationHandler('notifications/tools/list_changed', () => heard('tools'));
    client.setNotificationHandler('notifications/prompts/list_changed', () => heard('prompts'));
    client.setNotificationHandler('notifications/resources/list_changed', () => heard('resources'));
    client.setNotificationHandler('notifications/resources/updated', ({ params }) => heard(params.uri));
    client.onerror = error => user.amiss.push(String(error));
    await client.connect(transport(), limit);
    return client;
}

function flowsOf(client) {
    const raw = (name, args, options) => client.callTool({ name, arguments: args }, { ...limit, ...options });
    const call = async (name, args = {}, ...answers) => {
        user.answers.push(...answers);
        const result = await raw(name, args);
        return result.isError ? { failed: result.content[0].text } : result.content[0].text;
    };
    // Given a definition without an output schema, because the client holds even a question against the listed one.
    const begin = (name, args) => {
        const toolDefinition = { name, inputSchema: { type: 'object' } };
        return raw(name, args, { allowInputRequired: true, toolDefinition });
    };
    const firstRound = async (name, args = {}) => {
        const { inputRequests } = await begin(name, args);
        return Object.values(inputRequests).map(request => request.method).sort();
    };
    const prompt = async (name, args, ...answers) => {
        user.answers.push(...answers);
        const { messages } = await client.getPrompt({ name, arguments: args }, limit);
        return messages.map(message => [message.role, message.content.text]);
    };
    const read = async (uri, ...answers) => {
        user.answers.push(...answers);
        const { contents } = await client.readResource({ uri }, limit);
        return contents.map(part => [part.mimeType, part.text]);
    };
    const refusal = async work => {
        try {
            return { accepted: await work() };
        } catch (error) {
            return { code: error.code, data: error.data };
        }
    };
    const christmas = { date: '2024-12-25', time: '19:00', party_size: 2 };

    return {
        connecting: () => ({
            era: client.getProtocolEra(),
            version: client.getNegotiatedProtocolVersion(),
            server: client.getServerVersion(),
            instructions: client.getInstructions(),
            offers: Object.keys(client.getServerCapabilities()).sort()
        }),
        'listing tools': async () => (await client.listTools({}, limit)).tools.map(tool => tool.name),
        'listing prompts': async () => (await client.listPrompts({}, limit)).prompts.map(each => each.name),
        'listing resources': async () => (await client.listResources({}, limit)).resources.map(each => each.uri),
        'listing templates': async () =>
            (await client.listResourceTemplates({}, limit)).resourceTemplates.map(each => each.uriTemplate),
        'completing a prompt': async () => {
            const ref = { type: 'ref/prompt', name: 'letter' };
            return (await client.complete({ ref, argument: { name: 'city', value: 'Ro' } }, limit)).completion;
        },
        'completing a template': async () => {
            const ref = { type: 'ref/resource', uri: 'desk://menu/{restaurant}' };
            const context = { arguments: { city: 'Rome' } };
            const argument = { name: 'restaurant', value: 'Tri' };
            return (await client.complete({ ref, argument, context }, limit)).completion;
        },

        'structured output': async () => (await raw('add', { a: 2, b: 3 })).structuredContent,
        'a picture': async () => (await raw('badge', {})).content[1],
        'a mirrored parameter': () => call('route', { region: 'Île-de-France' }),
        'a tool error': () => call('closed'),
        'a number that JSON does not have': async () => (await raw('distance', {})).isError,
        'an unknown tool': () => refusal(() => call('nothing_of_the_kind')),

        'a form': () =>
            call(
                'book',
                { restaurant: 'Da Rosa' },
                { guests: 4, seating: 'garden', dishes: ['fish', 'cake'], budget: 90.5, day: '2026-08-01' }
            ),
        'a form of other formats': () =>
            call('appoint', {}, { at: '19:30', reference: '00000000-0000-0000-0000-000000000007' }),
        'a form of titled choices': () => call('upgrade', {}, { seat: 'w', meals: ['v'] }),
        'a form declined': () => call('book', { restaurant: 'Da Rosa' }, 'decline'),
        'a form cancelled': () => call('book', { restaurant: 'Da Rosa' }, 'cancel'),
        'a form answered badly': () => call('book', { restaurant: 'Da Rosa' }, { guests: 0 }, 'accept', { guests: 1 }),
        'a page': () => call('sign_in', {}, 'accept'),
        'a page declined': () => call('sign_in', {}, 'decline'),
        'a page cancelled': () => call('sign_in', {}, 'cancel'),
        sampling: () => call('slogan', { city: 'Rome' }),
        'sampling with tools': () => call('consult', { city: 'Rome' }),
        roots: () => call('folders'),
        'one round for three kinds': () => firstRound('prepare'),
        'three kinds': () => call('prepare', {}, { city: 'Rome' }),
        'one round for two tasks': () => firstRound('compare'),
        'two tasks': () => call('compare', {}, { city: 'Rome' }, { city: 'Oslo' }),
        'three rounds': async () => {
            user.answers.push({ city: 'Rome' }, { city: 'Oslo' }, { city: 'Riga' });
            return (await raw('interview', { lot: 'typescript' })).structuredContent;
        },
        'three rounds declined': () => call('interview', { lot: 'declined' }, { city: 'Rome' }, 'decline'),
        'side by side': async () => {
            const cities = [...Array(20).keys()].map(number => `city ${number}`);
            return (await Promise.all(cities.map(city => call('slogan', { city })))).sort();
        },

        'a declared parameter': () => call('weather', { city: 'Rome' }, { region: 'Lazio' }),
        'a declared parameter declined': () => call('weather', { city: 'Rome' }, 'decline'),
        'a declared parameter cancelled': () => call('weather', { city: 'Rome' }, 'cancel'),
        'a declared outcome': () => call('forecast', { city: 'Rome' }, 'decline'),
        'one round for three parameters': () => firstRound('brief', { city: 'Rome' }),
        'three parameters': () => call('brief', { city: 'Rome' }, { region: 'Lazio' }),

        'returned questions': () => call('ticket', { city: 'Rome' }, { sure: true }),
        'returned questions declined': () => call('ticket', { city: 'Rome' }, 'decline'),
        'a state without questions': () => call('come_back'),
        'all three forms': () => call('journey', { city: 'Rome' }, { region: 'Lazio' }, { guests: 2 }, { sure: true }),
        'finished by another client': async () => {
            const first = await begin('journey', { city: 'Rome' });
            const [key] = Object.keys(first.inputRequests);
            const inputResponses = { [key]: { action: 'accept', content: { region: 'Lazio' } } };
            user.answers.push({ guests: 3 }, { sure: false });
            const other = await connect();
            try {
                const retry = { name: 'journey', arguments: { city: 'Rome' } };
                const result = await other.callTool({ ...retry, inputResponses, requestState: first.requestState }, limit);
                return result.content[0].text;
            } finally {
                await other.close();
            }
        },
        'a state for another call': async () => {
            const { requestState } = await begin('journey', { city: 'Rome' });
            const other = { name: 'journey', arguments: { city: 'Oslo' }, requestState };
            return refusal(() => client.callTool(other, limit));
        },

        'an SDK tool elicits': () =>
            call('book_table', christmas, { checkAlternative: true, alternativeDate: '2024-12-27' }),
        'an SDK tool is declined': () => call('book_table', christmas, 'decline'),
        'an SDK tool samples': () => call('generate_poem', { topic: 'rain' }),
        'an SDK tool lists roots': () => call('show_roots'),
        'an SDK tool opens a page': () => call('connect_service', {}, 'accept', { name: 'post' }),

        // The client drops progress that arrives together with the response, so the response has to wait for it.
        progress: async () => {
            const steps = [];
            const line = `${kind} ${process.pid}`;
            const onprogress = step => {
                steps.push(step);
                if (steps.length === 2) call('release', { line });
            };
            const result = await raw('hold', { line }, { onprogress });
            return { released: result.content[0].text === `${line} released`, steps };
        },
        logs: async () => {
            const _meta = { 'io.modelcontextprotocol/logLevel': 'info' };
            await client.callTool({ name: 'long_running_task', arguments: { task_name: 'packing' }, _meta }, limit);
            return user.logs;
        },
        'logs around a question': async () => {
            user.answers.push({ city: 'Rome' });
            const _meta = { 'io.modelcontextprotocol/logLevel': 'warning' };
            await client.callTool({ name: 'tell_then_ask', arguments: {}, _meta }, limit);
            return user.logs;
        },
        'logs nobody wants': async () => [await call('tell_then_ask', {}, { city: 'Rome' }), user.logs],
        'listening for lists': async () => {
            const lists = { toolsListChanged: true, promptsListChanged: true, resourcesListChanged: true };
            const subscription = await client.listen(lists, limit);
            await call('announce');
            const changed = await events(3);
            await subscription.close();
            return { honored: subscription.honoredFilter, changed, closed: await subscription.closed };
        },
        'listening for a resource': async () => {
            const subscription = await client.listen({ resourceSubscriptions: ['desk://hours'] }, limit);
            await call('announce');
            await call('touch', { uri: 'desk://diary' });
            await call('touch', { uri: 'desk://hours' });
            const changed = await events(1);
            await subscription.close();
            return { honored: subscription.honoredFilter, changed };
        },
        'cancelling a call': async () => {
            const subscription = await client.listen({ resourceSubscriptions: ['desk://lingered'] }, limit);
            const controller = new AbortController();
            const options = { signal: controller.signal, onprogress: () => controller.abort('enough') };
            const refused = await raw('linger', {}, options).then(() => false, () => true);
            const changed = await events(1);
            await subscription.close();
            return { refused, changed };
        },

        'a plain prompt': () => prompt('greeting', { name: 'Ada' }),
        'a prompt asks': () => prompt('itinerary', { city: 'Rome' }, { region: 'Trastevere' }),
        'a prompt is declined': () => prompt('itinerary', { city: 'Oslo' }, 'decline'),
        'a prompt declares': () => prompt('letter', { city: 'Rome' }, { region: 'Lazio' }),
        'a plain resource': () => read('desk://hours'),
        'a static resource asks': () => read('desk://diary', { sure: true }),
        'a static resource is cancelled': () => read('desk://diary', 'cancel'),
        'a template resource asks': () => read('desk://menu/Da%20Rosa', { city: 'Rome' }),
        'a template resource declares': () => read('desk://map/Zürich', { region: 'ZH' }),
        'an unknown resource': () => refusal(() => read('desk://nowhere')),

        'a client that cannot answer': async () => {
            const silent = await connect({ silent: true });
            const wanting = [
                ['weather', { city: 'Rome' }],
                ['sign_in', {}],
                ['generate_poem', { topic: 'rain' }],
                ['show_roots', {}]
            ];
            try {
                const told = [];
                for (const [name, args] of wanting) {
                    told.push(await refusal(() => silent.callTool({ name, arguments: args }, limit)));
                }
                return told;
            } finally {
                await silent.close();
            }
        }
    };
}

function print(line) {
    process.stdout.write(`${JSON.stringify(line)}\n`);
}

// A flow that hangs is a flow that failed; the others still have their turn.
async function inTime(play) {
    let timer;
    const late = new Promise((_, reject) => {
        timer = setTimeout(() => reject(new Error('the flow did not end')), limit.timeout);
    });
    return Promise.race([play(), late]).finally(() => clearTimeout(timer));
}

async function run(client) {
    for (const [flow, play] of Object.entries(flowsOf(client))) {
        Object.assign(user, { answers: [], asked: [], logs: [], events: [], amiss: [] });
        const said = await inTime(play).catch(error => void user.amiss.push(String(error)));
        print({ flow, said, asked: user.asked, amiss: [...user.amiss, ...user.answers] });
    }
}

async function watch(client) {
    const subscription = await client.listen({ toolsListChanged: true }, limit);
    print({ flow: 'watch', said: 'listening' });
    print({ flow: 'watch', said: await subscription.closed });
}

const client = await connect();
await (kind === 'watch' ? watch(client) : run(client));
await client.close();
