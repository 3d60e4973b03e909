// The timings of a run and its share of this machine's limits, for people (a block on stderr) and for programs (the
// timings of --json, with llama.cpp's names).

import type { ComputedAgain, SpeedLimit, Timings } from "../../src/index.ts";
import { type LimitJson, limitJson, limitText } from "./machine-limits.ts";
import { perSecond, tableText } from "./text.ts";

export interface TimingsJson {
  load_ms: number;
  /** Tokens that were sampled, and the part of predicted_ms that it took. */
  sample_n: number;
  sample_ms: number;
  prompt_n: number;
  prompt_ms: number;
  prompt_per_second: number;
  /** null: nothing was computed, or the machine (a GPU) was never measured. */
  prompt_limit: LimitJson | null;
  predicted_n: number;
  predicted_ms: number;
  predicted_per_second: number;
  predicted_limit: LimitJson | null;
  /** Cores that other programs used meanwhile, and the number of cores; null: the system does not report it. */
  others_cores: number | null;
  cores: number | null;
  /** From the request to its last token, without loading. */
  total_ms: number;
  /** Prompt tokens that were not computed, by the source of their state. */
  cache_n: number;
  cache_by_tier: { kv: number; ram: number; disk: number };
  /** null: no known token was computed again. */
  computed_again: ComputedAgain | null;
  /** Tokens that were drafted, and those of them that became part of the text; absent: none were drafted. */
  draft_n?: number;
  draft_n_accepted?: number;
  /** The shifts of --context-shift, in order. */
  context_shifts?: { n_keep: number; n_discard: number }[];
}

export function timingsJson(timings: Timings): TimingsJson {
  // Cached tokens were not computed, so they do not count for the speed.
  const promptN = timings.promptTokens - timings.cachedTokens;
  const { ramTokens: ram = 0, diskTokens: disk = 0 } = timings.restored ?? {};
  return {
    load_ms: timings.loadMs,
    sample_n: timings.sampledTokens,
    sample_ms: timings.sampleMs,
    prompt_n: promptN,
    prompt_ms: timings.promptMs,
    prompt_per_second: perSecond(promptN, timings.promptMs),
    prompt_limit: limitJson("prompt", timings.limits),
    predicted_n: timings.generatedTokens,
    predicted_ms: timings.generatedMs,
    predicted_per_second: perSecond(timings.generatedTokens, timings.generatedMs),
    predicted_limit: limitJson("generation", timings.limits),
    others_cores: timings.others?.cores ?? null,
    cores: timings.others?.ofCores ?? null,
    total_ms: timings.totalMs,
    cache_n: timings.cachedTokens,
    cache_by_tier: { kv: timings.cachedTokens - ram - disk, ram, disk },
    computed_again: timings.computedAgain ?? null,
    ...(timings.speculation && {
      draft_n: timings.speculation.drafted,
      draft_n_accepted: timings.speculation.accepted,
    }),
    ...(timings.contextShifts && {
      context_shifts: timings.contextShifts.map(({ kept, discarded }) => ({
        n_keep: kept,
        n_discard: discarded,
      })),
    }),
  };
}

/** The five times that llama.cpp prints. Sampling is part of the generation's time. */
export function timingsText(timings: Timings): string {
  const { promptTokens, cachedTokens, promptMs, generatedTokens, generatedMs, limits } = timings;
  const computed = promptTokens - cachedTokens;
  const all = computed + generatedTokens;
  const row = (name: string, count: number, ms: number, limit?: SpeedLimit): string[] => [
    name,
    String(count),
    count === 1 ? "token" : "tokens",
    msText(ms),
    `${perSecond(count, ms).toFixed(1)} tokens/s`,
    limit ? limitText(limit, timings) : "",
  ];
  const { restored } = timings;
  const rows = [
    ["load time", "", "", msText(timings.loadMs), "", ""],
    row("sample time", timings.sampledTokens, timings.sampleMs),
    ...(restored
      ? [row("restore time", restored.ramTokens + restored.diskTokens, restored.ms)]
      : []),
    row("prompt time", computed, promptMs, limits?.prompt),
    row("generation time", generatedTokens, generatedMs, limits?.generation),
    ["total time", String(all), all === 1 ? "token" : "tokens", msText(timings.totalMs), "", ""],
  ];
  const { computedAgain } = timings;
  return `${tableText(rows, [1, 3, 4])}${computedAgain ? `${computedAgain.text}\n` : ""}`;
}

export function msText(ms: number): string {
  return `${ms.toFixed(1)} ms`;
}
