// The official TypeScript client, sdk 1.32.2 or client 2.4.0 in its mode of the handshake, against ../server.py.
//
//     node guest.mjs sdk|client http URL
//     node guest.mjs sdk|client stdio COMMAND ARGUMENT...
//     node guest.mjs sdk|client broken URL
//
// Each flow prints one line of JSON: what the client got in `said`, what its user was asked in `asked`, and in `amiss`
// whatever went wrong. `broken` plays the flows in which a stream ends before its time. `guest.py` plays the same.

const [kit, kind, ...address] = process.argv.slice(2);
const isOld = kit === 'sdk';
const limit = { timeout: 10_000 };
const own = `${kind} ${process.pid}`;

const sdk = '@modelcontextprotocol/sdk';
const [main, http, stdio, types] = isOld
    ? await Promise.all([
          import(`${sdk}/client/index.js`),
          import(`${sdk}/client/streamableHttp.js`),
          import(`${sdk}/client/stdio.js`),
          import(`${sdk}/types.js`)
      ])
    : await import('@modelcontextprotocol/client').then(async all => [
          all,
          all,
          await import('@modelcontextprotocol/client/stdio'),
          all
      ]);

// By name in the one version, by schema in the other.
const schemas = {
    'elicitation/create': 'ElicitRequestSchema',
    'sampling/createMessage': 'CreateMessageRequestSchema',
    'roots/list': 'ListRootsRequestSchema',
    'notifications/message': 'LoggingMessageNotificationSchema',
    'notifications/tools/list_changed': 'ToolListChangedNotificationSchema',
    'notifications/prompts/list_changed': 'PromptListChangedNotificationSchema',
    'notifications/resources/list_changed': 'ResourceListChangedNotificationSchema',
    'notifications/resources/updated': 'ResourceUpdatedNotificationSchema'
};
const named = method => (isOld ? types[schemas[method]] : method);

function transport() {
    if (kind !== 'stdio') return new http.StreamableHTTPClientTransport(new URL(address[0]));
    const env = { ...stdio.getDefaultEnvironment(), PYTHONPATH: process.env.PYTHONPATH };
    return new stdio.StdioClientTransport({ command: address[0], args: address.slice(1), env });
}

// Gives the next answer from a list: a form's content, the name of an action, or an error; or always the same.
class Person {
    constructor(brackets = '<>', always = undefined) {
        Object.assign(this, { brackets, always, wake: () => {} });
        this.begin();
    }

    begin() {
        Object.assign(this, { answers: [], asked: [], logs: [], events: [], amiss: [] });
    }

    elicit({ params }) {
        this.asked.push(params.mode === 'url' ? params.url : params.message);
        const answer = this.always ?? this.answers.shift();
        if (answer === undefined) throw new Error(`nobody answers: ${params.message}`);
        if (answer instanceof Error) throw answer;
        return typeof answer === 'string' ? { action: answer } : { action: 'accept', content: answer };
    }

    sample({ params }) {
        const last = params.messages.at(-1).content;
        this.asked.push(`${params.messages.length} messages, ${params.maxTokens} tokens`);
        const reply = { model: 'model-1', role: 'assistant' };
        if (params.tools && last.type === 'text') {
            const use = { type: 'tool_use', id: 'use-1', name: params.tools[0].name, input: { city: 'Roma' } };
            return { ...reply, stopReason: 'toolUse', content: [use] };
        }
        const { text } = last.type === 'tool_result' ? last.content[0] : last;
        const said = `${this.brackets[0]}${text}${this.brackets[1]}`;
        return { ...reply, stopReason: 'endTurn', content: { type: 'text', text: said } };
    }

    roots() {
        this.asked.push('roots');
        return { roots: [{ uri: 'file:///home/ada/papers', name: 'papers' }] };
    }

    hear(event) {
        this.events.push(event);
        this.wake();
    }

    // What was told of these, when all of them were.
    async heard(...wanted) {
        while (!wanted.every(event => this.events.includes(event))) await new Promise(resolve => (this.wake = resolve));
        return this.events.filter(event => wanted.includes(event));
    }
}

async function connect(person) {
    const capabilities = person
        ? { elicitation: { form: {}, url: {} }, sampling: { tools: {} }, roots: { listChanged: true } }
        : {};
    const client = new main.Client({ name: 'interop', version: '1.0.0' }, { capabilities });
    if (person) {
        client.setRequestHandler(named('elicitation/create'), request => person.elicit(request));
        client.setRequestHandler(named('sampling/createMessage'), request => person.sample(request));
        client.setRequestHandler(named('roots/list'), () => person.roots());
        client.setNotificationHandler(named('notifications/message'), ({ params }) => {
            person.logs.push([params.level, params.logger ?? null, params.data]);
        });
        for (const list of ['tools', 'prompts', 'resources']) {
            client.setNotificationHandler(named(`notifications/${list}/list_changed`), () => person.hear(list));
        }
        client.setNotificationHandler(named('notifications/resources/updated'), ({ params }) => person.hear(params.uri));
        client.onerror = error => person.amiss.push(String(error));
    }
    const line = transport();
    let version;
    const known = line.setProtocolVersion?.bind(line);
    line.setProtocolVersion = agreed => {
        version = agreed;
        known?.(agreed);
    };
    await client.connect(line, limit);
    return { client, version, end: () => close(client, line) };
}

async function close(client, line) {
    await line.terminateSession?.();
    await client.close();
}

function guestOf(client, person) {
    const raw = (name, args = {}, options = {}) => {
        const params = { name, arguments: args };
        const all = { ...limit, ...options };
        return isOld ? client.callTool(params, undefined, all) : client.callTool(params, all);
    };
    const call = async (name, args = {}, ...answers) => {
        person.answers.push(...answers);
        const result = await raw(name, args);
        return result.isError ? { failed: result.content[0].text } : result.content[0].text;
    };
    const structured = async (name, args, ...answers) => {
        person.answers.push(...answers);
        return (await raw(name, args)).structuredContent;
    };
    const pages = async (method, member, name) => {
        const found = [];
        let cursor;
        do {
            const page = await client[method](cursor === undefined ? {} : { cursor }, limit);
            found.push(...page[member].map(entry => entry[name]));
            cursor = page.nextCursor;
        } while (cursor !== undefined);
        return [...new Set(found)];
    };
    const prompt = async (name, args, ...answers) => {
        person.answers.push(...answers);
        const { messages } = await client.getPrompt({ name, arguments: args }, limit);
        return messages.map(message => [message.role, message.content.text]);
    };
    const read = async (uri, ...answers) => {
        person.answers.push(...answers);
        const { contents } = await client.readResource({ uri }, limit);
        return contents.map(part => [part.mimeType, part.text]);
    };
    const complete = async (ref, name, value, context) =>
        (await client.complete({ ref, argument: { name, value }, ...context }, limit)).completion;
    const refused = async work => {
        try {
            return { accepted: await work() };
        } catch (error) {
            return { code: error.code };
        }
    };
    const cities = async (count, play) => {
        const all = [...Array(count).keys()].map(number => play(number, { city: `city ${number}` }));
        return (await Promise.all(all)).sort();
    };
    const logs = async level => {
        if (level !== undefined) await client.setLoggingLevel(level, limit);
        await raw('long_running_task', { task_name: 'packing', steps: 1 });
        return person.logs;
    };

    // The client drops progress that arrives together with the response, so the response has to wait for it.
    const progress = async () => {
        const steps = [];
        const onprogress = step => {
            steps.push([step.progress, step.total ?? null, step.message ?? null]);
            if (steps.length === 2) call('release', { line: own });
        };
        const result = await raw('hold', { line: own }, { onprogress });
        return { released: result.content[0].text === `${own} released`, steps };
    };
    const watching = async () => {
        const [one, two] = ['one', 'two'].map(name => `desk://${process.pid}/${name}`);
        await client.subscribeResource({ uri: one }, limit);
        await call('touch', { uri: two });
        await call('touch', { uri: one });
        await person.heard(one);
        await client.unsubscribeResource({ uri: one }, limit);
        await client.subscribeResource({ uri: two }, limit);
        await call('touch', { uri: one });
        await call('touch', { uri: two });
        return (await person.heard(one, two)).map(event => event.split('/').at(-1));
    };
    const cancelling = async () => {
        await client.subscribeResource({ uri: 'desk://lingered' }, limit);
        const controller = new AbortController();
        const options = { signal: controller.signal, onprogress: () => controller.abort('enough') };
        const wasRefused = await raw('linger', {}, options).then(() => false, () => true);
        return { refused: wasRefused, changed: (await person.heard('desk://lingered')).slice(0, 1) };
    };
    const pageFirst = async () => {
        try {
            return await call('enter', { name: own });
        } catch (error) {
            if (!(error instanceof types.UrlElicitationRequiredError)) throw error;
            const found = error.elicitations.map(page => [page.elicitationId, page.url]);
            return { pages: found, again: (await call('enter', { name: own })) === `Welcome, ${own}` };
        }
    };
    const twoClients = async () => {
        const other = new Person('[]');
        const second = await connect(other);
        const calls = [call, guestOf(second.client, other).call];
        try {
            return await cities(6, (number, city) => calls[number % 2]('slogan', city));
        } finally {
            await second.end();
        }
    };
    const silent = async () => {
        const { client: other, end } = await connect(undefined);
        const { call: ask } = guestOf(other, new Person());
        const wanting = [
            ['weather', { city: 'Rome' }],
            ['sign_in', {}],
            ['generate_poem', { topic: 'rain' }],
            ['show_roots', {}],
            ['ticket', { city: 'Rome' }]
        ];
        try {
            const told = [];
            for (const [name, args] of wanting) told.push(await ask(name, args));
            return told;
        } finally {
            await end();
        }
    };
    const rootsChanged = async () => {
        await client.sendRootsListChanged();
        return client.ping(limit);
    };
    const listsChanged = async () => {
        await call('announce');
        return [...new Set(await person.heard('tools', 'prompts', 'resources'))].sort();
    };
    return {
        ...{ raw, call, structured, pages, prompt, read, complete, refused, cities, logs, progress, watching },
        ...{ cancelling, pageFirst, twoClients, silent, rootsChanged, listsChanged }
    };
}

function flowsOf({ client, version }, guest) {
    const { call, prompt, read, pages, complete } = guest;
    const [rosa, rome, region] = [{ restaurant: 'Da Rosa' }, { city: 'Rome' }, { region: 'Lazio' }];
    const letter = { type: 'ref/prompt', name: 'letter' };
    const menu = { type: 'ref/resource', uri: 'desk://menu/{restaurant}' };
    const full = { guests: 4, seating: 'garden', dishes: ['fish', 'cake'], budget: 90.5, day: '2026-08-01' };
    const slot = { at: '19:30', reference: '00000000-0000-0000-0000-000000000007' };
    const christmas = { date: '2024-12-25', time: '19:00', party_size: 2 };
    const other = { checkAlternative: true, alternativeDate: '2024-12-27' };
    const notNow = Object.assign(new Error('Not now'), { code: -32000 });
    return {
        connecting: () => ({
            version,
            server: client.getServerVersion(),
            instructions: client.getInstructions(),
            offers: Object.keys(client.getServerCapabilities()).sort()
        }),
        'listing tools': () => pages('listTools', 'tools', 'name'),
        'listing prompts': () => pages('listPrompts', 'prompts', 'name'),
        'listing resources': () => pages('listResources', 'resources', 'uri'),
        'listing templates': () => pages('listResourceTemplates', 'resourceTemplates', 'uriTemplate'),
        'completing a prompt': () => complete(letter, 'city', 'Ro'),
        'completing a template': () => complete(menu, 'restaurant', 'Tri', { context: { arguments: rome } }),
        'a ping': guest.rootsChanged,
        'structured output': () => guest.structured('add', { a: 2, b: 3 }),
        'a picture': async () => (await guest.raw('badge')).content[1],
        'a tool error': () => call('closed'),
        'an unknown tool': () => guest.refused(() => call('nothing_of_the_kind')),
        'a form': () => call('book', rosa, full),
        'a form of other formats': () => call('appoint', {}, slot),
        'a form of titled choices': () => call('upgrade', {}, { seat: 'w', meals: ['v'] }),
        'a form declined': () => call('book', rosa, 'decline'),
        'a form cancelled': () => call('book', rosa, 'cancel'),
        'a form answered badly': () => call('book', rosa, { guests: 0 }, 'accept', { guests: 1 }),
        'a form refused': () => call('book', rosa, notNow),
        'a page': () => call('sign_in', {}, 'accept'),
        'a page declined': () => call('sign_in', {}, 'decline'),
        'a page cancelled': () => call('sign_in', {}, 'cancel'),
        'a page first': guest.pageFirst,
        sampling: () => call('slogan', rome),
        'sampling with tools': () => call('consult', rome),
        roots: () => call('folders'),
        'three kinds': () => call('prepare', {}, rome),
        'two tasks': () => call('compare', {}, rome, { city: 'Oslo' }),
        'three rounds': () => guest.structured('interview', { lot: own }, rome, { city: 'Oslo' }, { city: 'Riga' }),
        'three rounds declined': () => call('interview', { lot: 'declined' }, rome, 'decline'),
        'side by side': () => guest.cities(20, (_, city) => call('slogan', city)),
        'two clients': guest.twoClients,
        'a declared parameter': () => call('weather', rome, region),
        'a declared parameter declined': () => call('weather', rome, 'decline'),
        'a declared parameter cancelled': () => call('weather', rome, 'cancel'),
        'a declared outcome': () => call('forecast', rome, 'decline'),
        'three parameters': () => call('brief', rome, region),
        'returned questions': () => call('ticket', rome, { sure: true }),
        'returned questions declined': () => call('ticket', rome, 'decline'),
        'a state without questions': () => call('come_back'),
        'all three forms': () => call('journey', rome, region, { guests: 2 }, { sure: true }),
        'an SDK tool elicits': () => call('book_table', christmas, other),
        'an SDK tool is declined': () => call('book_table', christmas, 'decline'),
        'an SDK tool samples': () => call('generate_poem', { topic: 'rain' }),
        'an SDK tool lists roots': () => call('show_roots'),
        'an SDK tool opens a page': () => call('connect_service', {}, 'accept', { name: 'post' }),
        progress: guest.progress,
        'logs of any level': () => guest.logs(),
        'logs of one level': () => guest.logs('info'),
        'logs of no level': () => guest.logs('error'),
        'lists that change': guest.listsChanged,
        'a resource that changes': guest.watching,
        'cancelling a call': guest.cancelling,
        'a plain prompt': () => prompt('greeting', { name: 'Ada' }),
        'a prompt asks': () => prompt('itinerary', rome, { region: 'Trastevere' }),
        'a prompt is declined': () => prompt('itinerary', { city: 'Oslo' }, 'decline'),
        'a prompt declares': () => prompt('letter', rome, region),
        'a plain resource': () => read('desk://hours'),
        'a static resource asks': () => read('desk://diary', { sure: true }),
        'a static resource is cancelled': () => read('desk://diary', 'cancel'),
        'a template resource asks': () => read('desk://menu/Da%20Rosa', rome),
        'a template resource declares': () => read('desk://map/Zürich', { region: 'ZH' }),
        'an unknown resource': () => guest.refused(() => read('desk://nowhere')),
        'a client that cannot answer': guest.silent
    };
}

// A flow that hangs is a flow that failed; the others still have their turn.
async function played(flow, play, person) {
    let timer;
    const late = new Promise((_, reject) => {
        timer = setTimeout(() => reject(new Error('the flow did not end')), limit.timeout);
    });
    const said = await Promise.race([play(), late]).catch(error => void person.amiss.push(String(error)));
    clearTimeout(timer);
    const asked = person.always ? [] : person.asked;
    const amiss = [...person.amiss, ...person.answers];
    process.stdout.write(`${JSON.stringify({ flow, said, asked, amiss })}\n`);
}

async function run(connected, guest, person) {
    for (const [flow, play] of Object.entries(flowsOf(connected, guest))) {
        person.begin();
        await played(flow, play, person);
    }
}

// Those that end a stream in the middle, one by one; then, all at once, those that come back for the rest.
async function broken(guest, person) {
    await played('cancelling a call', guest.cancelling, person);
    person.always = 'decline';
    const letter = () => guest.prompt('letter', { city: 'Rome' });
    await played('an error after a question', () => guest.refused(letter), person);
    person.always = { city: 'Rome' };
    await Promise.all([
        played('cut off before a question', () => guest.call('tell_then_ask'), person),
        played('cut off before the result', guest.progress, person),
        played('sent away', () => guest.call('nap'), person)
    ]);
}

const person = new Person('<>', kind === 'broken' ? { city: 'Rome' } : undefined);
const connected = await connect(person);
const guest = guestOf(connected.client, person);
await (kind === 'broken' ? broken(guest, person) : run(connected, guest, person));
await connected.end();
