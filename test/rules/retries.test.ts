// Whatever asks again waits longer and longer, and ends or slows down: base/backoff.ts. Found here: timers, loops that go on after an error,
// functions that call themselves after one, and pauses in loops without an end. What is meant is in the tables, with what bounds it.
// Not in what only computes (engine, backends, kernels, tools): nothing is asked there over a wire or of a file.

import { parseSync } from "vite";
import { expect, test } from "vitest";
import { filesUnder, programFolders } from "./scan.ts";

const computes =
  /^src\/(backends|dtypes|engine|graph|kernels|load|machine|models|profile|tools|tune)\//;
/** The one back-off, and the two waits for what comes by itself. */
const helpers: readonly string[] = ["backoff", "at-most", "stall"].map(
  (name) => `src/base/${name}.ts`,
);

/** Timers, and why none of them asks again without a back-off. A line for each file: how many, and what for. */
const timers: Readonly<Record<string, readonly [count: number, why: string]>> = {
  "apps/cli/editor/input.ts": [1, "the end of a wait for the rest of a key or a paste"],
  "apps/cli/idle-work.ts": [1, "looks at this process's own clock"],
  "apps/cluster/gateway.ts": [1, "tidies what was heard; asks nobody"],
  "apps/cluster/line-worker.ts": [
    1,
    "tells NATS that a line is in the works, until it is answered",
  ],
  "apps/cluster/outbox.ts": [1, "sends what has gathered, once"],
  "apps/cluster/shared-batches.ts": [3, "the heartbeat; the ends of two waits"],
  "apps/cluster/worker.ts": [3, "the heartbeat; a turn of the event loop; the end of a wait"],
  "apps/cluster/workers.ts": [2, "the heartbeats of others are counted; the end of a wait"],
  "apps/batch/runner.ts": [1, "looks at its own store every 5 s, for batches that expire"],
  "src/platform/browser.ts": [1, "a thread ends"],
  "src/platform/node-assets.ts": [1, "a file is removed"],
  "src/platform/node-cli.ts": [1, "lines that were pasted together"],
  "src/platform/node-download.ts": [
    2,
    "a lock is touched while it is held; sleep(), for waits of base/backoff.ts",
  ],
  "src/platform/node-process.ts": [1, "ends the process when what it wrote has been read"],
  "src/platform/node-raw-terminal.ts": [1, "Ctrl-Z where nothing stops"],
  "src/platform/node-signals.ts": [1, "a second Ctrl-C counts no longer"],
  "apps/server/body.ts": [1, "a turn of the event loop"],
  "apps/server/models/registry.ts": [1, "a model is unloaded; after a try that failed, by Backoff"],
  "apps/server/listen.ts": [
    3,
    "closes idle connections until the server has stopped; the ends of a request and its connection",
  ],
  "apps/server/route.ts": [1, "a turn of the event loop"],
  "apps/server/protocols/ollama/models.ts": [1, "the end of a wait"],
  "apps/server/late-answer.ts": [2, "heartbeats of an answer that is late; the end of a wait"],
  "apps/server/sse.ts": [1, "the first heartbeat of a stream"],
  "apps/server/usage.ts": [1, "samples of this process"],
  "apps/sessions/exchange.ts": [1, "a turn of the event loop"],
  "apps/sessions/runs.ts": [1, "running answers are saved together, once a second at most"],
  "apps/sessions/search-index.ts": [1, "a turn of the event loop"],
  "apps/web/src/components/copy-button.tsx": [1, "a label changes back"],
  "apps/web/src/components/found.ts": [1, "a mark disappears"],
  "apps/web/src/components/layout.tsx": [1, "a place is restored no longer"],
  "apps/web/src/components/model-options.tsx": [1, "asks once, after the last keystroke"],
  "apps/web/src/components/schema-field.tsx": [1, "checks once, after the last keystroke"],
  "apps/web/src/state/frame.ts": [1, "draws in a hidden page"],
  "apps/web/src/state/model-limits.ts": [1, "the next answer may ask once more"],
  "apps/web/src/state/notices.ts": [1, "a notice disappears"],
  "apps/web/src/state/save-file.ts": [1, "a URL is given back"],
  "apps/web/src/state/sessions.ts": [1, "searches once, after the last keystroke"],
  "apps/web/src/state/use-settings.ts": [1, "saves once, after the last change"],
  "apps/web/src/state/warm-up.ts": [1, "code is loaded once"],
  "apps/web/src/worker/thread.ts": [1, "tells the page's window of this tab's own numbers"],
};

/** Loops that go on after an error, or pause at a fixed rate, by the function that they are in. */
const loops: Readonly<Record<string, string>> = {
  "apps/cli/commands/batch.ts answerAll":
    "looks at its own store every 100 ms, until the batch is over",
  "apps/cli/idle-work.ts work": "each turn is another chore",
  "apps/cluster/cluster-model.ts try": "another worker each time, three at most",
  "apps/cluster/line-worker.ts place": "waits for its own lines; asks nobody",
  "src/platform/node-block-files.ts freeBytes": "goes up to the root",
  "src/platform/node-download.ts lockFile": "five times, each after an abandoned lock",
  "apps/server/body.ts readJson": "reads what has come, and lets others have a turn",
  "src/threads/serve-engine.ts load": "a layer less on the GPU each time",
  "apps/server/models/registry.ts unload": "50 times",
  "apps/server/protocols/ollama/manage.ts pullLines":
    "a line for each progress, at most every so often",
  "apps/sessions/backups.ts copy": "reads its own next rows, and lets others have a turn",
  "apps/sessions/search-index.ts purgeAll":
    "asks nobody: waits once, so that the file is not written anew all the time",
};

interface Node {
  readonly type: string;
  readonly start: number;
  readonly [field: string]: unknown;
}

interface Found {
  readonly path: string;
  readonly line: number;
  /** The function that it is in. */
  readonly of: string;
  readonly what: "timer" | "loop" | "itself";
}

const loopTypes = new Set(["ForStatement", "WhileStatement", "DoWhileStatement"]);
const functionTypes = new Set([
  "FunctionDeclaration",
  "FunctionExpression",
  "ArrowFunctionExpression",
]);
const leaving = new Set(["ThrowStatement", "ReturnStatement", "BreakStatement"]);

function isNode(value: unknown): value is Node {
  return typeof (value as Node | null)?.type === "string";
}

function childrenOf(node: Node): Node[] {
  return Object.values(node)
    .flatMap((value) => (Array.isArray(value) ? value : [value]))
    .filter(isNode);
}

/** A node and all in it, functions in it included. */
function* all(node: Node): Generator<Node> {
  yield node;
  for (const child of childrenOf(node)) yield* all(child);
}

/** "setTimeout", "pause", ".failed", ".catch": what a call calls. */
function calleeOf(node: Node): string | undefined {
  if (node.type !== "CallExpression") return undefined;
  const callee = node.callee as Node;
  if (callee.type === "Identifier") return callee.name as string;
  if (callee.type !== "MemberExpression") return undefined;
  return `.${(callee.property as Node).name as string}`;
}

/** f() or this.f(), and not another object's. */
function callsOwn(node: Node, name: string): boolean {
  if (node.type !== "CallExpression") return false;
  const callee = node.callee as Node;
  if (callee.type === "Identifier") return callee.name === name;
  const { object, property } = callee as Node & { object?: Node; property?: Node };
  return object?.type === "ThisExpression" && property?.name === name;
}

const isTimer = (name: string | undefined): boolean =>
  name !== undefined && /^\.?(setTimeout|setInterval)$/.test(name);
/** The back-off of a loop: Backoff.failed(), or Backoff.next() where the wait is elsewhere. */
const isBackoff = (name: string | undefined): boolean => name === ".failed" || name === ".next";

/** Whether an error may lead to another turn. */
function goesOn(loop: Node): boolean {
  return [...all(loop.body as Node)].some((node) => {
    if (node.type === "CatchClause") {
      const last = ((node.body as Node).body as Node[]).at(-1);
      return last === undefined || !leaving.has(last.type);
    }
    return calleeOf(node) === ".catch";
  });
}

function hasAwait(loop: Node): boolean {
  return [...all(loop.body as Node)].some(({ type }) => type === "AwaitExpression");
}

function nameOf(node: Node, parent: Node | undefined): string | undefined {
  const own = (node.id as Node | null | undefined)?.name as string | undefined;
  const given = (parent?.id ?? parent?.key) as Node | undefined;
  return own ?? (given?.name as string | undefined);
}

function findIn(path: string, text: string): Found[] {
  const { program, errors } = parseSync(path, text);
  if (errors.length > 0) throw new Error(`${path}: ${errors[0]!.message}`);
  const found: Found[] = [];
  const visit = (node: Node, parent: Node | undefined, of: string): void => {
    const name = functionTypes.has(node.type) ? (nameOf(node, parent) ?? of) : of;
    const add = (what: Found["what"]): void => {
      found.push({ path, of: name, what, line: text.slice(0, node.start).split("\n").length });
    };
    if (isTimer(calleeOf(node))) add("timer");
    // setTimeout of node:timers/promises, under whatever name.
    const source = node.type === "ImportDeclaration" ? (node.source as Node).value : undefined;
    if (typeof source === "string" && /timers/.test(source)) add("timer");
    if (loopTypes.has(node.type) && hasAwait(node)) {
      const calls = [...all(node)].map(calleeOf);
      const isWaiting = calls.some((one) => one === "pause" || one === ".sleep");
      if ((goesOn(node) || isWaiting) && !calls.some(isBackoff)) add("loop");
    }
    if (node.type === "CatchClause" && [...all(node)].some((one) => callsOwn(one, name)))
      add("itself");
    for (const child of childrenOf(node)) visit(child, node, name);
  };
  visit(program as unknown as Node, undefined, "");
  return found;
}

const files = filesUnder([...programFolders, "apps/web/src"], [".ts", ".tsx"]).filter(
  ({ path }) => !computes.test(path) && !helpers.includes(path),
);
const found = files.flatMap(({ path, text }) => findIn(path, text));
const shown = (those: readonly Found[]): string[] =>
  those.map(({ path, line, of, what }) => `${path}:${line}: ${what} in ${of}()`);

test("what asks again goes through base/backoff.ts", () => {
  expect(files.length).toBeGreaterThan(200);
  const unknown = found.filter(
    ({ path, of, what }) => what !== "timer" && !(`${path} ${of}` in loops),
  );
  expect(shown(unknown), "use retry(), poll() or Backoff").toEqual([]);
  expect(
    Object.keys(loops).filter((key) => !found.some(({ path, of }) => key === `${path} ${of}`)),
  ).toEqual([]);
});

test("every other timer is known", () => {
  const counts = Map.groupBy(
    found.filter(({ what }) => what === "timer"),
    ({ path }) => path,
  );
  const wrong = [...counts].filter(([path, those]) => timers[path]?.[0] !== those.length);
  expect(
    shown(wrong.flatMap(([, those]) => those)),
    "poll() instead, or say what bounds it",
  ).toEqual([]);
  expect(Object.keys(timers).filter((path) => !counts.has(path))).toEqual([]);
});

test.each([
  [
    "a loop that swallows",
    "async function f() { for (;;) { try { await g(); } catch { await online(); } } }",
    "loop in f",
  ],
  [
    "a loop that catches",
    "async function f() { while (!end) await g().catch(() => {}); }",
    "loop in f",
  ],
  [
    "a loop at a fixed rate",
    "async function f() { for (;;) { await g(); await pause(100); } }",
    "loop in f",
  ],
  [
    "a call of itself",
    "class C { async load() { try { await g(); } catch { await this.load(); } } }",
    "itself in load",
  ],
  ["a timer", "const look = () => { setTimeout(look, 100); };", "timer in look"],
  ["a timer of a window", "window.setInterval(f, 1)", "timer in "],
  [
    "a timer under another name",
    'import { setTimeout as delay } from "node:timers/promises";',
    "timer in ",
  ],
])("%s is found", (_, code, expected) => {
  expect(shown(findIn("a.ts", code))).toEqual([`a.ts:1: ${expected}()`]);
});

test.each([
  "async function f() { for (;;) { try { await g(); } catch { if (!(await backoff.failed())) return; } } }",
  "async function f() { for (;;) { try { await g(); } catch (error) { throw error; } } }",
  "async function f() { for (const one of all) await g(one).catch(() => {}); }",
  "function f() { while (at < end) at++; }",
])("nothing is found in %s", (code) => {
  expect(findIn("a.ts", code)).toEqual([]);
});
