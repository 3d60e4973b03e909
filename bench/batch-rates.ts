// Rates of requests on one model, for bench/batch.ts: tokens of prompts and answers per second, counted as they come, so that a rate is known
// while requests still run. A prompt counts with the first token of its answer.

import type { Model } from "../src/index.ts";
import { type BatchRequest, inLanes } from "./batch-requests.ts";

export interface RateOptions {
  readonly lanes: number;
  readonly priority: "foreground" | "background";
  /** Ends then, wherever the requests are. */
  readonly seconds?: number | undefined;
  /** Called every ten seconds. */
  readonly onProgress?: (rate: Rate) => void;
}

export interface Rate {
  readonly tokensPerSecond: number;
  /** Requests that were answered to their end. */
  readonly answered: number;
  readonly seconds: number;
}

export async function rateOf(
  model: Model,
  requests: readonly BatchRequest[],
  { lanes, priority, seconds, onProgress }: RateOptions,
): Promise<Rate> {
  await model.clearCache();
  const stop = new AbortController();
  const started = performance.now();
  let [tokens, answered] = [0, 0];
  const now = (): Rate => {
    const took = (performance.now() - started) / 1000;
    return { tokensPerSecond: tokens / took, answered, seconds: took };
  };
  let last: Rate | undefined;
  const end = seconds
    ? setTimeout(() => {
        last = now();
        stop.abort();
      }, 1000 * seconds)
    : undefined;
  const progress = setInterval(() => onProgress?.(now()), 10_000);
  await inLanes(requests, lanes, async ({ prompt, tokens: maxTokens }) => {
    // Greedy texts of random prompts repeat themselves, so that drafts would be right too often.
    const sampling = { temperature: 1, seed: maxTokens, ignoreEos: true, maxTokens, priority };
    let count = 0;
    for await (const _ of model.generate(prompt, { ...sampling, signal: stop.signal }).tokens()) {
      tokens += count++ === 0 ? prompt.length + 1 : 1;
    }
    if (!stop.signal.aborted) answered++;
    return !stop.signal.aborted;
  });
  clearTimeout(end);
  clearInterval(progress);
  return last ?? now();
}
