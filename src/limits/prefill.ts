// The least time of prefill: weights are read once, keys and values once for every pair of a token and an attended
// one, matmuls are computed for every token. The bottleneck changes where reading and computing take equally long:
// short prompts are limited by reading weights, longer ones by arithmetic, and very long ones by the KV cache.

import type { Device, Work } from "../api/rates.ts";
import {
  type Counting,
  type ModelCost,
  promptPairs,
  weightBytesFor,
  windowWork,
} from "./model-cost.ts";
import { type Limit, limitOf, noOps, opsSum } from "./roofline.ts";

/**
 * The way to count a prompt's work. "rough": logits of every token are computed. "exact": only the last token's, as
 * a good engine does. "shared": like exact, but the tokens share one read of the KV cache; this is the minimum.
 */
export type PrefillCount = "rough" | "exact" | "shared";

/** The count of the best program, and of the published tables. */
export const prefillCountOf: Readonly<Record<Counting, PrefillCount>> = {
  best: "shared",
  article: "exact",
};

/**
 * The work of a prompt by how it grows: work = fixed + tokens x token + pairs x pair. Layers with a window are
 * separate.
 */
interface GrowingWork {
  fixed: Work;
  token: Work;
  pair: Work;
}

function growingWork(cost: ModelCost, count: PrefillCount): GrowingWork {
  const [once, each] = count === "rough" ? [noOps, cost.output] : [cost.output, noOps];
  const shared = count === "shared";
  return {
    fixed: { bytes: weightBytesFor(cost, Number.POSITIVE_INFINITY), ...once },
    token: {
      bytes: cost.rowBytes + (shared ? cost.kvBytes : 0),
      ...opsSum([1, cost.token], [1, each]),
    },
    pair: { bytes: shared ? 0 : cost.kvBytes, ...cost.pair },
  };
}

/** The work of a prompt with `cached` tokens already in the KV cache, which are only attended to. */
export function prefillWork(
  cost: ModelCost,
  tokens: number,
  count: PrefillCount = "exact",
  cached: number = 0,
): Work {
  const { fixed, token, pair } = growingWork(cost, count);
  const pairs = promptPairs(cost, tokens, cached);
  const isShared = count === "shared";
  const sharedBytes = isShared ? cached * cost.kvBytes : 0;
  const pairsIn = (window: number) => promptPairs(cost, tokens, cached, window);
  const readIn = (window: number) => Math.min(cached + tokens, window - 1 + tokens);
  const windows = windowWork(cost, isShared ? readIn : pairsIn, pairsIn);
  const weights = weightBytesFor(cost, tokens);
  return {
    bytes: weights + tokens * token.bytes + pairs * pair.bytes + sharedBytes + windows.bytes,
    ...opsSum([1, fixed], [tokens, token], [pairs, pair], [1, windows]),
  };
}

/** The latency of the first token after a prompt. */
export function prefillLimit(
  cost: ModelCost,
  device: Device,
  tokens: number,
  count: PrefillCount = "exact",
): Limit {
  return limitOf(prefillWork(cost, tokens, count), device);
}

export interface TurningPoints {
  /** The bottleneck of a prompt of one token. */
  readonly starts: Limit["resource"];
  /** Prompt lengths, ascending, at which the limiting resource changes; none, one or two. */
  readonly points: readonly TurningPoint[];
}

export interface TurningPoint {
  /** Not an integer: the lines cross here. */
  readonly tokens: number;
  /** The bottleneck of longer prompts, up to the next point. */
  readonly after: Limit["resource"];
}

export function turningPoints(
  cost: ModelCost,
  device: Device,
  count: PrefillCount = "exact",
): TurningPoints {
  // The time of reading minus the time of computing, as a polynomial in the prompt's length.
  const { fixed, token, pair } = growingWork(cost, count);
  const [f, t, p] = [fixed, token, pair].map((work) => {
    const { bandwidthSeconds, arithmeticSeconds } = limitOf(work, device);
    return bandwidthSeconds - arithmeticSeconds;
  }) as [number, number, number];
  const [a, b] = cost.isBidirectional ? [p, t] : [p / 2, t + p / 2]; // n x n pairs, or n x (n + 1) / 2
  const roots = rootsOf(a, b, f).filter((tokens) => tokens > 1);
  let binds: Limit["resource"] = f + t + p >= 0 ? "bandwidth" : "arithmetic";
  const starts = binds;
  const points = roots.map((tokens) => {
    binds = binds === "bandwidth" ? "arithmetic" : "bandwidth";
    return { tokens, after: binds };
  });
  return { starts, points };
}

/** The real roots of a x^2 + b x + c at which its sign changes, ascending. */
function rootsOf(a: number, b: number, c: number): number[] {
  if (a === 0) return b === 0 ? [] : [-c / b];
  const discriminant = b * b - 4 * a * c;
  if (discriminant <= 0) return [];
  // Of the two textbook forms, the one that does not subtract nearly equal numbers; the other root follows from c /
  // a.
  const q = -(b + Math.sign(b || 1) * Math.sqrt(discriminant)) / 2;
  return [q / a, c / q].sort((x, y) => x - y);
}
