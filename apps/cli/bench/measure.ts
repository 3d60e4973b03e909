// The measurements of a benchmark: the speed of prefill and of decode, the same for Lantern alone (commands/bench.ts)
// and beside another engine (bench/peers.ts of the repository). docs/use/benchmarks.md explains them.

import {
  AbortedError,
  type GenerationResult,
  type Model,
  type Timings,
} from "../../../src/index.ts";

/** An engine whose speed is measured. Both methods return tokens per second. */
export interface Contestant {
  /** Prefill of these tokens, up to the logits of the last one; `before` are in the KV cache already (default none). */
  prompt(tokens: readonly number[], before?: readonly number[]): Promise<number>;
  /** Decodes `count` tokens greedily, one after another, after a context of `before` and the one token `first`. */
  generate(first: number, count: number, before?: readonly number[]): Promise<number>;
}

/** An end-of-text token does not end a measurement, and greedy sampling costs next to nothing. */
const plain = { temperature: 0, ignoreEos: true } as const;

/**
 * `seen` receives the timings of every run. `speculates`: whether tokens are drafted as the model was opened to do. Not by default:
 * greedy text after a random token often repeats itself, and the speed would be that of the text.
 */
export function lanternContestant(
  model: Model,
  signal?: AbortSignal,
  seen?: (timings: Timings) => void,
  speculates = false,
): Contestant {
  const options = {
    ...plain,
    ...(signal && { signal }),
    ...(!speculates && { speculate: false }),
  };
  /** Computes these tokens, unless they are in the cache. */
  const fill = async (before: readonly number[]): Promise<void> => {
    if (before.length > 0) await run(model, before, { ...options, maxTokens: 1 });
  };
  return {
    async prompt(tokens, before = []) {
      await fill(before);
      const all = [...before, ...tokens];
      const { timings } = await run(model, all, { ...options, maxTokens: 1 });
      seen?.(timings);
      const { promptTokens, cachedTokens, promptMs } = timings;
      if (before.length === 0 && cachedTokens > 0) {
        throw new Error(`${cachedTokens} tokens of a measured prompt were remembered`);
      }
      checkDepth(timings, before);
      return rate(promptTokens - cachedTokens, promptMs);
    },
    async generate(first, count, before = []) {
      await fill(before);
      // The first token comes from the prompt's logits: n batches give n + 1 tokens.
      const all = [...before, first];
      const { timings } = await run(model, all, { ...options, maxTokens: count + 1 });
      seen?.({ ...timings, generatedTokens: count });
      checkDepth(timings, before);
      return rate(count, timings.generatedMs);
    },
  };
}

/** Recurrent state is kept at block boundaries only, so a few of the last tokens before may be computed again. */
const mostRecomputed = 32;

function checkDepth({ cachedTokens }: Timings, before: readonly number[]): void {
  if (cachedTokens >= before.length - mostRecomputed) return;
  throw new Error(
    `of ${before.length} tokens before a measured prompt only ${cachedTokens} were in the KV cache`,
  );
}

async function run(
  model: Model,
  tokens: readonly number[],
  options: Parameters<Model["generate"]>[1],
): Promise<GenerationResult> {
  const result = await model.generate(tokens, options).result;
  if (result.stopReason === "aborted") throw new AbortedError("the benchmark");
  return result;
}

function rate(count: number, ms: number): number {
  return (count * 1000) / ms;
}

/** The context size that the measurements need. */
export function contextFor(promptTokens: number, generatedTokens: number): number {
  return Math.ceil(Math.max(promptTokens + 2, generatedTokens + 3) / 32) * 32;
}

/** A source of token ids: different every time, so that no cache helps, but the same in every run. */
export function tokenSource(vocabSize: number): (count: number) => number[] {
  let state = 0x2f6e2b1;
  return (count) =>
    Array.from({ length: count }, () => {
      state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
      return Math.floor((state / 2 ** 32) * vocabSize);
    });
}

/** "42.5": at least three digits. */
export function rateText(value: number): string {
  return value.toFixed(value >= 100 ? 0 : value >= 10 ? 1 : 2);
}
