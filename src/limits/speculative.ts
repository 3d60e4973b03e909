// Speculative decoding: a cheap draft proposes some tokens, the model verifies them in one batch, and keeps those
// before the first that it would not have chosen, plus one of its own. Verifying several tokens reads the weights
// once, so it is nearly free as long as bandwidth is the limit. (Leviathan, Kalman, Matias 2023: "Fast Inference from
// Transformers via Speculative Decoding"; their alpha is `acceptance`, their gamma is `draftTokens`, their c is the
// draft's cost.)

import type { Device, Work } from "../api/rates.ts";
import { UsageError } from "../base/errors.ts";
import { decodeLimit } from "./decode.ts";
import { type ModelCost, pairsOf, weightBytesFor, windowWork } from "./model-cost.ts";
import { type Limit, limitOf, opsSum } from "./roofline.ts";

export interface Speculation {
  /** Probability that a proposed token is kept, 0 to 1. */
  readonly acceptance: number;
  /** Tokens that the draft proposes in a round. */
  readonly draftTokens: number;
  /** The draft model, or the time of a drafted token as a fraction of the model's own. */
  readonly draft: ModelCost | number;
}

export interface SpeculationLimit {
  readonly draftTokens: number;
  /** Average number of tokens kept per round, at least 1. */
  readonly tokensPerRound: number;
  readonly draftMs: number;
  readonly checkMs: number;
  /** The bottleneck of verification. */
  readonly resource: Limit["resource"];
  readonly msPerToken: number;
  /** Without speculation. */
  readonly plainMs: number;
  readonly speedup: number;
}

/** Average number of tokens kept per round: 1 + a + a^2 + ... + a^n. */
export function tokensPerRound(acceptance: number, draftTokens: number): number {
  if (acceptance === 1) return draftTokens + 1;
  return (1 - acceptance ** (draftTokens + 1)) / (1 - acceptance);
}

/** The limit with `before` tokens in the cache. */
export function speculationLimit(
  cost: ModelCost,
  device: Device,
  before: number,
  speculation: Speculation,
): SpeculationLimit {
  checkSpeculation(speculation);
  const { acceptance, draftTokens, draft } = speculation;
  const plainMs = decodeLimit(cost, device, before + 1).seconds * 1000;
  const draftStepMs =
    typeof draft === "number"
      ? draft * plainMs
      : decodeLimit(draft, device, before + 1).seconds * 1000;
  const check = limitOf(checkWork(cost, before, draftTokens + 1), device);
  const kept = tokensPerRound(acceptance, draftTokens);
  const draftMs = draftTokens * draftStepMs;
  const checkMs = check.seconds * 1000;
  const msPerToken = (draftMs + checkMs) / kept;
  return {
    draftTokens,
    tokensPerRound: kept,
    draftMs,
    checkMs,
    resource: check.resource,
    msPerToken,
    plainMs,
    speedup: plainMs / msPerToken,
  };
}

/** The work of a batch with logits for `tokens` tokens, which share one read of weights and cache. */
function checkWork(cost: ModelCost, before: number, tokens: number): Work {
  const { token, output, pair } = cost;
  const pairs = pairsOf(tokens, before);
  const windows = windowWork(
    cost,
    (window) => Math.min(before + tokens, window - 1 + tokens),
    (window) => pairsOf(tokens, before, window),
  );
  const kvBytes = (before + tokens) * cost.kvBytes + windows.bytes;
  return {
    bytes: weightBytesFor(cost, tokens) + tokens * cost.rowBytes + kvBytes,
    ...opsSum([tokens, token], [tokens, output], [pairs, pair], [1, windows]),
  };
}

/** The number of drafted tokens, up to `most`, with the highest speed; 0: speculation does not pay. */
export function bestDraftTokens(
  cost: ModelCost,
  device: Device,
  before: number,
  speculation: Omit<Speculation, "draftTokens">,
  most = 32,
): SpeculationLimit {
  let best = speculationLimit(cost, device, before, { ...speculation, draftTokens: 0 });
  for (let draftTokens = 1; draftTokens <= most; draftTokens++) {
    const limit = speculationLimit(cost, device, before, { ...speculation, draftTokens });
    if (limit.msPerToken < best.msPerToken) best = limit;
  }
  return best;
}

function checkSpeculation({ acceptance, draftTokens, draft }: Speculation): void {
  if (!(acceptance >= 0 && acceptance <= 1)) {
    throw new UsageError(
      `acceptance: got ${String(acceptance)}, expected a probability from 0 to 1`,
    );
  }
  if (!(Number.isSafeInteger(draftTokens) && draftTokens >= 0)) {
    throw new UsageError(
      `draftTokens: got ${String(draftTokens)}, expected a whole number of at least 0`,
    );
  }
  if (typeof draft === "number" && !(draft >= 0 && Number.isFinite(draft))) {
    throw new UsageError(
      `draft cost: got ${String(draft)}, expected a fraction of at least 0 (0.1: a tenth of the model's time)`,
    );
  }
}
