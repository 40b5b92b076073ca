/** A value of JSON. */
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

/** What became of something that the agent has waited for. */
export interface Delivery {
  triggerId: string;
  status: string;
  payload: Json;
  error: Json;
  receivedAt: string;
}

/** What an agent is given beside its input. */
export interface Context {
  /** The answers that have just arrived, by the ids of their questions; null in the first segment. */
  readonly resume: Record<string, any> | null;
  readonly deliveries: Record<string, Delivery> | null;
  readonly rolloutId: string;
  readonly threadId: string;
  /** A folder that survives suspensions, also on another machine. */
  readonly workspace: string;
  /** The file for the spans of this segment. */
  readonly traceFile: string;
  /**
   * Asks a person, a job, a clock or anybody, and returns the answer. While there is none the segment ends, and no process
   * waits: when the answer has arrived, the function runs again from its beginning. Each question needs an id of its own.
   * What the value asks for is in docs/agents.md: {title, data} a person, {resume_time} a clock.
   */
  suspend<T = any>(id: string, value: unknown): Promise<T>;
  /** Records a call of a tool, for evaluators of tool calls. */
  toolCall(call: { name: string; input?: unknown; output?: unknown; id?: string; error?: unknown }): void;
  /** Records the tokens of a call of a model; inputTokens are all of the input. */
  usage(used: { model?: string; inputTokens?: number; cachedInputTokens?: number; outputTokens?: number }): void;
  /** Appends a span with OpenTelemetry's attributes to the trace. */
  span(name: string, attributes: Record<string, unknown>): void;
}

/** An agent: its output is whatever can be written as JSON. */
export type Agent<Input = any> = (input: Input, context: Context) => unknown;

/**
 * Serves segments with an agent: a function, a graph of LangGraph.js or an agent of the AI SDK. evalrun keeps the program
 * with "keep": true in the agent's entry; without it, the program answers the document on stdin, and ends.
 */
export function serve(agent: Agent | object): Promise<void>;

/** An error of which evalrun knows the code, such as "unresumable". */
export class AgentError extends Error {
  constructor(code: string, message: string);
  readonly code: string;
}

/** Ends a segment that waits. It is thrown by suspend, and is not to be swallowed. */
export class Suspended extends Error {}
