// Clients of the official SDK, which know tasks.
import { EventEmitter, once } from 'node:events';
import { installed, serve } from './peer.mjs';

const { Client } = installed('@modelcontextprotocol/sdk/client/index.js');
const { StreamableHTTPClientTransport } = installed('@modelcontextprotocol/sdk/client/streamableHttp.js');
const { CallToolResultSchema, ElicitRequestSchema, TaskStatusNotificationSchema } = installed('@modelcontextprotocol/sdk/types.js');

const clients = [];

/** A command to one of the clients. */
const of = f => ({ client, ...args }) => f(clients[client], args);

serve({
  async connect({ url }) {
    const client = new Client({ name: 'client', version: '1' }, { capabilities: { elicitation: { form: {} } } });
    const c = { client, tasks: client.experimental.tasks, transport: new StreamableHTTPClientTransport(new URL(url)), streams: new Map(), notes: [], heard: new EventEmitter() };
    c.heard.setMaxListeners(0);
    client.setRequestHandler(ElicitRequestSchema, () => ({ action: 'accept', content: { name: 'Ada' } }));
    client.setNotificationHandler(TaskStatusNotificationSchema, ({ params }) => {
      c.notes.push(params);
      c.heard.emit('note');
    });
    await client.connect(c.transport);
    return { client: clients.push(c) - 1, capabilities: client.getServerCapabilities() };
  },
  tools: of(async c => (await c.client.listTools()).tools),
  call: of((c, { name, text }) => c.client.callTool({ name, arguments: { text } })),
  /** Begins the call of a tool as a task, which is the answer. follow waits for the rest. */
  task: of(async (c, { name, text }) => {
    const stream = c.tasks.callToolStream({ name, arguments: { text } }, CallToolResultSchema, { task: { ttl: 60_000 } });
    const { value: first } = await stream.next();
    if (first.type === 'error') throw first.error;
    c.streams.set(first.task.taskId, stream);
    return first.task;
  }),
  /** What the call gives after the task: how that is, any number of times, and in the end the result or an error. */
  follow: of(async (c, { taskId }) => {
    let last;
    for await (last of c.streams.get(taskId));
    if (last.type === 'error') throw last.error;
    return last.result;
  }),
  get: of((c, { taskId }) => c.tasks.getTask(taskId)),
  list: of(async c => (await c.tasks.listTasks()).tasks),
  result: of((c, { taskId }) => c.tasks.getTaskResult(taskId, CallToolResultSchema)),
  cancel: of((c, { taskId }) => c.tasks.cancelTask(taskId)),
  /** Waits for a notification. */
  note: of(async (c, { taskId, status }) => {
    for (;;) {
      const note = c.notes.find(n => n.taskId === taskId && n.status === status);
      if (note) return note;
      await once(c.heard, 'note');
    }
  }),
  /** The notifications about a task until now. */
  notes: of((c, { taskId }) => c.notes.filter(n => n.taskId === taskId)),
  /** Ends the session. */
  end: of(async c => {
    await c.transport.terminateSession();
    await c.client.close();
  }),
});
