// evalrun's side in Node: agents that are functions, graphs of LangGraph.js and agents of the AI SDK, kept
// for one segment after another. It needs Node 20 or later and no packages.
//
//     evalrun run --agent agent.ts:main evalset.json        nothing is to be imported: evalrun runs this file
//     import { serve } from "evalrun"; serve(main)          a program of one's own, with "keep": true
//
// docs/python.md has the protocol: one JSON object a line, one segment at a time.

import fs from "node:fs";
import { createRequire } from "node:module";
import net from "node:net";
import path from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

/** An error of which evalrun knows the code. */
export class AgentError extends Error {
  constructor(code, message) {
    super(message);
    this.name = "AgentError";
    this.code = code;
  }
}

/** Ends a segment that waits for an answer. It is thrown by suspend and is not to be swallowed. */
export class Suspended extends Error {
  constructor(ids) {
    super(`the agent waits for ${ids.join(", ")}`);
    this.name = "Suspended";
  }
}

// ---- The way to evalrun and back

const nonce = process.env.EVALRUN_NONCE;
delete process.env.EVALRUN_NONCE;
const said = { out: process.stdout.write, err: process.stderr.write }; // before an agent replaces them
let channel = nonce ? open() : undefined;
let busy; // what answers the segment that is being done

// open puts the streams to evalrun aside: from here on stdin is empty, and whatever is printed, by
// whomever, goes to stderr. Node cannot duplicate descriptors, but it can open them again.
function open() {
  const input = fs.openSync("/dev/fd/0", "r"), output = fs.openSync("/dev/fd/1", "a");
  fs.closeSync(0);
  const nothing = fs.openSync("/dev/null", "r");
  fs.closeSync(1);
  const errors = fs.openSync("/dev/fd/2", "a");
  if (nothing !== 0 || errors !== 1) throw new Error(`descriptors ${nothing} and ${errors} in place of 0 and 1`);
  return { input, output };
}

function write(fd, text) {
  for (let rest = Buffer.from(text); rest.length > 0; ) {
    try {
      rest = rest.subarray(fs.writeSync(fd, rest));
    } catch (error) {
      if (error.code !== "EAGAIN") throw error; // evalrun reads, so there will be room
    }
  }
}

const send = (document) => write(channel.output, JSON.stringify(document) + "\n");

function mark(kind, id) {
  try {
    write(2, `\n\x1e${nonce} ${kind} ${id}\n`);
  } catch {
    // the agent has closed it
  }
}

// flushed waits until what was printed has left the process.
async function flushed() {
  for (const [stream, print] of [[process.stdout, said.out], [process.stderr, said.err]]) {
    if (stream.writableLength > 0) await new Promise((done) => print.call(stream, "", done));
  }
}

// requests gives the requests one by one; undefined when evalrun has closed its end.
function requests() {
  const socket = new net.Socket({ fd: channel.input, readable: true, writable: false });
  const lines = [];
  let parts = [], take;
  const give = (line) => (take ? take(line) : lines.push(line), (take = undefined));
  socket.on("data", (chunk) => {
    for (let at; (at = chunk.indexOf(10)) >= 0; chunk = chunk.subarray(at + 1)) {
      give(JSON.parse(Buffer.concat([...parts, chunk.subarray(0, at)]).toString()));
      parts = [];
    }
    if (chunk.length > 0) parts.push(chunk);
  });
  socket.on("end", () => (busy ? leave(0) : give(undefined)));
  socket.on("error", () => leave(1));
  const next = () => (lines.length > 0 ? lines.shift() : new Promise((resolve) => (take = resolve)));
  return { next, socket };
}

// ---- Segments, one after the other

async function follow(segment) {
  const home = process.cwd(), env = { ...process.env };
  let timers = active();
  const { next, socket } = requests();
  for (let message; (message = await next()) && message.op !== "exit"; ) {
    process.chdir(home);
    const wanted = { ...env, ...message.env };
    for (const name of Object.keys(process.env)) if (!(name in wanted)) delete process.env[name];
    Object.assign(process.env, wanted);
    const wall = performance.now(), cpu = process.cpuUsage();
    const stats = () => {
      const used = process.cpuUsage(cpu), dirty = [], left = active();
      if (left > timers) dirty.push(`timers:+${left - timers}`);
      timers = left;
      if (cwd() !== home) dirty.push("cwd");
      return { wallMs: round(performance.now() - wall), cpuMs: round((used.user + used.system) / 1000), rssKb: rss(), dirty };
    };
    mark("begin", message.id);
    if (message.op !== undefined && message.op !== "segment") {
      mark("end", message.id);
      send({ id: message.id, error: { code: "exception", type: "Error", message: `this worker does not know ${message.op}` } });
      continue;
    }
    const answer = await new Promise((resolve) => {
      busy = { id: message.id, stats, resolve };
      socket.unref(); // an agent with nothing left to wait for is noticed: see beforeExit
      segment(message).then((output) => resolve({ output }), (error) => resolve(failed(error)));
    });
    socket.ref();
    await flushed();
    busy = undefined;
    mark("end", message.id);
    send({ id: message.id, ...answer, stats: stats() });
    if (answer.leave) leave(1);
  }
  await flushed();
  leave(0);
}

const round = (ms) => Math.round(ms * 10) / 10;
const rss = () => Math.round(process.memoryUsage.rss() / 1024);
const active = () => process.getActiveResourcesInfo().filter((name) => name === "Timeout" || name === "Immediate").length;

function cwd() {
  try {
    return process.cwd();
  } catch {
    return ""; // the folder is gone
  }
}

function failed(error) {
  print(error);
  return { error: describe(error) };
}

// print prints an error, with what it says at the end, as the end of a log is read first.
function print(error) {
  let shown = error instanceof Error ? String(error.stack) : `the agent threw ${text(error)}`;
  const at = shown.indexOf("\n    at ");
  if (at >= 0) shown = (error instanceof AgentError ? "" : shown.slice(at + 1) + "\n") + shown.slice(0, at);
  said.err.call(process.stderr, shown + "\n");
}

function describe(error) {
  if (!(error instanceof Error)) return { code: "exception", type: typeof error, message: text(error) };
  const code = error instanceof AgentError ? error.code : "exception";
  return { code, type: error.name || "Error", message: String(error.message).slice(0, 4000) };
}

// text is what somebody has thrown that is no error.
function text(value) {
  try {
    return (typeof value === "string" ? value : JSON.stringify(value) ?? String(value)).slice(0, 4000);
  } catch {
    return Object.prototype.toString.call(value);
  }
}

// leave ends the process without what agents do at its end: timers and connections that they have left do not keep it.
function leave(code) {
  process.removeAllListeners("exit");
  process.exit(code);
}

// watch answers for an agent that cannot: one that ends the process, throws where nobody catches, or has
// nothing left that could settle its promise.
function watch() {
  process.on("exit", (code) => {
    if (!busy) return;
    mark("end", busy.id);
    const error = { code: "exit", type: "process.exit", message: `with the code ${code}` };
    send({ id: busy.id, error, stats: busy.stats() });
  });
  process.on("beforeExit", () => {
    const error = new Error("its promise will never settle: the agent has nothing left to wait for");
    if (busy) busy.resolve(failed(error));
  });
  process.on("uncaughtException", (error) => {
    print(error);
    if (!busy) return leave(1); // it is of a segment that is over: the next one gets another process
    busy.resolve({ error: describe(error), leave: true });
  });
  for (const stream of [process.stdout, process.stderr]) stream.on("error", () => {}); // the agent has closed it
}

// ---- What an agent is given

const ANSWERS = "evalrun-answers.json";

class Context {
  #answers = {};
  #asked = new Map();
  #message;

  constructor(message) {
    this.#message = message;
    for (const key of ["resume", "deliveries", "rolloutId", "threadId", "workspace", "traceFile"]) this[key] = message[key];
  }

  /** Takes the answers of this segment and of those before it. */
  remember() {
    if (this.resume) this.#answers = { ...kept(this.#message, ANSWERS), ...this.resume };
    return this;
  }

  /** Returns the answer to a question; without one, the segment ends, and the rollout waits. */
  async suspend(id, value) {
    if (Object.hasOwn(this.#answers, id)) return this.#answers[id];
    this.#asked.set(id, { id, value: plain(value) });
    throw new Suspended([id]);
  }

  /** Records a call of a tool, for evaluators of tool calls. */
  toolCall({ name, input, output, id, error }) {
    const attributes = { "tool.name": name, "input.value": JSON.stringify(plain(input ?? {})) };
    if (error === undefined) attributes["output.value"] = JSON.stringify({ content: plain(output) });
    else attributes.error = text(error instanceof Error ? error.message : error);
    if (id) attributes["tool_call.id"] = id;
    this.span(name, attributes);
  }

  /** Records the tokens of a call of a model. */
  usage({ model, inputTokens, cachedInputTokens, outputTokens }) {
    const counts = { input_tokens: inputTokens, "cache_read.input_tokens": cachedInputTokens, output_tokens: outputTokens };
    const attributes = {};
    for (const [key, count] of Object.entries(counts)) if (count !== undefined) attributes["gen_ai.usage." + key] = count;
    if (Object.keys(attributes).length === 0) return;
    if (model) attributes["gen_ai.request.model"] = model;
    this.span(model ? `chat ${model}` : "chat", attributes);
  }

  /** Appends a span to the trace of the segment. */
  span(name, attributes) {
    if (!this.traceFile) return;
    const id = Buffer.from(crypto.getRandomValues(new Uint8Array(8))).toString("hex");
    const context = { trace_id: this.rolloutId.replaceAll("-", ""), span_id: id };
    fs.appendFileSync(this.traceFile, JSON.stringify({ name, context, attributes }) + "\n");
  }

  /** The document of a segment that waits; undefined if nothing was asked. */
  interrupts() {
    if (this.#asked.size === 0) return undefined;
    keep(this.#message, ANSWERS, this.#answers);
    return { __interrupt__: [...this.#asked.values()] };
  }
}

function keep(message, name, value) {
  const file = path.join(message.workspace, name), out = fs.openSync(file + ".tmp", "w", 0o600);
  try {
    fs.writeFileSync(out, JSON.stringify(value));
    fs.fsyncSync(out);
  } finally {
    fs.closeSync(out);
  }
  fs.renameSync(file + ".tmp", file);
}

function kept(message, name) {
  const file = path.join(message.workspace, name);
  try {
    return JSON.parse(fs.readFileSync(file, "utf8"));
  } catch (error) {
    if (error.code === "ENOENT") throw new AgentError("unresumable", `there is no state of the agent in the workspace (${file})`);
    throw new AgentError("unresumable", `the state of the agent cannot be read (${file}): ${error.message}`);
  }
}

// ---- JSON's values of whatever an agent returns

const MAX_DEPTH = 100;

function plain(value, depth = 0, at = "the output") {
  if (depth > MAX_DEPTH) throw new AgentError("too-deep", `the output nests deeper than ${MAX_DEPTH} levels, or in itself`);
  const refused = (what) => new AgentError("invalid-output", `${at} is ${what}, which cannot be written as JSON`);
  const members = (object) => Object.fromEntries(Object.entries(object)
    .filter(([, member]) => member !== undefined && typeof member !== "function")
    .map(([key, member]) => [key, plain(member, depth + 1, `${at}.${key}`)]));
  switch (typeof value) {
    case "string":
    case "boolean":
      return value;
    case "number":
      if (!Number.isFinite(value)) throw refused(String(value));
      return value;
    case "undefined":
      return null;
    case "bigint":
      throw refused(`the BigInt ${value}`);
    case "function":
    case "symbol":
      throw refused(`a ${typeof value}`);
  }
  if (value === null) return null;
  if (isMessage(value)) return members(message(value));
  if (ArrayBuffer.isView(value)) return Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString("base64");
  if (typeof value.toJSON === "function") return plain(value.toJSON(), depth + 1, at);
  if (value instanceof Error) return { name: value.name, message: value.message };
  if (Array.isArray(value) || value instanceof Set) return [...value].map((one, i) => plain(one, depth + 1, `${at}[${i}]`));
  return members(value instanceof Map ? Object.fromEntries(value) : value);
}

// ---- Kinds of agents: each makes the output of a segment of its message

// ofFunction is for agents that are functions of the input and of a context.
function ofFunction(agent) {
  return async (message) => {
    const context = new Context(message).remember();
    try {
      const output = await collected(await agent(message.input, context));
      return context.interrupts() ?? plain(output);
    } catch (error) {
      const waits = causes(error).some((one) => one instanceof Suspended) && context.interrupts();
      if (waits) return waits;
      throw error;
    }
  };
}

// collected is a list for a generator.
async function collected(output) {
  if (typeof output?.next !== "function" || typeof output[Symbol.asyncIterator] !== "function" && typeof output[Symbol.iterator] !== "function") return output;
  const all = [];
  for await (const one of output) all.push(one);
  return all;
}

function causes(error) {
  const all = [];
  for (let one = error; one && all.length < 20; one = one.cause) all.push(one);
  return all;
}

const PROMPTS = ["messages", "input", "prompt", "query", "question"];

// prompt is what the user says: a text, or a list of messages.
function prompt(given) {
  let value = given;
  if (given !== null && typeof given === "object" && !Array.isArray(given)) {
    const keys = Object.keys(given);
    if (keys.length === 1 && PROMPTS.includes(keys[0])) value = given[keys[0]];
  }
  if (typeof value === "string" || Array.isArray(value) && value.length > 0 && value.every((one) => one?.role)) return value;
  return JSON.stringify(value);
}

function known(answers, waits) {
  for (const id of Object.keys(answers)) {
    if (!waits.includes(id)) throw new AgentError("unresumable", `the agent does not wait for ${id}; it waits for ${waits.join(", ") || "nothing"}`);
  }
}

// ---- LangGraph.js

const CHECKPOINT = "langgraph.json", BREAKPOINT = "breakpoint:";

const isGraph = (value) => value?.lg_is_pregel === true;

// ofGraph runs a graph. It gets a checkpointer of ours, whatever it has: what LangGraph needs to go on is kept in the
// workspace, and written when the segment ends in a suspension.
async function ofGraph(graph, entry) {
  const { MemorySaver, Command } = await library("@langchain/langgraph", entry);
  return async (message) => {
    const saver = new MemorySaver(), resume = message.resume;
    if (resume) restore(saver, kept(message, CHECKPOINT));
    const copy = new graph.constructor({ ...graph, checkpointer: saver });
    const config = { configurable: { thread_id: message.threadId }, callbacks: [spans(new Context(message))] };
    const step = resume ? answered(await copy.getState(config), resume, Command) : first(copy, message.input);
    const output = await copy.invoke(step, config);
    const state = await copy.getState(config), waits = pending(state);
    if (waits.length === 0 && state.next.length === 0) return finished(plain(output));
    keep(message, CHECKPOINT, saved(saver));
    if (waits.length > 0) return { __interrupt__: waits };
    const nodes = state.next.join(",");
    return { __interrupt__: [{ id: BREAKPOINT + nodes, value: { breakpoint: nodes } }] };
  };
}

// first is the input. A graph of messages may be given a text, alone or under a name that it has no channel for.
function first(graph, given) {
  if (!graph.channels?.messages) return given;
  let value = given;
  if (given !== null && typeof given === "object" && Object.keys(given).length === 1) {
    const [key] = Object.keys(given);
    value = PROMPTS.includes(key) && !graph.channels[key] ? given[key] : undefined;
  }
  return typeof value === "string" ? { messages: [{ role: "user", content: value }] } : given;
}

function pending(state) {
  return state.tasks.flatMap((task) => (task.result ? [] : task.interrupts))
    .map(({ id, value }) => ({ id, value: plain(value) }));
}

function answered(state, resume, Command) {
  const answers = Object.fromEntries(Object.entries(resume).filter(([id]) => !id.startsWith(BREAKPOINT)));
  if (Object.keys(answers).length === 0) return null;
  known(answers, pending(state).map(({ id }) => id));
  return new Command({ resume: answers });
}

// finished adds the text of the last answer to a conversation.
function finished(output) {
  const last = Array.isArray(output?.messages) ? output.messages.at(-1) : undefined;
  if (last?.type !== "ai" || "result" in output) return output;
  const texts = Array.isArray(last.content) ? last.content.filter((part) => part.type === "text").map((part) => part.text) : [last.content];
  return { ...output, result: texts.join("") };
}

const saved = (saver) => JSON.parse(JSON.stringify({ storage: saver.storage, writes: saver.writes }, bytes));

// bytes writes what LangGraph has serialised.
function bytes(key, value) {
  return value instanceof Uint8Array ? { base64: Buffer.from(value).toString("base64") } : value;
}

function restore(saver, held) {
  const text = JSON.stringify(held);
  const { storage, writes } = JSON.parse(text, (key, value) => (typeof value?.base64 === "string" ? new Uint8Array(Buffer.from(value.base64, "base64")) : value));
  Object.assign(saver.storage, storage);
  Object.assign(saver.writes, writes);
}

const isMessage = (value) => typeof value._getType === "function" && "content" in value;

// message is a message of LangChain, without the members that say nothing.
function message(one) {
  const all = { type: one._getType(), content: one.content, name: one.name, id: one.id, tool_calls: one.tool_calls,
    tool_call_id: one.tool_call_id, status: one.status, usage_metadata: one.usage_metadata };
  const says = ([key, value]) => key === "content" || value !== undefined && value !== null && !(Array.isArray(value) && value.length === 0);
  return Object.fromEntries(Object.entries(all).filter(says));
}

// spans are LangChain's callbacks of a segment: calls of tools, and what models have used.
function spans(context) {
  const open = new Map();
  const close = (run, rest) => {
    if (open.has(run)) context.toolCall({ ...open.get(run), ...rest });
    open.delete(run);
  };
  return {
    name: "evalrun",
    awaitHandlers: true,
    handleToolStart(tool, input, run, parent, tags, metadata, name, id) {
      open.set(run, { name: name ?? tool?.name ?? "tool", input: json(input), id });
    },
    handleToolEnd(output, run) {
      close(run, { output: output?.content ?? output, id: output?.tool_call_id ?? open.get(run)?.id });
    },
    handleToolError(error, run) {
      if (error?.name?.endsWith("Interrupt")) open.delete(run); // it waits: it has not failed
      else close(run, { error });
    },
    handleLLMEnd(result) {
      const answer = result.generations?.[0]?.[0]?.message, about = { ...result.llmOutput, ...answer?.response_metadata };
      const used = answer?.usage_metadata;
      context.usage({
        model: about.model_name ?? about.model,
        inputTokens: used?.input_tokens ?? about.tokenUsage?.promptTokens,
        cachedInputTokens: used?.input_token_details?.cache_read,
        outputTokens: used?.output_tokens ?? about.tokenUsage?.completionTokens,
      });
    },
  };
}

// json is the arguments of a call, which models write as JSON.
function json(given) {
  try {
    return typeof given === "string" ? JSON.parse(given) : given;
  } catch {
    return given;
  }
}

// ---- The AI SDK

const MESSAGES = "ai-sdk.json";

const isAgent = (value) => typeof value?.generate === "function" && typeof value.version === "string" && value.version.startsWith("agent-");

// ofAgent runs an agent of the AI SDK. Calls of tools that need approval ask a person. It goes on when all are answered.
function ofAgent(agent) {
  return async (message) => {
    const context = new Context(message);
    let messages = prompt(message.input);
    if (typeof messages === "string") messages = [{ role: "user", content: messages }];
    if (message.resume) {
      const held = kept(message, MESSAGES);
      known(message.resume, held.waits.map(({ id }) => id));
      held.answers = { ...held.answers, ...message.resume };
      const left = held.waits.filter(({ id }) => !(id in held.answers));
      const approvals = held.waits.filter(({ id }) => id in held.answers).map(({ id, approvalId }) => decided(id, approvalId, held.answers[id]));
      if (left.length > 0) return keep(message, MESSAGES, held), asked(left);
      messages = [...held.messages, { role: "tool", content: approvals }];
    }
    const result = await agent.generate({ messages });
    for (const step of result.steps) {
      const used = step.usage;
      context.usage({ model: step.response?.modelId, inputTokens: used.inputTokens, outputTokens: used.outputTokens,
        cachedInputTokens: used.inputTokenDetails?.cacheReadTokens ?? used.cachedInputTokens });
    }
    const added = result.responseMessages ?? result.response.messages, all = [...messages, ...added];
    record(added, all, context);
    const waits = result.content.filter((part) => part.type === "tool-approval-request" && !part.isAutomatic)
      .map(({ approvalId, toolCall }) => ({ id: toolCall.toolCallId, approvalId, tool: toolCall.toolName, arguments: toolCall.input }));
    if (waits.length > 0) return keep(message, MESSAGES, { messages: all, waits, answers: {} }), asked(waits);
    const output = structured(result);
    return output !== null && typeof output === "object" ? plain(output) : { result: output, messages: plain(all) };
  };
}

// structured is the output of an agent that declares one; of others it is the text.
function structured(result) {
  try {
    return result.output ?? result.text;
  } catch {
    return result.text; // there is none
  }
}

const asked = (waits) => ({ __interrupt__: waits.map(({ id, tool, arguments: given }) => (
  { id, value: { title: `Approve ${tool}?`, data: { tool, arguments: plain(given) } } })) });

function decided(id, approvalId, answer) {
  let approved = answer, reason;
  if (answer !== null && typeof answer === "object") {
    approved = "error" in answer ? false : answer.approved;
    reason = answer.message ?? answer.reason ?? (answer.error && JSON.stringify(answer.error));
  }
  if (typeof approved === "boolean") return { type: "tool-approval-response", approvalId, approved, ...(reason && { reason }) };
  throw new AgentError("unresumable", `the answer to ${id} is neither true, nor false, nor {"approved": …}: ${JSON.stringify(answer).slice(0, 200)}`);
}

// record writes the calls that have results; one that a person has denied was not made.
function record(added, all, context) {
  const parts = (messages) => messages.flatMap(({ content }) => (Array.isArray(content) ? content : []));
  const calls = new Map(parts(all).filter(({ type }) => type === "tool-call").map((call) => [call.toolCallId, call]));
  for (const { type, toolCallId, toolName, output } of parts(added)) {
    if (type !== "tool-result" || output?.type === "execution-denied") continue;
    const result = output?.type?.startsWith("error") ? { error: output.value } : { output: output?.value };
    context.toolCall({ name: toolName, id: toolCallId, input: json(calls.get(toolCallId)?.input), ...result });
  }
}

// ---- Where an agent is

async function load(entrypoint) {
  const project = process.cwd();
  let place = entrypoint, makes = false;
  if (!entrypoint.includes(":")) {
    const graphs = JSON.parse(fs.readFileSync("langgraph.json", "utf8")).graphs ?? {};
    if (!Object.hasOwn(graphs, entrypoint)) throw new AgentError("start", `langgraph.json has no graph "${entrypoint}"; it has ${Object.keys(graphs).join(", ") || "none"}`);
    place = graphs[entrypoint].path ?? graphs[entrypoint];
    makes = true; // a function there makes a graph
  }
  const at = place.lastIndexOf(":"), file = path.resolve(project, place.slice(0, at)), name = place.slice(at + 1);
  if (!fs.existsSync(file)) throw new AgentError("start", `there is no file ${place.slice(0, at)}`);
  if (/\.[cm]?ts$/.test(file)) await readTypeScript(file);
  const module = await import(pathToFileURL(file).href);
  let found = module;
  for (const part of name.split(".")) {
    found = found?.[part] ?? (found === module ? module.default?.[part] : undefined);
    if (found === undefined) {
      const names = Object.keys({ ...module.default, ...module }).filter((key) => key !== "default" && key !== "module.exports");
      throw new AgentError("start", `${place.slice(0, at)} exports no "${name}"; it exports ${names.join(", ") || "nothing"}`);
    }
  }
  if (makes && typeof found === "function") found = await found({ configurable: {} });
  return agentOf(found, place, file);
}

// agentOf says how a value is run.
async function agentOf(found, place, file) {
  if (isGraph(found?.graph)) found = found.graph; // what createAgent of LangChain returns
  if (!isGraph(found) && typeof found?.compile === "function" && typeof found.addNode === "function") found = found.compile();
  if (isGraph(found)) return ofGraph(found, file);
  if (isAgent(found)) return ofAgent(found);
  if (typeof found === "function") return ofFunction(found);
  throw new AgentError("start", `${place} is neither a function, nor a graph of LangGraph, nor an agent of the AI SDK`);
}

// readTypeScript makes Node read TypeScript: by the project's own tsx if it has it, else by itself.
async function readTypeScript(file) {
  let tsx;
  try {
    tsx = createRequire(file).resolve("tsx/esm/api");
  } catch {
    if (process.features.typescript) return;
    throw new AgentError("start", `Node ${process.version} reads no TypeScript by itself: use Node 22.18 or later, or npm install --save-dev tsx`);
  }
  (await import(pathToFileURL(tsx).href)).register();
}

// library is a package of the project, as the file with the agent has loaded it: packages for both kinds of modules are
// there twice, and only one of them knows the agent's objects.
async function library(name, file) {
  const require = createRequire(file), common = require.resolve(name);
  if (require.cache[common]) return require(name);
  for (let folder = path.dirname(common); ; folder = path.dirname(folder)) {
    const about = path.join(folder, "package.json");
    if (fs.existsSync(about)) {
      const { exports, module } = JSON.parse(fs.readFileSync(about, "utf8"));
      let place = exports?.["."]?.import ?? exports?.import ?? module;
      if (typeof place === "object") place = place.default ?? place.node;
      if (place) return import(pathToFileURL(path.join(folder, place)).href);
    }
    if (folder === path.dirname(folder)) return import(pathToFileURL(common).href);
  }
}

// ---- Starts

async function greet(agent) {
  const greeting = { evalrun: 1, nonce, pid: process.pid, kind: "node", node: process.version, marks: true };
  const begun = performance.now();
  let segment;
  try {
    segment = await agent();
  } catch (error) {
    if (!(error instanceof AgentError)) print(error);
    await flushed();
    const { type, message } = describe(error);
    send({ ...greeting, error: { code: "start", type, message: cannotLoad(error, message) } });
    leave(3);
  }
  watch();
  send({ ...greeting, loadMs: Math.round(performance.now() - begun), rssKb: rss() });
  await follow(segment);
}

function cannotLoad(error, message) {
  if (error?.code === "ERR_MODULE_NOT_FOUND" || error?.code === "MODULE_NOT_FOUND") {
    message += `; install the project's packages: ${install()}`;
  } else if (!(error instanceof AgentError)) message = `${error?.name ?? "Error"}: ${message}`;
  return `${process.argv[2] ?? "the agent"} cannot be loaded by ${process.execPath}: ${message}`;
}

// install is the command of the project's own tool.
function install() {
  const tools = [["pnpm-lock.yaml", "pnpm install"], ["yarn.lock", "yarn install"], ["bun.lock", "bun install"], ["package-lock.json", "npm ci"]];
  for (const [lock, command] of tools) if (fs.existsSync(lock)) return `${command} (in ${process.cwd()})`;
  return `npm install (in ${process.cwd()})`;
}

let serves = false;

/**
 * Serves segments with an agent: a function of the input and a context, a graph of LangGraph.js or an agent of the
 * AI SDK. Without evalrun it answers the document on stdin, and ends.
 */
export async function serve(agent) {
  if (serves) throw new Error("serve was called already: a program has one agent");
  serves = true;
  const file = process.argv[1];
  if (channel) return greet(() => agentOf(agent, "the agent", file));
  channel = open();
  try {
    const given = fs.readFileSync(channel.input, "utf8");
    const message = { resume: null, deliveries: null, rolloutId: "", threadId: "", workspace: process.cwd(), ...JSON.parse(given) };
    message.traceFile ??= process.env.EVALRUN_TRACE_FILE;
    send(await (await agentOf(agent, "the agent", file))(message));
  } catch (error) {
    failed(error);
    process.exitCode = 1;
  }
}

if (nonce && process.argv[1] && fs.realpathSync(process.argv[1]) === fileURLToPath(import.meta.url)) {
  serves = true;
  const [major] = process.versions.node.split(".").map(Number);
  await greet(() => {
    if (major < 20) throw new AgentError("start", `Node 20 or later is needed; this is ${process.version}`);
    return load(process.argv[2] ?? "");
  });
}
