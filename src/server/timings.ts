// Times and counts of a generation, as OpenAI's `usage` and llama.cpp's `timings` have them.

import type { SpeedLimit, Timings } from "../index.ts";

/** OpenAI's; several choices of one prompt share it, so its tokens count once. */
export function usageOf(all: readonly Timings[]): object {
  const prompt = all[0]?.promptTokens ?? 0;
  const generated = all.reduce((sum, { generatedTokens }) => sum + generatedTokens, 0);
  return {
    prompt_tokens: prompt,
    completion_tokens: generated,
    total_tokens: prompt + generated,
    prompt_tokens_details: { cached_tokens: all[0]?.cachedTokens ?? 0 },
  };
}

/** llama.cpp's names; the limits are ours, and null on a machine that was never measured. */
export function timingsOf(timings: Timings): object {
  const { promptTokens, cachedTokens, promptMs, generatedTokens, generatedMs } = timings;
  const read = promptTokens - cachedTokens;
  return {
    cache_n: cachedTokens,
    prompt_n: read,
    prompt_ms: promptMs,
    prompt_per_token_ms: ratio(promptMs, read),
    prompt_per_second: ratio(read * 1000, promptMs),
    predicted_n: generatedTokens,
    predicted_ms: generatedMs,
    predicted_per_token_ms: ratio(generatedMs, generatedTokens),
    predicted_per_second: ratio(generatedTokens * 1000, generatedMs),
    prompt_limit: limitOf(timings.limits?.prompt),
    predicted_limit: limitOf(timings.limits?.generation),
  };
}

function limitOf(limit: SpeedLimit | undefined): object | null {
  if (!limit) return null;
  const { resource, tokensPerSecond, fraction } = limit;
  return { resource, tokens_per_second: tokensPerSecond, fraction };
}

/** 0 where nothing was measured: JSON has no NaN. */
function ratio(a: number, b: number): number {
  return b > 0 ? a / b : 0;
}
