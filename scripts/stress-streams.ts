// npm run stress:streams -- [STREAMS] [lantern serve's flags]: opens 60 long streams of each protocol and reads none, and measures how
// long the next short request waits, of another client and of the same. Prints a table. A client is a key here.

import { writeFileSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { join } from "node:path";
import { startLantern } from "../test/cluster/processes.ts";
import { beginStress, pause as sleep } from "./stress-harness.ts";

const args = process.argv.slice(2);
const own = /^\d+$/.test(args[0] ?? "") ? [args.shift()!] : [];
const usage = "stress:streams -- [STREAMS] [lantern serve's flags]";
const { count: streams, folder } = beginStress(usage, { count: 60, seed: 1 }, own);
const model = "stories15m";
const text = "Once upon a time";
const messages = [{ role: "user", content: text }];
const long = { temperature: 1, ignore_eos: true };
const protocols: Readonly<Record<string, object>> = {
  "/completion": { ...long, prompt: text, n_predict: 2000 },
  "/completion?n_probs=50": { ...long, prompt: text, n_predict: 2000, n_probs: 50 },
  "/v1/completions": { ...long, prompt: text, max_tokens: 2000 },
  "/v1/chat/completions": { ...long, messages, max_tokens: 2000 },
  "/v1/responses": { input: text, max_output_tokens: 2000 },
  "/v1/messages": { model, messages, max_tokens: 2000 },
  "/api/generate": { model, prompt: text, options: { num_predict: 2000 } },
};

const keys = join(folder, "keys");
writeFileSync(keys, "greedy\nother\n", { mode: 0o600 });
const flags = ["--port", "0", "--no-web", "--no-sessions", "--no-batches", "--api-key-file", keys];
const { ready, child } = await startLantern(["serve", "-m", model, "-t", "1", ...flags, ...args]);
process.on("exit", () => child.kill("SIGKILL"));
const url = ready.url as string;

function mute(path: string, fields: object): Socket {
  const body = JSON.stringify({ ...fields, stream: true });
  const head = `POST ${path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer greedy\r\ncontent-type: application/json`;
  const socket = connect(Number(new URL(url).port), "127.0.0.1");
  socket.on("error", () => {}).pause();
  socket.write(`${head}\r\ncontent-length: ${body.length}\r\n\r\n${body}`);
  return socket;
}

/** Seconds until a short request is answered, and its status. */
async function wait(key: string, signal?: AbortSignal): Promise<string> {
  const since = performance.now();
  try {
    const response = await fetch(`${url}/completion`, {
      method: "POST",
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      body: JSON.stringify({ prompt: text, n_predict: 16, temperature: 0 }),
      ...(signal && { signal }),
    });
    await response.text();
    const seconds = ((performance.now() - since) / 1000).toFixed(2);
    return response.ok ? seconds : `${seconds} (${response.status})`;
  } catch {
    return "(given up)";
  }
}

/** llama.cpp's counters: how many requests run or wait. */
async function open(): Promise<number> {
  const headers = { authorization: "Bearer other" };
  const metrics = await (await fetch(`${url}/metrics`, { headers })).text();
  const of = (name: string) =>
    Number(
      new RegExp(`^llamacpp:requests_${name}(?:\\{[^}\\n]*\\})? (\\d+)`, "m").exec(metrics)?.[1],
    );
  return of("processing") + of("deferred");
}

const alone = await wait("other");
console.log(`The next request alone: ${alone} s\n`);
console.log(`${streams} unread streams of    | another client, s | the same client, s`);
try {
  for (const [path, fields] of Object.entries(protocols)) {
    const sockets = Array.from({ length: streams }, () => mute(path.split("?")[0]!, fields));
    while ((await open()) < Math.min(streams, 8)) await sleep(50);
    const end = new AbortController();
    const same = wait("greedy", end.signal);
    const others = await wait("other");
    const limit = setTimeout(() => end.abort(), 120_000);
    console.log(`${path.padEnd(23)} | ${others.padStart(17)} | ${(await same).padStart(18)}`);
    clearTimeout(limit);
    for (const socket of sockets) socket.destroy();
    while ((await open()) > 0) await sleep(50);
  }
} finally {
  child.kill("SIGKILL");
}
