// How long others wait: starts `lantern serve`, lets one client stream an answer, and meanwhile sends hostile requests of
// 16 MB, and hostile grammars (test/support/hostile-grammars.ts), alone and twenty at once. Prints the stall table: the longest time
// that the stream stood still during each of them.
//
//   npm run bench:stalls -- MODEL [--only NAME] [--json]
//
// The stream is read on a thread of its own, so that making and sending a request does not count.

import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, readFileSync } from "node:fs";
import { loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { isMainThread, parentPort, Worker, workerData } from "node:worker_threads";
import { type HostileGrammar, hostileGrammars } from "../test/support/hostile-grammars.ts";

/** Below the server's own limit on bodies. */
const bytes = 15_800_000;
/** A request that is not answered by then is given up. */
const patienceMs = 90_000;

interface Hostile {
  name: string;
  path: string;
  body(): string;
  /** Flags of the server for this request: a hostile template comes with the model. */
  flags?: readonly string[];
  /** Sent at once, instead of one. */
  bodies?(): readonly string[];
}

/** Several requests at once, as many generations under hostile grammars. */
const together = 20;

const repeated = (piece: string): string => piece.repeat(Math.floor(bytes / piece.length));
const list = (item: string): string => `[${repeated(`${item},`)}${item}]`;
const words = (): string => repeated("The quick brown fox, aged 37, doesn't jump. ");
const mixed = (): string =>
  Array.from({ length: bytes / 8 }, (_, i) => ((i * 2654435761) >>> 0).toString(36)).join(" ");

const hostiles: readonly Hostile[] = [
  {
    name: "nothing",
    path: "/health",
    body: () => "",
  },
  {
    name: "prompt of words",
    path: "/completion",
    body: () => JSON.stringify({ prompt: words(), n_predict: 1 }),
  },
  {
    name: "prompt of random words",
    path: "/completion",
    body: () => JSON.stringify({ prompt: mixed(), n_predict: 1 }),
  },
  {
    name: "prompt of one letter",
    path: "/completion",
    body: () => JSON.stringify({ prompt: repeated("a"), n_predict: 1 }),
  },
  {
    name: "prompt of escapes",
    path: "/completion",
    body: () => `{"prompt":"${repeated("\\u0416")}","n_predict":1}`,
  },
  {
    name: "chat of one message",
    path: "/v1/chat/completions",
    body: () => JSON.stringify({ messages: [{ role: "user", content: words() }], max_tokens: 1 }),
  },
  {
    name: "/tokenize",
    path: "/tokenize",
    body: () => JSON.stringify({ content: words() }),
  },
  {
    name: "/tokenize with pieces",
    path: "/tokenize",
    body: () => JSON.stringify({ content: mixed(), with_pieces: true }),
  },
  { name: "/detokenize", path: "/detokenize", body: () => `{"tokens":${list("300")}}` },
  {
    name: "count_tokens",
    path: "/v1/messages/count_tokens",
    body: () => JSON.stringify({ model: "MODEL", messages: [{ role: "user", content: words() }] }),
  },
  { name: "4M prompts", path: "/v1/completions", body: () => `{"prompt":${list('"a"')}}` },
  { name: "lists of tokens", path: "/v1/completions", body: () => `{"prompt":${list("[1]")}}` },
  { name: "tokens", path: "/v1/completions", body: () => `{"prompt":${list("1")}}` },
  {
    name: "5M empty messages",
    path: "/v1/chat/completions",
    body: () => `{"messages":${list("{}")}}`,
  },
  {
    name: "messages",
    path: "/v1/chat/completions",
    body: () => `{"messages":${list('{"role":"user","content":"a"}')}}`,
  },
  {
    name: "parts of a message",
    path: "/v1/chat/completions",
    body: () => `{"messages":[{"role":"user","content":${list('{"type":"text","text":"a"}')}}]}`,
  },
  {
    name: "embedding inputs",
    path: "/v1/embeddings",
    body: () => `{"input":${list('"a"')}}`,
  },
  {
    name: "2,000 embedding inputs",
    path: "/v1/embeddings",
    body: () =>
      `{"input":[${Array(2000)
        .fill(JSON.stringify("word ".repeat(1500)))
        .join(",")}]}`,
  },
  {
    name: "biases",
    path: "/completion",
    body: () => `{"prompt":"a","n_predict":1,"logit_bias":${list("[1,1]")}}`,
  },
  { name: "brackets", path: "/completion", body: () => "[".repeat(bytes) },
  { name: "import of a conversation", path: "/lantern/v1/import", body: conversation },
  {
    name: "template of loops",
    path: "/v1/chat/completions",
    body: () => JSON.stringify({ messages: [{ role: "user", content: "a" }], max_tokens: 1 }),
    flags: [
      "--chat-template",
      "{% for a in range(9999) %}{% for b in range(9999) %}{{ b }}{% endfor %}{% endfor %}",
    ],
  },
  {
    name: "template of loops, 4,000 messages",
    path: "/v1/chat/completions",
    body: () => {
      const messages = Array.from({ length: 4000 }, () => ({ role: "user", content: "a" }));
      return JSON.stringify({ messages, max_tokens: 1 });
    },
    flags: [
      "--chat-template",
      "{% for a in range(9999) %}{% for b in range(9999) %}{{ b }}{% endfor %}{% endfor %}",
    ],
  },
];

function grammarBody({ source }: HostileGrammar): string | undefined {
  const given = source();
  const fields = { prompt: "a", n_predict: 8, temperature: 0 };
  if ("gbnf" in given) return JSON.stringify({ ...fields, grammar: given.gbnf });
  if ("schema" in given) return JSON.stringify({ ...fields, json_schema: given.schema });
  if (!("regex" in given)) return undefined;
  const json_schema = { type: "string", pattern: given.regex };
  return JSON.stringify({ ...fields, json_schema });
}

function* grammarRows(): Iterable<Hostile> {
  const asked = hostileGrammars.flatMap((hostile) => {
    const body = (): string | undefined => grammarBody(hostile);
    return body() === undefined ? [] : [{ name: hostile.name, body: () => body()! }];
  });
  for (const { name, body } of asked) yield { name: `grammar: ${name}`, path: "/completion", body };
  for (let from = 0; from < asked.length; from += together) {
    const some = asked.slice(from, from + together);
    yield {
      name: `${some.length} grammars at once, from ${from}`,
      path: "/completion",
      body: () => "",
      bodies: () => some.map(({ body }) => body()),
    };
  }
}

/** As many messages as are read at once. */
function conversation(): string {
  const nothing = { model: null, stopReason: null, error: null, tokens: null, timings: null };
  const message = { role: "user", state: "complete", createdAt: 1, changedAt: 1, ...nothing };
  const messages = Array.from({ length: 60_000 }, (_, i) => ({
    id: `m${i}`,
    parent: i === 0 ? null : `m${i - 1}`,
    content: `message ${i}`,
    ...message,
  }));
  const times = { createdAt: 1, changedAt: 1 };
  const of = { id: "many", title: "many", mode: "chat", model: null, settings: {}, leaf: "m9" };
  const session = { ...of, ...times };
  const file = { format: "lantern-session", version: 1, exportedAt: 1, session, messages };
  return JSON.stringify(file);
}

if (isMainThread) await main();
else await watch(workerData as string);

async function main(): Promise<void> {
  const { values: flags, positionals } = parseArgs({
    allowPositionals: true,
    options: { only: { type: "string" }, json: { type: "boolean", default: false } },
  });
  const [model] = positionals;
  if (!model) {
    console.error("usage: npm run bench:stalls -- MODEL [--only NAME] [--json]");
    process.exit(2);
  }
  const rows: object[] = [];
  for (const hostile of [...hostiles, ...grammarRows()]) {
    if (flags.only !== undefined && !hostile.name.includes(flags.only)) continue;
    rows.push(await row(model, hostile, flags.json));
  }
  if (flags.json) console.log(JSON.stringify({ load: loadavg()[0], rows }, null, 2));
}

/** A server of its own for each: one that died or is still busy says nothing of the next request. */
async function row(model: string, hostile: Hostile, quiet: boolean): Promise<object> {
  const server = await startServer(model, hostile.flags ?? []);
  try {
    const { url } = server;
    const { data } = (await (await fetch(`${url}/v1/models`)).json()) as { data: { id: string }[] };
    const worker = new Worker(new URL(import.meta.url), { workerData: url });
    const ask = async (): Promise<number> =>
      await new Promise((resolve) => {
        worker.once("message", (ms: number) => resolve(ms));
        worker.postMessage("gap");
      });
    await new Promise((resolve) => worker.once("message", resolve)); // it streams
    const body = hostile.body().replace('"MODEL"', JSON.stringify(data[0]!.id));
    await pause(500);
    await ask(); // what came before does not count
    const started = performance.now();
    const bodies = hostile.bodies?.() ?? [body];
    const answers = await Promise.all(bodies.map((one) => send(url + hostile.path, one)));
    const answer = answers.map((one) => (answers.length > 1 ? one.slice(0, 3) : one)).join(" ");
    const tookMs = performance.now() - started;
    await pause(500);
    const gapMs = await ask();
    await worker.terminate();
    const peakMb = peakMegabytes(server.process.pid!);
    const found = { name: hostile.name, gapMs, tookMs, peakMb, answer };
    if (!quiet) {
      console.log(
        `${hostile.name.padEnd(24)} gap ${gapMs.toFixed(0).padStart(6)} ms   answered in ${(tookMs / 1000).toFixed(2).padStart(6)} s   peak ${String(peakMb ?? "?").padStart(5)} MB   ${answer}`,
      );
    }
    return found;
  } finally {
    server.process.kill("SIGKILL");
  }
}

async function send(url: string, body: string): Promise<string> {
  try {
    const init = body === "" ? {} : { method: "POST", body };
    const response = await fetch(url, { ...init, signal: AbortSignal.timeout(patienceMs) });
    let size = 0;
    let text = "";
    for await (const piece of response.body ?? []) {
      size += piece.length;
      if (text.length < 200) text += new TextDecoder().decode(piece.subarray(0, 200));
    }
    return `${response.status} ${size} bytes: ${text.slice(0, 120).replaceAll("\n", " ")}`;
  } catch (error) {
    return `no answer: ${String(error)}`;
  }
}

interface Server {
  readonly url: string;
  readonly process: ChildProcess;
}

async function startServer(model: string, flags: readonly string[]): Promise<Server> {
  const lantern = join(import.meta.dirname, "..", "bin", "lantern.js");
  const args = [
    "serve",
    "-m",
    model,
    "--port",
    "0",
    "--sessions",
    join(mkdtempSync(join(tmpdir(), "lantern-stalls-")), "sessions.db"),
    "--no-token",
    "--no-web",
    "--parallel",
    "4",
    ...flags,
  ];
  const child = spawn(process.execPath, [lantern, ...args], { stdio: ["ignore", "pipe", "pipe"] });
  let said = "";
  const url = await new Promise<string>((resolve, reject) => {
    const look = (data: Buffer): void => {
      said += String(data);
      const found = /http:\/\/[\w.]+:\d+/.exec(said);
      if (found) resolve(found[0]);
    };
    child.stdout.on("data", look);
    child.stderr.on("data", look);
    child.once("exit", (code) => reject(new Error(`serve ended with ${code}: ${said}`)));
  });
  return { url, process: child };
}

/** The most memory that a process has had, where the system says. */
function peakMegabytes(pid: number): number | undefined {
  try {
    const found = /VmHWM:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, "latin1"));
    return found ? Math.round(Number(found[1]) / 1000) : undefined;
  } catch {
    return undefined; // it died, or another system
  }
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** On the other thread: reads one answer after the other, and says how long the longest pause was since it was asked last. */
async function watch(url: string): Promise<void> {
  let last = performance.now();
  let longest = 0;
  let begun = false;
  const look = (): void => {
    const now = performance.now();
    longest = Math.max(longest, now - last);
    last = now;
  };
  parentPort!.on("message", () => {
    look();
    parentPort!.postMessage(longest);
    longest = 0;
  });
  const fields = { prompt: "Once upon a time", stream: true, ignore_eos: true, n_predict: 200 };
  for (;;) {
    try {
      const response = await fetch(`${url}/completion`, {
        method: "POST",
        body: JSON.stringify(fields),
      });
      for await (const _ of response.body!) {
        look();
        if (!begun) parentPort!.postMessage("begun");
        begun = true;
      }
    } catch {
      await pause(100); // the server may be dead: the pause grows
    }
  }
}
