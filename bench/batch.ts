// Batches beside clients, and batches alone:
//
//   npm run bench:batch -- MODEL.gguf [-t 16] [--requests 2000] [--alone 100] [--parallel 32] [--rounds 15]
//   npm run bench:batch -- MODEL.gguf --rounds 0 --requests 2000 [--prompts 16,256] [--answers 8,128] [--seconds 300]
//
// beside: what a client gets while a batch runs and while none does, in turns: the time to its first token, and the tokens per second
//         after it. Medians; the bar is 10 % more for the first token.
// alone:  requests of mixed lengths, as many at a time as a batch runs (background), as many as a server's clients (foreground: what
//         `lantern bench serve` measures, without HTTP), and one after the other, where --alone takes every n-th of the same requests.
//         Tokens per second count prompts and answers. --seconds ends each wherever it is.
//
// Prompts are random tokens, so that no prefix is shared; --shared gives all of them one beginning of so many tokens.

import { availableParallelism } from "node:os";
import { basename } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { measure, median } from "../src/base/measure.ts";
import { type Model, open } from "../src/index.ts";
import { Random } from "../test/support/random.ts";
import { bench, count, counts, load, number, printTable, type Values, whole } from "./harness.ts";

const flags = {
  threads: count(availableParallelism(), "t"),
  /** 0: only beside clients. */
  requests: whole(200),
  alone: count(20),
  parallel: count(32),
  prompts: counts([16, 256]),
  answers: counts([8, 128]),
  seconds: number(),
  /** 0: only alone. */
  rounds: whole(9),
  prompt: count(128),
  answer: count(24),
  shared: whole(0),
};
type Given = Values<typeof flags>;

interface Request {
  readonly prompt: readonly number[];
  /** Tokens of the answer. */
  readonly tokens: number;
}

type Priority = "foreground" | "background";

await bench("npm run bench:batch --", "MODEL.gguf", flags, async (given, [path]) => {
  const { requests, threads, parallel, prompts, answers } = given;
  const all = mixedRequests(Math.max(requests, 64), 500, given);
  const lengths = all.map(({ prompt, tokens }) => prompt.length + tokens);
  const longest = Math.max(given.prompt + given.answer, ...lengths);
  const contextSize = 32 * Math.ceil((longest + 1) / 32);
  await using model = await open(path!, { threads, parallel, contextSize });
  const shown = `prompts of ${prompts.join(" to ")}, answers of ${answers.join(" to ")} tokens`;
  console.log(`${basename(path!)}, ${threads} threads, ${parallel} at a time, ${shown}`);
  if (given.rounds > 0) await beside(model, all, given);
  if (requests > 0) await alone(model, all.slice(0, requests), given);
  console.log(`load ${load().toFixed(1)}`);
});

/** Short prompts and answers come more often than long ones; the same in every run. */
function mixedRequests(
  count: number,
  seed: number,
  { shared, prompts, answers }: Pick<Given, "shared" | "prompts" | "answers">,
): Request[] {
  const random = new Random(seed);
  const between = ([least = 1, most = least]: readonly number[]): number =>
    Math.round(least * (most / least) ** random.unit());
  // These are in every vocabulary, and no control tokens.
  const ids = (of: number): number[] => Array.from({ length: of }, () => 300 + random.below(1200));
  const beginning = ids(shared);
  return Array.from({ length: count }, () => ({
    prompt: [...beginning, ...ids(between(prompts))],
    tokens: between(answers),
  }));
}

/** Greedy texts of random prompts repeat themselves, so that drafts would be right too often. */
function generated(model: Model, { prompt, tokens }: Request, more: object) {
  const options = { temperature: 1, seed: tokens, ignoreEos: true, maxTokens: tokens };
  return model.generate(prompt, { ...options, ...more });
}

/** Tokens of prompts and answers per second, counted as they come. A prompt counts with the first token of its answer. */
async function rateOf(
  model: Model,
  requests: readonly Request[],
  lanes: number,
  priority: Priority,
  signal?: AbortSignal,
): Promise<{ tokensPerSecond: number; answered: number }> {
  const started = performance.now();
  let [next, tokens, answered] = [0, 0, 0];
  const lane = async (): Promise<void> => {
    while (next < requests.length && !signal?.aborted) {
      const request = requests[next++]!;
      let isFirst = true;
      const options = { priority, ...(signal && { signal }) };
      for await (const _ of generated(model, request, options).tokens()) {
        tokens += isFirst ? request.prompt.length + 1 : 1;
        isFirst = false;
      }
      if (!signal?.aborted) answered++;
    }
  };
  await Promise.all(Array.from({ length: lanes }, lane));
  return { tokensPerSecond: (1000 * tokens) / (performance.now() - started), answered };
}

/** A client's answers with and without a batch that runs, in turns. */
async function beside(
  model: Model,
  requests: readonly Request[],
  { rounds, prompt, answer: tokens, parallel }: Given,
): Promise<void> {
  const endless = Array.from({ length: 100_000 }, (_, i) => requests[i % requests.length]!);
  const { samples } = await measure({
    contestants: [false, true],
    rounds,
    warmUps: 1,
    run: async (isBusy, round) => {
      const stop = new AbortController();
      const batch = isBusy && rateOf(model, endless, parallel, "background", stop.signal);
      // At another moment of a batch each time.
      await pause(isBusy ? 1500 + 137 * (round + 1) : 100);
      const seed = 7000 + 2 * round + (isBusy ? 1 : 0);
      const lengths = { shared: 0, prompts: [prompt], answers: [tokens] };
      const [request] = mixedRequests(1, seed, lengths) as [Request];
      const started = performance.now();
      let firstMs = 0;
      for await (const _ of generated(model, request, {}).tokens()) {
        firstMs ||= performance.now() - started;
      }
      const restMs = performance.now() - started - firstMs;
      stop.abort();
      await batch;
      return { firstMs, speed: (1000 * (tokens - 1)) / restMs };
    },
  });
  const [first, speed] = [
    samples.map((all) => median(all.map(({ firstMs }) => firstMs))),
    samples.map((all) => median(all.map((one) => one.speed))),
  ];
  const row = (name: string, [quiet, busy]: number[]) => [
    ...[name, quiet!.toFixed(1), busy!.toFixed(1), (busy! / quiet!).toFixed(3)],
  ];
  const rows = [row("first token, ms", first), row("tokens/s after it", speed)];
  printTable(["a client", "without a batch", "with one", "ratio"], rows);
}

async function alone(model: Model, requests: readonly Request[], given: Given): Promise<void> {
  const step = Math.max(1, Math.floor(requests.length / given.alone));
  const few = requests.filter((_, at) => at % step === 0);
  await rateOf(model, few.slice(0, 2), 1, "foreground"); // warm
  const ways: [string, readonly Request[], number, Priority][] = [
    ["one after the other", few, 1, "foreground"],
    ["as a batch", requests, given.parallel, "background"],
    ["clients at once", requests, given.parallel, "foreground"],
  ];
  const rows: (string | number)[][] = [];
  let single = 0;
  for (const [name, some, lanes, priority] of ways) {
    await model.clearCache();
    const signal = given.seconds ? AbortSignal.timeout(1000 * given.seconds) : undefined;
    const { tokensPerSecond: speed, answered } = await rateOf(model, some, lanes, priority, signal);
    single ||= speed;
    rows.push([
      name,
      `${answered} of ${some.length}`,
      speed.toFixed(1),
      (speed / single).toFixed(2),
    ]);
  }
  printTable(["requests", "answered", "tokens/s", "ratio"], rows);
}
