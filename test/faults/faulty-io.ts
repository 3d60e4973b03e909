// Loaded before everything else (node --import), in every thread: all calls of files, databases and the network that have to
// do with one folder (or one address) are counted, and one of them fails, once.
//
// A call has a name that is the same in every run: the thread, the function, the file, and which of such calls it is.
// LANTERN_FAULT_FOLDER: the folder. LANTERN_FAULT_LOG: a file to which the names are written. LANTERN_FAULT: the one to fail.

import * as fs from "node:fs";
import { createRequire, syncBuiltinESMExports } from "node:module";
import * as sqlite from "node:sqlite";
import * as threads from "node:worker_threads";

type Call = (...args: never[]) => unknown;
type Calls = Record<string, unknown>;

const { appendFileSync } = fs;
const thread = threads.isMainThread
  ? "main"
  : ((threads as { threadName?: string }).threadName ?? "thread");
const counts = new Map<string, number>();
const descriptors = new Map<number, string>();
const handles = new WeakMap<object, string>();

/** Between two runs of one process. */
export function forgetCalls(): void {
  counts.clear();
}

/** The error to fail with; undefined: this call is not the one. */
function faultOf(call: string, subject: string, systemCall = call): Error | undefined {
  const kind = `${thread} ${call} ${subject}`;
  const count = (counts.get(kind) ?? 0) + 1;
  counts.set(kind, count);
  const name = `${kind} ${count}`;
  const log = process.env.LANTERN_FAULT_LOG;
  if (log) appendFileSync(log, `${name}\n`);
  if (process.env.LANTERN_FAULT !== name) return undefined;
  const writes = /write|sync|mkdir|truncate|copyFile/i.test(call);
  const code = writes ? "ENOSPC" : /^(handle\.)?(read|close)/.test(call) ? "EIO" : "EACCES";
  const message = `${code}: a fault of the test, ${systemCall} '${subject}'`;
  return Object.assign(new Error(message), { code, errno: -5, syscall: systemCall, path: subject });
}

/** A path below the folder, without what differs from run to run; undefined: somewhere else. */
function subjectOf(place: unknown): string | undefined {
  const folder = process.env.LANTERN_FAULT_FOLDER;
  if (!folder) return undefined;
  let text: string | undefined;
  if (typeof place === "number") text = descriptors.get(place);
  else if (typeof place === "string" || place instanceof URL || place instanceof Buffer) {
    text = String(place);
  } else if (place !== null && typeof place === "object") text = handles.get(place);
  if (!text?.startsWith(folder)) return undefined;
  return text
    .slice(folder.length + 1)
    .replaceAll(/[0-9a-f]{8}-\d+-[0-9a-f]{8}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/g, "*")
    .replaceAll(/\b\d+\.json/g, "*.json");
}

function pathOf(place: unknown): string | undefined {
  return typeof place === "string" ? place : place instanceof URL ? place.pathname : undefined;
}

/** Symbols tell promisify() what to make of a function. */
function like(made: Call, original: Call): Call {
  for (const key of Reflect.ownKeys(original)) {
    if (typeof key !== "symbol") continue;
    Object.defineProperty(made, key, Object.getOwnPropertyDescriptor(original, key)!);
  }
  return made;
}

function wrap(owner: Calls, names: readonly string[], make: (name: string, call: Call) => Call) {
  for (const name of names) {
    const original = owner[name] as Call | undefined;
    if (original) owner[name] = like(make(name, original), original);
  }
}

const module = createRequire(import.meta.url)("node:fs") as Calls & { promises: Calls };

wrap(
  module,
  ["openSync", "readFileSync", "writeFileSync", "mkdirSync", "statSync", "lstatSync"].concat(
    ["readdirSync", "realpathSync", "renameSync", "chmodSync", "copyFileSync", "closeSync"],
    ["fstatSync", "readSync", "writeSync"],
  ),
  (name, call) =>
    function (this: unknown, ...args: never[]) {
      const subject = subjectOf(args[0]);
      const fault = subject === undefined ? undefined : faultOf(name, subject, name.slice(0, -4));
      if (fault && name !== "closeSync") throw fault;
      const result = call.apply(this, args);
      if (name === "openSync") descriptors.set(result as number, pathOf(args[0]) ?? "");
      if (fault) throw fault;
      return result;
    },
);
// realpathSync.native and others hang on the function itself
Object.assign(module.realpathSync as object, { native: fs.realpathSync.native });

wrap(module, ["open", "read", "fstat", "close"], (name, call) => {
  return function (this: unknown, ...args: never[]) {
    const subject = subjectOf(args[0]);
    const fault = subject === undefined ? undefined : faultOf(name, subject);
    const done = args.at(-1) as unknown as (error: unknown, ...results: unknown[]) => void;
    const place = args[0] as unknown;
    const settled = (error: unknown, ...results: unknown[]): void => {
      if (name === "open" && !error) descriptors.set(results[0] as number, pathOf(place) ?? "");
      done(fault ?? error, ...results);
    };
    if (fault && name !== "close") return void setImmediate(done, fault);
    if (typeof done !== "function") return call.apply(this, args);
    return call.apply(this, [...args.slice(0, -1), settled as never]);
  };
});

wrap(
  module.promises,
  ["open", "readFile", "writeFile", "stat", "lstat", "readdir", "rename", "rm", "mkdir"].concat([
    "realpath",
    "statfs",
    "utimes",
    "link",
    "rmdir",
  ]),
  (name, call) =>
    async function (this: unknown, ...args: never[]) {
      const subject = subjectOf(args[0]);
      const fault = subject === undefined ? undefined : faultOf(name, subject);
      if (fault) throw fault;
      const result = await (call.apply(this, args) as Promise<unknown>);
      if (name === "open") handles.set(result as object, pathOf(args[0]) ?? "");
      return result;
    },
);

const handle = await fs.promises.open(new URL(import.meta.url), "r");
wrap(
  Object.getPrototypeOf(handle) as Calls,
  ["write", "writeFile", "sync", "close", "truncate", "stat"],
  (name, call) =>
    async function (this: object, ...args: never[]) {
      const subject = subjectOf(this);
      const fault = subject === undefined ? undefined : faultOf(`handle.${name}`, subject, name);
      if (fault && name !== "close") throw fault;
      const result = await (call.apply(this, args) as Promise<unknown>);
      if (fault) throw fault;
      return result;
    },
);
await handle.close();

const sqlFault = (name: string, sql: string): void => {
  if (!process.env.LANTERN_FAULT_FOLDER) return;
  const fault = faultOf(`sql.${name}`, sql.trim().replaceAll(/\s+/g, " ").slice(0, 40));
  if (!fault) return;
  const full = name === "run" || name === "exec";
  const facts = full
    ? { errcode: 13, errstr: "database or disk is full" }
    : { errcode: 10, errstr: "disk I/O error" };
  throw Object.assign(new Error(facts.errstr), { code: "ERR_SQLITE_ERROR", ...facts });
};
wrap(
  sqlite.DatabaseSync.prototype as never,
  ["exec", "prepare"],
  (name, call) =>
    function (this: unknown, ...args: never[]) {
      sqlFault(name, String(args[0]));
      return call.apply(this, args);
    },
);
wrap(
  sqlite.StatementSync.prototype as never,
  ["run", "get", "all"],
  (name, call) =>
    function (this: sqlite.StatementSync, ...args: never[]) {
      sqlFault(name, this.sourceSQL);
      return call.apply(this, args);
    },
);

const { fetch: realFetch } = globalThis;
globalThis.fetch = async (input, init) => {
  const address = String(input instanceof Request ? input.url : input);
  const fault = new Headers(init?.headers).has("x-test")
    ? undefined
    : process.env.LANTERN_FAULT_FOLDER && faultOf("fetch", new URL(address).pathname);
  if (fault)
    throw new TypeError("fetch failed", { cause: Object.assign(fault, { code: "ECONNRESET" }) });
  return await realFetch(input, init);
};

syncBuiltinESMExports();
