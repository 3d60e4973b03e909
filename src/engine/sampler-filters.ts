// The filters of the sampler: each one drops candidates; none changes a logit.
//
// Probabilities are the softmax of the logits over the candidates that are left at that point,
// before temperature. Every filter keeps at least one candidate. Scratch arrays belong to the
// Candidates record and are made once for a vocabulary.

import { selectBest } from "./select-best.ts";

export interface Candidates {
  /** Token ids still in play: the first `count` of this array. */
  ids: Int32Array;
  count: number;
  /** Whether ids are ordered by logit, best first (equal logits: lower id first). */
  sorted: boolean;
  /** Where a filter builds its new list; then it changes places with `ids`. */
  spare: Int32Array;
  /** [vocab] how typical a token is, 0 being most; made at the first use of keepTypical. */
  typicality: Float64Array | undefined;
}

export function createCandidates(vocabSize: number): Candidates {
  return {
    ids: new Int32Array(vocabSize),
    count: 0,
    sorted: false,
    spare: new Int32Array(vocabSize),
    typicality: undefined,
  };
}

/** Puts the whole vocabulary back in play. */
export function resetCandidates(candidates: Candidates): void {
  const { ids } = candidates;
  for (let id = 0; id < ids.length; id++) ids[id] = id;
  candidates.count = ids.length;
  candidates.sorted = false;
}

/** The k most likely; of equally likely ones at the edge, the lower ids. */
export function keepTopK(candidates: Candidates, logits: Float32Array, k: number): void {
  if (k === 0 || k >= candidates.count) return;
  swapIn(candidates, selectBest(logits, candidates.ids, candidates.count, k, candidates.spare));
  candidates.sorted = true;
}

/**
 * Locally typical sampling (Meister et al. 2022): the candidates whose surprise -ln p is nearest to
 * the expected surprise (the entropy), as few as reach probability p together.
 */
export function keepTypical(candidates: Candidates, logits: Float32Array, p: number): void {
  if (p >= 1) return;
  const { ids, count } = candidates;
  const max = maxLogit(candidates, logits);
  const total = weightSum(candidates, logits, max);
  const logTotal = Math.log(total);

  let entropy = 0;
  for (let i = 0; i < count; i++) {
    const logProbability = logits[ids[i]!]! - max - logTotal;
    const probability = Math.exp(logProbability);
    if (probability > 0) entropy -= probability * logProbability;
  }

  candidates.typicality ??= new Float64Array(ids.length);
  const { typicality } = candidates;
  for (let i = 0; i < count; i++) {
    const id = ids[i]!;
    typicality[id] = -Math.abs(logTotal - (logits[id]! - max) - entropy);
  }
  keepUntil(candidates, logits, max, p * total, typicality);
  candidates.sorted = false;
}

/** The most likely candidates, as few as reach probability p together. */
export function keepTopP(candidates: Candidates, logits: Float32Array, p: number): void {
  if (p >= 1) return;
  const max = maxLogit(candidates, logits);
  const total = weightSum(candidates, logits, max);
  keepUntil(candidates, logits, max, p * total, logits);
  candidates.sorted = true;
}

/** Those at least minP times as likely as the most likely one. */
export function keepMinP(candidates: Candidates, logits: Float32Array, minP: number): void {
  if (minP === 0) return;
  const { ids, count } = candidates;
  const lowest = maxLogit(candidates, logits) + Math.log(minP);
  let kept = 0;
  for (let i = 0; i < count; i++) {
    if (logits[ids[i]!]! >= lowest) ids[kept++] = ids[i]!;
  }
  candidates.count = kept;
}

/** Chooses by the softmax of logits / temperature over the candidates; `uniform` is in [0, 1). */
export function drawCandidate(
  candidates: Candidates,
  logits: Float32Array,
  temperature: number,
  uniform: number,
): number {
  const { ids, count } = candidates;
  const max = maxLogit(candidates, logits);
  const weightOf = (i: number): number => Math.exp((logits[ids[i]!]! - max) / temperature);
  let total = 0;
  for (let i = 0; i < count; i++) total += weightOf(i);

  const target = uniform * total;
  let reached = 0;
  let chosen = ids[0]!;
  for (let i = 0; i < count && reached <= target; i++) {
    const weight = weightOf(i);
    if (weight === 0) continue; // a forbidden token is not chosen, not even by rounding
    reached += weight;
    chosen = ids[i]!;
  }
  return chosen;
}

/** Keeps the candidates that are best by `keys`, as few as reach `target` of the weight exp(logit - max). */
function keepUntil(
  candidates: Candidates,
  logits: Float32Array,
  max: number,
  target: number,
  keys: Float32Array | Float64Array,
): void {
  const { count } = candidates;
  // The set is small as a rule: order a few hundred candidates, and more only if they do not suffice.
  for (let tries = 256; ; tries *= 16) {
    const ordered = selectBest(keys, candidates.ids, count, tries, candidates.spare);
    const kept = countUntil(candidates.spare, ordered, logits, max, target);
    if (kept === undefined && ordered < count) continue;
    swapIn(candidates, kept ?? ordered);
    return;
  }
}

/** How many of the first `count` ids reach `target`; undefined when all together do not. */
function countUntil(
  ids: Int32Array,
  count: number,
  logits: Float32Array,
  max: number,
  target: number,
): number | undefined {
  let reached = 0;
  for (let i = 0; i < count; i++) {
    reached += Math.exp(logits[ids[i]!]! - max);
    if (reached >= target) return i + 1;
  }
  return undefined;
}

function swapIn(candidates: Candidates, count: number): void {
  const { ids, spare } = candidates;
  candidates.ids = spare;
  candidates.spare = ids;
  candidates.count = count;
}

function maxLogit(candidates: Candidates, logits: Float32Array): number {
  const { ids, count, sorted } = candidates;
  if (sorted) return logits[ids[0]!]!;
  let max = Number.NEGATIVE_INFINITY;
  for (let i = 0; i < count; i++) max = Math.max(max, logits[ids[i]!]!);
  return max;
}

function weightSum(candidates: Candidates, logits: Float32Array, max: number): number {
  const { ids, count } = candidates;
  let total = 0;
  for (let i = 0; i < count; i++) total += Math.exp(logits[ids[i]!]! - max);
  return total;
}
