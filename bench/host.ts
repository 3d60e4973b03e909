// What the host does for each token of many users, without a model: a server whose backend computes nothing, and users on another
// thread. Shows the CPU time of the server's thread and of the engine's for a step, in which every user gets a token.
//
//   npm run bench:host -- [--users 32] [--answer 64] [--prompt 128] [--rounds 3] [--batch-ms 0] [--token-ms 0] [--sampled]
//
// --batch-ms and --token-ms: what a batch takes, and each token in it, as on a GPU. --sampled: temperature 0.8, top-k 40, top-p
// 0.95, min-p 0.05 instead of greedy. `node --cpu-prof bench/host.ts` writes a profile of each thread.

import { Worker } from "node:worker_threads";
import { startServer } from "../apps/server/serve.ts";
import { quantile } from "../src/base/measure.ts";
import type { OpenRequest } from "../src/engine/protocol.ts";
import { openWith } from "../src/open.ts";
import { nodePlatform } from "../src/platform/node.ts";
import type { EngineThread, ThreadEntry } from "../src/platform/platform.ts";
import { bench, count, isOn, number, type Values, withMadeModel } from "./harness.ts";
import type { HostEngineData } from "./host-engine.ts";
import type { UsersPlan, UsersSeen } from "./host-users.ts";

/** See HostEngineData. */
const HOST_NUMBERS = 6;

const flags = {
  users: count(32),
  answer: count(64),
  prompt: count(128),
  rounds: count(3),
  batchMs: number(0),
  tokenMs: number(0),
  sampled: isOn,
};
type Given = Values<typeof flags>;

const numbers = new Float64Array(new SharedArrayBuffer(8 * HOST_NUMBERS));

function startIdle(given: Given): EngineThread {
  const { batchMs, tokenMs } = given;
  const workerData: HostEngineData = { batchMs, tokenMs, numbers };
  const worker = new Worker(new URL("./host-engine.ts", import.meta.url), { workerData });
  return {
    post: (message, transfer) => worker.postMessage(message, transfer ?? []),
    onMessage: (listener) => void worker.on("message", listener),
    onFailure: (listener) => void worker.on("error", (error) => listener(error as Error)),
    ref: () => worker.ref(),
    unref: () => worker.unref(),
    // A thread that ends by itself writes its profile.
    terminate: async () => {
      await new Promise((resolve) => worker.once("exit", resolve));
    },
  };
}

async function askAll(url: string, plan: UsersPlan): Promise<UsersSeen> {
  const workerData = { url, plan };
  const worker = new Worker(new URL("./host-users.ts", import.meta.url), { workerData });
  return await new Promise((resolve, reject) => worker.on("message", resolve).on("error", reject));
}

/** CPU time of this thread in ms. */
function ownMs(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
}

await bench("npm run bench:host --", "", flags, async (given) => {
  await withMadeModel("words", "q8_0", (path) => main(path, given));
});

async function main(path: string, given: Given): Promise<void> {
  const { users, answer, prompt, rounds } = given;
  const request: OpenRequest = {
    spec: { kind: "path", path },
    contextSize: Math.ceil((prompt + answer + 32) / 32) * 32,
    kvType: "f16",
    threads: 1,
    level: undefined,
    native: false,
    backend: "idle",
    gpuLayers: undefined,
    exact: false,
    chatTemplate: undefined,
    profile: false,
    tuned: false,
    parallel: users,
  };
  const startThread = (entry: ThreadEntry): EngineThread =>
    entry === "engine" ? startIdle(given) : nodePlatform.startThread(entry);
  const model = await openWith({ startThread }, request);
  const server = await startServer({
    models: { idle: model },
    version: "0",
    port: 0,
    parallel: users,
    queue: users,
    graceMs: 0,
  });
  const sampling = given.sampled
    ? { temperature: 0.8, top_k: 40, top_p: 0.95, min_p: 0.05, seed: 1 }
    : { temperature: 0 };
  const fields = { max_tokens: answer, ignore_eos: true, ...sampling };
  const plan = { users, promptTokens: prompt, fields };
  await askAll(server.url, { ...plan, rounds: 1, seed: 1 });
  const [before, own] = [[...numbers], ownMs()];
  const seen = await askAll(server.url, { ...plan, rounds, seed: 2 });
  const [after, ownAfter] = [[...numbers], ownMs()];
  const counts = after.map((value, i) => value - before[i]!);
  const [batches, steps, sequences, engineMs] = counts as [number, number, number, number];
  const [between, betweenMs] = counts.slice(4) as [number, number];
  await server.stop();
  await model.dispose();
  const lasts = Array.from({ length: rounds }, (_, round) =>
    Math.max(...seen.firsts.slice(round * users, (round + 1) * users)).toFixed(0),
  );
  const perStep = (ms: number): string => ((ms * users) / seen.tokens).toFixed(2);
  process.stdout.write(
    [
      `${users} users, prompts of ${prompt}, answers of ${answer}, ${given.sampled ? "sampled" : "greedy"}`,
      `${batches} batches, ${steps} of single tokens with ${(sequences / steps).toFixed(1)} sequences`,
      `tokens/s of all: ${((seen.tokens * 1000) / seen.ms).toFixed(0)}, a step of all users: ${perStep(seen.ms)} ms`,
      `CPU time of a step: engine's thread ${perStep(engineMs)} ms, server's thread ${perStep(ownAfter - own)} ms`,
      `between batches of prompts: ${(betweenMs / between).toFixed(2)} ms`,
      `first token: median ${quantile(seen.firsts, 0.5).toFixed(0)}, p99 ${quantile(seen.firsts, 0.99).toFixed(0)} ms, of each round ${lasts.join(", ")}`,
      "",
    ].join("\n"),
  );
}
