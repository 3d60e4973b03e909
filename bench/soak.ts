// A long test of the server: starts `lantern serve` and lets more clients than it has slots ask it, with random cancels,
// bad requests and lost connections. Prints every minute what the server holds, and at the end what is still running.
//
//   npm run bench:soak -- MODEL [--minutes 10] [--prompt 64] [--tokens 64] [--threads N]
//
// `lantern bench serve` measures what users get.

import { type ChildProcess, spawn } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { parseArgs } from "node:util";

const { values: flags, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    prompt: { type: "string", default: "64" },
    tokens: { type: "string", default: "64" },
    threads: { type: "string" },
    minutes: { type: "string", default: "10" },
  },
});
const [model] = positionals;
if (!model) {
  console.error("usage: npm run bench:soak -- MODEL [--minutes 10]");
  process.exit(2);
}
const promptTokens = Number(flags.prompt);
const answerTokens = Number(flags.tokens);

interface Server {
  readonly url: string;
  readonly process: ChildProcess;
  /** What it wrote to stderr. */
  stderr(): string;
}

async function startServer(parallel: number): Promise<Server> {
  const lantern = join(import.meta.dirname, "..", "bin", "lantern.js");
  const threads = flags.threads === undefined ? [] : ["-t", flags.threads];
  const args = ["serve", "-m", model!, "--port", "0", "--no-sessions", "--no-web"];
  const child = spawn(
    process.execPath,
    [lantern, ...args, "--parallel", String(parallel), "--queue", "64", ...threads],
    { stdio: ["ignore", "pipe", "pipe"] },
  );
  let stderr = "";
  const url = await new Promise<string>((resolve, reject) => {
    const look = (text: string) => {
      const found = /http:\/\/[\w.]+:\d+/.exec(text);
      if (found) resolve(found[0]);
    };
    child.stdout.on("data", (data: Buffer) => look(String(data)));
    child.stderr.on("data", (data: Buffer) => {
      stderr += String(data);
      look(stderr);
    });
    child.once("exit", (code) => reject(new Error(`serve ended with ${code}: ${stderr}`)));
  });
  return { url, process: child, stderr: () => stderr };
}

/** A generator of numbers that repeats itself from run to run. */
function random(seed: number): (below: number) => number {
  let state = seed * 2654435761 + 12345;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

/** One request, read to its end. */
async function ask(url: string, seed: number, signal?: AbortSignal): Promise<void> {
  const next = random(seed);
  const prompt = [1, ...Array.from({ length: promptTokens - 1 }, () => 3 + next(200))];
  const response = await fetch(`${url}/completion`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({
      prompt,
      n_predict: answerTokens,
      temperature: 0,
      ignore_eos: true,
      stream: true,
    }),
    ...(signal && { signal }),
  });
  const text = await response.text();
  if (!response.ok) throw new Error(`${response.status} ${text}`);
}

/** Things that clients do, wrong ones included. */
const actions: readonly ((url: string, seed: number) => Promise<unknown>)[] = [
  (url, seed) => ask(url, seed),
  (url, seed) => {
    const controller = new AbortController();
    setTimeout(() => controller.abort(), random(seed)(400));
    return ask(url, seed, controller.signal);
  },
  (url) => fetch(`${url}/v1/chat/completions`, { method: "POST", body: "{not json" }),
  (url) =>
    fetch(`${url}/v1/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ prompt: 7, max_tokens: -1 }),
    }),
  (url) => fetch(`${url}/v1/nothing`),
  // Longer than the context.
  (url) =>
    fetch(`${url}/completion`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ prompt: new Array<number>(100_000).fill(5) }),
    }),
  // Reads one event of two answers, and no more: the connection is cut.
  async (url) => {
    const response = await fetch(`${url}/v1/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ prompt: "Once", n: 2, max_tokens: answerTokens, stream: true }),
    });
    const reader = response.body!.getReader();
    await reader.read();
    await reader.cancel();
  },
  // Half a request, then gone.
  (url) =>
    new Promise<void>((resolve) => {
      const { hostname, port } = new URL(url);
      const socket = connect(Number(port), hostname, () => {
        socket.write("POST /completion HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{");
        setTimeout(() => resolve(void socket.destroy()), 50);
      });
      socket.on("error", () => resolve());
    }),
];

/** More users than places: some of them wait, and some leave while they wait. */
const soakPlaces = 8;
const soakUsers = 12;
/** How often the server's memory is looked at, and every how many times it is printed. */
const SAMPLE_MS = 5000;
const LINE_SAMPLES = 12;

async function soak(minutes: number): Promise<void> {
  const server = await startServer(soakPlaces);
  const end = performance.now() + minutes * 60_000;
  const next = random(Date.now() % 1000);
  let asked = 0;
  const memory: number[] = [];
  console.log(" minute  resident  threads  descriptors  mappings  requests");
  const users = Array.from({ length: soakUsers }, async () => {
    while (performance.now() < end) {
      const action = actions[next(actions.length)]!;
      await action(server.url, ++asked).catch(() => {}); // cancelled, refused
    }
  });
  const started = performance.now();
  const sampling = setInterval(() => {
    memory.push(residentBytes(server.process.pid!));
    if (memory.length % LINE_SAMPLES === 0) console.log(soakLine(server, started, asked));
  }, SAMPLE_MS);
  await Promise.all(users);
  clearInterval(sampling);
  await new Promise((resolve) => setTimeout(resolve, 1000));
  const metrics = await (await fetch(`${server.url}/metrics`)).text();
  const gauge = (name: string) => Number(new RegExp(`^${name} (\\d+)`, "m").exec(metrics)?.[1]);
  const [running, waiting] = [gauge("lantern_running"), gauge("lantern_waiting")];
  // No place is stuck: all of them can be had at once.
  const last = Array.from({ length: soakPlaces }, (_, i) => ask(server.url, 1_000_000 + i));
  const answered = (await Promise.allSettled(last)).filter(({ status }) => status === "fulfilled");
  const quarter = Math.max(1, memory.length >> 2);
  const mean = (list: number[]) => list.reduce((a, b) => a + b, 0) / list.length / 2 ** 20;
  console.log(
    `${asked} requests in ${minutes} minutes; ${running} still running, ${waiting} waiting; then ${answered.length} of ${soakPlaces} were answered at once`,
  );
  console.log(
    `resident memory: ${mean(memory.slice(quarter, 2 * quarter)).toFixed(0)} MiB in the second quarter, ${mean(memory.slice(-quarter)).toFixed(0)} MiB in the last`,
  );
  const stopped = new Promise((resolve) => server.process.once("exit", resolve));
  server.process.kill("SIGINT");
  const code = await stopped;
  console.log(`stopped with exit code ${String(code)}`);
  const complaints = server.stderr().match(/unhandled|rejection|TypeError|RangeError/gi) ?? [];
  console.log(complaints.length === 0 ? "no unhandled error" : server.stderr());
  const isClean = running + waiting + complaints.length === 0 && code === 0;
  if (!isClean || answered.length < soakPlaces) process.exitCode = 1;
}

/** A line of the table: what the server holds now. */
function soakLine({ process: { pid } }: Server, started: number, asked: number): string {
  const minute = ((performance.now() - started) / 60_000).toFixed(1);
  const mib = (residentBytes(pid!) / 2 ** 20).toFixed(0);
  const counts = ["task", "fd"].map((kind) => countOf(() => readdirSync(`/proc/${pid}/${kind}`)));
  const mappings = countOf(() => readFileSync(`/proc/${pid}/maps`, "utf8").split("\n"));
  const cells = [minute, `${mib} MiB`, ...counts, mappings, asked];
  const widths = [7, 10, 9, 13, 10, 10];
  return cells.map((cell, i) => String(cell).padStart(widths[i]!)).join("");
}

/** Linux only: elsewhere NaN. */
function countOf(list: () => readonly string[]): number {
  try {
    return list().length;
  } catch {
    return Number.NaN;
  }
}

/** Linux only: elsewhere NaN. */
function residentBytes(pid: number): number {
  try {
    const pages = /VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, "utf8"));
    return Number(pages?.[1]) * 1024;
  } catch {
    return Number.NaN;
  }
}

await soak(Number(flags.minutes));
