// Times and counts of a generation as OpenAI's `usage` and llama.cpp's `timings`.

import type { PromptProgress, SpeedLimit, Timings, TokenEvent } from "../index.ts";

/**
 * OpenAI's; several choices share one prompt, so its tokens count once.
 *
 * @param reasoningTokens Of all choices; undefined: where there is no reasoning.
 */
export function usageOf(all: readonly Timings[], reasoningTokens?: number): object {
  const prompt = all[0]?.promptTokens ?? 0;
  const generated = all.reduce((sum, { generatedTokens }) => sum + generatedTokens, 0);
  return {
    prompt_tokens: prompt,
    completion_tokens: generated,
    total_tokens: prompt + generated,
    prompt_tokens_details: cachedDetails(all[0]),
    ...(reasoningTokens !== undefined && {
      completion_tokens_details: { reasoning_tokens: reasoningTokens },
    }),
  };
}

/** Prompt tokens that were not computed, as OpenAI counts them, and ours: by where their state came from (docs/cache.md). */
export function cachedDetails(timings: Timings | undefined): object {
  if (!timings) return { cached_tokens: 0 };
  return { cached_tokens: timings.cachedTokens, cached_by_tier: tiersOf(timings) };
}

/** Cached prompt tokens by tier. */
export function tiersOf({ cachedTokens, restored }: Pick<Timings, "cachedTokens" | "restored">): {
  kv: number;
  ram: number;
  disk: number;
} {
  const { ramTokens: ram = 0, diskTokens: disk = 0 } = restored ?? {};
  return { kv: cachedTokens - ram - disk, ram, disk };
}

/**
 * llama.cpp's names. Ours are cached tokens by tier, why known ones were computed, the times of restoring, of sampling and of the whole
 * request, the limits of a measured machine, and what other programs used of it.
 */
export function timingsOf(timings: Timings): object {
  const { prompt, generation, quick } = timings.limits ?? {};
  const { restored, computedAgain, others } = timings;
  return {
    ...llamacppTimings(timings),
    cache_by_tier: tiersOf(timings),
    ...(restored && { restore_ms: restored.ms }),
    ...(computedAgain && { computed_again: computedAgain }),
    sample_n: timings.sampledTokens,
    sample_ms: timings.sampleMs,
    total_ms: timings.totalMs,
    ...(timings.speculation && {
      draft_n: timings.speculation.drafted,
      draft_n_accepted: timings.speculation.accepted,
    }),
    ...(timings.movedTokens && { cache_moved_n: timings.movedTokens }),
    ...(timings.contextShifts && {
      context_shifts: timings.contextShifts.map(({ kept, discarded }) => ({
        n_keep: kept,
        n_discard: discarded,
      })),
    }),
    ...(prompt && { prompt_limit: limitOf(prompt, quick) }),
    ...(generation && { predicted_limit: limitOf(generation, quick) }),
    ...(others && { others_cores: others.cores, cores: others.ofCores }),
  };
}

type Measured = Pick<
  Timings,
  "promptTokens" | "cachedTokens" | "promptMs" | "generatedTokens" | "generatedMs"
>;

/** The first token comes from the logits of the prompt's last batch, so it needs no batch of its own. */
function llamacppTimings(timings: Measured): object {
  const { promptTokens, cachedTokens, promptMs, generatedTokens, generatedMs } = timings;
  const read = promptTokens - cachedTokens;
  const batches = generatedTokens - 1;
  return {
    cache_n: cachedTokens,
    prompt_n: read,
    prompt_ms: promptMs,
    prompt_per_token_ms: ratio(promptMs, read),
    prompt_per_second: ratio(read * 1000, promptMs),
    predicted_n: generatedTokens,
    predicted_ms: generatedMs,
    predicted_per_token_ms: batches > 0 ? ratio(generatedMs, batches) : 0,
    predicted_per_second: batches > 0 ? ratio(batches * 1000, generatedMs) : 0,
  };
}

/** The timings of a running generation, for `timings_per_token`; it must report its progress. */
export class LiveTimings {
  readonly #now: () => number;
  readonly #measured: Measured = {
    promptTokens: 0,
    cachedTokens: 0,
    promptMs: 0,
    generatedTokens: 0,
    generatedMs: 0,
  };
  #promptDone = 0;

  constructor(now: () => number) {
    this.#now = now;
  }

  /** Takes every event of the generation. */
  see({ progress }: TokenEvent): this {
    const measured = this.#measured;
    if (progress) {
      measured.promptTokens = progress.processed;
      measured.cachedTokens = progress.cached;
      measured.promptMs = progress.ms;
      this.#promptDone = this.#now();
    } else {
      measured.generatedTokens++;
      measured.generatedMs = Math.max(0, this.#now() - this.#promptDone);
    }
    return this;
  }

  toJson(): object {
    return llamacppTimings(this.#measured);
  }
}

/** llama.cpp's `prompt_progress`. */
export function progressOf({ total, cached, processed, ms }: PromptProgress): object {
  return { total, cache: cached, processed, time_ms: Math.round(ms) };
}

/** `quick`: it rests on a measurement of half a second. */
function limitOf(
  { resource, tokensPerSecond, fraction }: SpeedLimit,
  quick: boolean | undefined,
): object {
  return { resource, tokens_per_second: tokensPerSecond, fraction, ...(quick && { quick }) };
}

/** 0 if nothing was measured: JSON has no NaN. */
function ratio(a: number, b: number): number {
  return b > 0 ? a / b : 0;
}
