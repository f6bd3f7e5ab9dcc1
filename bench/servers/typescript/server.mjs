// The official TypeScript SDK, on the HTTP server of Node: the tool returns what it asks and is called again.
//
//     node server.mjs PORT [--tools N]
//
// As its documentation has it: a server is built for each request and knows nothing of earlier ones, and the guards
// for Host and Origin stand in front. Replies are plain JSON, which is the default for tools that report no progress.

import { createServer } from 'node:http';
import { parseArgs } from 'node:util';

import { localhostHostValidation, localhostOriginValidation, toNodeHandler } from '@modelcontextprotocol/node';
import {
    acceptedContent,
    createMcpHandler,
    createRequestStateCodec,
    inputRequired,
    McpServer
} from '@modelcontextprotocol/server';
import * as z from 'zod';

const { positionals, values } = parseArgs({
    allowPositionals: true,
    options: { tools: { type: 'string', default: '2' } }
});

// The same sealing secret as the other servers; it protects nothing but benchmark traffic.
const state = createRequestStateCodec({
    key: 'a benchmark key of 32 bytes, only',
    bind: ctx => ctx.mcpReq.method
});

const Sum = z.object({ a: z.number().int(), b: z.number().int() });
const City = z.object({ city: z.string() });
const Visitor = z.object({ name: z.string() });
const Total = z.object({ result: z.number().int() });

const text = said => ({ content: [{ type: 'text', text: said }] });

async function add({ a, b }) {
    return { ...text(String(a + b)), structuredContent: { result: a + b } };
}

async function greet({ city }, ctx) {
    const visitor = acceptedContent(ctx.mcpReq.inputResponses, 'visitor', Visitor);
    if (visitor && ctx.mcpReq.requestState()?.asked === city) return text(`Hello ${visitor.name} from ${city}`);
    return inputRequired({
        inputRequests: {
            visitor: inputRequired.elicit({ message: `Who is visiting ${city}?`, requestedSchema: Visitor })
        },
        requestState: await state.mint({ asked: city }, ctx)
    });
}

// `add`, then `greet`, then copies of `add` until the catalogue has as many tools as asked.
function bench() {
    const server = new McpServer({ name: 'bench', version: '1' }, { requestState: { verify: state.verify } });
    const sum = { description: 'Add two integers.', inputSchema: Sum, outputSchema: Total };
    server.registerTool('add', sum, add);
    const tools = Number(values.tools);
    if (tools > 1) server.registerTool('greet', { description: 'Greet a visitor by name.', inputSchema: City }, greet);
    for (let number = 2; number < tools; number++) server.registerTool(`add_${number}`, sum, add);
    return server;
}

const handle = toNodeHandler(createMcpHandler(bench));
const [hostAllowed, originAllowed] = [localhostHostValidation(), localhostOriginValidation()];

createServer((request, response) => {
    if (hostAllowed(request, response) && originAllowed(request, response)) handle(request, response);
}).listen(Number(positionals[0]), '127.0.0.1');
