// Batches beside clients, and batches alone:
//
//   npm run bench:batch -- MODEL.gguf [-t 16] [--requests 2000] [--alone 100] [--parallel 32] [--rounds 15] [--peer] [--json]
//   npm run bench:batch -- MODEL.gguf --rounds 0 --requests 2000 --parallel 16,32,64 [--prompts 16,256] [--answers 8,128] [--seconds 300]
//
// beside: what a client gets while a batch runs and while none does, in turns: the time to its first token, and the tokens per second
//         after it. Medians; the bar is 10 % more for the first token.
// alone:  requests of mixed lengths, as many at a time as a batch runs (background), one after the other, and as many at a time as a
//         server's clients (foreground: what `bench:serve` measures, without HTTP). Where one after the other takes too long, --alone takes
//         every n-th of the same requests. Tokens per second count prompts and answers. Several numbers
//         for --parallel: each is tried for a few seconds first, and batch and clients get the one that was fastest for each.
//         --seconds and --clients-seconds end them wherever they are.
// --peer: the same requests by llama.cpp, through node-llama-cpp with as many sequences; --peer-requests takes every n-th of them.
//
// Prompts are random tokens, so that no prefix is shared; --shared gives all of them one beginning of so many tokens.

import { availableParallelism } from "node:os";
import { basename } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { measure, median } from "../src/base/measure.ts";
import { type Model, open } from "../src/index.ts";
import { type Rate, rateOf } from "./batch-rates.ts";
import { type BatchRequest, inLanes, mixedRequests } from "./batch-requests.ts";
import {
  bench,
  count,
  counts,
  isOn,
  load,
  number,
  rounded,
  type Values,
  whole,
} from "./harness.ts";

const flags = {
  threads: count(availableParallelism(), "t"),
  /** 0: only beside clients. */
  requests: whole(200),
  alone: count(20),
  parallel: counts([32]),
  prompts: counts([16, 256]),
  answers: counts([8, 128]),
  seconds: number(),
  clientsSeconds: number(),
  /** 0: only alone. */
  rounds: whole(9),
  prompt: count(128),
  answer: count(24),
  shared: whole(0),
  peer: isOn,
  peerRequests: count(),
  json: isOn,
};
type Given = Values<typeof flags>;

/** How long each number of lanes is tried. */
const trySeconds = 4;

type Say = (what: string, facts: Readonly<Record<string, number>>) => void;

await bench("npm run bench:batch --", "MODEL.gguf", flags, async (given, [path]) => {
  const { requests, threads, prompts, answers, shared } = given;
  const parallel = Math.max(...given.parallel);
  const say: Say = (what, numbers) => {
    const facts = { ...numbers, load: rounded(load()) };
    if (given.json) return console.log(JSON.stringify({ what, ...facts }));
    const shown = Object.entries(facts).map(([name, value]) => `${name} ${value}`);
    console.log(`${what}: ${shown.join(", ")}`);
  };
  const all = mixedRequests(Math.max(requests, 64), 500, { shared, prompts, answers });
  const lengths = all.map(({ prompt, tokens }) => prompt.length + tokens);
  const longest = Math.max(given.prompt + given.answer, ...lengths);
  {
    const contextSize = 32 * Math.ceil((longest + 1) / 32);
    await using model = await open(path!, { threads, parallel, contextSize });
    if (!given.json) {
      const lengths = `prompts of ${prompts.join(" to ")}, answers of ${answers.join(" to ")} tokens`;
      console.log(`${basename(path!)}, ${threads} threads, ${parallel} at a time, ${lengths}`);
    }
    if (given.rounds > 0) say("beside", await beside(model, all, parallel, given));
    if (requests > 0) say("alone", await alone(model, all.slice(0, requests), given, say));
  }
  if (!given.peer) return;
  const { peerSpeed } = await import("./batch-peer.ts");
  const few = everyNth(all.slice(0, requests), given.peerRequests ?? requests);
  const speed = await peerSpeed(path!, threads, parallel, few);
  say("llama.cpp", { requests: few.length, tokens_per_second: rounded(speed) });
});

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
  parallel: number,
  { rounds, prompt, answer: tokens }: Given,
): Promise<Record<string, number>> {
  let lines = 0;
  const { samples } = await measure({
    contestants: ["quiet", "busy"] as const,
    rounds,
    warmUps: 1,
    run: async (which, round) => {
      const stop = new AbortController();
      const batch = which === "busy" ? runForever(model, requests, parallel, stop.signal) : 0;
      // At another moment of a batch each time.
      await pause(which === "busy" ? 1500 + 137 * (round + 1) : 100);
      const seed = 7000 + 2 * round + (which === "busy" ? 1 : 0);
      const random = mixedRequests(1, seed, { prompts: [prompt, prompt] });
      const answer = await ask(model, { ...random[0]!, tokens });
      stop.abort();
      lines += await batch;
      return answer;
    },
  });
  const [first, second] = samples.map((all) => ({
    ms: median(all.map(({ firstMs }) => firstMs)),
    speed: median(all.map(({ speed }) => speed)),
  }));
  const [quiet, busy] = [first!, second!];
  return {
    rounds,
    first_token_ms: rounded(quiet.ms),
    first_token_ms_with_batch: rounded(busy.ms),
    first_token_ratio: rounded(busy.ms / quiet.ms, 3),
    tokens_per_second: rounded(quiet.speed),
    tokens_per_second_with_batch: rounded(busy.speed),
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
    tokens += (await backgroundAnswer(model, request, signal)).tokenIds.length;
    return true;
  });
  return tokens;
}

async function backgroundAnswer(
  model: Model,
  { prompt, tokens }: BatchRequest,
  signal: AbortSignal,
) {
  // Greedy texts of random prompts repeat themselves, so that drafts would be right too often.
  const options = { temperature: 1, seed: tokens, ignoreEos: true, maxTokens: tokens, signal };
  return await model.generate(prompt, { ...options, priority: "background" }).result;
}

/** Tokens per second of a batch, of clients at once, and one after the other. Each is said as soon as it is known. */
async function alone(
  model: Model,
  requests: readonly BatchRequest[],
  { parallel, alone: few, seconds, clientsSeconds }: Given,
  say: Say,
): Promise<Record<string, number>> {
  const shown = ({ tokensPerSecond, answered, seconds: took }: Rate) => ({
    ...{ answered, seconds: rounded(took), tokens_per_second: rounded(tokensPerSecond) },
  });
  const sample = everyNth(requests, few);
  await rateOf(model, sample.slice(0, 2), { lanes: 1, priority: "foreground" }); // warm
  const single = await rateOf(model, sample, { lanes: 1, priority: "foreground" });
  say("one after the other", { requests: sample.length, ...shown(single) });

  const best = { background: parallel[0]!, foreground: parallel[0]! };
  const tried = { background: 0, foreground: 0 };
  for (const lanes of parallel.length > 1 ? parallel : []) {
    for (const priority of ["foreground", "background"] as const) {
      const rate = await rateOf(model, requests, { lanes, priority, seconds: trySeconds });
      say(priority === "foreground" ? "try: clients" : "try: batch", { lanes, ...shown(rate) });
      if (rate.tokensPerSecond <= tried[priority]) continue;
      [tried[priority], best[priority]] = [rate.tokensPerSecond, lanes];
    }
  }
  const whole = (what: string, priority: keyof typeof best, seconds: number | undefined) => {
    const lanes = best[priority];
    const onProgress = (rate: Rate): void =>
      say(`  ${what}, so far`, { lanes, of: requests.length, ...shown(rate) });
    return rateOf(model, requests, { lanes, priority, seconds, onProgress });
  };
  const batch = await whole("batch", "background", seconds);
  say("batch", { lanes: best.background, of: requests.length, ...shown(batch) });
  const clients = await whole("clients at once", "foreground", clientsSeconds);
  say("clients at once", { lanes: best.foreground, of: requests.length, ...shown(clients) });
  return {
    requests: requests.length,
    answered: batch.answered,
    one_after_the_other: rounded(single.tokensPerSecond),
    batch: rounded(batch.tokensPerSecond),
    clients_at_once: rounded(clients.tokensPerSecond),
    batch_to_single: rounded(batch.tokensPerSecond / single.tokensPerSecond, 2),
    batch_to_clients: rounded(batch.tokensPerSecond / clients.tokensPerSecond, 2),
  };
}

/** About `count` of them, from all over the list. */
function everyNth<T>(list: readonly T[], count: number): T[] {
  const step = Math.max(1, Math.floor(list.length / count));
  return list.filter((_, at) => at % step === 0);
}
