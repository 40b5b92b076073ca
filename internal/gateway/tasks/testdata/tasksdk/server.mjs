// Two servers of the official SDK over streamable HTTP with sessions, one with tasks and one that knows nothing of them. Every tool is called with a
// text, which is its result and by which it is commanded.
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { installed, serve } from './peer.mjs';

const { McpServer } = installed('@modelcontextprotocol/sdk/server/mcp.js');
const { StreamableHTTPServerTransport } = installed('@modelcontextprotocol/sdk/server/streamableHttp.js');
const { InMemoryTaskStore, InMemoryTaskMessageQueue } = installed('@modelcontextprotocol/sdk/experimental/tasks');
const { ElicitResultSchema, McpError } = installed('@modelcontextprotocol/sdk/types.js');
const { z } = installed('zod');

const calls = new Map(); // by their texts

function called(text) {
  if (!calls.has(text)) {
    const gate = () => Promise.withResolvers();
    calls.set(text, { text, params: [], runs: 0, tasks: [], began: gate(), released: gate(), cancelled: gate() });
  }
  return calls.get(text);
}

const content = text => ({ content: [{ type: 'text', text }] });

class Store extends InMemoryTaskStore {
  calls = new Map(); // by the ids of their tasks

  async updateTaskStatus(id, status, ...rest) {
    await super.updateTaskStatus(id, status, ...rest);
    if (status === 'cancelled') this.calls.get(id).cancelled.resolve();
  }

  async getTaskResult(id, session) {
    const result = await super.getTaskResult(id, session);
    if (result.broken) throw new McpError(-32050, 'upstream result failure', { text: this.calls.get(id).text });
    return result;
  }
}

const store = new Store();

function withTasks() {
  const server = new McpServer(
    { name: 'tasks', version: '1' },
    { capabilities: { tasks: { list: {}, cancel: {}, requests: { tools: { call: {} } } } }, taskStore: store, taskMessageQueue: new InMemoryTaskMessageQueue() },
  );
  const tool = (name, taskSupport, run) => {
    server.experimental.tasks.registerToolTask(name, { inputSchema: { text: z.string() }, execution: { taskSupport } }, {
      async createTask({ text }, extra) {
        const task = await extra.taskStore.createTask({ ttl: extra.taskRequestedTtl, pollInterval: 20 });
        const c = called(text);
        c.runs++;
        c.tasks.push(task.taskId);
        store.calls.set(task.taskId, c);
        const ended = run(c, task.taskId, extra);
        if (name === 'quick') await ended; // before anybody knows of the task
        return { task };
      },
      getTask: (_, extra) => extra.taskStore.getTask(extra.taskId),
      getTaskResult: (_, extra) => extra.taskStore.getTaskResult(extra.taskId),
    });
  };
  const released = async (c, id, extra) => {
    c.began.resolve();
    await c.released.promise;
    await extra.taskStore.storeTaskResult(id, 'completed', content(c.text));
  };
  tool('required', 'required', released);
  tool('optional', 'optional', released);
  tool('quick', 'optional', (c, id, extra) => extra.taskStore.storeTaskResult(id, 'completed', content(c.text)));
  tool('failing', 'required', (c, id, extra) => extra.taskStore.storeTaskResult(id, 'failed', { ...content(c.text), isError: true }));
  tool('broken', 'required', (c, id, extra) => extra.taskStore.storeTaskResult(id, 'completed', { ...content(c.text), broken: true }));
  tool('asking', 'required', async (c, id, extra) => {
    const question = { message: c.text, requestedSchema: { type: 'object', properties: { name: { type: 'string' } } } };
    const answer = await extra.sendRequest({ method: 'elicitation/create', params: question }, ElicitResultSchema, { relatedTask: { taskId: id } });
    await extra.taskStore.updateTaskStatus(id, 'working');
    await extra.taskStore.storeTaskResult(id, 'completed', content(`${answer.action}: ${answer.content?.name}`));
  });
  server.registerTool('echo', { inputSchema: { text: z.string() } }, ({ text }) => content(text));
  return server;
}

function withoutTasks() {
  const server = new McpServer({ name: 'plain', version: '1' });
  const tool = (name, run) =>
    server.registerTool(name, { inputSchema: { text: z.string() } }, ({ text }, extra) => {
      const c = called(text);
      c.runs++;
      return run(c, extra);
    });
  tool('slow', async (c, { signal }) => {
    signal.addEventListener('abort', () => c.cancelled.resolve());
    c.began.resolve();
    await Promise.race([c.released.promise, c.cancelled.promise]);
    return content(c.text);
  });
  tool('failing', c => {
    throw new Error(c.text);
  });
  return server;
}

const servers = { '/tasks': withTasks, '/plain': withoutTasks };
const sessions = new Map();

const http = createServer(async (request, response) => {
  let transport = sessions.get(request.headers['mcp-session-id']);
  if (!transport) {
    transport = new StreamableHTTPServerTransport({ sessionIdGenerator: randomUUID, onsessioninitialized: id => sessions.set(id, transport) });
    transport.onmessage = m => {
      if (m.method === 'tools/call') called(m.params.arguments.text).params.push(m.params);
    };
    await servers[request.url]().connect(transport);
  }
  await transport.handleRequest(request, response);
});

serve({
  listen: () => new Promise(resolve => http.listen(0, '127.0.0.1', () => resolve(`http://127.0.0.1:${http.address().port}`))),
  /** Lets a tool end that waits for that. */
  release: ({ text }) => called(text).released.resolve(),
  /** Waits until a call has begun, or is cancelled. */
  until: ({ text, is }) => called(text)[is].promise,
  /** What came over the wire for a call, how often its tool was run, and its tasks. */
  seen({ text }) {
    const { params, runs, tasks } = called(text);
    return { params, runs, tasks };
  },
});
