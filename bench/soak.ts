// A long test of the server: starts `lantern serve` and lets more clients than it has slots ask it, with random cancels,
// bad requests and lost connections. Prints every minute what the server holds, and at the end what is still running.
//
//   npm run bench:soak -- MODEL [--minutes 10] [--prompt 64] [--tokens 64] [--threads N]
//
// `lantern bench serve` measures what users get.

import { readdirSync, readFileSync } from "node:fs";
import { connect } from "node:net";
import { setTimeout as pause } from "node:timers/promises";
import { memoryMib, startLantern, stop } from "../test/cluster/processes.ts";
import { Random } from "../test/support/random.ts";
import { bench, count, number, sum, tokensOf } from "./harness.ts";

interface Client {
  readonly url: string;
  /** Of its prompt. */
  readonly seed: number;
  readonly prompt: number;
  readonly tokens: number;
}

const post = (url: string, body: object, more: RequestInit = {}): Promise<Response> =>
  fetch(url, {
    ...{ method: "POST", headers: { "content-type": "application/json" } },
    ...{ body: JSON.stringify(body), ...more },
  });

/** One request, read to its end. */
async function ask({ url, seed, prompt, tokens }: Client, more: RequestInit = {}): Promise<void> {
  const fields = { temperature: 0, ignore_eos: true, stream: true, n_predict: tokens };
  const body = { ...fields, prompt: [1, ...tokensOf(200, prompt - 1, seed)] };
  const response = await post(`${url}/completion`, body, more);
  const text = await response.text();
  if (!response.ok) throw new Error(`${response.status} ${text}`);
}

/** Things that clients do, wrong ones included. */
const actions: readonly ((client: Client) => Promise<unknown>)[] = [
  (client) => ask(client),
  (client) => ask(client, { signal: AbortSignal.timeout(new Random(client.seed).below(400)) }),
  ({ url }) => fetch(`${url}/v1/chat/completions`, { method: "POST", body: "{not json" }),
  ({ url }) => post(`${url}/v1/completions`, { prompt: 7, max_tokens: -1 }),
  ({ url }) => fetch(`${url}/v1/nothing`),
  // Longer than the context.
  ({ url }) => post(`${url}/completion`, { prompt: new Array<number>(100_000).fill(5) }),
  // Reads one event of two answers, and no more: the connection is cut.
  async ({ url, tokens }) => {
    const body = { prompt: "Once", n: 2, max_tokens: tokens, stream: true };
    const response = await post(`${url}/v1/completions`, body);
    const reader = response.body!.getReader();
    await reader.read();
    await reader.cancel();
  },
  // Half a request, then gone.
  ({ url }) =>
    new Promise<void>((resolve) => {
      const { hostname, port } = new URL(url);
      const socket = connect(Number(port), hostname, () => {
        socket.write("POST /completion HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{");
        setTimeout(() => resolve(void socket.destroy()), 50);
      });
      socket.on("error", () => resolve());
    }),
];

/** More users than slots: some of them wait, and some leave while they wait. */
const [slots, users] = [8, 12];
/** How often the server's memory is looked at, and every how many times it is printed. */
const [SAMPLE_MS, LINE_SAMPLES] = [5000, 12];

const flags = { prompt: count(64), tokens: count(64), threads: count(), minutes: number(10) };
await bench(
  "npm run bench:soak --",
  "MODEL",
  flags,
  async ({ minutes, threads, ...sizes }, [model]) => {
    const slotFlags = ["--parallel", String(slots), "--queue", "64", "--no-sessions", "--no-web"];
    const more = threads === undefined ? [] : ["-t", String(threads)];
    const server = await startLantern([
      "serve",
      "-m",
      model!,
      "--port",
      "0",
      ...slotFlags,
      ...more,
    ]);
    const url = server.ready.url as string;
    let stderr = "";
    server.child.stderr!.on("data", (data: Buffer) => {
      stderr += String(data);
    });
    const started = performance.now();
    const random = new Random(Date.now() % 1000);
    let asked = 0;
    const memory: number[] = [];
    console.log("minute; resident MiB; threads, descriptors, mappings; requests");
    const sampling = setInterval(() => {
      memory.push(memoryMib(server) ?? Number.NaN);
      if (memory.length % LINE_SAMPLES > 0) return;
      const minute = ((performance.now() - started) / 60_000).toFixed(1);
      console.log([minute, memory.at(-1)!.toFixed(0), heldBy(server.child.pid!), asked].join("; "));
    }, SAMPLE_MS);
    const user = async (): Promise<void> => {
      while (performance.now() < started + minutes * 60_000) {
        const client = { url, seed: ++asked, ...sizes };
        await random
          .pick(actions)(client)
          .catch(() => {}); // cancelled, refused
      }
    };
    await Promise.all(Array.from({ length: users }, user));
    clearInterval(sampling);
    await pause(1000);
    const metrics = await (await fetch(`${url}/metrics`)).text();
    const gauge = (name: string) => Number(new RegExp(`^${name} (\\d+)`, "m").exec(metrics)?.[1]);
    const [running, waiting] = [gauge("lantern_running"), gauge("lantern_waiting")];
    // No slot is stuck: all of them can be had at once.
    const last = Array.from({ length: slots }, (_, i) => ask({ url, seed: 1e6 + i, ...sizes }));
    const answers = await Promise.allSettled(last);
    const answered = answers.filter(({ status }) => status === "fulfilled").length;
    const quarter = Math.max(1, memory.length >> 2);
    const mean = (list: readonly number[]) => (sum(list) / list.length).toFixed(0);
    console.log(
      `${asked} requests in ${minutes} minutes; ${running} still running, ${waiting} waiting; then ${answered} of ${slots} were answered at once`,
    );
    console.log(
      `resident memory: ${mean(memory.slice(quarter, 2 * quarter))} MiB in the second quarter, ${mean(memory.slice(-quarter))} MiB in the last`,
    );
    const code = await stop(server, "SIGINT");
    const complaints = stderr.match(/unhandled|rejection|TypeError|RangeError/gi) ?? [];
    console.log(`stopped with exit code ${String(code)}`);
    console.log(complaints.length === 0 ? "no unhandled error" : stderr);
    const isClean = running + waiting + complaints.length === 0 && code === 0;
    if (!isClean || answered < slots) process.exitCode = 1;
  },
);

/** What a process holds; "?" where the system does not say. */
function heldBy(pid: number): string {
  try {
    const counts = ["task", "fd"].map((kind) => readdirSync(`/proc/${pid}/${kind}`).length);
    return [...counts, readFileSync(`/proc/${pid}/maps`, "utf8").split("\n").length].join(", ");
  } catch {
    return "?";
  }
}
