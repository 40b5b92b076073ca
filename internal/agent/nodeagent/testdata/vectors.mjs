// What an agent may do to its worker.

import { spawnSync } from "node:child_process";
import fs from "node:fs";
import { appendFileSync, writeSync } from "node:fs";

console.log("printed at the import");

let count = 0;
const circle = {};
circle.self = circle;
class Point {
  x = 1;
  #hidden = 2;
  method() {}
}
async function* numbers() {
  yield 1;
  yield 2;
}

const vectors = {
  prints() {
    console.log("by console");
    writeSync(1, "by write\n");
    process.stdout.write("x".repeat(200_000) + "\n");
    spawnSync("echo", ["by a child"], { stdio: ["ignore", "inherit", "inherit"] });
    return "unharmed";
  },
  count: () => [++count, process.pid],
  stdin: () => fs.readFileSync(0, "utf8"),
  error: () => { throw new TypeError("bad thing"); },
  text: () => { throw "a text"; },
  object: () => Promise.reject({ code: 7 }),
  nothing: () => { throw undefined; },
  circularError: () => { throw circle; },
  recurse: function recurse() { return recurse() + 1; },
  nan: () => ({ deep: [NaN] }),
  bigint: () => ({ a: [{ b: 10n }] }),
  circle: () => circle,
  func: () => () => 1,
  symbol: () => [Symbol("s")],
  undefined: () => undefined,
  values: () => ({ date: new Date(0), set: new Set([1]), map: new Map([["k", 1]]), bytes: new Uint8Array([1, 2]), point: new Point(), left: undefined }),
  surrogate: () => "\ud800",
  lines: () => "a\u2028b\nc",
  generator: () => numbers(),
  twice: () => new Promise((resolve, reject) => { resolve("first"); resolve("second"); reject(new Error("third")); }),
  never: () => new Promise(() => {}),
  patches() {
    process.stdout.write = process.stderr.write = console.log = () => { throw new Error("patched"); };
    return "patched";
  },
  changes() {
    const kept = [process.cwd() === "/", process.env.LEFT ?? null, process.env.EVALRUN_TRACE_FILE.endsWith("trace.jsonl")];
    process.chdir("/");
    process.env.LEFT = "left";
    return kept;
  },
  // These end the worker.
  exit: () => process.exit(4),
  kill: () => process.kill(process.pid, "SIGKILL"),
  rejects: () => { Promise.reject(new Error("nobody catches it")); return new Promise((done) => setTimeout(done, 60_000)); },
  throwsLater: () => new Promise(() => setTimeout(() => { throw new RangeError("in a timer"); }, 1)),
  close() {
    for (let fd = 3; fd < 64; fd++) try { fs.closeSync(fd); } catch { /* it is not open */ }
    return "closed";
  },
  forges() { // the way to evalrun is appended to; Node's own pipes are left alone, as they would end it before that
    for (let fd = 3; fd < 64; fd++) {
      try {
        const flags = parseInt(/flags:\s*(\d+)/.exec(fs.readFileSync(`/proc/self/fdinfo/${fd}`, "utf8"))[1], 8);
        if (fs.fstatSync(fd).isFIFO() && flags & fs.constants.O_APPEND) writeSync(fd, '{"id":"x","output":"forged"}\n');
      } catch { /* it is not open, or only for reading */ }
    }
    return new Promise((done) => setTimeout(done, 60_000));
  },
  big: () => "x".repeat(2000),
  hang() { for (;;); },
};

export const main = ({ do: what }, ...rest) => vectors[what](...rest);

export async function asks(input, ctx) {
  appendFileSync(ctx.workspace + "/ran", "x");
  const [name, age] = await Promise.all([ctx.suspend("name", { q: "name?" }), ctx.suspend("age", { q: "age?" })]);
  const city = await ctx.suspend("city", { q: "city?" });
  ctx.toolCall({ name: "find", input: { city }, output: "found", id: "c1" });
  ctx.usage({ model: "scripted", inputTokens: 10, outputTokens: 5 });
  return { name, age, city, ran: fs.readFileSync(ctx.workspace + "/ran", "utf8").length, status: ctx.deliveries.city.status };
}

export async function wrapped(input, ctx) {
  try {
    return await ctx.suspend("q", 1);
  } catch (error) {
    throw new Error("a tool has failed", { cause: error });
  }
}

export async function swallowed(input, ctx) {
  await ctx.suspend("q", 1).catch(() => {});
  return "went on";
}

export async function failsToo(input, ctx) {
  ctx.suspend("q", 1).catch(() => {});
  throw new Error("something else");
}

export default (input) => ["default", input];
export const shelf = { shout: (text) => text.toUpperCase() };
