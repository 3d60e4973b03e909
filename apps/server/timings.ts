// Times and counts of a generation as OpenAI's `usage` and llama.cpp's `timings`. Both hold numbers only, in their details as well, since
// clients add them up: all other facts stand beside them.

import type {
  ComputedAgain,
  PromptProgress,
  SpeedLimit,
  Timings,
  TokenEvent,
} from "../../src/index.ts";

/**
 * OpenAI's; several choices share one prompt, so its tokens count once.
 *
 * @param reasoningTokens The tokens of all choices; undefined: the protocol has no reasoning.
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

/** Prompt tokens that were not computed, as OpenAI counts them, and our counts by the source of their state (docs/use/cache.md). */
export function cachedDetails(timings: Timings | undefined): Record<string, number> {
  if (!timings) return { cached_tokens: 0 };
  const { kv, ram, disk } = tiersOf(timings);
  return {
    cached_tokens: timings.cachedTokens,
    cached_kv_tokens: kv,
    cached_ram_tokens: ram,
    cached_disk_tokens: disk,
  };
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

/** The fields of an answer: `timings`, and beside them the reason why cached tokens were computed again. */
export function timingFields(timings: Timings): {
  timings: Record<string, number>;
  computed_again?: ComputedAgain;
} {
  const { computedAgain } = timings;
  return { timings: timingsOf(timings), ...(computedAgain && { computed_again: computedAgain }) };
}

/**
 * llama.cpp's names. Ours are cached tokens by tier, cached tokens that were computed again, the times of restoring, of sampling and of
 * the whole request, the limits of a measured machine, and the load of other programs.
 */
function timingsOf(timings: Timings): Record<string, number> {
  const { restored, computedAgain, contextShifts, limits, others } = timings;
  const { kv, ram, disk } = tiersOf(timings);
  return {
    ...llamacppTimings(timings),
    cache_kv_n: kv,
    cache_ram_n: ram,
    cache_disk_n: disk,
    ...(restored && { restore_ms: restored.ms }),
    ...(computedAgain && { computed_again_n: computedAgain.tokens }),
    sample_n: timings.sampledTokens,
    sample_ms: timings.sampleMs,
    total_ms: timings.totalMs,
    ...(timings.speculation && {
      draft_n: timings.speculation.drafted,
      draft_n_accepted: timings.speculation.accepted,
    }),
    ...(timings.movedTokens && { cache_moved_n: timings.movedTokens }),
    ...(contextShifts && {
      context_shift_n: contextShifts.length,
      context_shift_discarded_n: contextShifts.reduce((sum, { discarded }) => sum + discarded, 0),
    }),
    ...limitOf("prompt", limits?.prompt),
    ...limitOf("predicted", limits?.generation),
    ...(limits?.quick && { limit_quick: 1 }), // a measurement of half a second
    ...(others && { others_cores: others.cores, cores: others.ofCores }),
  };
}

type Measured = Pick<
  Timings,
  "promptTokens" | "cachedTokens" | "promptMs" | "generatedTokens" | "generatedMs"
>;

/** The first token comes from the logits of the prompt's last batch, so it needs no batch of its own. */
function llamacppTimings(timings: Measured): Record<string, number> {
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

/** The machine's limit, and the share of it that was reached. */
function limitOf(phase: string, limit: SpeedLimit | undefined): Record<string, number> {
  if (!limit) return {};
  const { tokensPerSecond, fraction } = limit;
  return {
    [`${phase}_limit_per_second`]: tokensPerSecond,
    [`${phase}_limit_fraction`]: fraction,
  };
}

/** 0 if nothing was measured: JSON has no NaN. */
function ratio(a: number, b: number): number {
  return b > 0 ? a / b : 0;
}
