// A client of the official SDK, which knows tasks of 2025-11-25: node client.mjs PACKAGE.JSON URL TOKEN.
// It runs an eval set as a task that asks a person, follows it to its end, comes back in another session, and prints what it saw.
import { createRequire } from 'node:module';

const [, , installed, url, token] = process.argv;
const require = createRequire(installed);
const { Client } = require('@modelcontextprotocol/sdk/client/index.js');
const { StreamableHTTPClientTransport } = require('@modelcontextprotocol/sdk/client/streamableHttp.js');
const { CallToolResultSchema, ElicitRequestSchema } = require('@modelcontextprotocol/sdk/types.js');

const asked = [];

async function connect() {
  const client = new Client({ name: 'client', version: '1' }, { capabilities: { elicitation: { form: {} } } });
  client.setRequestHandler(ElicitRequestSchema, ({ params }) => {
    asked.push(params.message);
    return { action: 'accept', content: { approved: true } };
  });
  await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers: { Authorization: `Bearer ${token}` } } }));
  return client;
}

const first = await connect();
const tools = (await first.listTools()).tools.map(t => `${t.name} ${t.execution?.taskSupport}`);
const statuses = [];
let taskId, last;
const call = { name: 'run_eval_set', arguments: { evalSet: 'asks' } };
for await (last of first.experimental.tasks.callToolStream(call, CallToolResultSchema, { task: {} })) {
  if (last.type === 'error') throw last.error;
  if (last.task) ({ taskId } = last.task);
  if (last.task && last.task.status !== statuses.at(-1)) statuses.push(last.task.status);
}
await first.close();

const second = await connect();
const { tasks } = second.experimental;
const again = await tasks.getTaskResult(taskId, CallToolResultSchema);
const task = await tasks.getTask(taskId);
const list = (await tasks.listTasks()).tasks.map(t => t.taskId);
const plain = await second.callTool({ name: 'run_eval_set', arguments: { evalSet: 'done' } });
await second.close();
console.log(JSON.stringify({ tools, taskId, statuses, asked, result: last.result.structuredContent, again: again.structuredContent, task, list, plain: plain.structuredContent }));
