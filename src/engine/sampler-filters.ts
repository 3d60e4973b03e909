// The filters of the sampler: each drops candidates; none changes a logit (sampler-logits.ts has the steps that do).
//
// Probabilities are the softmax of the logits over the candidates left at that point. Every filter keeps at least one
// candidate. Scratch arrays belong to the Candidates record and are allocated once per vocabulary.

import { bestOfAll, selectBest, selectBestOfAll, sortBest } from "../base/select-best.ts";

export interface Candidates {
  /** The remaining token ids: the first `count` of this array. */
  ids: Int32Array;
  count: number;
  /** Whether ids are ordered by logit, best first (equal logits: lower id first). */
  sorted: boolean;
  /** The id of the best candidate; -1 if not known. */
  best: number;
  /** Probability of the last drawn token among its candidates. */
  drawnProbability: number;
  /** [vocab] 0, 1, 2, ...: the value of `ids` while all tokens are candidates. Never written. */
  readonly everyId: Int32Array;
  /** [vocab] each: a filter builds its new list in the one that is not `ids`. Allocated at first use. */
  readonly lists: [Int32Array | undefined, Int32Array | undefined];
  /** [vocab] One number per candidate, for any use by a filter; allocated at first use. */
  scratch: Float64Array | undefined;
}

export function createCandidates(vocabSize: number): Candidates {
  const everyId = everyIdOf(vocabSize);
  return {
    ids: everyId,
    count: vocabSize,
    sorted: false,
    best: -1,
    drawnProbability: 1,
    everyId,
    lists: [undefined, undefined],
    scratch: undefined,
  };
}

/** The last list of all ids: the generations of a model share one. */
let lastEveryId = new Int32Array(0);

function everyIdOf(vocabSize: number): Int32Array {
  if (lastEveryId.length !== vocabSize) {
    lastEveryId = new Int32Array(vocabSize);
    for (let id = 0; id < vocabSize; id++) lastEveryId[id] = id;
  }
  return lastEveryId;
}

/** Makes the whole vocabulary candidates again. */
export function resetCandidates(candidates: Candidates): void {
  const { everyId } = candidates;
  candidates.ids = everyId;
  candidates.count = everyId.length;
  candidates.sorted = false;
  candidates.best = -1;
}

/** Makes the first `count` of these the candidates: the best of the vocabulary, in order. */
export function takeBest(candidates: Candidates, best: Int32Array, count: number): void {
  const { lists, everyId } = candidates;
  lists[0] ??= new Int32Array(everyId.length);
  for (let i = 0; i < count; i++) lists[0][i] = best[i]!;
  candidates.ids = lists[0];
  candidates.count = count;
  candidates.sorted = true;
  candidates.best = -1;
}

/** Call when logits were changed: the order of the candidates is unknown then. */
export function forgetOrder(candidates: Candidates): void {
  candidates.sorted = false;
  candidates.best = -1;
}

/** The id of the best candidate; if all are candidates, a NaN logit counts as the best. */
export function bestCandidate(candidates: Candidates, logits: Float32Array): number {
  const { ids, count, sorted, everyId } = candidates;
  if (candidates.best < 0) {
    if (sorted) candidates.best = ids[0]!;
    else if (ids === everyId) candidates.best = bestOfAll(logits);
    else {
      let best = ids[0]!;
      for (let i = 1; i < count; i++) if (logits[ids[i]!]! > logits[best]!) best = ids[i]!;
      candidates.best = best;
    }
  }
  return candidates.best;
}

/** Keeps the k most likely; of equally likely ones at the edge, the lower ids. A NaN among all logits is kept alone. */
export function keepTopK(candidates: Candidates, logits: Float32Array, k: number): void {
  const { ids, count, everyId } = candidates;
  if (k === 0 || k >= count) return;
  const spare = spareOf(candidates);
  const kept =
    ids === everyId ? selectBestOfAll(logits, k, spare) : selectBest(logits, ids, count, k, spare);
  swapIn(candidates, kept);
  candidates.sorted = true;
}

/**
 * Locally typical sampling (Meister et al. 2022): keeps the candidates whose surprise -ln p is nearest to the expected surprise
 * (the entropy), the fewest that together exceed probability p.
 */
export function keepTypical(candidates: Candidates, logits: Float32Array, p: number): void {
  if (p >= 1) return;
  const { ids, count } = candidates;
  const max = maxLogit(candidates, logits);
  const total = weightSum(candidates, logits, max);
  const logTotal = Math.log(total);
  const entropy = entropyOf(candidates, logits);

  const typicality = scratchOf(candidates);
  for (let i = 0; i < count; i++) {
    const id = ids[i]!;
    typicality[id] = -Math.abs(logTotal - (logits[id]! - max) - entropy);
  }
  keepUntil(candidates, logits, max, p * total, typicality);
  forgetOrder(candidates); // the best candidate may be less typical than others
}

/** Keeps the most likely candidates, as few as together reach probability p. */
export function keepTopP(candidates: Candidates, logits: Float32Array, p: number): void {
  if (p >= 1) return;
  const max = maxLogit(candidates, logits);
  const total = weightSum(candidates, logits, max);
  const target = p * total;
  if (!candidates.sorted) {
    keepLikely(candidates, logits, max, target);
    sortBest(logits, candidates.ids, candidates.count, scratchOf(candidates));
    candidates.sorted = true;
  }
  const kept = countUntil(candidates.ids, candidates.count, logits, max, target);
  candidates.count = kept ?? candidates.count;
}

/** Keeps the candidates at least minP times as likely as the most likely one. */
export function keepMinP(candidates: Candidates, logits: Float32Array, minP: number): void {
  if (minP === 0) return;
  keepWhere(candidates, logits, maxLogit(candidates, logits) + Math.log(minP));
}

/** Keeps the candidates with at least this logit. */
export function keepWhere(candidates: Candidates, logits: Float32Array, lowest: number): void {
  const { ids, count } = candidates;
  const spare = spareOf(candidates);
  let kept = 0;
  for (let i = 0; i < count; i++) {
    if (logits[ids[i]!]! >= lowest) spare[kept++] = ids[i]!;
  }
  swapIn(candidates, kept);
}

/** Keeps only the best candidate. */
export function keepBest(candidates: Candidates, logits: Float32Array): void {
  const best = bestCandidate(candidates, logits);
  spareOf(candidates)[0] = best;
  swapIn(candidates, 1);
  candidates.sorted = true;
}

/**
 * XTC, "exclude top choices" (by p-e-w): if two or more candidates reach the threshold, drops all of them but the
 * least likely.
 */
export function dropTopChoices(
  candidates: Candidates,
  logits: Float32Array,
  threshold: number,
): void {
  const { ids, count } = candidates;
  const max = maxLogit(candidates, logits);
  const least = threshold * weightSum(candidates, logits, max);
  const weights = scratchOf(candidates);
  let likely = 0;
  let last = -1; // the least likely of them; of equal ones, the highest id
  for (let i = 0; i < count; i++) {
    if (weights[i]! < least) continue;
    likely++;
    const id = ids[i]!;
    const isLower = last < 0 || logits[id]! < logits[last]!;
    if (isLower || (logits[id]! === logits[last]! && id > last)) last = id;
  }
  if (likely < 2) return;
  const spare = spareOf(candidates);
  let kept = 0;
  for (let i = 0; i < count; i++) {
    if (weights[i]! < least || ids[i] === last) spare[kept++] = ids[i]!;
  }
  swapIn(candidates, kept);
  candidates.best = last;
}

/** The sum of exp(logit - best) over the candidates. */
export function sumOfWeights(candidates: Candidates, logits: Float32Array): number {
  return weightSum(candidates, logits, maxLogit(candidates, logits));
}

/** The entropy of the candidates, in nats. */
export function entropyOf(candidates: Candidates, logits: Float32Array): number {
  const { ids, count } = candidates;
  const max = maxLogit(candidates, logits);
  const logTotal = Math.log(weightSum(candidates, logits, max));
  let entropy = 0;
  for (let i = 0; i < count; i++) {
    const logProbability = logits[ids[i]!]! - max - logTotal;
    const probability = Math.exp(logProbability);
    if (probability > 0) entropy -= probability * logProbability;
  }
  return entropy;
}

/** Draws from the softmax of logits / temperature over the candidates; `uniform` is in [0, 1). */
export function drawCandidate(
  candidates: Candidates,
  logits: Float32Array,
  temperature: number,
  uniform: number,
): number {
  const { ids, count } = candidates;
  const max = maxLogit(candidates, logits);
  const weights = scratchOf(candidates);
  let total = 0;
  for (let i = 0; i < count; i++) {
    const weight = Math.exp((logits[ids[i]!]! - max) / temperature);
    weights[i] = weight;
    total += weight;
  }

  const target = uniform * total;
  let reached = 0;
  let chosen = 0;
  for (let i = 0; i < count && reached <= target; i++) {
    const weight = weights[i]!;
    if (weight === 0) continue; // a forbidden token is never chosen, not even by rounding
    reached += weight;
    chosen = i;
  }
  candidates.drawnProbability = weights[chosen]! / total;
  return ids[chosen]!;
}

/** Bins of keepLikely: by distance from the best logit, in sixteenths; the last bin takes all larger distances. */
const BINS = 1024;
const BINS_PER_NAT = 16;
const binWeights = new Float64Array(BINS);

/**
 * Drops candidates that are certainly not among the most likely ones that together reach `target`: all logits farther
 * from the best than the bin in which the target is reached. Takes two passes without sorting; the caller sorts the
 * rest. The weights are in the scratch memory.
 */
function keepLikely(
  candidates: Candidates,
  logits: Float32Array,
  max: number,
  target: number,
): void {
  const { ids, count } = candidates;
  const spare = spareOf(candidates);
  const weights = scratchOf(candidates);
  binWeights.fill(0);
  for (let i = 0; i < count; i++) {
    const bin = Math.floor((max - logits[ids[i]!]!) * BINS_PER_NAT);
    binWeights[Math.min(BINS - 1, bin)]! += weights[i]!;
  }
  // Sums in another order differ in the last digits, so go slightly beyond the target.
  const enough = target * (1 + 1e-9);
  let bins = 0;
  for (let reached = 0; bins < BINS && reached < enough; bins++) reached += binWeights[bins]!;
  const farthest = bins < BINS ? bins / BINS_PER_NAT : Number.POSITIVE_INFINITY;
  let kept = 0;
  for (let i = 0; i < count; i++) {
    if (max - logits[ids[i]!]! <= farthest) spare[kept++] = ids[i]!;
  }
  swapIn(candidates, kept);
}

/** Keeps the candidates with the best `keys`, as few as exceed `target` of the weight exp(logit - max). */
function keepUntil(
  candidates: Candidates,
  logits: Float32Array,
  max: number,
  target: number,
  keys: Float64Array,
): void {
  const { count } = candidates;
  const spare = spareOf(candidates);
  // The set is usually small: sort a few hundred candidates, and more only if they do not suffice.
  for (let tries = 256; ; tries *= 16) {
    const ordered = selectBest(keys, candidates.ids, count, tries, spare);
    const kept = countUntil(spare, ordered, logits, max, target, true);
    if (kept === undefined && ordered < count) continue;
    swapIn(candidates, kept ?? ordered);
    return;
  }
}

/** The number of first ids that together reach `target` (or exceed it), of `count`; undefined if all together do not. */
function countUntil(
  ids: Int32Array,
  count: number,
  logits: Float32Array,
  max: number,
  target: number,
  exceed = false,
): number | undefined {
  let reached = 0;
  for (let i = 0; i < count; i++) {
    reached += Math.exp(logits[ids[i]!]! - max);
    if (exceed ? reached > target : reached >= target) return i + 1;
  }
  return undefined;
}

/** Makes the first `count` ids of the spare list the candidates. */
function swapIn(candidates: Candidates, count: number): void {
  candidates.ids = spareOf(candidates);
  candidates.count = count;
}

function spareOf({ ids, lists, everyId }: Candidates): Int32Array {
  const spare = ids === lists[0] ? 1 : 0;
  lists[spare] ??= new Int32Array(everyId.length);
  return lists[spare];
}

function maxLogit(candidates: Candidates, logits: Float32Array): number {
  return logits[bestCandidate(candidates, logits)]!;
}

function scratchOf(candidates: Candidates): Float64Array {
  candidates.scratch ??= new Float64Array(candidates.everyId.length);
  return candidates.scratch;
}

/** The sum of exp(logit - max); leaves the weights in the scratch memory, in the candidates' order. */
function weightSum(candidates: Candidates, logits: Float32Array, max: number): number {
  const { ids, count } = candidates;
  const weights = scratchOf(candidates);
  let total = 0;
  for (let i = 0; i < count; i++) {
    const weight = Math.exp(logits[ids[i]!]! - max);
    weights[i] = weight;
    total += weight;
  }
  return total;
}
