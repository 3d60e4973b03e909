// The texts of --explain about the cache: budgets and costs when a model is loaded, and the source of a prompt's state when it was answered.

import type { CacheStatus, Timings } from "../../src/index.ts";
import { bytesText, perSecond, plural } from "./text.ts";
import { msText } from "./timings.ts";

/** A speed over fewer tokens means little. */
const FEWEST_TIMED = 16;

/** The copies outside of the KV cache, and their cost. */
export function cachePlan(cache: CacheStatus): string {
  const { ram, disk, bytesPerToken } = cache;
  const token =
    bytesPerToken > 0
      ? `a token takes ${bytesText(bytesPerToken)} in the KV cache and in each copy`
      : "no layer keeps all tokens, so a text takes checkpoints only";
  const budgets = [
    ...(ram.budgetBytes > 0 ? [`up to ${bytesText(ram.budgetBytes)} in memory (--cache-ram)`] : []),
    ...(disk.budgetBytes > 0
      ? [`up to ${bytesText(disk.budgetBytes)} on disk, of all models (--cache-disk)`]
      : []),
  ];
  const copies = budgets.length > 0 ? budgets.join(", ") : "none (--cache-ram, --cache-disk)";
  return lines([`copies of state: ${copies}`, `  ${token}`, ...checkpointText(cache)]);
}

/** The source of a prompt's state, and the time that it saved. */
export function promptCache(timings: Timings, cache: CacheStatus): string {
  const { promptTokens, cachedTokens, promptMs, restored, computedAgain } = timings;
  const { ramTokens = 0, diskTokens = 0, ms = 0 } = restored ?? {};
  const inKv = cachedTokens - ramTokens - diskTokens;
  const computed = promptTokens - cachedTokens;
  const took = restored ? ` (${msText(ms)})` : "";
  const speed = computed >= FEWEST_TIMED ? perSecond(computed, promptMs) : 0;
  const saved =
    speed > 0 && cachedTokens > 0
      ? `, which would have taken ${msText((cachedTokens / speed) * 1000)} to compute`
      : "";
  const { ram, disk } = cache;
  const held = `memory holds ${bytesText(ram.bytes)} of ${bytesText(ram.budgetBytes)}, disk ${bytesText(disk.bytes)} of ${bytesText(disk.budgetBytes)}`;
  return lines([
    `cache: of ${plural(promptTokens, "prompt token")}, ${inKv} were in the KV cache, ${ramTokens} came from memory and ${diskTokens} from disk${took}${saved}; ${computed} were computed`,
    `  computed again: ${computedAgain ? computedAgain.text : "nothing that was known"}`,
    ...(ram.budgetBytes + disk.budgetBytes > 0 ? [`  copies: ${held}`] : []),
    ...dearText(cache),
    ...checkpointText(cache),
  ]);
}

function dearText({ dear }: CacheStatus): string[] {
  if (!dear) return [];
  const { computeMs, copyMs } = dear;
  return [
    `  no copies are made: computing 1,000 tokens takes ${msText(computeMs)}, copying their state ${msText(copyMs)}`,
  ];
}

function checkpointText({ checkpoints }: CacheStatus): string[] {
  if (!checkpoints) return [];
  const { tokens, bytes, why, computeMs, copyMs } = checkpoints;
  const cost = [
    ...(copyMs === undefined ? [] : [`copying takes ${msText(copyMs)}`]),
    ...(computeMs === undefined ? [] : [`computing ${tokens} tokens again ${msText(computeMs)}`]),
  ];
  const compared = cost.length > 0 ? `: ${cost.join(", ")}` : "";
  return [
    `  checkpoints of windows and recurrent state: every ${tokens} tokens, ${bytesText(bytes)} each${compared}; not closer: ${why}`,
  ];
}

function lines(all: readonly string[]): string {
  return all.map((line) => `${line}\n`).join("");
}
