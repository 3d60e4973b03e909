// Measures the time of a loaded model for a generated token and for a prompt: made-up batches, the least of some times.

import type { Backend } from "../backends/backend.ts";
import { Batch, KV_BLOCK_TOKENS } from "../graph/batch.ts";
import type { Plan } from "../graph/plan.ts";

/** Generated tokens that are timed, and the tokens of a prompt, which take no longer than that where one token is slow. */
const TOKENS = 12;
const MOST_PROMPT = 256;
const PROMPT_MS = 1000;

/** ms of a generated token, and of each token of a prompt. */
export interface TrialTimes {
  readonly token: number;
  readonly prompt: number;
}

/** For the entries of a file. */
export function areTrialTimes(times: unknown): times is TrialTimes {
  const { token, prompt } = (times ?? {}) as Partial<TrialTimes>;
  return [token, prompt].every((ms) => typeof ms === "number" && ms > 0);
}

export interface Trial {
  readonly backend: Backend;
  readonly plan: Plan;
  /** The tokens of all batches, again and again. Default: one that every vocabulary has. */
  readonly tokens?: readonly number[];
  now(): number;
  /** Throws if the load was aborted. */
  check(): void | Promise<void>;
}

/** The least ms of some tokens. */
export async function trialTokenMs(trial: Trial): Promise<number> {
  const times: number[] = [];
  for (let position = 0; position < TOKENS; position++) {
    times.push(await batchMs(trial, position, 1));
  }
  return Math.min(...times);
}

/** The number of prompt tokens that are timed if a token takes `tokenMs` ms. */
export function trialPromptTokens({ limits }: Plan, tokenMs: number): number {
  const most = Math.min(limits.maxTokens, MOST_PROMPT);
  return Math.max(1, Math.min(most, Math.floor(PROMPT_MS / tokenMs)));
}

/** The least ms of a token of a prompt of `tokens` tokens. */
export async function trialPromptMs(trial: Trial, tokens: number): Promise<number> {
  const { maxTokens } = trial.plan.limits;
  const times: number[] = [];
  // The first finishes compiling kernels.
  for (let i = 0; i < 3; i++) {
    let ms = 0;
    // A model that was loaded later may have smaller batches.
    for (let from = 0; from < tokens; from += maxTokens) {
      ms += await batchMs(trial, from, Math.min(maxTokens, tokens - from));
    }
    times.push(ms);
  }
  return Math.min(...times) / tokens;
}

/** Only the batches before it are in the cache. */
async function batchMs(
  { backend, plan, tokens = [1], now, check }: Trial,
  position: number,
  count: number,
): Promise<number> {
  await check();
  const batch = new Batch(plan.limits);
  const blocks = Math.ceil((position + count) / KV_BLOCK_TOKENS);
  const table = { blocks: Int32Array.from({ length: blocks }, (_, i) => i) };
  for (let i = 0; i < count; i++) {
    const at = position + i;
    batch.add(tokens[at % tokens.length]!, at, table, i === count - 1);
  }
  const started = now();
  await backend.run(batch, { phase: count === 1 ? "generation" : "prompt" });
  return now() - started;
}
