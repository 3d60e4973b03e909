// Batches beside clients, and batches alone:
//
//   npm run bench:batch -- MODEL.gguf [-t 16] [--requests 2000] [--alone 100] [--parallel 32] [--rounds 15] [--peer] [--json]
//
// beside: what a client gets while a batch runs and while none does, in turns: the time to its first token, and the tokens per second
//         after it. Medians; the bar is 10 % more for the first token.
// alone:  requests of mixed lengths, as many at a time as a batch runs (background), one after the other, and as many at a time as a
//         server's clients (foreground: what `bench:serve` measures). Where one after the other takes too long, --alone takes every n-th
//         of the same requests. Tokens per second count prompts and answers.
// --peer: the same requests by llama.cpp, through node-llama-cpp with as many sequences.
//
// Prompts are random tokens, so that no prefix is shared; --shared gives all of them one beginning of so many tokens.

import { cpus, loadavg } from "node:os";
import { basename } from "node:path";
import { Command } from "commander";
import { type Model, open } from "../src/index.ts";
import { type BatchRequest, inLanes, median, mixedRequests } from "./batch-requests.ts";

interface Flags {
  threads?: number;
  requests: number;
  alone: number;
  parallel: number;
  rounds: number;
  prompt: number;
  answer: number;
  shared: number;
  peer?: boolean;
  json?: boolean;
}

await new Command("bench:batch")
  .argument("<model>", "a GGUF file")
  .option("-t, --threads <n>", "threads", Number)
  .option("--requests <n>", "requests of the batch; 0: only beside clients", Number, 200)
  .option("--alone <n>", "of them, how many are answered one after the other", Number, 20)
  .option("--parallel <n>", "lines at a time", Number, 32)
  .option("--rounds <n>", "rounds beside clients; 0: none", Number, 9)
  .option("--prompt <n>", "tokens of a client's prompt", Number, 128)
  .option("--answer <n>", "tokens of a client's answer", Number, 24)
  .option("--shared <n>", "tokens that all prompts of the batch begin with", Number, 0)
  .option("--peer", "llama.cpp too (LANTERN_PEERS)")
  .option("--json", "one JSON object a line")
  .action(main)
  .parseAsync();

async function main(path: string, flags: Flags): Promise<void> {
  const { parallel, requests } = flags;
  const threads = flags.threads ?? cpus().length;
  const say = (what: string, numbers: Readonly<Record<string, number>>): void => {
    const facts = { ...numbers, load: Number(loadavg()[0]!.toFixed(1)) };
    if (flags.json) console.log(JSON.stringify({ what, ...facts }));
    else {
      const shown = Object.entries(facts).map(([name, value]) => `${name} ${value}`);
      console.log(`${what}: ${shown.join(", ")}`);
    }
  };
  const all = mixedRequests(Math.max(requests, 64), 500, flags.shared);
  {
    await using model = await open(path, { threads, parallel, contextSize: 1024 });
    if (!flags.json) console.log(`${basename(path)}, ${threads} threads, ${parallel} at a time`);
    if (flags.rounds > 0) say("beside", await beside(model, all, flags));
    if (requests > 0) say("alone", await alone(model, all.slice(0, requests), flags));
  }
  if (!flags.peer) return;
  const { peerSpeed } = await import("./batch-peer.ts");
  const speed = await peerSpeed(path, threads, parallel, all.slice(0, requests));
  say("llama.cpp", { tokens_per_second: rounded(speed) });
}

/** One answer; resolves with its milliseconds to the first token and its tokens per second after that. */
async function ask(
  model: Model,
  { prompt, tokens }: BatchRequest,
): Promise<{ firstMs: number; speed: number }> {
  const started = performance.now();
  let firstMs = 0;
  let count = 0;
  const options = { temperature: 1, seed: 1, ignoreEos: true, maxTokens: tokens };
  for await (const _ of model.generate(prompt, options).tokens()) {
    if (count++ === 0) firstMs = performance.now() - started;
  }
  const restMs = performance.now() - started - firstMs;
  return { firstMs, speed: (1000 * (count - 1)) / restMs };
}

/** A client's answers with and without a batch that runs, in turns. */
async function beside(
  model: Model,
  requests: readonly BatchRequest[],
  { rounds, parallel, prompt, answer: answerTokens }: Flags,
): Promise<Record<string, number>> {
  const first: Record<"quiet" | "busy", number[]> = { quiet: [], busy: [] };
  const speed: Record<"quiet" | "busy", number[]> = { quiet: [], busy: [] };
  let lines = 0;
  for (let round = -1; round < rounds; round++) {
    for (const which of ["quiet", "busy"] as const) {
      const stop = new AbortController();
      const batch = which === "busy" ? runForever(model, requests, parallel, stop.signal) : 0;
      // At another moment of a batch each time.
      await pause(which === "busy" ? 1500 + 137 * (round + 1) : 100);
      const random = mixedRequests(1, 7000 + 2 * round + (which === "busy" ? 1 : 0), 0, prompt);
      const answer = await ask(model, { ...random[0]!, tokens: answerTokens });
      stop.abort();
      lines += await batch;
      if (round < 0) continue; // everything is warm now
      first[which].push(answer.firstMs);
      speed[which].push(answer.speed);
    }
  }
  const [quiet, busy] = [median(first.quiet), median(first.busy)];
  return {
    rounds,
    first_token_ms: rounded(quiet),
    first_token_ms_with_batch: rounded(busy),
    first_token_ratio: rounded(busy / quiet, 3),
    tokens_per_second: rounded(median(speed.quiet)),
    tokens_per_second_with_batch: rounded(median(speed.busy)),
    batch_tokens: lines,
  };
}

/** Background answers until the signal; resolves with their tokens. */
async function runForever(
  model: Model,
  requests: readonly BatchRequest[],
  parallel: number,
  signal: AbortSignal,
): Promise<number> {
  let tokens = 0;
  const endless = Array.from({ length: 100_000 }, (_, i) => requests[i % requests.length]!);
  await inLanes(endless, parallel, async (request) => {
    if (signal.aborted) return false;
    tokens += (await answer(model, request, "background", signal)).tokenIds.length;
    return true;
  });
  return tokens;
}

async function answer(
  model: Model,
  { prompt, tokens }: BatchRequest,
  priority: "foreground" | "background",
  signal?: AbortSignal,
) {
  // Greedy texts of random prompts repeat themselves, so that drafts would be right too often.
  const options = { temperature: 1, seed: tokens, ignoreEos: true, maxTokens: tokens, priority };
  return await model.generate(prompt, { ...options, ...(signal && { signal }) }).result;
}

/** Tokens per second of a batch, of clients at once, and one after the other. */
async function alone(
  model: Model,
  requests: readonly BatchRequest[],
  { parallel, alone: few }: Flags,
): Promise<Record<string, number>> {
  const timed = async (
    some: readonly BatchRequest[],
    lanes: number,
    priority: "foreground" | "background",
  ): Promise<number> => {
    await model.clearCache();
    const started = performance.now();
    await inLanes(some, lanes, async (request) => {
      await answer(model, request, priority);
      return true;
    });
    const tokens = some.reduce((sum, one) => sum + one.prompt.length + one.tokens, 0);
    return (1000 * tokens) / (performance.now() - started);
  };
  const step = Math.max(1, Math.floor(requests.length / few));
  const sample = requests.filter((_, i) => i % step === 0);
  await timed(sample.slice(0, 2), 1, "foreground"); // warm
  const single = await timed(sample, 1, "foreground");
  const batch = await timed(requests, parallel, "background");
  const clients = await timed(requests, parallel, "foreground");
  return {
    requests: requests.length,
    one_after_the_other: rounded(single),
    batch: rounded(batch),
    clients_at_once: rounded(clients),
    batch_to_single: rounded(batch / single, 2),
    batch_to_clients: rounded(batch / clients, 2),
  };
}

function rounded(value: number, digits = 1): number {
  return Number(value.toFixed(digits));
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
