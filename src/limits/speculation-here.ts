// Predicts the gain of speculative decoding from batch times measured on this machine (the tune file's matmuls), and compares
// it with measured runs. speculative.ts has the limit that bandwidth and arithmetic allow. The difference of both is the loss
// of the kernels for few tokens. Arithmetic, and the parsing of bench:speculate's output.

import { UsageError } from "../base/errors.ts";
import { tokensPerRound } from "./speculative.ts";

/** The most tokens of a batch that are tabulated. */
const MOST_TOKENS = 16;

/** Milliseconds of a batch by its tokens, all with logits; undefined: not measured. */
export type BatchTimes = (tokens: number) => number | undefined;

export interface SpeculationHere {
  readonly threads: number;
  /** Milliseconds of a batch of 1, 2, ... 16 tokens. */
  readonly batchMs: readonly number[];
  /** Milliseconds of a drafted token. */
  readonly draftMs: number;
  /** The gain by the number of drafted tokens, from 0 to 15. */
  readonly curve: readonly GainHere[];
  /** The best of them; 0: speculation does not pay here. */
  readonly best: GainHere;
  /** Measured gains, beside the gains that these times predict. */
  readonly runs: readonly RunHere[];
}

interface GainHere {
  readonly draftTokens: number;
  readonly tokensPerRound: number;
  readonly speedup: number;
}

/** A line of bench:speculate. */
export interface MeasuredGain {
  readonly label: string;
  readonly threads: number;
  /** Tokens per second, relative to those without speculation. */
  readonly speedup: number;
  /** Tokens of the text for each batch, and tokens of each batch: those and the ones that were wrong. */
  readonly keptTokens: number;
  readonly batchTokens: number;
  /** The time of a drafted token as a fraction of the model's own. */
  readonly draftShare: number;
}

interface RunHere extends MeasuredGain {
  /** Predicted by the tune file's times of this number of threads; undefined: it has none. */
  readonly predicted: number | undefined;
}

/** `draftMs`: of a drafted token. undefined: sizes up to 16 were not measured. */
export function speculationHere(
  acceptance: number,
  threads: number,
  times: BatchTimes,
  draftMs: number,
  runs: readonly RunHere[],
): SpeculationHere | undefined {
  const batchMs = Array.from({ length: MOST_TOKENS }, (_, i) => times(i + 1));
  if (!batchMs.every((ms) => ms !== undefined)) return undefined;
  const curve = batchMs.map((ms, draftTokens) => {
    const kept = tokensPerRound(acceptance, draftTokens);
    const speedup = (kept * batchMs[0]!) / (ms + draftTokens * draftMs);
    return { draftTokens, tokensPerRound: kept, speedup };
  });
  const best = curve.reduce((a, b) => (b.speedup > a.speedup ? b : a));
  return { threads, batchMs, draftMs, curve, best, runs };
}

/** The gain that these batch times predict for a run. */
export function predictedRun(run: MeasuredGain, times: BatchTimes | undefined): RunHere {
  const one = times?.(1);
  const [low, high] = [Math.floor(run.batchTokens), Math.ceil(run.batchTokens)];
  const [from, to] = [times?.(low), times?.(high)];
  if (one === undefined || from === undefined || to === undefined) {
    return { ...run, predicted: undefined };
  }
  // Sizes of batches vary around their mean, and times lie nearly on a line.
  const batch = from + (to - from) * (run.batchTokens - low);
  const round = batch / one + (run.batchTokens - 1) * run.draftShare;
  return { ...run, predicted: run.keptTokens / round };
}

/** Whether this may be the output of `bench:speculate --json`: a list of lines. */
export function isGains(json: unknown): json is readonly unknown[] {
  return Array.isArray(json) && json.length > 0;
}

/** The lines with the fields that a prediction needs; a UsageError for anything else. */
export function gainsFromBench(json: readonly unknown[], file: string): MeasuredGain[] {
  return json.map((line, index) => {
    const { model, draft, case: name, ...rest } = (line ?? {}) as Record<string, unknown>;
    const number = (key: string): number => {
      const value = rest[key];
      if (typeof value === "number" && value > 0 && Number.isFinite(value)) return value;
      throw notGains(file, `[${index}] without a number above 0 as "${key}"`);
    };
    const costs = rest.costs as { plain?: unknown; draft?: unknown } | undefined;
    const share = Number(costs?.draft) / Number(costs?.plain);
    return {
      label: [model, draft, name].map(String).join(", "),
      threads: number("threads"),
      speedup: number("ratio"),
      keptTokens: number("batchTokens"),
      batchTokens: number("batchSize"),
      draftShare: Number.isFinite(share) ? share : 0,
    };
  });
}

function notGains(file: string, found: string): UsageError {
  return new UsageError(
    `measured: ${file}: got ${found}, expected what "lantern bench --json" or "npm run bench:speculate -- MODEL.gguf --json" prints`,
  );
}
