// The same inn, served by the official TypeScript SDK 1.32.2: `node inn.mjs stdio`, or `node inn.mjs http PORT`.
// Its tools ask with the request that they belong to, except `folders`, which asks beside its stream.

import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import {
  CreateMessageResultSchema,
  ElicitResultSchema,
  UrlElicitationRequiredError,
} from '@modelcontextprotocol/sdk/types.js';
import { z } from 'zod';

const RETRY = 50;
let cancelled = 0;
let isMember = false;
const text = (said) => ({ content: [{ type: 'text', text: said }] });
const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

class Memory {
  events = [];

  async storeEvent(streamId, message) {
    this.events.push({ streamId, message });
    return String(this.events.length);
  }

  async getStreamIdForEventId(eventId) {
    return this.events[Number(eventId) - 1]?.streamId;
  }

  async replayEventsAfter(lastEventId, { send }) {
    const { streamId } = this.events[Number(lastEventId) - 1];
    for (let index = Number(lastEventId); index < this.events.length; index++) {
      const event = this.events[index];
      if (event.streamId === streamId && Object.keys(event.message ?? {}).length > 0) {
        await send(String(index + 1), event.message);
      }
    }
    return streamId;
  }
}

function inn() {
  const server = new McpServer({ name: 'inn', version: '1.0.0' }, { capabilities: { logging: {} } });

  server.registerTool('book', { inputSchema: { room: z.string() } }, async ({ room }, extra) => {
    const requestedSchema = {
      type: 'object',
      properties: { guests: { type: 'integer' }, breakfast: { type: 'boolean', default: true } },
      required: ['guests'],
    };
    const params = { message: `How many in the ${room}?`, requestedSchema };
    const answer = await extra.sendRequest({ method: 'elicitation/create', params }, ElicitResultSchema);
    if (answer.action !== 'accept') return text(answer.action);
    return text(`${room}: ${answer.content.guests}, ${answer.content.breakfast ? 'True' : 'False'}`);
  });

  server.registerTool('enter', {}, async (extra) => {
    const params = { mode: 'url', message: 'Please sign in', url: 'https://inn.example/door', elicitationId: 'door-1' };
    return text((await extra.sendRequest({ method: 'elicitation/create', params }, ElicitResultSchema)).action);
  });

  server.registerTool('library', {}, async () => {
    isMember = !isMember;
    if (!isMember) return text('A quiet room');
    const page = { mode: 'url', message: 'Join first', url: 'https://inn.example/join', elicitationId: 'join-1' };
    throw new UrlElicitationRequiredError([page]);
  });

  server.registerTool('tale', { inputSchema: { topic: z.string() } }, async ({ topic }, extra) => {
    const messages = [{ role: 'user', content: { type: 'text', text: topic } }];
    const request = { method: 'sampling/createMessage', params: { messages, maxTokens: 20 } };
    return text((await extra.sendRequest(request, CreateMessageResultSchema)).content.text);
  });

  server.registerTool('folders', {}, async () => {
    const { roots } = await server.server.listRoots();
    return text(roots.map((root) => `${root.name} at ${root.uri}`).join(', '));
  });

  server.registerTool('stairs', { inputSchema: { steps: z.number() } }, async ({ steps }, extra) => {
    for (let step = 1; step <= steps; step++) {
      const progressToken = extra._meta?.progressToken;
      if (progressToken !== undefined) {
        const params = { progressToken, progress: step, total: steps, message: `step ${step}` };
        await extra.sendNotification({ method: 'notifications/progress', params });
      }
      const params = { level: 'warning', data: `creak ${step}` };
      await extra.sendNotification({ method: 'notifications/message', params });
    }
    return text('upstairs');
  });

  server.registerTool('sleep', {}, async (extra) => {
    extra.signal.addEventListener('abort', () => cancelled++);
    const params = { progressToken: extra._meta?.progressToken, progress: 1 };
    await extra.sendNotification({ method: 'notifications/progress', params });
    await pause(30000);
    return text('slept');
  });

  server.registerTool('woken', {}, async () => text(String(cancelled)));

  server.registerTool('nap', {}, async (extra) => {
    extra.closeSSEStream?.();
    await pause(200);
    return text('rested');
  });

  server.registerResource('menu', 'inn://menu', {}, async (uri) => ({ contents: [{ uri: uri.href, text: 'Soup' }] }));
  return server;
}

async function body(request) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  return chunks.length ? JSON.parse(Buffer.concat(chunks).toString()) : undefined;
}

if (process.argv[2] === 'stdio') {
  await inn().connect(new StdioServerTransport());
} else {
  const sessions = new Map();
  createServer(async (request, response) => {
    const message = request.method === 'POST' ? await body(request) : undefined;
    let transport = sessions.get(request.headers['mcp-session-id']);
    if (transport === undefined && message?.method === 'initialize') {
      transport = new StreamableHTTPServerTransport({
        sessionIdGenerator: randomUUID,
        eventStore: new Memory(),
        retryInterval: RETRY,
        onsessioninitialized: (id) => sessions.set(id, transport),
      });
      transport.onclose = () => sessions.delete(transport.sessionId);
      await inn().connect(transport);
    }
    if (transport === undefined) {
      const status = request.headers['mcp-session-id'] ? 404 : 400;
      response.writeHead(status, { 'content-type': 'application/json' });
      const error = { code: -32000, message: 'Bad Request: no valid session' };
      response.end(JSON.stringify({ jsonrpc: '2.0', id: null, error }));
      return;
    }
    await transport.handleRequest(request, response, message);
  }).listen(Number(process.argv[3]), '127.0.0.1');
}
